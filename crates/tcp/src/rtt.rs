//! Round trips and what follows from them: the smoothed one, its variation, the retransmission
//! timeout (RFC 6298 sections 2 and 5), the smallest one.
//!
//! As Linux (net/ipv4/tcp_input.c, `tcp_rtt_estimator`) does it where that differs from the RFC: the variation
//! is the largest of a round trip and falls once a round trip, a sample below the smoothed value counts less
//! in it, and the timeout is the smoothed round trip plus the variation, that at least 200 ms.

use units::{Duration, Instant};

/// What is known of a connection's round trip.
#[derive(Clone, Debug)]
pub struct Rtt {
    /// Eight times the smoothed round trip, ns; 0 before the first sample.
    srtt8: u64,
    /// Four times the mean deviation.
    mdev4: u64,
    /// Largest of it in this round trip.
    mdev_max: u64,
    /// What counts.
    rttvar: u64,
    /// Round trip at whose end the variation may fall: a segment.
    round_end: u64,
    backoff: u32,
    min: Duration,
    min_at: Instant,
    latest: Duration,
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            srtt8: 0,
            mdev4: 0,
            mdev_max: 0,
            rttvar: 0,
            round_end: 0,
            backoff: 0,
            min: Duration::from_ns(u64::MAX),
            min_at: Instant::ZERO,
            latest: Duration::ZERO,
        }
    }
}

impl Rtt {
    /// Takes a sample. `una` and `next` are the first segment not acknowledged and the next new one.
    pub fn on_sample(&mut self, now: Instant, sample: Duration, una: u64, next: u64) {
        let m = sample.as_ns().max(1);
        self.latest = Duration::from_ns(m);
        if self.latest <= self.min || now.saturating_since(self.min_at) > MIN_RTT_WINDOW {
            self.min = self.latest;
            self.min_at = now;
        }
        self.backoff = 0;
        if self.srtt8 == 0 {
            self.srtt8 = m * 8;
            self.mdev4 = m * 2;
            self.rttvar = self.mdev4.max(RTO_MIN.as_ns());
            self.mdev_max = self.rttvar;
            self.round_end = next;
            return;
        }
        let smoothed = self.srtt8 / 8;
        let away = m.abs_diff(smoothed);
        self.srtt8 = self.srtt8 - smoothed + m;
        let deviation = self.mdev4 / 4;
        if m < smoothed && away > deviation {
            // A round trip that fell sharply says little about how late the next may be.
            self.mdev4 += (away - deviation) / 8;
        } else {
            self.mdev4 = self.mdev4 - deviation + away;
        }
        if self.mdev4 > self.mdev_max {
            self.mdev_max = self.mdev4;
            self.rttvar = self.rttvar.max(self.mdev_max);
        }
        if una > self.round_end {
            if self.mdev_max < self.rttvar {
                self.rttvar -= (self.rttvar - self.mdev_max) / 4;
            }
            self.round_end = next;
            self.mdev_max = RTO_MIN.as_ns();
        }
    }

    /// Doubles the timeout (RFC 6298 5.5), until the next sample.
    pub const fn back_off(&mut self) {
        self.backoff = if self.backoff < 16 {
            self.backoff + 1
        } else {
            16
        };
    }

    /// The retransmission timeout, back-off included.
    pub fn timeout(&self) -> Duration {
        let base = if self.srtt8 == 0 {
            RTO_INITIAL.as_ns()
        } else {
            self.srtt8 / 8 + self.rttvar
        };
        let backed_off = base.saturating_mul(1 << self.backoff);
        Duration::from_ns(backed_off.min(RTO_MAX.as_ns()))
    }

    /// The smoothed round trip; zero before the first sample.
    pub const fn smoothed(&self) -> Duration {
        Duration::from_ns(self.srtt8 / 8)
    }

    /// Smallest round trip of the last five minutes.
    pub fn min(&self) -> Option<Duration> {
        (self.srtt8 > 0).then_some(self.min)
    }

    /// The newest sample.
    pub const fn latest(&self) -> Duration {
        self.latest
    }
}

/// Linux, include/net/tcp.h `TCP_RTO_MIN`; RFC 6298 2.4 would have 1 s.
pub(crate) const RTO_MIN: Duration = Duration::from_ms(200);
/// RFC 6298 2.1.
pub(crate) const RTO_INITIAL: Duration = Duration::from_s(1);
/// Linux, `TCP_RTO_MAX`; RFC 6298 2.5 allows 60 s or more.
pub(crate) const RTO_MAX: Duration = Duration::from_s(120);
/// Linux, net.ipv4.tcp_min_rtt_wlen.
const MIN_RTT_WINDOW: Duration = Duration::from_s(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_round_trip_gives_itself_and_200_ms() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(), RTO_INITIAL);
        for n in 0..1_000 {
            let now = Instant::from_ns(n * 1_000_000);
            rtt.on_sample(now, Duration::from_ms(85), n, n + 10);
        }
        assert_eq!(rtt.smoothed(), Duration::from_ms(85));
        assert_eq!(rtt.timeout(), Duration::from_ms(285));
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.timeout(), Duration::from_ms(4 * 285));
        for _ in 0..40 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), RTO_MAX);
    }

    #[test]
    fn the_smallest_round_trip_is_kept_until_it_is_old() {
        let mut rtt = Rtt::default();
        rtt.on_sample(Instant::ZERO, Duration::from_ms(10), 0, 1);
        rtt.on_sample(Instant::from_ns(1), Duration::from_ms(20), 1, 2);
        assert_eq!(rtt.min(), Some(Duration::from_ms(10)));
        let late = Instant::ZERO + MIN_RTT_WINDOW + Duration::from_ns(1);
        rtt.on_sample(late, Duration::from_ms(20), 2, 3);
        assert_eq!(rtt.min(), Some(Duration::from_ms(20)));
    }
}
