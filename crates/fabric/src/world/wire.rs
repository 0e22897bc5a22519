//! Making the parts of a world: channels, inputs, room.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Channel, Credit, Input, Kind, NEVER, NONE, NodeState, RETURNS, World, count, small};
use crate::ethernet::FlowControl;
use crate::queue::WHO_MAX;
use crate::route;
use crate::selection::Selection;
use crate::spec::{
    CREDIT_BYTES, FabricSpec, LinkSpec, Node, Place, Queueing, SpecError, SwitchSpec, at,
};

impl World {
    /// Makes channels and inputs: two channels for each link, inputs for each port and lane.
    pub(super) fn wire(&mut self, spec: &FabricSpec) -> Result<(), SpecError> {
        let neighbours = route::neighbours(spec);
        let hosts = spec.hosts.len();
        let lanes = self.lanes as usize;
        for (n, ports) in neighbours.iter().enumerate() {
            // A host's are what its adapter fetched, and its acknowledgments.
            let (places, outs, shared) = match (n < hosts, spec.queueing) {
                (true, _) => (2, 1, false),
                (false, Queueing::Input) => (ports.len(), 1, false),
                (false, Queueing::VirtualOutput) => (ports.len(), ports.len(), false),
                (false, Queueing::Output) => (1, ports.len(), true),
            };
            let by_lane = n < hosts || !self.by_arrival;
            let (places, each) = match by_lane {
                true => (places, outs * lanes),
                false => (places * lanes, 1),
            };
            if let (true, Some(chip)) = (places > 64, n.checked_sub(hosts)) {
                let problem = format!(
                    "{} ports with {lanes} lanes each: where packets change lanes on the way (valiant, ugal), a chip has 64 FIFOs \
                     at its inputs at most; expected fewer ports, virtual outputs or queues at outputs",
                    ports.len()
                );
                return Err(at(Place::Switch(count(chip)), problem));
            }
            // Of its own, for probes.
            let control = places;
            let probes = n >= hosts && matches!(spec.selection, Selection::Dca(_)) && !shared;
            let places = places + usize::from(probes);
            let by_out = if outs > 1 || shared { lanes } else { 0 };
            self.nodes.push(NodeState {
                input: count(self.inputs.len()),
                by_place: if shared { 0 } else { count(each) },
                by_out: count(by_out),
                control: count(control),
                ways: 0,
                host: n < hosts,
            });
            for place in 0..places {
                self.inputs.extend((0..each).map(|_| Input {
                    head: NONE,
                    tail: NONE,
                    busy_until_ps: 0,
                    last_out: NONE,
                    node: count(n),
                    place: small(place),
                }));
            }
        }
        let mut held = vec![0_u64; neighbours.len()];
        for end in spec.links.iter().flat_map(|link| link.ends) {
            let held = &mut held[route::number(spec, end)];
            *held = held.saturating_add(spec.port(end).buffer_bytes);
            if *held > u64::from(u32::MAX) {
                let problem = "the buffers of all ports of a part hold 4 GiB or more";
                return Err(at(Place::Whole, problem.to_owned()));
            }
        }
        if self.inputs.len() >= WHO_MAX as usize {
            let found = self.inputs.len();
            return Err(at(
                Place::Whole,
                format!("{found} queues in all chips; expected below {WHO_MAX}"),
            ));
        }
        let mut outs: Vec<Vec<u32>> = vec![Vec::new(); neighbours.len()];
        let mut kinds: HashMap<Kind, u16> = HashMap::new();
        for link in &spec.links {
            let [a, b] = link.ends.map(|end| route::number(spec, end));
            let ports = [a, b].map(|node| outs[node].len());
            for (way, [from, to]) in [[a, b], [b, a]].into_iter().enumerate() {
                let far = link.ends[1 - way];
                let blocks = spec.lane_blocks(link, far);
                let room = |lane| match lane < usize::from(spec.lanes(link)) {
                    true => blocks,
                    false => 0,
                };
                outs[from].push(count(self.channels.len()));
                let kind = Kind::new(spec, link, far);
                let known = kinds.len();
                let number = *kinds.entry(kind).or_insert_with(|| {
                    Arc::make_mut(&mut self.kinds).push(kind);
                    u16::try_from(known).unwrap_or(u16::MAX)
                });
                if number == u16::MAX {
                    let problem = format!("more than {} kinds of cables and ports", u16::MAX);
                    return Err(at(Place::Whole, problem));
                }
                let ends = [from, ports[way], to, ports[1 - way]];
                self.channels.push(Channel::new(number, ends));
                self.credits
                    .extend((0..lanes).map(|l| Credit::new(room(l))));
            }
        }
        for (n, channel) in (0..).zip(&mut self.channels) {
            channel.number = n;
            channel.back = n ^ 1;
            let far = &self.nodes[channel.to as usize];
            channel.to_host = far.host;
            channel.far = match far.host {
                true => channel.to,
                false if !self.by_arrival => far.input + u32::from(channel.to_port) * far.by_place,
                false => far.input + u32::from(channel.to_port) * self.lanes,
            };
            let near = &self.nodes[channel.from as usize];
            channel.inputs = near.input + u32::from(channel.from_port) * near.by_out;
            channel.by_place = u16::try_from(near.by_place).unwrap_or(u16::MAX);
        }
        let first = self.kinds.first().map(|k| k.byte);
        self.mixed = self.kinds.iter().any(|k| Some(k.byte) != first);
        for (node, outs) in self.nodes.iter_mut().zip(&outs) {
            node.ways = count(self.ways.len());
            self.ways.extend(outs);
        }
        Ok(())
    }

