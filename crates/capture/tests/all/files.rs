//! Capture files as they lie about: compressed in pieces, cut, damaged, still growing.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use crate::support::{Draws, Folder, frame, pcapng};
use capture::decoder::Kinds;
use capture::file::{Capture, Compression, End, open};
use flate2::write::GzEncoder;
use wire::capture::{Stopped, Why};
use wire::segment::Decoded;

/// A packet: number, time, bytes.
type Seen = (u64, u64, Vec<u8>);

/// What is left of a capture, and how it ended.
fn rest_of(capture: &mut Capture) -> (Vec<Seen>, String) {
    let mut packets = Vec::new();
    while let Some(packet) = capture.next_packet() {
        packets.push((packet.frame, packet.time_ns, packet.captured.to_vec()));
    }
    (packets, capture.end().unwrap().to_string())
}

fn read(bytes: Vec<u8>) -> (Vec<Seen>, String, Compression) {
    let mut capture = Capture::new(io::Cursor::new(bytes)).unwrap();
    let (packets, end) = rest_of(&mut capture);
    (packets, end, capture.compression())
}

/// Larger than a buffer: 1.6 MB.
fn sample() -> Vec<u8> {
    let mut draws = Draws(1);
    let frames: Vec<_> = (0..3_000).map(|_| frame(&mut draws)).collect();
    pcapng(&frames)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Blocks of 64 KiB, each by itself.
fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut info = lz4_flex::frame::FrameInfo::new();
    info.block_size = lz4_flex::frame::BlockSize::Max64KB;
    info.content_checksum = true;
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A zstd frame by hand: blocks as they stand, no checksum, a window of 2 to the `window_log`.
fn zstd(bytes: &[u8], window_log: u8) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    let blocks = bytes.chunks(100_000);
    let last = blocks.len() - 1;
    for (number, block) in blocks.enumerate() {
        let head = (block.len() << 3) | usize::from(number == last);
        frame.extend(&head.to_le_bytes()[..3]);
        frame.extend(block);
    }
    frame
}

const WHOLE: &str = "the capture was read to its end";

#[test]
fn a_capture_reads_the_same_whatever_is_around_it() {
    let file = sample();
    let (packets, end, compression) = read(file.clone());
    assert_eq!(
        (packets.len(), &*end, compression),
        (3_000, WHOLE, Compression::None)
    );
    let (head, tail) = file.split_at(file.len() / 3);
    let skippable = [0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5];
    let compressed =
        ruzstd::encoding::compress_to_vec(&file[..], ruzstd::encoding::CompressionLevel::Fastest);
    for (around, expected) in [
        (gzip(&file), Compression::Gzip),
        ([gzip(head), gzip(tail)].concat(), Compression::Gzip),
        (compressed, Compression::Zstd),
        (zstd(&file, 20), Compression::Zstd),
        (lz4(&file), Compression::Lz4),
        ([lz4(head), lz4(tail)].concat(), Compression::Lz4),
        (xz(&file), Compression::Xz),
        ([xz(head), xz(tail)].concat(), Compression::Xz),
        (
            [
                &skippable[..],
                &zstd(head, 17),
                &skippable,
                &zstd(tail, 10 + 7),
            ]
            .concat(),
            Compression::Zstd,
        ),
    ] {
        let (again, end, compression) = read(around);
        assert_eq!((&*end, compression), (WHOLE, expected));
        assert!(again == packets);
    }
}

#[test]
fn a_compressed_file_that_is_cut_gives_what_was_readable() {
    let file = sample();
    let (packets, ..) = read(file.clone());
    for around in [gzip(&file), zstd(&file, 20), lz4(&file), xz(&file)] {
        let (again, end, _) = read(around[..around.len() / 2].to_vec());
        assert!(again.len() > 500 && again.len() < 2_500, "{}", again.len());
        assert!(again == packets[..again.len()]);
        assert!(end.contains(", after byte "), "{end}");
    }
    // Within a frame to skip, and within the first header.
    let (_, end, _) = read(vec![0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2]);
    assert!(end.contains("after byte 0"), "{end}");
    let (_, end, _) = read(vec![0x1f, 0x8b, 8]);
    assert!(end.contains("after byte 0"), "{end}");
}

#[test]
fn what_was_compressed_with_a_checksum_is_checked() {
    let file = sample();
    let level = ruzstd::encoding::CompressionLevel::Uncompressed;
    let good = ruzstd::encoding::compress_to_vec(&file[..], level);
    assert_eq!(read(good.clone()).1, WHOLE);
    for mut bad in [good, gzip(&file)] {
        // Of zstd a byte of the checksum itself, of gzip one of its CRC.
        let place = bad.len() - if bad[0] == 0x28 { 1 } else { 8 };
        bad[place] ^= 1;
        let (packets, end, _) = read(bad);
        assert_eq!(packets.len(), 3_000);
        assert!(end.contains("check") || end.contains("corrupt"), "{end}");
    }
}

