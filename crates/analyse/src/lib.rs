//! Says from captures and packet logs what limited their connections.
//!
//! [`explain`] puts together capture, rules, tables and run folder for one question: why was a TCP connection
//! no faster? [`sim`] answers it for a path file in virtual time.

#![forbid(unsafe_code)]

mod clock;
mod connection;
mod feed;
mod graphs;
mod input;
mod live;
mod logs;
mod names;
mod observed;
mod pair;
mod picture;
mod plan;
mod planted;
mod ranking;
mod reading;
mod run;
pub mod sim;
mod spacing;
mod tables;
mod threads;
mod unmade;

pub use live::{LIVE_BYTES, Observer, SoFar};
pub use picture::{Drawn, draw_log};
pub use plan::{Filled, Match, Plan, Source};
pub use run::{Explained, explain};
pub use spacing::Question;
pub use tables::{CONNECTIONS_FILE, INTERVALS_FILE};
