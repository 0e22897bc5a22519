//! Captures explained: the connections that lost most, and of each why, its course and its time-sequence
//! graph.

pub(crate) mod spacing;

use super::{ENTRIES_MAX, left_out, shown, shown_sentence};
use crate::model::{
    FindingRecord, Run, Trace, TraceConnection, TraceFile, TraceGraph, TraceShare, TraceSlices,
};
use crate::svg::{Axis, Chart, share_bar};
use crate::text;

/// Nothing where no capture was explained.
pub(super) fn section(out: &mut String, run: &Run, findings: &[FindingRecord]) {
    let Some(trace) = &run.trace else { return };
    super::pair::section(out, trace);
    list(out, trace);
    for connection in trace.connections.iter().filter(large).take(DRAWN_MAX) {
        one(out, connection, findings);
    }
    spacing::of_all(out, trace);
    files(out, trace);
}

/// Whether it has pictures of its own.
const fn large(c: &&TraceConnection) -> bool {
    c.number == 1 || c.data_packets >= DRAWN_PACKETS
}

/// All connections that are kept, a line each.
fn list(out: &mut String, trace: &Trace) {
    put!(
        out,
        "<section>\n<h2>Connections <span>{} of {} carried data; those first that lost most against their \
         own best rate</span></h2>\n",
        text::count(trace.connections_with_data),
        text::count(trace.connections_seen)
    );
    let given_up = given_up(trace);
    if !given_up.is_empty() {
        put!(out, "<p>{}.</p>\n", text::plain(&given_up));
    }
    let unmade = unmade(trace);
    if !unmade.is_empty() {
        put!(out, "<p>{}.</p>\n", shown_sentence(&unmade));
    }
    for note in &trace.notes {
        put!(out, "<p>Capture: {}.</p>\n", shown_sentence(note));
    }
    keys(out);
    out.push_str(
        "<div class=\"scroll\"><table class=\"list\">\n<thead><tr><th class=\"n\"></th><th>from</th><th>to</th>\
         <th class=\"n\">payload</th><th class=\"n\">in</th><th class=\"n\">goodput</th><th class=\"n\">best</th>\
         <th class=\"n\">round trip</th><th class=\"n\">sent again</th><th>held by</th></tr></thead>\n<tbody>\n",
    );
    for c in trace.connections.iter().take(ENTRIES_MAX) {
        let again = again(c);
        put!(
            out,
            "<tr><td class=\"n\">{n}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\"><b>{}</b></td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td>{}</td></tr>\n",
            shown(&c.sender),
            shown(&c.receiver),
            text::size(c.payload_bytes),
            text::duration(c.active_ns),
            text::rate(c.goodput_bits_per_second),
            c.best_bits_per_second.map_or_else(dash, text::rate),
            c.rtt_min_ns.map_or_else(dash, text::duration),
            if again == 0 {
                "0".to_owned()
            } else {
                text::count(again)
            },
            bar(&c.shares, 12),
            n = match large(&c) {
                true => format!("<a href=\"#c{0}\">{0}</a>", c.number),
                false => c.number.to_string(),
            },
        );
    }
    out.push_str("</tbody></table></div>\n");
    let kept = usize::try_from(trace.connections_with_data).unwrap_or(usize::MAX);
    left_out(
        out,
        kept,
        ENTRIES_MAX.min(trace.connections.len()),
        "connections",
    );
    out.push_str("</section>\n");
}

fn one(out: &mut String, c: &TraceConnection, findings: &[FindingRecord]) {
    put!(
        out,
        "<section class=\"trace\" id=\"c{}\">\n<h2>{}. {} → {} <span>{} in {}{}, from frame {} on</span></h2>\n\
         <p class=\"why\">{}</p>\n",
        c.number,
        c.number,
        shown(&c.sender),
        shown(&c.receiver),
        text::size(c.payload_bytes),
        text::duration(c.active_ns),
        beside(c),
        c.first_frame,
        shown_sentence(&c.sentence)
    );
    for note in &c.notes {
        put!(
            out,
            "<p class=\"note\">Capture: {}.</p>\n",
            shown_sentence(note)
        );
    }
    out.push_str(&bar(&c.shares, 16));
    legend(out, &c.shares);
    evidence(out, c, findings);
    out.push_str("<div class=\"panels\">\n");
    for graph in c.graphs.iter().take(GRAPHS_MAX) {
        time_sequence(out, graph);
    }
    if let Some(slices) = &c.slices {
        course(out, slices);
    }
    out.push_str("</div>\n");
    numbers(out, c);
    spacing::one(out, c);
    out.push_str("</section>\n");
}

