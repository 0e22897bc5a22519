//! Fast streams' packets delayed, so that their round trip grows and their rate falls.
//!
//! The rate of a stream is its window over its round trip. Windows are the sender's; the round trip can be
//! made longer. All rates are equal where each stream's round trip is in proportion to its window: a
//! stream with twice the window then waits until its round trip is twice as long. The stage needs to know no windows for
//! that. It lets a group's packets leave at the bottleneck's rate, the streams by turns and each as many bytes
//! (deficit round robin: Shreedhar, Varghese, SIGCOMM 1995). What a stream brings above its turn waits, and that is the
//! delay that its window asks for. A stream that brings less than its turn waits for nothing and grows undelayed;
//! what it leaves over the others get. So the sum is not lowered, and while the path is not full nothing but
//! bursts wait, which would have waited at the bottleneck.
//!
//! Nothing waits longer than `delay_max`: a packet that would leaves then, out of turn, and beside the rate.
//! It comes to the bottleneck's queue, which may drop it, as it might have without the stage. The same happens
//! to the one that came first where `memory` is full.
//!
//! Flows that bring less than an eighth of the fastest one's bytes in a round trip are no parallel streams
//! of it but requests, or streams that just begin: they pass at once. A flow counts for [`ACTIVE`] after its last
//! packet; with no other flow that counts, a flow passes untouched, once what it has waiting has left.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use units::{Bytes, Duration, Instant, Rate, Serialiser};

use super::{ACTIVE, key_of};
use crate::event::Log;
use crate::flows::{FLOWS_MAX, FlowTable};
use crate::pipeline::{Stage, Trains};
use crate::queue::{Backlog, Pending};
use crate::train::Train;

/// Delays the faster flows of a group. See the module's documentation for how.
#[derive(Clone, Debug)]
pub struct Lengthen {
    round_trip: Duration,
    delay_max: Duration,
    rate: Rate,
    memory: Bytes,
    pending: Pending,
    flows: FlowTable<Flow>,
    groups: FlowTable<Group>,
    /// Groups whose next packet may leave: when, and the place in the table.
    turns: BinaryHeap<Reverse<(Instant, u16)>>,
    /// What waits, in the order in which it came; some of it has left.
    waiting: VecDeque<Deadline>,
    came: u64,
    inside: Backlog,
}

#[derive(Clone, Debug)]
struct Flow {
    /// Its group's place.
    group: u16,
    brought: Brought,
    /// Each with its number.
    waiting: VecDeque<(u64, Train)>,
    /// It is in its group's order of turns.
    in_turn: bool,
    /// Bytes that it may send in its turn.
    credit: u64,
}

#[derive(Clone, Debug)]
struct Group {
    fastest: Brought,
    /// The flow that counts which was there last, when, and when another was.
    last: u32,
    last_at: Instant,
    other_at: Option<Instant>,
    /// Places of the flows that wait.
    order: VecDeque<u16>,
    line: Serialiser,
    free_at: Instant,
}

/// Bytes in this round trip, and in the last one.
#[derive(Clone, Copy, Debug, Default)]
struct Brought {
    number: u64,
    now: u64,
    before: u64,
}

/// A run that waits.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Instant,
    flow: u16,
    number: u64,
}

impl Lengthen {
    /// Delays by at most `delay_max` before a bottleneck of `rate`, with at most `memory` bytes inside, or
    /// one run where that is more. Flows are compared by what they bring in a `round_trip`.
    ///
    /// # Panics
    /// When `round_trip` is zero.
    pub fn new(round_trip: Duration, delay_max: Duration, rate: Rate, memory: Bytes) -> Self {
        assert!(
            round_trip > Duration::ZERO,
            "rates are counted over some time"
        );
        Self {
            round_trip,
            delay_max,
            rate,
            memory,
            pending: Pending::default(),
            flows: FlowTable::new(FLOWS_MAX),
            groups: FlowTable::new(FLOWS_MAX),
            turns: BinaryHeap::new(),
            waiting: VecDeque::new(),
            came: 0,
            inside: Backlog::default(),
        }
    }

