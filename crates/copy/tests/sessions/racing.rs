//! Copies of the superuser into a folder that another user owns, who exchanges names in it all the time.

use std::env;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use copy::destination::Destination;
use copy::{Meta, RelPath};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::common::*;

/// A user whom nobody else is.
const OTHER: u32 = 54_321;
const COPIES: usize = 200;
/// Every so many of them is a whole session, which takes 40 times as long.
const SESSION_EACH: usize = 20;
/// What the other user gets to act between two steps of a copy.
const MOMENT: Duration = Duration::from_micros(200);
/// How long the other user goes on at most.
const LIMIT: Duration = Duration::from_secs(120);
/// Names in the destination folder that the other user has for folders of its own.
const OWN: [&str; 4] = ["own0", "own1", "own2", "own3"];
const SECRET: &[u8] = b"the superuser's bytes";
const PLANTED: &[u8] = b"the other user's bytes";
/// Says where the other user finds the folder.
const FOLDER: &str = "GOODPUT_TEST_RACED_FOLDER";

/// A file with the secret in each part of it.
fn secret(size: usize, copy: usize) -> Vec<u8> {
    let line = [SECRET, format!(" {copy}\n").as_bytes()].concat();
    let mut bytes = line.repeat(size / line.len() + 1);
    bytes.truncate(size);
    bytes
}

