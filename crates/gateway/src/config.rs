//! What a gateway is told: from a file, from flags, checked as a whole before anything is touched.

use std::net::SocketAddr;
use std::str::FromStr;

use serde::Deserialize;
use sys::endpoint;
use units::text::{line_at, plain};
use units::{Bytes, Duration, Rate};

use crate::decisions::LogConfig;
use crate::deferral::Limits;
use crate::rules::{Action, Ports, Rule, Rules};

/// The side of the gateway that a connection's half is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zone {
    /// The host's.
    Inside,
    /// The network's.
    Outside,
}

impl Zone {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Inside, Self::Outside];

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Inside => Self::Outside,
            Self::Outside => Self::Inside,
        }
    }

    /// 0 for inside, 1 for outside.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }
}

/// Which of several links of a side a connection goes on by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// The one that carried least of late, of equals the one with the fewest connections.
    #[default]
    LeastLoad,
    /// By a hash of its ends: always the same while the links are.
    Hash,
    /// The one that servers were soonest reached by; every sixteenth goes by another, to know.
    Measured,
}

impl FromStr for Spread {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "least-load" => Ok(Self::LeastLoad),
            "hash" => Ok(Self::Hash),
            "measured" => Ok(Self::Measured),
            _ => Err(format!("'{text}': expected least-load, hash or measured")),
        }
    }
}

/// How fast a side's connections may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// At this rate at most.
    Rate(Rate),
    /// Just under what their path is found to take while they send.
    Even,
}

impl FromStr for Pacing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "even" => Ok(Self::Even),
            _ => text
                .parse()
                .map(Self::Rate)
                .map_err(|e| format!("{e}; or write even")),
        }
    }
}

/// What all sockets of one side are made like. What is not named is the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneConfig {
    /// Interfaces of this side.
    pub interfaces: Vec<String>,
    /// How connections are spread over several.
    pub spread: Spread,
    /// Congestion control.
    pub congestion: Option<String>,
    /// Largest segment, 88 to 32767 bytes.
    pub max_segment: Option<u16>,
    /// Send buffer and receive buffer each; without it by what earlier connections measured.
    pub buffer: Option<Bytes>,
    /// Each connection is paced; with `harmonize` all of one pair of hosts together.
    pub pacing: Option<Pacing>,
    /// Connections from one host to another are paced alike, with one sum.
    pub harmonize: bool,
    /// Unsent bytes beyond which no more are put into the send buffer.
    pub notsent_lowat: Option<Bytes>,
    /// How long sent data may stay unacknowledged.
    pub user_timeout: Option<Duration>,
    /// Silence after which the peer is asked whether it lives; 600 s where nothing is said.
    pub keepalive: Option<Duration>,
    /// A peer's FIN is acknowledged only when the other side has acknowledged all that this peer sent.
    pub hold_last_ack: bool,
}

/// How connections come to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They pass by and are taken up; neither end knows.
    Transparent,
    /// They are made to the first address, and go on to the second from an address of ours.
    Explicit {
        /// Where clients connect to.
        listen: SocketAddr,
        /// Where connections go on to.
        target: SocketAddr,
    },
}

/// A gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Transparent or not.
    pub mode: Mode,
    /// Inside, outside.
    pub zones: [ZoneConfig; 2],
    /// What is split.
    pub rules: Rules,
    /// What may grow how far.
    pub limits: Limits,
    /// Threads that carry connections; a power of two.
    pub workers: u8,
    /// First of the ports, at the loopback address, that accept split connections: four a worker.
    pub port: u16,
    /// First of the NFQUEUE numbers, one a worker.
    pub queue: u16,
    /// Mark of packets: the upper 16 bits.
    pub mark: u16,
    /// Routing table for what is to be taken up.
    pub table: u32,
    /// How long connections may go on when the gateway is to end.
    pub drain: Duration,
    /// Pipes at a time, all workers together; who gets none carries by copying. Never more than
    /// there are descriptors for.
    pub pipes: u64,
    /// Memory that buffers may take which are set by measurement: 0 for none, an eighth of what is free at the
    /// start where nothing is said.
    pub buffer_memory: Option<Bytes>,
    /// About every so many-th connection passes unsplit and is counted, to hold the model against it.
    pub unsplit_every: Option<u32>,
    /// Where it is written what becomes of each connection.
    pub log: Option<LogConfig>,
}

