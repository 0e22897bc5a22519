//! What other hosts do that see the same files: they ask where blocks go, and tell which they wrote.

use std::io::{self, ErrorKind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::message::{BlockHead, NameId};

use super::super::help::{PLACE, Place};
use super::super::{Note, Watch};
use super::{Body, Incoming, Receiver, is_full};

/// Files that are remembered after they were placed, and how long those who write late are waited for.
const SHARED_MOST: usize = 1 << 16;
const LATE: Duration = Duration::from_secs(2);

impl Receiver<'_> {
    /// Says where blocks of a file go.
    pub(super) fn answer(&self, link: &mut Link, about: &[u8]) -> io::Result<()> {
        let Ok(id) = about.try_into().map(NameId::from_le_bytes) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a question"));
        };
        let file = self.lock().wanted.get(&id).cloned();
        let place = match file {
            Some(file) if !file.is_small => self.place_of(&file)?,
            _ => Place::Here,
        };
        link.send(PLACE, &place.to_bytes(), &[])
    }

    fn place_of(&self, file: &Incoming) -> io::Result<Place> {
        let mut body = self.laid_out(file)?;
        Ok(match &mut *body {
            Body::Open(growing) => {
                growing.is_shared = self.staging.is_some();
                Place::There {
                    is_checked_only: self.staging.is_none(),
                    number: growing.number,
                    cut: growing.cut,
                    staging: self
                        .staging
                        .map_or_else(Vec::new, |staging| staging.name().to_vec()),
                }
            }
            _ => Place::Here,
        })
    }

    /// Notes blocks that another host wrote and brought to the disk; `false` where they have to come again.
    pub(super) fn written(&self, heads: &[BlockHead]) -> bool {
        for head in heads {
            let file = self.lock().wanted.get(&head.id).cloned();
            let Some(file) = file else { continue };
            let noted = match file.is_small || head.same {
                true => Err(io::Error::new(ErrorKind::InvalidData, "not written there")),
                false => self.note_written(&file, head),
            };
            match noted {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    let text = format!("{}: {error}: sent again", file.path);
                    self.watch.note(Note::Skipped(text));
                    return false;
                }
                Err(error) => {
                    debug_assert!(!is_full(&error));
                    self.problem(&file.path, "cannot be written", &error);
                    self.give_up(&file);
                }
            }
        }
        true
    }

    /// Remembers a file that was placed: a block that was sent twice may be on its way to another host still, which writes it
    /// over the same bytes, and so gives the file another time.
    pub(super) fn may_be_written_late(&self, file: &Incoming) {
        if file.meta.modified.is_none() {
            return;
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() >= SHARED_MOST {
            shared.pop_front();
        }
        shared.push_back((file.path.clone(), file.meta.clone()));
    }

    /// Once the source has left: waits for what other hosts still write, and gives files that got another time by it theirs.
    pub(super) fn mend_times(&self) {
        if !self.options.has_helpers {
            return;
        }
        let since = Instant::now();
        while self.streaming.load(Ordering::Acquire) > 0 && since.elapsed() < LATE {
            thread::sleep(Duration::from_millis(1));
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, meta) in shared.drain(..) {
            if let Err(error) = self.destination.mend_time(&path, &meta) {
                let text = format!("{path}: its time cannot be set again: {error}");
                self.watch.note(Note::Skipped(text));
            }
        }
    }

    fn note_written(&self, file: &Incoming, head: &BlockHead) -> io::Result<()> {
        let body = self.laid_out(file)?;
        let Body::Open(growing) = &*body else {
            return Ok(());
        };
        // Another connection brought it: its sum is the one that was noted.
        if growing.sums.contains_key(&head.index) {
            return Ok(());
        }
        growing.may_have(head.index)?;
        let bytes = u64::from(growing.cut.len(head.index));
        Watch::add(&self.watch.confirmed_bytes, bytes);
        self.watch.helped_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.arrived(file, body, head, bytes);
        Ok(())
    }
}
