//! The source's side: walks, tells, reads what is wanted and sends it over as many streams as help.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crate::channel::{self, MESSAGE_MOST, Outbox};
use crate::digest::{Cut, Sum};
use crate::entry::{Entry, Kind, RelPath};
use crate::filter::Filter;
use crate::link::Which;
use crate::meeting::Meeting;
use crate::message::{
    Account, BLOCK_HEAD_BYTES, BlockHead, FromDestination, FromSource, NameId, Told, Want, bytes_of,
};
use crate::reason::reason;
use crate::source::{Fingerprint, Found, Source, SourceFile, Walked};

use super::basics::{SMALL, nanoseconds};
use super::contents::Pieces;
use super::disk::{Disk, Handle};
use super::early::Early;
use super::fetch::Fetch;
use super::ranges::{is_of, without};
use super::{CopyError, Note, Watch, zeros};

pub use super::options::SendOptions;

mod stream;
mod unasked;
mod under_way;

use sys::threads::{self, Crew};
use under_way::{Due, Sent};

/// Bytes and files in a frame of small files, at most.
const PACK_BYTES: u64 = 256 << 10;
const PACK_FILES: usize = 512;
const _: () = assert!(PACK_FILES * BLOCK_HEAD_BYTES <= crate::link::ABOUT_MOST);
/// Names that were told and are neither refused nor confirmed, at most: the walk waits.
const NAMES_OPEN: usize = 300_000;
/// Bytes of names in a message, and in the first, of which each has twice the one before: a connection that begins brings some
/// 14 KB in its first round trip, and a message that is longer is heard one or two later.
const NAMES_BYTES: usize = 48 << 10;
const NAMES_BYTES_FIRST: usize = 3 << 10;
/// How long names wait for others before they are told.
const NAMES_WAIT: Duration = Duration::from_millis(20);
/// Bytes from which on it does not matter that connections begin with some 40 KiB of nothing each.
const MUCH: u64 = 64 << 20;
/// The same of names, of which each takes some 50.
const MANY: u64 = 10_000;
/// Names from which on their mean length says what is to be sent, and the mean up to which the work for each file is what
/// counts ([`Sender::is_free`]), in bytes.
const NAMES_TELLING: u64 = 1_000;
const MEAN_SMALL: u64 = 64 << 10;
/// A file of which less than this part is on the disk has holes; more may be compression's doing, and is read in full.
const SPARSE: u64 = 4;
/// Holes that are told of one file: what a message carries.
const HOLES_MOST: usize = 60_000;
/// Files that are cut into blocks and held open until these are confirmed, at most: the next waits.
const FILES_OPEN: usize = 1 << 10;
/// How often a stream that has nothing to send looks whether its connection is gone, and what others are late with.
const LOOK: Duration = Duration::from_millis(100);
/// How often a file that changes while it is read is told anew.
const TRIES: u8 = 3;

/// Sends what `source` has and `filter` admits, until the destination says that all is done.
///
/// # Errors
/// As [`CopyError`] tells.
pub fn send(
    meeting: &Meeting,
    source: &Source,
    filter: &Filter,
    options: &SendOptions,
    watch: &Watch,
) -> Result<Account, CopyError> {
    let sender = Sender::new(meeting, source, options, watch);
    let is_over = || sender.is_over();
    sender.run(&|each| source.walk_unless(filter, &options.keep, &is_over, each))
}

/// As [`send`], of what `early` walks, in a thread of its own that began before anybody was met.
///
/// # Errors
/// As [`send`].
pub fn send_early(
    meeting: &Meeting,
    source: &Source,
    early: &Early,
    options: &SendOptions,
    watch: &Watch,
) -> Result<Account, CopyError> {
    let sender = Sender {
        early: Some(early),
        ..Sender::new(meeting, source, options, watch)
    };
    sender.run(&|each| early.each(each))
}

/// What is done with what a walk comes to, and whether it goes on.
type Each<'a> = dyn FnMut(Walked) -> ControlFlow<()> + 'a;
/// A walk.
type Walks<'a> = dyn Fn(&mut Each<'_>) -> ControlFlow<()> + Sync + 'a;

