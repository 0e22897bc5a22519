//! Ways of fewest hops, and how destinations are spread over equal ports.
//!
//! As OpenSM's `minhop`: switch by switch, destination by destination in the order of LIDs, among the ports from which
//! the way is shortest the one with the fewest destinations so far. Left out: multiple LIDs of a port, port
//! weights, and that a manager counts the LIDs of switches too.

use units::Rng;

use crate::route::graph::{Graph, NONE};
use crate::route::{Lanes, Manager, NO_WAY, Routes, whole};
use crate::spec::SpecError;

/// Of each switch the ports by which a way to switch `to` is shortest, as bits; none at `to`.
pub(crate) fn minimal(graph: &Graph, to: usize, hops: &mut Vec<u32>, masks: &mut Vec<u64>) {
    graph.distances(to, hops);
    masks.clear();
    masks.extend((0..graph.switches()).map(|switch| {
        let nearer = |(port, there, _): (usize, usize, u32)| match hops[there] < hops[switch] {
            true => 1_u64 << port,
            false => 0,
        };
        match hops[switch] {
            u32::MAX => 0,
            _ => graph.between(switch).map(nearer).fold(0, |a, b| a | b),
        }
    }));
}

/// The order in which destinations are taken.
pub(crate) fn lids(graph: &Graph, seed: Option<u64>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..graph.hosts()).collect();
    if let Some(seed) = seed {
        shuffle(&mut order, &mut Rng::new(seed));
    }
    order
}

/// Fisher and Yates.
pub(crate) fn shuffle<T>(all: &mut [T], rng: &mut Rng) {
    for n in (1..all.len()).rev() {
        let other = rng.next_u64() % (n as u64 + 1);
        all.swap(n, usize::try_from(other).unwrap_or(0));
    }
}

/// Tables of `minhop`.
pub(super) fn counted(graph: &Graph, manager: &Manager) -> Vec<u8> {
    let mut hops = Vec::new();
    spread(graph, manager, |to, masks| {
        minimal(graph, to, &mut hops, masks);
    })
}

/// Each destination by the allowed port with the fewest destinations so far, at each switch.
///
/// `allowed` gives ports as bits for ways to a switch.
pub(super) fn spread(
    graph: &Graph,
    manager: &Manager,
    mut allowed: impl FnMut(usize, &mut Vec<u64>),
) -> Vec<u8> {
    let (hosts, switches) = (graph.hosts(), graph.switches());
    let mut table = vec![NO_WAY; hosts * switches];
    let mut load = vec![[0_u32; 64]; switches];
    let mut rng: Vec<Rng> = manager.tie_seed.map_or_else(Vec::new, |seed| {
        let of = |n: usize| Rng::new(seed ^ (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        (0..switches).map(of).collect()
    });
    // Rows are kept where they are few: hosts of a leaf stand apart when LIDs are in no order.
    let leaves = graph.leaves().len();
    let keep = leaves * switches <= KEPT_MASKS_MAX;
    let mut kept: Vec<Vec<u64>> = vec![Vec::new(); if keep { switches } else { 1 }];
    let mut last = NONE;
    for host in lids(graph, manager.lid_seed) {
        let home = graph.homes()[host];
        if home == NONE {
            continue;
        }
        let place = if keep { home as usize } else { 0 };
        if kept[place].is_empty() || (!keep && last != home) {
            allowed(home as usize, &mut kept[place]);
            last = home;
        }
        for (switch, mask) in kept[place].iter().enumerate() {
            let port = match switch == home as usize {
                true => graph.seat(host),
                false => match least(*mask, &load[switch], rng.get_mut(switch)) {
                    Some(port) => port,
                    None => continue,
                },
            };
            load[switch][usize::from(port)] += 1;
            table[switch * hosts + host] = port;
        }
    }
    table
}

/// The port of fewest destinations, the lowest of equals or one drawn.
fn least(mask: u64, load: &[u32; 64], rng: Option<&mut Rng>) -> Option<u8> {
    let mut left = mask;
    let mut best = u32::MAX;
    let mut equal = 0_u64;
    while left != 0 {
        let port = left.trailing_zeros();
        left &= left - 1;
        let of = load[port as usize];
        if of < best {
            best = of;
            equal = 1 << port;
        } else if of == best {
            equal |= 1 << port;
        }
    }
    if equal == 0 {
        return None;
    }
    if let (Some(rng), true) = (rng, equal.count_ones() > 1) {
        for _ in 0..rng.next_u64() % u64::from(equal.count_ones()) {
            equal &= equal - 1;
        }
    }
    u8::try_from(equal.trailing_zeros()).ok()
}

/// `minhop` with a lane for each cable between switches on the way: no lane ever waits for a lower one. For dragonflies
/// (J. Kim et al., "Technology-driven, highly-scalable dragonfly topology", ISCA 2008), and any fabric of few hops.
pub(super) fn by_hops(graph: &Graph, manager: &Manager, lanes: u8) -> Result<Routes, SpecError> {
    let mut hops = Vec::new();
    let mut most = 1;
    let leaves = graph.leaves();
    for (leaf, _) in &leaves {
        graph.distances(*leaf, &mut hops);
        let far = leaves.iter().map(|(other, _)| hops[*other]).max();
        most = most.max(far.unwrap_or(0));
    }
    if most > u32::from(lanes) && lanes > 1 {
        return whole(format!(
            "ways of {most} hops between switches need as many lanes; there are {lanes}"
        ));
    }
    let used = match lanes {
        1 => 1,
        _ => u8::try_from(most).unwrap_or(lanes),
    };
    Ok(Routes {
        lanes: Lanes::Hop { used },
        ..Routes::of_table(graph, counted(graph, manager))
    })
}

/// 64 MB of them.
const KEPT_MASKS_MAX: usize = 8 << 20;
