//! What a derivation gives.

use std::fmt;
use std::str::FromStr;

use throughput::{BufferModel, models};
use units::{Bytes, Duration, Rate};

use crate::facts::Facts;
use crate::key::Key;

/// What the host is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Rate of the path, and of a single connection over it.
    pub rate: Rate,
    /// Idle round trip.
    pub rtt: Duration,
    /// Connections that may be open at a time, at least 1; they share `rate`.
    pub connections: u32,
    /// What the host is.
    pub role: Role,
    /// Share of packets that the path loses without a full queue, where that was measured.
    pub loss_rate: Option<f64>,
}

/// What a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Few long transfers at the path's rate: a data-transfer node.
    Dtn,
    /// Many short answers.
    Web,
    /// Forwards for others, or splits their connections.
    Gateway,
}

/// The steps, and what needs none.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What was asked for.
    pub request: Request,
    /// Bytes in flight that fill the path: rate x round trip.
    pub window: Bytes,
    /// Receive buffer below which the window does not fit: window / share of a buffer that is window.
    pub receive_buffer_min: Bytes,
    /// Rate that the buffers allow one connection today; `None` where they are unknown.
    pub rate_before: Option<Rate>,
    /// The same afterwards.
    pub rate_after: Option<Rate>,
    /// What to change, in the order in which it is done; main gain first.
    pub steps: Vec<Step>,
    /// What needs no change.
    pub enough: Vec<Enough>,
    /// What would help and cannot be done here.
    pub cannot: Vec<Cannot>,
    /// What others advise and is not worth doing on this host, or has to be done elsewhere.
    pub advice: Vec<Advice>,
    /// What the buffers may take.
    pub memory: Memory,
    /// Why the plan must not be applied as it is.
    pub refused: Option<String>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub key: Key,
    /// Its value now, as read.
    pub old: String,
    /// Its value then.
    pub new: String,
    /// The formula with its numbers, or the reason.
    pub why: String,
    /// What it costs; empty where nothing.
    pub cost: String,
    /// Where it acts.
    pub scope: Scope,
    /// From when on it acts.
    pub from: &'static str,
    /// What outlasts a restart of the host.
    pub restart: &'static str,
    /// Who else writes it.
    pub writers: Vec<String>,
}

/// Where a step acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The machine with all its namespaces.
    Host,
    /// One network namespace.
    Namespace,
    /// One device.
    Device,
}

/// A value that needs no change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enough {
    /// What.
    pub key: Key,
    /// Its value.
    pub value: String,
    /// Why that is enough.
    pub why: String,
}

/// What would help and cannot be done here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cannot {
    /// What.
    pub key: Key,
    /// Why not, and where it can.
    pub why: String,
}

/// Advice about something that is in no step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What it is about, such as a key.
    pub about: String,
    /// One sentence.
    pub text: String,
}

/// Memory for buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All connections together at the path's rate: 2 x rate x round trip.
    pub usual: Bytes,
    /// All connections with both buffers at their maximum.
    pub worst: Bytes,
    /// What `connections` windows of the whole path need: connections x window / share.
    pub needed: Bytes,
    /// From where on the kernel shrinks windows (`tcp_mem`, the second) after the plan; `None` where the namespace hides it.
    pub limit: Option<Bytes>,
}

impl Request {
    /// One connection, no known loss.
    pub const fn new(rate: Rate, rtt: Duration, role: Role) -> Self {
        Self {
            rate,
            rtt,
            connections: 1,
            role,
            loss_rate: None,
        }
    }
}

impl Plan {
    pub(crate) fn new(request: &Request, facts: &Facts) -> Self {
        let window = models::bdp(request.rate, request.rtt);
        let share = BufferModel::LINUX.receive_window_fraction;
        let rate_before = rate_of(
            facts.triple("net.ipv4.tcp_rmem").map(|sizes| sizes[2]),
            facts.triple("net.ipv4.tcp_wmem").map(|sizes| sizes[2]),
            request,
        );
        Self {
            request: request.clone(),
            window,
            receive_buffer_min: Bytes::new(divided(window.as_u64(), share)),
            rate_before,
            rate_after: rate_before,
            steps: Vec::new(),
            enough: Vec::new(),
            cannot: Vec::new(),
            advice: Vec::new(),
            memory: Memory::default(),
            refused: None,
        }
    }

