//! Copies that something happens to: in the end every byte is as it was.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use copy::destination::Destination;
use copy::engine::receive::{ReceiveOptions, receive};
use copy::engine::send::{SendOptions, send};
use copy::engine::tune::Streams;
use copy::engine::{CopyError, Watch};
use copy::filter::Filter;
use copy::link::{Socket, Which};
use copy::meeting::{self, Meeting};
use copy::source::Source;
use copy::{Cipher, Key, SessionId};

use crate::common::{
    Chance, Place, Session, at_once, bytes, cut_again_and_again, left_over, plant, stop_at, tree,
};

#[test]
fn a_random_connection_is_cut_every_quarter_of_a_second() {
    at_once([false, true], |is_reverse| {
        let place = Place::new();
        plant(&place.from());
        fs::write(place.from().join("large"), bytes(12 << 20, 5)).unwrap();
        let session = Session {
            streams: Streams::Fixed(3),
            block: Some(1 << 18),
            limit: Some(units::Rate::from_bits_per_second(60_000_000)),
            is_reverse,
            ..Session::default()
        };
        let mut cuts = 0;
        let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, _| {
            (cuts, _) = cut_again_and_again(meeting);
        });
        assert!(cuts > 3, "{cuts} cuts");
        assert_eq!(sent.unwrap().failed, 0);
        assert_eq!(received.unwrap().failed, 0);
        assert_eq!(tree(&place.from()), tree(&place.to()));
        assert!(left_over(&place.to()).is_empty());
    });
}

#[test]
fn a_copy_that_is_stopped_again_and_again_is_done_at_last() {
    const STOPS: u64 = 12;
    const MOST: u64 = 512 << 10;
    let place = Place::new();
    plant(&place.from());
    // More than all attempts that are stopped send together.
    let size = STOPS * (MOST + (1 << 20));
    fs::write(place.from().join("large"), bytes(size as usize, 5)).unwrap();
    let mut chance = Chance(11);
    let session = |is_reverse, hold_at| Session {
        block: Some(1 << 16),
        is_reverse,
        patience: Duration::from_secs(20),
        hold_at,
        ..Session::default()
    };
    let mut confirmed = 0;
    for _ in 0..STOPS {
        let at = NonZeroU64::new(1 + chance.below(MOST));
        let session = session(chance.below(2) == 0, at);
        let (sent, _) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
            stop_at(at, meeting, watch);
        });
        assert!(matches!(sent, Err(CopyError::Stopped)), "{sent:?}");
        confirmed += at.unwrap().get();
    }
    let (sent, received) = session(false, None).run(&place.from(), &place.to());
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert_eq!((sent.failed, received.failed), (0, 0));
    assert_eq!(tree(&place.from()), tree(&place.to()));
    let (_, whole) = session(false, None).run(&place.from(), &place.0.join("whole"));
    let whole = whole.unwrap().received_bytes;
    assert!(
        received.received_bytes + confirmed <= whole,
        "{received:?}: {confirmed} of {whole} bytes were confirmed before"
    );
    assert!(left_over(&place.to()).is_empty());
}

