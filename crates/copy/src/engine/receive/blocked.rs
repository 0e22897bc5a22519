//! Names in whose place the destination has a folder that is not empty. Without `--delete` they are not copied. With it, the folder is
//! emptied first, when the source has listed all names: only then is it known in which folders names are deleted.

use std::io;
use std::ops::ControlFlow;

use crate::destination::{Deleted, Deletion, Existing};
use crate::entry::{Meta, RelPath};
use crate::message::FromDestination;

use super::super::Note;
use super::decide::{Decision, Offered};
use super::{Receiver, short_sum};

/// A name that waits until the source has listed all.
pub(super) enum Blocked {
    File(Offered),
    Symlink(RelPath, Box<[u8]>, Meta),
}

impl Blocked {
    const fn path(&self) -> &RelPath {
        match self {
            Self::File(file) => &file.path,
            Self::Symlink(path, ..) => path,
        }
    }
}

/// Whether a name is decided upon before its place was emptied, or after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    First,
    Cleared,
}

/// Why a name cannot have its place.
pub(super) fn in_the_way() -> io::Error {
    let text = "a folder that is not empty is in its place (--delete removes what the source does not have)";
    io::Error::new(io::ErrorKind::IsADirectory, text)
}

impl Receiver<'_> {
    /// Whether what exists at `path` keeps a name that is no folder from having that place.
    pub(super) fn is_in_the_way(
        &self,
        path: &RelPath,
        stands: Option<&Existing>,
        pass: Pass,
    ) -> bool {
        // A dry run removes nothing, and says of each name that it would.
        let is_cleared = pass == Pass::Cleared && self.options.dry;
        let is_filled = |stands| self.destination.is_filled(path, stands);
        !self.options.null && !is_cleared && stands.is_some_and(is_filled)
    }

    /// Makes a symbolic link, or keeps it until the source has listed all names.
    pub(super) fn symlink_or_wait(
        &self,
        path: &RelPath,
        target: Box<[u8]>,
        meta: &Meta,
    ) -> io::Result<()> {
        let stands = self.destination.look(path)?;
        if !self.is_in_the_way(path, stands.as_ref(), Pass::First) {
            return self.patiently(|| self.symlink(path, &target, meta));
        }
        if !self.options.delete {
            return Err(in_the_way());
        }
        let waits = Blocked::Symlink(path.clone(), target, meta.clone());
        self.lock().blocked.push(waits);
        Ok(())
    }

    /// Of the folders whose contents the user named, those that were copied as folders: what is in them and not at the source
    /// is deleted, and nothing elsewhere.
    pub(super) fn deletes_in(&self, roots: &[RelPath]) -> Vec<RelPath> {
        let files = self.lock();
        let is_copied = |root: &&RelPath| files.told_folders.contains(&short_sum(root));
        let filter = &self.options.filter;
        let roots = roots.iter().filter(is_copied);
        roots
            .filter(|root| self.options.name.is_none() && filter.admits_all_the_way(root, true))
            .cloned()
            .collect()
    }

    /// The source has listed all names: empties the places of names that wait for that, and decides upon these.
    pub(super) fn clear_places(&self, roots: &[RelPath], is_whole: bool) {
        if !self.options.delete {
            return;
        }
        let is_all_known = is_whole && !self.lock().is_told_full;
        let roots = match is_all_known {
            true => self.deletes_in(roots),
            false => Vec::new(),
        };
        let blocked = std::mem::take(&mut self.lock().blocked);
        for name in blocked {
            let pass = self.clear(name.path(), &roots);
            self.decide_cleared(name, pass);
        }
        let links: Vec<RelPath> = {
            let files = self.lock();
            files.links.iter().map(|(path, _)| path.clone()).collect()
        };
        for path in links {
            let stands = self.destination.look(&path).ok().flatten();
            if self.is_in_the_way(&path, stands.as_ref(), Pass::First) {
                self.clear(&path, &roots);
            }
        }
        self.look_at_long();
    }

    /// Deletes what is in the folder at `path`, if it is in one of `roots`; whether it was.
    fn clear(&self, path: &RelPath, roots: &[RelPath]) -> Pass {
        let is_below = |root: &RelPath| {
            let rest = path.as_bytes().strip_prefix(root.as_bytes());
            rest.is_some_and(|rest| root.is_top() || rest.starts_with(b"/"))
        };
        if !roots.iter().any(is_below) {
            return Pass::First;
        }
        // In a dry run the sweep at the end says what goes.
        if !self.options.dry {
            let all = std::slice::from_ref(path);
            let filter = &self.options.filter;
            let mut each = |deleted| self.deleted(deleted);
            let _ = self
                .destination
                .delete_extras(all, &|_| false, filter, &mut each);
        }
        Pass::Cleared
    }

    fn decide_cleared(&self, name: Blocked, pass: Pass) {
        if pass == Pass::First {
            return self.problem(name.path(), "cannot be written", &in_the_way());
        }
        match name {
            Blocked::File(file) => {
                if let Decision::Wanted(want) = self.decide_file(file, pass) {
                    let wants = vec![want];
                    self.outbox
                        .say(FromDestination::Decided { until: 0, wants }.to_bytes());
                }
            }
            Blocked::Symlink(path, target, meta) => {
                let made = self.patiently(|| self.symlink(&path, &target, &meta));
                if let Err(error) = made {
                    self.problem(&path, "cannot be written", &error);
                }
            }
        }
    }

    /// Counts a name that the source does not have.
    pub(super) fn deleted(&self, deleted: Deleted) -> ControlFlow<()> {
        match deleted.what {
            Deletion::Done => {
                self.account().deleted += 1;
                if self.options.dry {
                    let text = format!("would delete {}", deleted.path);
                    self.watch.note(Note::Skipped(text));
                }
            }
            Deletion::Failed(error) => {
                self.problem(&deleted.path, "cannot be deleted", &error);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
