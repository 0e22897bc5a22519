//! `goodput fabric`: a cluster's fabric in virtual time, and what cables need.
//!
//! `run` takes a fabric file through all its cases, transports and message sizes, holds every rate beside
//! the closed formula, and says which part bounds each case and what would change that.

mod cable;
mod exact;
mod finding;
mod mpi;
mod shared;
mod study;
mod vary;

use std::path::{Path, PathBuf};

use cluster::{Case, FabricFile, Tier};
use fabric::formula::{self, Bound, Limit};
use fabric::{FlowSpec, Transport, World};
use report::RunFolder;
use report::model::{
    FabricBound, FabricCurve, FabricHop, FabricPoint, FabricRun, FindingRecord, PathFacts, Run,
    RunState, SCHEMA_VERSION, Verdict as RunVerdict,
};

use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::record;
use cable::CableArgs;

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

pub(crate) const FABRIC_EXAMPLES: &str = "\
Examples:
  goodput fabric run ornl-ddr-switch                   a built-in fabric: 100 m of DDR through a switch
  goodput fabric run my-cluster.toml --json
  goodput fabric run talon-ib                          128 nodes at a 288-port director, rotate
  goodput fabric run talon-ib --tier flows             the same as fluids: an estimate at once
  goodput fabric sweep talon-ib --vary topology.routing=minhop,ftree --vary topology.placement=packed,random
  goodput fabric cable --rate ddr --length 100m --lanes 8";

/// Does what was typed.
pub(crate) fn command(args: &FabricArgs, context: &Context) -> Verdict {
    match &args.verb {
        FabricVerb::Cable(args) => cable::command(args),
        FabricVerb::Run(args) => show(args, &perform(args, None, context)?),
        FabricVerb::Sweep(args) if args.mpi => match mpi::perform(args, context)? {
            Some(done) => show(&args.run, &done),
            None => Ok(failure::DONE),
        },
        FabricVerb::Sweep(args) => {
            let done = perform(&args.run, Some(args), context)?;
            show(&args.run, &done)
        }
    }
}

fn show(args: &RunArgs, done: &Done) -> Verdict {
    if args.json {
        context::print_json(&done.run)?;
        return Ok(failure::DONE);
    }
    let (color, width) = (context::color(), context::width());
    let text = report::terminal::summary(&done.run, &done.findings, color, width);
    context::print_colored(&text)?;
    context::print(&speed(done))?;
    let page = done.folder.join("report.html");
    context::print_place("Report", &page)?;
    Ok(failure::DONE)
}

/// As a step of `reproduce`: what it found, and the run folder if it leaves one.
pub(crate) fn step(
    args: &FabricArgs,
    runs: &Path,
    context: &Context,
) -> Result<(serde_json::Value, Option<PathBuf>), Failure> {
    match &args.verb {
        FabricVerb::Cable(args) => cable::facts(args).map(|found| (found, None)),
        FabricVerb::Run(args) => kept(perform(&within(args, runs), None, context)?),
        FabricVerb::Sweep(args) => kept(perform(&within(&args.run, runs), Some(args), context)?),
    }
}

fn within(args: &RunArgs, runs: &Path) -> RunArgs {
    RunArgs {
        runs: runs.to_owned(),
        ..args.clone()
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
    wall: std::time::Duration,
}

fn perform(args: &RunArgs, sweep: Option<&SweepArgs>, context: &Context) -> Result<Done, Failure> {
    if sweep.is_some() && args.observer.is_some() {
        return Err(Failure::usage(anyhow::anyhow!(
            "--observer goes with fabric run, not with sweep"
        )));
    }
    let begun = Begun::new(args, sweep, context)?;
    begun.end(context, |file, axes| match sweep {
        None => all_cases(file, args.observer, context),
        Some(sweep) => vary::run(file, axes, &sweep.cases, None, context),
    })
}

/// A run that has its folder.
struct Begun {
    file: FabricFile,
    axes: Vec<vary::Axis>,
    run: Run,
    folder: RunFolder,
    began: std::time::Instant,
}

impl Begun {
    fn new(args: &RunArgs, sweep: Option<&SweepArgs>, context: &Context) -> Result<Self, Failure> {
        let file = find(&args.file, args.tier.map(Tier::from))?;
        let axes = sweep.map(|s| vary::axes(&file, &s.vary)).transpose()?;
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
            file,
            axes: axes.unwrap_or_default(),
            run,
            began: std::time::Instant::now(),
        })
    }

    /// Runs what there is to run, and keeps what came of it.
    fn end(
        self,
        context: &Context,
        found: impl FnOnce(
            &FabricFile,
            &[vary::Axis],
        ) -> Result<(FabricRun, Vec<FindingRecord>), Failure>,
    ) -> Result<Done, Failure> {
        let Self {
            file,
            axes,
            mut run,
            mut folder,
            began,
        } = self;
        let mut findings = Vec::new();
        let result = found(&file, &axes).map(|(fabric, found)| {
            findings = found;
            run.verdict = Some(verdict(&fabric, &findings));
            run.fabric = Some(fabric);
        });
        record::end_as(&mut run, &result, context);
        let place = folder.path().to_owned();
        let kept = folder.finish(&run, &findings);
        if let Some(code) = context.interrupted() {
            return Err(Failure::interrupted(code));
        }
        result?;
        kept?;
        Ok(Done {
            run,
            folder: place,
            findings,
            wall: began.elapsed(),
        })
    }
}

