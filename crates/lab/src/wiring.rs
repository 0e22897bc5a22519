//! From a path file's network to what the engine is made of.

use std::collections::HashMap;
use std::net::IpAddr;

use link::spec::{DirectionSpec, ServerSpec};
use link::{Change, SharedBuffer};
use sys::clock::RealtimeOffset;
use units::{Bytes, Instant};
use wire::classify::Mac;

use crate::engine::{DirectionWiring, NodeWiring, Wiring};
use crate::log::{Legend, LinkLegend};
use crate::middlebox::Middleboxes;
use crate::node::{self, Action, Nth, Rewrite, Rule, Rules};
use crate::path::{
    ActionSpec, LinkSpec, Network, Node, PathFile, RouterSpec, RuleSpec, SwitchSpec,
};

/// The engine's network, with `rings` bytes of memory for each port; probes of the ports `near` go
/// forward.
pub(crate) fn wiring(network: &Network, near: Vec<usize>, rings: &[u64]) -> Wiring {
    let rules =
        |list: &[RuleSpec], at| Rules::new(list.iter().map(|r| rule(r, at, network)).collect());
    let port = |bytes: &u64| NodeWiring::Port {
        ring_bytes: usize::try_from(*bytes).unwrap_or(usize::MAX),
    };
    let (of_hosts, of_gateways) = rings.split_at(network.hosts.len());
    let mut nodes: Vec<NodeWiring> = of_hosts.iter().map(port).collect();
    for (n, switch) in network.switches.iter().enumerate() {
        nodes.push(NodeWiring::Switch(rules(&switch.rules, Node::Switch(n))));
    }
    for (n, router) in network.routers.iter().enumerate() {
        let rules = rules(&router.rules, Node::Router(n));
        nodes.push(NodeWiring::Router(Box::new(router_of(
            network, n, router, rules,
        ))));
    }
    nodes.extend(of_gateways.iter().map(port));
    let ports = network.ports();
    let mut directions = Vec::new();
    for (n, link) in network.links.iter().enumerate() {
        let ends = link.between.map(|node| end(network, &ports, node, n));
        for (forward, [from, to]) in [(true, ends), (false, [ends[1], ends[0]])] {
            let changes = network.schedule.iter().filter(|entry| {
                entry.link == n
                    && if forward {
                        entry.forward
                    } else {
                        entry.backward
                    }
            });
            directions.push(DirectionWiring {
                from,
                to,
                spec: link.direction(forward).clone(),
                middleboxes: Middleboxes::new(link.middlebox(forward).to_vec()),
                grouping: link.grouping(forward).clone(),
                schedule: changes.map(|entry| (entry.at, entry.change)).collect(),
                buffer: network.buffer_of(n, forward),
            });
        }
    }
    Wiring {
        nodes,
        directions,
        near,
        made_bytes: made_bytes(network),
        buffers: network.switches.iter().map(buffer_of).collect(),
    }
}

fn buffer_of(switch: &SwitchSpec) -> Option<SharedBuffer> {
    switch
        .buffer
        .map(|spec| SharedBuffer::new(spec.bytes, spec.alpha))
}

/// The engine's number of a node: hosts first, then switches, then routers.
pub(crate) fn number(network: &Network, node: Node) -> usize {
    match node {
        Node::Host(n) => n,
        Node::Switch(n) => network.hosts.len() + n,
        Node::Router(n) => network.hosts.len() + network.switches.len() + n,
    }
}

/// The engine's number of a node's end of a link: the interfaces of gateways are ports of their own, behind
/// all nodes, and nothing comes to a gateway's own number.
fn end(network: &Network, ports: &[(Node, usize)], node: Node, link: usize) -> usize {
    let port = ports.iter().position(|port| *port == (node, link));
    match port {
        Some(port) if matches!(node, Node::Router(_)) => {
            network.switches.len() + network.routers.len() + port
        }
        _ => number(network, node),
    }
}

/// The direction by which frames leave `node` onto link number `link`.
fn leaving(network: &Network, node: Node, link: usize) -> usize {
    2 * link + usize::from(network.links[link].between[0] != node)
}

