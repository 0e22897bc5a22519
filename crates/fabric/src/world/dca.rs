//! Dynamic congestion avoidance: edge switches probe paths to each other and move single flows to faster ones.
//!
//! For each pair of edge switches that has flows, some of the paths are probed every period: the source sends a packet
//! of 64 bytes on each path, the far edge answers with the time that it took **by both clocks**, which are not
//! synchronised: what it says is off by the difference of the clocks, the same for all paths of the pair, and only
//! differences between paths are used. A path's estimate is the mean of its last few probes.
//!
//! When all probes of a period are answered, a pair may move one flow: the one whose path is slowest, if that is slower
//! than the fastest sampled one by more than the threshold, and the flow has not moved within the hold time. If the
//! fastest one is not idle, it would but push another flow aside: then it waits, and now and then changes places with
//! a flow of the same edge to another one, if the two new paths have no queue to speak of and are faster than the two
//! old ones by more than the threshold. Where there is none it moves all the same. Of equally fast paths one is drawn.
//! An uplink that a flow was moved to counts as unknown to its edge until a probe sent later has measured it, so that
//! its pairs do not all choose the same. A path whose probe has no answer after a while counts as failed until one
//! comes.
//!
//! A flow begins on the uplink of its edge that has the fewest flows, of several on a drawn one.
//!
//! Probes are packets as others: they wait in queues, take credits and wire time. They begin at the edge switch, on
//! lane 0, and do not pass the host's link. Acknowledgments take paths by hash.
//!
//! Source: descriptions of vSCALE (US patents 8,223,634, 8,339,987 and 8,331,227); the rule for moving is our own.

use super::select::{Select, mix, nth};
use super::{NONE, PROBED, Packet, TICK, World, count};
use crate::selection::Dca;
use crate::spec::{FabricSpec, Place, SpecError, at};

/// What edge switches know of paths and flows.
#[derive(Clone, Debug)]
pub(super) struct Avoidance {
    rule: Dca,
    /// By source and destination edge.
    pairs: Vec<Pair>,
    /// By edge.
    clock_ps: Vec<i64>,
    /// By edge and first port: when a flow was moved there.
    claimed_ps: Vec<u64>,
    /// By flow.
    flows: Vec<Steered>,
    last_start_ps: u64,
    stats: Avoided,
    moves: Vec<Move>,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    paths: Vec<Path>,
    flows: Vec<u32>,
    /// Shortest time ever measured.
    floor_ps: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    /// Which port at each chip with several, as digits.
    digits: u32,
    first_port: u8,
    /// When the probe was sent that has no answer yet; zero: none.
    sent_ps: u64,
    /// Its number: an answer that comes after it was given up is none.
    probe: u32,
    /// What the far edge measured for it.
    measured_ps: i64,
    /// By both clocks, the newest first.
    samples_ps: [i64; Dca::SAMPLES],
    sampled: u8,
    /// When the last answered probe was sent.
    newest_ps: u64,
    failed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Steered {
    pair: u32,
    path: u16,
    seen_ps: u64,
    /// When it may move next.
    may_ps: u64,
}

/// Two flows with their new paths.
type Both = [(u32, u16); 2];

/// What congestion avoidance did and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Avoided {
    /// Probes sent.
    pub probes: u64,
    /// Answers that came back.
    pub answers: u64,
    /// Probes that had none in time.
    pub lost: u64,
    /// Wire time of probes and answers, of all links together.
    pub wire_ps: u64,
    /// Flows moved.
    pub moves: u64,
}

/// A flow moved to another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// When.
    pub at_ps: u64,
    /// Number of the flow.
    pub flow: u32,
    /// Paths, by their number among those sampled between its edges.
    pub from: u16,
    /// The new one.
    pub to: u16,
    /// By how much that one was faster, of two flows that changed places both together; `None`: the old one had failed.
    pub gain_ps: Option<u64>,
}

impl Path {
    /// Mean of the last probes.
    fn estimate_ps(&self) -> Option<i64> {
        let known = &self.samples_ps[..usize::from(self.sampled)];
        let all = i64::from(self.sampled);
        // Each part by itself: sums of samples far off zero would not fit.
        let whole: i64 = known.iter().map(|s| s.div_euclid(all)).sum();
        let rest: i64 = known.iter().map(|s| s.rem_euclid(all)).sum();
        (all > 0).then(|| whole + rest.div_euclid(all))
    }
}

