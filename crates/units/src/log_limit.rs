//! How many lines a log gets of what strangers can cause as often as they like.
//!
//! A few lines of each second are written; the others are counted, and the next line says how many there were.

use crate::{Duration, Instant};

/// Counts lines, second by second.
#[derive(Clone, Debug)]
pub struct LogLimit {
    lines_per_second: u32,
    since: Instant,
    lines: u32,
    omitted: u64,
}

impl LogLimit {
    /// At most so many lines in each second.
    pub const fn new(lines_per_second: u32) -> Self {
        Self {
            lines_per_second,
            since: Instant::ZERO,
            lines: 0,
            omitted: 0,
        }
    }

    /// Whether another line may be written; then with how many were omitted before it.
    pub fn another(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_since(self.since) >= SECOND {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines >= self.lines_per_second {
            self.omitted += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.omitted))
    }

    /// As [`another`](Self::another): what the line ends with, ` (90 more such lines before)` or nothing.
    pub fn ending(&mut self, now: Instant, lines: &str) -> Option<String> {
        Some(match self.another(now)? {
            0 => String::new(),
            n => format!(" ({n} more such {lines} before)"),
        })
    }
}

const SECOND: Duration = Duration::from_s(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_counted_and_not_logged_one_by_one() {
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        let mut limit = LogLimit::new(10);
        let written = (0..100).filter(|_| limit.another(at(1)).is_some()).count();
        assert_eq!(written, 10);
        assert_eq!(limit.another(at(999)), None);
        let ending = limit.ending(at(1_000), "lines");
        assert_eq!(ending.as_deref(), Some(" (91 more such lines before)"));
        assert_eq!(limit.ending(at(1_001), "lines").as_deref(), Some(""));
    }
}
