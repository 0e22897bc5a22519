//! Kernel calls: namespaces, netlink, packet sockets, socket options, timestamps.
//!
//! All unsafe code of the project lives in this crate. Each wrapper names the man page or kernel
//! file it follows, and its types keep the invariants that the call needs.

#![allow(
    unsafe_code,
    reason = "this is the one crate that talks to the kernel directly"
)]

pub mod append;
pub mod attribute;
pub mod bpf;
pub mod child;
pub mod clock;
mod cmsg;
pub mod control;
pub mod cpu;
pub mod endpoint;
pub mod ethtool;
pub mod firewall;
pub mod folder;
pub mod host;
pub mod interface;
pub mod legacy;
pub mod map;
pub mod memory;
pub mod mptcp;
pub mod netlink;
pub mod netns;
pub mod nfnetlink;
pub mod nfqueue;
pub mod nftables;
pub mod owners;
pub mod packet;
pub mod pci;
pub mod privilege;
pub mod qdisc;
pub mod random;
pub mod ring;
pub mod sched;
pub mod signal;
pub mod simd;
pub mod sock_diag;
pub mod stamp;
pub mod tcp;
pub mod terminal;
pub mod threads;
pub mod transparent;
pub mod tunable;
pub mod udp;
pub mod uplink;
pub mod userns;
pub mod verbs;
pub mod zerocopy;
