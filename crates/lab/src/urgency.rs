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
    /// Others wait for a CPU.
    crowded: bool,
}

impl Urgency {
    /// Of a thread that is urgent from `now` on.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            rested: Duration::ZERO,
            slept_at: now,
            urgent: true,
            crowded: false,
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

    /// Whether it has kept its CPU for so long that it is to nap, whatever is due.
    pub(crate) fn owes_nap(&self, now: Instant) -> bool {
        let awake_max = match self.crowded {
            true => AWAKE_MAX,
            false => AWAKE_ALONE_MAX,
        };
        self.urgent && now.saturating_since(self.slept_at) >= awake_max
    }

    /// Whether it is to be urgent from `now` on, where that changes. `crowded` is asked at the end of a
    /// window whether others wait for a CPU.
    pub(crate) fn judge(&mut self, now: Instant, crowded: impl FnOnce() -> bool) -> Option<bool> {
        let window = now.saturating_since(self.since);
        if window < WINDOW {
            return None;
        }
        let urgent = self.rested >= Duration::from_ns(window.as_ns() / REST_PART);
        (self.since, self.rested) = (now, Duration::ZERO);
        self.crowded = crowded();
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
            assert_eq!(urgency.judge(at(end), || false), None);
        }
    }

    #[test]
    fn one_that_rests_less_is_ordinary_until_it_rests_again() {
        let mut urgency = Urgency::new(at(0));
        urgency.spin(at(0), at(9_999));
        assert_eq!(urgency.judge(at(99_999), || false), None);
        assert_eq!(urgency.judge(at(100_000), || false), Some(false));
        // Still busy: nothing changes, and a late look makes the window longer.
        assert_eq!(urgency.judge(at(200_000), || false), None);
        urgency.sleep(at(200_000), at(215_000));
        assert_eq!(urgency.judge(at(360_000), || false), None);
        urgency.sleep(at(360_000), at(370_000));
        assert_eq!(urgency.judge(at(460_000), || false), Some(true));
    }

    #[test]
    fn spinning_owes_a_nap_and_sooner_where_others_wait() {
        let mut urgency = Urgency::new(at(0));
        urgency.spin(at(0), at(19_999));
        assert!(!urgency.owes_nap(at(19_999)));
        assert!(urgency.owes_nap(at(20_000)));
        urgency.sleep(at(20_000), at(100_000));
        assert_eq!(urgency.judge(at(100_000), || true), None);
        assert!(!urgency.owes_nap(at(100_999)));
        assert!(urgency.owes_nap(at(101_000)));
        // An ordinary thread is taken off its CPU by the kernel.
        assert_eq!(urgency.judge(at(250_000), || true), Some(false));
        assert!(!urgency.owes_nap(at(260_000)));
    }
}