impl Steered {
    /// It sends, and has not moved within the hold time.
    const fn may_move(&self, since_ps: u64, now_ps: u64) -> bool {
        self.seen_ps >= since_ps && self.seen_ps > 0 && self.may_ps <= now_ps
    }
}

impl Avoidance {
    /// A path's estimate, if it was measured after the last flow was moved to its first link.
    fn known_ps(&self, edge: usize, path: &Path) -> Option<i64> {
        let claimed = self.claimed_ps[edge * 64 + usize::from(path.first_port)];
        let fresh = !path.failed && path.newest_ps > claimed;
        fresh.then(|| path.estimate_ps()).flatten()
    }

    /// The fastest known path of a pair by a first link.
    fn fastest_by(&self, edge: usize, pair: &Pair, port: u8) -> Option<(i64, u16)> {
        let paths = (0..).zip(&pair.paths).filter(|(_, p)| p.first_port == port);
        paths
            .filter_map(|(n, p)| Some((self.known_ps(edge, p)?, n)))
            .min()
    }

    /// The flow of the same edge to another one that a flow best changes its uplink with: what both gain together,
    /// and both with their new paths.
    fn exchange(&self, flow: u32, edge: usize, since_ps: u64, now_ps: u64) -> Option<(u64, Both)> {
        let own = &self.flows[flow as usize];
        let here = &self.pairs[own.pair as usize];
        let from = &here.paths[usize::from(own.path)];
        let own_ps = from.estimate_ps()?;
        let edges = self.clock_ps.len();
        let mut best: Option<(i64, u64, Both)> = None;
        for pair in &self.pairs[edge * edges..][..edges] {
            for other in &pair.flows {
                let its = &self.flows[*other as usize];
                let its_from = &pair.paths[usize::from(its.path)];
                if its.pair == own.pair
                    || !its.may_move(since_ps, now_ps)
                    || its_from.first_port == from.first_port
                {
                    continue;
                }
                let new = self.fastest_by(edge, here, its_from.first_port);
                let its_new = self.fastest_by(edge, pair, from.first_port);
                let (Some(new), Some(its_new), Some(its_ps)) =
                    (new, its_new, its_from.estimate_ps())
                else {
                    continue;
                };
                // Each pair's clocks are off by as much before and after.
                let gain = (own_ps - new.0) + (its_ps - its_new.0);
                let gain = u64::try_from(gain).unwrap_or(0);
                // Above idle, both together: neither of them has a queue to speak of.
                let over = new.0 - here.floor_ps? + its_new.0 - pair.floor_ps?;
                if gain > self.rule.threshold_ps
                    && u64::try_from(over).unwrap_or(0) < self.rule.threshold_ps
                    && best.is_none_or(|(least, ..)| over < least)
                {
                    best = Some((over, gain, [(flow, new.1), (*other, its_new.1)]));
                }
            }
        }
        best.map(|(_, gain, both)| (gain, both))
    }

    fn move_to(&mut self, edge: usize, number: u32, to: u16, gain_ps: Option<u64>, now_ps: u64) {
        let flow = &mut self.flows[number as usize];
        let path = &self.pairs[flow.pair as usize].paths[usize::from(to)];
        self.claimed_ps[edge * 64 + usize::from(path.first_port)] = now_ps;
        self.moves.push(Move {
            at_ps: now_ps,
            flow: number,
            from: flow.path,
            to,
            gain_ps,
        });
        flow.path = to;
        flow.may_ps = now_ps + self.rule.hold_ps;
        self.stats.moves += 1;
    }
}

