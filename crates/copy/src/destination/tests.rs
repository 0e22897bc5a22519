//! Trees of real files, and somebody who changes them meanwhile.

use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::fs::{RenameFlags, XattrFlags, getxattr, renameat_with, setxattr};

use super::placing::{NEW_FILE, beside};
use super::*;
use crate::beneath::is_staging;
use crate::entry::DEPTH_MOST;
use crate::filter::Filter;
use crate::scratch::{Scratch, is_superuser};

mod swapped;

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes()).unwrap()
}

fn open(path: &Path) -> Destination {
    Destination::resolve(path, false, false).unwrap().0
}

fn meta(mode: u32) -> Meta {
    Meta {
        mode: Some(mode),
        ..Meta::default()
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// All below a folder, but staging folders.
fn tree(path: &Path) -> Vec<String> {
    fn below(path: &Path, top: &Path, told: &mut Vec<String>) {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            if is_staging(entry.file_name().as_bytes()) {
                continue;
            }
            told.push(
                entry
                    .path()
                    .strip_prefix(top)
                    .unwrap()
                    .display()
                    .to_string(),
            );
            if entry.file_type().unwrap().is_dir() {
                below(&entry.path(), top, told);
            }
        }
    }
    let mut told = Vec::new();
    below(path, path, &mut told);
    told.sort();
    told
}

#[test]
fn what_is_typed_is_resolved_as_rsync_does() {
    let scratch = Scratch::new();
    scratch.folder("there");
    scratch.file("file", "");
    let resolve = |name: &str, one| Destination::resolve(&scratch.at(name), one, false);
    assert_eq!(resolve("there", true).unwrap().1, None);
    assert_eq!(resolve("new-name", true).unwrap().1, Some(rel("new-name")));
    assert_eq!(resolve("file", true).unwrap().1, Some(rel("file")));
    assert!(!scratch.at("new-name").exists());
    assert_eq!(resolve("new-folder/", true).unwrap().1, None);
    assert_eq!(resolve("made", false).unwrap().1, None);
    assert!(scratch.at("new-folder").is_dir() && scratch.at("made").is_dir());
    assert_eq!(
        resolve("file", false).unwrap_err().kind(),
        io::ErrorKind::NotADirectory
    );
    for one in [false, true] {
        assert_eq!(
            resolve("none/below", one).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}

#[test]
fn one_file_takes_the_place_of_no_pipe_socket_or_device() {
    let scratch = Scratch::new();
    let _socket = std::os::unix::net::UnixListener::bind(scratch.at("socket")).unwrap();
    symlink(scratch.at("socket"), scratch.at("link")).unwrap();
    symlink("/dev/null", scratch.at("null")).unwrap();
    scratch.file("file", "");
    symlink("file", scratch.at("other")).unwrap();
    let resolve = |name: &str| Destination::resolve(&scratch.at(name), true, false);
    for name in ["socket", "link", "null"] {
        let error = resolve(name).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
    }
    assert_eq!(resolve("other").unwrap().1, Some(rel("other")));
}

#[test]
fn a_dry_run_changes_nothing() {
    let scratch = Scratch::new();
    let (missing, _) = Destination::resolve(&scratch.at("new"), false, true).unwrap();
    assert_eq!(missing.look(&rel("x")).unwrap(), None);
    scratch.file("there/x", "");
    let (there, _) = Destination::resolve(&scratch.at("there"), false, true).unwrap();
    assert!(there.look(&rel("x")).unwrap().is_some());
    for destination in [&missing, &there] {
        assert_eq!(
            destination.make_folder(&rel("d"), true).unwrap_err().kind(),
            io::ErrorKind::ReadOnlyFilesystem
        );
        assert!(destination.staging(&[0; 16]).is_err());
        let mut seen = 0;
        let roots = [RelPath::top()];
        let flow = destination.delete_extras(&roots, &|_| false, &Filter::new(), &mut |_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue() && seen <= 1);
    }
    assert_eq!(tree(scratch.path()), ["there", "there/x"]);
}

#[test]
fn files_get_what_belongs_to_them() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let probe = scratch.file("probe", "");
    let has_attributes = setxattr(&probe, "user.p", b"", XattrFlags::empty()).is_ok();
    let meta = Meta {
        mode: Some(0o604),
        modified: Some(Stamp {
            seconds: -5,
            nanoseconds: 999_999_999,
        }),
        attributes: vec![(b"user.note"[..].into(), b"v"[..].into())],
        ..Meta::default()
    };
    destination
        .put_small(&staging, &rel("small"), b"bytes", &meta)
        .unwrap();
    let partial = staging.partial(7, 5, 5, true).unwrap();
    partial.file().write_all_at(b"bytes", 0).unwrap();
    destination
        .commit(&partial, &rel("large"), &meta, true)
        .unwrap();
    for name in ["small", "large"] {
        let path = scratch.at(name);
        let stat = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
        assert_eq!(mode_of(&path), 0o604);
        assert_eq!((stat.mtime(), stat.mtime_nsec()), (-5, 999_999_999));
        if has_attributes {
            let mut value = [0; 8];
            assert_eq!(getxattr(&path, "user.note", &mut value).unwrap(), 1);
        } else {
            assert_eq!(destination.shortfalls().attributes_unsupported, 2);
        }
    }
    let late = Meta {
        modified: Some(Stamp {
            seconds: 0,
            nanoseconds: 1_000_000_000,
        }),
        ..Meta::default()
    };
    let error = destination
        .put_small(&staging, &rel("x"), b"", &late)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    staging.discard().unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3);
}

#[test]
fn new_files_are_as_others_and_take_the_place_of_what_stands_there_by_now() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    fs::create_dir_all(scratch.at("d/full")).unwrap();
    scratch.file("d/full/x", "");
    let meta = Meta {
        mode: Some(0o604),
        modified: Some(Stamp {
            seconds: -5,
            nanoseconds: 999_999_999,
        }),
        ..Meta::default()
    };
    for is_nameless in [true, false] {
        destination
            .has_no_nameless
            .store(!is_nameless, Ordering::Relaxed);
        let put = |name: &str| destination.put_new(&staging, &rel(name), b"bytes", &meta);
        let (stands, other) = (scratch.file("d/stands", "old"), scratch.at("d/other"));
        fs::hard_link(&stands, &other).unwrap();
        for name in ["d/new", "d/stands"] {
            put(name).unwrap();
            let path = scratch.at(name);
            let stat = fs::metadata(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"bytes");
            assert_eq!((mode_of(&path), stat.nlink()), (0o604, 1));
            assert_eq!((stat.mtime(), stat.mtime_nsec()), (-5, 999_999_999));
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read(&other).unwrap(), b"old");
        fs::remove_file(&other).unwrap();
        let error = put("d/full").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        // Somebody removed the folder, and made it again.
        put("d/e/f").unwrap_err();
        fs::create_dir(scratch.at("d/e")).unwrap();
        put("d/e/f").unwrap();
        fs::remove_dir_all(scratch.at("d/e")).unwrap();
        put("d/e/f").unwrap_err();
        fs::create_dir(scratch.at("d/e")).unwrap();
        put("d/e/f").unwrap();
        assert_eq!(fs::read(scratch.at("d/e/f")).unwrap(), b"bytes");
        fs::remove_dir_all(scratch.at("d/e")).unwrap();
    }
    let late = Meta {
        modified: Some(Stamp {
            seconds: 0,
            nanoseconds: 1_000_000_000,
        }),
        ..Meta::default()
    };
    destination.has_no_nameless.store(false, Ordering::Relaxed);
    let error = destination
        .put_new(&staging, &rel("x"), b"x", &late)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    staging.discard().unwrap();
    assert_eq!(tree(scratch.path()), ["d", "d/full", "d/full/x"]);
}

