//! The compact log of what became of each frame: blocks of bytes, written and read in place.
//!
//! A file is [`MAGIC`], then blocks of `[u32 type][u32 payload bytes][payload]`, each padded with
//! zeros to a multiple of eight bytes. All numbers are little-endian. Type 1 is the legend (JSON,
//! opaque here), 2 a frame at ingress, 3 decisions, 4 the end. A reader skips types that it does
//! not know and bytes after the fields that it knows, so both can be added later. A file without an
//! end was interrupted; what stands before is good.
//!
//! Nothing here allocates, and no bytes make the reader panic. Left out: compression (a block of
//! rows is read in place) and an index (both passes of a converter read the whole file anyway).

use std::fmt;

use units::Instant;

use crate::event::{Decision, Event};

/// What was decided on a run of segments. A number, since a newer writer may know more: 1..=31 are
/// no drops, 32..=63 are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u8);

impl Code {
    /// Took its place in a queue.
    pub const QUEUED: Self = Self(1);
    /// Was taken from a queue to be sent.
    pub const SERVED: Self = Self(2);
    /// Was marked Congestion Experienced (RFC 3168).
    pub const MARKED: Self = Self(3);
    /// Is settled: leaves the link at its departure.
    pub const SCHEDULED: Self = Self(4);
    /// Left by a port.
    pub const DELIVERED: Self = Self(5);
    /// Was sent twice.
    pub const DUPLICATED: Self = Self(6);
    /// Had bits turned over.
    pub const CORRUPTED: Self = Self(7);
    /// A switch or router chose its link.
    pub const FORWARDED: Self = Self(8);
    /// A copy went to a mirror port.
    pub const MIRRORED: Self = Self(9);
    /// Headers were changed.
    pub const REWRITTEN: Self = Self(10);
    /// A router sent it on as fragments, `detail` of them.
    pub const FRAGMENTED: Self = Self(11);
    /// Is a fragment of frame number `detail`, modulo 2^32.
    pub const FRAGMENT: Self = Self(12);
    /// Collided and will be sent again; the row's detail is the number of the attempt.
    pub const COLLIDED: Self = Self(13);
    /// Lost at random, each on its own.
    pub const LOST_RANDOM: Self = Self(32);
    /// Lost in a burst.
    pub const LOST_BURST: Self = Self(33);
    /// Lost since every n-th is.
    pub const LOST_PERIODIC: Self = Self(34);
    /// Lost since a list said so.
    pub const LOST_LISTED: Self = Self(35);
    /// The queue had no room.
    pub const QUEUE_FULL: Self = Self(36);
    /// An active queue management dropped it.
    pub const EARLY_DROP: Self = Self(37);
    /// Over a policer's rate.
    pub const POLICED: Self = Self(38);
    /// The link was down.
    pub const OUTAGE: Self = Self(39);
    /// Arrived damaged since the receiver, half duplex, was sending itself.
    pub const COLLISION_FCS: Self = Self(40);
    /// A rule said so.
    pub const FILTERED: Self = Self(41);
    /// Larger than the link carries.
    pub const TOO_BIG: Self = Self(42);
    /// A middlebox swallowed it.
    pub const MIDDLEBOX: Self = Self(43);
    /// The time to live ran out.
    pub const TTL_EXCEEDED: Self = Self(44);
    /// No way to its destination.
    pub const NO_ROUTE: Self = Self(45);
    /// The lab itself had no memory for it.
    pub const LAB_MEMORY: Self = Self(46);
    /// Above the rate that one flow is allowed.
    pub const FLOW_CAP: Self = Self(47);
    /// A host or box could not handle so many packets a second.
    pub const BUDGET_FULL: Self = Self(48);
    /// Beyond its queue's part of a shared buffer, which was `detail` bytes.
    pub const SHARED_BUFFER: Self = Self(49);
    /// Collided after the slot time.
    pub const LATE_COLLISION: Self = Self(50);
    /// Collided at every attempt.
    pub const EXCESSIVE_COLLISIONS: Self = Self(51);

