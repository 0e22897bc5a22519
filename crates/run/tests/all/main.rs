//! The integration tests of this crate, in one binary.

mod columns;
#[path = "../../../units/tests/hostile/values.rs"]
mod values;
mod written;
