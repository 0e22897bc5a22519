//! Many short transfers with one or two settings varied, in rounds of
//! random order, until every point is known; then where the knee is. Where the size of messages is
//! varied, messages are exchanged instead. Senders are hosts of a lab path that take turns.

mod axis;
mod beside;
mod holder;
mod messages;
mod senders;
mod timing;

use std::path::PathBuf;

use explain::sweep::{self as curve, Estimate, Known, Repeats, Schedule, Shape};
use lab::Lab;
use lab::path::HostSpec;
use measure::{
    Approach, Client, Config, Direction, MeasureError, MessageSpec, Outcome, RdmaChoice, Sample,
    SampleKind, Stop, Transport, Verbs, WriteCosts,
};
use report::RunFolder;
use report::model::{Sweep, SweepAxis, SweepCurve, SweepPoint, Verdict as RunVerdict};
use units::{Duration, Histogram, Rate};
use wire::tcp_info::TcpInfo;

use crate::doctor::Finished;
use crate::observer::Tool;
use crate::session::{self, Clients, Site};
use crate::watcher::Watcher;
use axis::{Kind, Reach};
use fault::Failure;
use job::target::Target;
use job::{Context, record};

pub use axis::Axis;

/// What to vary, where, and how long that may take.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One or two settings, as [`axes`] reads them.
    pub axes: Vec<Axis>,
    /// The far end.
    pub target: Target,
    /// How to come to it.
    pub approach: Approach,
    /// The transfer without what is varied.
    pub config: Config,
    /// Whether the transfer's congestion control was named, for senders that have another.
    pub names_congestion: bool,
    /// How long data is sent at each point, if that is set.
    pub duration: Option<Duration>,
    /// Its start that does not count, if that is set.
    pub ramp: Option<Duration>,
    /// Another tool beside it.
    pub observer: Option<Tool>,
    /// Messages: queue pairs that carry them in place of TCP.
    pub verbs: Option<Verbs>,
    /// By which RDMA port.
    pub rdma: RdmaChoice,
    /// Messages: ends that ask again and again instead of sleeping.
    pub spin: bool,
    /// Messages that may be unconfirmed, if that is set.
    pub outstanding: Option<u32>,
    /// Flags that were typed and hold for transfers alone: messages refuse them.
    pub of_transfers: Vec<&'static str>,
    /// Time that it may take.
    pub budget: Duration,
    /// Half of the 95 % confidence interval that points are repeated for, per cent.
    pub precision: f64,
    /// Seed of the order in which points are measured.
    pub seed: u64,
    /// Folder that run folders are made in.
    pub runs: PathBuf,
}

/// Runs the sweep and keeps it.
///
/// # Examples
///
/// ```no_run
/// use doctor::Silent;
/// use doctor::sweep::{self, Plan};
/// use units::Duration;
///
/// let context = job::Context::start(|| {})?;
/// let plan = Plan {
///     axes: sweep::axes(&["write-size=1KiB..1MiB".to_owned()])?,
///     target: job::Target::parse(Some("lab:healthy-1g-20ms"))?,
///     approach: measure::Approach::default(),
///     config: measure::Config::default(),
///     names_congestion: false,
///     duration: None,
///     ramp: None,
///     observer: None,
///     verbs: None,
///     rdma: measure::RdmaChoice::default(),
///     spin: false,
///     outstanding: None,
///     of_transfers: Vec::new(),
///     budget: Duration::from_s(180),
///     precision: 3.0,
///     seed: 1,
///     runs: "runs".into(),
/// };
/// let finished = sweep::perform(plan, &context, &mut Silent)?;
/// println!("{:?}", finished.run.sweep);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn perform(
    mut plan: Plan,
    context: &Context,
    watcher: &mut dyn Watcher,
) -> Result<Finished, Failure> {
    let mut axes = std::mem::take(&mut plan.axes);
    let mut base = plan.config.clone();
    let messages = messages::spec(&plan, &axes, &base).map_err(Failure::usage)?;
    check(&plan, &axes, &base).map_err(Failure::usage)?;
    let senders = senders::of(&axes, &plan.target, base.direction).map_err(Failure::usage)?;
    if !senders.is_empty() {
        // Each sender has its own.
        base.costs = WriteCosts::default();
    }
    // What hangs on the path is settled once a client is there.
    let on_path = |axis: &Axis| axis.kind == Kind::Mtu || base.transport == Transport::Udp;
    for axis in axes.iter_mut().filter(|axis| !on_path(axis)) {
        axis.settle(&Reach::default()).map_err(Failure::usage)?;
    }
    let target = plan.target.clone();
    let mut run = record::begin("measure", &target, context);
    let mut folder = RunFolder::create(&plan.runs, "sweep", &target.name(), run.clone())?;
    let path = folder.path().to_owned();
    let known = match &target {
        Target::Lab(path) => {
            record::knowledge(path, base.direction == Direction::Up).achievable_rate()
        }
        _ => None,
    };
    let mut work = Work {
        plan: &plan,
        senders,
        context,
        watcher,
        achievable: known,
        base,
        messages,
        reach: Reach::default(),
        points: Vec::new(),
        sweep: Sweep {
            axes: axes.iter().map(Axis::record).collect(),
            seed: plan.seed,
            precision: plan.precision / 100.0,
            ..Sweep::default()
        },
        axes,
    };
    let result = work.run(target);
    let (sweep, watcher) = work.finish();
    run.verdict = Some(verdict(&sweep, result.is_ok()));
    run.sweep = Some(sweep);
    record::end_as(&mut run, &result, context);
    let kept = folder.finish(&run, &[]);
    if let Some(code) = context.interrupted() {
        let page = path.join("report.html");
        watcher.note(&format!("what was measured so far: {}", page.display()));
        return Err(Failure::interrupted(code));
    }
    result?;
    kept?;
    Ok(Finished {
        run,
        findings: Vec::new(),
        folder: path,
        document: None,
        failure: None,
    })
}

