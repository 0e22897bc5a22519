//! The integration tests of this crate, in one binary.

mod answering;
mod classifying;
mod cutting;
mod decoding;
mod filtering;
mod fragmenting;
mod reading;
mod reassembly;
mod rewriting;
mod support;
mod views;
