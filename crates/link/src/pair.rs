//! A link: the pipelines of both its directions, and the medium between them where they share one.
//!
//! Without a shared medium the directions know nothing of each other. With one, each pipeline is cut
//! in two at its place: what comes there waits, the [`SharedMedium`] is settled for both directions to one
//! time, and what has crossed it goes on. That time is as late as the direction with the shorter delay
//! behind the medium allows; before the medium no stage adds a delay.

use units::{Duration, Instant};

use crate::event::{Event, Log};
use crate::medium::SharedMedium;
use crate::pipeline::{Change, Output, Pipeline, Trains};
use crate::train::Train;

/// Which way segments go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the first end to the second.
    Forward,
    /// Back.
    Backward,
}

/// Takes the events of both directions of a link. Implementations must not block.
pub trait LinkLog {
    /// One decision on segments that go `way`.
    fn on_event(&mut self, way: Way, event: &Event);

    /// As [`Log::wants_each`].
    fn wants_each(&self) -> bool {
        true
    }
}

/// Both directions of a link.
#[derive(Debug)]
pub struct Link {
    sides: [Pipeline; 2],
    shared: Option<Shared>,
}

#[derive(Debug)]
struct Shared {
    medium: SharedMedium,
    out: [Trains; 2],
}

/// The events of one direction.
pub(crate) struct OfWay<'a> {
    way: Way,
    pub(crate) log: &'a mut dyn LinkLog,
}

/// Puts the number of the medium's place to its events.
struct AtGate<'a> {
    stages: [u8; 2],
    log: &'a mut dyn LinkLog,
}

impl LinkLog for AtGate<'_> {
    fn on_event(&mut self, way: Way, event: &Event) {
        let stage = self.stages[way.place()];
        self.log.on_event(way, &Event { stage, ..*event });
    }
}

impl Way {
    /// Both, in the order of their places.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Backward];

    /// 0 for forward, 1 for backward.
    pub const fn place(self) -> usize {
        match self {
            Self::Forward => 0,
            Self::Backward => 1,
        }
    }

    /// Against it.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }

    pub(crate) fn of(self, log: &mut dyn LinkLog) -> OfWay<'_> {
        OfWay { way: self, log }
    }
}

impl Log for OfWay<'_> {
    fn on_event(&mut self, event: &Event) {
        self.log.on_event(self.way, event);
    }

    fn wants_each(&self) -> bool {
        self.log.wants_each()
    }
}

/// A log for each way.
impl<L: Log> LinkLog for [L; 2] {
    fn on_event(&mut self, way: Way, event: &Event) {
        self[way.place()].on_event(event);
    }

    fn wants_each(&self) -> bool {
        self.iter().any(Log::wants_each)
    }
}

impl Link {
    /// Two directions that know nothing of each other.
    pub const fn new(sides: [Pipeline; 2]) -> Self {
        Self {
            sides,
            shared: None,
        }
    }

    /// Two directions that share `medium`, each with a place for it in its row.
    pub(crate) fn sharing(sides: [Pipeline; 2], medium: SharedMedium) -> Self {
        let out = <[Trains; 2]>::default();
        Self {
            sides,
            shared: Some(Shared { medium, out }),
        }
    }

    /// Lets a driver that is more than `behind` late send what is overdue of a train going `way` in
    /// one piece, as [`Pipeline::catching_up_when`].
    #[must_use]
    pub fn catching_up_when(mut self, way: Way, behind: Duration) -> Self {
        self.catch_up_when(way, behind);
        self
    }

    /// The same from now on.
    pub fn catch_up_when(&mut self, way: Way, behind: Duration) {
        self.sides[way.place()].set_catch_up(behind);
    }

    /// Changes a direction at `at`; what happened until then is settled by the old rules.
    pub fn schedule(&mut self, way: Way, at: Instant, change: Change) {
        self.sides[way.place()].schedule(at, change);
    }

