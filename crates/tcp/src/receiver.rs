//! The receiving end: what has come, and when that is acknowledged.
//!
//! RFC 1122 4.2.3.2 and RFC 5681 4.2 as Linux does them: an acknowledgment for every second segment, at
//! once while something is missing and for the first segments of a connection ("quick"
//! acknowledgments), else no later than the delay. SACK blocks as RFC 2018 section 4 orders them, duplicates told
//! of as RFC 2883 has it. Not done: Linux's compression of SACKs (`tcp_comp_sack_delay_ns`).

use units::{Duration, Instant};

use crate::config::ReceiverConfig;
use crate::packet::{Ack, AckRun, BLOCKS_MAX};
use crate::ranges::Ranges;
use crate::tuning::Tuning;

/// The receiving end of a connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    delay: Duration,
    next: u64,
    edge: u64,
    early: Ranges,
    /// A segment of each of the ranges that were told of last, newest first.
    told: [u64; BLOCKS_MAX],
    told_count: usize,
    unacknowledged: u64,
    quick: u64,
    due: Instant,
    tuning: Tuning,
    duplicates: u64,
    congested: bool,
}

impl Receiver {
    /// A receiver that waits for segment 0.
    pub fn new(config: &ReceiverConfig) -> Self {
        let tuning = Tuning::new(config);
        let half = config.buffer_bytes / 2 / u64::from(config.segment_bytes.max(1));
        Self {
            delay: config.delay,
            next: 0,
            edge: tuning.segments(),
            early: Ranges::default(),
            told: [0; BLOCKS_MAX],
            told_count: 0,
            unacknowledged: 0,
            quick: half.clamp(2, QUICK_MAX),
            due: Instant::MAX,
            tuning,
            duplicates: 0,
            congested: false,
        }
    }

    /// The round trip that the handshake gave.
    pub const fn set_round_trip(&mut self, now: Instant, round_trip: Duration) {
        self.tuning.set_round_trip(now, round_trip);
    }

    /// Segments `[first, first + count)` come together, as one where the interface gathers them. The
    /// acknowledgment that is to be sent at once, if any.
    pub fn handle_segments(&mut self, now: Instant, first: u64, count: u16) -> Option<Ack> {
        let end = first + u64::from(count);
        if first == self.next && self.early.is_empty() {
            self.next = end;
            self.tuning.on_data(now, count.into(), end);
            self.unacknowledged += u64::from(count);
            // Linux: more than one full segment waits, or quick acknowledgments are left.
            if self.unacknowledged >= 2 || self.quick > 0 {
                return Some(self.acknowledge());
            }
            if self.due == Instant::MAX {
                self.due = now + self.delay;
            }
            return None;
        }
        Some(self.handle_disorder(now, first, end))
    }

    /// Segments `[first, first + count)` come one by one from `from` to `last`, evenly spaced. What
    /// [`Self::handle_segments`] would do with each, in one step, where every second one is
    /// acknowledged and nothing else happens; `Err` where it has to be asked for each.
    ///
    /// # Errors
    /// `()` when nothing was done.
    #[allow(clippy::result_unit_err, reason = "there is one reason: ask for each")]
    pub fn handle_run(
        &mut self,
        first: u64,
        count: u16,
        from: Instant,
        last: Instant,
    ) -> Result<Option<AckRun>, ()> {
        let held_back = self.unacknowledged;
        let window = self.tuning.segments();
        let plain = first == self.next && self.early.is_empty() && self.quick == 0;
        let steady = self.tuning.is_steady(last) && self.due > from && !self.congested;
        if !plain || !steady || held_back > 1 || self.edge > first - held_back + 2 + window {
            return Err(());
        }
        let total = held_back + u64::from(count);
        self.next = first + u64::from(count);
        self.unacknowledged = total % 2;
        self.due = match (total, self.unacknowledged) {
            (_, 0) => Instant::MAX,
            (1, _) => from + self.delay,
            _ => last + self.delay,
        };
        let acks = total / 2;
        if acks == 0 {
            return Ok(None);
        }
        let next = first - held_back + 2;
        self.edge = next + 2 * (acks - 1) + window;
        let ack = Ack {
            next,
            edge: next + window,
            ..Ack::default()
        };
        Ok(Some(AckRun {
            first: ack,
            count: u16::try_from(acks).unwrap_or(u16::MAX),
            step: 2,
            place: if held_back == 1 { 0 } else { 1 },
        }))
    }

