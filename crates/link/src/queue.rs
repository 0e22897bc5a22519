//! A queue and the server that empties it: the bottleneck of a path.
//!
//! Segments wait in a [`Discipline`] (drop-tail, RED, CoDel, FQ-CoDel), a [`Server`] takes them one
//! after the other. What is decided hangs on later arrivals, so the stage settles its future no
//! further than it is asked to: [`Stage::advance`] does all that happens up to an instant, in the
//! order in which it happens, however late or early the driver asks. A departure at the very instant
//! of an arrival comes first: its room is free.

use std::collections::VecDeque;

use units::{Duration, Instant, Rate, Serialiser};

use crate::event::{Decision, DropCause, Event, Log};
use crate::pipeline::{Change, Stage, Trains};
use crate::train::{Spacing, Train};

/// How much a queue holds. A limit that is absent does not bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Bytes on the wire.
    pub bytes: Option<u64>,
    /// Packets (segments, not trains).
    pub packets: Option<u32>,
}

/// What waits, or is being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes on the wire.
    pub bytes: u64,
    /// Packets (segments).
    pub packets: u32,
}

/// Which segments wait, and which is served next.
pub trait Discipline: std::fmt::Debug + Send {
    /// Takes a run whose segments are all there at `now`. `sending` is what the server has not
    /// finished yet. Tells `log` of each segment whether it was queued, marked or dropped.
    fn enqueue(&mut self, run: Train, now: Instant, sending: Backlog, log: &mut dyn Log);

    /// The segments whose turn it is at `now`, in one run that may be served without looking again;
    /// drops and marks at this end are told to `log`. `None` when none is left.
    fn dequeue(&mut self, now: Instant, log: &mut dyn Log) -> Option<Train>;

    /// What waits.
    fn backlog(&self) -> Backlog;

    /// Other limits from now on; what waits stays.
    fn set_limits(&mut self, limits: QueueLimits);

    /// While nothing waits, a segment of `wire_bytes` would be handed out at once and leave nothing
    /// behind by which later ones are judged.
    fn lets_pass(&self, wire_bytes: u32) -> bool {
        let _ = wire_bytes;
        false
    }
}

/// First come, first served; what finds no room is dropped. The limits count what is being sent,
/// until its last bit has left.
#[derive(Clone, Debug, Default)]
pub struct DropTail {
    limits: QueueLimits,
    waiting: VecDeque<Train>,
    backlog: Backlog,
}

/// How long each segment occupies what comes after the queue.
#[derive(Clone, Debug)]
pub enum Server {
    /// Wire bytes at a rate.
    Rate(Serialiser),
    /// Packets at a rate a second, whatever their size: a host or box that pays for each.
    Packets {
        /// Packets a second, at least 1.
        per_second: u64,
        /// Fraction of a nanosecond still owed, times `per_second`.
        remainder: u64,
    },
    /// Opportunities at given times, each for so many bytes.
    Trace(crate::trace::Trace),
}

/// A queue and its server as a stage.
#[derive(Debug)]
pub struct Queue {
    name: &'static str,
    full: DropCause,
    pending: Pending,
    discipline: Box<dyn Discipline>,
    server: Server,
    free_at: Instant,
    sending: VecDeque<Train>,
    /// What was handed out to be served and has not begun.
    rest: Option<Train>,
    /// Of `sending` and `rest` what has not left.
    sent: Backlog,
}

/// Trains that are still to come, in the order of their first segments.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    inner: VecDeque<Train>,
}

impl Pending {
    /// Takes a train; those that come in order cost nothing.
    pub fn push(&mut self, train: Train) {
        let mut at = self.inner.len();
        while at > 0 && self.inner[at - 1].at > train.at {
            at -= 1;
        }
        if at == self.inner.len() {
            self.inner.push_back(train);
        } else {
            self.inner.insert(at, train);
        }
    }

    /// When the next segment comes.
    pub fn next_at(&self) -> Option<Instant> {
        self.inner.front().map(|t| t.at)
    }

