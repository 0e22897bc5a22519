//! Inputs, outputs and credits: who leaves when.

use super::{
    Credit, DECIDE, Input, Kind, NEVER, NONE, Packet, Probe, READY, RETURNS, Return, World,
};
use crate::spec::Queueing;

impl World {
    /// Puts a packet into the FIFO of a port or place and of its own way out and lane, ready at its own time.
    pub(super) fn append(&mut self, place: u32, packet: u32) {
        let p = &self.packets.all[packet as usize];
        let out = &mut self.channels[p.out as usize];
        out.queued_bytes += u32::from(p.wire_bytes);
        out.queued_bytes_max = out.queued_bytes_max.max(out.queued_bytes);
        let out = &self.channels[p.out as usize];
        let input = match self.is_by_arrival(out) {
            true => out.inputs + place * self.lanes + p.came % self.lanes,
            false => out.inputs + place * u32::from(out.by_place) + u32::from(p.lane),
        };
        self.line_up(input, packet);
    }

    /// The chip before an output has FIFOs by the lane on which packets came.
    #[inline]
    fn is_by_arrival(&self, out: &super::Channel) -> bool {
        self.by_arrival && !self.nodes[out.from as usize].host
    }

    /// Puts a packet into a FIFO.
    fn line_up(&mut self, input: u32, packet: u32) {
        let p = self.packets.all[packet as usize];
        let state = &mut self.inputs[input as usize];
        if state.head != NONE {
            self.packets.all[state.tail as usize].next = packet;
            state.tail = packet;
            return;
        }
        state.head = packet;
        state.tail = packet;
        let (ready, busy) = (p.ready_ps, state.busy_until_ps);
        let (channel, place, last_out) = (p.out, state.place, state.last_out);
        if ready.max(busy) <= self.now_ps {
            self.offer(input);
        } else if ready <= busy && last_out == channel {
            // This output is the first to be free for it.
            self.want(channel, p.lane, place);
            self.ask(channel, self.now_ps);
        } else {
            if ready < busy {
                self.channels[last_out as usize].held_ps += busy - ready;
            }
            self.post(ready.max(busy), READY, input, 0);
        }
    }

    /// An input's head asks its output.
    pub(super) fn offer(&mut self, input: u32) {
        let state = &self.inputs[input as usize];
        let p = &self.packets.all[state.head as usize];
        let (channel, lane, place) = (p.out, p.lane, state.place);
        self.want(channel, lane, place);
        self.ask(channel, self.now_ps);
    }

    /// Notes that an input asks.
    #[inline]
    fn want(&mut self, channel: u32, lane: u8, place: u8) {
        let room = self.room(channel, lane);
        self.credits[room].wanted |= 1 << place;
        self.channels[channel as usize].asked |= 1 << lane;
    }

    /// An output is to decide at `at_ps`, or when it is free.
    pub(super) fn ask(&mut self, channel: u32, at_ps: u64) {
        let state = &mut self.channels[channel as usize];
        let at = at_ps.max(state.free_at_ps);
        if at < state.decides_at_ps {
            state.decides_at_ps = at;
            if at == self.now_ps {
                self.due_sorted &= self.due.last().is_none_or(|first| channel < *first);
                self.due.push(channel);
            } else {
                self.post(at, DECIDE, channel, 0);
            }
        }
    }

    /// An output serves the next of its lanes that has credits, and of that lane the next of its inputs.
    pub(super) fn decide(&mut self, channel: u32) {
        let state = &mut self.channels[channel as usize];
        state.decides_at_ps = NEVER;
        if self.lanes == 1 {
            if let Err(again) = self.decide_lane(channel, 0) {
                self.ask_again(channel, again);
            }
            return;
        }
        let last = u32::from(state.served_lane);
        let mut again = NEVER;
        for n in 1..=self.lanes {
            let lane = super::small(((last + n) % self.lanes) as usize);
            if self.channels[channel as usize].asked >> lane & 1 == 0 {
                continue;
            }
            match self.decide_lane(channel, lane) {
                Ok(()) => {
                    self.channels[channel as usize].served_lane = lane;
                    return;
                }
                Err(at) => again = again.min(at),
            }
        }
        self.ask_again(channel, again);
    }

    fn ask_again(&mut self, channel: u32, at_ps: u64) {
        if at_ps != NEVER {
            self.ask(channel, at_ps);
        }
    }

