//! The network holds the sender back: because its rate is reached, because the queue in front of it
//! is too short, or for a reason that these readings do not show.

use throughput::{Cause, Finding, Probe, ProbeKind, Remedy, RemedyHost, Setting, models};
use units::{Duration, Rate};

use crate::case::Case;
use crate::confidence::{data, ramp};
use crate::facts::ENOUGH_LOSSES;
use crate::rules::{application, clock_lines, loss};
use crate::text;

/// Goodput is what the known rate can carry, to 90 %: the path is healthy.
///
/// The tenth covers a loss-based sender's sawtooth, ACKs and retransmissions.
pub(crate) fn reached(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let (achievable, utilisation) = (facts.achievable?, facts.utilisation()?);
    if utilisation < HEALTHY_UTILISATION {
        return None;
    }
    let (goodput, of) = (facts.goodput, text::percent(utilisation));
    let mut evidence = vec![format!("goodput {goodput}, possible {achievable}")];
    evidence.extend(network_lines(case));
    let title = if facts.bottleneck_known {
        format!(
            "The path gives what it can: {} is {of} of {achievable}",
            facts.goodput
        )
    } else {
        format!(
            "The rate aimed at is reached: {} is {of} of {achievable}",
            facts.goodput
        )
    };
    // More than the rate can carry: the stated rate is wrong, so it proves less.
    let plausible = !facts.bottleneck_known || utilisation <= 1.05;
    if !plausible {
        evidence.push("this is more than the stated rate can carry: check the rate".to_owned());
    }
    Some(Finding {
        cause: Cause::BottleneckReached,
        title,
        confidence: data(facts.intervals) * if plausible { 1.0 } else { 0.5 },
        share: facts.attributed_or_network().network,
        evidence,
        remedy: None,
    })
}

/// A queue that is too short, by the surest of three signs.
pub(crate) fn shallow_queue(case: &Case<'_>) -> Option<Finding> {
    let signs = [
        overrun_by_bursts(case),
        overrun_below_rate(case),
        runs_empty(case),
    ];
    let surer = |a: &Finding, b: &Finding| a.confidence.total_cmp(&b.confidence);
    signs.into_iter().flatten().max_by(surer)
}

/// Losses at the full queue of a known bottleneck that still goes idle: the queue is too short for
/// the congestion control's cut after each loss.
fn runs_empty(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let utilisation = facts.utilisation().filter(|_| facts.bottleneck_known)?;
    let share = facts.attributed_or_network().network;
    if facts.lost_segments() == 0 || !(0.5..HEALTHY_UTILISATION).contains(&utilisation) {
        return None;
    }
    let bdp = models::bdp(facts.wire_rate?, facts.idle_rtt);
    let needed = bdp.as_u64() as f64 * models::CUBIC_QUEUE_PER_BDP;
    let shallow = match case.evidence.path.queue {
        Some(queue) if queue.as_u64() as f64 >= needed => return None,
        Some(_) => 1.0,
        None => 0.6,
    };
    let confidence =
        data(facts.intervals) * ramp(share, 0.2, 0.5) * facts.lost_at_full_queue * shallow;
    let needed = units::Bytes::new(bdp.as_u64() / 100 * 43);
    let mut evidence = network_lines(case);
    if let Some(queue) = case.evidence.path.queue {
        evidence.push(format!(
            "the queue holds {queue}; CUBIC needs 0.43 of the {bdp} in flight"
        ));
    }
    Some(Finding {
        cause: Cause::ShallowQueue,
        title: format!(
            "The bottleneck's queue runs empty after each loss, which costs {} of {} possible",
            text::percent(1.0 - utilisation),
            facts.achievable?,
        ),
        confidence,
        share,
        evidence,
        remedy: Some(Remedy {
            summary: format!("Give the bottleneck a queue of {needed}, or pace the sender (bbr)"),
            host: RemedyHost::Network,
            sysctl: Vec::new(),
            flags: vec!["--congestion bbr".to_owned()],
            settings: Vec::new(),
            predicted: None,
            predicted_from: None,
            cost: "a longer queue delays everyone behind it while it is full".to_owned(),
        }),
    })
}

