//! What the lab says of itself after a phase: was the path what the path file says?

use std::collections::HashMap;

use units::Duration;

use crate::consequence::{self, Added, Traffic, Uncertainty};
use crate::forward::{DirectionCounts, PhaseCounts, ProbeSeen};
use crate::lateness::Lateness;
use crate::pace::KernelRun;
use crate::path::{Hop, PathFile};
use crate::probe::HostStamps;
use crate::rate::RateError;

/// The lab's own accuracy over one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// What was wrong, a line each; empty when the phase can be trusted.
    pub problems: Vec<String>,
    /// At most so far is what was measured from what the path alone gives. Zero where the kernel ran the links.
    pub error: Uncertainty,
    /// It did worse than be late: what it carried may have been faster than the path.
    pub is_faulty: bool,
    /// What the lab did late or lost beyond what is usual, a line each, whatever that comes to.
    pub lapses: Vec<String>,
    /// Probe frames compared.
    pub probes: u64,
    /// Probes that the path let through and that never arrived.
    pub probes_lost: u64,
    /// One-way delay error in nanoseconds, median, by the hosts' kernel stamps.
    pub delay_error_p50_ns: i64,
    /// 99th percentile.
    pub delay_error_p99_ns: i64,
    /// 99.9th percentile.
    pub delay_error_p999_ns: i64,
    /// Largest.
    pub delay_error_max_ns: i64,
    /// How exactly rates were kept, the worst of all directions, over windows of 1 ms, 10 ms and 1 s.
    /// Empty where no direction has a rate.
    pub rate_errors: Vec<RateError>,
    /// Near to far.
    pub forward: DirectionCounts,
    /// Far to near.
    pub backward: DirectionCounts,
    /// CPU time of the forwarding thread.
    pub cpu: Duration,
    /// Memory set aside for frames in flight.
    pub memory_bytes: u64,
    /// `Some`: the kernel ran the links. Then there are no probes, and nothing is known of delays.
    pub kernel: Option<KernelRun>,
}

impl Certificate {
    /// Judges a phase of a lab whose links the kernel ran.
    pub(crate) fn of_kernel(run: KernelRun) -> Self {
        let sum = |first: usize| {
            let ways = run.paces.iter().skip(first).step_by(2);
            ways.fold(DirectionCounts::default(), |sum, pace| {
                sum.plus(&pace.counts())
            })
        };
        Self {
            problems: run.problems(),
            rate_errors: run.error().into_iter().collect(),
            forward: sum(0),
            backward: sum(1),
            kernel: Some(run),
            ..Self::default()
        }
    }

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

