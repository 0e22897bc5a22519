//! The data connection of two ranks, and what each of its ends does in a test.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sys::clock;
use units::{Duration, Instant};

use super::RankTest;
use crate::protocol::{PROTOCOL, TOKEN_BYTES};
use crate::wait::TICK;

/// Looked at while a line waits, and now and then while it does not.
pub(super) trait Watch {
    /// Why to give up, if there is a reason.
    fn gone(&mut self) -> Option<&'static str>;
}

impl<W: Watch> Watch for &mut W {
    fn gone(&mut self) -> Option<&'static str> {
        (**self).gone()
    }
}

/// Looks at another thread's flag, and no longer than until then.
#[derive(Debug)]
pub(super) struct Until<'a>(pub(super) &'a AtomicBool, pub(super) Instant);

impl Watch for Until<'_> {
    fn gone(&mut self) -> Option<&'static str> {
        match clock::monotonic() >= self.1 {
            true => Some("it took too long"),
            false => self.0.gone(),
        }
    }
}

/// What the end that was told to expect a connection answers its opening with: 16 bytes of the HMAC-SHA-256
/// (RFC 2104) by its token over protocol and caller's number. A service of another kind does not come upon
/// them by chance, nor by sending back what it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer([u8; ANSWER_BYTES]);

impl Answer {
    pub(super) fn of(token: &[u8; TOKEN_BYTES], caller: u16) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(token).expect("HMAC takes keys of any length");
        mac.update(format!("goodput-measure {PROTOCOL:03} rank\n").as_bytes());
        mac.update(&caller.to_be_bytes());
        let whole = mac.finalize().into_bytes();
        let mut bytes = [0; ANSWER_BYTES];
        bytes.copy_from_slice(&whole[..ANSWER_BYTES]);
        Self(bytes)
    }

    /// What confirms the messages up to this one: its bytes in turn.
    fn confirmation(&self, done: u32) -> u8 {
        self.0[usize::try_from(done).unwrap_or(0) % ANSWER_BYTES]
    }
}

/// A flag that another thread's watch raises.
impl Watch for &AtomicBool {
    fn gone(&mut self) -> Option<&'static str> {
        self.load(Ordering::Relaxed).then_some("stopped")
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Line {
    socket: TcpStream,
    /// Of the largest message so far; made anew for each connection, as `rotate` does for each rotation.
    buffer: Vec<u8>,
    /// Nothing may stand still for longer.
    silence: Duration,
    answer: Answer,
    /// Payload that went and came since it was last asked for.
    moved: Moved,
}

/// Payload of messages, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// A line with its watch, during a test.
struct Running<'a, W> {
    line: &'a mut Line,
    watch: W,
    looked: Instant,
    /// The clock when the last call ended: it is read once a call.
    now: Instant,
}

impl Line {
    pub(super) fn new(socket: TcpStream, silence: Duration, answer: Answer) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TICK.to_std()))?;
        socket.set_write_timeout(Some(TICK.to_std()))?;
        Ok(Self {
            socket,
            buffer: Vec::new(),
            silence,
            answer,
            moved: Moved::default(),
        })
    }

    /// Payload since this was last asked.
    pub(super) fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.moved)
    }

    /// The server's answer to the opening: only who was told to expect it says it.
    pub(super) fn welcome(&mut self, watch: impl Watch) -> io::Result<()> {
        let answer = self.answer;
        self.running(watch).write(&answer.0)
    }

    /// Waits for that answer.
    pub(super) fn await_welcome(&mut self, watch: impl Watch) -> io::Result<()> {
        let answer = self.answer;
        self.running(watch).expect(&answer.0)
    }

    /// The sender's part of a test: the time it took.
    pub(super) fn send(&mut self, test: &RankTest, watch: impl Watch) -> io::Result<Duration> {
        self.make_room(test.bytes);
        let answer = self.answer;
        let mut running = self.running(watch);
        running.write(HELLO)?;
        running.expect(HELLO)?;
        let start = clock::monotonic();
        for done in 1..=test.count {
            running.write_message(test.bytes)?;
            if test.ping {
                running.read_message(test.bytes)?;
            } else if done.is_multiple_of(test.window) || done == test.count {
                running.expect(&[answer.confirmation(done)])?;
            }
        }
        Ok(clock::monotonic().saturating_since(start))
    }

    /// The receiver's part.
    pub(super) fn receive(&mut self, test: &RankTest, watch: impl Watch) -> io::Result<Duration> {
        self.make_room(test.bytes);
        let answer = self.answer;
        let mut running = self.running(watch);
        running.expect(HELLO)?;
        running.write(HELLO)?;
        let start = clock::monotonic();
        let mut end = start;
        for done in 1..=test.count {
            running.read_message(test.bytes)?;
            if test.ping {
                running.write_message(test.bytes)?;
            } else if done.is_multiple_of(test.window) || done == test.count {
                end = clock::monotonic();
                running.write(&[answer.confirmation(done)])?;
            }
        }
        if test.ping {
            end = clock::monotonic();
        }
        Ok(end.saturating_since(start))
    }

    fn make_room(&mut self, bytes: u32) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if self.buffer.len() < bytes {
            self.buffer = vec![FILL; bytes];
        }
    }

    fn running<W: Watch>(&mut self, watch: W) -> Running<'_, W> {
        let now = clock::monotonic();
        Running {
            line: self,
            watch,
            looked: now,
            now,
        }
    }
}