impl World {
    /// Prepares probing between all edges that have flows.
    pub(super) fn add_avoidance(&mut self, spec: &FabricSpec, rule: Dca) -> Result<(), SpecError> {
        if let Some(n) = spec.switches.iter().position(|s| s.ports > 63) {
            let problem = "probes need one of a chip's 64 requests; expected at most 63 ports";
            return Err(at(Place::Switch(count(n)), problem));
        }
        let edges = self.select.edges.len();
        let span = i128::from(rule.clock_offset_max_ps) * 2 + 1;
        let clock = |edge: usize| {
            let drawn = i128::from(mix(self.seed ^ mix(edge as u64 ^ CLOCKS))) % span;
            i64::try_from(drawn - i128::from(rule.clock_offset_max_ps)).unwrap_or(0)
        };
        let mut made = Avoidance {
            rule,
            pairs: vec![Pair::default(); edges * edges],
            clock_ps: (0..edges).map(clock).collect(),
            claimed_ps: vec![0; edges * 64],
            flows: Vec::new(),
            last_start_ps: 0,
            stats: Avoided::default(),
            moves: Vec::new(),
        };
        let mut began = vec![0_u32; edges * 64];
        for (n, [from, to]) in (0..).zip(self.ends.iter()) {
            let [from, to] = [from, to].map(|h| self.select.edge_of[*h as usize] as usize);
            let pair = from * edges + to;
            let mut steered = Steered {
                pair: count(pair),
                path: 0,
                seen_ps: 0,
                may_ps: 0,
            };
            if from != to {
                for pair in [pair, to * edges + from] {
                    if made.pairs[pair].paths.is_empty() {
                        made.pairs[pair].paths =
                            self.select.sampled_paths(pair, rule.paths, self.seed);
                    }
                }
                made.pairs[pair].flows.push(n);
                let used = &mut began[from * 64..][..64];
                let load = |p: &Path| used[usize::from(p.first_port)];
                let paths = &made.pairs[pair].paths;
                let least = paths.iter().map(load).min().unwrap_or(0);
                let free = (0..64).zip(paths).filter(|(_, p)| load(p) == least);
                let free = free.fold(0, |set, (n, _)| set | 1 << n);
                let path = nth(free, mix(self.seed ^ mix(u64::from(n) ^ FLOWS)));
                used[usize::from(paths[usize::from(path)].first_port)] += 1;
                steered.path = u16::from(path);
            }
            made.flows.push(steered);
            let start = self.flows[n as usize].spec.start_ps;
            made.last_start_ps = made.last_start_ps.max(start);
        }
        for (n, pair) in (0..).zip(&made.pairs) {
            // One path only: nothing to choose.
            if !pair.flows.is_empty() && pair.paths.len() > 1 {
                let phase = mix(self.seed ^ mix(u64::from(n) ^ PHASES)) % rule.period_ps;
                self.post(phase, TICK, n, 0);
            }
        }
        self.avoidance = Some(Box::new(made));
        Ok(())
    }

    /// What congestion avoidance did; all zero without it.
    pub fn avoided(&self) -> Avoided {
        self.avoidance
            .as_ref()
            .map_or_else(Avoided::default, |a| a.stats)
    }

    /// Flows moved by congestion avoidance, in the order of time.
    pub fn moves(&self) -> &[Move] {
        self.avoidance.as_ref().map_or(&[], |a| &a.moves)
    }

    /// Digits of the path that a flow's packet takes from its edge on.
    pub(super) fn steer(&mut self, flow: u32) -> u32 {
        let now = self.now_ps;
        let Some(all) = &mut self.avoidance else {
            return 0;
        };
        let flow = &mut all.flows[flow as usize];
        flow.seen_ps = now;
        let paths = &all.pairs[flow.pair as usize].paths;
        paths.get(usize::from(flow.path)).map_or(0, |p| p.digits)
    }

    /// Digits of the path back of a flow's acknowledgments: that of the same number, whose probe was answered by it.
    pub(super) fn steer_back(&self, flow: u32) -> u32 {
        let Some(all) = &self.avoidance else { return 0 };
        let edges = self.select.edges.len();
        let flow = &all.flows[flow as usize];
        let (from, to) = (flow.pair as usize / edges, flow.pair as usize % edges);
        let paths = &all.pairs[to * edges + from].paths;
        let path = usize::from(flow.path) % paths.len().max(1);
        paths.get(path).map_or(0, |p| p.digits)
    }

