//! What strangers and mistakes can do to a gateway: bounded, counted, and others are served meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::net::*;
use gateway::Gateway;
use gateway::config::{Config, Mode};
use gateway::counters::Counts;
use gateway::deferral::Limits;

/// A byte there and back on a new connection, split or not.
fn is_served(net: &Net) {
    let (mut near, mut far) = net.pair();
    near.write_all(b"a").unwrap();
    far.read_exact(&mut [0]).unwrap();
    far.write_all(b"b").unwrap();
    near.read_exact(&mut [0]).unwrap();
}

/// SYNs from addresses where nobody is: their sockets live until this is dropped.
fn flood(net: &Net, to: SocketAddr, count: u32) -> Vec<TcpStream> {
    let send = |number: u32| {
        let host = 16 + u8::try_from(number % 200).unwrap();
        let from = Ipv4Addr::new(198, 18, 1, host);
        let port = 1024 + u16::try_from(number / 200).unwrap();
        sys::transparent::connect_from((from, port).into(), to, |_| Ok(())).unwrap()
    };
    net.client.run(|| (0..count).map(send).collect()).unwrap()
}

#[test]
fn a_flood_of_forged_syns_is_bounded_and_others_are_served() {
    let Some(net) = Net::new() else { return };
    let limits = Limits {
        waiting: 64,
        waiting_per_client: 8,
        handshake: units::Duration::from_s(3),
        ..Limits::default()
    };
    let gateway = net.gateway(Config {
        limits,
        ..Net::config()
    });
    let (_listener, addr) = net.listen(SERVER);
    let forged = flood(&net, addr, 2_000);
    let counts = until(&gateway, "the bound is met", |c| c.over_limit > 0);
    assert!(counts.waiting <= 64, "{counts:?}");
    // At the bound it passes; one way or the other it is served.
    is_served(&net);
    assert_eq!(gateway.counts().split, 0);
    drop(forged);
    let counts = until(&gateway, "the forged are forgotten", |c| {
        c.waiting == 0 && c.abandoned > 0
    });
    assert_eq!((counts.live, counts.split), (0, 0));
    is_served(&net);
    until(&gateway, "split again", |c| c.split == 1);
}

#[test]
fn who_does_not_read_holds_up_nobody_else_and_little_memory() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let mut held = Vec::new();
    let mut sent = Vec::new();
    for _ in 0..12 {
        let (near, far) = net.pair();
        near.set_nonblocking(true).unwrap();
        held.push((near, far));
        sent.push(0_usize);
    }
    let block = [7; 1 << 16];
    let mut idle = 0;
    while idle < 20 {
        let mut moved = false;
        for ((near, _), sent) in held.iter_mut().zip(&mut sent) {
            while *sent < 3 << 20
                && let Ok(n) = near.write(&block)
            {
                *sent += n;
                moved = true;
            }
        }
        idle = if moved { 0 } else { idle + 1 };
        thread::sleep(Duration::from_millis(10));
    }
    let (mut near, mut far) = net.pair();
    for _ in 0..64 {
        near.write_all(&block).unwrap();
        far.read_exact(&mut vec![0; block.len()]).unwrap();
    }
    // What the gateway itself holds: 64 MiB, and from there on a small pipe of each.
    let counts = gateway.counts();
    assert!(
        counts.in_pipes <= (65 << 20) + 181 * (64 << 10),
        "{counts:?}"
    );
    for ((near, mut far), sent) in held.into_iter().zip(sent) {
        drop(near);
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), sent);
    }
    drop((near, far));
    let counts = until(&gateway, "all end", |c| c.live == 0);
    assert_eq!((counts.reset, counts.in_pipes), (0, 0));
}

#[test]
fn among_many_who_is_not_read_from_is_offered_little() {
    let Some(net) = Net::new() else { return };
    // So that two are many.
    let tuning = || std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 1073741824");
    net.middle.run(tuning).unwrap().unwrap();
    let most = sys::host::tcp_memory().unwrap().pressure.as_u64() >> 30;
    let gateway = net.gateway(Net::config());
    let crowd: Vec<_> = (0..most).map(|_| net.pair()).collect();
    let (mut near, far) = net.pair();
    near.set_nonblocking(true).unwrap();
    let block = [7; 1 << 16];
    let (mut sent, mut offered, mut idle) = (0, 0, 0);
    while idle < 20 {
        idle += 1;
        while let Ok(n) = near.write(&block) {
            (sent, idle) = (sent + n, 0);
        }
        let info = sys::tcp::tcp_info(near.as_fd()).unwrap();
        offered = offered.max(info.snd_wnd_bytes);
        thread::sleep(Duration::from_millis(10));
    }
    assert!(sent > 1 << 20, "a pipe is full: {sent}");
    // Of a buffer of 256 KiB the kernel takes twice as much.
    assert!(offered <= 512 << 10, "{offered}");
    drop(near);
    let mut got = Vec::new();
    let mut far = far;
    far.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent);
    drop((crowd, far));
    until(&gateway, "all end", |c| c.live == 0);
}

/// A gateway that clients connect to, from and to addresses of its own.
fn explicit(net: &Net, workers: u8, listen: SocketAddr, target: SocketAddr) -> Gateway {
    net.gateway(Config {
        mode: Mode::Explicit { listen, target },
        workers,
        ..Config::default()
    })
}

