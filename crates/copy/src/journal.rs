//! What a destination has on its disk of files that are not finished: so that another attempt goes on from there.
//!
//! Records are appended and brought to the disk after the blocks they speak of, so a journal never promises what a power
//! cut may have taken. Each record carries a sum of its own; where one does not fit, reading goes on at the next that does.
//! What is lost so costs nothing but itself, since no record is believed before the blocks that it speaks of were read: a file
//! whose end was lost is looked for in vain, one whose beginning was lost is begun anew.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

use crate::digest::{Cut, SUM_BYTES, Sum};
use crate::entry::{PATH_BYTES_MOST, RelPath, Stamp};

/// What the file begins with.
const MAGIC: &[u8; 8] = b"GPCJRNL1";
/// Length and sum before each record.
const HEAD_BYTES: usize = 4 + 8;
/// Kind and number of a file, with which each record begins.
const KIND_BYTES: usize = 1 + 8;
/// What stands before the path in a record that begins a file, and one block with its sum.
const BEGIN_BYTES: usize = KIND_BYTES + 8 + 4 + 8 + 4;
const BLOCK_BYTES: usize = 8 + SUM_BYTES;
/// The longest record, in bytes.
const RECORD_MOST: usize = 1 << 20;
/// What is read of it at a time.
const WINDOW: usize = 2 << 20;
const _: () = assert!(KIND_BYTES + SUMS_MOST * BLOCK_BYTES <= RECORD_MOST);
const _: () = assert!(HEAD_BYTES + RECORD_MOST <= WINDOW);
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
    /// Where its last whole record ends.
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
        // A part at a time: a journal of years costs time, and no memory.
        let mut window = Window::of(&file)?;
        if window.get(0, MAGIC.len())? == Some(MAGIC) {
            good = MAGIC.len() as u64;
            let mut at = good;
            while at < window.end {
                match record(&mut window, at)? {
                    Some(record) => {
                        at += (HEAD_BYTES + record.len()) as u64;
                        good = at;
                        // What means nothing is as good as lost.
                        let _ = read(record, &mut files, &mut next);
                    }
                    None => at += 1,
                }
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
            // Half a record would be looked through for whole ones by whoever reads.
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

/// A part of a file that is read, and how long that is.
struct Window<'a> {
    file: &'a File,
    end: u64,
    from: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn of(file: &'a File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self {
            file,
            end,
            from: 0,
            bytes: Vec::new(),
        })
    }

    /// So many bytes from there on, [`WINDOW`] at most; `None` beyond the end.
    fn get(&mut self, at: u64, len: usize) -> io::Result<Option<&[u8]>> {
        let Some(after) = at.checked_add(len as u64).filter(|end| *end <= self.end) else {
            return Ok(None);
        };
        if at < self.from || after > self.from + self.bytes.len() as u64 {
            let most = usize::try_from(self.end - at).unwrap_or(usize::MAX);
            self.bytes.resize(most.min(WINDOW), 0);
            self.from = at;
            self.file.read_exact_at(&mut self.bytes, at)?;
        }
        let start = usize::try_from(at - self.from).map_err(io::Error::other)?;
        Ok(self.bytes.get(start..start + len))
    }
}

/// The record that begins there; `None` where no whole one does.
fn record<'a>(window: &'a mut Window<'_>, at: u64) -> io::Result<Option<&'a [u8]>> {
    let Some([a, b, c, d, sum @ .., kind]) = window.get(at, HEAD_BYTES + 1)? else {
        return Ok(None);
    };
    let len = u32::from_le_bytes([*a, *b, *c, *d]);
    let sum: [u8; 8] = sum.try_into().map_err(io::Error::other)?;
    let Some(len) = usize::try_from(len).ok().filter(|len| may_be(*kind, *len)) else {
        return Ok(None);
    };
    let record = window.get(at + HEAD_BYTES as u64, len)?;
    Ok(record.filter(|record| check(record) == sum))
}

