//! `goodput sim`: a path file in virtual time.

use std::path::PathBuf;

use analyse::sim::{self, Hystart, PacingWish, Plan, Simulated};
use clap::{Args, ValueEnum};
use fault::{Failure, Verdict};
use job::{Context, Target};
use units::{Bytes, Duration};

use crate::print;

/// One word of `--pacing`: a way to pace, or a range of gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PacingArg(pub(crate) Vec<PacingWish>);

fn pacing(typed: &str) -> Result<PacingArg, String> {
    sim::pacing(typed).map(PacingArg)
}

/// What `goodput sim` takes.
#[derive(Clone, Debug, Args)]
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
    #[arg(long, value_name = "HOW", default_value = "off", value_parser = pacing, value_delimiter = ',')]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HystartArg {
    Linux,
    Plusplus,
    Off,
}

/// `--growth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GrowthArg {
    Bytes,
    Acks,
}

/// `--observer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// Simulates a path file and prints what came of it.
pub(crate) fn run(args: &SimArgs, context: &Context) -> Verdict {
    let done = perform(args, context)?;
    match args.json {
        true => print::print_json(&done.run)?,
        false => print::sim::summary(&done)?,
    }
    Ok(fault::DONE)
}

/// Simulates a path file and keeps the run.
pub(crate) fn perform(args: &SimArgs, context: &Context) -> Result<Simulated, Failure> {
    sim::simulate(&plan(args)?, context)
}

fn plan(args: &SimArgs) -> Result<Plan, Failure> {
    let name = args.path.strip_prefix("lab:").unwrap_or(&args.path);
    let Target::Lab(path) = Target::parse(Some(&format!("lab:{name}")))? else {
        return Err(Failure::usage(format!("'{name}' is no path file")));
    };
    Ok(Plan {
        path,
        time: args.time,
        ramp: args.ramp,
        streams: args.streams,
        apart: args.apart,
        congestion: args.congestion.clone(),
        pacing: args.pacing.iter().flat_map(|p| p.0.clone()).collect(),
        queue: args.queue.clone(),
        capture: args.capture,
        tshark: args.observer == Some(SimObserver::Tshark),
        from: args.from.clone(),
        to: args.to.clone(),
        counts_acks: args.growth == GrowthArg::Acks,
        explain: args.explain,
        hystart: match args.hystart {
            HystartArg::Linux => Hystart::Linux,
            HystartArg::Plusplus => Hystart::PlusPlus,
            HystartArg::Off => Hystart::Off,
        },
        mtu_bytes: args.mtu,
        burst: args.burst,
        seed: args.seed,
        every: args.every,
        runs: args.runs.clone(),
    })
}
