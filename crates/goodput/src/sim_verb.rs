//! `goodput sim`: a path file in virtual time.
//!
//! The same file as the lab runs, through the same link machines, with TCP endpoints of our own in
//! place of kernels. It leaves a run folder like `measure`'s, so that `goodput report` lays both side by side.

mod capture;
mod judge;
mod network;
mod vary;

use std::path::PathBuf;

use explain::PathKnowledge;
use lab::PathFile;
use report::RunFolder;
use report::model::{
    FindingRecord, GapThreshold, ModelFacts, PathFacts, Phase, Run, SampleRecord,
    Verdict as RunVerdict,
};
use report::settling::{self, Known};
use sim::{FlowInfo, Gaps, World};
use tcp::{Algorithm, Hystart, Pacing};
use units::{Bytes, Duration, Instant, Rate};

use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::record;
use crate::target::Target;
use network::{PacingWish, Planned, Wishes};
use vary::PacingArg;

/// What `goodput sim` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// A path file, or the name of a built-in path
    pub(crate) path: String,
    /// Virtual time that data is sent [default: the path file's, else 10s]
    #[arg(short, long, visible_alias = "duration", value_name = "TIME")]
    pub(crate) time: Option<Duration>,
    /// Start of it that is left out of the headline number [default: the path file's, else a fifth]
    #[arg(long, value_name = "TIME")]
    pub(crate) ramp: Option<Duration>,
    /// Parallel connections, 1 to 128 [default: the path file's, else 1]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) streams: Option<u16>,
    /// Time between the starts of two connections
    #[arg(long, value_name = "TIME", default_value = "100us")]
    pub(crate) apart: Duration,
    /// Congestion control: reno, cubic, bbr, bbr3, scalable or fast, several after commas [default: the
    /// path file's; bbr where the rate is found]
    #[arg(
        short,
        long,
        value_name = "NAME",
        visible_alias = "cc",
        value_delimiter = ','
    )]
    pub(crate) congestion: Vec<String>,
    /// What holds packets back, several after commas: off, window (the rate of window and round trip, as
    /// Linux), exact (that rate itself, packet by packet), a rate of payload such as 900Mb/s, auto (the rate is
    /// found on the way), gap=OCTETS between frames on the sender's line or gap=600..800/20, app=RATE:SIZE (writes
    /// of that size), limit=SIZE in flight
    #[arg(long, value_name = "HOW", default_value = "off", value_parser = vary::pacing, value_delimiter = ',')]
    pub(crate) pacing: Vec<PacingArg>,
    /// Room of the queue before the slowest link, several after commas [default: the path file's]
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    pub(crate) queue: Vec<Bytes>,
    /// Keep the packets on the sender's line for so long after the ramp, as pcapng in the run folder
    #[arg(long, value_name = "TIME")]
    pub(crate) capture: Option<Duration>,
    /// Have another program read the capture as well
    #[arg(long, value_name = "TOOL", requires = "capture")]
    pub(crate) observer: Option<SimObserver>,
    /// Host that sends, in place of the path file's
    #[arg(long, value_name = "HOST")]
    pub(crate) from: Option<String>,
    /// Host that receives, in place of the path file's
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,
    /// What the window grows by: bytes (RFC 3465, Linux) or acks, whatever each acknowledges (RFC 5681)
    #[arg(long, value_enum, default_value_t = GrowthArg::Bytes)]
    pub(crate) growth: GrowthArg,
    /// Say what limits each, as doctor does, with short simulations that tell causes apart
    #[arg(long)]
    pub(crate) explain: bool,
    /// How slow start may end before a loss: linux (HyStart), plusplus (RFC 9406) or off
    #[arg(long, value_enum, default_value_t = HystartArg::Linux)]
    pub(crate) hystart: HystartArg,
    /// MTU, at most the path's
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_535))]
    pub(crate) mtu: Option<u32>,
    /// Most bytes that the sender's host hands over as one (GSO); 0B: packet by packet
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub(crate) burst: Bytes,
    /// Seed of the random stages of all links [default: the path file's]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Virtual time between samples
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    pub(crate) every: Duration,
    /// Folder that run folders are made in
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    pub(crate) runs: PathBuf,
    /// Print the run as JSON (run.json's layout) instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--hystart`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HystartArg {
    Linux,
    Plusplus,
    Off,
}

