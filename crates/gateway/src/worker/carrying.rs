//! One connection that stands: what its relay says, done with sockets and pipes.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

use rustix::event::epoll::EventFlags;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::pipe::SpliceFlags;
use sys::transparent;
use units::Bytes;

use super::look::Pace;
use crate::config::Zone;
use crate::counters::Counters;
use crate::links::Links;
use crate::relay::{HELD_BYTES, Moved, Relay, Side, Step};
use crate::sockets::{self, Pipe};
use crate::syn::Ends;
use crate::window::Window;

#[derive(Debug)]
pub(super) struct Carrying {
    pub(super) relay: Relay,
    pub(super) sockets: [TcpStream; 2],
    pub(super) pipes: [Option<Pipe>; 2],
    /// Something may wait in this socket's buffer for more.
    pub(super) corked: [bool; 2],
    /// Urgent data has been announced by this socket, or may have been.
    pub(super) marked: [bool; 2],
    /// This socket has something to read, nobody has read since, and it is no urgent byte.
    pub(super) fresh: [bool; 2],
    /// All that this socket will ever give has come.
    pub(super) hung_up: [bool; 2],
    /// What this socket gave last was more than a message.
    pub(super) large: [bool; 2],
    pub(super) delay: [Delay; 2],
    /// The kernel tells when the client's socket has room again.
    pub(super) room_told: bool,
    /// The server's socket is asked whether its peer lives.
    pub(super) kept_alive: bool,
    /// Where it connected from on the gateway's own account.
    pub(super) own: Option<Ends>,
    pub(super) ends: Ends,
    pub(super) zone: Zone,
    /// Where its server's side has several.
    pub(super) link: Option<usize>,
    pub(super) queued: bool,
    /// Not to be closed before its last ACK is acknowledged: each end is told by itself.
    pub(super) stays: bool,
    pub(super) pace: Pace,
    /// The window that this socket is bounded to while memory is short.
    pub(super) bounded: [Option<Bytes>; 2],
    /// What this socket offers while it grows.
    pub(super) windows: [Option<Window>; 2],
}

/// What a socket does with a little: TCP_NODELAY is of no use before something is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delay {
    /// Nothing has been written.
    Unwritten,
    /// Once: from now on a little would wait for the acknowledgment (RFC 896).
    Written,
    /// It goes out.
    Never,
}

/// What a connection needs of its worker.
pub(super) struct Turn<'a> {
    pub(super) pipes: &'a mut Vec<Pipe>,
    /// How many there may be, those in use included.
    pub(super) most_pipes: u64,
    pub(super) buffer: &'a mut [u8],
    pub(super) counters: &'a Counters,
    pub(super) links: &'a Links,
}

/// How a turn ended.
pub(super) enum Outcome {
    Waits,
    HasMore,
    Closed,
    Reset,
}

