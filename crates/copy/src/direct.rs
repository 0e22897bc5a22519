//! Files that are read and written past the kernel's page cache (`O_DIRECT` in open(2)).
//!
//! Addresses and places in the file have to be multiples of what the file system asks for (statx(2), `STATX_DIOALIGN`,
//! Linux 6.1), here of a page at least, so that no page is written both ways. Bytes lie otherwise in memory are copied once,
//! which costs what the kernel's own copy into its cache would. What is left behind a file's last whole page goes through
//! the cache.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{AtFlags, StatFs, StatxFlags, fstatfs, statx};
use rustix::io::Errno;

use crate::digest::BLOCK_LEAST;
use crate::room;

/// A page, in bytes; what is asked for where the file system says nothing.
const PAGE: u32 = 4 << 10;
/// `TMPFS_MAGIC`, `RAMFS_MAGIC` in include/uapi/linux/magic.h: what is there is nowhere but in memory.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// Whether a file system has no disk.
fn is_memory(of: &StatFs) -> bool {
    // Its type differs between architectures; magic numbers have 32 bits.
    let magic = i128::from(of.f_type);
    IN_MEMORY.iter().any(|known| i128::from(*known) == magic)
}

/// A file that is open past the cache.
#[derive(Debug)]
pub(crate) struct Direct {
    file: File,
    /// Bytes of which every place and address is a multiple: a power of two from [`PAGE`] to [`BLOCK_LEAST`].
    align: usize,
}

impl Direct {
    /// What was opened with `O_DIRECT`, or why not.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where its file system has no such way; as open(2).
    pub(crate) fn new(opened: rustix::io::Result<OwnedFd>) -> io::Result<Self> {
        let refused = |why: &str| Err(io::Error::new(ErrorKind::Unsupported, why));
        let open = match opened {
            Ok(open) => open,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return refused("the file system refuses it"),
            Err(error) => return Err(error.into()),
        };
        let is_in_memory = fstatfs(&open).is_ok_and(|stat| is_memory(&stat));
        if is_in_memory {
            return refused("the file system is in memory");
        }
        let align = match statx(&open, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
            Ok(told) if told.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
                if told.stx_dio_offset_align == 0 {
                    return refused("the file system has it not for this file");
                }
                told.stx_dio_offset_align
                    .max(told.stx_dio_mem_align)
                    .max(PAGE)
            }
            // Before Linux 6.1, and file systems that do not tell.
            _ => PAGE,
        };
        if !align.is_power_of_two() || align > BLOCK_LEAST {
            return refused("the file system asks for longer blocks");
        }
        Ok(Self {
            file: File::from(open),
            align: align as usize,
        })
    }

    /// Writes `bytes` at `at`; what does not end with a page by `cached`, the same file open in the usual way. Bytes go by
    /// `room` where they lie wrongly in memory.
    ///
    /// # Errors
    /// As pwrite(2).
    pub(crate) fn write_all_at(
        &self,
        cached: &File,
        bytes: &[u8],
        at: u64,
        room: &mut Vec<u8>,
    ) -> io::Result<()> {
        let whole = match at.is_multiple_of(self.align as u64) {
            true => bytes.len() - bytes.len() % self.align,
            false => 0,
        };
        let direct = match bytes.as_ptr().addr().is_multiple_of(self.align) {
            true => &bytes[..whole],
            false => {
                let place = self.place(room, whole);
                room[place.clone()].copy_from_slice(&bytes[..whole]);
                &room[place]
            }
        };
        let mut done = 0;
        while done < whole {
            let wrote = match self.file.write_at(&direct[done..], at + done as u64) {
                Ok(wrote) => wrote - wrote % self.align,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if wrote == 0 {
                break;
            }
            done += wrote;
        }
        cached.write_all_at(&bytes[done..], at + done as u64)
    }

    /// Reads `len` bytes at `at`, which begins a page, into `room`; where they lie there.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] where the file ends before; as pread(2).
    pub(crate) fn read_at(
        &self,
        room: &mut Vec<u8>,
        len: usize,
        at: u64,
    ) -> io::Result<Range<usize>> {
        let place = self.place(room, len.next_multiple_of(self.align));
        let mut done = 0;
        while done < len {
            let into = &mut room[place.start + done..place.end];
            match self.file.read_at(into, at + done as u64) {
                // Only at its end is a file read other than in whole pages.
                Ok(read) if done + read < len && !read.is_multiple_of(self.align) => break,
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match done < len {
            true => Err(ErrorKind::UnexpectedEof.into()),
            false => Ok(place.start..place.start + len),
        }
    }

    /// Where `len` bytes lie rightly in `room`, which is made long enough.
    fn place(&self, room: &mut Vec<u8>, len: usize) -> Range<usize> {
        room::place(room, len, self.align)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;
    use crate::scratch::Scratch;

    fn open(path: &std::path::Path) -> io::Result<Direct> {
        Direct::new(openat(
            CWD,
            path,
            OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC,
            Mode::empty(),
        ))
    }

    /// Where tests have their files need not have it.
    fn is_had(path: &std::path::Path) -> Option<Direct> {
        match open(path) {
            Ok(direct) => Some(direct),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                println!("not here: {error}");
                None
            }
        }
    }

    #[test]
    fn every_byte_is_written_and_read_at_both_sides_of_every_page() {
        let scratch = Scratch::new();
        let path = scratch.file("f", b"");
        let Some(direct) = is_had(&path) else { return };
        let cached = File::options().read(true).write(true).open(&path).unwrap();
        let page = direct.align;
        let pattern: Vec<u8> = (0..5 * page + 64)
            .map(|n| (n * 31 % 251).to_le_bytes()[0])
            .collect();
        let mut room = Vec::new();
        for pages in 0..4 {
            for odd in [0, 1, 511, 512, 513, page - 1] {
                // Neither the bytes nor where they go need lie rightly.
                for (skew, at) in [(0, 0), (1, page), (7, 2 * page), (0, 13)] {
                    let bytes = &pattern[skew..skew + pages * page + odd];
                    cached.set_len(0).unwrap();
                    cached.set_len((at + bytes.len()) as u64).unwrap();
                    direct
                        .write_all_at(&cached, bytes, at as u64, &mut room)
                        .unwrap();
                    let there = fs::read(&path).unwrap();
                    assert!(there[..at].iter().all(|byte| *byte == 0));
                    assert_eq!(&there[at..], bytes, "{pages} {odd} {skew} {at}");
                    if at % page == 0 {
                        let place = direct.read_at(&mut room, bytes.len(), at as u64).unwrap();
                        assert_eq!(&room[place], bytes);
                        let short = direct.read_at(&mut room, bytes.len() + 1, at as u64);
                        assert_eq!(short.unwrap_err().kind(), ErrorKind::UnexpectedEof);
                    }
                }
            }
        }
    }

    #[test]
    fn a_file_in_memory_is_refused_with_a_word() {
        let path =
            std::path::PathBuf::from(format!("/dev/shm/goodput-direct-{}", std::process::id()));
        if fs::write(&path, b"x").is_err() {
            return;
        }
        let is_tmpfs = rustix::fs::statfs(&path).is_ok_and(|stat| is_memory(&stat));
        let refused = open(&path);
        fs::remove_file(&path).unwrap();
        if is_tmpfs {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
}
