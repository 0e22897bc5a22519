//! What the destination has and the source has not (`--delete`).

use std::io;
use std::ops::ControlFlow;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat, unlinkat};

use crate::beneath::{READ_FOLDER, is_staging, kind_of, leads_to_staging};
use crate::entry::RelPath;
use crate::filter::Filter;
use crate::listing::{Next, Way};

use super::{Destination, Errno, is};

/// A name that is deleted, or would be.
#[derive(Debug)]
pub struct Deleted {
    /// Where, below the top.
    pub path: RelPath,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// What became of it.
    pub what: Deletion,
}

/// What became of a name that the source has not.
#[derive(Debug)]
#[non_exhaustive]
pub enum Deletion {
    /// It is deleted; or it would be, when nothing is to be changed.
    Done,
    /// A folder that stays: something in it is excluded or could not be deleted.
    Kept,
    /// It could not be deleted.
    Failed(io::Error),
}

struct Sweep<'a> {
    destination: &'a Destination,
    keep: &'a dyn Fn(&RelPath) -> bool,
    filter: &'a Filter,
    delete: bool,
    told: &'a mut dyn FnMut(Deleted) -> ControlFlow<()>,
    /// Of each folder on the way, whether the source has not got it.
    extra: Vec<bool>,
}

impl Destination {
    /// Tells what [`Destination::delete_extras`] would delete.
    pub fn extras(
        &self,
        roots: &[RelPath],
        keep: &dyn Fn(&RelPath) -> bool,
        filter: &Filter,
        told: &mut dyn FnMut(Deleted) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.sweep(roots, keep, filter, false, told)
    }

    /// Deletes what is in the folders `roots` (see [`crate::source::Source::roots`]) and below and for which `keep` says no, and tells
    /// each name, what is in a folder before the folder. What `filter` excludes stays, and so do the folders it is in.
    /// Staging folders are never looked at. Links are deleted, not followed.
    ///
    /// Call it only after a walk of the source that could read all: what it could not read would seem to be gone.
    ///
    /// # Errors
    /// None: what fails is told as [`Deletion::Failed`]. Breaks when `told` does.
    pub fn delete_extras(
        &self,
        roots: &[RelPath],
        keep: &dyn Fn(&RelPath) -> bool,
        filter: &Filter,
        told: &mut dyn FnMut(Deleted) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.sweep(roots, keep, filter, !self.dry, told)
    }