    /// A pair's period is over: it may move a flow, and probes again.
    pub(super) fn tick(&mut self, pair: u32) {
        let now = self.now_ps;
        let Some(all) = &self.avoidance else { return };
        let period = all.rule.period_ps;
        let done = |n: &u32| {
            let flow = &self.flows[*n as usize];
            flow.info.messages_arrived >= flow.spec.messages || flow.info.broken
        };
        // A sender on a path that failed is silent until its timer runs out.
        let fails = self.faults.is_some();
        let silence = IDLE_MAX_PS
            + if fails {
                self.retry_ps().unwrap_or(0)
            } else {
                0
            };
        // Who waits for another may pause after it as long as any.
        let silence = match self.followers.is_empty() {
            true => silence,
            false => silence + all.last_start_ps,
        };
        let idle = now.saturating_sub(self.data_ps.max(all.last_start_ps));
        if all.pairs[pair as usize].flows.iter().all(done) || idle > silence + 10 * period {
            return;
        }
        let since = now.saturating_sub(2 * period);
        let seen = |n: &u32| all.flows[*n as usize].seen_ps;
        let active = |n: &u32| seen(n) > 0 && seen(n) >= since && !done(n);
        let active = all.pairs[pair as usize].flows.iter().any(active);
        self.post(now + period, TICK, pair, 0);
        if !active && !fails {
            return;
        }
        let failed = self.note_failed(pair);
        if fails {
            self.flee(pair);
        } else if failed {
            self.move_one(pair, since);
        }
        for path in 0..self.paths_of(pair) {
            self.probe(pair, path);
        }
    }

    fn paths_of(&self, pair: u32) -> u16 {
        let paths = |a: &Avoidance| a.pairs[pair as usize].paths.len();
        let paths = self.avoidance.as_deref().map_or(0, paths);
        u16::try_from(paths).unwrap_or(u16::MAX)
    }

    /// Probes without an answer for too long; whether there are any.
    fn note_failed(&mut self, pair: u32) -> bool {
        let now = self.now_ps;
        let Some(all) = &mut self.avoidance else {
            return false;
        };
        let mut any = false;
        for path in &mut all.pairs[pair as usize].paths {
            if path.sent_ps > 0 && now - path.sent_ps > all.rule.lost_after_ps {
                path.sent_ps = 0;
                path.failed = true;
                path.sampled = 0;
                all.stats.lost += 1;
                any = true;
            }
        }
        any
    }

    /// Moves all flows of a pair off paths that failed: each to the uplink of its edge with the fewest flows, of several
    /// by the fastest path. Whether they send does not matter, nor when they moved last.
    fn flee(&mut self, pair: u32) {
        let now = self.now_ps;
        let edges = self.select.edges.len();
        let edge = pair as usize / edges;
        let Some(all) = &mut self.avoidance else {
            return;
        };
        for n in all.pairs[pair as usize].flows.clone() {
            let of = &self.flows[n as usize];
            let done = of.info.messages_arrived >= of.spec.messages || of.info.broken;
            let here = &all.pairs[pair as usize];
            let own = usize::from(all.flows[n as usize].path);
            if done || !here.paths[own].failed {
                continue;
            }
            let load = |port: u8| {
                let pairs = all.pairs[edge * edges..][..edges].iter();
                let flows = pairs.flat_map(|p| p.flows.iter().map(move |n| (p, *n)));
                let on = |(p, n): &(&Pair, u32)| {
                    let path = usize::from(all.flows[*n as usize].path);
                    p.paths.get(path).is_some_and(|p| p.first_port == port)
                };
                flows.filter(on).count()
            };
            let best = (0_u16..).zip(&here.paths).filter(|(_, p)| !p.failed);
            let best = best.filter_map(|(n, p)| Some((load(p.first_port), p.estimate_ps()?, n)));
            if let Some((_, _, to)) = best.min() {
                all.move_to(edge, n, to, None, now);
            }
        }
    }

