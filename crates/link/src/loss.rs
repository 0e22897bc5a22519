//! Random loss: each segment is lost with the same probability, independent of the others.
//!
//! The draw is made for each segment, never for a whole train: a lost super-packet would be a burst
//! loss of 44 that no wire makes.

use units::Rng;

use crate::event::{Decision, Event, Log};
use crate::pipeline::{Stage, Trains};
use crate::train::Train;

/// Bernoulli loss with its own seed.
#[derive(Clone, Debug)]
pub struct RandomLoss {
    probability: f64,
    rng: Rng,
}

impl RandomLoss {
    /// Loses each segment with `probability`.
    ///
    /// # Panics
    /// When the probability is not within 0..=1.
    pub fn new(probability: f64, seed: u64) -> Self {
        assert!(
            (0.0..=1.0).contains(&probability),
            "a probability lies within 0..=1"
        );
        Self {
            probability,
            rng: Rng::new(seed),
        }
    }
}

impl Stage for RandomLoss {
    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        let mut from = 0;
        while from < train.count {
            let lost = self.rng.next_f64() < self.probability;
            let mut end = from + 1;
            // The draw that ends a run belongs to the next one: remember it by rewinding the
            // generator, which is four words.
            while end < train.count {
                let before = self.rng.clone();
                if (self.rng.next_f64() < self.probability) != lost {
                    self.rng = before;
                    break;
                }
                end += 1;
            }
            let run = train.part(from, end - from);
            if lost {
                log.on_event(&Event {
                    train: run,
                    decision: Decision::Lost,
                });
            } else {
                out.push(run);
            }
            from = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Spacing;
    use units::Instant;

    fn train(count: u16) -> Train {
        Train {
            handle: 7,
            first: 0,
            count,
            wire_bytes: 1538,
            flow: 0,
            at: Instant::ZERO,
            spacing: Spacing::TOGETHER,
        }
    }

    fn run(stage: &mut RandomLoss, trains: &[u16]) -> (Vec<(u64, u16, u16)>, Vec<Event>) {
        let (mut kept, mut log) = (Vec::new(), Vec::new());
        for &count in trains {
            let mut out = Trains::default();
            stage.handle(train(count), &mut out, &mut log);
            kept.extend(out.drain().map(|t| (t.handle, t.first, t.count)));
        }
        (kept, log)
    }

    #[test]
    fn the_same_segments_are_lost_however_they_are_grouped_into_trains() {
        let fates = |groups: &[u16]| {
            let mut fates = Vec::new();
            let mut stage = RandomLoss::new(0.3, 11);
            for &count in groups {
                let (kept, _) = run(&mut stage, &[count]);
                let mut fate = vec![false; usize::from(count)];
                for (_, first, n) in kept {
                    fate[usize::from(first)..usize::from(first + n)].fill(true);
                }
                fates.extend(fate);
            }
            fates
        };
        assert_eq!(fates(&[44, 44, 1, 11]), fates(&[1; 100]));
    }

    #[test]
    fn the_share_of_lost_segments_is_the_probability_on_long_trains() {
        let mut stage = RandomLoss::new(0.01, 5);
        let (kept, log) = run(&mut stage, &vec![50; 20_000]);
        let kept: u64 = kept.iter().map(|&(_, _, n)| u64::from(n)).sum();
        let lost: u64 = log.iter().map(|e| u64::from(e.train.count)).sum();
        assert_eq!(kept + lost, 1_000_000);
        // 1 % of a million is 10,000 with a standard deviation of 99.5; the seed is fixed.
        assert!((9_700..=10_300).contains(&lost), "{lost}");
    }

    #[test]
    fn probability_zero_loses_nothing_and_one_loses_everything() {
        let (kept, log) = run(&mut RandomLoss::new(0.0, 1), &[44; 10]);
        assert!(log.is_empty() && kept.len() == 10);
        let (kept, log) = run(&mut RandomLoss::new(1.0, 1), &[44; 10]);
        assert!(kept.is_empty() && log.len() == 10);
    }
}
