//! Regular fabrics by a few words: which shape, of which chips, how many hosts, how their tables are filled.
//!
//! Ranks are given out in the order of hosts, which is that of the ports unless they are scattered. A subnet manager meets
//! hosts in another order, that of its sweep, in which tables of fewest hops are filled: `lids = "random"` draws one.
//! `ties = "random"` draws among ports that are equally free, as if chips were cabled each in its own order.

use fabric::ethernet::Ethernet;
use fabric::import;
use fabric::link::Cable;
use fabric::route::{Engine, Manager, Routes};
use fabric::selection::Dca;
use fabric::topology::{Director, FatTree, Network, Parts, Placement, Topology as Shape};
use fabric::{FabricSpec, Node, Queueing, Routing, Selection, SpecError, SwitchSpec};
use spans::Spanned;
use units::{Duration, Rng};

use crate::Names;
use crate::check::{Checked, How, Kinds, Refusal, refuse};
use crate::failing::Failing;
use crate::raw::{Of, RawDca, RawTopology};

/// How a regular fabric is made.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Where parts and cables come from.
    pub source: Source,
    /// As a person says it.
    pub words: String,
    /// Hosts that are plugged in.
    pub hosts: u32,
    /// Into any ports, drawn, not one after the other.
    pub scattered: bool,
    /// How tables are filled.
    pub engine: Engine,
    /// In a drawn order of hosts.
    pub lids_drawn: bool,
    /// With a drawn port of those that are equally free.
    pub ties_drawn: bool,
    /// Whether packets keep to the tables.
    pub selection: Selection,
    /// As it was typed.
    pub selection_name: &'static str,
    /// Where they wait in chips.
    pub queueing: Queueing,
    /// What is drawn is drawn from this.
    pub seed: u64,
    parts: Parts,
    /// To hosts, inside a box, between boxes.
    cable_names: [String; 3],
    lanes: u8,
    ethernet: Option<Ethernet>,
    failing: Option<Failing>,
}

/// Where parts and cables come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A regular shape.
    Made(Shape),
    /// A file of another program, with its tables where these were read too.
    Read(Box<Network>, Option<Vec<u8>>),
}

/// An order of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Host by host.
    Packed,
    /// Drawn.
    Random,
}

/// A fabric that was made.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its parts.
    pub spec: FabricSpec,
    /// Their names.
    pub names: Names,
    /// Links from each switch to the nearest port for hosts.
    pub tiers: Vec<u32>,
}

pub(crate) fn check(
    raw: &Spanned<RawTopology>,
    kinds: &Kinds<'_>,
    lanes: u8,
    ethernet: Option<Ethernet>,
    how: &How<'_>,
) -> Checked<Topology> {
    let place = raw;
    let raw = raw.get_ref();
    let drawn = |text: &Option<Spanned<String>>, not: &str, what: &str| match text {
        None => Ok(false),
        Some(text) if text.get_ref() == "random" => Ok(true),
        Some(text) if text.get_ref() == not => Ok(false),
        Some(text) => refuse(
            text,
            format!("{what} '{}': expected {not} or random", text.get_ref()),
        ),
    };
    let engine = match &raw.routing {
        None => Engine::MinHop,
        Some(text) => text
            .get_ref()
            .parse()
            .or_else(|problem: String| refuse(text, problem))?,
    };
    let (selection, selection_name) = selection(raw)?;
    let inner = raw.inner_cable.as_ref().unwrap_or(&raw.cable);
    let outer = raw.outer_cable.as_ref().unwrap_or(inner);
    let cables = [&raw.cable, inner, outer];
    let of = |n: usize| kinds.cable(cables[n]).copied();
    let parts = Parts {
        host: *kinds.host(&raw.host)?,
        chip: *kinds.switch(&raw.chip)?,
        host_cable: of(0)?,
        inner_cable: of(1)?,
        outer_cable: of(2)?,
    };
    let (source, words, hosts) = source(raw, &parts, how)?;
    let topology = Topology {
        source,
        words,
        hosts,
        scattered: drawn(&raw.placement, "packed", "placement")?,
        engine,
        lids_drawn: drawn(&raw.lids, "in-order", "lids")?,
        ties_drawn: drawn(&raw.ties, "lowest", "ties")?,
        selection,
        selection_name,
        queueing: match raw.queueing.as_ref().map(|q| q.get_ref().as_str()) {
            None | Some("input") => Queueing::Input,
            Some("virtual-output") => Queueing::VirtualOutput,
            Some("output") => Queueing::Output,
            Some(other) => {
                let problem =
                    format!("queueing '{other}': expected input, virtual-output or output");
                return refuse(raw.queueing.as_ref().unwrap_or(&raw.kind), problem);
            }
        },
        seed: raw.seed.as_ref().map_or(1, |s| *s.get_ref()),
        parts,
        cable_names: cables.map(|c| c.get_ref().clone()),
        lanes,
        ethernet,
        failing: None,
    };
    let room = topology.ports();
    if topology.hosts < 2 || topology.hosts > room.min(HOSTS_MAX) {
        let problem = format!(
            "{} hosts; this fabric has ports for {room}, and a file may have 2 to {HOSTS_MAX}",
            topology.hosts
        );
        return match &raw.hosts {
            Some(hosts) => refuse(hosts, problem),
            None => refuse(&raw.kind, problem),
        };
    }
    match topology.try_build(0) {
        Ok(_) => Ok(topology),
        Err(error) => refuse(place, error.to_string()),
    }
}

