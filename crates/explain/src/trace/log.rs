//! The first packets of a connection in a few hundred bytes.
//!
//! Most connections are short, and a million of them are to fit into a gigabyte. So a connection is
//! at first no more than what its packets said, written as differences to the packet before from
//! the same side; some 20 B a packet. It is read back through the analysis when the room is used
//! up, or when the connection ends. Hops left and the IP packet's length are left out.

use wire::segment::{FlowKey, Segment, SynOptions};
use wire::tcp::{Flags, SackBlocks};

use crate::trace::number::low32;

/// Packets as they came.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    at: Context,
    len: u16,
    bytes: [u8; CAPACITY_BYTES],
}

/// A packet read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) time_ns: u64,
    pub(crate) frame: u64,
    pub(crate) segment: Segment,
}

/// What the next packet is written as a difference to.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    time_ns: u64,
    frame: u64,
    sides: [Before; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Before {
    sequence: u32,
    acknowledgment: u32,
    value: u32,
    echo: u32,
    window: u16,
    ip_id: u16,
}

/// Reads the packets of a log in their order.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    flow: FlowKey,
    at: Context,
    rest: &'a [u8],
}

impl Log {
    pub(crate) const fn new() -> Self {
        const SIDE: Before = Before {
            sequence: 0,
            acknowledgment: 0,
            value: 0,
            echo: 0,
            window: 0,
            ip_id: 0,
        };
        Self {
            at: Context {
                time_ns: 0,
                frame: 0,
                sides: [SIDE; 2],
            },
            len: 0,
            bytes: [0; CAPACITY_BYTES],
        }
    }

    /// Empties it. What was written stays until it is written over.
    pub(crate) fn clear(&mut self) {
        self.at = Context::default();
        self.len = 0;
    }

    /// Puts a packet at the end; false when it has no room, and then nothing has changed.
    pub(crate) fn push(&mut self, time_ns: u64, frame: u64, segment: &Segment) -> bool {
        let mut line = Line::default();
        let mut at = self.at;
        write(&mut line, &mut at, time_ns, frame, segment);
        let from = usize::from(self.len);
        let Some(room) = self.bytes.get_mut(from..from + line.len) else {
            return false;
        };
        room.copy_from_slice(&line.bytes[..line.len]);
        self.len = u16::try_from(from + line.len).unwrap_or(u16::MAX);
        self.at = at;
        true
    }

    /// A packet more, and it may be full.
    #[inline]
    pub(crate) const fn is_nearly_full(&self) -> bool {
        self.len as usize + LINE_BYTES_COMMON > CAPACITY_BYTES
    }

    /// One number of each line of memory that the next packet needs, but for where it is written.
    #[inline]
    pub(crate) fn fetch_head(&self) -> u64 {
        self.at.time_ns ^ u64::from(self.at.sides[1].echo)
    }

