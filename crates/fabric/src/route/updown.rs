//! Up first, then down: ways without cycles on any topology.
//!
//! Every cable has an upper end: the switch nearer to a root, of equally near ones that with the lower number. A way
//! goes up any number of cables, then down, and never up again (M. Schroeder et al., "Autonet: a high-speed,
//! self-configuring local area network using point-to-point links", IEEE JSAC 9(8), 1991). A table knows a packet's
//! destination only, so that a switch that can go down does, also where going up first would be as short.
//!
//! **Roots** are the switches from which the farthest host is the fewest hops away: the top of a tree, the
//! middle of anything else. OpenSM's `updn` finds them by a histogram of such hops, which for regular trees gives the
//! same. Where they do not lead to all hosts downwards, the first of them is the only root.

use crate::route::graph::{Graph, NONE, small};
use crate::route::{Manager, minimal, whole};
use crate::spec::SpecError;

/// Which end of a cable is up.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Switches from the top.
    pub(super) down: Vec<u32>,
    /// Place of each switch in it; a cable's upper end has the lower one.
    place: Vec<u32>,
}

/// Legal hops towards one switch.
#[derive(Clone, Debug, Default)]
pub(super) struct Legal {
    /// Of each switch, by going down only; [`NONE`] where it cannot.
    pub(super) down: Vec<u32>,
    /// Of each switch, by legal ways that go down where they can.
    pub(super) all: Vec<u32>,
}

impl Order {
    /// By the manager's roots, or those found.
    pub(super) fn new(graph: &Graph, manager: &Manager) -> Result<Self, SpecError> {
        let leaves = graph.leaves();
        let mut legal = Legal::default();
        let mut whole_tree = |order: &Self| {
            leaves.iter().all(|(leaf, _)| {
                legal.find(graph, order, *leaf);
                leaves.iter().all(|(from, _)| legal.all[*from] != NONE)
            })
        };
        if manager.roots.is_empty() {
            let roots = roots(graph, &leaves);
            let order = Self::of(graph, &roots);
            if whole_tree(&order) {
                return Ok(order);
            }
            return Ok(Self::of(graph, &roots[..1]));
        }
        if let Some(root) = manager
            .roots
            .iter()
            .find(|r| **r as usize >= graph.switches())
        {
            let last = graph.switches().saturating_sub(1);
            return whole(format!("root {root}: switches are numbered 0 to {last}"));
        }
        let order = Self::of(graph, &manager.roots);
        match whole_tree(&order) {
            true => Ok(order),
            false => whole("the roots given do not lead down to every host"),
        }
    }

    fn of(graph: &Graph, roots: &[u32]) -> Self {
        let mut rank = vec![u32::MAX; graph.switches()];
        let mut level: Vec<usize> = roots.iter().map(|r| *r as usize).collect();
        let mut depth = 0;
        while !level.is_empty() {
            level.retain(|s| rank[*s] == u32::MAX);
            for switch in &level {
                rank[*switch] = depth;
            }
            let below = level
                .iter()
                .flat_map(|s| graph.between(*s).map(|(_, to, _)| to));
            let mut below: Vec<usize> = below.filter(|to| rank[*to] == u32::MAX).collect();
            below.sort_unstable();
            below.dedup();
            level = below;
            depth += 1;
        }
        let mut down: Vec<u32> = (0..small(graph.switches())).collect();
        down.sort_by_key(|s| (rank[*s as usize], *s));
        let mut place = vec![0; down.len()];
        for (n, switch) in (0..).zip(&down) {
            place[*switch as usize] = n;
        }
        Self { down, place }
    }

    /// True when a cable from one switch to another goes up.
    pub(super) fn is_up(&self, from: usize, to: usize) -> bool {
        self.place[to] < self.place[from]
    }
}

/// Switches from which the farthest host is nearest.
fn roots(graph: &Graph, leaves: &[(usize, Vec<usize>)]) -> Vec<u32> {
    let mut far = vec![0_u32; graph.switches()];
    let mut hops = Vec::new();
    for (leaf, _) in leaves {
        graph.distances(*leaf, &mut hops);
        for (far, hops) in far.iter_mut().zip(&hops) {
            *far = (*far).max(*hops);
        }
    }
    let least = far.iter().min().copied().unwrap_or(0);
    (0..)
        .zip(&far)
        .filter(|(_, f)| **f == least)
        .map(|(n, _)| n)
        .collect()
}

impl Legal {
    /// Of all switches towards `to`.
    pub(super) fn find(&mut self, graph: &Graph, order: &Order, to: usize) {
        self.down.clear();
        self.down.resize(graph.switches(), NONE);
        self.down[to] = 0;
        let mut next = std::collections::VecDeque::from([to]);
        while let Some(switch) = next.pop_front() {
            for (_, above, _) in graph.between(switch) {
                if order.is_up(switch, above) && self.down[above] == NONE {
                    self.down[above] = self.down[switch] + 1;
                    next.push_back(above);
                }
            }
        }
        self.all.clone_from(&self.down);
        // Whoever is above comes first.
        for switch in &order.down {
            let switch = *switch as usize;
            if self.down[switch] == NONE {
                let up = graph.between(switch).filter(|b| order.is_up(switch, b.1));
                let least = up.map(|(_, above, _)| self.all[above]).min();
                self.all[switch] = least.map_or(NONE, |hops| hops.saturating_add(1));
            }
        }
    }

    /// Ports of a switch on its shortest legal ways, as bits.
    pub(super) fn ports(&self, graph: &Graph, order: &Order, switch: usize) -> u64 {
        let here = self.all[switch];
        if here == NONE {
            return 0;
        }
        let goes_down = self.down[switch] != NONE;
        let fine = |to: usize| match goes_down {
            true => self.down[to] < here && !order.is_up(switch, to),
            false => self.all[to] < here && order.is_up(switch, to),
        };
        let ports = graph.between(switch).filter(|(_, to, _)| fine(*to));
        ports.fold(0, |mask, (port, _, _)| mask | 1 << port)
    }
}

/// Tables of `updn`.
pub(super) fn counted(graph: &Graph, manager: &Manager) -> Result<Vec<u8>, SpecError> {
    let order = Order::new(graph, manager)?;
    let mut legal = Legal::default();
    Ok(minimal::spread(graph, manager, |to, masks| {
        legal.find(graph, &order, to);
        masks.clear();
        masks.extend((0..graph.switches()).map(|s| legal.ports(graph, &order, s)));
    }))
}
