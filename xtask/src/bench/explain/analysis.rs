//! The analysis of a capture as `goodput explain` does it, without what comes of it.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use capture::crew::{Crew, Shard};
use capture::file::{self, End};
use explain::passive;
use explain::trace::{Batch, Captured, Connection, Limits, SHARDS, Split, Tracker};
use units::Instant;
use wire::segment::Decoded;

/// Takes connections that have ended.
type Sink = Box<dyn FnMut(Connection) + Send>;

/// One tracker.
struct Part(Option<Tracker<Sink>>);

impl Part {
    fn new(ended: &Arc<AtomicU64>) -> Self {
        let ended = Arc::clone(ended);
        let sink = move |connection: Connection| {
            black_box(passive::weigh(&connection));
            ended.fetch_add(1, Ordering::Relaxed);
        };
        let limits = Limits::default().of_shard();
        Self(Some(Tracker::new(limits, Box::new(sink))))
    }
}

impl Shard for Part {
    type Batch = Batch;

    fn take(&mut self, batch: &mut Batch) {
        if let Some(tracker) = &mut self.0 {
            tracker.take_batch(batch);
        }
    }

    fn finish(&mut self) {
        if let Some(mut tracker) = self.0.take() {
            tracker.finish();
        }
    }
}

/// Reads a capture and weighs its connections on so many threads; how many connections.
pub(super) fn analyse(path: &Path, threads: usize) -> anyhow::Result<u64> {
    let mut capture = file::open(path)?;
    let ended = Arc::new(AtomicU64::new(0));
    let parts = (0..SHARDS).map(|_| Part::new(&ended)).collect();
    let mut crew: Crew<Part> = Crew::new(parts, threads)?;
    let mut split = Split::new();
    capture.for_each_segment(|packet, decoded, segment| {
        if decoded == Decoded::Tcp {
            let captured = Captured {
                time: Instant::from_ns(packet.time_ns),
                frame: packet.frame,
                interface: packet.interface,
                segment: *segment,
            };
            split.put(&captured, &mut |n, batch| {
                crew.give(n, batch).unwrap_or_default()
            });
        }
        ControlFlow::Continue(())
    });
    split.flush(|n, batch| crew.give(n, batch).unwrap_or_default());
    crew.finish();
    ensure!(
        matches!(capture.end(), Some(End::Whole)),
        "{}: {:?}",
        path.display(),
        capture.end()
    );
    Ok(ended.load(Ordering::Relaxed))
}
