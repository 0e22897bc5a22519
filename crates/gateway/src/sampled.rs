//! Connections that pass unsplit so that the model of the unsplit path can be held against them: about every n-th,
//! by a hash of its ends, so that copies of its SYN go where the first went.
//!
//! They are forwarded like any other packet; what they carry is counted by the kernel, by two rules for each of a
//! few at a time, and read once a second. Payload is what is counted less the headers of IP and TCP, with
//! timestamps; acknowledgments alone come out as nothing.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use serde::{Deserialize, Serialize};
use sys::clock;
use sys::nftables::{At, Chain, Counted, Expression, Owned, Table, counted};
use sys::threads;
use units::{Bytes, Duration, Instant, Rate};

use crate::syn::Ends;

/// A connection that passed unsplit and was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// Who connected.
    pub client: SocketAddr,
    /// To whom.
    pub server: SocketAddr,
    /// Payload from the client, from the server.
    pub carried: [u64; 2],
    /// Of the way that carried more, from the first second in which it did to the last, bits a second.
    pub rate_bps: u64,
    /// So long.
    pub moving_ms: u64,
}

/// Which connections those are, and what was counted of them.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// That were let pass of late: a SYN that is sent again is no other connection.
    passed: VecDeque<Ends>,
    /// Chosen and not yet counted.
    chosen: Vec<Ends>,
    /// Counted, the newest last.
    seen: Vec<Sampled>,
}

/// The thread that counts; dropping ends it, and with it what is in the kernel.
#[derive(Debug)]
pub(crate) struct Sampler {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What workers tell it.
pub(crate) type Shared = Arc<Mutex<Samples>>;

/// Whether a connection of that hash is one of them.
pub(crate) const fn is_one(hash: u64, every: u32) -> bool {
    // The lower bits choose the worker: what is left of them says nothing.
    (hash >> 20).is_multiple_of(every as u64)
}

impl Samples {
    /// A connection is let pass; false where it was already, and its SYN is sent again. Where too many wait to be counted, it is
    /// not counted.
    pub(crate) fn choose(&mut self, ends: Ends) -> bool {
        if self.passed.contains(&ends) {
            return false;
        }
        if self.passed.len() == PASSED {
            self.passed.pop_front();
        }
        self.passed.push_back(ends);
        if self.chosen.len() < AT_ONCE {
            self.chosen.push(ends);
        }
        true
    }

    /// As they stand, the newest first.
    pub(crate) fn all(&self) -> Vec<Sampled> {
        self.seen.iter().rev().cloned().collect()
    }

    fn note(&mut self, sampled: Sampled) {
        let same = |s: &Sampled| s.client == sampled.client && s.server == sampled.server;
        match self.seen.iter_mut().find(|s| same(s)) {
            Some(known) => *known = sampled,
            None => {
                if self.seen.len() == KEPT {
                    self.seen.remove(0);
                }
                self.seen.push(sampled);
            }
        }
    }
}

impl Sampler {
    /// Starts it in the namespace of the calling thread.
    ///
    /// # Errors
    /// When a thread cannot be had.
    pub(crate) fn start(name: String, samples: Shared) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let thread = threads::spawn("gp-sampled", move || {
            let mut counting = Vec::new();
            let mut next = clock::monotonic();
            while !flag.load(Ordering::Relaxed) {
                let now = clock::monotonic();
                take_up(&name, &samples, &mut counting, now);
                if now >= next {
                    next = now + SECOND;
                    counting.retain_mut(|one| one.look(&samples, now));
                }
                thread::sleep(LOOK);
            }
        })?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(samples: &Shared) -> std::sync::MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to count those that were chosen, as far as there is room.
fn take_up(name: &str, samples: &Shared, counting: &mut Vec<Counting>, now: Instant) {
    let chosen = std::mem::take(&mut lock(samples).chosen);
    for ends in chosen {
        if counting.len() == AT_ONCE || counting.iter().any(|c| c.ends == ends) {
            continue;
        }
        let free = (0..AT_ONCE).find(|n| counting.iter().all(|c| c.place != *n));
        let Some(place) = free else { continue };
        match Counting::begin(name, place, ends, now) {
            Ok(one) => counting.push(one),
            Err(e) => tracing::warn!("{} is not counted: {e}", ends.client),
        }
    }
}

/// One that is counted.
struct Counting {
    place: usize,
    ends: Ends,
    table: Owned,
    name: String,
    begun: Instant,
    motion: Motion,
}

/// What has been counted of one.
#[derive(Debug)]
struct Motion {
    /// There, back.
    payload: [u64; 2],
    /// Since when, until when it moved.
    moving: Option<(Instant, Instant)>,
    /// What it had by the beginning of that.
    before: [u64; 2],
    looked: Instant,
}

impl Motion {
    const fn new(now: Instant) -> Self {
        Self {
            payload: [0; 2],
            moving: None,
            before: [0; 2],
            looked: now,
        }
    }

    /// Takes in what was counted by now.
    fn take(&mut self, now: Instant, payload: [u64; 2]) {
        // Headers without timestamps are shorter than is thought, so that acknowledgments alone take something away.
        let payload = [0, 1].map(|n| payload[n].max(self.payload[n]));
        let more: u64 = (0..2).map(|n| payload[n] - self.payload[n]).sum();
        if more >= MOVES {
            let (since, before) = match self.moving {
                Some((since, _)) => (since, self.before),
                None => (self.looked, self.payload),
            };
            self.moving = Some((since, now));
            self.before = before;
        }
        (self.payload, self.looked) = (payload, now);
    }

