//! A host that sees the source's files beside the one that leads: it is told which blocks to read, and sends them.
//!
//! It holds nothing that a copy needs. Each of its links to the destination has one to the leader of the same number; when
//! either is cut, so is the other, and what the destination did not confirm is sent again by the leader itself.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sys::threads;

use crate::digest::Cut;
use crate::entry::{RelPath, Stamp};
use crate::link::{Link, Which};
use crate::meeting::{Meeting, is_gone};
use crate::message::{BLOCK_HEAD_BYTES, BlockHead, NameId};
use crate::source::{Fingerprint, Source, SourceFile};

use super::basics::{BLOCKS, nanoseconds};
use super::help::LOOK;
use super::{CopyError, Note, Watch};

/// A frame that says which block of which file is to be sent.
pub(crate) const FETCH: u8 = 8;

/// Bytes that a stream's blocks may have that were named and not confirmed, before it is known what it carries.
const AHEAD_LEAST: u64 = 8 << 20;
/// So long is looked at what a stream carries.
const AHEAD: Duration = Duration::from_secs(1);

/// How much one stream is told to send before the destination has what it was told before: word of a block is short, and a
/// connection that takes all of it at once would have all of a file's blocks, however slow whoever reads them.
#[derive(Debug)]
pub(super) struct Ahead {
    under_way: u64,
    most: u64,
    /// Since when, and how much was confirmed meanwhile.
    since: Instant,
    confirmed: u64,
}

impl Ahead {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            under_way: 0,
            most: AHEAD_LEAST,
            since: now,
            confirmed: 0,
        }
    }

    pub(super) const fn has_room(&self) -> bool {
        self.under_way < self.most
    }

    pub(super) const fn sent(&mut self, bytes: u64) {
        self.under_way += bytes;
    }

    /// What the stream carries in a second is enough, where word of it takes less.
    pub(super) fn confirmed(&mut self, bytes: u64, now: Instant) {
        self.under_way = self.under_way.saturating_sub(bytes);
        self.confirmed += bytes;
        self.most = self.most.max(self.confirmed);
        let took = now.saturating_duration_since(self.since);
        if took >= AHEAD {
            let a_second = u128::from(self.confirmed) * AHEAD.as_nanos() / took.as_nanos();
            self.most = u64::try_from(a_second).unwrap_or(u64::MAX).max(AHEAD_LEAST);
            (self.since, self.confirmed) = (now, 0);
        }
    }

    /// What was under way is sent by others.
    pub(super) const fn lost(&mut self) {
        self.under_way = 0;
    }
}

/// Files held open, at most; then all are opened again.
const OPEN_MOST: usize = 256;
/// Files that are not as the leader says, one after the other, before it is taken for granted that all are.
const STRANGE_MOST: u64 = 8;

/// Which block of which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) id: NameId,
    pub(crate) index: u64,
    pub(crate) cut: Cut,
    pub(crate) modified: Stamp,
    pub(crate) changed: Stamp,
    pub(crate) path: RelPath,
}

impl Fetch {
    /// Adds it to what is told about a frame.
    pub(crate) fn put(&self, about: &mut Vec<u8>) {
        about.extend_from_slice(&self.id.to_le_bytes());
        about.extend_from_slice(&self.index.to_le_bytes());
        about.extend_from_slice(&self.cut.size().to_le_bytes());
        about.extend_from_slice(&self.cut.block().to_le_bytes());
        for stamp in [self.modified, self.changed] {
            about.extend_from_slice(&stamp.seconds.to_le_bytes());
            about.extend_from_slice(&stamp.nanoseconds.to_le_bytes());
        }
        about.extend_from_slice(self.path.as_bytes());
    }

    /// From bytes; `None` for what is none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (block, mut rest) = rest.split_first_chunk()?;
        let mut stamp = || {
            let (seconds, after) = rest.split_first_chunk()?;
            let (nanoseconds, after) = after.split_first_chunk()?;
            rest = after;
            Some(Stamp {
                seconds: i64::from_le_bytes(*seconds),
                nanoseconds: u32::from_le_bytes(*nanoseconds),
            })
        };
        let (modified, changed) = (stamp()?, stamp()?);
        let cut = Cut::new(u64::from_le_bytes(*size), u32::from_le_bytes(*block))?;
        let index = u64::from_le_bytes(*index);
        (index < cut.blocks()).then_some(())?;
        Some(Self {
            id: u64::from_le_bytes(*id),
            index,
            cut,
            modified,
            changed,
            path: RelPath::new(rest).ok()?,
        })
    }

    /// Whether a file is the one that is meant. Numbers of devices, and of files, differ from host to host.
    fn is(&self, found: &Fingerprint) -> bool {
        (found.size, found.modified, found.changed)
            == (self.cut.size(), self.modified, self.changed)
    }
}

