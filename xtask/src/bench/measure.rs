//! `cargo xtask bench measure`: what `goodput measure` costs beside programs that do the same.
//!
//! The latency of messages beside a bare ping-pong in C (`bench/pingpong.c`, built here with `cc`), and
//! bulk transfers (`throughput`). Both ends of all are processes of their own, in the same pair of
//! namespaces joined by one veth pair; who goes first changes from round to round. Our ends are this
//! program started again, so that nothing but the measure crate is measured.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail, ensure};
use measure::{Client, Limits, MessageSpec, Overhead, Server, Stop};
use units::Duration;

use super::children::Ended;
use super::record::{Machine, Record, Recorder};
use super::site::{Place, Site};
use super::table::{self, Table, number};
use super::{Options, ROUNDS, agreement, throughput, workspace, write};

/// One thing measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// Messages to and fro.
    Latency {
        /// Size of each.
        bytes: u32,
        /// Whether our ends spin; the C program never does.
        spin: bool,
    },
    /// Bulk.
    Throughput(throughput::Cell),
    /// Beside iperf3, each at either end.
    Agreement(agreement::Cell),
}

/// Half of a round trip, as either program tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Latency {
    count: f64,
    mean_ns: f64,
    min_ns: f64,
    median_ns: f64,
    p99_ns: f64,
}

impl Cell {
    fn all() -> Vec<Self> {
        let mut cells: Vec<Self> = SIZES_BYTES
            .iter()
            .map(|&bytes| Self::Latency { bytes, spin: false })
            .collect();
        cells.push(Self::Latency {
            bytes: 1,
            spin: true,
        });
        cells.extend(throughput::Cell::ALL.map(Self::Throughput));
        cells.extend(agreement::Cell::ALL.map(Self::Agreement));
        cells
    }

    fn name(self) -> String {
        match self {
            Self::Latency { bytes, spin: false } => format!("latency/veth/{bytes}"),
            Self::Latency { bytes, spin: true } => format!("latency/veth/{bytes}/spin"),
            Self::Throughput(cell) => cell.name(),
            Self::Agreement(cell) => cell.name(),
        }
    }

    fn measure(self, round: u32, tools: &Tools, to: &mut Recorder) -> anyhow::Result<()> {
        let (bytes, spin) = match self {
            Self::Latency { bytes, spin } => (bytes, spin),
            Self::Throughput(cell) => {
                let has = |peer: &str| tools.peers.iter().any(|p| p == peer);
                return cell.measure(round, &tools.own, tools.quick, has, to);
            }
            Self::Agreement(cell) => {
                return match tools.peers.iter().any(|peer| peer == "iperf3") {
                    true => cell.measure(round, &tools.own, &tools.healthy, to),
                    false => Ok(()),
                };
            }
        };
        let site = Site::plain(Place::Veth, 1500, true)?;
        let ours = |to: &mut Recorder| ours(&site, tools, bytes, spin).map(|l| keep(to, "ours", l));
        let bare = |to: &mut Recorder| bare(&site, tools, bytes).map(|l| keep(to, "c", l));
        if spin {
            return ours(to);
        }
        if round.is_multiple_of(2) {
            bare(to)?;
            ours(to)
        } else {
            ours(to)?;
            bare(to)
        }
    }
}

/// The programs.
struct Tools {
    own: PathBuf,
    pingpong: PathBuf,
    /// A path file.
    healthy: PathBuf,
    /// Those that are there.
    peers: Vec<String>,
    quick: bool,
    seconds: f64,
}

