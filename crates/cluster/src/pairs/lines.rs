//! The lines that users of these benchmarks know, and that their scripts read.
//!
//! CBench's parser (`output_parse/rotate.pm`) wants a line with `rotate 0`, then from `Min
//! Unidirectional` on four lines with a colon, blanks, a number with a point, and a unit. MB/s are 10^6
//! bytes a second.

use super::Spread;

/// What `rotate` prints of a rotation; rates in bytes a second, in the order of the senders.
pub fn bandwidth_line(rotation: usize, rates: &[f64]) -> String {
    let spread = Spread::of(rates).unwrap_or_default();
    let megabytes = |rate: f64| rate / MEGABYTE;
    format!(
        "rotate {rotation} ** {}** min={:.2} max={:.2} ave={:.2} aggregate={:.2} aggregate_floor={:.2}\n",
        each(rates.iter().map(|&r| megabytes(r))),
        megabytes(spread.min),
        megabytes(spread.max),
        megabytes(spread.mean),
        megabytes(spread.sum),
        megabytes(spread.floor),
    )
}

/// What `rotate` closes with; `bytes` of a message, `tests` of a rotation, `messages` of a test.
pub fn bandwidth_closing(rounds: &[Vec<f64>], bytes: u32, tests: u32, messages: u32) -> String {
    let spread = Spread::of_rounds(rounds).unwrap_or_default();
    let lines = [
        ("Min Unidirectional Link Bandwidth", spread.min),
        ("Max Unidirectional Link Bandwidth", spread.max),
        ("Average Link Unidirectional Bandwidth", spread.mean),
        ("Average Aggregate Unidirectional Bandwidth", spread.sum),
    ];
    let mut out = String::from("\n");
    for (name, rate) in lines {
        out += &format!("{name}: {:.2} MB/s\n", rate / MEGABYTE);
    }
    out + &using(bytes, tests, messages)
}

/// What `rotate_latency` prints of a rotation; half round trips in seconds.
pub fn latency_line(rotation: usize, halves: &[f64]) -> String {
    let spread = Spread::of(halves).unwrap_or_default();
    format!(
        "rotate {rotation} ** {}** min={:.2} max={:.2} ave={:.2}\n",
        each(halves.iter().map(|&s| s * MICROSECONDS)),
        spread.min * MICROSECONDS,
        spread.max * MICROSECONDS,
        spread.mean * MICROSECONDS,
    )
}

/// What `rotate_latency` closes with.
pub fn latency_closing(rounds: &[Vec<f64>], bytes: u32, tests: u32, round_trips: u32) -> String {
    let spread = Spread::of_rounds(rounds).unwrap_or_default();
    let lines = [
        ("Min Link Latency", spread.min),
        ("Max Link Latency", spread.max),
        ("Average Link Latency", spread.mean),
    ];
    let mut out = String::from("\n");
    for (name, half) in lines {
        out += &format!("{name}: {:.2} us\n", half * MICROSECONDS);
    }
    out + &using(bytes, tests, round_trips)
}

/// What lines of rotations say of each pair, a list for each rotation, as printed (MB/s, or microseconds);
/// `None` unless they are numbered from 0 and each has as many pairs as there are rotations. Other lines count
/// for nothing.
pub fn rotations(text: &str) -> Option<Vec<Vec<f64>>> {
    let mut all: Vec<Vec<f64>> = Vec::new();
    for line in text.lines() {
        let Some((number, rest)) = line
            .strip_prefix("rotate ")
            .and_then(|rest| rest.split_once(" ** "))
        else {
            continue;
        };
        if number.trim().parse() != Ok(all.len()) {
            return None;
        }
        let (pairs, _) = rest.split_once("**")?;
        let pairs = pairs.split(',').map(str::trim).filter(|p| !p.is_empty());
        all.push(pairs.map(|p| p.parse().ok()).collect::<Option<_>>()?);
    }
    let whole = !all.is_empty() && all.iter().all(|pairs| pairs.len() == all.len());
    whole.then_some(all)
}

/// A row of `com`: MB/s of each task, or microseconds.
pub fn com_line(tasks: usize, bytes: u32, operations: u32, values: &[f64]) -> String {
    let spread = Spread::of(values).unwrap_or_default();
    let setting = format!("({tasks}, {bytes}, {operations}, 1)");
    format!(
        "{setting:<28}: {:>12.3} / {:>12.3} / {:>12.3}\n",
        spread.min, spread.mean, spread.max
    )
}

