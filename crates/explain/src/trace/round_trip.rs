//! Round trips from the capture point to one side and back.
//!
//! By ACKs: from data until the ACK that first covers them, none for what was sent more than once
//! (Karn) nor while duplicate ACKs or SACK show a hole. Of the segments that one ACK covers the
//! latest counts. By timestamps: from a packet with a new value until its echo; a side that had
//! nothing in flight may have waited for its application, so such an echo counts for nothing.

use std::collections::VecDeque;

use crate::trace::histogram::Histogram;
use crate::trace::number::later;

/// Round trips to a side.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct RoundTrip {
    least: u64,
    /// A value on its way, and when it passed.
    probe: Option<(u32, u64)>,
    /// The last one that passed: a clock's value counts for the first packet with it.
    last_value: Option<u32>,
    /// Least of the present samples and of those before.
    recent: [u64; 2],
    /// Since when the present ones are collected.
    recent_since: u64,
    smoothed: u64,
    variation: u64,
    pub(crate) by_ack: Histogram,
    pub(crate) by_timestamp: Histogram,
}

/// Data on their way: where each packet ends, and when it passed.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnTheWay {
    list: VecDeque<(u64, u64)>,
    /// Each so many packets one is noted.
    stride: u32,
    skipped: u32,
}

impl RoundTrip {
    pub(crate) fn new() -> Self {
        Self {
            least: u64::MAX,
            by_ack: Histogram::new(RTT_SHIFT),
            by_timestamp: Histogram::new(RTT_SHIFT),
            probe: None,
            last_value: None,
            recent: [u64::MAX; 2],
            recent_since: 0,
            smoothed: 0,
            variation: 0,
        }
    }

    pub(crate) fn add_by_ack(&mut self, ns: u64, now: u64) {
        self.by_ack.add(ns);
        self.add(ns, now);
    }

    /// The peer's packet with its clock's `value` passes on the way to this side.
    #[inline]
    pub(crate) fn on_value(&mut self, value: u32, now: u64) {
        if self.last_value != Some(value) {
            self.last_value = Some(value);
            self.probe = self.probe.or(Some((value, now)));
        }
    }

    /// This side echoes `echo`; a sample if `at_once` it answered.
    #[inline]
    pub(crate) fn on_echo(&mut self, echo: u32, now: u64, at_once: bool) -> Option<u64> {
        let (value, passed) = self.probe?;
        if later(value, echo) {
            return None;
        }
        self.probe = None;
        if echo != value || !at_once {
            return None;
        }
        let ns = now.saturating_sub(passed);
        self.by_timestamp.add(ns);
        self.add(ns, now);
        Some(ns)
    }

    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        self.least ^ self.by_ack.fetch()
    }

    /// The least.
    #[inline]
    pub(crate) fn min(&self) -> Option<u64> {
        (self.least < u64::MAX).then_some(self.least)
    }

    /// The least of the last samples: of one round trip at least, of two at most, and of one sample.
    pub(crate) fn recent(&self) -> Option<u64> {
        let least = self.recent[0].min(self.recent[1]);
        (least < u64::MAX).then_some(least)
    }

    /// Smoothed, and four times its variation (RFC 6298 section 2).
    pub(crate) fn smoothed(&self) -> (u64, u64) {
        (self.smoothed, self.variation.saturating_mul(4))
    }

    fn add(&mut self, ns: u64, now: u64) {
        if now.saturating_sub(self.recent_since) > ns {
            self.recent = [u64::MAX, self.recent[0]];
            self.recent_since = now;
        }
        self.recent[0] = self.recent[0].min(ns);
        self.least = self.least.min(ns);
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (ns, ns / 2);
        } else {
            let off = self.smoothed.abs_diff(ns);
            self.variation = self.variation - self.variation / 4 + off / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + ns / 8;
        }
    }
}

impl OnTheWay {
    /// Data up to `end` pass.
    #[inline]
    pub(crate) fn push(&mut self, end: u64, now: u64) {
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        if self.list.len() >= ON_THE_WAY_MAX {
            self.thin();
        }
        self.list.push_back((end, now));
    }

    /// When the latest packet passed that `ack` covers; it and those before are forgotten.
    #[inline]
    pub(crate) fn take(&mut self, ack: u64) -> Option<u64> {
        let mut passed = None;
        while let Some(&(end, time)) = self.list.front() {
            if end > ack {
                break;
            }
            passed = Some(time);
            self.list.pop_front();
        }
        if self.list.is_empty() {
            self.stride = 1;
        }
        passed
    }

    /// What is on its way was sent again, or waits for what was: it gives no sample.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.stride = 1;
    }

    /// Memory that it takes beside itself.
    pub(crate) fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<(u64, u64)>()
    }

    #[cold]
    fn thin(&mut self) {
        let mut keep = false;
        self.list.retain(|_| {
            keep = !keep;
            keep
        });
        self.stride = self.stride.max(1).saturating_mul(2);
    }
}

/// Times below 2^10 ns are told apart by 256 ns.
const RTT_SHIFT: u32 = 8;
/// 16 KiB; of more packets in flight each other one is noted, and so on.
const ON_THE_WAY_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_covered_packet_gives_the_sample() {
        let mut way = OnTheWay::default();
        way.push(100, 1);
        way.push(200, 2);
        way.push(300, 3);
        assert_eq!(way.take(99), None);
        assert_eq!(way.take(299), Some(2));
        assert_eq!(way.take(299), None);
        assert_eq!(way.take(300), Some(3));
    }

    #[test]
    fn many_packets_on_the_way_are_thinned_out() {
        let mut way = OnTheWay::default();
        (1..=10_000).for_each(|i| way.push(i, i));
        assert!(way.list.len() <= ON_THE_WAY_MAX);
        let passed = way.take(5_000).unwrap();
        assert!(passed <= 5_000 && passed > 4_980, "{passed}");
    }

    #[test]
    fn an_echo_counts_if_it_is_of_the_value_that_passed_and_at_once() {
        let mut trip = RoundTrip::new();
        trip.on_value(10, 1_000);
        trip.on_value(11, 2_000);
        assert_eq!(trip.on_echo(9, 3_000, true), None);
        assert_eq!(trip.on_echo(10, 4_000, true), Some(3_000));
        trip.on_value(11, 4_500);
        assert_eq!(trip.on_echo(11, 4_600, true), None);
        trip.on_value(12, 5_000);
        assert_eq!(trip.on_echo(12, 9_000, false), None);
        trip.on_value(13, 9_000);
        assert_eq!(trip.on_echo(14, 9_500, true), None);
        assert_eq!(trip.min(), Some(3_000));
    }

    #[test]
    fn recent_is_forgotten_after_two_round_trips() {
        let mut trip = RoundTrip::new();
        trip.add_by_ack(5, 100);
        trip.add_by_ack(50, 150);
        assert_eq!(trip.recent(), Some(5));
        trip.add_by_ack(50, 151);
        assert_eq!(trip.recent(), Some(5));
        trip.add_by_ack(50, 202);
        assert_eq!((trip.recent(), trip.min()), (Some(50), Some(5)));
    }
}
