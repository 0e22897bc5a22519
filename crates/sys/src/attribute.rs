//! Names of a file's extended attributes, by folder and name.
//!
//! Source: fs/xattr.c of Linux 6.13, which has the call first; its number is the same on every architecture but Alpha
//! (scripts/syscall.tbl).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// listxattrat(2) before the C library knows it.
const LISTXATTRAT: libc::c_long = 465;

/// Fills `list` with the names of the attributes of `name` in `folder`, each ended by a zero byte; how many bytes they are.
/// A link is not followed.
///
/// # Errors
/// `ENOSYS` before Linux 6.13; `InvalidInput` for a name with a zero byte; as listxattr(2).
pub fn list_at(folder: BorrowedFd<'_>, name: &[u8], list: &mut [u8]) -> io::Result<usize> {
    let name = CString::new(name)?;
    // SAFETY: the name ends with a zero byte, and the kernel writes at most the length of `list`, both borrowed for the call.
    let length = unsafe {
        libc::syscall(
            LISTXATTRAT,
            folder.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            list.as_mut_ptr(),
            list.len(),
        )
    };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_file_without_attributes_has_none_and_one_that_is_not_there_is_told() {
        let folder = std::fs::File::open("/proc/self").unwrap();
        let mut list = [0; 64];
        for (name, code) in [(&b"stat"[..], None), (b"no such name", Some(libc::ENOENT))] {
            let error = match list_at(folder.as_fd(), name, &mut list) {
                Ok(length) => {
                    assert!(code.is_none() && length <= list.len());
                    continue;
                }
                Err(error) => error.raw_os_error().unwrap(),
            };
            // What the kernel has not, or /proc, or a sandbox forbids.
            let known = [libc::ENOSYS, libc::EOPNOTSUPP, libc::EPERM];
            assert!(
                known.contains(&error) || code == Some(error),
                "{name:?} {error}"
            );
        }
        assert!(list_at(folder.as_fd(), b"a\0b", &mut list).is_err());
    }
}
