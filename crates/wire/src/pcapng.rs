//! Captures as pcapng, for Wireshark and its kin: a section header, interfaces, packets.
//!
//! A writer only: each call appends one block to a buffer, which the caller takes to a file. Blocks
//! are little-endian. Times are nanoseconds of the realtime clock. Packets may carry a comment,
//! which is where a lab says what became of them, and the direction at their interface.
//!
//! Reading is [`crate::capture`]'s. Left out: name resolution, link types other than Ethernet.
//!
//! Reading: IETF draft-ietf-opsawg-pcapng, sections 3 (blocks, options), 4.1 (section header), 4.2
//! (interface description), 4.3 (enhanced packet), 4.6 (interface statistics).

/// Direction of a packet at its interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Nothing is said of it.
    #[default]
    Unknown,
    /// Came in.
    Inbound,
    /// Went out.
    Outbound,
}

/// A packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Number of the interface: they count from 0 in the order in which they were written.
    pub interface: u32,
    /// Nanoseconds of the realtime clock.
    pub time_ns: u64,
    /// The frame's first bytes.
    pub captured: &'a [u8],
    /// Bytes that the frame had on the wire, without check sequence.
    pub original_bytes: u32,
    /// Direction at the interface.
    pub direction: Direction,
    /// A remark; none when empty. Its first 65,535 bytes are kept.
    pub comment: &'a str,
}

/// Who writes a file; what is empty is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writer<'a> {
    /// The machine's processor.
    pub hardware: &'a str,
    /// Operating system and its version.
    pub os: &'a str,
    /// Name and version of the program.
    pub application: &'a str,
}

/// An Ethernet interface; what is empty is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Its name.
    pub name: &'a str,
    /// More about it, in words.
    pub description: &'a str,
    /// Bytes kept of each packet at most; 0: no limit. The writer of packets sees to it.
    pub captured_bytes_max: u32,
    /// What was kept, in the filter language of libpcap.
    pub filter: &'a str,
    /// Operating system that it belongs to.
    pub os: &'a str,
}

/// What became of an interface's packets, between two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of the interface.
    pub interface: u32,
    /// Begin and end, nanoseconds of the realtime clock.
    pub start_ns: u64,
    /// See there.
    pub end_ns: u64,
    /// Packets that passed the filter, captured or not.
    pub accepted: u64,
    /// Those of them that the operating system had no room for.
    pub dropped: u64,
    /// Those that came into the file.
    pub captured: u64,
}

/// Appends the section header, the first block of a file. `application` is the writer's name.
pub fn section_header(application: &str, out: &mut Vec<u8>) {
    let writer = Writer {
        application,
        ..Writer::default()
    };
    section_header_of(&writer, out);
}

/// Appends the section header with all that is known of who writes.
pub fn section_header_of(writer: &Writer<'_>, out: &mut Vec<u8>) {
    let block = Block::begin(SECTION_HEADER, out);
    out.extend(BYTE_ORDER.to_le_bytes());
    out.extend(1_u16.to_le_bytes());
    out.extend(0_u16.to_le_bytes());
    // The section's length is not known beforehand.
    out.extend(u64::MAX.to_le_bytes());
    text_unless_empty(HARDWARE, writer.hardware, out);
    text_unless_empty(OPERATING_SYSTEM, writer.os, out);
    text_unless_empty(USER_APPLICATION, writer.application, out);
    block.end_with_options(out);
}

/// Appends the description of an Ethernet interface. At most `captured_bytes_max` bytes of each
/// packet are kept (0: no limit); the writer of packets sees to it.
pub fn interface(name: &str, captured_bytes_max: u32, out: &mut Vec<u8>) {
    let interface = Interface {
        name,
        captured_bytes_max,
        ..Interface::default()
    };
    interface_of(&interface, out);
}

