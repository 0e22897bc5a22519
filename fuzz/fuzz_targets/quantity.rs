//! Any text as what is typed: rates, times, sizes, shares, addresses and traces of a link. What is taken
//! reads back as the same from what it prints.

#![no_main]

use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use units::{Bytes, Duration, Percentage, Rate};
use wire::classify::{Mac, Prefix};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    // Printing rounds, so what is printed is only read, not compared; the largest are rounded up.
    const MOST: u64 = u64::MAX / 2;
    if let Ok(rate) = Rate::from_str(text)
        && rate.as_bits_per_second() < MOST
    {
        assert!(Rate::from_str(&rate.to_string().replace(' ', "")).is_ok());
    }
    if let Ok(time) = Duration::from_str(text)
        && time.as_ns() < MOST
    {
        assert!(Duration::from_str(&time.to_string().replace(' ', "")).is_ok());
    }
    if let Ok(size) = Bytes::from_str(text)
        && size.as_u64() < MOST
    {
        assert!(Bytes::from_str(&size.to_string().replace(' ', "")).is_ok());
    }
    let _ = Percentage::from_str(text);
    let _ = (Mac::from_str(text), Prefix::from_str(text));
    let _ = link::trace::Trace::parse(text);
});
