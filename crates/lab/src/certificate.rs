//! What the lab says of itself after a phase: was the path what the path file says?

use std::collections::HashMap;

use units::Duration;

use crate::forward::{DirectionCounts, PhaseCounts, ProbeSeen};
use crate::probe::HostStamps;

/// The lab's own accuracy over one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// What was wrong, a line each; empty when the phase can be trusted.
    pub problems: Vec<String>,
    /// Probe frames compared.
    pub probes: u64,
    /// Probes that the path let through and that never arrived.
    pub probes_lost: u64,
    /// One-way delay error in nanoseconds, median, by the hosts' kernel stamps.
    pub delay_error_p50_ns: i64,
    /// 99th percentile.
    pub delay_error_p99_ns: i64,
    /// Largest.
    pub delay_error_max_ns: i64,
    /// Near to far.
    pub forward: DirectionCounts,
    /// Far to near.
    pub backward: DirectionCounts,
    /// CPU time of the forwarding thread.
    pub cpu: Duration,
    /// Memory set aside for frames in flight.
    pub memory_bytes: u64,
}

impl Certificate {
    /// True when a verdict on the path may rest on this phase.
    pub fn trusted(&self) -> bool {
        self.problems.is_empty()
    }

    /// Frames that the lab lost by itself; 0 in a phase that can be trusted.
    pub fn frames_lost_by_lab(&self) -> u64 {
        [&self.forward, &self.backward]
            .iter()
            .map(|d| d.lost_memory + d.lost_receive + d.lost_send)
            .sum::<u64>()
            + self.probes_lost
    }

    /// Frames that left in one piece with neighbours since the forwarder was behind, both ways.
    pub fn frames_together(&self) -> u64 {
        self.forward.segments_together + self.backward.segments_together
    }

    /// Frames sent as the wire would carry them, both ways.
    pub fn frames(&self) -> u64 {
        self.forward.segments_out + self.backward.segments_out
    }

    /// Frames later than 1 ms by the forwarder's clock, both ways.
    pub fn frames_late(&self) -> u64 {
        self.forward.segments_late + self.backward.segments_late
    }

    /// Judges a phase. `delay` is the shorter one-way delay of the path.
    pub(crate) fn judge(
        counts: PhaseCounts,
        near: &HostStamps,
        far: &HostStamps,
        delay: Duration,
        device_drops: u64,
    ) -> Self {
        let mut errors = Vec::new();
        let mut probes_lost = 0;
        for (forward, from, to) in [(true, near, far), (false, far, near)] {
            let seen = counts.probes.iter().filter(|p| p.forward == forward);
            probes_lost += delay_errors(seen, from, to, &mut errors);
        }
        errors.sort_unstable();
        let mut certificate = Self {
            problems: counts.failure.into_iter().collect(),
            probes: errors.len() as u64,
            probes_lost,
            delay_error_p50_ns: percentile(&errors, 50),
            delay_error_p99_ns: percentile(&errors, 99),
            delay_error_max_ns: errors.last().copied().unwrap_or(0),
            forward: counts.forward,
            backward: counts.backward,
            cpu: counts.cpu,
            memory_bytes: counts.memory_bytes,
        };
        certificate.find_problems(delay, device_drops);
        certificate
    }

    fn find_problems(&mut self, delay: Duration, device_drops: u64) {
        let lost = self.frames_lost_by_lab() + device_drops;
        if lost > 0 {
            self.problems
                .push(format!("the lab itself lost {lost} frames"));
        }
        let (late, frames) = (self.frames_late(), self.frames());
        if late * LATE_SHARE_MAX_INVERSE > frames {
            self.problems.push(format!(
                "{late} of {frames} frames left more than 1 ms late"
            ));
        }
        let bound = ERROR_P99_MAX.max(Duration::from_ns(delay.as_ns() / 5));
        let p99 = u64::try_from(self.delay_error_p99_ns).unwrap_or(0);
        if p99 > bound.as_ns() {
            let p99 = Duration::from_ns(p99);
            self.problems
                .push(format!("1 % of the probes were {p99} or more late"));
        }
        if self.probes == 0 {
            self.problems.push("no probe frame came through".to_owned());
        }
    }
}

