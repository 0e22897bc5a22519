//! What runs a session on either side: threads, what they share, and what the user is told meanwhile.

mod basics;
mod carry;
mod contents;
pub mod disk;
pub mod early;
pub mod fetch;
pub mod gaps;
mod growth;
pub mod help;
mod options;
mod pace;
mod ranges;
pub mod receive;
mod seen;
pub mod send;
pub mod tune;
mod zeros;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::meeting::Meeting;
use crate::quic::Counts;
use crate::quic::counts::Series;
use thiserror::Error;
use units::Rate;
use wire::tcp_info::TcpInfo;

/// Why a session that nobody ended cannot go on: this host has nothing left to make links of, or somebody closed its meeting.
fn broken(meeting: &Meeting) -> Option<CopyError> {
    let closed = || CopyError::Link(io::ErrorKind::ConnectionAborted.into());
    match meeting.stranded() {
        Some(lack) => Some(CopyError::Here(lack)),
        None => meeting.is_over().then(closed),
    }
}

/// What a session came to, as far as it came.
#[derive(Debug, Default)]
pub struct Watch {
    /// Names that the source told.
    pub names: AtomicU64,
    /// Bytes in files that the source told, holes included.
    pub named_bytes: AtomicU64,
    /// Names that the source could not read: missing at the destination.
    pub unread: AtomicU64,
    /// Sockets, named pipes and devices at the source, which are skipped.
    pub specials: [AtomicU64; 3],
    /// Whether the source has told all.
    pub is_walked: AtomicBool,
    /// Files that the destination wants, and their bytes to be sent.
    pub wanted: AtomicU64,
    /// Bytes to be sent of wanted files, as far as known.
    pub wanted_bytes: AtomicU64,
    /// Bytes of data that were sent, those sent again included.
    pub sent_bytes: AtomicU64,
    /// Bytes of data that the destination confirmed.
    pub confirmed_bytes: AtomicU64,
    /// Of these, bytes that other hosts of a destination wrote.
    pub helped_bytes: AtomicU64,
    /// Files that stand under their names.
    pub placed: AtomicU64,
    /// Streams of blocks in use.
    pub streams: AtomicU64,
    /// Nanoseconds that threads spent reading, and writing, files.
    pub disk_ns: AtomicU64,
    /// Bytes of blocks that were read, or written, past the kernel's page cache.
    pub direct_bytes: AtomicU64,
    /// Nanoseconds that threads spent on sums.
    pub sum_ns: AtomicU64,
    /// Nanoseconds that threads spent in links: encryption and waiting for the other side.
    pub link_ns: AtomicU64,
    /// Nanoseconds that streams had nothing to do.
    pub idle_ns: AtomicU64,
    /// The destination has said that all is done, and only waits until the source has heard it.
    pub is_finished: AtomicBool,
    /// QUIC carried blocks when the session ended.
    pub is_quic: AtomicBool,
    /// CPU time, in nanoseconds, of the thread that moves QUIC's packets on this side.
    pub quic_cpu_ns: AtomicU64,
    stop: AtomicBool,
    /// Bits a second; 0 where none was set, the greatest for no limit.
    limit: AtomicU64,
    /// Bytes sent at which a source holds; 0 for never.
    hold_at: AtomicU64,
    notes: Mutex<Notes>,
    connections: Mutex<BTreeMap<u16, Connection>>,
    over_quic: Mutex<BTreeMap<u16, Series>>,
    pace: pace::Pace,
}

/// What a kernel knew of a stream's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Since when there is one for its stream, by the same clock.
    pub since_ns: u64,
    /// When, in nanoseconds by a clock of the sending side.
    pub at_ns: u64,
    /// What.
    pub info: TcpInfo,
}

/// What the user is to know.
#[derive(Debug, Default)]
struct Notes {
    all: Vec<Note>,
    more: u64,
}

/// One thing that the user is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Something of the tree was not copied, or not as it is.
    Skipped(String),
    /// Something was chosen, and why.
    Chosen(String),
}

/// Notes that are kept one by one; of more there is a count.
const NOTES_MOST: usize = 1_000;
/// Bytes of one note that are kept: a message of the far side may be longer than all that a user reads.
const NOTE_BYTES_MOST: usize = 4 << 10;

impl Watch {
    /// Has the session stop soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it shall stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Has a source hold once its streams have sent so many bytes: each of them finishes the frame that it has and begins no
    /// other one until this is called again (`None` for no such point) or the session is stopped. For tests, which stop a
    /// session at a known byte by it.
    pub fn hold_at(&self, sent_bytes: Option<NonZeroU64>) {
        let at = sent_bytes.map_or(0, NonZeroU64::get);
        self.hold_at.store(at, Ordering::Relaxed);
    }

    /// Whether a source begins no frame now ([`Watch::hold_at`]).
    pub(crate) fn is_held(&self) -> bool {
        let at = self.hold_at.load(Ordering::Relaxed);
        at != 0 && self.sent_bytes.load(Ordering::Relaxed) >= at
    }

    /// Sets what all streams together may send, in place of what the source's options say, now or while it runs; of a source.
    pub fn set_limit(&self, limit: Option<Rate>) {
        let bits = limit.map_or(u64::MAX, |rate| rate.as_bits_per_second().max(8));
        self.limit.store(bits, Ordering::Relaxed);
    }

    /// What was set by [`Watch::set_limit`]; without limit, the greatest rate there is.
    pub(crate) fn limit(&self) -> Option<Rate> {
        match self.limit.load(Ordering::Relaxed) {
            0 => None,
            bits => Some(Rate::from_bits_per_second(bits)),
        }
    }

