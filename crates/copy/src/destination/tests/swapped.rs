//! Names that somebody else gives to other things between two calls.

use super::*;

/// Names of staging folders.
const PLANTED: &str = ".goodput-part-0123456789abcdef";
const MOVED: &str = ".goodput-part-fedcba9876543210";

fn is_replaced<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::StaleNetworkFileHandle)
}

fn look(destination: &Destination, name: &str) -> Existing {
    destination.look(&rel(name)).unwrap().unwrap()
}

#[test]
fn a_planted_staging_folder_that_is_locked_delays_no_copy() {
    let scratch = Scratch::new();
    let planted = scratch.folder(PLANTED);
    fs::write(planted.join("identity"), [1; 16]).unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o777)).unwrap();
    let held = File::open(&planted).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let destination = open(scratch.path());
    // Who would wait gives up at once.
    let staging = destination.staging_unless(&[1; 16], &|| true).unwrap();
    assert!(!staging.resumed());
    staging.discard().unwrap();
}

#[test]
fn a_staging_folder_under_another_name_is_neither_resumed_nor_shared() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    drop(staging.partial(0, 5, 5, true).unwrap());
    let name = Path::new(OsStr::from_bytes(staging.name())).to_owned();
    assert!(destination.growing(staging.name(), 0, 5).is_ok());
    fs::rename(scratch.at(&name), scratch.at(MOVED)).unwrap();
    let error = destination.growing(MOVED.as_bytes(), 0, 5).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    drop(staging);
    let again = destination.staging(&[1; 16]).unwrap();
    assert!(!again.resumed());
    // It is emptied where it is by now.
    fs::rename(
        scratch.at(OsStr::from_bytes(again.name())),
        scratch.at("elsewhere"),
    )
    .unwrap();
    again.discard().unwrap();
    assert_eq!(
        fs::read_dir(scratch.at("elsewhere")).unwrap().count(),
        0,
        "nothing is left in it"
    );
}

#[test]
fn an_unfinished_file_with_another_name_is_never_written_into() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let partial = staging.partial(0, 5, 5, true).unwrap();
    partial.file().write_all_at(b"bytes", 0).unwrap();
    let inside = scratch.at(OsStr::from_bytes(staging.name()));
    fs::hard_link(inside.join("p0"), scratch.at("other")).unwrap();
    let again = staging.partial(0, 5, 5, true).unwrap();
    assert!(again.resumed());
    again.file().write_all_at(b"x", 4).unwrap();
    assert_eq!(fs::read(scratch.at("other")).unwrap(), b"bytes");
    assert_eq!(fs::read(inside.join("p0")).unwrap(), b"bytex");
    // One whose name is another file's by now is not placed.
    assert!(is_replaced(destination.commit(
        &partial,
        &rel("placed"),
        &meta(0o600),
        false
    )));
    assert!(!scratch.at("placed").exists());
    // And what is not finished is for this user only.
    assert_eq!(mode_of(&inside.join("p0")), 0o600);
}

#[test]
fn no_path_leads_into_a_staging_folder() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let name = std::str::from_utf8(staging.name()).unwrap();
    scratch.folder("a");
    scratch.folder(format!("a/{PLANTED}"));
    scratch.file("file", "");
    let is_refused = |result: io::Result<()>| {
        result.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput)
    };
    for path in [
        format!("{name}/p0"),
        format!("{name}/identity"),
        format!("{}/p0", name.to_uppercase()),
        format!("{name}./p0"),
        format!("a/{PLANTED}/p0"),
        format!("a/{PLANTED}"),
    ] {
        let (path, meta) = (rel(&path), meta(0o600));
        for result in [
            destination.put_new(&staging, &path, b"x", &meta),
            destination.put_small(&staging, &path, b"x", &meta),
            destination.symlink(&staging, &path, b"x", &Meta::default()),
            destination.make_folder(&path, true).map(drop),
            destination
                .hardlink(&staging, &path, &rel("file"))
                .map(drop),
            destination.hardlink(&staging, &rel("new"), &path).map(drop),
            destination.look(&path).map(drop),
            destination.open_existing(&path).map(drop),
            destination.remove(&path),
        ] {
            assert!(is_refused(result), "{path}");
        }
    }
    // Nor does what the other side says that it copied, where names are deleted that the source has not.
    let mut deleted = 0;
    let flow = destination.delete_extras(&[rel(name)], &|_| false, &Filter::new(), &mut |_| {
        deleted += 1;
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue() && deleted == 0);
    // Where a file system has another name for it.
    let top = destination.written().unwrap();
    let inside = top.open(name.as_bytes(), READ_FOLDER).unwrap();
    let stat = fstat(&inside).unwrap();
    assert!(is_refused(
        destination
            .folders
            .keep(b"GOODPU~1", inside, &stat)
            .map(drop)
    ));
    staging.discard().unwrap();
}

#[test]
fn what_took_the_place_of_a_name_that_was_looked_at_gets_nothing_of_it() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    let staging = destination.staging(&[1; 16]).unwrap();
    let other = scratch.file("other", "secret");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    let time = Stamp {
        seconds: 1_000,
        nanoseconds: 0,
    };
    let wanted = Meta {
        mode: Some(0o645),
        modified: Some(time),
        ..Meta::default()
    };
    scratch.file("file", "bytes");
    let stands = look(&destination, "file");
    fs::rename(&other, scratch.at("file")).unwrap();
    assert!(is_replaced(destination.amend(
        &rel("file"),
        &stands,
        &wanted
    )));
    assert!(is_replaced(destination.copy_of(
        &staging,
        &rel("copy"),
        &rel("file"),
        &stands
    )));
    assert_eq!(mode_of(&scratch.at("file")), 0o600);
    assert!(!scratch.at("copy").exists());

    symlink("nowhere", scratch.at("link")).unwrap();
    let stands = look(&destination, "link");
    let before = look(&destination, "file").modified;
    fs::rename(scratch.at("file"), scratch.at("link")).unwrap();
    assert!(is_replaced(destination.amend(
        &rel("link"),
        &stands,
        &wanted
    )));
    assert_eq!(look(&destination, "link").modified, before);

    destination.make_folder(&rel("folder"), true).unwrap();
    scratch.folder("private");
    fs::set_permissions(scratch.at("private"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(scratch.at("folder"), scratch.at("moved")).unwrap();
    fs::rename(scratch.at("private"), scratch.at("folder")).unwrap();
    assert!(is_replaced(
        destination.finish_folder(&rel("folder"), &meta(0o755))
    ));
    assert_eq!(mode_of(&scratch.at("folder")), 0o700);
    staging.discard().unwrap();
}

#[test]
fn what_took_the_place_of_a_new_file_beside_its_own_is_not_placed() {
    let scratch = Scratch::new();
    let destination = open(scratch.path());
    destination.has_no_nameless.store(true, Ordering::Relaxed);
    let top = destination.written().unwrap();
    let (folder, _) = destination.folder_of(top, &rel("x")).unwrap();
    scratch.file("planted", "other");
    let put = destination.put_beside(&folder, b"x", &meta(0o600), &|_| {
        let new = tree(scratch.path());
        let new = new.iter().find(|name| name.starts_with(".goodput-new-"));
        fs::rename(scratch.at("planted"), scratch.at(new.unwrap()))
    });
    assert!(is_replaced(put));
    assert_eq!(tree(scratch.path()), [""; 0]);
}