/// Reads what is to be varied, such as `write-size=1KiB..1MiB`; senders come last.
///
/// # Errors
///
/// A usage failure for what is no such setting or range, and for settings that do not go together.
pub fn axes(typed: &[String]) -> Result<Vec<Axis>, Failure> {
    let read = |typed: &String| {
        Axis::parse(typed).map_err(|e| Failure::usage(format!("--sweep {typed}: {e}")))
    };
    let mut axes: Vec<Axis> = typed.iter().map(read).collect::<Result<_, _>>()?;
    if axes.len() > 2 || (axes.len() == 2 && axes[0].kind == axes[1].kind) {
        return Err(Failure::usage(
            "--sweep: one or two different settings can be varied",
        ));
    }
    if axes.first().is_some_and(|axis| axis.kind == Kind::Sender) {
        // Curves are drawn over quantities.
        axes.reverse();
        if axes.len() == 1 {
            return Err(Failure::usage(
                "--sweep sender goes beside another, such as --sweep write-size",
            ));
        }
    }
    Ok(axes)
}

/// What does not go together.
fn check(plan: &Plan, axes: &[Axis], base: &Config) -> Result<(), String> {
    let messages = messages::wanted(axes, base);
    if let Some(problem) = beside::problem(plan, axes, base) {
        return Err(problem);
    }
    if messages && !base.costs.is_none() {
        return Err(
            "--sweep message-size: messages do not spend what the path file has the sender's writes cost"
                .to_owned(),
        );
    }
    if (plan.spin || plan.outstanding.is_some()) && !messages {
        return Err(
            "--spin and --outstanding hold for messages: --messages, or --sweep message-size over TCP"
                .to_owned(),
        );
    }
    let fits = |kind| matches!(kind, Kind::WriteSize | Kind::Streams);
    let odd = axes.iter().find(|axis| !fits(axis.kind));
    if let (Transport::Quic, Some(axis)) = (base.transport, odd) {
        let name = axis.kind.name();
        return Err(format!(
            "--sweep {name} varies what TCP's sockets have; over quic write-size and streams work"
        ));
    }
    let tcp = matches!(base.transport, Transport::Tcp | Transport::Tls);
    if axes.iter().any(|axis| axis.kind == Kind::Mtu) && !tcp {
        return Err(format!(
            "--sweep mtu limits the segments of TCP and TLS, not of {}",
            base.transport.name()
        ));
    }
    Ok(())
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
        .map(|settings| Point::new(settings, Task::Transfer))
        .collect()
}

/// What is done at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// A transfer.
    Transfer,
    /// Messages in the direction of the sweep.
    OneWay,
    /// Messages both ways at once.
    BothWays,
    /// Messages to and fro.
    ToAndFro,
}

impl Task {
    /// How it stands in run.json; a transfer does not.
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::OneWay => Some("one_way"),
            Self::BothWays => Some("both_ways"),
            Self::Transfer | Self::ToAndFro => None,
        }
    }
}

/// A combination of settings and what was measured there.
#[derive(Debug)]
struct Point {
    settings: Vec<u64>,
    task: Task,
    made: Vec<Made>,
    /// Round trips of messages to and fro, of all rounds.
    round_trips: Option<Histogram>,
    /// Of these the ones that the kernel stamped.
    stamped: Option<measure::Stamped>,
    /// Rates that the observer measured in the same rounds.
    observed: Vec<f64>,
    /// CPUs that the observer used each time, where it says so.
    observers_cpus: Vec<f64>,
    observers: Vec<report::model::Observer>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    round: u32,
    /// Bits a second; of messages to and fro half the median round trip, in nanoseconds.
    value: u64,
    cpu_sender: f64,
    cpu_receiver: f64,
    /// Messages that count.
    messages: u64,
    /// Share of the datagrams that was lost.
    loss: Option<f64>,
    /// Payload of the sender's segments.
    segment_bytes: Option<u64>,
    /// What the receiver's kernel offered the streams, added up.
    window_bytes: Option<u64>,
    /// What the sender's kernel had on the way of it.
    in_flight_bytes: Option<u64>,
    /// Share of the time that windows and send buffers held the streams, by their kernel.
    held: Option<f64>,
    /// The same of the receiver's window and of the send buffer, whatever is varied.
    held_by: Option<[f64; 2]>,
}

impl Point {
    fn new(settings: Vec<u64>, task: Task) -> Self {
        Self {
            settings,
            task,
            made: Vec::new(),
            round_trips: None,
            stamped: None,
            observed: Vec::new(),
            observers_cpus: Vec::new(),
            observers: Vec::new(),
        }
    }

