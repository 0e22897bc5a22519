//! `cargo xtask bench watch`: what watching connections costs beside ss, and whether short ones are all counted.
//!
//! Two cells, each in a network namespace of its own with nothing but loopback. `crowd`: 20,000 open sockets, of which one in twenty
//! moves bytes each second; ten looks of `goodput watch` (its example `cost`), then ss with and without processes. `churn`:
//! connections over loopback at 10,000 a second that live about a millisecond each, against the kernel's counters of opens.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use sys::clock;
use sys::netns::NetNs;

use super::record::{Machine, Record, Recorder};
use super::{Options, ROUNDS, run, workspace, write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Crowd,
    Churn,
}

impl Cell {
    fn name(self) -> String {
        match self {
            Self::Crowd => "watch/crowd".to_owned(),
            Self::Churn => "watch/churn".to_owned(),
        }
    }
}

/// Runs the benchmark and writes its results.
pub(crate) fn watch(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let machine = Machine::read(&root);
    let cost = build(&root)?;
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 1 } else { ROUNDS });
    let cells = [Cell::Crowd, Cell::Churn];
    let (rows, notes, failed) = run(
        rounds,
        &cells,
        |c| c.name(),
        |cell, recorder, _| match cell {
            Cell::Crowd => crowd(&cost, recorder),
            Cell::Churn => churn(&cost, recorder),
        },
    );
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let tables = render(&record);
    println!("{tables}");
    let whole = (!options.quick && failed == 0).then_some(tables.as_str());
    let markers = ("<!-- watch:begin -->", "<!-- watch:end -->");
    println!(
        "{}",
        write(&root, "watch.json", &record, whole, markers)?.display()
    );
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    let args = [
        "build",
        "--release",
        "-q",
        "-p",
        "goodput-watch",
        "--example",
        "cost",
    ];
    ensure!(
        cargo.args(args).current_dir(root).status()?.success(),
        "the example cost does not build"
    );
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/examples/cost"))
}

/// A namespace with loopback up.
fn alone() -> anyhow::Result<NetNs> {
    let place = NetNs::create().context("no privilege to make namespaces")?;
    place.run(|| sys::netlink::Netlink::open()?.set_up("lo", None))??;
    Ok(place)
}

/// A process of this program in the namespace, once it says that it is ready.
fn start(place: &NetNs, args: &[&str]) -> anyhow::Result<Held> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = place.place(&mut command)?.spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().context("no output")?;
    BufReader::new(out).read_line(&mut line)?;
    let held = Held(child);
    ensure!(line.trim() == "ready", "{}: {line}", args.join(" "));
    Ok(held)
}

/// A child that ends with this.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program in the namespace to its end: its output, and the CPU milliseconds that it took.
fn ran(place: &NetNs, program: &Path, args: &[&str]) -> anyhow::Result<(Vec<u8>, f64)> {
    let before = clock::children_cpu();
    let mut command = Command::new(program);
    let output = place
        .place(command.args(args))?
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "{} failed", program.display());
    let cpu = (clock::children_cpu() - before).as_ns();
    Ok((output.stdout, cpu as f64 / 1e6))
}

fn crowd(cost: &Path, recorder: &mut Recorder) -> anyhow::Result<()> {
    let place = alone()?;
    let pairs = (PAIRS / HOLDERS).to_string();
    let holders: Vec<Held> = (0..HOLDERS)
        .map(|_| start(&place, &["watch-hold", &pairs]))
        .collect::<Result<_, _>>()?;
    let (figures, _) = ran(&place, cost, &["10"])?;
    let figures: Value = serde_json::from_slice(&figures)?;
    let number = |key: &str| figures[key].as_f64().unwrap_or(f64::NAN);
    ensure!(number("connections") >= (2 * PAIRS) as f64, "{figures}");
    // One look a second: a share of a second is the cost of a look.
    recorder.put("watch.look", number("cpu_share") * 1e3, "ms");
    recorder.put("watch.memory", number("memory_kb"), "kB");
    for (name, flags) in [("ss-tinm", "-tinm"), ("ss-tinmp", "-tinmp")] {
        let (_, cpu) = ran(&place, Path::new("ss"), &[flags])?;
        recorder.put(format!("{name}.look"), cpu, "ms");
    }
    drop(holders);
    Ok(())
}

fn churn(cost: &Path, recorder: &mut Recorder) -> anyhow::Result<()> {
    let place = alone()?;
    let mut command = Command::new(cost);
    let watching = place
        .place(command.arg("15"))?
        .stdout(Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(1));
    let (text, _) = ran(
        &place,
        &std::env::current_exe()?,
        &["watch-churn", &CHURN.to_string()],
    )?;
    let took: f64 = String::from_utf8_lossy(&text).trim().parse()?;
    let figures: Value = serde_json::from_slice(&watching.wait_with_output()?.stdout)?;
    let opens = place.run(opens)??;
    let count = |path: &str| {
        figures
            .pointer(path)
            .and_then(Value::as_f64)
            .unwrap_or(f64::NAN)
    };
    recorder.put("churn.rate", CHURN as f64 / took, "1/s");
    recorder.put("watch.share", count("/cpu_share") * 100.0, "%");
    recorder.put("watch.sockets", count("/closed/connections"), "");
    recorder.put("kernel.sockets", opens, "");
    recorder.put("watch.bytes", count("/closed/acked_bytes"), "B");
    recorder.put("sent.bytes", (CHURN * (UP + DOWN)) as f64, "B");
    recorder.put("watch.gaps", count("/counts/gaps"), "");
    Ok(())
}