#[test]
fn a_source_that_changes_meanwhile_is_right_at_last_and_no_file_is_of_two_versions() {
    let place = Place::new();
    for n in 0..40 {
        fs::write(place.from().join(format!("f{n}")), vec![0; 400_000 + n]).unwrap();
    }
    let is_done = AtomicBool::new(false);
    let session = Session {
        limit: Some(units::Rate::from_bits_per_second(100_000_000)),
        ..Session::default()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut chance = Chance(3);
            for version in 1_u8.. {
                let n = chance.below(40) as usize;
                let new = place.0.join("new");
                fs::write(&new, vec![version; 400_000 + n]).unwrap();
                fs::rename(&new, place.from().join(format!("f{n}"))).unwrap();
                thread::sleep(Duration::from_millis(10));
                if is_done.load(Ordering::Relaxed) || version == u8::MAX {
                    break;
                }
            }
        });
        let (sent, received) = session.run(&place.from(), &place.to());
        is_done.store(true, Ordering::Relaxed);
        println!("{sent:?} {received:?}");
        assert!(sent.is_ok() && received.is_ok());
    });
    for entry in fs::read_dir(place.to()).unwrap() {
        let path = entry.unwrap().path();
        let all = fs::read(&path).unwrap();
        assert!(
            all.iter().all(|byte| *byte == all[0]),
            "{path:?} is of two versions"
        );
    }
    let (sent, _) = Session::default().run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn a_file_that_shrinks_grows_or_goes_meanwhile_harms_no_other() {
    let place = Place::new();
    for n in 0..30 {
        fs::write(place.from().join(format!("f{n:02}")), bytes(600_000, n)).unwrap();
    }
    let session = Session {
        // None of them is read before it changes.
        hold_at: NonZeroU64::new(1 << 20),
        ..Session::default()
    };
    let from = place.from();
    let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        while watch.confirmed_bytes.load(Ordering::Relaxed) == 0 && !meeting.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        let open = |n| {
            fs::OpenOptions::new()
                .write(true)
                .open(from.join(format!("f{n}")))
                .unwrap()
        };
        open(29).set_len(1000).unwrap();
        open(28).write_all_at(&[1; 100_000], 900_000).unwrap();
        fs::remove_file(from.join("f27")).unwrap();
        fs::remove_file(from.join("f26")).unwrap();
        fs::create_dir(from.join("f26")).unwrap();
        watch.hold_at(None);
    });
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert_eq!(sent, received);
    assert!(sent.failed <= 2, "{sent:?}");
    let deletes = Session {
        receive: ReceiveOptions {
            delete: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    assert_eq!(deletes.run(&place.from(), &place.to()).0.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn a_journal_and_partial_files_that_were_hurt_cost_bytes_only() {
    let mut chance = Chance(5);
    let chances = [(); 6].map(|()| [(); 2].map(|()| chance.below(u64::MAX)));
    at_once((0..).zip(chances), |(round, chances)| {
        let place = Place::new();
        fs::write(place.from().join("large"), bytes(24 << 20, 5)).unwrap();
        let mut session = Session {
            block: Some(1 << 18),
            hold_at: NonZeroU64::new(8 << 20),
            ..Session::default()
        };
        let (sent, _) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
            stop_at(session.hold_at, meeting, watch);
        });
        assert!(matches!(sent, Err(CopyError::Stopped)), "{sent:?}");
        let [staging] = &left_over(&place.to())[..] else {
            panic!("no staging folder");
        };
        for (name, chance) in ["journal", "p0"].into_iter().zip(chances) {
            let path = staging.join(name);
            let file = fs::OpenOptions::new()
                .write(true)
                .read(true)
                .open(&path)
                .unwrap();
            let len = file.metadata().unwrap().len();
            match round {
                0 => file.set_len(len / 2).unwrap(),
                1 => file.set_len(0).unwrap(),
                2 => fs::remove_file(&path).unwrap(),
                _ => {
                    let at = chance % len.min(8 << 20);
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at).unwrap();
                    file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
                }
            }
        }
        session.hold_at = None;
        let (sent, received) = session.run(&place.from(), &place.to());
        assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
        assert_eq!(tree(&place.from()), tree(&place.to()), "round {round}");
        assert!(left_over(&place.to()).is_empty());
    });
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "times of files, which no copy holds against a clock"
)]
fn times_of_other_centuries_are_times_too() {
    let place = Place::new();
    let day = Duration::from_secs(86_400);
    for (name, time) in [
        ("future", SystemTime::now() + day * 30_000),
        ("tomorrow", SystemTime::now() + day),
        ("before", SystemTime::UNIX_EPOCH - day * 3_000),
    ] {
        let path = place.from().join(name);
        fs::write(&path, bytes(400_000, 1)).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
    }
    let session = Session::default();
    assert_eq!(session.run(&place.from(), &place.to()).0.unwrap().placed, 3);
    assert_eq!(tree(&place.from()), tree(&place.to()));
    let again = session.run(&place.from(), &place.to()).0.unwrap();
    assert_eq!((again.same, again.placed), (3, 0));
}

