//! UDP probes and small TCP messages whose departure and arrival are stamped by the kernel, not by the
//! program.
//!
//! The transmit stamp is taken where the driver takes the frame (SOF_TIMESTAMPING_TX_SOFTWARE, read
//! back from the error queue with the probe's number, or that of a stream's byte), the receive stamp
//! where the kernel first sees it. So the time between them holds neither the sender's nor the
//! receiver's scheduling.
//!
//! Source: Linux Documentation/networking/timestamping.rst; veth stamps in veth_xmit.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use crate::clock;
use crate::cmsg;
use crate::packet::set_option;

/// A UDP socket with kernel stamps on both directions.
#[derive(Debug)]
pub struct StampedSocket {
    socket: UdpSocket,
}

/// A TCP connection with kernel stamps on both directions.
#[derive(Debug)]
pub struct StampedStream<'a> {
    socket: &'a TcpStream,
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Stamped {
    /// Bytes written to the buffer.
    pub len: usize,
    /// Kernel stamp, CLOCK_REALTIME nanoseconds.
    pub stamp_realtime_ns: Option<u64>,
    /// Hops that it had left (TTL, hop limit), where [`StampedSocket::tell_hops`] asked for them.
    pub hops_left: Option<u8>,
    /// Who sent it.
    pub from: Option<SocketAddr>,
}

/// The departure of one datagram, or of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Number of the datagram, counted from 0 for each socket; of a stream that of the last byte of a
    /// call's, which wraps around.
    pub id: u32,
    /// Kernel stamp, CLOCK_REALTIME nanoseconds.
    pub stamp_realtime_ns: u64,
}

impl StampedSocket {
    /// Turns stamps on. From here on the kernel numbers the datagrams sent from 0, and keeps their
    /// departures until [`Self::departure`] takes them.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        turn_on(socket.as_fd(), DEPARTURES)?;
        Ok(Self { socket })
    }

    /// Turns stamps of arrivals on, and no others.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn arrivals_only(socket: UdpSocket) -> io::Result<Self> {
        turn_on(socket.as_fd(), 0)?;
        Ok(Self { socket })
    }

    /// Lets datagrams that come in tell how many hops they had left.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn tell_hops(&self) -> io::Result<()> {
        let socket = self.socket.as_fd();
        set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
        if self.socket.local_addr()?.is_ipv6() {
            set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
        }
        Ok(())
    }

    /// The socket.
    pub const fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Waits for a datagram as long as the socket's read timeout says.
    ///
    /// # Errors
    /// `WouldBlock` or `TimedOut` when none came.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Stamped> {
        let (len, control) = self.receive_message(buffer, 0)?;
        Ok(Stamped {
            len,
            stamp_realtime_ns: control.stamp,
            hops_left: control.hops_left,
            from: control.from,
        })
    }

    /// The next departure stamp that the kernel has ready.
    ///
    /// # Errors
    /// As recvmsg(2), except that "none yet" is `Ok(None)`.
    pub fn departure(&self) -> io::Result<Option<Departure>> {
        departure(self.socket.as_fd())
    }

    fn receive_message(
        &self,
        buffer: &mut [u8],
        flags: libc::c_int,
    ) -> io::Result<(usize, Control)> {
        receive_message(self.socket.as_fd(), buffer, flags)
    }
}

impl<'a> StampedStream<'a> {
    /// Turns stamps on. The kernel numbers bytes from 0, beginning with the first that the peer has
    /// not confirmed: nothing may be on the way, or a departure's number means another byte.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn new(socket: &'a TcpStream) -> io::Result<Self> {
        turn_on(socket.as_fd(), DEPARTURES)?;
        Ok(Self { socket })
    }

    /// Reads what is there as the socket is set, and the kernel's stamp of the last segment of it,
    /// CLOCK_REALTIME nanoseconds; 0 bytes at the end of the stream.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
        let (len, control) = receive_message(self.socket.as_fd(), buffer, 0)?;
        Ok((len, control.stamp))
    }

    /// The next departure stamp that the kernel has ready. A segment that is sent again departs again.
    ///
    /// # Errors
    /// As recvmsg(2), except that "none yet" is `Ok(None)`.
    pub fn departure(&self) -> io::Result<Option<Departure>> {
        departure(self.socket.as_fd())
    }
}

