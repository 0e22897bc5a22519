//! What was at the source is at the destination.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use copy::engine::receive::ReceiveOptions;
use copy::engine::send::{SendOptions, send};
use copy::engine::tune::Streams;
use copy::engine::{CopyError, Watch};
use copy::filter::Filter;
use copy::link::{Socket, Which};
use copy::meeting::{self, Meeting};
use copy::source::Source;
use copy::{Cipher, Key, SessionId};

use crate::common::{Place, Session, at_once, bytes, plant, tree};

#[test]
fn a_tree_arrives_as_it_was_under_every_cipher_and_both_ways_round() {
    let cases = [
        (Cipher::Aes128Gcm, false),
        (Cipher::Aes256Gcm, true),
        (Cipher::Chacha20Poly1305, false),
        (Cipher::IntegrityOnly, true),
        (Cipher::None, false),
    ];
    at_once(cases, |(cipher, is_reverse)| {
        let place = Place::new();
        plant(&place.from());
        let session = Session {
            cipher,
            is_reverse,
            ..Session::default()
        };
        let (sent, received) = session.run(&place.from(), &place.to());
        let account = sent.unwrap();
        assert_eq!(account, received.unwrap());
        assert_eq!(account.failed, 0);
        assert_eq!(tree(&place.from()), tree(&place.to()), "{cipher:?}");
        let there = fs::metadata(place.to().join("sparse")).unwrap();
        assert!(there.blocks() * 512 < 4 << 20, "{} blocks", there.blocks());
        // Again: nothing to do.
        let (sent, _) = session.run(&place.from(), &place.to());
        let again = sent.unwrap();
        assert_eq!((again.received_bytes, again.failed), (0, 0));
        assert_eq!(tree(&place.from()), tree(&place.to()), "{cipher:?}");
    });
}

