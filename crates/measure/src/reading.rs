//! The near end's connections at one moment, for whoever looks on while a transfer runs.
//!
//! It is the sampler's latest round put together: no reading of its own, so that looking on costs the
//! transfer nothing.

use units::{Bytes, Duration};
use wire::tcp_info::TcpInfo;

use crate::outcome::Sample;

/// All connections of one end together. Counters are since the transfer's start or before; what the
/// kernel does not tell is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Whether this end sends.
    pub sends: bool,
    /// Since the start.
    pub t: Duration,
    /// Smoothed round trip, the connections' mean. A receiver's says little: it sends nothing.
    pub rtt: Duration,
    /// Congestion windows in bytes, in sum.
    pub congestion_window: Bytes,
    /// Windows that the peer allows, in sum.
    pub peer_window: Bytes,
    /// Segments retransmitted, in sum; over QUIC packets lost, whose bytes go in others.
    pub retransmitted: u64,
    /// The kernel's clocks of a sender, the connections' mean; see [`TcpInfo`].
    pub clocks: Option<Clocks>,
    /// A receiver's estimate of the round trip, the connections' mean.
    pub receive_rtt: Duration,
    /// Bytes that a receiver's application took in a round trip, in sum.
    pub receive_space: Bytes,
}

/// `tcpi_busy_time` and the two parts of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// With data outstanding.
    pub busy_us: u64,
    /// Of it, held back by the peer's window.
    pub rwnd_limited_us: u64,
    /// Of it, held back by the own send buffer.
    pub sndbuf_limited_us: u64,
}

impl Reading {
    /// Puts a round together; `None` of no connections.
    pub(crate) fn of(sends: bool, round: &[Sample]) -> Option<Self> {
        let t = round.iter().map(|s| s.t).max()?;
        let quic = round.iter().filter_map(|s| s.quic);
        if let Some(quic) = quic.reduce(crate::quic::QuicInfo::joined) {
            return Some(Self {
                sends,
                t,
                rtt: Duration::from_us(quic.rtt_us),
                congestion_window: Bytes::new(quic.congestion_window_bytes),
                retransmitted: quic.packets_lost,
                ..Self::default()
            });
        }
        let sum = |field: fn(&TcpInfo) -> u64| {
            let each = round.iter().map(|s| field(&s.info));
            each.fold(0, u64::saturating_add)
        };
        let count = u64::try_from(round.len()).unwrap_or(u64::MAX);
        let mean = |field| sum(field) / count;
        let told = round.iter().all(|s| s.info.len_bytes >= CLOCKS_BYTES);
        Some(Self {
            sends,
            t,
            rtt: Duration::from_us(mean(|i| i.rtt_us)),
            congestion_window: Bytes::new(sum(|i| {
                i.snd_cwnd_segments.saturating_mul(i.snd_mss_bytes)
            })),
            peer_window: Bytes::new(sum(|i| i.snd_wnd_bytes)),
            retransmitted: sum(|i| i.total_retrans_segments),
            clocks: told.then(|| Clocks {
                busy_us: mean(|i| i.busy_time_us),
                rwnd_limited_us: mean(|i| i.rwnd_limited_us),
                sndbuf_limited_us: mean(|i| i.sndbuf_limited_us),
            }),
            receive_rtt: Duration::from_us(mean(|i| i.rcv_rtt_us)),
            receive_space: Bytes::new(sum(|i| i.rcv_space_bytes)),
        })
    }
}

/// The clocks end at this byte of the struct (Linux 4.10).
const CLOCKS_BYTES: usize = 192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_add_up_and_round_trips_are_averaged() {
        let sample = |rtt_us, cwnd| Sample {
            t: Duration::from_ms(5),
            info: TcpInfo {
                len_bytes: 280,
                rtt_us,
                snd_cwnd_segments: cwnd,
                snd_mss_bytes: 1_000,
                busy_time_us: 7,
                ..TcpInfo::default()
            },
            ..Sample::default()
        };
        let two = Reading::of(true, &[sample(10, 3), sample(20, 4)]).unwrap();
        assert_eq!(two.rtt, Duration::from_us(15));
        assert_eq!(two.congestion_window, Bytes::new(7_000));
        assert_eq!(two.clocks.unwrap().busy_us, 7);
        assert_eq!(Reading::of(true, &[]), None);
    }

    #[test]
    fn an_old_kernel_has_no_clocks() {
        let old = Sample {
            info: TcpInfo {
                len_bytes: 160,
                ..TcpInfo::default()
            },
            ..Sample::default()
        };
        assert_eq!(Reading::of(true, &[old]).unwrap().clocks, None);
    }
}
