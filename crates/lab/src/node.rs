//! What joins links: learning switches and IP routers, as decisions on one run of segments each.
//!
//! A node looks at a frame's headers and says where it goes; the engine moves it. No clock, no I/O.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use units::{Duration, Instant};
use wire::classify::{Fields, Mac, Match, Prefix};
use wire::icmp::{self, Answer, Original, Unreachable};
use wire::{arp, fragment, rewrite};

/// A learning switch (IEEE 802.1D clause 7, without spanning tree).
#[derive(Debug)]
pub(crate) struct Switch {
    /// The directions that leave it, one for each link.
    pub(crate) out: Vec<usize>,
    pub(crate) rules: Rules,
    table: HashMap<Mac, usize>,
}

/// An IP router.
#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) interfaces: Vec<Interface>,
    /// The first that contains the destination is meant.
    pub(crate) routes: Vec<Route>,
    pub(crate) neighbours: HashMap<IpAddr, Mac>,
    pub(crate) rules: Rules,
    /// False: it stays silent, as many firewalls do.
    pub(crate) answers: bool,
    /// By which interface, and from whom, the packets of each flow came last; `None`: it is not asked.
    came: Option<HashMap<Flow, (usize, Mac)>>,
    tokens: u32,
    tokens_at: Instant,
}

/// A router's end of a link.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// The direction that leaves here.
    pub(crate) out: usize,
    pub(crate) mac: Mac,
    pub(crate) address4: Option<Ipv4Addr>,
    pub(crate) address6: Option<Ipv6Addr>,
    /// Network layer bytes that the link carries.
    pub(crate) mtu_bytes: u32,
}

/// What goes one way between two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flow {
    protocol: u8,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
}

impl Flow {
    /// `None` for what has no ports.
    fn of(fields: &Fields) -> Option<Self> {
        Some(Self {
            protocol: fields.protocol?,
            from: (fields.src?, fields.src_port?),
            to: (fields.dst?, fields.dst_port?),
        })
    }

    const fn opposite(self) -> Self {
        Self {
            protocol: self.protocol,
            from: self.to,
            to: self.from,
        }
    }
}

/// Where a prefix lies.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) to: Prefix,
    pub(crate) interface: usize,
    /// `None`: it is on the link itself.
    pub(crate) via: Option<IpAddr>,
}

/// An ordered list of rules; the first that decides ends it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    list: Vec<Rule>,
}

/// A rule of a switch or router.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// In which direction the frame came, `None`: any.
    pub(crate) from: Option<usize>,
    pub(crate) matches: Match,
    /// Counts what matches: only these numbers, from 1.
    pub(crate) count: Option<Nth>,
    pub(crate) action: Action,
    pub(crate) hits: u64,
}

/// Which of the matching segments a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nth {
    /// The n-th alone.
    Only(u64),
    /// Each n-th.
    Every(u64),
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Drop,
    /// Leaves by these directions and no other.
    To(Vec<usize>),
    /// A copy leaves by this direction; the rules go on.
    Mirror(usize),
    /// The header is changed; the rules go on.
    Rewrite(Rewrite),
}

/// Header fields to be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rewrite {
    pub(crate) src_mac: Option<Mac>,
    pub(crate) dst_mac: Option<Mac>,
    pub(crate) src: Option<IpAddr>,
    pub(crate) dst: Option<IpAddr>,
    pub(crate) src_port: Option<u16>,
    pub(crate) dst_port: Option<u16>,
    pub(crate) dscp: Option<u8>,
    pub(crate) vlan: Option<u16>,
    pub(crate) ttl: Option<u8>,
}

/// What the rules say of a run of segments.
#[derive(Debug, Default)]
pub(crate) struct Ruling {
    /// `Some(n)`: rule n drops it.
    pub(crate) dropped: Option<usize>,
    /// `Some`: leaves by these.
    pub(crate) to: Option<Vec<usize>>,
    pub(crate) mirrors: Vec<usize>,
    pub(crate) rewrites: Vec<Rewrite>,
}

