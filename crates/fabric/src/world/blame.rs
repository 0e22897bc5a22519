//! Who made whom wait: the sums behind congestion trees, and the cycle of a deadlock.
//!
//! An output without credits waits for room that a packet holds in the far buffer. If that packet had to wait there itself,
//! the output that it left by is what the wait is charged to: room that comes back says so. Followed from output
//! to output this ends at the root of a congestion tree (an output that is busy all the time), or comes back to where
//! it began: a cyclic wait, which nothing ends (W. Dally, C. Seitz, "Deadlock-free message routing in multiprocessor
//! interconnection networks", IEEE Trans. Comp. C-36(5), 1987).

use std::collections::BTreeMap;

use super::{NONE, World, count};

/// An output that waited for credits, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitsFor {
    /// For packets that held the far buffer and waited there for this link and way.
    Channel(u32, usize),
    /// What held the far buffer did not wait there: the cable or the buffer is at fault, no other traffic.
    RoundTrip,
}

/// How long one output waited for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blame {
    /// Link and way of the output that waited.
    pub waiting: (u32, usize),
    /// What for.
    pub on: WaitsFor,
    /// How long in all, summed over lanes.
    pub time_ps: u64,
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
    /// Buffers that wait for each other in turn, each for the next and the last for the first: link, way and lane.
    /// Empty when no deadlock but a fault of the flows is the reason.
    pub cycle: Vec<(u32, usize, u8)>,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "deadlock: {} flows cannot end; {} outputs wait for each other's buffers",
            self.flows.len(),
            self.waiting.len()
        )?;
        for (n, (link, way, lane)) in self.cycle.iter().enumerate() {
            let before = if n == 0 { ": " } else { ", then " };
            write!(f, "{before}link {link} way {way} lane {lane}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Stuck {}

impl World {
    /// Outputs that waited for credits and what for, longest first.
    pub fn blames(&self) -> Vec<Blame> {
        let mut sums = self.blame.clone();
        for (n, credit) in self.credits.iter().enumerate() {
            let channel = count(n / self.lanes as usize);
            *sums.entry((channel, credit.blamed)).or_default() += credit.blamed_ps;
        }
        let mut all: Vec<Blame> = sums
            .iter()
            .filter(|(_, time_ps)| **time_ps > 0)
            .map(|((channel, on), time_ps)| Blame {
                waiting: way_of(*channel),
                on: match *on {
                    NONE => WaitsFor::RoundTrip,
                    on => {
                        let (link, way) = way_of(on);
                        WaitsFor::Channel(link, way)
                    }
                },
                time_ps: *time_ps,
            })
            .collect();
        all.sort_by(|a, b| b.time_ps.cmp(&a.time_ps).then(a.waiting.cmp(&b.waiting)));
        all
    }

    pub(super) fn stuck(&self, flows: Vec<u32>) -> Stuck {
        let lanes = self.lanes as usize;
        let starved: Vec<usize> = (0..self.credits.len())
            .filter(|n| self.credits[*n].starved)
            .collect();
        let mut waiting: Vec<(u32, usize)> =
            starved.iter().map(|n| way_of(count(n / lanes))).collect();
        waiting.dedup();
        Stuck {
            at_ps: self.now_ps,
            flows,
            waiting,
            cycle: self.cycle(&starved),
        }
    }

    /// The first cycle of starved outputs, from its lowest on.
    fn cycle(&self, starved: &[usize]) -> Vec<(u32, usize, u8)> {
        let lanes = self.lanes as usize;
        let waits = self.waits();
        let mut state: BTreeMap<usize, bool> = BTreeMap::new();
        for first in starved {
            // Depth first; what is on the path is `false`, what is done `true`.
            let mut path: Vec<(usize, usize)> = Vec::new();
            if state.contains_key(first) {
                continue;
            }
            state.insert(*first, false);
            path.push((*first, 0));
            while let Some((at, turn)) = path.last_mut() {
                let next = waits.get(at).and_then(|n| n.get(*turn)).copied();
                *turn += 1;
                let Some(next) = next else {
                    state.insert(*at, true);
                    path.pop();
                    continue;
                };
                if !self.credits[next].starved {
                    continue;
                }
                match state.get(&next) {
                    Some(true) => {}
                    Some(false) => {
                        let from = path.iter().position(|(n, _)| *n == next).unwrap_or(0);
                        let mut cycle: Vec<usize> = path[from..].iter().map(|(n, _)| *n).collect();
                        let least = (0..cycle.len()).min_by_key(|n| cycle[*n]).unwrap_or(0);
                        cycle.rotate_left(least);
                        let named = |n: usize| {
                            let (link, way) = way_of(count(n / lanes));
                            (link, way, u8::try_from(n % lanes).unwrap_or(u8::MAX))
                        };
                        return cycle.into_iter().map(named).collect();
                    }
                    None => {
                        state.insert(next, false);
                        path.push((next, 0));
                    }
                }
            }
        }
        Vec::new()
    }

    /// For each buffer with packets, the outputs (by channel and lane) for which it waits.
    fn waits(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for input in &self.inputs {
            let mut at = input.head;
            while at != NONE {
                let p = &self.packets.all[at as usize];
                let head = &self.packets.all[input.head as usize];
                if p.came != NONE {
                    let outs = found.entry(p.came as usize).or_default();
                    let out = self.room(head.out, head.lane);
                    if !outs.contains(&out) {
                        outs.push(out);
                    }
                }
                at = p.next;
            }
        }
        found
    }
}

const fn way_of(channel: u32) -> (u32, usize) {
    (channel / 2, channel as usize % 2)
}
