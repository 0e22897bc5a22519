//! The pipeline that a [`DirectionSpec`] asks for.
//!
//! Stages stand in the order of the spec's fields; what is not asked for is not there, and takes no
//! time. The size above which frames vanish is the driver's business: it knows network bytes.

use units::{Duration, Instant};

use crate::aqm::{Codel, FqCodel, MarkingDropTail, Red};
use crate::coalesce::Coalesce;
use crate::copies::{Corrupt, Duplicate};
use crate::event::DropCause;
use crate::harmonizer::{Lengthen, Shuffle};
use crate::jitter::Jitter;
use crate::loss::{BurstLoss, BurstModel, ListedLoss, PeriodicLoss, RandomLoss};
use crate::medium::{AtMedium, End, SharedMedium};
use crate::outage::Outage;
use crate::pair::Link;
use crate::pipeline::{DelayLine, Pipeline, Stage};
use crate::policer::{FlowCap, Policer};
use crate::queue::{Discipline, DropTail, Queue, QueueLimits, Server};
use crate::shared::SharedBuffer;
use crate::spec::{
    DirectionSpec, DisciplineSpec, HarmonizerMode, HarmonizerSpec, LossSpec, Medium, Outages,
    RateSpec, ServerSpec, SharedSpec,
};
use crate::trace::Trace;

impl DirectionSpec {
    /// The stages that are asked for, with room for `trains` at the line's end before it must grow.
    /// Outages and traces begin at `start`.
    ///
    /// Each random stage has a seed of its own, made of the direction's and the stage's kind and not
    /// of its neighbours: another delay leaves the losses as they were. The first loss, if random,
    /// has the direction's seed itself.
    ///
    /// # Panics
    /// When the spec holds what a stage refuses: a rate of zero, a probability outside 0..=1, a
    /// trace that cannot be read. When its medium is shared: that takes both directions, a [`Link`].
    pub fn pipeline(&self, start: Instant, trains: usize) -> Pipeline {
        assert!(self.shared.is_none(), "a shared medium has two directions");
        Pipeline::new(self.stages(start, false, None), trains)
    }

    /// As [`Self::pipeline`], its queue one of those that share `buffer`. There must be no packet
    /// budget and no harmonizer: what they delay would come to the queue later than the pipeline
    /// knows.
    ///
    /// # Panics
    /// As [`Self::pipeline`].
    pub fn pipeline_in(&self, buffer: &SharedBuffer, start: Instant, trains: usize) -> Pipeline {
        assert!(self.shared.is_none(), "a shared medium has two directions");
        Pipeline::new(self.stages(start, false, Some(buffer)), trains)
    }

    /// As [`Self::pipeline`] with stages for outages, random loss and delay in any case, so that a
    /// running link can be changed in them. Decisions are the same until it is.
    ///
    /// # Panics
    /// As [`Self::pipeline`].
    pub fn changeable_pipeline(&self, start: Instant, trains: usize) -> Pipeline {
        assert!(self.shared.is_none(), "a shared medium has two directions");
        Pipeline::new(self.stages(start, true, None), trains)
    }

    /// Both as [`Self::pipeline_in`] and [`Self::changeable_pipeline`].
    ///
    /// # Panics
    /// As [`Self::pipeline`].
    pub fn changeable_pipeline_in(
        &self,
        buffer: &SharedBuffer,
        start: Instant,
        trains: usize,
    ) -> Pipeline {
        Pipeline::new(self.stages(start, true, Some(buffer)), trains)
    }

