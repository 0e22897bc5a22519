//! What a worker tells of its decisions, where somebody keeps a log of them.

use sys::clock;
use units::{Bytes, Duration, Instant};

use super::{Carrying, Connecting, State, Worker};
use crate::config::Zone;
use crate::decisions::{Entry, Event, Why};
use crate::links;
use crate::relay::Side;
use crate::syn::{Ends, Syn};

/// What is known of a connection of which something is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) ends: Ends,
    /// The side that the client is on.
    pub(super) zone: Zone,
    /// What its SYN said.
    pub(super) mss: Option<u16>,
    /// Counted from 0.
    pub(super) rule: Option<usize>,
}

impl About {
    pub(super) const fn new(syn: Syn, zone: Zone, rule: Option<usize>) -> Self {
        Self {
            ends: syn.ends,
            zone,
            mss: Some(syn.mss),
            rule,
        }
    }
}

impl Connecting {
    pub(super) const fn about(&self) -> About {
        About {
            ends: self.ends,
            zone: self.zone,
            mss: self.mss,
            rule: self.rule,
        }
    }
}

impl Worker {
    pub(super) fn note(&self, event: Event, why: Why, about: About) {
        self.note_with(event, why, about, |_| {});
    }

    /// With what else is known.
    pub(super) fn note_with(
        &self,
        event: Event,
        why: Why,
        about: About,
        more: impl FnOnce(&mut Entry),
    ) {
        let Some(journal) = self.orders.journal() else {
            return;
        };
        let mut entry = Entry {
            at_ns: clock::realtime_ns(),
            event,
            why,
            rule: about.rule.map(|rule| rule + 1),
            client: about.ends.client,
            server: about.ends.server,
            side: about.zone.name(),
            mss: about.mss,
            held_us: None,
            lasted_ms: None,
            carried: None,
            undelivered: None,
        };
        more(&mut entry);
        journal.put(entry);
    }

    /// The same of one that connects, by its slot.
    pub(super) fn note_connecting(&self, event: Event, why: Why, slot: usize) {
        if let State::Connecting(connecting) = &self.slots[slot].state {
            self.note(event, why, connecting.about());
        }
    }

    /// Both halves stand.
    pub(super) fn note_split(&self, about: About, held: Duration) {
        let why = match about.rule {
            Some(_) => Why::Rule,
            None => Why::NoRule,
        };
        self.note_with(Event::Split, why, about, |entry| {
            entry.held_us = Some(held.as_ns() / 1_000);
        });
    }

    /// A split one is over.
    pub(super) fn note_ended(
        &self,
        carrying: &Carrying,
        why: Why,
        undelivered: [u64; 2],
        now: Instant,
    ) {
        let about = About {
            ends: carrying.ends,
            zone: carrying.zone,
            mss: None,
            rule: None,
        };
        self.note_with(Event::Ended, why, about, |entry| {
            let lasted = now.saturating_since(carrying.pace.since);
            entry.lasted_ms = Some(lasted.as_ns() / 1_000_000);
            entry.carried = Some(Side::BOTH.map(|side| carrying.relay.carried(side)));
            entry.undelivered = Some(undelivered);
        });
    }

    /// True where a rule would not split it since the last ones to its server's port were small.
    pub(super) fn passes_as_small(&self, rule: Option<usize>, ends: Ends) -> bool {
        let least = self.config.rules.min_bytes(rule);
        least.is_some_and(|least| {
            let hash = links::hash(ends);
            self.past
                .passes(clock::monotonic(), ends.server, least, hash)
        })
    }

    /// What an ended connection carried is of use for those to come, where a rule asks for it.
    pub(super) fn remember_size(&mut self, ends: Ends, carried: u64, now: Instant) {
        if self.config.rules.ask_for_bytes() {
            self.past.on_ended(now, ends.server, Bytes::new(carried));
        }
    }
}