/// What cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No TOML, or an unknown key.
    #[error("{0}")]
    Syntax(String),
    /// A value out of range or of the wrong kind.
    #[error("{key}: {why}")]
    Value {
        /// Where.
        key: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Transparent,
            zones: Default::default(),
            rules: Rules::default(),
            limits: Limits::default(),
            workers: 1,
            port: 47_100,
            queue: 4710,
            mark: 0x4750,
            table: 4710,
            drain: Duration::from_s(30),
            pipes: u64::MAX,
            buffer_memory: None,
            unsplit_every: None,
            log: None,
        }
    }
}

impl Config {
    /// Reads a file's text.
    ///
    /// # Errors
    /// For what is no TOML, unknown keys and values that cannot be meant. What hangs on the whole is
    /// left to [`Self::check`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let raw: Raw = spans::from_str(text).map_err(|e| syntax(text, &e))?;
        let mut config = Self {
            zones: [raw.inside.read("inside")?, raw.outside.read("outside")?],
            ..Self::default()
        };
        let rules: Result<Vec<Rule>, ConfigError> = raw
            .rule
            .iter()
            .enumerate()
            .map(|(i, r)| r.read(i))
            .collect();
        config.rules = Rules::new(rules?);
        let limits = &mut config.limits;
        let l = &raw.limits;
        set(&mut limits.connections, l.connections);
        set(&mut limits.connections_per_client, l.connections_per_client);
        set(&mut limits.waiting, l.waiting);
        set(&mut limits.waiting_per_client, l.waiting_per_client);
        set(&mut config.workers, raw.workers);
        set(&mut config.port, raw.port);
        set(&mut config.queue, raw.queue);
        set(&mut config.mark, raw.mark);
        set(&mut config.table, raw.table);
        set(&mut config.drain, read("drain", raw.drain.as_deref())?);
        config.unsplit_every = raw.unsplit_every;
        config.buffer_memory = read("buffer-memory", raw.buffer_memory.as_deref())?;
        config.log = raw.log.map(RawLog::read).transpose()?;
        if let Some(explicit) = raw.explicit {
            config.mode = Mode::Explicit {
                listen: address("explicit.listen", &explicit.listen)?,
                target: address("explicit.target", &explicit.target)?,
            };
        }
        Ok(config)
    }

    /// What makes a running gateway another one: what was made at its start and is not made again.
    ///
    /// # Errors
    /// The first thing that `other` has differently.
    pub fn can_become(&self, other: &Self) -> Result<(), ConfigError> {
        let same = |key: &str, same: bool| match same {
            true => Ok(()),
            false => wrong(
                key,
                "cannot change while the gateway runs; start it again".into(),
            ),
        };
        same("explicit", self.mode == other.mode)?;
        same("workers", self.workers == other.workers)?;
        same("port", self.port == other.port)?;
        same("queue", self.queue == other.queue)?;
        same("mark", self.mark == other.mark)?;
        same("table", self.table == other.table)?;
        same("unsplit-every", self.unsplit_every == other.unsplit_every)?;
        same("buffer-memory", self.buffer_memory == other.buffer_memory)?;
        // Size and rate may change.
        let file = |c: &Self| c.log.as_ref().map(|log| log.file.clone());
        same("log.file", file(self) == file(other))?;
        for zone in Zone::BOTH {
            let interfaces = &self.zone(zone).interfaces;
            same(
                &format!("{}.interfaces", zone.name()),
                *interfaces == other.zone(zone).interfaces,
            )?;
            same(
                &format!("{}.hold-last-ack", zone.name()),
                self.zone(zone).hold_last_ack == other.zone(zone).hold_last_ack,
            )?;
            // Groups stand as they were made.
            let paced = |c: &Self| {
                let zone = c.zone(zone);
                (
                    zone.harmonize,
                    zone.pacing.filter(|_| zone.harmonize),
                    zone.pacing == Some(Pacing::Even),
                )
            };
            same(
                &format!("{}.harmonize and pacing = even", zone.name()),
                paced(self) == paced(other),
            )?;
            self.zone(zone).can_become(zone, other.zone(zone))?;
        }
        Ok(())
    }

    /// Looks at the whole.
    ///
    /// # Errors
    /// The first thing that cannot be meant.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.workers.is_power_of_two() || self.workers > MOST_WORKERS {
            return wrong(
                "workers",
                format!("expected a power of two up to {MOST_WORKERS}"),
            );
        }
        if self.unsplit_every == Some(0) {
            return wrong("unsplit-every", "expected 1 or more: 1 is every one".into());
        }
        if self.unsplit_every.is_some() && self.mode != Mode::Transparent {
            return wrong(
                "unsplit-every",
                "only where connections are intercepted".into(),
            );
        }
        if let Some(log) = &self.log {
            log.check()?;
        }
        let asks = self.rules.ask_for_segments() || self.rules.ask_for_bytes();
        if asks && self.mode != Mode::Transparent {
            return wrong(
                "rule",
                "mss and min-bytes are only for connections that are intercepted".into(),
            );
        }
        if self.mark == 0 {
            return wrong("mark", "expected 1 to 65535, since 0 is no mark".into());
        }
        // Behind it those of the links.
        let tables = self.table.checked_add(2 * MOST_LINKS);
        let tables = tables.map(|last| self.table..=last);
        let free = |t: std::ops::RangeInclusive<u32>| !(253..=255).any(|own| t.contains(&own));
        if self.table == 0 || !tables.is_some_and(free) {
            return wrong(
                "table",
                format!(
                    "expected routing tables of our own, {} from it on, none of them 0 or 253 to 255",
                    2 * MOST_LINKS + 1
                ),
            );
        }
        let ports = u16::from(self.workers) * PORTS_PER_WORKER;
        if self.port == 0 || self.port.checked_add(ports).is_none() {
            return wrong(
                "port",
                format!("expected room for {ports} ports from it on"),
            );
        }
        // Behind those of SYNs, those of last ACKs.
        let each = 1 + u16::from(self.zones.iter().any(|z| z.hold_last_ack));
        let queues = each * u16::from(self.workers);
        if self.queue.checked_add(queues - 1).is_none() {
            return wrong(
                "queue",
                format!("expected room for {queues} queues from it on"),
            );
        }
        let limits = &self.limits;
        for (key, most) in [
            ("connections", limits.connections),
            ("connections-per-client", limits.connections_per_client),
            ("waiting", limits.waiting),
            ("waiting-per-client", limits.waiting_per_client),
        ] {
            if most == 0 {
                return wrong(
                    &format!("limits.{key}"),
                    "expected 1 or more; with 0 nothing would be split".into(),
                );
            }
        }
        for (zone, config) in Zone::BOTH.into_iter().zip(&self.zones) {
            config.check(zone, &self.mode)?;
            if config.harmonize && self.workers > 1 {
                return wrong(
                    &format!("{}.harmonize", zone.name()),
                    "one client's connections are on several workers; set workers = 1".into(),
                );
            }
        }
        let [inside, outside] = &self.zones;
        if let Some(both) = inside
            .interfaces
            .iter()
            .find(|name| outside.interfaces.contains(name))
        {
            return wrong("inside", format!("{both} is outside as well"));
        }
        match &self.mode {
            Mode::Explicit { listen, .. } if listen.port() == 0 && self.workers > 1 => wrong(
                "explicit.listen",
                "several workers need a port; write one, or workers = 1".into(),
            ),
            Mode::Explicit { listen, target } if listen == target => {
                wrong("explicit", "the gateway would connect to itself".into())
            }
            Mode::Explicit { listen, target } if listen.is_ipv4() != target.is_ipv4() => {
                // The client's address is not kept here, so nothing forbids it but a lack of use.
                wrong(
                    "explicit",
                    "listen and target are of different versions of IP".into(),
                )
            }
            Mode::Explicit { target, .. } if target.port() == 0 => {
                wrong("explicit.target", "expected a port from 1 to 65535".into())
            }
            _ => Ok(()),
        }
    }

    /// One side.
    pub const fn zone(&self, zone: Zone) -> &ZoneConfig {
        &self.zones[zone.index()]
    }
}

