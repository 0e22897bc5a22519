//! Hosts: messages are posted, fetched over the bus, sent, taken in and written to memory.
//!
//! A message goes through the sender's core (`post`), the adapter's engine (`engine`) and the bus; each is busy for its
//! own time and works on the next one meanwhile. The adapter holds some packets ahead of its port; a place is free
//! again when a packet's tail has left. At the far side a packet is written over the bus when all of it is in the
//! adapter's buffer, and its room is given back when the bus has taken it: a slow bus lengthens the way of the credits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::reliable::{EARLY, Heard};
use super::{
    Early, Flow, FlowInfo, Host, IN_MEMORY, LOOK, NEVER, NONE, Packet, Probe, START, World, count,
};
use crate::ethernet;
use crate::spec::{ACK_BYTES, ASK_BYTES, DELIMITER_BYTES, FlowSpec, HostSpec, Ordering, Transport};

impl World {
    pub(super) fn add_flow(&mut self, spec: &FlowSpec) {
        let number = count(self.flows.len());
        self.note_flow(Flow::new(*spec, NONE));
        if let Some(before) = spec.after {
            let followers = Arc::make_mut(&mut self.followers);
            followers.entry(before).or_default().push(number);
        } else if spec.passing {
            self.post(spec.start_ps, START, number, 0);
        } else {
            self.hosts[spec.from as usize].flows.push(number);
            self.post(spec.start_ps, LOOK, spec.from, 0);
        }
    }

    /// A passing flow's host takes it up.
    pub(super) fn start(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        flow.core_free_ps = self.now_ps;
        let host = flow.spec.from;
        self.hosts[host as usize].flows.push(number);
        self.look(host);
    }

    /// A passing flow that is done, or given up, is no more than what its host was told of it.
    pub(super) fn pass(&mut self, number: u32) {
        let flow = &self.flows[number as usize];
        let done = flow.completed >= flow.spec.messages || flow.info.broken;
        if !flow.spec.passing || !done {
            return;
        }
        let host = &mut self.hosts[flow.spec.from as usize];
        if let Some(place) = host.flows.iter().position(|n| *n == number) {
            host.flows.remove(place);
            if host.served >= place {
                host.served = host.served.saturating_sub(1);
            }
        }
    }

    /// Those that waited for a flow start.
    fn follow(&mut self, number: u32) {
        let followers = self.followers.clone();
        for next in followers.get(&number).into_iter().flatten() {
            let after = self.flows[*next as usize].spec.start_ps;
            let starts = self.now_ps.saturating_add(after);
            self.post(starts, START, *next, 0);
        }
    }

    fn note_flow(&mut self, flow: Flow) {
        let spec = &flow.spec;
        Arc::make_mut(&mut self.ends).push([spec.from, spec.to]);
        Arc::make_mut(&mut self.own_lanes).push(spec.lane);
        self.flows.all.push(flow);
    }

    /// The flow that answers each ping-pong; after all flows that were given.
    pub(super) fn add_answers(&mut self) {
        for number in 0..self.flows.len() {
            let asks = self.flows[number].spec;
            if !asks.ping_pong {
                continue;
            }
            let answers = FlowSpec {
                from: asks.to,
                to: asks.from,
                ..asks
            };
            let partner = count(self.flows.len());
            self.flows[number].partner = partner;
            self.flows[number].turns = 1;
            self.note_flow(Flow::new(answers, count(number)));
            self.hosts[answers.from as usize].flows.push(partner);
        }
    }

    /// The flows that ask for messages and say that they may come; after all flows that were given.
    pub(super) fn add_requests(&mut self) {
        for number in 0..self.flows.len() {
            let sends = self.flows[number].spec;
            if !sends.rendezvous {
                continue;
            }
            let asks = FlowSpec {
                message_bytes: ASK_BYTES,
                depth: u32::MAX,
                take_ps: 0,
                rendezvous: false,
                ..sends
            };
            let answers = FlowSpec {
                from: sends.to,
                to: sends.from,
                ..asks
            };
            let (data, request) = (count(number), count(self.flows.len()));
            let answer = request + 1;
            for (spec, grants) in [(asks, answer), (answers, data)] {
                let host = spec.from;
                let mut flow = Flow::new(spec, NONE);
                flow.gated = true;
                flow.grants = grants;
                if grants == answer {
                    let first = u64::from(sends.depth).min(sends.messages);
                    flow.granted = (0..first).map(|_| sends.start_ps).collect();
                }
                self.hosts[host as usize]
                    .flows
                    .push(count(self.flows.len()));
                self.note_flow(flow);
            }
            let flow = &mut self.flows[number];
            flow.gated = true;
            flow.request = request;
        }
    }

