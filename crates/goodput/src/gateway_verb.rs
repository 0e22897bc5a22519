//! `goodput gateway`: a transparent split-TCP gateway.
//!
//! What it does to the machine is printed first. The table of nftables belongs to the process and goes with
//! it; the routing rule is taken away by the process, or, when that is killed, by a guard that waits for
//! its end. `check` looks at everything without a change that lasts, `--dry-run` prints what would be done.

mod control;
mod decision_log;
mod exact;
mod file;
mod guard;
mod published;
mod recorded;
mod renew;
mod reread;
mod status;
mod steady;
mod successor;
mod systemd;
mod trial;
mod watchdog;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use gateway::check::{Checked, Level};
use gateway::config::{Config, ConfigError, Mode, Pacing, Spread, Zone, ZoneConfig};
use gateway::decisions::LogConfig;
use gateway::install::{self, QueueBy};
use gateway::rules::{Action, Block, Ports, Rule};
use gateway::{Gateway, GatewayError};
use report::RunFolder;
use sys::clock;
use units::{Bytes, Duration};

use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use file::ConfigFile;
use recorded::Recorder;
use status::{Status, words};

/// What `goodput gateway` takes.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    verb: Option<GatewayVerb>,
    #[command(flatten)]
    flags: Flags,
    /// Print what would be done to this machine, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the counts at the end as JSON instead of text
    #[arg(long)]
    json: bool,
    /// Where run folders are kept
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Answer http://127.0.0.1:PORT/metrics in OpenMetrics, or at an address with a port
    #[arg(long, value_name = "PORT")]
    metrics: Option<String>,
    /// Go on for the gateway that runs: its connections, what waits, what it did to this machine
    #[arg(long)]
    take_over: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum GatewayVerb {
    /// Look at everything that a gateway needs, and change nothing
    Check(Box<CheckArgs>),
    /// Show what a running gateway has done
    Status(StatusArgs),
    /// Have a running gateway read its file again: rules, limits and options of new connections
    Reload(TellArgs),
    /// Have a running gateway take nobody up any more and end with its last connection
    Drain(TellArgs),
    /// Try a gateway of a lab: what passes, how large segments are on either side, what each link carries
    Trial(Box<trial::TrialArgs>),
    /// Have a running gateway start its program's file again, which goes on for it; no connection ends
    Upgrade(TellArgs),
    /// Print a unit file for systemd
    Unit,
    /// Take away the routing rules that a killed gateway left; one that runs keeps its own
    Clean(Box<CleanArgs>),
    /// What takes rules away when the gateway was killed
    #[command(hide = true)]
    Guard(guard::GuardArgs),
}

#[derive(Clone, Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    flags: Flags,
    /// Look by which side packets to this host inside leave
    #[arg(long, value_name = "ADDRESS")]
    inside_host: Option<std::net::IpAddr>,
    /// The same of a host outside
    #[arg(long, value_name = "ADDRESS")]
    outside_host: Option<std::net::IpAddr>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct CleanArgs {
    #[command(flatten)]
    flags: Flags,
}

#[derive(Clone, Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    which: TellArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// The same for collectors of OpenMetrics
    #[arg(long, conflicts_with = "json")]
    openmetrics: bool,
    /// Have it draw its report as it stands, and say where
    #[arg(long, conflicts_with_all = ["json", "openmetrics", "watch"])]
    report: bool,
    /// Show it anew each second, with the busiest connections, until Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "openmetrics"])]
    watch: bool,
    /// How many of the busiest connections, up to 1000
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    top: u16,
}

/// Which gateway is meant.
#[derive(Clone, Debug, Args)]
struct TellArgs {
    /// Its control socket, if not the one of this network namespace
    #[arg(long, value_name = "FILE")]
    control: Option<PathBuf>,
}

