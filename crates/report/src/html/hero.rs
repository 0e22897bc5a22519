//! The top of the page: what is the matter, and how much did the change give.

use super::{PHASES_MAX, shown, shown_sentence, table_row, tone_class, with_small_unit};
use crate::model::{Phase, Run};
use crate::svg::share_bar;
use crate::text::{self, PARTS};

/// What ran, the chip, the sentence.
pub(super) fn verdict(out: &mut String, run: &Run) {
    let status = text::status(run);
    put!(
        out,
        "<header>\n<p class=\"kicker\"><b>goodput {}</b>",
        shown(&run.verb)
    );
    for fact in [
        shown(&run.name),
        crate::svg::escape(&text::utc(&run.started_utc)),
    ] {
        if !fact.is_empty() {
            put!(out, "<span>{}</span>", fact);
        }
    }
    put!(
        out,
        "</p>\n<p class=\"chip {}\">{}</p>\n<h1>{}</h1>\n",
        tone_class(status.tone),
        crate::svg::escape(&status.label),
        shown_sentence(&text::sentence(run))
    );
    if let (Some(error), Some(_)) = (&run.error, &run.verdict) {
        put!(out, "<p class=\"error\">{}</p>\n", shown(error));
    }
    out.push_str("</header>\n");
}

/// Large numbers, their place under the achievable rate, then the table of details.
pub(super) fn numbers(out: &mut String, run: &Run) {
    let curves = run.sweep.is_some() || run.messages.is_some() || run.fabric.is_some();
    let curves = curves || run.rotate.is_some() || run.copy.is_some() || !run.gateways.is_empty();
    if curves || run.trace.is_some() {
        return;
    }
    let (before, after) = text::before_and_after(run);
    if text::measured(run).next().is_none() {
        out.push_str(
            "<section><p class=\"note\">No transfer was measured to its end.</p></section>\n",
        );
        return;
    }
    out.push_str("<section class=\"numbers\">\n<div class=\"figures\">\n");
    match (before, after) {
        (Some(before), Some(after)) => {
            figure(out, "before", before, "was");
            figure(out, "after", after, "now");
            gain(out, before, after);
        }
        (Some(only), None) | (None, Some(only)) => figure(out, "goodput", only, "now"),
        (None, None) => {}
    }
    out.push_str("</div>\n");
    bars(out, run);
    details(out, run);
    out.push_str("</section>\n");
}

fn figure(out: &mut String, label: &str, phase: &Phase, class: &str) {
    put!(
        out,
        "<div class=\"figure {class}\"><span>{label}</span><b>{}</b></div>\n",
        with_small_unit(&text::rate(phase.goodput_bits_per_second))
    );
}

fn gain(out: &mut String, before: &Phase, after: &Phase) {
    let gain = text::ratio(
        after.goodput_bits_per_second,
        before.goodput_bits_per_second,
    );
    if let Some(gain) = gain {
        put!(
            out,
            "<div class=\"figure gain\"><span>gain</span>\
             <b>{}<small>&nbsp;times</small></b></div>\n",
            text::factor(gain)
        );
    }
}

/// Each phase's goodput as a share of the achievable rate, its prediction as a mark.
fn bars(out: &mut String, run: &Run) {
    let achievable = text::achievable(run);
    let largest = run
        .phases
        .iter()
        .map(|p| p.goodput_bits_per_second)
        .max()
        .unwrap_or(0);
    let Some(full) =
        achievable.or_else(|| (largest > 0 && run.phases.len() > 1).then_some(largest))
    else {
        return;
    };
    out.push_str("<div class=\"bars\">\n");
    let mut predicted = false;
    for phase in text::measured(run).take(PHASES_MAX) {
        let share = text::ratio(phase.goodput_bits_per_second, full).unwrap_or(0.0);
        let rate = text::rate(phase.goodput_bits_per_second);
        let mark = phase.predicted_bits_per_second.map(|p| {
            predicted = true;
            (
                p as f64 / full as f64,
                format!("predicted {}", text::rate(p)),
            )
        });
        let was = phase.name == "before" && run.phases.len() > 1;
        let class = if was { "was" } else { "goodput" };
        let parts = [(
            class,
            share,
            format!("{}: {rate}", text::plain(&phase.name)),
        )];
        let bar = share_bar(&format!("{rate} of {}", text::rate(full)), 14, &parts, mark);
        let name = shown(&phase.name);
        put!(
            out,
            "<span>{name}</span>{bar}<span class=\"n\">{}</span>\n",
            text::percent(share)
        );
    }
    let what = if achievable.is_some() {
        "achievable payload rate"
    } else {
        "largest measured"
    };
    let mark = if predicted {
        "; the mark is the prediction made before the first byte"
    } else {
        ""
    };
    put!(
        out,
        "<p class=\"note\">Full width: {}, the {what}{mark}.</p>\n</div>\n",
        text::rate(full)
    );
}

