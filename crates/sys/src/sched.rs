//! What a thread that must wake in time can ask of the kernel, and precise waiting.
//!
//! Everything here is best effort: without the privilege the lab runs all the same and its
//! certificate shows what that cost.
//!
//! Sources: sched(7), setpriority(2), prctl(2) PR_SET_TIMERSLACK, Linux
//! Documentation/power/pm_qos_interface.rst (/dev/cpu_dma_latency).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
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

/// Gives the calling thread the highest ordinary priority and the finest timers that it may have.
/// Real-time classes are not used: a spinning real-time thread can starve the kernel's own.
pub fn prefer_this_thread() {
    // SAFETY: setpriority(PRIO_PROCESS, 0) acts on the calling thread; prctl sets its timer slack.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
}

/// Sleeps until one of `fds` is readable or the time is over; true when one is readable.
///
/// # Errors
/// As ppoll(2), except that an interruption by a signal is `Ok(false)`.
pub fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Duration,
) -> io::Result<bool> {
    let mut polls = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let ns = timeout.as_ns();
    let timeout = Timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
    };
    match rustix::event::poll(&mut polls, Some(&timeout)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
