//! Regular fabrics by a few words: how many hosts, of which chips, in how many levels, and where hosts are plugged in.
//!
//! A fabric is made full and then loses the ports that nobody uses, so that a partly filled director has all its
//! spines. Hosts carry two numbers: that of their place (`n0`, `n1`, … leaf by leaf), by which ranks are given out, and
//! that of the fabric, which stands for the LID: tables are filled in its order. A subnet manager meets hosts in the
//! order of its sweep, not in that of the ports; `lids = "random"` draws such an order from the seed.

use fabric::link::Cable;
use fabric::{FabricSpec, HostSpec, LinkSpec, Node, Routing, SwitchSpec, topology};
use toml::Spanned;
use units::Rng;

use crate::Names;
use crate::check::{Checked, Kinds, between, refuse};
use crate::raw::RawTopology;

/// How a regular fabric is made.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Shape.
    pub kind: Shape,
    /// Hosts that are plugged in.
    pub hosts: u32,
    /// Which ports they are plugged into.
    pub placement: Order,
    /// How tables are filled.
    pub routes: Routes,
    /// In which order the subnet manager met the hosts.
    pub lids: Order,
    /// What is drawn is drawn from this.
    pub seed: u64,
    host: HostSpec,
    chip: SwitchSpec,
    /// To hosts, and between chips.
    cables: [Cable; 2],
    cable_names: [String; 2],
    lanes: u8,
}

/// Shape of a regular fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One chip.
    Switch,
    /// A folded Clos network of 2 or 3 levels.
    Clos(u32),
}

impl Shape {
    /// As a person says it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Switch => "one switch",
            Self::Clos(2) => "folded Clos, 2 levels,",
            Self::Clos(_) => "folded Clos, 3 levels,",
        }
    }
}

/// An order of hosts or ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Leaf by leaf.
    Packed,
    /// One on every leaf, then the next.
    Spread,
    /// Drawn.
    Random,
}

/// How the tables of a regular fabric are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routes {
    /// Shortest way, the port with the fewest destinations so far.
    MinHop,
    /// By the destination's port.
    DModK,
}

impl Routes {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MinHop => "minhop",
            Self::DModK => "d-mod-k",
        }
    }
}

/// A fabric that was made.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its parts.
    pub spec: FabricSpec,
    /// Their names.
    pub names: Names,
    /// Host of each place: `places[3]` is the number of host `n3`.
    pub places: Vec<u32>,
    /// Links from each switch to the nearest port for hosts.
    pub tiers: Vec<u32>,
}

pub(crate) fn check(raw: &Spanned<RawTopology>, kinds: &Kinds<'_>, lanes: u8) -> Checked<Topology> {
    let raw = raw.get_ref();
    let word = |text: &Option<Spanned<String>>, default: Order, what: &str| match text {
        None => Ok(default),
        Some(text) => match text.get_ref().as_str() {
            "packed" => Ok(Order::Packed),
            "spread" => Ok(Order::Spread),
            "random" => Ok(Order::Random),
            other => refuse(
                text,
                format!("{what} '{other}': expected packed, spread or random"),
            ),
        },
    };
    let levels = between(raw.levels.as_ref(), 2, 3, "levels")?;
    let kind = match raw.kind.get_ref().as_str() {
        "switch" => Shape::Switch,
        "clos" if levels < 2 => return refuse(&raw.kind, "levels: expected 2 or 3"),
        "clos" => Shape::Clos(levels),
        other => {
            return refuse(
                &raw.kind,
                format!("there is no topology '{other}'; expected switch or clos"),
            );
        }
    };
    let chip = *kinds.switch(&raw.chip)?;
    let cable = *kinds.cable(&raw.cable)?;
    let inner = raw.inner_cable.as_ref().unwrap_or(&raw.cable);
    let routes = match raw.routing.as_ref().map(|r| r.get_ref().as_str()) {
        None | Some("minhop") => Routes::MinHop,
        Some("d-mod-k") => Routes::DModK,
        Some(other) => {
            let problem = format!("there is no routing '{other}'; expected minhop or d-mod-k");
            return refuse(raw.routing.as_ref().unwrap_or(&raw.kind), problem);
        }
    };
    let topology = Topology {
        kind,
        hosts: *raw.hosts.get_ref(),
        placement: word(&raw.placement, Order::Packed, "placement")?,
        routes,
        lids: word(&raw.lids, Order::Packed, "lids")?,
        seed: raw.seed.as_ref().map_or(1, |s| *s.get_ref()),
        host: *kinds.host(&raw.host)?,
        chip,
        cables: [cable, *kinds.cable(inner)?],
        cable_names: [raw.cable.get_ref().clone(), inner.get_ref().clone()],
        lanes,
    };
    if let Shape::Clos(_) = kind
        && (!chip.ports.is_multiple_of(2) || chip.ports < 4 || chip.ports > CLOS_PORTS_MAX)
    {
        let problem = format!(
            "a Clos network of chips of {} ports; expected an even number of 4 to {CLOS_PORTS_MAX}",
            chip.ports
        );
        return refuse(&raw.chip, problem);
    }
    let room = topology.ports();
    if topology.hosts < 2 || topology.hosts > room {
        let problem = format!(
            "{} hosts; this fabric has ports for 2 to {room}",
            topology.hosts
        );
        return refuse(&raw.hosts, problem);
    }
    if topology.hosts > HOSTS_MAX {
        return refuse(&raw.hosts, format!("hosts: expected at most {HOSTS_MAX}"));
    }
    Ok(topology)
}

