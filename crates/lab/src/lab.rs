//! A lab: hosts in namespaces of their own, joined by the forwarding thread.
//!
//! Nothing of it has a name outside this process: namespaces are held by descriptors, interfaces
//! live in them, children die with the thread that started them. When the process ends, however it
//! ends, the kernel takes all of it away.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command as Program;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration as StdDuration;

use fault::Failure;
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;
use sys::packet::PacketSocket;
use sys::threads;
use units::{Bytes, Duration, Rate};
use wire::classify::Mac;

use crate::certificate::{Certificate, Leg};
use crate::consequence::Traffic;
use crate::engine::Engine;
use crate::forward::{Command, DirectionCounts, Forwarder, PhaseCounts};
use crate::gateways::{LabGateway, Place};
use crate::log::{LogWriter, Logger};
use crate::path::{Hop, HostSpec, Network, Node, PathFile, RouterSpec, RuleSpec, interface_name};
use crate::probe::{self, ProbeSocket, Prober};
use crate::wiring;

mod kernel;

/// A running lab. Dropping it takes everything down.
#[derive(Debug)]
pub struct Lab {
    gateways: Vec<LabGateway>,
    hosts: Vec<Host>,
    near: usize,
    far: usize,
    network: Network,
    /// What the error of a phase is computed for.
    path: PathFile,
    /// `None`: the kernel runs the links.
    fabric: Option<NetNs>,
    ports: Vec<String>,
    /// What has probes of its own, from near to far.
    legs: Vec<LegPlan>,
    rtt: Duration,
    probe_interval: StdDuration,
    phases: AtomicU32,
    commands: Sender<Command>,
    stop: Arc<AtomicBool>,
    forwarder: Option<JoinHandle<()>>,
    log: Mutex<Option<LogWriter>>,
    kernel: Option<kernel::KernelLinks>,
}

/// A host of the lab.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    address6: Ipv6Addr,
    /// On further links.
    more: Vec<Ipv4Addr>,
    /// `None`: an interface of the machine stands in its place.
    ns: Option<NetNs>,
    congestion_control: String,
}

/// A part of the path between two that have a clock of their own.
#[derive(Clone, Debug)]
struct LegPlan {
    ends: [LegEnd; 2],
    /// The shorter one-way delay.
    delay: Duration,
    towards: [String; 2],
}

#[derive(Clone, Debug)]
struct LegEnd {
    at: Station,
    address: Ipv4Addr,
    /// Of the engine.
    port: usize,
}

#[derive(Clone, Copy, Debug)]
enum Station {
    Host(usize),
    /// By its router's number.
    Gateway(usize),
}

/// What a lab is to do beside being there.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where to write the log of every packet; `None`: none is written.
    pub log: Option<PathBuf>,
}

/// A phase under way: the forwarder counts, probes run.
#[derive(Debug)]
pub struct Phase<'lab> {
    lab: &'lab Lab,
    probers: Vec<LegProbers>,
    device_drops: u64,
    /// Where the kernel runs the links.
    watch: Option<kernel::Watch>,
}

#[derive(Debug)]
struct LegProbers {
    phase: u32,
    near: Prober,
    far: Prober,
}

/// Why a lab cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// No privilege to make namespaces, and no user namespace to be had.
    #[error(
        "this machine does not let you make network namespaces ({}); run as root, or allow them: \
         sysctl user.max_user_namespaces and user.max_net_namespaces above 0 and, on Ubuntu, \
         kernel.apparmor_restrict_unprivileged_userns=0", namespace_problem(.0)
    )]
    NoNamespaces(#[source] io::Error),
    /// The kernel lacks or refuses something that a lab needs.
    #[error(
        "this machine cannot run the lab: {step} failed: {source}{}",
        capability_hint(source)
    )]
    Kernel {
        /// What was being done.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A setting of the path file that this kernel does not take.
    #[error("host {host}: this kernel refuses {name} = {value}: {source}")]
    Setting {
        /// Host of the path file.
        host: String,
        /// Setting.
        name: String,
        /// Value.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A gateway among the nodes cannot run here.
    #[error("gateway {name}: {source}")]
    Gateway {
        /// Its name in the path file.
        name: String,
        /// What it lacks.
        source: Box<gateway::GatewayError>,
    },
    /// The path needs more memory than the machine has.
    #[error(
        "the path's delay and queue need {needed} for frames in flight, and this machine has \
         {available} free; lower the path's rate, delay or queue"
    )]
    Memory {
        /// Set aside for both directions.
        needed: Bytes,
        /// MemAvailable of /proc/meminfo.
        available: Bytes,
    },
    /// The log cannot be written.
    #[error("cannot write the lab's log {file}: {source}{}", log_advice(source))]
    Log {
        /// Where it was to be.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such host, link or node.
    #[error("this lab has no {kind} '{name}'; it has {known}")]
    NoSuch {
        /// What was asked for.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What there is.
        known: String,
    },
    /// The change does not fit the link.
    #[error("link {link}: {problem}")]
    Change {
        /// The link.
        link: String,
        /// Why not.
        problem: String,
    },
    /// What a lab whose links the kernel runs does not have.
    #[error("the kernel runs the links of this lab (run = \"kernel\"): it has {0}")]
    ByKernel(&'static str),
    /// The forwarding thread is gone.
    #[error("the lab's forwarding thread ended early; this is a defect of goodput")]
    ForwarderGone,
}

/// unshare(2) says ENOSPC when a limit on namespaces is reached, which reads like a full disk.
fn namespace_problem(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the limit on their number is reached".to_owned(),
        _ => error.to_string(),
    }
}

