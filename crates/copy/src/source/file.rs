//! A file that is read: where its data are, and whether it stays what it was.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, SeekFrom, Stat, fstat, seek};
use rustix::io::Errno;

use crate::beneath::{changed, kind_of, modified, size_of, stored};
use crate::entry::Stamp;

/// The most ranges of data that are told of one file; where there are more, neighbours are joined.
pub const RANGES_MOST: usize = 64 << 10;

/// By what a file is known again, and known to be unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Device it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Time of last modification.
    pub modified: Stamp,
    /// Time of last change of anything but access, which no user can set.
    pub changed: Stamp,
}

impl Fingerprint {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: size_of(stat),
            modified: modified(stat),
            changed: changed(stat),
        }
    }
}

/// A file that is read.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    fingerprint: Fingerprint,
    stored: u64,
}

impl SourceFile {
    pub(super) fn new(open: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&open)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no longer a file",
            ));
        }
        let fingerprint = Fingerprint::of(&stat);
        Ok(Self {
            file: File::from(open),
            fingerprint,
            stored: stored(&stat),
        })
    }

    /// The file, to be read at offsets.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What it was when it was opened.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Whether it is not, or no longer, what `before` says. One call of fstat(2).
    ///
    /// # Errors
    /// As fstat(2).
    pub fn changed_since(&self, before: &Fingerprint) -> io::Result<bool> {
        Ok(Fingerprint::of(&fstat(&self.file)?) != *before)
    }

    /// Where the file has data, in order, without holes between: lseek(2), `SEEK_DATA` and `SEEK_HOLE`. Moves the file's
    /// position. At most [`RANGES_MOST`]; a file without holes is one range, an empty one none.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn data_ranges(&self) -> io::Result<Vec<Range<u64>>> {
        let size = self.fingerprint.size;
        if size == 0 {
            return Ok(Vec::new());
        }
        let whole = std::iter::once(0..size).collect();
        if self.stored >= size {
            return Ok(whole);
        }
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                // A file system that knows no holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(whole),
                Err(error) => return Err(error.into()),
            };
            if start >= size {
                break;
            }
            let end = seek(&self.file, SeekFrom::Hole(start))?.min(size);
            // Cut meanwhile: what is told is read, and found to be changed.
            if end <= start {
                break;
            }
            add(&mut ranges, start..end, RANGES_MOST);
            at = end;
        }
        Ok(ranges)
    }
}

/// Adds a range; joins each with its neighbour once there are `most`.
fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>, most: usize) {
    if let Some(last) = ranges.last_mut().filter(|last| last.end == range.start) {
        last.end = range.end;
        return;
    }
    if ranges.len() == most {
        let pairs = ranges
            .chunks(2)
            .map(|pair| pair[0].start..pair[pair.len() - 1].end);
        *ranges = pairs.collect();
    }
    ranges.push(range);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_bounded_and_lose_no_data() {
        let mut ranges = Vec::new();
        for index in 0..1000 {
            add(&mut ranges, index * 10..index * 10 + 5, 16);
            assert!(ranges.len() <= 16);
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
        for index in 0..1000 {
            let byte = index * 10 + 4;
            assert!(ranges.iter().any(|range| range.contains(&byte)), "{byte}");
        }
        add(&mut ranges, 9995..9999, 16);
        assert_eq!(ranges.last().map(|range| range.end), Some(9999));
    }
}
