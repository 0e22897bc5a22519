//! Netfilter's netlink: requests, batches and the attributes that they are made of.
//!
//! A request is a header, four bytes that name a protocol family and a resource, and attributes, some
//! of which hold attributes. Numbers inside attributes are in network order, lengths in host order.
//!
//! Sources: netlink(7), Linux include/uapi/linux/netfilter/nfnetlink.h, net/netfilter/nfnetlink.c.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};

use crate::netlink::{DUMPS, changed};

/// Attributes under construction.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    bytes: Vec<u8>,
}

impl Attributes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends raw bytes.
    #[must_use]
    pub fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(HEAD_BYTES + value.len()).unwrap_or(u16::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Appends a text, with the zero byte that the kernel wants.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// Appends a number of 32 bits.
    #[must_use]
    pub fn be32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Appends a number of 16 bits.
    #[must_use]
    pub fn be16(self, kind: u16, value: u16) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Appends attributes as the value of one.
    #[must_use]
    pub fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NLA_F_NESTED, &inner.bytes)
    }

    /// Appends attributes beside these.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        self.bytes.extend(&others.bytes);
        self
    }
}

/// Attributes of a message, one after the other: kind without its flags, value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.get(..HEAD_BYTES)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & !(NLA_F_NESTED | NLA_F_NET_BYTEORDER);
        let value = bytes.get(HEAD_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// One request: its type (subsystem and message), flags beside `NLM_F_REQUEST`, family, resource.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) family: u8,
    pub(crate) resource: u16,
    pub(crate) attributes: Attributes,
}