#[test]
fn without_modes_a_file_keeps_the_one_that_stands_there() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let path = scratch.file("f", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    destination
        .put_small(&staging, &rel("f"), b"new", &Meta::default())
        .unwrap();
    assert_eq!(
        (mode_of(&path), fs::read(&path).unwrap()),
        (0o751, b"new".to_vec())
    );
    destination
        .put_small(&staging, &rel("g"), b"new", &Meta::default())
        .unwrap();
    let plain = scratch.file("h", "");
    assert_eq!(mode_of(&scratch.at("g")), mode_of(&plain));
}

#[test]
fn a_program_does_not_run_as_this_user_because_the_other_side_says_so() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let path = scratch.at("f");
    destination
        .put_small(&staging, &rel("f"), b"", &meta(0o6755))
        .unwrap();
    assert_eq!(mode_of(&path), 0o755);
    assert_eq!(destination.shortfalls().bits, 1);
    let mine = fs::metadata(&path).unwrap();
    let owner = Some((mine.uid(), mine.gid()));
    destination
        .put_small(
            &staging,
            &rel("f"),
            b"",
            &Meta {
                owner,
                ..meta(0o6755)
            },
        )
        .unwrap();
    assert_eq!(mode_of(&path), 0o6755);
    let owner = Some((54_321, 54_322));
    destination
        .put_small(
            &staging,
            &rel("f"),
            b"",
            &Meta {
                owner,
                ..meta(0o6755)
            },
        )
        .unwrap();
    if is_superuser() && destination.shortfalls().owners == 0 {
        let stat = fs::metadata(&path).unwrap();
        assert_eq!(
            (stat.uid(), stat.gid(), mode_of(&path)),
            (54_321, 54_322, 0o6755)
        );
    } else {
        assert_eq!(
            (destination.shortfalls().owners, mode_of(&path)),
            (1, 0o755)
        );
    }
    // u32::MAX is nobody's number.
    let owner = Some((u32::MAX, u32::MAX));
    destination
        .put_small(
            &staging,
            &rel("f"),
            b"",
            &Meta {
                owner,
                ..meta(0o6755)
            },
        )
        .unwrap();
    assert_eq!(mode_of(&path), 0o755);
}

