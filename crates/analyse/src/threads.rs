//! Connections analysed on several threads: one reads and decodes, and all of them analyse.
//!
//! What is found is the same whatever the number of threads: [`Split`] says why.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use capture::crew::{Crew, Shard};
use explain::passive;
use explain::trace::{Batch, Captured, Connection, Counts, Limits, SHARDS, Split, Tracker};

use crate::ranking::Ranking;
use crate::tables::Tables;
use fault::Failure;

/// An analysis of one capture.
pub(crate) struct Analysis {
    split: Split,
    crew: Crew<Part>,
    found: Arc<Mutex<Found>>,
}

/// What the connections of a capture came to.
#[derive(Default)]
pub(crate) struct Found {
    /// TCP connections.
    pub(crate) seen: u64,
    /// Of these, with payload.
    pub(crate) with_data: u64,
    /// Payload of all.
    pub(crate) payload_bytes: u64,
    /// What they would have carried more.
    pub(crate) lost_bytes: u64,
    /// What the trackers did.
    pub(crate) counts: Counts,
    /// Connections of each tracker until its last batch.
    so_far: [u64; SHARDS],
    /// Those that lost most.
    pub(crate) best: Ranking,
}

/// Takes connections that have ended.
type Sink = Box<dyn FnMut(Connection) + Send>;

/// One tracker, and what it found.
struct Part {
    /// `None` when it has come to its end.
    tracker: Option<Tracker<Sink>>,
    number: usize,
    found: Arc<Mutex<Found>>,
}

/// Threads for an analysis: as many as were asked for, or as there are CPUs, up to a bound.
pub(crate) fn count(asked: Option<usize>) -> usize {
    let free = || thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX));
    asked.unwrap_or_else(free)
}

impl Analysis {
    /// Of the capture with this number; `best` are those kept of the captures before.
    pub(crate) fn new(
        threads: usize,
        limits: Limits,
        file: u32,
        best: Ranking,
    ) -> Result<Self, Failure> {
        let tables = best.tables.clone();
        let found = Arc::new(Mutex::new(Found {
            best,
            ..Found::default()
        }));
        let parts =
            (0..SHARDS).map(|n| Part::new(n, limits.of_shard(), file, &found, tables.clone()));
        Ok(Self {
            split: Split::new(),
            crew: Crew::new(parts.collect(), threads).map_err(Failure::here)?,
            found,
        })
    }

    /// Takes the next TCP packet.
    #[inline]
    pub(crate) fn take(&mut self, packet: &Captured) {
        let crew = &mut self.crew;
        self.split.put(packet, &mut |n, batch| {
            crew.give(n, batch).unwrap_or_default()
        });
    }

    /// Gives all that was taken to the trackers.
    pub(crate) fn flush(&mut self) {
        let crew = &mut self.crew;
        self.split
            .flush(|n, batch| crew.give(n, batch).unwrap_or_default());
    }

    /// Connections in what trackers have looked at.
    pub(crate) fn connections(&self) -> u64 {
        locked(&self.found).so_far.iter().sum()
    }

    /// Waits until all that was taken is analysed, and ends all connections.
    pub(crate) fn finish(self) -> Found {
        let Self {
            mut split,
            mut crew,
            found,
        } = self;
        split.flush(|n, batch| crew.give(n, batch).unwrap_or_default());
        crew.finish();
        mem::take(&mut locked(&found))
    }
}

impl Part {
    fn new(
        number: usize,
        limits: Limits,
        file: u32,
        found: &Arc<Mutex<Found>>,
        tables: Option<Tables>,
    ) -> Self {
        let to = Arc::clone(found);
        let sink = move |connection: Connection| {
            if let Some(tables) = &tables {
                tables.take(file, &connection);
            }
            let weight = passive::weigh(&connection);
            let mut found = locked(&to);
            found.seen += 1;
            let Some(weight) = weight else {
                found.best.unmade.add(&connection);
                return;
            };
            found.with_data += 1;
            let payload = connection.sides.iter().map(|s| s.unique_bytes);
            found.payload_bytes += payload.sum::<u64>();
            found.lost_bytes += weight.lost.as_u64();
            found.best.add(file, connection, weight);
        };
        Self {
            tracker: Some(Tracker::new(limits, Box::new(sink))),
            number,
            found: Arc::clone(found),
        }
    }
}

impl Shard for Part {
    type Batch = Batch;

    fn take(&mut self, batch: &mut Batch) {
        if let Some(tracker) = &mut self.tracker {
            tracker.take_batch(batch);
            locked(&self.found).so_far[self.number] = tracker.counts().connections;
        }
    }

    fn finish(&mut self) {
        if let Some(mut tracker) = self.tracker.take() {
            tracker.finish();
            locked(&self.found).counts += tracker.counts();
        }
    }
}

/// A panic while it was locked ends the command anyway.
fn locked(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who reads and decodes keeps no more than so many busy with analyses.
const THREADS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use units::Instant;
    use wire::segment::Segment;
    use wire::tcp::Flags;

    use super::*;

    /// Connections of several packets each, more of them than are kept.
    fn packets() -> impl Iterator<Item = Captured> {
        (0..60_000_u64).map(|n| {
            let (flow, turn) = (n % 1_000, n / 1_000);
            let mut segment = Segment {
                sequence: u32::try_from(1 + turn / 2 * 1_000).unwrap(),
                acknowledgment: 1,
                flags: Flags::ACK,
                payload_bytes: 1_000,
                ..Segment::default()
            };
            if turn % 2 == 1 {
                let next = segment.sequence + 1_000;
                segment = Segment {
                    from: 1,
                    sequence: 1,
                    acknowledgment: next,
                    payload_bytes: 0,
                    ..segment
                };
            }
            segment.flow.ports = [u16::try_from(flow).unwrap(), 2_000];
            Captured {
                time: Instant::from_ns(1_000_000_000 + n * (1 + flow % 7) * 50_000),
                frame: n + 1,
                interface: 0,
                segment,
            }
        })
    }

    #[test]
    fn any_number_of_threads_finds_the_same_in_the_same_order() {
        let found = [1, 2, 3].map(|threads| {
            let limits = Limits::default();
            let mut analysis = Analysis::new(threads, limits, 0, Ranking::default()).unwrap();
            packets().for_each(|packet| analysis.take(&packet));
            let found = analysis.finish();
            let sums = (
                found.seen,
                found.with_data,
                found.payload_bytes,
                found.lost_bytes,
                found.counts,
            );
            let best: Vec<_> = found
                .best
                .into_sorted()
                .into_iter()
                .map(|judged| (judged.connection, judged.passive))
                .collect();
            (sums, best)
        });
        assert_eq!(found[0].0.0, 1_000);
        assert_eq!(found[0].0.2, 30_000_000);
        assert_eq!(found[0].1.len(), 200);
        assert!(found[0] == found[1] && found[0] == found[2]);
    }
}
