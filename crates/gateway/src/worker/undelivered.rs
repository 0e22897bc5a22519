//! What cannot be kept: bytes that one peer was told have arrived, and the other peer never got.

use std::os::fd::AsFd;

use sys::transparent;
use units::Instant;

use super::{Carrying, State, Worker};
use crate::decisions::Why;
use crate::relay::Side;
use crate::syn::Ends;

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
        if let Some(unsaid) = self.said.ending(now, "connections") {
            let [there, back] = lost;
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
