//! Links that fail: what is lost on them, who tries again, and tables that change.
//!
//! What happens when is known beforehand, so that a packet's fate on a cable is decided as it leaves, from the times alone: the
//! same in parts as in one piece. Nothing here is asked where no link fails.

use std::sync::Arc;

use super::{NONE, Probe, World, count};
use crate::fault::Faults;
use crate::spec::{FabricSpec, SpecError};

impl World {
    /// Checks that buffers suit the tables to come, and sets a time for each change.
    pub(super) fn add_faults(&mut self, spec: &FabricSpec) -> Result<(), SpecError> {
        let Some(faults) = self.faults.clone() else {
            return Ok(());
        };
        let now = self.routes.clone();
        for (_, routes) in faults.tables() {
            self.routes = self.on_lanes_of(routes);
            self.check_room(spec)?;
        }
        self.routes = now;
        self.post_faults();
        Ok(())
    }

    /// Chips that choose do not keep to the ways that lanes were made for.
    fn on_lanes_of(&self, routes: &Arc<crate::route::Routes>) -> Arc<crate::route::Routes> {
        match self.select.is_static() {
            true => routes.clone(),
            false => Arc::new(crate::route::Routes::clone(routes).on_one_lane()),
        }
    }

    pub(super) fn post_faults(&mut self) {
        let Some(faults) = self.faults.clone() else {
            return;
        };
        for (n, at_ps) in (0..).zip(faults.times()) {
            self.post(*at_ps, super::FAULT, n, 0);
        }
    }

    /// A link fails or comes back, or a sweep ends.
    pub(super) fn fault(&mut self) {
        let now = self.now_ps;
        let Some(faults) = self.faults.clone() else {
            return;
        };
        let mut tables = faults.tables().iter().rev();
        if let Some((_, routes)) = tables.find(|(at_ps, _)| *at_ps <= now) {
            self.routes = self.on_lanes_of(routes);
        }
        // Paths that edges probe keep their numbers: what a probe does not come back from is not used.
        if faults.sweeps_at(now) && !self.select.is_static() && self.avoidance.is_none() {
            self.select.sweep(&faults.ports_down_at(now));
        }
        // Who waits for room behind a link that failed waits for nothing.
        let lanes = self.lanes as usize;
        for channel in 0..count(self.channels.len()) {
            let first = channel as usize * lanes;
            let wanted = self.credits[first..first + lanes]
                .iter()
                .any(|c| c.wanted != 0);
            if wanted && !self.credits[first].away && self.is_down(channel, now) {
                self.ask(channel, now);
            }
        }
    }

    /// A channel's link is down.
    pub(super) fn is_down(&self, channel: u32, at_ps: u64) -> bool {
        let link = self.channels[channel as usize].number / 2;
        self.faults.as_ref().is_some_and(|f| f.is_down(link, at_ps))
    }

    /// A packet whose tail has crossed a channel at `there_ps` is lost on it.
    pub(super) fn is_cut(&self, channel: u32, there_ps: u64) -> bool {
        let link = self.channels[channel as usize].number / 2;
        let faults = self.faults.as_ref();
        faults.is_some_and(|f| f.is_cut(link, self.now_ps, there_ps))
    }

    /// A packet that left by a channel gets nowhere. It took room at the far end unless the port was down before.
    pub(super) fn cut(&mut self, channel: u32, packet: u32, gone: u64) {
        let p = self.packets.all[packet as usize];
        let room = self.room(channel, p.lane);
        self.counters.cut += 1;
        self.channels[channel as usize].cut += 1;
        if !p.ack && p.probe == Probe::No {
            self.cut_data += 1;
        }
        if self.by_credits() && !self.is_down(channel, self.now_ps) {
            let blocks = self.blocks(p.wire_bytes);
            let credit = &mut self.credits[room];
            credit.held -= blocks;
            credit.comes_back(gone, blocks, NONE);
        }
        self.packets.free.push(packet);
    }

    /// Ports of a chip out of `ports` whose links are up, as it knows at once of its own; all of them if none is.
    pub(super) fn alive(&self, node: u32, ports: u64) -> u64 {
        if self.faults.is_none() {
            return ports;
        }
        let up = (0..64_u8).filter(|port| ports >> port & 1 == 1);
        let up = up.filter(|port| !self.is_down(self.out(node, *port), self.now_ps));
        match up.fold(0_u64, |set, port| set | 1 << port) {
            0 => ports,
            up => up,
        }
    }

    /// Receivers take a gap for a loss: where packets keep their order or queues overflow. Where packets overtake each other,
    /// only the sender's timer knows.
    pub(super) fn gaps_are_losses(&self) -> bool {
        self.loses() || (self.faults.is_some() && !self.select.reorders())
    }

    /// Packets may come twice.
    pub(super) fn sends_again(&self) -> bool {
        self.loses() || self.faults.is_some()
    }

    /// How long senders wait for an answer; `None`: nothing is ever lost.
    pub(super) fn retry_ps(&self) -> Option<u64> {
        match (&self.faults, self.ethernet) {
            (Some(_), Some(ethernet)) => Some(ethernet.retry_ps),
            (Some(faults), None) => Some(faults.rule.retry_ps),
            (None, ethernet) => ethernet.filter(|_| self.loses()).map(|e| e.retry_ps),
        }
    }

    /// Timers that may run out in a row.
    pub(super) fn retries(&self) -> u32 {
        self.faults.as_ref().map_or(u32::MAX, |f| f.rule.retries)
    }

    /// Links that fail at some time.
    pub fn faults(&self) -> Option<&Faults> {
        self.faults.as_deref()
    }
}
