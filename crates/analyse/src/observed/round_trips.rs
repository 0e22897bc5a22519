//! tshark's round trips (`tcp.analysis.ack_rtt`) beside ours.
//!
//! It takes one for each ACK whose number is the end of a segment that it saw, and of a segment sent again
//! too; we take none of those (RFC 6298 section 3, Karn's algorithm), nor of an ACK that shows a hole, but one
//! of an ACK that ends within a super-packet behind another one. So counts differ by what is counted here; the
//! least one must be the same, and the median about.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use fault::Failure;
use report::model::{TraceRoundTripSamples, TraceRoundTrips};

use super::Find;
use super::printed::{Asked, nanoseconds};
use crate::spacing::Counted;

/// Asks tshark for its round trips of one file.
pub(crate) fn of_file(
    file: &Path,
    counted: &[&Counted],
    find: Find<'_>,
) -> Result<Vec<TraceRoundTrips>, Failure> {
    let mut theirs: HashMap<usize, Theirs> = HashMap::new();
    ANALYSED.read(file, |frame, way, values| {
        if let Some(seen) = seen(values)
            && let Some((of, ahead)) = find(&way, frame)
        {
            theirs.entry(of).or_default().take(&seen, ahead);
        }
    })?;
    let each = counted.iter().enumerate().map(|(of, one)| {
        let mut theirs = theirs.remove(&of).unwrap_or_default();
        let ours = one.round_trips;
        let clean = samples(&mut theirs.clean);
        // Of few our median is one of them, of many it is known within an eighth.
        let near = ours.median.abs_diff(clean.median_ns) <= clean.median_ns / 8 + MEDIAN_NS;
        TraceRoundTrips {
            connection: u32::try_from(one.of + 1).unwrap_or(u32::MAX),
            ours: TraceRoundTripSamples {
                samples: ours.count,
                min_ns: ours.min,
                median_ns: ours.median,
                p95_ns: ours.p95,
            },
            agrees: clean.samples > 0
                && ours.count > 0
                && ours.min.abs_diff(clean.min_ns) <= STAMP_NS
                && near,
            theirs: clean,
            theirs_sent_again: theirs.sent_again,
            theirs_in_holes: theirs.in_holes,
        }
    });
    Ok(each.collect())
}

/// What tshark says of a connection.
#[derive(Debug, Default)]
struct Theirs {
    /// Ends of the sender's segments, and of those that it sent more than once.
    ends: HashSet<u32>,
    again: HashSet<u32>,
    /// Round trips of what was sent once, without a hole.
    clean: Vec<u64>,
    sent_again: u64,
    in_holes: u64,
}

/// A packet as tshark printed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    end: u32,
    has_payload: bool,
    acknowledgment: u32,
    round_trip_ns: Option<u64>,
    has_sack: bool,
}

impl Theirs {
    fn take(&mut self, seen: &Seen, ahead: bool) {
        if ahead {
            if seen.has_payload && self.ends.len() < ENDS_MAX && !self.ends.insert(seen.end) {
                self.again.insert(seen.end);
            }
            return;
        }
        let Some(ns) = seen.round_trip_ns else { return };
        if self.again.contains(&seen.acknowledgment) {
            self.sent_again += 1;
        } else if seen.has_sack {
            self.in_holes += 1;
        } else if self.clean.len() < ENDS_MAX {
            self.clean.push(ns);
        }
    }
}

fn samples(all: &mut [u64]) -> TraceRoundTripSamples {
    all.sort_unstable();
    let at = |permille: usize| {
        let place = (all.len() * permille).div_ceil(1000).saturating_sub(1);
        all.get(place).copied().unwrap_or(0)
    };
    TraceRoundTripSamples {
        samples: all.len() as u64,
        min_ns: at(0),
        median_ns: at(500),
        p95_ns: at(950),
    }
}

/// Of the values of [`ANALYSED`].
fn seen([sequence, payload, acknowledgment, round_trip, sack]: [&str; 5]) -> Option<Seen> {
    let sequence: u32 = sequence.parse().ok()?;
    let payload: u32 = payload.parse().ok()?;
    Some(Seen {
        end: sequence.wrapping_add(payload),
        has_payload: payload > 0,
        acknowledgment: acknowledgment.parse().unwrap_or(0),
        round_trip_ns: nanoseconds(round_trip),
        has_sack: !sack.is_empty(),
    })
}

/// tshark's own analysis, with numbers as they are on the wire.
const ANALYSED: Asked<5> = Asked {
    preference: "tcp.relative_sequence_numbers:false",
    fields: [
        "tcp.seq",
        "tcp.len",
        "tcp.ack",
        "tcp.analysis.ack_rtt",
        "tcp.options.sack_le",
    ],
};
/// What tshark prints is rounded to a nanosecond, stamps are often of microseconds.
const STAMP_NS: u64 = 1_000;
/// Beside the receiver what is timed is a host's few microseconds.
const MEDIAN_NS: u64 = 10_000;
const ENDS_MAX: usize = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(end: u32, acknowledgment: u32, round_trip_ns: Option<u64>, has_sack: bool) -> Seen {
        Seen {
            end,
            has_payload: end > 0,
            acknowledgment,
            round_trip_ns,
            has_sack,
        }
    }

    #[test]
    fn values_of_tshark_are_a_segment() {
        let one = seen(["4294967000", "1448", "9", "0.020000123", ""]).unwrap();
        assert_eq!((one.end, one.acknowledgment), (1_152, 9));
        assert_eq!(one.round_trip_ns, Some(20_000_123));
        assert!(!one.has_sack && one.has_payload);
        assert!(seen(["", "0", "9", "", ""]).is_none());
    }

    #[test]
    fn what_was_sent_again_and_what_shows_a_hole_stands_apart() {
        let mut theirs = Theirs::default();
        for end in [1_000, 2_000, 3_000, 2_000] {
            theirs.take(&sent(end, 0, None, false), true);
        }
        theirs.take(&sent(0, 1_000, Some(20), false), false);
        theirs.take(&sent(0, 2_000, Some(900), false), false);
        theirs.take(&sent(0, 3_000, Some(30), true), false);
        theirs.take(&sent(0, 3_000, None, false), false);
        assert_eq!((theirs.sent_again, theirs.in_holes), (1, 1));
        assert_eq!(theirs.clean, [20]);
    }

    #[test]
    fn percentiles_are_samples() {
        let mut all: Vec<u64> = (1..=100).rev().collect();
        let told = samples(&mut all);
        assert_eq!(
            (told.samples, told.min_ns, told.median_ns, told.p95_ns),
            (100, 1, 50, 95)
        );
        assert_eq!(samples(&mut []), TraceRoundTripSamples::default());
    }
}
