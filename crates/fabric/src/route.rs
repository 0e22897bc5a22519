//! Static routes: by which port packets leave a switch, and on which virtual lane.
//!
//! [`Routes`] are flat tables: a port for each switch and destination, for S-mod-K a second one for each switch and
//! source, and lanes for each pair or each hop. Engines follow the descriptions in OpenSM's
//! `doc/current-routing.txt` and the papers named at each; what one leaves out stands in its module.
//!
//! Every engine is deterministic: the same fabric, [`Manager`] and seeds give the same tables, byte by byte.

mod deadlock;
mod dfsssp;
mod dimension;
mod graph;
mod minimal;
mod tree;
mod updown;

#[cfg(test)]
pub(crate) mod tests;

use std::str::FromStr;

use crate::spec::{FabricSpec, Node, Place, Routing, SpecError, at};

pub use deadlock::{Cycle, Wait};
pub use graph::Graph;
pub(crate) use minimal::shuffle;

/// How a subnet manager computes tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Fewest hops; of equal ports the one with the fewest destinations so far.
    MinHop,
    /// The same among ways that never go up after they went down.
    UpDown,
    /// The same in order of the ports, for shifts: each destination has one tree of its own to come down.
    FatTree,
    /// In trees: the way up is a function of the destination's place.
    DModK,
    /// In trees: the way up is a function of the source's place.
    SModK,
    /// In grids and tori: one dimension after the other, the shorter way round.
    DimensionOrder,
    /// Fewest hops with weights of what is routed already, and lanes that break cycles.
    Dfsssp,
    /// Fewest hops, a lane higher with each cable between switches.
    Hops,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::MinHop,
        Self::UpDown,
        Self::FatTree,
        Self::DModK,
        Self::SModK,
        Self::DimensionOrder,
        Self::Dfsssp,
        Self::Hops,
    ];

    /// As it is typed; OpenSM's names where it has the engine.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MinHop => "minhop",
            Self::UpDown => "updn",
            Self::FatTree => "ftree",
            Self::DModK => "d-mod-k",
            Self::SModK => "s-mod-k",
            Self::DimensionOrder => "dor",
            Self::Dfsssp => "dfsssp",
            Self::Hops => "hops",
        }
    }
}

impl FromStr for Engine {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|e| e.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|e| e.name()).collect();
            format!(
                "'{text}' is no routing; expected one of {}",
                names.join(", ")
            )
        })
    }
}

/// A routing engine with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Which.
    pub engine: Engine,
    /// Destinations are taken in an order shuffled by this seed, as LIDs are not in the order of ports in a
    /// fabric that has grown; `None`: in the order of hosts. For minhop, updn, dfsssp and hops.
    pub lid_seed: Option<u64>,
    /// Of ports with equally few destinations one is drawn; `None`: the lowest. For minhop, updn and hops.
    pub tie_seed: Option<u64>,
    /// Switches that are up for updn and the trees; empty: found, see [`Engine::UpDown`]'s module.
    pub roots: Vec<u32>,
    /// Sizes of a grid for dimension order, fastest-changing last; switches are numbered through it.
    pub sizes: Vec<u32>,
    /// Virtual lanes that may be used; `None`: all that every cable has. With 1, engines that need more give
    /// their ways without lanes, which can wait for each other for ever.
    pub lanes: Option<u8>,
}

impl From<Engine> for Manager {
    fn from(engine: Engine) -> Self {
        Self {
            engine,
            lid_seed: None,
            tie_seed: None,
            roots: Vec::new(),
            sizes: Vec::new(),
            lanes: None,
        }
    }
}

impl Manager {
    /// Fewest hops as a grown fabric has them: LIDs in no order, and ties drawn.
    pub fn min_hop(seed: u64) -> Self {
        Self {
            lid_seed: Some(seed),
            tie_seed: Some(seed.wrapping_add(1)),
            ..Engine::MinHop.into()
        }
    }
}

/// Tables of a whole fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    hosts: usize,
    /// Port of switch s towards host h at s * hosts + h; [`NO_WAY`], or [`BY_SOURCE`].
    table: Vec<u8>,
    /// Port of switch s for what host h sends, where `table` says so; empty when it never does.
    by_source: Vec<u8>,
    lanes: Lanes,
    /// Switch of each host.
    home: Vec<u32>,
}

