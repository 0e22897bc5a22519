//! What captured packets begin with, other than Ethernet and IP.
//!
//! Reading: the tcpdump group's list of link types with its descriptions; radiotap.org (the header,
//! field "Flags"); IEEE 802.11 section 9.2 and 9.3.2; RFC 1662, 1547 (PPP, Cisco's HDLC), 4391
//! section 6 (InfiniBand, behind what libpcap puts before it), 2684 (ATM), 2427 (frame relay);
//! Linux include/uapi/linux/netfilter/nfnetlink_log.h; Endace's "ERF types".

use crate::bytes::{array_at, u8_at, u16_at, u32_at};
use crate::capture::LinkType;
use crate::segment::Segment;
use crate::segment::decode::{
    Around, Decoded, Snapped, after, by_type, by_version, frame, ieee_802_11, ieee_802_11_of, ipv4,
    ipv6, llc, ppp, prism,
};

/// Reads a captured packet into `out`, whose content counts after [`Decoded::Tcp`] only.
///
/// `original_bytes` is the length that the capture's record states; one below that of `captured`
/// counts as that.
#[inline]
pub fn decode(link: LinkType, captured: &[u8], original_bytes: u32, out: &mut Segment) -> Decoded {
    let packet = Snapped {
        bytes: captured,
        missing: (original_bytes as usize).saturating_sub(captured.len()),
    };
    let around = Around::none(captured);
    match link {
        LinkType::ETHERNET => frame(packet, around, out),
        LinkType::RAW
        | LinkType::RAW_BSD
        | LinkType::RAW_OPENBSD
        | LinkType::IPV4
        | LinkType::IPV6 => by_version(packet, around, out),
        _ => other(link, packet, around, out),
    }
}

/// Behind the header that packets of this link type begin with.
#[inline(never)]
fn other(link: LinkType, packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    match link {
        LinkType::LINUX_COOKED => behind(packet, 16, 14, around, out),
        LinkType::LINUX_COOKED_2 => behind(packet, 20, 0, around, out),
        LinkType::NULL | LinkType::LOOP => loopback(packet, around, out),
        PPP | PPP_HDLC => after_hdlc(packet, around, out),
        PPP_WITH_DIRECTION => after(1, packet, |inner| ppp(inner, around, out)),
        PPP_ETHER => after(6, packet, |inner| ppp(inner, around, out)),
        CISCO_HDLC => after_hdlc(packet, around, out),
        FRAME_RELAY => frame_relay(packet, around, out),
        // Access control, frame control, two addresses; then source routes where a bit says so.
        TOKEN_RING => {
            let routed = u8_at(packet.bytes, 8) & 0x80 != 0;
            let routes = if routed {
                u8_at(packet.bytes, 14) & 31
            } else {
                0
            };
            after(14 + usize::from(routes), packet, |inner| {
                llc(inner, around, out)
            })
        }
        FDDI => after(13, packet, |inner| llc(inner, around, out)),
        ATM_RFC1483 => match packet.bytes {
            [0xaa | 0xfe, ..] => llc(packet, around, out),
            _ => by_version(packet, around, out),
        },
        // Flags, virtual path, virtual channel.
        SUN_ATM => after(4, packet, |inner| match inner.bytes {
            [0xaa | 0xfe, ..] => llc(inner, around, out),
            _ => by_version(inner, around, out),
        }),
        IEEE_802_11 => ieee_802_11(packet, around, out),
        RADIOTAP => radiotap(packet, around, out),
        PRISM => prism(packet, around, out),
        AVS => {
            let header_bytes = u32_at(packet.bytes, 4) as usize;
            after(header_bytes.max(8), packet, |inner| {
                ieee_802_11(inner, around, out)
            })
        }
        PPI => per_packet_information(packet, around, out),
        NFLOG => netfilter_log(packet, around, out),
        PKTAP => packet_tap(packet, around, out),
        // A global routing header of which libpcap fills the addresses, then type and zeros.
        IP_OVER_INFINIBAND => behind(packet, 44, 40, around, out),
        // Hardware and IP's version, of what OpenBSD's filter logged.
        PF_LOG => {
            let header_bytes = usize::from(u8_at(packet.bytes, 0)).next_multiple_of(4);
            after(header_bytes.max(4), packet, |inner| {
                by_version(inner, around, out)
            })
        }
        ENC => after(12, packet, |inner| by_version(inner, around, out)),
        SLIP => after(16, packet, |inner| by_version(inner, around, out)),
        APPLE_FIREWIRE => behind(packet, 18, 16, around, out),
        MPLS => by_type(0x8847, packet, around, out),
        ERF => endace(packet, around, out),
        JUNIPER_ETHERNET => juniper(packet, around, out),
        // Version, zones and lengths of Solaris; what is behind is IP.
        IP_NET => after(24, packet, |inner| by_version(inner, around, out)),
        _ => Decoded::UnknownLink,
    }
}

