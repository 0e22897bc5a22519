//! What a TCP endpoint does.

#![forbid(unsafe_code)]

pub mod gap_control;
