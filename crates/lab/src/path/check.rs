//! From the layout to the network: names, hosts, links, addresses, routes, schedule.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use link::spec::{DirectionSpec as Stages, LossSpec, ServerSpec};
use link::{Change, QueueLimits};
use spans::Spanned;
use units::text::{is_plain, plain};
use units::{Bytes, Duration};
use wire::classify::{Mac, Prefix};

use super::links::{self, Context, Extremes, Files};
use super::network::{LinkSpec, Network, Node, Route, RouterSpec, ScheduleEntry, SwitchSpec};
use super::raw::{
    Named, Of, Quantity, RawDirection, RawFile, RawHost, RawLink, RawRoute, RawRouter, RawSchedule,
    RawSwitch, RawTransfer, RawWay, TextOrNumber,
};
use super::topology::{Flaw, Plan, Routes, Stated, Topology};
use super::{
    HostBus, HostCosts, HostSpec, MEMORY_MAX, PathFile, Refusal, TransferSpec, Way, buffers,
    gateways, hint, kernel, refuse, rules,
};

/// Checks all of a file.
pub(super) fn check(
    raw: &RawFile,
    file: &Path,
    text: &str,
    files: &Files<'_>,
) -> Result<PathFile, Refusal> {
    if raw.title.trim().is_empty() || raw.title.len() > 200 {
        return whole("title: expected one line of 1 to 200 bytes");
    }
    check_counts(raw)?;
    check_names(raw)?;
    let by_kernel = kernel::check(raw)?;
    let names = Names::new(raw)?;
    let (from, to) = names.ends;
    let transfer = check_transfer(&raw.transfer, from, to)?;
    let topology = names.topology(!by_kernel)?;
    let mut network = names.network(&topology, file, files)?;
    network.schedule = names.schedule(&raw.schedule, &mut network)?;
    names.memory(&mut network)?;
    network.by_kernel = by_kernel;
    if by_kernel {
        kernel::check_sizes(names.links.iter().map(|(_, link)| *link), &network)?;
    }
    let way = match Way::between(&network, from, to) {
        Ok(way) => way,
        Err(problem) => return whole(problem),
    };
    Ok(PathFile {
        file: file.to_owned(),
        text: text.to_owned(),
        title: plain(&raw.title).into_owned(),
        near: network.hosts[from].clone(),
        far: network.hosts[to].clone(),
        link: network.links[way.limit].name.clone(),
        forward: way.forward,
        backward: way.backward,
        transfer,
        network,
        scaled_by: 1,
    })
}

fn whole<T>(problem: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        at: 0,
        problem: problem.into(),
    })
}

fn check_counts(raw: &RawFile) -> Result<(), Refusal> {
    if raw.hosts.len() < 2 {
        return whole("hosts: expected at least two, such as [hosts.near] and [hosts.far]");
    }
    if raw.links.is_empty() {
        return whole("links: expected at least one, such as [links.wan]");
    }
    let switch_rules = raw.switches.values().map(|s| s.get_ref().rules.len());
    let router_rules = raw.routers.values().map(|r| r.get_ref().rules.len());
    let routes = raw.routers.values().map(|r| r.get_ref().routes.len()).sum();
    for (what, number, max) in [
        ("hosts", raw.hosts.len(), HOSTS_MAX),
        ("switches", raw.switches.len(), SWITCHES_MAX),
        ("routers", raw.routers.len(), ROUTERS_MAX),
        ("links", raw.links.len(), LINKS_MAX),
        ("rules", switch_rules.chain(router_rules).sum(), RULES_MAX),
        ("routes", routes, RULES_MAX),
        ("schedule", raw.schedule.len(), SCHEDULE_MAX),
    ] {
        if number > max {
            return whole(format!("{what}: {number} of them; expected at most {max}"));
        }
    }
    Ok(())
}

/// Names are shown on terminals, in logs and in tables, and typed.
fn check_names(raw: &RawFile) -> Result<(), Refusal> {
    let nodes = raw.hosts.names().chain(raw.switches.names());
    let mut all = nodes.chain(raw.routers.names()).chain(raw.links.names());
    match all.find(|name| !name.get_ref().chars().all(is_plain)) {
        Some(name) => refuse(
            name,
            "a name has a control character or one that is not shown",
        ),
        None => Ok(()),
    }
}

type Entries<'a, T> = Vec<(&'a Spanned<String>, &'a Spanned<T>)>;

/// All names in the order of the file.
struct Names<'a> {
    hosts: Entries<'a, RawHost>,
    switches: Entries<'a, RawSwitch>,
    routers: Entries<'a, RawRouter>,
    links: Entries<'a, RawLink>,
    nodes: BTreeMap<&'a str, Node>,
    /// Numbers of the hosts that a measurement is between.
    ends: (usize, usize),
}

fn in_order<T>(named: &Named<T>) -> Entries<'_, T> {
    let mut entries: Entries<'_, T> = named.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