    /// A byte of where it is written.
    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        let next = self.bytes.get(usize::from(self.len));
        next.copied().map_or(0, u64::from)
    }

    /// A byte of each line of memory.
    pub(crate) fn fetch_all(&self) -> u64 {
        let written = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        written
            .iter()
            .step_by(LINE_BYTES)
            .fold(0, |a, &b| a ^ u64::from(b))
    }

    pub(crate) fn read(&self, flow: FlowKey) -> Reader<'_> {
        Reader {
            flow,
            at: Context::default(),
            rest: self.bytes.get(..usize::from(self.len)).unwrap_or_default(),
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Logged;

    fn next(&mut self) -> Option<Logged> {
        let bits = self.byte()?;
        let low = self.byte()?;
        let side = usize::from(bits & bit::FROM);
        let delta = self.number()?;
        self.at.time_ns = self.at.time_ns.wrapping_add(delta);
        let delta = self.number()?;
        self.at.frame = self.at.frame.wrapping_add(delta);
        let before = self.at.sides[side];
        let sequence = before.sequence.wrapping_add(self.signed()?);
        let acknowledgment = before.acknowledgment.wrapping_add(self.signed()?);
        let window = before.window.wrapping_add(self.short()?);
        let payload_bytes = low32(self.number()?);
        let ip_id = before.ip_id.wrapping_add(self.short()?);
        let (mut value, mut echo) = (before.value, before.echo);
        if bits & bit::TIMESTAMPS != 0 {
            value = value.wrapping_add(self.signed()?);
            echo = echo.wrapping_add(self.signed()?);
        }
        let sack = self.sack(bits, acknowledgment)?;
        let syn = self.syn(bits)?;
        self.at.sides[side] = Before {
            sequence,
            acknowledgment,
            value,
            echo,
            window,
            ip_id,
        };
        let high = u16::from(bits & bit::ACCURATE_ECN != 0) << 8;
        Some(Logged {
            time_ns: self.at.time_ns,
            frame: self.at.frame,
            segment: Segment {
                flow: self.flow,
                from: bits & bit::FROM,
                sequence,
                acknowledgment,
                flags: Flags::from_bits(high | u16::from(low)),
                window,
                payload_bytes,
                ecn: (bits >> bit::ECN_SHIFT) & 3,
                ip_id,
                timestamps: (bits & bit::TIMESTAMPS != 0).then_some((value, echo)),
                sack,
                syn,
                options_cut: bits & bit::OPTIONS_CUT != 0,
                ..Segment::default()
            },
        })
    }
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Seven bits a byte, the lowest first (LEB128).
    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A difference modulo 2^32.
    fn signed(&mut self) -> Option<u32> {
        let folded = low32(self.number()?);
        Some((folded >> 1) ^ (folded & 1).wrapping_neg())
    }

    fn short(&mut self) -> Option<u16> {
        let number = self.signed()?;
        Some(u16::try_from(number & 0xffff).unwrap_or_default())
    }

    fn sack(&mut self, bits: u8, acknowledgment: u32) -> Option<SackBlocks> {
        if bits & bit::SACK == 0 {
            return Some(SackBlocks::default());
        }
        let count = usize::from(self.byte()?).min(SACK_BLOCKS_MAX);
        let mut blocks = [(0, 0); SACK_BLOCKS_MAX];
        for block in blocks.iter_mut().take(count) {
            let left = acknowledgment.wrapping_add(self.signed()?);
            *block = (left, left.wrapping_add(self.signed()?));
        }
        Some(SackBlocks::new(blocks.get(..count)?))
    }

    fn syn(&mut self, bits: u8) -> Option<SynOptions> {
        if bits & bit::SYN_OPTIONS == 0 {
            return Some(SynOptions::default());
        }
        let which = self.byte()?;
        Some(SynOptions {
            mss: if which & 1 != 0 {
                Some(self.short()?)
            } else {
                None
            },
            window_scale: if which & 2 != 0 {
                Some(self.byte()?)
            } else {
                None
            },
            sack_permitted: which & 4 != 0,
        })
    }
}

/// One packet being written.
struct Line {
    len: usize,
    bytes: [u8; LINE_BYTES_MAX],
}

impl Default for Line {
    fn default() -> Self {
        Self {
            len: 0,
            bytes: [0; LINE_BYTES_MAX],
        }
    }
}

impl Line {
    fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn number(&mut self, mut number: u64) {
        loop {
            let byte = u8::try_from(number & 0x7f).unwrap_or_default();
            number >>= 7;
            if number == 0 {
                return self.byte(byte);
            }
            self.byte(byte | 0x80);
        }
    }

    fn signed(&mut self, difference: u32) {
        let folded = (difference << 1) ^ (difference.cast_signed() >> 31).cast_unsigned();
        self.number(u64::from(folded));
    }

    fn short(&mut self, difference: u16) {
        self.signed(i32::from(difference.cast_signed()).cast_unsigned());
    }
}

fn write(line: &mut Line, at: &mut Context, time_ns: u64, frame: u64, segment: &Segment) {
    let sack = segment.sack.as_slice();
    let flags = segment.flags.bits();
    let has_syn = segment.syn != SynOptions::default();
    let mut bits = segment.from & bit::FROM;
    bits |= u8::from(segment.timestamps.is_some()) * bit::TIMESTAMPS;
    bits |= u8::from(!sack.is_empty()) * bit::SACK;
    bits |= u8::from(has_syn) * bit::SYN_OPTIONS;
    bits |= u8::from(segment.options_cut) * bit::OPTIONS_CUT;
    bits |= (segment.ecn & 3) << bit::ECN_SHIFT;
    bits |= u8::from(flags & 0x100 != 0) * bit::ACCURATE_ECN;
    line.byte(bits);
    line.byte(flags.to_le_bytes()[0]);
    line.number(time_ns.wrapping_sub(at.time_ns));
    line.number(frame.wrapping_sub(at.frame));
    let before = &mut at.sides[usize::from(segment.from & 1)];
    line.signed(segment.sequence.wrapping_sub(before.sequence));
    line.signed(segment.acknowledgment.wrapping_sub(before.acknowledgment));
    line.short(segment.window.wrapping_sub(before.window));
    line.number(u64::from(segment.payload_bytes));
    line.short(segment.ip_id.wrapping_sub(before.ip_id));
    if let Some((value, echo)) = segment.timestamps {
        line.signed(value.wrapping_sub(before.value));
        line.signed(echo.wrapping_sub(before.echo));
        (before.value, before.echo) = (value, echo);
    }
    if !sack.is_empty() {
        line.byte(u8::try_from(sack.len()).unwrap_or_default());
        for &(left, right) in sack {
            line.signed(left.wrapping_sub(segment.acknowledgment));
            line.signed(right.wrapping_sub(left));
        }
    }
    if has_syn {
        write_syn(line, segment.syn);
    }
    before.sequence = segment.sequence;
    before.acknowledgment = segment.acknowledgment;
    before.window = segment.window;
    before.ip_id = segment.ip_id;
    at.time_ns = time_ns;
    at.frame = frame;
}

