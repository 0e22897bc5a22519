//! The grid of paths on which the simulated endpoints are held against the kernel's: cells, the lab's rows that are
//! kept, and the table. A test of the `goodput` command takes this file as well.
//!
//! Lab and sim draw the same losses: the k-th segment that reaches a lossy link has the same fate in both, given the
//! seed. So a transfer with few losses can be compared by itself; without that it would take hundreds of them
//! until the averages of a window that halves at each are within some per cent.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One path and a congestion control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) rtt_ms: u64,
    pub(crate) rate_mbit: u64,
    pub(crate) loss: &'static str,
    /// Of the bandwidth-delay product.
    pub(crate) queue_percent: u64,
    pub(crate) congestion: &'static str,
}

/// A transfer in the lab.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LabRow {
    /// [`Cell::name`].
    pub(crate) cell: String,
    /// Of the link's losses.
    pub(crate) seed: u64,
    /// Until the last byte had come, which with a full send buffer is later than the last write.
    pub(crate) duration_ns: u64,
    /// Start of it that does not count.
    pub(crate) ramp_ns: u64,
    /// Of payload, after the ramp.
    pub(crate) goodput_bits_per_second: u64,
    /// Segments that the links lost, at random and at full queues.
    pub(crate) lost_random: u64,
    pub(crate) lost_queue: u64,
    /// The certificate of the run: false where the lab fell behind.
    pub(crate) trusted: bool,
    /// Of the lab's own probes one in a thousand was later than this.
    pub(crate) late_p999_ns: u64,
    pub(crate) kernel: String,
    /// UTC.
    pub(crate) date: String,
}

/// What the rows of a cell that count say: medians over the seeds.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) cell: Cell,
    pub(crate) seeds: usize,
    /// Bit/s.
    pub(crate) lab: f64,
    pub(crate) sim: f64,
}

/// Sixteen full frames.
const QUEUE_BYTES_MIN: u64 = 16 * 1538;
/// What counts as the same.
pub(crate) const WITHIN: f64 = 0.10;

const ROUND_TRIPS_MS: [u64; 3] = [10, 85, 300];
const RATES_MBIT: [u64; 2] = [100, 1_000];
const LOSSES: [&str; 3] = ["0", "0.0001", "0.001"];
const QUEUES_PERCENT: [u64; 2] = [10, 100];
const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];

impl Cell {
    /// All 108.
    pub(crate) fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for rtt_ms in ROUND_TRIPS_MS {
            for rate_mbit in RATES_MBIT {
                for loss in LOSSES {
                    for queue_percent in QUEUES_PERCENT {
                        cells.extend(CONTROLS.map(|congestion| Self {
                            rtt_ms,
                            rate_mbit,
                            loss,
                            queue_percent,
                            congestion,
                        }));
                    }
                }
            }
        }
        cells
    }

    pub(crate) fn name(&self) -> String {
        let Self {
            rtt_ms,
            rate_mbit,
            loss,
            queue_percent,
            congestion,
        } = self;
        format!("sim/{rtt_ms}ms/{rate_mbit}M/loss{loss}/queue{queue_percent}/{congestion}")
    }

    /// How long a transfer is to last: many round trips, and at 1 Gb/s, where it takes a quiet machine, no longer
    /// than slow start and some of what follows take, unless losses keep the rate low.
    pub(crate) fn seconds(&self) -> u64 {
        let kept_low = self.loss != "0" && self.congestion != "bbr";
        match (self.rtt_ms, self.rate_mbit == 100 || kept_low) {
            (10, true) => 12,
            (10, false) => 8,
            (85, true) => 32,
            (85, false) => 14,
            (_, true) => 40,
            (_, false) => 20,
        }
    }

    /// Bytes of the queue. One of less than some packets is none.
    const fn queue_bytes(&self) -> u64 {
        let queue = self.rate_mbit * 125 * self.rtt_ms * self.queue_percent / 100;
        if queue > QUEUE_BYTES_MIN {
            queue
        } else {
            QUEUE_BYTES_MIN
        }
    }

    /// True for a transfer that says something of TCP: a machine that stands still for longer than the queue holds
    /// makes a burst of the window, which overflows the queue whatever TCP does.
    pub(crate) const fn counts(&self, row: &LabRow) -> bool {
        let queue_ns = self.queue_bytes() * 8_000 / self.rate_mbit;
        row.trusted && row.late_p999_ns < queue_ns
    }

    /// The path file.
    pub(crate) fn path_text(&self, seed: u64) -> String {
        let bdp = self.rate_mbit * 125 * self.rtt_ms;
        let buffer = (8 * bdp).max(16 << 20);
        let queue = self.queue_bytes();
        let mut text = format!("title = \"{}\"\n", self.name());
        for host in ["near", "far"] {
            let _ = write!(
                text,
                "[hosts.{host}]\nmtu = 1500\ncongestion_control = \"{}\"\n\
                 tcp_rmem = [\"4KiB\", \"128KiB\", \"{buffer}B\"]\n\
                 tcp_wmem = [\"4KiB\", \"64KiB\", \"{buffer}B\"]\n",
                self.congestion
            );
        }
        let _ = write!(
            text,
            "[links.wan]\nbetween = [\"near\", \"far\"]\nrate = \"{}Mb/s\"\ndelay = \"{}us\"\n\
             queue = \"{queue}B\"\nseed = {seed}\n",
            self.rate_mbit,
            self.rtt_ms * 500
        );
        if self.loss != "0" {
            let _ = writeln!(text, "loss = {}", self.loss);
        }
        text
    }
}

