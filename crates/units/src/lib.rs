//! Instants, durations, rates and sizes: exact integers that parse and print with their unit.
//!
//! Time is u64 nanoseconds since an origin that the driver chooses (584 years before it wraps),
//! rates are u64 bits per second, sizes are u64 bytes. Parsing refuses a number without a unit,
//! since `10` may be seconds to one reader and milliseconds to the next. Printing keeps four
//! significant digits: enough to compare, few enough to read.
//!
//! Shares of a whole are plain `f64` from 0 to 1; [`Percentage`] reads those that were typed with `%`.
//!
//! [`text`] has what all crates share on text from outside: which characters a terminal or a log may show.
//! [`openmetrics`] writes what collectors read.
//!
//! Left out: floating-point units, negative values, rates below 1 bit/s.

#![forbid(unsafe_code)]

mod histogram;
mod log_limit;
pub mod openmetrics;
mod rng;
mod serialise;
pub mod text;

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

pub use histogram::{FineHistogram, Histogram, LogHistogram};
pub use log_limit::LogLimit;
pub use rng::Rng;
pub use serialise::Serialiser;

/// A point in time: nanoseconds since the driver's origin (boot, or the start of a simulation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any event: what an idle machine returns as its next wake-up.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, zero when `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// A span of `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// A span of `s` seconds.
    pub const fn from_s(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// The span in nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The span in seconds, for models and pictures; never for schedules.
    #[allow(
        clippy::cast_precision_loss,
        reason = "53 bits of nanoseconds are 104 days"
    )]
    pub fn as_s_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The same span for `std`'s timers.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }

    /// The span `n` times over; saturates.
    #[must_use]
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Rate {
    /// A rate of `bits_per_second`.
    pub const fn from_bits_per_second(bits_per_second: u64) -> Self {
        Self(bits_per_second)
    }

    /// The rate in bits per second.
    pub const fn as_bits_per_second(self) -> u64 {
        self.0
    }

    /// The average rate of `bytes` over `time`; zero when no time has passed. Saturates.
    pub fn average(bytes: Bytes, time: Duration) -> Self {
        if time.0 == 0 {
            return Self(0);
        }
        let bits = u128::from(bytes.0) * 8 * 1_000_000_000;
        Self(u64::try_from(bits / u128::from(time.0)).unwrap_or(u64::MAX))
    }

    /// The bandwidth-delay product: bytes that the rate carries in `time`, rounded down; saturates.
    pub fn bytes_in(self, time: Duration) -> Bytes {
        let bits_ns = u128::from(self.0) * u128::from(time.0);
        Bytes(u64::try_from(bits_ns / 8_000_000_000).unwrap_or(u64::MAX))
    }
}

impl Bytes {
    /// A size of `bytes`.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The size as a plain number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, d: Self) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, d: Self) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, d: Self) {
        *self = *self - d;
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, b: Self) -> Self {
        Self(self.0.saturating_add(b.0))
    }
}

/// A share of a whole that was typed as a percentage, `0.1%`: 0 % to 100 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Percentage(f64);

impl Percentage {
    /// The share, 0 to 1: the number closest to what was typed.
    pub const fn as_share(self) -> f64 {
        self.0
    }
}

/// Why a text is not a quantity: what was read and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    problem: String,
    expected: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' {}; expected {}",
            self.text, self.problem, self.expected
        )
    }
}

impl std::error::Error for ParseError {}

const RATE_UNITS: &[(&str, u64)] = &[
    ("b/s", 1),
    ("kb/s", 1_000),
    ("Mb/s", 1_000_000),
    ("Gb/s", 1_000_000_000),
    ("Tb/s", 1_000_000_000_000),
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("bps", 1),
    ("kbps", 1_000),
    ("Mbps", 1_000_000),
    ("Gbps", 1_000_000_000),
    ("B/s", 8),
    ("kB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
];
const TIME_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
const RATE_EXPECTED: &str = "a rate such as 10Gb/s, 500Mb/s or 80kb/s (b is bit, B is byte)";
const TIME_EXPECTED: &str = "a time such as 85ms, 1.5s or 10min (ns, us, ms, s, min, h)";
const SIZE_EXPECTED: &str = "a size such as 64KiB, 10MB or 1500B";
const SHARE_EXPECTED: &str = "a share from 0 to 1, or a percentage such as 0.1%";

impl FromStr for Rate {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_quantity(text, RATE_UNITS, RATE_EXPECTED).map(Self)
    }
}

