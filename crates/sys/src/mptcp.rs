//! Multipath TCP sockets, and whether a connection stayed multipath.
//!
//! A listener of this kind answers plain TCP as well: what it accepts from a peer without MPTCP is an
//! ordinary TCP socket. A client whose peer or middlebox does not know the option falls back to TCP
//! by itself. So both ends can ask for it and look afterwards at what they got.
//!
//! Left out: adding addresses and choosing paths, which is the path manager's (ip-mptcp(8)).
//!
//! Sources: RFC 8684, Linux Documentation/networking/mptcp.rst, include/uapi/linux/mptcp.h,
//! net/mptcp/sockopt.c.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;

use rustix::net::{Protocol, SocketFlags, SocketType, sockopt};

use crate::tcp::{family, getsockopt};

/// What the kernel tells of a multipath connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpInfo {
    /// Connections that it runs over now, the first included.
    pub subflows: u8,
    /// Bytes sent again over another or the same subflow, where the kernel tells (Linux 6.6).
    pub retransmitted_bytes: u64,
}

/// A multipath socket that is not connected; it does not block.
///
/// # Errors
/// `EPROTONOSUPPORT` where the kernel has no MPTCP, `ENOPROTOOPT` where `net.mptcp.enabled` is 0.
pub fn unconnected(addr: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let mptcp = Some(Protocol::from_raw(PROTOCOL));
    let fd = rustix::net::socket_with(family(addr), SocketType::STREAM, flags, mptcp)?;
    Ok(TcpStream::from(fd))
}

/// A listening socket for multipath and plain connections, made as the standard library makes plain
/// ones.
///
/// # Errors
/// As [`unconnected`]; otherwise as bind(2) and listen(2).
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let mptcp = Some(Protocol::from_raw(PROTOCOL));
    let flags = SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family(addr), SocketType::STREAM, flags, mptcp)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    rustix::net::bind(&fd, &addr)?;
    // The kernel cuts it at net.core.somaxconn.
    rustix::net::listen(&fd, i32::MAX)?;
    Ok(TcpListener::from(fd))
}

/// What a connection is: `None` when it is plain TCP, from the start or fallen back to.
///
/// # Errors
/// As getsockopt(2), other than the ways in which plain TCP says that it knows no such option.
pub fn info(fd: BorrowedFd<'_>) -> io::Result<Option<MptcpInfo>> {
    let mut buffer = [0_u8; INFO_BYTES];
    let len = match getsockopt(fd, SOL_MPTCP, MPTCP_INFO, &mut buffer) {
        Ok(len) => len,
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT) => Ok(None),
                _ => Err(error),
            };
        }
    };
    Ok(read_info(&buffer[..len]))
}

/// The kernel's `mptcp_info`, as much of it as there is.
fn read_info(bytes: &[u8]) -> Option<MptcpInfo> {
    let flags = u32::from_ne_bytes(*bytes.get(FLAGS_AT..)?.first_chunk()?);
    if flags & FALLBACK != 0 {
        return None;
    }
    let again = bytes.get(RETRANSMITTED_AT..).and_then(<[u8]>::first_chunk);
    // Older kernels count only those beyond the first in byte 0 and have no total.
    let total = bytes.get(TOTAL_AT).copied().filter(|&n| n > 0);
    Some(MptcpInfo {
        subflows: total.unwrap_or_else(|| bytes[0].saturating_add(1)),
        retransmitted_bytes: again.map_or(0, |b| u64::from_ne_bytes(*b)),
    })
}

/// IPPROTO_MPTCP.
const PROTOCOL: rustix::net::RawProtocol = std::num::NonZeroU32::new(262).unwrap();
/// include/linux/socket.h.
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
/// MPTCP_INFO_FLAG_FALLBACK.
const FALLBACK: u32 = 1;
/// struct mptcp_info: six counters of one byte, two of padding, the flags.
const FLAGS_AT: usize = 8;
/// After token, three sequence numbers, three bytes with padding, retransmits: mptcpi_bytes_retrans.
const RETRANSMITTED_AT: usize = 48;
/// After sent, received and acknowledged bytes: mptcpi_subflows_total.
const TOTAL_AT: usize = 80;
/// Larger than every kernel's so far.
const INFO_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use units::Duration;

    use super::*;
    use crate::tcp;

    /// A pair of ends, each multipath if asked for; `None` where this kernel has no MPTCP.
    fn pair(near: bool, far: bool) -> Option<(TcpStream, TcpStream)> {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        unconnected(any).ok()?;
        let listener = match far {
            true => listen(any).unwrap(),
            false => TcpListener::bind(any).unwrap(),
        };
        let addr = listener.local_addr().unwrap();
        let make = if near { unconnected } else { tcp::unconnected };
        let patience = Duration::from_s(10);
        let near = tcp::connect_many_of(make, addr, 1, patience, |_| Ok(()), || false);
        let mut near = near.unwrap().remove(0);
        let mut far = listener.accept().unwrap().0;
        // The third packet's option settles it.
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        far.write_all(b"y").unwrap();
        near.read_exact(&mut [0]).unwrap();
        Some((near, far))
    }

    #[test]
    fn a_connection_is_multipath_where_both_ends_are() {
        for (near, far) in [(true, true), (true, false), (false, true), (false, false)] {
            let Some((a, b)) = pair(near, far) else {
                testing::skipped("this kernel has no MPTCP");
                return;
            };
            for end in [&a, &b] {
                let info = info(end.as_fd()).unwrap();
                assert_eq!(info.is_some(), near && far, "{near} {far}");
                assert_eq!(info.map_or(1, |i| i.subflows), 1, "{near} {far}");
            }
        }
    }

    #[test]
    fn the_structs_of_old_and_new_kernels_are_read() {
        let mut bytes = [0_u8; INFO_BYTES];
        bytes[0] = 2;
        bytes[RETRANSMITTED_AT] = 7;
        let read = |len: usize, bytes: &[u8]| read_info(&bytes[..len]);
        assert_eq!(read(11, &bytes), None);
        let of = |subflows, retransmitted_bytes| {
            Some(MptcpInfo {
                subflows,
                retransmitted_bytes,
            })
        };
        assert_eq!(read(12, &bytes), of(3, 0));
        assert_eq!(read(RETRANSMITTED_AT + 8, &bytes), of(3, 7));
        bytes[TOTAL_AT] = 4;
        assert_eq!(read(TOTAL_AT, &bytes), of(3, 7));
        assert_eq!(read(TOTAL_AT + 1, &bytes), of(4, 7));
        bytes[FLAGS_AT] = 1;
        assert_eq!(read(INFO_BYTES, &bytes), None);
    }
}