/// Parts and cables, in words, and how many hosts.
fn source(raw: &RawTopology, parts: &Parts, how: &How<'_>) -> Checked<(Source, String, u32)> {
    let kind = raw.kind.get_ref().as_str();
    let import = match kind {
        "ibnetdiscover" => import::ibnetdiscover,
        "edges" => import::edges,
        _ => {
            if let Some(stray) = raw.file.as_ref().or(raw.lfts.as_ref()) {
                let problem = "'file' and 'lfts' are of the kinds ibnetdiscover and edges";
                return refuse(stray, problem);
            }
            let (shape, words) = shape(raw, &parts.chip)?;
            let Some(hosts) = &raw.hosts else {
                return refuse(&raw.kind, "expected how many 'hosts' are plugged in");
            };
            return Ok((Source::Made(shape), words, *hosts.get_ref()));
        }
    };
    let Some(file) = &raw.file else {
        return refuse(&raw.kind, format!("{kind}: expected its 'file'"));
    };
    if let Some(hosts) = &raw.hosts {
        return refuse(hosts, "hosts are those of the file");
    }
    if let Some(placement) = &raw.placement {
        return refuse(placement, "hosts are where the file has them");
    }
    // Keys of shapes.
    shape(raw, &parts.chip)?;
    let text = |file: &Spanned<String>| {
        (how.read)(file.get_ref())
            .or_else(|problem| refuse(file, format!("{}: {problem}", file.get_ref())))
    };
    let wrong = |file: &Spanned<String>, error: &import::ImportError| Refusal {
        at: file.span().start,
        problem: format!("{}: {error}", file.get_ref()),
    };
    let found = import(&text(file)?, parts).map_err(|error| wrong(file, &error))?;
    let mut words = format!("read from {}", file.get_ref());
    let tables = match &raw.lfts {
        None => None,
        Some(lfts) => {
            if let Some(routing) = &raw.routing {
                return refuse(routing, "routes are those of 'lfts'");
            }
            let tables = import::lfts(&text(lfts)?, &found).map_err(|error| wrong(lfts, &error))?;
            words = format!("{words}, tables from {}", lfts.get_ref());
            Some(tables)
        }
    };
    let hosts = u32::try_from(found.network.spec.hosts.len()).unwrap_or(u32::MAX);
    Ok((Source::Read(Box::new(found.network), tables), words, hosts))
}

