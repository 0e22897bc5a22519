//! Labs whose links the kernel runs (`run = "kernel"`): a pair of interfaces for each link, with a token bucket at
//! each end that has a rate; routers are namespaces that forward.
//!
//! Nothing of ours touches a frame there, so no probe can say how late it was. What the certificate rests on is
//! what the kernel counts meanwhile.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration as StdDuration;

use link::spec::Medium;
use sys::cpu::CpuTimes;
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;
use sys::qdisc::{SizeTable, TokenBucket};
use sys::threads;
use units::{Bytes, Duration, Instant, Rate};

use super::{Host, Lab, LabError, Options, in_ns};
use crate::certificate::Certificate;
use crate::forward::DirectionCounts;
use crate::gateways::{self, LabGateway, Place};
use crate::pace::{Counted, KernelRun, Meter, Pace, Sample};
use crate::path::{
    LinkSpec, Network, Node, PathFile, ScheduleEntry, interface_name, kernel as spec,
};

/// What is there beside hosts and gateways.
#[derive(Debug)]
pub(super) struct KernelLinks {
    /// Routers that are no gateways: they live as long as this does.
    _routers: Vec<Host>,
    readers: Arc<Mutex<Vec<Reader>>>,
    packet_bytes_max: u32,
}

/// Where counters of a namespace are read, and whose they are.
#[derive(Debug)]
struct Reader {
    netlink: Netlink,
    ends: Vec<End>,
}

/// An interface at the end of a link.
#[derive(Clone, Debug)]
struct End {
    /// Of the kernel, in its namespace.
    index: u32,
    interface: String,
    /// Bytes that wait before its rate at most.
    limit_bytes: Option<u32>,
    /// The direction that leaves here: twice the link's number, and one more backward.
    way: usize,
}

/// What has a name in the kernel.
struct Site<'lab> {
    ns: &'lab NetNs,
    interface: String,
    mac: [u8; 6],
    mtu_bytes: u32,
}

/// Builds such a lab.
pub(super) fn up(path: &PathFile, options: &Options) -> Result<Lab, LabError> {
    let network = path.network.clone();
    if options.log.is_some() {
        return Err(LabError::ByKernel("no log of packets: they pass unseen"));
    }
    if network.hosts.iter().any(|host| host.interface.is_some()) {
        return Err(LabError::ByKernel(
            "no interface of the machine in a host's place",
        ));
    }
    let ns = || NetNs::create().map_err(LabError::NoNamespaces);
    let mut hosts = Vec::new();
    for host in &network.hosts {
        hosts.push(Host::new(host, Some(ns()?)));
    }
    let mut routers = Vec::new();
    for router in &network.routers {
        routers.push(Host::of_gateway(router, ns()?));
    }
    join(&network, &hosts, &routers)?;
    for (host, spec) in hosts.iter().zip(&network.hosts) {
        host.configure(spec, &network)?;
    }
    for (router, spec) in routers.iter().zip(&network.routers) {
        if spec.gateway.is_none() {
            gateways::settle(&network, spec, router)?;
        }
    }
    let packet_bytes_max = spec::packet_bytes_max(&network);
    let mut readers = Vec::new();
    let nodes = (0..hosts.len()).map(Node::Host);
    for node in nodes.chain((0..routers.len()).map(Node::Router)) {
        readers.push(limit(&network, &hosts, &routers, node, packet_bytes_max)?);
    }
    let mut places = Vec::new();
    let mut others = Vec::new();
    for (number, router) in routers.into_iter().enumerate() {
        match (&network.routers[number].gateway, router.ns) {
            (Some(_), Some(ns)) => places.push(Place { number, ns }),
            (_, ns) => others.push(Host { ns, ..router }),
        }
    }
    let (commands, _) = mpsc::channel();
    let (stop, readers) = (Arc::default(), Arc::new(Mutex::new(readers)));
    let mut lab = Lab {
        gateways: Vec::new(),
        hosts,
        near: path.transfer.from,
        far: path.transfer.to,
        network,
        path: path.clone(),
        fabric: None,
        ports: Vec::new(),
        legs: Vec::new(),
        rtt: Duration::ZERO,
        probe_interval: StdDuration::ZERO,
        phases: AtomicU32::new(0),
        commands,
        stop: Arc::clone(&stop),
        forwarder: None,
        log: Mutex::new(None),
        kernel: Some(KernelLinks {
            _routers: others,
            readers: Arc::clone(&readers),
            packet_bytes_max,
        }),
    };
    for place in places {
        let gateway = LabGateway::start(&lab.network, place)?;
        lab.gateways.push(gateway);
    }
    if !lab.network.schedule.is_empty() {
        let schedule = lab.network.schedule.clone();
        let keeps = move || keep(&schedule, &readers, &stop);
        let keeper = threads::spawn("lab-schedule", keeps).map_err(|source| LabError::Kernel {
            step: "starting the schedule".into(),
            source,
        })?;
        // It ends as a forwarder does.
        lab.forwarder = Some(keeper);
    }
    Ok(lab)
}

