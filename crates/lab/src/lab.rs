//! A lab: two hosts in namespaces of their own, joined by the forwarding thread.
//!
//! Nothing of it has a name outside this process: namespaces are held by descriptors, interfaces
//! live in them, children die with the thread that started them. When the process ends, however it
//! ends, the kernel takes all of it away.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command as Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration as StdDuration;

use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;
use sys::packet::PacketSocket;
use units::{Bytes, Duration};

use crate::certificate::Certificate;
use crate::forward::{Command, Forwarder, PhaseCounts};
use crate::path::{HostSpec, PathFile};
use crate::probe::{self, Prober};

/// A running lab. Dropping it takes everything down.
#[derive(Debug)]
pub struct Lab {
    near: Host,
    far: Host,
    fabric: NetNs,
    delay_min: Duration,
    rtt: Duration,
    probe_interval: StdDuration,
    phases: AtomicU32,
    commands: Sender<Command>,
    stop: Arc<AtomicBool>,
    forwarder: Option<JoinHandle<()>>,
}

/// A host of the lab.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    ns: NetNs,
    congestion_control: String,
}

/// A phase under way: the forwarder counts, probes run.
#[derive(Debug)]
pub struct Phase<'lab> {
    lab: &'lab Lab,
    near: Prober,
    far: Prober,
    device_drops: u64,
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
        check_memory(path.memory_bytes())?;
        let ns = || NetNs::create().map_err(LabError::NoNamespaces);
        let (near_ns, far_ns, fabric) = (ns()?, ns()?, ns()?);
        let near = Host::new(&path.near, NEAR_ADDRESS, near_ns);
        let far = Host::new(&path.far, FAR_ADDRESS, far_ns);
        let wires = [
            (&near, &path.near, NEAR_MAC, NEAR_PORT),
            (&far, &path.far, FAR_MAC, FAR_PORT),
        ];
        for (host, spec, mac, port) in wires {
            wire_up(&fabric, host, spec, mac, port)?;
        }
        for (host, spec, peer, peer_mac) in [
            (&near, &path.near, FAR_ADDRESS, FAR_MAC),
            (&far, &path.far, NEAR_ADDRESS, NEAR_MAC),
        ] {
            host.configure(spec, peer, peer_mac)?;
        }
        let sockets = in_ns(&fabric, "opening packet sockets", || {
            let mut netlink = Netlink::open()?;
            let near = PacketSocket::open(netlink.index_of(NEAR_PORT)?, SOCKET_BUFFER_BYTES)?;
            let far = PacketSocket::open(netlink.index_of(FAR_PORT)?, SOCKET_BUFFER_BYTES)?;
            Ok((near, far))
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let (commands, requests) = mpsc::channel();
        let forwarder = Forwarder::new(sockets.0, sockets.1, &path.forward, &path.backward);
        let flag = Arc::clone(&stop);
        let forwarder = thread::Builder::new()
            .name("forwarder".into())
            .spawn(move || forwarder.run(&flag, &requests))
            .map_err(|source| LabError::Kernel {
                step: "starting a thread".into(),
                source,
            })?;
        Ok(Self {
            near,
            far,
            fabric,
            delay_min: path.forward.delay.min(path.backward.delay),
            rtt: path.rtt_configured(),
            probe_interval: probe::interval(
                path.forward
                    .rate
                    .into_iter()
                    .chain(path.backward.rate)
                    .min(),
            ),
            phases: AtomicU32::new(0),
            commands,
            stop,
            forwarder: Some(forwarder),
        })
    }

    /// The near host.
    pub const fn near(&self) -> &Host {
        &self.near
    }

    /// The far host.
    pub const fn far(&self) -> &Host {
        &self.far
    }

    /// Starts a phase: waits until the path is empty, counts anew and probes until
    /// [`Phase::finish`].
    ///
    /// # Errors
    /// When the probes cannot start.
    pub fn begin_phase(&self) -> Result<Phase<'_>, LabError> {
        self.drain()?;
        let device_drops = self.device_drops()?;
        let (reply, done) = mpsc::channel();
        self.commands
            .send(Command::Reset(reply))
            .map_err(|_| LabError::ForwarderGone)?;
        done.recv_timeout(FORWARDER_PATIENCE)
            .map_err(|_| LabError::ForwarderGone)?;
        let number = self.phases.fetch_add(1, Ordering::Relaxed);
        let start = |own: &Host, other: &Host| {
            Prober::start(
                &own.ns,
                own.address,
                other.address,
                number,
                self.probe_interval,
            )
            .map_err(|source| LabError::Kernel {
                step: "starting the probes".into(),
                source,
            })
        };
        Ok(Phase {
            lab: self,
            near: start(&self.near, &self.far)?,
            far: start(&self.far, &self.near)?,
            device_drops,
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
        Ok(drops(&self.fabric, &[NEAR_PORT, FAR_PORT])?
            + drops(&self.near.ns, &[INTERFACE])?
            + drops(&self.far.ns, &[INTERFACE])?)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(forwarder) = self.forwarder.take() {
            let _ = forwarder.join();
        }
    }
}

impl Phase<'_> {
    /// Ends the phase and judges the lab over it.
    ///
    /// # Errors
    /// When the forwarder or the probes failed.
    pub fn finish(self) -> Result<Certificate, LabError> {
        let drain = (self.lab.rtt + DRAIN_EXTRA).to_std();
        let failed = |source| LabError::Kernel {
            step: "probing the path".into(),
            source,
        };
        let (near, far) = thread::scope(|scope| {
            let near = scope.spawn(|| self.near.finish(drain));
            let far = scope.spawn(|| self.far.finish(drain));
            (near.join(), far.join())
        });
        let gone = |_| io::Error::other("a probe thread panicked");
        let near = near.map_err(gone).and_then(|r| r).map_err(failed)?;
        let far = far.map_err(gone).and_then(|r| r).map_err(failed)?;
        let counts = self.lab.report()?;
        let drops = self.lab.device_drops()?.saturating_sub(self.device_drops);
        Ok(Certificate::judge(
            counts,
            &near,
            &far,
            self.lab.delay_min,
            drops,
        ))
    }
}

