//! Two hosts and what joins them: the lab, a kernel bridge, or nothing but a veth pair.
//!
//! The hosts are alike in all three: one interface `eth0`, the same addresses, Linux's default
//! buffers, no neighbour discovery. Everything lives in namespaces that nothing but this process
//! holds, so it goes away with it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use lab::{Host, Lab, PathFile};
use serde_json::Value;
use sys::ethtool::{self, Offload};
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;

/// What joins the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The lab's forwarder.
    Lab,
    /// A kernel bridge.
    Bridge,
    /// One veth pair from host to host.
    Veth,
    /// A kernel bridge whose ports have netem.
    Netem,
}

impl Place {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Bridge => "bridge",
            Self::Veth => "veth",
            Self::Netem => "netem",
        }
    }
}

/// Two hosts, joined.
#[derive(Debug)]
pub(crate) enum Site {
    /// By the lab.
    Lab(Box<Lab>),
    /// By the kernel.
    Pair(Pair),
}

/// Two namespaces joined by the kernel.
#[derive(Debug)]
pub(crate) struct Pair {
    near: NetNs,
    far: NetNs,
    /// Holds the bridge.
    bridge: Option<NetNs>,
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    kind: Kind<'a>,
    address: Ipv4Addr,
}

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Lab(&'a Host),
    Pair(&'a NetNs),
}

impl Site {
    /// Joins two hosts by `place` without rate or delay, with or without their off-loads.
    pub(crate) fn plain(place: Place, mtu: u32, offloads: bool) -> anyhow::Result<Self> {
        let site = match place {
            // The lab is told, as a user would tell it.
            Place::Lab if !offloads => {
                let text = path_text(mtu, "");
                return Self::lab(&text.replace("mtu = ", "offloads = false\nmtu = "));
            }
            Place::Lab => Self::lab(&path_text(mtu, ""))?,
            Place::Bridge => Self::Pair(Pair::bridged(mtu)?),
            Place::Veth => Self::Pair(Pair::direct(mtu)?),
            Place::Netem => Self::netem(mtu, "")?,
        };
        if !offloads {
            site.switch_offloads_off()?;
        }
        Ok(site)
    }

    /// A bridge with netem on the egress of both ports, so behind the sender's driver, where its
    /// stamp is taken, and before the receiver's. `settings` are as `tc-netem(8)` has them, each way.
    pub(crate) fn netem(mtu: u32, settings: &str) -> anyhow::Result<Self> {
        let pair = Pair::bridged(mtu)?;
        let bridge = pair.bridge.as_ref().context("a pair without its bridge")?;
        for port in ["near", "far"] {
            let base = format!("qdisc add dev {port} root netem limit {NETEM_LIMIT_PACKETS}");
            tool(bridge, "tc", format!("{base} {settings}").trim())?;
        }
        Ok(Self::Pair(pair))
    }

    /// What netem towards the far host has dropped since it was made, super-frames counted once.
    /// `None` where there is no netem.
    pub(crate) fn netem_drops(&self) -> anyhow::Result<Option<u64>> {
        let Self::Pair(Pair {
            bridge: Some(bridge),
            ..
        }) = self
        else {
            return Ok(None);
        };
        let text = tool(bridge, "tc", "-s -j qdisc show dev far")?;
        Ok(netem_drops(&text))
    }

    /// A lab of a path file's text.
    pub(crate) fn lab(text: &str) -> anyhow::Result<Self> {
        let path = PathFile::parse(Path::new("bench.toml"), text)?;
        Ok(Self::Lab(Box::new(Lab::up(&path)?)))
    }

    /// A lab of a path file.
    pub(crate) fn lab_file(file: &Path) -> anyhow::Result<Self> {
        Ok(Self::Lab(Box::new(Lab::up(&PathFile::read(file)?)?)))
    }

    pub(crate) fn near(&self) -> End<'_> {
        match self {
            Self::Lab(lab) => End::of(lab.near()),
            Self::Pair(pair) => End {
                kind: Kind::Pair(&pair.near),
                address: NEAR_ADDRESS,
            },
        }
    }

    pub(crate) fn far(&self) -> End<'_> {
        match self {
            Self::Lab(lab) => End::of(lab.far()),
            Self::Pair(pair) => End {
                kind: Kind::Pair(&pair.far),
                address: FAR_ADDRESS,
            },
        }
    }

    /// The lab, where it is one.
    pub(crate) const fn as_lab(&self) -> Option<&Lab> {
        match self {
            Self::Lab(lab) => Some(lab),
            Self::Pair(_) => None,
        }
    }

    /// Makes both hosts do by CPU what a network card does for them.
    fn switch_offloads_off(&self) -> anyhow::Result<()> {
        for end in [self.near(), self.far()] {
            end.run(|| {
                Offload::ALL.iter().try_for_each(|&offload| {
                    ethtool::set_offload(INTERFACE, offload, false)
                        .with_context(|| format!("switching {offload:?} off"))
                })
            })??;
        }
        Ok(())
    }
}

