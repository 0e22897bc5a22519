//! Random early detection (Floyd and Jacobson 1993), in bytes and gentle.

use std::collections::VecDeque;

use units::{Duration, Instant, Rng};

use super::{log_dropped, log_queued, mark, takes_mark};
use crate::event::{DropCause, Log};
use crate::queue::{Backlog, Discipline, QueueLimits};
use crate::train::Train;

/// Random early detection. Each arriving segment is dropped (or marked) with a probability that
/// follows the average of the bytes inside, waiting or being sent.
///
/// Below `min` nothing happens. From `min` to `max` the probability rises to the configured one, from
/// there to twice `max` to 1 (Floyd's "gentle", 2000), and above that everything is dropped, marks or
/// not (RFC 3168 section 7). Drops are spread evenly: the segments between two of them are uniform
/// over 1 to 1/p, so about twice p is dropped in the long run, as in the paper (section VII there).
///
/// In the paper's byte mode, as here, a segment's probability goes with its size, that of a full one
/// (the largest seen) being the configured one. Linux's `sch_red` differs: it drops small packets as
/// often as large ones, as RFC 7141 wants it, and drops (or marks) everything from `max` on.
///
/// While the queue is empty the average falls as if that many typical segments had found it empty
/// as could have been sent. What is typical is learnt from segments served back to back; until then
/// each segment is served by itself.
#[derive(Clone, Debug)]
pub struct Red {
    limits: QueueLimits,
    min: f64,
    max: f64,
    probability: f64,
    weight: f64,
    ecn: bool,
    rng: Rng,
    waiting: VecDeque<Train>,
    backlog: Backlog,
    average: f64,
    /// Segments let pass since the last drop with the average above `min`.
    passed: u64,
    largest_bytes: u32,
    /// The run that was served last: since when, segments. `None` once it was found to have left.
    serving: Option<(Instant, u16)>,
    idle_since: Instant,
    /// How long a typical segment is sent.
    segment_ns: Option<u64>,
}

/// What is done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Queued,
    Marked,
    Early,
    Full,
}

impl Red {
    /// An empty queue. `min` and `max` are wire bytes of the average, `probability` that of a full
    /// segment at `max`, `weight` that of a new sample in the average.
    ///
    /// # Panics
    /// When `max` is zero or below `min`, or a probability or weight is not within 0..=1.
    pub fn new(
        limits: QueueLimits,
        min: u64,
        max: u64,
        probability: f64,
        weight: f64,
        ecn: bool,
        seed: u64,
    ) -> Self {
        assert!(min <= max && max > 0, "RED's thresholds ascend from zero");
        assert!(
            (0.0..=1.0).contains(&probability) && (0.0..=1.0).contains(&weight),
            "a probability and a weight lie within 0..=1"
        );
        Self {
            limits,
            min: as_f64(min),
            max: as_f64(max),
            probability,
            weight,
            ecn,
            rng: Rng::new(seed),
            waiting: VecDeque::with_capacity(64),
            backlog: Backlog::default(),
            average: 0.0,
            passed: 0,
            largest_bytes: 0,
            serving: None,
            idle_since: Instant::ZERO,
            segment_ns: None,
        }
    }

    /// Average of the bytes inside.
    pub const fn average_bytes(&self) -> f64 {
        self.average
    }

    /// Brings the average up to date for a segment that finds `inside`.
    fn sample(&mut self, inside: Backlog, now: Instant) {
        if inside.packets > 0 {
            self.average += self.weight * (as_f64(inside.bytes) - self.average);
            return;
        }
        let segment_ns = self.segment_ns.unwrap_or(0);
        if let Some((at, count)) = self.serving.take() {
            let sent = Duration::from_ns(segment_ns).saturating_mul(count.into());
            self.idle_since = at + sent;
        }
        let idle_ns = now.saturating_since(self.idle_since).as_ns();
        // The segment itself finds the queue empty, so one sample there is at any rate.
        let samples = idle_ns.checked_div(segment_ns).unwrap_or(0).max(1);
        self.average *= power(1.0 - self.weight, samples);
        self.idle_since = now;
    }

