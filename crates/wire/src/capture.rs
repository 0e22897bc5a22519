//! Captures read packet by packet: pcap and pcapng, as tcpdump, Wireshark and switches write them.
//!
//! [`Reader`] walks over bytes that the caller has, be it a whole file or a piece; [`Stream`] keeps
//! the unread tail between pieces for files that come in chunks: read, decompressed, still growing.
//! Neither reads a file. Every length is checked against a bound before it is believed, so a
//! hostile capture costs at most [`BLOCK_BYTES_MAX`] of buffer and [`INTERFACES_MAX`] interfaces.
//! What was readable is handed over; [`Stopped`] says where reading ended and why. Nothing is
//! skipped over to find a next packet behind damage: a wrong length leaves no place to go on from.
//!
//! pcap in both byte orders, with microseconds, nanoseconds, and in the form with longer record
//! headers that old Linux patches wrote. pcapng with any number of sections, each in its own byte
//! order; packets in enhanced, simple and obsolete blocks; counters of interface statistics.
//!
//! snoop (RFC 1761), and Endace's records (ERF), which have no magic number: a file is taken for one by
//! the fields of its first record.
//!
//! Left out: name resolution, decryption secrets, the corrections of time zone in pcap's header
//! (always zero), frame check sequences, formats of other tools (Network Monitor).
//!
//! Reading: IETF draft-ietf-opsawg-pcap section 4 and 5 (pcap), draft-ietf-opsawg-pcapng sections 3
//! and 4 (pcapng), the tcpdump group's list of link types.

mod block;
mod clock;
mod interface;
mod options;
mod reader;
mod stream;

use std::fmt;

use crate::pcapng::{self, Direction};

pub use interface::{Counters, Interface};
pub use options::Options;
pub use reader::Reader;
pub use stream::{Advance, Stream};

/// What a captured packet begins with, by the number in the tcpdump group's list of link types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: four bytes of address family in the capturing host's byte order.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// IP without a header before it, as some systems number it.
    pub const RAW_BSD: Self = Self(12);
    /// IP without a header before it, as OpenBSD numbers it.
    pub const RAW_OPENBSD: Self = Self(14);
    /// IP without a header before it.
    pub const RAW: Self = Self(101);
    /// OpenBSD loopback: four bytes of address family, big-endian.
    pub const LOOP: Self = Self(108);
    /// Linux cooked capture, version 1.
    pub const LINUX_COOKED: Self = Self(113);
    /// IPv4 without a header before it.
    pub const IPV4: Self = Self(228);
    /// IPv6 without a header before it.
    pub const IPV6: Self = Self(229);
    /// Linux cooked capture, version 2: what `tcpdump -i any` writes.
    pub const LINUX_COOKED_2: Self = Self(276);
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// From 1 over the whole file, as Wireshark counts: records that hold no packet (a systemd
    /// journal's, a system call's, a custom block) have a number too.
    pub frame: u64,
    /// Place in [`Reader::interfaces`].
    pub interface: u32,
    /// What `captured` begins with.
    pub link: LinkType,
    /// Nanoseconds since 1970-01-01 UTC, zero in simple packet blocks, which have no time. Times
    /// before that are zero, those after the year 2554 are `u64::MAX`.
    pub time_ns: u64,
    /// Bytes that the packet had, as stated; hostile files state anything.
    pub original_bytes: u32,
    /// Its first bytes, all of them where the capture did not cut it.
    pub captured: &'a [u8],
    options: Options<'a>,
}

impl<'a> Packet<'a> {
    /// The options behind the packet; none in pcap.
    pub const fn options(&self) -> Options<'a> {
        self.options
    }

    /// The first comment, up to where it stops being UTF-8.
    pub fn comment(&self) -> Option<&'a str> {
        self.options.find(pcapng::COMMENT).map(options::text)
    }

    /// Direction at the interface.
    pub fn direction(&self) -> Direction {
        let flags = self.options.find_u32(pcapng::PACKET_FLAGS);
        flags.map_or(Direction::Unknown, Direction::from_flags)
    }
}

/// What [`Reader::next`] found.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A packet.
    Packet(Packet<'a>),
    /// The next packet is not all there: at least `bytes` from where the reader stands are needed
    /// to go on, never more than [`BLOCK_BYTES_MAX`]. Where there are none to come,
    /// [`Reader::finish`] says whether the capture ends well.
    NeedMore {
        /// Bytes from the reader's place on.
        bytes: usize,
    },
    /// The rest cannot be read. All further steps say the same.
    Stopped(Stopped),
}

/// Where reading ended before its time, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// First byte that was not understood: the beginning of a record or block, or the end of a file
    /// within a block that is passed over. From the beginning of the file, decompressed.
    pub offset: u64,
    /// What is wrong there.
    pub why: Why,
}

/// Why the rest of a capture cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// No bytes at all.
    Empty,
    /// The file ends within a header, record or block.
    CutShort,
    /// It begins with the magic number of neither format.
    NotACapture,
    /// A version of the format that nobody wrote when this was.
    Version,
    /// A packet of more than [`CAPTURED_BYTES_MAX`], or a block of more than [`BLOCK_BYTES_MAX`].
    TooLong,
    /// A block whose lengths before and after it differ, or are too short for what is in it.
    Lengths,
    /// A packet of an interface that was not described.
    UnknownInterface,
    /// More than [`INTERFACES_MAX`] interfaces.
    TooManyInterfaces,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.why, self.offset)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the file is empty",
            Self::CutShort => "the file ends within a packet or block",
            Self::NotACapture => "no format of captures that is known begins so",
            Self::Version => "a version of the format that is not known",
            Self::TooLong => "a packet or block longer than any tool writes",
            Self::Lengths => "the lengths of a block contradict each other",
            Self::UnknownInterface => "a packet of an interface that the file does not describe",
            Self::TooManyInterfaces => "more interfaces than are believed",
        })
    }
}

/// Longest packet that is believed: libpcap's MAXIMUM_SNAPLEN (pcap-int.h), which no capture tool
/// exceeds on link types that carry IP.
pub const CAPTURED_BYTES_MAX: u32 = 262_144;
/// Longest block that is held in memory: the longest packet and its options, of which there are
/// few, 65,535 B each at most. Blocks that are passed over may be longer.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Interfaces of a file: far more than merging captures gives; each takes some 450 B at most.
pub const INTERFACES_MAX: usize = 65_536;
