//! The packets of a connection in some 15 B each.
//!
//! Most connections are short, and a million of them are to fit into a gigabyte. So a connection is
//! at first no more than what its packets said, written as differences to what its side was expected to say.
//! It is read back through the analysis when it has become long, or when it ends. Hops left and the IP
//! packet's length are left out.
//!
//! Each line begins with a word that says what is in it and how long its numbers are, so that writing and
//! reading are a dozen loads and stores of eight bytes that do not wait for each other. Lines lie in chunks of
//! two lines of a cache, which all connections take from one [`Store`]; a line is in one chunk.

use wire::segment::{FlowKey, Segment, SynOptions};
use wire::tcp::{Flags, SackBlocks};

use crate::trace::number::low32;
use crate::trace::table::NONE;

/// Chunks for all logs of a tracker.
#[derive(Debug)]
pub(crate) struct Store {
    blocks: Vec<Vec<Chunk>>,
    /// The first of those that no log has; each says which is next.
    free: u32,
}

/// Where lines are written.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Chunk {
    next: u32,
    /// Bytes that were written, in all but a log's last one.
    len: u8,
    bytes: [u8; CHUNK_BYTES],
}

/// Packets as they came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    first: u32,
    last: u32,
    chunks: u16,
    /// Bytes of the last chunk.
    len: u8,
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
pub(crate) struct Context {
    time_ns: u64,
    frame: u64,
    sides: [Before; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// One past what it has sent.
    next: u32,
    acknowledgment: u32,
    value: u32,
    echo: u32,
    payload_bytes: u32,
    window: u16,
    ip_id: u16,
}

/// Reads the packets of a log in their order.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    store: &'a Store,
    log: Log,
    flow: FlowKey,
    context: Context,
    /// The present chunk, so much of it, and what was read of that.
    chunk: u32,
    len: usize,
    at: usize,
    bytes: [u8; CHUNK_BYTES + PAD_BYTES],
}

impl Context {
    /// A number of it; those of a line of memory come in together.
    #[inline]
    pub(crate) const fn fetch(&self) -> u64 {
        self.time_ns
    }
}

impl Store {
    pub(crate) const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            free: NONE,
        }
    }

    /// No chunk is left.
    #[inline]
    pub(crate) const fn is_used_up(&self) -> bool {
        self.free == NONE
    }

    /// Makes more chunks.
    #[cold]
    pub(crate) fn grow(&mut self) {
        let from = self.blocks.len() * BLOCK;
        let number = |n: usize| u32::try_from(from + n).unwrap_or(NONE);
        let chunk = |n: usize| Chunk {
            next: if n < BLOCK { number(n) } else { self.free },
            len: 0,
            bytes: [0; CHUNK_BYTES],
        };
        self.blocks.push((1..=BLOCK).map(chunk).collect());
        self.free = number(0);
    }

    /// Memory that it takes.
    pub(crate) const fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    #[inline]
    fn take(&mut self) -> Option<u32> {
        let chunk = self.free;
        self.free = self.get(chunk)?.next;
        Some(chunk)
    }

    /// Takes back a row of chunks.
    fn give_back(&mut self, first: u32, last: u32) {
        let free = self.free;
        if let Some(chunk) = self.get_mut(last) {
            chunk.next = free;
            self.free = first;
        }
    }

    #[inline]
    fn get(&self, chunk: u32) -> Option<&Chunk> {
        let chunk = chunk as usize;
        self.blocks.get(chunk / BLOCK)?.get(chunk % BLOCK)
    }

    #[inline]
    fn get_mut(&mut self, chunk: u32) -> Option<&mut Chunk> {
        let chunk = chunk as usize;
        self.blocks.get_mut(chunk / BLOCK)?.get_mut(chunk % BLOCK)
    }
}

impl Log {
    /// Without packets and chunks.
    pub(crate) const NONE: Self = Self {
        first: NONE,
        last: NONE,
        chunks: 0,
        len: 0,
    };

    /// One without packets; it has a chunk if there is one.
    pub(crate) fn new(store: &mut Store) -> Self {
        let first = store.take().unwrap_or(NONE);
        Self {
            first,
            last: first,
            chunks: 1,
            len: 0,
        }
    }

    /// Neither packets nor more than the chunk that it keeps.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties it.
    pub(crate) fn clear(&mut self, store: &mut Store) {
        if self.first != self.last {
            let second = store.get(self.first).map_or(NONE, |chunk| chunk.next);
            store.give_back(second, self.last);
        }
        (self.last, self.chunks, self.len) = (self.first, 1, 0);
    }

