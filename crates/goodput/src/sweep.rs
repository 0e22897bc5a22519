//! `goodput measure --sweep`: many short transfers with one or two settings varied, in rounds of
//! random order, until every point is known; then where the knee is.

use std::fs;

use explain::sweep::{self as curve, Estimate, Schedule, Shape};
use measure::{Approach, Client, Config, Direction, MeasureError, Outcome, Stop};
use report::RunFolder;
use report::model::{
    Run, RunState, Sweep, SweepAxis, SweepCurve, SweepPoint, Verdict as RunVerdict,
};
use units::{Bytes, Duration, Rate};

use crate::cli::{MeasureArgs, UdpArg};
use crate::context::{self, Context};
use crate::doctor;
use crate::failure::{self, Failure, Verdict};
use crate::record;
use crate::session::{self, Site};
use crate::target::Target;

/// What is varied along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis {
    kind: Kind,
    values: Vec<u64>,
}

/// What can be varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    WriteSize,
    SocketBuffer,
    SendBuffer,
    ReceiveBuffer,
    Streams,
    Pacing,
}

/// A kind with its name, its unit in run.json, and how it is spoken of.
const KINDS: [(Kind, &str, &str, &str); 6] = [
    (Kind::WriteSize, "write-size", "bytes", "write size"),
    (
        Kind::SocketBuffer,
        "socket-buffer",
        "bytes",
        "socket buffer",
    ),
    (Kind::SendBuffer, "send-buffer", "bytes", "send buffer"),
    (
        Kind::ReceiveBuffer,
        "receive-buffer",
        "bytes",
        "receive buffer",
    ),
    (Kind::Streams, "streams", "", "streams"),
    (Kind::Pacing, "pacing", "bits_per_second", "pacing"),
];

impl Kind {
    fn row(self) -> (&'static str, &'static str, &'static str) {
        let row = KINDS.iter().find(|k| k.0 == self);
        row.map_or(("", "", ""), |&(_, name, unit, spoken)| {
            (name, unit, spoken)
        })
    }

    fn parse_value(self, text: &str) -> Result<u64, String> {
        match self.row().1 {
            "bytes" => text
                .parse::<Bytes>()
                .map(Bytes::as_u64)
                .map_err(|e| e.to_string()),
            "bits_per_second" => {
                let rate = text.parse::<Rate>();
                rate.map(Rate::as_bits_per_second)
                    .map_err(|e| e.to_string())
            }
            _ => text
                .parse()
                .map_err(|_| format!("'{text}' is not a number")),
        }
    }

    /// From, to, steps an octave.
    fn default_range(self) -> (u64, u64, u32) {
        match self {
            Self::WriteSize => (64, 4 << 20, 1),
            Self::SocketBuffer => (
                4 << 10,
                buffer_limit("rmem_max").min(buffer_limit("wmem_max")),
                2,
            ),
            Self::SendBuffer => (4 << 10, buffer_limit("wmem_max"), 2),
            Self::ReceiveBuffer => (4 << 10, buffer_limit("rmem_max"), 2),
            Self::Streams => (1, 64, 1),
            Self::Pacing => (10_000_000, 10_000_000_000, 1),
        }
    }

    fn set(self, config: &mut Config, value: u64) {
        let size = Some(Bytes::new(value));
        match self {
            Self::WriteSize => {
                config.block_bytes = u32::try_from(value).unwrap_or(u32::MAX);
                // What is varied is the writing; reading in small pieces would be another cost.
                config.read_bytes = Some(config.block_bytes.max(READ_BYTES_MIN));
            }
            Self::SocketBuffer => (config.send_buffer, config.receive_buffer) = (size, size),
            Self::SendBuffer => config.send_buffer = size,
            Self::ReceiveBuffer => config.receive_buffer = size,
            Self::Streams => config.streams = u16::try_from(value).unwrap_or(u16::MAX),
            Self::Pacing => config.max_pacing = Some(Rate::from_bits_per_second(value)),
        }
    }
}

