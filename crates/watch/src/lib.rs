//! Live limits of every TCP connection of this host: nothing is sent, no privilege is needed, no program is loaded into the kernel.
//!
//! A [`Session`] takes a dump of all sockets at each tick and, in between, the last counters of every socket that closes, so that
//! connections too short for any dump are counted with their bytes. What comes lands in a [`Table`]: each connection by the kernel's
//! cookie, with what happened since the last tick and what limits it ([`throughput::live`]); sums of those that closed. Processes are
//! looked for as far as a budget allows. A recording keeps what came as it came ([`record`]) and plays it back into the same table.
//!
//! Left out: UDP and QUIC, of which the kernel keeps no such clocks; packets (crate `capture`).

#![forbid(unsafe_code)]

mod cgroups;
pub mod filter;
pub mod metrics;
pub mod names;
pub mod record;
pub mod row;
pub mod screen;
mod session;
mod source;
mod sums;
mod table;
pub mod text;

pub use filter::Filter;
pub use session::{Options, Session};
pub use sums::{By, Group, Key, Sum};
pub use table::{Change, Connection, Counts, Id, Table};
