//! `goodput rotate`: pairs of hosts that send to each other at once.
//!
//! The benchmarks are CBench's `rotate` and `rotate_latency`, Presta's `com` and mpiGraph, as [`pairs`] has
//! them. Ranks are hosts where `goodput serve --ranks` runs, hosts of a lab, or processes of MPI; what is
//! done with them is the same, and so is what is said of it.

mod cbench;
mod finding;
mod hosts;
mod mpi;
mod mpirun;
mod plan;
mod ways;

use std::path::{Path, PathBuf};

use measure::{FlowTimes, RankTest, Stop};
use report::RunFolder;
use report::model::{
    FindingRecord, Rotate, RotateCount, RotateFlow, RotateRound, Run, RunState, SCHEMA_VERSION,
};
use units::{Bytes, Duration};

use crate::cli::ApproachArgs;
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::record;
use crate::target::Target;
use mpirun::MpirunArgs;
use plan::{Plan, Planned};
use ways::Ways;

/// What `goodput rotate` takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RotateArgs {
    /// lab:FILE or lab:NAME, whose hosts are the ranks.
    /// Without one, and without --hosts or --mpi: lab:static-routes, 16 hosts on a fabric of six switches
    target: Option<String>,
    /// Hosts where `goodput serve --ranks` runs, one rank each, with commas between; of a lab, those of its
    /// hosts that take part
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Ranks are the processes of MPI: run under mpirun or srun. Needs a build with --features mpi
    #[arg(long, conflicts_with_all = ["target", "hosts"])]
    mpi: bool,
    #[command(flatten)]
    started: MpirunArgs,
    /// Who sends to whom
    #[arg(long, value_enum, default_value_t = PatternArg::Rotate)]
    pattern: PatternArg,
    /// Half round trips instead of bandwidth: rotate_latency, `com -w Latency`
    #[arg(long)]
    latency: bool,
    /// Both of a pair send at once: `com -w Bidirectional`
    #[arg(long, conflicts_with = "latency")]
    bidirectional: bool,
    /// Also with the first so many ranks: best, average and worst by their number
    #[arg(long, value_name = "N", value_delimiter = ',')]
    nodes: Vec<usize>,
    /// Size of messages, 1 B to 8 MiB; of com sizes as FROM..TO or with commas
    /// [default: rotate 8MiB, mpigraph 1MiB, com 32..8MiB, latency 1B]
    #[arg(long, value_name = "SIZE")]
    length: Option<String>,
    /// Messages of a test, or round trips [default: rotate 10, mpigraph 100, com 100, latency 10000]
    #[arg(long, value_name = "N")]
    messages: Option<u32>,
    /// Messages from one confirmation to the next [default: rotate 1, mpigraph 10, com all]
    #[arg(long, value_name = "N")]
    window: Option<u32>,
    /// Tests of each round, of which each pair's fastest counts [default: rotate 3, else 1]
    #[arg(long, value_name = "N")]
    tests: Option<u32>,
    /// With com: ranks of a node; pairs are neighbouring nodes' instead of the two halves'
    #[arg(long, value_name = "N", conflicts_with = "list")]
    per_node: Option<usize>,
    /// With com: file with two ranks a line, by name or number
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Put the ranks into an order that this seed chooses
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Congestion control of the senders [default: the path file's, else each host's]
    #[arg(short, long, value_name = "NAME", visible_alias = "cc")]
    congestion: Option<String>,
    #[command(flatten)]
    approach: ApproachArgs,
    /// Folder that run folders are made in
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    runs: PathBuf,
    /// Print the run as JSON (run.json's layout) instead of text
    #[arg(long)]
    json: bool,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PatternArg {
    /// CBench's: the low half to the high half, shifted from rotation to rotation
    #[default]
    Rotate,
    /// Presta's: rank r and r + N/2, by active ranks and sizes of messages
    Com,
    /// LLNL's: each rank sends to rank + d and hears from rank - d, for every d
    #[value(name = "mpigraph")]
    MpiGraph,
}