    /// The acknowledgment that was held back, when its time has come.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Ack> {
        (self.due <= now).then(|| self.acknowledge())
    }

    /// When the acknowledgment that is held back is due.
    pub const fn next_timeout(&self) -> Instant {
        self.due
    }

    /// A segment came that a queue had marked. Told until the sender says that it knows (RFC 3168 6.1.3), and
    /// the first time at once (Linux, `__tcp_ecn_check_ce`).
    pub fn on_congestion_experienced(&mut self) {
        if !self.congested {
            self.quick = self.quick.max(2);
        }
        self.congested = true;
    }

    /// A segment came that tells of a reduced window.
    pub const fn on_reduced(&mut self) {
        self.congested = false;
    }

    /// Segments below this one may be sent: the right edge of the window that was told.
    pub const fn edge(&self) -> u64 {
        self.edge
    }

    /// Segments that came in order.
    pub const fn received(&self) -> u64 {
        self.next
    }

    /// Segments that came twice.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Bytes of the window that is told.
    pub const fn window_bytes(&self) -> u64 {
        self.tuning.window_bytes()
    }

    /// Segments that came out of order and wait.
    pub fn ranges_early(&self) -> usize {
        self.early.len()
    }

    fn handle_disorder(&mut self, now: Instant, first: u64, end: u64) -> Ack {
        let mut fresh = 0;
        let start = first.max(self.next);
        self.early.add(start, end, |a, b| fresh += b - a);
        let twice = (end - first).saturating_sub(fresh);
        self.duplicates += twice;
        self.remember(first);
        let before = self.next;
        if let Some((low, high)) = self.early.first()
            && low <= self.next
        {
            self.next = high;
            self.early.forget_below(high);
        }
        self.tuning.on_data(now, fresh, self.next);
        self.unacknowledged += self.next - before;
        let mut ack = self.acknowledge();
        if twice > 0 && fresh == 0 {
            // RFC 2883 section 4: the duplicate stands first.
            ack.blocks.rotate_right(1);
            ack.blocks[0] = (first, end);
            ack.blocks_count = (ack.blocks_count + 1).min(3);
            ack.twice = true;
        }
        ack
    }

    fn remember(&mut self, segment: u64) {
        self.told.rotate_right(1);
        self.told[0] = segment;
        self.told_count = (self.told_count + 1).min(BLOCKS_MAX);
    }

    fn acknowledge(&mut self) -> Ack {
        self.quick = self.quick.saturating_sub(self.unacknowledged.max(1));
        self.unacknowledged = 0;
        self.due = Instant::MAX;
        self.edge = self.edge.max(self.next + self.tuning.segments());
        let mut ack = Ack {
            next: self.next,
            edge: self.edge,
            congested: self.congested,
            ..Ack::default()
        };
        if !self.early.is_empty() {
            self.add_blocks(&mut ack);
        }
        ack
    }

    /// The ranges of the newest arrivals, and where those were in one, of others.
    fn add_blocks(&mut self, ack: &mut Ack) {
        let mut count = 0;
        for segment in &self.told[..self.told_count] {
            let Some(range) = self.early.holding(*segment) else {
                continue;
            };
            if !ack.blocks[..count].contains(&range) {
                ack.blocks[count] = range;
                count += 1;
            }
        }
        // Places that arrivals in one range took up are those ranges' told before.
        for n in (0..self.early.len()).rev() {
            if count >= BLOCKS_MAX {
                break;
            }
            let Some(range) = self.early.nth(n) else {
                break;
            };
            if !ack.blocks[..count].contains(&range) {
                ack.blocks[count] = range;
                count += 1;
            }
        }
        ack.blocks_count = u8::try_from(count).unwrap_or(0);
    }
}

