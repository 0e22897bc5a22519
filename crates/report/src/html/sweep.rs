//! A sweep: its curves with their knees, as a map of shades where two things were varied, the
//! latency of messages, and every point with what it rests on.

use super::{left_out, shown, shown_sentence};
use crate::model::{Run, Sweep, SweepAxis, SweepCurve, SweepLatency, SweepMessages, SweepPoint};
use crate::svg::{Axis, Chart};
use crate::text;

/// Nothing where the run is no sweep.
pub(super) fn section(out: &mut String, run: &Run) {
    let Some(sweep) = &run.sweep else { return };
    let Some(first) = sweep.axes.first().filter(|a| !a.values.is_empty()) else {
        return;
    };
    put!(
        out,
        "<section>\n<h2>{} by {}{}</h2>\n",
        match sweep.messages {
            Some(_) => "Rate and latency",
            None => "Goodput",
        },
        shown(&first.name),
        sweep.axes.get(1).map_or_else(String::new, |a| format!(
            " <span>and by {}</span>",
            shown(&a.name)
        ))
    );
    let sure = "median and 95 % interval of each point; a ring falls out of its neighbours";
    chart(out, sweep, first, sure);
    let all = "half the round trip of a message, all rounds together";
    latency_chart(out, sweep, first, all);
    sentences(out, sweep);
    if sweep.axes.len() > 1 {
        heat_map(out, sweep);
    }
    grounds(out, sweep);
    latencies(out, sweep, first);
    points(out, sweep);
    out.push_str("</section>\n");
}

/// The place of a setting on an axis of octaves.
fn place(setting: u64) -> f64 {
    (setting.max(1) as f64).log2()
}

/// An axis of octaves, and where it begins.
fn octaves(axis: &SweepAxis) -> (Axis, f64) {
    let (low, high) = (
        place(axis.values[0]),
        place(axis.values.last().copied().unwrap_or(1)),
    );
    let step = axis.values.len().div_ceil(TICKS_MAX).max(1);
    let ticks = axis.values.iter().take(POINTS_MAX).step_by(step);
    let x = Axis {
        max: (high - low).max(1.0),
        ticks: ticks.map(|&v| (place(v) - low, setting(axis, v))).collect(),
        unit: "",
    };
    (x, low)
}

/// Goodput over the first axis; `what` is said beside its unit.
pub(super) fn chart(out: &mut String, sweep: &Sweep, axis: &SweepAxis, what: &str) {
    let (x, low) = octaves(axis);
    let span = x.max;
    let largest = sweep.points.iter().map(|p| p.goodput_bits_per_second).max();
    let y = Axis::rate(largest.unwrap_or(0) as f64).with_label_room();
    let curves = sweep.curves.iter().take(CURVES_MAX).enumerate();
    let keys: Vec<String> = curves
        .clone()
        .filter_map(|(n, c)| {
            let name = match (&c.pattern, sweep.axes.get(1)) {
                (Some(pattern), _) => spoken(pattern),
                (None, Some(second)) => setting(second, c.second?),
                (None, None) => return None,
            };
            Some(key(n % COLOURS, &name))
        })
        .collect();
    put!(
        out,
        "<h4>Goodput <span>{}, {what}</span></h4>\n<div class=\"keys\">{}</div>\n<div class=\"plot\">\n",
        y.unit,
        keys.concat()
    );
    let mut chart = Chart::new("goodput of the sweep", 300, x, y);
    let mut labelled: Vec<f64> = Vec::new();
    for (n, curve) in curves {
        let class = format!("c{}", n % COLOURS);
        let of_curve: Vec<&SweepPoint> = points_of(sweep, curve).take(POINTS_MAX).collect();
        let line: Vec<(f64, f64)> = of_curve
            .iter()
            .map(|p| (place(p.settings[0]) - low, p.goodput_bits_per_second as f64))
            .collect();
        chart = chart.line(&class, &text::plain(&curve.sentence), &line);
        for (point, &(x, y)) in of_curve.iter().zip(&line) {
            let title = format!(
                "{}: {}{}",
                setting(axis, point.settings[0]),
                text::rate(point.goodput_bits_per_second),
                point
                    .error
                    .map_or_else(String::new, |e| format!(" ± {}", text::percent(e)))
            );
            if let Some(error) = point.error.filter(|e| e.is_finite()) {
                let sure = (y * (1.0 - error).max(0.0), y * (1.0 + error.min(2.0)));
                chart = chart.whisker(&class, x, sure);
            }
            let mark = if point.anomaly { "anomaly" } else { "" };
            chart = chart.dot(&format!("{class} {mark}"), &title, x, y);
        }
        if let Some(knee) = curve.knee {
            let (label, x) = (setting(axis, knee), place(knee) - low);
            // Labels of knees that lie close together stand above each other.
            let near = |&&at: &&f64| (at - x).abs() < LABEL_SHARE * span;
            let row = labelled.iter().filter(near).count();
            chart = chart.vertical(&class, &label, x, row);
            labelled.push(x);
        }
    }
    put!(out, "{}</div>\n", chart.render());
}

