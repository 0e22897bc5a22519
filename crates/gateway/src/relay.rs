//! What a split connection does with its bytes: a machine without sockets.
//!
//! It is told what the sockets are ready for and what became of each step, and says which step is next.
//! Each direction has a pipe, as the kernel has them for splice(2): bytes go from the one socket into the
//! pipe and from the pipe into the other socket. An end of stream is passed on when the pipe has run
//! empty, in each direction by itself; an error ends both at once.
//!
//! What the kernel says about a full pipe and about an empty socket is the same word, so while there is
//! something in the pipe a refusal to fill it proves nothing of the socket.

use serde::{Deserialize, Serialize};

/// One of the two ends of a split connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Who sent the SYN.
    Client,
    /// Who it was for.
    Server,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// 0 for the client, 1 for the server.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What to do next. Each is to be answered by the call named with it, except the last three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Move bytes from this side's socket into the pipe: [`Relay::on_filled`].
    Fill(Side),
    /// The same by read(2) and write(2), once: [`Relay::on_filled`].
    FillByCopy(Side),
    /// Move bytes from the pipe into this side's socket: [`Relay::on_drained`].
    Drain {
        /// Whose socket.
        to: Side,
        /// How much there is.
        bytes: u64,
        /// More will follow at once.
        more: bool,
    },
    /// Take the urgent byte from this side's socket: [`Relay::on_urgent_taken`].
    TakeUrgent(Side),
    /// Send a byte as urgent: [`Relay::on_urgent_sent`].
    SendUrgent {
        /// To whom.
        to: Side,
        /// The byte.
        byte: u8,
    },
    /// Tell this side that there is no more (shutdown(2)): [`Relay::on_shut`].
    Shut(Side),
    /// Nothing until a socket is ready.
    Wait,
    /// All has been carried both ways: close both.
    Close,
    /// Reset both.
    Reset,
}

/// What became of a step that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many bytes, at least one.
    Bytes(u64),
    /// The kernel would have to wait.
    NotNow,
    /// No more will come.
    End,
}

/// Two directions of one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Relay {
    /// From the client, from the server.
    halves: [Half; 2],
    failed: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Half {
    readable: bool,
    writable: bool,
    ended: bool,
    shut: bool,
    in_pipe: u64,
    /// Filling was refused while there was something in it.
    pipe_full: bool,
    urgent: Urgent,
    carried: u64,
}

/// Where urgent data stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Urgent {
    #[default]
    None,
    /// There is some; what comes before it goes first.
    Announced,
    /// What comes before it has gone.
    Due,
    Taken(u8),
    /// Sent; the reading side still stands before its mark.
    AtMark,
}

impl Default for Relay {
    fn default() -> Self {
        Self::new()
    }
}

impl Relay {
    /// A connection whose both halves have just been made.
    pub const fn new() -> Self {
        let half = Half {
            readable: false,
            writable: true,
            ended: false,
            shut: false,
            in_pipe: 0,
            pipe_full: false,
            urgent: Urgent::None,
            carried: 0,
        };
        Self {
            halves: [half; 2],
            failed: false,
        }
    }

    /// The socket of `side` may have something to read, if only its end.
    pub fn on_readable(&mut self, side: Side) {
        self.halves[side.index()].readable = true;
    }

    /// The socket of `side` may have room.
    pub fn on_writable(&mut self, side: Side) {
        self.halves[side.other().index()].writable = true;
    }

    /// The socket of `side` has urgent data.
    pub fn on_urgent(&mut self, side: Side) {
        let half = &mut self.halves[side.index()];
        half.readable = true;
        if half.urgent == Urgent::None {
            half.urgent = Urgent::Announced;
        }
    }

    /// One of the sockets failed: reset by its peer, timed out.
    pub fn on_failed(&mut self) {
        self.failed = true;
    }

    /// What became of [`Step::Fill`] or [`Step::FillByCopy`].
    pub fn on_filled(&mut self, from: Side, moved: Moved) {
        let half = &mut self.halves[from.index()];
        let by_copy = half.urgent == Urgent::AtMark;
        if by_copy {
            half.urgent = Urgent::None;
        }
        match moved {
            Moved::Bytes(bytes) => half.in_pipe += bytes,
            // splice(2) stops before the urgent byte, and calls that the end if a FIN has come as well.
            Moved::End | Moved::NotNow if half.urgent == Urgent::Announced && half.in_pipe == 0 => {
                half.urgent = Urgent::Due;
            }
            Moved::End if half.urgent == Urgent::Announced => half.pipe_full = true,
            Moved::End => half.ended = true,
            // The mark is behind it; whether there is more is not known.
            Moved::NotNow if by_copy => {}
            Moved::NotNow if half.in_pipe > 0 => half.pipe_full = true,
            Moved::NotNow => half.readable = false,
        }
    }

    /// What became of [`Step::Drain`].
    ///
    /// # Panics
    /// When more came out than was in.
    pub fn on_drained(&mut self, to: Side, moved: Moved) {
        let half = &mut self.halves[to.other().index()];
        match moved {
            Moved::Bytes(bytes) => {
                assert!(bytes <= half.in_pipe, "the pipe gave more than it got");
                half.in_pipe -= bytes;
                half.carried += bytes;
                half.pipe_full = false;
            }
            Moved::NotNow => half.writable = false,
            // A socket that takes nothing is no longer one.
            Moved::End => self.failed = true,
        }
    }

