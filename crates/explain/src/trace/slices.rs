//! A side's course over time in a bounded number of slices.
//!
//! Slices begin 10 ms wide. When there are too many, neighbours are merged and the width doubles. A
//! connection may have 16, and more the more packets it has, up to 256, so that short ones stay
//! small. Times by limit are kept in ticks of 64 ns, as differences of rounded instants: their sums
//! are exact to a tick; a slice holds 275 s at most, what is wider saturates.

use units::{Duration, Instant};

use crate::trace::limits::{LIMITS, Limit, STATES};
use crate::trace::number::{saturated, whole};

/// The course of one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Slices {
    /// When the first one begins.
    pub start: Instant,
    /// How long each is; the last may not be over.
    pub width: Duration,
    /// In their order, without gaps.
    pub list: Vec<Slice>,
}

/// What happened in one slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Payload sent, repeated bytes too.
    pub sent_bytes: u64,
    /// Payload that the peer acknowledged.
    pub acked_bytes: u64,
    /// Segments sent once more.
    pub retransmitted_segments: u32,
    /// Shortest round trip, capture point to receiver and back; `u32::MAX` without one.
    pub rtt_ns_min: u32,
    /// Round trips seen.
    pub rtt_count: u32,
    /// Most bytes in flight.
    pub flight_bytes_max: u32,
    /// Smallest window that the peer offered; `u32::MAX` where it offered none.
    pub window_bytes_min: u32,
    rtt_ns_sum: u64,
    flight_byte_ns: f64,
    ticks: [u32; STATES],
}

/// Slices that are still being written.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    start: u64,
    width: u64,
    /// End of the last slice.
    end: u64,
    list: Vec<Slice>,
}

impl Slice {
    const EMPTY: Self = Self {
        sent_bytes: 0,
        acked_bytes: 0,
        retransmitted_segments: 0,
        rtt_ns_min: u32::MAX,
        rtt_count: 0,
        flight_bytes_max: 0,
        window_bytes_min: u32::MAX,
        rtt_ns_sum: 0,
        flight_byte_ns: 0.0,
        ticks: [0; STATES],
    };

    /// Mean round trip; `None` without one.
    pub fn rtt_mean(&self) -> Option<Duration> {
        let mean = self.rtt_ns_sum.checked_div(u64::from(self.rtt_count))?;
        Some(Duration::from_ns(mean))
    }

    /// Bytes in flight, mean over a slice of `width`.
    pub fn flight_bytes_mean(&self, width: Duration) -> u64 {
        whole(self.flight_byte_ns / width.as_ns().max(1) as f64)
    }

    /// How long this limit held in it.
    pub fn time(&self, limit: Limit) -> Duration {
        let ticks = self.ticks.get(limit as usize).copied().unwrap_or_default();
        Duration::from_ns(u64::from(ticks) << TICK_SHIFT)
    }

    /// All times together: the slice's width, but for the first and the last.
    pub fn time_known(&self) -> Duration {
        let ticks = self
            .ticks
            .iter()
            .take(LIMITS)
            .map(|&t| u64::from(t))
            .sum::<u64>();
        Duration::from_ns(ticks << TICK_SHIFT)
    }

    pub(crate) fn rtt(&mut self, ns: u64) {
        self.rtt_ns_min = self.rtt_ns_min.min(saturated(ns));
        self.rtt_ns_sum = self.rtt_ns_sum.saturating_add(ns);
        self.rtt_count = self.rtt_count.saturating_add(1);
    }

    pub(crate) fn flight(&mut self, bytes: u64) {
        self.flight_bytes_max = self.flight_bytes_max.max(saturated(bytes));
    }

    pub(crate) fn window(&mut self, bytes: u64) {
        self.window_bytes_min = self.window_bytes_min.min(saturated(bytes));
    }

