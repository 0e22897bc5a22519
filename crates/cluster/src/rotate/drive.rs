//! The rounds of a plan, one after the other, and what was measured so far.

use fault::Failure;
use lab::Certificate;
use measure::{FlowTimes, MeasureError, RankTest, Stop};
use run::model::{HostFacts, Rotate, RotateFlow, RotateRound};
use units::{Bytes, Duration, Rate};

use super::plan::{self, Plan, Planned, Setup};
use super::ways::Ways;
use crate::pairs;

/// What happens while ranks work.
#[derive(Debug)]
pub enum Event<'a> {
    /// A round was measured, or is the best of all turns.
    Round {
        /// All rounds.
        plan: &'a Plan,
        /// This one.
        planned: &'a Planned,
        /// What its flows got.
        round: &'a RotateRound,
    },
    /// The last round of its number of ranks was measured.
    Closed {
        /// All rounds.
        plan: &'a Plan,
        /// The last one.
        last: &'a Planned,
        /// What the flows of all of them got.
        rounds: &'a [RotateRound],
    },
    /// A turn of several is over.
    Turn {
        /// Its number, from 1.
        turn: u32,
        /// Of how many.
        turns: u32,
        /// Each pair's best so far.
        rotate: &'a Rotate,
    },
    /// The server of a lab's host ended.
    HostFailed(&'a MeasureError),
}

/// Who is told of it, from any thread; its error ends the work.
pub type Observer<'a> = dyn Fn(Event<'_>) -> Result<(), Failure> + Sync + 'a;

/// What was measured, as far as it came.
#[derive(Debug)]
pub struct Measured {
    /// As the run has it.
    pub rotate: Rotate,
    /// What ranks say of their hosts.
    pub hosts: Vec<HostFacts>,
    /// How a lab judged itself.
    pub certificate: Option<Certificate>,
    /// Where the ways of packets are known.
    pub(super) ways: Option<Ways>,
}

impl Measured {
    /// Of nothing yet.
    pub fn new(setup: &Setup) -> Self {
        Self {
            rotate: Rotate {
                pattern: setup.pattern.name().to_owned(),
                measure: if setup.latency {
                    "latency"
                } else {
                    "bandwidth"
                }
                .to_owned(),
                transport: if setup.over_mpi { "mpi" } else { "tcp" }.to_owned(),
                order_seed: setup.seed,
                bidirectional: setup.bidirectional,
                ..Rotate::default()
            },
            hosts: Vec::new(),
            certificate: None,
            ways: None,
        }
    }

    /// All rounds of a plan, one after the other.
    pub(super) fn drive(
        &mut self,
        ranks: &mut dyn Ranks,
        plan: &Plan,
        observer: &Observer<'_>,
        stop: &Stop,
    ) -> Result<(), Failure> {
        self.rotate.tests = plan.tests;
        let mut begun = 0;
        for (n, planned) in plan.rounds.iter().enumerate() {
            let flows: Vec<(usize, usize)> = planned.flows.iter().map(|f| (f.from, f.to)).collect();
            let times = ranks.round(&flows, &planned.test, plan.tests, stop)?;
            let round = round(planned, &times);
            self.rotate.start_skew_ns = ranks.skew().map(Duration::as_ns);
            self.rotate.rounds.push(round);
            let round = &self.rotate.rounds[self.rotate.rounds.len() - 1];
            observer(Event::Round {
                plan,
                planned,
                round,
            })?;
            let next = plan.rounds.get(n + 1);
            if next.is_none_or(|next| plan::closes(plan, planned, next)) {
                let rounds = &self.rotate.rounds[begun..];
                observer(Event::Closed {
                    plan,
                    last: planned,
                    rounds,
                })?;
                begun = self.rotate.rounds.len();
            }
            if stop.is_stopped() {
                break;
            }
        }
        Ok(())
    }
}

/// Ranks, however they are reached.
pub(super) trait Ranks {
    /// Has the flows do the test so many times, all at once each time; each flow's shortest times.
    fn round(
        &mut self,
        flows: &[(usize, usize)],
        test: &RankTest,
        tests: u32,
        stop: &Stop,
    ) -> Result<Vec<FlowTimes>, Failure>;

    /// The longest time from the first rank's word to begin to the last one's, where there is such.
    fn skew(&self) -> Option<Duration>;
}

/// Over TCP, led from here.
impl Ranks for measure::Ranks {
    fn round(
        &mut self,
        flows: &[(usize, usize)],
        test: &RankTest,
        tests: u32,
        stop: &Stop,
    ) -> Result<Vec<FlowTimes>, Failure> {
        self.step(flows, stop)?;
        let mut best: Vec<FlowTimes> = Vec::new();
        for _ in 0..tests {
            let times = self.test(flows, test, stop)?;
            best = shortest(best, times);
        }
        Ok(best)
    }

    fn skew(&self) -> Option<Duration> {
        Some(Self::skew(self))
    }
}

/// Each flow's shorter time of two tests, at either end by itself.
fn shortest(best: Vec<FlowTimes>, times: Vec<FlowTimes>) -> Vec<FlowTimes> {
    if best.is_empty() {
        return times;
    }
    let each = best.into_iter().zip(times);
    each.map(|(a, b)| FlowTimes {
        send: a.send.min(b.send),
        receive: a.receive.min(b.receive),
    })
    .collect()
}

/// A round as run.json has it.
fn round(planned: &Planned, times: &[FlowTimes]) -> RotateRound {
    let test = &planned.test;
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let flow = |(flow, times): (&pairs::Flow, &FlowTimes)| {
        let (send, receive) = (bits(test, times.send), bits(test, times.receive));
        RotateFlow {
            from: small(flow.from),
            to: small(flow.to),
            bits_per_second: (!test.ping).then_some(send),
            received_bits_per_second: (!test.ping).then_some(receive),
            latency_ns: test.ping.then(|| half_round_trip_s(test, times.send) * 1e9),
            fair_bits_per_second: None,
        }
    };
    RotateRound {
        ranks: small(planned.ranks),
        number: small(planned.number),
        message_bytes: test.bytes,
        messages: test.count,
        window: test.window,
        flows: planned.flows.iter().zip(times).map(flow).collect(),
    }
}

/// Payload of a test in its time.
fn bits(test: &RankTest, took: Duration) -> u64 {
    let bytes = u64::from(test.bytes) * u64::from(test.count);
    Rate::average(Bytes::new(bytes), took).as_bits_per_second()
}

fn half_round_trip_s(test: &RankTest, took: Duration) -> f64 {
    took.as_s_f64() / f64::from(test.count.max(1)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_keeps_its_own_best_test() {
        let times = |send, receive| FlowTimes {
            send: Duration::from_ms(send),
            receive: Duration::from_ms(receive),
        };
        let best = shortest(Vec::new(), vec![times(5, 9), times(7, 1)]);
        let best = shortest(best, vec![times(6, 8), times(4, 2)]);
        assert_eq!(best, [times(5, 8), times(4, 1)]);
    }
}
