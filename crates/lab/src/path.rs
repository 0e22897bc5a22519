//! Path files: hosts and links as TOML, checked before anything is built.
//!
//! Every value carries its unit. Unknown keys, impossible values and wrong units are refused with
//! file, line and what was expected. The layout is described in `paths/README.md`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use toml::Spanned;
use units::{Bytes, Duration, Rate};

/// A checked path file: two hosts and the link between them.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFile {
    /// Where it was read from; `paths/NAME.toml` for a built-in path.
    pub file: PathBuf,
    /// Its text as read.
    pub text: String,
    /// One line on what the path is.
    pub title: String,
    /// The host that sends by default.
    pub near: HostSpec,
    /// The host at the other end.
    pub far: HostSpec,
    /// Name of the link.
    pub link: String,
    /// Near to far.
    pub forward: DirectionSpec,
    /// Far to near.
    pub backward: DirectionSpec,
    /// What a measurement on this path does unless told otherwise.
    pub transfer: TransferSpec,
}

/// A host of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Name in the file.
    pub name: String,
    /// MTU of its interface.
    pub mtu_bytes: u32,
    /// Congestion control of its sockets.
    pub congestion_control: String,
    /// Receive buffer: min, default, max.
    pub tcp_rmem_bytes: [u64; 3],
    /// Send buffer: min, default, max.
    pub tcp_wmem_bytes: [u64; 3],
    /// Further settings under net.ipv4 and net.ipv6, by name.
    pub sysctl: BTreeMap<String, String>,
}

/// One direction of the link.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    /// Rate over wire bytes; `None`: as fast as frames come.
    pub rate: Option<Rate>,
    /// One-way delay.
    pub delay: Duration,
    /// Queue before the rate, in wire bytes.
    pub queue: Bytes,
    /// The same in packets, where limited.
    pub queue_packets: Option<u32>,
    /// Share of frames lost at random.
    pub loss: f64,
    /// Seed of the random stages.
    pub seed: u64,
}

/// Defaults for measurements on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferSpec {
    /// Parallel connections.
    pub streams: u16,
    /// Time that data is sent.
    pub duration: Duration,
    /// Part of it at the start that is left out of the headline number.
    pub ramp: Duration,
}

/// Why a path file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The file cannot be read.
    #[error("cannot read the path file {file}: {problem}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        problem: String,
    },
    /// The text is not a path file.
    #[error("{file}, line {line}: {problem}")]
    Refused {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        problem: String,
    },
}

impl PathFile {
    /// Reads and checks a file of at most [`FILE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`PathError`] with file, line and what was expected.
    pub fn read(file: &Path) -> Result<Self, PathError> {
        let unreadable = |problem: String| PathError::Unreadable {
            file: file.display().to_string(),
            problem,
        };
        let metadata = std::fs::metadata(file).map_err(|e| unreadable(e.to_string()))?;
        if !metadata.is_file() {
            return Err(unreadable("it is not a regular file".to_owned()));
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(unreadable(format!(
                "it is larger than {}",
                Bytes::new(FILE_BYTES_MAX)
            )));
        }
        let text = std::fs::read_to_string(file).map_err(|e| unreadable(e.to_string()))?;
        Self::parse(file, &text)
    }

    /// Checks `text` as if read from `file`.
    ///
    /// # Errors
    /// [`PathError::Refused`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, PathError> {
        let refuse = |at: usize, problem: String| PathError::Refused {
            file: file.display().to_string(),
            line: line_of(text, at),
            problem,
        };
        let raw: RawFile = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            refuse(at, e.message().to_owned())
        })?;
        raw.check(file, text).map_err(|e| refuse(e.at, e.problem))
    }

    /// The direction's spec: `true` for near to far.
    pub const fn direction(&self, forward: bool) -> &DirectionSpec {
        if forward {
            &self.forward
        } else {
            &self.backward
        }
    }

    /// The round trip of a minimal frame through an otherwise empty path, without serialisation.
    pub fn rtt_configured(&self) -> Duration {
        self.forward.delay + self.backward.delay
    }

    /// Memory that the lab sets aside for frames in flight, both directions together.
    pub fn memory_bytes(&self) -> Bytes {
        self.forward.ring_bytes() + self.backward.ring_bytes()
    }

    /// The smaller MTU of the two hosts.
    pub fn mtu_bytes(&self) -> u32 {
        self.near.mtu_bytes.min(self.far.mtu_bytes)
    }
}

