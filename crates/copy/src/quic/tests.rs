use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use units::Rng;

use super::*;
use crate::link::{Cipher, Socket};

fn key(byte: u8) -> Key {
    Key::from_hex(&format!("{byte:02x}").repeat(32)).unwrap()
}

const SESSION: SessionId = SessionId([7; 16]);

/// Somebody who listens for the session of this key, and where.
fn listening(byte: u8, allowed: &[Cipher]) -> (Quic, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let quic = Quic::listening(socket, SESSION, key(byte), allowed).unwrap();
    (quic, at)
}

fn connecting(byte: u8, cipher: Cipher) -> Quic {
    let socket = towards(None, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))).unwrap();
    Quic::connecting(socket, SESSION, key(byte), cipher, SILENCE).unwrap()
}

const SOON: Duration = Duration::from_secs(20);
/// How long an answer is waited for that does not come: many times what one takes here.
const NOBODY: Duration = Duration::from_secs(1);

#[test]
fn a_name_is_known_by_who_has_session_and_key() {
    let names = |session, byte| Names {
        session: SessionId([session; 16]),
        key: key(byte),
    };
    let mine = names(1, 1);
    let name = mine.new_one().unwrap();
    assert!(mine.knows(&name));
    assert!(!names(1, 2).knows(&name) && !names(2, 1).knows(&name));
    assert_ne!(name, mine.new_one().unwrap());
    for len in 0..=20 {
        assert!(!mine.knows(&[0; 20][..len]), "{len}");
        assert!(len == 20 || !mine.knows(&name[..len]), "{len}");
    }
}

#[test]
fn bytes_go_both_ways_and_both_ends_have_one_secret() {
    let (far, at) = listening(1, &[Cipher::Aes128Gcm, Cipher::Chacha20Poly1305]);
    for cipher in [Cipher::Aes128Gcm, Cipher::Chacha20Poly1305] {
        let near = connecting(1, cipher);
        let mine = near.dial(at, DIAL).unwrap();
        // A stream is there with its first byte.
        mine.socket().write_all(b"hello").unwrap();
        let theirs = far.next(SOON).unwrap();
        assert_eq!(mine.secret(), theirs.secret());
        let mut heard = [0; 5];
        theirs.socket().read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        mine.prove();
        theirs.prove();
        let block = vec![0x5a; 3 << 20];
        thread::scope(|scope| {
            for (from, to) in [(&mine, &theirs), (&theirs, &mine)] {
                let block = &block;
                scope.spawn(move || from.socket().write_all(block).unwrap());
                scope.spawn(move || {
                    let mut read = vec![0; block.len()];
                    to.socket().read_exact(&mut read).unwrap();
                    assert!(read == *block);
                });
            }
        });
        // What was said before a half was closed arrives, and then its end.
        mine.socket().write_all(b"bye").unwrap();
        mine.socket().shutdown(std::net::Shutdown::Both).unwrap();
        let mut rest = Vec::new();
        theirs.socket().read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"bye");
    }
}

#[test]
fn who_has_not_proved_the_key_fills_no_memory() {
    let (far, at) = listening(1, &[Cipher::Aes128Gcm]);
    let near = connecting(1, Cipher::Aes128Gcm);
    let mine = near.dial(at, DIAL).unwrap();
    let socket = mine.socket();
    socket
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut written = 0;
    while let Ok(n) = (&*socket).write(&[0; 4096]) {
        written += n;
        assert!(written < 16 << 20);
    }
    // Its own buffers, and what fits the pair and the window there.
    let least = written;
    let theirs = far.next(SOON).unwrap();
    theirs.prove();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut read = vec![0; least + (4 << 20)];
            theirs.socket().read_exact(&mut read).unwrap();
        });
        socket.set_write_timeout(Some(SOON)).unwrap();
        (&*socket).write_all(&vec![0; 4 << 20]).unwrap();
    });
}

#[test]
fn many_connections_may_have_no_more_unread_than_a_few() {
    let all = |connections: usize| connections as u64 * u64::from(engine::window_of(connections));
    assert_eq!(all(1), 32 << 20);
    for connections in 4..=usize::from(crate::link::STREAMS_MOST) {
        assert!((100 << 20..=128 << 20).contains(&all(connections)));
    }
    assert!(engine::window_of(usize::MAX) > 0);
}

