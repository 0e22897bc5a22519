//! Stages in a row, and the end of the line where segments wait for their time.

use std::collections::VecDeque;
use std::ops::Range;

use units::{Duration, Instant, Rate};

use crate::event::{Decision, Event, Log};
use crate::queue::QueueLimits;
use crate::train::{Marks, Train};

/// What a link does to the trains that pass.
///
/// A stage either settles a train at once in [`Stage::handle`], as a delay does, or keeps it and
/// settles in [`Stage::advance`] what happens up to a given time. Both ways what leaves it leaves in
/// the order of its times.
pub trait Stage: std::fmt::Debug + Send {
    /// Its name in logs.
    fn name(&self) -> &'static str;

    /// Takes a train whose first segment arrives no earlier than any before it, passes on what
    /// is settled and tells `log` what was decided. The arrival may lie in the future.
    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log);

    /// The next instant at which something happens inside, if anything is inside.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// Lets everything happen up to and including `to`. A result must not hang on how often or how
    /// late this is called.
    fn advance(&mut self, to: Instant, out: &mut Trains, log: &mut dyn Log) {
        let _ = (to, out, log);
    }

    /// What the stage adds to every segment at least: nothing that happens at `t` leaves before `t`
    /// plus this.
    fn delay_min(&self) -> Duration {
        Duration::ZERO
    }

    /// Nothing counts as having come before this instant: what was decided since hangs on it.
    fn not_before(&self) -> Instant {
        Instant::ZERO
    }

    /// Works otherwise from now on, if the change concerns it.
    fn change(&mut self, change: &Change) {
        let _ = change;
    }

    /// Segments inside that were not passed on yet.
    fn segments_held(&self) -> u64 {
        0
    }
}

/// A change of a running link.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Of the rate; what is being sent is finished at the old one.
    Rate(Rate),
    /// Of the queue's limits.
    Limits(QueueLimits),
    /// Of the one-way delay. Segments do not overtake each other.
    Delay(Duration),
    /// Of the share that is lost at random, 0 to 1.
    Loss(f64),
    /// The link is up or down; what reaches a link that is down is lost.
    Up(bool),
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
    last: Instant,
}

/// Stages in the order in which a frame meets them, then the port.
#[derive(Debug)]
pub struct Pipeline {
    stages: Vec<Box<dyn Stage>>,
    port: VecDeque<Train>,
    segments_at_port: u64,
    catch_up: Duration,
    current: Trains,
    next: Trains,
    schedule: VecDeque<(Instant, Change)>,
    /// Where a medium stands that both directions share.
    gate: Option<Gate>,
    /// The first stage has let things happen up to here: nothing can arrive earlier any more.
    settled: Instant,
}

/// The place of a shared medium, at which somebody else takes segments over and gives them back.
#[derive(Debug)]
struct Gate {
    stage: usize,
    waiting: Trains,
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
    /// Size of each on this link's wire.
    pub wire_bytes: u32,
    /// What was done to them.
    pub marks: Marks,
    /// Draw for the bit to be flipped, 0 for none.
    pub damage: u32,
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
        Self {
            delay,
            last: Instant::ZERO,
        }
    }
}

impl Stage for DelayLine {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, _: &mut dyn Log) {
        let delayed = train.delayed(self.delay);
        // After a change to a shorter delay nothing overtakes what is on its way; what would wait for
        // it, and leaves with its last.
        let mut overtaking = 0;
        if delayed.at < self.last {
            let waits = |k: &u16| delayed.time_of(*k) < self.last;
            overtaking = (0..delayed.count).take_while(waits).fold(0, |n, _| n + 1);
            out.push(delayed.part(0, overtaking).gathered(self.last));
        }
        if overtaking < delayed.count {
            self.last = delayed.last_time();
            out.push(delayed.part(overtaking, delayed.count - overtaking));
        }
    }

    fn delay_min(&self) -> Duration {
        self.delay
    }

    fn change(&mut self, change: &Change) {
        if let Change::Delay(delay) = *change {
            self.delay = delay;
        }
    }
}

/// Puts the number of the stage to its events.
struct At<'a> {
    stage: u8,
    log: &'a mut dyn Log,
}

impl Log for At<'_> {
    fn on_event(&mut self, event: &Event) {
        let event = Event {
            stage: self.stage,
            ..*event
        };
        self.log.on_event(&event);
    }

    fn wants_each(&self) -> bool {
        self.log.wants_each()
    }
}

