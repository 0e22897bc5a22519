//! Messages of several sizes as a table: a line for each, then what the numbers are.

use super::POINTS_MAX;
use crate::model::MessageSweep;
use crate::table::{Column, Table};
use crate::text;

/// Lines ended by `\n`; of more sizes than a screen shows the first.
pub(super) fn table(messages: &MessageSweep) -> String {
    let mut table = Table::new([8, 11, 8, 8, 8, 8, 8, 10, 10, 10].map(Column::numbers));
    table.row([
        "bytes",
        "round trips",
        "min us",
        "median",
        "p99",
        "p99.9",
        "max",
        "up",
        "down",
        "both",
    ]);
    let us =
        |ns: Option<u64>| ns.map_or_else(|| "–".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e3));
    for p in messages.points.iter().take(POINTS_MAX) {
        let sizes = [p.message_bytes.to_string(), p.round_trips.to_string()];
        let times = [
            p.latency_min_ns,
            p.latency_median_ns,
            p.latency_p99_ns,
            p.latency_p999_ns,
            p.latency_max_ns,
        ];
        let rates = [
            p.up_bits_per_second,
            p.down_bits_per_second,
            p.both_bits_per_second,
        ];
        let cells = sizes.into_iter().chain(times.map(us));
        table.row(cells.chain(rates.map(text::rate)));
    }
    let mut out = table.lines().join("\n");
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MessagePoint;

    #[test]
    fn a_size_has_a_line_and_what_was_not_measured_a_dash() {
        let messages = MessageSweep {
            points: vec![MessagePoint {
                message_bytes: 64,
                round_trips: 1_000,
                latency_min_ns: Some(6_123),
                up_bits_per_second: 941_000_000,
                ..MessagePoint::default()
            }],
            ..MessageSweep::default()
        };
        let text = table(&messages);
        let line = text.lines().nth(1).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[..4], ["64", "1000", "6.12", "–"], "{line}");
        assert_eq!(cells[7..9], ["941", "Mb/s"], "{line}");
    }
}