/// Whether a record of this kind may be so long: only of such a sum is made.
const fn may_be(kind: u8, len: usize) -> bool {
    match kind {
        1 => len >= BEGIN_BYTES && len <= BEGIN_BYTES + PATH_BYTES_MOST,
        2 => {
            len >= KIND_BYTES
                && len <= RECORD_MOST
                && (len - KIND_BYTES).is_multiple_of(BLOCK_BYTES)
        }
        3 => len == KIND_BYTES,
        _ => false,
    }
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
            if !rest.len().is_multiple_of(BLOCK_BYTES) {
                return None;
            }
            // Of a file that was finished while its blocks were noted.
            let Some((_, file)) = files.get_mut(&number) else {
                return Some(());
            };
            for part in rest.chunks_exact(BLOCK_BYTES) {
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
    fn a_record_that_was_hurt_costs_only_itself() {
        let place = Place::new("hurt-one");
        let mut begins = Vec::new();
        {
            let (mut journal, ..) = place.open();
            for number in 0..3 {
                begins.push(journal.good);
                let name = path(&format!("file{number}"));
                journal.begin(&name, &unfinished(number)).unwrap();
            }
            for index in 0..10 {
                begins.push(journal.good);
                let number = index % 3;
                let blocks = [(index, [5; 32]), ((index + 5) % 10, [7; 32])];
                journal.blocks(number, &blocks).unwrap();
            }
            begins.push(journal.good);
            journal.end(2).unwrap();
        }
        let (_, before, _) = place.open();
        let sums = |files: &HashMap<RelPath, Unfinished>| {
            let all = files.values().map(|file| file.sums.len());
            all.sum::<usize>()
        };
        assert_eq!(before.len(), 2);
        let whole = fs::read(&place.0).unwrap();
        for (record, at) in begins.iter().enumerate() {
            let after = begins.get(record + 1).copied();
            let after = after.unwrap_or(whole.len() as u64);
            // Its length, its sum, its kind, all of it.
            for hurt in [*at..at + 4, at + 4..at + 12, at + 12..at + 13, *at..after] {
                let mut bytes = whole.clone();
                for index in hurt.clone() {
                    bytes[usize::try_from(index).unwrap()] ^= 0x5a;
                }
                fs::write(&place.0, &bytes).unwrap();
                let (mut journal, files, next) = place.open();
                let lost = sums(&before) as i64 - sums(&files) as i64;
                match record {
                    // A file that was begun, with its blocks.
                    0..2 => assert_eq!(files.len(), 1, "{record} {hurt:?}"),
                    2 => assert_eq!((files.len(), lost), (2, 0), "{record} {hurt:?}"),
                    3..13 => assert!(files.len() == 2 && lost <= 2, "{record} {hurt:?}"),
                    // The end of one: what it says is still to be read.
                    _ => assert_eq!(files.len(), 3, "{record} {hurt:?}"),
                }
                // What is written after it is read after it.
                journal.begin(&path("z"), &unfinished(next)).unwrap();
                journal.blocks(next, &[(1, [1; 32])]).unwrap();
                let (_, again, _) = place.open();
                assert_eq!(again[&path("z")].sums.len(), 1, "{record} {hurt:?}");
                assert_eq!(again.len(), files.len() + 1, "{record} {hurt:?}");
            }
        }
    }

    #[test]
    fn a_long_stretch_of_nonsense_hides_no_record_behind_it() {
        let place = Place::new("stretch");
        {
            let (mut journal, ..) = place.open();
            journal.begin(&path("a"), &unfinished(0)).unwrap();
        }
        let mut bytes = fs::read(&place.0).unwrap();
        // Zeros, as a power cut leaves them, and numbers that look like lengths of records; longer than what is read at once.
        bytes.resize(bytes.len() + WINDOW, 0);
        for n in 0..100_000_u32 {
            bytes.extend_from_slice(&(n % 4_000).to_le_bytes());
            bytes.extend_from_slice(&[2; 9]);
        }
        let record = [
            &[2][..],
            &0_u64.to_le_bytes(),
            &3_u64.to_le_bytes(),
            &[9; 32],
        ]
        .concat();
        bytes.extend_from_slice(&49_u32.to_le_bytes());
        bytes.extend_from_slice(&check(&record));
        bytes.extend_from_slice(&record);
        let good = bytes.len();
        bytes.extend_from_slice(&[1; 5_000]);
        fs::write(&place.0, &bytes).unwrap();
        let (_, files, next) = place.open();
        assert_eq!((files[&path("a")].sums.len(), next), (1, 1));
        // What follows the last whole one is cut off.
        assert_eq!(fs::metadata(&place.0).unwrap().len(), good as u64);
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
        let refused = journal.compact(mark, &live, new(), || Err(io::ErrorKind::Other.into()));
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
