//! What a router says about packets: ICMP (RFC 792), ICMPv6 (RFC 4443) and the answer to a
//! neighbour solicitation (RFC 4861).
//!
//! Each builder writes a whole Ethernet frame, with finished checksums and with the VLAN tags of
//! the frame that it answers, and returns its length. It returns `None` where the rules forbid an
//! answer (RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7, RFC 4443 section 2.4), where the
//! packet is not whole or contradicts itself, and where `out` is too short; `out` may then hold a
//! part of an answer. No error is longer than [`ERROR_FRAME_BYTES_MAX`]; an echo reply is as long
//! as its request.
//!
//! Left out: rate limits, whose addresses are answered for and the broadcast address of a subnet
//! (all three the caller's), redirects, parameter problems, source routes and options in answers,
//! extensions (RFC 4884), asking for a neighbour.
//!
//! Reading: RFC 792, RFC 1122 section 3.2.2, RFC 1191 section 4, RFC 1812 section 4.3; RFC 4443,
//! RFC 4861 sections 4.3, 4.4, 7.1.1 and 7.2.4.

use std::net::{IpAddr, Ipv6Addr};

use crate::arp::copy_link;
use crate::bytes::{array_at, put, put_u16, u8_at, u16_at};
use crate::classify::{Fragment, IpLayer, Mac, Upper, Version};
use crate::ipv4::DONT_FRAGMENT;
use crate::{checksum, ethernet, ipv4, ipv6, protocol, tcp, udp};

/// Who answers, and to which station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Ethernet address that the answer comes from.
    pub router_mac: Mac,
    /// Ethernet address that it goes to: the next hop towards the packet's source.
    pub to_mac: Mac,
    /// The router's own address, of the packet's IP version.
    pub router_ip: IpAddr,
}

/// A packet that is to be answered with an error.
#[derive(Clone, Copy, Debug)]
pub struct Original<'a> {
    /// The frame from its Ethernet header on. Its transport checksum may be partial: it is only
    /// quoted. Headers without payload will do; the quotation is then as short.
    pub frame: &'a [u8],
    /// Bytes of the IP packet that the wire would carry: of a super-frame, those of its first
    /// segment. More than the packet has counts as all of it.
    pub segment_l3_bytes: u32,
}

/// Why a packet cannot be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// No route: code 0 of both.
    Network,
    /// Nobody has the address: code 1 of ICMP, 3 of ICMPv6.
    Host,
    /// Nobody listens: code 3 of ICMP, 4 of ICMPv6.
    Port,
    /// A rule forbids it: code 13 of ICMP (RFC 1812 section 5.2.7.1), 1 of ICMPv6.
    Prohibited,
}

/// What a neighbour solicitation asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The address that is asked for.
    pub target: Ipv6Addr,
    /// Who asks; unspecified when the asker wants to use the address itself (RFC 4862).
    pub source: Ipv6Addr,
    /// Where the asker is, by its option or else by the frame.
    pub source_mac: Mac,
}

/// Answers an echo request, from the address that it went to. `None` for fragments, for a wrong
/// checksum and for requests to or from a group.
pub fn echo_reply(frame: &[u8], out: &mut [u8]) -> Option<usize> {
    let ip = IpLayer::of(frame)?;
    let request = whole_message(frame, &ip)?;
    let reply_type = match (ip.version, request.first_chunk()?) {
        (Version::V4, [ECHO_REQUEST_V4, 0]) => ECHO_REPLY_V4,
        (Version::V6, [ECHO_REQUEST_V6, 0]) => ECHO_REPLY_V6,
        _ => return None,
    };
    let link = ethernet::Frame::new_checked(frame).ok()?;
    let (own_mac, to_mac) = (Mac(link.destination()), Mac(link.source()));
    let (own_ip, to_ip) = (ip.destination(frame), ip.source(frame));
    let is_unicast = own_mac.is_station() && to_mac.is_station() && is_host(own_ip);
    if request.len() < MESSAGE_HEADER_BYTES || !is_unicast || !is_host(to_ip) {
        return None;
    }
    let l3 = copy_link(frame, to_mac, own_mac, out)?;
    let place = u16_at(frame, ip.l3 + ipv4::field::FRAGMENT);
    let envelope = Envelope {
        source: own_ip,
        destination: to_ip,
        // RFC 1812 section 4.3.2.5 (the class of the request).
        dscp: ip.traffic_class(frame) >> 2,
        // The asker's numbers are as good: the reply's addresses are the request's, swapped.
        identification: u16_at(frame, ip.l3 + ipv4::field::IDENTIFICATION),
        dont_fragment: place & DONT_FRAGMENT != 0,
        hop_limit: HOP_LIMIT,
    };
    let message = envelope.message_mut(out, l3, request.len())?;
    message.copy_from_slice(request);
    put(message, 0, &[reply_type]);
    envelope.seal(out, l3, request.len())
}