impl ZoneConfig {
    /// Accepted sockets are like their listener, and for most options there is no way back to the kernel's
    /// own choice.
    fn can_become(&self, zone: Zone, other: &Self) -> Result<(), ConfigError> {
        fn gone<T>(old: Option<&T>, new: Option<&T>) -> bool {
            old.is_some() && new.is_none()
        }
        for (name, gone) in [
            (
                "congestion",
                gone(self.congestion.as_ref(), other.congestion.as_ref()),
            ),
            (
                "max-segment",
                gone(self.max_segment.as_ref(), other.max_segment.as_ref()),
            ),
            ("buffer", gone(self.buffer.as_ref(), other.buffer.as_ref())),
            ("pacing", gone(self.pacing.as_ref(), other.pacing.as_ref())),
            (
                "notsent-lowat",
                gone(self.notsent_lowat.as_ref(), other.notsent_lowat.as_ref()),
            ),
            (
                "user-timeout",
                gone(self.user_timeout.as_ref(), other.user_timeout.as_ref()),
            ),
        ] {
            if gone {
                return wrong(
                    &format!("{}.{name}", zone.name()),
                    "cannot be taken back while the gateway runs; give a value, or start it again"
                        .into(),
                );
            }
        }
        Ok(())
    }

    fn check(&self, zone: Zone, mode: &Mode) -> Result<(), ConfigError> {
        let key = |name: &str| format!("{}.{name}", zone.name());
        if self.interfaces.is_empty() && *mode == Mode::Transparent {
            return wrong(
                zone.name(),
                format!("name an interface: --{} eth1", zone.name()),
            );
        }
        if self.interfaces.len() > MOST_LINKS as usize {
            return wrong(&key("interfaces"), format!("expected at most {MOST_LINKS}"));
        }
        if self.hold_last_ack && *mode != Mode::Transparent {
            return wrong(
                &key("hold-last-ack"),
                "only where connections are intercepted".into(),
            );
        }
        // A socket has one mark, and with several links it names the link.
        if self.hold_last_ack && self.interfaces.len() > 1 {
            return wrong(
                &key("hold-last-ack"),
                "only on a side with one interface".into(),
            );
        }
        for (place, name) in self.interfaces.iter().enumerate() {
            if self.interfaces[..place].contains(name) {
                return wrong(&key("interfaces"), format!("{name} is named twice"));
            }
            let ok = !name.is_empty()
                && name.len() < 16
                && name
                    .bytes()
                    .all(|b| b.is_ascii_graphic() && b != b'/' && b != b'"');
            if !ok {
                return wrong(
                    &key("interfaces"),
                    format!("'{name}' is no interface's name"),
                );
            }
        }
        if self
            .max_segment
            .is_some_and(|m| !(88..=32_767).contains(&m))
        {
            return wrong(
                &key("max-segment"),
                "expected 88 to 32767; without it the interface's MTU decides".into(),
            );
        }
        if self
            .buffer
            .is_some_and(|b| b.as_u64() < 4096 || b.as_u64() > 1 << 30)
        {
            return wrong(&key("buffer"), "expected 4KiB to 1GiB".into());
        }
        self.check_times_and_rates(key)
    }

