//! What cannot be kept: bytes that one peer was told have arrived, and the other peer never got.

use std::os::fd::AsFd;

use sys::transparent;
use units::{Duration, Instant};

use super::{Carrying, State, Worker};
use crate::decisions::Why;
use crate::relay::Side;
use crate::syn::Ends;

/// How much is said of it.
#[derive(Debug)]
pub(super) struct Said {
    since: Instant,
    lines: u32,
    unsaid: u64,
}

impl Said {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            lines: 0,
            unsaid: 0,
        }
    }

    /// Whether another line may be said; with how many were not before it.
    pub(super) fn another(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_since(self.since) >= SECOND {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines == LINES_A_SECOND {
            self.unsaid += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

impl Worker {
    /// A connection is about to be reset: counts what is lost with it, from the client and from the server.
    pub(super) fn note_undelivered(&mut self, slot: usize, now: Instant) -> [u64; 2] {
        let State::Carrying(carrying) = &self.slots[slot].state else {
            return [0; 2];
        };
        let lost = Side::BOTH.map(|from| carrying.undelivered(from));
        let all: u64 = lost.iter().sum();
        if all == 0 {
            return lost;
        }
        self.counters.undelivered.more();
        self.counters.bytes_undelivered.add(all);
        let Ends { client, server } = carrying.ends;
        if let Some(unsaid) = self.said.another(now) {
            let [there, back] = lost;
            let unsaid = unsaid_of(unsaid, "connections");
            tracing::warn!(
                "{client} to {server}: reset with {there} bytes acknowledged to the client that the server did not \
                 acknowledge, and {back} the other way{unsaid}"
            );
        }
        lost
    }

    /// The same of all, when the gateway ends before them.
    pub(super) fn note_all_undelivered(&mut self, now: Instant) {
        for slot in 0..self.slots.len() {
            let lost = self.note_undelivered(slot, now);
            if let State::Carrying(carrying) = &self.slots[slot].state {
                self.note_ended(carrying, Why::Stopped, lost, now);
            }
        }
    }
}

/// What stands behind a line for those before it that got none.
pub(super) fn unsaid_of(count: u64, what: &str) -> String {
    match count {
        0 => String::new(),
        n => format!(" ({n} more such {what} before)"),
    }
}

impl Carrying {
    /// Bytes that this side's peer sent and knows to have arrived, and that the other peer has not acknowledged: in
    /// the one socket, in the pipe, in the other socket. Those may have reached it nevertheless.
    fn undelivered(&self, from: Side) -> u64 {
        let to = from.other();
        let unread = transparent::unread(self.sockets[from.index()].as_fd()).unwrap_or(0);
        let unsent = transparent::unacknowledged(self.sockets[to.index()].as_fd()).unwrap_or(0);
        // A FIN counts as one.
        let end = u64::from(unsent > 0 && self.relay.has_shut(to));
        unread + self.relay.in_pipe(from) + unsent - end
    }
}

const SECOND: Duration = Duration::from_s(1);
/// Of each worker; who resets many connections does not fill the log.
const LINES_A_SECOND: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_counted_and_not_told_one_by_one() {
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        let mut said = Said::new(at(0));
        let told = (0..100).filter(|_| said.another(at(1)).is_some()).count();
        assert_eq!(told, 10);
        assert_eq!(said.another(at(1_000)), Some(90));
        assert_eq!(said.another(at(1_001)), Some(0));
    }
}
