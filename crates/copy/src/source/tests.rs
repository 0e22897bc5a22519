//! Trees of real files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};

use rustix::fs::{FileType, XattrFlags, mkdirat, setxattr};

use super::*;
use crate::entry::{DEPTH_MOST, Kind, Stamp};
use crate::filter::Filter;
use crate::scratch::{Scratch, is_superuser};

fn walked(source: &Source, filter: &Filter, keep: &Keep) -> (Vec<Found>, Vec<Skipped>) {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    let flow = source.walk(filter, keep, &mut |walked| {
        match walked {
            Walked::Found(one) => found.push(one),
            Walked::Skipped(one) => skipped.push(one),
        }
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    (found, skipped)
}

fn paths(source: &Source) -> Vec<String> {
    let (found, skipped) = walked(source, &Filter::new(), &Keep::default());
    assert_eq!(skipped, []);
    found
        .iter()
        .map(|found| found.entry.path.to_string())
        .collect()
}

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes()).unwrap()
}

#[test]
fn a_slash_at_the_end_is_for_what_is_in_a_folder() {
    let scratch = Scratch::new();
    scratch.file("d/b/x", "");
    scratch.file("d/a", "");
    scratch.file("d/b-c", "");
    let named = Source::open(&[scratch.at("d")]).unwrap();
    // Sorted by names: what is in b comes right after it, before b-c.
    assert_eq!(paths(&named), ["d", "d/a", "d/b", "d/b/x", "d/b-c"]);
    assert_eq!(named.roots(), [rel("d")]);
    for end in ["d/", "d/."] {
        let contents = Source::open(&[format!("{}/{end}", scratch.path().display())]).unwrap();
        assert_eq!(paths(&contents), ["", "a", "b", "b/x", "b-c"]);
        assert_eq!(contents.roots(), [RelPath::top()]);
    }
    let file = Source::open(&[scratch.at("d/a")]).unwrap();
    assert!(file.is_one_file() && !named.is_one_file());
    assert_eq!(paths(&file), ["a"]);
    assert!(file.open_file(&rel("a")).is_ok() && named.open_file(&rel("d/b/x")).is_ok());
}

