//! `goodput fabric` as it is typed: a cluster's fabric in virtual time, and what cables need.
//!
//! `run` takes a fabric file through all its cases, transports and message sizes, holds every rate beside
//! the closed formula, and says which part bounds each case and what would change that.

use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant};

use cluster::simulate::{self, Found, Simulator};
use cluster::vary::{self, Sweep};
use cluster::{FabricFile, Tier, built_in, cable, length_mm};
use fabric::link::{CableKind, Speed};
use fault::{Failure, Verdict};
use job::{Context, record};
use report::RunFolder;
use report::model::{FindingRecord, PathFacts, Run, RunState, SCHEMA_VERSION};
use units::{Bytes, Duration};

use crate::print;

/// What `goodput fabric` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FabricArgs {
    #[command(subcommand)]
    verb: FabricVerb,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum FabricVerb {
    /// Run a fabric file: every case, transport and message size, packet by packet
    Run(RunArgs),
    /// Run a fabric file's patterns with every combination of values of some of its keys, on all cores
    Sweep(SweepArgs),
    /// What a cable of some length needs: delay, bytes in flight, buffers, reach
    Cable(CableArgs),
}

/// What `goodput fabric run` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// A fabric file, or the name of a built-in one
    file: String,
    /// Packet by packet, or flows as fluids over the same routes: seconds for ten thousand nodes [default: the file's, or
    /// packets]
    #[arg(long, value_enum)]
    tier: Option<TierArg>,
    /// Have another simulator run some of the steps, rotate on static routes, and put what it finds beside
    #[arg(long, value_enum)]
    observer: Option<FabricObserverArg>,
    /// Folder that run folders are made in
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    runs: PathBuf,
    /// Print the run as JSON (run.json's layout) instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TierArg {
    /// Discrete events: credits, queues, head-of-line blocking
    Packets,
    /// Max-min fair shares over the tables' ways
    Flows,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FabricObserverArg {
    /// ns-3; needs g++ and its headers
    Ns3,
}

impl From<FabricObserverArg> for Simulator {
    fn from(arg: FabricObserverArg) -> Self {
        match arg {
            FabricObserverArg::Ns3 => Self::Ns3,
        }
    }
}

impl From<TierArg> for Tier {
    fn from(arg: TierArg) -> Self {
        match arg {
            TierArg::Packets => Self::Packets,
            TierArg::Flows => Self::Flows,
        }
    }
}

/// What `goodput fabric sweep` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    run: RunArgs,
    /// A key of the file and its values: topology.seed=1..5, traffic.message=64KiB,1MiB; all combinations are run
    #[arg(long = "vary", value_name = "KEY=VALUES", required = true)]
    vary: Vec<String>,
    /// Share the combinations out to the processes of MPI: run under mpirun or srun. Needs a build with --features mpi
    #[arg(long)]
    mpi: bool,
    /// Only this case of the file; can be given more than once
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
}

/// What `goodput fabric cable` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CableArgs {
    /// Signalling of a lane: sdr, ddr, qdr, fdr, edr, hdr, ndr or xdr
    #[arg(long, value_name = "SPEED", default_value = "ddr")]
    rate: Speed,
    /// Lanes of signalling, 1, 4, 8 or 12
    #[arg(long, value_name = "N", default_value = "4", value_parser = width)]
    width: u8,
    /// Length of the cable, such as 100m
    #[arg(long, value_name = "LENGTH", value_parser = millimetres)]
    length: u64,
    /// What it is made of
    #[arg(long, value_enum, default_value_t = KindArg::Fibre)]
    kind: KindArg,
    /// Virtual lanes for data that share the port's buffer
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=15))]
    lanes: u8,
    /// The port's buffer; without it, what is needed is said and no more
    #[arg(long, value_name = "SIZE")]
    buffer: Option<Bytes>,
    /// Payload of a packet
    #[arg(long, value_name = "BYTES", default_value = "2048", value_parser = mtu)]
    mtu: u32,
    /// What the far end takes from a packet's end until its credit leaves: switch, bus, issue
    #[arg(long, value_name = "TIME", default_value = "600ns")]
    fix: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum KindArg {
    Copper,
    Fibre,
}