impl DirectionSpec {
    /// The queue in wire bytes when frames are as large as `mtu_bytes` allows, whichever limit binds.
    pub fn queue_bytes(&self, mtu_bytes: u32) -> Bytes {
        let frame = u64::from(frame_wire_bytes(mtu_bytes));
        self.queue_packets.map_or(self.queue, |n| {
            self.queue.min(Bytes::new(u64::from(n) * frame))
        })
    }

    /// Memory for the frames of this direction: half as much again as they take on the wire, for
    /// trains whose tail the queue refused, and room for bursts that wait to be decided on.
    pub fn ring_bytes(&self) -> Bytes {
        let flight = self.flight_bytes().as_u64();
        Bytes::new(flight.saturating_add(flight / 2)) + RING_EXTRA
    }

    /// Bytes that frames in flight may take: what the delay line holds at the rate, and the queue.
    /// Without a rate, what [`UNLIMITED_RATE`] would bring in the delay.
    pub fn flight_bytes(&self) -> Bytes {
        let slack = Duration::from_ms(20);
        let rate = self.rate.unwrap_or(UNLIMITED_RATE);
        rate.bytes_in(self.delay + slack)
            + if self.rate.is_some() {
                self.queue
            } else {
                Bytes::new(0)
            }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    title: String,
    hosts: BTreeMap<String, Spanned<RawHost>>,
    links: BTreeMap<String, Spanned<RawLink>>,
    #[serde(default)]
    transfer: RawTransfer,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHost {
    mtu: Spanned<u32>,
    congestion_control: Spanned<String>,
    tcp_rmem: Spanned<[Quantity<Bytes>; 3]>,
    tcp_wmem: Spanned<[Quantity<Bytes>; 3]>,
    #[serde(default)]
    sysctl: BTreeMap<String, Spanned<RawSysctl>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum RawSysctl {
    Number(i64),
    Text(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    between: Spanned<[String; 2]>,
    rate: Option<Spanned<Quantity<Rate>>>,
    delay: Option<Spanned<Quantity<Duration>>>,
    queue: Option<Spanned<Quantity<Bytes>>>,
    queue_packets: Option<Spanned<u32>>,
    loss: Option<Spanned<f64>>,
    seed: Option<u64>,
    #[serde(default)]
    forward: RawDirection,
    #[serde(default)]
    backward: RawDirection,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDirection {
    rate: Option<Spanned<Quantity<Rate>>>,
    delay: Option<Spanned<Quantity<Duration>>>,
    queue: Option<Spanned<Quantity<Bytes>>>,
    queue_packets: Option<Spanned<u32>>,
    loss: Option<Spanned<f64>>,
    seed: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTransfer {
    streams: Option<Spanned<u16>>,
    duration: Option<Spanned<Quantity<Duration>>>,
    ramp: Option<Spanned<Quantity<Duration>>>,
}

/// A value written as text with its unit.
#[derive(Clone, Copy, Debug)]
struct Quantity<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

struct Refusal {
    at: usize,
    problem: String,
}

fn refuse<T, S>(spanned: &Spanned<S>, problem: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        at: spanned.span().start,
        problem: problem.into(),
    })
}

impl RawFile {
    fn check(self, file: &Path, text: &str) -> Result<PathFile, Refusal> {
        let whole = |problem: &str| Refusal {
            at: 0,
            problem: problem.to_owned(),
        };
        if self.title.trim().is_empty() || self.title.len() > 200 {
            return Err(whole("title: expected one line of 1 to 200 bytes"));
        }
        if self.hosts.len() != 2 {
            return Err(whole(
                "hosts: expected exactly two, such as [hosts.near] and [hosts.far]",
            ));
        }
        if self.links.len() != 1 {
            return Err(whole("links: expected exactly one, such as [links.wan]"));
        }
        let Some((link_name, link)) = self.links.into_iter().next() else {
            return Err(whole("links: expected one"));
        };
        let between = &link.get_ref().between;
        let [near_name, far_name] = between.get_ref();
        let host = |name: &String| match self.hosts.get(name) {
            Some(host) => check_host(name, host.get_ref()),
            None => refuse(
                between,
                format!("between: there is no host '{name}' in this file"),
            ),
        };
        if near_name == far_name {
            return refuse(between, "between: expected two different hosts");
        }
        let (near, far) = (host(near_name)?, host(far_name)?);
        let forward = check_direction(link.get_ref(), &link.get_ref().forward, 0)?;
        let backward = check_direction(link.get_ref(), &link.get_ref().backward, 1)?;
        let smallest = frame_wire_bytes(near.mtu_bytes.min(far.mtu_bytes));
        for direction in [&forward, &backward] {
            let queue = direction.queue.as_u64();
            if queue > 0 && queue < u64::from(smallest) {
                return refuse(
                    &link,
                    format!(
                        "queue: a full frame takes {smallest} bytes on the wire; none would fit"
                    ),
                );
            }
        }
        let path = PathFile {
            file: file.to_owned(),
            text: text.to_owned(),
            title: self.title,
            near,
            far,
            link: link_name,
            forward,
            backward,
            transfer: check_transfer(&self.transfer)?,
        }
        .with_queue_defaults();
        let memory = path.memory_bytes();
        if memory > MEMORY_MAX {
            return refuse(
                &link,
                format!(
                    "rate, delay and queue need {memory} for frames in flight; at most {MEMORY_MAX} \
                     are allowed"
                ),
            );
        }
        Ok(path)
    }
}

impl PathFile {
    /// A queue that the file leaves open is one bandwidth-delay product of the round trip.
    fn with_queue_defaults(mut self) -> Self {
        let rtt = self.rtt_configured();
        for direction in [&mut self.forward, &mut self.backward] {
            if let (Some(rate), true) = (direction.rate, direction.queue.as_u64() == 0) {
                direction.queue = rate.bytes_in(rtt).max(QUEUE_MIN);
            }
        }
        self
    }
}

fn check_host(name: &str, raw: &RawHost) -> Result<HostSpec, Refusal> {
    let mtu = *raw.mtu.get_ref();
    if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
        return refuse(
            &raw.mtu,
            format!("mtu = {mtu}: expected {MTU_MIN} to {MTU_MAX} bytes"),
        );
    }
    let algorithm = raw.congestion_control.get_ref();
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if algorithm.is_empty() || algorithm.len() > 15 || !algorithm.chars().all(legal) {
        return refuse(
            &raw.congestion_control,
            format!(
                "congestion_control = '{algorithm}': expected a name such as cubic, reno or bbr"
            ),
        );
    }
    let mut sysctl = BTreeMap::new();
    for (key, value) in &raw.sysctl {
        check_sysctl_name(key).or_else(|problem| refuse(value, problem))?;
        let text = match value.get_ref() {
            RawSysctl::Number(n) => n.to_string(),
            RawSysctl::Text(t) if t.len() <= 200 && !t.contains(['\n', '\0']) => t.clone(),
            RawSysctl::Text(_) => return refuse(value, format!("{key}: expected one short line")),
        };
        sysctl.insert(key.clone(), text);
    }
    Ok(HostSpec {
        name: name.to_owned(),
        mtu_bytes: mtu,
        congestion_control: algorithm.clone(),
        tcp_rmem_bytes: check_triplet("tcp_rmem", &raw.tcp_rmem)?,
        tcp_wmem_bytes: check_triplet("tcp_wmem", &raw.tcp_wmem)?,
        sysctl,
    })
}

/// Only settings that belong to the host's own namespace: a path file must not reach the machine.
fn check_sysctl_name(key: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c);
    let in_namespace = key.starts_with("net.ipv4.") || key.starts_with("net.ipv6.");
    if in_namespace && key.chars().all(legal) && !key.contains("..") && key.len() <= 100 {
        Ok(())
    } else {
        Err(format!(
            "sysctl '{key}': expected a name under net.ipv4 or net.ipv6"
        ))
    }
}

fn check_triplet(name: &str, raw: &Spanned<[Quantity<Bytes>; 3]>) -> Result<[u64; 3], Refusal> {
    let values = raw.get_ref().each_ref().map(|q| q.0.as_u64());
    let [min, default, max] = values;
    if min > default || default > max {
        return refuse(raw, format!("{name}: expected min <= default <= max"));
    }
    if min < BUFFER_MIN || max > BUFFER_MAX {
        return refuse(
            raw,
            format!(
                "{name}: expected values from {} to {}",
                Bytes::new(BUFFER_MIN),
                Bytes::new(BUFFER_MAX)
            ),
        );
    }
    Ok(values)
}

fn check_direction(
    link: &RawLink,
    own: &RawDirection,
    number: u64,
) -> Result<DirectionSpec, Refusal> {
    let rate = own.rate.as_ref().or(link.rate.as_ref());
    if let Some(rate) = rate {
        let value = rate.get_ref().0;
        if !(RATE_MIN..=RATE_MAX).contains(&value) {
            return refuse(
                rate,
                format!("rate = {value}: expected {RATE_MIN} to {RATE_MAX}"),
            );
        }
    }
    let delay = own.delay.as_ref().or(link.delay.as_ref());
    let delay_value = delay.map_or(Duration::ZERO, |d| d.get_ref().0);
    if let Some(delay) = delay
        && delay_value > DELAY_MAX
    {
        return refuse(
            delay,
            format!("delay = {delay_value}: expected at most {DELAY_MAX}"),
        );
    }
    let queue = own.queue.as_ref().or(link.queue.as_ref());
    let queue_packets = own.queue_packets.as_ref().or(link.queue_packets.as_ref());
    if let Some(queue) = queue
        && rate.is_none()
    {
        return refuse(queue, "queue: a queue needs a rate that empties it");
    }
    if let Some(packets) = queue_packets {
        if rate.is_none() {
            return refuse(
                packets,
                "queue_packets: a queue needs a rate that empties it",
            );
        }
        if *packets.get_ref() == 0 {
            return refuse(packets, "queue_packets: expected at least 1");
        }
    }
    let loss = own.loss.as_ref().or(link.loss.as_ref());
    if let Some(loss) = loss {
        let value = *loss.get_ref();
        if !(0.0..=1.0).contains(&value) {
            return refuse(
                loss,
                format!("loss = {value}: expected a share from 0 to 1"),
            );
        }
    }
    let seed = own
        .seed
        .or_else(|| link.seed.map(|s| s.wrapping_add(number)))
        .unwrap_or(number + 1);
    Ok(DirectionSpec {
        rate: rate.map(|r| r.get_ref().0),
        delay: delay_value,
        queue: queue.map_or(Bytes::new(0), |q| q.get_ref().0),
        queue_packets: queue_packets.map(|p| *p.get_ref()),
        loss: loss.map_or(0.0, |l| *l.get_ref()),
        seed,
    })
}

fn check_transfer(raw: &RawTransfer) -> Result<TransferSpec, Refusal> {
    let streams = raw.streams.as_ref().map_or(1, |s| *s.get_ref());
    if let Some(spanned) = &raw.streams
        && !(1..=128).contains(&streams)
    {
        return refuse(spanned, format!("streams = {streams}: expected 1 to 128"));
    }
    let duration = raw
        .duration
        .as_ref()
        .map_or(Duration::from_s(10), |d| d.get_ref().0);
    if let Some(spanned) = &raw.duration
        && !(Duration::from_ms(500)..=Duration::from_s(3600)).contains(&duration)
    {
        return refuse(spanned, "duration: expected 500ms to 1h");
    }
    let ramp = raw.ramp.as_ref().map_or_else(
        || Duration::from_ns(duration.as_ns() / 5),
        |r| r.get_ref().0,
    );
    if let Some(spanned) = &raw.ramp
        && ramp >= duration
    {
        return refuse(
            spanned,
            format!("ramp: expected less than the duration, {duration}"),
        );
    }
    Ok(TransferSpec {
        streams,
        duration,
        ramp,
    })
}

/// A full frame of that MTU with its Ethernet header, on the wire.
fn frame_wire_bytes(mtu_bytes: u32) -> u32 {
    wire::train::wire_bytes(mtu_bytes + 14)
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&b| b == b'\n').count()
}

/// A path file is read by people; a megabyte is none.
pub const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Rate that sizes the memory of a path without a rate of its own.
pub const UNLIMITED_RATE: Rate = Rate::from_bits_per_second(10_000_000_000);
/// Memory for frames in flight that a path may ask for, both directions together.
pub const MEMORY_MAX: Bytes = Bytes::new(4 << 30);
/// RFC 791: every host must take 576 bytes; below 1280 IPv6 is gone, below 576 little works.
const MTU_MIN: u32 = 576;
/// Largest MTU of a veth device.
const MTU_MAX: u32 = 65_535;
/// Smallest socket buffer that Linux keeps to (SOCK_MIN_SNDBUF is 2 * 2048 + overhead).
const BUFFER_MIN: u64 = 4_096;
/// tcp_rmem and tcp_wmem are C ints.
const BUFFER_MAX: u64 = 0x7fff_ffff;
/// Room beyond a path's own bytes: bursts that wait to be decided on, and the ring's seam.
const RING_EXTRA: Bytes = Bytes::new(4 << 20);
const RATE_MIN: Rate = Rate::from_bits_per_second(8_000);
const RATE_MAX: Rate = Rate::from_bits_per_second(1_000_000_000_000);
/// Above any terrestrial or geostationary path by far; bounds memory with the rate.
const DELAY_MAX: Duration = Duration::from_s(10);
/// Default queue on short paths, where one bandwidth-delay product is next to nothing.
const QUEUE_MIN: Bytes = Bytes::new(128 * 1024);

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
title = "a path"
[hosts.near]
mtu = 1500
congestion_control = "cubic"
tcp_rmem = ["4KiB", "64KiB", "64KiB"]
tcp_wmem = ["4KiB", "64KiB", "64KiB"]
[hosts.far]
mtu = 9000
congestion_control = "reno"
tcp_rmem = ["4KiB", "64KiB", "64KiB"]
tcp_wmem = ["4KiB", "64KiB", "64KiB"]
sysctl = { "net.ipv4.tcp_timestamps" = 0 }
[links.wan]
between = ["near", "far"]
rate = "1Gb/s"
delay = "42.5ms"
backward = { loss = 0.25 }
"#;

