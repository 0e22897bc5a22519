//! Other tools measuring the same lab path in the same run.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration as StdDuration;

use lab::{Host, Lab};
use measure::{Config, Direction, MeasureError, Stop};
use report::model::{Handshake, Observer};
use sys::child::Ended;
use sys::signal::Interrupt;

use fault::{Cause, Failure};
use sys::threads;

/// A program that can measure the same lab path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// iperf3, inside the lab.
    Iperf3,
    /// tshark at both ends of one more connection: what becomes of the options of its SYNs.
    Tshark,
}

type Said<T> = Result<T, Cause>;

/// Words for the user in place of what went wrong or is missing.
trait OrSay<T> {
    fn or_say(self, words: &str) -> Said<T>;
}

impl<T, E> OrSay<T> for Result<T, E> {
    fn or_say(self, words: &str) -> Said<T> {
        self.map_err(|_| words.into())
    }
}

impl<T> OrSay<T> for Option<T> {
    fn or_say(self, words: &str) -> Said<T> {
        self.ok_or_else(|| words.into())
    }
}

/// Measures with iperf3 what `config` measured: same streams, time, ramp and congestion control; with
/// writes of `length` bytes, if that is given.
pub fn iperf3(
    lab: &Lab,
    config: &Config,
    length: Option<u64>,
    stop: &Stop,
) -> Result<Observer, Failure> {
    // iperf3 adds the omitted time to -t; ours is part of the duration.
    let counted = seconds(config.duration - config.ramp);
    let far = lab.far().address();
    let args = arguments(far, config, (counted, seconds(config.ramp)), length);
    run(lab, lab.near(), &args, stop).map_err(Failure::here)
}

/// One point of a sweep with iperf3, sent by `from`: a second of writes of the same length, and what
/// the ramp takes before it where that is more than a fiftieth of the second. Lengths above
/// [`LENGTH_MAX`] it refuses.
pub fn iperf3_point(
    lab: &Lab,
    from: &Host,
    config: &Config,
    rtt: units::Duration,
    stop: &Stop,
) -> Result<Observer, Failure> {
    let omitted = match rtt.saturating_mul(12) > units::Duration::from_ms(20) {
        true => seconds(config.ramp),
        false => 0,
    };
    let length = u64::from(config.block_bytes);
    let far = lab.far().address();
    let args = arguments(far, config, (POINT_SECONDS, omitted), Some(length));
    run(lab, from, &args, stop).map_err(Failure::here)
}

/// One second of an iperf3 that shares its CPU with its peer came out 10 % apart.
const POINT_SECONDS: u64 = 2;

/// iperf3 has whole ones only.
const fn seconds(time: units::Duration) -> u64 {
    time.as_ns().div_ceil(1_000_000_000)
}

/// iperf3's for the streams, congestion control and direction of `config`, with seconds that count and
/// seconds before them that do not.
fn arguments(
    far: Ipv4Addr,
    config: &Config,
    (counted, omitted): (u64, u64),
    length: Option<u64>,
) -> Vec<String> {
    let mut args = vec!["-c".to_owned(), far.to_string(), "-J".to_owned()];
    let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
    option("-t", counted.to_string());
    if omitted > 0 {
        option("-O", omitted.to_string());
    }
    option("-P", config.streams.to_string());
    // iperf3 sets both buffers at both ends, as --window does.
    if let Some(buffer) = config
        .send_buffer
        .filter(|_| config.send_buffer == config.receive_buffer)
    {
        option("-w", buffer.as_u64().to_string());
    }
    if let Some(congestion) = &config.congestion {
        option("-C", congestion.clone());
    }
    // SO_MAX_PACING_RATE of each stream, as ours.
    if let Some(pacing) = config.max_pacing {
        option("--fq-rate", pacing.as_bits_per_second().to_string());
    }
    if let Some(rate) = config.rate {
        option("-b", rate.as_bits_per_second().to_string());
    }
    if let Some(length) = length {
        option("-l", length.to_string());
    }
    if config.direction == Direction::Down {
        args.push("-R".to_owned());
    }
    args
}

/// Has tshark watch both ends of a few connections of the lab, and reads off what became of the window
/// scale option in their SYNs and in the answers. Nothing but the handshake is sent.
pub fn tshark(lab: &Lab, stop: &Stop) -> Result<Handshake, Failure> {
    watch(lab, stop).map_err(Failure::here)
}

