//! `cargo xtask bench explain`: how fast captures are read.
//!
//! Files are made up ([`traffic`]), written to target/bench, read once without counting and then
//! once a round, so that they come out of the page cache. One thread does all.
//!
//! So far the row `parse`: file to decoded segments, by `capture::file` as `explain` uses it.

mod traffic;

use std::fs;
use std::hint::black_box;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use capture::file::{self, End};
use sys::clock;
use wire::segment::Decoded;

use super::record::{Machine, Record, Recorder};
use super::table::{self, Table, number};
use super::{Options, ROUNDS, run, workspace, write};
use traffic::{Format, Traffic};

/// One capture.
#[derive(Clone, Debug)]
struct Cell {
    name: String,
    traffic: Traffic,
    path: PathBuf,
}

impl Cell {
    fn all(folder: &Path, quick: bool) -> Vec<Self> {
        let packets = if quick { QUICK_PACKETS } else { PACKETS };
        let mut cells = Vec::new();
        for (flows, format) in [
            (FEW_FLOWS, Format::Pcap),
            (FEW_FLOWS, Format::Pcapng),
            (MANY_FLOWS, Format::Pcap),
        ] {
            let name = format!(
                "parse/{flows}/{}",
                match format {
                    Format::Pcap => "pcap",
                    Format::Pcapng => "pcapng",
                }
            );
            let path = folder.join(name.replace('/', "-"));
            let traffic = Traffic {
                flows,
                packets,
                format,
            };
            cells.push(Self {
                name,
                traffic,
                path,
            });
        }
        cells
    }

    /// Writes the capture and reads it once.
    fn prepare(&self) -> anyhow::Result<()> {
        let file = fs::File::create(&self.path)
            .with_context(|| format!("making {}", self.path.display()))?;
        self.traffic
            .write(BufWriter::with_capacity(1 << 20, file))?;
        parse(&self.path)?;
        Ok(())
    }

    fn measure(&self, to: &mut Recorder) -> anyhow::Result<()> {
        let (at, cpu) = (clock::monotonic(), clock::thread_cpu());
        let packets = parse(&self.path)?;
        let wall_s = clock::monotonic().saturating_since(at).as_s_f64();
        let cpu_s = (clock::thread_cpu() - cpu).as_s_f64();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 packets")]
        let packets = packets as f64;
        to.put("packets", packets, "1");
        to.put("parse.rate", packets / wall_s, "packets/s");
        to.put("parse.cpu", cpu_s, "s");
        to.put("parse.rate_of_cpu", packets / cpu_s, "packets/s");
        Ok(())
    }
}

/// Reads a capture and decodes its segments; how many.
fn parse(path: &Path) -> anyhow::Result<u64> {
    let mut capture = file::open(path)?;
    let mut bytes = 0_u64;
    capture.for_each_segment(|packet, decoded, segment| {
        if decoded == Decoded::Tcp {
            let segment = black_box(segment);
            bytes += u64::from(segment.payload_bytes) + (packet.time_ns & 1);
        }
        ControlFlow::Continue(())
    });
    black_box(bytes);
    ensure!(
        matches!(capture.end(), Some(End::Whole)),
        "{}: {:?}",
        path.display(),
        capture.end()
    );
    Ok(capture.kinds().tcp)
}

/// Runs the benchmark and writes its results.
pub(crate) fn explain(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let machine = Machine::read(&root);
    let folder = root.join("target/bench/captures");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut cells = Cell::all(&folder, options.quick);
    let only = options.only.as_deref().unwrap_or_default();
    cells.retain(|cell| cell.name.contains(only));
    for cell in &cells {
        cell.prepare()?;
    }
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 1 } else { ROUNDS });
    let name = |cell: &Cell| cell.name.clone();
    let (rows, notes, failed) = run(rounds, &cells, name, |cell, to, _| cell.measure(to));
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let tables = render(&record);
    println!("{tables}");
    let whole = (!options.quick && options.only.is_none()).then_some(&*tables);
    let written = write(&root, "explain.json", &record, whole, MARKERS)?;
    eprintln!("results: {}", written.display());
    if failed > 0 {
        eprintln!("{failed} cells failed");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn render(record: &Record) -> String {
    let mut text = table::head(record);
    let mut parsed = Table::new(&[
        "capture",
        "M packets",
        "M packets/s",
        "M packets/CPU s",
        "CPU s",
    ]);
    for cell in Cell::all(Path::new(""), record.quick) {
        let name = &cell.name;
        if !record.has(name) {
            continue;
        }
        let median = |metric: &str| record.median(name, metric);
        parsed.row(vec![
            format!(
                "{} connections, {:?}",
                cell.traffic.flows, cell.traffic.format
            ),
            number(median("packets"), 1e6, 1),
            number(median("parse.rate"), 1e6, 1),
            number(median("parse.rate_of_cpu"), 1e6, 1),
            number(median("parse.cpu"), 1.0, 3),
        ]);
    }
    text += &format!("\n### Parsing\n\n{PARSE_LEGEND}\n\n{}", parsed.finish());
    for note in &record.notes {
        text += &format!("\n* {note}");
    }
    text
}

const PARSE_LEGEND: &str = "Header-only captures out of the page cache, read and decoded to TCP \
    segments by one thread (`capture::file`). CPU is that thread's, the kernel's copying included. \
    Medians over the rounds.";
/// As many as the capture had on which tcptrace was timed for this project's aims.
const FEW_FLOWS: u32 = 33;
/// More than a CPU's caches hold the state of.
const MANY_FLOWS: u32 = 100_000;
/// Some 0.3 s of parsing, 600 MB.
const PACKETS: u64 = 6_000_000;
const QUICK_PACKETS: u64 = 600_000;
const MARKERS: (&str, &str) = ("<!-- explain:begin -->", "<!-- explain:end -->");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_made_measured_and_put_into_the_table() {
        let folder = std::env::temp_dir().join(format!("goodput-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut cells = Cell::all(&folder, true);
        assert_eq!(cells.len(), 3);
        let mut cell = cells.remove(0);
        cell.traffic.packets = 2_000;
        cell.prepare().unwrap();
        let mut recorder = Recorder::new(1, cell.name.clone(), 0.0);
        cell.measure(&mut recorder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let (rows, notes) = recorder.into_parts();
        let record = Record::of(Machine::default(), 1, true, notes, rows);
        let text = render(&record);
        assert!(text.contains("| 33 connections, Pcap | 0.0 "), "{text}");
        assert!(!text.contains("100000"), "only what was measured");
    }
}
