//! Several addresses at an end: which are taken together, where a far side listens, how connections leave.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::link::Socket;
use crate::meeting::Dial;
use crate::reason::stays_unreachable;
use crate::{Near, Way, unpaced};
use serde::{Deserialize, Serialize};
use units::text::plain;

use super::job::CONNECT;
use super::operand::Operand;
use super::{Caller, Request};
use fault::Failure;
use sys::endpoint::{self, Endpoint};
use sys::threads;

/// How long a connection may take to be made where others may be made instead.
const CONNECT_BESIDE_OTHERS: Duration = Duration::from_secs(3);
/// How long an address that the far side offers may take to answer.
const OFFERED: Duration = Duration::from_secs(2);
/// Addresses at one end, at most.
const ADDRESSES_MOST: usize = 64;
/// How often another port is tried for that all addresses have.
const PORT_TRIES: usize = 16;
/// What stands for all addresses that the far side has.
const ALL: &str = "all";

/// A way as it is told to a far side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayTo {
    /// For the user.
    pub name: String,
    /// The address that connections leave from; the kernel's choice where none is said.
    pub from: Option<IpAddr>,
    /// Where to: the first that answers.
    pub to: Vec<SocketAddr>,
    /// Whoever is there takes blocks only.
    pub is_for_blocks_only: bool,
    /// Whoever is there has no port for datagrams.
    #[serde(default)]
    pub has_no_datagrams: bool,
}

impl WayTo {
    /// The only way, to the first of some addresses that answers.
    pub fn only(to: Vec<SocketAddr>) -> Vec<Self> {
        let name = "the far side".to_owned();
        vec![Self {
            name,
            from: None,
            to,
            is_for_blocks_only: false,
            has_no_datagrams: false,
        }]
    }
}

/// Ways that connections are made by.
pub(super) fn ways(all: Vec<WayTo>) -> Vec<Way> {
    let patience = patience(all.len());
    let way = |way: WayTo| {
        let near = way.to.first().copied().map(Near::towards);
        let dial = dialing(way.from, way.to.clone(), patience);
        way_of(&way, dial, near.unwrap_or_default())
    };
    all.into_iter().map(way).collect()
}

/// How long a connection may take to be made by one of so many ways.
pub const fn patience(ways: usize) -> Duration {
    match ways {
        1 => CONNECT,
        _ => CONNECT_BESIDE_OTHERS,
    }
}

/// A way that `dial` connects by.
pub fn way_of(way: &WayTo, dial: Dial, near: Near) -> Way {
    let mut made = Way::new(way.name.clone(), dial).with_near(near);
    // Of several addresses, connections find out which answers.
    let to = match way.to[..] {
        [to] => Some(to),
        _ => None,
    };
    made = made.with_datagrams(way.from, to);
    if way.has_no_datagrams {
        made = made.without_datagrams();
    }
    match way.is_for_blocks_only {
        true => made.for_blocks_only(),
        false => made,
    }
}

/// Connects to the first that answers, the next time beginning with it.
pub fn dialing(from: Option<IpAddr>, to: Vec<SocketAddr>, patience: Duration) -> Dial {
    let answered = AtomicUsize::new(0);
    Box::new(move || {
        let first = answered.load(Ordering::Relaxed);
        let mut failure: Option<io::Error> = None;
        for n in 0..to.len() {
            let number = (first + n) % to.len();
            match connect(from, to[number], patience) {
                Ok(socket) => {
                    answered.store(number, Ordering::Relaxed);
                    return Ok(Socket::Tcp(socket));
                }
                // Of several the one that may pass: it decides whether another try can help.
                Err(error) if failure.as_ref().is_none_or(stays_unreachable) => {
                    failure = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::AddrNotAvailable, "nowhere to connect to")
        }))
    })
}

