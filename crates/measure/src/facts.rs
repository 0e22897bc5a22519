//! What each end tells of its host.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sys::host;

use units::text::plain;

use crate::messages::Verbs;
use crate::protocol::PROTOCOL;
use crate::transport::{Sending, Transport};
use crate::{Config, Direction, MeasureError};

/// The far end, as it described itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FarFacts {
    /// Version of its goodput; only informs, `protocol` decides.
    pub version: String,
    /// Its protocol number.
    pub protocol: u16,
    /// [`Transport`](crate::Transport)s and [`Verbs`] that it knows, by name; none told means TCP.
    /// Whether there is a device for verbs is told when it is asked for.
    pub transports: Vec<String>,
    /// Ways of [`Sending`](crate::Sending) that it knows, by name; none told means write.
    pub sendings: Vec<String>,
    /// What it sends at most in one transfer, where it limits clients without a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_max_bits_per_second: Option<u64>,
    /// Its host.
    #[serde(flatten)]
    pub host: HostFacts,
}

/// One host, as seen from the network namespace of the measuring thread. What the host does not
/// tell is empty or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// Load average over one minute, times 100.
    pub load_1min_percent: u32,
    /// Host name.
    pub hostname: String,
    /// `net.ipv4.tcp_rmem`: minimum, default, maximum.
    pub tcp_rmem_bytes: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: minimum, default, maximum.
    pub tcp_wmem_bytes: Option<[u64; 3]>,
    /// `net.core.rmem_max`: what SO_RCVBUF is cut at.
    pub rmem_max_bytes: Option<u64>,
    /// `net.core.wmem_max`: what SO_SNDBUF is cut at.
    pub wmem_max_bytes: Option<u64>,
    /// `net.ipv4.tcp_window_scaling`: whether its SYNs offer the option (RFC 7323).
    pub tcp_window_scaling: Option<bool>,
    /// Congestion control of new connections.
    pub congestion_control: Option<String>,
    /// Congestion controls that the kernel has.
    pub congestion_available: Vec<String>,
    /// Those of them that this process may choose.
    pub congestion_allowed: Vec<String>,
    /// Largest packet on the route to the peer.
    pub path_mtu_bytes: Option<u32>,
    /// The interface that has the connection's local address.
    pub interface: Option<InterfaceFacts>,
}

/// The interface that carries the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceFacts {
    /// Name.
    pub name: String,
    /// MTU.
    pub mtu_bytes: u32,
    /// Driver, such as `mlx5_core` or `veth`.
    pub driver: Option<String>,
    /// Link speed, if the driver says it.
    pub speed_bits_per_second: Option<u64>,
    /// What it takes off the kernel, as far as the driver says.
    #[serde(flatten)]
    pub work: NicWork,
    /// The PCI Express link between it and its host, where it has one.
    pub pci: Option<PciFacts>,
}

/// How an interface's PCI Express link was trained, and what the device can.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciFacts {
    /// Address of the device.
    pub address: String,
    /// Transfers a second of a lane, in millions.
    pub megatransfers: u32,
    /// Lanes in use.
    pub lanes: u32,
    /// The same that the device can.
    pub megatransfers_max: u32,
    /// Lanes that the device has.
    pub lanes_max: u32,
    /// Largest payload of a packet, in bytes, that is set; told with rights only, as all sizes.
    pub payload_bytes: Option<u32>,
    /// The largest that the device can.
    pub payload_max_bytes: Option<u32>,
    /// Largest read that the device asks for, in bytes.
    pub read_request_bytes: Option<u32>,
    /// The slowest link between the device and the root: its bits a second after line coding.
    pub bits_per_second: u64,
    /// Where that is another link than the device's: the bridge that it leads to.
    pub slower_above: Option<String>,
}

impl From<sys::pci::PciLink> for PciFacts {
    fn from(read: sys::pci::PciLink) -> Self {
        Self {
            address: read.address,
            megatransfers: read.megatransfers,
            lanes: read.lanes,
            megatransfers_max: read.megatransfers_max,
            lanes_max: read.lanes_max,
            payload_bytes: read.payload_bytes.map(|(set, _)| set),
            payload_max_bytes: read.payload_bytes.map(|(_, most)| most),
            read_request_bytes: read.read_request_bytes,
            bits_per_second: read.bits_per_second,
            slower_above: read.slower_above,
        }
    }
}

