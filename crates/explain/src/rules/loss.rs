//! Packets are lost though no queue is full: the rate is what the congestion control makes of it.
//!
//! A loss at a full queue is how a loss-based sender finds the bottleneck, and no fault. It is told
//! from damage by the round trip around the retransmission (inflated or idle) and by the rate (near
//! the known bottleneck or far below). How well Mathis' formula or CUBIC's response explain the
//! rate then says how sure the finding is.

use throughput::models::{self, AckPolicy};
use throughput::{Cause, Finding, Remedy, RemedyHost, Setting};
use units::Rate;

use crate::case::Case;
use crate::confidence::{agreement, data, ramp, with_model};
use crate::evidence::HostConfig;
use crate::predict;
use crate::remedy::{Change, STREAMS_WITHOUT_RATE, streams_for, streams_rate};
use crate::rules::bottleneck;
use crate::text;

/// Loss that is not the transfer's own queue.
pub(crate) fn find(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    if facts.lost_segments() < LOSSES_MIN || facts.idle_rtt.as_ns() == 0 {
        return None;
    }
    let share = facts.attributed_or_network().network;
    let response = predict::loss_response(
        &case.evidence.sender,
        &case.evidence.path,
        facts.idle_rtt,
        facts.loss_rate,
    );
    let fit = response.map(|(_, one)| agreement(facts.goodput_per_stream, one));
    // A burst at the end of slow start is the queue's, even where no reading caught it full.
    let random = (1.0 - facts.lost_at_full_queue) * (1.0 - facts.bunched_in_ramp);
    // Losses that a pace ends are those of bursts at a queue.
    let random = random * (1.0 - bottleneck::ended_by_pace(case));
    let counted = 0.5 + 0.5 * ramp(facts.lost_segments() as f64, 0.0, LOSSES_ENOUGH);
    let below = facts.utilisation().map_or(0.8, |u| ramp(1.0 - u, 0.1, 0.3));
    let limited = ramp(share, 0.2, 0.5) * below;
    let confidence = data(facts.intervals) * limited * random * counted * with_model(fit);
    let loss = text::loss(facts.loss_rate);
    let title = format!(
        "{loss} of the packets are lost {}, which holds {} to {}{}",
        queue_seen(case),
        case.evidence.sender.controller(),
        facts.goodput,
        case.of_possible(),
    );
    Some(Finding {
        cause: Cause::Loss,
        title,
        confidence,
        share,
        evidence: evidence(case),
        remedy: Some(remedy(case)),
    })
}

/// What can be said of a queue: where it is not known how long a full one delays, none of less than the
/// mark can be seen.
fn queue_seen(case: &Case<'_>) -> String {
    match case.facts.full_queue_delay {
        Some(_) => "without a full queue".to_owned(),
        None => format!("with no queue of {} or more", case.facts.queue_mark()),
    }
}

impl HostConfig {
    /// The congestion control's name in a sentence.
    pub(crate) fn controller(&self) -> &str {
        if self.congestion_control.is_empty() {
            "TCP"
        } else {
            &self.congestion_control
        }
    }
}

fn evidence(case: &Case<'_>) -> Vec<String> {
    let facts = case.facts;
    let (rtt, p, mss) = (facts.idle_rtt, facts.loss_rate, facts.mss_bytes);
    let mut lines = vec![format!(
        "{} of {} segments retransmitted (tcpi_total_retrans, tcpi_data_segs_out): {} lost, {} \
         needless (tcpi_dsack_dups), {}",
        facts.retransmitted_segments,
        facts.sent_segments,
        facts.lost_segments(),
        facts.spurious_segments,
        text::plural(facts.timeouts, "timeout"),
    )];
    let at_queue = text::percent(facts.lost_at_full_queue);
    let mark = facts.idle_rtt + facts.queue_mark();
    lines.push(format!(
        "{at_queue} of them while the round trip exceeded {mark}, as a full queue would make it"
    ));
    if let Some(loaded) = facts.loaded_rtt {
        lines.push(format!(
            "round trip under load (tcpi_rtt): median {loaded}, idle {rtt}"
        ));
    }
    let one = facts.goodput_per_stream;
    if let (Some(reno), Some(cubic)) = (
        models::mathis(mss, rtt, p, AckPolicy::EveryPacket),
        models::cubic(mss, rtt, p),
    ) {
        lines.push(format!(
            "at that loss and {rtt} Reno gets {reno} a stream (Mathis 1997), CUBIC {cubic} \
             (RFC 9438); measured {one}"
        ));
    }
    lines.extend(budget_line(case));
    lines
}

