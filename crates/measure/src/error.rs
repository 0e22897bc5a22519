//! Why a measurement did not happen: what was wrong, whose fault it is, what to try next.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use fault::Failure;
use units::Duration;

use crate::protocol::PROTOCOL;

/// Which end of a transfer, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The host that the client runs on.
    Near,
    /// The host that was named.
    Far,
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What was asked for cannot be done, or the user stopped it.
    Usage,
    /// The host that the command runs on.
    ThisHost,
    /// The host that was named.
    FarHost,
    /// What lies between, name service included.
    Network,
}

/// Why a measurement did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The configuration asks for something impossible.
    #[error("{0}")]
    Config(String),
    /// The target is not a host, `host:port` or address.
    #[error(
        "'{target}' is not a target: {problem}; expected HOST, HOST:PORT, [IPv6]:PORT or [IPv6%INTERFACE]:PORT"
    )]
    Target {
        /// What was typed.
        target: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The name service knows no address.
    #[error("the name '{host}' has no address: {source}; check the spelling or name an IP address")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// No route, or a router or host said that it cannot be reached.
    #[error("{addr} cannot be reached: {source}; check the route to it (ip route get)")]
    Unreachable {
        /// The far end.
        addr: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Nobody listens on that port.
    #[error(
        "{addr} refused the connection: nobody listens there; start `goodput serve` on that host \
         or name the port that it uses"
    )]
    Refused {
        /// The far end.
        addr: SocketAddr,
    },
    /// No answer to the SYN.
    #[error(
        "{addr} did not answer within {after}: the host is down or a firewall drops the packets; \
         open TCP port {port} there", port = addr.port()
    )]
    ConnectTimeout {
        /// The far end.
        addr: SocketAddr,
        /// How long was waited.
        after: Duration,
    },
    /// Connected, but no greeting came.
    #[error(
        "{addr} accepted the connection but said nothing within {after}: another program may have that \
         port (an iperf3 server is measured as iperf3://HOST:PORT), or a proxy stands between; start \
         `goodput serve` there or name its port"
    )]
    Silent {
        /// The far end.
        addr: SocketAddr,
        /// How long was waited.
        after: Duration,
    },
    /// Another program answered.
    #[error(
        "{addr} is not goodput: it {seen}; start `goodput serve` on that host or name its port"
    )]
    NotGoodput {
        /// The far end.
        addr: SocketAddr,
        /// What it did instead of greeting.
        seen: String,
    },
    /// No iperf3 server answered.
    #[error(
        "{addr} is not an iperf3 server: it {seen}; start `iperf3 -s` or `goodput serve --iperf3` \
         there, or name its port"
    )]
    NotIperf3 {
        /// The far end.
        addr: SocketAddr,
        /// What it did instead.
        seen: String,
    },
    /// Both ends are goodput but speak different protocols.
    #[error(
        "the far goodput speaks measurement protocol {theirs}, this one {ours}; update the {older} \
         one", older = if theirs < ours { "far" } else { "near" }
    )]
    VersionMismatch {
        /// Our protocol number.
        ours: u16,
        /// The far end's.
        theirs: u16,
    },
    /// All sessions of the far end are taken, or all that this address may have.
    #[error("{}", busy_text(*addr, *sessions, *per_address))]
    Busy {
        /// The far end.
        addr: SocketAddr,
        /// How many it serves at once.
        sessions: u32,
        /// How many one address may have, if that is what stands in the way.
        per_address: Option<u32>,
    },
    /// The token cannot be had from its file.
    #[error("the token file {}: {problem}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The far end wants a token and none was given.
    #[error("{addr} wants a token: name the file that holds it with --token-file")]
    TokenWanted {
        /// The far end.
        addr: SocketAddr,
    },
    /// The far end did not accept the token.
    #[error("{addr} refuses the token: the two ends do not have the same one")]
    TokenRefused {
        /// The far end.
        addr: SocketAddr,
    },
    /// The far end did not prove that it has the token.
    #[error(
        "{addr} did not prove that it has the token; start it with --token-file, or leave the option \
         out here if it is to have none"
    )]
    TokenUnproven {
        /// The far end.
        addr: SocketAddr,
    },
    /// The far end allows less than was asked for.
    #[error("the far end refuses: {0}")]
    FarLimit(String),
    /// The far end is too old for what was asked for.
    #[error(
        "the far goodput (version {version}) does not know '{what}'; update it, or measure without"
    )]
    FarLacks {
        /// The transport or way of sending.
        what: String,
        /// Its version.
        version: String,
    },
    /// Datagrams did not come through.
    #[error("the far end failed: {detail}; open UDP port {port} there beside TCP port {port}")]
    NoDatagrams {
        /// What it missed.
        detail: String,
        /// The port.
        port: u16,
    },
    /// The far end failed and said why.
    #[error("the far end failed: {0}")]
    FarFailed(String),
    /// The control connection broke or fell silent.
    #[error("the far end vanished {when}: {detail}")]
    PeerVanished {
        /// What was under way.
        when: &'static str,
        /// What happened to the connection.
        detail: String,
    },
    /// A data connection broke in the middle of a transfer.
    #[error(
        "a data connection broke during the transfer: {0}; a firewall or middlebox may cut long or \
         parallel connections"
    )]
    StreamBroken(String),
    /// The congestion control is not there or not allowed.
    #[error("{}", congestion_text(*end, name, *permitted, available))]
    Congestion {
        /// Where it is missing.
        end: End,
        /// What was asked for.
        name: String,
        /// False when the kernel has it, but not for unprivileged users.
        permitted: bool,
        /// What can be used there.
        available: Vec<String>,
    },
    /// The server's address cannot be had.
    #[error("cannot listen on {addr}: {source}; {}", bind_hint(source))]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// This host could not provide a socket, a thread or an option.
    #[error("this host cannot {what}: {source}")]
    Local {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The far end sent something that the protocol does not allow.
    #[error("the far end broke protocol {PROTOCOL}: {0}; it may be damaged or not goodput at all")]
    Protocol(String),
    /// One of several hosts that send to each other.
    #[error("rank {name}: {error}")]
    Rank {
        /// The host.
        name: String,
        /// What befell it.
        error: Box<Self>,
    },
    /// The user stopped it before there was anything to tell.
    #[error("stopped by the user")]
    Interrupted,
}

