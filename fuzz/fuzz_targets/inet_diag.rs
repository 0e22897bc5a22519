//! Any bytes as a socket that the kernel describes: what is read lies within them, and reading ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::inet_diag::Socket;

fuzz_target!(|bytes: &[u8]| {
    let Some(socket) = Socket::parse(bytes) else {
        return;
    };
    let values: usize = socket.attributes().map(|(_, value)| value.len() + 4).sum();
    assert!(values <= bytes.len());
    let record = socket.record();
    assert_eq!(record.cookie, socket.cookie());
    assert!(record.congestion.as_str().len() <= 16);
});