    /// What the kernel would refuse or take for something else, so that a connection would stall or be without it.
    fn check_times_and_rates(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let out_of = |place: Option<u64>, range: std::ops::RangeInclusive<u64>| {
            place.is_some_and(|value| !range.contains(&value))
        };
        let rate = match self.pacing {
            Some(Pacing::Rate(rate)) => Some(rate.as_bits_per_second()),
            _ => None,
        };
        if out_of(rate, SLOWEST_PACE..=u64::MAX) {
            return wrong(
                &key("pacing"),
                "expected 12kb/s, which is one packet of 1500 bytes a second, or more; or even"
                    .into(),
            );
        }
        if out_of(self.notsent_lowat.map(Bytes::as_u64), 1..=u32::MAX.into()) {
            return wrong(
                &key("notsent-lowat"),
                "expected 1 byte to 4 GiB less one".into(),
            );
        }
        let user_timeout = self.user_timeout.map(Duration::as_ns);
        if out_of(user_timeout, MS..=MOST_USER_TIMEOUT_MS * MS) {
            return wrong(
                &key("user-timeout"),
                "expected 1ms to 2147483s; without it the kernel tries for some 15 minutes".into(),
            );
        }
        let keepalive = self.keepalive.map(Duration::as_ns);
        if out_of(keepalive, 1_000 * MS..=MOST_KEEPALIVE_S * 1_000 * MS) {
            return wrong(
                &key("keepalive"),
                "expected 1s to 32767s; without it, it is 10min".into(),
            );
        }
        Ok(())
    }
}

