//! How what this user makes for itself alone looks on a file system.
//!
//! Most file systems keep owner and mode as they were set. FAT and some mounts of other systems keep neither, and a server
//! that does not trust the superuser (`root_squash` in exports(5)) makes what it writes somebody else's. Which of these it is,
//! the type of the file system says (statfs(2)) and a file that is created for it: its descriptor is of that file, whoever
//! exchanges names meanwhile.

use std::io;

use rustix::fs::{AtFlags, FileType, Mode, Stat, fstat, fstatfs, openat, unlinkat};
use rustix::process::geteuid;

use crate::beneath::{BESIDE_PREFIX, Top, fresh_digits, kind_of};

use super::placing::NEW_FILE;

/// Types of file systems that may keep neither owner nor mode (include/uapi/linux/magic.h, and where they are made): FAT,
/// exFAT, NTFS twice, HFS, SMB three times, FUSE, 9P, VirtualBox.
const KEEP_NO_MODES: [u32; 11] = [
    0x4d44,
    0x2011_bab0,
    0x5346_544e,
    0x7366_746e,
    0x4244,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x786f_4256,
];
/// Those whose server may give the superuser's files to somebody else: NFS, Lustre, Ceph, GPFS, BeeGFS, OrangeFS, AFS.
const SQUASH: [u32; 7] = [
    0x6969,
    0x0bd0_0bd0,
    0x00c3_6400,
    0x4750_4653,
    0x1983_0326,
    0x2003_0528,
    0x5346_414f,
];

/// Whether a file system is one of these: what it holds of times and owners is another program's or server's choice.
pub(super) fn is_foreign(top: &Top) -> bool {
    kind_of_file_system(top)
        .is_ok_and(|kind| KEEP_NO_MODES.contains(&kind) || SQUASH.contains(&kind))
}

fn kind_of_file_system(top: &Top) -> io::Result<u32> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the numbers have 32 bits, in a word whose width and sign differ between architectures"
    )]
    let kind = fstatfs(top.folder())?.f_type as u32;
    Ok(kind)
}

/// How a folder or file looks that this user makes for itself alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    user: u32,
    /// Permission bits for others that cannot be taken away.
    open: u32,
}

impl Own {
    /// Where owners and modes are kept.
    pub(super) fn usual() -> Self {
        Self {
            user: geteuid().as_raw(),
            open: 0,
        }
    }

    /// On the file system of `top`.
    ///
    /// # Errors
    /// As fstatfs(2); where owners may not be kept, as open(2) of a new file.
    pub(super) fn of(top: &Top) -> io::Result<Self> {
        let kind = kind_of_file_system(top)?;
        let keeps_modes = !KEEP_NO_MODES.contains(&kind);
        let user = match keeps_modes && !SQUASH.contains(&kind) {
            true => Self::usual().user,
            false => owner_of_new(top)?,
        };
        let open = match keeps_modes {
            true => 0,
            // There all folders look alike, the top too.
            false => fstat(top.folder())?.st_mode & 0o077,
        };
        Ok(Self { user, open })
    }

    /// Whether it is a folder that looks so.
    pub(super) fn fits(self, stat: &Stat) -> bool {
        kind_of(stat) == FileType::Directory && self.has(stat.st_uid, stat.st_mode)
    }

    /// Whether it is this user's, and has one name.
    pub(super) fn has_alone(self, stat: &Stat) -> bool {
        stat.st_uid == self.user && stat.st_nlink == 1
    }

    const fn has(self, user: u32, mode: u32) -> bool {
        user == self.user && mode & 0o077 & !self.open == 0
    }
}

/// Whose a file is that this user creates.
fn owner_of_new(top: &Top) -> io::Result<u32> {
    let name = [BESIDE_PREFIX, fresh_digits().as_bytes()].concat();
    let file = openat(top.folder(), &name[..], NEW_FILE, Mode::RUSR | Mode::WUSR)?;
    let stat = fstat(&file);
    // Before it is removed: FUSE and NFS give an open file another name in place of removing it.
    drop(file);
    let _ = unlinkat(top.folder(), &name[..], AtFlags::empty());
    Ok(stat?.st_uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_could_have_filled_is_nobodys_own() {
        let usual = Own { user: 7, open: 0 };
        assert!(usual.has(7, 0o040_700) && usual.has(7, 0o042_700));
        assert!(!usual.has(8, 0o040_700) && !usual.has(7, 0o040_750));
        // FAT with umask=022: all looks so, whoever made it.
        let fat = Own {
            user: 0,
            open: 0o055,
        };
        assert!(fat.has(0, 0o040_755) && !fat.has(0, 0o040_777) && !fat.has(7, 0o040_755));
        // A superuser who is nobody at the server.
        let squashed = Own {
            user: 65_534,
            open: 0,
        };
        assert!(squashed.has(65_534, 0o040_700) && !squashed.has(65_534, 0o040_777));
        assert!(!squashed.has(7, 0o040_700));
    }
}
