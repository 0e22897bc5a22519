//! Several runs as one table: which path, how fast, how near to what it could be, why.

use run::LoadedRun;

use super::overlay::{self, CLASSES, main_connection};
use super::trace::again;
use super::{ENTRIES_MAX, close_page, left_out, open_page, shown, shown_sentence, tone_class};
use crate::model::{Phase, Run, TraceConnection};
use crate::series::PhaseSeries;
use crate::svg::{Axis, Chart, escape, share_bar};
use crate::text;

/// A page that compares runs: a row for every phase of every run, in the order given, and of an explained
/// run one for the connection that carried most. Where all are explained and their lines can be told apart,
/// they are overlaid instead.
pub fn render_comparison(runs: &[LoadedRun]) -> String {
    if let Some(page) = overlay::render(runs) {
        return page;
    }
    let mut out = open_page("goodput: runs compared");
    put!(
        out,
        "<header>\n<p class=\"kicker\"><b>goodput report</b><span>{}</span></p>\n\
         <h1>{}</h1>\n</header>\n",
        text::plural(runs.len() as u64, "run"),
        escape(&headline(runs))
    );
    let shown_runs = || runs.iter().take(RUNS_MAX);
    let largest = shown_runs()
        .flat_map(|r| {
            let phases = r.run.phases.iter().map(|p| p.goodput_bits_per_second);
            let explained = main_connection(&r.run).map(|(_, c)| c.goodput_bits_per_second);
            phases.chain(explained)
        })
        .max()
        .unwrap_or(0);
    let said = wishes(runs);
    let drawn = over_time(&mut out, runs, &said);
    out.push_str(
        "<section>\n<table class=\"list compare\">\n<thead><tr><th>run</th><th>phase</th>\
         <th class=\"n\">goodput</th><th></th><th class=\"n\">of achievable</th>\
         <th class=\"n\">idle RTT</th><th class=\"n\">sent again</th><th>verdict</th>\
         </tr></thead>\n",
    );
    for (i, (loaded, said)) in shown_runs().zip(&said).enumerate() {
        let class = CLASSES.get(i).filter(|_| drawn).copied();
        rows(&mut out, loaded, (class, said), largest);
    }
    out.push_str("</table>\n");
    left_out(&mut out, runs.len(), RUNS_MAX, "runs");
    out.push_str("</section>\n");
    close_page(&mut out);
    out
}

/// The fastest run, by its last phase or its connection that carried most.
fn headline(runs: &[LoadedRun]) -> String {
    let last = |r: &LoadedRun| match r.run.phases.last() {
        Some(phase) => phase.goodput_bits_per_second,
        None => main_connection(&r.run).map_or(0, |(_, c)| c.goodput_bits_per_second),
    };
    match runs.iter().max_by_key(|r| last(r)) {
        Some(best) if last(best) > 0 => {
            format!(
                "Fastest: {} with {}",
                text::plain(&best.run.name),
                text::rate(last(best))
            )
        }
        Some(_) => "No run here measured a transfer.".to_owned(),
        None => "There are no runs to compare.".to_owned(),
    }
}

/// What each command said that not all of them did, in the order typed; without options of output.
fn wishes(runs: &[LoadedRun]) -> Vec<Vec<String>> {
    let mut each: Vec<Vec<String>> = runs.iter().map(|r| words(&r.run)).collect();
    let first = each.first().cloned().unwrap_or_default();
    let by_all = |word: &String| each.iter().all(|words| words.contains(word));
    let common: Vec<String> = first.into_iter().filter(by_all).collect();
    for words in &mut each {
        words.retain(|word| !common.contains(word));
    }
    each
}

/// A command line's options with their values, and what stands alone, behind the verb.
fn words(run: &Run) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut takes_value = false;
    let verb = run.command_line.iter().position(|word| *word == run.verb);
    for word in run.command_line.iter().skip(verb.map_or(2, |at| at + 1)) {
        let option = word.starts_with('-');
        match words.last_mut() {
            Some(last) if takes_value && !option => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.clone()),
        }
        takes_value = option && !word.contains('=') && !ALONE.contains(&word.as_str());
    }
    let of_output = |w: &str| OUTPUT.iter().any(|o| w.split([' ', '=']).next() == Some(o));
    words.retain(|word| !of_output(word));
    words
}

