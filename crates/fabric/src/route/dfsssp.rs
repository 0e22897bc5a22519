//! Shortest paths one destination at a time, each by what was routed before, and lanes that break cycles.
//!
//! J. Domke, T. Hoefler, W. Nagel, "Deadlock-free oblivious routing for arbitrary topologies", IPDPS 2011. Cables begin
//! with a weight so large that no detour is lighter; after each destination, every cable in use gets the number
//! of hosts that send over it. Then all ways are put on lane 0, and while its channel dependency graph has a cycle,
//! the ways of the cycle's weakest edge move to the next lane. Left out: OpenSM's spreading of ways over lanes
//! that were not needed.
//!
//! Since the first weight forces fewest hops, hops and weights are compared one after the other, and a search is
//! a breadth-first one: O(ports) for each destination.

use units::Rng;

use crate::route::deadlock::{Cycle, Edges, Wait};
use crate::route::graph::{Graph, NONE, small};
use crate::route::{Lanes, Manager, NO_WAY, Routes, minimal, whole};
use crate::spec::SpecError;

/// Tables and lanes of DFSSSP; with one lane, those of SSSP.
pub(super) fn routes(graph: &Graph, manager: &Manager, lanes: u8) -> Result<Routes, SpecError> {
    let looks = graph.hosts() as u64 * graph.channels() as u64;
    if looks > LOOKS_MAX {
        return whole(format!(
            "dfsssp weighs {} cables for each of {} hosts, which takes too long; expected a smaller fabric or another routing",
            graph.channels() / 2,
            graph.hosts()
        ));
    }
    let ways = graph.leaves().len() as u64 * graph.hosts() as u64;
    if ways > WALKS_MAX && manager.lanes != Some(1) {
        return too_long();
    }
    let table = table(graph, manager);
    let routes = Routes::of_table(graph, table);
    match manager.lanes == Some(1) {
        true => Ok(routes),
        false => with_lanes(graph, routes, lanes),
    }
}

fn table(graph: &Graph, manager: &Manager) -> Vec<u8> {
    let (hosts, switches) = (graph.hosts(), graph.switches());
    let mut table = vec![NO_WAY; hosts * switches];
    let mut at_switch = vec![0_u64; switches];
    for home in graph.homes().iter().filter(|home| **home != NONE) {
        at_switch[*home as usize] += 1;
    }
    let mut weight = vec![0_u64; graph.channels()];
    let mut path = vec![0_u64; switches];
    let mut through = vec![0_u64; switches];
    let mut hops = Vec::new();
    let mut order: Vec<u32> = Vec::new();
    let mut last = NONE;
    let mut rng = manager.tie_seed.map(Rng::new);
    for host in minimal::lids(graph, manager.lid_seed) {
        let home = graph.homes()[host];
        if home == NONE {
            continue;
        }
        if home != last {
            graph.distances(home as usize, &mut hops);
            order.clear();
            order.extend((0..small(switches)).filter(|s| hops[*s as usize] != u32::MAX));
            order.sort_by_key(|s| hops[*s as usize]);
            last = home;
        }
        table[home as usize * hosts + host] = graph.seat(host);
        path[home as usize] = 0;
        for switch in &order[1..] {
            let switch = *switch as usize;
            let nearer = graph
                .between(switch)
                .filter(|(_, to, _)| hops[*to] < hops[switch]);
            let mut best = (u64::MAX, NO_WAY);
            let mut equal = 0;
            for (port, to, channel) in nearer {
                let sum = path[to] + weight[channel as usize];
                if sum < best.0 {
                    best = (sum, u8::try_from(port).unwrap_or(NO_WAY));
                    equal = 1;
                } else if sum == best.0
                    && let Some(rng) = &mut rng
                {
                    equal += 1;
                    if rng.next_u64().is_multiple_of(equal) {
                        best.1 = u8::try_from(port).unwrap_or(NO_WAY);
                    }
                }
            }
            path[switch] = best.0;
            table[switch * hosts + host] = best.1;
        }
        // From the farthest: hosts behind each switch add up on the way.
        through.copy_from_slice(&at_switch);
        for switch in order[1..].iter().rev() {
            let switch = *switch as usize;
            let port = usize::from(table[switch * hosts + host]);
            let (to, channel) = graph.port(hosts + switch, port);
            weight[channel as usize] += through[switch];
            through[to as usize - hosts] += through[switch];
        }
    }
    table
}

/// Ways of one lane while it is made free of cycles.
struct Layer<'a> {
    graph: &'a Graph,
    table: &'a [u8],
    leaves: &'a [usize],
    /// Lane of each way: leaf's switch * hosts + destination.
    of: Vec<u8>,
    lane: u8,
    /// Ways that may still be followed.
    walks_left: u64,
    /// Ways over each edge, at channel * 64 + port.
    ways: Vec<u32>,
    moved: bool,
}