/// Says that the time to live or hop limit ran out on the way.
pub fn time_exceeded(original: Original<'_>, answer: &Answer, out: &mut [u8]) -> Option<usize> {
    let message = Message {
        v4: [TIME_EXCEEDED_V4, 0],
        v6: [TIME_EXCEEDED_V6, 0],
        rest: [0; 4],
        to_groups: false,
    };
    error(original, answer, message, out)
}

/// Says why the packet cannot be delivered.
pub fn destination_unreachable(
    original: Original<'_>,
    reason: Unreachable,
    answer: &Answer,
    out: &mut [u8],
) -> Option<usize> {
    let (v4, v6) = match reason {
        Unreachable::Network => (0, 0),
        Unreachable::Host => (1, 3),
        Unreachable::Port => (3, 4),
        Unreachable::Prohibited => (13, 1),
    };
    let message = Message {
        v4: [UNREACHABLE_V4, v4],
        v6: [UNREACHABLE_V6, v6],
        rest: [0; 4],
        to_groups: false,
    };
    error(original, answer, message, out)
}

/// Says that the packet exceeds `mtu` bytes (of IP) of the next hop: ICMPv6's "packet too big", or
/// ICMP's "fragmentation needed and DF set" (RFC 1191), which is `None` for a packet without DF: a
/// router fragments that. An IPv4 `mtu` above 65535 is written as 65535.
pub fn packet_too_big(
    original: Original<'_>,
    mtu: u32,
    answer: &Answer,
    out: &mut [u8],
) -> Option<usize> {
    let ip = IpLayer::of(original.frame)?;
    let place = u16_at(original.frame, ip.l3 + ipv4::field::FRAGMENT);
    let rest = match ip.version {
        Version::V4 if place & DONT_FRAGMENT == 0 => return None,
        Version::V4 => u32::from(u16::try_from(mtu).unwrap_or(u16::MAX)),
        Version::V6 => mtu,
    };
    let message = Message {
        v4: [UNREACHABLE_V4, FRAGMENTATION_NEEDED],
        v6: [PACKET_TOO_BIG_V6, 0],
        rest: rest.to_be_bytes(),
        to_groups: ip.version == Version::V6,
    };
    error(original, answer, message, out)
}

/// Reads a neighbour solicitation; `None` for everything else and for one that a node must not
/// believe (RFC 4861 section 7.1.1).
pub fn solicitation(frame: &[u8]) -> Option<Solicitation> {
    let ip = IpLayer::of(frame)?;
    let message = whole_message(frame, &ip)?;
    if ip.version != Version::V6 || message.first_chunk() != Some(&[NEIGHBOUR_SOLICITATION, 0]) {
        return None;
    }
    let target = Ipv6Addr::from(array_at::<16>(message, TARGET_AT)?);
    let option = link_layer_option(message.get(NEIGHBOUR_BYTES..)?, SOURCE_LINK_LAYER).ok()?;
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (ip.source(frame), ip.destination(frame))
    else {
        return None;
    };
    let is_probe = source.is_unspecified();
    let is_sound = u8_at(frame, ip.ttl_at()) == NEIGHBOUR_HOP_LIMIT
        && is_host(target.into())
        && !source.is_multicast()
        && (!is_probe || (option.is_none() && is_solicited_node(destination)));
    if !is_sound {
        return None;
    }
    let from = Mac(array_at(frame, 6)?);
    Some(Solicitation {
        target,
        source,
        source_mac: option.filter(|mac| mac.is_station()).unwrap_or(from),
    })
}

