//! `goodput tune`: a host's settings as a plan.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use fault::{Failure, Verdict};
use job::{Context, Target};
use serde_json::Value;
use settings::{Layout, Role};
use tune::{Asked, Confirmation, Host, Place, Tuner, Waiting, Wanted};
use units::{Duration, Rate};

use crate::print;

#[derive(Clone, Debug, Args)]
pub(crate) struct TuneArgs {
    /// What to do
    #[arg(value_enum, default_value_t = Action::Plan)]
    action: Action,
    /// Rate and idle round trip of the path [default: the fastest interface's rate, 100ms]
    #[arg(long = "for", value_name = "RATE,RTT", value_parser = path)]
    path: Option<(Rate, Duration)>,
    /// Take rate, round trip and connections from a run, such as a doctor's
    #[arg(long, value_name = "RUN", conflicts_with = "path")]
    from: Option<PathBuf>,
    /// Connections at a time [default: 1, or the run's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    connections: Option<u32>,
    /// What the host is: dtn, web or gateway [default: dtn]
    #[arg(long)]
    role: Option<Role>,
    /// Interface of the path [default: the fastest]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Tune a network namespace: a name of `ip netns`, a process id, lab:HOST or lab:LAB/HOST
    #[arg(long, value_name = "WHERE", conflicts_with = "root")]
    namespace: Option<Place>,
    /// Print the plan as a file instead: sysctl, ansible, nmconnection or link
    #[arg(long = "as", value_name = "LAYOUT")]
    layout: Option<Layout>,
    /// Judge a list of sysctls line by line: a file, - for stdin, or nasa-2007
    #[arg(long, value_name = "LIST")]
    judge: Option<String>,
    /// Undo the plan after so long, unless `goodput tune confirm` or Enter comes first
    #[arg(long, value_name = "TIME")]
    confirm: Option<Duration>,
    /// Write no file for the next boot
    #[arg(long)]
    no_boot: bool,
    /// Folder for the journal [default: /var/lib/goodput/tune, or the user's own]
    #[arg(long, value_name = "DIR", env = "GOODPUT_TUNE_STATE")]
    state: Option<PathBuf>,
    /// Tune the tree below a folder, such as an image, instead of this machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Path file for `trial`, or the name of a built-in path
    #[arg(long, value_name = "PATH", default_value = "columbia-untuned")]
    lab: String,
    /// Folder that `trial` makes its run folder in
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    runs: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true, default_value_t = 0)]
    number: u64,
    #[arg(long, hide = true, default_value_t = 0)]
    seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Say what would be changed and why; changes nothing and needs no privilege
    Plan,
    /// Change it
    Apply,
    /// Keep what --confirm would undo
    Confirm,
    /// Read everything back, and a fresh connection
    Verify,
    /// Say what is applied
    Status,
    /// Take back what is still ours
    Undo,
    /// Try the plan out in a lab: iperf3 before and after, everything undone
    Trial,
    #[value(hide = true)]
    Revert,
}

pub(crate) const TUNE_EXAMPLES: &str = "\
Examples:
  goodput tune --for 10Gb/s,85ms              what this host needs for a path
  goodput tune --from runs/20261121T120000.000Z-doctor-far
  sudo goodput tune apply --for 10Gb/s,85ms --confirm 60s
  sudo goodput tune verify
  sudo goodput tune undo
  goodput tune --for 10Gb/s,85ms --role web --connections 5000 --as ansible
  goodput tune --for 10Gb/s,85ms --judge /etc/sysctl.conf";

fn path(typed: &str) -> Result<(Rate, Duration), String> {
    let Some((rate, rtt)) = typed.split_once(',') else {
        return Err("expected a rate and a round trip, such as 10Gb/s,85ms".to_owned());
    };
    let rate: Rate = rate.trim().parse().map_err(|e| format!("{e}"))?;
    let rtt: Duration = rtt.trim().parse().map_err(|e| format!("{e}"))?;
    match rate.as_bits_per_second() > 0 && rtt > Duration::ZERO {
        true => Ok((rate, rtt)),
        false => Err("rate and round trip must be above zero".to_owned()),
    }
}

pub(crate) fn run(args: &TuneArgs) -> Verdict {
    match &args.namespace {
        Some(Place::Lab(lab, host)) => {
            lab::place::find(lab.as_deref())?.enter(host)?;
        }
        Some(place) => tune::enter(place)?,
        None => {}
    }
    let host = args.root.as_deref().map_or_else(Host::machine, Host::at);
    if args.action == Action::Plan {
        return plan(args, &host);
    }
    let state = tune::state_folder(args.state.as_deref(), args.root.as_deref())?;
    let tuner = Tuner::new(host, &state);
    match args.action {
        Action::Plan | Action::Apply => apply(args, &tuner, &state),
        Action::Confirm => {
            tuner.confirm()?;
            status(args, &tuner)
        }
        Action::Verify => {
            let verified = tuner.verify()?;
            match args.json {
                true => print::print_json(&tune::verified_json(&verified))?,
                false => print::print(&tune::verified_text(&verified, print::width()))?,
            }
            Ok(match verified.checks.iter().all(|check| check.holds) {
                true => fault::DONE,
                false => fault::CHECK_FAILED,
            })
        }
        Action::Status => status(args, &tuner),
        Action::Undo => undo(args, &tuner),
        Action::Trial => {
            let (found, folder) = try_out(args, &args.runs, &crate::start(true)?)?;
            print::print_json(&found)?;
            print::note(format_args!("kept in {}", folder.display()));
            Ok(fault::DONE)
        }
        Action::Revert => {
            tune::detach().map_err(Failure::here)?;
            let (number, seconds) = (args.number, args.seconds);
            tuner.undo_unless_confirmed(Waiting { number, seconds })?;
            Ok(fault::DONE)
        }
    }
}

