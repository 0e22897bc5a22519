//! Packets of one capture to the tracker, and what it hands over to the ranking.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use capture::file::Kinds;
use explain::passive;
use explain::trace::{Captured, Connection, Limits, Tracker};
use report::model::Trace;
use units::Instant;
use wire::segment::{Decoded, Segment};

use super::{Judged, Ranking};

/// Where packets go.
pub(super) struct Feed<'a> {
    tracker: Tracker<Box<dyn FnMut(Connection) + 'a>>,
    /// Also known to the tracker's sink, which runs in between.
    begins: &'a Cell<Option<u64>>,
    last: u64,
    frames: u64,
    packets: u64,
    batch: Vec<Captured>,
}

/// What was fed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fed {
    /// Packets of all kinds.
    pub(super) frames: u64,
    /// Time of the first that has one.
    pub(super) begins: Option<u64>,
    /// The latest time.
    pub(super) last: u64,
}

impl fmt::Debug for Feed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

impl Feed<'_> {
    /// A packet, whatever it is.
    #[inline]
    pub(super) fn take(
        &mut self,
        time_ns: u64,
        frame: u64,
        interface: u32,
        decoded: Decoded,
        segment: &Segment,
    ) {
        self.frames += 1;
        if self.begins.get().is_none() && time_ns > 0 {
            self.begins.set(Some(time_ns));
        }
        self.last = self.last.max(time_ns);
        if decoded != Decoded::Tcp {
            return;
        }
        self.packets += 1;
        self.batch.push(Captured {
            time: Instant::from_ns(time_ns),
            frame,
            interface,
            segment: *segment,
        });
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    /// Nothing waits any longer.
    pub(super) fn flush(&mut self) {
        self.tracker.take_all(&self.batch);
        self.batch.clear();
    }

    /// Hands over what goes on; packets, those of TCP, and the latest time.
    fn end(mut self) -> (u64, u64, u64) {
        self.flush();
        self.tracker.finish();
        (self.frames, self.packets, self.last)
    }

    /// Connections until now, those that have ended and those that go on.
    pub(super) fn connections(&self) -> u64 {
        self.tracker.counts().connections
    }
}

/// Lets `source` feed the packets of capture `number`, and adds what they were to `trace` and `best`.
pub(super) fn analyse(
    number: u32,
    trace: &mut Trace,
    best: &mut Ranking,
    source: impl FnOnce(&mut Feed<'_>),
) -> Fed {
    let begins: Cell<Option<u64>> = Cell::new(None);
    let (mut seen, mut with_data, mut payload, mut lost) = (0_u64, 0_u64, 0_u64, 0_u64);
    let limits = Limits {
        seed: RandomState::new().hash_one(number),
        ..Limits::default()
    };
    let take = |connection: Connection| {
        seen += 1;
        let Some(passive) = passive::judge(&connection) else {
            return;
        };
        with_data += 1;
        payload += connection.sides.iter().map(|s| s.unique_bytes).sum::<u64>();
        lost += passive.lost.as_u64();
        best.add(Judged {
            file: number,
            begins: Instant::from_ns(begins.get().unwrap_or(0)),
            connection,
            passive,
        });
    };
    let mut feed = Feed {
        tracker: Tracker::new(limits, Box::new(take)),
        begins: &begins,
        last: 0,
        frames: 0,
        packets: 0,
        batch: Vec::with_capacity(BATCH),
    };
    source(&mut feed);
    let (frames, packets, last) = feed.end();
    trace.packets += frames;
    trace.tcp_packets += packets;
    trace.connections_seen += seen;
    trace.connections_with_data += with_data;
    trace.payload_bytes += payload;
    trace.lost_bytes += lost;
    Fed {
        frames,
        begins: begins.get(),
        last,
    }
}

/// Packets whose headers say nothing that can be used.
pub(super) const fn unreadable(kinds: &Kinds) -> u64 {
    kinds.cut + kinds.malformed + kinds.unknown_link
}

/// Segments that the tracker is given at a time.
const BATCH: usize = 256;