#[test]
fn folders_are_closed_to_others_until_they_are_finished() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    assert!(destination.make_folder(&rel("a"), true).unwrap());
    assert!(destination.make_folder(&rel("a/b"), true).unwrap());
    assert!(!destination.make_folder(&rel("a/b"), true).unwrap());
    assert!(!destination.make_folder(&RelPath::top(), true).unwrap());
    assert_eq!(mode_of(&scratch.at("a/b")), 0o700);
    let time = Some(Stamp {
        seconds: 77,
        nanoseconds: 7,
    });
    for path in ["a/b", "a", ""] {
        destination
            .finish_folder(
                &rel(path),
                &Meta {
                    modified: time,
                    ..meta(0o755)
                },
            )
            .unwrap();
        let stat = fs::metadata(scratch.at(path)).unwrap();
        assert_eq!(
            (stat.mtime(), stat.mtime_nsec(), stat.mode() & 0o7777),
            (77, 7, 0o755),
            "{path}"
        );
    }
    // One that may not be written into is opened up, and closed again.
    fs::set_permissions(scratch.at("a/b"), fs::Permissions::from_mode(0o055)).unwrap();
    assert!(!destination.make_folder(&rel("a/b"), true).unwrap());
    let staging = destination.staging(&[1; 16]).unwrap();
    destination
        .put_small(&staging, &rel("a/b/f"), b"", &meta(0o600))
        .unwrap();
    destination
        .finish_folder(&rel("a/b"), &Meta::default())
        .unwrap();
    assert_eq!(mode_of(&scratch.at("a/b")), 0o055);
    fs::set_permissions(scratch.at("a/b"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(
        destination
            .make_folder(&rel("none/x"), true)
            .unwrap_err()
            .kind(),
        io::ErrorKind::NotFound
    );
}

#[test]
fn what_is_in_the_way_is_replaced_but_for_a_folder_with_something_in_it() {
    let scratch = Scratch::new();
    let outside = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    for name in ["a", "b", "c", "d"] {
        symlink(outside.path(), scratch.at(name)).unwrap();
    }
    assert!(destination.make_folder(&rel("a"), true).unwrap());
    destination
        .put_small(&staging, &rel("b"), b"bytes", &meta(0o600))
        .unwrap();
    destination
        .symlink(&staging, &rel("c"), b"elsewhere", &Meta::default())
        .unwrap();
    for is_new in [true, false] {
        let made = destination.hardlink(&staging, &rel("d"), &rel("b"));
        assert_eq!(made.unwrap(), is_new);
    }
    assert!(scratch.at("a").symlink_metadata().unwrap().is_dir());
    assert_eq!(
        fs::read_link(scratch.at("c")).unwrap(),
        Path::new("elsewhere")
    );
    assert_eq!(fs::metadata(scratch.at("b")).unwrap().nlink(), 2);
    // An empty folder makes way, another does not.
    destination
        .put_small(&staging, &rel("a"), b"bytes", &meta(0o600))
        .unwrap();
    scratch.file("full/x", "");
    let error = destination
        .put_small(&staging, &rel("full"), b"", &meta(0o600))
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    let error = destination
        .symlink(&staging, &rel("full"), b"x", &Meta::default())
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    destination.remove(&rel("full")).unwrap();
    destination
        .put_small(&staging, &rel("full"), b"", &meta(0o600))
        .unwrap();
    assert_eq!(tree(scratch.path()), ["a", "b", "c", "d", "full"]);
    assert_eq!(tree(outside.path()), [""; 0]);
    assert!(
        destination
            .hardlink(&staging, &rel("e"), &rel("c"))
            .is_err()
    );
    assert!(
        destination
            .symlink(&staging, &rel("e"), b"", &Meta::default())
            .is_err()
    );
    assert!(
        destination
            .symlink(&staging, &rel("e"), b"a\0b", &Meta::default())
            .is_err()
    );
    staging.discard().unwrap();
}

#[test]
fn links_on_the_way_lead_nowhere() {
    let scratch = Scratch::new();
    let outside = Scratch::new();
    outside.file("there/x", "secret");
    for in_one_call in [true, false] {
        let folder = openat(CWD, scratch.path(), READ_FOLDER, Mode::empty()).unwrap();
        let top = if in_one_call {
            Top::new(folder)
        } else {
            Top::step_by_step(folder)
        };
        let destination = Destination::with(Some(top), false);
        let staging = destination.staging(&[1; 16]).unwrap();
        let _ = fs::remove_file(scratch.at("l"));
        symlink(outside.path(), scratch.at("l")).unwrap();
        let (path, there) = (rel("l/new"), rel("l/there"));
        assert!(
            destination
                .put_small(&staging, &path, b"", &meta(0o600))
                .is_err()
        );
        let partial = staging.partial(0, 0, 0, true).unwrap();
        assert!(
            destination
                .commit(&partial, &path, &meta(0o600), false)
                .is_err()
        );
        assert!(destination.make_folder(&path, true).is_err());
        assert!(destination.finish_folder(&there, &meta(0o777)).is_err());
        assert!(
            destination
                .symlink(&staging, &path, b"x", &Meta::default())
                .is_err()
        );
        assert!(
            destination
                .hardlink(&staging, &rel("h"), &rel("l/there/x"))
                .is_err()
        );
        assert!(destination.open_existing(&rel("l/there/x")).is_err());
        assert!(destination.open_existing(&rel("l")).is_err());
        assert_eq!(destination.look(&rel("l/there/x")).unwrap(), None);
        assert!(destination.remove(&rel("l/there")).is_err());
        let roots = [rel("l"), rel("l/there")];
        let flow = destination.delete_extras(&roots, &|_| false, &Filter::new(), &mut |_| {
            ControlFlow::Break(())
        });
        assert!(flow.is_continue());
        staging.discard().unwrap();
    }
    assert_eq!(tree(outside.path()), ["there", "there/x"]);
    assert_eq!(tree(scratch.path()), ["l"]);
}

/// Swaps `a`, a folder, with `b`, a link out of the top, as fast as it can until told to stop.
fn swap(scratch: &Scratch, stop: &AtomicBool) -> u64 {
    let mut swaps = 0;
    while !stop.load(Ordering::Relaxed) {
        let (a, b) = (scratch.at("a"), scratch.at("b"));
        if renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).is_ok() {
            swaps += 1;
        } else if symlink("/nowhere", &b).is_err() {
            std::thread::yield_now();
        }
    }
    swaps
}

