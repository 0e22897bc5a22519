//! Edits of the headers of a frame, in place, with the checksums brought up to date (RFC 1624).
//!
//! Every function takes the frame from its Ethernet header on, VLAN tags included; the payload need
//! not be there. Each says whether it changed a byte, and changes none where the headers are not
//! whole or contradict themselves. Lengths never change: a TCP option is removed by writing NOPs
//! over it.
//!
//! `partial` says what the checksum field of the transport layer holds: false for a finished
//! checksum, true for the sum of the pseudo-header alone, as with
//! [`NEEDS_CSUM`](crate::virtio::NEEDS_CSUM). An address is part of both; ports, options and the
//! window are part of the finished checksum only. A UDP checksum of zero (none computed) stays
//! zero.
//!
//! Left out: packets quoted in ICMP errors, IPv4 source routes, checksums of protocols other than
//! TCP, UDP and ICMPv6, the integrity value of an authentication header.
//!
//! Reading: RFC 1624 (incremental update), RFC 768, RFC 9293 section 3.1 and RFC 8200 section 8.1
//! (what checksums cover), RFC 3168 section 5 (ECN).

use std::net::IpAddr;

use crate::bytes::{put_u16, u8_at, u16_at};
use crate::classify::{IpLayer, Mac, Upper, Version};
use crate::{checksum, ethernet, ipv4, protocol, tcp, udp};

/// Sets the Ethernet source address.
pub fn set_source_mac(frame: &mut [u8], mac: Mac) -> bool {
    set_mac(frame, 6, mac)
}

/// Sets the Ethernet destination address.
pub fn set_destination_mac(frame: &mut [u8], mac: Mac) -> bool {
    set_mac(frame, 0, mac)
}

/// Sets the identifier, 0..=4095, of the outermost VLAN tag; an untagged frame stays as it is, and
/// so does one for an identifier out of range.
pub fn set_vlan_id(frame: &mut [u8], vid: u16) -> bool {
    let is_tagged = matches!(
        u16_at(frame, TYPE_AT),
        ethernet::TYPE_VLAN | ethernet::TYPE_QINQ
    );
    if !is_tagged || vid > VID_MASK || ethernet::network(frame).is_none() {
        return false;
    }
    let tci_at = TYPE_AT + 2;
    let tci = (u16_at(frame, tci_at) & !VID_MASK) | vid;
    overwrite(frame, tci_at, &tci.to_be_bytes()).is_some()
}

/// Takes `by` from the time to live or hop limit, down to zero at most, and returns what is left:
/// at zero the packet must not be forwarded. `None` without an IP header.
pub fn decrement_ttl(frame: &mut [u8], by: u8) -> Option<u8> {
    let ip = IpLayer::of(frame)?;
    let left = u8_at(frame, ip.ttl_at()).saturating_sub(by);
    set_ip_bytes(frame, &ip, ip.ttl_at() - ip.l3, &[left]);
    Some(left)
}

/// The ECN bits, 0..=3; `None` without an IP header.
pub fn ecn(frame: &[u8]) -> Option<u8> {
    let ip = IpLayer::of(frame)?;
    Some(ip.traffic_class(frame) & ECN_MASK)
}

/// Sets Congestion Experienced where the sender declared itself ECN-capable. False also for a
/// packet that carries the mark already, unlike [`crate::train::SuperFrame::mark_ce`]: ask
/// [`ecn`] whether a packet that was not changed is one to drop.
pub fn set_ce(frame: &mut [u8]) -> bool {
    let Some(ip) = IpLayer::of(frame) else {
        return false;
    };
    let class = ip.traffic_class(frame);
    class & ECN_MASK != NOT_ECT && set_traffic_class(frame, &ip, class | CE)
}

/// Sets the differentiated services code point, 0..=63; one out of range changes nothing. The ECN
/// bits stay.
pub fn set_dscp(frame: &mut [u8], dscp: u8) -> bool {
    let Some(ip) = IpLayer::of(frame) else {
        return false;
    };
    let class = (ip.traffic_class(frame) & ECN_MASK) | (dscp << 2);
    dscp <= DSCP_MAX && set_traffic_class(frame, &ip, class)
}

/// Sets the IP source address; an address of the other IP version changes nothing.
pub fn set_source_address(frame: &mut [u8], address: IpAddr, partial: bool) -> bool {
    let Some(ip) = IpLayer::of(frame) else {
        return false;
    };
    set_address(frame, &ip, ip.source_at(), address, partial)
}

