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
//!
//! **Between** a link layer and the IP packet of a connection's ends are tags, labels and tunnels,
//! which hold each other in any order: that is why all of them are here. What a number announces is
//! believed where the header that follows agrees. What no number announces (Ethernet behind MPLS labels, VXLAN on a port of somebody's choice, the cookie of
//! L2TPv3) is believed where what is inside reads as IP with a length that fits.
//!
//! Reading: RFC 3032 and 4448 (MPLS), 2784, 2890, 1701 and 2637 (GRE, PPTP), 7348 (VXLAN), 8926
//! (Geneve), 2516 (PPPoE), 1661 (PPP), 2661 and 3931 (L2TP), 5415 (CAPWAP), 3378 (EtherIP),
//! 7510 (MPLS in UDP), 4380 (Teredo), 9300 (LISP), 8300 (NSH), 6325
//! (TRILL); IEEE 802.1Q (PBB), 802.1BR (E-tag), 802.2 (LLC); 3GPP TS 29.281 (GTP-U);
//! draft-massar-v6ops-ayiya, draft-foschiano-erspan, draft-wilson-wrec-wccp-v2, draft-ietf-intarea-gue;
//! Wireshark's dissectors for VN-tag, TZSP, FabricPath and EoIP, which nobody else describes.

use crate::bytes::{array_at, u8_at, u16_at, u32_at};
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
    /// Nothing but what was captured.
    #[inline]
    pub(super) fn none(captured: &[u8]) -> Self {
        Self {
            captured: captured.as_ptr().addr(),
            tunnels: 0,
        }
    }

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
        _ => tagged(ether_type, packet, around, out),
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
        _ => by_protocol(number, packet, around, out),
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
    after(bytes, packet, |inner| match next {
        protocol::TCP => tcp(inner, header, out),
        _ => by_protocol(next, inner, around, out),
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

/// Behind tags, labels and whatever else has an EtherType.
fn tagged(
    mut ether_type: u16,
    mut packet: Snapped<'_>,
    around: Around,
    out: &mut Segment,
) -> Decoded {
    for _ in 0..TAGS_MAX {
        let (header_bytes, type_at) = match ether_type {
            ethernet::TYPE_VLAN | ethernet::TYPE_QINQ | TYPE_QINQ_OLD => (4, 2),
            TYPE_VN_TAG | TYPE_HSR => (6, 4),
            TYPE_E_TAG => (8, 6),
            _ => break,
        };
        if packet.bytes.len() < header_bytes {
            return packet.too_short();
        }
        ether_type = u16_at(packet.bytes, type_at);
        packet = packet.behind(header_bytes);
    }
    match ether_type {
        ethernet::TYPE_IPV4 => ipv4(packet, around, out),
        ethernet::TYPE_IPV6 => ipv6(packet, around, out),
        TYPE_MPLS | TYPE_MPLS_UPSTREAM => labelled(packet, around, out),
        TYPE_PPPOE => after(6, packet, |inner| ppp(inner, around, out)),
        TYPE_PBB => after(4, packet, |inner| bridged(inner, around, out)),
        TYPE_TRILL => {
            let options_bytes = usize::from(u16_at(packet.bytes, 0) >> 6 & 31) * 4;
            after(6 + options_bytes, packet, |inner| {
                bridged(inner, around, out)
            })
        }
        TYPE_NSH => nsh(packet, around, out),
        TYPE_FABRIC_PATH => after(2, packet, |inner| bridged(inner, around, out)),
        // A length: what IEEE 802.3 has in the place of a type.
        0..=LENGTH_MAX => llc(packet, around, out),
        _ => Decoded::NotIp { ether_type },
    }
}

/// Behind the header of IEEE 802.2: SNAP with an EtherType, or the numbers of IP without.
pub(super) fn llc(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    match packet.bytes {
        // The organisation is zero, or what bridges have for types that 802.3 spells differently.
        [0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, a, b, ..] => {
            let ether_type = u16::from_be_bytes([*a, *b]).max(SMALLEST_TYPE);
            by_type(ether_type, packet.behind(8), around, out)
        }
        [6, 6, 3, ..] => ipv4(packet.behind(3), around, out),
        [0xaa | 6, ..] if packet.bytes.len() < 8 && packet.missing > 0 => Decoded::Cut,
        [destination, ..] => Decoded::NotIp {
            ether_type: u16::from(*destination),
        },
        [] => packet.too_short(),
    }
}

/// Behind PPP's numbers (RFC 1661 section 2), compressed or not (RFC 1662).
pub(super) fn ppp(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let packet = match packet.bytes {
        [0xff, 3, ..] => packet.behind(2),
        _ => packet,
    };
    let (number, packet) = match packet.bytes {
        [0xff] => return packet.too_short(),
        [one, ..] if one & 1 == 1 => (u16::from(*one), packet.behind(1)),
        [a, b, ..] => (u16::from_be_bytes([*a, *b]), packet.behind(2)),
        _ => return packet.too_short(),
    };
    match number {
        PPP_IPV4 => ipv4(packet, around, out),
        PPP_IPV6 => ipv6(packet, around, out),
        PPP_MPLS => labelled(packet, around, out),
        // Flags, FCS, number of the MAC type, then Ethernet (RFC 3518 section 4.2).
        PPP_BRIDGED if packet.bytes.len() < 2 => packet.too_short(),
        PPP_BRIDGED if u8_at(packet.bytes, 1) == 1 => {
            after(2, packet, |inner| bridged(inner, around, out))
        }
        _ => Decoded::NotIp {
            ether_type: number.min(SMALLEST_TYPE - 1),
        },
    }
}

/// What is behind the headers of a protocol of IP, other than TCP.
pub(super) fn by_protocol(
    number: u8,
    packet: Snapped<'_>,
    around: Around,
    out: &mut Segment,
) -> Decoded {
    let other = Decoded::OtherIp { protocol: number };
    let Some(inside) = around.deeper() else {
        return if number == protocol::UDP {
            Decoded::Udp
        } else {
            other
        };
    };
    match number {
        protocol::UDP => udp(packet, inside, out),
        protocol::GRE => gre(packet, inside, out),
        protocol::IPV4 | IP_IN_IP => ipv4(packet, inside, out),
        protocol::IPV6 => ipv6(packet, inside, out),
        ETHERNET => frame(packet, inside, out),
        MPLS => labelled(packet, inside, out),
        ETHER_IP => match packet.bytes {
            [0x30, 0, ..] => frame(packet.behind(2), inside, out),
            [0x30] | [] => packet.too_short(),
            _ => other,
        },
        // The session's number, which is zero in control messages.
        L2TP => match packet.head::<4>() {
            Ok([0, 0, 0, 0]) => other,
            Ok(_) => l2tp_3(packet.behind(4), inside, out).unwrap_or(other),
            Err(short) => short,
        },
        _ => other,
    }
}

/// Behind MPLS labels (RFC 3032 section 2.1). What is below them they do not say: IP, or Ethernet
/// with or without a control word (RFC 4448 section 4.6).
fn labelled(mut packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    for _ in 0..LABELS_MAX {
        let &[_, _, bottom, _] = match packet.head::<4>() {
            Ok(label) => label,
            Err(short) => return short,
        };
        packet = packet.behind(4);
        if bottom & 1 == 1 {
            return below_labels(packet, around, out);
        }
    }
    Decoded::NotIp {
        ether_type: TYPE_MPLS,
    }
}

fn below_labels(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let Some(inside) = around.deeper() else {
        return by_version(packet, around, out);
    };
    let unread = Decoded::NotIp {
        ether_type: TYPE_MPLS,
    };
    if packet.missing > 0 && packet.bytes.len() < 4 + TOLD_BY_BYTES {
        return Decoded::Cut;
    }
    match packet.bytes.first().map(|byte| byte >> 4) {
        _ if is_frame_with_ip(packet) => frame(packet, inside, out),
        Some(0) if is_frame_with_ip(packet.behind(4)) => frame(packet.behind(4), inside, out),
        Some(4 | 6) => by_version(packet, around, out),
        Some(_) => unread,
        None => packet.too_short(),
    }
}

/// Ethernet in Ethernet.
fn bridged(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    match around.deeper() {
        Some(inside) => frame(packet, inside, out),
        None => Decoded::NotIp { ether_type: 0 },
    }
}

/// Behind a network service header (RFC 8300 section 2).
fn nsh(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let Ok(&[_, words, _, next]) = packet.head() else {
        return packet.too_short();
    };
    let unread = Decoded::NotIp {
        ether_type: TYPE_NSH,
    };
    let header_bytes = usize::from(words & 0x3f) * 4;
    if header_bytes < 8 {
        return unread;
    }
    after(header_bytes, packet, |inner| {
        match (next, around.deeper()) {
            (1, Some(inside)) => ipv4(inner, inside, out),
            (2, Some(inside)) => ipv6(inner, inside, out),
            (3, Some(inside)) => frame(inner, inside, out),
            (5, Some(inside)) => labelled(inner, inside, out),
            _ => unread,
        }
    })
}

/// What GRE carries.
#[inline(never)]
fn gre(packet: Snapped<'_>, inside: Around, out: &mut Segment) -> Decoded {
    let other = Decoded::OtherIp {
        protocol: protocol::GRE,
    };
    let Ok(&[flags, version, a, b]) = packet.head() else {
        return packet.too_short();
    };
    let ether_type = u16::from_be_bytes([a, b]);
    if version & 7 == 1 {
        return gre_1(ether_type, flags, version, packet, inside, out).unwrap_or(other);
    }
    if version & 7 != 0 {
        return other;
    }
    let mut header_bytes = 4;
    header_bytes += if flags & (GRE_CHECKSUM | GRE_ROUTING) != 0 {
        4
    } else {
        0
    };
    header_bytes += if flags & GRE_KEY != 0 { 4 } else { 0 };
    header_bytes += if flags & GRE_SEQUENCE != 0 { 4 } else { 0 };
    if flags & GRE_ROUTING != 0 {
        // Entries of a family, an offset and a length each, up to one without (RFC 1701).
        loop {
            let entry = packet.behind(header_bytes);
            let Ok(&[f0, f1, _, length]) = entry.head() else {
                return entry.too_short();
            };
            header_bytes += 4 + usize::from(length);
            if [f0, f1, length] == [0; 3] {
                break;
            }
        }
    }
    if packet.bytes.len() < header_bytes {
        return packet.too_short();
    }
    let inner = packet.behind(header_bytes);
    let found = match ether_type {
        TYPE_BRIDGED => frame(inner, inside, out),
        // Without a sequence number it is the first version, which has no header.
        TYPE_ERSPAN if flags & GRE_SEQUENCE == 0 => frame(inner, inside, out),
        TYPE_ERSPAN => after(8, inner, |inner| frame(inner, inside, out)),
        TYPE_ERSPAN_3 => erspan_3(inner, inside, out),
        // The second version of WCCP has four bytes before the packet, the first has none.
        TYPE_WCCP if is_ip(inner) => by_version(inner, inside, out),
        TYPE_WCCP => after(4, inner, |inner| by_version(inner, inside, out)),
        ARUBA_FIRST..=ARUBA_LAST => ieee_802_11(inner, inside, out),
        _ => by_type(ether_type, inner, inside, out),
    };
    match found {
        Decoded::NotIp { .. } if !matches!(ether_type, TYPE_BRIDGED | TYPE_ERSPAN) => other,
        found => found,
    }
}

/// GRE of version 1: PPTP's, with PPP in it, and EoIP's, with Ethernet.
fn gre_1(
    ether_type: u16,
    flags: u8,
    version: u8,
    packet: Snapped<'_>,
    inside: Around,
    out: &mut Segment,
) -> Option<Decoded> {
    match ether_type {
        TYPE_PPP => {
            let fields = [flags & GRE_SEQUENCE, version & PPTP_ACKNOWLEDGMENT];
            let present = fields.iter().filter(|&&field| field != 0).count();
            let found = after(8 + 4 * present, packet, |inner| ppp(inner, inside, out));
            // An acknowledgment alone carries nothing.
            (!matches!(found, Decoded::NotIp { .. } | Decoded::Malformed)).then_some(found)
        }
        TYPE_EOIP => Some(after(8, packet, |inner| frame(inner, inside, out))),
        _ => None,
    }
}

/// The third version of ERSPAN: 12 bytes, and 8 more where the last bit says so.
fn erspan_3(packet: Snapped<'_>, inside: Around, out: &mut Segment) -> Decoded {
    let Ok(&head) = packet.head::<12>() else {
        return packet.too_short();
    };
    let header_bytes = if head[11] & 1 == 1 { 20 } else { 12 };
    // What was mirrored: a frame, or IP.
    match head[10] >> 2 & 31 {
        0 => after(header_bytes, packet, |inner| frame(inner, inside, out)),
        2 => after(header_bytes, packet, |inner| by_version(inner, inside, out)),
        _ => Decoded::OtherIp {
            protocol: protocol::GRE,
        },
    }
}

/// What UDP carries: a tunnel by its port, or VXLAN by its looks.
#[inline(never)]
fn udp(packet: Snapped<'_>, inside: Around, out: &mut Segment) -> Decoded {
    let Ok(head) = packet.head::<UDP_BYTES>() else {
        return Decoded::Udp;
    };
    let payload = packet.behind(UDP_BYTES);
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let found = by_port(port(2), payload, inside, out)
        .or_else(|| by_port(port(0), payload, inside, out))
        .or_else(|| any_port(payload, inside, out));
    match found {
        // What reads so badly is another protocol on the tunnel's port.
        None | Some(Decoded::Malformed) => Decoded::Udp,
        Some(found) => found,
    }
}

/// VXLAN on a port that is not its own.
#[inline]
fn any_port(payload: Snapped<'_>, inside: Around, out: &mut Segment) -> Option<Decoded> {
    let head = payload
        .bytes
        .first_chunk()
        .map(|head| u64::from_be_bytes(*head))?;
    let network = u64::from(VXLAN_NETWORK) << 56;
    // Flag and network, zeros around them.
    (head & 0xffff_ffff_0000_00ff == network && is_frame_with_ip(payload.behind(8)))
        .then(|| frame(payload.behind(8), inside, out))
}

fn by_port(port: u16, payload: Snapped<'_>, inside: Around, out: &mut Segment) -> Option<Decoded> {
    let head: [u8; 8] = *payload.bytes.first_chunk()?;
    match port {
        VXLAN_PORT if head[0] & VXLAN_NETWORK != 0 => Some(frame(payload.behind(8), inside, out)),
        VXLAN_GPE_PORT if head[0] & 0xf0 == 0 && head[0] & VXLAN_GPE_NEXT != 0 => {
            let inner = payload.behind(8);
            match head[3] {
                1 => Some(ipv4(inner, inside, out)),
                2 => Some(ipv6(inner, inside, out)),
                3 => Some(frame(inner, inside, out)),
                4 => Some(nsh(inner, inside, out)),
                _ => None,
            }
        }
        GENEVE_PORT if head[0] >> 6 == 0 => {
            let header_bytes = 8 + usize::from(head[0] & 0x3f) * 4;
            let ether_type = u16::from_be_bytes([head[2], head[3]]);
            Some(after(header_bytes, payload, |inner| match ether_type {
                TYPE_BRIDGED => frame(inner, inside, out),
                _ => by_type(ether_type.max(SMALLEST_TYPE), inner, inside, out),
            }))
        }
        GTP_U_PORT if head[0] & 0xf0 == 0x30 && head[1] == GTP_U_PACKET => {
            gtp_u(payload, inside, out)
        }
        TZSP_PORT if head[0] == 1 && head[1] <= 1 => tzsp(payload, inside, out),
        CAPWAP_PORT => capwap(payload, inside, out),
        AYIYA_PORT if head[2] & 15 == 1 => {
            let identity_bytes = 1_usize << (head[0] >> 4);
            let header_bytes = 8 + identity_bytes + usize::from(head[1] >> 4) * 4;
            match head[3] {
                protocol::IPV4 => Some(after(header_bytes, payload, |p| ipv4(p, inside, out))),
                protocol::IPV6 => Some(after(header_bytes, payload, |p| ipv6(p, inside, out))),
                _ => None,
            }
        }
        L2TP_PORT => l2tp(payload, inside, out),
        MPLS_PORT => Some(labelled(payload, inside, out)),
        GUE_PORT => match head[0] >> 6 {
            0 if head[0] & 0x20 == 0 => {
                let header_bytes = 4 + usize::from(head[0] & 31) * 4;
                Some(after(header_bytes, payload, |inner| match head[1] {
                    protocol::IPV4 => ipv4(inner, inside, out),
                    protocol::IPV6 => ipv6(inner, inside, out),
                    _ => Decoded::Udp,
                }))
            }
            // IP itself: its version begins with this bit.
            1 => Some(by_version(payload, inside, out)),
            _ => None,
        },
        TEREDO_PORT => teredo(payload, inside, out),
        LISP_PORT if is_ip(payload.behind(8)) => Some(by_version(payload.behind(8), inside, out)),
        _ => None,
    }
}

/// GTP-U: options of four bytes together, then extension headers (3GPP TS 29.281 section 5.1).
fn gtp_u(payload: Snapped<'_>, inside: Around, out: &mut Segment) -> Option<Decoded> {
    let mut header_bytes = 8;
    if u8_at(payload.bytes, 0) & 7 != 0 {
        let mut next = u8_at(payload.bytes, 11);
        let extended = u8_at(payload.bytes, 0) & 4 != 0;
        header_bytes = 12;
        while extended && next != 0 {
            let Some(&[words, ..]) = payload
                .bytes
                .get(header_bytes..)
                .and_then(<[u8]>::first_chunk::<4>)
            else {
                return Some(payload.too_short());
            };
            if words == 0 {
                return None;
            }
            header_bytes += usize::from(words) * 4;
            if payload.bytes.len() < header_bytes {
                return Some(payload.too_short());
            }
            next = u8_at(payload.bytes, header_bytes - 1);
        }
    }
    let inner = payload.behind(header_bytes);
    if is_frame_with_ip(inner) {
        return Some(frame(inner, inside, out));
    }
    is_ip(inner).then(|| by_version(inner, inside, out))
}

/// TZSP: what is in it by number, then tagged fields.
fn tzsp(payload: Snapped<'_>, inside: Around, out: &mut Segment) -> Option<Decoded> {
    let mut at = 4;
    loop {
        match payload.bytes.get(at) {
            None => return Some(payload.too_short()),
            Some(0) => at += 1,
            Some(1) => break,
            Some(_) => at += 2 + usize::from(u8_at(payload.bytes, at + 1)),
        }
    }
    let inner = payload.behind(at + 1);
    match u16_at(payload.bytes, 2) {
        1 => Some(frame(inner, inside, out)),
        18 => Some(ieee_802_11(inner, inside, out)),
        119 => Some(prism(inner, inside, out)),
        _ => None,
    }
}

/// CAPWAP's data (RFC 5415 section 4.3): a frame as on a wire, or as in the air.
fn capwap(payload: Snapped<'_>, inside: Around, out: &mut Segment) -> Option<Decoded> {
    let &[preamble, length, binding, flags, _, _, offset, reserved] =
        payload.bytes.first_chunk()?;
    match preamble {
        0 => {}
        // DTLS.
        1 => return Some(Decoded::Encrypted),
        _ => return None,
    }
    // A later fragment of the tunnel's own has no header to read.
    if flags & CAPWAP_FRAGMENT != 0 && (offset, reserved & 0xf8) != (0, 0) {
        return None;
    }
    let header_bytes = usize::from(length >> 3) * 4;
    if header_bytes < 8 {
        return None;
    }
    let native = binding & 1 == 1;
    Some(after(header_bytes, payload, |inner| match inner.bytes {
        _ if !native => frame(inner, inside, out),
        // Some write the first two bytes of 802.11 in the other order.
        [a, b, ..] if !is_data(*a) && is_data(*b) => ieee_802_11_swapped(inner, inside, out),
        _ => ieee_802_11(inner, inside, out),
    }))
}

/// L2TP's data, of version 2 with PPP in it (RFC 2661 section 3.1) or 3.
fn l2tp(payload: Snapped<'_>, inside: Around, out: &mut Segment) -> Option<Decoded> {
    let flags = u16_at(payload.bytes, 0);
    if flags & L2TP_CONTROL != 0 {
        return None;
    }
    match flags & 15 {
        2 => {
            let mut header_bytes = 6;
            header_bytes += if flags & L2TP_LENGTH != 0 { 2 } else { 0 };
            header_bytes += if flags & L2TP_SEQUENCE != 0 { 4 } else { 0 };
            if flags & L2TP_OFFSET != 0 {
                header_bytes += 2 + usize::from(u16_at(payload.bytes, header_bytes));
            }
            Some(after(header_bytes, payload, |inner| {
                ppp(inner, inside, out)
            }))
        }
        3 => l2tp_3(payload.behind(8), inside, out),
        _ => None,
    }
}

/// Behind the session's number of L2TPv3: a cookie and a sublayer of lengths that only the ends
/// know (RFC 3931 section 4.1).
fn l2tp_3(packet: Snapped<'_>, inside: Around, out: &mut Segment) -> Option<Decoded> {
    if packet.missing > 0 && packet.bytes.len() < 12 + TOLD_BY_BYTES {
        return Some(Decoded::Cut);
    }
    for unknown in [0, 4, 8, 12] {
        let inner = packet.behind(unknown);
        if is_frame_with_ip(inner) {
            return Some(frame(inner, inside, out));
        }
        if let [0xff, 3, 0, 0x21 | 0x57, ..] = inner.bytes {
            return Some(ppp(inner, inside, out));
        }
    }
    None
}

/// Teredo: indications before an IPv6 packet (RFC 4380 section 5.1.1).
fn teredo(payload: Snapped<'_>, inside: Around, out: &mut Segment) -> Option<Decoded> {
    let mut inner = payload;
    if let [0, 1, client, value, ..] = inner.bytes {
        inner = inner.behind(13 + usize::from(*client) + usize::from(*value));
    }
    if let [0, 0, ..] = inner.bytes {
        inner = inner.behind(8);
    }
    (u8_at(inner.bytes, 0) >> 4 == 6).then(|| ipv6(inner, inside, out))
}

/// What a header of `bytes` is followed by.
pub(super) fn after(
    bytes: usize,
    packet: Snapped<'_>,
    then: impl FnOnce(Snapped<'_>) -> Decoded,
) -> Decoded {
    if packet.bytes.len() < bytes {
        return packet.too_short();
    }
    then(packet.behind(bytes))
}

fn is_ip(packet: Snapped<'_>) -> bool {
    match *packet.bytes {
        [first, _, a, b, ..] if first >> 4 == 4 => {
            let stated = usize::from(u16::from_be_bytes([a, b]));
            first & 15 >= 5 && (20..=packet.total()).contains(&stated)
        }
        [first, _, _, _, a, b, ..] if first >> 4 == 6 => {
            let stated = usize::from(u16::from_be_bytes([a, b]));
            stated > 0 && stated + 40 <= packet.total()
        }
        _ => false,
    }
}

/// Whether it reads as Ethernet with IP in it, behind a tag or not.
fn is_frame_with_ip(packet: Snapped<'_>) -> bool {
    let at = match u16_at(packet.bytes, 12) {
        ethernet::TYPE_VLAN | ethernet::TYPE_QINQ => 16,
        _ => 12,
    };
    let version = match u16_at(packet.bytes, at) {
        ethernet::TYPE_IPV4 => 4,
        ethernet::TYPE_IPV6 => 6,
        _ => return false,
    };
    let inner = packet.behind(at + 2);
    u8_at(inner.bytes, 0) >> 4 == version && is_ip(inner)
}

/// A frame of IEEE 802.11.
pub(super) fn ieee_802_11(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    ieee_802_11_of(packet, u16_at(packet.bytes, 0), false, around, out)
}

/// The same with the first two bytes in the other order.
pub(super) fn ieee_802_11_swapped(
    packet: Snapped<'_>,
    around: Around,
    out: &mut Segment,
) -> Decoded {
    ieee_802_11_of(
        packet,
        u16_at(packet.bytes, 0).swap_bytes(),
        false,
        around,
        out,
    )
}

/// Whether this first byte begins a frame with data.
pub(super) const fn is_data(control: u8) -> bool {
    control & 0x0f == WLAN_DATA
}

/// What a frame in the air carries; `control` is its first two bytes.
pub(super) fn ieee_802_11_of(
    packet: Snapped<'_>,
    control: u16,
    padded: bool,
    around: Around,
    out: &mut Segment,
) -> Decoded {
    let [kind, flags] = control.to_be_bytes();
    if packet.bytes.len() < 2 {
        return packet.too_short();
    }
    // Management, control, or no data in it.
    if !is_data(kind) || kind & WLAN_EMPTY != 0 {
        return Decoded::NotIp { ether_type: 0 };
    }
    if flags & WLAN_PROTECTED != 0 {
        return Decoded::Encrypted;
    }
    let mut header_bytes: usize = 24;
    header_bytes += if flags & WLAN_BRIDGED == WLAN_BRIDGED {
        6
    } else {
        0
    };
    let quality_at = header_bytes;
    let quality = kind & WLAN_QUALITY != 0;
    header_bytes += if quality { 2 } else { 0 };
    header_bytes += if quality && flags & WLAN_ORDER != 0 {
        4
    } else {
        0
    };
    if padded {
        header_bytes = header_bytes.next_multiple_of(4);
    }
    let several = quality && u8_at(packet.bytes, quality_at) & WLAN_SEVERAL != 0;
    // Of several packets in one frame the first: two addresses and its length are before it.
    header_bytes += if several { 14 } else { 0 };
    let later = u8_at(packet.bytes, 22) & 15 != 0;
    after(header_bytes, packet, |inner| match inner.bytes {
        // A later fragment of the frame. Some bridges put other numbers there.
        [a, b, ..] if later && (*a, *b) != (0xaa, 0xaa) => Decoded::NotIp { ether_type: 0 },
        _ => llc(inner, around, out),
    })
}

/// Behind the header of a Prism card, or of AVS, which came in its place.
pub(super) fn prism(packet: Snapped<'_>, around: Around, out: &mut Segment) -> Decoded {
    let header_bytes = match u32_at(packet.bytes, 0) {
        code if code >> 12 == AVS_VERSION => u32_at(packet.bytes, 4) as usize,
        _ => 144,
    };
    after(header_bytes.max(8), packet, |inner| {
        ieee_802_11(inner, around, out)
    })
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

/// What [`is_frame_with_ip`] looks at.
const TOLD_BY_BYTES: usize = 24;
/// Longest payload of a frame that states its length (IEEE 802.3 section 3.2.6).
const LENGTH_MAX: u16 = 1500;
/// Numbers below are lengths in Ethernet.
const SMALLEST_TYPE: u16 = 1536;
/// Tags that are passed: a provider's, a customer's, and one more. A further one is no IP.
const TAGS_MAX: usize = 3;
/// Labels that are passed; networks stack up to about five.
const LABELS_MAX: usize = 16;

// EtherTypes, as in IEEE's list: 802.1Q-in-Q before 802.1ad had a number, MPLS (RFC 5332 section 3)
// and transparent Ethernet bridging (RFC 1701); ERSPAN, WCCP, EoIP and Aruba's are their makers'.
const TYPE_QINQ_OLD: u16 = 0x9100;
const TYPE_MPLS: u16 = 0x8847;
const TYPE_MPLS_UPSTREAM: u16 = 0x8848;
const TYPE_BRIDGED: u16 = 0x6558;
const TYPE_PPP: u16 = 0x880b;
const TYPE_PPPOE: u16 = 0x8864;
const TYPE_PBB: u16 = 0x88e7;
const TYPE_VN_TAG: u16 = 0x8926;
const TYPE_E_TAG: u16 = 0x893f;
const TYPE_HSR: u16 = 0x892f;
const TYPE_NSH: u16 = 0x894f;
const TYPE_FABRIC_PATH: u16 = 0x8903;
const TYPE_TRILL: u16 = 0x22f3;
const TYPE_ERSPAN: u16 = 0x88be;
const TYPE_ERSPAN_3: u16 = 0x22eb;
const TYPE_WCCP: u16 = 0x883e;
const TYPE_EOIP: u16 = 0x6400;
const ARUBA_FIRST: u16 = 0x8200;
const ARUBA_LAST: u16 = 0x83ff;

// PPP's numbers (IANA's "PPP DLL Protocol Numbers").
const PPP_IPV4: u16 = 0x21;
const PPP_IPV6: u16 = 0x57;
const PPP_MPLS: u16 = 0x0281;
const PPP_BRIDGED: u16 = 0x31;

// Protocols of IP (IANA's "Protocol Numbers").
const IP_IN_IP: u8 = 94;
const ETHER_IP: u8 = 97;
const L2TP: u8 = 115;
const MPLS: u8 = 137;
const ETHERNET: u8 = 143;

const UDP_BYTES: usize = 8;

// Ports (IANA's "Service Name and Transport Protocol Port Number Registry").
const L2TP_PORT: u16 = 1701;
const GTP_U_PORT: u16 = 2152;
const TEREDO_PORT: u16 = 3544;
const LISP_PORT: u16 = 4341;
const VXLAN_PORT: u16 = 4789;
const VXLAN_GPE_PORT: u16 = 4790;
const AYIYA_PORT: u16 = 5072;
const CAPWAP_PORT: u16 = 5247;
const GUE_PORT: u16 = 6080;
const GENEVE_PORT: u16 = 6081;
const MPLS_PORT: u16 = 6635;
const TZSP_PORT: u16 = 37_008;

/// The flag that the network's identifier counts (RFC 7348 section 5); others are extensions.
const VXLAN_NETWORK: u8 = 0x08;
/// The flag that the next protocol counts (draft-ietf-nvo3-vxlan-gpe section 3.1).
const VXLAN_GPE_NEXT: u8 = 0x04;
/// G-PDU.
const GTP_U_PACKET: u8 = 0xff;
const CAPWAP_FRAGMENT: u8 = 0x80;

// L2TP's first two bytes (RFC 2661 section 3.1).
const L2TP_CONTROL: u16 = 0x8000;
const L2TP_LENGTH: u16 = 0x4000;
const L2TP_SEQUENCE: u16 = 0x0800;
const L2TP_OFFSET: u16 = 0x0200;

// GRE's first byte (RFC 2784 section 2, RFC 2890 section 2; routing as in RFC 1701), and a bit of
// its second in PPTP (RFC 2637 section 4.1).
const GRE_CHECKSUM: u8 = 0x80;
const GRE_ROUTING: u8 = 0x40;
const GRE_KEY: u8 = 0x20;
const GRE_SEQUENCE: u8 = 0x10;
const PPTP_ACKNOWLEDGMENT: u8 = 0x80;

// Frame control (IEEE 802.11 section 9.2.4.1): version 0 and type 2, subtypes, the second byte.
const WLAN_DATA: u8 = 0x08;
const WLAN_EMPTY: u8 = 0x40;
const WLAN_QUALITY: u8 = 0x80;
const WLAN_BRIDGED: u8 = 0x03;
const WLAN_PROTECTED: u8 = 0x40;
const WLAN_ORDER: u8 = 0x80;
/// An A-MSDU (section 9.2.4.5.9).
const WLAN_SEVERAL: u8 = 0x80;
/// Upper bits of the first word of AVS's header.
const AVS_VERSION: u32 = 0x0008_0211;