fn millimetres(text: &str) -> Result<u64, String> {
    length_mm(text).ok_or_else(|| "expected a length such as 100m, 0.5m or 2km".to_owned())
}

fn width(text: &str) -> Result<u8, String> {
    let width = text
        .parse()
        .ok()
        .filter(|w| matches!(w, 1 | 2 | 4 | 8 | 12));
    width.ok_or_else(|| "expected 1, 2, 4, 8 or 12".to_owned())
}

fn mtu(text: &str) -> Result<u32, String> {
    let mtu = text
        .parse()
        .ok()
        .filter(|m| matches!(m, 256 | 512 | 1024 | 2048 | 4096));
    mtu.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096".to_owned())
}

pub(crate) const FABRIC_EXAMPLES: &str = "\
Examples:
  goodput fabric run ornl-ddr-switch                   a built-in fabric: 100 m of DDR through a switch
  goodput fabric run my-cluster.toml --json
  goodput fabric run talon-ib                          128 nodes at a 288-port director, rotate
  goodput fabric run talon-ib --tier flows             the same as fluids: an estimate at once
  goodput fabric sweep talon-ib --vary topology.routing=minhop,ftree --vary topology.placement=packed,random
  goodput fabric cable --rate ddr --length 100m --lanes 8";

impl CableArgs {
    /// What is asked of the cable.
    pub(crate) fn plan(&self) -> Result<cable::Plan, Failure> {
        if self.fix.as_ns().saturating_mul(1_000) > fabric::spec::DELAY_MAX_PS {
            return Err(Failure::usage("--fix may be 10 ms at most"));
        }
        Ok(cable::Plan {
            speed: self.rate,
            width: self.width,
            length_mm: self.length,
            kind: match self.kind {
                KindArg::Copper => CableKind::Copper,
                KindArg::Fibre => CableKind::Fibre,
            },
            lanes: self.lanes,
            buffer: self.buffer,
            mtu: self.mtu,
            fix: self.fix,
        })
    }
}

impl SweepArgs {
    fn read(&self) -> Result<Sweep, Failure> {
        let tier = self.run.tier.map(Tier::from);
        Sweep::read(&self.run.file, tier, &self.vary, &self.cases)
    }
}

/// Does what was typed.
pub(crate) fn run(args: &FabricArgs, context: &Context) -> Verdict {
    match &args.verb {
        FabricVerb::Cable(args) => {
            let plan = args.plan()?;
            match args.json {
                true => print::print_json(&print::fabric::cable_json(&plan, &plan.answer()))?,
                false => {
                    print::print(&print::fabric::cable(&plan, &plan.answer(), print::width()))?
                }
            }
            Ok(fault::DONE)
        }
        FabricVerb::Run(args) => show(args, &perform(args, context)?),
        FabricVerb::Sweep(args) if args.mpi => match over_mpi(args, context)? {
            Some(done) => show(&args.run, &done),
            None => Ok(fault::DONE),
        },
        FabricVerb::Sweep(args) => show(&args.run, &sweep(args, context)?),
    }
}

fn show(args: &RunArgs, done: &Done) -> Verdict {
    if args.json {
        print::print_json(&done.run)?;
        return Ok(fault::DONE);
    }
    print::fabric::run(&done.run, &done.findings, &done.folder, done.wall)?;
    Ok(fault::DONE)
}

