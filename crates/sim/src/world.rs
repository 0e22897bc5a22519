//! Links, flows and the order of events.
//!
//! Parties of the [`Agenda`]: each direction of each link (its next train, or the next segment of the train
//! that is arriving), each sender and each receiver (their timers). A train that leaves a link is taken
//! segment by segment, each at its time, as long as nothing else comes between.
//!
//! What a handle means: bit 63 is set for acknowledgments, bit 62 for the handshake; the rest is the
//! first segment's number, or the acknowledgment's. The flow's number is the train's flow.

use link::spec::{DirectionSpec, Stretch};
use link::{Change, Counters, Link, Marks, Spacing, Times, Train, Way};
use tcp::{Ack, AckRun, Burst, Sender};
use units::{Duration, Instant, Rate};

use crate::agenda::Agenda;
use crate::disturbance::{Disturbance, Disturbed};
use crate::flow::{Flow, FlowInfo, FlowSpec};
use crate::tap::{Passed, Tap, What};

/// A link of a world.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// From its first end to its second.
    pub forward: DirectionSpec,
    /// Back.
    pub backward: DirectionSpec,
    /// Changes on the way, in the order of time.
    pub schedule: Vec<(Instant, Way, Change)>,
}

/// A link that a packet takes, and which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its place among the links.
    pub link: usize,
    /// Which way.
    pub way: Way,
}

/// What is to be simulated.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// The links.
    pub links: Vec<LinkSpec>,
    /// The connections.
    pub flows: Vec<FlowSpec>,
    /// Of hosts whose bus holds them back.
    pub buses: Vec<BusSpec>,
}

/// What lies between a host's memory and its interface: one frame after the other.
#[derive(Clone, Copy, Debug)]
pub struct BusSpec {
    /// At which it moves frames.
    pub rate: Rate,
    /// Time of each transfer beside that, one a frame.
    pub cost: Duration,
}

/// A bus in use.
#[derive(Clone, Copy, Debug)]
struct Bus {
    spec: BusSpec,
    free_at: Instant,
    /// Fraction of a nanosecond beyond that, times the rate.
    remainder: u64,
}

impl Bus {
    /// When frames of so many bytes that come now begin, and how they follow each other; the bus is theirs until the last
    /// one is over.
    fn take(&mut self, now: Instant, count: u16, frame_bytes: u32) -> (Instant, Spacing) {
        let rate = self.spec.rate.as_bits_per_second();
        if now > self.free_at {
            self.remainder = 0;
        }
        let bits = u64::from(frame_bytes) * 8;
        let step = bits * 1_000_000_000 + self.spec.cost.as_ns() * rate;
        let spacing = Spacing::every(step, rate, self.remainder);
        let whole = u128::from(self.remainder) + u128::from(count) * u128::from(step);
        let ns = u64::try_from(whole / u128::from(rate)).unwrap_or(u64::MAX);
        self.remainder = u64::try_from(whole % u128::from(rate)).unwrap_or(0);
        let start = now.max(self.free_at);
        self.free_at = start + Duration::from_ns(ns);
        (start, spacing)
    }
}

/// Why a world cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorldError {
    /// A flow has no way to its far end, or none back, or one by a link that there is not.
    NoRoute {
        /// Its number.
        flow: usize,
    },
    /// A flow passes one direction of a link twice.
    Loop {
        /// Its number.
        flow: usize,
    },
}

/// Endpoints and links in motion.
#[derive(Debug)]
pub struct World {
    now: Instant,
    links: Vec<Link>,
    specs: Vec<[DirectionSpec; 2]>,
    /// Of each direction.
    stretches: Vec<Stretch>,
    counters: Vec<[Counters; 2]>,
    arriving: Vec<Option<Arriving>>,
    /// Directions at whose end something happens beside the path.
    disturbed: Vec<Option<Disturbed>>,
    flows: Vec<Flow>,
    buses: Vec<Bus>,
    /// For each flow, there and back, and each direction of a link: the direction behind it.
    routes: Vec<Vec<Option<usize>>>,
    /// Directions that take a train ahead of its time, though others come before it.
    ahead: Vec<bool>,
    agenda: Agenda,
    tap: Option<Tap>,
    events: u64,
    /// Events in a row that took no time.
    same_instant: u64,
}

impl Arriving {
    /// What is left when `count` more segments have been taken.
    fn without(mut self, count: u16) -> Option<Self> {
        self.taken += count;
        for _ in 0..count {
            self.times.step();
        }
        (self.taken < self.train.count).then_some(self)
    }
}