    /// Keeps a note.
    pub fn note(&self, mut note: Note) {
        let (Note::Skipped(text) | Note::Chosen(text)) = &mut note;
        if text.len() > NOTE_BYTES_MOST {
            text.truncate(text.floor_char_boundary(NOTE_BYTES_MOST));
            text.shrink_to_fit();
        }
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        match notes.all.len() < NOTES_MOST {
            true => notes.all.push(note),
            false => notes.more += 1,
        }
    }

    /// What [`Watch::specials`] counts, now.
    pub(crate) fn specials(&self) -> [u64; 3] {
        self.specials
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Keeps what a source that is elsewhere counted of [`Watch::specials`].
    pub(crate) fn know_specials(&self, counts: [u64; 3]) {
        for (kept, count) in self.specials.iter().zip(counts) {
            kept.store(count, Ordering::Relaxed);
        }
    }

    /// Bytes of blocks that are still to come, as far as known.
    pub(crate) fn to_come(&self) -> u64 {
        let confirmed = self.confirmed_bytes.load(Ordering::Relaxed);
        self.wanted_bytes
            .load(Ordering::Relaxed)
            .saturating_sub(confirmed)
    }

    /// Counts bytes as confirmed, but no more than are wanted in all: they may have been before.
    pub(crate) fn confirm_some(&self, bytes: u64) {
        let wanted = self.wanted_bytes.load(Ordering::Relaxed);
        let more =
            |confirmed: u64| Some(confirmed.max(wanted.min(confirmed.saturating_add(bytes))));
        let all = &self.confirmed_bytes;
        let _ = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// So many bytes of wanted files need not come, or cannot.
    pub(crate) fn comes_not(&self, bytes: u64) {
        let less = |wanted: u64| Some(wanted.saturating_sub(bytes));
        let all = &self.wanted_bytes;
        let _ = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Notes what happened to the ways between the two sides.
    pub(crate) fn note_ways(&self, meeting: &Meeting) {
        for text in meeting.look_after_ways() {
            self.note(Note::Chosen(text));
        }
    }

    /// Notes what each way carried, where there were several.
    pub(crate) fn note_carried(&self, meeting: &Meeting) {
        let all = meeting.carried();
        if all.is_empty() {
            return;
        }
        let each = |way: &crate::ways::Carried| {
            let megabytes = way.bytes as f64 / 1e6;
            format!("{} {megabytes:.1} MB", way.name)
        };
        let each: Vec<_> = all.iter().map(each).collect();
        self.note(Note::Chosen(format!(
            "carried over each: {}",
            each.join(", ")
        )));
    }

    /// The notes from the `from`th on, and how many more there were than are kept.
    pub fn notes(&self, from: usize) -> (Vec<Note>, u64) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        (
            notes.all.get(from..).unwrap_or_default().to_vec(),
            notes.more,
        )
    }

    /// What the sending side's kernel knew last of each stream's connection, by the stream's number: of a source a fifth of
    /// a second old at most, elsewhere what [`Watch::know_connection`] was told.
    pub fn connections(&self) -> BTreeMap<u16, Connection> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps what a kernel says of a stream's connection. Streams beyond those that a session has are passed over.
    pub fn know_connection(&self, stream: u16, now: Connection) {
        if stream < crate::link::STREAMS_MOST {
            let mut all = self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let known = all.entry(stream).or_insert(now);
            let since_ns = known.since_ns.min(now.since_ns);
            *known = Connection { since_ns, ..now };
        }
    }

    /// What the sending side counts of each stream's connections over QUIC, by the stream's number; as old as
    /// [`Watch::connections`].
    pub fn over_quic(&self) -> BTreeMap<u16, Counts> {
        let all = self
            .over_quic
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(n, series)| (*n, series.total())).collect()
    }

    /// Keeps what a side counts of a stream's connection over QUIC, as [`Watch::know_connection`] does of the kernel's.
    pub fn know_over_quic(&self, stream: u16, counts: Counts) {
        // Nothing was counted before its thread's first turn.
        if stream < crate::link::STREAMS_MOST && counts.at_ns > 0 {
            let mut all = self
                .over_quic
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.entry(stream).or_default().take(counts);
        }
    }

    /// Bits a second that arrived between the first fifth of all bytes and the last fifth: what is left out is how a path is
    /// found and how files are ended. `None` where that took less than 0.5 s.
    pub fn steady(&self) -> Option<u64> {
        self.pace.steady()
    }

    /// Notes when what is confirmed was.
    pub(crate) fn mark(&self) {
        let bytes = self.confirmed_bytes.load(Ordering::Relaxed);
        self.pace.mark(Instant::now(), bytes);
    }

    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// What was added and should not have been.
    pub(crate) fn less(counter: &AtomicU64, n: u64) {
        counter.fetch_sub(n, Ordering::Relaxed);
    }
}

/// Why a session ended before all was done. What was written stays for the next attempt.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The two sides could not meet, or not again.
    #[error("the far side cannot be reached: {0}")]
    Link(io::Error),
    /// The far side gave up.
    #[error("the far side: {0}")]
    Far(String),
    /// The far side said what it must not.
    #[error("the far side does not keep to the protocol: {0}")]
    Protocol(String),
    /// The disk here is full, or something like it.
    #[error("{0}")]
    Here(String),
    /// The destination, which is here, cannot be written in. Nothing was copied.
    #[error("{0}")]
    Refused(String),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_letters() {
        let watch = Watch::default();
        // Two bytes each, after one of one.
        let text = format!("x{}", "é".repeat(NOTE_BYTES_MOST));
        watch.note(Note::Skipped(text));
        let (notes, _) = watch.notes(0);
        let cut = format!("x{}", "é".repeat(NOTE_BYTES_MOST / 2 - 1));
        assert_eq!(notes, [Note::Skipped(cut)]);
    }
}
