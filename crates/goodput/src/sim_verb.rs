//! `goodput sim`: a path file in virtual time.
//!
//! The same file as the lab runs, through the same link machines, with TCP endpoints of our own in
//! place of kernels. It leaves a run folder like `measure`'s, so that `goodput report` lays both side by side.

mod network;

use std::path::PathBuf;

use explain::PathKnowledge;
use lab::PathFile;
use report::RunFolder;
use report::model::{PathFacts, Phase, Run, SampleRecord, Verdict as RunVerdict};
use report::settling::{self, Known};
use sim::{FlowInfo, Gaps, World};
use tcp::{Algorithm, Hystart};
use units::{Bytes, Duration, Instant, Rate};

use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::record;
use crate::target::Target;
use network::{PacingWish, Planned, Wishes};

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
    /// Congestion control: reno, cubic, bbr, scalable or fast [default: the path file's]
    #[arg(short, long, value_name = "NAME", visible_alias = "cc")]
    pub(crate) congestion: Option<String>,
    /// What holds packets back: off, window (the rate of window and round trip), a rate of payload such as
    /// 900Mb/s, auto (the rate is found on the way; on BBR unless --congestion says otherwise), or gap=OCTETS between frames on the sender's line
    #[arg(long, value_name = "HOW", default_value = "off", value_parser = pacing)]
    pub(crate) pacing: PacingWish,
    /// How slow start may end before a loss: linux (HyStart), plusplus (RFC 9406) or off
    #[arg(long, value_enum, default_value_t = HystartArg::Linux)]
    pub(crate) hystart: HystartArg,
    /// MTU, at most the path's
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_535))]
    pub(crate) mtu: Option<u32>,
    /// Most bytes that the sender's host hands over as one (GSO); 0: packet by packet
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

