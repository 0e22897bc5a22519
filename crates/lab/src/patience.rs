//! How long a forwarder may let what is due wait for each other, where the machine has far more to do than CPUs.
//!
//! Alone, or beside two ends that wait for each other, it spins between frames that leave densely, and each leaves
//! to the microsecond. Where a dozen threads wait for two CPUs the same costs them half of what there is: of a copy
//! of 100,000 files over a path without a rate the forwarder took 0.75 of two CPUs, 0.4 of them to wait. So there it
//! looks at its work every now and then, and lets the others run meanwhile. By no more than every link's delay hides: a
//! 200th of the shortest, and not at all where that is less than a sleep takes.

use units::{Duration, Instant};

/// Watches how many threads can run.
#[derive(Debug)]
pub(crate) struct Patience {
    /// That it has where the machine is packed.
    most: Duration,
    /// So many threads that can run are more than the machine has time for.
    packed_above: u32,
    looked_at: Option<Instant>,
    /// What the last look saw was more.
    was_packed: bool,
    /// Until then the machine is taken to be packed.
    packed_until: Instant,
}

impl Patience {
    /// Of a forwarder whose shortest link has this delay, on a machine with so many CPUs.
    pub(crate) fn new(shortest: Duration, cpus: u32) -> Self {
        let share = Duration::from_ns(shortest.as_ns() / DELAY_PARTS);
        Self {
            most: if share < WORTH {
                Duration::ZERO
            } else {
                share.min(MOST)
            },
            packed_above: cpus.saturating_mul(PACKED_TIMES),
            looked_at: None,
            was_packed: false,
            packed_until: Instant::ZERO,
        }
    }

    /// How long what is due may wait at `now`. `runnable` is asked now and then how many threads can run, the
    /// caller's with them.
    pub(crate) fn at(&mut self, now: Instant, runnable: impl FnOnce() -> Option<u32>) -> Duration {
        if self.most == Duration::ZERO {
            return Duration::ZERO;
        }
        let due = |at| now.saturating_since(at) >= LOOK_EACH;
        if self.looked_at.is_none_or(due) {
            self.looked_at = Some(now);
            let is_packed = runnable().is_some_and(|n| n > self.packed_above);
            if is_packed && self.was_packed {
                self.packed_until = now + PACKED_FOR;
            }
            self.was_packed = is_packed;
        }
        if now < self.packed_until {
            self.most
        } else {
            Duration::ZERO
        }
    }
}

/// Of the shortest delay: a fourth of what a trusted lab's median may be late.
const DELAY_PARTS: u64 = 200;
/// Of paths of 50 ms one way and more: some twenty full frames at 1 Gb/s.
const MOST: Duration = Duration::from_us(250);
/// A sleep takes some 50 us longer than asked for.
const WORTH: Duration = Duration::from_us(100);
/// Threads that can run for each CPU, in two looks in a row. Of 500 looks at a measurement of one stream over 1 Gb/s, ends and
/// forwarder, none saw more; of a copy of many files two of three do, and of one of large files half.
const PACKED_TIMES: u32 = 3;
const LOOK_EACH: Duration = Duration::from_ms(10);
/// Looks that may see less meanwhile.
const PACKED_FOR: Duration = Duration::from_ms(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    #[test]
    fn what_is_due_waits_only_while_many_more_threads_than_cpus_can_run() {
        let mut patience = Patience::new(Duration::from_ms(50), 2);
        let not_asked = || -> Option<u32> { unreachable!() };
        for (ms, runnable) in [(0, 6), (10, 7), (20, 6), (30, 7)] {
            // One look says little.
            assert_eq!(patience.at(at(ms), || Some(runnable)), Duration::ZERO);
            assert_eq!(patience.at(at(ms + 9), not_asked), Duration::ZERO);
        }
        assert_eq!(patience.at(at(40), || Some(7)), MOST);
        assert_eq!(patience.at(at(49), not_asked), MOST);
        assert_eq!(patience.at(at(50), || Some(1)), MOST);
        assert_eq!(patience.at(at(339), || None), MOST);
        assert_eq!(patience.at(at(340), not_asked), Duration::ZERO);
    }

    #[test]
    fn a_short_link_leaves_no_room_for_it() {
        for (delay_us, waits_us) in [
            (0, 0),
            (19_999, 0),
            (20_000, 100),
            (30_000, 150),
            (90_000, 250),
        ] {
            let mut patience = Patience::new(Duration::from_us(delay_us), 2);
            patience.at(at(0), || Some(99));
            let waits = patience.at(at(10), || Some(99));
            assert_eq!(waits, Duration::from_us(waits_us), "{delay_us}");
        }
    }
}
