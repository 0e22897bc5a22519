//! One of several links: a routing table of its own that marked packets are looked up in, its carrier, and
//! whether the next hop on it answers.
//!
//! A socket that is bound to an interface takes nothing in by another one, and answers may come by any. So
//! the way out is chosen by a mark (SO_MARK) and a rule.
//!
//! Sources: ip-rule(8), rtnetlink(7), icmp(7), RFC 792, RFC 4443.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use crate::netlink::{Netlink, family};
use crate::tcp::setsockopt;
use crate::transparent::ANY;

/// A routing table for one link, and the rule that leads marked packets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTable {
    /// Mark of the packets, all 32 bits.
    pub mark: u32,
    /// Routing table, not used by anybody else.
    pub table: u32,
    /// Place of the rule among others.
    pub priority: u32,
}

impl LinkTable {
    /// Puts the rule in place, for each version of IP that there is.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN, `EEXIST` when it is in place.
    pub fn install(self, netlink: &mut Netlink) -> io::Result<()> {
        for any in ANY {
            let rule = RouteNetlinkMessage::NewRule(self.rule(any));
            let added = netlink.request(rule, NLM_F_CREATE | NLM_F_EXCL);
            match added {
                // A machine without IPv6 has no link of it to choose.
                Err(e) if any.is_ipv4() => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes away rule and routes.
    pub fn remove_all(self, netlink: &mut Netlink) {
        for any in ANY {
            let rule = || RouteNetlinkMessage::DelRule(self.rule(any));
            while netlink.request(rule(), 0).is_ok() {}
            for route in routes(netlink, any, self.table).unwrap_or_default() {
                let _ = netlink.request(RouteNetlinkMessage::DelRoute(route), 0);
            }
        }
    }

    /// Makes the table hold what the main one has for the interface of that index, and nothing else.
    /// Returns the next hops, those of default routes first.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn fill(self, netlink: &mut Netlink, interface: u32) -> io::Result<Vec<IpAddr>> {
        let mut hops = Vec::new();
        for any in ANY {
            let main = u32::from(RouteHeader::RT_TABLE_MAIN);
            let all = routes(netlink, any, main)?;
            let mut wanted: Vec<RouteMessage> = Vec::new();
            for route in &all {
                wanted.extend(self.by(route, interface));
            }
            wanted.sort_by_key(|r| r.header.destination_prefix_length);
            hops.extend(wanted.iter().filter_map(next_hop));
            let present = routes(netlink, any, self.table)?;
            // First what is new, so that there is no moment without a way.
            for route in &wanted {
                if !present.iter().any(|p| same(p, route)) {
                    let new = RouteNetlinkMessage::NewRoute(route.clone());
                    netlink.request(new, NLM_F_CREATE | NLM_F_REPLACE)?;
                }
            }
            for route in present {
                if !wanted.iter().any(|w| same(w, &route)) {
                    // Replaced meanwhile, or gone with its interface.
                    let _ = netlink.request(RouteNetlinkMessage::DelRoute(route), 0);
                }
            }
        }
        hops.dedup();
        Ok(hops)
    }

    /// A route of the main table as ours, if it leads by the interface.
    fn by(self, route: &RouteMessage, interface: u32) -> Option<RouteMessage> {
        if route.header.kind != RouteType::Unicast {
            return None;
        }
        let oif = |a: &RouteAttribute| matches!(a, RouteAttribute::Oif(i) if *i == interface);
        let hop = route.attributes.iter().find_map(|a| match a {
            RouteAttribute::MultiPath(hops) => {
                let own = hops.iter().find(|h| h.interface_index == interface);
                own.map(|h| h.attributes.clone())
            }
            _ => None,
        });
        let alone = route.attributes.iter().any(oif);
        if hop.is_none() && !alone {
            return None;
        }
        let kept = route.attributes.iter().filter(|a| {
            matches!(
                a,
                RouteAttribute::Destination(_)
                    | RouteAttribute::Gateway(_)
                    | RouteAttribute::Via(_)
                    | RouteAttribute::PrefSource(_)
                    | RouteAttribute::Priority(_)
            )
        });
        let mut own = RouteMessage::default();
        own.header = route.header.clone();
        own.header.table = RouteHeader::RT_TABLE_UNSPEC;
        own.header.protocol = RouteProtocol::Static;
        own.header.flags = Default::default();
        own.attributes = kept.cloned().collect();
        for attribute in hop.unwrap_or_default() {
            if matches!(
                attribute,
                RouteAttribute::Gateway(_) | RouteAttribute::Via(_)
            ) {
                own.attributes.push(attribute);
            }
        }
        own.attributes.push(RouteAttribute::Oif(interface));
        own.attributes.push(RouteAttribute::Table(self.table));
        Some(own)
    }

    fn rule(self, any: IpAddr) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family(any);
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::FwMark(self.mark),
            RuleAttribute::FwMask(u32::MAX),
            RuleAttribute::Table(self.table),
        ];
        message
    }
}

