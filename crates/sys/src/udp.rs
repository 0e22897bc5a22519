//! Many datagrams in one call: segmentation offload, sendmmsg and recvmmsg, receive stamps.
//!
//! Sockets are connected, but for [`send_to`] and an [`Inbox::with_senders`]. A datagram larger than the path's MTU cannot be segmented by the kernel
//! (udp(7), UDP_SEGMENT); [`send`] then hands over several messages in one call instead.
//!
//! Sources: udp(7), sendmmsg(2), recvmmsg(2), socket(7) SO_TIMESTAMPNS, Linux net/ipv4/udp.c.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::clock;
use crate::cmsg;

/// Datagrams that one call may hand over (UDP_MAX_SEGMENTS of older kernels).
pub const BATCH_MAX: usize = 64;

/// Bytes of segments that one call may hand over: the largest UDP payload over IPv4.
pub const SEGMENTED_BYTES_MAX: usize = 65_507;

/// Sends `bytes`, datagrams of `size` each, as one piece that the kernel cuts (UDP_SEGMENT).
/// At most [`BATCH_MAX`] of them and [`SEGMENTED_BYTES_MAX`] bytes.
///
/// # Errors
/// `EINVAL` or `EMSGSIZE` where `size` exceeds the path's MTU, `EIO` where the device cannot
/// checksum; otherwise as sendmsg(2).
pub fn send_segmented(fd: BorrowedFd<'_>, bytes: &[u8], size: u16) -> io::Result<()> {
    let mut iovec = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // 64-bit words, so that the header is aligned.
    let mut control = [0_u64; 4];
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iovec;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
    let (space, len) = unsafe { (libc::CMSG_SPACE(2), libc::CMSG_LEN(2)) };
    message.msg_controllen = space as usize;
    // SAFETY: the control buffer is larger than CMSG_SPACE(2), so there is a first header with room
    // for two bytes of data; `bytes` is only read by the kernel.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = len as usize;
        ptr::write_unaligned(libc::CMSG_DATA(header).cast::<u16>(), size);
        check(libc::sendmsg(fd.as_raw_fd(), &raw const message, 0))?;
    }
    Ok(())
}

/// Sends `bytes` as datagrams of `size` each in one call, at most [`BATCH_MAX`]; returns how many
/// the kernel took.
///
/// # Errors
/// As sendmmsg(2), when it took none.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8], size: usize) -> io::Result<usize> {
    let mut iovecs: Vec<libc::iovec> = bytes
        .chunks(size.max(1))
        .take(BATCH_MAX)
        .map(|chunk| libc::iovec {
            iov_base: chunk.as_ptr().cast_mut().cast(),
            iov_len: chunk.len(),
        })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = iovecs.iter_mut().map(message_of).collect();
    let count = libc::c_uint::try_from(messages.len()).unwrap_or(0);
    // SAFETY: `count` headers, each with one iovec over live bytes that the kernel only reads.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    check(sent as isize)
}

/// How datagrams go that [`send_to`] sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The address of this host that they leave from (ip(7) IP_PKTINFO, RFC 3542); the kernel's choice where none is said.
    pub from: Option<IpAddr>,
    /// Where to.
    pub to: SocketAddr,
    /// The two ECN bits that they leave with (RFC 3168), 0 to 3.
    pub ecn: u8,
}

