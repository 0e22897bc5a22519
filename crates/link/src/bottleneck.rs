//! A drop-tail queue in front of a shaper: the bottleneck of a path.
//!
//! The queue counts bytes on the wire and packets, the one being sent included until its last bit
//! has left. A segment that arrives at the very instant at which another has left finds its room
//! free. The shaper serves wire bytes (preamble and gap too) at an exact rate.

use std::collections::VecDeque;

use units::{Instant, Rate, Serialiser};

use crate::event::{Decision, Event, Log};
use crate::pipeline::{Stage, Trains};
use crate::train::{Spacing, Train};

/// How much a queue holds. A limit that is absent does not bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Bytes on the wire.
    pub bytes: Option<u64>,
    /// Packets (segments, not trains).
    pub packets: Option<u32>,
}

/// The accounting of a drop-tail queue: who is in, until when.
#[derive(Clone, Debug)]
pub struct DropTail {
    limits: QueueLimits,
    inside: VecDeque<(Instant, u32)>,
    bytes: u64,
}

/// A queue and the shaper that empties it.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    queue: DropTail,
    serialiser: Serialiser,
    free_at: Instant,
    /// Fraction of a nanosecond owed after the last departure, kept for the trains' spacing.
    remainder: u64,
}

impl DropTail {
    /// An empty queue.
    pub fn new(limits: QueueLimits) -> Self {
        let by_bytes = limits.bytes.map_or(u64::MAX, |b| b / MIN_WIRE_BYTES + 2);
        let by_packets = limits.packets.map_or(u64::MAX, |p| u64::from(p) + 1);
        let capacity = by_bytes.min(by_packets).min(PREALLOCATED_MAX);
        let capacity = usize::try_from(capacity).unwrap_or(0);
        Self {
            limits,
            inside: VecDeque::with_capacity(capacity),
            bytes: 0,
        }
    }

    /// Lets go of what has left by `now`.
    pub fn drain(&mut self, now: Instant) {
        while let Some(&(departs, bytes)) = self.inside.front() {
            if departs > now {
                break;
            }
            self.bytes -= u64::from(bytes);
            self.inside.pop_front();
        }
    }

    /// True when a segment of `wire_bytes` has room.
    pub fn has_room(&self, wire_bytes: u32) -> bool {
        let bytes_fit = self
            .limits
            .bytes
            .is_none_or(|b| self.bytes + u64::from(wire_bytes) <= b);
        let packets_fit = self.limits.packets.is_none_or(|p| self.packets() < p);
        bytes_fit && packets_fit
    }

    /// Takes in a segment that will have left at `departs`. Departures never go back in time.
    pub fn push(&mut self, departs: Instant, wire_bytes: u32) {
        debug_assert!(self.inside.back().is_none_or(|&(last, _)| last <= departs));
        self.bytes += u64::from(wire_bytes);
        self.inside.push_back((departs, wire_bytes));
    }

    /// Bytes inside.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets inside.
    pub fn packets(&self) -> u32 {
        u32::try_from(self.inside.len()).unwrap_or(u32::MAX)
    }
}

impl Bottleneck {
    /// An idle bottleneck.
    ///
    /// # Panics
    /// When the rate is zero.
    pub fn new(rate: Rate, limits: QueueLimits) -> Self {
        Self {
            queue: DropTail::new(limits),
            serialiser: Serialiser::new(rate),
            free_at: Instant::ZERO,
            remainder: 0,
        }
    }

    /// Takes a segment that arrived at `now` and has room: when its last bit leaves, and the
    /// fraction of a nanosecond left over.
    fn serve(&mut self, now: Instant, wire_bytes: u32) -> (Instant, u64) {
        if now > self.free_at {
            self.free_at = now;
            self.serialiser.reset();
        }
        self.free_at += self.serialiser.next(wire_bytes);
        self.remainder = self.serialiser.remainder();
        self.queue.push(self.free_at, wire_bytes);
        (self.free_at, self.remainder)
    }
}