fn evidence(out: &mut String, c: &TraceConnection, findings: &[FindingRecord]) {
    let number = c.number.to_string();
    let own = findings.iter().filter(|f| f.phase == number);
    out.push_str("<ul>\n");
    for finding in own.take(ENTRIES_MAX) {
        put!(
            out,
            "<li><b>{}</b> <i>{} sure</i>",
            shown_sentence(&finding.title),
            text::percent(finding.confidence)
        );
        for line in finding.evidence.iter().take(ENTRIES_MAX) {
            put!(out, "<br>{}", shown_sentence(line));
        }
        if let Some(remedy) = &finding.remedy {
            put!(out, "<br>→ {}", shown_sentence(&remedy.summary));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n");
}

/// What was sent, sent again, reported, acknowledged and allowed, over time.
fn time_sequence(out: &mut String, graph: &TraceGraph) {
    let columns = f64::from(graph.columns.max(1));
    let column_s = graph.column_ns as f64 / 1e9;
    // The lowest byte that the picture has; the axis begins at zero, which stands for it.
    let lows = [&graph.sent, &graph.again, &graph.sacked];
    let base = lows
        .iter()
        .flat_map(|marks| marks.iter().map(|m| m.1))
        .chain(graph.acknowledged.iter().map(|a| a.1))
        .min()
        .unwrap_or(0);
    let highest = lows
        .iter()
        .flat_map(|marks| marks.iter().map(|m| m.2))
        .max()
        .unwrap_or(base);
    let y = Axis::wire_bytes(highest.saturating_sub(base) as f64);
    let span_s = columns * column_s;
    let strokes = |marks: &[(u32, u64, u64)]| -> Vec<(f64, f64, f64)> {
        let marks = marks.iter().take(MARKS_MAX);
        let of = |bytes: u64| bytes.saturating_sub(base) as f64;
        marks
            .map(|&(column, low, high)| (f64::from(column) * column_s, of(low), of(high)))
            .collect()
    };
    put!(
        out,
        "<h4>{} <span>{} by sequence number{}, from {} on, {} wide</span></h4>\n<div class=\"keys\">",
        shown(&graph.title),
        y.unit,
        if base == 0 {
            String::new()
        } else {
            format!(" above {}", text::bytes_exact(base))
        },
        text::duration(graph.begins_ns),
        text::duration(graph.column_ns.saturating_mul(u64::from(graph.columns)))
    );
    for (class, word) in [
        ("stroke sent", "sent"),
        ("stroke again", "sent again"),
        ("stroke sacked", "received out of order (SACK)"),
        ("line acked", "acknowledged"),
        ("line edge", "end of the receive window"),
    ] {
        put!(
            out,
            "<span class=\"key\"><i class=\"{class}\"></i>{word}</span>"
        );
    }
    out.push_str("</div>\n<div class=\"plot\">\n");
    let chart = Chart::new("time-sequence graph", 320, Axis::time(span_s), y)
        .line(
            "edge",
            "end of the receive window",
            &steps(&graph.edge, base, column_s, columns),
        )
        .strokes("sacked", "received out of order", &strokes(&graph.sacked))
        .strokes("sent", "sent", &strokes(&graph.sent))
        .strokes("again", "sent again", &strokes(&graph.again))
        .line(
            "acked",
            "acknowledged",
            &steps(&graph.acknowledged, base, column_s, columns),
        );
    put!(out, "{}</div>\n", chart.render());
}

/// A line that goes up in steps, from changes.
pub(super) fn steps(
    changes: &[(u32, u64)],
    base: u64,
    column_s: f64,
    columns: f64,
) -> Vec<(f64, f64)> {
    let mut line: Vec<(f64, f64)> = Vec::new();
    for &(column, bytes) in changes.iter().take(MARKS_MAX) {
        let (x, y) = (
            f64::from(column) * column_s,
            bytes.saturating_sub(base) as f64,
        );
        if let Some(&(_, before)) = line.last() {
            line.push((x, before));
        }
        line.push((x, y));
    }
    if let Some(&(_, last)) = line.last() {
        line.push((columns * column_s, last));
    }
    line
}

/// Rate, round trip, flight and window, and what held the sender, by slice.
fn course(out: &mut String, slices: &TraceSlices) {
    let width_s = slices.width_ns as f64 / 1e9;
    let count = slices.sent_bytes.len().min(SLICES_MAX);
    if count < 2 || width_s <= 0.0 {
        return;
    }
    let span_s = count as f64 * width_s;
    let middle = |i: usize| (i as f64 + 0.5) * width_s;
    let rates = |bytes: &[u64]| -> Vec<(f64, f64)> {
        let each = bytes.iter().take(count).enumerate();
        each.map(|(i, b)| (middle(i), *b as f64 * 8.0 / width_s))
            .collect()
    };
    let known = |values: &[Option<u64>]| -> Vec<(f64, f64)> {
        let each = values.iter().take(count).enumerate();
        each.filter_map(|(i, v)| v.map(|v| (middle(i), v as f64)))
            .collect()
    };
    let top = |points: &[(f64, f64)]| points.iter().map(|p| p.1).fold(0.0, f64::max);
    let (sent, acked) = (rates(&slices.sent_bytes), rates(&slices.acked_bytes));
    let y = Axis::rate(top(&sent).max(top(&acked)));
    put!(
        out,
        "<h4>Rate <span>{} in slices of {}; crosses: sent again</span></h4>\n<div class=\"keys\">\
         <span class=\"key\"><i class=\"line acked\"></i>acknowledged</span>\
         <span class=\"key\"><i class=\"line sent-rate\"></i>sent</span></div>\n<div class=\"plot\">\n",
        y.unit,
        text::duration(slices.width_ns)
    );
    let again: Vec<f64> = (0..count)
        .filter(|&i| slices.retransmitted.get(i).is_some_and(|n| *n > 0))
        .map(middle)
        .collect();
    let chart = Chart::new("rate", 150, Axis::time(span_s), y)
        .without_time_labels()
        .line("sent-rate", "sent", &sent)
        .line("acked", "acknowledged", &acked)
        .crosses("again", 6, &again);
    put!(out, "{}</div>\n", chart.render());
    let rtt = known(&slices.rtt_ns);
    let y = Axis::round_trip(top(&rtt));
    put!(
        out,
        "<h4>Round trip <span>{}, capture point to receiver</span></h4>\n<div class=\"plot\">\n",
        y.unit
    );
    let chart = Chart::new("round trip", 120, Axis::time(span_s), y)
        .without_time_labels()
        .line("rtt", "round trip", &rtt);
    put!(out, "{}</div>\n", chart.render());
    let flight: Vec<(f64, f64)> = (0..count)
        .map(|i| {
            (
                middle(i),
                slices.flight_bytes.get(i).copied().unwrap_or(0) as f64,
            )
        })
        .collect();
    let window = known(&slices.window_bytes);
    // A window far above the flight would press it flat, and limits nothing.
    let high = top(&flight).max(top(&window).min(top(&flight) * 2.0));
    let y = Axis::wire_bytes(high);
    put!(
        out,
        "<h4>In flight <span>{}</span></h4>\n<div class=\"keys\">\
         <span class=\"key\"><i class=\"area flight\"></i>most in flight</span>\
         <span class=\"key\"><i class=\"line edge\"></i>receive window</span></div>\n<div class=\"plot\">\n",
        y.unit
    );
    let chart = Chart::new("in flight", 120, Axis::time(span_s), y)
        .without_time_labels()
        .area("flight", &flight)
        .line("edge", "receive window", &window);
    put!(out, "{}</div>\n", chart.render());
    held(out, slices, count, width_s);
}

/// What held the sender in each slice.
fn held(out: &mut String, slices: &TraceSlices, count: usize, width_s: f64) {
    let values: Vec<[f64; CLASSES.len()]> = (0..count)
        .map(|i| {
            let class = slices.limits.get(i).map_or("", |l| class_of(l));
            CLASSES.map(|(c, _)| if c == class { 1.0 } else { 0.0 })
        })
        .collect();
    out.push_str("<h4>Held by</h4>\n<div class=\"plot\">\n");
    let layers = CLASSES.map(|(class, word)| (class, word.to_owned()));
    let y = Axis {
        max: 1.0,
        ticks: Vec::new(),
        unit: "",
    };
    let chart = Chart::new(
        "what held the sender",
        26,
        Axis::time(count as f64 * width_s),
        y,
    )
    .bands(&layers, width_s, &values)
    .columns(count, width_s, |i| {
        let limit = slices.limits.get(i).map_or("", String::as_str);
        text::plain(&limit.replace('_', " "))
    });
    put!(out, "{}</div>\n", chart.render());
}

/// What else is known, as a table of two columns.
fn numbers(out: &mut String, c: &TraceConnection) {
    let r = &c.retransmissions;
    let rows: [(&str, Option<String>); 10] = [
        ("best rate over two round trips", c.best_bits_per_second.map(text::rate)),
        ("round trip of the handshake", c.handshake_ns.map(text::duration)),
        (
            "round trip to the receiver, median and longest",
            c.rtt_median_ns.zip(c.rtt_max_ns).map(|(median, max)| {
                format!("{}, {}", text::duration(median), text::duration(max))
            }),
        ),
        (
            "in flight, average and most",
            Some(format!("{}, {}", text::size(c.flight_bytes_mean), text::size(c.flight_bytes_max))),
        ),
        (
            "receive window, median",
            (c.window_bytes_median > 0).then(|| {
                let scale = match c.window_scaling {
                    Some(true) => "",
                    Some(false) => ", scaling not agreed on",
                    None => ", its scale was not captured",
                };
                format!("{}{scale}", text::size(c.window_bytes_median))
            }),
        ),
        (
            "packets with data",
            Some(format!(
                "{}, of segments of {} B{}",
                text::count(c.data_packets),
                c.segment_bytes,
                if c.super_packets > 0 {
                    format!(", {} of them super-packets (TSO, GRO)", text::count(c.super_packets))
                } else {
                    String::new()
                }
            )),
        ),
        (
            "sent again",
            (again(c) > 0).then(|| {
                format!(
                    "{} fast, {} by timeout, {} by tail loss probe, {} other; {} not captured the first time, {} \
                     not needed",
                    r.fast, r.timeout, r.tail_probe, r.other, r.original_unseen, r.spurious
                )
            }),
        ),
        ("out of order", (c.out_of_order > 0).then(|| text::count(c.out_of_order))),
        (
            "window closed",
            (c.zero_windows > 0)
                .then(|| format!("{} times, {}", c.zero_windows, text::duration(c.zero_window_ns))),
        ),
        (
            "captured",
            c.captured.as_deref().map(|at| shown(&at.replace('_', " the "))),
        ),
    ];
    out.push_str("<table class=\"list\">\n<tbody>\n");
    for (name, value) in rows {
        if let Some(value) = value {
            put!(
                out,
                "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n"
            );
        }
    }
    out.push_str("</tbody></table>\n");
}

fn files(out: &mut String, trace: &Trace) {
    out.push_str(
        "<section>\n<h2>Captures</h2>\n<div class=\"scroll\"><table class=\"list\">\n<thead><tr><th>file</th>\
         <th class=\"n\">packets</th><th class=\"n\">time</th><th>begins</th><th class=\"n\">dropped</th><th></th></tr>\
         </thead>\n<tbody>\n",
    );
    for file in trace.files.iter().take(ENTRIES_MAX) {
        put!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td>\
             <td>{}</td></tr>\n",
            shown(&file.name),
            text::count(file.packets),
            text::duration(file.span_ns),
            file.begins_utc
                .as_deref()
                .map_or_else(dash, |t| shown(&text::utc(t))),
            file.dropped.map_or_else(dash, text::count),
            shown_sentence(&stopped(file))
        );
    }
    out.push_str("</tbody></table></div>\n");
    put!(
        out,
        "<p class=\"note\">{} packets, {} of them TCP. {}</p>\n</section>\n",
        text::count(trace.packets),
        text::count(trace.tcp_packets),
        shown_sentence(&others(trace).join(". "))
    );
}

/// What was captured beside whole TCP packets, in sentences without a stop; none where there was nothing.
pub(crate) fn others(trace: &Trace) -> Vec<String> {
    let mut lines = Vec::new();
    let each = trace.others.iter().take(OTHERS_NAMED);
    let mut named: Vec<String> = each
        .map(|o| format!("{} {}", text::count(o.packets), o.what))
        .collect();
    let rest: u64 = trace
        .others
        .iter()
        .skip(OTHERS_NAMED)
        .map(|o| o.packets)
        .sum();
    if rest > 0 {
        named.push(format!("{} others", text::count(rest)));
    }
    if !named.is_empty() {
        lines.push(format!("not TCP: {}", named.join(", ")));
    }
    if trace.fragments > 0 {
        let missing = match trace.incomplete_packets {
            0 => String::new(),
            n => format!(", {} lack some", text::plural(n, "packet")),
        };
        lines.push(format!(
            "{} of IP packets: {} put together of them{missing}",
            text::plural(trace.fragments, "fragment"),
            text::plural(trace.reassembled_packets, "packet"),
        ));
    }
    lines
}

/// Kinds of other packets that are named.
const OTHERS_NAMED: usize = 6;
const UNMADE_MAX: usize = 5;

/// Where reading ended, in words; empty where it did at the end.
pub(crate) fn stopped(file: &TraceFile) -> String {
    match (&file.stopped, file.stopped_at_byte) {
        (Some(why), Some(byte)) => format!("read up to byte {byte}: {why}"),
        (Some(why), None) => why.clone(),
        _ => String::new(),
    }
}

/// What there was no room for, in words; empty where there was.
pub(crate) fn given_up(trace: &Trace) -> String {
    let counts = [
        (
            trace.connections_evicted,
            "connections were given up before their end",
        ),
        (
            trace.half_open_dropped,
            "SYNs without an answer yet were forgotten",
        ),
        (
            trace.connections_incomplete,
            "connections were analysed by their first packets only",
        ),
    ];
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", text::count(*count)))
        .collect();
    match told.is_empty() {
        true => String::new(),
        false => format!(
            "More connections at a time than are held: {}",
            told.join(", ")
        ),
    }
}

/// Servers that took no connection, in words; empty where there are none.
pub(crate) fn unmade(trace: &Trace) -> String {
    let each = trace.unmade.iter().take(UNMADE_MAX).map(|u| {
        format!(
            "{} {} ({})",
            u.server,
            u.how,
            text::plural(u.connections, "connection")
        )
    });
    let mut named: Vec<String> = each.collect();
    let more = trace.unmade.len().saturating_sub(UNMADE_MAX);
    if more > 0 {
        named.push(format!("{} more servers", text::count(more as u64)));
    }
    match named.is_empty() {
        true => String::new(),
        false => format!("Not connected: {}", named.join(", ")),
    }
}

/// What is to be said of a connection beside who sent: the other direction's payload, and who reset it.
pub(crate) fn beside(c: &TraceConnection) -> String {
    let mut words = String::new();
    if c.reverse_payload_bytes > 0 {
        words += &format!(", back {}", text::size(c.reverse_payload_bytes));
    }
    if let Some(by) = &c.reset_by {
        let who = if *by == c.sender {
            "sender"
        } else {
            "receiver"
        };
        words += &format!(", reset by the {who} after {}", text::size(c.payload_bytes));
    }
    words
}

/// All packets that were sent again.
pub(crate) const fn again(c: &TraceConnection) -> u64 {
    let r = &c.retransmissions;
    r.fast
        .saturating_add(r.timeout)
        .saturating_add(r.tail_probe)
        .saturating_add(r.other)
}

pub(super) fn bar(shares: &[TraceShare], height_px: u32) -> String {
    let parts: Vec<(&str, f64, String)> = shares
        .iter()
        .take(ENTRIES_MAX)
        .map(|s| {
            let tip = format!(
                "{}: {}",
                text::plain(&spoken(&s.limit)),
                text::percent_of_time(s.share)
            );
            (class_of(&s.limit), s.share, tip)
        })
        .collect();
    share_bar("time at each limit", height_px, &parts, None)
}

/// Every limit of a connection in words.
pub(super) fn legend(out: &mut String, shares: &[TraceShare]) {
    out.push_str("<div class=\"keys\">");
    for share in shares
        .iter()
        .take(ENTRIES_MAX)
        .filter(|s| s.share >= NAMED_SHARE)
    {
        put!(
            out,
            "<span class=\"key\"><i class=\"{}\"></i>{} {}</span>",
            class_of(&share.limit),
            shown(&spoken(&share.limit)),
            text::percent(share.share)
        );
    }
    out.push_str("</div>\n");
}

fn keys(out: &mut String) {
    out.push_str("<div class=\"keys\">");
    for (class, word) in CLASSES {
        put!(
            out,
            "<span class=\"key\"><i class=\"{class}\"></i>{word}</span>"
        );
    }
    out.push_str("</div>\n");
}

/// What is to be known of a capture before its verdict: of the connection that the verdict is about.
pub(crate) fn notes(run: &Run) -> Vec<String> {
    let Some(trace) = &run.trace else {
        return Vec::new();
    };
    let first = trace.connections.first().into_iter();
    let of_first = first.flat_map(|c| c.notes.iter());
    trace.notes.iter().chain(of_first).cloned().collect()
}

/// A limit's name in words.
pub(crate) fn spoken(limit: &str) -> String {
    match limit {
        "bottleneck" => "bottleneck full".to_owned(),
        "loss_window" => "window after loss".to_owned(),
        "sender_window" => "send buffer or fixed window".to_owned(),
        "unknown" => "not known".to_owned(),
        "setup" => "connection setup".to_owned(),
        "client" => "client's application".to_owned(),
        "server" => "server's application".to_owned(),
        "nagle" => "Nagle and delayed ACK".to_owned(),
        _ => limit.replace('_', " "),
    }
}

/// The colour of a limit.
fn class_of(limit: &str) -> &'static str {
    match limit {
        "application" | "pacing" | "client" | "server" => "application",
        "receive_window" | "zero_window" => "receive_window",
        "sender_window" => "send_buffer",
        "slow_start" | "congestion_window" => "growing",
        "loss_window" | "recovery_timeout" | "outage" | "setup" => "loss",
        "bottleneck" => "bottleneck",
        _ => "other",
    }
}

