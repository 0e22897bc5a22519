//! Several runs as one table: which path, how fast, how near to what it could be, why.

use super::overlay;
use super::{ENTRIES_MAX, close_page, left_out, open_page, shown, shown_sentence, tone_class};
use crate::folder::LoadedRun;
use crate::model::{Phase, Run};
use crate::svg::{escape, share_bar};
use crate::text;

/// A page that compares runs: a row for every phase of every run, in the order given. Two explained
/// captures are overlaid instead.
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
        .flat_map(|r| r.run.phases.iter().map(|p| p.goodput_bits_per_second))
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

/// The fastest run, by its last phase.
fn headline(runs: &[LoadedRun]) -> String {
    let last = |r: &LoadedRun| r.run.phases.last().map_or(0, |p| p.goodput_bits_per_second);
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
        put!(
            out,
            "<tr>{name}<td colspan=\"6\" class=\"note\">nothing measured</td>{verdict}</tr>\n"
        );
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
    let none = || "–".to_owned();
    let share = text::achievable(run)
        .filter(|_| text::goodput(phase).is_some())
        .and_then(|a| text::ratio(rate, a));
    let rtt = if phase.rtt_idle_ns > 0 {
        text::duration(phase.rtt_idle_ns)
    } else {
        none()
    };
    let again = text::ratio(phase.segments_retransmitted, phase.segments_sent);
    let was = phase.name == "before" && run.phases.len() > 1;
    let class = if was { "was" } else { "goodput" };
    let length = text::ratio(rate, largest).unwrap_or(0.0);
    let bar = share_bar(
        &text::rate(rate),
        10,
        &[(class, length, text::rate(rate))],
        None,
    );
    format!(
        "<td data-label=\"phase\">{}</td><td class=\"n\" data-label=\"goodput\"><b>{}</b></td>\
         <td class=\"barcell\">{bar}</td>\
         <td class=\"n\" data-label=\"of achievable\">{}</td>\
         <td class=\"n\" data-label=\"idle RTT\">{rtt}</td>\
         <td class=\"n\" data-label=\"sent again\">{}</td>",
        shown(&phase.name),
        text::goodput(phase).map_or_else(none, text::rate),
        share.map_or_else(none, text::percent),
        again.map_or_else(none, text::percent),
    )
}

/// Rows of a table that a reader can still compare.
const RUNS_MAX: usize = 100;