#[test]
fn a_link_swapped_in_meanwhile_leads_nothing_outside() {
    for in_one_call in [true, false] {
        let scratch = Scratch::new();
        let outside = Scratch::new();
        let folder = openat(CWD, scratch.path(), READ_FOLDER, Mode::empty()).unwrap();
        let top = if in_one_call {
            Top::new(folder)
        } else {
            Top::step_by_step(folder)
        };
        let destination = Destination::with(Some(top), false);
        let staging = destination.staging(&[2; 16]).unwrap();
        scratch.folder("a");
        symlink(outside.path(), scratch.at("b")).unwrap();
        let stop = AtomicBool::new(false);
        let mut written = 0;
        let swaps = std::thread::scope(|scope| {
            let swapper = scope.spawn(|| swap(&scratch, &stop));
            for number in 0..2_000 {
                // Every way down anew, as it would be with many folders.
                destination.folders.forget(b"");
                let name = rel(&format!("a/f{number}"));
                written += u64::from(
                    destination
                        .put_small(&staging, &name, b"x", &meta(0o600))
                        .is_ok(),
                );
                let _ = destination.make_folder(&rel(&format!("a/d{number}")), true);
                let _ = destination.symlink(&staging, &rel("a/l"), b"x", &Meta::default());
                let _ = destination.finish_folder(&rel("a"), &meta(0o711));
                let _ = destination.remove(&rel(&format!("a/d{number}")));
                let partial = staging.partial(number, 1, 1, true).unwrap();
                if destination
                    .commit(&partial, &rel("a/c"), &meta(0o600), false)
                    .is_err()
                {
                    staging.remove(number).unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
            swapper.join().unwrap()
        });
        println!("{swaps} swaps, {written} files written");
        assert_eq!(tree(outside.path()), [""; 0]);
        assert_ne!(mode_of(outside.path()), 0o711);
        staging.discard().unwrap();
    }
}

#[test]
fn a_folder_that_becomes_a_link_again_and_again_is_made_or_told() {
    let scratch = Scratch::new();
    let outside = Scratch::new();
    let destination = open(scratch.path());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::remove_dir_all(scratch.at("a"));
                let _ = symlink(outside.path(), scratch.at("a"));
            }
        });
        for _ in 0..2_000 {
            let _ = destination.make_folder(&rel("a"), true);
            let _ = destination.make_folder(&rel("a/x"), true);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(tree(outside.path()), [""; 0]);
}

#[test]
fn a_folder_deleted_under_us_is_found_again() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    destination.make_folder(&rel("a"), false).unwrap();
    destination
        .put_small(&staging, &rel("a/x"), b"", &meta(0o600))
        .unwrap();
    fs::remove_dir_all(scratch.at("a")).unwrap();
    scratch.folder("a");
    destination
        .put_small(&staging, &rel("a/x"), b"", &meta(0o600))
        .unwrap();
    fs::remove_dir_all(scratch.at("a")).unwrap();
    scratch.folder("a");
    destination.make_folder(&rel("a/d"), false).unwrap();
    assert_eq!(tree(scratch.path()), ["a", "a/d"]);
}

#[test]
fn the_deepest_path_is_written_and_read_and_removed() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let mut path = RelPath::top();
    for _ in 0..DEPTH_MOST - 1 {
        path = path.join(b"\xff").unwrap();
        destination.make_folder(&path, true).unwrap();
    }
    let file = path.join(b"f").unwrap();
    destination
        .put_small(&staging, &file, b"deep", &meta(0o600))
        .unwrap();
    assert_eq!(destination.look(&file).unwrap().unwrap().size, 4);
    assert!(destination.open_existing(&file).is_ok());
    destination.finish_folder(&path, &meta(0o700)).unwrap();
    destination.remove(&rel_bytes(b"\xff")).unwrap();
    assert_eq!(tree(scratch.path()), [""; 0]);
}

fn rel_bytes(path: &[u8]) -> RelPath {
    RelPath::new(path).unwrap()
}

