//! Serialisation time in exact integer arithmetic: no drift over hours.
//!
//! At 10 Gb/s a full Ethernet frame lasts 1230.4 ns. Rounding each frame to 1230 ns would make the
//! link 0.03 % too fast; the remainder is carried instead, so that n frames end at
//! floor(n * bits * 1e9 / rate) whatever n is.

use crate::{Duration, Rate};

/// Turns wire bits into nanoseconds at one rate and carries the remainder.
#[derive(Clone, Debug)]
pub struct Serialiser {
    rate_bits_per_second: u64,
    /// Numerator of the fraction of a nanosecond still owed, in [0, rate).
    remainder: u64,
}

impl Serialiser {
    /// A serialiser at `rate`.
    ///
    /// # Panics
    /// When the rate is zero: nothing would ever leave.
    pub fn new(rate: Rate) -> Self {
        assert!(
            rate.as_bits_per_second() > 0,
            "a serialiser needs a rate above zero"
        );
        Self {
            rate_bits_per_second: rate.as_bits_per_second(),
            remainder: 0,
        }
    }

    /// The time that the next `wire_bytes` occupy the medium.
    pub fn next(&mut self, wire_bytes: u32) -> Duration {
        let ns_bits = u64::from(wire_bytes) * 8 * NS_PER_S + self.remainder;
        self.remainder = ns_bits % self.rate_bits_per_second;
        Duration::from_ns(ns_bits / self.rate_bits_per_second)
    }

    /// Forgets the remainder: the medium fell idle, and the next frame starts a new busy period.
    pub fn reset(&mut self) {
        self.remainder = 0;
    }

    /// Numerator of the fraction of a nanosecond still owed, over the rate in bits/s.
    pub const fn remainder(&self) -> u64 {
        self.remainder
    }

    /// The rate.
    pub const fn rate(&self) -> Rate {
        Rate::from_bits_per_second(self.rate_bits_per_second)
    }
}

const NS_PER_S: u64 = 1_000_000_000;
// wire_bytes * 8e9 + remainder must fit u64: the product stays below 2^31 * 8e9 < 1.72e19 for
// frames up to 2 GiB, and the largest train here is 64 KiB.
const _: () = assert!((u16::MAX as u64 + 1) * 64 * 8 * NS_PER_S < u64::MAX / 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_frame_lasts_1230_4_ns_at_ten_gigabit() {
        let mut s = Serialiser::new(Rate::from_bits_per_second(10_000_000_000));
        let five: Vec<u64> = (0..5).map(|_| s.next(1538).as_ns()).collect();
        assert_eq!(five, [1230, 1230, 1231, 1230, 1231]);
        assert_eq!(five.iter().sum::<u64>(), 6152);
    }

    #[test]
    fn no_drift_over_a_million_frames_at_an_odd_rate() {
        let rate = 9_285_714_285;
        let mut s = Serialiser::new(Rate::from_bits_per_second(rate));
        let total: u64 = (0..1_000_000).map(|_| s.next(9038).as_ns()).sum();
        let exact = 1_000_000_u128 * 9038 * 8 * 1_000_000_000 / u128::from(rate);
        assert_eq!(u128::from(total), exact);
    }
}
