//! What is known of a path, and the payload rate that follows from it.

use units::{Bytes, Rate};

use crate::models::{self, IpVersion};

/// What is known of the path between the hosts, from a path file or from elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathKnowledge {
    /// Slowest rate on the wire.
    pub bottleneck: Option<Rate>,
    /// TCP payload per second that it can carry; worked out from rate and MTU when absent.
    pub achievable: Option<Rate>,
    /// MTU in bytes.
    pub mtu_bytes: Option<u32>,
    /// IP version of the connections.
    pub ip_version: IpVersion,
    /// Size of the queue in front of the bottleneck.
    pub queue: Option<Bytes>,
}

impl PathKnowledge {
    /// TCP payload per second of the bottleneck: as given, else from its rate and the MTU
    /// (1500 bytes when that is not known either).
    pub fn achievable_rate(&self) -> Option<Rate> {
        let computed = || self.bottleneck.map(|rate| self.achievable_of(rate));
        self.achievable.or_else(computed)
    }

    /// TCP payload per second of a wire rate with this path's MTU.
    pub fn achievable_of(&self, rate: Rate) -> Rate {
        models::achievable(
            rate,
            self.mtu_bytes.unwrap_or(ETHERNET_MTU_BYTES),
            self.ip_version,
            true,
        )
    }

    /// Payload of a full segment with timestamps, from the MTU.
    pub fn mss_bytes(&self) -> u64 {
        let mtu = self.mtu_bytes.unwrap_or(ETHERNET_MTU_BYTES);
        u64::from(models::segment_payload_bytes(mtu, self.ip_version, true))
    }
}

/// IEEE 802.3: payload of a standard frame.
const ETHERNET_MTU_BYTES: u32 = 1_500;
