//! One of several links: a routing table of its own that marked packets are looked up in, its carrier, and
//! whether the next hop on it answers.
//!
//! A socket that is bound to an interface takes nothing in by another one, and answers may come by any. So
//! the way out is chosen by a mark (SO_MARK) and a rule.
//!
//! Sources: ip-rule(8), rtnetlink(7), icmp(7), RFC 792, RFC 4443.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::rule::RuleMessage;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use crate::netlink::{ByMark, Netlink, family};
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
        }
        let Ok(tables) = Tables::read(netlink) else {
            return;
        };
        for route in tables.of(self.table) {
            let _ = netlink.request(RouteNetlinkMessage::DelRoute(route.clone()), 0);
        }
    }

    /// Makes the table hold what the main one had for the interface of that index when `tables` was read, and
    /// nothing else.
    ///
    /// # Errors
    /// As rtnetlink(7); then what the kernel refused is missing, and nothing was taken away.
    pub fn fill(self, netlink: &mut Netlink, tables: &Tables, interface: u32) -> io::Result<()> {
        let main = tables.of(u32::from(RouteHeader::RT_TABLE_MAIN));
        let mut wanted: Vec<RouteMessage> = main.filter_map(|r| self.by(r, interface)).collect();
        wanted.sort_by_key(|r| r.header.destination_prefix_length);
        // First what is new, so that there is no moment without a way.
        for route in &wanted {
            if !tables.of(self.table).any(|p| same(p, route)) {
                let new = RouteNetlinkMessage::NewRoute(route.clone());
                netlink.request(new, NLM_F_CREATE | NLM_F_REPLACE)?;
            }
        }
        for route in tables.of(self.table) {
            if !wanted.iter().any(|w| same(w, route)) {
                // Replaced meanwhile, or gone with its interface.
                let _ = netlink.request(RouteNetlinkMessage::DelRoute(route.clone()), 0);
            }
        }
        Ok(())
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
        let by_mark = ByMark {
            mark: self.mark,
            table: self.table,
            priority: self.priority,
        };
        by_mark.rule(any)
    }
}

/// What all routing tables held at one moment. The kernel lists them all whatever is asked for, so they are
/// asked for once.
#[derive(Debug)]
pub struct Tables(Vec<RouteMessage>);

impl Tables {
    /// Reads them.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn read(netlink: &mut Netlink) -> io::Result<Self> {
        let mut all = Vec::new();
        for any in ANY {
            let mut ask = RouteMessage::default();
            ask.header.address_family = family(any);
            let answers = netlink.request(RouteNetlinkMessage::GetRoute(ask), NLM_F_DUMP)?;
            all.extend(answers.into_iter().filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(route)
                    if route.header.address_family == family(any) =>
                {
                    Some(route)
                }
                _ => None,
            }));
        }
        Ok(Self(all))
    }

    fn of(&self, table: u32) -> impl Iterator<Item = &RouteMessage> {
        self.0.iter().filter(move |route| {
            let own = |a: &RouteAttribute| matches!(a, RouteAttribute::Table(t) if *t == table);
            route.attributes.iter().any(own)
        })
    }

    /// The next hop by which the main table leads most by the interface of that index: the default route's, IPv4
    /// before IPv6. `None` where all is on the link itself.
    pub fn next_hop(&self, interface: u32) -> Option<IpAddr> {
        let any = LinkTable {
            mark: 0,
            table: 0,
            priority: 0,
        };
        let main = self.of(u32::from(RouteHeader::RT_TABLE_MAIN));
        let ways = main.filter_map(|route| any.by(route, interface));
        let hops = ways.filter_map(|route| {
            let hop = next_hop(&route)?;
            Some((hop.is_ipv6(), route.header.destination_prefix_length, hop))
        });
        hops.min_by_key(|(six, prefix, _)| (*six, *prefix))
            .map(|(.., hop)| hop)
    }
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
    /// What only who was asked can know: anybody can send an answer that nobody asked for.
    word: [u8; WORD_BYTES],
}

impl Pinger {
    /// A socket by which only this neighbour on this interface is asked and heard.
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
        let to = SocketAddr::new(to, 0);
        // A raw socket hears everything else that comes by the interface, and is soon full of it.
        rustix::net::connect(&fd, &to)?;
        let mut word = [0; WORD_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut word)?;
        Ok(Self {
            fd,
            to,
            id,
            sequence: 0,
            word,
        })
    }

    /// Who is asked.
    pub const fn to(&self) -> IpAddr {
        self.to.ip()
    }

    /// Asks once more.
    ///
    /// # Errors
    /// As sendto(2); a link that is down says so.
    pub fn ask(&mut self) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut packet = [0_u8; 8 + WORD_BYTES];
        packet[0] = if self.to.is_ipv4() { 8 } else { 128 };
        packet[4..6].copy_from_slice(&self.id.to_be_bytes());
        packet[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        packet[8..].copy_from_slice(&self.word);
        if self.to.is_ipv4() {
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        rustix::net::send(&self.fd, &packet, SendFlags::empty())?;
        Ok(())
    }

    /// True when an answer has come since the last call.
    pub fn answered(&mut self) -> bool {
        let mut answered = false;
        let mut buffer = [0_u8; 256];
        for _ in 0..ANSWERS {
            match rustix::net::recv(&self.fd, &mut buffer, RecvFlags::empty()) {
                Ok((read, _)) => answered |= self.is_ours(&buffer[..read]),
                Err(rustix::io::Errno::AGAIN) => break,
                // What the network said of an earlier question, told once.
                Err(_) => {}
            }
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
        icmp.first() == Some(&wanted) && icmp.get(8..) == Some(&self.word)
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

const WORD_BYTES: usize = 16;
const ANSWERS: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::netns::NetNs;

    #[test]
    fn a_packet_with_its_checksum_sums_to_nothing() {
        let mut packet = *b"\x08\x00\x00\x00\x12\x34\x00\x01abc";
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&packet), 0);
    }

    #[test]
    fn a_neighbour_answers_and_nobody_can_answer_for_it() {
        let Ok(ns) = NetNs::create() else {
            eprintln!("skipped: no privilege to make namespaces");
            return;
        };
        let heard = ns.run(|| -> io::Result<[bool; 2]> {
            Netlink::open()?.set_up("lo", None)?;
            let mut pinger = Pinger::new(Ipv4Addr::LOCALHOST.into(), "lo", 1)?;
            // An answer that nobody asked for, from the right address, with the right number.
            let mut forged = [0_u8; 8 + WORD_BYTES];
            forged[4..6].copy_from_slice(&1_u16.to_be_bytes());
            forged[8..].copy_from_slice(b"goodput-link-v1.");
            let sum = checksum(&forged);
            forged[2..4].copy_from_slice(&sum.to_be_bytes());
            let other = Pinger::new(Ipv4Addr::LOCALHOST.into(), "lo", 2)?;
            rustix::net::send(&other.fd, &forged, SendFlags::empty())?;
            let before = pinger.answered();
            pinger.ask()?;
            let end = Instant::now() + Duration::from_secs(10);
            while !pinger.answered() {
                if Instant::now() > end {
                    return Ok([before, false]);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok([before, true])
        });
        assert_eq!(heard.unwrap().unwrap(), [false, true]);
    }
}
