//! Any bytes at a daemon's door, in clear and inside TLS: nobody gets in, and nothing is said.

#![no_main]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use copy::Key;
use copy::gate::{Gate, Visitor};
use copy::link::Socket;
use libfuzzer_sys::fuzz_target;

fn key(digits: &str) -> Option<Key> {
    Key::from_hex(&digits.repeat(32))
}

fuzz_target!(|bytes: &[u8]| {
    let config = tls::gate_server(None, None).unwrap();
    let gate = Gate::new(config, key("07")).with_patience(Duration::from_millis(2));
    let (near, far) = UnixStream::pair().unwrap();
    let _ = (&near).write_all(bytes);
    let _ = near.shutdown(Shutdown::Write);
    assert!(gate.admit(Socket::Unix(far), Instant::now()).is_err());
    let mut heard = Vec::new();
    let _ = (&near).read_to_end(&mut heard);
    // A greeting of TLS is answered, anything else is not.
    assert!(heard.is_empty() || heard.starts_with(&[0x16, 3, 3]));
    // Behind a handshake: a visitor whose token is these bytes'.
    let mut digits = [0; 32];
    let most = bytes.len().min(32);
    digits[..most].copy_from_slice(&bytes[..most]);
    let token = Key::from_hex(&digits.iter().map(|b| format!("{b:02x}")).collect::<String>());
    if digits == [7; 32] {
        return;
    }
    let visitor = Visitor::new(tls::gate_client(None, None).unwrap(), "localhost", token).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let gate = gate.with_patience(Duration::from_millis(50));
    let visits = thread::spawn(move || visitor.enter(Socket::Unix(near)).is_ok());
    assert!(gate.admit(Socket::Unix(far), Instant::now()).is_err());
    assert!(!visits.join().unwrap());
});
