//! A world in parts that run beside each other, with the same results whatever their number.
//!
//! **Why that is exact.** What happens at one node reaches another one as a packet, as room that comes back or as a
//! pause, and each takes its time on a cable: nothing else crosses. Parts are sets of nodes; the least of those times
//! over all cables between parts is how far each may run ahead of the others ("lookahead": K. Chandy, J. Misra,
//! "Distributed simulation", IEEE Trans. Softw. Eng. SE-5(5), 1979; windows between barriers: D. Nicol, "The cost of
//! conservative synchronization in parallel discrete event simulations", J. ACM 40(2), 1993). Events of one instant
//! are in the order of their kind and of whom they concern, never of who asked first, and a part numbers what it has in
//! the world's order; so each node sees the same events in the same order as in one piece.
//!
//! **A part** has its nodes' outputs, inputs and hosts, and a second copy of each channel that comes to it from
//! another part: the sender's copy keeps credits and who is served, the receiver's what the buffer holds where no
//! credits do. Flows that begin here and end there are in both, each end using its own half.
//!
//! On one thread parts gain nothing: a window of a microsecond touches most of what a part has once, so each part is
//! read from the outer cache as often as in one piece (15 lines of 64 B a hop with 1024 hosts either way).
//!
//! Not split: congestion avoidance (edges look at each other's flows), iWARP (its sender looks at the receiver's
//! gaps), a world that has begun, and nodes joined by cables and chips without delay, which stay together.

use std::sync::Arc;

use super::{
    Calendar, Channel, Counters, Credit, Flow, Flows, HERE, Host, Input, LOOK, NEVER, NONE, PAUSE,
    Packet, Pool, START, Stuck, World, count, word,
};
use crate::ethernet::{FlowControl, PAUSE_BYTES};
use crate::spec::Transport;

/// One of the parts of a world: runs on any thread, for a window at a time.
#[derive(Debug)]
pub struct Part {
    world: World,
    lookahead_ps: u64,
    /// Of the world: for each channel of this part, and for each input.
    channels: Vec<u32>,
    inputs: Vec<u32>,
    /// Nodes and flows that it has.
    nodes: Vec<u32>,
    flows: Vec<u32>,
    /// Nothing happens in it before.
    next_ps: Option<u64>,
}

/// What one part sends to another in a window.
#[derive(Clone, Debug, Default)]
pub struct Mail {
    packets: Vec<(u64, u32, u32, Packet)>,
    notes: Vec<Note>,
    first_ps: Option<u64>,
}

/// Room or a pause, for a sender in another part.
#[derive(Clone, Copy, Debug)]
struct Note {
    at_ps: u64,
    room: u32,
    pause: bool,
    blocks: u32,
    /// What the room had waited for, or what the pause says.
    what: u32,
}

impl Mail {
    /// Nothing in it does anything before; `None`: there is nothing in it.
    pub const fn first_ps(&self) -> Option<u64> {
        self.first_ps
    }

    fn note_time(&mut self, at_ps: u64) {
        self.first_ps = Some(self.first_ps.map_or(at_ps, |first| first.min(at_ps)));
    }
}

impl Part {
    /// For how long it may run beyond the first event of all parts.
    pub const fn lookahead_ps(&self) -> u64 {
        self.lookahead_ps
    }

    /// Nothing happens in it before that; `None`: nothing does, unless mail comes.
    pub const fn next_ps(&self) -> Option<u64> {
        self.next_ps
    }

    /// Runs all that happens before `end_ps`.
    pub fn run_before(&mut self, end_ps: u64) {
        if self.next_ps.is_some_and(|next| next < end_ps) {
            self.next_ps = self.world.run_before(end_ps);
        }
    }

    /// Nothing that it has for another part does anything before; `None`: it has nothing.
    pub fn mail_first_ps(&self, to: usize) -> Option<u64> {
        self.world.out_box[to].first_ps
    }

    /// Exchanges what it has for another part against an empty `mail`.
    pub fn take(&mut self, to: usize, mail: &mut Mail) {
        std::mem::swap(&mut self.world.out_box[to], mail);
    }