fn with_lanes(graph: &Graph, routes: Routes, lanes: u8) -> Result<Routes, SpecError> {
    let leaves: Vec<usize> = graph.leaves().iter().map(|(leaf, _)| *leaf).collect();
    let mut layer = Layer {
        graph,
        table: routes.table(),
        leaves: &leaves,
        of: vec![0; graph.hosts() * graph.switches()],
        lane: 0,
        walks_left: WALKS_MAX,
        ways: vec![0; graph.channels() * 64],
        moved: true,
    };
    while layer.moved {
        if layer.lane >= lanes {
            return whole(format!(
                "ways without cycles need more than the {lanes} virtual lanes there are"
            ));
        }
        layer.moved = false;
        if !layer.free() {
            return too_long();
        }
        layer.lane += 1;
    }
    let (of, used) = (layer.of, layer.lane);
    Ok(Routes {
        lanes: match used {
            1 => Lanes::One,
            _ => Lanes::Pair { of, used },
        },
        ..routes
    })
}

impl Layer<'_> {
    /// Moves ways to the next lane until this one has no cycle; false where that takes too long.
    fn free(&mut self) -> bool {
        let mut edges = Edges::new(self.graph, 1, false);
        self.ways.fill(0);
        for leaf in self.leaves {
            for to in 0..self.graph.hosts() {
                if self.of[leaf * self.graph.hosts() + to] != self.lane {
                    continue;
                }
                let ways = &mut self.ways;
                walk(self.graph, self.table, *leaf, to, |channel, port, next| {
                    ways[channel as usize * 64 + port] += 1;
                    edges.add(channel, 0, next);
                });
            }
        }
        self.walks_left = self
            .walks_left
            .saturating_sub(self.leaves.len() as u64 * self.graph.hosts() as u64);
        let mut gone: Vec<(u32, u32)> = Vec::new();
        let graph = self.graph;
        // An edge that lost all its ways stays in the search as one of no weight: it is cut when met.
        let left = edges.cycle(graph, |cycle| {
            let weakest = self.weakest(cycle)?;
            self.cut(weakest, &mut gone).then_some(weakest)
        });
        left.is_none()
    }

    /// The cycle's edge with the fewest ways, the first of equals.
    fn weakest(&self, cycle: &Cycle) -> Option<(Wait, Wait)> {
        let next = cycle.waits.iter().cycle().skip(1);
        let pairs = cycle.waits.iter().zip(next).map(|(a, b)| (*a, *b));
        pairs.min_by_key(|(a, b)| self.ways[self.edge(a.channel, b.channel)])
    }

    fn edge(&self, channel: u32, next: u32) -> usize {
        let (from, _) = self.graph.ends(next);
        let all = self.graph.all(from as usize);
        let port = all.iter().position(|(_, c)| *c == next).unwrap_or(0);
        channel as usize * 64 + port
    }

    /// Moves all ways over an edge to the next lane; false where that takes too long.
    fn cut(&mut self, (a, b): (Wait, Wait), gone: &mut Vec<(u32, u32)>) -> bool {
        let hosts = self.graph.hosts();
        let edge = self.edge(a.channel, b.channel);
        if self.ways[edge] == 0 {
            return true;
        }
        let (from, middle) = self.graph.ends(a.channel);
        let (before, at) = (from as usize - hosts, middle as usize - hosts);
        let [enters, leaves] = [a.channel, b.channel].map(|channel| {
            let (from, _) = self.graph.ends(channel);
            let all = self.graph.all(from as usize);
            all.iter().position(|(_, c)| *c == channel).unwrap_or(0)
        });
        gone.clear();
        for to in 0..hosts {
            let port = |switch: usize| usize::from(self.table[switch * hosts + to]);
            if port(before) != enters || port(at) != leaves {
                continue;
            }
            let Some(left) = self.walks_left.checked_sub(self.leaves.len() as u64) else {
                return false;
            };
            self.walks_left = left;
            for leaf in self.leaves {
                if self.of[leaf * hosts + to] != self.lane {
                    continue;
                }
                let mut over = false;
                walk(self.graph, self.table, *leaf, to, |channel, _, next| {
                    over |= channel == a.channel && next == b.channel;
                });
                if over {
                    gone.push((small(*leaf), small(to)));
                }
            }
        }
        for (leaf, to) in gone.iter() {
            let (leaf, to) = (*leaf as usize, *to as usize);
            self.of[leaf * hosts + to] = self.lane + 1;
            let ways = &mut self.ways;
            walk(self.graph, self.table, leaf, to, |channel, port, _| {
                ways[channel as usize * 64 + port] -= 1;
            });
            self.moved = true;
        }
        true
    }
}

fn too_long<T>() -> Result<T, SpecError> {
    whole(
        "lanes for dfsssp take too long to find on so large a fabric; expected a smaller one or another routing",
    )
}

/// Each pair of channels between switches that a way takes one after the other, with the port between them.
fn walk(
    graph: &Graph,
    table: &[u8],
    leaf: usize,
    to: usize,
    mut step: impl FnMut(u32, usize, u32),
) {
    let hosts = graph.hosts();
    let mut node = hosts + leaf;
    let mut before = NONE;
    while node >= hosts {
        let port = usize::from(table[(node - hosts) * hosts + to]);
        if port >= graph.ports(node) {
            return;
        }
        let (next, channel) = graph.port(node, port);
        // Hosts take what comes: the last cable waits for nobody.
        if (next as usize) < hosts {
            return;
        }
        if before != NONE {
            step(before, port, channel);
        }
        before = channel;
        node = next as usize;
    }
}

/// Cables looked at for tables: some ten seconds.
const LOOKS_MAX: u64 = 4_000_000_000;
/// Ways followed for lanes: some ten seconds.
const WALKS_MAX: u64 = 200_000_000;
