//! Many connections one after the other leave nothing behind. Alone in its process, whose descriptors and
//! memory are looked at. GOODPUT_CHURN says how many: a million take some minutes.

#[path = "all/net/mod.rs"]
mod net;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::net::*;
use sys::firewall::BaseChain;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let number = line.unwrap().trim().strip_suffix(" kB").unwrap();
    number.parse().unwrap()
}

/// Sockets of TCP that the gateway's namespace has, and those that rest in TIME-WAIT. By the thread, which is there: the
/// process is not.
fn sockets(net: &Net) -> [u64; 2] {
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let text = net
        .middle
        .run(|| {
            [read("sockstat"), read("sockstat6")]
                .map(Result::unwrap)
                .concat()
        })
        .unwrap();
    let of = |family: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(family)).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|w| *w == name).unwrap();
        words[at + 1].parse::<u64>().unwrap()
    };
    [of("TCP:", "inuse") + of("TCP6:", "inuse"), of("TCP:", "tw")]
}

/// Each chain of nftables with the number of its rules.
fn chains(net: &Net) -> Vec<BaseChain> {
    net.middle.run(sys::firewall::base_chains).unwrap().unwrap()
}

/// Waits, bounded, until the namespace has no more sockets than before: the last FINs may be on their way.
fn settle(net: &Net, before: u64) {
    let end = Instant::now() + PATIENCE;
    while sockets(net)[0] > before {
        assert!(Instant::now() < end, "{:?} after {before}", sockets(net));
        thread::sleep(Duration::from_millis(10));
    }
}

/// What leads to the gateway's routing table, and what is in it.
fn routes(net: &Net) -> usize {
    let count = || {
        let mut netlink = sys::netlink::Netlink::open().unwrap();
        let table = Net::config().table;
        netlink.routes_in(table).unwrap() + netlink.rules_to(table..=table).unwrap().len()
    };
    net.middle.run(count).unwrap()
}

#[test]
fn many_connections_leave_nothing_behind() {
    let Some(net) = Net::new() else { return };
    let count: u64 = match std::env::var("GOODPUT_CHURN") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 3_000,
    };
    // Ports of connections that ended are used again before a minute has passed.
    net.client
        .run(|| fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65000"))
        .unwrap()
        .unwrap();
    let untouched = chains(&net);
    let gateway = net.gateway(Net::config());
    // Its listeners.
    let [own, _] = sockets(&net);
    assert_eq!(own, 4);
    let (listener, addr) = net.listen(SERVER);
    let serve = thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut byte = [0];
            match stream.read_exact(&mut byte) {
                Ok(()) if byte[0] == b'q' => return,
                Ok(()) => stream.write_all(&byte).unwrap(),
                Err(e) => panic!("{e}"),
            }
        }
    });
    let run = |count: u64| {
        let work = || {
            for _ in 0..count {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.write_all(b"a").unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert_eq!(got, b"a");
            }
        };
        net.client.run(work).unwrap();
        until(&gateway, "all end", |c| c.live == 0 && c.waiting == 0)
    };
    // The first of them make what is kept: pipes, tables that have grown.
    run(500);
    let look = |after: u64| {
        let (fds, kib) = (descriptors(), resident_kib());
        settle(&net, own);
        let ([sockets, resting], routes) = (sockets(&net), routes(&net));
        eprintln!(
            "after {after}: {fds} descriptors, {kib} KiB, {sockets} sockets of TCP and {resting} that rest, \
             {routes} routes and rules"
        );
        (fds, kib, (routes, chains(&net)))
    };
    let (fds, kib, rules) = look(500);
    let tenth = count / 10;
    run(tenth);
    let early = look(500 + tenth);
    let counts = run(count - tenth);
    let late = look(500 + count);
    assert_ne!(rules.1, untouched);
    assert_eq!((early.0, &early.2), (fds, &rules));
    assert_eq!((late.0, &late.2), (fds, &rules));
    let more = late.1.saturating_sub(kib);
    eprintln!("{count} connections: {more} KiB more, {counts:?}");
    assert_eq!(counts.split, count + 500);
    assert_eq!(counts.split, counts.ended + counts.reset);
    assert_eq!((counts.reset, counts.failed), (0, 0));
    // Not in proportion to what there were: 16 bytes for each would be 16 MB of a million.
    assert!(more < 8 << 10, "{more} KiB");
    let mut last = net.connect(addr).unwrap();
    last.write_all(b"q").unwrap();
    serve.join().unwrap();
    gateway.stop().unwrap();
    assert_eq!(routes(&net), 0);
    assert_eq!(chains(&net), untouched);
    settle(&net, 0);
}
