//! What the destination wants of what the source tells: names made at once, files that are there already, blocks that an
//! earlier attempt or an older copy left.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::channel::MESSAGE_MOST;
use crate::destination::{Differs, Existing, Staging, Standing};
use crate::digest::{Cut, Sum};
use crate::entry::{Entry, Kind, Meta, RelPath, Stamp};
use crate::journal::Unfinished;
use crate::message::{FromDestination, NameId, Told, Want, bytes_of};
use crate::room::{self, PAGE};

use super::super::basics::SMALL;
use super::super::{Note, Watch};
use super::blocked::{Blocked, Pass, in_the_way};
use super::{Body, Incoming, NAME_BYTES, Receiver, ranges, short_sum};

/// Names that are wanted and not there yet, at most; a source waits long before.
const OPEN_MOST: usize = 2_000_000;
/// What names that are wanted take of memory, in bytes, at most.
const OPEN_BYTES_MOST: usize = 512 << 20;
/// What hard links and folders take that wait for the end, in bytes, at most: some 10 million of them.
const LATER_BYTES_MOST: usize = 2 << 30;
/// Ranges and sums in one want.
const HAVE_MOST: usize = 16 << 10;
const COMPARE_MOST: usize = 16 << 10;
/// Bytes that are there of a file above which others do not wait until they are read.
const LONG: u64 = 64 << 20;
/// Names that are remembered for `--delete`, at most: some 2 GiB.
const TOLD_MOST: usize = 50_000_000;

/// What becomes of a name.
pub(super) enum Decision {
    /// It is not wanted.
    No,
    Wanted(Want),
    /// Word of it comes by itself.
    Later(NameId),
}

/// A file that the source listed.
pub(super) struct Offered {
    pub(super) id: NameId,
    pub(super) path: RelPath,
    size: u64,
    modified: Stamp,
    meta: Meta,
    /// What it takes of memory, in bytes, about.
    weight: usize,
}

/// A wanted file of which much is there.
pub(super) struct Long {
    file: Arc<Incoming>,
    /// Length of an older copy whose sums are told.
    like: Option<u64>,
}

/// A path for the user.
fn shown(path: &RelPath) -> String {
    match path.is_top() {
        true => "./".to_owned(),
        false => path.to_string(),
    }
}

/// How a file is cut whose older copy is compared: all of its blocks have room in one message, up to 256 GiB.
fn compared(size: u64) -> Cut {
    let mut cut = Cut::usual(size);
    while cut.blocks() > COMPARE_MOST as u64 {
        let Some(longer) = Cut::new(size, cut.block() * 2) else {
            break;
        };
        cut = longer;
    }
    cut
}