impl<'a> Names<'a> {
    fn new(raw: &'a RawFile) -> Result<Self, Refusal> {
        let mut names = Self {
            hosts: in_order(&raw.hosts),
            switches: in_order(&raw.switches),
            routers: in_order(&raw.routers),
            links: in_order(&raw.links),
            nodes: BTreeMap::new(),
            ends: (0, 1),
        };
        let (from, to) = names.ends(raw)?;
        let place = |names: &Self, name: &str| {
            let is_it = |(own, _): &(&Spanned<String>, _)| own.get_ref() == name;
            names.hosts.iter().position(is_it).unwrap_or(0)
        };
        // The near host of a plain path has the first address, wherever it stands in the file.
        if names.hosts.len() == 2 && names.links.len() == 1 && place(&names, from) == 1 {
            names.hosts.swap(0, 1);
        }
        names.ends = (place(&names, from), place(&names, to));
        let hosts = names.hosts.iter().map(|e| e.0).enumerate();
        let switches = names.switches.iter().map(|e| e.0).enumerate();
        let routers = names.routers.iter().map(|e| e.0).enumerate();
        let all = hosts
            .map(|(n, name)| (name, Node::Host(n)))
            .chain(switches.map(|(n, name)| (name, Node::Switch(n))))
            .chain(routers.map(|(n, name)| (name, Node::Router(n))));
        for (name, node) in all {
            if names.nodes.insert(name.get_ref(), node).is_some() {
                return refuse(
                    name,
                    format!("'{}' is the name of another node already", name.get_ref()),
                );
            }
        }
        Ok(names)
    }

