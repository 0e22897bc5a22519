//! How nodes hang together: subnets, addresses and routes.
//!
//! Links that switches join are one IP subnet; a link between two routers is one as well. Routes are
//! those of fewest links; of equal ones the first in the file. No routing protocol is run: a link
//! that goes down stays in the tables, as with static routes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::classify::{Mac, Prefix};

use super::network::{Interface, NextHop, Node, Route};

/// Nodes and links without their properties.
#[derive(Debug)]
pub(super) struct Topology {
    pub(super) between: Vec<[Node; 2]>,
    /// Links of each node.
    hosts: Vec<Vec<usize>>,
    switches: Vec<Vec<usize>>,
    routers: Vec<Vec<usize>>,
    /// Segment of each link.
    pub(super) segment: Vec<usize>,
    pub(super) segments: Vec<Segment>,
}

/// Links that switches join.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// Hosts, then routers, each with its link.
    pub(super) attached: Vec<(Node, usize)>,
}

/// What is wrong with a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// This host has no link, or more than it may have.
    HostLinks(usize, usize),
    /// No way leads from the first host to this node.
    Apart(Node),
    /// This link closes a circle of switches.
    Loop(usize),
}

/// An address that the file states.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stated {
    pub(super) node: Node,
    pub(super) link: usize,
    pub(super) address: IpAddr,
    pub(super) bits: u8,
    /// Where it stands.
    pub(super) at: usize,
}

/// Addresses of one attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) mac: Mac,
    pub(super) address4: Ipv4Addr,
    pub(super) prefix4: u8,
    pub(super) address6: Ipv6Addr,
    pub(super) prefix6: u8,
}

/// The plan of addresses.
#[derive(Debug)]
pub(super) struct Plan {
    /// Of each host's and router's end of a link.
    of: BTreeMap<(Node, usize), Addresses>,
    /// IPv4 and IPv6 block of each segment.
    subnets: Vec<[Prefix; 2]>,
}

/// A way towards a segment: by which link, through which router's interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    link: usize,
    /// Router and the link by which it is reached.
    next: (usize, usize),
}

impl Topology {
    /// Finds the segments and refuses what cannot be: a host has one link, or as many as it likes.
    pub(super) fn new(
        counts: [usize; 3],
        between: Vec<[Node; 2]>,
        has_one_link: bool,
    ) -> Result<Self, Flaw> {
        let [hosts, switches, routers] = counts;
        let mut topology = Self {
            segment: vec![usize::MAX; between.len()],
            between,
            hosts: vec![Vec::new(); hosts],
            switches: vec![Vec::new(); switches],
            routers: vec![Vec::new(); routers],
            segments: Vec::new(),
        };
        for (link, ends) in topology.between.clone().into_iter().enumerate() {
            for end in ends {
                topology.links_mut(end).push(link);
            }
        }
        let is_flaw = |links: &Vec<usize>| links.is_empty() || has_one_link && links.len() > 1;
        let lone = topology.hosts.iter().position(is_flaw);
        if let Some(host) = lone {
            return Err(Flaw::HostLinks(host, topology.hosts[host].len()));
        }
        topology
            .find_loop()
            .map_or(Ok(()), |l| Err(Flaw::Loop(l)))?;
        topology
            .find_apart()
            .map_or(Ok(()), |n| Err(Flaw::Apart(n)))?;
        topology.find_segments();
        Ok(topology)
    }

    /// Links of a node.
    pub(super) fn links(&self, node: Node) -> &[usize] {
        match node {
            Node::Host(n) => &self.hosts[n],
            Node::Switch(n) => &self.switches[n],
            Node::Router(n) => &self.routers[n],
        }
    }

    fn links_mut(&mut self, node: Node) -> &mut Vec<usize> {
        match node {
            Node::Host(n) => &mut self.hosts[n],
            Node::Switch(n) => &mut self.switches[n],
            Node::Router(n) => &mut self.routers[n],
        }
    }