pub(crate) fn wrong<T>(key: &str, why: String) -> Result<T, ConfigError> {
    Err(ConfigError::Value {
        key: plain(key).into_owned(),
        why: plain(&why).into_owned(),
    })
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// What is no TOML, or has an unknown key: why, and where.
fn syntax(text: &str, error: &spans::Error) -> ConfigError {
    let at = error.at();
    let before = text.get(..at).unwrap_or(text);
    let line = line_at(text, at);
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    let why = plain(error.message());
    ConfigError::Syntax(format!("{why} (line {line}, column {column})"))
}

fn value<T: FromStr<Err: ToString>>(key: &str, text: &str) -> Result<T, ConfigError> {
    text.parse().or_else(|e: T::Err| wrong(key, e.to_string()))
}

fn address(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    endpoint::with_port(text).or_else(|problem| wrong(key, problem))
}

fn read<T: FromStr<Err: ToString>>(
    key: &str,
    text: Option<&str>,
) -> Result<Option<T>, ConfigError> {
    text.map(|t| value(key, t)).transpose()
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "the keys of a gateway's file"
)]
struct Raw {
    #[serde(default)]
    inside: RawZone,
    #[serde(default)]
    outside: RawZone,
    #[serde(default)]
    rule: Vec<RawRule>,
    #[serde(default)]
    limits: RawLimits,
    explicit: Option<RawExplicit>,
    workers: Option<u8>,
    port: Option<u16>,
    queue: Option<u16>,
    mark: Option<u16>,
    table: Option<u32>,
    drain: Option<String>,
    buffer_memory: Option<String>,
    unsplit_every: Option<u32>,
    log: Option<RawLog>,
}

#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a section with its keys: [log], file = ..."
)]
struct RawLog {
    file: std::path::PathBuf,
    size: Option<String>,
    lines_per_second: Option<u32>,
}

impl RawLog {
    fn read(self) -> Result<LogConfig, ConfigError> {
        let mut log = LogConfig::to(self.file);
        set(&mut log.size, read("log.size", self.size.as_deref())?);
        set(&mut log.lines_per_second, self.lines_per_second);
        Ok(log)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a section with its keys: [inside] or [outside], interfaces = [...]"
)]
struct RawZone {
    #[serde(default)]
    interfaces: Vec<String>,
    #[serde(default)]
    spread: Spread,
    congestion: Option<String>,
    max_segment: Option<u16>,
    buffer: Option<String>,
    pacing: Option<String>,
    #[serde(default)]
    harmonize: bool,
    notsent_lowat: Option<String>,
    user_timeout: Option<String>,
    keepalive: Option<String>,
    #[serde(default)]
    hold_last_ack: bool,
}

