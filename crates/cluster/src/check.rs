//! From the layout to fabrics: names, kinds, links, cases.

use std::collections::BTreeMap;

use fabric::ethernet::{Ethernet, FlowControl, Pfc};
use fabric::fluid::Alone;
use fabric::link::{Cable, CableKind, Speed};
use fabric::route::{Graph, Routes};
use fabric::{
    BusSpec, FabricSpec, FlowSpec, HostSpec, LinkSpec, Node, Place, PortSpec, Routing, Selection,
    SpecError, SwitchSpec, Transport, World,
};
pub(crate) use fault::Refusal;
use spans::{Named, Spanned};
use units::{Bytes, Duration};

use crate::failing;
use crate::pattern;
use crate::raw::{
    Of, RawCable, RawCableKind, RawCase, RawFile, RawHost, RawSwitch, RawTraffic, RawTransport,
};
use crate::topology;
use crate::{Case, Layout, Names, Study, Tier, Traffic};

pub(crate) type Checked<T> = Result<T, Refusal>;

pub(crate) fn refuse<T, S>(at: &Spanned<S>, problem: impl Into<String>) -> Checked<T> {
    Err(Refusal::new(at.span().start, problem))
}

/// What is not in the text.
pub(crate) struct How<'a> {
    /// What stands for the file's own tier.
    pub(crate) tier: Option<Tier>,
    /// Text of a file that this one names.
    pub(crate) read: &'a dyn Fn(&str) -> Result<String, String>,
}

/// The parts of a file that do not depend on its traffic.
fn limits(raw: &RawFile) -> Checked<()> {
    if raw.title.get_ref().trim().is_empty() || raw.title.get_ref().len() > 200 {
        return refuse(&raw.title, "title: expected one line of 1 to 200 bytes");
    }
    for (what, found, most) in [
        ("hosts", raw.hosts.len(), HOSTS_MAX),
        ("switches", raw.switches.len(), HOSTS_MAX),
        ("links", raw.links.len(), LINKS_MAX),
        ("cases", raw.cases.len(), CASES_MAX),
    ] {
        if found > most {
            return refuse(
                &raw.title,
                format!("{found} {what}; expected at most {most}"),
            );
        }
    }
    if let Some(topology) = &raw.topology
        && raw.hosts.len() + raw.switches.len() + raw.links.len() > 0
    {
        let problem = "a topology stands for hosts, switches and links: expected one or the other";
        return refuse(topology, problem);
    }
    Ok(())
}

/// How a file's patterns are run, unless the command says otherwise.
fn tier(raw: &RawFile) -> Checked<Tier> {
    let Some(name) = &raw.tier else {
        return Ok(Tier::default());
    };
    let all = [Tier::Packets, Tier::Flows];
    let found = all.into_iter().find(|t| t.name() == name.get_ref());
    found.map_or_else(
        || {
            let problem = format!("tier '{}': expected packets or flows", name.get_ref());
            refuse(name, problem)
        },
        Ok,
    )
}