/// Sets the IP destination address; an address of the other IP version changes nothing. Behind a
/// routing header with addresses left the transport checksum covers another one and stays.
pub fn set_destination_address(frame: &mut [u8], address: IpAddr, partial: bool) -> bool {
    let Some(ip) = IpLayer::of(frame) else {
        return false;
    };
    set_address(frame, &ip, ip.destination_at(), address, partial)
}

/// Sets the source port of TCP or UDP; of fragments only the first has one.
pub fn set_source_port(frame: &mut [u8], port: u16, partial: bool) -> bool {
    set_port(frame, tcp::field::SOURCE_PORT, port, partial)
}

/// Sets the destination port of TCP or UDP; of fragments only the first has one.
pub fn set_destination_port(frame: &mut [u8], port: u16, partial: bool) -> bool {
    set_port(frame, tcp::field::DESTINATION_PORT, port, partial)
}

/// Sets the receive window of TCP, before scaling.
pub fn set_tcp_window(frame: &mut [u8], window: u16, partial: bool) -> bool {
    let Some(header) = tcp_header(frame) else {
        return false;
    };
    edit_covered(
        header,
        Coverage::tcp(partial),
        tcp::field::WINDOW,
        &window.to_be_bytes(),
    )
}

/// Lowers the maximum segment size that a SYN states to `mss_max` bytes; never raises it, and adds
/// none where none is stated.
pub fn clamp_mss(frame: &mut [u8], mss_max: u16, partial: bool) -> bool {
    edit_options(frame, Of::Syns, partial, |option| {
        if let &mut [MAX_SEGMENT_SIZE, _, a, b] = option {
            let mss = u16::from_be_bytes([a, b]).min(mss_max);
            put_u16(option, 2, mss);
        }
    })
}

/// Removes the window scale option of a SYN: neither side scales then (RFC 7323 section 2.2).
pub fn strip_window_scale(frame: &mut [u8], partial: bool) -> bool {
    edit_options(frame, Of::Syns, partial, |option| {
        if option.first() == Some(&WINDOW_SCALE) {
            option.fill(NOP);
        }
    })
}

/// Removes SACK-permitted and SACK blocks.
pub fn strip_sack(frame: &mut [u8], partial: bool) -> bool {
    edit_options(frame, Of::AllSegments, partial, |option| {
        if matches!(option.first(), Some(&(SACK_PERMITTED | SACK))) {
            option.fill(NOP);
        }
    })
}

/// Removes the timestamps option (RFC 7323 section 3). Taken out of SYNs it is not agreed on.
pub fn strip_timestamps(frame: &mut [u8], partial: bool) -> bool {
    edit_options(frame, Of::AllSegments, partial, |option| {
        if option.first() == Some(&TIMESTAMPS) {
            option.fill(NOP);
        }
    })
}

/// Sets the time to live or hop limit.
pub fn set_ttl(frame: &mut [u8], ttl: u8) -> bool {
    let Some(ip) = IpLayer::of(frame) else {
        return false;
    };
    set_ip_bytes(frame, &ip, ip.ttl_at() - ip.l3, &[ttl])
}

/// Removes all TCP options.
pub fn strip_options(frame: &mut [u8], partial: bool) -> bool {
    edit_options(frame, Of::AllSegments, partial, |option| option.fill(NOP))
}

/// Which segments an edit is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Syns,
    AllSegments,
}

/// How a checksum field relates to the bytes that are edited.
#[derive(Clone, Copy, Debug)]
struct Coverage {
    /// Where the field stands, from the start of its header.
    at: usize,
    kind: Kind,
}

/// What a checksum field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A finished checksum.
    Finished,
    /// A finished checksum of UDP: zero means none.
    FinishedUdp,
    /// The sum of the pseudo-header.
    Partial,
}

/// The sums of the words that an edit touched, before and after.
#[derive(Clone, Copy)]
struct Change {
    old: u16,
    new: u16,
}

impl Coverage {
    /// The header checksum of IPv4.
    const IPV4: Self = Self {
        at: ipv4::field::CHECKSUM,
        kind: Kind::Finished,
    };

    const fn tcp(partial: bool) -> Self {
        Self {
            at: tcp::field::CHECKSUM,
            kind: if partial {
                Kind::Partial
            } else {
                Kind::Finished
            },
        }
    }