/// Answers a neighbour solicitation: its target is at `own_mac`. `is_router` tells hosts whether
/// the target may be a default router; who is one must not say otherwise. An asker without an
/// address is answered by multicast to all nodes (RFC 4861 section 7.2.4).
pub fn neighbour_advertisement(
    solicitation_frame: &[u8],
    own_mac: Mac,
    is_router: bool,
    out: &mut [u8],
) -> Option<usize> {
    let asked = solicitation(solicitation_frame)?;
    let is_probe = asked.source.is_unspecified();
    let (destination, to_mac) = if is_probe {
        (ALL_NODES, ALL_NODES_MAC)
    } else if asked.source_mac.is_station() {
        (asked.source, asked.source_mac)
    } else {
        return None;
    };
    let l3 = copy_link(solicitation_frame, to_mac, own_mac, out)?;
    let envelope = Envelope {
        source: asked.target.into(),
        destination: destination.into(),
        dscp: 0,
        identification: 0,
        dont_fragment: false,
        hop_limit: NEIGHBOUR_HOP_LIMIT,
    };
    let len = NEIGHBOUR_BYTES + LINK_LAYER_BYTES;
    let message = envelope.message_mut(out, l3, len)?;
    message.fill(0);
    let flags =
        OVERRIDE | if is_router { ROUTER } else { 0 } | if is_probe { 0 } else { SOLICITED };
    put(message, 0, &[NEIGHBOUR_ADVERTISEMENT]);
    put(message, MESSAGE_REST_AT, &[flags]);
    put(message, TARGET_AT, &asked.target.octets());
    put(message, NEIGHBOUR_BYTES, &[TARGET_LINK_LAYER, 1]);
    put(message, NEIGHBOUR_BYTES + 2, &own_mac.0);
    envelope.seal(out, l3, len)
}

/// An error: type and code for each version, and the four bytes behind the checksum.
#[derive(Clone, Copy)]
struct Message {
    v4: [u8; 2],
    v6: [u8; 2],
    rest: [u8; 4],
    /// May answer packets to a group (RFC 4443 section 2.4 e.3).
    to_groups: bool,
}

fn error(
    original: Original<'_>,
    answer: &Answer,
    message: Message,
    out: &mut [u8],
) -> Option<usize> {
    let frame = original.frame;
    let ip = IpLayer::of(frame)?;
    if !may_answer(frame, &ip, message) || !answer.to_mac.is_station() {
        return None;
    }
    let l3 = copy_link(frame, answer.to_mac, answer.router_mac, out)?;
    let (head, packet_bytes_max, dscp, identification) = match ip.version {
        Version::V4 => {
            // The quoted packet's number: its sender keeps those of different packets apart.
            let identification = u16_at(frame, ip.l3 + ipv4::field::IDENTIFICATION);
            (
                message.v4,
                PACKET_BYTES_MAX_V4,
                DSCP_CONTROL,
                identification,
            )
        }
        Version::V6 => (message.v6, PACKET_BYTES_MAX_V6, 0, 0),
    };
    let envelope = Envelope {
        source: answer.router_ip,
        destination: ip.source(frame),
        dscp,
        identification,
        dont_fragment: false,
        hop_limit: HOP_LIMIT,
    };
    let quoted_max = packet_bytes_max - envelope.header_bytes() - MESSAGE_HEADER_BYTES;
    let quote = Quote::of(original, &ip, quoted_max)?;
    let len = MESSAGE_HEADER_BYTES + quote.bytes.len();
    let room = envelope.message_mut(out, l3, len)?;
    put(room, 0, &head);
    put(room, MESSAGE_REST_AT, &message.rest);
    quote.write(room.get_mut(MESSAGE_HEADER_BYTES..)?);
    envelope.seal(out, l3, len)
}