    /// Of the way that carried more while it moved, and how long that was.
    fn rate(&self) -> Option<(Rate, Duration)> {
        let (since, until) = self.moving?;
        let time = until.saturating_since(since);
        let carried = [0, 1].map(|n| self.payload[n] - self.before[n]);
        let most = Bytes::new(carried[0].max(carried[1]));
        Some((Rate::average(most, time), time))
    }
}

impl Counting {
    fn begin(gateway: &str, place: usize, ends: Ends, now: Instant) -> io::Result<Self> {
        let name = format!("{gateway}-sample-{place}");
        let rule = |from, to| vec![Expression::Flow(from, to), Expression::Count];
        let table = Owned::install(&Table {
            name: name.clone(),
            chains: vec![Chain {
                name: "count".into(),
                at: At::Prerouting,
                // Behind all that may drop or divert.
                priority: -149,
                rules: vec![
                    rule(ends.client, ends.server),
                    rule(ends.server, ends.client),
                ],
            }],
        })?;
        Ok(Self {
            place,
            ends,
            table,
            name,
            begun: now,
            motion: Motion::new(now),
        })
    }

    /// Reads what was counted; false when it has come to its end.
    fn look(&mut self, samples: &Shared, now: Instant) -> bool {
        let Ok(counts) = counted(&self.name) else {
            return false;
        };
        let [there, back] = counts.as_slice() else {
            return false;
        };
        let payload = [there, back].map(|c| payload(*c, self.ends.server));
        self.motion.take(now, payload);
        if let Some((rate, time)) = self.motion.rate() {
            lock(samples).note(Sampled {
                client: self.ends.client,
                server: self.ends.server,
                carried: self.motion.payload,
                rate_bps: rate.as_bits_per_second(),
                moving_ms: time.as_ns() / 1_000_000,
            });
        }
        let last = self.motion.moving.map_or(self.begun, |(_, until)| until);
        let goes_on =
            now.saturating_since(last) < REST && now.saturating_since(self.begun) < LONGEST;
        if !goes_on {
            tracing::debug!("{:?}: counted", self.table);
        }
        goes_on
    }
}

/// What the kernel counted less the headers.
fn payload(counted: Counted, server: SocketAddr) -> u64 {
    let headers = if server.is_ipv4() { 20 + 32 } else { 40 + 32 };
    counted
        .bytes
        .saturating_sub(counted.packets.saturating_mul(headers))
}

const SECOND: Duration = Duration::from_s(1);
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);
/// Counted at a time: every packet that comes in passes two comparisons for each.
const AT_ONCE: usize = 8;
/// Remembered.
const KEPT: usize = 32;
/// Of which a SYN that comes again is known: those of some seconds.
const PASSED: usize = 256;
/// Bytes of a second that are no mere signs of life.
const MOVES: u64 = 16 << 10;
/// Then its place is another's.
const REST: Duration = Duration::from_s(5);
const LONGEST: Duration = Duration::from_s(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        Ends {
            client: ([10, 0, 0, 1], port).into(),
            server: ([10, 0, 0, 2], 80).into(),
        }
    }

    #[test]
    fn about_every_nth_is_one_and_always_the_same() {
        let hashes: Vec<u64> = (0..10_000_u16)
            .map(|n| crate::links::hash(ends(n)))
            .collect();
        for every in [1, 2, 10, 100] {
            let chosen = hashes.iter().filter(|h| is_one(**h, every)).count();
            let wanted = 10_000 / every as usize;
            assert!(chosen.abs_diff(wanted) <= wanted / 3, "{every}: {chosen}");
        }
    }

    #[test]
    fn those_that_wait_and_those_that_were_seen_are_bounded() {
        let mut samples = Samples::default();
        for port in 1..=100 {
            assert!(samples.choose(ends(port)));
            assert!(!samples.choose(ends(port)), "its SYN is sent again");
            samples.note(Sampled {
                client: ends(port).client,
                server: ends(port).server,
                carried: [u64::from(port), 0],
                rate_bps: 1,
                moving_ms: 1,
            });
        }
        assert_eq!(samples.chosen.len(), AT_ONCE);
        for port in 101..=400 {
            samples.choose(ends(port));
        }
        assert_eq!(samples.passed.len(), PASSED);
        assert!(samples.choose(ends(1)), "forgotten");
        let all = samples.all();
        assert_eq!((all.len(), all[0].carried[0]), (KEPT, 100));
    }

    #[test]
    fn acknowledgments_without_timestamps_take_nothing_away() {
        let at = |s: u64| Instant::from_ns(s * 1_000_000_000);
        let mut motion = Motion::new(at(0));
        motion.take(at(1), [900, 5_000]);
        assert_eq!(motion.rate(), None);
        // The server only acknowledges: 40 bytes where 52 are thought.
        motion.take(at(2), [1_000_900, 0]);
        motion.take(at(3), [2_000_900, 0]);
        let (rate, time) = motion.rate().unwrap();
        assert_eq!(
            (rate.as_bits_per_second(), time),
            (8_000_000, Duration::from_s(2))
        );
        assert_eq!(motion.payload, [2_000_900, 5_000]);
    }

    #[test]
    fn headers_are_no_payload() {
        let of = |bytes, packets| payload(Counted { packets, bytes }, ends(1).server);
        assert_eq!(of(1_500, 1), 1_448);
        assert_eq!(of(52 * 7, 7), 0);
        assert_eq!(of(40, 1), 0, "a SYN without options");
    }
}