    /// All codes with the names that files and tables use.
    pub const NAMES: [(Self, &'static str); 33] = [
        (Self::QUEUED, "queued"),
        (Self::SERVED, "served"),
        (Self::MARKED, "marked"),
        (Self::SCHEDULED, "scheduled"),
        (Self::DELIVERED, "delivered"),
        (Self::DUPLICATED, "duplicated"),
        (Self::CORRUPTED, "corrupted"),
        (Self::FORWARDED, "forwarded"),
        (Self::MIRRORED, "mirrored"),
        (Self::REWRITTEN, "rewritten"),
        (Self::FRAGMENTED, "fragmented"),
        (Self::FRAGMENT, "fragment"),
        (Self::COLLIDED, "collided"),
        (Self::LOST_RANDOM, "lost_random"),
        (Self::LOST_BURST, "lost_burst"),
        (Self::LOST_PERIODIC, "lost_periodic"),
        (Self::LOST_LISTED, "lost_listed"),
        (Self::QUEUE_FULL, "queue_full"),
        (Self::EARLY_DROP, "early_drop"),
        (Self::POLICED, "policed"),
        (Self::OUTAGE, "outage"),
        (Self::COLLISION_FCS, "collision_fcs"),
        (Self::FILTERED, "filtered"),
        (Self::TOO_BIG, "too_big"),
        (Self::MIDDLEBOX, "middlebox"),
        (Self::TTL_EXCEEDED, "ttl_exceeded"),
        (Self::NO_ROUTE, "no_route"),
        (Self::LAB_MEMORY, "lab_memory"),
        (Self::FLOW_CAP, "flow_cap"),
        (Self::BUDGET_FULL, "budget_full"),
        (Self::SHARED_BUFFER, "shared_buffer"),
        (Self::LATE_COLLISION, "late_collision"),
        (Self::EXCESSIVE_COLLISIONS, "excessive_collisions"),
    ];

    /// The name, where this version knows the code.
    pub fn name(self) -> Option<&'static str> {
        let known = Self::NAMES.iter().find(|(code, _)| *code == self);
        known.map(|(_, name)| *name)
    }

    /// The code of that name.
    pub fn named(name: &str) -> Option<Self> {
        let known = Self::NAMES.iter().find(|(_, known)| *known == name);
        known.map(|(code, _)| *code)
    }

    /// True when the segments end here.
    pub const fn is_drop(self) -> bool {
        self.0 >= 32 && self.0 < 64
    }

    /// True for what queues decide: taken in, served, turned away or thrown out. A queue that
    /// drops what it took in before (CoDel, and the ends of a shared medium) says both.
    pub const fn is_by_queue(self) -> bool {
        matches!(
            self,
            Self::QUEUED
                | Self::SERVED
                | Self::QUEUE_FULL
                | Self::EARLY_DROP
                | Self::BUDGET_FULL
                | Self::SHARED_BUFFER
                | Self::LATE_COLLISION
                | Self::EXCESSIVE_COLLISIONS
        )
    }
}

/// One decision on a run of segments that share their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When the run's first segment reached the stage.
    pub time: Instant,
    /// From one segment's arrival to the next one's, femtoseconds; 0 when they came together.
    pub time_step_fs: u64,
    /// When the first segment leaves; `Instant::MAX` when there is no departure to tell.
    pub departs: Instant,
    /// From one departure to the next, femtoseconds.
    pub departs_step_fs: u64,
    /// Number of the frame.
    pub frame: u64,
    /// Bytes in the queue as the decision saw them; 0 where there is no queue.
    pub queue_bytes: u64,
    /// Packets likewise.
    pub queue_packets: u32,
    /// Bytes of each segment on the wire: preamble, frame, FCS and gap.
    pub wire_bytes: u32,
    /// First segment of the run within the frame.
    pub first: u16,
    /// Number of segments.
    pub count: u16,
    /// Number of the link in the legend, or [`NO_LINK`].
    pub link: u16,
    /// Number of the stage within the link.
    pub stage: u8,
    /// What was decided.
    pub decision: Code,
    /// Hash of the flow.
    pub flow: u32,
    /// What else there is to say; its meaning hangs on the decision.
    pub detail: u32,
}