/// A train that is leaving a link.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    train: Train,
    /// Segments of it that have been taken.
    taken: u16,
    /// When the next one is there.
    times: Times,
}

const ACK: u64 = 1 << 63;
const SYN: u64 = 1 << 62;
/// No direction behind it: the end of the way.
const NONE: usize = usize::MAX;

impl std::fmt::Display for WorldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRoute { flow } => write!(f, "flow {flow} has no way there and back"),
            Self::Loop { flow } => write!(f, "flow {flow} passes a link twice"),
        }
    }
}

impl std::error::Error for WorldError {}

impl World {
    /// A world at time zero.
    ///
    /// # Errors
    /// [`WorldError`].
    ///
    /// # Panics
    /// When a direction is one that `link` refuses ([`DirectionSpec::pipeline`]).
    pub fn new(spec: WorldSpec) -> Result<Self, WorldError> {
        let ways = spec.links.len() * 2;
        let mut routes = Vec::new();
        for (number, flow) in spec.flows.iter().enumerate() {
            for hops in [&flow.forward, &flow.backward] {
                routes.push(route(hops, ways, number)?);
            }
        }
        let mut links = Vec::new();
        let mut specs = Vec::new();
        for link in spec.links {
            let sides = [&link.forward, &link.backward];
            let mut made = Link::of(sides, Instant::ZERO, 1024, !link.schedule.is_empty());
            for (at, way, change) in &link.schedule {
                made.schedule(*way, *at, *change);
            }
            links.push(made);
            specs.push([link.forward, link.backward]);
        }
        let ahead = (0..ways).map(|direction| {
            // A queue sorts what is to come; what comes second on its way is given in order of time.
            let first = links[direction / 2].stage_names(way_of(direction)).next();
            let enters = |hops: &[Hop]| hops.iter().skip(1).any(|h| direction_of(*h) == direction);
            let second = spec
                .flows
                .iter()
                .any(|f| enters(&f.forward) || enters(&f.backward));
            let users = spec.flows.iter().filter(|f| {
                [&f.forward, &f.backward]
                    .iter()
                    .any(|hops| direction_of(hops[0]) == direction)
            });
            !second && (first == Some("queue") || users.count() <= 1)
        });
        let ahead = ahead.collect();
        let buses = spec.buses.iter().map(|bus| Bus {
            spec: *bus,
            free_at: Instant::ZERO,
            remainder: 0,
        });
        let buses = buses.collect();
        let flows: Vec<Flow> = spec.flows.into_iter().map(Flow::new).collect();
        let mut agenda = Agenda::new(ways + 2 * flows.len());
        for (number, flow) in flows.iter().enumerate() {
            agenda.set(ways + 2 * number, flow.syn_at);
        }
        Ok(Self {
            now: Instant::ZERO,
            counters: vec![<[Counters; 2]>::default(); links.len()],
            arriving: vec![None; ways],
            disturbed: std::iter::repeat_with(|| None).take(ways).collect(),
            links,
            specs,
            stretches: vec![Stretch::default(); ways],
            flows,
            buses,
            routes,
            ahead,
            agenda,
            tap: None,
            events: 0,
            same_instant: 0,
        })
    }

    /// Lets everything happen up to and including `to`.
    pub fn run_until(&mut self, to: Instant) {
        loop {
            let (party, at) = self.agenda.next();
            if at > to {
                break;
            }
            self.same_instant = if at == self.now {
                self.same_instant + 1
            } else {
                0
            };
            assert!(
                self.same_instant < SAME_INSTANT_MAX,
                "party {party} does not get on at {at:?}"
            );
            self.now = at;
            self.events += 1;
            let ways = self.arriving.len();
            if party < ways {
                self.on_link(party, to);
            } else {
                let flow = (party - ways) / 2;
                if (party - ways).is_multiple_of(2) {
                    self.on_sender_timer(flow);
                } else {
                    self.on_receiver_timer(flow);
                }
            }
        }
        self.now = self.now.max(to);
    }

    /// What a direction of a link does to packets that arrive at its end, where a flow ends there.
    pub fn disturb(&mut self, hop: Hop, plan: Disturbance) {
        self.disturbed[direction_of(hop)] = Some(Disturbed::new(plan));
    }

    /// Packets that were lost by [`Self::disturb`].
    pub fn lost_besides(&self) -> u64 {
        self.disturbed.iter().flatten().map(Disturbed::lost).sum()
    }

