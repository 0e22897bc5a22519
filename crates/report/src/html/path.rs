//! The path as a picture: two hosts with what limits them, and the link with its numbers.

use super::{shown, with_small_unit};
use crate::model::{HostFacts, PathFacts, Run};
use crate::svg::escape;
use crate::text;

/// The section; nothing when neither hosts nor path are known.
pub(super) fn section(out: &mut String, run: &Run) {
    let host = |role: &str| run.hosts.iter().find(|h| h.role == role);
    let (near, far) = (host("near"), host("far"));
    if near.is_none() && far.is_none() && run.path.is_none() {
        return;
    }
    out.push_str("<section>\n<h2>The path");
    if let Some(path) = &run.path {
        let title = path
            .title
            .as_deref()
            .map(text::plain)
            .filter(|t| !t.is_empty());
        let source = text::plain(&path.source);
        let facts: Vec<String> = title
            .into_iter()
            .chain((!source.is_empty()).then_some(source))
            .collect();
        put!(out, " <span>{}</span>", escape(&facts.join(", ")));
    }
    out.push_str("</h2>\n<div class=\"path\">\n");
    let near_sends = run.phases.first().is_none_or(|p| p.direction != "down");
    let cause = run
        .verdict
        .as_ref()
        .and_then(|v| v.cause.as_deref())
        .unwrap_or_default();
    card(out, near, "near", near_sends, cause);
    let hosts_say_mtu = run
        .hosts
        .iter()
        .any(|h| h.nics.iter().any(|n| n.mtu_bytes > 0));
    link(out, run.path.as_ref(), near_sends, !hosts_say_mtu);
    card(out, far, "far", !near_sends, cause);
    out.push_str("</div>\n</section>\n");
}

/// One host. The setting that `cause` blames is marked.
fn card(out: &mut String, host: Option<&HostFacts>, role: &str, sends: bool, cause: &str) {
    let name = host.map(|h| shown(&h.name)).filter(|n| !n.is_empty());
    let does = if sends { "sends" } else { "receives" };
    match name {
        Some(name) => put!(
            out,
            "<div class=\"host\"><h3>{name}</h3><p>{role} host, {does}</p>\n<dl>"
        ),
        None => put!(
            out,
            "<div class=\"host\"><h3>{role} host</h3><p>{does}</p>\n<dl>"
        ),
    }
    if let Some(host) = host {
        let mut fact = |term: &str, value: Option<String>, blamed: bool| {
            if let Some(value) = value {
                let class = if blamed { " class=\"blamed\"" } else { "" };
                put!(out, "<div{class}><dt>{term}</dt><dd>{value}</dd></div>");
            }
        };
        let largest =
            |triple: Option<[u64; 3]>| triple.map(|t| format!("{} max", text::bytes(t[2])));
        fact(
            "send buffer",
            largest(host.tcp_wmem_bytes),
            sends && cause == "send_buffer",
        );
        fact(
            "receive buffer",
            largest(host.tcp_rmem_bytes),
            !sends && cause == "receive_window",
        );
        let mtu = host
            .nics
            .iter()
            .map(|n| n.mtu_bytes)
            .filter(|&mtu| mtu > 0)
            .min();
        fact(
            "MTU",
            mtu.map(|mtu| text::bytes_exact(u64::from(mtu))),
            cause == "mtu",
        );
        let algorithm = host
            .congestion_control
            .as_deref()
            .map(shown)
            .filter(|c| !c.is_empty());
        fact("congestion control", algorithm, false);
    }
    out.push_str("</dl></div>\n");
}

