//! What to measure, and what of it travels to the far end.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{Bytes, Duration, Rate};

use crate::approach::Dscp;
use crate::datagram::KEYED_BYTES;
use crate::spend::WriteCosts;
use crate::tls::Cipher;
use crate::transport::{Sending, Transport};
use crate::{MeasureError, STREAMS_MAX};

/// Which way the payload flows, seen from the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The client sends.
    #[default]
    Up,
    /// The client receives.
    Down,
}

/// One transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which way the payload flows.
    pub direction: Direction,
    /// Parallel connections, 1..=128.
    pub streams: u16,
    /// How long the sender sends, 10 ms to 24 h; the far end may allow less.
    pub duration: Duration,
    /// Time at the start that the headline goodput leaves out; shorter than `duration`.
    pub ramp: Duration,
    /// Congestion control of the sender; its host's default if none is given. QUIC brings its own:
    /// cubic (its default), newreno and bbr.
    pub congestion: Option<String>,
    /// What the payload travels by.
    pub transport: Transport,
    /// Bytes of one write and one read, 1 B to 16 MiB and at most 256 MiB over all streams. Over UDP
    /// those of a datagram, 24 to 65,507 B; [`BLOCK_BYTES_DEFAULT`] stands for what fits the path's MTU.
    pub block_bytes: u32,
    /// Bytes of one read, where that is to be another size; the same limits.
    pub read_bytes: Option<u32>,
    /// SO_SNDBUF of the sender; autotuned if none is given. Over QUIC what a connection holds of what
    /// was not acknowledged.
    pub send_buffer: Option<Bytes>,
    /// SO_RCVBUF of the receiver; autotuned if none is given. Over QUIC the windows of stream and
    /// connection, 64 MiB if none is given, and 256 MiB over all streams.
    pub receive_buffer: Option<Bytes>,
    /// SO_MAX_PACING_RATE of each stream.
    pub max_pacing: Option<Rate>,
    /// Finds each stream's pacing rate while it sends ([`tcp::gap_control`]); in place of
    /// [`Self::max_pacing`].
    pub finds_gap: bool,
    /// Finds the rate of all streams together while it sends, and paces each at an even part of it; in
    /// place of [`Self::max_pacing`] and [`Self::finds_gap`].
    pub evens: bool,
    /// Payload that each stream's application hands over a second, block by block by the clock; as much
    /// as the host can if none is given. Not over QUIC.
    pub rate: Option<Rate>,
    /// TCP_WINDOW_CLAMP of the receiver: no more than this is under way on a stream. Its buffer is then
    /// [`Self::receive_buffer`] or this, and not tuned by the kernel. Not over UDP and QUIC.
    pub window_clamp: Option<Bytes>,
    /// TLS and QUIC: what they encrypt with.
    pub cipher: Cipher,
    /// How the sender hands its payload to the kernel; not over UDP, TLS or QUIC.
    pub sending: Sending,
    /// What [`Sending::Sendfile`] sends, over and over; a file in memory if none is given. A file of
    /// the client's, so it does not travel, and only for [`Direction::Up`].
    pub file: Option<PathBuf>,
    /// Largest segment of each stream (TCP_MAXSEG, options included), 88 to 32 767 bytes; what the
    /// route allows if none is given. The client sets it for both directions, so it does not travel.
    pub segment_bytes: Option<u16>,
    /// Mark of what both ends send on the streams; the hosts' default if none is given.
    pub dscp: Option<Dscp>,
    /// What each write costs the machine that the client stands for, in a lab; nothing by default.
    /// The client's own, so it does not travel, and only for [`Direction::Up`] and
    /// [`Sending::Write`].
    pub costs: WriteCosts,
    /// Both ends are on one machine, and its scheduler is to have no say in where: over TCP and TLS the
    /// data threads of each end keep to a CPU of their own ([`Self::own_cpu`]).
    pub apart: bool,
    /// Time between two readings of `tcp_info`, at least 1 ms. Long runs are thinned to some 20 000
    /// samples a stream (see [`SAMPLES_PER_STREAM_MAX`]).
    pub sample_interval: Duration,
    /// How long queues may take to drain after the sender stopped, at most 60 s; the rest is thrown
    /// away then. The rates do not depend on it.
    pub drain: Duration,
}

