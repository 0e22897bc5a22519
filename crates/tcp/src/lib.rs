//! What a TCP endpoint does: windows, loss detection and recovery, congestion control, pacing.
//!
//! Pure machines: time comes in as `now`, nothing is allocated for a packet, no bytes are carried.
//! A [`Sender`] takes acknowledgments and timeouts and gives bursts of segments; a [`Receiver`] takes
//! segments and gives acknowledgments. The `sim` crate drives both over the paths of `link`. [`gap_control`]
//! finds a pacing rate for real sockets as well, [`gap_sums`] for several as one; [`model`] lends BBR's model of a path to other transports.
//!
//! Modelled after Linux 6.18, as that is what the lab's hosts run; each module says where RFCs and Linux
//! differ, and what is left out. Left out everywhere: the end of a connection, Nagle's algorithm (segments are full
//! but the last), urgent data, keep-alives, zero-window probes (a receiver here always reads).

#![forbid(unsafe_code)]

mod board;
mod cc;
mod config;
pub mod gap_control;
pub mod gap_sums;
mod hystart;
pub mod model;
mod packet;
mod ranges;
mod receiver;
mod rtt;
mod sender;
mod tuning;

pub use config::{Algorithm, Hystart, Pacing, ReceiverConfig, SenderConfig};
pub use packet::{Ack, AckRun, BLOCKS_MAX, Burst, Spaced};
pub use ranges::Ranges;
pub use receiver::Receiver;
pub use rtt::Rtt;
pub use sender::{Sender, SenderInfo, State};