/// Behind a header with an EtherType in it.
fn behind(
    packet: Snapped<'_>,
    header_bytes: usize,
    type_at: usize,
    around: Around,
    out: &mut Segment,
) -> Decoded {
    let ether_type = u16_at(packet.bytes, type_at);
    after(header_bytes, packet, |inner| {
        by_type(ether_type, inner, around, out)
    })
}

fn loopback(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let Ok(&family) = packet.head::<4>() else {
        return packet.too_short();
    };
    // The host's byte order is not known; families are small numbers.
    let family = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
    match family {
        FAMILY_INET => ipv4(packet.behind(4), around, out),
        FAMILY_INET6_LINUX | FAMILY_INET6_NETBSD | FAMILY_INET6_FREEBSD | FAMILY_INET6_DARWIN => {
            ipv6(packet.behind(4), around, out)
        }
        _ => Decoded::NotIp { ether_type: 0 },
    }
}

/// PPP or Cisco's HDLC, which the first byte tells apart.
fn after_hdlc(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    match packet.bytes {
        [0x0f | 0x8f, ..] => behind(packet, 4, 2, around, out),
        _ => ppp(packet, around, out),
    }
}

/// Addresses of two to four bytes, the last with a bit set; then a control byte and a number, with
/// SNAP or without, or an EtherType (Cisco's).
fn frame_relay(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let Some(last) = packet.bytes.iter().take(4).position(|byte| byte & 1 == 1) else {
        return packet.too_short();
    };
    let inner = packet.behind(last + 1);
    match inner.bytes {
        [3, 0xcc, ..] => ipv4(inner.behind(2), around, out),
        [3, 0x8e, ..] => ipv6(inner.behind(2), around, out),
        // SNAP, behind a byte of padding or not.
        [3, 0, 0x80, 0, 0, 0, ..] => behind(inner, 8, 6, around, out),
        [3, 0x80, 0, 0, 0, ..] => behind(inner, 7, 5, around, out),
        _ if inner.bytes.len() < 8 && inner.missing > 0 => Decoded::Cut,
        [3, ..] => Decoded::NotIp {
            ether_type: u16::from(u8_at(inner.bytes, 1)),
        },
        _ => behind(inner, 2, 0, around, out),
    }
}

/// Behind a radiotap header, the flags of which say whether the frame's own header is padded.
fn radiotap(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let Ok(&[_, _, a, b, _, _, _, present]) = packet.head() else {
        return packet.too_short();
    };
    let header_bytes = usize::from(u16::from_le_bytes([a, b]));
    let word = |at: usize| array_at(packet.bytes, at).map_or(0, u32::from_le_bytes);
    // Words of what is present, the last without its highest bit.
    let mut at = 8;
    let mut more = present & 0x80 != 0;
    while more && at < header_bytes {
        more = word(at) >> 31 == 1;
        at += 4;
    }
    let first = word(4);
    if first & RADIOTAP_TIME != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let has_flags = first & RADIOTAP_FLAGS != 0 && at < header_bytes;
    let padded = has_flags && u8_at(packet.bytes, at) & RADIOTAP_PADDED != 0;
    after(header_bytes.max(8), packet, |inner| {
        ieee_802_11_of(inner, u16_at(inner.bytes, 0), padded, around, out)
    })
}

/// The header of CACE's cards, which states its own length and the link type behind it.
fn per_packet_information(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let Ok(&[_, _, a, b, c, d, e, f]) = packet.head() else {
        return packet.too_short();
    };
    let header_bytes = usize::from(u16::from_le_bytes([a, b]));
    match u32::from_le_bytes([c, d, e, f]) {
        1 => after(header_bytes.max(8), packet, |inner| {
            frame(inner, around, out)
        }),
        105 => after(header_bytes.max(8), packet, |inner| {
            ieee_802_11(inner, around, out)
        }),
        _ => Decoded::UnknownLink,
    }
}

/// What Linux's packet filter logged: fields of a length and a type in the host's order.
fn netfilter_log(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let mut at = 4;
    while let Some([a, b, c, d]) = array_at(packet.bytes, at) {
        // Types are small; in the other order they are not.
        let swapped = c == 0 && d != 0;
        let (length, kind) = match swapped {
            true => (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
            false => (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])),
        };
        if length < 4 {
            return Decoded::Malformed;
        }
        if kind & 0x7fff == NFLOG_PAYLOAD {
            return by_version(packet.behind(at + 4), around, out);
        }
        at += usize::from(length).next_multiple_of(4);
    }
    packet.too_short()
}

