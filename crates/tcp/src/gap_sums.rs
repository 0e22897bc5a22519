//! Streams of one sender as one: what they deliver together for [`GapControl`](crate::gap_control::GapControl), and what it
//! finds shared out among them as ceilings.

use std::collections::{BTreeMap, BTreeSet};

use units::{Duration, Instant, Rate};
use wire::tcp_info::TcpInfo;

use crate::gap_control::Reading;

/// What is held up for less than this at a time is not seen: the kernel counts it in jiffies.
const HELD_UP_SPAN: Duration = Duration::from_ms(20);
/// Ceilings that change by less than a two-hundredth are not worth a system call.
const CHANGE_LEAST: u64 = 200;
/// How much more than what a stream carries of late it may come to carry, before what is left of its part is there again.
const GROWTH: f64 = 1.5;
/// What a stream carries is counted over so much at least.
const ROUND_LEAST: Duration = Duration::from_ms(20);

/// One stream.
#[derive(Debug, Default)]
struct Stream {
    info: TcpInfo,
    /// Bytes since the round began, and in the last whole one a second.
    bytes: u64,
    carries: Option<f64>,
    ceiling: u64,
}

/// All of them, each by its name `K`.
#[derive(Debug)]
pub struct Sums<K> {
    all: BTreeMap<K, Stream>,
    delivered: u64,
    retransmitted: u64,
    round_began: Instant,
    rounds: u64,
    looked: Instant,
    held_up_us: u64,
}

impl<K: Copy + Ord> Sums<K> {
    /// Nobody yet.
    pub const fn new(now: Instant) -> Self {
        Self {
            all: BTreeMap::new(),
            delivered: 0,
            retransmitted: 0,
            round_began: now,
            rounds: 0,
            looked: now,
            held_up_us: 0,
        }
    }

    /// All as one. The round trip is that of the stream that waits least: what waits in its own host for its part says nothing
    /// of the path.
    pub fn reading(&mut self, now: Instant, infos: &[(K, TcpInfo)]) -> Reading {
        let known = |(n, _): &(K, TcpInfo)| self.all.contains_key(n);
        if self.all.len() != infos.len() || !infos.iter().all(known) {
            let there: BTreeSet<K> = infos.iter().map(|(n, _)| *n).collect();
            self.all.retain(|n, _| there.contains(n));
        }
        let round_trip = infos.iter().map(|(_, info)| info.rtt_us).min().unwrap_or(0);
        let round_trip = Duration::from_us(round_trip);
        let mut held_up_us = 0;
        for (n, info) in infos {
            let is_new = !self.all.contains_key(n);
            let stream = self.all.entry(*n).or_default();
            let before = std::mem::replace(&mut stream.info, *info);
            // A connection that was made again counts from the beginning.
            if !is_new && info.bytes_acked >= before.bytes_acked {
                // The kernel's counter has 32 bits.
                let new = info
                    .delivered_segments
                    .wrapping_sub(before.delivered_segments);
                let new = (new & u64::from(u32::MAX)) * info.snd_mss_bytes;
                stream.bytes += new;
                self.delivered += new;
                self.retransmitted += info.bytes_retrans.saturating_sub(before.bytes_retrans);
                held_up_us += held_up(info).saturating_sub(held_up(&before));
            } else {
                (stream.bytes, stream.carries, stream.ceiling) = (0, None, 0);
            }
        }
        self.held_up_us += held_up_us;
        let span = now.saturating_since(self.looked);
        let mut is_held_up = false;
        if span >= HELD_UP_SPAN {
            let least = span.as_ns() / 1_000 * infos.len() as u64;
            is_held_up = self.held_up_us * 2 > least;
            (self.looked, self.held_up_us) = (now, 0);
        }
        let round = now.saturating_since(self.round_began);
        if round >= round_trip.max(ROUND_LEAST) {
            for stream in self.all.values_mut() {
                stream.carries = Some(stream.bytes as f64 * 8.0 / round.as_s_f64());
                stream.bytes = 0;
            }
            self.round_began = now;
            self.rounds += 1;
        }
        Reading {
            delivered: self.delivered,
            retransmitted: self.retransmitted,
            round_trip,
            held_up: is_held_up,
        }
    }

    /// How many rounds were counted: a round trip each, 20 ms at least.
    pub const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Bits a second in the last whole round, all together.
    pub fn carried(&self) -> f64 {
        self.all.values().filter_map(|stream| stream.carries).sum()
    }