    fn stages(
        &self,
        start: Instant,
        changeable: bool,
        buffer: Option<&SharedBuffer>,
    ) -> Vec<Box<dyn Stage>> {
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        if changeable || self.outages != Outages::default() {
            stages.push(Box::new(Outage::new(self.outages.clone(), start)));
        }
        if let Some(policer) = self.policer {
            stages.push(Box::new(Policer::new(policer)));
        }
        if let Some(cap) = self.flow_cap {
            stages.push(Box::new(FlowCap::new(cap)));
        }
        if let Some(budget) = self.packet_budget {
            let limits = QueueLimits {
                bytes: None,
                packets: Some(budget.queue_packets),
            };
            let queue = Box::new(DropTail::new(limits));
            let server = Server::packets(budget.per_second);
            let budget = Queue::new("budget", queue, server).dropping_as(DropCause::Budget);
            stages.push(Box::new(budget));
        }
        if let Some(harmonizer) = self.harmonizer {
            stages.push(harmonizer.stage(mix(self.seed, SEED_OF_SHUFFLE)));
        }
        if self.shared.is_some() {
            stages.push(Box::new(AtMedium));
        } else if let Some(rate) = &self.rate {
            let queue = rate.queue(start, mix(self.seed, SEED_OF_QUEUE));
            stages.push(match buffer {
                Some(buffer) => buffer.join(queue),
                None => Box::new(queue),
            });
        }
        let random = |l: &LossSpec| matches!(l, LossSpec::Random(_));
        if changeable && !self.loss.iter().any(random) {
            stages.push(Box::new(RandomLoss::new(0.0, self.seed)));
        }
        for (number, loss) in (0..).zip(&self.loss) {
            stages.push(loss.stage(self.seed, number));
        }
        if self.duplicate > 0.0 {
            let seed = mix(self.seed, SEED_OF_DUPLICATE);
            stages.push(Box::new(Duplicate::new(self.duplicate, seed)));
        }
        if self.corrupt > 0.0 {
            let seed = mix(self.seed, SEED_OF_CORRUPT);
            stages.push(Box::new(Corrupt::new(self.corrupt, seed)));
        }
        if let Some(jitter) = self.jitter {
            let seed = mix(self.seed, SEED_OF_JITTER);
            stages.push(Box::new(Jitter::new(self.delay, jitter, seed)));
        } else if changeable || self.delay > Duration::ZERO {
            stages.push(Box::new(DelayLine::new(self.delay)));
        }
        if let Some(coalesce) = self.coalesce {
            stages.push(Box::new(Coalesce::new(coalesce)));
        }
        stages
    }
}

impl Link {
    /// The link of two directions, the first forward, with room for `trains` at each end before it
    /// must grow. With `changeable`, as [`DirectionSpec::changeable_pipeline`].
    ///
    /// # Panics
    /// As [`DirectionSpec::pipeline`]; and when one direction has a shared medium and the other has
    /// none, or another rate or cable, or they are no constant rates of an Ethernet.
    pub fn of(specs: [&DirectionSpec; 2], start: Instant, trains: usize, changeable: bool) -> Self {
        Self::of_in([None, None], specs, start, trains, changeable)
    }

    /// As [`Self::of`]; the queue of a direction with a buffer is one of those that share it, as
    /// [`DirectionSpec::pipeline_in`] has it.
    ///
    /// # Panics
    /// As [`Self::of`]; and when a direction has both a shared medium and a buffer.
    pub fn of_in(
        buffers: [Option<&SharedBuffer>; 2],
        specs: [&DirectionSpec; 2],
        start: Instant,
        trains: usize,
        changeable: bool,
    ) -> Self {
        let both =
            |(s, b): (&&DirectionSpec, &Option<&SharedBuffer>)| s.shared.is_some() && b.is_some();
        assert!(
            !specs.iter().zip(&buffers).any(both),
            "a shared medium has queues of its own"
        );
        let mut buffers = buffers.into_iter();
        let pipelines = specs.map(|s| {
            let buffer = buffers.next().flatten();
            Pipeline::new(s.stages(start, changeable, buffer), trains)
        });
        let [Some(forward), Some(backward)] = specs.map(|s| s.shared) else {
            let unshared = specs.iter().all(|s| s.shared.is_none());
            assert!(unshared, "one end alone shares nothing");
            return Self::new(pipelines);
        };
        assert!(forward.cable == backward.cable, "one cable has one delay");
        let rates = specs.map(|s| match &s.rate {
            Some(RateSpec {
                server: ServerSpec::Rate(rate),
                ..
            }) => *rate,
            _ => panic!("a shared medium has a constant rate"),
        });
        assert!(rates[0] == rates[1], "a shared medium has one rate");
        let ends = [(specs[0], forward), (specs[1], backward)].map(|(s, shared)| s.end(shared));
        let medium = SharedMedium::new(rates[0], forward.cable, ends);
        let gated = pipelines.map(|p| {
            let place = p.stage_names().position(|name| name == AtMedium.name());
            let stage = place.unwrap_or(0);
            p.with_gate(stage)
        });
        Self::sharing(gated, medium)
    }
}

