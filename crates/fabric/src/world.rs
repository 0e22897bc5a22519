//! A fabric in motion: packets, credits and arbiters, event by event.
//!
//! **A hop** is one wait and one transmission. When a packet begins to leave, all that follows from it alone is known:
//! when its head is through the next chip, when its tail is out of this buffer, when the room that it held is back at
//! the sender before. A packet costs an event where it comes to an input and one where its output decides, one more where
//! it waits behind another output's, and credits cost none unless somebody waits for them.
//!
//! **Nothing reaches another node at once.** A node is changed by packets, room that comes back and pauses, each
//! after its time on a cable. So a world can be taken apart and run on several threads, see `parts`.
//!
//! **An input** of a chip is a FIFO for each virtual lane (so heads block those behind them on their lane), and gives
//! one packet at a time of each lane to the crossbar; [`Queueing`](crate::Queueing) has other kinds. Where packets of one port change
//! lanes or not, it is a FIFO for each lane on which they came: else one that changed would stand before others whose buffers
//! it does not hold, and lanes would break no cycle. **An output** goes
//! round its lanes, as the lane arbiter with equal weights does (IBA volume 1, section 7.6.9), and within a lane round its
//! inputs: what was served last comes last, and a lane without credits is passed over. Requests of one instant are
//! all in before an output decides, so that no order of computation favours a sender.
//!
//! **Credits** (IBA volume 1, section 7.9) are kept for each lane as blocks that are free, blocks on their way back and
//! blocks that packets hold. Their sum is checked at every run's end; a packet never starts without room for all of
//! it, and none is dropped.
//!
//! **Why packets wait** is written down as they do: for credits, with the output for which the packet had waited whose
//! room then came (its sums are the congestion tree), and behind a head for another output.
//!
//! **Links that fail** take with them what is on them; see `fault`.
//!
//! Left out: bit errors, the bandwidth that flow-control packets take from data going the other way (8 bytes a
//! packet), the management lane.

mod arbiter;
mod blame;
mod dca;
mod ether;
mod fault;
mod hca;
mod parts;
mod reliable;
mod select;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use prefetch_index::prefetch_index as near;

use crate::ethernet::Ethernet;
use crate::fault::Faults;
use crate::link::ByteTime;
use crate::queue::{Calendar, WHO_MAX, Word, parts, word};
use crate::route::{self, Routes};
use crate::selection::Selection;
use crate::spec::{
    BLOCK_BYTES, BusSpec, FabricSpec, FlowSpec, HOSTS_MAX, LANES_MAX, PORTS_MAX, Place, Queueing,
    SWITCHES_MAX, SpecError, at,
};
use dca::{Avoidance, Probe};
use reliable::Heard;
use select::Select;

pub use blame::{Blame, Stuck, WaitsFor};
pub use dca::{Avoided, Move};
pub use parts::{Mail, Part};

/// A fabric with its flows, at some moment of virtual time.
#[derive(Clone, Debug)]
pub struct World {
    now_ps: u64,
    queue: Calendar,
    channels: Vec<Channel>,
    /// Lanes that flows use, from 0.
    lanes: u32,
    /// What channels have in common, by their `kind`.
    kinds: Arc<Vec<Kind>>,
    /// By channel and lane, as `channel * lanes + lane`.
    credits: Vec<Credit>,
    /// A part of a world, whose channels have other numbers than in the whole.
    split: bool,
    /// Inputs of chips are FIFOs by the lane on which packets came, which a place then has, not by that on which they leave.
    by_arrival: bool,
    nodes: Vec<NodeState>,
    inputs: Vec<Input>,
    select: Select,
    /// Chips decide when a packet's head is there, not when it is through the chip.
    late: bool,
    /// Links differ in speed.
    mixed: bool,
    packets: Pool,
    hosts: Vec<Host>,
    flows: Flows,
    /// Sender and receiver of each flow.
    ends: Arc<Vec<[u32; 2]>>,
    /// Its own lane, which its routes' lanes lie above.
    own_lanes: Arc<Vec<u8>>,
    /// Out-port by switch and destination.
    routes: Arc<Routes>,
    /// Channels by node and port.
    ways: Vec<u32>,
    counters: Counters,
    seed: u64,
    queueing: Queueing,
    ethernet: Option<Ethernet>,
    /// Octets of each packet that are on the wire and in no buffer.
    wire_only: u32,
    avoidance: Option<Box<Avoidance>>,
    faults: Option<Arc<Faults>>,
    /// Flows that start after another one, by that.
    followers: Arc<BTreeMap<u32, Vec<u32>>>,
    /// Packets with payload that were lost on links that failed.
    cut_data: u64,
    /// When the last packet left that was no probe.
    data_ps: u64,
    /// Time that an output waited for credits, by it and what stood in its way; the last one's is with the credits.
    blame: BTreeMap<(u32, u32), u64>,
    /// Outputs that decide at this instant, the last one first when sorted.
    due: Vec<u32>,
    due_sorted: bool,
    /// Where each flow's way begins among `paths`, behind the host's own cable; empty: the tables are asked.
    path_of: Arc<Vec<u32>>,
    /// Channels of all flows' ways, in the numbers of the parts that they leave from.
    paths: Arc<Vec<u32>>,
    /// What goes to other parts of a world that was split.
    out_box: Vec<Mail>,
}