/// Losses that are gone once the sender is paced, though it then sends more: bursts overrun a queue
/// that is short beside the path, whatever the utilisation was.
///
/// A policer with a bucket shorter than the bursts looks the same; the pace helps there as well.
fn overrun_by_bursts(case: &Case<'_>) -> Option<Finding> {
    let (facts, probe) = (case.facts, pace(case)?);
    let share = facts.attributed_or_network().network;
    let confidence = data(facts.intervals) * ramp(share, 0.2, 0.5) * ended_by_pace(case);
    let mut evidence = network_lines(case);
    evidence.push(format!(
        "paced, {} got {} and lost {} of {} segments; at the losses of before it would have lost \
         some {} times",
        text::plural(u64::from(probe.streams), "stream"),
        probe.goodput,
        probe.lost_segments,
        probe.sent_segments,
        text::count(expected_losses(case, probe)),
    ));
    evidence.extend(queue_beside_path(case));
    let remedy = pace_or_lengthen(case, Some(probe));
    Some(Finding {
        cause: Cause::ShallowQueue,
        title: format!(
            "Bursts overrun a queue that is too short for {} of round trip, and {} recovers slowly: \
             {}{}",
            facts.idle_rtt,
            case.evidence.sender.controller(),
            facts.goodput,
            case.of_possible(),
        ),
        confidence,
        share,
        evidence,
        remedy: Some(remedy),
    })
}

/// Many segments lost at once at the queue while the windows were far too small to fill the path: what
/// acknowledgments set off, in slow start (RFC 5681, 3.1) most of all, leaves at the sender's own line's rate and
/// overruns a queue that is short beside the path. The queue must be known, and readings must have seen
/// it full; somebody else's would stand after the burst as well, damage loses one by one.
///
/// Left out: bursts of others that come and go within a reading.
fn overrun_below_rate(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let full = facts.full_queue_delay?;
    let utilisation = facts.utilisation().filter(|_| facts.bottleneck_known)?;
    if facts.lost_segments() < BURST_LOSSES || full.as_ns() == 0 {
        return None;
    }
    let share = facts.attributed_or_network().network;
    let of_rtt = full.as_ns() as f64 / facts.idle_rtt.as_ns().max(1) as f64;
    let short = 1.0 - ramp(of_rtt, 0.2, models::CUBIC_QUEUE_PER_BDP);
    let standing = facts.queue_delay().as_ns() as f64 / full.as_ns() as f64;
    let at_once = facts.lost_segments() as f64 / facts.loss_intervals.max(1) as f64;
    let bursts = ramp(at_once, 3.0, 10.0) * ramp(facts.lost_below_rate, 0.7, 0.9);
    let confidence = BURSTS_SEEN_MAX
        * data(facts.intervals)
        * ramp(share, 0.2, 0.5)
        * (1.0 - ramp(utilisation, 0.8, HEALTHY_UTILISATION))
        * facts.lost_at_full_queue
        * bursts
        * short
        * (1.0 - ramp(standing, 0.3, 0.6));
    let mut evidence = vec![format!(
        "{} lost at a time, while the windows made less than three quarters of what the path carries: {} of \
         the losses; {} in the ramp",
        text::plural(
            facts.lost_segments() / facts.loss_intervals.max(1),
            "segment"
        ),
        text::percent(facts.lost_below_rate),
        facts.retransmitted_in_ramp_segments,
    )];
    evidence.extend(queue_beside_path(case));
    evidence.extend(network_lines(case));
    let (what, then) = match facts.bunched_in_ramp >= 0.5 {
        true => ("One burst of slow start overran", "still climbs from there"),
        false => ("Bursts overrun", "recovers slowly"),
    };
    Some(Finding {
        cause: Cause::ShallowQueue,
        title: format!(
            "{what} a queue that is too short for {} of round trip, and {} {then}: {}{}",
            facts.idle_rtt,
            case.evidence.sender.controller(),
            facts.goodput,
            case.of_possible(),
        ),
        confidence,
        share,
        evidence,
        remedy: Some(pace_or_lengthen(case, None)),
    })
}

fn queue_beside_path(case: &Case<'_>) -> Option<String> {
    let bdp = models::bdp(case.facts.wire_rate?, case.facts.idle_rtt);
    let queue = case.evidence.path.queue?;
    Some(format!("the queue holds {queue}, the path {bdp} in flight"))
}