/// The pipe with an arrow each way, and the numbers that follow from it.
fn link(out: &mut String, path: Option<&PathFacts>, near_sends: bool, show_mtu: bool) {
    let default = PathFacts::default();
    let path = path.unwrap_or(&default);
    let way = |delay: Option<u64>, loss: f64| {
        let delay = delay.map(|ns| format!("{} one way", text::duration(ns)));
        let loss =
            (loss.is_finite() && loss > 0.0).then(|| format!("loss {}", text::percent(loss)));
        let no_loss = (delay.is_some() && loss.is_none()).then(|| "no loss".to_owned());
        delay
            .into_iter()
            .chain(loss)
            .chain(no_loss)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let forward = way(path.delay_forward_ns, path.loss_forward);
    let backward = way(path.delay_backward_ns, path.loss_backward);
    let rate = path
        .rate_bits_per_second
        .map_or_else(|| "rate unknown".to_owned(), text::rate);
    let rate_class = if path.rate_bits_per_second.is_some() {
        "rate"
    } else {
        "unknown"
    };
    put!(
        out,
        "<figure class=\"link\">\n<svg role=\"img\" aria-label=\"link of {rate}\" width=\"100%\" \
         height=\"112\">\n"
    );
    arrow(out, 20, &forward, true, near_sends);
    put!(
        out,
        "<rect class=\"pipe\" x=\"0\" y=\"36\" width=\"100%\" height=\"40\" rx=\"6\"/>\
         <text class=\"{rate_class}\" x=\"{}%\" y=\"62\" text-anchor=\"middle\">{rate}</text>\n",
        if path.queue_bytes.is_some() { 64 } else { 50 }
    );
    if let Some(queue) = path.queue_bytes {
        queue_bars(out, &text::bytes(queue));
    }
    arrow(out, 92, &backward, false, !near_sends);
    out.push_str("</svg>\n<figcaption><dl>");
    let mut fact = |term: &str, meaning: &str, value: Option<String>| {
        if let Some(value) = value {
            put!(
                out,
                "<div><dt title=\"{meaning}\">{term}</dt><dd>{}</dd></div>",
                with_small_unit(&value)
            );
        }
    };
    fact(
        "idle RTT",
        "round trip of the idle path, measured",
        path.rtt_idle_ns.map(text::duration),
    );
    fact(
        "BDP",
        "rate times idle round trip: bytes that must be in flight to fill the path",
        path.bdp_bytes.map(text::bytes),
    );
    fact(
        "achievable",
        "TCP payload that the rate carries after all headers, preamble and gap",
        path.achievable_bits_per_second.map(text::rate),
    );
    let mtu = path.mtu_bytes.filter(|_| show_mtu);
    fact(
        "MTU",
        "largest IP packet",
        mtu.map(|mtu| text::bytes_exact(u64::from(mtu))),
    );
    out.push_str("</dl></figcaption>\n</figure>\n");
}

/// An arrow across the whole width; `data` marks the way the payload takes.
fn arrow(out: &mut String, y: u32, label: &str, rightwards: bool, data: bool) {
    let class = if data { "way data" } else { "way" };
    let (tip, head) = if rightwards {
        ("100%", "-8")
    } else {
        ("0", "8")
    };
    let text_y = if rightwards { y - 8 } else { y + 18 };
    let what = if data { "data" } else { "ACKs" };
    let label = if label.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {label}")
    };
    put!(
        out,
        "<g class=\"{class}\"><line x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>\
         <svg x=\"{tip}\" y=\"{y}\" overflow=\"visible\">\
         <path d=\"M{head} -4.5L0 0L{head} 4.5\"/></svg>\
         <text x=\"50%\" y=\"{text_y}\" text-anchor=\"middle\">{}</text></g>\n",
        escape(&label)
    );
}

/// The bottleneck queue: packets waiting at the pipe's entrance.
fn queue_bars(out: &mut String, size: &str) {
    out.push_str("<g class=\"queue\">");
    for i in 0..4 {
        put!(
            out,
            "<rect x=\"{}\" y=\"46\" width=\"4\" height=\"20\" rx=\"1\"/>",
            12 + i * 7
        );
    }
    put!(out, "<text x=\"46\" y=\"60\">queue {size}</text></g>\n");
}