/// Offloads and interrupt hold-off of an interface; what its driver does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NicWork {
    /// TCP segmentation by the card.
    pub tso: Option<bool>,
    /// Segmentation late in software.
    pub gso: Option<bool>,
    /// Merging of received segments in software.
    pub gro: Option<bool>,
    /// Merging of received segments by the card.
    pub lro: Option<bool>,
    /// Checksums of what is sent.
    pub transmit_checksum: Option<bool>,
    /// Checksums of what is received.
    pub receive_checksum: Option<bool>,
    /// Longest wait from a received frame to its interrupt (`rx-usecs`).
    pub receive_hold_off_us: Option<u32>,
    /// Frames after which it comes at once (`rx-frames`).
    pub receive_hold_off_frames: Option<u32>,
    /// Whether the driver adapts the wait to the load.
    pub receive_hold_off_adapts: Option<bool>,
}

impl From<sys::ethtool::NicWork> for NicWork {
    fn from(read: sys::ethtool::NicWork) -> Self {
        Self {
            tso: read.tso,
            gso: read.gso,
            gro: read.gro,
            lro: read.lro,
            transmit_checksum: read.transmit_checksum,
            receive_checksum: read.receive_checksum,
            receive_hold_off_us: read.receive_hold_off_us,
            receive_hold_off_frames: read.receive_hold_off_frames,
            receive_hold_off_adapts: read.receive_hold_off_adapts,
        }
    }
}

impl HostFacts {
    /// This host as the calling thread's network namespace shows it; `local` is the address of the
    /// connection whose interface is wanted.
    pub fn of_this_host(local: Option<IpAddr>) -> Self {
        let size = |name: &str| host::read_sysctl(name).ok()?.parse().ok();
        Self {
            kernel: host::kernel_release(),
            cpu_model: host::cpu_model(),
            cpus: host::cpus_online(),
            load_1min_percent: host::load_1min_percent().unwrap_or(0),
            hostname: host::hostname(),
            tcp_rmem_bytes: host::tcp_mem_triplet("tcp_rmem"),
            tcp_wmem_bytes: host::tcp_mem_triplet("tcp_wmem"),
            rmem_max_bytes: size("net.core.rmem_max"),
            wmem_max_bytes: size("net.core.wmem_max"),
            tcp_window_scaling: host::read_sysctl("net.ipv4.tcp_window_scaling")
                .ok()
                .map(|value| value != "0"),
            congestion_control: host::congestion_default(),
            congestion_available: host::congestion_available(),
            congestion_allowed: host::congestion_choosable(),
            path_mtu_bytes: None,
            interface: local
                .and_then(host::interface_with)
                .map(|found| InterfaceFacts {
                    work: sys::ethtool::nic_work(&found.name).into(),
                    pci: sys::pci::of_interface(&found.name).map(PciFacts::from),
                    name: found.name,
                    mtu_bytes: found.mtu_bytes,
                    driver: found.driver,
                    speed_bits_per_second: found.speed_bits_per_second,
                }),
        }
    }

    /// MTU of the interface that carries the connection, else of the route.
    pub fn mtu_bytes(&self) -> Option<u32> {
        self.interface
            .as_ref()
            .map(|i| i.mtu_bytes)
            .filter(|&mtu| mtu > 0)
            .or(self.path_mtu_bytes)
    }

    /// Makes what a stranger sent safe to print and small.
    fn clean(&mut self) {
        let texts = [&mut self.kernel, &mut self.cpu_model, &mut self.hostname];
        for text in texts.into_iter().chain(self.congestion_control.as_mut()) {
            *text = clean(text);
        }
        for names in [&mut self.congestion_available, &mut self.congestion_allowed] {
            names.truncate(32);
            for text in names {
                *text = clean(text);
            }
        }
        if let Some(interface) = &mut self.interface {
            interface.name = clean(&interface.name);
            interface.driver = interface.driver.as_deref().map(clean);
            if let Some(pci) = &mut interface.pci {
                pci.address = clean(&pci.address);
                pci.slower_above = pci.slower_above.as_deref().map(clean);
            }
        }
    }
}