/// What a routing table has of one version of IP.
fn routes(netlink: &mut Netlink, any: IpAddr, table: u32) -> io::Result<Vec<RouteMessage>> {
    let mut ask = RouteMessage::default();
    ask.header.address_family = family(any);
    let answers = netlink.request(RouteNetlinkMessage::GetRoute(ask), NLM_F_DUMP)?;
    let inside = |route: &RouteMessage| {
        let own = |a: &RouteAttribute| matches!(a, RouteAttribute::Table(t) if *t == table);
        route.attributes.iter().any(own)
    };
    let routes = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(route) if inside(&route) => Some(route),
        _ => None,
    });
    Ok(routes.collect())
}

fn next_hop(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|a| match a {
        RouteAttribute::Gateway(RouteAddress::Inet(a)) => Some((*a).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(a)) => Some((*a).into()),
        _ => None,
    })
}

/// The same destination by the same way; the kernel adds attributes of its own.
fn same(a: &RouteMessage, b: &RouteMessage) -> bool {
    let told = |r: &RouteMessage| {
        let of =
            |wanted: fn(&RouteAttribute) -> bool| r.attributes.iter().find(|a| wanted(a)).cloned();
        [
            of(|a| matches!(a, RouteAttribute::Destination(_))),
            of(|a| matches!(a, RouteAttribute::Gateway(_))),
            of(|a| matches!(a, RouteAttribute::Via(_))),
            of(|a| matches!(a, RouteAttribute::Oif(_))),
        ]
    };
    a.header.destination_prefix_length == b.header.destination_prefix_length && told(a) == told(b)
}

impl Netlink {
    /// True when the interface is up and has a carrier.
    ///
    /// # Errors
    /// `ENODEV` when there is none of that name.
    pub fn has_carrier(&mut self, name: &str) -> io::Result<bool> {
        let flags = self.link(name)?.header.flags;
        Ok(flags.contains(LinkFlags::Up | LinkFlags::LowerUp))
    }
}

/// Asks a neighbour on one interface whether it is there (ICMP echo).
#[derive(Debug)]
pub struct Pinger {
    fd: OwnedFd,
    to: SocketAddr,
    id: u16,
    sequence: u16,
}

impl Pinger {
    /// A socket by which only this interface is asked and heard.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` where neither `net.ipv4.ping_group_range` nor CAP_NET_RAW allows it.
    pub fn new(to: IpAddr, interface: &str, id: u16) -> io::Result<Self> {
        let (domain, protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open = |kind| rustix::net::socket_with(domain, kind, flags, Some(protocol));
        let fd = open(SocketType::RAW).or_else(|_| open(SocketType::DGRAM))?;
        setsockopt(
            fd.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            interface.as_bytes(),
        )?;
        Ok(Self {
            fd,
            to: SocketAddr::new(to, 0),
            id,
            sequence: 0,
        })
    }

    /// Asks once more.
    ///
    /// # Errors
    /// As sendto(2); a link that is down says so.
    pub fn ask(&mut self) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut packet = [0_u8; 8 + WORD.len()];
        packet[0] = if self.to.is_ipv4() { 8 } else { 128 };
        packet[4..6].copy_from_slice(&self.id.to_be_bytes());
        packet[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        packet[8..].copy_from_slice(WORD);
        if self.to.is_ipv4() {
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        rustix::net::sendto(&self.fd, &packet, SendFlags::empty(), &self.to)?;
        Ok(())
    }

    /// True when an answer has come since the last call.
    pub fn answered(&mut self) -> bool {
        let mut answered = false;
        let mut buffer = [0_u8; 256];
        // Others' answers come as well where the socket is a raw one.
        for _ in 0..ANSWERS {
            let Ok((read, _)) = rustix::net::recv(&self.fd, &mut buffer, RecvFlags::empty()) else {
                break;
            };
            answered |= self.is_ours(&buffer[..read]);
        }
        answered
    }

    fn is_ours(&self, packet: &[u8]) -> bool {
        let wanted = if self.to.is_ipv4() { 0 } else { 129 };
        // Raw sockets of IPv4 hand over the IP header too.
        let begin = match packet.first() {
            Some(first) if self.to.is_ipv4() && first >> 4 == 4 => usize::from(first & 15) * 4,
            _ => 0,
        };
        let Some(icmp) = packet.get(begin..) else {
            return false;
        };
        // Datagram sockets have an identifier of the kernel's, and hear of that one alone.
        icmp.first() == Some(&wanted) && icmp.get(8..) == Some(WORD)
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let sum: u32 = words
        .map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or(u16::MAX)
}

const WORD: &[u8; 16] = b"goodput-link-v1.";
const ANSWERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_its_checksum_sums_to_nothing() {
        let mut packet = *b"\x08\x00\x00\x00\x12\x34\x00\x01abc";
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&packet), 0);
    }
}