/// What `com` closes with.
pub fn com_summary(values: &[f64]) -> String {
    let spread = Spread::of(values).unwrap_or_default();
    format!(
        "Summary : {:.3} / {:.3} / {:.3}\n",
        spread.min, spread.mean, spread.max
    )
}

fn each(values: impl Iterator<Item = f64>) -> String {
    values.map(|value| format!("{value:.2} , ")).collect()
}

fn using(bytes: u32, tests: u32, iterations: u32) -> String {
    format!("Using {bytes} byte messages, {tests} tests of {iterations} iterations\n")
}

const MEGABYTE: f64 = 1e6;
const MICROSECONDS: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn what_was_printed_is_a_square_of_numbers_or_nothing(
            text in "(rotate [0-3] \\*\\* ([0-9.]{1,3} , ){0,3}\\*\\*[a-z]{0,3}\n|[a-z*,]{0,6}\n){0,6}",
        ) {
            if let Some(found) = rotations(&text) {
                assert!(!found.is_empty());
                assert!(found.iter().all(|pairs| pairs.len() == found.len()));
            }
        }
    }

    /// What CBench's `rotate` printed over eight ranks, and what its numbers were.
    #[test]
    fn a_rotation_reads_as_cbench_prints_it() {
        let rates = [1667.02, 1634.98, 2010.21, 5592.55].map(|r| r * 1e6);
        assert_eq!(
            bandwidth_line(0, &rates),
            "rotate 0 ** 1667.02 , 1634.98 , 2010.21 , 5592.55 , ** min=1634.98 max=5592.55 \
             ave=2726.19 aggregate=10904.76 aggregate_floor=6539.92\n"
        );
        assert_eq!(
            latency_line(1, &[2.74e-6, 2.76e-6]),
            "rotate 1 ** 2.74 , 2.76 , ** min=2.74 max=2.76 ave=2.75\n"
        );
    }

    #[test]
    fn the_closing_lines_are_the_ones_that_cbench_reads() {
        let rounds = [vec![1e9, 2e9], vec![3e9, 4e9]];
        assert_eq!(
            bandwidth_closing(&rounds, 8_388_608, 3, 10),
            "\nMin Unidirectional Link Bandwidth: 1000.00 MB/s\n\
             Max Unidirectional Link Bandwidth: 4000.00 MB/s\n\
             Average Link Unidirectional Bandwidth: 2500.00 MB/s\n\
             Average Aggregate Unidirectional Bandwidth: 5000.00 MB/s\n\
             Using 8388608 byte messages, 3 tests of 10 iterations\n"
        );
        assert_eq!(
            latency_closing(&[vec![2e-6], vec![4e-6]], 1, 1, 10_000),
            "\nMin Link Latency: 2.00 us\nMax Link Latency: 4.00 us\nAverage Link Latency: 3.00 us\n\
             Using 1 byte messages, 1 tests of 10000 iterations\n"
        );
    }

    #[test]
    fn what_is_printed_can_be_read() {
        let rates = [[1667.02, 1634.98], [2010.21, 5592.55]];
        let mut text = "process 1 on n02\r\n".to_owned();
        for (n, rotation) in rates.iter().enumerate() {
            text += &bandwidth_line(n, &rotation.map(|r| r * 1e6)).replace('\n', "\r\n");
        }
        text += &bandwidth_closing(&[vec![1e9]], 8, 3, 10);
        assert_eq!(rotations(&text).unwrap(), rates);
        let latency = latency_line(0, &[2.74e-6]);
        assert_eq!(rotations(&latency), Some(vec![vec![2.74]]));
        // Cut off, out of order, not a number, nothing.
        for wrong in [
            text.lines().take(2).collect::<Vec<_>>().join("\n"),
            text.replace("rotate 1", "rotate 2"),
            text.replace("1634.98 ,", "many ,"),
            "Must use at least 2 processes\n".to_owned(),
        ] {
            assert_eq!(rotations(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn com_prints_least_mean_and_most() {
        let line = com_line(4, 32, 100, &[1.0, 3.0]);
        assert!(line.starts_with("(4, 32, 100, 1) "), "{line}");
        let numbers: Vec<&str> = line.split([':', '/']).skip(1).map(str::trim).collect();
        assert_eq!(numbers, ["1.000", "2.000", "3.000"]);
        assert_eq!(
            com_summary(&[1.0, 3.0]),
            "Summary : 1.000 / 2.000 / 3.000\n"
        );
    }
}
