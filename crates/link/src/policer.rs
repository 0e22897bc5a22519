//! Token buckets without a queue: what exceeds a rate is dropped, not delayed.
//!
//! A bucket fills at the rate up to the burst; a segment that finds tokens for all of its wire
//! bytes takes them and passes, another is dropped and takes none (RFC 2697 with a committed burst
//! alone). Tokens are counted in billionths of a bit: rate times nanoseconds is a whole number of
//! them, so nothing is rounded and no rate drifts.

use units::Instant;

use crate::event::{DropCause, Log};
use crate::flows::{FLOWS_MAX, FlowTable};
use crate::loss::sift;
use crate::pipeline::{Stage, Trains};
use crate::spec::PolicerSpec;
use crate::train::Train;

/// One bucket for all.
#[derive(Clone, Debug)]
pub struct Policer {
    limit: Limit,
    bucket: Bucket,
}

/// A bucket for each flow. Frames without a known flow (0) share one.
///
/// The table holds [`FLOWS_MAX`] flows; one more takes the place of the one that was idle longest.
/// A flow that was idle for burst / rate has a full bucket anyway, so forgetting it is no favour.
#[derive(Clone, Debug)]
pub struct FlowCap {
    limit: Limit,
    flows: FlowTable<Bucket>,
}

/// What one bucket allows.
#[derive(Clone, Copy, Debug)]
struct Limit {
    bits_per_second: u64,
    /// Billionths of a bit.
    burst: u128,
}

/// Starts full.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Billionths of a bit.
    tokens: u128,
    filled_at: Instant,
}

impl Limit {
    fn new(spec: PolicerSpec) -> Self {
        Self {
            bits_per_second: spec.rate.as_bits_per_second(),
            burst: u128::from(spec.burst.as_u64()) * TOKENS_PER_BYTE,
        }
    }

    const fn full_bucket(&self, now: Instant) -> Bucket {
        Bucket {
            tokens: self.burst,
            filled_at: now,
        }
    }
}

impl Bucket {
    /// Takes the tokens for `wire_bytes` if they are there at `now`.
    fn takes(&mut self, limit: &Limit, wire_bytes: u32, now: Instant) -> bool {
        let passed = now.saturating_since(self.filled_at);
        self.filled_at = self.filled_at.max(now);
        // Neither overflows: a product of two u64, and one beside 2^64 bytes of tokens (2^97).
        let fresh = u128::from(limit.bits_per_second) * u128::from(passed.as_ns());
        self.tokens = self.tokens.saturating_add(fresh).min(limit.burst);
        let cost = u128::from(wire_bytes) * TOKENS_PER_BYTE;
        let conforms = cost <= self.tokens;
        if conforms {
            self.tokens -= cost;
        }
        conforms
    }
}

impl Policer {
    /// A full bucket.
    pub fn new(spec: PolicerSpec) -> Self {
        let limit = Limit::new(spec);
        Self {
            limit,
            bucket: limit.full_bucket(Instant::ZERO),
        }
    }
}

impl Stage for Policer {
    fn name(&self) -> &'static str {
        "policer"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        let Self { limit, bucket } = self;
        sift(train, DropCause::Policed, out, log, |k| {
            !bucket.takes(limit, train.wire_bytes, train.time_of(k))
        });
    }
}

impl FlowCap {
    /// A full bucket for every flow that comes.
    pub fn new(spec: PolicerSpec) -> Self {
        Self::with_flows(spec, FLOWS_MAX)
    }

    fn with_flows(spec: PolicerSpec, flows_max: usize) -> Self {
        Self {
            limit: Limit::new(spec),
            flows: FlowTable::new(flows_max),
        }
    }
}

impl Stage for FlowCap {
    fn name(&self) -> &'static str {
        "flow-cap"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        let Self { limit, flows } = self;
        // A new or forgotten flow begins with a full bucket; there is always room for it.
        let full = || limit.full_bucket(train.at);
        let Some(bucket) = flows.touch(train.flow.into(), |_| true, full) else {
            return out.push(train);
        };
        sift(train, DropCause::FlowCap, out, log, |k| {
            !bucket.takes(limit, train.wire_bytes, train.time_of(k))
        });
    }
}