/// Goodput of up to six transfers in one picture, each the last phase of its run; true if there is one.
fn over_time(out: &mut String, runs: &[LoadedRun], said: &[Vec<String>]) -> bool {
    if !(2..=CLASSES.len()).contains(&runs.len()) {
        return false;
    }
    let lines: Vec<Vec<(f64, f64)>> = runs.iter().map(course).collect();
    let points = || lines.iter().flatten();
    let (end_s, top) = points().fold((0.0_f64, 0.0_f64), |(x, y), p| (x.max(p.0), y.max(p.1)));
    if lines.iter().any(|line| line.len() < 2) || top <= 0.0 {
        return false;
    }
    let y = Axis::rate(top);
    put!(
        out,
        "<section>\n<div class=\"panels\"><div><h4>Goodput <span>{}, over two round trips or more</span></h4>\n\
         <div class=\"keys\">",
        y.unit
    );
    for ((loaded, class), said) in runs.iter().zip(CLASSES).zip(said) {
        let name = match said.is_empty() {
            true => loaded.run.name.clone(),
            false => said.join(" "),
        };
        put!(
            out,
            "<span class=\"key\"><i class=\"line {class}\"></i>{}</span>",
            shown(&name)
        );
    }
    out.push_str("</div>\n<div class=\"plot\">\n");
    let mut chart = Chart::new("Goodput over time", 220, Axis::time(end_s), y);
    for ((loaded, class), line) in runs.iter().zip(CLASSES).zip(&lines) {
        chart = chart.line(class, &text::plain(&loaded.run.name), line);
    }
    put!(out, "{}</div></div></div>\n</section>\n", chart.render());
    true
}

/// Seconds and bits a second of a run's last phase: over two round trips at least, since within one what a
/// window allows comes in lumps.
fn course(loaded: &LoadedRun) -> Vec<(f64, f64)> {
    let Some(phase) = loaded.run.phases.last() else {
        return Vec::new();
    };
    let series = PhaseSeries::new(&phase.name, &loaded.samples);
    if series.bin_ns <= 0.0 {
        return Vec::new();
    }
    let wide = phase
        .rtt_idle_ns
        .saturating_mul(2)
        .max(series.end_ns / POINTS);
    // Bins of one point, in whole numbers.
    let bins = series.goodput.len();
    let bin_ns = (series.end_ns / bins.max(1) as u64).max(1);
    let each = usize::try_from(wide.div_ceil(bin_ns))
        .unwrap_or(bins)
        .max(1);
    let points = series.goodput.chunks(each).enumerate().map(|(i, rates)| {
        let middle = (i * each) as f64 + rates.len() as f64 / 2.0;
        (
            middle * series.bin_ns / 1e9,
            rates.iter().sum::<f64>() / rates.len() as f64,
        )
    });
    points.collect()
}

fn rows(
    out: &mut String,
    loaded: &LoadedRun,
    (class, said): (Option<&str>, &[String]),
    largest: u64,
) {
    let run = &loaded.run;
    let status = text::status(run);
    let count = run.phases.len().clamp(1, ENTRIES_MAX);
    let key = class.map_or_else(String::new, |class| {
        format!("<span class=\"key\"><i class=\"line {class}\"></i></span> ")
    });
    let said = said.iter().take(ENTRIES_MAX);
    let said: String = said
        .map(|word| format!("<span class=\"said\">{}</span> ", shown(word)))
        .collect();
    let name = format!(
        "<td rowspan=\"{count}\" class=\"name\">{key}<b>{}</b> <i>{}</i><br>{said}<br><i>{}</i></td>",
        shown(&run.name),
        shown(&run.verb),
        escape(&text::utc(&run.started_utc))
    );
    let verdict = format!(
        "<td rowspan=\"{count}\" class=\"why\"><span class=\"chip {}\">{}</span><br>{}</td>",
        tone_class(status.tone),
        escape(&status.label),
        shown_sentence(&text::sentence(run))
    );
    out.push_str("<tbody>\n");
    if run.phases.is_empty() {
        let cells = match main_connection(run) {
            Some((_, connection)) => cells_of(connection, largest),
            None => "<td colspan=\"6\" class=\"note\">nothing measured</td>".to_owned(),
        };
        put!(out, "<tr>{name}{cells}{verdict}</tr>\n");
    }
    for (i, phase) in run.phases.iter().take(ENTRIES_MAX).enumerate() {
        let (name, verdict) = if i == 0 {
            (name.as_str(), verdict.as_str())
        } else {
            ("", "")
        };
        put!(
            out,
            "<tr>{name}{}{verdict}</tr>\n",
            cells(run, phase, largest)
        );
    }
    out.push_str("</tbody>\n");
}