fn find(name: &str, tier: Option<Tier>) -> Result<FabricFile, Failure> {
    if Path::new(name).try_exists().unwrap_or(true) {
        return FabricFile::read_as(Path::new(name), tier).map_err(Failure::usage);
    }
    let stem = name.strip_prefix("fabrics/").unwrap_or(name);
    let stem = stem.strip_suffix(".toml").unwrap_or(stem);
    let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == stem) else {
        let names: Vec<&str> = BUILT_IN.iter().map(|(n, _)| *n).collect();
        return Err(Failure::usage(anyhow::anyhow!(
            "there is no fabric file '{name}' and no built-in fabric of that name; built in are: {}",
            names.join(", ")
        )));
    };
    let file = format!("fabrics/{stem}.toml");
    FabricFile::parse_as(Path::new(&file), text, tier).map_err(Failure::usage)
}

fn all_cases(
    file: &FabricFile,
    observer: Option<FabricObserverArg>,
    context: &Context,
) -> Result<(FabricRun, Vec<FindingRecord>), Failure> {
    let mut fabric = FabricRun::default();
    let mut findings = Vec::new();
    fabric.studies = study::run(&file.studies, &mut fabric, context)?;
    if let Some(FabricObserverArg::Ns3) = observer
        && context.interrupted().is_none()
    {
        study::observed::ns3(&file.studies, &mut fabric.studies)?;
    }
    for (study, found) in file.studies.iter().zip(&fabric.studies.clone()) {
        findings.extend(shared::failed(found));
        findings.extend(shared::of(study, found, &mut fabric, context)?);
    }
    for case in &file.cases {
        for transport in &case.traffic.transports {
            if context.interrupted().is_some() {
                return Ok((fabric, findings));
            }
            let mut curve = curve(case, *transport, &mut fabric, context)?;
            let first = fabric
                .curves
                .iter()
                .find(|c| c.transport == curve.transport);
            let first = first.map_or(curve.peak_bits_per_second, |c| c.peak_bits_per_second);
            curve.below_first_bits_per_second = first.saturating_sub(curve.peak_bits_per_second);
            curve.share_of_first = share(curve.peak_bits_per_second, first);
            findings.extend(finding::of(case, *transport, &curve));
            fabric.names_off_scheme += u32::from(curve.scheme.is_empty());
            fabric.curves.push(curve);
        }
    }
    Ok((fabric, findings))
}

/// All sizes of one case over one transport.
fn curve(
    case: &Case,
    transport: Transport,
    counts: &mut FabricRun,
    context: &Context,
) -> Result<FabricCurve, Failure> {
    let traffic = &case.traffic;
    let name = format!("{}-{}", transport.name(), case.name);
    let mut points: Vec<FabricPoint> = Vec::new();
    let mut difference_max = 0.0_f64;
    for size in traffic.sizes_of(transport) {
        if context.interrupted().is_some() {
            break;
        }
        let point = point(case, &traffic.flow(transport, size), counts, &name)?;
        let off = share(point.goodput_bits_per_second, point.formula_bits_per_second) - 1.0;
        difference_max = difference_max.max(off.abs());
        if let (Some(found), Some(formula)) = (point.latency_ns, point.latency_formula_ns) {
            difference_max = difference_max.max((found / formula.max(1e-3) - 1.0).abs());
        }
        points.push(point);
    }
    let longest = points.last().map_or(1, |p| p.message_bytes);
    let flow = traffic.flow(transport, longest);
    let bounds = bounds(case, &flow);
    let least = formula::least(&bounds).map(|b| b.limit);
    Ok(FabricCurve {
        scheme: scheme(&name, case, &flow).to_owned(),
        name,
        transport: transport.name().to_owned(),
        from: case.names.hosts[traffic.from as usize].clone(),
        to: case.names.hosts[traffic.to as usize].clone(),
        cores: traffic.cores,
        hops: hops(case, &flow),
        peak_bits_per_second: points.last().map_or(0, |p| p.goodput_bits_per_second),
        limit: least.map_or_else(String::new, |l| {
            finding::limit_name(case, &flow, l).to_owned()
        }),
        bounds: bounds.iter().map(|b| named_bound(case, &flow, b)).collect(),
        formula_difference_max: difference_max,
        points,
        ..FabricCurve::default()
    })
}

