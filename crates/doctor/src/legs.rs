//! Testers along a path, each measured from here, and what that says of the legs.
//!
//! Only this host starts transfers; servers do not measure among themselves. What the numbers mean is
//! [`explain::compare_legs`]'s to say.

use explain::{Comparison, Leg};
use report::model::{LegRecord, Verdict};
use units::Rate;

use crate::session::Measured;
use fault::Failure;
use job::target::Target;

/// The testers in order, the far end last.
///
/// # Errors
///
/// A usage failure for anything but hosts where `goodput serve` runs, and for one named twice.
pub(crate) fn stops(via: &[String], far: Target) -> Result<Vec<String>, Failure> {
    let usage = |text: String| Err(Failure::usage(format!("--via {text}")));
    if via.len() > VIA_MAX {
        return usage(format!("with {} hosts: at most {VIA_MAX} work", via.len()));
    }
    let mut stops: Vec<String> = Vec::new();
    for typed in via {
        stops.push(host_of(Target::parse(Some(typed))?)?);
    }
    stops.push(host_of(far)?);
    for (k, stop) in stops.iter().enumerate() {
        if stop.is_empty() {
            return usage("with an empty name: expected hosts with commas between".to_owned());
        }
        if stops[..k].contains(stop) {
            return usage(format!(
                "names {stop} twice: a leg must lead somewhere else"
            ));
        }
    }
    Ok(stops)
}

fn host_of(target: Target) -> Result<String, Failure> {
    match target {
        Target::Host(host) => Ok(host),
        Target::Lab(_) | Target::Iperf3(_) => Err(Failure::usage(
            "--via works with hosts where `goodput serve` runs, as does its far end; of a lab's hosts \
             use `goodput lab up` and `goodput lab exec`",
        )),
    }
}

/// The phase that measures from here to a tester.
pub(crate) fn phase_name(stop: &str) -> String {
    format!("to {stop}")
}

/// A transfer as the comparison takes it.
pub(crate) fn leg(to: &str, measured: &Measured) -> Leg {
    let facts = &measured.diagnosis.facts;
    let verdict = &measured.diagnosis.verdict;
    let idle = &measured.outcome.idle_rtt;
    Leg {
        to: to.to_owned(),
        goodput: measured.outcome.goodput_after_ramp(),
        idle_rtt: idle.min,
        // The samples' own smallest: the kernel's minimum has no wake-ups of programs in it.
        idle_rtt_median: idle.min
            + (idle.median - idle.samples.iter().min().copied().unwrap_or_default()),
        sent_segments: facts.sent_segments,
        lost_segments: facts.lost_segments(),
        slows_for_loss: !measured.outcome.sender.congestion.starts_with("bbr"),
        lost_beside_queue: beside_queue(facts.lost_segments(), facts.lost_at_full_queue),
        mss_bytes: facts.mss_bytes,
        streams: measured.outcome.config.streams.into(),
        cause: verdict.cause.filter(|_| verdict.conclusive),
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a count"
)]
fn beside_queue(lost: u64, at_full_queue: f64) -> u64 {
    (lost as f64 * (1.0 - at_full_queue.clamp(0.0, 1.0))).round() as u64
}

/// The legs as run.json has them.
#[allow(clippy::cast_precision_loss, reason = "a share to be shown")]
pub(crate) fn records(legs: &[Leg], compared: &Comparison) -> Vec<LegRecord> {
    let each = legs.iter().zip(&compared.legs).enumerate();
    each.map(|(k, (leg, found))| LegRecord {
        from: k
            .checked_sub(1)
            .map_or_else(|| "here".to_owned(), |j| legs[j].to.clone()),
        to: leg.to.clone(),
        phase: phase_name(&leg.to),
        goodput_bits_per_second: leg.goodput.as_bits_per_second(),
        explained_bits_per_second: found.explained.map(Rate::as_bits_per_second),
        rtt_added_ns: found.rtt.as_ns(),
        loss: leg.lost_beside_queue as f64 / leg.sent_segments.max(1) as f64,
        slows: found.slows,
        loses: found.loses,
        delays: found.delays,
        held_by_host: found.held_by_host,
        bad: compared.bad == Some(k),
    })
    .collect()
}

/// The whole path's verdict, with the legs' before it.
pub(crate) fn conclude(verdict: &mut Verdict, compared: &Comparison) {
    verdict.sentence = format!(
        "{}. To the far end: {}",
        compared.sentence, verdict.sentence
    );
    // What a leg does is told apart from the others by numbers; it needs no cause.
    if compared.bad.is_some() {
        verdict.conclusive = true;
        verdict.healthy = false;
    }
}

/// More hops than a path has testers; chosen.
const VIA_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(via: &[&str], far: &str) -> Result<Vec<String>, String> {
        let via: Vec<String> = via.iter().map(|&v| v.to_owned()).collect();
        let far = Target::parse(Some(far)).map_err(|e| e.to_string())?;
        stops(&via, far).map_err(|e| e.to_string())
    }

    #[test]
    fn testers_come_in_their_order_and_the_far_end_last() {
        assert_eq!(typed(&["a", "b:99"], "c").unwrap(), ["a", "b:99", "c"]);
    }

    #[test]
    fn only_hosts_are_legs_and_each_once() {
        assert!(typed(&["a", "a"], "c").unwrap_err().contains("twice"));
        assert!(typed(&["a"], "a").unwrap_err().contains("twice"));
        assert!(typed(&[""], "c").unwrap_err().contains("empty"));
        assert!(
            typed(&["iperf3://a"], "c")
                .unwrap_err()
                .contains("goodput serve")
        );
        assert!(
            typed(&["a"], "lab:healthy-1g-20ms")
                .unwrap_err()
                .contains("lab up")
        );
        let many: Vec<String> = (0..17).map(|n| format!("h{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(typed(&many, "c").unwrap_err().contains("at most 16"));
    }

    #[test]
    fn losses_at_a_full_queue_are_not_the_legs() {
        assert_eq!(beside_queue(100, 0.75), 25);
        assert_eq!(beside_queue(100, f64::NAN), 0);
        assert_eq!(beside_queue(3, 2.0), 0);
    }

    #[test]
    fn a_bad_leg_is_the_verdict_whatever_the_rules_said() {
        let mut verdict = Verdict {
            sentence: "The path gives what it can".to_owned(),
            healthy: true,
            ..Verdict::default()
        };
        let compared = Comparison {
            bad: Some(1),
            sentence: "The leg from a to b is the bad one".to_owned(),
            ..Comparison::default()
        };
        conclude(&mut verdict, &compared);
        assert!(verdict.conclusive && !verdict.healthy);
        assert!(
            verdict
                .sentence
                .starts_with("The leg from a to b is the bad one. To")
        );
    }
}