/// Cuts and mends links at their times, from now on.
fn keep(schedule: &[ScheduleEntry], readers: &Mutex<Vec<Reader>>, stop: &AtomicBool) {
    let begun = std::time::Instant::now();
    for entry in schedule {
        let due = begun + StdDuration::from_nanos(entry.at.as_ns());
        while let Some(left) = due.checked_duration_since(std::time::Instant::now()) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(left.min(INTERVAL));
        }
        if let link::Change::Up(is_up) = entry.change {
            let way = 2 * entry.link + usize::from(!entry.forward);
            if let Err(error) = set_open(readers, way, is_up) {
                tracing::warn!("the schedule of a link: {error}");
            }
        }
    }
}

/// Cuts or mends a direction.
fn set_open(readers: &Mutex<Vec<Reader>>, way: usize, is_open: bool) -> io::Result<()> {
    for reader in lock(readers).iter_mut() {
        for end in reader.ends.iter().filter(|end| end.way == way) {
            let Some(limit) = end.limit_bytes else {
                continue;
            };
            reader.netlink.set_open(&end.interface, is_open, limit)?;
        }
    }
    Ok(())
}

/// Makes the pairs of interfaces.
fn join(network: &Network, hosts: &[Host], routers: &[Host]) -> Result<(), LabError> {
    for (number, link) in network.links.iter().enumerate() {
        let [a, b] = link.between;
        let (a, b) = (
            site(network, hosts, routers, a, number)?,
            site(network, hosts, routers, b, number)?,
        );
        in_ns(a.ns, "making a veth pair", || {
            let end = |site: &Site<'_>| (site.interface.clone(), site.mac);
            let ((a_name, a_mac), (b_name, b_mac)) = (end(&a), end(&b));
            Netlink::open()?.add_veth(
                VethEnd {
                    name: &a_name,
                    mac: a_mac,
                    netns: a.ns.as_fd(),
                },
                VethEnd {
                    name: &b_name,
                    mac: b_mac,
                    netns: b.ns.as_fd(),
                },
            )
        })?;
    }
    Ok(())
}

/// The interface of a node on a link.
fn site<'lab>(
    network: &Network,
    hosts: &'lab [Host],
    routers: &'lab [Host],
    node: Node,
    link: usize,
) -> Result<Site<'lab>, LabError> {
    let lost = LabError::ByKernel("no switches");
    match node {
        Node::Host(n) => {
            let spec = &network.hosts[n];
            let more = spec.more.iter().find(|own| own.link == link);
            Ok(Site {
                ns: hosts[n].namespace()?,
                interface: spec.interface_on(link),
                mac: more.map_or(spec.mac, |own| own.mac).0,
                mtu_bytes: spec.mtu_bytes,
            })
        }
        Node::Router(n) => {
            let mut interfaces = network.routers[n].interfaces.iter().enumerate();
            let own = interfaces.find(|(_, i)| i.link == link);
            let (at, own) = own.ok_or(lost)?;
            Ok(Site {
                ns: routers[n].namespace()?,
                interface: interface_name(at),
                mac: own.mac.0,
                mtu_bytes: own.mtu_bytes,
            })
        }
        Node::Switch(_) => Err(lost),
    }
}

/// Gives a node's interfaces their token buckets and largest packet, and opens what reads their counters.
fn limit(
    network: &Network,
    hosts: &[Host],
    routers: &[Host],
    node: Node,
    packet_bytes_max: u32,
) -> Result<Reader, LabError> {
    let own = network.links.iter().enumerate();
    let own = own.filter(|(_, link)| link.between.contains(&node));
    let mut sites = Vec::new();
    for (number, link) in own {
        let forward = link.between[0] == node;
        let bucket = link.direction(forward).rate.as_ref().and_then(|rate| {
            let medium = link.direction(forward).medium;
            let counted = |length| spec::counted(medium, link.mtu_bytes, length);
            let sizes = SizeTable::new(packet_bytes_max, counted);
            let bits = spec::rate(&rate.server)?;
            let burst = burst(bits, medium, link.mtu_bytes, packet_bytes_max).as_u64();
            let bytes = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            let limit = bytes(rate.limits.bytes.unwrap_or(0));
            Some((sizes, bits.as_bits_per_second() / 8, bytes(burst), limit))
        });
        let site = site(network, hosts, routers, node, number)?;
        sites.push((site, 2 * number + usize::from(!forward), bucket));
    }
    let host = match node {
        Node::Router(n) => &routers[n],
        Node::Host(n) | Node::Switch(n) => &hosts[n],
    };
    in_ns(
        host.namespace()?,
        "giving a link its rate (CONFIG_NET_SCH_TBF)",
        || {
            let mut netlink = Netlink::open()?;
            let mut ends = Vec::new();
            for (site, way, bucket) in &sites {
                if packet_bytes_max > site.mtu_bytes {
                    netlink.set_gso_max(&site.interface, packet_bytes_max.min(GSO_MAX))?;
                }
                if let Some((sizes, bytes_per_second, burst_bytes, limit_bytes)) = bucket {
                    let bucket = TokenBucket {
                        bytes_per_second: *bytes_per_second,
                        burst_bytes: *burst_bytes,
                        limit_bytes: *limit_bytes,
                        sizes,
                    };
                    netlink.set_token_bucket(&site.interface, bucket)?;
                }
                let index = netlink.index_of(&site.interface)?;
                ends.push(End {
                    index,
                    interface: site.interface.clone(),
                    limit_bytes: bucket.as_ref().map(|(.., limit)| *limit),
                    way: *way,
                });
            }
            Ok(Reader { netlink, ends })
        },
    )
}

