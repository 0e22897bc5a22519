//! Sequence ranges that were passed over, and what fills them: late originals or retransmissions.
//!
//! A segment that fills a hole was either overtaken, or its original was lost before the capture
//! point and this is a retransmission. Which, is told by the first of: the sender's timestamp, the
//! IP identification where the sender counts it up, and the hole's age: a retransmission answers
//! ACKs that the hole caused, so it is no sooner than most of a round trip. Without a round trip the
//! line is 3 ms, as is customary.

use wire::segment::Segment;

use crate::trace::number::later;

/// A range that was passed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hole {
    start: u64,
    end: u64,
    pub(crate) time: u64,
    /// Data segments of the sender when it arose.
    pub(crate) segments: u64,
    /// Of the segment that went past it.
    ip_id: u16,
    value: Option<u32>,
}

/// Holes in the order in which they arose. The oldest is forgotten when there are too many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes {
    list: Vec<Hole>,
}

/// What a segment filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    pub(crate) bytes: u64,
    /// The oldest hole that it touched.
    pub(crate) hole: Hole,
}

impl Holes {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// `start..end` was passed over by `segment`; returns bytes of a hole that is forgotten for it.
    pub(crate) fn open(
        &mut self,
        (start, end): (u64, u64),
        time: u64,
        segments: u64,
        segment: &Segment,
    ) -> u64 {
        let mut forgotten = 0;
        if self.list.len() >= HOLES_MAX {
            let oldest = self.list.remove(0);
            forgotten = oldest.end - oldest.start;
        }
        self.list.push(Hole {
            start,
            end,
            time,
            segments,
            ip_id: segment.ip_id,
            value: segment.timestamps.map(|t| t.0),
        });
        forgotten
    }

    /// Fills what lies in `start..end`.
    pub(crate) fn fill(&mut self, start: u64, end: u64) -> Option<Filled> {
        let mut filled: Option<Filled> = None;
        let mut i = 0;
        while let Some(&hole) = self.list.get(i) {
            let (from, to) = (start.max(hole.start), end.min(hole.end));
            if from >= to {
                i += 1;
                continue;
            }
            let first = filled.get_or_insert(Filled { bytes: 0, hole });
            first.bytes += to - from;
            match (from > hole.start, to < hole.end) {
                (false, false) => {
                    self.list.remove(i);
                }
                (false, true) => {
                    self.list[i].start = to;
                    i += 1;
                }
                (true, false) => {
                    self.list[i].end = from;
                    i += 1;
                }
                (true, true) => {
                    self.list[i].end = from;
                    self.list.insert(i + 1, Hole { start: to, ..hole });
                    i += 2;
                }
            }
        }
        // A split may have made one too many.
        self.list.truncate(HOLES_MAX);
        filled
    }

    /// Closes what the peer acknowledged though it was not seen; returns its bytes. A hole of the
    /// last 3 ms stays: two queues of one interface may have swapped data and ACK.
    pub(crate) fn acknowledge(&mut self, ack: u64, time: u64) -> u64 {
        let mut bytes = 0;
        self.list.retain_mut(|hole| {
            if time.saturating_sub(hole.time) < REORDERING_NS_MAX {
                return true;
            }
            let end = hole.end.min(ack);
            bytes += end.saturating_sub(hole.start);
            hole.start = hole.start.max(end);
            hole.start < hole.end
        });
        bytes
    }
}

impl Hole {
    /// Whether `late`, which fills it, was sent before what went past it.
    pub(crate) fn is_original(&self, late: &Segment, time: u64, rtt: Option<u64>) -> bool {
        if let (Some(passed), Some((value, _))) = (self.value, late.timestamps)
            && value != passed
        {
            return later(passed, value);
        }
        let step = late.ip_id.wrapping_sub(self.ip_id).cast_signed();
        if self.ip_id != 0 && late.ip_id != 0 && step != 0 && step.unsigned_abs() < IP_ID_NEAR {
            return step < 0;
        }
        let age = time.saturating_sub(self.time);
        age < rtt.map_or(REORDERING_NS_MAX, |rtt| rtt / 4 * 3)
    }
}

/// More than reordering and a burst of losses make at a time.
const HOLES_MAX: usize = 32;
/// Identifications further apart are not counted up, or wrapped since.
const IP_ID_NEAR: u16 = 1_024;
const REORDERING_NS_MAX: u64 = 3_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(list: &[(u64, u64)]) -> Holes {
        let mut holes = Holes::default();
        for &range in list {
            holes.open(range, 0, 0, &Segment::default());
        }
        holes
    }

    fn ranges(holes: &Holes) -> Vec<(u64, u64)> {
        holes.list.iter().map(|h| (h.start, h.end)).collect()
    }

    #[test]
    fn filling_cuts_splits_and_closes() {
        let mut holes = with(&[(10, 20), (30, 40)]);
        assert_eq!(holes.fill(12, 15).unwrap().bytes, 3);
        assert_eq!(ranges(&holes), [(10, 12), (15, 20), (30, 40)]);
        assert_eq!(holes.fill(0, 35).unwrap().bytes, 12);
        assert_eq!(ranges(&holes), [(35, 40)]);
        assert_eq!(holes.fill(39, 99).unwrap().bytes, 1);
        assert_eq!(ranges(&holes), [(35, 39)]);
        assert!(holes.fill(39, 99).is_none() && holes.fill(0, 35).is_none());
    }

    #[test]
    fn what_is_acknowledged_unseen_is_counted_once() {
        let mut holes = with(&[(10, 20), (30, 40)]);
        assert_eq!(holes.acknowledge(10, REORDERING_NS_MAX), 0);
        assert_eq!(holes.acknowledge(35, REORDERING_NS_MAX - 1), 0);
        assert_eq!(holes.acknowledge(35, REORDERING_NS_MAX), 15);
        assert_eq!(holes.acknowledge(35, REORDERING_NS_MAX), 0);
        assert_eq!(ranges(&holes), [(35, 40)]);
    }

    #[test]
    fn too_many_forget_the_oldest() {
        let mut holes = Holes::default();
        for i in 0..HOLES_MAX as u64 {
            assert_eq!(
                holes.open((i * 10, i * 10 + 5), 0, 0, &Segment::default()),
                0
            );
        }
        assert_eq!(holes.open((900, 901), 0, 0, &Segment::default()), 5);
        assert_eq!(holes.list.len(), HOLES_MAX);
    }

    #[test]
    fn timestamp_then_identification_then_age_tell_an_original() {
        let passed = Segment {
            ip_id: 100,
            timestamps: Some((50, 0)),
            ..Segment::default()
        };
        let mut holes = Holes::default();
        holes.open((0, 10), 1_000, 0, &passed);
        let hole = holes.list[0];
        let late = |ip_id, value| Segment {
            ip_id,
            timestamps: Some((value, 0)),
            ..Segment::default()
        };
        assert!(hole.is_original(&late(101, 49), u64::MAX, None));
        assert!(!hole.is_original(&late(99, 51), 1_000, None));
        assert!(hole.is_original(&late(99, 50), u64::MAX, None));
        assert!(!hole.is_original(&late(101, 50), 1_000, None));
        let silent = late(0, 50);
        assert!(hole.is_original(&silent, 1_000 + REORDERING_NS_MAX - 1, None));
        assert!(!hole.is_original(&silent, 1_000 + REORDERING_NS_MAX, None));
        assert!(hole.is_original(&silent, 1_000 + 29_999_999, Some(40_000_000)));
        assert!(!hole.is_original(&silent, 1_000 + 30_000_000, Some(40_000_000)));
    }
}
