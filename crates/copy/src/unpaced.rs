//! No pacing over the shortest paths.
//!
//! BBR lets a timer say when each burst leaves. Over a path without length a copy had 11,000 such timers a second, which took a
//! quarter of two virtual processors; and a loss is made good there at once, whatever the congestion control. Linux does not
//! take pacing back from a connection that once had it (`sk_pacing_status`, net/ipv4/tcp_cong.c). So where a host's own
//! congestion control is BBR, connections begin with another, and have the host's own as soon as their path shows to be longer.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use crate::link::{Socket, Which};
use crate::meeting::tcp_info;

/// The shortest round trip over which the host's own congestion control is used.
const SHORTEST: Duration = Duration::from_micros(500);
/// What does not pace, the best first; every host allows the last.
const INSTEAD: [&str; 2] = ["cubic", "reno"];

/// The host's own congestion control, where that is one that paces.
fn own() -> Option<String> {
    sys::host::congestion_default().filter(|name| name.starts_with("bbr"))
}

/// Has a socket begin without pacing: one that is not connected yet, or one that listens, for the connections that it takes.
/// [`crate::meeting::Meeting`] sees to the rest.
pub fn begin(socket: BorrowedFd<'_>) {
    if own().is_some() {
        // Without another it begins with the host's own.
        let _ = INSTEAD
            .iter()
            .find(|name| sys::tcp::set_congestion(socket, name).is_ok());
    }
}

/// Gives a connection back what the host has of itself, unless it is a stream over one of the shortest paths.
pub(crate) fn settle(socket: &Socket, which: Which) {
    let Socket::Tcp(tcp) = socket else { return };
    let is_stream = matches!(which, Which::Blocks(_));
    if let Some(own) = own()
        && !(is_stream && is_shortest(socket))
        && sys::tcp::congestion(tcp.as_fd()).is_ok_and(|has| has != own)
    {
        let _ = sys::tcp::set_congestion(tcp.as_fd(), &own);
    }
}

/// The congestion control that a stream has over one of the shortest paths and the host's own, where these are two.
pub(crate) fn instead(socket: &Socket) -> Option<(String, String)> {
    let Socket::Tcp(tcp) = socket else {
        return None;
    };
    let own = own().filter(|_| is_shortest(socket))?;
    let has = sys::tcp::congestion(tcp.as_fd()).ok()?;
    (has != own).then_some((has, own))
}

fn is_shortest(socket: &Socket) -> bool {
    tcp_info(socket).is_some_and(|info| is_so_short(info.min_rtt_us.min(info.rtt_us)))
}

fn is_so_short(round_trip_us: u64) -> bool {
    Duration::from_micros(round_trip_us) < SHORTEST
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, TcpListener};

    use sys::netlink::Netlink;
    use sys::netns::NetNs;

    use super::*;

    /// Shows two ends of a connection over loopback, begun here, on a host that has `own` for congestion control.
    fn on_a_host(own: &str, see: impl FnOnce(&[Socket; 2]) + Send) {
        let Ok(host) = NetNs::create() else {
            eprintln!("skipped: no privilege to make namespaces");
            return;
        };
        let looked = host.run(|| {
            Netlink::open().unwrap().set_up("lo", None).unwrap();
            if fs::write("/proc/sys/net/ipv4/tcp_congestion_control", own).is_err() {
                eprintln!("skipped: no {own} in a namespace");
                return;
            }
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            begin(listener.as_fd());
            let to = listener.local_addr().unwrap();
            let prepare = |socket: BorrowedFd<'_>| {
                begin(socket);
                Ok(())
            };
            let patience = units::Duration::from_s(10);
            let dialled = sys::tcp::connect_many(to, 1, patience, prepare, || false);
            let accepted = listener.accept().unwrap().0;
            see(&[dialled.unwrap().remove(0), accepted].map(Socket::Tcp));
        });
        looked.unwrap();
    }

    fn has(socket: &Socket) -> String {
        sys::tcp::congestion(socket.as_fd()).unwrap()
    }

    #[test]
    fn over_the_shortest_paths_streams_keep_off_bbr_and_messages_have_it() {
        on_a_host("bbr", |pair| {
            for socket in pair {
                let begun = has(socket);
                assert!(INSTEAD.contains(&&begun[..]), "{begun}");
                settle(socket, Which::Blocks(0));
                assert_eq!(has(socket), begun);
                assert_eq!(instead(socket), Some((begun, "bbr".to_owned())));
                settle(socket, Which::FromSource);
                assert_eq!(has(socket), "bbr");
                assert_eq!(instead(socket), None);
            }
        });
    }

    #[test]
    fn what_does_not_pace_is_left_as_it_is() {
        on_a_host("reno", |pair| {
            for socket in pair {
                assert_eq!(has(socket), "reno");
                settle(socket, Which::Blocks(0));
                assert_eq!(has(socket), "reno");
                assert_eq!(instead(socket), None);
            }
        });
    }

    #[test]
    fn half_a_millisecond_is_not_so_short() {
        assert!(is_so_short(499));
        assert!(!is_so_short(500));
    }
}
