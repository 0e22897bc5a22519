//! A host's values: read, written, and gathered as facts.
//!
//! What drivers say by ioctl and netlink has a place below another root too: `ethtool/DEVICE/ring-rx` and so on, a file for each.
//! So an image or a test's tree is read and written by the same code.

use std::fs;
use std::io;
use std::path::Path;

use settings::{Device, Facts, Key, Ring, RxQueue, Side};
use sys::ethtool::{self, Offload};
use sys::netlink::Netlink;
use sys::tunable::{self, Tree};
use units::{Bytes, Rate};

/// Something that holds values.
pub trait Values {
    /// The value of `key` as it is now.
    ///
    /// # Errors
    /// Why it cannot be read: `NotFound` where it is absent.
    fn read(&self, key: &Key) -> io::Result<String>;

    /// Sets it.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn write(&self, key: &Key, value: &str) -> io::Result<()>;
}

/// A machine, or a folder that has the tree of one.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where its files are.
    pub tree: Tree,
}

/// The discipline that the kernel gives a device.
const DEFAULT_QDISC: &str = "default";

/// Sysctls that the derivation looks at.
const SYSCTLS: [&str; 25] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.core.default_qdisc",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_ssthresh_metrics_save",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.core.netdev_max_backlog",
    "net.core.somaxconn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_buckets",
    "net.ipv4.conf.all.arp_ignore",
    "net.core.rmem_default",
    "net.core.wmem_default",
];

impl Host {
    /// This machine, in the network namespace of the calling thread.
    pub fn machine() -> Self {
        Self {
            tree: Tree::machine(),
        }
    }

    /// What lies below a folder.
    pub fn at(root: &Path) -> Self {
        Self {
            tree: Tree::at(root),
        }
    }

    /// What plans follow from. `device` is the interface of the path; by default the fastest.
    ///
    /// # Errors
    /// `NotFound` for a device that is not there.
    pub fn facts(&self, device: Option<&str>) -> io::Result<Facts> {
        let meminfo = self.tree.read("/proc/meminfo").unwrap_or_default();
        let mut facts = Facts {
            kernel: self.kernel(),
            memory: tunable::memory_total(&meminfo).map(Bytes::new),
            page_bytes: tunable::page_bytes(),
            cpus: self.cpus(),
            has_fq: self.has_fq(),
            ..Facts::default()
        };
        for name in SYSCTLS {
            let Ok(path) = self.tree.sysctl(name) else {
                continue;
            };
            if let Ok(text) = tunable::read(&path) {
                facts.put(Key::sysctl(name), &text, tunable::is_writable(&path));
            }
        }
        // A namespace of its own shows none of the machine's values; tcp_mem is one (net/ipv4/sysctl_net_ipv4.c).
        facts.first_namespace = facts.sysctl("net.ipv4.tcp_mem").is_some();
        self.governors(&mut facts);
        facts.device = self.device(device, &mut facts)?;
        Ok(facts)
    }

    fn kernel(&self) -> (u32, u32) {
        let release = self.tree.read("/proc/sys/kernel/osrelease");
        let release = release.unwrap_or_else(|_| sys::host::kernel_release());
        let mut parts = release.split(|c: char| !c.is_ascii_digit());
        let mut next = || parts.next()?.parse().ok();
        (next().unwrap_or(0), next().unwrap_or(0))
    }

    fn cpus(&self) -> u32 {
        match self.tree.is_machine() {
            true => sys::host::cpus_online(),
            false => {
                let names = self.tree.names("/sys/devices/system/cpu");
                let is_cpu = |name: &&String| {
                    name.strip_prefix("cpu")
                        .is_some_and(|n| n.parse::<u32>().is_ok())
                };
                u32::try_from(names.iter().filter(is_cpu).count())
                    .unwrap_or(1)
                    .max(1)
            }
        }
    }

    /// Whether the kernel has fq, built in or as a module; `None` where nothing says.
    fn has_fq(&self) -> Option<bool> {
        if self
            .tree
            .read("/proc/sys/net/core/default_qdisc")
            .is_ok_and(|kind| kind == "fq")
        {
            return Some(true);
        }
        let release = self.tree.read("/proc/sys/kernel/osrelease").ok()?;
        let lists = ["modules.builtin", "modules.dep"].map(|list| {
            fs::read_to_string(self.tree.path(&format!("/lib/modules/{release}/{list}"))).ok()
        });
        if lists.iter().all(Option::is_none) {
            return None;
        }
        let found = lists.iter().flatten();
        let mut found = found.flat_map(|text| text.lines());
        Some(found.any(|line| {
            line.split([':', '.'])
                .next()
                .is_some_and(|l| l.ends_with("/sch_fq"))
        }))
    }

    fn governors(&self, facts: &mut Facts) {
        for name in self.tree.names("/sys/devices/system/cpu") {
            let folder = format!("/sys/devices/system/cpu/{name}/cpufreq");
            let offered = self
                .tree
                .read(&format!("{folder}/scaling_available_governors"));
            let offers = offered.is_ok_and(|all| all.split(' ').any(|one| one == "performance"));
            let path = format!("{folder}/scaling_governor");
            if let (true, Ok(now)) = (offers, self.tree.read(&path)) {
                let writable = tunable::is_writable(&self.tree.path(&path));
                facts.put(Key::File(path), &now, writable);
            }
        }
    }