    /// A flow may begin one more message.
    fn grant(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        flow.granted.push_back(self.now_ps);
        let host = flow.spec.from;
        self.look(host);
    }

    /// Fetches as many packets as there is room for.
    pub(super) fn look(&mut self, host: u32) {
        let state = &mut self.hosts[host as usize];
        if state.looks_at_ps == self.now_ps {
            state.looks_at_ps = NEVER;
        }
        while let Some((flow, lane)) = self.next_flow(host) {
            let places = &mut self.hosts[host as usize].places[lane];
            let place_ps = places.pop_front().unwrap_or(0);
            self.fetch(host, flow, place_ps);
        }
    }

    /// Whose turn it is to have a packet fetched, and its lane: round the flows that have one by the time that their
    /// lane has a place. If none has yet, the host looks again when the first one does.
    fn next_flow(&mut self, host: u32) -> Option<(u32, usize)> {
        let state = &self.hosts[host as usize];
        if state.places.iter().all(VecDeque::is_empty) {
            return None;
        }
        let all = state.flows.len();
        let mut earliest = NEVER;
        for n in 1..=all {
            let turn = (state.served + n) % all;
            let number = state.flows[turn];
            let flow = &self.flows[number as usize];
            let to = flow.spec.to;
            let lane = usize::from(flow.spec.lane + self.routes.lane(host, to, 0));
            let Some(place_ps) = state.places[lane].front() else {
                continue;
            };
            match flow.posts_at(state.post_ps) {
                Some(at) if at <= self.now_ps.max(*place_ps) => {
                    self.hosts[host as usize].served = turn;
                    return Some((number, lane));
                }
                Some(at) => earliest = earliest.min(at),
                None => {}
            }
        }
        let state = &mut self.hosts[host as usize];
        if earliest < state.looks_at_ps {
            state.looks_at_ps = earliest;
            self.post(earliest, LOOK, host, 0);
        }
        None
    }

    fn fetch(&mut self, host: u32, number: u32, place_ps: u64) {
        let state = &mut self.hosts[host as usize];
        let flow = &mut self.flows[number as usize];
        let mut from = place_ps;
        let again = flow.heard.resend.pop_front();
        let number_of = again.unwrap_or(flow.packets);
        if again.is_none() && flow.left_bytes == 0 {
            let posted = flow.begin(state.post_ps);
            let engine = state.engine_ps[usize::from(flow.spec.transport == Transport::Ud)];
            state.engine_free_ps = posted.max(state.engine_free_ps) + engine;
            from = from.max(state.engine_free_ps);
        }
        let (payload, last) = match again {
            Some(n) => flow.payload_of(n),
            None => {
                let payload = flow.left_bytes.min(flow.spec.mtu_bytes);
                flow.left_bytes -= payload;
                flow.packets = flow.packets.wrapping_add(1);
                (payload, flow.left_bytes == 0)
            }
        };
        let packet = Packet {
            ready_ps: 0,
            travel_ps: 0,
            flow: number,
            number: number_of,
            next: NONE,
            out: NONE,
            came: NONE,
            choice: self.path_of.get(number as usize).copied().unwrap_or(0),
            payload_bytes: short(payload),
            wire_bytes: short(payload),
            lane: flow.spec.lane + self.routes.lane(host, flow.spec.to, 0),
            last,
            ack: false,
            probe: Probe::No,
        };
        flow.info.packets_sent += 1;
        if number_of < flow.sent {
            flow.info.packets_resent += 1;
        }
        flow.sent = flow.sent.max(number_of + 1);
        let ready_ps = match &state.bus {
            Some(bus) => {
                state.read_free_ps = from.max(state.read_free_ps) + bus.busy_ps(payload);
                state.read_free_ps + bus.latency_ps
            }
            None => from,
        };
        let (to, transport) = (flow.spec.to, flow.spec.transport);
        let out = self.way(host, host, to);
        let wire_bytes = short(match self.ethernet {
            Some(_) => ethernet::frame_bytes(transport, payload) + self.wire_only,
            None => transport.wire_bytes(payload),
        });
        self.time(number);
        let packet = self.packets.add(Packet {
            ready_ps,
            out,
            wire_bytes,
            ..packet
        });
        self.append(0, packet);
    }