    /// Every buffer on a flow's way must hold one of its packets, or it would wait for ever.
    pub(super) fn check_room(&self, spec: &FabricSpec) -> Result<(), SpecError> {
        let above = spec.selection.lanes_above();
        for (n, flow) in (0..).zip(&self.flows) {
            // Acknowledgments may come another way.
            let there = [flow.spec.from, flow.spec.to];
            let back = [flow.spec.to, flow.spec.from];
            let ways = match flow.spec.transport.is_acknowledged() {
                true => &[there, back][..],
                false => &[there],
            };
            for &[from, to] in ways {
                let mut node = from;
                let mut hop = 0;
                while node != to {
                    let channel = self.way(node, from, to);
                    let lane = self.routes.lane(from, to, hop);
                    self.check_channel(spec, n, channel, lane)?;
                    hop += 1;
                    node = self.channels[channel as usize].to;
                }
            }
            if above > 0 {
                let last = *self.ways.last().unwrap_or(&0);
                self.check_channel(spec, n, last, 0)?;
            }
        }
        if !self.select.is_static() {
            self.check_all_room(spec, above)?;
        }
        Ok(())
    }

    /// A flow may come over any link between chips.
    fn check_all_room(&self, spec: &FabricSpec, above: u8) -> Result<(), SpecError> {
        let longest = (0..)
            .zip(&self.flows)
            .max_by_key(|(_, f)| spec.blocks(f.spec.transport, f.packet_bytes()));
        let highest = (0..).zip(&self.flows).max_by_key(|(_, f)| f.spec.lane);
        for (channel, state) in (0..).zip(&self.channels) {
            let ends = [state.from, state.to].map(|n| self.nodes[n as usize].host);
            for (n, _) in [longest, highest].into_iter().flatten() {
                if ends == [false, false] {
                    self.check_channel(spec, n, channel, above)?;
                }
            }
        }
        Ok(())
    }

    fn check_channel(
        &self,
        spec: &FabricSpec,
        n: u32,
        channel: u32,
        above: u8,
    ) -> Result<(), SpecError> {
        let flow = &self.flows[n as usize];
        let packet = flow.packet_bytes();
        let needed = spec.blocks(flow.spec.transport, packet);
        let link = &spec.links[channel as usize / 2];
        let lanes = spec.lanes(link);
        let lane = flow.spec.lane + above;
        if lane >= lanes {
            let problem = format!(
                "flow {n} travels on lane {lane}; it has {lanes}, from 0: a higher max_op_vls, if both ends have the lanes"
            );
            return Err(at(Place::Link(channel / 2), problem));
        }
        let all = self.credits[self.room(channel, flow.spec.lane)].all;
        if all < needed {
            let problem = format!(
                "a buffer of {all} blocks of 64 B for each of {lanes} virtual lanes holds no packet of {packet} B \
                 (flow {n}), which takes {needed}"
            );
            return Err(at(Place::Link(channel / 2), problem));
        }
        Ok(())
    }