/// As a step of `reproduce`: what it found, and the run folder if it leaves one.
pub(crate) fn step(
    args: &FabricArgs,
    runs: &Path,
    context: &Context,
) -> Result<(serde_json::Value, Option<PathBuf>), Failure> {
    let within = |args: &RunArgs| RunArgs {
        runs: runs.to_owned(),
        ..args.clone()
    };
    match &args.verb {
        FabricVerb::Cable(args) => {
            let plan = args.plan()?;
            Ok((print::fabric::cable_json(&plan, &plan.answer()), None))
        }
        FabricVerb::Run(args) => kept(perform(&within(args), context)?),
        FabricVerb::Sweep(args) => {
            let args = SweepArgs {
                run: within(&args.run),
                ..args.clone()
            };
            kept(sweep(&args, context)?)
        }
    }
}

fn kept(done: Done) -> Result<(serde_json::Value, Option<PathBuf>), Failure> {
    let value = serde_json::to_value(&done.run).map_err(Failure::here)?;
    Ok((value, Some(done.folder)))
}

/// A finished run.
#[derive(Debug)]
struct Done {
    run: Run,
    folder: PathBuf,
    findings: Vec<FindingRecord>,
    wall: StdDuration,
}

fn perform(args: &RunArgs, context: &Context) -> Result<Done, Failure> {
    let file = built_in::find(&args.file, args.tier.map(Tier::from))?;
    let begun = Begun::new(args, &file, context)?;
    let observer = args.observer.map(Simulator::from);
    begun.end(simulate::run(&file, observer, &context.stop), context)
}

fn sweep(args: &SweepArgs, context: &Context) -> Result<Done, Failure> {
    if args.run.observer.is_some() {
        return Err(Failure::usage(
            "--observer goes with fabric run, not with sweep",
        ));
    }
    let sweep = args.read()?;
    let begun = Begun::new(&args.run, &sweep.file, context)?;
    begun.end(sweep.run(&context.stop), context)
}

/// The run of the first of all processes of MPI; `None` for the others.
fn over_mpi(args: &SweepArgs, context: &Context) -> Result<Option<Done>, Failure> {
    let begin = |sweep: &Sweep| Begun::new(&args.run, &sweep.file, context);
    let led = vary::over_mpi(|| args.read(), begin, &context.stop)?;
    led.map(|(begun, found)| begun.end(found, context))
        .transpose()
}

/// A run that has its folder.
struct Begun {
    run: Run,
    folder: RunFolder,
    began: Instant,
}

impl Begun {
    fn new(args: &RunArgs, file: &FabricFile, context: &Context) -> Result<Self, Failure> {
        let name = Path::new(&args.file).file_stem().map_or_else(
            || args.file.clone(),
            |stem| stem.to_string_lossy().into_owned(),
        );
        let run = Run {
            schema_version: SCHEMA_VERSION,
            verb: "fabric".to_owned(),
            name: name.clone(),
            state: RunState::Running,
            command_line: context.command_line.clone(),
            goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
            started_utc: record::now_utc(),
            path: Some(PathFacts {
                source: "configured".to_owned(),
                file: Some(file.file.display().to_string()),
                text: Some(file.text.clone()),
                title: Some(file.title.clone()),
                ..PathFacts::default()
            }),
            ..Run::default()
        };
        Ok(Self {
            folder: RunFolder::create(&args.runs, "fabric", &name, run.clone())?,
            run,
            began: Instant::now(),
        })
    }

    /// Keeps what came of it.
    fn end(mut self, found: Result<Found, Failure>, context: &Context) -> Result<Done, Failure> {
        let mut findings = Vec::new();
        let result = found.map(|(fabric, found)| {
            findings = found;
            self.run.verdict = Some(simulate::verdict(&fabric, &findings));
            self.run.fabric = Some(fabric);
        });
        record::end_as(&mut self.run, &result, context);
        let place = self.folder.path().to_owned();
        let kept = self.folder.finish(&self.run, &findings);
        if let Some(code) = context.interrupted() {
            return Err(Failure::interrupted(code));
        }
        result?;
        kept?;
        Ok(Done {
            run: self.run,
            folder: place,
            findings,
            wall: self.began.elapsed(),
        })
    }
}
