//! CoDel: drops at the head when segments have waited too long for too long (RFC 8289).
//!
//! The length of the queue means nothing to it, only the time that each segment has waited. Numbers
//! of sections are those of RFC 8289.

use units::{Duration, Instant};

use super::lists::{List, Slab};
use super::{log_dropped, log_queued, mark, takes_mark};
use crate::event::{DropCause, Log};
use crate::queue::{Backlog, Discipline, QueueLimits};
use crate::spec::CodelSpec;
use crate::train::Train;

/// First in, first out with controlled delay (RFC 8289). Serves one segment at a time.
///
/// Linux's `sch_codel` differs: it takes a super-packet as one packet, calculates the control law
/// with 16 bits of an approximate root in units of 1.024 µs, counts a drop even where it ends the
/// dropping, and takes the device's MTU for the queue that is always allowed, here the largest
/// segment seen.
#[derive(Clone, Debug)]
pub struct Codel {
    limits: QueueLimits,
    spec: CodelSpec,
    slab: Slab,
    list: List,
    control: Control,
}

/// CoDel's state for one queue (section 5.2).
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    /// When a standing delay will have stood for an interval; `None` below the target.
    first_above: Option<Instant>,
    /// When the next segment is dropped, while dropping; the last such time otherwise.
    drop_next: Instant,
    /// Drops in this dropping state, plus what was left of the one before.
    count: u32,
    /// `count` when the state began.
    last_count: u32,
    dropping: bool,
}

impl Codel {
    /// An empty queue.
    pub fn new(limits: QueueLimits, spec: CodelSpec) -> Self {
        Self {
            limits,
            spec,
            slab: Slab::with_capacity(slab_runs(limits)),
            list: List::EMPTY,
            control: Control::default(),
        }
    }
}

impl Discipline for Codel {
    fn enqueue(&mut self, run: Train, now: Instant, sending: Backlog, log: &mut dyn Log) {
        let run = run.gathered(now);
        let inside = self.backlog().and(sending);
        let room = self.limits.room(inside, run.wire_bytes);
        let fits = u16::try_from(room).unwrap_or(u16::MAX).min(run.count);
        if fits > 0 {
            let accepted = run.part(0, fits);
            self.slab.push(&mut self.list, accepted);
            log_queued(accepted, inside.plus(&accepted), log);
        }
        if fits < run.count {
            let rest = run.part(fits, run.count - fits);
            let inside = self.backlog().and(sending);
            log_dropped(rest, DropCause::QueueFull, inside, log);
        }
    }

    fn dequeue(&mut self, now: Instant, log: &mut dyn Log) -> Option<Train> {
        self.control
            .dequeue(&self.spec, &mut self.list, &mut self.slab, now, log)
    }

    fn backlog(&self) -> Backlog {
        self.slab.backlog()
    }

    fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }
}

impl Control {
    /// The next segment of `list` that is not dropped (section 5.5). `None` only when nothing waits:
    /// the last segment is never dropped.
    pub(super) fn dequeue(
        &mut self,
        spec: &CodelSpec,
        list: &mut List,
        slab: &mut Slab,
        now: Instant,
        log: &mut dyn Log,
    ) -> Option<Train> {
        let (mut head, mut may_drop) = self.take(spec, list, slab, now);
        if !self.dropping {
            if may_drop {
                head = self.start_dropping(spec, head?, list, slab, now, log);
            }
            return head;
        }
        self.dropping = may_drop;
        // Several drops can be due at once when the server is slow.
        while self.dropping && now >= self.drop_next {
            let segment = head?;
            let inside = slab.backlog().plus(&segment);
            if takes_mark(spec.ecn, segment.marks) {
                self.schedule_next(spec);
                return Some(mark(segment, inside, log));
            }
            log_dropped(segment, DropCause::Early, inside, log);
            (head, may_drop) = self.take(spec, list, slab, now);
            self.dropping = may_drop;
            if self.dropping {
                self.schedule_next(spec);
            }
        }
        head
    }