    /// Takes segments that are all there at their time.
    fn arrive(&mut self, run: Train, out: &mut Trains) {
        let now = run.at;
        if run.group == Train::NO_GROUP {
            return out.push(run);
        }
        let number = now.as_ns() / self.round_trip.as_ns();
        let new = || Flow {
            group: 0,
            brought: Brought::default(),
            waiting: VecDeque::new(),
            in_turn: false,
            credit: 0,
        };
        let idle = |flow: &Flow| !flow.in_turn;
        let Some(flow) = self.flows.touch(key_of(&run), idle, new) else {
            return out.push(run);
        };
        let bytes = u64::from(run.wire_bytes) * u64::from(run.count);
        let brought = flow.brought.add(number, bytes);
        let waits = !flow.waiting.is_empty();
        let place = self.flows.touched();
        let new = || Group {
            fastest: Brought::default(),
            last: run.flow,
            last_at: now,
            other_at: None,
            order: VecDeque::new(),
            line: Serialiser::new(self.rate),
            free_at: now,
        };
        let idle = |group: &Group| group.order.is_empty();
        let Some(group) = self.groups.touch(run.group.into(), idle, new) else {
            return out.push(run);
        };
        let is_several = group.arrive(run.flow, now, number, brought);
        if !waits && !is_several {
            return out.push(run);
        }
        let of_group = self.groups.touched();
        while self.inside.plus(&run).bytes > self.memory.as_u64() && self.hurry(now, out) {}
        let group = self.groups.at(of_group);
        let flow = self.flows.at(place);
        flow.group = of_group;
        flow.waiting.push_back((self.came, run));
        if !flow.in_turn {
            (flow.in_turn, flow.credit) = (true, QUANTUM);
            group.order.push_back(place);
            if group.order.len() == 1 {
                let at = group.free_at.max(now);
                self.turns.push(Reverse((at, of_group)));
            }
        }
        self.waiting.push_back(Deadline {
            at: now + self.delay_max,
            flow: place,
            number: self.came,
        });
        self.came += 1;
        self.inside = self.inside.plus(&run);
    }

    /// Lets turns pass without the line's time, until of what came with the one that waited longest nothing
    /// waits; false when nothing does.
    fn hurry(&mut self, now: Instant, out: &mut Trains) -> bool {
        let Some(oldest) = self.waiting.front().copied() else {
            return false;
        };
        let of_group = self.flows.at(oldest.flow).group;
        let until = oldest.at + Duration::from_ns(self.delay_max.as_ns() / TOGETHER);
        while let Some(oldest) = self.waiting.front().copied()
            && oldest.at <= until
            && self.flows.at(oldest.flow).group == of_group
        {
            while self.waits(&oldest)
                && let Some(part) = self.take_turn(now, of_group, out)
            {
                self.groups.at(of_group).charge(now, &part);
            }
            self.forget_gone();
        }
        // Of a queue that drops the stage knows nothing: what it is behind with is bounded.
        let group = self.groups.at(of_group);
        group.free_at = group.free_at.min(now + self.delay_max);
        self.forget_gone();
        true
    }

    fn waits(&mut self, run: &Deadline) -> bool {
        let first = self.flows.at(run.flow).waiting.front();
        first.is_some_and(|(number, _)| *number == run.number)
    }

    /// Keeps the first of [`Self::waiting`] one that still waits.
    fn forget_gone(&mut self) {
        while let Some(oldest) = self.waiting.front().copied() {
            if self.waits(&oldest) {
                break;
            }
            self.waiting.pop_front();
        }
    }

    /// The line of the group at that place is free.
    fn serve(&mut self, now: Instant, place: u16, out: &mut Trains) {
        let free_at = self.groups.at(place).free_at;
        if free_at > now {
            return self.turns.push(Reverse((free_at, place)));
        }
        if let Some(part) = self.take_turn(now, place, out) {
            let group = self.groups.at(place);
            group.charge(now, &part);
            self.turns.push(Reverse((group.free_at, place)));
        } else if let Some(last) = self.groups.at(place).order.pop_front() {
            self.flows.at(last).in_turn = false;
        }
        self.forget_gone();
    }

    /// What is next in the group's order leaves; `None` when nothing waits, with one flow left in the
    /// order.
    fn take_turn(&mut self, now: Instant, place: u16, out: &mut Trains) -> Option<Train> {
        let group = self.groups.at(place);
        while let Some(&next) = group.order.front() {
            let flow = self.flows.at(next);
            let Some((_, run)) = flow.waiting.front_mut() else {
                if group.order.len() == 1 {
                    break;
                }
                flow.in_turn = false;
                group.order.pop_front();
                continue;
            };
            let each = u64::from(run.wire_bytes.max(1));
            let count = (flow.credit / each).min(run.count.into());
            let Ok(count @ 1..) = u16::try_from(count) else {
                flow.credit += QUANTUM;
                group.order.rotate_left(1);
                continue;
            };
            flow.credit -= each * u64::from(count);
            let part = run.part(0, count);
            if run.count == count {
                flow.waiting.pop_front();
            } else {
                *run = run.part(count, run.count - count);
            }
            self.inside = self.inside.minus(&part);
            out.push(part.gathered(now));
            return Some(part);
        }
        None
    }
}

impl Brought {
    /// With `bytes` in the round trip of that number; the larger of its and the last one's sum.
    fn add(&mut self, number: u64, bytes: u64) -> u64 {
        self.roll(number);
        self.now += bytes;
        self.now.max(self.before)
    }

