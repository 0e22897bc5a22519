//! A rate that follows a trace: opportunities to send, each for so many bytes, again and again.
//!
//! The format is mahimahi's (mm-link(1)): a line for each opportunity with its time in milliseconds
//! from the start, in order; the last one is the period after which the trace begins again. Each is
//! for 1504 bytes; what one packet leaves of it the next may use if it is there by then, and a
//! packet that needs more takes from as many as it needs and leaves with the last. An opportunity
//! that nobody uses is gone.

use std::fmt;
use std::sync::Arc;

use units::{Duration, Instant};

/// A trace and how much of it was used.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Nanoseconds from the start of a round, ascending; the last is the round's length.
    opportunities: Arc<[u64]>,
    start: Option<Instant>,
    next: Opportunity,
    /// Bytes that are left of the opportunity at `left_at`.
    left: u32,
    left_at: Instant,
}

/// An opportunity's place: how often the trace has begun again, and which one of it.
#[derive(Clone, Copy, Debug, Default)]
struct Opportunity {
    round: u64,
    index: usize,
}

/// Why a trace is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: &'static str,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace, line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for TraceError {}

impl Trace {
    /// Reads mahimahi's text form. Blank lines and blanks around a number are let pass.
    ///
    /// # Errors
    /// The first line that is not a time in order, or a trace without time in it.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut opportunities: Vec<u64> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let fail = |problem| TraceError {
                line: number + 1,
                problem,
            };
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            // The parser of numbers would take a plus sign.
            let ms: u64 = Some(line)
                .filter(|l| l.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|l| l.parse().ok())
                .ok_or_else(|| fail("expected a time in milliseconds, a plain number"))?;
            if ms > MS_MAX {
                return Err(fail("expected at most a day"));
            }
            let ns = ms * 1_000_000;
            if opportunities.last().is_some_and(|&last| last > ns) {
                return Err(fail("a time before the one above it"));
            }
            if opportunities.len() == OPPORTUNITIES_MAX {
                return Err(fail("more than 16 million opportunities"));
            }
            opportunities.push(ns);
        }
        if opportunities.last().is_none_or(|&period_ns| period_ns == 0) {
            return Err(TraceError {
                line: 1,
                problem: "expected at least one opportunity after 0 ms",
            });
        }
        Ok(Self {
            opportunities: opportunities.into(),
            start: None,
            next: Opportunity::default(),
            left: 0,
            left_at: Instant::ZERO,
        })
    }

    /// The trace with its first round at `start`; without, it begins with the first packet.
    #[must_use]
    pub const fn starting_at(mut self, start: Instant) -> Self {
        self.start = Some(start);
        self
    }

    /// The mean rate in bits a second, if every opportunity is used.
    pub fn mean_bits_per_second(&self) -> u64 {
        let bits = self.opportunities.len() as u128 * u128::from(BYTES_EACH) * 8;
        u64::try_from(bits * 1_000_000_000 / u128::from(self.period_ns())).unwrap_or(u64::MAX)
    }

    /// When the last of `wire_bytes` leaves that are ready at `ready`, no earlier than any before.
    pub fn serve(&mut self, ready: Instant, wire_bytes: u32) -> Instant {
        let start = *self.start.get_or_insert(ready);
        if self.left_at < ready {
            // An opportunity passes with its moment.
            self.left = 0;
        }
        self.skip_to(ready.saturating_since(start).as_ns());
        // What has no bytes waits for its turn all the same.
        let mut needed = wire_bytes.max(1);
        while needed > self.left {
            needed -= self.left;
            self.left = BYTES_EACH;
            self.left_at = start + Duration::from_ns(self.next_since_start());
            self.step();
        }
        self.left -= needed;
        self.left_at
    }

    /// Moves on to the first opportunity at or after `since` the start.
    fn skip_to(&mut self, since: u64) {
        // Counted up to the nanosecond before: the last opportunity of a round may come at the very
        // instant at which the next round begins.
        let Some(before) = since.checked_sub(1) else {
            return;
        };
        if self.next_since_start() > before {
            return;
        }
        let within = before % self.period_ns();
        self.next = Opportunity {
            round: before / self.period_ns(),
            // Never past the end: the last opportunity comes a whole period after the begin.
            index: self.opportunities.partition_point(|&t| t <= within),
        };
    }

    fn step(&mut self) {
        self.next.index += 1;
        if self.next.index == self.opportunities.len() {
            self.next.index = 0;
            self.next.round = self.next.round.saturating_add(1);
        }
    }

    fn next_since_start(&self) -> u64 {
        let Opportunity { round, index } = self.next;
        let begins = round.saturating_mul(self.period_ns());
        begins.saturating_add(self.opportunities[index])
    }

    fn period_ns(&self) -> u64 {
        self.opportunities[self.opportunities.len() - 1]
    }
}