pub(crate) const SIM_EXAMPLES: &str = "\
Examples:
  goodput sim lsr-522ms                             a minute of a built-in path in a second or two
  goodput sim healthy-1g-20ms --time 60s --congestion reno
  goodput sim wan-phy-behind-lan-phy --pacing gap=720
  goodput report runs/*-measure-* runs/*-sim-*      the lab's run and the sim's in one table";

/// Simulates a path file.
pub(crate) fn command(args: &SimArgs, context: &Context) -> Verdict {
    let Performed {
        run,
        folder,
        outcome,
        time,
    } = perform(args, context)?;
    if args.json {
        let text = serde_json::to_string_pretty(&run).map_err(Failure::here)?;
        context::print(&format!("{text}\n"))?;
    } else {
        let text = report::terminal::summary(&run, &[], context::color(), context::width());
        context::print(&text)?;
        context::print(&speed(&outcome, time))?;
        context::print(&format!(
            "Report: {}\n",
            folder.join("report.html").display()
        ))?;
    }
    Ok(failure::DONE)
}

/// A finished simulation.
pub(crate) struct Performed {
    pub(crate) run: Run,
    pub(crate) folder: PathBuf,
    outcome: Outcome,
    time: Duration,
}

/// Simulates a path file and leaves a run folder.
pub(crate) fn perform(args: &SimArgs, context: &Context) -> Result<Performed, Failure> {
    let name = args.path.strip_prefix("lab:").unwrap_or(&args.path);
    let target = Target::parse(Some(&format!("lab:{name}")))?;
    let Target::Lab(path) = &target else {
        return Err(Failure::usage(anyhow::anyhow!("'{name}' is no path file")));
    };
    let wishes = wishes(args, path)?;
    let planned = network::plan(path, &wishes)?;
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
    run.path = Some(facts(path, &planned));
    let mut folder = RunFolder::create(&args.runs, "sim", &target.name(), run.clone())?;
    let mut world = World::new(planned.world.clone()).map_err(Failure::usage)?;
    let gaps = (wishes.pacing == PacingWish::Auto).then(|| gaps(&planned, run.seed));
    let mut seen = Seen::new(&mut folder, args.pacing != PacingWish::Off);
    let times = [time, ramp, args.every];
    let result = simulate(&planned, &mut world, gaps, times, context, &mut seen);
    let samples = seen.kept.take();
    if let Ok(outcome) = &result {
        let known = run.path.as_ref().map_or_else(Known::default, known);
        run.phases.push(Phase {
            settling: samples.and_then(|all| settling::of(&all, PHASE, known)),
            ..phase(path, &wishes, &planned, outcome, time, ramp)
        });
        run.verdict = Some(verdict(&run, outcome));
    }
    record::end_as(&mut run, &result, context);
    let page = folder.path().to_owned();
    let kept = folder.finish(&run, &[]);
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    let outcome = result?;
    kept?;
    Ok(Performed {
        run,
        folder: page,
        outcome,
        time,
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
}

/// Where samples go.
struct Seen<'a> {
    folder: &'a mut RunFolder,
    /// They are kept for judging too.
    kept: Option<Vec<SampleRecord>>,
}

impl<'a> Seen<'a> {
    fn new(folder: &'a mut RunFolder, keeps: bool) -> Self {
        let kept = keeps.then(Vec::new);
        Self { folder, kept }
    }

    fn take(&mut self, sample: SampleRecord) -> Result<(), Failure> {
        self.folder.append_sample(&sample)?;
        if let Some(kept) = &mut self.kept {
            kept.push(sample);
        }
        Ok(())
    }
}

fn gaps(planned: &Planned, seed: Option<u64>) -> Gaps {
    let segments = vec![planned.segment_bytes; planned.world.flows.len()];
    Gaps::new(seed.unwrap_or(1), &segments)
}

pub(crate) fn known(path: &PathFacts) -> Known {
    Known {
        achievable_bits_per_second: path.achievable_bits_per_second,
        rate_bits_per_second: path.rate_bits_per_second,
    }
}

fn simulate(
    planned: &Planned,
    world: &mut World,
    mut gaps: Option<Gaps>,
    [time, ramp, every]: [Duration; 3],
    context: &Context,
    seen: &mut Seen<'_>,
) -> Result<Outcome, Failure> {
    let began = std::time::Instant::now();
    let end = Instant::ZERO + time;
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
    let (mut at, mut at_ramp) = (Instant::ZERO, None);
    loop {
        for number in 0..world.flows() {
            let ceiling = gaps.as_ref().and_then(|g| g.ceiling(number));
            for sample in samples(number, at, &world.flow(number), planned, ceiling) {
                seen.take(sample)?;
            }
        }
        if at >= Instant::ZERO + ramp && at_ramp.is_none() {
            at_ramp = Some(sums(world));
        }
        if at >= end || context.interrupted().is_some() {
            break;
        }
        let mut next = (at + every).min(end);
        if at_ramp.is_none() {
            next = next.min((Instant::ZERO + ramp).max(at + Duration::from_ns(1)));
        }
        match &mut gaps {
            Some(gaps) => gaps.run_until(world, next),
            None => world.run_until(next),
        }
        at = next;
    }
    let flows: Vec<FlowInfo> = (0..world.flows()).map(|n| world.flow(n)).collect();
    let drops = planned
        .world
        .links
        .iter()
        .enumerate()
        .fold((0, 0), |sum, (link, _)| {
            link::Way::BOTH.iter().fold(sum, |(full, lost), way| {
                let c = world.counters(link, *way);
                (full + c.queue_full + c.early, lost + c.lost)
            })
        });
    Ok(Outcome {
        at_ramp: at_ramp.unwrap_or_default(),
        bytes: sums(world)[0],
        packets: flows.iter().map(|f| f.data_packets + f.ack_packets).sum(),
        wall: began.elapsed(),
        queue_full: drops.0,
        lost: drops.1,
        flows,
    })
}

/// What both ends' `tcp_info` would say.
fn samples(
    number: usize,
    at: Instant,
    info: &FlowInfo,
    planned: &Planned,
    ceiling: Option<Rate>,
) -> Vec<SampleRecord> {
    let record = |end: &str, bytes: u64, fields: Vec<(&str, u64)>| SampleRecord {
        phase: PHASE.to_owned(),
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
        let mut fields = vec![
            ("snd_mss_bytes", segment),
            ("rtt_us", us(s.rtt)),
            ("snd_cwnd_segments", s.cwnd),
            ("unacked_segments", s.unacked),
            ("retrans_segments", 0),
            ("total_retrans_segments", s.retransmitted),
            ("bytes_acked", s.acknowledged_bytes),
            ("snd_wnd_bytes", (s.window + s.unacked) * segment),
            ("data_segs_out", info.data_packets),
        ];
        if let Some(rate) = ceiling {
            let bytes = rate.as_bits_per_second() / 8;
            fields.push(("max_pacing_rate_bytes_per_second", bytes));
        }
        if let Some(min) = s.rtt_min {
            fields.push(("min_rtt_us", us(min)));
        }
        if let Some(ssthresh) = s.ssthresh {
            fields.push(("snd_ssthresh_segments", ssthresh));
        }
        let sent = s.acknowledged_bytes + s.unacked * segment;
        all.push(record("sender", sent, fields));
    }
    all
}

fn wishes(args: &SimArgs, path: &PathFile) -> Result<Wishes, Failure> {
    let near = &path.network.hosts[path.transfer.from];
    let name = args
        .congestion
        .as_deref()
        .unwrap_or(&near.congestion_control);
    let name = match (args.pacing, &args.congestion) {
        (PacingWish::Auto, None) => Algorithm::Bbr.name(),
        _ => name,
    };
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
        pacing: args.pacing,
        apart: args.apart,
        mtu_bytes: args.mtu,
        seed: args.seed,
        burst_bytes: u32::try_from(args.burst.as_u64())
            .unwrap_or(65_536)
            .min(65_536),
        lone_segments: false,
    })
}

fn pacing(typed: &str) -> Result<PacingWish, String> {
    match typed {
        "off" => return Ok(PacingWish::Off),
        "window" => return Ok(PacingWish::Window),
        "auto" => return Ok(PacingWish::Auto),
        _ => {}
    }
    if let Some(octets) = typed.strip_prefix("gap=") {
        let octets: u32 = octets
            .parse()
            .map_err(|_| format!("'{octets}' is no number of octets; say gap=720"))?;
        if octets > 1 << 20 {
            return Err("a gap has at most 1048576 octets".to_owned());
        }
        return Ok(PacingWish::Gap(octets));
    }
    let rate: Rate = typed
        .parse()
        .map_err(|e| format!("{e}; or off, auto, window, gap=OCTETS"))?;
    if rate.as_bits_per_second() < 8 {
        return Err("a rate is above zero".to_owned());
    }
    Ok(PacingWish::Rate(rate))
}

fn facts(path: &PathFile, planned: &Planned) -> PathFacts {
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
        queue_bytes: path
            .forward
            .rate
            .map(|_| path.forward.queue_bytes(planned.mtu_bytes).as_u64()),
        loss_forward: path.forward.loss,
        loss_backward: path.backward.loss,
        mtu_bytes: Some(planned.mtu_bytes),
        bdp_bytes: path.forward.rate.map(|r| r.bytes_in(rtt).as_u64()),
    }
}

fn phase(
    path: &PathFile,
    wishes: &Wishes,
    planned: &Planned,
    outcome: &Outcome,
    time: Duration,
    ramp: Duration,
) -> Phase {
    let [bytes_before, sent_before, again_before] = outcome.at_ramp;
    let senders = outcome.flows.iter().filter_map(|f| f.sender.as_ref());
    let sent: u64 = outcome.flows.iter().map(|f| f.data_packets).sum();
    let again: u64 = senders.map(|s| s.retransmitted).sum();
    let after = Bytes::new(outcome.bytes - bytes_before);
    Phase {
        name: PHASE.to_owned(),
        attempts: 1,
        direction: "up".to_owned(),
        streams: wishes.streams.into(),
        congestion_control: wishes.algorithm.name().to_owned(),
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
    let timeouts: u64 = outcome
        .flows
        .iter()
        .filter_map(|f| f.sender.map(|s| s.timeouts))
        .sum();
    let recoveries: u64 = outcome
        .flows
        .iter()
        .filter_map(|f| f.sender.map(|s| s.recoveries))
        .sum();
    RunVerdict {
        sentence: format!(
            "In the model {rate}{share}; {recoveries} recoveries from loss, {timeouts} timeouts."
        ),
        conclusive: true,
        ..RunVerdict::default()
    }
}

/// How fast virtual time went.
#[allow(clippy::cast_precision_loss, reason = "for people")]
fn speed(outcome: &Outcome, time: Duration) -> String {
    let wall = outcome.wall.as_secs_f64().max(1e-9);
    format!(
        "Simulated {time} and {} packets in {wall:.2} s: {:.2} M packets/s\n",
        outcome.packets,
        outcome.packets as f64 / wall / 1e6,
    )
}

const PHASE: &str = "measured";
