//! The integration tests of this crate, in one binary.

#[path = "../../../units/tests/hostile/mod.rs"]
mod hostile;
mod hostile_texts;
#[path = "../../../units/tests/hostile/values.rs"]
mod values;
