//! Ticks of an interface's clock as nanoseconds since the epoch.
//!
//! Steps finer than a nanosecond are cut off, as Wireshark does.

/// How the stamps of an interface count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    unit: Unit,
    /// What is added to all stamps; saturated.
    offset_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// A tick is so many nanoseconds.
    Nanoseconds(u64),
    /// A nanosecond is so many ticks, at least 10.
    TicksEach(u64),
    /// A second is two to this power of ticks.
    Binary(u8),
}

impl Clock {
    /// Microseconds: what counts without a resolution (draft section 4.2, if_tsresol).
    pub(super) const MICROSECONDS: Self = Self {
        unit: Unit::Nanoseconds(1_000),
        offset_ns: 0,
    };

    /// By the options if_tsresol and if_tsoffset (seconds) of an interface.
    pub(super) fn new(resolution: u8, offset_s: i64) -> Self {
        let power = u32::from(resolution & 0x7f);
        let unit = match (resolution >> 7, power) {
            (0, 0..=9) => Unit::Nanoseconds(10_u64.pow(9 - power)),
            // More ticks a nanosecond than a stamp holds: all stamps are zero.
            (0, _) => match 10_u64.checked_pow(power - 9) {
                Some(ticks) => Unit::TicksEach(ticks),
                None => Unit::Nanoseconds(0),
            },
            _ => Unit::Binary(resolution & 0x7f),
        };
        Self {
            unit,
            offset_ns: offset_s.saturating_mul(1_000_000_000),
        }
    }

    /// A stamp's time; saturates at both ends.
    #[inline]
    pub(super) fn ns(self, ticks: u64) -> u64 {
        let ns = match self.unit {
            Unit::Nanoseconds(each) => ticks.saturating_mul(each),
            Unit::TicksEach(each) => ticks / each,
            Unit::Binary(power) => {
                let ns = (u128::from(ticks) * NS_PER_S) >> power;
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        };
        ns.saturating_add_signed(self.offset_ns)
    }

    /// Nanoseconds between two neighbouring stamps, rounded up, at least one.
    pub(super) fn tick_ns(self) -> u32 {
        let ns = match self.unit {
            Unit::Nanoseconds(each) => each.max(1),
            Unit::TicksEach(_) => 1,
            Unit::Binary(power) => 1_000_000_000_u64.div_ceil(1 << power.min(30)),
        };
        u32::try_from(ns).unwrap_or(u32::MAX)
    }
}

const NS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_in_every_resolution() {
        let binary = |power: u8| 0x80 | power;
        for (resolution, ticks, ns, tick_ns) in [
            (0, 3, 3_000_000_000, 1_000_000_000),
            (3, 3, 3_000_000, 1_000_000),
            (6, 1_700_000_000_123_456, 1_700_000_000_123_456_000, 1_000),
            (9, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789, 1),
            (10, 19, 1, 1),
            (12, 1_999, 1, 1),
            (28, u64::MAX, 1, 1),
            (29, u64::MAX, 0, 1),
            (127, u64::MAX, 0, 1),
            (binary(0), 2, 2_000_000_000, 1_000_000_000),
            (binary(10), 1, 976_562, 976_563),
            (binary(30), 1 << 30, 1_000_000_000, 1),
            (binary(32), 1 << 31, 500_000_000, 1),
            (binary(127), u64::MAX, 0, 1),
        ] {
            let clock = Clock::new(resolution, 0);
            assert_eq!(
                (clock.ns(ticks), clock.tick_ns()),
                (ns, tick_ns),
                "{resolution}"
            );
        }
        assert_eq!(Clock::new(6, 0), Clock::MICROSECONDS);
    }

    #[test]
    fn times_that_do_not_fit_saturate() {
        assert_eq!(Clock::new(0, 0).ns(u64::MAX), u64::MAX);
        assert_eq!(Clock::new(0x80, 0).ns(u64::MAX), u64::MAX);
        assert_eq!(Clock::new(9, -2).ns(2_000_000_001), 1);
        assert_eq!(Clock::new(9, -2).ns(1_999_999_999), 0);
        assert_eq!(Clock::new(9, i64::MAX).ns(0), i64::MAX.unsigned_abs());
        assert_eq!(
            Clock::new(6, 1_700_000_000).ns(5),
            1_700_000_000_000_005_000
        );
    }
}
