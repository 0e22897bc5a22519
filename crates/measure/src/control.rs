//! The control connection: whole messages in and out of a socket that never blocks for longer than
//! a tick, so that a stop or a deadline ends every wait.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use sys::clock;
use units::{Duration, Instant};

use crate::Stop;
use crate::message::{self, GREETING_BYTES, Heard, Message, MessageError};
use crate::wait::{TICK, wait_for};

/// Why a wait on the control connection ended without a message.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The peer closed.
    Closed,
    /// The deadline passed.
    Silent,
    /// The stop flag was raised.
    Stopped,
    /// The peer sent nonsense.
    Malformed(MessageError),
    /// The peer said that it failed.
    Failed(String),
    /// The kernel gave the connection up.
    Io(io::Error),
}

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct Control {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    message_bytes_max: usize,
}

impl Control {
    /// Takes over a connected socket. `silence` is how long sent data may stay unacknowledged
    /// before the peer counts as dead.
    pub(crate) fn new(
        stream: TcpStream,
        message_bytes_max: usize,
        silence: Duration,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sys::tcp::set_user_timeout(stream.as_fd(), silence)?;
        Ok(Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            message_bytes_max,
        })
    }

    /// The socket.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Waits for a greeting line. Returns what was heard and, of a foreign peer, its first bytes;
    /// never [`Heard::More`].
    pub(crate) fn hear(
        &mut self,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<(Heard, Vec<u8>), Trouble> {
        loop {
            match message::hear(&self.input) {
                Heard::More => {}
                heard @ Heard::Foreign => return Ok((heard, self.input.clone())),
                heard => {
                    self.input.drain(..GREETING_BYTES);
                    return Ok((heard, Vec::new()));
                }
            }
            check(deadline, stop)?;
            match self.fill(TICK) {
                Err(Trouble::Closed) => return Ok((Heard::Foreign, self.input.clone())),
                other => other?,
            };
        }
    }

    /// Waits for a message until `deadline`.
    pub(crate) fn receive(&mut self, deadline: Instant, stop: &Stop) -> Result<Message, Trouble> {
        loop {
            if let Some(message) = self.try_receive(TICK)? {
                return Ok(message);
            }
            check(deadline, stop)?;
        }
    }

    /// A message that is there already or comes within `wait`.
    pub(crate) fn try_receive(&mut self, wait: Duration) -> Result<Option<Message>, Trouble> {
        if let Some(message) = self.parse()? {
            return Ok(Some(message));
        }
        self.fill(wait)?;
        self.parse()
    }

    /// Sends a message, waiting until `deadline` for the peer to take it.
    pub(crate) fn send(
        &mut self,
        message: &Message,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<(), Trouble> {
        self.output.clear();
        message::encode(message, &mut self.output);
        let output = std::mem::take(&mut self.output);
        let sent = self.write_all(&output, deadline, stop);
        self.output = output;
        sent
    }

    /// Sends bytes that are no message, such as a greeting.
    pub(crate) fn write_all(
        &mut self,
        bytes: &[u8],
        deadline: Instant,
        stop: &Stop,
    ) -> Result<(), Trouble> {
        write_all(&self.stream, bytes, deadline, stop)
    }

    /// Tries to send a last message without waiting; whether it arrives does not matter any more.
    pub(crate) fn send_last(&mut self, message: &Message) {
        self.output.clear();
        message::encode(message, &mut self.output);
        farewell(&self.stream, &self.output);
    }

    fn parse(&mut self) -> Result<Option<Message>, Trouble> {
        let decoded = message::decode(&self.input, self.message_bytes_max);
        let Some((message, used)) = decoded.map_err(Trouble::Malformed)? else {
            return Ok(None);
        };
        self.input.drain(..used);
        Ok(Some(message))
    }

    /// Reads what is there, waiting up to `wait` for it. The input holds at most one message of the
    /// largest size and one read more, since messages are taken out before the next read.
    fn fill(&mut self, wait: Duration) -> Result<(), Trouble> {
        fill(&self.stream, &mut self.input, wait)
    }
}

/// Sends bytes over a socket that does not block, waiting until `deadline` for the peer to take them.
pub(crate) fn write_all(
    mut stream: &TcpStream,
    mut bytes: &[u8],
    deadline: Instant,
    stop: &Stop,
) -> Result<(), Trouble> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                check(deadline, stop)?;
                wait_for(stream, PollFlags::OUT, TICK).map_err(Trouble::Io)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Trouble::Io(error)),
        }
    }
    Ok(())
}

/// Appends what a socket that does not block has, 16 KiB at most, waiting up to `wait` for it.
pub(crate) fn fill(
    mut stream: &TcpStream,
    input: &mut Vec<u8>,
    wait: Duration,
) -> Result<(), Trouble> {
    wait_for(stream, PollFlags::IN, wait).map_err(Trouble::Io)?;
    let mut chunk = [0_u8; 16 * 1024];
    match stream.read(&mut chunk) {
        Ok(0) => Err(Trouble::Closed),
        Ok(n) => {
            input.extend_from_slice(&chunk[..n]);
            Ok(())
        }
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
            _ => Err(Trouble::Io(error)),
        },
    }
}

/// Whether there is time left, and nobody has asked to stop.
pub(crate) fn check(deadline: Instant, stop: &Stop) -> Result<(), Trouble> {
    if stop.is_stopped() {
        return Err(Trouble::Stopped);
    }
    if clock::monotonic() >= deadline {
        return Err(Trouble::Silent);
    }
    Ok(())
}

impl Trouble {
    /// What happened, in words.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Closed => "it closed the control connection".to_owned(),
            Self::Silent => "it fell silent".to_owned(),
            Self::Stopped => "stopped".to_owned(),
            Self::Malformed(error) => crate::facts::clean(&error.to_string()),
            Self::Failed(text) => crate::facts::clean(text),
            Self::Io(error) => error.to_string(),
        }
    }
}

/// Says last words to a peer and ends the sending side. What the peer sent meanwhile is read and
/// thrown away: closing over unread bytes would reset the connection and destroy the words.
pub(crate) fn farewell(mut stream: &TcpStream, words: &[u8]) {
    let mut junk = [0_u8; 4096];
    let ended = stream
        .set_nonblocking(true)
        .and_then(|()| stream.write_all(words))
        .and_then(|()| stream.shutdown(std::net::Shutdown::Write))
        .and_then(|()| stream.read(&mut junk));
    // The peer may be gone or ill-behaved; nothing is owed to it any more.
    drop(ended);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{HOSTILE, assert_clean_lines};

    #[test]
    fn what_a_peer_sent_is_one_plain_line_in_the_log() {
        for trouble in [
            Trouble::Malformed(MessageError::Malformed(HOSTILE.to_owned())),
            Trouble::Failed(HOSTILE.to_owned()),
        ] {
            let text = trouble.text();
            assert!(!text.contains('\n') && text.contains("owned"), "{text:?}");
            assert_clean_lines(&text, "trouble");
        }
    }
}
