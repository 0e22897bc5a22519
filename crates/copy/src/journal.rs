//! What a destination has on its disk of files that are not finished: so that another attempt goes on from there.
//!
//! Records are appended and brought to the disk after the blocks they speak of, so a journal never promises what a power
//! cut may have taken. Each record carries a sum of its own; reading ends at the first that does not fit, and what
//! follows it is cut off.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

use crate::digest::{Cut, SUM_BYTES, Sum};
use crate::entry::{RelPath, Stamp};

/// What the file begins with.
const MAGIC: &[u8; 8] = b"GPCJRNL1";
/// Length and sum before each record.
const HEAD_BYTES: usize = 4 + 8;
/// The longest record, in bytes.
const RECORD_MOST: usize = 1 << 20;
/// Sums in one record.
const SUMS_MOST: usize = 16 << 10;
/// Bytes of a journal above which it is written anew once it has doubled: what files that are finished left goes.
const COMPACT: u64 = 64 << 20;

/// An unfinished file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its number among the partial files.
    pub number: u64,
    /// How it is cut.
    pub cut: Cut,
    /// When it was modified last, at the source.
    pub modified: Stamp,
    /// Sums of the blocks that are there.
    pub sums: HashMap<u64, Sum>,
}

/// The journal of one staging folder.
#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Bytes of it that are whole records.
    good: u64,
    /// Bytes from which it is written anew.
    compact_from: u64,
    scratch: Vec<u8>,
}

impl Journal {
    /// Reads what is there, and goes on after it: unfinished files by path, and the first number that no partial file has.
    /// What is no journal, or none of this version, is begun anew.
    ///
    /// # Errors
    /// As read(2), write(2) and ftruncate(2).
    pub fn open(mut file: File) -> io::Result<(Self, HashMap<RelPath, Unfinished>, u64)> {
        file.seek(SeekFrom::Start(0))?;
        let mut files: HashMap<u64, (RelPath, Unfinished)> = HashMap::new();
        let mut next = 0;
        let mut good = 0;
        // One record at a time: a journal of years costs time, and no memory.
        let mut from = BufReader::with_capacity(1 << 20, &file);
        let mut begins = [0; MAGIC.len()];
        if from.read_exact(&mut begins).is_ok() && begins == *MAGIC {
            good = MAGIC.len() as u64;
            let mut bytes = Vec::new();
            while record(&mut from, &mut bytes)? {
                if read(&bytes, &mut files, &mut next).is_none() {
                    break;
                }
                good += (HEAD_BYTES + bytes.len()) as u64;
            }
        }
        file.set_len(good)?;
        file.seek(SeekFrom::End(0))?;
        if good == 0 {
            file.write_all(MAGIC)?;
            good = MAGIC.len() as u64;
        }
        let files = files.into_values().collect();
        Ok((
            Self {
                file,
                good,
                compact_from: COMPACT,
                scratch: Vec::new(),
            },
            files,
            next,
        ))
    }

    /// A file is begun.
    ///
    /// # Errors
    /// As write(2).
    pub fn begin(&mut self, path: &RelPath, file: &Unfinished) -> io::Result<()> {
        let mut record = vec![1];
        record.extend_from_slice(&file.number.to_le_bytes());
        record.extend_from_slice(&file.cut.size().to_le_bytes());
        record.extend_from_slice(&file.cut.block().to_le_bytes());
        record.extend_from_slice(&file.modified.seconds.to_le_bytes());
        record.extend_from_slice(&file.modified.nanoseconds.to_le_bytes());
        record.extend_from_slice(path.as_bytes());
        self.append(&record)
    }

    /// Blocks of a file are on the disk.
    ///
    /// # Errors
    /// As write(2).
    pub fn blocks(&mut self, number: u64, blocks: &[(u64, Sum)]) -> io::Result<()> {
        for part in blocks.chunks(SUMS_MOST) {
            let mut record = vec![2];
            record.extend_from_slice(&number.to_le_bytes());
            for (index, sum) in part {
                record.extend_from_slice(&index.to_le_bytes());
                record.extend_from_slice(sum);
            }
            self.append(&record)?;
        }
        Ok(())
    }

