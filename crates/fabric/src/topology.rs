//! Regular fabrics: folded Clos networks of chips of one radix, with their routes.
//!
//! **Two levels** are a director: of chips of r ports, a leaf has r/2 hosts and r/2 spines above it; 24-port chips
//! make the 288 ports of a large InfiniBand switch. **Three levels** are a fat tree of r pods: r/2 leaves and r/2 middle
//! chips in each, r^2/4 spines (M. Al-Fares et al., SIGCOMM 2008).
//!
//! **D-mod-K** (E. Zahavi, JPDC 2012): on level l the way up to destination d is floor(d / (r/2)^l) mod (r/2), so
//! that all packets for a host come down one tree, and shifts of ranks in the order of the ports do not meet.

use crate::link::Cable;
use crate::spec::{FabricSpec, HostSpec, LinkSpec, Node, Routing, SwitchSpec};

/// A folded Clos network of so many levels, all its host ports used.
///
/// Hosts are numbered leaf by leaf. Links stand in the order hosts, then upwards.
///
/// # Panics
/// When the radix is odd or the levels are not 2 or 3.
pub fn fat_tree(levels: u32, host: &HostSpec, chip: &SwitchSpec, cable: &Cable) -> FabricSpec {
    assert!(matches!(levels, 2 | 3), "a tree of 2 or 3 levels");
    let tree = Tree::new(levels, chip.ports);
    let mut spec = FabricSpec {
        hosts: vec![*host; tree.hosts() as usize],
        switches: vec![*chip; (tree.leaves + tree.middles + tree.spines) as usize],
        ..FabricSpec::default()
    };
    let mut join = |a: Node, b: Node| {
        spec.links.push(LinkSpec {
            ends: [a, b],
            cable: *cable,
        });
    };
    let half = tree.half;
    for host in 0..tree.hosts() {
        join(Node::Host(host), Node::Switch(host / half));
    }
    // Ports above a chip's hosts lead up in the order of the chips there.
    for leaf in 0..tree.leaves {
        for up in 0..half {
            join(Node::Switch(leaf), Node::Switch(tree.above_leaf(leaf, up)));
        }
    }
    for middle in 0..tree.middles {
        for up in 0..half {
            let spine = tree.leaves + tree.middles + middle % half * half + up;
            join(Node::Switch(tree.leaves + middle), Node::Switch(spine));
        }
    }
    spec.routing = Routing::Table(tree.routes());
    spec
}

/// Chips in the order leaves, middles, spines.
struct Tree {
    half: u32,
    leaves: u32,
    /// None in two levels.
    middles: u32,
    spines: u32,
}

impl Tree {
    fn new(levels: u32, radix: u8) -> Self {
        assert!(radix.is_multiple_of(2), "a radix that halves");
        let half = u32::from(radix) / 2;
        match levels {
            2 => Self {
                half,
                leaves: 2 * half,
                middles: 0,
                spines: half,
            },
            _ => Self {
                half,
                leaves: 2 * half * half,
                middles: 2 * half * half,
                spines: half * half,
            },
        }
    }

    const fn hosts(&self) -> u32 {
        self.leaves * self.half
    }

    /// The chip above port `up` of a leaf: a spine, or a middle of its pod.
    const fn above_leaf(&self, leaf: u32, up: u32) -> u32 {
        match self.middles {
            0 => self.leaves + up,
            _ => self.leaves + leaf / self.half * self.half + up,
        }
    }

    /// D-mod-K.
    fn routes(&self) -> Vec<u8> {
        let half = self.half;
        let mut table = Vec::new();
        let chips = self.leaves + self.middles + self.spines;
        for chip in 0..chips {
            for to in 0..self.hosts() {
                let (leaf, place) = (to / half, to % half);
                let pod = leaf / half;
                let port = if chip < self.leaves {
                    match leaf == chip {
                        true => place,
                        false => half + to % half,
                    }
                } else if chip < self.leaves + self.middles {
                    // Its ports: leaves of its pod, then spines.
                    match (chip - self.leaves) / half == pod {
                        true => leaf % half,
                        false => half + to / half % half,
                    }
                } else if self.middles == 0 {
                    leaf
                } else {
                    pod
                };
                table.push(u8::try_from(port).unwrap_or(u8::MAX));
            }
        }
        table
    }
}
