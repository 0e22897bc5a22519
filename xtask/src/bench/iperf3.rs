//! The peer: iperf3 between the two hosts of a site.

use std::io::Read;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::site::{CONGESTION_CONTROL, End};

/// What iperf3 says of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Report {
    /// Payload received a second, without what was omitted.
    pub(crate) goodput_bits_per_second: f64,
    /// Segments sent again.
    pub(crate) retransmits: f64,
    /// CPU of the sender, 1 being one CPU throughout.
    pub(crate) near_cpus: f64,
    /// CPU of the receiver.
    pub(crate) far_cpus: f64,
}

/// One stream from near to far: `omit_s` seconds that do not count, then `seconds` that do.
pub(crate) fn measure(
    near: &End<'_>,
    far: &End<'_>,
    omit_s: u64,
    seconds: u64,
) -> anyhow::Result<Report> {
    let quiet = |program: &mut std::process::Command| {
        program
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(Stdio::null());
    };
    let mut server = far.program("iperf3")?;
    quiet(server.args(["-s", "-1"]));
    let server = Ended(server.spawn().context("starting iperf3's server")?);
    let address = far.address().to_string();
    let (seconds, omit) = (seconds.to_string(), omit_s.to_string());
    let args = [
        "-c",
        &address,
        "-J",
        "-t",
        &seconds,
        "-O",
        &omit,
        "-C",
        CONGESTION_CONTROL,
    ];
    let mut answer = Value::Null;
    for _ in 0..CONNECT_TRIES {
        thread::sleep(CONNECT_PAUSE);
        let mut client = near.program("iperf3")?;
        quiet(client.args(args));
        let text = output_within(client.stdout(Stdio::piped()).spawn()?, TIME_LIMIT)?;
        answer = serde_json::from_slice(&text).context("iperf3 printed no JSON")?;
        if !is_refused(&answer) {
            break;
        }
    }
    let report = parse(&answer)?;
    server.end();
    Ok(report)
}

/// The server was not yet there.
fn is_refused(answer: &Value) -> bool {
    let error = answer.get("error").and_then(Value::as_str);
    error.is_some_and(|text| text.contains("refused"))
}

/// Reads `iperf3 -J`. CPU is given there in per cent of the transfer's time.
fn parse(answer: &Value) -> anyhow::Result<Report> {
    if let Some(error) = answer.get("error").and_then(Value::as_str) {
        bail!("iperf3: {error}");
    }
    let number = |pointer: &str| {
        let value = answer.pointer(pointer).and_then(Value::as_f64);
        value.with_context(|| format!("iperf3's report lacks {pointer}"))
    };
    Ok(Report {
        goodput_bits_per_second: number("/end/sum_received/bits_per_second")?,
        retransmits: number("/end/sum_sent/retransmits").unwrap_or(0.0),
        near_cpus: number("/end/cpu_utilization_percent/host_total")? / 100.0,
        far_cpus: number("/end/cpu_utilization_percent/remote_total")? / 100.0,
    })
}

/// What a child prints until it ends; a child that does not is killed.
fn output_within(child: Child, limit: Duration) -> anyhow::Result<Vec<u8>> {
    let mut child = Ended(child);
    let mut pipe = child.0.stdout.take().context("the child has no pipe")?;
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).map(|_| text)
    });
    let ended = child.wait_at_most(limit);
    drop(child);
    let text = reader
        .join()
        .ok()
        .context("the reading thread panicked")??;
    if !ended {
        bail!("iperf3 did not end within {} s", limit.as_secs());
    }
    Ok(text)
}

/// A child that is ended and waited for when it goes out of scope.
#[derive(Debug)]
struct Ended(Child);

impl Ended {
    /// Gives the child a moment to end by itself.
    fn end(mut self) {
        self.wait_at_most(Duration::from_millis(500));
    }

    /// True when the child ended.
    fn wait_at_most(&mut self, limit: Duration) -> bool {
        let steps = limit.as_millis().div_ceil(POLL.as_millis());
        (0..steps).any(|_| {
            thread::sleep(POLL);
            matches!(self.0.try_wait(), Ok(Some(_)))
        })
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail on a child that has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server needs a moment to listen: a second and a half in all.
const CONNECT_TRIES: u32 = 30;
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(10);
/// Several times the longest transfer here.
const TIME_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer() -> Value {
        json!({"start": {}, "end": {
            "sum_sent": {"bits_per_second": 9.0e9, "retransmits": 3},
            "sum_received": {"bits_per_second": 8.9e9, "bytes": 1},
            "cpu_utilization_percent": {"host_total": 50.0, "remote_total": 80.0},
        }})
    }

    #[test]
    fn the_received_rate_counts() {
        let report = parse(&answer()).unwrap();
        let expected = Report {
            goodput_bits_per_second: 8.9e9,
            retransmits: 3.0,
            near_cpus: 0.5,
            far_cpus: 0.8,
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn an_error_is_passed_on() {
        let refused = json!({"error": "unable to connect to server: Connection refused"});
        assert!(is_refused(&refused));
        assert!(parse(&refused).unwrap_err().to_string().contains("refused"));
        assert!(!is_refused(&answer()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut less = answer();
        less["end"]["sum_received"] = Value::Null;
        let error = parse(&less).unwrap_err().to_string();
        assert!(error.contains("sum_received"), "{error}");
    }

    #[test]
    fn a_child_that_hangs_is_killed() {
        let mut sleeper = std::process::Command::new("sleep");
        let child = sleeper.arg("60").stdout(Stdio::piped()).spawn().unwrap();
        assert!(output_within(child, Duration::from_millis(50)).is_err());
    }
}
