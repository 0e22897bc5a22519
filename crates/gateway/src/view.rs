//! What a running gateway shows of its connections.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use wire::tcp_info::TcpInfo;

use crate::buffers::Buffers;
use crate::config::Zone;

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
    /// Smallest round trip: this one's of the last minutes, or of another of the same way where that had less.
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

impl Seen {
    /// What stands in queues, our own too, is no part of a way: others may have seen it without.
    pub(crate) fn know_ways(&mut self, buffers: &Buffers) {
        let zone = if self.outside {
            Zone::Outside
        } else {
            Zone::Inside
        };
        let ends = [(zone, self.client), (zone.other(), self.server)];
        for (half, (zone, end)) in self.halves.iter_mut().zip(ends) {
            if let Some(least) = buffers.least_rtt(zone, end.ip()) {
                half.min_rtt_us = half.min_rtt_us.min(least.as_ns() / 1_000);
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use units::{Bytes, Duration, Rate};

    use super::*;
    use crate::buffers::Bounds;

    #[test]
    fn a_half_whose_queue_stands_has_the_round_trip_that_its_way_has_without() {
        let mut buffers = Buffers::new(Bounds {
            tuned: [Bytes::new(1); 2],
            most: [Bytes::new(1); 2],
            memory: Bytes::new(1),
        });
        let rates = [Rate::from_bits_per_second(0); 2];
        let client = "10.0.0.1:9".parse().unwrap();
        let server: SocketAddr = "10.0.1.1:80".parse().unwrap();
        let mut see = |zone, ms| {
            buffers.observe(zone, server.ip(), rates, Duration::from_ms(ms));
            let half = HalfSeen {
                min_rtt_us: 40_000,
                ..HalfSeen::default()
            };
            let mut seen = Seen {
                client,
                server,
                outside: false,
                age_ms: 0,
                carried: [0; 2],
                rate_bps: [0; 2],
                in_pipe: [0; 2],
                halves: [half.clone(), half],
            };
            seen.know_ways(&buffers);
            seen.halves.map(|half| half.min_rtt_us)
        };
        // Of the other side it says nothing, and longer ones are no news.
        assert_eq!(see(Zone::Inside, 1), [40_000; 2]);
        assert_eq!(see(Zone::Outside, 90), [40_000; 2]);
        assert_eq!(see(Zone::Outside, 5), [40_000, 5_000]);
    }
}
