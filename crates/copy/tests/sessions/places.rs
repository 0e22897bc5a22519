//! What is in a name's place at the destination, and the destination's own folder.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use copy::destination::Destination;
use copy::engine::CopyError;
use copy::engine::receive::{ReceiveOptions, prepare};

use crate::common::{Place, Session, bytes, left_over, tree};

/// Folders with something in them in the places of a small file, one in blocks, an empty one, a link and a hard link.
fn crossed(place: &Place) {
    let (from, to) = (place.from(), place.to());
    fs::write(from.join("small"), "text").unwrap();
    fs::write(from.join("large"), bytes(1 << 20, 1)).unwrap();
    fs::write(from.join("empty"), "").unwrap();
    symlink("small", from.join("link")).unwrap();
    fs::hard_link(from.join("large"), from.join("second")).unwrap();
    for name in ["small", "large", "empty", "link", "second"] {
        fs::create_dir_all(to.join(name).join("below")).unwrap();
        fs::write(to.join(name).join("below/old"), name).unwrap();
    }
}

fn options(delete: bool, dry: bool) -> ReceiveOptions {
    ReceiveOptions {
        delete,
        dry,
        ..ReceiveOptions::default()
    }
}

#[test]
fn one_run_with_deletion_replaces_folders_by_what_the_source_has() {
    let place = Place::new();
    crossed(&place);
    let of = |dry| Session {
        receive: options(true, dry),
        ..Session::default()
    };
    let (sent, _) = of(true).run(&place.from(), &place.to());
    let would = sent.unwrap();
    let (sent, received) = of(false).run(&place.from(), &place.to());
    let done = sent.unwrap();
    assert_eq!(done, received.unwrap());
    assert_eq!(tree(&place.from()), tree(&place.to()));
    assert_eq!((done.failed, done.placed, done.deleted), (0, 5, 10));
    let counts = (would.failed, would.placed, would.deleted);
    assert_eq!(counts, (done.failed, done.placed, done.deleted));
}

#[test]
fn without_deletion_a_dry_run_and_a_real_one_refuse_the_same_names() {
    let place = Place::new();
    crossed(&place);
    let before = tree(&place.to());
    for dry in [true, false] {
        let session = Session {
            receive: options(false, dry),
            ..Session::default()
        };
        let (sent, _) = session.run(&place.from(), &place.to());
        let account = sent.unwrap();
        assert_eq!((account.failed, account.placed), (5, 0), "dry: {dry}");
        // Nothing of a file is sent that has no place.
        assert_eq!(account.received_bytes, 0, "dry: {dry}");
        assert_eq!(tree(&place.to()), before, "dry: {dry}");
    }
}

#[test]
fn excluded_names_keep_their_folder_and_the_file_is_not_copied() {
    let place = Place::new();
    fs::write(place.from().join("name"), "text").unwrap();
    fs::create_dir_all(place.to().join("name")).unwrap();
    fs::write(place.to().join("name/kept"), "precious").unwrap();
    fs::write(place.to().join("name/old"), "").unwrap();
    let mut session = Session {
        receive: options(true, false),
        ..Session::default()
    };
    session.receive.filter.exclude(b"kept").unwrap();
    let (sent, _) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!((account.failed, account.deleted), (1, 1));
    let kept = fs::read_to_string(place.to().join("name/kept"));
    assert_eq!(kept.unwrap(), "precious");
}

#[test]
fn the_destinations_own_folder_gets_mode_and_time_of_the_source() {
    let place = Place::new();
    fs::write(place.from().join("file"), bytes(300 << 10, 1)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 7);
    let folder = fs::File::open(place.from()).unwrap();
    folder.set_modified(time).unwrap();
    for run in 0..2 {
        let (sent, received) = Session::default().run(&place.from(), &place.to());
        assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
        let there = fs::metadata(place.to()).unwrap();
        assert_eq!(
            (there.mtime(), there.mtime_nsec()),
            (1_000_000_000, 7),
            "{run}"
        );
        assert_eq!(left_over(&place.to()), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn a_destination_below_a_folder_that_is_not_there_is_refused_by_a_dry_run_too() {
    let place = Place::new();
    let typed = place.0.join("no/such/er/");
    for dry in [true, false] {
        let error = Destination::resolve(&typed, false, dry).unwrap_err();
        assert!(error.to_string().contains("make it first"), "{error}");
    }
    let made = Destination::resolve(&place.0.join("new/"), false, true);
    assert!(made.is_ok() && !place.0.join("new").exists());
}

#[test]
fn what_is_prepared_and_not_used_leaves_nothing() {
    let place = Place::new();
    let (destination, _) = Destination::resolve(&place.to(), false, false).unwrap();
    let options = ReceiveOptions::default();
    let prepared = prepare(&destination, &options, &|| false).unwrap();
    assert_eq!(left_over(&place.to()).len(), 1);
    drop(prepared);
    assert_eq!(left_over(&place.to()), Vec::<std::path::PathBuf>::new());
    // Where the folder is gone nothing can be made.
    fs::remove_dir(place.to()).unwrap();
    let refused = prepare(&destination, &options, &|| false).unwrap_err();
    assert!(matches!(refused, CopyError::Refused(_)), "{refused}");
    let text = refused.to_string();
    assert!(
        text.ends_with("(no such file or directory); nothing was copied"),
        "{text}"
    );
}

/// What happened to the files of a staging folder, in order: which were closed, and which removed.
fn closed_and_removed(events: &std::os::fd::OwnedFd) -> Vec<(String, bool)> {
    use rustix::fs::inotify::{ReadFlags, Reader};
    let mut room = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(events, &mut room);
    let mut seen = Vec::new();
    while let Ok(event) = reader.next() {
        let is_removal = event.events().contains(ReadFlags::DELETE);
        let is_closing = event
            .events()
            .intersects(ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE);
        if let (Some(name), true) = (event.file_name(), is_removal || is_closing) {
            seen.push((name.to_string_lossy().into_owned(), is_removal));
        }
    }
    seen
}

#[test]
fn files_of_a_staging_folder_are_closed_before_they_are_removed() {
    use rustix::fs::inotify;
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(1 << 20, 1)).unwrap();
    let (destination, _) = Destination::resolve(&place.to(), false, false).unwrap();
    let prepared = prepare(&destination, &ReceiveOptions::default(), &|| false).unwrap();
    let events =
        inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    let staging = left_over(&place.to()).remove(0);
    let wanted = inotify::WatchFlags::CLOSE | inotify::WatchFlags::DELETE;
    inotify::add_watch(&events, &staging, wanted).unwrap();
    let (sent, received) = Session::default().run_prepared(&place.from(), &destination, prepared);
    assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
    let seen = closed_and_removed(&events);
    let journal: Vec<bool> = seen
        .iter()
        .filter(|(name, _)| name == "journal")
        .map(|(_, is_removal)| *is_removal)
        .collect();
    assert_eq!(journal.last(), Some(&true), "{seen:?}");
    assert_eq!(journal.iter().filter(|is| **is).count(), 1, "{seen:?}");
    assert!(journal.len() > 1, "{seen:?}");
    assert!(!staging.exists());
}
