//! The experiments of the seed documents: every system and result of theirs beside ours.
//!
//! `experiments/ID.toml` says what a document has and what we run for it ([`Experiment`]). [`run`]
//! runs a row's steps through the [`Runner`] of whoever knows the verbs, holds what the runs say
//! against the row and keeps the result in `board.json` ([`State`]); [`status`] says where a row
//! stands, [`board_json`] where all do.

#![forbid(unsafe_code)]

pub mod board;
pub mod check;
mod embedded;
pub mod experiment;
#[cfg(feature = "guest")]
mod guest;
mod json;
mod run;
mod runner;
pub mod state;

pub use board::{Board, Status, status};
pub use experiment::{Experiment, RunStep};
pub use json::{board_json, row_json};
pub use run::{Ran, STATE_FILE, run};
pub use runner::{Done, NoRun, Runner};
pub use state::State;
