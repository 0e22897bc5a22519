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
//! those are what its ends see. One tunnel is gone through; a second one within counts as the
//! protocol that it is.
//!
//! **Speed.** [`ipv4`] and [`ipv6`] are one function each, down to the last option of TCP: what a
//! header says then stays in registers. Through memory it took a third longer.

use crate::bytes::{array_at, u16_at, u32_at};
use crate::capture::LinkType;
use crate::segment::{FlowKey, Segment, SynOptions};
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
    OtherIp,
    /// A fragment other than the first: no header of the transport is in it.
    Fragment,
    /// No IP: ARP, spanning tree and the like.
    NotIp,
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
    match link {
        LinkType::ETHERNET => frame(packet, Depth::Outer, out),
        LinkType::RAW
        | LinkType::RAW_BSD
        | LinkType::RAW_OPENBSD
        | LinkType::IPV4
        | LinkType::IPV6 => by_version(packet, Depth::Outer, out),
        LinkType::LINUX_COOKED => behind(packet, COOKED_BYTES, COOKED_TYPE, out),
        LinkType::LINUX_COOKED_2 => behind(packet, COOKED_2_BYTES, COOKED_2_TYPE, out),
        LinkType::NULL | LinkType::LOOP => loopback(packet, out),
        _ => Decoded::UnknownLink,
    }
}

/// What is there of a packet, or of a part of it that reaches to its end.
#[derive(Clone, Copy)]
struct Snapped<'a> {
    bytes: &'a [u8],
    /// Bytes behind those that the capture cut off.
    missing: usize,
}

/// Tunnels around a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Outer,
    Inner,
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

impl<'a> Snapped<'a> {
    /// Bytes that it had.
    const fn total(self) -> usize {
        self.bytes.len().saturating_add(self.missing)
    }

    /// The first `N` bytes, or what to call a packet that lacks them.
    #[inline]
    fn head<const N: usize>(self) -> Result<&'a [u8; N], Decoded> {
        self.bytes.first_chunk().ok_or_else(|| self.too_short())
    }

    /// What stands behind the first `bytes`, which are there.
    #[inline]
    fn behind(self, bytes: usize) -> Self {
        Self {
            bytes: self.bytes.get(bytes..).unwrap_or_default(),
            ..self
        }
    }

    /// The same with this length.
    #[inline]
    fn with_total(self, total: usize) -> Self {
        let bytes = self.bytes.get(..total).unwrap_or(self.bytes);
        Self {
            bytes,
            missing: total.saturating_sub(bytes.len()),
        }
    }

    /// What a packet is that ends before what it should have.
    const fn too_short(self) -> Decoded {
        if self.missing > 0 {
            Decoded::Cut
        } else {
            Decoded::Malformed
        }
    }
}

#[inline]
fn frame(frame: Snapped<'_>, depth: Depth, out: &mut Segment) -> Decoded {
    match frame.head::<{ ethernet::HEADER_BYTES }>() {
        Ok(head) => by_type(
            u16::from_be_bytes([head[12], head[13]]),
            frame.behind(14),
            depth,
            out,
        ),
        Err(short) => short,
    }
}

/// Behind a header with an EtherType in it.
fn behind(packet: Snapped<'_>, header_bytes: usize, type_at: usize, out: &mut Segment) -> Decoded {
    if packet.bytes.len() < header_bytes {
        return packet.too_short();
    }
    let ether_type = u16_at(packet.bytes, type_at);
    by_type(ether_type, packet.behind(header_bytes), Depth::Outer, out)
}

fn loopback(packet: Snapped<'_>, out: &mut Segment) -> Decoded {
    let Ok(&family) = packet.head::<4>() else {
        return packet.too_short();
    };
    // The host's byte order is not known; families are small numbers.
    let family = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
    match family {
        FAMILY_INET => ipv4(packet.behind(4), Depth::Outer, out),
        FAMILY_INET6_LINUX | FAMILY_INET6_NETBSD | FAMILY_INET6_FREEBSD | FAMILY_INET6_DARWIN => {
            ipv6(packet.behind(4), Depth::Outer, out)
        }
        _ => Decoded::NotIp,
    }
}

#[inline]
fn by_type(ether_type: u16, packet: Snapped<'_>, depth: Depth, out: &mut Segment) -> Decoded {
    match ether_type {
        ethernet::TYPE_IPV4 => ipv4(packet, depth, out),
        ethernet::TYPE_IPV6 => ipv6(packet, depth, out),
        _ => tagged(ether_type, packet, depth, out),
    }
}

