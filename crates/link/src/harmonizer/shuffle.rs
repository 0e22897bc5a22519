//! Streams' packets mixed over a short time, so that what the bottleneck loses it loses of all.
//!
//! Time is cut in frames. A frame begins with a packet that finds none open and takes in all that
//! comes for a time `hold`. When it ends, the packets of each flow are spread over the `hold` that
//! follows: of n packets the k-th (from 0) leaves at (k + u) / n of it, u drawn between 0 and 1 for
//! each. So in every part of a frame's departure the flows stand in the proportion in which they
//! came, in random order, and each flow's own order is kept; packets of the next frame leave later.
//! The draws matter: with even steps, a queue that drops every other packet would drop one flow's
//! alone.
//!
//! A packet is delayed by `hold` on average and by less than two of them. How long should it be?
//! Streams whose bursts come within one `hold` of each other are mixed packet by packet, and stay so:
//! acknowledgements come back in that order, and the next round trip's packets leave in it. As the
//! windows are a few packets then, `hold` need cover the times at which the streams start, not the
//! bursts that they grow to. It does not mix streams that start further apart than that.
//!
//! A flow counts for [`ACTIVE`] after its last packet. A group of several begins to be mixed after a
//! silence of two `hold`, or after [`ACTIVE`]: were it to begin with the second flow's first packet, the
//! first flow, which passed undelayed, would stand ahead of the others by `hold`, and for good. When
//! all but one flow of the group are silent for longer than [`ACTIVE`], the delay of that one falls by an
//! eighth of the time that passes, until there is none.

use units::{Bytes, Duration, Instant, Rng};

use super::{ACTIVE, Hold, key_of};
use crate::event::Log;
use crate::flows::{FLOWS_MAX, FlowTable};
use crate::pipeline::{Stage, Trains};
use crate::queue::{Backlog, Pending};
use crate::train::Train;

/// Mixes the flows of a group over a short time. See the module's documentation for how.
#[derive(Clone, Debug)]
pub struct Shuffle {
    hold: Duration,
    memory: Bytes,
    rng: Rng,
    pending: Pending,
    flows: FlowTable<Flow>,
    groups: FlowTable<Group>,
    /// The open frame: what came, and when it ends.
    frame: Vec<Collected>,
    ends: Option<Instant>,
    in_frame: Backlog,
    leaving: Hold,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Segments in the open frame.
    in_frame: u32,
    /// When its last segment leaves.
    leaves: Instant,
    /// When that came.
    came: Instant,
}

/// Who was there last, and whether its flows are mixed.
#[derive(Clone, Copy, Debug)]
struct Group {
    last: u32,
    last_at: Instant,
    /// When a flow other than the last was there.
    other_at: Option<Instant>,
    /// Since when there are several flows.
    several_from: Option<Instant>,
    is_mixed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Collected {
    run: Train,
    /// Place of its flow in the table, which stays its while the frame is open.
    flow: u16,
    /// Segments of the flow that stand before it in the frame.
    before: u32,
}

impl Shuffle {
    /// Mixes over `hold` with at most `memory` bytes inside, or one run where that is more.
    ///
    /// # Panics
    /// When `hold` is zero.
    pub fn new(hold: Duration, memory: Bytes, seed: u64) -> Self {
        assert!(hold > Duration::ZERO, "packets are mixed over some time");
        Self {
            hold,
            memory,
            rng: Rng::new(seed),
            pending: Pending::default(),
            flows: FlowTable::new(FLOWS_MAX),
            groups: FlowTable::new(FLOWS_MAX),
            frame: Vec::with_capacity(FRAME_AT_START),
            ends: None,
            in_frame: Backlog::default(),
            leaving: Hold::with_room(memory),
        }
    }

    /// Takes segments that are all there at their time.
    fn arrive(&mut self, run: Train, out: &mut Trains) {
        let now = run.at;
        if run.group == Train::NO_GROUP {
            return out.push(run);
        }
        let is_mixed = self.is_mixed(&run);
        self.make_room(&run, now, out);
        let gone = |flow: &Flow| flow.in_frame == 0 && flow.leaves <= now;
        let new = || Flow {
            in_frame: 0,
            leaves: now,
            came: now,
        };
        let Some(flow) = self.flows.touch(key_of(&run), gone, new) else {
            return out.push(run);
        };
        if !is_mixed && flow.in_frame == 0 {
            let rest = flow.leaves.saturating_since(flow.came);
            let worn = Duration::from_ns(now.saturating_since(flow.came).as_ns() / WEARS);
            let leaves = flow.leaves.max(now + (rest - worn));
            if leaves == now {
                return out.push(run);
            }
            (flow.leaves, flow.came) = (leaves, now);
            self.leaving.push(run, leaves);
            return;
        }
        let before = flow.in_frame;
        flow.in_frame += u32::from(run.count);
        let collected = Collected {
            run,
            flow: self.flows.touched(),
            before,
        };
        self.frame.push(collected);
        self.in_frame = self.in_frame.plus(&run);
        self.ends.get_or_insert(now + self.hold);
    }