pub(crate) const ROTATE_EXAMPLES: &str = "\
Examples:
  goodput rotate --length 256KiB --messages 4 --tests 2     a fabric with static routes, in a lab
  goodput rotate --hosts n01,n02,n03,n04                    `goodput serve --listen 0.0.0.0 --ranks` on each
  goodput rotate --hosts n01,n02,n03,n04 --latency
  goodput rotate lab:my-cluster.toml --nodes 2,4,8 --length 1MiB
  goodput rotate --hosts n01,n02,n03,n04 --pattern mpigraph --json
  goodput rotate --hosts n01,n02,n03,n04 --pattern com --length 32..1MiB
Over MPI, built with --features mpi:
  mpirun -np 8 --map-by node goodput rotate --mpi
  goodput rotate --mpirun 8 --mpirun-with \"--map-by node --hostfile nodes\"
  goodput rotate --mpirun 2 --observer cbench --cbench ~/cbench    CBench's own in turns with ours";

impl PatternArg {
    const fn name(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::Com => "com",
            Self::MpiGraph => "mpigraph",
        }
    }
}

impl RotateArgs {
    /// Whether its ranks are a lab's hosts.
    pub(crate) fn needs_lab(&self) -> bool {
        match &self.target {
            Some(target) => target.starts_with("lab:"),
            None => self.hosts.is_empty() && !self.over_mpi(),
        }
    }

    /// Whether its ranks are processes of MPI, whoever starts them.
    const fn over_mpi(&self) -> bool {
        self.mpi || self.started.mpirun.is_some()
    }
}

/// Ranks, however they are reached.
pub(crate) trait Ranks {
    /// Has the flows do the test so many times, all at once each time; each flow's shortest times.
    fn round(
        &mut self,
        flows: &[(usize, usize)],
        test: &RankTest,
        tests: u32,
        stop: &Stop,
    ) -> Result<Vec<FlowTimes>, Failure>;

    /// The longest time from the first rank's word to begin to the last one's, where there is such.
    fn skew(&self) -> Option<Duration>;
}

/// Over TCP, led from here.
impl Ranks for measure::Ranks {
    fn round(
        &mut self,
        flows: &[(usize, usize)],
        test: &RankTest,
        tests: u32,
        stop: &Stop,
    ) -> Result<Vec<FlowTimes>, Failure> {
        self.step(flows, stop)?;
        let mut best: Vec<FlowTimes> = Vec::new();
        for _ in 0..tests {
            let times = self.test(flows, test, stop)?;
            best = shortest(best, times);
        }
        Ok(best)
    }

    fn skew(&self) -> Option<Duration> {
        Some(Self::skew(self))
    }
}

/// Each flow's shorter time of two tests, at either end by itself.
fn shortest(best: Vec<FlowTimes>, times: Vec<FlowTimes>) -> Vec<FlowTimes> {
    if best.is_empty() {
        return times;
    }
    let each = best.into_iter().zip(times);
    each.map(|(a, b)| FlowTimes {
        send: a.send.min(b.send),
        receive: a.receive.min(b.receive),
    })
    .collect()
}

/// Does what was typed.
pub(crate) fn command(args: &RotateArgs, context: &Context) -> Verdict {
    let Some(done) = perform(args, context)? else {
        return Ok(failure::DONE);
    };
    if args.json {
        context::print_json(&done.run)?;
    } else {
        // mpirun gives a process a terminal wherever its own output goes.
        let (color, width) = (context::color() && !args.mpi, context::width());
        let text = report::terminal::summary(&done.run, &done.findings, color, width);
        context::print_colored(&format!("\n{text}"))?;
        let page = done.folder.join("report.html");
        context::print_place("Report", &page)?;
    }
    let conclusive = done.run.verdict.as_ref().is_some_and(|v| v.conclusive);
    Ok(match conclusive {
        true => failure::DONE,
        false => failure::CHECK_FAILED,
    })
}

