//! The walk over a capture's bytes: headers, records and blocks, one after the other.
//!
//! A packet's record is looked at when all of it is there. Blocks without a packet that need not be
//! understood are passed over as they come, so their length costs no memory.
//!
//! The way to a packet is inlined by force: where it was not, each packet's description went
//! through memory twice, which took as long as all else (17 against 26 million packets a second out
//! of a file).

use crate::bytes::array_at;
use crate::capture::block::{self, Order};
use crate::capture::clock::Clock;
use crate::capture::interface::{self, Counters, Interface, Source};
use crate::capture::options::Options;
use crate::capture::{
    BLOCK_BYTES_MAX, CAPTURED_BYTES_MAX, INTERFACES_MAX, LinkType, Packet, Step, Stopped, Why,
};

/// Reads a capture from bytes that the caller holds.
///
/// ```
/// use wire::capture::{Reader, Step};
///
/// let mut file = Vec::new();
/// wire::pcapng::section_header("example", &mut file);
/// let (mut reader, mut rest) = (Reader::new(), &file[..]);
/// assert!(matches!(reader.next(&mut rest), Step::NeedMore { .. }));
/// assert_eq!(reader.finish(rest.len()), Ok(()), "a capture without packets");
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    format: Format,
    /// Bytes of the file before the reader's place.
    offset: u64,
    frames: u64,
    interfaces: Vec<Interface>,
    sources: Vec<Source>,
    /// The section's first interface in both.
    section: usize,
    passing: Option<Passing>,
    /// The packet found last: handed on by value, it went through memory in other pieces than it was written.
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Format {
    Unknown,
    /// Its first bytes are no pcap's, and too few to tell more.
    Doubtful,
    Pcap(Pcap),
    Section(Order),
    /// Packets begin with this.
    Snoop(LinkType),
    Endace,
    Stopped(Stopped),
}

#[derive(Clone, Copy, Debug)]
struct Pcap {
    order: Order,
    /// Bytes before a packet's first.
    record_bytes: usize,
    /// Nanoseconds of the stamps' lower part.
    fraction_ns: u32,
    link: LinkType,
}

/// A block that is passed over.
#[derive(Clone, Copy, Debug)]
struct Passing {
    /// Bytes up to its second length.
    body_bytes: u64,
    /// Its first length.
    length: u32,
}

/// What was found, as places in the bytes that were looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// [`Reader::place`] has it.
    Packet,
    NeedMore {
        bytes: usize,
    },
    Stopped(Stopped),
}

/// What stands at the reader's place.
enum Next {
    /// So many bytes without a packet.
    Passed(usize),
    /// So many bytes with a packet, which is in [`Reader::place`].
    Packet(usize),
    /// So many bytes are needed to tell.
    Need(usize),
    /// Nothing that can be read.
    Stop(Why),
}

/// Where a packet is. Its numbers lie in another order than a [`Packet`]'s: two that were written one by one and
/// are read as one wait until both are in the cache, behind all that was written before.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Place {
    frame: u64,
    captured_at: usize,
    time_ns: u64,
    captured_bytes: usize,
    original_bytes: u32,
    link: LinkType,
    order: Order,
    options_bytes: usize,
    interface: u32,
}

impl Reader {
    /// A reader at the beginning of a file.
    pub const fn new() -> Self {
        Self {
            format: Format::Unknown,
            offset: 0,
            frames: 0,
            interfaces: Vec::new(),
            sources: Vec::new(),
            section: 0,
            passing: None,
            place: Place::NONE,
        }
    }

