//! Captures read back: both formats in both byte orders, whole and in pieces, cut and hostile.

#![allow(
    clippy::cast_possible_truncation,
    reason = "plain arithmetic on test data"
)]

use wire::capture::{
    Advance, BLOCK_BYTES_MAX, CAPTURED_BYTES_MAX, Counters, INTERFACES_MAX, LinkType, Packet,
    Reader, Step, Stopped, Stream, Why,
};
use wire::pcapng::{self, Direction};

/// Writes numbers in one byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

use Order::{Big, Little};

impl Order {
    fn words(self, words: &[u32]) -> Vec<u8> {
        let bytes = words.iter().flat_map(|word| match self {
            Little => word.to_le_bytes(),
            Big => word.to_be_bytes(),
        });
        bytes.collect()
    }

    fn halves(self, halves: &[u16]) -> Vec<u8> {
        let bytes = halves.iter().flat_map(|half| match self {
            Little => half.to_le_bytes(),
            Big => half.to_be_bytes(),
        });
        bytes.collect()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let length = padded as u32 + 12;
        let mut block = self.words(&[kind, length]);
        block.extend(body);
        block.resize(8 + padded, 0);
        block.extend(self.words(&[length]));
        block
    }

    fn section(self) -> Vec<u8> {
        let mut body = self.words(&[0x1a2b_3c4d]);
        body.extend(self.halves(&[1, 0]));
        body.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &body)
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = self.halves(&[code, value.len() as u16]);
        option.extend(value);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    /// An interface with a snap length and options.
    fn interface(self, link: u16, captured_bytes_max: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = self.halves(&[link, 0]);
        body.extend(self.words(&[captured_bytes_max]));
        for (code, value) in options {
            body.extend(self.option(*code, value));
        }
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, ticks: u64, captured: &[u8], original: u32) -> Vec<u8> {
        let (high, low) = ((ticks >> 32) as u32, ticks as u32);
        let mut body = self.words(&[interface, high, low, captured.len() as u32, original]);
        body.extend(captured);
        self.block(6, &body)
    }

    fn pcap(self, magic: u32, link: u32, records: &[Record<'_>]) -> Vec<u8> {
        let mut file = self.words(&[magic]);
        file.extend(self.halves(&[2, 4]));
        file.extend(self.words(&[0, 0, 65_535, link]));
        for record in records {
            let length = record.captured.len() as u32;
            file.extend(self.words(&[record.seconds, record.fraction, length, record.original]));
            if magic == LONG {
                file.extend(self.words(&[3, 0x0800_0000]));
            }
            file.extend(record.captured);
        }
        file
    }
}

#[derive(Clone, Copy, Debug)]
struct Record<'a> {
    seconds: u32,
    fraction: u32,
    captured: &'a [u8],
    original: u32,
}

const RECORDS: [Record<'static>; 3] = [
    Record {
        seconds: 1_700_000_000,
        fraction: 999_999,
        captured: &[1, 2, 3],
        original: 1514,
    },
    Record {
        seconds: u32::MAX,
        fraction: 0,
        captured: &[],
        original: 0,
    },
    Record {
        seconds: 0,
        fraction: 1,
        captured: &[9; 60],
        original: 60,
    },
];

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const LONG: u32 = 0xa1b2_cd34;

/// What a test wants to know of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    frame: u64,
    interface: u32,
    link: u16,
    time_ns: u64,
    captured: Vec<u8>,
    original: u32,
}

impl Seen {
    fn of(packet: &Packet<'_>) -> Self {
        Self {
            frame: packet.frame,
            interface: packet.interface,
            link: packet.link.0,
            time_ns: packet.time_ns,
            captured: packet.captured.to_vec(),
            original: packet.original_bytes,
        }
    }
}

/// Reads all of it at once; the packets, how it ended, and the reader.
fn read(file: &[u8]) -> (Vec<Seen>, Result<(), Stopped>, Reader) {
    let (mut reader, mut rest) = (Reader::new(), file);
    let mut seen = Vec::new();
    loop {
        match reader.next(&mut rest) {
            Step::Packet(packet) => seen.push(Seen::of(&packet)),
            Step::NeedMore { bytes } => {
                assert!(bytes > rest.len() && bytes <= BLOCK_BYTES_MAX, "{bytes}");
                break;
            }
            Step::Stopped(_) => break,
        }
        assert_eq!(reader.offset() as usize, file.len() - rest.len());
    }
    let end = reader.finish(rest.len());
    (seen, end, reader)
}

