//! A walk of the source that begins before the other side is there: while a shell starts that one, this host has nothing else
//! to do. Small files are read after it ([`super::contents`]).

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sys::threads;

use crate::filter::Filter;
use crate::source::{Keep, Source, Walked};

use super::contents::Contents;

/// What a walk may come to before somebody takes it, in bytes, about: some 180,000 names.
const EARLY_MOST: usize = 64 << 20;
/// The same from then on.
const LATER_MOST: usize = 1 << 20;
/// What one takes beside its path.
const EACH_BYTES: usize = 256;
/// How many are handed over at a time, and how long they wait for others.
const BATCH: usize = 64;
const BATCH_WAIT: Duration = Duration::from_millis(5);

/// A walk that one thread does ([`Early::walk`]), and another takes ([`super::send::send_early`]).
#[derive(Debug, Default)]
pub struct Early {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) contents: Contents,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<(Vec<Walked>, usize)>,
    bytes: usize,
    is_taken: bool,
    /// How the walk ended.
    ended: Option<ControlFlow<()>>,
    /// It had to wait for room once.
    has_waited: bool,
    is_stopped: bool,
}

impl Early {
    /// Walks `source`, as far as there is room, and then reads small files, if `reads`; returns when all was handed over and
    /// read, or once it is stopped.
    pub fn walk(&self, source: &Source, filter: &Filter, keep: &Keep, reads: bool) {
        thread::scope(|scope| {
            if reads {
                // Without this thread they are read when they are asked for.
                let _ = threads::scoped(scope, "gp-early", || {
                    self.wait_for_walk();
                    self.contents.read(source);
                });
            }
            let flow = self.walk_all(source, filter, keep, reads);
            self.lock().ended = Some(flow);
            self.changed.notify_all();
        });
    }