impl KernelLinks {
    /// What was counted of each direction since the lab came up.
    pub(super) fn counted(&self, network: &Network) -> Result<Vec<Counted>, LabError> {
        counted(&self.readers, network.links.len()).map_err(reading)
    }

    /// Cuts or mends a direction.
    pub(super) fn set_open(&self, way: usize, is_open: bool) -> Result<(), LabError> {
        let has_rate = lock(&self.readers).iter().any(|reader| {
            let mut ends = reader.ends.iter();
            ends.any(|end| end.way == way && end.limit_bytes.is_some())
        });
        if !has_rate {
            return Err(LabError::ByKernel("no rate on this link, and no cut"));
        }
        set_open(&self.readers, way, is_open).map_err(|source| LabError::Kernel {
            step: "cutting a link".into(),
            source,
        })
    }

    /// As [`Lab::link_counts`].
    pub(super) fn link_counts(
        &self,
        network: &Network,
    ) -> Result<Vec<(String, DirectionCounts, DirectionCounts)>, LabError> {
        let counted = self.counted(network)?;
        let links = network.links.iter().zip(counted.chunks_exact(2));
        let counts = |now: &Counted, link: &LinkSpec| {
            Pace::of(&Counted::default(), now, link.forward.medium).counts()
        };
        Ok(links
            .map(|(l, both)| (l.name.clone(), counts(&both[0], l), counts(&both[1], l)))
            .collect())
    }

    /// Begins to watch.
    pub(super) fn watch(&self, network: &Network) -> Result<Watch, LabError> {
        let ways = network.links.iter().flat_map(|link| {
            [&link.forward, &link.backward].map(|way| {
                let rate = spec::rate(&way.rate.as_ref()?.server)?;
                let burst = burst(rate, way.medium, link.mtu_bytes, self.packet_bytes_max);
                Some(Meter::new(rate, burst))
            })
        });
        let meters: Vec<Option<Meter>> = ways.collect();
        let stop = Arc::new(AtomicBool::new(false));
        let before = self.counted(network)?;
        let (readers, flag) = (Arc::clone(&self.readers), Arc::clone(&stop));
        let sampler = threads::spawn("lab-watch", move || sample(&readers, meters, &flag));
        Ok(Watch {
            stop,
            sampler: Some(sampler.map_err(reading)?),
            before,
            cpus: sys::cpu::cpu_times(),
            begun: sys::clock::monotonic(),
        })
    }
}

/// What may pass at once: what the rate carries in [`spec::LATE`], and at least one packet.
fn burst(rate: Rate, medium: Medium, mtu_bytes: u32, packet_bytes: u32) -> Bytes {
    let one = spec::counted(medium, mtu_bytes, packet_bytes);
    // The table rounds counts up to a few bytes.
    rate.bytes_in(spec::LATE)
        .max(Bytes::new(u64::from(one) + 64))
}

fn reading(source: io::Error) -> LabError {
    LabError::Kernel {
        step: "reading the counters of links".into(),
        source,
    }
}

fn lock(readers: &Mutex<Vec<Reader>>) -> MutexGuard<'_, Vec<Reader>> {
    readers.lock().unwrap_or_else(PoisonError::into_inner)
}

fn counted(readers: &Mutex<Vec<Reader>>, links: usize) -> io::Result<Vec<Counted>> {
    let mut all = vec![Counted::default(); 2 * links];
    for reader in lock(readers).iter_mut() {
        let interfaces = reader.netlink.all_counters()?;
        let buckets = reader.netlink.token_buckets()?;
        for end in &reader.ends {
            let own = interfaces.iter().find(|(index, _)| *index == end.index);
            let Some((_, counters)) = own else {
                return Err(io::Error::other("an interface of the lab is gone"));
            };
            all[end.way].sent = *counters;
            all[end.way ^ 1].refused = counters.rx_dropped;
            all[end.way].bucket = buckets.iter().copied().find(|b| b.interface == end.index);
        }
    }
    Ok(all)
}