fn key(colour: usize, name: &str) -> String {
    format!(
        "<span class=\"key\"><i class=\"line c{colour}\"></i>{}</span>",
        shown(name)
    )
}

/// What was done with messages, in words.
pub(crate) fn spoken(pattern: &str) -> String {
    pattern.replace('_', " ")
}

/// Median and 99th percentile by size, both axes logarithmic; `what` says of what.
pub(super) fn latency_chart(out: &mut String, sweep: &Sweep, axis: &SweepAxis, what: &str) {
    let mut known: Vec<&SweepLatency> = sweep.latencies.iter().take(POINTS_MAX).collect();
    known.sort_by_key(|l| l.message_bytes);
    let medians = known.iter().map(|l| l.median_ns);
    let largest = known.iter().map(|l| l.p99_ns.max(l.median_ns)).max();
    let (Some(least), Some(largest)) = (medians.min(), largest) else {
        return;
    };
    let (x, low) = octaves(axis);
    let (y, bottom) = decades(least, largest);
    put!(
        out,
        "<h4>Latency <span>{what}; both axes logarithmic</span></h4>\n<div class=\"keys\">{}{}</div>\n<div class=\"plot\">\n",
        key(0, "median"),
        key(1, "99th percentile"),
    );
    let height = |ns: u64| (ns.max(1) as f64).log10() - bottom;
    let line = |of: fn(&SweepLatency) -> u64| -> Vec<(f64, f64)> {
        let at = |l: &&SweepLatency| (place(l.message_bytes) - low, height(of(l)));
        known.iter().map(at).collect()
    };
    let lines = [line(|l| l.median_ns), line(|l| l.p99_ns)];
    let mut chart = Chart::new("latency of messages by their size", 240, x, y)
        .line("c1", "99th percentile", &lines[1])
        .line("c0", "median", &lines[0]);
    for (point, &(x, y)) in known.iter().zip(&lines[0]) {
        let title = format!(
            "{}: {}, 99 % within {}",
            setting(axis, point.message_bytes),
            text::duration(point.median_ns),
            text::duration(point.p99_ns)
        );
        let mark = if point.anomaly { "anomaly" } else { "" };
        chart = chart.dot(&format!("c0 {mark}"), &title, x, y);
    }
    put!(out, "{}</div>\n", chart.render());
}

/// An axis of decades of nanoseconds that holds both, and the decade at which it begins.
fn decades(least_ns: u64, largest_ns: u64) -> (Axis, f64) {
    let decade = |ns: u64| ns.max(1).ilog10();
    let (from, to) = (decade(least_ns), decade(largest_ns) + 1);
    let ticks = (from..=to).map(|k| {
        let label = text::duration(10_u64.saturating_pow(k));
        (f64::from(k - from), label)
    });
    let axis = Axis {
        max: f64::from(to - from),
        ticks: ticks.collect(),
        unit: "",
    };
    (axis, f64::from(from))
}

fn sentences(out: &mut String, sweep: &Sweep) {
    out.push_str("<ul>\n");
    for curve in sweep.curves.iter().take(CURVES_MAX) {
        put!(out, "<li>{}</li>\n", shown_sentence(&curve.sentence));
    }
    if let Some(messages) = &sweep.messages {
        for said in said_of(messages) {
            put!(out, "<li>{}</li>\n", shown_sentence(&said));
        }
    }
    out.push_str("</ul>\n");
    left_out(out, sweep.curves.len(), CURVES_MAX, "curves");
}

