//! A gateway between a client and a server that do not know of it, all three real kernels.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::net::*;
use gateway::config::Config;
use units::Rng;

fn byte(rng: &mut Rng) -> u8 {
    rng.next_u64().to_be_bytes()[0]
}

fn below(rng: &mut Rng, bound: u64) -> usize {
    usize::try_from(rng.next_u64() % bound).unwrap()
}

/// As many as are wanted, and none, as where descriptors are few.
const PIPES: [u64; 2] = [u64::MAX, 0];

#[test]
fn both_ends_see_each_others_address_and_every_byte() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    for (from, to) in [
        (IpAddr::from(CLIENT), IpAddr::from(SERVER)),
        (CLIENT6.into(), SERVER6.into()),
    ] {
        let (listener, addr) = net.listen(to);
        let mut near = net.connect(addr).unwrap();
        let (mut far, peer) = listener.accept().unwrap();
        assert_eq!(peer, near.local_addr().unwrap());
        assert_eq!(peer.ip(), from);
        assert_eq!(near.peer_addr().unwrap(), addr);
        near.write_all(b"there").unwrap();
        let mut got = [0; 5];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"there");
        far.write_all(b"back!").unwrap();
        near.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"back!");
    }
    let counts = until(&gateway, "both end", |c| c.live == 0);
    assert_eq!((counts.split, counts.other_port), (2, 0));
    assert_eq!((counts.bytes_outward, counts.bytes_inward), (10, 10));
}

#[test]
fn who_connects_from_outside_is_split_as_well() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let addr = SocketAddr::new(CLIENT.into(), 0);
    let listener = net
        .client
        .run(|| std::net::TcpListener::bind(addr))
        .unwrap();
    let listener = listener.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut near = net
        .server
        .run(|| std::net::TcpStream::connect(addr))
        .unwrap()
        .unwrap();
    let (mut far, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from(SERVER));
    near.write_all(b"in").unwrap();
    far.read_exact(&mut [0; 2]).unwrap();
    let counts = until(&gateway, "carried", |c| c.bytes_inward == 2);
    assert_eq!((counts.split, counts.bytes_outward), (1, 0));
}

#[test]
fn a_client_hears_what_the_server_says_before_its_handshake_is_complete() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    for server in [IpAddr::from(SERVER), SERVER6.into()] {
        let error = net.connect((server, 9).into()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{server}");
    }
    let error = net.connect((ABSENT, 9).into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    let error = net.connect(([203, 0, 113, 1], 9).into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    // What a router beyond the gateway says.
    let error = net.connect((BEYOND, 9).into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    // Whoever waits asks again, and may be refused again.
    let again = net.syns_again();
    let counts = gateway.counts();
    let (refused, unreachable) = (counts.refused, counts.unreachable);
    assert!((2..=2 + again).contains(&refused), "{refused}, {again}");
    let most = 3 + again;
    assert!((3..=most).contains(&unreachable), "{unreachable}, {again}");
    assert_eq!(counts.split, 0);
}

#[test]
fn a_silent_server_is_silent() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let patience = Duration::from_secs(2);
    let addr: SocketAddr = (SILENT, 9).into();
    let connect = || std::net::TcpStream::connect_timeout(&addr, patience);
    let error = net.client.run(connect).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let counts = gateway.counts();
    assert_eq!(
        (counts.split, counts.refused, counts.unreachable),
        (0, 0, 0)
    );
    assert_eq!(counts.waiting, 1);
}

#[test]
fn each_end_may_end_first_and_the_other_still_speaks() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    for swapped in [false, true] {
        let (a, b) = net.pair();
        let (mut first, mut second) = if swapped { (b, a) } else { (a, b) };
        first.write_all(b"last words").unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        second.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"last words");
        thread::sleep(Duration::from_millis(200));
        second.write_all(b"an answer").unwrap();
        second.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        first.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"an answer");
    }
    let counts = until(&gateway, "both end", |c| c.live == 0);
    assert_eq!((counts.ended, counts.reset), (2, 0));
}

/// Less than two sockets and a pipe hold.
const HELD: usize = 1 << 20;