impl Pipeline {
    /// A pipeline of `stages` (at most 255), with room for `trains` waiting at its end before it must
    /// grow.
    pub fn new(stages: Vec<Box<dyn Stage>>, trains: usize) -> Self {
        Self {
            stages,
            port: VecDeque::with_capacity(trains),
            segments_at_port: 0,
            catch_up: Duration::from_ns(u64::MAX),
            current: Trains::default(),
            next: Trains::default(),
            schedule: VecDeque::new(),
            gate: None,
            settled: Instant::ZERO,
        }
    }

    /// What comes to stage number `stage` waits there to be taken by [`Self::at_gate`].
    #[must_use]
    pub(crate) fn with_gate(mut self, stage: usize) -> Self {
        self.gate = Some(Gate {
            stage,
            waiting: Trains::default(),
        });
        self
    }

    /// Lets a driver that is more than `behind` late send what is overdue of a train in one piece,
    /// so that it can catch up. In virtual time nothing is ever late.
    #[must_use]
    pub const fn catching_up_when(mut self, behind: Duration) -> Self {
        self.catch_up = behind;
        self
    }

    pub(crate) const fn set_catch_up(&mut self, behind: Duration) {
        self.catch_up = behind;
    }

    /// Changes the link at `at`; what happened until then is settled by the old rules.
    pub fn schedule(&mut self, at: Instant, change: Change) {
        let behind = self.schedule.iter().rposition(|&(t, _)| t <= at);
        self.schedule
            .insert(behind.map_or(0, |i| i + 1), (at, change));
    }

