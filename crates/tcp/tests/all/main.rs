//! The integration tests of this crate, in one binary.

mod gap_control;
mod model;
mod sender;
