//! Small files that come before they are asked for: to a destination that said that nothing stands there, whether that is so
//! or not.

use std::fs;
use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use copy::destination::Destination;
use copy::engine::send::SendOptions;
use copy::engine::tune::Streams;
use copy::link::Which;
use copy::message::{Account, BlockHead, FromDestination, Want};
use copy::{Cipher, RelPath};

use crate::common::{Place, Session, at_once, bytes, cut_again_and_again, plant, tree};
use crate::hostile::{
    against_destination, against_source_with, file, head, is_decided, is_refused, options, wait_for,
};

const BLOCKS: u8 = 3;

fn session() -> Session {
    Session {
        unasked: true,
        ..Session::default()
    }
}

fn unasked() -> SendOptions {
    SendOptions {
        unasked: true,
        ..options()
    }
}

#[test]
fn a_source_waits_for_nobody_with_a_small_file() {
    let sent = against_source_with(&unasked(), |meeting, mut says, _| {
        let mut blocks = meeting.to_read(Which::Blocks(0), 0).unwrap();
        let mut buffer = Vec::new();
        let head = blocks.receive(&mut buffer).unwrap();
        assert_eq!(head.kind, BLOCKS);
        let (about, data) = buffer.split_at(head.about);
        let heads = BlockHead::read_all(about, head.data).unwrap();
        // The other file is large.
        assert_eq!((heads.len(), &data[..head.data]), (1, &b"small"[..]));
        // It is asked for by then, or the other way about.
        let want = |id, have| Want {
            id,
            block: None,
            have,
            compare: Vec::new(),
        };
        let wants = vec![want(heads[0].id, vec![(0, 1)])];
        let until = heads[0].id + 1;
        says.raw(&FromDestination::Decided { until, wants }.to_bytes());
    });
    assert!(is_refused(&sent), "{sent:?}");
}

#[test]
fn a_tree_comes_unasked_as_it_was() {
    let cases = [(false, false), (false, true), (true, false), (true, true)];
    at_once(cases, |(is_reverse, is_cut)| {
        let place = Place::of_many_files();
        plant(&place.from());
        for n in 0..1_200 {
            fs::write(place.from().join(format!("n{n}")), bytes(4_096, n)).unwrap();
        }
        let session = Session {
            is_reverse,
            // With cuts it takes a second.
            limit: is_cut.then_some(units::Rate::from_bits_per_second(85_000_000)),
            ..session()
        };
        let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, _| {
            if is_cut {
                cut_again_and_again(meeting);
            }
        });
        let account = received.unwrap();
        assert_eq!(sent.unwrap(), account);
        assert_eq!((account.failed, account.same), (0, 0));
        assert_eq!(tree(&place.from()), tree(&place.to()));
        let ended_with = *session.ended_with.lock().unwrap();
        assert_eq!(ended_with[0].0, ended_with[0].1);
    });
}

/// Many messages of names, and many frames of small files.
const NAMES: u64 = 1_200;

/// Copies to where some of the names stand already; what the destination did, and what is there.
fn onto(unasked: bool, stands: impl Fn(u64) -> bool) -> Account {
    let place = Place::of_many_files();
    fs::create_dir(place.to()).unwrap();
    for n in 0..NAMES {
        let name = format!("n{n:04}");
        let path = place.from().join(&name);
        fs::write(&path, bytes(4_096, n)).unwrap();
        if stands(n) {
            // As a copy would have left it.
            fs::copy(&path, place.to().join(&name)).unwrap();
            let time = fs::metadata(&path).unwrap().modified().unwrap();
            let there = fs::File::options().write(true).open(place.to().join(&name));
            there.unwrap().set_modified(time).unwrap();
        }
    }
    let session = Session {
        unasked,
        ..Session::default()
    };
    let (sent, received) = session.run(&place.from(), &place.to());
    let account = received.unwrap();
    assert_eq!(sent.unwrap(), account);
    assert_eq!(tree(&place.from()), tree(&place.to()));
    account
}

