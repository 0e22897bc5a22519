//! Rate samples: how fast was delivered what was sent (draft-cheng-iccrg-delivery-rate-estimation-02,
//! net/ipv4/tcp_rate.c).
//!
//! Each burst carries how much had been delivered when it left. When it arrives, what was delivered since, over the
//! longer of the times in which that was sent and acknowledged, is a sample of the path's rate.

use units::{Duration, Instant};

use crate::cc::Sample;

/// What a burst remembers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// In flight with it, and lost until then, the latter's lowest bits.
    pub(crate) in_flight: u32,
    pub(crate) lost: u32,
    pub(crate) app_limited: bool,
}

impl Stamp {
    /// Of an earlier segment of the burst, so many before its last one.
    pub(crate) const fn of_earlier(self, segments: u64) -> Self {
        Self {
            in_flight: self.in_flight.saturating_sub(small(segments)),
            ..self
        }
    }

    /// Lost since, of so many in all.
    pub(crate) const fn lost_since(&self, lost_total: u64) -> u64 {
        small(lost_total).wrapping_sub(self.lost) as u64
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the lowest bits are wanted"
)]
const fn small(segments: u64) -> u32 {
    segments as u32
}

/// Counts what arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Nothing was left to send when so many were delivered or in flight; 0: there was.
    app_limited: u64,
    newest: Option<(Instant, u64, Stamp)>,
}

impl Meter {
    /// For a burst that leaves now, `alone` if nothing else is in flight; with it so much is, and so much has been lost.
    pub(crate) fn stamp(
        &mut self,
        now: Instant,
        alone: bool,
        in_flight: u64,
        lost_total: u64,
    ) -> Stamp {
        if alone {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Stamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight: small(in_flight),
            lost: small(lost_total),
            app_limited: self.app_limited > 0,
        }
    }

    /// What was sent of late was all that there was.
    pub(crate) const fn is_app_limited(&self) -> bool {
        self.app_limited > 0
    }

    /// The application has nothing more, though the window would let it.
    pub(crate) fn on_nothing_to_send(&mut self, in_flight: u64) {
        self.app_limited = (self.delivered + in_flight).max(1);
    }

    /// A segment that ends before `end` and was sent at `at` has arrived. The newest one counts.
    pub(crate) fn on_arrival(&mut self, at: Instant, end: u64, stamp: Stamp) {
        if self.newest.is_none_or(|(a, e, _)| (at, end) > (a, e)) {
            self.newest = Some((at, end, stamp));
        }
    }

    /// The sample of an acknowledgment that brought `acked` segments.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        acked: u64,
        rtt_min: Duration,
        lost_total: u64,
    ) -> Sample {
        self.delivered += acked;
        if acked > 0 {
            self.delivered_at = now;
        }
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let mut sample = Sample {
            now,
            acked,
            delivered_total: self.delivered,
            ..Sample::default()
        };
        if let Some((at, _, stamp)) = self.newest.take() {
            let sending = at.saturating_since(stamp.first_sent_at);
            let acking = now.saturating_since(stamp.delivered_at);
            self.first_sent_at = at;
            let interval = sending.max(acking);
            sample.prior_delivered = Some(stamp.delivered);
            sample.app_limited = stamp.app_limited;
            sample.sent_in_flight = stamp.in_flight.into();
            sample.lost_since = stamp.lost_since(lost_total);
            if interval >= rtt_min {
                sample.interval = interval;
            }
        }
        sample
    }
}
