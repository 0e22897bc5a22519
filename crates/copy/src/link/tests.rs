use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, Tls13AeadAlgorithm, UnsupportedOperationError,
};

use super::*;

struct One(SessionId, Key, Vec<Cipher>);

impl Sessions for One {
    fn find(&self, session: SessionId) -> Option<(Key, Vec<Cipher>)> {
        (session == self.0).then(|| (self.1.clone(), self.2.clone()))
    }
}

fn sockets() -> (Socket, Socket) {
    let (a, b) = UnixStream::pair().unwrap();
    (Socket::Unix(a), Socket::Unix(b))
}

/// Both ends of a handshake, or why each had none.
fn shake(
    cipher: Cipher,
    allowed: &[Cipher],
    same_key: bool,
) -> (io::Result<Link>, io::Result<Link>) {
    let (near, far) = sockets();
    let session = SessionId([7; 16]);
    let key = Key::random().unwrap();
    let theirs = match same_key {
        true => key.clone(),
        false => Key::random().unwrap(),
    };
    let sessions = One(session, theirs, allowed.to_vec());
    thread::scope(|scope| {
        let far = scope.spawn(move || {
            accept(far, &sessions).map(|(_, which, link)| {
                assert_eq!(which, Which::Blocks(3));
                link
            })
        });
        let near = connect(near, session, Which::Blocks(3), cipher, &key);
        (near, far.join().unwrap())
    })
}

#[test]
fn frames_arrive_as_they_were_sent_under_every_cipher() {
    for cipher in Cipher::ALL {
        let (near, far) = shake(cipher, &Cipher::ALL, true);
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        let data: Vec<u8> = (0..3_000_000_u32)
            .map(|i| (i / 7).to_le_bytes()[0])
            .collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                near.send(9, b"about", &data).unwrap();
                near.send(10, b"", b"").unwrap();
                near.send(11, &data[..ABOUT_MOST], &data[..1]).unwrap();
            });
            let mut buffer = Vec::new();
            let head = far.receive(&mut buffer).unwrap();
            assert_eq!(
                head,
                FrameHead {
                    kind: 9,
                    about: 5,
                    data: data.len()
                }
            );
            assert_eq!(&buffer[..5], b"about");
            assert!(buffer[5..5 + data.len()] == data[..]);
            assert_eq!(far.receive(&mut buffer).unwrap().kind, 10);
            let head = far.receive(&mut buffer).unwrap();
            assert_eq!((head.about, head.data), (ABOUT_MOST, 1));
        });
        // And the other way, which nothing forbids.
        far.send(1, b"back", &[]).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(near.receive(&mut buffer).unwrap().about, 4);
        far.socket().shut();
        assert!(near.receive(&mut buffer).is_err());
    }
}

#[test]
fn what_lies_in_several_places_arrives_in_one_piece() {
    let data: Vec<u8> = (0..700_000_u32).map(|i| (i / 3).to_le_bytes()[0]).collect();
    // More places than one call takes (IOV_MAX, readv(2)), empty ones at either end and between, and long ones.
    let mut parts = vec![&data[..0]];
    parts.extend(data[..6_000].chunks(5));
    parts.extend([
        &data[..0],
        &data[6_000..500_000],
        &data[500_000..],
        &data[..0],
    ]);
    for cipher in Cipher::ALL {
        let (near, far) = shake(cipher, &Cipher::ALL, true);
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        thread::scope(|scope| {
            scope.spawn(|| {
                let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
                near.send_gathered(9, b"about", &parts).unwrap();
                near.send_gathered(10, b"", &[]).unwrap();
            });
            let mut buffer = Vec::new();
            let head = far.receive(&mut buffer).unwrap();
            assert_eq!((head.kind, head.about, head.data), (9, 5, data.len()));
            assert!(buffer[5..5 + data.len()] == data[..], "{cipher:?}");
            let head = far.receive(&mut buffer).unwrap();
            assert_eq!((head.kind, head.about, head.data), (10, 0, 0));
        });
    }
}

