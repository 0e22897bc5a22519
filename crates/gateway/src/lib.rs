//! A transparent split-TCP gateway: it ends a connection on one side and goes on with another one on
//! the other side, so that each half has the segments, windows and congestion control that suit it.
//!
//! [`relay`], [`deferral`], [`rules`], [`buffers`], [`memory`], [`one_way`], [`past`] and [`syn`] are machines without sockets or clock; a
//! worker does what they say. [`install`] is what the kernel needs to know, [`check`] whether it can.
//!
//! [`settings`] say what a gateway is to be, [`daemon`] runs one as a process, [`client`] asks one that runs; [`status`] is
//! what it shows of itself and [`recorded`] what is kept of it.

// Tests of this crate and those beside it share a network.
#[cfg(test)]
extern crate self as gateway;

mod aside;
pub mod buffers;
pub mod check;
pub mod client;
pub mod config;
pub mod counters;
pub mod daemon;
pub mod decisions;
pub mod deferral;
pub mod file;
pub mod install;
pub mod links;
pub mod memory;
pub mod one_way;
pub mod past;
pub mod recorded;
pub mod relay;
pub mod rules;
pub mod sampled;
mod service;
pub mod settings;
mod sockets;
pub mod status;
pub mod syn;
mod untracked;
mod upgrade;
pub mod view;
mod watch;
pub mod window;
mod worker;

pub use service::{Gateway, GatewayError, make_room_for};
