//! A receiver's interrupt hold-off: frames that came one by one are handed over together.
//!
//! The first segment starts a timer; what is there when it ends, or as soon as so many segments are
//! there, leaves at once (`rx-usecs` and `rx-frames` of ethtool(8); `struct ethtool_coalesce` in
//! include/uapi/linux/ethtool.h). Left out: adaptive moderation, and a poll that goes on while
//! frames keep coming (NAPI).

use units::{Duration, Instant};

use crate::event::Log;
use crate::pipeline::{Stage, Trains};
use crate::spec::CoalesceSpec;
use crate::train::Train;

/// Holds segments until the timer ends or enough are there.
#[derive(Clone, Debug)]
pub struct Coalesce {
    hold: Duration,
    packets: u64,
    held: Vec<Train>,
    segments: u64,
    /// When those that are held leave.
    timer: Option<Instant>,
}

impl Coalesce {
    /// A hold of zero holds nothing; zero packets are no limit.
    pub fn new(spec: CoalesceSpec) -> Self {
        let packets = match spec.packets {
            0 => u64::MAX,
            n => n.into(),
        };
        Self {
            hold: spec.hold,
            packets,
            held: Vec::with_capacity(64),
            segments: 0,
            timer: None,
        }
    }

    /// Takes a run whose segments all come at `at`.
    fn arrive(&mut self, run: Train, at: Instant, out: &mut Trains) {
        // What comes when the timer ends is too late: whether the driver asked before it came or
        // after must not matter.
        if let Some(end) = self.timer.filter(|&end| end <= at) {
            self.release(end, out);
        }
        let mut rest = Some(run);
        while let Some(run) = rest {
            let room = self.packets - self.segments;
            let count = u16::try_from(room).unwrap_or(u16::MAX).min(run.count);
            self.keep(run.part(0, count));
            if self.segments == self.packets {
                self.release(at, out);
            } else {
                self.timer.get_or_insert(at + self.hold);
            }
            rest = (count < run.count).then(|| run.part(count, run.count - count));
        }
    }

    fn keep(&mut self, run: Train) {
        self.segments += u64::from(run.count);
        if let Some(last) = self.held.last_mut().filter(|l| l.is_followed_by(&run))
            && let Some(count) = last.count.checked_add(run.count)
        {
            last.count = count;
        } else {
            self.held.push(run);
        }
    }

    fn release(&mut self, at: Instant, out: &mut Trains) {
        for train in self.held.drain(..) {
            out.push(train.gathered(at));
        }
        self.segments = 0;
        self.timer = None;
    }
}

impl Stage for Coalesce {
    fn name(&self) -> &'static str {
        "coalesce"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, _: &mut dyn Log) {
        if self.hold == Duration::ZERO {
            out.push(train);
        } else if train.spacing.is_together() {
            self.arrive(train, train.at, out);
        } else {
            for k in 0..train.count {
                self.arrive(train.part(k, 1), train.time_of(k), out);
            }
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.timer
    }

    fn advance(&mut self, to: Instant, out: &mut Trains, _: &mut dyn Log) {
        if let Some(end) = self.timer.filter(|&end| end <= to) {
            self.release(end, out);
        }
    }

    fn segments_held(&self) -> u64 {
        self.segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::{pass, spaced, train};

    fn coalesce(hold_ns: u64, packets: u32) -> Coalesce {
        Coalesce::new(CoalesceSpec {
            hold: Duration::from_ns(hold_ns),
            packets,
        })
    }

    /// (handle, first, count, leaves at) of what trains and the timer after them let out.
    fn run(stage: &mut Coalesce, trains: &[Train]) -> Vec<(u64, u16, u16, u64)> {
        let (mut all, _) = pass(stage, trains);
        let mut out = Trains::default();
        if let Some(at) = stage.next_wakeup() {
            stage.advance(at - Duration::from_ns(1), &mut out, &mut Vec::new());
            assert_eq!(
                out.drain().count(),
                0,
                "nothing leaves before the timer ends"
            );
            stage.advance(at, &mut out, &mut Vec::new());
        }
        all.extend(out.drain());
        assert_eq!((stage.next_wakeup(), stage.segments_held()), (None, 0));
        assert!(all.iter().all(|t| t.spacing.is_together()));
        all.iter()
            .map(|t| (t.handle, t.first, t.count, t.at.as_ns()))
            .collect()
    }

    #[test]
    fn a_segment_alone_waits_for_the_timer() {
        let mut stage = coalesce(50, 0);
        assert_eq!(run(&mut stage, &[train(1, 1, 100)]), [(1, 0, 1, 150)]);
        assert_eq!(run(&mut stage, &[train(2, 1, 400)]), [(2, 0, 1, 450)]);
    }

    #[test]
    fn what_comes_while_the_timer_runs_leaves_with_the_first() {
        let trains = [train(1, 2, 100), train(2, 1, 149), train(3, 1, 150)];
        let left = run(&mut coalesce(50, 0), &trains);
        assert_eq!(left, [(1, 0, 2, 150), (2, 0, 1, 150), (3, 0, 1, 200)]);
    }

    #[test]
    fn a_spaced_train_is_gathered_into_one_for_each_interrupt() {
        // Segments at 0, 10, …, 90; interrupts at 35 (four are there), 75 (those at 40 to 70), 115.
        let left = run(&mut coalesce(35, 0), &[spaced(1, 10, 0, 10)]);
        assert_eq!(left, [(1, 0, 4, 35), (1, 4, 4, 75), (1, 8, 2, 115)]);
    }

    #[test]
    fn enough_packets_leave_before_the_timer_ends() {
        let left = run(&mut coalesce(1_000, 3), &[spaced(1, 7, 0, 10)]);
        assert_eq!(left, [(1, 0, 3, 20), (1, 3, 3, 50), (1, 6, 1, 1_060)]);
        let left = run(&mut coalesce(1_000, 3), &[train(1, 8, 5)]);
        assert_eq!(left, [(1, 0, 3, 5), (1, 3, 3, 5), (1, 6, 2, 1_005)]);
    }

    #[test]
    fn one_packet_or_no_time_holds_nothing() {
        assert_eq!(run(&mut coalesce(0, 0), &[train(1, 3, 7)]), [(1, 0, 3, 7)]);
        let left = run(&mut coalesce(50, 1), &[spaced(1, 2, 0, 10)]);
        assert_eq!(left, [(1, 0, 1, 0), (1, 1, 1, 10)]);
    }

    #[test]
    fn frames_and_copies_are_not_mixed_when_neighbours_are_merged() {
        let copy = Train {
            marks: crate::train::Marks::COPY,
            ..train(1, 2, 0).part(1, 1)
        };
        let trains = [
            train(1, 2, 0),
            copy,
            train(1, 4, 0).part(2, 2),
            train(2, 1, 0),
        ];
        let left = run(&mut coalesce(10, 0), &trains);
        assert_eq!(
            left,
            [(1, 0, 2, 10), (1, 1, 1, 10), (1, 2, 2, 10), (2, 0, 1, 10)]
        );
    }
}
