//! FQ-CoDel: flows apart, served in turn, each under CoDel (RFC 8290).
//!
//! Numbers of sections are those of RFC 8290.

use std::collections::VecDeque;

use units::Instant;

use super::codel::{Control, slab_runs};
use super::lists::{List, Slab};
use super::{log_dropped, log_queued};
use crate::event::{DropCause, Log};
use crate::queue::{Backlog, Discipline, QueueLimits};
use crate::spec::CodelSpec;
use crate::train::Train;

/// Flow queue `CoDel` (RFC 8290): flows hashed to queues, deficit round robin between them with new
/// queues first, `CoDel` for each. Serves one segment at a time.
///
/// Over the limit, segments are dropped from the head of the queue with the most bytes: half of
/// them, up to 64. They die of [`DropCause::QueueFull`] although they were queued before. Without
/// any limit, 10,240 packets bind.
///
/// Flows are told apart by [`Train::flow`]; those whose hashes meet share a queue, with a chance of
/// 1 in `flows` for two of them.
///
/// Linux's `fq_codel` differs: it takes a super-packet as one packet (for the limit, the round and
/// the drop), draws another hash function each time, drops once for each arrival over the limit, not
/// until all fits, and raises the drop rate of a queue that overflowed. For the rest see
/// [`Codel`](super::Codel).
#[derive(Clone, Debug)]
pub struct FqCodel {
    limits: QueueLimits,
    spec: CodelSpec,
    quantum_bytes: u32,
    slab: Slab,
    flows: Vec<Flow>,
    /// Queues that became busy lately, by index: served first (section 4.2).
    new: VecDeque<u32>,
    /// The others that are busy.
    old: VecDeque<u32>,
}

#[derive(Clone, Debug)]
struct Flow {
    list: List,
    control: Control,
    /// Bytes that it may still send in this round.
    credits: i64,
    /// In `new` or in `old`.
    listed: bool,
}

impl FqCodel {
    /// Empty queues: `flows` of them, each with `quantum_bytes` of the wire a round.
    ///
    /// # Panics
    /// When `flows` is not within 1..=65,536 or `quantum_bytes` is 0.
    pub fn new(limits: QueueLimits, spec: CodelSpec, flows: u32, quantum_bytes: u32) -> Self {
        assert!(
            (1..=FLOWS_MAX).contains(&flows),
            "FQ-CoDel has 1 to 65,536 queues"
        );
        assert!(quantum_bytes > 0, "a round needs a quantum above zero");
        let flow = Flow {
            list: List::EMPTY,
            control: Control::default(),
            credits: 0,
            listed: false,
        };
        let limits = with_default(limits);
        let queues = flows as usize;
        Self {
            limits,
            spec,
            quantum_bytes,
            slab: Slab::with_capacity(slab_runs(limits)),
            flows: vec![flow; queues],
            new: VecDeque::with_capacity(queues),
            old: VecDeque::with_capacity(queues),
        }
    }

    /// Index of the queue of a flow. The flow's own hash may be poor in its low bits.
    fn index_of(&self, flow: u32) -> u32 {
        let queues = u32::try_from(self.flows.len()).unwrap_or(u32::MAX);
        scaled(mixed(flow), queues)
    }

    /// The idle server asked and found nothing, which ended the round of every queue.
    fn end_rounds(&mut self) {
        for index in self.new.drain(..).chain(self.old.drain(..)) {
            let flow = &mut self.flows[index as usize];
            flow.listed = false;
            flow.control.on_empty();
        }
    }

    fn list_flow(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        if !flow.listed {
            flow.listed = true;
            flow.credits = i64::from(self.quantum_bytes);
            self.new.push_back(index);
        }
    }

    fn is_over(&self, inside: Backlog) -> bool {
        self.limits.bytes.is_some_and(|limit| inside.bytes > limit)
            || self
                .limits
                .packets
                .is_some_and(|limit| inside.packets > limit)
    }