    /// Learns from a run that `now` has left right before the next one how long a segment takes.
    fn learn(&mut self, now: Instant) {
        let Some((at, count)) = self.serving else {
            return;
        };
        let each_ns = now.saturating_since(at).as_ns() / u64::from(count);
        // Sizes vary: each run moves what is typical by an eighth of the difference.
        self.segment_ns = Some(
            self.segment_ns
                .map_or(each_ns, |known| known - known / 8 + each_ns / 8),
        );
    }

    fn fate(&mut self, run: &Train, inside: Backlog) -> Fate {
        let fits = self.limits.room(inside, run.wire_bytes) > 0;
        let marks = takes_mark(self.ecn, run.marks);
        match self.probability_now(run.wire_bytes) {
            Some(probability) if !self.is_signalled(probability) => {
                if fits {
                    Fate::Queued
                } else {
                    Fate::Full
                }
            }
            Some(_) if marks && fits => Fate::Marked,
            Some(_) if marks => Fate::Full,
            _ => Fate::Early,
        }
    }

    /// The paper's p_b for a segment of this size; `None` where everything is dropped.
    fn probability_now(&mut self, wire_bytes: u32) -> Option<f64> {
        let (average, min, max) = (self.average, self.min, self.max);
        if average < min {
            self.passed = 0;
            return Some(0.0);
        }
        if average >= 2.0 * max {
            self.passed = 0;
            return None;
        }
        let full = if average < max {
            self.probability * (average - min) / (max - min)
        } else {
            self.probability + (1.0 - self.probability) * (average - max) / max
        };
        Some(full * f64::from(wire_bytes) / f64::from(self.largest_bytes.max(1)))
    }

    /// The paper's p_a and its draw: the more have passed since the last drop, the likelier (section
    /// VII; the pseudo-code counts the segment itself as well, which would drop all from p = 1/2 on).
    fn is_signalled(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        let left = 1.0 - as_f64(self.passed) * probability;
        let signalled = left <= 0.0 || self.rng.next_f64() < probability / left;
        self.passed = if signalled { 0 } else { self.passed + 1 };
        signalled
    }

    /// Does with a run what was decided for each of its segments.
    fn settle(&mut self, run: Train, fate: Fate, sending: Backlog, log: &mut dyn Log) {
        let inside = self.backlog.and(sending);
        let run = match fate {
            Fate::Early => return log_dropped(run, DropCause::Early, inside, log),
            Fate::Full => return log_dropped(run, DropCause::QueueFull, inside, log),
            Fate::Marked => mark(run, inside, log),
            Fate::Queued => run,
        };
        self.backlog = self.backlog.plus(&run);
        log_queued(run, inside.plus(&run), log);
        let last = self.waiting.back_mut().filter(|w| w.is_followed_by(&run));
        match last.and_then(|w| Some((w.count.checked_add(run.count)?, w))) {
            Some((count, last)) => last.count = count,
            None => self.waiting.push_back(run),
        }
    }
}

impl Discipline for Red {
    fn enqueue(&mut self, run: Train, now: Instant, sending: Backlog, log: &mut dyn Log) {
        self.largest_bytes = self.largest_bytes.max(run.wire_bytes);
        let one = run.part(0, 1);
        let mut inside = self.backlog.and(sending);
        let (mut from, mut fate) = (0, None);
        for k in 0..run.count {
            self.sample(inside, now);
            let next = self.fate(&run, inside);
            if let Some(fate) = fate.filter(|&fate| fate != next) {
                self.settle(run.part(from, k - from), fate, sending, log);
                from = k;
            }
            if matches!(next, Fate::Queued | Fate::Marked) {
                inside = inside.plus(&one);
            }
            fate = Some(next);
        }
        if let Some(fate) = fate {
            self.settle(run.part(from, run.count - from), fate, sending, log);
        }
    }

    fn dequeue(&mut self, now: Instant, _: &mut dyn Log) -> Option<Train> {
        self.learn(now);
        let front = self.waiting.front_mut()?;
        let run = if self.segment_ns.is_none() && front.count > 1 {
            let first = front.part(0, 1);
            *front = front.part(1, front.count - 1);
            first
        } else {
            self.waiting.pop_front()?
        };
        self.backlog = self.backlog.minus(&run);
        self.serving = Some((now, run.count));
        Some(run)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "queues and counts are far below 2^53"
)]
const fn as_f64(n: u64) -> f64 {
    n as f64
}

