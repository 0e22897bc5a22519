//! Gateways among the nodes of a lab: namespaces with an interface on each of their links, a kernel that
//! forwards, and in each the gateway of `goodput gateway` that splits TCP connections.

use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gateway::Gateway;
use gateway::buffers::Decision;
use gateway::config::{Config, ConfigError, Zone};
use gateway::counters::Counts;
use gateway::links::LinkStatus;
use gateway::sampled::Sampled;
use gateway::view::Seen;
use sys::control::Connection;
use sys::netlink::{LinkCounters, Netlink};
use sys::netns::NetNs;
use sys::threads;

use crate::lab::{Host, LabError, QUIET_IPV6, in_ns};
use crate::path::{Interface, Network, RouterSpec, interface_name};
use crate::wiring;

/// A gateway of a lab.
#[derive(Debug)]
pub struct LabGateway {
    /// First of the fields: it ends before its namespace goes. Another may go on for it.
    gateway: Mutex<State>,
    config: Config,
    host: Host,
    /// Each with its link, in the order of its links.
    interfaces: Vec<(String, String, Zone)>,
}

#[derive(Debug)]
enum State {
    Runs(Gateway),
    /// What it had done when it left.
    Left(Counts),
}

impl State {
    const fn runs(&self) -> Option<&Gateway> {
        match self {
            Self::Runs(gateway) => Some(gateway),
            Self::Left(_) => None,
        }
    }
}

/// What the kernel counted at an interface of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayLink {
    /// The link's name.
    pub link: String,
    /// The side that it is on.
    pub zone: Zone,
    /// Since the lab came up.
    pub counters: LinkCounters,
}

/// A namespace for a gateway, not yet with anything in it.
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) ns: NetNs,
}

impl Place {
    pub(crate) fn ns(&self) -> &NetNs {
        &self.ns
    }
}

impl LabGateway {
    /// Settles the namespace whose interfaces are there already, and starts the gateway in it.
    pub(crate) fn start(network: &Network, place: Place) -> Result<Self, LabError> {
        let spec = &network.routers[place.number];
        let host = Host::of_gateway(spec, place.ns);
        settle(network, spec, &host)?;
        let Some(own) = &spec.gateway else {
            return Err(LabError::ForwarderGone);
        };
        let mut config = own.config.clone();
        let mut interfaces = Vec::new();
        for (at, interface) in spec.interfaces.iter().enumerate() {
            let zone = match own.links[0].contains(&interface.link) {
                true => Zone::Inside,
                false => Zone::Outside,
            };
            interfaces.push((
                interface_name(at),
                network.links[interface.link].name.clone(),
                zone,
            ));
        }
        // In the order of the file: the first link is the one that is taken where there is a choice.
        for zone in Zone::BOTH {
            let at = |link: &usize| spec.interfaces.iter().position(|i| i.link == *link);
            let places = own.links[zone.index()].iter().filter_map(at);
            config.zones[zone.index()].interfaces = places.map(interface_name).collect();
        }
        config.limits.connections = CONNECTIONS;
        let told = config.clone();
        let started = host.run(|| Gateway::start(told))?;
        let gateway = started.map_err(|source| LabError::Gateway {
            name: spec.name.clone(),
            source: Box::new(source),
        })?;
        Ok(Self {
            gateway: Mutex::new(State::Runs(gateway)),
            config,
            host,
            interfaces,
        })
    }

    /// Where it is.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    fn now(&self) -> MutexGuard<'_, State> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it: its kernel forwards what comes, and its place is free for another program's gateway. Connections
    /// that it carries are reset. What asks it later hears what it had done, and of no connections.
    ///
    /// # Errors
    /// When what it put into the kernel cannot be taken away.
    pub fn leave(&self) -> Result<(), LabError> {
        let mut now = self.now();
        let Some(gateway) = now.runs() else {
            return Ok(());
        };
        let left = State::Left(gateway.counts());
        if let State::Runs(gateway) = std::mem::replace(&mut *now, left) {
            let ended = self.host.run(|| gateway.stop())?;
            let counts = ended.map_err(|source| LabError::Kernel {
                step: "ending a gateway".into(),
                source,
            })?;
            *now = State::Left(counts);
        }
        Ok(())
    }

