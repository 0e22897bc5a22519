//! Any bytes as lines of a manifest: what is read of one is a name in UTF-8 and its hash, and written again it reads the
//! same. Behind a right hash, so that names are reached.

#![no_main]

use copy::digest::sum_of;
use copy::manifest::{line, read_line};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let Some((name, hash)) = read_line(bytes) else {
        return;
    };
    assert!(!name.is_empty() && name.len() <= bytes.len());
    let again = line(&name, &hash).unwrap();
    assert_eq!(again.matches('\n').count(), 1);
    assert_eq!(read_line(again.as_bytes()), Some((name, hash)));
}

fuzz_target!(|bytes: &[u8]| {
    bytes.split_inclusive(|byte| *byte == b'\n').for_each(check);
    let right = line(b"x", &sum_of(bytes)).unwrap();
    let right = &right.as_bytes()[..right.len() - 2];
    check(&[right, bytes].concat());
    check(&[b"\\", right, bytes].concat());
    // What may be a name is told from what may not.
    if let Some(own) = line(bytes, &sum_of(b"")).filter(|_| !bytes.is_empty()) {
        assert_eq!(read_line(own.as_bytes()), Some((bytes.to_vec(), sum_of(b""))));
    }
});