    /// A packet of this host is on the wire until `gone`.
    pub(super) fn fetched_left(&mut self, host: u32, packet: u32, gone: u64) {
        let p = self.packets.all[packet as usize];
        if p.ack || p.probe != Probe::No {
            return;
        }
        let flow = &mut self.flows[p.flow as usize];
        // Without acknowledgment a message is complete when it has left.
        if p.last && !flow.spec.transport.is_acknowledged() {
            flow.complete(gone);
            self.pass(p.flow);
        }
        let places = &mut self.hosts[host as usize].places;
        places[usize::from(p.lane)].push_back(gone);
        self.look(host);
    }

    /// All of a packet is in a host's adapter.
    pub(super) fn arrived(&mut self, host: u32, packet: u32) {
        let p = self.packets.all[packet as usize];
        self.packets.free.push(packet);
        if !self.by_credits() && !self.admit(p.came, p.wire_bytes) {
            return;
        }
        if p.ack {
            self.give_back(&p, self.now_ps, NONE);
            self.acknowledged(host, p);
            return;
        }
        let (loses, again) = (self.gaps_are_losses(), self.sends_again());
        let flow = &mut self.flows[p.flow as usize];
        flow.info.packets_arrived += 1;
        let early = p.number.wrapping_sub(flow.expected) as usize;
        let iwarp = flow.spec.transport == Transport::Iwarp;
        if early > 0 && (iwarp || again) && !flow.wants(p.number, loses) {
            // Here already, or after a gap that RC does not bridge.
            self.give_back(&p, self.now_ps, NONE);
            self.answer_early(host, p, iwarp);
            return;
        }
        flow.info.bytes_arrived += u64::from(p.payload_bytes);
        assert!(
            early == 0 || loses || self.select.reorders(),
            "packets of a flow changed places"
        );
        let strict = flow.spec.ordering == Ordering::Strict;
        if early > 0 {
            flow.keep_early(early - 1, p);
            let taken = match strict {
                true => self.now_ps,
                false => self.place(host, p.payload_bytes).0,
            };
            self.give_back(&p, taken, NONE);
            if iwarp {
                self.acknowledge(host, p.flow, true);
            }
            return;
        }
        let (taken, mut there) = self.place(host, p.payload_bytes);
        self.give_back(&p, taken, NONE);
        self.flows[p.flow as usize].asked = false;
        self.in_order(host, p.flow, p.last, there);
        while let Some(next) = self.flows[p.flow as usize].take_early() {
            if strict {
                there = self.place(host, next.payload_bytes).1;
            }
            self.in_order(host, p.flow, next.last, there);
        }
    }

    /// Writes a packet to memory: when the bus has taken it, and when it is there.
    fn place(&mut self, host: u32, payload_bytes: u16) -> (u64, u64) {
        let now = self.now_ps;
        let state = &mut self.hosts[host as usize];
        match &state.bus {
            Some(bus) => {
                let busy = bus.busy_ps(u32::from(payload_bytes));
                state.write_free_ps = now.max(state.write_free_ps) + busy;
                (state.write_free_ps, state.write_free_ps + bus.latency_ps)
            }
            None => (now, now),
        }
    }

    /// The next packet of a flow, and all before it, have come.
    fn in_order(&mut self, host: u32, number: u32, last: bool, there: u64) {
        let flow = &mut self.flows[number as usize];
        flow.expected = flow.expected.wrapping_add(1);
        if last {
            let taken = there + flow.spec.take_ps;
            self.post(taken, IN_MEMORY, number, 0);
            if self.flows[number as usize].spec.transport.is_acknowledged() {
                self.acknowledge(host, number, false);
            }
        } else if self.flows[number as usize].spec.transport == Transport::Iwarp {
            let flow = &mut self.flows[number as usize];
            flow.unacknowledged += 1;
            if flow.unacknowledged >= 2 {
                self.acknowledge(host, number, false);
            }
        }
    }

