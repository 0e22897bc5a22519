//! Who is told what a job does while it does it.

use measure::Progress;

/// Takes what a job says while it runs. One that does nothing is [`Silent`].
pub trait Watcher: Send {
    /// A sentence for whoever waits.
    fn note(&mut self, text: &str) {
        let _ = text;
    }

    /// A transfer begins that can be watched: a phase of the run or, with `is_probe`, a short
    /// one beside it.
    fn begins(&mut self, name: &str, is_probe: bool) {
        let _ = (name, is_probe);
    }

    /// How far the transfer is.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }

    /// The transfer that began is over, however it ended.
    fn ends(&mut self) {}
}

/// Nobody who is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Watcher for Silent {}

/// Passes on notes and no transfers: short ones of a search are not shown.
pub(crate) struct NotesOnly<'a>(pub(crate) &'a mut dyn Watcher);

impl Watcher for NotesOnly<'_> {
    fn note(&mut self, text: &str) {
        self.0.note(text);
    }
}