#[test]
fn several_things_become_one_tree_unless_names_meet() {
    let scratch = Scratch::new();
    scratch.file("one/x", "1");
    scratch.file("two/y", "2");
    scratch.file("z", "3");
    let slash = |name: &str| format!("{}/{name}", scratch.path().display());
    let all = Source::open(&[slash("z"), slash("one/"), slash("two")]).unwrap();
    assert_eq!(paths(&all), ["two", "two/y", "x", "z"]);
    assert_eq!(all.open_file(&rel("x")).unwrap().fingerprint().size, 1);
    assert_eq!(
        all.open_file(&rel("y")).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    scratch.file("three/x", "");
    let twice = Source::open(&[slash("one/"), slash("three/")]).unwrap_err();
    assert!(matches!(twice, SourceError::Twice { .. }), "{twice}");
    assert!(matches!(
        Source::open::<&str>(&[]),
        Err(SourceError::Nothing)
    ));
    assert!(matches!(
        Source::open(&[slash("z/")]),
        Err(SourceError::NoFolder { .. })
    ));
    assert!(matches!(
        Source::open(&[slash("none")]),
        Err(SourceError::Open { .. })
    ));
}

#[test]
fn a_link_is_followed_only_where_the_user_put_a_slash_behind_it() {
    let scratch = Scratch::new();
    scratch.file("d/x", "");
    symlink("d", scratch.at("link")).unwrap();
    symlink("/etc", scratch.at("d/out")).unwrap();
    let named = Source::open(&[scratch.at("link")]).unwrap();
    assert!(named.is_one_file());
    let (found, _) = walked(&named, &Filter::new(), &Keep::default());
    assert_eq!(
        found[0].entry.kind,
        Kind::Symlink {
            target: b"d"[..].into()
        }
    );
    let contents = Source::open(&[format!("{}/link/", scratch.path().display())]).unwrap();
    assert_eq!(paths(&contents), ["", "out", "x"]);
    assert!(contents.open_file(&rel("out")).is_err());
    assert!(contents.open_file(&rel("out/passwd")).is_err());
}

#[test]
fn the_same_holds_step_by_step() {
    let scratch = Scratch::new();
    scratch.file("d/e/x", "");
    symlink("e", scratch.at("d/link")).unwrap();
    let top = Top::step_by_step(open_folder(scratch.path()).unwrap());
    assert!(top.open(b"d/e/x", READ_FILE).is_ok());
    for path in [
        &b"d/link/x"[..],
        b"d/link",
        b"d/../d",
        b"..",
        b"/etc/passwd",
        b"d//e",
    ] {
        assert!(
            top.open(path, READ_FILE).is_err(),
            "{}",
            path.escape_ascii()
        );
    }
    let top = Top::new(open_folder(scratch.path()).unwrap());
    for path in [
        &b"d/link/x"[..],
        b"d/link",
        b"d/../..",
        b"..",
        b"/etc/passwd",
    ] {
        assert!(
            top.open(path, READ_FILE).is_err(),
            "{}",
            path.escape_ascii()
        );
    }
}

#[test]
fn special_files_are_told_and_passed_over() {
    let scratch = Scratch::new();
    scratch.file("d/a", "");
    let folder = open_folder(&scratch.at("d")).unwrap();
    rustix::fs::mknodat(&folder, "pipe", FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(scratch.at("d/socket")).unwrap();
    scratch.folder("d/.goodput-part-0123456789abcdef/x");
    let source = Source::open(&[scratch.at("d")]).unwrap();
    let (found, skipped) = walked(&source, &Filter::new(), &Keep::default());
    assert_eq!(found.len(), 2);
    let told: Vec<(String, Why)> = skipped
        .into_iter()
        .map(|one| (one.path.to_string(), one.why))
        .collect();
    assert_eq!(
        told,
        [
            ("d/pipe".to_owned(), Why::Pipe),
            ("d/socket".to_owned(), Why::Socket)
        ]
    );
    assert!(source.open_file(&rel("d/pipe")).is_err());
}

#[test]
fn what_may_not_be_read_is_told_and_the_walk_goes_on() {
    if is_superuser() {
        testing::unneeded("the superuser may read everything");
        return;
    }
    let scratch = Scratch::new();
    scratch.file("a/x", "");
    scratch.file("b", "");
    scratch.file("c", "");
    fs::set_permissions(scratch.at("a"), fs::Permissions::from_mode(0o300)).unwrap();
    fs::set_permissions(scratch.at("b"), fs::Permissions::from_mode(0o200)).unwrap();
    let source = Source::open(&[format!("{}/", scratch.path().display())]).unwrap();
    let (found, skipped) = walked(&source, &Filter::new(), &Keep::default());
    fs::set_permissions(scratch.at("a"), fs::Permissions::from_mode(0o700)).unwrap();
    let found: Vec<String> = found
        .iter()
        .map(|found| found.entry.path.to_string())
        .collect();
    assert_eq!(found, ["", "a", "c"]);
    let why = Why::Unreadable("permission denied".into());
    assert_eq!(
        skipped,
        ["a", "b"].map(|path| Skipped {
            path: rel(path),
            why: why.clone()
        })
    );
}

#[test]
fn hard_links_are_told_as_names_of_the_first() {
    let scratch = Scratch::new();
    scratch.file("d/a", "bytes");
    fs::hard_link(scratch.at("d/a"), scratch.at("d/b")).unwrap();
    fs::hard_link(scratch.at("d/a"), scratch.at("d/c")).unwrap();
    scratch.file("d/e", "");
    let source = Source::open(&[scratch.at("d")]).unwrap();
    let (found, _) = walked(&source, &Filter::new(), &Keep::default());
    assert_eq!(found[1].entry.kind, Kind::File { size: 5 });
    for link in &found[2..4] {
        assert_eq!(link.entry.kind, Kind::Hardlink { to: rel("d/a") });
    }
    assert_eq!(found[4].entry.kind, Kind::File { size: 0 });
    let keep = Keep {
        links: false,
        ..Keep::default()
    };
    let (found, _) = walked(&source, &Filter::new(), &keep);
    assert!(
        found[1..]
            .iter()
            .all(|found| matches!(found.entry.kind, Kind::File { .. }))
    );
    // The first of them excluded, the second is the file.
    let mut filter = Filter::new();
    filter.exclude(b"a").unwrap();
    let (found, _) = walked(&source, &filter, &Keep::default());
    assert_eq!(found[1].entry.kind, Kind::File { size: 5 });
    assert_eq!(found[2].entry.kind, Kind::Hardlink { to: rel("d/b") });
}

#[test]
fn what_belongs_to_a_file_is_read_as_asked() {
    let scratch = Scratch::new();
    let path = scratch.file("f", "12345");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    let has_attributes = setxattr(&path, "user.note", b"v", XattrFlags::empty()).is_ok();
    let source = Source::open(&[&path]).unwrap();
    let (found, _) = walked(&source, &Filter::new(), &Keep::default());
    let (meta, stat) = (&found[0].entry.meta, fs::metadata(&path).unwrap());
    assert_eq!(meta.mode, Some(0o640));
    assert_eq!(meta.owner, Some((stat.uid(), stat.gid())));
    assert_eq!(
        meta.modified,
        Some(Stamp {
            seconds: 1_000_000_000,
            nanoseconds: 123_456_789
        })
    );
    if has_attributes {
        assert_eq!(
            meta.attributes,
            [(b"user.note"[..].into(), b"v"[..].into())]
        );
    } else {
        println!("attributes not tested: the file system has none");
    }
    if is_superuser() {
        assert_eq!(meta.owner_names, Some(("root".into(), "root".into())));
    }
    let keep = Keep {
        mode: false,
        owner: false,
        times: false,
        attributes: false,
        links: false,
    };
    let (found, _) = walked(&source, &Filter::new(), &keep);
    assert_eq!(found[0].entry.meta, crate::Meta::default());
    assert_eq!(found[0].fingerprint.unwrap().size, 5);
}

#[test]
fn names_need_not_be_text() {
    let scratch = Scratch::new();
    scratch.file(OsStr::from_bytes(b"d/\xff\xfe\n"), "x");
    let source = Source::open(&[scratch.at("d")]).unwrap();
    let (found, _) = walked(&source, &Filter::new(), &Keep::default());
    assert_eq!(found[1].entry.path.as_bytes(), b"d/\xff\xfe\n");
    assert!(source.open_file(&found[1].entry.path).is_ok());
}

#[test]
fn a_tree_as_deep_as_a_path_may_be_is_walked_and_the_rest_told() {
    let scratch = Scratch::new();
    let mut at = open_folder(scratch.path()).unwrap();
    for _ in 0..DEPTH_MOST + 2 {
        mkdirat(&at, "d", 0o700.into()).unwrap();
        at = openat(&at, "d", READ_FOLDER, Mode::empty()).unwrap();
    }
    let source = Source::open(&[format!("{}/", scratch.path().display())]).unwrap();
    let (found, skipped) = walked(&source, &Filter::new(), &Keep::default());
    assert_eq!(found.len(), DEPTH_MOST + 1);
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0].why, Why::Long);
}