impl RawZone {
    fn read(self, zone: &str) -> Result<ZoneConfig, ConfigError> {
        let key = |name: &str| format!("{zone}.{name}");
        Ok(ZoneConfig {
            interfaces: self.interfaces,
            spread: self.spread,
            congestion: self.congestion,
            max_segment: self.max_segment,
            buffer: read(&key("buffer"), self.buffer.as_deref())?,
            pacing: read(&key("pacing"), self.pacing.as_deref())?,
            harmonize: self.harmonize,
            notsent_lowat: read(&key("notsent-lowat"), self.notsent_lowat.as_deref())?,
            user_timeout: read(&key("user-timeout"), self.user_timeout.as_deref())?,
            keepalive: read(&key("keepalive"), self.keepalive.as_deref())?,
            hold_last_ack: self.hold_last_ack,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a section with its keys: [[rule]], action = ..."
)]
struct RawRule {
    action: RawAction,
    side: Option<Zone>,
    client: Option<String>,
    server: Option<String>,
    #[serde(default)]
    ports: String,
    mss: Option<String>,
    min_bytes: Option<String>,
}

impl RawRule {
    fn read(&self, index: usize) -> Result<Rule, ConfigError> {
        let key = |name: &str| format!("rule {}: {name}", index + 1);
        let ports = self.ports.split(',').filter(|p| !p.trim().is_empty());
        let ports: Result<Vec<Ports>, _> = ports.map(|p| value(&key("ports"), p.trim())).collect();
        if self.min_bytes.is_some() && !matches!(self.action, RawAction::Split) {
            return wrong(&key("min-bytes"), "only with action = \"split\"".into());
        }
        Ok(Rule {
            action: match self.action {
                RawAction::Split => Action::Split,
                RawAction::Bypass => Action::Bypass,
                RawAction::Refuse => Action::Refuse,
            },
            side: self.side,
            client: read(&key("client"), self.client.as_deref())?,
            server: read(&key("server"), self.server.as_deref())?,
            ports: ports?,
            mss: read(&key("mss"), self.mss.as_deref())?,
            min_bytes: read(&key("min-bytes"), self.min_bytes.as_deref())?,
        })
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawAction {
    Split,
    Bypass,
    Refuse,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a section with its keys: [limits], connections = ..."
)]
struct RawLimits {
    connections: Option<usize>,
    connections_per_client: Option<usize>,
    waiting: Option<usize>,
    waiting_per_client: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a section with its keys: [explicit], listen = ..., target = ..."
)]
struct RawExplicit {
    listen: String,
    target: String,
}

const MS: u64 = 1_000_000;
/// One packet of 1500 bytes a second: below it a connection looks dead to whoever waits for it.
const SLOWEST_PACE: u64 = 12_000;
/// The kernel takes an int of milliseconds (TCP_USER_TIMEOUT, net/ipv4/tcp.c).
const MOST_USER_TIMEOUT_MS: u64 = i32::MAX as u64;
/// MAX_TCP_KEEPIDLE, include/net/tcp.h; its unit is the second, and 0 is refused.
const MOST_KEEPALIVE_S: u64 = 32_767;
/// Accepting sockets: by side and version of IP.
pub const PORTS_PER_WORKER: u16 = 4;
/// Interfaces of a side.
pub const MOST_LINKS: u32 = 16;
/// More than cores of one socket bring nothing, and all rules go to the kernel as one message: those of 64
/// are longer than it takes.
const MOST_WORKERS: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Asked;

    const WHOLE: &str = r#"
        workers = 2
        drain = "5s"
        buffer-memory = "256MiB"
        [inside]
        interfaces = ["eth1"]
        congestion = "reno"
        [outside]
        interfaces = ["eth2", "eth3"]
        buffer = "16MiB"
        pacing = "900Mb/s"
        keepalive = "60s"
        [[rule]]
        action = "bypass"
        ports = "22, 5000-6000"
        [[rule]]
        action = "refuse"
        server = "10.0.0.0/8"
        [limits]
        connections = 100
    "#;

    #[test]
    fn a_file_says_what_it_means() {
        let config = Config::parse(WHOLE).unwrap();
        config.check().unwrap();
        assert_eq!(config.zone(Zone::Outside).interfaces, ["eth2", "eth3"]);
        assert_eq!(
            config.zone(Zone::Outside).buffer,
            Some(Bytes::new(16 << 20))
        );
        assert_eq!(config.limits.connections, 100);
        assert_eq!(config.buffer_memory, Some(Bytes::new(256 << 20)));
        assert_eq!(config.drain, Duration::from_s(5));
        let of = |server: &str| {
            let asked = Asked {
                client: "192.0.2.1:9".parse().unwrap(),
                server: server.parse().unwrap(),
                side: Zone::Inside,
                mss: Some(1460),
            };
            config.rules.decide(asked).0
        };
        assert_eq!(of("10.0.0.1:5500"), Action::Bypass);
        assert_eq!(of("10.0.0.1:80"), Action::Refuse);
        assert_eq!(of("11.0.0.1:80"), Action::Split);
    }

    /// Who copies it has a gateway that runs.
    #[test]
    fn the_guides_file_can_be_meant() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/gateway.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let mut files = guide.split("```toml\n").skip(1);
        let mut file = || files.next().unwrap().split("```").next().unwrap();
        let (text, explicit) = (file(), file());
        let explicit = Config::parse(explicit).unwrap();
        explicit.check().unwrap();
        assert_ne!(explicit.mode, Mode::Transparent);
        let config = Config::parse(text).unwrap();
        config.check().unwrap();
        assert!(config.zone(Zone::Outside).buffer.is_some(), "{text}");
        // What is only shown must be right as well.
        let shown = text.replace("\n# ", "\n");
        let config = Config::parse(&shown).unwrap();
        assert!(config.zone(Zone::Outside).harmonize && config.zone(Zone::Outside).hold_last_ack);
    }

