//! `goodput measure --sweep`: many short transfers with one or two settings varied, in rounds of
//! random order, until every point is known; then where the knee is.

use std::fs;

use explain::PathKnowledge;
use explain::sweep::{self as curve, Estimate, Schedule, Shape};
use lab::path::HostSpec;
use measure::{Approach, Client, Config, Direction, Outcome, Stop};
use report::RunFolder;
use report::model::{
    Run, RunState, Sweep, SweepAxis, SweepCrossing, SweepCurve, SweepObserver, SweepPoint,
    Verdict as RunVerdict,
};
use units::{Bytes, Duration, Rate};

use crate::cli::{MeasureArgs, ObserverArg, UdpArg};
use crate::context::{self, Context};
use crate::doctor;
use crate::failure::{self, Failure, Verdict};
use crate::observer;
use crate::record;
use crate::session::{self, Clients, Site};
use crate::target::Target;

/// What is varied along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis {
    kind: Kind,
    values: Vec<u64>,
    /// Of senders: what 1, 2, ... stand for.
    names: Vec<String>,
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
    Sender,
}

/// A kind with its name, its unit in run.json, and how it is spoken of.
const KINDS: [(Kind, &str, &str, &str); 7] = [
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
    (Kind::Sender, "sender", "", "sender"),
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
            Self::Sender => (1, 1, 1),
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
            // Whose costs and congestion control they are only the path file says.
            Self::Sender => {}
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
        if kind == Kind::Sender {
            return Self::senders(range);
        }
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
        Ok(Self {
            kind,
            values,
            names: Vec::new(),
        })
    }

    /// Hosts of the path file, each once, in the order typed.
    fn senders(typed: Option<&str>) -> Result<Self, String> {
        let names: Vec<String> = typed
            .unwrap_or_default()
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect();
        let is_again = |n: usize| names[..n].contains(&names[n]);
        if names.len() > VALUES_MAX || (0..names.len()).any(|n| names[n].is_empty() || is_again(n))
        {
            return Err(format!(
                "name the hosts of the path file, each once and {VALUES_MAX} at most: sender=a,b"
            ));
        }
        Ok(Self {
            kind: Kind::Sender,
            values: (1..=names.len() as u64).collect(),
            names,
        })
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
    let mut axes: Vec<Axis> = args
        .sweep
        .iter()
        .map(|typed| Axis::parse(typed).map_err(|e| usage(format!("--sweep {typed}: {e}"))))
        .collect::<Result<_, _>>()?;
    if axes.len() > 2 || (axes.len() == 2 && axes[0].kind == axes[1].kind) {
        return Err(usage(
            "--sweep: one or two different settings can be varied".to_owned(),
        ));
    }
    if axes[0].kind == Kind::Sender {
        // Curves are drawn over quantities.
        axes.reverse();
        if axes.len() == 1 {
            return Err(usage(
                "--sweep sender goes beside another, such as --sweep write-size".to_owned(),
            ));
        }
    }
    if args.test.udp == Some(UdpArg::Search) {
        return Err(usage("--udp search does not go with --sweep".to_owned()));
    }
    let target = Target::parse(args.transfer.target.as_deref())?;
    let mut base = doctor::config(&args.transfer, &args.test, &target)?;
    let senders = senders(&axes, &target, base.direction).map_err(usage)?;
    if let Some(problem) = observer_problem(args, &axes) {
        return Err(usage(problem));
    }
    if !senders.is_empty() {
        // Each sender has its own.
        base.costs = measure::WriteCosts::default();
    }
    let approach = doctor::approach(&args.transfer.approach, &target)?;
    let mut run = record::begin("measure", &target, context);
    let mut folder = RunFolder::create(&args.transfer.runs, "sweep", &target.name(), run.clone())?;
    let path = folder.path().to_owned();
    let known = match &target {
        Target::Lab(path) => Site::path_knowledge(path, base.direction),
        _ => PathKnowledge::default(),
    };
    let mut work = Work {
        axes: &axes,
        args,
        senders,
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
    finish(&mut sweep, &axes, points, known.achievable_rate());
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
        names: axis.names.clone(),
    }
}