impl<'a> Sender<'a> {
    fn new(
        meeting: &'a Meeting,
        source: &'a Source,
        options: &'a SendOptions,
        watch: &'a Watch,
    ) -> Self {
        Self {
            meeting,
            source,
            options,
            watch,
            outbox: Outbox::default(),
            work: Mutex::default(),
            changed: Condvar::new(),
            streams: Mutex::default(),
            ended: Mutex::default(),
            next_id: Mutex::default(),
            again: Mutex::default(),
            disk: Disk::new(options.io, "source", watch),
            held: Arc::default(),
            is_over: AtomicBool::new(false),
            is_congestion_told: AtomicBool::new(false),
            early: None,
            is_free: AtomicBool::new(
                !super::gaps::is_first(options, meeting.ways()) || watch.limit().is_some(),
            ),
        }
    }
}

struct Sender<'a> {
    meeting: &'a Meeting,
    source: &'a Source,
    options: &'a SendOptions,
    watch: &'a Watch,
    outbox: Outbox,
    work: Mutex<Work>,
    changed: Condvar,
    /// What was sent on each stream and is not confirmed.
    streams: Mutex<BTreeMap<u16, Arc<Mutex<Sent>>>>,
    ended: Mutex<Option<Result<Account, CopyError>>>,
    next_id: Mutex<NameId>,
    /// Changed files, to be told anew, and how often they were.
    again: Mutex<HashMap<RelPath, u8>>,
    disk: Disk<'a>,
    /// Each file that is held open has one more of it.
    held: Arc<()>,
    is_over: AtomicBool,
    is_congestion_told: AtomicBool,
    /// What walked, and read some files, before anybody was met.
    early: Option<&'a Early>,
    /// Streams of a long path have BBR, and are not held below what they find together ([`Sender::is_free`]).
    is_free: AtomicBool,
}

#[derive(Default)]
struct Work {
    /// Told and not decided, in order of their numbers.
    told: BTreeMap<NameId, Known>,
    /// Small ones that are sent, or about to be, and not decided ([`unasked`]).
    unasked: BTreeMap<NameId, Arc<Known>>,
    /// The destination did not want one of these.
    is_asked_only: bool,
    /// Told, and decided upon later, by themselves.
    later: HashMap<NameId, Known>,
    /// Frames that were lost with a connection.
    redo: VecDeque<Due>,
    /// The destination has said what it received in all.
    is_finished: bool,
    small: VecDeque<(NameId, Arc<Known>)>,
    large: VecDeque<(NameId, Known, Want)>,
    active: VecDeque<Arc<Active>>,
    /// Names wanted and not confirmed.
    open: usize,
}

impl Work {
    /// Names that were told and are neither refused nor confirmed. A far side may confirm what it does not decide upon.
    fn undecided(&self) -> usize {
        self.told.len() + self.later.len() + self.open.max(self.unasked.len())
    }
}

/// A file that was told.
#[derive(Clone, Debug)]
struct Known {
    entry: Entry,
    fingerprint: Fingerprint,
    /// Bytes of it that are on the disk.
    data: u64,
}

impl Known {
    fn expected(&self) -> u64 {
        expected(self.fingerprint.size, self.data)
    }

    fn path(&self) -> &RelPath {
        &self.entry.path
    }
}

/// A file that is cut into blocks.
#[derive(Debug)]
struct Active {
    id: NameId,
    entry: Entry,
    file: SourceFile,
    direct: Handle,
    cut: Cut,
    fingerprint: Fingerprint,
    /// Blocks to send, from..to, and how far they are given out.
    todo: Mutex<Todo>,
    /// Blocks that no stream has yet.
    left: AtomicU64,
    compare: HashMap<u64, Sum>,
    /// Fewer bytes are on the disk than it has.
    has_holes: bool,
    is_lost: AtomicBool,
    /// Counts those that are held open.
    _held: Arc<()>,
}

impl Active {
    /// Whether another host may read a block and send it.
    fn may_be_fetched(&self, index: u64) -> bool {
        let is_short = self.entry.path.as_bytes().len() <= MESSAGE_MOST / 2;
        is_short && !self.compare.contains_key(&index) && !self.is_lost.load(Ordering::Relaxed)
    }

    fn fetch(&self, index: u64) -> Fetch {
        Fetch {
            id: self.id,
            index,
            cut: self.cut,
            modified: self.fingerprint.modified,
            changed: self.fingerprint.changed,
            path: self.entry.path.clone(),
        }
    }
}