    /// Names of the stages, in the order in which frames meet them.
    pub fn stage_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.stages.iter().map(|s| s.name())
    }

    /// Sends a train down the line. Its time is moved up to what has been settled already, if it
    /// comes late; the time that counts is returned.
    pub fn handle_train(&mut self, train: Train, log: &mut impl Log) -> Instant {
        let settled = self.stages.iter().map(|s| s.not_before());
        let at = settled.fold(train.at.max(self.settled), Instant::max);
        let train = Train { at, ..train };
        self.current.inner.clear();
        self.current.push(train);
        self.pass_on(0, log);
        at
    }

    /// Sends what is in `current` through the stages from number `from` on, and to the port.
    fn pass_on(&mut self, from: usize, log: &mut dyn Log) {
        for (number, stage) in self.stages.iter_mut().enumerate().skip(from) {
            if self.current.inner.is_empty() {
                return;
            }
            if let Some(gate) = self.gate.as_mut().filter(|gate| gate.stage == number) {
                gate.waiting.inner.append(&mut self.current.inner);
                return;
            }
            let mut log = At {
                stage: u8::try_from(number).unwrap_or(u8::MAX),
                log,
            };
            for train in self.current.inner.drain(..) {
                stage.handle(train, &mut self.next, &mut log);
            }
            std::mem::swap(&mut self.current, &mut self.next);
        }
        let end = u8::try_from(self.stages.len()).unwrap_or(u8::MAX);
        for leaving in self.current.inner.drain(..) {
            log.on_event(&Event {
                stage: end,
                train: leaving,
                decision: Decision::Scheduled {
                    departs: leaving.at,
                },
            });
            self.segments_at_port += u64::from(leaving.count);
            self.port.push_back(leaving);
        }
    }

    /// What all stages together add to every segment at least.
    pub fn delay_min(&self) -> Duration {
        self.delay_of(0..self.stages.len())
    }

    /// Lets every stage do what bears on the port up to `now`, or, when `fully`, all up to `now`.
    fn settle(&mut self, now: Instant, fully: bool, log: &mut dyn Log) {
        self.settle_stages(0..self.stages.len(), now, fully, log);
    }

    /// The same for some stages and what is behind them.
    fn settle_stages(
        &mut self,
        stages: Range<usize>,
        now: Instant,
        fully: bool,
        log: &mut dyn Log,
    ) {
        let mut ahead = self.delay_of(stages.clone());
        let whole = ahead;
        for number in stages {
            let lead = if fully { Duration::ZERO } else { ahead };
            let before = whole - ahead;
            ahead -= self.stages[number].delay_min();
            let to = now - lead;
            let wakes = self.stages[number].next_wakeup();
            if wakes.is_some() {
                self.settled = self.settled.max(to - before);
            }
            if wakes.is_some_and(|t| t <= to) {
                let mut log = At {
                    stage: u8::try_from(number).unwrap_or(u8::MAX),
                    log: &mut *log,
                };
                self.stages[number].advance(to, &mut self.current, &mut log);
                self.pass_on(number + 1, log.log);
            }
        }
    }

    /// When the next of some stages has to do something for the sake of what is behind them.
    fn next_settling(&self, stages: Range<usize>) -> Option<Instant> {
        let mut ahead = self.delay_of(stages.clone());
        let mut next: Option<Instant> = None;
        for stage in &self.stages[stages] {
            if let Some(at) = stage.next_wakeup() {
                let at = at + ahead;
                next = Some(next.map_or(at, |n| n.min(at)));
            }
            ahead -= stage.delay_min();
        }
        next
    }

    fn delay_of(&self, stages: Range<usize>) -> Duration {
        let each = self.stages[stages].iter().map(|s| s.delay_min());
        each.fold(Duration::ZERO, |sum, d| sum + d)
    }

    /// When to poll next, from what is settled.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let next = self.next_settling(0..self.stages.len());
        let due = self.port.front().map(|f| f.at);
        let all = next.into_iter().chain(due).chain(self.next_change());
        all.min()
    }

    /// The time of the next change.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        self.schedule.front().map(|&(at, _)| at)
    }

    /// Makes the next change.
    pub(crate) fn change_next(&mut self) -> Option<Change> {
        let (_, change) = self.schedule.pop_front()?;
        for stage in &mut self.stages {
            stage.change(&change);
        }
        Some(change)
    }

    /// Nothing can arrive before `at` any more.
    pub(crate) fn settled_to(&mut self, at: Instant) {
        self.settled = self.settled.max(at);
    }

    /// The next segments that are due at `now`, or when to ask again.
    pub fn poll_output(&mut self, now: Instant, log: &mut impl Log) -> Output {
        while let Some(at) = self.next_change().filter(|at| *at <= now) {
            self.settle(at, true, log);
            self.settled_to(at);
            let _ = self.change_next();
        }
        self.settle(now, false, log);
        match self.release(now) {
            Some(release) => Output::Release(release),
            None => self.next_due().map_or(Output::Idle, Output::Timeout),
        }
    }

    /// As [`Self::poll_output`], but the whole train of which the first segment is due: for a driver in
    /// virtual time, which sees to the others' times itself. Nothing may come any more that arrives
    /// before `now`, so that all may be settled up to it.
    pub fn poll_train(&mut self, now: Instant, log: &mut impl Log) -> Option<Train> {
        if let Some(train) = self.release_train(now) {
            return Some(train);
        }
        while let Some(at) = self.next_change().filter(|at| *at <= now) {
            self.settle(at, true, log);
            self.settled_to(at);
            let _ = self.change_next();
        }
        self.settle(now, true, log);
        self.release_train(now)
    }

    /// When [`Self::poll_train`] is to be asked next: what is settled leaves before what is not.
    pub(crate) fn next_train(&self) -> Option<Instant> {
        match self.port.front() {
            Some(train) => Some(train.at),
            None => self.next_due(),
        }
    }

    /// The next train that is settled and of which the first segment is due at `now`.
    pub(crate) fn release_train(&mut self, now: Instant) -> Option<Train> {
        let train = *self.port.front().filter(|f| f.at <= now)?;
        self.port.pop_front();
        self.segments_at_port -= u64::from(train.count);
        Some(train)
    }

    /// The next segments that are settled and due at `now`.
    pub(crate) fn release(&mut self, now: Instant) -> Option<Release> {
        let front = self.port.front().copied().filter(|f| f.at <= now)?;
        let count = self.count_due(&front, now);
        if count == front.count {
            self.port.pop_front();
        } else {
            self.port[0] = front.part(count, front.count - count);
        }
        self.segments_at_port -= u64::from(count);
        Some(Release {
            handle: front.handle,
            first: front.first,
            count,
            wire_bytes: front.wire_bytes,
            marks: front.marks,
            damage: front.damage,
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
    pub fn segments_waiting(&self) -> u64 {
        let held: u64 = self.stages.iter().map(|s| s.segments_held()).sum();
        let gate = self.gate.iter().flat_map(|g| &g.waiting.inner);
        let at_gate: u64 = gate.map(|t| u64::from(t.count)).sum();
        self.segments_at_port + held + at_gate
    }
}

/// What is done on either side of a gate; without one, of the port.
impl Pipeline {
    fn gate(&self) -> usize {
        self.gate.as_ref().map_or(self.stages.len(), |g| g.stage)
    }

    /// The gate's number in events.
    pub(crate) fn gate_number(&self) -> u8 {
        u8::try_from(self.gate()).unwrap_or(u8::MAX)
    }

    fn behind_gate(&self) -> Range<usize> {
        let last = self.stages.len();
        (self.gate() + 1).min(last)..last
    }

    /// What the stages behind the gate add at least.
    pub(crate) fn delay_behind_gate(&self) -> Duration {
        self.delay_of(self.behind_gate())
    }

    /// When something happens before the gate, for the gate's sake.
    pub(crate) fn next_before_gate(&self) -> Option<Instant> {
        self.next_settling(0..self.gate())
    }

    /// When something happens behind the gate, for the port's sake, or is due there.
    pub(crate) fn next_behind_gate(&self) -> Option<Instant> {
        let due = self.port.front().map(|f| f.at);
        let next = self.next_settling(self.behind_gate());
        next.into_iter().chain(due).min()
    }

    /// Lets the stages before the gate do what bears on it up to `to`.
    pub(crate) fn settle_before_gate(&mut self, to: Instant, fully: bool, log: &mut dyn Log) {
        self.settle_stages(0..self.gate(), to, fully, log);
    }

    /// Lets the stages behind the gate do what bears on the port up to `now`.
    pub(crate) fn settle_behind_gate(&mut self, now: Instant, fully: bool, log: &mut dyn Log) {
        self.settle_stages(self.behind_gate(), now, fully, log);
    }

    /// Takes what has come to the gate.
    pub(crate) fn at_gate(&mut self) -> impl Iterator<Item = Train> + '_ {
        self.gate.iter_mut().flat_map(|gate| gate.waiting.drain())
    }

    /// Sends on what has crossed.
    pub(crate) fn pass_gate(&mut self, crossed: &mut Trains, log: &mut dyn Log) {
        self.current.inner.append(&mut crossed.inner);
        self.pass_on(self.gate() + 1, log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Counters;
    use crate::loss::RandomLoss;
    use crate::queue::{Queue, QueueLimits};
    use crate::train::testing::train;
    use units::Rate;

    fn columbia(loss: f64) -> Pipeline {
        let rate = Rate::from_bits_per_second(1_000_000_000);
        Pipeline::new(
            vec![
                Box::new(Queue::drop_tail(rate, QueueLimits::default())),
                Box::new(RandomLoss::new(loss, 1)),
                Box::new(DelayLine::new(Duration::from_us(42_500))),
            ],
            16,
        )
    }

    /// Steps from wake-up to wake-up until the pipeline is idle; fails one that never is.
    fn run_dry(pipeline: &mut Pipeline) -> Vec<Release> {
        run_dry_into(pipeline, &mut Counters::default())
    }

    fn run_dry_into(pipeline: &mut Pipeline, log: &mut Counters) -> Vec<Release> {
        let mut now = Instant::ZERO;
        let mut released = Vec::new();
        for _ in 0..1_000_000 {
            match pipeline.poll_output(now, log) {
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
            p.poll_output(Instant::from_ns(999_999), &mut Counters::default()),
            Output::Timeout(Instant::from_ns(1_000_000))
        );
        let at = Instant::from_ns(1_000_000);
        let whole = Release {
            handle: 1,
            first: 0,
            count: 44,
            wire_bytes: 1538,
            marks: Marks::NONE,
            damage: 0,
            at,
            last_at: at,
        };
        assert_eq!(
            p.poll_output(Instant::from_ns(1_000_000), &mut Counters::default()),
            Output::Release(whole)
        );
        assert_eq!(
            p.poll_output(Instant::from_ns(1_000_000), &mut Counters::default()),
            Output::Idle
        );
    }

    #[test]
    fn a_late_driver_gets_every_overdue_segment_with_the_time_it_was_due() {
        let mut p = columbia(0.0);
        p.handle_train(train(1, 5, 0), &mut Counters::default());
        let late = Instant::from_ns(1_000_000_000);
        let due: Vec<u64> =
            std::iter::from_fn(|| match p.poll_output(late, &mut Counters::default()) {
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
            let Output::Release(r) =
                p.poll_output(Instant::from_ns(due + late_ns), &mut Counters::default())
            else {
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
        for r in run_dry_into(&mut p, &mut counters) {
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
