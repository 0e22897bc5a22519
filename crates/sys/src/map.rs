//! Files that are read in place, however large: a read-only map instead of a copy in memory.
//!
//! Pages are read when they are first looked at and given back when memory is short.
//!
//! Source: mmap(2).

use std::fs;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A regular file's bytes as they were when it was mapped; it may grow meanwhile.
///
/// Whoever cuts the file short while it is mapped ends this process (`SIGBUS`, as mmap(2) says).
/// Only files that are written once from front to back are to be mapped: logs.
#[derive(Debug)]
pub struct File {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the map belongs to this value alone and is never written through it.
unsafe impl Send for File {}
// SAFETY: as above; readers share it like any slice.
unsafe impl Sync for File {}

impl File {
    /// Maps all that the file of this name has now. A pipe is refused, not waited for.
    ///
    /// # Errors
    /// As [`crate::folder::input`] and [`Self::new`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::new(&crate::folder::input(path)?)
    }

    /// Maps all that `file` has now. The file may be closed afterwards.
    ///
    /// # Errors
    /// `InvalidInput` when it is no regular file (a pipe has no bytes to map), or larger than
    /// addresses are; as mmap(2).
    pub fn new(file: &fs::File) -> io::Result<Self> {
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        let bytes = usize::try_from(about.len())
            .ok()
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "larger than memory"))?;
        if bytes == 0 {
            // mmap(2) refuses to map nothing.
            return Ok(Self {
                start: NonNull::dangling(),
                bytes,
            });
        }
        // SAFETY: no address is asked for, so nothing that is mapped is replaced; `file` is open.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }
}

impl Deref for File {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes, at most `isize::MAX`, are mapped readable from `start` on until
        // `drop`, or none where `start` dangles. The map is private and read-only: nothing in this
        // process changes it, and callers map only files whose bytes nobody changes once written.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: exactly what `new` mapped, and no slice of it outlives this value.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file without a name that holds `text`.
    fn file(text: &str) -> fs::File {
        let path = format!("goodput-map-{}-{}", std::process::id(), text.len());
        let path = std::env::temp_dir().join(path);
        fs::write(&path, text).unwrap();
        let file = fs::File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file
    }

    #[test]
    fn a_file_is_read_in_place_whatever_its_length() {
        for bytes in [0, 1, 4_095, 4_096, 4_097] {
            let text = "x".repeat(bytes);
            let map = File::new(&file(&text)).unwrap();
            assert_eq!(&*map, text.as_bytes());
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        for path in ["/dev/null", "/"] {
            let error = File::new(&fs::File::open(path).unwrap()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
