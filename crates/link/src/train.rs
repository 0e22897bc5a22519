//! A train: n wire segments of one size with their times, in a few words.
//!
//! Kernels hand over GSO super-packets of up to 64 KiB. A train describes a run of such a packet's
//! segments exactly: segment k's last bit arrives at
//! `first + floor((remainder + k * step) / rate)` nanoseconds. All segments of a train have one wire
//! size, so a super-packet with a shorter last segment is two trains.

use units::{Duration, Instant};

/// A run of segments of one frame, each of the same size on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// The driver's name for the frame that the segments belong to.
    pub handle: u64,
    /// Index of the first segment within the frame.
    pub first: u16,
    /// Number of segments, at least 1.
    pub count: u16,
    /// Size of each segment on the wire: preamble, frame, FCS and gap.
    pub wire_bytes: u32,
    /// Flow that the frame belongs to (a hash; 0 when unknown).
    pub flow: u32,
    /// Group of flows that the flow belongs to; 0 when unknown: such flows are one group.
    pub group: u32,
    /// What is known of, or was done to, every segment of the run.
    pub marks: Marks,
    /// Draw that decides which bit the driver flips; 0 where no bit is to be flipped.
    pub damage: u32,
    /// When the first segment is there, last bit included.
    pub at: Instant,
    /// How the others follow.
    pub spacing: Spacing,
}

/// What is known of, or was done to, the segments of a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u8);

impl Marks {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The sender takes marks in place of losses (RFC 3168: ECT(0) or ECT(1)).
    pub const ECT: Self = Self(1);
    /// Congestion experienced: the driver sets it in the IP header when the segment leaves.
    pub const CE: Self = Self(2);
    /// A second copy of a segment that is on its way as well.
    pub const COPY: Self = Self(4);

    /// True when all of `other` is there.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The time between segments as an exact fraction: `step / rate` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spacing {
    /// Nanoseconds times rate from one segment to the next.
    step: u64,
    /// Bits per second, at least 1.
    rate: u64,
    /// Fraction of a nanosecond by which the first segment is later than `at`, times rate.
    remainder: u64,
}

impl Spacing {
    /// All segments at once, as a host hands them over.
    pub const TOGETHER: Self = Self {
        step: 0,
        rate: 1,
        remainder: 0,
    };

    /// Back to back at `rate_bits_per_second`, with the first segment's fraction of a nanosecond.
    ///
    /// # Panics
    /// When the rate is zero or the remainder is not below it.
    pub fn back_to_back(wire_bytes: u32, rate_bits_per_second: u64, remainder: u64) -> Self {
        assert!(
            remainder < rate_bits_per_second,
            "a remainder is below its divisor"
        );
        let step = u64::from(wire_bytes) * 8 * 1_000_000_000;
        Self {
            step,
            rate: rate_bits_per_second,
            remainder,
        }
    }

    /// One segment after the other, `every` nanoseconds times `rate` apart: packets at a rate a second
    /// are 1e9 at that rate.
    ///
    /// # Panics
    /// When the rate is zero or the remainder is not below it.
    pub fn every(step: u64, rate: u64, remainder: u64) -> Self {
        assert!(remainder < rate, "a remainder is below its divisor");
        Self {
            step,
            rate,
            remainder,
        }
    }

    /// Femtoseconds from one segment to the next, rounded down, for a log.
    pub fn step_fs(&self) -> u64 {
        let fs = u128::from(self.step) * 1_000_000 / u128::from(self.rate);
        u64::try_from(fs).unwrap_or(u64::MAX)
    }

    /// The spacing of every `n`-th of its segments; `None` where that is more than 64 bits hold.
    #[must_use]
    pub const fn of_every(self, n: u64) -> Option<Self> {
        match self.step.checked_mul(n) {
            Some(step) => Some(Self { step, ..self }),
            None => None,
        }
    }

    /// The same with the fraction at the beginning that `other`, of the same rate, has.
    #[must_use]
    pub const fn with_remainder_of(self, other: Self) -> Self {
        Self {
            remainder: other.remainder,
            ..self
        }
    }

    /// Fraction of a nanosecond by which the first segment is later than its time, times the rate.
    pub const fn remainder(&self) -> u64 {
        self.remainder
    }

    /// Whole nanoseconds from one segment to the next.
    pub const fn step_ns(&self) -> u64 {
        self.step / self.rate
    }

    /// True when all segments come at once.
    pub const fn is_together(&self) -> bool {
        self.step == 0
    }

    fn after(&self, k: u16) -> (Duration, u64) {
        if self.step == 0 {
            return (Duration::ZERO, self.remainder);
        }
        let total = u128::from(self.remainder) + u128::from(k) * u128::from(self.step);
        let rate = u128::from(self.rate);
        let whole = u64::try_from(total / rate).unwrap_or(u64::MAX);
        // The remainder is below the rate, which is a u64.
        let remainder = u64::try_from(total % rate).unwrap_or(0);
        (Duration::from_ns(whole), remainder)
    }
}

/// The times of a train's segments one after the other, as [`Train::time_of`] without a division for
/// each.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    at: Instant,
    remainder: u64,
    whole: u64,
    part: u64,
    rate: u64,
}

