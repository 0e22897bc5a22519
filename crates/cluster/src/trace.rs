//! Traces of messages: who sent what to whom when, or after what, as lines of text.
//!
//! A line is `at,from,to,bytes` or `at,from,to,bytes,after`: a time with its unit or in nanoseconds, two ranks from 0, a size in
//! bytes or with its unit, and the number of an earlier message, from 1, that `from` has received. With `after` the time counts
//! from when that message had arrived, without it from the start. Empty lines and what follows a `#` count for nothing; the
//! first line may name the columns.
//!
//! Any text is refused with a line, or has messages that can be sent in their order.

use units::text::plain;
use units::{Bytes, Duration};

/// A message of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it is posted; with `after`, since that.
    pub at_ps: u64,
    /// Rank that sends.
    pub from: u32,
    /// Rank that receives.
    pub to: u32,
    /// Payload; at least 1.
    pub bytes: u32,
    /// Place among the messages, from 0, of one that `from` has to receive before.
    pub after: Option<u32>,
}

/// Why a trace was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// From 1.
    pub line: usize,
    /// What is wrong and what was expected.
    pub problem: String,
}

/// Messages of a trace.
///
/// # Errors
/// [`TraceError`] with the first line that cannot be.
pub fn parse(text: &str) -> Result<Vec<Record>, TraceError> {
    let mut found: Vec<Record> = Vec::new();
    // When each begins at the soonest, in picoseconds.
    let mut earliest: Vec<u64> = Vec::new();
    let mut first = true;
    for (n, line) in text.lines().enumerate() {
        let wrong = |problem: String| TraceError {
            line: n + 1,
            problem,
        };
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let heads = std::mem::replace(&mut first, false);
        let fields: Vec<&str> = line.splitn(FIELDS + 1, ',').map(str::trim).collect();
        if heads
            && matches!(
                fields[..],
                ["at", "from", "to", "bytes"] | ["at", "from", "to", "bytes", "after"]
            )
        {
            continue;
        }
        if found.len() >= RECORDS_MAX {
            return Err(wrong(format!("more than {RECORDS_MAX} messages")));
        }
        let (four, after) = match fields[..] {
            [at, from, to, bytes] => ([at, from, to, bytes], ""),
            [at, from, to, bytes, after] => ([at, from, to, bytes], after),
            _ => {
                let problem = format!(
                    "{} fields; expected at,from,to,bytes or at,from,to,bytes,after",
                    fields.len()
                );
                return Err(wrong(problem));
            }
        };
        let record = record(four, after, &found).map_err(wrong)?;
        let before = record.after.map_or(0, |n| earliest[n as usize]);
        let begins = record.at_ps + before;
        if begins > TIME_MAX_NS * 1_000 {
            let problem = "begins more than 1000 s after the first, with what it waits for";
            return Err(wrong(problem.to_owned()));
        }
        earliest.push(begins);
        found.push(record);
    }
    if found.is_empty() {
        let problem =
            "no message; expected lines of at,from,to,bytes or at,from,to,bytes,after".to_owned();
        return Err(TraceError { line: 1, problem });
    }
    Ok(found)
}

fn record(
    [at, from, to, bytes]: [&str; 4],
    after: &str,
    before: &[Record],
) -> Result<Record, String> {
    let rank = |text: &str| match text.parse::<u32>() {
        Ok(rank) if rank < RANKS_MAX => Ok(rank),
        _ => Err(format!(
            "'{}' is no rank; expected 0 to {}",
            short(text),
            RANKS_MAX - 1
        )),
    };
    let ns = match at.parse::<u64>() {
        Ok(ns) => Some(ns),
        Err(_) => at.parse::<Duration>().ok().map(|d| d.as_ns()),
    };
    let ns = ns.filter(|ns| *ns <= TIME_MAX_NS).ok_or_else(|| {
        format!(
            "'{}' is no time; expected one such as 12us, or nanoseconds, 1000 s at most",
            short(at)
        )
    })?;
    let size = match bytes.parse::<u64>() {
        Ok(bytes) => Some(bytes),
        Err(_) => bytes.parse::<Bytes>().ok().map(Bytes::as_u64),
    };
    let size = size
        .and_then(|b| u32::try_from(b).ok())
        .filter(|b| *b <= BYTES_MAX);
    let size = size.ok_or_else(|| {
        format!(
            "'{}' is no size; expected bytes, or one such as 64KiB, 64 MiB at most",
            short(bytes)
        )
    })?;
    let (from, to) = (rank(from)?, rank(to)?);
    if from == to {
        return Err(format!("rank {from} sends to itself"));
    }
    let after = match after {
        "" => None,
        text => {
            let place = text.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let place = place.filter(|place| *place < before.len()).ok_or_else(|| {
                format!(
                    "'{}' is no earlier message; there are {} before it, from 1",
                    short(text),
                    before.len()
                )
            })?;
            let of = &before[place];
            if of.to != from {
                return Err(format!(
                    "rank {from} does not receive message {text}, rank {} does",
                    of.to
                ));
            }
            u32::try_from(place).ok()
        }
    };
    Ok(Record {
        at_ps: ns * 1_000,
        from,
        to,
        // An empty message still is one.
        bytes: size.max(1),
        after,
    })
}

