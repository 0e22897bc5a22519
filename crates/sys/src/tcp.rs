//! TCP socket options that the standard library lacks, connecting with options set before the SYN,
//! and the two clocks a measurement needs.
//!
//! Sockets live in the network namespace of the thread that creates them; nothing here starts a
//! thread. Sizes that the kernel reports for buffers are its own bookkeeping: it doubles what
//! SO_SNDBUF and SO_RCVBUF ask for and cuts it silently at `net.core.wmem_max`/`rmem_max`, so that
//! a caller who cares reads back what was granted (socket(7)).
//!
//! Sources: tcp(7), socket(7), Linux include/uapi/linux/tcp.h.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use units::{Bytes, Duration, Instant, Rate};
use wire::tcp_info::{BUFFER_BYTES, TcpInfo};

use crate::clock;

/// Reads `tcp_info` of a TCP socket, as much of it as this kernel knows.
///
/// # Errors
///
/// Whatever getsockopt(2) says; `InvalidData` when the kernel handed over less than the struct of
/// Linux 2.6.
pub fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut buffer = [0_u8; BUFFER_BYTES];
    let len = getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut buffer)?;
    TcpInfo::parse(&buffer[..len])
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "tcp_info is too short"))
}

/// Chooses the congestion control of a socket (TCP_CONGESTION).
///
/// # Errors
///
/// ENOENT when the kernel has no such module, EPERM when the module is not in
/// `net.ipv4.tcp_allowed_congestion_control` and the caller lacks CAP_NET_ADMIN.
pub fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // TCP_CA_NAME_MAX: a longer name cannot exist.
    if name.is_empty() || name.len() > 15 {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    Ok(sockopt::set_tcp_congestion(fd, name)?)
}

/// The congestion control of a socket.
///
/// # Errors
///
/// Whatever getsockopt(2) says.
pub fn congestion(fd: BorrowedFd<'_>) -> io::Result<String> {
    let mut buffer = [0_u8; 16];
    let len = getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut buffer)?;
    let name = buffer[..len].split(|&b| b == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Largest segment that a socket sends and asks its peer to send (TCP_MAXSEG), options included. To be
/// set before the SYN, which states it; one end's setting holds for both directions. 0 leaves it to the route.
///
/// # Errors
///
/// EINVAL outside of 0 and 88..=32767 (net/ipv4/tcp.c, tcp_sock_set_maxseg).
pub fn set_max_segment(fd: BorrowedFd<'_>, bytes: u16) -> io::Result<()> {
    let bytes = libc::c_int::from(bytes);
    setsockopt(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_MAXSEG,
        &bytes.to_ne_bytes(),
    )
}

/// Caps the rate at which the stack paces this socket (SO_MAX_PACING_RATE, 64 bits wide since
/// Linux 4.20). Works without the fq qdisc: TCP then paces by its own timers.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_max_pacing(fd: BorrowedFd<'_>, rate: Rate) -> io::Result<()> {
    let bytes_per_second = (rate.as_bits_per_second() / 8).max(1);
    setsockopt(
        fd,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        &bytes_per_second.to_ne_bytes(),
    )
}

/// Takes such a cap away again.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn lift_max_pacing(fd: BorrowedFd<'_>) -> io::Result<()> {
    // All ones is none (net/core/sock.c, SO_MAX_PACING_RATE).
    setsockopt(
        fd,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        &u64::MAX.to_ne_bytes(),
    )
}

/// Bounds the window that this socket offers (TCP_WINDOW_CLAMP): before the connection or after, in the
/// steps of its window scale.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_window_clamp(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    let bytes = libc::c_int::try_from(size.as_u64()).unwrap_or(libc::c_int::MAX);
    setsockopt(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_WINDOW_CLAMP,
        &bytes.to_ne_bytes(),
    )
}

/// Limits the unsent part of the send buffer (TCP_NOTSENT_LOWAT).
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_notsent_lowat(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    let size = u32::try_from(size.as_u64()).unwrap_or(u32::MAX);
    setsockopt(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_NOTSENT_LOWAT,
        &size.to_ne_bytes(),
    )
}