    /// The segments that come together next.
    pub fn pop(&mut self) -> Option<Train> {
        let front = *self.inner.front()?;
        if front.spacing.is_together() {
            return self.inner.pop_front();
        }
        if front.count == 1 {
            self.inner.pop_front();
        } else {
            self.inner.pop_front();
            self.push_first(front.part(1, front.count - 1));
        }
        let first = front.part(0, 1);
        Some(first.gathered(first.at))
    }

    /// Puts back the rest of the first train; at one instant it is before the others.
    fn push_first(&mut self, rest: Train) {
        if self.inner.front().is_none_or(|next| next.at >= rest.at) {
            self.inner.push_front(rest);
        } else {
            self.push(rest);
        }
    }

    /// Segments inside.
    pub fn segments(&self) -> u64 {
        self.inner.iter().map(|t| u64::from(t.count)).sum()
    }
}

impl Backlog {
    /// With `run` in.
    #[must_use]
    pub fn plus(self, run: &Train) -> Self {
        Self {
            bytes: self.bytes + u64::from(run.wire_bytes) * u64::from(run.count),
            packets: self.packets.saturating_add(run.count.into()),
        }
    }

    /// With `run` out.
    #[must_use]
    pub fn minus(self, run: &Train) -> Self {
        let bytes = u64::from(run.wire_bytes) * u64::from(run.count);
        Self {
            bytes: self.bytes.saturating_sub(bytes),
            packets: self.packets.saturating_sub(run.count.into()),
        }
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            packets: self.packets.saturating_add(other.packets),
        }
    }
}

impl QueueLimits {
    /// How many segments of `wire_bytes` fit beside `inside`.
    pub fn room(&self, inside: Backlog, wire_bytes: u32) -> u64 {
        let by_bytes = self.bytes.map_or(u64::MAX, |limit| {
            limit.saturating_sub(inside.bytes) / u64::from(wire_bytes.max(1))
        });
        let by_packets = self.packets.map_or(u64::MAX, |limit| {
            u64::from(limit.saturating_sub(inside.packets))
        });
        by_bytes.min(by_packets)
    }
}

impl DropTail {
    /// An empty queue.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }
}

impl Discipline for DropTail {
    fn enqueue(&mut self, run: Train, _: Instant, sending: Backlog, log: &mut dyn Log) {
        let inside = self.backlog.and(sending);
        let room = self.limits.room(inside, run.wire_bytes);
        let fits = u16::try_from(room).unwrap_or(u16::MAX).min(run.count);
        let mut inside_after = inside;
        if fits > 0 {
            let accepted = run.part(0, fits);
            self.backlog = self.backlog.plus(&accepted);
            inside_after = inside.plus(&accepted);
            log.on_event(&Event {
                stage: 0,
                train: accepted,
                decision: Decision::Queued {
                    queue_bytes: inside_after.bytes,
                    queue_packets: inside_after.packets,
                },
            });
            match self
                .waiting
                .back_mut()
                .filter(|w| w.is_followed_by(&accepted))
            {
                Some(last) => last.count += accepted.count,
                None => self.waiting.push_back(accepted),
            }
        }
        if fits < run.count {
            log.on_event(&Event {
                stage: 0,
                train: run.part(fits, run.count - fits),
                decision: Decision::Dropped {
                    cause: DropCause::QueueFull,
                    queue_bytes: inside_after.bytes,
                    queue_packets: inside_after.packets,
                    limit_bytes: self.limits.bytes.unwrap_or(0),
                },
            });
        }
    }

    fn dequeue(&mut self, _: Instant, _: &mut dyn Log) -> Option<Train> {
        let run = self.waiting.pop_front()?;
        self.backlog = self.backlog.minus(&run);
        Some(run)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    fn lets_pass(&self, wire_bytes: u32) -> bool {
        self.waiting.is_empty() && self.limits.room(Backlog::default(), wire_bytes) > 0
    }
}

impl Server {
    /// Wire bytes at `rate`.
    ///
    /// # Panics
    /// When the rate is zero.
    pub fn rate(rate: Rate) -> Self {
        Self::Rate(Serialiser::new(rate))
    }

