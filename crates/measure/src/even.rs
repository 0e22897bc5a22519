//! Parallel streams held to one ceiling, so that none takes what another gives up.
//!
//! Streams of one sender need no box in the network to be alike: the sender knows what all of them
//! together deliver. One gap control ([`tcp::gap_control`]) is given the sums, and each stream the same
//! part of what it finds as SO_MAX_PACING_RATE. Whose window is larger than its part waits in its own host;
//! as the ceilings hold from the first round trip on, paced packets of all streams are mixed, and where the queue
//! overflows nevertheless, all lose.

use std::net::TcpStream;
use std::os::fd::AsFd;

use ::tcp::gap_control::{GapControl, Reading};
use sys::{clock, tcp};
use units::{Duration, Rate};
use wire::tcp_info::TcpInfo;

/// Changes of the ceiling below a two-hundredth are not worth a system call for each stream.
const CHANGE_LEAST: u64 = 200;

/// What is held up for less than this at a time is not seen: the kernel counts it in jiffies.
const HELD_UP_SPAN: Duration = Duration::from_ms(20);

/// The streams as one.
#[derive(Debug, Default)]
struct Sum {
    /// Segments that each stream delivered; the kernel's counters have 32 bits.
    before: Vec<u64>,
    delivered: u64,
}

/// Keeps all streams at an even part of the path's rate until `is_over`.
pub(crate) fn control(sockets: &[TcpStream], is_over: impl Fn() -> bool) {
    let now = clock::monotonic();
    let mut control = GapControl::new(now.as_ns());
    let mut sum = Sum::default();
    let (mut looked, mut held_up) = (now, Duration::ZERO);
    let mut set = u64::MAX;
    while !is_over() {
        // A socket that cannot be read or set has ended, which its data thread tells.
        let infos = sockets.iter().map(|s| tcp::tcp_info(s.as_fd()));
        let Ok(infos) = infos.collect::<Result<Vec<_>, _>>() else {
            return;
        };
        let now = clock::monotonic();
        let mut reading = sum.reading(&infos);
        let span = now.saturating_since(looked);
        if span >= HELD_UP_SPAN {
            let total: u64 = infos.iter().map(held_up_us).sum();
            let total = Duration::from_us(total);
            let more = total.as_ns().saturating_sub(held_up.as_ns());
            reading.held_up = more * 2 > span.as_ns() * sockets.len() as u64;
            (looked, held_up) = (now, total);
        }
        let ceiling = control.on_reading(now, &reading);
        if let Some(rate) = ceiling {
            let each = rate.as_bits_per_second() / (sockets.len() as u64).max(1);
            if set.abs_diff(each) > set / CHANGE_LEAST {
                let rate = Rate::from_bits_per_second(each);
                for socket in sockets {
                    let _ = tcp::set_max_pacing(socket.as_fd(), rate);
                }
                tracing::debug!(phase = ?control.phase(), ?each, "even");
                set = each;
            }
        }
        let due = now + control.interval();
        std::thread::sleep(due.saturating_since(clock::monotonic()).to_std());
    }
}

/// Receiver's window and send buffer.
const fn held_up_us(info: &TcpInfo) -> u64 {
    info.rwnd_limited_us + info.sndbuf_limited_us
}

impl Sum {
    /// The round trip is that of the stream that waits least: what waits in its own host for its part says
    /// nothing of the path.
    fn reading(&mut self, infos: &[TcpInfo]) -> Reading {
        self.before.resize(infos.len(), 0);
        for (info, before) in infos.iter().zip(&mut self.before) {
            let new = info.delivered_segments.wrapping_sub(*before) & u64::from(u32::MAX);
            *before = info.delivered_segments;
            self.delivered += new * info.snd_mss_bytes;
        }
        let round_trip = infos.iter().map(|info| info.rtt_us).min();
        Reading {
            delivered: self.delivered,
            retransmitted: infos.iter().map(|info| info.bytes_retrans).sum(),
            round_trip: Duration::from_us(round_trip.unwrap_or(0)),
            held_up: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_read_as_one_and_counters_may_wrap() {
        let info = |delivered: u64, rtt_us| TcpInfo {
            delivered_segments: delivered,
            snd_mss_bytes: 1_000,
            bytes_retrans: 5_000,
            rtt_us,
            ..TcpInfo::default()
        };
        let mut sum = Sum::default();
        sum.reading(&[info(u64::from(u32::MAX), 300), info(10, 200)]);
        let before = sum.delivered;
        let reading = sum.reading(&[info(2, 300), info(17, 250)]);
        assert_eq!(reading.delivered - before, 10_000);
        assert_eq!(reading.retransmitted, 10_000);
        assert_eq!(reading.round_trip, Duration::from_us(250));
    }
}