    /// Looks for the next packet in `rest`, the file's bytes from the reader's place on, and moves
    /// `rest` and the place past what is done with.
    #[inline]
    pub fn next<'a>(&mut self, rest: &mut &'a [u8]) -> Step<'a> {
        let bytes = *rest;
        let (used, found) = self.find(bytes);
        *rest = bytes.get(used..).unwrap_or_default();
        match found {
            Found::Packet => Step::Packet(self.place.of(bytes)),
            Found::NeedMore { bytes } => Step::NeedMore { bytes },
            Found::Stopped(stopped) => Step::Stopped(stopped),
        }
    }

    /// Whether the file ends well with `unread` bytes left, that is, after no step but
    /// [`Step::NeedMore`] was to be had.
    ///
    /// # Errors
    /// Where reading ended, when that is not the end of the file.
    pub const fn finish(&self, unread: usize) -> Result<(), Stopped> {
        let why = match self.format {
            Format::Stopped(stopped) => return Err(stopped),
            Format::Unknown if unread == 0 && self.offset == 0 => Why::Empty,
            Format::Doubtful => Why::NotACapture,
            _ if unread > 0 || self.passing.is_some() => Why::CutShort,
            _ => return Ok(()),
        };
        let offset = self.offset;
        Err(Stopped { offset, why })
    }

    /// Bytes of the file before the reader's place.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Frames until now.
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// Interfaces described until now, those of all sections in their order.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The packet found last, in the bytes in which it was.
    #[inline(always)]
    pub(super) fn found<'a>(&self, bytes: &'a [u8]) -> Packet<'a> {
        self.place.of(bytes)
    }

    /// Forgets the packet found last.
    pub(super) const fn forget(&mut self) {
        self.place = Place::NONE;
    }

    /// Finds the next packet; how many of `bytes` are done with then, its own included.
    #[inline(always)]
    pub(super) fn find(&mut self, bytes: &[u8]) -> (usize, Found) {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let next = match self.format {
                Format::Pcap(pcap) => self.record(pcap, rest),
                Format::Section(order) => self.block(order, rest),
                Format::Snoop(link) => self.snoop(link, rest),
                Format::Endace => self.endace(rest),
                Format::Unknown | Format::Doubtful => self.begin(rest),
                Format::Stopped(stopped) => return (used, Found::Stopped(stopped)),
            };
            match next {
                Next::Packet(bytes) => {
                    self.offset += bytes as u64;
                    if used > 0 {
                        self.place.captured_at += used;
                    }
                    return (used + bytes, Found::Packet);
                }
                Next::Passed(bytes) => {
                    self.offset += bytes as u64;
                    used += bytes;
                }
                Next::Need(bytes) => return (used, Found::NeedMore { bytes }),
                Next::Stop(why) => {
                    let offset = self.offset;
                    self.format = Format::Stopped(Stopped { offset, why });
                }
            }
        }
    }

    /// The beginning of the file says what it is.
    #[cold]
    fn begin(&mut self, bytes: &[u8]) -> Next {
        let Some(magic) = array_at(bytes, 0) else {
            return Next::Need(4);
        };
        if u32::from_le_bytes(magic) == block::SECTION_HEADER {
            // In which order, the section's header says.
            self.format = Format::Section(Order::Little);
            return Next::Passed(0);
        }
        let Some(pcap) = Pcap::by_magic(magic) else {
            return self.begin_other(bytes);
        };
        let Some(head) = bytes.first_chunk::<PCAP_HEADER_BYTES>() else {
            return Next::Need(PCAP_HEADER_BYTES);
        };
        if pcap.order.u16([head[4], head[5]]) != PCAP_VERSION {
            return Next::Stop(Why::Version);
        }
        let captured_bytes_max = pcap.order.u32([head[16], head[17], head[18], head[19]]);
        // The upper half says whether there are frame check sequences, and how long they are.
        let network = pcap.order.u32([head[20], head[21], head[22], head[23]]);
        let [low, high, ..] = network.to_le_bytes();
        let link = LinkType(u16::from_le_bytes([low, high]));
        self.interfaces.push(Interface {
            link,
            captured_bytes_max,
            name: String::new(),
            tick_ns: pcap.fraction_ns,
            counters: Counters::default(),
        });
        self.sources.push(Source {
            link,
            clock: Clock::MICROSECONDS,
            captured_bytes_max,
        });
        self.format = Format::Pcap(Pcap { link, ..pcap });
        Next::Passed(PCAP_HEADER_BYTES)
    }

    /// The beginning of a file that is neither pcap nor pcapng.
    fn begin_other(&mut self, bytes: &[u8]) -> Next {
        let Some(head) = bytes.first_chunk::<SNOOP_HEADER_BYTES>() else {
            let may_be = SNOOP_MAGIC.starts_with(bytes.get(..8).unwrap_or(bytes));
            if !may_be && !endace::may_begin(bytes) {
                return Next::Stop(Why::NotACapture);
            }
            self.format = Format::Doubtful;
            return Next::Need(SNOOP_HEADER_BYTES);
        };
        if head.starts_with(&SNOOP_MAGIC) {
            if Order::Big.u32([head[8], head[9], head[10], head[11]]) != SNOOP_VERSION {
                return Next::Stop(Why::Version);
            }
            let link = snoop_link(Order::Big.u32([head[12], head[13], head[14], head[15]]));
            self.only_interface(link, 1_000);
            self.format = Format::Snoop(link);
            return Next::Passed(SNOOP_HEADER_BYTES);
        }
        if endace::may_begin(head) {
            self.only_interface(endace::LINK, 1);
            self.format = Format::Endace;
            return Next::Passed(0);
        }
        Next::Stop(Why::NotACapture)
    }

    /// The interface of a file that describes none.
    fn only_interface(&mut self, link: LinkType, tick_ns: u32) {
        self.interfaces.push(Interface {
            link,
            captured_bytes_max: 0,
            name: String::new(),
            tick_ns,
            counters: Counters::default(),
        });
        self.sources.push(Source {
            link,
            clock: Clock::MICROSECONDS,
            captured_bytes_max: 0,
        });
    }

    /// A record of a snoop file (RFC 1761 section 4).
    #[cold]
    fn snoop(&mut self, link: LinkType, bytes: &[u8]) -> Next {
        let Some(head) = bytes.first_chunk::<SNOOP_RECORD_BYTES>() else {
            return Next::Need(SNOOP_RECORD_BYTES);
        };
        let word = |at: usize| Order::Big.u32([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (original_bytes, captured, record) = (word(0), word(4), word(8));
        if captured > CAPTURED_BYTES_MAX || record as usize > BLOCK_BYTES_MAX {
            return Next::Stop(Why::TooLong);
        }
        let (captured_bytes, end) = (captured as usize, record as usize);
        if end < SNOOP_RECORD_BYTES + captured_bytes {
            return Next::Stop(Why::Lengths);
        }
        if bytes.len() < end {
            return Next::Need(end);
        }
        self.frames += 1;
        self.place = Place {
            frame: self.frames,
            time_ns: u64::from(word(16)) * NS_PER_S + u64::from(word(20)) * 1_000,
            captured_at: SNOOP_RECORD_BYTES,
            captured_bytes,
            original_bytes,
            link,
            ..Place::NONE
        };
        Next::Packet(end)
    }

    /// A record of Endace's format: its packet where that is of a kind that is read, else all of it.
    #[cold]
    fn endace(&mut self, bytes: &[u8]) -> Next {
        let Some(head) = bytes.first_chunk::<{ endace::HEADER_BYTES }>() else {
            return Next::Need(endace::HEADER_BYTES);
        };
        let end = usize::from(u16::from_be_bytes([head[10], head[11]]));
        if end < endace::HEADER_BYTES {
            return Next::Stop(Why::Lengths);
        }
        let Some(record) = bytes.get(..end) else {
            return Next::Need(end);
        };
        let (link, captured_at) = endace::packet(record);
        self.frames += 1;
        self.place = Place {
            frame: self.frames,
            time_ns: endace::time_ns(head),
            captured_at,
            captured_bytes: end - captured_at,
            original_bytes: u32::from(u16::from_be_bytes([head[14], head[15]])),
            link,
            ..Place::NONE
        };
        Next::Packet(end)
    }

    /// A record of a pcap file.
    #[inline(always)]
    fn record(&mut self, pcap: Pcap, bytes: &[u8]) -> Next {
        let Some(head) = bytes.first_chunk::<RECORD_BYTES>() else {
            return Next::Need(pcap.record_bytes);
        };
        let word = |at: usize| {
            let [a, b, c, d] = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            pcap.order.u32([a, b, c, d])
        };
        let captured_bytes = word(8);
        if captured_bytes > CAPTURED_BYTES_MAX {
            return Next::Stop(Why::TooLong);
        }
        let captured_bytes = captured_bytes as usize;
        let end = pcap.record_bytes + captured_bytes;
        if bytes.len() < end {
            return Next::Need(end);
        }
        self.frames += 1;
        let (seconds, fraction) = (u64::from(word(0)), u64::from(word(4)));
        self.place = Place {
            frame: self.frames,
            // At most 2^32 times 10^9 and 2^32 times 1,000: no overflow.
            time_ns: seconds * NS_PER_S + fraction * u64::from(pcap.fraction_ns),
            captured_at: pcap.record_bytes,
            captured_bytes,
            original_bytes: word(12),
            link: pcap.link,
            ..Place::NONE
        };
        Next::Packet(end)
    }

    /// A block of a pcapng file, or what is left of one that is passed over.
    #[inline(always)]
    fn block(&mut self, order: Order, bytes: &[u8]) -> Next {
        if let Some(passing) = self.passing {
            return self.pass(passing, order, bytes);
        }
        let Some(&[k0, k1, k2, k3, l0, l1, l2, l3]) = bytes.first_chunk() else {
            return Next::Need(block::BLOCK_BYTES_MIN);
        };
        let kind = order.u32([k0, k1, k2, k3]);
        let length = order.u32([l0, l1, l2, l3]);
        if kind == block::ENHANCED_PACKET {
            return match body(length, order, bytes) {
                Ok((end, body)) => self.enhanced_packet(order, end, body),
                Err(next) => next,
            };
        }
        self.other_block(kind, length, order, bytes)
    }

    #[cold]
    fn other_block(&mut self, kind: u32, length: u32, order: Order, bytes: &[u8]) -> Next {
        let take = match kind {
            block::SECTION_HEADER => return self.section(bytes),
            block::INTERFACE_DESCRIPTION => Self::describe,
            block::STATISTICS => Self::count,
            block::SIMPLE_PACKET => Self::simple_packet,
            block::OBSOLETE_PACKET => Self::obsolete_packet,
            _ => return self.pass_over(kind, length),
        };
        match body(length, order, bytes) {
            Ok((end, body)) => take(self, order, end, body),
            Err(next) => next,
        }
    }

    /// Begins to pass over a block without a packet.
    fn pass_over(&mut self, kind: u32, length: u32) -> Next {
        if (length as usize) < block::BLOCK_BYTES_MIN {
            return Next::Stop(Why::Lengths);
        }
        self.frames += u64::from(block::is_other_frame(kind));
        let body_bytes = u64::from(length).next_multiple_of(4) - block::BLOCK_BYTES_MIN as u64;
        self.passing = Some(Passing { body_bytes, length });
        Next::Passed(block::HEAD_BYTES)
    }

    /// Goes on to pass over a block.
    #[cold]
    fn pass(&mut self, passing: Passing, order: Order, bytes: &[u8]) -> Next {
        if passing.body_bytes > 0 {
            let all = usize::try_from(passing.body_bytes).unwrap_or(usize::MAX);
            let there = all.min(bytes.len());
            let body_bytes = passing.body_bytes - there as u64;
            self.passing = Some(Passing {
                body_bytes,
                ..passing
            });
            return if there > 0 {
                Next::Passed(there)
            } else {
                Next::Need(1)
            };
        }
        match array_at(bytes, 0).map(|length| order.u32(length)) {
            None => Next::Need(4),
            Some(length) if length != passing.length => Next::Stop(Why::Lengths),
            Some(_) => {
                self.passing = None;
                Next::Passed(4)
            }
        }
    }

    /// A section header: its own order counts from its length on.
    fn section(&mut self, bytes: &[u8]) -> Next {
        let Some(&head) = bytes.first_chunk::<SECTION_BYTES>() else {
            return Next::Need(SECTION_BYTES);
        };
        let [
            _,
            _,
            _,
            _,
            l0,
            l1,
            l2,
            l3,
            m0,
            m1,
            m2,
            m3,
            major0,
            major1,
            ..,
        ] = head;
        let Some(order) = Order::of([m0, m1, m2, m3], block::BYTE_ORDER) else {
            return Next::Stop(Why::NotACapture);
        };
        let length = order.u32([l0, l1, l2, l3]);
        if (length as usize) < SECTION_BYTES + 4 {
            return Next::Stop(Why::Lengths);
        }
        if order.u16([major0, major1]) != PCAPNG_VERSION {
            return Next::Stop(Why::Version);
        }
        self.format = Format::Section(order);
        self.section = self.sources.len();
        self.pass_over(block::SECTION_HEADER, length)
    }

    fn describe(&mut self, order: Order, end: usize, body: &[u8]) -> Next {
        let Some((interface, source)) = interface::describe(body, order) else {
            return Next::Stop(Why::Lengths);
        };
        if self.interfaces.len() == INTERFACES_MAX {
            return Next::Stop(Why::TooManyInterfaces);
        }
        self.interfaces.push(interface);
        self.sources.push(source);
        Next::Passed(end)
    }

    /// Counters of an interface. Those of one that is not described are nobody's.
    fn count(&mut self, order: Order, end: usize, body: &[u8]) -> Next {
        let Some(number) = array_at(body, 0) else {
            return Next::Stop(Why::Lengths);
        };
        let number = self.section.saturating_add(order.u32(number) as usize);
        if let Some(interface) = self.interfaces.get_mut(number) {
            // Behind the interface's number and the block's own time.
            let options = Options::new(body.get(12..).unwrap_or_default(), order);
            interface.counters.take(options);
        }
        Next::Passed(end)
    }

    #[inline(always)]
    fn enhanced_packet(&mut self, order: Order, end: usize, body: &[u8]) -> Next {
        let Some(head) = body.first_chunk::<PACKET_BYTES>() else {
            return Next::Stop(Why::Lengths);
        };
        let word = |at: usize| order.u32([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let stated = Stated {
            interface: word(0),
            ticks: u64::from(word(4)) << 32 | u64::from(word(8)),
            captured_bytes: word(12),
            original_bytes: word(16),
        };
        self.packet(stated, order, end, body.len() - PACKET_BYTES)
    }

    /// As the enhanced one, with a shorter number of the interface.
    fn obsolete_packet(&mut self, order: Order, end: usize, body: &[u8]) -> Next {
        let Some(head) = body.first_chunk::<PACKET_BYTES>() else {
            return Next::Stop(Why::Lengths);
        };
        let word = |at: usize| order.u32([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let stated = Stated {
            interface: u32::from(order.u16([head[0], head[1]])),
            ticks: u64::from(word(4)) << 32 | u64::from(word(8)),
            captured_bytes: word(12),
            original_bytes: word(16),
        };
        self.packet(stated, order, end, body.len() - PACKET_BYTES)
    }

    #[inline(always)]
    fn packet(&mut self, stated: Stated, order: Order, end: usize, room: usize) -> Next {
        if stated.captured_bytes > CAPTURED_BYTES_MAX {
            return Next::Stop(Why::TooLong);
        }
        let captured_bytes = stated.captured_bytes as usize;
        // The room is whole words, so padding fits where the packet does.
        let Some(options_bytes) = room.checked_sub(captured_bytes.next_multiple_of(4)) else {
            return Next::Stop(Why::Lengths);
        };
        let number = self.section.saturating_add(stated.interface as usize);
        let Some(source) = self.sources.get(number) else {
            return Next::Stop(Why::UnknownInterface);
        };
        self.frames += 1;
        self.place = Place {
            frame: self.frames,
            time_ns: source.clock.ns(stated.ticks),
            captured_at: block::HEAD_BYTES + PACKET_BYTES,
            captured_bytes,
            options_bytes,
            // Below INTERFACES_MAX.
            interface: u32::try_from(number).unwrap_or(u32::MAX),
            original_bytes: stated.original_bytes,
            link: source.link,
            order,
        };
        Next::Packet(end)
    }

    /// A packet of the section's first interface without time and captured length.
    fn simple_packet(&mut self, order: Order, end: usize, body: &[u8]) -> Next {
        let Some(original) = array_at(body, 0) else {
            return Next::Stop(Why::Lengths);
        };
        let original_bytes = order.u32(original);
        let Some(source) = self.sources.get(self.section) else {
            return Next::Stop(Why::UnknownInterface);
        };
        let captured_bytes = match source.captured_bytes_max {
            0 => original_bytes,
            max => original_bytes.min(max),
        };
        if captured_bytes > CAPTURED_BYTES_MAX {
            return Next::Stop(Why::TooLong);
        }
        let captured_bytes = captured_bytes as usize;
        if captured_bytes > body.len() - 4 {
            return Next::Stop(Why::Lengths);
        }
        self.frames += 1;
        self.place = Place {
            frame: self.frames,
            captured_at: block::HEAD_BYTES + 4,
            captured_bytes,
            // Below INTERFACES_MAX.
            interface: u32::try_from(self.section).unwrap_or(u32::MAX),
            original_bytes,
            link: source.link,
            order,
            ..Place::NONE
        };
        Next::Packet(end)
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    const NONE: Self = Self {
        frame: 0,
        time_ns: 0,
        captured_at: 0,
        captured_bytes: 0,
        options_bytes: 0,
        interface: 0,
        original_bytes: 0,
        link: LinkType(0),
        order: Order::Little,
    };

    /// The packet, in the bytes in which it was found.
    #[inline(always)]
    fn of<'a>(&self, bytes: &'a [u8]) -> Packet<'a> {
        let behind = bytes.get(self.captured_at..).unwrap_or_default();
        let captured = behind.get(..self.captured_bytes).unwrap_or_default();
        let options = if self.options_bytes > 0 {
            let behind = behind.get(self.captured_bytes.next_multiple_of(4)..);
            behind
                .and_then(|bytes| bytes.get(..self.options_bytes))
                .unwrap_or_default()
        } else {
            &[]
        };
        Packet {
            frame: self.frame,
            interface: self.interface,
            link: self.link,
            time_ns: self.time_ns,
            original_bytes: self.original_bytes,
            captured,
            options: Options::new(options, self.order),
        }
    }
}

/// What a packet block says.
struct Stated {
    /// Within the section.
    interface: u32,
    ticks: u64,
    captured_bytes: u32,
    original_bytes: u32,
}

impl Pcap {
    /// What the first bytes of a file say, but for the link type.
    fn by_magic(magic: [u8; 4]) -> Option<Self> {
        let kinds = [
            (PCAP_MICROSECONDS, RECORD_BYTES, 1_000),
            (PCAP_NANOSECONDS, RECORD_BYTES, 1),
            (PCAP_LONG_RECORDS, LONG_RECORD_BYTES, 1_000),
        ];
        kinds
            .into_iter()
            .find_map(|(number, record_bytes, fraction_ns)| {
                Order::of(magic, number).map(|order| Self {
                    order,
                    record_bytes,
                    fraction_ns,
                    link: LinkType::default(),
                })
            })
    }
}

/// All bytes of a block that is to be looked at as a whole, by its first length, and its body.
#[inline(always)]
fn body(length: u32, order: Order, bytes: &[u8]) -> Result<(usize, &[u8]), Next> {
    if length as usize > BLOCK_BYTES_MAX {
        return Err(Next::Stop(Why::TooLong));
    }
    // Some writers do not count the padding; Wireshark (wiretap/pcapng.c) reads them as well.
    let end = (length as usize).next_multiple_of(4);
    if end < block::BLOCK_BYTES_MIN {
        return Err(Next::Stop(Why::Lengths));
    }
    let Some((body, last)) = bytes.get(..end).and_then(<[u8]>::split_last_chunk) else {
        return Err(Next::Need(end));
    };
    if order.u32(*last) != length {
        return Err(Next::Stop(Why::Lengths));
    }
    match body.get(block::HEAD_BYTES..) {
        Some(body) => Ok((end, body)),
        None => Err(Next::Stop(Why::Lengths)),
    }
}

/// What packets of a snoop file begin with, by its own numbers (RFC 1761 section 4, and Solaris' for
/// InfiniBand and IPNET).
const fn snoop_link(number: u32) -> LinkType {
    match number {
        0 | 4 => LinkType::ETHERNET,
        2 => LinkType(6),
        8 => LinkType(10),
        26 => LinkType(242),
        0x8000_0001 => LinkType(226),
        _ => LinkType(u16::MAX),
    }
}

/// Endace's format ("ERF types reference guide"): no header, records one after the other.
mod endace {
    use crate::bytes::array_at;
    use crate::capture::LinkType;

    /// Whether this looks like a record's header, as far as it is there: a time of 1995 to 2100, a type that is
    /// in use, a length that holds the header.
    pub(super) fn may_begin(bytes: &[u8]) -> bool {
        let seconds = array_at(bytes, 4).map(u32::from_le_bytes);
        let kind = bytes.get(8).map(|kind| kind & 0x7f);
        let length = array_at(bytes, 10).map(u16::from_be_bytes);
        seconds.is_none_or(|s| (788_918_400..4_102_444_800).contains(&s))
            && kind.is_none_or(|kind| matches!(kind, 1..=27))
            && length.is_none_or(|length| usize::from(length) >= HEADER_BYTES)
    }

    /// What a record's packet begins with, and where it does.
    pub(super) fn packet(record: &[u8]) -> (LinkType, usize) {
        let kind = record.get(8).copied().unwrap_or_default();
        let mut at = HEADER_BYTES;
        let mut more = kind & 0x80 != 0;
        while more {
            more = record.get(at).is_some_and(|byte| byte & 0x80 != 0);
            at += 8;
        }
        let (link, padding) = match kind & 0x7f {
            2 | 11 | 16 | 20 => (LinkType::ETHERNET, 2),
            1 | 10 | 15 | 19 => (LinkType(50), 0),
            22 | 23 => (LinkType::RAW, 0),
            _ => (LINK, 0),
        };
        match at + padding {
            at if at <= record.len() && link != LINK => (link, at),
            _ => (LINK, 0),
        }
    }

    /// Seconds and their fraction in units of 2^-32.
    pub(super) fn time_ns(head: &[u8; HEADER_BYTES]) -> u64 {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let fraction = (u64::from(word(0)) * super::NS_PER_S) >> 32;
        u64::from(word(4)) * super::NS_PER_S + fraction
    }

    pub(super) const LINK: LinkType = LinkType(197);
    pub(super) const HEADER_BYTES: usize = 16;
}

const NS_PER_S: u64 = 1_000_000_000;

// RFC 1761 section 3.
const SNOOP_MAGIC: [u8; 8] = *b"snoop\0\0\0";
const SNOOP_VERSION: u32 = 2;
const SNOOP_HEADER_BYTES: usize = 16;
const SNOOP_RECORD_BYTES: usize = 24;

// draft-ietf-opsawg-pcap section 4; the third is that of Alexey Kuznetsov's patches, after
// libpcap's sf-pcap.c: its records have interface, protocol and packet type behind the two lengths.
const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
const PCAP_LONG_RECORDS: u32 = 0xa1b2_cd34;
const PCAP_HEADER_BYTES: usize = 24;
const PCAP_VERSION: u16 = 2;
const RECORD_BYTES: usize = 16;
const LONG_RECORD_BYTES: usize = 24;

const PCAPNG_VERSION: u16 = 1;
/// A section header's type, length, byte order, version and the section's length.
const SECTION_BYTES: usize = 24;
/// What stands before the packet in the body of its block.
const PACKET_BYTES: usize = 20;

/// Nothing that is waited for is longer than what a caller has to hold.
const _: () = assert!(CAPTURED_BYTES_MAX as usize + LONG_RECORD_BYTES <= BLOCK_BYTES_MAX);
