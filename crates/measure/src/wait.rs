//! Waits that end: a tick, after which everything that waits looks at its stop flag.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::Duration;

/// How often everything that waits looks at its stop flag: a stop is to be over in 200 ms.
pub(crate) const TICK: Duration = Duration::from_ms(50);

/// Waits until a socket is ready, the time is over or a signal came; all three are fine.
pub(crate) fn wait_for(stream: &impl AsFd, what: PollFlags, wait: Duration) -> io::Result<()> {
    match poll(&mut [PollFd::new(stream, what)], Some(&timespec(wait))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A wait for poll(2).
pub(crate) fn timespec(wait: Duration) -> Timespec {
    let seconds = i64::try_from(wait.as_ns() / 1_000_000_000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(wait.as_ns() % 1_000_000_000).unwrap_or(0);
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    }
}

/// The kernel's answer when a tick passed (SO_SNDTIMEO, SO_RCVTIMEO) or a signal came.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
