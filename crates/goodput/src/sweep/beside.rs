//! iperf3 beside each point of a sweep of transfers: right after ours and in the same rounds.
//!
//! Left out: what iperf3 has no option for or does otherwise, such as one end's buffer, and messages, which it
//! writes after the last round (see [`super::messages`]).

use explain::sweep::Estimate;
use measure::{Config, Stop, Transport};
use report::model::{SweepCurve, SweepObserver};
use units::Duration;

use super::{Axis, Kind, Point, Task, Work, messages};
use crate::cli::{MeasureArgs, ObserverArg};
use crate::failure::Failure;
use crate::observer;
use crate::session::Site;

/// What another tool cannot do as well, if anything.
pub(super) fn problem(args: &MeasureArgs, axes: &[Axis], base: &Config) -> Option<String> {
    let can = [
        Kind::WriteSize,
        Kind::SocketBuffer,
        Kind::Streams,
        Kind::Sender,
    ];
    match args.transfer.observer? {
        ObserverArg::Tshark => Some("--observer tshark does not go with --sweep".to_owned()),
        ObserverArg::Iperf3 if base.transport != Transport::Tcp => Some(format!(
            "--observer iperf3 does not go with --sweep over {}",
            base.transport.name()
        )),
        ObserverArg::Iperf3 if args.test.window.is_some() => {
            Some("--observer iperf3 does not go with --sweep and --window".to_owned())
        }
        ObserverArg::Iperf3 if messages::wanted(axes, base) => None,
        ObserverArg::Iperf3 => {
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
        let (Site::Lab { lab, .. }, Some(ObserverArg::Iperf3)) =
            (site, self.args.transfer.observer)
        else {
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
        self.points[n]
            .observed
            .push(seen.goodput_bits_per_second as f64);
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
    let observed: Vec<f64> = points
        .iter()
        .filter_map(|point| difference(point))
        .collect();
    if !observed.is_empty() {
        curve.observer_points = u32::try_from(observed.len()).ok();
        curve.observer_difference_max = Some(observed.iter().copied().fold(0.0, f64::max));
    }
}

/// How far the observer's median is from ours, as a share of it.
fn difference(point: &Point) -> Option<f64> {
    let theirs = Estimate::of(&point.observed)?.median;
    let ours = point.estimate()?.median;
    (theirs > 0.0).then(|| (ours / theirs - 1.0).abs())
}

/// How often an observer measures a point at most: it takes longer than we do.
const OBSERVED_MAX: u32 = 3;