    /// Names of the hosts that a measurement is between.
    fn ends(&self, raw: &'a RawFile) -> Result<(&'a str, &'a str), Refusal> {
        let (near, far) = self.default_ends(raw);
        let stated = |name: &'a Option<Spanned<String>>| match name {
            Some(name) => self.stated_end(raw, name).map(Some),
            None => Ok(None),
        };
        let ends = match (stated(&raw.transfer.from)?, stated(&raw.transfer.to)?) {
            (Some(from), Some(to)) => (from, to),
            (Some(from), None) => (from, if from == far { near } else { far }),
            (None, Some(to)) => (if to == near { far } else { near }, to),
            (None, None) => (near, far),
        };
        match &raw.transfer.to {
            Some(to) if ends.0 == ends.1 => refuse(to, "to: expected another host than from"),
            _ => Ok(ends),
        }
    }

    fn stated_end(&self, raw: &RawFile, name: &'a Spanned<String>) -> Result<&'a str, Refusal> {
        let typed = name.get_ref().as_str();
        let Some(host) = raw.hosts.get(typed) else {
            let known = self.hosts.iter().map(|(n, _)| n.get_ref().as_str());
            return refuse(name, hint::no_such("host", typed, IN_FILE, known));
        };
        if host.get_ref().interface.is_some() {
            return refuse(
                name,
                format!(
                    "'{typed}' is an interface of this machine; a measurement is between hosts of the lab"
                ),
            );
        }
        Ok(typed)
    }

    /// The ends of the only link; else hosts named near and far; else the first and the last by
    /// name, interfaces of the machine only where there is nothing else.
    fn default_ends(&self, raw: &'a RawFile) -> (&'a str, &'a str) {
        if let [(_, link)] = self.links.as_slice() {
            let [near, far] = link.get_ref().between.get_ref();
            if near != far && raw.hosts.contains(near.as_str()) && raw.hosts.contains(far.as_str())
            {
                return (near, far);
            }
        }
        if raw.hosts.contains("near") && raw.hosts.contains("far") {
            return ("near", "far");
        }
        let in_lab = raw
            .hosts
            .iter()
            .filter(|(_, h)| h.get_ref().interface.is_none());
        let mut names: Vec<&str> = in_lab.map(|(name, _)| name.get_ref().as_str()).collect();
        if names.len() < 2 {
            names = raw
                .hosts
                .names()
                .map(|name| name.get_ref().as_str())
                .collect();
        }
        (
            names.first().copied().unwrap_or(""),
            names.last().copied().unwrap_or(""),
        )
    }

    fn topology(&self, has_one_link: bool) -> Result<Topology, Refusal> {
        let between = self
            .links
            .iter()
            .map(|(_, link)| self.check_between(&link.get_ref().between))
            .collect::<Result<Vec<_>, _>>()?;
        let counts = [self.hosts.len(), self.switches.len(), self.routers.len()];
        let topology =
            Topology::new(counts, between, has_one_link).or_else(|flaw| self.refuse_flaw(flaw))?;
        if topology.segments.len() > SEGMENTS_MAX {
            return whole(format!(
                "links: they make {} IP subnets; expected at most {SEGMENTS_MAX}",
                topology.segments.len()
            ));
        }
        Ok(topology)
    }

    fn check_between(&self, between: &Spanned<[String; 2]>) -> Result<[Node; 2], Refusal> {
        let node = |name: &String| match self.nodes.get(name.as_str()) {
            Some(&node) => Ok(node),
            None => {
                let what = if self.switches.is_empty() && self.routers.is_empty() {
                    "host"
                } else {
                    "host, switch or router"
                };
                let problem = hint::no_such(what, name, IN_FILE, self.nodes.keys().copied());
                refuse(between, format!("between: {problem}"))
            }
        };
        let [a, b] = between.get_ref();
        if a == b {
            return refuse(between, "between: expected two different nodes");
        }
        Ok([node(a)?, node(b)?])
    }

    fn refuse_flaw<T>(&self, flaw: Flaw) -> Result<T, Refusal> {
        match flaw {
            Flaw::HostLinks(host, 0) => {
                let name = self.hosts[host].0;
                refuse(name, format!("host '{}' has no link", name.get_ref()))
            }
            Flaw::HostLinks(host, links) => {
                let name = self.hosts[host].0;
                refuse(
                    name,
                    format!(
                        "host '{}' has {links} links; expected one, to a switch or router that has \
                         the others, or run = \"kernel\"",
                        name.get_ref()
                    ),
                )
            }
            Flaw::Apart(node) => {
                let name = self.name(node);
                refuse(
                    name,
                    format!(
                        "no links lead from host '{}' to '{}'",
                        self.hosts[0].0.get_ref(),
                        name.get_ref()
                    ),
                )
            }
            Flaw::Loop(link) => refuse(
                &self.links[link].1.get_ref().between,
                "between: these switches are joined already; frames would go round for ever \
                 without a router between",
            ),
        }
    }

    fn name(&self, node: Node) -> &'a Spanned<String> {
        match node {
            Node::Host(n) => self.hosts[n].0,
            Node::Switch(n) => self.switches[n].0,
            Node::Router(n) => self.routers[n].0,
        }
    }

    fn link_name(&self, link: usize) -> &'a str {
        self.links[link].0.get_ref()
    }

    /// A node's links by name.
    fn links_at(&self, topology: &Topology, node: Node) -> Vec<(&'a str, usize)> {
        let links = topology.links(node);
        links.iter().map(|&n| (self.link_name(n), n)).collect()
    }

    /// Everything but the schedule.
    fn network(
        &self,
        topology: &Topology,
        file: &Path,
        files: &Files<'_>,
    ) -> Result<Network, Refusal> {
        let mut hosts = Vec::new();
        for (name, host) in &self.hosts {
            hosts.push(check_host(name.get_ref(), host.get_ref())?);
        }
        self.check_interfaces()?;
        let mut links = self.check_links(topology, &hosts, file, files)?;
        let stated = self.stated_addresses(topology)?;
        let plan = topology
            .addresses(&stated)
            .map_err(|(at, problem)| Refusal { at, problem })?;
        let mut routes = topology.routes(&plan);
        settle_hosts(&mut hosts, topology, &plan, &mut routes);
        let mut switches = Vec::new();
        for (number, (name, switch)) in self.switches.iter().enumerate() {
            let own = self.links_at(topology, Node::Switch(number));
            switches.push(SwitchSpec {
                name: name.get_ref().clone(),
                links: own.iter().map(|&(_, n)| n).collect(),
                rules: rules::check_rules(&switch.get_ref().rules, &own)?,
                buffer: buffers::check_buffer(
                    switch.get_ref(),
                    Node::Switch(number),
                    &mut links,
                    |link| self.links[link].1,
                )?,
            });
        }
        let mut routers = Vec::new();
        for (number, (name, router)) in self.routers.iter().enumerate() {
            let node = Node::Router(number);
            let own = self.links_at(topology, node);
            let mut table = Vec::new();
            for route in &router.get_ref().routes {
                table.extend(self.check_route(topology, &plan, &hosts, number, route)?);
            }
            table.append(&mut routes.routers[number]);
            let mtu = |link: usize| {
                let same = |l: &&LinkSpec| l.segment == topology.segment[link];
                links
                    .iter()
                    .filter(same)
                    .map(|l| l.mtu_bytes)
                    .min()
                    .unwrap_or(0)
            };
            routers.push(RouterSpec {
                name: name.get_ref().clone(),
                answers: router.get_ref().answers.unwrap_or(true),
                symmetric: router
                    .get_ref()
                    .symmetric
                    .as_ref()
                    .is_some_and(|s| *s.get_ref()),
                interfaces: own
                    .iter()
                    .filter_map(|&(_, l)| plan.interface(Node::Router(number), l, mtu(l)))
                    .collect(),
                routes: table,
                rules: rules::check_rules(&router.get_ref().rules, &own)?,
                gateway: gateways::check_gateway(router.get_ref(), &own)?,
            });
        }
        Ok(Network {
            hosts,
            switches,
            routers,
            links,
            schedule: Vec::new(),
            by_kernel: false,
        })
    }

    fn check_interfaces(&self) -> Result<(), Refusal> {
        let mut seen = BTreeMap::new();
        for (_, host) in &self.hosts {
            if let Some(interface) = &host.get_ref().interface
                && seen.insert(interface.get_ref(), ()).is_some()
            {
                return refuse(
                    interface,
                    format!("interface = '{}': another host has it", interface.get_ref()),
                );
            }
        }
        Ok(())
    }

    fn check_links(
        &self,
        topology: &Topology,
        hosts: &[HostSpec],
        file: &Path,
        files: &Files<'_>,
    ) -> Result<Vec<LinkSpec>, Refusal> {
        let largest = hosts.iter().map(|h| h.mtu_bytes).max().unwrap_or(MTU_MAX);
        let mut links = Vec::new();
        let mut trace_bytes = 0;
        for (number, (name, link)) in self.links.iter().enumerate() {
            let raw = link.get_ref();
            let between = topology.between[number];
            let at_ends = between.iter().filter_map(|end| match end {
                Node::Host(n) => Some(hosts[*n].mtu_bytes),
                Node::Switch(_) | Node::Router(_) => None,
            });
            let at_ends = at_ends.min().unwrap_or(largest);
            let mtu_bytes = match &raw.mtu {
                Some(mtu) => check_mtu(mtu)?.min(at_ends),
                None => at_ends,
            };
            let raws = links::both_directions(raw);
            let delay = |raw: &RawDirection| links::check_delay(raw.delay.as_ref());
            let rtt = delay(&raws[0])? + delay(&raws[1])?;
            let seed = 2 * number as u64 + 1;
            let check = |raw: &RawDirection, seed| {
                let context = Context {
                    mtu_bytes,
                    rtt,
                    seed,
                    files,
                    file,
                };
                links::check_direction(raw, context)
            };
            let (mut forward, mut backward) = (check(&raws[0], seed)?, check(&raws[1], seed + 1)?);
            links::check_shared(raw, &raws, [&mut forward, &mut backward])?;
            trace_bytes += trace_bytes_of(&forward) + trace_bytes_of(&backward);
            if trace_bytes > TRACES_BYTES_MAX {
                let limit = Bytes::new(TRACES_BYTES_MAX as u64);
                return refuse(link, format!("trace: all together have more than {limit}"));
            }
            links.push(LinkSpec {
                name: name.get_ref().clone(),
                between,
                forward,
                backward,
                forward_middlebox: links::check_middlebox(&raws[0])?,
                backward_middlebox: links::check_middlebox(&raws[1])?,
                forward_grouping: links::check_grouping(&raws[0])?,
                backward_grouping: links::check_grouping(&raws[1])?,
                mtu_bytes,
                segment: topology.segment[number],
                forward_memory: Bytes::new(0),
                backward_memory: Bytes::new(0),
            });
        }
        Ok(links)
    }

    fn stated_addresses(&self, topology: &Topology) -> Result<Vec<Stated>, Refusal> {
        let mut stated = Vec::new();
        for (number, (_, host)) in self.hosts.iter().enumerate() {
            let node = Node::Host(number);
            add_stated(
                &mut stated,
                node,
                topology.links(node)[0],
                &host.get_ref().addresses,
            )?;
        }
        for (number, (_, router)) in self.routers.iter().enumerate() {
            let node = Node::Router(number);
            let own = self.links_at(topology, node);
            for (link, addresses) in router.get_ref().addresses.iter() {
                add_stated(&mut stated, node, rules::link_of(link, &own)?, addresses)?;
            }
        }
        Ok(stated)
    }

    /// A route that the file states: one entry for a block, one of each IP version for a host.
    fn check_route(
        &self,
        topology: &Topology,
        plan: &Plan,
        hosts: &[HostSpec],
        router: usize,
        spanned: &Spanned<RawRoute>,
    ) -> Result<Vec<Route>, Refusal> {
        let raw = spanned.get_ref();
        let link = rules::link_of(&raw.via, &self.links_at(topology, Node::Router(router)))?;
        let typed = raw.to.get_ref().as_str();
        let (to, is_direct) = match self.nodes.get(typed) {
            Some(&Node::Host(n)) => {
                let host = &hosts[n];
                let both = [IpAddr::V4(host.address4), IpAddr::V6(host.address6)];
                let is_direct = topology.segment[host.link] == topology.segment[link];
                (both.map(Prefix::host).to_vec(), is_direct)
            }
            _ => match typed.parse::<Prefix>() {
                Ok(prefix) => (vec![prefix], false),
                Err(e) => {
                    let known = self.hosts.iter().map(|(n, _)| n.get_ref().as_str());
                    let problem = hint::no_such("host", typed, IN_FILE, known);
                    return refuse(&raw.to, format!("to: {problem}, and it is no prefix: {e}"));
                }
            },
        };
        if is_direct {
            return Ok(to
                .into_iter()
                .map(|to| Route {
                    to,
                    link,
                    via: None,
                })
                .collect());
        }
        let next = self.next_router(topology, router, link, raw)?;
        let route = |to: Prefix| Route {
            to,
            link,
            via: plan.next_hop(next, to.network().is_ipv4()),
        };
        Ok(to.into_iter().map(route).collect())
    }

    /// The router that takes packets of a stated route.
    fn next_router(
        &self,
        topology: &Topology,
        router: usize,
        link: usize,
        raw: &RawRoute,
    ) -> Result<(usize, usize), Refusal> {
        let behind = topology.routers_behind(link, router);
        let name = |n: usize| self.routers[n].0.get_ref().as_str();
        if let Some(next) = &raw.next {
            let typed = next.get_ref();
            let found = behind.iter().find(|(n, _)| name(*n) == typed);
            let known = behind.iter().map(|(n, _)| name(*n));
            return match found {
                Some(&next) => Ok(next),
                None => refuse(next, hint::no_such("router", typed, "on that link", known)),
            };
        }
        match behind.as_slice() {
            [only] => Ok(*only),
            [] => refuse(
                &raw.via,
                format!(
                    "via: no router is behind '{}' to take the packets",
                    raw.via.get_ref()
                ),
            ),
            several => {
                let names: Vec<&str> = several.iter().map(|(n, _)| name(*n)).collect();
                refuse(
                    &raw.via,
                    format!(
                        "via: several routers are behind '{}'; say which by next = \"…\": {}",
                        raw.via.get_ref(),
                        names.join(", ")
                    ),
                )
            }
        }
    }

    /// The schedule in the order of time. Adds a loss of nothing where one is to come.
    fn schedule(
        &self,
        raw: &[Spanned<RawSchedule>],
        network: &mut Network,
    ) -> Result<Vec<ScheduleEntry>, Refusal> {
        let mut schedule = Vec::new();
        for entry in raw {
            let own = entry.get_ref();
            let typed = own.link.get_ref().as_str();
            let number = self.links.iter().position(|(n, _)| n.get_ref() == typed);
            let Some(number) = number else {
                let known = self.links.iter().map(|(n, _)| n.get_ref().as_str());
                return refuse(&own.link, hint::no_such("link", typed, IN_FILE, known));
            };
            let at = own.at.get_ref().0;
            if at > SCHEDULE_TIME_MAX {
                return refuse(
                    &own.at,
                    format!("at = {at}: expected at most {SCHEDULE_TIME_MAX}"),
                );
            }
            for forward in [true, false] {
                let way = if forward {
                    RawWay::Forward
                } else {
                    RawWay::Backward
                };
                if own.direction.is_some_and(|d| d != way) {
                    continue;
                }
                let shares = network.buffer_of(number, forward).is_some();
                let link = &mut network.links[number];
                let mtu = link.mtu_bytes;
                let stages = if forward {
                    &mut link.forward
                } else {
                    &mut link.backward
                };
                let changes = changes_of(entry, stages, mtu)?;
                let refused = changes.iter().find_map(buffers::refuses);
                if let Some(problem) = refused.filter(|_| shares) {
                    return refuse(entry, problem);
                }
                schedule.extend(changes.into_iter().map(|change| ScheduleEntry {
                    at,
                    link: number,
                    forward,
                    backward: !forward,
                    change,
                }));
            }
        }
        schedule.sort_by_key(|entry| entry.at);
        Ok(schedule)
    }

    /// Sets each link's memory, and refuses what would need too much in all.
    fn memory(&self, network: &mut Network) -> Result<(), Refusal> {
        let alone = network.links.len() == 1;
        let mut extremes = vec![[Extremes::default(); 2]; network.links.len()];
        for entry in &network.schedule {
            for way in [entry.forward, !entry.backward] {
                let most = &mut extremes[entry.link][usize::from(!way)];
                match entry.change {
                    Change::Rate(rate) => most.rate = most.rate.max(Some(rate)),
                    Change::Delay(delay) => most.delay = most.delay.max(delay),
                    Change::Limits(limits) => {
                        let bytes = Bytes::new(limits.bytes.unwrap_or(0));
                        most.queue = most.queue.max(bytes);
                    }
                    _ => {}
                }
            }
        }
        for (link, most) in network.links.iter_mut().zip(extremes) {
            let mtu = link.mtu_bytes;
            link.forward_memory = links::memory_bytes(&link.forward, mtu, most[0], alone);
            link.backward_memory = links::memory_bytes(&link.backward, mtu, most[1], alone);
        }
        let memory = network.memory_bytes();
        let own = |link: &LinkSpec| link.forward_memory + link.backward_memory;
        let largest = (0..network.links.len()).max_by_key(|&n| own(&network.links[n]));
        match largest {
            Some(link) if memory > MEMORY_MAX => refuse(
                self.links[link].1,
                format!(
                    "rate, delay and queue need {memory} for frames in flight; at most {MEMORY_MAX} \
                     are allowed"
                ),
            ),
            _ => Ok(()),
        }
    }
}

