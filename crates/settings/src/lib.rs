//! A host's network settings as a plan: rate, round trip and what the host has in, steps with their formulas out.
//!
//! A step names a key, its value now and then, the formula with its numbers, what it costs, where it acts, what outlasts a
//! restart and who else writes the key. A better value is never lowered. Everything is pure: reading, writing and undoing belong
//! to crate `tune`.
//!
//! ```
//! use settings::{Facts, Request, Role};
//!
//! let mut facts = Facts::default();
//! facts.set("net.ipv4.tcp_rmem", "4096 131072 6291456");
//! let request = Request::new("10Gb/s".parse().unwrap(), "85ms".parse().unwrap(), Role::Dtn);
//! let plan = settings::derive(&request, &facts);
//! assert_eq!(plan.steps[0].new, "4096 131072 356515840");
//! ```
//!
//! Reading list: Linux Documentation/networking/ip-sysctl.rst; net/ipv4/tcp_input.c (`tcp_rcv_space_adjust`); RFC 9438; ESnet,
//! fasterdata.es.net/host-tuning.

#![forbid(unsafe_code)]

mod buffers;
mod device;
mod facts;
mod judge;
mod key;
mod layout;
mod plan;
mod protocol;

pub use device::is_virtual;
pub use facts::{Device, Facts, Ring, RxQueue, Value};
pub use judge::{Judged, Judgement, NASA_2007, judge};
pub use key::{Key, Side};
pub use layout::{Layout, drop_in};
pub use plan::{Advice, Cannot, Enough, Memory, Plan, Request, Role, Scope, Step};

/// Derives the steps for a host. Whatever the facts hold, the result is a plan; what cannot be done is in it by name.
pub fn derive(request: &Request, facts: &Facts) -> Plan {
    let mut plan = Plan::new(request, facts);
    buffers::derive(&mut plan, request, facts);
    protocol::derive(&mut plan, request, facts);
    device::derive(&mut plan, request, facts);
    plan
}