/// Memory for each port's frames, which stay until they have left the network: that of its own link,
/// of the links between nodes, and of the largest link to another port, for one host alone may fill
/// them. Where that is more than `budget` for all together, what is beyond their own links is shared
/// out, and a host that needs more than its share loses frames: the certificate says so.
pub(crate) fn ring_bytes(network: &Network, budget: Bytes) -> Vec<u64> {
    let larger = |link: &LinkSpec| link.forward_memory.max(link.backward_memory).as_u64();
    let ports = network.ports();
    let is_access = |link: usize| ports.iter().any(|(_, own)| *own == link);
    let all = network.links.iter().enumerate();
    let trunks = all.clone().filter(|(n, _)| !is_access(*n));
    let trunks: u64 = trunks.map(|(_, l)| larger(l)).sum();
    let wanted = ports.iter().map(|&(node, own)| {
        let leaves_forward = network.links[own].between[0] == node;
        let others = all.clone().filter(|&(n, _)| is_access(n) && n != own);
        let most = others.map(|(_, l)| larger(l)).max().unwrap_or(0);
        let link = &network.links[own];
        (link.memory_bytes(leaves_forward).as_u64(), trunks + most)
    });
    let wanted: Vec<(u64, u64)> = wanted.collect();
    let (own, beyond) = wanted.iter().fold((0, 0), |(o, b), w| (o + w.0, b + w.1));
    let left = budget.as_u64().saturating_sub(own).min(beyond);
    let share = |beyond_one: u64| {
        let part = u128::from(beyond_one) * u128::from(left) / u128::from(beyond.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    wanted
        .iter()
        .map(|&(own, beyond)| own + share(beyond))
        .collect()
}

/// Memory for the frames that nodes make. Where a router may have to fragment, as much as one host's
/// frames need beyond its own link, within limits: fragments stay until they have left the network.
fn made_bytes(network: &Network) -> usize {
    let joins_mtus = |router: &RouterSpec| {
        let mut mtus = router.interfaces.iter().map(|i| i.mtu_bytes);
        let first = mtus.next();
        mtus.any(|mtu| Some(mtu) != first)
    };
    if !network.routers.iter().any(joins_mtus) {
        return MADE_BYTES;
    }
    let behind = network
        .links
        .iter()
        .map(|l| l.forward_memory.max(l.backward_memory));
    let behind = behind.fold(0, |sum: u64, bytes| sum.saturating_add(bytes.as_u64()));
    let behind = usize::try_from(behind).unwrap_or(usize::MAX);
    MADE_BYTES.saturating_add(behind).min(MADE_BYTES_MAX)
}

fn router_of(network: &Network, n: usize, spec: &RouterSpec, rules: Rules) -> node::Router {
    let here = Node::Router(n);
    let mut neighbours: HashMap<IpAddr, Mac> = HashMap::new();
    let interfaces = spec.interfaces.iter().map(|i| node::Interface {
        out: leaving(network, here, i.link),
        mac: i.mac,
        address4: Some(i.address4),
        address6: Some(i.address6),
        mtu_bytes: i.mtu_bytes,
    });
    let interfaces: Vec<_> = interfaces.collect();
    for interface in &spec.interfaces {
        for (address, mac) in members(network, network.links[interface.link].segment) {
            neighbours.insert(address, mac);
        }
    }
    let routes = spec.routes.iter().filter_map(|route| {
        let interface = spec.interfaces.iter().position(|i| i.link == route.link)?;
        Some(node::Route {
            to: route.to,
            interface,
            via: route.via.map(|v| v.address),
        })
    });
    node::Router::new(
        interfaces,
        routes.collect(),
        neighbours,
        rules,
        spec.answers,
    )
    .symmetric(spec.symmetric)
}

/// Addresses of all that is on an IP subnet.
pub(crate) fn members(network: &Network, segment: usize) -> Vec<(IpAddr, Mac)> {
    let mut members = Vec::new();
    for host in &network.hosts {
        if network.links[host.link].segment == segment && host.interface.is_none() {
            members.push((IpAddr::V4(host.address4), host.mac));
            members.push((IpAddr::V6(host.address6), host.mac));
        }
    }
    let of_hosts = network.hosts.iter().flat_map(|h| &h.more);
    for interface in of_hosts.chain(network.routers.iter().flat_map(|r| &r.interfaces)) {
        if network.links[interface.link].segment == segment {
            members.push((IpAddr::V4(interface.address4), interface.mac));
            members.push((IpAddr::V6(interface.address6), interface.mac));
        }
    }
    members
}

/// The neighbours on a link whose hardware addresses one who has this address there is told, so that it need not ask. On
/// a large subnet it asks: telling all of all is the square of their number.
pub(crate) fn neighbours(network: &Network, link: usize, own: Mac) -> Vec<(IpAddr, Mac)> {
    let mut all = members(network, network.links[link].segment);
    all.retain(|&(_, mac)| mac != own);
    if all.len() > 2 * NEIGHBOURS_MAX {
        all.clear();
    }
    all
}

/// A rule of the node `at`, with directions for links.
pub(crate) fn rule(spec: &RuleSpec, at: Node, network: &Network) -> Rule {
    let out = |link: usize| leaving(network, at, link);
    Rule {
        from: spec.in_link.map(|link| out(link) ^ 1),
        matches: spec.matches.clone(),
        count: match (spec.nth, spec.every) {
            (Some(n), _) => Some(Nth::Only(n)),
            (None, Some(n)) => Some(Nth::Every(n)),
            (None, None) => None,
        },
        action: match &spec.action {
            ActionSpec::Drop => Action::Drop,
            ActionSpec::To(links) => Action::To(links.iter().map(|&l| out(l)).collect()),
            ActionSpec::Mirror(link) => Action::Mirror(out(*link)),
            ActionSpec::Rewrite(r) => Action::Rewrite(Rewrite {
                src_mac: r.src_mac,
                dst_mac: r.dst_mac,
                src: r.src,
                dst: r.dst,
                src_port: r.src_port,
                dst_port: r.dst_port,
                dscp: r.dscp,
                vlan: r.vlan,
                ttl: r.ttl,
            }),
        },
        hits: 0,
    }
}

/// Why a change does not fit a direction, if it does not.
pub(crate) fn refuses(spec: &DirectionSpec, change: &Change) -> Option<&'static str> {
    let has_rate = match &spec.rate {
        None => Some("it has no rate, so nothing waits there; give it one in the path file"),
        Some(rate) => match rate.server {
            ServerSpec::Rate(_) => None,
            ServerSpec::Trace(_) => Some("its rate follows a trace"),
        },
    };
    match change {
        Change::Rate(rate) if rate.as_bits_per_second() == 0 => {
            Some("a rate of zero; to cut the link, set up=false")
        }
        Change::Rate(_) if spec.shared.is_some() => {
            Some("both ends of half duplex would have to agree on another rate")
        }
        Change::Rate(_) | Change::Limits(_) => has_rate,
        _ => None,
    }
}

/// What the numbers in a log of this lab stand for.
pub(crate) fn legend(path: &PathFile) -> Legend {
    let network = &path.network;
    // The log's times are monotonic: their zero in real time is the offset between the clocks.
    let zero = RealtimeOffset::read().to_realtime(Instant::ZERO);
    let mut legend = Legend::new(&path.title, zero);
    let port = |&(node, link): &(Node, usize)| match node {
        Node::Host(n) => network.hosts[n].name.clone(),
        _ => format!("{}/{}", network.name(node), network.links[link].name),
    };
    legend.ports = network.ports().iter().map(port).collect();
    for link in &network.links {
        let specs = [&link.forward, &link.backward];
        let stages = link::Link::of(specs, Instant::ZERO, 0, true);
        for way in link::Way::BOTH {
            let forward = way == link::Way::Forward;
            let spec = link.direction(forward);
            let ends = link.between.map(|node| network.name(node).to_owned());
            let [from, to] = if forward {
                ends
            } else {
                [ends[1].clone(), ends[0].clone()]
            };
            legend.links.push(LinkLegend {
                name: link.name.clone(),
                from,
                to,
                stages: stages.stage_names(way).map(str::to_owned).collect(),
            });
            let way = if forward { "forward" } else { "backward" };
            let note = format!("{} {way}: seed {}", link.name, spec.seed);
            legend.seed_notes.push(note);
        }
    }
    legend
}

/// What routers say, and damaged copies.
const MADE_BYTES: usize = 4 << 20;
/// Half a second of fragments at 1 Gb/s: few programs send what is to be fragmented, and all pages
/// are touched at the start.
const MADE_BYTES_MAX: usize = 64 << 20;
/// Hosts on a subnet up to which all are told of all.
const NEIGHBOURS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// `n` clients and a server on a switch; the server's link holds 10 MB and more.
    fn star(n: usize) -> Network {
        let mut text = "title = \"x\"\n[hosts.server]\n[switches.sw]\n[links.s]\n\
                        between = [\"sw\", \"server\"]\nrate = \"1Gb/s\"\ndelay = \"50ms\"\nqueue = \"6MB\"\n"
            .to_owned();
        for i in 0..n {
            text += &format!("[hosts.c{i}]\n[links.c{i}]\nbetween = [\"c{i}\", \"sw\"]\n");
        }
        PathFile::parse(Path::new("x.toml"), &text).unwrap().network
    }

    #[test]
    fn one_client_alone_may_fill_the_server_s_link() {
        let network = star(19);
        let server = network.links.iter().find(|l| l.name == "s").unwrap();
        for (host, bytes) in network
            .hosts
            .iter()
            .zip(ring_bytes(&network, Bytes::new(4 << 30)))
        {
            assert!(
                host.name == "server" || bytes >= server.forward_memory.as_u64(),
                "{bytes}"
            );
        }
    }

    #[test]
    fn all_together_take_no_more_than_the_budget_beyond_their_own_links() {
        let network = star(200);
        let budget = 1 << 30;
        let sum: u64 = ring_bytes(&network, Bytes::new(budget)).iter().sum();
        assert!(sum <= budget, "{sum}");
    }

    #[test]
    fn both_ends_of_half_duplex_keep_their_rate_and_may_change_all_else() {
        let one = |more: &str| {
            let text = format!(
                "title = \"x\"\n[hosts.a]\n[hosts.b]\n[links.l]\nbetween = [\"a\", \"b\"]\n\
                 rate = \"100Mb/s\"\n{more}"
            );
            let path = PathFile::parse(Path::new("x.toml"), &text).unwrap();
            path.network.links[0].clone()
        };
        let rate = Change::Rate(units::Rate::from_bits_per_second(10_000_000));
        let mismatch = one("backward = { duplex = \"half\" }");
        for spec in [&mismatch.forward, &mismatch.backward] {
            assert!(refuses(spec, &rate).is_some());
            assert_eq!(
                refuses(spec, &Change::Limits(link::QueueLimits::default())),
                None
            );
            assert_eq!(refuses(spec, &Change::Up(false)), None);
        }
        assert_eq!(refuses(&one("").forward, &rate), None);
    }
}
