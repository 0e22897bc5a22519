//! The layout of a fabric file as TOML has it. What a value may be is checked later, by its place.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use spans::{Named, Spanned};
use units::{Bytes, Duration, Rate};

/// A quantity with its place.
pub(crate) type Of<T> = Spanned<Quantity<T>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFile {
    pub(crate) title: Spanned<String>,
    pub(crate) max_op_vls: Option<Spanned<u8>>,
    pub(crate) tier: Option<Spanned<String>>,
    pub(crate) ethernet: Option<Spanned<RawEthernet>>,
    pub(crate) host_kinds: Named<Spanned<RawHost>>,
    #[serde(default)]
    pub(crate) switch_kinds: Named<Spanned<RawSwitch>>,
    pub(crate) cables: Named<Spanned<RawCable>>,
    pub(crate) topology: Option<Spanned<RawTopology>>,
    #[serde(default)]
    pub(crate) hosts: Named<Spanned<String>>,
    #[serde(default)]
    pub(crate) switches: Named<Spanned<String>>,
    #[serde(default)]
    pub(crate) links: Named<Spanned<RawLink>>,
    pub(crate) traffic: Spanned<RawTraffic>,
    #[serde(default)]
    pub(crate) fault: Vec<Spanned<RawFault>>,
    pub(crate) recovery: Option<Spanned<RawRecovery>>,
    #[serde(default)]
    pub(crate) cases: Vec<Spanned<RawCase>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawHost {
    pub(crate) speed: Spanned<String>,
    pub(crate) width: Option<u8>,
    pub(crate) buffer: Of<Bytes>,
    pub(crate) virtual_lanes: Option<u8>,
    pub(crate) credit: Option<Of<Duration>>,
    pub(crate) post: Option<Of<Duration>>,
    pub(crate) engine: Option<Of<Duration>>,
    pub(crate) engine_ud: Option<Of<Duration>>,
    pub(crate) prefetch: Option<u32>,
    pub(crate) bus: Option<Of<Rate>>,
    pub(crate) bus_burst: Option<Of<Bytes>>,
    pub(crate) bus_cost: Option<Of<Duration>>,
    pub(crate) bus_latency: Option<Of<Duration>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSwitch {
    pub(crate) speed: Spanned<String>,
    pub(crate) width: Option<u8>,
    pub(crate) ports: u8,
    pub(crate) buffer: Of<Bytes>,
    pub(crate) virtual_lanes: Option<u8>,
    pub(crate) credit: Option<Of<Duration>>,
    pub(crate) latency: Of<Duration>,
    #[serde(default)]
    pub(crate) store_and_forward: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCable {
    pub(crate) kind: RawCableKind,
    pub(crate) length: Spanned<String>,
    pub(crate) rated: Option<Spanned<String>>,
    pub(crate) electronics: Option<Of<Duration>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawCableKind {
    Copper,
    Fibre,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLink {
    pub(crate) between: Spanned<[String; 2]>,
    pub(crate) cable: Spanned<String>,
}

/// A link that fails.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFault {
    pub(crate) link: Spanned<String>,
    pub(crate) at: Of<Duration>,
    pub(crate) until: Option<Of<Duration>>,
}

/// What is done about links that fail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRecovery {
    pub(crate) retry: Option<Of<Duration>>,
    pub(crate) retries: Option<Spanned<u32>>,
    pub(crate) reroute: Option<Of<Duration>>,
}

/// Links are Ethernet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEthernet {
    pub(crate) control: Spanned<String>,
    pub(crate) retry: Option<Of<Duration>>,
    pub(crate) xoff: Option<Of<Bytes>>,
    pub(crate) xon: Option<Of<Bytes>>,
    pub(crate) respond: Option<Of<Duration>>,
}

/// A regular fabric instead of names of parts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTopology {
    pub(crate) kind: Spanned<String>,
    pub(crate) host: Spanned<String>,
    pub(crate) chip: Spanned<String>,
    pub(crate) cable: Spanned<String>,
    pub(crate) inner_cable: Option<Spanned<String>>,
    pub(crate) hosts: Option<Spanned<u32>>,
    pub(crate) file: Option<Spanned<String>>,
    pub(crate) lfts: Option<Spanned<String>>,
    pub(crate) outer_cable: Option<Spanned<String>>,
    pub(crate) levels: Option<Spanned<u32>>,
    pub(crate) ports: Option<Spanned<u32>>,
    pub(crate) leaves: Option<Spanned<u32>>,
    pub(crate) leaf_hosts: Option<Spanned<u32>>,
    pub(crate) spines: Option<Spanned<u32>>,
    pub(crate) traces: Option<Spanned<u32>>,
    pub(crate) directors: Option<Spanned<u32>>,
    pub(crate) up: Option<Spanned<u32>>,
    pub(crate) boxes: Option<Spanned<u32>>,
    pub(crate) trunks: Option<Spanned<u32>>,
    pub(crate) switches: Option<Spanned<u32>>,
    pub(crate) global: Option<Spanned<u32>>,
    pub(crate) groups: Option<Spanned<u32>>,
    pub(crate) sizes: Option<Spanned<Vec<u32>>>,
    pub(crate) placement: Option<Spanned<String>>,
    pub(crate) routing: Option<Spanned<String>>,
    pub(crate) lids: Option<Spanned<String>>,
    pub(crate) ties: Option<Spanned<String>>,
    pub(crate) selection: Option<Spanned<String>>,
    pub(crate) flowlet_gap: Option<Of<Duration>>,
    pub(crate) dca: Option<Spanned<RawDca>>,
    pub(crate) queueing: Option<Spanned<String>>,
    pub(crate) seed: Option<Spanned<u64>>,
}

/// Dynamic congestion avoidance.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawDca {
    pub(crate) period: Option<Of<Duration>>,
    pub(crate) threshold: Option<Of<Duration>>,
    pub(crate) hold: Option<Of<Duration>>,
    pub(crate) paths: Option<Spanned<u32>>,
    pub(crate) mean_of: Option<Spanned<u32>>,
    pub(crate) lost_after: Option<Of<Duration>>,
    pub(crate) venture: Option<Spanned<u32>>,
    pub(crate) clock_offset: Option<Of<Duration>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTraffic {
    pub(crate) trace: Option<Spanned<String>>,
    pub(crate) from: Option<Spanned<String>>,
    pub(crate) to: Option<Spanned<String>>,
    pub(crate) pattern: Option<Spanned<String>>,
    pub(crate) nodes: Option<Spanned<Vec<u32>>>,
    pub(crate) message: Option<Of<Bytes>>,
    pub(crate) transport: Option<Spanned<RawTransport>>,
    pub(crate) ordering: Option<Spanned<String>>,
    pub(crate) window: Option<Of<Bytes>>,
    pub(crate) polled_peers: Option<Spanned<u32>>,
    pub(crate) unpolled: Option<Of<Duration>>,
    pub(crate) mpi: Option<Spanned<RawMpi>>,
    pub(crate) algorithm: Option<Spanned<String>>,
    pub(crate) steps: Option<Spanned<u32>>,
    pub(crate) ranks: Option<Spanned<String>>,
    pub(crate) seed: Option<Spanned<u64>>,
    pub(crate) seeds: Option<Spanned<u32>>,
    #[serde(default)]
    pub(crate) jobs: Vec<Spanned<RawJob>>,
    pub(crate) files: Option<Spanned<RawFiles>>,
    pub(crate) transports: Option<Vec<RawTransport>>,
    pub(crate) sizes: Option<Spanned<[Quantity<Bytes>; 2]>>,
    pub(crate) latency_to: Option<Of<Bytes>>,
    pub(crate) mtu: Option<Spanned<u32>>,
    pub(crate) messages: Option<Spanned<u32>>,
    pub(crate) depth: Option<Spanned<u32>>,
    pub(crate) cores: Option<Spanned<u32>>,
}

/// What MPI does with messages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMpi {
    pub(crate) eager: Of<Bytes>,
    pub(crate) copy: Option<Of<Rate>>,
}

