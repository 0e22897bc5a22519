//! A host that sees the destination's files beside the one that leads: it takes blocks from the source, writes them into the
//! files that grow there, brings them to the disk, and tells the leader which are written.
//!
//! It holds nothing that a copy needs. Each of its links to the source has one to the leader of the same number; when either
//! is cut, so is the other, and the source sends what the leader did not confirm by another way. What it cannot write it
//! passes on.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sys::threads::{self, Crew};

use crate::destination::Destination;
use crate::digest::Cut;
use crate::link::{Link, Which};
use crate::meeting::{Meeting, is_gone};
use crate::message::{BLOCK_HEAD_BYTES, BlockHead, NameId};

use super::basics::{BLOCKS, nanoseconds};
use super::{CopyError, Note, Watch};

/// A frame of blocks that were written by who sends it: their heads, without data.
pub(crate) const WRITTEN: u8 = 5;
/// A frame that asks where blocks of a file go, and its answer.
pub(crate) const ASK: u8 = 6;
pub(crate) const PLACE: u8 = 7;

/// Files whose place is known, at most; then all are asked for again.
const KNOWN_MOST: usize = 4 << 10;
/// Frames written and not told of yet, at most.
const UNTOLD_MOST: usize = 16;
/// How often it is seen whether a connection is still there that has nothing to carry.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// How long a file that the leader made may take to be seen from here: servers of files let clients remember what was not
/// there (nfs(5), `acdirmin`).
const SEEN: Duration = Duration::from_secs(5);

/// Where blocks of a file go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To the leader.
    Here,
    /// Into a growing file.
    There {
        is_checked_only: bool,
        number: u64,
        cut: Cut,
        staging: Vec<u8>,
    },
}

impl Place {
    /// As bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Here => out.push(0),
            Self::There {
                is_checked_only,
                number,
                cut,
                staging,
            } => {
                out.push(if *is_checked_only { 2 } else { 1 });
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&cut.size().to_le_bytes());
                out.extend_from_slice(&cut.block().to_le_bytes());
                out.extend_from_slice(staging);
            }
        }
        out
    }

    /// From bytes; `None` for what is no place.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let is_checked_only = match kind {
            0 => return rest.is_empty().then_some(Self::Here),
            1 => false,
            2 => true,
            _ => return None,
        };
        let (number, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (block, staging) = rest.split_first_chunk()?;
        Some(Self::There {
            is_checked_only,
            number: u64::from_le_bytes(*number),
            cut: Cut::new(u64::from_le_bytes(*size), u32::from_le_bytes(*block))?,
            staging: staging.to_vec(),
        })
    }
}

/// Takes blocks that come by `meeting` until it is over or the user stops it, writes them below `destination`, which need
/// not be there, and tells the leader, by `leader`.
///
/// # Errors
/// [`CopyError::Stopped`].
pub fn help(
    meeting: &Meeting,
    leader: &Meeting,
    destination: &Destination,
    watch: &Watch,
) -> Result<(), CopyError> {
    help_seeing(meeting, leader, destination, watch, SEEN)
}

/// As [`help`], with another limit on how long a file that the leader made may take to be seen from here; 5 s otherwise.
///
/// # Errors
/// As [`help`].
pub fn help_seeing(
    meeting: &Meeting,
    leader: &Meeting,
    destination: &Destination,
    watch: &Watch,
    seen: Duration,
) -> Result<(), CopyError> {
    let helper = Helper {
        seen,
        meeting,
        leader,
        destination,
        watch,
        known: Mutex::default(),
        is_blind: AtomicBool::new(false),
        is_told: AtomicBool::new(false),
    };
    run(meeting, leader, watch, &|n| helper.stream(n))
}

/// Runs `stream` in a thread for each stream of blocks, until all is over or the user stops it.
pub(super) fn run(
    meeting: &Meeting,
    leader: &Meeting,
    watch: &Watch,
    stream: &(dyn Fn(u16) + Sync),
) -> Result<(), CopyError> {
    let crew = Crew::new(|_: &io::Error| meeting.close());
    let crew = &crew;
    thread::scope(|scope| {
        crew.start(scope, "gp-streams", move || {
            let mut there = 0;
            while let Some(wanted) = meeting.more_streams(there) {
                for n in there..wanted {
                    crew.start(scope, "gp-stream", move || stream(n));
                }
                there = wanted;
                watch.streams.store(there.into(), Ordering::Relaxed);
            }
        });
        while !meeting.is_over() && !watch.is_stopped() {
            thread::sleep(Duration::from_millis(20));
        }
        leader.close();
        meeting.close();
    });
    crew.over()
        .map_err(|error| CopyError::Here(error.to_string()))?;
    match watch.is_stopped() {
        true => Err(CopyError::Stopped),
        false => Ok(()),
    }
}