fn cells(run: &Run, phase: &Phase, largest: u64) -> String {
    let rate = phase.goodput_bits_per_second;
    let measured = text::goodput(phase).is_some();
    let was = phase.name == "before" && run.phases.len() > 1;
    let row = Row {
        name: &phase.name,
        class: if was { "was" } else { "goodput" },
        rate,
        is_known: measured,
        of_achievable: text::achievable(run)
            .filter(|_| measured)
            .and_then(|a| text::ratio(rate, a)),
        rtt_ns: (phase.rtt_idle_ns > 0).then_some(phase.rtt_idle_ns),
        again: text::ratio(phase.segments_retransmitted, phase.segments_sent),
    };
    row.cells(largest)
}

/// An explained connection has no phase: its ends say which it is.
fn cells_of(connection: &TraceConnection, largest: u64) -> String {
    let rate = connection.goodput_bits_per_second;
    let row = Row {
        name: &format!("{} → {}", connection.sender, connection.receiver),
        class: "goodput",
        rate,
        is_known: rate > 0,
        of_achievable: None,
        rtt_ns: connection.rtt_min_ns,
        again: text::ratio(again(connection), connection.data_packets),
    };
    row.cells(largest)
}

/// What a row says of a phase or a connection.
struct Row<'a> {
    name: &'a str,
    class: &'a str,
    rate: u64,
    is_known: bool,
    of_achievable: Option<f64>,
    rtt_ns: Option<u64>,
    again: Option<f64>,
}

impl Row<'_> {
    fn cells(&self, largest: u64) -> String {
        let none = || "–".to_owned();
        let rate = text::rate(self.rate);
        let length = text::ratio(self.rate, largest).unwrap_or(0.0);
        let bar = share_bar(&rate, 10, &[(self.class, length, rate.clone())], None);
        let goodput = self.is_known.then_some(rate);
        format!(
            "<td data-label=\"phase\">{}</td><td class=\"n\" data-label=\"goodput\"><b>{}</b></td>\
             <td class=\"barcell\">{bar}</td>\
             <td class=\"n\" data-label=\"of achievable\">{}</td>\
             <td class=\"n\" data-label=\"idle RTT\">{}</td>\
             <td class=\"n\" data-label=\"sent again\">{}</td>",
            shown(self.name),
            goodput.unwrap_or_else(none),
            self.of_achievable.map_or_else(none, text::percent),
            self.rtt_ns.map_or_else(none, text::duration),
            self.again.map_or_else(none, text::percent),
        )
    }
}

/// Options that say where a run goes, not what it does.
const OUTPUT: [&str; 5] = ["--runs", "--json", "--format", "-v", "-vv"];

/// Options of `measure` and `sim` without a value, before which or behind which the target may stand.
const ALONE: [&str; 8] = [
    "--json",
    "-v",
    "-vv",
    "--fill",
    "--balance",
    "--explain",
    "--latency",
    "--zero-copy",
];

/// Points of a line in the picture, about.
const POINTS: u64 = 150;

