//! How a worker finds out that answers do not pass here, and lets such connections pass.

use std::os::fd::AsFd;

use sys::nfqueue::Fate;
use sys::{clock, transparent};
use units::Instant;

use super::decided::About;
use super::{State, Worker};
use crate::config::Zone;
use crate::decisions::{self, Event};
use crate::install::Word;
use crate::one_way::{SILENCE, Why};
use crate::syn::{Ends, Reset};

impl Worker {
    /// A reset that came from where a client is. It may answer a SYN-ACK that only our own SYN can have caused, and
    /// that did not come by here.
    pub(super) fn handle_reset(&mut self, id: u32, reset: Reset) {
        let ends = reset.ends;
        let slot = self.deferral.unanswered_socket(ends);
        let ours = slot.and_then(|slot| match &self.slots[slot].state {
            State::Connecting(connecting) => {
                let next = transparent::next_to_send(connecting.server.as_fd());
                Some((connecting.zone, next.ok()?))
            }
            _ => None,
        });
        // A number that nobody can guess who has not seen the server's answer (RFC 9293 section 3.5.2).
        let zone = ours.filter(|(_, next)| *next == reset.sequence);
        let Some((zone, _)) = zone else {
            return self.decide(id, Fate::Go(0));
        };
        let Some((slot, syn)) = self.deferral.on_refused(ends) else {
            return self.decide(id, Fate::Go(0));
        };
        self.note_one_way(zone, ends, "the server's answers do not come by here");
        self.note_connecting(Event::Unsplit, decisions::Why::OneWay, slot);
        self.release(slot);
        // In this order: the server forgets our SYN before it gets the client's.
        self.decide(id, Fate::Go(0));
        self.counters.passed_one_way.more();
        self.say(syn, Word::Pass);
    }

    /// Lets a new connection pass where a split would do harm; true if it did.
    pub(super) fn passes_one_way(&mut self, id: u32, about: About) -> bool {
        let About { ends, zone, .. } = about;
        let Some(why) = self.one_way.covers(clock::monotonic, zone, ends) else {
            return false;
        };
        let (count, noted) = match why {
            Why::OneWay => (&self.counters.passed_one_way, decisions::Why::OneWay),
            Why::Silent => (&self.counters.passed_silent, decisions::Why::Silence),
        };
        count.more();
        self.note(Event::Unsplit, noted, about);
        tracing::debug!(
            "{} to {}: passes unsplit, {why:?}",
            ends.client,
            ends.server
        );
        self.say(id, Word::Pass);
        true
    }

    /// A server had accepted, and its client never completed its handshake with us: our answer may have taken
    /// another way than that by which the SYN came.
    pub(super) fn look_for_another_way(&mut self, ends: Ends, zone: Zone) {
        let Ok(index) = self.netlink.interface_towards(ends.client.ip()) else {
            return;
        };
        let there = self.zones.iter().find(|(other, _)| *other == index);
        if there.is_none_or(|(_, other)| *other != zone) {
            self.note_one_way(zone, ends, "the way back to the client is not by its side");
        }
    }

    pub(super) fn look_for_the_silent(&mut self, now: Instant) {
        let late = self.deferral.unanswered(now, SILENCE);
        for ends in late.take(AT_ONCE) {
            self.one_way.on_silence(now, ends);
        }
        self.one_way.expire(now);
    }

    fn note_one_way(&mut self, zone: Zone, ends: Ends, why: &str) {
        let now = clock::monotonic();
        if self.one_way.on_found(now, zone, ends) {
            self.counters.one_way.more();
            let (client, server) = (ends.client.ip(), ends.server.ip());
            self.warn(&format_args!(
                "{client} to {server}: {why}; their connections pass unsplit for 10 minutes"
            ));
        }
    }
}

/// Of those who wait in vain.
const AT_ONCE: usize = 64;