#[test]
fn an_end_behind_a_blocked_peer_truncates_nothing() {
    for pipes in PIPES {
        let Some(net) = Net::new() else { return };
        let gateway = net.gateway(Config {
            pipes,
            ..Net::config()
        });
        let (mut near, mut far) = net.pair();
        // As much as two sockets and a pipe hold while nobody reads.
        near.set_nonblocking(true).unwrap();
        let mut sent = 0_usize;
        let mut rng = Rng::new(1);
        let mut expected: Vec<u8> = Vec::new();
        let mut idle = 0;
        let begun = Instant::now();
        while idle < 20 || sent <= HELD {
            assert!(begun.elapsed() < PATIENCE, "{sent}");
            let block: Vec<u8> = (0..4096).map(|_| byte(&mut rng)).collect();
            match near.write(&block) {
                Ok(n) => {
                    expected.extend(&block[..n]);
                    sent += n;
                    idle = 0;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    idle += 1;
                    thread::sleep(Duration::from_millis(10));
                }
                Err(e) => panic!("{e}"),
            }
        }
        near.set_nonblocking(false).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        thread::sleep(Duration::from_millis(300));
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), sent);
        assert!(got == expected);
        // The whole other direction is still there.
        far.write_all(b"thanks").unwrap();
        drop(far);
        let mut got = Vec::new();
        near.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"thanks");
        let counts = until(&gateway, "it ends", |c| c.live == 0);
        assert_eq!((counts.ended, counts.reset), (1, 0));
    }
}

/// Else slow readers would take descriptors that were meant for connections.
#[test]
fn what_a_message_leaves_over_takes_no_pipe_where_none_is_left() {
    let Some(net) = Net::new() else { return };
    let mut config = Config {
        pipes: 0,
        ..Net::config()
    };
    config.zones[1].buffer = Some(units::Bytes::new(4096));
    let gateway = net.gateway(config);
    let (mut near, mut far) = net.pair();
    near.set_nonblocking(true).unwrap();
    near.set_nodelay(true).unwrap();
    let (mut sent, mut idle) = (0, 0);
    while idle < 20 {
        match near.write(&[7; 500]) {
            Ok(n) => (sent, idle) = (sent + n, 0),
            Err(_) => idle += 1,
        }
        assert_eq!(gateway.counts().pipes, 0, "after {sent} bytes");
        // So that it is one message, as long as there is room.
        thread::sleep(Duration::from_micros(200));
        if sent > 512 << 10 {
            break;
        }
    }
    near.set_nonblocking(false).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    assert!(got.len() == sent && got.iter().all(|b| *b == 7));
    assert_eq!(gateway.counts().pipes, 0);
}