/// Meters all directions that have a rate.
fn sample(
    readers: &Mutex<Vec<Reader>>,
    mut meters: Vec<Option<Meter>>,
    stop: &AtomicBool,
) -> io::Result<Vec<Option<Meter>>> {
    while !stop.load(Ordering::Relaxed) {
        for reader in lock(readers).iter_mut() {
            if !reader.ends.iter().any(|end| meters[end.way].is_some()) {
                continue;
            }
            let asked = sys::clock::monotonic();
            let buckets = reader.netlink.token_buckets()?;
            let between = [asked, sys::clock::monotonic()];
            for bucket in buckets {
                let end = reader.ends.iter().find(|e| e.index == bucket.interface);
                if let Some(meter) = end.and_then(|end| meters[end.way].as_mut()) {
                    meter.add(Sample {
                        between,
                        bytes: bucket.bytes,
                        busy: bucket.backlog_bytes > 0,
                    });
                }
            }
        }
        thread::sleep(INTERVAL);
    }
    Ok(meters)
}

/// A phase that is watched.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    sampler: Option<JoinHandle<io::Result<Vec<Option<Meter>>>>>,
    before: Vec<Counted>,
    cpus: Vec<CpuTimes>,
    begun: Instant,
}

impl Watch {
    /// Ends it and judges.
    pub(super) fn finish(
        mut self,
        network: &Network,
        links: &KernelLinks,
    ) -> Result<Certificate, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = |_| io::Error::other("the thread that watches the links panicked");
        let meters = match self.sampler.take() {
            Some(sampler) => sampler
                .join()
                .map_err(panicked)
                .and_then(|r| r)
                .map_err(reading)?,
            None => Vec::new(),
        };
        let took = sys::clock::monotonic().saturating_since(self.begun);
        let after = links.counted(network)?;
        let [idle_ppm, steal_ppm] = shares(&self.cpus, &sys::cpu::cpu_times());
        let mut paces = Vec::new();
        for (way, (before, after)) in self.before.iter().zip(&after).enumerate() {
            let link = &network.links[way / 2];
            let [from, to] = match way % 2 {
                0 => link.between,
                _ => [link.between[1], link.between[0]],
            };
            let medium = link.direction(way % 2 == 0).medium;
            let mut pace = Pace {
                link: link.name.clone(),
                from: network.name(from).to_owned(),
                to: network.name(to).to_owned(),
                ..Pace::of(before, after, medium)
            };
            if let Some(Some(meter)) = meters.get(way) {
                pace.judge(meter, took);
            }
            paces.push(pace);
        }
        Ok(Certificate::of_kernel(KernelRun {
            paces,
            packet_max: Bytes::new(links.packet_bytes_max.into()),
            idle_ppm,
            steal_ppm,
        }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sampler) = self.sampler.take() {
            let _ = sampler.join();
        }
    }
}

/// Parts of the CPUs' time that were idle and stolen, in millionths.
fn shares(before: &[CpuTimes], after: &[CpuTimes]) -> [u64; 2] {
    let sum = |of: fn(&CpuTimes) -> Duration| {
        let all = |times: &[CpuTimes]| times.iter().map(|t| of(t).as_ns()).sum::<u64>();
        all(after).saturating_sub(all(before))
    };
    let (idle, steal) = (sum(|t| t.idle), sum(|t| t.steal));
    let busy = sum(|t| t.user) + sum(|t| t.system) + sum(|t| t.irq) + sum(|t| t.softirq);
    let all = idle + steal + busy;
    if all == 0 {
        // Shorter than a tick: nothing was counted.
        return [1_000_000, 0];
    }
    [idle, steal]
        .map(|part| u64::try_from(u128::from(part) * 1_000_000 / u128::from(all)).unwrap_or(0))
}

/// Between samples: five in a window.
const INTERVAL: StdDuration = StdDuration::from_millis(20);
/// GSO_LEGACY_MAX_SIZE of include/linux/netdevice.h.
const GSO_MAX: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shorter_than_a_tick_exhausts_nobody() {
        let times = |idle: u64, user: u64| CpuTimes {
            idle: Duration::from_ms(idle),
            user: Duration::from_ms(user),
            ..CpuTimes::default()
        };
        let before = [times(500, 100), times(500, 100)];
        assert_eq!(shares(&before, &before), [1_000_000, 0]);
        let after = [times(500, 110), times(530, 100)];
        assert_eq!(shares(&before, &after), [750_000, 0]);
        assert_eq!(shares(&before, &[times(500, 110), times(500, 120)]), [0, 0]);
    }
}
