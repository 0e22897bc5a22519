//! Links of blocks over QUIC (RFC 9000), for paths on which TCP cannot: buffers that hold it, losses that its congestion
//! control takes for queues.
//!
//! A link is a connection with one stream, and looks to its threads like any other socket: one end of a pair, whose other
//! end [`engine`] joins to the stream. So blocks, confirmations and resumption know nothing of it. QUIC's own TLS 1.3 is all
//! the encryption there is, by the cipher that was agreed; the greeting and both proofs of the session's key follow on the
//! stream, bound to that connection's secret as over TCP ([`crate::link`]).
//!
//! What is said stays on TCP: so both sides know each other before the first datagram, and a path that carries none costs a
//! word and no session.
//!
//! Strangers get no answer at all. A connection's first packet goes by a name that only who has the key can make
//! ([`Names`]); who has it proves its address by a Retry packet (RFC 9000, section 8.1.2) before anything is remembered
//! of it, and has a window of 64 KiB until it has proved the key.

mod carriage;
mod control;
pub(crate) mod counts;
mod door;
mod engine;

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn_proto::ConnectionId;
use serde::{Deserialize, Serialize};
use units::Rate;

use crate::key::{Key, SessionId, nonce};

pub(crate) use carriage::Towards;
pub use carriage::{Carriage, Open};
pub use counts::Counts;
pub use door::{Door, Expected};
pub(crate) use engine::{DIAL, Quic, SILENCE};

/// What carries blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP.
    #[default]
    Tcp,
    /// QUIC, and TCP where the path carries none.
    Quic,
    /// TCP, until it shows that it cannot and QUIC that it can.
    Auto,
}

impl Transport {
    /// Its name in flags, messages and run folders.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
            Self::Auto => "auto",
        }
    }
}

/// A socket for UDP where a listener is: at its address, on the same port.
///
/// # Errors
/// As bind(2).
pub fn beside(listener: &TcpListener) -> io::Result<UdpSocket> {
    UdpSocket::bind(listener.local_addr()?)
}

/// A socket for UDP on any port, to send to somebody from: at this address, or at the kernel's choice.
///
/// # Errors
/// As bind(2).
pub fn towards(from: Option<IpAddr>, peer: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((from.unwrap_or(any), 0))
}

/// This side's end of a link over QUIC.
pub struct Pipe {
    socket: UnixStream,
    ties: Arc<Ties>,
}

/// What a link's threads and the one that moves its packets share.
struct Ties {
    /// What only the two ends of this connection know (RFC 8446, section 7.5).
    secret: [u8; 32],
    /// The other side has proved the session's key.
    is_proven: AtomicBool,
    /// Bytes a second that it may send; the greatest for no limit.
    limit: AtomicU64,
    /// What the connection counted after the thread's last turn.
    counts: Mutex<Counts>,
    waker: Arc<Waker>,
}

impl Ties {
    fn count(&self, counts: Counts) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Ends the sleep of a thread that waits in poll(2).
#[derive(Debug)]
struct Waker(UnixStream);

impl Waker {
    fn wake(&self) {
        // Where it is full, it wakes anyway.
        let _ = io::Write::write(&mut &self.0, &[0]);
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

impl Pipe {
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            ties: Arc::clone(&self.ties),
        })
    }

    pub(crate) const fn socket(&self) -> &UnixStream {
        &self.socket
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.ties.secret
    }

    /// The other side has proved that it holds the key.
    pub(crate) fn prove(&self) {
        self.ties.is_proven.store(true, Ordering::Release);
        self.ties.waker.wake();
    }

    /// What its connection counts.
    pub(crate) fn counts(&self) -> Counts {
        *self
            .ties
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends at most so fast from now on.
    pub(crate) fn set_limit(&self, rate: Rate) {
        let bytes = (rate.as_bits_per_second() / 8).max(1);
        self.ties.limit.store(bytes, Ordering::Relaxed);
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What the first packets of a session's connections go by (RFC 9000, section 7.2): eight bytes of chance, and twelve that
/// only who holds the key can make of them. Whoever saw one may use it again, and gets to the proofs at most.
#[derive(Clone, Debug)]
struct Names {
    session: SessionId,
    key: Key,
}

impl Names {
    const CHANCE: usize = 8;
    const BYTES: usize = 20;

    fn of(&self, chance: [u8; Self::CHANCE]) -> [u8; Self::BYTES] {
        let said = [&self.session.0[..], &chance].concat();
        let proof = self.key.derived("goodput copy 2026 quic name", &said);
        let mut name = [0; Self::BYTES];
        name[..Self::CHANCE].copy_from_slice(&chance);
        name[Self::CHANCE..].copy_from_slice(&proof[..Self::BYTES - Self::CHANCE]);
        name
    }

    fn new_one(&self) -> io::Result<ConnectionId> {
        let mut chance = [0; Self::CHANCE];
        chance.copy_from_slice(&nonce()?[..Self::CHANCE]);
        Ok(ConnectionId::new(&self.of(chance)))
    }

    /// Whether it is one of this session's. What is compared is no secret of the next connection's, and who guesses at it
    /// sees no answer.
    fn knows(&self, name: &[u8]) -> bool {
        match name.first_chunk() {
            Some(chance) => self.of(*chance) == name,
            None => false,
        }
    }
}

/// The sessions of which first packets are known at a socket.
#[derive(Clone, Debug, Default)]
struct Roll(Arc<Mutex<Vec<Names>>>);

impl Roll {
    fn of(names: Names) -> Self {
        let roll = Self::default();
        roll.lock().push(names);
        roll
    }

    fn new_one(&self) -> io::Result<ConnectionId> {
        let names = self.lock().first().cloned();
        names.ok_or_else(|| no_quic("no session"))?.new_one()
    }

    fn knows(&self, name: &[u8]) -> bool {
        self.lock().iter().any(|names| names.knows(name))
    }

    fn forget(&self, session: SessionId) {
        self.lock().retain(|names| names.session != session);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Names>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_quic(words: &str) -> io::Error {
    io::Error::new(ErrorKind::Unsupported, words.to_owned())
}

#[cfg(test)]
mod tests;
