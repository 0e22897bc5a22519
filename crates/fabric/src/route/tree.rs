//! Routes of trees: by the place of the destination, of the source, or by counting down paths.
//!
//! **D-mod-K** (E. Zahavi, "Fat-tree routing and node ordering providing contention free traffic for MPI global
//! collectives", JPDC 2012): on level l the way up to place d leaves by port floor(d / (w1 ... wl)) mod w(l+1), where w
//! are the ports up of a switch of each level. The way down mirrors it, over the very cable by which the destination's
//! own switch would go up, so that all packets for a host come down one tree. **S-mod-K** goes up by the source's place.
//!
//! A host's place counts switches with hosts in their order, and its port there: a tree that is filled in order has
//! the places of its ports, and holes of one filled otherwise stay empty. Cables up are by [`updown`]'s order, so that
//! no way goes up after it went down on any topology; on what is no tree, ports that lead farther round are left out.

use crate::route::graph::{Graph, NONE};
use crate::route::updown::{Legal, Order};
use crate::route::{BY_SOURCE, Manager, NO_WAY, whole};
use crate::spec::SpecError;

/// A tree's places.
struct Places {
    order: Order,
    leaves: Vec<(usize, Vec<usize>)>,
    /// Of each host.
    place: Vec<u64>,
    /// Of each switch: product of the ports up of levels below.
    divisor: Vec<u64>,
    /// Of each switch: its ports up, in order.
    up: Vec<Vec<u8>>,
}

impl Places {
    fn new(graph: &Graph, manager: &Manager) -> Result<Self, SpecError> {
        let order = Order::new(graph, manager)?;
        let leaves = graph.leaves();
        let seats = leaves.iter().map(|(_, hosts)| hosts.len() as u64).max();
        let mut place = vec![0; graph.hosts()];
        for (leaf, (_, hosts)) in (0_u64..).zip(&leaves) {
            for (seat, host) in (0..).zip(hosts) {
                place[*host] = leaf * seats.unwrap_or(1) + seat;
            }
        }
        let up = |switch: usize| {
            let ports = graph.between(switch);
            let ports = ports.filter(|(_, to, _)| order.is_up(switch, *to));
            ports
                .filter_map(|(port, _, _)| u8::try_from(port).ok())
                .collect()
        };
        let up: Vec<Vec<u8>> = (0..graph.switches()).map(up).collect();
        // Levels from below: leaves are 0.
        let mut height = vec![0_usize; graph.switches()];
        for switch in order.down.iter().rev() {
            let switch = *switch as usize;
            for port in &up[switch] {
                let above = graph.port(graph.hosts() + switch, usize::from(*port)).0 as usize
                    - graph.hosts();
                height[above] = height[above].max(height[switch] + 1);
            }
        }
        let levels = height.iter().max().map_or(0, |h| h + 1);
        let mut width = vec![1_u64; levels];
        for (height, up) in height.iter().zip(&up) {
            width[*height] = width[*height].max(up.len() as u64);
        }
        let mut product = 1_u64;
        let products = width.iter().map(|w| {
            let below = product;
            // What no place reaches does not matter.
            product = product.saturating_mul(*w);
            below
        });
        let products: Vec<u64> = products.collect();
        let divisor = height.iter().map(|h| products[*h]).collect();
        Ok(Self {
            order,
            leaves,
            place,
            divisor,
            up,
        })
    }

    /// The port up of a switch for a place, among those of `mask`.
    fn climb(&self, switch: usize, place: u64, mask: u64) -> Option<u8> {
        let ports = &self.up[switch];
        let allowed = ports.iter().filter(|port| mask >> **port & 1 == 1);
        let count = allowed.clone().count() as u64;
        let n = (place / self.divisor[switch]).checked_rem(count)?;
        allowed.copied().nth(usize::try_from(n).ok()?)
    }

    /// The port down of a switch for a place: the cable that leads up from below for it, or one of the equal ones.
    fn descend(&self, graph: &Graph, switch: usize, place: u64, mask: u64) -> Option<u8> {
        if mask.count_ones() == 1 {
            return u8::try_from(mask.trailing_zeros()).ok();
        }
        let ports = || (0..64_u8).filter(move |port| mask >> port & 1 == 1);
        let own = ports().find(|port| {
            let (below, channel) = graph.port(graph.hosts() + switch, usize::from(*port));
            let below = below as usize - graph.hosts();
            let up = self.climb(below, place, u64::MAX);
            // Both directions of one link.
            up.is_some_and(|up| graph.port(graph.hosts() + below, usize::from(up)).1 == channel ^ 1)
        });
        let count = u64::from(mask.count_ones());
        let other = || {
            let n = (place / self.divisor[switch]).checked_rem(count)?;
            ports().nth(usize::try_from(n).ok()?)
        };
        own.or_else(other)
    }

    /// Table by destination; `climbs` gives the port up.
    fn table(
        &self,
        graph: &Graph,
        mut climbs: impl FnMut(usize, u64, u64) -> Option<u8>,
    ) -> Vec<u8> {
        let hosts = graph.hosts();
        let mut table = vec![NO_WAY; hosts * graph.switches()];
        let mut legal = Legal::default();
        for (leaf, at_leaf) in &self.leaves {
            legal.find(graph, &self.order, *leaf);
            for switch in 0..graph.switches() {
                let mask = legal.ports(graph, &self.order, switch);
                for host in at_leaf {
                    let place = self.place[*host];
                    let port = match () {
                        () if switch == *leaf => Some(graph.seat(*host)),
                        () if legal.down[switch] != NONE => {
                            self.descend(graph, switch, place, mask)
                        }
                        () => climbs(switch, place, mask),
                    };
                    table[switch * hosts + host] = port.unwrap_or(NO_WAY);
                }
            }
        }
        table
    }
}