/// What directions of cables have in common: a few for a whole fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    byte: ByteTime,
    propagation_ps: u64,
    /// What the far end's chip adds; unused before a host.
    latency_ps: u64,
    store_and_forward: bool,
    /// From a packet's end at the far end to its room's return: the adapter, the flow-control packet on the other
    /// direction, the cable.
    travel_ps: u64,
    /// Most octets to leave by it where an output's queue is what bounds it.
    queue_max_bytes: u64,
}

/// One direction of a cable, with the output port that feeds it.
///
/// What each packet asks for is in the first cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Channel {
    free_at_ps: u64,
    /// When its output decides next; [`NEVER`] while nobody asks.
    decides_at_ps: u64,
    packets: u64,
    busy_ps: u64,
    waited_ps: u64,
    /// Octets of packets that are to leave by it, at the node before.
    queued_bytes: u32,
    queued_bytes_max: u32,
    /// First of the inputs that may ask it, and from a port's or place's to those of the next one.
    inputs: u32,
    by_place: u16,
    kind: u16,
    /// First input of its port in the chip that it leads to; before a host, the host.
    far: u32,
    /// Lanes on which somebody asks it, a bit each.
    asked: u16,
    /// It leads to a host.
    to_host: bool,
    /// Lane served last.
    served_lane: u8,
    /// What is left of a picosecond.
    rest: u64,
    held_ps: u64,
    starved_ps: u64,
    /// Node that it leaves, and that it leads to.
    from: u32,
    to: u32,
    /// Its number in the whole world.
    number: u32,
    /// Its number in the other part, of one that leads from a part of the world to another; else [`NONE`].
    there: u32,
    /// Packets lost on it while it was down.
    cut: u64,
    /// The other direction of its cable.
    back: u32,
    /// The other part.
    part: u16,
    /// Its ports at both ends.
    from_port: u8,
    to_port: u8,
}

/// Room of a lane at the far end of a channel; what each packet asks for in the first cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Credit {
    /// When the first rooms that are on their way back arrive, in order.
    at_ps: [u64; RETURNS],
    /// Requests of inputs for a packet on this lane, a bit each.
    wanted: u64,
    /// Outputs for which their packets had to wait in the far buffer; [`NONE`]: they did not.
    causes: [u32; RETURNS],
    free: u32,
    /// Held by packets on the way or in the buffer.
    held: u32,
    blocks: [u16; RETURNS],
    /// How many these are.
    returns: u8,
    /// Input served last.
    served: u8,
    /// An output waits for room.
    starved: bool,
    /// The sender was told to pause; it does.
    xoff: bool,
    paused: bool,
    /// Its sender is in another part of the world.
    away: bool,
    /// Those after the first.
    more: Option<Box<Returns>>,
    /// Since when the output has waited for room; [`NEVER`] when it does not.
    since_ps: u64,
    all: u32,
    /// What the room that came back last had waited for, and what the wait that is over was for.
    last_cause: u32,
    blocker: u32,
    /// The last one, and for how long in a row; what came before it is in the world's sums.
    blamed: u32,
    blamed_ps: u64,
    /// When the last pause frame was out.
    signalled_ps: u64,
}