    /// Told that the server asked and found nothing.
    pub(super) const fn on_empty(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    /// The next segment, and whether the delay has been above the target for an interval (section
    /// 5.6, `dodequeue`). A queue of no more than one full segment is always allowed.
    fn take(
        &mut self,
        spec: &CodelSpec,
        list: &mut List,
        slab: &mut Slab,
        now: Instant,
    ) -> (Option<Train>, bool) {
        let Some(segment) = slab.pop(list, 1) else {
            self.first_above = None;
            return (None, false);
        };
        let sojourn = now.saturating_since(segment.at);
        let short = list.backlog().bytes <= u64::from(slab.largest_bytes());
        if sojourn < spec.target || short {
            self.first_above = None;
            return (Some(segment), false);
        }
        match self.first_above {
            Some(first_above) => (Some(segment), now >= first_above),
            None => {
                self.first_above = Some(now + spec.interval);
                (Some(segment), false)
            }
        }
    }

    /// Drops or marks the first segment of a dropping state; the next one of the queue, or the marked.
    fn start_dropping(
        &mut self,
        spec: &CodelSpec,
        segment: Train,
        list: &mut List,
        slab: &mut Slab,
        now: Instant,
        log: &mut dyn Log,
    ) -> Option<Train> {
        let inside = slab.backlog().plus(&segment);
        let head = if takes_mark(spec.ecn, segment.marks) {
            Some(mark(segment, inside, log))
        } else {
            log_dropped(segment, DropCause::Early, inside, log);
            self.take(spec, list, slab, now).0
        };
        self.dropping = true;
        // Shortly after the last dropping state its rate is the best guess at the one needed now.
        let recent = now.saturating_since(self.drop_next) < spec.interval.saturating_mul(16);
        let gained = self.count.saturating_sub(self.last_count);
        self.count = if recent { gained.max(1) } else { 1 };
        self.drop_next = now + step(spec.interval, self.count);
        self.last_count = self.count;
        head
    }

    fn schedule_next(&mut self, spec: &CodelSpec) {
        self.count = self.count.saturating_add(1);
        self.drop_next += step(spec.interval, self.count);
    }
}

/// The control law (section 5.6): interval / sqrt(count), rounded down, in exact integers so that a
/// run is the same on every machine.
fn step(interval: Duration, count: u32) -> Duration {
    let square = u128::from(interval.as_ns()).pow(2) / u128::from(count.max(1));
    // The root is at most the interval.
    Duration::from_ns(u64::try_from(square.isqrt()).unwrap_or(u64::MAX))
}

/// Runs to make room for at the start: as many as may wait, where that is known and not excessive.
pub(super) fn slab_runs(limits: QueueLimits) -> usize {
    let packets = limits.packets.unwrap_or(RUNS_MAX).min(RUNS_MAX);
    usize::try_from(packets).unwrap_or(0)
}

/// Linux's default limit of `fq_codel` in packets; 720 KiB of nodes, touched only when used.
const RUNS_MAX: u32 = 10_240;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::testing::{
        CODEL, TEN_MEGABIT, constant, delays_ns, drive, dropped, dropped_as, keeps_its_books,
        marked, merged, packets, responsive, train,
    };
    use crate::event::{Decision, Event};
    use crate::queue::DropTail;
    use crate::train::Marks;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    /// A queue that `count` segments came to at `at_ns`.
    fn filled(spec: CodelSpec, like: Train, count: u16) -> Codel {
        let mut queue = Codel::new(QueueLimits::default(), spec);
        let run = Train { count, ..like };
        queue.enqueue(run, run.at, Backlog::default(), &mut Vec::new());
        queue
    }

    /// Asks at every `step_us` of the span: the times of drops and marks.
    fn decided_us(queue: &mut Codel, from_us: u64, until_us: u64, step_us: usize) -> Vec<u64> {
        let mut times = Vec::new();
        for now_us in (from_us..until_us).step_by(step_us) {
            let mut log = Vec::new();
            queue.dequeue(Instant::from_ns(now_us * 1_000), &mut log);
            times.extend(log.iter().map(|_| now_us));
        }
        times
    }