/// Connects, and keeps off what is too much for a short path ([`unpaced`]).
pub(super) fn connect(
    from: Option<IpAddr>,
    to: SocketAddr,
    patience: Duration,
) -> io::Result<TcpStream> {
    let from = from.map(|from| {
        let usual = SocketAddr::from((from, 0));
        endpoint::own(usual).unwrap_or(usual)
    });
    // What is good on one link only is reached over the link that it is left by.
    let to = match from {
        Some(SocketAddr::V6(link)) if link.scope_id() != 0 => endpoint::scoped(to, link.scope_id()),
        _ => to,
    };
    let patience = units::Duration::from_ns(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
    let mut begun = None;
    let leaves = |socket: BorrowedFd<'_>| {
        begun = Some(unpaced::begin(socket));
        from.map_or(Ok(()), |from| sys::tcp::set_source(socket, from))
    };
    let mut sockets = sys::tcp::connect_many(to, 1, patience, leaves, || false)?;
    let socket = sockets
        .pop()
        .ok_or_else(|| io::Error::other("no connection"))?;
    if let Some(begun) = begun {
        begun.settle(socket.as_fd());
    }
    Ok(socket)
}

/// What was typed of addresses: of the far side's (or that it shall say all it has), and of this side's.
#[derive(Debug)]
pub struct Typed {
    /// Without a port; with the interface of this host that one of a link is reached by.
    pub far: Vec<SocketAddr>,
    /// All that the far side has.
    pub is_far_all: bool,
    /// Of this side.
    pub near: Vec<IpAddr>,
}

impl Typed {
    /// Reads `--addresses` and `--from-addresses`.
    ///
    /// # Errors
    /// What is no address and no name of any, or too much at once.
    pub fn of(request: &Request) -> Result<Self, Failure> {
        let is_far_all = request.addresses == [ALL];
        let far = match is_far_all {
            true => Vec::new(),
            false => found("--addresses", &request.addresses)?,
        };
        let near = found("--from-addresses", &request.from_addresses)?;
        let near = near.iter().map(SocketAddr::ip).collect();
        let typed = Self {
            far,
            is_far_all,
            near,
        };
        if typed.is_any() && request.through_ssh {
            return Err(Failure::usage(
                "--addresses and --from-addresses are for connections of their own; inside ssh there are none",
            ));
        }
        if is_far_all && request.reverse {
            return Err(Failure::usage(
                "--addresses all is for a far side that listens; with --reverse, say which",
            ));
        }
        Ok(typed)
    }

    /// Whether anything was typed.
    pub fn is_any(&self) -> bool {
        self.is_far_all || !self.far.is_empty() || !self.near.is_empty()
    }
}

/// Refuses what several addresses and hosts do not go with.
pub(super) fn check(request: &Request, from: &[Operand], to: &Operand) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::usage(text));
    let is_any = !request.addresses.is_empty() || !request.from_addresses.is_empty();
    if is_any && !from[0].is_far() && !to.is_far() {
        return usage("--addresses and --from-addresses are for copies between hosts");
    }
    let beside = from[0].beside();
    if from.iter().any(|operand| operand.beside() != beside) {
        return usage("all that is copied must be on the same hosts");
    }
    if beside.is_empty() && to.beside().is_empty() {
        return Ok(());
    }
    if !beside.is_empty() && to.is_far() {
        return usage("several hosts at the source are for a copy to this one; name one of them");
    }
    if !beside.is_empty() && (request.limit.is_some() || request.limit_from.is_some()) {
        return usage("--limit paces one sender; what is read by several hosts has several");
    }
    match is_any || request.reverse || request.through_ssh {
        true => usage(
            "several hosts are connected to each at its own address: --addresses, --from-addresses, --reverse \
             and --through-ssh are for one",
        ),
        false => Ok(()),
    }
}

