//! Messages of several sizes as a table: a line for each, then what the numbers are.

use super::POINTS_MAX;
use crate::model::{MessagePoint, MessageSweep};
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

/// Where the messages went, and what latency and rates are.
pub(crate) fn notes(messages: &MessageSweep) -> Vec<String> {
    let ends = if messages.spin {
        "both ends spin"
    } else {
        "both ends sleep until a message is there"
    };
    let call = match messages.transport.starts_with("verbs") {
        true => "send",
        false => "write",
    };
    let what = format!(
        "Latency is half a round trip; {ends}. Of it the tool's own part is {:.0} ns (clock {:.0} ns). \
         Rates: one {call} a message, at most {} unconfirmed.",
        messages.tool_ns / 2.0,
        messages.clock_ns / 2.0,
        messages.window
    );
    carried(messages).into_iter().chain([what]).collect()
}

/// Where the messages went if not over TCP, and what was lost.
fn carried(messages: &MessageSweep) -> Option<String> {
    let port = messages
        .points
        .iter()
        .find_map(|p| p.rdma_port.as_deref())?;
    let mut said = format!(
        "By {} through {}",
        text::plain(&messages.transport),
        text::plain(port)
    );
    let sum = |each: fn(&MessagePoint) -> Option<u64>| {
        let known: Option<Vec<u64>> = messages.points.iter().map(each).collect();
        known.map(|all| all.iter().fold(0, |sum: u64, &n| sum.saturating_add(n)))
    };
    if let (Some(up), Some(down)) = (sum(|p| p.up_lost), sum(|p| p.down_lost)) {
        put!(said, "; lost: {up} up, {down} down");
    }
    Some(said + ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_and_what_was_lost_are_told() {
        let mut messages = MessageSweep {
            transport: "verbs-uc".to_owned(),
            spin: true,
            window: 128,
            points: vec![MessagePoint {
                message_bytes: 64,
                up_lost: Some(3),
                down_lost: Some(0),
                rdma_port: Some("rxe0 port 1".to_owned()),
                ..MessagePoint::default()
            }],
            ..MessageSweep::default()
        };
        let said = notes(&messages);
        let port = "By verbs-uc through rxe0 port 1; lost: 3 up, 0 down.";
        assert_eq!(said[0], port);
        assert!(
            said[1].contains("one send a message, at most 128"),
            "{said:?}"
        );
        messages.points[0].up_lost = None;
        assert!(!notes(&messages)[0].contains("lost"));
        messages.points[0].rdma_port = None;
        messages.transport = "tcp".to_owned();
        let said = notes(&messages);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("one write a message"), "{said:?}");
    }

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
