//! Fast streams' packets delayed, so that their round trip grows and their rate falls.
//!
//! The rate of a stream is its window over its round trip. Windows are the sender's; the round trip
//! can be made longer. Each window of one round trip the stage counts the bytes of every flow. A flow
//! that brought x times the mean of its group gets a delay that is longer by (x - 1) / 4 of a round
//! trip, up to a quarter, one below the mean a shorter one: an integrating controller, which comes to
//! rest where all rates are equal. Its answer is seen one to two round trips later, so that a gain of 1/4 does
//! not swing (two windows late, it would above 0.6). From one window to the next a delay goes in a straight line,
//! never falling as fast as time passes, so no packet overtakes one of its flow.
//!
//! Delays are kept within `delay_max`, and taken from all flows at once when the fastest needs less:
//! where the whole group is late, it is late by a common part, which is worn off.
//!
//! Where the windows do not fill the path, to slow the fast streams is to lower the sum, and the slow ones
//! grow no sooner for it. So the stage is told the bottleneck's rate: delays grow only while a group
//! brings at least 15/16 of it, when what is held here would have waited in the queue, and are worn off
//! while it brings less.
//!
//! Flows that bring less than an eighth of the fastest one's bytes are no parallel streams of it but
//! requests, or streams that just begin: they are not slowed and nobody waits for them.

use units::{Bytes, Duration, Instant, Rate};

use super::{Hold, key_of};
use crate::event::Log;
use crate::flows::{FLOWS_MAX, FlowTable};
use crate::pipeline::{Stage, Trains};
use crate::queue::Pending;
use crate::train::Train;

/// Delays the faster flows of a group. See the module's documentation for how.
#[derive(Clone, Debug)]
pub struct Lengthen {
    round_trip: Duration,
    delay_max: Duration,
    /// Least bytes of a window that fill the bottleneck.
    full: u64,
    memory: Bytes,
    pending: Pending,
    flows: FlowTable<Flow>,
    groups: FlowTable<Group>,
    /// When the window of counting began; it lasts one round trip.
    began: Option<Instant>,
    leaving: Hold,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    group: u32,
    /// In this window.
    bytes: u64,
    /// Delay at the window's beginning, and at its end.
    delay: [Duration; 2],
    /// When its last segment leaves.
    leaves: Instant,
}

/// What all flows of a group brought in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    fastest: u64,
    sum: u64,
    flows: u64,
    /// Smallest delay of a flow that counts, ns.
    common_ns: u64,
}

impl Lengthen {
    /// Delays by at most `delay_max` before a bottleneck of `rate`, with at most `memory` bytes inside, or
    /// one run where that is more.
    ///
    /// # Panics
    /// When `round_trip` is zero.
    pub fn new(round_trip: Duration, delay_max: Duration, rate: Rate, memory: Bytes) -> Self {
        assert!(
            round_trip > Duration::ZERO,
            "rates are counted over some time"
        );
        let whole = rate.bytes_in(round_trip).as_u64();
        Self {
            round_trip,
            delay_max,
            full: whole - whole / FULL_BUT,
            memory,
            pending: Pending::default(),
            flows: FlowTable::new(FLOWS_MAX),
            groups: FlowTable::new(FLOWS_MAX),
            began: None,
            leaving: Hold::with_room(memory),
        }
    }

    /// Takes segments that are all there at their time.
    fn arrive(&mut self, run: Train, out: &mut Trains) {
        let now = run.at;
        if run.group == Train::NO_GROUP {
            return out.push(run);
        }
        let began = self.roll(now);
        let gone = |flow: &Flow| flow.leaves <= now;
        let new = || Flow {
            group: run.group,
            bytes: 0,
            delay: [Duration::ZERO; 2],
            leaves: now,
        };
        let Some(flow) = self.flows.touch(key_of(&run), gone, new) else {
            return out.push(run);
        };
        flow.bytes += u64::from(run.wire_bytes) * u64::from(run.count);
        let passed = now.saturating_since(began);
        let delay = between(flow.delay, passed, self.round_trip);
        flow.leaves = flow.leaves.max(now + delay);
        let leaves = flow.leaves;
        if leaves == now {
            return out.push(run);
        }
        let most = self.memory.as_u64();
        while self.leaving.inside.plus(&run).bytes > most && self.leaving.release(now, out) {}
        self.leaving.push(run, leaves);
    }

