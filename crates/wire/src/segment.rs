//! A TCP segment of a capture in the few fields that an analysis of connections needs.
//!
//! A captured packet may be a super-packet of many segments (TSO, GRO), and may be cut to its
//! headers: lengths are those that the IP header or the capture's record states, never those of the
//! bytes at hand.
//!
//! [`decode`] finds the segment in a captured packet: below a link layer and its tags, behind IP's
//! options and extension headers, within tunnels. [`Reassembly`] puts fragments together.
//! Left out: whatever is encrypted or compressed, and fragments of tunnels' own.
//!
//! Reading: RFC 9293 section 3.1, RFC 7323 (window scale, timestamps), RFC 2018 (SACK), RFC 3168
//! (ECN).

mod decode;
mod link;
mod reassembly;

use crate::tcp::{Flags, SackBlocks};

pub use decode::Decoded;
pub use link::decode;
pub use reassembly::{FragmentCounts, Reassembly};

/// Two endpoints, the lower first, so that both directions have one key. IPv4 addresses are mapped
/// ones (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Addresses of the lower and the higher endpoint.
    pub addresses: [[u8; 16]; 2],
    /// Their ports.
    pub ports: [u16; 2],
}

impl FlowKey {
    /// The key of what goes from `source` to `destination`, addresses with ports, and which of the
    /// two sent it: [`Segment::from`]. One endpoint talking to itself is the lower one.
    #[inline]
    pub fn of(source: ([u8; 16], u16), destination: ([u8; 16], u16)) -> (Self, u8) {
        let number = |(address, port)| (u128::from_be_bytes(address), port);
        let from = number(source) > number(destination);
        let (low, high) = if from {
            (destination, source)
        } else {
            (source, destination)
        };
        let key = Self {
            addresses: [low.0, high.0],
            ports: [low.1, high.1],
        };
        (key, u8::from(from))
    }
}

/// One segment, or one super-packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The connection's endpoints.
    pub flow: FlowKey,
    /// 0: the lower endpoint sent it; 1: the higher one.
    pub from: u8,
    /// Sequence number of the first byte (of the SYN, where it is one).
    pub sequence: u32,
    /// Acknowledgment number; counts where `flags` has ACK.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: Flags,
    /// Window as the header has it, before its scale.
    pub window: u16,
    /// Payload that was sent, whatever part of it was captured. One segment has 65,495 B at most, a
    /// super-packet may have more (BIG TCP).
    pub payload_bytes: u32,
    /// Bytes of the IP packet, header included.
    pub ip_bytes: u32,
    /// ECN field of the IP header, 0..=3.
    pub ecn: u8,
    /// Hops left.
    pub ttl: u8,
    /// Identification of the IPv4 header; zero for IPv6.
    pub ip_id: u16,
    /// Timestamps option: the sender's clock, and the peer's as echoed.
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks, the latest arrival first.
    pub sack: SackBlocks,
    /// What only a SYN tells.
    pub syn: SynOptions,
    /// The capture cut the header: options may be missing.
    pub options_cut: bool,
}

/// Options that count in a SYN only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// Largest segment that the sender takes, without options.
    pub mss: Option<u16>,
    /// Shift of its window in all later segments, as stated (RFC 7323 section 2.3 takes more than
    /// 14 as 14).
    pub window_scale: Option<u8>,
    /// It understands SACK.
    pub sack_permitted: bool,
}
