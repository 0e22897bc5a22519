//! One of several links: a routing table of its own that marked packets are looked up in, its carrier, and
//! whether the next hop on it answers.
//!
//! A socket that is bound to an interface takes nothing in by another one, and answers may come by any. So
//! the way out is chosen by a mark (SO_MARK) and a rule.
//!
//! Sources: ip-rule(8), rtnetlink(7), icmp(7), RFC 792, RFC 4443.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use netlink_packet_core::{Emitable, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Nla};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHopFlags,
    RouteProtocol, RouteType,
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

    /// Makes the table hold what the main one had when `tables` was read but for ways by the interfaces `others`, and
    /// nothing else: of several ways of one route, that by `interface` if it is among them.
    ///
    /// # Errors
    /// The first thing that the kernel refused, as rtnetlink(7); the rest is done all the same.
    pub fn fill(
        self,
        netlink: &mut Netlink,
        tables: &Tables,
        interface: u32,
        others: &[u32],
    ) -> io::Result<()> {
        let main = tables.of(u32::from(RouteHeader::RT_TABLE_MAIN));
        let ways = main.filter_map(|route| without(route, interface, others));
        let mut wanted: Vec<RouteMessage> = ways.map(|route| self.own(&route)).collect();
        // What leads most closely first: meanwhile others are found in the main table.
        wanted.sort_by_key(|r| std::cmp::Reverse(r.header.destination_prefix_length));
        let present: Vec<RouteMessage> = tables.of(self.table).map(|r| self.own(r)).collect();
        let known: HashSet<Vec<u8>> = present.iter().map(bytes).collect();
        let kept: HashSet<Vec<u8>> = wanted.iter().map(bytes).collect();
        wanted.retain(|route| !known.contains(&bytes(route)));
        // First what is new, so that there is no moment without a way. Several ways to one place stand behind one
        // another as in the main table, which replacing would leave one of.
        let refused = add(netlink, &wanted);
        for route in present.iter().filter(|r| !kept.contains(&bytes(r))) {
            // Gone meanwhile, perhaps, with its interface.
            let _ = netlink.request(RouteNetlinkMessage::DelRoute(route.clone()), 0);
        }
        // IPv6 takes no way a second time, be it with other metrics: now that the old one is gone it does.
        let (again, mut lost): (Vec<_>, Vec<_>) = refused
            .into_iter()
            .partition(|(_, e)| e.kind() == io::ErrorKind::AlreadyExists);
        let again: Vec<RouteMessage> = again.into_iter().map(|(route, _)| route).collect();
        lost.extend(add(netlink, &again));
        lost.into_iter().next().map_or(Ok(()), |(_, e)| Err(e))
    }

    /// A route as it stands in this table: what decides where packets go and what sockets learn from it.
    fn own(self, route: &RouteMessage) -> RouteMessage {
        let mut own = RouteMessage::default();
        own.header = route.header.clone();
        own.header.table = RouteHeader::RT_TABLE_UNSPEC;
        own.header.protocol = RouteProtocol::Static;
        own.header.flags &= RouteFlags::Onlink;
        own.attributes = route.attributes.iter().filter_map(told).collect();
        own.attributes.push(RouteAttribute::Table(self.table));
        own.attributes.sort_by_key(Nla::kind);
        own
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
        let main = self.of(u32::from(RouteHeader::RT_TABLE_MAIN));
        let ways = main.filter_map(|route| by(route, interface));
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

/// Adds routes; those that the kernel refuses, and why.
fn add(netlink: &mut Netlink, routes: &[RouteMessage]) -> Vec<(RouteMessage, io::Error)> {
    let one = |route: &RouteMessage| {
        let new = RouteNetlinkMessage::NewRoute(route.clone());
        let added = netlink.request(new, NLM_F_CREATE | NLM_F_APPEND);
        added.err().map(|e| (route.clone(), e))
    };
    routes.iter().filter_map(one).collect()
}

/// A route as it is without ways by the interfaces `others`, and with that by `interface` alone where it has one;
/// `None` when nothing is left, and of what is not for packets to one machine.
fn without(route: &RouteMessage, interface: u32, others: &[u32]) -> Option<RouteMessage> {
    match route.header.kind {
        // These lead nowhere, and not by an interface, though IPv6 names lo.
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw => {
            return Some(route.clone());
        }
        RouteType::Unicast | RouteType::Local => {}
        _ => return None,
    }
    if let Some(own) = by(route, interface) {
        return Some(own);
    }
    let mut left = route.clone();
    for attribute in &mut left.attributes {
        match attribute {
            RouteAttribute::Oif(index) if others.contains(index) => return None,
            RouteAttribute::MultiPath(hops) => {
                hops.retain(|hop| !others.contains(&hop.interface_index));
                match hops.as_slice() {
                    [] => return None,
                    [hop] => return by(route, hop.interface_index),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    Some(left)
}

/// A route with the one way that leads by the interface, if it has it.
fn by(route: &RouteMessage, interface: u32) -> Option<RouteMessage> {
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let oif = |a: &RouteAttribute| matches!(a, RouteAttribute::Oif(i) if *i == interface);
    if route.attributes.iter().any(oif) {
        return Some(route.clone());
    }
    let hop = route.attributes.iter().find_map(|a| match a {
        RouteAttribute::MultiPath(hops) => hops.iter().find(|h| h.interface_index == interface),
        _ => None,
    })?;
    let mut own = route.clone();
    let many = |a: &RouteAttribute| matches!(a, RouteAttribute::MultiPath(_));
    own.attributes.retain(|a| !many(a));
    own.attributes.extend(hop.attributes.iter().cloned());
    own.attributes.push(RouteAttribute::Oif(interface));
    if hop.flags.contains(RouteNextHopFlags::Onlink) {
        own.header.flags |= RouteFlags::Onlink;
    }
    Some(own)
}

/// What of a route is told to the kernel again; the rest is the kernel's own.
fn told(attribute: &RouteAttribute) -> Option<RouteAttribute> {
    match attribute {
        RouteAttribute::Destination(_)
        | RouteAttribute::Source(_)
        | RouteAttribute::Gateway(_)
        | RouteAttribute::Via(_)
        | RouteAttribute::PrefSource(_)
        | RouteAttribute::Priority(_)
        | RouteAttribute::Metrics(_)
        | RouteAttribute::EncapType(_)
        | RouteAttribute::Encap(_)
        | RouteAttribute::Oif(_) => Some(attribute.clone()),
        RouteAttribute::MultiPath(hops) => {
            let mut hops = hops.clone();
            for hop in &mut hops {
                hop.flags &= RouteNextHopFlags::Onlink;
                hop.attributes = hop.attributes.iter().filter_map(told).collect();
            }
            Some(RouteAttribute::MultiPath(hops))
        }
        _ => None,
    }
}

/// A route as it is sent: what is the same is alike.
fn bytes(route: &RouteMessage) -> Vec<u8> {
    let mut bytes = vec![0; route.buffer_len()];
    route.emit(&mut bytes);
    bytes
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
        let word = crate::random::bytes()?;
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
            testing::skipped("no privilege to make namespaces");
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

    #[test]
    fn a_table_follows_the_main_one_but_for_other_links() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let ip = |words: &str| {
            let mut command = std::process::Command::new("ip");
            command.args(words.split(' '));
            ns.place(&mut command).unwrap();
            let ended = command.output().expect("iproute2 is installed");
            assert!(ended.status.success(), "{words}: {ended:?}");
            String::from_utf8_lossy(&ended.stdout).into_owned()
        };
        // Of a table, what does not lead by eth1, without what the kernel adds.
        let shown = |version: &str, table: &str| {
            let all = ip(&format!("{version} -o route show table {table}"));
            let lines = all.lines().filter(|line| !line.contains("dev eth1"));
            let mut lines: Vec<String> = lines
                .map(|line| {
                    let mut words: Vec<&str> = line.split_whitespace().collect();
                    if let Some(at) = words.iter().position(|w| *w == "proto") {
                        words.drain(at..at + 2);
                    }
                    words.join(" ")
                })
                .collect();
            lines.sort();
            lines
        };
        // Addresses that come later would bring routes.
        let file = "/proc/sys/net/ipv6/conf/default/addr_gen_mode";
        ns.run(|| std::fs::write(file, "1")).unwrap().unwrap();
        for (number, name) in ["eth0", "eth1", "dmz0", "dmz1"].iter().enumerate() {
            ip(&format!("link add {name} type veth peer name far{number}"));
            ip(&format!("link set far{number} up"));
            ip(&format!("link set {name} up"));
            // The last is of each link, as those of IPv6's own are.
            for net in [number, 9] {
                ip(&format!("addr add 10.0.{net}.1{number}/24 dev {name}"));
                ip(&format!(
                    "addr add fd00:0:0:{net}::1{number}/64 dev {name} nodad"
                ));
            }
        }
        let link = LinkTable {
            mark: 1,
            table: 4711,
            priority: 4711,
        };
        let fill = || {
            let filled = ns.run(|| {
                let mut netlink = Netlink::open()?;
                let [own, other] = ["eth0", "eth1"].map(|name| netlink.index_of(name));
                let tables = Tables::read(&mut netlink)?;
                link.fill(&mut netlink, &tables, own?, &[other?])
            });
            filled.unwrap().unwrap();
            for version in ["-4", "-6"] {
                let [main, own] = ["main", "4711"].map(|table| shown(version, table));
                assert_eq!(own, main);
                let all = ip(&format!("{version} route show table 4711"));
                assert!(!all.contains("eth1"), "{all}");
            }
        };
        for words in [
            "route add default via 10.0.0.2 metric 100 features ecn",
            "route add default via 10.0.1.2 metric 101",
            "route add 10.9.0.0/16 via 10.0.2.2 mtu lock 1300",
            "route append 10.9.0.0/16 via 10.0.3.2",
            "route add 10.8.0.0/16 nexthop via 10.0.2.2 weight 2 nexthop via 10.0.3.2",
            "route add blackhole 10.7.0.0/16",
            "route add prohibit 10.6.0.0/16",
            "route add 10.5.0.0/16 via 192.0.2.1 dev dmz0 onlink",
            "-6 route add default via fd00::2 metric 100",
            "-6 route add default via fd00:0:0:1::2 metric 101",
            "-6 route add fd09::/16 via fd00:0:0:2::2 mtu 1400",
            "-6 route add fd08::/16 nexthop via fd00:0:0:2::2 nexthop via fd00:0:0:3::2",
            "-6 route add unreachable fd07::/16",
        ] {
            ip(words);
        }
        fill();
        for words in [
            "route change default via 10.0.0.3 metric 100",
            "route del 10.9.0.0/16 via 10.0.2.2",
            "route change 10.8.0.0/16 via 10.0.2.3 initcwnd 20",
            "route del blackhole 10.7.0.0/16",
            "-6 route change fd09::/16 via fd00:0:0:2::2 mtu 1300",
            "-6 route del fd08::/16 via fd00:0:0:2::2",
            "-6 route del unreachable fd07::/16",
        ] {
            ip(words);
            fill();
        }
        let removed = ns.run(|| Netlink::open().map(|mut n| link.remove_all(&mut n)));
        removed.unwrap().unwrap();
        for version in ["-4", "-6"] {
            let left = shown(version, "all");
            assert!(left.iter().all(|l| !l.contains("table 4711")), "{left:?}");
        }
    }
}
