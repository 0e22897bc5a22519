//! A receive ring: the kernel puts frames into memory that it shares with us, a block at a time, and wakes
//! us when a block is full or old (TPACKET_V3).
//!
//! For captures, which want every frame and no latency: one system call for thousands of frames, or none.
//! A filter is attached before the socket sees its first frame and cannot be taken off again. Frames that
//! find no room are counted by the kernel. What an interface is set to is not changed, but for the
//! promiscuous mode that is asked for, which ends with the socket.
//!
//! Left out: sending, fanout to several rings, frames larger than a block (their end is cut off).
//!
//! Sources: packet(7), Linux Documentation/networking/packet_mmap.rst, include/uapi/linux/if_packet.h,
//! net/packet/af_packet.c (tpacket_rcv, prb_*, packet_getsockopt).

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use units::Duration;
use wire::filter::Instruction;

use crate::clock;
use crate::packet::{PacketStatistics, set_option, socklen};

/// What a ring is to be.
#[derive(Clone, Copy, Debug)]
pub struct RingOptions<'o> {
    /// Index of the interface, in the calling thread's namespace.
    pub interface: u32,
    /// Which frames, and how many bytes of each ([`wire::filter::Filter::for_socket`]).
    pub filter: &'o [Instruction],
    /// Memory of the ring: rounded down to blocks, two at least.
    pub bytes: usize,
    /// Longest that a frame waits in a block that is not full; from 1 ms.
    pub retire: Duration,
    /// Stamps of the hardware where a frame has one. The interface must have been told to make them.
    pub hardware_stamps: bool,
    /// Also frames that are not addressed to this host.
    pub promiscuous: bool,
}

/// A packet socket with a ring.
#[derive(Debug)]
pub struct ReceiveRing {
    fd: OwnedFd,
    start: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    /// The block that the kernel fills next.
    next: usize,
}

// SAFETY: the mapping belongs to this value alone; the kernel's side is synchronised by the blocks' status
// words, from whichever thread.
unsafe impl Send for ReceiveRing {}

/// A block of frames, given back when dropped.
#[derive(Debug)]
pub struct Block<'r> {
    ring: &'r mut ReceiveRing,
}

/// A frame as the kernel has it.
#[derive(Clone, Copy, Debug)]
pub struct RingFrame<'b> {
    /// The first bytes, without a tag that stands beside them.
    pub bytes: &'b [u8],
    /// Bytes on the wire, without check sequence and without that tag.
    pub length: u32,
    /// Nanoseconds since 1970, by the clock that `stamp` says.
    pub time_ns: u64,
    /// Who made the time.
    pub stamp: StampSource,
    /// The outer VLAN tag, which the kernel took out of the bytes: its type and control information.
    pub tag: Option<(u16, u16)>,
    /// Whether it left by the interface.
    pub outgoing: bool,
}

/// Who stamped a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampSource {
    /// The interface's own clock.
    Hardware,
    /// The kernel, when it took the frame from the driver or was about to give it to one.
    Kernel,
    /// The kernel, when it wrote the frame into the ring.
    Ring,
}