/// A file with a pattern, as it stands.
pub(crate) fn study(raw: &RawFile, name: &str, how: &How<'_>) -> Checked<Study> {
    limits(raw)?;
    let own = tier(raw)?;
    let tier = how.tier.unwrap_or(own);
    let kinds = Kinds::new(raw)?;
    let (mut layout, hosts) = match &raw.topology {
        Some(topology) => {
            let made = topology::check(
                topology,
                &kinds,
                lanes(raw.max_op_vls.as_ref())?,
                ethernet(raw)?,
                how,
            )?;
            let hosts = made.hosts;
            (Layout::Made(made), hosts)
        }
        None => {
            let (spec, names, _) = kinds.parts(raw, None)?;
            let hosts = u32::try_from(spec.hosts.len()).unwrap_or(0);
            (Layout::Named(spec, names), hosts)
        }
    };
    layout = failing(raw, layout, tier)?;
    let study = Study {
        name: name.to_owned(),
        layout,
        traffic: pattern::check(&raw.traffic, hosts, tier, how)?,
        tier,
    };
    // The fabric and one message between its ends: tables, buffers and ports are found wanting here.
    let built = study.build(0);
    if tier == Tier::Flows && !matches!(built.spec.selection, Selection::Static) {
        let place = raw
            .topology
            .as_ref()
            .and_then(|t| t.get_ref().selection.as_ref());
        let at = place.map_or(0, |p| p.span().start);
        let problem = "flows are estimated on the ways of tables; where packets choose theirs, tier must be packets";
        return Err(Refusal {
            at,
            problem: problem.to_owned(),
        });
    }
    let all = study.sends(&built, study.traffic.nodes[0], 0, 0);
    let wrong = match tier {
        Tier::Packets => World::new(&built.spec, &all.flows).err(),
        Tier::Flows => check_flows(&built.spec, &all.flows).err(),
    };
    let Some(error) = wrong else {
        return Ok(study);
    };
    let at = match (error.place, &raw.topology) {
        (Place::Flow(_), _) => raw.traffic.span().start,
        (_, Some(topology)) => topology.span().start,
        _ => return Err(named_place(raw, &built.names, &error)),
    };
    Err(Refusal {
        at,
        problem: match error.place {
            Place::Link(n) => {
                let name = built.names.links.get(n as usize);
                format!(
                    "link {}: {}",
                    name.map_or("", String::as_str),
                    error.problem
                )
            }
            _ => error.to_string(),
        },
    })
}

/// With the links that fail.
fn failing(raw: &RawFile, layout: Layout, tier: Tier) -> Checked<Layout> {
    match layout {
        Layout::Made(made) => {
            let (spec, names) = match raw.fault.is_empty() {
                true => (FabricSpec::default(), Names::default()),
                false => {
                    let built = made.build(0);
                    (built.spec, built.names)
                }
            };
            match failing::check(raw, &spec, &names, tier)? {
                None => Ok(Layout::Made(made)),
                Some(found) => {
                    let made = made.with(found.clone());
                    made.map(Layout::Made)
                        .map_err(|e| found.refusal(&names, &e))
                }
            }
        }
        Layout::Named(mut spec, names) => {
            if let Some(found) = failing::check(raw, &spec, &names, tier)? {
                let faults = found.of(&spec, &names);
                let faults = faults.map_err(|e| found.refusal(&names, &e))?;
                spec.faults = Some(std::sync::Arc::new(faults));
            }
            Ok(Layout::Named(spec, names))
        }
    }
}

