//! Where the sockets of this user's labs are, and which of them are alive.
//!
//! A lab is `NAME.sock` in a directory that only its user may enter, within one where nobody else can
//! put another directory in its place. Names are given and dead sockets
//! swept under a lock on the directory, which the kernel releases when its holder ends. A socket
//! is dead when nobody listens behind it: the daemon was killed.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sys::control::{Connection, Listener};
use sys::folder::Folder;
use sys::userns;

use fault::Failure;

/// A lab that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    pub(crate) socket: PathBuf,
}

/// A name of a lab, taken. The socket file goes with it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) listener: Listener,
    socket: PathBuf,
}

impl Claim {
    /// Takes `name` in a directory that [`for_new`] gave; where it is in use another like it, unless
    /// `exactly`.
    pub(crate) fn new(directory: &Path, name: &str, exactly: bool) -> Result<Self, Failure> {
        let _lock = lock(directory)?;
        let taken = sweep_locked(directory);
        let is_taken = |name: &str| taken.iter().any(|found| found.name == name);
        let numbered = (2..=NAMES_MAX).map(|n| format!("{name}-{n}"));
        let free = std::iter::once(name.to_owned())
            .chain(numbered)
            .take(if exactly { 1 } else { NAMES_MAX })
            .find(|name| !is_taken(name));
        let Some(name) = free else {
            return Err(Failure::usage(format!(
                "a lab named '{name}' is up; choose another --name, or end it: goodput lab down {name}"
            )));
        };
        let socket = directory.join(format!("{name}{SUFFIX}"));
        let listener = Listener::bind(&socket).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidInput => Failure::usage(format!(
                "{} is too long for the name of a socket; choose a shorter --name",
                socket.display()
            )),
            _ => here(&socket, &e),
        })?;
        Ok(Self {
            name,
            listener,
            socket,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Nobody can have taken the name: this process still listens.
        let _ = fs::remove_file(&self.socket);
    }
}

/// Whether a name can be that of a lab: it becomes a file's name, and a word on command lines.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let first = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    if first && name.len() <= NAME_BYTES_MAX && name.chars().all(legal) {
        Ok(())
    } else {
        Err(Failure::usage(format!(
            "a lab cannot be named '{name}': expected 1 to {NAME_BYTES_MAX} letters, digits and \
             -_. behind a letter or digit"
        )))
    }
}

/// A name made of anything.
pub fn name_of(text: &str) -> String {
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = text.chars().map(legal).take(NAME_BYTES_MAX - 4).collect();
    let name = name.trim_start_matches(['-', '_', '.']);
    if name.is_empty() { "lab" } else { name }.to_owned()
}

/// The directory for a new lab, made if need be.
pub fn for_new() -> Result<PathBuf, Failure> {
    made(candidates())
}

/// The directory for what every later process of this user must find, whatever its environment.
pub(crate) fn for_records() -> Result<PathBuf, Failure> {
    made(fixed().into())
}

fn made(directories: Vec<PathBuf>) -> Result<PathBuf, Failure> {
    for directory in directories {
        let Some((within, name)) = safe_within(&directory) else {
            tracing::debug!(
                "{}: others could put it aside; not used",
                directory.display()
            );
            continue;
        };
        match within.make(name, 0o700) {
            Ok(_) => return Ok(directory),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return match open_in(&within, name) {
                    Ok(_) => Ok(directory),
                    Err(problem) => Err(Failure::here(format!(
                        "{} cannot hold the sockets of labs: {problem}; remove it, or set \
                         XDG_RUNTIME_DIR to a directory of yours",
                        directory.display()
                    ))),
                };
            }
            // Not there, not ours, not writable: the next one.
            Err(_) => {}
        }
    }
    Err(Failure::here(
        "there is no place for the sockets of labs: set XDG_RUNTIME_DIR to a directory of yours",
    ))
}

