//! A gateway that goes on for another one: nobody who is connected or waits may notice.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::net::*;
use gateway::config::{Config, Mode};
use gateway::{Gateway, GatewayError};
use sys::control::Connection;
use units::Rng;

/// The connection, once the other end has requested everything.
fn requested(mut connection: Connection) -> Connection {
    let end = Instant::now() + PATIENCE;
    assert_eq!(connection.receive(64, end).unwrap().0, b"upgrade");
    connection
}

/// What both say when the second asks the first for everything.
fn renew(
    net: &Net,
    old: &mut Gateway,
    config: Config,
) -> (std::io::Result<()>, Result<Gateway, GatewayError>) {
    let (mut asks, asked) = Connection::pair().unwrap();
    thread::scope(|scope| {
        let new = scope.spawn(move || {
            let take = || Gateway::take_over(config, &mut asks);
            net.middle.run(take).unwrap().map(|(gateway, _)| gateway)
        });
        let give = || old.hand_over(&mut requested(asked), None);
        let given = net.middle.run(give).unwrap();
        (given, new.join().unwrap())
    })
}

/// Writes rounds of blocks on each until told to end; returns how many.
fn send(sockets: &mut [(usize, TcpStream)], block: &[u8], done: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !done.load(Ordering::Relaxed) || rounds < ROUNDS_MIN {
        for (_, socket) in &mut *sockets {
            socket.write_all(block).unwrap();
        }
        rounds += 1;
    }
    for (_, socket) in sockets {
        socket.shutdown(Shutdown::Write).unwrap();
    }
    rounds
}

/// Reads to the end of each, round by round as they were written; returns how many.
fn receive(sockets: &mut [(usize, TcpStream)], block: &[u8], moved: &AtomicUsize) -> usize {
    let mut got = vec![0; block.len()];
    let mut rounds = 0;
    loop {
        let mut ended = 0;
        for (number, socket) in &mut *sockets {
            match socket.read_exact(&mut got) {
                Ok(()) => assert!(got == block, "connection {number}, round {rounds}"),
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => ended += 1,
                Err(e) => panic!("connection {number}: {e}"),
            }
            moved.fetch_add(1, Ordering::Relaxed);
        }
        if ended > 0 {
            assert_eq!(ended, sockets.len(), "all end after the same round");
            return rounds;
        }
        rounds += 1;
    }
}

/// Tells the senders to end, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const CONNECTIONS: usize = 500;
const THREADS: usize = 4;
const ROUNDS_MIN: usize = 3;

#[test]
fn five_hundred_transfers_go_on_under_another_gateway_and_yet_another() {
    let Some(net) = Net::new() else { return };
    gateway::make_room_for(4 * CONNECTIONS);
    let config = Config {
        workers: 2,
        ..Net::config()
    };
    let mut gateway = net.gateway(config.clone());
    let (listener, addr) = net.listen(SERVER);
    let mut rng = Rng::new(7);
    let block: Vec<u8> = (0..4096)
        .flat_map(|_| rng.next_u64().to_be_bytes())
        .collect();
    let done = AtomicBool::new(false);
    let moved = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for part in 0..THREADS {
            let (mut from, mut to) = (Vec::new(), Vec::new());
            for number in 0..CONNECTIONS / THREADS {
                let near = net.connect(addr).unwrap();
                let far = listener.accept().unwrap().0;
                far.set_read_timeout(Some(PATIENCE)).unwrap();
                far.set_write_timeout(Some(PATIENCE)).unwrap();
                // Half of them upwards, half of them downwards.
                let (sender, receiver) = if part % 2 == 0 {
                    (near, far)
                } else {
                    (far, near)
                };
                from.push((number, sender));
                to.push((number, receiver));
            }
            let (block, done, moved) = (&block, &done, &moved);
            senders.push(scope.spawn(move || send(&mut from, block, done)));
            receivers.push(scope.spawn(move || receive(&mut to, block, moved)));
        }
        // Else a failure here would wait for senders who never end.
        let end = Ends(&done);
        for others in 1..=2 {
            // In the midst of it.
            let before = moved.load(Ordering::Relaxed);
            let end = Instant::now() + PATIENCE;
            while moved.load(Ordering::Relaxed) < before + CONNECTIONS {
                assert!(Instant::now() < end, "nothing moves");
                thread::sleep(Duration::from_millis(1));
            }
            let (given, new) = renew(&net, &mut gateway, config.clone());
            given.unwrap();
            assert!(gateway.is_over());
            gateway = new.unwrap();
            // One whose client's handshake was not looked at yet comes to life at the new one.
            let all = CONNECTIONS as u64;
            until(&gateway, "all are there", |c| c.live == all);
            // New ones are taken up by the new one.
            drop(net.pair());
            until(&gateway, "it comes", |c| c.split == all + others);
            until(&gateway, "it ends", |c| c.live == all);
        }
        drop(end);
        for (sender, receiver) in senders.into_iter().zip(receivers) {
            assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
        }
    });
    let counts = until(&gateway, "all end", |c| c.live == 0);
    assert_eq!(counts.split, CONNECTIONS as u64 + 2);
    assert_eq!((counts.reset, counts.over_limit), (0, 0));
    gateway.stop().unwrap();
    let left = net.middle.run(|| {
        let mut netlink = sys::netlink::Netlink::open().unwrap();
        netlink.routes_in(config.table).unwrap()
    });
    assert_eq!(left.unwrap(), 0);
}

