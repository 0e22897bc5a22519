//! Copies past the page cache at either end, and where there is no such way.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use copy::engine::CopyError;
use copy::engine::disk::Io;
use copy::engine::receive::ReceiveOptions;

use crate::common::{Place, Session, at_once, bytes, left_over, plant, tree};

fn session(source: Io, destination: Io) -> Session {
    Session {
        receive: ReceiveOptions {
            io: destination,
            fsync: true,
            ..ReceiveOptions::default()
        },
        io: source,
        ..Session::default()
    }
}

fn past_cache(session: &Session) -> [u64; 2] {
    [0, 1].map(|end| session.past_cache[end].load(Ordering::Relaxed))
}

/// Whether files here may be opened past the cache at all.
fn is_had(place: &Place) -> bool {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let path = place.0.join("probe");
    fs::write(&path, b"x").unwrap();
    let is_had = openat(CWD, &path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).is_ok();
    println!("past the cache here: {is_had}");
    is_had
}

#[test]
fn every_byte_arrives_at_both_sides_of_every_boundary() {
    let cases = [
        (Io::Direct, Io::Direct, 1 << 20),
        (Io::Direct, Io::Buffered, 1 << 16),
        (Io::Buffered, Io::Direct, 1 << 16),
    ];
    at_once(cases, |(source, destination, block)| {
        let place = Place::new();
        plant(&place.from());
        let mut long = 0;
        for around in [256 << 10, 1 << 20, (2 << 20) + (64 << 10)] {
            for odd in [
                -4097, -4096, -513, -512, -1, 0, 1, 511, 512, 513, 4095, 4096, 4097,
            ] {
                let size = usize::try_from(around + odd).unwrap();
                let name = format!("size{size}");
                fs::write(place.from().join(name), bytes(size, size as u64)).unwrap();
                long += if size > 256 << 10 { size as u64 } else { 0 };
            }
        }
        let session = Session {
            block: Some(block),
            reads_back: true,
            ..session(source, destination)
        };
        let (sent, received) = session.run(&place.from(), &place.to());
        assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
        assert_eq!(tree(&place.from()), tree(&place.to()));
        assert_eq!(left_over(&place.to()), Vec::<std::path::PathBuf>::new());
        let stored = |place: std::path::PathBuf| fs::metadata(place).unwrap().blocks();
        assert!(stored(place.to().join("sparse")) <= stored(place.from().join("sparse")) + 4096);
        let past = past_cache(&session);
        for (io, past) in [source, destination].into_iter().zip(past) {
            assert_eq!(past >= long, io == Io::Direct && is_had(&place), "{past}");
        }
    });
}

#[test]
fn an_interrupted_copy_goes_on_past_the_cache() {
    let place = Place::new();
    // Neither a whole number of blocks nor of pages.
    let size = (48 << 20) + 4_711;
    fs::write(place.from().join("large"), bytes(size, 5)).unwrap();
    let mut session = Session {
        block: Some(1 << 18),
        reads_back: true,
        // Two seconds: it is stopped before its end on a busy machine, too.
        limit: Some(units::Rate::from_bits_per_second(200_000_000)),
        ..session(Io::Direct, Io::Direct)
    };
    let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        while watch.confirmed_bytes.load(Ordering::Relaxed) < 8 << 20 && !meeting.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        watch.stop();
    });
    assert!(matches!(sent, Err(CopyError::Stopped)), "{sent:?}");
    assert!(received.is_err() && !place.to().join("large").exists());
    session.limit = None;
    let (sent, received) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert!(account.resumed_bytes >= 8 << 20, "{account:?}");
    assert_eq!(account.resumed_bytes + account.received_bytes, size as u64);
    assert_eq!(received.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn what_was_left_by_the_cache_goes_on_past_it_and_the_other_way_round() {
    for (first, second) in [(Io::Buffered, Io::Direct), (Io::Direct, Io::Buffered)] {
        let place = Place::new();
        fs::write(place.from().join("large"), bytes((24 << 20) + 1, 7)).unwrap();
        let begun = Session {
            block: Some(1 << 17),
            ..session(first, first)
        };
        let _ = begun.run_with(&place.from(), &place.to(), |meeting, watch| {
            while watch.confirmed_bytes.load(Ordering::Relaxed) < 4 << 20 && !meeting.is_over() {
                thread::sleep(Duration::from_millis(1));
            }
            watch.stop();
        });
        let (sent, received) = session(second, second).run(&place.from(), &place.to());
        assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
        assert_eq!(tree(&place.from()), tree(&place.to()));
    }
}

#[test]
fn where_files_are_in_memory_they_go_through_it() {
    let Some(place) = Place::in_memory() else {
        return;
    };
    let is_tmpfs = fs::read_to_string("/proc/mounts")
        .is_ok_and(|mounts| mounts.lines().any(|line| line.contains(" /dev/shm tmpfs ")));
    plant(&place.from());
    let session = Session {
        reads_back: true,
        ..session(Io::Direct, Io::Direct)
    };
    let (sent, received) = session.run(&place.from(), &place.to());
    assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
    assert_eq!(tree(&place.from()), tree(&place.to()));
    if is_tmpfs {
        assert_eq!(past_cache(&session), [0, 0]);
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_read_past_the_cache_is_no_file_of_two_ages() {
    let place = Place::new();
    let path = place.from().join("large");
    fs::write(&path, bytes(32 << 20, 1)).unwrap();
    let session = Session {
        block: Some(1 << 16),
        limit: Some(units::Rate::from_bits_per_second(400_000_000)),
        ..session(Io::Direct, Io::Direct)
    };
    let (sent, _) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        while watch.confirmed_bytes.load(Ordering::Relaxed) < 2 << 20 && !meeting.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len((5 << 20) + 77).unwrap();
        file.write_all_at(b"other", 3).unwrap();
    });
    assert_eq!(sent.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}