fn capability_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; it needs CAP_NET_ADMIN and CAP_NET_RAW: run as root with all capabilities, or as an \
             ordinary user who may make user namespaces"
        }
        _ => "",
    }
}

impl Lab {
    /// Builds the path and starts to forward.
    ///
    /// # Errors
    /// [`LabError`] with what this machine lacks; whatever was built is gone again.
    pub fn up(path: &PathFile) -> Result<Self, LabError> {
        Self::up_with(path, Options::default())
    }

    /// As [`Self::up`], with options.
    ///
    /// # Errors
    /// As [`Self::up`], and when the log cannot be made.
    pub fn up_with(path: &PathFile, options: Options) -> Result<Self, LabError> {
        if path.network.by_kernel {
            return kernel::up(path, &options);
        }
        let network = path.network.clone();
        let rings = wiring::ring_bytes(&network, memory_budget());
        check_memory(Bytes::new(rings.iter().sum()))?;
        let ns = || NetNs::create().map_err(LabError::NoNamespaces);
        let fabric = ns()?;
        let mut hosts = Vec::with_capacity(network.hosts.len());
        let mut sockets = Vec::with_capacity(network.hosts.len());
        let mut ports = Vec::new();
        let spread = spread_over(&network);
        for (number, spec) in network.hosts.iter().enumerate() {
            let host = match &spec.interface {
                Some(interface) => {
                    sockets.push(take_interface(interface)?);
                    Host::new(spec, None)
                }
                None => {
                    let host = Host::new(spec, Some(ns()?));
                    let port = format!("p{number}");
                    wire_up(
                        &fabric,
                        &port,
                        host.namespace()?,
                        INTERFACE,
                        spec.mac,
                        spec.mtu_bytes,
                    )?;
                    host.configure(spec, &network)?;
                    if let Some(cpus) = &spread {
                        // Without it (user namespaces may not see all of sysfs) the lab is slower.
                        let mask = cpu_mask(&cpus[..cpus.len() - 1]);
                        let _ = host.namespace()?.write_sysfs(RPS_FILE, &mask);
                    }
                    sockets.push(port_socket(&fabric, &port)?);
                    ports.push(port);
                    host
                }
            };
            hosts.push(host);
        }
        let mut places = Vec::new();
        for (number, spec) in network.routers.iter().enumerate() {
            if spec.gateway.is_none() {
                continue;
            }
            let place = Place { number, ns: ns()? };
            for (at, own) in spec.interfaces.iter().enumerate() {
                let port = format!("p{}", sockets.len());
                let name = interface_name(at);
                wire_up(&fabric, &port, place.ns(), &name, own.mac, own.mtu_bytes)?;
                sockets.push(port_socket(&fabric, &port)?);
                ports.push(port);
            }
            places.push(place);
        }
        let (near, far) = (path.transfer.from, path.transfer.to);
        let stop = Arc::new(AtomicBool::new(false));
        let (commands, requests) = mpsc::channel();
        let start = sys::clock::monotonic();
        let (logger, log) = match &options.log {
            None => (None, None),
            Some(file) => {
                let failed = |source| LabError::Log {
                    file: file.clone(),
                    source,
                };
                let legend = wiring::legend(path);
                let (logger, writer) = Logger::create(file, &legend).map_err(failed)?;
                (Some(logger), Some(writer))
            }
        };
        let legs = legs(path);
        let forward_ports = legs.iter().map(|leg| leg.ends[0].port).collect();
        let engine = Engine::new(
            wiring::wiring(&network, forward_ports, &rings),
            start,
            logger,
        );
        let shortest = shortest_delay(path);
        let threads = |source| LabError::Kernel {
            step: "starting the forwarder".into(),
            source,
        };
        let forwarder = Forwarder::new(
            sockets,
            engine,
            shortest,
            spread.and_then(|cpus| cpus.last().copied()),
        )
        .map_err(threads)?;
        let flag = Arc::clone(&stop);
        let forwarder = threads::spawn("forwarder", move || forwarder.run(&flag, &requests))
            .map_err(threads)?;
        let rates = path.forward.rate.into_iter().chain(path.backward.rate);
        let stages = path.network.links.iter();
        let stages = stages.flat_map(|link| [&link.forward, &link.backward]);
        let budgets = stages.filter_map(|stages| Some(stages.packet_budget?.per_second));
        let mut lab = Self {
            gateways: Vec::new(),
            hosts,
            near,
            far,
            network,
            path: path.clone(),
            fabric: Some(fabric),
            ports,
            legs,
            rtt: path.rtt_configured(),
            probe_interval: probe::interval(rates.min(), budgets.min()),
            phases: AtomicU32::new(0),
            commands,
            stop,
            forwarder: Some(forwarder),
            log: Mutex::new(log),
            kernel: None,
        };
        for place in places {
            let gateway = LabGateway::start(&lab.network, place)?;
            lab.gateways.push(gateway);
        }
        Ok(lab)
    }