    /// From now on packets are kept as they pass the senders' own lines, `packets_max` of them.
    pub fn watch(&mut self, packets_max: usize) {
        self.tap = Some(Tap::new(packets_max));
    }

    /// What was kept since [`Self::watch`], in the order of time; nothing is kept any more.
    pub fn watched(&mut self) -> Vec<Passed> {
        self.tap.take().map(Tap::into_order).unwrap_or_default()
    }

    /// The time that has been reached.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// How a flow stands.
    pub fn flow(&self, number: usize) -> FlowInfo {
        self.flows[number].info()
    }

    /// Sets a flow's pacing rate ([`Sender::set_pacing_rate`]); before it is connected, nothing.
    pub fn set_pacing_rate(&mut self, number: usize, rate: Rate) {
        if let Some(sender) = &mut self.flows[number].sender {
            sender.set_pacing_rate(rate);
        }
    }

    /// Number of flows.
    pub const fn flows(&self) -> usize {
        self.flows.len()
    }

    /// What a direction of a link did.
    pub fn counters(&self, link: usize, way: Way) -> Counters {
        self.counters[link][way.place()]
    }

    /// Events that were taken from the agenda.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// True when all transfers are sized and done.
    pub fn is_done(&self) -> bool {
        self.flows.iter().all(|f| f.done_at.is_some())
    }

    /// A direction of a link has something to hand over, or to be settled.
    fn on_link(&mut self, direction: usize, to: Instant) {
        loop {
            let now = self.now;
            let arriving = match self.arriving[direction] {
                Some(arriving) => arriving,
                None => match self.next_train(direction, now) {
                    Some(train) => Arriving {
                        train,
                        taken: 0,
                        times: train.times(),
                    },
                    None => {
                        self.set_link(direction);
                        return;
                    }
                },
            };
            let behind = self.behind(direction, &arriving.train);
            if arriving.times.at() > now && self.disturbed[direction].is_some() {
                self.arriving[direction] = Some(arriving);
            } else if behind != NONE {
                self.arriving[direction] = None;
                self.send(behind, arriving.train);
            } else {
                self.arriving[direction] = self.deliver(arriving, to);
            }
            self.set_link(direction);
            let (next, at) = self.agenda.next();
            if next != direction || at > to {
                return;
            }
            self.now = at;
        }
    }

    /// What comes out of a direction next, after what happens at its end.
    fn next_train(&mut self, direction: usize, now: Instant) -> Option<Train> {
        if self.disturbed[direction].is_none() {
            return self.take_train(direction, now);
        }
        loop {
            let rest = self.disturbed[direction].as_mut()?.take_rest();
            let train = match rest {
                Some(train) => train,
                None => self.take_train(direction, now)?,
            };
            if self.behind(direction, &train) != NONE {
                return Some(train);
            }
            if let Some(train) = self.disturbed[direction].as_mut()?.pass(train) {
                return Some(train);
            }
        }
    }

    fn take_train(&mut self, direction: usize, now: Instant) -> Option<Train> {
        let link = direction / 2;
        let way = way_of(direction);
        let train = self.links[link].poll_train(way, now, &mut self.counters[link])?;
        if let Some(tap) = &mut self.tap {
            let flow = &self.flows[train.flow as usize];
            let back = train.handle & ACK != 0;
            let line = match back {
                false => flow.spec.forward.first(),
                true => flow.spec.backward.last(),
            };
            if line.is_some_and(|hop| direction_of(*hop) == direction) && train.damage == 0 {
                tap.take(&train, back, |n| match (train.handle & SYN != 0, back) {
                    (true, _) => What::Syn,
                    (false, false) => What::Data(train.handle + u64::from(n)),
                    (false, true) => What::Ack(
                        flow.kept(train.handle & !ACK)
                            .map_or_else(Ack::default, |r| r.at(n)),
                    ),
                });
            }
        }
        Some(train)
    }

    /// The direction that a train enters when it leaves this one.
    fn behind(&self, direction: usize, train: &Train) -> usize {
        let back = usize::from(train.handle & ACK != 0);
        let route = train.flow as usize * 2 + back;
        self.routes[route][direction].unwrap_or(NONE)
    }

    /// When a direction is to be looked at again.
    fn set_link(&mut self, direction: usize) {
        let at = match &self.arriving[direction] {
            Some(arriving) => arriving.times.at(),
            None if self.disturbed[direction]
                .as_ref()
                .is_some_and(Disturbed::has_rest) =>
            {
                self.now
            }
            None => self.links[direction / 2]
                .next_train(way_of(direction))
                .unwrap_or(Instant::MAX),
        };
        self.agenda.set(direction, at);
    }

