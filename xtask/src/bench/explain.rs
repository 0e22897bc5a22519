//! `cargo xtask bench explain`: how fast captures are read.
//!
//! Files are made up ([`traffic`]), written to target/bench, read once without counting and then
//! once a round, so that they come out of the page cache.
//!
//! `parse`: file to decoded segments, by `capture::file` as `explain` uses it. `analyse`: the same and the
//! facts and limits of every connection. Beside them tcptrace on the same file where it has few
//! connections, and both peers on a smaller one, since they take minutes.

mod analysis;
mod memory;
mod traffic;

use std::fs;
use std::hint::black_box;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use capture::file::{self, End};
use sys::clock;
use wire::segment::Decoded;

use super::children::output_within;
use super::record::{Machine, Record, Recorder};
use super::table::{self, Table, number};
use super::{Options, ROUNDS, run, workspace, write};
use traffic::{Format, Traffic};

pub(crate) use memory::crowd;

/// One capture.
#[derive(Clone, Debug)]
struct Cell {
    name: String,
    traffic: Traffic,
    path: PathBuf,
    /// The same traffic in less packets, for programs that take minutes.
    small: PathBuf,
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
            let small = path.with_extension("small");
            cells.push(Self {
                name,
                traffic,
                path,
                small,
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
        let small = fs::File::create(&self.small)
            .with_context(|| format!("making {}", self.small.display()))?;
        let traffic = Traffic {
            packets: self.traffic.packets.min(SMALL_PACKETS),
            ..self.traffic
        };
        traffic.write(BufWriter::with_capacity(1 << 20, small))?;
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
        let (at, cpu) = (clock::monotonic(), clock::thread_cpu());
        let connections = analysis::analyse(&self.path, 1)?;
        let wall_s = clock::monotonic().saturating_since(at).as_s_f64();
        let cpu_s = (clock::thread_cpu() - cpu).as_s_f64();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 connections")]
        to.put("connections", connections as f64, "1");
        to.put("analyse.rate", packets / wall_s, "packets/s");
        to.put("analyse.rate_of_cpu", packets / cpu_s, "packets/s");
        let at = clock::monotonic();
        analysis::analyse(&self.path, 2)?;
        let wall_s = clock::monotonic().saturating_since(at).as_s_f64();
        to.put("analyse.rate_two_threads", packets / wall_s, "packets/s");
        if self.traffic.format == Format::Pcap {
            self.peers(packets, to)?;
        }
        Ok(())
    }

    /// tcptrace and tshark, where they are installed.
    fn peers(&self, packets: f64, to: &mut Recorder) -> anyhow::Result<()> {
        let few = self.traffic.flows == FEW_FLOWS;
        let (file, of) = match few {
            true => (&self.path, packets),
            false => (&self.small, self.small_packets()),
        };
        if let Some(wall_s) = timed("tcptrace", &["-n"], file)? {
            to.put("tcptrace.rate", of / wall_s, "packets/s");
        }
        let conversations = ["-q", "-z", "conv,tcp", "-r"];
        if let Some(wall_s) = timed("tshark", &conversations, &self.small)? {
            to.put("tshark.rate", self.small_packets() / wall_s, "packets/s");
        }
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 packets")]
    fn small_packets(&self) -> f64 {
        self.traffic.packets.min(SMALL_PACKETS) as f64
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
    Ok(capture.decoder().kinds().tcp)
}

/// Seconds that a program takes with a file as its last argument; `None` where it is not installed.
fn timed(program: &str, args: &[&str], file: &Path) -> anyhow::Result<Option<f64>> {
    let at = clock::monotonic();
    let mut command = Command::new(program);
    command.args(args).arg(file).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(child) = child else { return Ok(None) };
    output_within(child, PEER_MAX).with_context(|| program.to_owned())?;
    Ok(Some(clock::monotonic().saturating_since(at).as_s_f64()))
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
    let (mut rows, mut notes, mut failed) =
        run(rounds, &cells, name, |cell, to, _| cell.measure(to));
    let mut crowds = memory::Crowd::ALL.to_vec();
    crowds.retain(|crowd| crowd.name().contains(only));
    let name = |crowd: &memory::Crowd| crowd.name().to_owned();
    let more = run(1, &crowds, name, |crowd, to, _| {
        crowd.measure(options.quick, to)
    });
    rows.extend(more.0);
    notes.extend(more.1);
    failed += more.2;
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
    let mut analysed = Table::new(&[
        "capture",
        "connections",
        "M packets/s",
        "M packets/CPU s",
        "on two threads",
        "of one",
        "tcptrace M packets/s",
        "of it",
        "tshark k packets/s",
        "of it",
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
        let times = |peer: &str| {
            let (ours, theirs) = (median("analyse.rate"), median(peer));
            ours.zip(theirs).map(|(ours, theirs)| ours / theirs)
        };
        analysed.row(vec![
            format!(
                "{} connections, {:?}",
                cell.traffic.flows, cell.traffic.format
            ),
            number(median("connections"), 1.0, 0),
            number(median("analyse.rate"), 1e6, 2),
            number(median("analyse.rate_of_cpu"), 1e6, 2),
            number(median("analyse.rate_two_threads"), 1e6, 2),
            number(
                median("analyse.rate_two_threads")
                    .zip(median("analyse.rate"))
                    .map(|(two, one)| two / one),
                1.0,
                2,
            ),
            number(median("tcptrace.rate"), 1e6, 2),
            number(times("tcptrace.rate"), 1.0, 1),
            number(median("tshark.rate"), 1e3, 1),
            number(times("tshark.rate"), 1.0, 0),
        ]);
    }
    text += &format!("\n### Parsing\n\n{PARSE_LEGEND}\n\n{}", parsed.finish());
    text += &format!(
        "\n### Analysis\n\n{ANALYSE_LEGEND}\n\n{}",
        analysed.finish()
    );
    text += &format!(
        "\n### Memory\n\n{MEMORY_LEGEND}\n\n{}",
        memory::table(record)
    );
    for note in &record.notes {
        text += &format!("\n* {note}");
    }
    text
}

const MEMORY_LEGEND: &str = "Peak resident memory of a process that analyses a made-up crowd, all of it live at \
    once, on one thread.";
const PARSE_LEGEND: &str = "Header-only captures out of the page cache, read and decoded to TCP \
    segments by one thread (`capture::file`). CPU is that thread's, the kernel's copying included. \
    Medians over the rounds.";
const ANALYSE_LEGEND: &str = "The same files: the facts of every connection, what held its sender and what \
    that cost, as `goodput explain` does it, on one thread and on two; `explain` puts the 200 that lost most into \
    words besides. tcptrace -n on the same file, on 200,000 packets of such traffic where connections are many; \
    tshark -q -z conv,tcp on 200,000 packets. Neither says why.";
/// As many as the capture had on which tcptrace was timed for this project's aims.
const FEW_FLOWS: u32 = 33;
/// More than a CPU's caches hold the state of.
const MANY_FLOWS: u32 = 100_000;
/// Some 0.3 s of parsing, 600 MB.
const PACKETS: u64 = 6_000_000;
const QUICK_PACKETS: u64 = 600_000;
const SMALL_PACKETS: u64 = 200_000;
const PEER_MAX: Duration = Duration::from_secs(120);
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
