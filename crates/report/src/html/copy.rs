//! A copy on the page: how fast it was, over time, and where each side's time went.

use super::{left_out, phases, shown, shown_sentence, with_small_unit};
use crate::model::{Copy, CopyEnd, Run, SampleRecord, Shares};
use crate::series::PhaseSeries;
use crate::svg::share_bar;
use crate::terminal::copy::{lines as copy_lines, parts};
use crate::text;

/// The phase of a copy's samples.
pub const COPIED: &str = "copied";
/// Connections that have a line of the table.
const CONNECTIONS_MAX: usize = 128;

/// Nothing where nothing was copied.
pub(super) fn section(out: &mut String, run: &Run, samples: &[SampleRecord]) {
    let Some(copy) = &run.copy else { return };
    figures(out, copy);
    put!(
        out,
        "<section>\n<h2>Copy <span>from {} to {}</span></h2>\n",
        shown(&copy.from.join(", ")),
        shown(&copy.to)
    );
    for line in copy_lines(copy) {
        put!(out, "<p>{}</p>\n", shown_sentence(&line));
    }
    let series = PhaseSeries::new(COPIED, samples);
    // A line of two points says no more than the figure above.
    if series.goodput.len() > 2 {
        out.push_str("<div class=\"panels\">\n<div>\n");
        phases::goodput_over_time(out, COPIED, 0, copy.achievable_bits_per_second, &series);
        if !series.shares.is_empty() {
            phases::shares(out, &Shares::default(), &series);
        }
        out.push_str("</div>\n<div>\n");
        phases::round_trip(out, &series);
        phases::windows(out, &series);
        out.push_str("</div>\n</div>\n");
    }
    connections(out, copy);
    for end in &copy.ends {
        time(out, end);
    }
    for note in copy.chosen.iter().chain(&copy.notes) {
        put!(out, "<p class=\"note\">{}</p>\n", shown(note));
    }
    if copy.notes_more > 0 {
        put!(
            out,
            "<p class=\"note\">and {} more like these</p>\n",
            copy.notes_more
        );
    }
    out.push_str("</section>\n");
}

fn figures(out: &mut String, copy: &Copy) {
    if copy.received_bytes == 0 {
        return;
    }
    out.push_str("<section class=\"numbers\">\n<div class=\"figures\">\n");
    let mut figure = |label: &str, rate: u64, class: &str| {
        put!(
            out,
            "<div class=\"figure {class}\"><span>{label}</span><b>{}</b></div>\n",
            with_small_unit(&text::rate(rate))
        );
    };
    figure("from first to last", copy.goodput_bits_per_second, "now");
    if let Some(steady) = copy.steady_bits_per_second {
        figure("without beginning and end", steady, "was");
    }
    out.push_str("</div>\n</section>\n");
}

/// Each connection over the copy.
fn connections(out: &mut String, copy: &Copy) {
    if copy.connections.is_empty() {
        return;
    }
    out.push_str(
        "<h4>Connections, as the sending side's kernel has them</h4>\n\
         <div class=\"scroll\"><table class=\"list\">\n<thead><tr><th class=\"n\">stream</th>\
         <th class=\"n\">rate</th><th class=\"n\">round trip</th><th class=\"n\">shortest</th>\
         <th class=\"n\">sent again</th><th>most of the time held by</th></tr></thead>\n<tbody>\n",
    );
    for one in copy.connections.iter().take(CONNECTIONS_MAX) {
        put!(
            out,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
            one.stream,
            text::rate(one.acked_bits_per_second),
            text::duration(one.rtt_ns),
            text::duration(one.rtt_min_ns),
            text::count(one.retransmitted_segments),
            shown(&one.held_by)
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
    left_out(out, copy.connections.len(), CONNECTIONS_MAX, "connections");
}

/// Where the threads of a side that carried blocks spent their time.
fn time(out: &mut String, end: &CopyEnd) {
    let all = parts(&end.time);
    if all.iter().all(|(_, _, share)| *share <= 0.0) {
        return;
    }
    put!(
        out,
        "<h4>Time of the {}'s threads</h4>\n<div class=\"keys\">",
        shown(&end.end)
    );
    for (class, word, share) in &all {
        put!(
            out,
            "<span class=\"key\"><i class=\"{class}\"></i>{word} {}</span>",
            text::percent_of_time(*share)
        );
    }
    out.push_str("</div>\n");
    let bars: Vec<(&str, f64, String)> = all
        .iter()
        .map(|(class, word, share)| {
            let tip = format!("{word}: {}", text::percent_of_time(*share));
            (*class, *share, tip)
        })
        .collect();
    out.push_str(&share_bar("where the time went", 14, &bars, None));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CopyConnection, CopyTime};

    fn run(received: u64) -> Run {
        Run {
            copy: Some(Copy {
                received_bytes: received,
                goodput_bits_per_second: 8 * received,
                achievable_bits_per_second: Some(9_000_000),
                ends: vec![CopyEnd {
                    end: "destination".to_owned(),
                    time: CopyTime {
                        disk: 0.75,
                        link: 0.25,
                        ..CopyTime::default()
                    },
                    ..CopyEnd::default()
                }],
                ..Copy::default()
            }),
            ..Run::default()
        }
    }

    #[test]
    fn each_connection_has_its_line_and_its_round_trip() {
        let mut run = run(1_000_000);
        let copy = run.copy.as_mut().unwrap();
        copy.connections = vec![CopyConnection {
            stream: 3,
            acked_bits_per_second: 7_000_000,
            rtt_ns: 101_000_000,
            held_by: "<b>network".to_owned(),
            ..CopyConnection::default()
        }];
        let mut samples = samples(11);
        samples.extend((0..11).map(|n| SampleRecord {
            phase: COPIED.to_owned(),
            end: "sender".to_owned(),
            stream: 3,
            t_ns: n * 100_000_000,
            tcp_info: [("rtt_us".to_owned(), 101_000)].into(),
            ..SampleRecord::default()
        }));
        let page = crate::html::render(&run, &samples, &[]);
        assert!(page.contains("round-trip time of each stream"), "{page}");
        assert!(page.contains("<td class=\"n\">7 Mb/s</td>"), "{page}");
        assert!(page.contains("&lt;b&gt;network"), "{page}");
    }

    fn samples(count: u64) -> Vec<SampleRecord> {
        let one = |n: u64| SampleRecord {
            phase: COPIED.to_owned(),
            end: "receiver".to_owned(),
            t_ns: n * 100_000_000,
            app_bytes: n * 100_000,
            ..SampleRecord::default()
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn a_copy_has_its_rate_over_time_and_both_sides_time() {
        let page = crate::html::render(&run(1_000_000), &samples(11), &[]);
        assert!(page.contains("goodput of phase copied over time"), "{page}");
        assert!(page.contains("achievable 9 Mb/s"), "{page}");
        assert!(page.contains("files 75 %"), "{page}");
        assert!(!page.contains("No transfer was measured"), "{page}");
        let short = crate::html::render(&run(1_000_000), &samples(2), &[]);
        assert!(!short.contains("over time"), "{short}");
    }

    #[test]
    fn where_nothing_was_sent_there_is_no_rate() {
        let page = crate::html::render(&run(0), &[], &[]);
        assert!(!page.contains("class=\"figure"), "{page}");
    }
}
