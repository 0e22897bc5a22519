//! What payload travels by, and how a sender hands it to the kernel.

use serde::{Deserialize, Serialize};

use crate::facts::FarFacts;
use crate::{Config, Direction, MeasureError};

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
    /// sendfile(2) from a file in memory, or from [`Config::file`].
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

/// Whether a far end can take part in a transfer. One from before these choices tells none of them,
/// would not see in the wish what it does not know, and so has to be asked first. MPTCP needs nobody's
/// leave: against an end without it the connections are plain TCP.
pub(crate) fn check_far(far: &FarFacts, config: &Config) -> Result<(), MeasureError> {
    let needs = |what: &str, has: &[String]| match has.iter().any(|name| name == what) {
        true => Ok(()),
        false => Err(lacks(far, what)),
    };
    if !matches!(config.transport, Transport::Tcp | Transport::Mptcp) {
        needs(config.transport.name(), &far.transports)?;
    }
    if config.direction == Direction::Down && config.sending != Sending::Write {
        needs(config.sending.name(), &far.sendings)?;
    }
    Ok(())
}

/// The same for a transport of messages alone, by its name.
pub(crate) fn check_name(far: &FarFacts, name: &str) -> Result<(), MeasureError> {
    match far.transports.iter().any(|known| known == name) {
        true => Ok(()),
        false => Err(lacks(far, name)),
    }
}

fn lacks(far: &FarFacts, what: &str) -> MeasureError {
    MeasureError::FarLacks {
        what: what.to_owned(),
        version: far.version.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_tells_nothing_gets_only_what_every_end_knows() {
        let old = FarFacts {
            version: "0.1.0".to_owned(),
            ..FarFacts::default()
        };
        let new = FarFacts {
            transports: Transport::ALL.map(|t| t.name().to_owned()).to_vec(),
            sendings: Sending::ALL.map(|s| s.name().to_owned()).to_vec(),
            ..FarFacts::default()
        };
        for transport in Transport::ALL {
            let config = Config {
                transport,
                ..Config::default()
            };
            assert!(check_far(&new, &config).is_ok());
            let plain = matches!(transport, Transport::Tcp | Transport::Mptcp);
            assert_eq!(check_far(&old, &config).is_ok(), plain, "{transport:?}");
        }
        for sending in Sending::ALL {
            for direction in [Direction::Up, Direction::Down] {
                let config = Config {
                    sending,
                    direction,
                    ..Config::default()
                };
                assert!(check_far(&new, &config).is_ok());
                let near = sending == Sending::Write || direction == Direction::Up;
                assert_eq!(check_far(&old, &config).is_ok(), near, "{sending:?}");
            }
        }
    }
}