/// What a world would refuse, without its buffers and queues.
fn check_flows(spec: &FabricSpec, flows: &[FlowSpec]) -> Result<(), SpecError> {
    spec.check()?;
    let (graph, routes) = (Graph::new(spec), Routes::new(spec)?);
    let mut alone = Alone::new(spec);
    let mut way = Vec::new();
    for (n, flow) in (0..).zip(flows) {
        let wrong = |problem: String| SpecError {
            place: Place::Flow(n),
            problem,
        };
        flow.check(spec).map_err(wrong)?;
        way.clear();
        if !routes.way(&graph, flow.from, flow.to, &mut way) {
            return Err(wrong("there is no way for it".to_owned()));
        }
        if alone.of(spec, flow, &way).bytes_per_second <= 0.0 {
            return Err(wrong(
                "a buffer on its way holds no packet of it".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Names and changes of a pattern's cases.
pub(crate) fn changes(raw: &RawFile) -> Checked<Vec<Change>> {
    let mut found: Vec<Change> = Vec::new();
    if raw.cases.len() > CASES_MAX {
        let problem = format!("{} cases; expected at most {CASES_MAX}", raw.cases.len());
        return refuse(&raw.title, problem);
    }
    for case in &raw.cases {
        let own = case.get_ref();
        let name = &own.name;
        check_name(name)?;
        if found.iter().any(|c| c.name == *name.get_ref()) {
            return refuse(
                name,
                format!("there is a case '{}' already", name.get_ref()),
            );
        }
        let others = own.hosts.len() + own.switches.len() + own.cables.len();
        if others > 0 || own.max_op_vls.is_some() || own.cores.is_some() || own.transports.is_some()
        {
            let problem = "a case of a pattern has name and set = { \"key\" = value } alone";
            return refuse(name, problem);
        }
        let mut sets: Vec<_> = own
            .set
            .iter()
            .map(|(key, value)| (key.get_ref().clone(), key.span().start, value.span()))
            .collect();
        sets.sort_by_key(|(_, at, _)| *at);
        found.push(Change {
            name: name.get_ref().clone(),
            at: name.span().start,
            sets,
        });
    }
    Ok(found)
}

/// What a case of a pattern changes.
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) at: usize,
    /// Dotted key, where it stands, and where its value does.
    pub(crate) sets: Vec<(String, usize, std::ops::Range<usize>)>,
}

/// All cases of a file with traffic between two hosts.
pub(crate) fn cases(raw: &RawFile, how: &How<'_>) -> Checked<Vec<Case>> {
    limits(raw)?;
    if let (Tier::Flows, Some(place)) = (tier(raw)?, &raw.tier) {
        return refuse(place, TWO_HOSTS);
    }
    if let Some(fault) = raw.fault.first() {
        let problem =
            "curves between two hosts have a closed formula beside them: links fail under patterns";
        return refuse(fault, problem);
    }
    let kinds = Kinds::new(raw)?;
    if let Some(case) = raw.cases.iter().find(|c| !c.get_ref().set.is_empty()) {
        return refuse(&case.get_ref().name, "'set' is of the cases of a pattern");
    }
    if raw.cases.is_empty() {
        return Ok(vec![kinds.case(raw, None, how)?]);
    }
    let mut found: Vec<Case> = Vec::new();
    for case in &raw.cases {
        let name = &case.get_ref().name;
        check_name(name)?;
        if found.iter().any(|c| c.name == *name.get_ref()) {
            return refuse(
                name,
                format!("there is a case '{}' already", name.get_ref()),
            );
        }
        found.push(kinds.case(raw, Some(case), how)?);
    }
    Ok(found)
}

pub(crate) fn check_name(name: &Spanned<String>) -> Checked<()> {
    let text = name.get_ref();
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 60 || !text.chars().all(fine) {
        return refuse(name, "a name has 1 to 60 letters, digits, '-', '_' or '.'");
    }
    Ok(())
}

/// Checked kinds by name.
pub(crate) struct Kinds<'a> {
    hosts: BTreeMap<&'a str, HostSpec>,
    switches: BTreeMap<&'a str, SwitchSpec>,
    cables: BTreeMap<&'a str, Cable>,
}

impl<'a> Kinds<'a> {
    fn new(raw: &'a RawFile) -> Checked<Self> {
        let mut kinds = Self {
            hosts: BTreeMap::new(),
            switches: BTreeMap::new(),
            cables: BTreeMap::new(),
        };
        for (name, kind) in raw.host_kinds.iter() {
            check_name(name)?;
            kinds.hosts.insert(name.get_ref(), host(kind.get_ref())?);
        }
        for (name, kind) in raw.switch_kinds.iter() {
            check_name(name)?;
            kinds
                .switches
                .insert(name.get_ref(), switch(kind.get_ref())?);
        }
        for (name, kind) in raw.cables.iter() {
            check_name(name)?;
            kinds.cables.insert(name.get_ref(), cable(kind.get_ref())?);
        }
        Ok(kinds)
    }

    pub(crate) fn host(&self, name: &Spanned<String>) -> Checked<&HostSpec> {
        named(&self.hosts, name, "kind of host")
    }

    pub(crate) fn switch(&self, name: &Spanned<String>) -> Checked<&SwitchSpec> {
        named(&self.switches, name, "kind of switch")
    }

    pub(crate) fn cable(&self, name: &Spanned<String>) -> Checked<&Cable> {
        named(&self.cables, name, "cable")
    }

    /// A fabric by the names of its parts.
    fn parts<'b>(
        &self,
        raw: &'b RawFile,
        own: Option<&'b RawCase>,
    ) -> Checked<(FabricSpec, Names, BTreeMap<&'b str, Node>)> {
        static NONE: Named<Spanned<String>> = Named::new();
        let none = &NONE;
        let hosts = in_order(&raw.hosts, own.map_or(none, |c| &c.hosts), "host")?;
        let switches = in_order(&raw.switches, own.map_or(none, |c| &c.switches), "switch")?;
        let mut names = Names::default();
        let mut nodes = BTreeMap::new();
        let mut spec = FabricSpec {
            hosts: Vec::new(),
            switches: Vec::new(),
            links: Vec::new(),
            operational_lanes: lanes(
                own.and_then(|c| c.max_op_vls.as_ref())
                    .or(raw.max_op_vls.as_ref()),
            )?,
            routing: Routing::MinHop,
            ethernet: ethernet(raw)?,
            ..FabricSpec::default()
        };
        for (n, (name, kind)) in (0..).zip(hosts) {
            check_name(name)?;
            spec.hosts.push(*named(&self.hosts, &kind, "kind of host")?);
            nodes.insert(name.get_ref().as_str(), Node::Host(n));
            names.hosts.push(name.get_ref().clone());
        }
        for (n, (name, kind)) in (0..).zip(switches) {
            check_name(name)?;
            spec.switches
                .push(*named(&self.switches, &kind, "kind of switch")?);
            if nodes.insert(name.get_ref(), Node::Switch(n)).is_some() {
                return refuse(name, "a host has this name");
            }
            names.switches.push(name.get_ref().clone());
        }
        let cables = raw.links.map(|link| link.get_ref().cable.clone());
        for (name, cable) in in_order(&cables, own.map_or(none, |c| &c.cables), "link")? {
            check_name(name)?;
            let between = &raw.links[name.get_ref()].get_ref().between;
            let mut ends = [Node::Host(0); 2];
            for (end, part) in ends.iter_mut().zip(between.get_ref()) {
                let Some(node) = nodes.get(part.as_str()) else {
                    return refuse(between, format!("there is no host or switch '{part}'"));
                };
                *end = *node;
            }
            let cable_spec = *named(&self.cables, &cable, "cable")?;
            spec.links.push(LinkSpec {
                ends,
                cable: cable_spec,
            });
            names.links.push(name.get_ref().clone());
            names.cables.push(cable.get_ref().clone());
        }
        Ok((spec, names, nodes))
    }

    fn case(&self, raw: &RawFile, case: Option<&Spanned<RawCase>>, how: &How<'_>) -> Checked<Case> {
        let own = case.map(Spanned::get_ref);
        let (spec, names, traffic) = match &raw.topology {
            None => {
                let (spec, names, nodes) = self.parts(raw, own)?;
                let find = |name: &str| match nodes.get(name) {
                    Some(Node::Host(n)) => Some(*n),
                    _ => None,
                };
                let traffic = traffic(&raw.traffic, own, find)?;
                (spec, names, traffic)
            }
            Some(topology) => {
                let parts = own.map_or(0, |c| c.hosts.len() + c.switches.len() + c.cables.len());
                if let Some(case) = case.filter(|_| parts > 0) {
                    let problem =
                        "a topology's parts have no names to change: give the case another file";
                    return refuse(&case.get_ref().name, problem);
                }
                let lanes = lanes(
                    own.and_then(|c| c.max_op_vls.as_ref())
                        .or(raw.max_op_vls.as_ref()),
                )?;
                let built = topology::check(topology, self, lanes, ethernet(raw)?, how)?.build(0);
                let find = |name: &str| {
                    let found = built.names.hosts.iter().position(|n| n == name);
                    found.and_then(|n| u32::try_from(n).ok())
                };
                let traffic = traffic(&raw.traffic, own, find)?;
                (built.spec, built.names, traffic)
            }
        };
        let case = Case {
            name: own.map_or_else(|| "fabric".to_owned(), |c| c.name.get_ref().clone()),
            spec,
            names,
            traffic,
        };
        // A world is made of every flow that will run: what cannot be is found here.
        for transport in &case.traffic.transports {
            let sizes: Vec<u32> = case.traffic.sizes_of(*transport).collect();
            let flows = [sizes.first(), sizes.last()].into_iter().flatten();
            let flows: Vec<_> = flows.map(|s| case.traffic.flow(*transport, *s)).collect();
            if let Err(error) = World::new(&case.spec, &flows) {
                return Err(placed(raw, &case, &error));
            }
        }
        Ok(case)
    }
}

/// An engine's refusal with the name and line of the part.
fn placed(raw: &RawFile, case: &Case, error: &SpecError) -> Refusal {
    let refusal = named_place(raw, &case.names, error);
    let case = match raw.cases.is_empty() {
        true => String::new(),
        false => format!("case {}, ", case.name),
    };
    Refusal {
        problem: format!("{case}{}", refusal.problem),
        ..refusal
    }
}

fn named_place(raw: &RawFile, names: &Names, error: &SpecError) -> Refusal {
    fn line<T>(of: &Named<T>, name: &str) -> usize {
        let entry = of.iter().find(|(n, _)| n.get_ref() == name);
        entry.map_or(0, |(n, _)| n.span().start)
    }
    let by = |names: &[String], n: u32| names.get(n as usize).cloned().unwrap_or_default();
    let (at, part) = match error.place {
        Place::Host(n) => {
            let name = by(&names.hosts, n);
            (line(&raw.hosts, &name), format!("host {name}: "))
        }
        Place::Switch(n) => {
            let name = by(&names.switches, n);
            (line(&raw.switches, &name), format!("switch {name}: "))
        }
        Place::Link(n) => {
            let name = by(&names.links, n);
            (line(&raw.links, &name), format!("link {name}: "))
        }
        Place::Flow(_) => (raw.traffic.span().start, "traffic: ".to_owned()),
        _ => (0, String::new()),
    };
    Refusal {
        at,
        problem: format!("{part}{}", error.problem),
    }
}

/// Entries in the order of the file, with what a case puts in their place.
fn in_order<'a>(
    all: &'a Named<Spanned<String>>,
    instead: &'a Named<Spanned<String>>,
    what: &str,
) -> Checked<Vec<(&'a Spanned<String>, Spanned<String>)>> {
    if let Some(name) = instead.names().find(|name| !all.contains(name.get_ref())) {
        return refuse(name, format!("there is no {what} '{}'", name.get_ref()));
    }
    let mut entries: Vec<_> = all
        .iter()
        .map(|(name, value)| (name, instead.get(name.get_ref()).unwrap_or(value).clone()))
        .collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    Ok(entries)
}