/// How many bytes have to be there before the socket reads as readable (SO_RCVLOWAT); the kernel takes no more than half of
/// what its receive buffer may grow to, and says earlier that it is readable where the buffer is full (`tcp_set_rcvlowat` and
/// `tcp_epollin_ready`, net/ipv4/tcp.c). A read that blocks waits for as many, after it took what was there: what
/// [`receive_together`] does not.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_receive_low_water(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    let size = i32::try_from(size.as_u64()).unwrap_or(i32::MAX);
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &size.to_ne_bytes())
}

/// Lets the receive buffer, if nobody set it, be as large at once as `size` in it takes, instead of growing to that over some
/// round trips; no more than half of what it may grow to. What is offered to the other side grows with what it sends from then
/// on, twice as fast. Asking for a low-water mark does that (`tcp_set_rcvlowat`, net/ipv4/tcp.c, Linux 4.18), and taking it
/// back does not undo it.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn make_receive_room(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    set_receive_low_water(fd, size)?;
    set_receive_low_water(fd, Bytes::new(1))
}

/// Reads what is there once it is as much as [`set_receive_low_water`] asks for, or the end; `None` where it is not within `longest`.
///
/// # Errors
///
/// As poll(2) and recv(2), except that an interruption by a signal reads as nothing there.
pub fn receive_together(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
    longest: Duration,
) -> io::Result<Option<usize>> {
    match poll(
        &mut [PollFd::new(&fd, PollFlags::IN)],
        Some(&timespec(longest)),
    ) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    match rustix::net::recv(fd, bytes, rustix::net::RecvFlags::DONTWAIT) {
        Ok((read, _)) => Ok(Some(read)),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Asks for a send buffer and ends its autotuning (SO_SNDBUF). The kernel cuts the request at
/// `net.core.wmem_max`; [`send_buffer`] says what it granted.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_send_buffer(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(
        fd,
        buffer_request(size),
    )?)
}

/// The send buffer in the kernel's bookkeeping: twice what was granted.
///
/// # Errors
///
/// Whatever getsockopt(2) says.
pub fn send_buffer(fd: BorrowedFd<'_>) -> io::Result<Bytes> {
    Ok(Bytes::new(sockopt::socket_send_buffer_size(fd)? as u64))
}

/// Asks for a receive buffer and ends its autotuning (SO_RCVBUF); set it before connecting, since
/// the window scale is fixed by the SYN. The kernel cuts the request at `net.core.rmem_max`.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_receive_buffer(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(
        fd,
        buffer_request(size),
    )?)
}

/// The same beyond `net.core.rmem_max` (SO_RCVBUFFORCE).
///
/// # Errors
///
/// EPERM without CAP_NET_ADMIN over the machine.
pub fn force_receive_buffer(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    let bytes = i32::try_from(buffer_request(size)).unwrap_or(1 << 30);
    setsockopt(
        fd,
        libc::SOL_SOCKET,
        libc::SO_RCVBUFFORCE,
        &bytes.to_ne_bytes(),
    )
}

/// Gives both buffers back to the kernel's tuning, which begins anew from `net.ipv4.tcp_wmem` and `tcp_rmem`
/// (SO_BUF_LOCK, Linux 5.14).
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 5.14, when nothing is changed; `NotFound` where those cannot be read.
pub fn tune_buffers(fd: BorrowedFd<'_>) -> io::Result<()> {
    let first = |name| {
        let all = crate::host::tcp_mem_triplet(name);
        let half = all.map(|[_, first, _]| Bytes::new(first / 2));
        half.ok_or(io::ErrorKind::NotFound)
    };
    let (send, receive) = (first("tcp_wmem")?, first("tcp_rmem")?);
    let unlock = || setsockopt(fd, libc::SOL_SOCKET, SO_BUF_LOCK, &0_u32.to_ne_bytes());
    unlock()?;
    set_send_buffer(fd, send)?;
    set_receive_buffer(fd, receive)?;
    unlock()
}