/// As a step of `reproduce`: what it found, and its run folder.
pub(crate) fn step(
    args: &RotateArgs,
    runs: &Path,
    context: &Context,
) -> Result<(serde_json::Value, Option<PathBuf>), Failure> {
    let args = RotateArgs {
        runs: runs.to_owned(),
        json: true,
        ..args.clone()
    };
    let Some(done) = perform(&args, context)? else {
        return Ok((serde_json::Value::Null, None));
    };
    let value = serde_json::to_value(&done.run).map_err(Failure::here)?;
    Ok((value, Some(done.folder)))
}

/// A finished run.
#[derive(Debug)]
struct Done {
    run: Run,
    folder: PathBuf,
    findings: Vec<FindingRecord>,
}

/// Measures and keeps what was measured, however it ends; `None` for a process of MPI that does not lead.
fn perform(args: &RotateArgs, context: &Context) -> Result<Option<Done>, Failure> {
    plan::check(args)?;
    if args.mpi {
        return mpi::perform(args, context);
    }
    if args.started.mpirun.is_some() {
        return mpirun::perform(args, context).map(Some);
    }
    let (target, name) = target(args)?;
    let mut kept = Kept::begin(args, &target, &name, context)?;
    let result = match target {
        Some(Target::Lab(path)) => hosts::in_lab(args, *path, &mut kept, context),
        _ => hosts::far(args, &mut kept, context),
    };
    kept.end(result, context).map(Some)
}

/// The lab, if it is one, and what the run is called.
fn target(args: &RotateArgs) -> Result<(Option<Target>, String), Failure> {
    if args.target.is_none() && !args.hosts.is_empty() {
        let first = args.hosts.first().map_or("", String::as_str);
        return Ok((None, format!("{}-hosts-of-{first}", args.hosts.len())));
    }
    let typed = args.target.as_deref().unwrap_or(DEFAULT);
    match Target::parse(Some(typed))? {
        target @ Target::Lab(_) => {
            let name = target.name();
            Ok((Some(target), name))
        }
        _ => Err(Failure::usage(anyhow::anyhow!(
            "'{typed}': one host is no cluster; name them with --hosts A,B,..., or a lab as lab:FILE"
        ))),
    }
}

/// The run folder and what goes into it.
#[derive(Debug)]
struct Kept {
    run: Run,
    folder: RunFolder,
    rotate: Rotate,
    /// Where the ways of packets are known.
    ways: Option<Ways>,
    json: bool,
}

impl Kept {
    fn begin(
        args: &RotateArgs,
        target: &Option<Target>,
        name: &str,
        context: &Context,
    ) -> Result<Self, Failure> {
        let mut run = match target {
            Some(target) => record::begin("rotate", target, context),
            None => Run {
                schema_version: SCHEMA_VERSION,
                verb: "rotate".to_owned(),
                name: name.to_owned(),
                state: RunState::Running,
                command_line: context.command_line.clone(),
                goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
                started_utc: record::now_utc(),
                ..Run::default()
            },
        };
        if let Some(Target::Lab(path)) = target {
            run.path = Some(report::model::PathFacts {
                source: "configured".to_owned(),
                file: Some(path.file.display().to_string()),
                text: Some(path.text.clone()),
                title: Some(path.title.clone()),
                ..report::model::PathFacts::default()
            });
        }
        let folder = RunFolder::create(&args.runs, "rotate", name, run.clone())?;
        Ok(Self {
            run,
            folder,
            rotate: Rotate {
                pattern: args.pattern.name().to_owned(),
                measure: if args.latency { "latency" } else { "bandwidth" }.to_owned(),
                transport: if args.over_mpi() { "mpi" } else { "tcp" }.to_owned(),
                order_seed: args.seed,
                bidirectional: args.bidirectional,
                ..Rotate::default()
            },
            ways: None,
            json: args.json,
        })
    }