fn selection(raw: &RawTopology) -> Checked<(Selection, &'static str)> {
    let Some(name) = &raw.selection else {
        return Ok((Selection::Static, "static"));
    };
    let gap = raw.flowlet_gap.as_ref();
    let gap_ps = gap.map_or(FLOWLET_GAP_PS, |gap| {
        gap.get_ref().0.as_ns().saturating_mul(1_000)
    });
    Ok(match name.get_ref().as_str() {
        "static" => (Selection::Static, "static"),
        "ecmp" => (Selection::Ecmp, "ecmp"),
        "spray" => (Selection::Spray, "spray"),
        "round-robin" => (Selection::RoundRobin, "round-robin"),
        "drill" => {
            let two_and_one = Selection::Drill {
                draws: 2,
                memory: 1,
            };
            (two_and_one, "drill")
        }
        "flowlet" => (Selection::Flowlet { gap_ps }, "flowlet"),
        "valiant" => (Selection::Valiant, "valiant"),
        "ugal" => (Selection::Ugal { bias_bytes: 0 }, "ugal"),
        "dca" => (Selection::Dca(dca(raw.dca.as_ref())?), "dca"),
        other => {
            let problem = format!(
                "there is no selection '{other}'; expected static, ecmp, spray, round-robin, drill, flowlet, valiant, ugal or dca"
            );
            return refuse(name, problem);
        }
    })
}

fn dca(raw: Option<&Spanned<RawDca>>) -> Checked<Dca> {
    let mut rule = Dca::default();
    let Some(raw) = raw.map(Spanned::get_ref) else {
        return Ok(rule);
    };
    let ps = |value: &Option<Of<Duration>>, default: u64| {
        let given = value.as_ref();
        given.map_or(default, |v| v.get_ref().0.as_ns().saturating_mul(1_000))
    };
    let number = |value: &Option<Spanned<u32>>, default: u8, most: u32, what: &str| {
        let found = crate::check::between(value.as_ref(), default.into(), most, what)?;
        Ok(u8::try_from(found).unwrap_or(u8::MAX))
    };
    rule.period_ps = ps(&raw.period, rule.period_ps);
    rule.lost_after_ps = ps(&raw.lost_after, rule.lost_after_ps.max(rule.period_ps));
    rule.threshold_ps = ps(&raw.threshold, rule.threshold_ps);
    rule.hold_ps = ps(&raw.hold, rule.hold_ps);
    rule.paths = number(&raw.paths, rule.paths, 64, "paths")?;
    rule.mean_of = number(&raw.mean_of, rule.mean_of, 8, "mean_of")?;
    rule.venture = number(&raw.venture, rule.venture, 255, "venture")?;
    rule.clock_offset_max_ps = ps(&raw.clock_offset, rule.clock_offset_max_ps);
    Ok(rule)
}

/// The shape with the keys that belong to it.
fn shape(raw: &RawTopology, chip: &SwitchSpec) -> Checked<Shaped> {
    let kind = raw.kind.get_ref().as_str();
    check_keys(raw, kind)?;
    let ports = ports(raw)?;
    let known = ports.unwrap_or(Director::PORTS_288);
    Ok(match kind {
        "back-to-back" | "ibnetdiscover" | "edges" => {
            (Shape::BackToBack, "two hosts back to back".to_owned())
        }
        "switch" => (Shape::OneSwitch, "one switch".to_owned()),
        "clos" => clos(raw, chip)?,
        "director" => director(raw, ports, known)?,
        "directors" => directors(raw, chip, known)?,
        "row" => row(raw, known)?,
        "boxes" => boxes(raw, known)?,
        "dragonfly" => dragonfly(raw)?,
        _ => torus(raw)?,
    })
}

