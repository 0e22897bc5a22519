//! What comes last: hard links, what the source has not, folders' own modes and times.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::destination::Shortfalls;
use crate::entry::RelPath;
use crate::message::{Account, FromDestination};
use crate::reason::reason;

use super::super::{CopyError, Note};
use super::blocked::{Pass, in_the_way};
use super::{Receiver, short_sum};

impl Receiver<'_> {
    /// Waits a moment until the source heard how it ended.
    pub(super) fn part(&self, is_done: bool) {
        if !is_done {
            self.outbox.wait_heard(Duration::from_secs(2));
            return;
        }
        // Longer than a dead connection takes to be noticed and made again.
        let most = Duration::from_secs(25);
        let since = Instant::now();
        while !self.is_left.load(Ordering::Relaxed)
            && !self.watch.is_stopped()
            && since.elapsed() < self.meeting.patience().min(most)
        {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Hard links, what is to be deleted, folders' own modes and times.
    pub(super) fn finish(&self) -> Result<Account, CopyError> {
        let (links, folders, walked) = {
            let mut files = self.lock();
            let walked = files.walked.take();
            (
                std::mem::take(&mut files.links),
                std::mem::take(&mut files.folders),
                walked,
            )
        };
        for (path, to) in links {
            let linked = match self.staging {
                Some(staging) => self.destination.hardlink(staging, &path, &to),
                None if self.options.null => Ok(false),
                None => self.would_link(&path, &to),
            };
            match linked {
                Ok(true) if self.options.dry => self.would(&path, "a hard link"),
                Ok(true) => self.account().placed += 1,
                Ok(false) => {}
                Err(error) => self.problem(&path, "cannot be linked", &error),
            }
        }
        let is_deleted = self.options.delete && !self.options.null;
        if let (true, Some((roots, is_whole))) = (is_deleted, walked) {
            let why = match (is_whole, self.lock().is_told_full) {
                (true, false) => None,
                (true, true) => Some("nothing was deleted: more names than can be remembered"),
                (false, _) => Some("nothing was deleted: the source could not read all it has"),
            };
            match why {
                None => self.delete(&roots),
                Some(text) => {
                    self.watch.note(Note::Skipped(text.to_owned()));
                    self.outbox
                        .say_now(FromDestination::Problem(text.to_owned()).to_bytes());
                }
            }
        }
        // Before the source is told that all is done: whoever is killed after that leaves nothing. And before the top gets its
        // time, which this changes.
        self.remove_staging();
        let mut done = BTreeSet::new();
        // Deepest first, since writing into a folder changes its time.
        for (path, meta) in folders.into_iter().rev() {
            if done.insert(path.clone())
                && let Err(error) = self.destination.finish_folder(&path, &meta)
            {
                self.problem(&path, "cannot be finished", &error);
            }
        }
        self.tell_amended();
        self.tell_shortfalls();
        if self.options.fsync && self.staging.is_some() {
            self.destination
                .sync()
                .map_err(|error| CopyError::Here(reason(&error)))?;
        }
        Ok(*self.account())
    }

    /// Removes the folder for unfinished files. All has its name by now, so one that cannot be removed fails nothing.
    fn remove_staging(&self) {
        // A file that is open is not gone when it is removed, on FUSE and NFS: it gets another name.
        *self.journal() = None;
        let Some(staging) = self.staging else { return };
        if let Err(error) = staging.discard() {
            let name = String::from_utf8_lossy(staging.name()).into_owned();
            let text = format!("{name} is left at the destination: {}", reason(&error));
            self.watch.note(Note::Skipped(text.clone()));
            self.outbox
                .say_if_room(FromDestination::Problem(text).to_bytes());
        }
    }

    /// Whether a hard link would be made.
    fn would_link(&self, path: &RelPath, to: &RelPath) -> io::Result<bool> {
        let stands = self.destination.look(path)?;
        let is_blocked = self.is_in_the_way(path, stands.as_ref(), Pass::First);
        match is_blocked && !self.options.delete {
            true => Err(in_the_way()),
            false => self.destination.is_linked(path, to).map(|is| !is),
        }
    }

    /// What was given to names whose bytes were there: nobody would see it in the account.
    fn tell_amended(&self) {
        let text = match self.amended.load(Ordering::Relaxed) {
            0 => return,
            1 => "1 name had its bytes already, and was given mode, owner or attributes".to_owned(),
            n => format!(
                "{n} names had their bytes already, and were given modes, owners or attributes"
            ),
        };
        self.watch.note(Note::Skipped(text.clone()));
        self.outbox
            .say_if_room(FromDestination::Problem(text).to_bytes());
    }

    /// What was to be kept and could not be: told, and no failure, since whose bytes arrived whole are there.
    fn tell_shortfalls(&self) {
        let Shortfalls {
            owners,
            bits,
            attributes_refused,
            attributes_unsupported,
            others,
            links,
            ..
        } = self.destination.shortfalls();
        for (count, what) in [
            (
                owners,
                "names have another owner or group than at the source: setting it takes the superuser",
            ),
            (
                bits,
                "files lost a set-user-ID or set-group-ID bit: their owner is not the source's, or another \
                 host said so (--set-id)",
            ),
            (
                attributes_refused,
                "extended attributes were not set: only the superuser may, or another host said so",
            ),
            (
                attributes_unsupported,
                "extended attributes were not set: this file system has no room or no word for them",
            ),
            (
                others,
                "names have another mode or time than at the source: this file system, or their owner, \
                 does not allow it",
            ),
            (
                links,
                "hard links became files of their own: none can be made there",
            ),
        ] {
            if count > 0 {
                let text = format!("{count} {what}");
                self.watch.note(Note::Skipped(text.clone()));
                self.outbox
                    .say_if_room(FromDestination::Problem(text).to_bytes());
            }
        }
    }

    fn delete(&self, roots: &[RelPath]) {
        let roots = &self.deletes_in(roots)[..];
        let told = std::mem::take(&mut self.lock().told);
        let filter = &self.options.filter;
        let keep = |path: &RelPath| told.contains(&short_sum(path));
        let mut each = |deleted| self.deleted(deleted);
        let _ = match self.options.dry {
            true => self.destination.extras(roots, &keep, filter, &mut each),
            false => self
                .destination
                .delete_extras(roots, &keep, filter, &mut each),
        };
    }
}