    /// Gateways among the nodes, in the path file's order.
    pub fn gateways(&self) -> &[LabGateway] {
        &self.gateways
    }

    /// The near host.
    pub fn near(&self) -> &Host {
        &self.hosts[self.near]
    }

    /// The far host.
    pub fn far(&self) -> &Host {
        &self.hosts[self.far]
    }

    /// All hosts, in the path file's order.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host or gateway of that name.
    ///
    /// # Errors
    /// [`LabError::NoSuch`].
    pub fn host(&self, name: &str) -> Result<&Host, LabError> {
        let gateways = self.gateways.iter().map(LabGateway::host);
        let mut all = self.hosts.iter().chain(gateways.clone());
        let known = self.hosts.iter().chain(gateways).map(Host::name);
        let found = all.find(|h| h.name == name);
        found.ok_or_else(|| no_such("host", name, known))
    }

    /// Changes a link from now on; `forward` and `backward` say which ways. Where the kernel runs the links, one with a rate
    /// can be cut and mended.
    ///
    /// # Errors
    /// [`LabError::NoSuch`] for the link, [`LabError::Change`] when the link has nothing to change.
    pub fn set(
        &self,
        link: &str,
        forward: bool,
        backward: bool,
        change: link::Change,
    ) -> Result<(), LabError> {
        let names = self.network.links.iter().map(|l| l.name.as_str());
        let number = names.clone().position(|name| name == link);
        let number = number.ok_or_else(|| no_such("link", link, names))?;
        for (way, wanted) in [(2 * number, forward), (2 * number + 1, backward)] {
            let spec = self.network.links[number].direction(way % 2 == 0);
            if !wanted {
                continue;
            }
            let shares = self.network.buffer_of(number, way % 2 == 0).is_some();
            let by_buffer = crate::path::refused_by_buffer(&change).filter(|_| shares);
            if let Some(problem) = wiring::refuses(spec, &change).or(by_buffer) {
                return Err(LabError::Change {
                    link: link.to_owned(),
                    problem: problem.to_owned(),
                });
            }
            match (&self.kernel, change) {
                (Some(links), link::Change::Up(is_up)) => links.set_open(way, is_up)?,
                _ => self.tell(Command::Change(way, change))?,
            }
        }
        Ok(())
    }

    /// Gives a switch or router other rules from now on.
    ///
    /// # Errors
    /// [`LabError::NoSuch`].
    pub fn set_rules(&self, node: &str, rules: &[RuleSpec]) -> Result<(), LabError> {
        let (number, at) = self.node(node)?;
        let rules = rules.iter().map(|r| wiring::rule(r, at, &self.network));
        let (reply, answer) = mpsc::channel();
        self.tell(Command::SetRules(number, rules.collect(), reply))?;
        let _ = answer
            .recv_timeout(FORWARDER_PATIENCE)
            .map_err(|_| LabError::ForwarderGone)?;
        Ok(())
    }

    /// How many segments each rule of a switch or router has met.
    ///
    /// # Errors
    /// [`LabError::NoSuch`].
    pub fn rule_hits(&self, node: &str) -> Result<Vec<u64>, LabError> {
        let (number, _) = self.node(node)?;
        let (reply, answer) = mpsc::channel();
        self.tell(Command::Rules(number, reply))?;
        let rules = answer
            .recv_timeout(FORWARDER_PATIENCE)
            .map_err(|_| LabError::ForwarderGone)?;
        Ok(rules.iter().map(|r| r.hits).collect())
    }

    /// Counts of each link since the phase began or the lab came up: name, forward, backward.
    ///
    /// # Errors
    /// When the forwarder is gone.
    pub fn link_counts(&self) -> Result<Vec<(String, DirectionCounts, DirectionCounts)>, LabError> {
        if let Some(kernel) = &self.kernel {
            return kernel.link_counts(&self.network);
        }
        let (reply, answer) = mpsc::channel();
        self.tell(Command::Counts(reply))?;
        let counts = answer
            .recv_timeout(FORWARDER_PATIENCE)
            .map_err(|_| LabError::ForwarderGone)?;
        let names = self.network.links.iter().map(|l| l.name.clone());
        let pairs = counts.chunks_exact(2).map(|c| (c[0], c[1]));
        Ok(names.zip(pairs).map(|(n, (f, b))| (n, f, b)).collect())
    }

