//! Header-only captures of made-up connections, the same bytes in each run.
//!
//! Taken at the senders: handshakes, segments of 1,448 B in pairs with an acknowledgment a turn
//! later, timestamps throughout, and now and then a lost segment with SACKs, its retransmission and
//! the acknowledgment of all. Turns go to connections at random, so what a program keeps of many
//! connections is not in its cache.
//!
//! Left out: anything that makes a connection interesting (windows, rates, ends). What a bench of
//! speed needs is the mix of packets that large captures have.

use std::io::{self, Write};

use units::Rng;
use wire::tcp::{self, Flags, SackBlocks};
use wire::{ethernet, ipv4, pcapng, protocol};

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Connections.
    pub(crate) flows: u32,
    /// Packets in all, give or take a turn's.
    pub(crate) packets: u64,
    /// The file's format.
    pub(crate) format: Format,
}

/// A capture format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// pcap with nanoseconds.
    Pcap,
    /// pcapng.
    Pcapng,
}

/// A connection between two turns.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Bytes sent and acknowledged; the handshake is done where the first is not zero.
    sent: u32,
    acknowledged: u32,
}

struct Writer<W> {
    to: W,
    format: Format,
    time_ns: u64,
    packets: u64,
    /// One record.
    record: Vec<u8>,
}

impl Traffic {
    /// Writes the capture; how many packets it has.
    pub(crate) fn write(self, to: impl Write) -> io::Result<u64> {
        let mut writer = Writer {
            to,
            format: self.format,
            time_ns: START_NS,
            packets: 0,
            record: Vec::with_capacity(256),
        };
        writer.begin()?;
        let mut flows = vec![Flow::default(); self.flows as usize];
        let mut rng = Rng::new(u64::from(self.flows));
        while writer.packets < self.packets {
            let draw = rng.next_u64();
            let number = ((draw >> 32) * u64::from(self.flows)) >> 32;
            let number = u32::try_from(number).unwrap_or_default();
            let lost = draw.is_multiple_of(TURNS_A_LOSS);
            turn(&mut writer, number, &mut flows[number as usize], lost)?;
        }
        writer.to.flush()?;
        Ok(writer.packets)
    }
}

/// What a connection does when it is its turn.
fn turn(to: &mut Writer<impl Write>, number: u32, flow: &mut Flow, lost: bool) -> io::Result<()> {
    if flow.sent == 0 {
        to.packet(number, false, segment(0, 0, SYN), 0)?;
        to.packet(number, true, segment(0, 1, SYN_ACK), 0)?;
        to.packet(number, false, segment(1, 1, Flags::ACK), 0)?;
        flow.sent = 1;
        flow.acknowledged = 1;
    } else {
        flow.acknowledged = flow.sent;
        to.packet(number, true, segment(1, flow.acknowledged, Flags::ACK), 0)?;
    }
    let first = flow.sent;
    for _ in 0..2 {
        to.packet(number, false, segment(flow.sent, 1, Flags::ACK), MSS)?;
        flow.sent = flow.sent.wrapping_add(MSS);
    }
    if lost {
        for _ in 0..3 {
            to.packet(number, false, segment(flow.sent, 1, Flags::ACK), MSS)?;
            flow.sent = flow.sent.wrapping_add(MSS);
            let mut duplicate = segment(1, first, Flags::ACK);
            duplicate.sack = SackBlocks::new(&[(first.wrapping_add(MSS), flow.sent)]);
            to.packet(number, true, duplicate, 0)?;
        }
        to.packet(number, false, segment(first, 1, Flags::ACK), MSS)?;
    }
    Ok(())
}

fn segment(sequence: u32, acknowledgment: u32, flags: Flags) -> tcp::Repr {
    let syn = flags.contains(Flags::SYN);
    tcp::Repr {
        sequence,
        acknowledgment,
        flags,
        window: 65_535,
        max_segment_size: syn.then_some(1_460),
        window_scale: syn.then_some(10),
        sack_permitted: syn,
        ..tcp::Repr::default()
    }
}

impl<W: Write> Writer<W> {
    fn begin(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        match self.format {
            Format::Pcap => {
                for word in [PCAP_NANOSECONDS, PCAP_VERSION, 0, 0, SNAP_BYTES, 1] {
                    head.extend(word.to_le_bytes());
                }
            }
            Format::Pcapng => {
                pcapng::section_header("goodput", &mut head);
                pcapng::interface("eth0", SNAP_BYTES, &mut head);
            }
        }
        self.to.write_all(&head)
    }

