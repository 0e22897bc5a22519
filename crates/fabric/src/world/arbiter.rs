//! Inputs, outputs and credits: who leaves when.

use super::{Credit, DECIDE, NEVER, NONE, READY, World};

impl World {
    /// Puts a packet into an input, ready at its own time.
    pub(super) fn append(&mut self, input: u32, packet: u32) {
        let state = &mut self.inputs[input as usize];
        if state.head == NONE {
            state.head = packet;
            state.tail = packet;
            let ready = self.packets.all[packet as usize].ready_ps;
            let at = ready.max(state.busy_until_ps);
            self.post(at, READY, input, 0);
        } else {
            self.packets.all[state.tail as usize].next = packet;
            state.tail = packet;
        }
    }

    /// An input's head asks its output.
    pub(super) fn offer(&mut self, input: u32) {
        let state = self.inputs[input as usize];
        let channel = self.packets.all[state.head as usize].out;
        self.wanted[channel as usize] |= 1 << state.place;
        self.ask(channel, self.now_ps);
    }

    /// An output is to decide at `at_ps`, or when it is free.
    fn ask(&mut self, channel: u32, at_ps: u64) {
        let state = &mut self.channels[channel as usize];
        let at = at_ps.max(state.free_at_ps);
        if at < state.decides_at_ps {
            state.decides_at_ps = at;
            self.post(at, DECIDE, channel, 0);
        }
    }

    /// An output serves the next of its inputs, if there is room for what it has.
    pub(super) fn decide(&mut self, channel: u32) {
        let state = &mut self.channels[channel as usize];
        if state.decides_at_ps != self.now_ps {
            // It was asked to decide earlier, and has.
            return;
        }
        state.decides_at_ps = NEVER;
        let wanted = self.wanted[channel as usize];
        if wanted == 0 {
            return;
        }
        let place = next_after(wanted, state.served);
        let input = self.nodes[state.from as usize].input + u32::from(place);
        let head = self.inputs[input as usize].head;
        let needed = u32::from(self.packets.all[head as usize].blocks);
        let credit = &mut self.credits[channel as usize];
        credit.settle(self.now_ps);
        if credit.free >= needed {
            credit.free -= needed;
            credit.held += needed;
            if credit.since_ps != NEVER {
                state.stats.starved_ps += self.now_ps - credit.since_ps;
                credit.since_ps = NEVER;
            }
            state.served = place;
            self.send(channel, input, head);
            return;
        }
        credit.since_ps = credit.since_ps.min(self.now_ps);
        match credit.enough_at(needed) {
            Some(at) => self.ask(channel, at),
            None => credit.starved = true,
        }
    }

    /// The head of `input` leaves by `channel` from now on.
    fn send(&mut self, channel: u32, input: u32, packet: u32) {
        let now = self.now_ps;
        let (flow, out) = {
            let p = &self.packets.all[packet as usize];
            (p.flow, p.out)
        };
        debug_assert_eq!(out, channel);
        let wire = self.wire_bytes(packet);
        let state = &mut self.channels[channel as usize];
        let takes = state.byte.take(wire, &mut state.rest);
        let gone = now + takes;
        state.free_at_ps = gone;
        state.stats.packets += 1;
        state.stats.busy_ps += takes;
        let (to, to_input) = (state.to, state.to_input);
        let (byte, latency, whole) = (state.byte, state.latency_ps, state.store_and_forward);
        let head_there = now + state.propagation_ps;
        self.counters.packet_hops += 1;

        self.leave(input, channel, packet, gone);
        let p = &mut self.packets.all[packet as usize];
        p.next = NONE;
        if self.nodes[to as usize].host {
            self.post(head_there + takes, super::ARRIVED, to, packet);
        } else {
            let ack = p.ack;
            let spec = &self.flows[flow as usize].spec;
            let out = self.way(to, if ack { spec.from } else { spec.to });
            let next = self.channels[out as usize].byte;
            // The next output must not run dry before the tail has come.
            let ahead = match () {
                () if whole => takes,
                () if next.is_shorter_than(byte) => takes.saturating_sub(next.of(wire)),
                () => 0,
            };
            let p = &mut self.packets.all[packet as usize];
            p.out = out;
            p.ready_ps = head_there + latency + ahead;
            self.append(to_input, packet);
        }
        if self.wanted[channel as usize] != 0 {
            self.ask(channel, gone);
        }
    }

    /// Takes the head out of an input that it leaves until `gone`; its room is given back to who sent it.
    fn leave(&mut self, input: u32, channel: u32, packet: u32, gone: u64) {
        let p = self.packets.all[packet as usize];
        let state = &mut self.inputs[input as usize];
        let (place, before) = (state.place, state.channel);
        state.head = p.next;
        state.busy_until_ps = gone;
        let node = state.node;
        self.wanted[channel as usize] &= !(1 << place);
        if p.next != NONE {
            let next = &self.packets.all[p.next as usize];
            if next.out == channel && next.ready_ps <= gone {
                // This output is the first to be free for it.
                self.wanted[channel as usize] |= 1 << place;
            } else {
                let at = next.ready_ps.max(gone);
                self.post(at, READY, input, 0);
            }
        }
        if before == NONE {
            self.fetched_left(node, packet, gone);
        } else {
            self.give_back(before, u32::from(p.blocks), gone);
        }
    }

    /// The room of a packet that `channel` brought is free at `at_ps`; its sender learns of it later.
    pub(super) fn give_back(&mut self, channel: u32, blocks: u32, at_ps: u64) {
        let state = &self.channels[channel as usize];
        let back = at_ps + state.credit_ps + state.credit_travel_ps;
        let credit = &mut self.credits[channel as usize];
        assert!(credit.held >= blocks, "room is given back that nobody held");
        credit.held -= blocks;
        let place = credit.back.iter().rposition(|(at, _)| *at <= back);
        credit
            .back
            .insert(place.map_or(0, |p| p + 1), (back, blocks));
        if credit.starved {
            // It looks again then, and waits on if that is not enough.
            credit.starved = false;
            self.ask(channel, back);
        }
    }
}

impl Credit {
    /// Takes in what has come back.
    fn settle(&mut self, now_ps: u64) {
        while let Some((at, blocks)) = self.back.front().copied()
            && at <= now_ps
        {
            self.back.pop_front();
            self.free += blocks;
        }
    }

    /// When there will be room for so many blocks, as far as is known.
    fn enough_at(&self, needed: u32) -> Option<u64> {
        let mut free = self.free;
        for (at, blocks) in &self.back {
            free += blocks;
            if free >= needed {
                return Some(*at);
            }
        }
        None
    }
}

/// The first bit set after `last`, going round.
fn next_after(bits: u64, last: u8) -> u8 {
    let turned = bits.rotate_right(u32::from(last) + 1);
    let ahead = turned.trailing_zeros() + u32::from(last) + 1;
    (ahead % 64).try_into().unwrap_or(0)
}