/// Virtual lane of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lanes {
    /// All on lane 0.
    One,
    /// One for the whole way, by the source's switch and the destination: at switch * hosts + to.
    Pair { of: Vec<u8>, used: u8 },
    /// 0 up to the first cable between switches, then one more with each.
    Hop { used: u8 },
}

impl Routes {
    /// Tables as [`FabricSpec::routing`] asks for them.
    ///
    /// # Errors
    /// Two hosts have no way to each other; a given table leads round or nowhere; the engine cannot be used on this
    /// fabric, or needs more lanes than there are.
    pub fn new(spec: &FabricSpec) -> Result<Self, SpecError> {
        let graph = Graph::new(spec);
        match &spec.routing {
            Routing::MinHop => Self::managed(spec, &graph, &Engine::MinHop.into()),
            Routing::Managed(manager) => Self::managed(spec, &graph, manager),
            Routing::Table(given) => {
                check_table(spec, &graph, given)?;
                Ok(Self::of_table(&graph, given.clone()))
            }
        }
    }

    fn managed(spec: &FabricSpec, graph: &Graph, manager: &Manager) -> Result<Self, SpecError> {
        graph.check_connected()?;
        let lanes = manager.lanes.unwrap_or(u8::MAX).min(lanes_of_all(spec));
        if lanes == 0 {
            return whole("no virtual lane to route on");
        }
        match manager.engine {
            Engine::MinHop => Ok(Self::of_table(graph, minimal::counted(graph, manager))),
            Engine::UpDown => Ok(Self::of_table(graph, updown::counted(graph, manager)?)),
            Engine::FatTree => Ok(Self::of_table(graph, tree::counted(graph, manager)?)),
            Engine::DModK => Ok(Self::of_table(graph, tree::by_destination(graph, manager)?)),
            Engine::SModK => {
                let (table, by_source) = tree::by_source(graph, manager)?;
                Ok(Self {
                    by_source,
                    ..Self::of_table(graph, table)
                })
            }
            Engine::DimensionOrder => dimension::routes(graph, manager, lanes),
            Engine::Dfsssp => dfsssp::routes(graph, manager, lanes),
            Engine::Hops => minimal::by_hops(graph, manager, lanes),
        }
    }

    fn of_table(graph: &Graph, table: Vec<u8>) -> Self {
        Self {
            hosts: graph.hosts(),
            table,
            by_source: Vec::new(),
            lanes: Lanes::One,
            home: graph.homes().to_vec(),
        }
    }

    /// Port by which a packet of host `from` for host `to` leaves a switch; a value that is no port where there is
    /// no way.
    #[inline]
    pub fn port(&self, switch: u32, from: u32, to: u32) -> u8 {
        let row = switch as usize * self.hosts;
        let port = self.table[row + to as usize];
        if port == BY_SOURCE && !self.by_source.is_empty() {
            return self.by_source[row + from as usize];
        }
        port
    }

    /// Virtual lane of the packet on cable `hop` of its way, the host's own being 0.
    #[inline]
    pub fn lane(&self, from: u32, to: u32, hop: usize) -> u8 {
        match &self.lanes {
            Lanes::One => 0,
            Lanes::Pair { of, .. } => {
                let home = self.home[from as usize] as usize;
                of.get(home * self.hosts + to as usize)
                    .copied()
                    .unwrap_or(0)
            }
            Lanes::Hop { used } => {
                let between = hop.saturating_sub(1);
                u8::try_from(between).map_or(used - 1, |lane| lane.min(used - 1))
            }
        }
    }

    /// The same ways, all on lane 0.
    pub fn on_one_lane(self) -> Self {
        Self {
            lanes: Lanes::One,
            ..self
        }
    }

    /// Virtual lanes that are used: those below this number.
    pub const fn lanes(&self) -> u8 {
        match &self.lanes {
            Lanes::One => 1,
            Lanes::Pair { used, .. } | Lanes::Hop { used } => *used,
        }
    }

    /// True when the lane changes on the way.
    pub const fn lanes_by_hop(&self) -> bool {
        matches!(self.lanes, Lanes::Hop { .. })
    }

    /// True when a way depends on its source beyond the lane, so that no table by destination holds it.
    pub const fn depends_on_source(&self) -> bool {
        !self.by_source.is_empty()
    }

    /// Switch of a host; `None` for one joined to a host.
    pub fn home(&self, host: u32) -> Option<u32> {
        let home = self.home[host as usize];
        (home != graph::NONE).then_some(home)
    }

