//! Where a sender's time went: application, receive window, send buffer or network.
//!
//! The kernel keeps three clocks for each connection (Linux 4.10 and later,
//! net/ipv4/tcp.c, `tcp_get_info_chrono_stats`): `busy_time` runs while data is outstanding or
//! waiting, and of that time `rwnd_limited` and `sndbuf_limited` say what held it back. `busy_time`
//! already contains the other two, so over an interval
//!
//! * network = busy - rwnd_limited - sndbuf_limited (congestion window or pacing),
//! * application = elapsed - busy.
//!
//! **Resolution.** The clocks count jiffies: 4 ms at HZ=250, 1 to 10 ms elsewhere. An interval of
//! 100 ms is thus exact to some 4 % in each share, one of 10 ms says almost nothing, and a busy
//! time may exceed its interval by a jiffy; what exceeds is scaled back. Sums over a transfer
//! telescope, so their error stays one jiffy in all.
//!
//! **Where the clocks mislead.** On a long path data is outstanding even if the application writes
//! now and then: that time counts as busy, hence as network. Likewise a blocked writer is woken
//! when a third of its buffer is free, and is "busy" until the buffer is full again.
//! `explain::Facts` moves such time with the help of the app-limited mark; the shares here are the
//! kernel's own.

use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

use crate::sample::{Sample, StreamEvidence};

/// Shares of the sender's time, each in 0..=1, summing to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Nothing was outstanding or waiting.
    pub application: f64,
    /// Held back by the peer's window.
    pub receive_window: f64,
    /// Held back by the own send buffer.
    pub send_buffer: f64,
    /// Held back by congestion window or pacing.
    pub network: f64,
}

/// The time between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Begin, since the transfer's start.
    pub start: Duration,
    /// End.
    pub end: Duration,
    /// Where the time went; `None` when the kernel does not tell.
    pub shares: Option<Shares>,
    /// Payload acknowledged per second.
    pub delivered: Rate,
    /// Segments retransmitted.
    pub retransmitted_segments: u64,
    /// Smoothed round trip at its end.
    pub rtt: Duration,
}

/// Shares over all of `samples`; `None` with fewer than two readings, without time between them,
/// or from a kernel before 4.10, which does not tell.
pub fn shares(samples: &[Sample]) -> Option<Shares> {
    let (first, last) = (samples.first()?, samples.last()?);
    between(first, last)
}

/// Shares of several connections: the mean of those that tell.
pub fn shares_of_streams<'a>(streams: impl Iterator<Item = &'a [Sample]>) -> Option<Shares> {
    Shares::mean(streams.filter_map(shares))
}

/// The intervals of one connection. Readings without time between them make none.
pub fn intervals(samples: &[Sample]) -> Vec<Interval> {
    samples
        .windows(2)
        .filter_map(|pair| interval(&pair[0], &pair[1]))
        .collect()
}

/// The intervals of several connections that were read in turn: the n-th interval is the n-th of
/// each, with shares and round trips averaged, rates and segments added.
pub fn intervals_of_streams(streams: &[StreamEvidence]) -> Vec<Interval> {
    let each: Vec<Vec<Interval>> = streams.iter().map(|s| intervals(&s.samples)).collect();
    let longest = each.iter().map(Vec::len).max().unwrap_or(0);
    let nth = |n: usize| {
        each.iter()
            .filter_map(move |list| list.get(n).copied())
            .collect()
    };
    (0..longest).map(|n| merge(nth(n))).collect()
}

impl Shares {
    /// The mean of several; `None` of none.
    pub fn mean(each: impl Iterator<Item = Self>) -> Option<Self> {
        let mut sum = Self {
            application: 0.0,
            receive_window: 0.0,
            send_buffer: 0.0,
            network: 0.0,
        };
        let mut count = 0.0_f64;
        for shares in each {
            sum.application += shares.application;
            sum.receive_window += shares.receive_window;
            sum.send_buffer += shares.send_buffer;
            sum.network += shares.network;
            count += 1.0;
        }
        (count > 0.0).then(|| Self::of_parts(sum, count))
    }

    /// Receive window and send buffer together: two ends of the same limit. At most 1, whatever
    /// rounding does to the sum.
    pub fn window(&self) -> f64 {
        (self.receive_window + self.send_buffer).min(1.0)
    }

    /// Divides by the whole; every part must lie in 0..=whole.
    fn of_parts(parts: Self, whole: f64) -> Self {
        let share = |part: f64| (part / whole).clamp(0.0, 1.0);
        Self {
            application: share(parts.application),
            receive_window: share(parts.receive_window),
            send_buffer: share(parts.send_buffer),
            network: share(parts.network),
        }
    }
}

fn between(from: &Sample, to: &Sample) -> Option<Shares> {
    let elapsed_us = (to.t - from.t).as_ns() as f64 / 1e3;
    if elapsed_us <= 0.0 || to.info.len_bytes < CHRONO_LEN_BYTES {
        return None;
    }
    let delta =
        |field: fn(&TcpInfo) -> u64| field(&to.info).saturating_sub(field(&from.info)) as f64;
    let receive_window = delta(|i| i.rwnd_limited_us);
    let send_buffer = delta(|i| i.sndbuf_limited_us);
    let network = (delta(|i| i.busy_time_us) - receive_window - send_buffer).max(0.0);
    // Rounding to jiffies can make the parts exceed the interval: then they are the whole.
    let busy = receive_window + send_buffer + network;
    let whole = busy.max(elapsed_us);
    let application = whole - busy;
    Some(Shares::of_parts(
        Shares {
            application,
            receive_window,
            send_buffer,
            network,
        },
        whole,
    ))
}

