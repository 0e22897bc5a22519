//! Loss on the wire: at random, in bursts, every n-th, or by a list.
//!
//! Fates are drawn for each segment in order, never for a whole train: a lost super-packet would be
//! a burst loss of 44 that no wire makes. So the same segments are lost however they are grouped
//! into trains; a train is cut where fates change.
//!
//! Reading: E. N. Gilbert, "Capacity of a burst-noise channel", BSTJ 39(5), 1960; E. O. Elliott,
//! "Estimates of error rates for codes on burst-noise channels", BSTJ 42(5), 1963.

use units::Rng;

use crate::event::{Decision, DropCause, Event, Log};
use crate::pipeline::{Change, Stage, Trains};
use crate::train::Train;

/// Bernoulli loss with its own seed.
#[derive(Clone, Debug)]
pub struct RandomLoss {
    probability: f64,
    rng: Rng,
}

/// Gilbert-Elliott loss: two states, each with its own share of losses. Starts in the good one.
#[derive(Clone, Debug)]
pub struct BurstLoss {
    model: BurstModel,
    is_bad: bool,
    rng: Rng,
}

/// The four probabilities of a Gilbert-Elliott channel, each within 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstModel {
    /// From good to bad, before each segment.
    pub enter: f64,
    /// From bad to good, before each segment: a stay lasts 1 / `leave` segments in the mean.
    pub leave: f64,
    /// Loss in the good state.
    pub good: f64,
    /// Loss in the bad state.
    pub bad: f64,
}

/// Every n-th segment is lost.
#[derive(Clone, Debug)]
pub struct PeriodicLoss {
    every: u64,
    until_next: u64,
}

/// The segments of a list are lost, counted from 1 as they reach the stage.
#[derive(Clone, Debug)]
pub struct ListedLoss {
    /// Ascending.
    numbers: Box<[u64]>,
    next: usize,
    seen: u64,
}

impl RandomLoss {
    /// Loses each segment with `probability`.
    ///
    /// # Panics
    /// When the probability is not within 0..=1.
    pub fn new(probability: f64, seed: u64) -> Self {
        assert_probability(probability);
        Self {
            probability,
            rng: Rng::new(seed),
        }
    }
}

impl BurstLoss {
    /// Loses segments as `model` says.
    ///
    /// # Panics
    /// When a probability is not within 0..=1.
    pub fn new(model: BurstModel, seed: u64) -> Self {
        for probability in [model.enter, model.leave, model.good, model.bad] {
            assert_probability(probability);
        }
        Self {
            model,
            is_bad: false,
            rng: Rng::new(seed),
        }
    }

    /// Fate of the next segment: first the state may change, then the loss is drawn. Always two
    /// draws, so that a seed means the same channel whatever the probabilities.
    fn is_lost(&mut self) -> bool {
        let turn = if self.is_bad {
            self.model.leave
        } else {
            self.model.enter
        };
        self.is_bad ^= self.rng.next_f64() < turn;
        let loss = if self.is_bad {
            self.model.bad
        } else {
            self.model.good
        };
        self.rng.next_f64() < loss
    }
}

impl PeriodicLoss {
    /// Loses segments `offset`, `offset + every`, … counted from 1.
    ///
    /// # Panics
    /// When either is zero.
    pub fn new(every: u64, offset: u64) -> Self {
        assert!(every > 0, "a period is at least one segment");
        assert!(offset > 0, "segments are counted from 1");
        Self {
            every,
            until_next: offset,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.until_next -= 1;
        let lost = self.until_next == 0;
        if lost {
            self.until_next = self.every;
        }
        lost
    }
}

impl ListedLoss {
    /// Loses the segments with these numbers, in whatever order they are given.
    pub fn new(mut numbers: Vec<u64>) -> Self {
        numbers.sort_unstable();
        Self {
            numbers: numbers.into(),
            next: 0,
            seen: 0,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.seen += 1;
        let before = self.next;
        while self.numbers.get(self.next).is_some_and(|&n| n <= self.seen) {
            self.next += 1;
        }
        // What was passed over is this number, once or more often, or zeros that count nothing.
        self.next > before && self.numbers[self.next - 1] == self.seen
    }
}

impl Stage for RandomLoss {
    fn name(&self) -> &'static str {
        "loss"
    }

