//! Messages of several sizes: rates and latency as charts, and a line of numbers for each size.

use super::sweep::{chart, dash, latency_chart, row, table_head};
use super::{left_out, shown_sentence};
use crate::model::{
    MessagePoint, MessageSweep, Run, Sweep, SweepAxis, SweepCurve, SweepLatency, SweepPoint,
};
use crate::text;
use crate::text::messages::notes;

/// Nothing where no messages were exchanged.
pub(super) fn section(out: &mut String, run: &Run) {
    let Some(messages) = run.messages.as_ref().filter(|m| !m.points.is_empty()) else {
        return;
    };
    out.push_str("<section>\n<h2>Rate and latency of messages</h2>\n");
    let drawn = as_sweep(messages);
    // A line wants two ends.
    if let Some(axis) = drawn.axes.first().filter(|a| a.values.len() > 1) {
        chart(out, &drawn, axis, "by the size of a message");
        let what = "half the round trip of a message";
        latency_chart(out, &drawn, axis, what);
    }
    table(out, messages);
    for note in notes(messages) {
        put!(out, "<p class=\"note\">{}</p>\n", shown_sentence(&note));
    }
    out.push_str("</section>\n");
}

/// The same in the shape that charts are drawn from: a curve for each way.
fn as_sweep(messages: &MessageSweep) -> Sweep {
    type Rate = fn(&MessagePoint) -> u64;
    let ways: [(&str, Rate); 3] = [
        ("up", |p| p.up_bits_per_second),
        ("down", |p| p.down_bits_per_second),
        ("both_ways", |p| p.both_bits_per_second),
    ];
    let shown = || messages.points.iter().take(ROWS_MAX);
    let mut values: Vec<u64> = shown().map(|p| p.message_bytes.into()).collect();
    values.sort_unstable();
    values.dedup();
    let point = |way: &str, rate: u64, bytes: u32| SweepPoint {
        settings: vec![bytes.into()],
        goodput_bits_per_second: rate,
        pattern: Some(way.to_owned()),
        ..SweepPoint::default()
    };
    let points = ways
        .iter()
        .flat_map(|(way, rate)| shown().map(|p| point(way, rate(p), p.message_bytes)));
    let curve = |(way, _): &(&str, Rate)| SweepCurve {
        pattern: Some((*way).to_owned()),
        sentence: super::sweep::spoken(way),
        ..SweepCurve::default()
    };
    let latencies = shown().filter_map(|p| {
        Some(SweepLatency {
            message_bytes: p.message_bytes.into(),
            median_ns: p.latency_median_ns?,
            p99_ns: p.latency_p99_ns?,
            ..SweepLatency::default()
        })
    });
    Sweep {
        points: points.collect(),
        curves: ways.iter().map(curve).collect(),
        latencies: latencies.collect(),
        axes: vec![SweepAxis {
            name: "message-size".to_owned(),
            unit: "bytes".to_owned(),
            values,
            names: Vec::new(),
        }],
        ..Sweep::default()
    }
}

fn table(out: &mut String, messages: &MessageSweep) {
    let loses = messages.points.iter().any(|p| p.up_lost.is_some());
    let mut names = vec![
        "bytes",
        "round trips",
        "min",
        "median",
        "99 %",
        "99.9 %",
        "max",
        "up",
        "down",
        "both ways",
    ];
    if loses {
        names.extend(["lost up", "lost down"]);
    }
    out.push_str("<div class=\"scroll\">");
    table_head(out, &names);
    for p in messages.points.iter().take(ROWS_MAX) {
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
        let mut cells = vec![
            text::size(p.message_bytes.into()),
            text::count(p.round_trips),
        ];
        cells.extend(times.map(|ns| ns.map_or_else(dash, text::duration)));
        cells.extend(rates.map(text::rate));
        if loses {
            cells.extend([p.up_lost, p.down_lost].map(|n| n.map_or_else(dash, text::count)));
        }
        row(out, &cells, false);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, messages.points.len(), ROWS_MAX, "sizes");
}

/// The command measures 64 at most.
const ROWS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn page(points: Vec<MessagePoint>) -> String {
        let mut out = String::new();
        let run = Run {
            messages: Some(MessageSweep {
                transport: "tcp<b>".to_owned(),
                points,
                ..MessageSweep::default()
            }),
            ..Run::default()
        };
        section(&mut out, &run);
        out
    }

    fn point(message_bytes: u32) -> MessagePoint {
        MessagePoint {
            message_bytes,
            round_trips: 4_000,
            latency_median_ns: Some(7_000),
            latency_p99_ns: Some(12_000),
            up_bits_per_second: 941_000_000,
            down_bits_per_second: 940_000_000,
            ..MessagePoint::default()
        }
    }

    #[test]
    fn sizes_in_any_order_have_a_dot_for_each_way_and_a_line_in_the_table() {
        let out = page([64, 1, 64, 4096].map(point).to_vec());
        // Three ways and the medians of latency.
        assert_eq!(out.matches("class=\"dot c").count(), 16);
        assert_eq!(out.matches("<tr>").count(), 5);
        for says in [
            "</i>up</span>",
            "</i>both ways</span>",
            ">10 us</text>",
            "941",
        ] {
            assert!(out.contains(says), "lacks {says}: {out}");
        }
        assert!(!out.contains("<b>") && !out.contains("lost up"), "{out}");
    }

    #[test]
    fn one_size_has_no_chart_and_losses_have_their_columns() {
        let lost = MessagePoint {
            up_lost: Some(3),
            rdma_port: Some("rxe0<script>".to_owned()),
            ..point(64)
        };
        let out = page(vec![lost]);
        assert!(!out.contains("<svg"), "{out}");
        assert!(
            out.contains("lost up") && out.contains("through rxe0"),
            "{out}"
        );
        assert!(!out.contains("<script"), "{out}");
        assert!(page(Vec::new()).is_empty());
    }

    #[test]
    fn whatever_messages_hold_the_section_is_bounded_and_whole() {
        let wild = |n: u32| MessagePoint {
            message_bytes: n % 3 * (u32::MAX / 2),
            latency_median_ns: Some(u64::MAX),
            latency_p99_ns: Some(0),
            up_bits_per_second: u64::MAX,
            ..MessagePoint::default()
        };
        let out = page((0..50_000).map(wild).collect());
        assert!(out.len() < 1 << 20, "{}", out.len());
        assert!(out.contains("more sizes are not shown") && !out.contains("NaN"));
        for tag in ["svg", "table", "tr", "td", "section", "p"] {
            let opened =
                out.matches(&format!("<{tag}>")).count() + out.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, out.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