/// The rules that forbid an error (RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7, RFC 4443
/// section 2.4 e).
fn may_answer(frame: &[u8], ip: &IpLayer, message: Message) -> bool {
    // None too for a fragment other than the first.
    let Some(Upper { protocol, l4 }) = ip.transport() else {
        return false;
    };
    let icmp_type = ip.bytes_from(frame, l4).first().copied();
    let is_query = match (ip.version, protocol) {
        (Version::V4, protocol::ICMP) => icmp_type.is_some_and(is_query_v4),
        // Errors are those below 128; redirects count as such.
        (Version::V6, protocol::ICMPV6) => icmp_type.is_some_and(|t| t >= 128 && t != REDIRECT_V6),
        _ => true,
    };
    let to_group = Mac(array_at(frame, 0).unwrap_or_default()).is_group()
        || match ip.destination(frame) {
            IpAddr::V4(to) => to.is_multicast() || to.is_broadcast(),
            IpAddr::V6(to) => to.is_multicast(),
        };
    is_query && (!to_group || message.to_groups) && is_host(ip.source(frame))
}

/// ICMP messages that are no errors; of an unknown type it must be feared (IANA, "ICMP Type
/// Numbers").
const fn is_query_v4(icmp_type: u8) -> bool {
    matches!(icmp_type, 0 | 8..=10 | 13..=18 | 42 | 43)
}

/// True when the address names a single host (RFC 1122 section 3.2.2: not zero, loopback,
/// multicast, broadcast or class E).
fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => !matches!(a.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(a) => !(a.is_unspecified() || a.is_loopback() || a.is_multicast()),
    }
}

/// The ICMP message of a frame: whole, no fragment, for this destination, its checksums right.
fn whole_message<'a>(frame: &'a [u8], ip: &IpLayer) -> Option<&'a [u8]> {
    let Upper { protocol, l4 } = ip.transport()?;
    let message = ip.bytes_from(frame, l4);
    let is_whole = l4 + message.len() == ip.l3 + ip.l3_bytes && ip.fragment == Fragment::Whole;
    let header = frame.get(ip.l3..l4)?;
    let is_sound = ip.version == Version::V6 || checksum::sum(header) == 0xffff;
    if !is_whole || !is_sound || ip.routed {
        return None;
    }
    let pseudo = match (ip.source(frame), ip.destination(frame), protocol) {
        (IpAddr::V4(_), _, protocol::ICMP) => 0,
        (IpAddr::V6(from), IpAddr::V6(to), protocol::ICMPV6) => pseudo_v6(from, to, message.len()),
        _ => return None,
    };
    (checksum::add(pseudo, checksum::sum(message)) == 0xffff).then_some(message)
}

/// The bytes of a packet that an error repeats, as the wire would have carried them.
struct Quote<'a> {
    bytes: &'a [u8],
    ip: IpLayer,
    /// Bytes of the packet on the wire.
    packet_bytes: usize,
}

impl<'a> Quote<'a> {
    /// At most `bytes_max`; `None` where less is there than the IP header and eight bytes (RFC
    /// 792).
    fn of(original: Original<'a>, ip: &IpLayer, bytes_max: usize) -> Option<Self> {
        let l4_least = ip.transport()?.l4 - ip.l3 + 8;
        let segment = usize::try_from(original.segment_l3_bytes).unwrap_or(usize::MAX);
        let packet_bytes = segment.max(l4_least).min(ip.l3_bytes);
        let available = ip.bytes_from(original.frame, ip.l3);
        let len = available.len().min(packet_bytes).min(bytes_max);
        if available.len() < packet_bytes.min(l4_least) {
            return None;
        }
        Some(Self {
            bytes: available.get(..len)?,
            ip: *ip,
            packet_bytes,
        })
    }

