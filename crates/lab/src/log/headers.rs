//! The captured bytes of a logged frame read again, as a whole and segment by segment.
//!
//! The log keeps a frame's headers, not its payload. Padded with zeros to the frame's length they
//! are parsed and cut as the frame itself was. Checksums of segments are those of hardware offload:
//! the pseudo-header's sum, which no reader can check without the payload.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use link::record::FrameRecord;
use wire::train::{CutBuf, Network, Protocol, SuperFrame};
use wire::virtio::{self, VirtioNetHdr};
use wire::{ethernet, ipv4, ipv6, protocol, tcp};

/// Who talks to whom. Texts are empty where the captured bytes do not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) source: String,
    pub(crate) destination: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, `arp`, or the number in the IP header.
    pub(crate) protocol: Cow<'static, str>,
    pub(crate) source_port: Option<u16>,
    pub(crate) destination_port: Option<u16>,
    /// TCP's sequence number of the first segment.
    pub(crate) sequence: Option<u32>,
}

/// Memory for frames at their full length, used for one after the other.
pub(crate) struct Workbench {
    /// Zeros but for the first `dirty_bytes`.
    bytes: Vec<u8>,
    dirty_bytes: usize,
    cut: CutBuf,
    patched: Vec<u8>,
}

/// A frame on the bench.
pub(crate) struct Loaded<'a> {
    frame: &'a [u8],
    parsed: SuperFrame,
    captured_bytes: usize,
    segments: u16,
    record: FrameRecord<'a>,
    cut: &'a mut CutBuf,
    patched: &'a mut Vec<u8>,
}

impl Workbench {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            dirty_bytes: 0,
            cut: CutBuf::new(),
            patched: Vec::new(),
        }
    }

    /// Lays out a frame: its captured bytes, then zeros.
    pub(crate) fn load<'a>(&'a mut self, record: &FrameRecord<'a>) -> Loaded<'a> {
        let captured = record.captured;
        let len = usize::try_from(record.frame_bytes).unwrap_or(usize::MAX);
        let len = len.min(FRAME_BYTES_MAX).max(captured.len());
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.bytes[..self.dirty_bytes].fill(0);
        self.bytes[..captured.len()].copy_from_slice(captured);
        self.dirty_bytes = captured.len();
        let frame = &self.bytes[..len];
        Loaded {
            frame,
            parsed: parse(frame, record),
            captured_bytes: captured.len(),
            segments: plausible_segments(record),
            record: *record,
            cut: &mut self.cut,
            patched: &mut self.patched,
        }
    }
}

/// Reads a super-frame by the record's word for how it was to be cut.
fn parse(frame: &[u8], record: &FrameRecord<'_>) -> SuperFrame {
    let whole = SuperFrame::parse(VirtioNetHdr::default(), frame);
    let kind = match (whole.protocol(), whole.network()) {
        (Protocol::Tcp, Network::Ipv4) => virtio::GSO_TCPV4,
        (Protocol::Tcp, Network::Ipv6) => virtio::GSO_TCPV6,
        (Protocol::Udp, _) => virtio::GSO_UDP_L4,
        _ => return whole,
    };
    if record.segments < 2 {
        return whole;
    }
    let is_tcp = whole.protocol() == Protocol::Tcp;
    let hdr = VirtioNetHdr {
        flags: virtio::NEEDS_CSUM,
        gso_type: kind,
        gso_size: record.segment_payload_bytes,
        csum_start: u16::try_from(whole.transport_offset()).unwrap_or(0),
        csum_offset: if is_tcp { 16 } else { 6 },
        ..VirtioNetHdr::default()
    };
    SuperFrame::parse(hdr, frame)
}

/// The record's segments; 1 where its sizes contradict them.
fn plausible_segments(record: &FrameRecord<'_>) -> u16 {
    let before_last = (u32::from(record.segments.max(1)) - 1)
        .saturating_mul(u32::from(record.segment_payload_bytes));
    let is_whole = record.segment_payload_bytes == 0
        || before_last.saturating_add(u32::from(record.header_bytes)) > record.frame_bytes;
    if is_whole { 1 } else { record.segments.max(1) }
}