    fn merge(&mut self, next: &Self) {
        self.sent_bytes = self.sent_bytes.saturating_add(next.sent_bytes);
        self.acked_bytes = self.acked_bytes.saturating_add(next.acked_bytes);
        self.retransmitted_segments = self
            .retransmitted_segments
            .saturating_add(next.retransmitted_segments);
        self.rtt_ns_min = self.rtt_ns_min.min(next.rtt_ns_min);
        self.rtt_count = self.rtt_count.saturating_add(next.rtt_count);
        self.rtt_ns_sum = self.rtt_ns_sum.saturating_add(next.rtt_ns_sum);
        self.flight_bytes_max = self.flight_bytes_max.max(next.flight_bytes_max);
        self.window_bytes_min = self.window_bytes_min.min(next.window_bytes_min);
        self.flight_byte_ns += next.flight_byte_ns;
        for (to, from) in self.ticks.iter_mut().zip(next.ticks) {
            *to = to.saturating_add(from);
        }
    }
}

impl Writer {
    pub(crate) fn new(start: u64) -> Self {
        // As many as a connection of few packets may have, in one piece of memory.
        let mut list = Vec::with_capacity(SLICES_MIN);
        list.push(Slice::EMPTY);
        Self {
            start,
            width: WIDTH_NS_MIN,
            end: start.saturating_add(WIDTH_NS_MIN),
            list,
        }
    }

    /// The slice of `now`, which is not before that of any earlier call; `packets` is how many the
    /// connection has had, which says how many slices it may have.
    #[inline]
    pub(crate) fn at(&mut self, now: u64, packets: u64) -> &mut Slice {
        if now >= self.end && self.end < u64::MAX {
            self.extend(now, packets);
        }
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        self.list.last().map_or(0, |slice| {
            slice.sent_bytes ^ u64::from(slice.ticks[STATES - 1])
        })
    }

    /// Adds the time from `from` to `to` to a state, and what it was in flight.
    #[inline]
    pub(crate) fn spend(&mut self, state: usize, from: u64, to: u64, flight: u64, packets: u64) {
        let begin = self.end.saturating_sub(self.width);
        if from >= begin && to <= self.end {
            let last = self.list.len() - 1;
            self.list[last].add_time(state, from, to, flight);
            return;
        }
        self.at(to, packets);
        self.each(from, to, |slice, from, to| {
            slice.add_time(state, from, to, flight)
        });
    }

    /// What was put on the account of `from` between two times goes to `to`.
    pub(crate) fn move_time(&mut self, from: usize, to: usize, begin: u64, end: u64) {
        self.each(begin, end, |slice, _, _| {
            let ticks = std::mem::take(&mut slice.ticks[from]);
            slice.ticks[to] = slice.ticks[to].saturating_add(ticks);
        });
    }

    /// The same, and no more than the time between the two in each slice.
    pub(crate) fn move_time_within(&mut self, from: usize, to: usize, begin: u64, end: u64) {
        self.each(begin, end, |slice, begin, end| {
            let ticks =
                saturated((end >> TICK_SHIFT) - (begin >> TICK_SHIFT)).min(slice.ticks[from]);
            slice.ticks[from] -= ticks;
            slice.ticks[to] = slice.ticks[to].saturating_add(ticks);
        });
    }

    /// Memory that it takes beside itself.
    pub(crate) const fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<Slice>()
    }

    pub(crate) fn into_slices(self) -> Slices {
        Slices {
            start: Instant::from_ns(self.start),
            width: Duration::from_ns(self.width),
            list: self.list,
        }
    }

    /// Each slice that lies between the two times, with its part of them.
    fn each(&mut self, from: u64, to: u64, mut act: impl FnMut(&mut Slice, u64, u64)) {
        let first = usize::try_from(from.saturating_sub(self.start) / self.width);
        let first = first.map_or(0, |i| i.min(self.list.len() - 1));
        let mut at = self.start + self.width.saturating_mul(first as u64);
        let count = self.list.len();
        for (i, slice) in self.list.iter_mut().enumerate().skip(first) {
            let end = if i + 1 == count {
                u64::MAX
            } else {
                at.saturating_add(self.width)
            };
            act(slice, from.max(at).min(to), to.min(end).max(from));
            at = end;
            if at >= to {
                break;
            }
        }
    }

    #[cold]
    fn extend(&mut self, now: u64, packets: u64) {
        let wanted = usize::try_from(packets / PACKETS_PER_SLICE).unwrap_or(SLICES_MAX);
        let room = wanted.clamp(SLICES_MIN, SLICES_MAX).max(self.list.len());
        let since = now - self.start;
        while since / self.width >= room as u64 {
            self.halve();
        }
        let len = usize::try_from(since / self.width).unwrap_or(SLICES_MAX) + 1;
        self.list.resize(len.max(self.list.len()), Slice::EMPTY);
        let span = self.width.saturating_mul(self.list.len() as u64);
        self.end = self.start.saturating_add(span);
    }

    fn halve(&mut self) {
        let len = self.list.len();
        for i in 0..len.div_ceil(2) {
            let mut one = self.list[2 * i];
            if let Some(two) = self.list.get(2 * i + 1) {
                one.merge(two);
            }
            self.list[i] = one;
        }
        self.list.truncate(len.div_ceil(2));
        self.width = self.width.saturating_mul(2);
    }
}