    /// Takes in what another part had for it, and leaves `mail` empty.
    pub fn give(&mut self, mail: &mut Mail) {
        let Some(first) = mail.first_ps.take() else {
            return;
        };
        self.next_ps = Some(self.next_ps.map_or(first, |next| next.min(first)));
        let world = &mut self.world;
        for (at_ps, kind, who, packet) in mail.packets.drain(..) {
            let packet = world.packets.add(packet);
            world.queue.push(word(at_ps, kind, who, packet));
        }
        for note in mail.notes.drain(..) {
            match note.pause {
                true => world
                    .queue
                    .push(word(note.at_ps, PAUSE, note.room, note.what)),
                false => world.room_back(note.room, note.blocks, note.at_ps, note.what),
            }
        }
    }
}

/// Runs parts one after the other, window by window, until nothing is left.
#[cfg(test)]
pub(super) fn run(parts: &mut [Part]) {
    let mut mail = Mail::default();
    let Some(lookahead) = parts.first().map(Part::lookahead_ps) else {
        return;
    };
    while let Some(next) = parts.iter().filter_map(Part::next_ps).min() {
        for part in &mut *parts {
            part.run_before(next + lookahead);
        }
        for from in 0..parts.len() {
            for to in 0..parts.len() {
                if parts[from].world.out_box[to].first_ps.is_some() {
                    parts[from].take(to, &mut mail);
                    parts[to].give(&mut mail);
                    parts[from].take(to, &mut mail);
                }
            }
        }
    }
}

impl World {
    /// Buffers of all lanes: a measure of its size.
    pub fn rooms(&self) -> usize {
        self.credits.len()
    }

    /// Takes a world that has not begun apart, into at most so many parts of about equal work; empty when it cannot be
    /// (see the module) or there is no more than one. [`World::join`] makes it whole again.
    pub fn split(&mut self, parts: usize) -> Vec<Part> {
        let whole = self.counters.events > 0 || !self.packets.all.is_empty();
        let iwarp = |f: &Flow| f.spec.transport == Transport::Iwarp;
        if parts < 2 || whole || self.avoidance.is_some() || self.flows.iter().any(iwarp) {
            return Vec::new();
        }
        let owner = self.owners(parts.min(PARTS_MAX));
        let parts = owner.iter().max().map_or(0, |last| usize::from(*last) + 1);
        if parts < 2 {
            return Vec::new();
        }
        let lookahead_ps = self.lookahead_ps(&owner);
        // Numbers in the parts: of channels at both ends, of inputs.
        let mut near = vec![NONE; self.channels.len()];
        let mut far = vec![NONE; self.channels.len()];
        let mut channels: Vec<Vec<u32>> = vec![Vec::new(); parts];
        for (n, channel) in (0..).zip(&self.channels) {
            let [from, to] = [channel.from, channel.to].map(|n| usize::from(owner[n as usize]));
            near[n as usize] = count(channels[from].len());
            channels[from].push(n);
            if from != to {
                far[n as usize] = count(channels[to].len());
                channels[to].push(n);
            }
        }
        let mut place = vec![NONE; self.inputs.len()];
        let mut inputs: Vec<Vec<u32>> = vec![Vec::new(); parts];
        for (n, input) in (0..).zip(&self.inputs) {
            let part = &mut inputs[usize::from(owner[input.node as usize])];
            place[n as usize] = count(part.len());
            part.push(n);
        }
        let numbers = Numbers {
            owner: &owner,
            near: &near,
            far: &far,
            inputs: &place,
            paths: Arc::new(self.paths.iter().map(|n| near[*n as usize]).collect()),
        };
        self.queue = Calendar::new();
        let made = (0..parts).zip(channels.into_iter().zip(inputs));
        made.map(|(n, (channels, inputs))| {
            self.part(n, parts, lookahead_ps, channels, inputs, &numbers)
        })
        .collect()
    }

