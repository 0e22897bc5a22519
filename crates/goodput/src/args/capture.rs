//! `goodput capture`: packets of an interface to files.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use capture::live::{Live, WHOLE_BYTES};
use capture::{About, CaptureError, Format, Limits, Options, Output, Place, Rotation, Stamps};
use clap::{Args, ValueEnum};
use fault::{Failure, Verdict};
use job::Context;
use units::{Bytes, Duration};
use wire::filter::{Filter, Way};

use crate::print::capture::{self as print, View};

/// What `goodput capture` takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct CaptureArgs {
    /// Interface, such as eth0
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,
    /// Which packets, in tcpdump's language, such as: host 192.0.2.1 and tcp port 443
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
    /// File to write: pcapng, or with nanoseconds in the classic format where the name ends in .pcap; - is
    /// stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<Duration>,
    /// Stop after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) packets: Option<u64>,
    /// Stop before more than so many bytes are written, all files together
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes: Option<Bytes>,
    /// Bytes kept of each packet: 128 are the headers of all that is not tunnelled, with 192 also of what is
    #[arg(long, value_name = "N", default_value_t = capture::live::HEADERS_BYTES,
          value_parser = clap::value_parser!(u32).range(14..=262_144), conflicts_with = "whole")]
    pub(crate) snaplen: u32,
    /// Keep whole packets
    #[arg(long)]
    pub(crate) whole: bool,
    /// Packets that come in, go out, or both
    #[arg(long, value_enum, default_value_t = WayArg::Both)]
    pub(crate) direction: WayArg,
    /// Also packets that are not addressed to this host
    #[arg(long)]
    pub(crate) promiscuous: bool,
    /// Whose clock stamps packets
    #[arg(long, value_enum, default_value_t = StampsArg::Auto)]
    pub(crate) stamps: StampsArg,
    /// Begin another file before one gets larger than this
    #[arg(long, value_name = "SIZE")]
    pub(crate) file_size: Option<Bytes>,
    /// Begin another file after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) file_time: Option<Duration>,
    /// Keep the newest N files of those, remove the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) files: Option<u32>,
    /// Write over a file that is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Memory of the kernel for packets that wait to be written, 256KiB to 2GiB
    #[arg(long, value_name = "SIZE", default_value_t = capture::live::RING)]
    pub(crate) buffer: Bytes,
    /// Print what was captured as JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WayArg {
    /// What comes in
    In,
    /// What goes out
    Out,
    /// Both; of loopback, which shows each packet twice, what comes in
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StampsArg {
    /// The interface's, where its stamps are on and only what comes in is captured; else the kernel's
    Auto,
    /// The interface's wherever a packet has one
    Hardware,
    /// The kernel's
    Kernel,
}

pub(crate) const CAPTURE_EXAMPLES: &str = "\
Examples:
  goodput capture eth0 -w transfer.pcapng     headers of all packets until Ctrl-C
  goodput capture eth0 tcp port 5210 -w transfer.pcapng --time 30s
  goodput capture eth0 -w ring.pcapng --files 10 --file-size 100MB
  goodput capture eth0 'host 192.0.2.7 and not port 22' -w - --whole | tshark -r -
  goodput lab exec near -- goodput capture eth0 -w near.pcapng
It needs CAP_NET_RAW. The filter is what pcap-filter(7) describes, but names of hosts are not looked up.";