fn named<'a, T>(all: &'a BTreeMap<&str, T>, name: &Spanned<String>, what: &str) -> Checked<&'a T> {
    let found = all.get(name.get_ref().as_str());
    found.map_or_else(
        || {
            let known: Vec<&str> = all.keys().copied().take(20).collect();
            let problem = format!(
                "there is no {what} '{}'; this file has: {}",
                name.get_ref(),
                known.join(", ")
            );
            refuse(name, problem)
        },
        Ok,
    )
}

/// Lanes by the code that subnet managers use (rdma-core, `libibmad/dump.c`).
fn lanes(code: Option<&Spanned<u8>>) -> Checked<u8> {
    let Some(code) = code else { return Ok(8) };
    match code.get_ref() {
        1 => Ok(1),
        2 => Ok(2),
        3 => Ok(4),
        4 => Ok(8),
        5 => Ok(15),
        other => refuse(
            code,
            format!("max_op_vls {other}: expected 1, 2, 3, 4 or 5, for 1, 2, 4, 8 or 15 lanes"),
        ),
    }
}

fn host(raw: &RawHost) -> Checked<HostSpec> {
    let bus = match &raw.bus {
        None => {
            let keys = [
                raw.bus_burst.as_ref().map(|k| k.span().start),
                raw.bus_cost.as_ref().map(|k| k.span().start),
                raw.bus_latency.as_ref().map(|k| k.span().start),
            ];
            if let Some(at) = keys.into_iter().flatten().next() {
                let problem = "a bus needs its rate first: bus = \"16Gb/s\"".to_owned();
                return Err(Refusal { at, problem });
            }
            None
        }
        Some(rate) => {
            let burst = raw.bus_burst.as_ref().map_or(Ok(4_096), bytes32)?;
            Some(BusSpec {
                rate: rate.get_ref().0,
                burst_bytes: burst,
                burst_ps: ps(raw.bus_cost.as_ref()),
                latency_ps: ps(raw.bus_latency.as_ref()),
            })
        }
    };
    let engine_ps = ps(raw.engine.as_ref());
    let (speed, width) = signalling(&raw.speed, raw.width)?;
    Ok(HostSpec {
        port: PortSpec {
            speed,
            width,
            buffer_bytes: raw.buffer.get_ref().0.as_u64(),
            virtual_lanes: raw.virtual_lanes.unwrap_or(8),
            credit_ps: ps(raw.credit.as_ref()),
        },
        bus,
        post_ps: ps(raw.post.as_ref()),
        engine_ps,
        engine_datagram_ps: raw.engine_ud.as_ref().map_or(engine_ps, |e| ps(Some(e))),
        prefetch_packets: raw.prefetch.unwrap_or(8),
    })
}