/// Refuses a key that is of another kind of shape.
fn check_keys(raw: &RawTopology, kind: &str) -> Checked<()> {
    let keys: [(&str, &Option<Spanned<u32>>); 13] = [
        ("levels", &raw.levels),
        ("ports", &raw.ports),
        ("leaves", &raw.leaves),
        ("leaf_hosts", &raw.leaf_hosts),
        ("spines", &raw.spines),
        ("traces", &raw.traces),
        ("directors", &raw.directors),
        ("up", &raw.up),
        ("boxes", &raw.boxes),
        ("trunks", &raw.trunks),
        ("switches", &raw.switches),
        ("global", &raw.global),
        ("groups", &raw.groups),
    ];
    let allowed: &[&str] = match kind {
        "back-to-back" | "switch" => &[],
        "clos" => &["levels"],
        "director" => &["ports", "leaves", "leaf_hosts", "spines", "traces"],
        "directors" => &["ports", "leaf_hosts", "directors", "up"],
        "row" => &["ports", "boxes", "trunks"],
        "boxes" => &["ports", "boxes", "directors", "up"],
        "dragonfly" => &["switches", "leaf_hosts", "global", "groups"],
        "torus" => &["leaf_hosts"],
        "ibnetdiscover" | "edges" => &[],
        other => {
            let problem = format!(
                "there is no topology '{other}'; expected back-to-back, switch, clos, director, directors, row, boxes, dragonfly, torus, ibnetdiscover or edges"
            );
            return refuse(&raw.kind, problem);
        }
    };
    let stray = keys.iter().find_map(|(name, value)| {
        value
            .as_ref()
            .filter(|_| !allowed.contains(name))
            .map(|v| (name, v))
    });
    if let Some((name, value)) = stray {
        return refuse(value, format!("a {kind} has no key '{name}'"));
    }
    if let Some(sizes) = raw.sizes.as_ref().filter(|_| kind != "torus") {
        return refuse(sizes, format!("a {kind} has no key 'sizes'"));
    }
    Ok(())
}

/// A director that is known by its ports.
fn ports(raw: &RawTopology) -> Checked<Option<Director>> {
    let Some(ports) = &raw.ports else {
        return Ok(None);
    };
    match ports.get_ref() {
        288 => Ok(Some(Director::PORTS_288)),
        144 => Ok(Some(Director::PORTS_144)),
        other => {
            let problem = format!(
                "ports {other}: expected 288 or 144, or leaves, leaf_hosts, spines and traces"
            );
            refuse(ports, problem)
        }
    }
}

fn get(value: &Option<Spanned<u32>>, default: u32, most: u32, what: &str) -> Checked<u32> {
    crate::check::between(value.as_ref(), default, most, what)
}

type Shaped = (Shape, String);

fn clos(raw: &RawTopology, chip: &SwitchSpec) -> Checked<Shaped> {
    let levels = get(&raw.levels, 2, LEVELS_MAX, "levels")?;
    if !chip.ports.is_multiple_of(2) || chip.ports < 4 {
        let problem = format!(
            "a Clos network of chips of {} ports; expected an even number from 4",
            chip.ports
        );
        return refuse(&raw.chip, problem);
    }
    let words = format!("a folded Clos network of {levels} levels");
    Ok((Shape::FatTree(FatTree::full(levels, chip.ports)), words))
}

/// One whose parts are counted, but for those that are as in `default`.
fn director(raw: &RawTopology, ports: Option<Director>, default: Director) -> Checked<Shaped> {
    let own = [&raw.leaves, &raw.leaf_hosts, &raw.spines, &raw.traces];
    if let (Some(_), Some(stray)) = (ports, own.iter().find_map(|k| k.as_ref())) {
        return refuse(stray, "'ports' stands for this");
    }
    let director = Director {
        leaves: get(&raw.leaves, default.leaves, PARTS_MAX, "leaves")?,
        ports: get(&raw.leaf_hosts, default.ports, PARTS_MAX, "leaf_hosts")?,
        spines: get(&raw.spines, default.spines, PARTS_MAX, "spines")?,
        traces: get(&raw.traces, default.traces, PARTS_MAX, "traces")?,
    };
    let ports = director.leaves * director.ports;
    Ok((
        Shape::Director(director),
        format!("a director of {ports} ports"),
    ))
}

fn directors(raw: &RawTopology, chip: &SwitchSpec, known: Director) -> Checked<Shaped> {
    let half = u32::from(chip.ports / 2);
    let directors = get(&raw.directors, 2, PARTS_MAX, "directors")?;
    let shape = Shape::Directors {
        director: known,
        directors,
        down: get(&raw.leaf_hosts, half, PARTS_MAX, "leaf_hosts")?,
        up: get(&raw.up, half, PARTS_MAX, "up")?,
    };
    let words = format!(
        "edge switches below {directors} directors of {} ports",
        known.leaves * known.ports
    );
    Ok((shape, words))
}

