//! What a link does to frames: loss, queue, shaper, delay line, and pipelines of them.
//!
//! Pure state machines: time comes in as `now`, randomness from a seed given to the constructor, no
//! clock, no I/O and, once running, no allocation per packet. The lab drives them in real time with
//! bytes behind each [`Train`]; a simulator drives them in virtual time with none.
//!
//! A stage is fed trains in the order of their arrival and passes on what leaves it, each segment
//! with the time at which its last bit leaves. A FIFO server's departures follow from its arrivals
//! alone, so a stage settles a train's whole future when it arrives; nothing inside a pipeline needs
//! waking. Only the end of the line does: [`Pipeline::poll_output`] hands out segments when their
//! time has come.
//!
//! Left out so far: stages whose decisions hang on later arrivals (CoDel, fair queueing), reordering.

#![forbid(unsafe_code)]

mod bottleneck;
mod event;
mod loss;
mod pipeline;
mod train;

pub use bottleneck::{Bottleneck, DropTail, QueueLimits};
pub use event::{Counters, Decision, Event, Log};
pub use loss::RandomLoss;
pub use pipeline::{DelayLine, Output, Pipeline, Release, Stage, Trains};
pub use train::{Spacing, Train};