    /// The same ways on a fabric with more ports: those of each switch by their numbers here.
    pub(crate) fn with_ports(mut self, own: &[Vec<u8>]) -> Self {
        let hosts = self.hosts.max(1);
        for table in [&mut self.table, &mut self.by_source] {
            for (row, own) in table.chunks_mut(hosts).zip(own) {
                for port in row {
                    // What is no port stays so.
                    *port = own.get(usize::from(*port)).copied().unwrap_or(*port);
                }
            }
        }
        self
    }

    /// Port of switch s towards host h at s * hosts + h.
    pub fn table(&self) -> &[u8] {
        &self.table
    }

    /// Outgoing channels (link * 2 + way) from a host to another, appended to `found`; false, and only a part of them,
    /// when the way does not end there.
    pub fn way(&self, graph: &Graph, from: u32, to: u32, found: &mut Vec<u32>) -> bool {
        let hosts = self.hosts;
        let (mut node, first) = graph.port(from as usize, 0);
        found.push(first);
        for _ in 0..=graph.switches() {
            let node_at = node as usize;
            if node_at < hosts {
                return node == to;
            }
            let Ok(switch) = u32::try_from(node_at - hosts) else {
                return false;
            };
            let port = usize::from(self.port(switch, from, to));
            if port >= graph.ports(node_at) {
                return false;
            }
            let (next, channel) = graph.port(node_at, port);
            found.push(channel);
            node = next;
        }
        false
    }

    /// A cycle of buffers that can wait for each other for ever, if the tables allow one.
    ///
    /// The channel dependency graph of W. Dally and C. Seitz, "Deadlock-free message routing in multiprocessor
    /// interconnection networks", IEEE Trans. Computers C-36, 1987: ways without a cycle in it cannot lock up.
    pub fn cycle(&self, graph: &Graph) -> Option<Cycle> {
        deadlock::find(graph, self)
    }
}

/// Lanes that every cable between two parts has.
pub(crate) fn lanes_of_all(spec: &FabricSpec) -> u8 {
    let all = spec.links.iter().map(|link| spec.lanes(link));
    all.min().unwrap_or(0)
}

/// Follows a given table from every switch that has hosts, so that no packet goes round or leaves by a port that is not
/// there. What leads to a destination is followed once: O(switches) for each.
fn check_table(spec: &FabricSpec, graph: &Graph, given: &[u8]) -> Result<(), SpecError> {
    let hosts = spec.hosts.len();
    let switches = spec.switches.len();
    if given.len() != hosts * switches {
        return whole("the table of routes has another size than its fabric");
    }
    graph.check_connected()?;
    let leaves = graph.leaves();
    // The last destination that each switch was found to lead to.
    let mut leads_to = vec![usize::MAX; switches];
    let mut way = Vec::new();
    for to in 0..hosts {
        for (leaf, of) in &leaves {
            let wrong = |problem: &str| {
                let from = of.first().map_or(0, |host| graph::small(*host));
                Err(at(
                    Place::Host(from),
                    format!("its way to host {to} {problem}"),
                ))
            };
            way.clear();
            let mut node = hosts + leaf;
            while node >= hosts && leads_to[node - hosts] != to {
                if way.len() >= switches {
                    return wrong("goes round and does not end at its host");
                }
                let switch = node - hosts;
                way.push(switch);
                let port = usize::from(given[switch * hosts + to]);
                if port >= graph.ports(node) {
                    let named = graph::small(switch);
                    return Err(at(
                        Place::Switch(named),
                        format!(
                            "its table has no port for host {to}, which packets come by here for"
                        ),
                    ));
                }
                node = graph.port(node, port).0 as usize;
            }
            if node < hosts && node != to {
                return wrong("does not end at its host");
            }
            for switch in &way {
                leads_to[*switch] = to;
            }
        }
    }
    Ok(())
}

fn whole<T>(problem: impl Into<String>) -> Result<T, SpecError> {
    Err(at(Place::Whole, problem))
}

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

/// No way: the switch is cut off.
pub const NO_WAY: u8 = u8::MAX;
/// The port depends on the source. No chip has as many ports.
const BY_SOURCE: u8 = u8::MAX - 1;
const _: () = assert!(crate::spec::PORTS_MAX < BY_SOURCE);