#[test]
fn two_copies_of_one_tree_at_once_are_both_right() {
    at_once([true, false], |same| {
        let place = Place::new();
        plant(&place.from());
        fs::write(place.from().join("large"), bytes(8 << 20, 5)).unwrap();
        thread::scope(|scope| {
            for n in 0..2 {
                let place = &place;
                scope.spawn(move || {
                    let identity = [if same { 1 } else { n }; 16];
                    let session = Session {
                        receive: ReceiveOptions {
                            identity,
                            ..ReceiveOptions::default()
                        },
                        limit: Some(units::Rate::from_bits_per_second(100_000_000)),
                        ..Session::default()
                    };
                    let (sent, received) = session.run(&place.from(), &place.to());
                    assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
                });
            }
        });
        assert_eq!(tree(&place.from()), tree(&place.to()));
        assert!(left_over(&place.to()).is_empty());
    });
}

#[test]
fn a_side_that_is_gone_is_not_waited_for_once_that_is_known() {
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(4 << 20, 5)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
    let is_gone = Arc::new(AtomicBool::new(false));
    let is_refused = Arc::clone(&is_gone);
    let dial = Box::new(move || match is_refused.load(Ordering::Relaxed) {
        true => Err(ErrorKind::ConnectionRefused.into()),
        false => TcpStream::connect(at).map(Socket::Tcp),
    });
    let patience = Duration::from_secs(3_000);
    let far = Meeting::connecting(dial, session, key.clone(), Cipher::Aes128Gcm);
    let far = far.with_patience(patience);
    let near = Meeting::listening(session, key, vec![Cipher::Aes128Gcm]).with_patience(patience);
    let source = Source::open(&[format!("{}/", place.from().display())]).unwrap();
    let (destination, _) = Destination::resolve(&place.to(), false, false).unwrap();
    let options = SendOptions::default();
    let (watch, far_watch) = (Watch::default(), Watch::default());
    let hold_at = NonZeroU64::new(1 << 20);
    watch.hold_at(hold_at);
    let (sent, received) = thread::scope(|scope| {
        scope.spawn(|| meeting::listen(&listener, &near));
        let received =
            scope.spawn(|| receive(&far, &destination, &ReceiveOptions::default(), &far_watch));
        let sent = scope.spawn(|| {
            let sent = send(&near, &source, &Filter::new(), &options, &watch);
            near.close();
            sent
        });
        while watch.confirmed_bytes.load(Ordering::Relaxed) < 1 << 20 {
            thread::sleep(Duration::from_millis(1));
        }
        // From here on nobody connects, and nobody says so.
        is_gone.store(true, Ordering::Relaxed);
        far.hurry(Duration::from_millis(200));
        near.hurry(Duration::from_millis(200));
        while !near.is_over() {
            for which in near.open_links() {
                near.cut(which);
            }
            thread::sleep(Duration::from_millis(10));
        }
        (sent.join().unwrap(), received.join().unwrap())
    });
    // The errors have the patience of those that know, and there is no other end to this.
    let Err(CopyError::Link(error)) = sent else {
        panic!("{sent:?}");
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(error.to_string().contains("200ms"), "{error}");
    assert!(matches!(received, Err(CopyError::Link(_))), "{received:?}");
}

#[test]
fn files_that_change_while_others_are_still_being_told_keep_the_names_in_order() {
    let place = Place::of_many_files();
    for folder in 0..40 {
        let folder = place.from().join(format!("d{folder}"));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..100_u64 {
            fs::write(folder.join(format!("f{file}")), bytes(300, file)).unwrap();
        }
    }
    let session = Session {
        streams: Streams::Fixed(4),
        ..Session::default()
    };
    let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        // Those that are told and not read yet change under the walk.
        let mut round = 0_u64;
        while !meeting.is_over() && !watch.is_walked.load(Ordering::Relaxed) {
            round += 1;
            let folder = place.from().join(format!("d{}", round % 40));
            let file = folder.join(format!("f{}", round * 7 % 100));
            let _ = fs::write(file, bytes(200 + (round % 100) as usize, round));
        }
    });
    // Single files may have changed each time; the session goes on.
    assert!(sent.is_ok(), "{sent:?}");
    assert!(received.is_ok(), "{received:?}");
}

