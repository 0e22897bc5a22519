//! Flows as fluids: what static routes leave to each of many flows at once, without packets.
//!
//! **Max-min fair rates**: nobody can get more without taking from someone who has less. Found by progressive filling
//! (D. Bertsekas, R. Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2): the cable with the least share for
//! each of its flows fixes them, and what they leave goes to the others. **Shares** are the estimate of ORCS (T. Schneider,
//! T. Hoefler, A. Lumsdaine, "ORCS: an oblivious routing congestion simulator", 2009): a flow gets its part of the
//! cable that has the most flows.
//!
//! **How far to trust it.** Where no cable has two flows, rates are those of packets. Where some have, the flow
//! model shares every cable per flow and lets nobody wait in vain. Packets in FIFO buffers wait behind others that
//! are blocked, and a switch shares an output among inputs, not flows: their mean is lower and their spread wider. On
//! random permutations under minhop, 128 KiB of buffer a port, the mean of packets was 1 to 4 % lower on two levels, 6
//! and 9 % on three with 128 hosts, 13 and 17 % with 1024.
//! Left out in rates: credits too few for a cable, the CPU's and the adapter's time for each message, start and end.
//! [`Fluid::finish`] has all of them but the blocking: what a flow gets alone bounds it, and rates rise as others end.

mod alone;
mod finish;
pub mod pattern;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::route::{Graph, Routes};
use crate::spec::{FabricSpec, HostSpec, Transport};

pub use alone::{Alone, OneFlow};
pub use finish::Volume;

/// A fabric under a set of flows.
#[derive(Clone, Debug)]
pub struct Fluid<'a> {
    graph: &'a Graph,
    routes: &'a Routes,
    /// Payload a second of each channel.
    capacity: Vec<f64>,
    /// Highest of them.
    top: f64,
    /// Ways of all flows, one after the other, and where each begins; one more at the end.
    ways: Vec<u32>,
    start: Vec<u32>,
    rates: Vec<f64>,
    /// Most that a flow can have, where that is less than its cables carry: rate and flow, the least first.
    caps: Vec<(f64, u32)>,
    /// Flows that are still under way, in order.
    active: Vec<u32>,
    /// Channels with flows.
    used: Vec<u32>,
    channels: Vec<Channel>,
    /// Flows of the channels that can limit them, channel by channel.
    members: Vec<u32>,
    /// Ways without the channels that cannot, and where each begins.
    tight: Vec<u32>,
    tight_start: Vec<u32>,
    queue: Queue,
    /// All chips are one: only the hosts' own cables are shared.
    one_switch: bool,
}

/// A channel while rates are found.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// What fixed flows leave of it.
    room: f64,
    /// Flows that are not fixed.
    left: u32,
    /// Flows.
    flows: u32,
    /// Those of them that are still under way.
    active: u32,
    /// Where its flows stand in `members`; [`UNLISTED`] where it limits none.
    first: u32,
}

/// Channels by their share when it was last known: buckets, and the order within the lowest.
#[derive(Clone, Debug)]
struct Queue {
    buckets: Vec<Vec<(f64, u32)>>,
    at: usize,
    lowest: BinaryHeap<Reverse<(u64, u32)>>,
    per_share: f64,
}

/// Flows of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Link times 2, plus 1 from its second end.
    pub channel: u32,
    /// Flows over it.
    pub flows: u32,
}

/// Rates of one set of flows, in B/s of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Round {
    /// Of the flow that gets least.
    pub worst: f64,
    /// Mean of all.
    pub average: f64,
    /// Of the flow that gets most.
    pub best: f64,
}

/// Many sets of flows together, as the summary of CBench's rotate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Sets of flows.
    pub rounds: u32,
    /// The least rate of any flow in B/s.
    pub worst: f64,
    /// Mean of the sets' means.
    pub average: f64,
    /// The highest rate of any flow.
    pub best: f64,
    /// Least mean of a set.
    pub average_min: f64,
    /// Highest mean of a set.
    pub average_max: f64,
}

/// How rates are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Max-min fair.
    #[default]
    MaxMin,
    /// Each flow its part of its fullest cable.
    FullestCable,
}

