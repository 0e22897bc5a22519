//! The charts: for each phase, goodput with the sender's limits under it, round trip, windows.

use super::{PHASES_MAX, left_out, shown};
use crate::model::{Phase, Run, SampleRecord, Shares};
use crate::series::{PhaseSeries, Stream};
use crate::svg::{Axis, Chart, escape};
use crate::text::{self, PARTS};

/// All phases that have samples, side by side where there is room.
pub(super) fn section(out: &mut String, run: &Run, samples: &[SampleRecord]) {
    if run.phases.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Over time</h2>\n<div class=\"phases\">\n");
    for phase in run.phases.iter().take(PHASES_MAX) {
        let series = PhaseSeries::of(phase, samples);
        column(out, run, phase, &series);
    }
    out.push_str("</div>\n");
    left_out(out, run.phases.len(), PHASES_MAX, "phases");
    out.push_str("</section>\n");
}

fn column(out: &mut String, run: &Run, phase: &Phase, series: &PhaseSeries) {
    put!(out, "<article class=\"phase\">\n<h3>{}", shown(&phase.name));
    let streams = (phase.streams > 0).then(|| text::plural(u64::from(phase.streams), "stream"));
    let control = text::plain(&phase.congestion_control);
    let facts: Vec<String> = streams
        .into_iter()
        .chain((!control.is_empty()).then_some(control))
        .collect();
    put!(out, " <span>{}</span></h3>\n", escape(&facts.join(", ")));
    if !phase.settings.is_empty() {
        out.push_str("<p class=\"settings\">");
        for setting in phase.settings.iter().take(SETTINGS_MAX) {
            put!(out, "<code>{}</code> ", shown(setting));
        }
        out.push_str("</p>\n");
    }
    if series.end_ns == 0 {
        out.push_str("<p class=\"note\">No samples were kept of this phase.</p>\n</article>\n");
        return;
    }
    // One phase alone spreads over the width that two would share.
    let class = if run.phases.len() == 1 {
        "panels wide"
    } else {
        "panels"
    };
    put!(out, "<div class=\"{class}\">\n<div>\n");
    goodput_over_time(
        out,
        &phase.name,
        phase.ramp_ns,
        text::achievable(run),
        series,
    );
    shares(out, &phase.shares, series);
    beside(out, phase, series);
    out.push_str("</div>\n<div>\n");
    round_trip(out, series);
    windows(out, series);
    out.push_str("</div>\n</div>\n</article>\n");
}

/// Goodput with the ramp shaded and what can be reached beside it.
pub(super) fn goodput_over_time(
    out: &mut String,
    name: &str,
    ramp_ns: u64,
    achievable: Option<u64>,
    series: &PhaseSeries,
) {
    if series.goodput.is_empty() {
        return;
    }
    let end_s = series.end_ns as f64 / 1e9;
    let largest = series.goodput.iter().copied().fold(0.0, f64::max);
    // An achievable rate far above would press the curve flat: then it stands at the top edge.
    let in_view = achievable
        .map(|a| a as f64)
        .filter(|&a| a < largest * IN_VIEW);
    let axis = Axis::rate(largest.max(in_view.unwrap_or(0.0)));
    let axis = if achievable.is_some() {
        axis.with_label_room()
    } else {
        axis
    };
    heading(
        out,
        "Goodput",
        axis.unit,
        &[("area goodput", series.goodput_source.to_owned())],
    );
    let middle = |i: usize| (series.bin_middle_s(i), series.goodput[i]);
    let last = series.goodput.len() - 1;
    // Held to both edges: the first and last half bin have no neighbour to lean to.
    let points: Vec<(f64, f64)> = std::iter::once((0.0, series.goodput[0]))
        .chain((0..=last).map(middle))
        .chain([(end_s, series.goodput[last])])
        .collect();
    let title = format!("goodput of phase {} over time", text::plain(name));
    let mut chart = Chart::new(&title, 170, Axis::time(end_s), axis);
    if !series.shares.is_empty() {
        chart = chart.without_time_labels();
    }
    if ramp_ns > 0 {
        let ramp = format!(
            "ramp-up of {}: left out of the goodput",
            text::duration(ramp_ns)
        );
        chart = chart.shade(&ramp, ramp_ns as f64 / 1e9);
    }
    chart = chart
        .area("goodput", &points)
        .line("goodput", "goodput", &points);
    if let Some(achievable) = achievable {
        let label = format!("achievable {}", text::rate(achievable));
        chart = chart.reference("achievable", &label, achievable as f64);
    }
    let bin_s = series.bin_ns / 1e9;
    chart = chart.columns(series.goodput.len(), bin_s, |i| column_text(series, i));
    figure(out, &chart);
}