impl DirectionSpec {
    /// The end at which this direction enters a shared medium.
    fn end(&self, shared: SharedSpec) -> End {
        let Medium::Ethernet { gap_bytes } = self.medium else {
            panic!("only an Ethernet is shared");
        };
        let Some(rate) = &self.rate else {
            panic!("a shared medium has a rate");
        };
        let seed = mix(self.seed, SEED_OF_QUEUE);
        End {
            duplex: shared.duplex,
            gap_bytes,
            discipline: rate.discipline.queue(rate.limits, seed),
            seed: mix(self.seed, SEED_OF_BACKOFF),
        }
    }
}

impl HarmonizerSpec {
    fn stage(&self, seed: u64) -> Box<dyn Stage> {
        match self.mode {
            HarmonizerMode::Shuffle { hold } => Box::new(Shuffle::new(hold, self.memory, seed)),
            HarmonizerMode::Lengthen {
                round_trip,
                delay_max,
                rate,
            } => Box::new(Lengthen::new(round_trip, delay_max, rate, self.memory)),
        }
    }
}

impl RateSpec {
    fn queue(&self, start: Instant, seed: u64) -> Queue {
        let server = match &self.server {
            ServerSpec::Rate(rate) => Server::rate(*rate),
            ServerSpec::Trace(text) => match Trace::parse(text) {
                Ok(trace) => Server::Trace(trace.starting_at(start)),
                Err(error) => panic!("{error}"),
            },
        };
        Queue::new("queue", self.discipline.queue(self.limits, seed), server)
    }
}

impl DisciplineSpec {
    fn queue(self, limits: QueueLimits, seed: u64) -> Box<dyn Discipline> {
        match self {
            Self::DropTail { mark_above: None } => Box::new(DropTail::new(limits)),
            Self::DropTail {
                mark_above: Some(bytes),
            } => Box::new(MarkingDropTail::new(limits, bytes.as_u64())),
            Self::Red {
                min,
                max,
                probability,
                weight,
                ecn,
            } => {
                let (min, max) = (min.as_u64(), max.as_u64());
                Box::new(Red::new(limits, min, max, probability, weight, ecn, seed))
            }
            Self::Codel(codel) => Box::new(Codel::new(limits, codel)),
            Self::FqCodel {
                codel,
                flows,
                quantum_bytes,
            } => Box::new(FqCodel::new(limits, codel, flows, quantum_bytes)),
        }
    }
}

impl LossSpec {
    /// The `number`-th loss of a direction, from 0.
    fn stage(&self, seed: u64, number: u64) -> Box<dyn Stage> {
        let own_seed = || mix(seed, SEED_OF_LOSS + number);
        match *self {
            // Runs of old, whose only draws were these, are to be the same again.
            Self::Random(probability) if number == 0 => {
                Box::new(RandomLoss::new(probability, seed))
            }
            Self::Random(probability) => Box::new(RandomLoss::new(probability, own_seed())),
            Self::Burst {
                enter,
                leave,
                good,
                bad,
            } => {
                let model = BurstModel {
                    enter,
                    leave,
                    good,
                    bad,
                };
                Box::new(BurstLoss::new(model, own_seed()))
            }
            Self::Periodic { every, offset } => Box::new(PeriodicLoss::new(every, offset)),
            Self::Listed(ref numbers) => Box::new(ListedLoss::new(numbers.clone())),
        }
    }
}