    /// All rounds of a plan, one after the other.
    fn drive(&mut self, ranks: &mut dyn Ranks, plan: &Plan, stop: &Stop) -> Result<(), Failure> {
        self.rotate.tests = plan.tests;
        let mut begun = 0;
        for (n, planned) in plan.rounds.iter().enumerate() {
            let flows: Vec<(usize, usize)> = planned.flows.iter().map(|f| (f.from, f.to)).collect();
            let times = ranks.round(&flows, &planned.test, plan.tests, stop)?;
            let round = round(planned, &times);
            self.rotate.start_skew_ns = ranks.skew().map(Duration::as_ns);
            let line = plan::line(plan, planned, &round);
            self.rotate.rounds.push(round);
            self.say(&line)?;
            let next = plan.rounds.get(n + 1);
            if next.is_none_or(|next| plan::closes(plan, planned, next)) {
                let rounds = &self.rotate.rounds[begun..];
                let text = plan::closing(plan, planned, rounds);
                begun = self.rotate.rounds.len();
                self.say(&text)?;
            }
            if stop.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        match self.json {
            true => Ok(()),
            false => context::print(text),
        }
    }

    /// Sums up, writes everything.
    fn end(mut self, result: Result<(), Failure>, context: &Context) -> Result<Done, Failure> {
        if let Some(ways) = &self.ways {
            ways.fair_shares(&mut self.rotate);
        }
        self.rotate.counts = counts(&self.rotate);
        let whole = result.is_ok() && context.interrupted().is_none();
        let (findings, verdict) = finding::of(&mut self.rotate, self.ways.as_ref(), whole);
        self.run.verdict = Some(verdict);
        let empty = self.rotate.rounds.is_empty();
        self.run.rotate = Some(self.rotate);
        record::end_as(&mut self.run, &result, context);
        let folder = self.folder.path().to_owned();
        let kept = self.folder.finish(&self.run, &findings);
        if let Some(code) = context.interrupted() {
            if !empty {
                let page = folder.join("report.html");
                context::note(format_args!("what was measured so far: {}", page.display()));
            }
            return Err(Failure::interrupted(code));
        }
        result?;
        kept?;
        Ok(Done {
            run: self.run,
            folder,
            findings,
        })
    }
}

/// A round as run.json has it.
fn round(planned: &Planned, times: &[FlowTimes]) -> RotateRound {
    let test = &planned.test;
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let flow = |(flow, times): (&pairs::Flow, &FlowTimes)| {
        let (send, receive) = (bits(test, times.send), bits(test, times.receive));
        RotateFlow {
            from: small(flow.from),
            to: small(flow.to),
            bits_per_second: (!test.ping).then_some(send),
            received_bits_per_second: (!test.ping).then_some(receive),
            latency_ns: test.ping.then(|| half_round_trip_s(test, times.send) * 1e9),
            fair_bits_per_second: None,
        }
    };
    RotateRound {
        ranks: small(planned.ranks),
        number: small(planned.number),
        message_bytes: test.bytes,
        messages: test.count,
        window: test.window,
        flows: planned.flows.iter().zip(times).map(flow).collect(),
    }
}

/// Payload of a test in its time.
fn bits(test: &RankTest, took: Duration) -> u64 {
    let bytes = u64::from(test.bytes) * u64::from(test.count);
    units::Rate::average(Bytes::new(bytes), took).as_bits_per_second()
}

fn half_round_trip_s(test: &RankTest, took: Duration) -> f64 {
    took.as_s_f64() / f64::from(test.count.max(1)) / 2.0
}

/// Worst, average and best by number of ranks and size.
fn counts(rotate: &Rotate) -> Vec<RotateCount> {
    let of_times = rotate.measure == "latency";
    let mut counts: Vec<(RotateCount, Vec<Vec<f64>>)> = Vec::new();
    for round in &rotate.rounds {
        let key = (round.ranks, round.message_bytes);
        let known = counts
            .iter()
            .position(|(c, _)| (c.ranks, c.message_bytes) == key);
        let at = known.unwrap_or_else(|| {
            let count = RotateCount {
                ranks: round.ranks,
                message_bytes: round.message_bytes,
                ..RotateCount::default()
            };
            counts.push((count, Vec::new()));
            counts.len() - 1
        });
        let value = |f: &RotateFlow| match of_times {
            true => f.latency_ns,
            false => f.bits_per_second.map(|bits| bits as f64),
        };
        counts[at]
            .1
            .push(round.flows.iter().filter_map(value).collect());
    }
    let best_of = |bytes: u32| {
        let same = counts.iter().filter(|(c, _)| c.message_bytes == bytes);
        same.flat_map(|(_, rounds)| rounds.iter().flatten().copied())
            .fold(0.0, f64::max)
    };
    let bests: Vec<f64> = counts
        .iter()
        .map(|(c, _)| best_of(c.message_bytes))
        .collect();
    let each = counts.into_iter().zip(bests);
    each.map(|((count, rounds), best)| count_of(count, &rounds, of_times, best))
        .collect()
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and a rate is not negative"
)]
fn count_of(count: RotateCount, rounds: &[Vec<f64>], of_times: bool, best: f64) -> RotateCount {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let Some(spread) = pairs::Spread::of_rounds(rounds) else {
        return count;
    };
    let count = RotateCount {
        rounds: small(rounds.len()),
        pairs: small(spread.count),
        ..count
    };
    if of_times {
        return RotateCount {
            worst_latency_ns: Some(spread.max),
            average_latency_ns: Some(spread.mean),
            best_latency_ns: Some(spread.min),
            ..count
        };
    }
    let rate = |bits: f64| Some(bits.round() as u64);
    RotateCount {
        worst_bits_per_second: rate(spread.min),
        average_bits_per_second: rate(spread.mean),
        best_bits_per_second: rate(spread.max),
        aggregate_bits_per_second: rate(spread.sum),
        floor_bits_per_second: rate(spread.floor),
        average_share: Some(spread.mean / best.max(1.0)),
        ..count
    }
}

