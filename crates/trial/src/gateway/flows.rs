//! iperf3's connections through a gateway.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use fault::{Cause, Failure};
use lab::{Host, Lab};
use measure::Stop;
use serde_json::{Value, json};
use sys::child::Ended;
use sys::threads;

use super::plan::Plan;

/// What iperf3's connections received together, bits a second.
pub(super) fn total(flows: &[Value]) -> f64 {
    flows
        .iter()
        .filter_map(|f| f["bits_per_second"].as_f64())
        .sum()
}

/// iperf3's connections, all at once.
pub(super) fn flows(
    plan: &Plan,
    connections: usize,
    lab: &Lab,
    to: &[&Host],
    stop: &Stop,
) -> Result<Vec<Value>, Failure> {
    let ended: Vec<Result<Value, Cause>> = thread::scope(|scope| {
        let all = (0..connections).map(|n| {
            let far = to[n % to.len()];
            threads::scoped(scope, "gp-flow", move || {
                // One after the other, so that each finds the load of those before it.
                thread::sleep(APART * u32::try_from(n).unwrap_or(0));
                flow(plan, lab.near(), far, n, stop)
            })
        });
        let all: Vec<_> = all.collect();
        let panicked = |_| Err("a thread panicked".into());
        all.into_iter()
            .map(|one| one?.join().unwrap_or_else(panicked))
            .collect()
    });
    let flows: Result<Vec<Value>, Cause> = ended.into_iter().collect();
    flows.map_err(Failure::here)
}

fn flow(plan: &Plan, near: &Host, far: &Host, number: usize, stop: &Stop) -> Result<Value, Cause> {
    let port = (IPERF3_PORT + number).to_string();
    let mut server = far.program("iperf3")?;
    server.args(["-s", "-1", "-p", &port]).stdout(Stdio::null());
    let missing = "iperf3 cannot be started; install it (Debian: apt-get install iperf3)";
    let _server = Ended::start(&mut server).map_err(|_| missing)?;
    let address = far.address().to_string();
    let whole = plan.time.as_ns().div_ceil(1_000_000_000).max(2);
    let omitted = (whole / 5).max(1);
    let (counted, omitted) = ((whole - omitted).to_string(), omitted.to_string());
    let mut words = vec![
        "-c", &address, "-p", &port, "-J", "-t", &counted, "-O", &omitted,
    ];
    if plan.down {
        words.push("-R");
    }
    for _ in 0..TRIES {
        thread::sleep(PAUSE);
        if stop.is_stopped() {
            break;
        }
        let output = near.program("iperf3")?.args(&words).output()?;
        if !output.status.success() {
            continue;
        }
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let number = |at: &str| report.pointer(at).and_then(Value::as_f64);
        return Ok(json!({
            "tool": "iperf3",
            "to": far.name(),
            "bits_per_second": number("/end/sum_received/bits_per_second"),
            "retransmits": number("/end/sum_sent/retransmits"),
            "segment_bytes": number("/start/tcp_mss_default"),
        }));
    }
    Err(format!("iperf3 from {} to {} failed", near.name(), far.name()).into())
}

const IPERF3_PORT: usize = 5300;
/// Between the beginnings of connections.
const APART: Duration = Duration::from_millis(200);
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);