/// Room that comes back, in the order of time.
#[derive(Clone, Debug, Default)]
struct Returns {
    all: VecDeque<Return>,
}

#[derive(Clone, Copy, Debug)]
struct Return {
    at_ps: u64,
    cause: u32,
    blocks: u16,
}

// A line for what a packet needs of an output, one for its room, one for itself.
const _: () = assert!(std::mem::offset_of!(Channel, rest) == 64);
const _: () = assert!(size_of::<Channel>() == 128);
const _: () = assert!(std::mem::offset_of!(Credit, more) == 64);
const _: () = assert!(size_of::<Packet>() == 64);

#[derive(Clone, Copy, Debug)]
struct NodeState {
    /// Its first input; the others stand by place, output and lane.
    input: u32,
    by_place: u32,
    by_out: u32,
    /// Place of its own packets, after those of its ports.
    control: u32,
    /// Where its outgoing channels stand in `ways`, port by port.
    ways: u32,
    host: bool,
}

/// A FIFO before a crossbar: the packets of one port and lane.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Input {
    head: u32,
    tail: u32,
    /// Until then its last packet is still leaving, by this channel.
    busy_until_ps: u64,
    last_out: u32,
    node: u32,
    /// Bit by which it asks.
    place: u8,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Packet {
    ready_ps: u64,
    /// How long word of the room that it holds takes back to who sent it there.
    travel_ps: u64,
    flow: u32,
    /// Number within its flow.
    number: u32,
    next: u32,
    /// Channel by which it leaves the node that it is at.
    out: u32,
    /// Channel and lane by which it came, whose room it holds; [`NONE`] in the host that it comes from.
    came: u32,
    /// What the selection of paths noted.
    choice: u32,
    payload_bytes: u16,
    wire_bytes: u16,
    lane: u8,
    last: bool,
    ack: bool,
    probe: Probe,
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
    /// When each place in the prefetch buffer of a lane is free.
    places: Vec<VecDeque<u64>>,
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
    /// Begins a message only when it is granted one.
    gated: bool,
    /// When those were granted that have not begun.
    granted: VecDeque<u64>,
    /// Flow that a message of this one, there, grants one.
    grants: u32,
    /// Flow that asks for its messages.
    request: u32,
    completed: u64,
    /// When the last `depth` messages were complete.
    completions: VecDeque<u64>,
    packets: u32,
    /// All packets below have come.
    expected: u32,
    /// What came early, from the one after `expected` on.
    early: VecDeque<Option<Early>>,
    early_bytes: u64,
    /// The receiver has asked for the packet that it expects.
    asked: bool,
    /// Packets in order that are not acknowledged yet.
    unacknowledged: u32,
    /// Packets that were sent at least once.
    sent: u32,
    heard: Heard,
    info: FlowInfo,
}

/// Flows by their numbers; of a part of the world those alone that begin or end there.
#[derive(Clone, Debug, Default)]
struct Flows {
    all: Vec<Flow>,
    /// Place of each flow of the world; empty: all are there.
    places: Vec<u32>,
}

impl std::ops::Deref for Flows {
    type Target = [Flow];
    fn deref(&self) -> &[Flow] {
        &self.all
    }
}

impl std::ops::Index<usize> for Flows {
    type Output = Flow;
    #[inline]
    fn index(&self, number: usize) -> &Flow {
        match self.places.get(number) {
            Some(place) => &self.all[*place as usize],
            None => &self.all[number],
        }
    }
}

impl std::ops::IndexMut<usize> for Flows {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut Flow {
        match self.places.get(number) {
            Some(place) => &mut self.all[*place as usize],
            None => &mut self.all[number],
        }
    }
}

impl<'a> IntoIterator for &'a Flows {
    type Item = &'a Flow;
    type IntoIter = std::slice::Iter<'a, Flow>;
    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}

