//! What a link does to frames: queues, servers, losses, delays, and pipelines of them.
//!
//! Pure state machines: time comes in as `now`, randomness from a seed given to the constructor, no
//! clock, no I/O and, once running, no allocation per packet. The lab drives them in real time with
//! bytes behind each [`Train`]; a simulator drives them in virtual time with none.
//!
//! A stage is fed trains in the order of their arrival and passes on what leaves it, each segment
//! with the time at which its last bit leaves. Stages whose decisions hang on the past alone (loss,
//! delay) settle a train when it comes; those that hang on what comes later (queues, reordering)
//! settle what happens up to a time when asked. A pipeline asks them no earlier than the end of the
//! line needs it: in front of a delay of 10 ms a queue is settled 10 ms behind the clock, so that a
//! frame that the driver reads a little late still meets the queue as it was when it came.
//! [`Pipeline::poll_output`] hands out segments when their time has come.

#![forbid(unsafe_code)]

mod aqm;
mod build;
mod coalesce;
mod copies;
mod event;
mod flows;
mod harmonizer;
mod jitter;
mod loss;
pub mod medium;
mod outage;
mod pair;
mod pipeline;
mod policer;
mod queue;
pub mod record;
mod shared;
pub mod spec;
pub mod trace;
mod train;

pub use aqm::{Codel, FqCodel, MarkingDropTail, Red};
pub use coalesce::Coalesce;
pub use copies::{Corrupt, Duplicate};
pub use event::{Counters, Decision, DropCause, Event, Log};
pub use flows::FLOWS_MAX;
pub use harmonizer::{Lengthen, Shuffle};
pub use jitter::Jitter;
pub use loss::{BurstLoss, BurstModel, ListedLoss, PeriodicLoss, RandomLoss};
pub use medium::SharedMedium;
pub use outage::Outage;
pub use pair::{Link, LinkLog, Way};
pub use pipeline::{Change, DelayLine, Output, Pipeline, Release, Stage, Trains};
pub use policer::{FlowCap, Policer};
pub use queue::{Backlog, Discipline, DropTail, Pending, Queue, QueueLimits, Server};
pub use shared::{Alpha, SharedBuffer};
pub use train::{Marks, Spacing, Times, Train};