impl ReceiveRing {
    /// Opens a socket with a ring on an interface.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW; `ENODEV` without such an interface; `ENOMEM` where the kernel has no
    /// memory for the ring; `ENETDOWN` where the interface is down.
    pub fn open(options: &RingOptions<'_>) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // Protocol 0 receives nothing until `bind`.
        // SAFETY: plain socket(2); the result is checked before it is owned.
        let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` is a descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let socket = fd.as_fd();
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        if options.hardware_stamps {
            let flags = libc::SOF_TIMESTAMPING_RAW_HARDWARE.cast_signed();
            set_option(socket, libc::SOL_PACKET, libc::PACKET_TIMESTAMP, flags)?;
        }
        // Without it the kernel would stamp frames only when it writes them into the ring.
        set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        attach(&fd, options.filter)?;
        set_option(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)?;
        let block_bytes = if options.bytes < 4 * BLOCK_BYTES {
            SMALL_BLOCK_BYTES
        } else {
            BLOCK_BYTES
        };
        let blocks = (options.bytes / block_bytes).max(2);
        request(&fd, block_bytes, blocks, options.retire)?;
        // SAFETY: no address is asked for, so nothing that is mapped is replaced; the socket has a ring of
        // exactly this size.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                block_bytes * blocks,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }?;
        let ring = Self {
            fd,
            start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            block_bytes,
            blocks,
            next: 0,
        };
        ring.bind(options.interface)?;
        if options.promiscuous {
            ring.promiscuous(options.interface)?;
        }
        Ok(ring)
    }

    /// The kind of the interface's hardware, as ARP numbers it (include/uapi/linux/if_arp.h).
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn hardware_type(&self) -> io::Result<u16> {
        let mut address = address(0);
        let mut length = socklen::<libc::sockaddr_ll>();
        // SAFETY: `address` is writable memory of the stated length.
        let rc = unsafe {
            libc::getsockname(
                self.fd.as_raw_fd(),
                (&raw mut address).cast(),
                &raw mut length,
            )
        };
        done(rc).map(|()| address.sll_hatype)
    }

    /// Memory of the ring.
    pub const fn bytes(&self) -> usize {
        self.block_bytes * self.blocks
    }

    /// The next block that the kernel is done with; `None` when there is none within `wait`.
    ///
    /// # Errors
    /// `ENETDOWN` when the interface went down or away. Frames in blocks before that are still given.
    pub fn next_block(&mut self, wait: Duration) -> io::Result<Option<Block<'_>>> {
        if !self.is_ours() {
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::ERR)];
            let wait = Timespec::try_from(wait.to_std()).ok();
            match poll(&mut fds, wait.as_ref()) {
                Err(rustix::io::Errno::INTR) => return Ok(None),
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            let failed = fds[0].revents().contains(PollFlags::ERR);
            if !self.is_ours() {
                if failed {
                    rustix::net::sockopt::socket_error(&self.fd)??;
                }
                return Ok(None);
            }
        }
        Ok(Some(Block { ring: self }))
    }

    /// Frames that passed the filter, and those of them that found no room, since the last call.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn statistics(&self) -> io::Result<PacketStatistics> {
        // SAFETY: an all-zero tpacket_stats_v3 is valid.
        let mut stats: libc::tpacket_stats_v3 = unsafe { mem::zeroed() };
        let mut length = socklen::<libc::tpacket_stats_v3>();
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
        done(rc)?;
        Ok(PacketStatistics {
            packets: stats.tp_packets.into(),
            drops: stats.tp_drops.into(),
        })
    }

    fn bind(&self, interface: u32) -> io::Result<()> {
        let address = address(interface);
        let length = socklen::<libc::sockaddr_ll>();
        // SAFETY: `address` is a sockaddr_ll of the stated length.
        done(unsafe { libc::bind(self.fd.as_raw_fd(), ptr::from_ref(&address).cast(), length) })?;
        // Of an interface that is down bind(2) says nothing, but leaves an error.
        Ok(rustix::net::sockopt::socket_error(&self.fd)??)
    }

    fn promiscuous(&self, interface: u32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: libc::c_int::try_from(interface).unwrap_or(libc::c_int::MAX),
            mr_type: PACKET_MR_PROMISC,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        // SAFETY: `request` is a live packet_mreq of the stated length.
        done(unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                ptr::from_ref(&request).cast(),
                socklen::<libc::packet_mreq>(),
            )
        })
    }

    /// True when the kernel has handed the next block over; all that it wrote there is seen then.
    fn is_ours(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: `next` is below `blocks`, so the word lies in the mapping, which outlives the reference;
        // blocks begin at pages, so it is aligned. Both sides touch it as a whole word only.
        unsafe {
            let block = self.start.as_ptr().add(self.next * self.block_bytes);
            AtomicU32::from_ptr(block.add(BLOCK_STATUS).cast())
        }
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: exactly what `open` mapped; blocks, which borrow from it, are gone.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

impl Block<'_> {
    /// The frames, in the order in which the kernel wrote them.
    pub fn frames(&self) -> impl Iterator<Item = RingFrame<'_>> {
        let bytes = self.bytes();
        let count = u32_at(bytes, BLOCK_FRAMES).unwrap_or(0);
        let mut at = u32_at(bytes, BLOCK_FIRST).unwrap_or(0) as usize;
        (0..count).map_while(move |_| {
            let header = bytes.get(at..)?;
            at = at.checked_add(u32_at(header, 0)? as usize)?;
            frame(header)
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the block lies in the mapping and is ours: the kernel does not write to it until its
        // status is given back, which needs this value mutably.
        unsafe {
            let start = self.ring.start.as_ptr();
            let block = start.add(self.ring.next * self.ring.block_bytes);
            slice::from_raw_parts(block, self.ring.block_bytes)
        }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        let status = self.ring.status();
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.ring.next = (self.ring.next + 1) % self.ring.blocks;
    }
}

/// A frame from its struct tpacket3_hdr on.
fn frame(header: &[u8]) -> Option<RingFrame<'_>> {
    let (seconds, nanoseconds) = (u32_at(header, 4)?, u32_at(header, 8)?);
    let kept = u32_at(header, 12)? as usize;
    let status = u32_at(header, 20)?;
    let start = usize::from(u16_at(header, 24)?);
    let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
        let kind = u16_at(header, 36).filter(|_| status & libc::TP_STATUS_VLAN_TPID_VALID != 0);
        let control = u16::try_from(u32_at(header, 32).unwrap_or(0)).unwrap_or(0);
        (kind.unwrap_or(TAG_TYPE), control)
    });
    Some(RingFrame {
        bytes: header.get(start..start.checked_add(kept)?)?,
        length: u32_at(header, 16)?,
        time_ns: clock::timespec_ns(seconds.into(), nanoseconds.into())?,
        stamp: if status & libc::TP_STATUS_TS_RAW_HARDWARE != 0 {
            StampSource::Hardware
        } else if status & libc::TP_STATUS_TS_SOFTWARE != 0 {
            StampSource::Kernel
        } else {
            StampSource::Ring
        },
        tag,
        outgoing: header.get(FRAME_PACKET_TYPE) == Some(&PACKET_OUTGOING),
    })
}

fn attach(fd: &OwnedFd, filter: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = filter
        .iter()
        .map(|i| libc::sock_filter {
            code: i.code,
            jt: i.jump_true,
            jf: i.jump_false,
            k: i.k,
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: `program` points to as many live instructions as it says; the kernel copies and checks them.
    done(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            ptr::from_ref(&program).cast(),
            socklen::<libc::sock_fprog>(),
        )
    })
}

fn request(fd: &OwnedFd, block_bytes: usize, blocks: usize, retire: Duration) -> io::Result<()> {
    let whole =
        |n: usize| u32::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let request = libc::tpacket_req3 {
        tp_block_size: whole(block_bytes)?,
        tp_block_nr: whole(blocks)?,
        // Frames are packed whatever is said here; the kernel only wants the product to be right.
        tp_frame_size: whole(FRAME_BYTES)?,
        tp_frame_nr: whole(block_bytes / FRAME_BYTES * blocks)?,
        tp_retire_blk_tov: u32::try_from(retire.as_ns() / 1_000_000)
            .unwrap_or(u32::MAX)
            .max(1),
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    // SAFETY: `request` is a live tpacket_req3 of the stated length.
    done(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_RX_RING,
            ptr::from_ref(&request).cast(),
            socklen::<libc::tpacket_req3>(),
        )
    })
}

/// All protocols of an interface.
fn address(interface: u32) -> libc::sockaddr_ll {
    // SAFETY: an all-zero sockaddr_ll is valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = AF_PACKET;
    address.sll_protocol = ETH_P_ALL.to_be();
    address.sll_ifindex = libc::c_int::try_from(interface).unwrap_or(libc::c_int::MAX);
    address
}

fn done(rc: libc::c_int) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*half))
}

/// Thousands of headers or some super-frames; a smaller one where the whole ring is to be small.
const BLOCK_BYTES: usize = 1 << 20;
const SMALL_BLOCK_BYTES: usize = 1 << 17;
const FRAME_BYTES: usize = 2048;

// struct tpacket_block_desc: version, offset_to_priv, then struct tpacket_hdr_v1.
const BLOCK_STATUS: usize = 8;
const BLOCK_FRAMES: usize = 12;
const BLOCK_FIRST: usize = 16;
/// `sll_pkttype` of the sockaddr_ll behind struct tpacket3_hdr, which has 48 bytes.
const FRAME_PACKET_TYPE: usize = 48 + 10;
const PACKET_OUTGOING: u8 = 4;
const PACKET_MR_PROMISC: libc::c_ushort = 1;
const AF_PACKET: u16 = 17;
const ETH_P_ALL: u16 = 3;
/// ETH_P_8021Q, where the kernel does not say which.
const TAG_TYPE: u16 = 0x8100;

const _: () = assert!(size_of::<libc::tpacket3_hdr>() == 48);

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::ethtool::{HardwareStamps, hardware_stamps};
    use crate::netlink::{Netlink, VethEnd};
    use crate::netns::NetNs;
    use crate::packet::PacketSocket;
    use wire::filter::{Filter, Way};

    /// A namespace with a veth whose both ends are up, if namespaces can be made.
    fn veth() -> Option<NetNs> {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return None;
        };
        let end = |name, mac| VethEnd {
            name,
            mac: [2, 0, 0, 0, 0, mac],
            netns: ns.as_fd(),
        };
        ns.run(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_veth(end("left", 1), end("right", 2))?;
            netlink.set_up("left", None)?;
            netlink.set_up("right", None)
        })
        .unwrap()
        .unwrap();
        Some(ns)
    }

    fn open(filter: &str, way: Way) -> io::Result<ReceiveRing> {
        let filter = Filter::parse(filter).unwrap().for_socket(96, way).unwrap();
        ReceiveRing::open(&RingOptions {
            interface: Netlink::open()?.index_of("left")?,
            filter: &filter,
            bytes: 1 << 18,
            retire: Duration::from_ms(1),
            hardware_stamps: true,
            promiscuous: true,
        })
    }

    #[test]
    fn the_kernel_takes_programs_of_all_kinds() {
        let Some(ns) = veth() else { return };
        let hosts: Vec<String> = (0..250).map(|i| format!("src 10.0.0.{i}")).collect();
        for filter in [
            "",
            "2 > 1",
            "1 > 2",
            "host 192.0.2.1 and not port 22",
            "vlan 5 and tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
            "net 2001:db8::/33 or ether[10:4] = 0x18100",
            "ip[0] / ip[1] > ((ip[2] + ip[3]) * -(ip[4] ^ 7)) or len % 3 = 1",
            "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
            &hosts.join(" or "),
        ] {
            for way in [Way::In, Way::Out, Way::Both] {
                let ring = ns.run(|| open(filter, way)).unwrap();
                let ring = ring.unwrap_or_else(|e| panic!("{filter:.60}: {e}"));
                assert_eq!(ring.hardware_type().unwrap(), 1);
            }
        }
    }

    #[test]
    fn frames_come_in_order_cut_and_stamped_and_a_tag_beside_them() {
        let Some(ns) = veth() else { return };
        let (mut ring, sender) = ns
            .run(|| -> io::Result<_> {
                let right = Netlink::open()?.index_of("right")?;
                // Whole frames of a kind that nobody else sends.
                let filter = "ether proto 0x88b5 or (vlan 7 and ether proto 0x88b5)";
                Ok((open(filter, Way::In)?, PacketSocket::open(right, 1 << 16)?))
            })
            .unwrap()
            .unwrap();
        let mut batch = crate::packet::SendBatch::new(4);
        let before = clock::realtime_ns();
        for number in 0..4_u8 {
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
            if number % 2 == 1 {
                frame.extend([0x81, 0, 0x60, 7]);
            }
            frame.extend([0x88, 0xb5, number]);
            frame.resize(150, 0);
            batch.push([0; 10], &frame, 0, 0..0);
        }
        assert_eq!(sender.send(&mut batch, |_| &[]).unwrap(), 0);
        let mut seen = Vec::new();
        for _ in 0..1_000 {
            let Some(block) = ring.next_block(Duration::from_ms(10)).unwrap() else {
                continue;
            };
            for frame in block.frames() {
                assert!((before..=clock::realtime_ns()).contains(&frame.time_ns));
                assert_ne!(frame.stamp, StampSource::Hardware);
                assert!(!frame.outgoing);
                seen.push((frame.bytes[14], frame.bytes.len(), frame.length, frame.tag));
            }
            if seen.len() >= 4 {
                break;
            }
        }
        let tag = Some((0x8100, 0x6007));
        let expected = [
            (0, 96, 150, None),
            (1, 96, 146, tag),
            (2, 96, 150, None),
            (3, 96, 146, tag),
        ];
        assert_eq!(seen, expected);
        let counted = ring.statistics().unwrap();
        assert_eq!((counted.packets, counted.drops), (4, 0));
        assert_eq!(ring.statistics().unwrap(), PacketStatistics::default());
        let stamps = ns.run(|| hardware_stamps("left")).unwrap();
        assert_eq!(stamps, HardwareStamps::default());
    }
}