    /// The device's facts; its values go to `facts`.
    fn device(&self, wanted: Option<&str>, facts: &mut Facts) -> io::Result<Option<Device>> {
        let all = self.interfaces();
        let found = match wanted {
            Some(name) => {
                let found = all.into_iter().find(|one| one.name == name);
                Some(found.ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::NotFound,
                        format!("there is no interface '{name}' here"),
                    )
                })?)
            }
            None => {
                let outer = all.into_iter().filter(|one| one.name != "lo");
                // The first of the fastest; hardware before what is none, and those that tell no speed last.
                let rank = |one: &Device| {
                    let driver = one.driver.as_deref();
                    (driver.is_some_and(|d| !settings::is_virtual(d)), one.speed)
                };
                outer.reduce(|best, one| if rank(&one) > rank(&best) { one } else { best })
            }
        };
        let Some(mut device) = found else {
            return Ok(None);
        };
        self.driver_values(&mut device, facts);
        self.queues(&mut device, facts);
        Ok(Some(device))
    }

    fn interfaces(&self) -> Vec<Device> {
        if self.tree.is_machine() {
            let all = sys::host::interfaces().into_iter();
            let known = all.map(|one| Device {
                name: one.name,
                driver: one.driver,
                speed: one.speed_bits_per_second.map(Rate::from_bits_per_second),
                mtu_bytes: one.mtu_bytes,
                ..Device::default()
            });
            return known.collect();
        }
        let names = self.tree.names("/sys/class/net").into_iter();
        names
            .map(|name| {
                let read = |what: &str| self.tree.read(&format!("/sys/class/net/{name}/{what}"));
                let megabits = read("speed").ok().and_then(|text| text.parse::<u64>().ok());
                Device {
                    driver: self.tree.read(&format!("/ethtool/{name}/driver")).ok(),
                    speed: megabits
                        .map(|m| Rate::from_bits_per_second(m.saturating_mul(1_000_000))),
                    mtu_bytes: read("mtu")
                        .ok()
                        .and_then(|text| text.parse().ok())
                        .unwrap_or(0),
                    name,
                    ..Device::default()
                }
            })
            .collect()
    }

    /// What only the driver tells.
    fn driver_values(&self, device: &mut Device, facts: &mut Facts) {
        let name = device.name.clone();
        let mut keys: Vec<Key> = ["sg", "tx", "tso", "gso", "gro", "lro"]
            .map(|what| Key::Offload(name.clone(), what.to_owned()))
            .into();
        keys.push(Key::AdaptiveRx(name.clone()));
        keys.push(Key::Qdisc(name.clone()));
        keys.push(Key::Ring(name.clone(), Side::Rx));
        keys.push(Key::Ring(name.clone(), Side::Tx));
        for key in keys {
            if let Ok(text) = self.read(&key) {
                facts.put(key, &text, true);
            }
        }
        let rings = match self.tree.is_machine() {
            true => ethtool::rings(&name).ok(),
            false => self.rings_of_tree(&name),
        };
        if let Some(rings) = rings {
            device.rx_ring = (rings.rx_max > 0).then_some(Ring {
                now: rings.rx,
                max: rings.rx_max,
            });
            device.tx_ring = (rings.tx_max > 0).then_some(Ring {
                now: rings.tx,
                max: rings.tx_max,
            });
        }
        if self.tree.is_machine() {
            let root = Netlink::open().and_then(|mut n| n.root_qdisc(&name));
            if let Ok(root) = root {
                let (kind, by_kernel) = root.unwrap_or_else(|| ("noqueue".to_owned(), true));
                device.qdisc = Some(kind);
                device.qdisc_is_default = by_kernel;
            }
        } else if let Ok(kind) = self.tree.read(&format!("/ethtool/{name}/qdisc")) {
            device.qdisc_is_default = kind == DEFAULT_QDISC;
            device.qdisc = Some(kind);
        }
    }

    fn rings_of_tree(&self, name: &str) -> Option<ethtool::Rings> {
        let number = |what: &str| -> Option<u32> {
            let text = self.tree.read(&format!("/ethtool/{name}/{what}")).ok()?;
            text.parse().ok()
        };
        Some(ethtool::Rings {
            rx: number("ring-rx")?,
            rx_max: number("ring-rx-max")?,
            tx: number("ring-tx")?,
            tx_max: number("ring-tx-max")?,
        })
    }

    /// Receive queues and interrupts. /sys shows the network namespace of whoever mounted it: another device of that name is
    /// passed over.
    fn queues(&self, device: &mut Device, facts: &mut Facts) {
        let folder = format!("/sys/class/net/{}", device.name);
        if self.tree.is_machine() {
            let shown = self.tree.read(&format!("{folder}/ifindex")).ok();
            let shown = shown.and_then(|text| text.parse::<u32>().ok());
            let index = Netlink::open().and_then(|mut n| n.index_of(&device.name));
            if shown.is_none() || shown != index.ok() {
                return;
            }
        }
        let names = self.tree.names(&format!("{folder}/queues")).into_iter();
        for name in names.filter(|name| name.starts_with("rx-")) {
            let path = format!("{folder}/queues/{name}/rps_cpus");
            let Ok(rps_cpus) = self.tree.read(&path) else {
                continue;
            };
            let writable = tunable::is_writable(&self.tree.path(&path));
            facts.put(Key::File(path), &rps_cpus, writable);
            device.rx_queues.push(RxQueue { name, rps_cpus });
        }
        for number in self.tree.names(&format!("{folder}/device/msi_irqs")) {
            let path = format!("/proc/irq/{number}/smp_affinity_list");
            let (Ok(number), Ok(cpus)) = (number.parse(), self.tree.read(&path)) else {
                continue;
            };
            let writable = tunable::is_writable(&self.tree.path(&path));
            facts.put(Key::File(path), &cpus, writable);
            device.interrupts.insert(number, cpus);
        }
    }

    /// The file that stands for a driver's value below another root.
    fn stand_in(key: &Key) -> Option<String> {
        Some(match key {
            Key::Ring(device, Side::Rx) => format!("/ethtool/{device}/ring-rx"),
            Key::Ring(device, Side::Tx) => format!("/ethtool/{device}/ring-tx"),
            Key::Offload(device, what) => format!("/ethtool/{device}/{what}"),
            Key::AdaptiveRx(device) => format!("/ethtool/{device}/adaptive-rx"),
            Key::Qdisc(device) => format!("/ethtool/{device}/qdisc"),
            Key::Sysctl(_) | Key::File(_) => return None,
        })
    }
}