    /// The switch or router of that name: its number in the engine, and in the network.
    fn node(&self, name: &str) -> Result<(usize, Node), LabError> {
        let network = &self.network;
        let switches = network.switches.iter().map(|s| s.name.as_str());
        let routers = network.routers.iter().map(|r| r.name.as_str());
        let known = switches.clone().chain(routers.clone());
        let found = if let Some(n) = switches.clone().position(|s| s == name) {
            Some(Node::Switch(n))
        } else {
            routers.clone().position(|r| r == name).map(Node::Router)
        };
        let node = found.ok_or_else(|| no_such("switch or router", name, known))?;
        Ok((wiring::number(network, node), node))
    }

    fn tell(&self, command: Command) -> Result<(), LabError> {
        if self.kernel.is_some() {
            return Err(LabError::ByKernel(
                "nothing that changes but links with a rate, which can be cut and mended, and no rules",
            ));
        }
        self.commands
            .send(command)
            .map_err(|_| LabError::ForwarderGone)
    }

    /// Ends the lab and, where a log was written, says what became of it.
    ///
    /// # Errors
    /// When the log could not be written to its end.
    pub fn down(mut self) -> Result<Option<link::record::End>, LabError> {
        self.halt();
        let writer = self.log.lock().ok().and_then(|mut log| log.take());
        writer
            .map(|w| {
                w.finish().map_err(|source| LabError::Log {
                    file: PathBuf::new(),
                    source,
                })
            })
            .transpose()
    }

    fn halt(&mut self) {
        // While there is somebody to carry what they say last.
        self.gateways.clear();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(forwarder) = self.forwarder.take() {
            let _ = forwarder.join();
        }
    }

    /// Starts a phase: waits until the path is empty, counts anew and probes until
    /// [`Phase::finish`].
    ///
    /// # Errors
    /// When the probes cannot start.
    pub fn begin_phase(&self) -> Result<Phase<'_>, LabError> {
        if let Some(kernel) = &self.kernel {
            return Ok(Phase {
                lab: self,
                probers: Vec::new(),
                device_drops: 0,
                watch: Some(kernel.watch(&self.network)?),
            });
        }
        self.drain()?;
        let device_drops = self.device_drops()?;
        let (reply, done) = mpsc::channel();
        self.commands
            .send(Command::Reset(reply))
            .map_err(|_| LabError::ForwarderGone)?;
        done.recv_timeout(FORWARDER_PATIENCE)
            .map_err(|_| LabError::ForwarderGone)?;
        let failed = |source| LabError::Kernel {
            step: "starting the probes".into(),
            source,
        };
        // All are open before the first sends.
        let mut sockets = Vec::new();
        for leg in &self.legs {
            let [near, far] = &leg.ends;
            let open = |own: &LegEnd, other: &LegEnd| {
                let ns = self.station(own.at)?;
                ProbeSocket::open(ns, own.address, other.address).map_err(failed)
            };
            sockets.push((open(near, far)?, open(far, near)?));
        }
        let mut probers = Vec::new();
        for (near, far) in sockets {
            let phase = self.phases.fetch_add(1, Ordering::Relaxed);
            let start = |socket| Prober::start(socket, phase, self.probe_interval).map_err(failed);
            probers.push(LegProbers {
                phase,
                near: start(near)?,
                far: start(far)?,
            });
        }
        Ok(Phase {
            lab: self,
            probers,
            device_drops,
            watch: None,
        })
    }

    /// The namespace of an end of a leg.
    fn station(&self, at: Station) -> Result<&NetNs, LabError> {
        let host = match at {
            Station::Host(n) => &self.hosts[n],
            Station::Gateway(router) => self.host(&self.network.routers[router].name)?,
        };
        host.ns.as_ref().ok_or_else(|| LabError::Change {
            link: host.name.clone(),
            problem: "it is an interface of the machine; only hosts of the lab can be probed and \
                      measured between"
                .to_owned(),
        })
    }

    /// Waits, bounded, until nothing of an earlier phase is on its way.
    fn drain(&self) -> Result<(), LabError> {
        for _ in 0..DRAIN_STEPS_MAX {
            if self.report()?.segments_waiting == 0 {
                break;
            }
            thread::sleep(DRAIN_STEP);
        }
        Ok(())
    }

    fn report(&self) -> Result<PhaseCounts, LabError> {
        let (reply, answer) = mpsc::channel();
        self.commands
            .send(Command::Report(reply))
            .map_err(|_| LabError::ForwarderGone)?;
        answer
            .recv_timeout(FORWARDER_PATIENCE)
            .map_err(|_| LabError::ForwarderGone)
    }

    /// Frames that the veth devices themselves dropped since they were made.
    fn device_drops(&self) -> Result<u64, LabError> {
        let drops = |ns: &NetNs, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
            in_ns(ns, "reading interface counters", move || {
                let mut netlink = Netlink::open()?;
                let mut sum = 0;
                for name in &names {
                    let counters = netlink.counters(name)?;
                    sum += counters.rx_dropped + counters.tx_dropped;
                }
                Ok(sum)
            })
        };
        let ports: Vec<&str> = self.ports.iter().map(String::as_str).collect();
        let mut sum = match &self.fabric {
            Some(fabric) => drops(fabric, &ports)?,
            None => 0,
        };
        for ns in self.hosts.iter().filter_map(|h| h.ns.as_ref()) {
            sum += drops(ns, &[INTERFACE])?;
        }
        for gateway in &self.gateways {
            let names: Vec<&str> = gateway.interfaces().collect();
            sum += drops(gateway.host().namespace()?, &names)?;
        }
        Ok(sum)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.halt();
    }
}