/// What one copy has to bring, all of mode 0600.
fn files(copy: usize) -> [(&'static str, Vec<u8>); 4] {
    [
        // In the staging folder, block by block.
        ("long", secret(400_000, copy)),
        // There, and over what stands.
        ("over", secret(900 + copy, copy)),
        ("new", secret(500, copy)),
        ("sub/below", secret(500, copy)),
    ]
}

fn write_source(from: &Path, copy: usize) {
    fs::create_dir_all(from.join("sub")).unwrap();
    for (name, bytes) in files(copy) {
        let path = from.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    if copy == 0 {
        symlink("nowhere", from.join("link")).unwrap();
    }
}

/// A copy as a session does it, without what goes over the network.
fn place_all(to: &Path, copy: usize) -> io::Result<()> {
    let path = |name: &str| RelPath::new(name.as_bytes()).map_err(io::Error::other);
    let meta = Meta {
        mode: Some(0o600),
        ..Meta::default()
    };
    let (destination, _) = Destination::resolve(to, false, false)?;
    let staging = destination.staging(&[0; 16])?;
    thread::sleep(MOMENT);
    destination.make_folder(&path("sub")?, true)?;
    for (number, (name, bytes)) in (0..).zip(files(copy)) {
        match name {
            "long" => {
                let size = bytes.len() as u64;
                let partial = staging.partial(number, size, size, true)?;
                let (first, second) = bytes.split_at(bytes.len() / 2);
                partial.file().write_all_at(first, 0)?;
                thread::sleep(MOMENT);
                partial.file().write_all_at(second, first.len() as u64)?;
                destination.commit(&partial, &path(name)?, &meta, false)?;
            }
            "over" => destination.put_small(&staging, &path(name)?, &bytes, &meta)?,
            _ => destination.put_new(&staging, &path(name)?, &bytes, &meta)?,
        }
    }
    thread::sleep(MOMENT);
    let folder = Meta {
        mode: Some(0o755),
        ..Meta::default()
    };
    destination.finish_folder(&path("sub")?, &folder)?;
    staging.discard()
}

#[test]
fn a_racing_user_neither_reads_nor_replaces_what_the_superuser_copies() {
    if !rustix::process::geteuid().is_root() {
        testing::skipped("needs root");
        return;
    }
    let place = Place::new();
    let (from, to) = (place.from(), place.to());
    fs::create_dir(&to).unwrap();
    // The source's too: a copy gives the destination what belongs to it.
    for folder in [&from, &to] {
        if let Err(error) = chown(folder, Some(OTHER), Some(OTHER)) {
            testing::skipped(format_args!("needs root that gives files away: {error}"));
            return;
        }
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // The same program, as the other user: no path leads that user to it, but what /proc shows does.
    let racer = Command::new("/proc/self/exe")
        .args(["--exact", "racing::other_user", "--ignored", "--nocapture"])
        .env(FOLDER, &to)
        .uid(OTHER)
        .gid(OTHER)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let racer = match racer {
        Ok(racer) => racer,
        Err(error) => {
            testing::skipped(format_args!(
                "needs root that becomes another user: {error}"
            ));
            return;
        }
    };
    let since = Instant::now();
    while !to.join("ready").exists() {
        assert!(since.elapsed() < LIMIT, "the other user never began");
        thread::sleep(Duration::from_millis(1));
    }
    let session = Session {
        patience: Duration::from_secs(5),
        ..Session::default()
    };
    let (mut whole, mut wrong) = (0, Vec::new());
    for copy in 0..COPIES {
        write_source(&from, copy);
        for (name, _) in files(copy).iter().filter(|(name, _)| *name != "over") {
            let _ = fs::remove_file(to.join(name));
        }
        let received = match copy % SESSION_EACH {
            0 => session
                .run(&from, &to)
                .1
                .map(drop)
                .map_err(|e| e.to_string()),
            _ => place_all(&to, copy).map_err(|error| error.to_string()),
        };
        match &received {
            Ok(()) => whole += 1,
            Err(error) => println!("copy {copy}: {error}"),
        }
        for (name, bytes) in files(copy) {
            // None of these names is ever exchanged, so what has one was placed there by a copy.
            let Ok(there) = fs::read(to.join(name)) else {
                if received.is_ok() {
                    wrong.push(format!("copy {copy}: {name} is not there"));
                }
                continue;
            };
            let stat = fs::metadata(to.join(name)).unwrap();
            let is_older = received.is_err() && there.starts_with(SECRET);
            if (there != bytes && !is_older) || stat.uid() != 0 || stat.mode() & 0o7777 != 0o600 {
                wrong.push(format!("copy {copy}: {name} is not as the source has it"));
            }
        }
        if !wrong.is_empty() {
            break;
        }
    }
    fs::write(to.join("stop"), "").unwrap();
    let said = racer.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    println!("{whole} of {COPIES} copies were whole; the other user: {said}");
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(!said.contains("READ"), "{said}");
    let is_raced = said.contains("exchanged") && !said.contains("exchanged 0 times");
    assert!(is_raced, "{said}");
    assert!(whole > 0, "no copy came through");
}

/// The other user. Exchanges every name of a copy's own with one of a folder of its own, over and over, reads what it can and
/// puts its own bytes in the place of the copy's.
#[test]
#[ignore = "the other user of the test above, which starts it"]
fn other_user() {
    let Some(folder) = env::var_os(FOLDER) else {
        testing::unneeded("nobody started it as the other user");
        return;
    };
    env::set_current_dir(folder).unwrap();
    // As an earlier attempt at the same copy would have left it.
    plant(".goodput-part-00000000000000ee");
    OWN.iter().for_each(|name| plant(name));
    fs::write("ready", "").unwrap();
    let (since, mut exchanged, mut turn) = (Instant::now(), 0_u64, 0);
    while since.elapsed() < LIMIT && !Path::new("stop").exists() {
        for entry in fs::read_dir(".").unwrap().flatten() {
            let name = entry.file_name();
            if !name.as_encoded_bytes().starts_with(b".goodput-") {
                continue;
            }
            let is_others = entry.metadata().is_ok_and(|stat| stat.uid() != OTHER);
            turn += 1;
            let own = OWN[turn % OWN.len()];
            let done = renameat_with(CWD, &name, CWD, own, RenameFlags::EXCHANGE);
            exchanged += u64::from(is_others && done.is_ok());
            spy(Path::new(&name));
        }
        OWN.iter().for_each(|name| spy(Path::new(name)));
        for name in ["long", "over", "new", "sub/below"] {
            read(Path::new(name));
        }
        // What is the superuser's by now, and empty.
        for name in OWN {
            if fs::remove_dir(name).is_ok() || !Path::new(name).exists() {
                plant(name);
            }
        }
    }
    println!("exchanged {exchanged} times");
}

/// Makes a folder into which all may write, with what an unfinished copy has in its own.
fn plant(name: &str) {
    let path = Path::new(name);
    if fs::create_dir(path).is_ok() {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o777));
        let _ = fs::write(path.join("identity"), [0; 16]);
    }
}

/// Reads what is in a folder, and puts other bytes in its place.
fn spy(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        read(&path);
        let is_others = entry.metadata().is_ok_and(|stat| stat.uid() != OTHER);
        if is_others && path.file_name().is_some_and(|name| name != "identity") {
            let planted = folder.join("planted");
            let _ = fs::write(&planted, PLANTED).and_then(|()| fs::rename(&planted, &path));
        }
    }
}

/// Says so if a file can be read and is the superuser's.
fn read(path: &Path) {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(path)
        && file.take(1 << 16).read_to_end(&mut bytes).is_ok()
        && bytes.windows(SECRET.len()).any(|part| part == SECRET)
    {
        println!("READ {}", path.display());
    }
}
