//! Any bytes from a peer: a message that encodes to the same again, a wait for more, or a refusal.

#![no_main]

use libfuzzer_sys::fuzz_target;
use measure::message;

fuzz_target!(|bytes: &[u8]| {
    let _ = message::hear(bytes);
    let (decoded, taken) = match message::decode(bytes, 1 << 20) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => {
            let error = error.to_string();
            return assert!(error.chars().all(units::text::is_plain), "{error:?}");
        }
    };
    assert!(taken <= bytes.len());
    let mut again = Vec::new();
    message::encode(&decoded, &mut again);
    let (twice, all) = message::decode(&again, 1 << 20).unwrap().unwrap();
    assert_eq!((twice, all), (decoded, again.len()));
});
