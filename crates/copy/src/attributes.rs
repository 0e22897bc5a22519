//! Extended attributes: which are copied, reading and setting them (xattr(7)).
//!
//! Copied: `user.*`, the access control lists, and for the superuser `trusted.*` and `security.capability`. Left out:
//! what a host gives its own files (labels of SELinux and Smack, signatures of IMA and EVM) and what overlayfs keeps in
//! `trusted.overlay.*`, by which a file from outside could stand for another of this host. Of symbolic links, on which only
//! the superuser may set any, `trusted.*` is copied.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use rustix::fs::{
    XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, lgetxattr, llistxattr, setxattr,
};
use rustix::io::Errno;

use crate::entry::Attribute;
use crate::reason::is_not_kept;

/// Names and values, as in [`crate::Meta::attributes`].
pub(crate) type Attributes = Vec<Attribute>;

/// Attributes that were read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) attributes: Attributes,
    /// Nothing of what users set is left out.
    pub(crate) has_all: bool,
}

/// The most bytes of names and values of one file. ext4 stores 4 KiB, XFS more than anyone uses.
pub const ATTRIBUTES_BYTES_MOST: usize = 128 << 10;
/// The longest list of names (`XATTR_LIST_MAX` in include/uapi/linux/limits.h), and value (`XATTR_SIZE_MAX`).
const LIST_BYTES_MOST: usize = 64 << 10;
/// What a list has room for at first: nearly all are shorter.
const LIST_FIRST: usize = 1 << 10;
/// `ENOENT`: of the file, and no word about the call.
const NOT_THERE: i32 = Errno::NOENT.raw_os_error();
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Whether an attribute of this name is copied.
pub(crate) fn is_copied(name: &[u8], superuser: bool) -> bool {
    if name.len() > 255 || name.contains(&0) {
        return false;
    }
    let outside = superuser
        && (name == b"security.capability"
            || (name.starts_with(b"trusted.") && !name.starts_with(b"trusted.overlay.")));
    name.starts_with(b"user.") || name == ACCESS || name == DEFAULT || outside
}

/// Whether an attribute of this name is what users set: it goes where the source has it no more.
pub(crate) fn is_of_users(name: &[u8]) -> bool {
    is_copied(name, false)
}

/// Whether an attribute of this name is copied of a symbolic link.
pub(crate) fn is_of_link(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") && is_copied(name, true)
}

/// Reads the attributes of files, with buffers of its own.
#[derive(Debug)]
pub(crate) struct Reader {
    list: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
    superuser: bool,
    by_name: bool,
    /// The kernel tells names without the way through `/proc`, which costs more than the rest.
    is_direct: bool,
}

impl Reader {
    pub(crate) fn new(superuser: bool) -> Self {
        // Not everywhere is there a /proc.
        let by_name = rustix::fs::stat("/proc/self/fd").is_ok();
        Self {
            list: Vec::new(),
            value: Vec::new(),
            path: Vec::new(),
            superuser,
            by_name,
            is_direct: true,
        }
    }

    /// Whether [`Reader::of_name`] can be used here.
    pub(crate) fn by_name(&self) -> bool {
        self.by_name
    }

    /// Attributes of what `open` is.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] over [`ATTRIBUTES_BYTES_MOST`]; as flistxattr(2).
    pub(crate) fn of(&mut self, open: BorrowedFd<'_>) -> io::Result<Read> {
        self.read(
            |list| flistxattr(open, list),
            |name, value| fgetxattr(open, name, value),
        )
    }

