//! Buffers that can wait for each other: cycles in the channel dependency graph.
//!
//! A packet that holds room behind a cable on a lane may wait for room behind the next cable of its way. Cables and
//! lanes are the graph's nodes, such waits its edges, of all ways between hosts. Hosts always take what comes,
//! so that nothing begins or ends a cycle there.

use crate::route::graph::{Graph, small};
use crate::route::{Lanes, Routes};

/// A cable's direction with the lane on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Link times 2, plus 1 from its second end.
    pub channel: u32,
    /// Virtual lane.
    pub lane: u8,
}

/// Packets on each can wait for room behind the next, and those on the last for room behind the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// At least two.
    pub waits: Vec<Wait>,
}

/// The first cycle that a search from the lowest channel meets.
pub(super) fn find(graph: &Graph, routes: &Routes) -> Option<Cycle> {
    let lanes = usize::from(routes.lanes());
    let mut edges = Edges::new(graph, lanes, routes.lanes_by_hop());
    let mut way = Vec::new();
    // Ways of hosts at one switch differ in the first cable only, unless the source matters.
    let sources: Vec<usize> = match routes.depends_on_source() {
        true => (0..graph.hosts()).collect(),
        false => graph.leaves().iter().map(|(_, hosts)| hosts[0]).collect(),
    };
    for from in sources {
        for to in 0..graph.hosts() {
            if from == to {
                continue;
            }
            way.clear();
            let (from, to) = (small(from), small(to));
            if !routes.way(graph, from, to, &mut way) {
                continue;
            }
            for hop in 1..way.len().saturating_sub(1) {
                let lane = routes.lane(from, to, hop - 1);
                edges.add(way[hop - 1], lane, way[hop]);
            }
        }
    }
    edges.cycle(graph, |_| None)
}

/// Edges by channel and lane: ports of the switch there, as bits.
#[derive(Clone, Debug)]
pub(super) struct Edges {
    lanes: usize,
    /// The lane rises with each cable.
    rises: bool,
    /// Switch that a channel leads to and its port that each channel leaves by.
    ends: Vec<(u32, u8)>,
    ports: Vec<u64>,
}

impl Edges {
    pub(super) fn new(graph: &Graph, lanes: usize, rises: bool) -> Self {
        let mut ends = vec![(u32::MAX, 0); graph.channels()];
        for node in 0..graph.hosts() + graph.switches() {
            for (port, (to, channel)) in (0_u8..).zip(graph.all(node)) {
                ends[*channel as usize] = (*to, port);
            }
        }
        Self {
            lanes,
            rises,
            ends,
            ports: vec![0; graph.channels() * lanes],
        }
    }

    /// A packet behind `channel` can wait for `next`.
    pub(super) fn add(&mut self, channel: u32, lane: u8, next: u32) {
        let place = channel as usize * self.lanes + usize::from(lane);
        self.ports[place] |= 1 << self.ends[next as usize].1;
    }

    pub(super) fn remove(&mut self, channel: u32, lane: u8, next: u32) {
        let place = channel as usize * self.lanes + usize::from(lane);
        self.ports[place] &= !(1 << self.ends[next as usize].1);
    }

    /// Searches depth first. For each cycle, `cut` may remove an edge of it; one that it leaves is returned.
    ///
    /// What was left for good led to no cycle, and removed edges make none, so that it is not searched again.
    pub(super) fn cycle(
        &mut self,
        graph: &Graph,
        mut cut: impl FnMut(&Cycle) -> Option<(Wait, Wait)>,
    ) -> Option<Cycle> {
        let mut state = vec![NEW; self.ports.len()];
        // Nodes on the way, each with the ports not yet tried.
        let mut path: Vec<(usize, u64)> = Vec::new();
        for start in 0..self.ports.len() {
            if state[start] != NEW {
                continue;
            }
            path.push((start, self.ports[start]));
            state[start] = OPEN;
            while let Some((node, left)) = path.last_mut() {
                if *left == 0 {
                    state[*node] = DONE;
                    path.pop();
                    continue;
                }
                let port = left.trailing_zeros() as usize;
                *left &= *left - 1;
                let node = *node;
                let next = self.next(graph, node, port);
                match state[next] {
                    NEW => {
                        state[next] = OPEN;
                        path.push((next, self.ports[next]));
                    }
                    OPEN => {
                        let begin = path.iter().position(|(n, _)| *n == next).unwrap_or(0);
                        let waits = path[begin..].iter().map(|(n, _)| self.wait(*n)).collect();
                        let cycle = Cycle { waits };
                        let Some((from, to)) = cut(&cycle) else {
                            return Some(cycle);
                        };
                        self.remove(from.channel, from.lane, to.channel);
                        // Back to where the edge left: what was found behind it is open again.
                        let from = from.channel as usize * self.lanes + usize::from(from.lane);
                        while path.len() > 1 && path.last().is_some_and(|(n, _)| *n != from) {
                            if let Some((node, _)) = path.pop() {
                                state[node] = NEW;
                            }
                        }
                        if let Some((node, left)) = path.last_mut() {
                            *left = self.ports[*node];
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }

    fn next(&self, graph: &Graph, node: usize, port: usize) -> usize {
        let (there, _) = self.ends[node / self.lanes];
        let (_, channel) = graph.port(there as usize, port);
        let lane = node % self.lanes;
        // The host's cable and the first between switches share lane 0.
        let from_host = self.begins_at_host(graph, node / self.lanes);
        let lane = match self.rises && !from_host {
            true => (lane + 1).min(self.lanes - 1),
            false => lane,
        };
        channel as usize * self.lanes + lane
    }

    fn begins_at_host(&self, graph: &Graph, channel: usize) -> bool {
        (self.ends[channel ^ 1].0 as usize) < graph.hosts()
    }

    fn wait(&self, node: usize) -> Wait {
        Wait {
            channel: small(node / self.lanes),
            lane: u8::try_from(node % self.lanes).unwrap_or(u8::MAX),
        }
    }
}

impl Routes {
    /// How lanes were given, for messages.
    pub const fn lanes_are(&self) -> &'static str {
        match &self.lanes {
            Lanes::One => "one lane",
            Lanes::Pair { .. } => "a lane for each source and destination",
            Lanes::Hop { .. } => "a lane for each hop",
        }
    }
}

const NEW: u8 = 0;
const OPEN: u8 = 1;
const DONE: u8 = 2;
