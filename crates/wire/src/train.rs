//! Super-frames: what one carries, and how to cut it as the wire would.
//!
//! With segmentation offload the kernel hands over up to 64 KiB of one flow as one frame (GSO),
//! with a [`VirtioNetHdr`] that says how the wire would carry it. [`SuperFrame`] reads such a frame
//! once and remembers only offsets, so that a train stays one object while a link acts on each of
//! its segments; [`SuperFrame::cut`] makes a frame of any run of segments, itself a super-frame
//! where it holds more than one. The payload is never copied: a piece is new headers and a range
//! of the old frame.
//!
//! Edits are those of a segmentation engine: lengths, IPv4 identification, TCP sequence number;
//! FIN and PSH stay with the last segment, CWR with the first. The checksum of a piece is partial
//! (CHECKSUM_PARTIAL): its field holds the sum of the piece's pseudo-header, and the virtio header
//! asks for the rest, which [`finish_checksum`] does in software.
//!
//! Cut are TCP over IPv4 and IPv6 and UDP_L4, with VLAN tags and extension headers. Everything else
//! (UFO, fragments, routing headers, jumbograms, headers that contradict themselves, more than
//! [`HEADER_BYTES_MAX`] of headers) counts as one segment and passes as it came. With AccECN (RFC
//! 9768) CWR is a bit of a counter that every segment repeats; pieces other than the first lose it.
//!
//! Reading: Linux net/ipv4/tcp_offload.c (tcp_gso_segment), net/ipv4/udp_offload.c
//! (__udp_gso_segment), net/ipv4/af_inet.c (inet_gso_segment), net/ipv6/ip6_offload.c
//! (ipv6_gso_segment), include/linux/virtio_net.h (virtio_net_hdr_to_skb).

use std::fmt;
use std::ops::Range;

use crate::bytes::{array_at, put_u16, put_u32, u16_at, u32_at};
use crate::virtio::{self, VirtioNetHdr};
use crate::{checksum, ethernet, ipv4, ipv6, protocol, tcp, udp};

pub use crate::ethernet::{FCS_BYTES, FRAME_BYTES_MIN, GAP_BYTES, PREAMBLE_BYTES, wire_bytes};

/// What a frame is made of: offsets and counts, no bytes. It describes the frame that it was parsed
/// from and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperFrame {
    vnet: VirtioNetHdr,
    header_bytes: u16,
    frame_bytes: u32,
    payload_bytes: u32,
    flow: u32,
    l3: u16,
    l4: u16,
    segments: u16,
    protocol: Protocol,
    network: Network,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// TCP, its header whole.
    Tcp,
    /// UDP, its header whole.
    Udp,
    /// ICMP or ICMPv6.
    Icmp,
    /// ARP.
    Arp,
    /// Another protocol over IP, a fragment, or a TCP or UDP header that is not whole.
    OtherIp,
    /// Neither IP nor ARP, or an IP header that is not whole.
    Other,
}

/// The network layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Neither.
    Other,
}

/// A piece of a super-frame, ready to be sent by gather I/O: the ten bytes of [`Self::vnet`], then
/// [`Self::headers`], then the [`Self::payload`] range of the original frame. Made once and used
/// for one cut after the other.
#[derive(Clone)]
pub struct CutBuf {
    vnet: VirtioNetHdr,
    headers: [u8; HEADER_BYTES_MAX],
    header_bytes: usize,
    payload: Range<usize>,
}

/// Why a cut is refused. Both are mistakes of the caller: a parsed frame can always be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutError {
    /// The range is empty or reaches past the last segment.
    NoSuchSegments,
    /// The bytes are not the frame that was parsed: their length differs.
    AnotherFrame,
}

impl SuperFrame {
    /// Reads a frame, which begins at its Ethernet header. Never fails: what cannot be cut is one
    /// segment.
    pub fn parse(hdr: VirtioNetHdr, frame: &[u8]) -> Self {
        let layers = Layers::of(frame);
        let frame_bytes = saturating_u32(frame.len());
        let mut parsed = Self {
            vnet: hdr,
            header_bytes: saturating_u16(layers.header_bytes),
            frame_bytes,
            payload_bytes: saturating_u32(layers.end.saturating_sub(layers.header_bytes)),
            flow: layers.flow(frame),
            l3: saturating_u16(layers.l3),
            l4: saturating_u16(layers.l4),
            segments: 1,
            protocol: layers.protocol,
            network: layers.network,
        };
        if layers.is_cuttable(hdr, frame) {
            parsed.segments =
                saturating_u16(parsed.payload_bytes.div_ceil(u32::from(hdr.gso_size)));
        }
        parsed
    }