    /// Serves a lane if it can; else when it can, as far as is known.
    fn decide_lane(&mut self, channel: u32, lane: u8) -> Result<(), u64> {
        let room = self.room(channel, lane);
        let credit = &self.credits[room];
        if credit.wanted == 0 {
            return Err(NEVER);
        }
        let place = next_after(credit.wanted, credit.served);
        let state = &self.channels[channel as usize];
        let input = state.inputs
            + u32::from(place) * u32::from(state.by_place)
            + match self.is_by_arrival(state) {
                true => 0,
                false => u32::from(lane),
            };
        let head = self.inputs[input as usize].head;
        let needed = self.blocks(self.packets.all[head as usize].wire_bytes);
        let may = match self.faults.is_some() && self.is_down(channel, self.now_ps) {
            // What leaves now is discarded, and needs no room.
            true => {
                self.credits[room].starved = false;
                Ok(())
            }
            false => self.may_send(room, needed),
        };
        let credit = &mut self.credits[room];
        if may.is_ok() {
            credit.served = place;
            if credit.since_ps != NEVER {
                let (since, blocker) = (credit.since_ps, credit.blocker);
                credit.since_ps = NEVER;
                let waited = self.now_ps - since;
                self.channels[channel as usize].starved_ps += waited;
                if credit.blamed == blocker {
                    credit.blamed_ps += waited;
                } else {
                    let before = std::mem::replace(&mut credit.blamed, blocker);
                    let sum = std::mem::replace(&mut credit.blamed_ps, waited);
                    let number = self.number(channel);
                    *self.blame.entry((number, before)).or_default() += sum;
                }
            }
            self.send(channel, input, head);
        } else if credit.since_ps == NEVER {
            credit.since_ps = self.now_ps;
        }
        may
    }

    /// The head of `input` leaves by `channel` from now on.
    fn send(&mut self, channel: u32, input: u32, packet: u32) {
        let now = self.now_ps;
        let p = &self.packets.all[packet as usize];
        debug_assert_eq!(p.out, channel);
        let wire = u32::from(p.wire_bytes);
        let (lane, probe) = (p.lane, p.probe != Probe::No);
        let state = &mut self.channels[channel as usize];
        let kind = &self.kinds[usize::from(state.kind)];
        let takes = match kind.byte.whole(wire) {
            Some(takes) => takes,
            None => kind.byte.take(wire, &mut state.rest),
        };
        let gone = now + takes;
        state.free_at_ps = gone;
        state.queued_bytes -= wire;
        state.packets += 1;
        state.busy_ps += takes;
        state.waited_ps += now - p.ready_ps;
        let (far, to_host) = (state.far, state.to_host);
        let crossed = gone + kind.propagation_ps;
        let head_there = now + kind.propagation_ps;
        let (latency, travel_ps) = (kind.latency_ps, kind.travel_ps);
        let through = head_there + latency + if kind.store_and_forward { takes } else { 0 };
        let cause = match now > p.ready_ps {
            true => self.number(channel),
            false => NONE,
        };
        self.counters.packet_hops += 1;
        match probe {
            true => self.note_probe(takes),
            false => self.data_ps = now,
        }

        self.leave(input, channel, packet, gone, cause);
        let room = self.room(channel, lane);
        let p = &mut self.packets.all[packet as usize];
        p.next = NONE;
        p.came = super::count(room);
        p.travel_ps = travel_ps;
        let there = match self.split {
            true => self.channels[channel as usize].there,
            false => NONE,
        };
        if self.faults.is_some() && self.is_cut(channel, crossed) {
            self.cut(channel, packet, gone);
        } else if there != NONE {
            let (at, kind, who) = match self.late {
                true => (head_there, super::HERE, there),
                false => (through, super::ENTER, far),
            };
            self.mail_packet(channel, at, kind, who, packet);
        } else if probe && self.by_credits() && {
            let to = self.channels[channel as usize].to;
            self.take_probe(to, packet, head_there + takes + latency)
        } {
            // It goes no further.
        } else if to_host {
            self.post(head_there + takes, super::ARRIVED, far, packet);
        } else if self.late {
            self.post(head_there, super::HERE, channel, packet);
        } else {
            self.post(through, super::ENTER, far, packet);
        }
        if self.channels[channel as usize].asked != 0 {
            self.ask(channel, gone);
        }
    }

    /// A channel's number in the whole world.
    #[inline]
    pub(super) fn number(&self, channel: u32) -> u32 {
        match self.split {
            true => self.channels[channel as usize].number,
            false => channel,
        }
    }