    /// Names of the stages of a direction, in the order in which frames meet them.
    pub fn stage_names(&self, way: Way) -> impl Iterator<Item = &'static str> + '_ {
        self.sides[way.place()].stage_names()
    }

    /// True where what comes one way bears on the other.
    pub const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Sends a train down a direction, as [`Pipeline::handle_train`].
    pub fn handle_train(&mut self, way: Way, train: Train, log: &mut dyn LinkLog) -> Instant {
        self.sides[way.place()].handle_train(train, &mut way.of(log))
    }

    /// The next segments that are due at the end of a direction at `now`, or when to ask again.
    pub fn poll_output(&mut self, way: Way, now: Instant, log: &mut dyn LinkLog) -> Output {
        if self.shared.is_none() {
            return self.sides[way.place()].poll_output(now, &mut way.of(log));
        }
        self.change_until(now, log);
        self.settle(now, false, log);
        match self.sides[way.place()].release(now) {
            Some(release) => Output::Release(release),
            None => self.next_due(way).map_or(Output::Idle, Output::Timeout),
        }
    }

    /// As [`Self::poll_output`], but the whole train of which the first segment is due: for a driver in
    /// virtual time, which sees to the others' times itself. Nothing may come any more that arrives
    /// before `now`.
    pub fn poll_train(&mut self, way: Way, now: Instant, log: &mut dyn LinkLog) -> Option<Train> {
        if self.shared.is_none() {
            return self.sides[way.place()].poll_train(now, &mut way.of(log));
        }
        self.change_until(now, log);
        self.settle(now, false, log);
        self.sides[way.place()].release_train(now)
    }

    /// When [`Self::poll_train`] is to be asked next, as [`Self::next_due`].
    pub fn next_train(&self, way: Way) -> Option<Instant> {
        match self.shared {
            None => self.sides[way.place()].next_train(),
            Some(_) => self.next_due(way),
        }
    }

    /// When a direction is to be polled next, from what is settled: what was polled or sent the other
    /// way may have brought that forward. `None` where nothing is on its way.
    pub fn next_due(&self, way: Way) -> Option<Instant> {
        let side = &self.sides[way.place()];
        let Some(shared) = &self.shared else {
            return side.next_due();
        };
        let lead = self.lead();
        let before = self.sides.iter().filter_map(Pipeline::next_before_gate);
        let at_medium = shared.medium.next_wakeup().into_iter().chain(before);
        let changes = self.sides.iter().filter_map(Pipeline::next_change);
        at_medium
            .map(|at| at + lead)
            .chain(changes)
            .chain(side.next_behind_gate())
            .min()
    }

    /// Segments on their way, both ways.
    pub fn segments_waiting(&self) -> u64 {
        let sides: u64 = self.sides.iter().map(Pipeline::segments_waiting).sum();
        let held = |shared: &Shared| Way::BOTH.map(|way| shared.medium.segments_held(way));
        sides + self.shared.as_ref().map_or(0, |s| held(s).iter().sum())
    }

    /// How far behind the clock the medium may be settled.
    fn lead(&self) -> Duration {
        let [a, b] = &self.sides;
        a.delay_behind_gate().min(b.delay_behind_gate())
    }

    fn change_until(&mut self, now: Instant, log: &mut dyn LinkLog) {
        loop {
            let next = |way: Way| Some((self.sides[way.place()].next_change()?, way));
            let due = Way::BOTH.into_iter().filter_map(next);
            let first = due.min_by_key(|&(at, way)| (at, way.place()));
            let Some((at, way)) = first.filter(|(at, _)| *at <= now) else {
                return;
            };
            self.settle(at, true, log);
            for side in &mut self.sides {
                side.settled_to(at);
            }
            let change = self.sides[way.place()].change_next();
            if let (Some(change), Some(shared)) = (change, &mut self.shared) {
                shared.medium.change(way, &change);
            }
        }
    }

