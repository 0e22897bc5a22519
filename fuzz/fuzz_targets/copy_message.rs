//! Any bytes from the other side of a copy: a message that encodes to the same again, or a refusal.

#![no_main]

use copy::message::{BLOCK_HEAD_BYTES, BlockHead, FromDestination, FromSource};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = FromSource::read(bytes) {
        assert_eq!(FromSource::read(&message.to_bytes()), Ok(message));
    }
    if let Ok(message) = FromDestination::read(bytes) {
        assert_eq!(FromDestination::read(&message.to_bytes()), Ok(message));
    }
    // The first two bytes say how many there are of data.
    let Some((data, about)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let data = usize::from(u16::from_le_bytes(*data));
    if let Ok(heads) = BlockHead::read_all(about, data) {
        assert_eq!(heads.len() * BLOCK_HEAD_BYTES, about.len());
        assert_eq!(heads.iter().map(|head| head.len as usize).sum::<usize>(), data);
        let mut again = Vec::new();
        heads.iter().for_each(|head| head.put(&mut again));
        assert_eq!(again, about);
    }
});