/// One segment of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSegment {
    /// Index within the frame.
    pub segment: u32,
    /// When it reached the stage.
    pub time: Instant,
    /// When it leaves, if that is known.
    pub departs: Option<Instant>,
}

impl Row {
    /// The row of an event on link number `link` about the frame numbered `frame`: the train's handle
    /// is the driver's and may be used again.
    pub fn of(event: &Event, link: u16, frame: u64) -> Self {
        let train = &event.train;
        let (departs, departs_step_fs, queue_bytes, queue_packets) = match event.decision {
            Decision::Queued {
                queue_bytes,
                queue_packets,
            }
            | Decision::Marked {
                queue_bytes,
                queue_packets,
            }
            | Decision::Dropped {
                queue_bytes,
                queue_packets,
                ..
            } => (Instant::MAX, 0, queue_bytes, queue_packets),
            Decision::Served {
                departs,
                spacing,
                queue_bytes,
                queue_packets,
            } => (departs, spacing.step_fs(), queue_bytes, queue_packets),
            Decision::Scheduled { departs } => (departs, train.spacing.step_fs(), 0, 0),
            _ => (Instant::MAX, 0, 0, 0),
        };
        let detail = match event.decision {
            Decision::Collided { attempt } => attempt,
            Decision::Dropped { limit_bytes, .. } => u32::try_from(limit_bytes).unwrap_or(u32::MAX),
            _ => 0,
        };
        Self {
            time: train.at,
            time_step_fs: train.spacing.step_fs(),
            departs,
            departs_step_fs,
            frame,
            queue_bytes,
            queue_packets,
            wire_bytes: train.wire_bytes,
            first: train.first,
            count: train.count,
            link,
            stage: event.stage,
            decision: Code(event.decision.code()),
            flow: train.flow,
            detail,
        }
    }

    /// Writes the row.
    pub fn encode(&self, out: &mut [u8; ROW_BYTES]) {
        let mut to = Put::new(out);
        to.u64(self.time.as_ns());
        to.u64(self.time_step_fs);
        to.u64(self.departs.as_ns());
        to.u64(self.departs_step_fs);
        to.u64(self.frame);
        to.u64(self.queue_bytes);
        to.u32(self.queue_packets);
        to.u32(self.wire_bytes);
        to.u16(self.first);
        to.u16(self.count);
        to.u16(self.link);
        to.bytes(&[self.stage, self.decision.0]);
        to.u32(self.flow);
        to.u32(self.detail);
    }

    /// Reads a row; every pattern of bytes is one.
    pub fn decode(bytes: &[u8; ROW_BYTES]) -> Self {
        let mut from = Take::new(bytes);
        Self {
            time: Instant::from_ns(from.u64()),
            time_step_fs: from.u64(),
            departs: Instant::from_ns(from.u64()),
            departs_step_fs: from.u64(),
            frame: from.u64(),
            queue_bytes: from.u64(),
            queue_packets: from.u32(),
            wire_bytes: from.u32(),
            first: from.u16(),
            count: from.u16(),
            link: from.u16(),
            stage: from.u8(),
            decision: Code(from.u8()),
            flow: from.u32(),
            detail: from.u32(),
        }
    }

    /// The run's segments one by one, with their times rounded down to nanoseconds.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = RowSegment> + use<> {
        let row = *self;
        (0..row.count).map(move |k| row.segment(k))
    }

    /// Segment `k` of the run, from 0.
    pub fn segment(&self, k: u16) -> RowSegment {
        RowSegment {
            segment: u32::from(self.first) + u32::from(k),
            time: later(self.time, self.time_step_fs, k),
            departs: (self.departs != Instant::MAX)
                .then(|| later(self.departs, self.departs_step_fs, k)),
        }
    }
}

/// `at` and `k` steps of `step_fs` femtoseconds; saturates.
fn later(at: Instant, step_fs: u64, k: u16) -> Instant {
    let ns = u128::from(step_fs) * u128::from(k) / FS_PER_NS;
    let ns = u64::try_from(ns).unwrap_or(u64::MAX);
    Instant::from_ns(at.as_ns().saturating_add(ns))
}