/// Sends `bytes`, datagrams of `segment` each: as one piece that the kernel cuts where there are several, at most
/// [`BATCH_MAX`] of them and [`SEGMENTED_BYTES_MAX`] bytes. The socket is of the address's family and not connected.
///
/// # Errors
/// As [`send_segmented`]; `EINVAL` or `ENETUNREACH` where `from` is not an address of this host.
pub fn send_to(
    fd: BorrowedFd<'_>,
    Ends { from, to, ecn }: Ends,
    bytes: &[u8],
    segment: u16,
) -> io::Result<()> {
    let mut iovec = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = [0_u64; 11];
    // SAFETY: all-zero addresses and an all-zero msghdr are valid.
    let (mut v4, mut v6, mut message): (libc::sockaddr_in, libc::sockaddr_in6, libc::msghdr) =
        unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
    match to {
        SocketAddr::V4(to) => {
            v4.sin_family = family(libc::AF_INET);
            v4.sin_port = to.port().to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
            message.msg_name = (&raw mut v4).cast();
            message.msg_namelen = socklen(size_of_val(&v4));
        }
        SocketAddr::V6(to) => {
            v6.sin6_family = family(libc::AF_INET6);
            v6.sin6_port = to.port().to_be();
            v6.sin6_addr.s6_addr = to.ip().octets();
            v6.sin6_flowinfo = to.flowinfo();
            v6.sin6_scope_id = to.scope_id();
            message.msg_name = (&raw mut v6).cast();
            message.msg_namelen = socklen(size_of_val(&v6));
        }
    }
    message.msg_iov = &raw mut iovec;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    let segment = (bytes.len() > usize::from(segment)).then_some(segment);
    // SAFETY: all-zero structures of either kind are valid.
    let (mut own_v4, mut own_v6): (libc::in_pktinfo, libc::in6_pktinfo) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: the control buffer has room for CMSG_SPACE(2), CMSG_SPACE(4) and CMSG_SPACE(20), the longest of the two kinds of
    // address.
    unsafe {
        if let Some(segment) = segment {
            put_control(&mut message, (libc::SOL_UDP, libc::UDP_SEGMENT), segment);
        }
        match (from, to) {
            (Some(IpAddr::V4(from)), SocketAddr::V4(_)) => {
                own_v4.ipi_spec_dst.s_addr = u32::from_ne_bytes(from.octets());
                put_control(&mut message, (libc::IPPROTO_IP, libc::IP_PKTINFO), own_v4);
            }
            (Some(from), SocketAddr::V6(_)) => {
                let from = match from {
                    IpAddr::V4(from) => from.to_ipv6_mapped(),
                    IpAddr::V6(from) => from,
                };
                own_v6.ipi6_addr.s6_addr = from.octets();
                put_control(
                    &mut message,
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
                    own_v6,
                );
            }
            (None | Some(IpAddr::V6(_)), _) => {}
        }
        if ecn != 0 {
            // What a socket for IPv6 sends over IPv4 goes the way of IPv4's (net/ipv4/udp.c).
            let is_ipv4 = match to {
                SocketAddr::V4(_) => true,
                SocketAddr::V6(to) => to.ip().to_ipv4_mapped().is_some(),
            };
            let kind = match is_ipv4 {
                true => (libc::IPPROTO_IP, libc::IP_TOS),
                false => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            put_control(&mut message, kind, libc::c_int::from(ecn & 3));
        }
    }
    // SAFETY: name, iovec and control outlive the call; `bytes` is only read by the kernel.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, 0) };
    check(sent).map(|_| ())
}

/// Adds a control message to those of a header.
///
/// # Safety
/// `msg_control` is zeroed, writable, and has room for it behind `msg_controllen` bytes of whole messages.
unsafe fn put_control<T>(
    message: &mut libc::msghdr,
    (level, kind): (libc::c_int, libc::c_int),
    data: T,
) {
    let len = u32::try_from(size_of::<T>()).unwrap_or(u32::MAX);
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute; a message begins where the last one ends, and the caller says that there
    // is room for this one.
    unsafe {
        let at = message.msg_control.byte_add(message.msg_controllen);
        let header = at.cast::<libc::cmsghdr>();
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(len) as usize;
        ptr::write_unaligned(libc::CMSG_DATA(header).cast::<T>(), data);
        message.msg_controllen += libc::CMSG_SPACE(len) as usize;
    }
}

fn family(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or_default()
}

fn socklen(len: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(len).unwrap_or_default()
}

/// Lets the kernel join datagrams of one flow (UDP_GRO).
///
/// # Errors
/// As setsockopt(2); `ENOPROTOOPT` before Linux 5.0.
pub fn set_join(fd: BorrowedFd<'_>) -> io::Result<()> {
    crate::packet::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Whether [`set_join`] took effect.
pub fn joins(fd: BorrowedFd<'_>) -> bool {
    let mut value: libc::c_int = 0;
    let mut len: libc::socklen_t = 4;
    // SAFETY: `value` is writable for the four bytes that `len` says.
    let result = unsafe {
        let to = (&raw mut value).cast();
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            to,
            &raw mut len,
        )
    };
    result == 0 && value != 0
}

/// Has each message told the TOS byte or traffic class that it came with (ip(7) IP_RECVTOS, ipv6(7)
/// IPV6_RECVTCLASS): [`Inbox::messages`] shows the ECN bits of it.
///
/// # Errors
/// As setsockopt(2).
pub fn set_ecn_reports(fd: BorrowedFd<'_>) -> io::Result<()> {
    let ipv4 = crate::packet::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    if !is_ipv6(fd)? {
        return ipv4;
    }
    // A dual-stack socket needs both; one for IPv6 only may refuse the first.
    crate::packet::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)
}