#[test]
fn who_waits_who_is_blocked_and_who_has_half_ended_goes_on() {
    let Some(net) = Net::new() else { return };
    let mut old = net.gateway(Net::config());
    // A SYN whose server is silent.
    let addr: SocketAddr = (SILENT, 9).into();
    let patience = Duration::from_millis(300);
    let connect = || TcpStream::connect_timeout(&addr, patience);
    net.client.run(connect).unwrap().unwrap_err();
    // Bytes in sockets and pipe, nobody reads, and then the end.
    let (mut near, mut far) = net.pair();
    near.set_nonblocking(true).unwrap();
    let (mut sent, mut idle) = (0_usize, 0);
    while idle < 20 {
        let at = sent;
        let block: Vec<u8> = (at..at + 4096).map(|i| i.to_be_bytes()[6]).collect();
        match near.write(&block) {
            Ok(n) => (sent, idle) = (sent + n, 0),
            Err(_) => {
                idle += 1;
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    near.set_nonblocking(false).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    // One that has ended in one direction.
    let (mut a, mut b) = net.pair();
    a.shutdown(Shutdown::Write).unwrap();
    assert_eq!(b.read(&mut [0]).unwrap(), 0);

    let (given, new) = renew(&net, &mut old, Net::config());
    given.unwrap();
    drop(old);
    let new = new.unwrap();
    let counts = until(&new, "one waits", |c| c.waiting == 1);
    assert_eq!((counts.split, counts.live), (2, 2));
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent);
    assert!(
        got.iter()
            .enumerate()
            .all(|(i, b)| *b == i.to_be_bytes()[6])
    );
    far.write_all(b"thanks").unwrap();
    drop(far);
    let mut got = Vec::new();
    near.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"thanks");
    b.write_all(b"late").unwrap();
    drop(b);
    let mut got = Vec::new();
    a.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"late");
    let counts = until(&new, "both end", |c| c.live == 0);
    assert_eq!((counts.ended, counts.reset), (2, 0));
    // It refuses and releases as the old one did.
    let error = net.connect((SERVER, 9).into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn who_cannot_take_it_takes_nothing() {
    let Some(net) = Net::new() else { return };
    let mut old = net.gateway(Net::config());
    let (mut near, mut far) = net.pair();
    let other = Config {
        workers: 2,
        ..Net::config()
    };
    let (given, new) = renew(&net, &mut old, other);
    let error = new.unwrap_err().to_string();
    assert!(
        error.contains("must be those of the one that runs"),
        "{error}"
    );
    given.unwrap_err();
    // One that goes away in the midst of it.
    let (mut connection, asked) = Connection::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let end = Instant::now() + PATIENCE;
            connection.send(b"upgrade\n", &[], end).unwrap();
            let (line, fds) = connection.receive(1 << 20, end).unwrap();
            assert!(line.starts_with(b"{\"schema\":"));
            assert_eq!(fds.len(), 2);
        });
        let give = || old.hand_over(&mut requested(asked), None);
        net.middle.run(give).unwrap().unwrap_err();
    });
    assert!(!old.is_over());
    near.write_all(b"still").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    drop(net.pair());
    until(&old, "the rest is there", |c| c.split == 2 && c.live == 1);
}

/// What was carried before is no rate of the first second; buffers hang on rates.
#[test]
fn what_was_carried_before_is_not_carried_again() {
    let Some(net) = Net::new() else { return };
    let mut old = net.gateway(Net::config());
    let (mut near, mut far) = net.pair();
    thread::scope(|scope| {
        scope.spawn(|| near.write_all(&vec![7; 64 << 20]).unwrap());
        far.read_exact(&mut vec![0; 64 << 20]).unwrap();
    });
    let (given, new) = renew(&net, &mut old, Net::config());
    given.unwrap();
    let new = new.unwrap();
    // Long enough for two looks of the worker's.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_200) {
        let seen = shown(&new, |seen| {
            let only = seen.first()?;
            Some((only.carried, only.rate_bps))
        });
        assert_eq!(seen, ([64 << 20, 0], [0, 0]));
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(new.buffers(), []);
}