/// Turns stamps of arrivals on, and what `more` says.
fn turn_on(socket: BorrowedFd<'_>, more: libc::c_uint) -> io::Result<()> {
    let flags = more | libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    let flags = libc::c_int::try_from(flags).unwrap_or(0);
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)
}

fn departure(socket: BorrowedFd<'_>) -> io::Result<Option<Departure>> {
    let mut buffer = [0_u8; 128];
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    match receive_message(socket, &mut buffer, flags) {
        Ok((_, control)) => Ok(control
            .stamp
            .zip(control.id)
            .map(|(stamp_realtime_ns, id)| Departure {
                id,
                stamp_realtime_ns,
            })),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Control)> {
    let mut control = [0_u64; 64];
    // SAFETY: an all-zero sockaddr_storage is valid: no family.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut iovec = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of_val(&name)).unwrap_or(0);
    message.msg_iov = &raw mut iovec;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: name, iovec and control are live, writable and of the stated lengths.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    match usize::try_from(n) {
        Ok(n) => {
            let mut control = Control::read(&message);
            control.from = address_of(&name);
            Ok((n, control))
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Control {
    stamp: Option<u64>,
    id: Option<u32>,
    hops_left: Option<u8>,
    from: Option<SocketAddr>,
}

impl Control {
    fn read(message: &libc::msghdr) -> Self {
        let mut out = Self::default();
        // SAFETY: recvmsg filled in the control buffer, which outlives this.
        for control in unsafe { cmsg::received(message) } {
            // The types that timestamping.rst and ip(7) name.
            match control.kind {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                    let times = control.value::<[libc::timespec; 3]>();
                    let ns = times.and_then(|t| clock::timespec_ns(t[0].tv_sec, t[0].tv_nsec));
                    out.stamp = ns.filter(|&ns| ns > 0);
                }
                (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                    let hops = control.value::<libc::c_int>();
                    out.hops_left = hops.and_then(|hops| u8::try_from(hops).ok());
                }
                (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                    let error = control.value::<libc::sock_extended_err>();
                    let sent = error.filter(|e| e.ee_origin == SO_EE_ORIGIN_TIMESTAMPING);
                    out.id = sent.map(|e| e.ee_data);
                }
                _ => {}
            }
        }
        out
    }
}

/// What the kernel wrote there; `None` of a family that is neither IPv4 nor IPv6.
fn address_of(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: sockaddr_storage is at least as large and as aligned as every address, and
            // its family says which one it holds (sockaddr(3type)).
            let v4 = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            let (flow, scope) = (v6.sin6_flowinfo, v6.sin6_scope_id);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

/// Stamps of departures, numbered, without what departed.
const DEPARTURES: libc::c_uint = libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY
    | libc::SOF_TIMESTAMPING_OPT_CMSG;
/// Linux include/uapi/linux/errqueue.h.
const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    #[test]
    fn control_messages_that_are_too_short_say_nothing() {
        let (whole_ns, origin) = (1, u64::from(SO_EE_ORIGIN_TIMESTAMPING) << 32);
        let kinds = [
            ((libc::SOL_SOCKET, libc::SCM_TIMESTAMPING), whole_ns, 47),
            ((libc::SOL_IP, libc::IP_TTL), 1, 3),
            ((libc::SOL_IPV6, libc::IPV6_HOPLIMIT), 1, 3),
            ((libc::SOL_IP, libc::IP_RECVERR), origin, 15),
        ];
        for (kind, word, short) in kinds {
            let mut buffer = [0; 16];
            let mut read = |bytes| {
                let message = cmsg::shortened(kind, bytes, word, &mut buffer);
                let Control {
                    stamp,
                    id,
                    hops_left,
                    ..
                } = Control::read(&message);
                (stamp, id, hops_left)
            };
            assert_eq!(read(short), (None, None, None), "{kind:?}");
            assert_ne!(read(short + 1), (None, None, None), "{kind:?}");
        }
    }

    #[test]
    fn a_datagram_tells_its_sender_and_the_hops_it_had_left() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(any) else {
                testing::skipped(format_args!("this machine has no {any}"));
                continue;
            };
            let receiver = StampedSocket::new(socket).unwrap();
            receiver.tell_hops().unwrap();
            let limit = Some(Duration::from_secs(10));
            receiver.socket().set_read_timeout(limit).unwrap();
            let sender = UdpSocket::bind(any).unwrap();
            if any.starts_with('1') {
                sender.set_ttl(77).unwrap();
            }
            let to = receiver.socket().local_addr().unwrap();
            sender.send_to(b"x", to).unwrap();
            let datagram = receiver.receive(&mut [0; 8]).unwrap();
            assert_eq!(datagram.from, sender.local_addr().ok());
            let hops = datagram.hops_left.unwrap();
            assert!(hops == 77 || !any.starts_with('1'), "{hops}");
        }
    }

    #[test]
    fn a_datagram_over_loopback_is_stamped_on_both_sides_in_order() {
        let receiver = StampedSocket::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        receiver
            .socket()
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let sender = StampedSocket::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let to = receiver.socket().local_addr().unwrap();
        // The kernel turns receive stamps on from a work queue: the first datagrams may have none.
        // Departures are fetched meanwhile: their queue holds some hundred.
        let mut departures = Vec::new();
        let (count, arrived) = (1..1_000)
            .find_map(|count| {
                sender.socket().send_to(b"probe", to).unwrap();
                departures.extend(sender.departure().unwrap());
                let mut buffer = [0; 64];
                let datagram = receiver.receive(&mut buffer).unwrap();
                assert_eq!(&buffer[..datagram.len], b"probe");
                Some((count, datagram.stamp_realtime_ns?))
            })
            .expect("a receive stamp");
        for _ in 0..10_000 {
            departures.extend(sender.departure().unwrap());
            if departures.len() == count {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let ids: Vec<u32> = departures.iter().map(|d| d.id).collect();
        assert_eq!(ids, (0..u32::try_from(count).unwrap()).collect::<Vec<_>>());
        assert!(departures.last().unwrap().stamp_realtime_ns <= arrived);
    }
    #[test]
    fn each_message_of_a_stream_departs_by_its_last_bytes_number_and_before_its_answer_arrives() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let echo = std::thread::spawn(move || {
            let mut message = [0; 3];
            while far.read_exact(&mut message).is_ok() {
                far.write_all(&message).unwrap();
            }
        });
        let limit = Some(Duration::from_secs(10));
        socket.set_read_timeout(limit).unwrap();
        socket.set_nodelay(true).unwrap();
        let stamped = StampedStream::new(&socket).unwrap();
        let mut next = 0_u32;
        // As with datagrams, the first may not be stamped on arrival.
        let stamps = (0..1_000).find_map(|_| {
            (&socket).write_all(b"abc").unwrap();
            next += 3;
            let (len, arrived) = stamped.receive(&mut [0; 8]).unwrap();
            assert_eq!(len, 3);
            let departure = stamped.departure().unwrap().expect("a departure stamp");
            assert_eq!(departure.id, next - 1);
            assert_eq!(stamped.departure().unwrap(), None);
            Some((departure.stamp_realtime_ns, arrived?))
        });
        let (departed, arrived) = stamps.expect("an arrival stamp");
        assert!(departed <= arrived, "{departed} {arrived}");
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        echo.join().unwrap();
        assert_eq!(stamped.receive(&mut [0; 8]).unwrap(), (0, None));
    }
}