#[test]
fn staging_folders_are_found_again_by_whoever_comes_next() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let first = destination.staging(&[1; 16]).unwrap();
    // The first does not end: it is waited for, and no longer than that.
    let (since, held) = (Instant::now(), Duration::from_millis(100));
    let second = destination.staging_after(&[1; 16], &|| false, held);
    assert!(since.elapsed() > held);
    let second = second.unwrap();
    let other = destination.staging(&[2; 16]).unwrap();
    assert!(!first.resumed() && !second.resumed() && !other.resumed());
    let partial = first.partial(3, 1 << 20, 5, true).unwrap();
    assert!(!partial.resumed());
    partial.file().write_all_at(b"bytes", 100).unwrap();
    first.journal().unwrap().write_all(b"noted").unwrap();
    // A lock ends with its last descriptor, as it does with its process.
    drop((first, partial));
    let again = destination.staging(&[1; 16]).unwrap();
    assert!(again.resumed());
    assert_eq!(again.partials().unwrap(), [3]);
    let partial = again.partial(3, 1 << 20, 5, true).unwrap();
    let mut bytes = [0; 5];
    partial.file().read_exact_at(&mut bytes, 100).unwrap();
    assert!(partial.resumed() && &bytes == b"bytes");
    let noted = io::read_to_string(again.journal().unwrap()).unwrap();
    assert_eq!(noted, "noted");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3);
    let names = fs::read_dir(scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    names.for_each(|path| assert_eq!(mode_of(&path), 0o700));
    for staging in [again, second, other] {
        staging.discard().unwrap();
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_staging_folder_that_others_could_fill_is_not_used() {
    let scratch = Scratch::new();
    let planted = scratch.folder(".goodput-part-0123456789abcdef");
    fs::write(planted.join("identity"), [1; 16]).unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o777)).unwrap();
    symlink("/etc", scratch.at(".goodput-part-fedcba9876543210")).unwrap();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    assert!(!staging.resumed());
    let error = destination
        .make_folder(&rel(".goodput-part-0123456789abcdef"), true)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    staging.discard().unwrap();
}

#[test]
fn claims_of_size_are_refused_or_cost_nothing() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let room = destination.room().unwrap();
    let error = staging
        .partial(0, u64::MAX, room.bytes.saturating_add(1 << 40), true)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(staging.partial(1, u64::MAX, 0, true).is_err());
    assert!(staging.partials().unwrap().is_empty());
    let hollow = staging.partial(2, 1 << 40, 0, true).unwrap();
    assert_eq!(hollow.file().metadata().unwrap().blocks(), 0);
    hollow.file().write_all_at(b"x", 1 << 39).unwrap();
    destination
        .commit(&hollow, &rel("hollow"), &meta(0o600), false)
        .unwrap();
    let stat = fs::metadata(scratch.at("hollow")).unwrap();
    assert_eq!(stat.len(), 1 << 40);
    assert!(stat.blocks() * 512 < 1 << 20, "holes stay holes");
}

#[test]
fn a_copy_across_file_systems_keeps_holes() {
    let scratch = Scratch::new();
    let from = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(scratch.at("a"))
        .unwrap();
    from.write_all_at(b"begin", 0).unwrap();
    from.write_all_at(&[7; 3_000_000], 50 << 20).unwrap();
    from.set_len(100 << 20).unwrap();
    let to = File::create_new(scratch.at("b")).unwrap();
    let stop = || Err(io::ErrorKind::Interrupted.into());
    let stopped = copy_sparse(&from, &to, &stop);
    assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    copy_sparse(&from, &to, &|| Ok(())).unwrap();
    let (a, b) = (
        fs::metadata(scratch.at("a")).unwrap(),
        fs::metadata(scratch.at("b")).unwrap(),
    );
    assert_eq!(a.len(), b.len());
    assert!(b.blocks() <= a.blocks() + 2_048);
    assert!(fs::read(scratch.at("a")).unwrap() == fs::read(scratch.at("b")).unwrap());
    let folder = openat(CWD, scratch.path(), READ_FOLDER, Mode::empty()).unwrap();
    beside(folder.as_fd(), b"c", |folder, new| {
        openat(folder, new, NEW_FILE, Mode::RWXU)?;
        Ok(())
    })
    .unwrap();
    assert!(beside(folder.as_fd(), b"d", |_, _| Err(Errno::NOSPC.into())).is_err());
    assert_eq!(tree(scratch.path()), ["a", "b", "c"]);
}

#[test]
fn a_file_system_that_ends_on_the_way_is_no_obstacle() {
    let scratch = Scratch::new();
    let other = Path::new("/dev/shm").join(format!("goodput-copy-{}", std::process::id()));
    if fs::create_dir(&other).is_err() {
        testing::skipped("nothing can be written to /dev/shm");
        return;
    }
    let (here, there) = (open(scratch.path()), open(&other));
    let staging = here.staging(&[1; 16]).unwrap();
    let partial = staging.partial(0, 5, 5, true).unwrap();
    partial.file().write_all_at(b"bytes", 0).unwrap();
    there
        .commit(&partial, &rel("large"), &meta(0o640), true)
        .unwrap();
    // It is to be brought to the disk there too.
    assert_eq!(there.mounts.lock().unwrap().len(), 1);
    there
        .put_small(&staging, &rel("small"), b"bytes", &meta(0o640))
        .unwrap();
    there
        .symlink(&staging, &rel("link"), b"small", &Meta::default())
        .unwrap();
    there
        .hardlink(&staging, &rel("hard"), &rel("small"))
        .unwrap();
    let written = tree(&other);
    let file = |name| {
        (
            fs::read(other.join(name)).unwrap(),
            mode_of(&other.join(name)),
        )
    };
    let bytes = ["large", "small"].map(file);
    fs::remove_dir_all(&other).unwrap();
    assert_eq!(written, ["hard", "large", "link", "small"]);
    assert!(bytes.iter().all(|file| *file == (b"bytes".to_vec(), 0o640)));
    staging.discard().unwrap();
}

