//! Ceilings of pace that a gateway sets, as the kernel says them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::net::*;
use gateway::Gateway;
use gateway::config::Config;

fn config(outside: &str) -> Config {
    let text =
        format!("[inside]\ninterfaces = ['in0']\n[outside]\ninterfaces = ['out0']\n{outside}");
    Config::parse(&text).unwrap()
}

/// Ceilings of the halves to the server, and of those to the client, in bits a second.
fn ceilings(gateway: &Gateway) -> [Vec<u64>; 2] {
    let seen = gateway.look(100);
    [1, 0].map(|half| seen.iter().map(|s| s.halves[half].pace_most_bps).collect())
}

/// Waits, bounded, until those to the server are so.
fn until_ceilings(gateway: &Gateway, what: &str, done: impl Fn(&[u64]) -> bool) -> Vec<u64> {
    let end = Instant::now() + PATIENCE;
    loop {
        let [there, back] = ceilings(gateway);
        assert!(
            back.iter().all(|c| *c == u64::MAX),
            "only one side is paced"
        );
        if done(&there) {
            return there;
        }
        assert!(Instant::now() < end, "{what}: {there:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_given_rate_is_that_of_all_connections_between_two_hosts() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(config("pacing = '80Mb/s'\nharmonize = true"));
    let mut pairs: Vec<_> = (0..4).map(|_| net.pair()).collect();
    until_ceilings(&gateway, "a quarter each", |c| c == [20_000_000; 4]);
    // Of other hosts, which are IPv6's addresses here: a group of its own.
    let (listener, addr) = net.listen(SERVER6);
    let near = net.connect(addr).unwrap();
    let far = listener.accept().unwrap().0;
    let sorted = until_ceilings(&gateway, "its own rate", |c| {
        c.iter().filter(|c| **c == 80_000_000).count() == 1
    });
    assert_eq!(sorted.len(), 5);
    drop((near, far));
    pairs.truncate(2);
    until_ceilings(&gateway, "half each", |c| c == [40_000_000; 2]);
}

#[test]
fn without_it_each_connection_has_the_rate() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(config("pacing = '80Mb/s'"));
    let _pairs: Vec<_> = (0..3).map(|_| net.pair()).collect();
    until_ceilings(&gateway, "the whole each", |c| c == [80_000_000; 3]);
}

/// Sends and reads until the gateway shows what is asked for.
fn under_load(outside: &str, done: impl Fn(&[u64]) -> bool) {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(config(outside));
    let pairs: Vec<_> = (0..3).map(|_| net.pair()).collect();
    let copy = |socket: &TcpStream| socket.try_clone().unwrap();
    thread::scope(|scope| {
        for (near, far) in &pairs {
            let (mut near, mut far) = (copy(near), copy(far));
            // Until it is shut below.
            scope.spawn(move || while near.write_all(&[7; 16_384]).is_ok() {});
            scope.spawn(move || {
                let mut block = vec![0; 65_536];
                while far.read(&mut block).is_ok_and(|read| read > 0) {
                    // So that there is a rate to be found.
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        until_ceilings(&gateway, "ceilings", done);
        for (near, _) in &pairs {
            near.shutdown(Shutdown::Both).unwrap();
        }
    });
    drop(pairs);
    until(&gateway, "all end", |c| c.live == 0);
}

#[test]
fn connections_of_two_hosts_get_even_parts_of_what_is_found() {
    let alike = |c: &[u64]| {
        let (least, most) = (c.iter().min().unwrap(), c.iter().max().unwrap());
        c.len() == 3 && *most < u64::MAX && most - least <= most / 100
    };
    under_load("harmonize = true", alike);
}

#[test]
fn each_may_find_a_rate_of_its_own() {
    under_load("pacing = 'even'", |c| {
        c.len() == 3 && c.iter().all(|c| *c < u64::MAX)
    });
}

#[test]
fn a_clients_connections_on_several_workers_cannot_share() {
    let mut config = config("harmonize = true");
    config.workers = 2;
    let error = config.check().unwrap_err().to_string();
    assert!(error.contains("set workers = 1"), "{error}");
}
