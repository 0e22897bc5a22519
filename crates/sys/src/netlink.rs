//! Route netlink, as much of it as a lab needs: veth pairs, addresses, neighbours, counters.
//!
//! Blocking requests on one socket, each acknowledged by the kernel before the next is sent.
//!
//! Sources: rtnetlink(7), netlink(7), Linux drivers/net/veth.c.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::net::{AddressFamily as SocketFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A hardware address.
pub type Mac = [u8; 6];

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Interface name, at most 15 bytes.
    pub name: &'a str,
    /// Hardware address.
    pub mac: Mac,
    /// Namespace that the end is born in.
    pub netns: BorrowedFd<'a>,
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Bytes that came in, link layer headers included.
    pub rx_bytes: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
    /// Packets dropped on the way in (a full backlog among others).
    pub rx_dropped: u64,
    /// Packets dropped on the way out.
    pub tx_dropped: u64,
}

impl LinkCounters {
    fn of(link: &LinkMessage) -> Option<Self> {
        let stats = link.attributes.iter().find_map(|a| match a {
            LinkAttribute::Stats64(s) => Some(s),
            _ => None,
        })?;
        Some(Self {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
        })
    }
}

/// A route netlink socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As socket(2).
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // NETLINK_ROUTE is protocol 0, which is what `None` means.
        let fd = rustix::net::socket_with(SocketFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Makes a veth pair, each end in its own namespace, both down.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN over both namespaces; `EOPNOTSUPP` in a kernel without veth;
    /// `EEXIST` when a name is taken.
    pub fn add_veth(&mut self, a: VethEnd<'_>, b: VethEnd<'_>) -> io::Result<()> {
        let end = |e: VethEnd<'_>| {
            vec![
                LinkAttribute::IfName(e.name.to_owned()),
                LinkAttribute::Address(e.mac.to_vec()),
                LinkAttribute::NetNsFd(e.netns.as_raw_fd()),
            ]
        };
        let mut peer = LinkMessage::default();
        peer.attributes = end(b);
        let mut link = LinkMessage::default();
        link.attributes = end(a);
        link.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.request(
            RouteNetlinkMessage::NewLink(link),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Index of the interface `name`.
    ///
    /// # Errors
    /// `ENODEV` when there is none.
    pub fn index_of(&mut self, name: &str) -> io::Result<u32> {
        Ok(self.link(name)?.header.index)
    }

    /// Counters of the interface `name`.
    ///
    /// # Errors
    /// `ENODEV` when there is none.
    pub fn counters(&mut self, name: &str) -> io::Result<LinkCounters> {
        let counters = LinkCounters::of(&self.link(name)?);
        counters.ok_or_else(|| io::Error::other("the kernel sent no link counters"))
    }

    /// Counters of all interfaces of the namespace, each with its index.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn all_counters(&mut self) -> io::Result<Vec<(u32, LinkCounters)>> {
        let ask = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.request(ask, NLM_F_DUMP)?;
        let links = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => {
                Some((link.header.index, LinkCounters::of(link)?))
            }
            _ => None,
        });
        Ok(links.collect())
    }

    /// Sets an interface's MTU and brings it up.
    ///
    /// # Errors
    /// `EINVAL` for an MTU that the driver cannot carry.
    pub fn set_up(&mut self, name: &str, mtu_bytes: Option<u32>) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = self.index_of(name)?;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes.extend(mtu_bytes.map(LinkAttribute::Mtu));
        self.request(RouteNetlinkMessage::SetLink(link), 0)
            .map(drop)
    }

    /// Gives an interface an address with its prefix; an IPv6 address counts as checked for
    /// duplicates.
    ///
    /// # Errors
    /// `EEXIST` when it has the address.
    pub fn add_address(
        &mut self,
        name: &str,
        address: impl Into<IpAddr>,
        prefix: u8,
    ) -> io::Result<()> {
        let address = address.into();
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = self.index_of(name)?;
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        self.request(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Writes a permanent neighbour entry, so that no ARP or neighbour discovery crosses the path.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn add_neighbour(
        &mut self,
        name: &str,
        address: impl Into<IpAddr>,
        mac: Mac,
    ) -> io::Result<()> {
        let address = address.into();
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index_of(name)?;
        message.header.state = NeighbourState::Permanent;
        let destination = match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        };
        message.attributes = vec![
            NeighbourAttribute::Destination(destination),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
            .map(drop)
    }

    /// Routes a block of addresses (0 bits: everything) by the router at `gateway`.
    ///
    /// # Errors
    /// `EEXIST` when the block has a route, `ENETUNREACH` when the gateway is not on a link.
    pub fn add_route(
        &mut self,
        name: &str,
        to: IpAddr,
        prefix: u8,
        gateway: IpAddr,
    ) -> io::Result<()> {
        self.add_route_of(name, to, prefix, gateway, 0)
    }

    /// As [`Self::add_route`], for a route that is asked after those of lower metric; 0 is the kernel's own
    /// choice.
    ///
    /// # Errors
    /// As [`Self::add_route`].
    pub fn add_route_of(
        &mut self,
        name: &str,
        to: IpAddr,
        prefix: u8,
        gateway: IpAddr,
        metric: u32,
    ) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = prefix;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        let index = self.index_of(name)?;
        message.attributes = vec![
            RouteAttribute::Gateway(gateway.into()),
            RouteAttribute::Oif(index),
        ];
        if metric > 0 {
            message.attributes.push(RouteAttribute::Priority(metric));
        }
        if prefix > 0 {
            message
                .attributes
                .push(RouteAttribute::Destination(to.into()));
        }
        self.request(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Takes the interface `name` down.
    ///
    /// # Errors
    /// `ENODEV` when there is none.
    pub fn set_down(&mut self, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index_of(name)?;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
            .map(drop)
    }

    /// The rules that lead to one of these tables, both versions of IP together: the table, and the mark that is
    /// looked for.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn rules_to(&mut self, tables: RangeInclusive<u32>) -> io::Result<Vec<(u32, Option<u32>)>> {
        let mut found = Vec::new();
        for version in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut ask = RuleMessage::default();
            ask.header.family = version;
            let answers = self.request(RouteNetlinkMessage::GetRule(ask), NLM_F_DUMP)?;
            for answer in answers {
                let RouteNetlinkMessage::NewRule(rule) = answer else {
                    continue;
                };
                let (mut table, mut mark) = (u32::from(rule.header.table), None);
                for attribute in &rule.attributes {
                    match attribute {
                        RuleAttribute::Table(t) => table = *t,
                        RuleAttribute::FwMark(m) => mark = Some(*m),
                        _ => {}
                    }
                }
                if tables.contains(&table) {
                    found.push((table, mark));
                }
            }
        }
        Ok(found)
    }

    /// Number of rules with one of these priorities, both versions of IP together.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn rules_of(&mut self, priorities: RangeInclusive<u32>) -> io::Result<usize> {
        let mut count = 0;
        for version in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut ask = RuleMessage::default();
            ask.header.family = version;
            let answers = self.request(RouteNetlinkMessage::GetRule(ask), NLM_F_DUMP)?;
            let meant = |a: &RuleAttribute| matches!(a, RuleAttribute::Priority(p) if priorities.contains(p));
            let rules = answers.iter().filter(|answer| match answer {
                RouteNetlinkMessage::NewRule(rule) => rule.attributes.iter().any(meant),
                _ => false,
            });
            count += rules.count();
        }
        Ok(count)
    }

    /// MTU in bytes, and whether the interface `name` is up.
    ///
    /// # Errors
    /// `ENODEV` when there is none.
    pub fn mtu_and_state(&mut self, name: &str) -> io::Result<(u32, bool)> {
        let link = self.link(name)?;
        let mtu = link.attributes.iter().find_map(|a| match a {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
        let up = link.header.flags.contains(LinkFlags::Up);
        Ok((mtu.unwrap_or(0), up))
    }

    /// True when nobody answers for the next hop towards `to`: address resolution has failed.
    ///
    /// # Errors
    /// `ENETUNREACH` when there is no way there, `ENOENT` when nobody was asked yet.
    pub fn next_hop_has_failed(&mut self, to: IpAddr) -> io::Result<bool> {
        let (index, hop) = self.next_hop_towards(to)?;
        let mut ask = NeighbourMessage::default();
        ask.header.family = family(hop);
        ask.header.ifindex = index;
        ask.attributes = vec![NeighbourAttribute::Destination(match hop {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        })];
        let answers = self.request(RouteNetlinkMessage::GetNeighbour(ask), 0)?;
        Ok(answers.iter().any(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(n) => n.header.state == NeighbourState::Failed,
            _ => false,
        }))
    }

    /// Index of the interface by which packets to `to` leave.
    ///
    /// # Errors
    /// As the kernel says: `ENETUNREACH` where there is no way.
    pub fn interface_towards(&mut self, to: IpAddr) -> io::Result<u32> {
        self.next_hop_towards(to).map(|(index, _)| index)
    }

    /// By which interface packets to `to` leave, and to whom first.
    fn next_hop_towards(&mut self, to: IpAddr) -> io::Result<(u32, IpAddr)> {
        let mut ask = RouteMessage::default();
        ask.header.address_family = family(to);
        ask.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        ask.attributes = vec![RouteAttribute::Destination(to.into())];
        let answers = self.request(RouteNetlinkMessage::GetRoute(ask), 0)?;
        let (mut index, mut hop) = (0, to);
        for answer in answers {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                for attribute in route.attributes {
                    match attribute {
                        RouteAttribute::Oif(oif) => index = oif,
                        RouteAttribute::Gateway(RouteAddress::Inet(a)) => hop = a.into(),
                        RouteAttribute::Gateway(RouteAddress::Inet6(a)) => hop = a.into(),
                        _ => {}
                    }
                }
            }
        }
        Ok((index, hop))
    }

    /// How many routes a table has, of both versions of IP.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn routes_in(&mut self, table: u32) -> io::Result<usize> {
        let mut count = 0;
        for version in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut ask = RouteMessage::default();
            ask.header.address_family = version;
            let answers = self.request(RouteNetlinkMessage::GetRoute(ask), NLM_F_DUMP)?;
            let inside = |answer: &RouteNetlinkMessage| match answer {
                RouteNetlinkMessage::NewRoute(route) => route
                    .attributes
                    .iter()
                    .any(|a| matches!(a, RouteAttribute::Table(t) if *t == table)),
                _ => false,
            };
            count += answers.iter().filter(|a| inside(a)).count();
        }
        Ok(count)
    }

    /// The interface `name` as the kernel describes it.
    pub(crate) fn link(&mut self, name: &str) -> io::Result<LinkMessage> {
        let mut ask = LinkMessage::default();
        ask.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let answers = self.request(RouteNetlinkMessage::GetLink(ask), 0)?;
        let link = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        link.ok_or_else(|| {
            io::Error::other("the kernel answered a link request with something else")
        })
    }

    /// Sends one request and reads until it is acknowledged or, with `NLM_F_DUMP`, the list is
    /// complete; returns the answers before that. A list that changed while it was sent may lack what
    /// was there all the time: it is asked for again.
    pub(crate) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        for _ in 0..DUMPS {
            let heard = self.ask(message.clone(), flags)?;
            if !heard.changed {
                return Ok(heard.answers);
            }
        }
        Err(changed())
    }

    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Heard> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        rustix::net::send(&self.fd, &bytes, SendFlags::empty())?;
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut heard = Heard::default();
        while !heard.whole {
            let (read, _) = rustix::net::recv(&self.fd, &mut buffer, RecvFlags::empty())?;
            heard.take(&buffer[..read], self.sequence)?;
        }
        Ok(heard)
    }
}

