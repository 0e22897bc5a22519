//! A destination that only checks what arrives is left as it was.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use copy::engine::receive::ReceiveOptions;

use crate::common::{Place, Session, at_once, bytes, plant, tree};

/// What [`tree`] has, and the top folder's own mode and time.
fn all(top: &Path) -> (BTreeMap<PathBuf, String>, String) {
    let stat = fs::metadata(top).unwrap();
    let own = format!("{:o} {}.{}", stat.mode(), stat.mtime(), stat.mtime_nsec());
    (tree(top), own)
}

/// Something of another kind, or with other bytes, under names that the source has too.
fn plant_otherwise(top: &Path) {
    fs::create_dir_all(top.join("a/b/c/file8")).unwrap();
    // An empty file at the source; a folder, a link, a hard link.
    fs::write(top.join("a/b/c/file0"), "to be kept").unwrap();
    fs::write(top.join("empty"), "a file").unwrap();
    fs::write(top.join("link"), "no link").unwrap();
    symlink("elsewhere", top.join("second")).unwrap();
    fs::write(top.join("a/small9"), "kept").unwrap();
    fs::write(top.join("extra"), "kept").unwrap();
    fs::set_permissions(top.join("a"), fs::Permissions::from_mode(0o705)).unwrap();
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    for folder in ["a/b/c", "a/b", "a", ""] {
        let folder = fs::File::open(top.join(folder)).unwrap();
        folder.set_modified(old).unwrap();
    }
}

#[test]
fn a_destination_that_only_checks_is_left_byte_for_byte_as_it_was() {
    let cases = [
        (false, false, false, false),
        (true, true, true, false),
        (false, true, false, true),
    ];
    at_once(cases, |(delete, fsync, checksum, is_verified)| {
        let place = Place::new();
        plant(&place.from());
        fs::write(place.from().join("large"), bytes(5 << 20, 5)).unwrap();
        plant_otherwise(&place.to());
        fs::write(place.to().join("large"), bytes(5 << 20, 6)).unwrap();
        fs::File::open(place.to())
            .unwrap()
            .set_modified(UNIX_EPOCH + Duration::from_secs(7))
            .unwrap();
        let before = all(&place.to());
        let session = Session {
            receive: ReceiveOptions {
                null: true,
                delete,
                fsync,
                checksum,
                ..ReceiveOptions::default()
            },
            reads_back: is_verified,
            block: Some(1 << 18),
            ..Session::default()
        };
        let (sent, received) = session.run(&place.from(), &place.to());
        let account = sent.unwrap();
        assert_eq!(account, received.unwrap());
        assert_eq!((account.failed, account.deleted), (0, 0), "{account:?}");
        assert!(account.placed > 300 && account.received_bytes > 5 << 20);
        assert_eq!(all(&place.to()), before);
    });
}
