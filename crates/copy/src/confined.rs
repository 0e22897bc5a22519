//! A folder that whoever asks does not get out of: what a daemon serves.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::beneath::{READ_FOLDER, STEP, Top, may_be_staging};
use crate::entry::RelPath;

/// A folder below which everything is that is asked for.
#[derive(Debug)]
pub struct Confined(Top);

/// A path that somebody asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Below the folder; the top is the folder itself.
    pub(crate) path: RelPath,
    /// What is in it is meant: it ends with a slash or a dot, or is the folder itself.
    pub(crate) is_contents: bool,
}

impl Asked {
    /// Reads a path; a slash in front is the served folder's.
    ///
    /// # Errors
    /// `PermissionDenied` for a way up, or into unfinished files; `InvalidInput` for what is no path.
    pub(crate) fn read(bytes: &[u8]) -> io::Result<Self> {
        let mut path = RelPath::top();
        for name in bytes.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return Err(denied("a path does not lead out of what is served")),
                name if may_be_staging(name) => {
                    return Err(denied("unfinished files are their copy's own"));
                }
                name => {
                    path = path
                        .join(name)
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
                }
            }
        }
        let last = bytes.rsplit(|byte| *byte == b'/').next();
        let is_contents = path.is_top() || matches!(last, Some(b"" | b"."));
        Ok(Self { path, is_contents })
    }
}

impl Confined {
    /// Opens the folder that is served.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self(Top::new(openat(
            CWD,
            folder,
            READ_FOLDER,
            Mode::empty(),
        )?)))
    }

    /// Opens a folder below; no link is followed on the way.
    pub(crate) fn folder(&self, path: &RelPath, flags: OFlags) -> io::Result<OwnedFd> {
        self.0.open(path.as_bytes(), flags)
    }

    /// The folder a path is in, as a starting point, and its name there.
    ///
    /// # Errors
    /// `EISDIR` for the top.
    pub(crate) fn above<'a>(&self, path: &'a RelPath) -> io::Result<(OwnedFd, &'a [u8])> {
        let (above, name) = path.split().ok_or(Errno::ISDIR)?;
        Ok((self.folder(&above, STEP)?, name))
    }
}

fn denied(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_or_refused() {
        let read = |text: &str| {
            let asked = Asked::read(text.as_bytes()).unwrap();
            (asked.path.to_string(), asked.is_contents)
        };
        assert_eq!(read("a/b"), ("a/b".to_owned(), false));
        assert_eq!(read("/a//b/"), ("a/b".to_owned(), true));
        assert_eq!(read("a/."), ("a".to_owned(), true));
        assert!(read("").1 && read(".").1 && read("/").1);
        let staging = ".goodput-part-0123456789abcdef/p0";
        let folded = "a/.GOODPUT-part-0123456789ABCDEF/p0";
        for text in ["..", "a/../b", "../etc", "a/..", staging, folded, "a\0b"] {
            assert!(Asked::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
