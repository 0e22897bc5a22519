//! Small files: written in one go.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, CWD, OFlags, linkat, openat};
use rustix::io::Errno;

use crate::entry::{Meta, RelPath};
use crate::reason::is_not_kept;

use super::folders::Folder;
use super::placing::mode_of_new;
use super::{Destination, NOT_AS_WRITTEN, Staging, out_of_memory};

/// What of [`super::placing::NEW_FILE`] goes with a file that has no name.
const NAMELESS: OFlags = OFlags::TMPFILE.union(OFlags::CLOEXEC);

impl Destination {
    /// Puts a file of `bytes` at `path`, as [`Destination::commit`] does: for the many small ones.
    ///
    /// # Errors
    /// As [`Destination::commit`], and write(2).
    pub fn put_small(
        &self,
        staging: &Staging,
        path: &RelPath,
        bytes: &[u8],
        meta: &Meta,
    ) -> io::Result<()> {
        let meta = self.with_mode_of(path, meta)?;
        self.put_file(staging, path, &meta, &|file| self.fill(file, bytes, &meta))
    }

    /// As [`Destination::put_small`], where nothing stood at `path` a moment ago: written in its folder before it has a name
    /// (`O_TMPFILE` in open(2)), and linked there. That makes one name where a rename makes two and removes one, and takes no
    /// lock that all writers share (rename(2) between folders takes one for the whole file system).
    ///
    /// # Errors
    /// As [`Destination::put_small`].
    pub fn put_new(
        &self,
        staging: &Staging,
        path: &RelPath,
        bytes: &[u8],
        meta: &Meta,
    ) -> io::Result<()> {
        if !self.has_no_nameless.load(Ordering::Relaxed) {
            let (folder, name) = self.folder_of(self.written()?, path)?;
            if let Some(file) = self.nameless(&folder, meta)? {
                self.fill(&file, bytes, meta)?;
                match link(&file, &folder, name) {
                    Ok(()) => {
                        if !folder.is_on(staging.device()) {
                            self.keep_mount(&folder);
                        }
                        return Ok(());
                    }
                    // Something stands there by now, or the folder was moved or deleted.
                    Err(Errno::EXIST) => {}
                    Err(Errno::NOENT) if super::Folders::is_stale(&folder) => {}
                    Err(_) => self.has_no_nameless.store(true, Ordering::Relaxed),
                }
            }
        }
        self.put_small(staging, path, bytes, meta)
    }

    /// A file in `folder` that has no name yet; `None` where there can be none.
    pub(super) fn nameless(&self, folder: &Folder, meta: &Meta) -> io::Result<Option<File>> {
        let way = match self.reads_back {
            true => OFlags::RDWR,
            false => OFlags::WRONLY,
        };
        match openat(&folder.open, c".", NAMELESS | way, mode_of_new(meta)) {
            Ok(open) => Ok(Some(File::from(open))),
            Err(Errno::NOENT) => Ok(None),
            // Kernels and file systems that know no such files read it as the opening of a folder, or say so.
            Err(error) if error == Errno::ISDIR || is_not_kept(error) => {
                self.has_no_nameless.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a new file, reads it back where that was asked for, and gives it what belongs to it.
    fn fill(&self, mut file: &File, bytes: &[u8], meta: &Meta) -> io::Result<()> {
        file.write_all(bytes)?;
        if self.reads_back {
            out_of_memory(file)?;
            let mut there = vec![0; bytes.len()];
            file.read_exact_at(&mut there, 0)?;
            if there != bytes {
                return Err(io::Error::other(NOT_AS_WRITTEN));
            }
        }
        self.dress(file.as_fd(), meta)
    }
}

/// Gives a file its first name.
pub(super) fn link(file: &File, folder: &Folder, name: &[u8]) -> rustix::io::Result<()> {
    match linkat(file, c"", &folder.open, name, AtFlags::EMPTY_PATH) {
        // Before Linux 6.10 that takes a right over all files (CAP_DAC_READ_SEARCH); what /proc shows of it does not.
        Err(Errno::NOENT) => {
            let shown = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, shown, &folder.open, name, AtFlags::SYMLINK_FOLLOW)
        }
        other => other,
    }
}