/// One of several jobs that share the fabric.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawJob {
    pub(crate) name: Spanned<String>,
    pub(crate) pattern: Spanned<String>,
    pub(crate) nodes: Spanned<u32>,
    pub(crate) message: Of<Bytes>,
    pub(crate) algorithm: Option<Spanned<String>>,
    pub(crate) steps: Option<Spanned<u32>>,
}

/// File traffic in the background of the jobs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFiles {
    pub(crate) servers: Spanned<u32>,
    pub(crate) clients: Spanned<u32>,
    pub(crate) message: Of<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawTransport {
    Rc,
    Uc,
    Ud,
    Iwarp,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCase {
    pub(crate) name: Spanned<String>,
    pub(crate) max_op_vls: Option<Spanned<u8>>,
    /// Kinds by host.
    #[serde(default)]
    pub(crate) hosts: Named<Spanned<String>>,
    /// Kinds by switch.
    #[serde(default)]
    pub(crate) switches: Named<Spanned<String>>,
    /// Cables by link.
    #[serde(default)]
    pub(crate) cables: Named<Spanned<String>>,
    pub(crate) cores: Option<Spanned<u32>>,
    pub(crate) transports: Option<Vec<RawTransport>>,
    /// Values by the dotted key of the file that they stand for.
    #[serde(default)]
    pub(crate) set: Named<Spanned<serde::de::IgnoredAny>>,
}

/// A text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity<T>(pub(crate) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(std::marker::PhantomData<T>);
        impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
            type Value = Quantity<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text with a number and its unit")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(Quantity).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text(std::marker::PhantomData))
    }
}