/// Has each message told to which of the host's addresses it was sent (ip(7) IP_PKTINFO, RFC 3542): who is asked at one answers
/// from there.
///
/// # Errors
/// As setsockopt(2).
pub fn set_address_reports(fd: BorrowedFd<'_>) -> io::Result<()> {
    let (level, name) = match is_ipv6(fd)? {
        false => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        // Of IPv4 too, whose addresses it maps.
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    crate::packet::set_option(fd, level, name, 1)
}

/// Keeps packets from being cut on the way, and has them sent whatever the kernel believes of the path's
/// MTU (ip(7) IP_MTU_DISCOVER, IP_PMTUDISC_PROBE): for who looks for it himself (RFC 8899).
///
/// # Errors
/// As setsockopt(2).
pub fn set_mtu_probing(fd: BorrowedFd<'_>) -> io::Result<()> {
    let (level, name) = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
    let ipv4 = crate::packet::set_option(fd, level, name, libc::IP_PMTUDISC_PROBE);
    if !is_ipv6(fd)? {
        return ipv4;
    }
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER);
    crate::packet::set_option(fd, level, name, libc::IPV6_PMTUDISC_PROBE)
}

fn is_ipv6(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let family = rustix::net::sockopt::socket_domain(fd)?;
    Ok(family == rustix::net::AddressFamily::INET6)
}

/// Turns on receive stamps (SO_TIMESTAMPNS).
///
/// # Errors
/// As setsockopt(2).
pub fn set_stamps(fd: BorrowedFd<'_>) -> io::Result<()> {
    crate::packet::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Datagrams that a socket threw away since it was made, mostly since its buffer was full
/// (SO_MEMINFO, SK_MEMINFO_DROPS); wraps at 2^32.
///
/// # Errors
/// As getsockopt(2).
pub fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let at = 4 * usize::try_from(libc::SK_MEMINFO_DROPS).unwrap_or(0);
    let mut buffer = [0_u8; 64];
    let len = crate::tcp::getsockopt(fd, libc::SOL_SOCKET, SO_MEMINFO, &mut buffer)?;
    let word = buffer[..len].get(at..).and_then(<[u8]>::first_chunk);
    let absent = || io::Error::new(io::ErrorKind::InvalidData, "SO_MEMINFO is too short");
    word.map(|w| u32::from_ne_bytes(*w)).ok_or_else(absent)
}

/// Room for what one call brings.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    size: usize,
    control: Vec<[u64; CONTROL_WORDS]>,
    pieces: Vec<Piece>,
    /// Where senders are written, if anybody asks for them.
    names: Vec<libc::sockaddr_in6>,
}