fn point(
    case: &Case,
    flow: &FlowSpec,
    counts: &mut FabricRun,
    name: &str,
) -> Result<FabricPoint, Failure> {
    let mut run = |flows: &[FlowSpec]| -> Result<World, Failure> {
        let mut world = World::new(&case.spec, flows).map_err(Failure::usage)?;
        world
            .run()
            .map_err(|stuck| Failure::check(format!("{name}: {stuck}")))?;
        counts.events += world.counters().events;
        counts.packet_hops += world.counters().packet_hops;
        Ok(world)
    };
    let cores = case.traffic.cores;
    let world = run(&vec![*flow; cores as usize])?;
    let each = (0..cores as usize).map(|n| {
        let info = world.flow(n);
        let messages = info.messages_arrived - info.half_messages;
        // 1 message has no second half.
        let from = if info.half_messages == 0 {
            info.first_posted_ps
        } else {
            info.half_ps
        };
        let bits = u128::from(messages) * u128::from(flow.message_bytes) * 8 * PS_PER_S;
        u64::try_from(bits / u128::from((info.last_ps - from).max(1))).unwrap_or(u64::MAX)
    });
    let goodput: u64 = each.sum();
    let least = formula::least(&bounds(case, flow)).map_or(0, |b| bits(b.bytes_per_second));
    let mut latency = None;
    if flow.message_bytes <= case.traffic.latency_to_bytes {
        let there = FlowSpec {
            ping_pong: true,
            messages: ROUND_TRIPS,
            ..*flow
        };
        let back = FlowSpec {
            from: flow.to,
            to: flow.from,
            ..there
        };
        let world = run(&[there])?;
        let half = world.flow(0).round_trips_ps / (2 * u128::from(ROUND_TRIPS));
        let one_way = |f: &FlowSpec| formula::latency_ps(&case.spec, f, &way(case, f));
        let both = one_way(&there) + one_way(&back);
        latency = Some([ns(u64::try_from(half).unwrap_or(u64::MAX)), ns(both / 2)]);
    }
    Ok(FabricPoint {
        message_bytes: flow.message_bytes,
        messages: flow.messages,
        goodput_bits_per_second: goodput,
        messages_per_second: goodput / 8 / u64::from(flow.message_bytes),
        formula_bits_per_second: least,
        latency_ns: latency.map(|[found, _]| found),
        latency_formula_ns: latency.map(|[_, formula]| formula),
    })
}

/// Which of the schemes of section 1.4 (and 6) of M. Minich, "Infiniband Based Cable Comparison", ORNL 2007 a
/// name follows. What comes after it says what was changed.
fn scheme(name: &str, case: &Case, flow: &FlowSpec) -> &'static str {
    let kind = flow.transport.name();
    let cables: Vec<String> = way(case, flow)
        .iter()
        .map(|(link, _)| case.names.cables[*link as usize].clone())
        .collect();
    let speed = case.spec.hosts[flow.from as usize].port.speed.name();
    let begins = |with: &str| {
        let rest = name.strip_prefix(with);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    match &cables[..] {
        [cable] if begins(&format!("{kind}-{speed}-{cable}")) => {
            "<connection type>-<link speed>-<cable>"
        }
        [cable]
            if ["dual", "quad"]
                .iter()
                .any(|n| begins(&format!("{kind}-{n}-core-{cable}"))) =>
        {
            "<connection type>-<number of cores>-<cable>"
        }
        // Node A received: the way begins at node B.
        [b, a] if begins(&format!("{kind}-{a}-{b}-{speed}")) => {
            "<connection type>-<cable on node A>-<cable on node B>-<link speed>"
        }
        _ => "",
    }
}

/// Of all cores together.
fn bounds(case: &Case, flow: &FlowSpec) -> Vec<Bound> {
    let way = way(case, flow);
    let mut bounds = formula::bounds(&case.spec, flow, &way);
    for bound in &mut bounds {
        if bound.limit == Limit::Post {
            bound.bytes_per_second *= f64::from(case.traffic.cores);
        }
    }
    bounds
}

fn way(case: &Case, flow: &FlowSpec) -> Vec<(u32, usize)> {
    World::new(&case.spec, &[]).map_or_else(|_| Vec::new(), |w| w.path(flow.from, flow.to))
}

