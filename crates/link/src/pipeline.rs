//! Stages in a row, and the end of the line where segments wait for their time.

use std::collections::VecDeque;

use units::{Duration, Instant};

use crate::event::{Decision, Event, Log};
use crate::train::Train;

/// What a link does to the trains that pass.
pub trait Stage: std::fmt::Debug + Send {
    /// Takes a train whose first segment arrives no earlier than any before it, passes on what
    /// leaves and tells `log` what was decided.
    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log);
}

/// Trains on their way from one stage to the next. Keeps its memory between uses.
#[derive(Debug, Default)]
pub struct Trains {
    inner: Vec<Train>,
}

/// A constant delay.
#[derive(Clone, Copy, Debug)]
pub struct DelayLine {
    delay: Duration,
}

/// Stages in the order in which a frame meets them, then the port.
#[derive(Debug)]
pub struct Pipeline {
    stages: Vec<Box<dyn Stage>>,
    port: VecDeque<Train>,
    segments_waiting: u64,
    catch_up: Duration,
    current: Trains,
    next: Trains,
}

/// What [`Pipeline::poll_output`] has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// These segments leave now, together.
    Release(Release),
    /// Nothing is due before this instant.
    Timeout(Instant),
    /// Nothing is on its way.
    Idle,
}

/// Segments of one frame that leave at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The frame.
    pub handle: u64,
    /// Index of the first segment within the frame.
    pub first: u16,
    /// Number of segments.
    pub count: u16,
    /// When the first was due.
    pub at: Instant,
    /// When the last was due.
    pub last_at: Instant,
}

impl Trains {
    /// Adds a train.
    pub fn push(&mut self, train: Train) {
        self.inner.push(train);
    }

    /// Takes all trains out.
    pub fn drain(&mut self) -> impl Iterator<Item = Train> + '_ {
        self.inner.drain(..)
    }
}

impl DelayLine {
    /// Delays each segment by `delay`.
    pub const fn new(delay: Duration) -> Self {
        Self { delay }
    }
}

impl Stage for DelayLine {
    fn handle(&mut self, train: Train, out: &mut Trains, _: &mut dyn Log) {
        out.push(train.delayed(self.delay));
    }
}

impl Pipeline {
    /// A pipeline of `stages`, with room for `trains` waiting at its end before it must grow.
    pub fn new(stages: Vec<Box<dyn Stage>>, trains: usize) -> Self {
        Self {
            stages,
            port: VecDeque::with_capacity(trains),
            segments_waiting: 0,
            catch_up: Duration::from_ns(u64::MAX),
            current: Trains::default(),
            next: Trains::default(),
        }
    }

    /// Lets a driver that is more than `behind` late send what is overdue of a train in one piece,
    /// so that it can catch up. In virtual time nothing is ever late.
    #[must_use]
    pub const fn catching_up_when(mut self, behind: Duration) -> Self {
        self.catch_up = behind;
        self
    }

    /// Sends a train down the line.
    pub fn handle_train(&mut self, train: Train, log: &mut impl Log) {
        self.current.inner.clear();
        self.current.push(train);
        for stage in &mut self.stages {
            for train in self.current.inner.drain(..) {
                stage.handle(train, &mut self.next, log);
            }
            std::mem::swap(&mut self.current, &mut self.next);
        }
        for leaving in self.current.inner.drain(..) {
            let part = train.part(leaving.first - train.first, leaving.count);
            let delay = leaving.at.saturating_since(part.at);
            let decision = Decision::Scheduled {
                departs: leaving.at,
                delay,
            };
            log.on_event(&Event {
                train: part,
                decision,
            });
            self.segments_waiting += u64::from(leaving.count);
            self.port.push_back(leaving);
        }
    }

    /// The next segments that are due at `now`, or when to ask again.
    pub fn poll_output(&mut self, now: Instant) -> Output {
        let Some(front) = self.port.front().copied() else {
            return Output::Idle;
        };
        if front.at > now {
            return Output::Timeout(front.at);
        }
        let count = self.count_due(&front, now);
        if count == front.count {
            self.port.pop_front();
        } else {
            self.port[0] = front.part(count, front.count - count);
        }
        self.segments_waiting -= u64::from(count);
        Output::Release(Release {
            handle: front.handle,
            first: front.first,
            count,
            at: front.at,
            last_at: front.time_of(count - 1),
        })
    }

    /// Segments of the first train that leave together: those that are due at one time, or, for a
    /// driver far behind, all that are overdue.
    fn count_due(&self, front: &Train, now: Instant) -> u16 {
        if front.spacing.is_together() {
            return front.count;
        }
        if now.saturating_since(front.at) <= self.catch_up {
            return 1;
        }
        let overdue = (1..front.count)
            .take_while(|&k| front.time_of(k) <= now)
            .count();
        u16::try_from(overdue + 1).unwrap_or(front.count)
    }

