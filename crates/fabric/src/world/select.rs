//! Choosing ports: what lies on shortest paths, and which of it a packet takes.
//!
//! Each chip has a stream of random numbers of its own, so that what one draws does not hang on what others do.

use std::collections::{HashMap, VecDeque};

use super::World;
use super::dca::{self, Probe};
use crate::route;
use crate::selection::Selection;
use crate::spec::{FabricSpec, Node};

/// What chips know and remember for choosing.
#[derive(Clone, Debug)]
pub(super) struct Select {
    kind: Selection,
    pub(super) hosts: usize,
    /// Edge switches, in the order of their numbers.
    pub(super) edges: Vec<u32>,
    /// Number among these of each host's; of hosts without a chip, none.
    pub(super) edge_of: Vec<u32>,
    /// Ports on shortest paths, a bit each, by chip and edge switch.
    pub(super) near: Vec<u64>,
    /// Node behind each port of a chip, counted among chips.
    next: Vec<Vec<usize>>,
    /// Links to cross, alike.
    hops: Vec<u8>,
    /// By chip.
    random: Vec<u64>,
    turn: Vec<u8>,
    /// Port that was best for an edge switch last time, by chip and edge switch.
    best: Vec<u8>,
    /// Last packet and port of a flow at a chip.
    flowlets: HashMap<(u32, u32), (u64, u8)>,
}

impl Select {
    pub(super) fn new(spec: &FabricSpec) -> Self {
        let mut made = Self {
            kind: spec.selection,
            hosts: spec.hosts.len(),
            edges: Vec::new(),
            edge_of: Vec::new(),
            near: Vec::new(),
            next: Vec::new(),
            hops: Vec::new(),
            random: Vec::new(),
            turn: Vec::new(),
            best: Vec::new(),
            flowlets: HashMap::new(),
        };
        if made.is_static() {
            return made;
        }
        let chips = spec.switches.len();
        made.random = (0..chips as u64)
            .map(|n| mix(spec.seed ^ mix(n + 1)))
            .collect();
        made.find_edges(spec);
        made.best = vec![NO_PORT; chips * made.edges.len()];
        made
    }

    pub(super) const fn is_static(&self) -> bool {
        matches!(self.kind, Selection::Static)
    }

    pub(super) const fn reorders(&self) -> bool {
        self.kind.reorders()
    }

    /// Edge switches and shortest paths to them.
    fn find_edges(&mut self, spec: &FabricSpec) {
        let neighbours = route::neighbours(spec);
        let hosts = spec.hosts.len();
        let at_chip = |host: usize| match neighbours[host].first() {
            Some(Node::Switch(n)) => Some(*n),
            _ => None,
        };
        self.edges = (0..hosts).filter_map(at_chip).collect();
        self.edges.sort_unstable();
        self.edges.dedup();
        let number = |chip: u32| self.edges.binary_search(&chip).ok();
        self.edge_of = (0..hosts)
            .map(|h| at_chip(h).and_then(number))
            .map(|n| n.and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX))
            .collect();
        let chip = |node: &Node| match node {
            Node::Switch(n) => *n as usize,
            Node::Host(_) => usize::MAX,
        };
        let of = |ports: &Vec<Node>| ports.iter().map(chip).collect();
        self.next = neighbours[hosts..].iter().map(of).collect();
        for (chip, ports) in neighbours[hosts..].iter().enumerate() {
            let first = self.draw(chip) % ports.len().max(1) as u64;
            self.turn.push(u8::try_from(first).unwrap_or(0));
        }
        self.find_ways(&[]);
    }

    /// Shortest paths anew, without some ports.
    pub(super) fn sweep(&mut self, down: &[(u32, u8)]) {
        let down: Vec<(usize, u8)> = down
            .iter()
            .filter_map(|(node, port)| Some(((*node as usize).checked_sub(self.hosts)?, *port)))
            .collect();
        self.find_ways(&down);
    }

    fn find_ways(&mut self, down: &[(usize, u8)]) {
        let (chips, edges) = (self.next.len(), self.edges.len());
        self.near = vec![0; chips * edges];
        self.hops = vec![u8::MAX; chips * edges];
        let up = |chip: usize, port: usize| {
            let gone = |(at, by): &(usize, u8)| *at == chip && usize::from(*by) == port;
            !down.iter().any(gone)
        };
        for (edge, chip) in self.edges.iter().enumerate() {
            let mut next = VecDeque::from([*chip as usize]);
            self.hops[*chip as usize * edges + edge] = 0;
            while let Some(at) = next.pop_front() {
                let here = self.hops[at * edges + edge];
                for (port, there) in self.next[at].iter().enumerate() {
                    // Behind other ports are hosts.
                    if *there < chips && up(at, port) && self.hops[there * edges + edge] == u8::MAX
                    {
                        self.hops[there * edges + edge] = here.saturating_add(1);
                        next.push_back(*there);
                    }
                }
            }
            for at in 0..chips {
                let here = self.hops[at * edges + edge];
                for (port, there) in self.next[at].iter().enumerate() {
                    if *there < chips && up(at, port) && self.hops[there * edges + edge] < here {
                        self.near[at * edges + edge] |= 1 << port;
                    }
                }
            }
        }
    }

    /// Ways through the choices between a chip and an edge switch, if all go on alike.
    pub(super) fn path_count(&self, from: usize, to: usize) -> u32 {
        let edges = self.edges.len();
        let (mut at, mut all) = (from, 1_u32);
        while self.near[at * edges + to] != 0 {
            let ports = self.near[at * edges + to];
            all = all.saturating_mul(ports.count_ones());
            at = self.next[at][ports.trailing_zeros() as usize];
        }
        all
    }

    pub(super) fn draw(&mut self, chip: usize) -> u64 {
        let state = &mut self.random[chip];
        *state = state.wrapping_add(STEP);
        mix(*state)
    }

    /// One of the ports of a set.
    fn any(&mut self, chip: usize, ports: u64) -> u8 {
        let draw = self.draw(chip);
        nth(ports, draw)
    }
}

