//! A plan of settings tried out in a lab: iperf3 before, with half the least buffers, with the plan, and everything undone.
//!
//! What a fresh connection between the hosts announces, and how far its receive buffer grows, is read from its socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use fault::{Cause, Failure};
use job::record;
use lab::{Host as LabHost, Lab, PathFile};
use measure::Stop;
use serde_json::{Value, json};
use settings::Key;
use sys::child::Ended;
use sys::folder::Folder;
use tune::{Asked, Confirmation, Host, Tuner, Values, Wanted};

/// What is tried.
#[derive(Debug)]
pub struct Plan {
    /// The path.
    pub path: PathFile,
    /// What to derive, rate and round trip included.
    pub wanted: Wanted,
    /// Folder that run folders are made in.
    pub runs: PathBuf,
}

/// Tries a plan out; what came of it, and the folder that it is kept in.
///
/// # Errors
/// The lab cannot be built, a setting fails, or iperf3 is missing.
pub fn run(plan: &Plan, stop: &Stop) -> Result<(Value, PathBuf), Failure> {
    let folder = folder(&plan.runs, &plan.path)?;
    let lab = Lab::up(&plan.path)?;
    let ends = [lab.near(), lab.far()];
    let state = folder.join("state");
    let before = snapshot(&ends)?;
    let mut phases = vec![phase("before", &lab, stop)?];
    let mut plans = Vec::new();
    for end in ends {
        plans.push(on(end, || Asked::new(&Host::machine(), &plan.wanted))?);
    }
    // Half of the least: a window of half the path.
    for (end, asked) in ends.iter().zip(&plans) {
        let half = asked.plan.receive_buffer_min.as_u64() / 2;
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            end.set(name, &format!("4096 65536 {half}"))?;
        }
    }
    phases.push(phase("half", &lab, stop)?);
    for (end, values) in ends.iter().zip(&before) {
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let found = values.iter().find(|(key, _)| key == name);
            end.set(name, found.map_or("", |(_, value)| value))?;
        }
    }
    let mut verified = Vec::new();
    for (end, asked) in ends.iter().zip(&plans) {
        let checked = on(end, || {
            let tuner = Tuner::new(Host::machine(), &state);
            tuner.apply(&asked.plan, Confirmation::None, true, &mut |_| Ok(()))?;
            tuner.verify()
        })?;
        verified.push(tune::verified_json(&checked));
    }
    phases.push(phase("after", &lab, stop)?);
    let mut undone = Vec::new();
    for end in ends {
        // Another Tuner, as another process would have.
        let back = on(end, || Tuner::new(Host::machine(), &state).undo())?;
        undone.push(tune::undone_json(&back));
    }
    let found = json!({
        "format": 1,
        "path": plan.path.title,
        "kernel": sys::host::kernel_release(),
        "plan": tune::plan_json(&plans[1]),
        "phases": phases,
        "verified": verified,
        "undone": undone,
        "as_before": snapshot(&ends)? == before,
    });
    lab.down()?;
    let text = serde_json::to_string_pretty(&found).map_err(Failure::here)? + "\n";
    let file = folder.join("tune.json");
    sys::folder::replace(&file, text)
        .map_err(|_| Failure::here(format!("cannot write {}", file.display())))?;
    Ok((found, folder))
}

/// Runs `work` in a host of the lab.
fn on<T: Send>(
    host: &LabHost,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    host.run(work)?
}

fn folder(runs: &Path, path: &PathFile) -> Result<PathBuf, Failure> {
    let name = path.file.file_stem().unwrap_or_default().to_string_lossy();
    let time = record::now_utc().replace([':', '-'], "");
    let name = format!("{time}-tune-trial-{name}");
    let made = Folder::fresh(runs, &name);
    let made =
        made.map_err(|_| Failure::here(format!("cannot make {}", runs.join(name).display())))?;
    Ok(made.path().to_owned())
}