    fn estimate(&self) -> Option<Estimate> {
        Estimate::of(&self.made.iter().map(|m| m.value as f64).collect::<Vec<_>>())
    }

    /// A size that was watched: the median of its measurements.
    fn size(&self, of: fn(&Made) -> Option<u64>) -> Option<f64> {
        let seen: Vec<f64> = self.made.iter().filter_map(of).map(|b| b as f64).collect();
        Estimate::of(&seen).map(|e| e.median)
    }

    /// The share of the time that buffers held it, where that was watched: the mean of its measurements,
    /// since the kernel counts in jiffies.
    fn held(&self) -> Option<f64> {
        let seen: Vec<f64> = self.made.iter().filter_map(|m| m.held).collect();
        (!seen.is_empty()).then(|| seen.iter().sum::<f64>() / seen.len() as f64)
    }

    /// Faster is more: of a latency, its inverse.
    fn speed(&self, value: f64) -> f64 {
        match self.task {
            Task::ToAndFro => 1e9 / value,
            _ => value,
        }
    }
}

struct Work<'a> {
    axes: Vec<Axis>,
    plan: &'a Plan,
    senders: Vec<HostSpec>,
    context: &'a Context,
    watcher: &'a mut dyn Watcher,
    /// What the path can carry, where that is known before measuring.
    achievable: Option<Rate>,
    base: Config,
    /// What messages are exchanged, where it is not transfers that are made.
    messages: Option<MessageSpec>,
    reach: Reach,
    points: Vec<Point>,
    sweep: Sweep,
}

impl<'a> Work<'a> {
    fn run(&mut self, target: Target) -> Result<(), Failure> {
        let stop = self.context.stop.clone();
        let site = Site::open(target, &self.plan.approach)?;
        let phase = match &site {
            Site::Lab { lab, .. } => Some(lab.begin_phase()?),
            _ => None,
        };
        let done = site
            .with_client(&stop, |client| Ok(self.measure(client, &site, &stop)))
            .and_then(|done| done);
        if let (Ok(()), Site::Lab { lab, .. }) = (&done, &site) {
            self.observe_messages(lab, &stop);
        }
        if let Some(phase) = phase {
            self.sweep.certificate = Some(record::certificate(&phase.finish()?));
        }
        done
    }

    fn measure(&mut self, client: Client, site: &Site, stop: &Stop) -> Result<(), Failure> {
        let mut clients = Clients::new(site, client);
        let rtt = clients.near().idle_rtt_until(stop)?.min;
        self.reach = Reach::of(clients.near(), self.base.transport);
        for axis in &mut self.axes {
            axis.settle(&self.reach).map_err(MeasureError::Config)?;
        }
        self.base.apart =
            self.messages.is_none() && timing::apart(clients.near(), &self.base, &self.axes);
        self.time_transfers(rtt);
        if self.messages.is_some() {
            self.prepare_messages(clients.near(), stop)?;
        } else {
            self.points = combinations(&self.axes);
        }
        self.sweep.axes = self.axes.iter().map(Axis::record).collect();
        let begun = std::time::Instant::now();
        let mut schedule = Schedule::new(
            self.points.len(),
            (ROUNDS_MIN, ROUNDS_MAX),
            self.plan.precision / 100.0,
            self.plan.seed,
        );
        while let Some(n) = schedule.next(|n| self.points[n].estimate(), || self.for_knees()) {
            // The first two rounds are had in any case: with fewer there is nothing to say.
            if schedule.round() > 2 && begun.elapsed() > self.plan.budget.to_std() {
                self.sweep.out_of_time = true;
                break;
            }
            self.sweep.rounds = u32::try_from(schedule.round()).unwrap_or(u32::MAX);
            let made = match self.points[n].task {
                Task::Transfer => self.transfer(&mut clients, n, stop)?,
                way => self.exchange(clients.near(), n, way, stop)?,
            };
            let Some(made) = made else { break };
            self.say(n, &made);
            self.points[n].made.push(Made {
                round: self.sweep.rounds,
                ..made
            });
            self.observe_point(n, site, rtt, stop)?;
        }
        Ok(())
    }

    /// The points that the knees need that are not known well enough.
    fn for_knees(&self) -> Vec<usize> {
        let mut wanted = Vec::new();
        for (second, way) in curves_of(&self.axes, self.messages.is_some()) {
            let all = self.points.iter().enumerate();
            let of_curve: Vec<(usize, &Point)> = all
                .filter(|(_, p)| p.task == way && p.settings.get(1).copied() == second)
                .filter(|(_, p)| !p.made.is_empty())
                .collect();
            let points: Vec<&Point> = of_curve.iter().map(|(_, p)| *p).collect();
            let focus = known(&points, self.plan.seed).focus();
            wanted.extend(focus.into_iter().map(|n| of_curve[n].0));
        }
        wanted
    }