/// Tables of D-mod-K.
pub(super) fn by_destination(graph: &Graph, manager: &Manager) -> Result<Vec<u8>, SpecError> {
    let places = Places::new(graph, manager)?;
    Ok(places.table(graph, |switch, place, mask| {
        places.climb(switch, place, mask)
    }))
}

/// Tables of S-mod-K: by destination, and by source where the first says so.
pub(super) fn by_source(graph: &Graph, manager: &Manager) -> Result<(Vec<u8>, Vec<u8>), SpecError> {
    let places = Places::new(graph, manager)?;
    // A source climbs without regard to where, so that each of its ports must do.
    let mut short = None;
    let table = places.table(graph, |switch, _, mask| {
        let all = places.up[switch]
            .iter()
            .fold(0, |all, port| all | 1 << port);
        if mask != all {
            short = Some(switch);
        }
        Some(BY_SOURCE)
    });
    if let Some(switch) = short {
        return whole(format!(
            "S-mod-K needs a tree in which every way up leads everywhere; at switch {switch} one does not"
        ));
    }
    let hosts = graph.hosts();
    let mut sources = vec![NO_WAY; hosts * graph.switches()];
    for switch in 0..graph.switches() {
        for host in 0..hosts {
            let port = places.climb(switch, places.place[host], u64::MAX);
            sources[switch * hosts + host] = port.unwrap_or(NO_WAY);
        }
    }
    Ok((table, sources))
}

/// As OpenSM's `ftree`: leaf by leaf and host by host in the order of ports, each host gets a tree to come down by,
/// built upwards over the cables with the fewest such trees; others climb into it over the ports with the fewest
/// destinations. Left out: its levels of a chip's kind, and that it leaves fabrics which are no fat tree to `minhop`.
pub(super) fn counted(graph: &Graph, manager: &Manager) -> Result<Vec<u8>, SpecError> {
    let places = Places::new(graph, manager)?;
    let (hosts, switches) = (graph.hosts(), graph.switches());
    let mut table = vec![NO_WAY; hosts * switches];
    // Destinations by channel: of trees that come down it, of ways that go up it.
    let mut trees = vec![0_u32; graph.channels()];
    let mut ways = vec![0_u32; graph.channels()];
    let mut legal = Legal::default();
    let mut climb = vec![NONE; switches];
    for (leaf, at_leaf) in &places.leaves {
        legal.find(graph, &places.order, *leaf);
        for host in at_leaf {
            table[leaf * hosts + host] = graph.seat(*host);
            climb.fill(NONE);
            climb[*leaf] = 0;
            let mut top = *leaf;
            while let Some((above, down)) = emptiest(graph, &places, top, &trees) {
                trees[down as usize] += 1;
                table[above * hosts + host] = port_of(graph, above, down);
                climb[above] = 0;
                top = above;
            }
            for switch in &places.order.down {
                let switch = *switch as usize;
                if climb[switch] == 0 {
                    continue;
                }
                let found = match legal.down[switch] != NONE {
                    true => legal.ports(graph, &places.order, switch),
                    false => into(graph, &places, switch, &mut climb)
                        .unwrap_or_else(|| legal.ports(graph, &places.order, switch)),
                };
                let ports = (0..64_usize).filter(|port| found >> port & 1 == 1);
                let channel = |port: &usize| graph.port(hosts + switch, *port).1 as usize;
                if let Some(port) = ports.min_by_key(|port| ways[channel(port)]) {
                    ways[channel(&port)] += 1;
                    table[switch * hosts + host] = u8::try_from(port).unwrap_or(NO_WAY);
                }
            }
        }
    }
    Ok(table)
}

/// The switch above with the fewest trees that come down from it to here, and the channel that does.
fn emptiest(graph: &Graph, places: &Places, below: usize, trees: &[u32]) -> Option<(usize, u32)> {
    let up = places.up[below].iter().map(|port| {
        let (above, channel) = graph.port(graph.hosts() + below, usize::from(*port));
        (above as usize - graph.hosts(), channel ^ 1)
    });
    up.min_by_key(|(_, down)| trees[*down as usize])
}

fn port_of(graph: &Graph, switch: usize, channel: u32) -> u8 {
    let all = graph.all(graph.hosts() + switch).iter();
    let found = all.zip(0..).find(|((_, c), _)| *c == channel);
    found.map_or(NO_WAY, |(_, port)| port)
}

/// Ports up by which a switch is nearest to a destination's own tree; notes how near. `None`: none leads there.
fn into(graph: &Graph, places: &Places, switch: usize, climb: &mut [u32]) -> Option<u64> {
    let above = |port: &u8| {
        let (above, _) = graph.port(graph.hosts() + switch, usize::from(*port));
        climb[above as usize - graph.hosts()]
    };
    let near = places.up[switch].iter().map(above).min()?;
    if near == NONE {
        return None;
    }
    let nearest = places.up[switch].iter().filter(|port| above(port) == near);
    let mask = nearest.fold(0, |mask, port| mask | 1 << port);
    climb[switch] = near + 1;
    Some(mask)
}
