//! Every TCP socket of a network namespace, and word of each that closes: the kernel's socket diagnosis by netlink.
//!
//! Both need no privilege: any user reads the counters of all sockets of its namespace. A socket opened in a namespace stays
//! there, so whoever reads others' namespaces opens one in each.
//!
//! Sources: sock_diag(7), Linux net/core/sock_diag.c (`sock_diag_broadcast_destroy`), net/ipv4/inet_diag.c.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};
use wire::inet_diag;

use crate::nfnetlink::messages;

/// Asks for all sockets at once.
#[derive(Debug)]
pub struct Dumper {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// Listens for sockets that close.
#[derive(Debug)]
pub struct Closings {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// What one look at the closings found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// So many events.
    Events(usize),
    /// The queue was full: some events are lost for good (ENOBUFS).
    Lost,
}

impl Dumper {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As socket(2); `EPROTONOSUPPORT` in a kernel without it.
    pub fn open() -> io::Result<Self> {
        let fd = open()?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self {
            fd,
            sequence: 0,
            buffer: vec![0; DUMP_BYTES],
        })
    }

    /// Hands `each` the body of every TCP socket, of both versions of IP, that is in one of `states` (bit n: state n); false
    /// where the list changed so that the kernel may have left out some (NLM_F_DUMP_INTR).
    ///
    /// # Errors
    /// What the kernel answers; `WouldBlock` when it does not within 10 s.
    pub fn dump(&mut self, states: u32, each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let mut whole = true;
        for ipv6 in [false, true] {
            match self.dump_one(ipv6, states, each) {
                // A kernel without IPv6 has no such sockets.
                Err(e) if ipv6 && e.raw_os_error() == Some(libc::ENOENT) => {}
                result => whole &= result?,
            }
        }
        Ok(whole)
    }

    fn dump_one(
        &mut self,
        ipv6: bool,
        states: u32,
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let body = inet_diag::request(ipv6, states);
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
        let mut ask = Vec::with_capacity(HEADER_BYTES + body.len());
        ask.extend(length.to_ne_bytes());
        ask.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        ask.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        ask.extend(self.sequence.to_ne_bytes());
        ask.extend([0; 4]);
        ask.extend(body);
        rustix::net::send(&self.fd, &ask, SendFlags::empty())?;
        let mut whole = true;
        loop {
            let read = receive(&self.fd, &mut self.buffer, RecvFlags::empty())?;
            for message in messages(&self.buffer[..read]).filter(|m| m.sequence == self.sequence) {
                whole &= message.flags & NLM_F_DUMP_INTR == 0;
                match (message.kind, message.body) {
                    (NLMSG_DONE, _) => return Ok(whole),
                    (NLMSG_ERROR, [a, b, c, d, ..]) => {
                        let code = i32::from_ne_bytes([*a, *b, *c, *d]);
                        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
                    }
                    (SOCK_DIAG_BY_FAMILY, body) => each(body),
                    _ => {}
                }
            }
        }
    }
}

impl Closings {
    /// Listens in the calling thread's network namespace, with a queue of as many bytes as the kernel allows: with
    /// CAP_NET_ADMIN all of 64 MiB, else `net.core.rmem_max`.
    ///
    /// # Errors
    /// As socket(2) and bind(2); `ENOENT` in a kernel before 4.3, which has no such group.
    pub fn open() -> io::Result<Self> {
        let fd = open()?;
        if sockopt::set_socket_recv_buffer_size_force(&fd, QUEUE_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&fd, QUEUE_BYTES)?;
        }
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            fd,
            buffer: vec![0; EVENT_BYTES],
        })
    }

    /// Hands `each` the body of every event that waits, of `events_max` at most; does not wait for one.
    ///
    /// # Errors
    /// As recv(2).
    pub fn read(&mut self, events_max: usize, each: &mut dyn FnMut(&[u8])) -> io::Result<Heard> {
        let mut events = 0;
        while events < events_max {
            let read = match receive(&self.fd, &mut self.buffer, RecvFlags::DONTWAIT) {
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => return Ok(Heard::Lost),
                Err(e) => return Err(e),
            };
            for message in messages(&self.buffer[..read]) {
                if message.kind == SOCK_DIAG_BY_FAMILY {
                    each(message.body);
                    events += 1;
                }
            }
        }
        Ok(Heard::Events(events))
    }

    /// Bytes that the kernel lets wait.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn queue_bytes(&self) -> io::Result<usize> {
        Ok(sockopt::socket_recv_buffer_size(&self.fd)?)
    }
}

impl AsFd for Closings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open() -> io::Result<OwnedFd> {
    let diag = Some(Protocol::from_raw(PROTOCOL));
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    Ok(rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC,
        diag,
    )?)
}

/// recv(2) that a signal does not end.
fn receive(fd: &OwnedFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match rustix::net::recv(fd, &mut *buffer, flags) {
            Ok((read, _)) => return Ok(read),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// NETLINK_SOCK_DIAG.
const PROTOCOL: std::num::NonZeroU32 = std::num::NonZeroU32::new(4).unwrap();
/// SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY, 1 and 3, as bits.
const GROUPS: u32 = 1 << 0 | 1 << 2;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
const HEADER_BYTES: usize = 16;
/// The kernel fills up to 32 KiB a call, whatever more is offered (net/netlink/af_netlink.c, `netlink_dump`).
const DUMP_BYTES: usize = 64 << 10;
/// An event is 380 bytes on Linux 6.18; none is cut.
const EVENT_BYTES: usize = 8 << 10;
/// Some 60,000 events, which take about 1 KiB of it each: six seconds of 10,000 a second.
const QUEUE_BYTES: usize = 64 << 20;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use inet_diag::{Socket, state};

    #[test]
    fn a_connection_is_in_the_dump_and_its_end_among_the_closings() {
        let (Ok(mut dumper), Ok(mut closings)) = (Dumper::open(), Closings::open()) else {
            testing::skipped("no socket diagnosis here");
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[1; 5_000]).unwrap();
        far.read_exact(&mut [0; 5_000]).unwrap();
        let (local, remote) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        let mut found = Vec::new();
        let mut keep = |body: &[u8]| {
            let record = Socket::parse(body).unwrap().record();
            found.extend((record.local == local && record.remote == remote).then_some(record));
        };
        dumper.dump(1 << state::ESTABLISHED, &mut keep).unwrap();
        let [record] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(record.inode > 0 && record.info.unwrap().bytes_sent == 5_000);
        let cookie = record.cookie;
        drop((near, far));
        // The kernel says so from a work queue: wait for it, bounded.
        let mut bytes = None;
        for _ in 0..500 {
            let mut keep = |body: &[u8]| {
                let record = Socket::parse(body).unwrap().record();
                if record.cookie == cookie {
                    bytes = record.info.map(|i| i.bytes_sent);
                }
            };
            assert!(matches!(
                closings.read(10_000, &mut keep),
                Ok(Heard::Events(_))
            ));
            if bytes.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(bytes, Some(5_000));
    }
}
