//! Pairs of hosts that sent to each other at once: the key `rotate` of `run.json`.

use serde::{Deserialize, Serialize};

use super::Certificate;

/// What `goodput rotate` measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rotate {
    /// `rotate`, `com` or `mpigraph`.
    pub pattern: String,
    /// `bandwidth` or `latency`.
    pub measure: String,
    /// `tcp` or `mpi`.
    pub transport: String,
    /// What the MPI library calls itself; over MPI only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_library: Option<String>,
    /// Names by rank.
    pub ranks: Vec<String>,
    /// Seed that chose their order, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_seed: Option<u64>,
    /// Tests of each round, of which each pair's fastest counts.
    pub tests: u32,
    /// Times that `mpirun` started all processes, of which each pair's best counts; with `--mpirun` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Whether both of a pair sent at once.
    pub bidirectional: bool,
    /// The longest time from the first rank's word to begin to the last one's; over TCP only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_skew_ns: Option<u64>,
    /// What ran at once, in the order in which it ran.
    pub rounds: Vec<RotateRound>,
    /// All rounds of one number of ranks and size of messages together.
    pub counts: Vec<RotateCount>,
    /// Pairs that got less than three quarters of the best of all ranks.
    pub pairs_slow: u32,
    /// Of all ranks, pairs that got the best divided by a whole number, as where so many share a link.
    pub multiples: Vec<RotateMultiple>,
    /// Links that held pairs back since others crossed them too, most lost first; where ways are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<RotateLink>,
    /// The lab's accuracy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
    /// Another's program for the same, in turns with ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<RotateObserved>,
}

/// What another's program found over the same processes, started as often as ours and in turns with it; each
/// pair's best of all turns, as ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateObserved {
    /// What it is.
    pub tool: String,
    /// The file that ran.
    pub program: String,
    /// Worst, average and best.
    pub count: RotateCount,
    /// Our worst over its: of rates, or of half round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_ratio: Option<f64>,
    /// Our average over its.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_ratio: Option<f64>,
    /// Our best over its.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_ratio: Option<f64>,
    /// Its own parser, given what ours printed; of bandwidth only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parser: Option<RotateParser>,
}

/// A parser of others that read our lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateParser {
    /// Its file.
    pub program: String,
    /// Outputs that it was given, one of each turn.
    pub outputs: u32,
    /// Those of which it said `STATUS=PASSED` and the four numbers that the run has.
    pub read: u32,
}

/// Flows that ran at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateRound {
    /// Ranks that took part in this and the rounds beside it.
    pub ranks: u32,
    /// Number among those, from 0.
    pub number: u32,
    /// Size of a message.
    pub message_bytes: u32,
    /// Messages of a test, or round trips.
    pub messages: u32,
    /// Messages from one confirmation to the next.
    pub window: u32,
    /// The flows.
    pub flows: Vec<RotateFlow>,
}

/// One flow's best.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateFlow {
    /// Rank that sent.
    pub from: u32,
    /// Rank that received.
    pub to: u32,
    /// By the sender's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<u64>,
    /// By the receiver's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bits_per_second: Option<u64>,
    /// Half a round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Its fair share (max-min) of the links on its way, where those are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_bits_per_second: Option<u64>,
}

/// The worst, the average and the best.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateCount {
    /// Ranks.
    pub ranks: u32,
    /// Size of a message.
    pub message_bytes: u32,
    /// Rounds.
    pub rounds: u32,
    /// Pairs in all of them.
    pub pairs: u32,
    /// Slowest pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_bits_per_second: Option<u64>,
    /// Mean of the rounds' means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_bits_per_second: Option<u64>,
    /// Fastest pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_bits_per_second: Option<u64>,
    /// All pairs of a round together, mean of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_bits_per_second: Option<u64>,
    /// The slowest pair of a round times its pairs, mean of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_bits_per_second: Option<u64>,
    /// The average as a share of the best of all numbers of ranks with that size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_share: Option<f64>,
    /// Slowest pair's half round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_latency_ns: Option<f64>,
    /// Mean of the rounds' means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_latency_ns: Option<f64>,
    /// Fastest pair's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_latency_ns: Option<f64>,
}

/// Pairs that got the best divided by a whole number, to 12 %.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateMultiple {
    /// The number.
    pub divided_by: u32,
    /// How many pairs.
    pub pairs: u32,
}

/// A link, in one direction, that several flows crossed at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateLink {
    /// Its name.
    pub link: String,
    /// Node that sends on it.
    pub from: String,
    /// Node that receives.
    pub to: String,
    /// What it carries.
    pub rate_bits_per_second: u64,
    /// Most flows on it at once.
    pub flows_max: u32,
    /// First round of that many.
    pub round: u32,
    /// Rounds with more than one.
    pub rounds_shared: u32,
    /// What those flows got that it held back most, in rounds with the most on it.
    pub each_bits_per_second: u64,
}

impl Rotate {
    /// The rounds of the most ranks and the largest messages: what a heat map shows.
    pub fn whole(&self) -> impl Iterator<Item = &RotateRound> {
        let ranks = self.rounds.iter().map(|r| r.ranks).max();
        let bytes = self.rounds.iter().map(|r| r.message_bytes).max();
        let is_whole =
            move |r: &&RotateRound| Some(r.ranks) == ranks && Some(r.message_bytes) == bytes;
        self.rounds.iter().filter(is_whole)
    }
}