    fn parse(text: &str) -> Result<PathFile, PathError> {
        PathFile::parse(Path::new("x.toml"), text)
    }

    #[test]
    fn a_good_file_means_what_it_says() {
        let path = parse(GOOD).unwrap();
        assert_eq!(path.near.mtu_bytes, 1500);
        assert_eq!(path.far.sysctl["net.ipv4.tcp_timestamps"], "0");
        assert_eq!(path.rtt_configured(), Duration::from_ms(85));
        assert_eq!((path.forward.loss, path.backward.loss), (0.0, 0.25));
        assert_eq!(
            path.forward.queue,
            Bytes::new(10_625_000),
            "one round trip's product"
        );
        assert_ne!(path.forward.seed, path.backward.seed);
        assert_eq!(path.transfer.streams, 1);
    }

    #[test]
    fn mistakes_are_refused_with_line_and_expectation() {
        for (from, to, line, says) in [
            (
                "mtu = 1500",
                "mtu = 1500\nspeed = 1",
                5,
                "unknown field `speed`",
            ),
            ("mtu = 1500", "mtu = 575", 4, "expected 576 to 65535"),
            (
                "rate = \"1Gb/s\"",
                "rate = \"1\"",
                16,
                "has no unit; expected a rate",
            ),
            ("rate = \"1Gb/s\"", "rate = 1000", 16, "expected a string"),
            (
                "delay = \"42.5ms\"",
                "delay = \"42.5 furlongs\"",
                17,
                "unknown unit 'furlongs'",
            ),
            (
                "delay = \"42.5ms\"",
                "delay = \"11s\"",
                17,
                "expected at most 10 s",
            ),
            (
                "loss = 0.25",
                "loss = 1.5",
                18,
                "expected a share from 0 to 1",
            ),
            (
                "[\"near\", \"far\"]",
                "[\"near\", \"away\"]",
                15,
                "no host 'away'",
            ),
            (
                "[\"near\", \"far\"]",
                "[\"near\", \"near\"]",
                15,
                "two different hosts",
            ),
            ("\"reno\"", "\"re no\"", 10, "expected a name such as cubic"),
            (
                "net.ipv4.tcp_timestamps",
                "kernel.panic",
                13,
                "under net.ipv4 or net.ipv6",
            ),
            (
                "net.ipv4.tcp_timestamps",
                "net.ipv4...x",
                13,
                "under net.ipv4 or net.ipv6",
            ),
            (
                "tcp_rmem = [\"4KiB\", \"64KiB\", \"64KiB\"]\ntcp_wmem",
                "tcp_rmem = [\"4KiB\", \"128KiB\", \"64KiB\"]\ntcp_wmem",
                6,
                "min <= default <= max",
            ),
            (
                "rate = \"1Gb/s\"\ndelay = \"42.5ms\"",
                "rate = \"1Tb/s\"\ndelay = \"10s\"",
                14,
                "for frames in flight",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            match parse(&text) {
                Err(PathError::Refused {
                    line: at, problem, ..
                }) => {
                    assert!(problem.contains(says), "{problem} lacks {says}");
                    assert_eq!(at, line, "{problem}");
                }
                other => panic!("{to}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_missing_file_and_a_directory_are_unreadable() {
        for file in ["/nonexistent/x.toml", "/"] {
            let error = PathFile::read(Path::new(file)).unwrap_err();
            assert!(matches!(error, PathError::Unreadable { .. }), "{error}");
        }
    }
}