    /// Writes a segment of a connection, from its server or from its client, headers only.
    fn packet(
        &mut self,
        number: u32,
        from_server: bool,
        mut segment: tcp::Repr,
        payload_bytes: u32,
    ) -> io::Result<()> {
        self.time_ns += STEP_NS;
        let now = u32::try_from((self.time_ns / 1_000_000) & 0xffff_ffff).unwrap_or_default();
        segment.timestamps = Some((now, now.wrapping_sub(1)));
        let [_, a, b, c] = number.to_be_bytes();
        let ends = [([10, a, b, c], 40_000), ([172, 16, 0, 1], 5_201)];
        let [from, to] = if from_server {
            [ends[1], ends[0]]
        } else {
            ends
        };
        (segment.source_port, segment.destination_port) = (from.1, to.1);
        let mut bytes = [0; 128];
        let headers = headers(from.0, to.0, &segment, payload_bytes, &mut bytes);
        let headers = headers.map_err(io::Error::other)?;
        let original = u32::try_from(headers).unwrap_or_default() + payload_bytes;
        self.record.clear();
        self.put(&bytes[..headers], original);
        self.packets += 1;
        self.to.write_all(&self.record)
    }

    fn put(&mut self, captured: &[u8], original_bytes: u32) {
        if self.format == Format::Pcapng {
            let packet = pcapng::Packet {
                time_ns: self.time_ns,
                captured,
                original_bytes,
                ..pcapng::Packet::default()
            };
            return pcapng::packet(&packet, &mut self.record);
        }
        let low = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let (seconds, fraction) = (self.time_ns / NS_PER_S, self.time_ns % NS_PER_S);
        for word in [
            low(seconds),
            low(fraction),
            low(captured.len() as u64),
            original_bytes,
        ] {
            self.record.extend(word.to_le_bytes());
        }
        self.record.extend(captured);
    }
}

/// Ethernet, IPv4 and TCP; their bytes.
fn headers(
    source: [u8; 4],
    destination: [u8; 4],
    segment: &tcp::Repr,
    payload_bytes: u32,
    bytes: &mut [u8; 128],
) -> Result<usize, wire::Error> {
    let frame = ethernet::Repr {
        destination: [2, 0, 0, 0, 0, 2],
        source: [2, 0, 0, 0, 0, 1],
        ethertype: ethernet::TYPE_IPV4,
    };
    let mut at = frame.emit(&[], bytes)?;
    let segment_bytes = u32::try_from(segment.header_len()).unwrap_or(u32::MAX) + payload_bytes;
    let packet = ipv4::Repr {
        source,
        destination,
        protocol: protocol::TCP,
        payload_len: u16::try_from(segment_bytes).map_err(|_| wire::Error::Malformed)?,
        dscp: 0,
        ecn: 0,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
    };
    at += packet.emit(&mut bytes[at..])?;
    Ok(at + segment.emit(&mut bytes[at..])?)
}

const SYN: Flags = Flags::SYN;
const SYN_ACK: Flags = Flags::SYN.with(Flags::ACK);
/// An Ethernet's with timestamps.
const MSS: u32 = 1_448;
/// One turn in so many loses a segment: about one segment in 300.
const TURNS_A_LOSS: u64 = 150;
/// A full segment at 10 Gb/s.
const STEP_NS: u64 = 1_230;
/// 2023-11-14T22:13:20Z.
const START_NS: u64 = 1_700_000_000_000_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// As `tcpdump -s 96` would.
const SNAP_BYTES: u32 = 96;
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// 2.4, the lower half first.
const PCAP_VERSION: u32 = 0x0004_0002;

#[cfg(test)]
mod tests {
    use wire::capture::{Reader, Step};
    use wire::segment::{Decoded, Segment, decode};

    use super::*;

    #[test]
    fn traffic_is_the_same_in_each_run_and_in_each_format() {
        let read = |format| {
            let (flows, packets) = (20, 5_000);
            let traffic = Traffic {
                flows,
                packets,
                format,
            };
            let mut file = Vec::new();
            let written = traffic.write(&mut file).unwrap();
            let mut again = Vec::new();
            traffic.write(&mut again).unwrap();
            assert!(file == again && (packets..packets + 12).contains(&written));
            let (mut reader, mut rest) = (Reader::new(), &file[..]);
            let mut segments = Vec::new();
            while let Step::Packet(packet) = reader.next(&mut rest) {
                let mut segment = Segment::default();
                let kept = u32::try_from(packet.captured.len()).unwrap();
                assert!(kept <= SNAP_BYTES && kept <= packet.original_bytes);
                let decoded = decode(
                    packet.link,
                    packet.captured,
                    packet.original_bytes,
                    &mut segment,
                );
                assert_eq!(decoded, Decoded::Tcp);
                assert!(segment.payload_bytes == 0 || segment.payload_bytes == MSS);
                segments.push((packet.time_ns, segment));
            }
            assert_eq!((segments.len() as u64, rest.len()), (written, 0));
            segments
        };
        let segments = read(Format::Pcap);
        assert!(segments == read(Format::Pcapng));
        let count = |is: fn(&Segment) -> bool| segments.iter().filter(|(_, s)| is(s)).count();
        assert_eq!(count(|s| s.flags == Flags::SYN), 20);
        assert!(count(|s| !s.sack.as_slice().is_empty()) > 10);
        assert!(count(|s| s.payload_bytes > 0) > 3_000);
    }
}