/// What helps where bursts overrun a queue, and what it brings: by BBR's model, or by a paced probe.
fn pace_or_lengthen(case: &Case<'_>, probe: Option<&Probe>) -> Remedy {
    let facts = case.facts;
    let bdp = facts
        .wire_rate
        .map(|rate| models::bdp(rate, facts.idle_rtt));
    let longer = bdp.map_or_else(
        || "a longer queue".to_owned(),
        |bdp| format!("a queue of {}", units::Bytes::new(bdp.as_u64() / 100 * 43)),
    );
    let by_probe = probe.map(|p| format!("the paced probe got {}", p.goodput));
    let mut remedy = Remedy {
        summary: format!("Give the bottleneck {longer}, or pace the sender (bbr, or a fixed pace)"),
        host: RemedyHost::Network,
        sysctl: Vec::new(),
        flags: vec!["--congestion bbr".to_owned()],
        settings: Vec::new(),
        predicted: probe.map(|p| p.goodput),
        predicted_from: by_probe.clone(),
        cost: "a longer queue delays everyone behind it while it is full".to_owned(),
    };
    // The probe's pace was chosen to tell causes apart, below what the path carries; BBR finds its own.
    let found = probe.map_or(facts.goodput, |p| p.goodput);
    if let Some((name, rate)) = paced_by_bbr(case).filter(|(_, rate)| *rate > found) {
        remedy.sysctl = vec![format!("net.ipv4.tcp_congestion_control = {name}")];
        remedy.settings = vec![Setting::CongestionControl(name.to_owned())];
        remedy.predicted = Some(rate);
        let beside = by_probe.map_or_else(String::new, |text| format!("; {text}"));
        remedy.predicted_from = Some(format!(
            "{name} paces what it sends: 90 % of what path and buffers carry = {rate}{beside}"
        ));
        remedy.cost += &format!(
            "; {name} may take more than its share from loss-based flows beside it, and loses packets at \
             the short queue too"
        );
    }
    remedy
}

/// A BBR that the sender may choose, and what it makes of a path whose rate is known.
fn paced_by_bbr<'a>(case: &Case<'a>) -> Option<(&'a str, Rate)> {
    loss::bbr(case).zip(loss::bbr_rate(case))
}

/// How far a pace ended the losses, in 0..=1: it had the chance to meet several, met few, and carried
/// more than the transfer did.
pub(crate) fn ended_by_pace(case: &Case<'_>) -> f64 {
    let Some(probe) = pace(case) else {
        return 0.0;
    };
    let expected = expected_losses(case, probe);
    let met = probe.loss_intervals as f64 / expected.max(1.0);
    let got = case.facts.goodput.as_bits_per_second().max(1) as f64;
    let more = probe.goodput.as_bits_per_second() as f64 / got;
    ramp(expected, 2.0, 5.0) * (1.0 - ramp(met, 0.1, 0.4)) * ramp(more, 1.0, 1.2)
}

fn pace<'a>(case: &Case<'a>) -> Option<&'a Probe> {
    let is_paced = |p: &&Probe| matches!(p.kind, ProbeKind::Paced(_));
    case.evidence.probes.iter().find(is_paced)
}

/// Losses that the probe would have met, had they been as frequent as in the transfer: counted by
/// intervals, since losses of one burst are one.
fn expected_losses(case: &Case<'_>, probe: &Probe) -> f64 {
    let sent = case.facts.sent_segments.max(1) as f64;
    case.facts.loss_intervals as f64 / sent * probe.sent_segments as f64
}