/// A packet that came before one sent earlier.
#[derive(Clone, Copy, Debug)]
struct Early {
    payload_bytes: u16,
    last: bool,
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
    /// Packets sent again.
    pub packets_resent: u64,
    /// Times that a sender took packets for lost, by what came early or by its timer.
    pub halvings: u64,
    /// Timers of the sender that ran out.
    pub timeouts: u64,
    /// Packets that came before one that was sent earlier.
    pub early: u64,
    /// Most payload of such packets at one time.
    pub early_bytes_max: u64,
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
    /// Longest time in which the sender heard of nothing new, from its first post on; counted only where links fail.
    pub silence_max_ps: u64,
    /// The sender gave up.
    pub broken: bool,
}

/// What one direction of a cable did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Packets that left.
    pub packets: u64,
    /// Time with a packet on the wire.
    pub busy_ps: u64,
    /// Time in which a packet waited for nothing but room at the far end; summed over lanes.
    pub starved_ps: u64,
    /// Time that a packet for another output was next in a FIFO and ready, while the head was one for this output;
    /// summed over FIFOs.
    pub held_ps: u64,
    /// Time that packets waited from being ready until they left by it.
    pub waited_ps: u64,
    /// Most octets that were to leave by it at one time.
    pub queued_bytes_max: u64,
    /// Packets lost on it, since the link had failed.
    pub cut: u64,
}

/// What the whole fabric did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events.
    pub events: u64,
    /// Packets sent over a cable.
    pub packet_hops: u64,
    /// Packets lost for want of room.
    pub dropped: u64,
    /// Pause frames that stopped a sender.
    pub pauses: u64,
    /// Packets of any kind lost on links that failed.
    pub cut: u64,
}

impl World {
    /// A fabric with nothing on its way.
    ///
    /// # Errors
    /// [`SpecError`]: a part cannot be as it is said to be, a host cannot be reached, or a lane's buffer
    /// does not hold one packet.
    pub fn new(spec: &FabricSpec, flows: &[FlowSpec]) -> Result<Self, SpecError> {
        spec.check()?;
        for (n, flow) in (0..).zip(flows) {
            flow.check(spec).map_err(|p| at(Place::Flow(n), p))?;
            if spec.faults.is_some() && !flow.transport.is_acknowledged() {
                let problem = "what a failed link takes would never come; expected a service that acknowledges: rc or iwarp";
                return Err(at(Place::Flow(n), problem));
            }
        }
        check_order(flows)?;
        let top = flows.iter().map(|f| f.lane).max().unwrap_or(0);
        let routes = match spec.selection {
            Selection::Static => Routes::new(spec)?,
            // Chips that choose do not keep to the ways that lanes were made for.
            _ => Routes::new(spec)?.on_one_lane(),
        };
        let later = spec.faults.iter().flat_map(|f| f.tables());
        let later = later.map(|(_, routes)| routes.lanes()).max();
        let of_routes = match spec.selection {
            Selection::Static => routes.lanes().max(later.unwrap_or(1)),
            _ => 1,
        };
        let above = spec.selection.lanes_above().max(of_routes - 1);
        let lanes = top.saturating_add(above) + 1;
        if lanes > LANES_MAX {
            return Err(at(
                Place::Whole,
                format!("{lanes} lanes are needed; data has {LANES_MAX}"),
            ));
        }
        let all = route::lanes_of_all(spec);
        if of_routes > 1 && lanes > all {
            let needed = of_routes;
            return Err(at(
                Place::Whole,
                format!("flows on lanes up to {top} and routes of {needed} lanes; there are {all}"),
            ));
        }
        let lanes = u32::from(lanes);
        let mut world = Self {
            now_ps: 0,
            queue: Calendar::new(),
            channels: Vec::new(),
            kinds: Arc::default(),
            lanes,
            credits: Vec::new(),
            split: false,
            by_arrival: spec.selection.lanes_above() > 0 && spec.queueing == Queueing::Input,
            nodes: Vec::new(),
            inputs: Vec::new(),
            select: Select::new(spec),
            late: spec.selection.looks()
                || spec.queueing == Queueing::Output
                || !spec.has_credits(),
            mixed: false,
            packets: Pool::default(),
            hosts: spec.hosts.iter().map(|h| Host::new(h, lanes)).collect(),
            flows: Flows::default(),
            ends: Arc::default(),
            own_lanes: Arc::default(),
            routes: Arc::new(routes),
            ways: Vec::new(),
            counters: Counters::default(),
            seed: spec.seed,
            queueing: spec.queueing,
            ethernet: spec.ethernet,
            wire_only: spec.wire_only_bytes(),
            avoidance: None,
            faults: spec.faults.clone(),
            cut_data: 0,
            followers: Arc::default(),
            data_ps: 0,
            blame: BTreeMap::new(),
            due: Vec::new(),
            due_sorted: true,
            path_of: Arc::default(),
            paths: Arc::default(),
            out_box: Vec::new(),
        };
        world.wire(spec)?;
        for flow in flows {
            world.add_flow(flow);
        }
        world.add_answers();
        world.add_requests();
        world.check_room(spec)?;
        world.check_headroom(spec)?;
        world.add_faults(spec)?;
        world.note_paths();
        if let Selection::Dca(rule) = spec.selection {
            world.add_avoidance(spec, rule)?;
        }
        Ok(world)
    }

