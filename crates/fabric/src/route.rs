//! Static routes: for each switch and destination the one port that its packets leave by.
//!
//! As OpenSM's `minhop`: among the ports from which the way is shortest, the one with the fewest destinations so
//! far, the lowest of equals (linux-rdma/opensm, doc/current-routing.txt). Destinations are taken in the
//! order of their numbers, which stand for LIDs.

use std::collections::VecDeque;

use crate::spec::{FabricSpec, Node, Place, Routing, SpecError, at};

/// A neighbour as its node sees it: what is at the other end of each port, in the order of the links.
pub(crate) fn neighbours(spec: &FabricSpec) -> Vec<Vec<Node>> {
    let mut found = vec![Vec::new(); spec.hosts.len() + spec.switches.len()];
    for link in &spec.links {
        let [a, b] = link.ends;
        found[number(spec, a)].push(b);
        found[number(spec, b)].push(a);
    }
    found
}

/// Hosts first, then switches.
pub(crate) fn number(spec: &FabricSpec, node: Node) -> usize {
    match node {
        Node::Host(h) => h as usize,
        Node::Switch(s) => spec.hosts.len() + s as usize,
    }
}

/// The fabric's own table, or one of fewest hops.
///
/// # Errors
/// When two hosts have no way to each other.
pub(crate) fn table(spec: &FabricSpec) -> Result<Vec<u8>, SpecError> {
    let Routing::Table(given) = &spec.routing else {
        return min_hop(spec);
    };
    let neighbours = neighbours(spec);
    let hosts = spec.hosts.len();
    let whole = |problem: &str| Err(at(Place::Whole, problem));
    if given.len() != hosts * spec.switches.len() {
        return whole("the table of routes has another size than its fabric");
    }
    // From every switch, so that no packet goes round or leaves by a port that is not there.
    for to in 0..hosts {
        for switch in 0..spec.switches.len() {
            let mut node = hosts + switch;
            for _ in 0..=spec.switches.len() {
                if node < hosts {
                    break;
                }
                let port = given[(node - hosts) * hosts + to];
                match neighbours[node].get(usize::from(port)) {
                    Some(next) => node = number(spec, *next),
                    None => return whole("a route leaves by a port that leads nowhere"),
                }
            }
            if node != to {
                return whole("a route does not end at its host");
            }
        }
    }
    Ok(given.clone())
}

/// Out-port of switch `s` towards host `h` at `s * hosts + h`; [`NO_WAY`] where there is none.
///
/// # Errors
/// When two hosts have no way to each other.
fn min_hop(spec: &FabricSpec) -> Result<Vec<u8>, SpecError> {
    let neighbours = neighbours(spec);
    let hosts = spec.hosts.len();
    let mut table = vec![NO_WAY; spec.switches.len() * hosts];
    let mut load = vec![[0_u32; 64]; spec.switches.len()];
    let mut hops = vec![u32::MAX; neighbours.len()];
    for host in 0..hosts {
        distances(spec, &neighbours, host, &mut hops);
        let lost = (0_u32..).zip(&hops[..hosts]).find(|(_, d)| **d == u32::MAX);
        if let Some((n, _)) = lost {
            return Err(at(
                Place::Host(n),
                format!("there is no way from here to host {host}"),
            ));
        }
        for switch in 0..spec.switches.len() {
            let here = hops[hosts + switch];
            let ports = (0_u8..).zip(&neighbours[hosts + switch]);
            let nearer = ports.filter(|(_, to)| {
                let there = number(spec, **to);
                // Hosts pass nothing on.
                (there >= hosts || there == host) && hops[there] < here
            });
            let load = &mut load[switch];
            let best = nearer.min_by_key(|(port, _)| (load[usize::from(*port)], *port));
            if let Some((port, _)) = best {
                load[usize::from(port)] += 1;
                table[switch * hosts + host] = port;
            }
        }
    }
    Ok(table)
}

/// Hops from every node to host `to`; hosts are ends only.
fn distances(spec: &FabricSpec, neighbours: &[Vec<Node>], to: usize, hops: &mut [u32]) {
    hops.fill(u32::MAX);
    hops[to] = 0;
    let mut next = VecDeque::from([to]);
    while let Some(node) = next.pop_front() {
        if node < spec.hosts.len() && node != to {
            continue;
        }
        for neighbour in &neighbours[node] {
            let there = number(spec, *neighbour);
            if hops[there] == u32::MAX {
                hops[there] = hops[node] + 1;
                next.push_back(there);
            }
        }
    }
}

/// No way: the switch is cut off.
pub(crate) const NO_WAY: u8 = u8::MAX;