    /// Copies the bytes; those of a super-frame's headers become its first segment's (as
    /// [`crate::train`] cuts them).
    fn write(&self, room: &mut [u8]) {
        put(room, 0, self.bytes);
        if self.packet_bytes == self.ip.l3_bytes {
            return;
        }
        // Less than the packet's length, which came from a field of 16 bits and 40 bytes more.
        let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX);
        match self.ip.version {
            Version::V4 => {
                let old = u16_at(room, ipv4::field::TOTAL_LEN);
                let check = u16_at(room, ipv4::field::CHECKSUM);
                let new = length(self.packet_bytes);
                put_u16(room, ipv4::field::TOTAL_LEN, new);
                put_u16(
                    room,
                    ipv4::field::CHECKSUM,
                    checksum::update(check, old, new),
                );
            }
            Version::V6 => {
                let payload = self.packet_bytes.saturating_sub(ipv6::HEADER_BYTES);
                put_u16(room, ipv6::field::PAYLOAD_LEN, length(payload));
            }
        }
        if let Some(Upper { protocol, l4 }) = self.ip.transport() {
            let header = room.get_mut(l4 - self.ip.l3..).unwrap_or_default();
            self.write_transport(
                header,
                protocol,
                length(self.packet_bytes + self.ip.l3 - l4),
            );
        }
    }

    fn write_transport(&self, header: &mut [u8], number: u8, l4_bytes: u16) {
        match number {
            protocol::UDP => put_u16(header, udp::field::LEN, l4_bytes),
            // These two stay with the last segment.
            protocol::TCP => {
                let ends = tcp::Flags::FIN.with(tcp::Flags::PSH).bits();
                let word = u16_at(header, tcp::field::DATA_OFFSET);
                put_u16(header, tcp::field::DATA_OFFSET, word & !ends);
            }
            _ => {}
        }
    }
}

/// What the IP header of an answer says.
struct Envelope {
    source: IpAddr,
    destination: IpAddr,
    dscp: u8,
    /// Of IPv4 alone, as the next.
    identification: u16,
    dont_fragment: bool,
    hop_limit: u8,
}

impl Envelope {
    const fn header_bytes(&self) -> usize {
        match self.destination {
            IpAddr::V4(_) => ipv4::HEADER_BYTES_MIN,
            IpAddr::V6(_) => ipv6::HEADER_BYTES,
        }
    }

    /// The place of a message of `len` bytes in a frame whose IP header begins at `l3`.
    fn message_mut<'a>(&self, out: &'a mut [u8], l3: usize, len: usize) -> Option<&'a mut [u8]> {
        let start = l3 + self.header_bytes();
        out.get_mut(start..start + len)
    }

    /// Writes the IP header before the message and the message's checksum; returns the frame's
    /// length. `None` when the addresses are of different versions.
    fn seal(&self, out: &mut [u8], l3: usize, len: usize) -> Option<usize> {
        let payload_len = u16::try_from(len).ok()?;
        let header = out.get_mut(l3..)?;
        let pseudo = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.repr_v4(source.octets(), destination.octets(), payload_len)
                    .emit(header)
                    .ok()?;
                0
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.repr_v6(source.octets(), destination.octets(), payload_len)
                    .emit(header)
                    .ok()?;
                pseudo_v6(source, destination, len)
            }
            _ => return None,
        };
        let message = self.message_mut(out, l3, len)?;
        put_u16(message, CHECKSUM_AT, 0);
        let check = !checksum::add(pseudo, checksum::sum(message));
        put_u16(message, CHECKSUM_AT, check);
        Some(l3 + self.header_bytes() + len)
    }

    const fn repr_v4(&self, source: [u8; 4], destination: [u8; 4], payload_len: u16) -> ipv4::Repr {
        ipv4::Repr {
            source,
            destination,
            protocol: protocol::ICMP,
            payload_len,
            dscp: self.dscp,
            ecn: 0,
            identification: self.identification,
            dont_fragment: self.dont_fragment,
            ttl: self.hop_limit,
        }
    }

    const fn repr_v6(
        &self,
        source: [u8; 16],
        destination: [u8; 16],
        payload_len: u16,
    ) -> ipv6::Repr {
        ipv6::Repr {
            source,
            destination,
            next_header: protocol::ICMPV6,
            payload_len,
            dscp: self.dscp,
            ecn: 0,
            flow_label: 0,
            hop_limit: self.hop_limit,
        }
    }
}