/// A message that the kernel sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages in what one read returned.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let head = bytes.get(..MESSAGE_BYTES)?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = usize::try_from(word(0)).unwrap_or(usize::MAX);
        let message = Message {
            kind: u16::from_ne_bytes([head[4], head[5]]),
            flags: u16::from_ne_bytes([head[6], head[7]]),
            sequence: word(8),
            body: bytes.get(MESSAGE_BYTES..length)?,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// A netfilter netlink socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Opens a socket.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` in a kernel without netfilter's netlink.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let netfilter = Some(Protocol::from_raw(PROTOCOL));
        let fd =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, netfilter)?;
        // An acknowledgement that was lost would be waited for without end.
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// One that another process opened and sent here: what the kernel ties to its number stays.
    pub(crate) const fn from_fd(fd: OwnedFd) -> Self {
        Self { fd, sequence: 0 }
    }

    /// Sends one request and waits for its acknowledgement.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn request(&mut self, request: &Request) -> io::Result<()> {
        let mut bytes = Vec::new();
        let number = self.put(&mut bytes, request, NLM_F_ACK);
        rustix::net::send(&self.fd, &bytes, SendFlags::empty())?;
        self.acknowledged(number, number)
    }

    /// Asks for a list, and returns what `each` makes of the bodies of its messages. A list that changed while
    /// it was sent is asked for again.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn dump<T>(
        &mut self,
        request: &Request,
        each: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..DUMPS {
            let mut bytes = Vec::new();
            let number = self.put(&mut bytes, request, NLM_F_DUMP);
            rustix::net::send(&self.fd, &bytes, SendFlags::empty())?;
            if let Some(list) = self.listed(number, &each)? {
                return Ok(list);
            }
        }
        Err(changed())
    }

    /// The list that answers a request; `None` where it changed meanwhile.
    fn listed<T>(
        &self,
        number: u32,
        each: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<Vec<T>>> {
        let mut buffer = vec![0; RECEIVE_BYTES];
        let (mut list, mut whole) = (Vec::new(), true);
        loop {
            let (read, _) = rustix::net::recv(&self.fd, &mut buffer, RecvFlags::empty())?;
            for message in messages(&buffer[..read]).filter(|m| m.sequence == number) {
                whole &= message.flags & NLM_F_DUMP_INTR == 0;
                match (message.kind, message.body) {
                    (NLMSG_DONE, _) => return Ok(whole.then_some(list)),
                    (NLMSG_ERROR, [a, b, c, d, ..]) => {
                        let code = i32::from_ne_bytes([*a, *b, *c, *d]);
                        return Err(io::Error::from_raw_os_error(-code));
                    }
                    (_, body) => list.extend(each(body)),
                }
            }
        }
    }

    /// Sends one request that nothing answers.
    ///
    /// # Errors
    /// As send(2).
    pub(crate) fn post(&mut self, request: &Request) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.put(&mut bytes, request, 0);
        rustix::net::send(&self.fd, &bytes, SendFlags::empty())?;
        Ok(())
    }

    /// Has the kernel do all of `requests`, to `subsystem`, or none.
    ///
    /// # Errors
    /// The first that the kernel refuses.
    pub(crate) fn batch(&mut self, subsystem: u8, requests: &[Request]) -> io::Result<()> {
        let edge = |kind| Request {
            kind,
            flags: 0,
            family: 0,
            resource: u16::from(subsystem),
            attributes: Attributes::new(),
        };
        let mut bytes = Vec::new();
        self.put(&mut bytes, &edge(BATCH_BEGIN), 0);
        let (mut first, mut last) = (0, 0);
        for request in requests {
            last = self.put(&mut bytes, request, NLM_F_ACK);
            first = if first == 0 { last } else { first };
        }
        self.put(&mut bytes, &edge(BATCH_END), 0);
        rustix::net::send(&self.fd, &bytes, SendFlags::empty())?;
        self.acknowledged(first, last)
    }

    /// Sizes the buffer for what the kernel sends.
    pub(crate) fn set_receive_buffer(&self, bytes: usize) {
        // More than net.core.rmem_max needs privilege over the machine; what is granted has to do.
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, bytes).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&self.fd, bytes);
        }
    }

    /// Reads up to `N` datagrams that the kernel sent, without waiting, each into its part of `buffer`, which
    /// has `N` equal ones; how long each is.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing, `ENOBUFS` when something was lost.
    pub(crate) fn receive_some<const N: usize>(
        &self,
        buffer: &mut [u8],
    ) -> io::Result<[Option<usize>; N]> {
        let each = buffer.len() / N;
        let base = buffer.as_mut_ptr();
        let mut parts: [libc::iovec; N] = std::array::from_fn(|at| libc::iovec {
            // Inside of the buffer: `at` is less than N.
            iov_base: base.wrapping_add(at * each).cast(),
            iov_len: each,
        });
        let mut heads: [libc::mmsghdr; N] = std::array::from_fn(|at| {
            // SAFETY: a mmsghdr of zeros is one without address, data or control part.
            let mut head: libc::mmsghdr = unsafe { std::mem::zeroed() };
            head.msg_hdr.msg_iov = &raw mut parts[at];
            head.msg_hdr.msg_iovlen = 1;
            head
        });
        // SAFETY: N heads, each with one part of `buffer`; the parts do not overlap, and buffer, parts and
        // heads outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                heads.as_mut_ptr(),
                u32::try_from(N).unwrap_or(0),
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(std::array::from_fn(|at| {
            (at < count).then_some(heads[at].msg_len as usize)
        }))
    }

    fn put(&mut self, bytes: &mut Vec<u8>, request: &Request, flags: u16) -> u32 {
        self.sequence += 1;
        let length = MESSAGE_BYTES + FAMILY_BYTES + request.attributes.bytes.len();
        bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        bytes.extend(request.kind.to_ne_bytes());
        bytes.extend((request.flags | flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend([request.family, 0]);
        bytes.extend(request.resource.to_be_bytes());
        bytes.extend(&request.attributes.bytes);
        self.sequence
    }

    /// Reads until all of `first..=last` are acknowledged.
    fn acknowledged(&self, first: u32, last: u32) -> io::Result<()> {
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut refused = None;
        let mut left = last - first + 1;
        while left > 0 {
            let (read, _) = rustix::net::recv(&self.fd, &mut buffer, RecvFlags::empty()).map_err(
                |e| match e {
                    rustix::io::Errno::AGAIN => io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the kernel did not acknowledge a request of netfilter",
                    ),
                    e => e.into(),
                },
            )?;
            for message in messages(&buffer[..read]) {
                if message.kind != NLMSG_ERROR || message.body.len() < 4 {
                    continue;
                }
                let code = &message.body[..4];
                let code = i32::from_ne_bytes([code[0], code[1], code[2], code[3]]);
                if code != 0 && refused.is_none() {
                    refused = Some(io::Error::from_raw_os_error(-code));
                }
                // A batch that is refused as a whole is answered at its first message.
                if message.sequence + 1 == first && code != 0 {
                    left = 0;
                } else if (first..=last).contains(&message.sequence) {
                    left = left.saturating_sub(1);
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// NETLINK_NETFILTER.
const PROTOCOL: rustix::net::RawProtocol = match std::num::NonZero::new(12) {
    Some(protocol) => protocol,
    None => unreachable!(),
};
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// The list changed while it was sent.
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLA_F_NESTED: u16 = 1 << 15;
const NLA_F_NET_BYTEORDER: u16 = 1 << 14;
/// struct nlattr.
const HEAD_BYTES: usize = 4;
/// struct nlmsghdr.
const MESSAGE_BYTES: usize = 16;
/// struct nfgenmsg.
pub(crate) const FAMILY_BYTES: usize = 4;
const RECEIVE_BYTES: usize = 32 * 1024;
/// For an acknowledgement, which comes with the request itself.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let inner = Attributes::new().be16(1, 0x0102);
        let whole = Attributes::new().text(2, "ab").nested(3, &inner).be32(4, 5);
        let read: Vec<(u16, &[u8])> = attributes(&whole.bytes).collect();
        assert_eq!(read[0], (2, &b"ab\0"[..]));
        assert_eq!(read[1].0, 3);
        assert_eq!(attributes(read[1].1).next(), Some((1, &[1, 2][..])));
        assert_eq!(read[2], (4, &[0, 0, 0, 5][..]));
        assert_eq!(read.len(), 3);
    }

    #[test]
    fn bytes_that_end_early_end_the_list() {
        let whole = Attributes::new().be32(1, 1).be32(2, 2).bytes;
        for cut in 0..whole.len() {
            assert!(attributes(&whole[..cut]).count() < 2);
        }
        assert_eq!(attributes(&[0; 64]).count(), 0);
    }
}
