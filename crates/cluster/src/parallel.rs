//! Worlds on several threads, with the results of one, bit by bit.
//!
//! A [`World`] that can be split is run as parts, some for each thread. Each window, every thread runs its parts as far as
//! nothing from others can reach them, hands over what they sent, and waits for the others; who waits spins for a
//! moment, then lets others have the processor. That is all the threads have in common: what a part does depends on
//! what is in its mail, never on when it was handed over.

use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;

use fabric::{Mail, Part, Stuck, World};
use sys::threads;

/// Runs until all flows are done, as [`World::run`], on at most so many threads. A world that cannot be split, or is too
/// small to be worth it, runs on the caller's.
///
/// # Errors
/// [`Stuck`] when they never will be.
///
/// # Panics
/// As [`World::run`].
pub fn run(world: &mut World, threads: usize) -> Result<(), Stuck> {
    let threads = threads.min(world.rooms() / ROOMS_A_THREAD);
    run_in(world, threads, threads)
}

/// As [`run`], in at most so many parts whatever the size of the world.
///
/// # Errors
/// [`Stuck`] when flows never will be done.
///
/// # Panics
/// As [`World::run`].
pub fn run_in(world: &mut World, parts: usize, threads: usize) -> Result<(), Stuck> {
    let parts = world.split(parts);
    if parts.is_empty() {
        world.run_until(u64::MAX);
        return world.outcome();
    }
    world.join(drive(parts, threads.max(1)))
}

/// What threads share.
struct Shared {
    lookahead_ps: u64,
    threads: usize,
    /// By parity of the window, and sending and receiving part.
    mail: [Vec<Mutex<Mail>>; 2],
    /// By parity of the window and thread: before that nothing happens in its parts or its mail; [`u64::MAX`]: nothing
    /// does.
    next_ps: [Vec<AtomicU64>; 2],
    arrived: AtomicUsize,
    failed: AtomicBool,
}

/// Frees those who wait for a thread that panicked.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

fn drive(parts: Vec<Part>, threads: usize) -> Vec<Part> {
    let count = parts.len();
    let lookahead_ps = parts.first().map_or(0, Part::lookahead_ps);
    let slots = || (0..count * count).map(|_| Mutex::default()).collect();
    let times = |threads| (0..threads).map(|_| AtomicU64::new(0)).collect();
    let shared_by = |threads| Shared {
        lookahead_ps,
        threads,
        mail: [slots(), slots()],
        next_ps: [times(threads), times(threads)],
        arrived: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    };
    let shared = OnceLock::new();
    thread::scope(|scope| {
        // They wait for each other, so the shares are cut for as many as this host has threads for.
        let mut others = Vec::new();
        for _ in 1..threads.min(count) {
            let (give, given) = mpsc::channel::<(usize, Vec<Part>, &Shared)>();
            let works = move || {
                let (thread, mut own, shared) = given.recv().ok()?;
                shared.run(thread, &mut own, count);
                Some(own)
            };
            match threads::scoped(scope, "gp-fabric", works) {
                Ok(other) => others.push((give, other)),
                Err(_) => break,
            }
        }
        let threads = 1 + others.len();
        let shared = shared.get_or_init(|| shared_by(threads));
        let mut own = parts;
        let mut rest = own.split_off(share(0, threads, count).len());
        for (thread, (give, _)) in (1..).zip(&others) {
            let left = rest.split_off(share(thread, threads, count).len());
            let _ = give.send((thread, std::mem::replace(&mut rest, left), shared));
        }
        shared.run(0, &mut own, count);
        let mut done = own;
        for (_, other) in others {
            match other.join() {
                Ok(own) => done.extend(own.into_iter().flatten()),
                Err(panicked) => panic::resume_unwind(panicked),
            }
        }
        done
    })
}

/// Parts of a thread.
const fn share(thread: usize, threads: usize, parts: usize) -> std::ops::Range<usize> {
    parts * thread / threads..parts * (thread + 1) / threads
}

impl Shared {
    fn run(&self, thread: usize, own: &mut [Part], parts: usize) {
        let _alarm = Alarm(&self.failed);
        let mine = share(thread, self.threads, parts);
        let mut mail = Mail::default();
        let earliest = |own: &[Part]| own.iter().filter_map(Part::next_ps).min();
        let mut next = earliest(own);
        for window in 0.. {
            let (times, slots) = (&self.next_ps[window % 2], &self.mail[window % 2]);
            times[thread].store(next.unwrap_or(u64::MAX), Ordering::Release);
            if !self.wait((window + 1) * self.threads) {
                return;
            }
            for to in mine.clone() {
                for from in (0..parts).filter(|n| !mine.contains(n)) {
                    if let Ok(mut slot) = slots[from * parts + to].lock() {
                        own[to - mine.start].give(&mut slot);
                    }
                }
            }
            let all = times.iter().map(|t| t.load(Ordering::Acquire)).min();
            let Some(first) = all.filter(|t| *t < u64::MAX) else {
                return;
            };
            for part in &mut *own {
                part.run_before(first.saturating_add(self.lookahead_ps));
            }
            next = None;
            let slots = &self.mail[(window + 1) % 2];
            for from in mine.clone() {
                for to in 0..parts {
                    let part = &mut own[from - mine.start];
                    let Some(first) = part.mail_first_ps(to) else {
                        continue;
                    };
                    if mine.contains(&to) {
                        part.take(to, &mut mail);
                        own[to - mine.start].give(&mut mail);
                        own[from - mine.start].take(to, &mut mail);
                    } else if let Ok(mut slot) = slots[from * parts + to].lock() {
                        part.take(to, &mut slot);
                        next = Some(next.map_or(first, |next: u64| next.min(first)));
                    }
                }
            }
            next = next.into_iter().chain(earliest(own)).min();
        }
    }

    /// Waits until so many have come here; false when one of them never will.
    fn wait(&self, all: usize) -> bool {
        let mut here = self.arrived.fetch_add(1, Ordering::AcqRel) + 1;
        let mut spun = 0_u32;
        while here < all {
            if self.failed.load(Ordering::Acquire) {
                return false;
            }
            match spun {
                SPINS.. => thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
            spun = spun.saturating_add(1);
            here = self.arrived.load(Ordering::Acquire);
        }
        true
    }
}

/// Some microseconds: windows of threads with equal work end that close together.
const SPINS: u32 = 2_000;
/// Rooms of a thread below which waiting for each other costs more than a second thread gains; measured.
const ROOMS_A_THREAD: usize = 200;

#[cfg(test)]
mod tests;