impl Axis {
    /// `AXIS`, `AXIS=FROM..TO`, `AXIS=FROM..TO/STEPS` or `AXIS=VALUE,VALUE,...`.
    fn parse(typed: &str) -> Result<Self, String> {
        let (name, range) = match typed.split_once('=') {
            Some((name, range)) => (name, Some(range)),
            None => (typed, None),
        };
        let known = || KINDS.map(|k| k.1).join(", ");
        let kind = KINDS.iter().find(|k| k.1 == name).map(|k| k.0);
        let kind = kind.ok_or_else(|| format!("no such sweep; there are {}", known()))?;
        let mut values = match range {
            None => {
                let (from, to, steps) = kind.default_range();
                spread(from, to, steps)
            }
            Some(range) => match range.split_once("..") {
                Some((from, to)) => {
                    let (to, steps) = to.split_once('/').map_or((to, None), |(t, s)| (t, Some(s)));
                    let steps = match steps {
                        None => kind.default_range().2,
                        Some(s) => {
                            let steps = s.parse().ok().filter(|s| (1..=32).contains(s));
                            steps.ok_or_else(|| format!("'{s}' steps an octave: 1 to 32 work"))?
                        }
                    };
                    let (from, to) = (kind.parse_value(from)?, kind.parse_value(to)?);
                    if from == 0 || from >= to {
                        return Err("the range must rise from above 0".to_owned());
                    }
                    spread(from, to, steps)
                }
                None => range
                    .split(',')
                    .map(|v| kind.parse_value(v.trim()))
                    .collect::<Result<_, _>>()?,
            },
        };
        values.sort_unstable();
        values.dedup();
        if values.is_empty() || values[0] == 0 || values.len() > VALUES_MAX {
            return Err(format!("1 to {VALUES_MAX} settings above 0 work"));
        }
        Ok(Self { kind, values })
    }
}

/// Settings a constant factor apart, both ends included.
fn spread(from: u64, to: u64, steps: u32) -> Vec<u64> {
    let mut values = Vec::new();
    for n in 0..VALUES_MAX {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "settings are far below 2^52"
        )]
        let value = (from as f64 * 2_f64.powf(n as f64 / f64::from(steps))).round() as u64;
        // The last step is as long as the others, or left out for the end itself.
        if value as f64 * 2_f64.powf(0.5 / f64::from(steps)) >= to as f64 {
            break;
        }
        values.push(value);
    }
    values.push(to);
    values
}

/// What a socket may ask for here; where it is not known, 4 MiB.
fn buffer_limit(name: &str) -> u64 {
    let file = format!("/proc/sys/net/core/{name}");
    let limit = fs::read_to_string(file)
        .ok()
        .and_then(|t| t.trim().parse().ok());
    limit.unwrap_or(4_u64 << 20).clamp(64 << 10, 64 << 20)
}

/// Runs the sweep and prints what it found.
pub(crate) fn command(args: &MeasureArgs, context: &Context) -> Verdict {
    let (run, folder) = perform(args, context)?;
    if args.transfer.json {
        let text = serde_json::to_string_pretty(&run).map_err(Failure::here)?;
        context::print(&format!("{text}\n"))?;
    } else {
        let (color, width) = (context::color(), context::width());
        let summary = report::terminal::summary(&run, &[], color, width);
        let page = folder.join("report.html");
        context::print(&format!("{summary}\nReport: {}\n", page.display()))?;
    }
    let trusted = run
        .sweep
        .as_ref()
        .and_then(|s| s.certificate.as_ref())
        .is_none_or(|c| c.trusted);
    let conclusive = run.verdict.as_ref().is_some_and(|v| v.conclusive);
    Ok(if trusted && conclusive {
        failure::DONE
    } else {
        failure::CHECK_FAILED
    })
}

