//! Two to six explained runs on one page: the connection that carried most of each, in the same pictures.
//!
//! Made for a path and its model, or one path with and without an off-load: all begin at zero and share
//! every axis, so what differs is seen. Which is the best one is not said.
//!
//! Left out: more than six, whose lines nobody tells apart (they are a table), other connections of the
//! same runs, changes of a clock.

use run::LoadedRun;

use super::trace::{again, bar, legend, steps};
use super::{close_page, open_page, shown, shown_sentence};
use crate::model::{Run, Trace, TraceConnection, TraceFile, TraceSpacing};
use crate::svg::{Axis, Chart};
use crate::text;

/// The page, where there are two runs or some more that each explain a connection.
pub(super) fn render(runs: &[LoadedRun]) -> Option<String> {
    if !(2..=CLASSES.len()).contains(&runs.len()) {
        return None;
    }
    let all = runs.iter().map(Side::of).collect::<Option<Vec<_>>>()?;
    let mut out = open_page("goodput: captures overlaid");
    header(&mut out, &all);
    out.push_str("<section class=\"trace overlay\">\n");
    out.push_str("<div class=\"panels wide\">\n");
    rate(&mut out, &all);
    sequence(&mut out, &all);
    round_trip(&mut out, &all);
    flight(&mut out, &all);
    gaps(&mut out, &all);
    out.push_str("</div>\n");
    held(&mut out, &all);
    figures(&mut out, &all);
    out.push_str("</section>\n");
    close_page(&mut out);
    Some(out)
}

/// One of them.
struct Side<'a> {
    /// What it is called on the page.
    name: String,
    connection: &'a TraceConnection,
    file: Option<&'a TraceFile>,
    began: &'a str,
}

impl<'a> Side<'a> {
    /// The connection that carried most, of those with a course if there is any.
    fn of(loaded: &'a LoadedRun) -> Option<Self> {
        let (trace, connection) = main_connection(&loaded.run)?;
        let place = usize::try_from(connection.file).ok();
        let file = place.and_then(|place| trace.files.get(place));
        Some(Self {
            name: file.map_or_else(|| loaded.run.name.clone(), |f| f.name.clone()),
            connection,
            file,
            began: &loaded.run.started_utc,
        })
    }

    /// Middles of slices in seconds, and what `of` says of each.
    fn course(&self, of: impl Fn(usize) -> Option<f64>) -> Vec<(f64, f64)> {
        let Some(slices) = &self.connection.slices else {
            return Vec::new();
        };
        let width_s = slices.width_ns as f64 / 1e9;
        let count = slices.sent_bytes.len().min(SLICES_MAX);
        (0..count)
            .filter_map(|i| of(i).map(|v| ((i as f64 + 0.5) * width_s, v)))
            .collect()
    }

    fn spacing(&self) -> Option<&TraceSpacing> {
        self.connection.spacing.as_ref()
    }
}

/// The connection of an explained run that carried most, of those with a course if there is any.
pub(super) fn main_connection(run: &Run) -> Option<(&Trace, &TraceConnection)> {
    let trace = run.trace.as_ref()?;
    let connections = trace.connections.iter();
    let most = connections.max_by_key(|c| (c.slices.is_some(), c.payload_bytes))?;
    Some((trace, most))
}

