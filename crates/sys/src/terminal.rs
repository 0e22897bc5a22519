//! The size of the terminal.
//!
//! Source: ioctl_tty(2), TIOCGWINSZ.

use std::os::fd::{AsFd, AsRawFd};

/// Columns of the terminal behind `fd`, if it is one that knows.
pub fn columns(fd: impl AsFd) -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ fills in a winsize, which `size` is.
    let rc = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (rc == 0 && size.ws_col > 0).then(|| usize::from(size.ws_col))
}