    fn part(
        &mut self,
        number: usize,
        parts: usize,
        lookahead_ps: u64,
        channels: Vec<u32>,
        inputs: Vec<u32>,
        numbers: &Numbers<'_>,
    ) -> Part {
        let here = |node: u32| numbers.is_of(node, number);
        let mut nodes = self.nodes.clone();
        for node in (0..).zip(&mut nodes).filter(|(n, _)| here(*n)) {
            node.1.input = numbers.inputs[node.1.input as usize];
        }
        let made = self.part_channels(number, &channels, numbers);
        let credits = self.part_credits(number, &channels, numbers);
        let flows = self.part_flows(number, numbers);
        let hosts = (0..).zip(&mut self.hosts).map(|(n, host)| match here(n) {
            true => std::mem::replace(host, Host::away()),
            false => Host::away(),
        });
        let hosts: Vec<Host> = hosts.collect();
        let own_ways = self.ways.iter().map(|n| {
            let of = &self.channels[*n as usize];
            match here(of.from) {
                true => self.own(number, *n, numbers),
                false => NONE,
            }
        });
        let mut world = Self {
            now_ps: 0,
            queue: Calendar::new(),
            lanes: self.lanes,
            channels: made,
            kinds: self.kinds.clone(),
            split: true,
            by_arrival: self.by_arrival,
            credits,
            ways: own_ways.collect(),
            nodes,
            inputs: inputs.iter().map(|n| self.inputs[*n as usize]).collect(),
            select: self.select.clone(),
            late: self.late,
            mixed: self.mixed,
            packets: Pool::default(),
            hosts,
            flows: self.kept_flows(&flows),
            ends: self.ends.clone(),
            own_lanes: self.own_lanes.clone(),
            routes: self.routes.clone(),
            counters: Counters::default(),
            seed: self.seed,
            queueing: self.queueing,
            ethernet: self.ethernet,
            wire_only: self.wire_only,
            avoidance: None,
            faults: self.faults.clone(),
            cut_data: 0,
            followers: self.followers.clone(),
            data_ps: 0,
            blame: std::collections::BTreeMap::new(),
            due: Vec::new(),
            due_sorted: true,
            path_of: self.path_of.clone(),
            paths: numbers.paths.clone(),
            out_box: vec![Mail::default(); parts],
        };
        self.post_starts(number, &flows, numbers, &mut world);
        world.post_faults();
        let nodes = (0..count(self.nodes.len())).filter(|n| here(*n)).collect();
        Part {
            world,
            lookahead_ps,
            channels,
            inputs,
            nodes,
            flows,
            next_ps: Some(0),
        }
    }

    /// A channel's number at this part's end of it.
    fn own(&self, number: usize, channel: u32, numbers: &Numbers<'_>) -> u32 {
        match numbers.is_of(self.channels[channel as usize].from, number) {
            true => numbers.near[channel as usize],
            false => numbers.far[channel as usize],
        }
    }

    /// Channels with a part's own numbers.
    fn part_channels(
        &self,
        number: usize,
        channels: &[u32],
        numbers: &Numbers<'_>,
    ) -> Vec<Channel> {
        let here = |node: u32| numbers.is_of(node, number);
        let made = channels.iter().map(|n| {
            let channel = &self.channels[*n as usize];
            let [from, to] = [channel.from, channel.to];
            let mut made = channel.clone();
            if !made.to_host {
                made.far = numbers.inputs[made.far as usize];
            }
            made.inputs = numbers.inputs[made.inputs as usize];
            made.back = self.own(number, made.back, numbers);
            if here(from) != here(to) {
                let (other, there) = match here(from) {
                    true => (to, numbers.far[*n as usize]),
                    false => (from, numbers.near[*n as usize]),
                };
                made.part = numbers.owner[other as usize];
                made.there = there;
            }
            made
        });
        made.collect()
    }

    /// Credits of those, marked where the other end keeps them.
    fn part_credits(&self, number: usize, channels: &[u32], numbers: &Numbers<'_>) -> Vec<Credit> {
        let lanes = self.lanes as usize;
        let credits = channels.iter().flat_map(|n| {
            let first = *n as usize * lanes;
            let away = !numbers.is_of(self.channels[*n as usize].from, number);
            self.credits[first..first + lanes]
                .iter()
                .map(move |credit| Credit {
                    away,
                    ..credit.clone()
                })
        });
        credits.collect()
    }

    /// Numbers of the flows that begin or end in a part.
    fn part_flows(&self, number: usize, numbers: &Numbers<'_>) -> Vec<u32> {
        let here = |node: u32| numbers.is_of(node, number);
        let flow_here = |f: &Flow| here(f.spec.from) || here(f.spec.to);
        (0..)
            .zip(&self.flows)
            .filter(|(_, f)| flow_here(f))
            .map(|(n, _)| n)
            .collect()
    }

    /// Those flows, found by the numbers that they have in the whole.
    fn kept_flows(&self, flows: &[u32]) -> Flows {
        let mut places = vec![NONE; self.flows.len()];
        for (place, n) in (0..).zip(flows) {
            places[*n as usize] = place;
        }
        let all = flows.iter().map(|n| self.flows[*n as usize].clone());
        Flows {
            all: all.collect(),
            places,
        }
    }

