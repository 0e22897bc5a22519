//! Dynamic gap control over a fluid bottleneck, in virtual time: rates, queue, sharing, changes.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive numbers of a small model"
)]

use std::collections::VecDeque;

use tcp::gap_control::{GapControl, Phase, Reading, Ride};
use units::{Duration, Instant, Rng};

/// A bottleneck with a drop-tail queue behind which the round trip lies.
#[derive(Clone, Copy)]
struct Path {
    bits_per_second: f64,
    round_trip: f64,
    /// Queue in products of rate and round trip.
    queue: f64,
    /// Share of packets lost at random.
    loss: f64,
    /// True where what finds no queue is a policer's: a queue of nothing.
    policer: bool,
    /// For so many seconds of each second the bottleneck stands still, as a busy machine does.
    stall: f64,
}

/// A sender that follows its ceiling, and without one doubles what was delivered in each round trip.
struct Flow {
    control: GapControl,
    ceiling: f64,
    own: f64,
    queued: f64,
    /// What left at a time: delivered bytes, lost bytes, the round trip they see.
    under_way: VecDeque<(f64, f64, f64, f64)>,
    delivered: f64,
    lost: f64,
    round_trip: f64,
    start: f64,
    read_at: f64,
    round_at: f64,
    delivered_then: f64,
    held_up: bool,
}

/// What is seen in each round: bytes a second of each flow, mean queue in seconds.
struct Round {
    rates: Vec<f64>,
    queue: f64,
}

struct World {
    path: Path,
    rng: Rng,
    now: f64,
    flows: Vec<Flow>,
}

const SEGMENT: f64 = 1448.0;

impl World {
    fn new(path: Path, starts: &[f64]) -> Self {
        let flow = |(seed, &start): (u64, &f64)| Flow {
            control: GapControl::new(seed * 7919 + 12_345),
            ceiling: f64::INFINITY,
            own: 10.0 * SEGMENT / path.round_trip,
            queued: 0.0,
            under_way: VecDeque::new(),
            delivered: 0.0,
            lost: 0.0,
            round_trip: 0.0,
            start,
            read_at: start,
            round_at: start,
            delivered_then: 0.0,
            held_up: false,
        };
        Self {
            path,
            rng: Rng::new(7),
            now: 0.0,
            flows: (1..).zip(starts).map(flow).collect(),
        }
    }

    /// Lets `rounds` go by: round trips, of 20 ms at least.
    fn run(&mut self, rounds: u64) -> Vec<Round> {
        (0..rounds).map(|_| self.round()).collect()
    }

    fn round(&mut self) -> Round {
        let length = self.path.round_trip.max(0.020);
        let step = (self.path.round_trip / 400.0).min(0.000_5);
        let steps = (length / step).ceil() as u64;
        let before: Vec<f64> = self.flows.iter().map(|f| f.delivered).collect();
        let mut queue = 0.0;
        for _ in 0..steps {
            queue += self.step(step);
        }
        let time = steps as f64 * step;
        let rate = |(flow, before): (&Flow, f64)| (flow.delivered - before) / time;
        Round {
            rates: self.flows.iter().zip(before).map(rate).collect(),
            queue: queue / steps as f64,
        }
    }

    /// Returns the queue's delay.
    fn step(&mut self, step: f64) -> f64 {
        let rate = self.path.bits_per_second / 8.0;
        let limit = match self.path.policer {
            true => 0.0,
            false => self.path.queue * rate * self.path.round_trip,
        };
        let now = self.now;
        let mut total: f64 = self.flows.iter().map(|f| f.queued).sum();
        let out = match now.fract() < self.path.stall {
            true => 0.0,
            false => rate * step,
        };
        for flow in self.flows.iter_mut().filter(|f| f.start <= now) {
            let sent = flow.ceiling.min(flow.own) * step;
            let room = (limit + out - total).max(0.0);
            let taken = sent.min(room);
            let chance = taken / SEGMENT * self.path.loss;
            let hit = self.rng.next_f64() < chance;
            let lost = if hit { taken.min(SEGMENT) } else { 0.0 };
            flow.queued += taken - lost;
            total += taken - lost;
            flow.under_way
                .push_back((now, 0.0, sent - taken + lost, 0.0));
        }
        let out = out.min(total);
        let delay = (total - out) / rate;
        for flow in self.flows.iter_mut().filter(|f| f.start <= now) {
            let part = if total > 0.0 {
                flow.queued / total * out
            } else {
                0.0
            };
            flow.queued -= part;
            if let Some(last) = flow.under_way.back_mut().filter(|_| out > 0.0) {
                last.1 = part;
                last.3 = self.path.round_trip + delay;
            }
            flow.take_in(now, self.path.round_trip);
            flow.read(now, self.rng.next_f64() * 0.000_1, self.path.round_trip);
        }
        self.now += step;
        delay
    }
}

