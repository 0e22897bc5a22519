//! A fabric in motion: packets, credits and arbiters, event by event.
//!
//! **A hop** is one wait and one transmission. When a packet begins to leave, all that follows from it alone is known:
//! when its head can leave the next chip, when its tail is out of this buffer, when the room that it held is back at the
//! sender before. These times are written down where they will be asked for, so that a packet costs an event
//! where it becomes the head of an idle input and one where its output decides, and credits cost none unless
//! somebody waits for them.
//!
//! **An input** of a chip is a FIFO (so heads block those behind them), and gives one packet at a time to the
//! crossbar. **An output** goes round its inputs: the one served last comes last. Requests of one instant are
//! all in before an output decides, so that no order of computation favours a sender.
//!
//! **Credits** (IBA volume 1, section 7.9) are kept as blocks that are free, blocks on their way back and blocks that
//! packets hold. Their sum is checked at every run's end; a packet never starts without room for all of it, and
//! none is dropped.
//!
//! All packets travel on virtual lane 0; the other lanes take their share of every buffer and carry nothing. Left out:
//! bit errors, the bandwidth that flow-control packets take from data going the other way (8 bytes a packet),
//! the management lane.

mod arbiter;
mod hca;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::link::ByteTime;
use crate::queue::{Calendar, WHO_MAX, parts, word};
use crate::route;
use crate::spec::{
    BusSpec, CREDIT_BYTES, FabricSpec, FlowSpec, HOSTS_MAX, LinkSpec, Node, PORTS_MAX, Place,
    SWITCHES_MAX, SpecError, SwitchSpec, at,
};

/// A fabric with its flows, at some moment of virtual time.
#[derive(Clone, Debug)]
pub struct World {
    now_ps: u64,
    queue: Calendar,
    channels: Vec<Channel>,
    /// Of the same number as the channel.
    credits: Vec<Credit>,
    /// Requests of a node's inputs to a channel, a bit each.
    wanted: Vec<u64>,
    nodes: Vec<NodeState>,
    inputs: Vec<Input>,
    packets: Pool,
    hosts: Vec<Host>,
    flows: Vec<Flow>,
    /// Out-port by switch and destination.
    table: Vec<u8>,
    /// Channels by node and port.
    ways: Vec<u32>,
    counters: Counters,
}

/// One direction of a cable, with the output port that feeds it.
#[derive(Clone, Debug)]
struct Channel {
    byte: ByteTime,
    rest: u64,
    propagation_ps: u64,
    free_at_ps: u64,
    /// When its output decides next; [`NEVER`] while nobody asks.
    decides_at_ps: u64,
    /// Node that it leaves.
    from: u32,
    /// Node that it leads to, and its input there.
    to: u32,
    to_input: u32,
    /// Room given back travels: flow-control packet on the other direction, and the cable.
    credit_travel_ps: u64,
    /// At the far end, from a packet's end to that flow-control packet.
    credit_ps: u64,
    /// What the far end's chip adds; unused before a host.
    latency_ps: u64,
    store_and_forward: bool,
    /// Input served last.
    served: u8,
    stats: ChannelStats,
}

/// Room at the far end of a channel.
#[derive(Clone, Debug)]
struct Credit {
    all: u32,
    free: u32,
    /// Held by packets on the way or in the buffer.
    held: u32,
    /// On the way back: when it arrives, blocks. In the order of time.
    back: VecDeque<(u64, u32)>,
    /// An output waits for room that nobody has given back yet.
    starved: bool,
    /// Since when the output has waited for room; [`NEVER`] when it does not.
    since_ps: u64,
}

#[derive(Clone, Copy, Debug)]
struct NodeState {
    /// Its first input, that of port 0.
    input: u32,
    /// Where its outgoing channels stand in `ways`, port by port.
    ways: u32,
    host: bool,
}

