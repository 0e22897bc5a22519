//! User namespaces of other processes, and who this user is outside of its own.
//!
//! A lab of an unprivileged user lives in a user namespace. Who wants to enter one of its network
//! namespaces enters the user namespace first; there it has the capabilities that setns(2) asks for.
//!
//! Sources: user_namespaces(7), setns(2).

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::LinkNameSpaceType;

/// A user namespace, held by a descriptor.
#[derive(Debug)]
pub struct UserNs {
    fd: OwnedFd,
}

impl UserNs {
    /// The namespace of this process.
    ///
    /// # Errors
    /// When procfs is not mounted.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            fd: File::open("/proc/self/ns/user")?.into(),
        })
    }

    /// True when this process is in the namespace already: it cannot enter it once more.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn is_current(&self) -> io::Result<bool> {
        // The inode number is the namespace's identity (namespaces(7)).
        let (own, other) = (
            rustix::fs::fstat(Self::current()?.fd)?,
            rustix::fs::fstat(&self.fd)?,
        );
        Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Moves the process into the namespace. Must be called before any thread is started.
    ///
    /// # Errors
    /// `EPERM` for another user's namespace, `EINVAL` when the process has several threads or is in
    /// the namespace already.
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::User);
        Ok(rustix::thread::move_into_link_name_space(
            self.fd.as_fd(),
            kind,
        )?)
    }
}

impl AsFd for UserNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<OwnedFd> for UserNs {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

/// This process's effective user as its own namespace has it.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The same user as the namespace above has it: whose files these are for everybody else. Equal to
/// [`user_id`] outside of user namespaces.
pub fn user_id_outside() -> u32 {
    let inside = user_id();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    outside(inside, &map).unwrap_or(inside)
}

/// Looks a user up in the lines `inside outside count` of `uid_map`.
fn outside(inside: u32, map: &str) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let (first, above, count) = (next()?, next()?, next()?);
        let place = inside.checked_sub(first)?;
        if place < count {
            above.checked_add(place)
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_looked_up_in_the_map_of_its_namespace() {
        let whole = "         0          0 4294967295\n";
        assert_eq!(outside(0, whole), Some(0));
        assert_eq!(outside(1000, whole), Some(1000));
        let lab = "0 1000 1\n";
        assert_eq!(outside(0, lab), Some(1000));
        assert_eq!(outside(1, lab), None);
        let two = "0 1000 1\n1 100000 65536\n";
        assert_eq!(outside(65_536, two), Some(165_535));
        assert_eq!(outside(65_537, two), None);
        for broken in ["", "0", "a b c", "0 0", "4294967295 4294967295 4294967295"] {
            assert_eq!(outside(0, broken), None, "{broken}");
        }
    }

    #[test]
    fn this_process_is_in_its_own_namespace() {
        assert!(UserNs::current().unwrap().is_current().unwrap());
    }
}
