//! A capture that comes in pieces: the buffer that keeps what is not yet done with.

use crate::capture::reader::Found;
use crate::capture::{BLOCK_BYTES_MAX, Packet, Reader, Stopped};

/// Reads a capture from pieces, however they are cut.
///
/// Put bytes into [`Self::space`] and say how many; then [`Self::advance`] until it wants more.
///
/// ```
/// use wire::capture::{Advance, Stream};
///
/// let mut file = Vec::new();
/// wire::pcapng::section_header("example", &mut file);
/// wire::pcapng::interface("eth0", 0, &mut file);
/// wire::pcapng::packet(&wire::pcapng::Packet::default(), &mut file);
/// let mut stream = Stream::new(64);
/// let mut packets = 0;
/// for byte in file {
///     stream.space()[0] = byte;
///     stream.filled(1);
///     while stream.advance() == Advance::Packet {
///         packets += stream.packet().frame;
///     }
/// }
/// assert_eq!((packets, stream.finish()), (1, Ok(())));
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    reader: Reader,
    buffer: Vec<u8>,
    /// What is not done with: from here
    start: usize,
    /// to here.
    end: usize,
    /// Bytes from `start` on without which there is no going on.
    wanted: usize,
    /// Where the bytes began in which it was found.
    found_from: usize,
}

/// What [`Stream::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// A packet: [`Stream::packet`] has it.
    Packet,
    /// More is needed, or the file ends here: [`Stream::finish`] says whether well.
    NeedMore,
    /// The rest cannot be read.
    Stopped(Stopped),
}

impl Stream {
    /// A stream that takes pieces of up to `buffer_bytes`, at least one. The buffer grows to
    /// [`BLOCK_BYTES_MAX`] at most where a packet asks for more.
    pub fn new(buffer_bytes: usize) -> Self {
        Self {
            reader: Reader::new(),
            buffer: vec![0; buffer_bytes.max(1)],
            start: 0,
            end: 0,
            wanted: 0,
            found_from: 0,
        }
    }

    /// Where the next piece goes, never empty; the packet found last is gone with it.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.reader.forget();
        let wanted = self.wanted.min(BLOCK_BYTES_MAX).max(self.end + 1);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// Takes the first `bytes` of [`Self::space`], all of it at most, as the file's next.
    pub fn filled(&mut self, bytes: usize) {
        self.end = self.end.saturating_add(bytes).min(self.buffer.len());
    }

    /// Goes on to the next packet.
    #[inline]
    pub fn advance(&mut self) -> Advance {
        let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
        let (used, found) = self.reader.find(bytes);
        self.found_from = self.start;
        self.start += used;
        match found {
            Found::Packet => Advance::Packet,
            Found::NeedMore { bytes } => {
                self.wanted = bytes;
                Advance::NeedMore
            }
            Found::Stopped(stopped) => Advance::Stopped(stopped),
        }
    }

    /// The packet that the last [`Self::advance`] found; an empty one with number zero before that.
    #[inline]
    pub fn packet(&self) -> Packet<'_> {
        let bytes = self.buffer.get(self.found_from..).unwrap_or_default();
        self.reader.found(bytes)
    }

    /// Whether the file ends well after all that was put in, when no packet is to be had.
    ///
    /// # Errors
    /// Where reading ended, when that is not the end of the file.
    pub const fn finish(&self) -> Result<(), Stopped> {
        self.reader.finish(self.end - self.start)
    }

    /// The reader behind: frames, interfaces, its place in the file.
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }
}