/// Keeps the kernel's tuning from enlarging the receive buffer any more (SO_BUF_LOCK, Linux 5.14) and bounds the window
/// that is offered from now on. What has been offered stays offered, so nothing that is on its way is dropped. False,
/// and nothing is changed, where somebody has set that buffer or holds it already.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 5.14.
pub fn hold_receive_buffer(fd: BorrowedFd<'_>, window: Bytes) -> io::Result<bool> {
    let locks = buffer_locks(fd)?;
    if locks & SOCK_RCVBUF_LOCK != 0 {
        return Ok(false);
    }
    let locks = locks | SOCK_RCVBUF_LOCK;
    setsockopt(fd, libc::SOL_SOCKET, SO_BUF_LOCK, &locks.to_ne_bytes())?;
    set_window_clamp(fd, window)?;
    Ok(true)
}

/// Takes back what [`hold_receive_buffer`] did: the kernel's tuning goes on where it stood.
///
/// # Errors
///
/// As [`hold_receive_buffer`].
pub fn free_receive_buffer(fd: BorrowedFd<'_>) -> io::Result<()> {
    let locks = buffer_locks(fd)? & !SOCK_RCVBUF_LOCK;
    // Beyond what any window can be (RFC 7323 section 2.3); the buffer bounds it as before.
    set_window_clamp(fd, Bytes::new(1 << 30))?;
    setsockopt(fd, libc::SOL_SOCKET, SO_BUF_LOCK, &locks.to_ne_bytes())
}

fn buffer_locks(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut locks = [0; 4];
    getsockopt(fd, libc::SOL_SOCKET, SO_BUF_LOCK, &mut locks)?;
    Ok(u32::from_ne_bytes(locks))
}

/// The receive buffer in the kernel's bookkeeping: twice what was granted.
///
/// # Errors
///
/// Whatever getsockopt(2) says.
pub fn receive_buffer(fd: BorrowedFd<'_>) -> io::Result<Bytes> {
    Ok(Bytes::new(sockopt::socket_recv_buffer_size(fd)? as u64))
}

/// Largest IP packet that the route of a connected socket carries (IP_MTU, IPV6_MTU).
///
/// # Errors
///
/// ENOTCONN before the socket is connected.
pub fn path_mtu(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(match sockopt::socket_domain(fd)? {
        // A dual-stack socket that carries IPv4 answers IPV6_MTU with the IPv4 route's.
        AddressFamily::INET6 => sockopt::ipv6_mtu(fd)?,
        _ => sockopt::ip_mtu(fd)?,
    })
}

/// Makes close(2) throw away what is still queued and reset the connection (SO_LINGER, zero).
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(
        fd,
        Some(std::time::Duration::ZERO),
    )?)
}

/// The largest segment that a connection sends now (TCP_MAXSEG).
///
/// # Errors
///
/// Whatever getsockopt(2) says.
pub fn segment_size(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut buffer = [0_u8; 4];
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, &mut buffer)?;
    Ok(u32::from_ne_bytes(buffer))
}

/// Sets the TOS byte or traffic class of what a socket sends (ip(7), ipv6(7)). Of TCP the kernel
/// keeps the two bits of ECN to itself.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_tos(fd: BorrowedFd<'_>, tos: u8) -> io::Result<()> {
    let value = u32::from(tos).to_ne_bytes();
    match sockopt::socket_domain(fd)? {
        AddressFamily::INET6 => {
            // A dual-stack socket that carries IPv4 marks by IP_TOS; one for IPv6 only refuses it.
            let over_ipv4 = setsockopt(fd, libc::IPPROTO_IP, libc::IP_TOS, &value);
            match setsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value) {
                // A multipath socket has no traffic class (net/mptcp/sockopt.c), and over IPv4 needs none.
                Err(error)
                    if error.raw_os_error() == Some(libc::EOPNOTSUPP) && carries_ipv4(fd) =>
                {
                    over_ipv4
                }
                other => other,
            }
        }
        _ => setsockopt(fd, libc::IPPROTO_IP, libc::IP_TOS, &value),
    }
}

/// Whether a connected socket for IPv6 has a peer of IPv4.
fn carries_ipv4(fd: BorrowedFd<'_>) -> bool {
    let peer = rustix::net::getpeername(fd).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    peer.is_some_and(|peer| peer.ip().to_canonical().is_ipv4())
}

/// Binds a socket to an interface (SO_BINDTODEVICE): it sends and receives by no other.
///
/// # Errors
///
/// ENODEV when there is none of that name, EPERM below Linux 5.7 without CAP_NET_RAW.
pub fn set_device(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // An empty name would unbind; IFNAMSIZ is 16 with the zero byte.
    if name.is_empty() || name.len() > 15 {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes())
}