/// Runs the sweep and keeps it.
pub(crate) fn perform(
    args: &MeasureArgs,
    context: &Context,
) -> Result<(Run, std::path::PathBuf), Failure> {
    let usage = |text: String| Failure::usage(anyhow::anyhow!("{text}"));
    let axes: Vec<Axis> = args
        .sweep
        .iter()
        .map(|typed| Axis::parse(typed).map_err(|e| usage(format!("--sweep {typed}: {e}"))))
        .collect::<Result<_, _>>()?;
    if axes.len() > 2 || (axes.len() == 2 && axes[0].kind == axes[1].kind) {
        return Err(usage(
            "--sweep: one or two different settings can be varied".to_owned(),
        ));
    }
    if args.test.udp == Some(UdpArg::Search) {
        return Err(usage("--udp search does not go with --sweep".to_owned()));
    }
    if args.transfer.observer.is_some() {
        return Err(usage("--observer does not go with --sweep".to_owned()));
    }
    let target = Target::parse(args.transfer.target.as_deref())?;
    let base = doctor::config(&args.transfer, &args.test, &target)?;
    let approach = doctor::approach(&args.transfer.approach, &target)?;
    let mut run = record::begin("measure", &target, context);
    let mut folder = RunFolder::create(&args.transfer.runs, "sweep", &target.name(), run.clone())?;
    let path = folder.path().to_owned();
    let mut work = Work {
        axes: &axes,
        args,
        context,
        base,
        points: combinations(&axes),
        sweep: Sweep {
            axes: axes.iter().map(axis_record).collect(),
            seed: args.seed,
            precision: args.precision / 100.0,
            ..Sweep::default()
        },
    };
    let result = work.run(target, &approach);
    let Work {
        mut sweep, points, ..
    } = work;
    finish(&mut sweep, &axes, points);
    run.verdict = Some(RunVerdict {
        sentence: sentence(&sweep),
        conclusive: sweep
            .curves
            .iter()
            .any(|c| c.shape != "noisy" && c.shape != "unknown")
            && result.is_ok(),
        ..RunVerdict::default()
    });
    run.sweep = Some(sweep);
    if let Some(code) = context.interrupted() {
        run.state = RunState::Interrupted;
        run.error = Some(Failure::interrupted(code).to_string());
    } else if let Err(failure) = &result {
        run.state = RunState::Failed;
        run.error = Some(failure.to_string());
    }
    record::end(&mut run);
    let kept = folder.finish(&run, &[]);
    if let Some(code) = context.interrupted() {
        let page = path.join("report.html");
        context::note(format_args!("what was measured so far: {}", page.display()));
        return Err(Failure::interrupted(code));
    }
    result?;
    kept?;
    Ok((run, path))
}

fn axis_record(axis: &Axis) -> SweepAxis {
    let (name, unit, _) = axis.kind.row();
    SweepAxis {
        name: name.to_owned(),
        unit: unit.to_owned(),
        values: axis.values.clone(),
    }
}

