//! What a sweep varies: its axes, their ranges, and what a setting does to a transfer.
//!
//! Some ranges hang on the path, which is known once a client is there: they are settled then.

use std::fs;

use measure::{Client, Config, Transport};
use report::model::SweepAxis;
use units::{Bytes, Rate};

use crate::session::path_mtu;

/// What is varied along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    pub(super) kind: Kind,
    /// The settings, rising; none until a range that was not typed is settled.
    pub(super) values: Vec<u64>,
    /// Whether the range was typed: then every setting of it is measured, or none.
    pub(super) typed: bool,
    /// Of senders: what 1, 2, ... stand for.
    pub(super) names: Vec<String>,
}

/// What can be varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WriteSize,
    SocketBuffer,
    SendBuffer,
    ReceiveBuffer,
    Streams,
    Pacing,
    MessageSize,
    Mtu,
    Sender,
}

/// A kind with its name, its unit in run.json, and how it is spoken of.
const KINDS: [(Kind, &str, &str, &str); 9] = [
    (Kind::WriteSize, "write-size", "bytes", "write size"),
    (
        Kind::SocketBuffer,
        "socket-buffer",
        "bytes",
        "socket buffer",
    ),
    (Kind::SendBuffer, "send-buffer", "bytes", "send buffer"),
    (
        Kind::ReceiveBuffer,
        "receive-buffer",
        "bytes",
        "receive buffer",
    ),
    (Kind::Streams, "streams", "", "number of streams"),
    (Kind::Pacing, "pacing", "bits_per_second", "pacing"),
    (Kind::MessageSize, "message-size", "bytes", "message size"),
    (Kind::Mtu, "mtu", "bytes", "MTU"),
    (Kind::Sender, "sender", "", "sender"),
];

/// What the path and its transport allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) transport: Transport,
    /// Octets of the IP and TCP headers without options (RFC 791, RFC 8200, RFC 9293).
    pub(super) headers: u32,
    /// Largest packet that both ends' routes carry.
    pub(super) mtu: Option<u32>,
    /// Payload of the largest datagram that crosses the path whole.
    pub(super) datagram: u32,
}

impl Reach {
    pub(super) fn of(client: &Client, transport: Transport) -> Self {
        Self {
            transport,
            headers: if client.addr().is_ipv4() { 40 } else { 60 },
            mtu: path_mtu(client.near(), &client.far().host),
            datagram: client.datagram_bytes(),
        }
    }

    /// The MTUs that segments can be limited to, and the path's own, which needs no limit.
    fn mtus(&self) -> (u64, u64, u64) {
        let path = u64::from(self.mtu.unwrap_or(MTU_DEFAULT));
        let headers = u64::from(self.headers);
        (SEGMENT_MIN + headers, path.min(SEGMENT_MAX + headers), path)
    }
}

impl Kind {
    fn row(self) -> (&'static str, &'static str, &'static str) {
        let row = KINDS.iter().find(|k| k.0 == self);
        row.map_or(("", "", ""), |&(_, name, unit, spoken)| {
            (name, unit, spoken)
        })
    }