fn hops(case: &Case, flow: &FlowSpec) -> Vec<FabricHop> {
    let way = way(case, flow);
    way.iter()
        .map(|(link, direction)| {
            let spec = &case.spec.links[*link as usize];
            let (speed, width) = case.spec.trained(spec);
            let blocks = case.spec.lane_blocks(spec, spec.ends[1 - direction]);
            FabricHop {
                link: case.names.links[*link as usize].clone(),
                cable: case.names.cables[*link as usize].clone(),
                speed: speed.name().to_owned(),
                width,
                delay_ns: ns(spec.cable.delay_ps()),
                virtual_lanes: case.spec.lanes(spec),
                lane_buffer_bytes: u64::from(blocks * fabric::spec::BLOCK_BYTES),
            }
        })
        .collect()
}

fn named_bound(case: &Case, flow: &FlowSpec, bound: &Bound) -> FabricBound {
    let host = |n: u32| case.names.hosts[n as usize].clone();
    let link = |hop: usize| {
        let way = way(case, flow);
        way.get(hop).map_or_else(String::new, |(link, _)| {
            case.names.links[*link as usize].clone()
        })
    };
    let (part, place) = match bound.limit {
        Limit::Post => ("post", host(flow.from)),
        Limit::Engine => ("engine", host(flow.from)),
        Limit::BusRead => ("bus_read", host(flow.from)),
        Limit::BusWrite => ("bus_write", host(flow.to)),
        Limit::Wire(hop) => ("wire", link(hop)),
        Limit::Credits(hop) => ("credits", link(hop)),
    };
    FabricBound {
        part: part.to_owned(),
        place,
        bits_per_second: bits(bound.bytes_per_second),
        how: bound.how.clone(),
    }
}

fn verdict(fabric: &FabricRun, findings: &[FindingRecord]) -> RunVerdict {
    if !fabric.settings.is_empty() {
        return vary::verdict(fabric);
    }
    if !fabric.studies.is_empty() {
        return shared::verdict(fabric, findings);
    }
    let curves = fabric.curves.iter();
    let slowest = curves.min_by(|a, b| a.share_of_first.total_cmp(&b.share_of_first));
    let Some(curve) = slowest.filter(|c| c.share_of_first < finding::SHARE_MAX) else {
        let least = slowest.map_or(1.0, |c| c.share_of_first);
        return RunVerdict {
            sentence: format!(
                "In the model every case carries what the first of its transport does, within {:.1} %.",
                (1.0 - least) * 100.0
            ),
            conclusive: true,
            healthy: true,
            ..RunVerdict::default()
        };
    };
    let finding = findings.iter().find(|f| f.phase == curve.name);
    let why = finding.map_or_else(|| curve.limit.clone(), |f| f.title.clone());
    RunVerdict {
        sentence: format!(
            "In the model {} carries {:.0} MB/s, {:.0} less than the first: {why}",
            curve.name,
            megabytes(curve.peak_bits_per_second),
            megabytes(curve.below_first_bits_per_second),
        ),
        cause: finding.map(|f| f.cause.clone()),
        conclusive: true,
        ..RunVerdict::default()
    }
}

/// How fast virtual time went.
fn speed(done: &Done) -> String {
    let Some(fabric) = &done.run.fabric else {
        return String::new();
    };
    let wall = done.wall.as_secs_f64().max(1e-9);
    if fabric.packet_hops == 0 {
        return format!("Estimated {} flows in {wall:.2} s\n", fabric.fluid_flows);
    }
    format!(
        "Simulated {} packet-hops in {wall:.2} s: {:.2} M packet-hops/s\n",
        fabric.packet_hops,
        float(fabric.packet_hops) / wall / 1e6
    )
}

fn share(part: u64, whole: u64) -> f64 {
    float(part) / float(whole.max(1))
}

fn megabytes(bits_per_second: u64) -> f64 {
    float(bits_per_second) / 8e6
}

fn ns(ps: u64) -> f64 {
    float(ps) / 1e3
}

#[allow(
    clippy::cast_precision_loss,
    reason = "for people, and shares of rates"
)]
const fn float(n: u64) -> f64 {
    n as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate, positive and far below 2^63"
)]
fn bits(bytes_per_second: f64) -> u64 {
    (bytes_per_second * 8.0).round() as u64
}

macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        /// The fabrics that come with the program.
        const BUILT_IN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../fabrics/", $name, ".toml"))),)+
        ];
    };
}

built_in!(
    "talon-ib",
    "talon-10ge",
    "talon-programs",
    "talon-jobs",
    "fortiswitch",
    "leininger-seager",
    "ten-thousand",
    "ornl-sdr",
    "ornl-ddr",
    "ornl-ddr-switch",
    "ornl-woodcrest",
);

const PS_PER_S: u128 = 1_000_000_000_000;
/// A model's round trips are all alike.
const ROUND_TRIPS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_fabric_is_sound() {
        for (name, _) in BUILT_IN {
            assert!(find(name, None).is_ok(), "{name}");
        }
        let error = find("no-such", None).unwrap_err().to_string();
        assert!(error.contains("built in are: talon-ib"), "{error}");
    }
}
