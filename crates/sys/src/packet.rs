//! Packet sockets that carry whole GSO super-frames, with kernel receive stamps.
//!
//! PACKET_VNET_HDR puts a `virtio_net_hdr` before each frame in both directions, so that a 64 KiB
//! train crosses as one message with its checksum still partial. PACKET_IGNORE_OUTGOING keeps our
//! own frames from coming back; PACKET_QDISC_BYPASS sends straight to the driver.
//!
//! Sources: packet(7), Linux net/packet/af_packet.c, include/linux/virtio_net.h.

use std::io;
use std::mem::{self, MaybeUninit};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::clock;
use crate::cmsg;

/// A raw packet socket bound to one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    receive_buffer_bytes: u64,
}

/// One received frame.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes written to the buffer, vnet header included.
    pub len: usize,
    /// Length on the wire; above `len` when the buffer was too small.
    pub full_len: usize,
    /// Kernel receive stamp, CLOCK_REALTIME nanoseconds; `None` when the kernel gave none.
    pub stamp_realtime_ns: Option<u64>,
}

/// Counters of PACKET_STATISTICS since the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketStatistics {
    /// Frames seen.
    pub packets: u64,
    /// Frames lost since the socket's buffer was full.
    pub drops: u64,
}

/// Frames gathered for one system call. Each is a vnet header, rewritten headers (maybe none) and a
/// range of the memory that frames are kept in, sent without copying the payload in user space.
#[derive(Debug)]
pub struct SendBatch {
    parts: Vec<Part>,
    len: usize,
    /// Scratch for the system call, kept to avoid allocating.
    iovecs: Vec<[libc::iovec; 3]>,
    messages: Vec<libc::mmsghdr>,
}

#[derive(Clone, Debug)]
struct Part {
    vnet: [u8; VNET_HDR_BYTES],
    headers: [u8; HEADERS_MAX_BYTES],
    headers_len: usize,
    /// Which memory the payload lies in, and where.
    memory: u16,
    payload: Range<usize>,
}

// SAFETY: the raw pointers in the scratch vectors are written by `send` right before the system call
// that reads them; between calls nobody reads them, so the batch may move to another thread.
unsafe impl Send for SendBatch {}

/// Size of the legacy virtio_net_hdr that PACKET_VNET_HDR uses.
pub const VNET_HDR_BYTES: usize = 10;
/// Longest headers of a cut segment: Ethernet, two tags, IPv6 with options, TCP with options.
pub const HEADERS_MAX_BYTES: usize = 256;