/// A frame as it came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRecord<'a> {
    /// The kernel's receive stamp on the monotonic clock.
    pub time: Instant,
    /// The frame's number, unique in the file.
    pub number: u64,
    /// Number of the port in the legend.
    pub port: u16,
    /// Segments that the wire would carry.
    pub segments: u16,
    /// Bytes of the whole frame from its Ethernet header, without check sequence.
    pub frame_bytes: u32,
    /// Payload bytes of each segment but the last; 0 when the frame is one segment.
    pub segment_payload_bytes: u16,
    /// Bytes before the payload.
    pub header_bytes: u16,
    /// Hash of the flow.
    pub flow: u32,
    /// The frame's first bytes, at most [`CAPTURED_BYTES_MAX`] when written by [`Self::encode`].
    pub captured: &'a [u8],
}

impl<'a> FrameRecord<'a> {
    /// Writes the frame's block, header and padding included, and returns its length. Keeps the
    /// first [`CAPTURED_BYTES_MAX`] of the captured bytes.
    pub fn encode(&self, out: &mut [u8; FRAME_BLOCK_BYTES_MAX]) -> usize {
        let captured = self.captured.get(..CAPTURED_BYTES_MAX);
        let captured = captured.unwrap_or(self.captured);
        // At most 128 bytes: both lengths fit.
        let captured_bytes = u16::try_from(captured.len()).unwrap_or(0);
        let payload = FRAME_FIXED_BYTES + captured.len();
        let mut to = Put::new(out);
        to.bytes(&block_header(FRAME, u32::try_from(payload).unwrap_or(0)));
        to.u64(self.time.as_ns());
        to.u64(self.number);
        to.u16(self.port);
        to.u16(self.segments);
        to.u32(self.frame_bytes);
        to.u16(self.segment_payload_bytes);
        to.u16(self.header_bytes);
        to.u32(self.flow);
        to.u16(captured_bytes);
        to.bytes(captured);
        let end = padded(BLOCK_HEADER_BYTES + payload);
        to.zeros(end - BLOCK_HEADER_BYTES - payload);
        end
    }

    /// Reads the payload of a frame's block; `None` when it is too short for what it announces.
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = payload.split_first_chunk::<FRAME_FIXED_BYTES>()?;
        let mut from = Take::new(fixed);
        let frame = Self {
            time: Instant::from_ns(from.u64()),
            number: from.u64(),
            port: from.u16(),
            segments: from.u16(),
            frame_bytes: from.u32(),
            segment_payload_bytes: from.u16(),
            header_bytes: from.u16(),
            flow: from.u32(),
            captured: &[],
        };
        let captured = rest.get(..usize::from(from.u16()))?;
        Some(Self { captured, ..frame })
    }
}

/// What the writer counted; the last block of a file that was finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Rows in the file.
    pub rows: u64,
    /// Frames in the file.
    pub frames: u64,
    /// Rows that are missing since the logger could not keep up.
    pub lost_rows: u64,
    /// Frames likewise.
    pub lost_frames: u64,
}

impl End {
    /// The end block.
    pub fn encode(&self) -> [u8; END_BLOCK_BYTES] {
        let mut out = [0; END_BLOCK_BYTES];
        let mut to = Put::new(&mut out);
        to.bytes(&block_header(END, u32::try_from(END_BYTES).unwrap_or(0)));
        to.u64(self.rows);
        to.u64(self.frames);
        to.u64(self.lost_rows);
        to.u64(self.lost_frames);
        out
    }

    /// Reads the payload of an end block; `None` when it is too short.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut from = Take::new(payload.first_chunk::<END_BYTES>()?);
        Some(Self {
            rows: from.u64(),
            frames: from.u64(),
            lost_rows: from.u64(),
            lost_frames: from.u64(),
        })
    }
}

/// The first eight bytes of a block.
pub fn block_header(kind: u32, payload_bytes: u32) -> [u8; BLOCK_HEADER_BYTES] {
    let mut out = [0; BLOCK_HEADER_BYTES];
    let mut to = Put::new(&mut out);
    to.u32(kind);
    to.u32(payload_bytes);
    out
}