impl MeasureError {
    /// Whose fault this is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Config(_)
            | Self::Target { .. }
            | Self::FarLimit(_)
            | Self::TokenFile { .. }
            | Self::TokenWanted { .. }
            | Self::TokenRefused { .. }
            | Self::Interrupted => Fault::Usage,
            Self::Rank { error, .. } => error.fault(),
            Self::Bind { .. } | Self::Local { .. } | Self::Congestion { end: End::Near, .. } => {
                Fault::ThisHost
            }
            Self::VersionMismatch { ours, theirs } if ours < theirs => Fault::ThisHost,
            Self::Resolve { .. }
            | Self::Unreachable { .. }
            | Self::ConnectTimeout { .. }
            | Self::NoDatagrams { .. }
            | Self::PeerVanished { .. }
            | Self::StreamBroken(_) => Fault::Network,
            Self::Refused { .. }
            | Self::Silent { .. }
            | Self::NotGoodput { .. }
            | Self::NotIperf3 { .. }
            | Self::VersionMismatch { .. }
            | Self::Busy { .. }
            | Self::TokenUnproven { .. }
            | Self::FarFailed(_)
            | Self::FarLacks { .. }
            | Self::Congestion { end: End::Far, .. }
            | Self::Protocol(_) => Fault::FarHost,
        }
    }
}

/// What a failed connect means to the user.
pub(crate) fn connect_error(addr: SocketAddr, after: Duration, error: io::Error) -> MeasureError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => MeasureError::Refused { addr },
        io::ErrorKind::TimedOut => MeasureError::ConnectTimeout { addr, after },
        io::ErrorKind::Interrupted => MeasureError::Interrupted,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::InvalidInput => MeasureError::Unreachable {
            addr,
            source: error,
        },
        io::ErrorKind::ConnectionReset => MeasureError::NotGoodput {
            addr,
            seen: "reset the connection at once".to_owned(),
        },
        _ => MeasureError::Local {
            what: "connect",
            source: error,
        },
    }
}

fn busy_text(addr: SocketAddr, sessions: u32, per_address: Option<u32>) -> String {
    match per_address {
        None => {
            format!("{addr} is busy: all {sessions} of its sessions are taken; try again later")
        }
        Some(most) => format!(
            "{addr} is busy: this address has all {most} sessions that one may have there; try again \
             later"
        ),
    }
}

fn congestion_text(end: End, name: &str, permitted: bool, available: &[String]) -> String {
    let host = if end == End::Near {
        "this host"
    } else {
        "the far host"
    };
    let list = if available.is_empty() {
        "none known".to_owned()
    } else {
        available.join(", ")
    };
    if permitted {
        format!(
            "congestion control '{name}' is not available on {host}; available: {list}; \
             try `modprobe tcp_{name}` there"
        )
    } else {
        format!(
            "congestion control '{name}' is not permitted without CAP_NET_ADMIN on {host}; \
             permitted: {list}; add it to net.ipv4.tcp_allowed_congestion_control there"
        )
    }
}

fn bind_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "another server has the port: stop it or choose another with --listen ADDRESS:PORT"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "this host does not have that address (see ip addr)",
        _ => "try another address or port",
    }
}

impl From<MeasureError> for Failure {
    fn from(error: MeasureError) -> Self {
        match error.fault() {
            // Whichever end is the older one: this machine can run goodput, the two do not go together.
            _ if matches!(error, MeasureError::VersionMismatch { .. }) => Self::far(error),
            Fault::Usage => Self::usage(error),
            Fault::ThisHost => Self::here(error),
            Fault::FarHost | Fault::Network => Self::far(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_fault_and_the_next_step() {
        let addr: SocketAddr = "192.0.2.1:5210".parse().unwrap();
        let refused = MeasureError::Refused { addr };
        assert_eq!(refused.fault(), Fault::FarHost);
        assert!(refused.to_string().contains("start `goodput serve`"));
        let timeout = MeasureError::ConnectTimeout {
            addr,
            after: Duration::from_s(5),
        };
        assert_eq!(
            timeout.to_string(),
            "192.0.2.1:5210 did not answer within 5 s: the host is down or a firewall drops the \
             packets; open TCP port 5210 there"
        );
    }

    #[test]
    fn the_older_end_is_to_be_updated() {
        let older_far = MeasureError::VersionMismatch { ours: 2, theirs: 1 };
        assert_eq!(older_far.fault(), Fault::FarHost);
        assert!(older_far.to_string().ends_with("update the far one"));
        let older_near = MeasureError::VersionMismatch { ours: 1, theirs: 2 };
        assert_eq!(older_near.fault(), Fault::ThisHost);
        assert!(older_near.to_string().ends_with("update the near one"));
    }

    #[test]
    fn a_missing_congestion_control_lists_what_there_is() {
        let error = MeasureError::Congestion {
            end: End::Far,
            name: "bbr3".to_owned(),
            permitted: true,
            available: vec!["reno".to_owned(), "cubic".to_owned()],
        };
        assert_eq!(error.fault(), Fault::FarHost);
        assert!(error.to_string().contains("available: reno, cubic"));
    }
}