/// A FIFO before a crossbar: the packets of one port.
#[derive(Clone, Copy, Debug)]
struct Input {
    head: u32,
    tail: u32,
    /// Until then its last packet is still leaving.
    busy_until_ps: u64,
    /// Channel that feeds it; [`NONE`] in a host, where the adapter does.
    channel: u32,
    node: u32,
    /// Bit by which it asks.
    place: u8,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Packet {
    ready_ps: u64,
    flow: u32,
    /// Number within its flow.
    number: u32,
    next: u32,
    /// Channel by which it leaves the node that it is at.
    out: u32,
    payload_bytes: u16,
    blocks: u16,
    last: bool,
    ack: bool,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    all: Vec<Packet>,
    free: Vec<u32>,
}

/// A host's adapter.
#[derive(Clone, Debug)]
struct Host {
    bus: Option<BusSpec>,
    post_ps: u64,
    engine_ps: [u64; 2],
    engine_free_ps: u64,
    read_free_ps: u64,
    write_free_ps: u64,
    /// When each place in the prefetch buffer is free.
    places: VecDeque<u64>,
    flows: Vec<u32>,
    /// Flow served last.
    served: usize,
    /// A look at the flows is already asked for at this time.
    looks_at_ps: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    spec: FlowSpec,
    /// The one that answers, of a ping-pong.
    partner: u32,
    /// Sends only when told to.
    answers: bool,
    core_free_ps: u64,
    /// Messages begun, and bytes of the last one that are not in a packet yet.
    begun: u64,
    left_bytes: u32,
    /// Messages that may be begun by the partner's turns.
    turns: u64,
    turn_ps: u64,
    completed: u64,
    /// When the last `depth` messages were complete.
    completions: VecDeque<u64>,
    packets: u32,
    expected: u32,
    info: FlowInfo,
}

/// What came of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowInfo {
    /// Packets that were sent.
    pub packets_sent: u64,
    /// Packets that arrived.
    pub packets_arrived: u64,
    /// Payload that arrived.
    pub bytes_arrived: u64,
    /// Messages of which all is in the receiver's memory.
    pub messages_arrived: u64,
    /// When the first was posted.
    pub first_posted_ps: u64,
    /// When the first half of the messages was in the receiver's memory.
    pub half_ps: u64,
    /// Messages in that half.
    pub half_messages: u64,
    /// When all were.
    pub last_ps: u64,
    /// Sum of round trips of a ping-pong.
    pub round_trips_ps: u128,
    /// Shortest of them.
    pub round_trip_min_ps: u64,
    /// Longest.
    pub round_trip_max_ps: u64,
}

/// What one direction of a cable did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Packets that left.
    pub packets: u64,
    /// Time with a packet on the wire.
    pub busy_ps: u64,
    /// Time in which a packet waited for nothing but room at the far end.
    pub starved_ps: u64,
}

/// What the whole fabric did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events.
    pub events: u64,
    /// Packets sent over a cable.
    pub packet_hops: u64,
}

/// Nothing can happen any more, and not all has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// When the last event was.
    pub at_ps: u64,
    /// Flows that are not done.
    pub flows: Vec<u32>,
    /// Links, by number, and way (0: from the first end) whose outputs wait for room that never comes back.
    pub waiting: Vec<(u32, usize)>,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "deadlock: {} flows cannot end; {} outputs wait for each other's buffers",
            self.flows.len(),
            self.waiting.len()
        )
    }
}

impl std::error::Error for Stuck {}

impl World {
    /// A fabric with nothing on its way.
    ///
    /// # Errors
    /// [`SpecError`]: a part cannot be as it is said to be, a host cannot be reached, or a lane's buffer
    /// does not hold one packet.
    pub fn new(spec: &FabricSpec, flows: &[FlowSpec]) -> Result<Self, SpecError> {
        spec.check()?;
        let mut world = Self {
            now_ps: 0,
            queue: Calendar::new(),
            channels: Vec::new(),
            credits: Vec::new(),
            wanted: Vec::new(),
            nodes: Vec::new(),
            inputs: Vec::new(),
            packets: Pool::default(),
            hosts: spec.hosts.iter().map(Host::new).collect(),
            flows: Vec::new(),
            table: route::table(spec)?,
            ways: Vec::new(),
            counters: Counters::default(),
        };
        world.wire(spec);
        for (n, flow) in (0..).zip(flows) {
            flow.check(spec).map_err(|p| at(Place::Flow(n), p))?;
            world.add_flow(flow);
        }
        world.add_answers();
        world.check_room(spec)?;
        Ok(world)
    }