/// As much of a field as a message shows.
fn short(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    plain(&short).into_owned()
}

const FIELDS: usize = 5;
/// Each is a flow of its own, of some hundred bytes.
pub const RECORDS_MAX: usize = 200_000;
const RANKS_MAX: u32 = 20_000;
const TIME_MAX_NS: u64 = 1_000_000_000_000;
const BYTES_MAX: u32 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Any text has a line that is at fault, or messages that can be sent.
        #[test]
        fn any_text_is_read_or_refused(
            text in "([0-9 ,#usm\\n]|-|\u{e9}|at,from,to,bytes\\n|0,0,1,9\\n|1us,1,2,4KiB,1\\n){0,60}",
        ) {
            match parse(&text) {
                Ok(found) => for (n, record) in found.iter().enumerate() {
                    let before = record.after.map(|a| a as usize);
                    proptest::prop_assert!(before.is_none_or(|b| b < n && found[b].to == record.from));
                    proptest::prop_assert!(record.from != record.to && record.bytes > 0);
                },
                Err(error) => proptest::prop_assert!(
                    (1..=text.lines().count().max(1)).contains(&error.line)
                ),
            }
        }
    }

    #[test]
    fn lines_are_messages() {
        let text = "at,from,to,bytes,after\n# first\n0, 0, 1, 64KiB\n1.5us,1,2,0,1 # then\n\n200,0,2,100,\n";
        let found = parse(text).unwrap();
        let of = |at_ps, from, to, bytes, after| Record {
            at_ps,
            from,
            to,
            bytes,
            after,
        };
        assert_eq!(
            found,
            [
                of(0, 0, 1, 65_536, None),
                of(1_500_000, 1, 2, 1, Some(0)),
                of(200_000, 0, 2, 100, None)
            ]
        );
    }

    #[test]
    fn waits_that_add_up_beyond_the_longest_time_are_refused() {
        let text = |second: &str| format!("999s,0,1,1\n{second},1,0,1,1\n");
        assert!(parse(&text("1s")).is_ok());
        let error = parse(&text("1000000001ns")).unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.problem.contains("1000 s"), "{error:?}");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_its_line() {
        for (line, what) in [
            ("0,0,1", "3 fields"),
            ("0,0,1,1,1,1", "6 fields"),
            ("-1,0,1,1", "no time"),
            ("2000s,0,1,1", "no time"),
            ("0,0,20000,1", "no rank"),
            ("0,0,0,1", "itself"),
            ("0,0,1,65MiB", "no size"),
            ("0,0,1,1,2", "there are 1 before"),
            ("0,0,1,1,0", "no earlier"),
            ("0,0,1,1,1", "does not receive message 1, rank 1 does"),
            ("at,from,to,bytes", "no time"),
        ] {
            let error = parse(&format!("# a\n0,0,1,1\n{line}\n")).unwrap_err();
            assert_eq!(error.line, 3, "{line}");
            assert!(error.problem.contains(what), "{line}: {error}");
        }
        assert!(parse("").unwrap_err().problem.contains("no message"));
        let many = "0,0,1,1\n".repeat(RECORDS_MAX + 1);
        assert_eq!(parse(&many).unwrap_err().line, RECORDS_MAX + 1);
    }
}