/// Gives a connection up when sent data stays unacknowledged for `limit` (TCP_USER_TIMEOUT); zero leaves that to the
/// kernel.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_user_timeout(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let ms = u32::try_from(limit.as_ns().div_ceil(1_000_000)).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(fd, ms)?)
}

/// Has the kernel ask an idle peer's whether the connection is still open (SO_KEEPALIVE), four times within `limit` and at
/// least every second, and gives the connection up when nothing comes back for that long. Of a peer that owes no word for
/// minutes nothing else shows that its host is gone.
///
/// # Errors
///
/// Whatever setsockopt(2) says.
pub fn set_keep_alive(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let quarter = std::time::Duration::from_secs((limit.as_ns() / 4_000_000_000).max(1));
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, quarter)?;
    sockopt::set_tcp_keepintvl(fd, quarter)?;
    // Where this is set the kernel counts no probes: net/ipv4/tcp_timer.c, tcp_keepalive_timer().
    set_user_timeout(fd, limit)
}

/// Has a socket that is not connected yet leave from this address of the host; by any port where that is 0.
///
/// # Errors
///
/// Whatever bind(2) says; `AddrNotAvailable` where the host has no such address.
pub fn set_source(fd: BorrowedFd<'_>, from: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::bind(fd, &from)?)
}

/// A TCP socket that is not connected, for asking what a connection would be allowed to do.
///
/// # Errors
///
/// Whatever socket(2) says.
pub fn unconnected(addr: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family(addr), SocketType::STREAM, flags, None)?;
    Ok(TcpStream::from(fd))
}

/// Opens `count` connections to one address, all under way at once, so that many streams cost one
/// round trip. `prepare` sets options on each socket before its SYN. Blocking sockets come back,
/// all of them or none.
///
/// # Errors
///
/// The first failure among them; `TimedOut` when `timeout` passed; `Interrupted` when `cancelled`
/// (asked every 50 ms) said so.
pub fn connect_many(
    addr: SocketAddr,
    count: usize,
    timeout: Duration,
    prepare: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    cancelled: impl Fn() -> bool,
) -> io::Result<Vec<TcpStream>> {
    connect_many_of(unconnected, addr, count, timeout, prepare, cancelled)
}

/// The same over sockets that `make` makes, such as [`crate::mptcp::unconnected`]; they must not
/// block.
///
/// # Errors
///
/// As [`connect_many`], and those of `make`.
pub fn connect_many_of(
    make: impl Fn(SocketAddr) -> io::Result<TcpStream>,
    addr: SocketAddr,
    count: usize,
    timeout: Duration,
    mut prepare: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    cancelled: impl Fn() -> bool,
) -> io::Result<Vec<TcpStream>> {
    let deadline = clock::monotonic() + timeout;
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = make(addr)?;
        prepare(socket.as_fd())?;
        match rustix::net::connect(&socket, &addr) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => sockets.push(socket),
            Err(error) => return Err(error.into()),
        }
    }
    for socket in &sockets {
        await_connected(socket, deadline, &cancelled)?;
        socket.set_nonblocking(false)?;
    }
    Ok(sockets)
}

/// Waits until a connect under way ends (connect(2), EINPROGRESS).
fn await_connected(
    socket: &TcpStream,
    deadline: Instant,
    cancelled: &impl Fn() -> bool,
) -> io::Result<()> {
    loop {
        let left = deadline.saturating_since(clock::monotonic());
        let step = left.min(POLL_STEP);
        let mut fds = [PollFd::new(socket, PollFlags::OUT)];
        match poll(&mut fds, Some(&timespec(step))) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(sockopt::socket_error(socket)??),
            Err(error) => return Err(error.into()),
        }
        if cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if left == Duration::ZERO {
            let text = "connection timed out";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }
}

