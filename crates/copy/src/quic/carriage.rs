//! What carries a meeting's links of blocks: TCP or QUIC, now and after a change of mind.
//!
//! Of several ways each has a socket and a thread of its own, so that packets take the way that they are meant to, and one
//! that has none over UDP leaves the others at QUIC.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Pipe, Quic, Transport, towards};
use crate::key::{Key, SessionId};
use crate::link::Cipher;

/// Makes a socket to dial somebody from, at an address of this host where one is said.
pub type Open = Box<dyn Fn(Option<IpAddr>, SocketAddr) -> io::Result<UdpSocket> + Send + Sync>;

/// Whom to dial, and how long to wait for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Towards {
    /// The number of the way.
    pub(crate) way: usize,
    /// The address that packets leave from; the kernel's choice where none is said.
    pub(crate) from: Option<IpAddr>,
    pub(crate) to: SocketAddr,
    /// How long an answer may take.
    pub(crate) patience: Duration,
    /// How long a connection may be silent before it is given up.
    pub(crate) silence: Duration,
}

/// How a side carries blocks, and what the user wishes.
pub struct Carriage {
    wish: Transport,
    end: End,
    /// How long somebody who is dialled may take to answer; the usual where none is said.
    patience: Option<Duration>,
    state: Mutex<State>,
}

enum End {
    /// Here the other side's datagrams arrive: a socket for each address.
    Listens(Mutex<Vec<UdpSocket>>),
    Connects(Open),
    /// They arrive at a [`super::Door`], for all sessions.
    AtDoor,
    /// No datagrams go to and fro.
    Nowhere,
}

#[derive(Default)]
struct State {
    is_quic: bool,
    /// The other side's source asks for it, or for the opposite; not done yet.
    asked: Option<bool>,
    /// By way, or one for each socket of a side that listens.
    quic: BTreeMap<usize, Arc<Quic>>,
    /// CPU time of threads before those that there are.
    spent_ns: u64,
    is_closed: bool,
    /// Ways by which somebody answered once, and those that are TCP's.
    worked: BTreeSet<usize>,
    off: BTreeSet<usize>,
    /// Failures in a row of what had worked, of which those that were under way at once are one.
    failures: u32,
    failure: Option<String>,
}

/// Failures in a row of what had worked, before TCP is taken for good.
const FAILURES_MOST: u32 = 3;

impl State {
    /// A dial by a way that had worked failed, which began after so many failures.
    fn failed(&mut self, began: u32, error: &io::Error) {
        self.failure = Some(error.to_string());
        if self.failures == began {
            self.failures += 1;
        }
        if self.failures >= FAILURES_MOST {
            self.is_quic = false;
        }
    }

    /// A way of so many is TCP's from now on: nobody ever answered there.
    fn turn_off(&mut self, way: usize, ways: usize, error: &io::Error) {
        self.failure = Some(error.to_string());
        self.off.insert(way);
        if self.off.len() >= ways {
            self.is_quic = false;
        }
    }

    fn spent_ns(&self) -> u64 {
        let now = self.quic.values().map(|quic| quic.cpu_ns());
        self.spent_ns + now.sum::<u64>()
    }
}

impl fmt::Debug for Carriage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carriage")
            .field("wish", &self.wish)
            .finish_non_exhaustive()
    }
}

impl Default for Carriage {
    /// TCP, whatever comes.
    fn default() -> Self {
        Self::of(Transport::Tcp, End::Nowhere)
    }
}

impl Carriage {
    /// Of a side that listens: `socket` is where datagrams are to come, of which the other side knows that they may.
    pub fn listening(wish: Transport, socket: UdpSocket) -> Self {
        Self::listening_at(wish, vec![socket])
    }

    /// The same at several addresses.
    pub fn listening_at(wish: Transport, sockets: Vec<UdpSocket>) -> Self {
        match sockets.is_empty() {
            true => Self::nowhere(wish),
            false => Self::of(wish, End::Listens(Mutex::new(sockets))),
        }
    }

    /// Of a side that listens: datagrams come to a [`super::Door`], which hands on what they carry.
    pub fn at_door(wish: Transport) -> Self {
        Self::of(wish, End::AtDoor)
    }

    /// Of a side that connects: over UDP to the address and port that answered over TCP.
    pub fn connecting(wish: Transport) -> Self {
        Self::connecting_by(wish, Box::new(towards))
    }

    /// The same, from sockets that `open` makes.
    pub fn connecting_by(wish: Transport, open: Open) -> Self {
        Self::of(wish, End::Connects(open))
    }

    /// Of a side that has no way for datagrams, though they are wished for.
    pub fn nowhere(wish: Transport) -> Self {
        Self::of(wish, End::Nowhere)
    }

    /// With another limit on how long somebody who is dialled may take to answer; 5 s otherwise, 3 s where other ways lead
    /// there too.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// What [`Carriage::with_patience`] set.
    pub(crate) const fn patience(&self) -> Option<Duration> {
        self.patience
    }

    fn of(wish: Transport, end: End) -> Self {
        let state = State {
            is_quic: wish == Transport::Quic && !matches!(end, End::Nowhere),
            ..State::default()
        };
        Self {
            wish,
            end,
            patience: None,
            state: Mutex::new(state),
        }
    }