/// Connections that were opened in the namespace of the calling thread, each end counted (RFC 4022: tcpActiveOpens, tcpPassiveOpens).
fn opens() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("Tcp: "));
    let (names, values) = (
        lines.next().context("no names")?,
        lines.next().context("no values")?,
    );
    let each = names.split(' ').zip(values.split(' '));
    let wanted = each.filter(|(name, _)| ["ActiveOpens", "PassiveOpens"].contains(name));
    Ok(wanted
        .filter_map(|(_, value)| value.parse::<f64>().ok())
        .sum())
}

/// Holds so many connections to itself until it is killed; one in twenty sends each second.
pub(crate) fn hold(pairs: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut held = Vec::new();
    for _ in 0..pairs.parse()? {
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        near.write_all(&[1; 1_000])?;
        held.push((near, listener.accept()?.0));
    }
    println!("ready");
    loop {
        for (near, far) in held.iter_mut().step_by(20) {
            near.write_all(&[1; 100])?;
            let _ = far.read(&mut [0; 2_000])?;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Makes so many connections to itself at [`RATE`], [`UP`] bytes one way and [`DOWN`] the other; prints how many seconds it took.
pub(crate) fn churner(count: &str) -> anyhow::Result<()> {
    let count: u64 = count.parse()?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = listener.local_addr()?.port();
    let serve = move || -> std::io::Result<()> {
        for _ in 0..count {
            let (mut stream, _) = listener.accept()?;
            stream.read_exact(&mut [0; UP])?;
            stream.write_all(&[1; DOWN])?;
        }
        Ok(())
    };
    let server = std::thread::spawn(serve);
    let begun = Instant::now();
    for n in 0..count {
        // Ports of a pair of addresses rest for a minute: more addresses, more ports.
        let host = Ipv4Addr::new(127, 0, 0, u8::try_from(1 + n % 50)?);
        let mut stream = TcpStream::connect(SocketAddr::from((host, port)))?;
        stream.write_all(&[1; UP])?;
        stream.read_exact(&mut [0; DOWN])?;
        drop(stream);
        let due = begun + Duration::from_secs(1) / RATE * u32::try_from(n + 1)?;
        let early = due.saturating_duration_since(Instant::now());
        if early > Duration::from_millis(2) {
            std::thread::sleep(early);
        }
    }
    server
        .join()
        .map_err(|_| anyhow::anyhow!("the server panicked"))??;
    println!("{}", begun.elapsed().as_secs_f64());
    Ok(())
}

fn render(record: &Record) -> String {
    let crowd = Cell::Crowd.name();
    let number = |cell: &str, metric: &str| record.median(cell, metric).unwrap_or(f64::NAN);
    let ratio = |under: &str| {
        record
            .median_ratio((&crowd, "watch.look"), (&crowd, under))
            .unwrap_or(f64::NAN)
    };
    let churn = Cell::Churn.name();
    let counted = |over, under| {
        record
            .median_ratio((&churn, over), (&churn, under))
            .unwrap_or(f64::NAN)
            * 100.0
    };
    format!(
        "| 20,000 sockets | CPU of a look | watch takes of it | memory |\n|---|---|---|---|\n\
         | `goodput watch` | {:.0} ms | | {:.0} MB |\n| `ss -tinm` | {:.0} ms | {:.2} | |\n| `ss -tinmp` | {:.0} ms | {:.2} | |\n\n\
         | {} connections at {:.0}/s | |\n|---|---|\n| CPU | {:.1} % of a core |\n| sockets counted, of the kernel's | {:.3} % |\n\
         | payload counted, of what was sent | {:.3} % |\n| gaps | {:.0} |\n",
        number(&crowd, "watch.look"),
        number(&crowd, "watch.memory") / 1e3,
        number(&crowd, "ss-tinm.look"),
        ratio("ss-tinm.look"),
        number(&crowd, "ss-tinmp.look"),
        ratio("ss-tinmp.look"),
        CHURN,
        number(&churn, "churn.rate"),
        number(&churn, "watch.share"),
        counted("watch.sockets", "kernel.sockets"),
        counted("watch.bytes", "sent.bytes"),
        number(&churn, "watch.gaps"),
    )
}

/// Pairs of sockets: 20,000 sockets.
const PAIRS: usize = 10_000;
/// Processes that hold them: a process may open 20,000 files on many machines.
const HOLDERS: usize = 5;
const CHURN: usize = 100_000;
const RATE: u32 = 10_000;
const UP: usize = 1_000;
const DOWN: usize = 500;