    const fn udp(partial: bool) -> Self {
        Self {
            at: udp::field::CHECKSUM,
            kind: if partial {
                Kind::Partial
            } else {
                Kind::FinishedUdp
            },
        }
    }

    /// The checksum of a transport protocol that covers a pseudo-header.
    fn of(number: u8, version: Version, partial: bool) -> Option<Self> {
        match number {
            protocol::TCP => Some(Self::tcp(partial)),
            protocol::UDP => Some(Self::udp(partial)),
            // RFC 4443 section 2.3; ICMP of IPv4 has no pseudo-header.
            protocol::ICMPV6 if version == Version::V6 => Some(Self {
                at: ICMPV6_CHECKSUM,
                ..Self::tcp(partial)
            }),
            _ => None,
        }
    }

    /// Brings the field of `header` up to date after `change` of covered bytes.
    fn apply(self, header: &mut [u8], change: Change) {
        let field = u16_at(header, self.at);
        let new = match self.kind {
            Kind::Partial => checksum::replace(field, change.old, change.new),
            Kind::Finished => checksum::update(field, change.old, change.new),
            Kind::FinishedUdp if field == 0 => 0,
            // RFC 768: a checksum that comes out as zero is written as all ones.
            Kind::FinishedUdp => match checksum::update(field, change.old, change.new) {
                0 => 0xffff,
                new => new,
            },
        };
        put_u16(header, self.at, new);
    }
}

fn set_mac(frame: &mut [u8], at: usize, mac: Mac) -> bool {
    frame.len() >= ethernet::HEADER_BYTES && overwrite(frame, at, &mac.0).is_some()
}

fn set_traffic_class(frame: &mut [u8], ip: &IpLayer, class: u8) -> bool {
    let word = u16_at(frame, ip.l3);
    // IPv4's is the low byte of the first word, IPv6's stands four bits before.
    let word = match ip.version {
        Version::V4 => (word & 0xff00) | u16::from(class),
        Version::V6 => (word & 0xf00f) | (u16::from(class) << 4),
    };
    set_ip_bytes(frame, ip, 0, &word.to_be_bytes())
}

/// Writes bytes of the IP header that only its own checksum covers, `at` from its start.
fn set_ip_bytes(frame: &mut [u8], ip: &IpLayer, at: usize, value: &[u8]) -> bool {
    let header = frame.get_mut(ip.l3..).unwrap_or_default();
    match ip.version {
        Version::V4 => edit_covered(header, Coverage::IPV4, at, value),
        Version::V6 => overwrite(header, at, value).is_some(),
    }
}

fn set_address(frame: &mut [u8], ip: &IpLayer, at: usize, address: IpAddr, partial: bool) -> bool {
    // Checked before anything is written: an address without its checksum would be a broken packet.
    let Ok(covering) = checksum_over_address(frame, ip, at, partial) else {
        return false;
    };
    let change = match (ip.version, address) {
        (Version::V4, IpAddr::V4(address)) => overwrite(frame, at, &address.octets()),
        (Version::V6, IpAddr::V6(address)) => overwrite(frame, at, &address.octets()),
        _ => None,
    };
    let Some(change) = change else {
        return false;
    };
    if ip.version == Version::V4 {
        let header = frame.get_mut(ip.l3..).unwrap_or_default();
        Coverage::IPV4.apply(header, change);
    }
    if let Some((coverage, l4)) = covering {
        let header = frame.get_mut(l4..).unwrap_or_default();
        coverage.apply(header, change);
    }
    true
}

/// A checksum field ends beyond the bytes that are there.
struct NotWhole;

/// The transport checksum that covers the address at `at`, and where its header begins; `None`
/// where no checksum of this packet does.
fn checksum_over_address(
    frame: &[u8],
    ip: &IpLayer,
    at: usize,
    partial: bool,
) -> Result<Option<(Coverage, usize)>, NotWhole> {
    let Some(Upper { protocol, l4 }) = ip.upper else {
        return Err(NotWhole);
    };
    if ip.transport().is_none() || (ip.routed && at == ip.destination_at()) {
        return Ok(None);
    }
    let Some(coverage) = Coverage::of(protocol, ip.version, partial) else {
        return Ok(None);
    };
    if ip.bytes_from(frame, l4).len() < coverage.at + 2 {
        return Err(NotWhole);
    }
    Ok(Some((coverage, l4)))
}

