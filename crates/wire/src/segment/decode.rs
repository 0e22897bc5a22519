//! From a captured packet to its TCP segment.
//!
//! **Lengths.** A packet is as long as its IP header says: Ethernet pads short frames, and some
//! captures keep a check sequence, neither of which is payload. That holds also where the record
//! states fewer bytes: a tool that cuts packets may forget how long they were (`editcap -L`), and
//! what was really cut on its way no host would take. Only an IP length of zero says nothing. Hosts
//! write it when a packet is longer than the field can tell (IPv4 and IPv6 super-packets beyond
//! 65,535 B: TSO on some systems, BIG TCP in Linux), so then the packet is what the record has
//! left, or what a jumbo payload option says (RFC 2675).
//!
//! **Tunnels.** Of a packet in a tunnel all fields are the inner one's, ECN and hops included:
//! those are what its ends see. [`TUNNELS_MAX`] are gone through; one more counts as the protocol
//! that it is.
//!
//! **Fragments** are left to [`Reassembly`](crate::segment::Reassembly): all of them, the first too.
//!
//! **Speed.** [`ipv4`] and [`ipv6`] are one function each, down to the last option of TCP: what a
//! header says then stays in registers. Through memory it took a third longer.

use crate::bytes::{array_at, u16_at, u32_at};
use crate::capture::LinkType;
use crate::segment::{FlowKey, Segment, SynOptions, link, tunnel};
use crate::tcp::{Flags, HEADER_BYTES_MIN, Options, SackBlocks, TcpOption};
use crate::{ethernet, ipv6, protocol};

/// What a captured packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decoded {
    /// A TCP segment.
    Tcp,
    /// UDP, and no tunnel that is known.
    Udp,
    /// IP with another protocol.
    OtherIp {
        /// Its number, as IANA's.
        protocol: u8,
    },
    /// A fragment of an IP packet.
    Fragment {
        /// Where in the captured bytes its IP header begins.
        at: u32,
    },
    /// No IP: ARP, spanning tree and the like.
    NotIp {
        /// Its EtherType; below 1,536 a link layer's own number of it, or zero for none.
        ether_type: u16,
    },
    /// Encrypted below IP: a protected 802.11 frame.
    Encrypted,
    /// The capture kept too little of it to tell, or less than the fixed TCP header.
    Cut,
    /// Lengths or versions in it contradict each other.
    Malformed,
    /// Of a link type that is not known.
    UnknownLink,
}

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
    let around = Around {
        captured: captured.as_ptr().addr(),
        tunnels: 0,
    };
    match link {
        LinkType::ETHERNET => frame(packet, around, out),
        LinkType::RAW
        | LinkType::RAW_BSD
        | LinkType::RAW_OPENBSD
        | LinkType::IPV4
        | LinkType::IPV6 => by_version(packet, around, out),
        _ => link::decode(link, packet, around, out),
    }
}

/// What is there of a packet, or of a part of it that reaches to its end.
#[derive(Clone, Copy)]
pub(super) struct Snapped<'a> {
    pub(super) bytes: &'a [u8],
    /// Bytes behind those that the capture cut off.
    pub(super) missing: usize,
}

/// What is around a packet.
#[derive(Clone, Copy)]
pub(super) struct Around {
    /// Address of what was captured.
    captured: usize,
    /// Tunnels that were entered.
    tunnels: u8,
}

/// What of the IP header goes into a segment.
struct Header {
    source: [u8; 16],
    destination: [u8; 16],
    ip_bytes: usize,
    ip_id: u16,
    ecn: u8,
    ttl: u8,
}

impl Around {
    /// Within one more tunnel; `None` where that is one too many.
    pub(super) fn deeper(self) -> Option<Self> {
        let tunnels = self.tunnels + 1;
        (tunnels <= TUNNELS_MAX).then_some(Self { tunnels, ..self })
    }

    /// Where a part of what was captured begins in it.
    fn place_of(self, part: &[u8]) -> u32 {
        let at = part.as_ptr().addr().wrapping_sub(self.captured);
        u32::try_from(at).unwrap_or(u32::MAX)
    }
}

impl<'a> Snapped<'a> {
    /// Bytes that it had.
    pub(super) const fn total(self) -> usize {
        self.bytes.len().saturating_add(self.missing)
    }

    /// The first `N` bytes, or what to call a packet that lacks them.
    #[inline]
    pub(super) fn head<const N: usize>(self) -> Result<&'a [u8; N], Decoded> {
        self.bytes.first_chunk().ok_or_else(|| self.too_short())
    }

    /// What stands behind the first `bytes`, which are there.
    #[inline]
    pub(super) fn behind(self, bytes: usize) -> Self {
        Self {
            bytes: self.bytes.get(bytes..).unwrap_or_default(),
            ..self
        }
    }

    /// The same with this length.
    #[inline]
    pub(super) fn with_total(self, total: usize) -> Self {
        let bytes = self.bytes.get(..total).unwrap_or(self.bytes);
        Self {
            bytes,
            missing: total.saturating_sub(bytes.len()),
        }
    }

    /// What a packet is that ends before what it should have.
    pub(super) const fn too_short(self) -> Decoded {
        if self.missing > 0 {
            Decoded::Cut
        } else {
            Decoded::Malformed
        }
    }
}

