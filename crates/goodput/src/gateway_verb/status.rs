//! What a gateway shows of itself: as text, as JSON, as OpenMetrics, live.
//!
//! What the path would reach without it is a model and no bound: the receiver's window as it stands over the smallest
//! round trips of both halves, or what Reno (Mathis et al. 1997) or CUBIC (RFC 9438 section 5), whichever is faster,
//! make of the losses that the sending half sees, over both; of window and losses the smaller one. It knows neither the
//! sender's buffer nor losses on the sender's side, which would make it less; nor a receiver that would open its
//! window further, nor congestion controls that losses do not hold (BBR), which would make it more.

use std::fmt::Write as _;

use explain::models::{self, AckPolicy};
use gateway::buffers::Decision;
use gateway::counters::{Counts, HELD_MS};
use gateway::links::LinkStatus;
use gateway::sampled::Sampled;
use gateway::view::{HalfSeen, Seen};
use report::model::GatewayHalf;
use serde::{Deserialize, Serialize};
use units::{Bytes, Duration, Rate};

/// What `status` and the end say, for machines.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Status {
    /// Of this layout.
    schema: u32,
    /// Who answers.
    pid: u32,
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// Of the busiest, since it began to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sums: Option<Sums>,
    /// The busiest of the last second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) connections: Vec<Shown>,
    /// Of sides that have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) links: Vec<LinkStatus>,
    /// Of ways that were measured, where the buffers of new connections hang on that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) buffers: Vec<Decision>,
    /// Connections that passed unsplit and were counted, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unsplit_samples: Vec<Sampled>,
}

/// What the busiest connections came to, looked at once a second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sums {
    /// Outward, inward, in the last second.
    pub(super) rates_bps: [u64; 2],
    /// While anything moved.
    pub(super) carried_bps: Option<u64>,
    /// What of it they would have carried unsplit, by the model.
    pub(super) unsplit_bps: Option<u64>,
    /// The one over the other.
    pub(super) gain: Option<f64>,
    /// Of halves inside, outside.
    pub(super) halves: Vec<GatewayHalf>,
}

/// A connection, and what it would reach without the gateway.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Shown {
    #[serde(flatten)]
    seen: Seen,
    /// By the model, each way, bits per second; none where nothing has been learnt.
    unsplit_bps: [Option<u64>; 2],
}

impl Status {
    pub(super) fn of(counts: Counts, seen: Vec<Seen>) -> Self {
        let shown = |seen: Seen| Shown {
            unsplit_bps: [1, 0].map(|to| unsplit(&seen, to).map(Rate::as_bits_per_second)),
            seen,
        };
        Self {
            schema: 1,
            pid: std::process::id(),
            counts,
            sums: None,
            connections: seen.into_iter().map(shown).collect(),
            links: Vec::new(),
            buffers: Vec::new(),
            unsplit_samples: Vec::new(),
        }
    }

    pub(super) fn with_links(self, links: Vec<LinkStatus>) -> Self {
        Self { links, ..self }
    }

    pub(super) fn with_sums(self, sums: Option<Sums>) -> Self {
        Self { sums, ..self }
    }

    pub(super) fn with_buffers(self, buffers: Vec<Decision>) -> Self {
        Self { buffers, ..self }
    }

    pub(super) fn with_samples(self, unsplit_samples: Vec<Sampled>) -> Self {
        Self {
            unsplit_samples,
            ..self
        }
    }
}

/// What one connection end to end would carry towards this half's end, by the model.
pub(super) fn unsplit(seen: &Seen, to: usize) -> Option<Rate> {
    let receiver = &seen.halves[to];
    let rtt = |half: &HalfSeen| Duration::from_us(half.min_rtt_us);
    let whole = rtt(&seen.halves[0]) + rtt(&seen.halves[1]);
    // Without data the kernel has no better round trip than the handshake's, which is one.
    let window = (receiver.acknowledged > 0 && receiver.window_bytes > 0)
        .then(|| models::window_limit(Bytes::new(receiver.window_bytes), whole))
        .flatten();
    let mss = seen.halves.iter().map(|h| h.mss_bytes).min()?;
    #[allow(clippy::cast_precision_loss, reason = "a share of packets")]
    let lost = receiver.retransmissions as f64 / receiver.segments.max(1) as f64;
    let reno = models::mathis(mss, whole, lost, AckPolicy::EveryPacket);
    let loss = reno.max(models::cubic(mss, whole, lost));
    match (window, loss) {
        (Some(window), Some(loss)) => Some(window.min(loss)),
        (one, other) => one.or(other),
    }
}

