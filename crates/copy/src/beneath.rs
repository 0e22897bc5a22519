//! Opening what lies below one folder, and never anything else.
//!
//! A path below the top is resolved by the kernel in one call that refuses `..`, symbolic links and the links of
//! `/proc` (openat2(2), Linux 5.6). Where that call is missing, every folder on the way is opened by its own name
//! without following links. Mount points below the top are part of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2};
use rustix::io::Errno;

use crate::entry::Stamp;

/// How the names of folders with unfinished files begin; 16 hexadecimal digits follow.
pub(crate) const STAGING_PREFIX: &[u8] = b".goodput-part-";
/// How the names begin under which a file waits beside its place for the moment of a rename; 16 digits follow.
pub(crate) const BESIDE_PREFIX: &[u8] = b".goodput-new-";

/// Flags of a folder that serves as a starting point only: needs no right to read it.
pub(crate) const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Flags of a folder whose names are read.
pub(crate) const READ_FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Flags of a file that is read: one that turned into a pipe meanwhile blocks nobody.
pub(crate) const READ_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// How often a resolution is tried that a rename elsewhere disturbed (`EAGAIN` in openat2(2)).
const TRIES: usize = 32;

/// A folder, and what is below it.
#[derive(Debug)]
pub(crate) struct Top {
    folder: OwnedFd,
    in_one_call: bool,
}

impl Top {
    pub(crate) fn new(folder: OwnedFd) -> Self {
        let probe = openat2(&folder, c".", STEP, Mode::empty(), beneath());
        // Containers of old refuse what they do not know with EPERM.
        let in_one_call = !matches!(probe, Err(Errno::NOSYS | Errno::PERM));
        Self {
            folder,
            in_one_call,
        }
    }

    #[cfg(test)]
    pub(crate) fn step_by_step(folder: OwnedFd) -> Self {
        Self {
            folder,
            in_one_call: false,
        }
    }

    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Opens `path`, a [`crate::RelPath`]'s bytes; no link is followed, the last name's neither.
    ///
    /// # Errors
    /// `ELOOP` or `ENOTDIR` for a link on the way; as open(2).
    pub(crate) fn open(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if path.is_empty() {
            return Ok(openat(&self.folder, c".", flags, Mode::empty())?);
        }
        if self.in_one_call {
            for _ in 0..TRIES {
                match openat2(&self.folder, path, flags, Mode::empty(), beneath()) {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    other => return Ok(other?),
                }
            }
        }
        self.open_by_steps(path, flags)
    }

    fn open_by_steps(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let mut at: Option<OwnedFd> = None;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            if matches!(name, b"" | b"." | b"..") {
                return Err(Errno::XDEV.into());
            }
            let here = at.as_ref().map_or_else(|| self.folder.as_fd(), AsFd::as_fd);
            let step = match names.peek() {
                Some(_) => STEP | OFlags::NOFOLLOW,
                None => flags,
            };
            at = Some(openat(here, name, step, Mode::empty())?);
        }
        at.ok_or_else(|| Errno::NOENT.into())
    }
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

/// Whether a folder of this name holds unfinished files of some copy.
pub(crate) fn is_staging(name: &[u8]) -> bool {
    has_digits_after(name, STAGING_PREFIX)
}

/// Whether a name on the path would be taken for a folder of unfinished files by some file system: they may fold letters, and
/// ignore dots and blanks at the end (FAT) and letters without a look of their own (ext4's casefold).
pub(crate) fn leads_to_staging(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(may_be_staging)
}

/// As [`leads_to_staging`], of one name.
pub(crate) fn may_be_staging(name: &[u8]) -> bool {
    // Nearly all names: no letter of the prefix folds to or from another than its own capital.
    if !name.iter().any(|byte| matches!(byte, b'g' | b'G')) || name.len() < STAGING_PREFIX.len() {
        return false;
    }
    let plain = name.iter().filter(|byte| byte.is_ascii());
    let mut plain: Vec<u8> = plain.map(u8::to_ascii_lowercase).collect();
    while let Some(b'.' | b' ') = plain.last() {
        plain.pop();
    }
    is_staging(&plain)
}

fn has_digits_after(name: &[u8], prefix: &[u8]) -> bool {
    let digits = name.strip_prefix(prefix);
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// 16 hexadecimal digits that were not used before, for names that `O_EXCL` guards.
pub(crate) fn fresh_digits() -> String {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    // Every state of the standard library has keys of its own.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// What a name is.
pub(crate) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Length in bytes.
pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Bytes that are on the disk (stat(2): blocks of 512).
pub(crate) fn stored(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512)
}

/// Time of last modification.
pub(crate) fn modified(stat: &Stat) -> Stamp {
    stamp(stat.st_mtime, stat.st_mtime_nsec)
}

/// Time of last change of anything but access.
pub(crate) fn changed(stat: &Stat) -> Stamp {
    stamp(stat.st_ctime, stat.st_ctime_nsec)
}

fn stamp(seconds: i64, nanoseconds: impl TryInto<u32>) -> Stamp {
    Stamp {
        seconds,
        nanoseconds: nanoseconds.try_into().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_into_a_staging_folder_is_seen_in_any_spelling() {
        for path in [
            &b".goodput-part-0123456789abcdef"[..],
            b".goodput-part-0123456789abcdef/p0",
            b"a/b/.goodput-part-0123456789abcdef",
            b"a/.Goodput-PART-0123456789ABCDEF/identity",
            b".goodput-part-0123456789abcdef. .",
            ".good\u{200c}put-part-0123456789abcdef/p0".as_bytes(),
        ] {
            assert!(leads_to_staging(path), "{}", path.escape_ascii());
        }
        for path in [
            &b""[..],
            b".goodput-part-0123456789abcde",
            b".goodput-part-0123456789abcdef0",
            b"goodput-part-0123456789abcdef",
            b".goodput-part-/0123456789abcdef",
            b".goodput-new-0123456789abcdef",
            b"a/goodput.toml",
        ] {
            assert!(!leads_to_staging(path), "{}", path.escape_ascii());
        }
    }
}