    /// Has another gateway go on for this one, as an upgrade does; nobody who is connected may notice.
    ///
    /// # Errors
    /// What either of the two says; the old one goes on where it can.
    pub fn renew(&self) -> Result<(), LabError> {
        let mut now = self.now();
        let State::Runs(gateway) = &mut *now else {
            return Err(not_renewed(io::Error::other("it has left")));
        };
        let (mut asks, mut asked) = Connection::pair().map_err(not_renewed)?;
        let (given, taken) = thread::scope(|scope| {
            let new = threads::scoped(scope, "gp-renew", move || {
                self.host.run(|| {
                    Gateway::take_over(self.config.clone(), &mut asks).map_err(io::Error::other)
                })
            });
            let new = new.map_err(not_renewed)?;
            let given = self.host.run(|| {
                asked.receive(WORD_BYTES, Instant::now() + RENEWAL)?;
                gateway.hand_over(&mut asked, None)
            });
            Ok::<_, LabError>((given, new.join()))
        })?;
        let panicked = |_| not_renewed(io::Error::other("a thread panicked"));
        let (new, _) = taken.map_err(panicked)??.map_err(not_renewed)?;
        given?.map_err(not_renewed)?;
        *gateway = new;
        Ok(())
    }

    /// Has it follow another configuration. Another gateway that goes on for it begins with the path file's.
    ///
    /// # Errors
    /// For what cannot be meant, and what cannot change while it runs; then all stays as it is.
    pub fn reload(&self, config: Config) -> Result<(), ConfigError> {
        match &mut *self.now() {
            State::Runs(gateway) => gateway.reload(config),
            State::Left(_) => Ok(()),
        }
    }

    /// What it has done since the lab came up.
    pub fn counts(&self) -> Counts {
        match &*self.now() {
            State::Runs(gateway) => gateway.counts(),
            State::Left(counts) => *counts,
        }
    }

    /// Its busiest connections, at most so many.
    pub fn look(&self, most: usize) -> Vec<Seen> {
        self.now().runs().map(|g| g.look(most)).unwrap_or_default()
    }

    /// Connections that passed unsplit and were counted, the newest first.
    pub fn sampled(&self) -> Vec<Sampled> {
        self.now().runs().map(Gateway::sampled).unwrap_or_default()
    }

    /// Buffers that new connections get by what earlier ones have measured.
    pub fn buffers(&self) -> Vec<Decision> {
        self.now().runs().map(Gateway::buffers).unwrap_or_default()
    }

    /// As it was told by the path file, with its interfaces.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Where connections were placed, by interface; nothing where no side has several links.
    pub fn placed(&self) -> Vec<LinkStatus> {
        self.now().runs().map(Gateway::links).unwrap_or_default()
    }

    /// What its kernel counted at each of its interfaces since the lab came up.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn links(&self) -> Result<Vec<GatewayLink>, LabError> {
        let ns = self.host.namespace()?;
        in_ns(ns, "reading a gateway's counters", || {
            let mut netlink = Netlink::open()?;
            let links = self.interfaces.iter().map(|(interface, link, zone)| {
                Ok(GatewayLink {
                    link: link.clone(),
                    zone: *zone,
                    counters: netlink.counters(interface)?,
                })
            });
            links.collect()
        })
    }

    /// The interface that is on a link.
    pub fn interface(&self, link: &str) -> Option<&str> {
        let found = self.interfaces.iter().find(|(_, name, _)| name == link);
        found.map(|(interface, ..)| interface.as_str())
    }

    /// Names of its interfaces.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.interfaces.iter().map(|(name, _, _)| name.as_str())
    }
}

fn not_renewed(source: io::Error) -> LabError {
    LabError::Kernel {
        step: "having another gateway go on".into(),
        source,
    }
}

