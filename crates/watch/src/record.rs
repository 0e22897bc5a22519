//! Recordings: what the kernel said, as it said it.
//!
//! A file is [`MAGIC`] and then frames, each complete by itself: a head (mark, sizes, checksum) and a deflated list of entries. A frame
//! holds what one tick brought: sockets whose counters changed, with every attribute as it came, and those that closed. Once a
//! minute a frame holds all sockets, so that a reader may begin in the middle. The file only grows; a crash loses the frame that
//! was being written, and a reader looks for the next mark behind what it cannot read.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::path::Path;

use flate2::{Compression, Crc, read::DeflateDecoder, write::DeflateEncoder};
use units::Instant;

/// What a file begins with; the digit is the version of the layout.
pub const MAGIC: &[u8; 8] = b"gpwatch1";

/// One fact of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A dump was taken.
    Dump {
        /// By the monotonic clock of the host that recorded.
        at: Instant,
        /// By its wall clock, since 1970.
        utc_ns: u64,
        /// It holds all sockets, not only those that changed.
        all: bool,
        /// It was not cut short.
        whole: bool,
    },
    /// A socket of the dump: namespace, message body.
    Socket(u16, &'a [u8]),
    /// A socket that closed.
    Closed(u16, &'a [u8]),
    /// A connection that was gone without an event: namespace, cookie.
    Vanished(u16, u64),
    /// Close events were lost.
    Gap,
    /// Whose sockets with this inode are: namespace, inode, process, name.
    Owner(u16, u32, u32, &'a str),
    /// A cgroup's path.
    Cgroup(u64, &'a str),
}

/// Writes a recording.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    frame: Vec<u8>,
    /// Bytes written.
    written: u64,
}

impl Recorder {
    /// Makes the file, readable by its owner alone, or goes on at the end of a recording that is there.
    ///
    /// # Errors
    /// As open(2); `InvalidData` for a file that is something else.
    pub fn create(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let mut head = [0; MAGIC.len()];
        match file.metadata()?.len() {
            0 => file.write_all(MAGIC)?,
            _ => match file.read_exact(&mut head) {
                Ok(()) if head == *MAGIC => {}
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, NOT_OURS)),
            },
        }
        Ok(Self {
            file,
            frame: Vec::new(),
            written: 0,
        })
    }

    /// Puts an entry into the frame that is being made; beyond [`FRAME_MAX_BYTES`] it begins another one.
    ///
    /// # Errors
    /// As write(2).
    pub fn put(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        encode(entry, &mut self.frame);
        if self.frame.len() >= FRAME_FULL_BYTES {
            return self.flush();
        }
        Ok(())
    }

    /// Writes the frame with one call.
    ///
    /// # Errors
    /// As write(2).
    pub fn flush(&mut self) -> io::Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let bytes = frame(&self.frame)?;
        self.frame.clear();
        self.file.write_all(&bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Bytes written so far.
    pub const fn written(&self) -> u64 {
        self.written
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Who wants to know flushes.
        let _ = self.flush();
    }
}

/// A frame with its head.
fn frame(entries: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = vec![0; HEAD_BYTES];
    let mut encoder = DeflateEncoder::new(&mut out, Compression::fast());
    encoder.write_all(entries)?;
    encoder.finish()?;
    let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    let mut sum = Crc::new();
    sum.update(&out[HEAD_BYTES..]);
    let packed = word(out.len() - HEAD_BYTES);
    out[..4].copy_from_slice(MARK);
    out[4..8].copy_from_slice(&packed);
    out[8..12].copy_from_slice(&word(entries.len()));
    out[12..16].copy_from_slice(&sum.sum().to_le_bytes());
    Ok(out)
}

/// Reads a recording.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    buffer: Vec<u8>,
    /// Bytes that made no frame.
    skipped: u64,
    ended: bool,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// As open(2); `InvalidData` when it is no recording.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::new(BufReader::new(File::open(path)?))
    }
}