/// Linux, `TCP_MAX_QUICKACKS`.
const QUICK_MAX: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new(&ReceiverConfig::default());
        for n in 0..16 {
            assert!(
                receiver.handle_segments(Instant::ZERO, n, 1).is_some(),
                "{n} is quick"
            );
        }
        receiver
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_lone_one_after_the_delay() {
        let mut r = receiver();
        let at = Instant::from_ns(1_000);
        assert_eq!(r.handle_segments(at, 16, 1), None);
        assert_eq!(r.handle_segments(at, 17, 1).map(|a| a.next), Some(18));
        assert_eq!(r.handle_segments(at, 18, 1), None);
        let due = at + Duration::from_ms(40);
        assert_eq!(r.next_timeout(), due);
        assert_eq!(r.handle_timeout(due - Duration::from_ns(1)), None);
        assert_eq!(r.handle_timeout(due).map(|a| a.next), Some(19));
        assert_eq!(r.next_timeout(), Instant::MAX);
        // What an interface gathered is acknowledged at once and as one.
        assert_eq!(r.handle_segments(due, 19, 44).map(|a| a.next), Some(63));
    }

    #[test]
    fn a_run_is_acknowledged_as_its_segments_one_by_one() {
        let us = |n: u64| Instant::from_ns(n * 1_000);
        for held_back in [0, 1] {
            for count in 1..6 {
                let mut one = receiver();
                one.set_round_trip(Instant::ZERO, Duration::from_s(10));
                one.quick = 0;
                for n in 16..16 + 40 + held_back {
                    one.handle_segments(us(1), n, 1);
                }
                let mut all = one.clone();
                let first = 56 + held_back;
                let each: Vec<_> = (0..count)
                    .map(|k| one.handle_segments(us(10 + k), first + k, 1))
                    .collect();
                let n = u16::try_from(count).unwrap();
                let run = all
                    .handle_run(first, n, us(10), us(10 + count - 1))
                    .unwrap();
                let mut told = vec![None; each.len()];
                for k in 0..run.map_or(0, |r| r.count) {
                    let r = run.unwrap();
                    told[usize::from(r.place + k * r.step)] = Some(r.at(k));
                }
                assert_eq!(told, each, "{held_back} {count}");
                assert_eq!(all.next_timeout(), one.next_timeout());
                assert_eq!((all.received(), all.edge()), (one.received(), one.edge()));
            }
        }
    }

    #[test]
    fn what_is_missing_is_told_by_blocks_newest_first() {
        let mut r = receiver();
        let at = Instant::ZERO;
        let ack = r.handle_segments(at, 17, 1).unwrap();
        assert_eq!((ack.next, ack.sacked()), (16, &[(17, 18)][..]));
        let ack = r.handle_segments(at, 19, 1).unwrap();
        assert_eq!(ack.sacked(), [(19, 20), (17, 18)]);
        let ack = r.handle_segments(at, 20, 1).unwrap();
        assert_eq!(ack.sacked(), [(19, 21), (17, 18)]);
        let ack = r.handle_segments(at, 18, 1).unwrap();
        assert_eq!(ack.sacked(), [(17, 21)]);
        let ack = r.handle_segments(at, 16, 1).unwrap();
        assert_eq!((ack.next, ack.blocks_count, ack.twice), (21, 0, false));
        let ack = r.handle_segments(at, 20, 1).unwrap();
        assert_eq!((ack.twice, ack.sacked()), (true, &[(20, 21)][..]));
        assert_eq!(r.duplicates(), 1);
    }
}