/// Every sysctl of the hosts' IPv4 that a plan may touch.
fn snapshot(ends: &[&LabHost]) -> Result<Vec<Vec<(String, String)>>, Failure> {
    let one = |end: &&LabHost| {
        on(end, || {
            let host = Host::machine();
            let tree = &host.tree;
            let names = tree.names("/proc/sys/net/ipv4").into_iter();
            let values = names.filter_map(|name| {
                let name = format!("net.ipv4.{name}");
                let value = host.read(&Key::sysctl(&name)).ok()?;
                Some((name, value))
            });
            Ok(values.collect())
        })
    };
    ends.iter().map(one).collect()
}

/// iperf3's goodput, and a connection of our own.
fn phase(name: &str, lab: &Lab, stop: &Stop) -> Result<Value, Failure> {
    let goodput = iperf3(lab.near(), lab.far(), stop).map_err(Failure::here)?;
    let grown = connection(lab.near(), lab.far())?;
    Ok(json!({
        "name": name,
        "observers": [{"tool": "iperf3", "goodput_bits_per_second": goodput}],
        "connection": grown,
    }))
}

fn iperf3(near: &LabHost, far: &LabHost, stop: &Stop) -> Result<u64, Cause> {
    let mut server = far.program("iperf3")?;
    server
        .args(["-s", "-1", "-p", "5300"])
        .stdout(Stdio::null());
    let missing = "iperf3 cannot be started; install it (Debian: apt-get install iperf3)";
    let _server = Ended::start(&mut server).map_err(|_| missing)?;
    let address = far.address().to_string();
    let words = [
        "-c",
        &address,
        "-p",
        "5300",
        "-J",
        "-t",
        SECONDS,
        "-O",
        RAMP_SECONDS,
    ];
    for _ in 0..TRIES {
        thread::sleep(PAUSE);
        if stop.is_stopped() {
            break;
        }
        let output = near.program("iperf3")?.args(words).output()?;
        if !output.status.success() {
            continue;
        }
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let rate = report.pointer("/end/sum_received/bits_per_second");
        return whole(rate.and_then(Value::as_f64));
    }
    Err(format!("iperf3 from {} to {} failed", near.name(), far.name()).into())
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates; a rate is never below zero"
)]
fn whole(rate: Option<f64>) -> Result<u64, Cause> {
    Ok(rate.ok_or("iperf3 reports no rate")? as u64)
}

/// What the receiver of a fresh connection announces, and what its buffer is at first and after some seconds.
fn connection(near: &LabHost, far: &LabHost) -> Result<Value, Failure> {
    let address = SocketAddr::from((far.address(), 5301));
    let listener = far
        .run(|| TcpListener::bind(address))?
        .map_err(Failure::here)?;
    thread::scope(|scope| {
        let sender = sys::threads::scoped(scope, "gp-sender", move || {
            near.run(|| -> std::io::Result<()> {
                let mut out = TcpStream::connect_timeout(&address, PATIENCE)?;
                let block = [0; 65_536];
                // The receiver goes when it has seen enough.
                while out.write_all(&block).is_ok() {}
                Ok(())
            })
        })
        .map_err(Failure::here)?;
        let read = || -> std::io::Result<Value> {
            let (mut from, _) = listener.accept()?;
            let at_first = sys::tcp::receive_buffer(from.as_fd())?;
            let end = Instant::now() + GROWTH;
            let mut block = vec![0; 65_536];
            while Instant::now() < end && from.read(&mut block)? > 0 {}
            let info = sys::tcp::tcp_info(from.as_fd())?;
            let after = sys::tcp::receive_buffer(from.as_fd())?;
            Ok(json!({
                "receive_window_shift": info.own_window_shift(),
                "receive_buffer_bytes_at_first": at_first.as_u64(),
                "receive_buffer_bytes": after.as_u64(),
            }))
        };
        let found = read().map_err(Failure::here);
        let sent = sender
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        sent.map_err(Failure::here)?;
        found
    })
}

const SECONDS: &str = "6";
const RAMP_SECONDS: &str = "4";
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(5);
/// Slow start to 1 Gb/s at 85 ms takes ten round trips.
const GROWTH: Duration = Duration::from_secs(3);