impl<'a> Fluid<'a> {
    /// Full packets of `mtu_bytes` of payload on a checked fabric with its routes.
    ///
    /// # Panics
    /// When graph and routes are of another fabric.
    pub fn new(
        spec: &FabricSpec,
        graph: &'a Graph,
        routes: &'a Routes,
        transport: Transport,
        mtu_bytes: u32,
    ) -> Self {
        let payload = f64::from(mtu_bytes);
        let wire = f64::from(spec.wire_bytes(transport, mtu_bytes));
        let mut capacity = Vec::with_capacity(graph.channels());
        for link in &spec.links {
            let (speed, width) = spec.trained(link);
            let rate = 1e12 / speed.byte_time(width).as_f64() * payload / wire;
            capacity.extend([rate, rate]);
        }
        for (host, of) in spec.hosts.iter().enumerate() {
            if let Some(bus) = bus_bytes_per_second(of, mtu_bytes) {
                let (_, out) = graph.port(host, 0);
                for channel in [out, out ^ 1] {
                    let of = &mut capacity[channel as usize];
                    *of = of.min(bus);
                }
            }
        }
        let top = capacity.iter().copied().fold(0.0, f64::max);
        Self {
            graph,
            routes,
            top,
            capacity,
            ways: Vec::new(),
            start: vec![0],
            rates: Vec::new(),
            caps: Vec::new(),
            active: Vec::new(),
            used: Vec::new(),
            channels: vec![Channel::default(); graph.channels()],
            members: Vec::new(),
            tight: Vec::new(),
            tight_start: vec![0],
            queue: Queue::new(top),
            one_switch: false,
        }
    }

    /// The same hosts at one switch as large as the fabric: nothing is shared but their own cables.
    pub fn at_one_switch(&self) -> Self {
        Self {
            one_switch: true,
            ..self.clone()
        }
    }

    /// Payload a second of a channel in full packets, with the bus of a host at its end.
    pub fn capacity(&self, channel: u32) -> f64 {
        self.capacity[channel as usize]
    }

    /// Rate of each flow, given as source and destination host; one to itself gets 0.
    ///
    /// # Panics
    /// When a flow has no way, which checked routes exclude.
    pub fn rates(&mut self, flows: &[(u32, u32)], sharing: Sharing) -> &[f64] {
        self.route(flows.iter().copied());
        self.caps.clear();
        match sharing {
            Sharing::MaxMin => self.fill(),
            Sharing::FullestCable => self.shares(),
        }
        &self.rates
    }

    /// Rates of the flows as a round.
    pub fn round(&mut self, flows: &[(u32, u32)], sharing: Sharing) -> Round {
        Round::of(self.rates(flows, sharing))
    }

    /// Channels of the last set of flows, in the order in which flows first met them.
    pub fn loads(&self) -> impl Iterator<Item = Load> {
        self.used.iter().map(|channel| Load {
            channel: *channel,
            flows: self.channels[*channel as usize].flows,
        })
    }

    /// Those with at least so many flows, the fullest first.
    pub fn fullest(&self, flows_min: u32) -> Vec<Load> {
        let mut found: Vec<Load> = self.loads().filter(|l| l.flows >= flows_min).collect();
        found.sort_by_key(|l| (Reverse(l.flows), l.channel));
        found
    }

    /// Way of flow `n` of the last set, in channels.
    pub fn way(&self, n: usize) -> &[u32] {
        &self.ways[self.start[n] as usize..self.start[n + 1] as usize]
    }

    fn route(&mut self, flows: impl Iterator<Item = (u32, u32)>) {
        for channel in self.used.drain(..) {
            self.channels[channel as usize] = Channel::default();
        }
        self.ways.clear();
        self.start.clear();
        self.start.push(0);
        self.active.clear();
        for (n, (from, to)) in (0..).zip(flows) {
            if from != to && self.one_switch {
                let (out, into) = (
                    self.graph.port(from as usize, 0).1,
                    self.graph.port(to as usize, 0).1 ^ 1,
                );
                self.ways.push(out);
                if into != out {
                    self.ways.push(into);
                }
            } else if from != to {
                let ends = self.routes.way(self.graph, from, to, &mut self.ways);
                assert!(ends, "routes lead from {from} to {to}");
            }
            self.active.push(n);
            self.start.push(count(self.ways.len()));
        }
        for channel in &self.ways {
            let of = &mut self.channels[*channel as usize];
            if of.flows == 0 {
                self.used.push(*channel);
            }
            of.flows += 1;
            of.active += 1;
        }
    }