    /// Puts a train on a direction of a link.
    fn send(&mut self, direction: usize, train: Train) {
        let link = direction / 2;
        let way = way_of(direction);
        let network = self.network_bytes(&train);
        let spec = &self.specs[link][way.place()];
        if spec
            .black_hole_above_bytes
            .is_some_and(|most| network > most)
        {
            return;
        }
        let stretch = &mut self.stretches[direction];
        let frame = network + ETHERNET_HEADER_BYTES;
        let (wire_bytes, longer) = stretch.wire_bytes(spec.medium, frame, train.count);
        let train = Train {
            wire_bytes,
            ..train
        };
        let usual = train.count - longer;
        let log = &mut self.counters[link];
        if usual > 0 {
            self.links[link].handle_train(way, train.part(0, usual), log);
        }
        if longer > 0 {
            let train = Train {
                wire_bytes: wire_bytes + 1,
                ..train.part(usual, longer)
            };
            self.links[link].handle_train(way, train, log);
        }
        if self.arriving[direction].is_none() {
            self.set_link(direction);
        }
        if self.links[link].is_shared() {
            self.set_link(link * 2 + way.other().place());
        }
    }

    fn network_bytes(&self, train: &Train) -> u32 {
        let flow = &self.flows[train.flow as usize];
        if train.handle & SYN != 0 {
            return flow.spec.header_bytes + SYN_OPTION_BYTES;
        }
        if train.handle & ACK != 0 {
            return flow.spec.header_bytes + flow.option_bytes(train.handle & !ACK);
        }
        flow.packet_bytes(train.handle + u64::from(train.first))
    }

    /// A train reaches the end of its way: as many of its segments as may be taken before anything else
    /// happens; what is left.
    fn deliver(&mut self, arriving: Arriving, to: Instant) -> Option<Arriving> {
        let train = &arriving.train;
        let number = train.flow as usize;
        if train.damage != 0 {
            // A damaged segment fails its check sum.
            return None;
        }
        if train.handle & SYN != 0 {
            self.on_handshake(number, train.handle & ACK != 0);
            return None;
        }
        if train.handle & ACK != 0 {
            return self.deliver_acks(number, arriving, to);
        }
        self.deliver_data(number, arriving, to)
    }

    fn deliver_data(&mut self, number: usize, arriving: Arriving, to: Instant) -> Option<Arriving> {
        let Arriving { train, taken, .. } = arriving;
        let left = train.count - taken;
        let first = train.handle + u64::from(train.first) + u64::from(taken);
        let congested = train.marks.has(Marks::CE);
        let flow = &mut self.flows[number];
        if train.spacing.is_together() && (flow.spec.gathers || left == 1) {
            self.on_data(number, first, left, congested);
            return None;
        }
        let answers = direction_of(flow.spec.backward[0]);
        if left > 1 && self.ahead[answers] && !congested {
            let last = train.last_time();
            let run = if last <= to {
                flow.receiver.handle_run(first, left, self.now, last)
            } else {
                Err(())
            };
            if let Ok(run) = run {
                if let Some(run) = run {
                    self.acknowledge_run(number, run, &train, taken);
                }
                self.set_receiver(number);
                return None;
            }
        }
        self.on_data(number, first, 1, congested);
        arriving.without(1)
    }

    /// Acknowledgments that answer every second segment of a train.
    fn acknowledge_run(&mut self, number: usize, run: AckRun, data: &Train, taken: u16) {
        let flow = &mut self.flows[number];
        let direction = direction_of(flow.spec.backward[0]);
        let answered = data.part(taken + run.place, 1);
        let spacing = data
            .spacing
            .of_every(run.step.into())
            .map(|s| s.with_remainder_of(answered.spacing));
        let Some(spacing) = spacing.filter(|_| run.count > 1) else {
            for k in 0..run.count {
                let at = data.time_of(taken + run.place + k * run.step);
                let handle = ACK | self.flows[number].keep(AckRun::of(run.at(k)));
                self.send(direction, packet(handle, number, at));
            }
            return;
        };
        let handle = ACK | flow.keep(run);
        let train = Train {
            count: run.count,
            spacing,
            ..packet(handle, number, answered.at)
        };
        self.send(direction, train);
    }

