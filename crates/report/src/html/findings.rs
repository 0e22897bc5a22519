//! What was found with its evidence, and what to change, ready to copy.

use super::{ENTRIES_MAX, left_out, shown, shown_sentence};
use crate::model::{FindingRecord, RemedyRecord, Run};
use crate::text;

/// Every remedy once, in the order of the findings.
pub(super) fn remedies(out: &mut String, run: &Run, findings: &[FindingRecord]) {
    let mut seen: Vec<&RemedyRecord> = Vec::new();
    for finding in findings.iter().take(ENTRIES_MAX) {
        if let Some(remedy) = finding.remedy.as_ref().filter(|r| !seen.contains(r)) {
            seen.push(remedy);
        }
    }
    if seen.is_empty() {
        return;
    }
    put!(
        out,
        "<section>\n<h2>What to change</h2>\n<div class=\"remedies\">\n"
    );
    for remedy in seen {
        card(out, run, remedy);
    }
    out.push_str("</div>\n</section>\n");
}

fn card(out: &mut String, run: &Run, remedy: &RemedyRecord) {
    put!(
        out,
        "<article class=\"remedy\">\n<h3>{}</h3>\n",
        shown_sentence(&remedy.summary)
    );
    if !remedy.sysctl.is_empty() {
        put!(
            out,
            "<p>{}in <code>/etc/sysctl.d/90-goodput.conf</code></p>\n",
            place(run, &remedy.host)
        );
        block(out, &remedy.sysctl);
    }
    if !remedy.flags.is_empty() {
        let lead = if remedy.sysctl.is_empty() {
            "With"
        } else {
            "Or without privileges, with"
        };
        let these = if remedy.flags.len() == 1 {
            ""
        } else {
            " one of"
        };
        put!(out, "<p>{lead}{these}</p>\n");
        block(out, &remedy.flags);
    }
    out.push_str("<dl class=\"facts\">");
    if let Some(predicted) = remedy.predicted_bits_per_second {
        put!(
            out,
            "<div><dt>predicted</dt><dd><b>{}</b>",
            text::rate(predicted)
        );
        if let Some(from) = remedy.predicted_from.as_deref().filter(|f| !f.is_empty()) {
            put!(out, " <i>{}</i>", shown(from));
        }
        out.push_str("</dd></div>");
        if let (_, Some(after)) = text::before_and_after(run) {
            let rate = after.goodput_bits_per_second;
            put!(out, "<div><dt>measured</dt><dd><b>{}</b>", text::rate(rate));
            if let Some(off) = text::deviation(rate, predicted) {
                put!(out, " <i>{off}</i>");
            }
            out.push_str("</dd></div>");
        }
    }
    if !remedy.cost.is_empty() {
        put!(
            out,
            "<div><dt>cost</dt><dd>{}</dd></div>",
            shown_sentence(&remedy.cost)
        );
    }
    out.push_str("</dl>\n</article>\n");
}

/// `On the far host (name), `.
fn place(run: &Run, role: &str) -> String {
    let named = run
        .hosts
        .iter()
        .find(|h| h.role == role && !h.name.is_empty());
    match (role, named) {
        ("", _) => "Lines to put ".to_owned(),
        ("both", _) => "On both hosts, ".to_owned(),
        ("network", _) => "On the sending host, ".to_owned(),
        (_, Some(host)) => format!("On the {} host ({}), ", shown(role), shown(&host.name)),
        _ => format!("On the {} host, ", shown(role)),
    }
}

fn block(out: &mut String, lines: &[String]) {
    out.push_str("<pre class=\"copy\" title=\"one click selects all\">");
    for line in lines.iter().take(ENTRIES_MAX) {
        put!(out, "{}\n", shown(line));
    }
    out.push_str("</pre>\n");
}

/// All findings with their evidence.
pub(super) fn section(out: &mut String, run: &Run, findings: &[FindingRecord]) {
    if findings.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Findings</h2>\n<div class=\"findings\">\n");
    for finding in findings.iter().take(ENTRIES_MAX) {
        put!(
            out,
            "<article class=\"finding\">\n<h3>{}</h3>\n<p>",
            shown_sentence(&finding.title)
        );
        if run.phases.len() > 1 && !finding.phase.is_empty() {
            put!(out, "{}, ", shown(&finding.phase));
        }
        if finding.share > 0.0 {
            put!(out, "{} of the time, ", text::percent(finding.share));
        }
        put!(
            out,
            "confidence {}</p>\n<ul>\n",
            text::percent(finding.confidence)
        );
        for line in finding.evidence.iter().take(ENTRIES_MAX) {
            put!(out, "<li>{}</li>\n", shown_sentence(line));
        }
        out.push_str("</ul>\n");
        left_out(out, finding.evidence.len(), ENTRIES_MAX, "lines");
        out.push_str("</article>\n");
    }
    out.push_str("</div>\n");
    left_out(out, findings.len(), ENTRIES_MAX, "findings");
    out.push_str("</section>\n");
}
