//! Two captures of one path as one: where segments were lost, how long packets took, and each loss with
//! its frames; and what a lab's log says.

use super::{ENTRIES_MAX, left_out, shown, shown_sentence};
use crate::model::{Trace, TraceClock, TraceDelay, TraceLoss, TracePair, TracePairConnection};
use crate::text;

/// Nothing where there is neither pair nor log.
pub(super) fn section(out: &mut String, trace: &Trace) {
    if let Some(pair) = &trace.pair {
        both(out, trace, pair);
    }
    for log in trace.logs.iter().take(LOGS_MAX) {
        let name = name_of(trace, log.file);
        put!(
            out,
            "<section>\n<h2>What the lab lost <span>{}</span></h2>\n<p class=\"why\">{}</p>\n",
            shown(&name),
            shown_sentence(&log.sentence)
        );
        if !log.complete {
            out.push_str("<p class=\"note\">The log is not complete.</p>\n");
        }
        out.push_str(
            "<div class=\"scroll\"><table class=\"list\">\n<thead><tr><th>from</th><th>to</th><th>why</th>\
             <th>where</th><th class=\"n\">with data</th><th class=\"n\">payload</th><th class=\"n\">without</th>\
             </tr></thead>\n<tbody>\n",
        );
        for d in log.drops.iter().take(ENTRIES_MAX) {
            put!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{} / {}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
                shown(&d.sender),
                shown(&d.receiver),
                shown(&d.decision.replace('_', " ")),
                shown(&d.link),
                shown(&d.stage),
                text::count(d.data_segments),
                text::size(d.data_bytes),
                text::count(d.control_segments)
            );
        }
        out.push_str("</tbody></table></div>\n");
        left_out(out, log.drops.len(), ENTRIES_MAX, "rows");
        out.push_str("</section>\n");
    }
}

/// The same in lines for a terminal.
pub(crate) fn lines(pair: &TracePair) -> Vec<String> {
    let mut lines = vec![format!("Both ends: {}", text::plain(&pair.sentence))];
    lines.extend(pair.translated.as_deref().map(text::plain));
    lines.extend(pair.delays.iter().take(2).map(delay));
    lines.extend(pair.clock.as_ref().map(clock));
    lines.extend(remarks(pair));
    lines
}

fn both(out: &mut String, trace: &Trace, pair: &TracePair) {
    let names: Vec<String> = pair
        .files
        .iter()
        .take(2)
        .map(|file| name_of(trace, *file))
        .collect();
    let frames: String = names
        .iter()
        .map(|name| format!("<th class=\"n\">frame in {}</th>", shown(name)))
        .collect();
    put!(
        out,
        "<section id=\"pair\">\n<h2>Both ends <span>{} matched packet by packet</span></h2>\n\
         <p class=\"why\">{}</p>\n<ul>\n",
        shown(&names.join(" and ")),
        shown_sentence(&pair.sentence)
    );
    for line in lines(pair).iter().skip(1) {
        put!(out, "<li>{}</li>\n", shown(line));
    }
    out.push_str("</ul>\n");
    let all: Vec<(&TracePairConnection, &str, &TraceLoss)> = pair
        .connections
        .iter()
        .flat_map(|c| c.ways.iter().map(move |w| (c, w)))
        .flat_map(|(c, w)| w.losses.iter().map(move |l| (c, w.to.as_str(), l)))
        .collect();
    if !all.is_empty() {
        put!(
            out,
            "<div class=\"scroll\"><table class=\"list\">\n<thead><tr><th>from</th><th>to</th><th>lost</th>\
             <th class=\"n\">segments</th><th class=\"n\">sequence</th>{frames}<th>came through as</th><th></th>\
             </tr></thead>\n<tbody>\n"
        );
        for (c, to, loss) in all.iter().take(LOSSES_MAX) {
            row(out, c, to, loss);
        }
        out.push_str("</tbody></table></div>\n");
        left_out(out, all.len(), LOSSES_MAX, "losses");
    }
    out.push_str("</section>\n");
}

fn row(out: &mut String, c: &TracePairConnection, to: &str, loss: &TraceLoss) {
    let [from, to] = match to {
        "near" => [&c.far_end, &c.near_end],
        _ => [&c.near_end, &c.far_end],
    };
    put!(
        out,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
        shown(from),
        shown(to),
        shown(&loss.place),
        text::count(loss.segments),
        loss.sequence
    );
    for at in 0..2 {
        let frame = loss.frames.get(at).copied().flatten();
        put!(
            out,
            "<td class=\"n\">{}</td>",
            frame.map_or_else(|| "–".to_owned(), |f| f.to_string())
        );
    }
    let repeat = match loss.repeat.as_deref() {
        Some([near, far, ..]) => format!("{near}, {far}"),
        _ => String::new(),
    };
    put!(
        out,
        "<td>{repeat}</td><td>{}</td></tr>\n",
        loss.reason.as_deref().map_or_else(String::new, shown)
    );
}