    fn on_data(&mut self, number: usize, first: u64, count: u16, congested: bool) {
        let flow = &mut self.flows[number];
        if flow
            .reduced_at
            .is_some_and(|n| n < first + u64::from(count))
        {
            flow.reduced_at = None;
            flow.receiver.on_reduced();
        }
        if congested {
            flow.receiver.on_congestion_experienced();
        }
        let ack = flow.receiver.handle_segments(self.now, first, count);
        if let Some(ack) = ack {
            self.acknowledge(number, ack);
        }
        self.set_receiver(number);
    }

    fn acknowledge(&mut self, number: usize, ack: Ack) {
        let flow = &mut self.flows[number];
        let handle = ACK | flow.keep(AckRun::of(ack));
        let direction = direction_of(flow.spec.backward[0]);
        self.send(direction, packet(handle, number, self.now));
    }

    /// Acknowledgments reach the sender, each at its time. All of a train where nothing that they
    /// make the sender send has to wait for others' turn.
    fn deliver_acks(
        &mut self,
        number: usize,
        mut arriving: Arriving,
        to: Instant,
    ) -> Option<Arriving> {
        let train = arriving.train;
        let flow = &mut self.flows[number];
        let run = flow.arrived(train.handle & !ACK)?;
        let ahead = self.ahead[direction_of(flow.spec.forward[0])];
        let gathers = train.spacing.is_together();
        let mut rest = Some(arriving);
        while let Some(now) = rest {
            arriving = now;
            let at = arriving.times.at();
            if at > self.now && !gathers {
                if !ahead || at > to || self.flows[number].sender_at() <= at {
                    break;
                }
                self.now = at;
            }
            let Some(sender) = &mut self.flows[number].sender else {
                return None;
            };
            sender.handle_ack(self.now, &run.at(train.first + arriving.taken));
            self.flows[number].acks_in += 1;
            self.transmit(number);
            rest = arriving.without(1);
        }
        let flow = &mut self.flows[number];
        let done = flow.sender.as_ref().is_some_and(Sender::is_done);
        if flow.done_at.is_none() && done {
            flow.done_at = Some(self.now);
        }
        self.set_sender(number);
        rest
    }

    /// The SYN comes to the far end, or its answer to the near one. Both are sent again after a second.
    fn on_handshake(&mut self, number: usize, answer: bool) {
        let flow = &mut self.flows[number];
        if !answer {
            let direction = direction_of(flow.spec.backward[0]);
            self.send(direction, packet(ACK | SYN, number, self.now));
            return;
        }
        if flow.sender.is_some() {
            return;
        }
        let round_trip = self.now.saturating_since(flow.syn_at);
        flow.receiver.set_round_trip(self.now, round_trip);
        let edge = flow.receiver.edge();
        flow.sender = Some(Sender::new(flow.spec.sender, self.now, round_trip, edge));
        self.transmit(number);
        self.set_sender(number);
    }

    /// Sends all that may be sent.
    fn transmit(&mut self, number: usize) {
        let has_bus = self.flows[number].spec.bus.is_some();
        if has_bus {
            self.move_on(number);
        }
        loop {
            let flow = &mut self.flows[number];
            let Some(sender) = &mut flow.sender else {
                return;
            };
            if has_bus {
                // TCP small queues: no more of a connection than that waits in its host.
                let limit = sender.host_limit_bytes();
                if flow.host.settle(self.now) > limit {
                    sender.on_host_busy();
                    flow.bus_at = flow.host.next().min(flow.host.down_to(limit));
                    return;
                }
            }
            let Some(burst) = sender.poll_transmit(self.now) else {
                break;
            };
            self.send_burst(number, &burst);
        }
        if has_bus {
            let flow = &mut self.flows[number];
            flow.bus_at = flow.host.next();
        }
    }

    /// Frames with which the bus begins leave the host.
    fn move_on(&mut self, number: usize) {
        let now = self.now;
        let direction = direction_of(self.flows[number].spec.forward[0]);
        while let Some(train) = self.flows[number].host.begun(now) {
            self.send(direction, train);
        }
    }