    /// `per_second` packets of any size.
    ///
    /// # Panics
    /// When it is zero.
    pub fn packets(per_second: u64) -> Self {
        assert!(per_second > 0, "a server needs a rate above zero");
        Self::Packets {
            per_second,
            remainder: 0,
        }
    }

    /// The medium fell idle: the next segment starts a new busy period.
    fn reset(&mut self) {
        match self {
            Self::Rate(serialiser) => serialiser.reset(),
            Self::Packets { remainder, .. } => *remainder = 0,
            Self::Trace(_) => {}
        }
    }

    /// Segments of `wire_bytes` that may be served ahead, at least one: of those that take a while no
    /// more than [`AHEAD`] holds.
    fn ahead(&self, wire_bytes: u32) -> u16 {
        let each = match self {
            Self::Rate(serialiser) => {
                u64::from(wire_bytes) * 8 * NS_PER_S / serialiser.rate().as_bits_per_second()
            }
            Self::Packets { .. } | Self::Trace(_) => return u16::MAX,
        };
        u16::try_from(AHEAD.as_ns() / each.max(1))
            .unwrap_or(u16::MAX)
            .max(1)
    }

    /// Serves the run from `start` on: the part of it that leaves evenly spaced, with its times.
    fn serve(&mut self, run: &Train, start: Instant) -> Train {
        match self {
            Self::Rate(serialiser) => {
                let at = start + serialiser.next(run.wire_bytes);
                let rate = serialiser.rate().as_bits_per_second();
                let spacing = Spacing::back_to_back(run.wire_bytes, rate, serialiser.remainder());
                for _ in 1..run.count {
                    let _ = serialiser.next(run.wire_bytes);
                }
                Train {
                    at,
                    spacing,
                    ..*run
                }
            }
            Self::Packets {
                per_second,
                remainder,
            } => {
                let spacing = Spacing::every(NS_PER_S, *per_second, *remainder);
                let run = Train {
                    at: start,
                    spacing,
                    ..*run
                };
                // The first leaves one step after the start, the last `count` steps.
                let first = run.stepped(1);
                *remainder = run.stepped(run.count).spacing.remainder();
                first
            }
            Self::Trace(trace) => {
                let at = trace.serve(start, run.wire_bytes);
                run.part(0, 1).gathered(at)
            }
        }
    }
}

impl Queue {
    /// A queue called `name` in logs; `full` is what a segment dies of that finds no room.
    pub fn new(name: &'static str, discipline: Box<dyn Discipline>, server: Server) -> Self {
        Self {
            name,
            full: DropCause::QueueFull,
            pending: Pending::default(),
            discipline,
            server,
            free_at: Instant::ZERO,
            sending: VecDeque::with_capacity(64),
            rest: None,
            sent: Backlog::default(),
        }
    }

    /// Drops for want of room are logged as `cause`: a host's packet budget is not a queue.
    #[must_use]
    pub const fn dropping_as(mut self, cause: DropCause) -> Self {
        self.full = cause;
        self
    }

    /// Drop-tail behind a rate.
    pub fn drop_tail(rate: Rate, limits: QueueLimits) -> Self {
        Self::new("queue", Box::new(DropTail::new(limits)), Server::rate(rate))
    }

    /// Forgets what has left by `now`.
    fn drain(&mut self, now: Instant) {
        while let Some(front) = self.sending.front_mut() {
            if front.last_time() <= now {
                self.sent = self.sent.minus(front);
                self.sending.pop_front();
                continue;
            }
            let gone = (0..front.count)
                .take_while(|&k| front.time_of(k) <= now)
                .count();
            let gone = u16::try_from(gone).unwrap_or(0);
            if gone > 0 {
                self.sent = self.sent.minus(&front.part(0, gone));
                *front = front.part(gone, front.count - gone);
            }
            return;
        }
    }