    #[test]
    fn a_rule_may_ask_for_what_a_syn_shows_and_a_log_has_bounds() {
        let text = "[[rule]]\naction = 'bypass'\nside = 'outside'\nmss = '8960..'\n\
                    [[rule]]\naction = 'split'\nmin-bytes = '64KiB'\n\
                    [log]\nfile = '/var/log/gateway.jsonl'\nsize = '1MiB'\n";
        let config = Config::parse(text).unwrap();
        let of = |side, mss| {
            config.rules.decide(Asked {
                client: "192.0.2.1:9".parse().unwrap(),
                server: "192.0.2.2:80".parse().unwrap(),
                side,
                mss: Some(mss),
            })
        };
        assert_eq!(of(Zone::Outside, 8960), (Action::Bypass, Some(0)));
        assert_eq!(of(Zone::Inside, 8960), (Action::Split, Some(1)));
        assert_eq!(config.rules.min_bytes(Some(1)), Some(Bytes::new(64 << 10)));
        assert_eq!(config.rules.min_bytes(None), None);
        let log = config.log.clone().unwrap();
        assert_eq!(
            (log.size, log.lines_per_second),
            (Bytes::new(1 << 20), 1_000)
        );
        let mut other = config.clone();
        other.log.as_mut().unwrap().size = Bytes::new(2 << 20);
        config.can_become(&other).unwrap();
        other.log = None;
        let error = config.can_become(&other).unwrap_err().to_string();
        assert!(error.starts_with("log.file: cannot change"), "{error}");
    }