impl Default for Config {
    /// Ten seconds up over one stream, as `iperf3` does, of which the first two are ramp: enough
    /// for slow start on any path below 200 ms.
    fn default() -> Self {
        Self {
            direction: Direction::Up,
            streams: 1,
            duration: Duration::from_s(10),
            ramp: Duration::from_s(2),
            congestion: None,
            transport: Transport::Tcp,
            block_bytes: BLOCK_BYTES_DEFAULT,
            read_bytes: None,
            send_buffer: None,
            receive_buffer: None,
            max_pacing: None,
            finds_gap: false,
            evens: false,
            rate: None,
            window_clamp: None,
            cipher: Cipher::default(),
            sending: Sending::Write,
            file: None,
            segment_bytes: None,
            dscp: None,
            costs: WriteCosts::default(),
            apart: false,
            sample_interval: Duration::from_ms(100),
            drain: DRAIN_DEFAULT,
        }
    }
}

impl Config {
    /// Says what is impossible about this configuration, if anything.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Config`] with what to change.
    pub fn check(&self) -> Result<(), MeasureError> {
        match self.problem() {
            Some(problem) => Err(MeasureError::Config(problem)),
            None => Ok(()),
        }
    }

    /// The CPU that the data threads of an end keep to, of those that it may run on: the sender's the
    /// last, the receiver's the one before, since the first ones take most interrupts. `None` where they
    /// may run anywhere, and where there is one CPU.
    pub(crate) fn own_cpu(&self, is_sender: bool, cpus: &[usize]) -> Option<usize> {
        let place = cpus.len().checked_sub(if is_sender { 1 } else { 2 })?;
        cpus.get(place)
            .copied()
            .filter(|_| self.apart && cpus.len() > 1)
    }

