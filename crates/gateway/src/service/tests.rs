//! What a gateway does as a whole that shows only from within.

#[path = "../../tests/all/net/mod.rs"]
mod net;

use std::io::{Read, Write};

use super::*;
use net::{Net, PATIENCE, accept, until};

#[test]
fn while_a_worker_stands_still_new_connections_pass_unsplit() {
    let Some(net) = Net::new() else { return };
    let mut gateway = net.gateway(Net::config());
    let before = net.pair();
    until(&gateway, "one is split", |c| c.split == 1);
    let orders = Arc::clone(&gateway.orders);
    let held = orders.hold();
    let mut now = Instant::from_ns(0);
    let mut look = |gateway: &mut Gateway, aside| {
        let end = std::time::Instant::now() + PATIENCE;
        while gateway.is_aside() != aside {
            assert!(std::time::Instant::now() < end, "{aside}");
            now += crate::aside::EVERY;
            gateway.watch_itself(now);
            // It has yet to come to where it stands still, or to go on.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    look(&mut gateway, true);
    let (mut near, mut far) = net.pair();
    near.write_all(b"there").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(gateway.counts().split, 1);
    drop(held);
    look(&mut gateway, false);
    let after = net.pair();
    until(&gateway, "another is split", |c| c.split == 2);
    // Nobody was in the way of the one that passed.
    far.write_all(b"back").unwrap();
    near.read_exact(&mut [0; 4]).unwrap();
    drop((before, after));
}

#[test]
fn each_of_several_workers_that_accept_openly_serves_its_part() {
    use std::net::{TcpListener, TcpStream};
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = ([127, 0, 0, 1], testing::free_port()).into();
    let config = Config {
        mode: Mode::Explicit {
            listen,
            target: server.local_addr().unwrap(),
        },
        workers: 4,
        ..Config::default()
    };
    let gateway = Gateway::start(config.clone()).unwrap();
    let pairs: Vec<_> = (0..64)
        .map(|_| {
            let near = TcpStream::connect(listen).unwrap();
            (near, accept(&server))
        })
        .collect();
    until(&gateway, "all are split", |c| c.split == 64);
    let each = gateway.counters.iter().map(|c| c.read().split);
    let each: Vec<u64> = each.collect();
    // By a hash of their ends: that one of four has none is as likely as one in 10^7.
    assert!(each.len() == 4 && each.iter().all(|n| *n > 0), "{each:?}");
    let second = Gateway::start(config).unwrap_err().to_string();
    assert!(second.contains("in use"), "{second}");
    drop(pairs);
}

#[test]
fn descriptors_go_to_sockets_first_and_pipes_have_the_rest() {
    let of = |descriptors| {
        let config = bounded(Config::default(), descriptors);
        (config.limits.connections, config.pipes)
    };
    assert_eq!(of(20_000), (9_135, 609));
    // Enough for all: two pipes each.
    let whole = Config::default().limits.connections;
    assert_eq!(of(descriptors_for(whole)), (whole, 2 * whole as u64));
    assert_eq!(of(0), (1, 0));
    assert_eq!(descriptors_for(usize::MAX), u64::MAX);
}
