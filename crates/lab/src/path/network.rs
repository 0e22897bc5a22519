//! The nodes and links of a path file as they are to be built: names resolved, defaults filled in,
//! every address and route settled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use link::spec;
use units::{Bytes, Duration, Rate};
use wire::classify::{Mac, Match, Prefix};

use super::HostSpec;
use crate::groups::Grouping;

/// All nodes and links. Numbers of hosts, switches, routers and links are places in these lists,
/// which are in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Hosts. In a file of two hosts and one link the near one comes first.
    pub hosts: Vec<HostSpec>,
    /// Learning switches.
    pub switches: Vec<SwitchSpec>,
    /// IP routers.
    pub routers: Vec<RouterSpec>,
    /// Links.
    pub links: Vec<LinkSpec>,
    /// What changes on the way, in the order of time.
    pub schedule: Vec<ScheduleEntry>,
    /// `run = "kernel"`: pairs of interfaces with token buckets are the links, and kernels the routers.
    pub by_kernel: bool,
}

/// A node by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A host.
    Host(usize),
    /// A switch.
    Switch(usize),
    /// A router.
    Router(usize),
}

/// A learning switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchSpec {
    /// Name in the file.
    pub name: String,
    /// Its links.
    pub links: Vec<usize>,
    /// Looked at before it forwards.
    pub rules: Vec<RuleSpec>,
    /// What the queues of the links that leave it share.
    pub buffer: Option<BufferSpec>,
}

/// A buffer that queues share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSpec {
    /// Bytes on the wire.
    pub bytes: Bytes,
    /// How much of what is free one queue may hold.
    pub alpha: link::Alpha,
}

/// An IP router.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterSpec {
    /// Name in the file.
    pub name: String,
    /// False: it sends no ICMP and answers none.
    pub answers: bool,
    /// What answers to a connection or datagram goes back by the link by which that came, whatever the
    /// routes say.
    pub symmetric: bool,
    /// One for each of its links.
    pub interfaces: Vec<Interface>,
    /// The first that contains the destination is meant: those of the file, then those by fewest
    /// links.
    pub routes: Vec<Route>,
    /// Looked at before it forwards.
    pub rules: Vec<RuleSpec>,
    /// `Some`: no router of the lab's own making but a namespace whose kernel forwards, with a gateway in it
    /// that splits TCP connections.
    pub gateway: Option<GatewaySpec>,
}

/// A gateway in a router's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySpec {
    /// Links of each side.
    pub links: [Vec<usize>; 2],
    /// What it is told; the interfaces are the lab's.
    pub config: gateway::config::Config,
    /// Its interfaces are to use segmentation and checksum off-loads.
    pub offloads: bool,
    /// Its kernel's receive buffers: min, default, max.
    pub tcp_rmem_bytes: [u64; 3],
    /// Its kernel's send buffers.
    pub tcp_wmem_bytes: [u64; 3],
}

/// A router's end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The link.
    pub link: usize,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its IPv4 address.
    pub address4: Ipv4Addr,
    /// Bits of the subnet.
    pub prefix4: u8,
    /// Its IPv6 address.
    pub address6: Ipv6Addr,
    /// Bits of the subnet.
    pub prefix6: u8,
    /// Largest packet that it sends, network layer bytes: the smallest that the hosts and links of
    /// its subnet take.
    pub mtu_bytes: u32,
}

/// Where a block of addresses lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The block.
    pub to: Prefix,
    /// The link by which its packets leave.
    pub link: usize,
    /// The router that takes them; `None`: the destination itself is there.
    pub via: Option<NextHop>,
}

/// A router on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Of its interface.
    pub address: IpAddr,
    /// Of its interface.
    pub mac: Mac,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Name in the file.
    pub name: String,
    /// Its ends; forward is from the first to the second.
    pub between: [Node; 2],
    /// First to second.
    pub forward: spec::DirectionSpec,
    /// Second to first.
    pub backward: spec::DirectionSpec,
    /// What changes segments on the way forward.
    pub forward_middlebox: Vec<Middlebox>,
    /// The same backward.
    pub backward_middlebox: Vec<Middlebox>,
    /// Which flows a harmonizer forward takes as parallel streams.
    pub forward_grouping: Grouping,
    /// The same backward.
    pub backward_grouping: Grouping,
    /// Largest packet that the nodes at its ends send, network layer bytes.
    pub mtu_bytes: u32,
    /// IP subnet; links that switches join have one number.
    pub segment: usize,
    /// Memory that frames on their way forward may need.
    pub forward_memory: Bytes,
    /// The same backward.
    pub backward_memory: Bytes,
}