    fn change(&mut self, change: &Change) {
        if let Change::Loss(probability) = *change {
            self.probability = probability.clamp(0.0, 1.0);
        }
    }

    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        if self.probability <= 0.0 {
            // Nothing is drawn for what cannot happen: a line of which no loss was asked costs nothing.
            out.push(train);
            return;
        }
        sift(train, DropCause::Random, out, log, |_| {
            self.rng.next_f64() < self.probability
        });
    }
}

impl Stage for BurstLoss {
    fn name(&self) -> &'static str {
        "burst-loss"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        sift(train, DropCause::Burst, out, log, |_| self.is_lost());
    }
}

impl Stage for PeriodicLoss {
    fn name(&self) -> &'static str {
        "periodic-loss"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        sift(train, DropCause::Periodic, out, log, |_| self.is_lost());
    }
}

impl Stage for ListedLoss {
    fn name(&self) -> &'static str {
        "listed-loss"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        sift(train, DropCause::Listed, out, log, |_| self.is_lost());
    }
}

/// Asks once for each segment, in order, whether it is lost; passes on or drops the runs of those
/// that share their fate.
pub(crate) fn sift(
    train: Train,
    cause: DropCause,
    out: &mut Trains,
    log: &mut dyn Log,
    mut is_lost: impl FnMut(u16) -> bool,
) {
    let mut settle = |from: u16, end: u16, lost: bool| {
        let run = train.part(from, end - from);
        if !lost {
            return out.push(run);
        }
        log.on_event(&Event {
            stage: 0,
            train: run,
            decision: Decision::lost(cause),
        });
    };
    let mut from = 0;
    let mut lost = is_lost(0);
    for k in 1..train.count {
        let next = is_lost(k);
        if next != lost {
            settle(from, k, lost);
            (from, lost) = (k, next);
        }
    }
    settle(from, train.count, lost);
}

pub(crate) fn assert_probability(p: f64) {
    assert!((0.0..=1.0).contains(&p), "a probability lies within 0..=1");
}