    /// Runs until all flows are done.
    ///
    /// # Errors
    /// [`Stuck`] when they never will be.
    ///
    /// # Panics
    /// When credits are not conserved or a packet is lost, which would be a fault of the engine.
    pub fn run(&mut self) -> Result<(), Stuck> {
        self.run_until(u64::MAX);
        self.check_conservation();
        let flows: Vec<u32> = (0..)
            .zip(&self.flows)
            .filter(|(_, f)| f.info.messages_arrived < f.spec.messages)
            .map(|(n, _)| n)
            .collect();
        if flows.is_empty() {
            let lost = self
                .flows
                .iter()
                .any(|f| f.info.packets_sent != f.info.packets_arrived);
            assert!(!lost, "a lossless fabric lost a packet");
            return Ok(());
        }
        let starved = (0..self.credits.len()).filter(|n| self.credits[*n].starved);
        Err(Stuck {
            at_ps: self.now_ps,
            flows,
            waiting: starved.map(|n| (count(n / 2), n % 2)).collect(),
        })
    }

    /// Runs all that happens up to a time; false when nothing is left to happen.
    pub fn run_until(&mut self, end_ps: u64) -> bool {
        while let Some(event) = self.queue.pop() {
            let (at_ps, kind, who, what) = parts(event);
            if at_ps > end_ps {
                self.queue.push(event);
                return true;
            }
            self.now_ps = at_ps;
            self.counters.events += 1;
            match kind {
                READY => self.offer(who),
                ARRIVED => self.arrived(who, what),
                IN_MEMORY => self.in_memory(who),
                LOOK => self.look(who),
                _ => self.decide(who),
            }
        }
        false
    }

    /// Virtual time.
    pub const fn now_ps(&self) -> u64 {
        self.now_ps
    }

    /// What came of flow `n` of those given.
    pub fn flow(&self, n: usize) -> FlowInfo {
        self.flows[n].info
    }

    /// What a link did in a direction: 0 from its first end, 1 from its second.
    pub fn channel(&self, link: usize, way: usize) -> ChannelStats {
        self.channels[link * 2 + way].stats
    }

    /// The way from a host to another: link and direction of each hop.
    pub fn path(&self, from: u32, to: u32) -> Vec<(u32, usize)> {
        let mut node = from;
        let mut found = Vec::new();
        while node != to {
            let channel = self.way(node, to);
            found.push((channel / 2, channel as usize % 2));
            node = self.channels[channel as usize].to;
        }
        found
    }

    /// What the whole fabric did.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Checks that every block of every buffer is somewhere, once.
    ///
    /// # Panics
    /// When one is not.
    pub fn check_conservation(&self) {
        for (n, credit) in self.credits.iter().enumerate() {
            let back: u32 = credit.back.iter().map(|(_, blocks)| blocks).sum();
            assert_eq!(
                credit.free + back + credit.held,
                credit.all,
                "credits of channel {n} are not conserved"
            );
        }
    }

    fn post(&mut self, at_ps: u64, kind: u32, who: u32, what: u32) {
        self.queue
            .push(word(at_ps.max(self.now_ps), kind, who, what));
    }
}

impl World {
    /// Makes channels and inputs: two channels for each link, an input for each port.
    fn wire(&mut self, spec: &FabricSpec) {
        let neighbours = route::neighbours(spec);
        let hosts = spec.hosts.len();
        for (n, ports) in neighbours.iter().enumerate() {
            // A host's are what its adapter fetched, and its acknowledgments.
            let inputs = if n < hosts { 2 } else { ports.len() };
            self.nodes.push(NodeState {
                input: count(self.inputs.len()),
                ways: 0,
                host: n < hosts,
            });
            self.inputs.extend((0..inputs).map(|place| Input {
                head: NONE,
                tail: NONE,
                busy_until_ps: 0,
                channel: NONE,
                node: count(n),
                place: small(place),
            }));
        }
        let mut outs: Vec<Vec<u32>> = vec![Vec::new(); neighbours.len()];
        for link in &spec.links {
            let [a, b] = link.ends.map(|end| route::number(spec, end));
            let ports = [a, b].map(|node| outs[node].len());
            for (way, [from, to]) in [[a, b], [b, a]].into_iter().enumerate() {
                let channel = count(self.channels.len());
                let far = link.ends[1 - way];
                let mut to_input = self.nodes[to].input as usize;
                if to >= hosts {
                    to_input += ports[1 - way];
                    self.inputs[to_input].channel = channel;
                }
                self.channels
                    .push(Channel::new(spec, link, far, [from, to, to_input]));
                self.credits.push(Credit::new(spec.lane_blocks(link, far)));
                self.wanted.push(0);
                outs[from].push(channel);
            }
        }
        for (node, outs) in self.nodes.iter_mut().zip(&outs) {
            node.ways = count(self.ways.len());
            self.ways.extend(outs);
        }
    }