/// Gives each host its links, addresses, gateway and routes.
fn settle_hosts(hosts: &mut [HostSpec], topology: &Topology, plan: &Plan, routes: &mut Routes) {
    for (number, host) in hosts.iter_mut().enumerate() {
        let node = Node::Host(number);
        let (first, more) = topology.links(node).split_at(1);
        host.link = first[0];
        let more = more.iter();
        host.more = more
            .filter_map(|&link| plan.interface(node, link, host.mtu_bytes))
            .collect();
        if let Some(own) = plan.at(Node::Host(number), host.link) {
            (host.mac, host.address4, host.address6) = (own.mac, own.address4, own.address6);
            (host.prefix4, host.prefix6) = (own.prefix4, own.prefix6);
        }
        let gateway = routes.gateways[number];
        let gateway = gateway.and_then(|(r, l)| plan.at(Node::Router(r), l));
        host.gateway4 = gateway.map(|g| g.address4);
        host.gateway6 = gateway.map(|g| g.address6);
        host.gateway_mac = gateway.map(|g| g.mac);
        host.routes = std::mem::take(&mut routes.hosts[number]);
    }
}

fn trace_bytes_of(stages: &Stages) -> usize {
    match stages.rate.as_ref().map(|r| &r.server) {
        Some(ServerSpec::Trace(text)) => text.len(),
        _ => 0,
    }
}

