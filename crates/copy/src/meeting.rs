//! How the two sides of a session come to their links, again and again while connections are cut.
//!
//! One side connects, by whatever it was given to connect with; the other takes what arrives. Either may be the source.
//! Each link is held by one thread on each side, which comes here again when its connection is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::threads;
use wire::tcp_info::TcpInfo;

use crate::key::{Key, SessionId};
use crate::link::{self, Cipher, Link, STREAMS_MOST, Sessions, Socket, Which};
use crate::quic::{self, Carriage, Quic, Towards, Transport};
use crate::reason::{is_exhausted, reason, stays_unreachable};
use crate::unpaced;
use crate::ways::{Carried, Near, Way, Ways};

/// Makes a new connection to the far side.
pub type Dial = Box<dyn Fn() -> io::Result<Socket> + Send + Sync>;

enum How {
    Connects(Ways),
    Listens(Vec<Cipher>),
}

/// One session's links.
pub struct Meeting {
    how: How,
    session: SessionId,
    key: Key,
    /// What links are opened with; those that arrive bring their own, out of what is allowed.
    cipher: Cipher,
    /// Ways that the other side connects by, as far as known.
    far_ways: usize,
    /// How long nothing may be connected before this is given up.
    patience: Duration,
    /// After so long without a word a link of messages is taken for dead.
    silence: Duration,
    /// What carries blocks.
    carriage: Carriage,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Arrived, and not fetched yet.
    waiting: BTreeMap<Which, Link>,
    /// In use: to end them from elsewhere.
    open: BTreeMap<Which, Socket>,
    /// In the middle of a handshake, or of agreeing where to go on.
    greeting: BTreeMap<Which, Socket>,
    /// Arrived and not yet known, by number.
    arriving: BTreeMap<u64, Socket>,
    next_arriving: u64,
    /// In place of the usual patience, where nobody is expected any more.
    hurried: Option<Duration>,
    /// Met once at least.
    met: BTreeSet<Which>,
    /// How long connections lived that were made from here.
    lived: BTreeMap<Which, Lived>,
    /// Streams of blocks that there should be.
    streams: u16,
    over: bool,
    /// Gone once this is over: whoever waits in poll(2) has the other end.
    wakers: Vec<UnixStream>,
    /// All is done but the last words.
    parting: bool,
    /// The newest failure, for the user.
    failure: Option<String>,
    /// This host has had no descriptor or thread for links since then.
    lack: Option<(Instant, String)>,
    reconnects: u64,
    /// Of the first connection, before its handshake.
    round_trip: Option<Duration>,
    /// All that the kernel knew of it then.
    first: Option<TcpInfo>,
    /// There is much to send from here; and there are many names to tell.
    is_full: bool,
    has_many: bool,
}

impl State {
    /// Whether a link of this kind is not needed any more.
    fn is_done_with(&self, which: Which) -> bool {
        self.over || self.parting && matches!(which, Which::Blocks(_))
    }

    /// A link of this kind is open.
    fn made(&mut self, which: Which, socket: &Socket) -> io::Result<()> {
        if self.over {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        if !self.met.insert(which) {
            self.reconnects += 1;
        }
        self.lived.entry(which).or_default().made(Instant::now());
        self.open.insert(which, socket.again()?);
        if matches!(which, Which::Blocks(_)) {
            self.lack = None;
        }
        Ok(())
    }

    /// This host has nothing left to make a link of.
    fn lacks(&mut self, what: String) {
        self.lack.get_or_insert_with(|| (Instant::now(), what));
    }

    /// What this host has lacked for so long that it is not waited for.
    fn lacking(&self) -> Option<String> {
        let (since, what) = self.lack.as_ref()?;
        (since.elapsed() >= LACKING).then(|| what.clone())
    }

    /// No link without which nothing works is waited for where this host lacks what it is made of.
    ///
    /// # Errors
    /// `OutOfMemory`.
    fn may_go_on(&self, which: Which) -> io::Result<()> {
        match (which, self.lacking()) {
            (Which::FromSource | Which::FromDestination, Some(what)) => {
                Err(io::Error::new(ErrorKind::OutOfMemory, what))
            }
            _ => Ok(()),
        }
    }

    /// A connection was made.
    fn found(&mut self, socket: &Socket) {
        if self.round_trip.is_none() {
            self.first = tcp_info(socket);
            self.round_trip = self.first.map(|info| Duration::from_micros(info.rtt_us));
        }
    }
}

/// How a link's connections fare, one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Lived {
    made: Option<Instant>,
    /// How many in a row died at once.
    brief: u32,
}

impl Lived {
    fn made(&mut self, now: Instant) {
        self.made = Some(now);
    }

