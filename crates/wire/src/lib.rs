//! What bytes mean: views and representations of frames, of virtio_net_hdr and of the kernel's
//! tcp_info.
//!
//! A protocol is a module with a zero-copy view `Packet<T>` (`Frame<T>` for Ethernet) over the
//! bytes and a `Repr` that says what they mean, with `parse` and `emit`. A view is made by
//! `new_checked` only; after that no accessor panics, whatever the bytes are and whatever a setter
//! did to them. [`train`] reads the super-frames that kernels hand over (GSO) and cuts them into
//! what the wire would carry.
//!
//! [`capture`] reads captures, and [`segment`] takes from a captured packet what an analysis of
//! connections needs, through other link layers and one tunnel as well.
//!
//! Left out: reassembly of IP fragments.

#![forbid(unsafe_code)]

pub mod arp;
mod bytes;
pub mod capture;
pub mod checksum;
pub mod classify;
pub mod ethernet;
pub mod filter;
pub mod fragment;
pub mod icmp;
pub mod inet_diag;
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
    /// IPv4 within IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 within IP.
    pub const IPV6: u8 = 41;
    /// Generic routing encapsulation.
    pub const GRE: u8 = 47;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}
