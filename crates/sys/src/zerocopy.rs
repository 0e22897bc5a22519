//! Sending without copying: MSG_ZEROCOPY, and the notifications that say when the kernel has let go
//! of the pages.
//!
//! Each send that took bytes has a number, counted from 0 in a socket; notifications name ranges of
//! them, in any order, each number once. Until then the bytes must stay as they are: what changes
//! may change on the wire. They may be freed (the kernel holds the pages), but what is allocated
//! there next would travel.
//!
//! Sources: Linux Documentation/networking/msg_zerocopy.rst, net/core/skbuff.c (`msg_zerocopy_*`).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::cmsg;

/// A notification: the sends of a range are done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// First of them.
    pub first: u32,
    /// Last of them; below `first` where the count wrapped at 2^32 between.
    pub last: u32,
    /// The kernel copied after all, at least part of it, such as for a receiver on this machine.
    pub copied: bool,
}

impl Completion {
    /// Number of sends.
    pub fn count(&self) -> u64 {
        u64::from(self.last.wrapping_sub(self.first)) + 1
    }
}

/// Allows a socket to send without copying (SO_ZEROCOPY).
///
/// # Errors
/// `ENOTSUPP` or `EOPNOTSUPP` for sockets other than TCP and UDP; `ENOPROTOOPT` before Linux 4.14.
pub fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    crate::packet::set_option(fd, libc::SOL_SOCKET, SO_ZEROCOPY, 1)
}

/// Sends without copying, once [`enable`]d. The bytes must not change until the notification.
///
/// # Errors
/// `ENOBUFS` when the socket's notifications (net.core.optmem_max) or the user's locked memory
/// (RLIMIT_MEMLOCK) are used up: take notifications and try again. Otherwise as sendmsg(2); no SIGPIPE.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    // SAFETY: `bytes` is readable for its length. The kernel may read its pages after the call and
    // holds them; that it could read what is written or allocated there later is no matter of
    // memory safety here, and what it means is said above.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The next notification, if there is one; does not wait. Other messages of the error queue are
/// skipped.
///
/// # Errors
/// As recvmsg(2).
pub fn completion(fd: BorrowedFd<'_>) -> io::Result<Option<Completion>> {
    loop {
        // 64-bit words, so that headers are aligned.
        let mut control = [0_u64; CONTROL_WORDS];
        // SAFETY: an all-zero msghdr is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: no iovec, and a control buffer that is writable for the stated length.
        if unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) } < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                io::ErrorKind::Interrupted => continue,
                _ => Err(error),
            };
        }
        if let Some(found) = read_control(&message) {
            return Ok(Some(found));
        }
    }
}

fn read_control(message: &libc::msghdr) -> Option<Completion> {
    // SAFETY: recvmsg filled in the control buffer, which outlives this.
    let all = unsafe { cmsg::received(message) };
    let errors = all.filter(|control| {
        let kinds = [
            (libc::SOL_IP, libc::IP_RECVERR),
            (libc::SOL_IPV6, libc::IPV6_RECVERR),
        ];
        kinds.contains(&control.kind)
    });
    errors
        .filter_map(|control| control.value::<libc::sock_extended_err>())
        .find(|e| e.ee_errno == 0 && e.ee_origin == SO_EE_ORIGIN_ZEROCOPY)
        .map(|e| Completion {
            first: e.ee_info,
            last: e.ee_data,
            copied: e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
        })
}

/// include/uapi/asm-generic/socket.h.
const SO_ZEROCOPY: libc::c_int = 60;
/// include/uapi/linux/errqueue.h.
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;
/// Room for the error with the address behind it (16 + 28 bytes and a header), and a stamp.
const CONTROL_WORDS: usize = 32;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn every_send_is_notified_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        enable(near.as_fd()).unwrap();
        assert_eq!(completion(near.as_fd()).unwrap(), None);
        let block = vec![7_u8; 10_000];
        let sizes = [1_usize, 4_096, 10_000, 3];
        for &size in &sizes {
            assert_eq!(send(near.as_fd(), &block[..size]).unwrap(), size);
        }
        let mut got = vec![0; sizes.iter().sum()];
        far.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|&b| b == 7));
        let mut seen = [false; 4];
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while seen.contains(&false) && std::time::Instant::now() < deadline {
            let Some(done) = completion(near.as_fd()).unwrap() else {
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            };
            // Loopback hands the pages to a receiver, who gets a copy.
            assert!(done.copied);
            for number in done.first..=done.last {
                let number = usize::try_from(number).unwrap();
                assert!(!mem::replace(&mut seen[number], true), "{number}");
            }
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(completion(near.as_fd()).unwrap(), None);
    }

    #[test]
    fn a_range_across_the_end_of_the_numbers_counts_right() {
        let of = |first, last| Completion {
            first,
            last,
            copied: false,
        };
        assert_eq!(of(3, 3).count(), 1);
        assert_eq!(of(u32::MAX, 1).count(), 3);
    }

    #[test]
    fn without_leave_bytes_are_copied_and_nothing_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap().0;
        assert_eq!(send(near.as_fd(), b"abc").unwrap(), 3);
        assert_eq!(completion(near.as_fd()).unwrap(), None);
    }
}
