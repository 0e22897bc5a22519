//! `cargo xtask bench lab`: the lab and our transfers beside their peers, on this machine, in one run.
//!
//! A cell is one thing measured in one place. All cells run once a round, in the same order, so that
//! a machine that grows slower over the minutes grows slower for all of them. Every number is kept as
//! a row; tables hold medians. Each cell builds its own namespaces and takes them down again.

mod agreement;
mod cells;
mod children;
pub(crate) mod copy;
mod delay;
pub(crate) mod explain;
pub(crate) mod fabric;
pub(crate) mod gaps;
pub(crate) mod gateway;
pub(crate) mod harmonizer;
mod iperf3;
pub(crate) mod measure;
mod meter;
pub(crate) mod netem;
mod ours;
mod record;
pub(crate) mod sim;
mod site;
mod table;
mod throughput;
pub(crate) mod truth;
pub(crate) mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use cells::Cell;
use meter::load;
use record::{Machine, Record, Recorder, Row};

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// One round of short cells.
    pub(crate) quick: bool,
    /// Rounds; five, or one when quick, if not given.
    pub(crate) rounds: Option<u32>,
    /// Only cells whose name contains this.
    pub(crate) only: Option<String>,
    /// Where random draws begin.
    pub(crate) seed: Option<u64>,
    /// Judge what an earlier run has made.
    pub(crate) again: bool,
    /// In a virtual machine.
    pub(crate) guest: bool,
    /// Seconds of each transfer.
    pub(crate) time_s: Option<u64>,
}

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Seconds of a TCP transfer that are left out at its start.
    pub(crate) tcp_omit_s: u64,
    /// Seconds of it that count.
    pub(crate) tcp_s: u64,
    /// Seconds of sending datagrams.
    pub(crate) udp_s: u64,
    /// Seconds of probing an idle path.
    pub(crate) idle_s: u64,
    /// Seconds of the transfer on the healthy path that count; one is left out before.
    pub(crate) healthy_s: u64,
    /// Milliseconds of spinning before a delay cell, to see the machine's own gaps.
    pub(crate) noise_ms: u64,
}

const FULL: Times = Times {
    tcp_omit_s: 1,
    tcp_s: 2,
    udp_s: 2,
    idle_s: 4,
    healthy_s: 3,
    noise_ms: 1_000,
};
const QUICK: Times = Times {
    tcp_omit_s: 0,
    tcp_s: 1,
    udp_s: 1,
    idle_s: 1,
    healthy_s: 1,
    noise_ms: 200,
};
const ROUNDS: u32 = 5;

