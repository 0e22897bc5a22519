//! The integration tests of this crate, in one binary.

mod cutting;
#[path = "../../../units/tests/hostile/document.rs"]
mod document;
mod fragments;
mod gateway;
#[path = "../../../units/tests/hostile/mod.rs"]
mod hostile;
mod hostile_files;
mod hostile_texts;
mod kernel;
mod lab;
mod log;
mod network;
mod replay;
mod segments;
mod shared_buffer;
mod support;