#[inline]
pub(super) fn frame(frame: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    match frame.head::<{ ethernet::HEADER_BYTES }>() {
        Ok(head) => by_type(
            u16::from_be_bytes([head[12], head[13]]),
            frame.behind(14),
            around,
            out,
        ),
        Err(short) => short,
    }
}

#[inline]
pub(super) fn by_type(
    ether_type: u16,
    packet: Snapped<'_>,
    around: Around,
    out: &mut Segment,
) -> Decoded {
    match ether_type {
        ethernet::TYPE_IPV4 => ipv4(packet, around, out),
        ethernet::TYPE_IPV6 => ipv6(packet, around, out),
        _ => tunnel::by_type(ether_type, packet, around, out),
    }
}

pub(super) fn by_version(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    match packet.bytes.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(packet, around, out),
        Some(6) => ipv6(packet, around, out),
        Some(_) => Decoded::Malformed,
        None => packet.too_short(),
    }
}

#[inline(never)]
pub(super) fn ipv4(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let head = match packet.head::<20>() {
        Ok(head) => head,
        Err(short) => return short,
    };
    let header_bytes = usize::from(head[0] & 15) * 4;
    let stated = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let ip_bytes = if stated == 0 { packet.total() } else { stated };
    if head[0] >> 4 != 4 || header_bytes < head.len() || ip_bytes < header_bytes {
        return Decoded::Malformed;
    }
    let packet = packet.with_total(ip_bytes);
    if packet.bytes.len() < header_bytes {
        return packet.too_short();
    }
    if u16::from_be_bytes([head[6], head[7]]) & FRAGMENTED != 0 {
        let at = around.place_of(packet.bytes);
        return Decoded::Fragment { at };
    }
    let header = Header {
        source: mapped([head[12], head[13], head[14], head[15]]),
        destination: mapped([head[16], head[17], head[18], head[19]]),
        ip_bytes,
        ip_id: u16::from_be_bytes([head[4], head[5]]),
        ecn: head[1] & 3,
        ttl: head[8],
    };
    upper(head[9], packet.behind(header_bytes), &header, around, out)
}

#[inline(never)]
pub(super) fn ipv6(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let head = match packet.head::<{ ipv6::HEADER_BYTES }>() {
        Ok(head) => head,
        Err(short) => return short,
    };
    if head[0] >> 4 != 6 {
        return Decoded::Malformed;
    }
    let ip_bytes = match u16::from_be_bytes([head[4], head[5]]) {
        0 => jumbo(packet, head[6]).unwrap_or_else(|| packet.total()),
        stated => head.len() + usize::from(stated),
    };
    let packet = packet.with_total(ip_bytes);
    let (number, offset) = match extensions(packet, head[6]) {
        Ok((ipv6::FRAGMENT, _)) => {
            let at = around.place_of(packet.bytes);
            return Decoded::Fragment { at };
        }
        Ok(upper) => upper,
        Err(decoded) => return decoded,
    };
    let header = Header {
        source: array_at(head, 8).unwrap_or_default(),
        destination: array_at(head, 24).unwrap_or_default(),
        ip_bytes,
        ip_id: 0,
        ecn: (head[1] >> 4) & 3,
        ttl: head[7],
    };
    upper(number, packet.behind(offset), &header, around, out)
}

/// Protocol and place of what is behind the extension headers, or of the header that says of which
/// fragment it is. A fragment that is all of a packet (RFC 6946) is passed like any other header.
#[inline]
pub(super) fn extensions(packet: Snapped<'_>, mut number: u8) -> Result<(u8, usize), Decoded> {
    let mut offset = ipv6::HEADER_BYTES;
    loop {
        // Each is eight bytes long at least: the loop ends with the packet.
        match ipv6::extension_bytes(number, packet.bytes, offset) {
            Some(None) => return Ok((number, offset)),
            Some(Some(bytes)) if offset + bytes <= packet.bytes.len() => {
                if number == ipv6::FRAGMENT && u16_at(packet.bytes, offset + 2) & 0xfff9 != 0 {
                    return Ok((number, offset));
                }
                number = packet.bytes.get(offset).copied().unwrap_or_default();
                offset += bytes;
            }
            _ => return Err(packet.too_short()),
        }
    }
}

/// Length of a packet by its jumbo payload option, the first one in a hop-by-hop header (RFC 2675
/// section 2); Linux writes it first (net/ipv6/ip6_output.c and ip6_offload.c).
#[cold]
fn jumbo(packet: Snapped<'_>, next_header: u8) -> Option<usize> {
    let options = packet.bytes.get(ipv6::HEADER_BYTES + 2..)?;
    if next_header != ipv6::HOP_BY_HOP || !options.starts_with(&JUMBO_PAYLOAD) {
        return None;
    }
    let length = array_at(options, 2).map(u32::from_be_bytes)?;
    let total = ipv6::HEADER_BYTES.saturating_add(length as usize);
    // A shorter one is no jumbogram; a longer one than was captured nobody sends.
    (length > u32::from(u16::MAX) && total <= packet.total()).then_some(total)
}