    /// A file is finished or given up.
    ///
    /// # Errors
    /// As write(2).
    pub fn end(&mut self, number: u64) -> io::Result<()> {
        let mut record = vec![3];
        record.extend_from_slice(&number.to_le_bytes());
        self.append(&record)
    }

    /// Where it ends, if it has grown so long that it should be written anew ([`Journal::compact`]).
    pub fn mark(&self) -> Option<u64> {
        (self.good > self.compact_from).then_some(self.good)
    }

    /// Writes it anew, into `new`, which is empty: `live` as they were when it ended at `mark`, and what came since.
    /// `replace` puts `new` in its place.
    ///
    /// # Errors
    /// As write(2) and fdatasync(2), and what `replace` fails with; it goes on as it was then.
    pub fn compact(
        &mut self,
        mark: u64,
        live: &[(RelPath, Unfinished)],
        new: File,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        new.set_len(0)?;
        let mut short = Self {
            file: new,
            good: MAGIC.len() as u64,
            compact_from: 0,
            scratch: Vec::new(),
        };
        short.file.seek(SeekFrom::Start(0))?;
        short.file.write_all(MAGIC)?;
        for (path, file) in live {
            short.begin(path, file)?;
            let sums: Vec<_> = file
                .sums
                .iter()
                .map(|(index, sum)| (*index, *sum))
                .collect();
            short.blocks(file.number, &sums)?;
        }
        let mut since = vec![0; 1 << 20];
        let mut at = mark;
        while at < self.good {
            let most = usize::try_from(self.good - at).unwrap_or(usize::MAX);
            let part = most.min(since.len());
            let part = &mut since[..part];
            self.file.read_exact_at(part, at)?;
            short.file.write_all(part)?;
            at += part.len() as u64;
            short.good += part.len() as u64;
        }
        short.sync()?;
        replace()?;
        // Until it has doubled: writing it anew costs no more than writing it did.
        short.compact_from = (short.good * 2).max(COMPACT);
        *self = short;
        Ok(())
    }

    /// Brings it to the disk.
    ///
    /// # Errors
    /// As fdatasync(2).
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let len = u32::try_from(record.len()).map_err(io::Error::other)?;
        self.scratch.clear();
        self.scratch.extend_from_slice(&len.to_le_bytes());
        self.scratch.extend_from_slice(&check(record));
        self.scratch.extend_from_slice(record);
        // In one call: what a kill cuts off is found by its sum.
        let written = self.file.write_all(&self.scratch);
        match &written {
            Ok(()) => self.good += self.scratch.len() as u64,
            // Half a record would hide all that follow it from whoever reads.
            Err(_) => {
                self.file.set_len(self.good)?;
                self.file.seek(SeekFrom::Start(self.good))?;
            }
        }
        written
    }
}

fn check(record: &[u8]) -> [u8; 8] {
    let mut check = [0; 8];
    check.copy_from_slice(&blake3::hash(record).as_bytes()[..8]);
    check
}

/// The next whole record, into `bytes`; `false` where there is none.
fn record(from: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let ended = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => Ok(false),
        _ => Err(error),
    };
    let mut head = [0; HEAD_BYTES];
    if let Err(error) = from.read_exact(&mut head) {
        return ended(error);
    }
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let Some(len) = usize::try_from(len).ok().filter(|len| *len <= RECORD_MOST) else {
        return Ok(false);
    };
    bytes.resize(len, 0);
    if let Err(error) = from.read_exact(bytes) {
        return ended(error);
    }
    Ok(head[4..] == check(bytes))
}