    /// Deletes what stands at `path`, a folder with all in it (but staging folders).
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2); for a folder that was not empty, the first that occurred.
    pub fn remove(&self, path: &RelPath) -> io::Result<()> {
        let top = self.written()?;
        match self.beside(top, path, |folder, name| {
            unlinkat(folder, name, AtFlags::empty())
        }) {
            // EPERM is what POSIX says of a folder.
            Err(error) if is(&error, &[Errno::ISDIR, Errno::PERM]) => {}
            other => return other,
        }
        let mut first = Ok(());
        let flow = self.delete_extras(
            std::slice::from_ref(path),
            &|_| false,
            &Filter::new(),
            &mut |deleted| {
                if let Deletion::Failed(error) = deleted.what {
                    first = Err(error);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
        );
        if flow.is_break() {
            return first;
        }
        self.folders.forget(path.as_bytes());
        self.beside(top, path, |folder, name| {
            unlinkat(folder, name, AtFlags::REMOVEDIR)
        })
    }

    fn sweep(
        &self,
        roots: &[RelPath],
        keep: &dyn Fn(&RelPath) -> bool,
        filter: &Filter,
        delete: bool,
        told: &mut dyn FnMut(Deleted) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(top) = &self.top else {
            return ControlFlow::Continue(());
        };
        let mut sweep = Sweep {
            destination: self,
            keep,
            filter,
            delete,
            told,
            extra: Vec::new(),
        };
        for root in roots {
            if leads_to_staging(root.as_bytes()) {
                continue;
            }
            match top.open(root.as_bytes(), READ_FOLDER) {
                Ok(folder) => {
                    let mut way = Way::new(top);
                    sweep.enter(&mut way, root.clone(), folder, false)?;
                    sweep.down(&mut way)?;
                }
                Err(error) if is(&error, &[Errno::NOENT, Errno::NOTDIR, Errno::LOOP]) => {}
                Err(error) => sweep.tell(root.clone(), true, Deletion::Failed(error))?,
            }
        }
        ControlFlow::Continue(())
    }
}

impl Sweep<'_> {
    fn enter(
        &mut self,
        way: &mut Way<'_>,
        path: RelPath,
        folder: std::os::fd::OwnedFd,
        extra: bool,
    ) -> ControlFlow<()> {
        match way.enter(path.clone(), folder) {
            Ok(()) => self.extra.push(extra),
            Err(error) => {
                way.mark();
                self.tell(path, true, Deletion::Failed(error))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn down(&mut self, way: &mut Way<'_>) -> ControlFlow<()> {
        while !way.is_empty() {
            match way.next() {
                Next::Name(name, kind) => self.name(way, &name, kind)?,
                Next::End => self.end(way)?,
            }
        }
        ControlFlow::Continue(())
    }

    fn name(&mut self, way: &mut Way<'_>, name: &[u8], kind: FileType) -> ControlFlow<()> {
        let Ok(path) = way.path().join(name) else {
            way.mark();
            let error = io::Error::from(Errno::NAMETOOLONG);
            return self.tell(way.path(), true, Deletion::Failed(error));
        };
        let folder = match way.folder() {
            Ok(folder) => folder,
            Err(error) => {
                let path = way.path();
                way.give_up();
                way.mark();
                return self.tell(path, true, Deletion::Failed(error));
            }
        };
        let kind = match kind {
            FileType::Unknown => {
                statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_or(kind, |stat| kind_of(&stat))
            }
            kind => kind,
        };
        let is_folder = kind == FileType::Directory;
        if (is_folder && is_staging(name)) || !self.filter.admits(&path, is_folder) {
            way.mark();
            return ControlFlow::Continue(());
        }
        let extra = self.extra.last() == Some(&true) || !(self.keep)(&path);
        if is_folder {
            match openat(folder, name, READ_FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(open) => return self.enter(way, path, open, extra),
                Err(error) => {
                    way.mark();
                    return self.tell(path, true, Deletion::Failed(error.into()));
                }
            }
        }
        if !extra {
            return ControlFlow::Continue(());
        }
        let what = match self.delete {
            true => done(unlinkat(folder, name, AtFlags::empty())),
            false => Deletion::Done,
        };
        if matches!(what, Deletion::Failed(_)) {
            way.mark();
        }
        self.tell(path, false, what)
    }

    /// A folder is through: it goes, if the source has it not and nothing in it stays.
    fn end(&mut self, way: &mut Way<'_>) -> ControlFlow<()> {
        let Some((path, stays)) = way.leave() else {
            return ControlFlow::Continue(());
        };
        if self.extra.pop() != Some(true) {
            return ControlFlow::Continue(());
        }
        if stays {
            return self.tell(path, true, Deletion::Kept);
        }
        let what = match (self.delete, path.split()) {
            (true, Some((_, name))) => {
                self.destination.folders.forget(path.as_bytes());
                let folder = way.folder().map_err(Deletion::Failed);
                folder.map_or_else(
                    |error| error,
                    |folder| done(unlinkat(folder, name, AtFlags::REMOVEDIR)),
                )
            }
            _ => Deletion::Done,
        };
        if matches!(what, Deletion::Failed(_)) {
            way.mark();
        }
        self.tell(path, true, what)
    }

    fn tell(&mut self, path: RelPath, is_folder: bool, what: Deletion) -> ControlFlow<()> {
        (self.told)(Deleted {
            path,
            is_folder,
            what,
        })
    }
}

fn done(deleted: rustix::io::Result<()>) -> Deletion {
    match deleted {
        Ok(()) | Err(Errno::NOENT) => Deletion::Done,
        Err(error) => Deletion::Failed(error.into()),
    }
}
