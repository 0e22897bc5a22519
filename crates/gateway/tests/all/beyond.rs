//! What a split is no business of passes as it is, and what lies behind the gateway's links is found out.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use crate::net::*;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;

/// IP protocol number of ESP (RFC 4303).
const ESP: u32 = 50;

fn raw(at: &NetNs, of: IpAddr) -> OwnedFd {
    let family = match of {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let protocol = Protocol::from_raw(NonZeroU32::new(ESP).unwrap());
    let flags = SocketFlags::CLOEXEC;
    let make = || rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol));
    let socket = at.run(make).unwrap().unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn ipsec_passes_as_it_is() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    for (client, server) in [
        (IpAddr::from(CLIENT), IpAddr::from(SERVER)),
        (CLIENT6.into(), SERVER6.into()),
    ] {
        let (near, far) = (raw(&net.client, client), raw(&net.server, server));
        // SPI, sequence number, and what looks like a SYN.
        let sent: Vec<u8> = [[0, 0, 1, 0], [0, 0, 0, 1], [80, 2, 80, 2], [0x50, 2, 0, 0]].concat();
        for (from, to, socket, other) in
            [(client, server, &near, &far), (server, client, &far, &near)]
        {
            let target = SocketAddr::new(to, 0);
            rustix::net::sendto(socket, &sent, SendFlags::empty(), &target).unwrap();
            let mut packet = [0; 256];
            let (length, _, source) =
                rustix::net::recvfrom(other, &mut packet, RecvFlags::empty()).unwrap();
            let source = SocketAddr::try_from(source.unwrap()).unwrap();
            assert_eq!(source.ip(), from);
            // Over IPv4 its header comes with it (raw(7)).
            let at = if to.is_ipv4() { 20 } else { 0 };
            assert_eq!(packet[at..length], sent);
        }
    }
    let counts = gateway.counts();
    assert_eq!((counts.split, counts.waiting, counts.bypassed), (0, 0, 0));
}

/// A host behind the server, by a link that carries 1200 bytes from there and 1500 back: so its handshake does not say so.
fn behind(net: &Net) -> Option<NetNs> {
    let far = NetNs::create().ok()?;
    let end = |name, number, netns| VethEnd {
        name,
        mac: [2, 0, 0, 0, 3, number],
        netns,
    };
    let router = Ipv4Addr::new(203, 0, 113, 1);
    let made = net.server.run(|| -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let (a, b) = (far.as_fd(), net.server.as_fd());
        netlink.add_veth(end("eth0", 2, a), end("far0", 1, b))?;
        netlink.add_address("far0", router, 24)?;
        netlink.set_up("far0", Some(1200))
    });
    made.unwrap().unwrap();
    let made = far.run(|| -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        netlink.set_up("lo", None)?;
        netlink.add_address("eth0", BEYOND, 24)?;
        netlink.set_up("eth0", None)?;
        netlink.add_route("eth0", Ipv4Addr::UNSPECIFIED.into(), 0, router.into())
    });
    made.unwrap().unwrap();
    Some(far)
}

#[test]
fn a_smaller_link_behind_the_gateway_is_followed_and_the_other_half_keeps_its_segments() {
    let Some(net) = Net::new() else { return };
    let Some(host) = behind(&net) else { return };
    let gateway = net.gateway(Net::config());
    let listen = || TcpListener::bind((BEYOND, 0));
    let listener = host.run(listen).unwrap().unwrap();
    let mut near = net.connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 4])
        .collect();
    let mut got = vec![0; sent.len()];
    thread::scope(|scope| {
        scope.spawn(|| near.write_all(&sent).unwrap());
        far.read_exact(&mut got).unwrap();
    });
    assert!(got == sent);
    let sizes = shown(&gateway, |seen| {
        let halves = seen.first()?.halves.each_ref();
        Some(halves.map(|half| half.mss_bytes))
    });
    // 1200 less 20 of IP and 32 of TCP with timestamps; the client's path is one of 1500.
    assert_eq!(sizes, [1448, 1148]);
    assert_eq!(gateway.counts().split, 1);
}