impl Phase<'_> {
    /// Ends the phase and judges the lab over it.
    ///
    /// # Errors
    /// When the forwarder or the probes failed.
    pub fn finish(self) -> Result<Certificate, LabError> {
        self.finish_of(&Traffic::Other)
    }

    /// The same where it is known what was sent: what the lab's own error comes to can then be told more closely.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_of(self, traffic: &Traffic) -> Result<Certificate, LabError> {
        if let (Some(watch), Some(kernel)) = (self.watch, &self.lab.kernel) {
            return watch.finish(&self.lab.network, kernel);
        }
        let drain = (self.lab.rtt + DRAIN_EXTRA).to_std();
        let failed = |source| LabError::Kernel {
            step: "probing the path".into(),
            source,
        };
        let gone = |_| io::Error::other("a probe thread panicked");
        let stamps = thread::scope(|scope| {
            let legs = self.probers.into_iter().map(|leg| {
                let near = threads::scoped(scope, "lab-probe", move || leg.near.finish(drain));
                let far = threads::scoped(scope, "lab-probe", move || leg.far.finish(drain));
                (leg.phase, near, far)
            });
            // All at once: each waits until its last probe has had the time to arrive.
            let legs: Vec<_> = legs.collect();
            let joined = legs.into_iter().map(|(phase, near, far)| {
                let near = near?.join().map_err(gone).and_then(|r| r)?;
                let far = far?.join().map_err(gone).and_then(|r| r)?;
                Ok((phase, near, far))
            });
            joined.collect::<io::Result<Vec<_>>>()
        });
        let counts = self.lab.report()?;
        let drops = self.lab.device_drops()?.saturating_sub(self.device_drops);
        let legs = self.lab.legs.iter().zip(stamps.map_err(failed)?);
        let legs = legs.map(|(plan, (phase, near, far))| Leg {
            near,
            far,
            delay: plan.delay,
            phase,
            towards: plan.towards.clone(),
        });
        let legs: Vec<Leg> = legs.collect();
        let path = &self.lab.path;
        Ok(Certificate::judge(counts, &legs, drops, (path, traffic)))
    }
}

fn log_advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AlreadyExists => "; name another, or remove this one first",
        _ => "",
    }
}

impl Host {
    fn new(spec: &HostSpec, ns: Option<NetNs>) -> Self {
        Self {
            name: spec.name.clone(),
            address: spec.address4,
            address6: spec.address6,
            more: spec.more.iter().map(|own| own.address4).collect(),
            ns,
            congestion_control: spec.congestion_control.clone(),
        }
    }

    /// A gateway's place. Its address is that on its first link.
    pub(crate) fn of_gateway(spec: &RouterSpec, ns: NetNs) -> Self {
        let first = spec.interfaces.first();
        Self {
            name: spec.name.clone(),
            address: first.map_or(Ipv4Addr::UNSPECIFIED, |i| i.address4),
            address6: first.map_or(Ipv6Addr::UNSPECIFIED, |i| i.address6),
            more: Vec::new(),
            ns: Some(ns),
            congestion_control: "cubic".to_owned(),
        }
    }

    /// Its namespace.
    ///
    /// # Errors
    /// [`LabError::Change`] for an interface of the machine, which has none.
    pub fn namespace(&self) -> Result<&NetNs, LabError> {
        self.ns.as_ref().ok_or_else(|| LabError::Change {
            link: self.name.clone(),
            problem: "this host is an interface of the machine: nothing can be run behind it"
                .to_owned(),
        })
    }

    /// Its IPv6 address on the path.
    pub const fn address6(&self) -> Ipv6Addr {
        self.address6
    }