fn write_syn(line: &mut Line, syn: SynOptions) {
    let has_mss = u8::from(syn.mss.is_some());
    let has_scale = u8::from(syn.window_scale.is_some());
    line.byte(has_mss | has_scale << 1 | u8::from(syn.sack_permitted) << 2);
    if let Some(mss) = syn.mss {
        line.short(mss);
    }
    if let Some(scale) = syn.window_scale {
        line.byte(scale);
    }
}

/// Bits of a packet's first byte.
mod bit {
    pub(super) const FROM: u8 = 1;
    pub(super) const TIMESTAMPS: u8 = 2;
    pub(super) const SACK: u8 = 4;
    pub(super) const SYN_OPTIONS: u8 = 8;
    pub(super) const OPTIONS_CUT: u8 = 16;
    pub(super) const ECN_SHIFT: u8 = 5;
    pub(super) const ACCURATE_ECN: u8 = 128;
}

/// Chosen for some 20 packets, so that a connection without more takes less than 700 B.
const CAPACITY_BYTES: usize = 440;
/// Two bytes of flags, two numbers of 10 B, four of 5 B, two of 3 B, two timestamps, four SACK
/// blocks and their count, a SYN's options.
const LINE_BYTES_MAX: usize = 2 + 20 + 20 + 6 + 10 + 41 + 5;
/// A line of a processor's cache.
const LINE_BYTES: usize = 64;
/// What most packets take at most.
const LINE_BYTES_COMMON: usize = 32;
/// As many as fit a header (RFC 2018 section 3).
const SACK_BLOCKS_MAX: usize = 4;

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any segment of a flow, as far as the log keeps it.
    pub(crate) fn any_segment() -> impl Strategy<Value = Segment> {
        let numbers = any::<(bool, u32, u32, u16, u16, u16)>();
        let payload = prop_oneof![Just(0), Just(1), 0_u32..3_000, any::<u32>()];
        let options = any::<(Option<(u32, u32)>, Option<u16>, Option<u8>, bool, bool, u8)>();
        let sack = prop::collection::vec(any::<(u32, u32)>(), 0..5);
        (numbers, payload, options, sack).prop_map(|(n, payload_bytes, o, sack)| Segment {
            from: u8::from(n.0),
            sequence: n.1,
            acknowledgment: n.2,
            flags: Flags::from_bits(n.3),
            window: n.4,
            ip_id: n.5,
            payload_bytes,
            timestamps: o.0,
            syn: SynOptions {
                mss: o.1,
                window_scale: o.2,
                sack_permitted: o.3,
            },
            options_cut: o.4,
            ecn: o.5 & 3,
            sack: SackBlocks::new(&sack),
            ..Segment::default()
        })
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(
            packets in prop::collection::vec((any::<u64>(), any::<u64>(), any_segment()), 0..40),
        ) {
            let mut log = Log::new();
            let mut written = Vec::new();
            for (time_ns, frame, segment) in packets {
                if log.push(time_ns, frame, &segment) {
                    written.push(Logged { time_ns, frame, segment });
                }
            }
            let read: Vec<Logged> = log.read(FlowKey::default()).collect();
            prop_assert_eq!(read, written);
        }
    }

    #[test]
    fn twenty_packets_of_a_common_connection_fit() {
        let mut log = Log::new();
        let mut count = 0_u32;
        loop {
            let data = Segment {
                sequence: 77_000 + count * 1_448,
                acknowledgment: 5_000,
                flags: Flags::ACK,
                window: 502,
                payload_bytes: 1_448,
                ip_id: u16::try_from(count).unwrap(),
                timestamps: Some((1_000_000 + count, 2_000_000 + count)),
                ..Segment::default()
            };
            let time_ns = 1_700_000_000_000_000_000 + u64::from(count) * 1_200_000;
            if !log.push(time_ns, 5_000 + u64::from(count), &data) {
                break;
            }
            count += 1;
        }
        assert!((20..40).contains(&count), "{count}");
    }
}
