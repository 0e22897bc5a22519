//! Data has the class of service (DSCP) of the end that it comes from.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use crate::net::*;
use gateway::config::Config;
use gateway::syn::Packet;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType};
use sys::netns::NetNs;

/// AF 31 and EF.
const OF_CLIENT: u8 = 10;
const OF_SERVER: u8 = 46;

/// Sees all packets of a namespace from their IP header on.
fn observe(at: &NetNs) -> OwnedFd {
    // ETH_P_ALL, include/uapi/linux/if_ether.h, in network order.
    let all = std::num::NonZeroU32::new(u32::from(3_u16.to_be())).unwrap();
    let make = || {
        rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::DGRAM,
            SocketFlags::NONBLOCK,
            Some(Protocol::from_raw(all)),
        )
    };
    at.run(make).unwrap().unwrap()
}

fn class_of(packet: &[u8]) -> u8 {
    match packet[0] >> 4 {
        4 => packet[1] >> 2,
        _ => (packet[0] << 4 | packet[1] >> 4) >> 2,
    }
}

/// Classes of the packets from there that end in these bytes.
fn classes(observer: &OwnedFd, from: SocketAddr, data: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    let mut packet = [0; 2048];
    while let Ok((length, _)) = rustix::net::recv(observer, &mut packet, RecvFlags::empty()) {
        let packet = &packet[..length];
        if Packet::parse(packet).is_ok_and(|p| p.from == from) && packet.ends_with(data) {
            found.push(class_of(packet));
        }
    }
    found
}

#[test]
fn each_end_gets_data_in_the_class_of_the_other() {
    for workers in [1, 2] {
        let Some(net) = Net::new() else { return };
        let gateway = net.gateway(Config {
            workers,
            ..Net::config()
        });
        let (at_client, at_server) = (observe(&net.client), observe(&net.server));
        for server in [IpAddr::from(SERVER), SERVER6.into()] {
            // Ports of either worker, and a server without a class of its own.
            for class in [OF_SERVER, OF_SERVER, OF_SERVER, OF_SERVER, 0] {
                let (listener, addr) = net.listen(server);
                sys::tcp::set_tos(listener.as_fd(), class << 2).unwrap();
                let connect = || -> std::io::Result<TcpStream> {
                    let socket = sys::tcp::unconnected(addr)?;
                    sys::tcp::set_tos(socket.as_fd(), OF_CLIENT << 2)?;
                    socket.set_nonblocking(false)?;
                    rustix::net::connect(&socket, &addr)?;
                    socket.set_read_timeout(Some(PATIENCE))?;
                    Ok(socket)
                };
                let mut near = net.client.run(connect).unwrap().unwrap();
                let (mut far, client) = listener.accept().unwrap();
                near.write_all(b"there").unwrap();
                far.read_exact(&mut [0; 5]).unwrap();
                far.write_all(b"back!").unwrap();
                near.read_exact(&mut [0; 5]).unwrap();
                assert_eq!(classes(&at_server, client, b"there"), [OF_CLIENT]);
                assert_eq!(classes(&at_client, addr, b"back!"), [class]);
            }
        }
        let counts = until(&gateway, "all end", |c| c.live == 0);
        assert_eq!((counts.split, counts.ended), (10, 10));
    }
}