    /// One transfer; `None` when the user ended it.
    fn transfer(
        &self,
        clients: &mut Clients<'_>,
        n: usize,
        stop: &Stop,
    ) -> Result<Option<Made>, Failure> {
        let config = self.config(n);
        let from = self.sender(n).map(|host| host.name.as_str());
        let outcome = clients.run(from, &config, stop)?;
        if outcome.interrupted {
            return Ok(None);
        }
        let varies = |kinds: &[Kind]| self.axes.iter().any(|axis| kinds.contains(&axis.kind));
        let datagrams = outcome.datagrams();
        let held_by = holder::shares(&outcome);
        Ok(Some(Made {
            value: outcome.goodput_after_ramp().as_bits_per_second(),
            cpu_sender: session::cpu_share(&outcome.sender).unwrap_or(0.0),
            cpu_receiver: session::cpu_share(&outcome.receiver).unwrap_or(0.0),
            loss: datagrams.map(|d| d.lost as f64 / d.sent.max(1) as f64),
            segment_bytes: segment_bytes(&outcome).filter(|_| varies(&[Kind::Mtu])),
            window_bytes: steady(&outcome, |i| i.snd_wnd_bytes).filter(|_| varies(&BUFFERS)),
            in_flight_bytes: steady(&outcome, in_flight).filter(|_| varies(&BUFFERS)),
            held: held_by
                .map(|[window, buffer]| (window + buffer).min(1.0))
                .filter(|_| varies(&BUFFERS)),
            held_by,
            ..Made::default()
        }))
    }

    /// Has another tool measure the same lab path, if it was asked for.
    fn observe_messages(&mut self, lab: &Lab, stop: &Stop) {
        if self.plan.observer.is_none() || stop.is_stopped() {
            return;
        }
        for point in self.points.iter_mut().filter(|p| p.task == Task::OneWay) {
            let seen = messages::observed(lab, &self.base, point.settings[0], stop);
            point.observers.extend(seen);
        }
    }

    fn time_transfers(&mut self, rtt: Duration) {
        let typed = self.plan;
        (self.base.ramp, self.base.duration) =
            timing::times(rtt, self.base.apart, typed.duration, typed.ramp);
        self.sweep.apart = self.base.apart;
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
            axis.kind.set(&mut config, value, &self.reach);
        }
        if self.plan.observer.is_some() {
            // Like beside like: iperf3's -l is the length of its reads as well.
            config.read_bytes = None;
        }
        if let Some(host) = self.sender(point) {
            config.costs = session::costs(host);
            if !self.plan.names_congestion {
                config.congestion = Some(host.congestion_control.clone());
            }
        }
        config
    }

    fn say(&self, n: usize, made: &Made) {
        let point = &self.points[n];
        let settings: Vec<String> = self
            .sweep
            .axes
            .iter()
            .zip(&point.settings)
            .map(|(axis, &value)| format!("{} {}", axis.name, report::setting(axis, value)))
            .collect();
        let value = match point.task {
            Task::ToAndFro => Duration::from_ns(made.value).to_string(),
            _ => Rate::from_bits_per_second(made.value).to_string(),
        };
        let way = messages::spoken(point.task).map_or_else(String::new, |way| format!(" {way}"));
        tracing::info!("{}{way}: {value}", settings.join(", "));
    }

    fn finish(self) -> (Sweep, &'a mut dyn Watcher) {
        let Self {
            axes,
            points,
            messages,
            achievable,
            mut sweep,
            watcher,
            ..
        } = self;
        conclude(&mut sweep, &axes, &points, messages.as_ref(), achievable);
        (sweep, watcher)
    }
}

/// Medians, anomalies, knees.
fn conclude(
    sweep: &mut Sweep,
    axes: &[Axis],
    points: &[Point],
    messages: Option<&MessageSpec>,
    achievable: Option<Rate>,
) {
    sweep.drift = drift(points, sweep.rounds);
    sweep.points = points
        .iter()
        .filter(|p| p.task != Task::ToAndFro && !p.made.is_empty())
        .map(point_record)
        .collect();
    let mut lines = Vec::new();
    for (second, way) in curves_of(axes, messages.is_some()) {
        let of_curve: Vec<&Point> = points
            .iter()
            .filter(|p| p.task == way && p.settings.get(1).copied() == second)
            .filter(|p| !p.made.is_empty())
            .collect();
        let estimates: Vec<Estimate> = of_curve.iter().filter_map(|p| p.estimate()).collect();
        let settings: Vec<u64> = of_curve.iter().map(|p| p.settings[0]).collect();
        let (odd, period) = oddities(axes, &settings, &estimates);
        for &place in &odd {
            mark(&mut sweep.points, of_curve[place]);
        }
        let line: Vec<(f64, f64)> = settings
            .iter()
            .zip(&estimates)
            .map(|(&setting, e)| (setting as f64, e.median))
            .collect();
        let unsure = estimates.iter().filter(|e| e.error > NOISE_MAX).count();
        let is_noisy = 3 * unsure > estimates.len();
        let lead = lead(axes, second, way);
        let known = known(&of_curve, sweep.seed);
        let Some(made) = curve_record(axes, lead.as_deref(), &known, is_noisy) else {
            continue;
        };
        let mut curve = SweepCurve {
            second,
            name: senders::name(axes, second),
            pattern: way.name().map(str::to_owned),
            ..made
        };
        if axes[0].kind.of_bytes() {
            curve.knee_bytes = curve.knee;
            // What goes both ways is not held against what one way carries.
            let achievable = achievable.filter(|_| way != Task::BothWays);
            curve.full_from_bytes = achievable.and_then(|rate| {
                let level = FULL_SHARE * rate.as_bits_per_second() as f64;
                curve::reaches(&line, level).map(whole)
            });
        }
        if let Some(period) = period {
            curve.anomaly_period_bytes = Some(period);
            let places: Vec<u64> = odd.iter().map(|&n| settings[n - 1]).collect();
            curve.sentence.push_str(&period_words(period, &places));
        }
        let rtt = Duration::from_ns(sweep.rtt_idle_ns);
        beside_knee(&mut curve, &of_curve, &line, rtt);
        beside::record(&mut curve, &of_curve);
        holder::note(&mut curve, axes, &of_curve);
        lines.push(line);
        sweep.curves.push(curve);
    }
    sweep.crossings = senders::crossings(axes, &sweep.curves, &lines);
    if let Some(spec) = messages {
        messages::record(sweep, points, spec);
    }
}