/// Measures the checksum by the example that comes with it, aligned and as a transport header stands
/// over IPv4, and keeps what it says.
pub(crate) fn checksum() -> anyhow::Result<ExitCode> {
    let root = workspace();
    let mut text = String::new();
    for offset in ["0", "34"] {
        let args = [
            "run",
            "--release",
            "-q",
            "-p",
            "goodput-sys",
            "--example",
            "checksum_bench",
        ];
        let mut cargo = std::process::Command::new(env!("CARGO"));
        let output = cargo
            .args(args)
            .args(["--", offset])
            .current_dir(&root)
            .output()?;
        anyhow::ensure!(output.status.success(), "checksum_bench failed");
        text += &String::from_utf8_lossy(&output.stdout);
        text.push('\n');
    }
    print!("{text}");
    fs::write(root.join("bench/checksum.txt"), text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the benchmark and writes its results.
pub(crate) fn lab(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let machine = Machine::read(&root);
    let times = if options.quick { QUICK } else { FULL };
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 1 } else { ROUNDS });
    let healthy = root.join("paths/healthy-1g-20ms.toml");
    let (cells, mut notes) = chosen(Cell::all(&healthy), options, &machine);
    let (rows, remarks, failed) = run(rounds, &cells, Cell::name, |cell, recorder, round| {
        cell.measure(round, &times, machine.has_iperf3(), recorder)
    });
    notes.extend(remarks);
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let tables = table::render(&record);
    println!("{tables}");
    let whole = !options.quick && options.only.is_none();
    let written = write(
        &root,
        "lab.json",
        &record,
        whole.then_some(&*tables),
        table::MARKERS,
    )?;
    eprintln!("results: {}", written.display());
    if failed > 0 {
        eprintln!("{failed} cells failed");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures every cell once a round; the rows, what there is to remark, and how many cells failed.
fn run<C>(
    rounds: u32,
    cells: &[C],
    name: impl Fn(&C) -> String,
    measure: impl Fn(&C, &mut Recorder, u32) -> anyhow::Result<()>,
) -> (Vec<Row>, Vec<String>, u32) {
    let (mut rows, mut notes, mut failed) = (Vec::new(), Vec::new(), 0);
    for round in 1..=rounds {
        for cell in cells {
            let name = name(cell);
            eprintln!("round {round} of {rounds}: {name}");
            let mut recorder = Recorder::new(round, name.clone(), load());
            let done = measure(cell, &mut recorder, round);
            let (new, remarks) = recorder.into_parts();
            rows.extend(new);
            notes.extend(remarks);
            if let Err(error) = done {
                failed += 1;
                let note = format!("{name}, round {round}: failed: {error:#}");
                eprintln!("{note}");
                notes.push(note);
            }
        }
    }
    (rows, notes, failed)
}

/// The cells to run, and a note for each peer that is not there.
fn chosen(all: Vec<Cell>, options: &Options, machine: &Machine) -> (Vec<Cell>, Vec<String>) {
    let mut notes = Vec::new();
    if !machine.has_iperf3() {
        notes
            .push("iperf3 is missing: no ratios to it (Debian: apt-get install iperf3)".to_owned());
    }
    if !machine.has_ip() {
        notes.push("ip is missing: no bridge (Debian: apt-get install iproute2)".to_owned());
    }
    for note in &notes {
        eprintln!("{note}");
    }
    let wanted = |cell: &Cell| {
        let named = options.only.as_ref();
        named.is_none_or(|name| cell.name().contains(name.as_str()))
            && (machine.has_ip() || !cell.needs_ip())
            && (machine.has_iperf3() || !cell.needs_iperf3())
    };
    (all.into_iter().filter(wanted).collect(), notes)
}

/// Writes a whole run to bench/ with its tables, any other to target/bench; where.
fn write(
    root: &Path,
    name: &str,
    record: &Record,
    tables: Option<&str>,
    markers: (&str, &str),
) -> anyhow::Result<PathBuf> {
    let folder = root.join(if tables.is_some() {
        "bench"
    } else {
        "target/bench"
    });
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let file = folder.join(name);
    fs::write(&file, record.to_json()?).with_context(|| format!("writing {}", file.display()))?;
    if let Some(tables) = tables {
        let readme = folder.join("README.md");
        let text =
            fs::read_to_string(&readme).with_context(|| format!("reading {}", readme.display()))?;
        let text = table::put_between(&text, tables, markers)
            .with_context(|| format!("{} lacks the markers of the table", readme.display()))?;
        fs::write(&readme, text).with_context(|| format!("writing {}", readme.display()))?;
    }
    Ok(file)
}

/// Cargo tells where the manifest is; without cargo, the folder one stands in.
fn workspace() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .and_then(|manifest| Path::new(&manifest).parent().map(Path::to_owned))
        .unwrap_or_else(|| PathBuf::from("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_peer_leaves_its_cells_out_and_says_so() {
        let options = Options::default();
        let all = || Cell::all(Path::new("x.toml"));
        let (cells, notes) = chosen(all(), &options, &Machine::default());
        assert_eq!(notes.len(), 2);
        assert!(cells.iter().all(|c| !c.name().contains("bridge")));
        assert!(cells.iter().any(|c| c.name() == "tcp/lab/1500/on"));
        assert!(cells.iter().all(|c| c.name() != "tcp/veth/9000/on"));
        let tools = Machine {
            iperf3: Some("iperf 3".into()),
            ip: Some("ip".into()),
            ..Machine::default()
        };
        let (cells, notes) = chosen(all(), &options, &tools);
        assert_eq!((cells.len(), notes.len()), (all().len(), 0));
    }

    #[test]
    fn names_choose_cells() {
        let only = |name: &str| Options {
            only: Some(name.to_owned()),
            ..Options::default()
        };
        let count = |name: &str| {
            let all = Cell::all(Path::new("x.toml"));
            chosen(all, &only(name), &Machine::default()).0.len()
        };
        assert_eq!((count("tcp/lab"), count("delay"), count("moon")), (4, 1, 0));
    }
}
