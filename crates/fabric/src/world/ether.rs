//! Ethernet's buffers: what comes is taken in or lost, and pause frames hold the sender back.
//!
//! Room is counted where a frame arrives, from its head in a chip (its tail in a host) until its tail has left. With
//! shared output queues and no pause frames a chip's limit is that of each output's queue.
//!
//! A pause frame waits for the frame that is on the wire of its direction, takes its own time there, and is acted on
//! after `respond_ps`. Left out: the bandwidth that it takes from data.

use super::{NEVER, NONE, PAUSE, World, XON};
use crate::ethernet::{FlowControl, PAUSE_BYTES, Pfc};
use crate::spec::Queueing;

impl World {
    /// Senders look at credits; else at pauses, or at nothing.
    pub(super) fn by_credits(&self) -> bool {
        self.ethernet
            .is_none_or(|e| e.control == FlowControl::Credits)
    }

    /// What does not fit is dropped.
    pub(super) fn loses(&self) -> bool {
        self.ethernet
            .is_some_and(|e| e.control == FlowControl::DropTail)
    }

    fn pfc(&self) -> Option<Pfc> {
        match self.ethernet?.control {
            FlowControl::Pfc(pfc) => Some(pfc),
            _ => None,
        }
    }

    /// Takes a packet into the buffer that `came` leads to; false: it was lost.
    pub(super) fn admit(&mut self, came: u32, wire_bytes: u16) -> bool {
        let needed = self.blocks(wire_bytes);
        let unbounded =
            self.loses() && self.queueing == Queueing::Output && !self.ends_at_host(came);
        let now = self.now_ps;
        let pfc = self.pfc();
        let credit = &mut self.credits[came as usize];
        credit.settle(now);
        if credit.free < needed {
            if !unbounded {
                self.counters.dropped += 1;
                return false;
            }
            // The queue of its output decides instead.
            credit.all += needed;
            credit.free += needed;
        }
        credit.free -= needed;
        credit.held += needed;
        if let Some(pfc) = pfc {
            let used = (credit.all - credit.free) * 64;
            if used > pfc.xoff_bytes && !credit.xoff {
                credit.xoff = true;
                self.signal(came, true, pfc);
            }
        }
        true
    }

    fn ends_at_host(&self, came: u32) -> bool {
        let to = self.channels[(came / self.lanes) as usize].to;
        self.nodes[to as usize].host
    }

    /// An output's queue has room for a packet; without it the packet is lost.
    pub(super) fn queue_has_room(&self, out: u32, wire_bytes: u16) -> bool {
        let queued = self.channels[out as usize].queued_bytes;
        u64::from(queued) + u64::from(wire_bytes) <= self.kind(out).queue_max_bytes
    }

    /// Sends a pause frame, or one that ends the pause.
    fn signal(&mut self, came: u32, stop: bool, pfc: Pfc) {
        let channel = came / self.lanes;
        let back = self.channels[channel as usize].back;
        let free = self.channels[back as usize].free_at_ps.max(self.now_ps);
        let back = self.kind(back);
        let takes = back.byte.of(PAUSE_BYTES);
        let travels = back.propagation_ps + pfc.respond_ps;
        let credit = &mut self.credits[came as usize];
        let gone = free.max(credit.signalled_ps) + takes;
        credit.signalled_ps = gone;
        if stop {
            self.counters.pauses += 1;
        }
        // What ends a pause is the packet whose room came free.
        let what = if stop { STOP } else { credit.last_cause };
        if credit.away {
            self.mail_note(came, gone + travels, true, 0, what);
        } else {
            self.post(gone + travels, PAUSE, came, what);
        }
    }

    /// A pause begins or ends at the sender.
    pub(super) fn pause(&mut self, room: u32, what: u32) {
        let channel = room / self.lanes;
        let credit = &mut self.credits[room as usize];
        credit.paused = what == STOP;
        if what != STOP {
            credit.starved = false;
            credit.blocker = what;
            self.ask(channel, self.now_ps);
        }
    }

    /// A packet has left a buffer that had paused its sender.
    pub(super) fn look_xon(&mut self, room: u32) {
        let Some(pfc) = self.pfc() else { return };
        let credit = &mut self.credits[room as usize];
        credit.settle(self.now_ps);
        if credit.xoff && (credit.all - credit.free) * 64 <= pfc.xon_bytes {
            credit.xoff = false;
            self.signal(room, false, pfc);
        }
    }

    /// As `give_back`, where nobody is told but by the end of a pause.
    pub(super) fn release(&mut self, came: u32, blocks: u32, at_ps: u64, cause: u32) {
        let credit = &mut self.credits[came as usize];
        assert!(credit.held >= blocks, "room is given back that nobody held");
        credit.held -= blocks;
        credit.comes_back(at_ps, blocks, cause);
        if self.pfc().is_some() {
            self.post(at_ps, XON, came, 0);
        }
    }

    /// Why an output may not send on a lane now: when it looks again, [`NEVER`] as long as nobody knows.
    pub(super) fn may_send(&mut self, room: usize, needed: u32) -> Result<(), u64> {
        if !self.by_credits() {
            let credit = &mut self.credits[room];
            credit.starved = credit.paused;
            return match credit.paused {
                true => Err(NEVER),
                false => Ok(()),
            };
        }
        let now = self.now_ps;
        let credit = &mut self.credits[room];
        credit.settle(now);
        if credit.free >= needed {
            credit.free -= needed;
            credit.held += needed;
            credit.starved = false;
            credit.blocker = credit.last_cause;
            return Ok(());
        }
        credit.starved = true;
        // Whatever comes back, it looks again, and so at the same times whether it knew of that beforehand or not.
        Err(credit.next_ps())
    }

    /// Forgets a packet that was lost in a chip before it had a place there.
    pub(super) fn drop_packet(&mut self, packet: u32) {
        let p = &self.packets.all[packet as usize];
        debug_assert_eq!(p.next, NONE);
        self.packets.free.push(packet);
    }
}

/// Of a pause that begins; one that ends says what the room had waited for.
const STOP: u32 = u32::MAX - 1;
