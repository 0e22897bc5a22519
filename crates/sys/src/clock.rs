//! Clocks: monotonic for schedules, real time for kernel stamps, and the offset between them.
//!
//! Kernel packet stamps are CLOCK_REALTIME; the lab's schedule is CLOCK_MONOTONIC. The offset moves
//! when somebody steps the real-time clock (NTP slews both alike), so it is read again every so often
//! (see [`RealtimeOffset`]).
//!
//! Source: clock_gettime(2), time_namespaces(7).

use std::mem;

use rustix::time::{ClockId, clock_gettime};
use units::{Duration, Instant};

/// CLOCK_MONOTONIC.
pub fn monotonic() -> Instant {
    Instant::from_ns(read(ClockId::Monotonic))
}

/// CLOCK_REALTIME in nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    read(ClockId::Realtime)
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    Duration::from_ns(read(ClockId::ThreadCPUTime))
}

/// CPU time of this process, all threads, user and kernel.
pub fn process_cpu() -> Duration {
    Duration::from_ns(read(ClockId::ProcessCPUTime))
}

/// CPU time of the calling thread in user space, as the kernel books it (getrusage(2)).
pub fn thread_cpu_user() -> Duration {
    of_timeval(usage(libc::RUSAGE_THREAD).ru_utime)
}

/// How often the calling thread gave up its CPU to wait for something (getrusage(2), `ru_nvcsw`).
/// Where its CPU was taken away does not count.
pub fn thread_waits() -> u64 {
    u64::try_from(usage(libc::RUSAGE_THREAD).ru_nvcsw).unwrap_or_default()
}

/// CPU time, user and kernel, of the children that this process has waited for, and of theirs
/// (getrusage(2)).
pub fn children_cpu() -> Duration {
    let usage = usage(libc::RUSAGE_CHILDREN);
    of_timeval(usage.ru_utime) + of_timeval(usage.ru_stime)
}

/// All zero where the kernel refuses.
fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: an all-zero rusage is valid.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is writable and of the type that the kernel fills in. It fails on an unknown `who`
    // only, before it writes.
    let _ = unsafe { libc::getrusage(who, &raw mut usage) };
    usage
}

fn of_timeval(time: libc::timeval) -> Duration {
    Duration::from_ns(timespec_ns(time.tv_sec, time.tv_usec.saturating_mul(1000)).unwrap_or(0))
}

/// Whether CLOCK_REALTIME follows an outer source, such as NTP, by the kernel's word: adjtimex(2)
/// says TIME_ERROR where nobody disciplines it.
pub fn is_synchronised() -> bool {
    // SAFETY: an all-zero timex is valid and, with no mode set, asks without changing anything.
    let mut question: libc::timex = unsafe { mem::zeroed() };
    // SAFETY: `question` is live and writable for the call.
    let state = unsafe { libc::adjtimex(&raw mut question) };
    state >= 0 && state != libc::TIME_ERROR
}

/// Seconds and nanoseconds as one number; `None` for a time before 1970 or out of range.
pub fn timespec_ns(seconds: i64, nanoseconds: i64) -> Option<u64> {
    let seconds = u64::try_from(seconds).ok()?;
    let nanoseconds = u64::try_from(nanoseconds).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Real time minus monotonic time.
#[derive(Clone, Copy, Debug)]
pub struct RealtimeOffset {
    offset_ns: u64,
}

impl RealtimeOffset {
    /// Reads both clocks, the monotonic one before and after, and keeps the tightest of a few
    /// readings: the error is below half of the shortest gap, some tens of nanoseconds.
    pub fn read() -> Self {
        let tightest = (0..5)
            .map(|_| {
                let before = monotonic().as_ns();
                let real = realtime_ns();
                let after = monotonic().as_ns();
                (
                    after - before,
                    real.saturating_sub(before + (after - before) / 2),
                )
            })
            .min_by_key(|&(gap, _)| gap);
        Self {
            offset_ns: tightest.map_or(0, |(_, offset)| offset),
        }
    }

    /// Real time at a monotonic instant, nanoseconds since 1970.
    pub const fn to_realtime(self, at: Instant) -> u64 {
        self.offset_ns + at.as_ns()
    }

    /// The monotonic instant of a real-time stamp.
    pub const fn to_monotonic(self, realtime_ns: u64) -> Instant {
        Instant::from_ns(realtime_ns.saturating_sub(self.offset_ns))
    }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    timespec_ns(time.tv_sec, time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_now_maps_between_two_monotonic_readings() {
        let offset = RealtimeOffset::read();
        let before = monotonic();
        let mapped = offset.to_monotonic(realtime_ns());
        let after = monotonic();
        // A stepped clock may break this; a slewed one moves far less than this slack.
        let slack = Duration::from_ms(1);
        assert!(mapped + slack >= before && mapped <= after + slack);
    }

    #[test]
    fn times_before_1970_are_refused() {
        assert_eq!(timespec_ns(-1, 0), None);
        assert_eq!(timespec_ns(1, 500), Some(1_000_000_500));
        assert_eq!(timespec_ns(i64::MAX, 0), None);
    }
}