    /// Ceilings that changed. Whoever carries far less than its part has room to grow, and the rest of it goes to the others.
    pub fn shared_out(&mut self, rate: Rate) -> Vec<(K, Rate)> {
        let carries: Vec<Option<f64>> = self.all.values().map(|stream| stream.carries).collect();
        let parts = parts(rate.as_bits_per_second() as f64, &carries);
        let mut changed = Vec::new();
        for ((n, stream), part) in self.all.iter_mut().zip(parts) {
            let ceiling = bits(part);
            if stream.ceiling.abs_diff(ceiling) > stream.ceiling / CHANGE_LEAST {
                stream.ceiling = ceiling;
                changed.push((*n, Rate::from_bits_per_second(ceiling)));
            }
        }
        changed
    }
}

/// Parts of `rate` for streams that carry so much of late: even ones, but for who cannot use its part. Together they are `rate`.
fn parts(rate: f64, carries: &[Option<f64>]) -> Vec<f64> {
    let count = carries.len();
    // One that stands still may begin again at a fair part of the whole.
    let least = rate / count.max(1) as f64 / 4.0;
    let wanted = |carries: &Option<f64>| carries.map_or(rate, |now| (now * GROWTH).max(least));
    let wanted: Vec<f64> = carries.iter().map(wanted).collect();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let (mut parts, mut left) = (vec![0.0; count], rate);
    for (done, &n) in order.iter().enumerate() {
        parts[n] = wanted[n].min(left / (count - done) as f64);
        left -= parts[n];
    }
    let more = left.max(0.0) / count.max(1) as f64;
    parts.into_iter().map(|part| part + more).collect()
}

/// A rate in whole bits a second, one at least.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and no rate is negative"
)]
fn bits(rate: f64) -> u64 {
    (rate as u64).max(1)
}

/// Receiver's window and send buffer, in microseconds.
const fn held_up(info: &TcpInfo) -> u64 {
    info.rwnd_limited_us + info.sndbuf_limited_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_use_its_part_leaves_it_to_the_others() {
        let of = |carries: &[Option<f64>]| -> Vec<u64> {
            parts(1_200.0, carries)
                .iter()
                .map(|part| bits(part.round()))
                .collect()
        };
        assert_eq!(of(&[None, None, None, None]), [300, 300, 300, 300]);
        // Two lost something; what they leave is the others'.
        let some = [Some(100.0), Some(20.0), Some(300.0), Some(300.0)];
        assert_eq!(of(&some), [169, 94, 469, 469]);
        // All grow: nothing is kept back.
        assert_eq!(of(&[Some(10.0), Some(10.0)]), [600, 600]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn streams_are_read_as_one_and_a_new_connection_counts_from_its_beginning() {
        let info = |delivered: u64, rtt_us| TcpInfo {
            delivered_segments: delivered,
            bytes_acked: delivered * 1_000,
            snd_mss_bytes: 1_000,
            bytes_retrans: delivered,
            rtt_us,
            ..TcpInfo::default()
        };
        let mut streams = Sums::new(Instant::default());
        let at = Instant::from_ns;
        let first = [(0, info(5, 30_000)), (3, info(10, 20_000))];
        assert_eq!(streams.reading(at(1_000_000), &first).delivered, 0);
        let second = [(0, info(15, 30_000)), (3, info(20, 25_000))];
        let reading = streams.reading(at(101_000_000), &second);
        assert_eq!((reading.delivered, reading.retransmitted), (20_000, 20));
        assert_eq!(reading.round_trip, Duration::from_us(25_000));
        // 10,000 bytes in 101 ms.
        let carries = streams.all[&3].carries.unwrap();
        assert!((carries - 80_000.0 / 0.101).abs() < 1.0, "{carries}");
        let third = [
            (0, info(15, 30_000)),
            (3, info(2, 25_000)),
            (4, info(9, 20_000)),
        ];
        assert_eq!(streams.reading(at(102_000_000), &third).delivered, 20_000);
        let fourth = [(3, info(3, 25_000))];
        assert_eq!(streams.reading(at(103_000_000), &fourth).delivered, 21_000);
        assert_eq!(streams.all.len(), 1);
    }

    #[test]
    fn a_ceiling_that_hardly_changes_is_left() {
        let mut streams = Sums::new(Instant::default());
        streams.all.insert(1, Stream::default());
        streams.all.insert(2, Stream::default());
        let mbps = |n: u64| Rate::from_bits_per_second(n * 1_000_000);
        assert_eq!(
            streams.shared_out(mbps(100)),
            [(1, mbps(50)), (2, mbps(50))]
        );
        let hardly = Rate::from_bits_per_second(100_200_000);
        assert_eq!(streams.shared_out(hardly), []);
        assert_eq!(streams.shared_out(mbps(102)).len(), 2);
    }
}
