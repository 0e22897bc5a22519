//! `goodput rotate` as it is typed: pairs of hosts that send to each other at once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cluster::rotate::{self, Beside, Far, Measured, Mpirun, Pattern, Setup, Turns};
use fault::{Failure, Verdict};
use job::{Context, Target, record};
use report::RunFolder;
use report::model::{FindingRecord, PathFacts, Run, RunState, SCHEMA_VERSION};

use crate::args::ApproachArgs;
use crate::args::measure::approach;
use crate::print;
use doctor::messages;

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

/// Who runs beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RotateObserverArg {
    /// CBench's own rotate or, with --latency, rotate_latency; of bandwidth its parser reads our lines
    Cbench,
}

/// What is told `mpirun` beside what the program wants.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct MpirunArgs {
    /// Start so many processes of this program with mpirun, and keep the run here. Needs a build with --features mpi
    #[arg(long, value_name = "N", conflicts_with_all = ["target", "hosts", "mpi"])]
    mpirun: Option<u32>,
    /// With --mpirun: options for it, as "--hostfile nodes --map-by node"
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    mpirun_with: Option<String>,
    /// With --mpirun: start them so often; each pair's best counts [default: 1, with --observer 10]
    #[arg(long, value_name = "N")]
    turns: Option<u32>,
    /// With --mpirun: who measures the same in turns with ours
    #[arg(long, value_enum, value_name = "WHO")]
    observer: Option<RotateObserverArg>,
    /// With --observer cbench: folder with rotate, rotate_latency and output_parse, or CBench's tree with bin
    /// and perllib [default: where the programs are found in PATH]
    #[arg(long, value_name = "DIR", env = CBENCH_PLACE)]
    cbench: Option<PathBuf>,
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