    /// Writes down each flow's way, if that is not much: a table of all destinations is far larger than what few flows
    /// ask of it.
    pub(super) fn note_paths(&mut self) {
        let swept = self.faults.as_ref().is_some_and(|f| !f.tables().is_empty());
        if swept || !self.select.is_static() || self.flows.len() > PATHS_MAX {
            return;
        }
        let (mut starts, mut paths) = (Vec::new(), Vec::new());
        for [from, to] in self.ends.iter().copied() {
            starts.push(count(paths.len()));
            let mut node = self.channels[self.way(from, from, to) as usize].to;
            while node != to {
                let channel = self.way(node, from, to);
                paths.push(channel);
                node = self.channels[channel as usize].to;
            }
        }
        self.path_of = Arc::new(starts);
        self.paths = Arc::new(paths);
    }

    /// A port that pauses its sender has room for what comes until that is acted on.
    pub(super) fn check_headroom(&self, spec: &FabricSpec) -> Result<(), SpecError> {
        let Some(FlowControl::Pfc(pfc)) = spec.ethernet.map(|e| e.control) else {
            return Ok(());
        };
        let frame = |f: &super::Flow| spec.wire_bytes(f.spec.transport, f.packet_bytes());
        let longest = self.flows.iter().map(frame).max().unwrap_or(0);
        for (n, link) in (0..).zip(&spec.links) {
            for far in link.ends {
                let (speed, width) = spec.trained(link);
                let byte_ps = speed.byte_time(width).of(1);
                let headroom = pfc.headroom_bytes(longest, link.cable.delay_ps(), byte_ps);
                let needed = u64::from(pfc.xoff_bytes) + u64::from(headroom);
                let room = u64::from(spec.lane_blocks(link, far)) * 64;
                if room < needed {
                    let problem = format!(
                        "a buffer of {room} B for each lane loses packets before a pause is acted on: {} B until it pauses and {headroom} B of headroom are needed",
                        pfc.xoff_bytes
                    );
                    return Err(at(Place::Link(n), problem));
                }
            }
        }
        Ok(())
    }

    /// Place of a channel's lane in `credits` and `wanted`.
    pub(super) const fn room(&self, channel: u32, lane: u8) -> usize {
        channel as usize * self.lanes as usize + lane as usize
    }

    /// Channel by which packets from a host to another leave a node, by the tables.
    pub(super) fn way(&self, node: u32, from: u32, to: u32) -> u32 {
        let state = &self.nodes[node as usize];
        let port = match state.host {
            true => 0,
            false => {
                let switch = node - count(self.hosts.len());
                self.routes.port(switch, from, to)
            }
        };
        self.ways[state.ways as usize + usize::from(port)]
    }
}

impl Kind {
    /// Towards `far`.
    fn new(spec: &FabricSpec, link: &LinkSpec, far: Node) -> Self {
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
        let near = match link.ends[0] == far {
            true => link.ends[1],
            false => link.ends[0],
        };
        let propagation_ps = link.cable.delay_ps();
        Self {
            byte,
            propagation_ps,
            latency_ps,
            store_and_forward,
            travel_ps: spec.port(far).credit_ps + byte.of(CREDIT_BYTES) + propagation_ps,
            queue_max_bytes: spec.port(near).buffer_bytes,
        }
    }
}

impl Channel {
    /// Numbers of its nodes, and of its ports there.
    fn new(kind: u16, [from, from_port, to, to_port]: [usize; 4]) -> Self {
        Self {
            free_at_ps: 0,
            decides_at_ps: NEVER,
            packets: 0,
            busy_ps: 0,
            waited_ps: 0,
            queued_bytes: 0,
            queued_bytes_max: 0,
            inputs: NONE,
            by_place: 0,
            kind,
            far: NONE,
            asked: 0,
            to_host: false,
            served_lane: 0,
            rest: 0,
            held_ps: 0,
            starved_ps: 0,
            cut: 0,
            from: count(from),
            to: count(to),
            number: NONE,
            there: NONE,
            back: NONE,
            part: 0,
            from_port: small(from_port),
            to_port: small(to_port),
        }
    }
}

impl Credit {
    const fn new(all: u32) -> Self {
        Self {
            all,
            free: all,
            held: 0,
            wanted: 0,
            at_ps: [0; RETURNS],
            causes: [NONE; RETURNS],
            blocks: [0; RETURNS],
            returns: 0,
            more: None,
            starved: false,
            since_ps: NEVER,
            last_cause: NONE,
            blocker: NONE,
            blamed: NONE,
            blamed_ps: 0,
            served: 0,
            xoff: false,
            paused: false,
            away: false,
            signalled_ps: 0,
        }
    }
}

/// Flows whose ways are written down.
const PATHS_MAX: usize = 1 << 16;