impl<R: Read> Reader<R> {
    /// Reads from anything.
    ///
    /// # Errors
    /// `InvalidData` when it does not begin as a recording.
    pub fn new(mut from: R) -> io::Result<Self> {
        let mut head = [0; MAGIC.len()];
        match from.read_exact(&mut head) {
            Ok(()) if head == *MAGIC => {}
            Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(e),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, NOT_OURS)),
        }
        Ok(Self {
            from,
            buffer: Vec::new(),
            skipped: 0,
            ended: false,
        })
    }

    /// The entries of the next whole frame, to be read with [`entries`]; `None` at the end.
    ///
    /// # Errors
    /// As read(2).
    pub fn next_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            self.fill(HEAD_BYTES)?;
            if self.buffer.len() < HEAD_BYTES {
                self.skipped += self.buffer.len() as u64;
                self.buffer.clear();
                return Ok(None);
            }
            let word = |at: usize| {
                let word = self.buffer[at..at + 4].try_into().unwrap_or_default();
                usize::try_from(u32::from_le_bytes(word)).unwrap_or(usize::MAX)
            };
            let (packed, whole, sum) = (word(4), word(8), word(12));
            let is_head = self.buffer.starts_with(MARK)
                && packed <= FRAME_MAX_BYTES
                && whole <= FRAME_MAX_BYTES;
            if is_head {
                self.fill(HEAD_BYTES + packed)?;
                if let Some(body) = self.buffer.get(HEAD_BYTES..HEAD_BYTES + packed) {
                    let mut found = Crc::new();
                    found.update(body);
                    if usize::try_from(found.sum()).is_ok_and(|found| found == sum)
                        && let Some(entries) = inflate(body, whole)
                    {
                        self.buffer.drain(..HEAD_BYTES + packed);
                        return Ok(Some(entries));
                    }
                }
            }
            self.skip_to_mark();
        }
    }

    /// Bytes that belong to no whole frame: what a crash cut, or damage.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Has at least `bytes` in the buffer, unless the file ends before.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        while !self.ended && self.buffer.len() < bytes {
            let missing = (bytes - self.buffer.len()) as u64;
            let read = self
                .from
                .by_ref()
                .take(missing)
                .read_to_end(&mut self.buffer)?;
            self.ended = read == 0;
        }
        Ok(())
    }

    /// Drops what is before the next place that may begin a frame, at least one byte.
    fn skip_to_mark(&mut self) {
        let next = self
            .buffer
            .windows(MARK.len())
            .skip(1)
            .position(|w| w == MARK);
        // The last bytes may be the beginning of a mark.
        let keep = self.buffer.len().saturating_sub(MARK.len() - 1).max(1);
        let skip = next.map_or(keep, |n| n + 1).min(self.buffer.len());
        self.buffer.drain(..skip);
        self.skipped += skip as u64;
    }
}

/// At most `whole` bytes; `None` when it is not exactly as many.
fn inflate(body: &[u8], whole: usize) -> Option<Vec<u8>> {
    let mut entries = Vec::new();
    let mut decoder = DeflateDecoder::new(body).take(whole as u64 + 1);
    decoder.read_to_end(&mut entries).ok()?;
    (entries.len() == whole).then_some(entries)
}

/// The entries of a frame. An entry of a kind that a later version has is passed over; one that is cut ends the list.
pub fn entries(mut rest: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    std::iter::from_fn(move || {
        loop {
            let kind = *rest.first()?;
            let length = rest.get(1..5)?.try_into().ok().map(u32::from_le_bytes)?;
            let end = usize::try_from(length).ok()?.checked_add(5)?;
            let body = rest.get(5..end)?;
            rest = &rest[end..];
            if let Some(entry) = decode(kind, body) {
                return Some(entry);
            }
        }
    })
}

fn encode(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend([0; 5]);
    let kind = match entry {
        Entry::Dump {
            at,
            utc_ns,
            all,
            whole,
        } => {
            out.extend(at.as_ns().to_le_bytes());
            out.extend(utc_ns.to_le_bytes());
            out.push(u8::from(*all) | u8::from(*whole) << 1);
            1
        }
        Entry::Socket(namespace, body) => {
            out.extend(namespace.to_le_bytes());
            out.extend(*body);
            2
        }
        Entry::Closed(namespace, body) => {
            out.extend(namespace.to_le_bytes());
            out.extend(*body);
            3
        }
        Entry::Vanished(namespace, cookie) => {
            out.extend(namespace.to_le_bytes());
            out.extend(cookie.to_le_bytes());
            4
        }
        Entry::Gap => 5,
        Entry::Owner(namespace, inode, pid, name) => {
            out.extend(namespace.to_le_bytes());
            out.extend(inode.to_le_bytes());
            out.extend(pid.to_le_bytes());
            out.extend(name.as_bytes());
            6
        }
        Entry::Cgroup(id, path) => {
            out.extend(id.to_le_bytes());
            out.extend(path.as_bytes());
            7
        }
    };
    let length = u32::try_from(out.len() - begin - 5).unwrap_or(u32::MAX);
    out[begin] = kind;
    out[begin + 1..begin + 5].copy_from_slice(&length.to_le_bytes());
}