impl From<PatternArg> for Pattern {
    fn from(arg: PatternArg) -> Self {
        match arg {
            PatternArg::Rotate => Self::Rotate,
            PatternArg::Com => Self::Com,
            PatternArg::MpiGraph => Self::MpiGraph,
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

    /// What is wanted of the ranks.
    fn setup(&self) -> Result<Setup, Failure> {
        Ok(Setup {
            pattern: self.pattern.into(),
            latency: self.latency,
            bidirectional: self.bidirectional,
            over_mpi: self.over_mpi(),
            nodes: self.nodes.clone(),
            sizes: sizes(self)?,
            messages: self.messages,
            window: self.window,
            tests: self.tests,
            per_node: self.per_node,
            list: self.list.clone(),
            seed: self.seed,
        })
    }
}

/// Does what was typed.
pub(crate) fn run(args: &RotateArgs, context: &Context) -> Verdict {
    let Some(done) = perform(args, context)? else {
        return Ok(fault::DONE);
    };
    match args.json {
        true => print::print_json(&done.run)?,
        false => print::rotate::run(&done.run, &done.findings, &done.folder, args.mpi)?,
    }
    let conclusive = done.run.verdict.as_ref().is_some_and(|v| v.conclusive);
    Ok(match conclusive {
        true => fault::DONE,
        false => fault::CHECK_FAILED,
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
    let setup = check(args)?;
    let (observer, stop) = (&print::rotate::observer(args.json), &context.stop);
    if args.mpi {
        let begin = |ranks| Kept::begin(args, None, &format!("mpi-{ranks}-ranks"), context);
        let led = rotate::over_mpi(&setup, begin, observer, stop)?;
        return led
            .map(|(kept, found, result)| kept.end(found, result, context))
            .transpose();
    }
    let mut found = Measured::new(&setup);
    if let Some(processes) = args.started.mpirun {
        let turns = Turns::prepare(mpirun(args, processes), args.latency)?;
        let name = format!("mpirun-{processes}-ranks");
        let kept = Kept::begin(args, None, &name, context)?;
        let place = kept.folder.path();
        let result = turns.run(&setup, place, &mut found, observer, stop);
        return kept.end(found, result, context).map(Some);
    }
    let (target, name) = target(args)?;
    let kept = Kept::begin(args, target.as_ref(), &name, context)?;
    let congestion = args.congestion.as_deref();
    let result = match &target {
        Some(Target::Lab(path)) => no_approach(&args.approach).and_then(|()| {
            let named = &args.hosts;
            rotate::in_lab(&setup, path, named, congestion, &mut found, observer, stop)
        }),
        _ => far(args)
            .and_then(|hosts| rotate::far(&setup, &hosts, congestion, &mut found, observer, stop)),
    };
    kept.end(found, result, context).map(Some)
}

/// The hosts that were named, each with how to come to it.
fn far(args: &RotateArgs) -> Result<Vec<Far>, Failure> {
    let each = args.hosts.iter().map(|name| {
        let target = Target::parse(Some(name))?;
        let Target::Host(host) = &target else {
            return Err(Failure::usage(format!(
                "--hosts {name}: expected hosts where `goodput serve --ranks` runs"
            )));
        };
        Ok(Far {
            name: name.clone(),
            host: host.clone(),
            approach: approach(&args.approach, &target)?,
        })
    });
    each.collect()
}

fn mpirun(args: &RotateArgs, processes: u32) -> Mpirun {
    let started = &args.started;
    Mpirun {
        processes,
        with: started.mpirun_with.clone(),
        turns: started.turns,
        beside: match started.observer {
            Some(RotateObserverArg::Cbench) => Beside::Cbench(started.cbench.clone()),
            None => Beside::Nobody,
        },
        words: words(args),
    }
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
        _ => Err(Failure::usage(format!(
            "'{typed}': one host is no cluster; name them with --hosts A,B,..., or a lab as lab:FILE"
        ))),
    }
}

/// What is wanted; refuses what makes no sense however many ranks there are.
fn check(args: &RotateArgs) -> Result<Setup, Failure> {
    let refuse = |text: String| Err(Failure::usage(text));
    let com = args.pattern == PatternArg::Com;
    if !com && (args.bidirectional || args.per_node.is_some() || args.list.is_some()) {
        return refuse("--bidirectional, --per-node and --list are of --pattern com".to_owned());
    }
    if com && !args.nodes.is_empty() {
        return refuse("--pattern com goes through all numbers of ranks by itself".to_owned());
    }
    if args.pattern == PatternArg::MpiGraph && args.latency {
        return refuse(
            "mpigraph measures bandwidth: --latency goes with rotate and com".to_owned(),
        );
    }
    if args.latency && args.window.is_some() {
        return refuse(
            "--window: in a ping-pong each message comes back before the next".to_owned(),
        );
    }
    if args.tests == Some(0) || args.tests.is_some_and(|n| n > TESTS_MAX) {
        let tests = args.tests.unwrap_or(0);
        return refuse(format!("--tests {tests}: 1 to {TESTS_MAX} work"));
    }
    if args.over_mpi() && (args.congestion.is_some() || is_set(&args.approach)) {
        return refuse(
            "--congestion, --bind, --device, --dscp and --token-file are TCP's: with --mpi the MPI \
             library makes the connections"
                .to_owned(),
        );
    }
    for (n, host) in args.hosts.iter().enumerate() {
        if host.is_empty() || args.hosts[..n].contains(host) {
            return refuse(match host.as_str() {
                "" => "--hosts with an empty name: expected hosts with commas between".to_owned(),
                host => format!("--hosts names {host} twice: a rank is a host of its own"),
            });
        }
    }
    if args.hosts.len() == 1 {
        return refuse("--hosts: a pair takes two hosts at least".to_owned());
    }
    check_started(args)?;
    args.setup()
}

/// Refuses what does not go together.
fn check_started(args: &RotateArgs) -> Result<(), Failure> {
    let refuse = |text: String| Err(Failure::usage(text));
    let started = &args.started;
    if started.mpirun.is_some_and(|n| n < 2) {
        return refuse("--mpirun: a pair takes two processes at least".to_owned());
    }
    let more =
        started.turns.is_some() || started.observer.is_some() || started.mpirun_with.is_some();
    if more && started.mpirun.is_none() {
        return refuse("--turns, --observer and --mpirun-with go with --mpirun".to_owned());
    }
    if started.turns.is_some_and(|n| n == 0 || n > TURNS_MAX) {
        let turns = started.turns.unwrap_or(0);
        return refuse(format!("--turns {turns}: 1 to {TURNS_MAX} work"));
    }
    if started.observer.is_none() {
        // The variable may be set for whenever it is needed.
        let typed = started.cbench.is_some() && std::env::var_os(CBENCH_PLACE).is_none();
        return match typed {
            true => refuse("--cbench goes with --observer cbench".to_owned()),
            false => Ok(()),
        };
    }
    if args.pattern != PatternArg::Rotate {
        return refuse(
            "--observer cbench: its programs are rotate and rotate_latency; leave --pattern out"
                .to_owned(),
        );
    }
    let own = args.length.is_some()
        || args.messages.is_some()
        || args.window.is_some()
        || args.tests.is_some()
        || args.seed.is_some()
        || !args.nodes.is_empty();
    if own {
        return refuse(
            "--observer cbench: its sizes, counts and order are fixed (10 messages of 8 MiB, best of 3; 10,000 round \
             trips); leave --length, --messages, --window, --tests, --nodes and --seed out"
                .to_owned(),
        );
    }
    Ok(())
}

/// Sizes of messages, where they were typed.
fn sizes(args: &RotateArgs) -> Result<Option<Vec<u32>>, Failure> {
    let Some(typed) = &args.length else {
        return Ok(None);
    };
    let sizes = messages::sizes_of("--length", typed)?;
    if sizes.len() > 1 && args.pattern != PatternArg::Com {
        return Err(Failure::usage(format!(
            "--length {typed}: several sizes go with --pattern com"
        )));
    }
    Ok(Some(sizes))
}

fn no_approach(approach: &ApproachArgs) -> Result<(), Failure> {
    if is_set(approach) {
        return Err(Failure::usage(
            "--bind, --device, --dscp and --token-file are for far hosts, not for labs",
        ));
    }
    Ok(())
}

/// Whether any of them was typed.
fn is_set(approach: &ApproachArgs) -> bool {
    let ApproachArgs {
        bind,
        device,
        dscp,
        token_file,
    } = approach;
    bind.is_some() || device.is_some() || dscp.is_some() || token_file.is_some()
}

/// This invocation's words for a process of MPI, but for where its run goes.
fn words(args: &RotateArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = [
        "rotate",
        "--mpi",
        "--pattern",
        Pattern::from(args.pattern).name(),
    ]
    .map(OsString::from)
    .into();
    for (word, is_set) in [
        ("--latency", args.latency),
        ("--bidirectional", args.bidirectional),
    ] {
        if is_set {
            words.push(word.into());
        }
    }
    let nodes: Vec<String> = args.nodes.iter().map(usize::to_string).collect();
    let number = |n: Option<u32>| n.map(|n| n.to_string());
    for (word, value) in [
        ("--nodes", (!nodes.is_empty()).then(|| nodes.join(","))),
        ("--length", args.length.clone()),
        ("--messages", number(args.messages)),
        ("--window", number(args.window)),
        ("--tests", number(args.tests)),
        ("--per-node", args.per_node.map(|n| n.to_string())),
        ("--seed", args.seed.map(|n| n.to_string())),
    ] {
        if let Some(value) = value {
            words.extend([word.into(), value.into()]);
        }
    }
    if let Some(list) = &args.list {
        words.extend(["--list".into(), list.into()]);
    }
    words
}

/// The run folder and what goes into it.
#[derive(Debug)]
struct Kept {
    run: Run,
    folder: RunFolder,
}

impl Kept {
    fn begin(
        args: &RotateArgs,
        target: Option<&Target>,
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
            run.path = Some(PathFacts {
                source: "configured".to_owned(),
                file: Some(path.file.display().to_string()),
                text: Some(path.text.clone()),
                title: Some(path.title.clone()),
                ..PathFacts::default()
            });
        }
        let folder = RunFolder::create(&args.runs, "rotate", name, run.clone())?;
        Ok(Self { run, folder })
    }

    /// Sums up, writes everything.
    fn end(
        mut self,
        mut found: Measured,
        result: Result<(), Failure>,
        context: &Context,
    ) -> Result<Done, Failure> {
        let certificate = found.certificate.as_ref().map(record::certificate);
        let behind = record::fell_behind(certificate.as_ref());
        found.rotate.certificate = certificate;
        let whole = result.is_ok() && context.interrupted().is_none();
        let (findings, verdict) = found.conclude(whole, behind);
        self.run.verdict = Some(verdict);
        self.run.hosts = found.hosts;
        let empty = found.rotate.rounds.is_empty();
        self.run.rotate = Some(found.rotate);
        record::end_as(&mut self.run, &result, context);
        let folder = self.folder.path().to_owned();
        let kept = self.folder.finish(&self.run, &findings);
        if let Some(code) = context.interrupted() {
            if !empty {
                let page = folder.join("report.html");
                print::note(format_args!("what was measured so far: {}", page.display()));
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

/// Where nothing is named.
const DEFAULT: &str = "lab:static-routes";
const CBENCH_PLACE: &str = "GOODPUT_CBENCH";
/// More would not make the best one better.
const TESTS_MAX: u32 = 1_000;
/// More would take hours.
const TURNS_MAX: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        use clap::Parser;
        let refused = |typed: &str| {
            let cli = crate::args::Cli::try_parse_from(typed.split(' '));
            let Ok(crate::args::Cli {
                verb: crate::args::Verb::Rotate(args),
                ..
            }) = cli
            else {
                return "by clap".to_owned();
            };
            let checked = check(&args).and_then(|setup| {
                let names: Vec<String> = (0..4).map(|n| format!("h{n}")).collect();
                target(&args)?;
                rotate::plan(&setup, &names).map(drop)
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
    #[test]
    fn processes_are_told_what_was_typed() {
        let args = RotateArgs {
            pattern: PatternArg::Com,
            bidirectional: true,
            length: Some("32..1KiB".to_owned()),
            messages: Some(5),
            list: Some("pairs.txt".into()),
            seed: Some(7),
            nodes: vec![2, 4],
            ..RotateArgs::default()
        };
        let all = words(&args);
        let all: Vec<_> = all.iter().map(|w| w.to_string_lossy()).collect();
        assert_eq!(
            all.join(" "),
            "rotate --mpi --pattern com --bidirectional --nodes 2,4 --length 32..1KiB --messages 5 --seed 7 --list pairs.txt"
        );
    }
}
