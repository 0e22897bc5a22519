//! What a connection brings, taken from the kernel in few calls and for few awakenings.
//!
//! A thread that is woken for every segment spends more on that than on what the segment holds: over 1 Gb/s and 16 streams
//! a ninth of two virtual cores, and as much again in whoever delivers. How much of a frame is still to come is known; so the
//! kernel is asked for a good part of it at a time (`SO_RCVLOWAT`, socket(7)).

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

use units::{Bytes, Duration};

use super::Socket;
use crate::room::{self, PAGE};

/// What is taken from the kernel at a time.
const INBOX: usize = 128 << 10;
/// What TLS may hold of a record that is not whole yet (RFC 8446, section 5.2), and does not come again.
const RECORD: usize = 5 + (16 << 10) + 256;
/// Less is not waited for together.
const TOGETHER_LEAST: usize = 32 << 10;
/// How long what has come may lie there while more is waited for.
const TOGETHER_LONGEST: Duration = Duration::from_ms(50);

/// What the kernel had and TLS has not taken yet: rustls reads 4 KiB at a time, which is a call into the kernel each.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    mark: Mark,
}

impl Inbox {
    /// A source for rustls, which asks `socket` when there is nothing left; `due` bytes of a frame are still to come out of TLS.
    pub(super) fn of<'a>(&'a mut self, socket: &'a Socket, due: usize) -> impl Read + 'a {
        struct Both<'a>(&'a mut Inbox, &'a Socket, usize);
        impl Read for Both<'_> {
            fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
                let Self(inbox, socket, due) = self;
                if inbox.from == inbox.to {
                    let place = room::place(&mut inbox.bytes, INBOX, PAGE);
                    let due = due.saturating_sub(RECORD);
                    let into = &mut inbox.bytes[place.clone()];
                    let read = inbox.mark.read(socket, into, due)?;
                    (inbox.from, inbox.to) = (place.start, place.start + read);
                }
                let taken = bytes.len().min(inbox.to - inbox.from);
                bytes[..taken].copy_from_slice(&inbox.bytes[inbox.from..inbox.from + taken]);
                inbox.from += taken;
                Ok(taken)
            }
        }
        Both(self, socket, due)
    }

    /// Fills `bytes` from `socket`, past the inbox.
    pub(super) fn fill(&mut self, socket: &Socket, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let due = bytes.len();
            match self.mark.read(socket, bytes, due) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => bytes = &mut bytes[read..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// How many bytes have to be there before the kernel says that there are some; as every socket has it to begin with.
struct Mark(usize);

impl Default for Mark {
    fn default() -> Self {
        Self(1)
    }
}

impl Mark {
    /// As read(2), of which `due` bytes at least are to come.
    fn read(&mut self, mut socket: &Socket, bytes: &mut [u8], due: usize) -> io::Result<usize> {
        let Socket::Tcp(tcp) = socket else {
            return socket.read(bytes);
        };
        let wanted = due.min(bytes.len()).min(INBOX);
        if wanted >= TOGETHER_LEAST
            && self.set(tcp, wanted)
            && let Some(read) = sys::tcp::receive_together(tcp.as_fd(), bytes, TOGETHER_LONGEST)?
        {
            return Ok(read);
        }
        // Whatever is there, or the first that comes.
        self.set(tcp, 1);
        socket.read(bytes)
    }

    fn set(&mut self, tcp: &TcpStream, bytes: usize) -> bool {
        if self.0 != bytes {
            let set = sys::tcp::set_receive_low_water(tcp.as_fd(), Bytes::new(bytes as u64));
            if set.is_err() {
                return false;
            }
            self.0 = bytes;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (Socket::Tcp(near), far)
    }

    #[test]
    fn what_is_due_is_waited_for_and_what_has_stopped_coming_comes_as_it_is() {
        let (socket, mut far) = pair();
        let sent: Vec<u8> = (0..40_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let mut mark = Mark::default();
        let mut room = vec![0; INBOX];
        far.write_all(&sent).unwrap();
        assert_eq!(mark.read(&socket, &mut room, 40_000).unwrap(), 40_000);
        assert_eq!(room[..40_000], sent);
        far.write_all(&sent[..100]).unwrap();
        let since = Instant::now();
        assert_eq!(mark.read(&socket, &mut room, 40_000).unwrap(), 100);
        assert!(since.elapsed().as_nanos() >= TOGETHER_LONGEST.as_ns().into());
        // What is not much is taken at once, whatever was waited for before.
        far.write_all(&sent[..100]).unwrap();
        assert_eq!(mark.read(&socket, &mut room, 32_767).unwrap(), 100);
        drop(far);
        assert_eq!(mark.read(&socket, &mut room, 40_000).unwrap(), 0);
    }

    #[test]
    fn a_frame_is_filled_past_a_receive_buffer_that_holds_less_than_what_is_waited_for() {
        let (socket, mut far) = pair();
        let Socket::Tcp(tcp) = &socket else {
            unreachable!()
        };
        sys::tcp::set_receive_buffer(tcp.as_fd(), Bytes::new(32 << 10)).unwrap();
        let sent = vec![7_u8; INBOX + TOGETHER_LEAST];
        let given = sent.clone();
        let sender = thread::spawn(move || far.write_all(&given).unwrap());
        let mut room = vec![0; INBOX + TOGETHER_LEAST];
        Inbox::default().fill(&socket, &mut room).unwrap();
        assert_eq!(room, sent);
        sender.join().unwrap();
    }
}