const TOKENS_PER_BYTE: u128 = 8 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Decision;
    use crate::loss::testing::{pass, spaced, train};
    use units::{Bytes, Rate};

    /// One full frame each 12,304 ns, `frames` saved up.
    fn gigabit(frames: u64) -> PolicerSpec {
        PolicerSpec {
            rate: Rate::from_bits_per_second(1_000_000_000),
            burst: Bytes::new(frames * 1538),
        }
    }

    fn passed(stage: &mut dyn Stage, train: Train) -> u16 {
        let (out, log) = pass(stage, &[train]);
        let count: u16 = out.iter().map(|t| t.count).sum();
        let lost: u16 = log.iter().map(|e| e.train.count).sum();
        assert_eq!(count + lost, train.count);
        count
    }

    #[test]
    fn a_burst_passes_up_to_the_bucket_and_the_rest_is_dropped_as_policed() {
        let mut stage = Policer::new(gigabit(10));
        let (out, log) = pass(&mut stage, &[train(1, 44, 5)]);
        assert_eq!(out, [train(1, 44, 5).part(0, 10)]);
        assert_eq!(log.len(), 1);
        assert_eq!(log[0].train, train(1, 44, 5).part(10, 34));
        assert_eq!(log[0].decision, Decision::lost(DropCause::Policed));
    }

    #[test]
    fn tokens_for_one_frame_are_there_at_their_nanosecond_and_not_before() {
        let mut stage = Policer::new(gigabit(1));
        assert_eq!(passed(&mut stage, train(1, 2, 100)), 1);
        assert_eq!(passed(&mut stage, train(2, 1, 100 + 12_303)), 0);
        assert_eq!(passed(&mut stage, train(3, 1, 100 + 12_304)), 1);
    }

    #[test]
    fn no_more_than_the_burst_is_saved_up() {
        let mut stage = Policer::new(gigabit(3));
        assert_eq!(passed(&mut stage, train(1, 9, 0)), 3);
        assert_eq!(passed(&mut stage, train(2, 9, u64::MAX / 2)), 3);
        assert_eq!(passed(&mut stage, train(3, 9, u64::MAX)), 3);
    }

    #[test]
    fn spaced_segments_are_judged_each_at_its_own_time() {
        let mut at_rate = Policer::new(gigabit(1));
        assert_eq!(passed(&mut at_rate, spaced(1, 44, 0, 12_304)), 44);
        let mut twice_as_fast = Policer::new(gigabit(1));
        let (out, _) = pass(&mut twice_as_fast, &[spaced(1, 6, 0, 6_152)]);
        let firsts: Vec<u16> = out.iter().map(|t| t.first).collect();
        assert_eq!(firsts, [0, 2, 4]);
    }

    #[test]
    fn an_odd_rate_does_not_drift() {
        let spec = PolicerSpec {
            rate: Rate::from_bits_per_second(9_285_714_287),
            burst: Bytes::new(1538),
        };
        // A frame offered each 100 ns, for 0.1 s: the rate's bits and the first bucket, to one frame.
        let mut stage = Policer::new(spec);
        let count: u64 = (0..100)
            .map(|i| u64::from(passed(&mut stage, spaced(i, 10_000, i * 1_000_000, 100))))
            .sum();
        // The bucket overflows while the offer waits for its 100 ns, so a bucket of one frame gets
        // one per 1,400 ns; one of two frames gets all.
        assert_eq!(count, 1_000_000_u64.div_ceil(14));
        let mut stage = Policer::new(PolicerSpec {
            burst: Bytes::new(2 * 1538),
            ..spec
        });
        let count: u64 = (0..100)
            .map(|i| u64::from(passed(&mut stage, spaced(i, 10_000, i * 1_000_000, 100))))
            .sum();
        let bits =
            u128::from(spec.rate.as_bits_per_second()) * 99_999_900 + 2 * 1538 * TOKENS_PER_BYTE;
        assert_eq!(u128::from(count), bits / (1538 * TOKENS_PER_BYTE));
    }

    #[test]
    fn what_exceeds_the_bucket_never_passes_and_a_rate_of_zero_is_a_quota() {
        let tiny = PolicerSpec {
            burst: Bytes::new(1537),
            ..gigabit(1)
        };
        assert_eq!(passed(&mut Policer::new(tiny), train(1, 5, u64::MAX)), 0);
        let quota = PolicerSpec {
            rate: Rate::default(),
            ..gigabit(4)
        };
        let mut stage = Policer::new(quota);
        assert_eq!(passed(&mut stage, train(1, 3, 0)), 3);
        assert_eq!(passed(&mut stage, train(2, 3, u64::MAX)), 1);
    }

    #[test]
    fn the_largest_limits_do_not_overflow() {
        let spec = PolicerSpec {
            rate: Rate::from_bits_per_second(u64::MAX),
            burst: Bytes::new(u64::MAX),
        };
        let mut stage = Policer::new(spec);
        let huge = Train {
            wire_bytes: u32::MAX,
            ..train(1, u16::MAX, u64::MAX)
        };
        assert_eq!(passed(&mut stage, huge), u16::MAX);
    }

    fn of_flow(flow: u32, count: u16, at_ns: u64) -> Train {
        Train {
            flow,
            ..train(u64::from(flow), count, at_ns)
        }
    }

    #[test]
    fn each_flow_has_its_own_bucket() {
        let mut stage = FlowCap::new(gigabit(2));
        let (out, log) = pass(&mut stage, &[of_flow(7, 3, 0)]);
        assert_eq!((out[0].count, log[0].train.count), (2, 1));
        assert_eq!(log[0].decision, Decision::lost(DropCause::FlowCap));
        assert_eq!(passed(&mut stage, of_flow(8, 3, 0)), 2);
        assert_eq!(passed(&mut stage, of_flow(7, 3, 12_304)), 1);
        assert_eq!(passed(&mut stage, of_flow(8, 3, 12_304)), 1);
    }

    #[test]
    fn one_flow_too_many_takes_the_place_of_the_one_idle_longest() {
        let mut stage = FlowCap::with_flows(gigabit(1), 3);
        for flow in [1, 2, 3, 1] {
            passed(&mut stage, of_flow(flow, 1, 0));
        }
        // Flow 2 is the one idle longest; 4 takes its place, and the others stay empty.
        assert_eq!(passed(&mut stage, of_flow(4, 1, 0)), 1);
        for flow in [3, 1, 4] {
            assert_eq!(passed(&mut stage, of_flow(flow, 1, 0)), 0, "flow {flow}");
        }
        assert_eq!(passed(&mut stage, of_flow(2, 1, 0)), 1);
    }
}
