//! Measures a path or a host, says what limits it, and proves the remedy.
//!
//! [`perform`] measures once, or before and after a remedy. [`sweep`] varies settings, [`messages`]
//! exchanges messages, [`stamp`] probes one-way delays, and [`serve`] is the far end of all of them.
//! A [`session::Site`] is where each of them measures. None of them prints: a [`Watcher`] receives
//! what happens meanwhile.

#![forbid(unsafe_code)]

mod buffers;
mod cost;
mod doctor;
mod latency;
mod legs;
pub mod live;
pub mod messages;
pub mod observer;
pub mod record;
mod scale;
pub mod serve;
pub mod session;
pub mod stamp;
pub mod sweep;
mod watcher;

pub use doctor::{BalanceLog, FillGiven, Finished, Plan, perform};
pub use scale::Scale;
pub use watcher::{Silent, Watcher};
