//! Readings of a connection's kernel counters at its sending end, and what one reading alone says.

use units::{Bytes, Duration};
use wire::tcp_info::TcpInfo;

/// One connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamEvidence {
    /// Readings in the order they were taken.
    pub samples: Vec<Sample>,
}

/// One reading of a connection at its sending end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Since the transfer's start.
    pub t: Duration,
    /// The kernel's counters.
    pub info: TcpInfo,
    /// Payload that the application had handed over.
    pub app_bytes: Bytes,
}

/// Nothing waits to be sent and both windows have room: whoever fills the send buffer, or the buffer
/// itself, holds the connection back. Of an application that may pause, only readings count whose
/// delivery rate the kernel marked as app-limited; one that always writes is limited by its buffer
/// whether the mark is set or not (the kernel sets it only when a write finds the queue empty,
/// net/ipv4/tcp_rate.c).
pub fn is_starved(info: &TcpInfo, writes_always: bool) -> bool {
    let in_flight = info.unacked_segments.saturating_mul(info.snd_mss_bytes);
    let room_at_peer = info.snd_wnd_bytes == 0
        || in_flight.saturating_add(info.snd_mss_bytes) <= info.snd_wnd_bytes;
    info.notsent_bytes == 0
        && info.unacked_segments < info.snd_cwnd_segments
        && (info.delivery_rate_app_limited() || (writes_always && room_at_peer))
}

/// Data waits to be sent, and congestion window, peer's window and pacing would let an eighth more out:
/// what lies below TCP takes no more. Queues below TCP push back so (Linux, TCP small queues,
/// net/ipv4/tcp_output.c, `tcp_small_queue_check`).
pub fn is_held_below(info: &TcpInfo) -> bool {
    let in_flight = info.unacked_segments.saturating_mul(info.snd_mss_bytes);
    let more = (in_flight / 8).saturating_add(info.snd_mss_bytes.saturating_mul(2));
    let wanted = in_flight.saturating_add(more);
    let cwnd = info.snd_cwnd_segments.saturating_mul(info.snd_mss_bytes);
    let paced = info.pacing_rate_bytes_per_second;
    let flow = (in_flight as f64 / (info.rtt_us.max(1) as f64 / 1e6)).max(1.0);
    info.unacked_segments > 0
        && info.notsent_bytes >= info.snd_mss_bytes
        && info.snd_mss_bytes > 0
        && info.rtt_us > 0
        && cwnd >= wanted
        && info.snd_wnd_bytes >= wanted
        && (paced == 0 || paced as f64 >= flow * 1.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_always_writes_is_starved_by_its_buffer_with_room_in_both_windows() {
        let reading = |unacked_segments, notsent_bytes, snd_wnd_bytes| TcpInfo {
            unacked_segments,
            notsent_bytes,
            snd_wnd_bytes,
            snd_mss_bytes: 1_000,
            snd_cwnd_segments: 50,
            ..TcpInfo::default()
        };
        assert!(is_starved(&reading(49, 0, 50_000), true));
        assert!(
            !is_starved(&reading(50, 0, 60_000), true),
            "the congestion window is full"
        );
        assert!(
            !is_starved(&reading(49, 0, 49_999), true),
            "the peer's window is full"
        );
        assert!(
            !is_starved(&reading(10, 1, 50_000), true),
            "something waits to be sent"
        );
        assert!(
            !is_starved(&reading(10, 0, 50_000), false),
            "a pause would look alike"
        );
    }
}
