//! What carries a meeting's links of blocks: TCP or QUIC, now and after a change of mind.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Pipe, Quic, Transport, towards};
use crate::key::{Key, SessionId};
use crate::link::Cipher;

/// Makes a socket to dial somebody from.
pub type Open = Box<dyn Fn(SocketAddr) -> io::Result<UdpSocket> + Send + Sync>;

/// How a side carries blocks, and what the user wishes.
pub struct Carriage {
    wish: Transport,
    end: End,
    state: Mutex<State>,
}

enum End {
    /// Here the other side's datagrams arrive.
    Listens(Mutex<Option<UdpSocket>>),
    Connects(Open),
    /// No datagrams go to and fro.
    Nowhere,
}

#[derive(Default)]
struct State {
    is_quic: bool,
    /// The other side's source asks for it, or for the opposite; not done yet.
    asked: Option<bool>,
    quic: Option<Arc<Quic>>,
    /// CPU time of threads before the one that there is.
    spent_ns: u64,
    is_closed: bool,
    /// Somebody answered once; failures in a row since, of which those that were under way at once are one.
    has_worked: bool,
    failures: u32,
    failure: Option<String>,
}

/// Failures in a row of what had worked, before TCP is taken for good.
const FAILURES_MOST: u32 = 3;

impl State {
    /// A dial failed that began after so many failures.
    fn failed(&mut self, began: u32, error: &io::Error) {
        self.failure = Some(error.to_string());
        if self.failures == began {
            self.failures += 1;
        }
        if !self.has_worked || self.failures >= FAILURES_MOST {
            self.is_quic = false;
        }
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
        Self::of(wish, End::Listens(Mutex::new(Some(socket))))
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

    fn of(wish: Transport, end: End) -> Self {
        let state = State {
            is_quic: wish == Transport::Quic && !matches!(end, End::Nowhere),
            ..State::default()
        };
        Self {
            wish,
            end,
            state: Mutex::new(state),
        }
    }

    /// What the user wishes.
    pub(crate) const fn wish(&self) -> Transport {
        self.wish
    }

    /// Whether datagrams might go at all, as far as this side knows.
    pub(crate) const fn is_possible(&self) -> bool {
        !matches!(self.end, End::Nowhere) && !matches!(self.wish, Transport::Tcp)
    }

    /// Whether links of blocks are dialled over QUIC now.
    pub(crate) fn is_quic(&self) -> bool {
        self.lock().is_quic
    }

    pub(crate) fn set(&self, is_quic: bool) {
        self.lock().is_quic = is_quic;
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

    /// Begins to listen, once; what arrives is to be asked for.
    pub(crate) fn listen(
        &self,
        session: SessionId,
        key: &Key,
        allowed: &[Cipher],
    ) -> Option<Arc<Quic>> {
        let End::Listens(socket) = &self.end else {
            return None;
        };
        let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Quic::listening(socket.take()?, session, key.clone(), allowed);
        let mut state = self.lock();
        match begun {
            Ok(quic) => state.quic = Some(Arc::new(quic)),
            Err(error) => state.failure = Some(error.to_string()),
        }
        state.quic.clone()
    }

    /// A connection to where TCP's lead. Where that has never worked, or fails again and again, TCP is taken for good.
    ///
    /// # Errors
    /// As [`Quic::dial`].
    pub(crate) fn dial(
        &self,
        to: SocketAddr,
        session: SessionId,
        key: &Key,
        cipher: Cipher,
    ) -> io::Result<Pipe> {
        let began = self.lock().failures;
        let dialled = self
            .begun(to, session, key, cipher)
            .and_then(|quic| quic.dial(to));
        let mut state = self.lock();
        match &dialled {
            Ok(_) => (state.has_worked, state.failures) = (true, 0),
            Err(error) => state.failed(began, error),
        }
        dialled
    }

    fn begun(
        &self,
        to: SocketAddr,
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
        if let Some(quic) = state.quic.as_ref().filter(|quic| !quic.is_over()) {
            return Ok(Arc::clone(quic));
        }
        let quic = Arc::new(Quic::connecting(open(to)?, session, key.clone(), cipher)?);
        state.spent_ns += state.quic.as_ref().map_or(0, |before| before.cpu_ns());
        state.quic = Some(Arc::clone(&quic));
        Ok(quic)
    }

    /// Ends all connections, also those that are under way, for good.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        if let Some(quic) = state.quic.take() {
            state.spent_ns += quic.cpu_ns();
            quic.close();
        }
    }

    /// CPU time of the threads that moved packets.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let state = self.lock();
        state.spent_ns + state.quic.as_ref().map_or(0, |quic| quic.cpu_ns())
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
        let worked = || State {
            is_quic: true,
            has_worked: true,
            ..State::default()
        };
        let mut state = worked();
        for round in 0..FAILURES_MOST {
            assert!(state.is_quic, "{round}");
            for _link in 0..4 {
                state.failed(round, &error);
            }
        }
        assert!(!state.is_quic);
        // What never worked is not tried again.
        let mut never = State {
            has_worked: false,
            ..worked()
        };
        never.failed(0, &error);
        assert!(!never.is_quic);
    }
}