    /// Ends the windows that are over at `now`; when the current one began.
    fn roll(&mut self, now: Instant) -> Instant {
        let Some(began) = self.began else {
            self.began = Some(now);
            return now;
        };
        let end = began + self.round_trip;
        if now < end {
            return began;
        }
        self.end_window();
        // After a silence, a window begins with the packet that ends it.
        let is_late = now >= end + self.round_trip;
        let next = if is_late { now } else { end };
        if is_late {
            self.flows.values_mut().for_each(Flow::arrive_at_delay);
        }
        self.began = Some(next);
        next
    }

    /// Sets delays by what came in the window.
    fn end_window(&mut self) {
        self.count_groups();
        let Self { flows, groups, .. } = self;
        for flow in flows.values_mut() {
            let Some(group) = group_of(groups, flow.group) else {
                continue;
            };
            let step_max = self.round_trip.as_ns() / GAIN;
            let wear_max = self.round_trip.as_ns() / WEARS;
            flow.delay[0] = flow.delay[1];
            let delay = flow.delay[0].as_ns();
            let next = if group.flows < 2 || !group.counts(flow) {
                delay.saturating_sub(step_max)
            } else if group.sum < self.full {
                delay.saturating_sub(wear_max)
            } else {
                let worn = delay - group.common_ns.min(wear_max).min(delay);
                match group.step_ns(flow, self.round_trip, step_max) {
                    Ok(longer) => worn + longer,
                    Err(shorter) => worn.saturating_sub(shorter),
                }
            };
            flow.delay[1] = Duration::from_ns(next).min(self.delay_max);
            flow.bytes = 0;
        }
    }

    /// Sums up each group: first who is fastest, then who counts beside it.
    fn count_groups(&mut self) {
        let Self { flows, groups, .. } = self;
        for group in groups.values_mut() {
            *group = Group {
                common_ns: u64::MAX,
                ..Group::default()
            };
        }
        for flow in flows.values_mut().filter(|flow| flow.bytes > 0) {
            if let Some(group) = group_of(groups, flow.group) {
                group.fastest = group.fastest.max(flow.bytes);
            }
        }
        for flow in flows.values_mut() {
            let Some(group) = group_of(groups, flow.group) else {
                continue;
            };
            if group.counts(flow) {
                group.flows += 1;
                group.sum += flow.bytes;
                group.common_ns = group.common_ns.min(flow.delay[1].as_ns());
            }
        }
    }
}

/// A group of the table, which has as many places as there are flows.
fn group_of(groups: &mut FlowTable<Group>, group: u32) -> Option<&mut Group> {
    groups.touch(group.into(), |_| true, Group::default)
}

impl Flow {
    /// The delay is now what it was to become.
    const fn arrive_at_delay(&mut self) {
        self.delay[0] = self.delay[1];
    }
}

impl Group {
    const fn counts(&self, flow: &Flow) -> bool {
        flow.bytes > 0 && flow.bytes * SLOWEST >= self.fastest
    }

    /// By how many ns the delay of a flow is to be longer, or (`Err`) shorter.
    fn step_ns(&self, flow: &Flow, round_trip: Duration, step_max: u64) -> Result<u64, u64> {
        // (bytes - mean) / mean is (bytes * flows - sum) / sum.
        let scaled = u128::from(flow.bytes) * u128::from(self.flows);
        let sum = u128::from(self.sum);
        let step = scaled.abs_diff(sum) * u128::from(round_trip.as_ns()) / (sum * u128::from(GAIN));
        let step = u64::try_from(step).unwrap_or(u64::MAX).min(step_max);
        if scaled >= sum { Ok(step) } else { Err(step) }
    }
}