    /// Produces the frame of the segments `first..first + count`.
    ///
    /// All segments: the frame as it came (its virtio header, no new header, the whole range).
    /// Otherwise new headers of [`Self::header_len`] bytes and the segments' payload. On an error
    /// `out` is as it was.
    ///
    /// # Errors
    /// [`CutError`]: the range does not lie within the segments, or `frame` is not the one that was
    /// parsed.
    pub fn cut(
        &self,
        frame: &[u8],
        first: u16,
        count: u16,
        out: &mut CutBuf,
    ) -> Result<(), CutError> {
        if saturating_u32(frame.len()) != self.frame_bytes {
            return Err(CutError::AnotherFrame);
        }
        if count == self.segments && count > 0 && first == 0 {
            out.vnet = self.vnet;
            out.header_bytes = 0;
            out.payload = 0..frame.len();
            return Ok(());
        }
        let header = frame.get(..usize::from(self.header_bytes).min(frame.len()));
        self.cut_over(header.unwrap_or_default(), first, count, out)
    }

    /// As [`Self::cut`] where the headers were changed on the way: `header` is the beginning of the
    /// frame as it is now, at least [`Self::header_len`] bytes of a frame of several segments and no
    /// more than [`HEADER_BYTES_MAX`]; addresses and such may differ from the parsed frame's, lengths
    /// may not. New headers are made even of the whole frame, so that they can be changed further.
    ///
    /// # Errors
    /// [`CutError`]: the range does not lie within the segments, or `header` cannot be the frame's.
    pub fn cut_over(
        &self,
        header: &[u8],
        first: u16,
        count: u16,
        out: &mut CutBuf,
    ) -> Result<(), CutError> {
        if count == 0 || u32::from(first) + u32::from(count) > u32::from(self.segments) {
            return Err(CutError::NoSuchSegments);
        }
        let frame_bytes = usize::try_from(self.frame_bytes).unwrap_or(usize::MAX);
        let header_bytes = if count == self.segments {
            header.len()
        } else {
            usize::from(self.header_bytes)
        };
        let header = header.get(..header_bytes).ok_or(CutError::AnotherFrame)?;
        if header_bytes > frame_bytes {
            return Err(CutError::AnotherFrame);
        }
        let room = out
            .headers
            .get_mut(..header_bytes)
            .ok_or(CutError::AnotherFrame)?;
        room.copy_from_slice(header);
        if count == self.segments {
            out.vnet = self.vnet;
            out.header_bytes = header_bytes;
            out.payload = header_bytes..frame_bytes;
            return Ok(());
        }
        let segment = usize::from(self.vnet.gso_size);
        let start = header_bytes + usize::from(first) * segment;
        let end = (start + usize::from(count) * segment).min(frame_bytes);
        let piece = Piece {
            first,
            count,
            payload_bytes: end - start,
        };
        self.edit(room, piece);
        out.vnet = self.vnet_of(room, piece);
        out.header_bytes = header_bytes;
        out.payload = start..end;
        Ok(())
    }

    /// Bytes at the beginning of a frame that are worth a copy when headers are to be changed.
    pub fn changeable_bytes(&self) -> usize {
        let frame = usize::try_from(self.frame_bytes).unwrap_or(usize::MAX);
        let least = usize::from(self.header_bytes).max(CHANGEABLE_BYTES);
        frame.min(least).min(HEADER_BYTES_MAX)
    }

    /// Segments that the wire would carry; at least one.
    pub const fn segments(&self) -> u16 {
        self.segments
    }

    /// Bytes of the Ethernet frame of segment `k`, without check sequence and padding; zero past
    /// the last.
    pub const fn segment_frame_bytes(&self, k: u16) -> u32 {
        if k >= self.segments {
            0
        } else if k + 1 < self.segments {
            self.segment_bytes_full()
        } else {
            self.segment_bytes_last()
        }
    }

    /// Bytes of the Ethernet frame of each segment but the last; of a frame that is one segment,
    /// the frame's.
    pub const fn segment_bytes_full(&self) -> u32 {
        if self.segments == 1 {
            self.frame_bytes
        } else {
            self.header_bytes as u32 + self.vnet.gso_size as u32
        }
    }

    /// Bytes of the Ethernet frame of the last segment.
    pub const fn segment_bytes_last(&self) -> u32 {
        let before = (self.segments as u32 - 1) * self.vnet.gso_size as u32;
        self.frame_bytes - before
    }

    /// Bytes that the whole train occupies on the medium, overhead and padding included.
    pub const fn train_wire_bytes(&self) -> u64 {
        let full = wire_bytes(self.segment_bytes_full()) as u64;
        (self.segments as u64 - 1) * full + wire_bytes(self.segment_bytes_last()) as u64
    }

    /// Bytes before the payload: Ethernet, tags, IP and TCP or UDP, as far as they are whole.
    pub const fn header_len(&self) -> u32 {
        self.header_bytes as u32
    }

    /// Payload bytes of the whole frame, without the padding of a short one.
    pub const fn payload_len(&self) -> u32 {
        self.payload_bytes
    }