impl Stage for Bottleneck {
    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        let rate = self.serialiser.rate().as_bits_per_second();
        // The run of accepted segments that leave back to back: its start and its first departure.
        let mut run: Option<(u16, Instant, u64)> = None;
        let mut refused_from: Option<(u16, u64, u32)> = None;
        for k in 0..=train.count {
            let end = k == train.count;
            let now = if end { Instant::MAX } else { train.time_of(k) };
            if !end {
                self.queue.drain(now);
            }
            let room = !end && self.queue.has_room(train.wire_bytes);
            let continues = room && (now <= self.free_at);
            if let Some((from, first_departs, remainder)) = run
                && !continues
            {
                let spacing = Spacing::back_to_back(train.wire_bytes, rate, remainder);
                let part = train.part(from, k - from);
                out.push(Train {
                    at: first_departs,
                    spacing,
                    ..part
                });
                log.on_event(&Event {
                    train: part,
                    decision: Decision::Queued {
                        queue_bytes: self.queue.bytes(),
                        queue_packets: self.queue.packets(),
                        departs: first_departs,
                    },
                });
                run = None;
            }
            if let Some((from, queue_bytes, queue_packets)) = refused_from
                && (room || end)
            {
                let decision = Decision::QueueFull {
                    queue_bytes,
                    queue_packets,
                };
                log.on_event(&Event {
                    train: train.part(from, k - from),
                    decision,
                });
                refused_from = None;
            }
            if room {
                let (departs, remainder) = self.serve(now, train.wire_bytes);
                run.get_or_insert((k, departs, remainder));
            } else if !end {
                refused_from.get_or_insert_with(|| (k, self.queue.bytes(), self.queue.packets()));
            }
        }
    }
}