#[test]
fn connections_that_are_cut_again_and_again_cost_time_only() {
    let place = Place::new();
    plant(&place.from());
    fs::write(place.from().join("large"), bytes(48 << 20, 5)).unwrap();
    let session = Session {
        streams: Streams::Fixed(3),
        block: Some(1 << 18),
        patience: Duration::from_secs(60),
        // 48 MiB take two seconds: it is not over before a link that was cut is met again.
        limit: Some(units::Rate::from_bits_per_second(200_000_000)),
        ..Session::default()
    };
    let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        let links = [
            Which::Blocks(0),
            Which::FromSource,
            Which::Blocks(1),
            Which::FromDestination,
            Which::Blocks(2),
        ];
        for round in 0..40 {
            thread::sleep(Duration::from_millis(25));
            if meeting.is_over() {
                break;
            }
            meeting.cut(links[round % links.len()]);
        }
        let _ = watch;
        println!("{} reconnects", meeting.reconnects());
        assert!(meeting.reconnects() > 0);
    });
    assert_eq!(sent.unwrap().failed, 0);
    assert_eq!(received.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn an_interrupted_copy_goes_on_where_it_was() {
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(64 << 20, 5)).unwrap();
    let mut session = Session {
        receive: ReceiveOptions {
            fsync: true,
            ..ReceiveOptions::default()
        },
        block: Some(1 << 18),
        // 64 MB take more than two seconds: it is stopped before its end on a busy machine, too.
        limit: Some(units::Rate::from_bits_per_second(200_000_000)),
        ..Session::default()
    };
    let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        while watch.confirmed_bytes.load(Ordering::Relaxed) < 8 << 20 && !meeting.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        watch.stop();
    });
    assert!(matches!(sent, Err(CopyError::Stopped)), "{sent:?}");
    assert!(received.is_err());
    assert!(!place.to().join("large").exists());
    session.limit = None;
    let (sent, received) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert!(account.resumed_bytes >= 8 << 20, "{account:?}");
    assert_eq!(account.resumed_bytes + account.received_bytes, 64 << 20);
    assert_eq!(received.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn only_the_block_that_differs_is_sent_again_when_sums_are_compared() {
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(20 << 20, 5)).unwrap();
    let session = Session::default();
    session.run(&place.from(), &place.to()).0.unwrap();
    // A bit turns; length and time stay.
    let path = place.to().join("large");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let byte = fs::read(&path).unwrap()[7_654_321];
    file.write_all_at(&[byte ^ 4], 7_654_321).unwrap();
    file.set_modified(time).unwrap();
    let (sent, _) = session.run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().placed, 0, "not noticed without looking");
    let checks = Session {
        receive: ReceiveOptions {
            checksum: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = checks.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!((account.received_bytes, account.placed), (1 << 20, 1));
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn what_the_source_has_not_is_deleted_when_asked_for() {
    let place = Place::new();
    plant(&place.from());
    let session = Session::default();
    session.run(&place.from(), &place.to()).0.unwrap();
    fs::write(place.to().join("extra"), b"x").unwrap();
    fs::create_dir_all(place.to().join("old/deep")).unwrap();
    let dry = Session {
        receive: ReceiveOptions {
            delete: true,
            dry: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = dry.run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().deleted, 3);
    assert!(place.to().join("extra").exists());
    let deletes = Session {
        receive: ReceiveOptions {
            delete: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = deletes.run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().deleted, 3);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn a_dry_run_changes_nothing_and_counts_what_a_real_one_does() {
    let place = Place::new();
    plant(&place.from());
    let session = Session {
        receive: ReceiveOptions {
            dry: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = session.run(&place.from(), &place.to());
    let would = sent.unwrap();
    assert!(!place.to().exists());
    let done = Session::default()
        .run(&place.from(), &place.to())
        .0
        .unwrap();
    assert!(done.placed > 300);
    assert_eq!(would.placed, done.placed);
    assert_eq!(would.placed_bytes, done.placed_bytes);
}

#[test]
fn a_source_without_the_key_is_told_so() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let session = SessionId::random().unwrap();
    let listens = Meeting::listening(session, Key::random().unwrap(), vec![Cipher::Aes128Gcm]);
    let dial = Box::new(move || TcpStream::connect(at).map(Socket::Tcp));
    let connects = Meeting::connecting(dial, session, Key::random().unwrap(), Cipher::Aes128Gcm);
    thread::scope(|scope| {
        scope.spawn(|| meeting::listen(&listener, &listens).unwrap());
        let source = Source::open(&[place.from()]).unwrap();
        let options = SendOptions {
            streams: Streams::Fixed(1),
            ..SendOptions::default()
        };
        let sent = send(
            &connects,
            &source,
            &Filter::new(),
            &options,
            &Watch::default(),
        );
        assert!(matches!(sent, Err(CopyError::Link(_))), "{sent:?}");
        listens.close();
    });
}

#[test]
fn attributes_of_a_symbolic_link_are_kept_where_there_may_be_any() {
    use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
    let place = Place::new();
    let link = place.from().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    if lsetxattr(&link, "trusted.note", b"v", XattrFlags::empty()).is_err() {
        println!("not tested: no superuser, or a file system without");
        return;
    }
    let (sent, _) = Session::default().run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().failed, 0);
    let there = place.to().join("link");
    let mut value = [0; 8];
    let length = lgetxattr(&there, "trusted.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"v");
}

#[test]
fn the_example_copies_a_tree_and_shows_how_far_it_is() {
    let place = Place::new();
    plant(&place.from());
    let mut shown = Vec::new();
    let from = place.from().join("");
    let account = crate::example::run(&from, &place.to(), |now| shown.push(now)).unwrap();
    assert_eq!(account.failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
    let (first, last) = (shown[0], shown[shown.len() - 1]);
    assert!(first.confirmed_bytes <= last.confirmed_bytes);
    // Of the sparse file only what has data.
    assert_eq!(last.wanted_bytes, account.received_bytes);
    assert!(account.received_bytes < account.placed_bytes);
    assert_eq!(last.names, account.names);
    // Nothing to send the second time, and no such folder.
    let again = crate::example::run(&from, &place.to(), |_| {}).unwrap();
    assert_eq!(again.received_bytes, 0);
    assert!(crate::example::run(&place.0.join("no"), &place.to(), |_| {}).is_err());
}

#[test]
fn what_is_still_to_come_leaves_out_holes_and_what_is_there() {
    let place = Place::new();
    plant(&place.from());
    let size = 24 << 20;
    fs::write(place.from().join("large"), bytes(size, 5)).unwrap();
    let mut session = Session {
        block: Some(1 << 17),
        // 24 MB take three seconds: it is stopped before its end on a busy machine, too.
        limit: Some(units::Rate::from_bits_per_second(80_000_000)),
        ..Session::default()
    };
    let (stopped, _) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        while watch.confirmed_bytes.load(Ordering::Relaxed) < 8 << 20 && !meeting.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        watch.stop();
    });
    assert!(matches!(stopped, Err(CopyError::Stopped)), "{stopped:?}");
    // What an earlier attempt left does not come.
    session.limit = None;
    let (sent, received) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!(received.unwrap().failed, 0);
    assert!(account.resumed_bytes > 0, "{account:?}");
    let comes = |bytes| [(bytes, bytes); 2];
    let ended_with = *session.ended_with.lock().unwrap();
    assert_eq!(ended_with, comes(account.received_bytes));
    // Of a file that is compared, the block that differs.
    let hurt = fs::File::options()
        .write(true)
        .open(place.to().join("large"));
    hurt.unwrap().write_all_at(b"hurt", 3 << 20).unwrap();
    let session = Session {
        receive: ReceiveOptions {
            checksum: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert!(account.received_bytes < 24 << 20, "{account:?}");
    let ended_with = *session.ended_with.lock().unwrap();
    assert_eq!(ended_with, comes(account.received_bytes));
}

/// A page of data in each MiB, and nothing else.
fn plant_sparse(path: &std::path::Path, mib: u64) -> u64 {
    let file = fs::File::create(path).unwrap();
    file.set_len(mib << 20).unwrap();
    for n in 0..mib {
        let at = (n << 20) + (n % 200) * 4096;
        file.write_all_at(&bytes(4096, n + 1), at).unwrap();
    }
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn holes_within_blocks_are_neither_sent_nor_written() {
    let place = Place::new();
    let stored = plant_sparse(&place.from().join("image"), 24);
    if stored > 4 << 20 {
        testing::unneeded("the file system here knows no holes of a page");
        return;
    }
    let session = Session::default();
    let (sent, received) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!(account, received.unwrap());
    assert_eq!((account.placed, account.failed), (1, 0));
    // A page and a map of 32 bytes for each MiB.
    assert_eq!(account.received_bytes, 24 * (4096 + 32));
    assert_eq!(tree(&place.from()), tree(&place.to()));
    let there = fs::metadata(place.to().join("image")).unwrap().blocks() * 512;
    assert!(there <= stored + (64 << 10), "{there} of {stored}");
    let [source, destination] = *session.ended_with.lock().unwrap();
    assert_eq!(source.0, source.1);
    assert_eq!(destination.0, destination.1);
}

#[test]
fn an_interrupted_copy_of_a_file_with_holes_has_no_bytes_of_the_first_attempt() {
    let place = Place::new();
    let image = place.from().join("image");
    fs::write(&image, bytes(8 << 20, 1)).unwrap();
    let time = fs::metadata(&image).unwrap().modified().unwrap();
    let first = Session {
        block: Some(1 << 20),
        streams: Streams::Fixed(1),
        hold_at: std::num::NonZeroU64::new(3 << 20),
        ..Session::default()
    };
    let hold_at = first.hold_at;
    let _ = first.run_with(&place.from(), &place.to(), |meeting, watch| {
        crate::common::stop_at(hold_at, meeting, watch);
    });
    // What was written and not noted when the first attempt ended.
    let staging = crate::common::left_over(&place.to()).remove(0);
    let growing = fs::File::options().write(true).open(staging.join("p0"));
    growing
        .unwrap()
        .write_all_at(&bytes(2 << 20, 9), 5 << 20)
        .unwrap();
    // As long and as old as before, and with holes where it had bytes.
    plant_sparse(&image, 8);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_modified(time).unwrap();
    let again = Session {
        block: Some(1 << 20),
        ..Session::default()
    };
    let (sent, received) = again.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!((account.failed, received.unwrap().failed), (0, 0));
    let (from, to) = (fs::read(&image), fs::read(place.to().join("image")));
    // What was noted as there is believed, as length and time say; the rest has no old bytes in it.
    let known = account.resumed_bytes as usize;
    assert!(known <= 3 << 20);
    assert!(from.unwrap()[known..] == to.unwrap()[known..]);
}
