//! The size of the terminal, and its keys one by one.
//!
//! Sources: ioctl_tty(2), TIOCGWINSZ; termios(3).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Columns of the terminal behind `fd`, if it is one that knows.
pub fn columns(fd: impl AsFd) -> Option<usize> {
    size(fd.as_fd())
        .map(|size| usize::from(size.ws_col))
        .filter(|&columns| columns > 0)
}

/// Rows of the terminal behind `fd`, if it is one that knows.
pub fn rows(fd: impl AsFd) -> Option<usize> {
    size(fd.as_fd())
        .map(|size| usize::from(size.ws_row))
        .filter(|&rows| rows > 0)
}

/// A terminal that hands over each key as it is pressed and shows none of them, until this is dropped.
#[derive(Debug)]
pub struct Keys<'a> {
    fd: BorrowedFd<'a>,
    before: libc::termios,
}

impl<'a> Keys<'a> {
    /// Takes the terminal behind `fd` out of its line mode (termios(3): ICANON and ECHO off). Signals of keys stay on, so that Ctrl-C
    /// still interrupts.
    ///
    /// # Errors
    /// `ENOTTY` when it is none.
    pub fn of(fd: BorrowedFd<'a>) -> io::Result<Self> {
        let mut before = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: tcgetattr fills in the termios that the pointer leads to, or fails.
        if unsafe { libc::tcgetattr(fd.as_raw_fd(), before.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above succeeded, so it is filled in.
        let before = unsafe { before.assume_init() };
        let mut keys = before;
        keys.c_lflag &= !(libc::ICANON | libc::ECHO);
        (keys.c_cc[libc::VMIN], keys.c_cc[libc::VTIME]) = (1, 0);
        set(fd, &keys)?;
        Ok(Self { fd, before })
    }
}

impl Drop for Keys<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs no mode.
        let _ = set(self.fd, &self.before);
    }
}

fn set(fd: BorrowedFd<'_>, mode: &libc::termios) -> io::Result<()> {
    // SAFETY: tcsetattr reads a termios, which `mode` is.
    match unsafe { libc::tcsetattr(fd.as_raw_fd(), libc::TCSANOW, mode) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn size(fd: BorrowedFd<'_>) -> Option<libc::winsize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ fills in a winsize, which `size` is.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (rc == 0).then_some(size)
}

/// Waits for something to read from `fd`, `ns` nanoseconds at most; whether there is (poll(2)).
///
/// # Errors
/// As poll(2); a signal is no error.
pub fn is_readable(fd: BorrowedFd<'_>, ns: u64) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let wait = Timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
    };
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