impl<W: Watch> Running<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes, &mut 0)
    }

    /// Reads so many bytes, which must be these.
    fn expect(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut heard = [0; ANSWER_BYTES];
        let heard = &mut heard[..bytes.len()];
        self.get(heard, &mut 0)?;
        match heard == bytes {
            true => Ok(()),
            false => Err(io::Error::other("what answers is no rank")),
        }
    }

    fn put(&mut self, bytes: &[u8], count: &mut u64) -> io::Result<()> {
        let mut left = bytes;
        let mut moved = self.now;
        while !left.is_empty() {
            let written = (&self.line.socket).write(left);
            let n = self.step(written, &mut moved)?;
            *count += u64::try_from(n).unwrap_or(0);
            left = &left[n..];
        }
        Ok(())
    }

    fn get(&mut self, bytes: &mut [u8], count: &mut u64) -> io::Result<()> {
        let mut at = 0;
        let mut moved = self.now;
        while at < bytes.len() {
            let read = (&self.line.socket).read(&mut bytes[at..]);
            if matches!(read, Ok(0)) {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the other rank closed its connection",
                ));
            }
            let n = self.step(read, &mut moved)?;
            *count += u64::try_from(n).unwrap_or(0);
            at += n;
        }
        Ok(())
    }

    fn write_message(&mut self, bytes: u32) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.line.buffer);
        let mut sent = 0;
        let written = self.put(&buffer[..usize::try_from(bytes).unwrap_or(0)], &mut sent);
        self.line.moved.sent += sent;
        self.line.buffer = buffer;
        written
    }

    fn read_message(&mut self, bytes: u32) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.line.buffer);
        let mut received = 0;
        let into = &mut buffer[..usize::try_from(bytes).unwrap_or(0)];
        let read = self.get(into, &mut received);
        self.line.moved.received += received;
        self.line.buffer = buffer;
        read
    }

    /// What a call moved; none where it only waited for a tick.
    fn step(&mut self, done: io::Result<usize>, moved: &mut Instant) -> io::Result<usize> {
        let now = clock::monotonic();
        self.now = now;
        if now.saturating_since(self.looked) >= TICK {
            self.looked = now;
            if let Some(why) = self.watch.gone() {
                return Err(io::Error::new(ErrorKind::Interrupted, why));
            }
        }
        match done {
            Ok(n) => {
                *moved = now;
                Ok(n)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    let stood = now.saturating_since(*moved);
                    if stood >= self.line.silence {
                        let text = format!("nothing moved for {stood}");
                        return Err(io::Error::new(ErrorKind::TimedOut, text));
                    }
                    Ok(0)
                }
                _ => Err(error),
            },
        }
    }
}

const HELLO: &[u8; 1] = b"h";
/// As long as a token.
const ANSWER_BYTES: usize = 16;
/// Payload is not looked at; zeros might be pages that nobody has touched.
const FILL: u8 = 0xA5;
