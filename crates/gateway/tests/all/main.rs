//! The integration tests of this crate, in one binary.

mod abuse;
mod beyond;
mod classes;
#[path = "../../../units/tests/hostile/document.rs"]
mod document;
mod gaps;
#[path = "../../../units/tests/hostile/mod.rs"]
mod hostile;
mod hostile_texts;
mod last_ack;
mod links;
mod net;
mod one_way;
mod past;
mod tracked;
mod transparent;
mod undelivered;
mod upgrade;