    /// Bytes of the whole frame.
    pub const fn frame_len(&self) -> u32 {
        self.frame_bytes
    }

    /// The virtio header that came with the frame.
    pub const fn vnet(&self) -> VirtioNetHdr {
        self.vnet
    }

    /// Hash of the flow: protocol, addresses and, where the frame is no fragment, ports. One
    /// direction of a connection has one value, the other most likely another; without IP it is the
    /// hash of the Ethernet header. The same in every run, so not to be relied on against a peer
    /// who picks colliding ports.
    pub const fn flow(&self) -> u32 {
        self.flow
    }

    /// What the frame carries.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The network layer.
    pub const fn network(&self) -> Network {
        self.network
    }

    /// Where the network layer begins, bytes from the frame's start.
    pub const fn network_offset(&self) -> usize {
        self.l3 as usize
    }

    /// Where the transport layer begins, bytes from the frame's start; the end of the headers when
    /// there is none.
    pub const fn transport_offset(&self) -> usize {
        self.l4 as usize
    }

    /// The ECN bits in `bytes`, the frame's: 0 not ECN-capable, 1 and 2 capable, 3 congestion
    /// experienced (RFC 3168 section 5); 0 without IP.
    pub fn ecn(&self, bytes: &[u8]) -> u8 {
        let ip = bytes.get(self.network_offset()..).unwrap_or_default();
        let shift = match self.network {
            Network::Ipv4 => 0,
            Network::Ipv6 => 4,
            Network::Other => return 0,
        };
        u8::try_from((u16_at(ip, 0) >> shift) & 3).unwrap_or(0)
    }

    /// Sets Congestion Experienced in `bytes`, the frame or the headers of a piece of it, where
    /// the sender declared itself ECN-capable (RFC 3168 section 5). False when it did not, and the
    /// link should drop instead.
    pub fn mark_ce(&self, bytes: &mut [u8]) -> bool {
        let ip = bytes.get_mut(self.network_offset()..).unwrap_or_default();
        let word = u16_at(ip, 0);
        // The ECN bits stand at the end of IPv4's first word, and four bits before that of IPv6's.
        let shift = match self.network {
            Network::Ipv4 => 0,
            Network::Ipv6 => 4,
            Network::Other => return false,
        };
        if (word >> shift) & 3 == 0 {
            return false;
        }
        let marked = word | (3 << shift);
        put_u16(ip, 0, marked);
        if self.network == Network::Ipv4 {
            let old = u16_at(ip, ipv4::field::CHECKSUM);
            put_u16(
                ip,
                ipv4::field::CHECKSUM,
                checksum::update(old, word, marked),
            );
        }
        true
    }

    /// Turns a copy of the super-frame's headers into the piece's.
    fn edit(&self, headers: &mut [u8], piece: Piece) {
        let partial = self.partial_sum(headers, piece.payload_bytes);
        self.edit_network(headers, piece);
        let l4 = self.transport_offset();
        match self.protocol {
            Protocol::Tcp => self.edit_tcp(headers, piece),
            _ => put_u16(
                headers,
                l4 + udp::field::LEN,
                self.l4_bytes(piece.payload_bytes),
            ),
        }
        put_u16(headers, l4 + self.checksum_field(), partial);
    }

    fn edit_network(&self, headers: &mut [u8], piece: Piece) {
        let header_end = self.transport_offset();
        let Some(ip) = headers.get_mut(self.network_offset()..header_end) else {
            return;
        };
        let l4_bytes = self.l4_bytes(piece.payload_bytes);
        // Smaller than the super-frame's length, which fitted the field.
        if self.network == Network::Ipv4 {
            put_u16(
                ip,
                ipv4::field::TOTAL_LEN,
                saturating_u16(ip.len()).saturating_add(l4_bytes),
            );
            let identification = u16_at(ip, ipv4::field::IDENTIFICATION);
            put_u16(
                ip,
                ipv4::field::IDENTIFICATION,
                identification.wrapping_add(piece.first),
            );
            ipv4::fill_checksum(ip);
        } else {
            let extensions = saturating_u16(ip.len().saturating_sub(ipv6::HEADER_BYTES));
            put_u16(
                ip,
                ipv6::field::PAYLOAD_LEN,
                extensions.saturating_add(l4_bytes),
            );
        }
    }

    fn edit_tcp(&self, headers: &mut [u8], piece: Piece) {
        let l4 = self.transport_offset();
        let sequence = u32_at(headers, l4 + tcp::field::SEQUENCE);
        let skipped = u32::from(piece.first) * u32::from(self.vnet.gso_size);
        put_u32(
            headers,
            l4 + tcp::field::SEQUENCE,
            sequence.wrapping_add(skipped),
        );
        let mut word = u16_at(headers, l4 + tcp::field::DATA_OFFSET);
        if piece.first + piece.count < self.segments {
            word &= !(tcp::Flags::FIN.bits() | tcp::Flags::PSH.bits());
        }
        if piece.first > 0 {
            word &= !tcp::Flags::CWR.bits();
        }
        put_u16(headers, l4 + tcp::field::DATA_OFFSET, word);
    }