    /// Adds a step, or what stands in its way: a value that is absent or cannot be written.
    pub(crate) fn change(&mut self, facts: &Facts, wanted: Wanted) {
        let Wanted {
            key,
            new,
            why,
            cost,
            scope,
            from,
        } = wanted;
        match facts.values.get(&key) {
            None => self.cannot(key, absent(facts, scope).to_owned()),
            Some(value) if !value.writable => self.cannot(key, read_only(facts, scope).to_owned()),
            Some(value) => self.steps.push(Step {
                restart: lasting(&key),
                writers: facts.writers.get(&key).cloned().unwrap_or_default(),
                old: value.text.clone(),
                key,
                new,
                why,
                cost,
                scope,
                from,
            }),
        }
    }

    pub(crate) fn enough(&mut self, key: Key, value: impl Into<String>, why: impl Into<String>) {
        let (value, why) = (value.into(), why.into());
        self.enough.push(Enough { key, value, why });
    }

    pub(crate) fn cannot(&mut self, key: Key, why: impl Into<String>) {
        let why = why.into();
        self.cannot.push(Cannot { key, why });
    }

    pub(crate) fn advise(&mut self, about: &str, text: impl Into<String>) {
        self.advice.push(Advice {
            about: about.to_owned(),
            text: text.into(),
        });
    }

    /// The value that a sysctl has after the plan.
    pub fn value_after<'a>(&'a self, name: &str, facts: &'a Facts) -> Option<&'a str> {
        let step = self.steps.iter().find(|s| s.key.as_sysctl() == Some(name));
        step.map(|s| s.new.as_str()).or_else(|| facts.sysctl(name))
    }
}

/// A change that is wanted; whether it can be made the facts say.
pub(crate) struct Wanted {
    pub(crate) key: Key,
    pub(crate) new: String,
    pub(crate) why: String,
    pub(crate) cost: String,
    pub(crate) scope: Scope,
    pub(crate) from: &'static str,
}

impl Wanted {
    /// A sysctl of the namespace that costs nothing and acts on new connections.
    pub(crate) fn sysctl(name: &str, new: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            key: Key::sysctl(name),
            new: new.into(),
            why: why.into(),
            cost: String::new(),
            scope: Scope::Namespace,
            from: NEW_CONNECTIONS,
        }
    }
}

pub(crate) const NEW_CONNECTIONS: &str = "new connections";
pub(crate) const AT_ONCE: &str = "at once";

/// Rate that both buffers allow over the path, at most the path's.
pub(crate) fn rate_of(receive: Option<u64>, send: Option<u64>, request: &Request) -> Option<Rate> {
    let model = BufferModel::LINUX;
    let received = model.receive_window(Bytes::new(receive?));
    let sent = model.send_payload(Bytes::new(send?));
    let rate = models::window_limit(received.min(sent), request.rtt)?;
    Some(rate.min(request.rate))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates; neither side is below zero"
)]
pub(crate) fn divided(bytes: u64, share: f64) -> u64 {
    (bytes as f64 / share.max(0.01)).ceil() as u64
}

fn absent(facts: &Facts, scope: Scope) -> &'static str {
    match (facts.first_namespace, scope) {
        (false, Scope::Host) => {
            "absent in this network namespace: it is the machine's; run tune on the host"
        }
        _ => "this kernel does not have it",
    }
}

fn read_only(facts: &Facts, scope: Scope) -> &'static str {
    match (facts.first_namespace, scope) {
        (false, Scope::Host) => {
            "read-only in this network namespace: it is the machine's; run tune on the host"
        }
        _ => {
            "read-only here: a container or a hardened /proc; start the container with this sysctl, or run tune on the host"
        }
    }
}

fn lasting(key: &Key) -> &'static str {
    match key {
        Key::Sysctl(_) => "kept by the drop-in file",
        Key::File(path) if path.starts_with("/proc/irq/") => {
            "lost; irqbalance may change it sooner"
        }
        Key::File(_) => "lost: needs a tuned profile or a udev rule",
        Key::Qdisc(_) => "default_qdisc of the drop-in gives it to devices made later",
        Key::Ring(..) | Key::Offload(..) | Key::AdaptiveRx(_) => {
            "lost: keep it with the file of --as link"
        }
    }
}

impl Role {
    /// As typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dtn => "dtn",
            Self::Web => "web",
            Self::Gateway => "gateway",
        }
    }

    /// In words.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Dtn => "data-transfer node",
            Self::Web => "web server",
            Self::Gateway => "gateway",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "dtn" => Ok(Self::Dtn),
            "web" => Ok(Self::Web),
            "gateway" => Ok(Self::Gateway),
            _ => Err(format!("'{text}' is no role; expected dtn, web or gateway")),
        }
    }
}

impl Scope {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Namespace => "namespace",
            Self::Device => "device",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