/// Counts as text.
pub(super) fn words(c: &Counts) -> String {
    let mean = c.held_ns.checked_div(c.split).unwrap_or(0);
    let mut text = format!(
        "split {}, live {}, ended {}, reset {}\n\
         outward {}, inward {}, urgent bytes {}\n\
         servers refused {}, cannot be reached {}, silent {}; clients gone {}\n\
         unsplit by rule {}, at a limit {}, for lack of means {}; refused by rule {}\n\
         SYNs waiting {}, held for {} on average; {} pipes with {}\n",
        c.split,
        c.live,
        c.ended,
        c.reset,
        Bytes::new(c.bytes_outward),
        Bytes::new(c.bytes_inward),
        c.urgent,
        c.refused,
        c.unreachable,
        c.silent,
        c.abandoned,
        c.bypassed,
        c.over_limit,
        c.failed,
        c.forbidden,
        c.waiting,
        Duration::from_ns(mean),
        c.pipes,
        Bytes::new(c.in_pipes),
    );
    for (count, what) in [
        (
            c.one_way,
            "pairs of hosts found whose answers take another way",
        ),
        (c.passed_one_way, "SYNs passed unsplit for that"),
        (
            c.passed_silent,
            "SYNs passed unsplit while another waited in vain",
        ),
        (
            c.undelivered,
            "connections were reset with bytes that one end was told have arrived",
        ),
        (c.bytes_undelivered, "such bytes"),
        (
            c.acks_held,
            "connections whose last ACK waits for the other side's",
        ),
        (c.other_port, "connections went on from another port"),
        (c.looped, "connections came from the gateway itself"),
        (c.sampled, "SYNs passed unsplit as samples"),
        (c.copies, "times bytes went by copying: no pipe was left"),
        (
            c.accept_rests,
            "times nothing was accepted for a moment: no descriptor or no memory left",
        ),
        (
            c.options_refused,
            "socket options were refused (-vv says which)",
        ),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    text
}

/// What the busiest connections came to: the gain, and a line for each side's halves.
pub(super) fn sums(sums: Option<&Sums>) -> String {
    let mut text = String::new();
    let Some(sums) = sums else { return text };
    let rate = Rate::from_bits_per_second;
    if let Some(carried) = sums.carried_bps {
        let _ = write!(text, "carried {} while anything moved", rate(carried));
        if let (Some(unsplit), Some(gain)) = (sums.unsplit_bps, sums.gain) {
            let unsplit = rate(unsplit);
            let _ = write!(
                text,
                ", unsplit about {unsplit} by the model: {gain:.1} times"
            );
        }
        text.push('\n');
    }
    for half in &sums.halves {
        let (Some(rtt), Some(bps)) = (half.rtt_ns, half.acknowledged_bits_per_second) else {
            continue;
        };
        let _ = writeln!(
            text,
            "{}: {} at a round trip of {}; held by receivers {:.0} % of the time, by our buffers {:.0} %; {:.2} % \
             sent again",
            half.side,
            rate(bps),
            Duration::from_ns(rtt),
            100.0 * half.receiver_share,
            100.0 * half.buffer_share,
            100.0 * half.retransmitted_share,
        );
    }
    text
}

/// Links of sides that have several, a line each.
pub(super) fn links(links: &[LinkStatus]) -> String {
    let line = |l: &LinkStatus| {
        let state = match (l.alive, l.answers) {
            (false, _) => "dead",
            (true, true) => "alive",
            // Its carrier says so, and nobody else.
            (true, false) => "alive by its carrier alone",
        };
        let LinkStatus {
            side,
            interface,
            connections,
            placed,
            ..
        } = l;
        format!("{side} {interface}: {state}, {connections} connections, {placed} ever placed\n")
    };
    links.iter().map(line).collect()
}

/// Connections that passed unsplit and were counted, a line each.
pub(super) fn sampled(all: &[Sampled]) -> String {
    let line = |s: &Sampled| {
        format!(
            "unsplit: {} to {}: {} for {}\n",
            s.client,
            s.server,
            Rate::from_bits_per_second(s.rate_bps),
            Duration::from_ms(s.moving_ms)
        )
    };
    all.iter().map(line).collect()
}

/// What buffers new connections get and why, a line for each way that was measured.
pub(super) fn buffers(decisions: &[Decision]) -> String {
    let size = |bytes: Option<u64>| {
        bytes.map_or_else(|| "the kernel's".to_owned(), |b| Bytes::new(b).to_string())
    };
    let line = |d: &Decision| {
        let (sent, received) = (d.sent_bps, d.received_bps);
        format!(
            "{} {}: buffers {} to send, {} to receive ({}; round trip {}, {} there, {} back)\n",
            d.side,
            d.hosts,
            size(d.send_bytes),
            size(d.receive_bytes),
            d.why,
            Duration::from_us(d.rtt_us),
            Rate::from_bits_per_second(sent),
            Rate::from_bits_per_second(received),
        )
    };
    decisions.iter().map(line).collect()
}

/// The busiest connections, a line each.
pub(super) fn table(status: &Status) -> String {
    let mut text = format!(
        "{:<24} {:<24} {:>11} {:>11} {:>10} {:>10}  {:<18} {:>11}\n",
        "CLIENT", "SERVER", "THERE", "BACK", "RTT THERE", "RTT BACK", "HELD BY", "UNSPLIT ~"
    );
    for Shown { seen, unsplit_bps } in &status.connections {
        let [there, back] = seen.rate_bps.map(Rate::from_bits_per_second);
        // The half that sends what there is most of.
        let to = usize::from(there >= back);
        let rtt = |half: &HalfSeen| Duration::from_us(half.rtt_us).to_string();
        let unsplit = unsplit_bps[1 - to].map_or_else(
            || "-".to_owned(),
            |bps| Rate::from_bits_per_second(bps).to_string(),
        );
        let _ = writeln!(
            text,
            "{:<24} {:<24} {:>11} {:>11} {:>10} {:>10}  {:<18} {unsplit:>11}",
            seen.client.to_string(),
            seen.server.to_string(),
            there.to_string(),
            back.to_string(),
            rtt(&seen.halves[1]),
            rtt(&seen.halves[0]),
            held_by(&seen.halves[to]),
        );
    }
    text
}

/// What held a sending half back for most of its time.
pub(super) fn held_by(half: &HalfSeen) -> String {
    let share = |part: u64| (part * 100).checked_div(half.busy_us).unwrap_or(0);
    let window = share(half.window_limited_us);
    let buffer = share(half.buffer_limited_us);
    match (window, buffer) {
        _ if half.busy_us == 0 => "no data".to_owned(),
        (w, b) if w >= b && w >= 10 => format!("receiver {w} %"),
        (_, b) if b >= 10 => format!("our buffer {b} %"),
        _ => "network or source".to_owned(),
    }
}

/// For collectors that read OpenMetrics 1.0.
pub(super) fn openmetrics(status: &Status) -> String {
    let c = &status.counts;
    let mut text = String::new();
    let version = env!("CARGO_PKG_VERSION");
    let mut family = |name: &str, kind: &str, help: &str, rows: &[(&str, u64)]| {
        let _ = writeln!(text, "# TYPE goodput_gateway_{name} {kind}");
        if name.ends_with("_bytes") || name.ends_with("_seconds") {
            let unit = name.rsplit('_').next().unwrap_or_default();
            let _ = writeln!(text, "# UNIT goodput_gateway_{name} {unit}");
        }
        let _ = writeln!(text, "# HELP goodput_gateway_{name} {help}");
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        for (labels, value) in rows {
            let _ = writeln!(text, "goodput_gateway_{name}{suffix}{labels} {value}");
        }
    };
    let build = format!("{{version=\"{version}\"}}");
    family("build", "info", "The program.", &[(&build, 1)]);
    family(
        "connections_open",
        "gauge",
        "Split connections now.",
        &[("", c.live)],
    );
    family(
        "connections",
        "counter",
        "Connections that were split.",
        &[("", c.split)],
    );
    family(
        "ends",
        "counter",
        "Split connections that ended.",
        &[("{how=\"orderly\"}", c.ended), ("{how=\"reset\"}", c.reset)],
    );
    family(
        "unsplit",
        "counter",
        "SYNs that passed unsplit.",
        &[
            ("{why=\"rule\"}", c.bypassed),
            ("{why=\"limit\"}", c.over_limit),
            ("{why=\"failure\"}", c.failed),
            ("{why=\"one-way\"}", c.passed_one_way),
            ("{why=\"silence\"}", c.passed_silent),
            ("{why=\"sample\"}", c.sampled),
        ],
    );
    family(
        "refusals",
        "counter",
        "SYNs that were answered as the server or the network answered.",
        &[
            ("{why=\"rule\"}", c.forbidden),
            ("{why=\"refused\"}", c.refused),
            ("{why=\"unreachable\"}", c.unreachable),
            ("{why=\"silent\"}", c.silent),
            ("{why=\"loop\"}", c.looped),
        ],
    );
    family(
        "one_way",
        "counter",
        "Pairs of hosts found whose answers take another way.",
        &[("", c.one_way)],
    );
    family(
        "abandoned",
        "counter",
        "Servers that had accepted when the client was gone.",
        &[("", c.abandoned)],
    );
    family(
        "syns_waiting",
        "gauge",
        "SYNs that wait for their server.",
        &[("", c.waiting)],
    );
    family(
        "undelivered_bytes",
        "counter",
        "Bytes acknowledged to one end of connections that were reset, and not by the other end.",
        &[("", c.bytes_undelivered)],
    );
    family(
        "undelivered_connections",
        "counter",
        "Connections that were reset with such bytes.",
        &[("", c.undelivered)],
    );
    family(
        "last_acks_held",
        "gauge",
        "Connections whose last ACK waits for the other side's.",
        &[("", c.acks_held)],
    );
    family(
        "carried_bytes",
        "counter",
        "Bytes carried.",
        &[
            ("{direction=\"outward\"}", c.bytes_outward),
            ("{direction=\"inward\"}", c.bytes_inward),
        ],
    );
    family(
        "urgent_bytes",
        "counter",
        "Urgent bytes carried.",
        &[("", c.urgent)],
    );
    family(
        "other_port",
        "counter",
        "Connections that went on from another port than their client's.",
        &[("", c.other_port)],
    );
    family(
        "accept_rests",
        "counter",
        "Times nothing was accepted for a moment: no descriptor or no memory left.",
        &[("", c.accept_rests)],
    );
    family(
        "copies",
        "counter",
        "Times bytes went by copying since no pipe was left.",
        &[("", c.copies)],
    );
    family("pipes", "gauge", "Pipes that exist.", &[("", c.pipes)]);
    family(
        "pipes_filled_bytes",
        "gauge",
        "Bytes in pipes.",
        &[("", c.in_pipes)],
    );
    family(
        "options_refused",
        "counter",
        "Socket options that the kernel refused.",
        &[("", c.options_refused)],
    );
    let labels: Vec<String> = status.links.iter().map(link_labels).collect();
    let mut of_links = |name: &str, kind: &str, help: &str, value: fn(&LinkStatus) -> u64| {
        let rows = labels.iter().map(String::as_str);
        let rows: Vec<_> = rows.zip(status.links.iter().map(value)).collect();
        if !rows.is_empty() {
            family(name, kind, help, &rows);
        }
    };
    of_links(
        "link_alive",
        "gauge",
        "Links of sides that have several: 1 where new connections may go by it.",
        |l| u64::from(l.alive),
    );
    of_links(
        "link_connections_open",
        "gauge",
        "Connections on a link.",
        |l| l.connections,
    );
    of_links(
        "link_connections",
        "counter",
        "Connections that were ever placed on a link.",
        |l| l.placed,
    );
    let ways: Vec<(String, u64)> = status.buffers.iter().flat_map(set_buffers).collect();
    let rows: Vec<_> = ways.iter().map(|(l, bytes)| (l.as_str(), *bytes)).collect();
    if !rows.is_empty() {
        family(
            "buffer_bytes",
            "gauge",
            "Buffers that new connections of a way get since the kernel's tuning would be too small.",
            &rows,
        );
    }
    text += &held(c);
    if let Some(sums) = &status.sums {
        text += &measured(sums);
    }
    text += "# EOF\n";
    text
}

fn set_buffers(decision: &Decision) -> Vec<(String, u64)> {
    let Decision { side, hosts, .. } = decision;
    let sizes = [
        ("send", decision.send_bytes),
        ("receive", decision.receive_bytes),
    ];
    let labels = |what| format!("{{side=\"{side}\",hosts=\"{hosts}\",buffer=\"{what}\"}}");
    let set = sizes
        .into_iter()
        .filter_map(|(what, bytes)| Some((what, bytes?)));
    set.map(|(what, bytes)| (labels(what), bytes)).collect()
}

/// Each held SYN became a connection.
fn held(c: &Counts) -> String {
    let mut text = "# TYPE goodput_gateway_held_seconds histogram\n\
         # UNIT goodput_gateway_held_seconds seconds\n\
         # HELP goodput_gateway_held_seconds Times that SYNs were held until their server had answered.\n"
        .to_owned();
    for (ms, within) in HELD_MS.into_iter().zip(c.held_within()) {
        let le = Duration::from_ms(ms).as_s_f64();
        let _ = writeln!(
            text,
            "goodput_gateway_held_seconds_bucket{{le=\"{le:?}\"}} {within}"
        );
    }
    let _ = writeln!(
        text,
        "goodput_gateway_held_seconds_bucket{{le=\"+Inf\"}} {}\n\
         goodput_gateway_held_seconds_count {}\n\
         goodput_gateway_held_seconds_sum {}.{:09}",
        c.split,
        c.split,
        c.held_ns / 1_000_000_000,
        c.held_ns % 1_000_000_000,
    );
    text
}

/// What the busiest connections came to. What is not known has no row.
fn measured(sums: &Sums) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, unit: &str, help: &str, rows: &[(String, f64)]| {
        if rows.is_empty() {
            return;
        }
        let name = format!("goodput_gateway_{name}_{unit}");
        let _ = writeln!(
            text,
            "# TYPE {name} gauge\n# UNIT {name} {unit}\n# HELP {name} {help}"
        );
        for (labels, value) in rows {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    #[allow(clippy::cast_precision_loss, reason = "rates and times, for a chart")]
    let as_f64 = |n: u64| n as f64;
    let (rate, seconds, ratio) = ("bits_per_second", "seconds", "ratio");
    let ways = ["outward", "inward"].into_iter().zip(sums.rates_bps);
    let ways = ways.map(|(way, bps)| (format!("{{direction=\"{way}\"}}"), as_f64(bps)));
    let help = "What the busiest connections carried in the last second.";
    gauge("busiest", rate, help, &ways.collect::<Vec<_>>());
    for (name, unit, help, value) in [
        (
            "busiest_carried",
            rate,
            "What they carried while anything moved.",
            sums.carried_bps.map(as_f64),
        ),
        (
            "busiest_unsplit",
            rate,
            "What of it they would have carried unsplit, by the model.",
            sums.unsplit_bps.map(as_f64),
        ),
        ("gain", ratio, "The one over the other.", sums.gain),
    ] {
        let row = value.map(|value| (String::new(), value));
        gauge(name, unit, help, row.as_slice());
    }
    let ns = |ns: Option<u64>| ns.map(|ns| as_f64(ns) / 1e9);
    type Of<'f> = &'f dyn Fn(&GatewayHalf) -> Option<f64>;
    let families: [(&str, &str, &str, Of<'_>); 6] = [
        (
            "half_rtt",
            seconds,
            "Round trip of the halves of a side, by the bytes that they sent.",
            &|h| ns(h.rtt_ns),
        ),
        (
            "half_min_rtt",
            seconds,
            "Their smallest round trip.",
            &|h| ns(h.min_rtt_ns),
        ),
        (
            "half_acknowledged",
            rate,
            "What they had acknowledged while they sent.",
            &|h| h.acknowledged_bits_per_second.map(as_f64),
        ),
        (
            "half_held_by_receiver",
            ratio,
            "Share of the time with data outstanding in which their receivers' windows held them.",
            &|h| h.rtt_ns.map(|_| h.receiver_share),
        ),
        (
            "half_held_by_buffer",
            ratio,
            "The same of their own send buffers.",
            &|h| h.rtt_ns.map(|_| h.buffer_share),
        ),
        (
            "half_retransmitted",
            ratio,
            "Share of their segments that were sent again.",
            &|h| h.rtt_ns.map(|_| h.retransmitted_share),
        ),
    ];
    for (name, unit, help, value) in families {
        let side = |half: &GatewayHalf| format!("{{side=\"{}\"}}", half.side);
        let rows = sums
            .halves
            .iter()
            .filter_map(|h| Some((side(h), value(h)?)));
        gauge(name, unit, help, &rows.collect::<Vec<_>>());
    }
    text
}

/// A backslash is all that an interface's name may have and a label may not.
fn link_labels(link: &LinkStatus) -> String {
    let name = link.interface.replace('\\', "\\\\");
    format!("{{side=\"{}\",interface=\"{name}\"}}", link.side)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let half = HalfSeen {
            rtt_us: 1_000,
            min_rtt_us: 1_000,
            mss_bytes: 1_448,
            window_bytes: 458_752,
            segments: 10_000,
            acknowledged: 1,
            busy_us: 1_000_000,
            ..HalfSeen::default()
        };
        Seen {
            client: "10.9.1.2:40000".parse().unwrap(),
            server: "10.9.2.2:5001".parse().unwrap(),
            outside: false,
            age_ms: 1_000,
            carried: [1, 0],
            rate_bps: [900_000_000, 0],
            in_pipe: [0, 0],
            halves: [
                half.clone(),
                HalfSeen {
                    min_rtt_us: 49_000,
                    window_limited_us: 400_000,
                    ..half
                },
            ],
        }
    }

    #[test]
    fn unsplit_is_the_window_over_both_round_trips_or_the_faster_of_reno_and_cubic_at_the_losses() {
        let mut seen = seen();
        // 458,752 bytes in 50 ms.
        let rate = unsplit(&seen, 1).unwrap();
        assert_eq!(rate.as_bits_per_second(), 73_400_320);
        // 1448 bytes * sqrt(1.5 / 0.0001) / 50 ms.
        seen.halves[1].retransmissions = 1;
        let rate = unsplit(&seen, 1).unwrap();
        assert_eq!(rate.to_string(), "28.37 Mb/s");
        // The longer the path, the more CUBIC has of it: 1.054 * 0.5^0.75 / 0.0001^0.75 segments in 500 ms.
        seen.halves[1].min_rtt_us = 499_000;
        seen.halves[1].window_bytes = 1 << 30;
        let rate = unsplit(&seen, 1).unwrap();
        let reno = models::mathis(
            1_448,
            Duration::from_ms(500),
            0.0001,
            AckPolicy::EveryPacket,
        );
        assert_eq!(reno.unwrap().to_string(), "2.837 Mb/s");
        assert_eq!(rate.to_string(), "14.52 Mb/s");
        seen.halves[0].acknowledged = 0;
        assert_eq!(unsplit(&seen, 0), None);
    }

    #[test]
    fn a_connection_is_a_line_with_what_holds_it() {
        let status = Status::of(Counts::default(), vec![seen()]);
        let text = table(&status);
        let line = text.lines().nth(1).unwrap();
        for part in ["10.9.1.2:40000", "900 Mb/s", "receiver 40 %", "73.4 Mb/s"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let json = serde_json::to_string(&status).unwrap();
        let again: Status = serde_json::from_str(&json).unwrap();
        assert_eq!(table(&again), text);
        // Counts and lists are one object: no name may stand twice.
        let sampled = Sampled {
            client: seen().client,
            server: seen().server,
            carried: [9_000_000, 0],
            rate_bps: 72_000_000,
            moving_ms: 1_000,
        };
        let status = status.with_samples(vec![sampled]);
        let json = serde_json::to_string(&status).unwrap();
        let again: Status = serde_json::from_str(&json).unwrap();
        let line = super::sampled(&again.unsplit_samples);
        assert!(line.contains("10.9.2.2:5001: 72 Mb/s for 1 s"), "{line}");
    }

    #[test]
    fn sums_are_the_gain_and_a_line_for_each_side_that_sent() {
        assert_eq!(sums(None), "");
        let half = |side: &str, rtt_ns| GatewayHalf {
            side: side.to_owned(),
            rtt_ns,
            acknowledged_bits_per_second: Some(900_000_000),
            receiver_share: 0.25,
            ..GatewayHalf::default()
        };
        let mut all = Sums {
            carried_bps: Some(900_000_000),
            halves: vec![half("inside", None), half("outside", Some(50_000_000))],
            ..Sums::default()
        };
        let text = sums(Some(&all));
        assert_eq!(
            text,
            "carried 900 Mb/s while anything moved\n\
             outside: 900 Mb/s at a round trip of 50 ms; held by receivers 25 % of the time, by our buffers 0 %; \
             0.00 % sent again\n"
        );
        (all.unsplit_bps, all.gain) = (Some(90_000_000), Some(10.0));
        let text = sums(Some(&all));
        let gain = "moved, unsplit about 90 Mb/s by the model: 10.0 times\n";
        assert!(text.contains(gain), "{text}");
    }

    #[test]
    fn each_way_has_a_line_with_its_buffers_and_why() {
        let text = buffers(&[Decision {
            side: "outside".to_owned(),
            hosts: "10.9.2.0/24".to_owned(),
            rtt_us: 50_000,
            sent_bps: 937_000_000,
            received_bps: 0,
            send_bytes: Some(12 << 20),
            receive_bytes: None,
            why: "needs 12 MiB".to_owned(),
        }]);
        for part in [
            "10.9.2.0/24: buffers 12 MiB",
            "the kernel's to receive",
            "needs 12 MiB; round trip 50 ms",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn metrics_are_in_families_with_their_units() {
        let counts = Counts {
            split: 3,
            held_ns: 1_500_000_000,
            held_1ms: 1,
            held_1s: 1,
            bytes_inward: 9,
            accept_rests: 4,
            copies: 5,
            ..Counts::default()
        };
        let status = Status::of(counts, Vec::new());
        assert!(!openmetrics(&status).contains("link_alive"));
        let link = LinkStatus {
            side: "outside".to_owned(),
            interface: "eth2".to_owned(),
            alive: true,
            answers: false,
            connections: 2,
            placed: 7,
            answer_ns: 0,
        };
        assert!(!openmetrics(&status).contains("gain"));
        let half = GatewayHalf {
            side: "outside".to_owned(),
            rtt_ns: Some(50_000_000),
            receiver_share: 0.25,
            ..GatewayHalf::default()
        };
        let sums = Sums {
            rates_bps: [8_000, 0],
            carried_bps: Some(900_000_000),
            unsplit_bps: Some(90_000_000),
            gain: Some(10.0),
            halves: vec![half],
        };
        let way = Decision {
            side: "outside".to_owned(),
            hosts: "10.9.2.0/24".to_owned(),
            rtt_us: 50_000,
            sent_bps: 937_000_000,
            received_bps: 0,
            send_bytes: Some(12 << 20),
            receive_bytes: None,
            why: "needs 12 MiB".to_owned(),
        };
        let status = status.with_links(vec![link]).with_sums(Some(sums));
        let text = openmetrics(&status.with_buffers(vec![way]));
        for line in [
            "goodput_gateway_link_alive{side=\"outside\",interface=\"eth2\"} 1",
            "goodput_gateway_link_connections_total{side=\"outside\",interface=\"eth2\"} 7",
            "goodput_gateway_connections_total 3",
            "goodput_gateway_carried_bytes_total{direction=\"inward\"} 9",
            "# UNIT goodput_gateway_carried_bytes bytes",
            "goodput_gateway_held_seconds_sum 1.500000000",
            "# TYPE goodput_gateway_held_seconds histogram",
            "goodput_gateway_held_seconds_bucket{le=\"0.001\"} 1",
            "goodput_gateway_held_seconds_bucket{le=\"0.1\"} 1",
            "goodput_gateway_held_seconds_bucket{le=\"1.0\"} 2",
            "goodput_gateway_held_seconds_bucket{le=\"10.0\"} 2",
            "goodput_gateway_held_seconds_bucket{le=\"+Inf\"} 3",
            "goodput_gateway_held_seconds_count 3",
            "goodput_gateway_accept_rests_total 4",
            "goodput_gateway_copies_total 5",
            "goodput_gateway_busiest_bits_per_second{direction=\"outward\"} 8000",
            "goodput_gateway_busiest_unsplit_bits_per_second 90000000",
            "goodput_gateway_gain_ratio 10",
            "# UNIT goodput_gateway_gain_ratio ratio",
            "goodput_gateway_half_rtt_seconds{side=\"outside\"} 0.05",
            "goodput_gateway_half_held_by_receiver_ratio{side=\"outside\"} 0.25",
            "goodput_gateway_buffer_bytes{side=\"outside\",hosts=\"10.9.2.0/24\",buffer=\"send\"} 12582912",
            "# UNIT goodput_gateway_buffer_bytes bytes",
            "goodput_gateway_unsplit_total{why=\"limit\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
