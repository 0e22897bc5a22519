//! `goodput capture`: packets of an interface to files.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::Path;

use capture::live::{Live, WHOLE_BYTES};
use capture::{
    About, CaptureError, Captured, Format, Limits, Options, Output, Place, Progress, Rotation,
    Stamps,
};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use units::{Bytes, Duration, Rate};
use wire::filter::{Filter, Way};

use crate::cli::{CaptureArgs, StampsArg, WayArg};
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};

/// Captures until a limit is reached or the user asks to stop, which is how a capture ends.
pub(crate) fn command(args: &CaptureArgs, context: &Context) -> Verdict {
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
        say_begun(args);
    });
    view.end();
    let captured = match ended {
        Ok(captured) => captured,
        // As with `| head`: enough was seen.
        Err(CaptureError::NobodyReads) => return Ok(failure::DONE),
        Err(error) => return Err(error.into()),
    };
    let to_stdout = args.write == Path::new("-");
    if args.json {
        context::print_json(&record(&captured, &options))?;
    } else if to_stdout {
        context::note(sentences(&captured).trim_end());
    } else {
        context::print(&sentences(&captured))?;
    }
    Ok(failure::DONE)
}

fn say_begun(args: &CaptureArgs) {
    let kept = match args.whole {
        true => "all".to_owned(),
        false => format!("{} bytes", args.snaplen),
    };
    let name = &args.interface;
    context::note(format_args!(
        "capturing on {name}, {kept} of each packet; Ctrl-C ends it"
    ));
}

/// What the flags' types do not say.
fn check(args: &CaptureArgs) -> Result<(), Failure> {
    let refuse = |text: &str| Err(Failure::usage(anyhow::anyhow!("{text}")));
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
        false => Err(Failure::usage(anyhow::anyhow!(
            "--buffer: expected 256KiB to 2GiB"
        ))),
    }
}

/// What a file says of the capture that it holds.
pub(crate) fn about(options: &Options) -> About {
    let name = &options.interface;
    let facts = sys::host::interfaces();
    let driver = facts.into_iter().find(|i| i.name == *name);
    let driver = driver.and_then(|i| i.driver);
    About {
        interface: name.clone(),
        kept_bytes: options.kept_bytes,
        filter: options.filter.text().to_owned(),
        hardware: sys::host::cpu_model(),
        os: format!("Linux {}", sys::host::kernel_release()),
        application: format!("goodput {}", env!("CARGO_PKG_VERSION")),
        description: driver.map_or_else(String::new, |driver| {
            format!("{driver} on {}", sys::host::hostname())
        }),
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
        about(options),
    )
}

/// How it goes, on one line of a terminal.
struct View {
    bar: ProgressBar,
}

impl View {
    fn new() -> Self {
        // Hidden by indicatif itself when stderr is not a terminal.
        Self {
            bar: ProgressBar::new_spinner(),
        }
    }