#[test]
fn when_its_ports_are_used_up_it_says_so_and_the_rest_goes_on() {
    let Some(net) = Net::new() else { return };
    let (listener, target) = net.listen(SERVER);
    let range = || std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40009");
    net.middle.run(range).unwrap().unwrap();
    let listen: SocketAddr = ([198, 18, 1, 1], 5001).into();
    let gateway = explicit(&net, 1, listen, target);
    let mut standing = Vec::new();
    for _ in 0..10 {
        let near = net.connect(listen).unwrap();
        standing.push((near, listener.accept().unwrap().0));
    }
    for _ in 0..5 {
        // The reset may be there before connect(2) has come back.
        let connected = net.connect(listen);
        let error = connected.and_then(|mut near| near.read(&mut [0]));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    // A client hears of its reset before the gateway has counted it.
    let counts = until(&gateway, "the last is counted", |c| c.failed >= 5);
    assert_eq!((counts.live, counts.failed), (10, 5));
    for (near, far) in &mut standing {
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
    }
    // By a reset, so that no port rests in TIME-WAIT.
    for (near, far) in standing.drain(..) {
        sys::tcp::set_reset_on_close(near.as_fd()).unwrap();
        drop((near, far));
    }
    until(&gateway, "all end", |c| c.live == 0);
    let mut near = net.connect(listen).unwrap();
    let mut far = listener.accept().unwrap().0;
    near.write_all(b"x").unwrap();
    far.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_target_that_leads_back_is_found_out_at_the_first_connection() {
    for workers in [1, 4] {
        leads_back(workers);
    }
}

fn leads_back(workers: u8) {
    let Some(net) = Net::new() else { return };
    let listen: SocketAddr = ([0, 0, 0, 0], 5001).into();
    let own: SocketAddr = ([198, 18, 1, 1], 5001).into();
    let gateway = explicit(&net, workers, listen, own);
    // The reset may be there before connect(2) has come back.
    let connect = || net.connect(own).and_then(|mut near| near.read(&mut [0]));
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionReset);
    // A client hears of its reset before the gateway has counted it.
    let over = |c: &Counts| c.looped > 0 && c.live == 0 && c.waiting == 0;
    let counts = until(&gateway, "it ends", over);
    assert_eq!(counts.looped, 1, "{counts:?}");
    assert!(counts.split <= 1, "{counts:?}");
    // And so it is at the next.
    connect().unwrap_err();
    assert_eq!(until(&gateway, "again", |c| c.looped == 2).live, 0);
}

#[test]
fn a_target_that_is_redirected_back_is_found_out_too() {
    let Some(net) = Net::new() else { return };
    let target: SocketAddr = ([198, 18, 1, 1], 5002).into();
    let gateway = explicit(&net, 1, ([0, 0, 0, 0], 5001).into(), target);
    let table = "table ip t {
        chain o { type nat hook output priority -100; tcp dport 5002 redirect to :5001; }
        chain p { type nat hook prerouting priority -100; tcp dport 5002 redirect to :5001; }
    }";
    let nft = || {
        let mut nft = Command::new("nft")
            .arg("-f")
            .arg("-")
            .stdin(Stdio::piped())
            .spawn()?;
        nft.stdin.take().unwrap().write_all(table.as_bytes())?;
        nft.wait()
    };
    match net.middle.run(nft).unwrap() {
        Ok(status) if status.success() => {}
        other => return testing::skipped(format!("no NAT of nftables: {other:?}")),
    }
    let connect = || net.connect(target).and_then(|mut near| near.read(&mut [0]));
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionReset);
    let over = |c: &Counts| c.looped > 0 && c.live == 0 && c.waiting == 0;
    assert_eq!(until(&gateway, "it ends", over).looped, 1);
}

#[test]
fn a_client_of_this_host_that_has_the_same_port_as_the_gateways_socket_is_no_circle() {
    let Some(net) = Net::new() else { return };
    let listen: SocketAddr = ([198, 18, 2, 1], 5001).into();
    let (listener, target) = net.listen(SERVER);
    let gateway = explicit(&net, 1, listen, target);
    // With 16 ports for 12 clients and 12 sockets of the gateway, from one address, some have the same.
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    let few = net.middle.run(|| std::fs::write(range, "40000 40015"));
    few.unwrap().unwrap();
    let mut ports = [Vec::new(), Vec::new()];
    let all: Vec<_> = (0..12)
        .map(|_| {
            let near = net
                .middle
                .run(|| TcpStream::connect(listen))
                .unwrap()
                .unwrap();
            let (far, from) = accept(&listener);
            ports[0].push(near.local_addr().unwrap().port());
            ports[1].push(from.port());
            (near, far)
        })
        .collect();
    let [clients, own] = ports;
    assert!(clients.iter().any(|port| own.contains(port)));
    assert_eq!(
        until(&gateway, "all are split", |c| c.split == 12).looped,
        0
    );
    drop(all);
}

#[test]
fn a_client_beyond_its_bound_passes_and_others_are_split() {
    let Some(net) = Net::new() else { return };
    let limits = Limits {
        connections_per_client: 2,
        ..Limits::default()
    };
    let gateway = net.gateway(Config {
        limits,
        ..Net::config()
    });
    let first: Vec<_> = (0..2).map(|_| net.pair()).collect();
    is_served(&net);
    let counts = gateway.counts();
    assert_eq!((counts.split, counts.over_limit), (2, 1));
    let (listener, addr) = net.listen(IpAddr::from(SERVER6));
    let _near = net.connect(addr).unwrap();
    let _far = listener.accept().unwrap();
    assert_eq!(until(&gateway, "split", |c| c.split == 3).over_limit, 1);
    drop(first);
}