    fn other_end(&self, link: usize, node: Node) -> Node {
        let [a, b] = self.between[link];
        if a == node { b } else { a }
    }

    fn nodes(&self) -> impl Iterator<Item = Node> {
        let hosts = (0..self.hosts.len()).map(Node::Host);
        let switches = (0..self.switches.len()).map(Node::Switch);
        let routers = (0..self.routers.len()).map(Node::Router);
        hosts.chain(switches).chain(routers)
    }

    /// Number of a node among all.
    fn index(&self, node: Node) -> usize {
        match node {
            Node::Host(n) => n,
            Node::Switch(n) => self.hosts.len() + n,
            Node::Router(n) => self.hosts.len() + self.switches.len() + n,
        }
    }

    /// The first link between two switches that other links join already.
    fn find_loop(&self) -> Option<usize> {
        let mut group: Vec<usize> = (0..self.switches.len()).collect();
        fn root(group: &mut [usize], mut n: usize) -> usize {
            while group[n] != n {
                group[n] = group[group[n]];
                n = group[n];
            }
            n
        }
        self.between.iter().position(|ends| {
            let [Node::Switch(a), Node::Switch(b)] = *ends else {
                return false;
            };
            let (a, b) = (root(&mut group, a), root(&mut group, b));
            group[a] = b;
            a == b
        })
    }

    fn find_apart(&self) -> Option<Node> {
        let mut reached = BTreeSet::from([Node::Host(0)]);
        let mut open = vec![Node::Host(0)];
        while let Some(node) = open.pop() {
            for &link in self.links(node) {
                let other = self.other_end(link, node);
                if reached.insert(other) {
                    open.push(other);
                }
            }
        }
        self.nodes().find(|node| !reached.contains(node))
    }

    fn find_segments(&mut self) {
        for first in 0..self.between.len() {
            if self.segment[first] != usize::MAX {
                continue;
            }
            let number = self.segments.len();
            self.segments.push(Segment::default());
            let mut open = vec![first];
            while let Some(link) = open.pop() {
                if self.segment[link] == number {
                    continue;
                }
                self.segment[link] = number;
                for end in self.between[link] {
                    if let Node::Switch(n) = end {
                        open.extend(&self.switches[n]);
                    }
                }
            }
        }
        let ends: Vec<Node> = self
            .nodes()
            .filter(|node| !matches!(node, Node::Switch(_)))
            .collect();
        for node in ends {
            for link in self.links(node).to_vec() {
                self.segments[self.segment[link]]
                    .attached
                    .push((node, link));
            }
        }
    }

    /// Gives every attachment its addresses: those stated, and for the rest of a segment the next
    /// free ones of its subnet, hosts from below, routers from above.
    ///
    /// # Errors
    /// Place and problem of a stated address that cannot be; place 0 when addresses run out.
    pub(super) fn addresses(&self, stated: &[Stated]) -> Result<Plan, (usize, String)> {
        let mut subnets = Vec::new();
        let mut blocks = Blocks::new(self, stated)?;
        for number in 0..self.segments.len() {
            subnets.push([blocks.next4(number)?, blocks.next6(number)?]);
        }
        let (mut router_ends, mut more_ends) = (0_u16, 0_u16);
        let mut of = BTreeMap::new();
        for (segment, subnet) in self.segments.iter().zip(&subnets) {
            let v4 = self.in_subnet(segment, subnet[0], stated)?;
            let v6 = self.in_subnet(segment, subnet[1], stated)?;
            for (&(node, link), (v4, v6)) in segment.attached.iter().zip(v4.iter().zip(&v6)) {
                let mac = match node {
                    Node::Host(n) if self.hosts[n][0] != link => {
                        more_ends += 1;
                        mac(KIND_HOST_MORE, more_ends)
                    }
                    Node::Host(n) => mac(KIND_HOST, u16::try_from(n + 1).unwrap_or(u16::MAX)),
                    Node::Switch(_) | Node::Router(_) => {
                        router_ends += 1;
                        mac(KIND_ROUTER, router_ends)
                    }
                };
                let (IpAddr::V4(address4), IpAddr::V6(address6)) = (*v4, *v6) else {
                    continue;
                };
                let own = Addresses {
                    mac,
                    address4,
                    prefix4: subnet[0].bits(),
                    address6,
                    prefix6: subnet[1].bits(),
                };
                of.insert((node, link), own);
            }
        }
        Ok(Plan { of, subnets })
    }

