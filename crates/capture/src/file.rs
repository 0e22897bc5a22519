//! A capture file, packet by packet.
//!
//! Files are read, not mapped: a capture may still be written, rotated or cut by whoever makes it,
//! and a map of a file that shrinks ends the process. The copy costs some 6 ns a packet of a
//! header-only capture, beside 30 ns and more of all else.
//!
//! A file that grows is read on: after the end was reached, asking again reads what has come since,
//! as long as it is not compressed.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use wire::capture::{Advance, Interface, Packet, Stopped, Stream};
use wire::segment::{Decoded, Segment};

use crate::compressed;
use crate::decoder::{Decoder, Raw};

/// A capture that is being read.
pub struct Capture {
    source: Box<dyn Read + Send>,
    compression: Compression,
    stream: Stream,
    decoder: Decoder,
    end: Option<End>,
    /// Files that are read when this one is at its end, the last first.
    others: Vec<PathBuf>,
    /// Frames of the files before.
    frames_before: u64,
    /// How an earlier file ended that did not end well.
    broken: Option<End>,
}

/// How a capture file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
    /// LZ4's frame format.
    Lz4,
    /// xz's format, version 1.
    Xz,
}

/// How reading came to an end.
#[derive(Debug)]
pub enum End {
    /// After the last packet.
    Whole,
    /// Before it: the file is cut short, or damaged.
    Stopped(Stopped),
    /// The file could not be read on, or not be decompressed.
    Failed {
        /// Bytes that were read by then, decompressed.
        offset: u64,
        /// Why.
        error: io::Error,
    },
}

/// Opens a capture: pcap, pcapng, snoop or ERF, with gzip, zstd, lz4, xz or nothing around it. `-` is standard input.
///
/// # Errors What opening or the first read says. What is no capture is opened as well:
/// [`Capture::end`] says so.
pub fn open(path: &Path) -> io::Result<Capture> {
    if path.as_os_str() == "-" {
        return Capture::new(io::stdin());
    }
    Capture::new(fs::File::open(path)?)
}

impl Capture {
    /// Reads a capture from `source`.
    ///
    /// # Errors
    /// What the first read says.
    pub fn new(mut source: impl Read + Send + 'static) -> io::Result<Self> {
        let mut head = Vec::new();
        source.by_ref().take(MAGIC_BYTES).read_to_end(&mut head)?;
        let compression = compressed::by_magic(&head);
        let source = io::Cursor::new(head).chain(source);
        Ok(Self {
            source: compressed::reader(compression, source),
            compression,
            stream: Stream::new(BUFFER_BYTES),
            decoder: Decoder::default(),
            end: None,
            others: Vec::new(),
            frames_before: 0,
            broken: None,
        })
    }

    /// Reads these files behind the present one, as if all were one: frames are numbered on, and
    /// interfaces of one number are one.
    pub fn goes_on_with(&mut self, mut others: Vec<PathBuf>) {
        others.reverse();
        self.others = others;
    }

    /// The next packet; `None` at the end, of which [`Self::end`] tells.
    #[inline]
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        self.advance()
            .then(|| present(&self.stream, self.frames_before))
    }

    /// The next packet, decoded into `segment` and counted in [`Self::decoder`].
    #[inline]
    pub fn next_segment(&mut self, segment: &mut Segment) -> Option<(Packet<'_>, Decoded)> {
        if !self.advance() {
            return None;
        }
        let packet = present(&self.stream, self.frames_before);
        let raw = Raw {
            link: packet.link,
            interface: packet.interface,
            time_ns: packet.time_ns,
            original_bytes: packet.original_bytes,
            captured: packet.captured,
        };
        let decoded = self.decoder.decode(raw, segment);
        Some((packet, decoded))
    }

    /// Hands all packets that are left to `each`, with what [`Decoder::decode`] makes of them, until there
    /// are no more or `each` breaks off; true at the end, of which [`Self::end`] tells.
    pub fn for_each_segment(
        &mut self,
        mut each: impl FnMut(&Packet<'_>, Decoded, &Segment) -> ControlFlow<()>,
    ) -> bool {
        let mut segment = Segment::default();
        while let Some((packet, decoded)) = self.next_segment(&mut segment) {
            if each(&packet, decoded, &segment).is_break() {
                return false;
            }
        }
        true
    }

    /// How the end was reached; `None` before it.
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The file's compression.
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Interfaces and their counters, as far as the file was read.
    pub fn interfaces(&self) -> &[Interface] {
        self.stream.reader().interfaces()
    }

    /// Frames until now, as Wireshark counts.
    pub const fn frames(&self) -> u64 {
        self.stream.reader().frames() + self.frames_before
    }

    /// Bytes of the capture until now, decompressed.
    pub const fn offset(&self) -> u64 {
        self.stream.reader().offset()
    }

    /// What was decoded until now, by what it was.
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Goes on to the next packet, in the next file where there is one; false at the end.
    #[inline]
    fn advance(&mut self) -> bool {
        self.advance_in_file() || self.next_file()
    }

    /// The first packet of the files that are left.
    #[cold]
    fn next_file(&mut self) -> bool {
        while let Some(path) = self.others.pop() {
            let ended = self.end.take();
            if !matches!(ended, Some(End::Whole)) {
                self.broken = self.broken.take().or(ended);
            }
            self.frames_before += self.stream.reader().frames();
            match open(&path) {
                Ok(next) => (self.source, self.stream) = (next.source, next.stream),
                Err(error) => self.broken = Some(End::Failed { offset: 0, error }),
            }
            if self.advance_in_file() {
                return true;
            }
        }
        if self.broken.is_some() {
            self.end = self.broken.take();
        }
        false
    }

    #[inline]
    fn advance_in_file(&mut self) -> bool {
        loop {
            match self.stream.advance() {
                Advance::Packet => return true,
                Advance::NeedMore if self.fill() => {}
                Advance::NeedMore => return false,
                Advance::Stopped(stopped) => {
                    self.end = Some(End::Stopped(stopped));
                    return false;
                }
            }
        }
    }

    /// Brings in the next piece; false at the end.
    #[cold]
    fn fill(&mut self) -> bool {
        let end = loop {
            match self.source.read(self.stream.space()) {
                Ok(0) => match self.stream.finish() {
                    Ok(()) => break End::Whole,
                    Err(stopped) => break End::Stopped(stopped),
                },
                Ok(bytes) => {
                    self.stream.filled(bytes);
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let offset = self.offset();
                    break End::Failed { offset, error };
                }
            }
        };
        self.end = Some(end);
        false
    }
}

/// The packet found last, numbered behind those of earlier files.
#[inline]
fn present(stream: &Stream, frames_before: u64) -> Packet<'_> {
    let mut packet = stream.packet();
    packet.frame += frames_before;
    packet
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("compression", &self.compression)
            .field("kinds", &self.decoder.kinds())
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("the capture was read to its end"),
            Self::Stopped(stopped) => stopped.fmt(f),
            Self::Failed { offset, error } => write!(f, "{error}, after byte {offset}"),
        }
    }
}

/// Tells compressions and formats apart.
const MAGIC_BYTES: u64 = 6;
/// Some 2,500 packets of a header-only capture a read; four times as much was no faster.
const BUFFER_BYTES: usize = 256 * 1024;
