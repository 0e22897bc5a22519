//! The destination's side: decides what it wants, writes what arrives, and places files that are whole.

mod blocked;
mod blocks;
mod decide;
mod finish;
mod noting;
mod prepare;
mod shared;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sys::threads::Crew;

use crate::channel::{self, Outbox};
use crate::destination::{Destination, NOT_AS_WRITTEN, Partial, Staging, data_in, out_of_memory};
use crate::digest::{Cut, Sum};
use crate::entry::{Meta, RelPath, Stamp};
use crate::filter::Filter;
use crate::journal::{Journal, Unfinished};
use crate::link::Which;
use crate::meeting::Meeting;
use crate::message::{Account, FromDestination, FromSource, NameId};
use crate::reason::reason;

use super::basics::nanoseconds;
use super::disk::{Disk, Handle, Io};
use super::ranges::without;
use super::{CopyError, Note, Watch};

pub use self::prepare::{Prepared, prepare};

/// What the user may set of a destination.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// First names that the source may tell; any where none are said.
    pub only: Option<Vec<Box<[u8]>>>,
    /// Of a source that is one file: its new name.
    pub name: Option<RelPath>,
    /// Removes what the source has not.
    pub delete: bool,
    /// Changes nothing, and notes what would be copied.
    pub dry: bool,
    /// Files that come in blocks are brought to the disk before they get their names, and all others before this is done.
    pub fsync: bool,
    /// Checks what arrives and writes none of it, nor changes anything else at the destination: to see what the rest can do.
    pub null: bool,
    /// Other hosts write blocks too, into files that all of them see ([`super::help`]).
    pub has_helpers: bool,
    /// Files of the same length and time are compared by their sums too.
    pub checksum: bool,
    /// What is excluded stays when [`ReceiveOptions::delete`] removes.
    pub filter: Filter,
    /// By what an interrupted attempt is found again: the same for the same sources and destination.
    pub identity: [u8; 16],
    /// How files are written, and read back.
    pub io: Io,
}

/// What one name takes beside its path and attributes, in bytes, about.
const NAME_BYTES: usize = 200;
/// Messages that wait to be dealt with, in bytes: then the source has to wait.
const QUEUE_MOST: usize = 64 << 20;
/// Files whose blocks come, from word of how they are cut to word that all were sent, at most: a source holds fewer open.
const FILES_OPEN: usize = 8 << 10;
/// Threads that place files of which the last block came before the source's last word.
const PLACERS: usize = 2;
/// How often the source is told what arrived.
const TELL: Duration = Duration::from_millis(50);
/// How often the journal says what is there.
const JOURNAL: Duration = Duration::from_secs(1);
/// How long a full disk may stay full.
const FULL: Duration = Duration::from_secs(60);

/// Writes what the source has to `destination`, until all is done.
///
/// # Errors
/// As [`CopyError`] tells. What arrived stays in the staging folder for the next attempt.
pub fn receive(
    meeting: &Meeting,
    destination: &Destination,
    options: &ReceiveOptions,
    watch: &Watch,
) -> Result<Account, CopyError> {
    let prepared = prepare(destination, options, &|| watch.is_stopped())?;
    receive_prepared(meeting, destination, prepared, options, watch)
}

/// As [`receive`], into what [`prepare`] opened with the same options.
///
/// # Errors
/// As [`receive`].
pub fn receive_prepared(
    meeting: &Meeting,
    destination: &Destination,
    mut prepared: Prepared,
    options: &ReceiveOptions,
    watch: &Watch,
) -> Result<Account, CopyError> {
    let (journal, next) = (prepared.journal.take(), prepared.next);
    let unfinished = std::mem::take(&mut prepared.unfinished);
    let receiver = Receiver {
        meeting,
        destination,
        staging: prepared.staging.as_ref(),
        options,
        watch,
        outbox: Outbox::default(),
        journal: Mutex::new(journal),
        journalling: Mutex::default(),
        unfinished: Mutex::new(unfinished),
        next_number: AtomicU64::new(next),
        disk: Disk::new(options.io, "destination", watch),
        files: Mutex::default(),
        changed: Condvar::new(),
        decided: Condvar::new(),
        counts: Mutex::default(),
        account: Mutex::default(),
        amended: AtomicU64::new(0),
        shared: Mutex::default(),
        streaming: AtomicUsize::new(0),
        ended: Mutex::default(),
        is_over: AtomicBool::new(false),
        is_left: AtomicBool::new(false),
        is_full_told: AtomicBool::new(false),
    };
    destination.set_stopped(false);
    let result = receiver.run();
    drop(receiver);
    prepared.is_done = result.is_ok();
    result
}