/// Runs the benchmark and writes its results.
pub(crate) fn measure(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let machine = Machine::read(&root);
    let (mut peers, mut notes) = (Vec::new(), Vec::new());
    for (peer, there) in [
        ("iperf3", machine.has_iperf3()),
        ("nuttcp", machine.nuttcp.is_some()),
    ] {
        if there {
            peers.push(peer.to_owned());
        } else {
            notes.push(format!(
                "{peer} is missing: no ratios to it (Debian: apt-get install {peer})"
            ));
        }
    }
    for note in &notes {
        eprintln!("{note}");
    }
    let tools = Tools {
        own: std::env::current_exe().context("finding this program")?,
        pingpong: build(&root)?,
        healthy: root.join("paths/healthy-1g-20ms.toml"),
        peers,
        quick: options.quick,
        seconds: if options.quick { 0.2 } else { 2.0 },
    };
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 1 } else { ROUNDS });
    let named = |cell: &Cell| {
        let wanted = options.only.as_ref();
        wanted.is_none_or(|name| cell.name().contains(name.as_str()))
    };
    let cells: Vec<Cell> = Cell::all().into_iter().filter(named).collect();
    let name = |cell: &Cell| cell.name();
    let (rows, remarks, failed) = super::run(rounds, &cells, name, |cell, recorder, round| {
        cell.measure(round, &tools, recorder)
    });
    notes.extend(remarks);
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let tables = render(&record);
    println!("{tables}");
    let whole = !options.quick && options.only.is_none();
    let tables = whole.then_some(&*tables);
    let written = write(&root, "measure.json", &record, tables, MARKERS)?;
    eprintln!("results: {}", written.display());
    if failed > 0 {
        eprintln!("{failed} cells failed");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// One of our ends, in a process of its own: `xtask end serve ADDRESS`, `xtask end ping ADDRESS BYTES
/// SECONDS SPIN`.
pub(crate) fn end(args: &[&str]) -> anyhow::Result<ExitCode> {
    match args {
        ["serve", address] => {
            Server::bind(address.parse()?, Limits::default())?.serve(&Stop::new())?;
        }
        ["ping", address, bytes, seconds, spin] => {
            let seconds: f64 = seconds.parse()?;
            ensure!((0.01..3600.0).contains(&seconds), "seconds out of range");
            let spec = MessageSpec {
                bytes: bytes.parse()?,
                duration_ns: std::time::Duration::from_secs_f64(seconds)
                    .as_nanos()
                    .try_into()?,
                spin: spin.parse()?,
                ..MessageSpec::default()
            };
            let mut client = connect(address.parse()?)?;
            let outcome = client.messages(&spec, &Stop::new())?;
            let times = &outcome.round_trips;
            let half = |t: Option<Duration>| t.map_or(f64::NAN, |t| t.as_s_f64() * 1e9 / 2.0);
            println!(
                "{} {:.1} {:.1} {:.1} {:.1}",
                times.count(),
                half(times.mean()),
                half(times.min()),
                half(times.quantile(500)),
                half(times.quantile(990)),
            );
        }
        ["send", rest @ ..] => throughput::send(rest)?,
        ["agree", rest @ ..] => agreement::agree(rest)?,
        _ => bail!("this is for bench measure only"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The server is started at the same time and may need a moment.
pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Client> {
    let mut tries = 0;
    loop {
        match Client::connect_addr(address, Duration::from_s(5)) {
            Ok(client) => return Ok(client),
            Err(error) if tries == 1_000 => return Err(error.into()),
            Err(_) => tries += 1,
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = root.join("target/bench");
    fs::create_dir_all(&folder)?;
    let program = folder.join("pingpong");
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-o"])
        .arg(&program)
        .arg(root.join("bench/pingpong.c"))
        .status()
        .context("starting cc (Debian: apt-get install gcc)")?;
    ensure!(status.success(), "cc failed");
    Ok(program)
}

fn ours(site: &Site, tools: &Tools, bytes: u32, spin: bool) -> anyhow::Result<Latency> {
    let (near, far) = (site.near(), site.far());
    let address = SocketAddr::from((far.address(), measure::DEFAULT_PORT)).to_string();
    let own = tools.own.to_str().context("a path that is no text")?;
    let mut server = far.program(own)?;
    let server = server.args(["end", "serve", &address]);
    let _server = Ended::of(server.stdin(Stdio::null()).spawn()?);
    let (bytes, seconds) = (bytes.to_string(), tools.seconds.to_string());
    let mut client = near.program(own)?;
    let client = client.args(["end", "ping", &address, &bytes, &seconds, &spin.to_string()]);
    told(client)
}

fn bare(site: &Site, tools: &Tools, bytes: u32) -> anyhow::Result<Latency> {
    let (near, far) = (site.near(), site.far());
    let (address, bytes) = (far.address().to_string(), bytes.to_string());
    let program = tools.pingpong.to_str().context("a path that is no text")?;
    let mut server = far.program(program)?;
    let server = server.args(["serve", &address, BARE_PORT, &bytes]);
    let _server = Ended::of(server.stdin(Stdio::null()).spawn()?);
    let seconds = tools.seconds.to_string();
    let mut client = near.program(program)?;
    told(client.args(["ping", &address, BARE_PORT, &bytes, &seconds]))
}

/// Runs a client and reads its one line.
fn told(client: &mut Command) -> anyhow::Result<Latency> {
    let output = client.stdin(Stdio::null()).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", error.trim());
    latency_of(&String::from_utf8_lossy(&output.stdout)).context("five numbers expected")
}

fn latency_of(text: &str) -> Option<Latency> {
    let numbers: Vec<f64> = text
        .split_ascii_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let &[count, mean_ns, min_ns, median_ns, p99_ns] = numbers.as_slice() else {
        return None;
    };
    Some(Latency {
        count,
        mean_ns,
        min_ns,
        median_ns,
        p99_ns,
    })
}

fn keep(to: &mut Recorder, who: &str, latency: Latency) {
    to.put(format!("{who}.round_trips"), latency.count, "1");
    to.put(format!("{who}.mean"), latency.mean_ns, "ns");
    to.put(format!("{who}.min"), latency.min_ns, "ns");
    to.put(format!("{who}.median"), latency.median_ns, "ns");
    to.put(format!("{who}.p99"), latency.p99_ns, "ns");
}

fn render(record: &Record) -> String {
    let mut text = table::head(record);
    let mut latency = Table::new(&[
        "message, B",
        "ours, median us",
        "C, median us",
        "ours / C, median",
        "of means",
        "ours, least us",
        "C, least us",
        "ours, p99 us",
        "C, p99 us",
        "ours spinning, median us",
    ]);
    let mut any = false;
    for bytes in SIZES_BYTES {
        let cell = Cell::Latency { bytes, spin: false }.name();
        if !record.has(&cell) {
            continue;
        }
        any = true;
        let spin = Cell::Latency { bytes, spin: true }.name();
        let us = |metric: &str| number(record.median(&cell, metric), 1e3, 2);
        let ratio = |ours: &str, c: &str| {
            let ratio = record.median_ratio((&cell, ours), (&cell, c));
            number(ratio, 1.0, 3)
        };
        latency.row(vec![
            bytes.to_string(),
            us("ours.median"),
            us("c.median"),
            ratio("ours.median", "c.median"),
            ratio("ours.mean", "c.mean"),
            us("ours.min"),
            us("c.min"),
            us("ours.p99"),
            us("c.p99"),
            number(record.median(&spin, "ours.median"), 1e3, 2),
        ]);
    }
    if any {
        let overhead = Overhead::measure();
        text += &format!("\n### Latency of messages\n\n{LATENCY_LEGEND}\n\n");
        text += &latency.finish();
        text += &format!(
            "\nOur own part of a round trip, measured in a loop without sockets: {:.0} ns, {:.0} ns of \
             it one reading of the clock.\n",
            overhead.round_ns, overhead.clock_ns
        );
    }
    text += &throughput::render(record);
    text += &agreement::render(record);
    for note in &record.notes {
        text += &format!("\n* {note}");
    }
    text
}

const LATENCY_LEGEND: &str = "Half of a round trip of one message over TCP between two processes in \
    two namespaces joined by a veth pair, both asleep until the message is there. C is \
    bench/pingpong.c: write, read, one reading of the clock. Medians over the rounds; the ratios are \
    medians of each round's ratio.";
const SIZES_BYTES: [u32; 4] = [1, 64, 1_024, 16_384];
const BARE_PORT: &str = "5218";
const MARKERS: (&str, &str) = ("<!-- measure:begin -->", "<!-- measure:end -->");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_five_numbers_is_a_latency() {
        let read = latency_of("10 8.5 7.0 8.0 9.5\n").unwrap();
        assert_eq!((read.count, read.median_ns), (10.0, 8.0));
        assert_eq!(latency_of("10 8.5 7.0 8.0"), None);
        assert_eq!(latency_of("10 8.5 7.0 8.0 x"), None);
    }

    #[test]
    fn cells_have_names_of_their_own() {
        let mut names: Vec<String> = Cell::all().into_iter().map(Cell::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Cell::all().len());
    }
}
