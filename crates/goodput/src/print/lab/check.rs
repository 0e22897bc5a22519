//! The findings of `goodput lab check` as text.

use serde_json::Value;
use units::{Bytes, Duration, Rate};

use super::grouped;
use crate::print;

/// The check as text.
pub(crate) fn text(found: &Value, width: usize) -> String {
    let mut out = Lines {
        text: print::wrapped(word(&found["path"]["title"]), 2, width),
        width,
    };
    if found["clock"] == "virtual" {
        ports(&mut out, found);
        return out.text;
    }
    traffic(&mut out, found);
    accounts(&mut out, found);
    list(&found["queues"]).for_each(|queue| one_queue(&mut out, queue));
    rule(&mut out, &found["rule"]);
    one_way(&mut out, &found["one_way"]);
    accuracy(&mut out, &found["certificate"]);
    if found["captures_dropped"].as_u64().unwrap_or(0) > 0 {
        out.line(&format!(
            "The captures dropped {} frames themselves: use a lower --rate",
            number(&found["captures_dropped"])
        ));
    }
    out.text
}

/// The text so far, and how wide it may be.
struct Lines {
    text: String,
    width: usize,
}

impl Lines {
    /// A label in its column and what it says.
    fn fact(&mut self, label: &str, words: &str) {
        let label = format!("  {label:<9} ");
        self.text += &print::labelled(&label, words, self.width);
    }

    /// A line without a label.
    fn line(&mut self, words: &str) {
        self.text += &print::wrapped(&format!("  {words}"), LABEL, self.width);
    }
}

/// Columns of a label and the blanks around it.
const LABEL: usize = 12;

/// What each port carried in virtual time.
fn ports(out: &mut Lines, found: &Value) {
    let rate = |v: &Value| Rate::from_bits_per_second(v.as_u64().unwrap_or(0));
    for port in list(&found["ports"]) {
        out.line(&format!(
            "{}: {} of {} frames received, {} on the wire; at most {} in flight",
            word(&port["name"]),
            number(&port["frames_received"]),
            number(&port["frames_sent"]),
            rate(&port["received_bits_per_second"]),
            Bytes::new(port["in_flight_max_bytes"].as_u64().unwrap_or(0)),
        ));
    }
}

/// The traffic, and the packets that the hosts' kernels counted.
fn traffic(out: &mut Lines, found: &Value) {
    let traffic = &found["traffic"];
    let said = format!(
        "{} flows by {}: {} bytes sent, {} received",
        number(&traffic["flow_count"]),
        word(&traffic["tool"]),
        number(&traffic["sent_bytes"]),
        number(&traffic["received_bytes"]),
    );
    out.fact("traffic", &said);
    for host in list(&found["hosts"]) {
        let said = format!(
            "{} packets sent, {} received (kernel counters)",
            number(&host["sent_packets"]),
            number(&host["received_packets"]),
        );
        out.fact(word(&host["name"]), &said);
    }
}

/// The frames of the captures, those of the log, and whether they agree.
fn accounts(out: &mut Lines, found: &Value) {
    let account = &found["account"];
    if !account.is_object() {
        return;
    }
    let said = format!(
        "{} frames sent, {} received, {} missing",
        number(&account["captured_sent"]),
        number(&account["captured_received"]),
        number(&account["captured_missing"]),
    );
    out.fact("captures", &said);
    let said = format!(
        "{} frames, {} dropped{}",
        number(&account["logged"]),
        number(&account["logged_dropped"]),
        causes(&found["drops_by_cause"]),
    );
    out.fact("log", &said);
    let said = if account["agree"].as_bool() == Some(true) {
        "captures and log agree on every frame".to_owned()
    } else {
        format!(
            "captures and log DIFFER: {} frames in only one of them, {} received although logged as \
             dropped, {} missing although not logged as dropped",
            number(&account["not_in_both"]),
            number(&account["dropped_but_came"]),
            number(&account["missing_but_not_dropped"]),
        )
    };
    out.fact("verdict", &said);
}

fn causes(found: &Value) -> String {
    let causes = found.as_object().into_iter().flatten();
    let list: Vec<String> = causes
        .map(|(cause, n)| format!("{} {cause}", number(n)))
        .collect();
    if list.is_empty() {
        String::new()
    } else {
        format!(" ({})", list.join(", "))
    }
}