    fn in_subnet(
        &self,
        segment: &Segment,
        subnet: Prefix,
        stated: &[Stated],
    ) -> Result<Vec<IpAddr>, (usize, String)> {
        let is_v4 = subnet.network().is_ipv4();
        let own = |node: Node, link: usize| {
            stated
                .iter()
                .find(|s| s.node == node && s.link == link && s.address.is_ipv4() == is_v4)
        };
        let mut taken = BTreeSet::new();
        for &(node, link) in &segment.attached {
            if let Some(s) = own(node, link)
                && !taken.insert(s.address)
            {
                return Err((s.at, format!("{} is given twice", s.address)));
            }
        }
        let top = top_of(subnet, segment.attached.len());
        let (mut low, mut high) = (1_u32, top);
        let mut addresses = Vec::new();
        for &(node, link) in &segment.attached {
            if let Some(s) = own(node, link) {
                addresses.push(s.address);
                continue;
            }
            let address = loop {
                if low > high {
                    return Err((0, format!("addresses: {subnet} has no room for all on it")));
                }
                let offset = if matches!(node, Node::Host(_)) {
                    low
                } else {
                    high
                };
                if matches!(node, Node::Host(_)) {
                    low += 1;
                } else {
                    high -= 1;
                }
                let address = plus(subnet.network(), offset);
                if taken.insert(address) {
                    break address;
                }
            };
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// For each node the way to `segment` by fewest links; `None` for those on it and for switches
    /// of it.
    pub(super) fn ways_to(&self, segment: usize) -> Vec<Option<Way>> {
        let total = self.hosts.len() + self.switches.len() + self.routers.len();
        // The link towards the segment and the node at its other end.
        let mut parent: Vec<Option<(usize, Node)>> = vec![None; total];
        let mut seen = vec![false; total];
        let mut open = VecDeque::new();
        for &(node, _) in &self.segments[segment].attached {
            if matches!(node, Node::Router(_)) && !seen[self.index(node)] {
                open.push_back(node);
            }
            seen[self.index(node)] = true;
        }
        while let Some(node) = open.pop_front() {
            for &link in self.links(node) {
                let other = self.other_end(link, node);
                if self.segment[link] == segment || seen[self.index(other)] {
                    continue;
                }
                seen[self.index(other)] = true;
                parent[self.index(other)] = Some((link, node));
                if !matches!(other, Node::Host(_)) {
                    open.push_back(other);
                }
            }
        }
        let way = |node: Node| {
            let (link, mut at) = parent[self.index(node)]?;
            let mut by = link;
            while let Node::Switch(_) = at {
                (by, at) = parent[self.index(at)]?;
            }
            match at {
                Node::Router(n) => Some(Way {
                    link,
                    next: (n, by),
                }),
                Node::Host(_) | Node::Switch(_) => None,
            }
        };
        self.nodes().map(way).collect()
    }

    /// Routes of all routers, and for each host its gateway and the routes that differ from it.
    pub(super) fn routes(&self, plan: &Plan) -> Routes {
        let mut routes = Routes {
            routers: vec![Vec::new(); self.routers.len()],
            hosts: vec![Vec::new(); self.hosts.len()],
            gateways: vec![None; self.hosts.len()],
        };
        for (host, gateway) in routes.gateways.iter_mut().enumerate() {
            let segment = &self.segments[self.segment[self.hosts[host][0]]];
            *gateway = segment
                .attached
                .iter()
                .find_map(|&(node, link)| match node {
                    Node::Router(n) => Some((n, link)),
                    Node::Host(_) | Node::Switch(_) => None,
                });
        }
        for segment in 0..self.segments.len() {
            let ways = self.ways_to(segment);
            for (n, own) in routes.routers.iter_mut().enumerate() {
                let direct = self.routers[n]
                    .iter()
                    .find(|&&l| self.segment[l] == segment);
                let way = ways[self.index(Node::Router(n))];
                for to in plan.subnets[segment] {
                    match (direct, way) {
                        (Some(&link), _) => own.push(Route {
                            to,
                            link,
                            via: None,
                        }),
                        (None, Some(way)) => own.push(route(plan, to, way)),
                        (None, None) => {}
                    }
                }
            }
            for (n, own) in routes.hosts.iter_mut().enumerate() {
                let Some(way) = ways[n].filter(|w| Some(w.next) != routes.gateways[n]) else {
                    continue;
                };
                own.extend(plan.subnets[segment].map(|to| route(plan, to, way)));
            }
        }
        routes
    }

    /// The routers on the segment of a link, but for one, each with its link.
    pub(super) fn routers_behind(&self, link: usize, but: usize) -> Vec<(usize, usize)> {
        let behind = |&(node, link): &(Node, usize)| match node {
            Node::Router(n) if n != but => Some((n, link)),
            _ => None,
        };
        let attached = &self.segments[self.segment[link]].attached;
        attached.iter().filter_map(behind).collect()
    }
}

impl Plan {
    /// Addresses of a node's end of a link.
    pub(super) fn at(&self, node: Node, link: usize) -> Option<Addresses> {
        self.of.get(&(node, link)).copied()
    }

    /// A router's interface on a link as the next hop of packets of either version.
    pub(super) fn next_hop(&self, (router, link): (usize, usize), is_v4: bool) -> Option<NextHop> {
        let own = self.at(Node::Router(router), link)?;
        Some(NextHop {
            address: if is_v4 {
                own.address4.into()
            } else {
                own.address6.into()
            },
            mac: own.mac,
        })
    }

    /// A host's or router's end of a link.
    pub(super) fn interface(&self, node: Node, link: usize, mtu_bytes: u32) -> Option<Interface> {
        let own = self.at(node, link)?;
        Some(Interface {
            link,
            mac: own.mac,
            address4: own.address4,
            prefix4: own.prefix4,
            address6: own.address6,
            prefix6: own.prefix6,
            mtu_bytes,
        })
    }
}

fn route(plan: &Plan, to: Prefix, way: Way) -> Route {
    Route {
        to,
        link: way.link,
        via: plan.next_hop(way.next, to.network().is_ipv4()),
    }
}

/// What [`Topology::routes`] finds.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) routers: Vec<Vec<Route>>,
    pub(super) hosts: Vec<Vec<Route>>,
    /// Router and its link on the host's segment.
    pub(super) gateways: Vec<Option<(usize, usize)>>,
}

/// Subnets, one after the other.
struct Blocks {
    stated: Vec<[Option<Prefix>; 2]>,
    /// On each segment.
    attached: Vec<usize>,
    /// Stated subnets of all segments.
    used: Vec<Prefix>,
    next4: u32,
    next6: u16,
}

impl Blocks {
    fn new(topology: &Topology, stated: &[Stated]) -> Result<Self, (usize, String)> {
        let mut own: Vec<[Option<Prefix>; 2]> = vec![[None; 2]; topology.segments.len()];
        for s in stated {
            let Some(subnet) = Prefix::new(s.address, s.bits) else {
                return Err((s.at, "the prefix is longer than the address".to_owned()));
            };
            let family = usize::from(s.address.is_ipv6());
            let segment = topology.segment[s.link];
            match own[segment][family] {
                Some(other) if other != subnet => {
                    return Err((
                        s.at,
                        format!(
                            "{}/{} is not in {other}, the subnet of others on the same segment",
                            s.address, s.bits
                        ),
                    ));
                }
                _ => {}
            }
            let clash = own.iter().enumerate().find_map(|(n, blocks)| {
                blocks[family].filter(|&other| n != segment && overlap(subnet, other))
            });
            if let Some(other) = clash {
                return Err((
                    s.at,
                    format!("{subnet} overlaps {other}, the subnet of another segment"),
                ));
            }
            own[segment][family] = Some(subnet);
        }
        Ok(Self {
            used: own.iter().flatten().copied().flatten().collect(),
            attached: topology.segments.iter().map(|s| s.attached.len()).collect(),
            stated: own,
            next4: u32::from(BLOCK4),
            next6: 0,
        })
    }