/// Every combination of settings.
fn combinations(axes: &[Axis]) -> Vec<Point> {
    let mut all = vec![Vec::new()];
    for axis in axes.iter().rev() {
        let longer = |rest: &Vec<u64>| {
            let rest = rest.clone();
            let with = move |&v: &u64| std::iter::once(v).chain(rest.iter().copied()).collect();
            axis.values.iter().map(with).collect::<Vec<Vec<u64>>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.into_iter()
        .map(|settings| Point {
            settings,
            made: Vec::new(),
        })
        .collect()
}

/// A combination and its transfers.
#[derive(Debug)]
struct Point {
    settings: Vec<u64>,
    made: Vec<Made>,
}

/// One transfer.
#[derive(Clone, Copy, Debug)]
struct Made {
    round: u32,
    bits_per_second: u64,
    cpu_sender: f64,
    cpu_receiver: f64,
}

impl Point {
    fn estimate(&self) -> Option<Estimate> {
        Estimate::of(
            &self
                .made
                .iter()
                .map(|m| m.bits_per_second as f64)
                .collect::<Vec<_>>(),
        )
    }
}

struct Work<'a> {
    axes: &'a [Axis],
    args: &'a MeasureArgs,
    context: &'a Context,
    base: Config,
    points: Vec<Point>,
    sweep: Sweep,
}

impl Work<'_> {
    fn run(&mut self, target: Target, approach: &Approach) -> Result<(), Failure> {
        let stop = self.context.stop.clone();
        let site = Site::open(target, approach)?;
        let phase = match &site {
            Site::Lab { lab, .. } => Some(lab.begin_phase()?),
            _ => None,
        };
        let done = site.with_client(&stop, |client| self.measure(client, &stop));
        if let Some(phase) = phase {
            self.sweep.certificate = Some(record::certificate(&phase.finish()?));
        }
        done
    }

    fn measure(&mut self, mut client: Client, stop: &Stop) -> Result<(), MeasureError> {
        let idle = client.idle_rtt_until(stop)?;
        self.time_transfers(idle.min);
        let begun = std::time::Instant::now();
        let mut schedule = Schedule::new(
            self.points.len(),
            (ROUNDS_MIN, ROUNDS_MAX),
            self.args.precision / 100.0,
            self.args.seed,
        );
        while let Some(n) = schedule.next(|n| self.points[n].estimate()) {
            // The first two rounds are had in any case: with fewer there is nothing to say.
            if schedule.round() > 2 && begun.elapsed() > self.args.budget.to_std() {
                self.sweep.out_of_time = true;
                break;
            }
            self.sweep.rounds = u32::try_from(schedule.round()).unwrap_or(u32::MAX);
            let config = self.config(&self.points[n].settings);
            let outcome = client.run(&config, stop, &mut |_| {})?;
            if outcome.interrupted {
                break;
            }
            self.say(n, &outcome);
            self.points[n].made.push(Made {
                round: self.sweep.rounds,
                bits_per_second: outcome.goodput_after_ramp().as_bits_per_second(),
                cpu_sender: session::cpu_share(&outcome.sender).unwrap_or(0.0),
                cpu_receiver: session::cpu_share(&outcome.receiver).unwrap_or(0.0),
            });
        }
        Ok(())
    }

    /// Long enough for slow start to end and for some round trips after it.
    fn time_transfers(&mut self, rtt: Duration) {
        let ramp = Duration::from_ms(200).max(rtt.saturating_mul(12));
        let measured = Duration::from_ms(500).max(rtt.saturating_mul(6));
        if let Some(whole) = self.args.transfer.duration {
            self.base.duration = whole;
            self.base.ramp = self
                .args
                .transfer
                .ramp
                .unwrap_or_else(|| ramp.min(Duration::from_ns(whole.as_ns() / 2)));
        } else {
            (self.base.ramp, self.base.duration) = (ramp, ramp + measured);
        }
        self.base.sample_interval = Duration::from_ms(50);
        self.sweep.ramp_ns = self.base.ramp.as_ns();
        self.sweep.measured_ns = (self.base.duration - self.base.ramp).as_ns();
        self.sweep.rtt_idle_ns = rtt.as_ns();
        self.sweep.direction = match self.base.direction {
            Direction::Up => "up".to_owned(),
            Direction::Down => "down".to_owned(),
        };
    }

    fn config(&self, settings: &[u64]) -> Config {
        let mut config = self.base.clone();
        for (axis, &value) in self.axes.iter().zip(settings) {
            axis.kind.set(&mut config, value);
        }
        config
    }

    fn say(&self, n: usize, outcome: &Outcome) {
        let settings: Vec<String> = self
            .sweep
            .axes
            .iter()
            .zip(&self.points[n].settings)
            .map(|(axis, &value)| format!("{} {}", axis.name, report::setting(axis, value)))
            .collect();
        tracing::info!("{}: {}", settings.join(", "), outcome.goodput_after_ramp());
    }
}

/// Medians, anomalies, knees.
fn finish(sweep: &mut Sweep, axes: &[Axis], points: Vec<Point>) {
    let medians: Vec<f64> = points
        .iter()
        .map(|p| p.estimate().map_or(f64::NAN, |e| e.median))
        .collect();
    let mut rounds: Vec<Vec<(usize, f64)>> = vec![Vec::new(); sweep.rounds as usize];
    for (n, point) in points.iter().enumerate() {
        for made in &point.made {
            if let Some(round) = rounds.get_mut(made.round.saturating_sub(1) as usize) {
                round.push((n, made.bits_per_second as f64));
            }
        }
    }
    sweep.drift = curve::drift(&rounds, &medians);
    sweep.points = points
        .iter()
        .filter(|p| !p.made.is_empty())
        .map(point_record)
        .collect();
    let seconds: Vec<Option<u64>> = match axes.get(1) {
        Some(axis) => axis.values.iter().map(|&v| Some(v)).collect(),
        None => vec![None],
    };
    for second in seconds {
        let of_curve: Vec<usize> = (0..points.len())
            .filter(|&n| points[n].settings.get(1).copied() == second && !points[n].made.is_empty())
            .collect();
        let estimates: Vec<Estimate> = of_curve
            .iter()
            .filter_map(|&n| points[n].estimate())
            .collect();
        for place in curve::anomalies(&estimates) {
            let settings = &points[of_curve[place]].settings;
            if let Some(found) = sweep.points.iter_mut().find(|p| p.settings == *settings) {
                found.anomaly = true;
            }
        }
        let line: Vec<(f64, f64)> = of_curve
            .iter()
            .zip(&estimates)
            .map(|(&n, e)| (points[n].settings[0] as f64, e.median))
            .collect();
        let unsure = estimates.iter().filter(|e| e.error > NOISE_MAX).count();
        let is_noisy = 3 * unsure > estimates.len();
        sweep
            .curves
            .extend(curve_record(axes, second, &line, is_noisy));
    }
}

