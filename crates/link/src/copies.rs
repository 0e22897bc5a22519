//! Second copies and flipped bits, drawn for each segment in order.
//!
//! A copy leaves right behind its original, with the same time. Damage is a number that the driver
//! makes a bit position of; a flipped bit is seen by a check sequence or a checksum, or by nobody.

use units::Rng;

use crate::event::{Decision, Event, Log};
use crate::loss::assert_probability;
use crate::pipeline::{Stage, Trains};
use crate::train::{Marks, Train};

/// Sends a second copy of some segments.
#[derive(Clone, Debug)]
pub struct Duplicate {
    probability: f64,
    rng: Rng,
}

/// Flips a bit of some segments.
#[derive(Clone, Debug)]
pub struct Corrupt {
    probability: f64,
    rng: Rng,
}

impl Duplicate {
    /// Copies each segment with `probability`.
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

impl Stage for Duplicate {
    fn name(&self) -> &'static str {
        "duplicate"
    }

    /// The event names the copy. A train is cut behind each original, so that times stay in order.
    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        let mut from = 0;
        for k in 0..train.count {
            if self.rng.next_f64() >= self.probability {
                continue;
            }
            let original = train.part(k, 1);
            let copy = Train {
                marks: original.marks.with(Marks::COPY),
                ..original
            };
            log.on_event(&Event {
                stage: 0,
                train: copy,
                decision: Decision::Duplicated,
            });
            out.push(train.part(from, k + 1 - from));
            out.push(copy);
            from = k + 1;
        }
        if from < train.count {
            out.push(train.part(from, train.count - from));
        }
    }
}

impl Corrupt {
    /// Damages each segment with `probability`.
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

impl Stage for Corrupt {
    fn name(&self) -> &'static str {
        "corrupt"
    }

    /// A damaged segment is a train of its own.
    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        let mut from = 0;
        for k in 0..train.count {
            if self.rng.next_f64() >= self.probability {
                continue;
            }
            let damaged = Train {
                damage: draw_damage(&mut self.rng),
                ..train.part(k, 1)
            };
            log.on_event(&Event {
                stage: 0,
                train: damaged,
                decision: Decision::Corrupted,
            });
            if from < k {
                out.push(train.part(from, k - from));
            }
            out.push(damaged);
            from = k + 1;
        }
        if from < train.count {
            out.push(train.part(from, train.count - from));
        }
    }
}

/// Uniform over all u32 but zero, which means no damage (to one in four billion: zero becomes one).
fn draw_damage(rng: &mut Rng) -> u32 {
    let upper = rng.next_u64() >> 32;
    u32::try_from(upper).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::{pass, spaced, train};
    use units::Instant;

    /// Each segment with its time, whether it is a copy, and its damage.
    fn segments(trains: &[Train]) -> Vec<(u16, Instant, bool, u32)> {
        let each = |t: &Train| {
            let t = *t;
            let copy = t.marks.has(Marks::COPY);
            (0..t.count).map(move |k| (t.first + k, t.time_of(k), copy, t.damage))
        };
        trains.iter().flat_map(each).collect()
    }

    #[test]
    fn a_copy_is_right_behind_its_original_at_the_same_time() {
        let original = Train {
            marks: Marks::ECT,
            ..spaced(1, 200, 1_000, 7)
        };
        let (out, log) = pass(&mut Duplicate::new(0.3, 4), &[original]);
        let all = segments(&out);
        assert!(
            all.windows(2).all(|p| p[0].1 <= p[1].1),
            "times stay in order"
        );
        let originals: Vec<u16> = all.iter().filter(|s| !s.2).map(|s| s.0).collect();
        assert_eq!(originals, (0..200).collect::<Vec<_>>());
        for pair in all.windows(2).filter(|p| p[1].2) {
            assert_eq!(
                (pair[0].0, pair[0].1, pair[0].2),
                (pair[1].0, pair[1].1, false)
            );
        }
        let copies: Vec<Train> = out
            .iter()
            .copied()
            .filter(|t| t.marks.has(Marks::COPY))
            .collect();
        assert!(
            copies
                .iter()
                .all(|c| c.marks.has(Marks::ECT) && c.count == 1)
        );
        let told: Vec<Train> = log.iter().map(|e| e.train).collect();
        assert_eq!(told, copies);
        assert!(log.iter().all(|e| e.decision == Decision::Duplicated));
        assert!((30..90).contains(&copies.len()), "{}", copies.len());
    }

    #[test]
    fn a_damaged_segment_stands_alone_and_the_others_are_whole() {
        let (out, log) = pass(&mut Corrupt::new(0.3, 4), &[spaced(1, 200, 1_000, 7)]);
        let all = segments(&out);
        let order: Vec<u16> = all.iter().map(|s| s.0).collect();
        assert_eq!(order, (0..200).collect::<Vec<_>>());
        assert!(
            all.iter()
                .all(|s| s.1.as_ns() == 1_000 + 7 * u64::from(s.0))
        );
        let damaged: Vec<Train> = out.iter().copied().filter(|t| t.damage != 0).collect();
        assert!(damaged.iter().all(|t| t.count == 1));
        assert_eq!(damaged, log.iter().map(|e| e.train).collect::<Vec<_>>());
        assert!(log.iter().all(|e| e.decision == Decision::Corrupted));
        assert!((30..90).contains(&damaged.len()), "{}", damaged.len());
        let mut values: Vec<u32> = damaged.iter().map(|t| t.damage).collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), damaged.len(), "each has a draw of its own");
    }

    #[test]
    fn fates_do_not_hang_on_the_grouping() {
        let stages: [fn() -> Box<dyn Stage>; 2] = [
            || Box::new(Duplicate::new(0.3, 6)),
            || Box::new(Corrupt::new(0.3, 6)),
        ];
        let whole = train(1, 300, 0);
        let singles: Vec<Train> = (0..300).map(|k| whole.part(k, 1)).collect();
        for stage in stages {
            let (one, _) = pass(&mut *stage(), &[whole]);
            let (many, _) = pass(&mut *stage(), &singles);
            assert_eq!(segments(&one), segments(&many));
        }
    }

    #[test]
    fn probability_zero_leaves_a_train_whole_and_one_takes_every_segment() {
        let whole = train(1, 44, 0);
        for stage in [
            &mut Duplicate::new(0.0, 1) as &mut dyn Stage,
            &mut Corrupt::new(0.0, 1),
        ] {
            assert_eq!(pass(stage, &[whole]), (vec![whole], vec![]));
        }
        assert_eq!(
            segments(&pass(&mut Duplicate::new(1.0, 1), &[whole]).0).len(),
            88
        );
        let (out, _) = pass(&mut Corrupt::new(1.0, 1), &[whole]);
        assert!(out.len() == 44 && out.iter().all(|t| t.damage != 0));
    }

    #[test]
    fn the_shares_are_the_probabilities() {
        for (stage, name) in [
            (&mut Duplicate::new(0.02, 9) as &mut dyn Stage, "duplicate"),
            (&mut Corrupt::new(0.02, 9), "corrupt"),
        ] {
            let (_, log) = pass(stage, &[train(1, 10_000, 0); 20]);
            // 2 % of 200,000 is 4,000 with a deviation of 62.6.
            assert!((3_800..=4_200).contains(&log.len()), "{name} {}", log.len());
        }
    }
}