fn watch(lab: &Lab, stop: &Stop) -> Said<Handshake> {
    let missing = "tshark cannot be started; install it (Debian: apt-get install tshark) or leave \
                   --observer out";
    let version = lab
        .near()
        .program("tshark")?
        .arg("--version")
        .output()
        .or_say(missing)?;
    let address = SocketAddr::from((lab.far().address(), HANDSHAKE_PORT));
    let filter = format!("port {HANDSHAKE_PORT}");
    // SYNs only, told apart by their ACK flag; a field that a segment lacks is empty. The first of
    // each at either end counts: all of one path's handshakes are treated alike.
    let args = [
        "-i",
        "eth0",
        "-n",
        "-Q",
        "-l",
        "-a",
        "duration:5",
        "-f",
        &filter,
        "-Y",
        "tcp.flags.syn == 1",
        "-T",
        "fields",
        "-E",
        "separator=,",
        "-e",
        "tcp.flags.ack",
        "-e",
        "tcp.options.wscale.shift",
    ];
    let (near, far) = thread::scope(|scope| {
        let ends = [lab.near(), lab.far()].map(|host| {
            threads::scoped(scope, "gp-tshark", move || -> Said<_> {
                let mut program = host.program("tshark")?;
                output_until(program.args(args), stop)?.or_say("tshark failed")
            })
        });
        let connected = connect_slowly(lab, address, stop);
        let [near, far] = ends.map(|end| {
            end?.join()
                .map_err(|_| "the reader of tshark's output panicked")?
        });
        connected?;
        Said::Ok((near?, far?))
    })?;
    let option = |text: &[u8], answer: bool| shift_seen(&String::from_utf8_lossy(text), answer);
    let tool = String::from_utf8_lossy(&version.stdout);
    let tool = tool.lines().next().unwrap_or("TShark");
    let tool = tool.replace("(Wireshark) ", "");
    Ok(Handshake {
        tool: tool
            .split(" (")
            .next()
            .unwrap_or("TShark")
            .trim_end_matches('.')
            .to_owned(),
        command: format!("tshark {}", args.join(" ")),
        syn_sent_with_window_scale: option(&near, false),
        syn_arrived_with_window_scale: option(&far, false),
        answer_sent_with_window_scale: option(&far, true),
        answer_arrived_with_window_scale: option(&near, true),
    })
}

/// Whether the SYN (or its answer) in tshark's lines has a window scale; `None`: it is not there.
fn shift_seen(text: &str, answer: bool) -> Option<bool> {
    text.lines().find_map(|line| {
        let (ack, shift) = line.split_once(',')?;
        let is_answer = matches!(ack.trim(), "1" | "True");
        (is_answer == answer).then(|| !shift.trim().is_empty())
    })
}

/// Opens one connection after the other until the captures, which need a moment to begin, have had
/// their chance to see one.
fn connect_slowly(lab: &Lab, address: SocketAddr, stop: &Stop) -> Said<()> {
    let listener = lab.far().run(|| TcpListener::bind(address))??;
    lab.near().run(|| -> Said<()> {
        for _ in 0..HANDSHAKES {
            thread::sleep(HANDSHAKE_PAUSE);
            if stop.is_stopped() {
                return Err(MeasureError::Interrupted.into());
            }
            drop(TcpStream::connect_timeout(&address, HANDSHAKE_WAIT)?);
            drop(listener.accept());
        }
        Ok(())
    })?
}

fn run(lab: &Lab, from: &Host, args: &[String], stop: &Stop) -> Said<Observer> {
    let missing = "iperf3 cannot be started; install it (Debian: apt-get install iperf3) or leave \
                   --observer out";
    let version = from
        .program("iperf3")?
        .arg("--version")
        .output()
        .or_say(missing)?;
    let mut server = lab.far().program("iperf3")?;
    server.args(["-s", "-1"]).stdout(Stdio::null());
    let _server = Ended::start(&mut server).or_say(missing)?;
    let output = (0..CONNECT_TRIES)
        .find_map(|_| {
            thread::sleep(CONNECT_PAUSE);
            let mut client = from.program("iperf3").ok()?;
            output_until(client.args(args), stop).transpose()
        })
        .or_say("iperf3 in the lab did not reach its server")??;
    let report: serde_json::Value =
        serde_json::from_slice(&output).or_say("iperf3 printed no JSON")?;
    let rate = report
        .pointer("/end/sum_received/bits_per_second")
        .and_then(serde_json::Value::as_f64)
        .or_say("iperf3 reported no received rate")?;
    Ok(Observer {
        tool: tool_in(&version.stdout),
        command: format!("iperf3 {}", args.join(" ")),
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates, and a rate is not negative"
        )]
        goodput_bits_per_second: rate as u64,
        cpus: cpus_of(&report),
    })
}