    fn walk_all(
        &self,
        source: &Source,
        filter: &Filter,
        keep: &Keep,
        reads: bool,
    ) -> ControlFlow<()> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut since = Instant::now();
        let hand_over = |batch: Vec<Walked>, bytes| {
            if reads {
                self.contents.note(&batch);
            }
            self.hand_over(batch, bytes)
        };
        source.walk_unless(filter, keep, &|| self.lock().is_stopped, &mut |walked| {
            if batch.is_empty() {
                since = Instant::now();
            }
            bytes += EACH_BYTES + length(&walked);
            batch.push(walked);
            match batch.len() >= BATCH || since.elapsed() >= BATCH_WAIT {
                true => hand_over(std::mem::take(&mut batch), std::mem::take(&mut bytes)),
                false => ControlFlow::Continue(()),
            }
        })?;
        hand_over(batch, bytes)
    }

    /// Waits until the walk has ended, or waits itself: a disk has one thing to do at a time.
    fn wait_for_walk(&self) {
        let mut state = self.lock();
        while state.ended.is_none() && !state.has_waited && !state.is_stopped {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn hand_over(&self, batch: Vec<Walked>, bytes: usize) -> ControlFlow<()> {
        let mut state = self.lock();
        let has_room = |state: &State| match state.is_taken {
            true => state.bytes < LATER_MOST,
            false => state.bytes < EARLY_MOST,
        };
        while !state.is_stopped && !has_room(&state) {
            if !state.has_waited {
                state.has_waited = true;
                self.changed.notify_all();
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_stopped {
            return ControlFlow::Break(());
        }
        state.bytes += bytes;
        state.batches.push_back((batch, bytes));
        drop(state);
        self.changed.notify_all();
        ControlFlow::Continue(())
    }

    /// Takes what the walk comes to, until `each` breaks off, it has ended, or it is stopped.
    pub(super) fn each(&self, each: &mut dyn FnMut(Walked) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut state = self.lock();
        state.is_taken = true;
        loop {
            if state.is_stopped {
                return ControlFlow::Break(());
            }
            if let Some((batch, bytes)) = state.batches.pop_front() {
                state.bytes -= bytes;
                drop(state);
                self.changed.notify_all();
                batch.into_iter().try_for_each(&mut *each)?;
                state = self.lock();
                continue;
            }
            if let Some(flow) = state.ended {
                return flow;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the walk: nobody takes the rest.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        state.batches.clear();
        state.bytes = 0;
        drop(state);
        self.changed.notify_all();
        self.contents.end();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What of a name is longer the longer it is, in bytes.
fn length(walked: &Walked) -> usize {
    match walked {
        Walked::Found(found) => crate::message::bytes_of(&found.entry),
        Walked::Skipped(skipped) => skipped.path.as_bytes().len(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Session;
    use crate::engine::send::{SendOptions, send_early};
    use crate::engine::{CopyError, Watch};
    use crate::scratch::Scratch;

    fn tree(files: usize) -> (Scratch, Source) {
        let scratch = Scratch::new();
        for n in 0..files {
            std::fs::write(scratch.path().join(format!("{n:04}")), b"x").unwrap();
        }
        let source = Source::open(&[scratch.path().join(".")]).unwrap();
        (scratch, source)
    }

    fn paths(
        walk: impl FnOnce(&mut dyn FnMut(Walked) -> ControlFlow<()>) -> ControlFlow<()>,
    ) -> Vec<String> {
        let mut all = Vec::new();
        let flow = walk(&mut |walked| {
            if let Walked::Found(found) = walked {
                all.push(found.entry.path.to_string());
            }
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
        all
    }

    #[test]
    fn what_is_walked_early_is_what_is_walked() {
        let (_scratch, source) = tree(3 * BATCH + 1);
        let (filter, keep) = (Filter::default(), Keep::default());
        let direct = paths(|each| source.walk(&filter, &keep, each));
        assert!(direct.len() > 3 * BATCH);
        // Before anybody takes it, and while.
        let early = Early::default();
        early.walk(&source, &filter, &keep, true);
        assert_eq!(paths(|each| early.each(each)), direct);
        let early = Early::default();
        thread::scope(|scope| {
            let taken = scope.spawn(|| paths(|each| early.each(each)));
            early.walk(&source, &filter, &keep, true);
            assert_eq!(taken.join().unwrap(), direct);
        });
    }

    #[test]
    fn a_walk_that_nobody_takes_has_a_bound_and_an_end() {
        let (_scratch, source) = tree(BATCH);
        let early = Early::default();
        assert!(early.hand_over(Vec::new(), EARLY_MOST).is_continue());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                early.walk(&source, &Filter::default(), &Keep::default(), true);
                is_over.store(true, Ordering::Relaxed);
            });
            // It waits for room, whenever it gets there.
            assert_eq!(early.lock().batches.len(), 1);
            assert!(!is_over.load(Ordering::Relaxed));
            early.stop();
        });
        assert_eq!(early.lock().ended, Some(ControlFlow::Break(())));
        assert!(early.each(&mut |_| ControlFlow::Continue(())).is_break());
    }

    #[test]
    fn a_walk_is_stopped_among_names_that_are_excluded() {
        let (scratch, source) = tree(BATCH);
        std::fs::write(scratch.path().join(".first"), b"x").unwrap();
        let mut filter = Filter::default();
        filter.exclude(b".first").unwrap();
        let early = Early::default();
        // As Early::stop does, which forgets what was noted by then.
        early.lock().is_stopped = true;
        let keep = Keep::default();
        early.walk(&source, &filter, &keep, true);
        assert_eq!(early.lock().ended, Some(ControlFlow::Break(())));
        // It did not get to those that come after.
        let _ = source.walk(&filter, &keep, &mut |walked| {
            if let Walked::Found(found) = walked
                && let Some(print) = found.fingerprint
            {
                let wanted = std::iter::once((&found.entry.path, &print));
                assert_eq!(early.contents.take(&source, wanted), [None]);
            }
            ControlFlow::Continue(())
        });
    }

    #[test]
    fn a_copy_that_is_stopped_waits_for_no_walk() {
        let (_scratch, source) = tree(0);
        let meeting = Session::new().unwrap().listens();
        let (early, watch) = (Early::default(), Watch::default());
        watch.stop();
        // Nobody comes, and the walk comes to nothing.
        let sent = send_early(&meeting, &source, &early, &SendOptions::default(), &watch);
        assert!(matches!(sent, Err(CopyError::Stopped)));
        assert!(early.lock().is_stopped);
    }
}