#[test]
fn who_waits_for_an_answer_hears_that_it_is_closed() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let near = connecting(1, Cipher::Aes128Gcm);
    thread::scope(|scope| {
        let dialled = scope.spawn(|| near.dial(at, DIAL).unwrap_err().kind());
        // Its first packet: now it waits.
        silent.recv(&mut [0; 2_000]).unwrap();
        near.close();
        assert_eq!(dialled.join().unwrap(), ErrorKind::NotConnected);
    });
    assert_eq!(
        near.dial(at, DIAL).unwrap_err().kind(),
        ErrorKind::NotConnected
    );
}

#[test]
fn strangers_get_no_answer() {
    let (far, at) = listening(1, &[Cipher::Aes128Gcm]);
    let thrower = UdpSocket::bind("127.0.0.1:0").unwrap();
    thrower.connect(at).unwrap();
    thrower.set_nonblocking(true).unwrap();
    let mut rng = Rng::new(11);
    for n in 0..4_000 {
        let len = usize::try_from(rng.next_u64() % 1_500).unwrap();
        let mut junk = vec![0; len];
        junk.fill_with(|| rng.next_u64().to_ne_bytes()[0]);
        // Every other like a packet's beginning (RFC 9000, section 17), some of versions that nobody speaks.
        let begins: [&[u8]; 4] = [
            &[],
            &[0xc3, 0, 0, 0, 1, 20],
            &[0xe3, 0, 0, 0, 1, 8],
            &[0xc3, 0x1a, 0x2a, 0x3a, 0x4a, 20],
        ];
        let begin = begins[n % begins.len()];
        if len > 100 {
            junk[..begin.len()].copy_from_slice(begin);
        }
        drop(thrower.send(&junk));
    }
    // Who holds another key is a stranger too, and sees that nobody is there.
    let since = Instant::now();
    let stranger = connecting(2, Cipher::Aes128Gcm);
    assert_eq!(
        stranger.dial(at, NOBODY).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    assert!(since.elapsed() < SOON);
    assert_eq!(
        thrower.recv(&mut [0; 2_000]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    assert!(far.next(Duration::ZERO).is_none());
    // And whoever is expected is let in beside all that.
    let near = connecting(1, Cipher::Aes128Gcm);
    let mine = near.dial(at, DIAL).unwrap();
    mine.socket().write_all(b"x").unwrap();
    assert!(far.next(SOON).is_some());
}

#[test]
fn a_cipher_that_is_not_allowed_is_not_spoken() {
    let (far, at) = listening(1, &[Cipher::Aes256Gcm]);
    let near = connecting(1, Cipher::Aes128Gcm);
    assert!(near.dial(at, NOBODY).is_err());
    assert!(far.next(Duration::ZERO).is_none());
    let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
    for open in [Cipher::IntegrityOnly, Cipher::None] {
        assert!(Quic::connecting(socket(), SESSION, key(1), open, SILENCE).is_err());
        assert!(Quic::listening(socket(), SESSION, key(1), &[open]).is_err());
    }
}

#[test]
fn a_limit_is_kept() {
    let (far, at) = listening(1, &[Cipher::Aes128Gcm]);
    let near = connecting(1, Cipher::Aes128Gcm);
    let mine = near.dial(at, DIAL).unwrap();
    mine.socket().write_all(b"x").unwrap();
    let theirs = far.next(SOON).unwrap();
    mine.prove();
    theirs.prove();
    mine.set_limit(Rate::from_bits_per_second(40_000_000));
    let since = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| mine.socket().write_all(&vec![1; 5 << 20]).unwrap());
        let mut read = vec![0; 5 << 20];
        theirs.socket().read_exact(&mut read).unwrap();
    });
    // 42 Mbit, of which the first 64 KiB leave as they like.
    assert!(
        since.elapsed() > Duration::from_millis(900),
        "{:?}",
        since.elapsed()
    );
}

#[test]
fn a_door_takes_those_who_are_expected_and_only_while_they_are() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let door = Door::open(socket).unwrap();
    let near = |session: u8, byte| {
        let socket = towards(None, at).unwrap();
        let session = SessionId([session; 16]);
        Quic::connecting(socket, session, key(byte), Cipher::Aes128Gcm, SILENCE).unwrap()
    };
    let (one, other) = (near(1, 1), near(2, 2));
    let of = |session: u8, byte| door.expect(SessionId([session; 16]), &key(byte));
    let first = of(1, 1);
    let _second = of(2, 2);
    for (near, word) in [(&one, b"one"), (&other, b"two")] {
        let mine = near.dial(at, DIAL).unwrap();
        mine.socket().write_all(word).unwrap();
        let Some(Socket::Quic(theirs)) = door.next(SOON) else {
            panic!("nobody came");
        };
        assert_eq!(mine.secret(), theirs.secret());
        let mut heard = [0; 3];
        theirs.socket().read_exact(&mut heard).unwrap();
        assert_eq!(&heard, word);
    }
    // Neither one whose session is over, nor one with another session's key.
    drop(first);
    let (late, thief) = (near(1, 1), near(2, 1));
    thread::scope(|scope| {
        for near in [&late, &thief] {
            let dial = || near.dial(at, NOBODY).unwrap_err().kind();
            scope.spawn(move || assert_eq!(dial(), ErrorKind::TimedOut));
        }
        assert!(other.dial(at, DIAL).is_ok());
    });
    door.close();
    assert!(door.is_over());
}

