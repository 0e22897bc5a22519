//! Least, greatest, mean and median of many numbers in 300 bytes.
//!
//! Four buckets for each doubling, of 16 bits each; when one is full, all are halved. After 64 numbers
//! each seventh goes there; the median is interpolated in its bucket, so it is off by an
//! eighth at most, and by a few percent where numbers lie evenly.

use crate::trace::number::whole;

/// What is said of many numbers. The unit is in the name of the field that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many; all else is zero for none.
    pub count: u64,
    /// The least.
    pub min: u64,
    /// The middle one, within an eighth.
    pub median: u64,
    /// 95 of 100 are no greater, within an eighth.
    pub p95: u64,
    /// Their mean.
    pub mean: u64,
    /// The greatest.
    pub max: u64,
}

impl Spread {
    /// Of no numbers.
    pub(crate) const NONE: Self = Self {
        count: 0,
        min: 0,
        median: 0,
        p95: 0,
        mean: 0,
        max: 0,
    };
}

/// Counts of numbers by size.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Histogram {
    /// Low bits that are cut off.
    shift: u32,
    count: u64,
    min: u64,
    max: u64,
    sum: f64,
    buckets: [u16; BUCKETS],
}

impl Histogram {
    /// Numbers below 2^`shift` are one bucket, those from 2^(33 + `shift`) on another.
    pub(crate) fn new(shift: u32) -> Self {
        Self {
            shift,
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0.0,
            buckets: [0; BUCKETS],
        }
    }

    pub(crate) fn add(&mut self, value: u64) {
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += value as f64;
        // The buckets are another line of memory: later on each seventh number is enough for them.
        if self.count > ALL_COUNTED && !self.count.is_multiple_of(7) {
            return;
        }
        let bucket = &mut self.buckets[bucket(value >> self.shift)];
        *bucket += 1;
        if *bucket == u16::MAX {
            self.buckets.iter_mut().for_each(|n| *n /= 2);
        }
    }

    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        self.count ^ self.max
    }

    /// A bucket of each line of memory.
    pub(crate) fn fetch_all(&self) -> u64 {
        let some = self.buckets.iter().step_by(32);
        some.fold(self.count, |all, &n| all ^ u64::from(n))
    }

    pub(crate) fn spread(&self) -> Spread {
        if self.count == 0 {
            return Spread::default();
        }
        Spread {
            count: self.count,
            min: self.min,
            median: self.quantile(0.5),
            p95: self.quantile(0.95),
            mean: whole(self.sum / self.count as f64),
            max: self.max,
        }
    }

    fn quantile(&self, share: f64) -> u64 {
        // All others are empty, and most numbers of a connection lie in a few.
        let [first, last] = [self.min, self.max].map(|n| bucket(n >> self.shift));
        let some = self.buckets.get(first..=last).unwrap_or_default();
        let all = some.iter().map(|&n| u64::from(n)).sum::<u64>();
        let rank = all as f64 * share;
        let mut below = 0.0;
        for (i, &n) in (first..).zip(some) {
            let n = f64::from(n);
            if n > 0.0 && below + n >= rank {
                let (low, high) = (lower(i), lower(i + 1));
                let within = (high - low) as f64 * (rank - below) / n;
                let value = (low + whole(within)) << self.shift;
                return value.clamp(self.min, self.max);
            }
            below += n;
        }
        self.max
    }
}

fn bucket(value: u64) -> usize {
    let octave = u64::BITS - value.max(1).leading_zeros() - 1;
    let index = match octave {
        0 | 1 => value,
        _ => u64::from(octave - 1) * 4 + ((value >> (octave - 2)) & 3),
    };
    usize::try_from(index).map_or(BUCKETS - 1, |i| i.min(BUCKETS - 1))
}

/// The least number of a bucket.
fn lower(index: usize) -> u64 {
    let index = index as u64;
    match index {
        0..4 => index,
        _ => (4 + index % 4) << (index / 4 - 1),
    }
}

const BUCKETS: usize = 128;
/// Numbers that are put into the buckets each.
const ALL_COUNTED: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_begins_at_its_least_number() {
        for i in 0..BUCKETS {
            assert_eq!(bucket(lower(i)), i);
            assert_eq!(bucket(lower(i + 1) - 1), i);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_median_is_within_an_eighth() {
        let mut h = Histogram::new(8);
        (0..1_001_u64).for_each(|i| h.add(10_000_000 + i * 1_000));
        let spread = h.spread();
        assert_eq!(
            (spread.count, spread.min, spread.max),
            (1_001, 10_000_000, 11_000_000)
        );
        assert_eq!(spread.mean, 10_500_000);
        assert!(
            spread.median.abs_diff(10_500_000) < 10_500_000 / 8,
            "{spread:?}"
        );
        assert!(
            spread.p95.abs_diff(10_950_000) < 10_950_000 / 8 && spread.p95 > spread.median,
            "{spread:?}"
        );
    }

    #[test]
    fn a_full_bucket_halves_all_and_the_median_stays() {
        let mut h = Histogram::new(0);
        (0..1_200_000).for_each(|i| h.add(if i % 3 == 0 { 1_000 } else { 1_000_000 }));
        let spread = h.spread();
        assert_eq!(spread.count, 1_200_000);
        assert!(spread.median.abs_diff(1_000_000) < 130_000, "{spread:?}");
    }

    #[test]
    fn of_none_all_is_zero_and_of_one_all_is_it() {
        let mut h = Histogram::new(8);
        assert_eq!(h.spread(), Spread::default());
        h.add(u64::MAX);
        let spread = h.spread();
        assert_eq!(
            (spread.min, spread.median, spread.max),
            (u64::MAX, u64::MAX, u64::MAX)
        );
    }
}