#[test]
fn what_stands_there_all_the_same_stays_and_the_rest_comes() {
    type Stands = fn(u64) -> bool;
    let cases: [Stands; 4] = [|_| true, |n| n % 2 == 0, |n| n > 0, |n| n == NAMES - 1];
    at_once(cases, |stands| {
        let (asked, unasked) = (onto(false, stands), onto(true, stands));
        assert_eq!(asked, unasked);
        assert!(unasked.same > 0);
    });
}

#[test]
fn one_that_changes_meanwhile_is_told_anew() {
    let place = Place::new();
    for n in 0..200 {
        fs::write(place.from().join(format!("n{n:03}")), bytes(200_000, n)).unwrap();
    }
    let session = Session {
        streams: Streams::Fixed(1),
        // The last is changed before it is read.
        hold_at: NonZeroU64::new(1 << 20),
        ..session()
    };
    let last = place.from().join("n199");
    let (sent, received) = session.run_with(&place.from(), &place.to(), |_, watch| {
        while watch
            .confirmed_bytes
            .load(std::sync::atomic::Ordering::Relaxed)
            == 0
        {
            thread::sleep(Duration::from_millis(1));
        }
        fs::write(&last, b"other").unwrap();
        watch.hold_at(None);
    });
    assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn a_block_of_what_is_never_told_ends_the_session() {
    let (received, _) = against_destination(Cipher::None, |meeting, mut says, heard| {
        says.names(vec![file(0, "a", 5)]);
        assert!(wait_for(&heard, is_decided));
        let (mut blocks, _) = meeting.to_write(Which::Blocks(0)).unwrap();
        let sum = *blake3::hash(b"small").as_bytes();
        blocks
            .send(BLOCKS, &head(1, 0, b"small", sum), b"small")
            .unwrap();
        wait_for(&heard, |message| {
            matches!(message, FromDestination::Stops(_))
        });
    });
    assert!(is_refused(&received), "{received:?}");
}

#[test]
fn a_block_that_comes_before_its_name_waits_for_it() {
    let (received, _) = against_destination(Cipher::None, |meeting, mut says, heard| {
        let (mut blocks, _) = meeting.to_write(Which::Blocks(0)).unwrap();
        let sum = *blake3::hash(b"small").as_bytes();
        blocks
            .send(BLOCKS, &head(0, 0, b"small", sum), b"small")
            .unwrap();
        thread::sleep(Duration::from_millis(200));
        says.names(vec![file(0, "a", 5)]);
        says.walked();
        assert!(wait_for(&heard, |message| matches!(
            message,
            FromDestination::Finished(Account {
                placed: 1,
                received_bytes: 5,
                ..
            })
        )));
        says.raw(&copy::message::FromSource::Bye.to_bytes());
    });
    assert_eq!(received.unwrap().placed, 1);
}

#[test]
fn a_destination_is_free_where_nothing_has_a_name_that_comes() {
    let place = Place::new();
    let to = place.to();
    let name = |name: &str| RelPath::new(name.as_bytes()).unwrap();
    let is_free = |names: &[RelPath]| {
        let (destination, _) = Destination::resolve(&to, false, false).unwrap();
        destination.is_free(names)
    };
    // Made, and empty.
    assert!(is_free(&[]) && is_free(&[name("a")]));
    std::os::unix::fs::symlink("nowhere", to.join("a")).unwrap();
    assert!(!is_free(&[]) && !is_free(&[name("a")]) && !is_free(&[name("b"), name("a")]));
    assert!(is_free(&[name("b"), name("c")]));
    // Nothing is made by a dry run.
    let (nowhere, _) = Destination::resolve(&place.0.join("no"), false, true).unwrap();
    assert!(nowhere.is_free(&[]) && nowhere.is_free(&[name("a")]));
}