/// The hosts that send in turn, as the path file has them; none where nobody else than usual does.
fn senders(axes: &[Axis], target: &Target, direction: Direction) -> Result<Vec<HostSpec>, String> {
    let Some(axis) = axes.iter().find(|a| a.kind == Kind::Sender) else {
        return Ok(Vec::new());
    };
    let (Target::Lab(path), Direction::Up) = (target, direction) else {
        return Err("--sweep sender: senders are hosts of a lab path, and send up".to_owned());
    };
    let of_name = |name: &String| {
        let host = path.network.hosts.iter().find(|h| h.name == *name);
        let host = host.filter(|h| h.interface.is_none() && h.name != path.far.name);
        host.cloned().ok_or_else(|| {
            format!(
                "--sweep sender: '{name}' is no host of the lab that could send to {}",
                path.far.name
            )
        })
    };
    axis.names.iter().map(of_name).collect()
}

/// What another tool cannot do as well, if anything.
fn observer_problem(args: &MeasureArgs, axes: &[Axis]) -> Option<String> {
    let can = [Kind::WriteSize, Kind::Streams, Kind::Sender];
    match args.transfer.observer? {
        ObserverArg::Tshark => Some("--observer tshark does not go with --sweep".to_owned()),
        ObserverArg::Iperf3 if args.test.window.is_some() => {
            Some("--observer iperf3 does not go with --sweep and --window".to_owned())
        }
        ObserverArg::Iperf3 => {
            let other = axes.iter().find(|a| !can.contains(&a.kind))?;
            let name = other.kind.row().1;
            Some(format!("--observer iperf3 does not go with --sweep {name}"))
        }
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
            observed: Vec::new(),
        })
        .collect()
}