/// What a router does with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    /// Not meant for it; lost there as on any wire.
    Ignore,
    /// Goes on by an interface, with new addresses and a smaller time to live.
    Forward {
        interface: usize,
        to_mac: Mac,
        /// As fragments of so many bytes of IP at most.
        fragments_of: Option<u32>,
    },
    /// Is consumed; `len` bytes of answer go back the way it came.
    Consumed { answer: Option<usize> },
    /// Is lost for `cause`; maybe an answer goes back.
    Drop {
        cause: link::DropCause,
        answer: Option<usize>,
    },
}

impl Switch {
    pub(crate) fn new(out: Vec<usize>, rules: Rules) -> Self {
        Self {
            out,
            rules,
            table: HashMap::new(),
        }
    }

    /// Where a frame that came by the reverse of `back` goes. `to` is cleared first.
    pub(crate) fn forward(&mut self, fields: &Fields, back: usize, to: &mut Vec<usize>) {
        to.clear();
        let source = fields.src_mac;
        if source.is_station()
            && (self.table.len() < STATIONS_MAX || self.table.contains_key(&source))
        {
            self.table.insert(source, back);
        }
        match self.table.get(&fields.dst_mac) {
            Some(&known) if !fields.dst_mac.is_group() => {
                if known != back {
                    to.push(known);
                }
            }
            _ => to.extend(self.out.iter().copied().filter(|&d| d != back)),
        }
    }
}

impl Rules {
    pub(crate) fn new(list: Vec<Rule>) -> Self {
        Self { list }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// True when a rule counts packets, so that segments must be asked for one by one.
    pub(crate) fn counts(&self) -> bool {
        let counting = |r: &Rule| match r.count {
            Some(Nth::Every(_)) => true,
            Some(Nth::Only(n)) => r.hits < n,
            None => false,
        };
        self.list.iter().any(counting)
    }

    pub(crate) fn list(&self) -> &[Rule] {
        &self.list
    }

    pub(crate) fn replace(&mut self, list: Vec<Rule>) {
        self.list = list;
    }

    /// What becomes of `segments` alike segments (1 where a rule counts).
    pub(crate) fn rule(&mut self, fields: &Fields, from: usize, segments: u16) -> Ruling {
        let mut ruling = Ruling::default();
        for (number, rule) in self.list.iter_mut().enumerate() {
            if rule.from.is_some_and(|f| f != from) || !rule.matches.matches(fields, 0) {
                continue;
            }
            rule.hits += u64::from(segments);
            let applies = match rule.count {
                None => true,
                Some(Nth::Only(n)) => rule.hits == n,
                Some(Nth::Every(n)) => rule.hits.is_multiple_of(n.max(1)),
            };
            if !applies {
                continue;
            }
            match &rule.action {
                Action::Drop => {
                    ruling.dropped = Some(number);
                    return ruling;
                }
                Action::To(to) => {
                    ruling.to = Some(to.clone());
                    return ruling;
                }
                Action::Mirror(to) => ruling.mirrors.push(*to),
                Action::Rewrite(rewrite) => ruling.rewrites.push(rewrite.clone()),
            }
        }
        ruling
    }
}

impl Rewrite {
    /// Changes the headers of a frame; `partial` when its transport checksum still is to be done.
    pub(crate) fn apply(&self, header: &mut [u8], partial: bool) {
        if let Some(mac) = self.src_mac {
            rewrite::set_source_mac(header, mac);
        }
        if let Some(mac) = self.dst_mac {
            rewrite::set_destination_mac(header, mac);
        }
        if let Some(vlan) = self.vlan {
            rewrite::set_vlan_id(header, vlan);
        }
        if let Some(dscp) = self.dscp {
            rewrite::set_dscp(header, dscp);
        }
        if let Some(address) = self.src {
            rewrite::set_source_address(header, address, partial);
        }
        if let Some(address) = self.dst {
            rewrite::set_destination_address(header, address, partial);
        }
        if let Some(ttl) = self.ttl {
            rewrite::set_ttl(header, ttl);
        }
        if let Some(port) = self.src_port {
            rewrite::set_source_port(header, port, partial);
        }
        if let Some(port) = self.dst_port {
            rewrite::set_destination_port(header, port, partial);
        }
    }
}

impl Router {
    pub(crate) fn new(
        interfaces: Vec<Interface>,
        routes: Vec<Route>,
        neighbours: HashMap<IpAddr, Mac>,
        rules: Rules,
        answers: bool,
    ) -> Self {
        Self {
            interfaces,
            routes,
            neighbours,
            rules,
            answers,
            came: None,
            tokens: ERRORS_BURST,
            tokens_at: Instant::ZERO,
        }
    }

