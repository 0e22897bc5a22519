//! The peer: iperf3 between the two hosts of a site.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::children::{Ended, output_within};
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
    let (seconds, omit) = (seconds.to_string(), omit_s.to_string());
    let args = ["-t", &seconds, "-O", &omit, "-C", CONGESTION_CONTROL];
    parse(&ask(near, far, &args)?)
}

/// What `iperf3 -J` at the near end says of a test with these arguments; the server ends with it.
pub(crate) fn ask(near: &End<'_>, far: &End<'_>, args: &[&str]) -> anyhow::Result<Value> {
    let mut server = far.program("iperf3")?;
    let server = server.args(["-s", "-1"]).stdin(Stdio::null());
    let server = server.stderr(Stdio::null()).stdout(Stdio::null());
    let server = Ended::of(server.spawn().context("starting iperf3's server")?);
    let answer = ask_at(near, far, args);
    if answer.is_ok() {
        server.end();
    }
    answer
}

/// The same of a server that is started already.
pub(crate) fn ask_at(near: &End<'_>, far: &End<'_>, args: &[&str]) -> anyhow::Result<Value> {
    let address = far.address().to_string();
    let mut answer = Value::Null;
    for _ in 0..CONNECT_TRIES {
        thread::sleep(CONNECT_PAUSE);
        let mut client = near.program("iperf3")?;
        client.stdin(Stdio::null()).stderr(Stdio::null());
        client.args(["-c", &address, "-J"]).args(args);
        let text = output_within(client.stdout(Stdio::piped()).spawn()?, TIME_LIMIT)?;
        answer = serde_json::from_slice(&text).context("iperf3 printed no JSON")?;
        if !is_refused(&answer) {
            break;
        }
    }
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => bail!("iperf3: {error}"),
        None => Ok(answer),
    }
}

/// A number in a report.
pub(crate) fn number(answer: &Value, pointer: &str) -> anyhow::Result<f64> {
    let value = answer.pointer(pointer).and_then(Value::as_f64);
    value.with_context(|| format!("iperf3's report lacks {pointer}"))
}

/// The server was not yet there.
fn is_refused(answer: &Value) -> bool {
    let error = answer.get("error").and_then(Value::as_str);
    error.is_some_and(|text| text.contains("refused"))
}

/// Reads `iperf3 -J`. CPU is given there in per cent of the transfer's time.
fn parse(answer: &Value) -> anyhow::Result<Report> {
    let number = |pointer: &str| number(answer, pointer);
    Ok(Report {
        goodput_bits_per_second: number("/end/sum_received/bits_per_second")?,
        retransmits: number("/end/sum_sent/retransmits").unwrap_or(0.0),
        near_cpus: number("/end/cpu_utilization_percent/host_total")? / 100.0,
        far_cpus: number("/end/cpu_utilization_percent/remote_total")? / 100.0,
    })
}

/// The server needs a moment to listen: a second and a half in all.
const CONNECT_TRIES: u32 = 30;
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
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
    fn a_server_that_is_not_there_yet_is_told_from_one_that_is() {
        let refused = json!({"error": "unable to connect to server: Connection refused"});
        assert!(is_refused(&refused));
        assert!(!is_refused(&answer()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut less = answer();
        less["end"]["sum_received"] = Value::Null;
        let error = parse(&less).unwrap_err().to_string();
        assert!(error.contains("sum_received"), "{error}");
    }
}
