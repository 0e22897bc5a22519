//! No BBR over the shortest paths, where it is only what the host has by itself.
//!
//! BBR lets a timer say when each burst leaves. Over a path without length a copy had 11,000 such timers a second, which took a
//! fifth of its CPU time, and there is no queue for them to keep empty. Linux does not take pacing back from a
//! connection that once had it (`sk_pacing_status`, set by net/ipv4/tcp_bbr.c). So where a host's own congestion control is BBR,
//! connections begin with another, and have the host's own as soon as they are made, if their path shows to be longer then, or
//! later, where losses hold them (`engine::tune`).

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use wire::tcp_info::TcpInfo;

use crate::link::Socket;

/// The shortest round trip over which the host's own congestion control is used.
const SHORTEST: Duration = Duration::from_micros(500);
/// What does not pace by itself, the best first.
const INSTEAD: [&str; 2] = ["cubic", "reno"];
/// The host's own congestion control, once a connection was kept off it.
static OWN: OnceLock<String> = OnceLock::new();

/// What a socket had before [`begin`], and has since; nothing where that is the same.
#[derive(Debug)]
pub struct Begun(Option<(String, &'static str)>);

/// Keeps a socket off BBR, if that is what it was made with: one that is not connected yet, or one that listens, for the
/// connections that it takes. [`Begun::settle`] has to follow on each connection.
pub fn begin(socket: BorrowedFd<'_>) -> Begun {
    let own = sys::tcp::congestion(socket)
        .ok()
        .filter(|own| own.starts_with("bbr"))
        // Else it could not be given back.
        .filter(|own| sys::host::congestion_choosable().contains(own));
    Begun(own.and_then(|own| {
        let set = |name: &&str| sys::tcp::set_congestion(socket, name).is_ok();
        Some((own, INSTEAD.into_iter().find(set)?))
    }))
}

impl Begun {
    /// Gives a connection that was made just now the host's own back, unless its path is one of the shortest, or somebody else
    /// chose for it meanwhile.
    pub fn settle(&self, socket: BorrowedFd<'_>) {
        self.settle_over(socket, sys::tcp::tcp_info(socket).ok());
    }

    fn settle_over(&self, socket: BorrowedFd<'_>, path: Option<TcpInfo>) {
        let Self(Some((own, instead))) = self else {
            return;
        };
        if sys::tcp::congestion(socket).is_ok_and(|has| has == *instead) {
            if path.is_some_and(|path| is_shortest(&path)) {
                OWN.get_or_init(|| own.clone());
            } else {
                let _ = sys::tcp::set_congestion(socket, own);
            }
        }
    }
}

/// Whether any connection of this process was kept off it.
pub(crate) fn has_kept_off() -> bool {
    OWN.get().is_some()
}

/// The congestion control that a stream has and the one that it was kept off.
pub(crate) fn kept_off(socket: &Socket) -> Option<(String, &'static str)> {
    let own = OWN.get()?;
    let Socket::Tcp(tcp) = socket else {
        return None;
    };
    let is_short = sys::tcp::tcp_info(tcp.as_fd()).is_ok_and(|path| is_shortest(&path));
    let has = sys::tcp::congestion(tcp.as_fd()).ok()?;
    (is_short && INSTEAD.contains(&&has[..])).then_some((has, own))
}

/// Gives a stream what it was kept off; what that is.
pub(crate) fn give_back(socket: &Socket) -> Option<&'static str> {
    let (_, own) = kept_off(socket)?;
    sys::tcp::set_congestion(socket.as_fd(), own).ok()?;
    Some(own)
}

fn is_shortest(path: &TcpInfo) -> bool {
    // Nothing was measured where a SYN was lost.
    let shortest = path.min_rtt_us.min(path.rtt_us);
    shortest > 0 && Duration::from_micros(shortest) < SHORTEST
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, TcpListener};

    use sys::netlink::Netlink;
    use sys::netns::NetNs;

    use super::*;

    /// What `work` comes to on a host that has `own` for congestion control, and loopback; `None` where there is none.
    pub(crate) fn on_a_host_with<T: Send>(own: &str, work: impl FnOnce() -> T + Send) -> Option<T> {
        let Ok(host) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return None;
        };
        let done = host.run(|| {
            Netlink::open().unwrap().set_up("lo", None).unwrap();
            if fs::write("/proc/sys/net/ipv4/tcp_congestion_control", own).is_err() {
                testing::skipped(format_args!("no {own} in a namespace"));
                return None;
            }
            Some(work())
        });
        done.unwrap()
    }

    /// Shows two ends of a connection over loopback there, both begun and not settled.
    fn on_a_host(own: &str, see: impl FnOnce([(&Begun, &Socket); 2]) + Send) {
        on_a_host_with(own, || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let listens = begin(listener.as_fd());
            let to = listener.local_addr().unwrap();
            let mut dials = None;
            let prepare = |socket: BorrowedFd<'_>| {
                dials = Some(begin(socket));
                Ok(())
            };
            let patience = units::Duration::from_s(10);
            let dialled = sys::tcp::connect_many(to, 1, patience, prepare, || false);
            let dialled = Socket::Tcp(dialled.unwrap().remove(0));
            let accepted = Socket::Tcp(listener.accept().unwrap().0);
            see([(&dials.unwrap(), &dialled), (&listens, &accepted)]);
        });
    }

    fn has(socket: &Socket) -> String {
        sys::tcp::congestion(socket.as_fd()).unwrap()
    }

    fn path(us: u64) -> Option<TcpInfo> {
        Some(TcpInfo {
            rtt_us: us,
            min_rtt_us: us,
            ..TcpInfo::default()
        })
    }

    #[test]
    fn over_the_shortest_paths_connections_keep_off_bbr_until_it_is_given_back() {
        on_a_host("bbr", |ends| {
            for (begun, socket) in ends {
                let kept = has(socket);
                assert!(INSTEAD.contains(&&kept[..]), "{kept}");
                begun.settle_over(socket.as_fd(), path(499));
                assert_eq!(has(socket), kept);
                let real = sys::tcp::tcp_info(socket.as_fd()).unwrap();
                if is_shortest(&real) {
                    assert_eq!(kept_off(socket), Some((kept, "bbr")));
                    assert_eq!(give_back(socket), Some("bbr"));
                    assert_eq!(has(socket), "bbr");
                }
                assert_eq!(give_back(socket), None);
            }
        });
    }

    #[test]
    fn longer_paths_and_those_of_which_nothing_is_known_have_the_hosts_own() {
        for us in [Some(500), Some(0), None] {
            on_a_host("bbr", |ends| {
                for (begun, socket) in ends {
                    begun.settle_over(socket.as_fd(), us.and_then(path));
                    assert_eq!(has(socket), "bbr", "{us:?}");
                }
            });
        }
    }

    #[test]
    fn what_somebody_else_chose_stays() {
        on_a_host("bbr", |ends| {
            for (begun, socket) in ends {
                let other = INSTEAD.into_iter().find(|name| {
                    *name != has(socket) && sys::tcp::set_congestion(socket.as_fd(), name).is_ok()
                });
                begun.settle_over(socket.as_fd(), path(500));
                assert_eq!(has(socket), other.unwrap_or("bbr"));
            }
        });
        on_a_host("reno", |ends| {
            for (begun, socket) in ends {
                assert!(begun.0.is_none());
                begun.settle_over(socket.as_fd(), path(499));
                assert_eq!(has(socket), "reno");
            }
        });
    }
}