/// A bottleneck whose rate nobody stated: the network holds the sender back, the round trip shows a
/// queue, and the rate is steady.
pub(crate) fn inferred(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let shares = facts.attributed?;
    if facts.bottleneck_known || facts.idle_rtt == Duration::ZERO {
        return None;
    }
    // BBR keeps its queue short, so its round trip says less.
    let queue = ramp(inflation(case), 0.25, 1.0);
    let queue = if case.evidence.sender.congestion_control_is("bbr") {
        queue.max(0.6)
    } else {
        queue
    };
    let steady = 1.0 - ramp(facts.variation.unwrap_or(1.0), 0.15, 0.6);
    let own_loss = match facts.lost_segments() >= ENOUGH_LOSSES {
        true => facts.lost_at_full_queue,
        false => 1.0,
    };
    let network = ramp(shares.network, 0.3, 0.7);
    let confidence = UNSTATED_MAX * data(facts.intervals) * network * queue * steady * own_loss;
    let goal = match facts.achievable {
        Some(rate) => format!(", below the {rate} aimed at"),
        None => String::new(),
    };
    Some(Finding {
        cause: Cause::BottleneckReached,
        title: format!(
            "A bottleneck of about {} seems to be reached{goal}",
            facts.goodput
        ),
        confidence,
        share: shares.network,
        evidence: network_lines(case),
        remedy: None,
    })
}

/// Held back by the network, and no rule says why.
pub(crate) fn unknown(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    if application::is_paced(case) {
        return None;
    }
    let share = facts.attributed_or_network().network;
    let reason = if facts.bottleneck_known && inflation(case) >= 0.5 {
        "a queue fills all the same, so others share the bottleneck or it is slower than stated"
    } else {
        "nothing measured says why"
    };
    let mut evidence = network_lines(case);
    if facts.lost_segments() < ENOUGH_LOSSES {
        evidence.push(format!(
            "too few losses to blame them: {}",
            facts.lost_segments()
        ));
    }
    if facts.shares.is_none() {
        evidence
            .push("the kernel does not tell where its time went (Linux before 4.10)".to_owned());
    }
    let (goodput, possible) = (facts.goodput, case.of_possible());
    Some(Finding {
        cause: Cause::NetworkUnknown,
        title: format!("The network holds this transfer to {goodput}{possible}; {reason}"),
        confidence: UNKNOWN_MAX * data(facts.intervals) * ramp(share, 0.2, 0.6),
        share,
        evidence,
        remedy: Some(Remedy {
            summary: "Measure again with more streams and at another time of day".to_owned(),
            host: RemedyHost::Network,
            sysctl: Vec::new(),
            flags: vec!["--streams 4".to_owned()],
            settings: Vec::new(),
            predicted: None,
            predicted_from: None,
            cost: "another measurement".to_owned(),
        }),
    })
}

/// How filled the queue was at its fullest, in units of twice the mark from which it counts.
fn inflation(case: &Case<'_>) -> f64 {
    let rise = case.facts.highest_rtt.unwrap_or_default() - case.facts.idle_rtt;
    let full = case.facts.queue_mark().as_ns().max(1) as f64 * 2.0;
    rise.as_ns() as f64 / full
}

fn network_lines(case: &Case<'_>) -> Vec<String> {
    let facts = case.facts;
    let mut lines = clock_lines(case);
    if let (Some(loaded), Some(highest)) = (facts.loaded_rtt, facts.highest_rtt) {
        lines.push(format!(
            "round trip (tcpi_rtt): idle {}, median {loaded} and at most {highest} under load",
            facts.idle_rtt
        ));
    }
    if let Some(variation) = facts.variation {
        let share = text::percent(variation);
        lines.push(format!(
            "the intervals' rates vary by {share} of their mean (tcpi_bytes_acked)"
        ));
    }
    if facts.lost_segments() > 0 {
        lines.push(format!(
            "{} lost of {} (tcpi_total_retrans), {} of them at a full queue",
            text::plural(facts.lost_segments(), "segment"),
            facts.sent_segments,
            text::percent(facts.lost_at_full_queue),
        ));
    }
    lines
}

/// Most that bursts are believed in that no pace has ended; chosen.
const BURSTS_SEEN_MAX: f64 = 0.9;

/// Fewer may be damage; a burst that overruns a queue loses many. Chosen.
const BURST_LOSSES: u64 = 10;

/// From this share of what the path can carry it counts as filled.
const HEALTHY_UTILISATION: f64 = 0.9;

/// Most that a bottleneck is believed in whose rate nobody stated; chosen.
const UNSTATED_MAX: f64 = 0.8;

/// Most that "nothing explains it" is believed in; chosen below [`crate::confidence::CONCLUSIVE`].
const UNKNOWN_MAX: f64 = 0.4;