impl Carrying {
    pub(super) fn on_event(&mut self, side: Side, flags: EventFlags) {
        // Where it is being read from already, this may have been read meanwhile.
        self.fresh[side.index()] = flags.contains(EventFlags::IN)
            && !flags.contains(EventFlags::PRI)
            && !self.relay.is_readable(side);
        self.hung_up[side.index()] |= flags.contains(EventFlags::RDHUP);
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP) {
            self.relay.on_readable(side);
        }
        if flags.contains(EventFlags::OUT) {
            self.relay.on_writable(side);
        }
        if flags.contains(EventFlags::PRI) {
            self.marked[side.index()] = true;
            self.relay.on_urgent(side);
        }
        if flags.contains(EventFlags::ERR)
            && let Ok(Some(e)) | Err(e) =
                transparent::pending_error(self.sockets[side.index()].as_fd())
        {
            tracing::debug!(
                "{} to {}: {side:?}: {e}",
                self.ends.client,
                self.ends.server
            );
            self.relay.on_failed();
        }
    }

    pub(super) fn carry(&mut self, turn: &mut Turn<'_>) -> Outcome {
        for _ in 0..STEPS_A_TURN {
            let mut idle = true;
            for side in Side::BOTH {
                match self.relay.poll_direction(side) {
                    Step::Wait => self.rest(side, turn),
                    step => {
                        idle = false;
                        self.take(step, turn);
                    }
                }
            }
            match self.relay.poll_step() {
                Step::Close => return Outcome::Closed,
                Step::Reset => return Outcome::Reset,
                _ if idle => return Outcome::Waits,
                _ => {}
            }
        }
        Outcome::HasMore
    }

    /// Nothing to do from `side` for now: its pipe goes back, and what waits for more goes out.
    fn rest(&mut self, side: Side, turn: &mut Turn<'_>) {
        let index = side.index();
        if self.relay.in_pipe(side) == 0
            && let Some(pipe) = self.pipes[index].take()
        {
            give_back(turn.pipes, pipe, turn.counters);
        }
        if std::mem::take(&mut self.corked[index]) {
            let to = side.other().index();
            sockets::be_prompt(self.sockets[to].as_fd());
            self.delay[to] = Delay::Never;
        }
    }

    /// Before bytes are written to `to`.
    fn write_promptly(&mut self, to: Side, bytes: u64) {
        let delay = &mut self.delay[to.index()];
        *delay = match *delay {
            // One packet, whatever the segment size: nothing is on its way that it would wait for.
            Delay::Unwritten if bytes <= LITTLE_BYTES => Delay::Written,
            Delay::Never => Delay::Never,
            Delay::Unwritten | Delay::Written => {
                sockets::be_prompt(self.sockets[to.index()].as_fd());
                Delay::Never
            }
        };
    }

    fn take(&mut self, step: Step, turn: &mut Turn<'_>) {
        match step {
            // First: what a message leaves over needs a pipe as well.
            Step::Fill(from) if self.lacks_pipe(from, turn) => {
                if let Err(e) = self.pass_by_copy(from, turn) {
                    self.answer(Err(e), |_, _| ());
                }
            }
            Step::Fill(from) if self.is_message(from) => self.pass_message(from, turn),
            Step::Fill(from) => {
                let moved = self.fill(from, turn);
                note_filled(&moved, turn.counters);
                self.answer(moved, |relay, moved| relay.on_filled(from, moved));
            }
            Step::FillByCopy(from) => {
                let moved = self.copy(from, turn);
                note_filled(&moved, turn.counters);
                self.answer(moved, |relay, moved| relay.on_filled(from, moved));
            }
            Step::Drain { to, bytes, more } => {
                self.write_promptly(to, bytes);
                let moved = self.drain(to, bytes, more);
                if let Ok(Moved::Bytes(bytes)) = moved {
                    turn.counters.in_pipes.take(bytes);
                    self.count(to, bytes, turn);
                }
                self.answer(moved, |relay, moved| relay.on_drained(to, moved));
            }
            Step::TakeUrgent(from) => {
                let fd = self.sockets[from.index()].as_fd();
                let byte = transparent::take_urgent(fd);
                self.relay.on_urgent_taken(from, byte);
            }
            Step::SendUrgent { to, byte } => {
                self.write_promptly(to, 1);
                match transparent::send_urgent(self.sockets[to.index()].as_fd(), byte) {
                    Ok(sent) => {
                        if sent {
                            turn.counters.urgent.more();
                            self.count(to, 1, turn);
                        }
                        self.relay.on_urgent_sent(to, sent);
                    }
                    Err(_) => self.relay.on_failed(),
                }
            }
            // Who closes it says that there is no more.
            Step::Shut(to) if self.relay.is_last(to) && !self.stays => self.relay.on_shut(to),
            Step::Shut(to) => {
                match rustix::net::shutdown(&self.sockets[to.index()], Shutdown::Write) {
                    Ok(()) => self.relay.on_shut(to),
                    Err(_) => self.relay.on_failed(),
                }
            }
            Step::Wait | Step::Close | Step::Reset => {}
        }
    }

    fn answer(&mut self, moved: io::Result<Moved>, tell: impl FnOnce(&mut Relay, Moved)) {
        match moved {
            Ok(moved) => tell(&mut self.relay, moved),
            Err(e) => {
                tracing::debug!("{} to {}: {e}", self.ends.client, self.ends.server);
                self.relay.on_failed();
            }
        }
    }

    /// True when what `from` has to give shall go through memory, which recv(2) does to the first byte: an
    /// urgent one it would jump over.
    fn is_message(&self, from: Side) -> bool {
        let index = from.index();
        let plain = self.fresh[index] && !self.marked[index];
        plain && !self.large[index] && self.relay.may_pass_by(from)
    }

    /// Two system calls, where a pipe takes three and its making more.
    fn pass_message(&mut self, from: Side, turn: &mut Turn<'_>) {
        let to = from.other();
        self.fresh[from.index()] = false;
        let got = rustix::net::recv(
            &self.sockets[from.index()],
            &mut turn.buffer[..COPY_BYTES],
            RecvFlags::DONTWAIT,
        );
        let bytes = match moved(got.map(|(read, _)| read)) {
            Ok(Moved::Bytes(bytes)) => bytes,
            other => return self.answer(other, |relay, moved| relay.on_filled(from, moved)),
        };
        let length = usize::try_from(bytes).unwrap_or(0);
        // Less than was asked for is all that there was (epoll(7)), or all before an urgent byte, which is
        // announced by itself.
        let whole = length < COPY_BYTES;
        let last = whole && self.hung_up[from.index()];
        self.large[from.index()] = !whole;
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if last || !whole {
            // The end goes with it, or what follows at once.
            flags |= SendFlags::MORE;
        }
        self.write_promptly(to, bytes);
        let sent = rustix::net::send(&self.sockets[to.index()], &turn.buffer[..length], flags);
        let sent = match moved(sent) {
            Ok(Moved::Bytes(sent)) => sent,
            Ok(_) => 0,
            Err(e) => return self.answer(Err(e), |_, _| ()),
        };
        turn.counters.in_pipes.add(bytes - sent);
        self.relay.on_filled(from, Moved::Bytes(bytes));
        if sent > 0 {
            self.count(to, sent, turn);
            self.relay.on_drained(to, Moved::Bytes(sent));
        }
        if sent < bytes {
            let rest = usize::try_from(sent).unwrap_or(0)..length;
            if let Err(e) = self.put_by(from, rest, turn) {
                self.answer(Err(e), |_, _| ());
            }
        } else if last {
            self.relay.on_filled(from, Moved::End);
        } else if whole {
            self.relay.on_filled(from, Moved::NotNow);
        } else {
            self.corked[from.index()] = true;
        }
    }

    fn lacks_pipe(&self, from: Side, turn: &Turn<'_>) -> bool {
        let none = self.pipes[from.index()].is_none() && turn.pipes.is_empty();
        none && (turn.counters.pipes.get() >= turn.most_pipes || !Pipe::has_room())
    }

    /// As much as there is room for, and nothing is held on the way: what is not sent stays where it is.
    fn pass_by_copy(&mut self, from: Side, turn: &mut Turn<'_>) -> io::Result<()> {
        let to = from.other();
        self.fresh[from.index()] = false;
        let (socket, flags) = (&self.sockets[from.index()], RecvFlags::DONTWAIT);
        let seen = rustix::net::recv(socket, &mut *turn.buffer, flags | RecvFlags::PEEK);
        let seen = moved(seen.map(|(read, _)| read))?;
        // As splice(2), recv(2) may have jumped over an urgent byte here; it has not been taken yet.
        let fd = socket.as_fd();
        if seen != Moved::NotNow && transparent::at_mark(fd)? && transparent::has_urgent(fd) {
            self.relay.on_urgent(from);
            self.relay.on_filled(from, Moved::NotNow);
            return Ok(());
        }
        let Moved::Bytes(bytes) = seen else {
            self.relay.on_filled(from, seen);
            return Ok(());
        };
        let length = usize::try_from(bytes).unwrap_or(0);
        self.write_promptly(to, bytes);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::send(&self.sockets[to.index()], &turn.buffer[..length], flags);
        let Moved::Bytes(sent) = moved(sent)? else {
            self.relay.on_drained(to, Moved::NotNow);
            return Ok(());
        };
        let gone = &mut turn.buffer[..usize::try_from(sent).unwrap_or(0)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let taken = rustix::net::recv(&self.sockets[from.index()], &mut *gone, flags);
        if taken.map(|(_, bytes)| bytes) != Ok(gone.len()) {
            return Err(io::Error::other("what was there is gone"));
        }
        turn.counters.copies.more();
        self.count(to, sent, turn);
        self.relay.on_filled(from, Moved::Bytes(sent));
        self.relay.on_drained(to, Moved::Bytes(sent));
        Ok(())
    }

    /// Puts a part of the buffer into the pipe, which is empty: even the smallest holds it.
    fn put_by(
        &mut self,
        from: Side,
        part: std::ops::Range<usize>,
        turn: &mut Turn<'_>,
    ) -> io::Result<()> {
        let pipe = pipe_of(&mut self.pipes[from.index()], turn.pipes, turn.counters)?;
        let length = part.len();
        if rustix::io::write(&pipe.into, &turn.buffer[part]) != Ok(length) {
            // What is in it nobody has counted: it is no pipe for another connection.
            self.pipes[from.index()] = None;
            turn.counters.pipes.less();
            return Err(io::Error::other("a pipe took less than its size"));
        }
        Ok(())
    }

    fn fill(&mut self, from: Side, turn: &mut Turn<'_>) -> io::Result<Moved> {
        self.fresh[from.index()] = false;
        let pipe = pipe_of(&mut self.pipes[from.index()], turn.pipes, turn.counters)?;
        let socket = &self.sockets[from.index()];
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let most = match turn.counters.in_pipes.get() < PIPES_BYTES {
            true => self.relay.may_fill(from),
            false => self.relay.may_fill(from).min(HELD_BYTES),
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(FILL_BYTES);
        let spliced = rustix::pipe::splice(socket, None, &pipe.into, None, most, flags);
        let moved = moved(spliced)?;
        if let Moved::Bytes(bytes) = moved {
            self.large[from.index()] = bytes >= COPY_BYTES as u64;
        }
        // Before an urgent byte splice(2) says that this is the end, if a FIN has come, else that there is
        // nothing; and a second one may have come while the first was on its way, when nobody listened.
        let fd = socket.as_fd();
        // The first one is announced even where nothing was read, so only an end makes it doubtful.
        let doubtful = match moved {
            Moved::Bytes(_) => false,
            Moved::NotNow => self.marked[from.index()],
            Moved::End => true,
        };
        if doubtful && transparent::at_mark(fd)? && transparent::has_urgent(fd) {
            self.relay.on_urgent(from);
        }
        Ok(moved)
    }

    fn copy(&mut self, from: Side, turn: &mut Turn<'_>) -> io::Result<Moved> {
        self.fresh[from.index()] = false;
        let socket = &self.sockets[from.index()];
        let buffer = &mut turn.buffer[..COPY_BYTES];
        let got = rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT);
        let moved = moved(got.map(|(read, _)| read))?;
        if let Moved::Bytes(bytes) = moved {
            self.put_by(from, 0..usize::try_from(bytes).unwrap_or(0), turn)?;
        }
        Ok(moved)
    }

    fn drain(&mut self, to: Side, bytes: u64, more: bool) -> io::Result<Moved> {
        let from = to.other();
        let Some(pipe) = &self.pipes[from.index()] else {
            return Err(io::Error::other("bytes in a pipe that is not there"));
        };
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        // In a bulk transfer the last part of a segment waits for the rest; the end of the rush pushes it.
        if more && bytes >= BULK_BYTES {
            flags |= SpliceFlags::MORE;
            self.corked[from.index()] = true;
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let socket = &self.sockets[to.index()];
        moved(rustix::pipe::splice(
            &pipe.out, None, socket, None, length, flags,
        ))
    }

    fn count(&self, to: Side, bytes: u64, turn: &Turn<'_>) {
        if let Some(link) = self.link {
            turn.links.on_carried(link, bytes);
        }
        let counters = turn.counters;
        let outward = (to == Side::Server) == (self.zone == Zone::Inside);
        let count = if outward {
            &counters.bytes_outward
        } else {
            &counters.bytes_inward
        };
        count.add(bytes);
    }
}

fn note_filled(moved: &io::Result<Moved>, counters: &Counters) {
    if let Ok(Moved::Bytes(bytes)) = moved {
        counters.in_pipes.add(*bytes);
    }
}

fn moved(result: rustix::io::Result<usize>) -> io::Result<Moved> {
    match result {
        Ok(0) => Ok(Moved::End),
        Ok(bytes) => Ok(Moved::Bytes(bytes as u64)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Moved::NotNow),
        Err(e) => Err(e.into()),
    }
}

fn pipe_of<'p>(
    place: &'p mut Option<Pipe>,
    pool: &mut Vec<Pipe>,
    counters: &Counters,
) -> io::Result<&'p Pipe> {
    if place.is_none() {
        *place = Some(match pool.pop() {
            Some(pipe) => pipe,
            None => {
                let pipe = Pipe::new()?;
                counters.pipes.more();
                pipe
            }
        });
    }
    place
        .as_ref()
        .ok_or_else(|| io::Error::other("no pipe was made"))
}

