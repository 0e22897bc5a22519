//! Several runs as one table: which path, how fast, how near to what it could be, why.

use super::overlay::{self, main_connection};
use super::trace::again;
use super::{ENTRIES_MAX, close_page, left_out, open_page, shown, shown_sentence, tone_class};
use crate::folder::LoadedRun;
use crate::model::{Phase, Run, TraceConnection};
use crate::svg::{escape, share_bar};
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
    out.push_str(
        "<section>\n<table class=\"list compare\">\n<thead><tr><th>run</th><th>phase</th>\
         <th class=\"n\">goodput</th><th></th><th class=\"n\">of achievable</th>\
         <th class=\"n\">idle RTT</th><th class=\"n\">sent again</th><th>verdict</th>\
         </tr></thead>\n",
    );
    for loaded in shown_runs() {
        rows(&mut out, loaded, largest);
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

fn rows(out: &mut String, loaded: &LoadedRun, largest: u64) {
    let run = &loaded.run;
    let status = text::status(run);
    let count = run.phases.len().clamp(1, ENTRIES_MAX);
    let name = format!(
        "<td rowspan=\"{count}\" class=\"name\"><b>{}</b> <i>{}</i><br><i>{}</i></td>",
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

/// Rows of a table that a reader can still compare.
const RUNS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Trace;

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
}