    /// By flow: it was given up, or waits for one that was.
    fn over(&self) -> Vec<bool> {
        let mut over: Vec<bool> = Vec::new();
        for flow in &self.flows {
            let before = flow.spec.after.and_then(|n| over.get(n as usize));
            over.push(self.gave_up(flow) || before == Some(&true));
        }
        over
    }

    /// A flow's sender, or that of the one that it answers, gave up.
    fn gave_up(&self, flow: &Flow) -> bool {
        let partner = self.flows.all.get(flow.partner as usize);
        flow.info.broken || partner.is_some_and(|p| p.info.broken)
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
        self.outcome()
    }

    /// What a run until nothing was left came to.
    ///
    /// # Errors
    /// [`Stuck`], as [`Self::run`].
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn outcome(&self) -> Result<(), Stuck> {
        self.check_conservation();
        let over = self.over();
        let flows: Vec<u32> = (0..)
            .zip(&self.flows)
            .filter(|(n, f)| f.info.messages_arrived < f.spec.messages && !over[*n as usize])
            .map(|(n, _)| n)
            .collect();
        if flows.is_empty() {
            let each = |f: &Flow| f.info.packets_sent == f.info.packets_arrived;
            let sum =
                |of: fn(&FlowInfo) -> u64| self.flows.iter().map(|f| of(&f.info)).sum::<u64>();
            let arrived = match self.faults {
                None => self.flows.iter().all(each),
                // Those that were lost are counted by link.
                Some(_) => sum(|i| i.packets_sent) == sum(|i| i.packets_arrived) + self.cut_data,
            };
            let lost = !arrived || self.counters.dropped > 0;
            assert!(!lost || self.loses(), "a lossless fabric lost a packet");
            return Ok(());
        }
        Err(self.stuck(flows))
    }

    /// Runs all that happens up to a time; false when nothing is left to happen.
    pub fn run_until(&mut self, end_ps: u64) -> bool {
        self.run_before(end_ps.saturating_add(1)).is_some()
    }

    /// Runs all that happens before a time; returns a time before which no more does, `None` when nothing is left.
    fn run_before(&mut self, end_ps: u64) -> Option<u64> {
        let limit = word(end_ps, 0, 0, 0);
        loop {
            let due = !self.due.is_empty();
            let before = match due {
                true => word(self.now_ps, DECIDE, 0, 0),
                false => limit,
            };
            let event = match self.queue.pop_before(before) {
                Ok(event) => event,
                Err(_) if due => {
                    self.decide_next();
                    continue;
                }
                Err(Word::MAX) => return None,
                Err(next) => return Some(parts(next).0),
            };
            if self.credits.len() > ROOMS_IN_CACHE {
                self.look_ahead();
            }
            let (at_ps, kind, who, what) = parts(event);
            if kind == DECIDE && self.channels[who as usize].decides_at_ps != at_ps {
                // It was asked to decide earlier, and has.
                continue;
            }
            let before_ps = std::mem::replace(&mut self.now_ps, at_ps);
            self.counters.events += 1;
            match kind {
                HERE => self.here(who, what),
                ENTER => self.come(who, what),
                READY => self.offer(who),
                ARRIVED => self.arrived(who, what),
                IN_MEMORY => self.in_memory(who),
                XON => self.look_xon(who),
                PAUSE => self.pause(who, what),
                RETRY => {
                    if !self.retry(who) && self.faults.is_some() {
                        // Nothing happened: this is not when the last thing did.
                        self.now_ps = before_ps;
                    }
                }
                FAULT => {
                    self.counters.events -= 1;
                    self.fault();
                    if self.due.is_empty() {
                        self.now_ps = before_ps;
                    }
                }
                PROBED => self.probed(what),
                LOOK => self.look(who),
                START => self.start(who),
                TICK => self.tick(who),
                _ => self.decide(who),
            }
        }
    }