/// Marks the record of a point that stands out.
fn mark(records: &mut [SweepPoint], point: &Point) {
    let is_its = |p: &&mut SweepPoint| {
        p.settings == point.settings && p.pattern.as_deref() == point.task.name()
    };
    if let Some(found) = records.iter_mut().find(is_its) {
        found.anomaly = true;
    }
}

/// What the points of one curve say of its shape.
fn known(points: &[&Point], seed: u64) -> Known {
    let repeats = |p: &&Point| Repeats {
        setting: p.settings[0] as f64,
        made: p.made.iter().map(|m| (m.round, m.value as f64)).collect(),
    };
    Known::of(&points.iter().map(repeats).collect::<Vec<_>>(), seed)
}

/// Where a buffer was varied and the curve has a knee: up to where windows and buffers held the sender for
/// half of the time by its kernel's count, the window offered at the knee, and what the rate there keeps
/// on the way in an idle round trip (the product of bandwidth and delay, RFC 7323, section 1.1).
fn beside_knee(curve: &mut SweepCurve, points: &[&Point], line: &[(f64, f64)], rtt: Duration) {
    let Some(knee) = curve.knee.map(|k| k as f64) else {
        return;
    };
    let setting = |p: &&&Point| p.settings[0] as f64;
    let windows = points.iter();
    let windows = windows.map(|p| Some((setting(&p), p.size(|m| m.window_bytes)?)));
    let shares = points.iter().map(|p| Some((setting(&p), p.held()?)));
    let (Some(windows), Some(shares), Some(rate)) = (
        windows.collect::<Option<Vec<_>>>(),
        shares.collect::<Option<Vec<_>>>(),
        curve::at(line, knee),
    ) else {
        return;
    };
    let product = rate / 8.0 * rtt.as_s_f64();
    curve.knee_window_bytes = curve::at(&windows, knee).map(whole);
    curve.rate_rtt_bytes = Some(whole(product));
    let held = curve::falls_to(&shares, 0.5);
    curve.held_up_to_bytes = held.map(whole);
    let held = held.map_or_else(String::new, |bytes| {
        let upto = about(bytes);
        format!(
            "; the kernel counts the sender as held by windows for half of the time up to {upto}"
        )
    });
    let product = about(product);
    curve
        .sentence
        .push_str(&format!("; rate times round trip there is {product}{held}"));
}

/// The places of a curve's points that stand out, and the size at whose multiples they do: of a curve
/// that falls again and again, where it falls; else what falls out of its neighbours.
fn oddities(axes: &[Axis], settings: &[u64], estimates: &[Estimate]) -> (Vec<usize>, Option<u64>) {
    let falls = curve::drops(estimates);
    let of_bytes = axes.first().is_some_and(|a| a.kind.of_bytes());
    match curve::period(settings, &falls).filter(|_| of_bytes) {
        Some(period) => (falls, Some(period)),
        None => (curve::anomalies(estimates), None),
    }
}