/// Goodput, in bit/s, when `program sim` does what was done for `row`. `folder` is for what it writes.
///
/// # Errors
/// What went wrong, in words.
pub(crate) fn simulate(
    program: &Path,
    cell: &Cell,
    row: &LabRow,
    folder: &Path,
) -> Result<u64, String> {
    let file = folder.join(format!(
        "{}-{}.toml",
        cell.name().replace('/', "-"),
        row.seed
    ));
    std::fs::write(&file, cell.path_text(row.seed))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    let mut command = Command::new(program);
    command.arg("sim").arg(&file).arg("--json").arg("--runs");
    command.arg(folder.join("runs")).args(["--every", "1s"]);
    command.args(["--time", &format!("{}ns", row.duration_ns)]);
    command.args(["--ramp", &format!("{}ns", row.ramp_ns)]);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let run: Value = serde_json::from_slice(&output.stdout).map_err(|e| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{}: {e}: {said}", cell.name())
    })?;
    let goodput = run["phases"][0]["goodput_bits_per_second"].as_u64();
    goodput.ok_or_else(|| format!("{}: no goodput", cell.name()))
}

/// Compares what is kept of a cell; `None` without a row that counts.
///
/// # Errors
/// Those of `simulated`.
pub(crate) fn compare<E>(
    cell: &Cell,
    rows: &[LabRow],
    simulated: impl Fn(&Cell, &LabRow) -> Result<u64, E>,
) -> Result<Option<Compared>, E> {
    let name = cell.name();
    let (mut lab, mut sim) = (Vec::new(), Vec::new());
    for row in rows.iter().filter(|r| r.cell == name && cell.counts(r)) {
        lab.push(row.goodput_bits_per_second);
        sim.push(simulated(cell, row)?);
    }
    let seeds = lab.len();
    let both = median(lab).zip(median(sim));
    Ok(both.map(|(lab, sim)| Compared {
        cell: cell.clone(),
        seeds,
        lab,
        sim,
    }))
}

fn median(mut values: Vec<u64>) -> Option<f64> {
    values.sort_unstable();
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(as_f64(lower), as_f64(upper)))
}

impl Compared {
    /// The model's goodput over the kernel's.
    pub(crate) fn ratio(&self) -> f64 {
        self.sim / self.lab.max(1.0)
    }

    pub(crate) fn agrees(&self) -> bool {
        (self.ratio() - 1.0).abs() <= WITHIN
    }
}

/// A path a row, a congestion control a column, lab and sim in Mb/s; then what does not agree.
pub(crate) fn render(all: &[Compared]) -> String {
    let mut text = String::from("| path | CUBIC | Reno | BBR |\n|---|---|---|---|\n");
    for cell in Cell::all().iter().step_by(CONTROLS.len()) {
        let columns = CONTROLS.map(|congestion| {
            let wanted = Cell {
                congestion,
                ..cell.clone()
            };
            let found = all.iter().find(|c| c.cell == wanted);
            found.map_or_else(|| "–".to_owned(), shown)
        });
        if columns.iter().any(|c| c != "–") {
            let _ = writeln!(text, "| {} | {} |", path(cell), columns.join(" | "));
        }
    }
    let within = all.iter().filter(|c| c.agrees()).count();
    let _ = writeln!(
        text,
        "\n{within} of {} cells are within 10 %; {} of {} have not been run.",
        all.len(),
        Cell::all().len() - all.len(),
        Cell::all().len()
    );
    text
}

fn path(cell: &Cell) -> String {
    let rate = match cell.rate_mbit {
        1_000 => "1 Gb/s".to_owned(),
        n => format!("{n} Mb/s"),
    };
    let queue = match cell.queue_percent {
        100 => "1",
        _ => "0.1",
    };
    let loss = match cell.loss {
        "0" => "",
        "0.0001" => ", loss 10⁻⁴",
        _ => ", loss 10⁻³",
    };
    format!("{} ms, {rate}, queue {queue} BDP{loss}", cell.rtt_ms)
}

fn shown(compared: &Compared) -> String {
    let mbit = |bits: f64| {
        let mbit = bits / 1e6;
        let decimals = if mbit < 99.95 { 1 } else { 0 };
        format!("{mbit:.decimals$}")
    };
    let both = format!("{}, {}", mbit(compared.lab), mbit(compared.sim));
    if compared.agrees() {
        both
    } else {
        format!("**{both}**")
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "rates and counts far below 2^53"
)]
const fn as_f64(n: u64) -> f64 {
    n as f64
}