/// A combination and its transfers.
#[derive(Debug)]
struct Point {
    settings: Vec<u64>,
    made: Vec<Made>,
    /// Rates that the observer measured.
    observed: Vec<f64>,
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
    senders: Vec<HostSpec>,
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
        let done = site
            .with_client(&stop, |client| Ok(self.measure(client, &site, &stop)))
            .and_then(|done| done);
        if let Some(phase) = phase {
            self.sweep.certificate = Some(record::certificate(&phase.finish()?));
        }
        done
    }

    fn measure(&mut self, client: Client, site: &Site, stop: &Stop) -> Result<(), Failure> {
        let mut clients = Clients::new(site, client);
        let rtt = clients.near().idle_rtt_until(stop)?.min;
        self.time_transfers(rtt);
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
            let config = self.config(n);
            let from = self.sender(n).map(|host| host.name.clone());
            let outcome = clients.run(from.as_deref(), &config, stop)?;
            if outcome.interrupted {
                break;
            }
            self.say(n, &outcome);
            self.observe(n, site, &config, rtt, stop)?;
            self.points[n].made.push(Made {
                round: self.sweep.rounds,
                bits_per_second: outcome.goodput_after_ramp().as_bits_per_second(),
                cpu_sender: session::cpu_share(&outcome.sender).unwrap_or(0.0),
                cpu_receiver: session::cpu_share(&outcome.receiver).unwrap_or(0.0),
            });
        }
        Ok(())
    }

    /// Who sends at a point, where that is varied.
    fn sender(&self, point: usize) -> Option<&HostSpec> {
        let axis = self.axes.iter().position(|a| a.kind == Kind::Sender)?;
        let number = usize::try_from(*self.points[point].settings.get(axis)?).ok()?;
        self.senders.get(number.checked_sub(1)?)
    }

    /// Has the observer measure the point, right after we did and as often, up to
    /// [`OBSERVED_MAX`] times. Where writes have a declared cost there is nothing to compare:
    /// other programs do not spend it.
    fn observe(
        &mut self,
        n: usize,
        site: &Site,
        config: &Config,
        rtt: Duration,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let Site::Lab { lab, .. } = site else {
            return Ok(());
        };
        let wanted = self.args.transfer.observer == Some(ObserverArg::Iperf3);
        if !wanted
            || !config.costs.is_none()
            || self.points[n].observed.len() >= OBSERVED_MAX as usize
        {
            return Ok(());
        }
        let from = match self.sender(n) {
            Some(host) => lab.host(&host.name)?,
            None => lab.near(),
        };
        let seen = observer::iperf3_point(lab, from, config, rtt, stop)?;
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

    fn config(&self, point: usize) -> Config {
        let mut config = self.base.clone();
        for (axis, &value) in self.axes.iter().zip(&self.points[point].settings) {
            axis.kind.set(&mut config, value);
        }
        if self.args.transfer.observer.is_some() {
            // Like beside like: iperf3's -l is the length of its reads as well.
            config.read_bytes = None;
        }
        if let Some(host) = self.sender(point) {
            config.costs = doctor::costs(host);
            if self.args.transfer.congestion.is_none() {
                config.congestion = Some(host.congestion_control.clone());
            }
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
fn finish(sweep: &mut Sweep, axes: &[Axis], points: Vec<Point>, achievable: Option<Rate>) {
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
    let mut lines = Vec::new();
    for second in seconds {
        let of_curve: Vec<usize> = (0..points.len())
            .filter(|&n| points[n].settings.get(1).copied() == second && !points[n].made.is_empty())
            .collect();
        let estimates: Vec<Estimate> = of_curve
            .iter()
            .filter_map(|&n| points[n].estimate())
            .collect();
        let settings: Vec<u64> = of_curve.iter().map(|&n| points[n].settings[0]).collect();
        let (odd, period) = oddities(axes, &settings, &estimates);
        for place in odd.iter().copied() {
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
        let Some(mut record) = curve_record(axes, second, &line, is_noisy) else {
            continue;
        };
        if axes[0].kind.row().1 == "bytes" {
            record.knee_bytes = record.knee;
            record.full_from_bytes = achievable.and_then(|rate| {
                let level = FULL_SHARE * rate.as_bits_per_second() as f64;
                curve::reaches(&line, level).map(whole)
            });
        }
        if let Some(period) = period {
            record.anomaly_period_bytes = Some(period);
            let places: Vec<u64> = odd.iter().map(|&n| settings[n - 1]).collect();
            record.sentence.push_str(&period_words(period, &places));
        }
        let observed: Vec<f64> = of_curve
            .iter()
            .filter_map(|&n| difference(&points[n]))
            .collect();
        if !observed.is_empty() {
            record.observer_points = u32::try_from(observed.len()).ok();
            record.observer_difference_max = Some(observed.iter().copied().fold(0.0, f64::max));
        }
        lines.push(line);
        sweep.curves.push(record);
    }
    sweep.crossings = crossings(axes, &sweep.curves, &lines);
}

/// The places of a curve's points that stand out, and the size at whose multiples they do: of a curve
/// that falls again and again, where it falls; else what falls out of its neighbours.
fn oddities(axes: &[Axis], settings: &[u64], estimates: &[Estimate]) -> (Vec<usize>, Option<u64>) {
    let falls = curve::drops(estimates);
    let of_bytes = axes.first().is_some_and(|a| a.kind.row().1 == "bytes");
    match curve::period(settings, &falls).filter(|_| of_bytes) {
        Some(period) => (falls, Some(period)),
        None => (curve::anomalies(estimates), None),
    }
}

/// `places`: the settings behind which the curve falls.
fn period_words(period: u64, places: &[u64]) -> String {
    let size = |bytes| {
        report::setting(
            &SweepAxis {
                unit: "bytes".to_owned(),
                ..SweepAxis::default()
            },
            bytes,
        )
    };
    let shown: Vec<String> = places.iter().take(PLACES_SHOWN).map(|&p| size(p)).collect();
    let more = match places.len().saturating_sub(PLACES_SHOWN) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!(
        "; it falls by more than a tenth behind {}{more}: at multiples of {}, as where each page of that \
         size costs",
        shown.join(", "),
        size(period)
    )
}

/// How far the observer's median is from ours, as a share of it.
fn difference(point: &Point) -> Option<f64> {
    let theirs = Estimate::of(&point.observed)?.median;
    let ours = point.estimate()?.median;
    (theirs > 0.0).then(|| (ours / theirs - 1.0).abs())
}

/// Each sender's curve that overtakes another's.
fn crossings(
    axes: &[Axis],
    curves: &[SweepCurve],
    lines: &[Vec<(f64, f64)>],
) -> Vec<SweepCrossing> {
    let [first, second] = axes else {
        return Vec::new();
    };
    if second.kind != Kind::Sender {
        return Vec::new();
    }
    let of_bytes = first.kind.row().1 == "bytes";
    let mut found = Vec::new();
    for (fast, above) in curves.iter().zip(lines) {
        for (slow, below) in curves.iter().zip(lines) {
            let names = fast.name.clone().zip(slow.name.clone());
            let same =
                below.len() == above.len() && below.iter().zip(above).all(|(b, a)| b.0 == a.0);
            let at = curve::overtakes(below, above).filter(|_| same).map(whole);
            if let (Some((name, overtakes)), Some(at)) = (names, at) {
                found.push(SweepCrossing {
                    name,
                    overtakes,
                    at,
                    at_bytes: Some(at).filter(|_| of_bytes),
                });
            }
        }
    }
    found
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
        observer_bits_per_second: Estimate::of(&point.observed).map(|e| whole(e.median)),
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
            Kind::Sender => setting,
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
        name: axes
            .get(1)
            .zip(second)
            .filter(|(other, _)| !other.names.is_empty())
            .map(|(other, value)| report::setting(&axis_record(other), value)),
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
            let met = sweep.crossings.iter().map(|c| {
                let at = report::setting(&sweep.axes[0], whole(two_digits(c.at as f64)));
                format!(" {} overtakes {} at {at}.", capital(&c.name), c.overtakes)
            });
            let met: String = met.collect();
            format!("Knee of {first}: {}.{met}", knees.join(", "))
        }
    }
}

fn capitalised(text: &str) -> String {
    format!("{}.", capital(text))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
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

/// How often an observer measures a point at most: it takes longer than we do.
const OBSERVED_MAX: u32 = 3;
/// What counts as all that a path can carry.
const FULL_SHARE: f64 = 0.9;
/// Places that a sentence names.
const PLACES_SHOWN: usize = 4;
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
    use lab::PathFile;

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
            ("sender", "name the hosts of the path file"),
            ("sender=a,,b", "name the hosts of the path file"),
            ("sender=a,b, a", "each once"),
        ] {
            let said = Axis::parse(typed).unwrap_err();
            assert!(said.contains(says), "{typed}: {said}");
        }
    }

    #[test]
    fn senders_are_numbered_in_the_order_typed_and_shown_by_name() {
        let axis = Axis::parse("sender=solaris, linux").unwrap();
        assert_eq!(axis.values, [1, 2]);
        let record = axis_record(&axis);
        let shown: Vec<String> = (0..4).map(|v| report::setting(&record, v)).collect();
        assert_eq!(shown, ["0", "solaris", "linux", "3"]);
    }

    #[test]
    fn senders_are_hosts_of_the_lab_other_than_the_far_one() {
        let text =
            "title = \"x\"\n[hosts.near]\n[hosts.far]\n[links.l]\nbetween = [\"near\", \"far\"]\n";
        let path = PathFile::parse(std::path::Path::new("x.toml"), text).unwrap();
        let target = Target::Lab(Box::new(path));
        let named = |typed: &str, target: &Target, direction| {
            let axes = [Axis::parse(typed).unwrap()];
            senders(&axes, target, direction).map(|hosts| hosts.len())
        };
        assert_eq!(named("sender=near", &target, Direction::Up), Ok(1));
        assert_eq!(named("streams=1,2", &target, Direction::Down), Ok(0));
        let host = Target::Host("example.org".to_owned());
        for (typed, target, direction, says) in [
            ("sender=far", &target, Direction::Up, "'far' is no host"),
            (
                "sender=near,nera",
                &target,
                Direction::Up,
                "'nera' is no host",
            ),
            ("sender=near", &target, Direction::Down, "send up"),
            ("sender=near", &host, Direction::Up, "hosts of a lab path"),
        ] {
            let said = named(typed, target, direction).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }

    /// Points of one curve, or of several senders, known to a thousandth.
    fn finished(axes: &[Axis], rates: &[&[f64]]) -> Sweep {
        let mut points = combinations(axes);
        let all = rates.iter().flat_map(|r| r.iter());
        for (point, &rate) in points.iter_mut().zip(all) {
            point.made = (1..=3)
                .map(|round| Made {
                    round,
                    bits_per_second: whole(rate * 1e6),
                    cpu_sender: 1.0,
                    cpu_receiver: 0.1,
                })
                .collect();
        }
        points[0].observed = vec![rates[0][0] * 1e6 / 1.04];
        let mut sweep = Sweep {
            axes: axes.iter().map(axis_record).collect(),
            rounds: 3,
            ..Sweep::default()
        };
        let achievable = Rate::from_bits_per_second(100_000_000);
        finish(&mut sweep, axes, points, Some(achievable));
        sweep
    }

    #[test]
    fn a_curve_that_falls_at_multiples_of_a_size_says_which() {
        let axis =
            Axis::parse("write-size=8192B,8256B,14336B,16384B,16448B,22528B,24576B,24640B,30720B");
        let rates = [87.0, 57.0, 85.0, 93.0, 73.0, 90.0, 95.0, 80.0, 93.0];
        let sweep = finished(&[axis.unwrap()], &[&rates]);
        let curve = &sweep.curves[0];
        assert_eq!(curve.anomaly_period_bytes, Some(8192));
        let says = "behind 8 KiB, 16 KiB, 24 KiB: at multiples of 8 KiB";
        assert!(curve.sentence.contains(says), "{}", curve.sentence);
        let marked: Vec<bool> = sweep.points.iter().map(|p| p.anomaly).collect();
        assert_eq!(marked, [0, 1, 0, 0, 1, 0, 0, 1, 0].map(|m| m == 1));
        // 90 % of 100 Mb/s: 16 KiB and, of the next two, 22 KiB.
        assert_eq!(curve.full_from_bytes, Some(16_384));
        assert_eq!(curve.observer_points, Some(1));
        assert!((curve.observer_difference_max.unwrap() - 0.04).abs() < 1e-6);
    }

    #[test]
    fn one_sender_overtakes_another_by_name() {
        let axes = ["write-size=1KiB..16KiB", "sender=slow,fast"].map(|t| Axis::parse(t).unwrap());
        let slow: &[f64] = &[30.0, 40.0, 50.0, 50.0, 50.0];
        let sweep = finished(&axes, &[slow, &[10.0, 20.0, 40.0, 60.0, 90.0]]);
        let [crossing] = sweep.crossings.as_slice() else {
            panic!("{:?}", sweep.crossings)
        };
        let names = (crossing.name.as_str(), crossing.overtakes.as_str());
        assert_eq!(names, ("fast", "slow"));
        assert!((4096..8192).contains(&crossing.at_bytes.unwrap()));
        let names: Vec<_> = sweep.curves.iter().map(|c| c.name.as_deref()).collect();
        assert_eq!(names, [Some("slow"), Some("fast")]);
        assert!(
            sentence(&sweep).contains("Fast overtakes slow at "),
            "{}",
            sentence(&sweep)
        );
        let streams = ["write-size=1KiB..16KiB", "streams=1,2"].map(|t| Axis::parse(t).unwrap());
        let sweep = finished(&streams, &[slow, &[10.0, 20.0, 40.0, 60.0, 90.0]]);
        assert!(sweep.crossings.is_empty() && sweep.curves[0].name.is_none());
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
