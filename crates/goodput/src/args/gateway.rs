//! `goodput gateway`: a transparent split-TCP gateway.
//!
//! What it does to the machine is printed first. `check` looks at everything without a change that
//! lasts, `--dry-run` prints what would be done.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fault::{Failure, Verdict};
use gateway::check::Level;
use gateway::client::{self, Order};
use gateway::config::{Mode, Pacing, Spread};
use gateway::daemon::{self, Prepared, guard};
use gateway::install::{self, QueueBy};
use gateway::recorded::Keep;
use gateway::rules::{Block, Ports};
use gateway::settings::Settings;
use job::{Context, record};
use measure::Stop;
use serde_json::Value;
use sys::endpoint;
use sys::transparent::Diversion;
use trial::gateway::{Done, Plan};
use units::{Bytes, Duration};

use crate::args::serve::metrics_address;
use crate::print::{self, gateway as say};

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
    Trial(Box<TrialArgs>),
    /// Have a running gateway start its program's file again, which goes on for it; no connection ends
    Upgrade(TellArgs),
    /// Print a unit file for systemd
    Unit,
    /// Take away the routing rules that a killed gateway left; one that runs keeps its own
    Clean(Box<CleanArgs>),
    /// What takes rules away when the gateway was killed
    #[command(hide = true)]
    Guard(GuardArgs),
}

#[derive(Clone, Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    flags: Flags,
    /// Look by which side packets to this host inside leave
    #[arg(long, value_name = "ADDRESS")]
    inside_host: Option<IpAddr>,
    /// The same of a host outside
    #[arg(long, value_name = "ADDRESS")]
    outside_host: Option<IpAddr>,
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
    #[arg(long, value_name = "ADDRESS:PORT", requires = "target", value_parser = endpoint::with_port)]
    listen: Option<SocketAddr>,
    /// Where what was accepted at --listen goes on to
    #[arg(long, value_name = "ADDRESS:PORT", requires = "listen", value_parser = endpoint::with_port)]
    target: Option<SocketAddr>,
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

/// The rule to take away.
#[derive(Clone, Copy, Debug, Args)]
struct GuardArgs {
    #[arg(long)]
    mark: u32,
    #[arg(long)]
    table: u32,
    #[arg(long)]
    priority: u32,
    /// Tables of links beside it.
    #[arg(long, default_value_t = 0)]
    links: usize,
}

/// What a trial takes.
#[derive(Clone, Debug, Args)]
struct TrialArgs {
    /// A path with a gateway among its nodes, such as lab:cray-cns
    path: String,
    /// Connections of iperf3 at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: usize,
    /// Hosts that they go to by turns [default: the far end of the path's transfer]
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    to: Vec<String>,
    /// How long they send
    #[arg(long, value_name = "TIME", default_value = "10s")]
    time: Duration,
    /// The hosts that they go to send instead
    #[arg(long)]
    down: bool,
    /// Capture at both ends, with all off-loads off, and have tshark say how large segments are
    #[arg(long)]
    capture: bool,
    /// See whether bytes, half-closes and resets pass whole
    #[arg(long)]
    exact: bool,
    /// Send with one connection alone first, to hold the others against
    #[arg(long)]
    alone: bool,
    /// Cut this link after a third of the time; as many connections more begin one second later, and as many stand
    /// from before until after
    #[arg(long, value_name = "LINK")]
    cut: Option<String>,
    /// Have another gateway go on for the one that runs, after a third of the time, while others connect
    #[arg(long)]
    renew: bool,
    /// Have it read wrong files and then a right one, after a third of the time, while connections stand
    #[arg(long)]
    reload: bool,
    /// Have a systemd of its own run the gateway by its unit; kill it when the connections are over, while others
    /// connect. Root
    #[arg(long, conflicts_with_all = ["cut", "renew", "reload"])]
    systemd: bool,
    /// Where run folders are kept
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
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
        Some(GatewayVerb::Status(args)) => status(args),
        Some(GatewayVerb::Reload(which)) => tell(which, Order::Reload),
        Some(GatewayVerb::Drain(which)) => tell(which, Order::Drain),
        Some(GatewayVerb::Trial(args)) => try_out(args),
        Some(GatewayVerb::Upgrade(which)) => tell(which, Order::Upgrade),
        Some(GatewayVerb::Unit) => {
            print::print(daemon::UNIT)?;
            Ok(fault::DONE)
        }
        Some(GatewayVerb::Clean(args)) => {
            guard::clean(&args.flags.settings().read()?)?;
            Ok(fault::DONE)
        }
        Some(GatewayVerb::Guard(args)) => {
            let diversion = Diversion {
                mark: args.mark,
                table: args.table,
                priority: args.priority,
            };
            guard::stand(diversion, args.links)?;
            Ok(fault::DONE)
        }
    }
}

/// A trial out of words as they would be typed behind `goodput gateway`.
pub(crate) fn step(
    args: &GatewayArgs,
    runs: &Path,
    context: &Context,
) -> Result<(Value, PathBuf), Failure> {
    let Some(GatewayVerb::Trial(args)) = &args.verb else {
        return Err(Failure::usage(
            "of the gateway's verbs only trial can be judged",
        ));
    };
    let Done { found, folder } = perform(args, runs, context)?;
    Ok((found, folder))
}

/// Signals blocked and waited for.
pub(crate) type StartResult = Result<Context, Failure>;

