//! Cluster fabrics packet by packet, in virtual time: hosts, cables, switch chips, credits and virtual lanes,
//! or Ethernet with pauses, losses and windows.
//!
//! A [`World`] is made of a [`FabricSpec`] and flows, and runs as fast as the machine can; time is picoseconds
//! from its start. The same specification gives the same results, bit by bit, in one piece or in parts ([`World::split`])
//! on several threads. [`formula`] says what one flow alone must
//! get, and which part holds it: the engine is held against it in tests, and findings rest on it.
//!
//! [`topology`] builds specifications from parameters, [`import`] reads them from what others write, [`route`] finds their
//! ways and checks them for cycles. [`fluid`] estimates many flows over the same ways in milliseconds, and says how far
//! to trust it.
//!
//! Links may fail and come back ([`fault`]). Not yet: rate control by marked packets.

#![forbid(unsafe_code)]

pub mod ethernet;
pub mod fault;
pub mod fluid;
pub mod formula;
#[cfg(test)]
#[path = "../../units/tests/hostile/mod.rs"]
mod hostile;
pub mod import;
pub mod link;
mod queue;
pub mod route;
pub mod selection;
pub mod spec;
pub mod topology;
mod world;

pub use ethernet::{Ethernet, FlowControl, Pfc};
pub use fault::{Fault, FaultRule, Faults};
pub use selection::{Dca, Selection};
pub use spec::{
    BusSpec, FabricSpec, FlowSpec, HostSpec, LinkSpec, Node, Ordering, Place, PortSpec, Queueing,
    Routing, SpecError, SwitchSpec, Transport,
};
pub use world::{
    Avoided, Blame, ChannelStats, Counters, FlowInfo, Mail, Move, Part, Stuck, WaitsFor, World,
};
