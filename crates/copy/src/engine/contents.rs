//! Small files that are read before anybody asks for them: while a shell starts the other side, this host has nothing else to do.
//!
//! It is in vain where the other side has them already. So the first file that it does not want ends it.

use std::collections::HashMap;
use std::io::IoSlice;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sys::threads;

use crate::digest::Sum;
use crate::entry::RelPath;
use crate::source::{Fingerprint, Source, Walked};

use super::basics::SMALL;

/// What is held of contents, in bytes at most, and the part of free memory that it is at most.
const HELD_MOST: u64 = 512 << 20;
const OF_FREE: u64 = 16;
/// What one takes beside its bytes, about.
const EACH_BYTES: u64 = 256;
/// Threads that read, at most: disks and file servers do several things at a time.
const READERS_MOST: usize = 4;

/// What is read in a row, in files and bytes: a chunk of memory for each file cost a tenth of all, to make the heap longer.
const CHUNK_FILES: usize = 64;
const CHUNK_BYTES: u64 = 256 << 10;

/// What was read this long ago is as fresh as what is read now and waits in a connection's buffers.
const FRESH: Duration = Duration::from_secs(5);

/// What a small file held when it was as its fingerprint says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// When that was.
    at: Instant,
    chunk: Arc<Vec<u8>>,
    place: Range<usize>,
    pub(super) sum: Sum,
}

impl Content {
    /// How many bytes it has.
    pub(super) const fn len(&self) -> usize {
        self.place.end - self.place.start
    }
}

/// What goes into one frame, in order: what was read early stays where it was read, the rest lies in a buffer.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    all: Vec<Piece>,
    bytes: usize,
}

#[derive(Debug)]
enum Piece {
    Early(Arc<Vec<u8>>, Range<usize>),
    Read(Range<usize>),
}

impl Pieces {
    /// How many bytes they have together.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.bytes = 0;
    }

    /// Adds what was read early. Files that were read one after the other are one piece.
    pub(super) fn early(&mut self, Content { chunk, place, .. }: Content) {
        self.bytes += place.len();
        match self.all.last_mut() {
            Some(Piece::Early(last, range))
                if Arc::ptr_eq(last, &chunk) && range.end == place.start =>
            {
                range.end = place.end;
            }
            _ => self.all.push(Piece::Early(chunk, place)),
        }
    }

    /// Adds what lies there in the buffer.
    pub(super) fn read(&mut self, place: Range<usize>) {
        self.bytes += place.len();
        match self.all.last_mut() {
            Some(Piece::Read(range)) if range.end == place.start => range.end = place.end,
            _ => self.all.push(Piece::Read(place)),
        }
    }

    /// All of them.
    pub(super) fn slices<'a>(&'a self, buffer: &'a [u8]) -> Vec<IoSlice<'a>> {
        let slices = self.all.iter().map(|piece| match piece {
            Piece::Early(chunk, place) => IoSlice::new(&chunk[place.clone()]),
            Piece::Read(place) => IoSlice::new(&buffer[place.clone()]),
        });
        slices.collect()
    }
}

/// Small files, in the order in which they will be asked for.
#[derive(Debug)]
pub(super) struct Contents {
    state: Mutex<State>,
    most: u64,
    fresh: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they were noted.
    all: Vec<Noted>,
    /// Where each lies there, the last of a path.
    places: HashMap<RelPath, usize>,
    /// Those before this one were read, or are being read.
    read_to: usize,
    /// Bytes of all that were noted.
    bytes: u64,
    is_over: bool,
}

#[derive(Debug)]
struct Noted {
    path: RelPath,
    fingerprint: Fingerprint,
    has: Has,
}

/// What there is of a file.
#[derive(Debug)]
enum Has {
    /// Nothing yet.
    Nothing,
    Read(Content),
    /// Nothing that anybody may have: it was taken or left.
    Gone,
}

impl Default for Contents {
    fn default() -> Self {
        let free = sys::host::memory_available().map_or(0, units::Bytes::as_u64);
        Self {
            state: Mutex::default(),
            most: HELD_MOST.min(free / OF_FREE),
            fresh: FRESH,
        }
    }
}

