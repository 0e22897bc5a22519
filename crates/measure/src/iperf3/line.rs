//! An iperf3 control connection: bytes and JSON in and out of a socket that never blocks for longer
//! than a tick.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

use serde_json::Value;
use units::{Duration, Instant};

use super::message::{self, State};
use crate::Stop;
use crate::control::{self, Trouble, check};
use crate::message::MessageError;
use crate::wait::TICK;

/// One end of a control connection.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Line {
    /// Takes over a connected socket. `silence` is how long the peer's kernel may acknowledge nothing: while a test runs
    /// iperf3 says nothing on this connection, so that the kernels' own probes have to tell that the peer is there.
    pub(super) fn new(stream: TcpStream, silence: Duration) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sys::tcp::set_keep_alive(stream.as_fd(), silence)?;
        Ok(Self {
            stream,
            input: Vec::new(),
        })
    }

    /// The socket.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// A byte that is there already or comes within `wait`.
    pub(super) fn try_byte(&mut self, wait: Duration) -> Result<Option<u8>, Trouble> {
        if self.input.is_empty() {
            self.fill(wait)?;
        }
        Ok((!self.input.is_empty()).then(|| self.input.remove(0)))
    }

    /// A state that is there already or comes within `wait`; another byte is an error.
    pub(super) fn try_state(&mut self, wait: Duration) -> Result<Option<State>, Trouble> {
        let Some(byte) = self.try_byte(wait)? else {
            return Ok(None);
        };
        match State::of(byte) {
            Some(state) => Ok(Some(state)),
            None => Err(malformed(format!("{byte} is no state of iperf3"))),
        }
    }

    /// Waits for a state until `deadline`.
    pub(super) fn state(&mut self, deadline: Instant, stop: &Stop) -> Result<State, Trouble> {
        loop {
            if let Some(state) = self.try_state(TICK)? {
                return Ok(state);
            }
            check(deadline, stop)?;
        }
    }

    /// The two numbers after [`State::ServerError`]: iperf3's and errno.
    pub(super) fn error_numbers(
        &mut self,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<(i32, i32), Trouble> {
        let mut bytes = [0; 8];
        for place in &mut bytes {
            *place = loop {
                if let Some(byte) = self.try_byte(TICK)? {
                    break byte;
                }
                check(deadline, stop)?;
            };
        }
        let [a, b, c, d, e, f, g, h] = bytes;
        let numbers = (
            i32::from_be_bytes([a, b, c, d]),
            i32::from_be_bytes([e, f, g, h]),
        );
        Ok(numbers)
    }

    /// Waits for a JSON message of at most `max` bytes until `deadline`.
    pub(super) fn json(
        &mut self,
        max: usize,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<Value, Trouble> {
        loop {
            if let Some((json, used)) = message::decode(&self.input, max).map_err(malformed)? {
                self.input.drain(..used);
                return Ok(json);
            }
            check(deadline, stop)?;
            self.fill(TICK)?;
        }
    }

    /// Sends a state.
    pub(super) fn tell(
        &mut self,
        state: State,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<(), Trouble> {
        self.write_all(&[state.byte()], deadline, stop)
    }

    /// Sends bytes, waiting until `deadline` for the peer to take them.
    pub(super) fn write_all(
        &mut self,
        bytes: &[u8],
        deadline: Instant,
        stop: &Stop,
    ) -> Result<(), Trouble> {
        control::write_all(&self.stream, bytes, deadline, stop)
    }

    /// Reads what is there, waiting up to `wait` for it. Called only while a message is incomplete,
    /// so the input holds one message of the largest size and one read more.
    fn fill(&mut self, wait: Duration) -> Result<(), Trouble> {
        control::fill(&self.stream, &mut self.input, wait)
    }
}

/// A message that has no place here.
pub(super) fn unexpected(state: State) -> Trouble {
    malformed(format!("{state:?} at the wrong time"))
}

pub(super) fn malformed(text: String) -> Trouble {
    Trouble::Malformed(MessageError::Malformed(text))
}