    /// Has a part's own flows begin when they do in the whole.
    fn post_starts(&self, number: usize, flows: &[u32], numbers: &Numbers<'_>, world: &mut Self) {
        for n in flows {
            let flow = &self.flows[*n as usize];
            let told = flow.answers || flow.grants != NONE || flow.spec.after.is_some();
            if told || !numbers.is_of(flow.spec.from, number) {
                continue;
            }
            let (kind, who) = match flow.spec.passing {
                true => (START, *n),
                false => (LOOK, flow.spec.from),
            };
            world.post(flow.spec.start_ps, kind, who, 0);
        }
    }

    /// Puts parts together again after they have run until nothing was left, and says what it came to as
    /// [`World::run`] does.
    ///
    /// # Errors
    /// [`Stuck`], as [`World::run`].
    ///
    /// # Panics
    /// When the parts are not all of this world's, or credits are not conserved.
    pub fn join(&mut self, parts: Vec<Part>) -> Result<(), Stuck> {
        for part in parts {
            assert!(part.next_ps.is_none(), "a part has not run to its end");
            self.take_in(part);
        }
        self.outcome()
    }

    fn take_in(&mut self, part: Part) {
        let lanes = self.lanes as usize;
        let mut from = part.world;
        self.now_ps = self.now_ps.max(from.now_ps);
        self.data_ps = self.data_ps.max(from.data_ps);
        self.counters.add(&from.counters);
        self.cut_data += from.cut_data;
        self.blame.append(&mut from.blame);
        let by_credits = self.by_credits();
        for (place, (n, channel)) in part.channels.iter().zip(&from.channels).enumerate() {
            let ghost = from.credits[place * lanes].away;
            let buffer = match by_credits {
                true => !ghost,
                false => ghost || channel.there == NONE,
            };
            for lane in 0..lanes {
                let (there, here) = (place * lanes + lane, *n as usize * lanes + lane);
                self.credits[here].merge(&from.credits[there], !ghost, buffer);
            }
            if ghost {
                continue;
            }
            let to = &mut self.channels[*n as usize];
            *to = Channel {
                far: to.far,
                inputs: to.inputs,
                there: NONE,
                back: to.back,
                part: 0,
                ..channel.clone()
            };
        }
        for (n, input) in part.inputs.iter().zip(&from.inputs) {
            let mut made = Input {
                head: NONE,
                tail: NONE,
                last_out: from.number_of(input.last_out),
                ..*input
            };
            let mut at = input.head;
            while at != NONE {
                let p = from.packets.all[at as usize];
                let came = match p.came {
                    NONE => NONE,
                    room => from.number_of(room / self.lanes) * self.lanes + room % self.lanes,
                };
                let packet = self.packets.add(Packet {
                    came,
                    out: from.number_of(p.out),
                    next: NONE,
                    ..p
                });
                match made.tail {
                    NONE => made.head = packet,
                    tail => self.packets.all[tail as usize].next = packet,
                }
                made.tail = packet;
                at = p.next;
            }
            self.inputs[*n as usize] = made;
        }
        let hosts = count(self.hosts.len());
        let mut from_hosts = from.hosts;
        for n in part.nodes.iter().filter(|n| **n < hosts) {
            std::mem::swap(&mut self.hosts[*n as usize], &mut from_hosts[*n as usize]);
        }
        let here = |host: u32| part.nodes.binary_search(&host).is_ok();
        for (n, flow) in part.flows.iter().zip(from.flows.all) {
            let whole = &mut self.flows.all[*n as usize];
            let (sends, receives) = (here(flow.spec.from), here(flow.spec.to));
            whole.merge(flow, sends, receives);
        }
    }

    fn number_of(&self, channel: u32) -> u32 {
        match channel {
            NONE => NONE,
            channel => self.channels[channel as usize].number,
        }
    }

    /// A packet leaves for another part.
    pub(super) fn mail_packet(
        &mut self,
        channel: u32,
        at_ps: u64,
        kind: u32,
        who: u32,
        packet: u32,
    ) {
        let state = &self.channels[channel as usize];
        let p = self.packets.all[packet as usize];
        self.packets.free.push(packet);
        let mail = &mut self.out_box[usize::from(state.part)];
        let came = state.there * self.lanes + p.came % self.lanes;
        debug_assert!(kind != HERE || who == state.there);
        mail.packets.push((at_ps, kind, who, Packet { came, ..p }));
        mail.note_time(at_ps);
    }

