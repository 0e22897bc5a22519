//! What all transfers of a server together may send to clients that have not proved a token.
//!
//! A token bucket without depth, as virtual scheduling (GCRA, ITU-T I.371): each block reserves the time that it takes at
//! the rate, behind those reserved before it, and leaves when that time begins. So the bound holds over all streams and
//! sessions, whatever sizes and numbers of them clients choose, but for one block.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sys::clock;
use units::{Duration, Instant, Rate};

use crate::wait::TICK;

/// A rate that many senders share.
#[derive(Debug)]
pub(crate) struct Ceiling {
    rate: Rate,
    /// When all that was reserved will have left.
    free_ns: AtomicU64,
}

/// Bytes of one block: no larger one leaves at once.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

impl Ceiling {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            free_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Reserves a block; when it may leave.
    fn reserve(&self, bytes: u64, now: Instant) -> Instant {
        let time = time_of(bytes, self.rate).as_ns();
        let take = |free: u64| Some(free.max(now.as_ns()).saturating_add(time));
        let free = self
            .free_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        now.max(Instant::from_ns(free.unwrap_or_default()))
    }

    /// Of a reserved block so much was not sent.
    pub(crate) fn give_back(&self, bytes: u64) {
        let time = time_of(bytes, self.rate).as_ns();
        let give = |free: u64| Some(free.saturating_sub(time));
        let given = self
            .free_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, give);
        debug_assert!(given.is_ok(), "always updates");
    }

    /// Waits until a block may leave; false when it is `over` before that.
    pub(crate) fn await_turn(&self, bytes: u64, over: &AtomicBool) -> bool {
        let at = self.reserve(bytes, clock::monotonic());
        loop {
            let wait = at.saturating_since(clock::monotonic());
            if wait == Duration::ZERO {
                return true;
            }
            if over.load(Ordering::Relaxed) {
                self.give_back(bytes);
                return false;
            }
            std::thread::sleep(wait.min(TICK).to_std());
        }
    }
}

/// When `bytes` at `rate` are due.
pub(crate) fn time_of(bytes: u64, rate: Rate) -> Duration {
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.as_bits_per_second().max(1));
    Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    #[test]
    fn blocks_leave_one_after_the_other_at_the_rate() {
        // A byte a microsecond.
        let ceiling = Ceiling::new(Rate::from_bits_per_second(8_000_000));
        assert_eq!(ceiling.reserve(1_000, at(50)), at(50));
        assert_eq!(ceiling.reserve(500, at(50)), at(1_050));
        assert_eq!(ceiling.reserve(1, at(1_549)), at(1_550));
        // Time that nobody used is not saved up.
        assert_eq!(ceiling.reserve(1_000, at(9_000)), at(9_000));
        assert_eq!(ceiling.reserve(1, at(9_000)), at(10_000));
    }

    #[test]
    fn what_was_not_sent_is_given_back() {
        let ceiling = Ceiling::new(Rate::from_bits_per_second(8_000_000));
        ceiling.reserve(1_000, at(0));
        ceiling.give_back(400);
        assert_eq!(ceiling.reserve(1, at(0)), at(600));
        let over = AtomicBool::new(true);
        let begun = clock::monotonic();
        ceiling.reserve(10_000_000, begun);
        assert!(!ceiling.await_turn(1_000, &over), "over before its turn");
        let free = begun + Duration::from_s(10);
        assert_eq!(ceiling.reserve(1, begun), free);
    }
}