    /// Whether the flows of its group are mixed from `run` on.
    fn is_mixed(&mut self, run: &Train) -> bool {
        let new = || Group {
            last: run.flow,
            last_at: run.at,
            other_at: None,
            several_from: None,
            is_mixed: false,
        };
        let pause = self.hold.saturating_mul(PAUSE);
        let group = self.groups.touch(run.group.into(), |_| true, new);
        group.is_some_and(|group| group.arrive(run, pause))
    }

    /// Sends away what leaves next, until there is room for `run`.
    fn make_room(&mut self, run: &Train, now: Instant, out: &mut Trains) {
        let most = self.memory.as_u64();
        while self.leaving.inside.and(self.in_frame).plus(run).bytes > most {
            if !self.leaving.release(now, out) {
                if self.frame.is_empty() {
                    return;
                }
                self.end_frame(now);
            }
        }
    }

    /// Spreads what the frame has taken in over the time that follows.
    fn end_frame(&mut self, end: Instant) {
        for &Collected { run, flow, before } in &self.frame {
            let flow = self.flows.at(flow);
            for k in 0..run.count {
                let place = u64::from(before) + u64::from(k);
                let after = share(self.hold, place, self.rng.next_u64(), flow.in_frame);
                flow.leaves = flow.leaves.max(end + after);
                self.leaving.push(run.part(k, 1), flow.leaves);
            }
            flow.came = run.at;
        }
        for collected in self.frame.drain(..) {
            self.flows.at(collected.flow).in_frame = 0;
        }
        self.in_frame = Backlog::default();
        self.ends = None;
    }
}

impl Group {
    /// A packet has come: whether it is to be mixed with others.
    fn arrive(&mut self, run: &Train, pause: Duration) -> bool {
        let now = run.at;
        let silence = now.saturating_since(self.last_at);
        if self.last != run.flow {
            self.other_at = Some(self.last_at);
            self.last = run.flow;
        }
        self.last_at = now;
        let is_recent = |at: &Instant| now.saturating_since(*at) <= ACTIVE;
        if self.other_at.filter(is_recent).is_none() {
            self.several_from = None;
            self.is_mixed = false;
            return false;
        }
        let several_from = *self.several_from.get_or_insert(now);
        let is_overdue = now.saturating_since(several_from) > ACTIVE;
        self.is_mixed |= silence >= pause || is_overdue;
        self.is_mixed
    }
}

impl Stage for Shuffle {
    fn name(&self) -> &'static str {
        "shuffle"
    }

    fn handle(&mut self, train: Train, _: &mut Trains, _: &mut dyn Log) {
        self.pending.push(train);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let events = [self.ends, self.leaving.next_at(), self.pending.next_at()];
        events.into_iter().flatten().min()
    }

    fn advance(&mut self, to: Instant, out: &mut Trains, _: &mut dyn Log) {
        while let Some(now) = self.next_wakeup().filter(|&at| at <= to) {
            // At one instant a frame ends before anything leaves, and both before anything comes.
            if self.ends == Some(now) {
                self.end_frame(now);
            } else if self.leaving.next_at() == Some(now) {
                self.leaving.release(now, out);
            } else if let Some(run) = self.pending.pop() {
                self.arrive(run, out);
            }
        }
    }

    fn segments_held(&self) -> u64 {
        let inside = self.leaving.inside.and(self.in_frame).packets;
        self.pending.segments() + u64::from(inside)
    }
}

/// (`place` + u) / `of` of `time`, where u is the upper half of `draw` as a fraction.
fn share(time: Duration, place: u64, draw: u64, of: u32) -> Duration {
    let fixed = u128::from(place) << 32 | u128::from(draw >> 32);
    let scaled = u128::from(time.as_ns()) * fixed / u128::from(of.max(1));
    Duration::from_ns(u64::try_from(scaled >> 32).unwrap_or(u64::MAX))
}

