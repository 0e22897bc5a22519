//! Model streams over a long fat path with a Stream Harmonizer before the bottleneck, and what they
//! make of it.
//!
//! A source is TCP's congestion avoidance and no more: windows in segments, slow start, one halving
//! for the losses of a round trip (Reno), an ACK for each segment, a lost segment known with the first
//! ACK of a later one, and sent again. No time-outs, no delayed ACKs, no super-packets.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "windows and counts of a test are far below 2^53, and not negative"
)]

use std::collections::{HashMap, VecDeque};

use units::{Bytes, Duration, Instant, Rate};

use super::{Lengthen, Shuffle};
use crate::event::{Decision, Event, Log};
use crate::pipeline::{DelayLine, Output, Pipeline, Stage};
use crate::queue::{Queue, QueueLimits};
use crate::train::Train;
use crate::train::testing::train;

/// A path and what is sent over it.
#[derive(Clone, Copy, Debug)]
struct Scene {
    rate_mbit: u64,
    round_trip: Duration,
    queue: Duration,
    streams: u32,
    /// Between the starts of two streams.
    apart: Duration,
    time: Duration,
    seed: u64,
}

/// As in the pseudo LFN of seed 001 at a tenth of its rate: four streams, 300 ms.
const SCENE: Scene = Scene {
    rate_mbit: 100,
    round_trip: Duration::from_ms(300),
    queue: Duration::from_ms(100),
    streams: 4,
    apart: Duration::from_us(700),
    time: Duration::from_s(45),
    seed: 1,
};

#[derive(Clone, Debug)]
struct Source {
    window: f64,
    threshold: f64,
    /// Next segment that was never sent.
    next: u64,
    in_flight: u64,
    /// Sent and not known to have arrived, in order: its number.
    sent: VecDeque<u64>,
    /// Losses of segments below are of a round trip that was answered.
    recover: u64,
    delivered: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// Segments that arrived, by stream.
    delivered: Vec<u64>,
    /// Arrivals of each section of 300 ms, by stream.
    sections: Vec<Vec<u64>>,
    /// Streams in the order in which they first lost.
    loss_order: Vec<u32>,
    /// Streams in the order of their bursts: that in which they started.
    burst_order: Vec<u32>,
    /// Longest time in the harmonizer.
    delay_max: Duration,
}

impl Outcome {
    fn total(&self) -> u64 {
        self.delivered.iter().sum()
    }

    fn min_to_mean(&self) -> f64 {
        let min = self.delivered.iter().min().copied().unwrap_or(0);
        min as f64 * self.delivered.len() as f64 / self.total() as f64
    }

    fn jain(&self) -> f64 {
        let n = self.delivered.len() as f64;
        let sum: f64 = self.delivered.iter().map(|&x| x as f64).sum();
        let squares: f64 = self
            .delivered
            .iter()
            .map(|&x| (x as f64) * (x as f64))
            .sum();
        sum * sum / (n * squares)
    }

    /// When each of the streams had moved `segments`, in sections.
    fn complete(&self, segments: u64) -> Option<usize> {
        let of = |stream: usize| {
            let mut sum = 0;
            self.sections.iter().position(|s| {
                sum += s[stream];
                sum >= segments
            })
        };
        (0..self.delivered.len()).map(of).max().flatten()
    }
}

/// Delays before the queue, and its losses.
#[derive(Default)]
struct Books {
    came: HashMap<u64, Instant>,
    outcome: Outcome,
}

impl Log for Books {
    fn on_event(&mut self, event: &Event) {
        let Event {
            train, decision, ..
        } = event;
        let outcome = &mut self.outcome;
        if let Decision::Dropped { .. } = decision
            && !outcome.loss_order.contains(&train.flow)
        {
            outcome.loss_order.push(train.flow);
        }
        if let Decision::Dropped { .. } | Decision::Queued { .. } = decision {
            let came = self.came.remove(&train.handle).unwrap_or(train.at);
            let delay = train.at.saturating_since(came);
            outcome.delay_max = outcome.delay_max.max(delay);
        }
    }
}

