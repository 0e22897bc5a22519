//! Regular fabrics by their parameters: [`Topology::build`] makes parts, cables, names and routes.
//!
//! Any number of hosts can be joined, in the order of the ports or scattered over them; chips are all there.
//! Parts are numbered from 0 and ports, as InfiniBand does, from 1. What cannot be built is refused with the reason.

mod boxes;
mod direct;
mod fat_tree;
mod names;

#[cfg(test)]
pub(crate) mod tests;

use units::Rng;

use crate::link::Cable;
use crate::route::{Engine, Manager};
use crate::spec::{
    FabricSpec, HOSTS_MAX, HostSpec, LinkSpec, Node, Place, Routing, SWITCHES_MAX, SpecError,
    SwitchSpec, at,
};

pub use fat_tree::{FatTree, Level};
pub use names::Names;

/// What a fabric is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Every host.
    pub host: HostSpec,
    /// Every switch chip; with more ports than it has, a topology is refused.
    pub chip: SwitchSpec,
    /// From a host to its switch.
    pub host_cable: Cable,
    /// Between chips of one box: traces of a backplane.
    pub inner_cable: Cable,
    /// Between boxes, and between chips where each is its own box.
    pub outer_cable: Cable,
}

/// Which ports hosts take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Host n at the n-th port.
    #[default]
    InOrder,
    /// Any ports in any order, drawn by a seed.
    Scattered(u64),
}

/// A kind of fabric with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// Two hosts and a cable.
    BackToBack,
    /// All hosts at one chip.
    OneSwitch,
    /// A folded Clos network of any shape.
    FatTree(FatTree),
    /// A box of leaf and spine chips, as large InfiniBand and Ethernet switches are.
    Director(Director),
    /// Switches of a chip each whose cables up are shared out evenly over directors: three stages of cables.
    Directors {
        /// The core.
        director: Director,
        /// How many.
        directors: u32,
        /// Hosts of an edge switch.
        down: u32,
        /// Cables up of an edge switch, a multiple of the directors.
        up: u32,
    },
    /// Directors with hosts, in a row, each cabled to the next.
    Row {
        /// Each of them.
        director: Director,
        /// How many.
        boxes: u32,
        /// Cables between neighbours, taken from their ports for hosts.
        trunks: u32,
    },
    /// Directors with hosts below a core of directors.
    Boxes {
        /// Each of them, and of the core.
        director: Director,
        /// How many have hosts.
        boxes: u32,
        /// How many are the core.
        core: u32,
        /// Cables up of a box, a multiple of the core's directors, from its last ports.
        up: u32,
    },
    /// Groups of switches, all joined in a group, and each group joined to each (J. Kim et al., ISCA 2008).
    Dragonfly {
        /// Switches of a group, "a".
        switches: u32,
        /// Hosts of a switch, "p".
        hosts: u32,
        /// Cables of a switch to other groups, "h".
        global: u32,
        /// Groups; 0: as many as can be, a * h + 1.
        groups: u32,
    },
    /// A grid of up to three dimensions whose lines are closed to rings.
    Torus {
        /// Switches in each dimension.
        sizes: Vec<u32>,
        /// Hosts of a switch.
        hosts: u32,
    },
}

/// A box of chips in two levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Director {
    /// Chips with ports to the outside.
    pub leaves: u32,
    /// Ports to the outside of each.
    pub ports: u32,
    /// Chips that join them.
    pub spines: u32,
    /// Traces from each leaf to each spine.
    pub traces: u32,
}

impl Director {
    /// 288 ports of 24-port chips: 24 leaves of 12 ports and 12 spines, as the Topspin TS740.
    pub const PORTS_288: Self = Self {
        leaves: 24,
        ports: 12,
        spines: 12,
        traces: 1,
    };
    /// 144 ports of 24-port chips: 12 cards of 12 ports (the EFX-1000's slots), and 6 spines with two traces from
    /// each. How its vendor joins the chips inside is not published; this is the smallest that blocks nothing.
    pub const PORTS_144: Self = Self {
        leaves: 12,
        ports: 12,
        spines: 6,
        traces: 2,
    };
}

/// A fabric with the names of its parts.
#[derive(Clone, Debug)]
pub struct Network {
    /// Parts, cables and the routing that suits it; set another one as you like.
    pub spec: FabricSpec,
    /// Their names.
    pub names: Names,
}