impl Receiver<'_> {
    /// Decides upon names, and says so.
    pub(super) fn names(&self, names: Vec<Told>) -> io::Result<()> {
        let mut wants = Vec::new();
        let mut later = Vec::new();
        let mut bytes = 0;
        let mut until = 0;
        for told in names {
            {
                let mut files = self.lock();
                if told.id != files.next_id {
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        "a name out of order",
                    ));
                }
                files.next_id += 1;
                if matches!(told.entry.kind, Kind::Folder | Kind::Hardlink { .. }) {
                    files.later_bytes += NAME_BYTES + bytes_of(&told.entry);
                }
                if files.wanted.len() > OPEN_MOST
                    || files.wanted_bytes > OPEN_BYTES_MOST
                    || files.later_bytes > LATER_BYTES_MOST
                {
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        "too many names at once",
                    ));
                }
            }
            until = told.id + 1;
            self.account().names += 1;
            Watch::add(&self.watch.names, 1);
            let decision = self.decide(told)?;
            if let Decision::Later(id) = decision {
                later.push(id);
            }
            if let Decision::Wanted(want) = decision {
                bytes += 64 + want.have.len() * 16 + want.compare.len() * 48;
                wants.push(want);
                if bytes > MESSAGE_MOST / 4 {
                    self.say_later(&mut later);
                    self.decided_until(until);
                    let wants = std::mem::take(&mut wants);
                    self.outbox
                        .say(FromDestination::Decided { until, wants }.to_bytes());
                    bytes = 0;
                }
            }
        }
        self.say_later(&mut later);
        self.decided_until(until);
        self.outbox
            .say(FromDestination::Decided { until, wants }.to_bytes());
        self.look_at_long();
        Ok(())
    }

    /// Has long files read, now that the source knows that word of them comes by itself.
    pub(super) fn look_at_long(&self) {
        let mut files = self.lock();
        let ready = std::mem::take(&mut files.long_told);
        files.long.extend(ready);
        drop(files);
        self.changed.notify_all();
    }

    /// What comes of names below `until` is wanted, or is not.
    fn decided_until(&self, until: NameId) {
        let mut files = self.lock();
        files.decided = files.decided.max(until);
        drop(files);
        self.decided.notify_all();
    }

    fn say_later(&self, ids: &mut Vec<NameId>) {
        if !ids.is_empty() {
            let ids = std::mem::take(ids);
            self.outbox.say(FromDestination::Later(ids).to_bytes());
        }
    }

    /// Reads what is there of long files, one after the other, while others are decided upon.
    pub(super) fn look_long(&self) {
        let mut files = self.lock();
        while !self.is_over() {
            let Some(long) = files.long.pop_front() else {
                let waited = self.changed.wait_timeout(files, Duration::from_millis(100));
                files = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            drop(files);
            let Some(want) = self.want_of(&long.file, long.like) else {
                return;
            };
            let wants = vec![want];
            self.outbox
                .say(FromDestination::Decided { until: 0, wants }.to_bytes());
            files = self.lock();
        }
    }

    /// Makes a name what it should be, or wants its bytes.
    fn decide(&self, told: Told) -> io::Result<Decision> {
        let weight = NAME_BYTES + bytes_of(&told.entry);
        let Told {
            id,
            entry,
            modified,
        } = told;
        let Entry {
            path,
            kind,
            mut meta,
        } = entry;
        meta.has_all_attributes &= self.options.delete;
        let path = match &self.options.name {
            // One file, under another name.
            Some(name) if path.split().is_some_and(|(folder, _)| folder.is_top()) => name.clone(),
            Some(_) => {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "more than the one file",
                ));
            }
            None => path,
        };
        self.asked_for(&path)?;
        if self.options.delete {
            let mut files = self.lock();
            match files.told.len() < TOLD_MOST {
                true => files.told.insert(short_sum(&path)),
                false => std::mem::replace(&mut files.is_told_full, true),
            };
            if kind == Kind::Folder {
                files.told_folders.insert(short_sum(&path));
            }
        }
        let done = match kind {
            Kind::File { size } => {
                let file = Offered {
                    id,
                    path,
                    size,
                    modified,
                    meta,
                    weight,
                };
                return Ok(self.decide_file(file, Pass::First));
            }
            _ if self.options.null => Ok(()),
            Kind::Folder => self.patiently(|| self.folder(&path, &meta)),
            Kind::Symlink { target } => self.symlink_or_wait(&path, target, &meta),
            Kind::Hardlink { to } => {
                let to = self.options.name.clone().unwrap_or(to);
                // Or a file of this host that nobody asked about would have a second name.
                self.asked_for(&to)?;
                self.lock().links.push((path.clone(), to));
                Ok(())
            }
        };
        if let Err(error) = done {
            self.problem(&path, "cannot be written", &error);
        }
        Ok(Decision::No)
    }

    /// Whether a path begins with a name that was asked for.
    fn asked_for(&self, path: &RelPath) -> io::Result<()> {
        let first = path.names().next();
        let is_asked_for = match (&self.options.only, &self.options.name) {
            (Some(only), None) => only.iter().any(|name| first == Some(&**name)),
            // One file, under the name that it was given here.
            (_, Some(_)) | (None, None) => true,
        };
        match is_asked_for {
            true => Ok(()),
            false => {
                let text = format!("{path}, which was not asked for");
                Err(io::Error::new(ErrorKind::InvalidData, text))
            }
        }
    }

    fn folder(&self, path: &RelPath, meta: &Meta) -> io::Result<()> {
        match self.options.dry {
            true => {
                let stands = self.destination.look(path)?;
                match stands.filter(|stands| stands.kind == Standing::Folder) {
                    Some(stands) => {
                        self.would_amend(path, self.destination.differs(path, &stands, meta)?)
                    }
                    // As in a run that is real, folders are not counted.
                    None => self.would_copy(path, "a folder"),
                }
            }
            false => {
                let is_new = self.destination.make_folder(path, meta.mode.is_some())?;
                let mut files = self.lock();
                files.folders.push((path.clone(), meta.clone()));
                // Those on the way to it, which the walk comes back to, and no others.
                files.new_folders.retain(|above| {
                    let rest = path.as_bytes().strip_prefix(above.as_bytes());
                    rest.is_some_and(|rest| rest.first() == Some(&b'/'))
                });
                if is_new {
                    files.new_folders.push(path.clone());
                }
            }
        }
        Ok(())
    }

    pub(super) fn symlink(&self, path: &RelPath, target: &[u8], meta: &Meta) -> io::Result<()> {
        let stands = self.destination.look(path)?;
        let same = |kind: &Standing| matches!(kind, Standing::Symlink { target: there } if **there == *target);
        if let Some(stands) = stands.filter(|stands| same(&stands.kind)) {
            self.amend(path, &stands, meta)?;
            return Ok(());
        }
        match self.staging {
            None => self.would(path, "a symbolic link"),
            Some(staging) => {
                self.destination.symlink(staging, path, target, meta)?;
                self.placed(1, 0);
            }
        }
        Ok(())
    }

    /// Gives a name whose bytes are there what belongs to it and is other, or says that it would; whether anything was.
    fn amend(&self, path: &RelPath, stands: &Existing, meta: &Meta) -> io::Result<bool> {
        if self.options.dry {
            let differs = self.destination.differs(path, stands, meta)?;
            self.would_amend(path, differs);
            self.account().placed += u64::from(differs.any());
            return Ok(differs.any());
        }
        let is_amended = self.destination.amend(path, stands, meta)?;
        if is_amended {
            self.amended.fetch_add(1, Ordering::Relaxed);
            self.placed(1, 0);
        }
        Ok(is_amended)
    }

    fn would_amend(&self, path: &RelPath, differs: Differs) {
        if differs.any() {
            let path = shown(path);
            let text = format!("would set what belongs to {path} ({differs})");
            self.watch.note(Note::Skipped(text));
        }
    }

    /// Says that a name would be copied, and counts it.
    pub(super) fn would(&self, path: &RelPath, what: &str) {
        self.would_copy(path, what);
        self.account().placed += 1;
    }

    fn would_copy(&self, path: &RelPath, what: &str) {
        let text = format!("would copy {} ({what})", shown(path));
        self.watch.note(Note::Skipped(text));
    }

    /// Decides upon a file, at once or, where a folder is in its place, when the source has listed all names.
    pub(super) fn decide_file(&self, file: Offered, pass: Pass) -> Decision {
        // Nothing stands in a folder that was made a moment ago.
        let is_new = file.path.split().is_some_and(|(folder, _)| {
            let files = self.lock();
            files.new_folders.iter().rev().any(|new| *new == folder)
        });
        let looked = match is_new {
            true => Ok(None),
            false => self.destination.look(&file.path),
        };
        let stands = match looked {
            Ok(stands) => stands,
            Err(error) => {
                self.problem(&file.path, "cannot be looked at", &error);
                return Decision::No;
            }
        };
        if self.is_in_the_way(&file.path, stands.as_ref(), pass) {
            if !self.options.delete || pass == Pass::Cleared {
                self.problem(&file.path, "cannot be written", &in_the_way());
                return Decision::No;
            }
            let id = file.id;
            self.lock().blocked.push(Blocked::File(file));
            return Decision::Later(id);
        }
        let is_free = stands.is_none();
        let like = stands.filter(|stands| stands.kind == Standing::File);
        let is_same = like.as_ref().is_some_and(|like| {
            like.size == file.size && self.destination.is_time(like.modified, file.modified)
        });
        if let Some(stands) = like.as_ref().filter(|_| is_same)
            && !self.options.checksum
            && !self.options.null
        {
            let (path, meta) = (&file.path, &file.meta);
            match self.patiently(|| self.amend(path, stands, meta)) {
                Ok(true) => {}
                Ok(false) => self.account().same += 1,
                Err(error) => self.problem(path, "cannot be given what belongs to it", &error),
            }
            return Decision::No;
        }
        if self.options.dry {
            let size = file.size;
            let what = match is_same {
                true => format!("{size} bytes; first its sums are compared"),
                false => format!("{size} bytes"),
            };
            self.would(&file.path, &what);
            self.account().placed_bytes += size;
            return Decision::No;
        }
        if file.size == 0 {
            let put = || self.put(is_free, &file.path, &[], &file.meta);
            match self.patiently(put) {
                Ok(()) => self.placed(1, 0),
                Err(error) => self.problem(&file.path, "cannot be written", &error),
            }
            return Decision::No;
        }
        self.want(file, is_free, like.map(|like| like.size))
    }

    /// Wants a file's bytes, but those that an earlier attempt left or an older copy of `like` bytes has.
    fn want(&self, file: Offered, is_new: bool, like: Option<u64>) -> Decision {
        let Offered {
            id,
            path,
            size,
            modified,
            meta,
            weight,
        } = file;
        // It stays with those of which nobody heard until it is wanted: whoever writes the journal anew finds it at one of
        // both places at any time.
        let unfinished = self.left_behind(&path, |file| {
            // Who compares sums believes no length and time.
            file.cut.size() == size && file.modified == modified && !self.options.checksum
        });
        let there = like.filter(|there| unfinished.is_none() && self.is_compared(size, *there));
        let is_small = size <= SMALL && unfinished.is_none() && there.is_none();
        let read = unfinished.as_ref().map_or(0, |file| {
            (file.sums.len() as u64).saturating_mul(file.cut.block().into())
        });
        let is_long = read.max(there.unwrap_or(0)) > LONG;
        let is_left = unfinished.is_some();
        let file = Arc::new(Incoming {
            id,
            path,
            meta,
            size,
            modified,
            is_small,
            is_new,
            weight,
            body: Mutex::new(Body::Unknown(unfinished)),
            changed: Condvar::new(),
        });
        Watch::add(&self.watch.wanted, 1);
        Watch::add(&self.watch.wanted_bytes, size);
        self.lock().want(&file);
        if is_left {
            self.left().remove(&file.path);
        }
        if is_long {
            self.lock().long_told.push(Long { file, like: there });
            return Decision::Later(id);
        }
        match self.want_of(&file, there) {
            Some(want) => Decision::Wanted(want),
            None => Decision::No,
        }
    }

    /// What an earlier attempt left of a file, if it is of use; if not, it goes.
    fn left_behind(
        &self,
        path: &RelPath,
        is_of_use: impl FnOnce(&Unfinished) -> bool,
    ) -> Option<Unfinished> {
        let mut left = self.left();
        let file = left.get(path)?;
        if is_of_use(file) {
            return Some(file.clone());
        }
        let number = file.number;
        left.remove(path);
        drop(left);
        self.forget(number);
        None
    }

    /// Whether sums are told of an older copy of `there` bytes.
    fn is_compared(&self, size: u64, there: u64) -> bool {
        self.options.checksum && size > SMALL && there >= u64::from(compared(size).block())
    }

    /// What is wanted of a file: all but what an earlier attempt left, and blocks that are not as an older copy of `there`
    /// bytes has them. `None` once this is over.
    fn want_of(&self, incoming: &Incoming, there: Option<u64>) -> Option<Want> {
        // A copy: the journal may be written anew meanwhile.
        let mut unfinished = match &*incoming.lock() {
            Body::Unknown(unfinished) => unfinished.clone(),
            _ => None,
        };
        let mut want = Want {
            id: incoming.id,
            block: None,
            have: Vec::new(),
            compare: Vec::new(),
        };
        if let (Some(file), Some(staging)) = (&mut unfinished, self.staging) {
            let private = incoming.meta.mode.is_some();
            if !believe(staging, file, private, &|| self.is_over()) {
                // What was not read is for the next attempt to believe: the journal keeps all sums.
                return None;
            }
            want.block = Some(file.cut.block());
            want.have = ranges(file.sums.keys().copied());
            want.have.truncate(HAVE_MOST);
            let there: u64 = file
                .sums
                .keys()
                .map(|index| u64::from(file.cut.len(*index)))
                .sum();
            self.account().resumed_bytes += there;
            // What is not told would not be sent by mistake, but counted as there.
            let last = want.have.last().map_or(0, |(_, to)| *to);
            file.sums.retain(|index, _| *index < last);
        } else if let Some(there) = there {
            let cut = compared(incoming.size);
            want.block = Some(cut.block());
            want.compare = self.sums_of(&incoming.path, cut, there);
            if self.is_over() {
                return None;
            }
            want.compare.truncate(COMPARE_MOST);
        }
        *incoming.lock() = Body::Unknown(unfinished);
        Some(want)
    }

    /// Sums of the blocks of an older copy that lie where the new one has them.
    fn sums_of(&self, path: &RelPath, cut: Cut, there: u64) -> Vec<(u64, Sum)> {
        let Ok(file) = self.destination.open_existing(path) else {
            return Vec::new();
        };
        let mut room = Vec::new();
        let mut sums = Vec::new();
        for index in 0..cut.blocks().min(COMPARE_MOST as u64) {
            let place = room::place(&mut room, cut.len(index) as usize, PAGE);
            let bytes = &mut room[place];
            if cut.start(index) + bytes.len() as u64 > there || self.is_over() {
                break;
            }
            if file.read_exact_at(bytes, cut.start(index)).is_err() {
                break;
            }
            sums.push((index, cut.sum(index, bytes)));
        }
        sums
    }
}