    /// Judges a phase.
    pub(crate) fn judge(
        mut counts: PhaseCounts,
        legs: &[Leg],
        device_drops: u64,
        (path, traffic): (&PathFile, &Traffic),
    ) -> Self {
        // What was due when the phase was over, or just before, had no chance to arrive.
        let reported_at = counts.reported_at;
        counts
            .probes
            .retain(|p| p.due.is_none_or(|due| due + ARRIVAL_TIME <= reported_at));
        let mut ways = Vec::new();
        for leg in legs {
            let directions = [
                (true, &leg.near, &leg.far, &leg.towards[0]),
                (false, &leg.far, &leg.near, &leg.towards[1]),
            ];
            for (forward, from, to, name) in directions {
                let seen = counts.probes.iter();
                let seen = seen.filter(|p| p.forward == forward && leg.owns(p.sequence));
                ways.push((delay_errors(seen, from, to), name, leg.delay));
            }
        }
        let mut errors: Vec<i64> = ways
            .iter()
            .flat_map(|(w, ..)| w.errors.iter().copied())
            .collect();
        errors.sort_unstable();
        let mut certificate = Self {
            problems: counts.failure.take().into_iter().collect(),
            probes: errors.len() as u64,
            probes_lost: ways.iter().map(|(w, ..)| w.lost).sum(),
            delay_error_p50_ns: percentile(&errors, 500),
            delay_error_p99_ns: percentile(&errors, 990),
            delay_error_p999_ns: percentile(&errors, 999),
            rate_errors: worst(&counts.rate_errors),
            delay_error_max_ns: errors.last().copied().unwrap_or(0),
            forward: sum(&counts.directions, 0),
            backward: sum(&counts.directions, 1),
            cpu: counts.cpu,
            memory_bytes: counts.memory_bytes,
            kernel: None,
            ..Self::default()
        };
        certificate.find_lost(device_drops, counts.receive_buffer_bytes);
        let (late, frames) = (certificate.frames_late(), certificate.frames());
        if late * LATE_SHARE_MAX_INVERSE > frames {
            let problem = format!("{late} of {frames} frames left more than 1 ms late");
            certificate.lapses.push(problem);
        }
        for (way, name, delay) in &ways {
            certificate.problems.extend(way.fault(name, *delay));
            certificate.lapses.extend(way.lapse(name, *delay));
        }
        certificate.is_faulty = !certificate.problems.is_empty();
        let mean = |way: usize| -> u64 {
            let ways = ways.iter().skip(way).step_by(2);
            ways.map(|(w, ..)| w.mean()).sum()
        };
        let added = Added {
            probes_ns: [mean(0), mean(1)],
            lost_sometime: certificate.probes_lost + device_drops,
            frames: certificate.frames(),
            ..added(path, counts)
        };
        certificate.error = consequence::error(path, traffic, &added);
        certificate.weigh(traffic);
        certificate
    }

    /// A lapse is a problem where it may have made a difference.
    fn weigh(&mut self, traffic: &Traffic) {
        let Uncertainty {
            goodput_ppm,
            round_trip_ppm,
            ..
        } = self.error;
        let worst = match traffic {
            Traffic::Bulk(_) => goodput_ppm,
            _ => goodput_ppm.max(round_trip_ppm),
        };
        // A bound is far from what happens: alone it is no reason for distrust.
        let is_large = worst > ERROR_MAX_PPM && (self.error.simulated || !self.lapses.is_empty());
        if is_large {
            let most = worst.div_ceil(10_000);
            self.problems.push(format!(
                "what the lab added may have changed the result by up to {most} %"
            ));
            self.problems.extend(self.lapses.iter().cloned());
        }
    }

    fn find_lost(&mut self, device_drops: u64, receive_buffer_bytes: u64) {
        let lost = self.frames_lost_by_lab() + device_drops;
        if lost == 0 {
            return;
        }
        self.lapses
            .push(format!("the lab itself lost {lost} frames"));
        if self.forward.lost_receive + self.backward.lost_receive > 0 {
            let buffer = units::Bytes::new(receive_buffer_bytes);
            self.lapses.push(format!(
                "its packet sockets were full: the kernel grants {buffer}; as root the lab takes \
                 more, without root sysctl net.core.rmem_max limits it"
            ));
        }
    }
}

/// Part of the path that has probes of its own: all of it, or as far as a gateway, whose own time is no
/// link's.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    /// What its ends saw.
    pub(crate) near: HostStamps,
    pub(crate) far: HostStamps,
    /// The shorter one-way delay.
    pub(crate) delay: Duration,
    /// Number of its probes' phase.
    pub(crate) phase: u32,
    /// "towards the far host", and back.
    pub(crate) towards: [String; 2],
}

impl Leg {
    fn owns(&self, sequence: u64) -> bool {
        sequence >> 32 == u64::from(self.phase)
    }
}

/// Delay errors of the probes of one direction, sorted.
struct Way {
    errors: Vec<i64>,
    lost: u64,
    /// Probes that the forwarder saw, those that the path dropped included.
    seen: u64,
}

impl Way {
    /// What its probes were late in the mean, in nanoseconds; none is early for that.
    fn mean(&self) -> u64 {
        let late = |ns: &i64| u64::try_from(*ns).unwrap_or(0);
        let sum: u64 = self.errors.iter().map(late).sum();
        sum.div_ceil(self.errors.len().max(1) as u64)
    }

