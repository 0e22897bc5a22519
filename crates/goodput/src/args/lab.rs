//! `goodput lab`: labs for any program, for as long as it runs or in the background.

mod check;
mod flags;
mod log;
mod remote;
mod shell;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use fault::Verdict;
use lab::{outside, place};
use units::{Bytes, Duration, Rate};

pub(crate) use self::check::perform as check;
use crate::print;

use crate::args::share;

#[derive(Clone, Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) verb: LabVerb,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LabVerb {
    /// Run a program, or a shell, behind a path that it can measure, ping and download through
    #[command(after_help = SHELL_EXAMPLES)]
    Shell(ShellArgs),
    /// Start a lab in the background; it stays up when the terminal is closed
    #[command(after_help = UP_EXAMPLES)]
    Up(UpArgs),
    /// Show the labs that are up, with what their links have carried and dropped
    #[command(after_help = PS_EXAMPLES)]
    Ps(PsArgs),
    /// Run a program in a host of a lab
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(ExecArgs),
    /// Change a link of a running lab
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// Show or change the rules of a switch or router of a running lab
    #[command(after_help = RULES_EXAMPLES)]
    Rules(RulesArgs),
    /// End a lab
    #[command(after_help = DOWN_EXAMPLES)]
    Down(DownArgs),
    /// Sum up or convert a log of what became of each frame
    #[command(after_help = LOG_EXAMPLES)]
    Log(LogArgs),
    /// Fill a network and hold the lab's account of each frame against captures at its hosts
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// What `up` starts
    #[command(hide = true)]
    Daemon(DaemonArgs),
}

/// A path of two hosts and one link, by flags.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PathFlags {
    /// Rate each way, such as 100Mb/s [default: as fast as frames come]
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Delay each way, such as 150ms; the round trip is twice that [default: none]
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<Duration>,
    /// Share of the frames lost each way, 0 to 1 or such as 0.1% [default: 0]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) loss: Option<f64>,
    /// Queue before the rate, such as 1MB [default: rate times the round trip]
    #[arg(long, value_name = "BYTES", requires = "rate")]
    pub(crate) queue: Option<Bytes>,
    /// MTU of both hosts in bytes [default: 1500]
    #[arg(long, value_name = "N")]
    pub(crate) mtu: Option<u32>,
    /// Delay that is added at random, up to so much, without reordering
    #[arg(long, value_name = "TIME")]
    pub(crate) jitter: Option<Duration>,
    /// Seed of what is random [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ShellArgs {
    /// Path file, or name of a built-in path, instead of flags
    #[arg(conflicts_with_all = ["rate", "delay", "loss", "queue", "mtu", "jitter", "seed"])]
    pub(crate) path: Option<String>,
    #[command(flatten)]
    pub(crate) flags: PathFlags,
    /// Write what becomes of each frame to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Write how accurate the lab was to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    /// Put this machine's own network behind the path (as root; all changes are printed and undone)
    #[arg(long)]
    pub(crate) outside: bool,
    /// The program and its arguments [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct UpArgs {
    /// Path file, or name of a built-in path
    pub(crate) path: String,
    /// Name of the lab [default: that of the file]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Write what becomes of each frame to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PsArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which lab is meant.