    fn problem(&self) -> Option<String> {
        let larger = self.block_bytes.max(self.read_bytes.unwrap_or(0));
        let total = u64::from(larger) * u64::from(self.streams);
        if self.streams == 0 || self.streams > STREAMS_MAX {
            return Some(format!(
                "{} streams asked for; 1 to {STREAMS_MAX} work",
                self.streams
            ));
        }
        if self.duration < DURATION_MIN || self.duration > DURATION_MAX {
            let asked = self.duration;
            return Some(format!(
                "a duration of {asked}; {DURATION_MIN} to 24 h work"
            ));
        }
        if self.ramp >= self.duration {
            let (ramp, duration) = (self.ramp, self.duration);
            return Some(format!(
                "a ramp of {ramp} leaves nothing of {duration}; shorten the ramp"
            ));
        }
        let blocks = std::iter::once(self.block_bytes).chain(self.read_bytes);
        if let Some(bytes) = blocks.into_iter().find(|&b| b == 0 || b > BLOCK_BYTES_MAX) {
            let asked = Bytes::new(bytes.into());
            return Some(format!("a block of {asked}; 1 B to 16 MiB work"));
        }
        if total > BLOCKS_BYTES_MAX {
            return Some("blocks of all streams exceed 256 MiB; take smaller blocks".to_owned());
        }
        if self.sample_interval < SAMPLE_INTERVAL_MIN {
            let asked = self.sample_interval;
            return Some(format!(
                "a sample every {asked}; {SAMPLE_INTERVAL_MIN} is the least"
            ));
        }
        if self.drain > DRAIN_MAX {
            return Some(format!(
                "a drain of {}; {DRAIN_MAX} is the most",
                self.drain
            ));
        }
        if self
            .max_pacing
            .is_some_and(|rate| rate.as_bits_per_second() < 8)
        {
            return Some("pacing below 8 b/s sends nothing".to_owned());
        }
        if let Some(asked) = self.segment_bytes.filter(|b| !(88..=32_767).contains(b)) {
            return Some(format!("segments of {asked} B; 88 to 32767 B work"));
        }
        if let Some(problem) = self.transport_problem() {
            return Some(problem);
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let name = self.congestion.as_deref();
        if name.is_some_and(|n| n.is_empty() || n.len() > 15 || !n.chars().all(legal)) {
            return Some(
                "a congestion control is named by up to 15 letters, such as bbr".to_owned(),
            );
        }
        None
    }

    /// What the kernel's multipath sockets have no option for (net/mptcp/sockopt.c, Linux 6.18).
    fn multipath_problem(&self) -> Option<String> {
        let (what, option, instead) = if self.max_pacing.is_some() || self.finds_gap || self.evens {
            let instead = "take --pacing application=RATE";
            ("pace MPTCP connections", "SO_MAX_PACING_RATE", instead)
        } else if self.sending == Sending::ZeroCopy {
            let what = "send over MPTCP without copying";
            (what, "SO_ZEROCOPY", "leave out --zero-copy")
        } else if self.window_clamp.is_some() {
            let what = "clamp the window of MPTCP connections";
            (what, "TCP_WINDOW_CLAMP", "take --window SIZE")
        } else {
            return None;
        };
        Some(format!(
            "the kernel cannot {what}: they have no {option}; {instead}, or --transport tcp"
        ))
    }

    /// What the chosen transport does not go with.
    fn transport_problem(&self) -> Option<String> {
        let udp = self.transport == Transport::Udp;
        if let Some(clamp) = self.window_clamp {
            if udp || self.transport == Transport::Quic {
                return Some("a window is clamped for TCP only".to_owned());
            }
            if !WINDOW_CLAMPS.contains(&clamp.as_u64()) {
                return Some(format!("a window of {clamp}; 4 KiB to 1 GiB work"));
            }
        }
        if self.transport == Transport::Mptcp
            && let Some(problem) = self.multipath_problem()
        {
            return Some(problem);
        }
        if self.rate.is_some() && self.transport == Transport::Quic {
            return Some("a rate is kept over TCP and UDP; QUIC paces itself".to_owned());
        }
        if self.rate.is_some_and(|rate| rate.as_bits_per_second() < 8) {
            return Some("a rate below 8 b/s sends nothing".to_owned());
        }
        let finds = self.finds_gap || self.evens;
        if finds && (udp || self.transport == Transport::Quic) {
            return Some(
                "the gap is found for TCP; QUIC paces itself, UDP keeps a rate".to_owned(),
            );
        }
        if finds && (self.max_pacing.is_some() || self.finds_gap == self.evens) {
            return Some("a pacing rate is set or found, not both".to_owned());
        }
        if udp && (self.block_bytes as usize) < KEYED_BYTES {
            let asked = self.block_bytes;
            return Some(format!(
                "datagrams of {asked} B; {KEYED_BYTES} B are the least, since each has a header"
            ));
        }
        let is_size = self.block_bytes != BLOCK_BYTES_DEFAULT;
        if udp && is_size && self.block_bytes > DATAGRAM_BYTES_MAX {
            return Some(datagram_problem(self.block_bytes.into()));
        }
        let quic = self.transport == Transport::Quic;
        let sealed = quic || self.transport == Transport::Tls;
        if (udp || sealed) && self.sending != Sending::Write {
            let (name, by) = (self.sending.name(), self.transport.name());
            return Some(format!("{name} does not go with {by} here"));
        }
        if self.file.is_some() && self.sending != Sending::Sendfile {
            return Some("a file is sent by sendfile only".to_owned());
        }
        if self.file.is_some() && self.direction == Direction::Down {
            return Some(
                "a file of this host is sent up; down, sendfile sends generated bytes".to_owned(),
            );
        }
        if !self.costs.is_none() && (udp || quic || self.sending != Sending::Write) {
            return Some(
                "a host with declared costs spends them on writes over TCP; leave out UDP, QUIC, zero \
                 copy and sendfile"
                    .to_owned(),
            );
        }
        if !self.costs.is_none() && self.direction == Direction::Down {
            return Some(
                "the path file's costs are spent by a sender at the near end; leave out --direction down"
                    .to_owned(),
            );
        }
        quic.then(|| quic_problem(self)).flatten()
    }
}

/// Why no datagram has so many bytes.
pub fn datagram_problem(bytes: u64) -> String {
    format!("datagrams of {bytes} B; {DATAGRAM_BYTES_MAX} B are the most that UDP over IPv4 holds")
}

/// A [`Config`] as it travels: plain integers with their unit in the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// [`Config::direction`].
    pub direction: Direction,
    /// [`Config::streams`].
    pub streams: u16,
    /// [`Config::duration`].
    pub duration_ns: u64,
    /// [`Config::ramp`].
    pub ramp_ns: u64,
    /// [`Config::congestion`].
    pub congestion: Option<String>,
    /// [`Config::transport`]; left out where it is TCP, as ends before it was there read it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub transport: Transport,
    /// [`Config::rate`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate_bits_per_second: Option<u64>,
    /// [`Config::window_clamp`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub window_clamp_bytes: Option<u64>,
    /// [`Config::cipher`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub cipher: Cipher,
    /// [`Config::sending`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub sending: Sending,
    /// [`Config::block_bytes`].
    pub block_bytes: u32,
    /// [`Config::read_bytes`]; ends before it was there read in blocks of the writes.
    #[serde(default)]
    pub read_bytes: Option<u32>,
    /// [`Config::send_buffer`].
    pub send_buffer_bytes: Option<u64>,
    /// [`Config::receive_buffer`].
    pub receive_buffer_bytes: Option<u64>,
    /// [`Config::max_pacing`].
    pub max_pacing_bits_per_second: Option<u64>,
    /// [`Config::finds_gap`]; ends before it was there do not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub finds_gap: bool,
    /// [`Config::evens`]; ends before it was there do not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub evens: bool,
    /// [`Config::dscp`]; ends before it was there mark nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// [`Config::apart`]; ends before it was there run where they like.
    #[serde(default, skip_serializing_if = "is_default")]
    pub apart: bool,
    /// [`Config::sample_interval`].
    pub sample_interval_ns: u64,
    /// [`Config::drain`].
    pub drain_ns: u64,
    /// Over UDP and QUIC the client answers the server's [address
    /// challenge](crate::message::address_challenge). Clients from before it was there do not, and are refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub proves_address: bool,
}

