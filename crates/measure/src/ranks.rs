//! Several hosts that send to each other at once, each a rank: what benchmarks of clusters do by MPI, over
//! TCP and with no MPI installed.
//!
//! One client has a session with each rank's server and leads: it says who connects to whom
//! ([`Ranks::step`]), and has all pairs begin a test together ([`Ranks::test`]). Payload goes from rank to
//! rank and not by the client. Before a test each pair exchanges a byte, as CBench's `rotate` has its pairs
//! exchange an empty message after the barrier; the barrier is that every rank has said that it is ready.
//!
//! **What stands for MPI's calls.** A synchronous send returns once the receiver has begun to receive,
//! which costs a round trip for each message. Here a receiver confirms every `window` messages with one byte
//! when all of them are there, and the sender waits for it before the next: with a window of 1 a round trip
//! for each message as well, at its end. TCP has no empty messages: those of a ping-pong have a byte at least.
//!
//! A server takes part only where [`crate::Limits::ranks`] allows it, since it then connects to whom its
//! client names. Until the other end has answered with the 16 bytes that only a server knows that was told to
//! expect it, it sends no more than the 42 bytes that open a data connection; and its client does not learn
//! what answers where there is no such server.

mod client;
mod line;
mod server;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use units::Duration;

pub use client::{Member, Ranks};

/// What makes a session a rank's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankSpec {
    /// Its number, from 0.
    pub number: u16,
    /// Congestion control of what it sends; its host's if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Mark of what it sends, 0 to 63 (RFC 2474).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
}

/// Whom a rank sends to and hears from until the next step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankStep {
    /// To connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<RankPeer>,
    /// Number of the rank that will connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<u16>,
}

/// Another rank's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPeer {
    /// Where it listens.
    pub addr: SocketAddr,
    /// What it let its client know when it became a rank.
    pub token: String,
}

/// What the pairs of a step do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankTest {
    /// Size of a message, 1 B to 8 MiB.
    pub bytes: u32,
    /// Messages, or round trips.
    pub count: u32,
    /// Messages from one confirmation to the next.
    pub window: u32,
    /// Each message comes back before the next goes.
    pub ping: bool,
}

/// How long a rank took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankTimes {
    /// From the byte that came back to the last confirmation, or the last message that came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_ns: Option<u64>,
    /// From the byte sent back to the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_ns: Option<u64>,
}

/// How long one flow of a test took, by both ends' clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTimes {
    /// By the sender's.
    pub send: Duration,
    /// By the receiver's.
    pub receive: Duration,
}

impl Default for RankTest {
    /// As CBench's `rotate`.
    fn default() -> Self {
        Self {
            bytes: BYTES_MAX,
            count: 10,
            window: 1,
            ping: false,
        }
    }
}

impl RankTest {
    /// Says what is impossible about it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.bytes == 0 || self.bytes > BYTES_MAX {
            return Some(format!(
                "messages of {} bytes; 1 B to 8 MiB work",
                self.bytes
            ));
        }
        if self.count == 0 || self.count > COUNT_MAX {
            return Some(format!(
                "{} messages of a test; 1 to {COUNT_MAX} work",
                self.count
            ));
        }
        (self.window == 0).then(|| "a window of no messages".to_owned())
    }
}

/// Largest message.
const BYTES_MAX: u32 = 8 << 20;
/// An hour of round trips of 4 us; chosen.
const COUNT_MAX: u32 = 1_000_000_000;
