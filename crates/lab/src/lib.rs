//! Pseudo long fat networks out of network namespaces, run in real time by the link machines.
//!
//! A [`PathFile`] names hosts, switches, routers and the links between them. [`Lab::up`] makes the
//! hosts (namespaces with a veth each), starts the forwarding thread that carries real frames of real
//! kernels through the pure machines of the `link` crate, and [`Lab::begin_phase`] opens a phase at
//! whose end the lab certifies its own accuracy by the hosts' kernel stamps. With `run = "kernel"` the kernel carries
//! the frames, and its counters are what the certificate rests on.
//!
//! [`shell`] runs a program behind a path; [`daemon`] holds a lab in the background, which [`place`] finds
//! again and a [`Found`](place::Found) lab answers for.

mod certificate;
pub mod change;
mod client;
mod consequence;
pub mod daemon;
mod direction;
mod engine;
mod forward;
mod frames;
mod gateways;
mod groups;
mod lab;
mod lateness;
pub mod log;
mod middlebox;
pub mod model;
pub mod nest;
mod node;
pub mod outside;
mod overload;
mod pace;
pub mod path;
mod patience;
pub mod place;
mod probe;
pub mod protocol;
mod rate;
pub mod rehearsal;
mod serving;
pub mod shell;
mod store;
#[doc(hidden)]
pub mod testing;
mod urgency;
mod wiring;

pub use certificate::Certificate;
pub use client::read_rules;
pub use consequence::{Bulk, Traffic, Uncertainty};
pub use direction::Direction;
pub use forward::{DirectionCounts, LATE};
pub use gateways::{GatewayLink, LabGateway};
pub use groups::{GroupRule, Grouping};
pub use lab::{Host, Lab, LabError, Options, Phase};
pub use overload::Overload;
pub use pace::{KernelRun, Pace};
pub use path::{PathError, PathFile};
pub use rate::RateError;
