//! The thread that does a side's work, beside those that watch it.

use std::io;
use std::thread::ScopedJoinHandle;

use sys::threads::Crew;

use crate::engine::CopyError;

/// What a [`Crew`] made of a thread that ends with an account or an error.
pub(super) type Working<'a, T> = Option<ScopedJoinHandle<'a, Option<Result<T, CopyError>>>>;

/// Whether it has ended, or never began.
pub(super) fn is_over<T>(working: &Working<'_, T>) -> bool {
    working.as_ref().is_none_or(ScopedJoinHandle::is_finished)
}

/// What it ended with. Where a thread of its crew was missing, that is why.
pub(super) fn join<T>(
    working: Working<'_, T>,
    crew: &Crew<impl Fn(&io::Error) + Sync>,
) -> Result<T, CopyError> {
    let done = working.and_then(|working| working.join().ok().flatten());
    let missing = crew.over().err().map(|error| error.to_string());
    match (done, missing) {
        (Some(done @ (Ok(_) | Err(CopyError::Here(_) | CopyError::Refused(_)))), _)
        | (Some(done), None) => done,
        (_, missing) => Err(CopyError::Here(
            missing.unwrap_or_else(|| "a thread panicked".to_owned()),
        )),
    }
}