/// What a gateway is told.
#[derive(Clone, Debug, Args)]
struct Flags {
    /// Interfaces on the hosts' side
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    inside: Vec<String>,
    /// Interfaces on the network's side
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    outside: Vec<String>,
    /// File with all that can be set; flags go before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Split only these ports of servers, such as 80,5000-6000 [default: all]
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    ports: Vec<Ports>,
    /// Pass these servers' connections on unsplit, such as 10.0.0.0/8
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    bypass: Vec<Block>,
    /// Not transparent: accept connections at this address, with --target
    #[arg(long, value_name = "ADDRESS:PORT", requires = "target")]
    listen: Option<std::net::SocketAddr>,
    /// Where what was accepted at --listen goes on to
    #[arg(long, value_name = "ADDRESS:PORT", requires = "listen")]
    target: Option<std::net::SocketAddr>,
    /// Send and receive buffers of sockets inside [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    inside_buffer: Option<Bytes>,
    /// The same outside
    #[arg(long, value_name = "SIZE")]
    outside_buffer: Option<Bytes>,
    /// Congestion control inside [default: this machine's]
    #[arg(long, value_name = "NAME")]
    inside_congestion: Option<String>,
    /// The same outside
    #[arg(long, value_name = "NAME")]
    outside_congestion: Option<String>,
    /// Pace each connection at this rate at most, outside; or even: just under what its path is found to take
    #[arg(long, value_name = "RATE")]
    outside_pacing: Option<Pacing>,
    /// How connections are spread over several interfaces of a side: least-load, hash or measured
    #[arg(long, value_name = "HOW")]
    spread: Option<Spread>,
    /// Let about every N-th connection pass unsplit and count what it carries, to hold the model against it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    unsplit_every: Option<u32>,
    /// Write a line of JSON for what becomes of each connection, to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Threads that carry connections, a power of two [default: 1]
    #[arg(long, value_name = "N")]
    workers: Option<u8>,
    /// How long connections may go on after the first request to stop [default: 30s]
    #[arg(long, value_name = "TIME")]
    drain: Option<Duration>,
    /// Control socket [default: one in /run for this network namespace; in RUNTIME_DIRECTORY where systemd sets that]
    #[arg(long, value_name = "FILE")]
    control: Option<PathBuf>,
}

pub(crate) const GATEWAY_EXAMPLES: &str = "\
Examples:
  goodput gateway check --inside eth1 --outside eth2     what is missing, without a change
  goodput gateway --inside eth1 --outside eth2 --dry-run
  goodput gateway --inside eth1 --outside eth2 --outside-buffer 32MiB --outside-congestion bbr
  goodput gateway --config /etc/goodput/gateway.toml
  goodput gateway status
  goodput gateway --listen 0.0.0.0:5001 --target 192.0.2.7:5001     where nothing can be intercepted";

/// Runs one of the gateway's verbs.
pub(crate) fn command(args: &GatewayArgs, start: impl FnOnce() -> StartResult) -> Verdict {
    match &args.verb {
        None if args.dry_run => dry_run(&args.flags),
        None => run(args, start),
        Some(GatewayVerb::Check(check)) => look(check),
        Some(GatewayVerb::Status(status)) => control::status(status),
        Some(GatewayVerb::Reload(which)) => control::tell(which, "reload"),
        Some(GatewayVerb::Drain(which)) => control::tell(which, "drain"),
        Some(GatewayVerb::Trial(args)) => trial::command(args),
        Some(GatewayVerb::Upgrade(which)) => control::tell(which, "renew"),
        Some(GatewayVerb::Unit) => {
            context::print(UNIT)?;
            Ok(failure::DONE)
        }
        Some(GatewayVerb::Clean(args)) => guard::clean(&args.flags.read()?),
        Some(GatewayVerb::Guard(guard)) => guard::command(guard),
    }
}