/// What a column of the chart says when it is pointed at.
fn column_text(series: &PhaseSeries, i: usize) -> String {
    let mut line = format!(
        "{:.2} s: {}",
        series.bin_middle_s(i),
        text::rate(text::whole(series.goodput[i]))
    );
    for (part, share) in PARTS
        .iter()
        .zip(series.shares.get(i).copied().unwrap_or_default())
    {
        if share >= 0.005 {
            line += &format!(", {} {}", part.name, text::percent_of_time(share));
        }
    }
    line
}

/// Where the senders' time went over time, with `totals` in the legend where they say anything.
pub(super) fn shares(out: &mut String, totals: &Shares, series: &PhaseSeries) {
    if series.shares.is_empty() {
        out.push_str("<p class=\"note\">The kernel did not say what held the sender back.</p>\n");
        return;
    }
    let totals = text::part_values(totals);
    let totals = if totals.iter().any(|&v| v > 0.0) {
        totals
    } else {
        mean(&series.shares)
    };
    let says = |k: usize| format!("{} {}", PARTS[k].name, text::percent(totals[k]));
    let layers = std::array::from_fn::<_, 4, _>(|k| (PARTS[k].class, says(k)));
    let legend: Vec<(&str, String)> = (0..4)
        .filter(|&k| totals[k] > 0.0 || series.shares.iter().any(|s| s[k] >= SEEN))
        .map(|k| (PARTS[k].class, says(k)))
        .collect();
    heading(out, "What held the sender back", "% of its time", &legend);
    let title = "shares of the sender's time: application, receive window, send buffer, network";
    let chart = Chart::new(
        title,
        64,
        Axis::time(series.end_ns as f64 / 1e9),
        Axis::share(),
    );
    figure(
        out,
        &chart.bands(&layers, series.bin_ns / 1e9, &series.shares),
    );
}

/// Round trips of each stream over time.
pub(super) fn round_trip(out: &mut String, series: &PhaseSeries) {
    let shown: Vec<&Stream> = series.streams.iter().take(STREAMS_MAX).collect();
    let largest = max_of(shown.iter().flat_map(|s| &s.srtt_ns));
    if largest <= 0.0 {
        return;
    }
    let axis = Axis::round_trip(largest);
    let mut legend = vec![("line rtt", "smoothed".to_owned())];
    if shown.iter().any(|s| !s.min_rtt_ns.is_empty()) {
        legend.push(("line rtt-min", "smallest so far".to_owned()));
    }
    heading(out, "Round trip, seen by the sender", axis.unit, &legend);
    let title = "round-trip time of each stream over time";
    let mut chart = Chart::new(title, 110, Axis::time(series.end_ns as f64 / 1e9), axis);
    for stream in &shown {
        let smallest = named("smallest round trip", stream, series);
        chart = line(chart, "rtt-min", &smallest, stream, &stream.min_rtt_ns);
        let smoothed = named("smoothed round trip", stream, series);
        chart = line(chart, "rtt", &smoothed, stream, &stream.srtt_ns);
    }
    figures(out, &chart, shown.len() > 1);
    streams_left_out(out, series);
}

/// What small requests beside the transfer met.
fn beside(out: &mut String, phase: &Phase, series: &PhaseSeries) {
    let Some(latency) = &phase.latency else {
        return;
    };
    let trips = latency.round_trips_ns.iter().take(ROUND_TRIPS_MAX);
    let points: Vec<(f64, f64)> = trips
        .map(|&[t, took]| (t as f64 / 1e9, took as f64))
        .collect();
    let largest = max_of(points.iter());
    if largest <= 0.0 {
        return;
    }
    let axis = Axis::round_trip(largest);
    let legend = [("line rtt", "requests beside the transfer".to_owned())];
    heading(out, "Round trip, seen by others", axis.unit, &legend);
    let title = "round trips of requests beside the transfer over time";
    let chart = Chart::new(title, 110, Axis::time(series.end_ns as f64 / 1e9), axis);
    figure(out, &chart.line("rtt", "round trip of a request", &points));
}

