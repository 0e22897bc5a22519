//! Sockets that speak with others' addresses, and the routing that brings others' packets to them.
//!
//! A transparent proxy accepts connections that were meant for the server, and opens connections that
//! seem to come from the client. Both need IP_TRANSPARENT. Packets for such addresses are not ours by the
//! routing tables, so those with a mark are looked up in a table in which every address is local.
//!
//! Also urgent data: the one byte that neither read(2) nor splice(2) carries.
//!
//! Sources: ip(7), tcp(7), sockatmark(3), Linux Documentation/networking/tproxy.rst.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::RuleMessage;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use units::Bytes;

use crate::netlink::{ByMark, Netlink, family as netlink_family};
use crate::tcp::{family, getsockopt, setsockopt};

/// How marked packets become local: a rule and a table with one route, for each version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diversion {
    /// Mark of the packets, all 32 bits.
    pub mark: u32,
    /// Routing table, not used by anybody else.
    pub table: u32,
    /// Place of the rule among others: lower ones are asked first.
    pub priority: u32,
}

impl Diversion {
    /// Puts rule and route in place for one version of IP: that of `any`, which is all zeros.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN, `EEXIST` when it is in place, `ENETDOWN` while lo is down,
    /// `EAFNOSUPPORT` in a kernel without this version or without policy routing.
    pub fn add(self, netlink: &mut Netlink, any: IpAddr) -> io::Result<()> {
        let index = netlink.index_of("lo")?;
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let rule = RouteNetlinkMessage::NewRule(self.rule(any));
        netlink.request(rule, flags)?;
        let route = RouteNetlinkMessage::NewRoute(self.route(any, index));
        let added = netlink.request(route, flags);
        if added.is_err() {
            let _ = netlink.request(RouteNetlinkMessage::DelRule(self.rule(any)), 0);
        }
        added.map(drop)
    }

    /// Takes away what is there of it.
    pub fn remove_all(self, netlink: &mut Netlink, any: IpAddr) {
        let Ok(index) = netlink.index_of("lo") else {
            return;
        };
        // Rules may be there several times.
        let rule = || RouteNetlinkMessage::DelRule(self.rule(any));
        while netlink.request(rule(), 0).is_ok() {}
        let route = RouteNetlinkMessage::DelRoute(self.route(any, index));
        let _ = netlink.request(route, 0);
    }

    fn rule(self, any: IpAddr) -> RuleMessage {
        let by_mark = ByMark {
            mark: self.mark,
            table: self.table,
            priority: self.priority,
        };
        by_mark.rule(any)
    }

    fn route(self, any: IpAddr, lo: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = netlink_family(any);
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Host;
        message.header.kind = RouteType::Local;
        message.attributes = vec![RouteAttribute::Oif(lo), RouteAttribute::Table(self.table)];
        message
    }
}

/// The address of all zeros of each version.
pub const ANY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
];

/// A listening socket to which the kernel may give connections that were meant for others. It does not
/// block.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN; otherwise as bind(2) and listen(2).
pub fn listen(
    addr: SocketAddr,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<TcpListener> {
    use std::os::fd::AsFd;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family(addr), SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    set_transparent(fd.as_fd(), addr)?;
    prepare(fd.as_fd())?;
    rustix::net::bind(&fd, &addr)?;
    // The kernel cuts it at net.core.somaxconn.
    rustix::net::listen(&fd, i32::MAX)?;
    Ok(TcpListener::from(fd))
}

/// Somebody who has connected, as a socket that does not block, and their address; `None` when nobody has.
///
/// # Errors
/// As accept(2).
pub fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::acceptfrom_with(listener, flags) {
        Ok((fd, from)) => {
            let from = from.and_then(|any| SocketAddr::try_from(any).ok());
            let from = from.ok_or(io::ErrorKind::InvalidData)?;
            Ok(Some((TcpStream::from(fd), from)))
        }
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Where the peer of an accepted connection connected to: the address before the kernel's NAT, where it redirected
/// (`SO_ORIGINAL_DST`, linux/netfilter_ipv4.h and netfilter_ipv6/ip6_tables.h), otherwise that of the socket.
///
/// # Errors
/// As getsockname(2).
pub fn meant_for(accepted: &TcpStream) -> io::Result<SocketAddr> {
    use std::os::fd::AsFd;
    const SO_ORIGINAL_DST: libc::c_int = 80;
    let local = accepted.local_addr()?;
    let level = match local.ip().to_canonical() {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    };
    // A sockaddr_in or sockaddr_in6.
    let mut raw = [0; 28];
    let Ok(length) = getsockopt(accepted.as_fd(), level, SO_ORIGINAL_DST, &mut raw) else {
        return Ok(local);
    };
    let port = u16::from_be_bytes([raw[2], raw[3]]);
    Ok(match (level, length) {
        (libc::IPPROTO_IP, 16..) => (Ipv4Addr::from([raw[4], raw[5], raw[6], raw[7]]), port).into(),
        (libc::IPPROTO_IPV6, 28) => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&raw[8..24]);
            (Ipv6Addr::from(octets), port).into()
        }
        _ => local,
    })
}

/// Begins to connect to `to` as if from `from`, which need not be an address of ours; port 0 lets the
/// kernel choose when it knows both ends. `prepare` sets options before the SYN.
///
/// # Errors
/// `EADDRINUSE` when this very connection exists, `ENETUNREACH` and others of connect(2) that need no
/// answer of the network. What fails before that is wrong here and not in the network, so it is of kind
/// `Other`, with words: no CAP_NET_ADMIN, no CAP_NET_BIND_SERVICE for a port below 1024, no descriptor.
pub fn connect_from(
    from: SocketAddr,
    to: SocketAddr,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let fd = bound(from, to, prepare).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => e,
        _ => io::Error::other(format!("no socket of our own with address {from}: {e}")),
    })?;
    match rustix::net::connect(&fd, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(fd)),
        Err(e) => Err(e.into()),
    }
}