    /// What a channel has in common with others.
    #[inline]
    pub(super) fn kind(&self, channel: u32) -> &Kind {
        &self.kinds[usize::from(self.channels[channel as usize].kind)]
    }

    /// The head of a packet is in the chip that `channel` leads to.
    pub(super) fn here(&mut self, channel: u32, packet: u32) {
        let p = self.packets.all[packet as usize];
        let wire = u32::from(p.wire_bytes);
        let takes = self.kind(channel).byte.of(wire);
        if !self.by_credits() && !self.admit(p.came, p.wire_bytes) {
            self.drop_packet(packet);
            return;
        }
        self.enter(channel, packet, self.now_ps, takes);
    }

    /// A packet's head is through a chip that looks at nothing: it finds its way out, and waits there. `input` is the
    /// first of its port.
    pub(super) fn come(&mut self, input: u32, packet: u32) {
        let Input { node, place, .. } = self.inputs[input as usize];
        let out = self.choose(node, packet);
        let mut ready_ps = self.now_ps;
        let p = &self.packets.all[packet as usize];
        if self.mixed {
            let (came, next) = (self.kind(p.came / self.lanes), self.kind(out).byte);
            let wire = u32::from(p.wire_bytes);
            // The next output must not run dry before the tail has come.
            if !came.store_and_forward && next.is_shorter_than(came.byte) {
                ready_ps += came.byte.of(wire) - next.of(wire);
            }
        }
        let p = &mut self.packets.all[packet as usize];
        p.out = out;
        p.ready_ps = ready_ps;
        // The first of a port with a FIFO for each lane of arrival has its place.
        let port = match self.by_arrival {
            true => u32::from(place) / self.lanes,
            false => place.into(),
        };
        self.append(port, packet);
    }

    /// A packet comes into a chip that decides by what it sees: it finds its way out, and waits there.
    fn enter(&mut self, channel: u32, packet: u32, head_ps: u64, takes: u64) {
        let state = &self.channels[channel as usize];
        let (to, place) = (state.to, u32::from(state.to_port));
        let kind = self.kinds[usize::from(state.kind)];
        let (byte, latency, whole) = (kind.byte, kind.latency_ps, kind.store_and_forward);
        if !self.by_credits()
            && self.packets.all[packet as usize].probe != Probe::No
            && self.take_probe(to, packet, head_ps + takes + latency)
        {
            return;
        }
        let out = self.choose(to, packet);
        if self.loses() && self.queueing == Queueing::Output {
            let p = self.packets.all[packet as usize];
            if !self.queue_has_room(out, p.wire_bytes) {
                self.counters.dropped += 1;
                let blocks = self.blocks(p.wire_bytes);
                self.release(p.came, blocks, self.now_ps, NONE);
                self.drop_packet(packet);
                return;
            }
        }
        let next = self.kind(out).byte;
        let p = &mut self.packets.all[packet as usize];
        // The next output must not run dry before the tail has come.
        let ahead = match () {
            () if whole => takes,
            () if next.is_shorter_than(byte) => {
                takes.saturating_sub(next.of(u32::from(p.wire_bytes)))
            }
            () => 0,
        };
        p.out = out;
        p.ready_ps = head_ps + latency + ahead;
        self.append(place, packet);
    }

    /// Takes the head out of an input that it leaves until `gone`; its room is given back to who sent it.
    fn leave(&mut self, input: u32, channel: u32, packet: u32, gone: u64, cause: u32) {
        let p = self.packets.all[packet as usize];
        let room = self.room(channel, p.lane);
        let state = &mut self.inputs[input as usize];
        let place = state.place;
        let began = state.busy_until_ps;
        state.head = p.next;
        state.busy_until_ps = gone;
        state.last_out = channel;
        let node = state.node;
        let credit = &mut self.credits[room];
        credit.wanted &= !(1 << place);
        if credit.wanted == 0 {
            self.channels[channel as usize].asked &= !(1 << p.lane);
        }
        if p.next != NONE {
            let next = &self.packets.all[p.next as usize];
            if next.out == channel && next.ready_ps <= gone {
                // This output is the first to be free for it.
                let lane = next.lane;
                self.want(channel, lane, place);
            } else {
                if next.out != channel {
                    let held = gone.saturating_sub(next.ready_ps.max(began));
                    self.channels[channel as usize].held_ps += held;
                }
                let at = next.ready_ps.max(gone);
                self.post(at, READY, input, 0);
            }
        }
        if p.came == NONE {
            self.fetched_left(node, packet, gone);
        } else {
            self.give_back(&p, gone, cause);
        }
    }

