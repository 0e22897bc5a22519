//! Notes of a copy that were printed while it ran: each is printed once, whichever side reports it, and not with the result again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::Run;

/// Notes that are remembered, at most; a far side may have any number.
const NOTES_MAX: usize = 10_000;

/// The notes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<Mutex<HashSet<String>>>);

impl Shown {
    /// Remembers a note that is about to be printed; whether it was not before.
    pub fn is_new(&self, text: &str) -> bool {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match notes.len() < NOTES_MAX {
            true => notes.insert(text.to_owned()),
            false => !notes.contains(text),
        }
    }

    /// A run without the notes that were printed.
    pub fn without(&self, run: &Run) -> Run {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut run = run.clone();
        if let Some(copy) = &mut run.copy {
            let is_new = |text: &String| !notes.contains(&*units::text::plain(text));
            copy.notes.retain(is_new);
            copy.chosen.retain(is_new);
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Copy;

    use super::*;

    #[test]
    fn a_note_that_was_printed_is_not_in_the_result_again() {
        let shown = Shown::default();
        assert!(shown.is_new("a: skipped") && !shown.clone().is_new("a: skipped"));
        let run = Run {
            copy: Some(Copy {
                notes: vec!["a: skipped".to_owned(), "b: skipped".to_owned()],
                chosen: vec!["4 connections".to_owned()],
                ..Copy::default()
            }),
            ..Run::default()
        };
        let copy = shown.without(&run).copy.unwrap();
        assert_eq!(copy.notes, ["b: skipped"]);
        assert_eq!(copy.chosen, ["4 connections"]);
    }
}