/// One stream of iperf3 beside something else on the same path, for as long as that takes.
#[derive(Debug)]
pub struct Beside {
    client: Ended,
    reader: thread::JoinHandle<std::io::Result<Vec<u8>>>,
    _server: Ended,
    tool: String,
    command: String,
}

impl Beside {
    /// Begins it.
    pub fn begin(from: &Host, to: &Host) -> Result<Self, Cause> {
        let missing = "iperf3 cannot be started; install it (Debian: apt-get install iperf3) or leave --observer out";
        let version = from
            .program("iperf3")?
            .arg("--version")
            .output()
            .or_say(missing)?;
        let mut server = to.program("iperf3")?;
        server.args(["-s", "-1"]).stdout(Stdio::null());
        let server = Ended::start(&mut server).or_say(missing)?;
        let far = to.address().to_string();
        // A host's own default may be another than the path file's.
        let congestion = from.congestion_control();
        let args = ["-c", &far, "-J", "-t", BESIDE_SECONDS, "-C", congestion];
        for _ in 0..CONNECT_TRIES {
            thread::sleep(CONNECT_PAUSE);
            let mut client = from.program("iperf3")?;
            let mut client = Ended::start(client.args(args).stdout(Stdio::piped()))?;
            let mut pipe = client.stdout().or_say("the program has no output")?;
            let reader = threads::spawn("gp-reads", move || {
                let mut text = Vec::new();
                let read = (&mut pipe).take(OUTPUT_BYTES_MAX).read_to_end(&mut text);
                read.map(|_| text)
            })?;
            thread::sleep(CONNECT_PAUSE);
            if client.try_wait()?.is_none() {
                return Ok(Self {
                    client,
                    reader,
                    _server: server,
                    tool: tool_in(&version.stdout),
                    command: format!("iperf3 {}", args.join(" ")),
                });
            }
        }
        Err("iperf3 in the lab did not reach its server".into())
    }

    /// Ends it; what its stream had after its first seconds.
    pub fn end(self) -> Result<Observer, Cause> {
        self.client.handle()?.interrupt(Interrupt::Int);
        let text = self.reader.join();
        let text = text.map_err(|_| "the reader of iperf3's output panicked")??;
        let report: serde_json::Value =
            serde_json::from_slice(&text).or_say("iperf3 printed no JSON")?;
        let rate = rate_of_intervals(&report).or_say("iperf3 ran for too short a time")?;
        Ok(Observer {
            tool: self.tool,
            command: self.command,
            goodput_bits_per_second: rate,
            cpus: None,
        })
    }
}

/// Its intervals' mean without the first seconds, in which a stream finds its rate.
fn rate_of_intervals(report: &serde_json::Value) -> Option<u64> {
    let all = report.pointer("/intervals")?.as_array()?;
    let number = |interval: &serde_json::Value, key: &str| interval["sum"][key].as_f64();
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for interval in all {
        if number(interval, "start")? >= BESIDE_RAMP {
            bytes += number(interval, "bytes")?;
            seconds += number(interval, "seconds")?;
        }
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and a rate is not negative"
    )]
    let rate = (bytes * 8.0 / seconds) as u64;
    (seconds >= 1.0).then_some(rate)
}

/// `iperf 3.12` of what it says of itself.
fn tool_in(version: &[u8]) -> String {
    let text = String::from_utf8_lossy(version);
    let tool = text.split(" (").next().unwrap_or("iperf3");
    tool.trim().to_owned()
}