    /// What became of [`Step::TakeUrgent`].
    pub fn on_urgent_taken(&mut self, from: Side, byte: Option<u8>) {
        self.halves[from.index()].urgent = byte.map_or(Urgent::None, Urgent::Taken);
    }

    /// What became of [`Step::SendUrgent`]: whether there was room.
    pub fn on_urgent_sent(&mut self, to: Side, sent: bool) {
        let half = &mut self.halves[to.other().index()];
        if sent {
            half.urgent = Urgent::AtMark;
            half.carried += 1;
        } else {
            half.writable = false;
        }
    }

    /// The end has been passed on to `side`.
    pub fn on_shut(&mut self, side: Side) {
        self.halves[side.other().index()].shut = true;
    }

    /// What to do next.
    pub fn poll_step(&self) -> Step {
        if self.failed {
            return Step::Reset;
        }
        if self.halves.iter().all(|half| half.shut) {
            return Step::Close;
        }
        let next = |from: Side| self.halves[from.index()].next(from);
        next(Side::Client)
            .or_else(|| next(Side::Server))
            .unwrap_or(Step::Wait)
    }

    /// What to do next in the direction from `side`, so that a busy direction keeps the other from
    /// nothing; `Wait` where only the whole connection has something to do.
    pub fn poll_direction(&self, from: Side) -> Step {
        if self.failed || self.halves.iter().all(|half| half.shut) {
            return Step::Wait;
        }
        self.halves[from.index()].next(from).unwrap_or(Step::Wait)
    }

    /// Bytes that `side` sent and the other socket has taken.
    pub fn carried(&self, from: Side) -> u64 {
        self.halves[from.index()].carried
    }

    /// Bytes that came from `side` and wait in the pipe.
    pub fn in_pipe(&self, from: Side) -> u64 {
        self.halves[from.index()].in_pipe
    }

    /// How much [`Step::Fill`] may take from `side`: while the other socket is blocked, no more than shall
    /// wait in the pipe.
    pub fn may_fill(&self, from: Side) -> u64 {
        let half = &self.halves[from.index()];
        match half.writable {
            true => u64::MAX,
            false => HELD_BYTES.saturating_sub(half.in_pipe),
        }
    }

    /// True when bytes from `side` need not wait in the pipe: it is empty, the other socket is not known to
    /// be blocked, and no urgent byte is on its way.
    pub fn may_pass_by(&self, from: Side) -> bool {
        let half = &self.halves[from.index()];
        half.writable && half.in_pipe == 0 && half.urgent == Urgent::None
    }

    /// True while there may be something to read from `side`.
    pub fn is_readable(&self, side: Side) -> bool {
        self.halves[side.index()].readable
    }

    /// True when the socket of `side` took less than there was.
    pub fn is_blocked(&self, side: Side) -> bool {
        !self.halves[side.other().index()].writable
    }

    /// True when only [`Step::Shut`] of `side` is left: closing it says as much.
    pub fn is_last(&self, side: Side) -> bool {
        self.halves[side.index()].shut
    }

    /// True when `side` has been told that no more comes.
    pub fn has_shut(&self, side: Side) -> bool {
        self.halves[side.other().index()].shut
    }

    /// True when `side` has said that it sends no more.
    pub fn has_ended(&self, side: Side) -> bool {
        self.halves[side.index()].ended
    }
}

impl Half {
    fn next(&self, from: Side) -> Option<Step> {
        let to = from.other();
        let may_fill = self.readable && !self.ended && !self.pipe_full;
        // Empty the pipe first: what is in it has waited longest, and an empty pipe takes the most.
        if self.in_pipe > 0 {
            return match (self.writable, may_fill) {
                (true, more) => Some(Step::Drain {
                    to,
                    bytes: self.in_pipe,
                    more,
                }),
                // The other end is slow: take a little more. The rest waits in the receive buffer, where TCP
                // counts it and the sender's window closes; what is in a pipe nobody counts.
                (false, true) if self.urgent != Urgent::AtMark && self.in_pipe < HELD_BYTES => {
                    Some(Step::Fill(from))
                }
                _ => None,
            };
        }
        match self.urgent {
            Urgent::Taken(byte) if self.writable => Some(Step::SendUrgent { to, byte }),
            Urgent::Taken(_) => None,
            Urgent::AtMark if !self.ended => Some(Step::FillByCopy(from)),
            Urgent::Due => Some(Step::TakeUrgent(from)),
            _ if self.ended => (!self.shut).then_some(Step::Shut(to)),
            // Where there is neither room nor a pipe that holds anything, none was to be had.
            _ => (may_fill && self.writable).then_some(Step::Fill(from)),
        }
    }
}

/// What a pipe is filled to at most while its output is blocked: as a pipe of the usual size.
pub const HELD_BYTES: u64 = 64 << 10;

#[cfg(test)]
#[path = "relay/tests.rs"]
mod tests;
