//! What limits a connection, as data: causes, findings with their evidence, remedies, a verdict.

use units::Rate;

/// One thing that limits a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// One sentence with its numbers.
    pub title: String,
    /// 0..=1: how sure; see `explain::confidence` for how it is computed.
    pub confidence: f64,
    /// 0..=1: share of the sender's time that went to it.
    pub share: f64,
    /// Facts that show it, one a line, with the kernel's counter that they come from.
    pub evidence: Vec<String>,
    /// What to do about it, if anything.
    pub remedy: Option<Remedy>,
}

/// What limits a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The sender's buffer holds less than the path.
    SendBuffer,
    /// The receiver's window is smaller than the path.
    ReceiveWindow,
    /// Something between the hosts takes window scaling out of SYNs or rewrites windows.
    WindowScaling,
    /// Something between the hosts passes so many packets a second and no more.
    PacketRate,
    /// Packets are lost though no queue is full.
    Loss,
    /// The bottleneck's queue is too short for the congestion control's recovery.
    ShallowQueue,
    /// The path carries what it can.
    BottleneckReached,
    /// A host's CPUs had no time left.
    HostCpu,
    /// The bus between the sending host's memory and its interface takes no more.
    HostBus,
    /// One acknowledgment stands for so many segments that the window opens slowly.
    ThinnedAcks,
    /// The sender spent its time on what writing costs it by declaration.
    DeclaredCost,
    /// An application had nothing to send, paced itself, or did not read.
    Application,
    /// The transfer ended before it could reach the path's rate.
    ShortTransfer,
    /// The network held the sender back and nothing says why.
    NetworkUnknown,
    /// The connection took long to be made: SYNs were lost, or an old connection was in the way.
    ConnectionSetup,
    /// The path was interrupted for a time.
    Outage,
    /// From some point on nothing was delivered any more.
    StoppedDelivery,
    /// Large packets do not come through, and no ICMP says so.
    PathMtu,
    /// The server's application took its time before it answered.
    ServerThink,
    /// The client's application took its time before it asked.
    ClientThink,
    /// Requests were sent one after the other, a round trip each.
    RoundTrips,
    /// Short segments waited for delayed ACKs.
    Nagle,
}

/// What to change and what it would give.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// One sentence.
    pub summary: String,
    /// Where.
    pub host: RemedyHost,
    /// Lines for /etc/sysctl.d, ready to copy.
    pub sysctl: Vec<String>,
    /// Flags that do the same, or part of it, without privileges.
    pub flags: Vec<String>,
    /// The change as data, for a lab or a tuner to apply.
    pub settings: Vec<Setting>,
    /// Goodput to expect with `settings` applied.
    pub predicted: Option<Rate>,
    /// How that was computed.
    pub predicted_from: Option<String>,
    /// What it costs, and whom.
    pub cost: String,
}

/// Where a remedy is to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemedyHost {
    /// Where the command runs.
    Near,
    /// The other end.
    Far,
    /// Both ends.
    Both,
    /// Between them.
    Network,
}

/// One change. Deliberately exhaustive: who applies settings must know all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A sysctl of one host.
    Sysctl {
        /// Which.
        host: Host,
        /// Name, such as `net.ipv4.tcp_rmem`.
        name: String,
        /// Value as written to it.
        value: String,
    },
    /// The sender's congestion control.
    CongestionControl(String),
    /// Parallel connections.
    Streams(u16),
    /// Let the kernel size the socket buffer: the application must not set SO_SNDBUF (sender) or
    /// SO_RCVBUF (receiver).
    AutotuneBuffer(Host),
}

/// One end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The sending end.
    Sender,
    /// The receiving end.
    Receiver,
}

/// What the evidence means as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// One sentence for a busy reader.
    pub sentence: String,
    /// The main cause.
    pub cause: Option<Cause>,
    /// The path gives what it can.
    pub healthy: bool,
    /// False when the measurement cannot carry a verdict on the path.
    pub conclusive: bool,
}

impl Cause {
    /// Machine-readable name, as in `findings.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendBuffer => "send_buffer",
            Self::ReceiveWindow => "receive_window",
            Self::WindowScaling => "window_scaling",
            Self::PacketRate => "packet_rate",
            Self::Loss => "loss",
            Self::ShallowQueue => "shallow_queue",
            Self::BottleneckReached => "bottleneck_reached",
            Self::HostCpu => "host_cpu",
            Self::HostBus => "host_bus",
            Self::ThinnedAcks => "thinned_acks",
            Self::DeclaredCost => "declared_cost",
            Self::Application => "application",
            Self::ShortTransfer => "short_transfer",
            Self::NetworkUnknown => "network_unknown",
            Self::ConnectionSetup => "connection_setup",
            Self::Outage => "outage",
            Self::StoppedDelivery => "stopped_delivery",
            Self::PathMtu => "path_mtu",
            Self::ServerThink => "server_think",
            Self::ClientThink => "client_think",
            Self::RoundTrips => "round_trips",
            Self::Nagle => "nagle",
        }
    }
}

impl Remedy {
    /// Something to do that is no setting, and whose gain nobody can tell.
    pub fn advice(summary: &str, host: RemedyHost, cost: &str) -> Self {
        Self {
            summary: summary.to_owned(),
            host,
            sysctl: Vec::new(),
            flags: Vec::new(),
            settings: Vec::new(),
            predicted: None,
            predicted_from: None,
            cost: cost.to_owned(),
        }
    }
}

impl RemedyHost {
    /// Machine-readable name, as in `findings.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::Both => "both",
            Self::Network => "network",
        }
    }
}

impl Finding {
    /// What findings are ordered by.
    pub fn weight(&self) -> f64 {
        self.confidence * self.share
    }
}