    fn send_burst(&mut self, number: usize, burst: &Burst) {
        let flow = &mut self.flows[number];
        flow.data_packets += u64::from(burst.count);
        let direction = direction_of(flow.spec.forward[0]);
        let mut spacing = burst.spaced.map_or(Spacing::TOGETHER, |s| {
            Spacing::back_to_back(s.bytes, s.rate_bits_per_second, s.remainder)
        });
        if burst.reduced {
            flow.reduced_at = Some(burst.first);
        }
        // RFC 3168 6.1.5: what is sent again may not be marked.
        let marks = if flow.spec.sender.ecn && !burst.again {
            Marks::ECT
        } else {
            Marks::NONE
        };
        let mut at = self.now;
        if let Some(bus) = flow.spec.bus {
            let frame = flow.packet_bytes(burst.first) + ETHERNET_HEADER_BYTES;
            let bus = &mut self.buses[bus];
            let by_bus;
            (at, by_bus) = bus.take(self.now, burst.count, frame);
            if by_bus.step_ns() > spacing.step_ns() {
                spacing = by_bus;
            }
            let bytes = u64::from(frame) * u64::from(burst.count);
            flow.host.take(bus.free_at, bytes);
        }
        let train = Train {
            count: burst.count,
            spacing,
            marks,
            ..packet(burst.first, number, at)
        };
        let last = burst.first + u64::from(burst.count) - 1;
        if flow.short_segment() == Some(last) && burst.count > 1 {
            self.hand_over(direction, train.part(0, burst.count - 1));
            self.hand_over(direction, train.part(burst.count - 1, 1));
        } else {
            self.hand_over(direction, train);
        }
    }

    /// A train leaves its host, or waits there for the bus.
    fn hand_over(&mut self, direction: usize, train: Train) {
        if train.at > self.now {
            self.flows[train.flow as usize].host.wait(train);
        } else {
            self.send(direction, train);
        }
    }

    fn on_sender_timer(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        match &mut flow.sender {
            Some(sender) => {
                sender.handle_timeout(self.now);
                self.transmit(number);
                self.set_sender(number);
            }
            None => {
                flow.syn_at = self.now;
                let direction = direction_of(flow.spec.forward[0]);
                self.send(direction, packet(SYN, number, self.now));
                let again = self.now + SYN_AGAIN;
                self.agenda.set(self.arriving.len() + 2 * number, again);
            }
        }
    }

    fn on_receiver_timer(&mut self, number: usize) {
        let now = self.now;
        if let Some(ack) = self.flows[number].receiver.handle_timeout(now) {
            self.acknowledge(number, ack);
        }
        self.set_receiver(number);
    }

    fn set_sender(&mut self, number: usize) {
        if self.flows[number].sender.is_some() {
            let at = self.flows[number].sender_at();
            self.agenda.set(self.arriving.len() + 2 * number, at);
        }
    }

    fn set_receiver(&mut self, number: usize) {
        let at = self.flows[number].receiver.next_timeout();
        self.agenda.set(self.arriving.len() + 2 * number + 1, at);
    }
}

/// One packet that leaves at `at`.
fn packet(handle: u64, flow: usize, at: Instant) -> Train {
    Train {
        handle,
        first: 0,
        count: 1,
        wire_bytes: 0,
        flow: u32::try_from(flow).unwrap_or(u32::MAX),
        group: 0,
        marks: Marks::NONE,
        damage: 0,
        at,
        spacing: Spacing::TOGETHER,
    }
}

/// For each direction the one behind it.
fn route(hops: &[Hop], ways: usize, flow: usize) -> Result<Vec<Option<usize>>, WorldError> {
    let mut behind = vec![None; ways];
    let mut seen = vec![false; ways];
    if hops.is_empty() || hops.iter().any(|h| direction_of(*h) >= ways) {
        return Err(WorldError::NoRoute { flow });
    }
    for (number, hop) in hops.iter().enumerate() {
        let direction = direction_of(*hop);
        if std::mem::replace(&mut seen[direction], true) {
            return Err(WorldError::Loop { flow });
        }
        behind[direction] = hops.get(number + 1).map(|h| direction_of(*h));
    }
    Ok(behind)
}

const fn direction_of(hop: Hop) -> usize {
    hop.link * 2 + hop.way.place()
}

const fn way_of(direction: usize) -> Way {
    if direction & 1 == 0 {
        Way::Forward
    } else {
        Way::Backward
    }
}

const ETHERNET_HEADER_BYTES: u32 = 14;
/// Maximum segment size, SACK permitted and window scale, beside the timestamp.
const SYN_OPTION_BYTES: u32 = 8;
/// Linux: the first SYN is sent again after a second.
const SYN_AGAIN: Duration = Duration::from_s(1);
/// A machine that asks to be called at once for ever is at fault: a run that ends says more than one
/// that does not.
const SAME_INSTANT_MAX: u64 = 10_000_000;
