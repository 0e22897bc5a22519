//! How a thread that must wake in time may run before all others and still starve nobody.
//!
//! A forwarder that has time to rest is urgent: when it wakes, a frame is due. Resting is sleeping, or
//! spinning where the next frame is too near for sleep. One that hardly rests cannot keep up anyway,
//! and goes on as an ordinary thread until it rests again; judged over windows of 100 ms. One that spins
//! naps now and then, so that what the kernel has to do on its CPU is done; what can move to another
//! CPU does.

use units::{Duration, Instant};

/// Watches one thread's rest.
#[derive(Debug)]
pub(crate) struct Urgency {
    since: Instant,
    rested: Duration,
    /// When it last slept.
    slept_at: Instant,
    urgent: bool,
    /// When it last looked whether others wait for a CPU.
    looked_at: Option<Instant>,
    /// Until then they are taken to.
    crowded_until: Instant,
}

impl Urgency {
    /// Of a thread that is urgent from `now` on.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            rested: Duration::ZERO,
            slept_at: now,
            urgent: true,
            looked_at: None,
            crowded_until: now,
        }
    }

    /// It slept from one time to another.
    pub(crate) fn sleep(&mut self, from: Instant, to: Instant) {
        self.spin(from, to);
        self.slept_at = to;
    }

    /// It had nothing to do from one time to another, and kept its CPU.
    pub(crate) fn spin(&mut self, from: Instant, to: Instant) {
        self.rested = self.rested + to.saturating_since(from);
    }

    /// Whether it has kept its CPU for so long that it is to nap, whatever is due. `crowded` is asked now
    /// and then whether others wait for a CPU.
    pub(crate) fn owes_nap(&mut self, now: Instant, crowded: impl FnOnce() -> bool) -> bool {
        let awake = now.saturating_since(self.slept_at);
        if !self.urgent || awake < AWAKE_MAX {
            return false;
        }
        if self
            .looked_at
            .is_none_or(|at| now.saturating_since(at) >= LOOK_EACH)
        {
            self.looked_at = Some(now);
            if crowded() {
                self.crowded_until = now + CROWDED_FOR;
            }
        }
        awake >= AWAKE_ALONE_MAX || now < self.crowded_until
    }

    /// Whether it is to be urgent from `now` on, where that changes.
    pub(crate) fn judge(&mut self, now: Instant) -> Option<bool> {
        let window = now.saturating_since(self.since);
        if window < WINDOW {
            return None;
        }
        let urgent = self.rested >= Duration::from_ns(window.as_ns() / REST_PART);
        (self.since, self.rested) = (now, Duration::ZERO);
        let changed = urgent != self.urgent;
        self.urgent = urgent;
        changed.then_some(urgent)
    }
}

/// How long a nap lasts at least: five full frames at 1 Gb/s are late then and leave one behind the
/// other. Where others wait for a CPU, with [`AWAKE_MAX`], it leaves ordinary threads 6 % of the CPU: where
/// they get less than 5 % of a second, the kernel takes the rest at a stroke, 50 ms of it
/// (kernel/sched/deadline.c, the fair server, Linux 6.8).
pub(crate) const NAP: Duration = Duration::from_us(60);
const AWAKE_MAX: Duration = Duration::from_ms(1);
/// A look takes some 5 us, and sees one moment: each 100 ms missed most of the waiting of two ends that
/// wait for each other, and 1 % of the frames were 2 to 17 ms late.
const LOOK_EACH: Duration = Duration::from_ms(10);
/// The kernel grants by the second.
const CROWDED_FOR: Duration = Duration::from_s(1);
/// Where nobody waits: for what the kernel alone has to do.
const AWAKE_ALONE_MAX: Duration = Duration::from_ms(20);
const WINDOW: Duration = Duration::from_ms(100);
/// A tenth: the kernel lets real-time threads have 95 % of a second at most
/// (kernel.sched_rt_runtime_us), and stops them for the rest of it.
const REST_PART: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn a_thread_that_rests_a_tenth_stays_urgent() {
        let mut urgency = Urgency::new(at(0));
        for window in 1..=10 {
            let end = 100_000 * window;
            urgency.sleep(at(end - 10_000), at(end - 5_000));
            urgency.spin(at(end - 5_000), at(end));
            assert_eq!(urgency.judge(at(end)), None);
        }
    }

    #[test]
    fn one_that_rests_less_is_ordinary_until_it_rests_again() {
        let mut urgency = Urgency::new(at(0));
        urgency.spin(at(0), at(9_999));
        assert_eq!(urgency.judge(at(99_999)), None);
        assert_eq!(urgency.judge(at(100_000)), Some(false));
        // Still busy: nothing changes, and a late look makes the window longer.
        assert_eq!(urgency.judge(at(200_000)), None);
        urgency.sleep(at(200_000), at(215_000));
        assert_eq!(urgency.judge(at(360_000)), None);
        urgency.sleep(at(360_000), at(370_000));
        assert_eq!(urgency.judge(at(460_000)), Some(true));
    }

    #[test]
    fn spinning_owes_a_nap_and_sooner_where_others_wait() {
        let mut urgency = Urgency::new(at(0));
        let not_asked = || -> bool { unreachable!() };
        assert!(!urgency.owes_nap(at(999), not_asked));
        assert!(!urgency.owes_nap(at(1_000), || false));
        assert!(!urgency.owes_nap(at(10_999), not_asked));
        assert!(!urgency.owes_nap(at(19_999), || false));
        assert!(urgency.owes_nap(at(20_000), not_asked));
        urgency.sleep(at(20_000), at(30_000));
        assert!(!urgency.owes_nap(at(30_999), not_asked));
        assert!(urgency.owes_nap(at(31_000), || true));
        // A look in which nobody waits says little: a second has to pass without any other.
        urgency.sleep(at(31_000), at(1_029_999));
        assert!(urgency.owes_nap(at(1_030_999), || false));
        assert!(!urgency.owes_nap(at(1_031_000), not_asked));
        assert!(urgency.owes_nap(at(1_049_999), || false));
        // An ordinary thread is taken off its CPU by the kernel.
        urgency.sleep(at(1_049_999), at(1_050_000));
        assert_eq!(urgency.judge(at(1_050_000)), None);
        assert_eq!(urgency.judge(at(1_150_000)), Some(false));
        assert!(!urgency.owes_nap(at(1_250_000), not_asked));
    }
}