    /// The last one is gone: how long to wait before the next is made. Not at all, unless it died at once; whoever takes
    /// connections and ends them would be asked as fast as both sides can otherwise.
    fn ended(&mut self, now: Instant) -> Duration {
        let Some(made) = self.made.take() else {
            return Duration::ZERO;
        };
        if now.saturating_duration_since(made) >= AT_ONCE {
            self.brief = 0;
            return Duration::ZERO;
        }
        let pause = PAUSE_LEAST.saturating_mul(1 << self.brief.min(16));
        self.brief = self.brief.saturating_add(1);
        pause.min(PAUSE_MOST)
    }
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meeting")
            .field("session", &self.session)
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}

/// A round trip from which a path is long: several streams from the first, and a congestion control that fills it.
pub(crate) const LONG: Duration = Duration::from_millis(5);
/// A frame by which a reader says where to go on.
const START: u8 = 1;
/// So long others may give back descriptors or threads that links are made of.
const LACKING: Duration = Duration::from_secs(2);
/// Between two attempts to connect.
const PAUSE_LEAST: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(2);
/// Of the patience, the most that is waited before a connection is made again.
const PATIENCE_PARTS: u32 = 16;
/// A connection that lived no longer died at once.
const AT_ONCE: Duration = Duration::from_millis(100);
/// A connection on which nothing is heard of the other side's kernel for so long is given up.
const DEAD: Duration = Duration::from_secs(15);
const DEAD_BESIDE_OTHERS: Duration = Duration::from_secs(6);
/// How long somebody may take to answer over QUIC where other ways lead there too.
const DIAL_BESIDE_OTHERS: Duration = Duration::from_secs(3);
/// Idle connections are asked after so long, so often.
const ASK_AFTER: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(3);
/// Silence after which a link of messages is taken for dead, unless another is said.
const SILENCE: Duration = Duration::from_secs(10);
/// Handshakes under way at once.
const HANDSHAKES_MOST: usize = 64;

impl Meeting {
    /// A side that connects.
    pub fn connecting(dial: Dial, session: SessionId, key: Key, cipher: Cipher) -> Self {
        Self::connecting_over(vec![Way::new("the far side", dial)], session, key, cipher)
    }

    /// A side that connects over several addresses, or to several hosts: links are spread over all, and those of a way that
    /// fails go over the others.
    pub fn connecting_over(ways: Vec<Way>, session: SessionId, key: Key, cipher: Cipher) -> Self {
        Self::of(How::Connects(Ways::of(ways)), session, key, cipher)
    }

    /// A side to which the other connects, by one of these ciphers.
    pub fn listening(session: SessionId, key: Key, allowed: Vec<Cipher>) -> Self {
        let cipher = allowed.first().copied().unwrap_or(Cipher::Aes128Gcm);
        Self::of(How::Listens(allowed), session, key, cipher)
    }