    /// Gives all of its chunks back.
    pub(crate) fn close(&mut self, store: &mut Store) {
        store.give_back(self.first, self.last);
        *self = Self::NONE;
    }

    /// Puts a packet at the end; false when there is no chunk for it or it has `chunks_max` of them, and then
    /// nothing has changed.
    #[inline]
    pub(crate) fn push(
        &mut self,
        store: &mut Store,
        context: &mut Context,
        chunks_max: u16,
        (time_ns, frame, segment): (u64, u64, &Segment),
    ) -> bool {
        let mut line = Line::default();
        let mut after = *context;
        write(&mut line, &mut after, time_ns, frame, segment);
        let from = usize::from(self.len);
        if from + line.len > CHUNK_BYTES && !self.extend(store, chunks_max) {
            return false;
        }
        let from = usize::from(self.len);
        let Some(chunk) = store.get_mut(self.last) else {
            return false;
        };
        let common = chunk.bytes.get_mut(from..from + LINE_BYTES_COMMON);
        if let Some(room) = common.filter(|_| line.len <= LINE_BYTES_COMMON) {
            room.copy_from_slice(&line.bytes[..LINE_BYTES_COMMON]);
        } else {
            chunk.bytes[from..from + line.len].copy_from_slice(&line.bytes[..line.len]);
        }
        self.len = u8::try_from(from + line.len).unwrap_or(u8::MAX);
        *context = after;
        true
    }

    fn extend(&mut self, store: &mut Store, chunks_max: u16) -> bool {
        if self.chunks >= chunks_max {
            return false;
        }
        let Some(next) = store.take() else {
            return false;
        };
        if let Some(chunk) = store.get_mut(self.last) {
            (chunk.next, chunk.len) = (next, self.len);
        }
        (self.last, self.len) = (next, 0);
        self.chunks += 1;
        true
    }

    /// A packet more, and it may have `chunks_max` of chunks, and these full.
    #[inline]
    pub(crate) const fn is_nearly_full(&self, chunks_max: u16) -> bool {
        self.chunks >= chunks_max && self.len as usize + LINE_BYTES_COMMON > CHUNK_BYTES
    }

    /// A byte of where the next packet is written.
    #[inline]
    pub(crate) fn fetch(&self, store: &Store) -> u64 {
        let chunk = store.get(self.last);
        let next = chunk.and_then(|chunk| chunk.bytes.get(usize::from(self.len)));
        next.copied().map_or(0, u64::from)
    }

    /// Its first chunk.
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn read<'a>(&self, store: &'a Store, flow: FlowKey) -> Reader<'a> {
        let mut reader = Reader {
            store,
            log: *self,
            flow,
            context: Context::default(),
            chunk: NONE,
            len: 0,
            at: 0,
            bytes: [0; CHUNK_BYTES + PAD_BYTES],
        };
        reader.open(self.first);
        reader
    }
}

impl Store {
    /// Reads a chunk's two lines of a cache; the number means nothing. And the chunk behind it.
    pub(crate) fn fetch(&self, chunk: u32) -> (u64, u32) {
        self.get(chunk).map_or((0, NONE), |chunk| {
            (u64::from(chunk.bytes[CHUNK_BYTES - 1]), chunk.next)
        })
    }
}

