//! Other tools measuring the same lab path in the same run.

use std::io::Read;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration as StdDuration;

use anyhow::Context as _;
use lab::Lab;
use measure::{Config, Direction};
use report::model::Observer;

use crate::failure::Failure;

/// Measures with iperf3 what `config` measured: same streams, time, ramp and congestion control.
pub(crate) fn iperf3(lab: &Lab, config: &Config) -> Result<Observer, Failure> {
    let seconds = |d: units::Duration| d.as_ns().div_ceil(1_000_000_000).to_string();
    let ramp = seconds(config.ramp);
    // iperf3 adds the omitted time to -t; ours is part of the duration.
    let counted = seconds(config.duration - config.ramp);
    let far = lab.far().address().to_string();
    let streams = config.streams.to_string();
    let mut args = vec![
        "-c", &far, "-J", "-t", &counted, "-O", &ramp, "-P", &streams,
    ];
    if let Some(congestion) = &config.congestion {
        args.extend(["-C", congestion]);
    }
    if config.direction == Direction::Down {
        args.push("-R");
    }
    run(lab, &args).map_err(Failure::here)
}

fn run(lab: &Lab, args: &[&str]) -> anyhow::Result<Observer> {
    let missing = "iperf3 cannot be started; install it (Debian: apt-get install iperf3) or leave \
                   --observer out";
    let version = lab
        .near()
        .program("iperf3")?
        .arg("--version")
        .output()
        .context(missing)?;
    let mut server = Ended(
        lab.far()
            .program("iperf3")?
            .args(["-s", "-1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context(missing)?,
    );
    let output = (0..CONNECT_TRIES)
        .find_map(|_| {
            thread::sleep(CONNECT_PAUSE);
            let mut client = lab.near().program("iperf3").ok()?;
            let output = client.args(args).stdin(Stdio::null()).output().ok()?;
            output.status.success().then_some(output.stdout)
        })
        .context("iperf3 in the lab did not reach its server")?;
    server.finish();
    let report: serde_json::Value =
        serde_json::from_slice(&output).context("iperf3 printed no JSON")?;
    let rate = report
        .pointer("/end/sum_received/bits_per_second")
        .and_then(serde_json::Value::as_f64)
        .context("iperf3 reported no received rate")?;
    let tool = String::from_utf8_lossy(&version.stdout);
    Ok(Observer {
        tool: tool
            .split(" (")
            .next()
            .unwrap_or("iperf3")
            .trim()
            .to_owned(),
        command: format!("iperf3 {}", args.join(" ")),
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates, and a rate is not negative"
        )]
        goodput_bits_per_second: rate as u64,
    })
}

/// A child that is ended when it goes out of scope.
struct Ended(Child);

impl Ended {
    /// Gives the child a moment to end by itself.
    fn finish(&mut self) {
        for _ in 0..50 {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(StdDuration::from_millis(10));
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if let Some(mut pipe) = self.0.stdout.take() {
            let _ = pipe.read(&mut [0]);
        }
    }
}

/// The server needs a moment to listen; a client that comes too early is refused at once.
const CONNECT_TRIES: u32 = 20;
const CONNECT_PAUSE: StdDuration = StdDuration::from_millis(250);
