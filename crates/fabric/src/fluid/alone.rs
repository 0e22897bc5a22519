//! What a flow gets alone, found once for all ways that are made of the same parts in the same order.

use crate::formula;
use crate::link::Cable;
use crate::spec::{FabricSpec, FlowSpec, HostSpec, Node, SwitchSpec, Transport};

/// One flow alone on its way, by [`formula`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneFlow {
    /// The least of its bounds; 0 where a buffer holds no packet of it.
    pub bytes_per_second: f64,
    /// One way of a packet, or of the message where that is shorter.
    pub latency_ps: u64,
}

/// Formulas of many flows on one fabric.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Kind of cable and ends, by channel.
    kinds: Vec<u32>,
    known: Vec<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    /// Payload of a packet and of a message.
    bytes: [u32; 2],
    transport: Transport,
    way: Vec<u32>,
    found: OneFlow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Host(HostSpec),
    Switch(SwitchSpec),
}

impl Alone {
    /// Of a checked fabric.
    pub fn new(spec: &FabricSpec) -> Self {
        let part = |node: Node| match node {
            Node::Host(n) => Part::Host(spec.hosts[n as usize]),
            Node::Switch(n) => Part::Switch(spec.switches[n as usize]),
        };
        let mut all: Vec<([Part; 2], Cable)> = Vec::new();
        let mut kinds = Vec::with_capacity(spec.links.len() * 2);
        let mut next = 0;
        for link in &spec.links {
            let ends = link.ends.map(part);
            for ends in [ends, [ends[1], ends[0]]] {
                let kind = (ends, link.cable);
                // The newest first; of a fabric whose parts are all different, each is found by itself.
                let found = all.iter().rposition(|k| *k == kind);
                kinds.push(match found {
                    Some(place) => u32::try_from(place).unwrap_or(u32::MAX),
                    None if all.len() < KINDS_MAX => {
                        all.push(kind);
                        u32::try_from(all.len() - 1).unwrap_or(u32::MAX)
                    }
                    None => {
                        next += 1;
                        u32::MAX - next
                    }
                });
            }
        }
        Self {
            kinds,
            known: Vec::new(),
        }
    }

    /// Of a flow on its way, in channels.
    ///
    /// # Panics
    /// When the way does not belong to the fabric.
    pub fn of(&mut self, spec: &FabricSpec, flow: &FlowSpec, way: &[u32]) -> OneFlow {
        let bytes = [flow.mtu_bytes, flow.message_bytes];
        let kinds = || way.iter().map(|c| self.kinds[*c as usize]);
        let same = |k: &&Known| {
            k.bytes == bytes
                && k.transport == flow.transport
                && k.way.len() == way.len()
                && k.way.iter().copied().eq(kinds())
        };
        if let Some(known) = self.known.iter().find(same) {
            return known.found;
        }
        let pairs: Vec<(u32, usize)> = way.iter().map(|c| (c / 2, *c as usize % 2)).collect();
        let bounds = formula::bounds(spec, flow, &pairs);
        let found = OneFlow {
            bytes_per_second: formula::least(&bounds).map_or(0.0, |b| b.bytes_per_second),
            latency_ps: formula::latency_ps(spec, flow, &pairs),
        };
        let way = kinds().collect();
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.push(Known {
            bytes,
            transport: flow.transport,
            way,
            found,
        });
        found
    }
}

/// Kinds of cables with their ends that are told apart.
const KINDS_MAX: usize = 256;
/// Ways that are kept.
const KNOWN_MAX: usize = 64;
