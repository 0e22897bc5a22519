//! Who has a copy made: can stop it, hears notes, and watches how far it is.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::Watch;

use super::progress::Progress;

/// Who can stop a copy, and hears what a user is to know at once. Clones are the same caller.
#[derive(Clone)]
pub struct Caller {
    interrupted: Arc<dyn Fn() -> Option<u8> + Send + Sync>,
    note: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Caller {
    /// `interrupted` gives the exit code of the signal that asked to stop, once one did; `note`
    /// takes notes, from any thread.
    pub fn new(
        interrupted: impl Fn() -> Option<u8> + Send + Sync + 'static,
        note: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        Self {
            interrupted: Arc::new(interrupted),
            note: Arc::new(note),
        }
    }

    /// Exit code of the signal that asked to stop, if one did.
    pub fn interrupted(&self) -> Option<u8> {
        (self.interrupted)()
    }

    /// A note for the user.
    pub fn note(&self, text: impl fmt::Display) {
        (self.note)(&text.to_string());
    }
}

/// Never stops a copy, and hears nothing.
impl Default for Caller {
    fn default() -> Self {
        Self::new(|| None, |_| {})
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// The limit of the rate changed.
    Limit,
    /// Something was chosen, and why.
    Chosen,
    /// Something was skipped, and why.
    Skipped,
}

/// Watches a copy while it runs, on the thread that began it.
pub trait Observer {
    /// It runs from now on.
    fn begin(&mut self, _begun: Instant) {}

    /// Something the user may want to know, so many nanoseconds after the beginning.
    fn note(&mut self, _kind: NoteKind, _text: &str, _t_ns: u64) {}

    /// How far it is, some ten times a second; `confirmed` bytes have arrived.
    fn look(&mut self, _watch: &Watch, _confirmed: u64, _progress: &mut Progress) {}

    /// It is over; as [`Observer::look`] for the last time.
    fn end(&mut self, _watch: &Watch, _confirmed: u64, _progress: &mut Progress) {}
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