    /// Moves the flow that gains most, if one gains enough.
    fn move_one(&mut self, pair: u32, since_ps: u64) {
        let now = self.now_ps;
        let edges = self.select.edges.len();
        let edge = pair as usize / edges;
        let draw = self.select.draw(self.select.edges[edge] as usize);
        let Some(all) = &mut self.avoidance else {
            return;
        };
        let here = &all.pairs[pair as usize];
        let known = |p: &Path| all.known_ps(edge, p);
        let Some(best) = here.paths.iter().filter_map(known).min() else {
            return;
        };
        let good: u64 = (0..64)
            .zip(&here.paths)
            .filter(|(_, p)| known(p).is_some_and(|e| e == best))
            .fold(0, |set, (n, _)| set | 1 << n);
        let target = nth(good, draw);
        let mut chosen: Option<(u64, u32)> = None;
        for n in &here.flows {
            let flow = &all.flows[*n as usize];
            if !flow.may_move(since_ps, now) {
                continue;
            }
            let path = &here.paths[usize::from(flow.path)];
            let gain = match path.estimate_ps() {
                _ if path.failed => u64::MAX,
                Some(own) => u64::try_from(own - best).unwrap_or(0),
                None => 0,
            };
            if gain > all.rule.threshold_ps && chosen.is_none_or(|(most, _)| gain > most) {
                chosen = Some((gain, *n));
            }
        }
        let Some((gain, n)) = chosen else { return };
        let gain = (gain != u64::MAX).then_some(gain);
        let idle = here
            .floor_ps
            .is_some_and(|floor| best <= floor.saturating_add_unsigned(all.rule.idle_ps));
        if !idle && gain.is_some() {
            if (draw >> 32) % 256 >= u64::from(all.rule.venture) {
                return;
            }
            if let Some((gain, both)) = all.exchange(n, edge, since_ps, now) {
                for (flow, path) in both {
                    all.move_to(edge, flow, path, Some(gain), now);
                }
                return;
            }
        }
        all.move_to(edge, n, u16::from(target), gain, now);
    }

    /// Sends a probe on a path that has none on its way.
    fn probe(&mut self, pair: u32, path: u16) {
        let now = self.now_ps;
        let Some(all) = &mut self.avoidance else {
            return;
        };
        let state = &mut all.pairs[pair as usize].paths[usize::from(path)];
        if state.sent_ps > 0 {
            return;
        }
        state.sent_ps = now.max(1);
        state.probe = (state.probe + 1) % PROBE_NUMBERS;
        let (digits, number) = (state.digits, state.probe);
        all.stats.probes += 1;
        self.send_probe(
            pair,
            pair,
            number << 8 | u32::from(path),
            digits,
            Probe::Ask,
        );
    }

    /// From the source of pair `way` to its destination.
    fn send_probe(&mut self, way: u32, pair: u32, number: u32, digits: u32, probe: Probe) {
        let edges = self.select.edges.len();
        let chip = self.select.edges[way as usize / edges] as usize;
        let node = count(self.select.hosts + chip);
        let place = self.nodes[node as usize].control;
        let packet = self.packets.add(Packet {
            ready_ps: self.now_ps,
            travel_ps: 0,
            flow: pair,
            number,
            next: NONE,
            out: NONE,
            came: NONE,
            choice: digits,
            payload_bytes: 0,
            wire_bytes: PROBE_BYTES + super::hca::short(self.wire_only),
            lane: 0,
            last: true,
            ack: false,
            probe,
        });
        let out = self.choose_for_probe(node, packet);
        self.packets.all[packet as usize].out = out;
        self.append(place, packet);
    }

    /// Edge switch that a probe or answer is for.
    pub(super) fn probe_edge(&self, p: &Packet) -> u32 {
        let edges = count(self.select.edges.len());
        match p.probe {
            Probe::Answer => p.flow / edges,
            _ => p.flow % edges,
        }
    }

