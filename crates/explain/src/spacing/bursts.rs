//! Bursts: packets one behind the other, without an idle time between them.
//!
//! What counts as an idle time is not known before all is seen, so bursts are kept for every limit that is
//! a power of two of nanoseconds at once: a gap ends those bursts whose limit it exceeds, and as most gaps
//! are short, that is few of them.

use units::{Bytes, Duration, Instant, Rate};

/// Counts the bursts of one direction at one point.
#[derive(Clone, Debug)]
pub struct Bursts {
    last_at: Option<Instant>,
    runs: [Run; LIMITS],
}

/// The bursts that one limit makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// The longest gap within a burst.
    pub limit: Duration,
    /// Bursts, the one under way included.
    pub bursts: u64,
    /// Packets of all of them.
    pub packets: u64,
    /// Packets of the longest.
    pub longest_packets: u64,
    /// Bytes of the one with the most bytes.
    pub longest_bytes: Bytes,
    /// Bursts by their packets: 1, 2 to 3, 4 to 7, and so on; the last holds all longer ones.
    pub by_packets: [u64; LENGTHS],
    /// Bytes of bursts of two packets and more, without the first packet of each.
    bytes: u64,
    /// Time from the first to the last packet of these.
    lasted_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    ended: Burst,
    packets: u64,
    bytes: u64,
    first_bytes: u64,
    since: Instant,
    until: Instant,
}

impl Default for Bursts {
    fn default() -> Self {
        Self::new()
    }
}

impl Bursts {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self {
            last_at: None,
            runs: [Run::default(); LIMITS],
        }
    }

    /// A packet of `wire_bytes` was seen. One with a stamp before the last is taken to come with the last.
    pub fn take(&mut self, at: Instant, wire_bytes: u32) {
        let last_at = self.last_at.unwrap_or(at);
        let at = at.max(last_at);
        self.last_at = Some(at);
        let gap_ns = at.saturating_since(last_at).as_ns();
        // Limits 2^k below the gap end: all k with 2^k < gap.
        let ended = (64 - gap_ns.saturating_sub(1).leading_zeros()).saturating_sub(FIRST_LIMIT);
        let ended = (ended as usize).min(LIMITS);
        for run in &mut self.runs[..ended] {
            run.end();
        }
        for run in &mut self.runs {
            run.add(at, u64::from(wire_bytes));
        }
    }

    /// The bursts whose gaps are `limit` at most, rounded down to a power of two of nanoseconds from 64 ns
    /// to 4.3 s.
    pub fn within(&self, limit: Duration) -> Burst {
        let power = limit.as_ns().max(1).ilog2().saturating_sub(FIRST_LIMIT);
        let index = (power as usize).min(LIMITS - 1);
        let mut run = self.runs[index];
        run.end();
        run.ended.limit = Duration::from_ns(1 << (FIRST_LIMIT as usize + index));
        run.ended
    }
}

impl Burst {
    /// Rate within bursts, from each one's first packet to its last; zero where no burst has two.
    pub fn rate(&self) -> Rate {
        Rate::average(Bytes::new(self.bytes), Duration::from_ns(self.lasted_ns))
    }

    /// Packets of a burst, on average; zero of none.
    pub fn mean_packets(&self) -> f64 {
        self.packets as f64 / self.bursts.max(1) as f64
    }
}

impl Run {
    fn add(&mut self, at: Instant, bytes: u64) {
        if self.packets == 0 {
            (self.since, self.first_bytes) = (at, bytes);
        }
        self.packets += 1;
        self.bytes += bytes;
        self.until = at;
    }

    fn end(&mut self) {
        if self.packets == 0 {
            return;
        }
        let total = &mut self.ended;
        total.bursts += 1;
        total.packets += self.packets;
        total.longest_packets = total.longest_packets.max(self.packets);
        total.longest_bytes = total.longest_bytes.max(Bytes::new(self.bytes));
        total.by_packets[(self.packets.ilog2() as usize).min(LENGTHS - 1)] += 1;
        total.bytes += self.bytes - self.first_bytes;
        total.lasted_ns += self.until.saturating_since(self.since).as_ns();
        (self.packets, self.bytes) = (0, 0);
    }
}

/// 2^6 ns: a minimal frame lasts 67 ns at 10 Gb/s.
const FIRST_LIMIT: u32 = 6;
const LIMITS: usize = 27;
/// The last counts bursts of 2^20 packets and more.
const LENGTHS: usize = 21;

#[cfg(test)]
mod tests {
    use super::*;

    /// `bursts` of `packets` each, 1 us apart, one burst each ms.
    fn regular(bursts: u64, packets: u64) -> Bursts {
        let mut counted = Bursts::new();
        for burst in 0..bursts {
            for packet in 0..packets {
                counted.take(Instant::from_ns(burst * 1_000_000 + packet * 1_000), 1250);
            }
        }
        counted
    }

    #[test]
    fn a_limit_between_both_gaps_finds_the_bursts() {
        let found = regular(10, 40).within(Duration::from_us(100));
        assert_eq!(
            (found.bursts, found.packets, found.longest_packets),
            (10, 400, 40)
        );
        assert_eq!(found.by_packets[5], 10);
        assert_eq!(found.longest_bytes, Bytes::new(50_000));
        // 1250 B each us.
        assert_eq!(found.rate(), Rate::from_bits_per_second(10_000_000_000));
        assert!((found.mean_packets() - 40.0).abs() < 1e-9);
    }

    #[test]
    fn a_limit_below_all_gaps_finds_single_packets_and_one_above_a_single_burst() {
        let counted = regular(10, 40);
        let single = counted.within(Duration::from_ns(999));
        assert_eq!((single.bursts, single.by_packets[0]), (400, 400));
        assert_eq!(single.rate(), Rate::default());
        assert_eq!(counted.within(Duration::from_ms(2)).bursts, 1);
    }

    #[test]
    fn a_gap_of_exactly_the_limit_ends_nothing() {
        let mut counted = Bursts::new();
        for at in [0, 1_024, 2_049] {
            counted.take(Instant::from_ns(at), 100);
        }
        assert_eq!(counted.within(Duration::from_ns(1_024)).bursts, 2);
        assert_eq!(counted.within(Duration::from_ns(2_048)).bursts, 1);
        assert_eq!(counted.within(Duration::from_ns(1_023)).bursts, 3);
    }

    #[test]
    fn nothing_and_stamps_that_go_back_are_borne() {
        let mut counted = Bursts::new();
        assert_eq!(counted.within(Duration::ZERO).bursts, 0);
        counted.take(Instant::from_ns(u64::MAX), u32::MAX);
        counted.take(Instant::ZERO, 1);
        assert_eq!(counted.within(Duration::from_s(9_999)).packets, 2);
    }
}
