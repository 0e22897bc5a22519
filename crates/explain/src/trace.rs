//! Segments of a capture in, facts of each TCP connection out.
//!
//! [`Tracker::take`] is given every TCP packet of a capture in its order. A connection that has ended
//! is handed to the tracker's sink as a [`Connection`]: what each side sent, what was sent once more
//! and why, round trips to either side, windows, bytes in flight, its course over time, and what kept
//! each sender from sending sooner ([`Limit`]).
//!
//! The same packet seen at two interfaces counts once for each. All of it is as seen at the capture
//! point, which may be anywhere between the two ends.
//!
//! **Memory is bounded.** A connection is at first a log of its packets, 200 B and some 15 B for each, read
//! through the analysis when it ends. Only one with more than some 270 packets, or 30 where there are few, has
//! its analysis in memory, of some kilobytes. There are [`Limits::connections_max`] at most, of these
//! [`Limits::half_open_max`] that have not got beyond SYNs and [`Limits::large_max`] with an analysis of
//! their own, and [`Limits::bytes_max`] of memory; for one more, ended ones go first, then half-open ones,
//! then the longest idle.
//!
//! Left out: payload, urgent data, MPTCP's and fast open's options, a blind reset's sequence check.
//!
//! ```
//! use explain::trace::{Limits, Tracker};
//! use units::Instant;
//! use wire::segment::Segment;
//!
//! let mut ended = Vec::new();
//! let mut tracker = Tracker::new(Limits::default(), |connection| ended.push(connection));
//! let segment = Segment { payload_bytes: 100, ..Segment::default() };
//! tracker.take(Instant::from_ns(5), 1, 0, &segment);
//! tracker.finish();
//! assert_eq!(ended[0].sides[0].unique_bytes, 100);
//! ```

mod copies;
mod facts;
mod flow;
mod histogram;
mod holes;
mod limits;
mod log;
mod number;
mod resend;
mod round_trip;
mod side;
mod silence;
mod slices;
mod split;
mod table;
mod tracker;
mod turns;

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod tests;

pub use facts::{
    CapturePoint, Connection, Counted, End, Mark, Retransmissions, Setup, SideFacts, Start,
};
pub use histogram::Spread;
pub use limits::{Limit, LimitTime, RoundTotals};
pub(crate) use number::whole;
pub use silence::{Outage, Silences};
pub use slices::{Slice, Slices};
pub use split::{Batch, SHARDS, Split};
pub use tracker::{Captured, Counts, Limits, Tracker};
pub use turns::TurnFacts;