    /// What makes its numbers worth nothing, if anything does.
    fn fault(&self, name: &str, delay: Duration) -> Option<String> {
        let p1 = percentile(&self.errors, 10);
        if self.seen == 0 {
            Some(format!("no probe frame came through {name}"))
        } else if p1 < -median_max(delay) {
            Some(format!(
                "1 % of the probes {name} were {} or more early",
                late(p1)
            ))
        } else {
            None
        }
    }

    /// What it did later than usual.
    fn lapse(&self, name: &str, delay: Duration) -> Option<String> {
        let p99_max = signed(ERROR_P99_MAX.max(Duration::from_ns(delay.as_ns() / 5)));
        let (p50, p99) = (percentile(&self.errors, 500), percentile(&self.errors, 990));
        if p50 > median_max(delay) {
            Some(format!(
                "half of the probes {name} were {} or more late",
                late(p50)
            ))
        } else if self.errors.len() >= PROBES_FOR_P99 && p99 > p99_max {
            Some(format!(
                "1 % of the probes {name} were {} or more late",
                late(p99)
            ))
        } else {
            None
        }
    }
}

fn signed(d: Duration) -> i64 {
    i64::try_from(d.as_ns()).unwrap_or(i64::MAX)
}

fn late(ns: i64) -> Duration {
    Duration::from_ns(ns.unsigned_abs())
}

fn median_max(delay: Duration) -> i64 {
    signed(ERROR_P50_MAX.max(Duration::from_ns(delay.as_ns() / 50)))
}

/// What was late or lost on the way between the two hosts of the transfer.
fn added(path: &PathFile, mut counts: PhaseCounts) -> Added {
    let (from, to) = (path.transfer.from, path.transfer.to);
    let mut way = |from, to| -> Lateness {
        let hops = path.network.walk(from, to).unwrap_or_default();
        let place = |hop: &Hop| hop.link * 2 + usize::from(!hop.forward);
        let Some(last) = hops.last().map(place) else {
            return Lateness::default();
        };
        let mut way = counts
            .lateness
            .get_mut(last)
            .map(std::mem::take)
            .unwrap_or_default();
        // What was lost was lost before it entered the first link.
        for before in hops.iter().map(place).filter(|at| *at != last) {
            way.add_losses(counts.lateness.get(before));
        }
        way
    };
    let ways = [way(from, to), way(to, from)];
    Added {
        ways,
        began: counts.began,
        ended: counts.reported_at,
        ..Added::default()
    }
}

/// The error of each probe that arrived, and how many were due but never did.
fn delay_errors<'a>(
    seen: impl Iterator<Item = &'a ProbeSeen>,
    from: &HostStamps,
    to: &HostStamps,
) -> Way {
    let left: HashMap<u64, u64> = from.departures.iter().copied().collect();
    let came: HashMap<u64, Option<u64>> = to
        .arrivals
        .iter()
        .map(|a| (a.sequence, a.stamp_realtime_ns))
        .collect();
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    let mut way = Way {
        errors: Vec::new(),
        lost: 0,
        seen: 0,
    };
    for probe in seen {
        way.seen += 1;
        let Some(due) = probe.due else { continue };
        // A departure stamp is missing when the error queue was full, and for a late probe of an
        // earlier phase: no comparison then.
        let Some(&departed) = left.get(&probe.sequence) else {
            continue;
        };
        let Some(&arrived) = came.get(&probe.sequence) else {
            way.lost += 1;
            continue;
        };
        let Some(arrived) = arrived else { continue };
        let real = signed(arrived) - signed(departed);
        let meant = signed(due.as_ns()) - signed(probe.arrived.as_ns());
        way.errors.push(real - meant);
    }
    way.errors.sort_unstable();
    way
}

/// Counts of all links in one direction: those at even places are forward.
fn sum(directions: &[DirectionCounts], first: usize) -> DirectionCounts {
    let ways = directions.iter().skip(first).step_by(2);
    ways.fold(DirectionCounts::default(), |sum, d| sum.plus(d))
}