/// The labs that are up, by name. Sockets of dead ones are removed.
pub fn sweep() -> Vec<Found> {
    let mut found = Vec::new();
    for directory in existing() {
        match lock(&directory) {
            Ok(_lock) => found.extend(sweep_locked(&directory)),
            Err(failure) => tracing::warn!("{failure}"),
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The directories that there are and that can be trusted.
fn existing() -> Vec<PathBuf> {
    trusted(candidates())
}

/// Those where [`for_records`] may have put something.
pub(crate) fn existing_for_records() -> Vec<PathBuf> {
    trusted(fixed().into())
}

fn trusted(mut directories: Vec<PathBuf>) -> Vec<PathBuf> {
    directories.retain(|directory| {
        let within = safe_within(directory).filter(|_| fs::symlink_metadata(directory).is_ok());
        let Some((within, name)) = within else {
            return false;
        };
        if let Err(problem) = open_in(&within, name) {
            tracing::warn!("{}: {problem}; not looked into", directory.display());
            return false;
        }
        true
    });
    directories
}

/// The lab of that name, or the only one.
pub fn find(name: Option<&str>) -> Result<Found, Failure> {
    let mut labs = sweep();
    let names = |labs: &[Found]| {
        let names: Vec<&str> = labs.iter().map(|l| l.name.as_str()).collect();
        names.join(", ")
    };
    if labs.is_empty() {
        return Err(Failure::usage(
            "no lab is up; start one: goodput lab up PATH",
        ));
    }
    match name {
        Some(name) => match labs.iter().position(|l| l.name == name) {
            Some(at) => Ok(labs.swap_remove(at)),
            None => Err(Failure::usage(format!(
                "there is no lab '{name}'; up are: {}{}",
                names(&labs),
                crate::path::hint::did_you_mean(name, labs.iter().map(|l| l.name.as_str()))
            ))),
        },
        None if labs.len() == 1 => Ok(labs.swap_remove(0)),
        None => Err(Failure::usage(format!(
            "several labs are up: {}; say which",
            names(&labs)
        ))),
    }
}

/// The lab of that name, for what ends it: which one is always said.
///
/// # Errors
/// A usage failure without a name, with the names of the labs that are up.
pub fn named(name: Option<&str>) -> Result<Found, Failure> {
    let found = find(name)?;
    match name {
        Some(_) => Ok(found),
        None => Err(Failure::usage(format!(
            "which lab shall end? Up is {0}: goodput lab down {0}, or --all",
            found.name
        ))),
    }
}

/// Where the directory may be, the best place first.
fn candidates() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|dir| dir.is_absolute());
    runtime
        .map(|dir| dir.join("goodput"))
        .into_iter()
        .chain(fixed())
        .collect()
}

/// The places that do not hang on the environment.
fn fixed() -> [PathBuf; 2] {
    let user = userns::user_id_outside();
    ["/run", "/tmp"].map(|within| Path::new(within).join(format!("goodput-{user}")))
}

/// What a directory lies in, and its name there, where nobody but root and this user can put something else in its place:
/// it is root's or this user's, and where a group or all may write, each removes only their own (sticky). Root with another
/// user's `XDG_RUNTIME_DIR` does not use it.
fn safe_within(directory: &Path) -> Option<(Folder, &OsStr)> {
    let (within, name) = Folder::of(directory).ok()?;
    let about = within.metadata().ok()?;
    // In a user namespace root has no number; /tmp is root's.
    let is_owner_trusted =
        [0, userns::user_id()].contains(&about.uid()) || within.path() == Path::new("/tmp");
    let is_for_others = about.mode() & 0o022 != 0;
    let is_safe = is_owner_trusted && (!is_for_others || about.mode() & STICKY != 0);
    is_safe.then_some((within, name))
}

/// Opens a directory that only this user may enter; else says why it is not to be trusted: others
/// could have put sockets there.
fn open_in(within: &Folder, name: &OsStr) -> Result<File, String> {
    let file = within.directory(name).map_err(|e| match e.kind() {
        io::ErrorKind::NotADirectory => "it is not a directory".to_owned(),
        _ => e.to_string(),
    })?;
    let about = file.metadata().map_err(|e| e.to_string())?;
    if about.uid() != userns::user_id() {
        return Err(format!("it belongs to user {}", about.uid()));
    }
    let mode = about.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("others may enter it (mode {mode:o}, expected 700)"));
    }
    Ok(file)
}