fn row(raw: &RawTopology, known: Director) -> Checked<Shaped> {
    let boxes = get(&raw.boxes, 2, PARTS_MAX, "boxes")?;
    let shape = Shape::Row {
        director: known,
        boxes,
        trunks: get(&raw.trunks, 12, PARTS_MAX, "trunks")?,
    };
    let ports = known.leaves * known.ports;
    let words = match boxes {
        1 => format!("a director of {ports} ports"),
        _ => format!("{boxes} directors of {ports} ports in a row"),
    };
    Ok((shape, words))
}

fn boxes(raw: &RawTopology, known: Director) -> Checked<Shaped> {
    let shape = Shape::Boxes {
        director: known,
        boxes: get(&raw.boxes, 2, PARTS_MAX, "boxes")?,
        core: get(&raw.directors, 1, PARTS_MAX, "directors")?,
        up: get(&raw.up, 96, PARTS_MAX, "up")?,
    };
    let ports = known.leaves * known.ports;
    Ok((shape, format!("directors of {ports} ports below others")))
}

fn dragonfly(raw: &RawTopology) -> Checked<Shaped> {
    let shape = Shape::Dragonfly {
        switches: get(&raw.switches, 4, PARTS_MAX, "switches")?,
        hosts: get(&raw.leaf_hosts, 2, PARTS_MAX, "leaf_hosts")?,
        global: get(&raw.global, 2, PARTS_MAX, "global")?,
        groups: raw.groups.as_ref().map_or(0, |g| *g.get_ref()),
    };
    Ok((shape, "a dragonfly".to_owned()))
}

fn torus(raw: &RawTopology) -> Checked<Shaped> {
    let sizes = match &raw.sizes {
        None => vec![4, 4],
        Some(sizes) => {
            let all = sizes.get_ref();
            let fine = |n: &u32| (1..=PARTS_MAX).contains(n);
            if all.is_empty() || all.len() > 3 || !all.iter().all(fine) {
                let problem = format!("sizes: expected 1 to 3 numbers of 1 to {PARTS_MAX}");
                return refuse(sizes, problem);
            }
            all.clone()
        }
    };
    let words: Vec<String> = sizes.iter().map(u32::to_string).collect();
    let words = format!("a torus of {} switches", words.join(" x "));
    let hosts = get(&raw.leaf_hosts, 1, PARTS_MAX, "leaf_hosts")?;
    Ok((Shape::Torus { sizes, hosts }, words))
}

impl Topology {
    /// Ports for hosts.
    pub fn ports(&self) -> u32 {
        match &self.source {
            Source::Made(shape) => shape.capacity(&self.parts.chip),
            Source::Read(..) => self.hosts,
        }
    }