/// The largest of each kind over all directions that have a rate.
fn worst(directions: &[Vec<RateError>]) -> Vec<RateError> {
    let mut worst: Vec<RateError> = Vec::new();
    for errors in directions.iter().filter(|e| !e.is_empty()) {
        if worst.is_empty() {
            worst.clone_from(errors);
            continue;
        }
        for (all, one) in worst.iter_mut().zip(errors) {
            all.windows += one.windows;
            all.p99_ppm = all.p99_ppm.max(one.p99_ppm);
            all.max_ppm = all.max_ppm.max(one.max_ppm);
        }
    }
    worst
}

/// Nearest-rank percentile of sorted values, in thousandths; 0 of none.
fn percentile(sorted: &[i64], per_mille: usize) -> i64 {
    let rank = (sorted.len() * per_mille).div_ceil(1_000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Of what a row judges.
const ERROR_MAX_PPM: u64 = 50_000;
/// One frame in twenty: beyond that the forwarder, not the path, sets the pace.
const LATE_SHARE_MAX_INVERSE: u64 = 20;
/// Or 2 % of the one-way delay where that is more: what moves a verdict on buffers by as much. A
/// lab that keeps up has 10 to 20 us.
const ERROR_P50_MAX: Duration = Duration::from_us(100);
/// Or a fifth of the one-way delay where that is more. One probe in a hundred that late moves the
/// mean round trip by 0.2 %.
const ERROR_P99_MAX: Duration = Duration::from_ms(1);
/// Below this number the 99th percentile is the worst probe, which says little.
const PROBES_FOR_P99: usize = 100;
/// A probe due in the last moments before the report may still be in a socket.
const ARRIVAL_TIME: Duration = Duration::from_ms(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Arrival;
    use units::Instant;

    type Seen = (PhaseCounts, HostStamps, HostStamps);

    /// `n` probes each way of a 10 ms path; the k-th towards the far host is `error(k)` late.
    fn phase(n: u64, error: impl Fn(u64) -> i64) -> Seen {
        let mut counts = PhaseCounts {
            reported_at: Instant::from_ns(u64::MAX),
            ..PhaseCounts::default()
        };
        let (mut near, mut far) = (HostStamps::default(), HostStamps::default());
        for sequence in 0..n {
            let sent = 1_000_000_000_000 + sequence * 5_000_000;
            let arrived = Instant::from_ns(sequence * 5_000_000);
            let due = Some(arrived + Duration::from_ms(10));
            let there = |late: i64| (sent + 10_000_000).saturating_add_signed(late);
            let seen = |forward| ProbeSeen {
                forward,
                sequence,
                arrived,
                due,
            };
            counts.probes.extend([seen(true), seen(false)]);
            near.departures.push((sequence, sent));
            far.departures.push((sequence, sent));
            let stamp_realtime_ns = Some(there(error(sequence)));
            far.arrivals.push(Arrival {
                sequence,
                stamp_realtime_ns,
            });
            near.arrivals.push(Arrival {
                sequence,
                stamp_realtime_ns: Some(there(0)),
            });
        }
        (counts, near, far)
    }

    fn path() -> PathFile {
        let text = "title = \"t\"\n[hosts.a]\n[hosts.b]\n[links.l]\nbetween = [\"a\", \"b\"]\ndelay = \"10ms\"\n";
        PathFile::parse("t.toml".as_ref(), text).unwrap()
    }

    fn judge((counts, near, far): Seen) -> Certificate {
        let leg = Leg {
            near,
            far,
            delay: Duration::from_ms(10),
            phase: 0,
            towards: ["towards the far host", "towards the near host"].map(str::to_owned),
        };
        Certificate::judge(counts, &[leg], 0, (&path(), &Traffic::Other))
    }

    #[test]
    fn the_error_is_what_the_lab_added() {
        let c = judge(phase(100, |k| i64::try_from(k).unwrap() * 1_000));
        assert_eq!((c.probes, c.delay_error_p50_ns), (200, 0));
        assert_eq!(
            (c.delay_error_p99_ns, c.delay_error_max_ns),
            (97_000, 99_000)
        );
        assert!(c.trusted(), "{:?}", c.problems);
    }

    #[test]
    fn a_median_of_2_per_cent_of_the_delay_is_usual_and_more_is_not() {
        for (late, usual) in [(200_000, true), (200_001, false)] {
            assert_eq!(
                judge(phase(100, |_| late)).lapses.is_empty(),
                usual,
                "{late}"
            );
        }
    }

    #[test]
    fn a_99th_percentile_of_a_fifth_of_the_delay_is_usual_and_more_is_not() {
        for (late, usual) in [(2_000_000, true), (2_000_001, false)] {
            let c = judge(phase(100, |k| if k < 2 { late } else { 0 }));
            assert_eq!(c.lapses.is_empty(), usual, "{late}");
        }
    }

    #[test]
    fn early_frames_are_not_trusted_though_they_hide_among_the_late() {
        for (early, trusted) in [(-200_000, true), (-200_001, false)] {
            let c = judge(phase(100, |k| if k == 0 { early } else { 10_000 }));
            assert_eq!(c.trusted(), trusted, "{early}");
        }
    }

    #[test]
    fn one_bad_direction_is_not_hidden_by_a_good_one() {
        let c = judge(phase(100, |k| if k < 2 { 50_000_000 } else { 0 }));
        assert!(
            c.lapses[0].contains("towards the far host"),
            "{:?}",
            c.lapses
        );
    }

    #[test]
    fn a_probe_that_never_arrived_is_a_loss_of_the_lab_unless_the_path_dropped_it() {
        let (counts, near, mut far) = phase(100, |_| 0);
        far.arrivals.remove(40);
        let c = judge((counts.clone(), near.clone(), far.clone()));
        assert_eq!((c.probes_lost, c.lapses.is_empty()), (1, false));
        let mut dropped = counts;
        dropped.probes[80].due = None;
        assert!(judge((dropped, near, far)).lapses.is_empty());
    }

    #[test]
    fn a_probe_due_when_the_phase_ended_is_not_missed() {
        let (mut counts, near, mut far) = phase(100, |_| 0);
        far.arrivals.pop();
        let last_due = counts.probes.last().unwrap().due.unwrap();
        counts.reported_at = last_due + Duration::from_ms(99);
        let kept = judge((counts.clone(), near.clone(), far.clone()));
        assert!(kept.lapses.is_empty());
        counts.reported_at = last_due + Duration::from_ms(100);
        assert!(!judge((counts, near, far)).lapses.is_empty());
    }

    #[test]
    fn one_late_frame_in_twenty_is_usual_and_more_is_not() {
        for (late, usual) in [(50, true), (51, false)] {
            let (mut counts, near, far) = phase(10, |_| 0);
            counts.directions = vec![DirectionCounts {
                segments_out: 1_000,
                segments_late: late,
                ..DirectionCounts::default()
            }];
            assert_eq!(judge((counts, near, far)).lapses.is_empty(), usual);
        }
    }

    #[test]
    fn lateness_of_5_per_cent_of_the_round_trip_is_trusted_and_more_is_not() {
        // Of 20 ms.
        for (late, trusted) in [(1_000_000, true), (1_000_001, false)] {
            let c = judge(phase(100, |_| late));
            assert_eq!(
                c.error.round_trip_ppm.div_ceil(10),
                5_000 + u64::from(!trusted)
            );
            assert_eq!((c.trusted(), c.is_faulty), (trusted, false), "{late}");
        }
    }

    #[test]
    fn without_probes_nothing_is_certified_unless_the_path_drops_everything() {
        assert!(!judge(phase(0, |_| 0)).trusted());
        let (mut counts, near, mut far) = phase(100, |_| 0);
        far.arrivals.clear();
        for probe in counts.probes.iter_mut().filter(|p| p.forward) {
            probe.due = None;
        }
        assert!(judge((counts, near, far)).trusted());
    }
}