/// What one message was: a datagram, or several that were joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    at: usize,
    len: usize,
    /// Bytes of each datagram; the last may be shorter.
    segment: usize,
    /// CLOCK_REALTIME at which it arrived, nanoseconds; the present where the kernel did not say.
    pub stamp_realtime_ns: u64,
    /// TOS byte or traffic class, where [`set_ecn_reports`] was called.
    tos: u8,
    /// Who sent it, where the inbox asks.
    from: Option<SocketAddr>,
    /// To which address, where [`set_address_reports`] was called.
    to: Option<IpAddr>,
}

/// One message of several datagrams that the kernel joined, or of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Bytes of each datagram; the last may be shorter.
    pub segment: usize,
    /// The two ECN bits (RFC 3168) that all of them came with; 0 where nobody asked.
    pub ecn: u8,
    /// Who sent it; `None` but of an [`Inbox::with_senders`].
    pub from: Option<SocketAddr>,
    /// To which of the host's addresses; `None` but after [`set_address_reports`].
    pub to: Option<IpAddr>,
}

impl Inbox {
    /// Room for `count` messages of `size` bytes each, both at least 1.
    pub fn new(count: usize, size: usize) -> Self {
        let (count, size) = (count.max(1), size.max(1));
        Self {
            bytes: vec![0; count * size],
            size,
            control: vec![[0; CONTROL_WORDS]; count],
            pieces: Vec::with_capacity(count),
            names: Vec::new(),
        }
    }

    /// As [`Inbox::new`], for a socket that is not connected: each message tells who sent it.
    pub fn with_senders(count: usize, size: usize) -> Self {
        let mut inbox = Self::new(count, size);
        // SAFETY: an all-zero address is valid.
        inbox.names = vec![unsafe { mem::zeroed() }; inbox.control.len()];
        inbox
    }

    /// Waits for a message as long as the socket's receive timeout says, and takes what else is
    /// there.
    ///
    /// # Errors
    /// `WouldBlock` when nothing came; otherwise as recvmmsg(2).
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.pieces.clear();
        let mut iovecs: Vec<libc::iovec> = self
            .bytes
            .chunks_mut(self.size)
            .map(|chunk| libc::iovec {
                iov_base: chunk.as_mut_ptr().cast(),
                iov_len: chunk.len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = iovecs.iter_mut().map(message_of).collect();
        for (message, control) in messages.iter_mut().zip(&mut self.control) {
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of_val(control);
        }
        for (message, name) in messages.iter_mut().zip(&mut self.names) {
            message.msg_hdr.msg_namelen = socklen(size_of_val(name));
            message.msg_hdr.msg_name = (&raw mut *name).cast();
        }
        let count = libc::c_uint::try_from(messages.len()).unwrap_or(0);
        // SAFETY: `count` headers, each with one iovec, one control buffer and one name, if any, of their own that are
        // writable, of the stated lengths, and outlive the call.
        let got = unsafe {
            let flags = libc::MSG_WAITFORONE;
            let (fd, to) = (fd.as_raw_fd(), messages.as_mut_ptr());
            libc::recvmmsg(fd, to, count, flags, ptr::null_mut())
        };
        let got = check(got as isize)?;
        let size = self.size;
        for (index, message) in messages.iter().take(got).enumerate() {
            let len = usize::try_from(message.msg_len).unwrap_or(0).min(size);
            let mut piece = Piece {
                at: index * size,
                len,
                segment: len,
                stamp_realtime_ns: 0,
                tos: 0,
                from: self.names.get(index).and_then(address),
                to: None,
            };
            piece.read_control(&message.msg_hdr);
            self.pieces.push(piece);
        }
        Ok(())
    }

    /// Number of messages that the last call brought.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// True when it brought none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The messages of the last call as they came, in the order of arrival.
    pub fn messages(&self) -> impl Iterator<Item = Joined<'_>> {
        self.pieces.iter().map(|piece| Joined {
            bytes: &self.bytes[piece.at..piece.at + piece.len],
            segment: piece.segment.max(1),
            ecn: piece.tos & 0b11,
            from: piece.from,
            to: piece.to,
        })
    }

