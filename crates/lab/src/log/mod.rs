//! The packet log: what became of each frame, written beside the data path and read back.
//!
//! The forwarding thread holds a [`Logger`]. It copies frames and decisions into chunks of memory
//! that were set aside at the start, and hands full ones to a thread that writes the file (the
//! layout is that of [`link::record`], told for users in docs/lab-log.md). Nothing is allocated and
//! nothing waits: while the disk is behind by all chunks, rows are counted as lost instead.
//!
//! [`convert`] turns a log into CSV, Parquet or pcapng; [`Summary`] draws from it what a report
//! shows; [`Streams`] tells how parallel streams fared at a queue; [`Segments`] has its TCP segments in the order of time.

mod contents;
pub mod convert;
mod file;
mod headers;
mod legend;
mod parquet;
mod segments;
mod streams;
mod summary;

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use link::record::{
    self, BLOCK_HEADER_BYTES, End, FRAME_BLOCK_BYTES_MAX, FrameRecord, ROW_BYTES, Row,
};
use sys::threads;

pub use convert::{Converted, Filter};
pub use file::{direction_number, legend_of, written};
pub use legend::{Legend, LinkLegend, NODE_STAGE};
pub use segments::{Fate, Reason, Seen, Segments};
pub use streams::{Sections, Stream, Streams};
pub use summary::{
    ARRIVALS_MAX, Arrival, BINS_MAX, Depth, DropSeries, FlowAtQueue, LinkSummary, QueueSummary,
    SERIES_MAX, Summary,
};

/// The forwarding thread's end of the log. Dropping it hands over what is left.
#[derive(Debug)]
pub struct Logger {
    /// The chunk that is being filled; `None` while the writer has them all.
    chunk: Option<Chunk>,
    full: SyncSender<Message>,
    empty: Receiver<Chunk>,
    lost_rows: u64,
    lost_frames: u64,
}

/// The writing thread. Dropped without [`Self::finish`], it goes on until the logger is gone.
#[derive(Debug)]
#[must_use = "finish() says whether the log was written"]
pub struct LogWriter {
    thread: JoinHandle<io::Result<End>>,
}

impl Logger {
    /// Makes the file, which must not exist yet and which its owner alone may read (mode 0600),
    /// writes the legend and starts the writing thread.
    ///
    /// # Errors
    /// The file exists or cannot be written, or there can be no thread.
    pub fn create(path: &Path, legend: &Legend) -> io::Result<(Self, LogWriter)> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(&legend.head()?)?;
        Self::start(file, CHUNKS)
    }

    /// Starts the thread that writes to `file`, with `chunks` chunks of memory.
    fn start<W: Write + Send + 'static>(file: W, chunks: usize) -> io::Result<(Self, LogWriter)> {
        // Room for every chunk there is and for the last message: sending never waits.
        let (full, to_write) = sync_channel(chunks + 1);
        let (written, empty) = sync_channel(chunks);
        for _ in 1..chunks {
            // There is room and the receiver lives.
            let _ = written.try_send(Chunk::new());
        }
        let thread = threads::spawn("goodput-log", move || {
            write_chunks(file, &to_write, &written)
        })?;
        let logger = Self {
            chunk: Some(Chunk::new()),
            full,
            empty,
            lost_rows: 0,
            lost_frames: 0,
        };
        Ok((logger, LogWriter { thread }))
    }

    /// Logs a frame at ingress; before the decisions on it, so that an interrupted log has it.
    pub fn frame(&mut self, frame: &FrameRecord<'_>) {
        match self.room(FRAME_BLOCK_BYTES_MAX) {
            Some(chunk) => chunk.push_frame(frame),
            None => self.lost_frames += 1,
        }
    }

    /// Logs a decision.
    pub fn row(&mut self, row: &Row) {
        match self.room(BLOCK_HEADER_BYTES + ROW_BYTES) {
            Some(chunk) => chunk.push_row(row),
            None => self.lost_rows += 1,
        }
    }

    /// Hands over what there is, so that a killed lab leaves it on disk. For idle moments; does
    /// nothing when there is no chunk to go on with.
    pub fn flush(&mut self) {
        if self.chunk.as_ref().is_some_and(|chunk| chunk.used > 0)
            && let Ok(next) = self.empty.try_recv()
        {
            self.hand_over();
            self.chunk = Some(next);
        }
    }

    /// Rows and frames lost so far since the disk was behind.
    pub const fn lost(&self) -> (u64, u64) {
        (self.lost_rows, self.lost_frames)
    }

    /// A chunk with room for `bytes`.
    fn room(&mut self, bytes: usize) -> Option<&mut Chunk> {
        if self.chunk.as_ref().is_none_or(|chunk| chunk.room() < bytes) {
            self.hand_over();
            self.chunk = self.empty.try_recv().ok();
        }
        self.chunk.as_mut()
    }

    /// Gives the chunk to the writer. Where there is no writer any more, for want of disk space
    /// say, what is in it is lost.
    fn hand_over(&mut self) {
        let Some(chunk) = self.chunk.take() else {
            return;
        };
        let (rows, frames) = (chunk.rows, chunk.frames);
        if self.full.try_send(Message::Chunk(chunk)).is_err() {
            self.lost_rows += rows;
            self.lost_frames += frames;
        }
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        self.hand_over();
        // Fails when the writer has failed, which `finish` tells.
        let _ = self.full.try_send(Message::Lost {
            rows: self.lost_rows,
            frames: self.lost_frames,
        });
    }
}

impl LogWriter {
    /// Waits until the [`Logger`] is dropped and all that it logged is written, and says how much
    /// that was.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn finish(self) -> io::Result<End> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the log's writing thread panicked")))
    }
}