fn read(
    record: &[u8],
    files: &mut HashMap<u64, (RelPath, Unfinished)>,
    next: &mut u64,
) -> Option<()> {
    let (kind, rest) = record.split_first()?;
    let (number, rest) = rest.split_at_checked(8)?;
    let number = u64::from_le_bytes(number.try_into().ok()?);
    match kind {
        1 => {
            let (fixed, path) = rest.split_at_checked(8 + 4 + 8 + 4)?;
            let word = |at: usize| Some(u64::from_le_bytes(fixed[at..at + 8].try_into().ok()?));
            let half = |at: usize| Some(u32::from_le_bytes(fixed[at..at + 4].try_into().ok()?));
            let cut = Cut::new(word(0)?, half(8)?)?;
            let modified = Stamp {
                seconds: i64::from_le_bytes(fixed[12..20].try_into().ok()?),
                nanoseconds: half(20)?,
            };
            let path = RelPath::new(path).ok()?;
            *next = (*next).max(number.checked_add(1)?);
            // An older attempt at the same path is over.
            files.retain(|_, (other, _)| *other != path);
            files.insert(
                number,
                (
                    path,
                    Unfinished {
                        number,
                        cut,
                        modified,
                        sums: HashMap::new(),
                    },
                ),
            );
        }
        2 => {
            if !rest.len().is_multiple_of(8 + SUM_BYTES) {
                return None;
            }
            // Of a file that was finished while its blocks were noted.
            let Some((_, file)) = files.get_mut(&number) else {
                return Some(());
            };
            for part in rest.chunks_exact(8 + SUM_BYTES) {
                let index = u64::from_le_bytes(part[..8].try_into().ok()?);
                if index >= file.cut.blocks() {
                    return None;
                }
                file.sums.insert(index, part[8..].try_into().ok()?);
            }
        }
        3 => {
            files.remove(&number);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let pid = std::process::id();
            Self(std::env::temp_dir().join(format!("goodput-journal-{pid}-{name}")))
        }

        fn open(&self) -> (Journal, HashMap<RelPath, Unfinished>, u64) {
            let mut options = fs::OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false);
            Journal::open(file.open(&self.0).unwrap()).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    fn unfinished(number: u64) -> Unfinished {
        Unfinished {
            number,
            cut: Cut::new(10 << 20, 1 << 20).unwrap(),
            modified: Stamp {
                seconds: -5,
                nanoseconds: 7,
            },
            sums: HashMap::new(),
        }
    }

    #[test]
    fn what_was_written_is_there_after_it_was_closed() {
        let place = Place::new("again");
        {
            let (mut journal, files, next) = place.open();
            assert_eq!((files.len(), next), (0, 0));
            journal.begin(&path("a/b"), &unfinished(0)).unwrap();
            journal.begin(&path("c"), &unfinished(1)).unwrap();
            journal.blocks(0, &[(3, [1; 32]), (9, [2; 32])]).unwrap();
            journal.blocks(1, &[(0, [3; 32])]).unwrap();
            journal.end(1).unwrap();
            journal.sync().unwrap();
        }
        let (mut journal, files, next) = place.open();
        assert_eq!((files.len(), next), (1, 2));
        let sums = HashMap::from([(3, [1; 32]), (9, [2; 32])]);
        assert_eq!(
            files[&path("a/b")],
            Unfinished {
                sums,
                ..unfinished(0)
            }
        );
        journal.begin(&path("a/b"), &unfinished(2)).unwrap();
        let (_, files, next) = place.open();
        assert_eq!((files[&path("a/b")].number, next), (2, 3));
        assert!(files[&path("a/b")].sums.is_empty());
    }

    #[test]
    fn a_journal_that_was_cut_or_changed_anywhere_keeps_what_is_before() {
        let place = Place::new("hurt");
        {
            let (mut journal, ..) = place.open();
            journal.begin(&path("a"), &unfinished(0)).unwrap();
            journal.blocks(0, &[(1, [1; 32])]).unwrap();
            journal.blocks(0, &[(2, [2; 32])]).unwrap();
        }
        let whole = fs::read(&place.0).unwrap();
        for at in 0..whole.len() {
            for cut in [true, false] {
                fs::write(&place.0, &whole).unwrap();
                let file = fs::OpenOptions::new().write(true).open(&place.0).unwrap();
                match cut {
                    true => file.set_len(at as u64).unwrap(),
                    false => file.write_all_at(&[whole[at] ^ 1], at as u64).unwrap(),
                }
                let (mut journal, files, _) = place.open();
                let sums = files.get(&path("a")).map_or(0, |file| file.sums.len());
                assert!(sums < 2, "{at} {cut}");
                // And it goes on from there.
                journal.begin(&path("z"), &unfinished(9)).unwrap();
                let (_, files, next) = place.open();
                assert_eq!((files[&path("z")].number, next), (9, 10), "{at} {cut}");
            }
        }
    }

    #[test]
    fn blocks_of_a_file_that_is_finished_hide_nothing_behind_them() {
        let place = Place::new("late");
        {
            let (mut journal, ..) = place.open();
            journal.begin(&path("a"), &unfinished(0)).unwrap();
            journal.end(0).unwrap();
            journal.blocks(0, &[(1, [1; 32])]).unwrap();
            journal.begin(&path("b"), &unfinished(1)).unwrap();
            journal.blocks(1, &[(2, [2; 32])]).unwrap();
        }
        let (_, files, next) = place.open();
        assert_eq!((files.len(), next), (1, 2));
        assert_eq!(files[&path("b")].sums.len(), 1);
    }

    #[test]
    fn a_journal_that_was_written_anew_says_the_same_and_what_came_meanwhile() {
        let (place, short) = (Place::new("long"), Place::new("short"));
        let (mut journal, ..) = place.open();
        for number in 0..1000 {
            journal.begin(&path("done"), &unfinished(number)).unwrap();
            journal.end(number).unwrap();
        }
        journal.begin(&path("a"), &unfinished(1000)).unwrap();
        journal.blocks(1000, &[(1, [1; 32])]).unwrap();
        journal.begin(&path("b"), &unfinished(1001)).unwrap();
        let mark = journal.good;
        let sums = HashMap::from([(1, [1; 32])]);
        let live = [
            (
                path("a"),
                Unfinished {
                    sums,
                    ..unfinished(1000)
                },
            ),
            (path("b"), unfinished(1001)),
        ];
        // Meanwhile.
        journal.blocks(1001, &[(4, [4; 32])]).unwrap();
        journal.begin(&path("c"), &unfinished(1002)).unwrap();
        journal.end(1000).unwrap();
        let before = fs::read(&place.0).unwrap();
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let new = || options.clone().open(&short.0).unwrap();
        // What cannot be put in its place changes nothing.
        let refused = journal.compact(mark, &live, new(), || Err(ErrorKind::Other.into()));
        assert!(refused.is_err());
        assert_eq!(fs::read(&place.0).unwrap(), before);
        journal
            .compact(mark, &live, new(), || fs::rename(&short.0, &place.0))
            .unwrap();
        journal.blocks(1002, &[(5, [5; 32])]).unwrap();
        assert!(fs::metadata(&place.0).unwrap().len() < 1000);
        let (_, files, next) = place.open();
        assert_eq!((files.len(), next), (2, 1003));
        assert_eq!(files[&path("b")].sums[&4], [4; 32]);
        assert_eq!(files[&path("c")].sums[&5], [5; 32]);
    }

    #[test]
    fn a_block_beyond_the_end_is_not_believed() {
        let place = Place::new("beyond");
        {
            let (mut journal, ..) = place.open();
            journal.begin(&path("a"), &unfinished(0)).unwrap();
            journal.blocks(0, &[(10, [1; 32])]).unwrap();
        }
        let (_, files, _) = place.open();
        assert!(files[&path("a")].sums.is_empty());
    }
}