impl FarFacts {
    /// What this host tells a client whose connection has the local address `local`.
    pub(crate) fn to_tell(local: Option<IpAddr>, path_mtu_bytes: Option<u32>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            transports: Transport::ALL
                .into_iter()
                .map(Transport::name)
                .chain(Verbs::ALL.map(Verbs::name))
                .map(str::to_owned)
                .collect(),
            sendings: Sending::ALL.map(|s| s.name().to_owned()).to_vec(),
            rate_max_bits_per_second: None,
            host: HostFacts {
                path_mtu_bytes,
                ..HostFacts::of_this_host(local)
            },
        }
    }

    /// Makes what a stranger sent safe to print and small.
    pub(crate) fn cleaned(mut self) -> Self {
        self.version = clean(&self.version);
        for names in [&mut self.transports, &mut self.sendings] {
            names.truncate(32);
            for text in names {
                *text = clean(text);
            }
        }
        self.host.clean();
        self
    }
}

/// A text from the network: [plain](units::text::plain), at most 200 characters.
pub(crate) fn clean(text: &str) -> String {
    let short: String = text.chars().take(200).collect();
    plain(&short).into_owned()
}

/// Whether a far end can take part in a transfer. One from before these choices tells none of them,
/// would not see in the wish what it does not know, and so has to be asked first. MPTCP needs nobody's
/// leave: against an end without it the connections are plain TCP.
pub(crate) fn check_far(far: &FarFacts, config: &Config) -> Result<(), MeasureError> {
    let needs = |what: &str, has: &[String]| match has.iter().any(|name| name == what) {
        true => Ok(()),
        false => Err(lacks(far, what)),
    };
    if !matches!(config.transport, Transport::Tcp | Transport::Mptcp) {
        needs(config.transport.name(), &far.transports)?;
    }
    if config.direction == Direction::Down && config.sending != Sending::Write {
        needs(config.sending.name(), &far.sendings)?;
    }
    Ok(())
}

/// The same for a transport of messages alone, by its name.
pub(crate) fn check_name(far: &FarFacts, name: &str) -> Result<(), MeasureError> {
    match far.transports.iter().any(|known| known == name) {
        true => Ok(()),
        false => Err(lacks(far, name)),
    }
}

fn lacks(far: &FarFacts, what: &str) -> MeasureError {
    MeasureError::FarLacks {
        what: what.to_owned(),
        version: far.version.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{HOSTILE, assert_clean_lines};
    use crate::hostile_values::each;

    #[test]
    fn texts_from_the_network_lose_their_control_characters() {
        let hostile = FarFacts {
            version: "\x1b[2Jboo\n".repeat(100),
            host: HostFacts {
                hostname: "a\x07b".to_owned(),
                ..HostFacts::default()
            },
            ..FarFacts::default()
        };
        let cleaned = hostile.cleaned();
        assert_eq!(cleaned.host.hostname, "a\u{fffd}b");
        assert_eq!(cleaned.version.chars().count(), 200);
        assert!(!cleaned.version.contains('\x1b'));
    }

    #[test]
    fn no_text_of_a_peer_s_facts_is_raw() {
        each::<FarFacts>(HOSTILE, 0, |facts, which| {
            let text = serde_json::to_string(&facts.cleaned()).unwrap();
            assert!(!text.contains("\\n"), "{which:?}: {text}");
            assert_clean_lines(&text, &format!("{which:?}"));
        });
    }

    #[test]
    fn facts_of_another_version_read_with_what_they_have() {
        let facts: FarFacts =
            serde_json::from_str(r#"{"version":"9","cpus":4,"novelty":{"x":[1]}}"#).unwrap();
        assert_eq!(facts.host.cpus, 4);
        assert_eq!(facts.host.interface, None);
    }

    #[test]
    fn an_end_that_tells_nothing_gets_only_what_every_end_knows() {
        let old = FarFacts {
            version: "0.1.0".to_owned(),
            ..FarFacts::default()
        };
        let new = FarFacts {
            transports: Transport::ALL.map(|t| t.name().to_owned()).to_vec(),
            sendings: Sending::ALL.map(|s| s.name().to_owned()).to_vec(),
            ..FarFacts::default()
        };
        for transport in Transport::ALL {
            let config = Config {
                transport,
                ..Config::default()
            };
            assert!(check_far(&new, &config).is_ok());
            let plain = matches!(transport, Transport::Tcp | Transport::Mptcp);
            assert_eq!(check_far(&old, &config).is_ok(), plain, "{transport:?}");
        }
        for sending in Sending::ALL {
            for direction in [Direction::Up, Direction::Down] {
                let config = Config {
                    sending,
                    direction,
                    ..Config::default()
                };
                assert!(check_far(&new, &config).is_ok());
                let near = sending == Sending::Write || direction == Direction::Up;
                assert_eq!(check_far(&old, &config).is_ok(), near, "{sending:?}");
            }
        }
    }
}
