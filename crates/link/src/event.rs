//! What became of each segment, told to a log as it is decided.

use units::{Duration, Instant};

use crate::train::Train;

/// One decision on a run of segments that share their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The segments; their times are those at which they reached the stage.
    pub train: Train,
    /// What was decided.
    pub decision: Decision,
}

/// A stage's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Lost at random.
    Lost,
    /// The queue had no room.
    QueueFull {
        /// Bytes that waited or were being sent when the first segment came.
        queue_bytes: u64,
        /// Packets likewise.
        queue_packets: u32,
    },
    /// Took its place in the queue; bytes and packets with it in.
    Queued {
        /// Bytes after the last segment of the run was taken in.
        queue_bytes: u64,
        /// Packets likewise.
        queue_packets: u32,
        /// When the run's first segment will have left.
        departs: Instant,
    },
    /// Left the pipeline; will be handed out at `departs`.
    Scheduled {
        /// When the run's first segment is due.
        departs: Instant,
        /// What the whole pipeline added to that segment.
        delay: Duration,
    },
}

/// Takes events. Implementations must not block: they are called in the data path.
pub trait Log {
    /// One decision.
    fn on_event(&mut self, event: &Event);
}

/// Counts decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments lost at random.
    pub lost: u64,
    /// Segments dropped at a full queue.
    pub queue_full: u64,
    /// Segments that took a place in a queue.
    pub queued: u64,
    /// Segments that made it through the pipeline.
    pub scheduled: u64,
    /// Most bytes in a queue.
    pub queue_bytes_max: u64,
}

impl Log for Counters {
    fn on_event(&mut self, event: &Event) {
        let n = u64::from(event.train.count);
        match event.decision {
            Decision::Lost => self.lost += n,
            Decision::QueueFull { .. } => self.queue_full += n,
            Decision::Queued { queue_bytes, .. } => {
                self.queued += n;
                self.queue_bytes_max = self.queue_bytes_max.max(queue_bytes);
            }
            Decision::Scheduled { .. } => self.scheduled += n,
        }
    }
}

impl Log for Vec<Event> {
    fn on_event(&mut self, event: &Event) {
        self.push(*event);
    }
}
