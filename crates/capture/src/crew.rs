//! Work that is cut into shards, shared out over threads.
//!
//! Each shard takes its batches in the order in which they were given, one at a time, on whichever thread is free;
//! threads keep to the shards that they had before, whose memory their caches hold. Who gives is
//! one of the threads: when batches wait in a row that is full, it takes some itself. So memory is
//! bounded, and with one thread there are no others.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::panic;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sys::threads;

/// Takes batches in their order.
pub trait Shard: Send + 'static {
    /// What it takes.
    type Batch: Send + 'static;

    /// Takes a batch, whose memory is used again.
    fn take(&mut self, batch: &mut Self::Batch);

    /// There are no more; called once.
    fn finish(&mut self) {}
}

/// Threads that work on shards.
pub struct Crew<S: Shard> {
    shared: Arc<Shared<S>>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared<S: Shard> {
    state: Mutex<State<S>>,
    /// There is something to do, or nothing to come.
    work: Condvar,
    /// There is room for a batch, or less work than there was.
    room: Condvar,
}

struct State<S: Shard> {
    places: Vec<Place<S>>,
    /// Shards with work that no thread has, each once.
    ready: VecDeque<usize>,
    /// Batches that no thread has begun.
    waiting: usize,
    waiting_max: usize,
    spare: Vec<S::Batch>,
    closing: bool,
    /// Shards that have not finished.
    left: usize,
    /// A thread has panicked: it is not waited for.
    broken: bool,
}

struct Place<S: Shard> {
    /// `None` while a thread has it.
    shard: Option<S>,
    batches: VecDeque<S::Batch>,
    /// The thread that had it last.
    last: usize,
    finished: bool,
}

/// A shard with what it is to do.
struct Work<S: Shard> {
    number: usize,
    shard: S,
    batches: VecDeque<S::Batch>,
    finish: bool,
}

impl<S: Shard> Crew<S> {
    /// A crew of `threads`, the caller's included, at most one for each shard.
    ///
    /// # Errors
    /// As [`thread::Builder::spawn`].
    pub fn new(shards: Vec<S>, threads: usize) -> io::Result<Self> {
        let count = shards.len();
        let threads = threads.clamp(1, count.max(1));
        let place = |(n, shard)| Place {
            shard: Some(shard),
            batches: VecDeque::new(),
            last: n % threads,
            finished: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                places: shards.into_iter().enumerate().map(place).collect(),
                ready: VecDeque::with_capacity(count),
                waiting: 0,
                waiting_max: if threads == 1 {
                    0
                } else {
                    WAITING_EACH * count
                },
                spare: Vec::new(),
                closing: false,
                left: count,
                broken: false,
            }),
            work: Condvar::new(),
            room: Condvar::new(),
        });
        let mut crew = Self {
            shared,
            helpers: Vec::new(),
        };
        for n in 1..threads {
            let shared = Arc::clone(&crew.shared);
            let helper = threads::spawn(format!("crew-{n}"), move || shared.help(n))?;
            crew.helpers.push(helper);
        }
        Ok(crew)
    }

    /// Gives shard `number` its next batch; one that was used before, if there is one.
    ///
    /// # Panics
    /// When there is no such shard, and when a shard has panicked on another thread.
    pub fn give(&mut self, number: usize, batch: S::Batch) -> Option<S::Batch> {
        let mut state = self.shared.lock();
        state.put(number, batch);
        self.shared.work.notify_one();
        while state.waiting > state.waiting_max && !state.broken {
            state = match state.take(CALLER) {
                Some(work) => self.shared.done(state, work, CALLER),
                None => self.shared.wait(&self.shared.room, state),
            };
        }
        if state.broken {
            drop(state);
            self.fail();
        }
        state.spare.pop()
    }

    /// Waits until all is done; the shards in their order.
    ///
    /// # Panics
    /// When a shard has panicked.
    pub fn finish(mut self) -> Vec<S> {
        let mut state = self.shared.lock();
        state.close();
        self.shared.work.notify_all();
        while state.left > 0 && !state.broken {
            state = match state.take(CALLER) {
                Some(work) => self.shared.done(state, work, CALLER),
                None => self.shared.wait(&self.shared.room, state),
            };
        }
        if state.broken {
            drop(state);
            self.fail();
        }
        let places = mem::take(&mut state.places);
        places.into_iter().filter_map(|place| place.shard).collect()
    }

    /// A helper's panic goes on here.
    #[cold]
    fn fail(&mut self) -> ! {
        self.shared.stop();
        for helper in mem::take(&mut self.helpers) {
            if let Err(panic) = helper.join() {
                panic::resume_unwind(panic);
            }
        }
        panic!("a shard has panicked before");
    }
}