    /// A probe or an answer is at its edge switch.
    pub(super) fn probed(&mut self, packet: u32) {
        let p = self.packets.all[packet as usize];
        self.packets.free.push(packet);
        self.give_back(&p, self.now_ps, NONE);
        let now = self.now_ps;
        let edges = count(self.select.edges.len());
        let (from, to) = (p.flow / edges, p.flow % edges);
        let Some(all) = &mut self.avoidance else {
            return;
        };
        let path = u16::try_from(p.number & 0xFF).unwrap_or(0);
        let state = &mut all.pairs[p.flow as usize].paths[usize::from(path)];
        if state.sent_ps == 0 || state.probe != p.number >> 8 {
            return;
        }
        if p.probe == Probe::Ask {
            let clock = |at: u64, edge: u32| {
                i64::try_from(at).unwrap_or(i64::MAX / 2) + all.clock_ps[edge as usize]
            };
            state.measured_ps = clock(now, to) - clock(state.sent_ps, from);
            let back = to * edges + from;
            let others = &all.pairs[back as usize].paths;
            let digits = others
                .get(usize::from(path) % others.len().max(1))
                .map_or(0, |p| p.digits);
            self.send_probe(back, p.flow, p.number, digits, Probe::Answer);
            return;
        }
        state.samples_ps.rotate_right(1);
        state.samples_ps[0] = state.measured_ps;
        state.sampled = (state.sampled + 1).min(all.rule.mean_of);
        state.newest_ps = state.sent_ps;
        state.sent_ps = 0;
        state.failed = false;
        all.stats.answers += 1;
        let here = &mut all.pairs[p.flow as usize];
        let measured = here.paths[usize::from(path)].measured_ps;
        here.floor_ps = Some(here.floor_ps.map_or(measured, |f| f.min(measured)));
        if here.paths.iter().all(|p| p.sent_ps == 0) {
            let since = now.saturating_sub(2 * all.rule.period_ps);
            self.move_one(p.flow, since);
        }
    }

    pub(super) fn note_probe(&mut self, takes: u64) {
        if let Some(all) = &mut self.avoidance {
            all.stats.wire_ps += takes;
        }
    }

    /// Where a probe is at its end, it leaves the fabric.
    pub(super) fn take_probe(&mut self, node: u32, packet: u32, at_ps: u64) -> bool {
        let p = &self.packets.all[packet as usize];
        let edge = self.probe_edge(p);
        let there = self.select.hosts + self.select.edges[edge as usize] as usize;
        if node as usize != there {
            return false;
        }
        self.post(at_ps, PROBED, node, packet);
        true
    }
}

/// Whether a packet is a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Probe {
    /// It is not.
    #[default]
    No,
    Ask,
    Answer,
}

impl Select {
    /// Some of the paths of a pair, drawn; all if there are not more than asked for.
    fn sampled_paths(&self, pair: usize, most: u8, seed: u64) -> Vec<Path> {
        let edges = self.edges.len();
        let (from, to) = (self.edges[pair / edges] as usize, pair % edges);
        let first = self.near[from * edges + to];
        let all = self.path_count(from, to);
        let first_ports = first.count_ones().max(1);
        let mut digits: Vec<u32> = match all <= u32::from(most) {
            true => (0..all).collect(),
            false => {
                // As many first links as can be. Behind the n-th of them it goes on by the n-th cable of several, from
                // whichever edge it comes: paths of one number make a tree, as the VLANs of vSCALE, and none of
                // its cables is left out.
                let start = mix(seed ^ mix(pair as u64)) % u64::from(first_ports);
                let start = u32::try_from(start).unwrap_or(0);
                let rest = (all / first_ports).max(1);
                let path = |n: u32| {
                    let first = (start + n) % first_ports;
                    first + (first + n / first_ports) % rest * first_ports
                };
                (0..u32::from(most)).map(path).collect()
            }
        };
        digits.sort_unstable();
        let made = |digits: u32| Path {
            digits,
            first_port: nth(first, u64::from(digits)),
            sent_ps: 0,
            probe: 0,
            measured_ps: 0,
            samples_ps: [0; Dca::SAMPLES],
            sampled: 0,
            newest_ps: 0,
            failed: false,
        };
        digits.into_iter().map(made).collect()
    }
}

/// Takes the port of a path at a chip off its digits.
pub(super) fn digit(ports: u64, digits: &mut u32) -> u8 {
    let all = ports.count_ones().max(1);
    let port = nth(ports, u64::from(*digits));
    *digits /= all;
    port
}

/// Probes of a path are told apart by numbers of 24 bits.
const PROBE_NUMBERS: u32 = 1 << 24;
/// A probe: the least Ethernet frame.
const PROBE_BYTES: u16 = 64;
/// Without any data packet for so long the fabric is stuck or done.
const IDLE_MAX_PS: u64 = 100_000_000_000;
// Streams of random numbers.
const CLOCKS: u64 = 1 << 32;
const FLOWS: u64 = 2 << 32;
const PHASES: u64 = 3 << 32;