/// A silence of so many times `hold` does not lie inside of a round trip's bursts.
const PAUSE: u64 = 2;
/// A delay that is no longer needed falls by one part in so many of the time that passes.
const WEARS: u64 = 8;
/// Runs of a frame before its table must grow: 10 ms of full frames at 10 Gb/s.
const FRAME_AT_START: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::{spaced, train};

    const HOLD: Duration = Duration::from_us(100);
    const LARGE: Bytes = Bytes::new(1 << 30);

    fn of_flow(flow: u32, train: Train) -> Train {
        Train { flow, ..train }
    }

    /// One segment of each flow a microsecond after the other, then a silence: the group is several
    /// and will be mixed from 1 ms on.
    fn begun(memory: Bytes, seed: u64) -> Shuffle {
        let mut stage = Shuffle::new(HOLD, memory, seed);
        let first =
            [1, 2, 3].map(|flow| of_flow(flow, train(flow.into(), 1, u64::from(flow) * 1_000)));
        let out = drive(&mut stage, &first, 10_000);
        assert_eq!(out, first, "what comes before the silence passes");
        stage
    }

    /// What leaves until `to_ns`.
    fn drive(stage: &mut Shuffle, trains: &[Train], to_ns: u64) -> Vec<Train> {
        let (mut out, mut log) = (Trains::default(), Vec::new());
        for &train in trains {
            stage.handle(train, &mut out, &mut log);
        }
        stage.advance(Instant::from_ns(to_ns), &mut out, &mut log);
        assert!(log.is_empty(), "nothing is dropped");
        out.drain().collect()
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn bursts_one_after_the_other_leave_mixed_each_in_its_own_order() {
        let mut stage = begun(LARGE, 1);
        // Three bursts of 20 segments, 0.6 us apart: 36 us in all.
        let bursts = [(1, 0), (2, 12_000), (3, 24_000)]
            .map(|(flow, at)| of_flow(flow, spaced(u64::from(flow) + 10, 20, MS + at, 600)));
        let out = drive(&mut stage, &bursts, 2 * MS);
        assert_eq!(out.iter().map(|t| u32::from(t.count)).sum::<u32>(), 60);
        let mut turns = 0;
        for pair in out.windows(2) {
            assert!(pair[0].at <= pair[1].at);
            turns += u32::from(pair[0].flow != pair[1].flow);
        }
        assert!(turns > 30, "{turns} turns of 60 segments");
        for (flow, burst) in (1..).zip(bursts) {
            let own: Vec<&Train> = out.iter().filter(|t| t.flow == flow).collect();
            let in_order = own.iter().zip(0..).all(|(t, k)| t.first == k);
            assert!(in_order, "flow {flow}");
            let mut late = own
                .iter()
                .zip(0..)
                .map(|(t, k)| t.at.saturating_since(burst.time_of(k)));
            assert!(late.all(|d| d < HOLD.saturating_mul(2)), "flow {flow}");
            // Its first third, like everybody's, leaves in the frame's first third or soon after.
            let third = own[6].at.saturating_since(Instant::from_ns(MS) + HOLD);
            assert!(third.as_ns() < HOLD.as_ns() * 7 / 20 + 1, "{third}");
        }
        assert_eq!((stage.segments_held(), stage.next_wakeup()), (0, None));
    }

    #[test]
    fn a_queue_that_takes_every_other_packet_takes_of_all() {
        for seed in 1..=5 {
            let mut stage = begun(LARGE, seed);
            let bursts = [(1, 0), (2, 20_000)]
                .map(|(flow, at)| of_flow(flow, spaced(flow.into(), 40, MS + at, 400)));
            let out = drive(&mut stage, &bursts, 2 * MS);
            let of_first = out.iter().step_by(2).filter(|t| t.flow == 1).count();
            assert!(
                (8..=32).contains(&of_first),
                "{of_first} of 40, seed {seed}"
            );
        }
    }

    #[test]
    fn a_flow_alone_and_what_is_in_no_group_pass_at_once() {
        let mut stage = Shuffle::new(HOLD, LARGE, 1);
        let whole = of_flow(1, train(1, 44, 5_000));
        assert_eq!(drive(&mut stage, &[whole], 5_000), [whole]);
        let mut stage = begun(LARGE, 1);
        let apart = Train {
            group: Train::NO_GROUP,
            ..train(9, 44, MS)
        };
        assert_eq!(drive(&mut stage, &[apart], MS), [apart]);
        // Another group's only flow, while the first group is mixed.
        let other = Train {
            group: 5,
            ..of_flow(1, train(10, 44, MS))
        };
        assert_eq!(drive(&mut stage, &[other], MS), [other]);
    }

    #[test]
    fn without_a_silence_mixing_begins_after_two_seconds() {
        for (from, held) in [(1_999 * MS, 0), (2_001 * MS + 1_000, 1)] {
            let mut stage = Shuffle::new(HOLD, LARGE, 1);
            let mut number = 0;
            let mut next = |at: u64| {
                number += 1;
                of_flow(1 + u32::from(number % 2 == 0), train(number, 1, at))
            };
            let steady: Vec<Train> = (0..=from / 150_000).map(|k| next(k * 150_000)).collect();
            let out = drive(&mut stage, &steady, from - 150_000);
            assert!(out.len() + 3 > steady.len());
            drive(&mut stage, &[], from);
            let last = next(from);
            drive(&mut stage, &[last], from);
            assert!(stage.segments_held() >= held, "at {from}");
            assert!(held > 0 || stage.segments_held() == 0, "at {from}");
        }
    }

    #[test]
    fn the_delay_of_the_last_flow_left_wears_off_without_a_step() {
        let mut stage = begun(LARGE, 1);
        // Flow 1 goes on, every 10 us, long after the others.
        let count = 260_000;
        let mut out = Vec::new();
        for part in 0..count / 1_000 {
            let at = MS + part * 1_000 * 10_000;
            let run = of_flow(1, spaced(100 + part, 1_000, at, 10_000));
            out.extend(drive(&mut stage, &[run], at + 1_000 * 10_000 - 1));
        }
        out.extend(drive(&mut stage, &[], 10_000 * MS));
        let all: Vec<Instant> = out
            .iter()
            .flat_map(|t| (0..t.count).map(|k| t.time_of(k)))
            .collect();
        assert_eq!(all.len() as u64, count);
        let late = |k: u64| {
            let came = Instant::from_ns(MS + k * 10_000);
            all[usize::try_from(k).unwrap()].saturating_since(came)
        };
        // Mixed until 2 s after the others' last, at 2 and 3 us.
        assert!(late(190_000) >= Duration::from_us(40) && late(190_000) < HOLD.saturating_mul(2));
        assert_eq!(late(count - 1), Duration::ZERO);
        let steps = (200_500..count).map(|k| (late(k - 1), late(k)));
        assert!(
            { steps }.all(|(before, after)| after <= before),
            "it only falls"
        );
        assert!(all.windows(2).all(|w| w[0] <= w[1]));
    }

    #[test]
    fn memory_is_bounded_and_what_leaves_next_makes_room() {
        let memory = Bytes::new(30 * 1_538);
        let mut stage = begun(memory, 3);
        let mut out = Vec::new();
        for burst in 0..50 {
            let at = MS + burst * 20_000;
            let run = of_flow(1 + u32::from(burst % 3 == 0), spaced(burst, 25, at, 100));
            out.extend(drive(&mut stage, &[run], at + 19_999));
            assert!(stage.segments_held() <= 30, "burst {burst}");
        }
        out.extend(drive(&mut stage, &[], 3 * MS));
        assert_eq!(out.iter().map(|t| u32::from(t.count)).sum::<u32>(), 50 * 25);
        for flow in [1, 2] {
            let own = out.iter().filter(|t| t.flow == flow);
            let names: Vec<(u64, u16)> = own.map(|t| (t.handle, t.first)).collect();
            assert!(names.is_sorted(), "flow {flow}");
        }
        assert!(out.is_sorted_by_key(|t| t.at));
    }

    #[test]
    fn more_flows_than_are_told_apart_pass_in_order() {
        let mut stage = begun(LARGE, 1);
        let flows = u32::try_from(FLOWS_MAX).unwrap() + 100;
        let runs: Vec<Train> = (0..2 * flows)
            .map(|n| of_flow(1 + n % flows, train(u64::from(n), 1, MS + u64::from(n) * 5)))
            .collect();
        let out = drive(&mut stage, &runs, 2 * MS);
        assert_eq!(out.len(), runs.len());
        let mut last = vec![0; flows as usize + 1];
        for t in out {
            assert!(last[t.flow as usize] <= t.handle);
            last[t.flow as usize] = t.handle;
        }
    }
}