    fn next4(&mut self, segment: usize) -> Result<Prefix, (usize, String)> {
        if let Some(stated) = self.stated[segment][0] {
            return Ok(stated);
        }
        let size = size_for(self.attached[segment]);
        let bits = u8::try_from(size.leading_zeros() + 1).unwrap_or(32);
        loop {
            let start = self.next4.next_multiple_of(size);
            self.next4 = start.saturating_add(size);
            if self.next4 > u32::from(BLOCK4).saturating_add(BLOCK4_SIZE) {
                return Err((
                    0,
                    "addresses: 198.18.0.0/15 has no subnet left; state addresses".to_owned(),
                ));
            }
            let block = Prefix::new(IpAddr::V4(Ipv4Addr::from(start)), bits);
            if let Some(block) = block.filter(|&b| !self.used.iter().any(|&u| overlap(u, b))) {
                return Ok(block);
            }
        }
    }

    fn next6(&mut self, segment: usize) -> Result<Prefix, (usize, String)> {
        if let Some(stated) = self.stated[segment][1] {
            return Ok(stated);
        }
        while self.next6 < u16::MAX {
            let network = Ipv6Addr::new(0xfd67, 0x7064, 0, self.next6, 0, 0, 0, 0);
            self.next6 += 1;
            let block = Prefix::new(IpAddr::V6(network), 64);
            if let Some(block) = block.filter(|&b| !self.used.iter().any(|&u| overlap(u, b))) {
                return Ok(block);
            }
        }
        Err((
            0,
            "addresses: fd67:7064::/48 has no subnet left; state addresses".to_owned(),
        ))
    }
}

fn overlap(a: Prefix, b: Prefix) -> bool {
    a.contains(b.network()) || b.contains(a.network())
}

/// Addresses of a subnet for so many, network and broadcast included.
fn size_for(attached: usize) -> u32 {
    let needed = u32::try_from(attached + 2).unwrap_or(u32::MAX / 4);
    needed.next_power_of_two().max(256)
}

/// The highest host number of a subnet: below the broadcast address of IPv4, and not higher than
/// needed in the wide ones of IPv6.
fn top_of(subnet: Prefix, attached: usize) -> u32 {
    let host_bits = match subnet.network() {
        IpAddr::V4(_) => 32 - u32::from(subnet.bits()),
        IpAddr::V6(_) => 128 - u32::from(subnet.bits()),
    };
    let whole = 1_u32.checked_shl(host_bits).unwrap_or(u32::MAX);
    match subnet.network() {
        IpAddr::V4(_) => whole.saturating_sub(2),
        IpAddr::V6(_) => whole.min(size_for(attached)).saturating_sub(2),
    }
}

fn plus(network: IpAddr, offset: u32) -> IpAddr {
    match network {
        IpAddr::V4(a) => Ipv4Addr::from(u32::from(a).saturating_add(offset)).into(),
        IpAddr::V6(a) => Ipv6Addr::from(u128::from(a).saturating_add(offset.into())).into(),
    }
}

/// Locally administered.
pub(super) const fn mac(kind: u8, number: u16) -> Mac {
    let [high, low] = number.to_be_bytes();
    Mac([0x02, 0x67, 0x70, kind, high, low])
}

const KIND_HOST: u8 = 0;
const KIND_ROUTER: u8 = 1;
/// A host's ends of further links.
const KIND_HOST_MORE: u8 = 2;
/// RFC 2544's block for benchmarks of network devices: never routed, never anybody's LAN.
const BLOCK4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const BLOCK4_SIZE: u32 = 1 << 17;