impl PacketSocket {
    /// Opens a socket on the interface `index` in the calling thread's namespace and asks for
    /// `buffer_bytes` of receive buffer (by force where allowed).
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW; `ENOPROTOOPT` in a kernel that lacks an option named above.
    pub fn open(index: u32, buffer_bytes: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Protocol 0 receives nothing until bind names the interface: no frame of another interface
        // slips in between.
        // SAFETY: plain socket(2); the result is checked before it is owned.
        let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` is a descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let fd_ref = fd.as_fd();
        set_option(fd_ref, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set_option(fd_ref, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        set_option(fd_ref, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        set_option(fd_ref, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        let want = libc::c_int::try_from(buffer_bytes).unwrap_or(libc::c_int::MAX);
        for (force, plain) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            set_option(fd_ref, libc::SOL_SOCKET, force, want)
                .or_else(|_| set_option(fd_ref, libc::SOL_SOCKET, plain, want))?;
        }
        let receive_buffer_bytes =
            u64::from(option_u32(fd_ref, libc::SOL_SOCKET, libc::SO_RCVBUF)?);
        // SAFETY: an all-zero sockaddr_ll is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = AF_PACKET;
        address.sll_protocol = ETH_P_ALL.to_be();
        address.sll_ifindex = libc::c_int::try_from(index).unwrap_or(libc::c_int::MAX);
        let length = socklen::<libc::sockaddr_ll>();
        // SAFETY: `address` is a sockaddr_ll of the stated length.
        let bound = unsafe { libc::bind(raw, ptr::from_ref(&address).cast(), length) };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            fd,
            receive_buffer_bytes,
        })
    }

    /// Makes the interface `index` take frames that are not addressed to it, while the socket lives.
    ///
    /// # Errors
    /// As setsockopt(2) PACKET_ADD_MEMBERSHIP.
    pub fn promiscuous(&self, index: u32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: libc::c_int::try_from(index).unwrap_or(libc::c_int::MAX),
            mr_type: PACKET_MR_PROMISC,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        // SAFETY: `request` is a live packet_mreq of the stated length.
        let rc = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                ptr::from_ref(&request).cast(),
                socklen::<libc::packet_mreq>(),
            )
        };
        if rc == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The receive buffer that the kernel granted, as it accounts it.
    pub const fn receive_buffer_bytes(&self) -> u64 {
        self.receive_buffer_bytes
    }

    /// Takes the next frame, vnet header first, or `None` when there is none.
    ///
    /// # Errors
    /// `ENETDOWN` when the interface went down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = MaybeUninit::<[u64; 8]>::uninit();
        let mut iovec = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: an all-zero msghdr is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &raw mut iovec;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: iovec and control point to live, writable memory of the stated lengths.
        let n = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, flags) };
        let Ok(full_len) = usize::try_from(n) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        Ok(Some(Received {
            len: full_len.min(buffer.len()),
            full_len,
            stamp_realtime_ns: receive_stamp(&message),
        }))
    }

    /// Sends the batch, whose payloads lie in what `memory` gives for their numbers, and empties it. Returns how many frames the
    /// kernel refused (its buffers were full, the frame impossible): those are lost.
    ///
    /// # Errors
    /// What sendmmsg(2) says beyond that; the rest of the batch is dropped then.
    ///
    /// # Panics
    /// When a payload range lies outside its memory.
    pub fn send<'m>(
        &self,
        batch: &mut SendBatch,
        memory: impl Fn(u16) -> &'m [u8],
    ) -> io::Result<usize> {
        let total = mem::take(&mut batch.len);
        batch.point_into(memory, total);
        let mut done = 0;
        let mut refused = 0;
        while done < total {
            let rest = &mut batch.messages[done..total];
            let count = libc::c_uint::try_from(rest.len()).unwrap_or(libc::c_uint::MAX);
            // SAFETY: `point_into` made each message point to parts of this batch and slices that
            // `memory` gave, all borrowed for the whole of this function.
            let n = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), rest.as_mut_ptr(), count, 0) };
            if let Ok(n) = usize::try_from(n) {
                done += n;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ENOBUFS | libc::EAGAIN | libc::EMSGSIZE | libc::EINVAL) => {
                    refused += 1;
                    done += 1;
                }
                _ => return Err(error),
            }
        }
        Ok(refused)
    }

    /// Frames seen and lost by the kernel since the last call.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn statistics(&self) -> io::Result<PacketStatistics> {
        let mut stats = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut length = socklen::<libc::tpacket_stats>();
        // SAFETY: `stats` is writable memory of the stated length.
        let rc = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PacketStatistics {
            packets: stats.tp_packets.into(),
            drops: stats.tp_drops.into(),
        })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SendBatch {
    /// An empty batch that holds up to `capacity` frames.
    pub fn new(capacity: usize) -> Self {
        let none = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        let part = Part {
            vnet: [0; VNET_HDR_BYTES],
            headers: [0; HEADERS_MAX_BYTES],
            headers_len: 0,
            memory: 0,
            payload: 0..0,
        };
        // SAFETY: an all-zero mmsghdr is valid.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        Self {
            parts: vec![part; capacity],
            len: 0,
            iovecs: vec![[none; 3]; capacity],
            messages: vec![message; capacity],
        }
    }

    /// True without frames.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when no further frame fits.
    pub fn is_full(&self) -> bool {
        self.len == self.parts.len()
    }

    /// Adds a frame: vnet header, rewritten headers, and the range of the memory called `memory` that
    /// follows.
    ///
    /// # Panics
    /// When the batch is full or `headers` is longer than [`HEADERS_MAX_BYTES`].
    pub fn push(
        &mut self,
        vnet: [u8; VNET_HDR_BYTES],
        headers: &[u8],
        memory: u16,
        payload: Range<usize>,
    ) {
        assert!(!self.is_full(), "push into a full batch");
        let part = &mut self.parts[self.len];
        part.vnet = vnet;
        part.headers[..headers.len()].copy_from_slice(headers);
        part.headers_len = headers.len();
        part.memory = memory;
        part.payload = payload;
        self.len += 1;
    }

    /// Empties the batch without sending: `each` gets the bytes of every frame, vnet header first.
    /// How many there were. For networks without sockets.
    pub fn drain_into<'m>(
        &mut self,
        memory: impl Fn(u16) -> &'m [u8],
        mut each: impl FnMut(&[&[u8]; 3]),
    ) -> usize {
        let total = mem::take(&mut self.len);
        for part in &self.parts[..total] {
            let payload = &memory(part.memory)[part.payload.clone()];
            each(&[&part.vnet, &part.headers[..part.headers_len], payload]);
        }
        total
    }

    fn point_into<'m>(&mut self, memory: impl Fn(u16) -> &'m [u8], total: usize) {
        let parts = self
            .parts
            .iter()
            .zip(&mut self.iovecs)
            .zip(&mut self.messages)
            .take(total);
        for ((part, iovecs), message) in parts {
            iovecs[0] = iovec(&part.vnet);
            iovecs[1] = iovec(&part.headers[..part.headers_len]);
            iovecs[2] = iovec(&memory(part.memory)[part.payload.clone()]);
            message.msg_hdr.msg_iov = iovecs.as_mut_ptr();
            message.msg_hdr.msg_iovlen = iovecs.len();
        }
    }
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn receive_stamp(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: recvmsg filled in the control buffer, which outlives this.
    let mut all = unsafe { cmsg::received(message) };
    let stamp = all.find(|control| control.kind == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS))?;
    let time: libc::timespec = stamp.value()?;
    clock::timespec_ns(time.tv_sec, time.tv_nsec)
}

pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: `value` is a live c_int of the stated length.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            socklen::<libc::c_int>(),
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn option_u32(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<u32> {
    let mut value: libc::c_int = 0;
    let mut length = socklen::<libc::c_int>();
    // SAFETY: `value` is writable memory of the stated length.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if rc == 0 {
        Ok(u32::try_from(value).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "kernel structs are far below 4 GiB"
)]
pub(crate) const fn socklen<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// Linux include/uapi/linux/if_packet.h; since 4.20.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Linux include/uapi/linux/if_packet.h.
const PACKET_MR_PROMISC: libc::c_ushort = 1;
/// Linux include/linux/socket.h, as a sockaddr's family is declared.
const AF_PACKET: u16 = 17;
/// Linux include/uapi/linux/if_ether.h: every protocol.
const ETH_P_ALL: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_that_is_too_short_is_none() {
        let (mut buffer, kind) = ([0; 16], (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS));
        let mut stamp = |bytes| receive_stamp(&cmsg::shortened(kind, bytes, 1, &mut buffer));
        assert!(stamp(16).is_some());
        assert_eq!(stamp(15), None);
    }
}