impl FromStr for Duration {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_quantity(text, TIME_UNITS, TIME_EXPECTED).map(Self)
    }
}

impl FromStr for Bytes {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_quantity(text, SIZE_UNITS, SIZE_EXPECTED).map(Self)
    }
}

impl FromStr for Percentage {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let fail = |problem: &str| ParseError {
            text: text.to_owned(),
            problem: problem.to_owned(),
            expected: SHARE_EXPECTED,
        };
        let Some(number) = text.trim().strip_suffix('%') else {
            return Err(fail("has no percent sign"));
        };
        let number = number.trim_end();
        // No sign, exponent or name of a number: what parses with those below means something else.
        if !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(fail("is not a decimal number"));
        }
        // The closest number, which one that is rounded and then divided by 100 may not be.
        let share = format!("{number}e-2").parse::<f64>();
        let share = share.map_err(|_| fail("is not a decimal number"))?;
        if share > 1.0 {
            return Err(fail("is above 100 %"));
        }
        Ok(Self(share))
    }
}

/// Reads `12.5Mb/s`: decimal digits with at most one point, optional blanks, a unit. Exact: the
/// value must come out as a whole number of the base unit.
fn parse_quantity(
    text: &str,
    units: &[(&str, u64)],
    expected: &'static str,
) -> Result<u64, ParseError> {
    let fail = |problem: String| ParseError {
        text: text.to_owned(),
        problem,
        expected,
    };
    let trimmed = text.trim();
    let digits_end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits_end);
    let unit = unit.trim_start();
    if number.is_empty() {
        return Err(fail("does not begin with a number".to_owned()));
    }
    if unit.is_empty() {
        return Err(fail("has no unit".to_owned()));
    }
    let Some(&(_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(fail(format!("has the unknown unit '{unit}'")));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) || fraction.len() > 18 {
        return Err(fail("is not a decimal number".to_owned()));
    }
    let too_large = || fail("is too large".to_owned());
    let parse = |s: &str| {
        if s.is_empty() {
            Ok(0)
        } else {
            s.parse::<u128>()
        }
    };
    let whole = parse(whole).map_err(|_| too_large())?;
    let fraction_value = parse(fraction).map_err(|_| too_large())?;
    let ten_to = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| too_large())?);
    let scaled_fraction = fraction_value * u128::from(scale);
    if !scaled_fraction.is_multiple_of(ten_to) {
        return Err(fail("is finer than the smallest unit".to_owned()));
    }
    let value = whole
        .checked_mul(u128::from(scale))
        .and_then(|v| v.checked_add(scaled_fraction / ten_to));
    value
        .and_then(|v| u64::try_from(v).ok())
        .ok_or_else(too_large)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(
            f,
            self.0,
            &[
                (1_000_000_000_000, "Tb/s"),
                (1_000_000_000, "Gb/s"),
                (1_000_000, "Mb/s"),
                (1_000, "kb/s"),
                (1, "b/s"),
            ],
        )
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(
            f,
            self.0,
            &[
                (1_000_000_000, "s"),
                (1_000_000, "ms"),
                (1_000, "us"),
                (1, "ns"),
            ],
        )
    }
}