/// Addresses, neighbours, routes and settings of a kernel that forwards.
pub(crate) fn settle(network: &Network, spec: &RouterSpec, host: &Host) -> Result<(), LabError> {
    for (name, value) in QUIET_IPV6 {
        let _ = host.set(&format!("net.ipv6.conf.default.{name}"), value);
        for at in 0..spec.interfaces.len() {
            let _ = host.set(&format!("net.ipv6.conf.eth{at}.{name}"), value);
        }
    }
    host.set("net.ipv4.tcp_no_metrics_save", "1")?;
    host.set("net.ipv4.ip_forward", "1")?;
    let _ = host.set("net.ipv6.conf.all.forwarding", "1");
    let _ = host.set("net.ipv4.tcp_congestion_control", "cubic");
    if let Some(own) = &spec.gateway {
        let triplet = |v: &[u64; 3]| format!("{} {} {}", v[0], v[1], v[2]);
        host.set("net.ipv4.tcp_rmem", &triplet(&own.tcp_rmem_bytes))?;
        host.set("net.ipv4.tcp_wmem", &triplet(&own.tcp_wmem_bytes))?;
    }
    // What comes by one link may have to be answered by another.
    for scope in ["all", "default"] {
        let _ = host.set(&format!("net.ipv4.conf.{scope}.rp_filter"), "0");
        let _ = host.set(&format!("net.ipv4.conf.{scope}.send_redirects"), "0");
    }
    in_ns(host.namespace()?, "configuring a gateway", || {
        let mut netlink = Netlink::open()?;
        netlink.set_up("lo", None)?;
        let mut has_ipv6 = Vec::new();
        for (at, own) in spec.interfaces.iter().enumerate() {
            let name = interface_name(at);
            netlink.add_address(&name, own.address4, own.prefix4)?;
            netlink.set_up(&name, Some(own.mtu_bytes))?;
            let ipv6 = netlink.add_address(&name, own.address6, own.prefix6);
            has_ipv6.push(ipv6.is_ok());
            let segment = network.links[own.link].segment;
            for (address, mac) in wiring::members(network, segment) {
                let wanted = mac != own.mac && (address.is_ipv4() || has_ipv6[at]);
                if wanted {
                    netlink.add_neighbour(&name, address, mac.0)?;
                }
            }
        }
        for route in &spec.routes {
            let Some(via) = route.via else { continue };
            for (metric, at, next) in ways(network, spec, route.link, via.address) {
                let name = interface_name(at);
                if next.is_ipv4() || has_ipv6[at] {
                    let to = route.to.network();
                    netlink.add_route_of(&name, to, route.to.bits(), next, metric)?;
                }
            }
        }
        let offloads = spec.gateway.as_ref().is_none_or(|g| g.offloads);
        for at in 0..spec.interfaces.len() {
            for offload in sys::ethtool::Offload::ALL {
                if !offloads {
                    sys::ethtool::set_offload(&interface_name(at), offload, false)?;
                }
            }
        }
        Ok(())
    })
}

/// The ways by which a route's packets may go: that of the route itself, and by links beside it that lead to
/// the same router, behind it. Each with its metric, the interface's place and the next hop.
fn ways(
    network: &Network,
    spec: &RouterSpec,
    link: usize,
    via: IpAddr,
) -> Vec<(u32, usize, IpAddr)> {
    let address = |i: &Interface| match via {
        IpAddr::V4(_) => IpAddr::V4(i.address4),
        IpAddr::V6(_) => IpAddr::V6(i.address6),
    };
    let mut routers = network.routers.iter();
    let next = routers.find(|r| r.interfaces.iter().any(|i| address(i) == via));
    let segment = |i: &Interface| network.links[i.link].segment;
    let mut ways = Vec::new();
    for (at, own) in spec.interfaces.iter().enumerate() {
        if own.link == link {
            ways.push((METRIC, at, via));
            continue;
        }
        let others = next.iter().flat_map(|r| &r.interfaces);
        let beside = others.filter(|i| segment(i) == segment(own));
        for there in beside {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "links of a gateway are few"
            )]
            ways.push((METRIC + 1 + at as u32, at, address(there)));
        }
    }
    ways
}

const METRIC: u32 = 100;
/// For the other gateway to request everything.
const RENEWAL: Duration = Duration::from_secs(10);
const WORD_BYTES: usize = 64;
/// Of a lab: descriptors are the process's own.
const CONNECTIONS: usize = 4096;
