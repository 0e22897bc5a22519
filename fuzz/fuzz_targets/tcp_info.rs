//! Any bytes as the kernel's `tcp_info`: what parses reads back the same field by field.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::tcp_info::TcpInfo;

fuzz_target!(|bytes: &[u8]| {
    let Some(info) = TcpInfo::parse(bytes) else {
        return;
    };
    let mut again = TcpInfo::default();
    for (name, value) in info.fields() {
        assert!(again.set(name, value), "{name}");
    }
    assert!(again.fields().eq(info.fields()));
    assert!(again.len_bytes <= info.len_bytes);
});
