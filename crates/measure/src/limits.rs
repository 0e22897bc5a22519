//! What a server lets its clients do.

use units::{Duration, Rate};

use crate::STREAMS_MAX;

/// What a server lets its clients do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once; a client beyond them is told that the server is busy.
    pub sessions: u32,
    /// Of these, how many one address may have; of IPv6, one network of 64 bits.
    pub sessions_per_address: u32,
    /// Streams of one transfer, at most 128.
    pub streams: u16,
    /// Duration of one transfer.
    pub duration: Duration,
    /// How long a client may be silent or slow where it owes something, before it is dropped.
    pub silence: Duration,
    /// Size of one control message.
    pub message_bytes: usize,
    /// Whether clients may have it connect to other servers and send to them ([`crate::Ranks`]).
    pub ranks: bool,
    /// What all transfers together may send to clients that have not proved a token; no limit if none is
    /// given. iperf3's clients never prove one. What has no rate to be set is refused then.
    pub rate_max: Option<Rate>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 8,
            sessions_per_address: u32::MAX,
            streams: STREAMS_MAX,
            duration: Duration::from_s(3600),
            silence: Duration::from_s(10),
            // What clients say has a few hundred bytes.
            message_bytes: 64 << 10,
            ranks: false,
            rate_max: None,
        }
    }
}