impl<'a> End<'a> {
    const fn of(host: &'a Host) -> Self {
        Self {
            kind: Kind::Lab(host),
            address: host.address(),
        }
    }

    pub(crate) const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Runs `work` on a thread of its own inside the host and waits for it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        Ok(match self.kind {
            Kind::Lab(host) => host.run(work)?,
            Kind::Pair(ns) => ns.run(work)?,
        })
    }

    /// A program that will run inside the host and die with the thread that starts it.
    pub(crate) fn program(&self, name: &str) -> anyhow::Result<Command> {
        Ok(match self.kind {
            Kind::Lab(host) => host.program(name)?,
            Kind::Pair(ns) => {
                let mut program = Command::new(name);
                ns.place(&mut program)?;
                program
            }
        })
    }
}

impl Pair {
    fn direct(mtu: u32) -> anyhow::Result<Self> {
        let (near, far) = (NetNs::create()?, NetNs::create()?);
        quieten(&near)?;
        quieten(&far)?;
        near.run(|| {
            Netlink::open()?.add_veth(end(&near, INTERFACE, NEAR), end(&far, INTERFACE, FAR))
        })?
        .context("making a veth pair")?;
        let pair = Self {
            near,
            far,
            bridge: None,
        };
        pair.configure(mtu)?;
        Ok(pair)
    }

    fn bridged(mtu: u32) -> anyhow::Result<Self> {
        let (near, far, bridge) = (NetNs::create()?, NetNs::create()?, NetNs::create()?);
        for ns in [&near, &far, &bridge] {
            quieten(ns)?;
        }
        bridge
            .run(|| -> io::Result<()> {
                let mut netlink = Netlink::open()?;
                netlink.add_veth(end(&near, INTERFACE, NEAR), end(&bridge, "near", NEAR + 2))?;
                netlink.add_veth(end(&far, INTERFACE, FAR), end(&bridge, "far", FAR + 2))?;
                netlink.set_up("near", Some(mtu))?;
                netlink.set_up("far", Some(mtu))
            })?
            .context("making veth pairs")?;
        for args in [
            "link add joint type bridge",
            "link set near master joint",
            "link set far master joint",
            "link set joint up",
        ] {
            tool(&bridge, "ip", args)?;
        }
        let pair = Self {
            near,
            far,
            bridge: Some(bridge),
        };
        pair.configure(mtu)?;
        Ok(pair)
    }

    /// Gives both hosts what the lab gives its own.
    fn configure(&self, mtu: u32) -> anyhow::Result<()> {
        for (ns, own, peer, peer_mac) in [
            (&self.near, NEAR_ADDRESS, FAR_ADDRESS, FAR),
            (&self.far, FAR_ADDRESS, NEAR_ADDRESS, NEAR),
        ] {
            ns.run(|| -> io::Result<()> {
                std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")?;
                std::fs::write("/proc/sys/net/ipv4/tcp_rmem", words(&TCP_RMEM_BYTES))?;
                std::fs::write("/proc/sys/net/ipv4/tcp_wmem", words(&TCP_WMEM_BYTES))?;
                let mut netlink = Netlink::open()?;
                netlink.set_up("lo", None)?;
                netlink.add_address(INTERFACE, own, PREFIX)?;
                netlink.set_up(INTERFACE, Some(mtu))?;
                netlink.add_neighbour(INTERFACE, peer, mac(peer_mac))
            })?
            .context("configuring a host")?;
        }
        Ok(())
    }
}