/// Leaves of an unfinished file's sums only those that its bytes have. `false` where it was over before all were read: then
/// nothing is said of those that are left.
fn believe(
    staging: &Staging,
    file: &mut Unfinished,
    private: bool,
    is_over: &dyn Fn() -> bool,
) -> bool {
    let cut = file.cut;
    let mut room = Vec::new();
    let Ok(partial) = staging.partial(file.number, cut.size(), 0, private) else {
        file.sums.clear();
        return true;
    };
    let mut is_whole = true;
    file.sums.retain(|index, sum| {
        is_whole = is_whole && !is_over();
        if !is_whole {
            return false;
        }
        let place = room::place(&mut room, cut.len(*index) as usize, PAGE);
        let bytes = &mut room[place];
        let read = partial.file().read_exact_at(bytes, cut.start(*index));
        read.is_ok() && cut.sum(*index, bytes) == *sum
    });
    is_whole
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::destination::Destination;
    use crate::scratch::Scratch;

    #[test]
    fn what_is_there_is_read_no_further_once_it_is_over() {
        let scratch = Scratch::new();
        let (destination, _) = Destination::resolve(scratch.path(), false, false).unwrap();
        let staging = destination.staging(&[1; 16]).unwrap();
        let cut = Cut::new(100 << 16, 1 << 16).unwrap();
        let zeros = vec![0; 1 << 16];
        let unfinished = Unfinished {
            number: 0,
            cut,
            modified: Stamp::default(),
            sums: (0..100).map(|n| (n, cut.sum(n, &zeros))).collect(),
        };
        let asked = Cell::new(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            asked.get() > 3
        };
        assert!(!believe(&staging, &mut unfinished.clone(), true, &is_over));
        assert_eq!(asked.get(), 4);
        let mut all = unfinished.clone();
        assert!(believe(&staging, &mut all, true, &|| false));
        assert_eq!(all, unfinished);
        staging.discard().unwrap();
    }
}
