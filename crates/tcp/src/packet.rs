//! What travels between the two ends: runs of data segments and acknowledgments, without bytes.
//!
//! Sequence numbers count segments, not bytes: all have the connection's full size but the last of
//! a sized transfer. They never wrap. Timestamps (RFC 7323) are not carried: the sender knows when
//! it sent what, and of what it sent twice takes no round trip (Karn's rule).

/// Segments `[first, first + count)` as the sender hands them over, in one burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Number of the first segment.
    pub first: u64,
    /// How many, at least 1.
    pub count: u16,
    /// Sent before.
    pub again: bool,
    /// The first segment tells that the window was reduced (CWR, RFC 3168 6.1.2).
    pub reduced: bool,
    /// How they follow each other; `None`: at once, as a host hands over a GSO packet.
    pub spaced: Option<Spaced>,
}

/// Segments that follow each other at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spaced {
    /// Bytes that each takes of the rate: its own on the wire, and the gap.
    pub bytes: u32,
    /// Bits per second.
    pub rate_bits_per_second: u64,
    /// Fraction of a nanosecond by which the first is later than its time, times the rate.
    pub remainder: u64,
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The segment that the receiver waits for.
    pub next: u64,
    /// Segments below this one may be sent: the right edge of the receive window.
    pub edge: u64,
    /// SACK blocks, newest first (RFC 2018 section 4).
    pub blocks: [(u64, u64); BLOCKS_MAX],
    /// How many of them.
    pub blocks_count: u8,
    /// The first block tells of data that came twice (RFC 2883).
    pub twice: bool,
    /// Congestion was experienced, and the sender has not yet told that it knows (ECE, RFC 3168 6.1.3).
    pub congested: bool,
}

/// Acknowledgments that differ in their numbers only: each acknowledges as many segments more as the
/// first but one, and tells of as many more that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckRun {
    /// The first.
    pub first: Ack,
    /// How many, at least 1.
    pub count: u16,
    /// Segments from one to the next.
    pub step: u16,
    /// Place, in the run of data, of the segment that the first one answers; the others answer each
    /// `step`-th behind it.
    pub place: u16,
}

impl AckRun {
    /// One acknowledgment.
    pub const fn of(ack: Ack) -> Self {
        Self {
            first: ack,
            count: 1,
            step: 0,
            place: 0,
        }
    }

    /// Acknowledgment `k` of the run, from 0.
    pub fn at(&self, k: u16) -> Ack {
        let further = u64::from(k) * u64::from(self.step);
        Ack {
            next: self.first.next + further,
            edge: self.first.edge + further,
            ..self.first
        }
    }
}

impl Ack {
    /// The blocks that are there.
    pub fn sacked(&self) -> &[(u64, u64)] {
        &self.blocks[..usize::from(self.blocks_count).min(BLOCKS_MAX)]
    }

    /// Bytes of TCP options that it takes beside the timestamp.
    pub fn option_bytes(&self) -> u32 {
        match u32::from(self.blocks_count) {
            0 => 0,
            n => 4 + 8 * n,
        }
    }
}

/// Blocks that fit beside a timestamp.
pub const BLOCKS_MAX: usize = 3;
