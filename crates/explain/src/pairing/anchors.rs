//! Whether two captures hold the same packets, from a look at each, and how far their clocks are
//! apart about.
//!
//! Each packet has a number that hangs on nothing but its headers; of each capture the packets with the
//! smallest numbers are kept (a bottom-k sample). What both hold is then kept of both, wherever each
//! begins and however long it is.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use units::Instant;
use wire::segment::Segment;

/// The packets of one capture that are kept to find it in another.
#[derive(Clone, Debug, Default)]
pub struct Anchors {
    /// Time by the packet's number.
    kept: BTreeMap<u64, u64>,
}

/// What two captures have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Packets of the samples that are in both.
    pub packets: usize,
    /// How much later the second one has them, in the middle: clocks and delay together.
    pub ahead_ns: i64,
    /// All of them by the same time, to the nanosecond: it is one capture twice.
    pub is_one_capture: bool,
}

impl Anchors {
    /// Looks at a packet.
    pub fn take(&mut self, time: Instant, segment: &Segment) {
        let number = number(segment);
        if self.kept.len() >= KEPT_MAX {
            let largest = self.kept.last_key_value().map(|(k, _)| *k);
            if largest.is_some_and(|largest| number >= largest) {
                return;
            }
        }
        self.kept.entry(number).or_insert(time.as_ns());
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_last();
        }
    }

    /// What this capture has in common with `other`; `None` of fewer than three packets.
    pub fn common(&self, other: &Self) -> Option<Common> {
        let mut apart: Vec<i64> = self
            .kept
            .iter()
            .filter_map(|(number, time)| Some(super::apart_ns(*time, *other.kept.get(number)?)))
            .collect();
        apart.sort_unstable();
        let middle = *apart.get(apart.len() / 2)?;
        (apart.len() >= COMMON_MIN).then_some(Common {
            packets: apart.len(),
            ahead_ns: middle,
            is_one_capture: apart.first() == apart.last(),
        })
    }
}

/// The begin of a super-packet has the number of its first segment.
fn number(segment: &Segment) -> u64 {
    let mut hasher = DefaultHasher::new();
    segment.flow.hash(&mut hasher);
    segment.from.hash(&mut hasher);
    segment.sequence.hash(&mut hasher);
    segment.acknowledgment.hash(&mut hasher);
    segment.timestamps.hash(&mut hasher);
    (segment.payload_bytes > 0).hash(&mut hasher);
    hasher.finish()
}

/// Where one side saw super-packets of 45 segments and the other each segment, some 180 are in both.
const KEPT_MAX: usize = 8_192;
/// One or two may be by chance where a capture was cut in pieces that overlap.
const COMMON_MIN: usize = 3;
