//! TCP endpoints over links, in virtual time: every packet with its own time, and no clock.
//!
//! The links are the machines of the `link` crate that the lab drives with real packets, the endpoints
//! those of `tcp`. A [`World`] is made of links, the routes of flows over them and each flow's settings, and
//! runs as fast as the machine can. The same world and seeds give the same results, bit by bit.

#![forbid(unsafe_code)]

mod agenda;
mod disturbance;
mod flow;
mod gaps;
mod tap;
mod world;

pub use disturbance::{Disturbance, Late};
pub use flow::{FlowInfo, FlowSpec};
pub use gaps::Gaps;
pub use tap::{Passed, What};
pub use world::{BusSpec, Hop, LinkSpec, World, WorldError, WorldSpec};
