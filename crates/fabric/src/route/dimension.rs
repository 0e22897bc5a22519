//! Dimension order in grids and tori.
//!
//! A packet goes the shorter way round in the first dimension until its coordinate is right there, upwards where both
//! ways are equal, then in the next. Rings wait in a cycle unless some packets change lanes: all that will
//! cross the cable from the last coordinate to the first take the ring's upper lane for all of it, others the lower
//! one, and a packet's lane has a bit for each dimension, so that it never changes (OpenSM's `torus-2QoS` does the same;
//! minimal ways do not close a ring of either kind). Left out: routes around failed parts.

use crate::route::graph::Graph;
use crate::route::{Lanes, Manager, NO_WAY, Routes, whole};
use crate::spec::SpecError;

/// A grid's sizes with the ports of each switch.
struct Grid<'a> {
    sizes: &'a [u32],
    /// Ports of each switch by dimension and way (up, down), as bits.
    ports: Vec<[[u64; 2]; DIMENSIONS_MAX]>,
}

impl<'a> Grid<'a> {
    fn new(graph: &Graph, sizes: &'a [u32]) -> Result<Self, SpecError> {
        if sizes.is_empty() || sizes.len() > DIMENSIONS_MAX {
            return whole(format!(
                "dimension order needs the grid's sizes, 1 to {DIMENSIONS_MAX} of them"
            ));
        }
        let product = sizes
            .iter()
            .try_fold(1_u32, |all, size| all.checked_mul(*size));
        if product.is_none_or(|p| p as usize != graph.switches() || p == 0) {
            return whole(format!(
                "a grid of {} has another number of switches than the fabric's {}",
                Self::text(sizes),
                graph.switches()
            ));
        }
        let mut grid = Self {
            sizes,
            ports: vec![[[0; 2]; DIMENSIONS_MAX]; graph.switches()],
        };
        for switch in 0..graph.switches() {
            for (port, to, _) in graph.between(switch) {
                let Some((dimension, ways)) = grid.step(switch, to) else {
                    return whole(format!(
                        "switches {switch} and {to} are cabled and no neighbours in a grid of {}",
                        Self::text(sizes)
                    ));
                };
                for (of, fits) in grid.ports[switch][dimension].iter_mut().zip(ways) {
                    *of |= u64::from(fits) << port;
                }
            }
        }
        Ok(grid)
    }

    fn text(sizes: &[u32]) -> String {
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        sizes.join("x")
    }

    fn coordinate(&self, switch: usize, dimension: usize) -> u32 {
        let below: usize = self.sizes[dimension + 1..]
            .iter()
            .map(|s| *s as usize)
            .product();
        u32::try_from(switch / below % self.sizes[dimension] as usize).unwrap_or(0)
    }

    /// Dimension of a cable, and whether it leads up and down in it.
    fn step(&self, from: usize, to: usize) -> Option<(usize, [bool; 2])> {
        let differs =
            (0..self.sizes.len()).filter(|d| self.coordinate(from, *d) != self.coordinate(to, *d));
        let mut differs = differs;
        let dimension = differs.next()?;
        if differs.next().is_some() {
            return None;
        }
        let size = self.sizes[dimension];
        let [a, b] = [from, to].map(|s| self.coordinate(s, dimension));
        let ways = [(a + 1) % size == b, (b + 1) % size == a];
        ways.contains(&true).then_some((dimension, ways))
    }

    /// Where the next cable leads: dimension, and 0 for up or 1 for down. `None`: there already.
    fn next(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        for dimension in 0..self.sizes.len() {
            let size = self.sizes[dimension];
            let [a, b] = [from, to].map(|s| self.coordinate(s, dimension));
            if a == b {
                continue;
            }
            let mut up = (b + size - a) % size * 2 <= size;
            // A grid's line has no cable from its end to its start.
            if !self.is_ring(from, dimension) {
                up = b > a;
            }
            return Some((dimension, usize::from(!up)));
        }
        None
    }

    /// True when the line of a switch in a dimension is closed.
    fn is_ring(&self, switch: usize, dimension: usize) -> bool {
        let below: usize = self.sizes[dimension + 1..]
            .iter()
            .map(|s| *s as usize)
            .product();
        let first = switch - self.coordinate(switch, dimension) as usize * below;
        self.ports[first][dimension][1] != 0
    }

    /// Dimensions in which a way crosses from the last coordinate to the first or back, as bits.
    fn crossings(&self, from: usize, to: usize) -> u8 {
        let mut found = 0;
        for dimension in 0..self.sizes.len() {
            let size = self.sizes[dimension];
            let [a, b] = [from, to].map(|s| self.coordinate(s, dimension));
            let up = (b + size - a) % size * 2 <= size;
            // Rings of three have no way of two cables, and so nothing that waits.
            let crosses = a != b && size > 3 && self.is_ring(from, dimension) && up != (b > a);
            found |= u8::from(crosses) << dimension;
        }
        found
    }
}

/// Tables and lanes of dimension order.
pub(super) fn routes(graph: &Graph, manager: &Manager, lanes: u8) -> Result<Routes, SpecError> {
    let grid = Grid::new(graph, &manager.sizes)?;
    let (hosts, switches) = (graph.hosts(), graph.switches());
    let mut table = vec![NO_WAY; hosts * switches];
    let mut of = vec![0; if lanes > 1 { hosts * switches } else { 0 }];
    let mut used = 1;
    for (leaf, at_leaf) in graph.leaves() {
        for switch in 0..switches {
            let crossings = grid.crossings(switch, leaf);
            let mask = match grid.next(switch, leaf) {
                None => 0,
                Some((dimension, way)) => grid.ports[switch][dimension][way],
            };
            if mask == 0 && switch != leaf {
                return whole(format!(
                    "switch {switch} has no cable for dimension order towards switch {leaf}"
                ));
            }
            for host in &at_leaf {
                let port = match switch == leaf {
                    true => graph.seat(*host),
                    false => nth(mask, *host),
                };
                table[switch * hosts + host] = port;
                if lanes > 1 {
                    of[switch * hosts + host] = crossings;
                    used = used.max(crossings + 1);
                }
            }
        }
    }
    if used > lanes {
        return whole(format!(
            "dimension order needs {used} virtual lanes here; there are {lanes}"
        ));
    }
    let lanes = match used {
        1 => Lanes::One,
        _ => Lanes::Pair { of, used },
    };
    Ok(Routes {
        lanes,
        ..Routes::of_table(graph, table)
    })
}

/// One of the ports, which are parallel cables, by the destination.
fn nth(mask: u64, host: usize) -> u8 {
    let count = mask.count_ones().max(1) as usize;
    let mut ports = (0..64_u8).filter(|port| mask >> port & 1 == 1);
    ports.nth(host % count).unwrap_or(NO_WAY)
}

/// Dimensions of a grid at most: lanes for each halve what is left.
pub(super) const DIMENSIONS_MAX: usize = 3;
