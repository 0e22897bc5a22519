//! A copy on the page: how fast it was, over time, and where each side's time went.

use super::{left_out, phases, shown, shown_sentence, with_small_unit};
use crate::model::{COPIED, Copy, CopyConnection, CopyEnd, CopyQuic, Run, SampleRecord, Shares};
use crate::series::PhaseSeries;
use crate::svg::share_bar;
use crate::text::copy::{lines as copy_lines, parts};
use crate::text::{self, PARTS};

/// Connections that have a line of the table.
const CONNECTIONS_MAX: usize = 128;
/// So many are seen at once; more are one click away.
const OPEN_MAX: usize = 4;
/// A smaller share of a sender's time did not hold it.
const HELD_LEAST: f64 = 0.005;

/// Nothing where nothing was copied.
pub(super) fn section(out: &mut String, run: &Run, samples: &[SampleRecord]) {
    let Some(copy) = &run.copy else { return };
    figures(out, copy);
    let from = match copy.from.is_empty() {
        // What --null-source has made up.
        true => String::new(),
        false => format!("from {} ", shown(&copy.from.join(", "))),
    };
    put!(
        out,
        "<section>\n<h2>Copy <span>{from}to {}</span></h2>\n",
        shown(&copy.to)
    );
    for line in copy_lines(copy) {
        put!(out, "<p>{}</p>\n", shown_sentence(&line));
    }
    let series = PhaseSeries::counted(COPIED, samples);
    // A line of two points says no more than the figure above.
    if series.goodput.len() > 2 {
        out.push_str("<div class=\"panels\">\n<div>\n");
        phases::goodput_over_time(out, COPIED, 0, copy.achievable_bits_per_second, &series);
        if !series.shares.is_empty() {
            phases::shares(out, &held(copy).unwrap_or_default(), &series);
        }
        out.push_str("</div>\n<div>\n");
        phases::round_trip(out, &series);
        phases::windows(out, &series);
        out.push_str("</div>\n</div>\n");
    }
    connections(out, copy);
    over_quic(out, copy);
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

/// What held the senders: the mean of those that tell, as of a phase's streams.
fn held(copy: &Copy) -> Option<Shares> {
    let told = || copy.connections.iter().filter_map(|one| one.shares);
    let n = told().count();
    let mean = |of: fn(&Shares) -> f64| told().map(|shares| of(&shares)).sum::<f64>() / n as f64;
    (n > 0).then(|| Shares {
        application: mean(|s| s.application),
        receive_window: mean(|s| s.receive_window),
        send_buffer: mean(|s| s.send_buffer),
        network: mean(|s| s.network),
    })
}

/// The parts that held a sender, the largest first.
fn held_by(shares: &Shares) -> String {
    let mut parts: Vec<_> = PARTS.iter().zip(text::part_values(shares)).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts = parts.iter().filter(|(_, share)| *share >= HELD_LEAST);
    let parts = parts.map(|(part, share)| format!("{} {}", part.name, text::percent(*share)));
    parts.collect::<Vec<_>>().join(", ")
}

/// All connections over the copy, and each of them.
fn connections(out: &mut String, copy: &Copy) {
    if copy.connections.is_empty() {
        return;
    }
    out.push_str("<h4>Connections, as the sending side's kernel has them</h4>\n");
    let all = || copy.connections.iter();
    let sum = |of: fn(&CopyConnection) -> u64| all().map(of).fold(0, u64::saturating_add);
    let together = CopyConnection {
        acked_bits_per_second: sum(|one| one.acked_bits_per_second),
        retransmitted_segments: sum(|one| one.retransmitted_segments),
        rtt_ns: sum(|one| one.rtt_ns) / all().len() as u64,
        rtt_min_ns: all().map(|one| one.rtt_min_ns).min().unwrap_or(0),
        shares: held(copy),
        ..CopyConnection::default()
    };
    let count = copy.connections.len();
    let is_one = count == 1;
    if !is_one {
        table(out, &[("all", &together)]);
        let open = if count <= OPEN_MAX { " open" } else { "" };
        put!(
            out,
            "<details{open}><summary>each of the {count}</summary>\n"
        );
    }
    let each: Vec<_> = all().take(CONNECTIONS_MAX).collect();
    let names: Vec<_> = each.iter().map(|one| one.stream.to_string()).collect();
    let names = names.iter().map(String::as_str);
    table(out, &names.zip(each).collect::<Vec<_>>());
    left_out(out, count, CONNECTIONS_MAX, "connections");
    if !is_one {
        out.push_str("</details>\n");
    }
}

/// The same of connections over QUIC.
fn over_quic(out: &mut String, copy: &Copy) {
    if copy.quic.is_empty() {
        return;
    }
    out.push_str("<h4>Connections over QUIC, as the sending side counts them</h4>\n");
    let all = || copy.quic.iter();
    let count = copy.quic.len();
    if count > 1 {
        let sum = |of: fn(&CopyQuic) -> u64| all().map(of).fold(0, u64::saturating_add);
        let together = CopyQuic {
            sent_bits_per_second: sum(|one| one.sent_bits_per_second),
            packets_sent: sum(|one| one.packets_sent),
            packets_lost: sum(|one| one.packets_lost),
            congestion_window_bytes: sum(|one| one.congestion_window_bytes),
            rtt_ns: sum(|one| one.rtt_ns) / count as u64,
            rtt_min_ns: all().map(|one| one.rtt_min_ns).min().unwrap_or(0),
            ..CopyQuic::default()
        };
        quic_table(out, &[("all".to_owned(), &together)]);
        let open = if count <= OPEN_MAX { " open" } else { "" };
        put!(
            out,
            "<details{open}><summary>each of the {count}</summary>\n"
        );
    }
    let each = all().take(CONNECTIONS_MAX);
    let each: Vec<_> = each.map(|one| (one.stream.to_string(), one)).collect();
    quic_table(out, &each);
    left_out(out, count, CONNECTIONS_MAX, "connections");
    if count > 1 {
        out.push_str("</details>\n");
    }
    let cpu = copy.ends.iter().filter_map(|end| {
        let used = text::duration(end.quic_cpu_ns?);
        Some(format!("{used} at the {}", shown(&end.end)))
    });
    let cpu: Vec<_> = cpu.collect();
    if !cpu.is_empty() {
        put!(
            out,
            "<p class=\"note\">CPU time of the thread that moves packets: {}.</p>\n",
            cpu.join(", ")
        );
    }
}

fn quic_table(out: &mut String, rows: &[(String, &CopyQuic)]) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"list tight\">\n<thead><tr><th class=\"n\">stream</th>\
         <th class=\"n\">sent</th><th class=\"n\">round trip</th><th class=\"n\">shortest</th>\
         <th class=\"n\">window</th><th>packets lost</th></tr></thead>\n<tbody>\n",
    );
    for (name, one) in rows {
        let share = one.packets_lost as f64 / one.packets_sent.max(1) as f64;
        put!(
            out,
            "<tr><td class=\"n\">{name}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{} of {}, {}</td></tr>\n",
            text::rate(one.sent_bits_per_second),
            text::duration(one.rtt_ns),
            text::duration(one.rtt_min_ns),
            text::bytes(one.congestion_window_bytes),
            text::count(one.packets_lost),
            text::count(one.packets_sent),
            text::percent(share)
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
}

fn table(out: &mut String, rows: &[(&str, &CopyConnection)]) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"list tight\">\n<thead><tr><th class=\"n\">stream</th>\
         <th class=\"n\">rate</th><th class=\"n\">round trip</th><th class=\"n\">shortest</th>\
         <th class=\"n\">sent again</th><th>held by, of its time</th></tr></thead>\n<tbody>\n",
    );
    for (name, one) in rows {
        let held = one.shares.as_ref().map(held_by);
        let held = held.as_ref().unwrap_or(&one.held_by);
        put!(
            out,
            "<tr><td class=\"n\">{name}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
            text::rate(one.acked_bits_per_second),
            text::duration(one.rtt_ns),
            text::duration(one.rtt_min_ns),
            text::count(one.retransmitted_segments),
            shown_sentence(held)
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
}

/// Where the threads of a side that carried blocks spent their time.
fn time(out: &mut String, end: &CopyEnd) {
    let all = parts(end);
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
    use crate::model::CopyTime;

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

    #[test]
    fn connections_over_quic_have_a_table_and_their_thread_its_cpu_time() {
        let mut run = run(1_000_000);
        let copy = run.copy.as_mut().unwrap();
        copy.quic = [(0, 10), (1, 15)]
            .map(|(stream, packets_lost)| CopyQuic {
                stream,
                sent_bits_per_second: 40_000_000,
                packets_sent: 1_250,
                packets_lost,
                rtt_ns: 101_000_000,
                rtt_min_ns: 100_000_000,
                ..CopyQuic::default()
            })
            .into();
        copy.ends[0].quic_cpu_ns = Some(1_500_000_000);
        let page = crate::html::render(&run, &[], &[]);
        for cell in [
            "<td class=\"n\">all</td><td class=\"n\">80 Mb/s</td>",
            "<td>25 of 2,500, 1 %</td>",
            "<td>10 of 1,250, 0.8 %</td>",
            "1.5 s at the destination.",
        ] {
            assert!(page.contains(cell), "{cell} {page}");
        }
        let without = crate::html::render(&self::run(1), &[], &[]);
        assert!(!without.contains("over QUIC, as"), "{without}");
    }

    #[test]
    fn the_chart_says_what_the_table_says_of_what_held_the_senders() {
        let mut run = run(1_000_000);
        let mut samples = samples(51);
        let copy = run.copy.as_mut().unwrap();
        // Milliseconds of 5,000: busy, held by the receive window, by the send buffer. All starved, if what is not told
        // were nothing.
        for (stream, busy, rwnd, sndbuf) in [(0, 5_000, 0, 150), (1, 5_000, 0, 350)] {
            copy.connections.push(CopyConnection {
                stream: u64::from(stream),
                shares: Some(Shares {
                    application: 0.0,
                    receive_window: 0.0,
                    send_buffer: sndbuf as f64 / 5_000.0,
                    network: (busy - sndbuf) as f64 / 5_000.0,
                }),
                held_by: "network".to_owned(),
                ..CopyConnection::default()
            });
            samples.extend((0..=25).map(|n: u64| {
                let us = |name: &str, ms: u64| (name.to_owned(), ms * 1_000 * n / 25);
                let whole = |name: &str, value| (name.to_owned(), value);
                SampleRecord {
                    phase: COPIED.to_owned(),
                    end: "sender".to_owned(),
                    stream,
                    t_ns: n * 200_000_000,
                    tcp_info: [
                        us("busy_time_us", busy),
                        us("rwnd_limited_us", rwnd),
                        us("sndbuf_limited_us", sndbuf),
                        whole("snd_mss_bytes", 1_448),
                        whole("unacked_segments", 5),
                        whole("snd_cwnd_segments", 1_000),
                        whole("snd_wnd_bytes", 9_000_000),
                    ]
                    .into(),
                    ..SampleRecord::default()
                }
            }));
        }
        let series = PhaseSeries::counted(COPIED, &samples);
        for share in &series.shares {
            assert!((share[2] - 0.05).abs() < 1e-6, "{share:?}");
            assert!((share[3] - 0.95).abs() < 1e-6, "{share:?}");
        }
        let page = crate::html::render(&run, &samples, &[]);
        assert!(page.contains("</i>network 95 %</span>"), "{page}");
        assert!(page.contains("</i>send buffer 5 %</span>"), "{page}");
        let all = "<td>network 95\u{a0}%, send buffer 5\u{a0}%</td>";
        assert!(page.contains(all), "{page}");
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