/// Appends the description of an Ethernet interface with all that is known of it.
pub fn interface_of(interface: &Interface<'_>, out: &mut Vec<u8>) {
    let block = Block::begin(INTERFACE_DESCRIPTION, out);
    out.extend(LINK_ETHERNET.to_le_bytes());
    out.extend(0_u16.to_le_bytes());
    out.extend(interface.captured_bytes_max.to_le_bytes());
    text_unless_empty(INTERFACE_NAME, interface.name, out);
    text_unless_empty(INTERFACE_DESCRIPTION_TEXT, interface.description, out);
    option(TIME_RESOLUTION, &[NANOSECONDS], out);
    if !interface.filter.is_empty() {
        // The first byte says that a filter string follows.
        let mut filter = vec![0];
        filter.extend_from_slice(interface.filter.as_bytes());
        option(INTERFACE_FILTER, &filter, out);
    }
    text_unless_empty(INTERFACE_OPERATING_SYSTEM, interface.os, out);
    block.end_with_options(out);
}

/// Appends an interface's statistics.
pub fn statistics(statistics: &Statistics, out: &mut Vec<u8>) {
    let block = Block::begin(INTERFACE_STATISTICS, out);
    out.extend(statistics.interface.to_le_bytes());
    out.extend(time(statistics.end_ns));
    option(STATISTICS_START, &time(statistics.start_ns), out);
    option(STATISTICS_END, &time(statistics.end_ns), out);
    for (code, count) in [
        (PACKETS_RECEIVED, statistics.accepted),
        (PACKETS_ACCEPTED, statistics.accepted),
        (PACKETS_DROPPED_BY_SYSTEM, statistics.dropped),
        (PACKETS_DELIVERED, statistics.captured),
    ] {
        option(code, &count.to_le_bytes(), out);
    }
    block.end_with_options(out);
}

/// Appends a packet.
pub fn packet(packet: &Packet<'_>, out: &mut Vec<u8>) {
    let block = Block::begin(ENHANCED_PACKET, out);
    let captured_bytes = packet.captured.len();
    out.extend(packet.interface.to_le_bytes());
    out.extend(time(packet.time_ns));
    out.extend(saturating_u32(captured_bytes).to_le_bytes());
    out.extend(packet.original_bytes.to_le_bytes());
    out.extend_from_slice(packet.captured);
    pad(captured_bytes, out);
    let has_comment = !packet.comment.is_empty();
    if has_comment {
        option_text(COMMENT, packet.comment, out);
    }
    if packet.direction != Direction::Unknown {
        option(PACKET_FLAGS, &packet.direction.flags().to_le_bytes(), out);
    }
    if has_comment || packet.direction != Direction::Unknown {
        block.end_with_options(out);
    } else {
        block.end(out);
    }
}

impl Direction {
    /// Bits 0 and 1 of the packet's flags.
    const fn flags(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Inbound => 1,
            Self::Outbound => 2,
        }
    }

    /// What a packet's flags say.
    pub(crate) const fn from_flags(flags: u32) -> Self {
        match flags & 3 {
            1 => Self::Inbound,
            2 => Self::Outbound,
            _ => Self::Unknown,
        }
    }
}

/// A block that is being written: its length stands before and after its body.
struct Block {
    start: usize,
}

impl Block {
    fn begin(kind: u32, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend(kind.to_le_bytes());
        out.extend(0_u32.to_le_bytes());
        Self { start }
    }

    fn end_with_options(self, out: &mut Vec<u8>) {
        option(END_OF_OPTIONS, &[], out);
        self.end(out);
    }

    fn end(self, out: &mut Vec<u8>) {
        let length = saturating_u32(out.len() - self.start + 4).to_le_bytes();
        out.extend(length);
        if let Some(place) = out.get_mut(self.start + 4..self.start + 8) {
            place.copy_from_slice(&length);
        }
    }
}

