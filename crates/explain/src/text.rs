//! Numbers in sentences: percentages, loss rates, counts. Rates, times and sizes print themselves.

pub(crate) use units::text::grouped;

/// A share as a percentage: two significant digits below 10 %, whole numbers above; what is there and
/// below a tenth of a percent is said to be less than that.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value > 0.0 && value < 0.1 {
        return "< 0.1 %".to_owned();
    }
    if value == 0.0 || value >= 9.95 {
        return format!("{value:.0} %");
    }
    format!("{} %", significant(value, 2))
}

/// A loss rate, as a percentage and as one in so many packets; two digits, since few losses are
/// ever counted.
pub(crate) fn loss(p: f64) -> String {
    if p <= 0.0 {
        return "0 %".to_owned();
    }
    format!("{} % (1 in {})", significant(p * 100.0, 2), count(1.0 / p))
}

/// A count in two significant digits with commas.
pub(crate) fn count(value: f64) -> String {
    grouped(&format!("{:.0}", round_to(value, 2)))
}

/// `n` of a thing that takes an s in the plural.
pub(crate) fn plural(n: u64, thing: &str) -> String {
    if n == 1 {
        format!("1 {thing}")
    } else {
        format!("{n} {thing}s")
    }
}

/// What stands before what each of several streams does; nothing for one.
pub(crate) fn times(streams: u32) -> String {
    match streams {
        0 | 1 => String::new(),
        n => format!("{n} x "),
    }
}

/// Items as an English list: `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

/// `value` in `digits` significant digits without trailing zeros or exponent.
fn significant(value: f64, digits: i32) -> String {
    let rounded = round_to(value, digits);
    // 12 decimals: as many as small loss rates need, few enough to hide binary fractions.
    let text = format!("{rounded:.12}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn round_to(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let mut magnitude = 0;
    let mut rest = value.abs();
    while rest >= 10.0 {
        rest /= 10.0;
        magnitude += 1;
    }
    while rest < 1.0 && magnitude > -300 {
        rest *= 10.0;
        magnitude -= 1;
    }
    let shift = digits - 1 - magnitude;
    let scale = 10_f64.powi(shift.abs());
    if shift >= 0 {
        (value * scale).round() / scale
    } else {
        (value / scale).round() * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_read_as_percentages() {
        let found = [0.0, 0.004_56, 0.0456, 0.0996, 0.456, 1.0].map(percent);
        assert_eq!(found, ["0 %", "0.46 %", "4.6 %", "10 %", "46 %", "100 %"]);
        let small = [1.5e-6, 0.000_99, 0.001].map(percent);
        assert_eq!(small, ["< 0.1 %", "< 0.1 %", "0.1 %"]);
    }

    #[test]
    fn loss_rates_read_as_one_in_so_many() {
        assert_eq!(loss(1e-3), "0.1 % (1 in 1,000)");
        assert_eq!(loss(4.6e-5), "0.0046 % (1 in 22,000)");
        assert_eq!(loss(1.8e-9), "0.00000018 % (1 in 560,000,000)");
        assert_eq!(loss(0.0), "0 %");
    }

    #[test]
    fn lists_read_as_english() {
        let items = ["a", "b", "c"].map(str::to_owned);
        let read: Vec<String> = (0..=3).map(|n| list(&items[..n])).collect();
        assert_eq!(read, ["", "a", "a and b", "a, b and c"]);
        assert_eq!(
            (plural(1, "stream"), plural(4, "stream")),
            ("1 stream".into(), "4 streams".into())
        );
    }
}