fn dash() -> String {
    "–".to_owned()
}

/// Colours, and what they stand for.
const CLASSES: [(&str, &str); 7] = [
    ("bottleneck", "path full"),
    ("receive_window", "receiver"),
    ("send_buffer", "send buffer"),
    ("loss", "loss"),
    ("growing", "window growing"),
    ("application", "application"),
    ("other", "not known"),
];
const DRAWN_MAX: usize = 20;
/// With less packets a connection has its line only, but for the first.
const DRAWN_PACKETS: u64 = 50;
const GRAPHS_MAX: usize = 4;
const SLICES_MAX: usize = 256;
const MARKS_MAX: usize = 5_000;
/// Less is not named.
const NAMED_SHARE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</p><script>alert('x')</script>\u{202e}";

    fn hostile() -> Run {
        let graph = TraceGraph {
            title: HOSTILE.to_owned(),
            column_ns: u64::MAX,
            columns: u32::MAX,
            sent: vec![(u32::MAX, u64::MAX, 0); 10_000],
            acknowledged: vec![(0, u64::MAX)],
            ..TraceGraph::default()
        };
        let slices = TraceSlices {
            width_ns: 1,
            sent_bytes: vec![u64::MAX; 1_000],
            limits: vec![HOSTILE.to_owned()],
            ..TraceSlices::default()
        };
        let connection = TraceConnection {
            sender: HOSTILE.to_owned(),
            sentence: HOSTILE.to_owned(),
            captured: Some(HOSTILE.to_owned()),
            shares: vec![
                TraceShare {
                    limit: HOSTILE.to_owned(),
                    share: f64::NAN
                };
                100
            ],
            slices: Some(slices),
            graphs: vec![graph; 10],
            ..TraceConnection::default()
        };
        let file = TraceFile {
            name: HOSTILE.to_owned(),
            stopped: Some(HOSTILE.to_owned()),
            ..TraceFile::default()
        };
        Run {
            trace: Some(Trace {
                files: vec![file],
                connections: vec![connection; 300],
                ..Trace::default()
            }),
            ..Run::default()
        }
    }

    #[test]
    fn what_a_capture_says_stays_text_and_is_bounded() {
        let finding = FindingRecord {
            phase: "0".to_owned(),
            title: HOSTILE.to_owned(),
            confidence: f64::INFINITY,
            ..FindingRecord::default()
        };
        let mut out = String::new();
        section(&mut out, &hostile(), &[finding]);
        assert!(!out.contains("<script") && !out.contains('\u{202e}') && !out.contains("NaN"));
        assert!(out.len() < 24 << 20, "{}", out.len());
    }

    #[test]
    fn a_run_without_a_capture_has_no_such_section() {
        let mut out = String::new();
        section(&mut out, &Run::default(), &[]);
        assert!(out.is_empty());
    }

    #[test]
    fn changes_become_steps() {
        let line = steps(&[(1, 100), (3, 300)], 100, 0.5, 10.0);
        assert_eq!(line, [(0.5, 0.0), (1.5, 0.0), (1.5, 200.0), (5.0, 200.0)]);
    }
}