    /// Room, or a pause, for the sender of a channel that comes from another part.
    pub(super) fn mail_note(&mut self, came: u32, at_ps: u64, pause: bool, blocks: u32, what: u32) {
        let state = &self.channels[(came / self.lanes) as usize];
        let mail = &mut self.out_box[usize::from(state.part)];
        mail.notes.push(Note {
            at_ps,
            room: state.there * self.lanes + came % self.lanes,
            pause,
            blocks,
            what,
        });
        mail.note_time(at_ps);
    }

    /// The least time in which anything crosses from a part to another.
    fn lookahead_ps(&self, owner: &[u16]) -> u64 {
        let crosses = |c: &&Channel| owner[c.from as usize] != owner[c.to as usize];
        let cut = self.channels.iter().filter(crosses);
        cut.map(|c| self.crossing_ps(c)).min().unwrap_or(NEVER)
    }

    /// The least time in which a packet crosses a channel, or word of it comes back.
    fn crossing_ps(&self, channel: &Channel) -> u64 {
        let kind = &self.kinds[usize::from(channel.kind)];
        let there = match self.late {
            true => kind.propagation_ps,
            false => kind.propagation_ps + kind.latency_ps,
        };
        let back = match self.ethernet.map(|e| e.control) {
            None | Some(FlowControl::Credits) => kind.travel_ps,
            Some(FlowControl::Pfc(pfc)) => {
                let other = self.kind(channel.back);
                other.byte.of(PAUSE_BYTES) + other.propagation_ps + pfc.respond_ps
            }
            Some(FlowControl::DropTail) => NEVER,
        };
        there.min(back)
    }

    /// The part of each node: hosts in the order of their numbers, each with its chip, and other chips where most of
    /// their neighbours or least work is.
    fn owners(&self, parts: usize) -> Vec<u16> {
        let mut groups = Groups::new(self.nodes.len());
        for channel in &self.channels {
            let ends = [channel.from, channel.to];
            let host = ends.iter().any(|n| self.nodes[*n as usize].host);
            if host || self.crossing_ps(channel) == 0 {
                groups.join(ends);
            }
        }
        let work = self.work();
        let mut load = vec![0_u64; parts];
        let mut owner = vec![NOBODY; self.nodes.len()];
        let mut of_group = vec![0_u64; self.nodes.len()];
        for (n, work) in (0..).zip(&work) {
            of_group[groups.first(n) as usize] += work;
        }
        let hosts = count(self.hosts.len());
        let with_hosts: Vec<u32> = (0..hosts).filter(|n| groups.first(*n) == *n).collect();
        let all: u64 = with_hosts.iter().map(|n| of_group[*n as usize]).sum();
        let mut before = 0;
        for group in with_hosts {
            let middle = before + of_group[group as usize] / 2;
            let part = u128::from(middle) * parts as u128 / u128::from(all.max(1));
            let part = usize::try_from(part).unwrap_or(0).min(parts - 1);
            owner[group as usize] = u16::try_from(part).unwrap_or(0);
            load[part] += of_group[group as usize];
            before += of_group[group as usize];
        }
        let mut neighbours: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for channel in &self.channels {
            let [from, to] = [channel.from, channel.to].map(|n| groups.first(n));
            neighbours[from as usize].push(to);
        }
        // Level by level from those with hosts on.
        loop {
            let next: Vec<(u32, Vec<u32>)> = (0..count(self.nodes.len()))
                .filter(|n| groups.first(*n) == *n && owner[*n as usize] == NOBODY)
                .filter_map(|n| {
                    let mut links = vec![0_u32; parts];
                    for other in &neighbours[n as usize] {
                        if let Some(links) = links.get_mut(usize::from(owner[*other as usize])) {
                            *links += 1;
                        }
                    }
                    links.iter().any(|l| *l > 0).then_some((n, links))
                })
                .collect();
            if next.is_empty() {
                break;
            }
            for (n, links) in next {
                let most = links.iter().max().copied().unwrap_or(0);
                let near = (0..parts).filter(|p| links[*p] * 2 > most);
                let part = near.min_by_key(|p| (load[*p], *p)).unwrap_or(0);
                load[part] += of_group[n as usize];
                owner[n as usize] = u16::try_from(part).unwrap_or(0);
            }
        }
        // What nothing leads to does nothing.
        let all = (0..count(self.nodes.len())).map(|n| match owner[groups.first(n) as usize] {
            NOBODY => 0,
            part => part,
        });
        let all: Vec<u16> = all.collect();
        let mut used: Vec<u16> = all.clone();
        used.sort_unstable();
        used.dedup();
        let renamed =
            |part: &u16| u16::try_from(used.binary_search(part).unwrap_or(0)).unwrap_or(0);
        all.iter().map(renamed).collect()
    }

