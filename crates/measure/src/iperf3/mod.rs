//! iperf3's protocol, both ends, so that hosts that have only iperf3 can be measured with.
//!
//! The protocol: the client's TCP control connection opens with a cookie; the server asks for the
//! parameters, then for the data connections, which open with the same cookie (TCP) or with a
//! datagram each way (UDP); it says start and running. The client says when the test ends. Then both
//! tell their results, client first, and the client says goodbye. [`message`], [`params`] and
//! [`results`] are its parsers, `datagram` of this crate the header of its datagrams. The facts were
//! observed of iperf 3.12 over loopback and read in the sources of its later versions.
//!
//! Other than iperf3, a receiver here waits until nothing is on its way before it counts together,
//! and a sender does not say that the test is over before everything was acknowledged. So the bytes
//! of both ends agree where nothing was lost, and the rates are those of all bytes.
//!
//! Left out: SCTP, MPTCP, authentication, files, `--skip-rx-copy`. Of the far end nothing is known
//! but what it tells: totals for each stream, CPU, congestion control.

pub mod message;
pub mod params;
pub mod results;

mod client;
mod document;

mod flow;
mod line;
mod server;

pub use client::{Client, Half, Tested, Wish};
pub use document::{Circumstances, document, document_of};

pub(crate) use server::{Cookies, Host, deny, deny_without_token};

/// The port of iperf3's servers.
pub const DEFAULT_PORT: u16 = 5201;