    #[test]
    fn drops_follow_the_control_law() {
        let mut queue = filled(CODEL, train(1, 60_000, 0), 60_000);
        // Above the target from 5 ms on, for an interval at 105 ms; then interval / sqrt(2), ...
        let mut expected = vec![105_000.0];
        for count in 1..30 {
            expected.push(expected[count - 1] + 100_000.0 / (count as f64).sqrt());
        }
        let times = decided_us(&mut queue, 0, 1_000_000, 20);
        assert!(times.len() > 20);
        for (time, expected) in times.iter().zip(expected) {
            let late = *time as f64 - expected;
            assert!((-0.1..20.0).contains(&late), "{time} for {expected}");
        }
    }

    #[test]
    fn the_control_law_is_exact_for_squares_and_rounds_down() {
        let interval = Duration::from_ns(1_000);
        let steps = [1, 2, 4, 9, 100].map(|count| step(interval, count).as_ns());
        assert_eq!(steps, [1_000, 707, 500, 333, 100]);
        assert_eq!(step(Duration::from_ns(u64::MAX), 1).as_ns(), u64::MAX);
    }

    #[test]
    fn the_first_drop_needs_the_target_for_a_whole_interval() {
        for (at, dropped) in [(105 * MS - 1, 0), (105 * MS, 1)] {
            let mut queue = filled(CODEL, train(1, 100, 0), 100);
            let mut log = Vec::new();
            for now in [5 * MS - 1, 5 * MS, at] {
                queue.dequeue(Instant::from_ns(now), &mut log);
            }
            assert_eq!(log.len(), dropped, "at {at} ns");
        }
    }

    #[test]
    fn one_segment_below_the_target_starts_the_interval_again() {
        for (young_at, dropped) in [(95 * MS, 1), (95 * MS + 1, 0)] {
            let mut queue = filled(CODEL, train(1, 1, 0), 2);
            let rest = train(2, 100, young_at);
            queue.enqueue(rest, rest.at, Backlog::default(), &mut Vec::new());
            let mut log = Vec::new();
            for now in [5 * MS, 5 * MS, 100 * MS, 105 * MS] {
                queue.dequeue(Instant::from_ns(now), &mut log);
            }
            assert_eq!(log.len(), dropped, "arrival at {young_at} ns");
        }
    }

    #[test]
    fn a_queue_of_one_full_segment_is_never_dropped_from() {
        for (left, dropped) in [(1, 0), (2, 1)] {
            let mut queue = filled(CODEL, train(1, 3 + left, 0), 3 + left);
            let mut log = Vec::new();
            for now_ms in [5, 50, 105, 106] {
                queue.dequeue(Instant::from_ns(now_ms * MS), &mut log);
            }
            assert_eq!(log.len(), dropped, "{left} left behind the third");
        }
    }

    #[test]
    fn the_last_segment_is_served_however_long_it_waited() {
        let mut queue = filled(CODEL, train(1, 1, 0), 50);
        let mut log = Vec::new();
        let mut served = 0;
        for s in 1.. {
            let waited = queue.backlog().packets;
            let segment = queue.dequeue(Instant::from_ns(s * S), &mut log);
            assert_eq!(segment.is_some(), waited > 0);
            if segment.is_none() {
                break;
            }
            served += 1;
        }
        assert!(!log.is_empty());
        assert_eq!(served + log.len(), 50);
    }

    #[test]
    fn a_dropping_state_soon_after_the_last_goes_on_at_its_rate() {
        // The second drop comes an interval / sqrt(count) after the first.
        for (pause, reused) in [(S, true), (2 * S, false)] {
            let mut queue = filled(CODEL, train(1, 1, 0), 60_000);
            let before = decided_us(&mut queue, 0, 800_000, 20);
            while queue
                .dequeue(Instant::from_ns(800 * MS), &mut Vec::new())
                .is_some()
            {}
            let count = u64::from(queue.control.count - queue.control.last_count);
            assert_eq!(count + 2, before.len() as u64 + 1);
            let again = Train {
                count: 30_000,
                ..train(2, 1, 800 * MS + pause - 105 * MS)
            };
            queue.enqueue(again, again.at, Backlog::default(), &mut Vec::new());
            let from_us = again.at.as_ns() / 1_000;
            let times = decided_us(&mut queue, from_us, from_us + 300_000, 10);
            let expected = if reused {
                step(CODEL.interval, u32::try_from(count).unwrap()).as_ns() / 1_000
            } else {
                100_000
            };
            let gap = times[1] - times[0];
            assert!(gap.abs_diff(expected) <= 10, "{gap} us for {expected} us");
        }
    }

