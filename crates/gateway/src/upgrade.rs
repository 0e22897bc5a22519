//! What one gateway gives to the next on the same machine: a line for each part, with descriptors.
//!
//! The old one stands still, sends everything, and waits for a word after each line. Nothing is touched by the
//! new one until it has all and says so; then the old one says go and ends. If anything fails before that,
//! the old one goes on as if it had never been asked: it closes its descriptors only at the end.
//!
//! What goes: the socket that owns the table of nftables, the claim of the routing table, queues with the SYNs that
//! wait in them, listeners with the handshakes that wait there, and of each connection both sockets, its pipes with
//! the bytes in them and where its relay stands. What was learnt of paths is measured anew, but for hosts whose answers
//! take another way.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sys::control::Connection;
pub(crate) use sys::control::FDS_MAX;

use crate::config::{Config, Mode, Zone};
use crate::counters::Counts;
use crate::deferral::Progress;
use crate::one_way::Pair;
use crate::relay::Relay;
use crate::syn::Ends;

/// What both must have alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    explicit: Option<(SocketAddr, SocketAddr)>,
    interfaces: [Vec<String>; 2],
    workers: u8,
    port: u16,
    queue: u16,
    mark: u16,
    table: u32,
    #[serde(default)]
    hold_last_ack: [bool; 2],
}

impl Identity {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            explicit: match config.mode {
                Mode::Transparent => None,
                Mode::Explicit { listen, target } => Some((listen, target)),
            },
            interfaces: Zone::BOTH.map(|z| config.zone(z).interfaces.clone()),
            workers: config.workers,
            port: config.port,
            queue: config.queue,
            mark: config.mark,
            table: config.table,
            hold_last_ack: Zone::BOTH.map(|z| config.zone(z).hold_last_ack),
        }
    }
}

/// The first line. With it come the table's socket and the claim's, where anything is installed, and the
/// control socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Of this layout: who does not know it refuses.
    pub(crate) schema: u32,
    pub(crate) identity: Identity,
    /// Versions of IP that have a routing rule, by their address of all zeros; none in explicit mode.
    pub(crate) installed: Option<Vec<IpAddr>>,
    pub(crate) workers: u8,
    /// Of each link: it lives, its next hop has answered pings.
    #[serde(default)]
    pub(crate) links: Vec<[bool; 2]>,
}

/// The first line of each worker. With it come its listeners, and its queue.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) counts: Counts,
    /// Of each listener, whether it is for clients outside.
    pub(crate) listeners: Vec<bool>,
    pub(crate) queue: bool,
    /// And the queue of ACKs.
    #[serde(default)]
    pub(crate) last_acks: bool,
    /// Hosts whose answers take another way, and until when that is remembered, by the monotonic clock.
    #[serde(default)]
    pub(crate) one_way: Vec<(Pair, u64)>,
    /// Connections that follow, some on each line.
    pub(crate) connections: usize,
}

/// A connection. With it come its sockets (the client's, if there is one, then the server's), then of each of its
/// pipes the end to read and the end to write.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) ends: Ends,
    /// The client is outside.
    pub(crate) outside: bool,
    /// The link that it goes by, where the server's side has several.
    pub(crate) link: Option<usize>,
    pub(crate) stage: Stage,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Stage {
    Connecting {
        dscp: u8,
        #[serde(default)]
        answer_dscp: u8,
        answered: bool,
        progress: Progress,
        client: bool,
        #[serde(default)]
        mss: Option<u16>,
        #[serde(default)]
        rule: Option<usize>,
    },
    Carrying {
        since_ns: u64,
        relay: Box<Relay>,
        corked: [bool; 2],
        pipes: [bool; 2],
        /// The ceiling of this half's pace is found, or shared with others.
        #[serde(default)]
        paced: [bool; 2],
    },
}

/// A line with descriptors, and the other's word.
pub(crate) fn give(
    to: &mut Connection,
    what: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let deadline = Instant::now() + PATIENCE;
    to.send(&line, fds, deadline)?;
    let (answer, _) = to.receive(ANSWER_BYTES, deadline)?;
    match answer.as_slice() {
        OK => Ok(()),
        other => Err(io::Error::other(
            String::from_utf8_lossy(other).into_owned(),
        )),
    }
}

/// The next line and what came with it. The giver waits for [`accept`] or [`refuse`].
pub(crate) fn hear<T: DeserializeOwned>(
    from: &mut Connection,
) -> io::Result<(T, std::vec::IntoIter<OwnedFd>)> {
    let (line, fds) = from.receive(LINE_BYTES, Instant::now() + PATIENCE)?;
    match serde_json::from_slice(&line) {
        Ok(value) => Ok((value, fds.into_iter())),
        // An older or newer one, or its words why it does not.
        Err(e) => {
            let words = String::from_utf8_lossy(&line);
            let words: String = words.chars().take(200).collect();
            Err(io::Error::other(format!("{words} ({e})")))
        }
    }
}

pub(crate) fn accept(to: &Connection) -> io::Result<()> {
    say(to, OK)
}

pub(crate) fn refuse(to: &Connection, why: &str) {
    let _ = say(to, why.replace('\n', " ").as_bytes());
}

/// A word without descriptors.
pub(crate) fn say(to: &Connection, word: &[u8]) -> io::Result<()> {
    to.send(&[word, b"\n"].concat(), &[], Instant::now() + PATIENCE)
}

/// Waits for this word and no other.
pub(crate) fn expect(from: &mut Connection, word: &[u8]) -> io::Result<()> {
    let (line, _) = from.receive(ANSWER_BYTES, Instant::now() + PATIENCE)?;
    match line == word {
        true => Ok(()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&line).into_owned(),
        )),
    }
}

/// The next descriptor that a line promised.
pub(crate) fn next(fds: &mut impl Iterator<Item = OwnedFd>) -> io::Result<OwnedFd> {
    fds.next().ok_or_else(|| {
        io::Error::other("a descriptor is missing; is the limit of open files reached?")
    })
}

/// Of the layout of all these lines.
pub(crate) const SCHEMA: u32 = 1;
/// What the new one asks for.
pub(crate) const ASK: &[u8] = b"upgrade";
/// That was everything. Each word waits for the other's, since what follows a line is dropped.
pub(crate) const END: &[u8] = b"end";
/// It has everything.
pub(crate) const READY: &[u8] = b"ready";
/// From here on it is the gateway.
pub(crate) const GO: &[u8] = b"go";
const OK: &[u8] = b"ok";
/// For each line: meanwhile nothing moves.
const PATIENCE: Duration = Duration::from_secs(5);
const LINE_BYTES: usize = 1 << 20;
const ANSWER_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{Moved, Side, Step};

    #[test]
    fn a_relay_goes_on_where_it_stood() {
        let mut relay = Relay::new();
        relay.on_readable(Side::Client);
        relay.on_filled(Side::Client, Moved::Bytes(70_000));
        relay.on_drained(Side::Server, Moved::Bytes(30_000));
        relay.on_drained(Side::Server, Moved::NotNow);
        let text = serde_json::to_string(&relay).unwrap();
        let mut again: Relay = serde_json::from_str(&text).unwrap();
        assert_eq!(again.poll_step(), Step::Fill(Side::Client));
        again.on_writable(Side::Server);
        let drain = Step::Drain {
            to: Side::Server,
            bytes: 40_000,
            more: true,
        };
        assert_eq!(again.poll_step(), drain);
        assert_eq!(again.carried(Side::Client), 30_000);
    }
}
