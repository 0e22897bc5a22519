//! What a TCP connection's throughput follows from: readings of its kernel counters, where its sender's
//! time went, what buffers and path allow, what theory promises; and what limits it, as data.
//!
//! Services and jobs use these without a diagnosis; crate `explain` uses them to judge what limited a
//! transfer. They have their own crate so that a changed rule of `explain` does not rebuild services
//! and jobs. All functions are pure.
//!
//! ```
//! use throughput::{BufferModel, models};
//! use units::Bytes;
//!
//! let window = BufferModel::LINUX.send_payload(Bytes::new(2_097_152));
//! let rate = models::window_limit(window, "85ms".parse().unwrap());
//! assert_eq!(rate.unwrap().to_string(), "177.6 Mb/s");
//! ```

#![forbid(unsafe_code)]

mod buffers;
mod finding;
pub mod live;
pub mod models;
mod path;
mod probe;
mod sample;
pub mod shares;

pub use buffers::BufferModel;
pub use finding::{Cause, Finding, Host, Remedy, RemedyHost, Setting, Verdict};
pub use models::IpVersion;
pub use path::PathKnowledge;
pub use probe::{Probe, ProbeKind};
pub use sample::{Sample, StreamEvidence, is_held_below, is_starved};
pub use shares::{Interval, Shares, intervals, intervals_of_streams, shares, shares_of_streams};