/// `bytes` rounded up to where the next block may begin. Saturates at the last such place.
pub const fn padded(bytes: usize) -> usize {
    bytes.saturating_add(BLOCK_ALIGN_BYTES - 1) / BLOCK_ALIGN_BYTES * BLOCK_ALIGN_BYTES
}

/// The rows of one block.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    rest: &'a [[u8; ROW_BYTES]],
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let (row, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(Row::decode(row))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len(), Some(self.rest.len()))
    }
}

impl ExactSizeIterator for Rows<'_> {}

/// One block.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Block<'a> {
    /// JSON that says what the numbers stand for.
    Legend(&'a str),
    /// A frame at ingress.
    Frame(FrameRecord<'a>),
    /// Decisions.
    Decisions(Rows<'a>),
    /// The end of a file that was finished.
    End(End),
}

/// Why bytes are not read as a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes do not begin with [`MAGIC`].
    NotALog,
    /// The file ends within the block at byte `at`: the writer was interrupted. Nothing follows.
    Truncated {
        /// Offset of the block.
        at: u64,
    },
    /// The block at byte `at` contradicts its type. Reading goes on after it.
    Malformed {
        /// Offset of the block.
        at: u64,
        /// Its type.
        kind: u32,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotALog => f.write_str("not a log of the lab: it does not begin with GPLOG1"),
            Self::Truncated { at } => write!(
                f,
                "truncated at byte {at}: the writer was interrupted; what stands before is good"
            ),
            Self::Malformed { at, kind } => {
                write!(f, "the block of type {kind} at byte {at} is malformed")
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads the blocks of a file one after the other. Blocks of unknown types are skipped.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader of a whole file.
    ///
    /// # Errors
    /// [`ReadError::NotALog`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ReadError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(ReadError::NotALog);
        }
        Ok(Self {
            bytes,
            at: MAGIC.len(),
        })
    }

    /// The next block, whatever its type.
    fn raw(&mut self) -> Option<Result<Raw<'a>, ReadError>> {
        let at = self.at;
        let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let block = rest
            .split_first_chunk::<BLOCK_HEADER_BYTES>()
            .and_then(|(header, after)| {
                let mut from = Take::new(header);
                let kind = from.u32();
                let payload_bytes = usize::try_from(from.u32()).ok()?;
                Some((kind, after.get(..payload_bytes)?))
            });
        let Some((kind, payload)) = block else {
            self.at = self.bytes.len();
            return Some(Err(ReadError::Truncated { at: offset(at) }));
        };
        // The padding of the last block may be missing.
        self.at = padded(at + BLOCK_HEADER_BYTES + payload.len()).min(self.bytes.len());
        let at = offset(at);
        Some(Ok(Raw { at, kind, payload }))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Block<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Raw { at, kind, payload } = match self.raw()? {
                Ok(raw) => raw,
                Err(error) => return Some(Err(error)),
            };
            let block = match kind {
                LEGEND => std::str::from_utf8(payload).ok().map(Block::Legend),
                FRAME => FrameRecord::decode(payload).map(Block::Frame),
                DECISIONS => rows_of(payload).map(Block::Decisions),
                END => End::decode(payload).map(Block::End),
                _ => continue,
            };
            return Some(block.ok_or(ReadError::Malformed { at, kind }));
        }
    }
}

/// A block as it stands in the file.
struct Raw<'a> {
    at: u64,
    kind: u32,
    payload: &'a [u8],
}

/// The rows of a block's payload; `None` when it is no whole number of them.
fn rows_of(payload: &[u8]) -> Option<Rows<'_>> {
    let (rest, torn) = payload.as_chunks::<ROW_BYTES>();
    torn.is_empty().then_some(Rows { rest })
}

fn offset(at: usize) -> u64 {
    u64::try_from(at).unwrap_or(u64::MAX)
}

/// Writes fields one after the other; what does not fit is left out.
struct Put<'a> {
    rest: &'a mut [u8],
}

impl<'a> Put<'a> {
    fn new(out: &'a mut [u8]) -> Self {
        Self { rest: out }
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) {
        let rest = std::mem::take(&mut self.rest);
        if let Some((place, rest)) = rest.split_at_mut_checked(value.len()) {
            place.copy_from_slice(value);
            self.rest = rest;
        }
    }

