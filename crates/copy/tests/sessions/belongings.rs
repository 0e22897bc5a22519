//! What belongs to names whose bytes are there already.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;

use copy::engine::receive::ReceiveOptions;
use rustix::fs::{XattrFlags, lgetxattr, removexattr, setxattr};

use crate::common::{Place, Session, plant, tree};

/// Everything but when it was looked at: two are the same where nothing was touched.
fn stat(path: &Path) -> impl PartialEq + std::fmt::Debug + use<> {
    let stat = fs::symlink_metadata(path).unwrap();
    let changed = (stat.ctime(), stat.ctime_nsec());
    (kept(path), changed)
}

/// What a change of mode or owner leaves.
fn kept(path: &Path) -> (u64, i64, i64) {
    let stat = fs::symlink_metadata(path).unwrap();
    (stat.ino(), stat.mtime(), stat.mtime_nsec())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    let length = lgetxattr(path, name, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

fn dry() -> Session {
    Session {
        receive: ReceiveOptions {
            dry: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    }
}

/// An access control list that lets one user more read and write (include/uapi/linux/posix_acl_xattr.h): version 2, then
/// tag, permissions and number of owner, that user, group, mask and others.
fn access_list(user: u32) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, number) in [
        (0x01_u16, 6_u16, u32::MAX),
        (0x02, 6, user),
        (0x04, 4, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&permissions.to_le_bytes());
        list.extend_from_slice(&number.to_le_bytes());
    }
    list
}

#[test]
fn a_mode_alone_is_carried_and_neither_bytes_nor_times_are_touched() {
    let place = Place::new();
    plant(&place.from());
    let session = Session::default();
    session.run(&place.from(), &place.to()).0.unwrap();
    let name = "a/small7";
    let other = place.to().join("a/small8");
    set_mode(&place.from().join(name), 0o600);
    let there = place.to().join(name);
    let before = (kept(&there), stat(&there), stat(&other));
    // Said, and not done.
    let would = dry().run(&place.from(), &place.to()).0.unwrap();
    assert_eq!((would.placed, stat(&there) == before.1), (1, true));
    let (sent, received) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!(account, received.unwrap());
    assert_eq!(
        (account.placed, account.received_bytes, account.failed),
        (1, 0, 0)
    );
    assert_eq!(mode(&there), 0o600);
    assert_eq!((kept(&there), stat(&other)), (before.0, before.2));
    assert_eq!(tree(&place.from()), tree(&place.to()));
    // And no more than once.
    let now = stat(&there);
    let again = session.run(&place.from(), &place.to()).0.unwrap();
    assert_eq!((again.placed, stat(&there) == now), (0, true));
    assert_eq!(again.same, account.same + 1);
}

#[test]
fn an_owner_alone_is_carried_and_takes_no_bits_along() {
    let place = Place::new();
    fs::write(place.from().join("file"), "bytes").unwrap();
    symlink("nowhere", place.from().join("link")).unwrap();
    let file = place.from().join("file");
    if chown(&file, Some(12_345), Some(12_346)).is_err() {
        println!("not tested: no superuser");
        return;
    }
    set_mode(&file, 0o6750);
    let session = Session::default();
    session.run(&place.from(), &place.to()).0.unwrap();
    chown(&file, Some(54_321), Some(54_322)).unwrap();
    set_mode(&file, 0o6750);
    lchown(place.from().join("link"), Some(54_321), Some(54_322)).unwrap();
    let there = ["file", "link"].map(|name| place.to().join(name));
    let before = there.each_ref().map(|path| kept(path));
    let would = dry().run(&place.from(), &place.to()).0.unwrap();
    assert_eq!(would.placed, 2);
    let account = session.run(&place.from(), &place.to()).0.unwrap();
    assert_eq!((account.placed, account.received_bytes), (2, 0));
    for path in &there {
        let stat = fs::symlink_metadata(path).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (54_321, 54_322));
    }
    assert_eq!(mode(&there[0]), 0o6750);
    assert_eq!(there.each_ref().map(|path| kept(path)), before);
}

#[test]
fn an_extended_attribute_alone_is_carried() {
    let place = Place::new();
    let file = place.from().join("file");
    fs::write(&file, "bytes").unwrap();
    let session = Session::default();
    session.run(&place.from(), &place.to()).0.unwrap();
    let there = place.to().join("file");
    let before = kept(&there);
    for value in ["one", "two"] {
        if setxattr(&file, "user.note", value.as_bytes(), XattrFlags::empty()).is_err() {
            println!("not tested: a file system without");
            return;
        }
        let would = dry().run(&place.from(), &place.to()).0.unwrap();
        assert_eq!(would.placed, 1);
        assert_ne!(attribute(&there, "user.note"), Some(value.into()));
        let account = session.run(&place.from(), &place.to()).0.unwrap();
        assert_eq!((account.placed, account.received_bytes), (1, 0));
        assert_eq!(attribute(&there, "user.note"), Some(value.into()));
        assert_eq!(kept(&there), before);
    }
    let account = session.run(&place.from(), &place.to()).0.unwrap();
    assert_eq!((account.placed, account.same), (0, 1));
}