impl Flow {
    fn take_in(&mut self, now: f64, round_trip: f64) {
        while let Some(&(left, delivered, lost, seen)) = self.under_way.front() {
            if left + round_trip > now {
                break;
            }
            self.under_way.pop_front();
            self.delivered += delivered;
            self.lost += lost;
            if seen > 0.0 {
                self.round_trip = seen;
            }
        }
        if now - self.round_at >= round_trip {
            let delivered = (self.delivered - self.delivered_then) / (now - self.round_at);
            self.own = self.own.max(delivered * 2.0);
            self.delivered_then = self.delivered;
            self.round_at = now;
        }
    }

    fn read(&mut self, now: f64, noise: f64, round_trip: f64) {
        if now < self.read_at || self.round_trip == 0.0 {
            return;
        }
        let reading = Reading {
            delivered: self.delivered as u64,
            retransmitted: self.lost as u64,
            round_trip: seconds(self.round_trip + noise),
            held_up: self.held_up,
        };
        let at = Instant::ZERO + seconds(1.0 + now);
        let ceiling = self.control.on_reading(at, &reading);
        self.ceiling = ceiling.map_or(f64::INFINITY, |r| r.as_bits_per_second() as f64 / 8.0);
        self.read_at = now + self.control.interval().as_s_f64().min(round_trip / 4.0);
    }
}

fn seconds(s: f64) -> Duration {
    Duration::from_ns((s * 1e9) as u64)
}

fn path(megabits: f64, round_trip_ms: f64, queue: f64) -> Path {
    Path {
        bits_per_second: megabits * 1e6,
        round_trip: round_trip_ms / 1e3,
        queue,
        loss: 0.0,
        policer: false,
        stall: 0.0,
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), v| (sum + v, n + 1.0));
    sum / n
}

/// Share of the path that flow `n` got, and queue as a share of the round trip.
fn got(path: &Path, rounds: &[Round], n: usize) -> (f64, f64) {
    let rate = mean(rounds.iter().map(|r| r.rates[n]));
    let queue = mean(rounds.iter().map(|r| r.queue));
    (rate * 8.0 / path.bits_per_second, queue / path.round_trip)
}

const PATHS: [(f64, f64, f64); 9] = [
    (50.0, 10.0, 1.0),
    (50.0, 100.0, 0.2),
    (50.0, 522.0, 0.05),
    (100.0, 20.0, 0.5),
    (100.0, 200.0, 0.1),
    (300.0, 50.0, 0.05),
    (1000.0, 10.0, 0.5),
    (1000.0, 100.0, 0.1),
    (1000.0, 522.0, 1.0),
];

#[test]
fn after_25_round_trips_it_is_within_5_percent_and_the_queue_is_next_to_empty() {
    for (megabits, ms, queue) in PATHS {
        let path = path(megabits, ms, queue);
        let mut world = World::new(path, &[0.0]);
        world.run(25);
        let (share, queued) = got(&path, &world.run(150), 0);
        assert!(share > 0.95, "{megabits} Mb/s, {ms} ms: {share}");
        assert!(queued < 0.03, "{megabits} Mb/s, {ms} ms: queue {queued}");
    }
}

#[test]
fn random_losses_do_not_lower_it_and_are_told() {
    for loss in [1e-5, 1e-4, 1e-3] {
        let path = Path {
            loss,
            ..path(1000.0, 100.0, 0.2)
        };
        let mut world = World::new(path, &[0.0]);
        world.run(25);
        let (share, _) = got(&path, &world.run(150), 0);
        assert!(share > 0.95, "{loss}: {share}");
        assert_eq!(world.flows[0].control.ride(), Ride::LossTolerant);
    }
}

#[test]
fn without_losses_any_congestion_control_will_do() {
    let mut world = World::new(path(100.0, 50.0, 1.0), &[0.0]);
    world.run(100);
    assert_eq!(world.flows[0].control.ride(), Ride::Any);
}

#[test]
fn what_a_machine_that_stood_still_leaves_behind_is_no_neighbours_queue() {
    for (megabits, ms) in [(50.0, 10.0), (100.0, 20.0), (300.0, 50.0)] {
        let path = Path {
            stall: 0.015,
            ..path(megabits, ms, 2.0)
        };
        let mut world = World::new(path, &[0.0]);
        world.run(50);
        let (share, queued) = got(&path, &world.run(400), 0);
        // A 66th of the time nothing goes through.
        assert!(share > 0.95, "{megabits} Mb/s, {ms} ms: {share}");
        assert!(queued < 0.1, "{megabits} Mb/s, {ms} ms: queue {queued}");
    }
}

