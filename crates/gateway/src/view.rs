//! What a running gateway shows of its connections.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use wire::tcp_info::TcpInfo;

/// One connection as it stands. Pairs are of the direction from the client, then of that from the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Who connected.
    pub client: SocketAddr,
    /// To whom.
    pub server: SocketAddr,
    /// The client is on the outside.
    pub outside: bool,
    /// Since both halves stand.
    pub age_ms: u64,
    /// Bytes that the other half has taken.
    pub carried: [u64; 2],
    /// Of the last full second, bits per second.
    pub rate_bps: [u64; 2],
    /// Bytes between the sockets.
    pub in_pipe: [u64; 2],
    /// The half to the client, the half to the server.
    pub halves: [HalfSeen; 2],
}

/// What the kernel says of one half (tcp_info); what it does as a sender towards that end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HalfSeen {
    /// Congestion control.
    pub congestion: String,
    /// Smoothed round trip.
    pub rtt_us: u64,
    /// Smallest round trip.
    pub min_rtt_us: u64,
    /// Segment size.
    pub mss_bytes: u64,
    /// Congestion window.
    pub cwnd_segments: u64,
    /// That end's receive window.
    pub window_bytes: u64,
    /// Newest sample of the rate at which that end acknowledges, bits per second.
    pub delivery_bps: u64,
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Of these, retransmissions.
    pub retransmissions: u64,
    /// Bytes that that end acknowledged.
    pub acknowledged: u64,
    /// Bytes that came from that end.
    pub received: u64,
    /// Bytes that wait to be sent.
    pub unsent: u64,
    /// Time with data outstanding, whatever held it back.
    pub busy_us: u64,
    /// Part of it held back by that end's window.
    pub window_limited_us: u64,
    /// Part of it held back by our send buffer.
    pub buffer_limited_us: u64,
    /// Ceiling of its pace, bits per second; none where all ones.
    pub pace_most_bps: u64,
    /// ECN was negotiated.
    pub ecn: bool,
    /// Send buffer in the kernel's bookkeeping: twice what was set, or what its tuning has come to.
    pub send_buffer_bytes: u64,
    /// The same of the receive buffer.
    pub receive_buffer_bytes: u64,
}

impl HalfSeen {
    pub(crate) fn of(info: &TcpInfo, congestion: String, buffers: [u64; 2]) -> Self {
        Self {
            congestion,
            send_buffer_bytes: buffers[0],
            receive_buffer_bytes: buffers[1],
            rtt_us: info.rtt_us,
            // All ones before the first sample.
            min_rtt_us: info.min_rtt_us.min(info.rtt_us),
            mss_bytes: info.snd_mss_bytes,
            cwnd_segments: info.snd_cwnd_segments,
            window_bytes: info.snd_wnd_bytes,
            delivery_bps: info.delivery_rate_bytes_per_second.saturating_mul(8),
            segments: info.data_segs_out,
            retransmissions: info.total_retrans_segments,
            acknowledged: info.bytes_acked,
            received: info.bytes_received,
            unsent: info.notsent_bytes,
            busy_us: info.busy_time_us,
            window_limited_us: info.rwnd_limited_us,
            buffer_limited_us: info.sndbuf_limited_us,
            pace_most_bps: info.max_pacing_rate_bytes_per_second.saturating_mul(8),
            ecn: info.options & TCPI_OPT_ECN != 0,
        }
    }
}

/// include/uapi/linux/tcp.h.
const TCPI_OPT_ECN: u64 = 8;