/// A trial out of words as they would be typed behind `goodput gateway`.
pub(crate) fn step(
    args: &GatewayArgs,
    runs: &Path,
    context: &Context,
) -> Result<(serde_json::Value, PathBuf), Failure> {
    match &args.verb {
        Some(GatewayVerb::Trial(args)) => trial::step(args, runs, context),
        _ => Err(Failure::usage(anyhow::anyhow!(
            "of the gateway's verbs only trial can be judged"
        ))),
    }
}

/// Signals blocked and waited for.
pub(crate) type StartResult = Result<Context, Failure>;

impl Flags {
    /// The file, if there is one, and the flags on top of it.
    fn read(&self) -> Result<Config, Failure> {
        let file = self.config.as_deref().map(ConfigFile::open).transpose()?;
        let mut config = match &file {
            None => Config::default(),
            Some(file) => file.parse()?,
        };
        let mut written = config.clone();
        let [inside, outside] = &mut config.zones;
        put_names(inside, &self.inside);
        put_names(outside, &self.outside);
        put(&mut inside.buffer, self.inside_buffer);
        put(&mut outside.buffer, self.outside_buffer);
        put(&mut inside.congestion, self.inside_congestion.clone());
        put(&mut outside.congestion, self.outside_congestion.clone());
        put(&mut outside.pacing, self.outside_pacing);
        if let Some(spread) = self.spread {
            for zone in &mut config.zones {
                zone.spread = spread;
            }
        }
        put(&mut config.unsplit_every, self.unsplit_every);
        if let Some(file) = &self.log {
            let log = config
                .log
                .get_or_insert_with(|| LogConfig::to(file.clone()));
            log.file.clone_from(file);
        }
        if let Some(workers) = self.workers {
            config.workers = workers;
        }
        if let Some(drain) = self.drain {
            config.drain = drain;
        }
        for block in &self.bypass {
            config
                .rules
                .put_first(rule(Action::Bypass, Some(*block), &[]));
        }
        if !self.ports.is_empty() {
            config
                .rules
                .put_last(rule(Action::Split, None, &self.ports));
            config.rules.put_last(rule(Action::Bypass, None, &[]));
        }
        if let (Some(listen), Some(target)) = (self.listen, self.target) {
            config.mode = Mode::Explicit { listen, target };
        }
        config.check().map_err(|e| {
            // Who is where may come from flags, and the rest be wrong without them.
            written.mode = config.mode.clone();
            for (own, all) in written.zones.iter_mut().zip(&config.zones) {
                own.interfaces.clone_from(&all.interfaces);
            }
            match &file {
                Some(file) if written.check().as_ref() == Err(&e) => {
                    Failure::usage(anyhow::anyhow!(file.told(&e)))
                }
                _ => Failure::usage(e),
            }
        })?;
        Ok(config)
    }

    /// What a running gateway cannot become, with its place in the file.
    fn told(&self, error: &ConfigError) -> String {
        let file = self.config.as_deref().map(ConfigFile::open);
        match file {
            Some(Ok(file)) => file.told(error),
            _ => error.to_string(),
        }
    }
}

fn put<T>(place: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *place = value;
    }
}

fn put_names(zone: &mut ZoneConfig, names: &[String]) {
    if !names.is_empty() {
        zone.interfaces = names.to_vec();
    }
}

fn rule(action: Action, server: Option<Block>, ports: &[Ports]) -> Rule {
    Rule {
        action,
        server,
        ports: ports.to_vec(),
        ..Rule::default()
    }
}

fn dry_run(flags: &Flags) -> Verdict {
    let config = flags.read()?;
    if let Some(absent) = gateway::check::absent_interface(&config) {
        return Err(Failure::here(anyhow::anyhow!(
            "{absent}; name an interface of `ip link`"
        )));
    }
    if config.mode == Mode::Transparent {
        // Who may not ask sees what most kernels have.
        let queue = QueueBy::find().ok().flatten().unwrap_or(QueueBy::Nftables);
        context::print(&install::text(&config, queue))?;
    } else {
        context::print("nothing is changed: connections are made to the gateway\n")?;
    }
    Ok(failure::DONE)
}

