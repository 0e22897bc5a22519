//! Acknowledgments are few: off-load or interrupt hold-off at the receiver gathers segments, and a
//! sender that counts acknowledgments, not bytes (RFC 5681 before RFC 3465), opens its window slowly.
//!
//! With one acknowledgment for every k segments such a window grows by 1/k in a round trip of slow start, by a half
//! where every second segment is answered. A sender that counts bytes doubles it whatever k is, and then there is
//! nothing to say; so it is the growth that must fit, not k alone.

use throughput::{Cause, Finding, Host, Remedy};

use crate::case::Case;
use crate::confidence::{agreement_of, ramp};
use crate::text;

/// Slow start at the pace of thinned acknowledgments.
pub(crate) fn find(case: &Case<'_>) -> Option<Finding> {
    let opening = case.facts.opening?;
    let (k, growth) = (opening.segments_per_ack, opening.growth);
    if k < THINNED || growth <= 1.0 {
        return None;
    }
    let by_acks = opening.growth_by_acks;
    let fit = agreement_of(growth - 1.0, by_acks - 1.0);
    // Time that the same opening takes with an answer to every second segment.
    let usual = growth.ln() / USUAL_GROWTH.ln();
    let whole = case.evidence.duration.as_s_f64().max(1e-9);
    let share = (opening.over.as_s_f64() * (1.0 - usual) / whole).clamp(0.0, 1.0);
    let place = case.host_name(Host::Receiver);
    Some(Finding {
        cause: Cause::ThinnedAcks,
        title: format!(
            "One acknowledgment from {place} stands for {k:.1} segments, so the window grew by {} a round \
             trip in slow start, not by 50 %: {:.1} times as long a start",
            text::percent(growth - 1.0),
            1.0 / usual,
        ),
        confidence: ramp(fit, 0.5, 0.8) * ramp(k, THINNED, 4.0),
        share,
        evidence: vec![
            format!(
                "{k:.1} segments for each acknowledgment in slow start (tcpi_bytes_acked, tcpi_segs_in)"
            ),
            format!(
                "the congestion window (tcpi_snd_cwnd) grew {growth:.3} times a round trip over {}; a segment \
                 for each acknowledgment makes it {by_acks:.3}, with one for every second segment 1.5",
                opening.over,
            ),
        ],
        remedy: Some(Remedy::advice(
            "Let the sender count bytes, not acknowledgments (RFC 3465), or gather less at the receiver \
             (LRO, GRO, rx-usecs)",
            case.remedy_host(Host::Receiver),
            "more acknowledgments and interrupts at the receiver",
        )),
    })
}

/// Delayed acknowledgments alone give 2; chosen.
const THINNED: f64 = 2.5;
/// Every second segment answered (RFC 5681 section 4.2).
const USUAL_GROWTH: f64 = 1.5;
