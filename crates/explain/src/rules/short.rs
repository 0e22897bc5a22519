//! The transfer ended before it could reach the path's rate: in slow start, or while CUBIC was
//! still growing back from an early end of it.

use throughput::{Cause, Finding, Remedy, RemedyHost, models};
use units::Duration;

use crate::case::Case;
use crate::confidence::ramp;
use crate::facts::ENOUGH_LOSSES;
use crate::text;

/// Slow start was not over, by the clock or by the congestion window.
pub(crate) fn slow_start(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let share = facts.attributed_or_network().network;
    let needed = needed(case);
    // Slow start lasts as long as it must: certain below that time, out of the question at twice.
    let by_time = needed.map_or(0.0, |n| {
        let over = case.evidence.duration.as_s_f64() / n.as_s_f64().max(1e-9);
        (1.0 - ramp(over, 1.0, 2.0)) * if facts.in_slow_start { 1.0 } else { 0.5 }
    });
    // BBR never sets a threshold, so only the clock tells.
    let loss_based = !case.evidence.sender.congestion_control_is("bbr");
    let growing = facts.in_slow_start && loss_based && facts.cwnd_grew(1.5);
    let by_window = if growing { 0.8 } else { 0.0 };
    let confidence = by_time.max(by_window) * ramp(share, 0.2, 0.5);
    if confidence == 0.0 {
        return None;
    }
    let goal = match (needed, facts.wire_rate) {
        (Some(n), Some(rate)) => format!("; to fill {rate} over {} it takes {n}", facts.idle_rtt),
        _ => String::new(),
    };
    let duration = case.evidence.duration;
    let title = format!("The transfer ended in slow start after {duration}{goal}");
    let mut evidence = time_lines(case);
    if facts.in_slow_start {
        evidence
            .push("no connection has a slow-start threshold yet (tcpi_snd_ssthresh)".to_owned());
    }
    let longer = needed
        .map_or(DURATION_MIN, |n| n.saturating_mul(10))
        .max(DURATION_MIN);
    let remedy = Some(measure_longer(longer));
    Some(Finding {
        cause: Cause::ShortTransfer,
        title,
        confidence,
        share,
        evidence,
        remedy,
    })
}

/// Slow start ended early and CUBIC had not grown back.
pub(crate) fn still_growing(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let cubic = case.evidence.sender.congestion_control_is("cubic");
    let growing = cubic && !facts.in_slow_start && facts.cwnd_grew(1.1);
    if !growing || facts.lost_segments() >= ENOUGH_LOSSES {
        return None;
    }
    let window = models::window_segments(facts.wire_rate?, facts.idle_rtt, facts.mss_bytes)?;
    let recovery = models::cubic_recovery_time(window / f64::from(case.stream_count()));
    let over = case.evidence.duration.as_s_f64() / recovery.as_s_f64().max(1e-9);
    let share = facts.attributed_or_network().network;
    let confidence = 0.8 * (1.0 - ramp(over, 1.0, 2.0)) * ramp(share, 0.2, 0.5);
    if confidence == 0.0 {
        return None;
    }
    let title = format!(
        "The transfer ended after {} while CUBIC was still growing: {}{}, and a window of this path \
         takes up to {recovery} to grow back",
        case.evidence.duration,
        facts.goodput,
        case.of_possible(),
    );
    let mut evidence = time_lines(case);
    let in_ramp = facts.retransmitted_in_ramp_segments;
    evidence.push(format!(
        "{} retransmitted during the ramp, {} after it (tcpi_total_retrans)",
        text::plural(in_ramp, "segment"),
        facts.retransmitted_segments
    ));
    let longer = (recovery.saturating_mul(3)).max(DURATION_MIN);
    let remedy = Some(measure_longer(longer));
    Some(Finding {
        cause: Cause::ShortTransfer,
        title,
        confidence,
        share,
        evidence,
        remedy,
    })
}

/// Time that slow start takes on this path, where its rate is known.
fn needed(case: &Case<'_>) -> Option<Duration> {
    let rate = case.facts.wire_rate?;
    models::slow_start_time(rate, case.facts.idle_rtt, case.facts.mss_bytes)
}

fn time_lines(case: &Case<'_>) -> Vec<String> {
    let (duration, rtt) = (case.evidence.duration, case.facts.idle_rtt);
    let mut lines = vec![format!("the transfer took {duration}, a round trip {rtt}")];
    let line = |r: crate::facts::Range| {
        format!(
            "the congestion window (tcpi_snd_cwnd) went from {} to {}",
            r.first, r.last
        )
    };
    lines.extend(case.facts.cwnd.map(line));
    lines
}

fn measure_longer(time: Duration) -> Remedy {
    let seconds = time.as_ns().div_ceil(1_000_000_000);
    Remedy {
        summary: format!("Measure for {seconds} s; real transfers this short gain from streams"),
        host: RemedyHost::Near,
        sysctl: Vec::new(),
        flags: vec![format!("--duration {seconds}s")],
        settings: Vec::new(),
        predicted: None,
        predicted_from: None,
        cost: "a longer measurement".to_owned(),
    }
}

/// Shortest measurement to recommend: readings enough for the other rules.
const DURATION_MIN: Duration = Duration::from_s(10);