impl Stage for Lengthen {
    fn name(&self) -> &'static str {
        "lengthen"
    }

    fn handle(&mut self, train: Train, _: &mut Trains, _: &mut dyn Log) {
        self.pending.push(train);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let events = [self.leaving.next_at(), self.pending.next_at()];
        events.into_iter().flatten().min()
    }

    fn advance(&mut self, to: Instant, out: &mut Trains, _: &mut dyn Log) {
        while let Some(now) = self.next_wakeup().filter(|&at| at <= to) {
            // What leaves at an instant has left when something comes at it.
            if self.leaving.next_at() == Some(now) {
                self.leaving.release(now, out);
            } else if let Some(run) = self.pending.pop() {
                self.arrive(run, out);
            }
        }
    }

    fn segments_held(&self) -> u64 {
        self.pending.segments() + u64::from(self.leaving.inside.packets)
    }
}

/// What lies `passed` of `whole` on the way from the first to the second.
fn between([from, to]: [Duration; 2], passed: Duration, whole: Duration) -> Duration {
    let passed = passed.min(whole).as_ns();
    let way = from.as_ns().abs_diff(to.as_ns());
    let gone = u128::from(way) * u128::from(passed) / u128::from(whole.as_ns());
    let gone = Duration::from_ns(u64::try_from(gone).unwrap_or(u64::MAX));
    if from <= to { from + gone } else { from - gone }
}