/// mahimahi's packet: an Ethernet MTU and the four bytes of its tunnel's header.
const BYTES_EACH: u32 = 1504;
const MS_MAX: u64 = 86_400_000;
const OPPORTUNITIES_MAX: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u32 = 1504;

    fn trace(text: &str) -> Trace {
        Trace::parse(text).unwrap().starting_at(Instant::ZERO)
    }

    /// Departure in ms of each (ready in ms, bytes).
    fn served(trace: &mut Trace, packets: &[(u64, u32)]) -> Vec<u64> {
        let one = |&(ms, bytes): &(u64, u32)| {
            let ns = trace.serve(Instant::from_ns(ms * 1_000_000), bytes).as_ns();
            assert!(ns.is_multiple_of(1_000_000));
            ns / 1_000_000
        };
        packets.iter().map(one).collect()
    }

    #[test]
    fn the_mean_rate_counts_each_opportunity_of_a_period() {
        assert_eq!(trace("1\n").mean_bits_per_second(), 12_032_000);
        assert_eq!(trace("0\n3\n3\n10\n").mean_bits_per_second(), 4_812_800);
        let fastest = trace(&"1\n".repeat(1_000));
        assert_eq!(fastest.mean_bits_per_second(), 12_032_000_000);
    }

    #[test]
    fn a_backlog_leaves_at_the_mean_rate() {
        let mut t = trace("2\n3\n3\n7\n");
        let all = served(&mut t, &[(0, WHOLE); 4_000]);
        assert_eq!(all[..6], [2, 3, 3, 7, 9, 10]);
        assert_eq!(all.last(), Some(&7_000));
    }

    #[test]
    fn small_packets_share_an_opportunity_and_a_large_one_takes_several() {
        let mut t = trace("5\n6\n20\n");
        let small = [(0, 752), (0, 752), (0, 752), (0, 753), (0, 751)];
        assert_eq!(served(&mut t, &small), [5, 5, 6, 20, 20]);
        assert_eq!(served(&mut trace("5\n6\n20\n"), &[(0, WHOLE + 1)]), [6]);
        let large = [(0, 3 * WHOLE), (0, 3 * WHOLE + 1)];
        assert_eq!(served(&mut trace("5\n6\n20\n"), &large), [20, 45]);
    }

    #[test]
    fn the_rest_of_an_opportunity_serves_who_is_there_and_nobody_later() {
        let late = |ready| served(&mut trace("5\n20\n"), &[(0, 100), (ready, 100)]);
        assert_eq!(late(5), [5, 5]);
        assert_eq!(late(6), [5, 20]);
    }

    #[test]
    fn an_opportunity_is_met_at_its_very_instant_and_unused_ones_are_gone() {
        let at = |ns| trace("5\n10\n").serve(Instant::from_ns(ns), WHOLE).as_ns();
        assert_eq!(at(5_000_000), 5_000_000);
        assert_eq!(at(5_000_001), 10_000_000);
        // The last of a round, which is the instant at which the next begins.
        assert_eq!(at(10_000_000), 10_000_000);
        assert_eq!(at(10_000_001), 15_000_000);
        assert_eq!(at(70_000_000), 70_000_000);
        assert_eq!(at(70_000_001), 75_000_000);
    }

    #[test]
    fn all_opportunities_of_one_instant_count_also_where_rounds_meet() {
        // Two at the end of a round and one at the begin of the next.
        let mut t = trace("0\n10\n10\n");
        assert_eq!(served(&mut t, &[(30, WHOLE); 4]), [30, 30, 30, 40]);
        let mut t = trace("10\n10\n10\n");
        assert_eq!(served(&mut t, &[(20, WHOLE); 4]), [20, 20, 20, 30]);
    }

    #[test]
    fn skipping_far_ahead_equals_going_step_by_step() {
        let text = "0\n1\n1\n4\n9\n9\n";
        for ready in 0..60 {
            let mut stepped = trace(text);
            let next = std::iter::repeat_with(|| served(&mut stepped, &[(0, WHOLE)])[0])
                .find(|&ms| ms >= ready);
            assert_eq!(served(&mut trace(text), &[(ready, WHOLE)]), [next.unwrap()]);
        }
    }

    #[test]
    fn a_trace_without_a_start_begins_with_the_first_packet() {
        let mut t = Trace::parse("5\n").unwrap();
        assert_eq!(served(&mut t, &[(100, WHOLE), (100, WHOLE)]), [105, 110]);
        let mut t = Trace::parse("5\n")
            .unwrap()
            .starting_at(Instant::from_ns(2_000_000));
        assert_eq!(served(&mut t, &[(0, WHOLE), (13, WHOLE)]), [7, 17]);
    }

    #[test]
    fn extremes_of_time_and_size_do_no_harm() {
        let mut t = trace("86400000\n");
        assert_eq!(t.serve(Instant::MAX, WHOLE), Instant::MAX);
        assert_eq!(t.serve(Instant::MAX, 10 * WHOLE), Instant::MAX);
        let mut t = trace("1\n1\n");
        assert_eq!(served(&mut t, &[(0, 0), (3, 0)]), [1, 3]);
        let opportunities = u64::from(u32::MAX.div_ceil(WHOLE));
        assert_eq!(
            served(&mut t, &[(3, u32::MAX)]),
            [3 + (opportunities + 1).div_ceil(2) - 1]
        );
    }

    #[test]
    fn blanks_and_foreign_line_ends_are_let_pass() {
        let t = Trace::parse("\n 1\r\n\t2 \n\n5").unwrap();
        assert_eq!(*t.opportunities, [1_000_000, 2_000_000, 5_000_000]);
    }

    #[test]
    fn hostile_text_is_refused_with_its_line() {
        let number = "expected a time in milliseconds, a plain number";
        let order = "a time before the one above it";
        let none = "expected at least one opportunity after 0 ms";
        let digits = "9".repeat(100_000);
        for (text, line, problem) in [
            ("", 1, none),
            ("\n\n", 1, none),
            ("0\n0\n", 1, none),
            ("1\nx\n", 2, number),
            ("1\n\n+2\n", 3, number),
            ("-1\n", 1, number),
            ("1.5\n", 1, number),
            ("1 2\n", 1, number),
            ("1\n\u{0662}\n", 2, number),
            ("\u{feff}1\n", 1, number),
            ("1\0\n", 1, number),
            ("18446744073709551616\n", 1, number),
            (digits.as_str(), 1, number),
            ("18446744073709551615\n", 1, "expected at most a day"),
            ("86400001\n", 1, "expected at most a day"),
            ("5\n4\n", 2, order),
        ] {
            let error = Trace::parse(text).unwrap_err();
            assert_eq!((error.line, error.problem), (line, problem), "{text:.20}");
        }
        assert!(Trace::parse("86400000\n").is_ok());
    }
}
