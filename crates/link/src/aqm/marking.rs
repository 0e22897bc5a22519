//! Drop-tail that marks above a threshold, as data centre switches do.

use units::Instant;

use super::mark;
use crate::event::Log;
use crate::queue::{Backlog, Discipline, DropTail, QueueLimits};
use crate::train::{Marks, Train};

/// First come, first served; an ECN-capable segment that finds more than a threshold of bytes inside
/// is marked (RFC 8257 section 3.1: by the instantaneous queue). The threshold counts, as the limits
/// do, what is being sent, until its last bit has left. Segments that are not ECN-capable are
/// dropped when there is no room and not before.
#[derive(Clone, Debug)]
pub struct MarkingDropTail {
    limits: QueueLimits,
    mark_above: u64,
    queue: DropTail,
}

impl MarkingDropTail {
    /// An empty queue that marks what finds more than `mark_above` wire bytes inside.
    pub fn new(limits: QueueLimits, mark_above: u64) -> Self {
        Self {
            limits,
            mark_above,
            queue: DropTail::new(limits),
        }
    }

    /// How many segments of `run` find no more than the threshold inside.
    fn below(&self, run: &Train, inside: Backlog) -> u16 {
        let Some(spare) = self.mark_above.checked_sub(inside.bytes) else {
            return 0;
        };
        let segments = (spare / u64::from(run.wire_bytes.max(1))).saturating_add(1);
        u16::try_from(segments).unwrap_or(u16::MAX).min(run.count)
    }

    /// The segments of `run` above the threshold: marked as far as they fit.
    fn enqueue_above(&mut self, run: Train, now: Instant, sending: Backlog, log: &mut dyn Log) {
        let inside = self.backlog().and(sending);
        let room = self.limits.room(inside, run.wire_bytes);
        let fits = u16::try_from(room).unwrap_or(u16::MAX).min(run.count);
        if fits > 0 {
            let marked = mark(run.part(0, fits), inside, log);
            self.queue.enqueue(marked, now, sending, log);
        }
        if fits < run.count {
            let rest = run.part(fits, run.count - fits);
            self.queue.enqueue(rest, now, sending, log);
        }
    }
}

impl Discipline for MarkingDropTail {
    fn enqueue(&mut self, run: Train, now: Instant, sending: Backlog, log: &mut dyn Log) {
        if !run.marks.has(Marks::ECT) {
            return self.queue.enqueue(run, now, sending, log);
        }
        let below = self.below(&run, self.backlog().and(sending));
        if below > 0 {
            self.queue.enqueue(run.part(0, below), now, sending, log);
        }
        if below < run.count {
            let above = run.part(below, run.count - below);
            self.enqueue_above(above, now, sending, log);
        }
    }

    fn dequeue(&mut self, now: Instant, log: &mut dyn Log) -> Option<Train> {
        self.queue.dequeue(now, log)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
        self.queue.set_limits(limits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::testing::{bytes, dropped, keeps_its_books, marked, packets, train};
    use crate::event::Event;

    fn offer(queue: &mut MarkingDropTail, run: Train, sending: Backlog) -> Vec<Event> {
        let mut log = Vec::new();
        queue.enqueue(run, run.at, sending, &mut log);
        log
    }

    fn capable(count: u16) -> Train {
        Train {
            marks: Marks::ECT,
            ..train(1, count, 0)
        }
    }

    #[test]
    fn a_segment_that_finds_the_threshold_passes_and_one_that_finds_a_byte_more_is_marked() {
        for (mark_above, expected) in [(1538 * 2, (3, 2)), (1538 * 2 - 1, (2, 3))] {
            let mut queue = MarkingDropTail::new(QueueLimits::default(), mark_above);
            let log = offer(&mut queue, capable(5), Backlog::default());
            assert_eq!((5 - marked(&log), marked(&log)), expected);
            let first = queue.dequeue(Instant::ZERO, &mut Vec::new()).unwrap();
            let second = queue.dequeue(Instant::ZERO, &mut Vec::new()).unwrap();
            assert_eq!(
                (u64::from(first.count), first.marks),
                (expected.0, Marks::ECT)
            );
            assert_eq!(second.marks, Marks::ECT.with(Marks::CE));
            assert_eq!(u64::from(second.count), expected.1);
        }
    }

    #[test]
    fn what_is_being_sent_counts_towards_the_threshold() {
        let sending = Backlog {
            bytes: 1538,
            packets: 1,
        };
        let mut queue = MarkingDropTail::new(QueueLimits::default(), 1537);
        assert_eq!(marked(&offer(&mut queue, capable(1), sending)), 1);
        let mut queue = MarkingDropTail::new(QueueLimits::default(), 1538);
        assert_eq!(marked(&offer(&mut queue, capable(1), sending)), 0);
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_not_marked() {
        let mut queue = MarkingDropTail::new(packets(4), 1538);
        let log = offer(&mut queue, capable(10), Backlog::default());
        assert_eq!((marked(&log), dropped(&log)), (2, 6));
        assert_eq!(queue.backlog().packets, 4);
    }

    #[test]
    fn a_segment_that_takes_no_marks_meets_a_plain_drop_tail() {
        let mut queue = MarkingDropTail::new(bytes(3 * 1538), 0);
        let log = offer(&mut queue, train(1, 10, 0), Backlog::default());
        assert_eq!((marked(&log), dropped(&log)), (0, 7));
    }

    #[test]
    fn books_are_kept() {
        keeps_its_books(|limits| MarkingDropTail::new(limits, 20_000));
    }
}