/// Appends the error of each probe that arrived; returns how many were due but never did.
fn delay_errors<'a>(
    seen: impl Iterator<Item = &'a ProbeSeen>,
    from: &HostStamps,
    to: &HostStamps,
    errors: &mut Vec<i64>,
) -> u64 {
    let left: HashMap<u32, u64> = from
        .departures
        .iter()
        .map(|d| (d.id, d.stamp_realtime_ns))
        .collect();
    let came: HashMap<u32, u64> = to
        .arrivals
        .iter()
        .map(|a| (a.sequence, a.stamp_realtime_ns))
        .collect();
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    let mut lost = 0;
    for probe in seen {
        let Some(due) = probe.due else { continue };
        let Some(&arrived) = came.get(&probe.sequence) else {
            lost += 1;
            continue;
        };
        // A departure stamp can be missing when the error queue was full: no comparison then.
        let Some(&departed) = left.get(&probe.sequence) else {
            continue;
        };
        let real = signed(arrived) - signed(departed);
        let meant = signed(due.as_ns()) - signed(probe.arrived.as_ns());
        errors.push(real - meant);
    }
    lost
}

/// Nearest-rank percentile of sorted values; 0 of none.
fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// One frame in twenty: beyond that the forwarder, not the path, sets the pace.
const LATE_SHARE_MAX_INVERSE: u64 = 20;
/// Or a fifth of the one-way delay where that is more. One probe in a hundred that late moves the
/// mean round trip, and with it a verdict on buffers, by well under one per cent.
const ERROR_P99_MAX: Duration = Duration::from_ms(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Arrival;
    use sys::stamp::Departure;
    use units::Instant;

    /// `n` probes of a 10 ms path whose k-th is `error(k)` nanoseconds late.
    fn phase(n: u32, error: impl Fn(u32) -> u64) -> (PhaseCounts, HostStamps, HostStamps) {
        let mut counts = PhaseCounts::default();
        let (mut near, mut far) = (HostStamps::default(), HostStamps::default());
        for k in 0..n {
            let sent = 1_000_000_000_000 + u64::from(k) * 5_000_000;
            let arrived = Instant::from_ns(u64::from(k) * 5_000_000);
            let due = Some(arrived + Duration::from_ms(10));
            counts.probes.push(ProbeSeen {
                forward: true,
                sequence: k,
                arrived,
                due,
            });
            near.departures.push(Departure {
                id: k,
                stamp_realtime_ns: sent,
            });
            let stamp_realtime_ns = sent + 10_000_000 + error(k);
            far.arrivals.push(Arrival {
                sequence: k,
                stamp_realtime_ns,
            });
        }
        (counts, near, far)
    }

    fn judge((counts, near, far): (PhaseCounts, HostStamps, HostStamps)) -> Certificate {
        Certificate::judge(counts, &near, &far, Duration::from_ms(10), 0)
    }

    #[test]
    fn the_error_is_what_the_lab_added() {
        let c = judge(phase(100, |k| u64::from(k) * 1_000));
        assert_eq!((c.probes, c.delay_error_p50_ns), (100, 49_000));
        assert_eq!(
            (c.delay_error_p99_ns, c.delay_error_max_ns),
            (98_000, 99_000)
        );
        assert!(c.trusted());
    }

    #[test]
    fn a_99th_percentile_of_two_milliseconds_is_trusted_and_more_is_not() {
        assert!(judge(phase(100, |_| 2_000_000)).trusted());
        let c = judge(phase(100, |_| 2_000_001));
        assert!(!c.trusted());
    }

    #[test]
    fn a_probe_that_never_arrived_is_a_loss_of_the_lab_unless_the_path_dropped_it() {
        let (counts, near, mut far) = phase(100, |_| 0);
        far.arrivals.remove(40);
        let c = judge((counts.clone(), near.clone(), far.clone()));
        assert_eq!((c.probes_lost, c.trusted()), (1, false));
        let mut dropped = counts;
        dropped.probes[40].due = None;
        assert!(judge((dropped, near, far)).trusted());
    }

    #[test]
    fn one_late_frame_in_twenty_is_trusted_and_more_is_not() {
        for (late, trusted) in [(50, true), (51, false)] {
            let (mut counts, near, far) = phase(10, |_| 0);
            counts.forward.segments_out = 1_000;
            counts.forward.segments_late = late;
            assert_eq!(judge((counts, near, far)).trusted(), trusted);
        }
    }

    #[test]
    fn without_probes_nothing_is_certified() {
        assert!(!judge(phase(0, |_| 0)).trusted());
    }
}