    fn zeros(&mut self, count: usize) {
        self.bytes([0; BLOCK_ALIGN_BYTES].get(..count).unwrap_or_default());
    }

    #[inline]
    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    #[inline]
    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    #[inline]
    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

/// Reads fields one after the other; zero past the end.
struct Take<'a> {
    rest: &'a [u8],
}

impl<'a> Take<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((value, rest)) = self.rest.split_first_chunk() else {
            self.rest = &[];
            return [0; N];
        };
        self.rest = rest;
        *value
    }

    fn u8(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    #[inline]
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    #[inline]
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    #[inline]
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"GPLOG1\0\0";
/// Bytes before a block's payload.
pub const BLOCK_HEADER_BYTES: usize = 8;
/// Blocks begin at multiples of this.
pub const BLOCK_ALIGN_BYTES: usize = 8;
/// Bytes of a row of decisions.
pub const ROW_BYTES: usize = 72;
/// Most bytes kept of a frame: Ethernet, IPv6 and a TCP header with all its options are 114, and a
/// VLAN tag or two fit beside them.
pub const CAPTURED_BYTES_MAX: usize = 128;
/// Most bytes of a frame's block, header and padding included.
pub const FRAME_BLOCK_BYTES_MAX: usize =
    padded(BLOCK_HEADER_BYTES + FRAME_FIXED_BYTES + CAPTURED_BYTES_MAX);
/// Bytes of the end block.
pub const END_BLOCK_BYTES: usize = BLOCK_HEADER_BYTES + END_BYTES;
/// Link of a decision that no link made: a switch's or a router's.
pub const NO_LINK: u16 = 0xffff;

/// Type of the legend's block.
pub const LEGEND: u32 = 1;
/// Type of a frame's block.
pub const FRAME: u32 = 2;
/// Type of a block of decisions.
pub const DECISIONS: u32 = 3;
/// Type of the last block.
pub const END: u32 = 4;
/// Bytes of a frame's payload before the captured ones.
const FRAME_FIXED_BYTES: usize = 34;
/// Bytes of the end block's payload.
const END_BYTES: usize = 32;
/// Femtoseconds in a nanosecond.
const FS_PER_NS: u128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Rng;

    fn row() -> Row {
        Row {
            time: Instant::from_ns(0x0102_0304_0506_0708),
            time_step_fs: 1_230_400_000,
            departs: Instant::from_ns(2_000),
            departs_step_fs: 333_333,
            frame: 7,
            queue_bytes: 123_456,
            queue_packets: 81,
            wire_bytes: 1538,
            first: 3,
            count: 4,
            link: 1,
            stage: 2,
            decision: Code::QUEUE_FULL,
            flow: 0xdead_beef,
            detail: 5,
        }
    }

    fn frame(captured: &[u8]) -> FrameRecord<'_> {
        FrameRecord {
            time: Instant::from_ns(9),
            number: 7,
            port: 1,
            segments: 44,
            frame_bytes: 63_766,
            segment_payload_bytes: 1448,
            header_bytes: 66,
            flow: 3,
            captured,
        }
    }

    /// A whole file: legend, a frame, two rows, end.
    fn file() -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend(block_header(LEGEND, 2));
        file.extend(b"{}\0\0\0\0\0\0");
        let mut block = [0; FRAME_BLOCK_BYTES_MAX];
        let len = frame(&[1, 2, 3]).encode(&mut block);
        file.extend(&block[..len]);
        file.extend(block_header(DECISIONS, 144));
        let mut bytes = [0; ROW_BYTES];
        row().encode(&mut bytes);
        file.extend(bytes);
        file.extend(bytes);
        let end = End {
            rows: 2,
            frames: 1,
            lost_rows: 3,
            lost_frames: 4,
        };
        file.extend(end.encode());
        file
    }

    #[test]
    fn a_rows_bytes_are_where_the_layout_says() {
        let mut bytes = [0xff; ROW_BYTES];
        row().encode(&mut bytes);
        assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[40..48], 123_456_u64.to_le_bytes());
        assert_eq!(bytes[52..56], 1538_u32.to_le_bytes());
        assert_eq!(bytes[56..64], [3, 0, 4, 0, 1, 0, 2, 36]);
        assert_eq!(bytes[64..], [0xef, 0xbe, 0xad, 0xde, 5, 0, 0, 0]);
        assert_eq!(Row::decode(&bytes), row());
    }

    #[test]
    fn a_frames_block_is_padded_and_keeps_what_fits() {
        let captured = [7_u8; 200];
        for (given, kept, len) in [
            (0, 0, 48),
            (6, 6, 48),
            (7, 7, 56),
            (128, 128, 176),
            (129, 128, 176),
        ] {
            let mut block = [0xff; FRAME_BLOCK_BYTES_MAX];
            assert_eq!(frame(&captured[..given]).encode(&mut block), len, "{given}");
            let payload = 34 + kept;
            assert_eq!(block[4], u8::try_from(payload).unwrap());
            assert!(block[8 + payload..len].iter().all(|&b| b == 0));
            let read = FrameRecord::decode(&block[8..8 + payload]).unwrap();
            assert_eq!(read, frame(&captured[..kept]));
            assert_eq!(FrameRecord::decode(&block[8..8 + payload - 1]), None);
        }
    }

    #[test]
    fn segments_times_are_rounded_down_and_saturate() {
        let segments: Vec<_> = row().segments().collect();
        let departs: Vec<_> = segments
            .iter()
            .map(|s| s.departs.unwrap().as_ns())
            .collect();
        assert_eq!(departs, [2000, 2000, 2000, 2000]);
        let row = Row {
            departs_step_fs: 333_334,
            ..row()
        };
        assert_eq!(row.segment(3).departs, Some(Instant::from_ns(2001)));
        assert_eq!(row.segment(1).segment, 4);
        assert_eq!(row.segment(1).time.as_ns() - row.time.as_ns(), 1230);

        let late = Row {
            time: Instant::MAX,
            departs: Instant::MAX,
            first: 65_535,
            ..row
        };
        assert_eq!(late.segment(3).time, Instant::MAX);
        assert_eq!(late.segment(3).departs, None);
        assert_eq!(late.segment(3).segment, 65_538);
    }

    #[test]
    fn a_file_reads_back_block_by_block() {
        let file = file();
        let mut blocks = Reader::new(&file).unwrap().map(Result::unwrap);
        assert!(matches!(blocks.next(), Some(Block::Legend("{}"))));
        assert!(matches!(blocks.next(), Some(Block::Frame(f)) if f == frame(&[1, 2, 3])));
        let Some(Block::Decisions(rows)) = blocks.next() else {
            panic!("decisions follow the frame");
        };
        assert_eq!(rows.len(), 2);
        assert!(rows.eq([row(), row()]));
        assert!(matches!(
            blocks.next(),
            Some(Block::End(End {
                rows: 2,
                frames: 1,
                lost_rows: 3,
                lost_frames: 4
            }))
        ));
        assert!(blocks.next().is_none());
    }

    #[test]
    fn a_cut_file_is_read_up_to_the_cut() {
        let file = file();
        let starts = [8, 24, 72, 224];
        for len in MAGIC.len()..file.len() {
            let read: Vec<_> = Reader::new(&file[..len]).unwrap().collect();
            let torn = starts
                .iter()
                .rfind(|&&start| start < len)
                .map(|&start| start as u64);
            // The first block's padding may be missing; all other blocks fill their place.
            let whole = starts.contains(&len) || (18..24).contains(&len) || (69..72).contains(&len);
            let expected = if whole {
                None
            } else {
                torn.map(|at| ReadError::Truncated { at })
            };
            let last = read.last().and_then(|block| block.as_ref().err().copied());
            assert_eq!(last, expected, "{len} bytes");
            assert!(read.iter().rev().skip(1).all(Result::is_ok));
        }
    }

    #[test]
    fn a_malformed_or_unknown_block_does_not_hide_the_next() {
        let mut file = MAGIC.to_vec();
        for (kind, payload) in [(LEGEND, [0xff; 8]), (DECISIONS, [0; 8]), (99, [0; 8])] {
            file.extend(block_header(kind, 8));
            file.extend(payload);
        }
        file.extend(End::default().encode());
        let read: Vec<_> = Reader::new(&file).unwrap().collect();
        assert_eq!(read.len(), 3);
        assert!(matches!(
            read[0],
            Err(ReadError::Malformed {
                at: 8,
                kind: LEGEND
            })
        ));
        assert!(matches!(
            read[1],
            Err(ReadError::Malformed {
                at: 24,
                kind: DECISIONS
            })
        ));
        assert!(matches!(read[2], Ok(Block::End(_))));
    }

    #[test]
    fn other_bytes_are_not_a_log() {
        assert_eq!(Reader::new(b"GPLOG2\0\0").err(), Some(ReadError::NotALog));
        assert_eq!(Reader::new(&MAGIC[..7]).err(), Some(ReadError::NotALog));
    }

    #[test]
    fn random_bytes_never_panic_the_reader() {
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            let mut file = file();
            for _ in 0..rng.next_u64() % 8 {
                let at = usize::try_from(rng.next_u64()).unwrap() % (file.len() - 8) + 8;
                file[at] = rng.next_u64().to_le_bytes()[0];
            }
            let len = usize::try_from(rng.next_u64()).unwrap() % (file.len() - 7) + 8;
            for block in Reader::new(&file[..len]).unwrap().flatten() {
                if let Block::Decisions(rows) = block {
                    for row in rows {
                        assert_eq!(row.segments().len(), usize::from(row.count));
                        row.segments().last();
                    }
                }
            }
        }
    }

    #[test]
    fn an_events_row_says_what_the_event_says() {
        use crate::event::DropCause;
        use crate::train::{Marks, Spacing, Train};
        let train = Train {
            handle: 7,
            first: 3,
            count: 4,
            wire_bytes: 1538,
            flow: 5,
            group: 0,
            at: Instant::from_ns(100),
            spacing: Spacing::back_to_back(1538, 10_000_000_000, 0),
            marks: Marks::default(),
            damage: 0,
        };
        let row = |decision| {
            let event = Event {
                stage: 2,
                train,
                decision,
            };
            Row::of(&event, 1, 9)
        };
        let full = row(Decision::Dropped {
            cause: DropCause::QueueFull,
            queue_bytes: 10,
            queue_packets: 1,
            limit_bytes: 0,
        });
        let expected = Row {
            time: train.at,
            time_step_fs: 1_230_400_000,
            departs: Instant::MAX,
            departs_step_fs: 0,
            frame: 9,
            queue_bytes: 10,
            queue_packets: 1,
            wire_bytes: 1538,
            first: 3,
            count: 4,
            link: 1,
            stage: 2,
            decision: Code::QUEUE_FULL,
            flow: 5,
            detail: 0,
        };
        assert_eq!(full, expected);
        let departs = Instant::from_ns(300);
        let scheduled = row(Decision::Scheduled { departs });
        assert_eq!(
            (
                scheduled.departs,
                scheduled.departs_step_fs,
                scheduled.decision
            ),
            (departs, 1_230_400_000, Code::SCHEDULED)
        );
        let causes = [
            (DropCause::Random, Code::LOST_RANDOM),
            (DropCause::Early, Code::EARLY_DROP),
            (DropCause::FlowCap, Code::FLOW_CAP),
            (DropCause::Budget, Code::BUDGET_FULL),
            (DropCause::SharedBuffer, Code::SHARED_BUFFER),
            (DropCause::CollisionFcs, Code::COLLISION_FCS),
            (DropCause::LateCollision, Code::LATE_COLLISION),
            (DropCause::ExcessiveCollisions, Code::EXCESSIVE_COLLISIONS),
        ];
        for (cause, code) in causes {
            assert_eq!(row(Decision::lost(cause)).decision, code);
        }
    }

    #[test]
    fn every_code_has_a_name_of_its_own() {
        for (code, name) in Code::NAMES {
            assert_eq!(Code::named(name), Some(code));
            assert_eq!(code.name(), Some(name));
            assert_eq!(code.is_drop(), code.0 >= 32, "{name}");
        }
        assert_eq!(Code(14).name(), None);
        assert!(!Code(31).is_drop() && Code(63).is_drop() && !Code(64).is_drop());
    }
}
