//! A link that is down at times: what reaches it then is lost.
//!
//! Each segment is judged by its own arrival. What the link had taken in before it went down still
//! leaves; a queue behind it drains. Left out: negotiation after the link comes back (add it to the
//! outage).

use units::{Duration, Instant};

use crate::event::{DropCause, Log};
use crate::loss::sift;
use crate::pipeline::{Change, Stage, Trains};
use crate::spec::Outages;
use crate::train::Train;

/// Loses what arrives while the link is down: by its plan, or since [`Change::Up`] said so.
#[derive(Clone, Debug)]
pub struct Outage {
    plan: Outages,
    start: Instant,
    is_up: bool,
}

impl Outage {
    /// Times of `plan` count from `start`. A span holds its first instant and not its last, as does
    /// the end of each period; a period of zero never comes.
    pub const fn new(plan: Outages, start: Instant) -> Self {
        Self {
            plan,
            start,
            is_up: true,
        }
    }

    fn is_down(&self, at: Instant) -> bool {
        if !self.is_up {
            return true;
        }
        if at < self.start {
            return false;
        }
        let since = at.saturating_since(self.start);
        self.in_span(since) || self.in_period(since)
    }

    fn in_span(&self, since: Duration) -> bool {
        let begun = self.plan.spans.partition_point(|&(from, _)| from <= since);
        let last = begun.checked_sub(1).map(|i| self.plan.spans[i]);
        last.is_some_and(|(_, until)| since < until)
    }

    fn in_period(&self, since: Duration) -> bool {
        let Some((period, down)) = self.plan.periodic else {
            return false;
        };
        let within = since.as_ns().checked_rem(period.as_ns());
        within.is_some_and(|within| within >= (period - down).as_ns())
    }
}

impl Stage for Outage {
    fn name(&self) -> &'static str {
        "outage"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        sift(train, DropCause::Outage, out, log, |k| {
            self.is_down(train.time_of(k))
        });
    }

    /// Up means as planned: a planned outage still comes.
    fn change(&mut self, change: &Change) {
        if let Change::Up(up) = *change {
            self.is_up = up;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Decision;
    use crate::loss::testing::{pass, spaced, train};

    const START: u64 = 1_000;

    fn ns(from: u64, until: u64) -> (Duration, Duration) {
        (Duration::from_ns(from), Duration::from_ns(until))
    }

    fn outage(spans: &[(u64, u64)], periodic: Option<(u64, u64)>) -> Outage {
        let plan = Outages {
            spans: spans.iter().map(|&(a, b)| ns(a, b)).collect(),
            periodic: periodic.map(|(a, b)| ns(a, b)),
        };
        Outage::new(plan, Instant::from_ns(START))
    }

    fn passes(stage: &mut Outage, since: u64) -> bool {
        let (out, log) = pass(stage, &[train(1, 1, START + since)]);
        assert_eq!(out.len() + log.len(), 1);
        assert!(
            log.iter()
                .all(|e| e.decision == Decision::lost(DropCause::Outage))
        );
        !out.is_empty()
    }

    #[test]
    fn a_span_holds_its_first_instant_and_not_its_last() {
        let mut stage = outage(&[(10, 20), (30, 31)], None);
        for (since, up) in [(0, true), (9, true), (10, false), (19, false), (20, true)] {
            assert_eq!(passes(&mut stage, since), up, "{since}");
        }
        for (since, up) in [(29, true), (30, false), (31, true), (1_000_000, true)] {
            assert_eq!(passes(&mut stage, since), up, "{since}");
        }
    }

    #[test]
    fn a_link_is_up_before_the_start() {
        let mut stage = outage(&[(0, 5)], Some((10, 10)));
        assert_eq!(pass(&mut stage, &[train(1, 1, START - 1)]).0.len(), 1);
        assert!(!passes(&mut stage, 0));
    }

    #[test]
    fn the_end_of_every_period_is_down() {
        let mut stage = outage(&[], Some((100, 10)));
        for round in [0, 1, 7, 1_000_000] {
            for (within, up) in [(0, true), (89, true), (90, false), (99, false)] {
                assert_eq!(
                    passes(&mut stage, round * 100 + within),
                    up,
                    "{round} {within}"
                );
            }
        }
        assert!(passes(&mut outage(&[], Some((0, 10))), 5));
        assert!(!passes(&mut outage(&[], Some((10, 11))), 0));
    }

    #[test]
    fn a_train_is_judged_segment_by_segment() {
        // Segments at 0, 5, 10, …, 45: those at 10 and 15 and at 30 are lost.
        let mut stage = outage(&[(10, 20), (30, 31)], None);
        let (out, log) = pass(&mut stage, &[spaced(1, 10, START, 5)]);
        let runs = |t: &Train| (t.first, t.count, t.at.as_ns() - START);
        let passed: Vec<_> = out.iter().map(runs).collect();
        assert_eq!(passed, [(0, 2, 0), (4, 2, 20), (7, 3, 35)]);
        let lost: Vec<_> = log.iter().map(|e| runs(&e.train)).collect();
        assert_eq!(lost, [(2, 2, 10), (6, 1, 30)]);
    }

    #[test]
    fn a_change_takes_the_link_down_and_back_to_its_plan() {
        let mut stage = outage(&[(10, 20)], None);
        stage.change(&Change::Up(false));
        assert!(!passes(&mut stage, 0));
        stage.change(&Change::Up(true));
        assert!(passes(&mut stage, 0));
        assert!(!passes(&mut stage, 10));
    }
}