/// What a box on the way does to TCP segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Middlebox {
    /// Takes the window scale option out of SYNs.
    StripWindowScale,
    /// Takes all options out.
    StripOptions,
    /// Takes SACK-permitted and SACK blocks out.
    StripSack,
    /// Takes timestamps out.
    StripTimestamps,
    /// Drops data that begins more than 65,535 bytes behind the newest, as if windows were not scaled.
    SeqCheck,
    /// Lowers the maximum segment size of SYNs to this many bytes.
    MssClamp(u16),
}

/// A rule of a switch or router.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSpec {
    /// The link by which the frame came; `None`: any.
    pub in_link: Option<usize>,
    /// What its headers must be like. `in_port` and `nth` are never set.
    pub matches: Match,
    /// Only the n-th frame that matches, from 1.
    pub nth: Option<u64>,
    /// Only each n-th frame that matches.
    pub every: Option<u64>,
    /// What happens to it.
    pub action: ActionSpec,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionSpec {
    /// The frame is dropped.
    Drop,
    /// It leaves by exactly these links.
    To(Vec<usize>),
    /// A copy leaves by this link; the rules go on.
    Mirror(usize),
    /// Its headers are changed; the rules go on.
    Rewrite(RewriteSpec),
}

/// Header fields to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteSpec {
    /// Ethernet source.
    pub src_mac: Option<Mac>,
    /// Ethernet destination.
    pub dst_mac: Option<Mac>,
    /// IP source.
    pub src: Option<IpAddr>,
    /// IP destination.
    pub dst: Option<IpAddr>,
    /// TCP or UDP source port.
    pub src_port: Option<u16>,
    /// TCP or UDP destination port.
    pub dst_port: Option<u16>,
    /// Differentiated services code point, 0..=63.
    pub dscp: Option<u8>,
    /// Identifier of the outermost VLAN tag, 0..=4095.
    pub vlan: Option<u16>,
    /// Time to live or hop limit, at least 1.
    pub ttl: Option<u8>,
}

/// A change at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleEntry {
    /// From the lab's start.
    pub at: Duration,
    /// The link.
    pub link: usize,
    /// It concerns the way forward.
    pub forward: bool,
    /// It concerns the way backward.
    pub backward: bool,
    /// The change.
    pub change: link::Change,
}

/// A link on a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The link.
    pub link: usize,
    /// From its first end to the second.
    pub forward: bool,
}

impl LinkSpec {
    /// The direction's stages: `true` for first to second.
    pub const fn direction(&self, forward: bool) -> &spec::DirectionSpec {
        if forward {
            &self.forward
        } else {
            &self.backward
        }
    }

    /// What the direction carries, in bits of its medium; of a trace the mean. `None`: as fast as frames
    /// come.
    pub fn rate(&self, forward: bool) -> Option<Rate> {
        let rate = self.direction(forward).rate.as_ref();
        rate.map(|rate| super::links::mean_rate(&rate.server))
    }

    /// What the direction's boxes do.
    pub fn middlebox(&self, forward: bool) -> &[Middlebox] {
        if forward {
            &self.forward_middlebox
        } else {
            &self.backward_middlebox
        }
    }

    /// Which flows the direction's harmonizer takes as parallel streams.
    pub const fn grouping(&self, forward: bool) -> &Grouping {
        if forward {
            &self.forward_grouping
        } else {
            &self.backward_grouping
        }
    }

    /// Memory that the direction's frames may need.
    pub const fn memory_bytes(&self, forward: bool) -> Bytes {
        if forward {
            self.forward_memory
        } else {
            self.backward_memory
        }
    }
}

impl Network {
    /// What frames leave and enter the lab by, each with its link: hosts, then the interfaces of gateways.
    pub fn ports(&self) -> Vec<(Node, usize)> {
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts.map(|(n, host)| (Node::Host(n), host.link));
        let gateways = self.routers.iter().enumerate();
        let gateways = gateways.filter(|(_, router)| router.gateway.is_some());
        let ends = gateways.flat_map(|(n, router)| {
            let interfaces = router.interfaces.iter();
            interfaces.map(move |i| (Node::Router(n), i.link))
        });
        hosts.chain(ends).collect()
    }

    /// True where kernels split connections on the way; virtual time has none.
    pub fn has_gateways(&self) -> bool {
        self.routers.iter().any(|r| r.gateway.is_some())
    }

    /// The gateways on the way of IPv4 packets from one host to another: the router's number, the links by
    /// which they come and leave.
    pub fn gateways_between(&self, from: usize, to: usize) -> Vec<(usize, usize, usize)> {
        let hops = self.walk(from, to).unwrap_or_default();
        let pairs = hops.windows(2).filter_map(|pair| {
            let Node::Router(n) = self.end_of(pair[0]) else {
                return None;
            };
            let is_gateway = self.routers[n].gateway.is_some();
            is_gateway.then_some((n, pair[0].link, pair[1].link))
        });
        pairs.collect()
    }