#[test]
fn a_reset_of_either_end_is_a_reset_at_the_other() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    for (swapped, half_closed) in [(false, false), (true, false), (false, true), (true, true)] {
        let (a, b) = net.pair();
        let (mut doomed, mut other) = if swapped { (b, a) } else { (a, b) };
        if half_closed {
            other.shutdown(Shutdown::Write).unwrap();
            assert_eq!(doomed.read(&mut [0]).unwrap(), 0);
        }
        doomed.write_all(b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
        sys::tcp::set_reset_on_close(doomed.as_fd()).unwrap();
        drop(doomed);
        let error = other.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    let counts = until(&gateway, "all end", |c| c.live == 0);
    assert_eq!((counts.ended, counts.reset), (0, 4));
}

#[test]
fn a_reset_reaches_a_peer_that_reads_nothing() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let (mut near, mut far) = net.pair();
    near.set_nonblocking(true).unwrap();
    let block = vec![7; 1 << 16];
    let mut idle = 0;
    while idle < 10 {
        match near.write(&block) {
            Ok(0) => panic!("a socket took nothing"),
            Ok(_) => idle = 0,
            Err(_) => {
                idle += 1;
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    sys::tcp::set_reset_on_close(near.as_fd()).unwrap();
    drop(near);
    until(&gateway, "it ends", |c| c.reset == 1);
    let result = io::copy(&mut far, &mut io::sink());
    assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn random_sizes_and_pauses_both_ways_arrive_as_they_were_sent() {
    for pipes in PIPES {
        let Some(net) = Net::new() else { return };
        let gateway = net.gateway(Config {
            pipes,
            ..Net::config()
        });
        let (near, far) = net.pair();
        let send = |mut socket: std::net::TcpStream, seed: u64| {
            let mut rng = Rng::new(seed);
            let mut sent = Vec::new();
            while sent.len() < 6_000_000 {
                // Messages, some that are a little more, and bulk.
                let most = [100, 9_000, 100_000][below(&mut rng, 3)];
                let length = 1 + below(&mut rng, most);
                let block: Vec<u8> = (0..length).map(|_| byte(&mut rng)).collect();
                socket.write_all(&block).unwrap();
                sent.extend(block);
                if below(&mut rng, 8) == 0 {
                    thread::sleep(Duration::from_millis(rng.next_u64() % 5));
                }
            }
            socket.shutdown(Shutdown::Write).unwrap();
            sent
        };
        let receive = |mut socket: std::net::TcpStream, seed: u64| {
            let mut rng = Rng::new(seed);
            let mut got: Vec<u8> = Vec::new();
            loop {
                let mut block = vec![0; 1 + below(&mut rng, 200_000)];
                match socket.read(&mut block).unwrap() {
                    0 => return got,
                    read => got.extend(&block[..read]),
                }
                if below(&mut rng, 16) == 0 {
                    thread::sleep(Duration::from_millis(rng.next_u64() % 9));
                }
            }
        };
        thread::scope(|s| {
            let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let there = s.spawn(|| send(near, 1));
            let back = s.spawn(|| send(far, 2));
            let at_far = s.spawn(|| receive(far2, 3));
            let at_near = s.spawn(|| receive(near2, 4));
            assert!(there.join().unwrap() == at_far.join().unwrap());
            assert!(back.join().unwrap() == at_near.join().unwrap());
        });
        let counts = until(&gateway, "it ends", |c| c.live == 0);
        assert_eq!((counts.ended, counts.reset), (1, 0));
    }
}

#[test]
fn an_urgent_byte_arrives_as_one_at_its_place() {
    for pipes in PIPES {
        let Some(net) = Net::new() else { return };
        let gateway = net.gateway(Config {
            pipes,
            ..Net::config()
        });
        for ended in [false, true] {
            let (mut near, mut far) = net.pair();
            near.write_all(b"before").unwrap();
            assert!(sys::transparent::send_urgent(near.as_fd(), b'!').unwrap());
            near.write_all(b"after").unwrap();
            if ended {
                near.shutdown(Shutdown::Write).unwrap();
            }
            let mut got = [0; 6];
            far.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"before");
            // The byte may still be on its way when what stands before it is not.
            let urgent = (0..500).find_map(|_| {
                thread::sleep(Duration::from_millis(5));
                sys::transparent::take_urgent(far.as_fd())
            });
            assert_eq!(urgent, Some(b'!'));
            assert!(sys::transparent::at_mark(far.as_fd()).unwrap());
            far.read_exact(&mut got[..5]).unwrap();
            assert_eq!(&got[..5], b"after");
            if ended {
                assert_eq!(far.read(&mut got).unwrap(), 0);
            }
        }
        assert_eq!(until(&gateway, "both", |c| c.urgent == 2).urgent, 2);
    }
}

#[test]
fn what_rules_and_limits_leave_out_passes_unsplit() {
    let Some(net) = Net::new() else { return };
    let (listener, addr) = net.listen(SERVER);
    let text = format!(
        "[inside]\ninterfaces = ['in0']\n[outside]\ninterfaces = ['out0']\n\
         [limits]\nconnections = 1\n\
         [[rule]]\naction = 'bypass'\nports = '{}'\n\
         [[rule]]\naction = 'refuse'\nports = '9'",
        addr.port()
    );
    let gateway = net.gateway(Config::parse(&text).unwrap());
    let mut near = net.connect(addr).unwrap();
    let mut far = listener.accept().unwrap().0;
    near.write_all(b"by").unwrap();
    far.read_exact(&mut [0; 2]).unwrap();
    let counts = gateway.counts();
    assert_eq!((counts.bypassed, counts.split), (1, 0));
    let error = net.connect((SERVER, 9).into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(gateway.counts().forbidden, 1);
    // One may be split; the next passes.
    let first = net.pair();
    let (mut near, mut far) = net.pair();
    near.write_all(b"by").unwrap();
    far.read_exact(&mut [0; 2]).unwrap();
    let counts = gateway.counts();
    assert_eq!((counts.split, counts.over_limit), (1, 1));
    drop(first);
}

#[test]
fn nothing_stays_behind_and_what_comes_then_passes() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let (mut near, _far) = net.pair();
    // The very same can be installed once only.
    let second = net
        .middle
        .run(|| gateway::Gateway::start(Net::config()).is_err());
    assert!(second.unwrap());
    let counts = gateway.stop().unwrap();
    assert_eq!(counts.live, 1);
    // Whoever was carried hears of the end.
    assert_eq!(
        near.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    let left = net.middle.run(|| {
        let mut netlink = sys::netlink::Netlink::open().unwrap();
        netlink.routes_in(Net::config().table).unwrap()
    });
    assert_eq!(left.unwrap(), 0);
    let (mut near, mut far) = net.pair();
    near.write_all(b"by").unwrap();
    far.read_exact(&mut [0; 2]).unwrap();
    // And it can be started again.
    let gateway = net.gateway(Net::config());
    drop(net.pair());
    assert_eq!(until(&gateway, "split", |c| c.split == 1).split, 1);
}

#[test]
fn a_gateway_that_drains_takes_nobody_up_and_lets_nobody_down() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let (mut near, mut far) = net.pair();
    gateway.drain();
    thread::sleep(Duration::from_millis(300));
    let passing = net.pair();
    near.write_all(b"still").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    assert!(!gateway.is_over());
    assert_eq!(gateway.counts().split, 1);
    drop((near, far));
    let end = Instant::now() + PATIENCE;
    while !gateway.is_over() {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(10));
    }
    drop(gateway);
    let (mut near, mut far) = passing;
    near.write_all(b"on").unwrap();
    far.read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn a_gateway_that_drains_does_not_end_while_a_syn_is_held() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let addr: SocketAddr = (SILENT, 9).into();
    let patience = Duration::from_millis(500);
    let connect = || std::net::TcpStream::connect_timeout(&addr, patience);
    net.client.run(connect).unwrap().unwrap_err();
    assert_eq!(until(&gateway, "waiting", |c| c.waiting == 1).waiting, 1);
    gateway.drain();
    // Three looks at the clock; the server may take 130 s.
    thread::sleep(Duration::from_millis(300));
    assert!(!gateway.is_over());
}

#[test]
fn another_gateway_with_the_same_routing_table_is_refused_and_takes_nothing_away() {
    let Some(net) = Net::new() else { return };
    let first = net.gateway(Net::config());
    let second = Config {
        port: 48_100,
        queue: 4810,
        ..Net::config()
    };
    let start = || gateway::Gateway::start(second.clone());
    let error = net.middle.run(start).unwrap().unwrap_err().to_string();
    assert!(error.contains("table 4710 is another gateway's"), "{error}");
    drop(net.pair());
    assert_eq!(until(&first, "split", |c| c.split == 1).split, 1);
    // It can be had when the first has ended.
    drop(first);
    drop(net.middle.run(start).unwrap().unwrap());
}

#[test]
fn a_gateway_is_no_target_of_its_own() {
    let Some(net) = Net::new() else { return };
    let config = Net::config();
    let port = config.port;
    let gateway = net.gateway(config);
    // Its address on the client's side, at its own accepting port.
    let error = net.connect(([198, 18, 1, 1], port).into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let counts = gateway.counts();
    assert_eq!((counts.split, counts.refused), (0, 0));
}

#[test]
fn a_sample_passes_unsplit_and_the_kernel_counts_what_it_carries() {
    let Some(net) = Net::new() else { return };
    let config = Config {
        unsplit_every: Some(1),
        ..Net::config()
    };
    let gateway = net.gateway(config);
    let (mut near, mut far) = net.pair();
    // The other end sees its client, and the gateway has no part in it.
    assert_eq!(far.peer_addr().unwrap().ip(), CLIENT);
    let end = Instant::now() + PATIENCE;
    let (block, mut got) = (vec![7; 64 << 10], vec![0; 64 << 10]);
    let mut sent = 0;
    let sampled = loop {
        near.write_all(&block).unwrap();
        far.read_exact(&mut got).unwrap();
        sent += block.len() as u64;
        if let Some(sampled) = gateway.sampled().first() {
            break sampled.clone();
        }
        assert!(Instant::now() < end, "nothing was counted");
    };
    assert_eq!(sampled.client, near.local_addr().unwrap());
    assert_eq!(sampled.server, near.peer_addr().unwrap());
    // Counted from a moment after it began to the last second's end.
    assert!(
        sampled.carried[0] > 0 && sampled.carried[0] <= sent,
        "{sampled:?} of {sent}"
    );
    assert_eq!(sampled.carried[1], 0);
    let counts = gateway.counts();
    assert_eq!((counts.split, counts.sampled), (0, 1));
    // With it goes what it put into the kernel.
    drop(gateway);
    let left = net
        .middle
        .run(|| sys::nftables::counted(&format!("goodput-4710-{}-sample-0", std::process::id())))
        .unwrap();
    assert!(left.is_err() || left.unwrap().is_empty());
}