/// What an entry changes in one direction.
fn changes_of(
    entry: &Spanned<RawSchedule>,
    stages: &mut Stages,
    mtu_bytes: u32,
) -> Result<Vec<Change>, Refusal> {
    let raw = entry.get_ref();
    let mut changes = Vec::new();
    if let Some(rate) = &raw.rate {
        let value = links::check_rate("rate", rate)?;
        match stages.rate.as_ref().map(|r| &r.server) {
            Some(ServerSpec::Rate(_)) if stages.shared.is_some() => {
                return refuse(rate, "rate: both ends of half duplex keep theirs");
            }
            Some(ServerSpec::Rate(_)) => changes.push(Change::Rate(value)),
            _ => return refuse(rate, "rate: the link has none that could change"),
        }
    }
    if let Some(delay) = &raw.delay {
        changes.push(Change::Delay(links::check_delay(Some(delay))?));
    }
    if let Some(queue) = &raw.queue {
        let bytes = queue.get_ref().0.as_u64();
        let frame = u64::from(stages.medium.wire_bytes(mtu_bytes.saturating_add(14)));
        let Some(limits) = stages.rate.as_ref().map(|r| r.limits) else {
            return refuse(
                queue,
                "queue: the link has none; it needs a rate that empties it",
            );
        };
        if bytes < frame {
            return refuse(
                queue,
                format!("queue: a full frame takes {frame} bytes on the wire; none would fit"),
            );
        }
        changes.push(Change::Limits(QueueLimits {
            bytes: Some(bytes),
            packets: limits.packets,
        }));
    }
    if let Some(loss) = &raw.loss {
        let share = links::check_share("loss", loss.span().start, *loss.get_ref())?;
        let is_random = |l: &LossSpec| matches!(l, LossSpec::Random(_));
        if !stages.loss.iter().any(is_random) {
            stages.loss.push(LossSpec::Random(0.0));
        }
        changes.push(Change::Loss(share));
    }
    changes.extend(raw.up.map(Change::Up));
    if changes.is_empty() {
        return refuse(
            entry,
            "expected what changes: rate, delay, loss, queue or up",
        );
    }
    Ok(changes)
}