/// What the kernel answered to one request.
#[derive(Debug, Default)]
struct Heard {
    answers: Vec<RouteNetlinkMessage>,
    /// The end was among it.
    whole: bool,
    /// The list changed while it was sent (netlink(7), NLM_F_DUMP_INTR).
    changed: bool,
}

impl Heard {
    /// Reads what one call returned.
    fn take(&mut self, mut rest: &[u8], sequence: u32) -> io::Result<()> {
        while rest.len() >= HEADER_BYTES && !self.whole {
            let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|e| io::Error::other(format!("unreadable netlink answer: {e}")))?;
            let length = usize::try_from(reply.header.length).unwrap_or(usize::MAX);
            if reply.header.sequence_number == sequence {
                self.changed |= reply.header.flags & NLM_F_DUMP_INTR != 0;
                match reply.payload {
                    NetlinkPayload::Error(e) if e.code.is_some() => return Err(e.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => self.whole = true,
                    NetlinkPayload::InnerMessage(inner) => self.answers.push(inner),
                    _ => {}
                }
            }
            let step = length.next_multiple_of(4).clamp(HEADER_BYTES, rest.len());
            rest = &rest[step..];
        }
        Ok(())
    }
}

/// A list that could not be had whole.
pub(crate) fn changed() -> io::Error {
    io::Error::other("the kernel's list changed each time that it was asked for")
}

