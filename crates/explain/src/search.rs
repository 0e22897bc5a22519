//! The highest rate at which datagrams come through: doubling until a rate fails, then bisecting
//! between the highest that passed and the lowest that failed.
//!
//! What counts as passing is the caller's; a rate counts as failed when it failed twice in a row, so
//! that one unlucky trial does not halve the answer. Simplification: passing is taken to be monotone
//! in the rate. On a path that loses at random at all rates the search goes down to its floor and
//! finds nothing.
//!
//! After RFC 2544, section 26.1 (throughput), with a loss limit in place of none.

use units::Rate;

/// A search under way.
#[derive(Clone, Debug)]
pub struct RateSearch {
    passed: Option<u64>,
    failed: Option<u64>,
    /// The rate to try next, and how often it failed.
    next: Option<(u64, u32)>,
    trials: u32,
}

impl Default for RateSearch {
    fn default() -> Self {
        Self::new()
    }
}

impl RateSearch {
    /// Begins at 1 Mb/s.
    pub const fn new() -> Self {
        Self {
            passed: None,
            failed: None,
            next: Some((START, 0)),
            trials: 0,
        }
    }

    /// The rate to try now; `None` when the search is over.
    pub fn next_rate(&self) -> Option<Rate> {
        self.next
            .filter(|_| self.trials < TRIALS_MAX)
            .map(|(rate, _)| Rate::from_bits_per_second(rate))
    }

    /// Takes in how the trial at [`Self::next_rate`] went.
    pub fn on_trial(&mut self, passed: bool) {
        let Some((rate, failures)) = self.next else {
            return;
        };
        self.trials += 1;
        if passed {
            self.passed = Some(rate);
        } else if failures == 0 {
            self.next = Some((rate, 1));
            return;
        } else {
            self.failed = Some(rate);
        }
        self.next = self.following().map(|rate| (rate, 0));
    }

    /// The highest rate that passed.
    pub fn found(&self) -> Option<Rate> {
        self.passed.map(Rate::from_bits_per_second)
    }

    fn following(&self) -> Option<u64> {
        match (self.passed, self.failed) {
            (None, None) => Some(START),
            (Some(low), None) => Some(low.saturating_mul(2)).filter(|&r| r <= RATE_MAX),
            (None, Some(high)) => (high > RATE_MIN).then(|| (high / 2).max(RATE_MIN)),
            (Some(low), Some(high)) => {
                let close = high.saturating_sub(low) <= low / STEPS;
                (!close).then(|| low + (high - low) / 2)
            }
        }
    }
}

/// Some 85 datagrams of 1,500 B a second: fewer tell nothing of a loss of a per cent.
const START: u64 = 1_000_000;
const RATE_MIN: u64 = 8_000;
/// Above what one socket of any host sends.
const RATE_MAX: u64 = 1_000_000_000_000;
/// It ends where passed and failed are within 1/50 of each other.
const STEPS: u64 = 50;
/// Some 20 doublings, 6 bisections, each failure twice.
const TRIALS_MAX: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a path that carries up to `capacity`; the answer and the rates tried.
    fn search(capacity: u64) -> (Option<u64>, Vec<u64>) {
        let mut search = RateSearch::new();
        let mut tried = Vec::new();
        while let Some(rate) = search.next_rate() {
            tried.push(rate.as_bits_per_second());
            assert!(tried.len() < 100);
            search.on_trial(rate.as_bits_per_second() <= capacity);
        }
        (search.found().map(Rate::as_bits_per_second), tried)
    }

    #[test]
    fn the_answer_is_within_a_fiftieth_below_what_the_path_carries() {
        for capacity in [
            8_000,
            9_500,
            999_999,
            1_000_000,
            1_000_001,
            97_531_000,
            10_000_000_000,
        ] {
            let (found, tried) = search(capacity);
            let found = found.unwrap();
            assert!(found <= capacity, "{capacity}: {found}");
            assert!(found + found / 50 >= capacity, "{capacity}: {found}");
            assert!(tried.len() <= 40, "{capacity}: {}", tried.len());
        }
    }

    #[test]
    fn nothing_is_found_where_nothing_passes_and_the_top_where_all_does() {
        let (found, tried) = search(0);
        assert_eq!(found, None);
        assert!(tried.iter().all(|&rate| rate >= RATE_MIN));
        let (found, tried) = search(u64::MAX);
        assert!(found.unwrap() > RATE_MAX / 2);
        assert!(tried.iter().all(|&rate| rate <= RATE_MAX));
    }

    #[test]
    fn one_failure_is_tried_again_and_two_count() {
        let mut search = RateSearch::new();
        search.on_trial(false);
        assert_eq!(search.next_rate(), Some(Rate::from_bits_per_second(START)));
        search.on_trial(true);
        assert_eq!(search.found(), Some(Rate::from_bits_per_second(START)));
        assert_eq!(
            search.next_rate(),
            Some(Rate::from_bits_per_second(2 * START))
        );
        search.on_trial(false);
        search.on_trial(false);
        assert_eq!(
            search.next_rate(),
            Some(Rate::from_bits_per_second(START * 3 / 2))
        );
    }
}