fn add_stated(
    stated: &mut Vec<Stated>,
    node: Node,
    link: usize,
    addresses: &[Spanned<String>],
) -> Result<(), Refusal> {
    for spanned in addresses {
        let typed = spanned.get_ref();
        let Some((address, bits)) = address_with_prefix(typed) else {
            return refuse(
                spanned,
                format!(
                    "'{typed}': expected the address of a host with its prefix, such as \
                     10.0.0.1/24 (8 to 30) or fd00::1/64 (16 to 126)"
                ),
            );
        };
        let same = |s: &Stated| {
            s.node == node && s.link == link && s.address.is_ipv4() == address.is_ipv4()
        };
        if stated.iter().any(same) {
            return refuse(
                spanned,
                format!("'{typed}': expected one of each IP version"),
            );
        }
        stated.push(Stated {
            node,
            link,
            address,
            bits,
            at: spanned.span().start,
        });
    }
    Ok(())
}

/// An address that a host may have within its subnet.
fn address_with_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let is_last = |a: Ipv4Addr| u32::from(a) | (u32::MAX << (32 - u32::from(bits))) == u32::MAX;
    let (in_range, is_last) = match address {
        IpAddr::V4(a) => {
            let in_range = (8..=30).contains(&bits);
            (in_range, in_range && (is_last(a) || a.is_broadcast()))
        }
        IpAddr::V6(_) => ((16..=126).contains(&bits), false),
    };
    let is_station = !address.is_multicast() && !address.is_loopback() && !address.is_unspecified();
    let is_first = Prefix::new(address, bits).is_some_and(|p| p.network() == address);
    (in_range && is_station && !is_first && !is_last).then_some((address, bits))
}

fn check_mtu(mtu: &Spanned<u32>) -> Result<u32, Refusal> {
    let value = *mtu.get_ref();
    if (MTU_MIN..=MTU_MAX).contains(&value) {
        Ok(value)
    } else {
        refuse(
            mtu,
            format!("mtu = {value}: expected {MTU_MIN} to {MTU_MAX} bytes"),
        )
    }
}