#[derive(Debug)]
struct Todo {
    ranges: VecDeque<(u64, u64)>,
}

#[derive(Clone, Debug)]
enum Task {
    Block {
        file: Arc<Active>,
        index: u64,
        is_again: bool,
    },
    Pack(Vec<(NameId, Arc<Known>)>),
}

impl Sender<'_> {
    fn run(&self, walk: &Walks<'_>) -> Result<Account, CopyError> {
        let crew = self.crew();
        thread::scope(|scope| {
            crew.start(scope, "gp-says", || {
                let wrote = self.outbox.run(self.meeting, Which::FromSource);
                self.link_ended(wrote);
            });
            crew.start(scope, "gp-hears", || {
                let heard = channel::hear(
                    self.meeting,
                    Which::FromDestination,
                    &self.outbox,
                    |bytes| self.hear(bytes),
                );
                self.link_ended(heard);
            });
            crew.start(scope, "gp-walk", || self.walk(walk));
            crew.start(scope, "gp-tune", || {
                super::tune::tune(self.meeting, &self.options.streams, self.watch, self);
                if self.options.congestion.is_none() {
                    super::tune::heed_losses(self.meeting, self.watch);
                }
            });
            crew.start(scope, "gp-carry", || {
                super::carry::watch(self.meeting, self.watch, self);
            });
            crew.start(scope, "gp-seen", || {
                super::seen::look(self.meeting, self.watch);
            });
            crew.start(scope, "gp-disk", || {
                self.disk
                    .choose(&|| self.is_over(), &|| self.watch.to_come())
            });
            if self.limit().is_some() {
                crew.start(scope, "gp-limit", || {
                    super::tune::limit(self.meeting, &|| self.limit());
                });
            } else {
                crew.start(scope, "gp-gaps", || {
                    let (meeting, watch) = (self.meeting, self.watch);
                    super::gaps::control(meeting, watch, self, self.options, &self.is_free);
                });
            }
            crew.start(scope, "gp-streams", || self.start_streams(scope, &crew));
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                if let Some(result) = ended.take() {
                    drop(ended);
                    self.over();
                    return result;
                }
                if self.watch.is_stopped() {
                    drop(ended);
                    self.outbox
                        .say_now(FromSource::Stops("stopped by its user".into()).to_bytes());
                    self.outbox.wait_heard(Duration::from_secs(2));
                    self.over();
                    return Err(CopyError::Stopped);
                }
                if let Some(error) = super::broken(self.meeting) {
                    ended.get_or_insert(Err(error));
                    continue;
                }
                self.watch.note_ways(self.meeting);
                let waited = self.changed.wait_timeout(ended, Duration::from_millis(100));
                ended = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        })
    }

    /// The session's threads: it ends where one of them cannot start.
    fn crew(&self) -> Crew<impl Fn(&io::Error) + Sync> {
        Crew::new(|error| self.end(Err(CopyError::Here(error.to_string()))))
    }

    /// Starts streams as they are wanted; no more than this host has threads for, but one.
    fn start_streams<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        crew: &'scope Crew<impl Fn(&io::Error) + Sync>,
    ) {
        let mut there = 0;
        while let Some(wanted) = self.meeting.more_streams(there) {
            for n in there..wanted {
                if n == 0 {
                    crew.start(scope, "gp-stream", move || self.stream(n));
                } else if let Err(error) =
                    threads::scoped(scope, "gp-stream", move || self.stream(n))
                {
                    let text = format!("{n} of {wanted} streams: {error}");
                    self.watch.note(Note::Chosen(text));
                    self.watch.streams.store(n.into(), Ordering::Relaxed);
                    return;
                }
            }
            there = wanted;
            self.watch.streams.store(there.into(), Ordering::Relaxed);
        }
    }

    fn over(&self) {
        let (over_quic, _) = self.meeting.over_quic();
        self.watch.is_quic.store(over_quic > 0, Ordering::Relaxed);
        super::seen::look_once(self.meeting, self.watch);
        self.watch.note_ways(self.meeting);
        self.watch.note_carried(self.meeting);
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(early) = self.early {
            // Whoever takes what it comes to may wait for the next for long, among names that are excluded.
            early.stop();
        }
        self.outbox.close();
        self.meeting.close();
        let _guard = self.lock();
        self.changed.notify_all();
    }

    fn end(&self, result: Result<Account, CopyError>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert(result);
        self.changed.notify_all();
    }

    fn link_ended(&self, result: io::Result<()>) {
        if let Err(error) = result {
            self.end(Err(match error.kind() {
                ErrorKind::InvalidData => CopyError::Protocol(error.to_string()),
                ErrorKind::OutOfMemory => CopyError::Here(error.to_string()),
                _ => CopyError::Link(error),
            }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells names, as many at a time as come within a moment.
    fn walk(&self, walk: &Walks<'_>) {
        let mut names: Vec<Found> = Vec::new();
        let is_partial = AtomicBool::new(false);
        let mut bytes = 0;
        let mut most = NAMES_BYTES_FIRST;
        let mut since = Instant::now();
        let flow = walk(&mut |walked| {
            match walked {
                Walked::Skipped(skipped) => {
                    if skipped.why.is_missing() {
                        is_partial.store(true, Ordering::Relaxed);
                        Watch::add(&self.watch.unread, 1);
                    }
                    if let Some(kind) = skipped.why.special() {
                        Watch::add(&self.watch.specials[kind], 1);
                    }
                    let text = format!("{}: {}", skipped.path, skipped.why);
                    self.watch.note(Note::Skipped(text));
                }
                Walked::Found(found) => {
                    if names.is_empty() {
                        since = Instant::now();
                    }
                    bytes += bytes_of(&found.entry);
                    names.push(found);
                }
            }
            if bytes >= most || (!names.is_empty() && since.elapsed() >= NAMES_WAIT) {
                bytes = 0;
                most = NAMES_BYTES.min(2 * most);
                if !self.tell(std::mem::take(&mut names), self.options.unasked) {
                    return ControlFlow::Break(());
                }
            }
            let mut work = self.lock();
            while work.undecided() >= NAMES_OPEN && !self.is_over() {
                // What is told is decided upon only when it is told.
                if !names.is_empty() {
                    drop(work);
                    bytes = 0;
                    self.tell(std::mem::take(&mut names), self.options.unasked);
                    work = self.lock();
                }
                let waited = self.changed.wait_timeout(work, Duration::from_millis(200));
                work = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            match self.is_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if flow.is_break() || !self.tell(names, self.options.unasked) {
            return;
        }
        self.watch.is_walked.store(true, Ordering::Relaxed);
        let roots = self.source.roots();
        let is_whole = !is_partial.load(Ordering::Relaxed);
        let mut message = FromSource::Walked { roots, is_whole }.to_bytes();
        if message.len() > MESSAGE_MOST {
            let text =
                "too many folders were named for --delete to be told of them: nothing is deleted";
            self.watch.note(Note::Skipped(text.to_owned()));
            let (roots, is_whole) = (Vec::new(), false);
            message = FromSource::Walked { roots, is_whole }.to_bytes();
        }
        self.outbox.say(message);
    }

    /// Numbers a name, and remembers files.
    fn told(&self, id: NameId, mut found: Found) -> Told {
        Watch::add(&self.watch.names, 1);
        found.entry.meta.has_all_attributes &= self.options.tells_all_attributes;
        let mut modified = found.entry.meta.modified.unwrap_or_default();
        if let Some(fingerprint) = found.fingerprint {
            modified = fingerprint.modified;
            Watch::add(&self.watch.named_bytes, fingerprint.size);
            if self.watch.named_bytes.load(Ordering::Relaxed) >= MUCH {
                self.meeting.has_much();
            }
            if self.watch.names.load(Ordering::Relaxed) >= MANY {
                self.meeting.has_many();
            }
            let known = Known {
                entry: found.entry.clone(),
                fingerprint,
                data: match self.options.null {
                    true => fingerprint.size,
                    false => found.data,
                },
            };
            self.lock().told.insert(id, known);
        }
        Told {
            id,
            entry: found.entry,
            modified,
        }
    }

    /// Tells names, whose small files are sent at once or once they are asked for.
    fn tell(&self, names: Vec<Found>, unasked: bool) -> bool {
        if names.is_empty() {
            return true;
        }
        // Whoever numbers names tells them before another does: the destination takes them in order only.
        let mut next = self.next_id.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *next;
        let mut numbered = Vec::with_capacity(names.len());
        for found in names {
            numbered.push(self.told(*next, found));
            *next += 1;
        }
        let message = FromSource::Names(numbered).to_bytes();
        if message.len() > MESSAGE_MOST {
            self.end(Err(CopyError::Here(
                "a name with more attributes than can be told".into(),
            )));
            return false;
        }
        let is_said = self.outbox.say(message);
        if unasked {
            self.send_unasked(first, *next);
        }
        is_said
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.watch.is_stopped()
    }

    /// One message of the destination.
    fn hear(&self, bytes: &[u8]) -> io::Result<()> {
        let message = FromDestination::read(bytes)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
        match message {
            FromDestination::Decided { until, wants } => self.decided(until, wants)?,
            FromDestination::Later(ids) => {
                let mut work = self.lock();
                for id in ids {
                    let Some(known) = work.told.remove(&id) else {
                        let text = "decides later upon what was not offered";
                        return Err(io::Error::new(ErrorKind::InvalidData, text));
                    };
                    work.later.insert(id, known);
                }
            }
            FromDestination::Received { streams, placed } => {
                self.watch.placed.store(placed, Ordering::Relaxed);
                for (n, count) in streams {
                    let sent = self.lock_streams().get(&n).cloned();
                    let Some(sent) = sent else { continue };
                    self.confirmed(
                        &mut sent.lock().unwrap_or_else(PoisonError::into_inner),
                        count,
                    )?;
                }
                self.watch.mark();
            }
            FromDestination::Problem(text) => self.watch.note(Note::Skipped(text)),
            FromDestination::Finished(account) => {
                // What it confirmed last may come after its last word, or not at all: from here on this is all.
                let watch = self.watch;
                let confirmed = &watch.confirmed_bytes;
                let mut work = self.lock();
                work.is_finished = true;
                confirmed.fetch_max(account.received_bytes, Ordering::Relaxed);
                drop(work);
                watch.placed.store(account.placed, Ordering::Relaxed);
                watch.mark();
                self.meeting.part();
                self.outbox.say_now(FromSource::Bye.to_bytes());
                self.outbox.wait_written(Duration::from_secs(2));
                self.end(Ok(account));
            }
            FromDestination::Stops(why) => self.end(Err(CopyError::Far(why))),
        }
        Ok(())
    }

    fn lock_streams(&self) -> MutexGuard<'_, BTreeMap<u16, Arc<Mutex<Sent>>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decided(&self, until: NameId, wants: Vec<Want>) -> io::Result<()> {
        let mut work = self.lock();
        let later = work.told.split_off(&until);
        let mut decided = std::mem::replace(&mut work.told, later);
        let later = work.unasked.split_off(&until);
        let mut unasked = std::mem::replace(&mut work.unasked, later);
        for want in wants {
            if unasked.remove(&want.id).is_some() {
                unasked::confirm(&want)?;
                continue;
            }
            let known = decided.remove(&want.id);
            let Some(known) = known.or_else(|| work.later.remove(&want.id)) else {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "wants what was not offered",
                ));
            };
            if !is_of(&want, known.fingerprint.size) {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "has blocks that the file has not",
                ));
            }
            Watch::add(&self.watch.wanted, 1);
            Watch::add(&self.watch.wanted_bytes, known.expected());
            work.open += 1;
            let is_whole = want.have.is_empty() && want.compare.is_empty();
            match known.fingerprint.size <= SMALL && is_whole {
                true => work.small.push_back((want.id, Arc::new(known))),
                false => work.large.push_back((want.id, known, want)),
            }
        }
        self.refused(&mut work, &unasked);
        drop(work);
        if let Some(early) = self.early {
            // Empty ones are never wanted: the destination makes them itself.
            let left = decided.values().filter(|known| known.fingerprint.size > 0);
            let left = left.chain(unasked.values().map(|known| &**known));
            early.contents.leave(left.map(Known::path));
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Opens a wanted file and tells how it is cut.
    fn open(&self, id: NameId, known: Known, want: Want) {
        let expected = known.expected();
        let has_holes = known.data < known.fingerprint.size;
        let Known {
            entry, fingerprint, ..
        } = known;
        let opened = self.source.open_file(&entry.path).and_then(|file| {
            if *file.fingerprint() != fingerprint {
                return Ok(None);
            }
            let data = match self.options.null {
                true => std::iter::once(0..fingerprint.size).collect(),
                false => file.data_ranges()?,
            };
            Ok(Some((file, data)))
        });
        let (file, data) = match opened {
            Ok(Some(opened)) => opened,
            lost => {
                self.watch.comes_not(expected);
                return self.lost(id, &entry, lost.err().as_ref());
            }
        };
        let cut = match want.block.or(self.options.block) {
            Some(block) => Cut::new(fingerprint.size, block),
            None => None,
        };
        let cut = cut.unwrap_or_else(|| Cut::usual(fingerprint.size));
        let block = u64::from(cut.block());
        // Blocks in which there are data, and the others.
        let mut with_data: Vec<(u64, u64)> = Vec::new();
        for range in data {
            let (from, to) = (range.start / block, range.end.div_ceil(block));
            match with_data.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => with_data.push((from, to)),
            }
        }
        if fingerprint.size == 0 {
            with_data = vec![(0, 1)];
        }
        let mut holes = without(&[(0, cut.blocks())], &with_data);
        if holes.len() > HOLES_MOST {
            // The others are sent as the zeros they are.
            holes.truncate(HOLES_MOST);
            with_data = without(&[(0, cut.blocks())], &holes);
        }
        let ranges: VecDeque<_> = without(&with_data, &want.have).into();
        let left: u64 = ranges.iter().map(|(from, to)| to - from).sum();
        // Less holes, and what is there already.
        Watch::add(&self.watch.wanted_bytes, cut.bytes(&ranges));
        self.watch.comes_not(expected);
        let layout = FromSource::Layout {
            id,
            size: cut.size(),
            block: cut.block(),
            holes,
        };
        self.outbox.say(layout.to_bytes());
        let active = Arc::new(Active {
            id,
            entry,
            file,
            direct: Handle::new(),
            cut,
            fingerprint,
            todo: Mutex::new(Todo { ranges }),
            left: AtomicU64::new(left.max(1)),
            compare: want.compare.into_iter().collect(),
            has_holes,
            is_lost: AtomicBool::new(false),
            _held: Arc::clone(&self.held),
        });
        if left == 0 {
            self.block_done(&active);
            return;
        }
        self.lock().active.push_back(active);
        self.changed.notify_all();
    }

    /// Reads one block into `buffer`, and its head into `about`; where it lies there. `None` where its file is lost.
    fn block(
        &self,
        file: &Arc<Active>,
        index: u64,
        is_again: bool,
        about: &mut Vec<u8>,
        buffer: &mut Vec<u8>,
    ) -> Option<Range<usize>> {
        if file.is_lost.load(Ordering::Relaxed) {
            return None;
        }
        let len = file.cut.len(index) as usize;
        let read = match self.options.null {
            true => {
                buffer.resize(len.max(buffer.len()), 0);
                Ok(0..len)
            }
            false => {
                let open = || self.source.past_cache(&file.entry.path, &file.fingerprint);
                let direct = self.disk.past(&file.direct, file.cut.size(), open);
                let ways = (file.file.file(), direct);
                self.disk.read(ways, buffer, len, file.cut.start(index))
            }
        };
        let is_changed = || file.file.changed_since(&file.fingerprint).unwrap_or(true);
        let place = match read {
            Ok(place) if !is_again || !is_changed() => place,
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                self.lose(file, Some(&error));
                return None;
            }
            _ => {
                self.lose(file, None);
                return None;
            }
        };
        let since = Instant::now();
        let sum = file.cut.sum(index, &buffer[place.clone()]);
        Watch::add(&self.watch.sum_ns, nanoseconds(since));
        let same = file.compare.get(&index) == Some(&sum);
        if same && !is_again {
            self.watch.comes_not(len as u64);
        }
        let left_out = match !same && file.has_holes && self.options.leaves_out_zeros {
            true => zeros::leave_out(&mut buffer[place.clone()]),
            false => None,
        };
        let bytes = match (same, left_out) {
            (true, _) => 0,
            (false, Some(bytes)) => bytes,
            (false, None) => len,
        };
        if !is_again && !same {
            self.watch.comes_not((len - bytes) as u64);
        }
        BlockHead {
            id: file.id,
            index,
            len: u32::try_from(bytes).unwrap_or(u32::MAX),
            sum,
            same,
            has_gaps: left_out.is_some(),
        }
        .put(about);
        Some(place.start..place.start + bytes)
    }

    /// Has small files one after the other in `pieces`, those that were not read early in `buffer`; returns those that are there
    /// as they were told.
    fn pack(
        &self,
        files: Vec<(NameId, Arc<Known>)>,
        about: &mut Vec<u8>,
        buffer: &mut Vec<u8>,
        pieces: &mut Pieces,
    ) -> Vec<(NameId, Arc<Known>)> {
        buffer.clear();
        about.reserve(files.len() * BLOCK_HEAD_BYTES);
        let mut there = Vec::with_capacity(files.len());
        let (mut disk, mut sums) = (0, 0);
        let since = Instant::now();
        let wanted = files.iter();
        let wanted = wanted.map(|(_, known)| (known.path(), &known.fingerprint));
        let early = self
            .early
            .map(|early| early.contents.take(self.source, wanted));
        disk += nanoseconds(since);
        let mut early = early.unwrap_or_default().into_iter();
        for (id, known) in files {
            let (sum, len) = match early.next().flatten() {
                Some(content) => {
                    let (sum, len) = (content.sum, content.len());
                    pieces.early(content);
                    (sum, len)
                }
                None => {
                    let at = buffer.len();
                    let since = Instant::now();
                    let read = self.read_small(&known, buffer);
                    disk += nanoseconds(since);
                    if !matches!(read, Ok(true)) {
                        buffer.truncate(at);
                        if !self.take_back(id) {
                            self.watch.comes_not(known.fingerprint.size);
                            self.lost(id, &known.entry, read.err().as_ref());
                        }
                        continue;
                    }
                    let since = Instant::now();
                    let sum = *blake3::hash(&buffer[at..]).as_bytes();
                    sums += nanoseconds(since);
                    pieces.read(at..buffer.len());
                    (sum, buffer.len() - at)
                }
            };
            BlockHead {
                id,
                index: 0,
                len: u32::try_from(len).unwrap_or(u32::MAX),
                sum,
                same: false,
                has_gaps: false,
            }
            .put(about);
            there.push((id, known));
        }
        Watch::add(&self.watch.disk_ns, disk);
        Watch::add(&self.watch.sum_ns, sums);
        there
    }

    /// Puts the whole of a file behind what is in `buffer`; `false` where it is not as it was told.
    fn read_small(&self, known: &Known, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let at = buffer.len();
        let size = usize::try_from(known.fingerprint.size).unwrap_or(usize::MAX);
        let file = self.source.open_file(known.path())?;
        buffer.resize(at + size, 0);
        match file.file().read_exact_at(&mut buffer[at..], 0) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        // What grew has another length.
        Ok(!file.changed_since(&known.fingerprint)?)
    }

    /// A block is about to leave, which may have been its file's last.
    fn block_done(&self, file: &Arc<Active>) {
        if file.left.fetch_sub(1, Ordering::AcqRel) != 1 || file.is_lost.load(Ordering::Relaxed) {
            return;
        }
        match file.file.changed_since(&file.fingerprint) {
            Ok(false) => {
                self.outbox.say(FromSource::Ended(file.id).to_bytes());
                let mut work = self.lock();
                work.open = work.open.saturating_sub(1);
                drop(work);
                self.changed.notify_all();
            }
            Ok(true) => self.lose(file, None),
            Err(error) => self.lose(file, Some(&error)),
        }
    }

    fn lose(&self, file: &Active, error: Option<&io::Error>) {
        if !file.is_lost.swap(true, Ordering::Relaxed) {
            let todo = file.todo.lock();
            let ranges = std::mem::take(&mut todo.unwrap_or_else(PoisonError::into_inner).ranges);
            self.watch.comes_not(file.cut.bytes(&ranges));
            self.lost(file.id, &file.entry, error);
        }
    }

    /// A wanted file does not come as it was told: it is told anew where it only changed.
    fn lost(&self, id: NameId, entry: &Entry, error: Option<&io::Error>) {
        let path = &entry.path;
        {
            let mut work = self.lock();
            work.open = work.open.saturating_sub(1);
        }
        self.changed.notify_all();
        let why = match error {
            Some(error) => format!("{path}: cannot be read: {}", reason(error)),
            None => {
                let tries = {
                    let mut again = self.again.lock().unwrap_or_else(PoisonError::into_inner);
                    let tries = again.entry(path.clone()).or_default();
                    *tries += 1;
                    *tries
                };
                match tries < TRIES {
                    true => match self.source.open_file(path) {
                        Ok(file) => {
                            let fingerprint = *file.fingerprint();
                            let mut entry = entry.clone();
                            entry.kind = Kind::File {
                                size: fingerprint.size,
                            };
                            if entry.meta.modified.is_some() {
                                entry.meta.modified = Some(fingerprint.modified);
                            }
                            let found = Found {
                                entry,
                                fingerprint: Some(fingerprint),
                                data: fingerprint.size,
                            };
                            // Before the other is taken back, so that not all seems done between the two. It waits to be asked
                            // for: what it held before may be on its way still.
                            self.tell(vec![found], false);
                            String::new()
                        }
                        Err(error) => format!("{path}: {}", reason(&error)),
                    },
                    false => format!("{path}: changed each time it was read; not copied"),
                }
            }
        };
        if !why.is_empty() {
            self.watch.note(Note::Skipped(why.clone()));
        }
        self.outbox.say(FromSource::Lost { id, why }.to_bytes());
    }
}

/// A stream's socket and its copy for whoever cuts it, and the file that it reads or writes; twice, as both ends may be in one
/// process.
const DESCRIPTORS_A_STREAM: u64 = 6;
/// What else is open: standard streams, listeners, links that carry no blocks, the journal.
const DESCRIPTORS_BESIDE: u64 = 32;

impl super::seen::Loaded for Sender<'_> {
    fn open_streams(&self, streams: u16) {
        let limit = sys::host::descriptor_limit();
        let most = limit.saturating_sub(DESCRIPTORS_BESIDE) / DESCRIPTORS_A_STREAM;
        let most = u16::try_from(most).unwrap_or(u16::MAX).max(1);
        if streams > most {
            let text = format!(
                "{most} of {streams} streams: few open files are allowed (ulimit -n {limit})"
            );
            self.watch.note(Note::Chosen(text));
        }
        let streams = streams.min(most);
        self.meeting.want_streams(streams);
        // Whichever side connects has to know.
        self.outbox.say(FromSource::Streams(streams).to_bytes());
    }

    fn carry(&self, is_quic: bool) {
        if !self.meeting.carry(is_quic) {
            self.outbox.say(FromSource::Carry(is_quic).to_bytes());
        }
    }

    /// Whether there are more blocks to send than streams have in hand.
    fn is_loaded(&self) -> bool {
        let work = self.lock();
        !work.active.is_empty() || !work.small.is_empty() || !work.large.is_empty()
    }
}