#[test]
fn another_configuration_holds_for_who_comes_then_and_a_pace_that_nobody_tends_is_lifted() {
    let Some(net) = Net::new() else { return };
    let config = |outside: &str, inside: &str| {
        let text = format!(
            "[inside]\ninterfaces = ['in0']\n{inside}\n[outside]\ninterfaces = ['out0']\n{outside}"
        );
        Config::parse(&text).unwrap()
    };
    let first = config(
        "harmonize = true\npacing = '80Mb/s'",
        "congestion = 'reno'\npacing = '8Mb/s'",
    );
    let mut old = net.gateway(first);
    let (near, far) = net.pair();
    let shown = |gateway: &Gateway, near: &TcpStream| {
        let client = near.local_addr().unwrap();
        shown(gateway, |seen| {
            let halves = seen.iter().find(|s| s.client == client)?.halves.each_ref();
            Some(halves.map(|h| (h.congestion.clone(), h.pace_most_bps)))
        })
    };
    let end = Instant::now() + PATIENCE;
    let both = |inside: u64, outside: u64, shown: &[(String, u64); 2]| {
        shown[0].1 == inside && shown[1].1 == outside
    };
    while !both(8_000_000, 80_000_000, &shown(&old, &near)) {
        assert!(Instant::now() < end, "{:?}", shown(&old, &near));
        thread::sleep(Duration::from_millis(10));
    }
    let (given, new) = renew(&net, &mut old, config("", "congestion = 'cubic'"));
    given.unwrap();
    let new = new.unwrap();
    // What was given it keeps, as with `reload`.
    assert!(both(8_000_000, u64::MAX, &shown(&new, &near)));
    let (later, _far) = net.pair();
    let [inside, outside] = shown(&new, &later);
    assert_eq!((inside.0.as_str(), inside.1), ("cubic", u64::MAX));
    assert_eq!(outside.1, u64::MAX);
    drop((near, far));
    until(&new, "one is left", |c| c.live == 1);
}

#[test]
fn a_last_ack_that_waits_waits_under_the_next_gateway() {
    let Some(net) = Net::new() else { return };
    let config = Config::parse(
        "[inside]\ninterfaces = ['in0']\nhold-last-ack = true\n[outside]\ninterfaces = ['out0']",
    )
    .unwrap();
    let mut gateway = net.gateway(config.clone());
    let (mut near, mut far) = net.pair();
    let link = |up: bool| {
        let done = net.middle.run(|| {
            let mut netlink = sys::netlink::Netlink::open()?;
            match up {
                true => netlink.set_up("out0", None),
                false => netlink.set_down("out0"),
            }
        });
        done.unwrap().unwrap();
    };
    link(false);
    near.write_all(b"last words").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    until(&gateway, "the ACK waits", |c| c.acks_held == 1);
    let (given, new) = renew(&net, &mut gateway, config);
    given.unwrap();
    let new = new.unwrap();
    // The client asks again.
    until(&new, "the ACK waits again", |c| c.acks_held == 1);
    link(true);
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"last words");
    drop(far);
    assert_eq!(near.read(&mut [0]).unwrap(), 0);
    let counts = until(&new, "it ends", |c| c.live == 0);
    assert_eq!((counts.ended, counts.reset, counts.acks_held), (1, 0, 0));
}

#[test]
fn what_several_workers_accept_openly_goes_on_with_all_of_them() {
    let Some(net) = Net::new() else { return };
    let (listener, target) = net.listen(SERVER);
    let listen: SocketAddr = ([198, 18, 1, 1], 5001).into();
    let config = Config {
        mode: Mode::Explicit { listen, target },
        workers: 4,
        ..Config::default()
    };
    let speak = |count| -> Vec<_> {
        let pair = |_| {
            let mut near = net.connect(listen).unwrap();
            let mut far = listener.accept().unwrap().0;
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            (near, far)
        };
        (0..count).map(pair).collect()
    };
    let mut old = net.gateway(config.clone());
    let mut before = speak(16);
    let (given, new) = renew(&net, &mut old, config);
    given.unwrap();
    let new = new.unwrap();
    drop(old);
    for (near, far) in &mut before {
        far.write_all(b"y").unwrap();
        near.read_exact(&mut [0]).unwrap();
    }
    // A listener that was lost would refuse its part of them, or leave it waiting.
    let after = speak(64);
    let counts = until(&new, "all are split", |c| c.split == 80);
    assert_eq!((counts.live, counts.reset), (80, 0));
    drop((before, after));
}