    fn of(how: How, session: SessionId, key: Key, cipher: Cipher) -> Self {
        Self {
            how,
            session,
            key,
            cipher,
            far_ways: 1,
            patience: Duration::from_secs(60),
            silence: SILENCE,
            carriage: Carriage::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// With another limit on how long nothing may be connected before this is given up; 60 s otherwise.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// With another limit on how long nothing may be heard on a link of messages before it is taken
    /// for dead; 10 s otherwise. The other side says something twice a second.
    #[must_use]
    pub fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// With another carriage than TCP for blocks.
    #[must_use]
    pub fn with_carriage(mut self, carriage: Carriage) -> Self {
        self.carriage = carriage;
        self
    }

    /// Of a side that listens: the other connects by so many ways.
    #[must_use]
    pub fn with_far_ways(mut self, ways: usize) -> Self {
        self.far_ways = ways;
        self
    }

    /// By how many ways the two sides are connected, as far as known here; at least one.
    pub fn ways(&self) -> usize {
        match &self.how {
            How::Connects(ways) => ways.count(),
            How::Listens(_) => self.far_ways,
        }
        .max(1)
    }

    /// Whether some of the ways lead to other hosts than the one that leads there; of a side that connects.
    pub(crate) fn has_hosts(&self) -> bool {
        match &self.how {
            How::Connects(ways) => ways.has_hosts(),
            How::Listens(_) => false,
        }
    }

    /// What this host knows of the path before anybody answers; of a side that connects.
    pub(crate) fn near(&self) -> Near {
        match &self.how {
            How::Connects(ways) => ways.near(),
            How::Listens(_) => Near::default(),
        }
    }

    /// What each way carried, where this side connects by several.
    pub fn carried(&self) -> Vec<Carried> {
        match &self.how {
            How::Connects(ways) if ways.count() > 1 => ways.all_carried(),
            _ => Vec::new(),
        }
    }

    /// So many bytes of blocks went over a link.
    pub(crate) fn has_carried(&self, which: Which, bytes: u64) {
        if let How::Connects(ways) = &self.how {
            ways.carried(which, bytes);
        }
    }

    /// What the user is to know of ways and was not told yet. Links of a way that failed come back to it after a while.
    pub(crate) fn look_after_ways(&self) -> Vec<String> {
        let How::Connects(ways) = &self.how else {
            return Vec::new();
        };
        if let Some(which) = ways.to_move() {
            self.cut(which);
        }
        ways.news()
    }

    /// Has less patience from now on: whoever would connect again is known to be gone.
    pub fn hurry(&self, patience: Duration) {
        let mut state = self.lock();
        state.hurried = Some(state.hurried.map_or(patience, |there| there.min(patience)));
        // Whoever is gone answers none of them; those that are wanted begin again.
        state.greeting.values().for_each(Socket::shut);
        self.changed.notify_all();
    }

    /// How long nothing may be heard on a link of messages.
    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    /// How long nothing may be connected.
    pub(crate) fn patience(&self) -> Duration {
        self.lock()
            .hurried
            .unwrap_or(self.patience)
            .min(self.patience)
    }

    fn allowed(&self) -> &[Cipher] {
        match &self.how {
            How::Listens(allowed) => allowed,
            How::Connects(_) => &[],
        }
    }

    /// What links are opened with from here, or taken first.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// Which session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// How often a link was made again after it had been cut.
    pub fn reconnects(&self) -> u64 {
        self.lock().reconnects
    }

    /// A link to write on, and how much of what was written the other side has: messages or frames, from the beginning.
    ///
    /// # Errors
    /// `ConnectionAborted` once this is over; `TimedOut` when nobody could be met for as long as there is patience, with the
    /// reason; `PermissionDenied` and `Unsupported` at once, until a first link was met.
    pub fn to_write(&self, which: Which) -> io::Result<(Link, u64)> {
        let (link, (start, _)) = self.to_write_for(which)?;
        Ok((link, start))
    }

    /// The same, and whether who reads it sees the same files, and wants word of them in place of bytes.
    pub(crate) fn to_write_for(&self, which: Which) -> io::Result<(Link, (u64, bool))> {
        let mut buffer = Vec::new();
        self.attempt(which, |link| {
            let head = link.receive(&mut buffer)?;
            let (bytes, sees_files) = match &buffer[..head.about] {
                [bytes @ .., 1] if bytes.len() == 8 => (bytes, true),
                bytes => (bytes, false),
            };
            let start = match (head.kind, bytes.try_into()) {
                (START, Ok(bytes)) => u64::from_le_bytes(bytes),
                _ => return Err(io::Error::new(ErrorKind::InvalidData, "no start")),
            };
            Ok((start, sees_files))
        })
    }

    /// As [`Meeting::to_read`], of one who sees the same files or not.
    pub(crate) fn to_read_for(
        &self,
        which: Which,
        start: u64,
        sees_files: bool,
    ) -> io::Result<Link> {
        let mut about = start.to_le_bytes().to_vec();
        if sees_files {
            about.push(1);
        }
        Ok(self.attempt(which, |link| link.send(START, &about, &[]))?.0)
    }

    /// A link to read from, on which the other side goes on after `start` messages or frames.
    ///
    /// # Errors
    /// As [`Meeting::to_write`].
    pub fn to_read(&self, which: Which, start: u64) -> io::Result<Link> {
        let begin = |link: &mut Link| link.send(START, &start.to_le_bytes(), &[]);
        Ok(self.attempt(which, begin)?.0)
    }

    /// A link to read from, whose writer goes on where the reader of `onward`'s link of the same kind has got to; both links.
    ///
    /// # Errors
    /// As [`Meeting::to_write`] of either.
    pub(crate) fn to_pass_on(&self, which: Which, onward: &Self) -> io::Result<(Link, Link)> {
        self.attempt(which, |link| {
            let (onward, start) = onward.to_write(which)?;
            link.send(START, &start.to_le_bytes(), &[])?;
            Ok(onward)
        })
    }

    fn attempt<T>(
        &self,
        which: Which,
        mut begin: impl FnMut(&mut Link) -> io::Result<T>,
    ) -> io::Result<(Link, T)> {
        if matches!(self.how, How::Connects(_)) {
            let mut state = self.lock();
            let pause = state.lived.entry(which).or_default().ended(Instant::now());
            drop(state);
            // Whoever waits for it has as much patience, and is not to lose it.
            self.sleep(pause.min(self.patience() / PATIENCE_PARTS));
        }
        if self.is_done_with(which) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let since = Instant::now();
        let mut pause = PAUSE_LEAST;
        loop {
            let met = self.meet(which, since).and_then(|mut link| {
                let begun = begin(&mut link)?;
                link.set_patience(None)?;
                if let Socket::Tcp(socket) = link.socket() {
                    notice_death_in(socket.as_fd(), self.dead());
                }
                Ok((link, begun))
            });
            self.lock().greeting.remove(&which);
            if let How::Connects(ways) = &self.how
                && !self.is_parting()
            {
                ways.came(which, met.as_ref().err());
            }
            let error = match met {
                Ok((link, begun)) => {
                    self.lock().made(which, link.socket())?;
                    return Ok((link, begun));
                }
                Err(error) => error,
            };
            if self.is_done_with(which) {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            if is_exhausted(&error) {
                self.failed(&error);
                self.lock().may_go_on(which)?;
            }
            // A refusal is said in clear, and anybody on the path could say it: who was let in once tries again.
            let is_first = self.lock().met.is_empty();
            let is_final = match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::Unsupported => {
                    is_first && self.has_no_other_way(which)
                }
                kind => {
                    let connects = matches!(self.how, How::Connects(_));
                    let stays = connects && is_first && stays_unreachable(&error);
                    kind == ErrorKind::ConnectionAborted || (stays && self.has_no_other_way(which))
                }
            };
            if is_final || since.elapsed() >= self.patience() {
                return Err(error);
            }
            self.lock().failure = Some(error.to_string());
            self.sleep(pause);
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }

    /// Whether nobody else could be asked.
    fn has_no_other_way(&self, which: Which) -> bool {
        match &self.how {
            How::Connects(ways) => ways.all_failed(which),
            How::Listens(_) => true,
        }
    }

    /// How long a connection may be silent before it is given up: sooner where others carry its share.
    fn dead(&self) -> Duration {
        match self.ways() {
            1 => DEAD,
            _ => DEAD_BESIDE_OTHERS,
        }
    }

    fn meet(&self, which: Which, since: Instant) -> io::Result<Link> {
        let How::Connects(ways) = &self.how else {
            let mut state = self.lock();
            loop {
                if state.is_done_with(which) {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                if let Some(link) = state.waiting.remove(&which) {
                    state.greeting.insert(which, link.socket().again()?);
                    return Ok(link);
                }
                state.may_go_on(which)?;
                let patience = state.hurried.unwrap_or(self.patience).min(self.patience);
                let Some(left) = patience.checked_sub(since.elapsed()) else {
                    let why = state.failure.clone();
                    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        format!("the far side did not connect in {patience:?}{why}"),
                    ));
                };
                let waited = self.changed.wait_timeout(state, left.min(LACKING));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        if self.is_over() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let way = ways.choose(which)?;
        let socket = match which {
            Which::Blocks(_) if self.carriage.is_quic_by(way) => self.dial_quic(ways, way)?,
            _ => ways.dial(way)?,
        };
        let fills = {
            let mut state = self.lock();
            if state.over {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            state.found(&socket);
            self.changed.notify_all();
            state.greeting.insert(which, socket.again()?);
            let fills = match which {
                Which::Blocks(_) => state.is_full,
                Which::FromSource => state.has_many,
                Which::FromDestination => false,
            };
            state.round_trip.filter(|time| fills && *time >= LONG)
        };
        let patience = self.patience().min(link::HANDSHAKE_PATIENCE);
        let sealed = (self.cipher, &self.key);
        link::connect_filling(socket, self.session, which, sealed, patience, fills)
    }

    /// A connection by a way over QUIC, or over TCP where there will be none.
    fn dial_quic(&self, ways: &Ways, way: usize) -> io::Result<Socket> {
        if ways.datagrams(way).is_closed {
            return ways.dial(way);
        }
        if ways.count() == 1 {
            // What is said goes over TCP, which leads there.
            let state = self.lock();
            let is_unknown = |state: &mut State| !state.over && ways.datagrams(way).to.is_none();
            let waited =
                self.changed
                    .wait_timeout_while(state, link::HANDSHAKE_PATIENCE, is_unknown);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        } else if ways.datagrams(way).to.is_none() {
            // Nothing but blocks goes there.
            ways.dial(way)?;
        }
        let Some(towards) = self.towards(ways, way) else {
            self.carriage.set(false);
            return ways.dial(way);
        };
        let dialled = self
            .carriage
            .dial(towards, self.session, &self.key, self.cipher);
        match dialled {
            Ok(pipe) => Ok(Socket::Quic(pipe)),
            // It has worked before: tried again, as TCP is.
            Err(error) if self.carriage.has_worked(way) && self.carriage.is_quic() => Err(error),
            Err(error) => {
                // Who does not answer over TCP either is not there.
                let socket = ways.dial(way)?;
                if self.carriage.is_quic_by(way) {
                    self.carriage.turn_off(way, ways.count(), &error);
                    ways.tell(way, &format!("TCP in place of QUIC: {error}"));
                }
                Ok(socket)
            }
        }
    }

    /// Whom to dial over QUIC by a way; `None` before it is known where that leads.
    fn towards(&self, ways: &Ways, way: usize) -> Option<Towards> {
        let datagrams = ways.datagrams(way);
        let (patience, silence) = match ways.count() {
            1 => (quic::DIAL, quic::SILENCE),
            _ => (DIAL_BESIDE_OTHERS, DEAD_BESIDE_OTHERS),
        };
        Some(Towards {
            way,
            from: datagrams.from,
            to: datagrams.to?,
            patience: self.carriage.patience().unwrap_or(patience),
            silence,
        })
    }

    /// What the user wishes that carries blocks.
    pub(crate) fn wish(&self) -> Transport {
        self.carriage.wish()
    }

    /// Whether QUIC may be tried, as far as this side knows.
    pub fn may_carry(&self) -> bool {
        self.carriage.is_possible()
    }

    /// Why QUIC failed last on this side.
    pub(crate) fn carry_failure(&self) -> Option<String> {
        self.carriage.failure()
    }

    /// CPU time of the threads that moved QUIC's packets on this side.
    pub(crate) fn quic_cpu_ns(&self) -> u64 {
        self.carriage.cpu_ns()
    }

    /// Streams of blocks that are open over QUIC, and all that are open.
    pub(crate) fn over_quic(&self) -> (usize, usize) {
        let state = self.lock();
        let blocks = state.open.iter();
        let blocks: Vec<_> = blocks
            .filter(|(which, _)| matches!(which, Which::Blocks(_)))
            .map(|(_, socket)| socket.is_quic())
            .collect();
        let over_quic = blocks.iter().filter(|is_quic| **is_quic).count();
        (over_quic, blocks.len())
    }

    /// Has blocks carried by QUIC from now on, or by TCP: links are cut and come again, so nothing is lost. Over QUIC only
    /// once somebody answered there. `false` where the other side connects, and is to be told.
    pub(crate) fn carry(&self, is_quic: bool) -> bool {
        let How::Connects(ways) = &self.how else {
            return false;
        };
        if is_quic {
            let towards = ways.reached().and_then(|way| self.towards(ways, way));
            let answered = towards.is_some_and(|towards| {
                self.carriage
                    .dial(towards, self.session, &self.key, self.cipher)
                    .is_ok()
            });
            if !answered {
                return true;
            }
        }
        self.carriage.set(is_quic);
        for which in self.open_links() {
            let is_other = self.of_socket(which, |socket| socket.is_quic() != is_quic);
            if matches!(which, Which::Blocks(_)) && is_other == Some(true) {
                self.cut(which);
            }
        }
        true
    }

    /// The other side asks for [`Meeting::carry`].
    pub(crate) fn ask_carry(&self, is_quic: bool) {
        if self.may_carry() {
            self.carriage.ask(is_quic);
            self.changed.notify_all();
        }
    }

    /// Does what [`Meeting::ask_carry`] asks for, until this is over.
    pub(crate) fn carry_as_asked(&self) {
        while self.may_carry() && !self.is_over() {
            match self.carriage.take_asked() {
                Some(is_quic) => {
                    self.carry(is_quic);
                }
                None => self.sleep(PAUSE_LEAST * 5),
            }
        }
    }

    /// There is much to send from here: connections open their windows while they shake hands.
    pub(crate) fn has_much(&self) {
        self.lock().is_full = true;
    }

    /// There are many names to tell from here: as [`Meeting::has_much`], of the connection that tells them.
    pub(crate) fn has_many(&self) {
        self.lock().has_many = true;
    }

    /// Takes a connection that arrived, if whoever made it proves to be the other side; of a side that listens. Waits for that,
    /// 15 s at most: a thread for each.
    ///
    /// # Errors
    /// As [`link::accept`]; `ConnectionAborted` once this is over.
    pub fn take(&self, socket: Socket) -> io::Result<()> {
        self.welcome(socket)
    }

    fn welcome(&self, socket: Socket) -> io::Result<()> {
        let number = {
            let mut state = self.lock();
            if state.over {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            state.found(&socket);
            state.next_arriving += 1;
            let number = state.next_arriving;
            state.arriving.insert(number, socket.again()?);
            number
        };
        let accepted = link::accept(socket, self);
        self.lock().arriving.remove(&number);
        let (_, which, link) = accepted?;
        self.offer(which, link);
        Ok(())
    }

    /// Cuts the connection that has been in the middle of a handshake for longest.
    fn dismiss_oldest(&self) {
        if let Some((_, socket)) = self.lock().arriving.pop_first() {
            socket.shut();
        }
    }

    /// A link that arrived; it takes the place of an older one of its kind.
    pub fn offer(&self, which: Which, link: Link) {
        let mut state = self.lock();
        if state.over {
            link.socket().shut();
            return;
        }
        // Where a daemon took the connection, this is the first that is seen of it.
        state.found(link.socket());
        if let Some(old) = state.open.remove(&which) {
            old.shut();
        }
        if let Which::Blocks(n) = which {
            state.streams = state.streams.max(n + 1);
        }
        state.waiting.insert(which, link);
        self.changed.notify_all();
    }

    /// What came in failed; told when nothing else comes.
    fn failed(&self, error: &io::Error) {
        let mut state = self.lock();
        if is_exhausted(error) {
            state.lacks(reason(error));
        }
        state.failure = Some(reason(error));
    }

    /// Why no block can be carried: this host has had no descriptor or thread for a stream for a while.
    pub(crate) fn stranded(&self) -> Option<String> {
        let state = self.lock();
        let carries = |which: &Which| matches!(which, Which::Blocks(_));
        match state.open.keys().any(carries) {
            true => None,
            false => state.lacking(),
        }
    }

    /// Asks for so many streams of blocks; never fewer than before.
    pub fn want_streams(&self, streams: u16) {
        let mut state = self.lock();
        state.streams = state.streams.max(streams.min(STREAMS_MOST));
        self.changed.notify_all();
    }

    /// Waits until there should be more streams than `there`, and says how many; `None` once this is over.
    pub fn more_streams(&self, there: u16) -> Option<u16> {
        let mut state = self.lock();
        while !state.over && state.streams <= there {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        (!state.over).then_some(state.streams)
    }

    /// Cuts one link, if it is there: its threads come again.
    pub fn cut(&self, which: Which) {
        if let Some(socket) = self.lock().open.remove(&which) {
            socket.shut();
        }
    }

    /// How far the other side is, as the first connection told; `None` before, and where none is of TCP.
    pub fn round_trip(&self) -> Option<Duration> {
        self.lock().round_trip
    }

    /// What the kernel knew of the first connection when it was made.
    pub(crate) fn first(&self) -> Option<TcpInfo> {
        self.lock().first
    }

    /// Links in use.
    pub fn open_links(&self) -> Vec<Which> {
        self.lock().open.keys().copied().collect()
    }

    /// Reads something of a link's socket.
    pub fn of_socket<T>(&self, which: Which, read: impl FnOnce(&Socket) -> T) -> Option<T> {
        self.lock().open.get(&which).map(read)
    }

    /// Ends all: links are cut, and whoever waits for one is told.
    pub fn close(&self) {
        let mut state = self.lock();
        state.over = true;
        state.wakers.clear();
        state.open.values().for_each(Socket::shut);
        state.greeting.values().for_each(Socket::shut);
        state.arriving.values().for_each(Socket::shut);
        state.waiting.values().for_each(|link| link.socket().shut());
        state.open.clear();
        state.waiting.clear();
        self.carriage.close();
        self.changed.notify_all();
    }

    /// All is done but the last words: the other side may cut links at any moment, which is no way's failure any more, and
    /// no link of blocks is made again.
    pub(crate) fn part(&self) {
        self.lock().parting = true;
        self.changed.notify_all();
    }

    fn is_parting(&self) -> bool {
        let state = self.lock();
        state.over || state.parting
    }

    fn is_done_with(&self, which: Which) -> bool {
        self.lock().is_done_with(which)
    }

    /// Whether it was ended.
    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// What poll(2) finds hung up once this is over.
    fn over_in_poll(&self) -> io::Result<UnixStream> {
        let (waker, woken) = UnixStream::pair()?;
        let mut state = self.lock();
        if !state.over {
            state.wakers.push(waker);
        }
        Ok(woken)
    }

    /// Waits so long, or until it is ended or hurried.
    pub fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.lock();
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let is_hurried = state.hurried.is_some_and(|hurried| hurried < left);
            if state.over || left.is_zero() || is_hurried {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions for Meeting {
    fn find(&self, session: SessionId) -> Option<(Key, Vec<Cipher>)> {
        match &self.how {
            How::Listens(allowed) if session == self.session => {
                Some((self.key.clone(), allowed.clone()))
            }
            _ => None,
        }
    }
}

/// Takes connections for one session until it is over. What does not prove itself goes without a trace.
///
/// # Errors
/// As poll(2).
pub fn listen(listener: &TcpListener, meeting: &Meeting) -> io::Result<()> {
    let ended = listen_until_over(listener, meeting);
    if let Err(error) = &ended {
        // Nobody can come any more.
        meeting.lock().lacks(reason(error));
    }
    ended
}

fn listen_until_over(listener: &TcpListener, meeting: &Meeting) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let over = meeting.over_in_poll()?;
    let begun = unpaced::begin(listener.as_fd());
    let under_way = AtomicUsize::new(0);
    let allowed = meeting.allowed();
    let quic = meeting
        .carriage
        .listen(meeting.session, &meeting.key, allowed);
    thread::scope(|scope| {
        if let Some(quic) = &quic {
            // Without this thread the session's links come by TCP.
            let takes = move || listen_over_quic(scope, quic, meeting);
            if let Err(error) = threads::scoped(scope, "gp-listen", takes) {
                meeting.failed(&error);
            }
        }
        while !meeting.is_over() {
            if !has_come_or(listener, &over)? {
                continue;
            }
            if under_way.load(Ordering::Relaxed) >= HANDSHAKES_MOST * 2 {
                // Those that were cut have not noticed yet; the kernel keeps who comes.
                thread::sleep(PAUSE_LEAST);
                continue;
            }
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) => {
                    if is_exhausted(&error) {
                        // It stays in the kernel's queue, and poll(2) would return at once.
                        meeting.failed(&error);
                        thread::sleep(PAUSE_LEAST);
                    }
                    continue;
                }
            };
            begun.settle(socket.as_fd());
            if under_way.load(Ordering::Relaxed) >= HANDSHAKES_MOST {
                // Whoever opens connections and says nothing keeps nobody out.
                meeting.dismiss_oldest();
            }
            under_way.fetch_add(1, Ordering::Relaxed);
            let under_way = &under_way;
            let welcomes = threads::scoped(scope, "gp-welcome", move || {
                let welcomed = socket
                    .set_nonblocking(false)
                    .and_then(|()| meeting.welcome(Socket::Tcp(socket)));
                if let Err(error) = welcomed {
                    meeting.failed(&error);
                }
                under_way.fetch_sub(1, Ordering::Relaxed);
            });
            if let Err(error) = welcomes {
                // Too many threads for now: this connection is gone, and those after it may fare better.
                under_way.fetch_sub(1, Ordering::Relaxed);
                meeting.lock().lacks(error.to_string());
                meeting.failed(&error);
            }
        }
        Ok(())
    })
}

/// Takes links that QUIC carries.
fn listen_over_quic<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    quic: &'scope Quic,
    meeting: &'scope Meeting,
) {
    while !meeting.is_over() && !quic.is_over() {
        let Some(pipe) = quic.next(Duration::from_millis(100)) else {
            continue;
        };
        // There are no more of them than a session's links and some that have not proved themselves.
        let welcomes = threads::scoped(scope, "gp-welcome", move || {
            if let Err(error) = meeting.welcome(Socket::Quic(pipe)) {
                meeting.failed(&error);
            }
        });
        if let Err(error) = welcomes {
            meeting.failed(&error);
        }
    }
}

/// Waits 100 ms for somebody to connect; whether somebody may have.
///
/// # Errors
/// As poll(2).
pub fn has_come(listener: &TcpListener) -> io::Result<bool> {
    come_of(&mut [PollFd::new(listener, PollFlags::IN)])
}

/// The same, and no longer than until the other end of `over` is gone.
fn has_come_or(listener: &TcpListener, over: &UnixStream) -> io::Result<bool> {
    come_of(&mut [
        PollFd::new(listener, PollFlags::IN),
        PollFd::new(over, PollFlags::IN),
    ])
}

fn come_of(fds: &mut [PollFd<'_>]) -> io::Result<bool> {
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    match poll(fds, Some(&wait)) {
        Ok(_) => Ok(!fds[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Has the kernel give up a connection whose other end does not answer, also while there is nothing to send: a packet
/// filter that drops all of one connection sends neither side a word.
pub fn notice_death(socket: BorrowedFd<'_>) {
    notice_death_in(socket, DEAD);
}

fn notice_death_in(socket: BorrowedFd<'_>, dead: Duration) {
    use rustix::net::sockopt;
    // What the kernel does not know leaves its usual two hours.
    let _ = sys::tcp::set_user_timeout(
        socket,
        units::Duration::from_ns(u64::try_from(dead.as_nanos()).unwrap_or(0)),
    );
    let _ = sockopt::set_tcp_keepidle(socket, ASK_AFTER);
    let _ = sockopt::set_tcp_keepintvl(socket, ASK_EVERY);
    let _ = sockopt::set_socket_keepalive(socket, true);
}

/// Whether a connection is gone, as far as the kernel knows: the other side ended it, or it was given up.
pub(crate) fn is_gone(socket: &Socket) -> bool {
    let asked = PollFlags::RDHUP;
    let mut fds = [PollFd::new(socket, asked)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let gone = asked | PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().intersects(gone))
}

/// What the kernel knows of a link's connection; `None` where it is none of TCP.
pub fn tcp_info(socket: &Socket) -> Option<TcpInfo> {
    match socket {
        Socket::Tcp(socket) => sys::tcp::tcp_info(socket.as_fd()).ok(),
        Socket::Unix(_) | Socket::Quic(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn who_listens_keeps_streams_over_loopback_off_the_hosts_bbr() {
        let seen = unpaced::tests::on_a_host_with("bbr", || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let to = listener.local_addr().unwrap();
            let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
            let meeting = Meeting::listening(session, key.clone(), vec![Cipher::None]);
            thread::scope(|scope| {
                scope.spawn(|| listen(&listener, &meeting));
                // The listener is ready once it has taken one.
                let links = [0, 1].map(|n| {
                    let socket = Socket::Tcp(TcpStream::connect(to).unwrap());
                    link::connect(socket, session, Which::Blocks(n), Cipher::None, &key).unwrap()
                });
                let link = meeting.to_read(Which::Blocks(1), 0).unwrap();
                let info = tcp_info(link.socket()).unwrap();
                let has = sys::tcp::congestion(link.socket().as_fd()).unwrap();
                meeting.close();
                drop(links);
                (has, info)
            })
        });
        let Some((has, info)) = seen else { return };
        // A machine that stood still meanwhile makes a longer path of it.
        let is_short = (1..500).contains(&info.min_rtt_us.min(info.rtt_us));
        assert_eq!(has != "bbr", is_short, "{has} {info:?}");
    }

    /// Connections made in a minute of virtual time, each of which lives so long, and the longest pause.
    fn made_in_a_minute(lives: Duration) -> (u32, Duration) {
        let begun = Instant::now();
        let (mut now, mut lived) = (begun, Lived::default());
        let (mut made, mut longest) = (0, Duration::ZERO);
        while now < begun + Duration::from_secs(60) {
            let pause = lived.ended(now);
            longest = longest.max(pause);
            now += pause;
            lived.made(now);
            made += 1;
            now += lives;
        }
        (made, longest)
    }

    #[test]
    fn a_first_connection_without_a_route_is_not_tried_again() {
        use rustix::io::Errno;
        use std::sync::Arc;
        let tries = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&tries);
        // What may pass is tried again.
        let dial = Box::new(move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Errno::HOSTUNREACH.into()),
            _ => Err(Errno::NETUNREACH.into()),
        });
        let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
        let meeting = Meeting::connecting(dial, session, key, Cipher::None);
        let error = meeting.to_write(Which::FromSource).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NETUNREACH));
        assert_eq!(tries.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn who_waits_for_connections_is_woken_when_all_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
        let meeting = Meeting::listening(session, key, vec![Cipher::None]);
        let woken = meeting.over_in_poll().unwrap();
        let is_woken = || {
            let mut fds = [PollFd::new(&woken, PollFlags::IN)];
            let now = Timespec::default();
            poll(&mut fds, Some(&now)).unwrap() > 0
        };
        assert!(!is_woken());
        meeting.close();
        assert!(is_woken());
        assert!(!has_come_or(&listener, &woken).unwrap());
        // Who comes later does not wait at all.
        listen(&listener, &meeting).unwrap();
    }

    #[test]
    fn who_parts_blames_no_way_and_makes_no_link_of_blocks_again() {
        let refuse = || -> Dial { Box::new(|| Err(ErrorKind::ConnectionRefused.into())) };
        let ways = ["a", "b"].map(|name| Way::new(name, refuse())).into();
        let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
        let meeting = Meeting::connecting_over(ways, session, key, Cipher::Aes128Gcm);
        let meeting = meeting.with_patience(PAUSE_LEAST);
        let asked = |which| meeting.to_write(which).unwrap_err().kind();
        let failures = || {
            meeting
                .carried()
                .iter()
                .map(|way| way.failures)
                .sum::<u64>()
        };
        for which in [Which::Blocks(0), Which::FromSource] {
            assert_eq!(asked(which), ErrorKind::ConnectionRefused);
        }
        let before = failures();
        assert!(before >= 2);
        meeting.part();
        assert_eq!(asked(Which::Blocks(0)), ErrorKind::ConnectionAborted);
        // Last words are tried for as long as there is patience.
        assert_eq!(asked(Which::FromSource), ErrorKind::ConnectionRefused);
        assert_eq!(failures(), before);
    }

    #[test]
    fn a_connection_that_dies_at_once_is_made_again_ever_more_slowly() {
        // 20 ms and twice as much each time up to 2 s: 2.54 s for seven, and then one each 2 s.
        let (made, longest) = made_in_a_minute(Duration::ZERO);
        assert_eq!((made, longest), (37, PAUSE_MOST));
        // One that lived has no pause after it.
        let (made, longest) = made_in_a_minute(AT_ONCE);
        assert_eq!((made, longest), (600, Duration::ZERO));
        let mut lived = Lived::default();
        let begun = Instant::now();
        assert_eq!(lived.ended(begun), Duration::ZERO);
        for pause in [PAUSE_LEAST, PAUSE_LEAST * 2] {
            lived.made(begun);
            assert_eq!(lived.ended(begun), pause);
        }
        lived.made(begun);
        assert_eq!(lived.ended(begun + AT_ONCE), Duration::ZERO);
        lived.made(begun);
        assert_eq!(lived.ended(begun), PAUSE_LEAST, "it begins anew");
    }
}