impl Flags {
    fn settings(&self) -> Settings {
        Settings {
            file: self.config.clone(),
            inside: self.inside.clone(),
            outside: self.outside.clone(),
            ports: self.ports.clone(),
            bypass: self.bypass.clone(),
            explicit: self.listen.zip(self.target),
            inside_buffer: self.inside_buffer,
            outside_buffer: self.outside_buffer,
            inside_congestion: self.inside_congestion.clone(),
            outside_congestion: self.outside_congestion.clone(),
            outside_pacing: self.outside_pacing,
            spread: self.spread,
            unsplit_every: self.unsplit_every,
            log: self.log.clone(),
            workers: self.workers,
            drain: self.drain,
        }
    }
}

impl TrialArgs {
    fn plan(&self, runs: &Path) -> Plan {
        Plan {
            path: self.path.clone(),
            connections: self.connections,
            to: self.to.clone(),
            time: self.time,
            down: self.down,
            capture: self.capture,
            exact: self.exact,
            alone: self.alone,
            cut: self.cut.clone(),
            renew: self.renew,
            reload: self.reload,
            systemd: self.systemd,
            runs: runs.to_owned(),
        }
    }
}

fn dry_run(flags: &Flags) -> Verdict {
    let config = flags.settings().read()?;
    if let Some(absent) = gateway::check::absent_interface(&config) {
        return Err(Failure::here(format!(
            "{absent}; name an interface of `ip link`"
        )));
    }
    if config.mode == Mode::Transparent {
        // Who may not ask sees what most kernels have.
        let queue = QueueBy::find().ok().flatten().unwrap_or(QueueBy::Nftables);
        print::print(&install::text(&config, queue))?;
    } else {
        print::print("nothing is changed: connections are made to the gateway\n")?;
    }
    Ok(fault::DONE)
}

fn look(args: &CheckArgs) -> Verdict {
    let config = args.flags.settings().read()?;
    let mut list = gateway::check::check(&config);
    list.extend(gateway::check::ways(
        &config,
        args.inside_host,
        args.outside_host,
    ));
    if args.json {
        print::print_json(&list)?;
    } else {
        print::print(&say::checks(&list, print::width()))?;
    }
    let missing = list.iter().filter(|c| c.level == Level::Missing).count();
    match missing {
        0 => Ok(fault::DONE),
        _ => Err(Failure::here(format!(
            "the gateway cannot run here: {missing} of {} things are missing",
            list.len()
        ))),
    }
}

/// What takes privileges comes first; then the process has those of a gateway and no others, and so
/// have its threads.
fn run(args: &GatewayArgs, start: impl FnOnce() -> StartResult) -> Verdict {
    let metrics = args.metrics.as_deref().map(metrics_address).transpose()?;
    let plan = daemon::Plan {
        settings: args.flags.settings(),
        control: args.flags.control.clone(),
        metrics: metrics.map(|address| (address, serve_metrics as daemon::Serve)),
        take_over: args.take_over,
        keep: Keep {
            runs: args.runs.clone(),
            command_line: std::env::args().collect(),
            host: record::this_host(),
            page: report::render,
        },
    };
    let prepared = Prepared::new(plan, &mut say::event)?;
    let stop = start()?.stop;
    let ended = prepared.run(&|| stop.is_stopped(), &mut say::event)?;
    say::ended(ended, args.json)?;
    Ok(fault::DONE)
}

/// Answers as long as this process lives.
fn serve_metrics(listener: &TcpListener, text: &dyn Fn() -> String) {
    measure::metrics::serve(listener, text, &Stop::new());
}

/// Asks what there is to see and prints it.
fn status(args: &StatusArgs) -> Verdict {
    let control = args.which.control.as_deref();
    if args.watch {
        // Ends with Ctrl-C or with the gateway, or with who reads it.
        while say::watched(&client::status(control, args.top)?) {
            std::thread::sleep(WATCH);
        }
    } else if args.report {
        print::print_place("Report", &client::report(control)?)?;
    } else if args.json {
        print::print_json_text(&client::status_json(control, args.top)?)?;
    } else {
        let status = client::status(control, 0)?;
        print::print(&match args.openmetrics {
            true => status.openmetrics(),
            false => say::status(&status, print::width()),
        })?;
    }
    Ok(fault::DONE)
}

/// Tells it something that it says yes or no to.
fn tell(which: &TellArgs, order: Order) -> Verdict {
    client::tell(which.control.as_deref(), order)?;
    Ok(fault::DONE)
}

/// `goodput gateway trial`.
fn try_out(args: &TrialArgs) -> Verdict {
    crate::become_able_to_run_labs()?;
    let context = Context::start(print::live::leave_screen).map_err(Failure::here)?;
    let Done { found, folder } = perform(args, &args.runs, &context)?;
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    if args.json {
        print::print_json(&found)?;
    } else {
        print::print(&say::trial(&found, print::width()))?;
        print::note(format_args!("kept in {}", folder.display()));
    }
    Ok(match found["certificate"]["trusted"].as_bool() {
        Some(true) => fault::DONE,
        _ => fault::CHECK_FAILED,
    })
}

fn perform(args: &TrialArgs, runs: &Path, context: &Context) -> Result<Done, Failure> {
    trial::gateway::run(&args.plan(runs), context, &mut say::trial_event)
}

const WATCH: std::time::Duration = std::time::Duration::from_secs(1);