/// What the fuzz target `compressed_capture` does, with bytes that are drawn.
#[test]
fn any_bytes_in_a_compressed_file_are_read_to_an_end() {
    let mut rng = units::Rng::new(7);
    let mut below = |n: usize| usize::try_from(rng.next_u64() % n as u64).unwrap();
    let file = sample();
    let heads: [&[u8]; 3] = [
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3],
        &[0x28, 0xb5, 0x2f, 0xfd],
        &[0x50, 0x2a, 0x4d, 0x18],
    ];
    for round in 0..300 {
        let mut bytes = heads[round % 3].to_vec();
        let more = below(400);
        bytes.extend((0..more).map(|_| u8::try_from(below(256)).unwrap()));
        let (_, end, _) = read(bytes);
        assert_ne!(end, WHOLE);
    }
    for good in [gzip(&file), zstd(&file, 20)] {
        for _ in 0..30 {
            let mut bad = good.clone();
            for _ in 0..3 {
                let place = below(bad.len());
                bad[place] ^= u8::try_from(1 + below(255)).unwrap();
            }
            let (packets, ..) = read(bad);
            assert!(packets.len() < 1_000_000, "{}", packets.len());
        }
    }
}

#[test]
fn a_window_larger_than_zstd_itself_takes_is_refused() {
    let file = sample();
    assert_eq!(read(zstd(&file, 27)).1, WHOLE);
    let (packets, end, _) = read(zstd(&file, 28));
    assert_eq!(packets.len(), 0);
    assert!(end.contains("after byte 0"), "{end}");
}

#[test]
fn a_file_that_grows_is_read_on() {
    let folder = Folder::new("grows");
    let file = sample();
    let (packets, ..) = read(file.clone());
    let cut = file.len() / 2;
    let path = folder.write("growing.pcapng", &file[..cut]);
    let mut capture = open(&path).unwrap();
    let (first, end) = rest_of(&mut capture);
    assert!(
        end.starts_with("the file ends within a packet or block"),
        "{end}"
    );
    let mut growing = OpenOptions::new().append(true).open(&path).unwrap();
    growing.write_all(&file[cut..]).unwrap();
    let (second, end) = rest_of(&mut capture);
    assert_eq!(end, WHOLE);
    assert!([first, second].concat() == packets);
    assert_eq!(
        (capture.frames(), capture.offset()),
        (3_000, file.len() as u64)
    );
    let names: Vec<_> = capture.interfaces().iter().map(|i| &*i.name).collect();
    assert_eq!(names, ["near", "far"]);
}

#[test]
fn a_file_that_shrinks_ends_the_capture_and_nothing_else() {
    let folder = Folder::new("shrinks");
    let path = folder.write("shrinking.pcapng", &sample());
    let mut capture = open(&path).unwrap();
    assert!(capture.next_packet().is_some());
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    let (packets, end) = rest_of(&mut capture);
    assert!(packets.len() < 2_999);
    assert!(end.starts_with("the file ends within"), "{end}");
}

#[test]
fn what_is_no_capture_says_so() {
    assert!(open(Path::new("/no/such/file")).is_err());
    assert!(open(Path::new("/")).is_err(), "a folder");
    let mut empty = open(Path::new("/dev/null")).unwrap();
    assert!(empty.end().is_none() && empty.next_packet().is_none());
    let expected = Stopped {
        offset: 0,
        why: Why::Empty,
    };
    assert!(matches!(empty.end(), Some(End::Stopped(stopped)) if *stopped == expected));
    let (_, end, _) = read(b"hello, world".to_vec());
    assert_eq!(
        end,
        "no format of captures that is known begins so at byte 0"
    );
}

#[test]
fn packets_are_decoded_and_counted() {
    let mut draws = Draws(2);
    let mut arp = vec![2; 60];
    (arp[12], arp[13]) = (8, 6);
    let frames = [frame(&mut draws), arp, frame(&mut draws), vec![0; 3]];
    let mut capture = Capture::new(io::Cursor::new(pcapng(&frames))).unwrap();
    let mut seen = Vec::new();
    let ended = capture.for_each_segment(|packet, decoded, segment| {
        assert!(decoded != Decoded::Tcp || segment.flow.ports[0] >= 20_000);
        seen.push((packet.frame, decoded));
        if seen.len() == 3 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    assert!(!ended && capture.end().is_none());
    assert_eq!(
        seen,
        [
            (1, Decoded::Tcp),
            (2, Decoded::NotIp { ether_type: 0x0806 }),
            (3, Decoded::Tcp)
        ]
    );
    assert!(capture.for_each_segment(|_, _, _| ControlFlow::Continue(())));
    let expected = Kinds {
        tcp: 2,
        not_ip: 1,
        malformed: 1,
        ..Kinds::default()
    };
    assert_eq!(
        (capture.decoder().kinds(), capture.decoder().kinds().all()),
        (expected, 4)
    );
}
