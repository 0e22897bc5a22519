//! Packets at fine time: gaps, bursts, sections and round trips of a connection, and parallel streams.

use super::super::{ENTRIES_MAX, shown, shown_sentence};
use crate::model::{
    Trace, TraceAcks, TraceConnection, TraceRoundTripSamples, TraceRoundTrips, TraceSpacing,
    TraceStreams,
};
use crate::svg::{Axis, Chart};
use crate::text;

/// Nothing where spacing was not asked for.
pub(super) fn one(out: &mut String, c: &TraceConnection) {
    let Some(spacing) = &c.spacing else { return };
    put!(
        out,
        "<h3>Packets at fine time</h3>\n<p class=\"note\">{}</p>\n<div class=\"panels\">\n",
        shown_sentence(&stamps(spacing))
    );
    overall(out, spacing);
    fine(out, spacing);
    phase(out, spacing);
    out.push_str("</div>\n");
    numbers(out, spacing);
}

/// What the stamps tell apart, in a sentence.
pub(crate) fn stamps(s: &TraceSpacing) -> String {
    let told = match s.packet_time_ns {
        0 => format!(
            "The stamps are multiples of {}; too few packets came one behind the other to know how true they are, so \
             {} are assumed (--line-rate tells more).",
            text::duration(s.step_ns),
            text::duration(s.error_ns)
        ),
        _ => {
            format!(
                "The stamps tell {} apart: they are multiples of {}, and may be wrong by {}.",
                text::duration(s.finest_ns),
                text::duration(s.step_ns),
                text::duration(s.error_ns)
            ) + match s.line_bits_per_second {
                Some(_) => "",
                None => " What is finer only --line-rate can tell.",
            }
        }
    };
    match &s.refused {
        Some(why) => format!("{told} {}.", capital(&text::plain(why))),
        None => told,
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// All gaps, both axes by powers of ten.
fn overall(out: &mut String, s: &TraceSpacing) {
    let bins: Vec<_> = s.bins.iter().filter(sound).take(BINS_MAX).collect();
    let of_acks = s.acks.iter().flat_map(|a| &a.bins);
    let acks: Vec<_> = of_acks.filter(sound).take(BINS_MAX).collect();
    let (Some(first), Some(last)) = (bins.first(), bins.last()) else {
        return;
    };
    // Whole decades; what is shorter than the shortest gap is a bin's width only.
    let least = first.0.max(s.gap_min_ns.unwrap_or(0)).max(1).min(last.1);
    let ack_gaps = s.acks.as_ref().and_then(|a| a.gap_min_ns.zip(a.gap_max_ns));
    let least = ack_gaps.map_or(least, |(min, _)| least.min(min.max(1)));
    let longest = ack_gaps.map_or(last.1, |(_, max)| last.1.max(max));
    let from = (least as f64).log10().floor();
    let to = (longest as f64).log10().ceil();
    let most = bins.iter().chain(&acks).map(|b| b.2).max().unwrap_or(1);
    let x_of = |ns: u64| ((ns.max(1) as f64).log10() - from).max(0.0);
    let height = |n: u64| (n as f64).log10() + FOOT;
    let points = outline(&bins, &x_of, &height);
    let x = Axis {
        max: (to - from).max(0.01),
        ticks: powers(1, u64::MAX)
            .filter(|v| (from..=to).contains(&(*v as f64).log10()))
            .map(|v| (x_of(v), text::duration(v)))
            .collect(),
        unit: "",
    };
    let y = Axis {
        max: ((most as f64).log10() + FOOT) * 1.08,
        ticks: powers(1, most)
            .map(|v| ((v as f64).log10() + FOOT, text::count(v)))
            .collect(),
        unit: "",
    };
    put!(
        out,
        "<div><h4>Gaps <span>{} between packets of {} octets on the wire, both axes by powers of ten</span></h4>\n\
         {}<div class=\"plot\">\n{}</div></div>\n",
        text::count(s.gaps),
        s.size_bytes,
        match acks.as_slice() {
            [] => "",
            _ => GAP_KEYS,
        },
        Chart::new("gaps between packets", 170, x, y)
            .area("gaps", &points)
            .line(
                "acked",
                "gaps between ACKs",
                &outline(&acks, &x_of, &height)
            )
            .render()
    );
}

/// The upper edge of bins in their order, down to zero where there are none in between.
fn outline(
    bins: &[&(u64, u64, u64)],
    x_of: &dyn Fn(u64) -> f64,
    y_of: &dyn Fn(u64) -> f64,
) -> Vec<(f64, f64)> {
    let mut points = Vec::with_capacity(bins.len() * 4);
    let mut last = None;
    for &&(from, to, n) in bins {
        if last != Some(from) {
            points.extend(last.map(|last| (x_of(last), 0.0)));
            points.push((x_of(from), 0.0));
        }
        points.extend([(x_of(from), y_of(n)), (x_of(to), y_of(n))]);
        last = Some(to);
    }
    points.extend(last.map(|last| (x_of(last), 0.0)));
    points
}

/// The gaps that are like most.
fn fine(out: &mut String, s: &TraceSpacing) {
    let bins: Vec<_> = s.fine.iter().filter(sound).take(BINS_MAX).collect();
    let (Some(first), Some(last)) = (bins.first(), bins.last()) else {
        return;
    };
    let span = last.1.saturating_sub(first.0);
    let width = first.1 - first.0;
    let x_of = |ns: u64| ns.saturating_sub(first.0) as f64;
    let points = outline(&bins, &x_of, &|n| n as f64);
    let step = (span / 5).max(1);
    let x = Axis {
        max: span as f64,
        ticks: (0..=5)
            .map(|n| first.0.saturating_add(n * step))
            .filter(|v| *v <= last.1)
            .map(|v| (x_of(v), text::duration(v)))
            .collect(),
        unit: "",
    };
    let most = bins.iter().map(|b| b.2).max().unwrap_or(1);
    let y = Axis::count(most as f64, "gaps");
    put!(
        out,
        "<div><h4>{} <span>in bins of {}</span></h4>\n<div class=\"plot\">\n{}</div></div>\n",
        match s.bin_borne {
            Some(true) => "Gaps in the bins asked for",
            _ => "Nine of ten gaps",
        },
        text::duration(width),
        Chart::new("gaps like most", 170, x, y)
            .area("gaps", &points)
            .render()
    );
}

fn phase(out: &mut String, s: &TraceSpacing) {
    let Some(phase) = s.phase.as_ref().filter(|p| !p.data.is_empty()) else {
        return;
    };
    let step_s = phase.step_ns as f64 / 1e9;
    let course = |counts: &[u64]| -> Vec<(f64, f64)> {
        let each = counts.iter().take(BINS_MAX).enumerate();
        each.flat_map(|(n, count)| {
            let (from, to) = (n as f64 * step_s, (n as f64 + 1.0) * step_s);
            [(from, *count as f64), (to, *count as f64)]
        })
        .collect()
    };
    let (data, acks) = (course(&phase.data), course(&phase.acks));
    let most = data.iter().chain(&acks).map(|p| p.1).fold(0.0, f64::max);
    let end_s = phase.data.len().min(BINS_MAX) as f64 * step_s;
    put!(
        out,
        "<div><h4>Within a round trip <span>packets by their place in {}, all round trips together</span></h4>\n\
         <div class=\"keys\"><span class=\"key\"><i class=\"area flight\"></i>data</span>\
         <span class=\"key\"><i class=\"line acked\"></i>ACKs</span></div>\n<div class=\"plot\">\n{}</div></div>\n",
        text::duration(phase.rtt_ns),
        Chart::new(
            "within a round trip",
            130,
            Axis::time(end_s),
            Axis::count(most, "packets")
        )
        .area("flight", &data)
        .line("acked", "ACKs", &acks)
        .render()
    );
}

fn numbers(out: &mut String, s: &TraceSpacing) {
    let mut rows: Vec<(String, String)> = Vec::new();
    if let (Some(min), Some(median), Some(p99), Some(max)) =
        (s.gap_min_ns, s.gap_median_ns, s.gap_p99_ns, s.gap_max_ns)
    {
        rows.push((
            "gaps: shortest, median, 99 of 100, longest".to_owned(),
            [min, median, p99, max]
                .map(|ns| told(ns, s.finest_ns))
                .join(", "),
        ));
    }
    if !s.modes.is_empty() {
        rows.push(("gaps around which many lie".to_owned(), modes(s)));
    }
    if let Some(acks) = &s.acks {
        of_acks(&mut rows, acks, s.finest_ns);
    }
    if let Some((data, acks)) = s
        .phase
        .as_ref()
        .and_then(|p| p.data_half_share.zip(p.acks_half_share))
    {
        let share = |of: f64| text::percent(of);
        rows.push((
            "half of the packets lie within".to_owned(),
            format!(
                "{} of a round trip (data), {} (ACKs)",
                share(data),
                share(acks)
            ),
        ));
    }
    if s.bursts.limit_ns > 0 {
        rows.push(("bursts".to_owned(), bursts(s)));
    }
    for section in s.sections.iter().take(ENTRIES_MAX) {
        let name = format!("sections of {}", text::duration(section.length_ns));
        let value = match &section.refused {
            Some(why) => text::plain(why),
            None => format!(
                "payload at {} at most ({} after the begin), {} in the middle one, {} at least; {} of {} with data",
                text::rate(section.peak_bits_per_second),
                text::duration(section.peak_at_ns),
                text::rate(section.median_bits_per_second),
                text::rate(section.least_bits_per_second),
                text::count(section.busy),
                text::count(section.sections)
            ),
        };
        rows.push((name, value));
    }
    if s.backwards > 0 {
        rows.push(("stamps that go back".to_owned(), text::count(s.backwards)));
    }
    out.push_str("<table class=\"list\">\n<tbody>\n");
    for (name, value) in rows {
        put!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n",
            shown(&name),
            shown_sentence(&value)
        );
    }
    out.push_str("</tbody></table>\n");
}

fn of_acks(rows: &mut Vec<(String, String)>, acks: &TraceAcks, finest_ns: u64) {
    if let (Some(min), Some(median), Some(p99), Some(max)) = (
        acks.gap_min_ns,
        acks.gap_median_ns,
        acks.gap_p99_ns,
        acks.gap_max_ns,
    ) {
        rows.push((
            "gaps between ACKs: the same".to_owned(),
            [min, median, p99, max]
                .map(|ns| told(ns, finest_ns))
                .join(", "),
        ));
    }
    if let Some(segments) = segments(acks) {
        rows.push(("segments that an ACK acknowledges".to_owned(), segments));
    }
}

/// `2.0 on average: 1 in 12 %, 2 in 85 %, 3 to 4 in 3 %; 17 of nothing new`; `None` where none
/// acknowledges anything.
pub(crate) fn segments(acks: &TraceAcks) -> Option<String> {
    let mean = acks.segments_mean.filter(|m| m.is_finite())?;
    let (nothing, new) = acks.by_segments.split_first()?;
    let all = new.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
    let named = new.iter().take(CLASSES_MAX).enumerate();
    let named = named.filter_map(|(class, n)| {
        let share = *n as f64 / all.max(1) as f64;
        let to = 1_u64 << class;
        let name = match class {
            0 | 1 => to.to_string(),
            _ => format!("{} to {to}", to / 2 + 1),
        };
        (share >= NAMED_SHARE).then(|| format!("{name} in {}", text::percent(share)))
    });
    let named: Vec<String> = named.collect();
    let nothing = match nothing {
        0 => String::new(),
        n => format!("; {} of nothing new", text::count(*n)),
    };
    Some(format!(
        "{mean:.1} on average: {}{nothing}",
        named.join(", ")
    ))
}

/// `7.781 us (idle 560 ns) 50 %, 7.797 us (idle 576 ns) 50 %`.
pub(crate) fn modes(s: &TraceSpacing) -> String {
    let each = s.modes.iter().take(MODES_NAMED).map(|m| {
        let idle = m
            .idle_ns
            .map(|idle| format!(" (idle {})", told(idle, s.finest_ns)));
        format!(
            "{}{} {}",
            told(m.gap_ns, s.finest_ns),
            idle.unwrap_or_default(),
            text::percent(m.share)
        )
    });
    each.collect::<Vec<_>>().join(", ")
}

/// A time with no more digits than the stamps tell: 7,780 ns where they tell 9 ns apart, 7 us where 8.7 us.
fn told(ns: u64, finest_ns: u64) -> String {
    let step = 10_u64.pow(finest_ns.max(1).ilog10());
    let rounded = ns.saturating_add(step / 2) / step * step;
    match step {
        0..1_000 => format!("{} ns", text::count(rounded)),
        _ => text::duration(rounded),
    }
}

/// Bursts in a sentence.
pub(crate) fn bursts(s: &TraceSpacing) -> String {
    let b = &s.bursts;
    let rate = match b.bits_per_second {
        0 => String::new(),
        rate => format!(", at {} within", text::rate(rate)),
    };
    format!(
        "{} of {:.1} packets on average, the longest of {}{rate} (no gap above {})",
        text::plural(b.bursts, "burst"),
        if b.mean_packets.is_finite() {
            b.mean_packets
        } else {
            0.0
        },
        text::count(b.longest_packets),
        text::duration(b.limit_ns)
    )
}

/// Parallel streams, and what another program makes of it all.
pub(super) fn of_all(out: &mut String, trace: &Trace) {
    for streams in trace.streams.iter().take(GROUPS_MAX) {
        group(out, streams);
    }
    let Some(o) = &trace.observer else { return };
    put!(
        out,
        "<section>\n<h2>Spacing by {} <span>{}</span></h2>\n<p class=\"note\">{} packets, {} differ; {} gaps, {} \
         differ; {} sections, {} differ; {} bursts, of {} connections different.</p>\n</section>\n",
        shown(&o.tool),
        if o.agrees { "the same" } else { "DIFFERS" },
        text::count(o.packets),
        text::count(o.packets_differ),
        text::count(o.gaps),
        text::count(o.gaps_differ),
        text::count(o.sections),
        text::count(o.sections_differ),
        text::count(o.bursts),
        text::count(o.bursts_differ)
    );
    if !o.round_trips.is_empty() {
        out.push_str("<section>\n<h2>Round trips by both</h2>\n<ul>\n");
        for r in o.round_trips.iter().take(ENTRIES_MAX) {
            put!(out, "<li>{}</li>\n", shown_sentence(&round_trips(r)));
        }
        out.push_str("</ul>\n</section>\n");
    }
}

/// Both programs' round trips of a connection, in a sentence.
pub(crate) fn round_trips(r: &TraceRoundTrips) -> String {
    let told = |s: &TraceRoundTripSamples| {
        format!(
            "{} round trips, {} at least, median {}, 95 of 100 within {}",
            text::count(s.samples),
            text::duration(s.min_ns),
            text::duration(s.median_ns),
            text::duration(s.p95_ns)
        )
    };
    format!(
        "{}. {}; theirs: {}, and {} of what was sent again, {} in holes: {}",
        r.connection,
        told(&r.ours),
        told(&r.theirs),
        text::count(r.theirs_sent_again),
        text::count(r.theirs_in_holes),
        if r.agrees {
            "the same least and median"
        } else {
            "THEY DIFFER"
        }
    )
}

fn group(out: &mut String, s: &TraceStreams) {
    put!(
        out,
        "<section class=\"trace\">\n<h2>{} streams side by side <span>{} → {}</span></h2>\n<p class=\"why\">{}</p>\n\
         <div class=\"panels\">\n",
        s.connections.len(),
        shown(&s.sender),
        shown(&s.receiver),
        shown_sentence(&order(s))
    );
    for (n, raster) in s.rasters.iter().take(RASTERS_MAX).enumerate() {
        let columns = raster.rows.iter().map(Vec::len).max().unwrap_or(0);
        let columns = columns.min(COLUMNS_MAX);
        let column_s = raster.column_ns as f64 / 1e9;
        put!(
            out,
            "<h4>{} <span>who sent when, a row for each stream, darker for more; from {} on</span></h4>\n\
             <div class=\"plot\">\n",
            if n == 0 {
                "The whole time"
            } else {
                "Four round trips"
            },
            text::duration(raster.begins_ns)
        );
        let rows = raster.rows.len().min(ROWS_MAX);
        let most = raster.rows.iter().flatten().copied().max().unwrap_or(0);
        let mut shades: [Vec<(f64, f64, f64)>; 3] = Default::default();
        for (row, bytes) in raster.rows.iter().take(rows).enumerate() {
            let foot = (rows - 1 - row) as f64;
            for (column, &bytes) in bytes
                .iter()
                .take(columns)
                .enumerate()
                .filter(|(_, b)| **b > 0)
            {
                let share = bytes as f64 / most.max(1) as f64;
                let shade = if share > 0.6 {
                    2
                } else {
                    usize::from(share > 0.2)
                };
                let x = (column as f64 + 0.5) * column_s;
                shades[shade].push((x, foot + 0.12, foot + 0.88));
            }
        }
        let each = rows.div_ceil(16).max(1);
        let y = Axis {
            max: rows.max(1) as f64,
            ticks: (0..rows)
                .step_by(each)
                .map(|row| {
                    let number = s.connections.get(row).copied().unwrap_or(0);
                    ((rows - 1 - row) as f64 + 0.5, format!("{number}."))
                })
                .collect(),
            unit: "",
        };
        let height = u32::try_from(rows)
            .unwrap_or(1)
            .saturating_mul(18)
            .clamp(40, 320);
        let x = Axis::time(columns as f64 * column_s);
        let mut chart = Chart::new("who sent when", height, x, y);
        for (class, strokes) in ["some", "more", "most"].into_iter().zip(&shades) {
            chart = chart.strokes(&format!("raster {class}"), "sent", strokes);
        }
        put!(out, "{}</div>\n", chart.render());
    }
    balance(out, s);
    out.push_str("</div>\n</section>\n");
}

fn balance(out: &mut String, s: &TraceStreams) {
    let width_s = s.balance_ns as f64 / 1e9;
    let known: Vec<(f64, f64)> = s
        .balance
        .iter()
        .take(COLUMNS_MAX)
        .enumerate()
        .filter_map(|(n, b)| b.map(|b| ((n as f64 + 0.5) * width_s, b)))
        .collect();
    if known.len() < 2 {
        return;
    }
    let end_s = s.balance.len().min(COLUMNS_MAX) as f64 * width_s;
    put!(
        out,
        "<h4>Balance <span>%: the stream that sent least, as a share of the mean, in columns of {}</span></h4>\n\
         <div class=\"plot\">\n{}</div>\n",
        text::duration(s.balance_ns),
        Chart::new("balance of streams", 110, Axis::time(end_s), Axis::share())
            .line("acked", "least of mean", &known)
            .render()
    );
}

/// How the streams' order goes on, in a sentence.
pub(crate) fn order(s: &TraceStreams) -> String {
    let even = s.balance_all.map_or_else(String::new, |share| {
        format!(" The least sent {} of the mean.", text::percent(share))
    });
    match (&s.refused, s.order_kept) {
        (Some(why), _) => format!("No order is told: {}.{even}", text::plain(why)),
        (None, Some(kept)) => format!(
            "In {} of {} round trips they came in the order of the one before.{even}",
            text::percent(kept),
            text::count(s.rounds)
        ),
        (None, None) => format!("No two round trips had two of them in common.{even}"),
    }
}

fn sound(bin: &&(u64, u64, u64)) -> bool {
    bin.1 > bin.0 && bin.2 > 0
}

/// Powers of ten between two numbers, ends included.
fn powers(from: u64, to: u64) -> impl Iterator<Item = u64> {
    (0..20_u32)
        .filter_map(|n| 10_u64.checked_pow(n))
        .filter(move |v| (from..=to).contains(v))
}

/// What stands once would have no height by its logarithm alone.
const FOOT: f64 = 0.3;
const BINS_MAX: usize = 2_000;
/// Doublings of segments that an ACK acknowledges: all that 64 bits have names for.
const CLASSES_MAX: usize = 40;
const NAMED_SHARE: f64 = 0.005;
const GAP_KEYS: &str = "<div class=\"keys\"><span class=\"key\"><i class=\"area gaps\"></i>data</span>\
    <span class=\"key\"><i class=\"line acked\"></i>ACKs</span></div>\n";
const MODES_NAMED: usize = 6;
const GROUPS_MAX: usize = 4;
const RASTERS_MAX: usize = 2;
const COLUMNS_MAX: usize = 300;
const ROWS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        TraceBursts, TraceMode, TraceObserver, TracePhase, TraceRaster, TraceSections,
    };

    const HOSTILE: &str = "</p><script>alert('x')</script>\u{202e}";

    #[test]
    fn hostile_numbers_and_texts_stay_a_page() {
        let bin = (u64::MAX, 0, u64::MAX);
        let spacing = TraceSpacing {
            packet_time_ns: 1,
            refused: Some(HOSTILE.to_owned()),
            bins: [bin, (0, u64::MAX, u64::MAX), (0, 0, 0)].repeat(10_000),
            fine: [bin, (0, u64::MAX, u64::MAX)].repeat(10_000),
            modes: vec![
                TraceMode {
                    share: f64::NAN,
                    ..TraceMode::default()
                };
                1_000
            ],
            bursts: TraceBursts {
                limit_ns: u64::MAX,
                mean_packets: f64::INFINITY,
                ..TraceBursts::default()
            },
            sections: vec![
                TraceSections {
                    refused: Some(HOSTILE.to_owned()),
                    ..TraceSections::default()
                };
                1_000
            ],
            phase: Some(TracePhase {
                step_ns: u64::MAX,
                data: vec![u64::MAX; 10_000],
                ..TracePhase::default()
            }),
            ..TraceSpacing::default()
        };
        let connection = TraceConnection {
            spacing: Some(spacing),
            ..TraceConnection::default()
        };
        let raster = TraceRaster {
            begins_ns: 0,
            column_ns: u64::MAX,
            rows: vec![vec![u64::MAX; 3_000]; 300],
        };
        let streams = TraceStreams {
            sender: HOSTILE.to_owned(),
            refused: Some(HOSTILE.to_owned()),
            balance: vec![Some(f64::NAN); 3_000],
            balance_all: Some(f64::INFINITY),
            rasters: vec![raster; 10],
            ..TraceStreams::default()
        };
        let trace = Trace {
            streams: vec![streams; 20],
            observer: Some(TraceObserver {
                tool: HOSTILE.to_owned(),
                ..TraceObserver::default()
            }),
            ..Trace::default()
        };
        let mut page = String::new();
        one(&mut page, &connection);
        of_all(&mut page, &trace);
        assert!(!page.contains("<script") && !page.contains('\u{202e}') && !page.contains("NaN"));
        assert!(page.len() < 4 << 20, "{}", page.len());
    }

    #[test]
    fn times_have_no_more_digits_than_the_stamps_tell() {
        assert_eq!(told(7_780, 9), "7,780 ns");
        assert_eq!(told(7_784, 10), "7,780 ns");
        assert_eq!(told(7_785, 10), "7,790 ns");
        assert_eq!(told(7_211, 8_693), "7 us");
        assert_eq!(told(u64::MAX, 1), told(u64::MAX, 0));
        assert!(!told(u64::MAX, u64::MAX).is_empty());
    }

    #[test]
    fn nothing_is_shown_where_nothing_was_asked() {
        let mut page = String::new();
        one(&mut page, &TraceConnection::default());
        of_all(&mut page, &Trace::default());
        assert!(page.is_empty());
    }

    #[test]
    fn stamps_whose_error_is_not_known_do_not_claim_to_be_exact() {
        let few = TraceSpacing {
            step_ns: 1,
            finest_ns: 1,
            ..TraceSpacing::default()
        };
        assert!(stamps(&few).contains("0 ns are assumed"));
        let known = TraceSpacing {
            packet_time_ns: 12_304,
            ..few
        };
        assert!(stamps(&known).contains("tell 1 ns apart"));
    }
}