    /// How tables are filled, as it is typed.
    pub const fn routing(&self) -> &'static str {
        match self.source {
            Source::Read(_, Some(_)) => "its own tables",
            _ => self.engine.name(),
        }
    }

    /// True where ways up and down a tree are the only ones.
    pub const fn is_tree(&self) -> bool {
        matches!(
            self.source,
            Source::Made(
                Shape::FatTree(_)
                    | Shape::Director(_)
                    | Shape::Directors { .. }
                    | Shape::Boxes { .. }
            )
        )
    }

    /// The fabric as the `n`-th of the seeds draws it.
    ///
    /// # Panics
    /// Never for a topology that was checked: another seed draws another order of the same parts.
    pub fn build(&self, n: u64) -> Built {
        match self.try_build(n) {
            Ok(built) => built,
            Err(error) => panic!("a topology that was checked: {error}"),
        }
    }

    /// With links that fail.
    pub(crate) fn with(mut self, failing: Failing) -> Result<Self, SpecError> {
        self.failing = Some(failing);
        self.try_build(0).map(|_| self)
    }

    fn try_build(&self, n: u64) -> Result<Built, SpecError> {
        let seed = self.seed.wrapping_add(n).wrapping_mul(SEED_MIX);
        let placement = match self.scattered {
            true => Placement::Scattered(seed ^ 1),
            false => Placement::InOrder,
        };
        let network = match &self.source {
            Source::Made(shape) => shape.build(&self.parts, Some(self.hosts), placement)?,
            Source::Read(network, _) => Network::clone(network),
        };
        let mut spec = network.spec;
        spec.operational_lanes = self.lanes;
        spec.selection = self.selection;
        spec.ethernet = self.ethernet;
        spec.queueing = self.queueing;
        spec.seed = seed;
        let base = match &spec.routing {
            Routing::Managed(manager) => manager.clone(),
            _ => self.engine.into(),
        };
        spec.routing = Routing::Managed(Manager {
            engine: self.engine,
            lid_seed: self.lids_drawn.then_some(seed ^ 2),
            tie_seed: self.ties_drawn.then_some(seed ^ 3),
            ..base
        });
        if let Source::Read(_, Some(tables)) = &self.source {
            spec.routing = Routing::Table(tables.clone());
        }
        let managed = spec.routing.clone();
        // Found once for all steps.
        let routes = Routes::new(&spec)?;
        if routes.lanes() == 1 && !routes.depends_on_source() {
            spec.routing = Routing::Table(routes.table().to_vec());
        }
        let switches = network.names.switches().iter();
        let switches: Vec<String> = switches.map(|name| name.replace(' ', "-")).collect();
        // A link is spoken of as name:port/name:port.
        let plain = |name: &String| name.replace([' ', '/', ':'], "-");
        let switches: Vec<String> = switches.iter().map(plain).collect();
        let hosts: Vec<String> = match &self.source {
            Source::Made(_) => (0..spec.hosts.len()).map(|n| format!("n{n}")).collect(),
            Source::Read(..) => network.names.hosts().iter().map(plain).collect(),
        };
        let end = |link: u32, end: usize| {
            let node = spec.links[link as usize].ends[end];
            let said = network.names.end(&spec, link, end);
            match node {
                Node::Host(n) => hosts[n as usize].clone(),
                Node::Switch(n) => {
                    let port = said.rsplit(' ').next().unwrap_or_default();
                    format!("{}:{port}", switches[n as usize])
                }
            }
        };
        let links = (0_u32..).take(spec.links.len());
        let links = links
            .map(|n| format!("{}/{}", end(n, 0), end(n, 1)))
            .collect();
        let cable = |cable: &Cable| {
            let all = [
                self.parts.host_cable,
                self.parts.inner_cable,
                self.parts.outer_cable,
            ];
            let found = all.iter().position(|c| c == cable).unwrap_or(0);
            self.cable_names[found].clone()
        };
        let cables = spec.links.iter().map(|l| cable(&l.cable)).collect();
        let tiers = self.tiers(&spec);
        let names = Names {
            hosts,
            switches,
            links,
            cables,
        };
        if let Some(failing) = &self.failing {
            let tables = std::mem::replace(&mut spec.routing, managed);
            let faults = failing.of(&spec, &names)?;
            spec.faults = Some(std::sync::Arc::new(faults));
            spec.routing = tables;
        }
        Ok(Built { names, spec, tiers })
    }

    /// As if every port for hosts were used: a leaf without hosts is a leaf.
    fn tiers(&self, spec: &FabricSpec) -> Vec<u32> {
        let Source::Made(shape) = &self.source else {
            return tiers(spec);
        };
        match shape.build(&self.parts, None, Placement::InOrder) {
            Ok(full) if full.spec.switches.len() == spec.switches.len() => tiers(&full.spec),
            _ => tiers(spec),
        }
    }
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
/// As LetFlow's for TCP (E. Vanini et al., NSDI 2017).
const FLOWLET_GAP_PS: u64 = 500_000_000;
const LEVELS_MAX: u32 = 4;
const PARTS_MAX: u32 = 4_096;
/// Apart from each other: what neighbouring seeds draw.
const SEED_MIX: u64 = 0x9e37_79b9_7f4a_7c15;
