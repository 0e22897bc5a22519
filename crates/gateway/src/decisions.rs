//! What became of each connection, for a log.
//!
//! Workers put entries into a channel of bounded length and never wait for it; who writes the log takes them out. What
//! finds no room there is counted.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use serde::Serialize;
use units::Bytes;

use crate::config::{ConfigError, wrong};
use crate::deferral::Reason;

/// Where entries are written, and how much at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The file.
    pub file: PathBuf,
    /// Beyond this the file becomes an older one, of which the last is kept.
    pub size: Bytes,
    /// What comes faster is counted instead.
    pub lines_per_second: u32,
}

impl LogConfig {
    /// To this file, within the usual bounds.
    pub const fn to(file: PathBuf) -> Self {
        Self {
            file,
            size: Bytes::new(64 << 20),
            lines_per_second: 1_000,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.file.as_os_str().is_empty() {
            return wrong("log.file", "expected a file's name".into());
        }
        if self.size < LEAST_SIZE {
            return wrong("log.size", "expected 4KiB or more".into());
        }
        if self.lines_per_second == 0 {
            return wrong("log.lines-per-second", "expected 1 or more".into());
        }
        Ok(())
    }
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Both its halves stand.
    Split,
    /// Its SYN was passed on.
    Unsplit,
    /// Its SYN was answered by no, or by nothing.
    Refused,
    /// Its server had accepted, and its client was gone.
    Abandoned,
    /// A split one is over.
    Ended,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// No rule fits it, and what none fits is split.
    NoRule,
    /// A rule says so.
    Rule,
    /// A rule splits only what carries more than the last ones to its server's port did.
    Small,
    /// It is one of those that pass to be counted.
    Sample,
    /// Too many SYNs wait.
    Waiting,
    /// Too many of this client's.
    WaitingOfClient,
    /// Too many connections.
    Connections,
    /// Too many of this client's.
    ConnectionsOfClient,
    /// Its server's answers take another way.
    OneWay,
    /// Another one waits for this server in vain.
    Silence,
    /// The gateway takes nobody up any more.
    Draining,
    /// The gateway lacks something: a socket, memory.
    Failure,
    /// Its server refused.
    Server,
    /// The network says that it cannot be reached.
    Unreachable,
    /// Nobody answered in time.
    NoAnswer,
    /// It comes from the gateway itself.
    Loop,
    /// Its client did not complete its handshake, or its server ended it before.
    NoHandshake,
    /// Both ends have ended it.
    Closed,
    /// One end reset it, or failed.
    Reset,
    /// The gateway ended before it.
    Stopped,
}

impl From<Reason> for Why {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Waiting => Self::Waiting,
            Reason::WaitingOfClient => Self::WaitingOfClient,
            Reason::Connections => Self::Connections,
            Reason::ConnectionsOfClient => Self::ConnectionsOfClient,
        }
    }
}

/// One line. Pairs are of the direction from the client, then of that from the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When, in nanoseconds since 1970.
    #[serde(skip)]
    pub at_ns: u64,
    /// What became of it.
    pub event: Event,
    /// Why.
    pub why: Why,
    /// The rule that fits it, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// Who connected.
    pub client: SocketAddr,
    /// To whom.
    pub server: SocketAddr,
    /// The side that the client is on.
    pub side: &'static str,
    /// The largest segment that the client takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// How long its SYN was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_us: Option<u64>,
    /// How long both halves stood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasted_ms: Option<u64>,
    /// Bytes that the other half has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<[u64; 2]>,
    /// Bytes that the one end was told have arrived and the other did not acknowledge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undelivered: Option<[u64; 2]>,
}

/// The workers' end.
#[derive(Debug)]
pub(crate) struct Journal {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

/// The writer's end.
#[derive(Debug)]
pub struct Decisions {
    entries: Receiver<Entry>,
    lost: Arc<AtomicU64>,
}

pub(crate) fn journal() -> (Journal, Decisions) {
    let (put, take) = mpsc::sync_channel(ROOM);
    let lost: Arc<AtomicU64> = Arc::default();
    let journal = Journal {
        entries: put,
        lost: Arc::clone(&lost),
    };
    let decisions = Decisions {
        entries: take,
        lost,
    };
    (journal, decisions)
}

impl Journal {
    /// Never waits.
    pub(crate) fn put(&self, entry: Entry) {
        if self.entries.try_send(entry).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Decisions {
    /// The next one; `None` where there is none now.
    pub fn take(&self) -> Option<Entry> {
        self.entries.try_recv().ok()
    }

    /// Entries that found no room since this was last asked.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

/// Entries that wait to be written: of 50 ms at 160,000 a second.
const ROOM: usize = 8192;
const LEAST_SIZE: Bytes = Bytes::new(4096);

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            at_ns: 1,
            event: Event::Unsplit,
            why: Why::ConnectionsOfClient,
            rule: None,
            client: "10.0.0.1:4000".parse().unwrap(),
            server: "[fd00::1]:80".parse().unwrap(),
            side: "inside",
            mss: Some(1460),
            held_us: None,
            lasted_ms: None,
            carried: None,
            undelivered: None,
        }
    }

    #[test]
    fn a_line_says_what_is_known_and_no_more() {
        assert_eq!(
            serde_json::to_string(&entry()).unwrap(),
            r#"{"event":"unsplit","why":"connections-of-client","client":"10.0.0.1:4000","server":"[fd00::1]:80","side":"inside","mss":1460}"#
        );
    }

    #[test]
    fn who_decides_never_waits_and_what_finds_no_room_is_counted() {
        let (journal, decisions) = journal();
        for _ in 0..ROOM + 3 {
            journal.put(entry());
        }
        assert_eq!(decisions.take_lost(), 3);
        assert_eq!(decisions.take_lost(), 0);
        let taken = std::iter::from_fn(|| decisions.take()).count();
        assert_eq!(taken, ROOM);
    }
}