fn details(out: &mut String, run: &Run) {
    let phases: Vec<&Phase> = text::measured(run).take(PHASES_MAX).collect();
    out.push_str("<div class=\"scroll\"><table class=\"details\">\n<thead><tr><td></td>");
    for phase in &phases {
        put!(out, "<th scope=\"col\">{}</th>", shown(&phase.name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let mut row = |heading: &str, cell: &dyn Fn(&Phase) -> Option<String>| {
        let cells: Vec<Option<String>> = phases.iter().map(|p| cell(p)).collect();
        table_row(out, heading, &cells);
    };
    row("Goodput after the ramp", &|p| {
        let ramp = (p.ramp_ns > 0).then(|| format!(" <i>after {}</i>", text::duration(p.ramp_ns)));
        let rate = text::rate(p.goodput_bits_per_second);
        Some(format!("<b>{rate}</b>{}", ramp.unwrap_or_default()))
    });
    row("Predicted beforehand", &|p| {
        let predicted = p.predicted_bits_per_second?;
        let off = text::deviation(p.goodput_bits_per_second, predicted);
        let off = off.map(|o| format!(" <i>measured {o}</i>"));
        let from = p.predicted_from.as_deref().filter(|f| !f.is_empty());
        let from = from
            .map(|f| format!("<br><i>{}</i>", shown(f)))
            .unwrap_or_default();
        Some(format!(
            "{}{}{from}",
            text::rate(predicted),
            off.unwrap_or_default()
        ))
    });
    row("Whole transfer, ramp included", &|p| {
        (p.goodput_whole_bits_per_second > 0).then(|| {
            let (bytes, time) = (text::bytes(p.bytes_received), text::duration(p.duration_ns));
            format!(
                "{} <i>{bytes} in {time}</i>",
                text::rate(p.goodput_whole_bits_per_second)
            )
        })
    });
    let achievable = text::achievable(run);
    row("Share of the achievable rate", &|p| {
        let achievable = achievable?;
        let share = text::ratio(p.goodput_bits_per_second, achievable)?;
        Some(format!(
            "{} <i>of {}</i>",
            text::percent(share),
            text::rate(achievable)
        ))
    });
    row("Idle round trip", &|p| {
        (p.rtt_idle_ns > 0).then(|| text::duration(p.rtt_idle_ns))
    });
    row("Round trip under load", &|p| {
        let l = p.latency.as_ref()?;
        Some(format!(
            "{} <i>{} at 99 %, a queue of {}</i>",
            text::duration(l.load_median_ns),
            text::duration(l.load_p99_ns),
            text::bytes(l.queue_bytes)
        ))
    });
    row("Segments sent again", &|p| {
        (p.segments_sent > 0).then(|| text::part_of(p.segments_retransmitted, p.segments_sent))
    });
    row("Where the sender's time went", &|p| time_spent(p));
    row("CPU, sender", &|p| cpu(p.cpu_sender_ns, p.duration_ns));
    row("CPU, receiver", &|p| cpu(p.cpu_receiver_ns, p.duration_ns));
    out.push_str("</tbody>\n</table></div>\n");
}

fn time_spent(phase: &Phase) -> Option<String> {
    let values = text::part_values(&phase.shares);
    if values.iter().all(|&v| v <= 0.0) {
        return None;
    }
    let named = || PARTS.iter().zip(values).filter(|&(_, v)| v >= 0.000_5);
    let words: Vec<String> = named()
        .map(|(part, v)| format!("{} {}", part.name, text::percent(v)))
        .collect();
    let parts: Vec<(&str, f64, String)> = named()
        .zip(&words)
        .map(|((part, v), word)| (part.class, v, word.clone()))
        .collect();
    let legend: Vec<String> = named()
        .zip(&words)
        .map(|((part, _), word)| {
            format!(
                "<span class=\"key\"><i class=\"{}\"></i>{word}</span>",
                part.class
            )
        })
        .collect();
    let bar = share_bar(&words.join(", "), 10, &parts, None);
    Some(format!(
        "{bar}<span class=\"keys\">{}</span>",
        legend.join(" ")
    ))
}

fn cpu(cpu_ns: u64, duration_ns: u64) -> Option<String> {
    let share = text::ratio(cpu_ns, duration_ns)?;
    (cpu_ns > 0).then(|| {
        format!(
            "{} <i>{} of one CPU</i>",
            text::duration(cpu_ns),
            text::percent(share)
        )
    })
}