/// What is to be said of messages beside their curves.
pub(crate) fn said_of(messages: &SweepMessages) -> Vec<String> {
    let mut said = vec![messages.sentence.clone()];
    said.extend(messages.left_out.clone());
    if !messages.verbs.is_empty() {
        said.push(format!("RDMA verbs: {}", messages.verbs));
    }
    said.retain(|sentence| !sentence.is_empty());
    said
}

/// Every combination, shaded by its share of the highest.
fn heat_map(out: &mut String, sweep: &Sweep) {
    let [across, down, ..] = sweep.axes.as_slice() else {
        return;
    };
    let highest = sweep.points.iter().map(|p| p.goodput_bits_per_second).max();
    let highest = highest.unwrap_or(0).max(1) as f64;
    put!(
        out,
        "<h4>All combinations <span>{} across, {} down; darker is faster</span></h4>\n\
         <div class=\"scroll\"><table class=\"heat\">\n<thead><tr><td></td>",
        shown(&across.name),
        shown(&down.name)
    );
    for &value in across.values.iter().take(POINTS_MAX) {
        put!(
            out,
            "<th scope=\"col\">{}</th>",
            shown(&setting(across, value))
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for &second in down.values.iter().take(CURVES_MAX) {
        put!(
            out,
            "<tr><th scope=\"row\">{}</th>",
            shown(&setting(down, second))
        );
        for &first in across.values.iter().take(POINTS_MAX) {
            let at = |p: &&SweepPoint| p.settings == [first, second];
            match sweep.points.iter().find(at) {
                Some(p) => put!(
                    out,
                    "<td style=\"--share:{:.2}\">{}</td>",
                    (p.goodput_bits_per_second as f64 / highest).clamp(0.0, 1.0),
                    text::rate(p.goodput_bits_per_second)
                ),
                None => out.push_str("<td>–</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn grounds(out: &mut String, sweep: &Sweep) {
    let of_rates: usize = sweep
        .points
        .iter()
        .map(|p| p.each_bits_per_second.len())
        .sum();
    let of_latencies: usize = sweep.latencies.iter().map(|l| l.each_median_ns.len()).sum();
    let made = match &sweep.messages {
        None => format!(
            "{} of {} each after a ramp of {}",
            text::plural(of_rates as u64, "transfer"),
            text::duration(sweep.measured_ns),
            text::duration(sweep.ramp_ns)
        ),
        Some(m) => format!(
            "{} of rates, {} each after a ramp of {}, at most {} unconfirmed; {} of latency, {} each of \
             which the first tenth does not count; {}",
            text::plural(of_rates as u64, "measurement"),
            text::duration(sweep.measured_ns),
            text::duration(sweep.ramp_ns),
            text::plural(m.window.into(), "message"),
            text::count(of_latencies as u64),
            text::duration(m.to_and_fro_ns),
            if m.spin {
                "both ends spin"
            } else {
                "both ends sleep until a message is there"
            }
        ),
    };
    put!(
        out,
        "<p class=\"note\">{made}, in {} of random order (seed {}). \
         Points were repeated until half of the 95 % confidence interval was below {} of the mean{}. \
         Whole rounds differ by {}.{}</p>\n",
        text::plural(sweep.rounds.into(), "round"),
        sweep.seed,
        text::percent(sweep.precision),
        if sweep.out_of_time {
            ", as far as the time allowed"
        } else {
            ""
        },
        text::percent(sweep.drift),
        if sweep.apart {
            " Both ends are on this machine; each kept to a CPU of its own."
        } else {
            ""
        },
    );
    if let Some(c) = sweep.certificate.as_ref().filter(|c| !c.trusted) {
        put!(
            out,
            "<p class=\"error\">The lab fell behind: {}.</p>\n",
            shown(&c.problems.join("; "))
        );
    }
}

/// Latency of every size.
fn latencies(out: &mut String, sweep: &Sweep, axis: &SweepAxis) {
    if sweep.latencies.is_empty() {
        return;
    }
    out.push_str("<details><summary>Latency of every size</summary>\n<div class=\"scroll\">");
    let shown = || sweep.latencies.iter().take(ROWS_MAX);
    let none = || "–".to_owned();
    let by_kernel = shown().any(|l| l.kernel_median_ns.is_some());
    let mut heads = vec!["bytes", "iterations", "min", "median"];
    heads.extend(by_kernel.then_some("by the kernel's stamps"));
    heads.extend(["average", "99 %", "99.9 %", "max", "± 95 %"]);
    table_head(out, &heads);
    for l in shown() {
        let mut cells = vec![setting(axis, l.message_bytes), text::count(l.round_trips)];
        cells.extend([l.min_ns, l.median_ns].map(text::duration));
        let stamped = l.kernel_median_ns.map_or_else(none, text::duration);
        cells.extend(by_kernel.then_some(stamped));
        cells.extend([l.mean_ns, l.p99_ns, l.p999_ns, l.max_ns].map(text::duration));
        cells.push(sure(l.error));
        row(out, &cells, l.anomaly);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, sweep.latencies.len(), ROWS_MAX, "sizes");
    out.push_str("</details>\n");
}

/// A column of [`points`]: its heading and a point's cell.
type Column<'s> = (String, Box<dyn Fn(&SweepPoint) -> String + 's>);

/// The columns that this sweep's points fill.
fn columns(sweep: &Sweep) -> Vec<Column<'_>> {
    let any = |has: fn(&SweepPoint) -> bool| sweep.points.iter().take(ROWS_MAX).any(has);
    let mut all: Vec<Column<'_>> = Vec::new();
    if any(|p| p.pattern.is_some()) {
        let way = |p: &SweepPoint| p.pattern.as_deref().map_or_else(dash, spoken);
        all.push(("messages".to_owned(), Box::new(way)));
    }
    for (n, axis) in sweep.axes.iter().take(AXES_MAX).enumerate() {
        let cell = move |p: &SweepPoint| p.settings.get(n).map_or_else(dash, |&v| setting(axis, v));
        all.push((axis.name.clone(), Box::new(cell)));
    }
    if any(|p| p.messages.is_some()) {
        type Of = fn(&crate::model::SweepRate) -> String;
        let columns: [(&str, Of); 4] = [
            ("iterations", |m| text::count(m.iterations)),
            ("peak", |m| text::rate(m.peak_bits_per_second)),
            ("average", |m| text::rate(m.average_bits_per_second)),
            ("messages/s", |m| text::count(m.messages_per_second)),
        ];
        for (name, of) in columns {
            let cell = move |p: &SweepPoint| p.messages.as_ref().map_or_else(dash, of);
            all.push((name.to_owned(), Box::new(cell)));
        }
    }
    all.push((
        "median".to_owned(),
        Box::new(|p| text::rate(p.goodput_bits_per_second)),
    ));
    all.push(("± 95 %".to_owned(), Box::new(|p| sure(p.error))));
    if any(|p| p.loss.is_some()) {
        let lost = |p: &SweepPoint| p.loss.map_or_else(dash, text::percent);
        all.push(("lost".to_owned(), Box::new(lost)));
    }
    if any(|p| p.segment_bytes.is_some()) {
        let cut = |p: &SweepPoint| p.segment_bytes.map_or_else(dash, text::bytes_exact);
        all.push(("segments".to_owned(), Box::new(cut)));
    }
    if any(|p| p.window_bytes.is_some()) {
        let windows: Vec<u64> = sweep.points.iter().filter_map(|p| p.window_bytes).collect();
        let size = text::sizes(&windows);
        let offered = move |p: &SweepPoint| p.window_bytes.map_or_else(dash, &size);
        all.push(("window offered".to_owned(), Box::new(offered)));
        let on_the_way = |p: &SweepPoint| p.in_flight_bytes.map_or_else(dash, text::bytes);
        all.push(("on the way".to_owned(), Box::new(on_the_way)));
        let held = |p: &SweepPoint| p.held_share.map_or_else(dash, text::percent);
        all.push(("held by windows".to_owned(), Box::new(held)));
    }
    if let Some(other) = &sweep.observer {
        let seen = |p: &SweepPoint| {
            let rate = p.observer_bits_per_second.map_or_else(dash, text::rate);
            match p.observer_without_cpu {
                true => format!("{rate}, no CPU left"),
                false => rate,
            }
        };
        all.push((other.tool.clone(), Box::new(seen)));
    }
    if let Some(other) = sweep.points.iter().find_map(|p| p.observers.first()) {
        let seen = |p: &SweepPoint| {
            let first = p.observers.first();
            first.map_or_else(dash, |o| text::rate(o.goodput_bits_per_second))
        };
        all.push((other.tool.clone(), Box::new(seen)));
    }
    all.push((
        match sweep.messages {
            None => "transfers".to_owned(),
            Some(_) => "measurements".to_owned(),
        },
        Box::new(|p| p.each_bits_per_second.len().to_string()),
    ));
    all.push((
        "CPUs sending".to_owned(),
        Box::new(|p| format!("{:.2}", p.cpu_sender)),
    ));
    all.push((
        "receiving".to_owned(),
        Box::new(|p| format!("{:.2}", p.cpu_receiver)),
    ));
    all
}

fn points(out: &mut String, sweep: &Sweep) {
    let columns = columns(sweep);
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    out.push_str("<details><summary>Every point</summary>\n<div class=\"scroll\">");
    table_head(out, &names);
    for point in sweep.points.iter().take(ROWS_MAX) {
        let cells: Vec<String> = columns.iter().map(|(_, cell)| cell(point)).collect();
        row(out, &cells, point.anomaly);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, sweep.points.len(), ROWS_MAX, "points");
    out.push_str("</details>\n");
}

pub(super) fn table_head(out: &mut String, names: &[&str]) {
    out.push_str("<table class=\"list\">\n<thead><tr>");
    for name in names {
        put!(out, "<th class=\"n\">{}</th>", shown(name));
    }
    out.push_str("<th></th></tr></thead>\n<tbody>\n");
}

pub(super) fn row(out: &mut String, cells: &[String], anomaly: bool) {
    out.push_str("<tr>");
    for cell in cells {
        put!(out, "<td class=\"n\">{}</td>", shown(cell));
    }
    put!(
        out,
        "<td>{}</td></tr>\n",
        if anomaly { "out of its neighbours" } else { "" }
    );
}

fn sure(error: Option<f64>) -> String {
    error.map_or_else(dash, text::percent)
}

pub(super) fn dash() -> String {
    "–".to_owned()
}

/// The points of a curve, in the order of the first axis.
fn points_of<'s>(sweep: &'s Sweep, curve: &SweepCurve) -> impl Iterator<Item = &'s SweepPoint> {
    let mut points: Vec<&SweepPoint> = sweep
        .points
        .iter()
        .filter(|p| !p.settings.is_empty() && p.settings.get(1).copied() == curve.second)
        .filter(|p| p.pattern == curve.pattern)
        .collect();
    points.sort_by_key(|p| p.settings[0]);
    points.into_iter()
}

/// A setting with its unit.
pub fn setting(axis: &SweepAxis, value: u64) -> String {
    match axis.unit.as_str() {
        // Everybody knows these to the byte.
        "bytes" if axis.name == "mtu" => text::bytes_exact(value),
        "bytes" => text::size(value),
        "bits_per_second" => text::rate(value),
        _ => {
            let place = usize::try_from(value).ok().and_then(|v| v.checked_sub(1));
            let name = place.and_then(|n| axis.names.get(n));
            name.map_or_else(|| value.to_string(), |name| text::plain(name))
        }
    }
}

/// As many labels as a narrow page has room for.
const TICKS_MAX: usize = 6;
const POINTS_MAX: usize = 200;
const CURVES_MAX: usize = 24;
const ROWS_MAX: usize = 1_000;
/// A sweep has two at most; a page that says otherwise is no sweep of ours.
const AXES_MAX: usize = 4;
/// Of a chart's width: what a knee's label takes.
const LABEL_SHARE: f64 = 0.12;
/// Colours of the style sheet.
const COLOURS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Observer, SweepRate};

    fn sweep(points: usize) -> Sweep {
        let values: Vec<u64> = (1..=points as u64).map(|n| n * 1024).collect();
        let point = |&v: &u64| SweepPoint {
            settings: vec![v],
            each_bits_per_second: vec![v; 3],
            goodput_bits_per_second: v,
            anomaly: v == 2048,
            error: Some(0.01),
            ..SweepPoint::default()
        };
        Sweep {
            points: values.iter().map(point).collect(),
            axes: vec![SweepAxis {
                name: "write-size<b>".to_owned(),
                unit: "bytes".to_owned(),
                values,
                names: Vec::new(),
            }],
            curves: vec![SweepCurve {
                shape: "knee".to_owned(),
                knee: Some(3000),
                sentence: "the knee is at <i>3 kB".to_owned(),
                ..SweepCurve::default()
            }],
            ..Sweep::default()
        }
    }

    fn page(sweep: Sweep) -> String {
        let mut out = String::new();
        let run = Run {
            sweep: Some(sweep),
            ..Run::default()
        };
        section(&mut out, &run);
        out
    }

    #[test]
    fn a_curve_has_a_dot_for_each_point_a_ring_for_what_falls_out_and_a_line_at_the_knee() {
        let out = page(sweep(8));
        assert_eq!(out.matches("class=\"dot ").count(), 8);
        assert_eq!(out.matches("anomaly\" cx").count(), 1);
        assert_eq!(out.matches("<line class=\"vertical").count(), 1);
        assert!(!out.contains("<b>") && !out.contains("<i>3"), "{out}");
        assert!(out.contains("2 KiB: 2.048 kb/s ± 1 %"), "{out}");
    }

    /// A sweep of messages of so many sizes.
    fn messages(sizes: u32) -> Sweep {
        let values: Vec<u64> = (1..=sizes).map(|n| 1 << n).collect();
        let point = |pattern: &str, &size: &u64| SweepPoint {
            settings: vec![size],
            each_bits_per_second: vec![size * 1_000_000; 3],
            goodput_bits_per_second: (size * 1_000_000).min(940_000_000),
            error: Some(0.01),
            pattern: Some(pattern.to_owned()),
            messages: Some(SweepRate {
                iterations: 12_345,
                peak_bits_per_second: 950_000_000,
                average_bits_per_second: 940_000_000,
                messages_per_second: 58_750_000,
            }),
            observers: vec![Observer {
                tool: "iperf 3.12".to_owned(),
                goodput_bits_per_second: 941_000_000,
                ..Observer::default()
            }],
            ..SweepPoint::default()
        };
        let curve = |pattern: &str| SweepCurve {
            pattern: Some(pattern.to_owned()),
            knee: Some(900),
            sentence: format!("{pattern}: the knee"),
            ..SweepCurve::default()
        };
        let ways = ["one_way", "both_ways"];
        Sweep {
            points: ways
                .iter()
                .flat_map(|way| values.iter().map(|size| point(way, size)))
                .collect(),
            curves: ways.map(curve).to_vec(),
            latencies: values
                .iter()
                .map(|&message_bytes| SweepLatency {
                    message_bytes,
                    round_trips: 9_999,
                    median_ns: 7_000 + message_bytes,
                    p99_ns: 20_000 + message_bytes,
                    each_median_ns: vec![7_000; 3],
                    anomaly: message_bytes == 4,
                    ..SweepLatency::default()
                })
                .collect(),
            messages: Some(SweepMessages {
                window: 64,
                sentence: "a 2 B message takes 7 us".to_owned(),
                left_out: Some("messages <b>from 8 MiB".to_owned()),
                verbs: "not measured".to_owned(),
                ..SweepMessages::default()
            }),
            axes: vec![SweepAxis {
                name: "message-size".to_owned(),
                unit: "bytes".to_owned(),
                values,
                names: Vec::new(),
            }],
            ..Sweep::default()
        }
    }

    #[test]
    fn messages_have_a_curve_for_each_way_and_a_chart_and_a_table_of_latency() {
        let out = page(messages(10));
        assert_eq!(out.matches("<svg class=\"chart\"").count(), 2);
        // Both ways' rates and the medians of latency; one of these falls out.
        assert_eq!(out.matches("class=\"dot c").count(), 30);
        assert_eq!(out.matches("anomaly\" cx").count(), 1);
        for says in [
            "<h2>Rate and latency by message-size</h2>",
            "</i>one way</span>",
            "</i>both ways</span>",
            ">10 us</text>",
            "<li>a 2&#160;B message takes 7&#160;us</li>",
            "<li>RDMA verbs: not measured</li>",
            "60 measurements of rates",
            "<th class=\"n\">iterations</th>",
            "<th class=\"n\">iperf 3.12</th>",
            "<td class=\"n\">12,345</td>",
        ] {
            let unglued = out.replace('\u{a0}', "&#160;");
            assert!(unglued.contains(says), "lacks {says}: {unglued}");
        }
        assert!(!out.contains("<b>"), "{out}");
        assert!(!out.contains("the kernel"), "{out}");
        let mut stamped = messages(10);
        stamped.latencies[0].kernel_median_ns = Some(6_543);
        let out = page(stamped);
        assert_eq!(out.matches("<th class=\"n\">by the kernel").count(), 1);
        assert_eq!(out.matches("<td class=\"n\">6.543").count(), 1);
    }

    #[test]
    fn an_mtu_reads_to_the_byte_and_other_sizes_as_they_were_chosen() {
        let axis = |name: &str| SweepAxis {
            name: name.to_owned(),
            unit: "bytes".to_owned(),
            ..SweepAxis::default()
        };
        assert_eq!(setting(&axis("mtu"), 9_216), "9216 B");
        assert_eq!(setting(&axis("write-size"), 9_216), "9 KiB");
    }

    #[test]
    fn knees_that_lie_together_are_labelled_above_each_other() {
        let out = page(messages(10));
        let feet: Vec<&str> = out
            .split("<text class=\"vertical\"")
            .skip(1)
            .filter_map(|t| t.split(" y=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(feet, ["294", "280"]);
    }

    #[test]
    fn latency_lies_between_the_decades_around_it() {
        let of = |least, largest| {
            let (axis, from) = decades(least, largest);
            let labels: Vec<String> = axis.ticks.into_iter().map(|(_, label)| label).collect();
            (from, labels.join(" "))
        };
        assert_eq!(of(1_000, 9_999), (3.0, "1 us 10 us".to_owned()));
        assert_eq!(of(999, 1_000), (2.0, "100 ns 1 us 10 us".to_owned()));
        assert_eq!(of(0, 0).0, 0.0);
        assert!(of(0, u64::MAX).1.len() < 300);
    }

    #[test]
    fn whatever_a_sweep_holds_the_section_is_bounded_and_whole() {
        let mut odd = sweep(3);
        odd.points[0].settings.clear();
        odd.points[1].error = Some(f64::NAN);
        odd.axes.push(SweepAxis::default());
        odd.curves = vec![SweepCurve::default(); 1_000];
        let mut wild = messages(30);
        wild.points.extend(vec![wild.points[0].clone(); 50_000]);
        wild.latencies
            .extend(vec![wild.latencies[0].clone(); 50_000]);
        wild.latencies[0].median_ns = u64::MAX;
        wild.latencies[1].message_bytes = 0;
        wild.latencies[2].error = Some(f64::NAN);
        wild.points[3].loss = Some(f64::NAN);
        wild.points[4].pattern = Some("<script>".to_owned());
        wild.points[5].messages = None;
        wild.axes.extend(vec![SweepAxis::default(); 1_000]);
        let mut bare = messages(3);
        bare.latencies.clear();
        bare.points.clear();
        for out in [
            page(odd),
            page(sweep(50_000)),
            page(Sweep::default()),
            page(wild),
            page(bare),
        ] {
            assert!(!out.contains("<script"), "{out}");
            assert!(out.len() < 1 << 20, "{}", out.len());
            assert!(!out.contains("NaN"), "{out}");
            for tag in ["svg", "table", "tr", "td", "section", "ul", "li"] {
                let opened = out.matches(&format!("<{tag}>")).count()
                    + out.matches(&format!("<{tag} ")).count();
                assert_eq!(opened, out.matches(&format!("</{tag}>")).count(), "{tag}");
            }
        }
    }
}