    /// Asks for the lines of cache that the next events will need, those that lead to others first. No result hangs on it.
    #[inline]
    fn look_ahead(&self) {
        if let Some(event) = self.queue.ahead(9) {
            let (_, kind, who, what) = parts(event);
            let (who, what) = (who as usize, what as usize);
            match kind {
                ENTER => {
                    near(&self.packets.all, what);
                    near(&self.inputs, who);
                }
                ARRIVED => near(&self.packets.all, what),
                READY => near(&self.inputs, who),
                DECIDE => {
                    near(&self.channels, who);
                    near(&self.credits, who * self.lanes as usize);
                }
                _ => {}
            }
        }
        if let Some(event) = self.queue.ahead(6) {
            let (_, kind, who, what) = parts(event);
            match kind {
                ENTER => {
                    let p = &self.packets.all[what as usize];
                    near(&self.credits, p.came as usize);
                    if let Some(out) = self.paths.get(p.choice as usize) {
                        near(&self.channels, *out as usize);
                        near(&self.credits, *out as usize * self.lanes as usize);
                    }
                }
                ARRIVED => {
                    let p = &self.packets.all[what as usize];
                    near(&*self.flows, p.flow as usize);
                    near(&self.credits, p.came as usize);
                }
                READY => near(&self.packets.all, self.inputs[who as usize].head as usize),
                DECIDE => near(&self.inputs, self.likely_input(who)),
                _ => {}
            }
        }
        if let Some(event) = self.queue.ahead(3)
            && let (_, DECIDE, who, _) = parts(event)
            && let Some(input) = self.inputs.get(self.likely_input(who))
        {
            near(&self.packets.all, input.head as usize);
        }
        if let Some(event) = self.queue.ahead(1)
            && let (_, DECIDE, who, _) = parts(event)
            && let Some(input) = self.inputs.get(self.likely_input(who))
            && let Some(p) = self.packets.all.get(input.head as usize)
        {
            near(&self.packets.all, p.next as usize);
            near(&self.credits, p.came as usize);
        }
    }

    /// The input that an output serves next, on its first lane, as things stand; beyond all inputs where nobody asks.
    #[inline]
    fn likely_input(&self, channel: u32) -> usize {
        let state = &self.channels[channel as usize];
        let credit = &self.credits[(channel * self.lanes) as usize];
        if credit.wanted == 0 {
            return usize::MAX;
        }
        let place = arbiter::next_after(credit.wanted, credit.served);
        state.inputs as usize + usize::from(place) * usize::from(state.by_place)
    }

    /// The first of the outputs that were asked at this instant decides, now that all requests are in.
    fn decide_next(&mut self) {
        if !self.due_sorted {
            self.due.sort_unstable_by(|a, b| b.cmp(a));
            self.due_sorted = true;
        }
        if let Some(channel) = self.due.pop() {
            self.counters.events += 1;
            self.decide(channel);
        }
    }

    /// Virtual time.
    pub const fn now_ps(&self) -> u64 {
        self.now_ps
    }

    /// What came of flow `n` of those given.
    pub fn flow(&self, n: usize) -> FlowInfo {
        let flow = &self.flows[n];
        let request = self.flows.all.get(flow.request as usize);
        FlowInfo {
            broken: self.gave_up(flow),
            first_posted_ps: request.unwrap_or(flow).info.first_posted_ps,
            ..flow.info
        }
    }