    /// A packet that the receiver has no use for: it says what it expects.
    fn answer_early(&mut self, host: u32, p: Packet, iwarp: bool) {
        let flow = &mut self.flows[p.flow as usize];
        let before = p.number.wrapping_sub(flow.expected) > u32::MAX / 2;
        if before || iwarp {
            self.acknowledge(host, p.flow, false);
        } else if !flow.asked && self.gaps_are_losses() {
            self.flows[p.flow as usize].asked = true;
            self.acknowledge(host, p.flow, true);
        }
    }

    fn acknowledge(&mut self, host: u32, flow: u32, early: bool) {
        let to = self.flows[flow as usize].spec.from;
        let out = self.way(host, host, to);
        let of = &mut self.flows[flow as usize];
        of.unacknowledged = 0;
        let expected = of.expected;
        let wire_bytes = short(match self.ethernet {
            Some(_) => ethernet::ack_frame_bytes(of.spec.transport) + self.wire_only,
            None => ACK_BYTES + DELIMITER_BYTES,
        });
        let packet = self.packets.add(Packet {
            ready_ps: self.now_ps,
            travel_ps: 0,
            flow,
            number: expected,
            next: NONE,
            out,
            came: NONE,
            choice: 0,
            payload_bytes: if early { EARLY } else { 0 },
            wire_bytes,
            lane: self.flows[flow as usize].spec.lane + self.routes.lane(host, to, 0),
            last: true,
            ack: true,
            probe: Probe::No,
        });
        self.append(1, packet);
    }

    /// The last of a message is in memory, and whoever waits for it sees it.
    pub(super) fn in_memory(&mut self, number: u32) {
        let now = self.now_ps;
        let flow = &mut self.flows[number as usize];
        let half = flow.spec.messages / 2;
        let info = &mut flow.info;
        info.messages_arrived += 1;
        if info.messages_arrived <= half {
            info.half_ps = now;
            info.half_messages = info.messages_arrived;
        }
        info.last_ps = now;
        let (partner, answers, grants) = (flow.partner, flow.answers, flow.grants);
        if grants != NONE {
            self.grant(grants);
            return;
        }
        if partner == NONE {
            if info.messages_arrived == flow.spec.messages && !self.followers.is_empty() {
                self.follow(number);
            }
            return;
        }
        let other = &mut self.flows[partner as usize];
        if answers {
            let took = now - other.turn_ps;
            let info = &mut other.info;
            info.round_trips_ps += u128::from(took);
            info.round_trip_min_ps = info.round_trip_min_ps.min(took);
            info.round_trip_max_ps = info.round_trip_max_ps.max(took);
        }
        other.turns += 1;
        other.turn_ps = now;
        let host = other.spec.from;
        self.look(host);
    }
}

impl Host {
    pub(super) fn new(spec: &HostSpec, lanes: u32) -> Self {
        let places: VecDeque<u64> = (0..spec.prefetch_packets).map(|_| 0).collect();
        Self {
            bus: spec.bus,
            post_ps: spec.post_ps,
            engine_ps: [spec.engine_ps, spec.engine_datagram_ps],
            engine_free_ps: 0,
            read_free_ps: 0,
            write_free_ps: 0,
            places: vec![places; lanes as usize],
            flows: Vec::new(),
            served: 0,
            looks_at_ps: NEVER,
        }
    }
}

impl Host {
    /// One that is in another part of the world.
    pub(super) const fn away() -> Self {
        Self {
            bus: None,
            post_ps: 0,
            engine_ps: [0; 2],
            engine_free_ps: 0,
            read_free_ps: 0,
            write_free_ps: 0,
            places: Vec::new(),
            flows: Vec::new(),
            served: 0,
            looks_at_ps: NEVER,
        }
    }
}