/// Sets a port; those of UDP stand where those of TCP do.
fn set_port(frame: &mut [u8], at: usize, port: u16, partial: bool) -> bool {
    let Some(ip) = IpLayer::of(frame) else {
        return false;
    };
    let Some(Upper { protocol, l4 }) = ip.transport() else {
        return false;
    };
    let coverage = match protocol {
        protocol::TCP => Coverage::tcp(partial),
        protocol::UDP => Coverage::udp(partial),
        _ => return false,
    };
    if ip.bytes_from(frame, l4).len() < coverage.at + 2 {
        return false;
    }
    let header = frame.get_mut(l4..).unwrap_or_default();
    edit_covered(header, coverage, at, &port.to_be_bytes())
}

/// The TCP header, options included, and no more; `None` where it is not whole.
fn tcp_header(frame: &mut [u8]) -> Option<&mut [u8]> {
    let ip = IpLayer::of(frame)?;
    let Upper { protocol, l4 } = ip.transport()?;
    if protocol != protocol::TCP {
        return None;
    }
    let segment = tcp::Packet::new_checked(ip.bytes_from(frame, l4)).ok()?;
    let end = l4 + segment.header_len();
    frame.get_mut(l4..end)
}

/// Lets `edit` change each option of a segment, kind and length included; NOPs are not shown.
/// Malformed options are not edited at all.
fn edit_options(frame: &mut [u8], of: Of, partial: bool, edit: impl Fn(&mut [u8])) -> bool {
    let Some(header) = tcp_header(frame) else {
        return false;
    };
    let flags = u16_at(header, tcp::field::DATA_OFFSET);
    if of == Of::Syns && flags & tcp::Flags::SYN.bits() == 0 {
        return false;
    }
    // A copy takes the edits, so that a bad length behind them undoes them.
    let mut room = [0; OPTION_BYTES_MAX];
    let options = header.get(tcp::HEADER_BYTES_MIN..).unwrap_or_default();
    let Some(copy) = room.get_mut(..options.len()) else {
        return false;
    };
    copy.copy_from_slice(options);
    edit_each_option(copy, edit).is_some()
        && edit_covered(header, Coverage::tcp(partial), tcp::HEADER_BYTES_MIN, copy)
}

/// `None` when an option's length does not fit (RFC 9293 section 3.2).
fn edit_each_option(options: &mut [u8], edit: impl Fn(&mut [u8])) -> Option<()> {
    let mut rest = options;
    while let Some(&kind) = rest.first() {
        let len = match kind {
            END => break,
            NOP => 1,
            _ => usize::from(*rest.get(1)?),
        };
        let (option, after) = rest.split_at_mut_checked(len)?;
        match (kind, len) {
            (NOP, _) => {}
            (_, 0 | 1) => return None,
            _ => edit(option),
        }
        rest = after;
    }
    Some(())
}

/// Overwrites bytes that the finished checksum of `header` covers, the pseudo-header's sum not.
fn edit_covered(header: &mut [u8], coverage: Coverage, at: usize, value: &[u8]) -> bool {
    let Some(change) = overwrite(header, at, value) else {
        return false;
    };
    if coverage.kind != Kind::Partial {
        coverage.apply(header, change);
    }
    true
}

/// Writes `value` at `at`; `None` when nothing changed. `at` is even: from there on the words are
/// those of a checksum that begins at any even place of `bytes`, and an odd last byte counts as
/// the high half of its word in both sums.
fn overwrite(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<Change> {
    let end = at.checked_add(value.len())?;
    let place = bytes.get_mut(at..end)?;
    if place == value {
        return None;
    }
    let change = Change {
        old: checksum::sum(place),
        new: checksum::sum(value),
    };
    place.copy_from_slice(value);
    Some(change)
}

/// Where the type field of a frame stands.
const TYPE_AT: usize = 12;
/// The identifier in a tag's second word.
const VID_MASK: u16 = 0x0fff;
/// Largest code point.
const DSCP_MAX: u8 = 63;
/// The ECN bits of the traffic class and two of their values (RFC 3168 section 5).
const ECN_MASK: u8 = 3;
const NOT_ECT: u8 = 0;
const CE: u8 = 3;
/// Where ICMPv6 has its checksum (RFC 4443 section 2.1).
const ICMPV6_CHECKSUM: usize = 2;
/// The most that a data offset of 15 leaves for options.
const OPTION_BYTES_MAX: usize = 40;

/// Option kinds, as in IANA's "TCP Option Kind Numbers".
const END: u8 = 0;
const NOP: u8 = 1;
const MAX_SEGMENT_SIZE: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