#[test]
fn what_is_written_beside_its_place_has_no_name_before_it_is_whole() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let (folder, _) = destination
        .folder_of(destination.written().unwrap(), &rel("x"))
        .unwrap();
    let usual = mode_of(&scratch.file("full/x", ""));
    let seen = Mutex::default();
    let put = |name: &str, meta: &Meta| {
        *seen.lock().unwrap() = Vec::new();
        destination.put_beside(&folder, name.as_bytes(), meta, &|file| {
            file.write_all_at(b"bytes", 0)?;
            *seen.lock().unwrap() = tree(scratch.path());
            destination.dress(file.as_fd(), meta)
        })
    };
    let is_whole = |name: &str, mode| {
        let path = scratch.at(name);
        assert_eq!(fs::read(&path).unwrap(), b"bytes", "{name}");
        assert_eq!(mode_of(&path), mode, "{name}");
        assert_eq!(fs::metadata(&path).unwrap().nlink(), 1, "{name}");
    };
    for is_nameless in [true, false] {
        destination
            .has_no_nameless
            .store(!is_nameless, Ordering::Relaxed);
        let other = scratch.at("other");
        fs::hard_link(scratch.file("stands", "old"), &other).unwrap();
        scratch.folder("empty");
        for name in ["new", "stands", "empty"] {
            let before = tree(scratch.path());
            put(name, &meta(0o604)).unwrap();
            is_whole(name, 0o604);
            if destination.has_no_nameless.load(Ordering::Relaxed) {
                // A name of its own, which is first in order.
                let seen = seen.lock().unwrap();
                assert!(seen[0].starts_with(".goodput-new-") && seen[1..] == before);
            } else {
                assert_eq!(*seen.lock().unwrap(), before, "{name}");
            }
        }
        assert_eq!(fs::read(&other).unwrap(), b"old");
        put("plain", &Meta::default()).unwrap();
        is_whole("plain", usual);
        // What does not come to its place leaves nothing behind.
        let error = put("full", &meta(0o604)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let fails = destination.put_beside(&folder, b"failed", &meta(0o604), &|file| {
            file.write_all_at(b"by", 0)?;
            Err(Errno::NOSPC.into())
        });
        assert_eq!(fails.unwrap_err().kind(), io::ErrorKind::StorageFull);
        for name in ["new", "stands", "empty", "plain", "other"] {
            fs::remove_file(scratch.at(name)).unwrap();
        }
        assert_eq!(tree(scratch.path()), ["full", "full/x"]);
        if is_nameless && destination.has_no_nameless.load(Ordering::Relaxed) {
            println!("files without a name not tested: the file system has none");
        }
    }
}

#[test]
fn a_copy_across_file_systems_is_held_against_what_it_is_of() {
    let scratch = Scratch::new();
    let file = |name: &str, at: u64| {
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(scratch.at(name)).unwrap();
        file.write_all_at(&[7; 10_000], at).unwrap();
        file.set_len(9 << 20).unwrap();
        file
    };
    let (of, same) = (file("of", 3 << 20), file("same", 3 << 20));
    same.write_all_at(&[0; 9_000], 5 << 20).unwrap();
    check_copy(&of, &same, &|| Ok(())).unwrap();
    let stop = || Err(io::ErrorKind::Interrupted.into());
    let stopped = check_copy(&of, &same, &stop);
    assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    // A byte among the data, bytes in a hole, data that became a hole, another length.
    let hurt = file("hurt", 3 << 20);
    hurt.write_all_at(b"x", (3 << 20) + 77).unwrap();
    let more = file("more", 3 << 20);
    more.write_all_at(b"x", 8 << 20).unwrap();
    let less = file("less", (3 << 20) + 100);
    let longer = file("longer", 3 << 20);
    longer.set_len((9 << 20) + 1).unwrap();
    for other in [hurt, more, less, longer] {
        let error = check_copy(&of, &other, &|| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), NOT_AS_WRITTEN);
    }
    // Across two file systems, where there are two.
    let other = Path::new("/dev/shm").join(format!("goodput-copy-back-{}", std::process::id()));
    if fs::create_dir(&other).is_err() {
        testing::skipped("nothing can be written to /dev/shm");
        return;
    }
    let there = open(&other).with_read_back();
    let staging = open(scratch.path()).staging(&[1; 16]).unwrap();
    let partial = staging.partial(0, 5 << 20, 5, true).unwrap();
    partial.file().write_all_at(b"bytes", 4 << 20).unwrap();
    let put = there.commit(&partial, &rel("large"), &meta(0o640), false);
    let len = fs::metadata(other.join("large")).map(|stat| stat.len());
    fs::remove_dir_all(&other).unwrap();
    put.unwrap();
    assert_eq!(len.unwrap(), 5 << 20);
    staging.discard().unwrap();
}

#[test]
fn what_an_earlier_try_left_in_a_hole_is_cleared() {
    let scratch = Scratch::new();
    let staging = open(scratch.path()).staging(&[1; 16]).unwrap();
    let size: usize = 3 << 20;
    let first = staging.partial(0, size as u64, 0, true).unwrap();
    first.file().write_all_at(&vec![9; size], 0).unwrap();
    drop(first);
    let again = staging.partial(0, size as u64, 0, true).unwrap();
    assert!(again.resumed());
    again.clear(1 << 20..2 << 20).unwrap();
    let mut all = vec![1; size];
    again.file().read_exact_at(&mut all, 0).unwrap();
    let (before, rest) = all.split_at(1 << 20);
    let (hole, after) = rest.split_at(1 << 20);
    assert!(hole.iter().all(|byte| *byte == 0));
    assert!(before.iter().chain(after).all(|byte| *byte == 9));
    assert_eq!(again.file().metadata().unwrap().len(), size as u64);
    staging.discard().unwrap();
}