impl Contents {
    /// Notes what is to be read of what a walk came to, as far as there is room.
    pub(super) fn note(&self, walked: &[Walked]) {
        let mut state = self.lock();
        for walked in walked {
            let Walked::Found(found) = walked else {
                continue;
            };
            let Some(fingerprint) = found
                .fingerprint
                .filter(|print| (1..=SMALL).contains(&print.size))
            else {
                continue;
            };
            let bytes = fingerprint.size + EACH_BYTES;
            if state.is_over || state.bytes + bytes > self.most {
                return;
            }
            state.bytes += bytes;
            let path = found.entry.path.clone();
            let place = state.all.len();
            state.places.insert(path.clone(), place);
            state.all.push(Noted {
                path,
                fingerprint,
                has: Has::Nothing,
            });
        }
    }

    /// Reads what was noted, until that is all or [`Contents::end`].
    pub(super) fn read(&self, source: &Source) {
        let readers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..readers.min(READERS_MOST) {
                // Without another thread this is slower, or not done at all.
                let _ = threads::scoped(scope, "gp-reads", || self.read_all(source));
            }
        });
    }

    fn read_all(&self, source: &Source) {
        // What starts the other side has this host's CPUs first: nothing can be sent before.
        sys::sched::defer_this_thread();
        loop {
            let (files, bytes) = self.next();
            if files.is_empty() {
                return;
            }
            let mut chunk = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
            let mut there = Vec::with_capacity(files.len());
            for (noted, path, fingerprint) in files {
                let from = chunk.len();
                match read(source, &path, &fingerprint, &mut chunk) {
                    Some((at, sum)) => there.push((noted, at, from..chunk.len(), sum)),
                    None => chunk.truncate(from),
                }
            }
            let chunk = Arc::new(chunk);
            let mut state = self.lock();
            if state.is_over {
                return;
            }
            for (noted, at, place, sum) in there {
                // Nobody reads it twice, unless it is wanted meanwhile.
                if let Some(Noted { has, .. }) = state.all.get_mut(noted)
                    && matches!(has, Has::Nothing)
                {
                    let chunk = Arc::clone(&chunk);
                    *has = Has::Read(Content {
                        at,
                        chunk,
                        place,
                        sum,
                    });
                }
            }
        }
    }

    /// What is read next, as many as go into a chunk, by place, with their bytes: nobody took or left it meanwhile.
    fn next(&self) -> (Vec<(usize, RelPath, Fingerprint)>, u64) {
        let (mut files, mut bytes) = (Vec::new(), 0);
        let mut state = self.lock();
        while files.len() < CHUNK_FILES && bytes < CHUNK_BYTES {
            let place = state.read_to;
            let Some(noted) = state.all.get(place) else {
                break;
            };
            if matches!(noted.has, Has::Nothing) {
                bytes += noted.fingerprint.size;
                files.push((place, noted.path.clone(), noted.fingerprint));
            }
            state.read_to += 1;
        }
        (files, bytes)
    }

    /// The contents of files of `source` that are wanted, each if it was read as its fingerprint says, and just now or the file
    /// still is so: who starts the other side may be asked for a password first, and take minutes. They are gone from here.
    pub(super) fn take<'a>(
        &self,
        source: &Source,
        wanted: impl Iterator<Item = (&'a RelPath, &'a Fingerprint)>,
    ) -> Vec<Option<Content>> {
        let wanted: Vec<_> = wanted.collect();
        let there: Vec<_> = {
            let mut state = self.lock();
            // They are wanted in the order in which they were noted: the next is mostly the one behind.
            let mut behind = 0;
            let take = |(path, fingerprint): &(&RelPath, &Fingerprint)| {
                let place = state.place(path, behind)?;
                behind = place + 1;
                state.take(place, fingerprint)
            };
            wanted.iter().map(take).collect()
        };
        let now = Instant::now();
        let taken = there.into_iter().zip(wanted);
        let taken = taken.map(|(content, (path, fingerprint))| {
            let content = content?;
            let is_fresh = now.saturating_duration_since(content.at) < self.fresh;
            (is_fresh || source.is_as(path, fingerprint).ok()?).then_some(content)
        });
        taken.collect()
    }

    /// The other side wants nothing of these: it has some, and what it wants is read when it is asked for.
    pub(super) fn leave<'a>(&self, paths: impl Iterator<Item = &'a RelPath>) {
        let mut state = self.lock();
        for path in paths {
            if let Some(place) = state.place(path, 0) {
                state.all[place].has = Has::Gone;
            }
            state.read_to = state.all.len();
        }
    }

    /// Nothing more is read, and what was is forgotten.
    pub(super) fn end(&self) {
        *self.lock() = State {
            is_over: true,
            ..State::default()
        };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Where a path that nobody took lies, looking at one place first.
    fn place(&self, path: &RelPath, first: usize) -> Option<usize> {
        let is_there = |noted: &&Noted| noted.path == *path && !matches!(noted.has, Has::Gone);
        match self.all.get(first).filter(is_there) {
            Some(_) => Some(first),
            None => self.places.get(path).copied(),
        }
    }

    /// What was read of a file as `fingerprint` says; from then on nobody has it.
    fn take(&mut self, place: usize, fingerprint: &Fingerprint) -> Option<Content> {
        let noted = &mut self.all[place];
        match std::mem::replace(&mut noted.has, Has::Gone) {
            Has::Read(content) if noted.fingerprint == *fingerprint => Some(content),
            _ => None,
        }
    }
}