    /// Name of a node.
    pub fn name(&self, node: Node) -> &str {
        match node {
            Node::Host(n) => &self.hosts[n].name,
            Node::Switch(n) => &self.switches[n].name,
            Node::Router(n) => &self.routers[n].name,
        }
    }

    /// The switch whose buffer the queue of a link's direction shares, if it shares one.
    pub fn buffer_of(&self, link: usize, forward: bool) -> Option<usize> {
        let own = &self.links[link];
        match own.between[usize::from(!forward)] {
            Node::Switch(n) if own.direction(forward).rate.is_some() => {
                self.switches[n].buffer.map(|_| n)
            }
            _ => None,
        }
    }

    /// Memory that the frames of all links may need.
    pub fn memory_bytes(&self) -> Bytes {
        self.links.iter().fold(Bytes::new(0), |sum, link| {
            sum + link.forward_memory + link.backward_memory
        })
    }

    /// The links that IPv4 packets from one host to another take, without regard to rules. `None`
    /// when their routes lead in a circle.
    pub fn walk(&self, from: usize, to: usize) -> Option<Vec<Hop>> {
        let goal = IpAddr::V4(self.hosts[to].address4);
        let mut hops = Vec::new();
        let mut node = Node::Host(from);
        for _ in 0..=self.routers.len() {
            let (link, target) = self.next(node, goal, to)?;
            self.cross_segment(node, link, target, &mut hops)?;
            if target == Node::Host(to) {
                return Some(hops);
            }
            node = target;
        }
        None
    }

    /// Smallest MTU among the links and interfaces that packets from one host to another pass.
    pub fn mtu_bytes(&self, from: usize, to: usize) -> u32 {
        let ends = self.hosts[from].mtu_bytes.min(self.hosts[to].mtu_bytes);
        let mut mtu = ends;
        for hop in self.walk(from, to).unwrap_or_default() {
            let link = &self.links[hop.link];
            mtu = mtu.min(link.mtu_bytes);
            if let Node::Router(n) = link.between[usize::from(!hop.forward)] {
                let own = self.routers[n]
                    .interfaces
                    .iter()
                    .find(|i| i.link == hop.link);
                mtu = own.map_or(mtu, |i| mtu.min(i.mtu_bytes));
            }
        }
        mtu
    }

    /// The link by which `node` sends towards `goal`, and the host or router that takes it there.
    fn next(&self, node: Node, goal: IpAddr, to: usize) -> Option<(usize, Node)> {
        let (link, via) = match node {
            Node::Host(n) => {
                let host = &self.hosts[n];
                let route = host.routes.iter().find(|r| r.to.contains(goal));
                let there = self.links[self.hosts[to].link].segment;
                let shared = host.links().find(|l| self.links[*l].segment == there);
                match (shared, route) {
                    (Some(link), _) => (link, None),
                    (None, Some(route)) => (route.link, route.via.map(|v| v.address)),
                    (None, None) => (host.link, Some(IpAddr::V4(host.gateway4?))),
                }
            }
            Node::Router(n) => {
                let route = self.routers[n]
                    .routes
                    .iter()
                    .find(|r| r.to.contains(goal))?;
                (route.link, route.via.map(|v| v.address))
            }
            Node::Switch(_) => return None,
        };
        match via {
            None => Some((link, Node::Host(to))),
            Some(address) => Some((link, self.router_at(address)?)),
        }
    }

    fn router_at(&self, address: IpAddr) -> Option<Node> {
        self.routers
            .iter()
            .position(|r| {
                r.interfaces
                    .iter()
                    .any(|i| IpAddr::V4(i.address4) == address)
            })
            .map(Node::Router)
    }

    /// Adds the links from `node` by `first` through switches to `target`. Switches form a tree: no
    /// node is met twice.
    fn cross_segment(
        &self,
        node: Node,
        first: usize,
        target: Node,
        hops: &mut Vec<Hop>,
    ) -> Option<()> {
        let begin = self.hop_from(node, first);
        let mut tried = vec![vec![begin]];
        while let Some(way) = tried.pop() {
            let last = *way.last()?;
            match self.end_of(last) {
                end if end == target => {
                    hops.extend(way);
                    return Some(());
                }
                Node::Switch(n) => {
                    for &link in self.switches[n].links.iter().filter(|&&l| l != last.link) {
                        let mut longer = way.clone();
                        longer.push(self.hop_from(Node::Switch(n), link));
                        tried.push(longer);
                    }
                }
                Node::Host(_) | Node::Router(_) => {}
            }
        }
        None
    }

    fn hop_from(&self, node: Node, link: usize) -> Hop {
        Hop {
            link,
            forward: self.links[link].between[0] == node,
        }
    }

    fn end_of(&self, hop: Hop) -> Node {
        self.links[hop.link].between[usize::from(hop.forward)]
    }
}