/// A delay changes by one part in so many of a round trip a window, at most and for twice the mean.
const GAIN: u64 = 4;
/// What all flows have of a delay, or all of it while the path is not full, is worn off by one part in
/// so many of a round trip a window.
const WEARS: u64 = 16;
/// A bottleneck is full with all but one part in so many of its rate.
const FULL_BUT: u64 = 16;
/// A flow that brings less than one part in so many of the fastest one's bytes does not count.
const SLOWEST: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::{spaced, train};

    const ROUND_TRIP: Duration = Duration::from_ms(1);
    const MS: u64 = 1_000_000;
    /// A frame a microsecond, and 16 times as much.
    const GIGABITS_12: Rate = Rate::from_bits_per_second(12_304_000_000);

    /// `every_ns[f]` is between two segments of flow f + 1; for `ms` milliseconds from `from_ms` on.
    /// Delays of each flow's segments.
    fn drive(stage: &mut Lengthen, every_ns: &[u64], from_ms: u64, ms: u64) -> Vec<Vec<Duration>> {
        let (mut out, mut log) = (Trains::default(), Vec::new());
        for at in from_ms..from_ms + ms {
            for (flow, every) in (1..).zip(every_ns) {
                let count = u16::try_from(MS / every).unwrap();
                let run = spaced(at * MS, count, at * MS, *every);
                stage.handle(Train { flow, ..run }, &mut out, &mut log);
            }
            stage.advance(Instant::from_ns((at + 1) * MS - 1), &mut out, &mut log);
        }
        while let Some(at) = stage.next_wakeup() {
            stage.advance(at, &mut out, &mut log);
        }
        let mut delays = vec![Vec::new(); every_ns.len()];
        let mut last = vec![Instant::ZERO; every_ns.len()];
        for t in out.drain() {
            let flow = t.flow as usize - 1;
            let came = t.handle + u64::from(t.first) * every_ns[flow];
            assert!(last[flow] <= t.at, "flow {flow} overtakes itself");
            last[flow] = t.at;
            delays[flow].push(t.at.saturating_since(Instant::from_ns(came)));
        }
        delays
    }

    fn stage(delay_max: Duration) -> Lengthen {
        Lengthen::new(ROUND_TRIP, delay_max, GIGABITS_12, Bytes::new(1 << 30))
    }

    #[test]
    fn the_faster_flow_is_delayed_up_to_the_bound_and_the_slower_is_not() {
        let most = Duration::from_us(700);
        let mut lengthen = stage(most);
        let delays = drive(&mut lengthen, &[1_500, 3_000], 1, 30);
        // Nothing is known in the first window; then 1/3 above the mean is 1/12 of a round trip each.
        assert!(delays[0][..660].iter().all(|d| *d == Duration::ZERO));
        let after_two = delays[0][2 * 666];
        assert!(
            (80_000..=84_000).contains(&after_two.as_ns()),
            "{after_two}"
        );
        assert_eq!(delays[0].last(), Some(&most));
        assert!(delays[0].iter().all(|d| *d <= most));
        assert!(delays[1].iter().all(|d| *d == Duration::ZERO));
    }

    #[test]
    fn where_the_path_is_not_full_nobody_is_delayed_and_delays_wear_off() {
        let mut lengthen = stage(ROUND_TRIP);
        // Together 14/15 of what the bottleneck carries: 1/16 less would count as full.
        let delays = drive(&mut lengthen, &[1_608, 3_216], 1, 20);
        assert!(delays.iter().flatten().all(|d| *d == Duration::ZERO));
        let delays = drive(&mut lengthen, &[1_500, 3_000], 21, 20);
        assert_eq!(delays[0].last(), Some(&ROUND_TRIP));
        let delays = drive(&mut lengthen, &[3_000, 6_000], 41, 40);
        assert_eq!(delays[0].last(), Some(&Duration::ZERO));
    }

    #[test]
    fn delays_that_all_flows_have_wear_off_and_roles_may_change() {
        let mut lengthen = stage(ROUND_TRIP);
        drive(&mut lengthen, &[1_500, 3_000], 1, 30);
        let delays = drive(&mut lengthen, &[3_000, 1_500], 31, 60);
        assert_eq!(delays[0].last(), Some(&Duration::ZERO));
        assert_eq!(delays[1].last(), Some(&ROUND_TRIP));
        let delays = drive(&mut lengthen, &[2_000, 2_000], 91, 40);
        assert!(
            delays[0].last() == Some(&Duration::ZERO),
            "nothing to even out"
        );
    }

    #[test]
    fn flows_that_bring_little_count_for_nothing() {
        for (slow, delayed) in [(7_900, true), (8_100, false)] {
            let mut lengthen = stage(ROUND_TRIP);
            let delays = drive(&mut lengthen, &[1_000, slow], 1, 12);
            let last = *delays[0].last().unwrap();
            assert_eq!(last > Duration::ZERO, delayed, "{slow}: {last}");
        }
    }

    #[test]
    fn a_flow_that_is_left_alone_gets_rid_of_its_delay() {
        let mut lengthen = stage(ROUND_TRIP);
        drive(&mut lengthen, &[1_500, 3_000], 1, 30);
        let delays = drive(&mut lengthen, &[1_500], 31, 8);
        assert_eq!(delays[0].last(), Some(&Duration::ZERO));
        assert!(delays[0].is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn what_is_in_no_group_passes_and_memory_is_bounded() {
        let memory = Bytes::new(20 * 1_538);
        let mut lengthen = Lengthen::new(ROUND_TRIP, ROUND_TRIP, GIGABITS_12, memory);
        drive(&mut lengthen, &[1_500, 3_000], 1, 30);
        let (mut out, mut log) = (Trains::default(), Vec::new());
        let apart = Train {
            group: Train::NO_GROUP,
            ..train(1, 44, 31 * MS)
        };
        lengthen.handle(apart, &mut out, &mut log);
        lengthen.advance(apart.at, &mut out, &mut log);
        assert_eq!(out.drain().collect::<Vec<_>>(), [apart]);
        for at in 0..500 {
            let one = Train {
                flow: 1,
                ..train(at, 1, 31 * MS + 1 + at * 1_500)
            };
            lengthen.handle(one, &mut out, &mut log);
            lengthen.advance(one.at, &mut out, &mut log);
            assert!(lengthen.segments_held() <= 20);
        }
        assert!(lengthen.segments_held() == 20 && log.is_empty());
    }
}