/// Sends blocks of `source` as the leader says, by `leader`, to a destination that comes by `meeting`, until that is over or
/// the user stops it.
///
/// # Errors
/// [`CopyError::Stopped`].
pub fn fetch(
    meeting: &Meeting,
    leader: &Meeting,
    source: &Source,
    watch: &Watch,
) -> Result<(), CopyError> {
    let helper = Helper {
        meeting,
        leader,
        source,
        watch,
        open: Mutex::default(),
        sight: Mutex::default(),
    };
    super::help::run(meeting, leader, watch, &|n| helper.stream(n))
}

struct Helper<'a> {
    meeting: &'a Meeting,
    leader: &'a Meeting,
    source: &'a Source,
    watch: &'a Watch,
    open: Mutex<HashMap<NameId, Arc<SourceFile>>>,
    sight: Mutex<Sight>,
}

/// Whether the leader's files are seen from here, as far as they show it.
#[derive(Debug, Default)]
struct Sight {
    /// One was as the leader says.
    has_seen: bool,
    /// How often in a row one was not, and the first of those.
    strange: u64,
    first: Option<NameId>,
    /// They are another host's.
    is_blind: bool,
}

impl Sight {
    fn seen(&mut self) {
        (self.has_seen, self.strange, self.first) = (true, 0, None);
    }

    /// A file is not here, or not as the leader says; whether that shows only now that none is. One may have been removed or
    /// changed meanwhile; two that are not here, and none that is, are another host's, and so are many in a row.
    fn strange(&mut self, id: NameId, is_missing: bool) -> bool {
        self.strange += 1;
        let first = *self.first.get_or_insert(id);
        let is_none_here = is_missing && !self.has_seen && first != id;
        let was_blind = self.is_blind;
        self.is_blind |= is_none_here || self.strange >= STRANGE_MOST;
        self.is_blind && !was_blind
    }
}