#[test]
fn a_policer_is_found_though_it_shows_no_queue() {
    let path = Path {
        policer: true,
        ..path(200.0, 50.0, 0.0)
    };
    let mut world = World::new(path, &[0.0]);
    world.run(40);
    let lost = world.flows[0].lost;
    let (share, _) = got(&path, &world.run(100), 0);
    let lost = (world.flows[0].lost - lost) / world.flows[0].delivered;
    assert!(share > 0.9, "{share}");
    assert!(lost < 0.02, "{lost}");
}

#[test]
fn a_path_that_becomes_slower_is_followed_and_one_that_becomes_faster_too() {
    let mut world = World::new(path(100.0, 50.0, 1.0), &[0.0]);
    world.run(40);
    world.path.bits_per_second = 40e6;
    world.path.queue *= 2.5;
    world.run(30);
    let (share, queue) = got(&world.path.clone(), &world.run(100), 0);
    assert!(share > 0.93 && queue < 0.03, "slower: {share}, {queue}");
    world.path.bits_per_second = 200e6;
    world.path.queue /= 5.0;
    world.run(80);
    let (share, queue) = got(&world.path.clone(), &world.run(100), 0);
    assert!(share > 0.93 && queue < 0.03, "faster: {share}, {queue}");
}

#[test]
fn what_a_burst_of_others_took_is_had_again_soon() {
    for (megabits, ms) in [(100.0, 20.0), (1000.0, 100.0), (500.0, 300.0)] {
        // Of 25 round trips, their drain among them: 0.88 and 0.71 where only probes' steps lead back.
        for (left, least) in [(0.8, 0.93), (0.5, 0.84)] {
            let whole = path(megabits, ms, 1.0);
            let mut world = World::new(whole, &[0.0]);
            world.run(60);
            let after_burst = |_| {
                world.path.bits_per_second = whole.bits_per_second * left;
                world.path.queue = whole.queue / left;
                world.run(4);
                world.path = whole;
                let (share, _) = got(&whole, &world.run(25), 0);
                world.run(15);
                share
            };
            let share = mean((0..10).map(after_burst));
            assert!(
                share > least,
                "{megabits} Mb/s, {ms} ms, {left} left: {share}"
            );
        }
    }
}

#[test]
fn a_longer_way_is_no_queue_for_ever() {
    let mut world = World::new(path(100.0, 50.0, 1.0), &[0.0]);
    world.run(40);
    world.path.round_trip = 0.080;
    world.run(150);
    let (share, _) = got(&world.path.clone(), &world.run(100), 0);
    assert!(share > 0.93, "{share}");
}

#[test]
fn flows_that_begin_late_come_to_their_part() {
    for (flows, fair) in [(2_u32, 0.9), (4, 0.7)] {
        let path = path(300.0, 50.0, 0.5);
        let starts: Vec<f64> = (0..flows).map(|n| f64::from(n) * 1.0).collect();
        let mut world = World::new(path, &starts);
        world.run(400);
        let last = world.run(300);
        let shares: Vec<f64> = (0..starts.len()).map(|n| got(&path, &last, n).0).collect();
        let sum: f64 = shares.iter().sum();
        let squares: f64 = shares.iter().map(|s| s * s).sum();
        let jain = sum * sum / (f64::from(flows) * squares);
        let queue = got(&path, &last, 0).1;
        assert!(
            jain > fair && sum > 0.94 && queue < 0.05,
            "{shares:?} {jain} {queue}"
        );
    }
}

#[test]
fn what_the_application_holds_up_is_not_taken_for_the_path() {
    let path = path(100.0, 50.0, 0.5);
    let mut world = World::new(path, &[0.0]);
    world.run(40);
    let found = world.flows[0].control.found();
    world.flows[0].held_up = true;
    world.flows[0].own = 1e6 / 8.0;
    world.run(50);
    assert_eq!(world.flows[0].control.found(), found);
    assert_eq!(world.flows[0].control.phase(), Phase::Hold);
}

#[test]
fn before_a_round_trip_is_known_the_sender_is_left_alone() {
    let mut control = GapControl::new(1);
    let reading = Reading {
        delivered: 14_480,
        ..Reading::default()
    };
    assert_eq!(control.on_reading(Instant::ZERO, &reading), None);
    assert_eq!(control.found(), None);
}
