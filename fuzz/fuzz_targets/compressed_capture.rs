//! A byte that chooses, then any bytes behind the beginning of a gzip or zstd file, and as content of a gzip
//! file that is whole: read to their end in bounded memory.

#![no_main]

use std::io::Cursor;

use capture::file::Capture;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let file = match choice % 3 {
        // RFC 1952 section 2.3: magic, deflate, no flags, no time.
        0 => [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], bytes].concat(),
        // RFC 8878 section 3.1.1.
        1 => [&[0x28, 0xb5, 0x2f, 0xfd], bytes].concat(),
        _ => stored(bytes),
    };
    let Ok(mut capture) = Capture::new(Cursor::new(file)) else {
        return;
    };
    // A compressed file may have far more in it than is worth the time.
    while capture.offset() < 1 << 22 && capture.next_packet().is_some() {}
});

/// A gzip file of stored blocks (RFC 1951 section 3.2.4); its checksum is wrong, which is told at the end.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let blocks = bytes.chunks(usize::from(u16::MAX));
    for block in blocks {
        let length = block.len() as u16;
        file.push(0);
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(block);
    }
    file.extend([1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    file
}