    /// As it is typed.
    pub(super) fn name(self) -> &'static str {
        self.row().0
    }

    /// Whether its settings are sizes.
    pub(super) fn of_bytes(self) -> bool {
        self.row().1 == "bytes"
    }

    /// How it is spoken of in a sentence.
    pub(super) fn spoken(self) -> &'static str {
        self.row().2
    }

    fn parse_value(self, text: &str) -> Result<u64, String> {
        // Sizes that everybody gives in bytes.
        if let (Self::MessageSize | Self::Mtu, Ok(bytes)) = (self, text.parse()) {
            return Ok(bytes);
        }
        match self.row().1 {
            "bytes" => text
                .parse::<Bytes>()
                .map(Bytes::as_u64)
                .map_err(|e| e.to_string()),
            "bits_per_second" => {
                let rate = text.parse::<Rate>();
                rate.map(Rate::as_bits_per_second)
                    .map_err(|e| e.to_string())
            }
            _ => text
                .parse()
                .map_err(|_| format!("'{text}' is not a number")),
        }
    }

    /// Steps an octave.
    const fn steps(self) -> u32 {
        match self {
            Self::WriteSize | Self::Streams | Self::Pacing | Self::MessageSize | Self::Sender => 1,
            Self::SocketBuffer | Self::SendBuffer | Self::ReceiveBuffer => 2,
            // From 576 to 1500 B there is little more than an octave.
            Self::Mtu => 3,
        }
    }

    /// The settings without a typed range.
    fn default_values(self, reach: &Reach) -> Vec<u64> {
        let (from, to) = match self {
            Self::WriteSize => (64, 4 << 20),
            Self::SocketBuffer => (
                4 << 10,
                buffer_limit("rmem_max").min(buffer_limit("wmem_max")),
            ),
            Self::SendBuffer => (4 << 10, buffer_limit("wmem_max")),
            Self::ReceiveBuffer => (4 << 10, buffer_limit("rmem_max")),
            Self::Streams => (1, 64),
            Self::Pacing => (10_000_000, 10_000_000_000),
            Self::MessageSize if reach.transport == Transport::Udp => {
                (32, u64::from(reach.datagram).max(64))
            }
            Self::MessageSize => (2, MESSAGE_MAX),
            Self::Sender => (1, 1),
            Self::Mtu => {
                let (least, limited, path) = reach.mtus();
                if path <= MTU_MIN_DEFAULT {
                    return vec![path];
                }
                let mut values = spread(MTU_MIN_DEFAULT.max(least), path, self.steps());
                values.retain(|&v| v <= limited || v == path);
                for common in MTUS_COMMON {
                    let near = |v: &&mut u64| v.abs_diff(common) * 20 < common && **v != path;
                    if let Some(value) = values.iter_mut().find(near) {
                        *value = common;
                    }
                }
                return values;
            }
        };
        spread(from, to, self.steps())
    }

    /// Why a setting cannot be had on this path, if it cannot.
    fn problem(self, value: u64, reach: &Reach) -> Option<String> {
        match self {
            Self::MessageSize if reach.transport == Transport::Udp => {
                let largest = u64::from(reach.datagram);
                (!(DATAGRAM_MIN..=largest).contains(&value)).then(|| {
                    format!(
                        "datagrams of {value} B; {DATAGRAM_MIN} B to the {largest} B that cross this path \
                         whole work (write-size has larger ones cut)"
                    )
                })
            }
            Self::MessageSize => (!(1..=MESSAGE_MAX).contains(&value))
                .then(|| format!("messages of {value} B; 1 B to 8 MiB work")),
            Self::Mtu => {
                let (least, limited, path) = reach.mtus();
                if value == path || (least..=limited).contains(&value) {
                    return None;
                }
                let own = match limited == path {
                    true => String::new(),
                    false => format!(
                        " and {path} B, the path's own (TCP's limit on segments ends at {SEGMENT_MAX} B)"
                    ),
                };
                let limit = match limited == path {
                    true => ", which is what the path carries,",
                    false => "",
                };
                Some(format!(
                    "an MTU of {value} B; {least} B to {limited} B{limit}{own} work"
                ))
            }
            _ => None,
        }
    }

    /// Makes a transfer one with this setting.
    pub(super) fn set(self, config: &mut Config, value: u64, reach: &Reach) {
        let size = Some(Bytes::new(value));
        match self {
            Self::WriteSize => {
                config.block_bytes = u32::try_from(value).unwrap_or(u32::MAX);
                // What is varied is the writing; reading in small pieces would be another cost.
                config.read_bytes = Some(config.block_bytes.max(READ_BYTES_MIN));
            }
            Self::SocketBuffer => (config.send_buffer, config.receive_buffer) = (size, size),
            Self::SendBuffer => config.send_buffer = size,
            Self::ReceiveBuffer => config.receive_buffer = size,
            Self::Streams => config.streams = u16::try_from(value).unwrap_or(u16::MAX),
            Self::Pacing => config.max_pacing = Some(Rate::from_bits_per_second(value)),
            // Over TCP no transfer is made of it.
            Self::MessageSize => config.block_bytes = u32::try_from(value).unwrap_or(u32::MAX),
            Self::Mtu => {
                let segment = value.saturating_sub(u64::from(reach.headers));
                let own = reach.mtu.map(u64::from) == Some(value);
                config.segment_bytes = u16::try_from(segment).ok().filter(|_| !own);
            }
            // Whose costs and congestion control they are only the path file says.
            Self::Sender => {}
        }
    }
}