impl Topology {
    /// Ports for hosts.
    pub fn ports(&self) -> u32 {
        let half = u32::from(self.chip.ports / 2);
        match self.kind {
            Shape::Switch => u32::from(self.chip.ports),
            Shape::Clos(2) => 2 * half * half,
            Shape::Clos(_) => 2 * half * half * half,
        }
    }

    /// The fabric as the `n`-th of the seeds draws it.
    pub fn build(&self, n: u64) -> Built {
        let full = self.full();
        let mut rng = Rng::new(self.seed.wrapping_add(n));
        let ports = self.plugged(&full, &mut rng);
        let mut lids: Vec<u32> = (0..self.hosts).collect();
        if self.lids == Order::Random {
            shuffle(&mut lids, &mut rng);
        }
        let mut places = vec![0; lids.len()];
        for (host, place) in (0..).zip(&lids) {
            places[*place as usize] = host;
        }
        let kept: Vec<u32> = lids.iter().map(|place| ports[*place as usize]).collect();
        let (spec, ports_of) = reduced(&full, &kept);
        // Of the full fabric: a leaf without hosts is a leaf.
        let tiers = tiers(&full);
        let names = self.names(&spec, &lids, &ports_of, &tiers);
        Built {
            spec,
            names,
            places,
            tiers,
        }
    }

    /// All its ports used.
    fn full(&self) -> FabricSpec {
        let levels = match self.kind {
            Shape::Clos(levels) => levels,
            Shape::Switch => return self.star(),
        };
        let [outer, inner] = self.cables;
        let mut spec = topology::fat_tree(levels, &self.host, &self.chip, &inner);
        for link in &mut spec.links {
            if matches!(link.ends[0], Node::Host(_)) {
                link.cable = outer;
            }
        }
        spec.operational_lanes = self.lanes;
        if self.routes == Routes::MinHop {
            spec.routing = Routing::MinHop;
        }
        spec
    }

    fn star(&self) -> FabricSpec {
        let hosts = u32::from(self.chip.ports);
        FabricSpec {
            hosts: vec![self.host; hosts as usize],
            switches: vec![self.chip],
            links: (0..hosts)
                .map(|host| LinkSpec {
                    ends: [Node::Host(host), Node::Switch(0)],
                    cable: self.cables[0],
                })
                .collect(),
            operational_lanes: self.lanes,
            routing: Routing::MinHop,
        }
    }

    /// Port, as a host of the full fabric, of each place.
    fn plugged(&self, full: &FabricSpec, rng: &mut Rng) -> Vec<u32> {
        let mut ports: Vec<u32> = (0..).take(full.hosts.len()).collect();
        match self.placement {
            Order::Packed => {}
            Order::Random => shuffle(&mut ports, rng),
            Order::Spread => {
                let leaf = u32::from(self.chip.ports / 2);
                ports.sort_by_key(|port| (port % leaf, port / leaf));
            }
        }
        ports.truncate(self.hosts as usize);
        ports
    }