    /// What the checksum field of a piece holds: the sum of its pseudo-header. A field that already
    /// is such a sum is corrected by the lengths' difference; so does Linux (tcp_gso_segment).
    fn partial_sum(&self, headers: &[u8], payload_bytes: usize) -> u16 {
        let l4_bytes = self.l4_bytes(payload_bytes);
        if self.vnet.needs_csum() {
            let sum = u16_at(headers, self.transport_offset() + self.checksum_field());
            let whole = self.l4_bytes(usize::try_from(self.payload_bytes).unwrap_or(usize::MAX));
            return checksum::replace(sum, whole, l4_bytes);
        }
        let number = if self.protocol == Protocol::Tcp {
            protocol::TCP
        } else {
            protocol::UDP
        };
        let ip = headers.get(self.network_offset()..).unwrap_or_default();
        let l4_bytes = u32::from(l4_bytes);
        if self.network == Network::Ipv4 {
            let source = array_at(ip, ipv4::field::SOURCE).unwrap_or_default();
            let destination = array_at(ip, ipv4::field::DESTINATION).unwrap_or_default();
            checksum::pseudo_v4(source, destination, number, l4_bytes)
        } else {
            let source = array_at(ip, ipv6::field::SOURCE).unwrap_or_default();
            let destination = array_at(ip, ipv6::field::DESTINATION).unwrap_or_default();
            checksum::pseudo_v6(source, destination, number, l4_bytes)
        }
    }

    /// The virtio header of a piece whose headers are `headers`.
    fn vnet_of(&self, headers: &[u8], piece: Piece) -> VirtioNetHdr {
        let flags = u16_at(headers, self.transport_offset() + tcp::field::DATA_OFFSET);
        let cwr = self.protocol == Protocol::Tcp && flags & tcp::Flags::CWR.bits() != 0;
        let ecn = if cwr {
            self.vnet.gso_type & virtio::GSO_ECN
        } else {
            0
        };
        let many = piece.count > 1;
        VirtioNetHdr {
            flags: virtio::NEEDS_CSUM,
            gso_type: if many {
                self.vnet.gso_kind() | ecn
            } else {
                virtio::GSO_NONE
            },
            hdr_len: self.header_bytes,
            gso_size: if many { self.vnet.gso_size } else { 0 },
            csum_start: self.l4,
            csum_offset: saturating_u16(self.checksum_field()),
        }
    }

    /// Bytes of a TCP segment or UDP datagram with this much payload.
    fn l4_bytes(&self, payload_bytes: usize) -> u16 {
        (self.header_bytes - self.l4).saturating_add(saturating_u16(payload_bytes))
    }

    /// Where the checksum stands in the transport header.
    const fn checksum_field(&self) -> usize {
        match self.protocol {
            Protocol::Tcp => tcp::field::CHECKSUM,
            _ => udp::field::CHECKSUM,
        }
    }
}

impl CutBuf {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            vnet: VirtioNetHdr {
                flags: 0,
                gso_type: 0,
                hdr_len: 0,
                gso_size: 0,
                csum_start: 0,
                csum_offset: 0,
            },
            headers: [0; HEADER_BYTES_MAX],
            header_bytes: 0,
            payload: 0..0,
        }
    }

    /// The virtio header of the piece.
    pub const fn vnet(&self) -> VirtioNetHdr {
        self.vnet
    }

    /// The new headers; none when the piece is the whole frame.
    pub fn headers(&self) -> &[u8] {
        self.headers.get(..self.header_bytes).unwrap_or_default()
    }

    /// The new headers, to be marked or otherwise changed before sending.
    pub fn headers_mut(&mut self) -> &mut [u8] {
        self.headers
            .get_mut(..self.header_bytes)
            .unwrap_or_default()
    }

    /// The bytes of the original frame that follow the new headers.
    pub const fn payload(&self) -> Range<usize> {
        self.payload.start..self.payload.end
    }

    /// Those bytes of `frame`; none when it is not the frame that was cut.
    pub fn payload_of<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.payload()).unwrap_or_default()
    }

    /// Bytes of the piece as a frame.
    pub const fn frame_bytes(&self) -> usize {
        self.header_bytes + (self.payload.end - self.payload.start)
    }

    /// Appends the piece as one frame to `to`, for captures; `frame` is the frame that was cut.
    pub fn append_to(&self, frame: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(self.headers());
        to.extend_from_slice(self.payload_of(frame));
    }
}

impl Default for CutBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CutBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CutBuf")
            .field("vnet", &self.vnet)
            .field("headers", &self.headers())
            .field("payload", &self.payload)
            .finish()
    }
}