/// Puts the whole of a file that is as `fingerprint` says, before and after, behind what is in `chunk`. `None` for others, of
/// whom more is said when they are sent.
fn read(
    source: &Source,
    path: &RelPath,
    fingerprint: &Fingerprint,
    chunk: &mut Vec<u8>,
) -> Option<(Instant, Sum)> {
    let file = source.open_file(path).ok()?;
    if file.fingerprint() != fingerprint {
        return None;
    }
    let at = Instant::now();
    let from = chunk.len();
    chunk.resize(from + usize::try_from(fingerprint.size).ok()?, 0);
    file.file().read_exact_at(&mut chunk[from..], 0).ok()?;
    let is_same = !file.changed_since(fingerprint).ok()?;
    let sum = *blake3::hash(&chunk[from..]).as_bytes();
    is_same.then_some((at, sum))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::ControlFlow;

    use super::*;
    use crate::filter::Filter;
    use crate::scratch::Scratch;
    use crate::source::Keep;

    fn walked(scratch: &Scratch) -> (Source, Vec<Walked>) {
        let source = Source::open(&[scratch.path().join(".")]).unwrap();
        let mut all = Vec::new();
        let _ = source.walk(&Filter::default(), &Keep::default(), &mut |walked| {
            all.push(walked);
            ControlFlow::Continue(())
        });
        (source, all)
    }

    fn files(all: &[Walked]) -> Vec<(RelPath, Fingerprint)> {
        let files = all.iter().filter_map(|walked| match walked {
            Walked::Found(found) => Some((found.entry.path.clone(), found.fingerprint?)),
            Walked::Skipped(_) => None,
        });
        files.collect()
    }

    fn take_one(
        contents: &Contents,
        source: &Source,
        path: &RelPath,
        print: &Fingerprint,
    ) -> Option<Content> {
        let mut taken = contents.take(source, std::iter::once((path, print)));
        assert_eq!(taken.len(), 1);
        taken.remove(0)
    }

    fn bytes(content: Content) -> Vec<u8> {
        let mut pieces = Pieces::default();
        pieces.early(content);
        pieces.slices(&[])[0].to_vec()
    }

    #[test]
    fn files_read_in_a_row_are_one_piece_and_others_keep_their_order() {
        let scratch = Scratch::new();
        for name in ["a", "b", "c", "d"] {
            fs::write(scratch.path().join(name), name.repeat(3)).unwrap();
        }
        let (source, all) = walked(&scratch);
        let contents = Contents::default();
        contents.note(&all);
        contents.read(&source);
        let files = files(&all);
        // None twice, and none that was not noted.
        let strange = (RelPath::new(b"strange").unwrap(), files[0].1);
        let wanted = files.iter().chain(&files[..1]).chain([&strange]);
        let mut taken = contents.take(&source, wanted.map(|(path, print)| (path, print)));
        assert_eq!(taken.split_off(4), [None, None]);
        let [first, second, third, fourth] = taken.try_into().unwrap();
        let names: Vec<String> = files.iter().map(|(path, _)| path.to_string()).collect();
        let mut pieces = Pieces::default();
        pieces.early(first.unwrap());
        pieces.early(second.unwrap());
        pieces.read(4..6);
        pieces.read(6..7);
        pieces.early(fourth.unwrap());
        pieces.early(third.unwrap());
        pieces.read(0..1);
        assert_eq!(pieces.bytes(), 4 * 3 + 4);
        let shown: Vec<String> = pieces
            .slices(b"0123456")
            .iter()
            .map(|slice| String::from_utf8_lossy(slice).into_owned())
            .collect();
        let of = |n: usize| names[n].repeat(3);
        let expected = [of(0) + &of(1), "456".into(), of(3), of(2), "0".into()];
        assert_eq!(shown, expected);
        pieces.clear();
        assert_eq!((pieces.bytes(), pieces.slices(b"").len()), (0, 0));
    }

    #[test]
    fn what_was_read_early_is_what_is_there_and_is_taken_once() {
        let scratch = Scratch::new();
        fs::write(scratch.path().join("a"), b"some").unwrap();
        fs::write(scratch.path().join("empty"), b"").unwrap();
        fs::write(
            scratch.path().join("large"),
            vec![0; usize::try_from(SMALL).unwrap() + 1],
        )
        .unwrap();
        let (source, all) = walked(&scratch);
        let contents = Contents::default();
        contents.note(&all);
        contents.read(&source);
        let taken: Vec<Option<Vec<u8>>> = files(&all)
            .iter()
            .map(|(path, print)| Some(bytes(take_one(&contents, &source, path, print)?)))
            .collect();
        // Nobody asks for what is empty.
        assert_eq!(taken, [Some(b"some".to_vec()), None, None]);
        let (path, print) = &files(&all)[0];
        assert_eq!(take_one(&contents, &source, path, print), None);
    }

    #[test]
    fn what_changes_is_not_taken_for_what_it_was() {
        let scratch = Scratch::new();
        let at = scratch.path().join("a");
        fs::write(&at, b"before").unwrap();
        let (source, all) = walked(&scratch);
        let (path, before) = files(&all).remove(0);
        // Between the walk and the reading.
        fs::write(&at, b"a longer one").unwrap();
        let contents = Contents::default();
        contents.note(&all);
        contents.read(&source);
        assert_eq!(take_one(&contents, &source, &path, &before), None);
        // Told anew, it has another fingerprint.
        let (source, all) = walked(&scratch);
        let contents = Contents::default();
        contents.note(&all);
        contents.read(&source);
        assert_eq!(take_one(&contents, &source, &path, &before), None);
        // Between the reading and a sending that comes long after it: changed, another under its name, gone.
        let changes: [&dyn Fn(); 3] = [
            &|| fs::write(&at, b"a longer one still").unwrap(),
            &|| {
                let other = scratch.path().join("other");
                fs::write(&other, b"a longer one").unwrap();
                fs::rename(&other, &at).unwrap();
            },
            &|| fs::remove_file(&at).unwrap(),
        ];
        for (n, change) in changes.iter().enumerate() {
            let (source, all) = walked(&scratch);
            let (path, print) = files(&all).remove(0);
            let contents = Contents {
                fresh: Duration::ZERO,
                ..Contents::default()
            };
            contents.note(&all);
            contents.read(&source);
            if n == 0 {
                // What is as it was is taken however late it is.
                assert!(take_one(&contents, &source, &path, &print).is_some());
                contents.note(&all);
                contents.read(&source);
            }
            change();
            assert_eq!(take_one(&contents, &source, &path, &print), None, "{n}");
        }
    }

    #[test]
    fn what_the_other_side_has_ends_it() {
        let scratch = Scratch::new();
        for name in ["a", "b", "c"] {
            fs::write(scratch.path().join(name), name).unwrap();
        }
        let (source, all) = walked(&scratch);
        let files = files(&all);
        let contents = Contents::default();
        contents.note(&all);
        contents.leave(std::iter::once(&files[0].0));
        contents.read(&source);
        for (path, print) in &files {
            assert_eq!(take_one(&contents, &source, path, print), None, "{path}");
        }
        // Nothing was left: all is read.
        let contents = Contents::default();
        contents.note(&all);
        contents.leave(std::iter::empty());
        contents.read(&source);
        assert!(take_one(&contents, &source, &files[2].0, &files[2].1).is_some());
    }

    #[test]
    fn no_more_is_held_than_there_is_room_for() {
        let scratch = Scratch::new();
        for name in ["a", "b", "c"] {
            fs::write(scratch.path().join(name), vec![0; 4096]).unwrap();
        }
        let (source, all) = walked(&scratch);
        let contents = Contents {
            most: 2 * (4096 + EACH_BYTES),
            ..Contents::default()
        };
        contents.note(&all);
        contents.read(&source);
        let held = files(&all)
            .iter()
            .filter(|(path, print)| take_one(&contents, &source, path, print).is_some())
            .count();
        assert_eq!(held, 2);
        // What ended takes nothing on.
        contents.end();
        contents.note(&all);
        contents.read(&source);
        let (path, print) = &files(&all)[0];
        assert_eq!(take_one(&contents, &source, path, print), None);
    }
}
