//! Ctrl-C as an ordinary event: signals are blocked in every thread and one thread waits for them.
//!
//! Source: sigwait(3), pthread_sigmask(3), signal(7).

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// A request to stop, from the keyboard or from whoever manages the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Ctrl-C.
    Int,
    /// The polite kill.
    Term,
    /// The terminal went away.
    Hangup,
}

/// Blocks the signals that ask for an end in the calling thread and in those that it starts. Call it
/// before the first thread.
///
/// # Errors
/// As pthread_sigmask(3).
pub fn block_interrupts() -> io::Result<()> {
    let set = interrupts();
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    let rc = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(rc))
    }
}

/// Waits for a request to stop. They must have been blocked.
///
/// # Errors
/// As sigwait(3).
pub fn wait_for_interrupt() -> io::Result<Interrupt> {
    let set = interrupts();
    let mut signal = 0;
    // SAFETY: `set` is initialised and `signal` writable.
    let rc = unsafe { libc::sigwait(&raw const set, &raw mut signal) };
    match (rc, signal) {
        (0, libc::SIGINT) => Ok(Interrupt::Int),
        (0, libc::SIGHUP) => Ok(Interrupt::Hangup),
        (0, _) => Ok(Interrupt::Term),
        _ => Err(io::Error::from_raw_os_error(rc)),
    }
}

impl Interrupt {
    /// The exit code that shells expect of a program ended by this signal: 128 plus its number.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Hangup => 129,
            Self::Int => 130,
            Self::Term => 143,
        }
    }
}

/// The empty set.
pub(crate) fn none() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// The signals that ask for an end, but for those that whoever started us told us to ignore (nohup,
/// a shell's `&`): a blocked signal is never ignored, so waiting for them would undo that.
fn interrupts() -> libc::sigset_t {
    let mut set = none();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: sigaction with no new action only fills in the old one; sigaddset takes a valid
        // signal number and an initialised set.
        unsafe {
            let known = libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0;
            if !known || action.assume_init().sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&raw mut set, signal);
            }
        }
    }
    set
}