/// CPUs that both ends used, by iperf3's own account.
fn cpus_of(report: &serde_json::Value) -> Option<f64> {
    let of = |end: &str| {
        let percent = report.pointer(&format!("/end/cpu_utilization_percent/{end}"))?;
        Some(percent.as_f64()? / 100.0)
    };
    Some(of("host_total")? + of("remote_total")?)
}

/// Runs a program to its end, or ends it when `stop` is raised. `None`: it failed, try again.
fn output_until(program: &mut Command, stop: &Stop) -> Said<Option<Vec<u8>>> {
    let mut child = Ended::start(program.stdout(Stdio::piped()))?;
    let mut pipe = child.stdout().or_say("the program has no output")?;
    // Read beside waiting, or a long report would fill the pipe and the program never end.
    let reader = threads::spawn("gp-reads", move || {
        let mut text = Vec::new();
        let read = (&mut pipe).take(OUTPUT_BYTES_MAX).read_to_end(&mut text);
        read.map(|_| text)
    })?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.is_stopped() {
            return Err(MeasureError::Interrupted.into());
        }
        thread::sleep(POLL_PAUSE);
    };
    let text = reader
        .join()
        .map_err(|_| "the reader of iperf3's output panicked")??;
    Ok(status.success().then_some(text))
}

/// Beside measure's 5210 and iperf3's 5201.
const HANDSHAKE_PORT: u16 = 5209;
/// tshark takes a second or two until it captures, so that the first of these go unseen.
const HANDSHAKES: u32 = 10;
const HANDSHAKE_PAUSE: StdDuration = StdDuration::from_millis(500);
const HANDSHAKE_WAIT: StdDuration = StdDuration::from_secs(2);
const POLL_PAUSE: StdDuration = StdDuration::from_millis(50);
/// Longer than what it is beside: it is interrupted.
const BESIDE_SECONDS: &str = "3600";
/// Seconds of one stream's ramp.
const BESIDE_RAMP: f64 = 1.9;
/// A report of 128 streams over an hour is some 60 MB.
const OUTPUT_BYTES_MAX: u64 = 256 << 20;
/// iperf3 refuses longer writes (its MAX_BLOCKSIZE).
pub const LENGTH_MAX: u64 = 1 << 20;
/// The server needs a moment to listen; a client that comes too early is refused at once.
const CONNECT_TRIES: u32 = 20;
const CONNECT_PAUSE: StdDuration = StdDuration::from_millis(250);

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::*;

    #[test]
    fn iperf3_is_told_each_option_once() {
        let config = Config {
            streams: 2,
            congestion: Some("reno".to_owned()),
            max_pacing: Some(Rate::from_bits_per_second(40_000_000)),
            rate: Some(Rate::from_bits_per_second(50_000_000)),
            direction: Direction::Down,
            ..Config::default()
        };
        let args = arguments(Ipv4Addr::new(192, 0, 2, 1), &config, (8, 2), Some(4_096));
        assert_eq!(
            args.join(" "),
            "-c 192.0.2.1 -J -t 8 -O 2 -P 2 -C reno --fq-rate 40000000 -b 50000000 -l 4096 -R"
        );
    }

    #[test]
    fn a_stream_beside_counts_from_its_third_second_on() {
        let of = |starts: &[f64]| {
            let all: Vec<_> = starts
                .iter()
                .map(|start| serde_json::json!({"sum": {"start": start, "seconds": 1.0, "bytes": start * 1e6}}))
                .collect();
            rate_of_intervals(&serde_json::json!({ "intervals": all }))
        };
        assert_eq!(of(&[0.0, 1.0, 2.0, 4.0]), Some(24_000_000));
        assert_eq!(of(&[0.0, 1.0]), None);
        assert_eq!(rate_of_intervals(&serde_json::json!({"error": "x"})), None);
    }

    #[test]
    fn a_syn_and_its_answer_are_read_by_their_ack_flag() {
        // TShark 4.0 prints flags as 0 and 1, later ones as False and True.
        for text in ["0,7\n1,\n0,\n1,9\n", "False,7\nTrue,\n"] {
            assert_eq!(shift_seen(text, false), Some(true));
            assert_eq!(shift_seen(text, true), Some(false));
        }
        assert_eq!(shift_seen("0,7\n", true), None);
        assert_eq!(shift_seen("0,0\n", false), Some(true));
        assert_eq!(shift_seen("Capturing on 'eth0'\n", false), None);
    }
}