    /// Has answers go back the way that what they answer came.
    pub(crate) fn symmetric(mut self, on: bool) -> Self {
        self.came = on.then(HashMap::new);
        self
    }

    /// Remembers the way of a packet's flow; the way of the opposite one, if its packets came here.
    fn way_back(&mut self, fields: &Fields, at: usize) -> Option<(usize, Mac)> {
        let came = self.came.as_mut()?;
        let flow = Flow::of(fields)?;
        // Who makes up flows makes others forget theirs: they go by the routes then.
        if came.len() >= FLOWS_MAX {
            came.clear();
        }
        came.insert(flow, (at, fields.src_mac));
        came.get(&flow.opposite()).copied()
    }

    /// What to do with a frame that came in at interface `at`. `frame` is its beginning (of a
    /// super-frame: with the whole frame's lengths), `segment_l3` the network layer bytes of one
    /// segment. An answer is written to `answer`, a whole Ethernet frame.
    pub(crate) fn route(
        &mut self,
        frame: &[u8],
        fields: &Fields,
        segment_l3: u32,
        at: usize,
        now: Instant,
        answer: &mut [u8],
    ) -> Routing {
        let own = self.interfaces[at].clone();
        if let Some(len) = self.resolve(frame, fields, &own, answer) {
            return Routing::Consumed { answer: Some(len) };
        }
        let to_us = fields.dst_mac == own.mac;
        let (Some(source), Some(destination), true) = (fields.src, fields.dst, to_us) else {
            return Routing::Ignore;
        };
        if self.is_own(destination) {
            return self.receive(frame, fields, segment_l3, &own, destination, now, answer);
        }
        let mut refuse = |router: &mut Self, cause, kind: Refusal| {
            let answer = router.refusal(frame, fields, segment_l3, &own, source, kind, now, answer);
            Routing::Drop { cause, answer }
        };
        if fields.ttl <= 1 {
            return refuse(self, link::DropCause::TtlExceeded, Refusal::TimeExceeded);
        }
        let (interface, to_mac) = match self.way_back(fields, at) {
            Some(way) => way,
            None => {
                let route = self.routes.iter().find(|r| r.to.contains(destination));
                let Some(route) = route.cloned() else {
                    let kind = Refusal::Unreachable(Unreachable::Network);
                    return refuse(self, link::DropCause::NoRoute, kind);
                };
                let next = route.via.unwrap_or(destination);
                let Some(&to_mac) = self.neighbours.get(&next) else {
                    let kind = Refusal::Unreachable(Unreachable::Host);
                    return refuse(self, link::DropCause::NoRoute, kind);
                };
                (route.interface, to_mac)
            }
        };
        let mtu = self.interfaces[interface].mtu_bytes;
        let is_too_big = segment_l3 > mtu;
        if is_too_big && !fragment::is_allowed(frame) {
            return refuse(self, link::DropCause::TooBig, Refusal::TooBig(mtu));
        }
        Routing::Forward {
            interface,
            to_mac,
            fragments_of: is_too_big.then_some(mtu),
        }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|i| match address {
            IpAddr::V4(a) => i.address4 == Some(a),
            IpAddr::V6(a) => i.address6 == Some(a),
        })
    }