    /// Name in the path file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the path.
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its addresses, one for each of its links.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        std::iter::once(self.address).chain(self.more.iter().copied())
    }

    /// Congestion control that its sockets are to use. It is the host's default only where the
    /// kernel lets a namespace choose; set it on each socket.
    pub fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    /// Congestion control of sockets that do not ask for one, where the kernel would not make it the
    /// host's own; `None` where it did.
    pub fn other_congestion_control(&self) -> Option<String> {
        let file = "/proc/sys/net/ipv4/tcp_congestion_control";
        let used = self.run(|| std::fs::read_to_string(file)).ok()?.ok()?;
        let used = used.trim();
        (used != self.congestion_control).then(|| used.to_owned())
    }

    /// Runs `work` on a thread of its own inside the host and waits for it.
    ///
    /// # Errors
    /// When the thread cannot enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let ns = self.namespace()?;
        let work = || {
            sys::sched::run_like_a_host();
            work()
        };
        ns.run(work).map_err(|source| LabError::Kernel {
            step: "entering a host".into(),
            source,
        })
    }

    /// Starts a program inside the host; it dies with the thread that starts it.
    ///
    /// # Errors
    /// When the descriptor cannot be cloned.
    pub fn program(&self, name: &str) -> Result<Program, LabError> {
        let mut program = Program::new(name);
        self.namespace()?
            .place(&mut program)
            .map_err(|source| LabError::Kernel {
                step: format!("placing {name}"),
                source,
            })?;
        Ok(program)
    }

    /// Sets a kernel setting of the host, such as `net.ipv4.tcp_rmem`.
    ///
    /// # Errors
    /// [`LabError::Setting`] when the kernel refuses.
    pub fn set(&self, name: &str, value: &str) -> Result<(), LabError> {
        let file = format!("/proc/sys/{}", name.replace('.', "/"));
        self.run(|| std::fs::write(&file, value))?
            .map_err(|source| LabError::Setting {
                host: self.name.clone(),
                name: name.to_owned(),
                value: value.to_owned(),
                source,
            })
    }

    fn configure(&self, spec: &HostSpec, network: &Network) -> Result<(), LabError> {
        // Nothing is to travel that the measurement did not send: no search for routers, no check for
        // duplicates, no address made up.
        let scopes: Vec<String> = spec.links().map(|link| spec.interface_on(link)).collect();
        for (name, value) in QUIET_IPV6 {
            for scope in scopes.iter().map(String::as_str).chain(["default"]) {
                let _ = self.set(&format!("net.ipv6.conf.{scope}.{name}"), value);
            }
        }
        // A connection must not inherit what an earlier one learned of the path.
        self.set("net.ipv4.tcp_no_metrics_save", "1")?;
        // Anyone in a host may ping, root or not.
        let _ = self.set("net.ipv4.ping_group_range", "0 0");
        let triplet = |v: &[u64; 3]| format!("{} {} {}", v[0], v[1], v[2]);
        self.set("net.ipv4.tcp_rmem", &triplet(&spec.tcp_rmem_bytes))?;
        self.set("net.ipv4.tcp_wmem", &triplet(&spec.tcp_wmem_bytes))?;
        // The kernel lets a namespace default only to algorithms that the machine allows to all;
        // sockets are told one by one anyhow.
        let _ = self.set("net.ipv4.tcp_congestion_control", &spec.congestion_control);
        for (name, value) in &spec.sysctl {
            self.set(name, value)?;
        }
        let neighbours = wiring::neighbours(network, spec.link, spec.mac);
        in_ns(self.namespace()?, "configuring a host", || {
            let mut netlink = Netlink::open()?;
            netlink.set_up("lo", None)?;
            netlink.add_address(INTERFACE, spec.address4, spec.prefix4)?;
            netlink.set_up(INTERFACE, Some(spec.mtu_bytes))?;
            // IPv6 wants at least 1280 bytes (RFC 8200 section 5), and the machine may have none.
            let ipv6 = netlink
                .add_address(INTERFACE, spec.address6, spec.prefix6)
                .is_ok();
            for (address, mac) in neighbours {
                if address.is_ipv4() || ipv6 {
                    netlink.add_neighbour(INTERFACE, address, mac.0)?;
                }
            }
            for own in &spec.more {
                let name = spec.interface_on(own.link);
                netlink.add_address(&name, own.address4, own.prefix4)?;
                netlink.set_up(&name, Some(own.mtu_bytes))?;
                let ipv6 = netlink
                    .add_address(&name, own.address6, own.prefix6)
                    .is_ok();
                for (address, mac) in wiring::neighbours(network, own.link, own.mac) {
                    if address.is_ipv4() || ipv6 {
                        netlink.add_neighbour(&name, address, mac.0)?;
                    }
                }
            }
            let everything4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            let everything6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            if let Some(gateway) = spec.gateway4 {
                netlink.add_route(INTERFACE, everything4, 0, gateway.into())?;
            }
            if let (Some(gateway), true) = (spec.gateway6, ipv6) {
                netlink.add_route(INTERFACE, everything6, 0, gateway.into())?;
            }
            for route in &spec.routes {
                let Some(via) = route.via else { continue };
                if via.address.is_ipv4() || ipv6 {
                    let (to, name) = (route.to.network(), spec.interface_on(route.link));
                    netlink.add_route(&name, to, route.to.bits(), via.address)?;
                }
            }
            if !spec.offloads {
                for name in &scopes {
                    for offload in sys::ethtool::Offload::ALL {
                        sys::ethtool::set_offload(name, offload, false)?;
                    }
                }
            }
            Ok(())
        })
    }
}