    fn arrive(&mut self, log: &mut dyn Log) {
        let Some(run) = self.pending.pop() else {
            return;
        };
        self.take_in(run, log);
    }

    /// Lets the discipline take or refuse segments that are all there.
    pub(crate) fn take_in(&mut self, run: Train, log: &mut dyn Log) {
        self.drain(run.at);
        let mut log = Renamed {
            inner: log,
            full: self.full,
        };
        self.discipline.enqueue(run, run.at, self.sent, &mut log);
    }

    /// Lets the segments of a train pass that come one by one and each find an idle server: what
    /// [`Stage::advance`] would do one after the other, in one step. True when some have passed.
    fn pass_through(&mut self, to: Instant, out: &mut Trains, log: &mut dyn Log) -> bool {
        let Some(&front) = self.pending.inner.front() else {
            return false;
        };
        let Server::Rate(serialiser) = &mut self.server else {
            return false;
        };
        let alone = self.rest.is_none() && self.free_at < front.at;
        if front.count < 2 || !alone || !self.discipline.lets_pass(front.wire_bytes) {
            return false;
        }
        let mut probe = Serialiser::new(serialiser.rate());
        let service = probe.next(front.wire_bytes);
        // Whole nanoseconds of either: the server is idle again before the next segment comes.
        if front.spacing.step_ns() <= service.as_ns() + 1 {
            return false;
        }
        let until = self.pending.inner.get(1).map_or(to, |next| to.min(next.at));
        let last = front.last_time();
        let count = if last <= until {
            front.count
        } else {
            let inside = (0..front.count).take_while(|&k| front.time_of(k) <= until);
            u16::try_from(inside.count()).unwrap_or(0)
        };
        if count < 2 {
            return false;
        }
        let run = front.part(0, count);
        self.pending.inner.pop_front();
        if count < front.count {
            self.pending
                .push_first(front.part(count, front.count - count));
        }
        *serialiser = probe;
        let served = run.delayed(service);
        self.drain(run.at);
        let single = Backlog::default().plus(&run.part(0, 1));
        log.on_event(&Event {
            stage: 0,
            train: run,
            decision: Decision::Queued {
                queue_bytes: single.bytes,
                queue_packets: single.packets,
            },
        });
        log.on_event(&Event {
            stage: 0,
            train: run,
            decision: Decision::Served {
                departs: served.at,
                spacing: served.spacing,
                queue_bytes: 0,
                queue_packets: 0,
            },
        });
        self.sent = self.sent.plus(&served);
        self.sending.push_back(served);
        out.push(served);
        self.free_at = served.last_time();
        true
    }

    /// When segments come next.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.pending.next_at()
    }

    /// The segments that come together next.
    pub(crate) fn pop_pending(&mut self) -> Option<Train> {
        self.pending.pop()
    }

    /// What waits or is being sent at `now`.
    pub(crate) fn inside(&mut self, now: Instant) -> Backlog {
        self.drain(now);
        self.discipline.backlog().and(self.sent)
    }

    /// True when an idle server takes what waits at `now`; the rest of a run is behind it.
    pub(crate) fn is_idle_with_work(&self, now: Instant) -> bool {
        now >= self.free_at && self.discipline.backlog().packets > 0
    }