/// `--growth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum GrowthArg {
    Bytes,
    Acks,
}

/// `--observer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SimObserver {
    Tshark,
}

pub(crate) const SIM_EXAMPLES: &str = "\
Examples:
  goodput sim lsr-522ms                             a minute of a built-in path in a second or two
  goodput sim healthy-1g-20ms --time 60s --congestion reno
  goodput sim wan-phy-behind-lan-phy --pacing gap=720
  goodput sim master-1-wan-phy --pacing gap=700..720/1,off    one run for each, in one table
  goodput report runs/*-measure-* runs/*-sim-*      the lab's run and the sim's in one table";

/// A finished run.
#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) run: Run,
    pub(crate) folder: PathBuf,
    findings: Vec<FindingRecord>,
    packets: u64,
    wall: std::time::Duration,
    /// Of all its simulations.
    time: Duration,
}

/// Simulates a path file and prints what came of it.
pub(crate) fn command(args: &SimArgs, context: &Context) -> Verdict {
    let done = perform(args, context)?;
    if args.json {
        context::print_json(&done.run)?;
    } else {
        let text = report::terminal::summary(
            &done.run,
            &done.findings,
            context::color(),
            context::width(),
        );
        context::print_colored(&text)?;
        context::print(&table(&done.run))?;
        context::print(&speed(done.packets, done.wall, done.time))?;
        let page = done.folder.join("report.html");
        context::print_place("Report", &page)?;
    }
    Ok(failure::DONE)
}

/// Simulates a path file and keeps the run.
pub(crate) fn perform(args: &SimArgs, context: &Context) -> Result<Simulated, Failure> {
    let name = args.path.strip_prefix("lab:").unwrap_or(&args.path);
    let target = Target::parse(Some(&format!("lab:{name}")))?;
    let Target::Lab(path) = &target else {
        return Err(Failure::usage(anyhow::anyhow!("'{name}' is no path file")));
    };
    let path = &between(path, args)?;
    let cells = cells(args, path)?;
    // All are looked at before the first one runs.
    for cell in &cells {
        network::plan(path, &cell.wishes)?;
    }
    let planned = network::plan(path, &cells[0].wishes)?;
    let time = args.time.unwrap_or(path.transfer.duration);
    let ramp = match (args.ramp, args.time) {
        (Some(ramp), _) => ramp,
        (None, None) => path.transfer.ramp,
        (None, Some(time)) => path.transfer.ramp.min(Duration::from_ns(time.as_ns() / 5)),
    };
    if ramp >= time || args.every == Duration::ZERO {
        return Err(Failure::usage(anyhow::anyhow!(
            "the ramp must be shorter than the time, and samples some time apart"
        )));
    }
    let mut run = record::begin("sim", &target, context);
    run.seed = args.seed.or(run.seed);
    run.path = Some(facts(path, &planned, args.queue.len() <= 1));
    let mut folder = RunFolder::create(&args.runs, "sim", &target.name(), run.clone())?;
    let mut findings = Vec::new();
    let result = all_cells(
        &cells,
        path,
        args,
        [time, ramp],
        context,
        &mut folder,
        (&mut run, &mut findings),
    );
    record::end_as(&mut run, &result, context);
    let page = folder.path().to_owned();
    let kept = folder.finish(&run, &findings);
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    let (packets, wall) = result?;
    kept?;
    Ok(Simulated {
        run,
        folder: page,
        findings,
        packets,
        wall,
        time: time.saturating_mul(cells.len() as u64),
    })
}

/// The path with the ends that were asked for.
fn between(path: &PathFile, args: &SimArgs) -> Result<PathFile, Failure> {
    let named = |name: &str| {
        let place = path.network.hosts.iter().position(|h| h.name == name);
        place.ok_or_else(|| Failure::usage(anyhow::anyhow!("the path file has no host '{name}'")))
    };
    let from = args.from.as_deref().map(named).transpose()?;
    let to = args.to.as_deref().map(named).transpose()?;
    let (from, to) = (
        from.unwrap_or(path.transfer.from),
        to.unwrap_or(path.transfer.to),
    );
    path.between(from, to)
        .map_err(|problem| Failure::usage(anyhow::anyhow!(problem)))
}

/// One of the simulations that a run is made of.
#[derive(Clone, Debug)]
struct Cell {
    /// What differs from the others.
    name: String,
    wishes: Wishes,
}

/// Every combination of what was typed.
fn cells(args: &SimArgs, path: &PathFile) -> Result<Vec<Cell>, Failure> {
    let near = &path.network.hosts[path.transfer.from];
    let own = [near.congestion_control.clone()];
    let names: &[String] = match args.congestion.is_empty() {
        true => &own,
        false => &args.congestion,
    };
    let queues: Vec<Option<Bytes>> = match args.queue.is_empty() {
        true => vec![None],
        false => args.queue.iter().copied().map(Some).collect(),
    };
    let pacings: Vec<PacingWish> = args.pacing.iter().flat_map(|p| p.0.clone()).collect();
    let mut cells = Vec::new();
    for name in names {
        for queue in &queues {
            for pacing in &pacings {
                let mut parts = Vec::new();
                if names.len() > 1 {
                    parts.push(name.clone());
                }
                parts.extend(queue.filter(|_| queues.len() > 1).map(|q| q.to_string()));
                if pacings.len() > 1 {
                    parts.push(pacing.to_string());
                }
                let name_of_all = match parts.is_empty() {
                    true => PHASE.to_owned(),
                    false => parts.join(", "),
                };
                let algorithm = match pacing {
                    PacingWish::Auto if args.congestion.is_empty() => Algorithm::Bbr.name(),
                    _ => name,
                };
                cells.push(Cell {
                    name: name_of_all,
                    wishes: wishes(args, path, algorithm, *pacing, *queue)?,
                });
            }
        }
    }
    let mut names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(anyhow::anyhow!(
            "'{}' would be simulated twice",
            pair[0]
        )));
    }
    if cells.len() > CELLS_MAX {
        return Err(Failure::usage(anyhow::anyhow!(
            "{} simulations are too many for one run; {CELLS_MAX} at most",
            cells.len()
        )));
    }
    Ok(cells)
}

/// Simulates one after the other; packets and time in all.
fn all_cells(
    cells: &[Cell],
    path: &PathFile,
    args: &SimArgs,
    [time, ramp]: [Duration; 2],
    context: &Context,
    folder: &mut RunFolder,
    (run, findings): (&mut Run, &mut Vec<FindingRecord>),
) -> Result<(u64, std::time::Duration), Failure> {
    let (mut packets, mut wall) = (0, std::time::Duration::ZERO);
    let mut lasts = None;
    for cell in cells {
        let planned = network::plan(path, &cell.wishes)?;
        let course = Course {
            name: &cell.name,
            time,
            ramp,
            every: args.every,
            capture: args.capture,
            finds: (cell.wishes.pacing == PacingWish::Auto).then(|| args.seed.unwrap_or(1)),
            settles: cell.wishes.pacing != PacingWish::Off,
            explains: args.explain,
        };
        let outcome = simulate(&planned, &course, context, Some(&mut *folder))?;
        if context.interrupted().is_some() {
            break;
        }
        let mut phase = phase(path, cell, &planned, &outcome, time, ramp);
        phase.settling = match (&outcome.kept, &run.path) {
            (Some(kept), Some(path)) => settling::of(kept, &cell.name, known(path)),
            _ => None,
        };
        if let (Some(model), Some(passed)) = (&mut phase.model, &outcome.passed) {
            let name = cell.name.replace([' ', ',', '/'], "-");
            if passed.len() >= PASSED_MAX {
                phase.notes.push(format!(
                    "The capture ends after {PASSED_MAX} packets, before the time that was asked for"
                ));
            }
            let file = folder.path().join(format!("{name}.pcapng"));
            capture::write(&file, passed, &planned)?;
            let asked = model.gap_octets;
            model
                .spacing
                .push(capture::spacing(passed, &planned, asked));
            if args.observer == Some(SimObserver::Tshark) {
                let theirs = capture::by_tshark(&file, &planned, asked)?;
                model.spacing.push(theirs);
            }
        }
        if args.explain {
            let diagnosis = judge::diagnose(path, cell, &planned, &outcome, &course, context)?;
            findings.extend(record::findings(&cell.name, &diagnosis.0));
            phase.probes = diagnosis.1.iter().map(record::probe).collect();
            if let Some(model) = &mut phase.model
                && let Some(opening) = diagnosis.0.facts.opening
            {
                model.segments_per_ack = Some(opening.segments_per_ack);
                model.window_growth = Some(opening.growth);
                model.window_growth_by_acks = Some(opening.growth_by_acks);
            }
            run.verdict = Some(record::verdict(&diagnosis.0));
        }
        run.phases.push(phase);
        run.gap_threshold = threshold(&run.phases, &planned);
        packets += outcome.packets;
        wall += outcome.wall;
        lasts = Some(outcome);
    }
    if !args.explain {
        run.verdict = lasts.map(|last| verdict(run, &last));
    }
    Ok((packets, wall))
}

/// Where gaps stop losing, of several.
fn threshold(phases: &[Phase], planned: &Planned) -> Option<GapThreshold> {
    let mut gaps: Vec<(u32, u64)> = phases
        .iter()
        .filter_map(|p| p.model.as_ref())
        .filter_map(|m| Some((m.gap_octets?, m.dropped_at_queues)))
        .collect();
    gaps.sort_unstable();
    let losing = gaps.iter().rposition(|(_, dropped)| *dropped > 0);
    let clean = gaps.get(losing.map_or(0, |n| n + 1));
    (gaps.len() > 1).then(|| GapThreshold {
        balanced_octets: planned.balanced_gap,
        losing_octets: losing.map(|n| gaps[n].0),
        clean_octets: clean.map(|(gap, _)| *gap),
    })
}

/// How long, and what is kept of it.
#[derive(Clone, Copy, Debug)]
struct Course<'a> {
    name: &'a str,
    time: Duration,
    ramp: Duration,
    every: Duration,
    capture: Option<Duration>,
    /// Seed of the search for the rate.
    finds: Option<u64>,
    /// Samples are kept to tell how it settled, if they are not too many.
    settles: bool,
    /// Samples are kept for the rules.
    explains: bool,
}

/// The bottleneck's queue and the drops, sample by sample.
#[derive(Clone, Debug, Default)]
struct QueueTrack {
    /// Time and deepest level so far, before the first drop.
    levels: Vec<(Instant, u64)>,
    first_drop: Option<Instant>,
}

impl QueueTrack {
    fn look(&mut self, world: &World, planned: &Planned) {
        if self.first_drop.is_some() {
            return;
        }
        if queue_drops(world, planned)[0] > 0 {
            self.first_drop = Some(world.now());
        } else if let Some(hop) = planned.bottleneck {
            let level = world.counters(hop.link, hop.way).queue_bytes_max;
            self.levels.push((world.now(), level));
        }
    }

    /// Fastest growth over half a second.
    fn growth(&self) -> Option<u64> {
        let mut from = 0;
        let mut most = None;
        for (at, level) in &self.levels {
            // The last level that is half a second old.
            while let Some((next, _)) = self.levels.get(from + 1)
                && at.saturating_since(*next) >= GROWS_OVER
            {
                from += 1;
            }
            let (before, low) = self.levels[from];
            let span = at.saturating_since(before);
            if span >= GROWS_OVER {
                let grown = u128::from(level - low) * 1_000_000_000 / u128::from(span.as_ns());
                most = most.max(u64::try_from(grown).ok());
            }
        }
        most
    }
}

/// Data segments that found no room, and those lost otherwise.
fn queue_drops(world: &World, planned: &Planned) -> [u64; 2] {
    let hops = planned.world.flows.first().map(|f| f.forward.as_slice());
    hops.unwrap_or_default()
        .iter()
        .fold([0; 2], |[full, lost], hop| {
            let c = world.counters(hop.link, hop.way);
            [full + c.queue_full + c.early, lost + c.lost]
        })
}

/// What a simulation gave.
#[derive(Clone, Debug)]
struct Outcome {
    flows: Vec<FlowInfo>,
    /// Payload received, segments sent and sent again by the end of the ramp.
    at_ramp: [u64; 3],
    bytes: u64,
    packets: u64,
    wall: std::time::Duration,
    queue_full: u64,
    lost: u64,
    queue_max_bytes: u64,
    track: QueueTrack,
    passed: Option<Vec<sim::Passed>>,
    /// The senders' samples.
    streams: Vec<explain::StreamEvidence>,
    kept: Option<Vec<SampleRecord>>,
}

fn gaps(planned: &Planned, seed: u64) -> Gaps {
    let segments = vec![planned.segment_bytes; planned.world.flows.len()];
    Gaps::new(seed, &segments)
}

pub(crate) fn known(path: &PathFacts) -> Known {
    Known {
        achievable_bits_per_second: path.achievable_bits_per_second,
        rate_bits_per_second: path.rate_bits_per_second,
    }
}

fn simulate(
    planned: &Planned,
    course: &Course<'_>,
    context: &Context,
    mut folder: Option<&mut RunFolder>,
) -> Result<Outcome, Failure> {
    let mut world = World::new(planned.world.clone()).map_err(Failure::usage)?;
    let mut streams = vec![explain::StreamEvidence::default(); world.flows()];
    let began = std::time::Instant::now();
    let (ramp, end) = (Instant::ZERO + course.ramp, Instant::ZERO + course.time);
    let captured = course.capture.map(|time| (ramp + time).min(end));
    let sums = |w: &World| {
        let flows = (0..w.flows()).map(|n| w.flow(n));
        flows.fold([0; 3], |[bytes, sent, again], f| {
            let copies = f.sender.map_or(0, |s| s.retransmitted);
            [
                bytes + f.received_bytes,
                sent + f.data_packets,
                again + copies,
            ]
        })
    };
    let (mut at, mut sampled, mut at_ramp) = (Instant::ZERO, Instant::ZERO, None);
    let (mut track, mut passed) = (QueueTrack::default(), None);
    let mut gaps = course.finds.map(|seed| gaps(planned, seed));
    let samples_of_all = course.time.as_ns() / course.every.as_ns().max(1) * world.flows() as u64;
    let few = samples_of_all <= SAMPLES_MAX;
    let mut kept = (course.settles && few).then(Vec::new);
    loop {
        if at == sampled || at >= end {
            for (number, stream) in streams.iter_mut().enumerate() {
                let ceiling = gaps.as_ref().and_then(|g| g.ceiling(number));
                let info = world.flow(number);
                for sample in samples(course.name, number, at, &info, planned, ceiling) {
                    if course.explains && sample.end == "sender" {
                        stream.samples.push(judge::sample(&sample));
                    }
                    if let Some(folder) = &mut folder {
                        folder.append_sample(&sample)?;
                    }
                    if let Some(kept) = &mut kept {
                        kept.push(sample);
                    }
                }
            }
            track.look(&world, planned);
            sampled = at + course.every;
        }
        if at >= ramp && at_ramp.is_none() {
            at_ramp = Some(sums(&world));
            if captured.is_some() {
                world.watch(PASSED_MAX);
            }
        }
        if captured.is_some_and(|to| at >= to) && passed.is_none() {
            passed = Some(world.watched());
        }
        if at >= end || context.interrupted().is_some() {
            break;
        }
        let stops = [Some(sampled), Some(ramp), captured, Some(end)];
        let next = stops.into_iter().flatten().filter(|stop| *stop > at).min();
        at = next.unwrap_or(end);
        match &mut gaps {
            Some(gaps) => gaps.run_until(&mut world, at),
            None => world.run_until(at),
        }
    }
    let flows: Vec<FlowInfo> = (0..world.flows()).map(|n| world.flow(n)).collect();
    let [queue_full, lost] = queue_drops(&world, planned);
    let queue_max_bytes = planned
        .bottleneck
        .map_or(0, |hop| world.counters(hop.link, hop.way).queue_bytes_max);
    Ok(Outcome {
        at_ramp: at_ramp.unwrap_or_default(),
        bytes: sums(&world)[0],
        packets: flows.iter().map(|f| f.data_packets + f.ack_packets).sum(),
        wall: began.elapsed(),
        queue_full,
        lost,
        queue_max_bytes,
        track,
        passed,
        streams,
        kept,
        flows,
    })
}

/// What both ends' `tcp_info` would say.
fn samples(
    phase: &str,
    number: usize,
    at: Instant,
    info: &FlowInfo,
    planned: &Planned,
    ceiling: Option<Rate>,
) -> Vec<SampleRecord> {
    let record = |end: &str, bytes: u64, fields: Vec<(&str, u64)>| SampleRecord {
        phase: phase.to_owned(),
        end: end.to_owned(),
        stream: u32::try_from(number).unwrap_or(0),
        t_ns: at.as_ns(),
        app_bytes: bytes,
        tcp_info: fields.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
    };
    let mut all = vec![record(
        "receiver",
        info.received_bytes,
        vec![("rcv_space_bytes", info.window_bytes)],
    )];
    if let Some(s) = &info.sender {
        let segment = u64::from(planned.segment_bytes);
        let us = |d: Duration| d.as_ns() / 1_000;
        let flow = &planned.world.flows[number].sender;
        // An application that always has more keeps its buffer full.
        let notsent = match flow.application_rate {
            None => flow.buffer_segments.saturating_sub(s.unacked),
            Some(_) => 0,
        };
        let notsent = notsent.saturating_mul(segment).min(u64::from(u32::MAX));
        let mut fields = vec![
            ("segs_in", info.acks_in),
            ("notsent_bytes", notsent),
            (
                "snd_ssthresh_segments",
                s.ssthresh.unwrap_or(SSTHRESH_UNSET),
            ),
            ("snd_mss_bytes", segment),
            ("rtt_us", us(s.rtt)),
            ("snd_cwnd_segments", s.cwnd),
            ("unacked_segments", s.unacked),
            ("retrans_segments", 0),
            ("total_retrans_segments", s.retransmitted),
            ("bytes_acked", s.acknowledged_bytes),
            ("snd_wnd_bytes", (s.window + s.unacked) * segment),
            ("data_segs_out", info.data_packets),
            ("pacing_rate_bytes_per_second", s.pacing_rate),
        ];
        // One that always has more to send has always something outstanding.
        if flow.application_rate.is_none() {
            fields.push(("busy_time_us", at.as_ns() / 1_000));
            fields.push(("rwnd_limited_us", 0));
            fields.push(("sndbuf_limited_us", 0));
        }
        let set = match flow.pacing {
            Pacing::Rate(rate) if rate.as_bits_per_second() < u64::MAX => Some(rate),
            _ => None,
        };
        if let Some(rate) = ceiling.or(set) {
            let bytes = rate.as_bits_per_second() / 8;
            fields.push(("max_pacing_rate_bytes_per_second", bytes));
        }
        if let Some(min) = s.rtt_min {
            fields.push(("min_rtt_us", us(min)));
        }
        let sent = s.acknowledged_bytes + s.unacked * segment;
        all.push(record("sender", sent, fields));
    }
    all
}

fn wishes(
    args: &SimArgs,
    path: &PathFile,
    name: &str,
    pacing: PacingWish,
    queue: Option<Bytes>,
) -> Result<Wishes, Failure> {
    let Some(algorithm) = Algorithm::named(name) else {
        let known: Vec<&str> = Algorithm::ALL.iter().map(|a| a.name()).collect();
        return Err(Failure::usage(anyhow::anyhow!(
            "the sim has no congestion control '{name}'; it has {}",
            known.join(", ")
        )));
    };
    Ok(Wishes {
        streams: args.streams.unwrap_or(path.transfer.streams),
        algorithm,
        hystart: match args.hystart {
            HystartArg::Linux => Hystart::Linux,
            HystartArg::Plusplus => Hystart::PlusPlus,
            HystartArg::Off => Hystart::Off,
        },
        pacing,
        apart: args.apart,
        queue,
        mtu_bytes: args.mtu,
        seed: args.seed,
        burst_bytes: u32::try_from(args.burst.as_u64())
            .unwrap_or(65_536)
            .min(65_536),
        lone_segments: false,
        counts_acks: args.growth == GrowthArg::Acks,
    })
}

/// `one_queue`: all cells have the planned one.
fn facts(path: &PathFile, planned: &Planned, one_queue: bool) -> PathFacts {
    let knowledge = PathKnowledge {
        bottleneck: path.forward.rate,
        mtu_bytes: Some(planned.mtu_bytes),
        ..PathKnowledge::default()
    };
    let rtt = path.rtt_configured();
    PathFacts {
        source: "configured".to_owned(),
        file: Some(path.file.display().to_string()),
        text: Some(path.text.clone()),
        title: Some(path.title.clone()),
        rate_bits_per_second: path.forward.rate.map(Rate::as_bits_per_second),
        achievable_bits_per_second: knowledge.achievable_rate().map(Rate::as_bits_per_second),
        rtt_idle_ns: Some(rtt.as_ns()),
        delay_forward_ns: Some(path.forward.delay.as_ns()),
        delay_backward_ns: Some(path.backward.delay.as_ns()),
        queue_bytes: match one_queue {
            true => planned.queue_bytes,
            false => None,
        },
        loss_forward: path.forward.loss,
        loss_backward: path.backward.loss,
        mtu_bytes: Some(planned.mtu_bytes),
        bdp_bytes: path.forward.rate.map(|r| r.bytes_in(rtt).as_u64()),
    }
}

fn phase(
    path: &PathFile,
    cell: &Cell,
    planned: &Planned,
    outcome: &Outcome,
    time: Duration,
    ramp: Duration,
) -> Phase {
    let wishes = &cell.wishes;
    let [bytes_before, sent_before, again_before] = outcome.at_ramp;
    let senders = outcome.flows.iter().filter_map(|f| f.sender.as_ref());
    let sent: u64 = outcome.flows.iter().map(|f| f.data_packets).sum();
    let again: u64 = senders.map(|s| s.retransmitted).sum();
    let after = Bytes::new(outcome.bytes - bytes_before);
    Phase {
        name: cell.name.clone(),
        attempts: 1,
        direction: "up".to_owned(),
        streams: wishes.streams.into(),
        congestion_control: wishes.algorithm.name().to_owned(),
        application_bits_per_second: match wishes.pacing {
            PacingWish::Application { rate, .. } => rate.as_bits_per_second(),
            _ => 0,
        },
        duration_ns: time.as_ns(),
        ramp_ns: ramp.as_ns(),
        rtt_idle_ns: path.rtt_configured().as_ns(),
        goodput_bits_per_second: Rate::average(after, time - ramp).as_bits_per_second(),
        goodput_whole_bits_per_second: Rate::average(Bytes::new(outcome.bytes), time)
            .as_bits_per_second(),
        bytes_received: outcome.bytes,
        // As the kernel's counts of `measure`: after the ramp.
        segments_sent: sent - sent_before,
        segments_retransmitted: again - again_before,
        segment_bytes: planned.segment_bytes.into(),
        packets_per_second: after.as_u64() / u64::from(planned.segment_bytes) * 1_000_000_000
            / (time - ramp).as_ns().max(1),
        notes: vec![format!(
            "Simulated, not measured: model packets in virtual time; dropped at full queues {}, lost on the way {}",
            outcome.queue_full, outcome.lost
        )],
        model: Some(ModelFacts {
            pacing: wishes.pacing.to_string(),
            gap_octets: match wishes.pacing {
                PacingWish::Gap(octets) => Some(octets),
                _ => None,
            },
            queue_limit_bytes: planned.queue_bytes,
            queue_max_bytes: outcome.queue_max_bytes,
            queue_growth_bytes_per_second: outcome.track.growth(),
            dropped_at_queues: outcome.queue_full,
            lost_on_the_way: outcome.lost,
            first_drop_ns: outcome.track.first_drop.map(Instant::as_ns),
            recoveries: counted(outcome, |s| s.recoveries),
            timeouts: counted(outcome, |s| s.timeouts),
            bus_bits_per_second: planned.bus.map(|(rate, _)| rate.as_bits_per_second()),
            bus_payload_bits_per_second: planned.bus.map(|(_, rate)| rate.as_bits_per_second()),
            ..ModelFacts::default()
        }),
        ..Phase::default()
    }
}

fn verdict(run: &Run, outcome: &Outcome) -> RunVerdict {
    let goodput = run.phases.last().map_or(0, |p| p.goodput_bits_per_second);
    let rate = Rate::from_bits_per_second(goodput);
    let achievable = run.path.as_ref().and_then(|p| p.achievable_bits_per_second);
    let share = achievable.map_or_else(String::new, |a| {
        format!(
            ", {:.1} % of what the path can carry",
            record::percent(rate, a)
        )
    });
    let (recoveries, timeouts) = (
        counted(outcome, |s| s.recoveries),
        counted(outcome, |s| s.timeouts),
    );
    let sentence = match run.phases.len() {
        1 => format!(
            "In the model {rate}{share}; {recoveries} recoveries from loss, {timeouts} timeouts."
        ),
        n => format!("In the model {n} simulations; the last one {rate}{share}."),
    };
    RunVerdict {
        sentence,
        conclusive: true,
        ..RunVerdict::default()
    }
}

fn counted(outcome: &Outcome, field: fn(&tcp::SenderInfo) -> u64) -> u64 {
    let senders = outcome.flows.iter().filter_map(|f| f.sender.as_ref());
    senders.map(field).sum()
}

/// One line for each of several simulations; empty for one.
fn table(run: &Run) -> String {
    if run.phases.len() < 2 {
        return String::new();
    }
    let width = run.phases.iter().map(|p| p.name.chars().count()).max();
    let width = width.unwrap_or(0).max(8);
    let mut text = format!(
        "{:width$}  {:>12}  {:>8}  {:>10}  {:>8}\n",
        "", "goodput", "dropped", "queue", "timeouts"
    );
    for phase in &run.phases {
        let goodput = Rate::from_bits_per_second(phase.goodput_bits_per_second).to_string();
        let Some(model) = &phase.model else { continue };
        let queue = Bytes::new(model.queue_max_bytes).to_string();
        text += &format!(
            "{:width$}  {goodput:>12}  {:>8}  {queue:>10}  {:>8}\n",
            phase.name, model.dropped_at_queues, model.timeouts
        );
    }
    if let Some(gaps) = &run.gap_threshold {
        let octets = |gap: Option<u32>| gap.map_or_else(|| "none".to_owned(), |g| g.to_string());
        let even = gaps.balanced_octets.unwrap_or(0.0);
        text += &format!(
            "Gaps: largest that loses {}, smallest that does not {}; by arithmetic {even:.2} octets are even\n",
            octets(gaps.losing_octets),
            octets(gaps.clean_octets),
        );
    }
    text
}

/// How fast virtual time went.
#[allow(clippy::cast_precision_loss, reason = "for people")]
fn speed(packets: u64, wall: std::time::Duration, time: Duration) -> String {
    let wall = wall.as_secs_f64().max(1e-9);
    format!(
        "Simulated {time} and {packets} packets in {wall:.2} s: {:.2} M packets/s\n",
        packets as f64 / wall / 1e6,
    )
}

const PHASE: &str = "measured";
/// Linux: no threshold yet.
const SSTHRESH_UNSET: u64 = 0x7fff_ffff;
const CELLS_MAX: usize = 1_000;
/// Samples that are kept in memory to tell how a search settled.
const SAMPLES_MAX: u64 = 500_000;
/// Packets of a capture, data and acknowledgments.
const PASSED_MAX: usize = 1_000_000;
/// Short enough to lie before a small queue's first drop, long enough to hold many frames; chosen.
const GROWS_OVER: Duration = Duration::from_ms(500);
