//! Messages in order and none lost, over a link that may be cut: what was not confirmed is sent again.
//!
//! Each side has an [`Outbox`] for what it says, on a link of its own; confirmations of what it heard ride on it. A frame
//! is a message's number (0 for none), the number heard last, and the message.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::link::{ABOUT_MOST, Link, Which};
use crate::meeting::Meeting;

/// A frame with a message.
const MESSAGE: u8 = 2;
/// The longest message, in bytes.
pub(crate) const MESSAGE_MOST: usize = ABOUT_MOST - 16;
/// Bytes that wait to be confirmed before who says more has to wait.
const WAITING_MOST: usize = 8 << 20;
/// Something is said at least so often, or the other side takes the link for dead.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Silence after which a link is taken for dead.
const SILENCE: Duration = Duration::from_secs(10);

/// What one side says.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Said and not confirmed; the first has the number `confirmed + 1`.
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    confirmed: u64,
    /// Messages of `waiting` that were taken to be written on the present link, and that were written.
    written: usize,
    sent: usize,
    /// Heard from the other side, to be confirmed.
    heard: u64,
    heard_told: u64,
    over: bool,
}

impl Outbox {
    /// Says something; waits while too much is unconfirmed. `false` once the session is over.
    pub(crate) fn say(&self, message: Vec<u8>) -> bool {
        debug_assert!(message.len() <= MESSAGE_MOST);
        let mut state = self.lock();
        while state.bytes > WAITING_MOST && !state.over {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.over {
            return false;
        }
        state.bytes += message.len();
        state.waiting.push_back(message);
        self.changed.notify_all();
        true
    }

    /// Waits until everything said was heard, or so long.
    pub(crate) fn wait_heard(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while !state.waiting.is_empty() && !state.over {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return;
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until everything said was handed to the kernel, or so long.
    pub(crate) fn wait_written(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while state.sent < state.waiting.len() && !state.over {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return;
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn close(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// What came in by the other side's link: its number, and what it confirms.
    fn note(&self, heard: Option<u64>, confirmed: u64) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(heard) = heard {
            state.heard = heard;
        }
        if confirmed > state.confirmed + state.waiting.len() as u64 {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "confirmed what was not said",
            ));
        }
        while state.confirmed < confirmed {
            let Some(message) = state.waiting.pop_front() else {
                break;
            };
            state.bytes -= message.len();
            state.confirmed += 1;
            state.written = state.written.saturating_sub(1);
            state.sent = state.sent.saturating_sub(1);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Writes what is said, link after link, until the session is over.
    ///
    /// # Errors
    /// As [`Meeting::to_write`], other than that it is over.
    pub(crate) fn run(&self, meeting: &Meeting, which: Which) -> io::Result<()> {
        loop {
            let (mut link, start) = match meeting.to_write(which) {
                Ok(met) => met,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => return Ok(()),
                Err(error) => return Err(error),
            };
            link.set_patience(Some(SILENCE))?;
            self.note(None, start)?;
            {
                let mut state = self.lock();
                (state.written, state.sent) = (0, 0);
            }
            let written = self.write(&mut link);
            link.socket().shut();
            if written.is_ok() {
                return Ok(());
            }
        }
    }

    fn write(&self, link: &mut Link) -> io::Result<()> {
        let mut about = Vec::new();
        loop {
            about.clear();
            let mut state = self.lock();
            let until = Instant::now() + HEARTBEAT;
            while state.written == state.waiting.len()
                && state.heard == state.heard_told
                && !state.over
            {
                let Some(left) = until.checked_duration_since(Instant::now()) else {
                    break;
                };
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let at = state.written;
            let is_last = state.over && at >= state.waiting.len();
            let number = state.confirmed + at as u64 + 1;
            let heard = state.heard;
            match state.waiting.get(at) {
                Some(message) => {
                    about.extend_from_slice(&number.to_le_bytes());
                    about.extend_from_slice(&heard.to_le_bytes());
                    about.extend_from_slice(message);
                    state.written += 1;
                }
                None => {
                    about.extend_from_slice(&0_u64.to_le_bytes());
                    about.extend_from_slice(&heard.to_le_bytes());
                }
            }
            state.heard_told = heard;
            drop(state);
            link.send(MESSAGE, &about, &[])?;
            let mut state = self.lock();
            state.sent = state.written;
            drop(state);
            self.changed.notify_all();
            if is_last {
                return Ok(());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears the other side, link after link, and confirms through `outbox`, until `each` says that it was the last message
/// or the session is over.
///
/// # Errors
/// As [`Meeting::to_read`], other than that it is over; what `each` fails with.
pub(crate) fn hear(
    meeting: &Meeting,
    which: Which,
    outbox: &Outbox,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut heard = 0_u64;
    let mut buffer = Vec::new();
    loop {
        let mut link = match meeting.to_read(which, heard) {
            Ok(link) => link,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => return Ok(()),
            Err(error) => return Err(error),
        };
        link.set_patience(Some(SILENCE))?;
        while let Ok(head) = link.receive(&mut buffer) {
            if head.kind != MESSAGE || head.about < 16 || head.data > 0 {
                return Err(io::Error::new(ErrorKind::InvalidData, "not a message"));
            }
            let number = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&buffer[at..at + 8]);
                u64::from_le_bytes(bytes)
            };
            let (this, confirmed) = (number(0), number(8));
            if this == 0 {
                outbox.note(None, confirmed)?;
                continue;
            }
            if this != heard + 1 {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "a message out of order",
                ));
            }
            each(&buffer[16..head.about])?;
            heard = this;
            outbox.note(Some(heard), confirmed)?;
        }
        link.socket().shut();
    }
}