/// Windows of each stream over time.
pub(super) fn windows(out: &mut String, series: &PhaseSeries) {
    let shown: Vec<&Stream> = series.streams.iter().take(STREAMS_MAX).collect();
    let flight = max_of(shown.iter().flat_map(|s| &s.flight_bytes));
    let cwnd = max_of(shown.iter().flat_map(|s| &s.cwnd_bytes));
    let peer = max_of(shown.iter().flat_map(|s| &s.peer_window_bytes));
    if cwnd <= 0.0 && peer <= 0.0 {
        return;
    }
    // A window far above what is in flight limits nothing: it leaves the picture at the top.
    let far_above = |v: f64| flight > 0.0 && v > flight * IN_VIEW;
    let in_view = |v: f64| if far_above(v) { 0.0 } else { v };
    let axis = Axis::bytes(flight.max(in_view(cwnd)).max(in_view(peer)));
    let out_of_view = |v: f64| {
        if v > axis.max {
            " (beyond the scale)"
        } else {
            ""
        }
    };
    let legend = [
        (
            "line cwnd",
            format!("congestion window{}", out_of_view(cwnd)),
            cwnd,
        ),
        (
            "line peer-window",
            format!("peer's receive window{}", out_of_view(peer)),
            peer,
        ),
        ("area flight", "in flight".to_owned(), flight),
    ];
    let legend = legend.into_iter().filter(|(.., most)| *most > 0.0);
    let legend: Vec<(&str, String)> = legend.map(|(class, text, _)| (class, text)).collect();
    heading(out, "Windows", axis.unit, &legend);
    let title = "congestion window, peer's receive window and bytes in flight over time";
    let mut chart = Chart::new(title, 130, Axis::time(series.end_ns as f64 / 1e9), axis);
    for stream in &shown {
        if shown.len() == 1 {
            for part in stream.parts(&stream.flight_bytes) {
                chart = chart.area("flight", part);
            }
        }
        for (class, what, gauge) in [
            ("flight", "bytes in flight", &stream.flight_bytes),
            ("peer-window", "peer's window", &stream.peer_window_bytes),
            ("cwnd", "congestion window", &stream.cwnd_bytes),
        ] {
            chart = line(chart, class, &named(what, stream, series), stream, gauge);
        }
    }
    figures(out, &chart, shown.len() > 1);
    streams_left_out(out, series);
}

/// A stream's gauge, with gaps where nothing is known of it.
fn line(chart: Chart, class: &str, title: &str, stream: &Stream, gauge: &[(f64, f64)]) -> Chart {
    stream
        .parts(gauge)
        .fold(chart, |chart, part| chart.line(class, title, part))
}

fn named(what: &str, stream: &Stream, series: &PhaseSeries) -> String {
    if series.streams.len() > 1 {
        format!("{what}, stream {}", stream.number)
    } else {
        what.to_owned()
    }
}

fn streams_left_out(out: &mut String, series: &PhaseSeries) {
    left_out(out, series.streams.len(), STREAMS_MAX, "streams");
}

/// A chart's name, its unit, and the legend.
pub(super) fn heading(out: &mut String, name: &str, unit: &str, legend: &[(&str, String)]) {
    put!(
        out,
        "<h4>{name}, <span>{}</span></h4>\n<p class=\"keys\">",
        escape(unit)
    );
    for (class, text) in legend {
        put!(
            out,
            "<span class=\"key\"><i class=\"{class}\"></i>{}</span> ",
            escape(text)
        );
    }
    out.push_str("</p>\n");
}

pub(super) fn figure(out: &mut String, chart: &Chart) {
    figures(out, chart, false);
}

/// A chart; with `many` streams its lines are thinner.
fn figures(out: &mut String, chart: &Chart, many: bool) {
    let class = if many { "plot many" } else { "plot" };
    put!(out, "<div class=\"{class}\">{}</div>\n", chart.render());
}

fn max_of<'a>(points: impl Iterator<Item = &'a (f64, f64)>) -> f64 {
    points.map(|p| p.1).fold(0.0, f64::max)
}

/// Of those that say anything.
fn mean(shares: &[[f64; 4]]) -> [f64; 4] {
    let told = || shares.iter().filter(|s| s.iter().sum::<f64>() > 0.0);
    let n = told().count().max(1) as f64;
    std::array::from_fn(|k| told().map(|s| s[k]).sum::<f64>() / n)
}

/// Streams whose gauges are drawn one by one; more lines than this are a blur.
const STREAMS_MAX: usize = 16;
/// A reference stays in the picture while it is below this many times the data.
const IN_VIEW: f64 = 3.0;
/// Requests drawn beside a transfer; as many as a run keeps.
const ROUND_TRIPS_MAX: usize = 2_000;
/// A smaller share of a bin cannot be seen.
const SEEN: f64 = 0.01;
/// Settings shown above a phase.
const SETTINGS_MAX: usize = 12;
