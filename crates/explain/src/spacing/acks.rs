//! A receiver's ACKs: the gaps between them, and how many segments each acknowledges.
//!
//! What a sender sends is clocked by these, so they stand beside the gaps of its data. An ACK is a packet
//! without payload; one that rides on the receiver's own data acknowledges, too, but is not counted.

use units::{FineHistogram, Instant};
use wire::segment::Segment;
use wire::tcp::Flags;

/// Counts the ACKs of one direction's data at one point.
#[derive(Clone, Debug)]
pub struct Acks {
    segment_bytes: u32,
    last: Option<Instant>,
    /// The highest number acknowledged.
    highest: Option<u32>,
    packets: u64,
    gaps: FineHistogram,
    /// Of those that acknowledge something new.
    new: u64,
    new_bytes: u64,
    by_segments: [u64; CLASSES],
}

impl Acks {
    /// Nothing counted yet, of data in segments of `segment_bytes`. Takes 1 MiB.
    pub fn new(segment_bytes: u32) -> Self {
        Self {
            segment_bytes: segment_bytes.max(1),
            last: None,
            highest: None,
            packets: 0,
            gaps: FineHistogram::new(),
            new: 0,
            new_bytes: 0,
            by_segments: [0; CLASSES],
        }
    }

    /// A packet of the receiver was seen. A stamp that goes back makes no gap.
    pub fn take(&mut self, at: Instant, segment: &Segment) {
        if !segment.flags.contains(Flags::ACK) || segment.flags.contains(Flags::RST) {
            return;
        }
        let acknowledged = segment.acknowledgment;
        let before = self.highest;
        // Serial numbers (RFC 1982): new is what is less than half the space ahead.
        let ahead = before.map(|b| acknowledged.wrapping_sub(b));
        let new = ahead.filter(|a| (1..1 << 31).contains(a));
        if before.is_none() || new.is_some() {
            self.highest = Some(acknowledged);
        }
        if segment.payload_bytes > 0 || segment.flags.contains(Flags::SYN) {
            return;
        }
        self.packets += 1;
        if let Some(last) = self.last.replace(at)
            && at >= last
        {
            self.gaps.record(at.saturating_since(last));
        }
        match new {
            Some(bytes) => {
                self.new += 1;
                self.new_bytes += u64::from(bytes);
                let segments = bytes.div_ceil(self.segment_bytes);
                self.by_segments[class(segments)] += 1;
            }
            // What the first one acknowledges nobody knows, where the beginning was not captured.
            None if before.is_some() => self.by_segments[0] += 1,
            None => {}
        }
    }

    /// ACKs seen.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Gaps from each to the next.
    pub const fn gaps(&self) -> &FineHistogram {
        &self.gaps
    }

    /// Segments that one acknowledges on average, of those that acknowledge something new; `None` without
    /// one.
    pub fn segments_mean(&self) -> Option<f64> {
        let segments = self.new_bytes as f64 / f64::from(self.segment_bytes);
        (self.new > 0).then(|| segments / self.new as f64)
    }

    /// ACKs by the segments that they acknowledge, a part counted as one: nothing new, 1, 2, 3 to 4, 5 to
    /// 8, and so on, up to the last that there are.
    pub fn by_segments(&self) -> &[u64] {
        let last = self.by_segments.iter().rposition(|n| *n > 0);
        &self.by_segments[..last.map_or(0, |n| n + 1)]
    }
}

/// The least share of a round trip, in one piece, that holds half of the packets: 0.5 where they lie
/// evenly, near 0 where all come at once. `counts` are those of its places in their order, the first behind
/// the last. `None` without packets.
pub fn half_within(counts: &[u64]) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let half = total.div_ceil(2);
    let mut least = counts.len();
    let (mut within, mut end) = (0, 0);
    for begin in 0..counts.len() {
        while within < half && end < begin + counts.len() {
            within += counts[end % counts.len()];
            end += 1;
        }
        if within >= half {
            least = least.min(end - begin);
        }
        within -= counts[begin];
    }
    Some(least as f64 / counts.len() as f64)
}

/// 0 for one segment at most, and one more for each doubling: 2, 3 to 4, 5 to 8.
fn class(segments: u32) -> usize {
    let doublings = u64::from(segments.max(1)).next_power_of_two().ilog2();
    usize::try_from(doublings).map_or(CLASSES - 1, |d| (d + 1).min(CLASSES - 1))
}

/// Nothing new, and one segment up to 2^20.
const CLASSES: usize = 22;

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;

    fn ack(number: u32) -> Segment {
        Segment {
            from: 1,
            acknowledgment: number,
            flags: Flags::ACK,
            ..Segment::default()
        }
    }

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    #[test]
    fn every_other_segment_is_two_segments_an_ack() {
        let mut acks = Acks::new(1_448);
        acks.take(
            at(0),
            &Segment {
                flags: Flags::SYN.with(Flags::ACK),
                ..ack(1)
            },
        );
        for n in 1..=10_u32 {
            acks.take(at(u64::from(n) * 24), &ack(1 + n * 2_896));
        }
        assert_eq!(acks.packets(), 10);
        assert_eq!(acks.by_segments(), [0, 0, 10]);
        assert_eq!(acks.segments_mean(), Some(2.0));
        assert_eq!(acks.gaps().count(), 9);
        assert_eq!(acks.gaps().quantile(500), Some(Duration::from_us(24)));
    }

    #[test]
    fn classes_end_at_powers_of_two() {
        let ends = [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8, 4), (9, 5)];
        for (segments, wanted) in ends {
            assert_eq!(class(segments), wanted, "{segments}");
        }
        assert_eq!(class(u32::MAX), CLASSES - 1);
    }

    #[test]
    fn duplicates_acknowledge_nothing_and_the_first_of_all_nobody_knows_what() {
        let mut acks = Acks::new(1_000);
        // Numbers wrap around.
        for number in [u32::MAX - 999, u32::MAX - 999, 0, u32::MAX - 999, 1] {
            acks.take(at(0), &ack(number));
        }
        assert_eq!(acks.packets(), 5);
        assert_eq!(acks.by_segments(), [2, 2]);
    }

    #[test]
    fn an_ack_that_rides_on_data_is_none_but_is_not_counted_twice_either() {
        let mut acks = Acks::new(1_000);
        acks.take(at(0), &ack(1));
        acks.take(
            at(1),
            &Segment {
                payload_bytes: 5,
                ..ack(3_001)
            },
        );
        acks.take(at(2), &ack(4_001));
        assert_eq!((acks.packets(), acks.by_segments()), (2, &[0, 1][..]));
        assert_eq!(acks.segments_mean(), Some(1.0));
    }

    #[test]
    fn half_of_the_packets_lie_in_half_of_the_time_or_at_once() {
        assert_eq!(half_within(&[5; 8]), Some(0.5));
        assert_eq!(half_within(&[0, 0, 9, 0]), Some(0.25));
        // In one piece around the end.
        assert_eq!(half_within(&[4, 1, 1, 4]), Some(0.5));
        assert_eq!(half_within(&[0, 0]), None);
        assert_eq!(half_within(&[]), None);
    }
}