/// `places`: the settings behind which the curve falls.
fn period_words(period: u64, places: &[u64]) -> String {
    let bytes = SweepAxis {
        unit: "bytes".to_owned(),
        ..SweepAxis::default()
    };
    let size = |value| report::setting(&bytes, value);
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

/// The curves of a sweep, by the setting of the second axis or by what is done with messages.
fn curves_of(axes: &[Axis], messages: bool) -> Vec<(Option<u64>, Task)> {
    match axes.get(1) {
        _ if messages => vec![(None, Task::OneWay), (None, Task::BothWays)],
        Some(axis) => axis
            .values
            .iter()
            .map(|&v| (Some(v), Task::Transfer))
            .collect(),
        None => vec![(None, Task::Transfer)],
    }
}

/// How far whole rounds differ.
fn drift(points: &[Point], rounds: u32) -> f64 {
    let medians: Vec<f64> = points
        .iter()
        .map(|p| p.estimate().map_or(f64::NAN, |e| p.speed(e.median)))
        .collect();
    let mut of_rounds: Vec<Vec<(usize, f64)>> = vec![Vec::new(); rounds as usize];
    for (n, point) in points.iter().enumerate() {
        for made in &point.made {
            if let Some(round) = of_rounds.get_mut(made.round.saturating_sub(1) as usize) {
                round.push((n, point.speed(made.value as f64)));
            }
        }
    }
    curve::drift(&of_rounds, &medians)
}

/// What the sender's kernel cut at last.
fn segment_bytes(outcome: &Outcome) -> Option<u64> {
    let samples = outcome.sender.samples.iter().rev();
    let mut seen = samples.map(|s| s.info.snd_mss_bytes);
    seen.find(|&bytes| bytes > 0)
}

/// A size from the sender's kernel: the median of the readings after the ramp, times the streams.
fn steady(outcome: &Outcome, of: fn(&TcpInfo) -> u64) -> Option<u64> {
    let periodic = |s: &&Sample| s.kind == SampleKind::Periodic && s.t >= outcome.config.ramp;
    let seen = outcome.sender.samples.iter().filter(periodic);
    let mut seen: Vec<u64> = seen.map(|s| of(&s.info)).filter(|&b| b > 0).collect();
    seen.sort_unstable();
    Some(seen.get(seen.len() / 2)? * u64::from(outcome.config.streams.max(1)))
}

/// Sent and not yet acknowledged.
fn in_flight(info: &TcpInfo) -> u64 {
    let once = info.bytes_sent.saturating_sub(info.bytes_retrans);
    once.saturating_sub(info.bytes_acked)
}

fn point_record(point: &Point) -> SweepPoint {
    let estimate = point.estimate();
    let median_of = |values: Vec<f64>| Estimate::of(&values).map(|e| e.median);
    let median = |of: fn(&Made) -> f64| median_of(point.made.iter().map(of).collect());
    SweepPoint {
        settings: point.settings.clone(),
        each_bits_per_second: point.made.iter().map(|m| m.value).collect(),
        each_round: point.made.iter().map(|m| m.round).collect(),
        goodput_bits_per_second: estimate.map_or(0, |e| whole(e.median)),
        error: estimate.map(|e| e.error).filter(|e| e.is_finite()),
        anomaly: false,
        cpu_sender: median(|m| m.cpu_sender).unwrap_or(0.0),
        cpu_receiver: median(|m| m.cpu_receiver).unwrap_or(0.0),
        pattern: point.task.name().map(str::to_owned),
        messages: messages::rate(point),
        loss: median_of(point.made.iter().filter_map(|m| m.loss).collect()),
        segment_bytes: point.made.iter().rev().find_map(|m| m.segment_bytes),
        window_bytes: point.size(|m| m.window_bytes).map(whole),
        in_flight_bytes: point.size(|m| m.in_flight_bytes).map(whole),
        held_share: point.held(),
        observer_bits_per_second: Estimate::of(&point.observed).map(|e| whole(e.median)),
        observer_without_cpu: beside::without_cpu(point),
        observers: point.observers.clone(),
    }
}

/// What sets a curve apart from the others.
fn lead(axes: &[Axis], second: Option<u64>, way: Task) -> Option<String> {
    if let Some(way) = messages::spoken(way) {
        return Some(way.to_owned());
    }
    let (other, value) = axes.get(1).zip(second)?;
    let setting = report::setting(&other.record(), value);
    Some(match other.kind {
        Kind::WriteSize => format!("{setting} writes"),
        Kind::Sender => setting,
        Kind::Streams if value == 1 => "1 stream".to_owned(),
        Kind::Streams => format!("{setting} streams"),
        kind => format!("{} {setting}", kind.spoken()),
    })
}

/// A curve of which more than a third of the points is not known to [`NOISE_MAX`] has no shape.
fn curve_record(
    axes: &[Axis],
    lead: Option<&str>,
    known: &Known,
    is_noisy: bool,
) -> Option<SweepCurve> {
    let line = &known.line;
    let (axis, spoken) = (axes.first()?.record(), axes[0].kind.spoken());
    let say = |value: f64| report::setting(&axis, whole(value));
    let rate = |bits: f64| Rate::from_bits_per_second(whole(bits));
    let with = lead.map_or_else(String::new, |l| format!("{l}: "));
    let shape = if is_noisy {
        Shape::Unknown
    } else {
        known.shape
    };
    let (name, sentence) = match shape {
        Shape::Knee { at, first, plateau } => (
            "knee",
            format!(
                "{with}the knee is at a {spoken} of {}{} (first measured: {}); the plateau is {}",
                knee_words(&axis, at),
                between_words(&axis, at, known.between),
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
    Some(SweepCurve {
        shape: name.to_owned(),
        sentence,
        ..of_shape(shape, known)
    })
}

/// A shape in numbers.
fn of_shape(shape: Shape, known: &Known) -> SweepCurve {
    match shape {
        Shape::Knee { at, first, plateau } => SweepCurve {
            knee: Some(whole(at)),
            knee_low: known.between.map(|(low, _)| whole(low)),
            knee_high: known.between.map(|(_, high)| whole(high)),
            knee_measured: Some(whole(first)),
            plateau_bits_per_second: Some(whole(plateau)),
            ..SweepCurve::default()
        },
        Shape::Flat { plateau } => SweepCurve {
            plateau_bits_per_second: Some(whole(plateau)),
            ..SweepCurve::default()
        },
        _ => SweepCurve::default(),
    }
}

/// What the sweep means; nothing where its lab fell behind, though its curves are kept.
fn verdict(sweep: &Sweep, is_whole: bool) -> RunVerdict {
    let behind = record::fell_behind(sweep.certificate.as_ref());
    let behind = behind.filter(|_| !sweep.points.is_empty());
    let known = |c: &SweepCurve| c.shape != "noisy" && c.shape != "unknown";
    RunVerdict {
        conclusive: is_whole && behind.is_none() && sweep.curves.iter().any(known),
        sentence: behind.unwrap_or_else(|| sentence(sweep)),
        ..RunVerdict::default()
    }
}

/// The sweep in one sentence: the only curve's, or how the knees lie.
fn sentence(sweep: &Sweep) -> String {
    if sweep.points.is_empty() || sweep.curves.is_empty() {
        return "Nothing was measured to its end.".to_owned();
    }
    match sweep.curves.as_slice() {
        [only] => capitalised(&only.sentence),
        _ if sweep.messages.is_some() => messages::sentence(sweep),
        several => {
            let [first, second] = [0, 1].map(|n| sweep.axes.get(n).map_or("", |a| a.name.as_str()));
            let knees: Vec<String> = several
                .iter()
                .filter_map(|c| {
                    let with = report::setting(sweep.axes.get(1)?, c.second?);
                    let at = match c.knee {
                        Some(at) => knee_words(&sweep.axes[0], at as f64),
                        None => format!("none ({})", c.shape),
                    };
                    Some(format!("{at} with {second} {with}"))
                })
                .collect();
            let met = senders::met(sweep);
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

/// A knee with its unit, to two digits.
fn knee_words(axis: &SweepAxis, at: f64) -> String {
    match axis.unit.as_str() {
        "bytes" if axis.name != Kind::Mtu.name() => about(at),
        _ => report::setting(axis, whole(two_digits(at))),
    }
}

/// A knee's interval, where it is wider than what two digits say.
fn between_words(axis: &SweepAxis, at: f64, between: Option<(f64, f64)>) -> String {
    let Some((low, high)) = between else {
        return String::new();
    };
    let [at, low, high] = [at, low, high].map(|value| knee_words(axis, value));
    match low == at && high == at {
        true => String::new(),
        false => format!(", 95 % between {low} and {high}"),
    }
}

/// A size to two digits, which are those of a decimal.
fn about(bytes: f64) -> String {
    let bytes = two_digits(bytes);
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|(scale, _)| bytes >= *scale);
    let (scale, unit) = unit.unwrap_or((1.0, "B"));
    format!("{} {unit}", bytes / scale)
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

/// What sets how much may be on the way.
const BUFFERS: [Kind; 3] = [Kind::SocketBuffer, Kind::SendBuffer, Kind::ReceiveBuffer];
/// What counts as all that a path can carry.
const FULL_SHARE: f64 = 0.9;
/// Places that a sentence names.
const PLACES_SHOWN: usize = 4;
const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 20;
/// Half an interval, as a share of the mean, above which a point says little of a curve's shape.
const NOISE_MAX: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of one curve, or of several senders, known to a thousandth.
    pub(super) fn finished(axes: &[Axis], rates: &[&[f64]]) -> Sweep {
        let mut points = combinations(axes);
        let all = rates.iter().flat_map(|r| r.iter());
        for (point, &rate) in points.iter_mut().zip(all) {
            point.made = (1..=3)
                .map(|round| Made {
                    round,
                    value: whole(rate * 1e6),
                    ..Made::default()
                })
                .collect();
        }
        points[0].observed = vec![rates[0][0] * 1e6 / 1.04];
        let mut sweep = Sweep {
            axes: axes.iter().map(Axis::record).collect(),
            rounds: 3,
            ..Sweep::default()
        };
        let achievable = Rate::from_bits_per_second(100_000_000);
        conclude(&mut sweep, axes, &points, None, Some(achievable));
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
        assert_eq!(curve.observer_points_with_cpu, Some(1));
        assert_eq!(curve.observer_faster_max, Some(0.0));
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
    fn what_goes_both_ways_is_not_held_against_what_one_way_carries() {
        let axes = [Axis::parse("message-size=2,4,8").unwrap()];
        let made = |value| Made {
            round: 1,
            value,
            ..Made::default()
        };
        let of_way = |way| {
            [2, 4, 8].map(|size| Point {
                made: vec![made(95_000_000); 3],
                ..Point::new(vec![size], way)
            })
        };
        let points: Vec<Point> = [Task::OneWay, Task::BothWays]
            .into_iter()
            .flat_map(of_way)
            .collect();
        let mut sweep = Sweep::default();
        let achievable = Some(Rate::from_bits_per_second(100_000_000));
        let spec = MessageSpec::default();
        conclude(&mut sweep, &axes, &points, Some(&spec), achievable);
        let full: Vec<_> = sweep.curves.iter().map(|c| c.full_from_bytes).collect();
        assert_eq!(full, [Some(2), None]);
    }

    #[test]
    fn a_knee_of_buffers_stands_beside_what_was_on_the_way() {
        let axes = [Axis::parse("socket-buffer=64KiB..1MiB/8").unwrap()];
        // 100 Mb/s and 40 ms: 500 kB.
        let rtt = Duration::from_ms(40);
        let mut points = combinations(&axes);
        for point in &mut points {
            let buffer = point.settings[0];
            let rate = (buffer * 8 * 1000 / 40).min(100_000_000);
            let made = Made {
                value: rate,
                window_bytes: Some(buffer * 5 / 4),
                in_flight_bytes: Some(rate / 8 * 40 / 1000),
                held: Some(if buffer < 500_000 { 0.8 } else { 0.2 }),
                ..Made::default()
            };
            point.made = (1..=3).map(|round| Made { round, ..made }).collect();
        }
        let mut sweep = Sweep {
            axes: axes.iter().map(Axis::record).collect(),
            rounds: 3,
            rtt_idle_ns: rtt.as_ns(),
            ..Sweep::default()
        };
        conclude(&mut sweep, &axes, &points, None, None);
        let curve = &sweep.curves[0];
        let near = |found: Option<u64>, wanted: u64| {
            let found = found.unwrap();
            assert!(found.abs_diff(wanted) * 50 < wanted, "{found} for {wanted}");
        };
        // 95 % of the plateau.
        near(curve.knee_bytes, 475_000);
        near(curve.rate_rtt_bytes, 475_000);
        near(curve.knee_window_bytes, 475_000 * 5 / 4);
        // Half way between the settings before and after.
        near(curve.held_up_to_bytes, 502_000);
        let says = "rate times round trip there is 480 kB; the kernel counts the sender as held by \
                    windows for half of the time up to 500 kB";
        assert!(curve.sentence.contains(says), "{}", curve.sentence);
        // Where no buffer was varied nothing of it is said.
        let other = [Axis::parse("write-size=64KiB..1MiB").unwrap()];
        for point in &mut points {
            for made in &mut point.made {
                (made.window_bytes, made.held) = (None, None);
            }
        }
        conclude(&mut sweep, &other, &points, None, None);
        let curve = sweep.curves.last().unwrap();
        assert!(curve.knee.is_some() && curve.knee_window_bytes.is_none());
    }

    #[test]
    fn a_sweep_over_a_lab_that_fell_behind_has_no_verdict() {
        let axis = Axis::parse("write-size=1KiB..8KiB").unwrap();
        let mut sweep = finished(&[axis], &[&[10.0, 20.0, 40.0, 40.0]]);
        let trusted = |trusted| report::model::Certificate {
            trusted,
            ..Default::default()
        };
        let said = sentence(&sweep);
        for certificate in [None, Some(trusted(true))] {
            sweep.certificate = certificate;
            let good = verdict(&sweep, true);
            assert_eq!((good.conclusive, &good.sentence), (true, &said));
        }
        assert!(!verdict(&sweep, false).conclusive);
        sweep.certificate = Some(trusted(false));
        let bad = verdict(&sweep, true);
        assert!(!bad.conclusive);
        assert!(bad.sentence.contains("fell behind"), "{}", bad.sentence);
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
        let made = |value: f64| vec![(1, value), (2, value)];
        let points = line.iter().map(|&(setting, value)| Repeats {
            setting,
            made: made(value),
        });
        let known = Known::of(&points.collect::<Vec<_>>(), 1);
        let curve = |is_noisy| curve_record(&axes, None, &known, is_noisy).unwrap();
        assert_eq!(
            (curve(false).shape.as_str(), curve(false).knee_measured),
            ("knee", Some(8192))
        );
        let noisy = curve(true);
        assert_eq!((noisy.shape.as_str(), noisy.knee), ("noisy", None));
        assert!(noisy.sentence.contains("--budget"), "{}", noisy.sentence);
    }

    #[test]
    fn a_knees_interval_is_said_where_its_digits_are_not_sure() {
        let axis = Axis::parse("write-size=1KiB..64KiB").unwrap().record();
        let said = |between| between_words(&axis, 7_800.0, between);
        assert_eq!(said(None), "");
        assert_eq!(said(Some((7_760.0, 7_840.0))), "");
        let wide = said(Some((7_130.0, 8_400.0)));
        assert_eq!(wide, ", 95 % between 7.1 kB and 8.4 kB");
    }

    #[test]
    fn the_points_around_a_noisy_knee_are_measured_again() {
        let axes = [Axis::parse("write-size=1KiB..64KiB").unwrap()];
        let mut points = combinations(&axes);
        let rates = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 7.0];
        for (point, rate) in points.iter_mut().zip(rates) {
            point.made = (1..=3)
                .map(|round| Made {
                    round,
                    value: whole(rate * 1e9 * (1.0 + 0.1 * f64::from(round % 2))),
                    ..Made::default()
                })
                .collect();
        }
        let again = |points: &[Point]| {
            let of_curve: Vec<&Point> = points.iter().collect();
            known(&of_curve, 1).focus()
        };
        // All alike in each round: the machine's drift.
        assert!(again(&points).is_empty());
        points[2].made[0].value /= 2;
        points[3].made[1].value /= 2;
        assert_eq!(again(&points), [3, 4, 5]);
    }

    #[test]
    fn a_knee_is_said_to_two_digits() {
        assert_eq!(two_digits(134_912.0), 130_000.0);
        assert_eq!(two_digits(1.0), 1.0);
        assert_eq!(two_digits(97.0), 97.0);
        let said = [97.4, 1_024.0, 128_300.0, 322_900.0, 1_310_720.0, 2e9].map(about);
        assert_eq!(said, ["97 B", "1 kB", "130 kB", "320 kB", "1.3 MB", "2 GB"]);
    }
}