/// Addresses of names that were typed, each once; all of a name that has several.
fn found(flag: &str, typed: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let usage = |text: String| Failure::usage(format!("{flag}: {text}"));
    let mut all: Vec<SocketAddr> = Vec::new();
    for name in typed {
        if name == ALL {
            return Err(usage(format!("'{ALL}' stands alone")));
        }
        let endpoint =
            Endpoint::parse(name).map_err(|wrong| usage(format!("'{name}': {wrong}")))?;
        if let Some(port) = endpoint.port() {
            return Err(usage(format!("'{name}': the port {port} is too much here")));
        }
        let found = match endpoint.resolve(0) {
            Ok(found) => found,
            Err(wrong) if wrong.kind() == io::ErrorKind::InvalidInput => {
                return Err(usage(wrong.to_string()));
            }
            Err(_) => Vec::new(),
        };
        if found.is_empty() {
            return Err(usage(format!("'{name}' is no address and has none")));
        }
        for address in found {
            let ip = address.ip();
            if ip.is_unspecified() || ip.is_multicast() {
                return Err(usage(format!("{ip} is no address of one host")));
            }
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }
    match all.len() > ADDRESSES_MOST {
        true => Err(usage(format!("more than {ADDRESSES_MOST}"))),
        false => Ok(all),
    }
}

/// Pairs of addresses, the first of one end with the first of the other and so on; the shorter list goes round. `to` are
/// those that listen.
pub fn pairs(from: &[IpAddr], to: &[Vec<SocketAddr>]) -> Vec<WayTo> {
    let count = from.len().max(to.len());
    let pair = |n: usize| {
        let from = (!from.is_empty()).then(|| from[n % from.len()]);
        let to = to.get(n % to.len().max(1)).cloned().unwrap_or_default();
        let there = to.first().map(|to| to.ip().to_string());
        let there = there.unwrap_or_else(|| "nowhere".to_owned());
        let name = match from {
            Some(from) => format!("{from} to {there}"),
            None => there,
        };
        WayTo {
            name,
            from,
            to,
            is_for_blocks_only: false,
            has_no_datagrams: false,
        }
    };
    (0..count).map(pair).collect()
}

/// Listens at several addresses, at the same port of each; what could not be had is told by `note`.
///
/// # Errors
/// Where none could be had.
pub fn listen_at(
    addresses: &[IpAddr],
    port: u16,
    note: &mut dyn FnMut(String),
) -> io::Result<Vec<TcpListener>> {
    let tries = if port == 0 { PORT_TRIES } else { 1 };
    let mut missing = Vec::new();
    let mut failure = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address to listen at");
    for _ in 0..tries {
        let (mut listeners, mut port) = (Vec::new(), port);
        let mut is_port_taken = false;
        missing.clear();
        for address in addresses.iter().take(ADDRESSES_MOST) {
            let at = SocketAddr::from((*address, port));
            match TcpListener::bind(endpoint::own(at).unwrap_or(at)) {
                Ok(listener) => {
                    port = listener.local_addr()?.port();
                    listeners.push(listener);
                }
                Err(error) => {
                    is_port_taken |= error.kind() == io::ErrorKind::AddrInUse;
                    missing.push(format!("cannot listen at {address}, port {port}: {error}"));
                    failure = error;
                }
            }
        }
        if !(listeners.is_empty() || is_port_taken && tries > 1) {
            missing.into_iter().for_each(note);
            return Ok(listeners);
        }
    }
    Err(failure)
}

/// Addresses of this host that others may reach, one of each interface, with its interface: `first`, and those of its IP
/// version on other interfaces.
pub(super) fn own(first: IpAddr) -> Vec<(IpAddr, String)> {
    let first = first.to_canonical();
    let all = sys::host::addresses();
    let of_first = all.iter().find(|(_, address)| *address == first);
    let of_first = of_first.map_or_else(String::new, |(name, _)| name.clone());
    let mut taken = BTreeSet::from([of_first.clone()]);
    let mut found = vec![(first, of_first)];
    for (name, address) in all {
        let is_usable = match address {
            IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
        };
        if is_usable && address.is_ipv4() == first.is_ipv4() && taken.insert(name.clone()) {
            found.push((address, name));
        }
    }
    found.truncate(ADDRESSES_MOST);
    found
}

/// Of what a far side offers, what answers from here; the others are told.
pub(super) fn that_answer(
    host: &str,
    offered: Vec<(SocketAddr, String)>,
    caller: &Caller,
) -> Vec<SocketAddr> {
    let answers = |at: SocketAddr| TcpStream::connect_timeout(&at, OFFERED).map(drop);
    let all: Vec<_> = thread::scope(|scope| {
        let ask = |at| threads::scoped(scope, "gp-asks", move || answers(at));
        let asked = |(at, name)| (at, name, ask(at));
        let asked: Vec<_> = offered
            .into_iter()
            .take(ADDRESSES_MOST)
            .map(asked)
            .collect();
        let told = asked.into_iter().map(|(at, name, asked)| {
            let panicked = |_| Err(io::Error::other("a thread panicked"));
            let answer = asked.and_then(|asked| asked.join().unwrap_or_else(panicked));
            (at, name, answer)
        });
        told.collect()
    });
    let (mut answering, mut words) = (Vec::new(), Vec::new());
    for (at, name, answer) in all {
        let name = plain(&name);
        match answer {
            Ok(()) => {
                words.push(format!("{} ({name})", at.ip()));
                answering.push(at);
            }
            Err(error) => caller.note(format_args!(
                "{host} has {} on {name}, which is not reached from here: {error}",
                at.ip()
            )),
        }
    }
    if answering.len() > 1 {
        let words = words.join(", ");
        caller.note(format_args!(
            "connections are spread over {words}: each is an interface of its own there and answers from here"
        ));
    }
    answering
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_goes_with_the_first_and_the_shorter_list_goes_round() {
        let near: Vec<IpAddr> = vec!["10.0.1.1".parse().unwrap(), "10.0.2.1".parse().unwrap()];
        let far: Vec<Vec<SocketAddr>> = ["10.0.1.2:7", "10.0.2.2:7", "10.0.3.2:7"]
            .iter()
            .map(|text| vec![text.parse().unwrap()])
            .collect();
        let names = |from: &[IpAddr], to: &[Vec<SocketAddr>]| -> Vec<String> {
            pairs(from, to).into_iter().map(|way| way.name).collect()
        };
        assert_eq!(names(&[], &far), ["10.0.1.2", "10.0.2.2", "10.0.3.2"]);
        assert_eq!(
            names(&near, &far),
            [
                "10.0.1.1 to 10.0.1.2",
                "10.0.2.1 to 10.0.2.2",
                "10.0.1.1 to 10.0.3.2"
            ]
        );
        assert_eq!(
            names(&near, &far[..1]),
            ["10.0.1.1 to 10.0.1.2", "10.0.2.1 to 10.0.1.2"]
        );
    }

    #[test]
    fn all_addresses_have_one_port_and_those_that_are_none_of_this_host_are_told() {
        let addresses: Vec<IpAddr> = ["127.0.0.1", "192.0.2.1", "127.0.0.2"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let mut told = Vec::new();
        let listeners = listen_at(&addresses, 0, &mut |text| told.push(text)).unwrap();
        let at: Vec<_> = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap())
            .collect();
        assert_eq!(at[0].ip(), addresses[0]);
        assert_eq!(at[1].ip(), addresses[2]);
        assert!(at.len() == 2 && at[0].port() == at[1].port());
        assert!(told.len() == 1 && told[0].contains("192.0.2.1"), "{told:?}");
        assert!(listen_at(&addresses[1..2], 0, &mut |_| {}).is_err());
    }

    #[test]
    fn over_loopback_connections_are_kept_off_the_bbr_of_a_host() {
        let Ok(host) = sys::netns::NetNs::create() else {
            eprintln!("skipped: no privilege to make namespaces");
            return;
        };
        let connected = host.run(|| {
            let mut netlink = sys::netlink::Netlink::open().unwrap();
            netlink.set_up("lo", None).unwrap();
            std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "bbr").ok()?;
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Some(connect(None, listener.local_addr().unwrap(), CONNECT).unwrap())
        });
        let Some(socket) = connected.unwrap() else {
            eprintln!("skipped: no BBR in a namespace");
            return;
        };
        let info = sys::tcp::tcp_info(socket.as_fd()).unwrap();
        // A machine that stood still meanwhile makes a longer path of it.
        let is_short = (1..500).contains(&info.min_rtt_us.min(info.rtt_us));
        let has = sys::tcp::congestion(socket.as_fd()).unwrap();
        assert_eq!(has != "bbr", is_short, "{has} {info:?}");
    }

    #[test]
    fn connections_leave_from_the_address_that_was_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let from = "127.0.0.3".parse().unwrap();
        let _socket = connect(Some(from), to, CONNECT).unwrap();
        let (_, who) = listener.accept().unwrap();
        assert_eq!(who.ip(), from);
        // None of this host.
        let wrong = "192.0.2.7".parse().unwrap();
        assert!(connect(Some(wrong), to, CONNECT).is_err());
    }
}
