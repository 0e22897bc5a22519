//! Memory-to-memory measurement over TCP, MPTCP, UDP, TLS and QUIC between a client and a serve process, with tcp_info from both
//! ends.
//!
//! A [`Server`] waits on one TCP port for control and data. A [`Client`] connects, learns the far
//! host's facts, measures the idle round trip, and runs transfers in either direction
//! ([`Client::run`]); each yields an [`Outcome`] with the bytes, CPU time and `tcp_info` samples of
//! both ends.
//!
//! ```no_run
//! use measure::{Client, Config, Limits, Server, Stop};
//! use units::Duration;
//!
//! let stop = Stop::new();
//! let server = Server::bind("127.0.0.1:0".parse().unwrap(), Limits::default())?;
//! let addr = server.local_addr();
//! let serving = std::thread::spawn({
//!     let stop = stop.clone();
//!     move || server.serve(&stop)
//! });
//! let mut client = Client::connect_addr(addr, Duration::from_s(5))?;
//! let outcome = client.run(&Config::default(), &stop, &mut |progress| {
//!     eprintln!("{} {}", progress.elapsed, progress.rate);
//! })?;
//! println!("{}", outcome.goodput_after_ramp());
//! stop.stop();
//! serving.join().unwrap()?;
//! # Ok::<(), measure::MeasureError>(())
//! ```
//!
//! # The protocol, in short
//!
//! Every connection opens with a line of 24 bytes, `goodput-measure 001 ctl\n` (or `dat`, and `srv`
//! in the server's answer): magic, protocol number, kind. Only the number decides whether two ends
//! understand each other. On a control connection length-prefixed JSON messages follow, on a data
//! connection a session token of 16 bytes, the stream's number, then payload until the end of file.
//! docs/protocol-measure.md has the whole of it; `message` is its parser.
//!
//! # Threads and namespaces
//!
//! A socket belongs to the network namespace of the thread that creates it, and threads inherit the
//! namespace of the thread that spawns them. [`Server::serve`] and the client's methods create all
//! sockets in the calling thread and spawn all threads from it; there is no pool and no global
//! state, so a lab can run both ends in one process.
//!
//! # What is left out
//!
//! No encryption but to measure it ([`Cipher`]). A server may demand a shared token ([`Secret`]); without one, whoever reaches the
//! port can measure, and a session token keeps strangers out of a running transfer only. Payload is
//! not checked.

#![forbid(unsafe_code)]

mod approach;
mod ceiling;
mod client;
mod codec;
mod config;
mod control;
mod cost;
mod crew;
pub mod datagram;
mod engine;
mod error;
mod even;
mod facts;
mod gaps;
#[cfg(test)]
#[path = "../../units/tests/hostile/mod.rs"]
mod hostile;
#[cfg(test)]
#[path = "../../units/tests/hostile/values.rs"]
mod hostile_values;
pub mod iperf3;
mod limits;
mod lobby;
pub mod message;
mod messages;
pub mod metrics;
#[cfg(feature = "mpi")]
pub mod mpi;
mod outcome;
mod outlet;
mod pinger;
mod protocol;
mod quic;
mod ranks;
mod reading;
mod secret;
mod server;
mod spend;
pub mod stamp;
mod stop;
mod tally;
mod target;
mod tls;
mod transfer;
mod transfer_udp;
mod transport;
mod turns;
mod udp;
mod wait;

pub use approach::{Approach, Dscp};
pub use client::{CONNECT_TIMEOUT, Client, Progress};
pub use config::{BLOCK_BYTES_DEFAULT, Config, DATAGRAM_BYTES_MAX, Direction, datagram_problem};
pub use cost::{CpuUse, HostCost};
pub use error::{End, Fault, MeasureError};
pub use facts::{FarFacts, HostFacts, InterfaceFacts, NicWork, PciFacts};
pub use limits::Limits;
pub use messages::{
    MessageCount, MessageOutcome, MessageSpec, Overhead, Pattern, Stamped, Verbs, VerbsEnds,
    VerbsPort, VerbsQueue,
};
pub use outcome::{
    Datagrams, EndResult, IdleRtt, Kept, MptcpCounts, Outcome, Sample, SampleKind, UdpCounts,
};
pub use outlet::ZeroCopyCounts;
pub use pinger::{Pinger, RoundTrip};
pub use quic::QuicInfo;
pub use ranks::{FlowTimes, Member, RankPeer, RankSpec, RankStep, RankTest, RankTimes, Ranks};
pub use reading::{Clocks, Reading};
pub use secret::Secret;
pub use server::Server;
pub use spend::WriteCosts;
pub use stop::Stop;
pub use sys::verbs::{Choice as RdmaChoice, devices as rdma_devices};
pub use tls::Cipher;
pub use transport::{Sending, Transport};
pub use udp::UdpSample;

/// The port that `goodput serve` listens on unless told otherwise: near iperf3's 5201, beside it.
pub const DEFAULT_PORT: u16 = 5210;

/// Most parallel connections of one transfer.
pub const STREAMS_MAX: u16 = 128;