/// Reads it in pieces of this size.
fn read_in_pieces(
    file: &[u8],
    piece_bytes: usize,
    buffer_bytes: usize,
) -> (Vec<Seen>, Result<(), Stopped>) {
    let mut stream = Stream::new(buffer_bytes);
    let mut seen = Vec::new();
    let mut rest = file;
    loop {
        while stream.advance() == Advance::Packet {
            seen.push(Seen::of(&stream.packet()));
        }
        let space = stream.space();
        let bytes = piece_bytes.min(rest.len()).min(space.len());
        if bytes == 0 {
            return (seen, stream.finish());
        }
        let (piece, after) = rest.split_at(bytes);
        space[..bytes].copy_from_slice(piece);
        stream.filled(bytes);
        rest = after;
    }
}

fn stopped(file: &[u8]) -> (usize, u64, Why) {
    let (seen, end, mut reader) = read(file);
    let stopped = end.unwrap_err();
    // Once stopped, it stays so.
    if !matches!(stopped.why, Why::CutShort | Why::Empty) {
        assert!(matches!(reader.next(&mut &file[..]), Step::Stopped(again) if again == stopped));
    }
    (seen.len(), stopped.offset, stopped.why)
}

fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

/// The same packet in records of snoop and of Endace's format.
#[test]
fn formats_of_other_tools_are_read() {
    let packet = [7; 60];
    let mut snoop = b"snoop\0\0\0".to_vec();
    snoop.extend(Big.words(&[2, 4]));
    // Padded to a whole word and some more.
    for _ in 0..2 {
        snoop.extend(Big.words(&[1514, 60, 24 + 64, 0, 1_700_000_000, 123_456]));
        snoop.extend(packet);
        snoop.extend([0; 4]);
    }
    let erf = |kind: u8, headers: &[u8]| {
        let length = (16 + headers.len() + 60) as u16;
        let mut record = Little.words(&[1 << 31, 1_700_000_000]);
        record.extend([kind, 4]);
        record.extend(Big.halves(&[length, 0, 1514]));
        [&record, headers, &packet[..]].concat()
    };
    let endace = [
        erf(2, &[0, 0]),
        erf(
            0x82,
            &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
    ]
    .concat();
    for (file, time_ns) in [
        (snoop, 1_700_000_000_123_456_000),
        (endace, 1_700_000_000_500_000_000),
    ] {
        let mut reader = Reader::new();
        let mut rest = &file[..];
        for frame in 1..=2 {
            let Step::Packet(found) = reader.next(&mut rest) else {
                panic!("{frame}: {:?}", reader.finish(rest.len()));
            };
            assert_eq!((found.frame, found.time_ns), (frame, time_ns));
            assert_eq!((found.original_bytes, found.captured), (1514, &packet[..]));
            assert_eq!(found.link, LinkType::ETHERNET);
        }
        assert_eq!(reader.finish(rest.len()), Ok(()));
        // Byte by byte, as from a pipe.
        let mut stream = Stream::new(1);
        let mut packets = 0;
        for byte in &file {
            stream.space()[0] = *byte;
            stream.filled(1);
            while stream.advance() == Advance::Packet {
                packets += 1;
            }
        }
        assert_eq!((packets, stream.finish()), (2, Ok(())));
        // Cut anywhere: what is whole is handed over, and the end is no good one.
        for kept in 0..file.len() {
            let mut reader = Reader::new();
            let mut rest = &file[..kept];
            while let Step::Packet(_) = reader.next(&mut rest) {}
            let whole = reader.frames() == 1 && rest.is_empty() || kept == 16 && file[0] == b's';
            assert_eq!(reader.finish(rest.len()).is_ok(), whole, "{kept}");
        }
    }
    // A record that ends before its header does.
    let mut bad = erf(2, &[0, 0]);
    bad.splice(10..12, [0, 15]);
    let mut rest = &bad[..];
    let mut reader = Reader::new();
    assert!(matches!(reader.next(&mut rest), Step::Stopped(_)));
}

#[test]
fn pcap_reads_the_same_in_every_order_and_resolution() {
    for order in [Little, Big] {
        for (magic, fraction_ns) in [(MICROSECONDS, 1_000), (NANOSECONDS, 1), (LONG, 1_000)] {
            let (seen, end, reader) = read(&order.pcap(magic, 101, &RECORDS));
            assert_eq!(end, Ok(()), "{order:?} {magic:x}");
            let expected = RECORDS.iter().zip(1..).map(|(record, frame)| Seen {
                frame,
                interface: 0,
                link: 101,
                time_ns: u64::from(record.seconds) * 1_000_000_000
                    + u64::from(record.fraction) * fraction_ns,
                captured: record.captured.to_vec(),
                original: record.original,
            });
            assert_eq!(seen, expected.collect::<Vec<_>>(), "{order:?} {magic:x}");
            let [interface] = reader.interfaces() else {
                panic!("one interface");
            };
            assert_eq!(interface.link, LinkType::RAW);
            assert_eq!(interface.captured_bytes_max, 65_535);
            assert_eq!(u64::from(interface.tick_ns), fraction_ns);
        }
    }
}

#[test]
fn the_upper_half_of_pcaps_link_type_is_about_check_sequences() {
    let file = Little.pcap(MICROSECONDS, 0x5000_0001, &RECORDS[..1]);
    assert_eq!(read(&file).0[0].link, 1);
}

#[test]
fn what_the_writer_wrote_reads_back() {
    let mut file = Vec::new();
    pcapng::section_header("goodput", &mut file);
    pcapng::interface("near", 128, &mut file);
    pcapng::interface("far", 0, &mut file);
    let written = [
        pcapng::Packet {
            interface: 1,
            time_ns: 1_700_000_000_123_456_789,
            captured: &[1, 2, 3, 4, 5],
            original_bytes: 1514,
            direction: Direction::Inbound,
            comment: "dropped: queue",
        },
        pcapng::Packet {
            captured: &[7; 64],
            direction: Direction::Outbound,
            ..pcapng::Packet::default()
        },
        pcapng::Packet::default(),
    ];
    for packet in &written {
        pcapng::packet(packet, &mut file);
    }
    let (mut reader, mut rest) = (Reader::new(), &file[..]);
    for (frame, written) in (1..).zip(&written) {
        let Step::Packet(packet) = reader.next(&mut rest) else {
            panic!("packet {frame}");
        };
        assert_eq!((packet.frame, packet.link), (frame, LinkType::ETHERNET));
        assert_eq!(packet.comment().unwrap_or_default(), written.comment);
        let again = pcapng::Packet {
            interface: packet.interface,
            time_ns: packet.time_ns,
            captured: packet.captured,
            original_bytes: packet.original_bytes,
            direction: packet.direction(),
            comment: written.comment,
        };
        assert_eq!(again, *written);
    }
    assert!(rest.is_empty());
    let names: Vec<_> = reader
        .interfaces()
        .iter()
        .map(|i| (&*i.name, i.tick_ns))
        .collect();
    assert_eq!(names, [("near", 1), ("far", 1)]);
}

#[test]
fn each_section_has_its_own_order_and_interfaces() {
    let file = joined(&[
        Big.section(),
        Big.interface(1, 0, &[(9, &[9])]),
        Big.enhanced(0, 7, &[1], 1),
        Little.section(),
        Little.interface(113, 0, &[]),
        Little.interface(101, 0, &[(9, &[0x80 | 10]), (14, &2_i64.to_le_bytes())]),
        Little.enhanced(1, 1024, &[2], 2),
        Little.enhanced(0, 5, &[3], 3),
        Big.section(),
        Big.interface(276, 0, &[(14, &(-1_i64).to_be_bytes())]),
        Big.enhanced(0, 1_000_001, &[4], 4),
    ]);
    let (seen, end, reader) = read(&file);
    assert_eq!(end, Ok(()));
    let seen: Vec<_> = seen
        .iter()
        .map(|s| (s.frame, s.interface, s.link, s.time_ns))
        .collect();
    assert_eq!(
        seen,
        [
            (1, 0, 1, 7),
            (2, 2, 101, 3_000_000_000),
            (3, 1, 113, 5_000),
            (4, 3, 276, 1_000)
        ]
    );
    assert_eq!(reader.interfaces().len(), 4);
    assert_eq!(reader.interfaces()[2].tick_ns, 976_563);
}

#[test]
fn an_interface_of_an_earlier_section_is_not_one_of_this() {
    let file = joined(&[
        Little.section(),
        Little.interface(1, 0, &[]),
        Little.enhanced(0, 0, &[], 0),
        Little.section(),
    ]);
    assert_eq!(read(&file).1, Ok(()));
    let bad = joined(&[file.clone(), Little.enhanced(0, 0, &[], 0)]);
    assert_eq!(stopped(&bad), (1, file.len() as u64, Why::UnknownInterface));
}

#[test]
fn simple_and_obsolete_packets_are_packets() {
    for order in [Little, Big] {
        let simple = |original: u32, captured: &[u8]| {
            order.block(3, &[&order.words(&[original])[..], captured].concat())
        };
        let mut obsolete = order.halves(&[0, 17]);
        obsolete.extend(order.words(&[1, 2, 5, 1500]));
        obsolete.extend([5; 5]);
        let file = joined(&[
            order.section(),
            order.interface(1, 8, &[(9, &[9])]),
            simple(3, &[1, 2, 3]),
            simple(100, &[4; 8]),
            order.block(2, &obsolete),
        ]);
        let (seen, end, _) = read(&file);
        assert_eq!(end, Ok(()));
        let seen: Vec<_> = seen
            .iter()
            .map(|s| (s.frame, s.time_ns, &s.captured[..], s.original))
            .collect();
        assert_eq!(
            seen,
            [
                (1, 0, &[1, 2, 3][..], 3),
                (2, 0, &[4; 8], 100),
                (3, (1 << 32) + 2, &[5; 5], 1500)
            ]
        );
        // One byte of the snap length less than stated.
        let short = joined(&[
            order.section(),
            order.interface(1, 9, &[]),
            simple(100, &[4; 8]),
        ]);
        assert_eq!(stopped(&short).2, Why::Lengths);
    }
}

#[test]
fn counters_are_those_of_the_last_statistics() {
    let statistics = |order: Order, interface: u32, options: &[(u16, u64)]| {
        let mut body = order.words(&[interface, 0, 0]);
        for &(code, value) in options {
            let words = [value as u32, (value >> 32) as u32];
            let words = if order == Big {
                [words[1], words[0]]
            } else {
                words
            };
            body.extend(order.option(code, &order.words(&words)));
        }
        order.block(5, &body)
    };
    for order in [Little, Big] {
        let file = joined(&[
            order.section(),
            order.interface(1, 0, &[]),
            order.interface(1, 0, &[]),
            statistics(order, 1, &[(4, 100), (5, 1 << 40), (7, 3)]),
            statistics(order, 1, &[(7, 4), (6, 90), (8, 89)]),
            statistics(order, 2, &[(7, 9)]),
        ]);
        let (_, end, reader) = read(&file);
        assert_eq!(end, Ok(()), "counters of no interface are passed over");
        assert_eq!(reader.interfaces()[0].counters, Counters::default());
        let expected = Counters {
            received: Some(100),
            dropped_by_interface: Some(1 << 40),
            accepted: Some(90),
            dropped_by_system: Some(4),
            delivered: Some(89),
        };
        assert_eq!(reader.interfaces()[1].counters, expected);
    }
}

#[test]
fn other_blocks_are_passed_over_and_some_have_a_number() {
    let mut file = joined(&[Little.section(), Little.interface(1, 0, &[])]);
    // Name resolution, secrets and what nobody knows; then what Wireshark shows as frames.
    let blocks = [
        (4, 1),
        (10, 1),
        (0x777, 1),
        (9, 2),
        (0x0bad, 3),
        (0x4000_0bad, 4),
        (0x204, 5),
    ];
    for (kind, frame) in blocks {
        file.extend(Little.block(kind, &[1, 2, 3, 4, 5]));
        file.extend(Little.enhanced(0, 0, &[], 0));
        let (seen, end, _) = read(&file);
        assert_eq!((seen.len() > 1, end), (kind != 4, Ok(())));
        let numbered = seen.last().unwrap().frame - seen.len() as u64;
        assert_eq!(numbered, frame - 1, "block {kind:x}");
    }
}

#[test]
fn a_length_without_its_padding_is_read_as_others_do() {
    // A body of five bytes, padded to eight, whose length was written as 17.
    let mut odd = Little.words(&[0x777, 17]);
    odd.extend([1, 2, 3, 4, 5, 0, 0, 0]);
    odd.extend(Little.words(&[17]));
    let head = joined(&[Little.section(), Little.interface(1, 0, &[])]);
    let file = joined(&[head, odd, Little.enhanced(0, 0, &[], 0)]);
    let (seen, end, _) = read(&file);
    assert_eq!((seen.len(), end), (1, Ok(())));
}

#[test]
fn packets_up_to_the_bound_are_read_and_longer_ones_stop_it() {
    let longest = vec![1; CAPTURED_BYTES_MAX as usize];
    let longer = vec![1; CAPTURED_BYTES_MAX as usize + 1];
    let head = joined(&[Little.section(), Little.interface(1, 0, &[])]);
    let ng = |bytes: &[u8]| joined(&[head.clone(), Little.enhanced(0, 0, bytes, 0)]);
    let pcap = |captured| {
        let record = Record {
            captured,
            ..RECORDS[0]
        };
        Big.pcap(NANOSECONDS, 1, &[record])
    };
    for file in [ng(&longest), pcap(&longest)] {
        let (seen, end, _) = read(&file);
        assert_eq!((seen[0].captured.len(), end), (longest.len(), Ok(())));
        assert_eq!(read_in_pieces(&file, 1 << 20, 64).0, seen);
    }
    assert_eq!(stopped(&ng(&longer)), (0, head.len() as u64, Why::TooLong));
    assert_eq!(stopped(&pcap(&longer)), (0, 24, Why::TooLong));
}

#[test]
fn blocks_up_to_the_bound_are_held_and_longer_ones_only_passed_over() {
    let head = joined(&[Little.section(), Little.interface(1, 0, &[])]);
    // A packet with many remarks behind it.
    let with_options = |length: usize| {
        let mut body = Little.words(&[0, 0, 0, 0, 0]);
        body.resize(length - 12, 0);
        joined(&[head.clone(), Little.block(6, &body)])
    };
    assert_eq!(read(&with_options(BLOCK_BYTES_MAX)).0.len(), 1);
    let long = with_options(BLOCK_BYTES_MAX + 4);
    assert_eq!(stopped(&long), (0, head.len() as u64, Why::TooLong));
    let foreign = Little.block(0x777, &vec![0; 3 << 20]);
    let file = joined(&[head, foreign, Little.enhanced(0, 0, &[], 0)]);
    assert_eq!(read(&file).0.len(), 1);
    let mut stream = Stream::new(100);
    let mut rest = &file[..];
    let mut packets = 0;
    while !rest.is_empty() {
        let space = stream.space();
        assert!(space.len() <= 100, "nothing is held of what is passed over");
        let bytes = rest.len().min(space.len());
        space[..bytes].copy_from_slice(&rest[..bytes]);
        stream.filled(bytes);
        rest = &rest[bytes..];
        while stream.advance() == Advance::Packet {
            packets += 1;
        }
    }
    assert_eq!((packets, stream.finish()), (1, Ok(())));
}

#[test]
fn lengths_that_contradict_each_other_stop_it_where_they_stand() {
    let head = joined(&[Little.section(), Little.interface(1, 0, &[])]);
    let good = Little.enhanced(0, 0, &[1, 2, 3, 4], 4);
    let place = (head.len() + good.len()) as u64;
    let with = |block: Vec<u8>| joined(&[head.clone(), good.clone(), block]);
    let trailing = |block: Vec<u8>| {
        let mut block = block;
        let last = block.len() - 4;
        block[last] ^= 1;
        block
    };
    assert_eq!(
        stopped(&with(trailing(good.clone()))),
        (1, place, Why::Lengths)
    );
    let foreign = trailing(Little.block(0x777, &[0; 8]));
    assert_eq!(stopped(&with(foreign)), (1, place + 16, Why::Lengths));
    // Captured length: all of the block's room, and one byte more.
    let mut body = Little.words(&[0, 0, 0, 8, 8]);
    body.extend([0; 8]);
    assert_eq!(read(&with(Little.block(6, &body))).0.len(), 2);
    body[12] = 9;
    assert_eq!(
        stopped(&with(Little.block(6, &body))),
        (1, place, Why::Lengths)
    );
    for (kind, shortest) in [(6, 20), (2, 20), (3, 4), (1, 8), (5, 4)] {
        let body = vec![0; shortest];
        assert_eq!(read(&with(Little.block(kind, &body))).1, Ok(()), "{kind}");
        let short = with(Little.block(kind, &body[4..]));
        assert_eq!(stopped(&short), (1, place, Why::Lengths), "{kind}");
    }
    for length in [0, 8, 11] {
        for kind in [6, 0x777] {
            let mut block = Little.words(&[kind, length]);
            block.extend([0; 32]);
            let expected = (1, place, Why::Lengths);
            // Eleven is twelve less its padding.
            if length < 9 || kind != 6 {
                assert_eq!(stopped(&with(block)), expected, "{kind} {length}");
            }
        }
    }
}

#[test]
fn what_is_no_capture_is_told_from_what_is_cut() {
    assert_eq!(stopped(b""), (0, 0, Why::Empty));
    assert_eq!(stopped(b"PK\x03"), (0, 0, Why::CutShort));
    assert_eq!(stopped(b"PK\x03\x04 and more"), (0, 0, Why::NotACapture));
    // Endace's records begin with any four bytes, so more are waited for; none come.
    let (_, end, _) = read(b"PK\x03\x04");
    assert_eq!(end.unwrap_err().why, Why::NotACapture);
    let mut old = Little.pcap(MICROSECONDS, 1, &[]);
    assert_eq!(read(&old).1, Ok(()));
    old[4] = 3;
    assert_eq!(stopped(&old), (0, 0, Why::Version));
    let mut section = Big.section();
    assert_eq!(read(&section).1, Ok(()));
    section[13] = 2;
    assert_eq!(stopped(&section), (0, 0, Why::Version));
    section[8] = 0;
    assert_eq!(stopped(&section), (0, 0, Why::NotACapture));
    let mut short = Little.section();
    short[4] = 24;
    assert_eq!(stopped(&short), (0, 0, Why::Lengths));
}

#[test]
fn interfaces_are_bounded() {
    let mut file = Little.section();
    let block = Little.interface(1, 0, &[(2, &[b'x'; 300])]);
    for _ in 0..INTERFACES_MAX {
        file.extend(&block);
    }
    let (_, end, reader) = read(&file);
    assert_eq!((reader.interfaces().len(), end), (INTERFACES_MAX, Ok(())));
    assert_eq!(reader.interfaces()[0].name.len(), 255);
    let place = file.len() as u64;
    file.extend(&block);
    assert_eq!(stopped(&file), (0, place, Why::TooManyInterfaces));
}

/// One of everything, in both formats.
fn samples() -> Vec<Vec<u8>> {
    let mut all = vec![
        Big.pcap(LONG, 1, &RECORDS),
        Little.pcap(NANOSECONDS, 1, &RECORDS),
    ];
    all.push(joined(&[
        Little.section(),
        Little.interface(1, 0, &[(2, b"eth0"), (9, &[9])]),
        Little.enhanced(0, 1, &[1; 50], 60),
        Little.block(0x777, &[0; 40]),
        Little.block(0x0bad, &[0; 8]),
        Little.enhanced(0, 2, &[2; 3], 3),
        Little.block(5, &Little.words(&[0, 0, 0])),
        Big.section(),
        Big.interface(101, 0, &[]),
        Big.enhanced(0, 3, &[], 0),
    ]));
    all
}

#[test]
fn a_capture_that_is_cut_gives_the_packets_before_the_cut() {
    for file in samples() {
        let (whole, end, _) = read(&file);
        assert_eq!(end, Ok(()));
        let mut ends_well = 0;
        for cut in 0..=file.len() {
            let (seen, end, _) = read(&file[..cut]);
            assert_eq!(seen, whole[..seen.len()]);
            match end {
                Ok(()) => ends_well += 1,
                Err(stopped) => {
                    assert!(matches!(stopped.why, Why::CutShort | Why::Empty));
                    assert!(stopped.offset as usize <= cut);
                }
            }
            assert_eq!(
                read_in_pieces(&file[..cut], 5, 7),
                (seen, end),
                "cut at {cut}"
            );
        }
        // Between records and blocks, and nowhere else.
        let expected = if file.starts_with(&[0x0a]) {
            10
        } else {
            1 + RECORDS.len()
        };
        assert_eq!(ends_well, expected);
    }
}

#[test]
fn pieces_of_any_size_give_the_same() {
    for file in samples() {
        let (seen, end, _) = read(&file);
        for piece in [1, 2, 3, 11, 16, 64, 1000] {
            for buffer in [1, 16, 100, 4096] {
                assert_eq!(read_in_pieces(&file, piece, buffer), (seen.clone(), end));
            }
        }
    }
}