fn point_record(point: &Point) -> SweepPoint {
    let estimate = point.estimate();
    let median = |of: fn(&Made) -> f64| {
        let values: Vec<f64> = point.made.iter().map(of).collect();
        Estimate::of(&values).map_or(0.0, |e| e.median)
    };
    SweepPoint {
        settings: point.settings.clone(),
        each_bits_per_second: point.made.iter().map(|m| m.bits_per_second).collect(),
        each_round: point.made.iter().map(|m| m.round).collect(),
        goodput_bits_per_second: estimate.map_or(0, |e| whole(e.median)),
        error: estimate.map(|e| e.error).filter(|e| e.is_finite()),
        anomaly: false,
        cpu_sender: median(|m| m.cpu_sender),
        cpu_receiver: median(|m| m.cpu_receiver),
    }
}

/// A curve of which more than a third of the points is not known to [`NOISE_MAX`] has no shape.
fn curve_record(
    axes: &[Axis],
    second: Option<u64>,
    line: &[(f64, f64)],
    is_noisy: bool,
) -> Option<SweepCurve> {
    let axis = axis_record(axes.first()?);
    let spoken = axes[0].kind.row().2;
    let say = |value: f64| report::setting(&axis, whole(value));
    let rate = |bits: f64| Rate::from_bits_per_second(whole(bits));
    let lead = axes.get(1).zip(second).map(|(other, value)| {
        let setting = report::setting(&axis_record(other), value);
        match other.kind {
            Kind::WriteSize => format!("{setting} writes"),
            Kind::Streams if value == 1 => "1 stream".to_owned(),
            Kind::Streams => format!("{setting} streams"),
            kind => format!("{} {setting}", kind.row().2),
        }
    });
    let with = lead.map_or_else(String::new, |l| format!("{l}: "));
    let shape = if is_noisy {
        Shape::Unknown
    } else {
        curve::shape(line)
    };
    let (name, sentence) = match shape {
        Shape::Knee { at, first, plateau } => (
            "knee",
            format!(
                "{with}the knee is at a {spoken} of {} (first measured: {}); the plateau is {}",
                say(two_digits(at)),
                say(first),
                rate(plateau)
            ),
        ),
        Shape::Flat { plateau } => (
            "flat",
            format!(
                "{with}{spoken} makes no difference from {} to {}: {} throughout",
                say(line.first()?.0),
                say(line.last()?.0),
                rate(plateau)
            ),
        ),
        Shape::Rising { up_to, reached } => (
            "rising",
            format!(
                "{with}no plateau up to {}, where it reaches {}: try larger ones",
                say(up_to),
                rate(reached)
            ),
        ),
        Shape::Unknown if is_noisy => (
            "noisy",
            format!(
                "{with}more than a third of the points is not known to {:.0} %: no knee can be told; \
                 give it more --budget or a quieter machine",
                100.0 * NOISE_MAX
            ),
        ),
        Shape::Unknown => ("unknown", format!("{with}too few points for a curve")),
    };
    let mut curve = SweepCurve {
        second,
        shape: name.to_owned(),
        sentence,
        ..SweepCurve::default()
    };
    match shape {
        Shape::Knee { at, first, plateau } => {
            curve.knee = Some(whole(at));
            curve.knee_measured = Some(whole(first));
            curve.plateau_bits_per_second = Some(whole(plateau));
        }
        Shape::Flat { plateau } => curve.plateau_bits_per_second = Some(whole(plateau)),
        _ => {}
    }
    Some(curve)
}