    /// What the user wishes.
    pub(crate) const fn wish(&self) -> Transport {
        self.wish
    }

    /// Whether datagrams might go at all, as far as this side knows.
    pub const fn is_possible(&self) -> bool {
        !matches!(self.end, End::Nowhere) && !matches!(self.wish, Transport::Tcp)
    }

    /// Whether links of blocks are dialled over QUIC now.
    pub(crate) fn is_quic(&self) -> bool {
        self.lock().is_quic
    }

    /// The same of those that go this way.
    pub(crate) fn is_quic_by(&self, way: usize) -> bool {
        let state = self.lock();
        state.is_quic && !state.off.contains(&way)
    }

    pub(crate) fn set(&self, is_quic: bool) {
        self.lock().is_quic = is_quic;
    }

    /// A way of so many is TCP's from now on: somebody answers there, and never over UDP.
    pub(crate) fn turn_off(&self, way: usize, ways: usize, error: &io::Error) {
        self.lock().turn_off(way, ways, error);
    }

    /// Whether somebody answered by this way once.
    pub(crate) fn has_worked(&self, way: usize) -> bool {
        self.lock().worked.contains(&way)
    }

    /// Why QUIC failed last.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    pub(crate) fn ask(&self, is_quic: bool) {
        self.lock().asked = Some(is_quic);
    }

    pub(crate) fn take_asked(&self) -> Option<bool> {
        self.lock().asked.take()
    }

    /// Begins to listen at one address more, while there are any; what arrives is to be asked for.
    pub(crate) fn listen(
        &self,
        session: SessionId,
        key: &Key,
        allowed: &[Cipher],
    ) -> Option<Arc<Quic>> {
        let End::Listens(sockets) = &self.end else {
            return None;
        };
        let mut sockets = sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Quic::listening(sockets.pop()?, session, key.clone(), allowed);
        let mut state = self.lock();
        match begun {
            Ok(quic) => {
                let (number, quic) = (state.quic.len(), Arc::new(quic));
                state.quic.insert(number, Arc::clone(&quic));
                Some(quic)
            }
            Err(error) => {
                state.failure = Some(error.to_string());
                None
            }
        }
    }

    /// A connection to somebody. Where that has worked, and fails again and again, TCP is taken for good.
    ///
    /// # Errors
    /// As [`Quic::dial`].
    pub(crate) fn dial(
        &self,
        towards: Towards,
        session: SessionId,
        key: &Key,
        cipher: Cipher,
    ) -> io::Result<Pipe> {
        let began = self.lock().failures;
        let dialled = self
            .begun(towards, session, key, cipher)
            .and_then(|quic| quic.dial(towards.to, towards.patience));
        let mut state = self.lock();
        match &dialled {
            Ok(_) => {
                state.worked.insert(towards.way);
                state.failures = 0;
            }
            Err(error) if state.worked.contains(&towards.way) => state.failed(began, error),
            Err(error) => state.failure = Some(error.to_string()),
        }
        dialled
    }

    fn begun(
        &self,
        towards: Towards,
        session: SessionId,
        key: &Key,
        cipher: Cipher,
    ) -> io::Result<Arc<Quic>> {
        let End::Connects(open) = &self.end else {
            return Err(super::no_quic("no datagrams go this way"));
        };
        let mut state = self.lock();
        if state.is_closed {
            return Err(ErrorKind::NotConnected.into());
        }
        let there = state.quic.get(&towards.way);
        if let Some(quic) = there.filter(|quic| !quic.is_over()) {
            return Ok(Arc::clone(quic));
        }
        let socket = open(towards.from, towards.to)?;
        let quic = Quic::connecting(socket, session, key.clone(), cipher, towards.silence)?;
        let quic = Arc::new(quic);
        let before = state.quic.insert(towards.way, Arc::clone(&quic));
        state.spent_ns += before.map_or(0, |before| before.cpu_ns());
        Ok(quic)
    }

    /// Ends all connections, also those that are under way, for good.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.spent_ns = state.spent_ns();
        for quic in std::mem::take(&mut state.quic).into_values() {
            quic.close();
        }
    }

    /// CPU time of the threads that moved packets.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.lock().spent_ns()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_all_links_at_once_is_one_failure() {
        let error = io::Error::from(ErrorKind::TimedOut);
        let mut state = State {
            is_quic: true,
            ..State::default()
        };
        for round in 0..FAILURES_MOST {
            assert!(state.is_quic, "{round}");
            for _link in 0..4 {
                state.failed(round, &error);
            }
        }
        assert!(!state.is_quic);
    }

    #[test]
    fn a_way_without_datagrams_leaves_the_others_at_quic() {
        let carriage = Carriage::connecting(Transport::Quic);
        let error = io::Error::from(ErrorKind::TimedOut);
        carriage.turn_off(1, 3, &error);
        let is_quic = || [0, 1, 2].map(|way| carriage.is_quic_by(way));
        assert_eq!(is_quic(), [true, false, true]);
        carriage.turn_off(1, 3, &error);
        carriage.turn_off(0, 3, &error);
        assert!(carriage.is_quic());
        // What never worked is not tried again.
        carriage.turn_off(2, 3, &error);
        assert!(!carriage.is_quic() && is_quic() == [false; 3]);
    }
}
