//! `cargo xtask bench netem`: the lab beside the kernel's own emulator, on a kernel that has it.
//!
//! Both stand at the same place, between two hosts, behind the sender's driver and before the receiver's;
//! both are judged by the hosts' kernels. `bench/netem-guest` runs this in a virtual machine, for
//! machines without netem.
//!
//! Left out: netem's rate. What was due behind a queue is known only to whoever keeps the queue.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use units::{Duration, Rate};

use super::cells::{self, Tool};
use super::delay::{self, Carried, permille};
use super::record::{Machine, Record, Recorder};
use super::site::{Place, Site, path_text};
use super::table::{Table, number};
use super::{Options, QUICK, ROUNDS, Times, ours, run, workspace};

/// One thing measured in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// Probes on a path of [`DELAY`], beside full frames at so many Mb/s from near to far.
    Delay { place: Place, load_mbit: u64 },
    /// One TCP stream through a path without rate or delay.
    Tcp(Place),
    /// One TCP stream through a path that loses [`LOSS`], by a congestion control.
    Loss {
        place: Place,
        congestion: &'static str,
    },
}

impl Cell {
    /// What is to be compared stands together.
    fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for load_mbit in LOADS_MBIT {
            for place in PLACES {
                cells.push(Self::Delay { place, load_mbit });
            }
        }
        cells.extend(PLACES.map(Self::Tcp));
        for congestion in CONGESTIONS {
            for place in [Place::Netem, Place::Lab] {
                cells.push(Self::Loss { place, congestion });
            }
        }
        cells
    }

    fn name(&self) -> String {
        match self {
            Self::Delay { place, load_mbit } => delay_name(*place, *load_mbit),
            Self::Tcp(place) => cells::tcp_name(*place, MTU, true),
            Self::Loss { place, congestion } => loss_name(*place, congestion),
        }
    }

    fn measure(&self, times: &Times, recorder: &mut Recorder) -> anyhow::Result<()> {
        match *self {
            Self::Delay { place, load_mbit } => {
                cells::listen(times, recorder);
                delay(place, load_mbit, times, recorder)
            }
            Self::Tcp(place) => {
                let site = Site::plain(place, MTU, true)?;
                ours::warm_up(&site.near(), &site.far())?;
                for tool in [Tool::Iperf3, Tool::Ours] {
                    cells::stream(&site, tool, times.tcp_omit_s, times.tcp_s, recorder)?;
                }
                Ok(())
            }
            Self::Loss { place, congestion } => loss(place, congestion, times, recorder),
        }
    }
}

/// Runs the benchmark, prints its tables and writes its rows to target/bench/netem.json.
pub(crate) fn netem(options: &Options) -> anyhow::Result<ExitCode> {
    // Says what is missing before a quarter of an hour of failures.
    Site::netem(MTU, "").context(
        "no netem on this kernel or no tc; bench/netem-guest/run.sh brings a kernel that has it",
    )?;
    let times = if options.quick { QUICK } else { TIMES };
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 1 } else { ROUNDS });
    let wanted = |cell: &Cell| {
        let name = options.only.as_ref();
        name.is_none_or(|name| cell.name().contains(name.as_str()))
    };
    let cells: Vec<Cell> = Cell::all().into_iter().filter(wanted).collect();
    let (rows, notes, failed) = run(rounds, &cells, Cell::name, |cell, recorder, _| {
        cell.measure(&times, recorder)
    });
    let root = workspace();
    let record = Record::of(Machine::read(&root), rounds, options.quick, notes, rows);
    println!("{}", render(&record));
    let file = write(&root, &record)?;
    eprintln!("results: {}", file.display());
    ensure!(failed == 0, "{failed} cells failed");
    Ok(ExitCode::SUCCESS)
}