impl Times {
    /// When the segment that is looked at is there; the first one to begin with.
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// Looks at the next one.
    pub fn step(&mut self) {
        self.at += Duration::from_ns(self.whole);
        // Both are below the rate: the sum passes u64 only where it passes the rate as well.
        let (sum, over) = self.remainder.overflowing_add(self.part);
        self.remainder = sum;
        if over || sum >= self.rate {
            self.remainder = sum.wrapping_sub(self.rate);
            self.at += Duration::from_ns(1);
        }
    }
}

impl Train {
    /// The group of flows that have nothing to do with any others.
    pub const NO_GROUP: u32 = u32::MAX;

    /// The times of its segments.
    pub const fn times(&self) -> Times {
        let Spacing {
            step,
            rate,
            remainder,
        } = self.spacing;
        Times {
            at: self.at,
            remainder,
            whole: step / rate,
            part: step % rate,
            rate,
        }
    }

    /// When segment `k` of this train (from 0) is there.
    pub fn time_of(&self, k: u16) -> Instant {
        self.at + self.spacing.after(k).0
    }

    /// Segments [from, from + count) of this train as a train of their own.
    ///
    /// # Panics
    /// When the range is empty or reaches past the end.
    #[must_use]
    pub fn part(&self, from: u16, count: u16) -> Self {
        let end = u32::from(from) + u32::from(count);
        assert!(
            count > 0 && end <= u32::from(self.count),
            "a part lies inside its train"
        );
        let (shift, remainder) = self.spacing.after(from);
        Self {
            first: self.first + from,
            count,
            at: self.at + shift,
            spacing: Spacing {
                remainder,
                ..self.spacing
            },
            ..*self
        }
    }

    /// The train `n` of its own steps later.
    #[must_use]
    pub fn stepped(&self, n: u16) -> Self {
        let (shift, remainder) = self.spacing.after(n);
        Self {
            at: self.at + shift,
            spacing: Spacing {
                remainder,
                ..self.spacing
            },
            ..*self
        }
    }

    /// True when `next` is the run of segments right behind this one, alike in all but their time. Who
    /// numbers segments, and not frames, has the same handles in several flows.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        (self.handle, self.flow, self.group) == (next.handle, next.flow, next.group)
            && u32::from(self.first) + u32::from(self.count) == u32::from(next.first)
            && self.wire_bytes == next.wire_bytes
            && self.marks == next.marks
            && self.damage == next.damage
    }

    /// When the last segment is there.
    pub fn last_time(&self) -> Instant {
        self.time_of(self.count - 1)
    }

    /// The train with all its segments at `at`.
    #[must_use]
    pub fn gathered(&self, at: Instant) -> Self {
        Self {
            at,
            spacing: Spacing::TOGETHER,
            ..*self
        }
    }

    /// The train `by` later.
    #[must_use]
    pub fn delayed(&self, by: Duration) -> Self {
        Self {
            at: self.at + by,
            ..*self
        }
    }
}

/// Trains for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// `count` full frames that come together.
    pub(crate) fn train(handle: u64, count: u16, at_ns: u64) -> Train {
        Train {
            handle,
            first: 0,
            count,
            wire_bytes: 1538,
            flow: 0,
            group: 0,
            marks: Marks::NONE,
            damage: 0,
            at: Instant::from_ns(at_ns),
            spacing: Spacing::TOGETHER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train() -> Train {
        Train {
            spacing: Spacing::back_to_back(1538, 10_000_000_000, 0),
            ..testing::train(1, 44, 100)
        }
    }

    #[test]
    fn segments_follow_at_the_exact_fraction() {
        let t = train();
        let times: Vec<u64> = (0..6).map(|k| t.time_of(k).as_ns()).collect();
        assert_eq!(times, [100, 1330, 2560, 3791, 5021, 6252]);
    }

    #[test]
    fn a_run_goes_on_in_its_own_flow_only() {
        let whole = testing::train(1, 9, 5);
        let (first, rest) = (whole.part(0, 4), whole.part(4, 5));
        assert!(first.is_followed_by(&rest) && !rest.is_followed_by(&first));
        for other in [
            Train { flow: 7, ..rest },
            Train { group: 7, ..rest },
            Train { handle: 7, ..rest },
        ] {
            assert!(!first.is_followed_by(&other));
        }
    }

    #[test]
    fn times_step_as_they_are_computed() {
        let spaced = |step, rate, remainder| Train {
            spacing: Spacing::every(step, rate, remainder),
            ..train()
        };
        let most = u64::MAX;
        for t in [
            train(),
            testing::train(1, 9, 5),
            spaced(1_000_000_007, 3, 2),
            spaced(most, most, most - 1),
            spaced(most - 1, most, most - 1),
        ] {
            let mut times = t.times();
            for k in 0..t.count {
                assert_eq!(times.at(), t.time_of(k), "segment {k} of {t:?}");
                times.step();
            }
        }
    }

    #[test]
    fn a_part_keeps_every_segments_time() {
        let t = train();
        for from in 0..44 {
            let part = t.part(from, 44 - from);
            for k in 0..part.count {
                assert_eq!(
                    part.time_of(k),
                    t.time_of(from + k),
                    "from {from}, segment {k}"
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "inside its train")]
    fn a_part_past_the_end_is_refused() {
        let _ = train().part(40, 5);
    }
}