#[test]
fn what_is_in_an_excluded_folder_is_not_looked_at() {
    let scratch = Scratch::new();
    scratch.file("d/skip/x", "");
    scratch.file("d/keep/x.o", "");
    scratch.file("d/keep/x.c", "");
    let mut filter = Filter::new();
    filter.lines(false, b"skip/\n*.o\n").unwrap();
    let source = Source::open(&[scratch.at("d")]).unwrap();
    let (found, _) = walked(&source, &filter, &Keep::default());
    let found: Vec<String> = found
        .iter()
        .map(|found| found.entry.path.to_string())
        .collect();
    assert_eq!(found, ["d", "d/keep", "d/keep/x.c"]);
}

#[test]
fn an_excluded_file_that_goes_meanwhile_is_nobodys_loss() {
    let scratch = Scratch::new();
    scratch.file("d/a", "");
    scratch.file("d/b.o", "");
    scratch.file("d/c", "");
    let mut filter = Filter::new();
    filter.exclude(b"*.o").unwrap();
    let source = Source::open(&[scratch.at("d")]).unwrap();
    let (mut found, mut gone) = (Vec::new(), Vec::new());
    let flow = source.walk(&filter, &Keep::default(), &mut |walked| {
        match walked {
            Walked::Found(one) => found.push(one.entry.path.to_string()),
            Walked::Skipped(one) => gone.push(one.path.to_string()),
        }
        // The names of d were read by then; one that is copied is told to be gone.
        if found.len() == 2 && gone.is_empty() {
            fs::remove_file(scratch.at("d/b.o")).unwrap();
            fs::remove_file(scratch.at("d/c")).unwrap();
        }
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    assert_eq!(
        (found, gone),
        (vec!["d".into(), "d/a".into()], vec!["d/c".into()])
    );
}

#[test]
fn what_is_no_file_is_excluded_as_files_are() {
    let scratch = Scratch::new();
    scratch.file("d/f", "");
    symlink("f", scratch.at("d/link.o")).unwrap();
    symlink("f", scratch.at("d/link")).unwrap();
    let folder = open_folder(&scratch.at("d")).unwrap();
    for pipe in ["pipe", "pipe.o"] {
        rustix::fs::mknodat(&folder, pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
    }
    let mut filter = Filter::new();
    // The last is for folders, of which there are none.
    filter.lines(false, b"*.o\nlink/\n").unwrap();
    let source = Source::open(&[scratch.at("d")]).unwrap();
    let (found, skipped) = walked(&source, &filter, &Keep::default());
    let found: Vec<String> = found
        .iter()
        .map(|found| found.entry.path.to_string())
        .collect();
    assert_eq!(found, ["d", "d/f", "d/link"]);
    assert_eq!(skipped.len(), 1);
    assert_eq!(
        (&skipped[0].path, &skipped[0].why),
        (&rel("d/pipe"), &Why::Pipe)
    );
}

#[test]
fn a_walk_is_stopped_among_names_that_are_all_excluded() {
    let scratch = Scratch::new();
    for n in 0..10 {
        scratch.file(format!("d/{n}.o"), "");
        scratch.folder(format!("d/{n}"));
    }
    scratch.file("d/last", "");
    let mut filter = Filter::new();
    filter.lines(false, b"*.o\n[0-9]/\n").unwrap();
    let listed = listed(b"d/0\nd/0.o\nd/1.o\nd/2\nd/last\n", false).unwrap();
    for (source, names) in [
        (Source::open(&[scratch.at("d")]).unwrap(), 20),
        (Source::from_list(scratch.path(), listed).unwrap(), 4),
    ] {
        for stopped_at in [1, 2, names, names + 1] {
            let (asked, mut found) = (std::cell::Cell::new(0), Vec::new());
            let is_stopped = || {
                asked.set(asked.get() + 1);
                asked.get() == stopped_at
            };
            let keep = Keep::default();
            let flow = source.walk_unless(&filter, &keep, &is_stopped, &mut |walked| {
                if let Walked::Found(one) = walked {
                    found.push(one.entry.path.to_string());
                }
                ControlFlow::Continue(())
            });
            assert_eq!(flow.is_break(), stopped_at <= names);
            assert_eq!(asked.get(), stopped_at.min(names));
            assert_eq!(
                found.len(),
                if flow.is_break() { 1 } else { 2 },
                "{found:?}"
            );
        }
    }
}

#[test]
fn a_list_brings_the_folders_its_names_are_in() {
    let scratch = Scratch::new();
    for name in [
        "a/b/one", "a/b/two", "a/three", "w/h/o", "w/h/l", "a-b/x", "z",
    ] {
        scratch.file(name, "");
    }
    let text = b"z\na/b/one\na-b/x\nw/\nw/h/o\na/b\nnone\nno/x\nno/y\na/b/one\nz/x\n";
    let names = listed(text, false).unwrap();
    let source = Source::from_list(scratch.path(), names).unwrap();
    let (found, skipped) = walked(&source, &Filter::new(), &Keep::default());
    let found: Vec<String> = found
        .iter()
        .map(|found| found.entry.path.to_string())
        .collect();
    let expected = [
        "a", "a/b", "a/b/one", "a-b", "a-b/x", "w", "w/h", "w/h/l", "w/h/o", "z",
    ];
    assert_eq!(found, expected);
    let missing = |path: &str| Skipped {
        path: rel(path),
        why: Why::Missing,
    };
    assert_eq!(skipped, ["no", "none", "z/x"].map(missing));
    assert_eq!(source.roots(), [rel("w")]);
    let mut filter = Filter::new();
    filter.exclude(b"a").unwrap();
    let (found, skipped) = walked(&source, &filter, &Keep::default());
    assert_eq!((found.len(), skipped.len()), (7, 3));
}

#[test]
fn holes_are_found() {
    let scratch = Scratch::new();
    let path = scratch.at("f");
    let file = File::create(&path).unwrap();
    let mib = 1u64 << 20;
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"middle", 8 * mib).unwrap();
    file.set_len(16 * mib).unwrap();
    drop(file);
    let source = Source::open(&[&path]).unwrap();
    let (found, _) = walked(&source, &Filter::new(), &Keep::default());
    let open = source.open_file(&rel("f")).unwrap();
    let ranges = open.data_ranges().unwrap();
    assert!(
        ranges
            .iter()
            .any(|range| range.start == 0 && range.end >= 5)
    );
    if fs::metadata(&path).unwrap().blocks() * 512 >= 16 * mib {
        testing::skipped("the file system has no holes");
        return;
    }
    assert_eq!(ranges.len(), 2, "{ranges:?}");
    assert!(ranges[1].contains(&(8 * mib + 5)) && ranges[1].end < 9 * mib);
    assert!(found[0].data < mib);
    scratch.file("g", "whole");
    let whole = Source::open(&[scratch.at("g")])
        .unwrap()
        .open_file(&rel("g"))
        .unwrap();
    assert_eq!(
        whole.data_ranges().unwrap(),
        std::iter::once(0..5).collect::<Vec<_>>()
    );
}

#[test]
fn a_file_that_changes_is_found_out() {
    let scratch = Scratch::new();
    let path = scratch.file("f", "before");
    let source = Source::open(&[&path]).unwrap();
    let (found, _) = walked(&source, &Filter::new(), &Keep::default());
    let print = found[0].fingerprint.unwrap();
    let open = source.open_file(&rel("f")).unwrap();
    assert!(!open.changed_since(&print).unwrap());
    fs::write(&path, "after it was opened").unwrap();
    assert!(open.changed_since(&print).unwrap());
    scratch.file("g", "other");
    fs::rename(scratch.at("g"), &path).unwrap();
    let other = source.open_file(&rel("f")).unwrap();
    assert!(other.changed_since(&print).unwrap());
}

/// Bytes this process holds in memory that is its own (`VmRSS` of proc(5)).
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[test]
fn a_hundred_thousand_names_take_little_memory() {
    let scratch = Scratch::of_many_names();
    let folder = open_folder(&scratch.folder("d")).unwrap();
    for number in 0..100_000 {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        openat(&folder, format!("file-{number:06}"), flags, 0o600.into()).unwrap();
    }
    let source = Source::open(&[scratch.at("d")]).unwrap();
    let (before, mut most, mut seen) = (resident_bytes(), 0, 0u64);
    let flow = source.walk(&Filter::new(), &Keep::default(), &mut |walked| {
        assert!(matches!(walked, Walked::Found(_)));
        seen += 1;
        if seen.is_multiple_of(10_000) {
            most = most.max(resident_bytes());
        }
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    assert_eq!(seen, 100_001);
    // 11 bytes of name and 12 beside it each, held twice while a vector grows; other tests run meanwhile.
    assert!(
        most.saturating_sub(before) < 64 << 20,
        "{} bytes more",
        most - before
    );
}
