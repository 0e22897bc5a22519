//! Bytes that a gateway has acknowledged and cannot deliver any more are counted, to the byte.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::net::*;
use sys::netlink::Netlink;

const LOST: usize = 50_000;

fn link(net: &Net, name: &str, up: bool) {
    let done = net.middle.run(|| {
        let mut netlink = Netlink::open()?;
        match up {
            true => netlink.set_up(name, None),
            false => netlink.set_down(name),
        }
    });
    done.unwrap().unwrap();
}

/// Writes what the gateway acknowledges.
fn write(socket: &mut TcpStream, end: bool) {
    socket.write_all(&[7; LOST]).unwrap();
    if end {
        socket.shutdown(Shutdown::Write).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    while sys::transparent::unacknowledged(socket.as_fd()).unwrap() > 0 {
        assert!(Instant::now() < until, "not acknowledged");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_one_was_told_and_the_other_never_got_is_counted() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let mut lost = 0;
    for (swapped, end) in [(false, false), (false, true), (true, false)] {
        let (a, b) = net.pair();
        let (mut sender, receiver, name) = match swapped {
            false => (a, b, "out0"),
            true => (b, a, "in0"),
        };
        link(&net, name, false);
        write(&mut sender, end);
        sys::tcp::set_reset_on_close(receiver.as_fd()).unwrap();
        // Its reset finds no way; the next packet that reaches it is answered with one.
        drop(receiver);
        link(&net, name, true);
        lost += 1;
        let counts = until(&gateway, "it ends", |c| c.reset == lost);
        assert_eq!(counts.undelivered, lost);
        assert_eq!(
            counts.bytes_undelivered,
            lost * LOST as u64,
            "{swapped} {end}"
        );
    }
}

#[test]
fn what_a_gateway_takes_with_it_when_it_is_stopped_is_counted() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let (mut near, far) = net.pair();
    link(&net, "out0", false);
    write(&mut near, false);
    let counts = net.middle.run(|| gateway.stop()).unwrap().unwrap();
    assert_eq!(
        (counts.undelivered, counts.bytes_undelivered),
        (1, LOST as u64)
    );
    drop(far);
}

#[test]
fn an_orderly_end_loses_nothing_and_neither_does_a_reset_of_who_has_everything() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    for orderly in [true, false] {
        let (mut near, mut far) = net.pair();
        near.write_all(b"all").unwrap();
        std::io::Read::read_exact(&mut far, &mut [0; 3]).unwrap();
        if !orderly {
            sys::tcp::set_reset_on_close(near.as_fd()).unwrap();
        }
        drop((near, far));
    }
    let counts = until(&gateway, "both end", |c| c.live == 0 && c.split == 2);
    assert_eq!((counts.undelivered, counts.bytes_undelivered), (0, 0));
}