impl World {
    /// Channel by which a packet leaves the chip that it has come to; its lane may change.
    pub(super) fn choose(&mut self, node: u32, packet: u32) -> u32 {
        let p = &self.packets.all[packet as usize];
        if self.select.is_static() {
            let cursor = p.choice as usize;
            if !p.ack
                && let Some(out) = self.paths.get(cursor).copied()
            {
                if self.routes.lanes_by_hop() {
                    let [from, to] = self.ends[p.flow as usize];
                    self.raise_lane(node, packet, from, to);
                }
                self.packets.all[packet as usize].choice += 1;
                return out;
            }
            let [from, to] = self.ends[p.flow as usize];
            let (from, to) = if p.ack { (to, from) } else { (from, to) };
            self.raise_lane(node, packet, from, to);
            return self.way(node, from, to);
        }
        if p.probe != Probe::No {
            return self.choose_for_probe(node, packet);
        }
        let p = *p;
        let [from, to] = self.ends[p.flow as usize];
        let (from, to) = if p.ack { (to, from) } else { (from, to) };
        let chip = node as usize - self.hosts.len();
        let mut edge = self.select.edge_of[to as usize];
        if matches!(
            self.select.kind,
            Selection::Valiant | Selection::Ugal { .. }
        ) {
            let source = self.select.edge_of[from as usize];
            let first = self.select.edges[source as usize] as usize == chip;
            // Once: a way on from the edge between may lead back over the source's chip.
            let fresh = p.lane == self.own_lanes[p.flow as usize];
            if first && fresh && p.choice == 0 && source != edge && !p.ack {
                let by = self.detour(chip, source, edge);
                self.packets.all[packet as usize].choice = by;
            }
            let p = &mut self.packets.all[packet as usize];
            if let Some(by) = p.choice.checked_sub(1) {
                if self.select.edges[by as usize] as usize == chip {
                    p.choice = 0;
                    p.lane += 1;
                } else {
                    edge = by;
                }
            }
        }
        // Acknowledgments go by hash, but where links fail back by the path that their flow takes.
        let dca = matches!(self.select.kind, Selection::Dca(_));
        let steered = dca && (!p.ack || self.faults.is_some());
        if steered
            && self.select.edges[self.select.edge_of[from as usize] as usize] as usize == chip
        {
            self.packets.all[packet as usize].choice = match p.ack {
                true => self.steer_back(p.flow),
                false => self.steer(p.flow),
            };
        }
        let place = chip * self.select.edges.len() + edge as usize;
        let mut ports = self.select.near[place];
        if ports == 0 {
            return self.way(node, from, to);
        }
        if !steered {
            ports = self.alive(node, ports);
        }
        let key = u64::from(p.flow) << 1 | u64::from(p.ack);
        let port = if ports.count_ones() == 1 {
            nth(ports, 0)
        } else if steered {
            dca::digit(ports, &mut self.packets.all[packet as usize].choice)
        } else {
            self.port(node, place, ports, key)
        };
        self.out(node, port)
    }

    /// A packet's next lane, where the tables have one for each hop.
    fn raise_lane(&mut self, node: u32, packet: u32, from: u32, to: u32) {
        if !self.routes.lanes_by_hop() {
            return;
        }
        let p = &mut self.packets.all[packet as usize];
        // Counted in lanes above the flow's own, from the first cable between switches on.
        let own = self.own_lanes[p.flow as usize];
        let first = self.routes.home(from) == Some(node - super::count(self.hosts.len()));
        let hop = usize::from(p.lane - own) + if first { 1 } else { 2 };
        p.lane = own + self.routes.lane(from, to, hop);
    }