struct Receiver<'a> {
    meeting: &'a Meeting,
    destination: &'a Destination,
    /// None where nothing is written.
    staging: Option<&'a Staging>,
    options: &'a ReceiveOptions,
    watch: &'a Watch,
    outbox: Outbox,
    journal: Mutex<Option<Journal>>,
    /// Held while blocks are brought to the disk and noted, or the journal is written anew.
    journalling: Mutex<()>,
    /// Left by an earlier attempt.
    unfinished: Mutex<HashMap<RelPath, Unfinished>>,
    next_number: AtomicU64,
    disk: Disk<'a>,
    files: Mutex<Files>,
    changed: Condvar,
    /// More names are decided upon.
    decided: Condvar,
    /// Frames handled on each stream.
    counts: Mutex<BTreeMap<u16, u64>>,
    account: Mutex<Account>,
    /// Names whose bytes were there, and that were given what belongs to them.
    amended: AtomicU64,
    /// Files placed last of which other hosts may write blocks late.
    shared: Mutex<VecDeque<(RelPath, Meta)>>,
    /// Streams whose links are read.
    streaming: AtomicUsize,
    ended: Mutex<Option<Result<(), CopyError>>>,
    is_over: AtomicBool,
    /// The source knows that all is done.
    is_left: AtomicBool,
    /// The user knows of a full disk.
    is_full_told: AtomicBool,
}

#[derive(Default)]
struct Files {
    wanted: HashMap<NameId, Arc<Incoming>>,
    /// Those of them that come in blocks.
    growing: HashMap<NameId, Arc<Incoming>>,
    /// Those of which it was told how they are cut, and not that all of their blocks were sent.
    cut: HashSet<NameId>,
    /// Files that were wanted, and are not to be had.
    given_up: HashSet<NameId>,
    /// Folders with what belongs to them, set last.
    folders: Vec<(RelPath, Meta)>,
    links: Vec<(RelPath, RelPath)>,
    /// Names in whose place a folder is.
    blocked: Vec<blocked::Blocked>,
    /// Folders that this copy made, one below the other, the newest last.
    new_folders: Vec<RelPath>,
    /// Sums of all paths told, to know what may be deleted; and whether there were more than are kept.
    told: HashSet<[u8; 16]>,
    is_told_full: bool,
    /// Those of them that are folders.
    told_folders: HashSet<[u8; 16]>,
    next_id: NameId,
    /// Names below it are decided upon.
    decided: NameId,
    walked: Option<(Vec<RelPath>, bool)>,
    /// Messages that take long, in order, with their lengths; and whether one is being dealt with.
    queue: VecDeque<(FromSource, usize)>,
    queue_bytes: usize,
    is_busy: bool,
    /// Files that are whole, as the source's last word of them said.
    to_place: VecDeque<Arc<Incoming>>,
    /// Wanted files of which much is there, which is read before they are asked for.
    long: VecDeque<decide::Long>,
    /// Those of them of which the source does not know yet that word of them comes by itself.
    long_told: Vec<decide::Long>,
    /// What `wanted` takes of memory, and what waits for the end, in bytes, about.
    wanted_bytes: usize,
    later_bytes: usize,
}

impl Files {
    fn want(&mut self, file: &Arc<Incoming>) {
        self.wanted_bytes += file.weight;
        self.wanted.insert(file.id, Arc::clone(file));
        if !file.is_small {
            self.growing.insert(file.id, Arc::clone(file));
        }
    }

    fn settle(&mut self, file: &Incoming) {
        if self.wanted.remove(&file.id).is_some() {
            self.wanted_bytes = self.wanted_bytes.saturating_sub(file.weight);
        }
        if !file.is_small {
            self.growing.remove(&file.id);
        }
    }
}

/// A file that is wanted.
struct Incoming {
    id: NameId,
    path: RelPath,
    meta: Meta,
    size: u64,
    modified: Stamp,
    /// Comes in one piece, with others.
    is_small: bool,
    /// Nothing stood at its path when that was looked at.
    is_new: bool,
    /// What it takes of memory, in bytes, about.
    weight: usize,
    body: Mutex<Body>,
    changed: Condvar,
}

