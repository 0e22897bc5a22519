//! What an interface is configured with, to be taken off it, put on another, and put back.
//!
//! Addresses, routes and permanent neighbours are kept as the kernel sent them and are sent back with
//! another interface's index, as `ip route save` and `restore` do. What the kernel makes by itself
//! (routes of addresses, multicast) is left to it.
//!
//! Sources: rtnetlink(7), Linux net/ipv4/devinet.c, net/ipv6/addrconf.c.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};

use crate::netlink::{Mac, Netlink};

/// The configuration of an interface.
#[derive(Clone, Debug)]
pub struct Configuration {
    mac: Mac,
    mtu_bytes: u32,
    addresses: Vec<AddressMessage>,
    routes: Vec<RouteMessage>,
    neighbours: Vec<NeighbourMessage>,
}

impl Configuration {
    /// That of `name` in the calling thread's network namespace.
    ///
    /// # Errors
    /// `ENODEV` when there is no such interface.
    pub fn read(name: &str) -> io::Result<Self> {
        let mut socket = Netlink::open()?;
        let link = socket.link(name)?;
        let index = link.header.index;
        let mac = link.attributes.iter().find_map(|a| match a {
            LinkAttribute::Address(mac) => Mac::try_from(mac.as_slice()).ok(),
            _ => None,
        });
        let mtu = link.attributes.iter().find_map(|a| match a {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
        let missing = |what| io::Error::other(format!("{name} has no {what}"));
        let dump = |socket: &mut Netlink, message| socket.request(message, NLM_F_DUMP);
        let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let addresses = dump(&mut socket, all)?.into_iter().filter_map(|m| match m {
            RouteNetlinkMessage::NewAddress(a) if a.header.index == index => Some(a),
            _ => None,
        });
        let addresses = addresses.collect();
        let all = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let routes = dump(&mut socket, all)?.into_iter().filter_map(|m| match m {
            RouteNetlinkMessage::NewRoute(r) if is_set_by_somebody(&r, index) => Some(r),
            _ => None,
        });
        let routes = routes.collect();
        let all = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let neighbours = dump(&mut socket, all)?.into_iter().filter_map(|m| match m {
            RouteNetlinkMessage::NewNeighbour(n)
                if n.header.ifindex == index && n.header.state == NeighbourState::Permanent =>
            {
                Some(n)
            }
            _ => None,
        });
        Ok(Self {
            mac: mac.ok_or_else(|| missing("hardware address"))?,
            mtu_bytes: mtu.ok_or_else(|| missing("MTU"))?,
            addresses,
            routes,
            neighbours: neighbours.collect(),
        })
    }

    /// Takes addresses, routes and neighbours off `name`.
    ///
    /// # Errors
    /// As the kernel says; some of it may be off then.
    pub fn take_off(&self, name: &str) -> io::Result<()> {
        let mut socket = Netlink::open()?;
        let index = socket.link(name)?.header.index;
        let on_it = self.clone().with_index(index);
        // Routes before the addresses by which their gateways are reached.
        let routes = on_it.routes.into_iter().map(RouteNetlinkMessage::DelRoute);
        let neighbours = on_it
            .neighbours
            .into_iter()
            .map(RouteNetlinkMessage::DelNeighbour);
        let addresses = on_it
            .addresses
            .into_iter()
            .map(RouteNetlinkMessage::DelAddress);
        for message in routes.chain(neighbours).chain(addresses) {
            match socket.request(message, 0) {
                Err(e) if is_gone(&e) => {}
                done => drop(done?),
            }
        }
        Ok(())
    }

    /// Puts addresses, routes and neighbours on `name`, which must be up. What is there already
    /// stays.
    ///
    /// # Errors
    /// As the kernel says; the rest is put on nevertheless.
    pub fn put_on(&self, name: &str) -> io::Result<()> {
        let mut socket = Netlink::open()?;
        let index = socket.link(name)?.header.index;
        let on_it = self.clone().with_index(index);
        let addresses = on_it
            .addresses
            .into_iter()
            .map(RouteNetlinkMessage::NewAddress);
        // Those without a gateway lead to the gateways of the others.
        let (via, direct): (Vec<_>, Vec<_>) =
            on_it.routes.into_iter().partition(|r| gateway(r).is_some());
        let routes = direct
            .into_iter()
            .chain(via)
            .map(RouteNetlinkMessage::NewRoute);
        let neighbours = on_it
            .neighbours
            .into_iter()
            .map(RouteNetlinkMessage::NewNeighbour);
        let mut first = Ok(());
        for message in addresses.chain(routes).chain(neighbours) {
            match socket.request(message, NLM_F_CREATE) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) if first.is_ok() => first = Err(e),
                _ => {}
            }
        }
        first
    }

    /// Hardware address.
    pub const fn mac(&self) -> Mac {
        self.mac
    }

    /// MTU.
    pub const fn mtu_bytes(&self) -> u32 {
        self.mtu_bytes
    }

    /// The first IPv4 address with the bits of its subnet.
    pub fn address4(&self) -> Option<(Ipv4Addr, u8)> {
        self.all_addresses()
            .find_map(|(address, bits)| match address {
                IpAddr::V4(address) => Some((address, bits)),
                IpAddr::V6(_) => None,
            })
    }

    /// The first IPv6 address beyond the link's own, with the bits of its subnet.
    pub fn address6(&self) -> Option<(Ipv6Addr, u8)> {
        self.all_addresses()
            .find_map(|(address, bits)| match address {
                IpAddr::V6(address) if !address.is_unicast_link_local() => Some((address, bits)),
                _ => None,
            })
    }

