//! What a transparent split-TCP gateway did, as `goodput gateway` and its trials keep it.

use serde::{Deserialize, Serialize};

use super::Certificate;

/// A gain of less is none that anybody would notice.
pub const GAINED: f64 = 1.05;

/// Fields of a reading of a gateway, beside `rtt_us` of the half that sends that way.
pub const GATEWAY_FIELDS: [&str; 4] = [
    "gateway_connections",
    "gateway_in_pipes_bytes",
    "gateway_syns_waiting",
    "gateway_held_ns",
];

/// One gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayRun {
    /// Its node in a lab; empty for this machine.
    pub name: String,
    /// Interfaces on the hosts' side.
    pub inside: Vec<String>,
    /// Interfaces on the network's side.
    pub outside: Vec<String>,
    /// Neither end knows of it.
    pub transparent: bool,
    /// Time of which all this is.
    pub watched_ns: u64,
    /// Connections that were split.
    pub split: u64,
    /// Of these, those that had not ended.
    pub live: u64,
    /// Most at once, looked at once a second.
    pub live_max: u64,
    /// Those that ended as their ends wished.
    pub ended: u64,
    /// Those that were reset.
    pub reset: u64,
    /// Of these, those with bytes that one end was told have arrived and the other did not acknowledge.
    pub undelivered: u64,
    /// Those bytes.
    pub undelivered_bytes: u64,
    /// Servers that had accepted when their client was gone.
    pub abandoned: u64,
    /// Connections that passed unsplit.
    pub passed: GatewayPassed,
    /// Connections that were answered as their server, the network or a rule answered.
    pub refused: GatewayRefused,
    /// From inside to outside.
    pub outward_bytes: u64,
    /// From outside to inside.
    pub inward_bytes: u64,
    /// Time that a SYN was held until its server had answered, mean of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_mean_ns: Option<u64>,
    /// The same of the second in which it was longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_slowest_ns: Option<u64>,
    /// Most SYNs that waited at once.
    pub waiting_max: u64,
    /// Most bytes between sockets at once.
    pub in_pipes_max_bytes: u64,
    /// Most pipes at once.
    pub pipes_max: u64,
    /// What the busiest connections carried together, mean of the seconds in which they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_bits_per_second: Option<u64>,
    /// What of it they would have carried unsplit, by the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsplit_bits_per_second: Option<u64>,
    /// The one over the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// The half inside, the half outside.
    pub halves: Vec<GatewayHalf>,
    /// Connections that carried most.
    pub talkers: Vec<GatewayTalker>,
    /// Links of sides that have several.
    pub links: Vec<GatewayLink>,
    /// Buffers that new connections get by what earlier ones measured.
    pub buffers: Vec<GatewayBuffer>,
    /// Connections that passed unsplit and were counted, the newest first.
    pub sampled: Vec<GatewaySampled>,
    /// The lab's accuracy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

/// Connections that passed unsplit, by why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayPassed {
    /// A rule said so.
    pub by_rule: u64,
    /// A limit was reached.
    pub at_limit: u64,
    /// The gateway lacked a means.
    pub for_lack: u64,
    /// To be counted, to hold the model against it.
    pub sampled: u64,
    /// Answers take another way.
    pub one_way: u64,
    /// Another one to the same server waited in vain.
    pub beside_silence: u64,
}

impl GatewayPassed {
    /// All of them.
    pub const fn all(&self) -> u64 {
        self.by_rule
            .saturating_add(self.at_limit)
            .saturating_add(self.for_lack)
            .saturating_add(self.sampled)
            .saturating_add(self.one_way)
            .saturating_add(self.beside_silence)
    }
}

/// Connections that were refused, by why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayRefused {
    /// A rule said so.
    pub by_rule: u64,
    /// The server did.
    pub by_server: u64,
    /// The server cannot be reached.
    pub unreachable: u64,
    /// The server did not answer.
    pub silent: u64,
}

impl GatewayRefused {
    /// All of them.
    pub const fn all(&self) -> u64 {
        self.by_rule
            .saturating_add(self.by_server)
            .saturating_add(self.unreachable)
            .saturating_add(self.silent)
    }
}

/// What the halves of the busiest connections on one side did as senders towards its hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayHalf {
    /// `inside` or `outside`.
    pub side: String,
    /// Smoothed round trip, mean by bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Smallest round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// What they acknowledged, mean of the seconds in which they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledged_bits_per_second: Option<u64>,
    /// Of the time with data outstanding, the part held back by that end's window.
    pub receiver_share: f64,
    /// The part held back by our send buffer.
    pub buffer_share: f64,
    /// Segments that were sent again, of all.
    pub retransmitted_share: f64,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayTalker {
    /// Who connected.
    pub client: String,
    /// To whom.
    pub server: String,
    /// From the client.
    pub there_bytes: u64,
    /// From the server.
    pub back_bytes: u64,
    /// The way that carried most, mean of the seconds in which it did.
    pub bits_per_second: u64,
    /// Smallest round trip of the client's half.
    pub rtt_client_ns: u64,
    /// Smallest round trip of the server's half.
    pub rtt_server_ns: u64,
    /// What held the sending half back when it was last seen.
    pub held_by: String,
    /// What it would have carried unsplit, by the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsplit_bits_per_second: Option<u64>,
}

/// A link of a side that has several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayLink {
    /// `inside` or `outside`.
    pub side: String,
    /// Its interface.
    pub interface: String,
    /// It was in use at the end.
    pub alive: bool,
    /// Its next hop answers pings.
    pub answers: bool,
    /// Connections on it at the end.
    pub connections: u64,
    /// Connections that were placed on it.
    pub placed: u64,
}

/// Buffers of new connections that go one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayBuffer {
    /// `inside` or `outside`.
    pub side: String,
    /// Hosts of these addresses.
    pub hosts: String,
    /// Smallest round trip that was seen.
    pub min_rtt_ns: u64,
    /// Most that was sent there in a second.
    pub sent_bits_per_second: u64,
    /// Most that came from there.
    pub received_bits_per_second: u64,
    /// Send buffer that is set; absent where the kernel's tuning is left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_bytes: Option<u64>,
    /// Receive buffer that is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_bytes: Option<u64>,
    /// In words.
    pub why: String,
}

/// A connection that passed unsplit to be counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewaySampled {
    /// Who connected.
    pub client: String,
    /// To whom.
    pub server: String,
    /// From the client.
    pub there_bytes: u64,
    /// From the server.
    pub back_bytes: u64,
    /// The way that carried more, while it did.
    pub bits_per_second: u64,
    /// So long.
    pub moving_ns: u64,
    /// What the model gives connections to the same server at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_bits_per_second: Option<u64>,
}