    fn names(
        &self,
        spec: &FabricSpec,
        lids: &[u32],
        ports_of: &[[u32; 2]],
        tiers: &[u32],
    ) -> Names {
        let highest = tiers.iter().copied().max().unwrap_or(1);
        let mut counts = vec![0_u32; highest as usize + 1];
        let switches: Vec<String> = tiers
            .iter()
            .map(|tier| {
                let n = &mut counts[*tier as usize];
                *n += 1;
                match (*tier, highest) {
                    (_, 1) => "switch".to_owned(),
                    (1, _) => format!("leaf-{n}"),
                    (t, h) if t == h => format!("spine-{n}"),
                    _ => format!("middle-{n}"),
                }
            })
            .collect();
        let hosts: Vec<String> = lids.iter().map(|place| format!("n{place}")).collect();
        let end = |node: Node, port: u32| match node {
            Node::Host(n) => hosts[n as usize].clone(),
            Node::Switch(n) => format!("{}:{}", switches[n as usize], port + 1),
        };
        let links = spec.links.iter().zip(ports_of);
        Names {
            links: links
                .clone()
                .map(|(l, [a, b])| format!("{}/{}", end(l.ends[0], *a), end(l.ends[1], *b)))
                .collect(),
            cables: links
                .map(|(l, _)| {
                    let outer = l.ends.iter().any(|e| matches!(e, Node::Host(_)));
                    self.cable_names[usize::from(!outer)].clone()
                })
                .collect(),
            hosts,
            switches,
        }
    }
}

/// The fabric with these hosts alone, numbered in this order, and the ports at which each of its links stands.
fn reduced(full: &FabricSpec, kept: &[u32]) -> (FabricSpec, Vec<[u32; 2]>) {
    let mut number = vec![None; full.hosts.len()];
    for (new, old) in (0..).zip(kept) {
        number[*old as usize] = Some(new);
    }
    let mut spec = FabricSpec {
        hosts: kept.iter().map(|old| full.hosts[*old as usize]).collect(),
        links: Vec::new(),
        ..full.clone()
    };
    let mut ports_of = Vec::new();
    // By switch: how many links it has had, and the new number of each port that is kept.
    let mut ports: Vec<Vec<Option<u8>>> = vec![Vec::new(); full.switches.len()];
    let mut left = vec![0_u8; full.switches.len()];
    for link in &full.links {
        let of = link.ends.map(|end| match end {
            Node::Host(n) => number[n as usize].map(Node::Host),
            other => Some(other),
        });
        let stays = of.iter().all(Option::is_some);
        let mut at = [0; 2];
        for (port, end) in at.iter_mut().zip(link.ends) {
            if let Node::Switch(n) = end {
                let n = n as usize;
                *port = u32::try_from(ports[n].len()).unwrap_or(0);
                ports[n].push(stays.then_some(left[n]));
                left[n] += u8::from(stays);
            }
        }
        if let [Some(a), Some(b)] = of {
            spec.links.push(LinkSpec {
                ends: [a, b],
                cable: link.cable,
            });
            ports_of.push(at);
        }
    }
    if let Routing::Table(table) = &full.routing {
        let rows = table.chunks(full.hosts.len()).zip(&ports);
        let moved = rows.flat_map(|(row, ports)| {
            kept.iter().map(move |old| {
                let port = usize::from(row[*old as usize]);
                ports.get(port).copied().flatten().unwrap_or(u8::MAX)
            })
        });
        spec.routing = Routing::Table(moved.collect());
    }
    (spec, ports_of)
}

/// Links from each switch to its nearest host.
pub fn tiers(spec: &FabricSpec) -> Vec<u32> {
    let mut tiers = vec![u32::MAX; spec.switches.len()];
    let of = |tiers: &[u32], node: Node| match node {
        Node::Host(_) => 0,
        Node::Switch(n) => tiers[n as usize],
    };
    // A pass settles all switches of a tier.
    for tier in 1.. {
        let mut found = Vec::new();
        for link in &spec.links {
            for (from, to) in [(0, 1), (1, 0)] {
                if let Node::Switch(n) = link.ends[to]
                    && tiers[n as usize] == u32::MAX
                    && of(&tiers, link.ends[from]) == tier - 1
                {
                    found.push(n);
                }
            }
        }
        if found.is_empty() {
            break;
        }
        for n in found {
            tiers[n as usize] = tier;
        }
    }
    for tier in &mut tiers {
        // Not connected: nothing passes.
        if *tier == u32::MAX {
            *tier = 1;
        }
    }
    tiers
}

pub(crate) fn shuffle<T>(all: &mut [T], rng: &mut Rng) {
    for n in (1..all.len()).rev() {
        let other = usize::try_from(rng.next_u64() % (n as u64 + 1)).unwrap_or(0);
        all.swap(n, other);
    }
}

/// Hosts of a regular fabric.
pub(crate) const HOSTS_MAX: u32 = 16_384;
/// Three levels of these have 27,648 ports.
const CLOS_PORTS_MAX: u8 = 48;