#[derive(Clone, Debug, Args)]
pub(crate) struct LabName {
    /// Name of the lab; may be left out when only one is up
    #[arg(long = "lab", value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) lab: LabName,
    /// Host of the lab
    pub(crate) host: String,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    pub(crate) lab: LabName,
    /// Link, and :forward or :backward for one direction only
    pub(crate) link: String,
    /// What to change: rate=RATE delay=TIME loss=SHARE queue=BYTES up=true|false
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RulesArgs {
    #[command(flatten)]
    pub(crate) lab: LabName,
    /// Switch or router
    pub(crate) node: String,
    /// `show`, `clear`, or a TOML file with rules = [...] as in a path file
    #[arg(default_value = "show", value_name = "show|clear|FILE")]
    pub(crate) action: String,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DownArgs {
    /// Name of the lab
    pub(crate) name: Option<String>,
    /// End all labs of this user
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
}

#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("output").args(["csv", "parquet", "pcapng"]))]
pub(crate) struct LogArgs {
    /// The log
    pub(crate) file: PathBuf,
    /// Write the decisions as CSV; - is stdout
    #[arg(long, value_name = "OUT")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the decisions as Parquet
    #[arg(long, value_name = "OUT")]
    pub(crate) parquet: Option<PathBuf>,
    /// Write the frames, headers only, as pcapng for Wireshark
    #[arg(long, value_name = "OUT")]
    pub(crate) pcapng: Option<PathBuf>,
    /// How parallel streams fared at the bottleneck: balance, order of bursts, order of losses
    #[arg(long, conflicts_with = "output")]
    pub(crate) streams: bool,
    /// Also when each stream had moved its part of so many bytes on the wire
    #[arg(long, value_name = "SIZE", requires = "streams")]
    pub(crate) striped: Option<Bytes>,
    /// Print JSON
    #[arg(long, requires = "streams")]
    pub(crate) json: bool,
    /// Drops only
    #[arg(long, requires = "output")]
    pub(crate) drops: bool,
    /// One direction of a link only
    #[arg(long, value_name = "LINK:forward|LINK:backward", requires = "output")]
    pub(crate) link: Option<String>,
    /// One frame only
    #[arg(long, value_name = "N", requires = "output")]
    pub(crate) frame: Option<u64>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CheckArgs {
    /// Path file, or name of a built-in path
    pub(crate) path: String,
    /// Who sends to whom: all, ring (each to the next), into:HOST, or FROM:TO
    #[arg(long, value_name = "PATTERN", default_value = "all")]
    pub(crate) traffic: String,
    /// With what: datagrams, or iperf3 (TCP)
    #[arg(long, value_name = "TOOL", default_value = "datagrams")]
    pub(crate) with: ToolArg,
    /// What each host sends, all destinations together
    #[arg(long, value_name = "RATE", default_value = "20Mb/s")]
    pub(crate) rate: Rate,
    /// Datagrams in a row to one destination; above 1 the bursts of all hosts begin together
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) burst: u32,
    /// Payload of each datagram [default: what the MTU takes]
    #[arg(long, value_name = "BYTES")]
    pub(crate) payload: Option<Bytes>,
    /// How long
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) time: Duration,
    /// A rule that a switch or router has for the middle third of the time, as in a path file
    #[arg(long, value_name = "NODE=RULE")]
    pub(crate) rule: Option<String>,
    /// Make no captures and no log: for networks and times too large for them
    #[arg(long)]
    pub(crate) no_captures: bool,
    /// Fill every port to its rate in virtual time, without kernels
    #[arg(long = "virtual", conflicts_with_all = ["no_captures", "with", "traffic", "burst", "payload", "rate", "rule"])]
    pub(crate) in_virtual_time: bool,
    /// Where the run folder is made
    #[arg(long, value_name = "DIR", env = "GOODPUT_RUNS", default_value = "runs")]
    pub(crate) runs: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who makes a check's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ToolArg {
    /// Our own, paced and in bursts
    Datagrams,
    /// TCP connections, each of a set number of bytes
    Iperf3,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DaemonArgs {
    /// Path file or built-in path
    pub(crate) path: String,
    /// Name of the lab, and whether another may be taken where it is in use
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) exactly: bool,
    #[arg(long)]
    pub(crate) directory: PathBuf,
    #[arg(long)]
    pub(crate) log: Option<PathBuf>,
}

/// Runs one of the lab's verbs.
pub(crate) fn run(args: &LabArgs) -> Verdict {
    // What killed ones left goes at the next occasion. The others look for labs anyhow.
    if let LabVerb::Shell(_) | LabVerb::Log(_) = &args.verb {
        place::sweep();
    }
    if !matches!(args.verb, LabVerb::Daemon(_)) {
        outside::sweep(note);
    }
    match &args.verb {
        LabVerb::Shell(args) => shell::run(args),
        LabVerb::Up(args) => remote::up(args),
        LabVerb::Ps(args) => remote::ps(args),
        LabVerb::Exec(args) => remote::exec(args),
        LabVerb::Set(args) => remote::set(args),
        LabVerb::Rules(args) => remote::rules(args),
        LabVerb::Down(args) => remote::down(args),
        LabVerb::Log(args) => log::run(args),
        LabVerb::Check(args) => check::run(args),
        LabVerb::Daemon(args) => remote::daemon(args),
    }
}

fn note(line: &str) {
    print::note(line);
}

/// Says why a program did not start.
fn not_started(program: &str, error: &io::Error) {
    print::QUIET.store(false, std::sync::atomic::Ordering::Relaxed);
    print::note(format_args!("goodput: cannot run '{program}': {error}"));
}

pub(crate) const LAB_EXAMPLES: &str = "\
Examples:
  goodput lab shell --rate 100Mb/s --delay 40ms       a shell behind a line; leave it with exit
  goodput lab up my-path.toml                         a lab that stays
  goodput lab exec near -- ping -c3 198.18.0.2        a program in one of its hosts
  goodput lab down my-path                            its end
Needs no root where the kernel lets users make user namespaces.";

const SHELL_EXAMPLES: &str = "\
Examples:
  goodput lab shell --rate 100Mb/s --delay 40ms
  goodput lab shell --delay 150ms -- ping -c3 198.18.0.2
  goodput lab shell --delay 85ms --loss 0.001 -- sh -c 'goodput measure $GOODPUT_FAR'
  goodput lab shell columbia-untuned --log frames.gplog -- iperf3 -c 198.18.0.2
The program finds the far host in $GOODPUT_FAR and $GOODPUT_FAR6; `goodput serve` runs there and
ping is answered. Inside, another `goodput lab shell` puts its path in front of this one.
Exit code: that of the program, 128+n where signal n ended it, 127 where there is none.";

const UP_EXAMPLES: &str = "\
Examples:
  goodput lab up two-into-one
  goodput lab up my-path.toml --name trial --log frames.gplog
Each host runs `goodput serve` on TCP port 5210 of its address.";

const PS_EXAMPLES: &str = "\
Examples:
  goodput lab ps
  goodput lab ps --json";

const EXEC_EXAMPLES: &str = "\
Examples:
  goodput lab exec near -- bash
  goodput lab exec --lab trial one -- sh -c 'goodput measure $GOODPUT_HOST_RECEIVER'
The program finds the addresses of all hosts in $GOODPUT_HOST_NAME. Exit code: that of the program,
127 where there is none. What still runs when the lab goes down is left without a network.";

const SET_EXAMPLES: &str = "\
Examples:
  goodput lab set wan rate=500Mb/s delay=10ms
  goodput lab set --lab trial wan:backward loss=0.01
  goodput lab set wan up=false                        cuts it, until up=true";

const RULES_EXAMPLES: &str = "\
Examples:
  goodput lab rules switch                            each rule with the segments it has met
  goodput lab rules switch clear
  goodput lab rules switch block-web.toml             rules = [{ dst_port = 80, drop = true }]";

const DOWN_EXAMPLES: &str = "\
Examples:
  goodput lab down trial
  goodput lab down --all";

const LOG_EXAMPLES: &str = "\
Examples:
  goodput lab log frames.gplog                        a summary
  goodput lab log frames.gplog --streams --striped 1GB
  goodput lab log frames.gplog --csv - --drops
  goodput lab log frames.gplog --csv queue.csv --link wan:forward
  goodput lab log frames.gplog --pcapng frames.pcapng
What the columns mean: docs/lab-log.md.";

const CHECK_EXAMPLES: &str = "\
Examples:
  goodput lab check master-1-five-ports               all to all, each frame accounted for
  goodput lab check two-into-one --traffic into:receiver --rate 40Mb/s --burst 400
  goodput lab check master-1-five-ports --rule 'master=dst_port = 5212, drop = true'
  goodput lab check master-1-five-ports --virtual     what its ports carry in virtual time
Hosts send without segmentation off-loads, so that a frame is a frame. dumpcap captures at each
host and tshark reads (Debian: apt-get install tshark). Exit code 1: the accounts differ.";