fn no_such<'n>(kind: &'static str, name: &str, known: impl Iterator<Item = &'n str>) -> LabError {
    let known: Vec<&str> = known.collect();
    LabError::NoSuch {
        kind,
        name: name.to_owned(),
        known: if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        },
    }
}

/// The CPUs over which the work of a lab is spread whose hosts cut their own segments faster than one
/// CPU carries them: the last for the forwarder, the others for what the hosts' kernels do with each
/// frame, which would otherwise be done on the forwarder's time (Linux
/// Documentation/networking/scaling.rst, RPS). Without off-loads and rate that is worth 1.8 times;
/// where super-frames pass or a rate sets the pace it costs, in rate and in delay.
fn spread_over(network: &Network) -> Option<Vec<usize>> {
    let cut_apart = network.hosts.iter().any(|host| {
        let link = &network.links[host.link];
        let fast = |forward| match &link.direction(forward).rate {
            None => true,
            Some(rate) => match rate.server {
                link::spec::ServerSpec::Rate(rate) => rate > SPREAD_ABOVE,
                link::spec::ServerSpec::Trace(_) => false,
            },
        };
        !host.offloads && fast(true) && fast(false)
    });
    let cpus = sys::sched::cpus();
    (cut_apart && cpus.len() > 1).then_some(cpus)
}