/// A seed of its own for stage kind `k`: the finaliser of splitmix64 over both, as in `units::Rng`.
const fn mix(seed: u64, k: u64) -> u64 {
    let mut z = seed.wrapping_add(k.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

// Numbers that never change, so that a seed means the same world for ever.
const SEED_OF_QUEUE: u64 = 1;
const SEED_OF_DUPLICATE: u64 = 2;
const SEED_OF_CORRUPT: u64 = 3;
const SEED_OF_JITTER: u64 = 4;
const SEED_OF_BACKOFF: u64 = 5;
const SEED_OF_SHUFFLE: u64 = 6;
/// And what follows, for further losses.
const SEED_OF_LOSS: u64 = 16;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::event::{Decision, Event};
    use crate::loss::testing::{spaced, train};
    use crate::pipeline::{Change, Output, Release};
    use crate::spec::{
        CoalesceSpec, CodelSpec, JitterShape, JitterSpec, PacketBudget, PolicerSpec,
    };
    use crate::train::{Marks, Train};
    use units::{Bytes, Rate, Rng};

    const START: Instant = Instant::from_ns(1_000_000);
    const RATE: Rate = Rate::from_bits_per_second(1_000_000_000);

    fn names(spec: &DirectionSpec) -> Vec<&'static str> {
        spec.pipeline(START, 4).stage_names().collect()
    }

    fn everything() -> DirectionSpec {
        let policer = Some(PolicerSpec {
            rate: RATE,
            burst: Bytes::new(100_000),
        });
        DirectionSpec {
            outages: Outages {
                spans: vec![(Duration::from_ms(1), Duration::from_ms(2))],
                periodic: None,
            },
            policer,
            flow_cap: policer,
            packet_budget: Some(PacketBudget {
                per_second: 1_000_000,
                queue_packets: 100,
            }),
            harmonizer: Some(HarmonizerSpec {
                mode: HarmonizerMode::Shuffle {
                    hold: Duration::from_us(300),
                },
                memory: Bytes::new(100_000),
            }),
            rate: Some(RateSpec {
                server: ServerSpec::Rate(RATE),
                limits: QueueLimits::default(),
                discipline: DisciplineSpec::DropTail { mark_above: None },
            }),
            loss: vec![
                LossSpec::Random(0.1),
                LossSpec::Burst {
                    enter: 0.1,
                    leave: 0.5,
                    good: 0.0,
                    bad: 1.0,
                },
                LossSpec::Periodic {
                    every: 10,
                    offset: 1,
                },
                LossSpec::Listed(vec![1]),
            ],
            duplicate: 0.1,
            corrupt: 0.1,
            delay: Duration::from_us(200),
            coalesce: Some(CoalesceSpec {
                hold: Duration::from_us(50),
                packets: 8,
            }),
            ..DirectionSpec::default()
        }
    }

    #[test]
    fn stages_stand_in_the_order_of_the_fields_and_only_where_asked_for() {
        assert!(names(&DirectionSpec::default()).is_empty());
        let all = [
            "outage",
            "policer",
            "flow-cap",
            "budget",
            "shuffle",
            "queue",
            "loss",
            "burst-loss",
            "periodic-loss",
            "listed-loss",
            "duplicate",
            "corrupt",
            "delay",
            "coalesce",
        ];
        assert_eq!(names(&everything()), all);
        let jitter = Some(JitterSpec {
            amount: Duration::ZERO,
            shape: JitterShape::Normal,
            correlation: 0.0,
            reorder: false,
        });
        let with_jitter = DirectionSpec {
            jitter,
            delay: Duration::ZERO,
            ..DirectionSpec::default()
        };
        assert_eq!(names(&with_jitter), ["jitter"]);
    }

    /// Random lines for each property; 1,000 of them held when the test was written.
    const SEEDS: u64 = 60;

    /// What became of everything: releases in their order, and all events.
    type World = (Vec<Release>, Vec<Event>);

    /// When a driver looks.
    enum Driver {
        /// All trains are fed first, then each timeout is kept.
        FedAhead,
        /// Trains are fed when they come, and each timeout is kept.
        Punctual,
        /// Trains are fed when they come; between them, timeouts are missed by up to so many ns.
        Late(u64),
    }

    /// Polls until nothing is due before `end` (exclusive) or at all.
    fn poll_to(
        p: &mut Pipeline,
        now: &mut Instant,
        end: Instant,
        lag: &mut dyn FnMut() -> u64,
        world: &mut World,
    ) {
        for _ in 0..10_000_000_u64 {
            match p.poll_output(*now, &mut world.1) {
                Output::Release(release) => {
                    assert!(release.at <= *now, "released before its time");
                    world.0.push(release);
                }
                Output::Timeout(at) => {
                    assert!(at > *now, "a timeout lies in the future");
                    if at >= end {
                        return;
                    }
                    let late = at + Duration::from_ns(lag());
                    *now = late.min(end - Duration::from_ns(1));
                }
                Output::Idle => return,
            }
        }
        panic!("the pipeline never went idle");
    }

    fn drive(spec: &DirectionSpec, trains: &[Train], driver: &Driver) -> World {
        drive_through(spec.pipeline(START, 16), trains, driver)
    }

    fn drive_through(mut p: Pipeline, trains: &[Train], driver: &Driver) -> World {
        let mut world = (Vec::new(), Vec::new());
        let mut now = Instant::ZERO;
        let mut rng = Rng::new(1);
        let mut lag = || match *driver {
            Driver::Late(most) => rng.next_u64() % (most + 1),
            _ => 0,
        };
        for &train in trains {
            if !matches!(driver, Driver::FedAhead) {
                poll_to(&mut p, &mut now, train.at, &mut lag, &mut world);
            }
            let counted = p.handle_train(train, &mut world.1);
            assert_eq!(counted, train.at, "nothing is late here");
        }
        poll_to(&mut p, &mut now, Instant::MAX, &mut lag, &mut world);
        assert_eq!(p.segments_waiting(), 0, "something never came out");
        world.1.sort_by_key(|e| {
            let t = &e.train;
            (
                e.stage,
                t.handle,
                t.first,
                t.at,
                t.marks.has(Marks::COPY),
                e.decision.code(),
            )
        });
        world
    }

    struct Draw(Rng);

    impl Draw {
        fn below(&mut self, n: u64) -> u64 {
            self.0.next_u64() % n
        }

        fn one_in(&mut self, n: u64) -> bool {
            self.below(n) == 0
        }

        fn us_below(&mut self, n: u64) -> Duration {
            Duration::from_ns(self.below(n * 1_000))
        }

        fn share(&mut self) -> f64 {
            self.0.next_f64() * 0.3
        }

        fn policer(&mut self) -> PolicerSpec {
            PolicerSpec {
                rate: Rate::from_bits_per_second(100_000_000 + self.below(3_000_000_000)),
                burst: Bytes::new(1_500 + self.below(200_000)),
            }
        }

        fn codel(&mut self) -> CodelSpec {
            CodelSpec {
                target: self.us_below(500),
                interval: Duration::from_us(100) + self.us_below(5_000),
                ecn: self.one_in(2),
            }
        }

        fn discipline(&mut self) -> DisciplineSpec {
            match self.below(5) {
                0 => DisciplineSpec::DropTail { mark_above: None },
                1 => DisciplineSpec::DropTail {
                    mark_above: Some(Bytes::new(self.below(50_000))),
                },
                2 => DisciplineSpec::Red {
                    min: Bytes::new(5_000 + self.below(20_000)),
                    max: Bytes::new(30_000 + self.below(50_000)),
                    probability: 0.1,
                    weight: 0.02,
                    ecn: self.one_in(2),
                },
                3 => DisciplineSpec::Codel(self.codel()),
                _ => DisciplineSpec::FqCodel {
                    codel: self.codel(),
                    flows: 4,
                    quantum_bytes: 1514,
                },
            }
        }

        fn rate(&mut self) -> RateSpec {
            let server = if self.one_in(4) {
                ServerSpec::Trace("0\n1\n1\n1\n2\n4\n".to_owned())
            } else {
                ServerSpec::Rate(Rate::from_bits_per_second(
                    100_000_000 + self.below(9_000_000_000),
                ))
            };
            let packets = u32::try_from(20 + self.below(100)).ok();
            let bytes = Some(20_000 + self.below(200_000));
            RateSpec {
                server,
                limits: QueueLimits {
                    bytes: bytes.filter(|_| self.one_in(2)),
                    packets,
                },
                discipline: self.discipline(),
            }
        }

        fn harmonizer(&mut self) -> HarmonizerSpec {
            let time = Duration::from_us(1) + self.us_below(1_500);
            let mode = if self.one_in(2) {
                HarmonizerMode::Shuffle { hold: time }
            } else {
                HarmonizerMode::Lengthen {
                    round_trip: time,
                    delay_max: self.us_below(2_000),
                    rate: self.policer().rate,
                }
            };
            HarmonizerSpec {
                mode,
                memory: Bytes::new(self.below(400_000)),
            }
        }

        fn loss(&mut self) -> LossSpec {
            match self.below(4) {
                0 => LossSpec::Random(self.share()),
                1 => LossSpec::Burst {
                    enter: self.share(),
                    leave: self.share() + 0.1,
                    good: 0.0,
                    bad: 1.0,
                },
                2 => LossSpec::Periodic {
                    every: 1 + self.below(20),
                    offset: 1 + self.below(40),
                },
                _ => LossSpec::Listed((1..200).filter(|_| self.one_in(9)).collect()),
            }
        }

        fn spec(&mut self) -> DirectionSpec {
            DirectionSpec {
                outages: Outages {
                    spans: vec![(
                        Duration::from_ms(2),
                        Duration::from_ms(2) + self.us_below(1_000),
                    )],
                    periodic: Some((Duration::from_us(700), self.us_below(100)))
                        .filter(|_| self.one_in(2)),
                },
                policer: self.one_in(4).then(|| self.policer()),
                flow_cap: self.one_in(4).then(|| self.policer()),
                packet_budget: self.one_in(3).then(|| PacketBudget {
                    per_second: 50_000 + self.below(2_000_000),
                    queue_packets: u32::try_from(self.below(200)).unwrap(),
                }),
                harmonizer: self.one_in(2).then(|| self.harmonizer()),
                rate: self.one_in(2).then(|| self.rate()),
                loss: (0..self.below(3)).map(|_| self.loss()).collect(),
                duplicate: if self.one_in(2) { self.share() } else { 0.0 },
                corrupt: if self.one_in(2) { self.share() } else { 0.0 },
                delay: if self.one_in(4) {
                    Duration::ZERO
                } else {
                    self.us_below(3_000)
                },
                jitter: self.one_in(2).then(|| JitterSpec {
                    amount: self.us_below(400),
                    shape: if self.one_in(2) {
                        JitterShape::Uniform
                    } else {
                        JitterShape::Normal
                    },
                    correlation: if self.one_in(2) { 0.0 } else { self.share() },
                    reorder: self.one_in(2),
                }),
                coalesce: self.one_in(2).then(|| CoalesceSpec {
                    hold: self.us_below(100),
                    packets: u32::try_from(self.below(40)).unwrap(),
                }),
                seed: self.0.next_u64(),
                ..DirectionSpec::default()
            }
        }

        fn change(&mut self) -> (Instant, Change) {
            let change = match self.below(5) {
                0 => Change::Rate(self.policer().rate),
                1 => Change::Limits(QueueLimits {
                    bytes: Some(self.below(100_000)),
                    packets: None,
                }),
                2 => Change::Delay(self.us_below(3_000)),
                3 => Change::Loss(self.share()),
                _ => Change::Up(self.one_in(2)),
            };
            (START + self.us_below(6_000), change)
        }

        /// Trains one behind the other: together, or evenly spaced.
        fn trains(&mut self) -> Vec<Train> {
            let mut at = START;
            let mut trains = Vec::new();
            for handle in 0..60 {
                at += self.us_below(150);
                let count = u16::try_from(1 + self.below(44)).unwrap();
                let base = if self.one_in(2) {
                    train(handle, count, at.as_ns())
                } else {
                    spaced(handle, count, at.as_ns(), self.below(3_000))
                };
                trains.push(Train {
                    flow: u32::try_from(self.below(4)).unwrap(),
                    group: [0, 7, Train::NO_GROUP][usize::try_from(self.below(5) / 2).unwrap()],
                    marks: if self.one_in(2) {
                        Marks::ECT
                    } else {
                        Marks::NONE
                    },
                    wire_bytes: u32::try_from(84 + self.below(1_454)).unwrap(),
                    ..base
                });
                at = base.last_time();
            }
            trains
        }
    }

    /// How often each segment was released or lost, less how often it came or was copied.
    fn balance(trains: &[Train], (releases, events): &World) -> BTreeMap<(u64, u16), i64> {
        let mut books = BTreeMap::new();
        let mut book = |handle: u64, first: u16, count: u16, by: i64| {
            for k in first..first + count {
                *books.entry((handle, k)).or_insert(0) += by;
            }
        };
        for t in trains {
            book(t.handle, t.first, t.count, -1);
        }
        for r in releases {
            book(r.handle, r.first, r.count, 1);
        }
        for Event {
            train: t, decision, ..
        } in events
        {
            match decision {
                Decision::Dropped { .. } => book(t.handle, t.first, t.count, 1),
                Decision::Duplicated => book(t.handle, t.first, t.count, -1),
                _ => {}
            }
        }
        books
    }

    fn check_books(trains: &[Train], world: &World, what: &str) {
        let books = balance(trains, world);
        let wrong: Vec<_> = books.iter().filter(|(_, sum)| **sum != 0).take(5).collect();
        assert!(wrong.is_empty(), "{what}: {wrong:?}");
        let in_order = world.0.windows(2).all(|r| r[0].last_at <= r[1].at);
        assert!(in_order, "{what}");
    }

    #[test]
    fn no_segment_is_lost_from_the_books_and_lateness_decides_nothing() {
        for seed in 0..SEEDS {
            let mut draw = Draw(Rng::new(seed));
            let (spec, trains) = (draw.spec(), draw.trains());
            let what = format!("seed {seed}: {spec:?}");
            let world = drive(&spec, &trains, &Driver::Punctual);
            check_books(&trains, &world, &what);
            let again = Driver::Punctual;
            for driver in [
                again,
                Driver::FedAhead,
                Driver::Late(50_000),
                Driver::Late(5_000_000),
            ] {
                assert_eq!(world, drive(&spec, &trains, &driver), "{what}");
            }
        }
    }

    #[test]
    fn changes_on_the_way_lose_nothing_and_take_effect_at_their_time_however_late_the_driver() {
        for seed in 0..SEEDS {
            let mut draw = Draw(Rng::new(seed));
            let (spec, trains) = (draw.spec(), draw.trains());
            let changes: Vec<_> = (0..4).map(|_| draw.change()).collect();
            let what = format!("seed {seed}: {changes:?} {spec:?}");
            let changing = |driver| {
                let mut p = spec.pipeline(START, 16);
                for &(at, change) in &changes {
                    p.schedule(at, change);
                }
                drive_through(p, &trains, &driver)
            };
            let world = changing(Driver::Punctual);
            check_books(&trains, &world, &what);
            assert_eq!(world, changing(Driver::Late(500_000)), "{what}");
        }
    }

    #[test]
    fn every_stage_of_the_whole_line_has_its_part() {
        let mut draw = Draw(Rng::new(3));
        let trains: Vec<Train> = (0..20).flat_map(|_| draw.trains()).collect();
        let mut at = START;
        let trains: Vec<Train> = (0..)
            .zip(trains)
            .map(|(handle, t)| {
                at += Duration::from_us(100);
                Train { handle, at, ..t }
            })
            .collect();
        let spec = everything();
        let (_, events) = drive(&spec, &trains, &Driver::FedAhead);
        let seen: std::collections::BTreeSet<(u8, u8)> = events
            .iter()
            .map(|e| (e.stage, e.decision.code()))
            .collect();
        let drops = |stage: u8, cause: DropCause| seen.contains(&(stage, cause as u8));
        assert!(drops(0, DropCause::Outage));
        assert!(drops(6, DropCause::Random) && drops(7, DropCause::Burst));
        assert!(drops(8, DropCause::Periodic) && drops(9, DropCause::Listed));
        assert!(seen.contains(&(10, 6)) && seen.contains(&(11, 7)) && seen.contains(&(14, 4)));
        assert_eq!(
            balance(&trains, &drive(&spec, &trains, &Driver::Punctual))
                .values()
                .max(),
            Some(&0)
        );
    }

    fn losses(spec: &DirectionSpec) -> Vec<(u64, u16, u16)> {
        let trains: Vec<Train> = (0..50).map(|h| train(h, 44, h * 1_000_000)).collect();
        let (_, events) = drive(spec, &trains, &Driver::FedAhead);
        let is_loss = |e: &&Event| e.decision == Decision::lost(DropCause::Random);
        let lost = events.iter().filter(is_loss);
        lost.map(|e| (e.train.handle, e.train.first, e.train.count))
            .collect()
    }

    #[test]
    fn the_first_random_loss_has_the_directions_seed_whatever_else_is_there() {
        let only = DirectionSpec {
            loss: vec![LossSpec::Random(0.1)],
            seed: 77,
            ..DirectionSpec::default()
        };
        let mut old = Pipeline::new(vec![Box::new(RandomLoss::new(0.1, 77))], 4);
        let mut log = Vec::new();
        for h in 0..50 {
            old.handle_train(train(h, 44, h * 1_000_000), &mut log);
        }
        let is_loss = |e: &&Event| e.decision == Decision::lost(DropCause::Random);
        let expected: Vec<_> = log
            .iter()
            .filter(is_loss)
            .map(|e| (e.train.handle, e.train.first, e.train.count))
            .collect();
        assert_eq!(losses(&only), expected);
        let more = DirectionSpec {
            duplicate: 0.1,
            delay: Duration::from_ms(1),
            ..only.clone()
        };
        assert_eq!(losses(&more), expected);
        assert_ne!(losses(&DirectionSpec { seed: 78, ..only }), expected);
    }

    #[test]
    fn a_seed_always_means_the_same_world() {
        let jitter = Some(JitterSpec {
            amount: Duration::from_us(100),
            shape: JitterShape::Uniform,
            correlation: 0.5,
            reorder: true,
        });
        let spec = DirectionSpec {
            policer: None,
            flow_cap: None,
            jitter,
            coalesce: None,
            duplicate: 0.3,
            corrupt: 0.3,
            seed: 5,
            ..everything()
        };
        let (released, _) = drive(&spec, &[train(1, 8, 1_000_000)], &Driver::Punctual);
        let each = |r: &Release| (r.at.as_ns(), r.first, r.marks.has(Marks::COPY), r.damage);
        let world: Vec<_> = released.iter().map(each).collect();
        // The second copy of segment 4 overtakes the first.
        let expected = [
            (1_287_582, 2, false, 0),
            (1_308_232, 3, false, 2_311_948_495),
            (1_309_241, 4, true, 0),
            (1_325_827, 4, false, 0),
            (1_339_589, 5, false, 0),
            (1_372_743, 6, false, 0),
            (1_376_257, 7, false, 0),
        ];
        assert_eq!(world, expected);
    }

    #[test]
    fn two_losses_of_one_kind_draw_apart() {
        let spec = DirectionSpec {
            loss: vec![LossSpec::Random(0.5); 2],
            ..DirectionSpec::default()
        };
        let trains = [train(1, 10_000, 0)];
        let (released, _) = drive(&spec, &trains, &Driver::FedAhead);
        let passed: u16 = released.iter().map(|r| r.count).sum();
        // A quarter, with a deviation of 43; with the same draws it would be half.
        assert!((2_300..2_700).contains(&passed), "{passed}");
    }

    #[test]
    fn outages_and_traces_begin_at_the_start() {
        let spec = DirectionSpec {
            outages: Outages {
                spans: vec![(Duration::from_ms(1), Duration::from_ms(2))],
                periodic: None,
            },
            rate: Some(RateSpec {
                server: ServerSpec::Trace("4\n".to_owned()),
                limits: QueueLimits::default(),
                discipline: DisciplineSpec::DropTail { mark_above: None },
            }),
            ..DirectionSpec::default()
        };
        // The start is 1 ms: down from 2 ms to 3 ms, opportunities at 5 ms, 9 ms, …
        let trains =
            [(1, 1_500_000), (2, 2_500_000), (3, 3_000_000)].map(|(handle, at_ns)| Train {
                wire_bytes: 1504,
                ..train(handle, 1, at_ns)
            });
        let (released, _) = drive(&spec, &trains, &Driver::Punctual);
        let at: Vec<_> = released.iter().map(|r| (r.handle, r.at.as_ns())).collect();
        assert_eq!(at, [(1, 5_000_000), (3, 9_000_000)]);
    }

    #[test]
    #[should_panic(expected = "line 1")]
    fn a_trace_that_cannot_be_read_is_refused() {
        let mut spec = everything();
        spec.rate.as_mut().unwrap().server = ServerSpec::Trace("soon".to_owned());
        let _ = spec.pipeline(START, 1);
    }
}