impl Host {
    fn new(spec: &HostSpec, address: Ipv4Addr, ns: NetNs) -> Self {
        Self {
            name: spec.name.clone(),
            address,
            ns,
            congestion_control: spec.congestion_control.clone(),
        }
    }

    /// Name in the path file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the path.
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Congestion control that its sockets are to use. It is the host's default only where the
    /// kernel lets a namespace choose; set it on each socket.
    pub fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    /// Runs `work` on a thread of its own inside the host and waits for it.
    ///
    /// # Errors
    /// When the thread cannot enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.ns.run(work).map_err(|source| LabError::Kernel {
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
        self.ns
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

    fn configure(
        &self,
        spec: &HostSpec,
        peer: Ipv4Addr,
        peer_mac: [u8; 6],
    ) -> Result<(), LabError> {
        // Route and neighbour discovery of IPv6 would be strange traffic on a measured path.
        for scope in ["all", "default"] {
            let _ = self.set(&format!("net.ipv6.conf.{scope}.disable_ipv6"), "1");
        }
        // A connection must not inherit what an earlier one learned of the path.
        self.set("net.ipv4.tcp_no_metrics_save", "1")?;
        let triplet = |v: &[u64; 3]| format!("{} {} {}", v[0], v[1], v[2]);
        self.set("net.ipv4.tcp_rmem", &triplet(&spec.tcp_rmem_bytes))?;
        self.set("net.ipv4.tcp_wmem", &triplet(&spec.tcp_wmem_bytes))?;
        // The kernel lets a namespace default only to algorithms that the machine allows to all;
        // sockets are told one by one anyhow.
        let _ = self.set("net.ipv4.tcp_congestion_control", &spec.congestion_control);
        for (name, value) in &spec.sysctl {
            self.set(name, value)?;
        }
        in_ns(&self.ns, "configuring a host", || {
            let mut netlink = Netlink::open()?;
            netlink.set_up("lo", None)?;
            netlink.add_address(INTERFACE, self.address, PREFIX)?;
            netlink.set_up(INTERFACE, Some(spec.mtu_bytes))?;
            netlink.add_neighbour(INTERFACE, peer, peer_mac)
        })
    }
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

/// Makes the pair between a host and its port on the fabric.
fn wire_up(
    fabric: &NetNs,
    host: &Host,
    spec: &HostSpec,
    mac: [u8; 6],
    port: &str,
) -> Result<(), LabError> {
    let mut port_mac = mac;
    port_mac[4] = 1;
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
                name: INTERFACE,
                mac,
                netns: host.ns.as_fd(),
            },
        )?;
        netlink.set_up(port, Some(spec.mtu_bytes))
    })
}

fn in_ns<T: Send>(
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

/// RFC 2544's block for benchmarks of network devices: never routed, never anybody's LAN.
const NEAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const FAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const PREFIX: u8 = 24;
/// Locally administered.
const NEAR_MAC: [u8; 6] = [0x02, 0x67, 0x70, 0, 0, 1];
const FAR_MAC: [u8; 6] = [0x02, 0x67, 0x70, 0, 0, 2];
const INTERFACE: &str = "eth0";
const NEAR_PORT: &str = "near";
const FAR_PORT: &str = "far";
/// Asked for by force; without root the machine's net.core.rmem_max decides.
const SOCKET_BUFFER_BYTES: u32 = 64 << 20;
/// The forwarder looks for commands every 20 ms; a machine may be busy.
const FORWARDER_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
/// Ten seconds, the longest delay of a path file.
const DRAIN_STEPS_MAX: u32 = 200;
const DRAIN_STEP: StdDuration = StdDuration::from_millis(50);
/// Probes under way when a phase ends get this long beyond the round trip.
const DRAIN_EXTRA: Duration = Duration::from_ms(300);