/// Whether so many names, with so many bytes in all, are of small files, as far as they tell.
fn has_small_files(names: u64, bytes: u64) -> bool {
    names >= NAMES_TELLING && bytes / names <= MEAN_SMALL
}

/// Bytes that are to come of a file, about: what is exact costs opening it.
const fn expected(size: u64, data: u64) -> u64 {
    match size > SMALL && data < size / SPARSE {
        true => data,
        false => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_names_tell_whether_files_are_small() {
        for (names, bytes, is_small) in [
            (0, 0, false),
            (NAMES_TELLING - 1, 0, false),
            (NAMES_TELLING, NAMES_TELLING * (4 << 10), true),
            (100_000, 100_000 * MEAN_SMALL, true),
            (100_000, 100_000 * (MEAN_SMALL + 1), false),
            // One that is large among many.
            (NAMES_TELLING, 1 << 40, false),
        ] {
            assert_eq!(has_small_files(names, bytes), is_small, "{names} {bytes}");
        }
    }

    #[test]
    fn of_a_file_with_holes_what_is_on_the_disk_is_expected() {
        for (size, data, comes) in [
            (1 << 40, 5 << 20, 5 << 20),
            (1 << 40, 0, 0),
            // The file system may have compressed it.
            (1 << 30, 1 << 28, 1 << 30),
            (1 << 30, 1 << 30, 1 << 30),
            // Comes whole.
            (SMALL, 0, SMALL),
        ] {
            assert_eq!(expected(size, data), comes, "{size} {data}");
        }
    }
}