    /// The datagrams of the last call with their stamps, in the order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pieces.iter().flat_map(|piece| {
            let bytes = &self.bytes[piece.at..piece.at + piece.len];
            let datagrams = bytes.chunks(piece.segment.max(1));
            datagrams.map(|datagram| (piece.stamp_realtime_ns, datagram))
        })
    }
}

impl Piece {
    fn read_control(&mut self, message: &libc::msghdr) {
        // SAFETY: recvmmsg filled in the control buffer, which outlives this.
        for control in unsafe { cmsg::received(message) } {
            // The types that udp(7), ip(7) and socket(7) name.
            match control.kind {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = control.value::<libc::timespec>();
                    let ns = time.and_then(|t| clock::timespec_ns(t.tv_sec, t.tv_nsec));
                    self.stamp_realtime_ns = ns.unwrap_or(0);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = control.value::<libc::c_int>();
                    let size = size.and_then(|size| usize::try_from(size).ok());
                    self.segment = size.unwrap_or(self.len).max(1);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    self.tos = control.value().unwrap_or(self.tos);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = control.value::<libc::c_int>().map(libc::c_int::to_le_bytes);
                    self.tos = class.map_or(self.tos, |class| class[0]);
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = control.value::<libc::in_pktinfo>();
                    let octets = info.map(|info| info.ipi_spec_dst.s_addr.to_ne_bytes());
                    self.to = octets.map(|octets| Ipv4Addr::from(octets).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = control.value::<libc::in6_pktinfo>();
                    self.to = info.map(|info| Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => {}
            }
        }
        if self.stamp_realtime_ns == 0 {
            self.stamp_realtime_ns = clock::realtime_ns();
        }
    }
}

/// What the kernel wrote into a name that has room for either family.
fn address(name: &libc::sockaddr_in6) -> Option<SocketAddr> {
    match libc::c_int::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: an IPv4 address is shorter than one of IPv6, and as aligned; the family says that it is one.
            let v4: libc::sockaddr_in = unsafe { ptr::read(ptr::from_ref(name).cast()) };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// A header around one iovec, which must outlive it.
fn message_of(iovec: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: an all-zero mmsghdr is valid.
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_iov = &raw mut *iovec;
    message.msg_hdr.msg_iovlen = 1;
    message
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// include/uapi/asm-generic/socket.h.
const SO_MEMINFO: libc::c_int = 55;
/// Room for a stamp (32 bytes), a segment size (24 bytes), two kinds of TOS (24 bytes each) and an address (40 bytes).
const CONTROL_WORDS: usize = 18;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    #[test]
    fn control_messages_that_are_too_short_change_nothing() {
        let kinds = [
            ((libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS), 15),
            ((libc::SOL_UDP, libc::UDP_GRO), 3),
            ((libc::IPPROTO_IP, libc::IP_TOS), 0),
            ((libc::IPPROTO_IPV6, libc::IPV6_TCLASS), 3),
            ((libc::IPPROTO_IP, libc::IP_PKTINFO), 11),
            ((libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), 19),
        ];
        for (kind, short) in kinds {
            let mut buffer = [0; 16];
            let blank = Piece {
                len: 9,
                segment: 9,
                ..Piece::default()
            };
            let mut piece = blank;
            piece.read_control(&cmsg::shortened(kind, short, 1, &mut buffer));
            // The present stands in for a timestamp that did not come.
            assert!(piece.stamp_realtime_ns > 1_000_000_000_000_000_000);
            piece.stamp_realtime_ns = 0;
            assert_eq!(piece, blank, "{kind:?}");
            piece.read_control(&cmsg::shortened(kind, 20, 1, &mut buffer));
            let has_stamp = mem::take(&mut piece.stamp_realtime_ns) == 1_000_000_001;
            assert_eq!(has_stamp, piece == blank, "{kind:?}");
        }
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        b.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (a, b)
    }

    fn collect(inbox: &mut Inbox, socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        while got.len() < count {
            inbox.receive(socket.as_fd()).unwrap();
            assert!(inbox.datagrams().all(|(stamp, _)| stamp > 0));
            got.extend(inbox.datagrams().map(|(_, bytes)| bytes.to_vec()));
        }
        got
    }

    #[test]
    fn datagrams_arrive_whole_however_they_were_handed_over() {
        let bytes: Vec<u8> = (0..250_u8).collect();
        let wanted: Vec<Vec<u8>> = bytes.chunks(100).map(<[u8]>::to_vec).collect();
        for joined in [false, true] {
            let (a, b) = pair();
            set_stamps(b.as_fd()).unwrap();
            if joined {
                set_join(b.as_fd()).unwrap();
            }
            let mut inbox = Inbox::new(4, 65_535);
            send_segmented(a.as_fd(), &bytes, 100).unwrap();
            assert_eq!(collect(&mut inbox, &b, 3), wanted, "joined {joined}");
            assert_eq!(send(a.as_fd(), &bytes, 100).unwrap(), 3);
            assert_eq!(collect(&mut inbox, &b, 3), wanted, "joined {joined}");
        }
    }

    fn ends(from: Option<IpAddr>, to: SocketAddr, ecn: u8) -> Ends {
        Ends { from, to, ecn }
    }

    #[test]
    fn ecn_bits_of_one_socket_are_each_datagrams_own() {
        // The last sends to an address of IPv4 from a socket for IPv6.
        for (near, far, own) in [
            ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1:0", "::ffff:127.0.0.1"),
        ] {
            let (Ok(near), Ok(far)) = (UdpSocket::bind(near), UdpSocket::bind(far)) else {
                testing::skipped(format_args!("no {far} here"));
                continue;
            };
            let patience = Some(Duration::from_secs(10));
            far.set_read_timeout(patience).unwrap();
            set_ecn_reports(far.as_fd()).unwrap();
            let at = far.local_addr().unwrap();
            let own: IpAddr = own.parse().unwrap();
            let to = match (own, at.ip()) {
                (IpAddr::V6(_), IpAddr::V4(ip)) => (ip.to_ipv6_mapped(), at.port()).into(),
                _ => at,
            };
            let mut inbox = Inbox::with_senders(1, 65_535);
            for from in [None, Some(own)] {
                for ecn in [0, 1, 2, 3, 0] {
                    // One by itself, and several that the kernel cuts.
                    for (len, count) in [(90, 1), (250, 3)] {
                        send_to(near.as_fd(), ends(from, to, ecn), &[7; 250][..len], 100).unwrap();
                        for _ in 0..count {
                            inbox.receive(far.as_fd()).unwrap();
                            let message = inbox.messages().next().unwrap();
                            assert_eq!(message.ecn, ecn, "{to} from {from:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_socket_that_is_not_connected_knows_who_sent_and_answers() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (Ok(a), Ok(b)) = (UdpSocket::bind(address), UdpSocket::bind(address)) else {
                continue;
            };
            for socket in [&a, &b] {
                let patience = Some(Duration::from_secs(10));
                socket.set_read_timeout(patience).unwrap();
            }
            let (at_a, at_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
            let mut inbox = Inbox::with_senders(4, 65_535);
            for (from, to, at) in [(&a, &b, at_a), (&b, &a, at_b)] {
                let there = to.local_addr().unwrap();
                send_to(from.as_fd(), ends(None, there, 0), &[7; 250], 100).unwrap();
                let mut lengths = Vec::new();
                while lengths.len() < 3 {
                    inbox.receive(to.as_fd()).unwrap();
                    for message in inbox.messages() {
                        assert_eq!(message.from, Some(at));
                        lengths.extend(message.bytes.chunks(message.segment).map(<[u8]>::len));
                    }
                }
                assert_eq!(lengths, [100, 100, 50]);
            }
        }
    }

    #[test]
    fn who_is_asked_at_one_of_several_addresses_answers_from_there() {
        // A socket for all addresses, which its host has: of IPv6 for IPv4 too.
        for (any, asked, answers) in [
            ("0.0.0.0:0", "127.0.0.1", "127.9.8.7"),
            ("[::]:0", "127.0.0.1", "127.9.8.7"),
            ("[::]:0", "::1", "::1"),
        ] {
            let Ok(server) = UdpSocket::bind(any) else {
                testing::skipped(format_args!("no {any} here"));
                continue;
            };
            let (asked, answers): (IpAddr, IpAddr) =
                (asked.parse().unwrap(), answers.parse().unwrap());
            let Ok(client) = UdpSocket::bind((asked, 0)) else {
                testing::skipped(format_args!("no {asked} here"));
                continue;
            };
            for socket in [&server, &client] {
                let patience = Some(Duration::from_secs(10));
                socket.set_read_timeout(patience).unwrap();
            }
            set_address_reports(server.as_fd()).unwrap();
            let port = server.local_addr().unwrap().port();
            client.send_to(b"asks", (answers, port)).unwrap();
            let mut inbox = Inbox::with_senders(1, 65_535);
            inbox.receive(server.as_fd()).unwrap();
            let message = inbox.messages().next().unwrap();
            let (from, to) = (message.from.unwrap(), message.to.unwrap());
            assert_eq!(to.to_canonical(), answers);
            // One by itself, and several that the kernel cuts.
            for len in [90, 250] {
                let ends = ends(Some(to), from, 0);
                send_to(server.as_fd(), ends, &[7; 250][..len], 100).unwrap();
            }
            for len in [90, 100, 100, 50] {
                let (got, by) = client.recv_from(&mut [0; 500]).unwrap();
                assert_eq!((got, by.ip()), (len, answers));
            }
        }
    }

    #[test]
    fn what_a_full_buffer_drops_is_counted() {
        let (a, b) = pair();
        assert_eq!(drops(b.as_fd()).unwrap(), 0);
        // The least that the kernel grants holds one of these or two.
        crate::tcp::set_receive_buffer(b.as_fd(), units::Bytes::new(1)).unwrap();
        for _ in 0..50 {
            a.send(&[0; 1_000]).unwrap();
        }
        b.set_nonblocking(true).unwrap();
        let received = std::iter::from_fn(|| b.recv(&mut [0; 2_000]).ok()).count();
        assert!((1..50).contains(&received), "{received}");
        let dropped = usize::try_from(drops(b.as_fd()).unwrap()).unwrap();
        assert_eq!(received + dropped, 50);
    }

    #[test]
    fn ecn_bits_arrive_with_each_message_over_both_families() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (Ok(a), Ok(b)) = (UdpSocket::bind(address), UdpSocket::bind(address)) else {
                testing::skipped(format_args!("no {address} here"));
                continue;
            };
            a.connect(b.local_addr().unwrap()).unwrap();
            b.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            set_mtu_probing(a.as_fd()).unwrap();
            set_ecn_reports(b.as_fd()).unwrap();
            set_join(b.as_fd()).unwrap();
            let mut inbox = Inbox::new(1, 65_535);
            for ecn in [0, 1, 2, 3] {
                crate::tcp::set_tos(a.as_fd(), 0xb8 | ecn).unwrap();
                send_segmented(a.as_fd(), &[7; 250], 100).unwrap();
                let mut left: usize = 250;
                while left > 0 {
                    inbox.receive(b.as_fd()).unwrap();
                    for message in inbox.messages() {
                        assert_eq!((message.ecn, message.segment), (ecn, left.min(100)));
                        left -= message.bytes.len();
                    }
                }
            }
        }
    }

    #[test]
    fn silence_is_would_block() {
        let (_a, b) = pair();
        b.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut inbox = Inbox::new(1, 100);
        let error = inbox.receive(b.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(inbox.is_empty());
    }
}