    /// Channel by which a probe goes on.
    pub(super) fn choose_for_probe(&mut self, node: u32, packet: u32) -> u32 {
        let edge = self.probe_edge(&self.packets.all[packet as usize]);
        let chip = node as usize - self.select.hosts;
        let ports = self.select.near[chip * self.select.edges.len() + edge as usize];
        let port = dca::digit(ports, &mut self.packets.all[packet as usize].choice);
        self.out(node, port)
    }

    fn port(&mut self, node: u32, place: usize, ports: u64, key: u64) -> u8 {
        let chip = node as usize - self.select.hosts;
        match self.select.kind {
            Selection::Static | Selection::Ecmp | Selection::Dca(_) => {
                // The chip's part keeps chips of one level from all hashing alike.
                let hash = mix(key.wrapping_mul(STEP) ^ mix(chip as u64 ^ self.seed));
                nth(ports, hash)
            }
            Selection::Spray | Selection::Valiant | Selection::Ugal { .. } => {
                self.select.any(chip, ports)
            }
            Selection::RoundRobin => {
                let last = self.select.turn[chip];
                let port = super::arbiter::next_after(ports, last);
                self.select.turn[chip] = port;
                port
            }
            Selection::Drill { draws, memory } => {
                let mut best = self.select.best[place];
                if memory == 0 || best == NO_PORT || ports >> best & 1 == 0 {
                    best = self.select.any(chip, ports);
                }
                for _ in 0..draws {
                    let other = self.select.any(chip, ports);
                    if self.backlog_ps(node, other) < self.backlog_ps(node, best) {
                        best = other;
                    }
                }
                self.select.best[place] = best;
                best
            }
            Selection::Flowlet { gap_ps } => {
                let drawn = self.select.any(chip, ports);
                let now = self.now_ps;
                let key = (node, u32::try_from(key).unwrap_or(u32::MAX));
                let last = self.select.flowlets.entry(key).or_insert((now, drawn));
                if now - last.0 >= gap_ps || ports >> last.1 & 1 == 0 {
                    last.1 = drawn;
                }
                last.0 = now;
                last.1
            }
        }
    }

    /// The edge switch that a packet goes to first, and one; zero for none.
    fn detour(&mut self, chip: usize, source: u32, edge: u32) -> u32 {
        let edges = self.select.edges.len();
        if edges < 3 {
            return 0;
        }
        let draw = self.select.draw(chip) % (edges as u64 - 2);
        let mut by = u32::try_from(draw).unwrap_or(0);
        for taken in [source.min(edge), source.max(edge)] {
            by += u32::from(by >= taken);
        }
        // After failures a sweep may have found no way to one of them.
        let reached = |to: u32| self.select.near[chip * edges + to as usize] != 0;
        if !reached(by) || !reached(edge) {
            return 0;
        }
        let Selection::Ugal { bias_bytes } = self.select.kind else {
            return by + 1;
        };
        let node = super::count(chip + self.select.hosts);
        let mut judge = |to: u32| {
            let place = chip * edges + to as usize;
            let port = self.select.any(chip, self.select.near[place]);
            let out = &self.channels[self.out(node, port) as usize];
            (
                u64::from(out.queued_bytes),
                u64::from(self.select.hops[place]),
            )
        };
        let (short, short_hops) = judge(edge);
        let (long, there) = judge(by);
        let back = self.edge_hops(by, edge);
        let keep = short * short_hops <= (long + u64::from(bias_bytes)) * (there + back);
        if keep { 0 } else { by + 1 }
    }

    fn edge_hops(&self, from: u32, to: u32) -> u64 {
        let chip = self.select.edges[from as usize] as usize;
        u64::from(self.select.hops[chip * self.select.edges.len() + to as usize])
    }

    pub(super) fn out(&self, node: u32, port: u8) -> u32 {
        self.ways[self.nodes[node as usize].ways as usize + usize::from(port)]
    }

    /// Until all that is to leave by a port has left, on a free wire.
    fn backlog_ps(&self, node: u32, port: u8) -> u64 {
        let number = self.out(node, port);
        let out = &self.channels[number as usize];
        let byte = self.kind(number).byte;
        out.free_at_ps.saturating_sub(self.now_ps) + byte.of(out.queued_bytes)
    }
}

/// The bit of a set that a number falls on.
pub(super) fn nth(set: u64, number: u64) -> u8 {
    let mut left = number % u64::from(set.count_ones().max(1));
    let mut rest = set;
    while left > 0 {
        rest &= rest - 1;
        left -= 1;
    }
    u8::try_from(rest.trailing_zeros()).unwrap_or(0)
}

/// Finalizer of splitmix64.
pub(super) const fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Of splitmix64.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const NO_PORT: u8 = u8::MAX;