/// No IPv6 chatter on a measured path.
fn quieten(ns: &NetNs) -> io::Result<()> {
    ns.run(|| {
        // A kernel without IPv6 has nothing to switch off.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    })
}

/// Runs a program of iproute2 inside a namespace; what it printed.
fn tool(ns: &NetNs, name: &str, args: &str) -> anyhow::Result<String> {
    let mut program = Command::new(name);
    let output = ns
        .place(&mut program)?
        .args(args.split(' '))
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} {args}: {}", said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The drops that `tc -s -j qdisc` says of netem.
fn netem_drops(text: &str) -> Option<u64> {
    let queues: Value = serde_json::from_str(text).ok()?;
    let mut queues = queues.as_array()?.iter();
    queues.find(|q| q["kind"] == "netem")?["drops"].as_u64()
}

fn end<'a>(ns: &'a NetNs, name: &'a str, number: u8) -> VethEnd<'a> {
    VethEnd {
        name,
        mac: mac(number),
        netns: ns.as_fd(),
    }
}

/// Locally administered.
const fn mac(number: u8) -> [u8; 6] {
    [0x02, 0x67, 0x70, 1, 0, number]
}

/// The text of a path file between hosts of Linux's default buffers. `link` is what the link has
/// beyond its ends, a line each.
pub(crate) fn path_text(mtu: u32, link: &str) -> String {
    let quoted = |v: &[u64; 3]| v.map(|bytes| format!("\"{bytes}B\"")).join(", ");
    let (rmem, wmem) = (quoted(&TCP_RMEM_BYTES), quoted(&TCP_WMEM_BYTES));
    let host = |name: &str| {
        format!(
            "[hosts.{name}]\nmtu = {mtu}\ncongestion_control = \"{CONGESTION_CONTROL}\"\n\
             tcp_rmem = [{rmem}]\ntcp_wmem = [{wmem}]\n"
        )
    };
    format!(
        "title = \"a path of the benchmark\"\n{}{}[links.wan]\nbetween = [\"near\", \"far\"]\n{link}\n",
        host("near"),
        host("far"),
    )
}

fn words(values: &[u64; 3]) -> String {
    values.map(|v| v.to_string()).join(" ")
}

/// Of every TCP stream in the benchmark.
pub(crate) const CONGESTION_CONTROL: &str = "cubic";
/// Linux's defaults with enough memory: net/ipv4/tcp.c, tcp_init().
const TCP_RMEM_BYTES: [u64; 3] = [4_096, 131_072, 6_291_456];
const TCP_WMEM_BYTES: [u64; 3] = [4_096, 16_384, 4_194_304];
/// The lab's own name for it.
pub(crate) const INTERFACE: &str = "eth0";
/// Delay line and queue in one: 10 ms of 64-byte frames at 1 Gb/s are 15,000.
const NETEM_LIMIT_PACKETS: u32 = 100_000;
/// RFC 2544's block for benchmarks.
const NEAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const FAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const PREFIX: u8 = 24;
const NEAR: u8 = 1;
const FAR: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmarks_paths_are_path_files() {
        for link in ["", "delay = \"50ms\""] {
            let text = path_text(9000, link);
            let path = PathFile::parse(Path::new("x.toml"), &text).unwrap();
            assert_eq!(path.mtu_bytes(), 9000);
            assert_eq!(path.forward.rate, None);
            assert_eq!(path.near.tcp_rmem_bytes, TCP_RMEM_BYTES);
        }
    }

    #[test]
    fn drops_are_netems_and_nobody_elses() {
        let text = r#"[{"kind":"fq","drops":9},{"kind":"netem","handle":"8001:","drops":6}]"#;
        assert_eq!(netem_drops(text), Some(6));
        assert_eq!(netem_drops(r#"[{"kind":"noqueue","drops":1}]"#), None);
        assert_eq!(netem_drops(""), None);
    }

    #[test]
    fn hosts_of_a_pair_reach_each_other() {
        if !sys::netns::can_create_namespaces() {
            eprintln!("skipped: no privilege to make namespaces");
            return;
        }
        let mut places = vec![Place::Veth];
        if Command::new("ip").arg("-V").output().is_ok() {
            places.push(Place::Bridge);
        }
        for place in places {
            let site = Site::plain(place, 1500, false).unwrap();
            let (near, far) = (site.near(), site.far());
            let address = (far.address(), 7);
            let listener = far.run(|| std::net::TcpListener::bind(address)).unwrap();
            let _listener = listener.unwrap();
            let limit = std::time::Duration::from_secs(5);
            let connected = near
                .run(|| std::net::TcpStream::connect_timeout(&address.into(), limit))
                .unwrap();
            assert!(connected.is_ok(), "{place:?}: {connected:?}");
        }
    }
}