struct Helper<'a> {
    /// How long a file that the leader made may take to be seen from here.
    seen: Duration,
    meeting: &'a Meeting,
    leader: &'a Meeting,
    destination: &'a Destination,
    watch: &'a Watch,
    known: Mutex<HashMap<NameId, Arc<Known>>>,
    /// Files that the leader makes are not seen from here, or cannot be brought to the disk: the leader writes all.
    is_blind: AtomicBool,
    /// The user knows that a file could not be opened.
    is_told: AtomicBool,
}

/// A file whose place is known.
#[derive(Debug)]
struct Known {
    cut: Cut,
    /// None where blocks are only checked.
    file: Option<File>,
    /// What was written could not be brought to the disk once; held while it is tried.
    is_lost: Mutex<bool>,
}

impl Known {
    /// Brings what was written to the disk. The kernel tells once of each open file what it could not write (fsync(2)), and
    /// several streams write by the same: after that, nobody is told that it worked.
    fn sync(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut is_lost = self.is_lost.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_lost {
            return Err(io::Error::other("what was written before was lost"));
        }
        let synced = file.sync_data();
        *is_lost = synced.is_err();
        synced
    }
}

/// What is to be told to the leader, in order.
enum Tell {
    /// A block of a file was written.
    Written(BlockHead, Arc<Known>),
    /// A frame goes on as it came.
    Whole(Vec<u8>, Vec<u8>),
    /// Where do blocks of this file go?
    Ask(NameId, SyncSender<Place>),
}