    /// Lets both directions do what bears on their ends up to `now`, or, when `fully`, all up to `now`.
    fn settle(&mut self, now: Instant, fully: bool, log: &mut dyn LinkLog) {
        let lead = if fully { Duration::ZERO } else { self.lead() };
        let Some(shared) = &mut self.shared else {
            return;
        };
        let to = now - lead;
        for way in Way::BOTH {
            let side = &mut self.sides[way.place()];
            side.settle_before_gate(to, fully, &mut way.of(log));
            for train in side.at_gate() {
                shared.medium.handle(way, train);
            }
        }
        let wakes = shared.medium.next_wakeup();
        if wakes.is_some() {
            for side in &mut self.sides {
                side.settled_to(to);
            }
        }
        if wakes.is_some_and(|at| at <= to) {
            let stages = self.sides.each_ref().map(Pipeline::gate_number);
            let mut log = AtGate {
                stages,
                log: &mut *log,
            };
            shared.medium.advance(to, &mut shared.out, &mut log);
        }
        for way in Way::BOTH {
            let side = &mut self.sides[way.place()];
            let mut log = way.of(log);
            side.pass_gate(&mut shared.out[way.place()], &mut log);
            side.settle_behind_gate(now, fully, &mut log);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueLimits;
    use crate::spec::{
        DirectionSpec, DisciplineSpec, Duplex, LossSpec, PacketBudget, RateSpec, ServerSpec,
        SharedSpec,
    };
    use crate::train::testing::train;
    use crate::{Counters, Release};
    use units::{Rate, Rng};

    fn direction(duplex: Option<Duplex>, delay: Duration, seed: u64) -> DirectionSpec {
        let cable = Duration::from_ns(500);
        DirectionSpec {
            rate: Some(RateSpec {
                server: ServerSpec::Rate(Rate::from_bits_per_second(100_000_000)),
                limits: QueueLimits {
                    bytes: Some(60_000),
                    packets: None,
                },
                discipline: DisciplineSpec::DropTail { mark_above: None },
            }),
            shared: duplex.map(|duplex| SharedSpec { duplex, cable }),
            packet_budget: Some(PacketBudget {
                per_second: 20_000,
                queue_packets: 50,
            }),
            loss: vec![LossSpec::Random(0.01)],
            delay,
            seed,
            ..DirectionSpec::default()
        }
    }

    fn link(duplexes: [Option<Duplex>; 2], delays: [Duration; 2]) -> Link {
        let forward = direction(duplexes[0], delays[0], 1);
        let backward = direction(duplexes[1], delays[1], 2);
        let mut link = Link::of([&forward, &backward], Instant::ZERO, 16, true);
        let limits = QueueLimits {
            bytes: Some(20_000),
            packets: None,
        };
        let at = |ms| Instant::ZERO + Duration::from_ms(ms);
        link.schedule(Way::Forward, at(40), Change::Limits(limits));
        link.schedule(Way::Backward, at(60), Change::Up(false));
        link.schedule(Way::Backward, at(65), Change::Up(true));
        link
    }

    type World = ([Vec<Release>; 2], [Vec<Event>; 2]);

    fn trains() -> Vec<(Way, Train)> {
        let mut rng = Rng::new(9);
        let mut next = |n: u64| rng.next_u64() % n;
        let mut now = 0;
        let one = |handle| {
            now += next(600_000);
            let way = Way::BOTH[usize::try_from(next(2)).unwrap()];
            let count = u16::try_from(next(8) + 1).unwrap();
            (way, train(handle, count, now))
        };
        (0..400).map(one).collect()
    }

    /// A driver that is late by up to `lag_ns` for what is due, but not for what comes.
    fn drive(mut link: Link, trains: &[(Way, Train)], lag_ns: u64) -> World {
        let mut world = World::default();
        let mut rng = Rng::new(1);
        let mut now = Instant::ZERO;
        for &(way, train) in trains {
            poll_until(&mut link, &mut now, train.at, lag_ns, &mut rng, &mut world);
            let counted = link.handle_train(way, train, &mut world.1);
            assert_eq!(counted, train.at, "nothing is late here");
        }
        poll_until(
            &mut link,
            &mut now,
            Instant::MAX,
            lag_ns,
            &mut rng,
            &mut world,
        );
        assert_eq!(link.segments_waiting(), 0, "something never came out");
        for log in &mut world.1 {
            log.sort_by_key(|e| (e.stage, e.train.handle, e.train.first, e.decision.code()));
        }
        world
    }

    fn poll_until(
        link: &mut Link,
        now: &mut Instant,
        end: Instant,
        lag_ns: u64,
        rng: &mut Rng,
        world: &mut World,
    ) {
        for _ in 0..1_000_000 {
            let mut next = None;
            for way in Way::BOTH {
                loop {
                    match link.poll_output(way, *now, &mut world.1) {
                        Output::Release(r) => world.0[way.place()].push(r),
                        Output::Timeout(at) => {
                            assert!(at > *now, "a timeout lies in the future");
                            break;
                        }
                        Output::Idle => break,
                    }
                }
            }
            for way in Way::BOTH {
                next = [next, link.next_due(way)].into_iter().flatten().min();
            }
            let Some(at) = next.filter(|at| *at < end) else {
                return;
            };
            let late = at + Duration::from_ns(rng.next_u64() % (lag_ns + 1));
            *now = late.min(end - Duration::from_ns(1));
        }
        panic!("the link never went idle");
    }

    #[test]
    fn how_late_a_shared_link_is_polled_changes_nothing() {
        let (half, full) = (Some(Duplex::Half), Some(Duplex::Full));
        let ms = Duration::from_ms;
        for duplexes in [[half, half], [half, full], [full, half]] {
            for delays in [[ms(2), ms(2)], [ms(0), ms(3)], [ms(0), ms(0)]] {
                let trains = trains();
                let punctual = drive(link(duplexes, delays), &trains, 0);
                let late = drive(link(duplexes, delays), &trains, 1_000_000);
                assert!(punctual == late, "{duplexes:?} {delays:?}");
                let mut sum = Counters::default();
                for event in punctual.1.iter().flatten() {
                    sum.on_event(event);
                }
                assert!(sum.collisions > 0, "{sum:?}");
                assert_eq!(sum.late_collisions > 0, duplexes != [half, half]);
                let offered: u64 = trains.iter().map(|(_, t)| u64::from(t.count)).sum();
                let lost = sum.lost + sum.queue_full;
                let released = punctual.0.iter().flatten().map(|r| u64::from(r.count));
                assert_eq!(offered, lost + released.sum::<u64>(), "{sum:?}");
            }
        }
    }

    #[test]
    fn without_a_shared_medium_a_link_is_two_pipelines() {
        let delays = [Duration::from_ms(2), Duration::from_ms(1)];
        let specs = [direction(None, delays[0], 1), direction(None, delays[1], 2)];
        let linked = Link::of([&specs[0], &specs[1]], Instant::ZERO, 16, false);
        let alone = specs.each_ref().map(|s| s.pipeline(Instant::ZERO, 16));
        let trains = trains();
        let a = drive(linked, &trains, 0);
        let b = drive(Link::new(alone), &trains, 0);
        assert!(a == b && !a.0[0].is_empty());
    }

    #[test]
    fn events_carry_the_place_of_the_medium_in_their_direction() {
        let half = Some(Duplex::Half);
        let link = link([half, half], [Duration::from_ms(1); 2]);
        let names: Vec<&str> = link.stage_names(Way::Forward).collect();
        assert_eq!(names, ["outage", "budget", "medium", "loss", "delay"]);
        let (_, log) = drive(link, &trains(), 0);
        let collided = log.iter().flatten().filter(|e| e.decision.code() == 13);
        assert!(collided.clone().count() > 0 && collided.clone().all(|e| e.stage == 2));
    }
}
