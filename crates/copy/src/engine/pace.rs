//! When bytes arrived: marks from which the rate in the middle of a transfer is told, without its beginning and its end.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Marks of one transfer.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Marks>);

#[derive(Debug, Default)]
struct Marks {
    all: Vec<(Instant, u64)>,
    /// Marks are at least so far apart.
    every: Duration,
}

/// Marks that are kept; a long transfer's are further apart.
const MARKS_MOST: usize = 4_096;
/// How far apart they are at first: as often as a destination tells.
const EVERY: Duration = Duration::from_millis(40);
/// What is shorter says nothing.
const SPAN_LEAST: Duration = Duration::from_millis(500);

impl Pace {
    /// So many bytes arrived until `now`, all together.
    pub(super) fn mark(&self, now: Instant, bytes: u64) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let every = marks.every.max(EVERY);
        if let Some((last, _)) = marks.all.last()
            && now.saturating_duration_since(*last) < every
        {
            return;
        }
        if marks.all.len() >= MARKS_MOST {
            let mut is_kept = false;
            marks.all.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            marks.every = every * 2;
        }
        marks.all.push((now, bytes));
    }

    /// Bits a second between the first fifth of the bytes and the last; `None` where that took less than 0.5 s.
    pub(super) fn steady(&self) -> Option<u64> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = marks.all.last()?.1;
        let from = marks.all.iter().find(|(_, bytes)| *bytes >= total / 5)?;
        let mut back = marks.all.iter().rev();
        let to = back.find(|(_, bytes)| *bytes <= total - total / 5)?;
        let took = to.0.checked_duration_since(from.0)?;
        let bits = to.1.checked_sub(from.1)? as f64 * 8.0;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate, which is neither below zero nor beyond 2^64"
        )]
        let rate = (bits / took.as_secs_f64().max(1e-9)) as u64;
        (took >= SPAN_LEAST).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_slow_beginning_nor_a_slow_end_counts() {
        let pace = Pace::default();
        let begun = Instant::now();
        let mut bytes = 0;
        // 2 s of nothing, 200 s of 1 MB/s, 5 s of nothing, a last byte: more marks than are kept.
        for step in 0..20_700_u64 {
            let now = begun + Duration::from_millis(step * 10);
            if (200..20_200).contains(&step) {
                bytes += 10_000;
            }
            pace.mark(now, bytes);
        }
        pace.mark(begun + Duration::from_secs(300), bytes + 1);
        let steady = pace.steady().unwrap() as f64;
        assert!((steady / 8e6 - 1.0).abs() < 1e-3, "{steady}");
        assert!(pace.0.lock().unwrap().all.len() <= MARKS_MOST);
    }

    #[test]
    fn little_says_nothing() {
        let pace = Pace::default();
        assert_eq!(pace.steady(), None);
        let begun = Instant::now();
        for step in 0..10 {
            pace.mark(begun + Duration::from_millis(step * 50), step * 1_000);
        }
        assert_eq!(pace.steady(), None);
    }
}