/// The upper half of the time comes first, whatever the byte order.
fn time(ns: u64) -> [u8; 8] {
    let swapped = ns.rotate_left(32);
    swapped.to_le_bytes()
}

fn text_unless_empty(code: u16, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        option_text(code, text, out);
    }
}

/// An option whose value is text; cut where it is too long, never within a character.
fn option_text(code: u16, text: &str, out: &mut Vec<u8>) {
    let end = text.floor_char_boundary(usize::from(u16::MAX));
    option(code, text.get(..end).unwrap_or_default().as_bytes(), out);
}

/// An option; a value that is too long for one is left out.
fn option(code: u16, value: &[u8], out: &mut Vec<u8>) {
    let Ok(length) = u16::try_from(value.len()) else {
        return;
    };
    out.extend(code.to_le_bytes());
    out.extend(length.to_le_bytes());
    out.extend_from_slice(value);
    pad(value.len(), out);
}

/// Zeros up to the next multiple of four after `length` bytes.
fn pad(length: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + length.next_multiple_of(4) - length, 0);
}

fn saturating_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

// Block types, by the draft's list of standardized ones.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
pub(crate) const ENHANCED_PACKET: u32 = 6;
/// Byte-order magic, section 4.1.
pub(crate) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// LINKTYPE_ETHERNET of the tcpdump group's list of link types.
const LINK_ETHERNET: u16 = 1;