    /// Packets that each node handles, by the tables.
    fn work(&self) -> Vec<u64> {
        let mut work = vec![1_u64; self.nodes.len()];
        for flow in &self.flows {
            let packets = flow
                .spec
                .messages
                .saturating_mul(u64::from(flow.packets_each()));
            let (from, to) = (flow.spec.from, flow.spec.to);
            let mut node = from;
            while node != to {
                work[node as usize] = work[node as usize].saturating_add(packets.min(WORK_MAX));
                node = self.channels[self.way(node, from, to) as usize].to;
            }
        }
        work
    }
}

/// Numbers of channels in the part of the node before and in that of the node behind, and of inputs.
struct Numbers<'a> {
    owner: &'a [u16],
    near: &'a [u32],
    far: &'a [u32],
    inputs: &'a [u32],
    paths: Arc<Vec<u32>>,
}

impl Numbers<'_> {
    /// Whether a node is in that part.
    fn is_of(&self, node: u32, part: usize) -> bool {
        usize::from(self.owner[node as usize]) == part
    }
}

/// Nodes that stay together, each by the least of its group.
struct Groups {
    first: Vec<u32>,
}

impl Groups {
    fn new(nodes: usize) -> Self {
        Self {
            first: (0..count(nodes)).collect(),
        }
    }

    fn first(&self, node: u32) -> u32 {
        let mut at = node;
        while self.first[at as usize] != at {
            at = self.first[at as usize];
        }
        at
    }

    fn join(&mut self, ends: [u32; 2]) {
        let [a, b] = ends.map(|n| self.first(n));
        self.first[a.max(b) as usize] = a.min(b);
        for end in ends {
            self.first[end as usize] = a.min(b);
        }
    }
}

impl Credit {
    /// Takes over what a part knows: of the sender, and of what the buffer holds.
    fn merge(&mut self, part: &Self, sender: bool, buffer: bool) {
        let whole = self.clone();
        let (sends, holds) = (
            if sender { part } else { &whole },
            if buffer { part } else { &whole },
        );
        *self = Self {
            at_ps: holds.at_ps,
            causes: holds.causes,
            blocks: holds.blocks,
            returns: holds.returns,
            more: holds.more.clone(),
            free: holds.free,
            held: holds.held,
            all: holds.all,
            xoff: holds.xoff,
            signalled_ps: holds.signalled_ps,
            last_cause: holds.last_cause,
            away: false,
            ..sends.clone()
        };
    }
}

impl Flow {
    /// Takes over what the part of its sender or of its receiver knows.
    fn merge(&mut self, part: Self, sends: bool, receives: bool) {
        if sends && receives {
            *self = part;
            return;
        }
        let (sender, receiver) = match sends {
            true => (part, self.clone()),
            false => (self.clone(), part),
        };
        let came = receiver.info;
        *self = Self {
            expected: receiver.expected,
            early: receiver.early,
            early_bytes: receiver.early_bytes,
            asked: receiver.asked,
            unacknowledged: receiver.unacknowledged,
            info: super::FlowInfo {
                packets_arrived: came.packets_arrived,
                bytes_arrived: came.bytes_arrived,
                early: came.early,
                early_bytes_max: came.early_bytes_max,
                messages_arrived: came.messages_arrived,
                half_ps: came.half_ps,
                half_messages: came.half_messages,
                last_ps: came.last_ps,
                ..sender.info
            },
            ..sender
        };
    }
}

impl Counters {
    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.packet_hops += other.packet_hops;
        self.dropped += other.dropped;
        self.pauses += other.pauses;
        self.cut += other.cut;
    }
}

const PARTS_MAX: usize = 1_024;
const NOBODY: u16 = u16::MAX;
/// Of a flow: enough to weigh it, too little to overflow.
const WORK_MAX: u64 = 1 << 40;