/// A mask as sysfs writes it: hexadecimal words of 32 CPUs, the highest first.
fn cpu_mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let word = |n: usize| {
        let inside = cpus.iter().filter(|&&cpu| cpu / 32 == n);
        inside.fold(0_u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let words: Vec<String> = (0..words)
        .rev()
        .map(|n| format!("{:08x}", word(n)))
        .collect();
    words.join(",")
}

/// Makes an interface of the machine a port.
fn take_interface(name: &str) -> Result<PacketSocket, LabError> {
    let open = || {
        let index = Netlink::open()?.index_of(name)?;
        let socket = PacketSocket::open(index, SOCKET_BUFFER_BYTES)?;
        socket.promiscuous(index)?;
        Ok(socket)
    };
    open().map_err(|source| LabError::Kernel {
        step: format!("opening the interface {name}"),
        source,
    })
}

/// The shortest delay between two hosts, or of a link where there are many hosts: arrivals are
/// looked for several times within it.
fn shortest_delay(path: &PathFile) -> Duration {
    let network = &path.network;
    let of = |hop: &Hop| network.links[hop.link].direction(hop.forward).delay;
    let hosts = 0..network.hosts.len();
    let shortest = if hosts.len() <= HOSTS_WALKED_MAX {
        let pairs = hosts
            .clone()
            .flat_map(|a| hosts.clone().map(move |b| (a, b)));
        let walks = pairs.filter(|(a, b)| a != b);
        let walks = walks.filter_map(|(a, b)| network.walk(a, b));
        let sums = walks.map(|hops| hops.iter().map(of).fold(Duration::ZERO, |s, d| s + d));
        sums.min()
    } else {
        let links = network.links.iter();
        links.map(|l| l.forward.delay.min(l.backward.delay)).min()
    };
    shortest.unwrap_or(Duration::ZERO)
}

/// What all frames in flight may take: the limit of path files, or half of what the machine has free.
fn memory_budget() -> Bytes {
    let free = sys::host::memory_available().map(|free| Bytes::new(free.as_u64() / 2));
    free.map_or(crate::path::MEMORY_MAX, |half| {
        half.min(crate::path::MEMORY_MAX)
    })
}

/// Refuses a path that would drive the machine out of memory, half of what is free at most.
fn check_memory(needed: Bytes) -> Result<(), LabError> {
    let Some(available) = sys::host::memory_available() else {
        return Ok(());
    };
    if needed.as_u64() > available.as_u64() / 2 {
        return Err(LabError::Memory { needed, available });
    }
    Ok(())
}

/// The parts of the path between the ends of a measurement that have probes of their own: from host to host,
/// with a gateway's interfaces as ends where there are gateways on the way.
fn legs(path: &PathFile) -> Vec<LegPlan> {
    let network = &path.network;
    let (from, to) = (path.transfer.from, path.transfer.to);
    let ports = network.ports();
    let host = |n: usize| LegEnd {
        at: Station::Host(n),
        address: network.hosts[n].address4,
        port: n,
    };
    let gateway = |n: usize, link: usize| {
        let mut interfaces = network.routers[n].interfaces.iter();
        let own = interfaces.find(|i| i.link == link);
        let port = ports.iter().position(|p| *p == (Node::Router(n), link));
        LegEnd {
            at: Station::Gateway(n),
            address: own.map_or(Ipv4Addr::UNSPECIFIED, |i| i.address4),
            port: port.unwrap_or(usize::MAX),
        }
    };
    let between = network.gateways_between(from, to);
    if between.is_empty() {
        return vec![LegPlan {
            ends: [host(from), host(to)],
            delay: path.forward.delay.min(path.backward.delay),
            towards: ["towards the far host", "towards the near host"].map(str::to_owned),
        }];
    }
    let mut hops = network.walk(from, to).unwrap_or_default().into_iter();
    let mut legs = Vec::new();
    let (mut begin, mut name) = (host(from), path.near.name.clone());
    let ends = between.into_iter().map(|(n, came, leaves)| {
        let next = network.routers[n].name.clone();
        (gateway(n, came), next, Some((came, gateway(n, leaves))))
    });
    let last = (host(to), path.far.name.clone(), None);
    for (end, next, goes_on) in ends.chain([last]) {
        let mut delays = [Duration::ZERO; 2];
        for hop in hops.by_ref() {
            let link = &network.links[hop.link];
            delays[0] = delays[0] + link.direction(hop.forward).delay;
            delays[1] = delays[1] + link.direction(!hop.forward).delay;
            if goes_on.as_ref().is_some_and(|(came, _)| *came == hop.link) {
                break;
            }
        }
        legs.push(LegPlan {
            ends: [begin.clone(), end],
            delay: delays[0].min(delays[1]),
            towards: [
                format!("from {name} to {next}"),
                format!("from {next} to {name}"),
            ],
        });
        if let Some((_, onward)) = goes_on {
            (begin, name) = (onward, next);
        }
    }
    legs
}

/// Makes the pair between an interface of a host or gateway and its port on the fabric.
fn wire_up(
    fabric: &NetNs,
    port: &str,
    there: &NetNs,
    interface: &str,
    mac: Mac,
    mtu_bytes: u32,
) -> Result<(), LabError> {
    let mut port_mac = mac.0;
    port_mac[2] ^= 1;
    in_ns(fabric, "making a veth pair", || {
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        let mut netlink = Netlink::open()?;
        netlink.add_veth(
            VethEnd {
                name: port,
                mac: port_mac,
                netns: fabric.as_fd(),
            },
            VethEnd {
                name: interface,
                mac: mac.0,
                netns: there.as_fd(),
            },
        )?;
        netlink.set_up(port, Some(mtu_bytes))
    })
}

/// The socket that carries the frames of a port.
fn port_socket(fabric: &NetNs, port: &str) -> Result<PacketSocket, LabError> {
    in_ns(fabric, "opening packet sockets", || {
        let index = Netlink::open()?.index_of(port)?;
        PacketSocket::open(index, SOCKET_BUFFER_BYTES)
    })
}

pub(crate) fn in_ns<T: Send>(
    ns: &NetNs,
    step: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, LabError> {
    ns.run(work)
        .and_then(|done| done)
        .map_err(|source| LabError::Kernel {
            step: step.to_owned(),
            source,
        })
}

const INTERFACE: &str = "eth0";
/// Beyond so many hosts the ways between all of them are not walked.
const HOSTS_WALKED_MAX: usize = 16;
const RPS_FILE: &str = "class/net/eth0/queues/rx-0/rps_cpus";
/// A single CPU keeps up with full frames at this rate.
const SPREAD_ABOVE: Rate = Rate::from_bits_per_second(1_500_000_000);
/// What keeps IPv6 from talking by itself (Linux Documentation/networking/ip-sysctl.rst).
pub(crate) const QUIET_IPV6: [(&str, &str); 7] = [
    ("accept_dad", "0"),
    ("accept_ra", "0"),
    ("autoconf", "0"),
    ("router_solicitations", "0"),
    // No link-local address is made up.
    ("addr_gen_mode", "1"),
    // Groups that addresses belong to are reported at once, and again at random within this time (RFC 3810, section 9.11): days.
    ("mldv1_unsolicited_report_interval", "2000000000"),
    ("mldv2_unsolicited_report_interval", "2000000000"),
];
/// Asked for by force; without root the machine's net.core.rmem_max decides.
const SOCKET_BUFFER_BYTES: u32 = 64 << 20;
/// The forwarder looks for commands every 20 ms; a machine may be busy.
const FORWARDER_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
/// Ten seconds, the longest delay of a path file.
const DRAIN_STEPS_MAX: u32 = 200;
const DRAIN_STEP: StdDuration = StdDuration::from_millis(50);
/// Probes under way when a phase ends get this long beyond the round trip.
const DRAIN_EXTRA: Duration = Duration::from_ms(300);

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::here(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_written_in_words_of_32_highest_first() {
        assert_eq!(cpu_mask(&[0]), "00000001");
        assert_eq!(cpu_mask(&[0, 1, 31]), "80000003");
        assert_eq!(cpu_mask(&[32, 1]), "00000001,00000002");
    }
}
