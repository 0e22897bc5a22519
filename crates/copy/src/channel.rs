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

/// A side whose link is cut and does not come again in this time is not told last words.
const DEAF: Duration = Duration::from_millis(300);

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
    /// The other side was there once.
    has_met: bool,
    /// Since when the other side's link is gone.
    deaf_since: Option<Instant>,
    /// Nobody takes what the other side confirms any more: what it said was not to be taken.
    is_unconfirmed: bool,
    /// Whoever hears confirmations waits for somebody who may want to say something.
    is_held: bool,
    over: bool,
}

impl Outbox {
    /// Says something; waits while too much is unconfirmed. `false` once the session is over.
    pub(crate) fn say(&self, message: Vec<u8>) -> bool {
        debug_assert!(message.len() <= MESSAGE_MOST);
        let mut state = self.lock();
        while state.bytes > WAITING_MOST && !state.is_held && !state.over {
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

    /// As [`Outbox::say`] without waiting: for last words, and for who also hears what the other side confirms.
    pub(crate) fn say_now(&self, message: Vec<u8>) {
        debug_assert!(message.len() <= MESSAGE_MOST);
        let mut state = self.lock();
        if !state.over {
            state.bytes += message.len();
            state.waiting.push_back(message);
            self.changed.notify_all();
        }
    }

    /// Says something that may be left out: it is where too much is unconfirmed.
    pub(crate) fn say_if_room(&self, message: Vec<u8>) {
        if self.lock().bytes <= WAITING_MOST {
            self.say_now(message);
        }
    }

    /// For who hears what the other side confirms, and has to wait for others meanwhile: these say what they have to without
    /// waiting for confirmations, which nobody hears now.
    pub(crate) fn held<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.lock().is_held = true;
        self.changed.notify_all();
        let waited = wait();
        self.lock().is_held = false;
        waited
    }

    /// Whether the other side can be heard.
    fn hears(&self, hears: bool) {
        let mut state = self.lock();
        state.has_met |= hears;
        state.deaf_since = match hears {
            true => None,
            false => state.deaf_since.or_else(|| Some(Instant::now())),
        };
    }

    /// Whoever takes the other side's messages has ended, and with that what it confirms.
    fn ends_hearing(&self) {
        self.lock().is_unconfirmed = true;
        self.changed.notify_all();
    }

    /// Waits until everything said was heard, or so long, or until the other side seems to be gone; not at all for one that
    /// never came. Where no confirmation is taken any more, what the kernel has is all that can be waited for.
    pub(crate) fn wait_heard(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while !state.waiting.is_empty() && !state.over && state.has_met {
            if state.is_unconfirmed && state.sent >= state.waiting.len() {
                return;
            }
            let is_deaf = state.deaf_since.is_some_and(|since| since.elapsed() > DEAF);
            let Some(left) = until
                .checked_duration_since(Instant::now())
                .filter(|_| !is_deaf)
            else {
                return;
            };
            let waited = self.changed.wait_timeout(state, left.min(DEAF / 4));
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
            link.set_patience(Some(meeting.silence()))?;
            self.note(None, start)?;
            {
                let mut state = self.lock();
                (state.written, state.sent) = (0, 0);
                state.has_met = true;
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
    each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let ended = hear_all(meeting, which, outbox, each);
    outbox.ends_hearing();
    ended
}

fn hear_all(
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
        link.set_patience(Some(meeting.silence()))?;
        outbox.hears(true);
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
        outbox.hears(false);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::key::{Key, SessionId};
    use crate::link::{Cipher, Socket};
    use crate::meeting;

    #[test]
    fn last_words_are_not_kept_for_who_never_came() {
        let outbox = Outbox::default();
        outbox.say_now(b"last".to_vec());
        // With a wait, this would take for ever.
        outbox.wait_heard(Duration::from_secs(1 << 20));
        // Who came and went is given a moment.
        outbox.hears(true);
        outbox.hears(false);
        outbox.wait_heard(Duration::from_secs(1 << 20));
        assert_eq!(outbox.lock().waiting.len(), 1);
    }

    #[test]
    fn last_words_to_who_is_not_understood_are_kept_until_they_are_written() {
        let outbox = Outbox::default();
        outbox.hears(true);
        outbox.say_now(b"what?".to_vec());
        outbox.ends_hearing();
        // Not written: all that was allowed.
        let since = Instant::now();
        outbox.wait_heard(DEAF / 4);
        assert!(since.elapsed() >= DEAF / 4);
        outbox.lock().sent = 1;
        // With a wait, this would take for ever.
        outbox.wait_heard(Duration::from_secs(1 << 20));
        assert_eq!(outbox.lock().waiting.len(), 1);
    }

    #[test]
    fn who_hears_may_wait_for_who_says_more_than_is_confirmed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
        let dial = Box::new(move || TcpStream::connect(at).map(Socket::Tcp));
        let near = Meeting::connecting(dial, session, key.clone(), Cipher::None);
        let far = Meeting::listening(session, key, vec![Cipher::None]);
        let (asks, answers) = (Outbox::default(), Outbox::default());
        // Each of 64 questions has an answer of 1 MiB: eight times what may be unconfirmed.
        let questions = 64;
        let (queue, queued) = mpsc::sync_channel(1);
        let (done, is_done) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| meeting::listen(&listener, &far));
            scope.spawn(|| asks.run(&near, Which::FromSource));
            scope.spawn(|| answers.run(&far, Which::FromDestination));
            scope.spawn(|| {
                hear(&far, Which::FromSource, &answers, |_| {
                    answers.held(|| queue.send(()).unwrap());
                    Ok(())
                })
            });
            let answers = &answers;
            scope.spawn(move || {
                for () in queued.iter().take(questions) {
                    answers.say(vec![7; MESSAGE_MOST]);
                }
            });
            scope.spawn(|| {
                let mut heard = 0;
                hear(&near, Which::FromDestination, &asks, |_| {
                    heard += 1;
                    if heard == questions {
                        done.send(()).unwrap();
                    }
                    Ok(())
                })
            });
            for _ in 0..questions {
                asks.say(vec![1]);
            }
            let heard = is_done.recv_timeout(Duration::from_secs(60));
            for outbox in [&asks, answers] {
                outbox.close();
            }
            near.close();
            far.close();
            heard.expect("one waits for the other");
        });
    }
}