/// The smallest Ethernet frame with preamble, FCS and gap: 802.3's slot of 84 octets.
const MIN_WIRE_BYTES: u64 = 84;
/// Entries set aside at once for a queue; a larger one grows when first filled.
const PREALLOCATED_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Counters;

    const GIGABIT: Rate = Rate::from_bits_per_second(1_000_000_000);

    fn train(handle: u64, count: u16, at_ns: u64) -> Train {
        Train {
            handle,
            first: 0,
            count,
            wire_bytes: 1538,
            flow: 0,
            at: Instant::from_ns(at_ns),
            spacing: Spacing::TOGETHER,
        }
    }

    fn feed(stage: &mut Bottleneck, train: Train) -> (Vec<Train>, Vec<Event>) {
        let (mut out, mut log) = (Trains::default(), Vec::new());
        stage.handle(train, &mut out, &mut log);
        (out.drain().collect(), log)
    }

    #[test]
    fn a_train_leaves_one_segment_each_serialisation_time() {
        let mut b = Bottleneck::new(GIGABIT, QueueLimits::default());
        let (out, _) = feed(&mut b, train(1, 3, 1_000));
        assert_eq!(out.len(), 1);
        let times: Vec<u64> = (0..3).map(|k| out[0].time_of(k).as_ns()).collect();
        assert_eq!(times, [13_304, 25_608, 37_912]);
    }

    #[test]
    fn a_full_queue_drops_the_last_segments_of_the_burst() {
        let limits = QueueLimits {
            bytes: Some(10 * 1538),
            packets: None,
        };
        let mut b = Bottleneck::new(GIGABIT, limits);
        let (out, log) = feed(&mut b, train(1, 44, 0));
        assert_eq!((out[0].first, out[0].count), (0, 10));
        let dropped = log
            .iter()
            .find(|e| matches!(e.decision, Decision::QueueFull { .. }))
            .unwrap();
        assert_eq!((dropped.train.first, dropped.train.count), (10, 34));
    }

    #[test]
    fn room_is_free_at_the_instant_of_a_departure_and_not_one_nanosecond_earlier() {
        let limits = QueueLimits {
            bytes: None,
            packets: Some(1),
        };
        let mut b = Bottleneck::new(GIGABIT, limits);
        assert_eq!(feed(&mut b, train(1, 1, 0)).0.len(), 1);
        assert_eq!(feed(&mut b, train(2, 1, 12_303)).0.len(), 0);
        assert_eq!(feed(&mut b, train(3, 1, 12_304)).0.len(), 1);
    }

    #[test]
    fn byte_and_packet_limits_bind_exactly() {
        for (limits, fits) in [
            (
                QueueLimits {
                    bytes: Some(1538),
                    packets: None,
                },
                1,
            ),
            (
                QueueLimits {
                    bytes: Some(1537),
                    packets: None,
                },
                0,
            ),
            (
                QueueLimits {
                    bytes: Some(2 * 1538),
                    packets: Some(1),
                },
                1,
            ),
            (
                QueueLimits {
                    bytes: None,
                    packets: None,
                },
                5,
            ),
        ] {
            let mut b = Bottleneck::new(GIGABIT, limits);
            let (out, _) = feed(&mut b, train(1, 5, 0));
            assert_eq!(out.iter().map(|t| t.count).sum::<u16>(), fits, "{limits:?}");
        }
    }

    #[test]
    fn an_idle_link_starts_afresh_without_the_old_fraction() {
        let mut b = Bottleneck::new(Rate::from_bits_per_second(3), QueueLimits::default());
        let one = |b: &mut Bottleneck, at_ns| {
            let t = Train {
                wire_bytes: 1,
                ..train(1, 1, at_ns)
            };
            feed(b, t).0[0].at.as_ns() - at_ns
        };
        assert_eq!(one(&mut b, 0), 2_666_666_666);
        assert_eq!(one(&mut b, 10_000_000_000), 2_666_666_666);
    }

    #[test]
    fn nothing_is_lost_from_the_books() {
        let limits = QueueLimits {
            bytes: Some(100_000),
            packets: Some(40),
        };
        let mut b = Bottleneck::new(GIGABIT, limits);
        let mut rng = units::Rng::new(3);
        let mut counters = Counters::default();
        let (mut offered, mut passed, mut now) = (0, 0, 0);
        let mut last = Instant::ZERO;
        for handle in 0..5_000 {
            now += rng.next_u64() % 300_000;
            let count = u16::try_from(rng.next_u64() % 44 + 1).unwrap();
            let mut out = Trains::default();
            b.handle(train(handle, count, now), &mut out, &mut counters);
            offered += u64::from(count);
            for t in out.drain() {
                passed += u64::from(t.count);
                for k in 0..t.count {
                    assert!(t.time_of(k) > last, "segments leave one after the other");
                    last = t.time_of(k);
                }
            }
        }
        assert_eq!(offered, passed + counters.queue_full);
        assert_eq!(passed, counters.queued);
        assert!(counters.queue_full > 0 && counters.queue_bytes_max <= 100_000);
    }

    #[test]
    fn one_train_and_its_segments_one_by_one_meet_the_same_fate() {
        let limits = QueueLimits {
            bytes: Some(30 * 1538),
            packets: Some(25),
        };
        let rate = Rate::from_bits_per_second(9_285_714_285);
        let mut whole = Bottleneck::new(rate, limits);
        let mut single = Bottleneck::new(rate, limits);
        let mut rng = units::Rng::new(9);
        let mut now = 0;
        for handle in 0..2_000 {
            now += rng.next_u64() % 60_000;
            let count = u16::try_from(rng.next_u64() % 44 + 1).unwrap();
            let t = train(handle, count, now);
            let expand = |trains: Vec<Train>| -> Vec<(u16, Instant)> {
                trains
                    .iter()
                    .flat_map(|t| (0..t.count).map(|k| (t.first + k, t.time_of(k))))
                    .collect()
            };
            let a = expand(feed(&mut whole, t).0);
            let b = expand(
                (0..count)
                    .flat_map(|k| feed(&mut single, t.part(k, 1)).0)
                    .collect(),
            );
            assert_eq!(a, b, "train {handle}");
        }
    }
}
