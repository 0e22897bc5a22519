//! Connections that are split are no business of the machine's connection tracking.
//!
//! Both halves have the same addresses and ports, and tracking knows a connection by these: it would take one half's
//! packets for impossible ones of the other, which firewalls drop (`ct state invalid drop`) and NAT leaves alone. So
//! it sees of them no more than the first SYN. What passes unsplit it sees as ever.

use sys::nftables::{At, Chain, Expression, IpVersion, probe};

/// The chains for it; `taken_up` is the mark of what is for our sockets. None where the kernel's nftables knows nothing
/// of tracking.
pub(crate) fn chains(taken_up: u32) -> Vec<Chain> {
    use Expression as E;
    let lacking = probe(vec![E::Untracked]).is_err_and(|e| e.raw_os_error() == Some(ENOENT));
    if lacking {
        return Vec::new();
    }
    let chain = |name: &str, at, rules| Chain {
        name: name.into(),
        at,
        priority: PRIORITY,
        rules,
    };
    let ours = |about| vec![about, E::TransparentSocket, E::Untracked];
    vec![
        chain(
            "untracked-in",
            At::Prerouting,
            vec![
                // Most of all; the mark spares the search for the socket a second time.
                vec![
                    E::Tcp,
                    E::TcpFlags(SYN, 0),
                    E::TransparentSocket,
                    E::Untracked,
                    E::SetMark(taken_up),
                    E::Accept,
                ],
                // A SYN alone may be a new connection's, whose addresses an old one had.
                vec![
                    E::Tcp,
                    E::TcpFlags(SYN | ACK, SYN | ACK),
                    E::TransparentSocket,
                    E::Untracked,
                ],
                ours(E::Icmp(IpVersion::V4)),
                ours(E::Icmp(IpVersion::V6)),
            ],
        ),
        chain("untracked-out", At::Output, vec![ours(E::Tcp)]),
    ]
}

/// Between reassembly (-400) and iptables' raw (-300).
const PRIORITY: i32 = -301;
const SYN: u8 = 2;
const ACK: u8 = 16;
const ENOENT: i32 = 2;
