//! What of unfinished files is on the disk, noted in the journal after it is there.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::entry::RelPath;
use crate::journal::{Journal, Unfinished};
use crate::reason::reason;

use super::super::CopyError;
use super::{Body, Incoming, JOURNAL, Receiver};

impl Receiver<'_> {
    pub(super) fn keep_journal(&self) {
        let mut last = Instant::now();
        while !self.is_over() {
            self.pause(Duration::from_millis(50));
            if last.elapsed() >= JOURNAL {
                self.journal_now();
                last = Instant::now();
            }
        }
    }

    /// Writes the journal anew where nearly all of it is of files that are finished.
    fn compact_journal(&self) {
        let Some(staging) = self.staging else { return };
        let Some(mark) = self.journal().as_ref().and_then(Journal::mark) else {
            return;
        };
        // Before the journal is locked again: who has a file's lock asks for the journal's.
        let mut live: Vec<(RelPath, Unfinished)> = Vec::new();
        // First those that nobody wanted yet: one that is wanted meanwhile is found twice, which hurts nobody.
        let before = self.left();
        live.extend(
            before
                .iter()
                .map(|(path, file)| (path.clone(), file.clone())),
        );
        drop(before);
        let growing: Vec<_> = self.lock().growing.values().cloned().collect();
        for file in growing {
            let body = file.lock();
            let growing = match &*body {
                Body::Unknown(Some(unfinished)) => {
                    live.push((file.path.clone(), unfinished.clone()));
                    None
                }
                Body::Open(growing) => Some(&**growing),
                Body::Placing(growing) => Some(&**growing),
                Body::Unknown(None) | Body::Gone => None,
            };
            if let Some(growing) = growing {
                let fresh: HashSet<u64> = growing.fresh.iter().map(|(index, _)| *index).collect();
                let noted = growing
                    .sums
                    .iter()
                    .filter(|(index, _)| !fresh.contains(index));
                let unfinished = Unfinished {
                    number: growing.number,
                    cut: growing.cut,
                    modified: file.modified,
                    sums: noted.map(|(index, sum)| (*index, *sum)).collect(),
                };
                live.push((file.path.clone(), unfinished));
            }
        }
        if let Some(journal) = &mut *self.journal() {
            // The old one stands where this fails.
            let _ = staging
                .new_journal()
                .and_then(|new| journal.compact(mark, &live, new, || staging.replace_journal()));
        }
    }

    /// Brings what arrived to the disk, and then the word that it did.
    pub(super) fn journal_now(&self) {
        // Two at once: one could take blocks for noted that the other is still bringing to the disk.
        let _one = self
            .journalling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.compact_journal();
        let files: Vec<_> = self.lock().growing.values().cloned().collect();
        for file in files {
            if !self.note_fresh(&file) {
                return;
            }
        }
        if self.options.fsync
            && let Some(journal) = &*self.journal()
        {
            let _ = journal.sync();
        }
    }

    /// Notes what of a file is not in the journal yet; `false` where nothing of it is to be trusted.
    pub(super) fn note_fresh(&self, file: &Incoming) -> bool {
        let (fresh, number, handle) = {
            let mut body = file.lock();
            let Body::Open(growing) = &mut *body else {
                return true;
            };
            if growing.fresh.is_empty() {
                return true;
            }
            let fresh = std::mem::take(&mut growing.fresh);
            let Some(partial) = &growing.partial else {
                return true;
            };
            let Ok(handle) = partial.file().try_clone() else {
                growing.fresh = fresh;
                return true;
            };
            (fresh, growing.number, handle)
        };
        if self.options.fsync
            && let Err(error) = handle.sync_data()
        {
            // The kernel tells once, and forgets what it could not write (fsync(2)): nothing of it is to be trusted.
            self.end(CopyError::Here(format!(
                "{}: {}",
                file.path,
                reason(&error)
            )));
            return false;
        }
        self.disk.let_go(&handle);
        if let Some(journal) = &mut *self.journal() {
            // What is not noted is sent again by the next attempt: no harm.
            let _ = journal.blocks(number, &fresh);
        }
        true
    }
}