    pub(crate) fn serve_next(&mut self, start: Instant, out: &mut Trains, log: &mut dyn Log) {
        let mut log = Renamed {
            inner: log,
            full: self.full,
        };
        if self.rest.is_none() {
            self.rest = self.discipline.dequeue(start, &mut log);
            self.sent = self.rest.map_or(self.sent, |run| self.sent.plus(&run));
        }
        let Some(run) = self.rest.take() else {
            // A discipline that holds segments and gives none would be asked for ever.
            self.free_at = self.free_at.max(start) + Duration::from_ns(1);
            return;
        };
        if start > self.free_at {
            self.server.reset();
        }
        // No further than a change of the rate may wait.
        let count = run.count.min(self.server.ahead(run.wire_bytes));
        let served = self.server.serve(&run.part(0, count), start);
        if served.count < run.count {
            self.rest = Some(run.part(served.count, run.count - served.count));
        }
        let waits = self.discipline.backlog();
        let waits = self.rest.map_or(waits, |rest| waits.plus(&rest));
        log.on_event(&Event {
            stage: 0,
            train: run.part(0, served.count),
            decision: Decision::Served {
                departs: served.at,
                spacing: served.spacing,
                queue_bytes: waits.bytes,
                queue_packets: waits.packets,
            },
        });
        self.sending.push_back(served);
        out.push(served);
        self.free_at = served.last_time();
    }

    /// When the server takes the next segment.
    pub(crate) fn next_service(&self) -> Option<Instant> {
        let waits = self.rest.is_some() || self.discipline.backlog().packets > 0;
        waits.then_some(self.free_at)
    }
}

impl Stage for Queue {
    fn name(&self) -> &'static str {
        self.name
    }

    fn handle(&mut self, train: Train, _: &mut Trains, _: &mut dyn Log) {
        self.pending.push(train);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        match (self.pending.next_at(), self.next_service()) {
            (Some(a), Some(s)) => Some(a.min(s)),
            (a, s) => a.or(s),
        }
    }

    fn advance(&mut self, to: Instant, out: &mut Trains, log: &mut dyn Log) {
        loop {
            let arrival = self.pending.next_at().filter(|&at| at <= to);
            let service = self.next_service().filter(|&at| at <= to);
            match (arrival, service) {
                (Some(a), Some(s)) if a < s => self.arrive(log),
                // What waits at an instant is served before what comes at it, as its room is free.
                (_, Some(s)) => self.serve_next(s, out, log),
                (Some(_), None) if !log.wants_each() && self.pass_through(to, out, log) => {}
                (Some(a), None) => {
                    self.arrive(log);
                    if self.is_idle_with_work(a) {
                        self.serve_next(a, out, log);
                    }
                }
                (None, None) => return,
            }
        }
    }

    fn change(&mut self, change: &Change) {
        if !matches!(self.server, Server::Rate(_)) {
            // A packet budget is another box's, a trace is its own rate.
            return;
        }
        match *change {
            Change::Rate(rate) if rate.as_bits_per_second() > 0 => self.server = Server::rate(rate),
            Change::Limits(limits) => self.discipline.set_limits(limits),
            _ => {}
        }
    }

    fn segments_held(&self) -> u64 {
        let rest = self.rest.map_or(0, |run| u64::from(run.count));
        self.pending.segments() + u64::from(self.discipline.backlog().packets) + rest
    }
}

/// Gives a full queue its own cause of loss.
struct Renamed<'a> {
    inner: &'a mut dyn Log,
    full: DropCause,
}

impl Log for Renamed<'_> {
    fn on_event(&mut self, event: &Event) {
        match event.decision {
            Decision::Dropped {
                cause: DropCause::QueueFull,
                queue_bytes,
                queue_packets,
                limit_bytes,
            } => self.inner.on_event(&Event {
                decision: Decision::Dropped {
                    cause: self.full,
                    queue_bytes,
                    queue_packets,
                    limit_bytes,
                },
                ..*event
            }),
            _ => self.inner.on_event(event),
        }
    }

    fn wants_each(&self) -> bool {
        self.inner.wants_each()
    }
}