pub(super) fn give_back(pool: &mut Vec<Pipe>, pipe: Pipe, counters: &Counters) {
    if pool.len() < POOLED_PIPES {
        pool.push(pipe);
    } else {
        counters.pipes.less();
    }
}

/// Of each direction: with a pipe of 1 MiB some 8 MiB, so that others wait a few milliseconds at most.
const STEPS_A_TURN: usize = 16;
/// What a pipe takes at most. With less the CPU time a byte grows: by half at 256 KiB, to twice at 64 KiB.
const FILL_BYTES: usize = 1 << 20;
/// What the pipes of a worker hold from which on each takes only as much as it may hold while its output is blocked:
/// what is in a pipe nobody else counts.
const PIPES_BYTES: u64 = 64 << 20;
/// From here on a transfer counts as bulk: more than what a program writes as a message.
const BULK_BYTES: u64 = 32 << 10;
/// Less than the segments of all but the strangest paths.
const LITTLE_BYTES: u64 = 512;
/// For messages and the bytes around urgent data: a page, which is what a pipe has at least (pipe(7)).
const COPY_BYTES: usize = 4 << 10;
/// A worker's, for what it copies.
pub(super) const BUFFER_BYTES: usize = 64 << 10;
/// Pipes kept for the next connection: an empty one costs some 10 KiB.
const POOLED_PIPES: usize = 256;