/// `base` to the `exponent` by squaring: the library's power may differ between machines.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::testing::{
        dropped, dropped_as, keeps_its_books, marked, packets, responsive, sending, train,
    };
    use crate::event::Event;
    use crate::train::Marks;

    const NONE: QueueLimits = QueueLimits {
        bytes: None,
        packets: None,
    };

    /// Follows the queue at once: the average is what the segment finds.
    fn alert(probability: f64, ecn: bool) -> Red {
        Red::new(NONE, 10_000, 20_000, probability, 1.0, ecn, 1)
    }

    /// Offers `n` segments like `like`, each to a server busy with `inside` bytes and an empty queue.
    fn offer(queue: &mut Red, like: Train, inside: u64, n: usize) -> Vec<Event> {
        let mut log = Vec::new();
        for _ in 0..n {
            queue.enqueue(like, like.at, sending(inside), &mut log);
            queue.dequeue(like.at, &mut log);
        }
        log
    }

    fn capable() -> Train {
        Train {
            marks: Marks::ECT,
            ..train(1, 1, 0)
        }
    }

    #[test]
    fn nothing_is_dropped_up_to_the_lower_threshold() {
        for (inside, some) in [(9_999, false), (10_000, false), (10_100, true)] {
            let log = offer(&mut alert(1.0, false), train(1, 1, 0), inside, 1_000);
            assert_eq!(dropped(&log) > 0, some, "{inside}");
        }
    }

    #[test]
    fn everything_is_dropped_from_twice_the_upper_threshold_marks_or_not() {
        for (inside, drops) in [(39_999, 0), (40_000, 1_000)] {
            let log = offer(&mut alert(0.1, true), capable(), inside, 1_000);
            assert_eq!(dropped_as(&log, DropCause::Early), drops);
            assert_eq!(marked(&log) > 990, drops == 0);
        }
        let log = offer(&mut alert(0.0, false), train(1, 1, 0), 40_000, 1_000);
        assert_eq!(dropped(&log), 1_000);
    }

    #[test]
    fn the_share_of_drops_follows_the_average() {
        // From one drop to the next it is uniform over 1..=1/p, (1 + 1/p) / 2 on average.
        for (inside, p) in [
            (12_500, 0.005),
            (15_000, 0.01),
            (20_000, 0.02),
            (30_000, 0.51),
        ] {
            let log = offer(&mut alert(0.02, false), train(1, 1, 0), inside, 100_000);
            let share = dropped(&log) as f64 / 100_000.0;
            let expected = 2.0 * p / (1.0 + p);
            assert!(
                (share / expected - 1.0).abs() < 0.03,
                "{share} for {expected}"
            );
        }
    }

    #[test]
    fn drops_at_one_average_are_no_further_apart_than_the_inverse_of_the_probability() {
        let mut queue = alert(0.02, false);
        let mut gaps = Vec::new();
        let mut gap = 0;
        for _ in 0..100_000 {
            gap += 1;
            if dropped(&offer(&mut queue, train(1, 1, 0), 20_000, 1)) > 0 {
                gaps.push(gap);
                gap = 0;
            }
        }
        assert_eq!(
            (gaps.iter().min(), gaps.iter().max()),
            (Some(&1), Some(&50))
        );
    }

    #[test]
    fn small_segments_are_dropped_in_proportion_to_their_size() {
        let mut queue = alert(0.1, false);
        let small = Train {
            wire_bytes: 154,
            ..train(1, 1, 0)
        };
        let full = dropped(&offer(&mut queue, train(1, 1, 0), 20_000, 50_000));
        let small = dropped(&offer(&mut queue, small, 20_000, 50_000));
        let ratio = full as f64 / small as f64;
        assert!((9.0..11.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn marks_take_the_place_of_drops_for_those_that_can_be_marked() {
        let log = offer(&mut alert(0.1, true), capable(), 15_000, 10_000);
        assert_eq!(dropped(&log), 0);
        let marks = marked(&log);
        assert!(marks > 900);
        let log = offer(&mut alert(0.1, true), train(1, 1, 0), 15_000, 10_000);
        assert_eq!((marked(&log), dropped(&log)), (0, marks));
        let log = offer(&mut alert(0.1, false), capable(), 15_000, 10_000);
        assert_eq!((marked(&log), dropped(&log)), (0, marks));
    }

    #[test]
    fn a_train_and_its_segments_one_by_one_meet_the_same_fate() {
        let make = || Red::new(packets(60), 10_000, 40_000, 0.3, 0.2, false, 3);
        let (mut whole, mut single) = (make(), make());
        let mut fates = Vec::new();
        for handle in 0..100 {
            let run = train(handle, 44, handle * 1_000_000);
            let (mut a, mut b) = (Vec::new(), Vec::new());
            whole.enqueue(run, run.at, Backlog::default(), &mut a);
            for k in 0..run.count {
                single.enqueue(run.part(k, 1), run.at, Backlog::default(), &mut b);
            }
            for queue in [&mut whole, &mut single] {
                queue.dequeue(run.at, &mut Vec::new());
                queue.waiting.clear();
                queue.backlog = Backlog::default();
            }
            let by_segment = |log: &[Event]| -> Vec<(u16, u8)> {
                log.iter()
                    .flat_map(|e| {
                        (0..e.train.count).map(|k| (e.train.first + k, e.decision.code()))
                    })
                    .collect()
            };
            assert_eq!(by_segment(&a), by_segment(&b), "train {handle}");
            fates.extend(by_segment(&a).iter().map(|f| f.1));
        }
        let early = fates
            .iter()
            .filter(|&&f| f == DropCause::Early as u8)
            .count();
        assert!(early > 100 && early < 4_000, "{early}");
    }

    #[test]
    fn the_average_falls_while_the_queue_is_idle_as_if_segments_had_come() {
        let mut queue = Red::new(NONE, 1_000_000, 2_000_000, 0.1, 0.002, false, 1);
        let burst = train(1, 100, 0);
        queue.enqueue(burst, burst.at, Backlog::default(), &mut Vec::new());
        let before = queue.average_bytes();
        assert!(before > 10_000.0);
        // A millisecond each, the last one done at 100 ms.
        let mut at = Instant::ZERO;
        while let Some(run) = queue.dequeue(at, &mut Vec::new()) {
            at += Duration::from_ms(1).saturating_mul(run.count.into());
        }
        assert_eq!(at, Instant::from_ns(100_000_000));
        for (idle_ms, samples) in [(500, 500), (20, 20), (0, 1)] {
            let mut queue = queue.clone();
            let late = train(2, 1, (100 + idle_ms) * 1_000_000);
            queue.enqueue(late, late.at, Backlog::default(), &mut Vec::new());
            let expected = before * 0.998_f64.powi(samples);
            assert!((queue.average_bytes() / expected - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_finds_no_room_is_dropped_below_the_lower_threshold_as_well() {
        let mut queue = Red::new(packets(5), 1_000_000, 2_000_000, 0.1, 0.002, true, 1);
        let mut log = Vec::new();
        let run = Train {
            count: 8,
            ..capable()
        };
        queue.enqueue(run, run.at, Backlog::default(), &mut log);
        assert_eq!(
            (dropped_as(&log, DropCause::QueueFull), marked(&log)),
            (3, 0)
        );
    }

    #[test]
    fn responsive_senders_keep_the_average_between_the_thresholds() {
        let queue = Red::new(packets(1_000), 20_000, 60_000, 0.1, 0.002, false, 1);
        let (delay_us, served) = responsive(queue);
        // 16 ms and 48 ms at 10 Mb/s.
        assert!((16_000..48_000).contains(&delay_us), "{delay_us}");
        assert!((15_500..=16_256).contains(&served), "{served}");
    }

    #[test]
    fn books_are_kept() {
        keeps_its_books(|limits| Red::new(limits, 10_000, 40_000, 0.2, 0.1, true, 5));
    }
}
