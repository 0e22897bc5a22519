//! Packets that wait in the kernel for a program's verdict (NFQUEUE).
//!
//! Only the first bytes of each packet are copied up. A packet without a verdict stays in the queue; when
//! the program ends, the queue and what is in it go, and rules that say so let later packets pass.
//!
//! Sources: Linux include/uapi/linux/netfilter/nfnetlink_queue.h, net/netfilter/nfnetlink_queue.c.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::nfnetlink::{Attributes, FAMILY_BYTES, Request, Socket, attributes, messages};

/// One queue, in the namespace of the thread that bound it.
#[derive(Debug)]
pub struct Queue {
    socket: Socket,
    number: u16,
    buffer: Vec<u8>,
}

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// What the verdict names.
    pub id: u32,
    /// Index of the interface that it came in by, 0 if none.
    pub interface: u32,
    /// The packet from its IP header on, as much as was asked for.
    pub bytes: &'a [u8],
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on to the next chain with this mark.
    Go(u32),
    /// It is gone.
    Drop,
}

impl Queue {
    /// Binds queue `number`, which holds up to `packets`; what comes beyond goes on as if there were no
    /// queue. Up to `copy_bytes` of each packet are handed over.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN, `EBUSY` when somebody has the queue, `EPROTONOSUPPORT` or `EINVAL`
    /// in a kernel without NFQUEUE.
    pub fn bind(number: u16, packets: u32, copy_bytes: u16) -> io::Result<Self> {
        Self::bind_with(number, packets, copy_bytes, CFG_F_FAIL_OPEN)
    }

    /// As [`Self::bind`]; segments that are still to be cut wait as one packet.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn bind_whole(number: u16, packets: u32, copy_bytes: u16) -> io::Result<Self> {
        Self::bind_with(number, packets, copy_bytes, CFG_F_FAIL_OPEN | CFG_F_GSO)
    }

    fn bind_with(number: u16, packets: u32, copy_bytes: u16, flags: u32) -> io::Result<Self> {
        let mut socket = Socket::open()?;
        socket.set_receive_buffer(SOCKET_BYTES);
        let configure = |attributes| Request {
            kind: u16::from(SUBSYSTEM) << 8 | MSG_CONFIG,
            flags: 0,
            family: 0,
            resource: number,
            attributes,
        };
        // struct nfqnl_msg_config_cmd: command, padding, protocol family.
        let bind = Attributes::new().bytes(CFG_CMD, &[CMD_BIND, 0, 0, 0]);
        socket.request(&configure(bind))?;
        // struct nfqnl_msg_config_params: bytes to copy, mode.
        let mut params = u32::from(copy_bytes).to_be_bytes().to_vec();
        params.push(COPY_PACKET);
        let how = Attributes::new()
            .bytes(CFG_PARAMS, &params)
            .be32(CFG_QUEUE_MAXLEN, packets)
            .be32(CFG_MASK, flags)
            .be32(CFG_FLAGS, flags);
        socket.request(&configure(how))?;
        Ok(Self {
            socket,
            number,
            buffer: vec![0; AT_ONCE * BUFFER_BYTES],
        })
    }

    /// Queue `number` as another process bound it and sent it here, with all that waits in it.
    pub fn from_fd(fd: OwnedFd, number: u16) -> Self {
        Self {
            socket: Socket::from_fd(fd),
            number,
            buffer: vec![0; AT_ONCE * BUFFER_BYTES],
        }
    }

    /// Hands every packet that has come to `each`, without waiting; returns how many there were.
    ///
    /// # Errors
    /// As recv(2), but for its having nothing. `ENOBUFS` says that some never reached this program and
    /// are gone.
    pub fn receive(&mut self, mut each: impl FnMut(Held<'_>)) -> io::Result<usize> {
        let mut count = 0;
        while count < BURST {
            let lengths = match self.socket.receive_some::<AT_ONCE>(&mut self.buffer) {
                Ok(lengths) => lengths,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            };
            let buffers = self.buffer.chunks_exact(BUFFER_BYTES);
            for (buffer, read) in buffers.zip(lengths.into_iter().flatten()) {
                for message in messages(&buffer[..read]) {
                    let body = message.body.get(FAMILY_BYTES..).unwrap_or_default();
                    if message.kind == u16::from(SUBSYSTEM) << 8 | MSG_PACKET
                        && let Some(held) = held(body)
                    {
                        count += 1;
                        each(held);
                    }
                }
            }
            // There were no more.
            if lengths[AT_ONCE - 1].is_none() {
                break;
            }
        }
        Ok(count)
    }

    /// Decides on a packet.
    ///
    /// # Errors
    /// As send(2). A packet that is there no longer is none.
    pub fn decide(&mut self, id: u32, fate: Fate) -> io::Result<()> {
        let verdict = match fate {
            Fate::Go(_) => NF_ACCEPT,
            Fate::Drop => NF_DROP,
        };
        let mut head = verdict.to_be_bytes().to_vec();
        head.extend(id.to_be_bytes());
        let mut attributes = Attributes::new().bytes(A_VERDICT_HDR, &head);
        if let Fate::Go(mark) = fate {
            attributes = attributes.be32(A_MARK, mark);
        }
        self.socket.post(&Request {
            kind: u16::from(SUBSYSTEM) << 8 | MSG_VERDICT,
            flags: 0,
            family: 0,
            resource: self.number,
            attributes,
        })
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn held(body: &[u8]) -> Option<Held<'_>> {
    let be32 = |value: &[u8]| Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?));
    let (mut id, mut interface, mut bytes) = (None, 0, &[][..]);
    for (kind, value) in attributes(body) {
        match kind {
            A_PACKET_HDR => id = be32(value),
            A_IFINDEX_INDEV => interface = be32(value)?,
            A_PAYLOAD => bytes = value,
            _ => {}
        }
    }
    Some(Held {
        id: id?,
        interface,
        bytes,
    })
}

const SUBSYSTEM: u8 = 3;
const MSG_PACKET: u16 = 0;
const MSG_VERDICT: u16 = 1;
const MSG_CONFIG: u16 = 2;
const CFG_CMD: u16 = 1;
const CFG_PARAMS: u16 = 2;
const CFG_QUEUE_MAXLEN: u16 = 3;
const CFG_MASK: u16 = 4;
const CFG_FLAGS: u16 = 5;
const CFG_F_FAIL_OPEN: u32 = 1;
const CFG_F_GSO: u32 = 4;
const CMD_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const A_PACKET_HDR: u16 = 1;
const A_VERDICT_HDR: u16 = 2;
const A_MARK: u16 = 3;
const A_IFINDEX_INDEV: u16 = 5;
const A_PAYLOAD: u16 = 10;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
/// One packet's message is some 300 bytes here; the kernel sends one a datagram.
const BUFFER_BYTES: usize = 8 * 1024;
/// Messages that one system call fetches.
const AT_ONCE: usize = 16;
/// A message takes up to 1 KiB of it (skb->truesize): 4096 SYNs at once.
const SOCKET_BYTES: usize = 4 << 20;
/// Packets in a row, so that a flood does not starve the rest.
const BURST: usize = 256;