fn look(args: &CheckArgs) -> Verdict {
    let config = args.flags.read()?;
    let mut list = gateway::check::check(&config);
    list.extend(gateway::check::ways(
        &config,
        args.inside_host,
        args.outside_host,
    ));
    if args.json {
        context::print_json(&list)?;
    } else {
        context::print(&list.iter().map(line).collect::<String>())?;
    }
    let missing = list.iter().filter(|c| c.level == Level::Missing).count();
    match missing {
        0 => Ok(failure::DONE),
        _ => Err(Failure::here(anyhow::anyhow!(
            "the gateway cannot run here: {missing} of {} things are missing",
            list.len()
        ))),
    }
}

fn line(checked: &Checked) -> String {
    let mark = match checked.level {
        Level::Fine => "ok     ",
        Level::Poor => "poor   ",
        Level::Missing => "MISSING",
    };
    let advice = match checked.advice.as_str() {
        "" => String::new(),
        advice => format!(": {advice}"),
    };
    format!("{mark} {}{advice}\n", checked.what)
}

/// What takes privileges comes first; then the process has those of a gateway and no others.
fn run(args: &GatewayArgs, start: impl FnOnce() -> StartResult) -> Verdict {
    let config = args.flags.read()?;
    gateway::make_room_for(config.limits.connections);
    let mut folder = recorded::begin(&args.runs, &config);
    let kept = sys::privilege::keep_network_only();
    let ended = kept
        .map_err(Failure::here)
        .and_then(|()| carry(args, config, &mut folder, &start()?));
    if let Some(unused) = folder {
        unused.discard();
    }
    ended
}