impl From<&Config> for Spec {
    fn from(config: &Config) -> Self {
        Self {
            direction: config.direction,
            streams: config.streams,
            duration_ns: config.duration.as_ns(),
            ramp_ns: config.ramp.as_ns(),
            congestion: config.congestion.clone(),
            transport: config.transport,
            rate_bits_per_second: config.rate.map(Rate::as_bits_per_second),
            window_clamp_bytes: config.window_clamp.map(Bytes::as_u64),
            cipher: config.cipher,
            sending: config.sending,
            block_bytes: config.block_bytes,
            read_bytes: config.read_bytes,
            send_buffer_bytes: config.send_buffer.map(Bytes::as_u64),
            receive_buffer_bytes: config.receive_buffer.map(Bytes::as_u64),
            max_pacing_bits_per_second: config.max_pacing.map(Rate::as_bits_per_second),
            finds_gap: config.finds_gap,
            evens: config.evens,
            dscp: config.dscp.map(Dscp::number),
            apart: config.apart,
            sample_interval_ns: config.sample_interval.as_ns(),
            drain_ns: config.drain.as_ns(),
            proves_address: matches!(config.transport, Transport::Udp | Transport::Quic),
        }
    }
}

impl From<&Spec> for Config {
    fn from(spec: &Spec) -> Self {
        Self {
            direction: spec.direction,
            streams: spec.streams,
            duration: Duration::from_ns(spec.duration_ns),
            ramp: Duration::from_ns(spec.ramp_ns),
            congestion: spec.congestion.clone(),
            transport: spec.transport,
            rate: spec.rate_bits_per_second.map(Rate::from_bits_per_second),
            window_clamp: spec.window_clamp_bytes.map(Bytes::new),
            cipher: spec.cipher,
            sending: spec.sending,
            file: None,
            block_bytes: spec.block_bytes,
            read_bytes: spec.read_bytes,
            send_buffer: spec.send_buffer_bytes.map(Bytes::new),
            receive_buffer: spec.receive_buffer_bytes.map(Bytes::new),
            max_pacing: spec
                .max_pacing_bits_per_second
                .map(Rate::from_bits_per_second),
            finds_gap: spec.finds_gap,
            evens: spec.evens,
            segment_bytes: None,
            // A number that is no code point marks nothing; honest clients send none.
            dscp: spec.dscp.and_then(Dscp::new),
            costs: WriteCosts::default(),
            apart: spec.apart,
            sample_interval: Duration::from_ns(spec.sample_interval_ns),
            drain: Duration::from_ns(spec.drain_ns),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A full queue of 30 s is a path nobody wants; waiting longer tells nothing new.
const DRAIN_DEFAULT: Duration = Duration::from_s(30);
const DRAIN_MAX: Duration = Duration::from_s(60);
/// Below this the scheduler's own delays are the measurement.
const DURATION_MIN: Duration = Duration::from_ms(10);
const DURATION_MAX: Duration = Duration::from_s(24 * 3600);
/// Larger writes gain nothing: the kernel copies segment by segment.
const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// Of the default; over UDP it stands for what fits the path's MTU.
pub const BLOCK_BYTES_DEFAULT: u32 = 128 * 1024;
/// The largest UDP payload over IPv4.
pub const DATAGRAM_BYTES_MAX: u32 = 65_507;
/// From what holds a segment, as the kernel's least buffer does, to the largest window (RFC 7323, 2.3).
const WINDOW_CLAMPS: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
/// What one session may take of memory for its blocks.
const BLOCKS_BYTES_MAX: u64 = 256 << 20;
/// tcp_info of 128 streams takes some 0.2 ms to read; jiffy counters step by 1 ms and more.
const SAMPLE_INTERVAL_MIN: Duration = Duration::from_ms(1);
/// Samples kept of one stream: 33 minutes at the default interval before the first thinning.
pub(crate) const SAMPLES_PER_STREAM_MAX: usize = 20_000;
/// Samples kept of all streams of one end: some 75 MB.
pub(crate) const SAMPLES_MAX: usize = 128 * 1024;

/// Congestion controls by the names that they have here; the first is the default.
pub(crate) const QUIC_CONGESTION: [&str; 3] = ["cubic", "newreno", "bbr"];

/// What is wrong with a wish for QUIC, if anything.
fn quic_problem(config: &Config) -> Option<String> {
    let name = config.congestion.as_deref();
    if let Some(name) = name.filter(|name| !QUIC_CONGESTION.contains(name)) {
        let known = QUIC_CONGESTION.join(", ");
        return Some(format!(
            "quic brings its own congestion control, '{name}' is none of them; there are {known}"
        ));
    }
    if config.max_pacing.is_some() {
        return Some("pacing at a rate is the kernel's for TCP; quic paces itself".to_owned());
    }
    if config.segment_bytes.is_some() {
        return Some(
            "quic finds the size of its packets itself; segments are limited of TCP and TLS"
                .to_owned(),
        );
    }
    let buffers = [config.send_buffer, config.receive_buffer];
    let largest = buffers.into_iter().flatten().max().map_or(0, Bytes::as_u64);
    if largest.saturating_mul(config.streams.into()) > QUIC_WINDOWS_BYTES_MAX {
        return Some("quic's windows of all streams exceed 256 MiB; take smaller ones".to_owned());
    }
    None
}

/// What a receiver may have to hold of all streams of a transfer, as for the blocks of TCP.
pub(crate) const QUIC_WINDOWS_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_configuration_is_legal_and_survives_the_wire() {
        let config = Config {
            congestion: Some("bbr".to_owned()),
            dscp: Dscp::new(46),
            ..Config::default()
        };
        config.check().unwrap();
        let text = serde_json::to_string(&Spec::from(&config)).unwrap();
        let spec: Spec = serde_json::from_str(&text).unwrap();
        assert_eq!(Config::from(&spec), config);
    }

    #[test]
    fn ends_apart_have_a_cpu_each_and_others_none() {
        let apart = Config {
            apart: true,
            ..Config::default()
        };
        let text = serde_json::to_string(&Spec::from(&apart)).unwrap();
        let spec: Spec = serde_json::from_str(&text).unwrap();
        assert_eq!(Config::from(&spec), apart);
        let cpus = |config: &Config, cpus: &[usize]| [true, false].map(|s| config.own_cpu(s, cpus));
        assert_eq!(cpus(&apart, &[0, 1]), [Some(1), Some(0)]);
        assert_eq!(cpus(&apart, &[2, 5, 7]), [Some(7), Some(5)]);
        assert_eq!(cpus(&apart, &[3]), [None, None]);
        assert_eq!(cpus(&apart, &[]), [None, None]);
        assert_eq!(cpus(&Config::default(), &[0, 1]), [None, None]);
        let text = serde_json::to_string(&Spec::from(&Config::default())).unwrap();
        assert!(!text.contains("apart"), "{text}");
    }

    #[test]
    fn a_spec_without_a_mark_or_with_one_that_is_none_marks_nothing() {
        let text = serde_json::to_string(&Spec::from(&Config::default())).unwrap();
        assert!(!text.contains("dscp"), "{text}");
        let spec: Spec = serde_json::from_str(&text).unwrap();
        assert_eq!(Config::from(&spec).dscp, None);
        for (number, marks) in [(63, true), (64, false), (255, false)] {
            let dscp = Some(number);
            let spec = Spec {
                dscp,
                ..spec.clone()
            };
            assert_eq!(Config::from(&spec).dscp.is_some(), marks, "{number}");
        }
    }

    #[test]
    fn a_wish_for_tcp_is_what_it_was_before_there_were_others() {
        let text = serde_json::to_string(&Spec::from(&Config::default())).unwrap();
        for key in ["transport", "rate_bits", "sending", "window_clamp"] {
            assert!(!text.contains(key), "{text}");
        }
        let old: Spec = serde_json::from_str(&text).unwrap();
        assert_eq!(Config::from(&old), Config::default());
        let config = Config {
            transport: Transport::Udp,
            rate: Some(Rate::from_bits_per_second(1_000_000)),
            window_clamp: Some(Bytes::new(100_000)),
            ..Config::default()
        };
        let text = serde_json::to_string(&Spec::from(&config)).unwrap();
        assert!(text.contains(r#""transport":"udp""#), "{text}");
        let spec: Spec = serde_json::from_str(&text).unwrap();
        assert_eq!(Config::from(&spec), config);
    }

    #[test]
    fn transports_refuse_what_does_not_go_with_them() {
        let udp = Config {
            transport: Transport::Udp,
            block_bytes: 24,
            ..Config::default()
        };
        udp.check().unwrap();
        let sendfile = Config {
            sending: Sending::Sendfile,
            file: Some("/etc/hostname".into()),
            ..Config::default()
        };
        sendfile.check().unwrap();
        let bad = [
            Config {
                block_bytes: 65_508,
                ..udp.clone()
            },
            Config {
                block_bytes: 23,
                ..udp.clone()
            },
            Config {
                rate: Some(Rate::from_bits_per_second(7)),
                ..udp.clone()
            },
            Config {
                sending: Sending::ZeroCopy,
                ..udp
            },
            Config {
                rate: Some(Rate::from_bits_per_second(7)),
                ..Config::default()
            },
            Config {
                rate: Some(Rate::from_bits_per_second(1_000_000)),
                transport: Transport::Quic,
                ..Config::default()
            },
            Config {
                sending: Sending::Write,
                ..sendfile.clone()
            },
            Config {
                direction: Direction::Down,
                ..sendfile
            },
        ];
        for config in bad {
            assert!(config.check().is_err(), "{config:?}");
        }
    }

    #[test]
    fn impossible_configurations_are_refused() {
        let base = Config::default();
        let bad = [
            Config {
                streams: 0,
                ..base.clone()
            },
            Config {
                streams: 129,
                ..base.clone()
            },
            Config {
                duration: Duration::ZERO,
                ..base.clone()
            },
            Config {
                ramp: Duration::from_s(10),
                ..base.clone()
            },
            Config {
                block_bytes: 0,
                ..base.clone()
            },
            Config {
                block_bytes: 16 << 20,
                streams: 17,
                ..base.clone()
            },
            Config {
                sample_interval: Duration::from_us(1),
                ..base.clone()
            },
            Config {
                congestion: Some("../../x".to_owned()),
                ..base.clone()
            },
            Config {
                congestion: Some(String::new()),
                ..base.clone()
            },
            Config {
                max_pacing: Some(Rate::from_bits_per_second(0)),
                ..base.clone()
            },
            Config {
                finds_gap: true,
                max_pacing: Some(Rate::from_bits_per_second(1_000_000)),
                ..base.clone()
            },
            Config {
                window_clamp: Some(Bytes::new(4095)),
                ..base.clone()
            },
            Config {
                window_clamp: Some(Bytes::new((1 << 30) + 1)),
                ..base.clone()
            },
            Config {
                window_clamp: Some(Bytes::new(1 << 20)),
                transport: Transport::Udp,
                ..base.clone()
            },
            Config {
                finds_gap: true,
                evens: true,
                ..base.clone()
            },
            Config {
                evens: true,
                max_pacing: Some(Rate::from_bits_per_second(1_000_000)),
                ..base.clone()
            },
            Config {
                finds_gap: true,
                transport: Transport::Quic,
                ..base.clone()
            },
            Config {
                segment_bytes: Some(87),
                ..base.clone()
            },
            Config {
                segment_bytes: Some(32_768),
                ..base.clone()
            },
        ];
        for config in bad {
            assert!(config.check().is_err(), "{config:?}");
        }
        for bytes in [88, 32_767] {
            let config = Config {
                segment_bytes: Some(bytes),
                ..base.clone()
            };
            assert!(config.check().is_ok(), "{bytes}");
        }
    }
}
