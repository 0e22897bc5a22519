//! `goodput explain`: captures, an interface with a filter, or a path to be filled; and why TCP connections in them were no
//! faster.

use std::path::{Path, PathBuf};

use analyse::{Explained, Filled, LIVE_BYTES, Match, Plan, Question, Source};
use capture::live::{HEADERS_BYTES, RING};
use capture::{Limits, Options, Stamps};
use clap::{Args, ValueEnum};
use fault::{Failure, Verdict};
use job::{Context, Target};
use units::{Bytes, Duration, Rate};
use wire::filter::{Filter, Way};

use super::capture::check_buffer;
use crate::print::explain as print;

/// What `goodput explain` takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Captures: pcap, pcapng, snoop or ERF, plain or in gzip, zstd, lz4 or xz; folders of them; - is standard
    /// input. Files of a ring count as one. Or an interface, such as eth0,
    /// and behind it which packets, in tcpdump's language. Or lab:FILE or lab:NAME, a path that is filled.
    /// Or a lab's packet log (FILE.gplog)
    #[arg(required = true, value_name = "FILE|IFACE|lab:PATH")]
    pub(crate) files: Vec<PathBuf>,
    /// Also when packets came: gaps, bursts, rates in sections, order of parallel streams
    #[arg(long)]
    pub(crate) spacing: bool,
    /// Length of these sections, 100ns to 4.2s; may be repeated [default: 5ms and 300ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) section: Vec<Duration>,
    /// Width of the gaps' bins [default: as fine as the stamps tell apart]
    #[arg(long, value_name = "TIME")]
    pub(crate) bin: Option<Duration>,
    /// The line's rate: gaps are then also told without the packets' own time
    #[arg(long, value_name = "RATE")]
    pub(crate) line_rate: Option<Rate>,
    /// Have another program work out the spacing from the same packets, and compare
    #[arg(long, value_enum, value_name = "TOOL")]
    pub(crate) observer: Option<SpacingObserverArg>,
    /// End of an interface's capture [default: Ctrl-C]; time that a path is filled
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<Duration>,
    /// Memory of the kernel for an interface's packets that wait to be read, 256KiB to 2GiB [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer: Option<Bytes>,
    /// Fill lab:PATH in virtual time, with a gap of so many octets behind each frame, several in turn; without
    /// this it is filled in real time, by iperf3
    #[arg(long, value_name = "OCTETS", value_delimiter = ',')]
    pub(crate) gaps: Vec<u32>,
    /// Match two captures packet by packet: which way losses and delays were. auto does so where both hold
    /// the same packets
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = MatchArg::Auto)]
    pub(crate) r#match: MatchArg,
    /// Also write connections.parquet and intervals.parquet into the run folder: every connection, and each
    /// slice of its time
    #[arg(long)]
    pub(crate) parquet: bool,
    /// Folder that run folders are made in
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    pub(crate) runs: PathBuf,
    /// Threads, 1 to 16 [default: as many as there are CPUs, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) threads: Option<u8>,
    /// Print the run as JSON (run.json's layout) instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who works out the spacing as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpacingObserverArg {
    /// Wireshark's
    Tshark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MatchArg {
    /// Where two captures have packets in common
    Auto,
    /// Fail where they have none
    Always,
    /// Each by itself
    Never,
}

pub(crate) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  goodput explain slow.pcap
  goodput explain slow.pcapng.zst --json | jq .trace.connections[0].shares
  ssh dtn tcpdump -s 128 -w - tcp | goodput explain -
  goodput explain near.pcapng far.pcapng              both ends: where each segment was lost
  goodput explain frames.gplog                        a lab's packet log: what it lost and why
  goodput explain eth0 tcp port 5210 --time 30s       an interface; needs CAP_NET_RAW
  goodput explain slow.pcap --spacing --section 1ms   gaps, bursts, sections, order of streams
  goodput explain lab:master-1-10g --gaps 700,720     a path, in virtual time
Frame numbers are those that Wireshark shows. Captures that end at headers suffice.";