fn carry(
    args: &GatewayArgs,
    config: Config,
    folder: &mut Option<RunFolder>,
    context: &Context,
) -> Verdict {
    let transparent = config.mode == Mode::Transparent;
    let log = config.log.as_ref().map(decision_log::DecisionLog::open);
    let mut log = log.transpose()?;
    let publish = |typed| published::Published::at(typed, args.take_over);
    let mut published = args.metrics.as_deref().map(publish).transpose()?;
    if transparent
        && !args.take_over
        && let Ok(Some(queue)) = QueueBy::find()
    {
        context::note(format_args!("gateway: on this machine, until it ends:"));
        context::note(install::text(&config, queue).trim_end());
    }
    // Before anything that it is to take away.
    let guard = transparent
        .then(|| {
            let links = install::link_tables(&config).len();
            guard::Guard::start(install::diversion(&config), links)
        })
        .transpose()?;
    let mut drain = config.drain;
    let [inside, outside] = Zone::BOTH.map(|z| config.zone(z).interfaces.join(","));
    let file = args.flags.control.as_deref();
    let recorded = config.clone();
    let started = match args.take_over {
        true => control::Control::take_over(file, config),
        false => {
            let control = control::Control::open(file);
            let started = Gateway::start(config).map_err(Failure::from);
            started.map(|gateway| (gateway, control))
        }
    };
    let (mut gateway, mut control) = match started {
        Ok(started) => started,
        Err(e) => {
            // What is there may be another one's.
            if let Some(guard) = guard {
                guard.dismiss();
            }
            return Err(e);
        }
    };
    if let Some(log) = &mut log {
        log.listen(gateway.decisions());
    }
    if args.take_over {
        let live = gateway.counts().live;
        context::note(format_args!(
            "gateway: goes on for the one that ran, with {live} connections"
        ));
    }
    match transparent {
        true => context::note(format_args!(
            "gateway: splitting between {inside} and {outside}; Ctrl-C lets connections end, twice ends \
             them"
        )),
        false => context::note("gateway: accepting; Ctrl-C lets connections end, twice ends them"),
    }
    // Who was started by another gateway is another process than the one that systemd knows.
    watchdog::notify(&format!("MAINPID={}\nREADY=1", std::process::id()));
    let mut recorder = folder
        .take()
        .map(|folder| Recorder::begin(folder, &gateway, &recorded));
    let mut watchdog = watchdog::Watchdog::new();
    let mut successor: Option<successor::Successor> = None;
    let mut draining_until = None;
    let mut handed_over = false;
    while !gateway.is_over() {
        let sums = || recorder.as_ref().map(Recorder::sums);
        let asked = control
            .as_ref()
            .map(|c| c.serve(&gateway, context, sums, || args.flags.read()));
        match asked {
            Some(Some(control::Asked::Reload(config, asker))) => {
                let (bounds, new) = (config.log.clone(), config.drain);
                let result = gateway.reload(*config);
                if result.is_ok() {
                    drain = new;
                    if let Some(log) = &mut log {
                        log.become_another(bounds.as_ref());
                    }
                }
                asker.answer(result.map_err(|e| args.flags.told(&e)));
            }
            Some(Some(control::Asked::Drain)) => context.stop.stop(),
            Some(Some(control::Asked::Report(asker))) => {
                asker.answer_with(draw(&mut recorder, &gateway))
            }
            Some(Some(control::Asked::Upgrade(asker))) => match successor {
                Some(_) => asker.answer(Err("that is under way".to_owned())),
                None => successor = successor::Successor::start(asker),
            },
            Some(Some(control::Asked::HandOver(mut to))) => {
                let socket = control.as_ref().map(control::Control::socket);
                match gateway.hand_over(&mut to, socket) {
                    Ok(()) => {
                        handed_over = true;
                        // Before this process ends: with its main process systemd ends all others of the unit.
                        if let Ok(peer) = to.peer() {
                            watchdog::notify(&format!("MAINPID={}", peer.pid));
                        }
                    }
                    Err(e) => context::note(format_args!("gateway: goes on itself: {e}")),
                }
            }
            Some(None) => {}
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
        if let Some(started) = successor.take() {
            successor = started.look(handed_over);
        }
        if handed_over {
            if let Some(control) = &mut control {
                control.leave();
            }
            break;
        }
        if let Some(log) = &mut log {
            log.look();
        }
        watchdog.look(&mut gateway);
        recorder = recorder.and_then(|r| r.look(&gateway));
        if let Some(published) = &mut published {
            published.look(&gateway, recorder.as_ref());
        }
        let now = clock::monotonic();
        match draining_until {
            None if context.stop.is_stopped() => {
                watchdog::notify("STOPPING=1");
                gateway.drain();
                draining_until = Some(now + drain);
                let live = gateway.counts().live;
                if live > 0 {
                    context::note(format_args!(
                        "gateway: {live} connections may go on for {drain}; what comes passes unsplit"
                    ));
                }
            }
            Some(until) if now >= until => break,
            _ => {}
        }
    }
    let counts = gateway.stop();
    if let Some(log) = log {
        log.end();
    }
    let counts = counts.map_err(Failure::here)?;
    if let Some(guard) = guard {
        guard.dismiss();
    }
    let kept = recorder.map(|r| r.end(counts)).transpose();
    if handed_over {
        context::note("gateway: another process goes on; counts go with it");
        return kept.map(|_| failure::DONE);
    }
    match args.json {
        true => {
            context::print_json(&Status::of(counts, Vec::new()))?;
        }
        false => context::print(&words(&counts))?,
    }
    if let Some(folder) = kept? {
        context::note(format_args!("kept in {}", folder.display()));
    }
    Ok(failure::DONE)
}

/// Has the report drawn; where it is, or why it is not.
fn draw(recorder: &mut Option<Recorder>, gateway: &Gateway) -> Result<String, String> {
    let recorder = recorder.as_mut().ok_or("it has no run folder")?;
    let file = recorder.draw(gateway).map_err(|e| e.to_string())?;
    Ok(file.display().to_string())
}

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Config(_) => Self::usage(error),
            _ => Self::here(error),
        }
    }
}

const UNIT: &str = include_str!("gateway_verb/goodput-gateway.service");
