//! A byte that cuts, then any bytes as a capture: as they are, behind the beginning of each format,
//! and as a compressed file. Frames and offsets only grow, bounds hold, and pieces of any size give
//! the same packets and the same end as the whole.

#![no_main]

use std::io::Cursor;

use capture::file::Capture;
use libfuzzer_sys::fuzz_target;
use wire::capture::{
    Advance, BLOCK_BYTES_MAX, CAPTURED_BYTES_MAX, Packet, Reader, Step, Stopped, Stream,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else {
        return;
    };
    let piece_bytes = usize::from(cut) + 1;
    compare(bytes, piece_bytes);
    for head in heads() {
        compare(&[&head, bytes].concat(), piece_bytes);
    }
    let Ok(mut capture) = Capture::new(Cursor::new(bytes.to_vec())) else {
        return;
    };
    // A compressed file may have far more in it than is worth the time.
    while capture.offset() < 1 << 22 && capture.next_packet().is_some() {}
});

/// The beginnings of files of each kind.
fn heads() -> Vec<Vec<u8>> {
    let mut pcapng = Vec::new();
    wire::pcapng::section_header("fuzz", &mut pcapng);
    wire::pcapng::interface("any", 0, &mut pcapng);
    let mut heads = vec![pcapng];
    for magic in [0xa1b2_c3d4_u32, 0xa1b2_3c4d, 0xa1b2_cd34] {
        let words = [magic, 0x0004_0002, 0, 0, 65_535, 1];
        heads.push(words.into_iter().flat_map(u32::to_le_bytes).collect());
    }
    heads.push(b"snoop\0\0\0\0\0\0\x02\0\0\0\x04".to_vec());
    heads.push(vec![0, 0, 0, 0, 0, 0, 0, 0x60, 2, 4, 0, 16, 0, 0, 0, 0]);
    heads
}

fn compare(file: &[u8], piece_bytes: usize) {
    let (whole, end) = whole(file);
    let (pieces, same_end) = pieces(file, piece_bytes);
    assert_eq!(whole, pieces);
    assert_eq!(end, same_end);
}

/// All of a packet, the bytes as a sum.
type Seen = (u64, u32, u16, u64, u32, usize, u64, bool);

fn seen(packet: &Packet<'_>) -> Seen {
    assert!(packet.captured.len() <= CAPTURED_BYTES_MAX as usize);
    assert!(packet.options().count() <= BLOCK_BYTES_MAX / 4);
    packet.direction();
    (
        packet.frame,
        packet.interface,
        packet.link.0,
        packet.time_ns,
        packet.original_bytes,
        packet.captured.len(),
        packet.captured.iter().map(|&byte| u64::from(byte)).sum(),
        packet.comment().is_some(),
    )
}

fn whole(file: &[u8]) -> (Vec<Seen>, Result<(), Stopped>) {
    let (mut reader, mut rest) = (Reader::new(), file);
    let (mut all, mut frame, mut offset) = (Vec::new(), 0, 0);
    loop {
        let step = reader.next(&mut rest);
        assert_eq!(reader.offset() as usize, file.len() - rest.len());
        match step {
            Step::Packet(packet) => {
                assert!(packet.frame > frame && reader.offset() > offset);
                assert!((packet.interface as usize) < reader.interfaces().len());
                (frame, offset) = (packet.frame, reader.offset());
                all.push(seen(&packet));
            }
            Step::NeedMore { bytes } => {
                assert!(bytes > rest.len() && bytes <= BLOCK_BYTES_MAX);
                break;
            }
            Step::Stopped(stopped) => {
                assert!(stopped.offset <= file.len() as u64);
                break;
            }
        }
    }
    (all, reader.finish(rest.len()))
}

fn pieces(file: &[u8], piece_bytes: usize) -> (Vec<Seen>, Result<(), Stopped>) {
    let mut stream = Stream::new(piece_bytes / 2);
    let mut all = Vec::new();
    let mut rest = file;
    loop {
        while stream.advance() == Advance::Packet {
            all.push(seen(&stream.packet()));
        }
        let space = stream.space();
        assert!(!space.is_empty() && space.len() <= BLOCK_BYTES_MAX);
        let bytes = piece_bytes.min(space.len()).min(rest.len());
        if bytes == 0 {
            return (all, stream.finish());
        }
        let (piece, after) = rest.split_at(bytes);
        space[..bytes].copy_from_slice(piece);
        stream.filled(bytes);
        rest = after;
    }
}