    #[test]
    fn an_option_may_change_while_it_runs_but_not_go() {
        let zone = |text: &str| Config::parse(&format!("[outside]\n{text}")).unwrap();
        for (name, some, other) in [
            ("congestion", "'reno'", "'cubic'"),
            ("max-segment", "1000", "1200"),
            ("buffer", "'1MiB'", "'2MiB'"),
            ("pacing", "'1Mb/s'", "'2Mb/s'"),
            ("notsent-lowat", "'1MiB'", "'2MiB'"),
            ("user-timeout", "'1s'", "'2s'"),
        ] {
            let some = zone(&format!("{name} = {some}"));
            let other = zone(&format!("{name} = {other}"));
            some.can_become(&other).unwrap();
            zone("").can_become(&some).unwrap();
            let error = some.can_become(&zone("")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("outside.{name}: ")), "{error}");
        }
        // This has a value when none is given.
        zone("keepalive = '60s'").can_become(&zone("")).unwrap();
    }

    #[test]
    fn of_what_has_bounds_the_last_that_fits_is_taken_and_the_next_is_refused() {
        for (key, good, bad) in [
            ("max-segment", &["88", "32767"][..], &["87", "32768"][..]),
            (
                "buffer",
                &["'4KiB'", "'1GiB'"],
                &["'4095B'", "'1073741825B'"],
            ),
            (
                "pacing",
                &["'12kb/s'", "'400Gb/s'", "'even'"],
                &["'0b/s'", "'11999b/s'"],
            ),
            (
                "notsent-lowat",
                &["'1B'", "'4294967295B'"],
                &["'0B'", "'4GiB'"],
            ),
            (
                "user-timeout",
                &["'1ms'", "'2147483s'"],
                &["'0s'", "'999us'", "'2147484s'"],
            ),
            (
                "keepalive",
                &["'1s'", "'32767s'"],
                &["'0s'", "'1ms'", "'999ms'", "'32768s'", "'40000s'"],
            ),
        ] {
            let check = |value: &&str| {
                let text = format!(
                    "[inside]\ninterfaces = ['a']\n[outside]\ninterfaces = ['b']\n{key} = {value}"
                );
                Config::parse(&text).and_then(|c| c.check())
            };
            for value in good {
                assert_eq!(check(value), Ok(()), "{key} = {value}");
            }
            for value in bad {
                let error = check(value).unwrap_err().to_string();
                let place = format!("outside.{key}: expected ");
                assert!(error.starts_with(&place), "{key} = {value}: {error}");
            }
        }
        for key in [
            "connections",
            "connections-per-client",
            "waiting",
            "waiting-per-client",
        ] {
            let check = |value: u32| {
                let text = format!(
                    "[inside]\ninterfaces = ['a']\n[outside]\ninterfaces = ['b']\n[limits]\n{key} = {value}"
                );
                Config::parse(&text).and_then(|c| c.check())
            };
            assert_eq!(check(1), Ok(()));
            let error = check(0).unwrap_err().to_string();
            assert!(error.starts_with(&format!("limits.{key}: ")), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_said_with_its_place() {
        let error = |text: &str| {
            let config = Config::parse(text);
            let error = config.and_then(|c| c.check()).unwrap_err().to_string();
            error.lines().last().unwrap_or_default().to_owned()
        };
        for (text, expected) in [
            ("", "inside: name an interface: --inside eth1"),
            (
                "[inside]\ninterfaces = ['a']",
                "outside: name an interface: --outside eth1",
            ),
            (
                "[inside]\ninterfaces = ['a']\n[outside]\ninterfaces = ['a']",
                "inside: a is outside as well",
            ),
            ("unsplit-every = 0", "unsplit-every: expected 1 or more"),
            (
                "unsplit-every = 9\n[explicit]\nlisten = '[::]:1'\ntarget = '[::1]:2'",
                "unsplit-every: only where connections are intercepted",
            ),
            ("workers = 3", "workers: expected a power of two up to 16"),
            ("workers = 32", "workers: expected a power of two up to 16"),
            (
                "workers = 16\nqueue = 65521",
                "queue: expected room for 16 queues from it on",
            ),
            ("[inside]\nbufer = '1'", "unknown field `bufer`"),
            (
                "inside = 3",
                "invalid type: integer `3`, expected a section with its keys: [inside] or [outside]",
            ),
            (
                "rule = [7]",
                "invalid type: integer `7`, expected a section with its keys: [[rule]]",
            ),
            (
                "limits = 'none'",
                "invalid type: string \"none\", expected a section with its keys: [limits]",
            ),
            (
                "explicit = true",
                "invalid type: boolean `true`, expected a section with its keys: [explicit]",
            ),
            (
                "[inside]\ninterfaces = ['a', 'b', 'a']",
                "inside.interfaces: a is named twice",
            ),
            (
                "[explicit]\nlisten = '127.0.0.1:1'\ntarget = '127.0.0.1:0'",
                "explicit.target: expected a port",
            ),
            (
                "[[rule]]\naction = 'bypass'\nports = '9-1'",
                "rule 1: ports: '9-1'",
            ),
            (
                "[[rule]]\naction = 'split'\nmss = '9000-1'",
                "rule 1: mss: '9000-1' is no range",
            ),
            (
                "[[rule]]\naction = 'bypass'\nmin-bytes = '1MiB'",
                "rule 1: min-bytes: only with",
            ),
            (
                "[log]\nfile = 'x'\nsize = '1KiB'",
                "log.size: expected 4KiB or more",
            ),
            (
                "[log]\nfile = 'x'\nlines-per-second = 0",
                "log.lines-per-second: expected 1 or more",
            ),
            (
                "[[rule]]\naction = 'split'\nmss = '1460'\n[explicit]\nlisten = '127.0.0.1:1'\ntarget = '127.0.0.1:2'",
                "rule: mss and min-bytes are only for",
            ),
            (
                "[inside]\ninterfaces = ['a/b']",
                "inside.interfaces: 'a/b' is no",
            ),
        ] {
            assert!(error(text).starts_with(expected), "{text}: {}", error(text));
        }
    }
}