    fn show(&self, progress: &Progress) {
        let seconds = progress.elapsed.as_s_f64().max(1e-9);
        self.bar.set_message(format!(
            "{:.0} s: {} packets, {:.0} packets/s, {}, {} dropped",
            progress.elapsed.as_s_f64(),
            progress.packets,
            progress.packets as f64 / seconds,
            Rate::average(Bytes::new(progress.wire_bytes), progress.elapsed),
            progress.dropped,
        ));
        self.bar.tick();
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn sentences(captured: &Captured) -> String {
    let mut text = String::new();
    let total = &captured.total;
    let _ = writeln!(
        text,
        "{} packets in {:.3} s, {} on the wire, {} in files",
        total.packets,
        total.elapsed.as_s_f64(),
        Bytes::new(total.wire_bytes),
        Bytes::new(captured.file_bytes),
    );
    let _ = match total.dropped {
        0 => writeln!(text, "  none dropped by the kernel"),
        dropped => writeln!(
            text,
            "  {dropped} more dropped by the kernel ({:.2} %): the disk or this CPU was too slow; a larger \
             --buffer, a smaller --snaplen or a filter helps",
            100.0 * dropped as f64 / (dropped + total.packets) as f64,
        ),
    };
    let _ = writeln!(text, "  {}", stamps_in_words(captured));
    if captured.super_frames > 0 {
        let _ = writeln!(
            text,
            "  {} are larger than the MTU: this host's off-loads, not packets of the wire (ethtool -K IFACE \
             gro off tso off gso off)",
            captured.super_frames
        );
    }
    for file in captured.files.iter().rev().take(FILES_TOLD).rev() {
        let _ = writeln!(text, "  {}", file.display());
    }
    if captured.files_removed > 0 || captured.files.len() > FILES_TOLD {
        let _ = writeln!(
            text,
            "  {} files are there, {} older ones were removed",
            captured.files.len(),
            captured.files_removed
        );
    }
    text
}

fn stamps_in_words(captured: &Captured) -> String {
    let kernel = captured.stamped_by_kernel + captured.stamped_by_ring;
    match (captured.stamped_by_hardware, kernel) {
        (0, 0) => "no stamps".to_owned(),
        (_, 0) => "stamped by the interface's own clock".to_owned(),
        (0, _) => format!("stamped by the kernel{}", kernel_exactness(captured)),
        (hardware, kernel) => format!(
            "{hardware} packets stamped by the interface's clock and {kernel} by the kernel's: two clocks \
             in one file, do not compare across them"
        ),
    }
}

/// What is known of how late the kernel's stamps are. What is not known is not made up.
fn kernel_exactness(captured: &Captured) -> String {
    let mut text = match captured.hold_off_us {
        Some(0) => ", when it is told of a packet: late by the interrupt's latency".to_owned(),
        Some(us) => {
            format!(
                ", when it is told of a packet: up to {us} us late by the driver's interrupt hold-off"
            )
        }
        None => ", when it takes a packet up or hands it over: exact on virtual links".to_owned(),
    };
    if captured.stamped_by_ring > 0 {
        let _ = write!(
            text,
            "; {} when written to the ring, microseconds later",
            captured.stamped_by_ring
        );
    }
    if captured.hardware.is_on {
        text += "; the interface stamps what comes in: --direction in uses it";
    } else if captured.hardware.has {
        text += "; the interface could stamp, but it is not switched on (hwstamp_ctl -r 1)";
    }
    text
}

fn record(captured: &Captured, options: &Options) -> Value {
    let files: Vec<String> = captured
        .files
        .iter()
        .map(|f| f.display().to_string())
        .collect();
    json!({
        "interface": options.interface,
        "filter": options.filter.text(),
        "kept_bytes": options.kept_bytes,
        "elapsed_s": captured.total.elapsed.as_s_f64(),
        "packets": captured.total.packets,
        "wire_bytes": captured.total.wire_bytes,
        "dropped_by_kernel": captured.total.dropped,
        "larger_than_mtu": captured.super_frames,
        "file_bytes": captured.file_bytes,
        "files": files,
        "files_removed": captured.files_removed,
        "stamps": {
            "hardware": captured.stamped_by_hardware,
            "kernel": captured.stamped_by_kernel,
            "ring": captured.stamped_by_ring,
            "receive_hold_off_us": captured.hold_off_us,
            "hardware_available": captured.hardware.has,
            "hardware_on": captured.hardware.is_on,
        },
    })
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

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::NoInterface { .. }
            | CaptureError::NotEthernet { .. }
            | CaptureError::Filter(_)
            | CaptureError::Exists(_) => Self::usage(error),
            _ => Self::here(error),
        }
    }
}

/// Files that the summary names.
const FILES_TOLD: usize = 8;
/// Room for a head, some packets and an end.
const FILE_MIN: Bytes = Bytes::new(64 << 10);
const BUFFER_MIN: Bytes = Bytes::new(256 << 10);
/// As much as the kernel's 32-bit sizes carry, with room.
const BUFFER_MAX: Bytes = Bytes::new(2 << 30);