    fn shares(&mut self) {
        self.rates.clear();
        for pair in self.start.windows(2) {
            let way = &self.ways[pair[0] as usize..pair[1] as usize];
            let flows = |c: &u32| f64::from(self.channels[*c as usize].flows);
            let share = |c: &u32| self.capacity[*c as usize] / flows(c);
            let least = way.iter().map(share).fold(f64::INFINITY, f64::min);
            self.rates.push(if way.is_empty() { 0.0 } else { least });
        }
    }

    /// Max-min fair rates of the flows that are under way.
    fn fill(&mut self) {
        self.list_members();
        self.rates.clear();
        self.rates.resize(self.start.len() - 1, 0.0);
        for flow in &self.active {
            self.rates[*flow as usize] = OPEN;
        }
        let mut capped = 0;
        while let Some((share, channel)) = self.queue.pop() {
            let of = self.channels[channel as usize];
            if of.left == 0 {
                continue;
            }
            let now = of.room.max(0.0) / f64::from(of.left);
            // Shares only rise as others are fixed: one that has risen waits for its turn.
            if now > share * (1.0 + ROUNDING) {
                self.queue.push(now, channel);
                continue;
            }
            // Whoever can have no more than this share is fixed first; the rest of it is for others.
            if let Some(cap) = self.next_cap(&mut capped).filter(|(cap, _)| *cap < now) {
                self.fix(cap.1, cap.0);
                self.queue.push(now, channel);
                continue;
            }
            let first = of.first as usize;
            for member in first..first + of.active as usize {
                let flow = self.members[member];
                if self.rates[flow as usize] == OPEN {
                    self.fix(flow, now);
                }
            }
        }
        while let Some((cap, flow)) = self.next_cap(&mut capped) {
            self.fix(flow, cap);
        }
        for flow in &self.active {
            let flow = *flow as usize;
            if self.rates[flow] == OPEN {
                let empty = self.start[flow] == self.start[flow + 1];
                self.rates[flow] = if empty { 0.0 } else { self.top };
            }
        }
    }

    /// The open flow that can have least, from a place in the list on.
    fn next_cap(&self, place: &mut usize) -> Option<(f64, u32)> {
        while let Some((cap, flow)) = self.caps.get(*place) {
            if self.rates[*flow as usize] == OPEN {
                return Some((*cap, *flow));
            }
            *place += 1;
        }
        None
    }

    fn fix(&mut self, flow: u32, rate: f64) {
        let flow = flow as usize;
        self.rates[flow] = rate;
        let way = self.tight_start[flow] as usize..self.tight_start[flow + 1] as usize;
        for channel in &self.tight[way] {
            let of = &mut self.channels[*channel as usize];
            of.room -= rate;
            of.left -= 1;
        }
    }

    /// Flows by channel, and the shares to begin with, for all channels that can limit a flow: several flows, or less
    /// room than the widest.
    fn list_members(&mut self) {
        self.queue.clear();
        let mut next = 0;
        for channel in &self.used {
            let capacity = self.capacity[*channel as usize];
            let of = &mut self.channels[*channel as usize];
            of.left = of.active;
            of.room = capacity;
            of.first = UNLISTED;
            if of.active > 1 || (of.active == 1 && capacity < self.top) {
                of.first = next;
                next += of.active;
                self.queue.push(capacity / f64::from(of.active), *channel);
            }
        }
        self.members.clear();
        self.members.resize(next as usize, 0);
        self.tight.clear();
        self.tight_start.clear();
        self.tight_start.resize(self.start.len(), 0);
        for flow in &self.active {
            let at = *flow as usize;
            self.tight_start[at] = count(self.tight.len());
            for channel in &self.ways[self.start[at] as usize..self.start[at + 1] as usize] {
                let of = &mut self.channels[*channel as usize];
                if of.first != UNLISTED {
                    of.left -= 1;
                    self.members[(of.first + of.left) as usize] = *flow;
                    self.tight.push(*channel);
                }
            }
            // Where the next one begins, whichever that is: those between are not under way.
            self.tight_start[at + 1] = count(self.tight.len());
        }
        for channel in &self.used {
            let of = &mut self.channels[*channel as usize];
            of.left = of.active;
        }
    }
}

impl Queue {
    fn new(top: f64) -> Self {
        Self {
            buckets: vec![Vec::new(); usize::from(BUCKETS) + 1],
            at: 0,
            lowest: BinaryHeap::new(),
            per_share: if top > 0.0 {
                f64::from(BUCKETS) / top
            } else {
                0.0
            },
        }
    }