    #[test]
    fn no_drop_where_the_delay_stays_below_the_target() {
        // Three at a time every 4 ms: the last waits for two others, 3.7 ms with its own time.
        let arrivals: Vec<Train> = (0..1_000).map(|n| train(n, 3, n * 4 * MS)).collect();
        let (out, log) = drive(
            Codel::new(packets(1_000), CODEL),
            TEN_MEGABIT,
            &arrivals,
            None,
        );
        assert_eq!((out.len(), dropped(&log)), (3_000, 0));
    }

    #[test]
    fn an_unresponsive_overload_is_brought_back_towards_the_target() {
        let arrivals = constant(train(0, 1, 0), 11_000_000, 30 * S);
        let codel = Codel::new(packets(10_000), CODEL);
        let (_, log) = drive(codel, TEN_MEGABIT, &arrivals, None);
        let delays = delays_ns(&log, 0);
        let mean_ms = |from: u64, to: u64| {
            let span: Vec<u64> = delays
                .iter()
                .filter(|(at, _)| (from..to).contains(at))
                .map(|&(_, delay)| delay / 1_000)
                .collect();
            span.iter().sum::<u64>() / span.len() as u64 / 1_000
        };
        let table: Vec<u64> = (0..30).map(|s| mean_ms(s * S, (s + 1) * S)).collect();
        // The control law drops too little for two seconds, then swings about what is needed.
        assert!(table[1] > 50, "{table:?}");
        assert!(
            table[5..].iter().all(|ms| (5..=35).contains(ms)),
            "{table:?}"
        );
        assert_eq!(dropped_as(&log, DropCause::QueueFull), 0);
    }

    #[test]
    fn responsive_senders_keep_the_delay_near_the_target_and_the_link_busy() {
        let (codel_us, served) = responsive(Codel::new(packets(1_000), CODEL));
        let (drop_tail_us, _) = responsive(DropTail::new(packets(200)));
        assert!((1_231..15_000).contains(&codel_us), "{codel_us}");
        assert!(drop_tail_us > 100_000, "{drop_tail_us}");
        // 20 s of 1.2304 ms each.
        assert!((14_600..=16_256).contains(&served), "{served}");
    }

    #[test]
    fn ecn_marks_those_that_can_be_marked_and_drops_the_others() {
        let spec = CodelSpec { ecn: true, ..CODEL };
        let capable = Train {
            marks: Marks::ECT,
            ..train(0, 1, 0)
        };
        let plain = train(1_000_000, 1, 1);
        let flows = |like| constant(like, 6_000_000, 10 * S);
        let arrivals = merged(vec![flows(capable), flows(plain)]);
        let (out, log) = drive(
            Codel::new(packets(5_000), spec),
            TEN_MEGABIT,
            &arrivals,
            None,
        );
        let wrong = |e: &&Event| match e.decision {
            Decision::Marked { .. } => e.train.handle >= 1_000_000,
            Decision::Dropped { .. } => e.train.handle < 1_000_000,
            _ => false,
        };
        assert_eq!(log.iter().find(wrong), None);
        assert!(marked(&log) > 50 && dropped(&log) > 50);
        let carried = out.iter().filter(|t| t.marks.has(Marks::CE)).count();
        assert_eq!(carried as u64, marked(&log));
    }

    #[test]
    fn marks_follow_the_same_control_law() {
        let spec = CodelSpec { ecn: true, ..CODEL };
        let capable = Train {
            marks: Marks::ECT,
            ..train(1, 1, 0)
        };
        let mut marks = filled(spec, capable, 60_000);
        let mut drops = filled(CODEL, capable, 60_000);
        let times = decided_us(&mut marks, 0, 1_000_000, 20);
        assert!(times.len() > 20);
        assert_eq!(times, decided_us(&mut drops, 0, 1_000_000, 20));
        assert_eq!(u64::from(marks.backlog().packets), 60_000 - 50_000);
    }

    #[test]
    fn books_are_kept() {
        keeps_its_books(|limits| Codel::new(limits, CodelSpec { ecn: true, ..CODEL }));
    }
}