    /// Answers who asks for an interface's hardware address.
    fn resolve(
        &self,
        frame: &[u8],
        fields: &Fields,
        own: &Interface,
        answer: &mut [u8],
    ) -> Option<usize> {
        if let Some(request) = arp::parse(frame) {
            return (Some(request.target_ip) == own.address4
                && request.operation == arp::Operation::Request)
                .then(|| arp::reply(frame, own.mac, answer))?;
        }
        if fields.icmp_type != Some(NEIGHBOUR_SOLICITATION) || fields.protocol != Some(ICMPV6) {
            return None;
        }
        let asked = icmp::solicitation(frame)?;
        (Some(asked.target) == own.address6)
            .then(|| icmp::neighbour_advertisement(frame, own.mac, true, answer))?
    }

    /// A packet for the router itself.
    #[allow(clippy::too_many_arguments, reason = "one frame's facts")]
    fn receive(
        &mut self,
        frame: &[u8],
        fields: &Fields,
        segment_l3: u32,
        own: &Interface,
        destination: IpAddr,
        now: Instant,
        answer: &mut [u8],
    ) -> Routing {
        if !self.answers {
            return Routing::Consumed { answer: None };
        }
        let mut len = icmp::echo_reply(frame, answer);
        if len.is_none() && fields.protocol == Some(UDP) {
            let to = Answer {
                router_mac: own.mac,
                to_mac: fields.src_mac,
                router_ip: destination,
            };
            let original = Original {
                frame,
                segment_l3_bytes: segment_l3,
            };
            len = icmp::destination_unreachable(original, Unreachable::Port, &to, answer);
        }
        Routing::Consumed {
            answer: len.filter(|_| self.take_token(now)),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one frame's facts")]
    fn refusal(
        &mut self,
        frame: &[u8],
        fields: &Fields,
        segment_l3: u32,
        own: &Interface,
        source: IpAddr,
        kind: Refusal,
        now: Instant,
        answer: &mut [u8],
    ) -> Option<usize> {
        let router_ip = match source {
            IpAddr::V4(_) => IpAddr::V4(own.address4?),
            IpAddr::V6(_) => IpAddr::V6(own.address6?),
        };
        if !self.answers {
            return None;
        }
        let to = Answer {
            router_mac: own.mac,
            to_mac: fields.src_mac,
            router_ip,
        };
        let original = Original {
            frame,
            segment_l3_bytes: segment_l3,
        };
        let len = match kind {
            Refusal::TimeExceeded => icmp::time_exceeded(original, &to, answer),
            Refusal::TooBig(mtu) => icmp::packet_too_big(original, mtu, &to, answer),
            Refusal::Unreachable(why) => icmp::destination_unreachable(original, why, &to, answer),
        };
        len.filter(|_| self.take_token(now))
    }

    /// Routers answer so often and no more (RFC 1812 section 4.3.2.8).
    fn take_token(&mut self, now: Instant) -> bool {
        let passed = now.saturating_since(self.tokens_at).as_ns() / ERROR_INTERVAL.as_ns();
        if passed > 0 {
            let more = u32::try_from(passed).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(more).min(ERRORS_BURST);
            self.tokens_at += Duration::from_ns(passed * ERROR_INTERVAL.as_ns());
        }
        let granted = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        granted
    }
}

/// Why a router refuses.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    TimeExceeded,
    TooBig(u32),
    Unreachable(Unreachable),
}

/// Stations that a switch remembers; beyond them it floods, as real ones do.
const STATIONS_MAX: usize = 8192;
/// Flows whose ways a router remembers.
const FLOWS_MAX: usize = 65_536;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const ICMPV6: u8 = 58;
const UDP: u8 = 17;
/// A thousand answers a second, a hundred at once.
const ERROR_INTERVAL: Duration = Duration::from_ms(1);
const ERRORS_BURST: u32 = 100;