/// Explains the captures.
pub(crate) fn run(args: &ExplainArgs, context: &Context) -> Verdict {
    let explained = perform(args, context)?;
    match args.json {
        true => crate::print::print_json(&explained.run)?,
        false => print::summary(&explained)?,
    }
    let trace = explained.run.trace.as_ref();
    match trace.is_some_and(|t| !t.connections.is_empty()) {
        true => Ok(fault::DONE),
        false => Ok(fault::CHECK_FAILED),
    }
}

/// Explains what the arguments name.
pub(crate) fn perform(args: &ExplainArgs, context: &Context) -> Result<Explained, Failure> {
    analyse::explain(&plan(args)?, context, &mut print::View::default())
}

fn plan(args: &ExplainArgs) -> Result<Plan, Failure> {
    let source = source(args)?;
    Ok(Plan {
        question: question(args, &source)?,
        source,
        tshark: args.observer.is_some(),
        matching: match args.r#match {
            MatchArg::Auto => Match::Auto,
            MatchArg::Always => Match::Always,
            MatchArg::Never => Match::Never,
        },
        parquet: args.parquet,
        threads: args.threads.map(usize::from),
        runs: args.runs.clone(),
    })
}

/// A file of that name comes before an interface.
fn source(args: &ExplainArgs) -> Result<Source, Failure> {
    let [first, rest @ ..] = &args.files[..] else {
        return refused("name a capture, an interface or lab:PATH".to_owned());
    };
    let name = first.to_string_lossy();
    let not_an_interface = || {
        let text = "--buffer goes with an interface only".to_owned();
        args.buffer.map_or(Ok(()), |_| refused(text))
    };
    if let Some(path) = name.strip_prefix("lab:").filter(|_| !first.exists()) {
        if !rest.is_empty() {
            return refused(format!("lab:{path} is explained by itself"));
        }
        not_an_interface()?;
        return match Target::parse(Some(&name))? {
            Target::Lab(path) => Ok(Source::Path(Box::new(Filled {
                path: *path,
                gaps: args.gaps.clone(),
                time: args.time,
            }))),
            Target::Host(_) | Target::Iperf3(_) => refused(format!("'{name}' is not a path")),
        };
    }
    if !args.gaps.is_empty() {
        return refused("--gaps goes with lab:PATH only".to_owned());
    }
    let is_interface = || name != "-" && sys::host::interfaces().iter().any(|i| i.name == name);
    if !first.exists() && is_interface() {
        return interface(args, &name, rest);
    }
    if args.time.is_some() {
        return refused("--time goes with an interface or lab:PATH only".to_owned());
    }
    not_an_interface()?;
    Ok(Source::Files(args.files.clone()))
}

fn interface(args: &ExplainArgs, name: &str, rest: &[PathBuf]) -> Result<Source, Failure> {
    let words: Vec<_> = rest.iter().map(|word| word.to_string_lossy()).collect();
    let filter = Filter::parse(&words.join(" ")).map_err(Failure::usage)?;
    let ring = args.buffer.unwrap_or(RING);
    check_buffer(ring)?;
    Ok(Source::Interface(Box::new(Options {
        interface: name.to_owned(),
        filter,
        kept_bytes: HEADERS_BYTES,
        way: Way::Both,
        promiscuous: false,
        ring,
        stamps: Stamps::Auto,
        limits: Limits {
            time: args.time,
            packets: None,
            bytes: Some(LIVE_BYTES),
        },
    })))
}

fn refused<T>(text: String) -> Result<T, Failure> {
    Err(Failure::usage(text))
}

/// What is asked of the packets' spacing, if anything.
fn question(args: &ExplainArgs, source: &Source) -> Result<Option<Question>, Failure> {
    let asked = args.spacing
        || !args.section.is_empty()
        || args.bin.is_some()
        || args.line_rate.is_some()
        || args.observer.is_some()
        || !args.gaps.is_empty();
    if !asked {
        return Ok(None);
    }
    if let Source::Files(files) = source
        && files.iter().any(|f| f == Path::new("-"))
    {
        return Err(Failure::usage(
            "--spacing takes a second look at the packets, which standard input does not allow: write them \
             to a file",
        ));
    }
    let question = Question::new(args.section.clone(), args.bin, args.line_rate);
    question.map(Some).map_err(Failure::usage)
}
