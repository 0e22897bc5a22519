//! iperf3 beside each point of a sweep of transfers: right after ours and in the same rounds.
//!
//! Left out: what iperf3 has no option for or does otherwise, such as one end's buffer, and messages, which it
//! writes after the last round (see [`super::messages`]).

use explain::sweep::Estimate;
use measure::{Config, Stop, Transport};
use report::model::{SweepCurve, SweepObserver};
use units::Duration;

use super::{Axis, Kind, Plan, Point, Task, Work, messages};
use crate::observer::{self, Tool};
use crate::session::Site;
use fault::Failure;

/// What another tool cannot do as well, if anything.
pub(super) fn problem(plan: &Plan, axes: &[Axis], base: &Config) -> Option<String> {
    let can = [
        Kind::WriteSize,
        Kind::SocketBuffer,
        Kind::Streams,
        Kind::Sender,
    ];
    match plan.observer? {
        Tool::Tshark => Some("--observer tshark does not go with --sweep".to_owned()),
        Tool::Iperf3 if base.transport != Transport::Tcp => Some(format!(
            "--observer iperf3 does not go with --sweep over {}",
            base.transport.name()
        )),
        Tool::Iperf3 if base.send_buffer.is_some() => {
            Some("--observer iperf3 does not go with --sweep and --window".to_owned())
        }
        Tool::Iperf3 if messages::wanted(axes, base) => None,
        Tool::Iperf3 => {
            let other = axes.iter().find(|a| !can.contains(&a.kind))?;
            let name = other.kind.name();
            Some(format!("--observer iperf3 does not go with --sweep {name}"))
        }
    }
}

impl Work<'_> {
    /// Has the observer measure the point, right after we did and as often, up to
    /// [`OBSERVED_MAX`] times. Where writes have a declared cost there is nothing to compare:
    /// other programs do not spend it. Nor is there where writes are longer than iperf3's may be.
    pub(super) fn observe_point(
        &mut self,
        n: usize,
        site: &Site,
        rtt: Duration,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let (Site::Lab { lab, .. }, Some(Tool::Iperf3)) = (site, self.plan.observer) else {
            return Ok(());
        };
        let point = &self.points[n];
        if point.task != Task::Transfer || point.observed.len() >= OBSERVED_MAX as usize {
            return Ok(());
        }
        let config = self.config(n);
        if !config.costs.is_none() || u64::from(config.block_bytes) > observer::LENGTH_MAX {
            return Ok(());
        }
        let from = match self.sender(n) {
            Some(host) => lab.host(&host.name)?,
            None => lab.near(),
        };
        let seen = observer::iperf3_point(lab, from, &config, rtt, stop)?;
        let point = &mut self.points[n];
        point.observed.push(seen.goodput_bits_per_second as f64);
        point.observers_cpus.extend(seen.cpus);
        self.sweep.observer = Some(SweepObserver {
            tool: seen.tool,
            command: seen.command,
            rounds: self.sweep.rounds.min(OBSERVED_MAX),
        });
        Ok(())
    }
}

/// How many of a curve's points were observed, and how far off the furthest is.
pub(super) fn record(curve: &mut SweepCurve, points: &[&Point]) {
    let observed = points
        .iter()
        .filter_map(|point| Some((difference(point)?, without_cpu(point))));
    let observed: Vec<(f64, bool)> = observed.collect();
    if observed.is_empty() {
        return;
    }
    let largest = |of: &mut dyn Iterator<Item = f64>| of.fold(0.0, f64::max);
    let with_cpu: Vec<f64> = observed.iter().filter(|o| !o.1).map(|o| o.0).collect();
    curve.observer_points = u32::try_from(observed.len()).ok();
    curve.observer_points_with_cpu = u32::try_from(with_cpu.len()).ok();
    curve.observer_difference_max = Some(largest(&mut with_cpu.iter().map(|d| d.abs())));
    curve.observer_faster_max = Some(largest(&mut observed.iter().map(|o| -o.0)));
}

/// How far ours is above the observer's median, as a share of it.
fn difference(point: &Point) -> Option<f64> {
    let theirs = Estimate::of(&point.observed)?.median;
    let ours = point.estimate()?.median;
    (theirs > 0.0).then(|| ours / theirs - 1.0)
}

/// Whether the observer's two ends had used up what CPU there was for them in most of its measurements:
/// the lab's own thread keeps one. On a machine of two they share the other, and the one that costs less
/// a write is faster.
pub(super) fn without_cpu(point: &Point) -> bool {
    let left = sys::host::cpus_online().saturating_sub(1).max(1);
    let used = point.observers_cpus.iter();
    let without = used
        .filter(|cpus| **cpus >= f64::from(left) * ALL_CPU)
        .count();
    without * 2 > point.observed.len()
}

/// What counts as all of the CPU: of one that was never idle iperf3's ends say 0.86 to 0.91 is theirs; the
/// kernel's work for neither takes the rest.
const ALL_CPU: f64 = 0.8;

/// How often an observer measures a point at most: it takes longer than we do.
const OBSERVED_MAX: u32 = 3;