enum Body {
    /// Word of how it is cut is still to come.
    Unknown(Option<Unfinished>),
    Open(Box<Growing>),
    /// Whole, and on its way to its name.
    Placing(Arc<Growing>),
    /// Placed, lost or failed.
    Gone,
}

struct Growing {
    cut: Cut,
    number: u64,
    /// None where what arrives is only checked.
    partial: Option<Partial>,
    direct: Arc<Handle>,
    sums: BTreeMap<u64, Sum>,
    /// Blocks that will not come: holes.
    holes: Vec<(u64, u64)>,
    hole_blocks: u64,
    /// Not in the journal yet.
    fresh: Vec<(u64, Sum)>,
    is_ended: bool,
    /// Threads in the middle of writing: one may write again what another connection brought.
    writing: u32,
    /// Another host was told where its blocks go, and may write some late.
    is_shared: bool,
}

impl Growing {
    /// Whether it has a block of this number that is to come.
    fn may_have(&self, index: u64) -> io::Result<()> {
        let in_hole = |(from, to): &(u64, u64)| (from..to).contains(&&index);
        match index < self.cut.blocks() && !self.holes.iter().any(in_hole) {
            true => Ok(()),
            false => {
                let text = "a block that the file has not";
                Err(io::Error::new(ErrorKind::InvalidData, text))
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.is_ended
            && self.writing == 0
            && self.sums.len() as u64 + self.hole_blocks == self.cut.blocks()
    }
}

impl Receiver<'_> {
    fn run(&self) -> Result<Account, CopyError> {
        let crew = Crew::new(|error: &io::Error| {
            self.end(CopyError::Here(error.to_string()));
        });
        thread::scope(|scope| {
            crew.start(scope, "gp-says", || {
                let wrote = self.outbox.run(self.meeting, Which::FromDestination);
                self.link_ended(wrote);
            });
            crew.start(scope, "gp-hears", || {
                let heard = channel::hear(self.meeting, Which::FromSource, &self.outbox, |bytes| {
                    self.hear(bytes)
                });
                self.link_ended(heard);
            });
            crew.start(scope, "gp-streams", || {
                let mut there = 0;
                while let Some(wanted) = self.meeting.more_streams(there) {
                    for n in there..wanted {
                        self.streaming.fetch_add(1, Ordering::Relaxed);
                        // The source sends on each of them: without one, what it sends stays there.
                        let started = crew.start(scope, "gp-stream", move || {
                            self.stream(n);
                            self.streaming.fetch_sub(1, Ordering::Release);
                        });
                        if started.is_none() {
                            self.streaming.fetch_sub(1, Ordering::Release);
                        }
                    }
                    there = wanted;
                    self.watch.streams.store(there.into(), Ordering::Relaxed);
                }
            });
            crew.start(scope, "gp-carry", || self.meeting.carry_as_asked());
            crew.start(scope, "gp-deal", || {
                let dealt = self.deal();
                self.link_ended(dealt);
            });
            crew.start(scope, "gp-long", || self.look_long());
            for _ in 0..PLACERS {
                crew.start(scope, "gp-place", || self.place());
            }
            crew.start(scope, "gp-tells", || self.tell());
            crew.start(scope, "gp-disk", || {
                self.disk
                    .choose(&|| self.is_over(), &|| self.watch.to_come())
            });
            crew.start(scope, "gp-journal", || self.keep_journal());
            let result = self.wait();
            let (over_quic, _) = self.meeting.over_quic();
            self.watch.is_quic.store(over_quic > 0, Ordering::Relaxed);
            let spent = self.meeting.quic_cpu_ns();
            self.watch.quic_cpu_ns.store(spent, Ordering::Relaxed);
            let result = match result {
                Ok(()) => self.finish(),
                Err(error) => {
                    self.destination.set_stopped(true);
                    Err(error)
                }
            };
            match &result {
                Ok(account) => {
                    self.meeting.part();
                    self.outbox
                        .say_now(FromDestination::Finished(*account).to_bytes());
                    self.watch.is_finished.store(true, Ordering::Relaxed);
                }
                // Those who broke with us are not told more.
                Err(CopyError::Far(_) | CopyError::Link(_)) => {}
                Err(error) => {
                    self.outbox
                        .say_now(FromDestination::Stops(error.to_string()).to_bytes());
                }
            }
            self.part(result.is_ok());
            if result.is_ok() {
                self.mend_times();
            }
            self.journal_now();
            self.watch.note_carried(self.meeting);
            self.over();
            result
        })
    }

    /// Has all threads end, those that wait as well.
    fn over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.outbox.close();
        self.meeting.close();
        // Whoever saw that it was not over waits by now.
        drop(self.lock());
        self.changed.notify_all();
        self.decided.notify_all();
    }