/// A socket with another's address.
fn bound(
    from: SocketAddr,
    to: SocketAddr,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    use std::os::fd::AsFd;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family(to), SocketType::STREAM, flags, None)?;
    set_transparent(fd.as_fd(), to)?;
    // Several connections may leave from one port as long as they go to different places.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    let on = 1_i32.to_ne_bytes();
    if from.port() == 0 {
        let _ = setsockopt(
            fd.as_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            &on,
        );
    }
    prepare(fd.as_fd())?;
    rustix::net::bind(&fd, &from)?;
    Ok(fd)
}

fn set_transparent(fd: BorrowedFd<'_>, addr: SocketAddr) -> io::Result<()> {
    let on = 1_i32.to_ne_bytes();
    match addr {
        SocketAddr::V4(_) => setsockopt(fd, libc::IPPROTO_IP, libc::IP_TRANSPARENT, &on),
        SocketAddr::V6(_) => setsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, &on),
    }
}

/// Marks what a socket sends (SO_MARK).
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN or CAP_NET_RAW.
pub fn set_mark(fd: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes())
}

/// Asks for a send buffer beyond `net.core.wmem_max` (SO_SNDBUFFORCE); ends its autotuning.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over the machine.
pub fn force_send_buffer(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    let bytes = i32::try_from(size.as_u64()).unwrap_or(1 << 30).min(1 << 30);
    setsockopt(
        fd,
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        &bytes.to_ne_bytes(),
    )
}

/// True when the next byte to be read is the one after urgent data, or where that would be.
///
/// # Errors
/// As sockatmark(3).
pub fn at_mark(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut at: libc::c_int = 0;
    // SAFETY: SIOCATMARK writes one int to `at`, which outlives the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), SIOCATMARK, &raw mut at) } {
        0 => Ok(at != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The urgent byte, if it has come and nobody took it.
pub fn take_urgent(fd: BorrowedFd<'_>) -> Option<u8> {
    let mut byte = [0];
    match rustix::net::recv(fd, &mut byte, RecvFlags::OOB | RecvFlags::DONTWAIT) {
        Ok((1, _)) => Some(byte[0]),
        _ => None,
    }
}

/// True when the urgent byte has come and nobody took it.
pub fn has_urgent(fd: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::OOB | RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(fd, &mut [0], flags), Ok((1, _)))
}

/// Sends a byte as urgent; false when there is no room for it now.
///
/// # Errors
/// As send(2).
pub fn send_urgent(fd: BorrowedFd<'_>, byte: u8) -> io::Result<bool> {
    let flags = SendFlags::OOB | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match rustix::net::send(fd, &[byte], flags) {
        Ok(sent) => Ok(sent == 1),
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Bytes that a socket was given and its peer has not acknowledged (SIOCOUTQ).
///
/// # Errors
/// As ioctl(2).
pub fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ, writes one int to `bytes`, which outlives the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(u64::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of the next byte that a connection will send (TCP_QUEUE_SEQ of tcp(7)'s repair mode, which is left again
/// without a packet).
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN or on a listening socket.
pub fn next_to_send(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let set = |name, value: i32| setsockopt(fd, libc::IPPROTO_TCP, name, &value.to_ne_bytes());
    set(libc::TCP_REPAIR, REPAIR_ON)?;
    let mut buffer = [0; 4];
    let read = set(libc::TCP_REPAIR_QUEUE, REPAIR_SEND_QUEUE)
        .and_then(|()| getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ, &mut buffer));
    set(libc::TCP_REPAIR, REPAIR_OFF_SILENTLY)?;
    read.map(|_| u32::from_ne_bytes(buffer))
}

/// Bytes that a socket has received and nobody has read (SIOCINQ).
///
/// # Errors
/// As ioctl(2).
pub fn unread(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCINQ, which is FIONREAD, writes one int to `bytes`, which outlives the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut bytes) } {
        0 => Ok(u64::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why a connection failed, and clears it (SO_ERROR).
///
/// # Errors
/// As getsockopt(2).
pub fn pending_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let mut buffer = [0; 4];
    getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut buffer)?;
    Ok(match i32::from_ne_bytes(buffer) {
        0 => None,
        code => Some(io::Error::from_raw_os_error(code)),
    })
}

/// include/uapi/linux/tcp.h: TCP_REPAIR_ON, TCP_SEND_QUEUE, TCP_REPAIR_OFF_NO_WP.
const REPAIR_ON: i32 = 1;
const REPAIR_SEND_QUEUE: i32 = 2;
const REPAIR_OFF_SILENTLY: i32 = -1;
/// include/uapi/asm-generic/sockios.h.
const SIOCATMARK: libc::Ioctl = 0x8905;

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::netns::NetNs;

    #[test]
    fn what_we_may_not_bind_is_not_told_as_the_networks_word() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        // In a thread of its own, and so are its capabilities.
        let error = ns.run(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::NET_BIND_SERVICE);
            set_capabilities(None, sets).unwrap();
            let from = ([198, 18, 1, 2], 1000).into();
            connect_from(from, ([198, 18, 2, 2], 80).into(), |_| Ok(())).unwrap_err()
        });
        let error = error.unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Other, "{error}");
        assert!(error.to_string().contains("198.18.1.2:1000"), "{error}");
    }
}
