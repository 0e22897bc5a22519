//! How what is new comes to its name: made in the staging folder and moved there, or beside its place where a file system ends
//! between the two.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::beneath::{BESIDE_PREFIX, fresh_digits};
use crate::entry::{Meta, RelPath};

use super::folders::{Folder, Folders};
use super::{Destination, Staging, halves, is, same, small};

pub(super) const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Destination {
    /// How a new file is opened: to be read too where it is read back.
    fn new_file(&self) -> OFlags {
        match self.reads_back {
            true => NEW_FILE.difference(OFlags::WRONLY) | OFlags::RDWR,
            false => NEW_FILE,
        }
    }

    /// Puts what `make` makes at `path`, as [`Destination::put_staged`]; beside `path` where that cannot be.
    pub(super) fn put(
        &self,
        staging: &Staging,
        path: &RelPath,
        make: impl Fn(BorrowedFd<'_>, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.put_staged(staging, path, &make)? {
            None => Ok(()),
            Some((folder, name)) => {
                self.keep_mount(&folder);
                beside(folder.open.as_fd(), name, make)
            }
        }
    }

    /// As [`Destination::put`], a file that `fill` writes and gives what belongs to it, which is `meta`.
    pub(super) fn put_file(
        &self,
        staging: &Staging,
        path: &RelPath,
        meta: &Meta,
        fill: &dyn Fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let mode = mode_of_new(meta);
        let staged = self.put_staged(staging, path, &|folder, name| {
            fill(&File::from(openat(folder, name, self.new_file(), mode)?))
        })?;
        match staged {
            None => Ok(()),
            Some((folder, name)) => self.put_beside(&folder, name, meta, fill),
        }
    }

    /// Puts a file that `fill` writes, and gives what belongs to it, at `name` in `folder`, over what stands there: written
    /// before it has a name (`O_TMPFILE` in open(2)), so that nothing is left of it where this process is killed meanwhile;
    /// under a name of its own where there is no such file.
    pub(super) fn put_beside(
        &self,
        folder: &Arc<Folder>,
        name: &[u8],
        meta: &Meta,
        fill: &dyn Fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        self.keep_mount(folder);
        let open = folder.open.as_fd();
        let has_nameless = !self.has_no_nameless.load(Ordering::Relaxed);
        if has_nameless && let Some(file) = self.nameless(folder, meta)? {
            fill(&file)?;
            let mut linked = small::link(&file, folder, name);
            if linked == Err(Errno::EXIST) {
                // Only a rename takes the place of what stands there, and takes a name for it.
                let put = beside(open, name, |_, new| {
                    linked = small::link(&file, folder, new);
                    linked?;
                    is_at(&file, open, new)
                });
                if linked.is_ok() {
                    return put;
                }
            }
            match linked {
                Ok(()) => return Ok(()),
                Err(Errno::NOENT) if Folders::is_stale(folder) => {}
                Err(_) => self.has_no_nameless.store(true, Ordering::Relaxed),
            }
        }
        let mode = mode_of_new(meta);
        beside(open, name, |folder, new| {
            let file = File::from(openat(folder, new, self.new_file(), mode)?);
            fill(&file)?;
            is_at(&file, folder, new)
        })
    }

    /// Makes something new by `make` in the staging folder and moves it to `path`. The folder and the name there that it is
    /// to have, where a file system ends between the two.
    pub(super) fn put_staged<'a>(
        &self,
        staging: &Staging,
        path: &'a RelPath,
        make: &dyn Fn(BorrowedFd<'_>, &[u8]) -> io::Result<()>,
    ) -> io::Result<Option<(Arc<Folder>, &'a [u8])>> {
        let top = self.written()?;
        let (folder, name) = self.folder_of(top, path)?;
        if folder.is_on(staging.device()) {
            match staging.make_and_move(make, |from, new| {
                replace(from, new, folder.open.as_fd(), name)
            }) {
                // A bind mount of the same file system.
                Err(error) if is(&error, &[Errno::XDEV]) => {}
                // The folder was moved or deleted under us; what is at its path now counts.
                Err(error) if is(&error, &[Errno::NOENT]) => {
                    self.folders.forget(halves(path).0);
                    let (folder, name) = self.folder_of(top, path)?;
                    staging.make_and_move(make, |from, new| {
                        replace(from, new, folder.open.as_fd(), name)
                    })?;
                    return Ok(None);
                }
                other => return other.map(|()| None),
            }
        }
        Ok(Some((folder, name)))
    }
}

/// The mode that a file is made with: none that lends more than the one it gets, which saves a call where they are the same.
pub(super) fn mode_of_new(meta: &Meta) -> Mode {
    Mode::from_raw_mode(meta.mode.map_or(0o666, |mode| mode & 0o777 | 0o200))
}

/// Refuses where the name is another file's: whoever owns the folder may have put it there.
fn is_at(file: &File, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let stat = fstat(file)?;
    let there = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    same(&there, (stat.st_dev, stat.st_ino))
}

/// Renames over what is there; an empty folder makes way.
pub(super) fn replace(
    from: BorrowedFd<'_>,
    new: &[u8],
    folder: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    match renameat(from, new, folder, name) {
        Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {}
        other => return Ok(other?),
    }
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(renameat(from, new, folder, name)?),
        Err(_) => Err(Errno::ISDIR.into()),
    }
}

/// Makes something new by `make` under a name of its own in the folder where it belongs, and renames it.
pub(super) fn beside(
    folder: BorrowedFd<'_>,
    name: &[u8],
    make: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let new = [BESIDE_PREFIX, fresh_digits().as_bytes()].concat();
    let put = make(folder, &new).and_then(|()| replace(folder, &new, folder, name));
    if put.is_err() {
        // It may never have been made.
        let _ = unlinkat(folder, &new[..], AtFlags::empty());
    }
    put
}