    fn clear(&mut self) {
        self.buckets.iter_mut().for_each(Vec::clear);
        self.lowest.clear();
        self.at = 0;
    }

    /// Nothing is pushed below what was popped last, but for rounding.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the place of a share in 0 to top"
    )]
    fn push(&mut self, share: f64, channel: u32) {
        let bucket = ((share * self.per_share) as usize).min(usize::from(BUCKETS));
        if bucket <= self.at {
            self.lowest.push(Reverse((share.to_bits(), channel)));
        } else {
            self.buckets[bucket].push((share, channel));
        }
    }

    /// The least share, of equal ones that of the lowest channel.
    fn pop(&mut self) -> Option<(f64, u32)> {
        loop {
            if let Some(Reverse((share, channel))) = self.lowest.pop() {
                return Some((f64::from_bits(share), channel));
            }
            if self.at == usize::from(BUCKETS) {
                return None;
            }
            self.at += 1;
            let all = self.buckets[self.at].drain(..);
            self.lowest
                .extend(all.map(|(share, channel)| Reverse((share.to_bits(), channel))));
        }
    }
}

impl Fluid<'_> {
    /// CBench's rotate over hosts 0 to `ranks - 1`: of its ranks / 2 rotations those named, all of them with
    /// `0..ranks / 2`.
    pub fn rotate(
        &mut self,
        ranks: u32,
        rotations: impl IntoIterator<Item = u32>,
        sharing: Sharing,
    ) -> Summary {
        let rounds = rotations.into_iter().map(|r| pattern::rotation(ranks, r));
        self.summary(rounds, sharing)
    }

    /// Effective bisection bandwidth: so many random perfect bisections of hosts 0 to `ranks - 1`, one way.
    pub fn bisections(&mut self, ranks: u32, rounds: u32, seed: u64, sharing: Sharing) -> Summary {
        let mut rng = units::Rng::new(seed);
        let rounds = (0..rounds).map(|_| pattern::bisection(ranks, &mut rng));
        self.summary(rounds, sharing)
    }

    /// Random permutations: each host sends to one and receives from one.
    pub fn permutations(
        &mut self,
        ranks: u32,
        rounds: u32,
        seed: u64,
        sharing: Sharing,
    ) -> Summary {
        let mut rng = units::Rng::new(seed);
        let rounds = (0..rounds).map(|_| pattern::permutation(ranks, &mut rng));
        self.summary(rounds, sharing)
    }

    /// Any sets of flows, all zeros when there are none.
    pub fn summary(
        &mut self,
        rounds: impl IntoIterator<Item = Vec<(u32, u32)>>,
        sharing: Sharing,
    ) -> Summary {
        let mut found = Summary {
            worst: f64::INFINITY,
            average_min: f64::INFINITY,
            ..Summary::default()
        };
        for flows in rounds {
            let round = self.round(&flows, sharing);
            found.rounds += 1;
            found.worst = found.worst.min(round.worst);
            found.best = found.best.max(round.best);
            found.average += round.average;
            found.average_min = found.average_min.min(round.average);
            found.average_max = found.average_max.max(round.average);
        }
        if found.rounds == 0 {
            return Summary::default();
        }
        found.average /= f64::from(found.rounds);
        found
    }
}

impl Round {
    /// Of rates; zeros when there are none.
    #[allow(clippy::cast_precision_loss, reason = "a count of flows")]
    pub fn of(rates: &[f64]) -> Self {
        if rates.is_empty() {
            return Self::default();
        }
        Self {
            worst: rates.iter().copied().fold(f64::INFINITY, f64::min),
            average: rates.iter().sum::<f64>() / rates.len() as f64,
            best: rates.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// What a host's bus lets through in packets of one size.
#[allow(clippy::cast_precision_loss, reason = "picoseconds of a packet")]
fn bus_bytes_per_second(host: &HostSpec, mtu_bytes: u32) -> Option<f64> {
    let bus = host.bus.as_ref()?;
    Some(f64::from(mtu_bytes) / (bus.busy_ps(mtu_bytes).max(1) as f64 * 1e-12))
}

/// Hops are bounded by what a specification may hold.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Shares are kept apart in so many steps before they are put in order.
const BUCKETS: u16 = 1_000;
/// A flow that no cable has fixed yet.
const OPEN: f64 = -1.0;
/// Its flows are not listed, as it limits none of them.
const UNLISTED: u32 = u32::MAX;
/// Sums of some thousand rates differ by less.
const ROUNDING: f64 = 1e-11;