impl Axis {
    /// `AXIS`, `AXIS=FROM..TO`, `AXIS=FROM..TO/STEPS` or `AXIS=VALUE,VALUE,...`.
    pub(super) fn parse(typed: &str) -> Result<Self, String> {
        let (name, range) = match typed.split_once('=') {
            Some((name, range)) => (name, Some(range)),
            None => (typed, None),
        };
        let known = || KINDS.map(|k| k.1).join(", ");
        let kind = KINDS.iter().find(|k| k.1 == name).map(|k| k.0);
        let kind = kind.ok_or_else(|| format!("no such sweep; there are {}", known()))?;
        if kind == Kind::Sender {
            return Self::senders(range);
        }
        let Some(range) = range else {
            return Ok(Self {
                kind,
                values: Vec::new(),
                typed: false,
                names: Vec::new(),
            });
        };
        let mut values = match range.split_once("..") {
            Some((from, to)) => {
                let (to, steps) = to.split_once('/').map_or((to, None), |(t, s)| (t, Some(s)));
                let steps = match steps {
                    None => kind.steps(),
                    Some(s) => {
                        let steps = s.parse().ok().filter(|s| (1..=32).contains(s));
                        steps.ok_or_else(|| format!("'{s}' steps an octave: 1 to 32 work"))?
                    }
                };
                let (from, to) = (kind.parse_value(from)?, kind.parse_value(to)?);
                if from == 0 || from >= to {
                    return Err("the range must rise from above 0".to_owned());
                }
                spread(from, to, steps)
            }
            None => range
                .split(',')
                .map(|v| kind.parse_value(v.trim()))
                .collect::<Result<_, _>>()?,
        };
        values.sort_unstable();
        values.dedup();
        if values.is_empty() || values[0] == 0 || values.len() > VALUES_MAX {
            return Err(format!("1 to {VALUES_MAX} settings above 0 work"));
        }
        Ok(Self {
            kind,
            values,
            typed: true,
            names: Vec::new(),
        })
    }

    /// Hosts of the path file, each once, in the order typed.
    fn senders(typed: Option<&str>) -> Result<Self, String> {
        let names: Vec<String> = typed
            .unwrap_or_default()
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect();
        let is_again = |n: usize| names[..n].contains(&names[n]);
        if names.len() > VALUES_MAX || (0..names.len()).any(|n| names[n].is_empty() || is_again(n))
        {
            return Err(format!(
                "name the hosts of the path file, each once and {VALUES_MAX} at most: sender=a,b"
            ));
        }
        Ok(Self {
            kind: Kind::Sender,
            values: (1..=names.len() as u64).collect(),
            typed: true,
            names,
        })
    }

    /// Settles the settings on a path; says which of those that were typed cannot be had there.
    pub(super) fn settle(&mut self, reach: &Reach) -> Result<(), String> {
        if !self.typed {
            self.values = self.kind.default_values(reach);
        }
        let problem = |&value| self.kind.problem(value, reach);
        match self.values.iter().find_map(problem) {
            Some(problem) => Err(format!("--sweep {}: {problem}", self.kind.row().0)),
            None => Ok(()),
        }
    }

    /// How it stands in run.json.
    pub(super) fn record(&self) -> SweepAxis {
        let (name, unit, _) = self.kind.row();
        SweepAxis {
            name: name.to_owned(),
            unit: unit.to_owned(),
            values: self.values.clone(),
            names: self.names.clone(),
        }
    }
}

