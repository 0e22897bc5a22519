//! Any bytes on a connection of a copy, in a greeting's place and after one: an end, and never a frame with a wrong sum.

#![no_main]

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use copy::link::{self, Link, Sessions, Socket, Which};
use copy::{Cipher, Key, SessionId};
use libfuzzer_sys::fuzz_target;

struct One(Key);

impl Sessions for One {
    fn find(&self, _: SessionId) -> Option<(Key, Vec<Cipher>)> {
        Some((self.0.clone(), Cipher::ALL.to_vec()))
    }
}

fn key() -> Key {
    Key::from_hex(&"07".repeat(32)).unwrap()
}

fn receive_all(link: &mut Link) -> usize {
    let mut buffer = Vec::new();
    let mut frames = 0;
    while let Ok(head) = link.receive(&mut buffer) {
        assert!(head.about <= link::ABOUT_MOST && head.data <= link::DATA_MOST);
        assert!(buffer.len() >= head.about + head.data);
        frames += 1;
    }
    frames
}

fuzz_target!(|bytes: &[u8]| {
    // As a greeting.
    let (near, far) = UnixStream::pair().unwrap();
    let said = bytes.to_vec();
    let writer = thread::spawn(move || {
        let _ = (&near).write_all(&said);
        let _ = near.shutdown(Shutdown::Write);
        near
    });
    if let Ok((_, _, mut link)) = link::accept(Socket::Unix(far), &One(key())) {
        receive_all(&mut link);
    }
    drop(writer.join());
    // After one, in clear and in TLS.
    let cipher = match bytes.first() {
        Some(first) if first % 2 == 1 => Cipher::Aes128Gcm,
        _ => Cipher::None,
    };
    let (near, far) = UnixStream::pair().unwrap();
    let raw = near.try_clone().unwrap();
    let greeter = thread::spawn(move || {
        let (session, which) = (SessionId([1; 16]), Which::Blocks(0));
        link::connect(Socket::Unix(near), session, which, cipher, &key())
    });
    let (_, _, mut far) = link::accept(Socket::Unix(far), &One(key())).unwrap();
    let _near = greeter.join().unwrap().unwrap();
    let said = bytes.to_vec();
    let writer = thread::spawn(move || {
        let _ = (&raw).write_all(&said);
        let _ = raw.shutdown(Shutdown::Write);
    });
    assert_eq!(receive_all(&mut far), 0, "took what was never sent");
    far.socket().shut();
    let _ = writer.join();
});