#[test]
fn a_door_at_all_of_a_hosts_addresses_answers_from_the_one_that_was_dialled() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let door = Door::open(socket).unwrap();
    let _expected = door.expect(SESSION, &key(1));
    for ip in [[127, 0, 0, 1], [127, 9, 8, 7]] {
        let at = SocketAddr::from((ip, port));
        let near = towards(None, at).unwrap();
        let near = Quic::connecting(near, SESSION, key(1), Cipher::Aes128Gcm, SILENCE).unwrap();
        near.dial(at, DIAL).unwrap();
    }
}

/// Stands between two ends, sets the ECN bits of what goes to one of them, and remembers with which it came.
struct Between {
    at: SocketAddr,
    /// Of the newest packets, the oldest first.
    came_with: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
}

impl Between {
    fn begin(far: SocketAddr, set: fn(u8) -> u8) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        sys::udp::set_ecn_reports(socket.as_fd()).unwrap();
        let _ = sys::tcp::set_receive_buffer(socket.as_fd(), units::Bytes::new(4 << 20));
        let look = Some(Duration::from_millis(20));
        socket.set_read_timeout(look).unwrap();
        let (came_with, is_over) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::default());
        let (came, over) = (Arc::clone(&came_with), Arc::<AtomicBool>::clone(&is_over));
        thread::spawn(move || {
            let mut inbox = sys::udp::Inbox::with_senders(16, 2_000);
            let mut near = None;
            while !over.load(Ordering::Relaxed) {
                if inbox.receive(socket.as_fd()).is_err() {
                    continue;
                }
                for message in inbox.messages() {
                    let from = message.from.unwrap();
                    let (to, ecn) = match from == far {
                        true => (near.unwrap(), message.ecn),
                        false => {
                            near = Some(from);
                            came.lock().unwrap().push(message.ecn);
                            (far, set(message.ecn))
                        }
                    };
                    let ends = sys::udp::Ends {
                        from: None,
                        to,
                        ecn,
                    };
                    let _ = sys::udp::send_to(socket.as_fd(), ends, message.bytes, 2_000);
                }
            }
        });
        Self {
            at,
            came_with,
            is_over,
        }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn marks_on_the_way_are_heard_and_a_path_that_clears_them_is_left_alone() {
    /// What the path makes of ECT(0), whether the sender goes on with it, and whether it hears of congestion.
    type Case = (fn(u8) -> u8, bool, bool);
    let cases: [Case; 3] = [
        (|ecn| ecn, true, false),
        (|ecn| if ecn == 2 { 3 } else { ecn }, true, true),
        (|_| 0, false, false),
    ];
    for (n, (set, goes_on, is_heard)) in cases.into_iter().enumerate() {
        let (far, at) = listening(1, &[Cipher::Aes128Gcm]);
        let between = Between::begin(at, set);
        let near = connecting(1, Cipher::Aes128Gcm);
        let mine = near.dial(between.at, DIAL).unwrap();
        mine.socket().write_all(b"x").unwrap();
        let theirs = far.next(SOON).unwrap();
        mine.prove();
        theirs.prove();
        thread::scope(|scope| {
            scope.spawn(|| mine.socket().write_all(&vec![1; 1 << 20]).unwrap());
            theirs
                .socket()
                .read_exact(&mut vec![0; (1 << 20) + 1])
                .unwrap();
        });
        let came_with = between.came_with.lock().unwrap().clone();
        assert_eq!(came_with[0], 2, "{n}");
        let last = came_with.last().copied();
        assert_eq!(last == Some(2), goes_on, "{n}: {last:?}");
        assert!(came_with.len() > 700, "{n}: {}", came_with.len());
        // Each time that it takes losses for congestion, something is lost.
        let counts = mine.counts();
        let by_marks = counts.congestion_events.saturating_sub(counts.packets_lost);
        assert_eq!(by_marks > 0, is_heard, "{n}: {counts:?}");
    }
}