    /// What a link did in a direction: 0 from its first end, 1 from its second.
    pub fn channel(&self, link: usize, way: usize) -> ChannelStats {
        let state = &self.channels[link * 2 + way];
        ChannelStats {
            packets: state.packets,
            busy_ps: state.busy_ps,
            starved_ps: state.starved_ps,
            held_ps: state.held_ps,
            waited_ps: state.waited_ps,
            queued_bytes_max: state.queued_bytes_max.into(),
            cut: state.cut,
        }
    }

    /// The way of the table from a host to another: link and direction of each hop.
    pub fn path(&self, from: u32, to: u32) -> Vec<(u32, usize)> {
        let mut node = from;
        let mut found = Vec::new();
        while node != to {
            let channel = self.way(node, from, to);
            found.push((channel / 2, channel as usize % 2));
            node = self.channels[channel as usize].to;
        }
        found
    }

    /// What the whole fabric did.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Blocks of 64 B that a packet takes in a buffer.
    fn blocks(&self, wire_bytes: u16) -> u32 {
        (u32::from(wire_bytes) - self.wire_only).div_ceil(BLOCK_BYTES)
    }

    /// Checks that every block of every buffer is somewhere, once.
    ///
    /// # Panics
    /// When one is not.
    pub fn check_conservation(&self) {
        for (n, credit) in self.credits.iter().enumerate() {
            let back = credit.on_the_way();
            assert_eq!(
                credit.free + back + credit.held,
                credit.all,
                "credits of channel {} are not conserved on lane {}",
                n / self.lanes as usize,
                n % self.lanes as usize
            );
        }
    }

    fn post(&mut self, at_ps: u64, kind: u32, who: u32, what: u32) {
        self.queue
            .push(word(at_ps.max(self.now_ps), kind, who, what));
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

/// Flows that wait for others wait for earlier ones, whose end their sender sees.
fn check_order(flows: &[FlowSpec]) -> Result<(), SpecError> {
    for (n, flow) in (0..).zip(flows) {
        let wrong = |problem: &str| Err(at(Place::Flow(n), problem.to_owned()));
        if flow.passing && flow.ping_pong {
            return wrong("a flow that passes is not answered");
        }
        let Some(after) = flow.after else { continue };
        let before = flows.get(after as usize).filter(|_| after < n);
        match before {
            _ if !flow.passing => return wrong("only a flow that passes starts after another"),
            Some(before) if before.to == flow.from => {}
            Some(_) => {
                return wrong("its sender does not see the end of the flow that it waits for");
            }
            None => return wrong("it waits for a flow that is not before it"),
        }
    }
    Ok(())
}

/// Numbers are bounded by what a specification may hold.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(NONE)
}

fn small(n: usize) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}

// Kinds of events, in the order in which those of one instant happen.

/// A packet's head is in a chip that decides then.
const HERE: u32 = 0;
/// A packet's head is through the chip, as far as the input's FIFO.
const ENTER: u32 = 1;
/// The head of an input can ask its output.
const READY: u32 = 2;
/// A packet's tail is in a host's adapter.
const ARRIVED: u32 = 3;
/// The last of a message is in a host's memory.
const IN_MEMORY: u32 = 4;
/// A probe is at its edge switch.
const PROBED: u32 = 5;
/// A buffer that paused its sender has room.
const XON: u32 = 6;
/// A pause begins or ends at a sender.
const PAUSE: u32 = 7;
/// A sender has heard nothing for long.
const RETRY: u32 = 8;
/// A host looks for something to fetch.
const LOOK: u32 = 9;
/// A pair of edges may move a flow, and probes.
const TICK: u32 = 10;
/// An output decides whom to serve.
const DECIDE: u32 = 11;
/// A link fails or comes back, or tables change; after all that was decided before.
const FAULT: u32 = 12;
/// A passing flow starts.
const START: u32 = 13;

// Every input, host and flow has a number that an event can hold.
const _: () = assert!(HOSTS_MAX + SWITCHES_MAX * (PORTS_MAX as usize) < WHO_MAX as usize);

/// Rooms on their way back that a line holds: those of full packets at full rate over some 100 m.
const RETURNS: usize = 3;
/// With fewer rooms all of a world is near, and looking ahead costs more than it saves; measured.
const ROOMS_IN_CACHE: usize = 2_000;
/// No packet, no channel.
const NONE: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;