fn decode(kind: u8, body: &[u8]) -> Option<Entry<'_>> {
    let two = |at: usize| Some(u16::from_le_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let four = |at: usize| Some(u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let eight = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let text = |at: usize| str::from_utf8(body.get(at..)?).ok();
    Some(match kind {
        1 => {
            let flags = *body.get(16)?;
            Entry::Dump {
                at: Instant::from_ns(eight(0)?),
                utc_ns: eight(8)?,
                all: flags & 1 == 1,
                whole: flags & 2 == 2,
            }
        }
        2 => Entry::Socket(two(0)?, body.get(2..)?),
        3 => Entry::Closed(two(0)?, body.get(2..)?),
        4 => Entry::Vanished(two(0)?, eight(2)?),
        5 => Entry::Gap,
        6 => Entry::Owner(two(0)?, four(2)?, four(6)?, text(10)?),
        7 => Entry::Cgroup(eight(0)?, text(8)?),
        _ => return None,
    })
}

const NOT_OURS: &str = "it is no recording of goodput watch";
const MARK: &[u8; 4] = b"GPWF";
const HEAD_BYTES: usize = 16;
/// A frame is written when it has so much: a reader needs as much memory.
const FRAME_FULL_BYTES: usize = 4 << 20;
/// A reader believes in no longer one.
const FRAME_MAX_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: [Entry<'_>; 7] = [
        Entry::Dump {
            at: Instant::from_ns(5),
            utc_ns: 6,
            all: true,
            whole: false,
        },
        Entry::Socket(1, &[2, 3]),
        Entry::Closed(4, &[]),
        Entry::Vanished(5, u64::MAX),
        Entry::Gap,
        Entry::Owner(0, 7, 8, "sshd"),
        Entry::Cgroup(9, "/user.slice"),
    ];

    fn packed() -> Vec<u8> {
        let mut bytes = Vec::new();
        ENTRIES.iter().for_each(|e| encode(e, &mut bytes));
        bytes
    }

    fn read(file: &[u8]) -> (usize, u64) {
        let mut reader = Reader::new(file).unwrap();
        let mut frames = 0;
        while let Some(frame) = reader.next_frame().unwrap() {
            assert!(entries(&frame).eq(ENTRIES));
            frames += 1;
        }
        (frames, reader.skipped())
    }

    fn file(frames: usize) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        (0..frames).for_each(|_| file.extend(frame(&packed()).unwrap()));
        file
    }

    #[test]
    fn entries_come_back_and_those_of_a_later_version_are_passed_over() {
        let mut bytes = packed();
        assert!(entries(&bytes).eq(ENTRIES));
        bytes.splice(0..0, [99, 1, 0, 0, 0, 7]);
        assert!(entries(&bytes).eq(ENTRIES));
        for length in 0..bytes.len() {
            assert!(entries(&bytes[..length]).count() < ENTRIES.len());
        }
    }

    #[test]
    fn a_file_cut_anywhere_loses_the_last_frame_only() {
        let whole = file(3);
        assert_eq!(read(&whole), (3, 0));
        let frame = (whole.len() - MAGIC.len()) / 3;
        for length in MAGIC.len()..whole.len() {
            let (frames, skipped) = read(&whole[..length]);
            assert_eq!(frames, (length - MAGIC.len()) / frame, "{length}");
            assert_eq!(skipped, ((length - MAGIC.len()) % frame) as u64);
        }
        // Somebody goes on behind what the crash cut.
        let mut torn = whole[..whole.len() - 7].to_vec();
        torn.extend(&file(1)[MAGIC.len()..]);
        assert_eq!(read(&torn).0, 3);
    }

    #[test]
    fn a_damaged_byte_costs_the_frame_that_has_it() {
        let whole = file(3);
        let frame = (whole.len() - MAGIC.len()) / 3;
        for at in MAGIC.len()..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            let (frames, skipped) = read(&damaged);
            assert_eq!(frames, 2, "{at}");
            assert!(skipped >= 1 && skipped <= frame as u64, "{at} {skipped}");
        }
        let _ = frame;
        assert!(Reader::new(&b"gpwatch2"[..]).is_err());
        assert!(Reader::new(&b"gp"[..]).is_err());
    }

    #[test]
    fn a_recorder_goes_on_at_the_end_of_a_recording_and_refuses_another_file() {
        let path = std::env::temp_dir().join(format!("goodput-watch-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        for _ in 0..2 {
            let mut recorder = Recorder::create(&path).unwrap();
            ENTRIES.iter().for_each(|e| recorder.put(e).unwrap());
            recorder.flush().unwrap();
            assert!(recorder.written() > 0);
        }
        assert_eq!(read(&std::fs::read(&path).unwrap()), (2, 0));
        std::fs::write(&path, b"something else").unwrap();
        assert!(Recorder::create(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