/// A queue that dropped frames.
fn one_queue(out: &mut Lines, queue: &Value) {
    let percent = |v: &Value| v.as_f64().unwrap_or(0.0) * 100.0;
    out.line(&format!(
        "{} to {}: {} of {} frames found the queue full; for {} of {}, the frames queued before them \
         add up to its depth.",
        word(&queue["from"]),
        word(&queue["to"]),
        number(&queue["queue_full"]),
        number(&queue["arrivals"]),
        number(&queue["explained"]),
        number(&queue["queue_full"]),
    ));
    let said = format!(
        "In {} bursts with loss, the median place of a lost frame was {:.2} (0 first, 1 last); {:.0} % of \
         these bursts lost their first frame.",
        number(&queue["bursts_with_loss"]),
        queue["lost_place_median"].as_f64().unwrap_or(0.0),
        percent(&queue["lost_first_share"]),
    );
    out.fact("", &said);
}

fn rule(out: &mut Lines, rule: &Value) {
    if rule.is_object() {
        let said = format!(
            "at {} for a third of the time: {} frames matched",
            word(&rule["node"]),
            number(&rule["hits"]),
        );
        out.fact("rule", &said);
    }
}

/// One-way delay of the frames.
fn one_way(out: &mut Lines, one_way: &Value) {
    if one_way.is_object() {
        let said = format!(
            "one-way {} by the hosts' timestamps; beyond propagation and serialisation p50 {}, p99 {}, \
             queueing included",
            time(&one_way["time_p50_ns"]),
            time(&one_way["beyond_p50_ns"]),
            time(&one_way["beyond_p99_ns"]),
        );
        out.fact("delay", &said);
    }
}

/// Whether the lab was accurate.
fn accuracy(out: &mut Lines, report: &Value) {
    let trust = if report["trusted"].as_bool() == Some(true) {
        "trusted".to_owned()
    } else {
        let problems: Vec<&str> = list(&report["problems"])
            .filter_map(Value::as_str)
            .collect();
        format!("NOT trusted: {}", problems.join("; "))
    };
    out.fact("lab", &trust);
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> String {
    grouped(value.as_u64().unwrap_or(0))
}

fn time(value: &Value) -> String {
    value.as_i64().map_or_else(
        || "unknown".to_owned(),
        |ns| {
            let sign = if ns < 0 { "-" } else { "" };
            format!("{sign}{}", Duration::from_ns(ns.unsigned_abs()))
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_as_text_has_the_parts_that_were_checked() {
        let mut found = json!({
            "clock": "real",
            "path": { "title": "five ports" },
            "traffic": { "flow_count": 20, "tool": "datagrams", "sent_bytes": 1_000_000,
                         "received_bytes": 999_000 },
            "hosts": [{ "name": "one", "sent_packets": 1_234, "received_packets": 5 }],
            "account": { "agree": false, "captured_sent": 1_000, "captured_received": 999,
                         "captured_missing": 1, "logged": 1_000, "logged_dropped": 0,
                         "not_in_both": 0, "dropped_but_came": 0, "missing_but_not_dropped": 1 },
            "drops_by_cause": { "queue_full": 3 },
            "rule": null,
            "one_way": { "time_p50_ns": 1_000_000, "beyond_p50_ns": -2_000, "beyond_p99_ns": null },
            "certificate": { "trusted": false, "problems": ["late", "lost"] },
            "captures_dropped": 0,
        });
        print::golden!("lab_check", |width| text(&found, width));
        let account = json!({ "agree": true, "captured_sent": 52_282, "captured_received": 40_750,
                              "captured_missing": 11_532, "logged": 52_282, "logged_dropped": 11_532 });
        found["account"] = account;
        found["certificate"] = json!({ "trusted": true });
        found["rule"] = json!({ "node": "switch", "hits": 41 });
        found["captures_dropped"] = json!(7);
        found["queues"] = json!([{ "from": "switch", "to": "receiver", "queue_full": 11_532,
            "arrivals": 51_341, "explained": 11_532, "bursts_with_loss": 84,
            "lost_place_median": 0.66, "lost_first_share": 0.0 }]);
        print::golden!("lab_check_queue", |width| text(&found, width));
    }

    #[test]
    fn a_check_in_virtual_time_as_text() {
        let found = json!({
            "clock": "virtual",
            "path": { "title": "five ports" },
            "ports": [{ "name": "one to switch", "frames_received": 81_200, "frames_sent": 81_274,
                        "received_bits_per_second": 999_000_000, "in_flight_max_bytes": 262_144 }],
        });
        print::golden!("lab_check_virtual", |width| text(&found, width));
    }
}