    /// The queue with the most bytes; of several the one with the highest index. What waits is in a
    /// queue of this round, so the idle ones, tens of thousands maybe, need no look.
    fn fattest(&self) -> Option<u32> {
        let backlog = |index: u32| self.flows[index as usize].list.backlog();
        let listed = self.new.iter().chain(&self.old).copied();
        listed
            .filter(|&index| backlog(index).packets > 0)
            .max_by_key(|&index| (backlog(index).bytes, index))
    }

    /// Drops half the packets of the queue with the most bytes, up to [`BATCH_MAX`] (section 4.1).
    fn drop_from_fattest(&mut self, sending: Backlog, log: &mut dyn Log) {
        let Some(index) = self.fattest() else {
            return;
        };
        let list = &mut self.flows[index as usize].list;
        let half = u16::try_from(list.backlog().packets / 2).unwrap_or(u16::MAX);
        let mut batch = half.clamp(1, BATCH_MAX);
        while batch > 0 {
            let inside = self.slab.backlog().and(sending);
            let Some(run) = self.slab.pop(list, batch) else {
                return;
            };
            batch -= run.count;
            log_dropped(run, DropCause::QueueFull, inside, log);
        }
    }
}

impl Discipline for FqCodel {
    fn enqueue(&mut self, run: Train, now: Instant, sending: Backlog, log: &mut dyn Log) {
        if self.backlog().and(sending).packets == 0 {
            self.end_rounds();
        }
        let index = self.index_of(run.flow);
        self.list_flow(index);
        let mut rest = Some(run.gathered(now));
        while let Some(run) = rest {
            // As many as fit at once; then one at a time, each with the drops that it causes.
            let room = self
                .limits
                .room(self.backlog().and(sending), run.wire_bytes);
            let count = u16::try_from(room).unwrap_or(u16::MAX).clamp(1, run.count);
            let accepted = run.part(0, count);
            let flow = &mut self.flows[index as usize];
            self.slab.push(&mut flow.list, accepted);
            log_queued(accepted, self.backlog().and(sending), log);
            while self.is_over(self.backlog().and(sending)) && self.backlog().packets > 0 {
                self.drop_from_fattest(sending, log);
            }
            rest = (count < run.count).then(|| run.part(count, run.count - count));
        }
    }