impl fmt::Display for CutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchSegments => "the frame has no such segments",
            Self::AnotherFrame => "the bytes are not those of the frame that was parsed",
        })
    }
}

impl std::error::Error for CutError {}

/// Completes a partial checksum in software and says whether there was one to complete. Without
/// `NEEDS_CSUM`, or where the field lies outside of `bytes`, nothing is changed.
///
/// `bytes` is the frame without padding, as the kernel hands it over. A UDP checksum that comes
/// out as zero is written as all ones (RFC 768).
pub fn finish_checksum(hdr: VirtioNetHdr, bytes: &mut [u8]) -> bool {
    finish_checksum_with(hdr, bytes, checksum::sum)
}

/// As [`finish_checksum`], with another way to the one's complement sum of bytes (RFC 1071), big
/// endian and folded to 16 bits, as [`checksum::sum`] gives it: a faster one.
pub fn finish_checksum_with(
    hdr: VirtioNetHdr,
    bytes: &mut [u8],
    sum: impl Fn(&[u8]) -> u16,
) -> bool {
    if !hdr.needs_csum() {
        return false;
    }
    let covered = bytes
        .get_mut(usize::from(hdr.csum_start)..)
        .unwrap_or_default();
    let at = usize::from(hdr.csum_offset);
    if array_at::<2>(covered, at).is_none() {
        return false;
    }
    // The field itself is part of the sum: it holds the pseudo-header's.
    let check = !sum(covered);
    let is_udp = at == udp::field::CHECKSUM;
    put_u16(
        covered,
        at,
        if check == 0 && is_udp { 0xffff } else { check },
    );
    true
}

/// A run of segments and its payload.
#[derive(Clone, Copy)]
struct Piece {
    first: u16,
    count: u16,
    payload_bytes: usize,
}

/// Where the layers of a frame begin and end.
struct Layers {
    l3: usize,
    l4: usize,
    header_bytes: usize,
    /// End of the IP packet, or of the frame.
    end: usize,
    network: Network,
    protocol: Protocol,
    /// Number in the IP header.
    ip_protocol: u8,
    fragment: bool,
    /// The packet has a routing header: its checksum is over another destination.
    routed: bool,
}

impl Layers {
    fn of(frame: &[u8]) -> Self {
        let network = ethernet::network(frame);
        let l3 = network.map_or(0, |n| n.offset);
        let none = Self {
            l3,
            l4: l3,
            header_bytes: l3,
            end: frame.len(),
            network: Network::Other,
            protocol: Protocol::Other,
            ip_protocol: 0,
            fragment: false,
            routed: false,
        };
        let rest = frame.get(l3..).unwrap_or_default();
        let found = match network.map(|n| n.ethertype) {
            Some(ethernet::TYPE_IPV4) => none.ipv4(rest),
            Some(ethernet::TYPE_IPV6) => none.ipv6(rest),
            Some(ethernet::TYPE_ARP) => Some(Self {
                protocol: Protocol::Arp,
                ..none
            }),
            _ => None,
        };
        found.map_or(none, |layers| layers.transport(frame))
    }

    fn ipv4(&self, bytes: &[u8]) -> Option<Self> {
        let packet = ipv4::Packet::new_checked(bytes).ok()?;
        let l4 = self.l3 + packet.header_len();
        Some(Self {
            l4,
            header_bytes: l4,
            end: self.l3 + usize::from(packet.total_len()),
            network: Network::Ipv4,
            protocol: Protocol::OtherIp,
            ip_protocol: packet.protocol(),
            fragment: packet.is_fragment(),
            ..*self
        })
    }

    fn ipv6(&self, bytes: &[u8]) -> Option<Self> {
        let packet = ipv6::Packet::new_checked(bytes).ok()?;
        let upper = packet.upper_layer()?;
        let l4 = self.l3 + upper.offset;
        Some(Self {
            l4,
            header_bytes: l4,
            end: self.l3 + packet.total_len(),
            network: Network::Ipv6,
            protocol: Protocol::OtherIp,
            ip_protocol: upper.protocol,
            fragment: upper.fragment,
            routed: upper.routed,
            ..*self
        })
    }

    /// Adds the transport layer. A fragment's is not looked at: the first one's ports would make
    /// it another flow than the others'.
    fn transport(self, frame: &[u8]) -> Self {
        let bytes = frame.get(self.l4..self.end).unwrap_or_default();
        if self.network == Network::Other || self.fragment {
            return self;
        }
        let (protocol, len) = match self.ip_protocol {
            protocol::TCP => match tcp::Packet::new_checked(bytes) {
                Ok(packet) => (Protocol::Tcp, packet.header_len()),
                Err(_) => return self,
            },
            protocol::UDP if bytes.len() >= udp::HEADER_BYTES => (Protocol::Udp, udp::HEADER_BYTES),
            protocol::ICMP | protocol::ICMPV6 => (Protocol::Icmp, 0),
            _ => return self,
        };
        Self {
            protocol,
            header_bytes: self.l4 + len,
            ..self
        }
    }