fn write(root: &std::path::Path, record: &Record) -> anyhow::Result<PathBuf> {
    let folder = root.join("target/bench");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let file = folder.join("netem.json");
    fs::write(&file, record.to_json()?).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

fn delay(
    place: Place,
    load_mbit: u64,
    times: &Times,
    recorder: &mut Recorder,
) -> anyhow::Result<()> {
    let ms = DELAY.as_ns() / 1_000_000;
    let (site, due) = match place {
        Place::Netem => (Site::netem(MTU, &format!("delay {ms}ms"))?, DELAY),
        Place::Lab => {
            let link = format!("delay = \"{ms}ms\"");
            (Site::lab(&path_text(MTU, &link))?, DELAY)
        }
        // What the kernel's own way through veth and softirq takes.
        Place::Bridge | Place::Veth => (Site::plain(place, MTU, true)?, Duration::ZERO),
    };
    let load = (load_mbit > 0).then(|| Rate::from_bits_per_second(load_mbit * 1_000_000));
    let probed = delay::probe(&site, due, load, Duration::from_s(times.idle_s))?;
    let errors = &probed.errors_ns;
    for (metric, ns) in [
        ("probe.error_min", permille(errors, 0)),
        ("probe.error_p50", permille(errors, 500)),
        ("probe.error_p99", permille(errors, 990)),
        ("probe.error_p999", permille(errors, 999)),
        ("probe.error_max", permille(errors, 1_000)),
    ] {
        recorder.put(metric, ns as f64, "ns");
    }
    let seconds = probed.wall.as_s_f64();
    for (metric, frames) in [
        ("sent", probed.frames_sent),
        ("arrived", probed.frames_arrived),
    ] {
        let metric = format!("load.{metric}");
        recorder.put(metric, frames as f64 / seconds, "frames/s");
    }
    recorder.put("probe.count", errors.len() as f64, "frames");
    recorder.put("probe.lost", probed.lost as f64, "frames");
    Ok(())
}

fn loss(
    place: Place,
    congestion: &str,
    times: &Times,
    recorder: &mut Recorder,
) -> anyhow::Result<()> {
    let site = match place {
        Place::Lab => Site::lab(&path_text(MTU, &format!("loss = {LOSS}")))?,
        _ => Site::netem(MTU, &format!("loss {}%", LOSS * 100.0))?,
    };
    let (near, far) = (site.near(), site.far());
    let before = (delay::carried(&near)?, delay::carried(&far)?);
    let outcome = ours::tcp_by(&near, &far, congestion, times.tcp_s)?;
    let after = (delay::carried(&near)?, delay::carried(&far)?);
    let sent = Payload::sent(after.0) - Payload::sent(before.0);
    let received = Payload::received(after.1) - Payload::received(before.1);
    let goodput = outcome.goodput_after_ramp().as_bits_per_second();
    let mut put = |metric: &str, value: f64, unit| recorder.put(metric, value, unit);
    put("ours.goodput", goodput as f64, "b/s");
    put("sent.segments", sent.segments(), "segments");
    put("sent.frames", sent.frames, "frames");
    put(
        "lost.segments",
        sent.segments() - received.segments(),
        "segments",
    );
    if let Some(drops) = site.netem_drops()? {
        put("lost.drops", drops as f64, "frames");
    }
    Ok(())
}

/// What an interface carried one way, by bytes: super-frames count once, their bytes do not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Payload {
    bytes: f64,
    frames: f64,
}

impl Payload {
    fn sent(carried: Carried) -> Self {
        Self::of(carried.sent_bytes, carried.sent_frames)
    }

    fn received(carried: Carried) -> Self {
        Self::of(carried.received_bytes, carried.received_frames)
    }

    fn of(bytes: u64, frames: u64) -> Self {
        Self {
            bytes: bytes as f64 - frames as f64 * HEADERS_BYTES,
            frames: frames as f64,
        }
    }

    fn segments(self) -> f64 {
        self.bytes / MSS_BYTES
    }
}

impl std::ops::Sub for Payload {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes - other.bytes,
            frames: self.frames - other.frames,
        }
    }
}

/// The tables, as Markdown.
fn render(record: &Record) -> String {
    let mut text = super::table::head(record);
    type Made = fn(&Record) -> String;
    let tables: [(&str, Made); 3] = [
        ("delay/", delay_table),
        ("tcp/", tcp_table),
        ("loss/", loss_table),
    ];
    for (cells, table) in tables {
        if record.rows.iter().any(|row| row.cell.starts_with(cells)) {
            text.push_str(&format!("\n{}", table(record)));
        }
    }
    for note in &record.notes {
        text.push_str(&format!("* {note}\n"));
    }
    text
}

fn delay_table(record: &Record) -> String {
    let mut table = Table::new(&[
        "full frames beside, Mb/s",
        "arrived, Mb/s",
        "through",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "worst max us",
        "earliest us",
        "probes",
        "lost",
        "machine's gaps > 1 ms, ms/s",
    ]);
    for load_mbit in LOADS_MBIT {
        for place in PLACES {
            let cell = delay_name(place, load_mbit);
            if !record.has(&cell) {
                continue;
            }
            let median = |metric: &str| record.median(&cell, metric);
            let us = |metric: &str| number(median(metric), 1e3, 0);
            let noise = record.median_ratio((&cell, "noise.lost"), (&cell, "noise.wall"));
            table.row(vec![
                load_mbit.to_string(),
                number(median("load.arrived").map(|f| f * 1_538.0 * 8.0), 1e6, 0),
                place.name().to_owned(),
                us("probe.error_p50"),
                us("probe.error_p99"),
                us("probe.error_p999"),
                us("probe.error_max"),
                number(record.largest(&cell, "probe.error_max"), 1e3, 0),
                us("probe.error_min"),
                number(median("probe.count"), 1.0, 0),
                number(median("probe.lost"), 1.0, 0),
                number(noise, 1e-3, 1),
            ]);
        }
    }
    table.finish()
}