/// A step of a row: a plan, or a trial.
pub(crate) fn step(
    args: &TuneArgs,
    runs: &Path,
    context: &Context,
) -> Result<(Value, Option<PathBuf>), Failure> {
    match args.action {
        Action::Trial => try_out(args, runs, context).map(|(run, folder)| (run, Some(folder))),
        _ => Ok((
            tune::plan_json(&Asked::new(&Host::machine(), &wanted(args)?)?),
            None,
        )),
    }
}

fn try_out(args: &TuneArgs, runs: &Path, context: &Context) -> Result<(Value, PathBuf), Failure> {
    let name = args.lab.strip_prefix("lab:").unwrap_or(&args.lab);
    let Target::Lab(path) = Target::parse(Some(&format!("lab:{name}")))? else {
        return Err(Failure::usage(format!("'{name}' is no path file")));
    };
    let plan = trial::tune::Plan {
        path: *path,
        wanted: wanted(args)?,
        runs: runs.to_owned(),
    };
    trial::tune::run(&plan, &context.stop)
}

/// What a plan is made of.
fn wanted(args: &TuneArgs) -> Result<Wanted, Failure> {
    let judge = match args.judge.as_deref() {
        None => None,
        Some("nasa-2007") => Some(settings::NASA_2007.to_owned()),
        Some(file) => Some(list(file)?),
    };
    Ok(Wanted {
        path: args.path,
        run: args.from.clone(),
        connections: args.connections,
        role: args.role,
        device: args.device.clone(),
        judge,
    })
}

fn list(file: &str) -> Result<String, Failure> {
    const BYTES_MAX: u64 = 1 << 20;
    let mut text = String::new();
    let read = match file {
        "-" => io::stdin().take(BYTES_MAX).read_to_string(&mut text),
        _ => std::fs::File::open(file).and_then(|f| f.take(BYTES_MAX).read_to_string(&mut text)),
    };
    read.map_err(|e| Failure::usage(format!("{file}: {e}")))?;
    Ok(text)
}

fn plan(args: &TuneArgs, host: &Host) -> Verdict {
    let asked = Asked::new(host, &wanted(args)?)?;
    match (args.layout, args.json) {
        (Some(layout), _) => print::print(&layout.render(&asked.plan))?,
        (None, true) => print::print_json(&tune::plan_json(&asked))?,
        (None, false) => print::print(&tune::plan_text(&asked, print::width()))?,
    }
    Ok(match asked.plan.refused {
        Some(_) => fault::CHECK_FAILED,
        None => fault::DONE,
    })
}

fn apply(args: &TuneArgs, tuner: &Tuner, state: &Path) -> Verdict {
    if args.layout.is_some() {
        return plan(args, &tuner.host);
    }
    let asked = Asked::new(&tuner.host, &wanted(args)?)?;
    let confirmation = match args.confirm {
        None => Confirmation::None,
        Some(time) => Confirmation::Within(time.to_std().as_secs().max(1)),
    };
    let mut watch = |waiting: Waiting| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["tune", "revert", "--state"]).arg(state);
        command.args(["--number", &waiting.number.to_string()]);
        command.args(["--seconds", &waiting.seconds.to_string()]);
        if let Some(root) = &args.root {
            command.arg("--root").arg(root);
        }
        tune::start_watch(&mut command)
    };
    let waiting = tuner.apply(&asked.plan, confirmation, !args.no_boot, &mut watch)?;
    if !args.json {
        print::print(&tune::plan_text(&asked, print::width()))?;
    }
    if let Some(waiting) = waiting {
        let seconds = waiting.seconds;
        print::note(format_args!(
            "undone in {seconds} s, unless you press Enter here or run: goodput tune confirm"
        ));
        if io::stdin().is_terminal() && Tuner::key_within(seconds) {
            tuner.confirm()?;
        }
    }
    status(args, tuner)
}

fn status(args: &TuneArgs, tuner: &Tuner) -> Verdict {
    let state = tuner.state()?;
    match args.json {
        true => print::print_json(&tune::state_json(&state))?,
        false => print::print(&tune::state_text(&state, print::width()))?,
    }
    Ok(fault::DONE)
}

fn undo(args: &TuneArgs, tuner: &Tuner) -> Verdict {
    let undone = tuner.undo()?;
    match args.json {
        true => print::print_json(&tune::undone_json(&undone))?,
        false => print::print(&tune::undone_text(&undone, print::width()))?,
    }
    Ok(match undone.failed.is_empty() {
        true => fault::DONE,
        false => fault::CANNOT_RUN_HERE,
    })
}