/// Has packets with a mark looked up in a table of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByMark {
    /// Mark of the packets, all 32 bits.
    pub(crate) mark: u32,
    pub(crate) table: u32,
    /// Place of the rule among others: lower ones are asked first.
    pub(crate) priority: u32,
}

impl ByMark {
    /// The rule for the version of IP that `any` is of (ip-rule(8)).
    pub(crate) fn rule(self, any: IpAddr) -> RuleMessage {
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

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// One link answer with all its attributes is about 2 KiB, pieces of a list at most 32 KiB
/// (net/netlink/af_netlink.c, netlink_dump).
const RECEIVE_BYTES: usize = 64 * 1024;
/// struct nlmsghdr.
const HEADER_BYTES: usize = 16;
/// How often a list is asked for that changes meanwhile: each time takes some milliseconds at most.
pub(crate) const DUMPS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;
    use std::net::Ipv4Addr;

    #[test]
    fn a_list_that_changed_while_it_was_sent_is_known_as_such() {
        let message = |flags: u16, sequence: u32, payload| {
            let mut header = NetlinkHeader::default();
            header.flags = flags;
            header.sequence_number = sequence;
            let mut packet = NetlinkMessage::<RouteNetlinkMessage>::new(header, payload);
            packet.finalize();
            let mut bytes = vec![0; packet.buffer_len()];
            packet.serialize(&mut bytes);
            bytes
        };
        let route = || {
            let route = RouteNetlinkMessage::NewRoute(RouteMessage::default());
            NetlinkPayload::InnerMessage(route)
        };
        let done = || NetlinkPayload::Done(netlink_packet_core::DoneMessage::default());
        for (flags, changed) in [(0, false), (NLM_F_DUMP_INTR, true)] {
            let mut heard = Heard::default();
            // What belongs to an earlier request says nothing of this one.
            let stale = message(NLM_F_DUMP_INTR, 6, route());
            heard.take(&stale, 7).unwrap();
            let first = [message(0, 7, route()), message(flags, 7, route())].concat();
            heard.take(&first, 7).unwrap();
            assert!(!heard.whole);
            heard.take(&message(0, 7, done()), 7).unwrap();
            assert!(heard.whole);
            assert_eq!((heard.answers.len(), heard.changed), (2, changed));
        }
    }

    #[test]
    fn a_veth_pair_spans_two_namespaces_and_vanishes_with_them() {
        let (Ok(a), Ok(b)) = (NetNs::create(), NetNs::create()) else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        use std::os::fd::AsFd;
        let made = a.run(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_veth(
                VethEnd {
                    name: "left",
                    mac: [2, 0, 0, 0, 0, 1],
                    netns: a.as_fd(),
                },
                VethEnd {
                    name: "right",
                    mac: [2, 0, 0, 0, 0, 2],
                    netns: b.as_fd(),
                },
            )?;
            netlink.add_address("left", Ipv4Addr::new(198, 18, 0, 1), 30)?;
            netlink.set_up("left", Some(9000))?;
            netlink.counters("left")
        });
        assert_eq!(made.unwrap().unwrap().rx_packets, 0);
        let far = |name: &'static str| b.run(move || Netlink::open()?.index_of(name)).unwrap();
        assert!(far("right").is_ok());
        assert_eq!(far("left").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        drop(a);
        // The kernel tears a namespace down asynchronously: wait for it, bounded.
        let gone = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            far("right").is_err()
        });
        assert!(gone, "the pair outlived its namespace");
    }
}