/// Sum of the pseudo-header of ICMPv6 (RFC 4443 section 2.3).
fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, len: usize) -> u16 {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    checksum::pseudo_v6(source.octets(), destination.octets(), protocol::ICMPV6, len)
}

/// An option does not fit the message, or has no length.
struct BadOption;

/// The last Ethernet address that the options of a neighbour message give under `kind`.
fn link_layer_option(options: &[u8], kind: u8) -> Result<Option<Mac>, BadOption> {
    let mut found = None;
    let mut rest = options;
    while let Some(&first) = rest.first() {
        // In units of eight bytes (RFC 4861 section 4.6).
        let len = rest.get(1).map_or(0, |&units| usize::from(units) * 8);
        let (option, after) = rest.split_at_checked(len).ok_or(BadOption)?;
        if option.is_empty() {
            return Err(BadOption);
        }
        if first == kind {
            found = array_at(option, 2).map(Mac);
        }
        rest = after;
    }
    Ok(found)
}

/// True for ff02::1:ff00:0/104 (RFC 4291 section 2.7.1).
fn is_solicited_node(address: Ipv6Addr) -> bool {
    address.octets()[..13] == SOLICITED_NODE.octets()[..13]
}

/// Longest frame of an error: all VLAN tags that are followed, then [`PACKET_BYTES_MAX_V6`].
pub const ERROR_FRAME_BYTES_MAX: usize =
    ethernet::HEADER_BYTES + ethernet::VLAN_TAGS_MAX * ethernet::TAG_BYTES + PACKET_BYTES_MAX_V6;
/// Longest ICMP error as an IP packet (RFC 1812 section 4.3.2.3).
pub const PACKET_BYTES_MAX_V4: usize = 576;
/// Longest ICMPv6 error as an IP packet: the least MTU (RFC 4443 section 2.4 c).
pub const PACKET_BYTES_MAX_V6: usize = 1280;

/// Type, code, checksum and four bytes that depend on the type.
const MESSAGE_HEADER_BYTES: usize = 8;
const CHECKSUM_AT: usize = 2;
const MESSAGE_REST_AT: usize = 4;
/// A neighbour message up to its options.
const NEIGHBOUR_BYTES: usize = 24;
const TARGET_AT: usize = 8;
/// An option with an Ethernet address.
const LINK_LAYER_BYTES: usize = 8;

/// The time to live that IANA's "IP Time to Live Parameter" recommends; Linux takes it for IPv6 as
/// well.
const HOP_LIMIT: u8 = 64;
/// Proves that no router passed the message on (RFC 4861 section 7.1.1).
const NEIGHBOUR_HOP_LIMIT: u8 = 255;
/// Precedence 6, internetwork control (RFC 1812 section 4.3.2.5).
const DSCP_CONTROL: u8 = 48;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// RFC 2464 section 7.
const ALL_NODES_MAC: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
const SOLICITED_NODE: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0);

/// Types of ICMP (RFC 792) and a code of "unreachable".
const ECHO_REPLY_V4: u8 = 0;
const UNREACHABLE_V4: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const ECHO_REQUEST_V4: u8 = 8;
const TIME_EXCEEDED_V4: u8 = 11;

/// Types of ICMPv6 (RFC 4443, RFC 4861).
const UNREACHABLE_V6: u8 = 1;
const PACKET_TOO_BIG_V6: u8 = 2;
const TIME_EXCEEDED_V6: u8 = 3;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT_V6: u8 = 137;

/// Options and flags of neighbour messages (RFC 4861 sections 4.4 and 4.6.1).
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