fn tcp_table(record: &Record) -> String {
    let bridge = cells::tcp_name(Place::Bridge, MTU, true);
    let mut table = Table::new(&[
        "through",
        "iperf3 Gb/s",
        "of bridge",
        "ours Gb/s",
        "of bridge",
    ]);
    for place in PLACES {
        let cell = cells::tcp_name(place, MTU, true);
        let mut row = vec![place.name().to_owned()];
        for metric in ["iperf3.goodput", "ours.goodput"] {
            let share = record.median_ratio((&cell, metric), (&bridge, metric));
            row.push(number(record.median(&cell, metric), 1e9, 2));
            row.push(number(share, 1.0, 2));
        }
        table.row(row);
    }
    table.finish()
}

fn loss_table(record: &Record) -> String {
    let mut table = Table::new(&[
        "congestion control",
        "through",
        "segments sent",
        "segments a frame",
        "lost, % of segments",
        "least",
        "most",
        "segments a drop",
        "Mb/s",
    ]);
    for congestion in CONGESTIONS {
        for place in [Place::Netem, Place::Lab] {
            let cell = loss_name(place, congestion);
            let median = |metric: &str| record.median(&cell, metric);
            let ratio = |over: &str, under: &str| record.ratios((&cell, over), (&cell, under));
            let shares = ratio("lost.segments", "sent.segments");
            let least = shares.iter().copied().min_by(f64::total_cmp);
            let most = shares.iter().copied().max_by(f64::total_cmp);
            let a_frame = ratio("sent.segments", "sent.frames");
            let a_drop = ratio("lost.segments", "lost.drops");
            table.row(vec![
                congestion.to_owned(),
                place.name().to_owned(),
                number(median("sent.segments"), 1.0, 0),
                number(super::record::median(a_frame), 1.0, 1),
                number(super::record::median(shares), 1e-2, 3),
                number(least, 1e-2, 3),
                number(most, 1e-2, 3),
                number(super::record::median(a_drop), 1.0, 1),
                number(median("ours.goodput"), 1e6, 0),
            ]);
        }
    }
    table.finish()
}

fn delay_name(place: Place, load_mbit: u64) -> String {
    format!("delay/{}/{load_mbit}", place.name())
}

fn loss_name(place: Place, congestion: &str) -> String {
    format!("loss/{}/{congestion}", place.name())
}

/// Short but for the probes, of which p99.9 wants a thousand: an emulated guest takes several seconds for
/// each in which it has work.
const TIMES: Times = Times {
    tcp_omit_s: 0,
    tcp_s: 1,
    idle_s: 3,
    ..QUICK
};
/// The kernel alone, its emulator, ours.
const PLACES: [Place; 3] = [Place::Bridge, Place::Netem, Place::Lab];
/// The middle one is for machines that cannot carry the last.
const LOADS_MBIT: [u64; 3] = [0, 100, 1_000];
const DELAY: Duration = Duration::from_ms(10);
const LOSS: f64 = 0.01;
/// The second hands over long super-frames in spite of losses.
const CONGESTIONS: [&str; 2] = ["cubic", "bbr"];
const MTU: u32 = 1_500;
/// Ethernet, IPv4, TCP with time stamps.
const HEADERS_BYTES: f64 = 66.0;
const MSS_BYTES: f64 = 1_448.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        let mut names: Vec<String> = Cell::all().iter().map(Cell::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 9 + 3 + 4);
    }

    #[test]
    fn segments_are_counted_by_bytes_however_they_are_grouped() {
        // 45 segments: as one super-frame, or as two pieces around the one that was lost.
        let whole = Payload::of(66 + 45 * 1_448, 1);
        let pieces = Payload::of(2 * 66 + 44 * 1_448, 2);
        assert!((whole.segments() - 45.0).abs() < 1e-9);
        assert!(((whole - pieces).segments() - 1.0).abs() < 1e-9);
        // An acknowledgement carries none.
        assert!(Payload::of(66, 1).segments().abs() < 1e-9);
    }
}
