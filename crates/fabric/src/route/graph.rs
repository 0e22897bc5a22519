//! Who is behind which port, as flat arrays. Nodes are numbered hosts first, then switches.

use std::collections::VecDeque;

use crate::route::number;
use crate::spec::{FabricSpec, Place, SpecError, at};

/// A fabric's ports and what they lead to.
///
/// Ports of a node are numbered from 0 in the order in which links name it. Channel `link * 2 + way` is a
/// link's direction: way 0 leads from its first end.
#[derive(Clone, Debug)]
pub struct Graph {
    hosts: usize,
    /// Where a node's ports begin in `ports`; one more at the end.
    start: Vec<u32>,
    /// Node at the other end, and the channel that leads there.
    ports: Vec<(u32, u32)>,
    /// Switch of each host; [`NONE`] for a host joined to a host.
    home: Vec<u32>,
    /// Port of its switch that leads to each host.
    seat: Vec<u8>,
    /// Nodes that each channel joins.
    ends: Vec<(u32, u32)>,
}

impl Graph {
    /// Of a checked fabric.
    ///
    /// # Panics
    /// When a link names a part that is not there.
    pub fn new(spec: &FabricSpec) -> Self {
        let nodes = spec.hosts.len() + spec.switches.len();
        let mut start = vec![0_u32; nodes + 1];
        for end in spec.links.iter().flat_map(|link| link.ends) {
            start[number(spec, end) + 1] += 1;
        }
        for node in 0..nodes {
            start[node + 1] += start[node];
        }
        let mut next = start.clone();
        let mut ports = vec![(NONE, NONE); spec.links.len() * 2];
        let mut home = vec![NONE; spec.hosts.len()];
        let mut seat = vec![u8::MAX; spec.hosts.len()];
        let mut ends = Vec::with_capacity(spec.links.len() * 2);
        let hosts = spec.hosts.len();
        for (link, of) in (0_u32..).zip(&spec.links) {
            let [a, b] = of.ends.map(|end| number(spec, end));
            for (way, from, to) in [(0, a, b), (1, b, a)] {
                if to < hosts && from >= hosts {
                    home[to] = small(from - hosts);
                    seat[to] = u8::try_from(next[from] - start[from]).unwrap_or(u8::MAX);
                }
                ends.push((small(from), small(to)));
                ports[next[from] as usize] = (small(to), link * 2 + way);
                next[from] += 1;
            }
        }
        Self {
            hosts,
            start,
            ports,
            home,
            seat,
            ends,
        }
    }

    /// Number of hosts.
    pub const fn hosts(&self) -> usize {
        self.hosts
    }

    /// Number of switches.
    pub const fn switches(&self) -> usize {
        self.start.len() - 1 - self.hosts
    }

    /// Number of channels.
    pub const fn channels(&self) -> usize {
        self.ports.len()
    }

    /// Ports in use at a node.
    ///
    /// # Panics
    /// When there is no such node; so do the others.
    #[inline]
    pub fn ports(&self, node: usize) -> usize {
        (self.start[node + 1] - self.start[node]) as usize
    }

    /// The node behind a port, and the channel to it.
    #[inline]
    pub fn port(&self, node: usize, port: usize) -> (u32, u32) {
        self.ports[self.start[node] as usize + port]
    }

    /// The nodes that a channel leads from and to.
    #[inline]
    pub fn ends(&self, channel: u32) -> (u32, u32) {
        self.ends[channel as usize]
    }

    /// All ports of a node in order.
    #[inline]
    pub fn all(&self, node: usize) -> &[(u32, u32)] {
        &self.ports[self.start[node] as usize..self.start[node + 1] as usize]
    }

    /// Ports of a switch that lead to switches: port, switch there, channel.
    pub(crate) fn between(&self, switch: usize) -> impl Iterator<Item = (usize, usize, u32)> {
        let hosts = self.hosts;
        let all = self.all(hosts + switch).iter().enumerate();
        all.filter_map(move |(port, (to, channel))| {
            let to = (*to as usize).checked_sub(hosts)?;
            Some((port, to, *channel))
        })
    }

    /// Switch of a host; `None` for one joined to a host.
    pub fn home(&self, host: u32) -> Option<u32> {
        let home = self.home[host as usize];
        (home != NONE).then_some(home)
    }

    pub(crate) fn homes(&self) -> &[u32] {
        &self.home
    }

    /// Port of its switch that leads to a host.
    pub(crate) fn seat(&self, host: usize) -> u8 {
        self.seat[host]
    }

    /// Switches with hosts, in order, each with its hosts in the order of their ports.
    pub(crate) fn leaves(&self) -> Vec<(usize, Vec<usize>)> {
        let mut hosts: Vec<usize> = (0..self.hosts).filter(|h| self.home[*h] != NONE).collect();
        hosts.sort_by_key(|h| (self.home[*h], self.seat[*h]));
        let mut found: Vec<(usize, Vec<usize>)> = Vec::new();
        for host in hosts {
            let home = self.home[host] as usize;
            match found.last_mut() {
                Some((leaf, of)) if *leaf == home => of.push(host),
                _ => found.push((home, vec![host])),
            }
        }
        found
    }

    /// Hops between switches from each to one; `u32::MAX` where there is no way.
    pub(crate) fn distances(&self, to: usize, hops: &mut Vec<u32>) {
        hops.clear();
        hops.resize(self.switches(), u32::MAX);
        hops[to] = 0;
        let mut next = VecDeque::from([to]);
        while let Some(switch) = next.pop_front() {
            for (_, there, _) in self.between(switch) {
                if hops[there] == u32::MAX {
                    hops[there] = hops[switch] + 1;
                    next.push_back(there);
                }
            }
        }
    }

    /// # Errors
    /// The first host that has no way to host 0.
    pub(crate) fn check_connected(&self) -> Result<(), SpecError> {
        let lost = |n: usize, to: usize| {
            Err(at(
                Place::Host(small(n)),
                format!("there is no way from here to host {to}"),
            ))
        };
        let Some(first) = self.home.first() else {
            return Ok(());
        };
        if *first == NONE {
            // Joined to a host, which then is the only other one that it can reach.
            let other = self.port(0, 0).0 as usize;
            let lost_host = (1..self.hosts).find(|n| *n != other);
            return lost_host.map_or(Ok(()), |n| lost(n, 0));
        }
        let mut hops = Vec::new();
        self.distances(*first as usize, &mut hops);
        for (n, home) in self.home.iter().enumerate() {
            if hops.get(*home as usize).is_none_or(|h| *h == u32::MAX) {
                return lost(n, 0);
            }
        }
        Ok(())
    }
}

/// Numbers are bounded by what a specification may hold.
pub(crate) fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(NONE)
}

/// No switch.
pub(crate) const NONE: u32 = u32::MAX;