/// Where nothing is named.
const DEFAULT: &str = "lab:static-routes";

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(from: u32, to: u32, bits: u64) -> RotateFlow {
        RotateFlow {
            from,
            to,
            bits_per_second: Some(bits),
            ..RotateFlow::default()
        }
    }

    #[test]
    fn counts_are_of_a_number_of_ranks_and_a_size() {
        let round = |ranks, number, flows: &[RotateFlow]| RotateRound {
            ranks,
            number,
            message_bytes: 1 << 20,
            flows: flows.to_vec(),
            ..RotateRound::default()
        };
        let rotate = Rotate {
            measure: "bandwidth".to_owned(),
            rounds: vec![
                round(2, 0, &[flow(0, 1, 100)]),
                round(4, 0, &[flow(0, 2, 100), flow(1, 3, 50)]),
                round(4, 1, &[flow(0, 3, 80), flow(1, 2, 50)]),
            ],
            ..Rotate::default()
        };
        let counts = counts(&rotate);
        assert_eq!(
            (counts[0].ranks, counts[0].pairs, counts[0].rounds),
            (2, 1, 1)
        );
        assert_eq!(counts[0].average_share, Some(1.0));
        let four = &counts[1];
        assert_eq!((four.rounds, four.pairs), (2, 4));
        assert_eq!(four.worst_bits_per_second, Some(50));
        assert_eq!(four.average_bits_per_second, Some(70));
        assert_eq!(four.best_bits_per_second, Some(100));
        // 150 and 130 together; 2 x 50 of each waits for the slowest.
        assert_eq!(four.aggregate_bits_per_second, Some(140));
        assert_eq!(four.floor_bits_per_second, Some(100));
    }

    #[test]
    fn each_pair_keeps_its_own_best_test() {
        let times = |send, receive| FlowTimes {
            send: Duration::from_ms(send),
            receive: Duration::from_ms(receive),
        };
        let best = shortest(Vec::new(), vec![times(5, 9), times(7, 1)]);
        let best = shortest(best, vec![times(6, 8), times(4, 2)]);
        assert_eq!(best, [times(5, 8), times(4, 1)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        use clap::Parser;
        let refused = |typed: &str| {
            let cli = crate::cli::Cli::try_parse_from(typed.split(' '));
            let Ok(crate::cli::Cli {
                verb: crate::cli::Verb::Rotate(args),
                ..
            }) = cli
            else {
                return "by clap".to_owned();
            };
            let checked = plan::check(&args).and_then(|()| {
                let names: Vec<String> = (0..4).map(|n| format!("h{n}")).collect();
                target(&args)?;
                plan::of(&args, &names).map(drop)
            });
            checked.map_or_else(|e| e.to_string(), |()| "nothing".to_owned())
        };
        for (typed, says) in [
            ("goodput rotate --hosts a,b,c,d", "nothing"),
            ("goodput rotate --hosts a", "two"),
            ("goodput rotate n01", "one host is no cluster"),
            ("goodput rotate --hosts a,b,a", "twice"),
            ("goodput rotate --hosts a,b --mpi", "by clap"),
            ("goodput rotate --mpi --congestion reno", "with --mpi"),
            ("goodput rotate --mpirun 2 --congestion reno", "with --mpi"),
            ("goodput rotate --mpirun 2 --observer cbench", "nothing"),
            ("goodput rotate --mpirun 1", "two processes"),
            ("goodput rotate --mpirun 2 --mpi", "by clap"),
            ("goodput rotate --mpirun 2 --hosts a,b", "by clap"),
            (
                "goodput rotate --hosts a,b --observer cbench",
                "go with --mpirun",
            ),
            ("goodput rotate --turns 3", "go with --mpirun"),
            (
                "goodput rotate --hosts a,b --cbench /opt",
                "--observer cbench",
            ),
            ("goodput rotate --mpirun 2 --turns 0", "--turns 0"),
            (
                "goodput rotate --mpirun 2 --observer cbench --length 1MiB",
                "its sizes",
            ),
            (
                "goodput rotate --mpirun 2 --observer cbench --pattern com",
                "--pattern",
            ),
            ("goodput rotate --mpi --bind 10.0.0.1", "with --mpi"),
            ("goodput rotate --mpi --device eth0", "with --mpi"),
            ("goodput rotate --mpi --dscp ef", "with --mpi"),
            ("goodput rotate --mpi --token-file secret", "with --mpi"),
            (
                "goodput rotate --hosts a,b,c,d --pattern com --list no/such",
                "--list: cannot read no/such",
            ),
            (
                "goodput rotate --hosts a,b,c,d --pattern com --per-node 9223372036854775808",
                "do not fill",
            ),
            ("goodput rotate --hosts a,b,c,d --nodes 2,9", "9 of 4 ranks"),
            ("goodput rotate --hosts a,b,c,d --nodes 1", "two at least"),
            ("goodput rotate --hosts a,b,c,d --length 9MiB", "9MiB"),
            ("goodput rotate --hosts a,b,c,d --length 1..8", "com"),
            ("goodput rotate --hosts a,b,c,d --bidirectional", "com"),
            ("goodput rotate --hosts a,b,c,d --per-node 2", "com"),
            (
                "goodput rotate --hosts a,b,c,d --pattern com --per-node 3",
                "blocks of 6",
            ),
            (
                "goodput rotate --hosts a,b,c,d --pattern mpigraph --latency",
                "mpigraph",
            ),
            ("goodput rotate --hosts a,b,c,d --messages 0", "0 messages"),
            ("goodput rotate --hosts a,b,c,d --tests 0", "--tests 0"),
            (
                "goodput rotate --hosts a,b,c,d --latency --window 2",
                "--window",
            ),
        ] {
            let said = refused(typed);
            assert!(said.contains(says), "{typed}: {said}");
        }
    }
}