impl Topology {
    /// Hosts that it has ports for, 2 for back to back; saturates where it could not be built anyway.
    pub fn capacity(&self, chip: &SwitchSpec) -> u32 {
        match self {
            Self::BackToBack => 2,
            Self::OneSwitch => u32::from(chip.ports),
            Self::FatTree(tree) => tree.hosts(),
            Self::Director(d) => d.leaves.saturating_mul(d.ports),
            Self::Directors {
                director,
                directors,
                down,
                up,
            } => {
                let ports = director.leaves.saturating_mul(director.ports);
                let edges = ports.saturating_mul(*directors) / (*up).max(1);
                edges.saturating_mul(*down)
            }
            Self::Row {
                director,
                boxes,
                trunks,
            } => {
                let ports = u64::from(director.leaves) * u64::from(director.ports);
                let between = u64::from(boxes.saturating_sub(1)) * u64::from(*trunks);
                let all = ports.saturating_mul(u64::from(*boxes));
                u32::try_from(all.saturating_sub(between.saturating_mul(2))).unwrap_or(u32::MAX)
            }
            Self::Boxes {
                director,
                boxes,
                up,
                ..
            } => {
                let ports = director.leaves.saturating_mul(director.ports);
                ports.saturating_sub(*up).saturating_mul(*boxes)
            }
            Self::Dragonfly {
                switches,
                hosts,
                global,
                groups,
            } => {
                let groups = direct::groups(*switches, *global, *groups);
                groups.saturating_mul(*switches).saturating_mul(*hosts)
            }
            Self::Torus { sizes, hosts } => sizes
                .iter()
                .fold(*hosts, |all, size| all.saturating_mul(*size)),
        }
    }

    /// Builds it with so many hosts; `None`: one at every port.
    ///
    /// Links stand in the order hosts, then from the lowest level up, so that a switch's ports to hosts come
    /// first. Lanes are one, for grids and dragonflies as many as their routing needs and the parts have.
    ///
    /// # Errors
    /// Parameters that no such fabric can have, chips with too few ports, more hosts than ports, or too large.
    pub fn build(
        &self,
        parts: &Parts,
        hosts: Option<u32>,
        placement: Placement,
    ) -> Result<Network, SpecError> {
        let capacity = self.capacity(&parts.chip);
        let hosts = hosts.unwrap_or(capacity);
        if hosts < 2 || hosts as usize > HOSTS_MAX {
            return whole(format!("{hosts} hosts; expected 2 to {HOSTS_MAX}"));
        }
        if hosts > capacity {
            return whole(format!("{hosts} hosts; there are ports for {capacity}"));
        }
        let mut builder = Builder::new(parts);
        match self {
            Self::BackToBack => {}
            Self::OneSwitch => builder.one_switch(),
            Self::FatTree(tree) => fat_tree::build(&mut builder, tree)?,
            Self::Director(director) => boxes::director(&mut builder, director)?,
            Self::Directors {
                director,
                directors,
                down,
                up,
            } => boxes::directors(
                &mut builder,
                director,
                *directors,
                [*down, *up],
                hosts.div_ceil((*down).max(1)),
            )?,
            Self::Row {
                director,
                boxes,
                trunks,
            } => boxes::row(&mut builder, director, *boxes, *trunks)?,
            Self::Boxes {
                director,
                boxes,
                core,
                up,
            } => boxes::boxes(&mut builder, director, [*boxes, *core], *up)?,
            Self::Dragonfly {
                switches,
                hosts,
                global,
                groups,
            } => direct::dragonfly(&mut builder, [*switches, *hosts, *global, *groups])?,
            Self::Torus { sizes, hosts } => direct::torus(&mut builder, sizes, *hosts)?,
        }
        let network = builder.finish(hosts, placement)?;
        network.spec.check()?;
        Ok(network)
    }
}

/// A fabric on its way: switches, cables between them, and seats for hosts.
struct Builder<'a> {
    parts: &'a Parts,
    switches: Vec<String>,
    /// Switches, the port of each, and the cable.
    cables: Vec<([u32; 2], [u32; 2], Cable)>,
    /// Ports in use of each switch, those for hosts too.
    ports: Vec<u32>,
    /// Switch and port for hosts, in order.
    seats: Vec<(u32, u32)>,
    routing: Routing,
    lanes: u8,
}

impl<'a> Builder<'a> {
    fn new(parts: &'a Parts) -> Self {
        Self {
            parts,
            switches: Vec::new(),
            cables: Vec::new(),
            ports: Vec::new(),
            seats: Vec::new(),
            routing: Routing::MinHop,
            lanes: 1,
        }
    }

    fn one_switch(&mut self) {
        let switch = self.switch("switch".to_owned());
        self.seat(switch, u32::from(self.parts.chip.ports));
    }

