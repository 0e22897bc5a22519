//! The result of STAMP probes, as text.

use report::model::{ClockRecord, DelayRecord, StampRecord};
use report::table::{Column, Table};

use super::wrapped;

/// The record as lines of at most `width` columns.
pub(crate) fn text(r: &StampRecord, width: usize) -> String {
    let mut text = format!(
        "{}: {} of {} probes answered\n",
        r.reflector, r.answered, r.sent
    );
    let mut line = |words: &str| text += &wrapped(&format!("  {words}"), 4, width);
    line(&match (r.forward_lost, r.backward_lost) {
        (Some(forward), Some(backward)) => format!(
            "lost: {forward} forward, {backward} backward, {} in an unknown direction",
            r.lost_somewhere
        ),
        _ => format!(
            "lost: {}; the reflector's sequence numbers do not show the direction",
            r.lost_somewhere
        ),
    });
    line(&format!(
        "reordered: {} forward, {} backward; duplicates: {} forward, {} backward",
        r.forward_reordered, r.backward_reordered, r.forward_duplicates, r.backward_duplicates
    ));
    text += &delays(r);
    if let Some(clocks) = &r.clocks {
        text += &clock_lines(clocks, width);
    }
    text
}

/// A row for the round trip and for each direction; variation is the excess over the minimum (RFC 5481).
fn delays(r: &StampRecord) -> String {
    let ms = |ns: i64| format!("{:.3} ms", ns as f64 / 1e6);
    let rows: Vec<(&str, &DelayRecord)> = [
        ("round trip", &r.round_trip),
        ("forward", &r.forward),
        ("backward", &r.backward),
    ]
    .into_iter()
    .filter_map(|(name, delay)| Some((name, delay.as_ref()?)))
    .collect();
    if rows.is_empty() {
        return String::new();
    }
    let numbers = [9, 9, 9, 9, 9, 9].map(Column::numbers);
    let mut table = Table::new([Column::words(10)].into_iter().chain(numbers));
    table.row(["", "", "", "", "", "variation", ""]);
    table.row(["", "min", "median", "p99", "max", "median", "p99"]);
    for (name, d) in rows {
        let times = [
            d.min_ns,
            d.median_ns,
            d.p99_ns,
            d.max_ns,
            d.variation_median_ns,
            d.variation_p99_ns,
        ];
        table.row([name.to_owned()].into_iter().chain(times.map(ms)));
    }
    let lines = table.lines().into_iter();
    lines
        .map(|line| format!("  {}\n", line.trim_end()))
        .collect()
}

/// The offset of the clocks, and what it means for the delays of each direction.
fn clock_lines(c: &ClockRecord, width: usize) -> String {
    let drift = match (c.drift_ppm, c.drift_uncertainty_ppm) {
        (Some(ppm), Some(within)) => format!("drift {ppm:+.2} ± {within:.2} ppm"),
        _ => "too short to measure the drift".to_owned(),
    };
    let uncertainty = c.offset_uncertainty_ns / 1e6;
    let offset = format!(
        "  The reflector's clock is {:+.3} ± {uncertainty:.3} ms ahead; {drift}.",
        c.offset_ns / 1e6,
    );
    let caveat = format!(
        "  Forward and backward delays are uncertain by {uncertainty:.3} ms too: a constant difference \
         between the two directions looks like a clock offset. Their sum and \
         their variations do not depend on it."
    );
    wrapped(&offset, 2, width) + &wrapped(&caveat, 2, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_loss_in_both_directions_as_text() {
        let delay = |min_ns: i64| DelayRecord {
            min_ns,
            median_ns: min_ns + 212_000,
            p99_ns: min_ns + 1_904_000,
            max_ns: min_ns + 103_070_000,
            variation_median_ns: 212_000,
            variation_p99_ns: 1_904_000,
        };
        let record = StampRecord {
            reflector: "203.0.113.7:862".to_owned(),
            sent: 1_000,
            answered: 987,
            forward_lost: Some(10),
            backward_lost: Some(2),
            lost_somewhere: 1,
            forward_reordered: 4,
            backward_duplicates: 1,
            round_trip: Some(delay(85_020_000)),
            forward: Some(delay(42_400_000)),
            backward: Some(delay(42_620_000)),
            clocks: Some(ClockRecord {
                offset_ns: -1_204_000.0,
                offset_uncertainty_ns: 42_510_000.0,
                drift_ppm: Some(-3.41),
                drift_uncertainty_ppm: Some(0.27),
                ..ClockRecord::default()
            }),
            ..StampRecord::default()
        };
        crate::print::golden!("stamp", |width| text(&record, width));
    }

    #[test]
    fn a_reflector_without_sequence_numbers_and_a_short_test_as_text() {
        let record = StampRecord {
            reflector: "[2001:db8::7]:862".to_owned(),
            sent: 10,
            answered: 9,
            lost_somewhere: 1,
            clocks: Some(ClockRecord::default()),
            ..StampRecord::default()
        };
        crate::print::golden!("stamp_short", |width| text(&record, width));
    }
}