/// Captures until a limit is reached or the user asks to stop, which is how a capture ends.
pub(crate) fn run(args: &CaptureArgs, context: &Context) -> Verdict {
    let filter = Filter::parse(&args.filter.join(" ")).map_err(Failure::usage)?;
    check(args)?;
    let options = Options {
        interface: args.interface.clone(),
        filter,
        kept_bytes: if args.whole {
            WHOLE_BYTES
        } else {
            args.snaplen
        },
        way: args.direction.into(),
        promiscuous: args.promiscuous,
        ring: args.buffer,
        stamps: args.stamps.into(),
        limits: Limits {
            time: args.time,
            packets: args.packets,
            bytes: args.bytes,
        },
    };
    let live = Live::open(&options)?;
    let mut out = output(args, &options);
    let view = View::new();
    let stop = || context.stop.is_stopped();
    let mut begun = false;
    let ended = live.run(&mut out, &stop, &mut |progress| {
        if begun {
            return view.show(progress);
        }
        begun = true;
        print::begun(&options, args.whole);
    });
    view.end();
    let captured = match ended {
        Ok(captured) => captured,
        // As with `| head`: enough was seen.
        Err(CaptureError::NobodyReads) => return Ok(fault::DONE),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        print::json(&captured, &options)?;
    } else {
        print::summary(&captured, args.write == Path::new("-"))?;
    }
    Ok(fault::DONE)
}

/// What the flags' types do not say.
fn check(args: &CaptureArgs) -> Result<(), Failure> {
    let refuse = |text: &str| Err(Failure::usage(text));
    let rotates = args.file_size.is_some() || args.file_time.is_some();
    let to_stdout = args.write == Path::new("-");
    if args.interface == "any" {
        return refuse(
            "one interface is captured at a time: name it, or start one capture for each ('any' mixes \
             packets that are seen twice on their way, and loses their link layer)",
        );
    }
    if args.files.is_some() && !rotates {
        return refuse("--files says how many are kept: say --file-size or --file-time as well");
    }
    if to_stdout && rotates {
        return refuse("stdout is one file: --file-size and --file-time want a name with -w");
    }
    if to_stdout && args.json {
        return refuse("-w - and --json both write to stdout: write the packets to a file");
    }
    if to_stdout && io::stdout().is_terminal() {
        return refuse("stdout is a terminal: pipe it into a program, or name a file with -w");
    }
    if args.file_size.is_some_and(|size| size < FILE_MIN) {
        return refuse("--file-size: expected at least 64KiB");
    }
    if args
        .file_time
        .is_some_and(|time| time < Duration::from_s(1))
    {
        return refuse("--file-time: expected at least 1s");
    }
    check_buffer(args.buffer)
}

/// Refuses memory that holds next to nothing, or that the kernel does not give.
pub(crate) fn check_buffer(asked: Bytes) -> Result<(), Failure> {
    match (BUFFER_MIN..=BUFFER_MAX).contains(&asked) {
        true => Ok(()),
        false => Err(Failure::usage("--buffer: expected 256KiB to 2GiB")),
    }
}

fn output(args: &CaptureArgs, options: &Options) -> Output {
    let to_stdout = args.write == Path::new("-");
    let is_classic = args.write.extension().is_some_and(|e| e == "pcap");
    Output::new(
        match to_stdout {
            true => Place::Stdout,
            false => Place::File(args.write.clone()),
        },
        if is_classic {
            Format::Pcap
        } else {
            Format::Pcapng
        },
        Rotation {
            file_bytes: args.file_size,
            file_time: args.file_time,
            files: args.files,
        },
        args.force,
        About::of(options),
    )
}

impl From<WayArg> for Way {
    fn from(arg: WayArg) -> Self {
        match arg {
            WayArg::In => Self::In,
            WayArg::Out => Self::Out,
            WayArg::Both => Self::Both,
        }
    }
}

impl From<StampsArg> for Stamps {
    fn from(arg: StampsArg) -> Self {
        match arg {
            StampsArg::Auto => Self::Auto,
            StampsArg::Hardware => Self::Hardware,
            StampsArg::Kernel => Self::Kernel,
        }
    }
}

/// Room for a head, some packets and an end.
const FILE_MIN: Bytes = Bytes::new(64 << 10);
const BUFFER_MIN: Bytes = Bytes::new(256 << 10);
/// As much as the kernel's 32-bit sizes carry, with room.
const BUFFER_MAX: Bytes = Bytes::new(2 << 30);