    fn switch(&mut self, name: String) -> u32 {
        self.switches.push(name);
        self.ports.push(0);
        u32::try_from(self.switches.len() - 1).unwrap_or(u32::MAX)
    }

    /// The next free ports of a switch, for hosts.
    fn seat(&mut self, switch: u32, count: u32) {
        for _ in 0..count {
            let port = self.port(switch);
            self.seats.push((switch, port));
        }
    }

    /// The next free port, from 1.
    fn port(&mut self, switch: u32) -> u32 {
        let port = &mut self.ports[switch as usize];
        *port += 1;
        *port
    }

    /// A cable between the next free ports of two switches.
    fn join(&mut self, a: u32, b: u32, cable: Cable) {
        let ports = [self.port(a), self.port(b)];
        self.cables.push(([a, b], ports, cable));
    }

    /// Places hosts and checks sizes.
    fn finish(self, hosts: u32, placement: Placement) -> Result<Network, SpecError> {
        let chip = self.parts.chip.ports;
        if self.switches.len() > SWITCHES_MAX {
            let count = self.switches.len();
            return whole(format!("{count} chips; expected at most {SWITCHES_MAX}"));
        }
        if let Some((n, ports)) = (0..)
            .zip(&self.ports)
            .find(|(_, ports)| **ports > u32::from(chip))
        {
            let name = &self.switches[n];
            return whole(format!("{name} needs {ports} ports; the chip has {chip}"));
        }
        let mut seats = self.seats;
        if let Placement::Scattered(seed) = placement {
            crate::route::shuffle(&mut seats, &mut Rng::new(seed));
        }
        let mut links = Vec::with_capacity(hosts as usize + self.cables.len());
        let mut ports = Vec::with_capacity(links.capacity());
        for (host, (switch, port)) in (0..hosts).zip(&seats) {
            links.push(LinkSpec {
                ends: [Node::Host(host), Node::Switch(*switch)],
                cable: self.parts.host_cable,
            });
            ports.push([1, *port]);
        }
        if self.switches.is_empty() {
            links.push(LinkSpec {
                ends: [Node::Host(0), Node::Host(1)],
                cable: self.parts.host_cable,
            });
            ports.push([1, 1]);
        }
        for (ends, at, cable) in self.cables {
            links.push(LinkSpec {
                ends: ends.map(Node::Switch),
                cable,
            });
            ports.push(at);
        }
        let names = Names::new(
            (0..hosts).map(|n| format!("host {n}")).collect(),
            self.switches,
            ports,
        );
        let has = self.parts.chip.port.virtual_lanes;
        let has = has.min(self.parts.host.port.virtual_lanes);
        let lanes = [1, 2, 4, 8, 15].into_iter().filter(|l| *l <= has);
        let enough = lanes.clone().find(|l| *l >= self.lanes);
        let lanes = enough.or_else(|| lanes.max()).unwrap_or(1);
        Ok(Network {
            spec: FabricSpec {
                hosts: vec![self.parts.host; hosts as usize],
                switches: vec![self.parts.chip; names.switches().len()],
                links,
                operational_lanes: lanes,
                routing: self.routing,
                ..FabricSpec::default()
            },
            names,
        })
    }
}

/// A folded Clos network of so many levels, all its host ports used, under D-mod-K.
///
/// **Two levels** are a director: of chips of r ports, a leaf has r/2 hosts and r/2 spines above it. **Three levels**
/// are a fat tree of r pods: r/2 leaves and r/2 middle chips in each, r^2/4 spines (M. Al-Fares et al.,
/// SIGCOMM 2008). Hosts are numbered leaf by leaf.
///
/// # Panics
/// When the radix is odd or the levels are not 2 or 3.
pub fn fat_tree(levels: u32, host: &HostSpec, chip: &SwitchSpec, cable: &Cable) -> FabricSpec {
    assert!(matches!(levels, 2 | 3), "a tree of 2 or 3 levels");
    assert!(chip.ports.is_multiple_of(2), "a radix that halves");
    let parts = Parts {
        host: *host,
        chip: *chip,
        host_cable: *cable,
        inner_cable: *cable,
        outer_cable: *cable,
    };
    let tree = FatTree::full(levels, chip.ports);
    match Topology::FatTree(tree).build(&parts, None, Placement::InOrder) {
        Ok(network) => network.spec,
        Err(error) => panic!("a tree of {} ports: {error}", chip.ports),
    }
}

fn whole<T>(problem: impl Into<String>) -> Result<T, SpecError> {
    Err(at(Place::Whole, problem))
}

fn managed(engine: Engine) -> Manager {
    engine.into()
}