    /// The room that a packet held is free at `at_ps`; its sender learns of it later, and what it had waited for.
    pub(super) fn give_back(&mut self, p: &Packet, at_ps: u64, cause: u32) {
        let (came, blocks) = (p.came, self.blocks(p.wire_bytes));
        if !self.by_credits() {
            self.release(came, blocks, at_ps, cause);
            return;
        }
        let credit = &self.credits[came as usize];
        let back = at_ps + p.travel_ps;
        if credit.away {
            self.mail_note(came, back, false, blocks, cause);
        } else {
            self.room_back(came, blocks, back, cause);
        }
    }

    /// A sender is to have room again at `back`.
    pub(super) fn room_back(&mut self, came: u32, blocks: u32, back: u64, cause: u32) {
        let credit = &mut self.credits[came as usize];
        assert!(credit.held >= blocks, "room is given back that nobody held");
        credit.held -= blocks;
        credit.settle(self.now_ps);
        credit.comes_back(back, blocks, cause);
        if credit.starved {
            // It looks again then, and waits on if that is not enough.
            self.ask(came / self.lanes, back);
        }
    }
}

impl Credit {
    /// Takes in what has come back.
    #[inline]
    pub(super) fn settle(&mut self, now_ps: u64) {
        while self.returns > 0 && self.at_ps[0] <= now_ps {
            self.free += u32::from(self.blocks[0]);
            if self.starved || self.xoff {
                self.last_cause = self.causes[0];
            }
            for n in 1..RETURNS {
                self.at_ps[n - 1] = self.at_ps[n];
                self.causes[n - 1] = self.causes[n];
                self.blocks[n - 1] = self.blocks[n];
            }
            self.returns -= 1;
            if usize::from(self.returns) == RETURNS - 1 && self.more.is_some() {
                self.refill();
            }
        }
    }

    fn refill(&mut self) {
        let more = self.more.as_mut().and_then(|m| m.all.pop_front());
        match more {
            Some(next) => {
                self.put(RETURNS - 1, next);
                self.returns += 1;
            }
            None => self.more = None,
        }
    }

    fn put(&mut self, place: usize, made: Return) {
        self.at_ps[place] = made.at_ps;
        self.causes[place] = made.cause;
        self.blocks[place] = made.blocks;
    }

    fn get(&self, place: usize) -> Return {
        Return {
            at_ps: self.at_ps[place],
            cause: self.causes[place],
            blocks: self.blocks[place],
        }
    }

    /// When the next room comes back; [`NEVER`] if none is known of.
    pub(super) const fn next_ps(&self) -> u64 {
        match self.returns {
            0 => NEVER,
            _ => self.at_ps[0],
        }
    }

    /// Blocks on their way back.
    pub(super) fn on_the_way(&self) -> u32 {
        let near = &self.blocks[..usize::from(self.returns)];
        let more = self.more.iter().flat_map(|m| &m.all).map(|r| r.blocks);
        near.iter().copied().chain(more).map(u32::from).sum()
    }

    /// Notes room on its way back.
    pub(super) fn comes_back(&mut self, at_ps: u64, blocks: u32, cause: u32) {
        let made = Return {
            at_ps,
            cause,
            // A packet's, of 65 KB at most.
            blocks: u16::try_from(blocks).unwrap_or(u16::MAX),
        };
        let known = usize::from(self.returns);
        let mut place = known;
        while place > 0 && self.at_ps[place - 1] > at_ps {
            place -= 1;
        }
        if place == RETURNS {
            let more = &mut self.more.get_or_insert_default().all;
            let place = more.iter().rposition(|r| r.at_ps <= at_ps);
            more.insert(place.map_or(0, |p| p + 1), made);
            return;
        }
        if known == RETURNS {
            let last = self.get(RETURNS - 1);
            self.more.get_or_insert_default().all.push_front(last);
        } else {
            self.returns += 1;
        }
        for n in (place + 1..RETURNS).rev() {
            let before = self.get(n - 1);
            self.put(n, before);
        }
        self.put(place, made);
    }
}

/// The first bit set after `last`, going round.
pub(super) fn next_after(bits: u64, last: u8) -> u8 {
    let turned = bits.rotate_right(u32::from(last) + 1);
    let ahead = turned.trailing_zeros() + u32::from(last) + 1;
    (ahead % 64).try_into().unwrap_or(0)
}