impl Helper<'_> {
    /// One stream, connection after connection.
    fn stream(&self, n: u16) {
        let mut buffer = Vec::new();
        while !self.meeting.is_over() {
            let which = Which::Blocks(n);
            // Where nobody came for as long as there is patience, somebody still may.
            let Ok((from, to)) = self.meeting.to_pass_on(which, self.leader) else {
                continue;
            };
            self.pass_on(from, to, &mut buffer);
            self.meeting.cut(which);
            self.leader.cut(which);
        }
    }

    /// Takes frames until either connection is gone.
    fn pass_on(&self, mut from: Link, to: Link, buffer: &mut Vec<u8>) {
        let (Ok(source), Ok(leader)) = (from.socket().again(), to.socket().again()) else {
            return;
        };
        let (tell, told) = mpsc::sync_channel(UNTOLD_MOST);
        thread::scope(|scope| {
            let teller = threads::scoped(scope, "gp-tells", || {
                let _ = self.tell(to, &told);
                // Whoever reads may wait for a source that has nothing to send.
                source.shut();
                drop(told);
            });
            if teller.is_err() {
                return;
            }
            loop {
                let since = Instant::now();
                let head = from.receive(buffer);
                Watch::add(&self.watch.link_ns, nanoseconds(since));
                let Ok(head) = head else { break };
                if head.kind != BLOCKS || head.about % BLOCK_HEAD_BYTES != 0 {
                    break;
                }
                let (about, data) = buffer.split_at(head.about);
                let data = &data[..head.data];
                Watch::add(&self.watch.confirmed_bytes, head.data as u64);
                if !self.frame(about, data, &tell) {
                    break;
                }
            }
            drop(tell);
        });
        from.socket().shut();
        leader.shut();
    }

    /// Deals with one frame; `false` where the connection is of no more use.
    fn frame(&self, about: &[u8], data: &[u8], tell: &SyncSender<Tell>) -> bool {
        let Ok(heads) = BlockHead::read_all(about, data.len()) else {
            return false;
        };
        // Small files come several in a frame, and the leader gives them their names at once.
        let known = match &heads[..] {
            [head] if !head.same && !data.is_empty() => match self.known(head.id, tell) {
                Ok(known) => known.map(|known| (*head, known)),
                Err(_) => return false,
            },
            _ => None,
        };
        let whole = || Tell::Whole(about.to_vec(), data.to_vec());
        let next = match known {
            None => whole(),
            Some((head, known)) => {
                let since = Instant::now();
                let is_right = head.index < known.cut.blocks()
                    && data.len() == known.cut.len(head.index) as usize
                    && known.cut.sum(head.index, data) == head.sum;
                Watch::add(&self.watch.sum_ns, nanoseconds(since));
                let since = Instant::now();
                let wrote = match &known.file {
                    // The leader says so, and counts how often.
                    _ if !is_right => Err(ErrorKind::InvalidData.into()),
                    Some(file) => file.write_all_at(data, known.cut.start(head.index)),
                    None => Ok(()),
                };
                Watch::add(&self.watch.disk_ns, nanoseconds(since));
                match wrote {
                    Ok(()) => Tell::Written(head, known),
                    // The leader finds out what is wrong, and waits where a disk is full.
                    Err(_) => whole(),
                }
            }
        };
        tell.send(next).is_ok()
    }

    /// The file that a block goes to; `None` where the leader takes it.
    fn known(&self, id: NameId, tell: &SyncSender<Tell>) -> io::Result<Option<Arc<Known>>> {
        if self.is_blind.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let all = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all().get(&id) {
            return Ok(Some(Arc::clone(known)));
        }
        let since = Instant::now();
        let (cut, file) = loop {
            let Place::There {
                is_checked_only,
                number,
                cut,
                staging,
            } = ask(id, tell)?
            else {
                return Ok(None);
            };
            if is_checked_only {
                break (cut, None);
            }
            match self.destination.growing(&staging, number, cut.size()) {
                Ok(file) => break (cut, Some(file)),
                // Or it has its name by now, or is not wanted any more: the leader says so.
                Err(error)
                    if error.kind() == ErrorKind::NotFound
                        && since.elapsed() < self.seen
                        && !self.meeting.is_over() =>
                {
                    thread::sleep(Duration::from_millis(100));
                }
                Err(error) => {
                    self.is_not_opened(&error);
                    return Ok(None);
                }
            }
        };
        let is_lost = Mutex::new(false);
        let known = Arc::new(Known { cut, file, is_lost });
        let mut all = all();
        if all.len() >= KNOWN_MOST {
            all.clear();
        }
        all.insert(id, Arc::clone(&known));
        Ok(Some(known))
    }

    /// A file that grows was not opened.
    fn is_not_opened(&self, error: &io::Error) {
        // Of others that fail, the next may be opened: they are too many at once, or seen late.
        let (flag, what) = match error.kind() {
            ErrorKind::NotFound => (
                &self.is_blind,
                "are not seen here, or not below the same path".to_owned(),
            ),
            ErrorKind::PermissionDenied => {
                (&self.is_blind, format!("are not this user's ({error})"))
            }
            _ => (
                &self.is_told,
                format!("cannot all be opened here ({error})"),
            ),
        };
        let too_many = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
        if too_many.contains(&error.raw_os_error()) {
            let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            all.clear();
        }
        if !flag.swap(true, Ordering::Relaxed) {
            self.watch.note(Note::Skipped(format!(
                "files of the host that leads {what}: what comes here goes on to it"
            )));
        }
    }

    /// Tells the leader, once what was written is on the disk.
    fn tell(&self, mut to: Link, told: &Receiver<Tell>) -> io::Result<()> {
        to.set_patience(None)?;
        let mut buffer = Vec::new();
        let mut next = next_to_tell(told, &to)?;
        while let Some(first) = next.take() {
            let mut written = Vec::new();
            match first {
                Tell::Whole(about, data) => to.send(BLOCKS, &about, &data)?,
                Tell::Ask(id, answer) => {
                    to.send(ASK, &id.to_le_bytes(), &[])?;
                    let head = to.receive(&mut buffer)?;
                    let place = Place::read(&buffer[..head.about]).filter(|_| head.kind == PLACE);
                    let invalid = || io::Error::new(ErrorKind::InvalidData, "no place");
                    let _ = answer.send(place.ok_or_else(invalid)?);
                }
                Tell::Written(head, known) => written.push((head, known)),
            }
            // Several go to the disk together.
            while !written.is_empty() && written.len() < UNTOLD_MOST {
                match told.try_recv() {
                    Ok(Tell::Written(head, known)) => written.push((head, known)),
                    Ok(other) => {
                        next = Some(other);
                        break;
                    }
                    Err(_) => break,
                }
            }
            self.tell_written(&mut to, &written)?;
            if next.is_none() {
                next = next_to_tell(told, &to)?;
            }
        }
        Ok(())
    }

    fn tell_written(&self, to: &mut Link, written: &[(BlockHead, Arc<Known>)]) -> io::Result<()> {
        let mut on_disk: Vec<*const Known> = Vec::new();
        for (head, known) in written {
            if !on_disk.contains(&Arc::as_ptr(known)) {
                let since = Instant::now();
                if let Err(error) = known.sync() {
                    // What came is not here any more. It comes again, and then the leader writes it, and waits where a
                    // disk is full: servers of files may say so only now.
                    if !self.is_blind.swap(true, Ordering::Relaxed) {
                        self.watch.note(Note::Skipped(format!(
                            "what was written here cannot be brought to the disk ({error}): what comes here goes \
                             on to the host that leads"
                        )));
                    }
                    return Err(error);
                }
                Watch::add(&self.watch.disk_ns, nanoseconds(since));
                on_disk.push(Arc::as_ptr(known));
            }
            let mut about = Vec::with_capacity(BLOCK_HEAD_BYTES);
            BlockHead { len: 0, ..*head }.put(&mut about);
            to.send(WRITTEN, &about, &[])?;
        }
        Ok(())
    }
}