    /// Waits so long, or until this is over.
    fn pause(&self, time: Duration) {
        match self.meeting.is_over() {
            // Somebody else ended the links, and this is told in a moment.
            true => thread::sleep(time),
            false => self.meeting.sleep(time),
        }
    }

    /// Until everything that is wanted is there.
    fn wait(&self) -> Result<(), CopyError> {
        let mut files = self.lock();
        loop {
            if let Some(ended) = self
                .ended
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
            {
                return ended;
            }
            if self.watch.is_stopped() {
                return Err(CopyError::Stopped);
            }
            if let Some(error) = super::broken(self.meeting) {
                return Err(error);
            }
            self.watch.note_ways(self.meeting);
            if files.walked.is_some()
                && files.wanted.is_empty()
                && files.queue.is_empty()
                && !files.is_busy
            {
                return Ok(());
            }
            let waited = self.changed.wait_timeout(files, Duration::from_millis(100));
            files = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an earlier attempt left of files that the source has not told yet.
    fn left(&self) -> MutexGuard<'_, HashMap<RelPath, Unfinished>> {
        self.unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, error: CopyError) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert(Err(error));
        drop(ended);
        self.changed.notify_all();
    }

    fn link_ended(&self, result: io::Result<()>) {
        if let Err(error) = result {
            self.end(match error.kind() {
                ErrorKind::InvalidData => CopyError::Protocol(error.to_string()),
                ErrorKind::OutOfMemory => CopyError::Here(error.to_string()),
                _ => CopyError::Link(error),
            });
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.watch.is_stopped()
    }

    /// Something that concerns one name only.
    fn problem(&self, path: &RelPath, what: &str, error: &io::Error) {
        let text = format!("{path}: {what}: {}", reason(error));
        self.account().failed += 1;
        self.watch.note(Note::Skipped(text.clone()));
        self.outbox
            .say_if_room(FromDestination::Problem(text).to_bytes());
    }

    /// Gives files their names whose last word came after their last block.
    fn place(&self) {
        let mut files = self.lock();
        while !self.is_over() {
            match files.to_place.pop_front() {
                Some(file) => {
                    drop(files);
                    self.place_if_whole(&file, file.lock());
                    files = self.lock();
                }
                None => {
                    let waited = self.changed.wait_timeout(files, Duration::from_millis(100));
                    files = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Deals with messages that take long, one after the other: who hears them has confirmations to take, and must not
    /// wait for anything that these bring.
    fn deal(&self) -> io::Result<()> {
        let mut files = self.lock();
        loop {
            if self.is_over() {
                return Ok(());
            }
            let Some((message, bytes)) = files.queue.pop_front() else {
                let waited = self.changed.wait_timeout(files, Duration::from_millis(100));
                files = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            files.queue_bytes -= bytes;
            files.is_busy = true;
            drop(files);
            match message {
                FromSource::Names(names) => self.names(names)?,
                FromSource::Ended(id) => {
                    let file = self.lock().wanted.get(&id).cloned();
                    if let Some(file) = file {
                        let mut body = file.lock();
                        if let Body::Open(growing) = &mut *body {
                            growing.is_ended = true;
                        }
                        let is_whole = matches!(&*body, Body::Open(growing) if growing.is_whole());
                        drop(body);
                        // Bringing it to the disk and reading it back takes long; others are decided upon meanwhile.
                        if is_whole {
                            self.lock().to_place.push_back(file);
                            self.changed.notify_all();
                        }
                    }
                }
                FromSource::Walked { roots, is_whole } => {
                    self.watch.is_walked.store(true, Ordering::Relaxed);
                    self.clear_places(&roots, is_whole);
                    self.lock().walked = Some((roots, is_whole));
                }
                _ => {}
            }
            files = self.lock();
            files.is_busy = false;
            self.changed.notify_all();
        }
    }

    /// One message of the source.
    fn hear(&self, bytes: &[u8]) -> io::Result<()> {
        let invalid = |text: &str| Err(io::Error::new(ErrorKind::InvalidData, text));
        let message = match FromSource::read(bytes) {
            Ok(message) => message,
            Err(error) => return invalid(&error.to_string()),
        };
        match message {
            message @ (FromSource::Names(_) | FromSource::Ended(_) | FromSource::Walked { .. }) => {
                let mut files = self.lock();
                if let FromSource::Ended(id) = &message {
                    files.cut.remove(id);
                }
                // Whoever deals with them has answers, and no confirmations are heard meanwhile.
                if files.queue_bytes > QUEUE_MOST {
                    files = self.outbox.held(|| {
                        let mut files = files;
                        while files.queue_bytes > QUEUE_MOST && !self.is_over() {
                            let waited =
                                self.changed.wait_timeout(files, Duration::from_millis(100));
                            files = waited.unwrap_or_else(PoisonError::into_inner).0;
                        }
                        files
                    });
                }
                files.queue_bytes += bytes.len() + NAME_BYTES;
                files.queue.push_back((message, bytes.len() + NAME_BYTES));
                drop(files);
                self.changed.notify_all();
            }
            FromSource::Layout {
                id,
                size,
                block,
                holes,
            } => {
                let file = self.lock().wanted.get(&id).cloned();
                let (Some(file), Some(cut)) = (file, Cut::new(size, block)) else {
                    return Ok(());
                };
                if size != file.size || file.is_small {
                    return invalid("a file of another length than was told");
                }
                let mut files = self.lock();
                files.cut.insert(id);
                let is_much = files.cut.len() > FILES_OPEN;
                drop(files);
                if is_much {
                    return invalid("too many files begun at once");
                }
                self.layout(&file, cut, holes);
            }
            FromSource::Lost { id, why } => {
                let file = {
                    let mut files = self.lock();
                    files.cut.remove(&id);
                    files.wanted.get(&id).cloned()
                };
                if let Some(file) = file {
                    if !why.is_empty() {
                        self.account().failed += 1;
                        self.watch.note(Note::Skipped(why));
                    }
                    self.give_up(&file);
                }
            }
            FromSource::Streams(n) => self.meeting.want_streams(n),
            FromSource::Carry(is_quic) => self.meeting.ask_carry(is_quic),
            FromSource::Stops(why) => self.end(CopyError::Far(why)),
            FromSource::Bye => self.is_left.store(true, Ordering::Relaxed),
        }
        Ok(())
    }

    /// Word of how a file is cut.
    fn layout(&self, file: &Incoming, cut: Cut, holes: Vec<(u64, u64)>) {
        let mut body = file.lock();
        let Body::Unknown(unfinished) = &mut *body else {
            return;
        };
        let unfinished = match unfinished.take() {
            Some(file) if file.cut != cut => {
                self.forget(file.number);
                None
            }
            other => other,
        };
        let hole_blocks = holes.iter().map(|(from, to)| to - from).sum::<u64>();
        let data = cut
            .size()
            .saturating_sub(hole_blocks.saturating_mul(cut.block().into()));
        let (number, sums) = match unfinished {
            Some(file) => (file.number, file.sums),
            None => (
                self.next_number.fetch_add(1, Ordering::Relaxed),
                HashMap::new(),
            ),
        };
        let partial = self.patiently(|| {
            let Some(staging) = self.staging else {
                return Ok(None);
            };
            let partial = staging.partial(number, cut.size(), data, file.meta.mode.is_some())?;
            if partial.resumed() {
                // Holes have no sums: what an earlier attempt left in them is seen by nobody.
                for hole in &holes {
                    partial.clear(cut.span(*hole))?;
                }
            }
            Ok(Some(partial))
        });
        let partial = match partial {
            Ok(partial) => partial,
            Err(error) => {
                drop(body);
                if is_full(&error) {
                    self.end(CopyError::Here(format!(
                        "{}: {}",
                        file.path,
                        reason(&error)
                    )));
                } else {
                    self.problem(&file.path, "cannot be written", &error);
                }
                self.give_up(file);
                return;
            }
        };
        let new = Unfinished {
            number,
            cut,
            modified: file.modified,
            sums: HashMap::new(),
        };
        let told = self.patiently(|| match &mut *self.journal() {
            Some(journal) if sums.is_empty() => journal.begin(&file.path, &new),
            _ => Ok(()),
        });
        if let Err(error) = told {
            self.end(CopyError::Here(format!("the journal: {}", reason(&error))));
        }
        let holes: Vec<_> = holes;
        let sums: BTreeMap<_, _> = sums
            .into_iter()
            .filter(|(index, _)| !holes.iter().any(|(from, to)| (from..to).contains(&index)))
            .collect();
        let there = sums.keys().map(|index| u64::from(cut.len(*index)));
        self.watch
            .comes_not(there.sum::<u64>().saturating_add(cut.bytes(&holes)));
        *body = Body::Open(Box::new(Growing {
            cut,
            number,
            partial,
            direct: Arc::default(),
            sums,
            holes,
            hole_blocks,
            fresh: Vec::new(),
            is_ended: false,
            writing: 0,
            is_shared: false,
        }));
        drop(body);
        file.changed.notify_all();
    }

    /// A file of an earlier attempt that is of no use.
    fn forget(&self, number: u64) {
        if let Some(staging) = self.staging {
            let _ = staging.remove(number);
        }
        if let Some(journal) = &mut *self.journal() {
            let _ = journal.end(number);
        }
    }

    fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes, and again while a full disk may have room soon.
    fn patiently<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let since = Instant::now();
        loop {
            match write() {
                Err(error) if self.may_wait(&error, since) => {}
                other => return other,
            }
        }
    }

    /// Whether a disk that is full may have room soon; waits a moment if so.
    fn may_wait(&self, error: &io::Error, since: Instant) -> bool {
        if !is_full(error) || since.elapsed() > FULL.min(self.meeting.patience()) || self.is_over()
        {
            return false;
        }
        if !self.is_full_told.swap(true, Ordering::Relaxed) {
            let text = "the destination's disk is full: waiting for room".to_owned();
            self.watch.note(Note::Skipped(text.clone()));
            self.outbox
                .say_now(FromDestination::Problem(text).to_bytes());
        }
        thread::sleep(Duration::from_millis(500));
        true
    }

    /// Gives a file that is whole its name.
    fn place_if_whole(&self, file: &Incoming, mut body: MutexGuard<'_, Body>) {
        let is_whole = matches!(&*body, Body::Open(growing) if growing.is_whole());
        if !is_whole {
            return;
        }
        let Body::Open(growing) = std::mem::replace(&mut *body, Body::Gone) else {
            return;
        };
        let growing = Arc::new(*growing);
        *body = Body::Placing(Arc::clone(&growing));
        drop(body);
        let (number, is_shared) = (growing.number, growing.is_shared);
        let since = Instant::now();
        let placed = match &growing.partial {
            None => Ok(()),
            Some(partial) => self.read_back(&growing, partial).and_then(|()| {
                let fsync = self.options.fsync;
                self.patiently(|| {
                    self.destination
                        .commit(partial, &file.path, &file.meta, fsync)
                })
            }),
        };
        Watch::add(&self.watch.disk_ns, nanoseconds(since));
        if let Some(partial) = &growing.partial {
            self.disk.let_go(partial.file());
        }
        let is_placing = {
            let mut body = file.lock();
            let is_placing = matches!(&*body, Body::Placing(_));
            *body = Body::Gone;
            is_placing
        };
        let mut growing = Some(growing);
        if let (true, Err(error)) = (is_placing, &placed) {
            let is_cut_off = error.kind() == ErrorKind::Interrupted && self.is_over();
            // It arrived whole: the next attempt only has to place it.
            if (is_full(error) || is_cut_off)
                && let Some(growing) = growing.take().and_then(Arc::into_inner)
            {
                if is_full(error) {
                    self.end(CopyError::Here(format!("{}: {}", file.path, reason(error))));
                }
                if let Some(partial) = &growing.partial {
                    partial.keep_open();
                }
                *file.lock() = Body::Open(Box::new(growing));
                let _one = self
                    .journalling
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                self.note_fresh(file);
                return;
            }
        }
        if let Some(journal) = &mut *self.journal() {
            let _ = journal.end(number);
        }
        match placed {
            Ok(()) => {
                if is_shared {
                    self.may_be_written_late(file);
                }
                self.placed(1, file.size);
                self.settled(&[file]);
            }
            Err(error) => {
                self.problem(&file.path, "cannot be placed", &error);
                // Closed first, as in [`Receiver::give_up`].
                drop(growing);
                if let Some(staging) = self.staging {
                    // The journal does not know it any more.
                    let _ = staging.remove(number);
                }
                self.settled(&[file]);
            }
        }
    }

    /// Reads a file back from the disk where that was asked for, and holds its blocks against their sums.
    fn read_back(&self, growing: &Growing, partial: &Partial) -> io::Result<()> {
        if !self.destination.reads_back() {
            return Ok(());
        }
        let file = partial.file();
        out_of_memory(file)?;
        let open = || partial.past_cache();
        let ways = (file, self.disk.to_prove(&growing.direct, open));
        let mut room = Vec::new();
        for (index, sum) in &growing.sums {
            let len = growing.cut.len(*index) as usize;
            let place = Disk::prove(ways, &mut room, len, growing.cut.start(*index))?;
            if growing.cut.sum(*index, &room[place]) != *sum {
                let text = format!("{NOT_AS_WRITTEN}, in block {index}");
                return Err(io::Error::other(text));
            }
            if self.is_over() {
                return Err(ErrorKind::Interrupted.into());
            }
        }
        for hole in &growing.holes {
            let bytes = growing.cut.span(*hole);
            data_in(file, bytes, &mut |block, at| {
                if block.iter().any(|byte| *byte != 0) {
                    let text = format!("{NOT_AS_WRITTEN}, in a hole at {at}");
                    return Err(io::Error::other(text));
                }
                match self.is_over() {
                    true => Err(ErrorKind::Interrupted.into()),
                    false => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    fn placed(&self, files: u64, bytes: u64) {
        let mut account = self.account();
        account.placed += files;
        account.placed_bytes += bytes;
        self.watch.placed.store(account.placed, Ordering::Relaxed);
    }

    /// Wanted files are dealt with.
    fn settled(&self, settled: &[&Incoming]) {
        let mut files = self.lock();
        for file in settled {
            files.settle(file);
        }
        if files.wanted.is_empty() {
            self.changed.notify_all();
        }
    }

    /// A wanted file will not come, or cannot be written.
    fn give_up(&self, file: &Incoming) {
        let gone = std::mem::replace(&mut *file.lock(), Body::Gone);
        if let Body::Open(growing) = gone {
            let number = growing.number;
            // Before it is removed: FUSE and NFS give an open file another name in place of removing it.
            drop(growing);
            self.forget(number);
        }
        file.changed.notify_all();
        self.lock().given_up.insert(file.id);
        self.settled(&[file]);
    }

    /// Tells the source what arrived, now and then.
    fn tell(&self) {
        let mut told = BTreeMap::new();
        let mut told_placed = 0;
        while !self.is_over() {
            self.pause(TELL);
            let counts = self
                .counts
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            let placed = self.account().placed;
            if counts == told && placed == told_placed {
                continue;
            }
            let streams = counts
                .iter()
                .filter(|(n, count)| told.get(*n) != Some(count));
            let streams = streams.map(|(n, count)| (*n, *count)).collect();
            self.outbox
                .say(FromDestination::Received { streams, placed }.to_bytes());
            (told, told_placed) = (counts, placed);
        }
    }
}

impl Incoming {
    fn lock(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn short_sum(path: &RelPath) -> [u8; 16] {
    let mut sum = [0; 16];
    sum.copy_from_slice(&blake3::hash(path.as_bytes()).as_bytes()[..16]);
    sum
}

/// Whether a disk, or what a user may have of it, is full.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Numbers as ranges, in order and apart.
fn ranges(numbers: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let numbers: BTreeSet<u64> = numbers.collect();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, to)) if *to == number => *to += 1,
            _ => ranges.push((number, number + 1)),
        }
    }
    debug_assert!(without(&ranges, &ranges).is_empty());
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(
            ranges([5, 1, 2, 9, 3].into_iter()),
            [(1, 4), (5, 6), (9, 10)]
        );
        assert_eq!(ranges(std::iter::empty()), []);
    }
}