    fn roll(&mut self, number: u64) {
        if number != self.number {
            let is_next = number == self.number + 1;
            self.before = if is_next { self.now } else { 0 };
            (self.number, self.now) = (number, 0);
        }
    }
}

impl Group {
    /// The bottleneck's line is busy with that, too.
    fn charge(&mut self, now: Instant, part: &Train) {
        if self.free_at < now {
            self.line.reset();
            self.free_at = now;
        }
        for _ in 0..part.count {
            self.free_at += self.line.next(part.wire_bytes);
        }
    }

    /// A flow's packet has come, which has brought so much: whether it is one of several streams.
    fn arrive(&mut self, flow: u32, now: Instant, number: u64, brought: u64) -> bool {
        self.fastest.roll(number);
        self.fastest.now = self.fastest.now.max(brought);
        let fastest = self.fastest.now.max(self.fastest.before);
        if brought * SLOWEST < fastest {
            return false;
        }
        if self.last != flow {
            self.other_at = Some(self.last_at);
            self.last = flow;
        }
        self.last_at = now;
        let is_recent = |at: Instant| now.saturating_since(at) <= ACTIVE;
        self.other_at.is_some_and(is_recent)
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
        let late = self.waiting.front().map(|oldest| oldest.at);
        let turn = self.turns.peek().map(|turn| turn.0.0);
        let events = [late, turn, self.pending.next_at()];
        events.into_iter().flatten().min()
    }

    fn advance(&mut self, to: Instant, out: &mut Trains, _: &mut dyn Log) {
        while let Some(now) = self.next_wakeup().filter(|&at| at <= to) {
            // What leaves at an instant has left when something comes at it.
            if self.turns.peek().is_some_and(|turn| turn.0.0 == now) {
                if let Some(Reverse((_, place))) = self.turns.pop() {
                    self.serve(now, place, out);
                }
            } else if self.waiting.front().is_some_and(|o| o.at == now) {
                self.hurry(now, out);
            } else if let Some(run) = self.pending.pop() {
                self.arrive(run, out);
            }
        }
    }

    fn segments_held(&self) -> u64 {
        self.pending.segments() + u64::from(self.inside.packets)
    }
}