impl Loaded<'_> {
    /// Segments to be written.
    pub(crate) const fn segments(&self) -> u16 {
        self.segments
    }

    /// Bytes of segment `k` as a frame.
    pub(crate) fn segment_bytes(&self, k: u16) -> u32 {
        let payload = u32::from(self.record.segment_payload_bytes);
        if self.segments == 1 {
            self.record.frame_bytes
        } else if k + 1 < self.segments {
            u32::from(self.record.header_bytes) + payload
        } else {
            // Plausible sizes: this much is there.
            self.record
                .frame_bytes
                .saturating_sub((u32::from(self.segments) - 1) * payload)
        }
    }

    /// The first bytes of segment `k` as the wire would carry it, as far as they were captured:
    /// of a super-frame the headers, otherwise all captured bytes.
    pub(crate) fn segment_head(&mut self, k: u16) -> &[u8] {
        if self.segments == 1 {
            return self.record.captured;
        }
        if self.parsed.segments() == self.segments
            && self.parsed.cut(self.frame, k, 1, self.cut).is_ok()
        {
            let head = self.cut.headers();
            return &head[..head.len().min(self.captured_bytes)];
        }
        self.patch(k);
        self.patched
    }

    /// What remains where the frame cannot be cut: lengths and numbers of the fixed headers.
    fn patch(&mut self, k: u16) {
        let len = usize::from(self.record.header_bytes).min(self.captured_bytes);
        self.patched.clear();
        self.patched.extend_from_slice(&self.record.captured[..len]);
        let Some(network) = ethernet::network(self.patched) else {
            return;
        };
        let l3_bytes = usize::try_from(self.segment_bytes(k)).unwrap_or(usize::MAX);
        let l3_bytes = l3_bytes.saturating_sub(network.offset);
        let Some(ip) = self.patched.get_mut(network.offset..) else {
            return;
        };
        let l4 = match network.ethertype {
            ethernet::TYPE_IPV4 => patch_ipv4(ip, k, l3_bytes),
            ethernet::TYPE_IPV6 => patch_ipv6(ip, l3_bytes),
            _ => None,
        };
        let Some(tcp) = l4.and_then(|at| ip.get_mut(at..)) else {
            return;
        };
        if let Some(place) = tcp.get_mut(4..8).and_then(|bytes| bytes.first_chunk_mut()) {
            let skipped = u32::from(k) * u32::from(self.record.segment_payload_bytes);
            *place = u32::from_be_bytes(*place)
                .wrapping_add(skipped)
                .to_be_bytes();
        }
    }

    /// Who talks to whom.
    pub(crate) fn headers(&self) -> Headers {
        let ip = self.frame.get(self.parsed.network_offset()..);
        let ip = ip.unwrap_or_default();
        let mut headers = match self.parsed.network() {
            Network::Ipv4 => ipv4_headers(ip),
            Network::Ipv6 => ipv6_headers(ip),
            Network::Other => Headers::default(),
        };
        let l4 = self.frame.get(self.parsed.transport_offset()..);
        let l4 = l4.unwrap_or_default();
        let word = |at: usize| l4.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b));
        match self.parsed.protocol() {
            Protocol::Tcp | Protocol::Udp => {
                headers.source_port = word(0);
                headers.destination_port = word(2);
            }
            Protocol::Arp => headers.protocol = Cow::Borrowed("arp"),
            _ => {}
        }
        if self.parsed.protocol() == Protocol::Tcp {
            headers.sequence = tcp::Packet::new_checked(l4).ok().map(|p| p.sequence());
        }
        headers
    }
}

fn ipv4_headers(ip: &[u8]) -> Headers {
    let Ok(packet) = ipv4::Packet::new_checked(ip) else {
        return Headers::default();
    };
    Headers {
        source: Ipv4Addr::from(packet.source()).to_string(),
        destination: Ipv4Addr::from(packet.destination()).to_string(),
        protocol: protocol_name(packet.protocol()),
        ..Headers::default()
    }
}

fn ipv6_headers(ip: &[u8]) -> Headers {
    let Ok(packet) = ipv6::Packet::new_checked(ip) else {
        return Headers::default();
    };
    let upper = packet.upper_layer().map(|upper| upper.protocol);
    Headers {
        source: Ipv6Addr::from(packet.source()).to_string(),
        destination: Ipv6Addr::from(packet.destination()).to_string(),
        protocol: upper.map_or(Cow::Borrowed(""), protocol_name),
        ..Headers::default()
    }
}

fn protocol_name(number: u8) -> Cow<'static, str> {
    Cow::Borrowed(match number {
        protocol::TCP => "tcp",
        protocol::UDP => "udp",
        protocol::ICMP => "icmp",
        protocol::ICMPV6 => "icmpv6",
        other => return Cow::Owned(other.to_string()),
    })
}

/// Sets length and identification; says where TCP begins.
fn patch_ipv4(ip: &mut [u8], k: u16, l3_bytes: usize) -> Option<usize> {
    let header_bytes = usize::from(ip.first()? & 0x0f) * 4;
    let header = ip.get_mut(..header_bytes)?;
    let (fixed, _) = header.split_first_chunk_mut::<{ ipv4::HEADER_BYTES_MIN }>()?;
    let total = u16::try_from(l3_bytes).unwrap_or(0);
    fixed[2..4].copy_from_slice(&total.to_be_bytes());
    let identification = u16::from_be_bytes([fixed[4], fixed[5]]).wrapping_add(k);
    fixed[4..6].copy_from_slice(&identification.to_be_bytes());
    let is_tcp = fixed[9] == protocol::TCP;
    fixed[10..12].fill(0);
    let sum = wire::checksum::checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    is_tcp.then_some(header_bytes)
}

/// Sets the length; says where TCP begins when no extension header stands before it.
fn patch_ipv6(ip: &mut [u8], l3_bytes: usize) -> Option<usize> {
    let (fixed, _) = ip.split_first_chunk_mut::<{ ipv6::HEADER_BYTES }>()?;
    let payload = u16::try_from(l3_bytes.saturating_sub(ipv6::HEADER_BYTES)).unwrap_or(0);
    fixed[4..6].copy_from_slice(&payload.to_be_bytes());
    (fixed[6] == protocol::TCP).then_some(ipv6::HEADER_BYTES)
}

/// Longest frame that is laid out. The kernel's largest (BIG TCP) are 512 KiB; a log may claim
/// anything.
const FRAME_BYTES_MAX: usize = 1 << 20;