#[test]
fn attributes_that_the_source_has_no_more_go_where_what_it_has_not_is_deleted() {
    let (list, flags) = ("system.posix_acl_access", XattrFlags::empty());
    let place = Place::new();
    let (from, to) = (place.from(), place.to());
    fs::create_dir(from.join("folder")).unwrap();
    fs::write(from.join("file"), "bytes").unwrap();
    let names = ["folder", "file"];
    for name in names {
        for note in ["user.note", "user.kept"] {
            if setxattr(from.join(name), note, b"value", flags).is_err() {
                println!("not tested: a file system without");
                return;
            }
        }
    }
    let has_lists = setxattr(from.join("file"), list, &access_list(1_000), flags).is_ok();
    let session = Session::default();
    session.run(&from, &to).0.unwrap();
    for name in names {
        removexattr(from.join(name), "user.note").unwrap();
        setxattr(to.join(name), "user.own", b"another's", flags).unwrap();
        // Longer names together than a list is read with at first.
        for n in 0..30 {
            let note = format!("user.{n:0>50}");
            setxattr(to.join(name), note.as_str(), b"", flags).unwrap();
        }
    }
    // Who may not set it need not be spared it.
    let _ = setxattr(to.join("file"), "trusted.own", b"the host's", flags);
    let before = attribute(&to.join("file"), "trusted.own");
    if has_lists {
        removexattr(from.join("file"), list).unwrap();
    }
    set_mode(&from.join("file"), 0o640);
    set_mode(&to.join("file"), 0o640);
    let is_left = |name: &str, note: &str| attribute(&to.join(name), note).is_some();
    let all = ["user.note", "user.kept", "user.own"];
    let account = session.run(&from, &to).0.unwrap();
    assert_eq!((account.placed, account.same), (0, 1));
    assert!(
        names
            .iter()
            .all(|name| all.iter().all(|note| is_left(name, note)))
    );
    let deletes = |dry| Session {
        receive: ReceiveOptions {
            delete: true,
            dry,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let would = deletes(true).run(&from, &to).0.unwrap();
    assert_eq!(would.placed, 1);
    assert!(is_left("file", "user.note"));
    let account = deletes(false).run(&from, &to).0.unwrap();
    assert_eq!(
        (account.placed, account.failed, account.received_bytes),
        (1, 0, 0)
    );
    for name in names {
        let left = all.map(|note| is_left(name, note));
        assert_eq!(left, [false, true, false], "{name}");
        assert!((0..30).all(|n| !is_left(name, &format!("user.{n:0>50}"))));
    }
    assert_eq!(attribute(&to.join("file"), list), None);
    assert_eq!(mode(&to.join("file")), 0o640);
    // What a host keeps for itself stays.
    assert_eq!(attribute(&to.join("file"), "trusted.own"), before);
    let account = deletes(false).run(&from, &to).0.unwrap();
    assert_eq!((account.placed, account.same), (0, 1));
}

#[test]
fn access_control_lists_are_at_the_destination_as_they_are_at_the_source() {
    let name = "system.posix_acl_access";
    for place in [Some(Place::new()), Place::in_memory()]
        .into_iter()
        .flatten()
    {
        let files = ["small", "large"].map(|name| place.from().join(name));
        fs::write(&files[0], "bytes").unwrap();
        fs::write(&files[1], vec![7; 3 << 20]).unwrap();
        let session = Session::default();
        for user in [1_000, 2_000] {
            for file in &files {
                if setxattr(file, name, &access_list(user), XattrFlags::empty()).is_err() {
                    println!("not tested: a file system without");
                    return;
                }
            }
            let account = session.run(&place.from(), &place.to()).0.unwrap();
            // The first time with the bytes, then alone.
            assert_eq!((account.placed, account.failed), (2, 0));
            for file in ["small", "large"].map(|name| place.to().join(name)) {
                assert_eq!(attribute(&file, name), Some(access_list(user)));
                assert_eq!(mode(&file), 0o660);
            }
        }
        let account = session.run(&place.from(), &place.to()).0.unwrap();
        assert_eq!((account.placed, account.same), (0, 2));
    }
}

#[test]
fn a_lone_symbolic_link_counts_as_copied_and_once() {
    let place = Place::new();
    symlink("nowhere", place.from().join("link")).unwrap();
    let session = Session::default();
    for expected in [1, 0] {
        let account = session.run(&place.from(), &place.to()).0.unwrap();
        assert_eq!((account.placed, account.failed), (expected, 0));
    }
    let to = fs::read_link(place.to().join("link")).unwrap();
    assert_eq!(to.to_str(), Some("nowhere"));
}
