//! Times counted in buckets whose width grows with the time: any number of them in 40 KiB, each known
//! to better than 1 %.
//!
//! Below 128 ns every nanosecond has a bucket of its own; above, each power of two is cut into 128
//! (log-linear, as HDR histograms are), so a bucket is at most 1/128 = 0.78 % of its times wide. A
//! quantile is told as the middle of its bucket, within 0.4 %. Least, largest and mean are exact.

use units::Duration;

/// A histogram of times from 0 to about 18 minutes; longer ones count as the longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty one. All its memory is taken here, none later.
    pub fn new() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
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
        self.buckets[bucket_of(ns)] += 1;
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
            middle_of(found).clamp(self.min_ns, self.max_ns),
        ))
    }
}

/// The bucket of a time.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min(LONGEST_NS);
    // Octave 0 holds everything below 2^STEP_BITS; octave k the times from 2^(STEP_BITS + k - 1) on.
    let octave = (64 - STEP_BITS).saturating_sub(ns.leading_zeros());
    let shift = octave.saturating_sub(1);
    let step = (ns >> shift) as usize & (STEPS - 1);
    octave as usize * STEPS + step
}

/// The middle of a bucket's times.
fn middle_of(bucket: usize) -> u64 {
    let (octave, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    if octave == 0 {
        return step;
    }
    let width = 1_u64 << (octave - 1);
    (STEPS as u64 + step) * width + width / 2
}

const STEP_BITS: u32 = 7;
const STEPS: usize = 1 << STEP_BITS;
/// 2^40 ns are 18 minutes: above any round trip that anybody waits for.
const LONGEST_NS: u64 = (1 << 40) - 1;
const BUCKETS: usize = (40 - STEP_BITS as usize + 1) * STEPS;

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
        assert_eq!((both.count(), both.min()), (4, Some(Duration::from_ns(3))));
    }

    #[test]
    fn times_beyond_the_last_bucket_count_as_longest() {
        let made = of(&[u64::MAX, LONGEST_NS]);
        assert_eq!(made.buckets[BUCKETS - 1], 2);
        assert_eq!(made.max(), Some(Duration::from_ns(u64::MAX)));
    }

    proptest! {
        #[test]
        fn a_time_is_known_to_better_than_half_a_percent(ns in 0_u64..1 << 40) {
            let middle = middle_of(bucket_of(ns));
            prop_assert!(middle.abs_diff(ns) * 256 <= ns, "{ns} is told as {middle}");
        }

        #[test]
        fn buckets_follow_their_times(a in 0_u64..1 << 40, b in 0_u64..1 << 40) {
            prop_assert!((a <= b) <= (bucket_of(a) <= bucket_of(b)));
        }
    }
}