/// Bytes of a turn: a frame of 9,000 bytes, ten of 1,500.
const QUANTUM: u64 = 16_384;
/// What came within one part in so many of the longest delay leaves together when it must.
const TOGETHER: u64 = 64;
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

    /// Ten segments' time: a turn.
    const TURN: Duration = Duration::from_us(10);

    fn longest(delays: &[Duration]) -> Duration {
        delays.iter().copied().max().unwrap()
    }

    #[test]
    fn the_faster_flow_waits_up_to_the_bound_and_the_slower_does_not() {
        let most = Duration::from_us(700);
        let mut lengthen = stage(most);
        // 5/6 and 1/3 of what the bottleneck carries.
        let delays = drive(&mut lengthen, &[1_200, 3_000], 1, 30);
        assert_eq!(longest(&delays[0]), most);
        let last = delays[0].iter().rev().take(100).min().unwrap();
        assert!(*last > most - TURN.saturating_mul(4), "{last}");
        // No longer from one packet to the next than by a turn or two.
        let step = |w: &[Duration]| w[1].as_ns().saturating_sub(w[0].as_ns());
        let steps = delays[0].windows(2).map(step).max().unwrap();
        assert!(steps <= 2 * TURN.as_ns(), "{steps}");
        assert!(longest(&delays[1]) <= TURN.saturating_mul(3));
    }

    #[test]
    fn where_the_path_is_not_full_nobody_waits_for_more_than_turns() {
        let mut lengthen = stage(ROUND_TRIP);
        // Together 14/15 of what the bottleneck carries.
        let delays = drive(&mut lengthen, &[1_608, 3_216], 1, 20);
        assert!(delays.iter().all(|d| longest(d) <= TURN.saturating_mul(2)));
    }

    #[test]
    fn what_is_above_the_turns_waits_whoever_brings_it_and_leaves_when_less_comes() {
        let mut lengthen = stage(ROUND_TRIP);
        drive(&mut lengthen, &[1_200, 3_000], 1, 30);
        let delays = drive(&mut lengthen, &[3_000, 1_200], 31, 60);
        assert!(*delays[0].last().unwrap() <= TURN.saturating_mul(2));
        assert!(longest(&delays[1]) == ROUND_TRIP);
        let delays = drive(&mut lengthen, &[2_200, 2_200], 91, 40);
        assert!(delays.iter().all(|d| *d.last().unwrap() <= TURN));
    }

    #[test]
    fn bursts_one_after_the_other_leave_by_turns_at_the_rate() {
        let mut lengthen = stage(ROUND_TRIP);
        let (mut out, mut log) = (Trains::default(), Vec::new());
        for (flow, at) in [(2, 0), (1, MS), (2, MS + 1), (1, MS + 2)] {
            let burst = train(at, 40, at);
            lengthen.handle(Train { flow, ..burst }, &mut out, &mut log);
        }
        lengthen.advance(Instant::from_ns(2 * MS), &mut out, &mut log);
        let left: Vec<Train> = out.drain().skip(1).collect();
        assert_eq!(left.iter().map(|t| u32::from(t.count)).sum::<u32>(), 120);
        let mut free_at = Instant::from_ns(MS);
        for t in &left {
            assert!(t.at == free_at && t.count <= 11, "{t:?}");
            free_at = t.at + Duration::from_us(t.count.into());
        }
        // As long as both wait, neither is ahead by more than a turn.
        let mut sent = [0_u16; 2];
        for t in left.iter().take_while(|t| t.at.as_ns() < MS + 80_000) {
            sent[t.flow as usize - 1] += t.count;
            assert!(sent[0].abs_diff(sent[1]) <= 22, "{sent:?}");
        }
    }

    #[test]
    fn what_leaves_out_of_turn_is_on_the_lines_account() {
        let most = Duration::from_us(300);
        let mut lengthen = stage(most);
        let (mut out, mut log) = (Trains::default(), Vec::new());
        // 1,000 us of the line's time at once, then one more.
        for k in 0..25 {
            let burst = train(k, 40, MS);
            let flow = 1 + u32::from(k % 2 == 0);
            lengthen.handle(Train { flow, ..burst }, &mut out, &mut log);
        }
        let one = train(99, 1, MS + 400_000);
        lengthen.handle(Train { flow: 1, ..one }, &mut out, &mut log);
        lengthen.advance(Instant::from_ns(3 * MS), &mut out, &mut log);
        let left: Vec<Train> = out.drain().collect();
        let last = left.last().unwrap();
        // The line is taken to be behind by no more than the longest delay.
        assert_eq!((last.handle, last.at.as_ns()), (99, MS + 600_000));
        let before = left[left.len() - 2].at;
        assert!(before <= Instant::from_ns(MS) + most, "{before:?}");
    }

    #[test]
    fn flows_that_bring_little_count_for_nothing() {
        for (slow, delayed) in [(7_900, true), (8_100, false)] {
            let mut lengthen = stage(ROUND_TRIP);
            drive(&mut lengthen, &[1_000], 1, 2);
            let delays = drive(&mut lengthen, &[1_000, slow], 3, 12);
            let last = *delays[0].last().unwrap();
            assert_eq!(last > TURN, delayed, "{slow}: {last}");
            assert!(longest(&delays[1]) <= TURN.saturating_mul(3));
        }
    }

    #[test]
    fn a_flow_that_is_left_alone_passes_untouched() {
        let mut lengthen = stage(ROUND_TRIP);
        drive(&mut lengthen, &[1_200, 3_000], 1, 10);
        // More than the line carries, from two seconds later on.
        let delays = drive(&mut lengthen, &[500], 2_012, 8);
        assert_eq!(longest(&delays[0]), Duration::ZERO);
        let mut lengthen = stage(ROUND_TRIP);
        drive(&mut lengthen, &[1_200, 3_000], 1, 10);
        let delays = drive(&mut lengthen, &[500], 1_011, 100);
        assert!(*delays[0].last().unwrap() > Duration::from_us(950));
        let delays = drive(&mut lengthen, &[2_000], 1_111, 1_000);
        assert_eq!(delays[0].last(), Some(&Duration::ZERO));
    }

    #[test]
    fn what_is_in_no_group_passes_and_memory_is_bounded() {
        let memory = Bytes::new(20 * 1_538);
        let mut lengthen = Lengthen::new(ROUND_TRIP, ROUND_TRIP, GIGABITS_12, memory);
        drive(&mut lengthen, &[1_200, 3_000], 1, 30);
        let (mut out, mut log) = (Trains::default(), Vec::new());
        let apart = Train {
            group: Train::NO_GROUP,
            ..train(1, 44, 40 * MS)
        };
        lengthen.handle(apart, &mut out, &mut log);
        lengthen.advance(apart.at, &mut out, &mut log);
        assert_eq!(out.drain().collect::<Vec<_>>(), [apart]);
        for at in 0..500 {
            let one = Train {
                flow: 1 + u32::from(at % 3 == 0),
                ..train(at, 1, 40 * MS + 1 + at * 500)
            };
            lengthen.handle(one, &mut out, &mut log);
            lengthen.advance(one.at, &mut out, &mut log);
            assert!(lengthen.segments_held() <= 20);
        }
        assert!(lengthen.segments_held() >= 19 && log.is_empty());
    }
}