// Options: of all blocks (section 3.5), of section headers, interfaces, packets (4.1 to 4.3), statistics
// (4.6).
pub(crate) const END_OF_OPTIONS: u16 = 0;
pub(crate) const COMMENT: u16 = 1;
const HARDWARE: u16 = 2;
const OPERATING_SYSTEM: u16 = 3;
const USER_APPLICATION: u16 = 4;
pub(crate) const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIPTION_TEXT: u16 = 3;
pub(crate) const TIME_RESOLUTION: u16 = 9;
const INTERFACE_FILTER: u16 = 11;
const INTERFACE_OPERATING_SYSTEM: u16 = 12;
pub(crate) const PACKET_FLAGS: u16 = 2;
const STATISTICS_START: u16 = 2;
const STATISTICS_END: u16 = 3;
const PACKETS_RECEIVED: u16 = 4;
const PACKETS_ACCEPTED: u16 = 6;
const PACKETS_DROPPED_BY_SYSTEM: u16 = 7;
const PACKETS_DELIVERED: u16 = 8;
/// Time resolution: ten to the minus nine seconds.
const NANOSECONDS: u8 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// Cuts a file into blocks: type and body, without the two lengths.
    fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = u32_at(file, 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(
                u32_at(file, length - 4) as usize,
                length,
                "both lengths agree"
            );
            blocks.push((u32_at(file, 0), &file[8..length - 4]));
            file = &file[length..];
        }
        blocks
    }

    /// Cuts options up to their end: code and value.
    fn options(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
        let mut options = Vec::new();
        loop {
            let word = u32_at(bytes, 0);
            let (code, length) = ((word & 0xffff) as u16, (word >> 16) as usize);
            if code == 0 {
                assert_eq!(bytes.len(), 4, "nothing follows the end of the options");
                return options;
            }
            options.push((code, &bytes[4..4 + length]));
            bytes = &bytes[4 + length.next_multiple_of(4)..];
        }
    }

    #[test]
    fn the_head_of_a_file_names_its_order_and_its_clock() {
        let mut file = Vec::new();
        section_header("goodput", &mut file);
        interface("near", 128, &mut file);
        assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
        assert_eq!(file[8..12], [0x4d, 0x3c, 0x2b, 0x1a]);
        let blocks = blocks(&file);
        let [(0x0a0d_0d0a, section), (1, interface)] = blocks[..] else {
            panic!("a section and an interface: {blocks:?}");
        };
        assert_eq!(
            section[4..16],
            [1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]
        );
        assert_eq!(options(&section[16..]), [(4, &b"goodput"[..])]);
        assert_eq!(interface[..8], [1, 0, 0, 0, 128, 0, 0, 0]);
        assert_eq!(options(&interface[8..]), [(2, &b"near"[..]), (9, &[9][..])]);
    }

    #[test]
    fn what_is_known_of_writer_and_interface_is_told_and_counts_come_last() {
        let mut file = Vec::new();
        let writer = Writer {
            hardware: "cpu",
            os: "Linux 6",
            application: "goodput",
        };
        section_header_of(&writer, &mut file);
        let about = Interface {
            name: "eth0",
            description: "veth",
            captured_bytes_max: 96,
            filter: "tcp",
            os: "Linux 6",
        };
        interface_of(&about, &mut file);
        let counts = Statistics {
            interface: 0,
            start_ns: 0x0000_0001_0000_0002,
            end_ns: 0x0000_0003_0000_0004,
            accepted: 12,
            dropped: 5,
            captured: 7,
        };
        statistics(&counts, &mut file);
        let blocks = blocks(&file);
        let [(_, section), (1, interface), (5, counted)] = blocks[..] else {
            panic!("a section, an interface, its counts: {blocks:?}");
        };
        let texts: [(u16, &[u8]); 3] = [(2, b"cpu"), (3, b"Linux 6"), (4, b"goodput")];
        assert_eq!(options(&section[16..]), texts);
        let texts: [(u16, &[u8]); 5] = [
            (2, b"eth0"),
            (3, b"veth"),
            (9, &[9]),
            (11, b"\0tcp"),
            (12, b"Linux 6"),
        ];
        assert_eq!(options(&interface[8..]), texts);
        let words: Vec<u32> = (0..3).map(|i| u32_at(counted, 4 * i)).collect();
        assert_eq!(words, [0, 3, 4]);
        let numbers = [(4, 12_u64), (6, 12), (7, 5), (8, 7)];
        let told = options(&counted[12..]);
        assert_eq!(told[0], (2, &[1, 0, 0, 0, 2, 0, 0, 0][..]));
        for (told, (code, number)) in told[2..].iter().zip(numbers) {
            assert_eq!(*told, (code, &number.to_le_bytes()[..]));
        }
    }

    #[test]
    fn a_packet_is_padded_and_carries_its_remark() {
        let mut file = Vec::new();
        let frame = [1, 2, 3, 4, 5];
        let plain = Packet {
            interface: 2,
            time_ns: 0x0123_4567_89ab_cdef,
            captured: &frame,
            original_bytes: 1514,
            ..Packet::default()
        };
        packet(&plain, &mut file);
        let remarked = Packet {
            direction: Direction::Inbound,
            comment: "dropped",
            ..plain
        };
        packet(&remarked, &mut file);
        let blocks = blocks(&file);
        let [(6, plain), (6, remarked)] = blocks[..] else {
            panic!("two packets: {blocks:?}");
        };
        let words: Vec<u32> = (0..5).map(|i| u32_at(plain, 4 * i)).collect();
        assert_eq!(words, [2, 0x0123_4567, 0x89ab_cdef, 5, 1514]);
        assert_eq!(plain[20..], [1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(remarked[..28], plain[..28]);
        assert_eq!(
            options(&remarked[28..]),
            [(1, &b"dropped"[..]), (2, &[1, 0, 0, 0][..])]
        );
    }

    #[test]
    fn a_comment_is_cut_at_a_character() {
        // Two bytes a character: 65,535 is in the middle of one.
        for (comment, kept) in [("é".repeat(40_000), 65_534), ("e".repeat(65_535), 65_535)] {
            let mut file = Vec::new();
            let remarked = Packet {
                comment: &comment,
                ..Packet::default()
            };
            packet(&remarked, &mut file);
            let blocks = blocks(&file);
            assert_eq!(options(&blocks[0].1[20..])[0].1.len(), kept);
        }
    }
}