impl Helper<'_> {
    /// One stream, connection after connection.
    fn stream(&self, n: u16) {
        let which = Which::Blocks(n);
        let mut buffer = Vec::new();
        while !self.meeting.is_over() {
            // Where nobody came for as long as there is patience, somebody still may.
            let Ok((to, start)) = self.meeting.to_write(which) else {
                continue;
            };
            let is_blind = self.sight().is_blind;
            if let Ok(from) = self.leader.to_read_for(which, start, !is_blind) {
                // Either end goes with the other, whoever waits.
                let ends = (from.socket().again(), to.socket().again());
                if let (Ok(leader), Ok(destination)) = ends {
                    let is_done = AtomicBool::new(false);
                    thread::scope(|scope| {
                        let watches = threads::scoped(scope, "gp-watch", || {
                            while !is_done.load(Ordering::Relaxed) {
                                if is_gone(&leader) || is_gone(&destination) {
                                    leader.shut();
                                    destination.shut();
                                    return;
                                }
                                thread::park_timeout(LOOK);
                            }
                        });
                        if let Ok(watches) = watches {
                            let _ = self.pass_on(from, to, &mut buffer);
                            is_done.store(true, Ordering::Relaxed);
                            watches.thread().unpark();
                        }
                    });
                    leader.shut();
                    destination.shut();
                }
            }
            self.meeting.cut(which);
            self.leader.cut(which);
        }
    }

    fn pass_on(&self, mut from: Link, mut to: Link, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut block = Vec::new();
        let mut about = Vec::with_capacity(BLOCK_HEAD_BYTES);
        loop {
            let since = Instant::now();
            let head = from.receive(buffer)?;
            Watch::add(&self.watch.idle_ns, nanoseconds(since));
            let (told, data) = buffer.split_at(head.about);
            let data = match head.kind {
                BLOCKS => {
                    about.clear();
                    about.extend_from_slice(told);
                    &data[..head.data]
                }
                FETCH if head.data == 0 => {
                    let fetch = Fetch::read(told).ok_or(io::ErrorKind::InvalidData)?;
                    let len = self.read(&fetch, &mut about, &mut block)?;
                    &block[..len]
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
            let since = Instant::now();
            to.send(BLOCKS, &about, data)?;
            Watch::add(&self.watch.link_ns, nanoseconds(since));
            Watch::add(&self.watch.sent_bytes, data.len() as u64);
        }
    }

    /// Reads one block into `block`; its head into `about`.
    fn read(&self, fetch: &Fetch, about: &mut Vec<u8>, block: &mut Vec<u8>) -> io::Result<usize> {
        let since = Instant::now();
        let file = self.file(fetch)?;
        let len = fetch.cut.len(fetch.index) as usize;
        if block.len() < len {
            block.resize(len, 0);
        }
        let bytes = &mut block[..len];
        file.file()
            .read_exact_at(bytes, fetch.cut.start(fetch.index))?;
        if file.changed_since(file.fingerprint())? {
            return Err(io::Error::other("it changed meanwhile"));
        }
        Watch::add(&self.watch.disk_ns, nanoseconds(since));
        let since = Instant::now();
        let sum = fetch.cut.sum(fetch.index, bytes);
        Watch::add(&self.watch.sum_ns, nanoseconds(since));
        about.clear();
        BlockHead {
            id: fetch.id,
            index: fetch.index,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            sum,
            same: false,
            has_gaps: false,
        }
        .put(about);
        Ok(len)
    }

    fn sight(&self) -> MutexGuard<'_, Sight> {
        self.sight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that is meant, open.
    fn file(&self, fetch: &Fetch) -> io::Result<Arc<SourceFile>> {
        let all = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = all().get(&fetch.id) {
            return Ok(Arc::clone(file));
        }
        let opened = self.source.open_file(&fetch.path);
        let file = match opened {
            Ok(file) if fetch.is(file.fingerprint()) => file,
            opened => {
                if self.sight().strange(fetch.id, opened.is_err()) {
                    self.watch.note(Note::Skipped(
                        "files of the host that leads are not seen here: it reads them itself, and they go \
                         through here"
                            .to_owned(),
                    ));
                }
                return Err(opened
                    .err()
                    .unwrap_or_else(|| io::Error::other("another file")));
            }
        };
        self.sight().seen();
        let file = Arc::new(file);
        let mut all = all();
        if all.len() >= OPEN_MOST {
            all.clear();
        }
        all.insert(fetch.id, Arc::clone(&file));
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_told_no_more_than_it_carries_in_a_second() {
        let begun = Instant::now();
        let mut ahead = Ahead::new(begun);
        let block = 1 << 20;
        let fill = |ahead: &mut Ahead| {
            let mut blocks = 0;
            while ahead.has_room() {
                ahead.sent(block);
                blocks += 1;
            }
            blocks
        };
        assert_eq!(fill(&mut ahead), 8);
        // 100 blocks in a second, each noticed after 50 ms.
        for n in 0..100 {
            let now = begun + Duration::from_millis(10 * n + 50);
            ahead.confirmed(block, now);
            fill(&mut ahead);
        }
        assert_eq!(ahead.under_way, 96 * block);
        // It became slow: a block in a second.
        for n in 0..100 {
            ahead.confirmed(block, begun + Duration::from_secs(2 + n));
            fill(&mut ahead);
        }
        assert_eq!(ahead.under_way, 8 * block);
        ahead.lost();
        assert_eq!(fill(&mut ahead), 8);
    }

    #[test]
    fn one_missing_file_blinds_nobody_and_many_do() {
        // Removed before the first was read, and asked for by several streams.
        let mut sight = Sight::default();
        assert!(!sight.strange(1, true) && !sight.strange(1, true));
        sight.seen();
        for id in 2..9 {
            assert!(!sight.strange(id, true), "{id}");
        }
        sight.seen();
        for id in 2..9 {
            assert!(!sight.strange(id, id % 2 == 0), "{id}");
        }
        // The eighth in a row; it is told once.
        assert!(sight.strange(9, true) && sight.is_blind);
        assert!(!sight.strange(10, true));
        // Where nothing was ever seen, two are enough; of one file alone, many times.
        let mut elsewhere = Sight::default();
        assert!(!elsewhere.strange(1, true) && elsewhere.strange(2, true));
        let mut alone = Sight::default();
        let found: Vec<bool> = (0..8).map(|_| alone.strange(1, true)).collect();
        assert_eq!(
            found,
            [false, false, false, false, false, false, false, true]
        );
        // Files that are here and otherwise may have changed.
        let mut changed = Sight::default();
        assert!((1..8).all(|id| !changed.strange(id, false)));
    }

    #[test]
    fn what_is_to_be_sent_is_read_as_it_was_written_and_nothing_else_is() {
        let stamp = |seconds| Stamp {
            seconds,
            nanoseconds: 9,
        };
        let fetch = Fetch {
            id: 3,
            index: 4,
            cut: Cut::new((5 << 20) - 1, 1 << 20).unwrap(),
            modified: stamp(-1),
            changed: stamp(7),
            path: RelPath::new(b"a/b").unwrap(),
        };
        let bytes = |fetch: &Fetch| {
            let mut bytes = Vec::new();
            fetch.put(&mut bytes);
            bytes
        };
        assert_eq!(Fetch::read(&bytes(&fetch)), Some(fetch.clone()));
        for cut in 0..52 {
            assert_eq!(Fetch::read(&bytes(&fetch)[..cut]), None, "{cut}");
        }
        let mut out = bytes(&fetch);
        let at = out.len() - 3;
        out[at..].copy_from_slice(b"../");
        assert_eq!(Fetch::read(&out), None);
        let beyond = Fetch { index: 5, ..fetch };
        assert_eq!(Fetch::read(&bytes(&beyond)), None);
    }
}