/// The sweep in one sentence: the only curve's, or how the knees lie.
fn sentence(sweep: &Sweep) -> String {
    match sweep.curves.as_slice() {
        [] => "Nothing was measured to its end.".to_owned(),
        [only] => capitalised(&only.sentence),
        several => {
            let [first, second] = [0, 1].map(|n| sweep.axes.get(n).map_or("", |a| a.name.as_str()));
            let knees: Vec<String> = several
                .iter()
                .filter_map(|c| {
                    let with = report::setting(sweep.axes.get(1)?, c.second?);
                    let at = match c.knee {
                        Some(at) => report::setting(&sweep.axes[0], whole(two_digits(at as f64))),
                        None => format!("none ({})", c.shape),
                    };
                    Some(format!("{at} with {second} {with}"))
                })
                .collect();
            format!("Knee of {first}: {}.", knees.join(", "))
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

/// A knee is not known to more.
fn two_digits(value: f64) -> f64 {
    let step = 10_f64.powf(value.max(1.0).log10().floor() - 1.0).max(1.0);
    (value / step).round() * step
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "settings and rates are not negative, and a float cast saturates"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Settings of one axis at most.
const VALUES_MAX: usize = 256;
const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 20;
/// Half an interval, as a share of the mean, above which a point says little of a curve's shape.
const NOISE_MAX: f64 = 0.2;
/// Reads of a receiver whose sender's writes are varied.
const READ_BYTES_MIN: u32 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_a_name_a_range_or_a_list() {
        let values = |typed| Axis::parse(typed).unwrap().values;
        assert_eq!(values("write-size=64B..1KiB"), [64, 128, 256, 512, 1024]);
        assert_eq!(values("streams=1..10"), [1, 2, 4, 10]);
        assert_eq!(values("streams=4,1,4,2"), [1, 2, 4]);
        assert_eq!(
            values("send-buffer=64KiB..128KiB/2"),
            [65_536, 92_682, 131_072]
        );
        assert_eq!(values("write-size").len(), 17);
        assert_eq!(values("pacing=1Gb/s"), [1_000_000_000]);
    }

    #[test]
    fn what_makes_no_axis_is_refused_with_what_does() {
        for (typed, says) in [
            ("writesize", "there are write-size, socket-buffer"),
            ("write-size=1..9", "has no unit"),
            ("streams=9..1", "must rise"),
            ("streams=0,1", "above 0"),
            ("write-size=1B..2B/99", "1 to 32 work"),
            ("streams=", "not a number"),
        ] {
            let said = Axis::parse(typed).unwrap_err();
            assert!(said.contains(says), "{typed}: {said}");
        }
    }

    #[test]
    fn combinations_are_the_product_with_the_first_axis_fastest() {
        let axes = ["streams=1,2", "write-size=64B,128B"].map(|t| Axis::parse(t).unwrap());
        let all: Vec<Vec<u64>> = combinations(&axes)
            .into_iter()
            .map(|p| p.settings)
            .collect();
        assert_eq!(all, [[1, 64], [2, 64], [1, 128], [2, 128]]);
    }

    #[test]
    fn a_curve_of_guesses_has_no_knee() {
        let axes = [Axis::parse("write-size=1KiB..64KiB").unwrap()];
        let line: Vec<(f64, f64)> = (0..7)
            .map(|n| {
                (
                    1024.0 * 2_f64.powi(n),
                    1e9 * (0.25 * f64::from(n + 1)).min(1.0),
                )
            })
            .collect();
        let curve = |is_noisy| curve_record(&axes, None, &line, is_noisy).unwrap();
        assert_eq!(
            (curve(false).shape.as_str(), curve(false).knee_measured),
            ("knee", Some(8192))
        );
        let noisy = curve(true);
        assert_eq!((noisy.shape.as_str(), noisy.knee), ("noisy", None));
        assert!(noisy.sentence.contains("--budget"), "{}", noisy.sentence);
    }

    #[test]
    fn a_knee_is_said_to_two_digits() {
        assert_eq!(two_digits(134_912.0), 130_000.0);
        assert_eq!(two_digits(1.0), 1.0);
        assert_eq!(two_digits(97.0), 97.0);
    }
}