/// What loss this path could bear at its rate.
fn budget_line(case: &Case<'_>) -> Option<String> {
    let facts = case.facts;
    let wanted = facts.achievable?;
    let cubic = models::cubic_loss_max(wanted, facts.idle_rtt, facts.mss_bytes)?;
    let reno = models::loss_budget(wanted, facts.idle_rtt, facts.mss_bytes)?;
    Some(format!(
        "to fill {wanted} over {} one CUBIC stream bears a loss of {}, one Reno stream {} (NPAD), a \
         loss every {}",
        facts.idle_rtt,
        text::loss(cubic),
        text::loss(reno.loss_rate_max),
        reno.time_between,
    ))
}

/// Mend the path; meanwhile a congestion control that does not take loss for congestion, or more
/// streams.
fn remedy(case: &Case<'_>) -> Remedy {
    let mend = match case.facts.full_queue_delay {
        Some(_) => {
            "Find and mend what loses packets (optics, cables, duplex, a line card, a policer)"
        }
        None => {
            "Find and mend what loses packets (a shorter queue, optics, cables, duplex, a line card, a \
             policer)"
        }
    };
    let bbr = bbr(case).map(|name| (name, bbr_rate(case)));
    let (streams, streams_rate) = streams(case);
    let with_streams = format!("{streams} streams make {streams_rate}");
    let mut flags = vec![format!("--streams {streams}")];
    let mut remedy = Remedy {
        summary: format!("{mend}; until then use {streams} streams"),
        host: RemedyHost::Network,
        sysctl: Vec::new(),
        flags: Vec::new(),
        settings: vec![Setting::Streams(streams)],
        predicted: Some(streams_rate),
        predicted_from: Some(format!(
            "{streams} x {} = {streams_rate}, no more than the path carries",
            case.facts.goodput_per_stream
        )),
        cost: format!("{streams} streams take {streams} shares from others on the path"),
    };
    if let Some((name, rate)) = bbr {
        remedy.summary = format!("{mend}; until then use {name}, or {streams} streams");
        remedy
            .sysctl
            .push(format!("net.ipv4.tcp_congestion_control = {name}"));
        flags.insert(0, format!("--congestion {name}"));
        remedy.settings = vec![Setting::CongestionControl(name.to_owned())];
        remedy.predicted = rate;
        remedy.predicted_from = rate.map(|r| {
            format!("{name} does not slow down for this loss: 90 % of what the path carries = {r}; {with_streams}")
        });
        remedy.cost =
            format!("{name} may take more than its share from loss-based flows beside it");
    }
    remedy.flags = flags;
    remedy
}

/// A BBR that the sender may choose, where one would help.
pub(super) fn bbr<'a>(case: &Case<'a>) -> Option<&'a str> {
    let sender = &case.evidence.sender;
    if sender.congestion_control_is("bbr") || case.facts.loss_rate >= BBR_LOSS_MAX {
        return None;
    }
    let mut names = sender.congestion_controls_available.iter();
    names
        .find(|name| name.starts_with("bbr"))
        .map(String::as_str)
}

/// What BBR makes of the path; unknown where the path's rate is, since BBR then has no limit here.
pub(super) fn bbr_rate(case: &Case<'_>) -> Option<Rate> {
    case.facts.achievable?;
    let mut change = Change::of(case);
    change.sender.congestion_control = "bbr".to_owned();
    let limit = change.predict(case).rate?.as_bits_per_second() as f64;
    Some(models::bits_per_second(
        limit * BBR_EFFICIENCY * (1.0 - case.facts.loss_rate),
    ))
}

/// Streams that fill the path at the measured rate of one, and what they make.
fn streams(case: &Case<'_>) -> (u16, Rate) {
    let each = case.facts.goodput_per_stream;
    let n = case
        .facts
        .achievable
        .map_or(STREAMS_WITHOUT_RATE, |wanted| streams_for(wanted, each));
    (n, streams_rate(n, each, case.facts.achievable))
}

/// One loss is an accident.
const LOSSES_MIN: u64 = 2;

/// From so many losses on their rate is known to a third (1/sqrt(8)).
const LOSSES_ENOUGH: f64 = 8.0;

/// BBRv2 and v3 slow down above 2 % loss (draft-ietf-ccwg-bbr, `BBR.LossThresh`); v1 later.
const BBR_LOSS_MAX: f64 = 0.02;

/// BBR drains its pipe for 200 ms in every 10 s and probes in between; 0.9 is chosen, on the safe
/// side of what it shows on a clean path.
const BBR_EFFICIENCY: f64 = 0.9;