    fn dequeue(&mut self, now: Instant, log: &mut dyn Log) -> Option<Train> {
        loop {
            let (round, is_new) = if self.new.is_empty() {
                (&mut self.old, false)
            } else {
                (&mut self.new, true)
            };
            let index = *round.front()?;
            let flow = &mut self.flows[index as usize];
            if flow.credits <= 0 {
                flow.credits += i64::from(self.quantum_bytes);
                round.pop_front();
                self.old.push_back(index);
                continue;
            }
            let Flow { list, control, .. } = flow;
            if let Some(segment) = control.dequeue(&self.spec, list, &mut self.slab, now, log) {
                flow.credits -= i64::from(segment.wire_bytes);
                return Some(segment);
            }
            round.pop_front();
            if is_new {
                // Once through the old ones, lest a queue that is new again and again starves them.
                self.old.push_back(index);
            } else {
                flow.listed = false;
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.slab.backlog()
    }

    /// What waits stays until the next arrival finds it above the limit.
    fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = with_default(limits);
    }
}

fn with_default(limits: QueueLimits) -> QueueLimits {
    match limits {
        QueueLimits {
            bytes: None,
            packets: None,
        } => QueueLimits {
            bytes: None,
            packets: Some(PACKETS_DEFAULT),
        },
        limits => limits,
    }
}

/// A bijection of u32 that spreads every bit over all: the finaliser of `MurmurHash3` (A. Appleby,
/// 2011; `fmix32`).
const fn mixed(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    let x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

/// `x` scaled from all of u32 to below `n`.
#[allow(clippy::cast_possible_truncation, reason = "the product's upper half")]
const fn scaled(x: u32, n: u32) -> u32 {
    ((x as u64 * n as u64) >> 32) as u32
}

/// The default packet limit of section 5.2.
const PACKETS_DEFAULT: u32 = 10_240;

/// Packets dropped at once on overload (section 4.1).
const BATCH_MAX: u16 = 64;

/// As in Linux's `sch_fq_codel`.
const FLOWS_MAX: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::testing::{
        CODEL, TEN_MEGABIT, constant, delays_ns, drive, dropped, dropped_as, keeps_its_books,
        merged, packets, responsive, sending, train,
    };
    use crate::event::{Decision, Event};
    use units::{Duration, Rng};

    /// So patient that it drops nothing.
    const PATIENT: CodelSpec = CodelSpec {
        target: Duration::from_s(1_000),
        ..CODEL
    };

    fn of_flow(flow: u32, wire_bytes: u32, count: u16, at_ns: u64) -> Train {
        Train {
            flow,
            wire_bytes,
            ..train(u64::from(flow) * 1_000_000, count, at_ns)
        }
    }

    fn offer(queue: &mut FqCodel, run: Train) -> Vec<Event> {
        let mut log = Vec::new();
        queue.enqueue(run, run.at, Backlog::default(), &mut log);
        log
    }

    /// Flow, handle and first segment of what is dropped.
    fn victims(log: &[Event]) -> Vec<(u32, u16, u16)> {
        log.iter()
            .filter(|e| matches!(e.decision, Decision::Dropped { .. }))
            .map(|e| (e.train.flow, e.train.first, e.train.count))
            .collect()
    }

    #[test]
    fn a_sparse_flow_waits_for_no_more_than_the_segment_being_sent() {
        let bulk = constant(of_flow(1, 1538, 1, 0), 20_000_000, 5_000_000_000);
        let sparse = constant(of_flow(2, 84, 1, 3_333_333), 67_200, 5_000_000_000);
        assert!(sparse.len() > 490);
        let queue = FqCodel::new(packets(1_000), CODEL, 1_024, 1_514);
        let arrivals = merged(vec![bulk, sparse.clone()]);
        let (_, log) = drive(queue, TEN_MEGABIT, &arrivals, None);
        let worst = |flow| delays_ns(&log, flow).iter().map(|d| d.1).max().unwrap();
        // 1538 and 84 bytes at 10 Mb/s.
        assert!(worst(2) <= 1_230_400 + 67_200, "{}", worst(2));
        assert!(worst(1) > 100_000_000, "{}", worst(1));
        assert_eq!(delays_ns(&log, 2).len(), sparse.len());
    }

    #[test]
    fn two_busy_flows_share_within_a_quantum_whatever_their_packets() {
        for quantum_bytes in [300, 1_514, 6_000] {
            let arrivals = [of_flow(1, 1538, 500, 0), of_flow(2, 200, 3_845, 0)];
            let queue = FqCodel::new(packets(10_000), PATIENT, 1_024, quantum_bytes);
            let (out, log) = drive(queue, TEN_MEGABIT, &arrivals, None);
            assert_eq!(dropped(&log), 0);
            // The first one is served before the others come into play.
            let mut ahead = 0_i64;
            for segment in &out {
                let bytes = i64::from(segment.wire_bytes);
                ahead += if segment.flow == 1 { bytes } else { -bytes };
                let bound = i64::from(quantum_bytes) + 1_538;
                assert!(ahead.abs() <= bound, "{ahead}, quantum {quantum_bytes}");
            }
        }
    }

    #[test]
    fn a_new_flow_goes_before_the_old_for_a_quantum_and_then_in_turn() {
        let mut queue = FqCodel::new(packets(100), PATIENT, 1_024, 1_538);
        offer(&mut queue, of_flow(1, 1538, 4, 0));
        let next = |queue: &mut FqCodel| {
            let segment = queue.dequeue(Instant::ZERO, &mut Vec::new());
            segment.map(|s| s.flow)
        };
        assert_eq!([next(&mut queue), next(&mut queue)], [Some(1); 2]);
        offer(&mut queue, of_flow(2, 1538, 3, 0));
        let order: Vec<u32> = std::iter::from_fn(|| next(&mut queue)).collect();
        // Both have used up their credits when the first 2 has left, and 1 was the first to renew them.
        assert_eq!(order, [2, 2, 1, 2, 1]);
    }

    #[test]
    fn an_idle_server_ends_the_round_of_every_flow() {
        for (sent, order) in [(0, [2, 1, 2]), (1_538, [2, 2, 1])] {
            let mut queue = FqCodel::new(packets(100), PATIENT, 1_024, 1_538);
            // Where the server was busy all the time flow 1 has used up its credits, else it is new.
            let being_sent = Backlog {
                bytes: sent,
                packets: u32::from(sent > 0),
            };
            for at_ns in [0, 1_000_000_000] {
                let (run, at) = (of_flow(1, 1538, 1, at_ns), Instant::from_ns(at_ns));
                queue.enqueue(run, at, being_sent, &mut Vec::new());
                queue.dequeue(at, &mut Vec::new());
            }
            let at = Instant::from_ns(2_000_000_000);
            let burst = of_flow(2, 1538, 2, at.as_ns());
            queue.enqueue(burst, at, being_sent, &mut Vec::new());
            let mut served = vec![queue.dequeue(at, &mut Vec::new()).unwrap().flow];
            let late = of_flow(1, 1538, 1, at.as_ns());
            queue.enqueue(late, at, sending(1_538), &mut Vec::new());
            let rest = std::iter::from_fn(|| queue.dequeue(at, &mut Vec::new()));
            served.extend(rest.map(|s| s.flow));
            assert_eq!(served, order);
        }
    }

    #[test]
    fn overload_drops_half_of_the_fattest_queue_from_its_head() {
        let mut queue = FqCodel::new(packets(110), CODEL, 1_024, 1_514);
        assert_eq!(victims(&offer(&mut queue, of_flow(1, 1538, 100, 0))), []);
        assert_eq!(victims(&offer(&mut queue, of_flow(2, 1538, 10, 0))), []);
        let log = offer(&mut queue, of_flow(2, 1538, 1, 1));
        assert_eq!(victims(&log), [(1, 0, 50)]);
        assert_eq!(dropped_as(&log, DropCause::QueueFull), 50);
        assert_eq!(queue.backlog().packets, 61);
    }

    #[test]
    fn overload_drops_64_at_most_at_once() {
        for (waiting, batch) in [(127, 63), (128, 64), (129, 64), (1_000, 64)] {
            let mut queue = FqCodel::new(packets(waiting), CODEL, 1_024, 1_514);
            let waiting = u16::try_from(waiting).unwrap();
            offer(&mut queue, of_flow(1, 1538, waiting, 0));
            let log = offer(&mut queue, of_flow(2, 1538, 1, 1));
            assert_eq!(victims(&log), [(1, 0, batch)]);
        }
    }

    #[test]
    fn the_fattest_queue_is_the_one_with_the_most_bytes() {
        let mut queue = FqCodel::new(packets(60), CODEL, 1_024, 1_514);
        offer(&mut queue, of_flow(1, 1538, 20, 0));
        offer(&mut queue, of_flow(2, 84, 40, 0));
        let log = offer(&mut queue, of_flow(3, 84, 1, 1));
        assert_eq!(victims(&log), [(1, 0, 10)]);
    }

    /// As a look at each of the queues finds it, whatever is listed and in which order.
    #[test]
    fn the_fattest_queue_is_found_among_those_of_the_round() {
        let mut rng = Rng::new(7);
        let mut below = |n: u64| u32::try_from(rng.next_u64() % n).unwrap();
        let mut queue = FqCodel::new(packets(40), CODEL, 16, 1_514);
        let (mut ties, mut drops) = (0, 0);
        for at_ns in 0..20_000_u64 {
            if below(2) == 0 {
                let wire_bytes = 500 * (1 + below(2));
                let run = of_flow(below(64), wire_bytes, 1, at_ns * 100_000);
                drops += dropped_as(&offer(&mut queue, run), DropCause::QueueFull);
            } else {
                queue.dequeue(Instant::from_ns(at_ns * 100_000), &mut Vec::new());
            }
            let waiting = (0_u32..).zip(&queue.flows);
            let waiting = waiting.map(|(index, flow)| (flow.list.backlog().bytes, index));
            let waiting: Vec<_> = waiting.filter(|(bytes, _)| *bytes > 0).collect();
            let fattest = waiting.iter().max();
            assert_eq!(queue.fattest(), fattest.map(|(_, index)| *index));
            let most = fattest.map(|(bytes, _)| bytes);
            ties += usize::from(waiting.iter().filter(|(b, _)| Some(b) == most).count() > 1);
        }
        assert!(ties > 100 && drops > 100, "{ties} ties, {drops} drops");
    }

    #[test]
    fn a_byte_limit_binds_as_a_packet_limit_does() {
        let limits = QueueLimits {
            bytes: Some(10 * 1538),
            packets: None,
        };
        let mut queue = FqCodel::new(limits, CODEL, 1_024, 1_514);
        assert_eq!(dropped(&offer(&mut queue, of_flow(1, 1538, 10, 0))), 0);
        assert_eq!(dropped(&offer(&mut queue, of_flow(2, 1, 1, 0))), 5);
    }

    #[test]
    fn without_any_limit_10240_packets_bind() {
        let mut queue = FqCodel::new(QueueLimits::default(), CODEL, 1_024, 1_514);
        assert_eq!(dropped(&offer(&mut queue, of_flow(1, 84, 10_240, 0))), 0);
        assert_eq!(dropped(&offer(&mut queue, of_flow(1, 84, 1, 0))), 64);
    }

    #[test]
    fn a_lower_limit_lets_what_waits_stay_until_the_next_arrival() {
        let mut queue = FqCodel::new(packets(1_000), CODEL, 1_024, 1_514);
        offer(&mut queue, of_flow(1, 1538, 1_000, 0));
        queue.set_limits(packets(100));
        assert_eq!(queue.backlog().packets, 1_000);
        offer(&mut queue, of_flow(2, 1538, 1, 0));
        assert!((37..=100).contains(&queue.backlog().packets));
    }

    #[test]
    fn flows_spread_over_the_queues_whatever_bits_tell_them_apart() {
        let queue = FqCodel::new(packets(1), CODEL, 1_024, 1_514);
        for shift in [0, 8, 22] {
            let mut used = vec![false; 1_024];
            for flow in 0..1_024_u32 {
                used[queue.index_of(flow << shift) as usize] = true;
            }
            let used = used.iter().filter(|&&u| u).count();
            // At random 1 - 1/e of them would be, 647, with a deviation of 10.
            assert!((600..=700).contains(&used), "{used}, shift {shift}");
        }
    }

    #[test]
    fn responsive_senders_keep_the_delay_near_the_target_and_the_link_busy() {
        let queue = FqCodel::new(packets(1_000), CODEL, 1_024, 1_514);
        let (delay_us, served) = responsive(queue);
        assert!((1_231..15_000).contains(&delay_us), "{delay_us}");
        assert!((14_600..=16_256).contains(&served), "{served}");
    }

    #[test]
    fn books_are_kept() {
        let spec = CodelSpec { ecn: true, ..CODEL };
        keeps_its_books(|limits| FqCodel::new(limits, spec, 4, 1_514));
    }
}
