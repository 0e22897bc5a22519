//! Benchmarks of clusters that have pairs of hosts send to each other at once: who sends to whom, what
//! the rates add up to, and which links the slow pairs share.
//!
//! Definitions: CBench's `rotate` and `rotate_latency` (J. Naegle, Sandia, 2004), Presta's `com`
//! (LLNL, UCRL-CODE-2001-028), mpiGraph (LLNL). Written from their descriptions and output.
//!
//! Pure: ranks are numbers from 0, rates are bytes a second, and nobody is asked for the time. Left
//! out: Netgauge's random bisections, GPCNeT's congestors, and Presta's cyclic order of pairs.

mod cause;
mod lines;
mod plan;
mod share;
mod spread;

pub use cause::{Cause, Multiple, Reading, read};
pub use lines::{
    bandwidth_closing, bandwidth_line, com_line, com_summary, latency_closing, latency_line,
    rotations,
};
pub use plan::{
    Flow, PlanError, Round, bisection, com, listed, neighbours, rotate, shifts, shuffled,
};
pub use share::{Crowd, crowds, fair};
pub use spread::{Matrix, Spread};

/// Message of CBench's `rotate`: 1,048,576 doubles.
pub const ROTATE_BYTES: u32 = 8 << 20;
/// Its messages in a test.
pub const ROTATE_MESSAGES: u32 = 10;
/// Its tests of each rotation, of which the fastest counts.
pub const ROTATE_TESTS: u32 = 3;
/// Round trips of `rotate_latency`, in its one test.
pub const LATENCY_ROUND_TRIPS: u32 = 10_000;
/// Operations of a sample of Presta's `com`, as CBench runs it (`-o 100`).
pub const COM_OPERATIONS: u32 = 100;
/// Largest message of `com` by default.
pub const COM_BYTES_MAX: u32 = 8 << 20;
/// Smallest message of `com` by default.
pub const COM_BYTES_MIN: u32 = 32;
/// Message of `mpiGraph 1048576 10 10`.
pub const GRAPH_BYTES: u32 = 1 << 20;
/// Its iterations.
pub const GRAPH_ITERATIONS: u32 = 10;
/// Its messages at once in each iteration.
pub const GRAPH_WINDOW: u32 = 10;