fn deleted(
    destination: &Destination,
    roots: &[&str],
    keep: &[&str],
    filter: &Filter,
) -> Vec<String> {
    let roots: Vec<RelPath> = roots.iter().copied().map(rel).collect();
    let keep: Vec<RelPath> = keep.iter().copied().map(rel).collect();
    let kept = |path: &RelPath| keep.contains(path);
    let mut told = Vec::new();
    let mut tell = |deleted: Deleted| {
        told.push(match deleted.what {
            Deletion::Done => deleted.path.to_string(),
            Deletion::Kept => format!("{} stays", deleted.path),
            Deletion::Failed(error) => panic!("{}: {error}", deleted.path),
        });
        ControlFlow::Continue(())
    };
    assert!(
        destination
            .extras(&roots, &kept, filter, &mut tell)
            .is_continue()
    );
    let listed = std::mem::take(&mut told);
    let mut tell = |deleted: Deleted| {
        told.push(match deleted.what {
            Deletion::Done => deleted.path.to_string(),
            Deletion::Kept => format!("{} stays", deleted.path),
            Deletion::Failed(error) => panic!("{}: {error}", deleted.path),
        });
        ControlFlow::Continue(())
    };
    assert!(
        destination
            .delete_extras(&roots, &kept, filter, &mut tell)
            .is_continue()
    );
    assert_eq!(listed, told, "a dry run tells the same");
    told
}

#[test]
fn what_the_source_has_not_is_deleted_but_for_what_is_excluded() {
    let scratch = Scratch::new();
    let outside = Scratch::new();
    outside.file("x", "");
    for name in [
        "d/keep",
        "d/gone",
        "d/old/a/b",
        "d/old/c",
        "d/both/x.o",
        "d/both/y",
        "other/z",
    ] {
        scratch.file(name, "");
    }
    symlink(outside.path(), scratch.at("d/link")).unwrap();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let mut filter = Filter::new();
    filter.exclude(b"*.o").unwrap();
    let told = deleted(&destination, &["d", "none"], &["d/keep"], &filter);
    let expected = [
        "d/both/y",
        "d/both stays",
        "d/gone",
        "d/link",
        "d/old/a/b",
        "d/old/a",
        "d/old/c",
        "d/old",
    ];
    assert_eq!(told, expected);
    assert_eq!(
        tree(scratch.path()),
        ["d", "d/both", "d/both/x.o", "d/keep", "other", "other/z"]
    );
    assert_eq!(
        deleted(
            &destination,
            &[""],
            &["d", "d/keep", "d/both", "d/both/x.o"],
            &Filter::new()
        ),
        ["other/z", "other"]
    );
    assert_eq!(tree(outside.path()), ["x"]);
    // The staging folder was never seen.
    staging.discard().unwrap();
}

#[test]
fn links_get_times_of_their_own() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let target = scratch.file("t", "");
    let before = fs::metadata(&target).unwrap().mtime();
    let meta = Meta {
        modified: Some(Stamp {
            seconds: 5,
            nanoseconds: 6,
        }),
        ..Meta::default()
    };
    destination
        .symlink(&staging, &rel("l"), b"t", &meta)
        .unwrap();
    let stat = fs::symlink_metadata(scratch.at("l")).unwrap();
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (5, 6));
    assert_eq!(fs::metadata(&target).unwrap().mtime(), before);
    let there = destination.look(&rel("l")).unwrap().unwrap();
    assert_eq!(
        there.kind,
        Standing::Symlink {
            target: b"t"[..].into()
        }
    );
}

#[test]
fn more_folders_than_are_kept_open_are_written() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    for round in 0..2 {
        for number in 0..400 {
            let folder = rel(&format!("d{number}"));
            assert_eq!(destination.make_folder(&folder, false).unwrap(), round == 0);
            let file = folder.join(format!("f{round}").as_bytes()).unwrap();
            destination
                .put_small(&staging, &file, b"", &meta(0o600))
                .unwrap();
        }
    }
    staging.discard().unwrap();
    assert_eq!(tree(scratch.path()).len(), 1200);
}