const NS_PER_S: u64 = 1_000_000_000;
/// A change of the rate takes effect within this time, or the segment that is being sent.
const AHEAD: Duration = Duration::from_ms(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Counters;
    use crate::train::testing::train;

    const GIGABIT: Rate = Rate::from_bits_per_second(1_000_000_000);

    fn feed(stage: &mut Queue, train: Train) -> (Vec<Train>, Vec<Event>) {
        let (mut out, mut log) = (Trains::default(), Vec::new());
        stage.handle(train, &mut out, &mut log);
        stage.advance(train.at, &mut out, &mut log);
        (out.drain().collect(), log)
    }

    #[test]
    fn segments_that_pass_an_idle_server_in_one_step_leave_as_they_do_one_by_one() {
        // 1538 bytes take 12,304 ns. Trains that follow closely, overlap, or find the server busy.
        let spaced = |handle, at_ns, every_ns: u64, count| Train {
            spacing: Spacing::every(every_ns * 3 + 1, 3, 2),
            ..train(handle, count, at_ns)
        };
        for every in [12_303, 12_304, 12_305, 12_306, 20_000] {
            let trains = [
                spaced(1, 0, every, 40),
                spaced(2, 300_000, every, 30),
                spaced(3, 700_000, every, 1),
                spaced(4, 5_000_000, every, 44),
                train(5, 3, 5_100_000),
            ];
            let run = |counters: &mut Counters, events: Option<&mut Vec<Event>>| {
                let mut queue = Queue::drop_tail(GIGABIT, QueueLimits::default());
                let mut out = Trains::default();
                let log: &mut dyn Log = match events {
                    Some(events) => events,
                    None => counters,
                };
                for t in trains {
                    queue.handle(t, &mut out, log);
                }
                for to in (0..20).map(|n| Instant::from_ns(n * 333_333)) {
                    queue.advance(to, &mut out, log);
                }
                let times = out.drain().flat_map(|t| {
                    let times: Vec<_> = (0..t.count)
                        .map(|k| (t.handle, t.first + k, t.time_of(k)))
                        .collect();
                    times
                });
                times.collect::<Vec<_>>()
            };
            let (mut counters, mut events) = (Counters::default(), Vec::new());
            let quick = run(&mut counters, None);
            let slow = run(&mut Counters::default(), Some(&mut events));
            assert_eq!(quick, slow, "{every}");
            let mut counted = Counters::default();
            events.iter().for_each(|e| counted.on_event(e));
            assert_eq!(counters, counted, "{every}");
        }
    }

    #[test]
    fn a_train_leaves_one_segment_each_serialisation_time() {
        let mut b = Queue::drop_tail(GIGABIT, QueueLimits::default());
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
        let mut b = Queue::drop_tail(GIGABIT, limits);
        let (out, log) = feed(&mut b, train(1, 44, 0));
        assert_eq!((out[0].first, out[0].count), (0, 10));
        let dropped = log
            .iter()
            .find(|e| matches!(e.decision, Decision::Dropped { .. }))
            .unwrap();
        assert_eq!((dropped.train.first, dropped.train.count), (10, 34));
    }

    #[test]
    fn room_is_free_at_the_instant_of_a_departure_and_not_one_nanosecond_earlier() {
        let limits = QueueLimits {
            bytes: None,
            packets: Some(1),
        };
        let mut b = Queue::drop_tail(GIGABIT, limits);
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
            let mut b = Queue::drop_tail(GIGABIT, limits);
            let (out, _) = feed(&mut b, train(1, 5, 0));
            assert_eq!(out.iter().map(|t| t.count).sum::<u16>(), fits, "{limits:?}");
        }
    }

    #[test]
    fn an_idle_link_starts_afresh_without_the_old_fraction() {
        let mut b = Queue::drop_tail(Rate::from_bits_per_second(3), QueueLimits::default());
        let one = |b: &mut Queue, at_ns| {
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
        let mut b = Queue::drop_tail(GIGABIT, limits);
        let mut rng = units::Rng::new(3);
        let mut counters = Counters::default();
        let (mut offered, mut passed, mut now) = (0, 0, 0);
        let mut last = Instant::ZERO;
        for handle in 0..5_000 {
            now += rng.next_u64() % 300_000;
            let count = u16::try_from(rng.next_u64() % 44 + 1).unwrap();
            let mut out = Trains::default();
            b.handle(train(handle, count, now), &mut out, &mut counters);
            let to = if handle == 4_999 { u64::MAX } else { now };
            b.advance(Instant::from_ns(to), &mut out, &mut counters);
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
        let mut whole = Queue::drop_tail(rate, limits);
        let mut single = Queue::drop_tail(rate, limits);
        let mut rng = units::Rng::new(9);
        let mut now = 0;
        let expand = |trains: Vec<Train>| -> Vec<(u64, u16, Instant)> {
            let each = |t: &Train| {
                let t = *t;
                (0..t.count).map(move |k| (t.handle, t.first + k, t.time_of(k)))
            };
            trains.iter().flat_map(each).collect()
        };
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for handle in 0..2_000 {
            now += rng.next_u64() % 60_000;
            let count = u16::try_from(rng.next_u64() % 44 + 1).unwrap();
            let t = train(handle, count, now);
            a.extend(expand(feed(&mut whole, t).0));
            for k in 0..count {
                b.extend(expand(feed(&mut single, t.part(k, 1)).0));
            }
        }
        for (stage, got) in [(&mut whole, &mut a), (&mut single, &mut b)] {
            let mut out = Trains::default();
            stage.advance(Instant::MAX, &mut out, &mut Vec::new());
            got.extend(expand(out.drain().collect()));
        }
        assert_eq!(a, b);
        assert!(a.len() > 10_000);
    }

    #[test]
    fn what_happens_does_not_hang_on_when_the_stage_is_asked() {
        let limits = QueueLimits {
            bytes: Some(30 * 1538),
            packets: None,
        };
        let world = |ask_every: u64| {
            let mut b = Queue::drop_tail(GIGABIT, limits);
            let mut rng = units::Rng::new(4);
            let (mut out, mut log) = (Trains::default(), Vec::new());
            let mut now = 0;
            for handle in 0..500 {
                now += rng.next_u64() % 200_000;
                let count = u16::try_from(rng.next_u64() % 44 + 1).unwrap();
                b.handle(train(handle, count, now), &mut out, &mut log);
                if handle % ask_every == 0 {
                    b.advance(Instant::from_ns(now), &mut out, &mut log);
                }
            }
            b.advance(Instant::MAX, &mut out, &mut log);
            let left: Vec<Train> = out.drain().collect();
            (left, log)
        };
        assert_eq!(world(1), world(500));
        assert_eq!(world(7), world(1));
    }

    #[test]
    fn a_packet_budget_serves_packets_whatever_their_size() {
        let limits = QueueLimits {
            bytes: None,
            packets: Some(10),
        };
        let discipline = Box::new(DropTail::new(limits));
        let mut b =
            Queue::new("budget", discipline, Server::packets(3)).dropping_as(DropCause::Budget);
        let (out, log) = feed(&mut b, train(1, 12, 0));
        let times: Vec<u64> = (0..3).map(|k| out[0].time_of(k).as_ns()).collect();
        assert_eq!(times, [333_333_333, 666_666_666, 1_000_000_000]);
        let dropped = log.iter().find(|e| e.train.count == 2).unwrap();
        let Decision::Dropped { cause, .. } = dropped.decision else {
            panic!("two too many");
        };
        assert_eq!(cause, DropCause::Budget);
    }

    #[test]
    fn a_new_rate_holds_from_the_next_run_on() {
        let mut b = Queue::drop_tail(GIGABIT, QueueLimits::default());
        feed(&mut b, train(1, 2, 0));
        b.change(&Change::Rate(Rate::from_bits_per_second(500_000_000)));
        let mut out = Trains::default();
        b.handle(train(2, 1, 1_000), &mut out, &mut Vec::new());
        b.advance(Instant::MAX, &mut out, &mut Vec::new());
        let left: Vec<Train> = out.drain().collect();
        assert_eq!(left[0].at.as_ns(), 2 * 12_304 + 2 * 12_304);
    }
}