impl Flow {
    fn new(spec: FlowSpec, answers_to: u32) -> Self {
        Self {
            spec,
            partner: answers_to,
            answers: answers_to != NONE,
            core_free_ps: spec.start_ps,
            begun: 0,
            left_bytes: 0,
            turns: 0,
            turn_ps: spec.start_ps,
            gated: false,
            granted: VecDeque::new(),
            grants: NONE,
            request: NONE,
            completed: 0,
            completions: VecDeque::new(),
            packets: 0,
            expected: 0,
            early: VecDeque::new(),
            early_bytes: 0,
            asked: false,
            unacknowledged: 0,
            sent: 0,
            heard: Heard::new(u64::from((spec.window_bytes / spec.mtu_bytes).max(2))),
            info: FlowInfo {
                round_trip_min_ps: NEVER,
                ..FlowInfo::default()
            },
        }
    }

    /// Payload of its longest packets.
    pub(super) fn packet_bytes(&self) -> u32 {
        self.spec.message_bytes.min(self.spec.mtu_bytes)
    }

    /// A packet that is not the next one is of use: iWARP keeps what it has not yet; RC nothing if packets are lost.
    fn wants(&self, number: u32, loses: bool) -> bool {
        let ahead = number.wrapping_sub(self.expected);
        if ahead > u32::MAX / 2 || (loses && self.spec.transport != Transport::Iwarp) {
            return false;
        }
        let place = ahead as usize - 1;
        !matches!(self.early.get(place), Some(Some(_)))
    }

    /// Notes a packet that came before one sent earlier.
    fn keep_early(&mut self, place: usize, p: Packet) {
        if self.early.len() <= place {
            self.early.resize(place + 1, None);
        }
        self.early[place] = Some(Early {
            payload_bytes: p.payload_bytes,
            last: p.last,
        });
        self.early_bytes += u64::from(p.payload_bytes);
        self.info.early += 1;
        self.info.early_bytes_max = self.info.early_bytes_max.max(self.early_bytes);
    }

    /// The packet after the one that came last in order, if it is here already.
    fn take_early(&mut self) -> Option<Early> {
        let next = self.early.pop_front().flatten()?;
        self.early_bytes -= u64::from(next.payload_bytes);
        Some(next)
    }

    /// When its next packet's message is posted; `None`: not before something else happens.
    fn posts_at(&self, post_ps: u64) -> Option<u64> {
        if !self.heard.resend.is_empty() {
            return Some(0);
        }
        if self.window_full() {
            return None;
        }
        if self.left_bytes > 0 {
            return Some(0);
        }
        if self.begun >= self.spec.messages {
            return None;
        }
        if self.spec.ping_pong {
            let turn = self.begun < self.turns;
            return turn.then(|| self.core_free_ps.max(self.turn_ps) + post_ps);
        }
        if self.begun >= self.completed + u64::from(self.spec.depth) {
            return None;
        }
        let since = match self.gated {
            true => *self.granted.front()?,
            false => 0,
        };
        Some(self.core_free_ps.max(self.slot_ps()).max(since) + post_ps)
    }

    /// When the message was complete whose place the next one takes.
    fn slot_ps(&self) -> u64 {
        let Some(before) = self.begun.checked_sub(u64::from(self.spec.depth)) else {
            return 0;
        };
        let oldest = self.completed - self.completions.len() as u64;
        let place = usize::try_from(before.saturating_sub(oldest)).unwrap_or(0);
        self.completions.get(place).copied().unwrap_or(0)
    }

    /// Posts a message; returns when that is done.
    fn begin(&mut self, post_ps: u64) -> u64 {
        let posted = self.posts_at(post_ps).unwrap_or(self.core_free_ps);
        if self.info.packets_sent == 0 {
            self.info.first_posted_ps = posted - post_ps;
        }
        self.core_free_ps = posted;
        self.granted.pop_front();
        self.begun += 1;
        self.left_bytes = self.spec.message_bytes;
        posted
    }

    pub(super) fn complete(&mut self, at_ps: u64) {
        self.completed += 1;
        self.completions.push_back(at_ps);
        if self.completions.len() > self.spec.depth as usize {
            self.completions.pop_front();
        }
    }
}

/// Packets are bounded by the longest MTU.
pub(super) fn short(bytes: u32) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}