/// The family of a socket for that address.
pub const fn family(addr: SocketAddr) -> AddressFamily {
    match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// The kernel keeps sizes in an int and doubles them.
fn buffer_request(size: Bytes) -> usize {
    usize::try_from(size.as_u64())
        .unwrap_or(usize::MAX)
        .min(1 << 30)
}

fn timespec(time: Duration) -> Timespec {
    let seconds = i64::try_from(time.as_ns() / 1_000_000_000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(time.as_ns() % 1_000_000_000).unwrap_or(0);
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    }
}

/// Reads an option into `buffer`; returns how many bytes of it the kernel filled in.
pub(crate) fn getsockopt(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(buffer.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: `buffer` is writable for `len` bytes and outlives the call; the kernel writes at most
    // `len` bytes and stores their number in `len` (getsockopt(2)). `fd` is open while borrowed.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            buffer.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(len).unwrap_or(0).min(buffer.len()))
}

/// Sets an option to `value`, which is in the machine's own byte order.
pub(crate) fn setsockopt(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: `value` is readable for `len` bytes during the call, and the kernel only reads it
    // (setsockopt(2)). `fd` is open while borrowed.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// How often a waiting connect asks whether it was cancelled.
const POLL_STEP: Duration = Duration::from_ms(50);

/// include/uapi/asm-generic/socket.h.
const SO_BUF_LOCK: libc::c_int = 72;
/// include/uapi/linux/socket.h.
const SOCK_RCVBUF_LOCK: u32 = 2;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let near = connect_many(addr, 1, Duration::from_s(10), |_| Ok(()), || false).unwrap();
        (
            near.into_iter().next().unwrap(),
            listener.accept().unwrap().0,
        )
    }

    #[test]
    fn tcp_info_of_a_fresh_connection_says_established() {
        let (near, far) = pair();
        let info = tcp_info(near.as_fd()).unwrap();
        assert_eq!(info.state, 1);
        assert!(info.len_bytes >= 104);
        assert_eq!(tcp_info(far.as_fd()).unwrap().state, 1);
    }

    #[test]
    fn tcp_info_of_a_socket_that_is_not_tcp_is_an_error() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_info(socket.as_fd()).is_err());
    }

    #[test]
    fn options_read_back_as_they_were_set() {
        let (near, _far) = pair();
        let fd = near.as_fd();
        set_max_pacing(fd, Rate::from_bits_per_second(80_000_000)).unwrap();
        assert_eq!(
            tcp_info(fd).unwrap().max_pacing_rate_bytes_per_second,
            10_000_000
        );
        set_send_buffer(fd, Bytes::new(65_536)).unwrap();
        assert_eq!(send_buffer(fd).unwrap(), Bytes::new(131_072));
        set_receive_buffer(fd, Bytes::new(65_536)).unwrap();
        assert_eq!(receive_buffer(fd).unwrap(), Bytes::new(131_072));
        set_notsent_lowat(fd, Bytes::new(16_384)).unwrap();
        set_user_timeout(fd, Duration::from_s(10)).unwrap();
        let name = congestion(fd).unwrap();
        set_congestion(fd, &name).unwrap();
        assert_eq!(congestion(fd).unwrap(), name);
        assert!(path_mtu(fd).unwrap() >= 576);
    }

    #[test]
    fn less_than_the_low_water_mark_does_not_wake_a_reader() {
        use std::io::Write as _;

        let (near, mut far) = pair();
        let mut room = [0; 50_000];
        set_receive_low_water(near.as_fd(), Bytes::new(40_000)).unwrap();
        let mut read = |longest| receive_together(near.as_fd(), &mut room, longest).unwrap();
        far.write_all(&[1; 39_999]).unwrap();
        assert_eq!(read(Duration::from_ms(20)), None);
        far.write_all(&[1; 1]).unwrap();
        assert_eq!(read(Duration::from_s(60)), Some(40_000));
        far.write_all(&[1; 10]).unwrap();
        drop(far);
        assert_eq!(read(Duration::from_s(60)), Some(10));
        assert_eq!(read(Duration::from_s(60)), Some(0));
    }

    #[test]
    fn room_is_made_in_a_receive_buffer_that_grows_by_itself_and_in_no_other() {
        let (near, _far) = pair();
        let fd = near.as_fd();
        let size = Bytes::new(1 << 20);
        let before = receive_buffer(fd).unwrap();
        assert!(before < size);
        make_receive_room(fd, size).unwrap();
        assert!(receive_buffer(fd).unwrap() >= size);
        // It does not wait for as much.
        let (held, mut far) = pair();
        set_receive_buffer(held.as_fd(), Bytes::new(65_536)).unwrap();
        let before = receive_buffer(held.as_fd()).unwrap();
        make_receive_room(held.as_fd(), size).unwrap();
        assert_eq!(receive_buffer(held.as_fd()).unwrap(), before);
        io::Write::write_all(&mut far, &[1; 10]).unwrap();
        let read = receive_together(held.as_fd(), &mut [0; 64], Duration::from_s(60));
        assert_eq!(read.unwrap(), Some(10));
    }

    #[test]
    fn a_receive_buffer_that_is_held_grows_no_more_until_it_is_free() {
        use std::io::{Read as _, Write as _};

        let (near, mut far) = pair();
        let (fd, peer) = (near.as_fd(), far.try_clone().unwrap());
        let offered = || tcp_info(peer.as_fd()).unwrap().snd_wnd_bytes;
        thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let block = vec![0; 1 << 20];
                while far.write_all(&block).is_ok() {}
            });
            let (mut reader, mut block) = (&near, vec![0; 1 << 20]);
            let mut read_until = |most: usize, is_enough: &dyn Fn() -> bool| {
                let mut read = 0;
                while read < most && !is_enough() {
                    read += reader.read(&mut block).unwrap();
                }
            };
            let window = Bytes::new(64 << 10);
            read_until(4 << 30, &|| offered() > 4 * window.as_u64());
            assert!(hold_receive_buffer(fd, window).unwrap());
            let held = receive_buffer(fd).unwrap();
            assert!(
                !hold_receive_buffer(fd, window).unwrap(),
                "it is not twice one's own"
            );
            read_until(64 << 20, &|| false);
            let while_held = (receive_buffer(fd).unwrap(), offered());
            free_receive_buffer(fd).unwrap();
            read_until(4 << 30, &|| offered() > 4 * window.as_u64());
            let when_free = offered();
            // The writer's own end: one that waits for room would not hear of the reader's, which has none to announce.
            peer.shutdown(std::net::Shutdown::Both).unwrap();
            let _ = writer.join();
            assert_eq!(while_held.0, held);
            assert!(while_held.1 <= window.as_u64(), "{}", while_held.1);
            assert!(when_free > 4 * window.as_u64(), "{when_free}");
        });
        let window = Bytes::new(64 << 10);
        // Whose buffer was set is left alone.
        set_receive_buffer(fd, Bytes::new(65_536)).unwrap();
        assert!(!hold_receive_buffer(fd, window).unwrap());
    }

    #[test]
    fn a_device_that_is_not_there_cannot_be_bound_to() {
        let socket = unconnected("127.0.0.1:0".parse().unwrap()).unwrap();
        for name in ["no-such-device", "", "a-name-of-sixteen"] {
            let error = set_device(socket.as_fd(), name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name}");
        }
        set_device(socket.as_fd(), "lo").unwrap();
    }

    #[test]
    fn a_segment_size_of_one_end_holds_for_both() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let small = |fd: BorrowedFd<'_>| set_max_segment(fd, 736);
        let near = connect_many(addr, 1, Duration::from_s(10), small, || false).unwrap();
        let far = listener.accept().unwrap().0;
        for end in [near[0].as_fd(), far.as_fd()] {
            // Timestamps take 12 bytes of the 736 where they are on.
            let mss = tcp_info(end).unwrap().snd_mss_bytes;
            assert!((716..=736).contains(&mss), "{mss}");
        }
        let fd = near[0].as_fd();
        for (bytes, fine) in [(87, false), (88, true), (32_767, true), (32_768, false)] {
            assert_eq!(set_max_segment(fd, bytes).is_ok(), fine, "{bytes}");
        }
    }

    #[test]
    fn an_unknown_congestion_control_is_not_found() {
        let (near, _far) = pair();
        for name in ["no_such_cc", "", "a-name-longer-than-the-kernel-allows"] {
            let error = set_congestion(near.as_fd(), name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{name}");
        }
    }

    #[test]
    fn a_closed_port_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        let error = connect_many(addr, 4, Duration::from_s(10), |_| Ok(()), || false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