#[test]
fn what_fills_a_handshake_is_passed_over() {
    for cipher in Cipher::ALL {
        let (near, far) = sockets();
        let (session, key) = (SessionId([7; 16]), Key::random().unwrap());
        let sessions = One(session, key.clone(), Cipher::ALL.to_vec());
        thread::scope(|scope| {
            let far = scope.spawn(|| accept(far, &sessions).unwrap().2);
            let which = Which::Blocks(3);
            let near = connect_filling(
                near,
                session,
                which,
                (cipher, &key),
                HANDSHAKE_PATIENCE,
                Some(Duration::MAX / 2),
            );
            let (mut near, mut far) = (near.unwrap(), far.join().unwrap());
            near.send(9, b"about", b"data").unwrap();
            let mut buffer = Vec::new();
            let head = far.receive(&mut buffer).unwrap();
            assert_eq!((head.kind, head.about, head.data), (9, 5, 4));
            assert_eq!(&buffer[..9], b"aboutdata");
        });
    }
}

#[test]
fn a_greeting_of_another_version_is_answered_and_too_much_nothing_refused() {
    let answer_to = |version: u16, fill: Option<u16>| {
        let (near, far) = sockets();
        let sessions = One(SessionId([7; 16]), Key::random().unwrap(), Vec::new());
        let mut hello = [0; HELLO_BEGIN].to_vec();
        hello[..8].copy_from_slice(MAGIC);
        hello[8..10].copy_from_slice(&version.to_le_bytes());
        hello[10..12].copy_from_slice(&version.to_le_bytes());
        hello.extend(fill.iter().flat_map(|fill| fill.to_le_bytes()));
        (&near).write_all(&hello).unwrap();
        assert!(accept(far, &sessions).is_err());
        let mut answer = Vec::new();
        let _ = (&near).read_to_end(&mut answer);
        answer.get(12).copied()
    };
    // The first version's greeting ends where that of later ones goes on.
    assert_eq!(answer_to(1, None), Some(Answer::Version.code()));
    assert_eq!(
        answer_to(VERSION + 1, Some(0)),
        Some(Answer::Version.code())
    );
    let most = u16::try_from(FILL_MOST).unwrap();
    assert_eq!(answer_to(VERSION, Some(most + 1)), None);
}