impl<S: Shard> fmt::Debug for Crew<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("helpers", &self.helpers.len())
            .finish_non_exhaustive()
    }
}

impl<S: Shard> Drop for Crew<S> {
    /// Work that is left is not done.
    fn drop(&mut self) {
        self.shared.stop();
        for helper in mem::take(&mut self.helpers) {
            // Whoever wants to know of a panic has asked by now.
            let _ = helper.join();
        }
    }
}

impl<S: Shard> Shared<S> {
    fn help(&self, thread: usize) {
        let guard = Broken(self);
        let mut state = self.lock();
        while !state.broken && state.left > 0 {
            state = match state.take(thread) {
                Some(work) => self.done(state, work, thread),
                None => self.wait(&self.work, state),
            };
        }
        drop(state);
        mem::forget(guard);
    }

    /// Does some work without the lock.
    fn done<'a>(
        &'a self,
        state: MutexGuard<'a, State<S>>,
        mut work: Work<S>,
        thread: usize,
    ) -> MutexGuard<'a, State<S>> {
        drop(state);
        for batch in &mut work.batches {
            work.shard.take(batch);
        }
        if work.finish {
            work.shard.finish();
        }
        let mut state = self.lock();
        state.put_back(work, thread);
        if thread != CALLER {
            self.room.notify_one();
        }
        if state.left == 0 {
            self.work.notify_all();
        } else if !state.ready.is_empty() {
            self.work.notify_one();
        }
        state
    }

    /// Nothing that panics is done under the lock.
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, on: &Condvar, state: MutexGuard<'a, State<S>>) -> MutexGuard<'a, State<S>> {
        on.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Threads are to end when they have done what they are at.
    fn stop(&self) {
        self.lock().broken = true;
        self.work.notify_all();
        self.room.notify_all();
    }
}

/// Says so when its thread panics.
struct Broken<'a, S: Shard>(&'a Shared<S>);

impl<S: Shard> Drop for Broken<'_, S> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<S: Shard> State<S> {
    fn put(&mut self, number: usize, batch: S::Batch) {
        let place = &mut self.places[number];
        if place.batches.is_empty() && place.shard.is_some() {
            self.ready.push_back(number);
        }
        place.batches.push_back(batch);
        self.waiting += 1;
    }

    /// All shards that no thread has are to finish; the others when they come back.
    fn close(&mut self) {
        self.closing = true;
        for (number, place) in self.places.iter().enumerate() {
            if place.batches.is_empty() && place.shard.is_some() {
                self.ready.push_back(number);
            }
        }
    }

    /// Work for a thread: of a shard that it had before, or of the one that has waited longest.
    fn take(&mut self, thread: usize) -> Option<Work<S>> {
        let own = |&number: &usize| self.places[number].last == thread;
        let at = self.ready.iter().position(own).unwrap_or(0);
        let number = self.ready.remove(at)?;
        let place = &mut self.places[number];
        let batches = mem::take(&mut place.batches);
        self.waiting -= batches.len();
        Some(Work {
            number,
            shard: place.shard.take()?,
            batches,
            finish: self.closing,
        })
    }

    fn put_back(&mut self, work: Work<S>, thread: usize) {
        let place = &mut self.places[work.number];
        place.shard = Some(work.shard);
        place.last = thread;
        if work.finish {
            place.finished = true;
            self.left -= 1;
        } else if !place.batches.is_empty() || self.closing {
            self.ready.push_back(work.number);
        }
        // No more than were waiting and in threads' hands at a time.
        self.spare.extend(work.batches);
    }
}

/// The number of the thread that gives.
const CALLER: usize = 0;
/// Batches that may wait for each shard, on average.
const WAITING_EACH: usize = 4;
