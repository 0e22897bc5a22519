//! The integration tests of this crate, in one binary.

mod bbr3;
mod one_flow;
