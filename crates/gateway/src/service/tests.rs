//! What a gateway does as a whole that shows only from within.

use super::*;

#[test]
fn each_of_several_workers_that_accept_openly_serves_its_part() {
    use std::net::{TcpListener, TcpStream};
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap();
    drop(free);
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
            (near, server.accept().unwrap())
        })
        .collect();
    // By a hash of 64 ends: that one of four has none is one in 10^8.
    let taken = || gateway.counters.iter().map(|c| c.read());
    assert!(taken().all(|c| c.split + c.waiting > 0));
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