#[test]
fn a_growing_file_is_opened_where_it_grows_and_nowhere_else() {
    let scratch = Scratch::new();
    let top = open(&scratch.folder("to"));
    let staging = top.staging(&[7; 16]).unwrap();
    let partial = staging.partial(3, 5_000, 5_000, true).unwrap();
    // Another host sees the same folder, and makes nothing there.
    let (other, _) = Destination::resolve(&scratch.at("to"), false, true).unwrap();
    let grows = other.growing(staging.name(), 3, 5_000).unwrap();
    grows.write_all_at(b"x", 4_999).unwrap();
    let mut byte = [0];
    partial.file().read_exact_at(&mut byte, 4_999).unwrap();
    assert_eq!(byte, *b"x");
    // Of another number or length, and no folder for unfinished files, whatever is in it.
    let of = |name: &[u8], number| other.growing(name, number, 5_000).map(drop);
    assert_eq!(
        of(staging.name(), 4).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    assert!(other.growing(staging.name(), 3, 4_999).is_err());
    scratch.file("victim/p3", [0; 5_000]);
    scratch.file("to/mine/p3", [0; 5_000]);
    let beyond = [staging.name(), b"/../../victim"].concat();
    let above = scratch.at("victim");
    for name in [
        &b""[..],
        b".",
        b"..",
        b"mine",
        b"../victim",
        &beyond,
        above.as_os_str().as_bytes(),
    ] {
        let error = of(name, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name:?}");
    }
    // Links of the right names.
    let link = b".goodput-part-0123456789abcdef";
    symlink(
        scratch.at("victim"),
        scratch.at("to").join(OsStr::from_bytes(link)),
    )
    .unwrap();
    assert!(of(link, 3).is_err());
    let inside = scratch.at("to").join(OsStr::from_bytes(staging.name()));
    symlink(scratch.at("victim/p3"), inside.join("p5")).unwrap();
    assert!(of(staging.name(), 5).is_err());
    // One that others may enter.
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(of(staging.name(), 3).is_err());
}

#[test]
fn what_a_name_is_not_to_have_is_no_difference() {
    let scratch = Scratch::new();
    let file = scratch.file("file", "bytes");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let destination = open(scratch.path());
    let stands = destination.look(&rel("file")).unwrap().unwrap();
    let differs = |destination: &Destination, meta: &Meta| {
        let differs = destination.differs(&rel("file"), &stands, meta);
        differs.unwrap().to_string()
    };
    let own = Meta {
        owner: Some(stands.owner),
        ..meta(0o4755)
    };
    // Neither mode nor owner are kept, or nothing is.
    assert_eq!(differs(&destination, &Meta::default()), "");
    assert_eq!(differs(&destination, &meta(0o755)), "");
    assert_eq!(differs(&destination, &own), "mode");
    // Bits that lend rights are the source's only where it is trusted, and where it says whose they are.
    assert_eq!(differs(&destination, &meta(0o4755)), "");
    let other = Meta {
        owner: Some((54_321, 54_322)),
        attributes: vec![(
            b"security.capability"[..].into(),
            b"\x01\0\0\x02"[..].into(),
        )],
        ..meta(0o4700)
    };
    if is_superuser() {
        assert_eq!(differs(&destination, &other), "mode, owner, attributes");
    }
    let careful = open(scratch.path()).with_trust(Trust::NoSetId);
    assert_eq!(differs(&careful, &own), "");
    let guests = open(scratch.path()).with_trust(Trust::Guest);
    assert_eq!(differs(&guests, &own), "");
    assert_eq!(differs(&guests, &other), "mode");
}

#[test]
fn what_cannot_be_set_changes_nothing_and_says_so() {
    let scratch = Scratch::new();
    scratch.file("file", "bytes");
    let destination = open(scratch.path());
    let stands = destination.look(&rel("file")).unwrap().unwrap();
    let refused = Meta {
        // No file system knows it.
        attributes: vec![(b"system.posix_acl_access"[..].into(), b"no list"[..].into())],
        ..Meta::default()
    };
    assert!(!destination.amend(&rel("file"), &stands, &refused).unwrap());
    assert_eq!(destination.shortfalls().attributes_unsupported, 1);
    // Nobody follows a link that was put there meanwhile.
    fs::remove_file(scratch.at("file")).unwrap();
    scratch.file("outside", "bytes");
    symlink("outside", scratch.at("file")).unwrap();
    let before = mode_of(&scratch.at("outside"));
    assert!(
        destination
            .amend(&rel("file"), &stands, &meta(0o600))
            .is_err()
    );
    assert_eq!(mode_of(&scratch.at("outside")), before);
}

#[test]
fn a_file_that_was_written_to_after_it_was_placed_gets_its_time_again() {
    let scratch = Scratch::new();
    scratch.file("file", "bytes");
    symlink("file", scratch.at("link")).unwrap();
    let destination = open(&scratch.at("."));
    let time = Stamp {
        seconds: 1_700_000_000,
        nanoseconds: 7,
    };
    let meta = Meta {
        modified: Some(time),
        ..Meta::default()
    };
    let modified = |name| destination.look(&rel(name)).unwrap().unwrap().modified;
    let (mend, link) = (
        |name| destination.mend_time(&rel(name), &meta),
        modified("link"),
    );
    assert!(mend("file").unwrap());
    assert_eq!(modified("file"), time);
    // Once it has it, nothing is set; nor what is no file, or of which no time is kept.
    assert!(!mend("file").unwrap());
    assert!(!mend("link").unwrap() && !mend("none").unwrap());
    assert_eq!(modified("link"), link);
    scratch.file("file", "other");
    assert!(
        !destination
            .mend_time(&rel("file"), &Meta::default())
            .unwrap()
    );
    assert_ne!(modified("file"), time);
}

#[test]
fn a_time_that_a_server_cut_is_the_sources_and_a_later_one_is_not() {
    let at = |seconds, nanoseconds| Stamp {
        seconds,
        nanoseconds,
    };
    let there = at(7, 123_456_789);
    for nanoseconds in [0, 120_000_000, 123_456_000, 123_456_700] {
        assert!(is_cut(at(7, nanoseconds), there), "{nanoseconds}");
    }
    for other in [at(6, 0), at(8, 0), at(7, 123_456_788), at(7, 130_000_000)] {
        assert!(!is_cut(other, there), "{other:?}");
    }
    // A local file system holds nanoseconds.
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    assert!(!destination.is_foreign() && !destination.is_time(at(7, 0), there));
}