/// Rows of a table that a reader can still compare.
const RUNS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SampleRecord, Trace};

    #[test]
    fn explained_runs_beside_others_have_a_row_with_their_figures() {
        let explained = LoadedRun {
            run: Run {
                trace: Some(Trace {
                    connections: vec![TraceConnection {
                        sender: "192.0.2.1:5000".to_owned(),
                        receiver: "192.0.2.2:80".to_owned(),
                        goodput_bits_per_second: 40_000_000,
                        rtt_min_ns: Some(20_000_000),
                        data_packets: 100,
                        ..TraceConnection::default()
                    }],
                    ..Trace::default()
                }),
                ..Run::default()
            },
            ..LoadedRun::default()
        };
        let page = render_comparison(&[explained.clone(), LoadedRun::default()]);
        assert!(page.contains("192.0.2.1:5000 → 192.0.2.2:80"), "{page}");
        assert!(page.contains("with 40 Mb/s") && page.contains(">20 ms</td>"));
        assert_eq!(page.matches("nothing measured").count(), 1);
        // More than can be overlaid.
        let page = render_comparison(&vec![explained; 7]);
        assert_eq!(page.matches("<b>40 Mb/s</b>").count(), 7);
        assert!(!page.contains("nothing measured"));
    }

    /// A run of 10 s at `rate`, told by the receiver's counts each 100 ms.
    fn run(command: &str, rate: u64) -> LoadedRun {
        let sample = |n: u64| SampleRecord {
            phase: "measured".to_owned(),
            end: "receiver".to_owned(),
            t_ns: n * 100_000_000,
            app_bytes: rate / 80 * n,
            ..SampleRecord::default()
        };
        let phase = Phase {
            name: "measured".to_owned(),
            goodput_bits_per_second: rate,
            rtt_idle_ns: 300_000_000,
            ..Phase::default()
        };
        LoadedRun {
            run: Run {
                name: "path".to_owned(),
                verb: "measure".to_owned(),
                command_line: command.split(' ').map(str::to_owned).collect(),
                phases: vec![phase],
                ..Run::default()
            },
            samples: (0..=100).map(sample).collect(),
            ..LoadedRun::default()
        }
    }

    #[test]
    fn runs_say_what_was_asked_of_them_and_not_of_the_others() {
        let one = "goodput measure lab:x --streams 1 --time 10s --runs /a";
        let four = "goodput measure lab:x --fill --streams=4 --time 10s --runs /b";
        let page = render_comparison(&[run(one, 8_000_000), run(four, 80_000_000)]);
        assert!(page.contains("said\">--streams 1</span>"), "{page}");
        assert!(page.contains("</i>--fill --streams=4</span>"), "{page}");
        assert!(
            page.contains(">--fill</span> <span class=\"said\">--streams=4<"),
            "{page}"
        );
        assert!(!page.contains("10s") && !page.contains("--runs"), "{page}");
        let flags = [
            run("goodput -v measure --json lab:a --fill", 1),
            run("goodput measure --fill lab:b -v", 1),
        ];
        let page = render_comparison(&flags);
        assert!(page.contains(">lab:a</span>") && page.contains(">lab:b</span>"));
        assert!(
            !page.contains("--fill") && !page.contains("--json"),
            "{page}"
        );
        let hostile = run("goodput measure <b>x</b>", 8_000_000);
        assert!(!render_comparison(&[hostile, run(four, 1)]).contains("<b>x"));
    }

    #[test]
    fn two_to_six_transfers_are_drawn_over_time_with_their_keys() {
        let course = course(&run("goodput measure", 80_000_000));
        assert!(course.len() >= 10, "{course:?}");
        let even = |p: &(f64, f64)| (p.1 / 80e6 - 1.0).abs() < 0.001;
        assert!(course.iter().all(even), "{course:?}");
        let pages = |n: usize| render_comparison(&vec![run("goodput measure", 80_000_000); n]);
        // In the picture's keys and in the table.
        assert_eq!(pages(6).matches("<i class=\"line of-").count(), 12);
        assert!(pages(6).contains("Goodput over time"));
        assert!(!pages(7).contains("Goodput over time"));
        // Without samples there is no line, and a lone key would say nothing.
        let bare = LoadedRun {
            samples: Vec::new(),
            ..run("goodput measure", 1)
        };
        let page = render_comparison(&[bare, run("goodput measure", 1)]);
        assert!(!page.contains("class=\"key\""), "{page}");
    }
}
