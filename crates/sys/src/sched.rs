//! What a thread that must wake in time can ask of the kernel, and precise waiting.
//!
//! Everything here is best effort: without the privilege the lab runs all the same and its
//! certificate shows what that cost.
//!
//! Sources: sched(7), setpriority(2), prctl(2) PR_SET_TIMERSLACK, Linux
//! Documentation/power/pm_qos_interface.rst (/dev/cpu_dma_latency).

use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::thread::CpuSet;
use units::Duration;

/// Holds the CPUs out of deep sleep states while it lives.
#[derive(Debug)]
pub struct AwakeCpus {
    _file: File,
}

impl AwakeCpus {
    /// Asks for a wake-up latency of zero; `None` where the host does not allow it.
    pub fn hold() -> Option<Self> {
        let mut file = File::options()
            .write(true)
            .open("/dev/cpu_dma_latency")
            .ok()?;
        file.write_all(&0_i32.to_ne_bytes()).ok()?;
        Some(Self { _file: file })
    }
}

/// Lets the calling thread run before all ordinary ones as soon as it wakes (SCHED_RR at its lowest
/// priority), or be one of them again. False where the kernel refuses: without CAP_SYS_NICE or a limit
/// on real-time priority, or in a control group without real-time budget.
///
/// An ordinary thread, however preferred, waits until the kernel's tick looks who is next, 4 ms at
/// 250 Hz. A real-time one that never sleeps starves the kernel's own threads on its CPU: whoever asks
/// for this is to watch how much it sleeps.
pub fn set_urgent(urgent: bool) -> bool {
    if !urgent {
        // Of both: without CAP_SYS_NICE the flag cannot be taken back, and asking for it is refused.
        return set_ordinary(SLICE_LEAST, SCHED_FLAG_RESET_ON_FORK);
    }
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: an all-zero sched_param is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 1;
    // SAFETY: 0 is the calling thread; the kernel only reads `param`.
    unsafe { libc::sched_setscheduler(0, policy, &raw const param) == 0 }
}

/// Gives the calling thread the highest ordinary priority, the shortest slice of time and the finest timers that it
/// may have.
pub fn prefer_this_thread() {
    // SAFETY: setpriority(PRIO_PROCESS, 0) acts on the calling thread; prctl sets its timer slack.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
    set_ordinary(SLICE_LEAST, 0);
}

/// Lets the calling thread, and those that it starts, run as soon as they wake though others have the CPUs busy: as a
/// host of its own would. Before ordinary ones where the kernel allows it (a nice value of -15); else by the slice of
/// time that it asks for: among equals that wait, the one with the shortest goes first (sched(7), Linux 6.12
/// kernel/sched/fair.c, `PREEMPT_SHORT`). Changes nothing on an idle machine.
pub fn run_like_a_host() {
    // SAFETY: setpriority(PRIO_PROCESS, 0) acts on the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) };
    set_ordinary(SLICE_SHORT, 0);
}

/// Makes the calling thread one of the ordinary ones, with its nice value and a slice of time. False where the kernel
/// refuses; one before 6.12 leaves the slice out.
fn set_ordinary(slice: Duration, flags: u64) -> bool {
    let attributes = SchedAttr {
        size: u32::try_from(size_of::<SchedAttr>()).unwrap_or(0),
        flags,
        // SAFETY: getpriority(PRIO_PROCESS, 0) asks about the calling thread.
        nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) },
        runtime_ns: slice.as_ns(),
        ..SchedAttr::default()
    };
    // SAFETY: 0 is the calling thread; the kernel reads `size` bytes of `attributes`.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// As the kernel lays it out (sched_setattr(2), its first version).
#[repr(C)]
#[derive(Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Gives way to other threads: the calling one does what has time. A nice value of 10, or what it has where that is more.
pub fn defer_this_thread() {
    // SAFETY: getpriority(PRIO_PROCESS, 0) and setpriority(PRIO_PROCESS, 0) are about the calling thread.
    unsafe {
        let has = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, has.max(10));
    }
}

/// A set of descriptors of which one asks which can be read.
#[derive(Debug)]
pub struct Readable {
    epoll: OwnedFd,
}

impl Readable {
    /// Watches `fds`, which must stay open while this lives.
    ///
    /// # Errors
    /// As epoll_create1(2) and epoll_ctl(2).
    pub fn new<'f>(fds: impl Iterator<Item = BorrowedFd<'f>>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, fd) in (0..).zip(fds) {
            let data = epoll::EventData::new_u64(number);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll })
    }

    /// Sleeps until one can be read or the time is over, to the nanosecond; true when one can.
    ///
    /// # Errors
    /// As ppoll(2), except that an interruption by a signal reads as nothing ready.
    pub fn sleep(&self, timeout: Duration) -> io::Result<bool> {
        let ns = timeout.as_ns();
        let timeout = Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        };
        // epoll_wait rounds to milliseconds; the set itself can be polled.
        let mut set = [PollFd::new(&self.epoll, PollFlags::IN)];
        match rustix::event::poll(&mut set, Some(&timeout)) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Fills `ready` with the numbers of those that can be read now, at most 64 of them.
    ///
    /// # Errors
    /// As epoll_wait(2), except that an interruption by a signal reads as nothing ready.
    pub fn which(&self, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut space, Some(&at_once)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let numbers = events.iter().map(|e| e.data.u64());
        ready.extend(numbers.filter_map(|n| usize::try_from(n).ok()));
        Ok(())
    }
}

/// CPUs that the calling thread may run on, ascending.
pub fn cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// Keeps the calling thread on one CPU.
///
/// # Errors
/// As sched_setaffinity(2).
pub fn pin_this_thread(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The kernel's own slice is 2.8 ms on two CPUs.
const SLICE_SHORT: Duration = Duration::from_us(500);
/// It takes no shorter one.
const SLICE_LEAST: Duration = Duration::from_us(100);
/// linux/sched.h.
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;
/// Descriptors told in one call; the others are told in the next.
const EVENTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_urgent_thread_is_of_the_round_robin_class_until_it_is_ordinary_again() {
        // SAFETY: asks for the calling thread's class.
        let class = || unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        let thread = std::thread::spawn(move || {
            if !set_urgent(true) {
                assert_eq!(class(), libc::SCHED_OTHER);
                return testing::skipped("no right to a real-time class");
            }
            assert_eq!(class(), libc::SCHED_RR);
            assert!(set_urgent(false));
            assert_eq!(class(), libc::SCHED_OTHER);
        });
        thread.join().unwrap();
    }
}