/// Settings a constant factor apart, both ends included.
fn spread(from: u64, to: u64, steps: u32) -> Vec<u64> {
    let mut values = Vec::new();
    for n in 0..VALUES_MAX {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "settings are far below 2^52"
        )]
        let value = (from as f64 * 2_f64.powf(n as f64 / f64::from(steps))).round() as u64;
        // The last step is as long as the others, or left out for the end itself.
        if value as f64 * 2_f64.powf(0.5 / f64::from(steps)) >= to as f64 {
            break;
        }
        values.push(value);
    }
    values.push(to);
    values
}

/// What a socket may ask for here; where it is not known, 4 MiB.
fn buffer_limit(name: &str) -> u64 {
    let file = format!("/proc/sys/net/core/{name}");
    let limit = fs::read_to_string(file)
        .ok()
        .and_then(|t| t.trim().parse().ok());
    limit.unwrap_or(4_u64 << 20).clamp(64 << 10, 64 << 20)
}

/// Settings of one axis at most.
const VALUES_MAX: usize = 256;
/// Reads of a receiver whose sender's writes are varied.
const READ_BYTES_MIN: u32 = 128 << 10;
/// `MessageSpec`'s own bound.
const MESSAGE_MAX: u64 = 1 << 23;
/// A datagram's header of ours.
const DATAGRAM_MIN: u64 = 24;
/// What `Config::segment_bytes` takes (Linux include/net/tcp.h: TCP_MIN_MSS, MAX_TCP_WINDOW).
const SEGMENT_MIN: u64 = 88;
const SEGMENT_MAX: u64 = 32_767;
/// What every IPv4 host takes (RFC 791, section 3.1).
const MTU_MIN_DEFAULT: u64 = 576;
/// Ethernet's and jumbo frames': they take the place of a setting within 5 %.
const MTUS_COMMON: [u64; 2] = [1500, 9000];
/// Ethernet's, where neither end tells its route's.
const MTU_DEFAULT: u32 = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(mtu: u32) -> Reach {
        Reach {
            headers: 40,
            mtu: Some(mtu),
            datagram: mtu - 28,
            ..Reach::default()
        }
    }

    fn settled(typed: &str, reach: &Reach) -> Result<Vec<u64>, String> {
        let mut axis = Axis::parse(typed)?;
        axis.settle(reach)?;
        Ok(axis.values)
    }

    #[test]
    fn an_axis_is_a_name_a_range_or_a_list() {
        let values = |typed| settled(typed, &reach(1500)).unwrap();
        assert_eq!(values("write-size=64B..1KiB"), [64, 128, 256, 512, 1024]);
        assert_eq!(values("streams=1..10"), [1, 2, 4, 10]);
        assert_eq!(values("streams=4,1,4,2"), [1, 2, 4]);
        assert_eq!(
            values("send-buffer=64KiB..128KiB/2"),
            [65_536, 92_682, 131_072]
        );
        assert_eq!(values("write-size").len(), 17);
        assert_eq!(values("pacing=1Gb/s"), [1_000_000_000]);
        assert_eq!(values("message-size=2..16"), [2, 4, 8, 16]);
        assert_eq!(values("message-size=3,1KiB"), [3, 1024]);
    }

    #[test]
    fn what_makes_no_axis_is_refused_with_what_does() {
        for (typed, says) in [
            ("writesize", "there are write-size, socket-buffer"),
            ("write-size=1..9", "has no unit"),
            ("streams=9..1", "must rise"),
            ("streams=0,1", "above 0"),
            ("write-size=1B..2B/99", "1 to 32 work"),
            ("streams=", "not a number"),
            ("message-size=0", "above 0"),
            ("mtu=x", "x"),
            ("sender", "name the hosts of the path file"),
            ("sender=a,,b", "name the hosts of the path file"),
            ("sender=a,b, a", "each once"),
        ] {
            let said = Axis::parse(typed).unwrap_err();
            assert!(said.contains(says), "{typed}: {said}");
        }
    }

    #[test]
    fn senders_are_numbered_in_the_order_typed_and_shown_by_name() {
        let axis = Axis::parse("sender=solaris, linux").unwrap();
        assert_eq!(axis.values, [1, 2]);
        let mut settled = axis.clone();
        settled.settle(&reach(1500)).unwrap();
        assert_eq!(settled, axis);
        let record = axis.record();
        let shown: Vec<String> = (0..4).map(|v| report::setting(&record, v)).collect();
        assert_eq!(shown, ["0", "solaris", "linux", "3"]);
    }

    #[test]
    fn messages_are_powers_of_two_from_2_bytes_to_8_mebibytes_and_datagrams_what_the_path_carries()
    {
        let tcp = settled("message-size", &reach(1500)).unwrap();
        assert_eq!((tcp.len(), tcp[0], tcp[22]), (23, 2, 8_388_608));
        assert!(tcp.iter().all(|v| v.is_power_of_two()));
        let udp = Reach {
            transport: Transport::Udp,
            ..reach(1500)
        };
        let sizes = settled("message-size", &udp).unwrap();
        assert_eq!(sizes, [32, 64, 128, 256, 512, 1024, 1472]);
        for (typed, on, good) in [
            ("message-size=1", reach(1500), true),
            ("message-size=8388608", reach(1500), true),
            ("message-size=8388609", reach(1500), false),
            ("message-size=24", udp, true),
            ("message-size=23", udp, false),
            ("message-size=1472", udp, true),
            ("message-size=1473", udp, false),
        ] {
            assert_eq!(settled(typed, &on).is_ok(), good, "{typed}");
        }
    }

    #[test]
    fn mtus_go_up_to_what_the_path_carries() {
        let values = |mtu| settled("mtu", &reach(mtu)).unwrap();
        assert_eq!(values(1500), [576, 726, 914, 1152, 1500]);
        assert_eq!(values(576), [576]);
        assert_eq!(values(9000).last(), Some(&9000));
        // Loopback's own is beyond what segments can be limited to.
        let loopback = values(65_536);
        assert_eq!(loopback.last(), Some(&65_536));
        assert!(loopback.is_sorted() && [1500, 9000].iter().all(|v| loopback.contains(v)));
        assert!(loopback.iter().all(|&v| v <= 32_807 || v == 65_536));
        for (mtu, path, good) in [
            (128, 1500, true),
            (127, 1500, false),
            (1500, 1500, true),
            (1501, 1500, false),
            (32_807, 65_536, true),
            (32_808, 65_536, false),
            (65_536, 65_536, true),
            (65_537, 65_536, false),
        ] {
            let made = settled(&format!("mtu={mtu}"), &reach(path));
            assert_eq!(made.is_ok(), good, "{mtu} on {path}: {made:?}");
        }
        let said = settled("mtu=9000", &reach(1500)).unwrap_err();
        let wanted = "an MTU of 9000 B; 128 B to 1500 B, which is what the path carries, work";
        assert!(said.ends_with(wanted), "{said}");
        let said = settled("mtu=40000", &reach(65_536)).unwrap_err();
        assert!(
            said.contains("32807 B and 65536 B, the path's own"),
            "{said}"
        );
    }

    #[test]
    fn an_mtu_is_a_limit_on_segments_and_the_paths_own_is_none() {
        let segment = |mtu, reach: &Reach| {
            let mut config = Config::default();
            Kind::Mtu.set(&mut config, mtu, reach);
            config.segment_bytes
        };
        assert_eq!(segment(1500, &reach(9000)), Some(1460));
        let ipv6 = Reach {
            headers: 60,
            ..reach(9000)
        };
        assert_eq!(segment(1500, &ipv6), Some(1440));
        assert_eq!(segment(9000, &reach(9000)), None);
        assert_eq!(segment(32_807, &reach(65_536)), Some(32_767));
        assert_eq!(segment(65_536, &reach(65_536)), None);
    }
}