#[test]
fn who_names_no_session_hears_nothing_of_a_quiet_listener() {
    for version in [1, VERSION, VERSION + 1] {
        let (near, far) = sockets();
        let sessions = One(SessionId([7; 16]), Key::random().unwrap(), Vec::new());
        let mut hello = [0; HELLO_BYTES];
        hello[..8].copy_from_slice(MAGIC);
        hello[8..10].copy_from_slice(&version.to_le_bytes());
        hello[10..12].copy_from_slice(&version.to_le_bytes());
        (&near).write_all(&hello).unwrap();
        assert!(accept_quietly(far, &sessions, Instant::now() + HANDSHAKE_PATIENCE).is_err());
        let mut answer = Vec::new();
        let _ = (&near).read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
}

#[test]
fn a_greeting_that_trickles_in_is_not_waited_for() {
    let (near, far) = sockets();
    let sessions = One(SessionId([7; 16]), Key::random().unwrap(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(move || {
            // Fewer than a greeting has, and never silent for as long as one may take.
            for byte in MAGIC {
                let _ = (&near).write_all(&[*byte]);
                thread::sleep(Duration::from_millis(100));
            }
            // Open until the other side gives up.
            let _ = (&near).read(&mut [0]);
        });
        let greeted = Instant::now() + Duration::from_millis(300);
        let error = accept_quietly(far, &sessions, greeted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn who_lacks_the_key_is_refused_on_both_sides() {
    for cipher in Cipher::ALL {
        let (near, far) = shake(cipher, &Cipher::ALL, false);
        assert_eq!(
            far.unwrap_err().kind(),
            ErrorKind::PermissionDenied,
            "{cipher:?}"
        );
        assert_eq!(
            near.unwrap_err().kind(),
            ErrorKind::PermissionDenied,
            "{cipher:?}"
        );
    }
}

#[test]
fn a_cipher_that_is_not_allowed_is_refused_and_no_other_is_taken() {
    let (near, far) = shake(Cipher::None, &[Cipher::Aes128Gcm], true);
    let error = near.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("cipher none"), "{error}");
    assert!(far.is_err());
}

#[test]
fn a_session_that_is_not_there_is_told() {
    let (near, far) = sockets();
    let key = Key::random().unwrap();
    let sessions = One(SessionId([1; 16]), key.clone(), Cipher::ALL.to_vec());
    thread::scope(|scope| {
        let far = scope.spawn(|| accept(far, &sessions).map(|_| ()));
        let near = connect(
            near,
            SessionId([2; 16]),
            Which::FromSource,
            Cipher::None,
            &key,
        );
        assert_eq!(near.unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(far.join().unwrap().is_err());
    });
}

/// Passes bytes on both ways and changes one of those that go to the listener, who has so much patience.
fn with_a_byte_changed(cipher: Cipher, at: usize, patience: Duration) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (near, mut middle_in) = UnixStream::pair().unwrap();
    let session = SessionId([7; 16]);
    let key = Key::random().unwrap();
    let sessions = One(session, key.clone(), Cipher::ALL.to_vec());
    thread::scope(|scope| {
        let far = scope.spawn(|| {
            let socket = Socket::Tcp(listener.accept()?.0);
            let (_, _, mut link) = accept_by(socket, &sessions, None, patience)?;
            let mut buffer = Vec::new();
            let head = link.receive(&mut buffer)?;
            assert_eq!(&buffer[..head.about], b"a message of some length");
            Ok(())
        });
        let mut middle_out = TcpStream::connect(to).unwrap();
        let (mut back_in, mut back_out) = (
            middle_out.try_clone().unwrap(),
            middle_in.try_clone().unwrap(),
        );
        scope.spawn(move || {
            let _ = io::copy(&mut back_in, &mut back_out);
            let _ = back_out.shutdown(std::net::Shutdown::Both);
        });
        scope.spawn(move || {
            let (mut bytes, mut passed) = ([0; 4096], 0);
            while let Ok(n @ 1..) = middle_in.read(&mut bytes) {
                if (passed..passed + n).contains(&at) {
                    bytes[at - passed] ^= 0x10;
                }
                passed += n;
                if middle_out.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
            let _ = middle_out.shutdown(std::net::Shutdown::Both);
        });
        if let Ok(mut link) = connect(Socket::Unix(near), session, Which::Blocks(0), cipher, &key) {
            let _ = link.send(5, b"a message of some length", &[]);
        }
        far.join().unwrap()
    })
}

#[test]
fn what_is_changed_on_the_way_is_noticed() {
    // In the greeting, in the handshake or proof, in the frame, or not at all.
    for cipher in [Cipher::Aes128Gcm, Cipher::IntegrityOnly, Cipher::None] {
        with_a_byte_changed(cipher, usize::MAX, HANDSHAKE_PATIENCE).unwrap();
        for at in [8, 29, 30] {
            let passed = with_a_byte_changed(cipher, at, HANDSHAKE_PATIENCE);
            assert!(passed.is_err(), "{cipher:?} {at}");
        }
        // Four KiB of nothing that never come: only the listener's patience ends that.
        let short = Duration::from_millis(200);
        let waited = with_a_byte_changed(cipher, HELLO_BYTES - 1, short).unwrap_err();
        assert_eq!(waited.kind(), ErrorKind::TimedOut, "{cipher:?}");
    }
    let proof = HEAD_BYTES + 32 + SUM_BYTES;
    for cipher in [Cipher::IntegrityOnly, Cipher::None] {
        for at in [0, 4, HEAD_BYTES, proof + 3, proof + HEAD_BYTES + 2] {
            let passed = with_a_byte_changed(cipher, HELLO_BYTES + at, HANDSHAKE_PATIENCE);
            assert!(passed.is_err(), "{cipher:?} {at}");
        }
    }
}

#[test]
fn a_listener_outlives_nonsense() {
    let key = Key::random().unwrap();
    let sessions = One(SessionId([1; 16]), key, Cipher::ALL.to_vec());
    for nonsense in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096]] {
        let (near, far) = sockets();
        (&near).write_all(nonsense).unwrap();
        near.shut();
        assert!(accept(far, &sessions).is_err());
    }
}

/// An algorithm that counts with how many keys it encrypts.
struct Counted {
    algorithm: &'static dyn Tls13AeadAlgorithm,
    keys: AtomicU64,
}

impl Tls13AeadAlgorithm for Counted {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.algorithm.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.algorithm.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.algorithm.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.algorithm.extract_keys(key, iv)
    }
}

/// A cipher's suite whose keys encrypt so many records, and what counts them.
fn counted(cipher: Cipher, records: u64) -> (SupportedCipherSuite, &'static Counted) {
    let suite = cipher.suite().and_then(|suite| suite.tls13()).unwrap();
    let counted: &'static Counted = Box::leak(Box::new(Counted {
        algorithm: suite.aead_alg,
        keys: AtomicU64::new(0),
    }));
    let suite: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite {
        aead_alg: counted,
        ..renewing_after(suite, records)
    }));
    (suite.into(), counted)
}