#[test]
fn a_long_older_copy_is_compared_while_others_go_on() {
    let place = Place::new();
    let mut long = bytes(80 << 20, 5);
    fs::create_dir_all(place.to()).unwrap();
    fs::write(place.to().join("a-long"), &long).unwrap();
    long[70 << 20] ^= 1;
    fs::write(place.from().join("a-long"), &long).unwrap();
    plant(&place.from());
    let session = Session {
        receive: ReceiveOptions {
            checksum: true,
            delete: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, received) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!(account, received.unwrap());
    assert_eq!(account.failed, 0);
    assert_eq!(account.resumed_bytes, 79 << 20, "{account:?}");
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn who_was_let_in_once_does_not_believe_a_refusal_said_in_clear() {
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(24 << 20, 5)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // Answers "no such session" and "another version" to whoever greets it.
    let liar = TcpListener::bind("127.0.0.1:0").unwrap();
    let lies_at = liar.local_addr().unwrap();
    thread::spawn(move || {
        for (n, socket) in liar.incoming().flatten().enumerate() {
            let mut greeting = [0; 63];
            let _ = (&socket).read_exact(&mut greeting);
            let verdict = [2, 1, 3, 4][n % 4];
            let answer = [&b"GOODCOPY"[..], &[1, 0, 1, 0, verdict], &[0; 32]].concat();
            let _ = (&socket).write_all(&answer);
        }
    });
    let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
    let dialled = AtomicU64::new(0);
    let lies = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&lies);
    // Links are four here; every other connection after them is the liar's.
    let dial = Box::new(move || {
        let n = dialled.fetch_add(1, Ordering::Relaxed);
        let to = match n >= 4 && n.is_multiple_of(2) {
            true => {
                told.fetch_add(1, Ordering::Relaxed);
                lies_at
            }
            false => at,
        };
        TcpStream::connect(to).map(Socket::Tcp)
    });
    let near = Meeting::connecting(dial, session, key.clone(), Cipher::Aes128Gcm);
    let far = Meeting::listening(session, key, vec![Cipher::Aes128Gcm]);
    let source = Source::open(&[format!("{}/", place.from().display())]).unwrap();
    let (destination, _) = Destination::resolve(&place.to(), false, false).unwrap();
    let options = SendOptions {
        streams: Streams::Fixed(2),
        block: Some(1 << 18),
        ..SendOptions::default()
    };
    let (watch, far_watch) = (Watch::default(), Watch::default());
    thread::scope(|scope| {
        scope.spawn(|| meeting::listen(&listener, &far));
        let received = scope.spawn(|| {
            let received = receive(&far, &destination, &ReceiveOptions::default(), &far_watch);
            far.close();
            received
        });
        scope.spawn(|| {
            for n in 0..6 {
                thread::sleep(Duration::from_millis(50));
                near.cut(Which::Blocks(n % 2));
            }
        });
        let sent = send(&near, &source, &Filter::new(), &options, &watch);
        assert_eq!(sent.unwrap().failed, 0);
        received.join().unwrap().unwrap();
    });
    assert_eq!(tree(&place.from()), tree(&place.to()));
    println!("{} lies", lies.load(Ordering::Relaxed));
}

#[test]
fn what_the_disk_gives_back_otherwise_gets_no_name() {
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(6 << 20, 5)).unwrap();
    fs::write(place.from().join("small"), b"small").unwrap();
    let mut session = Session {
        reads_back: true,
        block: Some(1 << 16),
        // Blocks of the file, of which the disk forgets some before the others come.
        hold_at: NonZeroU64::new(1 << 20),
        ..Session::default()
    };
    let (is_over, forgot) = (AtomicBool::new(false), AtomicU64::new(0));
    let (sent, _) = thread::scope(|scope| {
        // A disk that forgets: whatever the file grows in has other bytes again and again.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for entry in fs::read_dir(place.to()).into_iter().flatten().flatten() {
                    let grows = fs::File::options()
                        .write(true)
                        .open(entry.path().join("p0"));
                    if let Ok(file) = grows {
                        file.write_all_at(b"forgotten", 1000).unwrap();
                        forgot.fetch_add(1, Ordering::Relaxed);
                    }
                }
                thread::sleep(Duration::from_micros(200));
            }
        });
        let result = session.run_with(&place.from(), &place.to(), |meeting, watch| {
            let wait = |is_so: &dyn Fn() -> bool| {
                while !is_so() && !meeting.is_over() {
                    thread::sleep(Duration::from_millis(1));
                }
            };
            wait(&|| watch.confirmed_bytes.load(Ordering::Relaxed) >= 1 << 20);
            // One that was under way by then may have been before the block.
            let before = forgot.load(Ordering::Relaxed);
            wait(&|| forgot.load(Ordering::Relaxed) >= before + 2);
            watch.hold_at(None);
        });
        is_over.store(true, Ordering::Relaxed);
        result
    });
    let account = sent.unwrap();
    assert_eq!((account.failed, account.placed), (1, 1), "{account:?}");
    assert!(place.to().join("small").exists() && !place.to().join("large").exists());
    // And all is well where the disk is.
    session.hold_at = None;
    let (sent, _) = session.run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
    assert!(left_over(&place.to()).is_empty());
}