/// Behind VLAN tags and MPLS labels, if that is what it is.
fn tagged(
    mut ether_type: u16,
    mut packet: Snapped<'_>,
    depth: Depth,
    out: &mut Segment,
) -> Decoded {
    for _ in 0..VLAN_TAGS_MAX {
        if !matches!(
            ether_type,
            ethernet::TYPE_VLAN | ethernet::TYPE_QINQ | TYPE_QINQ_OLD
        ) {
            break;
        }
        match packet.head::<4>() {
            Ok(&[_, _, a, b]) => ether_type = u16::from_be_bytes([a, b]),
            Err(short) => return short,
        }
        packet = packet.behind(4);
    }
    match ether_type {
        ethernet::TYPE_IPV4 => ipv4(packet, depth, out),
        ethernet::TYPE_IPV6 => ipv6(packet, depth, out),
        TYPE_MPLS | TYPE_MPLS_UPSTREAM => labelled(packet, depth, out),
        _ => Decoded::NotIp,
    }
}

/// Behind MPLS labels (RFC 3032 section 2.1). What is below them they do not say: IP, or else (with
/// a control word or Ethernet) a first half byte that is no version.
fn labelled(mut packet: Snapped<'_>, depth: Depth, out: &mut Segment) -> Decoded {
    for _ in 0..LABELS_MAX {
        let &[_, _, bottom, _] = match packet.head::<4>() {
            Ok(label) => label,
            Err(short) => return short,
        };
        packet = packet.behind(4);
        if bottom & 1 == 1 {
            return match by_version(packet, depth, out) {
                Decoded::Malformed if !is_ip(packet) => Decoded::NotIp,
                decoded => decoded,
            };
        }
    }
    Decoded::NotIp
}

fn is_ip(packet: Snapped<'_>) -> bool {
    packet
        .bytes
        .first()
        .is_some_and(|byte| matches!(byte >> 4, 4 | 6))
}

fn by_version(packet: Snapped<'_>, depth: Depth, out: &mut Segment) -> Decoded {
    match packet.bytes.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(packet, depth, out),
        Some(6) => ipv6(packet, depth, out),
        Some(_) => Decoded::Malformed,
        None => packet.too_short(),
    }
}

#[inline(never)]
fn ipv4(packet: Snapped<'_>, depth: Depth, out: &mut Segment) -> Decoded {
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
    if u16::from_be_bytes([head[6], head[7]]) & FRAGMENT_OFFSET != 0 {
        return Decoded::Fragment;
    }
    let header = Header {
        source: mapped([head[12], head[13], head[14], head[15]]),
        destination: mapped([head[16], head[17], head[18], head[19]]),
        ip_bytes,
        ip_id: u16::from_be_bytes([head[4], head[5]]),
        ecn: head[1] & 3,
        ttl: head[8],
    };
    upper(head[9], packet.behind(header_bytes), &header, depth, out)
}

#[inline(never)]
fn ipv6(packet: Snapped<'_>, depth: Depth, out: &mut Segment) -> Decoded {
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
    upper(number, packet.behind(offset), &header, depth, out)
}