#[test]
fn keys_are_renewed_both_ways_and_frames_arrive_as_they_were_sent() {
    let records = 20;
    for cipher in Cipher::ALL.into_iter().filter(|cipher| !cipher.is_open()) {
        let (near_suite, near_keys) = counted(cipher, records);
        let (far_suite, far_keys) = counted(cipher, records);
        let (near, far) = sockets();
        let key = Key::random().unwrap();
        let until = Instant::now() + HANDSHAKE_PATIENCE;
        let link =
            |socket, tls, side| finish(socket, Some(tls), side, cipher, &key, b"said", until);
        let (mut near, mut far) = thread::scope(|scope| {
            let far = scope.spawn(|| link(far, server(far_suite).unwrap(), Side::Listens).unwrap());
            let side = Side::Connects { fills: false };
            let near = link(near, client(near_suite).unwrap(), side).unwrap();
            (near, far.join().unwrap())
        });
        let data: Vec<u8> = (0..2_000_000_u32)
            .map(|i| (i / 7).to_le_bytes()[0])
            .collect();
        let mut buffer = Vec::new();
        let mut pass = |from: &mut Link, to: &mut Link| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    // Records of full length, and many of a few bytes.
                    from.send(1, b"", &data).unwrap();
                    (0..500).for_each(|_| from.send(2, b"about", b"").unwrap());
                });
                assert_eq!(to.receive(&mut buffer).unwrap().data, data.len());
                assert!(buffer[..data.len()] == data[..], "{cipher:?}");
                for _ in 0..500 {
                    assert_eq!(to.receive(&mut buffer).unwrap().kind, 2);
                    assert_eq!(&buffer[..5], b"about");
                }
            });
        };
        // There, back, and there again: who only read has new keys too.
        let sent = 500 + 2_000_000 / (16 << 10);
        let of = |keys: &Counted| keys.keys.load(Ordering::Relaxed);
        let mut keys = (of(near_keys), of(far_keys));
        assert_eq!(keys, (2, 2), "one of the handshake, and one after it");
        for _ in 0..2 {
            pass(&mut near, &mut far);
            let now = (of(near_keys), of(far_keys));
            assert!(now.0 - keys.0 >= sent / records, "{cipher:?} {now:?}");
            keys = now;
            pass(&mut far, &mut near);
            let now = (of(near_keys), of(far_keys));
            assert!(now.1 - keys.1 >= sent / records, "{cipher:?} {now:?}");
            keys = now;
        }
    }
}

#[test]
fn every_cipher_of_tls_renews_its_keys_in_time() {
    for cipher in Cipher::ALL.into_iter().filter(|cipher| !cipher.is_open()) {
        let suite = cipher.suite().and_then(|suite| suite.tls13()).unwrap();
        assert_eq!(suite.common.confidentiality_limit, 1 << 22, "{cipher:?}");
        // What QUIC has of it stays.
        assert!(suite.quic.is_some(), "{cipher:?}");
    }
}