/// What the logger tells the writer.
#[derive(Debug)]
enum Message {
    Chunk(Chunk),
    /// The last message.
    Lost {
        rows: u64,
        frames: u64,
    },
}

/// The writing thread.
fn write_chunks<W: Write>(
    mut file: W,
    full: &Receiver<Message>,
    empty: &SyncSender<Chunk>,
) -> io::Result<End> {
    let mut end = End::default();
    while let Ok(message) = full.recv() {
        match message {
            Message::Chunk(mut chunk) => {
                file.write_all(&chunk.bytes[..chunk.used])?;
                end.rows += chunk.rows;
                end.frames += chunk.frames;
                chunk.clear();
                // Fails when the logger is gone and needs no more.
                let _ = empty.try_send(chunk);
            }
            Message::Lost { rows, frames } => {
                end.lost_rows = rows;
                end.lost_frames = frames;
            }
        }
    }
    file.write_all(&end.encode())?;
    file.flush()?;
    Ok(end)
}

/// Whole blocks, one after the other. The last block of decisions grows while it is the last.
struct Chunk {
    bytes: Box<[u8]>,
    used: usize,
    /// Where the block of decisions begins that rows are added to.
    open: Option<usize>,
    rows: u64,
    frames: u64,
}

impl Chunk {
    fn new() -> Self {
        Self {
            // Not zeros: these pages must exist now, a page fault later would be a late frame.
            bytes: vec![1; CHUNK_BYTES].into_boxed_slice(),
            used: 0,
            open: None,
            rows: 0,
            frames: 0,
        }
    }

    fn room(&self) -> usize {
        self.bytes.len() - self.used
    }

    fn clear(&mut self) {
        self.used = 0;
        self.open = None;
        self.rows = 0;
        self.frames = 0;
    }

    fn push_frame(&mut self, frame: &FrameRecord<'_>) {
        let Some(place) = self.bytes[self.used..].first_chunk_mut() else {
            return;
        };
        self.used += frame.encode(place);
        self.open = None;
        self.frames += 1;
    }

    fn push_row(&mut self, row: &Row) {
        let start = self.open.unwrap_or(self.used);
        let row_at = match self.open {
            Some(_) => self.used,
            None => start + BLOCK_HEADER_BYTES,
        };
        let Some(place) = self.bytes[row_at..].first_chunk_mut() else {
            return;
        };
        row.encode(place);
        self.used = row_at + ROW_BYTES;
        self.open = Some(start);
        self.rows += 1;
        // A chunk is far smaller than 4 GiB.
        let payload = u32::try_from(self.used - start - BLOCK_HEADER_BYTES).unwrap_or(0);
        let header = record::block_header(record::DECISIONS, payload);
        self.bytes[start..start + BLOCK_HEADER_BYTES].copy_from_slice(&header);
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("used", &self.used)
            .field("rows", &self.rows)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

/// Bytes of a chunk: some 14,000 decisions, a few milliseconds of writing to a slow disk.
const CHUNK_BYTES: usize = 1 << 20;
/// Chunks: 64 MiB bridge half a second of a stalled disk at two million decisions a second.
const CHUNKS: usize = 64;

const _: () = assert!(
    CHUNK_BYTES >= FRAME_BLOCK_BYTES_MAX && CHUNK_BYTES >= BLOCK_HEADER_BYTES + ROW_BYTES,
    "everything fits an empty chunk"
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// A disk that takes nothing until the sender is dropped.
    struct Stalled(Receiver<()>);

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A disk without space.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stalled(chunks: usize) -> (Sender<()>, Logger, LogWriter) {
        let (release, stall) = channel();
        let (logger, writer) = Logger::start(Stalled(stall), chunks).unwrap();
        (release, logger, writer)
    }

    #[test]
    fn a_stalled_disk_costs_rows_and_no_time() {
        let (release, mut logger, writer) = stalled(2);
        for _ in 0..2 * ROWS_PER_CHUNK {
            logger.row(&Row::default());
        }
        assert_eq!(logger.lost(), (0, 0), "two chunks hold as much");
        for _ in 0..5 {
            logger.row(&Row::default());
        }
        logger.frame(&FrameRecord::default());
        assert_eq!(logger.lost(), (5, 1));

        drop(release);
        // Goes on as soon as a chunk comes back.
        let mut tried = 0;
        loop {
            let (before, _) = logger.lost();
            logger.row(&Row::default());
            tried += 1;
            if logger.lost().0 == before {
                break;
            }
            std::thread::yield_now();
        }
        let (lost_rows, _) = logger.lost();
        drop(logger);
        let end = writer.finish().unwrap();
        assert_eq!(end.rows + lost_rows, 2 * ROWS_PER_CHUNK + 5 + tried);
        assert_eq!(
            (end.lost_rows, end.frames, end.lost_frames),
            (lost_rows, 0, 1)
        );
    }

    #[test]
    fn a_flush_without_a_spare_chunk_keeps_the_one_in_use() {
        let (release, mut logger, writer) = stalled(2);
        logger.row(&Row::default());
        logger.flush();
        logger.row(&Row::default());
        logger.flush();
        logger.row(&Row::default());
        assert_eq!(logger.lost(), (0, 0));
        drop((release, logger));
        assert_eq!(writer.finish().unwrap().rows, 3);
    }

    #[test]
    fn a_full_disk_is_told_at_the_end() {
        let (mut logger, writer) = Logger::start(Full, 2).unwrap();
        for _ in 0..4 * ROWS_PER_CHUNK {
            logger.row(&Row::default());
        }
        drop(logger);
        assert_eq!(
            writer.finish().unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
    }

    const ROWS_PER_CHUNK: u64 = ((CHUNK_BYTES - BLOCK_HEADER_BYTES) / ROW_BYTES) as u64;
}