fn check_host(name: &str, raw: &RawHost) -> Result<HostSpec, Refusal> {
    let interface = check_interface(raw)?;
    let algorithm = raw.congestion_control.as_ref().map(Spanned::get_ref);
    let algorithm = algorithm.map_or("cubic", String::as_str);
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if let Some(stated) = &raw.congestion_control
        && (algorithm.is_empty() || algorithm.len() > 15 || !algorithm.chars().all(legal))
    {
        return refuse(
            stated,
            format!(
                "congestion_control = '{algorithm}': expected a name such as cubic, reno or bbr"
            ),
        );
    }
    let mut sysctl = BTreeMap::new();
    for (key, value) in &raw.sysctl {
        check_sysctl_name(key).or_else(|problem| refuse(value, problem))?;
        let text = match value.get_ref() {
            TextOrNumber::Number(n) => n.to_string(),
            TextOrNumber::Text(t)
                if t.len() <= 200 && t.chars().all(|c| c == '\t' || is_plain(c)) =>
            {
                t.clone()
            }
            TextOrNumber::Text(_) => {
                return refuse(value, format!("{key}: expected one short line"));
            }
        };
        sysctl.insert(key.clone(), text);
    }
    Ok(HostSpec {
        name: name.to_owned(),
        mtu_bytes: raw.mtu.as_ref().map_or(Ok(MTU_DEFAULT), check_mtu)?,
        congestion_control: algorithm.to_owned(),
        tcp_rmem_bytes: check_triplet("tcp_rmem", raw.tcp_rmem.as_ref(), RMEM_DEFAULT)?,
        tcp_wmem_bytes: check_triplet("tcp_wmem", raw.tcp_wmem.as_ref(), WMEM_DEFAULT)?,
        sysctl,
        offloads: raw.offloads.unwrap_or(true),
        costs: check_costs(raw)?,
        bus: check_bus(raw)?,
        interface,
        link: 0,
        mac: Mac::default(),
        address4: Ipv4Addr::UNSPECIFIED,
        prefix4: 0,
        address6: Ipv6Addr::UNSPECIFIED,
        prefix6: 0,
        gateway4: None,
        gateway6: None,
        gateway_mac: None,
        more: Vec::new(),
        routes: Vec::new(),
    })
}

/// A name as the kernel takes it (dev_valid_name of net/core/dev.c), and none of the settings that
/// only a host of the lab has.
fn check_interface(raw: &RawHost) -> Result<Option<String>, Refusal> {
    let Some(interface) = &raw.interface else {
        return Ok(None);
    };
    let name = interface.get_ref();
    let legal = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    if name.is_empty() || name.len() > 15 || name == "." || name == ".." || !name.chars().all(legal)
    {
        return refuse(
            interface,
            format!(
                "interface = '{name}': expected the name of one of this machine's, such as eth1"
            ),
        );
    }
    let has_settings = raw.congestion_control.is_some()
        || raw.tcp_rmem.is_some()
        || raw.tcp_wmem.is_some()
        || raw.offloads.is_some()
        || has_costs(raw)
        || !raw.sysctl.is_empty();
    if has_settings {
        return refuse(
            interface,
            "interface: the host behind it is not the lab's; it can have mtu and addresses alone",
        );
    }
    Ok(Some(name.clone()))
}

fn has_costs(raw: &RawHost) -> bool {
    let times = [&raw.write_cost, &raw.packet_cost, &raw.page_cost];
    times.into_iter().any(Option::is_some)
        || raw.copy_rate.is_some()
        || raw.page.is_some()
        || raw.bus.is_some()
        || raw.bus_cost.is_some()
}

fn check_bus(raw: &RawHost) -> Result<Option<HostBus>, Refusal> {
    let cost = match &raw.bus_cost {
        None => Duration::ZERO,
        Some(cost) if raw.bus.is_none() => {
            return refuse(
                cost,
                "bus_cost: expected the bus's rate as well, such as bus = \"8.53Gb/s\"",
            );
        }
        Some(cost) if cost.get_ref().0 <= COST_MAX => cost.get_ref().0,
        Some(cost) => return refuse(cost, format!("bus_cost: expected at most {COST_MAX}")),
    };
    let Some(bus) = &raw.bus else {
        return Ok(None);
    };
    let rate = links::check_rate("bus", bus)?;
    // What the bus could have moved meanwhile, in bits times 1e9.
    let meanwhile = u128::from(cost.as_ns()) * u128::from(rate.as_bits_per_second());
    if meanwhile > u128::from(u64::MAX / 2) {
        return refuse(
            bus,
            format!("bus: at {rate} a bus_cost of {cost} is out of proportion"),
        );
    }
    Ok(Some(HostBus { rate, cost }))
}

fn check_costs(raw: &RawHost) -> Result<HostCosts, Refusal> {
    let time = |name: &str, cost: Option<&Of<Duration>>| match cost {
        None => Ok(Duration::ZERO),
        Some(cost) if (COST_MIN..=COST_MAX).contains(&cost.get_ref().0) => Ok(cost.get_ref().0),
        Some(cost) => refuse(cost, format!("{name}: expected {COST_MIN} to {COST_MAX}")),
    };
    match (&raw.page_cost, &raw.page) {
        (Some(cost), None) => {
            return refuse(
                cost,
                "page_cost: expected the page's size as well, such as page = \"4KiB\"",
            );
        }
        (None, Some(page)) => {
            return refuse(
                page,
                "page: expected what a page costs as well, such as page_cost = \"10us\"",
            );
        }
        (_, Some(page)) if !(PAGE_MIN..=PAGE_MAX).contains(&page.get_ref().0.as_u64()) => {
            let (least, most) = (Bytes::new(PAGE_MIN), Bytes::new(PAGE_MAX));
            return refuse(page, format!("page: expected {least} to {most}"));
        }
        _ => {}
    }
    Ok(HostCosts {
        write: time("write_cost", raw.write_cost.as_ref())?,
        packet: time("packet_cost", raw.packet_cost.as_ref())?,
        copy_rate: raw
            .copy_rate
            .as_ref()
            .map(|rate| links::check_rate("copy_rate", rate))
            .transpose()?,
        page: time("page_cost", raw.page_cost.as_ref())?,
        page_size: raw.page.as_ref().map_or(Bytes::new(0), |p| p.get_ref().0),
    })
}