fn header(out: &mut String, all: &[Side<'_>]) {
    put!(
        out,
        "<header>\n<p class=\"kicker\"><b>goodput report</b><span>{} captures overlaid</span></p>\n<h1>{}</h1>\n",
        NUMBERS[all.len() - 2],
        shown_sentence(&headline(all))
    );
    for (side, class) in all.iter().zip(CLASSES) {
        let c = side.connection;
        put!(
            out,
            "<p class=\"why\"><span class=\"key\"><i class=\"line {class}\"></i><b>{}</b></span> {}<br>\
             <span class=\"note\">{} → {}, {}</span></p>\n",
            shown(&side.name),
            shown_sentence(&c.sentence),
            shown(&c.sender),
            shown(&c.receiver),
            match side.file.and_then(|f| f.begins_utc.as_deref()) {
                Some(at) => format!("captured {}", shown(&text::utc(at))),
                None => format!("explained {}", shown(&text::utc(side.began))),
            }
        );
    }
    out.push_str("</header>\n");
}

/// Of two, what the second is beside the first; of more, from which to which.
fn headline(all: &[Side<'_>]) -> String {
    let rates = all.iter().map(|s| s.connection.goodput_bits_per_second);
    let rates: Vec<u64> = rates.collect();
    if let [first, second] = rates[..] {
        let said = format!("{} and {}", text::rate(first), text::rate(second));
        return match text::ratio(second, first) {
            Some(ratio) if second > 0 => format!("{said}: the second is {}", times(ratio)),
            _ => said,
        };
    }
    let (least, most) = (rates.iter().min(), rates.iter().max());
    let [least, most] = [least, most].map(|rate| rate.copied().unwrap_or(0));
    let said = format!("{} to {}", text::rate(least), text::rate(most));
    match text::ratio(most, least) {
        Some(ratio) if ratio < 1.005 => format!("{}, all as fast", text::rate(most)),
        Some(ratio) => {
            let times = times(ratio);
            format!("{said}: the fastest is {times} as the slowest")
        }
        None => said,
    }
}

/// `1.24 times as fast`, `at 51 % of the first`, or `as fast`.
fn times(ratio: f64) -> String {
    match ratio {
        r if (0.995..1.005).contains(&r) => "as fast".to_owned(),
        r if r < 1.0 => format!("at {} of the first", text::percent(r)),
        r => format!("{} times as fast", text::factor(r)),
    }
}

/// How a row's figures are written: sizes in one family of units.
#[derive(Clone, Copy)]
enum Told {
    Each(fn(u64) -> String),
    Sizes,
}

/// What is known of each, side by side, and how far they are apart: of two the second as a multiple of the
/// first, of more the most as a multiple of the least.
fn figures(out: &mut String, all: &[Side<'_>]) {
    type Row = (&'static str, Told, fn(&Side<'_>) -> Option<u64>);
    let (rate, duration) = (Told::Each(text::rate), Told::Each(text::duration));
    let (count, exact) = (Told::Each(text::count), Told::Each(text::bytes_exact));
    let rows: [Row; 19] = [
        ("goodput", rate, |s| {
            Some(s.connection.goodput_bits_per_second)
        }),
        ("best over two round trips", rate, |s| {
            s.connection.best_bits_per_second
        }),
        ("payload", Told::Sizes, |s| Some(s.connection.payload_bytes)),
        ("in", duration, |s| Some(s.connection.active_ns)),
        ("least round trip", duration, |s| s.connection.rtt_min_ns),
        ("round trip to the receiver, median", duration, |s| {
            s.connection.rtt_median_ns
        }),
        ("the longest", duration, |s| s.connection.rtt_max_ns),
        ("in flight, average", Told::Sizes, |s| {
            Some(s.connection.flight_bytes_mean)
        }),
        ("most", Told::Sizes, |s| Some(s.connection.flight_bytes_max)),
        ("receive window, median", Told::Sizes, |s| {
            let window = s.connection.window_bytes_median;
            (window > 0).then_some(window)
        }),
        ("payload of a segment", exact, |s| {
            Some(u64::from(s.connection.segment_bytes))
        }),
        ("packets with data", count, |s| {
            Some(s.connection.data_packets)
        }),
        ("of these, super-packets (TSO, GRO)", count, |s| {
            Some(s.connection.super_packets)
        }),
        ("sent again", count, |s| Some(again(s.connection))),
        ("out of order", count, |s| Some(s.connection.out_of_order)),
        ("duplicate ACKs", count, |s| {
            Some(s.connection.duplicate_acks)
        }),
        ("gap between data packets, median", duration, |s| {
            s.spacing()?.gap_median_ns
        }),
        ("gap between ACKs, median", duration, |s| {
            s.spacing()?.acks.as_ref()?.gap_median_ns
        }),
        ("packets of the longest burst", count, |s| {
            s.spacing()
                .map(|s| s.bursts.longest_packets)
                .filter(|n| *n > 0)
        }),
    ];
    out.push_str(
        "<div class=\"scroll\"><table class=\"list figures-of-two\">\n<thead><tr><th></th>",
    );
    for (class, place) in CLASSES.iter().zip(PLACES).take(all.len()) {
        put!(
            out,
            "<th class=\"n\"><span class=\"key\"><i class=\"line {class}\"></i>{place}</span></th>"
        );
    }
    let apart = if all.len() == 2 {
        "second / first"
    } else {
        "most / least"
    };
    put!(out, "<th class=\"n\">{apart}</th></tr></thead>\n<tbody>\n");
    for (name, told, of) in rows {
        let values: Vec<Option<u64>> = all.iter().map(of).collect();
        if values.iter().all(|v| v.is_none_or(|v| v == 0)) {
            continue;
        }
        put!(out, "<tr><th scope=\"row\">{name}</th>");
        for figure in written(&values, told) {
            put!(out, "<td class=\"n\">{figure}</td>");
        }
        put!(
            out,
            "<td class=\"n\"><b>{}</b></td></tr>\n",
            multiple(&values).map_or_else(dash, text::factor)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn written(values: &[Option<u64>], told: Told) -> Vec<String> {
    let each = |told: &dyn Fn(u64) -> String| -> Vec<String> {
        let values = values.iter();
        values.map(|v| v.map_or_else(dash, told)).collect()
    };
    match told {
        Told::Each(told) => each(&told),
        Told::Sizes => {
            let known: Vec<u64> = values.iter().flatten().copied().collect();
            each(&text::sizes(&known))
        }
    }
}

/// The second over the first, or the most over the least; `None` where one is unknown.
fn multiple(values: &[Option<u64>]) -> Option<f64> {
    let known = values.iter().copied().collect::<Option<Vec<u64>>>()?;
    match known[..] {
        [first, second] => text::ratio(second, first),
        _ => text::ratio(*known.iter().max()?, *known.iter().min()?),
    }
}

fn dash() -> String {
    "–".to_owned()
}

/// All lines in one picture, unless none has a point.
fn pictured(
    out: &mut String,
    (title, about): (&str, &str),
    (y, end_s): (fn(f64) -> Axis, f64),
    all: &[Side<'_>],
    lines: &[Line],
) {
    let top = lines.iter().flatten().map(|p| p.1).fold(0.0, f64::max);
    if top <= 0.0 || end_s <= 0.0 {
        return;
    }
    let y = y(top);
    put!(
        out,
        "<div><h4>{title} <span>{}{about}</span></h4>\n{}<div class=\"plot\">\n",
        y.unit,
        keys(all)
    );
    let mut chart = Chart::new(title, 190, Axis::time(end_s), y);
    for ((side, class), line) in all.iter().zip(CLASSES).zip(lines) {
        chart = chart.line(class, &text::plain(&side.name), line);
    }
    put!(out, "{}</div></div>\n", chart.render());
}

fn each(all: &[Side<'_>], of: impl Fn(&Side<'_>) -> Line) -> Vec<Line> {
    all.iter().map(of).collect()
}

/// Where a line goes.
type Line = Vec<(f64, f64)>;

fn keys(all: &[Side<'_>]) -> String {
    let mut out = "<div class=\"keys\">".to_owned();
    for (side, class) in all.iter().zip(CLASSES) {
        put!(
            out,
            "<span class=\"key\"><i class=\"line {class}\"></i>{}</span>",
            shown(&side.name)
        );
    }
    out.push_str("</div>\n");
    out
}

/// Where the longer one ends, in seconds: all pictures of time have one axis.
fn end_s(all: &[Side<'_>]) -> f64 {
    let ends = all.iter().map(|side| {
        let c = side.connection;
        let slices = c.slices.as_ref().map_or(0.0, |s| {
            s.sent_bytes.len().min(SLICES_MAX) as f64 * s.width_ns as f64
        });
        let graph = c.graphs.first();
        let graph = graph.map_or(0.0, |g| f64::from(g.columns) * g.column_ns as f64);
        slices.max(graph) / 1e9
    });
    ends.fold(0.0, f64::max)
}

/// Over two round trips at least: within one, what a window allows comes in lumps.
fn rate(out: &mut String, all: &[Side<'_>]) {
    let lines = each(all, |side| {
        let c = side.connection;
        let Some(slices) = c.slices.as_ref().filter(|s| s.width_ns > 0) else {
            return Vec::new();
        };
        let over_ns = c.rtt_min_ns.unwrap_or(0).saturating_mul(2);
        let over = usize::try_from(over_ns.div_ceil(slices.width_ns)).unwrap_or(SLICES_MAX);
        let over = over.clamp(1, SLICES_MAX);
        let width_s = slices.width_ns as f64 / 1e9;
        let acked = &slices.acked_bytes[..slices.acked_bytes.len().min(SLICES_MAX)];
        let each = acked.chunks(over).enumerate().map(|(k, part)| {
            let bytes: f64 = part.iter().map(|b| *b as f64).sum();
            let span_s = part.len() as f64 * width_s;
            (
                (k * over) as f64 * width_s + span_s / 2.0,
                bytes * 8.0 / span_s,
            )
        });
        each.collect()
    });
    pictured(
        out,
        ("Rate", ", acknowledged, over two round trips"),
        (Axis::rate, end_s(all)),
        all,
        &lines,
    );
}

fn sequence(out: &mut String, all: &[Side<'_>]) {
    let lines = each(all, |side| {
        let Some(graph) = side.connection.graphs.first() else {
            return Vec::new();
        };
        let base = graph.acknowledged.first().map_or(0, |first| first.1);
        let column_s = graph.column_ns as f64 / 1e9;
        steps(
            &graph.acknowledged,
            base,
            column_s,
            f64::from(graph.columns),
        )
    });
    pictured(
        out,
        ("Time and sequence", ", acknowledged since the begin"),
        (Axis::wire_bytes, end_s(all)),
        all,
        &lines,
    );
}

fn round_trip(out: &mut String, all: &[Side<'_>]) {
    let lines = each(all, |side| {
        let slices = side.connection.slices.as_ref();
        side.course(|i| {
            let ns = slices?.rtt_ns.get(i).copied()??;
            Some(ns as f64)
        })
    });
    pictured(
        out,
        ("Round trip", ", capture point to receiver"),
        (Axis::round_trip, end_s(all)),
        all,
        &lines,
    );
}

fn flight(out: &mut String, all: &[Side<'_>]) {
    let lines = each(all, |side| {
        let slices = side.connection.slices.as_ref();
        side.course(|i| slices?.flight_bytes.get(i).map(|bytes| *bytes as f64))
    });
    pictured(
        out,
        ("In flight", ", most of each slice"),
        (Axis::wire_bytes, end_s(all)),
        all,
        &lines,
    );
}

/// Gaps between data packets in bins of a tenth of a power of ten, as shares of all: what was counted in
/// bins of different widths is then comparable.
fn gaps(out: &mut String, all: &[Side<'_>]) {
    let shares = all.iter().map(|s| Some(shares_by_size(&s.spacing()?.bins)));
    let Some(shares) = shares.collect::<Option<Vec<_>>>() else {
        return;
    };
    let highest = |bin: usize| shares.iter().map(|s| s[bin]).fold(0.0, f64::max);
    let filled = || (0..BINS).filter(|&bin| highest(bin) > 0.0);
    let (Some(from), Some(last)) = (filled().next(), filled().next_back()) else {
        return;
    };
    // Whole powers of ten.
    let (from, to) = (
        from / PER_DECADE * PER_DECADE,
        (last / PER_DECADE + 1) * PER_DECADE,
    );
    let place = |bin: usize| (bin - from) as f64 / PER_DECADE as f64;
    let outline = |shares: &[f64; BINS]| -> Vec<(f64, f64)> {
        let each = (from..to).flat_map(|b| [(place(b), shares[b]), (place(b + 1), shares[b])]);
        each.collect()
    };
    let top = (from..to).map(highest).fold(0.0, f64::max);
    let decades = (from / PER_DECADE)..=(to / PER_DECADE);
    let x = Axis {
        max: place(to),
        ticks: decades
            .map(|d| {
                let ns = u32::try_from(d).ok().and_then(|d| 10_u64.checked_pow(d));
                (
                    place(d * PER_DECADE),
                    text::duration(ns.unwrap_or(u64::MAX)),
                )
            })
            .collect(),
        unit: "",
    };
    let half = top / 2.0;
    let y = Axis {
        max: top * 1.1,
        ticks: vec![
            (0.0, "0".to_owned()),
            (half, text::percent(half).replace(" %", "")),
            (top, text::percent(top).replace(" %", "")),
        ],
        unit: "%",
    };
    let mut chart = Chart::new("gaps between data packets", 190, x, y);
    for ((side, class), shares) in all.iter().zip(CLASSES).zip(&shares) {
        chart = chart.line(class, &text::plain(&side.name), &outline(shares));
    }
    put!(
        out,
        "<div><h4>Gaps between data packets <span>% of all gaps, by powers of ten</span></h4>\n{}\
         <div class=\"plot\">\n{}</div></div>\n",
        keys(all),
        chart.render()
    );
}

/// Share of all gaps in each tenth of a power of ten, by the bins' middles.
fn shares_by_size(bins: &[(u64, u64, u64)]) -> [f64; BINS] {
    let mut shares = [0.0; BINS];
    let mut total = 0.0;
    for (from, to, n) in bins.iter().take(GAP_BINS_MAX) {
        let middle = u64::midpoint(*from, (*to).max(*from)).max(1) as f64;
        let bin = text::whole((middle.log10() * PER_DECADE as f64).floor());
        let bin = usize::try_from(bin).map_or(BINS - 1, |b| b.min(BINS - 1));
        shares[bin] += *n as f64;
        total += *n as f64;
    }
    shares.map(|n| n / f64::max(total, 1.0))
}

fn held(out: &mut String, all: &[Side<'_>]) {
    out.push_str("<h4>Held by <span>share of the time</span></h4>\n");
    for (side, class) in all.iter().zip(CLASSES) {
        put!(
            out,
            "<p class=\"held-of\"><span class=\"key\"><i class=\"line {class}\"></i>{}</span></p>\n{}",
            shown(&side.name),
            bar(&side.connection.shares, 16)
        );
        legend(out, &side.connection.shares);
    }
}

/// Their colours, and what they are called in a table's head and in words.
pub(super) const CLASSES: [&str; 6] = [
    "of-first",
    "of-second",
    "of-third",
    "of-fourth",
    "of-fifth",
    "of-sixth",
];
const PLACES: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];
const NUMBERS: [&str; 5] = ["two", "three", "four", "five", "six"];
const SLICES_MAX: usize = 256;
const GAP_BINS_MAX: usize = 10_000;
const PER_DECADE: usize = 10;
/// 64 bits of nanoseconds are 19.3 powers of ten.
const BINS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{TraceGraph, TraceShare, TraceSlices};

    const HOSTILE: &str = "</p><script>alert('x')</script>\u{202e}";

    fn loaded(name: &str, goodput: u64, of: TraceConnection) -> LoadedRun {
        let small = TraceConnection {
            payload_bytes: 1,
            sender: "the small one".to_owned(),
            ..TraceConnection::default()
        };
        LoadedRun {
            run: Run {
                trace: Some(Trace {
                    files: vec![TraceFile {
                        name: name.to_owned(),
                        ..TraceFile::default()
                    }],
                    connections: vec![
                        small,
                        TraceConnection {
                            payload_bytes: 1_000_000,
                            goodput_bits_per_second: goodput,
                            ..of
                        },
                    ],
                    ..Trace::default()
                }),
                ..Run::default()
            },
            ..LoadedRun::default()
        }
    }

    fn course() -> TraceConnection {
        TraceConnection {
            rtt_min_ns: Some(20_000_000),
            slices: Some(TraceSlices {
                width_ns: 10_000_000,
                sent_bytes: vec![1_000; 20],
                acked_bytes: vec![1_000; 20],
                rtt_ns: vec![Some(20_000_000); 20],
                flight_bytes: vec![5_000; 20],
                ..TraceSlices::default()
            }),
            graphs: vec![TraceGraph {
                column_ns: 1_000_000,
                columns: 200,
                acknowledged: vec![(0, 1), (10, 5_000), (190, 20_000)],
                ..TraceGraph::default()
            }],
            spacing: Some(TraceSpacing {
                bins: vec![(10_000, 11_000, 60), (900_000, 1_000_000, 40)],
                ..TraceSpacing::default()
            }),
            ..TraceConnection::default()
        }
    }

    #[test]
    fn two_captures_share_every_picture_and_a_table_of_ratios() {
        let two = [
            loaded("pseudo.pcapng", 100_000_000, course()),
            loaded("real.pcapng", 250_000_000, course()),
        ];
        let page = render(&two).unwrap();
        assert!(page.contains("the second is 2.50"));
        // 20 slices of 10 ms, four to a point, with one axis in all pictures of time.
        assert_eq!(page.matches(">200 ms</text>").count(), 4);
        assert!(!page.contains("the small one"));
        for title in [
            "Rate",
            "Time and sequence",
            "Round trip",
            "In flight",
            "Gaps between data packets",
            "Held by",
        ] {
            assert!(page.contains(&format!("<h4>{title} ")), "{title}");
        }
        assert_eq!(
            page.matches("class=\"line of-first\"").count(),
            page.matches("class=\"line of-second\"").count()
        );
        assert!(page.contains("<td class=\"n\"><b>2.50</b>"));
        assert!(page.contains("<td class=\"n\"><b>1.00</b>"));
    }

    #[test]
    fn other_runs_are_not_overlaid() {
        let explained = loaded("a", 1, course());
        assert!(render(&[explained.clone(), LoadedRun::default()]).is_none());
        assert!(render(std::slice::from_ref(&explained)).is_none());
        // More lines than are told apart.
        assert!(render(&vec![explained; 7]).is_none());
    }

    #[test]
    fn three_captures_are_overlaid_as_two_are() {
        let rates = [100_000_000, 50_000_000, 200_000_000];
        let three = rates.map(|rate| loaded("some.pcapng", rate, course()));
        let page = render(&three).unwrap();
        assert!(page.contains("three captures overlaid"));
        let said = |rates: [u64; 3]| {
            let runs = rates.map(|rate| loaded("some.pcapng", rate, course()));
            headline(&runs.each_ref().map(|run| Side::of(run).unwrap()))
        };
        let apart = "50 Mb/s to 200 Mb/s: the fastest is 4.00 times as fast as the slowest";
        assert_eq!(said(rates), apart);
        assert_eq!(said([100; 3]), "100 b/s, all as fast");
        assert_eq!(said([1, 0, 1]), "0 b/s to 1 b/s");
        let lines = |class: &str| page.matches(&format!("class=\"line {class}\"")).count();
        assert!(lines("of-third") > 0 && lines("of-third") == lines("of-first"));
        assert_eq!(lines("of-fourth"), 0);
        assert!(page.contains("most / least") && page.contains("<b>4.00</b>"));
    }

    #[test]
    fn a_row_has_one_family_of_units() {
        let row = |values: &[u64]| {
            let values: Vec<Option<u64>> = values.iter().copied().map(Some).collect();
            written(&values, Told::Sizes)
        };
        assert_eq!(row(&[6_356_992, 1_879_000]), ["6.357 MB", "1.879 MB"]);
        assert_eq!(row(&[65_536, 1 << 20]), ["64 KiB", "1 MiB"]);
        assert_eq!(written(&[None, Some(1 << 20)], Told::Sizes), ["–", "1 MiB"]);
    }

    #[test]
    fn shares_of_gaps_do_not_depend_on_how_fine_they_were_counted() {
        let coarse = shares_by_size(&[(10_000, 12_000, 100), (1_000_000, 1_100_000, 300)]);
        let fine: Vec<_> = (0..10)
            .map(|n| (10_000 + n * 200, 10_200 + n * 200, 1))
            .collect();
        let fine = shares_by_size(&[&fine[..], &[(1_000_000, 1_100_000, 30)]].concat());
        assert_eq!(coarse, fine);
        assert_eq!(coarse[60], 0.75);
        assert_eq!(shares_by_size(&[]), [0.0; BINS]);
    }

    #[test]
    fn what_captures_say_stays_text_and_is_bounded() {
        let hostile = TraceConnection {
            sender: HOSTILE.to_owned(),
            sentence: HOSTILE.to_owned(),
            shares: vec![
                TraceShare {
                    limit: HOSTILE.to_owned(),
                    share: f64::NAN
                };
                1_000
            ],
            slices: Some(TraceSlices {
                width_ns: u64::MAX,
                sent_bytes: vec![u64::MAX; 10_000],
                acked_bytes: vec![u64::MAX; 10_000],
                rtt_ns: vec![Some(u64::MAX); 10_000],
                ..TraceSlices::default()
            }),
            graphs: vec![TraceGraph {
                column_ns: u64::MAX,
                columns: u32::MAX,
                acknowledged: vec![(u32::MAX, u64::MAX), (0, 0)],
                ..TraceGraph::default()
            }],
            spacing: Some(TraceSpacing {
                bins: vec![(u64::MAX, 0, u64::MAX); 20_000],
                ..TraceSpacing::default()
            }),
            ..TraceConnection::default()
        };
        let one = loaded(HOSTILE, u64::MAX, hostile);
        let page = render(&[one.clone(), one]).unwrap();
        assert!(!page.contains("<script") && !page.contains('\u{202e}') && !page.contains("NaN"));
        assert!(page.len() < 1 << 20, "{}", page.len());
    }
}
