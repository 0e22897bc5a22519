//! Times counted in buckets whose width grows with the time: any number of them in bounded memory, each
//! known to a given share of itself.
//!
//! Below 2^STEP_BITS ns every nanosecond has a bucket of its own; above, each power of two is cut into
//! 2^STEP_BITS (log-linear, as HDR histograms are). With 7 bits a bucket is at most 1/128 = 0.78 % of its
//! times wide, and a quantile, told as the middle of its bucket, is within 0.4 %. Least, largest and mean
//! are exact.

use crate::Duration;

/// Times known to better than 1 %, in 34 KiB.
pub type Histogram = LogHistogram<7>;

/// Times known to 1/4096 of themselves, and to the nanosecond below 8 us, in 1 MiB: gaps between packets.
pub type FineHistogram = LogHistogram<12>;

/// A histogram of times from 0 to about 18 minutes; longer ones count as the longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHistogram<const STEP_BITS: u32> {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl<const STEP_BITS: u32> Default for LogHistogram<STEP_BITS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const STEP_BITS: u32> LogHistogram<STEP_BITS> {
    const STEPS: usize = 1 << STEP_BITS;
    const BUCKETS: usize = (LONGEST_BITS as usize - STEP_BITS as usize + 1) * Self::STEPS;

    /// An empty one. All its memory is taken here, none later.
    pub fn new() -> Self {
        Self {
            buckets: vec![0; Self::BUCKETS],
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Counts a time.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        let ns = time.as_ns();
        self.buckets[Self::bucket_of(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts what another one has counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += more;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets what it counted, and keeps its memory.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.buckets.fill(0);
        }
        (self.count, self.sum_ns) = (0, 0);
        (self.min_ns, self.max_ns) = (u64::MAX, 0);
    }

    /// Buckets that counted something, by time: the shortest time of each, the first beyond it, and how
    /// many. The last bucket holds all longer times too.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, Duration, u64)> + '_ {
        let counted = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        counted.map(|(bucket, n)| {
            let (from, width) = Self::extent_of(bucket);
            (Duration::from_ns(from), Duration::from_ns(from + width), *n)
        })
    }

    /// Times counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The least, exactly; `None` of nothing.
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_ns(self.min_ns))
    }

    /// The largest, exactly; `None` of nothing.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_ns(self.max_ns))
    }

    /// The mean, exactly but for the rounding; `None` of nothing.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum_ns.checked_div(u128::from(self.count))?;
        Some(Duration::from_ns(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The time that `permille` of 1000 times do not exceed, 500 being the median: the nearest rank,
    /// told as its bucket's middle. `None` of nothing.
    pub fn quantile(&self, permille: u64) -> Option<Duration> {
        let rank = (u128::from(self.count) * u128::from(permille.min(1000))).div_ceil(1000);
        let rank = u64::try_from(rank).unwrap_or(u64::MAX).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        })?;
        Some(Duration::from_ns(
            Self::middle_of(found).clamp(self.min_ns, self.max_ns),
        ))
    }

    /// The bucket of a time.
    #[inline]
    fn bucket_of(ns: u64) -> usize {
        let ns = ns.min(LONGEST_NS);
        // Octave 0 holds everything below 2^STEP_BITS; octave k the times from 2^(STEP_BITS + k - 1) on.
        let octave = (64 - STEP_BITS).saturating_sub(ns.leading_zeros());
        let shift = octave.saturating_sub(1);
        let step = (ns >> shift) as usize & (Self::STEPS - 1);
        octave as usize * Self::STEPS + step
    }

    /// The middle of a bucket's times.
    fn middle_of(bucket: usize) -> u64 {
        let (from, width) = Self::extent_of(bucket);
        from + width / 2
    }

    /// A bucket's shortest time, and how many nanoseconds it holds.
    fn extent_of(bucket: usize) -> (u64, u64) {
        let (octave, step) = (bucket / Self::STEPS, (bucket % Self::STEPS) as u64);
        if octave == 0 {
            return (step, 1);
        }
        let width = 1_u64 << (octave - 1);
        ((Self::STEPS as u64 + step) * width, width)
    }
}

/// 2^40 ns are 18 minutes: above any round trip that anybody waits for.
const LONGEST_BITS: u32 = 40;
const LONGEST_NS: u64 = (1 << LONGEST_BITS) - 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: &[u64]) -> Histogram {
        let mut made = Histogram::new();
        for &ns in times {
            made.record(Duration::from_ns(ns));
        }
        made
    }

    #[test]
    fn nothing_has_no_median() {
        let empty = Histogram::new();
        assert_eq!((empty.quantile(500), empty.min()), (None, None));
        assert_eq!((empty.mean(), empty.max()), (None, None));
    }

    #[test]
    fn short_times_are_exact_and_ranks_are_the_nearest() {
        let times: Vec<u64> = (1..=100).collect();
        let made = of(&times);
        let ns = |permille| made.quantile(permille).unwrap().as_ns();
        assert_eq!((ns(500), ns(990), ns(999), ns(1000)), (50, 99, 100, 100));
        assert_eq!((ns(0), made.mean().unwrap().as_ns()), (1, 50));
    }

    #[test]
    fn two_together_are_one_of_all_their_times() {
        let mut both = of(&[5, 900]);
        both.merge(&of(&[3, 70_000]));
        assert_eq!(both, of(&[3, 5, 900, 70_000]));
        both.merge(&Histogram::new());
        let mut cleared = both.clone();
        cleared.clear();
        assert_eq!(cleared, Histogram::new());
        assert_eq!((both.count(), both.min()), (4, Some(Duration::from_ns(3))));
    }

    #[test]
    fn buckets_tell_what_they_hold() {
        let told: Vec<_> = of(&[127, 128, 129, 560, 576])
            .buckets()
            .map(|(from, to, n)| (from.as_ns(), to.as_ns(), n))
            .collect();
        assert_eq!(
            told,
            [
                (127, 128, 1),
                (128, 129, 1),
                (129, 130, 1),
                (560, 564, 1),
                (576, 580, 1)
            ]
        );
    }

    #[test]
    fn fine_ones_tell_single_nanoseconds_below_8_us() {
        let mut fine = FineHistogram::new();
        for ns in [7_780, 7_781, 7_796, 8_191, 8_192, 8_193] {
            fine.record(Duration::from_ns(ns));
        }
        let widths: Vec<_> = fine.buckets().map(|(_, to, n)| (to.as_ns(), n)).collect();
        assert_eq!(
            widths,
            [(7_781, 1), (7_782, 1), (7_797, 1), (8_192, 1), (8_194, 2)]
        );
    }

    #[test]
    fn times_beyond_the_last_bucket_count_as_longest() {
        let made = of(&[u64::MAX, LONGEST_NS]);
        assert_eq!(made.buckets[Histogram::BUCKETS - 1], 2);
        assert_eq!(made.max(), Some(Duration::from_ns(u64::MAX)));
    }

    proptest! {
        #[test]
        fn a_time_is_known_to_better_than_half_a_percent(ns in 0_u64..1 << 40) {
            let middle = Histogram::middle_of(Histogram::bucket_of(ns));
            prop_assert!(middle.abs_diff(ns) * 256 <= ns, "{ns} is told as {middle}");
        }

        #[test]
        fn buckets_follow_their_times(a in 0_u64..1 << 40, b in 0_u64..1 << 40) {
            prop_assert!((a <= b) <= (Histogram::bucket_of(a) <= Histogram::bucket_of(b)));
        }
    }
}