/// Only settings that belong to the host's own namespace: a path file must not reach the machine.
fn check_sysctl_name(key: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c);
    let in_namespace = key.starts_with("net.ipv4.") || key.starts_with("net.ipv6.");
    if in_namespace && key.chars().all(legal) && !key.contains("..") && key.len() <= 100 {
        Ok(())
    } else {
        Err(format!(
            "sysctl '{key}': expected a name under net.ipv4 or net.ipv6"
        ))
    }
}

pub(super) fn check_triplet(
    name: &str,
    raw: Option<&Spanned<[Quantity<Bytes>; 3]>>,
    default: [u64; 3],
) -> Result<[u64; 3], Refusal> {
    let Some(raw) = raw else {
        return Ok(default);
    };
    let values = raw.get_ref().each_ref().map(|q| q.0.as_u64());
    let [min, default, max] = values;
    if min > default || default > max {
        return refuse(raw, format!("{name}: expected min <= default <= max"));
    }
    if min < BUFFER_MIN || max > BUFFER_MAX {
        return refuse(
            raw,
            format!(
                "{name}: expected values from {} to {}",
                Bytes::new(BUFFER_MIN),
                Bytes::new(BUFFER_MAX)
            ),
        );
    }
    Ok(values)
}

fn check_transfer(raw: &RawTransfer, from: usize, to: usize) -> Result<TransferSpec, Refusal> {
    let streams = raw.streams.as_ref().map_or(1, |s| *s.get_ref());
    if let Some(spanned) = &raw.streams
        && !(1..=128).contains(&streams)
    {
        return refuse(spanned, format!("streams = {streams}: expected 1 to 128"));
    }
    let duration = raw
        .duration
        .as_ref()
        .map_or(Duration::from_s(10), |d| d.get_ref().0);
    if let Some(spanned) = &raw.duration
        && !(Duration::from_ms(500)..=Duration::from_s(3600)).contains(&duration)
    {
        return refuse(spanned, "duration: expected 500ms to 1h");
    }
    let ramp = raw.ramp.as_ref().map_or_else(
        || Duration::from_ns(duration.as_ns() / 5),
        |r| r.get_ref().0,
    );
    if let Some(spanned) = &raw.ramp
        && ramp >= duration
    {
        return refuse(
            spanned,
            format!("ramp: expected less than the duration, {duration}"),
        );
    }
    Ok(TransferSpec {
        streams,
        duration,
        ramp,
        from,
        to,
    })
}

/// A call that takes longer is no cost of a call; a stopped transfer waits for one.
const COST_MIN: Duration = Duration::from_ns(1);
const COST_MAX: Duration = Duration::from_ms(100);
/// From the smallest page there was (VAX) to the largest there is.
const PAGE_MIN: u64 = 512;
const PAGE_MAX: u64 = 1 << 30;
/// tcp_rmem and tcp_wmem are C ints.
const BUFFER_MAX: u64 = 0x7fff_ffff;
/// Smallest socket buffer that Linux keeps to (SOCK_MIN_SNDBUF is 2 * 2048 + overhead).
const BUFFER_MIN: u64 = 4_096;
const IN_FILE: &str = "in this file";
/// Linux' own, as on a machine with some GB of memory (tcp_init of net/ipv4/tcp.c).
pub(super) const RMEM_DEFAULT: [u64; 3] = [4 << 10, 128 << 10, 6 << 20];
pub(super) const WMEM_DEFAULT: [u64; 3] = [4 << 10, 16 << 10, 4 << 20];
const MTU_DEFAULT: u32 = 1_500;
/// RFC 791: every host must take 576 bytes; below 1280 IPv6 is gone, below 576 little works.
const MTU_MIN: u32 = 576;
/// Largest MTU of a veth device.
const MTU_MAX: u32 = 65_535;
const HOSTS_MAX: usize = 1_024;
const LINKS_MAX: usize = 2_048;
const ROUTERS_MAX: usize = 256;
const RULES_MAX: usize = 1_024;
const SCHEDULE_MAX: usize = 10_000;
const SCHEDULE_TIME_MAX: Duration = Duration::from_s(86_400);
/// 198.18.0.0/15 has so many subnets of 256 addresses.
const SEGMENTS_MAX: usize = 512;
const SWITCHES_MAX: usize = 1_024;
/// Text of all traces together.
const TRACES_BYTES_MAX: usize = 64 << 20;