#[test]
fn what_arrived_before_a_stop_stays_also_while_it_is_read_back() {
    for wait in [0, 5, 10, 20, 40, 80] {
        let place = Place::new();
        let size = 48_u64 << 20;
        fs::write(place.from().join("large"), bytes(48 << 20, 5)).unwrap();
        let session = Session {
            reads_back: true,
            block: Some(1 << 16),
            patience: Duration::from_secs(2),
            ..Session::default()
        };
        let confirmed = AtomicU64::new(0);
        let (sent, _) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
            let there = || watch.confirmed_bytes.load(Ordering::Relaxed);
            while there() < size / 8 * 7 && !meeting.is_over() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(wait));
            confirmed.store(there(), Ordering::Relaxed);
            watch.stop();
        });
        let is_placed = place.to().join("large").exists();
        println!("after {wait} ms: {sent:?}, placed: {is_placed}, {confirmed:?}");
        let (sent, _) = session.run(&place.from(), &place.to());
        let account = sent.unwrap();
        assert_eq!(account.failed, 0);
        let least = confirmed.load(Ordering::Relaxed);
        assert!(
            is_placed || account.resumed_bytes >= least,
            "{account:?}, {least}"
        );
        assert_eq!(tree(&place.from()), tree(&place.to()));
        assert!(left_over(&place.to()).is_empty());
    }
}

#[test]
fn more_files_of_several_blocks_than_are_held_open_at_once_arrive() {
    let place = Place::new();
    // 1,024 are.
    for n in 0..1_100_u64 {
        let long = fs::File::create(place.from().join(format!("f{n}"))).unwrap();
        long.set_len(5 << 16).unwrap();
        long.write_all_at(&n.to_le_bytes(), 300_000).unwrap();
    }
    let session = Session {
        block: Some(1 << 16),
        ..Session::default()
    };
    let (sent, received) = session.run(&place.from(), &place.to());
    assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn holes_are_holes_also_in_what_an_earlier_attempt_left() {
    let place = Place::new();
    let sparse = fs::File::create(place.from().join("sparse")).unwrap();
    sparse.write_all_at(&bytes(8 << 20, 5), 0).unwrap();
    sparse.set_len(24 << 20).unwrap();
    let mut session = Session {
        block: Some(1 << 16),
        hold_at: NonZeroU64::new(1 << 20),
        reads_back: true,
        ..Session::default()
    };
    let (sent, _) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        stop_at(session.hold_at, meeting, watch);
    });
    assert!(matches!(sent, Err(CopyError::Stopped)), "{sent:?}");
    let [staging] = &left_over(&place.to())[..] else {
        panic!("no staging folder");
    };
    let partial = fs::File::options().write(true).open(staging.join("p0"));
    partial.unwrap().write_all_at(b"junk", 16 << 20).unwrap();
    session.hold_at = None;
    let (sent, _) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!(account.failed, 0);
    assert!(account.resumed_bytes >= 1 << 20, "{account:?}");
    assert_eq!(tree(&place.from()), tree(&place.to()));
}
