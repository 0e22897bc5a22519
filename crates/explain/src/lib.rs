//! Evidence in, findings and remedies out: what limits a TCP transfer and what to change.
//!
//! Three questions, three functions:
//!
//! * [`predict()`]: before the first byte, what will buffers, round trip and rate allow?
//! * [`diagnose`]: after the last, what limited the transfer, how sure is that, what would help?
//! * [`next_probe`]: which short transfer beside it would tell like causes apart?
//!
//! Where the sender's time went by the kernel's own clocks, and the formulas, are in [`throughput`].
//! Everything is a pure function of its arguments, so the same evidence always reads the same;
//! `docs/guide/limits.md` gives each rule with its source and the case in which it is known to fail.
//!
//! ```
//! use explain::{HostConfig, Limit, Setup, predict};
//! use throughput::{BufferModel, PathKnowledge};
//!
//! let host = HostConfig {
//!     tcp_rmem_bytes: Some([4_096, 131_072, 6_291_456]),
//!     tcp_wmem_bytes: Some([4_096, 16_384, 2_097_152]),
//!     ..HostConfig::default()
//! };
//! let path = PathKnowledge { bottleneck: "10Gb/s".parse().ok(), ..PathKnowledge::default() };
//! let expected = predict(&Setup {
//!     sender: &host,
//!     receiver: &host,
//!     path: &path,
//!     idle_rtt: "85ms".parse().unwrap(),
//!     streams: 1,
//!     buffers: BufferModel::LINUX,
//!     loss_rate: None,
//! });
//! assert_eq!(expected.limit, Limit::SendBuffer);
//! assert_eq!(
//!     expected.formula,
//!     "min(3.775 MB receive window, 1.887 MB send buffer) / 85 ms = 177.6 Mb/s",
//! );
//! ```

#![forbid(unsafe_code)]

mod case;
pub mod confidence;
mod declared;
mod diagnose;
mod evidence;
mod facts;
mod legs;
pub mod one_way;
pub mod pairing;
pub mod passive;
mod peaks;
mod predict;
mod probe;
pub mod reasons;
mod remedy;
mod rules;
mod search;
pub mod spacing;
pub mod sweep;
mod text;
pub mod timeline;
pub mod trace;

pub use declared::WriteCost;
pub use diagnose::{Diagnosis, diagnose};
pub use evidence::{CpuLoad, Direction, Evidence, HostConfig, HostLoad, Scaling};
pub use facts::{Facts, Opening, Range};
pub use legs::{Comparison, Leg, LegFinding, compare_legs};
pub use predict::{Limit, Prediction, Setup, Windows, predict};
pub use probe::{ProbePlan, next_probe};
pub use search::RateSearch;