/// What the tests of stages share.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::train::Spacing;
    pub(crate) use crate::train::testing::train;

    /// The same, one every `every_ns`.
    pub(crate) fn spaced(handle: u64, count: u16, at_ns: u64, every_ns: u64) -> Train {
        Train {
            spacing: Spacing::every(every_ns, 1, 0),
            ..train(handle, count, at_ns)
        }
    }

    /// What a stage makes of the trains by itself.
    pub(crate) fn pass(stage: &mut dyn Stage, trains: &[Train]) -> (Vec<Train>, Vec<Event>) {
        let (mut out, mut log) = (Trains::default(), Vec::new());
        for &train in trains {
            stage.handle(train, &mut out, &mut log);
        }
        (out.drain().collect(), log)
    }

    /// Numbers of the segments that pass, counted from 1 over `trains` of so many segments.
    pub(crate) fn survivors(stage: &mut dyn Stage, trains: &[u16]) -> Vec<u64> {
        let (mut passed, mut seen) = (Vec::new(), 1);
        for &count in trains {
            let (out, _) = pass(stage, &[train(0, count, 0)]);
            for t in out {
                passed.extend((t.first..t.first + t.count).map(|k| seen + u64::from(k)));
            }
            seen += u64::from(count);
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{pass, survivors, train};
    use super::*;

    const GILBERT: BurstModel = BurstModel {
        enter: 0.01,
        leave: 0.25,
        good: 0.0,
        bad: 1.0,
    };

    fn all() -> Vec<Box<dyn Stage>> {
        let mixed = BurstModel {
            good: 0.05,
            bad: 0.6,
            ..GILBERT
        };
        vec![
            Box::new(RandomLoss::new(0.3, 11)),
            Box::new(BurstLoss::new(mixed, 11)),
            Box::new(PeriodicLoss::new(7, 3)),
            Box::new(ListedLoss::new(vec![1, 2, 44, 45, 100])),
        ]
    }

    #[test]
    fn the_same_segments_are_lost_however_they_are_grouped_into_trains() {
        for (mut grouped, mut single) in all().into_iter().zip(all()) {
            let passed = survivors(&mut *grouped, &[44, 44, 1, 11]);
            assert!(passed.len() < 100, "{}", grouped.name());
            assert_eq!(passed, survivors(&mut *single, &[1; 100]));
        }
    }

    #[test]
    fn a_train_is_cut_where_fates_change_and_each_drop_has_its_cause() {
        let causes = [
            DropCause::Random,
            DropCause::Burst,
            DropCause::Periodic,
            DropCause::Listed,
        ];
        for (mut stage, cause) in all().into_iter().zip(causes) {
            let (out, log) = pass(&mut *stage, &[train(0, 1000, 0)]);
            assert!(log.iter().all(|e| e.decision == Decision::lost(cause)));
            let mut runs: Vec<(u16, u16, bool)> =
                out.iter().map(|t| (t.first, t.count, false)).collect();
            runs.extend(log.iter().map(|e| (e.train.first, e.train.count, true)));
            runs.sort_unstable();
            for pair in runs.windows(2) {
                assert_eq!(pair[0].0 + pair[0].1, pair[1].0, "without gap or overlap");
                assert_ne!(pair[0].2, pair[1].2, "cut only where fates change");
            }
            assert_eq!(runs.iter().map(|r| r.1).sum::<u16>(), 1000);
        }
    }

    #[test]
    fn the_share_of_lost_segments_is_the_probability_on_long_trains() {
        let passed = survivors(&mut RandomLoss::new(0.01, 5), &vec![50; 20_000]);
        let lost = 1_000_000 - passed.len();
        // 1 % of a million is 10,000 with a standard deviation of 99.5; the seed is fixed.
        assert!((9_700..=10_300).contains(&lost), "{lost}");
    }

    #[test]
    fn probability_zero_loses_nothing_and_one_loses_everything() {
        assert_eq!(
            survivors(&mut RandomLoss::new(0.0, 1), &[44; 10]).len(),
            440
        );
        assert_eq!(survivors(&mut RandomLoss::new(1.0, 1), &[44; 10]).len(), 0);
    }

    #[test]
    fn random_loss_changes_and_the_others_do_not_heed_it() {
        for mut stage in all() {
            stage.change(&Change::Loss(1.0));
            let passed = survivors(&mut *stage, &[100]).len();
            assert_eq!(passed == 0, stage.name() == "loss", "{}", stage.name());
        }
    }

    #[test]
    fn bursts_have_their_share_and_their_mean_length() {
        let passed = survivors(&mut BurstLoss::new(GILBERT, 3), &vec![50; 20_000]);
        // Runs of losses are the gaps between neighbours that passed.
        let gaps: Vec<u64> = passed.windows(2).map(|p| p[1] - p[0] - 1).collect();
        let lost: u64 = gaps.iter().sum();
        let bursts = gaps.iter().filter(|&&g| g > 0).count() as u64;
        // Stationary share 0.01 / 0.26 = 3.846 %; its deviation with bursts of 4 is about 0.05 %.
        assert!((36_900..=40_000).contains(&lost), "{lost}");
        // Mean 4 segments, 9,615 bursts: standard error 0.035.
        assert!(
            (390..=410).contains(&(lost * 100 / bursts)),
            "{lost} in {bursts}"
        );
    }

    #[test]
    fn each_state_loses_its_own_share() {
        for (good, bad, enter, expected) in [(0.2, 1.0, 0.0, 20_000), (0.0, 0.4, 1.0, 40_000)] {
            let model = BurstModel {
                enter,
                leave: 0.0,
                good,
                bad,
            };
            let passed = survivors(&mut BurstLoss::new(model, 8), &[1000; 100]);
            let lost = 100_000 - passed.len();
            // The deviations are 126 and 155.
            assert!(lost.abs_diff(expected) < 600, "{lost} of {expected}");
        }
    }

    #[test]
    fn every_third_from_the_second_on_is_lost() {
        let passed = survivors(&mut PeriodicLoss::new(3, 2), &[5, 5]);
        assert_eq!(passed, [1, 3, 4, 6, 7, 9, 10]);
        assert_eq!(
            survivors(&mut PeriodicLoss::new(2, 5), &[8]),
            [1, 2, 3, 4, 6, 8]
        );
        assert_eq!(survivors(&mut PeriodicLoss::new(1, 3), &[5]), [1, 2]);
    }

    #[test]
    fn listed_segments_are_lost_once_and_a_careless_list_does_no_harm() {
        let careless = vec![4, 0, 9, 2, 2, 0];
        let passed = survivors(&mut ListedLoss::new(careless), &[3, 7]);
        assert_eq!(passed, [1, 3, 5, 6, 7, 8, 10]);
        assert_eq!(survivors(&mut ListedLoss::new(vec![]), &[3]), [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "within 0..=1")]
    fn a_share_above_one_is_refused() {
        let model = BurstModel {
            bad: 1.01,
            ..GILBERT
        };
        let _ = BurstLoss::new(model, 1);
    }
}