impl Bytes {
    const BINARY: [(u64, &'static str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

    /// The largest power of two that divides it evenly, up to 9999 of them.
    fn in_binary(self) -> Option<(u64, &'static str)> {
        let even =
            |scale: u64| (1..10_000).contains(&(self.0 / scale)) && self.0.is_multiple_of(scale);
        let units = Self::BINARY.into_iter().find(|&(scale, _)| even(scale));
        units.map(|(scale, name)| (self.0 / scale, name))
    }

    /// Whether it prints the same in binary units and alone: divides evenly, or is below 1 KiB.
    pub fn is_binary(self) -> bool {
        self.0 < 1 << 10 || self.in_binary().is_some()
    }

    /// In decimal units, whatever it divides by: `65.54 kB`.
    pub fn decimal(self) -> String {
        struct Decimal(u64);
        impl fmt::Display for Decimal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_scaled(
                    f,
                    self.0,
                    &[
                        (1_000_000_000_000, "TB"),
                        (1_000_000_000, "GB"),
                        (1_000_000, "MB"),
                        (1_000, "kB"),
                        (1, "B"),
                    ],
                )
            }
        }
        Decimal(self.0).to_string()
    }
}

impl fmt::Display for Bytes {
    /// Powers of two that divide evenly print binary (64 KiB), up to 9999 of them; everything else decimal
    /// (10.6 MB).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_binary() {
            Some((count, name)) => write!(f, "{count} {name}"),
            None => f.write_str(&self.decimal()),
        }
    }
}

