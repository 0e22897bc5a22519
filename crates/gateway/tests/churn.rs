//! Many connections one after the other leave nothing behind. Alone in its process, whose descriptors and
//! memory are looked at. GOODPUT_CHURN says how many: a million take some minutes.

mod net;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use net::*;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let number = line.unwrap().trim().strip_suffix(" kB").unwrap();
    number.parse().unwrap()
}

/// Sockets of TCP that the gateway's namespace has, those in TIME-WAIT included.
fn sockets(net: &Net) -> u64 {
    let read = || fs::read_to_string("/proc/net/sockstat").unwrap();
    let text = net.middle.run(read).unwrap();
    let line = text.lines().find(|l| l.starts_with("TCP:")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let of = |name| {
        let at = words.iter().position(|w| *w == name).unwrap();
        words[at + 1].parse::<u64>().unwrap()
    };
    of("inuse") + of("tw")
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
    let gateway = net.gateway(Net::config());
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
        let (sockets, routes) = (sockets(&net), routes(&net));
        eprintln!(
            "after {after}: {fds} descriptors, {kib} KiB, {sockets} sockets of TCP, {routes} routes and rules"
        );
        (fds, kib, routes)
    };
    let (fds, kib, rules) = look(500);
    let tenth = count / 10;
    run(tenth);
    let early = look(500 + tenth);
    let counts = run(count - tenth);
    let late = look(500 + count);
    assert_eq!((early.0, early.2), (fds, rules));
    assert_eq!((late.0, late.2), (fds, rules));
    let more = late.1.saturating_sub(kib);
    eprintln!("{count} connections: {more} KiB more, {counts:?}");
    assert_eq!(counts.split, count + 500);
    assert_eq!(counts.split, counts.ended + counts.reset);
    assert_eq!((counts.reset, counts.failed), (0, 0));
    // Not in proportion to what there were: 16 bytes for each would be 16 MB of a million.
    assert!(more < 8 << 10, "{more} KiB");
    // The kernel lets go of them: what is left rests in TIME-WAIT, of which there is a port's worth at most.
    assert!(sockets(&net) <= count + 510, "{}", sockets(&net));
    let mut last = net.connect(addr).unwrap();
    last.write_all(b"q").unwrap();
    serve.join().unwrap();
    gateway.stop().unwrap();
    assert_eq!(routes(&net), 0);
}