impl Source {
    fn new() -> Self {
        Self {
            window: 10.0,
            threshold: f64::INFINITY,
            next: 0,
            in_flight: 0,
            sent: VecDeque::new(),
            recover: 0,
            delivered: 0,
        }
    }

    /// Segments that the window lets out.
    fn due(&self) -> u64 {
        (self.window as u64).saturating_sub(self.in_flight)
    }

    /// The ACK of segment `number`: what was sent before it and did not arrive is lost.
    fn on_ack(&mut self, number: u64) {
        while let Some(oldest) = self.sent.pop_front() {
            self.in_flight -= 1;
            if oldest == number {
                break;
            }
            if oldest >= self.recover {
                self.threshold = (self.window / 2.0).max(2.0);
                self.window = self.threshold;
                self.recover = self.next;
            }
        }
        self.delivered += 1;
        if number < self.recover {
            return;
        }
        self.window += if self.window < self.threshold {
            1.0
        } else {
            1.0 / self.window
        };
    }
}

/// Runs the scene over `before`, then the bottleneck.
fn run(scene: Scene, before: Option<Box<dyn Stage>>) -> Outcome {
    let rate = Rate::from_bits_per_second(scene.rate_mbit * 1_000_000);
    let queue = QueueLimits {
        bytes: Some(rate.bytes_in(scene.queue).as_u64()),
        packets: None,
    };
    let half = Duration::from_ns(scene.round_trip.as_ns() / 2);
    let mut stages: Vec<Box<dyn Stage>> = before.into_iter().collect();
    stages.push(Box::new(Queue::drop_tail(rate, queue)));
    stages.push(Box::new(DelayLine::new(half)));
    let mut p = Pipeline::new(stages, 64);
    let mut books = Books::default();
    let mut sources = vec![Source::new(); scene.streams as usize];
    // Drawn once: the streams' order, and small differences of their starts.
    let mut rng = units::Rng::new(scene.seed);
    let mut starts: Vec<(Instant, u32)> = (0..scene.streams)
        .map(|flow| {
            (
                Instant::from_ns(rng.next_u64() % (u64::from(scene.streams) * scene.apart.as_ns())),
                flow,
            )
        })
        .collect();
    starts.sort_unstable();
    books.outcome.burst_order = starts.iter().map(|&(_, flow)| flow + 1).collect();
    let mut starts: VecDeque<_> = starts.into();
    let mut acks: VecDeque<(Instant, u32, u64)> = VecDeque::new();
    let end = Instant::ZERO + scene.time;
    let section = Duration::from_ms(300);
    let mut now = Instant::ZERO;
    let mut last_sections = vec![0; sources.len()];
    let mut next_section = now + section;
    // The host's line is ten times as fast as the bottleneck.
    let gap = Duration::from_ns(1_538 * 8 * 100 / scene.rate_mbit);
    let mut line_free = Instant::ZERO;
    while now < end {
        let due = loop {
            match p.poll_output(now, &mut books) {
                Output::Release(r) => {
                    let name = r.handle + u64::from(r.first);
                    acks.push_back((r.at + half, (name >> 40) as u32, name & ((1 << 40) - 1)));
                }
                Output::Timeout(at) => break at,
                Output::Idle => break end,
            }
        };
        let ack = acks.front().map_or(end, |a| a.0);
        let start = starts.front().map_or(end, |s| s.0);
        now = due.min(ack).min(start).min(end);
        while now >= next_section {
            let each = sources.iter().zip(&mut last_sections).map(|(s, last)| {
                let n = s.delivered - *last;
                *last = s.delivered;
                n
            });
            books.outcome.sections.push(each.collect());
            next_section += section;
        }
        let flow = if let Some(&(at, flow, number)) = acks.front()
            && at <= now
        {
            acks.pop_front();
            sources[flow as usize].on_ack(number);
            flow
        } else if let Some(&(at, flow)) = starts.front()
            && at <= now
        {
            starts.pop_front();
            flow
        } else {
            continue;
        };
        let source = &mut sources[flow as usize];
        for _ in 0..source.due() {
            let number = source.next;
            source.next += 1;
            source.in_flight += 1;
            source.sent.push_back(number);
            line_free = line_free.max(now) + gap;
            let handle = u64::from(flow) << 40 | number;
            let segment = Train {
                flow: flow + 1,
                ..train(handle, 1, line_free.as_ns())
            };
            books.came.insert(handle, line_free);
            p.handle_train(segment, &mut books);
        }
    }
    books.outcome.delivered = sources.iter().map(|s| s.delivered).collect();
    books.outcome
}