/// Four significant digits in the largest unit that leaves at least 1 before the point.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    let mut chosen = units
        .iter()
        .position(|&(scale, _)| value >= scale)
        .unwrap_or(units.len() - 1);
    // 999.96 would round to 1000.0: take the next unit instead.
    if chosen > 0 && value >= units[chosen - 1].0 - units[chosen - 1].0 / 20_000 {
        chosen -= 1;
    }
    let (scale, name) = units[chosen];
    if value.is_multiple_of(scale) {
        return write!(f, "{} {name}", value / scale);
    }
    #[allow(clippy::cast_precision_loss, reason = "four digits are printed")]
    let scaled = value as f64 / scale as f64;
    let decimals = if scaled >= 100.0 {
        1
    } else if scaled >= 10.0 {
        2
    } else {
        3
    };
    let text = format!("{scaled:.decimals$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    write!(f, "{text} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_with_their_unit() {
        assert_eq!(
            "10Gb/s".parse(),
            Ok(Rate::from_bits_per_second(10_000_000_000))
        );
        assert_eq!(
            "9.2857Gb/s".parse(),
            Ok(Rate::from_bits_per_second(9_285_700_000))
        );
        assert_eq!(
            "950 MB/s".parse(),
            Ok(Rate::from_bits_per_second(7_600_000_000))
        );
        assert_eq!("42.5ms".parse(), Ok(Duration::from_us(42_500)));
        assert_eq!("560ns".parse(), Ok(Duration::from_ns(560)));
        assert_eq!("64KiB".parse(), Ok(Bytes::new(65_536)));
        assert_eq!("10.625MB".parse(), Ok(Bytes::new(10_625_000)));
    }

    #[test]
    fn percentages_are_the_shares_closest_to_them() {
        let share = |text: &str| text.parse().map(Percentage::as_share);
        for (text, value) in [
            ("0%", 0.0),
            ("100%", 1.0),
            ("1%", 0.01),
            ("0.7%", 0.007),
            (" .5 % ", 0.005),
            ("50.%", 0.5),
        ] {
            assert_eq!(share(text), Ok(value), "{text}");
        }
        for (text, says) in [
            ("0.01", "has no percent sign"),
            ("1", "has no percent sign"),
            ("", "has no percent sign"),
            ("%", "is not a decimal number"),
            (".%", "is not a decimal number"),
            ("1.2.3%", "is not a decimal number"),
            ("-1%", "is not a decimal number"),
            ("+1%", "is not a decimal number"),
            ("1e1%", "is not a decimal number"),
            ("inf%", "is not a decimal number"),
            ("nan%", "is not a decimal number"),
            ("1%%", "is not a decimal number"),
            ("100.001%", "is above 100 %"),
        ] {
            let said = share(text).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
            assert!(said.ends_with(SHARE_EXPECTED), "{said}");
        }
    }

    #[test]
    fn every_unit_of_time_is_named_to_whoever_typed_another() {
        let error = "10m".parse::<Duration>().unwrap_err().to_string();
        assert!(error.contains("unknown unit 'm'"), "{error}");
        for (unit, _) in TIME_UNITS {
            let listed = TIME_EXPECTED.contains(&format!("{unit},"))
                || TIME_EXPECTED.contains(&format!("{unit})"));
            // The same as us.
            assert!(listed || *unit == "µs", "{unit}");
        }
    }

    #[test]
    fn a_number_without_unit_is_refused_with_what_was_expected() {
        let error = "10".parse::<Rate>().unwrap_err().to_string();
        assert_eq!(
            error,
            "'10' has no unit; expected a rate such as 10Gb/s, 500Mb/s or 80kb/s (b is bit, B is byte)"
        );
    }

    #[test]
    fn hostile_numbers_are_refused() {
        for text in [
            "",
            "ms",
            "-5ms",
            "1e3ms",
            "1..5s",
            ".s",
            "99999999999999999999h",
            "0.5ns",
            "5 m",
            "1,5s",
        ] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
        let long = format!("0.{}s", "0".repeat(5_000));
        assert!(long.parse::<Duration>().is_err());
    }

    proptest::proptest! {
        /// As the fuzz target `quantity`: refused, or it prints what reads again.
        #[test]
        fn any_text_is_refused_or_prints_what_reads_again(
            text in "[0-9]{0,21}[.]?[0-9]{0,12} ?[a-zA-Z/%]{0,5}|.{0,40}",
        ) {
            let tight = |shown: String| shown.replace(' ', "");
            // The largest are printed rounded up, beyond what reads.
            const MOST: u64 = u64::MAX / 2;
            if let Ok(rate) = text.parse::<Rate>()
                && rate.as_bits_per_second() < MOST
            {
                proptest::prop_assert!(tight(rate.to_string()).parse::<Rate>().is_ok(), "{rate}");
            }
            if let Ok(time) = text.parse::<Duration>()
                && time.as_ns() < MOST
            {
                proptest::prop_assert!(tight(time.to_string()).parse::<Duration>().is_ok(), "{time}");
            }
            if let Ok(size) = text.parse::<Bytes>()
                && size.as_u64() < MOST
            {
                proptest::prop_assert!(tight(size.to_string()).parse::<Bytes>().is_ok(), "{size}");
            }
            let _ = text.parse::<Percentage>();
        }
    }

    #[test]
    fn the_largest_value_parses_and_one_more_does_not() {
        assert_eq!(
            "18446744073709551615ns".parse(),
            Ok(Duration::from_ns(u64::MAX))
        );
        assert!("18446744073709551616ns".parse::<Duration>().is_err());
    }

    #[test]
    fn four_digits_are_printed_in_the_fitting_unit() {
        assert_eq!(
            Rate::from_bits_per_second(949_284_671).to_string(),
            "949.3 Mb/s"
        );
        assert_eq!(
            Rate::from_bits_per_second(999_999_999).to_string(),
            "1 Gb/s"
        );
        assert_eq!(
            Rate::from_bits_per_second(1_000_000_000).to_string(),
            "1 Gb/s"
        );
        assert_eq!(Rate::from_bits_per_second(0).to_string(), "0 b/s");
        assert_eq!(Duration::from_us(85_020).to_string(), "85.02 ms");
        assert_eq!(Bytes::new(65_536).to_string(), "64 KiB");
        assert_eq!(Bytes::new(10_625_000).to_string(), "10.62 MB");
    }

    #[test]
    fn average_and_product_are_inverse() {
        let rate = Rate::from_bits_per_second(1_000_000_000);
        let rtt = Duration::from_ms(85);
        assert_eq!(rate.bytes_in(rtt), Bytes::new(10_625_000));
        assert_eq!(Rate::average(Bytes::new(10_625_000), rtt), rate);
        assert_eq!(
            Rate::average(Bytes::new(1), Duration::ZERO),
            Rate::default()
        );
    }
}
