//! What `goodput capture` prints: its progress, and what it captured.

use std::fmt::Write as _;

use capture::{Captured, Options, Progress};
use fault::Failure;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use units::{Bytes, Rate};

/// Prints that it has begun.
pub(crate) fn begun(options: &Options, whole: bool) {
    super::note(beginning(&options.interface, options.kept_bytes, whole));
}

fn beginning(interface: &str, kept_bytes: u32, whole: bool) -> String {
    let kept = match whole {
        true => "all".to_owned(),
        false => format!("{kept_bytes} bytes"),
    };
    format!("capturing on {interface}, {kept} of each packet; stop with Ctrl-C")
}

/// What was captured, as text; to stderr where the packets went to stdout.
pub(crate) fn summary(captured: &Captured, to_stdout: bool) -> Result<(), Failure> {
    if to_stdout {
        super::note(text(captured, super::width()).trim_end());
        return Ok(());
    }
    super::print(&text(captured, super::width()))
}

/// What was captured, as JSON.
pub(crate) fn json(captured: &Captured, options: &Options) -> Result<(), Failure> {
    super::print_json(&record(captured, options))
}

/// The progress, on one line of a terminal.
pub(crate) struct View {
    bar: ProgressBar,
}

impl View {
    pub(crate) fn new() -> Self {
        // Hidden by indicatif itself when stderr is not a terminal.
        Self {
            bar: ProgressBar::new_spinner(),
        }
    }

    pub(crate) fn show(&self, progress: &Progress) {
        self.bar.set_message(so_far(progress));
        self.bar.tick();
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn so_far(progress: &Progress) -> String {
    let seconds = progress.elapsed.as_s_f64();
    format!(
        "{seconds:.0} s: {} packets, {:.0} packets/s, {}, {} dropped",
        progress.packets,
        progress.packets as f64 / seconds.max(1e-9),
        Rate::average(Bytes::new(progress.wire_bytes), progress.elapsed),
        progress.dropped,
    )
}

/// The summary; names of files are never broken.
fn text(captured: &Captured, width: usize) -> String {
    let lines = sentences(captured);
    let wrapped = |line| super::wrapped(line, 4, width);
    let mut text: String = lines.lines().map(wrapped).collect();
    for file in captured.files.iter().rev().take(FILES_SHOWN_MAX).rev() {
        let _ = writeln!(text, "  {}", file.display());
    }
    if captured.files_removed > 0 || captured.files.len() > FILES_SHOWN_MAX {
        let _ = writeln!(
            text,
            "  {} files exist, {} older ones were removed",
            captured.files.len(),
            captured.files_removed
        );
    }
    text
}

/// The sentences of the summary, a line each.
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
        0 => writeln!(text, "  the kernel dropped none"),
        dropped => writeln!(
            text,
            "  the kernel dropped {dropped} more ({:.2} %): the disk or this CPU was too slow; use a larger \
             --buffer, a smaller --snaplen or a filter",
            100.0 * dropped as f64 / (dropped + total.packets) as f64,
        ),
    };
    let _ = writeln!(text, "  {}", timestamps(captured));
    if captured.super_frames > 0 {
        let _ = writeln!(
            text,
            "  {} packets are larger than the MTU: this host's offloads (TSO, GRO) made them, the wire carried \
             smaller ones (ethtool -K IFACE gro off tso off gso off)",
            captured.super_frames
        );
    }
    text
}

/// The clocks of the timestamps.
fn timestamps(captured: &Captured) -> String {
    let kernel = captured.stamped_by_kernel + captured.stamped_by_ring;
    match (captured.stamped_by_hardware, kernel) {
        (0, 0) => "no timestamps".to_owned(),
        (_, 0) => "timestamps: the interface's clock".to_owned(),
        (0, _) => format!(
            "timestamps: the kernel's clock{}",
            kernel_exactness(captured)
        ),
        (hardware, kernel) => format!(
            "timestamps: the interface's clock for {hardware} packets, the kernel's for {kernel}; do not \
             compare times of the two clocks"
        ),
    }
}

/// How late the kernel's timestamps are, as far as that is known.
fn kernel_exactness(captured: &Captured) -> String {
    let mut text = match captured.hold_off_us {
        Some(0) => {
            ", read when the driver reports a packet: late by the interrupt latency".to_owned()
        }
        Some(us) => {
            format!(
                ", read when the driver reports a packet: up to {us} us late by interrupt coalescing"
            )
        }
        None => {
            ", read when the kernel receives or sends a packet: exact on virtual links".to_owned()
        }
    };
    if captured.stamped_by_ring > 0 {
        let _ = write!(
            text,
            "; for {} packets, read microseconds later when written to the ring",
            captured.stamped_by_ring
        );
    }
    if captured.hardware.is_on {
        text += "; the interface timestamps received packets: use --direction in for its clock";
    } else if captured.hardware.has {
        text += "; the interface supports receive timestamps, but they are off (hwstamp_ctl -r 1)";
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

/// Files that the summary names.
const FILES_SHOWN_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use units::Duration;

    use super::*;

    fn captured() -> Captured {
        Captured {
            total: Progress {
                elapsed: Duration::from_ms(31_270),
                packets: 1_834_209,
                wire_bytes: 2_670_000_000,
                dropped: 0,
            },
            file_bytes: 312_000_000,
            files: vec![PathBuf::from("transfer.pcapng")],
            stamped_by_kernel: 1_834_209,
            hold_off_us: Some(50),
            ..Captured::default()
        }
    }

    #[test]
    fn a_capture_as_text() {
        super::super::golden!("capture", |width| text(&captured(), width));
        let mut worst = captured();
        worst.total.dropped = 12_003;
        worst.super_frames = 40_112;
        worst.stamped_by_ring = 204;
        worst.hardware.has = true;
        worst.files = (1..=10)
            .map(|n| PathBuf::from(format!("all/a-{n:05}.pcapng")))
            .collect();
        worst.files_removed = 31;
        super::super::golden!("capture_worst", |width| text(&worst, width));
    }

    #[test]
    fn timestamps_are_named_by_their_clock() {
        let of = |change: fn(&mut Captured)| {
            let mut captured = captured();
            change(&mut captured);
            timestamps(&captured)
        };
        let lines = [
            of(|c| c.stamped_by_kernel = 0),
            of(|c| (c.stamped_by_hardware, c.stamped_by_kernel) = (9, 0)),
            of(|c| c.stamped_by_hardware = 9),
            of(|c| c.hold_off_us = Some(0)),
            of(|c| c.hold_off_us = None),
            of(|c| (c.hardware.has, c.hardware.is_on) = (true, true)),
            beginning("eth0", 128, false),
            beginning("lo", 0, true),
            so_far(&captured().total),
        ];
        insta::assert_snapshot!("capture_lines", lines.join("\n"));
    }
}