/// Opens a directory that [`safe_within`] and [`open_in`] find safe.
fn open(directory: &Path) -> Result<File, String> {
    let (within, name) = safe_within(directory).ok_or("others could put it aside")?;
    open_in(&within, name)
}

/// Held until dropped; not to be taken twice by one process.
pub(crate) fn lock(directory: &Path) -> Result<File, Failure> {
    let file =
        open(directory).map_err(|e| Failure::here(format!("{}: {e}", directory.display())))?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(LOCK_PAUSE);
            }
            Err(e) => return Err(here(directory, &e.into())),
        }
    }
}

fn sweep_locked(directory: &Path) -> Vec<Found> {
    let mut alive = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return alive;
    };
    for entry in entries.flatten() {
        let socket = entry.path();
        let file = entry.file_name();
        let name = file.to_str().and_then(|f| f.strip_suffix(SUFFIX));
        let own = fs::symlink_metadata(&socket)
            .is_ok_and(|about| about.file_type().is_socket() && about.uid() == userns::user_id());
        let Some(name) = name.filter(|_| own) else {
            continue;
        };
        match Connection::open(&socket) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&socket);
            }
            _ => alive.push(Found {
                name: name.to_owned(),
                socket,
            }),
        }
    }
    alive
}

fn here(path: &Path, error: &io::Error) -> Failure {
    Failure::here(format!("{}: {error}", path.display()))
}

const SUFFIX: &str = ".sock";
/// Leaves room for a directory in the 108 bytes of a socket's path.
const NAME_BYTES_MAX: usize = 32;
const NAMES_MAX: usize = 1_000;
/// The mode's bit that lets each remove only his own (inode(7)).
const STICKY: u32 = 0o1000;
/// The lock is held for as long as it takes to connect to each socket.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use sys::folder::Scratch;

    #[test]
    fn a_name_is_a_word_and_no_path() {
        let long = "a".repeat(NAME_BYTES_MAX);
        for name in ["a", "two-into-one", "4x4_b.c", &long] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let longer = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["", ".", "..", "-a", ".a", "a/b", "a b", "ä", "a\0", &longer] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for text in ["../..", "", "my path", "ä", &longer, "--x"] {
            let name = name_of(text);
            assert!(check_name(&format!("{name}-999")).is_ok(), "{text}: {name}");
        }
    }

    #[test]
    fn only_a_directory_that_nobody_else_can_replace_or_enter_is_used() {
        let scratch = Scratch::new("place").unwrap();
        let root = scratch.path();
        let own = root.join("goodput");
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        for (mode, is_safe) in [
            (0o700, true),
            (0o755, true),
            (0o777, false),
            (0o775, false),
            (0o757, false),
            (0o1777, true),
            (0o1775, true),
        ] {
            set(root, mode).unwrap();
            assert_eq!(safe_within(&own).is_some(), is_safe, "{mode:o}");
            assert_eq!(open(&own).is_ok(), is_safe, "{mode:o}");
            assert_eq!(made(vec![root.join("new")]).is_ok(), is_safe, "{mode:o}");
            assert_eq!(
                fs::remove_dir(root.join("new")).is_ok(),
                is_safe,
                "{mode:o}"
            );
            assert_eq!(trusted(vec![own.clone()]).len(), usize::from(is_safe));
        }
        for (mode, is_sound) in [(0o700, true), (0o710, false), (0o701, false)] {
            set(&own, mode).unwrap();
            assert_eq!(open(&own).is_ok(), is_sound, "{mode:o}");
        }
        set(&own, 0o700).unwrap();
        let link = root.join("link");
        symlink(&own, &link).unwrap();
        assert_eq!(open(&link).unwrap_err(), "it is not a directory");
        if userns::user_id() == 0 && chown(root, Some(65_534), None).is_ok() {
            assert!(safe_within(&own).is_none(), "another user's");
            assert!(made(vec![root.join("new")]).is_err());
            assert!(!root.join("new").exists());
            chown(root, Some(0), None).unwrap();
            chown(&own, Some(65_534), None).unwrap();
            assert_eq!(open(&own).unwrap_err(), "it belongs to user 65534");
        }
    }
}