fn delay(d: &TraceDelay) -> String {
    format!(
        "{}: {} at least, median {}, 99 % {}, most {}, of {} packets",
        match d.to.as_str() {
            "near" => "from far to near",
            _ => "from near to far",
        },
        text::signed_duration(d.min_ns),
        text::signed_duration(d.median_ns),
        text::signed_duration(d.p99_ns),
        text::signed_duration(d.max_ns),
        text::count(d.packets)
    )
}

fn clock(c: &TraceClock) -> String {
    let drift = match c.drift_ppm.zip(c.drift_uncertainty_ppm) {
        Some((drift, within)) => format!(", and {drift:.1} ± {within:.1} ppm faster"),
        None => String::new(),
    };
    let steps = match c.steps {
        0 => String::new(),
        n => format!(
            "; one of the clocks was set {}, delays are of the longest time between",
            text::plural(u64::from(n), "time")
        ),
    };
    format!(
        "the far clock is {} ahead ± {}, by which the two delays may be off, one up and the other down{drift}{steps}",
        nanoseconds(c.offset_ns),
        nanoseconds(c.offset_uncertainty_ns)
    )
}

fn nanoseconds(ns: f64) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "a float cast saturates")]
    text::signed_duration(ns.round() as i64)
}

fn remarks(pair: &TracePair) -> Vec<String> {
    [
        (
            pair.control_lost,
            "packet",
            "without data lost between them, ACKs mostly",
        ),
        (
            pair.not_captured,
            "segment",
            "missing in one capture and not lost: its capture has holes",
        ),
        (
            pair.not_judged,
            "segment",
            "not judged: outside the other capture's time, or no room to wait",
        ),
        (
            pair.packets_left_out,
            "packet",
            "of connections for which there was no room",
        ),
    ]
    .into_iter()
    .filter(|(n, _, _)| *n > 0)
    .map(|(n, thing, what)| format!("{} {what}", text::plural(n, thing)))
    .collect()
}

fn name_of(trace: &Trace, file: u32) -> String {
    let file = usize::try_from(file).ok().and_then(|n| trace.files.get(n));
    file.map_or_else(String::new, |f| f.name.clone())
}

const LOSSES_MAX: usize = 200;
const LOGS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{TraceDrops, TraceFile, TraceLog, TracePairWay};

    const HOSTILE: &str = "</p><script>alert('x')</script>\u{202e}";

    #[test]
    fn what_two_captures_say_stays_text_and_is_bounded() {
        let loss = TraceLoss {
            place: HOSTILE.to_owned(),
            segments: u64::MAX,
            frames: vec![Some(u64::MAX); 9],
            repeat: Some(vec![1]),
            reason: Some(HOSTILE.to_owned()),
            ..TraceLoss::default()
        };
        let way = TracePairWay {
            to: HOSTILE.to_owned(),
            losses: vec![loss; 5_000],
            ..TracePairWay::default()
        };
        let connection = TracePairConnection {
            near_end: HOSTILE.to_owned(),
            ways: vec![way; 2],
            ..TracePairConnection::default()
        };
        let drops = TraceDrops {
            sender: HOSTILE.to_owned(),
            decision: HOSTILE.to_owned(),
            link: HOSTILE.to_owned(),
            stage: HOSTILE.to_owned(),
            ..TraceDrops::default()
        };
        let log = TraceLog {
            file: 7,
            sentence: HOSTILE.to_owned(),
            drops: vec![drops; 5_000],
            ..TraceLog::default()
        };
        let pair = TracePair {
            files: vec![0, u32::MAX, 1],
            sentence: HOSTILE.to_owned(),
            clock: Some(TraceClock {
                offset_ns: f64::NAN,
                offset_uncertainty_ns: f64::INFINITY,
                drift_ppm: Some(f64::NEG_INFINITY),
                drift_uncertainty_ppm: Some(0.0),
                steps: 2,
                round_trip_min_ns: i64::MIN,
            }),
            delays: vec![
                TraceDelay {
                    to: HOSTILE.to_owned(),
                    min_ns: i64::MIN,
                    ..TraceDelay::default()
                };
                9
            ],
            connections: vec![connection; 9],
            ..TracePair::default()
        };
        let file = TraceFile {
            name: HOSTILE.to_owned(),
            ..TraceFile::default()
        };
        let trace = Trace {
            files: vec![file],
            pair: Some(pair),
            logs: vec![log; 50],
            ..Trace::default()
        };
        let mut out = String::new();
        section(&mut out, &trace);
        assert!(!out.contains("<script") && !out.contains('\u{202e}') && !out.contains("NaN"));
        assert!(out.len() < 8 << 20, "{}", out.len());
        let lines = lines(trace.pair.as_ref().unwrap());
        assert!(lines.len() < 10 && lines.iter().all(|l| !l.contains('\u{202e}')));
    }

    #[test]
    fn without_pair_and_log_there_is_no_section() {
        let mut out = String::new();
        section(&mut out, &Trace::default());
        assert!(out.is_empty());
    }
}