/// Protocol and place of what is behind the extension headers.
#[inline]
fn extensions(packet: Snapped<'_>, mut number: u8) -> Result<(u8, usize), Decoded> {
    let mut offset = ipv6::HEADER_BYTES;
    loop {
        // Each is eight bytes long at least: the loop ends with the packet.
        match ipv6::extension_bytes(number, packet.bytes, offset) {
            Some(None) => return Ok((number, offset)),
            Some(Some(bytes)) if offset + bytes <= packet.bytes.len() => {
                let fragment = number == ipv6::FRAGMENT;
                if fragment && u16_at(packet.bytes, offset + 2) & 0xfff8 != 0 {
                    return Err(Decoded::Fragment);
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
    depth: Depth,
    out: &mut Segment,
) -> Decoded {
    match (number, depth) {
        (protocol::TCP, _) => tcp(packet, header, out),
        (protocol::UDP, Depth::Outer) => udp(packet, out),
        (protocol::UDP, Depth::Inner) => Decoded::Udp,
        (protocol::GRE, Depth::Outer) => gre(packet, out),
        (protocol::IPV4, Depth::Outer) => ipv4(packet, Depth::Inner, out),
        (protocol::IPV6, Depth::Outer) => ipv6(packet, Depth::Inner, out),
        _ => Decoded::OtherIp,
    }
}

/// What VXLAN carries (RFC 7348 section 5), if that is what it is: the port may be another's.
#[inline(never)]
fn udp(packet: Snapped<'_>, out: &mut Segment) -> Decoded {
    match packet.head::<16>() {
        Ok(&[_, _, a, b, _, _, _, _, flags, ..])
            if u16::from_be_bytes([a, b]) == VXLAN_PORT && flags & VXLAN_NETWORK != 0 =>
        {
            frame(packet.behind(16), Depth::Inner, out)
        }
        _ => Decoded::Udp,
    }
}

/// What GRE carries (RFC 2784 section 2, RFC 2890 section 2): IP or Ethernet.
#[inline(never)]
fn gre(packet: Snapped<'_>, out: &mut Segment) -> Decoded {
    let Ok(&[flags, version, a, b]) = packet.head() else {
        return packet.too_short();
    };
    if version & 7 != 0 || flags & GRE_ROUTING != 0 {
        return Decoded::OtherIp;
    }
    let fields = [GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE];
    let present = fields.iter().filter(|&&field| flags & field != 0).count();
    let header_bytes = 4 + 4 * present;
    if packet.bytes.len() < header_bytes {
        return packet.too_short();
    }
    let inner = packet.behind(header_bytes);
    match u16::from_be_bytes([a, b]) {
        ethernet::TYPE_IPV4 => ipv4(inner, Depth::Inner, out),
        ethernet::TYPE_IPV6 => ipv6(inner, Depth::Inner, out),
        TYPE_BRIDGED => frame(inner, Depth::Inner, out),
        _ => Decoded::OtherIp,
    }
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
fn mapped(address: [u8; 4]) -> [u8; 16] {
    (0xffff_0000_0000 | u128::from(u32::from_be_bytes(address))).to_be_bytes()
}

/// Tags that are passed: a provider's, a customer's, and one more. A further one is no IP.
const VLAN_TAGS_MAX: usize = 3;
/// Labels that are passed; networks stack up to about five.
const LABELS_MAX: usize = 16;

// EtherTypes, as in IEEE's list: 802.1Q-in-Q before 802.1ad had a number, MPLS (RFC 5332 section 3)
// and transparent Ethernet bridging (RFC 1701).
const TYPE_QINQ_OLD: u16 = 0x9100;
const TYPE_MPLS: u16 = 0x8847;
const TYPE_MPLS_UPSTREAM: u16 = 0x8848;
const TYPE_BRIDGED: u16 = 0x6558;

// Linux cooked captures (the tcpdump group's descriptions of LINKTYPE_LINUX_SLL and _SLL2): bytes
// of the header and the place of the protocol in it.
const COOKED_BYTES: usize = 16;
const COOKED_TYPE: usize = 14;
const COOKED_2_BYTES: usize = 20;
const COOKED_2_TYPE: usize = 0;

// AF_INET and AF_INET6 as the systems number them that write LINKTYPE_NULL.
const FAMILY_INET: u32 = 2;
const FAMILY_INET6_LINUX: u32 = 10;
const FAMILY_INET6_NETBSD: u32 = 24;
const FAMILY_INET6_FREEBSD: u32 = 28;
const FAMILY_INET6_DARWIN: u32 = 30;

/// RFC 791 section 3.1.
const FRAGMENT_OFFSET: u16 = 0x1fff;
/// Type and length of the option (RFC 2675 section 2).
const JUMBO_PAYLOAD: [u8; 2] = [0xc2, 4];
/// Two NOP, then kind and length of timestamps.
const TIMESTAMPS_ALIGNED: [u8; 4] = [1, 1, 8, 10];

/// The flag that the network's identifier counts (RFC 7348 section 5); others are extensions.
const VXLAN_NETWORK: u8 = 0x08;
const VXLAN_PORT: u16 = 4789;

// GRE's first byte (RFC 2784 section 2, RFC 2890 section 2; routing as in RFC 1701).
const GRE_CHECKSUM: u8 = 0x80;
const GRE_ROUTING: u8 = 0x40;
const GRE_KEY: u8 = 0x20;
const GRE_SEQUENCE: u8 = 0x10;