/// Asks the leader where blocks of a file go.
fn ask(id: NameId, tell: &SyncSender<Tell>) -> io::Result<Place> {
    let gone = || io::Error::from(ErrorKind::ConnectionAborted);
    let (answer, place) = mpsc::sync_channel(1);
    tell.send(Tell::Ask(id, answer)).map_err(|_| gone())?;
    place.recv().map_err(|_| gone())
}

/// What is to be told next; `None` when there will be nothing more.
fn next_to_tell(told: &Receiver<Tell>, to: &Link) -> io::Result<Option<Tell>> {
    loop {
        match told.recv_timeout(LOOK) {
            Ok(tell) => return Ok(Some(tell)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            // What is under way there would never be confirmed.
            Err(RecvTimeoutError::Timeout) if is_gone(to.socket()) => {
                return Err(ErrorKind::ConnectionReset.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::key::{Key, SessionId};
    use crate::link::Cipher;
    use crate::scratch::Scratch;

    #[test]
    fn what_was_lost_once_is_never_told() {
        let scratch = Scratch::new();
        let open = |path: &Path| File::options().write(true).open(path).unwrap();
        let mut known = Known {
            cut: Cut::new(1 << 20, 1 << 20).unwrap(),
            // Nothing that is brought to a disk (fsync(2), `EINVAL`).
            file: Some(open(Path::new("/dev/null"))),
            is_lost: Mutex::new(false),
        };
        assert!(known.sync().is_err());
        // The kernel's second answer, which knows of nothing.
        known.file = Some(open(&scratch.file("f", b"")));
        known.file.as_ref().unwrap().sync_data().unwrap();
        assert!(known.sync().is_err());
    }

    #[test]
    fn a_file_that_is_gone_again_does_not_make_blind() {
        let top = Scratch::new();
        let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
        let meeting = || Meeting::listening(session, key.clone(), vec![Cipher::None]);
        let (meeting, leader) = (meeting(), meeting());
        let (destination, _) = Destination::resolve(top.path(), false, true).unwrap();
        let watch = Watch::default();
        let helper = Helper {
            seen: SEEN,
            meeting: &meeting,
            leader: &leader,
            destination: &destination,
            watch: &watch,
            known: Mutex::default(),
            is_blind: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        };
        let there = Place::There {
            is_checked_only: false,
            number: 7,
            cut: Cut::new(5 << 20, 1 << 20).unwrap(),
            staging: b".goodput-part-0123456789abcdef".to_vec(),
        };
        let (tell, told) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            scope.spawn(move || {
                for place in [there, Place::Here] {
                    let Ok(Tell::Ask(3, answer)) = told.recv() else {
                        panic!("no question");
                    };
                    answer.send(place).unwrap();
                }
            });
            assert!(helper.known(3, &tell).unwrap().is_none());
        });
        assert!(!helper.is_blind.load(Ordering::Relaxed));
        assert!(watch.notes(0).0.is_empty());
    }

    #[test]
    fn a_place_is_read_as_it_was_written_and_nothing_else_is() {
        let there = Place::There {
            is_checked_only: true,
            number: 7,
            cut: Cut::new(5 << 20, 1 << 20).unwrap(),
            staging: b".goodput-part-0123456789abcdef".to_vec(),
        };
        for place in [Place::Here, there.clone()] {
            assert_eq!(Place::read(&place.to_bytes()), Some(place));
        }
        let bytes = there.to_bytes();
        for cut in 0..21 {
            assert_eq!(Place::read(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(Place::read(&[0, 0]), None);
        assert_eq!(Place::read(&[3]), None);
        let mut odd = bytes;
        odd[17] = 1;
        assert_eq!(Place::read(&odd), None);
    }
}