    /// True when the frame holds more than one segment and everything that an edit relies on is
    /// consistent.
    fn is_cuttable(&self, hdr: VirtioNetHdr, frame: &[u8]) -> bool {
        let expected = match (self.protocol, self.network) {
            (Protocol::Tcp, Network::Ipv4) => virtio::GSO_TCPV4,
            (Protocol::Tcp, Network::Ipv6) => virtio::GSO_TCPV6,
            (Protocol::Udp, _) => virtio::GSO_UDP_L4,
            _ => return false,
        };
        let is_udp = self.protocol == Protocol::Udp;
        let field = if is_udp {
            udp::field::CHECKSUM
        } else {
            tcp::field::CHECKSUM
        };
        // Payload that fits one segment is not a super-frame (Linux, virtio_net_hdr_to_skb).
        hdr.gso_kind() == expected
            && hdr.gso_size > 0
            && self.end == frame.len()
            && self.end - self.header_bytes > usize::from(hdr.gso_size)
            && self.header_bytes <= HEADER_BYTES_MAX
            && (!is_udp
                || usize::from(u16_at(frame, self.l4 + udp::field::LEN)) == self.end - self.l4)
            && if hdr.needs_csum() {
                usize::from(hdr.csum_start) == self.l4 && usize::from(hdr.csum_offset) == field
            } else {
                !self.routed
            }
    }

    fn flow(&self, frame: &[u8]) -> u32 {
        let ip = frame.get(self.l3..).unwrap_or_default();
        let with_ports = matches!(self.protocol, Protocol::Tcp | Protocol::Udp);
        let ports = if with_ports {
            u32_at(frame, self.l4)
        } else {
            0
        };
        let mut hash = FlowHash::default();
        match self.network {
            Network::Ipv4 => hash.add(u64_at(ip, ipv4::field::SOURCE)),
            Network::Ipv6 => {
                (0..4).for_each(|i| hash.add(u64_at(ip, ipv6::field::SOURCE + 8 * i)));
            }
            Network::Other => {
                hash.add(u64_at(frame, 0));
                hash.add(u64::from(u32_at(frame, 8)));
            }
        }
        hash.add(u64::from(ports) << 8 | u64::from(self.ip_protocol));
        hash.finish()
    }
}

/// A multiplicative hash, a few cycles a word. Each step is a bijection of the state, so that two
/// flows that differ in one word differ before the last fold.
#[derive(Default)]
struct FlowHash(u64);

impl FlowHash {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(HASH_FACTOR);
    }

    /// The upper half: a product's upper bits depend on all lower ones.
    #[allow(clippy::cast_possible_truncation, reason = "the shift leaves 32 bits")]
    fn finish(self) -> u32 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(HASH_FACTOR);
        (mixed >> 32) as u32
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    array_at(bytes, at).map_or(0, u64::from_be_bytes)
}

fn saturating_u16<T: TryInto<u16>>(value: T) -> u16 {
    value.try_into().unwrap_or(u16::MAX)
}

fn saturating_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Longest headers that are cut. Eight VLAN tags, IPv4 and TCP with all options are 166 bytes; the
/// rest is for IPv6 extension headers.
pub const HEADER_BYTES_MAX: usize = 256;
/// Ethernet with two tags, IPv6 with an extension, TCP with its options.
const CHANGEABLE_BYTES: usize = 128;

/// 2^64 over the golden ratio, made odd (Knuth, The Art of Computer Programming 3, section 6.4).
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