    /// Segments on their way.
    pub const fn segments_waiting(&self) -> u64 {
        self.segments_waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::{Bottleneck, QueueLimits};
    use crate::event::Counters;
    use crate::loss::RandomLoss;
    use crate::train::Spacing;
    use units::Rate;

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

    fn columbia(loss: f64) -> Pipeline {
        let rate = Rate::from_bits_per_second(1_000_000_000);
        Pipeline::new(
            vec![
                Box::new(Bottleneck::new(rate, QueueLimits::default())),
                Box::new(RandomLoss::new(loss, 1)),
                Box::new(DelayLine::new(Duration::from_us(42_500))),
            ],
            16,
        )
    }

    /// Steps from wake-up to wake-up until the pipeline is idle; fails one that never is.
    fn run_dry(pipeline: &mut Pipeline) -> Vec<Release> {
        let mut now = Instant::ZERO;
        let mut released = Vec::new();
        for _ in 0..1_000_000 {
            match pipeline.poll_output(now) {
                Output::Release(r) => released.push(r),
                Output::Timeout(at) => {
                    assert!(at > now, "a timeout lies in the future");
                    now = at;
                }
                Output::Idle => return released,
            }
        }
        panic!("the pipeline never went idle");
    }

    #[test]
    fn each_segment_leaves_at_its_own_time_after_rate_and_delay() {
        let mut p = columbia(0.0);
        p.handle_train(train(1, 3, 0), &mut Counters::default());
        let at: Vec<u64> = run_dry(&mut p).iter().map(|r| r.at.as_ns()).collect();
        assert_eq!(at, [42_512_304, 42_524_608, 42_536_912]);
    }

    #[test]
    fn without_a_rate_stage_a_train_leaves_whole() {
        let delay = Box::new(DelayLine::new(Duration::from_ms(1)));
        let mut p = Pipeline::new(vec![delay], 4);
        p.handle_train(train(1, 44, 0), &mut Counters::default());
        assert_eq!(
            p.poll_output(Instant::from_ns(999_999)),
            Output::Timeout(Instant::from_ns(1_000_000))
        );
        let at = Instant::from_ns(1_000_000);
        let whole = Release {
            handle: 1,
            first: 0,
            count: 44,
            at,
            last_at: at,
        };
        assert_eq!(
            p.poll_output(Instant::from_ns(1_000_000)),
            Output::Release(whole)
        );
        assert_eq!(p.poll_output(Instant::from_ns(1_000_000)), Output::Idle);
    }

    #[test]
    fn a_late_driver_gets_every_overdue_segment_with_the_time_it_was_due() {
        let mut p = columbia(0.0);
        p.handle_train(train(1, 5, 0), &mut Counters::default());
        let late = Instant::from_ns(1_000_000_000);
        let due: Vec<u64> = std::iter::from_fn(|| match p.poll_output(late) {
            Output::Release(r) => Some(r.at.as_ns()),
            _ => None,
        })
        .collect();
        assert_eq!(due.len(), 5);
        assert_eq!(due[4], 42_500_000 + 5 * 12_304);
    }

    #[test]
    fn a_driver_further_behind_than_allowed_catches_up_with_what_is_overdue() {
        let behind = Duration::from_us(200);
        let due = 42_500_000 + 12_304;
        for (late_ns, count) in [(0, 1), (200_000, 1), (200_001, 17)] {
            let mut p = columbia(0.0).catching_up_when(behind);
            p.handle_train(train(1, 44, 0), &mut Counters::default());
            let Output::Release(r) = p.poll_output(Instant::from_ns(due + late_ns)) else {
                panic!("a segment is due");
            };
            // 200,001 ns hold 16 further segments of 12,304 ns.
            assert_eq!((r.first, r.count), (0, count), "{late_ns} ns late");
            assert_eq!(r.last_at.as_ns(), due + u64::from(count - 1) * 12_304);
        }
    }

    #[test]
    fn every_segment_is_released_once_or_logged_lost() {
        let mut p = columbia(0.05);
        let mut counters = Counters::default();
        let mut seen = std::collections::BTreeSet::new();
        for handle in 0..200 {
            p.handle_train(train(handle, 44, handle * 500_000), &mut counters);
        }
        for r in run_dry(&mut p) {
            for k in r.first..r.first + r.count {
                assert!(seen.insert((r.handle, k)), "a segment left twice");
            }
        }
        assert_eq!(seen.len() as u64 + counters.lost, 200 * 44);
        assert_eq!(counters.scheduled, seen.len() as u64);
        assert_eq!(p.segments_waiting(), 0);
    }

    #[test]
    fn the_same_seed_makes_the_same_world() {
        let world = || {
            let mut p = columbia(0.02);
            for handle in 0..100 {
                p.handle_train(
                    train(handle, 44, handle * 400_000),
                    &mut Counters::default(),
                );
            }
            run_dry(&mut p)
        };
        assert_eq!(world(), world());
    }
}