fn switch(raw: &RawSwitch) -> Checked<SwitchSpec> {
    let (speed, width) = signalling(&raw.speed, raw.width)?;
    Ok(SwitchSpec {
        ports: raw.ports,
        port: PortSpec {
            speed,
            width,
            buffer_bytes: raw.buffer.get_ref().0.as_u64(),
            virtual_lanes: raw.virtual_lanes.unwrap_or(8),
            credit_ps: ps(raw.credit.as_ref()),
        },
        latency_ps: ps(Some(&raw.latency)),
        store_and_forward: raw.store_and_forward,
    })
}

fn cable(raw: &RawCable) -> Checked<Cable> {
    let Some(length_mm) = crate::length_mm(raw.length.get_ref()) else {
        let problem = format!(
            "'{}' is no length; expected one such as 100m, 0.5m or 2km, 2000 km at most",
            raw.length.get_ref()
        );
        return refuse(&raw.length, problem);
    };
    Ok(Cable {
        kind: match raw.kind {
            RawCableKind::Copper => CableKind::Copper,
            RawCableKind::Fibre => CableKind::Fibre,
        },
        length_mm,
        rated: raw.rated.as_ref().map(speed).transpose()?,
        electronics_ps: ps(raw.electronics.as_ref()),
    })
}

fn traffic(
    raw: &Spanned<RawTraffic>,
    case: Option<&RawCase>,
    find: impl Fn(&str) -> Option<u32>,
) -> Checked<Traffic> {
    let place = raw;
    let raw = raw.get_ref();
    let host = |name: Option<&Spanned<String>>| {
        let Some(name) = name else {
            return refuse(
                place,
                "traffic: expected 'from' and 'to', or a 'pattern' of many hosts",
            );
        };
        let found = find(name.get_ref());
        found.map_or_else(
            || refuse(name, format!("there is no host '{}'", name.get_ref())),
            Ok,
        )
    };
    let transports = case
        .and_then(|c| c.transports.as_ref())
        .or(raw.transports.as_ref());
    let mut kinds = Vec::new();
    for transport in transports.map_or(&[RawTransport::Rc][..], Vec::as_slice) {
        let kind = match transport {
            RawTransport::Rc => Transport::Rc,
            RawTransport::Uc => Transport::Uc,
            RawTransport::Ud => Transport::Ud,
            RawTransport::Iwarp => Transport::Iwarp,
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let [least, most] = match &raw.sizes {
        None => [2, 1 << 23],
        Some(sizes) => {
            let [least, most] = sizes.get_ref().each_ref().map(|s| s.0.as_u64());
            if least == 0 || least > most || most > SIZE_MAX {
                return refuse(sizes, "sizes: expected two rising ones of 1 B to 64 MiB");
            }
            [least, most]
        }
    };
    let doubled = std::iter::successors(Some(least), |size| Some(size * 2));
    let sizes = doubled.take_while(|size| *size <= most);
    Ok(Traffic {
        from: host(raw.from.as_ref())?,
        to: host(raw.to.as_ref())?,
        transports: kinds,
        sizes: sizes.filter_map(|s| u32::try_from(s).ok()).collect(),
        latency_to_bytes: raw.latency_to.as_ref().map_or(Ok(256), bytes32)?,
        mtu_bytes: raw.mtu.as_ref().map_or(2_048, |m| *m.get_ref()),
        messages: between(raw.messages.as_ref(), 1_000, 100_000, "messages")?,
        depth: between(raw.depth.as_ref(), 300, 65_536, "depth")?,
        cores: between(
            case.and_then(|c| c.cores.as_ref()).or(raw.cores.as_ref()),
            1,
            CORES_MAX,
            "cores",
        )?,
    })
}

/// Flow control of an Ethernet; nothing where links are InfiniBand.
pub(crate) fn ethernet(raw: &RawFile) -> Checked<Option<Ethernet>> {
    let Some(raw) = raw.ethernet.as_ref().map(Spanned::get_ref) else {
        return Ok(None);
    };
    let control = match raw.control.get_ref().as_str() {
        "drop-tail" => FlowControl::DropTail,
        "credits" => FlowControl::Credits,
        "pause" => {
            let (Some(xoff), Some(xon)) = (&raw.xoff, &raw.xon) else {
                return refuse(
                    &raw.control,
                    "pauses need 'xoff' and 'xon', such as \"64KiB\"",
                );
            };
            FlowControl::Pfc(Pfc {
                xoff_bytes: bytes32(xoff)?,
                xon_bytes: bytes32(xon)?,
                respond_ps: ps(raw.respond.as_ref()),
            })
        }
        other => {
            let problem = format!("control '{other}': expected drop-tail, pause or credits");
            return refuse(&raw.control, problem);
        }
    };
    let retry_ps = match &raw.retry {
        None => Ethernet::default().retry_ps,
        Some(retry) => ps(Some(retry)),
    };
    Ok(Some(Ethernet { control, retry_ps }))
}

/// A number from 1, or the default where there is none.
pub(crate) fn between(
    value: Option<&Spanned<u32>>,
    default: u32,
    most: u32,
    what: &str,
) -> Checked<u32> {
    match value {
        None => Ok(default),
        Some(v) if (1..=most).contains(v.get_ref()) => Ok(*v.get_ref()),
        Some(v) => refuse(v, format!("{what}: expected 1 to {most}")),
    }
}

/// A port's signalling and lanes: four of them, or as many as the Ethernet of that name has.
fn signalling(text: &Spanned<String>, width: Option<u8>) -> Checked<(Speed, u8)> {
    match (of_ethernet(text), width) {
        (Some((speed, lanes)), None) => Ok((speed, lanes)),
        (Some((speed, lanes)), Some(width)) if lanes == 1 || lanes == width => Ok((speed, width)),
        (Some((_, lanes)), Some(width)) => refuse(
            text,
            format!(
                "'{}' has {lanes} lanes, not {width}: leave 'width' out",
                text.get_ref()
            ),
        ),
        (None, width) => Ok((speed(text)?, width.unwrap_or(4))),
    }
}

/// `1ge` to `800ge`: signalling and lanes.
fn of_ethernet(text: &Spanned<String>) -> Option<(Speed, u8)> {
    let name = text.get_ref().to_ascii_lowercase();
    Speed::ethernet(name.strip_suffix("ge")?.parse().ok()?)
}

/// A lane's signalling.
fn speed(text: &Spanned<String>) -> Checked<Speed> {
    if text.get_ref() == Speed::Cx4.name() {
        return Ok(Speed::Cx4);
    }
    if let Some((speed, _)) = of_ethernet(text) {
        return Ok(speed);
    }
    let more = "; or Ethernet's 1ge, 10ge, cx4, 25ge, 40ge, 50ge, 100ge, 200ge, 400ge, 800ge";
    text.get_ref()
        .parse()
        .or_else(|problem: String| refuse(text, problem + more))
}

pub(crate) fn bytes32(value: &Of<Bytes>) -> Checked<u32> {
    let bytes = value.get_ref().0.as_u64();
    match u32::try_from(bytes) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => refuse(value, "expected 1 B to 4 GiB"),
    }
}

/// Saturates; what is too long is refused with its part.
pub(crate) fn ps(value: Option<&Of<Duration>>) -> u64 {
    value.map_or(0, |v| v.get_ref().0.as_ns().saturating_mul(1_000))
}

pub(crate) const TWO_HOSTS: &str = "traffic between two hosts has its closed formula beside every point: tier 'flows' is for patterns";
// A fabric by names, each checked with its routes for every case; larger ones are to be generated.
const HOSTS_MAX: usize = 512;
const LINKS_MAX: usize = 2_048;
const CASES_MAX: usize = 64;
const CORES_MAX: u32 = 64;
const SIZE_MAX: u64 = 64 << 20;
