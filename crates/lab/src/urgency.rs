//! How a thread that must wake in time may run before all others and still starve nobody.
//!
//! A forwarder that has time to rest is urgent: when it wakes, a frame is due. Resting is sleeping, or
//! spinning where the next frame is too near for sleep. One that hardly rests cannot keep up anyway,
//! and goes on as an ordinary thread until it rests again; judged over windows of 100 ms. One that spins
//! naps now and then, so that what the kernel has to do on its CPU is done; what can move to another
//! CPU does.
//!
//! Spinning is no rest to the kernel: it stops a real-time thread that had its CPU for 95 % of a second until the
//! second is over, at a stroke. So one that sleeps too little is ordinary for 7 % of its time, 2 ms in
//! each 27, and where nobody waits for its CPU loses nothing by it.

use units::{Duration, Instant};

/// Watches one thread's rest.
#[derive(Debug)]
pub(crate) struct Urgency {
    since: Instant,
    rested: Duration,
    /// When it last slept.
    slept_at: Instant,
    /// It rested enough in the last window.
    rests: bool,
    urgent: bool,
    /// Time for which it is to be asleep or ordinary, and has not been.
    owed: Duration,
    owed_at: Instant,
    /// CPU time that it had taken then.
    cpu: Duration,
    /// It is ordinary until nothing is owed.
    pays: bool,
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
            rests: true,
            urgent: true,
            owed: Duration::ZERO,
            owed_at: now,
            cpu: Duration::ZERO,
            pays: false,
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

    /// Whether it is to be urgent from `now` on, where that changes. `cpu` is asked now and then what CPU time
    /// the thread has taken so far.
    pub(crate) fn judge(&mut self, now: Instant, cpu: impl FnOnce() -> Duration) -> Option<bool> {
        if now.saturating_since(self.owed_at) >= ACCOUNT_EACH {
            self.account(now, cpu());
        }
        let window = now.saturating_since(self.since);
        if window >= WINDOW {
            self.rests = self.rested >= Duration::from_ns(window.as_ns() / REST_PART);
            (self.since, self.rested) = (now, Duration::ZERO);
        }
        let urgent = self.rests && !self.pays;
        let changed = urgent != self.urgent;
        self.urgent = urgent;
        changed.then_some(urgent)
    }

    /// What the kernel has counted against it up to `now`. By CPU time: a short sleep costs the kernel as much as it
    /// lasts.
    fn account(&mut self, now: Instant, cpu: Duration) {
        let passed = now.saturating_since(self.owed_at).as_ns();
        let ran = match self.urgent {
            true => cpu.as_ns().saturating_sub(self.cpu.as_ns()).min(passed),
            false => 0,
        };
        let owed = self.owed.as_ns() + ran * OWED_PERCENT / 100;
        self.owed = Duration::from_ns(owed.saturating_sub(passed - ran));
        (self.owed_at, self.cpu) = (now, cpu);
        self.pays = match self.pays {
            true => self.owed > Duration::ZERO,
            false => self.owed >= OWED_MAX,
        };
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
/// A tenth.
const REST_PART: u64 = 10;
/// The kernel lets real-time threads have 95 % of a second (kernel.sched_rt_runtime_us; with groups of them in
/// every kernel, else up to Linux 6.11), and stops them for the rest of it: beside two flows of 100 Mb/s in all the
/// forwarder stood still for 25 ms each second. Of its time as a real-time thread.
const OWED_PERCENT: u64 = 8;
/// Half of the kernel's tick at 250 Hz: should somebody wait for this CPU, it is not given away for longer.
const OWED_MAX: Duration = Duration::from_ms(2);
const ACCOUNT_EACH: Duration = Duration::from_us(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    /// CPU time of a thread that gives it away as fast as it may, where a test is not about that.
    fn little(urgency: &mut Urgency, now: Instant) -> Option<bool> {
        let cpu = urgency.cpu;
        urgency.judge(now, || cpu)
    }

    #[test]
    fn a_thread_that_rests_a_tenth_stays_urgent() {
        let mut urgency = Urgency::new(at(0));
        for window in 1..=10 {
            let end = 100_000 * window;
            urgency.sleep(at(end - 10_000), at(end - 5_000));
            urgency.spin(at(end - 5_000), at(end));
            assert_eq!(little(&mut urgency, at(end)), None);
        }
    }

    #[test]
    fn one_that_rests_less_is_ordinary_until_it_rests_again() {
        let mut urgency = Urgency::new(at(0));
        urgency.spin(at(0), at(9_999));
        assert_eq!(little(&mut urgency, at(99_999)), None);
        assert_eq!(little(&mut urgency, at(100_000)), Some(false));
        // Still busy: nothing changes, and a late look makes the window longer.
        assert_eq!(little(&mut urgency, at(200_000)), None);
        urgency.sleep(at(200_000), at(215_000));
        assert_eq!(little(&mut urgency, at(360_000)), None);
        urgency.sleep(at(360_000), at(370_000));
        assert_eq!(little(&mut urgency, at(460_000)), Some(true));
    }

    /// Ten seconds of a thread that always has something to spin for and is off its CPU for `off` us of each ms; when it
    /// became ordinary or urgent, in us.
    fn ten_seconds(off: u64) -> Vec<(u64, bool)> {
        let mut urgency = Urgency::new(at(0));
        let mut changes = Vec::new();
        for ms in 0..10_000 {
            urgency.spin(at(1_000 * ms), at(1_000 * (ms + 1)));
            let now = 1_000 * (ms + 1);
            let cpu = Duration::from_us((1_000 - off) * (ms + 1));
            let change = urgency.judge(at(now), || cpu);
            changes.extend(change.map(|urgent| (now, urgent)));
        }
        changes
    }

    #[test]
    fn one_that_never_sleeps_is_urgent_for_less_than_the_kernel_grants() {
        let (mut urgent, mut longest, mut since) = (0, 0, 0);
        for (now, to) in ten_seconds(0) {
            if to {
                since = now;
            } else {
                urgent += now - since;
                longest = longest.max(now - since);
            }
        }
        assert!((9_000_000..9_500_000).contains(&urgent), "{urgent}");
        assert!(longest <= 26_000, "{longest}");
    }

    #[test]
    fn one_that_gives_8_percent_away_is_always_urgent() {
        assert_eq!(ten_seconds(80), []);
        assert!(!ten_seconds(60).is_empty());
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
        assert_eq!(little(&mut urgency, at(1_050_000)), None);
        assert_eq!(little(&mut urgency, at(1_150_000)), Some(false));
        assert!(!urgency.owes_nap(at(1_250_000), not_asked));
    }
}
