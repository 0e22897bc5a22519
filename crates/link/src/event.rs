//! What became of each segment, told to a log as it is decided.

use units::Instant;

use crate::train::{Spacing, Train};

/// One decision on a run of segments that share their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the stage in its pipeline, from 0; the number of stages for the line's end.
    pub stage: u8,
    /// The segments; their times are those at which they reached the stage.
    pub train: Train,
    /// What was decided.
    pub decision: Decision,
}

/// A stage's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Took its place in a queue; bytes and packets with it in.
    Queued {
        /// Bytes after the last segment of the run was taken in.
        queue_bytes: u64,
        /// Packets likewise.
        queue_packets: u32,
    },
    /// Its turn came: the last bit of the run's first segment leaves at `departs`.
    Served {
        /// When the run's first segment will have left.
        departs: Instant,
        /// How the others follow.
        spacing: Spacing,
        /// Bytes that still wait behind the run.
        queue_bytes: u64,
        /// Packets likewise.
        queue_packets: u32,
    },
    /// Marked in place of being dropped (RFC 3168).
    Marked {
        /// Bytes that waited.
        queue_bytes: u64,
        /// Packets likewise.
        queue_packets: u32,
    },
    /// Is lost.
    Dropped {
        /// Why.
        cause: DropCause,
        /// Bytes that waited or were being sent when the run's first segment was decided on; 0 where no queue decided.
        queue_bytes: u64,
        /// Packets likewise.
        queue_packets: u32,
        /// What the queue might hold at that moment, bytes; 0 where that does not change.
        limit_bytes: u64,
    },
    /// A second copy goes on its way as well.
    Duplicated,
    /// A bit will be flipped; the train carries which.
    Corrupted,
    /// Met another frame on a shared medium; will be sent again.
    Collided {
        /// Which attempt it was, from 1.
        attempt: u32,
    },
    /// Left the pipeline; will be handed out at `departs`.
    Scheduled {
        /// When the run's first segment is due.
        departs: Instant,
    },
}

/// Why a segment is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum DropCause {
    /// Independent random loss.
    Random = 32,
    /// Loss in bursts (Gilbert-Elliott).
    Burst = 33,
    /// Every n-th.
    Periodic = 34,
    /// Named by its number.
    Listed = 35,
    /// The queue had no room.
    QueueFull = 36,
    /// An active queue management thought it best.
    Early = 37,
    /// Above the policer's rate.
    Policed = 38,
    /// The link was down.
    Outage = 39,
    /// Arrived damaged (check sequence) since the receiver, half duplex, was sending itself.
    CollisionFcs = 40,
    /// A rule said so.
    Filtered = 41,
    /// Larger than the link carries, and nobody is told.
    TooBig = 42,
    /// A middlebox did not like it.
    Middlebox = 43,
    /// Its time to live ran out at a router.
    TtlExceeded = 44,
    /// A router or switch knew no way.
    NoRoute = 45,
    /// The lab had no memory for it: the lab's fault, not the path's.
    LabMemory = 46,
    /// Above the rate that one flow is allowed.
    FlowCap = 47,
    /// The host or box could not handle so many packets a second.
    Budget = 48,
    /// Beyond its queue's part of a buffer that several queues share.
    SharedBuffer = 49,
    /// Collided after the slot time, when no other end of half duplex would have begun to send.
    LateCollision = 50,
    /// Collided at every attempt.
    ExcessiveCollisions = 51,
}

impl Decision {
    /// A loss that no queue decided.
    pub const fn lost(cause: DropCause) -> Self {
        Self::Dropped {
            cause,
            queue_bytes: 0,
            queue_packets: 0,
            limit_bytes: 0,
        }
    }

    /// The decision's number in logs.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Queued { .. } => 1,
            Self::Served { .. } => 2,
            Self::Marked { .. } => 3,
            Self::Scheduled { .. } => 4,
            Self::Duplicated => 6,
            Self::Corrupted => 7,
            Self::Collided { .. } => 13,
            Self::Dropped { cause, .. } => *cause as u8,
        }
    }
}

/// Takes events. Implementations must not block: they are called in the data path.
pub trait Log {
    /// One decision.
    fn on_event(&mut self, event: &Event);

    /// False: segments that pass an empty queue one after the other may be told of as one run, with
    /// the queue that each of them found.
    fn wants_each(&self) -> bool {
        true
    }
}

/// Counts decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments lost on purpose outside of queues: at random, in bursts, policed, filtered, to
    /// collisions.
    pub lost: u64,
    /// Segments dropped at a full queue, or by a buffer that it shares.
    pub queue_full: u64,
    /// Segments dropped early by an active queue management.
    pub early: u64,
    /// Segments marked.
    pub marked: u64,
    /// Segments that took a place in a queue.
    pub queued: u64,
    /// Segments that made it through the pipeline.
    pub scheduled: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Segments with a bit flipped.
    pub corrupted: u64,
    /// Attempts to send that ended in a collision, the last of a lost segment included.
    pub collisions: u64,
    /// Of `lost`, those that collided after the slot time.
    pub late_collisions: u64,
    /// Of `lost`, those that collided at every attempt.
    pub excessive_collisions: u64,
    /// Of `lost`, those that arrived damaged since their receiver was sending.
    pub collision_fcs: u64,
    /// Most bytes in a queue.
    pub queue_bytes_max: u64,
}

impl Counters {
    /// Both together; of the largest queue, the larger.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.lost += other.lost;
        self.queue_full += other.queue_full;
        self.early += other.early;
        self.marked += other.marked;
        self.queued += other.queued;
        self.scheduled += other.scheduled;
        self.duplicated += other.duplicated;
        self.corrupted += other.corrupted;
        self.collisions += other.collisions;
        self.late_collisions += other.late_collisions;
        self.excessive_collisions += other.excessive_collisions;
        self.collision_fcs += other.collision_fcs;
        self.queue_bytes_max = self.queue_bytes_max.max(other.queue_bytes_max);
        self
    }

    fn on_drop(&mut self, cause: DropCause, n: u64) {
        match cause {
            DropCause::QueueFull | DropCause::SharedBuffer => self.queue_full += n,
            DropCause::Early => self.early += n,
            DropCause::LateCollision => {
                self.late_collisions += n;
                self.collisions += n;
                self.lost += n;
            }
            DropCause::ExcessiveCollisions => {
                self.excessive_collisions += n;
                self.collisions += n;
                self.lost += n;
            }
            DropCause::CollisionFcs => {
                self.collision_fcs += n;
                self.lost += n;
            }
            _ => self.lost += n,
        }
    }
}

impl Log for Counters {
    fn on_event(&mut self, event: &Event) {
        let n = u64::from(event.train.count);
        match event.decision {
            Decision::Dropped { cause, .. } => self.on_drop(cause, n),
            Decision::Collided { .. } => self.collisions += n,
            Decision::Queued { queue_bytes, .. } => {
                self.queued += n;
                self.queue_bytes_max = self.queue_bytes_max.max(queue_bytes);
            }
            Decision::Marked { .. } => self.marked += n,
            Decision::Duplicated => self.duplicated += n,
            Decision::Corrupted => self.corrupted += n,
            Decision::Scheduled { .. } => self.scheduled += n,
            Decision::Served { .. } => {}
        }
    }

    fn wants_each(&self) -> bool {
        false
    }
}

impl Log for Vec<Event> {
    fn on_event(&mut self, event: &Event) {
        self.push(*event);
    }
}