    fn all_addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        self.addresses.iter().filter_map(|message| {
            let own = |a: &AddressAttribute| match a {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            };
            // IPv6 has no peer and thus no IFA_LOCAL (net/ipv6/addrconf.c, inet6_fill_ifaddr).
            let only = |a: &AddressAttribute| match a {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            };
            let found = message.attributes.iter().find_map(own);
            let found = found.or_else(|| message.attributes.iter().find_map(only));
            Some((found?, message.header.prefix_len))
        })
    }

    fn with_index(mut self, index: u32) -> Self {
        for address in &mut self.addresses {
            address.header.index = index;
        }
        for neighbour in &mut self.neighbours {
            neighbour.header.ifindex = index;
        }
        for attribute in self.routes.iter_mut().flat_map(|r| &mut r.attributes) {
            if let RouteAttribute::Oif(oif) = attribute {
                *oif = index;
            }
        }
        self
    }
}

/// Removes an interface; of a veth pair both ends go.
///
/// # Errors
/// `ENODEV` when there is none, `EOPNOTSUPP` for hardware.
pub fn remove(name: &str) -> io::Result<()> {
    let mut socket = Netlink::open()?;
    let mut link = LinkMessage::default();
    link.header.index = socket.link(name)?.header.index;
    socket
        .request(RouteNetlinkMessage::DelLink(link), 0)
        .map(drop)
}

/// A route of the main table by the interface `index` alone that the kernel did not make.
fn is_set_by_somebody(route: &RouteMessage, index: u32) -> bool {
    let leaves_by = |a: &RouteAttribute| matches!(a, RouteAttribute::Oif(oif) if *oif == index);
    route.header.table == RouteHeader::RT_TABLE_MAIN
        && route.header.kind == RouteType::Unicast
        && route.header.protocol != RouteProtocol::Kernel
        && !route.header.flags.contains(RouteFlags::Cloned)
        && route.attributes.iter().any(leaves_by)
}

fn gateway(route: &RouteMessage) -> Option<&RouteAttribute> {
    let is_gateway =
        |a: &&RouteAttribute| matches!(a, RouteAttribute::Gateway(_) | RouteAttribute::Via(_));
    route.attributes.iter().find(is_gateway)
}

/// What is taken off may have gone with what was taken off before.
fn is_gone(error: &io::Error) -> bool {
    let gone = [libc::ESRCH, libc::ENOENT, libc::EADDRNOTAVAIL];
    error
        .raw_os_error()
        .is_some_and(|code| gone.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::VethEnd;
    use crate::netns::NetNs;
    use std::os::fd::AsFd;

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

    fn veth(ns: &NetNs, name: &str, peer: &str, last: u8) -> io::Result<()> {
        let end = |name, low| VethEnd {
            name,
            mac: [2, 0, 0, 0, low, last],
            netns: ns.as_fd(),
        };
        let mut netlink = Netlink::open()?;
        netlink.add_veth(end(name, 1), end(peer, 2))?;
        netlink.set_up(peer, None)?;
        netlink.set_up(name, Some(1400))
    }

    #[test]
    fn a_configuration_moves_from_one_interface_to_another_and_back() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let moved = ns.run(|| -> io::Result<_> {
            veth(&ns, "eth0", "peer0", 1)?;
            veth(&ns, "eth1", "peer1", 2)?;
            let mut netlink = Netlink::open()?;
            netlink.add_address("eth0", Ipv4Addr::new(198, 18, 0, 1), 30)?;
            let address6: Ipv6Addr = "fd00::1".parse().unwrap();
            let ipv6 = netlink.add_address("eth0", address6, 64).is_ok();
            netlink.add_neighbour("eth0", GATEWAY, [2, 0, 0, 0, 0, 9])?;
            netlink.add_route("eth0", Ipv4Addr::UNSPECIFIED.into(), 0, GATEWAY.into())?;
            if ipv6 {
                let gateway: IpAddr = "fd00::2".parse().unwrap();
                netlink.add_route("eth0", Ipv6Addr::UNSPECIFIED.into(), 0, gateway)?;
            }
            let shape = |c: &Configuration| {
                let six = c.address6();
                let counts = (c.routes.len(), c.neighbours.len());
                (c.address4(), six, counts)
            };
            let before = Configuration::read("eth0")?;
            assert_eq!(before.mac(), [2, 0, 0, 0, 1, 1]);
            assert_eq!(before.mtu_bytes(), 1400);
            let expected = (
                Some((Ipv4Addr::new(198, 18, 0, 1), 30)),
                ipv6.then_some((address6, 64)),
                (1 + usize::from(ipv6), 1),
            );
            assert_eq!(shape(&before), expected);
            before.take_off("eth0")?;
            assert_eq!(shape(&Configuration::read("eth0")?), (None, None, (0, 0)));
            before.put_on("eth1")?;
            assert_eq!(shape(&Configuration::read("eth1")?), expected);
            before.take_off("eth1")?;
            before.put_on("eth0")?;
            // Twice does no harm.
            before.put_on("eth0")?;
            Ok(shape(&Configuration::read("eth0")?) == expected)
        });
        assert!(moved.unwrap().unwrap());
        let peer = ns.run(|| {
            remove("eth0")?;
            Configuration::read("peer0")
        });
        assert_eq!(
            peer.unwrap().unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
    }
}