// A description lies beside every frame in flight: it must not grow unnoticed.
const _: () = assert!(size_of::<SuperFrame>() <= 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Flags;

    /// Two full segments of 10 bytes and one of 5 over IPv4, with `flags`.
    fn three_segments(flags: Flags) -> (VirtioNetHdr, Vec<u8>) {
        let mut bytes = vec![0_u8; 54];
        let link = ethernet::Repr {
            destination: [2; 6],
            source: [4; 6],
            ethertype: ethernet::TYPE_IPV4,
        };
        let ip = ipv4::Repr {
            source: [10, 0, 0, 1],
            destination: [10, 0, 0, 2],
            protocol: protocol::TCP,
            payload_len: 45,
            dscp: 0,
            ecn: 2,
            identification: 0xffff,
            dont_fragment: true,
            ttl: 64,
        };
        let tcp = tcp::Repr {
            sequence: u32::MAX - 4,
            flags,
            ..tcp::Repr::default()
        };
        link.emit(&[], &mut bytes).unwrap();
        ip.emit(&mut bytes[14..]).unwrap();
        tcp.emit(&mut bytes[34..]).unwrap();
        let pseudo = checksum::pseudo_v4(ip.source, ip.destination, protocol::TCP, 45);
        put_u16(&mut bytes, 34 + 16, pseudo);
        bytes.extend(0..25);
        let vnet = VirtioNetHdr {
            flags: virtio::NEEDS_CSUM,
            gso_type: virtio::GSO_TCPV4 | virtio::GSO_ECN,
            hdr_len: 79,
            gso_size: 10,
            csum_start: 34,
            csum_offset: 16,
        };
        (vnet, bytes)
    }

    /// IPv4 identification, sequence number, flags and payload of each single segment.
    fn singles(flags: Flags) -> Vec<(u16, u32, Flags, Vec<u8>)> {
        let (vnet, frame) = three_segments(flags);
        let parsed = SuperFrame::parse(vnet, &frame);
        let mut buf = CutBuf::new();
        (0..parsed.segments())
            .map(|k| {
                parsed.cut(&frame, k, 1, &mut buf).unwrap();
                let mut bytes = Vec::new();
                buf.append_to(&frame, &mut bytes);
                let ip = ipv4::Packet::new_checked(&bytes[14..]).unwrap();
                let tcp = tcp::Packet::new_checked(ip.payload()).unwrap();
                (
                    ip.identification(),
                    tcp.sequence(),
                    tcp.flags(),
                    tcp.payload().to_vec(),
                )
            })
            .collect()
    }

    #[test]
    fn fin_and_psh_stay_with_the_last_segment_and_cwr_with_the_first() {
        let all = Flags::ACK
            .with(Flags::FIN)
            .with(Flags::PSH)
            .with(Flags::CWR);
        let found = singles(all);
        assert_eq!(
            found,
            [
                (
                    0xffff,
                    u32::MAX - 4,
                    Flags::ACK.with(Flags::CWR),
                    (0..10).collect()
                ),
                (0, 5, Flags::ACK, (10..20).collect()),
                (
                    1,
                    15,
                    Flags::ACK.with(Flags::FIN).with(Flags::PSH),
                    (20..25).collect()
                ),
            ]
        );
    }

    #[test]
    fn a_train_states_its_sizes_without_its_bytes() {
        let (vnet, frame) = three_segments(Flags::ACK);
        let parsed = SuperFrame::parse(vnet, &frame);
        assert_eq!(
            (parsed.segments(), parsed.header_len(), parsed.payload_len()),
            (3, 54, 25)
        );
        assert_eq!(
            [0, 1, 2, 3].map(|k| parsed.segment_frame_bytes(k)),
            [64, 64, 59, 0]
        );
        assert_eq!(parsed.train_wire_bytes(), 88 + 88 + 84);
        assert_eq!(
            (parsed.protocol(), parsed.network()),
            (Protocol::Tcp, Network::Ipv4)
        );
        assert_eq!(
            (parsed.network_offset(), parsed.transport_offset()),
            (14, 34)
        );
    }

    #[test]
    fn only_a_run_with_the_first_segment_and_cwr_keeps_the_ecn_bit() {
        let gso_type_of = |flags, first| {
            let (vnet, frame) = three_segments(flags);
            let mut buf = CutBuf::new();
            SuperFrame::parse(vnet, &frame)
                .cut(&frame, first, 2, &mut buf)
                .unwrap();
            buf.vnet().gso_type
        };
        assert_eq!(
            gso_type_of(Flags::CWR, 0),
            virtio::GSO_TCPV4 | virtio::GSO_ECN
        );
        assert_eq!(gso_type_of(Flags::CWR, 1), virtio::GSO_TCPV4);
        assert_eq!(gso_type_of(Flags::ACK, 0), virtio::GSO_TCPV4);
    }

    #[test]
    fn ranges_outside_of_the_train_are_refused_and_leave_the_buffer_alone() {
        let (vnet, frame) = three_segments(Flags::ACK);
        let parsed = SuperFrame::parse(vnet, &frame);
        let mut buf = CutBuf::new();
        parsed.cut(&frame, 1, 1, &mut buf).unwrap();
        let before = format!("{buf:?}");
        for (first, count) in [(0, 0), (3, 1), (0, 4), (2, 2), (u16::MAX, u16::MAX)] {
            let refused = parsed.cut(&frame, first, count, &mut buf);
            assert_eq!(refused, Err(CutError::NoSuchSegments), "{first} {count}");
        }
        assert_eq!(
            parsed.cut(&frame[1..], 0, 1, &mut buf),
            Err(CutError::AnotherFrame)
        );
        assert_eq!(format!("{buf:?}"), before);
    }

    #[test]
    fn what_contradicts_itself_is_one_segment() {
        let (vnet, frame) = three_segments(Flags::ACK);
        let segments = |vnet, frame: &[u8]| SuperFrame::parse(vnet, frame).segments();
        assert_eq!(segments(vnet, &frame), 3);
        for wrong in [
            VirtioNetHdr {
                gso_size: 0,
                ..vnet
            },
            VirtioNetHdr {
                gso_size: 25,
                ..vnet
            },
            VirtioNetHdr {
                gso_type: virtio::GSO_NONE,
                ..vnet
            },
            VirtioNetHdr {
                gso_type: virtio::GSO_TCPV6,
                ..vnet
            },
            VirtioNetHdr {
                gso_type: virtio::GSO_UDP_L4,
                ..vnet
            },
            VirtioNetHdr {
                csum_start: 14,
                ..vnet
            },
            VirtioNetHdr {
                csum_offset: 6,
                ..vnet
            },
        ] {
            assert_eq!(segments(wrong, &frame), 1, "{wrong:?}");
        }
        assert_eq!(segments(vnet, &frame[..78]), 1, "shorter than IP says");
        assert_eq!(
            segments(vnet, &[&frame[..], &[0]].concat()),
            1,
            "longer than IP says"
        );
        let mut fragment = frame.clone();
        fragment[20] |= 0x20;
        assert_eq!(segments(vnet, &fragment), 1);
        assert_eq!(
            SuperFrame::parse(vnet, &fragment).protocol(),
            Protocol::OtherIp
        );
    }

    #[test]
    fn the_padding_of_a_short_frame_is_no_payload() {
        let (_, mut frame) = three_segments(Flags::ACK);
        put_u16(&mut frame, 16, 40);
        frame.truncate(60);
        let parsed = SuperFrame::parse(VirtioNetHdr::default(), &frame);
        assert_eq!((parsed.payload_len(), parsed.frame_len()), (0, 60));
        assert_eq!(parsed.segment_frame_bytes(0), 60);
    }

    #[test]
    fn a_flow_is_one_direction_of_one_connection() {
        let (vnet, frame) = three_segments(Flags::ACK);
        let flow = |frame: &[u8]| SuperFrame::parse(vnet, frame).flow();
        let changed = |at: usize| {
            let mut other = frame.clone();
            other[at] ^= 1;
            flow(&other)
        };
        for field in [29, 33, 35, 37] {
            assert_ne!(
                changed(field),
                flow(&frame),
                "{field}: an address or a port"
            );
        }
        for field in [0, 15, 19, 24, 41, 45] {
            assert_eq!(changed(field), flow(&frame), "{field}: no part of the flow");
        }
    }

    #[test]
    fn ten_thousand_flows_spread_over_all_buckets() {
        let (vnet, mut frame) = three_segments(Flags::ACK);
        let mut buckets = [0_u32; 64];
        for port in 0..10_000_u16 {
            put_u16(&mut frame, 34, 32_768 + port);
            buckets[SuperFrame::parse(vnet, &frame).flow() as usize % 64] += 1;
        }
        // 156 expected; six standard deviations of a random spread are 75.
        assert!(
            buckets.iter().all(|n| (81..=231).contains(n)),
            "{buckets:?}"
        );
    }

    #[test]
    fn a_mark_is_set_only_on_what_is_ecn_capable_and_keeps_the_header_sum_right() {
        let (vnet, mut frame) = three_segments(Flags::ACK);
        let parsed = SuperFrame::parse(vnet, &frame);
        let mut buf = CutBuf::new();
        parsed.cut(&frame, 0, 2, &mut buf).unwrap();
        assert!(parsed.mark_ce(buf.headers_mut()));
        assert_eq!(buf.headers()[15] & 3, 3);
        assert_eq!(checksum::sum(&buf.headers()[14..34]), 0xffff);
        assert!(parsed.mark_ce(&mut frame));
        assert!(
            ipv4::Packet::new_checked(&frame[14..])
                .unwrap()
                .verify_checksum()
        );
        frame[15] = 0;
        assert!(!parsed.mark_ce(&mut frame), "not ECN-capable");
        assert!(!parsed.mark_ce(&mut []));
    }

    #[test]
    fn a_checksum_is_finished_only_where_the_header_asks_and_the_field_exists() {
        let (vnet, frame) = three_segments(Flags::ACK);
        let mut bytes = frame.clone();
        assert!(!finish_checksum(
            VirtioNetHdr { flags: 0, ..vnet },
            &mut bytes
        ));
        assert!(!finish_checksum(
            VirtioNetHdr {
                csum_start: 79,
                ..vnet
            },
            &mut bytes
        ));
        assert!(!finish_checksum(
            VirtioNetHdr {
                csum_offset: 44,
                ..vnet
            },
            &mut bytes
        ));
        assert_eq!(bytes, frame);
        assert!(finish_checksum(vnet, &mut bytes));
        let ip = ipv4::Packet::new_checked(&bytes[14..]).unwrap();
        let pseudo = checksum::pseudo_v4(ip.source(), ip.destination(), protocol::TCP, 45);
        assert!(
            tcp::Packet::new_checked(ip.payload())
                .unwrap()
                .verify_checksum(pseudo)
        );
    }
}
