//! Times without a word from the peer though data were waiting for its ACK.
//!
//! A peer acknowledges data within half a second whatever its application does (RFC 1122 section
//! 4.2.3.2). So where none of its packets comes for longer, though its window is open, either the path
//! lost data or ACKs, or the peer was gone. The silence lasts from its last packet, or from the first
//! data after it, to its next one.

use units::{Duration, Instant};

use crate::trace::facts::Mark;
use crate::trace::limits::Mark2;

/// A time without a packet from the peer, with data unacknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The peer's last packet, or the first data after it where that came later.
    pub from: Mark,
    /// Its next packet; where there is none, the last packet of the connection.
    pub to: Mark,
    /// Whether it came back.
    pub ended: bool,
    /// Packets with data that were sent meanwhile.
    pub attempts: u64,
}

/// What is known of one side's peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence {
    since: Mark2,
    attempts: u64,
    waiting: bool,
    longest: Vec<Outage>,
    count: u64,
    total: u64,
}

/// All of one side's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silences {
    /// The longest, in their order of time.
    pub longest: Vec<Outage>,
    /// How many there were.
    pub count: u64,
    /// How long in all.
    pub total: Duration,
}

impl Outage {
    /// How long it lasted.
    pub fn time(&self) -> Duration {
        self.to.time.saturating_since(self.from.time)
    }
}

impl Silence {
    /// This side sends data.
    #[inline]
    pub(crate) fn on_data(&mut self, now: Mark2) {
        if self.waiting {
            self.attempts += 1;
        } else {
            self.waiting = true;
            self.since = now;
            self.attempts = 1;
        }
    }

    /// A packet of the peer comes; `rtt` is the smoothed round trip with four times its variation, and
    /// `waits` says that some of this side's is still unacknowledged, and the peer's window open.
    #[inline]
    pub(crate) fn on_peer(&mut self, now: Mark2, rtt: impl FnOnce() -> u64, waits: bool) {
        if self.waiting {
            if now.0.saturating_sub(self.since.0) >= SILENT_NS_MIN {
                self.end(now, rtt(), true);
            }
            self.waiting = waits;
            self.since = now;
            self.attempts = 0;
        }
    }

    /// The connection ends at `now`.
    pub(crate) fn finish(&mut self, now: Mark2, rtt: u64) -> Silences {
        if self.waiting && self.attempts >= ATTEMPTS_MIN {
            self.end(now, rtt, false);
        }
        let mut longest = std::mem::take(&mut self.longest);
        longest.sort_by_key(|o| o.from.time);
        Silences {
            longest,
            count: self.count,
            total: Duration::from_ns(self.total),
        }
    }

    #[cold]
    fn end(&mut self, now: Mark2, rtt: u64, ended: bool) {
        let ns = now.0.saturating_sub(self.since.0);
        if ns < SILENT_NS_MIN.max(rtt.saturating_mul(4)) {
            return;
        }
        let mark = |m: Mark2| Mark {
            time: Instant::from_ns(m.0),
            frame: m.1,
        };
        let outage = Outage {
            from: mark(self.since),
            to: mark(now),
            ended,
            attempts: self.attempts,
        };
        self.count += 1;
        self.total = self.total.saturating_add(ns);
        self.longest.push(outage);
        if self.longest.len() > OUTAGES {
            // The longest stay, of those as long the earliest.
            self.longest.sort_by_key(|o| std::cmp::Reverse(o.time()));
            self.longest.truncate(OUTAGES);
        }
    }
}

/// Twice the longest delay of an ACK.
const SILENT_NS_MIN: u64 = 1_000_000_000;
/// Packets without an answer at the end that are more than a capture that ends.
const ATTEMPTS_MIN: u64 = 3;
const OUTAGES: usize = 4;