impl Values for Host {
    fn read(&self, key: &Key) -> io::Result<String> {
        match key {
            Key::Sysctl(name) => tunable::read(&self.tree.sysctl(name)?),
            Key::File(path) => self.tree.read(path),
            _ if !self.tree.is_machine() => {
                self.tree.read(&Self::stand_in(key).unwrap_or_default())
            }
            Key::Ring(device, side) => {
                let rings = ethtool::rings(device)?;
                Ok(match side {
                    Side::Rx => rings.rx,
                    Side::Tx => rings.tx,
                }
                .to_string())
            }
            Key::Offload(device, what) => {
                let on = match offload(what) {
                    Some(offload) => ethtool::offload(device, offload)?,
                    None => ethtool::nic_work(device)
                        .lro
                        .ok_or(io::ErrorKind::Unsupported)?,
                };
                Ok(on_off(on).to_owned())
            }
            Key::AdaptiveRx(device) => {
                let adapts = ethtool::nic_work(device).receive_hold_off_adapts;
                Ok(on_off(adapts.ok_or(io::ErrorKind::Unsupported)?).to_owned())
            }
            Key::Qdisc(device) => Ok(match Netlink::open()?.root_qdisc(device)? {
                Some((kind, false)) => kind,
                Some((_, true)) | None => DEFAULT_QDISC.to_owned(),
            }),
        }
    }

    fn write(&self, key: &Key, value: &str) -> io::Result<()> {
        match key {
            Key::Sysctl(name) => tunable::write(&self.tree.sysctl(name)?, value),
            Key::File(path) => tunable::write(&self.tree.path(path), value),
            _ if !self.tree.is_machine() => {
                let path = Self::stand_in(key).unwrap_or_default();
                tunable::write(&self.tree.path(&path), value)
            }
            Key::Ring(device, side) => {
                let value = value.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
                match side {
                    Side::Rx => ethtool::set_rings(device, Some(value), None),
                    Side::Tx => ethtool::set_rings(device, None, Some(value)),
                }
            }
            Key::Offload(device, what) => {
                let on = is_on(value)?;
                match offload(what) {
                    Some(offload) => ethtool::set_offload(device, offload, on),
                    None => ethtool::set_lro(device, on),
                }
            }
            Key::AdaptiveRx(device) => ethtool::set_adaptive_rx(device, is_on(value)?),
            Key::Qdisc(device) => {
                let kind = (value != DEFAULT_QDISC).then_some(value);
                Netlink::open()?.set_root_qdisc(device, kind)
            }
        }
    }
}

fn offload(what: &str) -> Option<Offload> {
    match what {
        "sg" => Some(Offload::ScatterGather),
        "tx" => Some(Offload::TransmitChecksum),
        "tso" => Some(Offload::Tso),
        "gso" => Some(Offload::Gso),
        "gro" => Some(Offload::Gro),
        _ => None,
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn is_on(value: &str) -> io::Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Whether two texts are the same value: the kernel prints tabs for blanks, and zeroes and commas in masks.
pub(crate) fn same(key: &Key, a: &str, b: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let is_mask = matches!(key, Key::File(path) if path.ends_with("_cpus"));
        let text = match is_mask {
            true => text.replace(',', "").trim_start_matches('0').to_owned(),
            false => text.to_owned(),
        };
        text.split_whitespace().map(str::to_owned).collect()
    };
    words(a) == words(b)
}