impl Reader<'_> {
    /// Goes on with this chunk.
    fn open(&mut self, number: u32) {
        let Some(chunk) = self.store.get(number) else {
            return;
        };
        self.bytes[..CHUNK_BYTES].copy_from_slice(&chunk.bytes);
        self.chunk = number;
        self.at = 0;
        self.len = usize::from(match number == self.log.last {
            true => self.log.len,
            false => chunk.len,
        });
    }

    /// The next packet into `segment`, with its time and number.
    #[inline]
    pub(crate) fn next_into(&mut self, segment: &mut Segment) -> Option<(u64, u64)> {
        if self.at >= self.len {
            if self.chunk == self.log.last {
                return None;
            }
            let next = self.store.get(self.chunk)?.next;
            self.open(next);
            if self.len == 0 {
                return None;
            }
        }
        let bits = low32(self.number(4));
        let length = |shift: u32| bits >> shift & 3;
        let side = (bits & bit::FROM) as usize;
        let time_ns = self.number(TIME_BYTES[length(bit::TIME) as usize]);
        let frame = self.number(FRAME_BYTES[length(bit::FRAME) as usize]);
        let sequence = self.signed(1 << length(bit::SEQUENCE) >> 1);
        let acknowledgment = self.signed(1 << length(bit::ACKNOWLEDGMENT) >> 1);
        let payload = low32(self.number(1 << length(bit::PAYLOAD) >> 1));
        let context = &mut self.context;
        context.time_ns = context.time_ns.wrapping_add(time_ns);
        context.frame = context.frame.wrapping_add(frame);
        let before = context.sides[side];
        let mut now = Before {
            next: before.next.wrapping_add(sequence),
            acknowledgment: before.acknowledgment.wrapping_add(acknowledgment),
            ..before
        };
        if length(bit::PAYLOAD) != 0 {
            now.payload_bytes = payload;
        }
        if bits & bit::WINDOW != 0 {
            now.window = self.short();
        }
        match length(bit::IP_ID) {
            0 => {}
            1 => now.ip_id = now.ip_id.wrapping_add(1),
            _ => now.ip_id = self.short(),
        }
        segment.timestamps = None;
        if bits & bit::TIMESTAMPS != 0 {
            let bytes = 1 << length(bit::CLOCKS) >> 1;
            now.value = now.value.wrapping_add(self.signed(bytes));
            now.echo = now.echo.wrapping_add(self.signed(bytes));
            segment.timestamps = Some((now.value, now.echo));
        }
        segment.sack = SackBlocks::default();
        segment.syn = SynOptions::default();
        if bits & (bit::SACK | bit::SYN_OPTIONS) != 0 {
            segment.sack = self.sack(bits);
            segment.syn = self.syn(bits);
        }
        let flags = u16::try_from(bits >> bit::FLAGS & 0x1ff).unwrap_or_default();
        segment.flow = self.flow;
        segment.from = u8::from(side == 1);
        segment.sequence = now.next;
        segment.acknowledgment = now.acknowledgment;
        segment.flags = Flags::from_bits(flags);
        segment.window = now.window;
        segment.payload_bytes = now.payload_bytes;
        segment.ecn = u8::try_from(bits >> bit::ECN & 3).unwrap_or_default();
        segment.ip_id = now.ip_id;
        segment.options_cut = bits & bit::OPTIONS_CUT != 0;
        now.next = end(segment);
        self.context.sides[side] = now;
        Some((self.context.time_ns, self.context.frame))
    }

    /// A number of so many bytes, eight at most.
    #[inline]
    fn number(&mut self, bytes: usize) -> u64 {
        let eight = self.bytes.get(self.at..self.at + 8);
        let eight = eight.and_then(|e| e.try_into().ok());
        self.at += bytes;
        eight.map_or(0, u64::from_le_bytes) & MASKS[bytes & 15]
    }

    /// A difference modulo 2^32.
    #[inline]
    fn signed(&mut self, bytes: usize) -> u32 {
        let folded = low32(self.number(bytes));
        (folded >> 1) ^ (folded & 1).wrapping_neg()
    }

    fn short(&mut self) -> u16 {
        u16::try_from(self.number(2)).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.number(1)).unwrap_or_default()
    }

    #[cold]
    fn sack(&mut self, bits: u32) -> SackBlocks {
        if bits & bit::SACK == 0 {
            return SackBlocks::default();
        }
        let count = usize::from(self.byte()).min(SACK_BLOCKS_MAX);
        let mut blocks = [(0, 0); SACK_BLOCKS_MAX];
        for block in blocks.iter_mut().take(count) {
            *block = (low32(self.number(4)), low32(self.number(4)));
        }
        SackBlocks::new(blocks.get(..count).unwrap_or_default())
    }

    #[cold]
    fn syn(&mut self, bits: u32) -> SynOptions {
        if bits & bit::SYN_OPTIONS == 0 {
            return SynOptions::default();
        }
        let which = self.byte();
        SynOptions {
            mss: (which & 1 != 0).then(|| self.short()),
            window_scale: (which & 2 != 0).then(|| self.byte()),
            sack_permitted: which & 4 != 0,
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Logged;

    fn next(&mut self) -> Option<Logged> {
        let mut segment = Segment::default();
        let (time_ns, frame) = self.next_into(&mut segment)?;
        Some(Logged {
            time_ns,
            frame,
            segment,
        })
    }
}

/// One packet being written.
struct Line {
    len: usize,
    bytes: [u8; LINE_BYTES_MAX + PAD_BYTES],
}

impl Default for Line {
    fn default() -> Self {
        Self {
            len: 4,
            bytes: [0; LINE_BYTES_MAX + PAD_BYTES],
        }
    }
}

impl Line {
    #[inline]
    fn number(&mut self, number: u64, bytes: usize) {
        self.bytes[self.len..self.len + 8].copy_from_slice(&number.to_le_bytes());
        self.len += bytes;
    }

    /// A difference modulo 2^32 in 0, 1, 2 or 4 bytes; which.
    #[inline]
    fn signed(&mut self, difference: u32) -> u32 {
        let folded = fold(difference);
        let length = length(folded);
        self.number(u64::from(folded), 1 << length >> 1);
        length
    }
}

/// Differences near zero, whatever their sign, to small numbers.
#[inline]
const fn fold(difference: u32) -> u32 {
    (difference << 1) ^ (difference.cast_signed() >> 31).cast_unsigned()
}

/// 0, 1, 2 or 3 for a number that needs 0, 1, 2 or 4 bytes.
#[inline]
fn length(number: u32) -> u32 {
    u32::from(number > 0) + u32::from(number > 0xff) + u32::from(number > 0xffff)
}

/// One past what a segment takes of its sender's numbers.
#[inline]
fn end(segment: &Segment) -> u32 {
    let flag = |flag| u32::from(segment.flags.contains(flag));
    let flags = flag(Flags::SYN) + flag(Flags::FIN);
    let end = segment.sequence.wrapping_add(segment.payload_bytes);
    end.wrapping_add(flags)
}

#[inline]
fn write(line: &mut Line, at: &mut Context, time_ns: u64, frame: u64, segment: &Segment) {
    let side = u32::from(segment.from & 1);
    let mut bits = side | u32::from(segment.flags.bits() & 0x1ff) << bit::FLAGS;
    bits |= u32::from(segment.ecn & 3) << bit::ECN;
    bits |= u32::from(segment.options_cut) * bit::OPTIONS_CUT;
    let past = time_ns.wrapping_sub(at.time_ns);
    let more = |than: u64| u32::from(past > than);
    let code = more(0xffff) + more(0xff_ffff) + more(0xffff_ffff);
    line.number(past, TIME_BYTES[code as usize]);
    bits |= code << bit::TIME;
    let past = frame.wrapping_sub(at.frame);
    let more = |than: u64| u32::from(past > than);
    let code = more(0xff) + more(0xffff) + more(0xff_ffff);
    line.number(past, FRAME_BYTES[code as usize]);
    bits |= code << bit::FRAME;
    let before = &mut at.sides[side as usize];
    bits |= line.signed(segment.sequence.wrapping_sub(before.next)) << bit::SEQUENCE;
    let acked = segment.acknowledgment.wrapping_sub(before.acknowledgment);
    bits |= line.signed(acked) << bit::ACKNOWLEDGMENT;
    let payload = segment.payload_bytes;
    if payload != before.payload_bytes {
        let code = length(payload).max(1);
        line.number(u64::from(payload), 1 << code >> 1);
        bits |= code << bit::PAYLOAD;
    }
    if segment.window != before.window {
        line.number(u64::from(segment.window), 2);
        bits |= bit::WINDOW;
    }
    match segment.ip_id.wrapping_sub(before.ip_id) {
        0 => {}
        1 => bits |= 1 << bit::IP_ID,
        _ => {
            line.number(u64::from(segment.ip_id), 2);
            bits |= 2 << bit::IP_ID;
        }
    }
    if let Some((value, echo)) = segment.timestamps {
        let clocks = [
            fold(value.wrapping_sub(before.value)),
            fold(echo.wrapping_sub(before.echo)),
        ];
        let code = length(clocks[0] | clocks[1]);
        line.number(u64::from(clocks[0]), 1 << code >> 1);
        line.number(u64::from(clocks[1]), 1 << code >> 1);
        bits |= bit::TIMESTAMPS | code << bit::CLOCKS;
        (before.value, before.echo) = (value, echo);
    }
    let has_sack = !segment.sack.as_slice().is_empty();
    let has_syn = segment.syn != SynOptions::default();
    if has_sack || has_syn {
        bits |= write_more(line, segment, has_sack, has_syn);
    }
    line.bytes[..4].copy_from_slice(&bits.to_le_bytes());
    before.next = end(segment);
    before.acknowledgment = segment.acknowledgment;
    before.payload_bytes = payload;
    before.window = segment.window;
    before.ip_id = segment.ip_id;
    at.time_ns = time_ns;
    at.frame = frame;
}

/// What few packets have; the bits that say so.
#[cold]
fn write_more(line: &mut Line, segment: &Segment, has_sack: bool, has_syn: bool) -> u32 {
    let mut bits = 0;
    if has_sack {
        bits |= bit::SACK;
        let sack = segment.sack.as_slice();
        line.number(sack.len() as u64, 1);
        for &(left, right) in sack {
            line.number(u64::from(left), 4);
            line.number(u64::from(right), 4);
        }
    }
    if has_syn {
        bits |= bit::SYN_OPTIONS;
        let syn = segment.syn;
        let has_mss = u64::from(syn.mss.is_some());
        let has_scale = u64::from(syn.window_scale.is_some());
        let which = has_mss | has_scale << 1 | u64::from(syn.sack_permitted) << 2;
        line.number(which, 1);
        if let Some(mss) = syn.mss {
            line.number(u64::from(mss), 2);
        }
        if let Some(scale) = syn.window_scale {
            line.number(u64::from(scale), 1);
        }
    }
    bits
}

/// A line's first word: bits, and where those begin that say how long a number is.
mod bit {
    pub(super) const FROM: u32 = 1;
    pub(super) const TIMESTAMPS: u32 = 1 << 1;
    pub(super) const SACK: u32 = 1 << 2;
    pub(super) const SYN_OPTIONS: u32 = 1 << 3;
    pub(super) const OPTIONS_CUT: u32 = 1 << 4;
    pub(super) const WINDOW: u32 = 1 << 5;
    pub(super) const ECN: u32 = 6;
    pub(super) const FLAGS: u32 = 8;
    pub(super) const TIME: u32 = 17;
    pub(super) const FRAME: u32 = 19;
    pub(super) const SEQUENCE: u32 = 21;
    pub(super) const ACKNOWLEDGMENT: u32 = 23;
    pub(super) const PAYLOAD: u32 = 25;
    pub(super) const IP_ID: u32 = 27;
    pub(super) const CLOCKS: u32 = 29;
}

/// How long times and numbers of frames may be.
const TIME_BYTES: [usize; 4] = [2, 3, 4, 8];
const FRAME_BYTES: [usize; 4] = [1, 2, 3, 8];
/// The low bytes of a number, by how many; more than eight there never are.
const MASKS: [u64; 16] = {
    let mut masks = [u64::MAX; 16];
    let mut bytes = 0;
    while bytes < 8 {
        masks[bytes] = (1 << (8 * bytes)) - 1;
        bytes += 1;
    }
    masks
};
/// Two lines of a processor's cache, less which chunk is next and how much is in this one.
const CHUNK_BYTES: usize = 128 - 5;
/// Chunks of one allocation, 64 KiB.
const BLOCK: usize = 512;
const BLOCK_BYTES: usize = BLOCK * size_of::<Chunk>();
/// The word, time and frame, five numbers of 4 B, two of 2 B, a count and four SACK blocks, a SYN's
/// options; they fit into a chunk.
const LINE_BYTES_MAX: usize = 4 + 16 + 20 + 4 + 33 + 4;
const _: () = assert!(LINE_BYTES_MAX <= CHUNK_BYTES && CHUNK_BYTES < 256);
/// What is written and read at a time beyond a number.
const PAD_BYTES: usize = 8;
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
            let mut store = Store::new();
            store.grow();
            let (mut log, mut context) = (Log::new(&mut store), Context::default());
            let mut written = Vec::new();
            for (time_ns, frame, segment) in packets {
                let line = (time_ns, frame, &segment);
                if log.push(&mut store, &mut context, 20, line) {
                    written.push(Logged { time_ns, frame, segment });
                }
            }
            let read: Vec<Logged> = log.read(&store, FlowKey::default()).collect();
            prop_assert_eq!(read, written);
        }
    }

    #[test]
    fn a_packet_of_a_common_connection_takes_some_fifteen_bytes() {
        let mut store = Store::new();
        store.grow();
        let (mut log, mut context) = (Log::new(&mut store), Context::default());
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
            let time_ns = 1_700_000_000_000_000_000 + u64::from(count) * 120_000_000;
            let line = (time_ns, u64::from(count) * 70_000, &data);
            if !log.push(&mut store, &mut context, 10, line) {
                break;
            }
            count += 1;
        }
        assert!((80..90).contains(&count), "{count}");
    }

    #[test]
    fn chunks_that_are_given_back_are_used_again() {
        let mut store = Store::new();
        store.grow();
        let segment = Segment::default();
        for _ in 0..3 {
            let (mut log, mut context) = (Log::new(&mut store), Context::default());
            let mut push = |log: &mut Log, store: &mut Store| {
                (0..)
                    .take_while(|n| log.push(store, &mut context, u16::MAX, (*n, *n, &segment)))
                    .count()
            };
            let count = push(&mut log, &mut store);
            assert!(store.is_used_up() && count > BLOCK * 10);
            log.clear(&mut store);
            assert!(log.is_empty() && log.read(&store, FlowKey::default()).next().is_none());
            assert_eq!(push(&mut log, &mut store) / 100, count / 100);
            log.close(&mut store);
            assert_eq!(store.bytes(), BLOCK_BYTES);
        }
    }
}