    /// Attributes of the file `name` in `folder`, without opening it: through `/proc`, links not followed.
    ///
    /// # Errors
    /// As [`Reader::of`].
    pub(crate) fn of_name(&mut self, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Read> {
        if self.is_direct {
            self.list.resize(LIST_BYTES_MOST, 0);
            match sys::attribute::list_at(folder, name, &mut self.list) {
                Ok(0) => return Ok(NONE),
                // There are some; or what is wrong is told again.
                Ok(_) => {}
                Err(error) => self.is_direct = error.raw_os_error() == Some(NOT_THERE),
            }
        }
        let mut text = String::with_capacity(32);
        // Writing to a string cannot fail.
        let _ = write!(text, "/proc/self/fd/{}/", folder.as_raw_fd());
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        path.extend_from_slice(text.as_bytes());
        path.extend_from_slice(name);
        let read = self.read(
            |list| llistxattr(&path, list),
            |name, value| lgetxattr(&path, name, value),
        );
        self.path = path;
        read
    }

    fn read(
        &mut self,
        names: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
        value: impl Fn(&CStr, &mut [u8]) -> rustix::io::Result<usize>,
    ) -> io::Result<Read> {
        self.list.resize(LIST_BYTES_MOST, 0);
        let length = match names(&mut self.list) {
            Ok(0) => return Ok(NONE),
            Ok(length) => length,
            // A file system that has none says nothing of what somebody took away.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOENT) => return Ok(Read::default()),
            Err(error) => return Err(error.into()),
        };
        self.value.resize(LIST_BYTES_MOST, 0);
        let mut read = NONE;
        let mut bytes = 0;
        for name in self.list[..length].split_inclusive(|byte| *byte == 0) {
            let Ok(terminated) = CStr::from_bytes_with_nul(name) else {
                continue;
            };
            let name = terminated.to_bytes();
            if !is_copied(name, self.superuser) {
                continue;
            }
            let length = match value(terminated, &mut self.value) {
                Ok(length) => length,
                // Gone meanwhile.
                Err(Errno::NODATA) => continue,
                // Not ours to read.
                Err(Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    read.has_all &= !is_of_users(name);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            bytes += name.len() + length;
            if bytes > ATTRIBUTES_BYTES_MOST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let value = self.value[..length].into();
            read.attributes.push((name.into(), value));
        }
        Ok(read)
    }
}

/// There are none.
const NONE: Read = Read {
    attributes: Vec::new(),
    has_all: true,
};

/// What became of attributes that were to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// Names not set for want of a right.
    pub(crate) refused: u64,
    /// Names the file system has no room or no word for.
    pub(crate) unsupported: u64,
    /// An access control list was set: the mode has changed with it.
    pub(crate) list: bool,
}

/// Whether [`set`] sets an attribute of this name.
pub(crate) fn is_set(name: &[u8], superuser: bool, trusted: bool) -> bool {
    let outside = name.starts_with(b"security.") || name.starts_with(b"trusted.");
    is_copied(name, superuser) && (trusted || !outside)
}

/// Sets `attributes` on what `open` is; `trusted` allows what makes a program more than its owner lets it be.
///
/// # Errors
/// As fsetxattr(2), but for what [`Set`] counts.
pub(crate) fn set(
    open: impl AsFd,
    attributes: &Attributes,
    superuser: bool,
    trusted: bool,
) -> io::Result<Set> {
    let is_allowed = |name: &[u8]| is_set(name, superuser, trusted);
    set_each(attributes, is_allowed, |name, value| {
        fsetxattr(&open, name, value, XattrFlags::empty())
    })
}

/// Removes what users set on what `open` is and `kept` has not: how many names were not removed for want of a right, and
/// whether an access control list was, in [`Set`].
///
/// # Errors
/// As flistxattr(2) and fremovexattr(2), but for those.
pub(crate) fn remove_others(open: impl AsFd, kept: &Attributes) -> io::Result<Set> {
    let mut told = Set::default();
    let mut list = vec![0; LIST_FIRST];
    let length = match flistxattr(&open, &mut list[..]) {
        Err(Errno::RANGE) => {
            list.resize(LIST_BYTES_MOST, 0);
            flistxattr(&open, &mut list[..])
        }
        other => other,
    };
    let length = match length {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        Err(error) => return Err(error.into()),
    };
    for name in list[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(terminated) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        let name = terminated.to_bytes();
        if !is_of_users(name) || kept.iter().any(|(kept, _)| **kept == *name) {
            continue;
        }
        match fremovexattr(&open, terminated) {
            Ok(()) => told.list |= *name == *ACCESS,
            Err(Errno::NODATA) => {}
            Err(error) if is_not_kept(error) => told.refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(told)
}

/// Sets `attributes` on a symbolic link that is open as a place, if they are `trusted`.
///
/// # Errors
/// As [`set`].
pub(crate) fn set_on_link(
    link: impl AsFd,
    attributes: &Attributes,
    trusted: bool,
) -> io::Result<Set> {
    // What /proc shows leads to the link itself, and no further.
    let shown = format!("/proc/self/fd/{}", link.as_fd().as_raw_fd());
    let is_allowed = |name: &[u8]| trusted && is_of_link(name);
    set_each(attributes, is_allowed, |name, value| {
        setxattr(&shown, name, value, XattrFlags::empty())
    })
}

fn set_each(
    attributes: &Attributes,
    is_allowed: impl Fn(&[u8]) -> bool,
    set: impl Fn(&[u8], &[u8]) -> rustix::io::Result<()>,
) -> io::Result<Set> {
    let mut told = Set::default();
    for (name, value) in attributes {
        if !is_allowed(name) {
            told.refused += 1;
            continue;
        }
        match set(name, value) {
            Ok(()) => told.list |= **name == *ACCESS,
            Err(Errno::PERM | Errno::ACCESS) => told.refused += 1,
            Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) => told.unsupported += 1,
            Err(error) if is_not_kept(error) => told.unsupported += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_host_is_left_there() {
        for (name, everyone, superuser) in [
            (&b"user.note"[..], true, true),
            (ACCESS, true, true),
            (DEFAULT, true, true),
            (b"security.capability", false, true),
            (b"security.selinux", false, false),
            (b"security.ima", false, false),
            (b"trusted.md5", false, true),
            (b"trusted.overlay.redirect", false, false),
            (b"system.other", false, false),
            (b"user.a\0b", false, false),
        ] {
            let text = name.escape_ascii();
            assert_eq!(
                (is_copied(name, false), is_copied(name, true)),
                (everyone, superuser),
                "{text}"
            );
        }
    }
}
