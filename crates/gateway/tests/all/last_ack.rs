//! A side that is told of the end only when the other side has everything.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::net::*;
use gateway::config::Config;
use sys::netlink::Netlink;
use units::Rng;

/// include/net/tcp_states.h.
const FIN_WAIT1: u64 = 4;
const FIN_WAIT2: u64 = 5;

fn config(hold: bool) -> Config {
    let text = format!(
        "[inside]\ninterfaces = ['in0']\nhold-last-ack = {hold}\n[outside]\ninterfaces = ['out0']"
    );
    Config::parse(&text).unwrap()
}

/// The link to the server.
fn link(net: &Net, up: bool) {
    let done = net.middle.run(|| {
        let mut netlink = Netlink::open()?;
        match up {
            true => netlink.set_up("out0", None),
            false => netlink.set_down("out0"),
        }
    });
    done.unwrap().unwrap();
}

fn state(socket: &TcpStream) -> u64 {
    sys::tcp::tcp_info(socket.as_fd()).unwrap().state
}

fn until_state(socket: &TcpStream, wanted: u64) {
    let end = Instant::now() + PATIENCE;
    while state(socket) != wanted {
        assert!(Instant::now() < end, "state {}", state(socket));
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn without_it_an_end_is_acknowledged_that_the_server_has_not() {
    let Some(net) = Net::new() else { return };
    let _gateway = net.gateway(config(false));
    let (mut near, mut far) = net.pair();
    link(&net, false);
    near.write_all(b"last words").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    until_state(&near, FIN_WAIT2);
    link(&net, true);
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"last words");
}

#[test]
fn an_end_is_acknowledged_when_the_server_has_acknowledged_it() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(config(true));
    let (mut near, mut far) = net.pair();
    link(&net, false);
    near.write_all(b"last words").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    until(&gateway, "the ACK waits", |c| c.acks_held == 1);
    // As often as the client may ask again meanwhile.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(state(&near), FIN_WAIT1);
    link(&net, true);
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"last words");
    until_state(&near, FIN_WAIT2);
    // The other direction is as it was.
    far.write_all(b"thanks").unwrap();
    drop(far);
    let mut heard = Vec::new();
    near.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"thanks");
    let counts = until(&gateway, "it ends", |c| c.live == 0);
    assert_eq!((counts.ended, counts.reset, counts.acks_held), (1, 0, 0));
}

#[test]
fn a_server_that_ends_at_the_same_time_hears_no_less() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(config(true));
    let (mut near, mut far) = net.pair();
    far.write_all(b"theirs").unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    near.read_to_end(&mut heard).unwrap();
    link(&net, false);
    near.write_all(b"ours").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    until(&gateway, "the ACK waits", |c| c.acks_held == 1);
    // Both ends are said; the connection is kept for the ACK alone.
    assert_eq!(gateway.counts().live, 1);
    link(&net, true);
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"ours");
    let counts = until(&gateway, "it ends", |c| c.live == 0);
    assert_eq!((counts.ended, counts.reset, counts.acks_held), (1, 0, 0));
}

#[test]
fn a_reset_of_the_server_is_heard_while_the_ack_waits() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(config(true));
    let (mut near, far) = net.pair();
    link(&net, false);
    near.write_all(b"lost").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    until(&gateway, "the ACK waits", |c| c.acks_held == 1);
    sys::tcp::set_reset_on_close(far.as_fd()).unwrap();
    drop(far);
    link(&net, true);
    let error = near.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let counts = until(&gateway, "it ends", |c| c.live == 0);
    assert_eq!((counts.ended, counts.reset, counts.acks_held), (0, 1, 0));
}

/// What it wrote to its client has not even left the gateway.
#[test]
fn a_server_that_ends_before_its_client_is_connected_is_not_told_that_it_has_everything() {
    let Some(net) = Net::new() else { return };
    let mut config = config(false);
    config.zones[1].hold_last_ack = true;
    let gateway = net.gateway(config);
    let (listener, addr) = net.listen(SERVER);
    // The gateway's answers go astray until its neighbours are forgotten.
    let astray = net.middle.run(|| {
        let mut netlink = Netlink::open()?;
        netlink.add_neighbour("in0", CLIENT, [2, 0, 0, 0, 1, 9])
    });
    astray.unwrap().unwrap();
    let mut far = thread::scope(|scope| {
        let near = scope.spawn(|| net.connect(addr));
        let mut far = listener.accept().unwrap().0;
        far.write_all(b"good bye").unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        until(&gateway, "the ACK waits", |c| c.acks_held == 1);
        assert_eq!(state(&far), FIN_WAIT1);
        let forgotten = net.middle.run(|| {
            let mut netlink = Netlink::open()?;
            netlink.set_down("in0")?;
            netlink.set_up("in0", None)
        });
        forgotten.unwrap().unwrap();
        let mut heard = Vec::new();
        near.join()
            .unwrap()
            .unwrap()
            .read_to_end(&mut heard)
            .unwrap();
        assert_eq!(heard, b"good bye");
        far
    });
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    let counts = until(&gateway, "it ends", |c| c.live == 0);
    assert_eq!((counts.ended, counts.reset, counts.acks_held), (1, 0, 0));
}

#[test]
fn much_both_ways_arrives_as_it_was_sent() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(config(true));
    let (near, far) = net.pair();
    let bytes = |seed| {
        let mut rng = Rng::new(seed);
        let words = (0..1_000_000).flat_map(move |_| rng.next_u64().to_le_bytes());
        words.collect::<Vec<u8>>()
    };
    let send = |mut socket: TcpStream, seed| {
        socket.write_all(&bytes(seed)).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
    };
    let receive = |mut socket: TcpStream, seed| {
        let mut got = Vec::new();
        socket.read_to_end(&mut got).unwrap();
        assert!(got == bytes(seed));
    };
    let copy = |s: &TcpStream| s.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send(copy(&near), 1));
        scope.spawn(|| send(copy(&far), 2));
        scope.spawn(|| receive(copy(&near), 2));
        scope.spawn(|| receive(copy(&far), 1));
    });
    let counts = until(&gateway, "it ends", |c| c.live == 0);
    assert_eq!((counts.ended, counts.acks_held), (1, 0));
}