fn shuffle(hold: Duration, seed: u64) -> Option<Box<dyn Stage>> {
    Some(Box::new(Shuffle::new(hold, MEMORY, seed)))
}

fn lengthen(scene: Scene, delay_max: Duration) -> Option<Box<dyn Stage>> {
    Some(Box::new(Lengthen::new(
        scene.round_trip,
        delay_max,
        Rate::from_bits_per_second(scene.rate_mbit * 1_000_000),
        MEMORY,
    )))
}

const MEMORY: Bytes = Bytes::new(64 << 20);

#[test]
fn without_it_the_last_of_the_burst_loses_first_and_streams_stay_apart() {
    for seed in 1..=3 {
        let off = run(Scene { seed, ..SCENE }, None);
        // The queue overflows in the burst of one of the last two.
        let lost_first = &off.loss_order[..2];
        let last = &off.burst_order[2..];
        let of_the_last = lost_first.iter().all(|flow| last.contains(flow));
        assert!(of_the_last, "seed {seed}: {off:?}");
        assert_eq!(off.loss_order.last(), off.burst_order.first());
        assert!(off.min_to_mean() < 0.6 && off.jain() < 0.9, "{off:?}");
    }
}

#[test]
fn shuffled_streams_lose_together_and_stay_alike() {
    let off = run(SCENE, None);
    for (seed, hold) in [(1, 5), (2, 10), (3, 20)] {
        let scene = Scene { seed, ..SCENE };
        let hold = Duration::from_ms(hold);
        let on = run(scene, shuffle(hold, seed));
        assert!(on.min_to_mean() > 0.95 && on.jain() > 0.99, "{seed}");
        assert!(on.total() > off.total(), "{seed}");
        assert!(on.complete(40_000) < off.complete(40_000), "{seed}");
        assert!(on.delay_max < hold.saturating_mul(2), "{}", on.delay_max);
        assert!(on.delay_max > hold, "{}", on.delay_max);
    }
}

#[test]
fn lengthening_brings_streams_together_where_the_path_is_full() {
    let scene = Scene {
        queue: Duration::from_ms(300),
        time: Duration::from_s(60),
        ..SCENE
    };
    let off = run(scene, None);
    let delay_max = Duration::from_ms(300);
    let on = run(scene, lengthen(scene, delay_max));
    assert!(off.min_to_mean() < 0.88, "{}", off.min_to_mean());
    assert!(on.min_to_mean() > 0.9, "{}", on.min_to_mean());
    let kept = (on.total(), off.total());
    assert!(kept.0 * 100 >= kept.1 * 97, "{kept:?}");
    assert!(on.delay_max <= delay_max && on.delay_max > Duration::from_ms(50));
}

#[test]
fn lengthening_before_a_short_queue_balances_and_keeps_the_sum() {
    let scene = Scene {
        queue: Duration::from_ms(20),
        ..SCENE
    };
    let off = run(scene, None);
    let on = run(scene, lengthen(scene, Duration::from_ms(300)));
    assert!(on.total() * 100 >= off.total() * 98);
    assert!(on.min_to_mean() > 0.95, "{}", on.min_to_mean());
}

#[test]
fn a_stream_alone_is_not_touched() {
    let scene = Scene {
        streams: 1,
        time: Duration::from_s(20),
        ..SCENE
    };
    let off = run(scene, None);
    for on in [
        shuffle(Duration::from_ms(10), 1),
        lengthen(scene, Duration::from_ms(300)),
    ] {
        let on = run(scene, on);
        assert_eq!(on.delay_max, Duration::ZERO);
        assert_eq!(on.sections, off.sections);
    }
}
