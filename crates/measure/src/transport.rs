//! What payload travels by, and how a sender hands it to the kernel.

use serde::{Deserialize, Serialize};

/// What the payload travels by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    #[default]
    Tcp,
    /// Multipath TCP (RFC 8684) where both kernels have it, else TCP.
    Mptcp,
    /// Datagrams at a set rate.
    Udp,
    /// TLS 1.3 over TCP, without authentication.
    Tls,
    /// QUIC, without authentication.
    Quic,
}

/// How a sender hands its payload to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sending {
    /// write(2): the kernel copies.
    #[default]
    Write,
    /// MSG_ZEROCOPY: the kernel takes the pages, and says when it is done with them.
    ZeroCopy,
    /// sendfile(2) from a file in memory, or from [`Config::file`](crate::Config::file).
    Sendfile,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Mptcp, Self::Udp, Self::Tls, Self::Quic];

    /// Its name in flags and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Mptcp => "mptcp",
            Self::Udp => "udp",
            Self::Tls => "tls",
            Self::Quic => "quic",
        }
    }
}

impl Sending {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Write, Self::ZeroCopy, Self::Sendfile];

    /// Its name in flags and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::ZeroCopy => "zero-copy",
            Self::Sendfile => "sendfile",
        }
    }
}
