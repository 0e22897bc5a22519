//! What bytes mean: views and representations of frames, of virtio_net_hdr and of the kernel's
//! tcp_info.
//!
//! A protocol is a module with a zero-copy view `Packet<T>` (`Frame<T>` for Ethernet) over the
//! bytes and a `Repr` that says what they mean, with `parse` and `emit`. A view is made by
//! `new_checked` only; after that no accessor panics, whatever the bytes are and whatever a setter
//! did to them. [`train`] reads the super-frames that kernels hand over (GSO) and cuts them into
//! what the wire would carry.
//!
//! Left out: reassembly of IP fragments, tunnels, link layers other than Ethernet.

#![forbid(unsafe_code)]

pub mod arp;
mod bytes;
pub mod checksum;
pub mod classify;
pub mod ethernet;
pub mod filter;
pub mod fragment;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod pcap;
pub mod pcapng;
pub mod rewrite;
pub mod segment;
pub mod stamp;
pub mod tcp;
pub mod tcp_info;
pub mod train;
pub mod udp;
pub mod virtio;

use std::fmt;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before the header or the length that it states.
    Truncated,
    /// A field contradicts the protocol: version, header length.
    Malformed,
    /// The buffer to write to is shorter than what is to be written.
    NoRoom,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the packet is cut short",
            Self::Malformed => "a header field contradicts the protocol",
            Self::NoRoom => "the buffer is too short for the packet",
        })
    }
}

impl std::error::Error for Error {}

/// IP protocol numbers that this crate knows, as in IANA's "Assigned Internet Protocol Numbers".
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}