#[inline(always)]
fn upper(
    number: u8,
    packet: Snapped<'_>,
    header: &Header,
    around: Around,
    out: &mut Segment,
) -> Decoded {
    match number {
        protocol::TCP => tcp(packet, header, out),
        AUTHENTICATION => authenticated(packet, header, around, out),
        _ => tunnel::by_protocol(number, packet, around, out),
    }
}

/// Behind an authentication header in IPv4 (RFC 4302 section 2.2); IPv6 has it among its extensions.
#[cold]
fn authenticated(
    packet: Snapped<'_>,
    header: &Header,
    around: Around,
    out: &mut Segment,
) -> Decoded {
    let Ok(&[next, words, ..]) = packet.head::<12>() else {
        return packet.too_short();
    };
    let bytes = (usize::from(words) + 2) * 4;
    tunnel::after(bytes, packet, |inner| match next {
        protocol::TCP => tcp(inner, header, out),
        _ => tunnel::by_protocol(next, inner, around, out),
    })
}

#[inline(always)]
fn tcp(packet: Snapped<'_>, header: &Header, out: &mut Segment) -> Decoded {
    let head = match packet.head::<HEADER_BYTES_MIN>() {
        Ok(head) => head,
        Err(short) => return short,
    };
    let header_bytes = usize::from(head[12] >> 4) * 4;
    let Some(payload_bytes) = packet.total().checked_sub(header_bytes) else {
        return Decoded::Malformed;
    };
    let behind = packet.bytes.get(HEADER_BYTES_MIN..).unwrap_or_default();
    let Some(options_bytes) = header_bytes.checked_sub(HEADER_BYTES_MIN) else {
        return Decoded::Malformed;
    };
    let source = (header.source, u16::from_be_bytes([head[0], head[1]]));
    let destination = (header.destination, u16::from_be_bytes([head[2], head[3]]));
    (out.flow, out.from) = FlowKey::of(source, destination);
    out.sequence = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    out.acknowledgment = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    out.flags = Flags::from_bits(u16::from_be_bytes([head[12], head[13]]));
    out.window = u16::from_be_bytes([head[14], head[15]]);
    // Both fit: a total is below 2^32 + 2^16 and holds two headers.
    out.payload_bytes = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
    out.ip_bytes = u32::try_from(header.ip_bytes).unwrap_or(u32::MAX);
    out.ecn = header.ecn;
    out.ttl = header.ttl;
    out.ip_id = header.ip_id;
    out.options_cut = behind.len() < options_bytes;
    options(behind.get(..options_bytes).unwrap_or(behind), out);
    Decoded::Tcp
}

/// Reads the options. The last of a kind counts; what follows a bad length does not.
#[inline]
fn options(bytes: &[u8], out: &mut Segment) {
    out.timestamps = None;
    if !out.sack.as_slice().is_empty() {
        out.sack = SackBlocks::default();
    }
    out.syn = SynOptions::default();
    // Nearly all segments of a connection have timestamps, in the place that RFC 7323 appendix A
    // recommends.
    let rest = match bytes.split_first_chunk() {
        None => return,
        Some((&TIMESTAMPS_ALIGNED, rest)) if rest.len() >= 8 => {
            out.timestamps = Some((u32_at(rest, 0), u32_at(rest, 4)));
            rest.get(8..).unwrap_or_default()
        }
        Some(_) => bytes,
    };
    if !rest.is_empty() {
        other_options(rest, out);
    }
}

fn other_options(bytes: &[u8], out: &mut Segment) {
    for option in Options::new(bytes) {
        match option {
            Ok(TcpOption::MaxSegmentSize(mss)) => out.syn.mss = Some(mss),
            Ok(TcpOption::WindowScale(shift)) => out.syn.window_scale = Some(shift),
            Ok(TcpOption::SackPermitted) => out.syn.sack_permitted = true,
            Ok(TcpOption::Sack(blocks)) => out.sack = blocks,
            Ok(TcpOption::Timestamps { value, echo }) => out.timestamps = Some((value, echo)),
            Ok(TcpOption::Unknown { .. }) | Err(_) => {}
        }
    }
}

/// An IPv4 address as an IPv6 one (RFC 4291 section 2.5.5.2).
#[inline]
pub(super) fn mapped(address: [u8; 4]) -> [u8; 16] {
    (0xffff_0000_0000 | u128::from(u32::from_be_bytes(address))).to_be_bytes()
}

/// Tunnels that are gone through, one in the other.
const TUNNELS_MAX: u8 = 4;

/// AH (IANA's "Protocol Numbers").
const AUTHENTICATION: u8 = 51;

/// Offset of a fragment, and the flag that others follow (RFC 791 section 3.1).
const FRAGMENTED: u16 = 0x3fff;
/// Type and length of the option (RFC 2675 section 2).
const JUMBO_PAYLOAD: [u8; 2] = [0xc2, 4];
/// Two NOP, then kind and length of timestamps.
const TIMESTAMPS_ALIGNED: [u8; 4] = [1, 1, 8, 10];