    /// Every buffer on a flow's way must hold one of its packets, or it would wait for ever.
    fn check_room(&self, spec: &FabricSpec) -> Result<(), SpecError> {
        for (n, flow) in (0..).zip(&self.flows) {
            let spec_of = &flow.spec;
            let packet = spec_of.message_bytes.min(spec_of.mtu_bytes);
            let needed = spec_of.transport.blocks(packet);
            let mut node = spec_of.from;
            while node != spec_of.to {
                let channel = self.way(node, spec_of.to);
                let all = self.credits[channel as usize].all;
                if all < needed {
                    let link = &spec.links[channel as usize / 2];
                    let lanes = spec.lanes(link);
                    let problem = format!(
                        "a buffer of {all} blocks of 64 B for each of {lanes} virtual lanes holds no packet of {packet} B \
                         (flow {n}), which takes {needed}"
                    );
                    return Err(at(Place::Link(channel / 2), problem));
                }
                node = self.channels[channel as usize].to;
            }
        }
        Ok(())
    }

    /// Channel by which packets for a host leave a node.
    fn way(&self, node: u32, to: u32) -> u32 {
        let state = &self.nodes[node as usize];
        let port = match state.host {
            true => 0,
            false => {
                let switch = node as usize - self.hosts.len();
                self.table[switch * self.hosts.len() + to as usize]
            }
        };
        self.ways[state.ways as usize + usize::from(port)]
    }
}

impl Channel {
    fn new(
        spec: &FabricSpec,
        link: &LinkSpec,
        far: Node,
        [from, to, to_input]: [usize; 3],
    ) -> Self {
        let (speed, width) = spec.trained(link);
        let byte = speed.byte_time(width);
        let (latency_ps, store_and_forward) = match far {
            Node::Host(_) => (0, false),
            Node::Switch(n) => {
                let SwitchSpec {
                    latency_ps,
                    store_and_forward,
                    ..
                } = spec.switches[n as usize];
                (latency_ps, store_and_forward)
            }
        };
        let propagation_ps = link.cable.delay_ps();
        Self {
            byte,
            rest: 0,
            propagation_ps,
            free_at_ps: 0,
            decides_at_ps: NEVER,
            from: count(from),
            to: count(to),
            to_input: count(to_input),
            credit_travel_ps: byte.of(CREDIT_BYTES) + propagation_ps,
            credit_ps: spec.port(far).credit_ps,
            latency_ps,
            store_and_forward,
            served: 0,
            stats: ChannelStats::default(),
        }
    }
}

impl Credit {
    const fn new(all: u32) -> Self {
        Self {
            all,
            free: all,
            held: 0,
            back: VecDeque::new(),
            starved: false,
            since_ps: NEVER,
        }
    }
}

impl Pool {
    fn add(&mut self, packet: Packet) -> u32 {
        if let Some(place) = self.free.pop() {
            self.all[place as usize] = packet;
            return place;
        }
        self.all.push(packet);
        count(self.all.len() - 1)
    }
}

/// Numbers are bounded by what a specification may hold.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(NONE)
}

fn small(n: usize) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}

// Kinds of events, in the order in which those of one instant happen.

/// The head of an input can ask its output.
const READY: u32 = 0;
/// A packet's tail is in a host's adapter.
const ARRIVED: u32 = 1;
/// The last of a message is in a host's memory.
const IN_MEMORY: u32 = 2;
/// A host looks for something to fetch.
const LOOK: u32 = 3;
/// An output decides whom to serve.
const DECIDE: u32 = 4;

// Every input, host and flow has a number that an event can hold.
const _: () = assert!(HOSTS_MAX + SWITCHES_MAX * (PORTS_MAX as usize) < WHO_MAX as usize);

/// No packet, no channel.
const NONE: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;