/// Apple's header: its length and the link type behind it, in the host's order.
fn packet_tap(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let word = |at: usize| array_at(packet.bytes, at).map(u32::from_le_bytes);
    let (Some(length), Some(link)) = (word(0), word(8)) else {
        return packet.too_short();
    };
    let header_bytes = (length as usize).max(12);
    match u16::try_from(link).map(LinkType) {
        Ok(LinkType::ETHERNET) => after(header_bytes, packet, |inner| frame(inner, around, out)),
        Ok(LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD) => {
            after(header_bytes, packet, |inner| by_version(inner, around, out))
        }
        Ok(PKTAP) | Err(_) => Decoded::UnknownLink,
        Ok(link) => after(header_bytes, packet, |inner| {
            other(link, inner, around, out)
        }),
    }
}

/// Juniper's header: a magic number, flags, and fields where a flag says so.
fn juniper(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let Ok(&[b'M', b'G', b'C', flags, a, b]) = packet.head() else {
        return match packet.bytes.len() {
            ..6 => packet.too_short(),
            _ => Decoded::Malformed,
        };
    };
    let fields = flags & 0x80 != 0;
    let fields_bytes = if fields {
        2 + usize::from(u16::from_be_bytes([a, b]))
    } else {
        0
    };
    after(4 + fields_bytes, packet, |inner| match flags & 2 {
        0 => frame(inner, around, out),
        // The link layer's header is left out.
        _ => by_version(inner, around, out),
    })
}

/// A record of Endace's format.
fn endace(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let Ok(head) = packet.head::<ERF_BYTES>() else {
        return packet.too_short();
    };
    let mut header_bytes = ERF_BYTES;
    let mut more = head[8] & 0x80 != 0;
    while more {
        if packet.bytes.len() <= header_bytes {
            return packet.too_short();
        }
        more = u8_at(packet.bytes, header_bytes) & 0x80 != 0;
        header_bytes += 8;
    }
    match head[8] & 0x7f {
        // Two bytes before the frame are padding.
        2 | 11 | 16 | 20 => after(header_bytes + 2, packet, |inner| frame(inner, around, out)),
        1 | 10 | 15 | 19 => after(header_bytes, packet, |inner| after_hdlc(inner, around, out)),
        22 => after(header_bytes, packet, |inner| ipv4(inner, around, out)),
        23 => after(header_bytes, packet, |inner| ipv6(inner, around, out)),
        // Of ATM the cell's header, of 4 bytes, is before RFC 2684's.
        4 => after(header_bytes + 4, packet, |inner| llc(inner, around, out)),
        _ => Decoded::NotIp { ether_type: 0 },
    }
}

// Numbers of the tcpdump group's list that only this file needs.
const TOKEN_RING: LinkType = LinkType(6);
const SLIP: LinkType = LinkType(8);
const PPP: LinkType = LinkType(9);
const FDDI: LinkType = LinkType(10);
const PPP_HDLC: LinkType = LinkType(50);
const PPP_ETHER: LinkType = LinkType(51);
const ATM_RFC1483: LinkType = LinkType(100);
const CISCO_HDLC: LinkType = LinkType(104);
const IEEE_802_11: LinkType = LinkType(105);
const FRAME_RELAY: LinkType = LinkType(107);
const ENC: LinkType = LinkType(109);
const PF_LOG: LinkType = LinkType(117);
const PRISM: LinkType = LinkType(119);
const SUN_ATM: LinkType = LinkType(123);
const RADIOTAP: LinkType = LinkType(127);
const APPLE_FIREWIRE: LinkType = LinkType(138);
const AVS: LinkType = LinkType(163);
const PPI: LinkType = LinkType(192);
const ERF: LinkType = LinkType(197);
const PPP_WITH_DIRECTION: LinkType = LinkType(204);
const MPLS: LinkType = LinkType(219);
const JUNIPER_ETHERNET: LinkType = LinkType(178);
const IP_NET: LinkType = LinkType(226);
const NFLOG: LinkType = LinkType(239);
const IP_OVER_INFINIBAND: LinkType = LinkType(242);
const PKTAP: LinkType = LinkType(258);

// AF_INET and AF_INET6 as the systems number them that write LINKTYPE_NULL.
const FAMILY_INET: u32 = 2;
const FAMILY_INET6_LINUX: u32 = 10;
const FAMILY_INET6_NETBSD: u32 = 24;
const FAMILY_INET6_FREEBSD: u32 = 28;
const FAMILY_INET6_DARWIN: u32 = 30;

/// NFULA_PAYLOAD.
const NFLOG_PAYLOAD: u16 = 9;

// Fields of radiotap: bits of what is present, and of the flags.
const RADIOTAP_TIME: u32 = 1;
const RADIOTAP_FLAGS: u32 = 2;
const RADIOTAP_PADDED: u8 = 0x20;
/// Time, type, flags, two lengths and a counter.
const ERF_BYTES: usize = 16;
