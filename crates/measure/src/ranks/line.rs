//! The data connection of two ranks, and what each of its ends does in a test.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use sys::clock;
use units::{Duration, Instant};

use super::RankTest;
use crate::control::TICK;

/// Looked at while a line waits, and now and then while it does not.
pub(super) trait Watch {
    /// Why to give up, if there is a reason.
    fn gone(&mut self) -> Option<&'static str>;
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
    pub(super) fn new(socket: TcpStream, silence: Duration) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TICK.to_std()))?;
        socket.set_write_timeout(Some(TICK.to_std()))?;
        Ok(Self {
            socket,
            buffer: Vec::new(),
            silence,
        })
    }

    /// The server's answer to the opening: only who was told to expect it says it.
    pub(super) fn welcome(&mut self, watch: impl Watch) -> io::Result<()> {
        self.running(watch).write(WELCOME)
    }

    /// Waits for that answer.
    pub(super) fn await_welcome(&mut self, watch: impl Watch) -> io::Result<()> {
        let mut heard = [0];
        self.running(watch).read(&mut heard)?;
        match heard == *WELCOME {
            true => Ok(()),
            false => Err(io::Error::other("it is no rank")),
        }
    }

    /// The sender's part of a test: the time it took.
    pub(super) fn send(&mut self, test: &RankTest, watch: impl Watch) -> io::Result<Duration> {
        self.make_room(test.bytes);
        let mut running = self.running(watch);
        running.write(HELLO)?;
        running.read(&mut [0])?;
        let start = clock::monotonic();
        for done in 1..=test.count {
            running.write_message(test.bytes)?;
            if test.ping {
                running.read_message(test.bytes)?;
            } else if done.is_multiple_of(test.window) || done == test.count {
                running.read(&mut [0])?;
            }
        }
        Ok(clock::monotonic().saturating_since(start))
    }

    /// The receiver's part.
    pub(super) fn receive(&mut self, test: &RankTest, watch: impl Watch) -> io::Result<Duration> {
        self.make_room(test.bytes);
        let mut running = self.running(watch);
        running.read(&mut [0])?;
        running.write(HELLO)?;
        let start = clock::monotonic();
        let mut end = start;
        for done in 1..=test.count {
            running.read_message(test.bytes)?;
            if test.ping {
                running.write_message(test.bytes)?;
            } else if done.is_multiple_of(test.window) || done == test.count {
                end = clock::monotonic();
                running.write(CONFIRMED)?;
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
        let mut left = bytes;
        let mut moved = self.now;
        while !left.is_empty() {
            let written = (&self.line.socket).write(left);
            let n = self.step(written, &mut moved)?;
            left = &left[n..];
        }
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
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
            at += self.step(read, &mut moved)?;
        }
        Ok(())
    }

    fn write_message(&mut self, bytes: u32) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.line.buffer);
        let written = self.write(&buffer[..usize::try_from(bytes).unwrap_or(0)]);
        self.line.buffer = buffer;
        written
    }

    fn read_message(&mut self, bytes: u32) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.line.buffer);
        let read = self.read(&mut buffer[..usize::try_from(bytes).unwrap_or(0)]);
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

const WELCOME: &[u8; 1] = b"r";
const HELLO: &[u8; 1] = b"h";
const CONFIRMED: &[u8; 1] = b"c";
/// Payload is not looked at; zeros might be pages that nobody has touched.
const FILL: u8 = 0xA5;