fn interval(from: &Sample, to: &Sample) -> Option<Interval> {
    let elapsed = to.t - from.t;
    if elapsed == Duration::ZERO {
        return None;
    }
    let delivered = Bytes::new(delivered_bytes(to).saturating_sub(delivered_bytes(from)));
    Some(Interval {
        start: from.t,
        end: to.t,
        shares: between(from, to),
        delivered: Rate::average(delivered, elapsed),
        retransmitted_segments: delta_u32(
            from.info.total_retrans_segments,
            to.info.total_retrans_segments,
        ),
        rtt: rtt(&to.info),
    })
}

fn merge(each: Vec<Interval>) -> Interval {
    let add = |sum: u64, next: u64| sum.saturating_add(next);
    let rates = each.iter().map(|i| i.delivered.as_bits_per_second());
    let rtts = each.iter().map(|i| i.rtt.as_ns()).filter(|&ns| ns > 0);
    let rtt_count = u64::try_from(rtts.clone().count())
        .unwrap_or(u64::MAX)
        .max(1);
    Interval {
        start: each.iter().map(|i| i.start).min().unwrap_or_default(),
        end: each.iter().map(|i| i.end).max().unwrap_or_default(),
        shares: Shares::mean(each.iter().filter_map(|i| i.shares)),
        delivered: Rate::from_bits_per_second(rates.fold(0, add)),
        retransmitted_segments: each.iter().map(|i| i.retransmitted_segments).fold(0, add),
        rtt: Duration::from_ns(rtts.fold(0, add) / rtt_count),
    }
}

/// Payload that the peer has acknowledged; before Linux 4.1, what the application handed over.
pub(crate) fn delivered_bytes(sample: &Sample) -> u64 {
    if sample.info.bytes_acked > 0 {
        sample.info.bytes_acked
    } else {
        sample.app_bytes.as_u64()
    }
}

/// Smoothed round trip; a hostile or damaged reading saturates.
pub fn rtt(info: &TcpInfo) -> Duration {
    Duration::from_ns(info.rtt_us.saturating_mul(1_000))
}

/// Growth of a counter that the kernel keeps in 32 bits: a step back by more than half the range
/// is a wrap, a smaller one a counter that went backwards and counts as no growth.
pub fn delta_u32(from: u64, to: u64) -> u64 {
    const RANGE: u64 = 1 << 32;
    match to.checked_sub(from) {
        Some(growth) => growth,
        None if from < RANGE && from - to > RANGE / 2 => to + RANGE - from,
        None => 0,
    }
}

/// Bytes of `tcp_info` up to and including `tcpi_sndbuf_limited` (Linux 4.10).
const CHRONO_LEN_BYTES: usize = 192;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(t_ms: u64, busy: u64, rwnd: u64, sndbuf: u64) -> Sample {
        let info = TcpInfo {
            len_bytes: 280,
            busy_time_us: busy * 1_000,
            rwnd_limited_us: rwnd * 1_000,
            sndbuf_limited_us: sndbuf * 1_000,
            ..TcpInfo::default()
        };
        Sample {
            t: Duration::from_ms(t_ms),
            info,
            app_bytes: Bytes::default(),
        }
    }

    fn assert_close(shares: Shares, expected: [f64; 4]) {
        let found = [
            shares.application,
            shares.receive_window,
            shares.send_buffer,
            shares.network,
        ];
        for (a, b) in found.into_iter().zip(expected) {
            assert!((a - b).abs() < 1e-9, "{found:?} against {expected:?}");
        }
    }

    #[test]
    fn busy_time_contains_the_two_limited_times() {
        let samples = [sample(1_000, 900, 100, 50), sample(2_000, 1_700, 500, 250)];
        assert_close(shares(&samples).unwrap(), [0.2, 0.4, 0.2, 0.2]);
    }

    #[test]
    fn a_busy_time_beyond_its_interval_is_scaled_back() {
        let samples = [sample(0, 0, 0, 0), sample(10, 12, 6, 0)];
        assert_close(shares(&samples).unwrap(), [0.0, 0.5, 0.0, 0.5]);
    }

    #[test]
    fn rounding_lifts_no_sum_of_shares_above_one() {
        let shares = Shares {
            application: 0.0,
            receive_window: 1.0,
            send_buffer: 2.2e-12,
            network: 0.0,
        };
        assert_eq!(shares.window(), 1.0);
    }

    #[test]
    fn one_reading_or_an_old_kernel_tells_nothing() {
        assert_eq!(shares(&[sample(0, 0, 0, 0)]), None);
        let mut old = [sample(0, 0, 0, 0), sample(10, 8, 0, 0)];
        old[1].info.len_bytes = 160;
        assert_eq!(shares(&old), None);
        assert!(intervals(&[sample(5, 0, 0, 0), sample(5, 1, 0, 0)]).is_empty());
    }

    #[test]
    fn streams_are_averaged_interval_by_interval() {
        let a = StreamEvidence {
            samples: vec![sample(0, 0, 0, 0), sample(10, 10, 10, 0)],
        };
        let b = StreamEvidence {
            samples: vec![sample(1, 0, 0, 0), sample(11, 10, 0, 0)],
        };
        let merged = intervals_of_streams(&[a, b]);
        assert_eq!(merged.len(), 1);
        assert_close(merged[0].shares.unwrap(), [0.0, 0.5, 0.0, 0.5]);
        assert_eq!(
            (merged[0].start, merged[0].end),
            (Duration::ZERO, Duration::from_ms(11))
        );
    }

    #[test]
    fn a_wrapped_counter_grows_and_a_backward_one_stands_still() {
        assert_eq!(delta_u32(10, 25), 15);
        assert_eq!(delta_u32(u64::from(u32::MAX), 4), 5);
        assert_eq!(delta_u32(25, 10), 0);
        assert_eq!(delta_u32(u64::MAX, 0), 0);
    }
}