impl Slice {
    #[inline]
    fn add_time(&mut self, state: usize, from: u64, to: u64, flight: u64) {
        let ticks = saturated((to >> TICK_SHIFT) - (from >> TICK_SHIFT));
        self.ticks[state] = self.ticks[state].saturating_add(ticks);
        self.flight_byte_ns += flight as f64 * (to - from) as f64;
    }
}

const WIDTH_NS_MIN: u64 = 10_000_000;
const SLICES_MIN: usize = 16;
const SLICES_MAX: usize = 256;
/// So that a slice costs no more memory than its packets would.
const PACKETS_PER_SLICE: u64 = 8;
const TICK_SHIFT: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: usize = Limit::Unknown as usize;

    #[test]
    fn neighbours_merge_when_there_are_too_many() {
        let mut writer = Writer::new(0);
        for i in 0..16 {
            writer.at(i * WIDTH_NS_MIN, 0).sent_bytes += 1;
        }
        assert_eq!((writer.list.len(), writer.width), (16, WIDTH_NS_MIN));
        writer.at(16 * WIDTH_NS_MIN, 0).sent_bytes += 1;
        let slices = writer.into_slices();
        assert_eq!(slices.width, Duration::from_ms(20));
        let sent: Vec<u64> = slices.list.iter().map(|s| s.sent_bytes).collect();
        assert_eq!(sent, [2, 2, 2, 2, 2, 2, 2, 2, 1]);
    }

    #[test]
    fn a_span_over_several_slices_is_shared_by_them() {
        let mut writer = Writer::new(1_000);
        let end = 1_000 + 3 * WIDTH_NS_MIN + 500_000;
        writer.spend(OPEN, 1_000 + 2_000_000, end, 10, 0);
        let slices = writer.into_slices();
        let times: Vec<u64> = slices
            .list
            .iter()
            .map(|s| s.time(Limit::Unknown).as_ns())
            .collect();
        assert_eq!(times.len(), 4);
        for (time, wanted) in times
            .iter()
            .zip([8_000_000, 10_000_000, 10_000_000, 500_000])
        {
            assert!(time.abs_diff(wanted) <= 64, "{times:?}");
        }
        assert_eq!(slices.list[1].flight_bytes_mean(slices.width), 10);
        assert_eq!(slices.list[0].flight_bytes_mean(slices.width), 8);
    }

    #[test]
    fn a_gap_of_all_time_is_no_trouble() {
        let mut writer = Writer::new(5);
        writer.spend(OPEN, 5, u64::MAX, 1, 1 << 40);
        writer.at(u64::MAX, 1 << 40).sent_bytes += 1;
        assert!(writer.list.len() <= SLICES_MAX);
    }

    #[test]
    fn moved_time_leaves_the_sum() {
        let mut writer = Writer::new(0);
        writer.spend(OPEN, 0, 25_000_000, 0, 0);
        let to = Limit::Bottleneck as usize;
        writer.move_time_within(OPEN, to, 5_000_000, 12_000_000);
        let sum = |w: &Writer, i: usize| w.list.iter().map(|s| u64::from(s.ticks[i])).sum::<u64>();
        assert_eq!(sum(&writer, to) << 6, 7_000_000);
        assert_eq!(sum(&writer, OPEN) << 6, 18_000_000);
        writer.move_time(OPEN, to, 0, 25_000_000);
        assert_eq!((sum(&writer, OPEN), sum(&writer, to) << 6), (0, 25_000_000));
    }
}
