//! Runs of a modelled cluster fabric: the key `fabric` of `run.json`.

use serde::{Deserialize, Serialize};

/// Curves of rate and latency by message size, one for each case and transport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricRun {
    /// In the order of the file: cases, and within a case transports.
    pub curves: Vec<FabricCurve>,
    /// Curves whose names follow no scheme.
    pub names_off_scheme: u32,
    /// Patterns of many hosts, one for each case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub studies: Vec<FabricStudy>,
    /// Of `fabric sweep`: one for each combination of values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<FabricSetting>,
    /// Events of all simulations.
    pub events: u64,
    /// Packets sent over a cable, counted once a hop.
    pub packet_hops: u64,
    /// Flows of all steps that were taken as fluids instead of packets.
    #[serde(skip_serializing_if = "is_zero")]
    pub fluid_flows: u64,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One case over one transport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricCurve {
    /// `<transport>-<case>`.
    pub name: String,
    /// `rc`, `uc` or `ud`.
    pub transport: String,
    /// How that name is made up, by section 1.4 of M. Minich, "Infiniband Based Cable Comparison", ORNL 2007; empty where it
    /// follows none of its schemes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheme: String,
    /// Host that sends.
    pub from: String,
    /// Host that receives.
    pub to: String,
    /// Cores that send at once.
    pub cores: u32,
    /// Cables on the way, in its order.
    pub hops: Vec<FabricHop>,
    /// Goodput of the longest message.
    pub peak_bits_per_second: u64,
    /// By how much that is below the first curve's of the same transport; 0 where it is not.
    pub below_first_bits_per_second: u64,
    /// The same as a share of it.
    pub share_of_first: f64,
    /// The part that bounds the longest message: `wire`, `converter`, `credits`, `bus`, `engine` or `post`.
    pub limit: String,
    /// What every part would let through, by formula, for the longest message.
    pub bounds: Vec<FabricBound>,
    /// Largest difference of a point's goodput from the least of its bounds, or of its latency from the formula's, as
    /// a share of it.
    pub formula_difference_max: f64,
    /// By message size.
    pub points: Vec<FabricPoint>,
}

/// A cable as it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricHop {
    /// Name of the link.
    pub link: String,
    /// Its cable.
    pub cable: String,
    /// Signalling that it trained to.
    pub speed: String,
    /// Lanes of signalling.
    pub width: u8,
    /// One way through it.
    pub delay_ns: f64,
    /// Virtual lanes for data.
    pub virtual_lanes: u8,
    /// Room at its far end for each of them.
    pub lane_buffer_bytes: u64,
}

/// What one part lets through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricBound {
    /// Which: `wire`, `credits`, `bus_read`, `bus_write`, `engine` or `post`.
    pub part: String,
    /// Link, or host.
    pub place: String,
    /// Payload.
    pub bits_per_second: u64,
    /// The formula with its numbers.
    pub how: String,
}

/// Messages of one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricPoint {
    /// Size of a message.
    pub message_bytes: u32,
    /// Messages of each core; the rate is that of the second half of them.
    pub messages: u64,
    /// Payload that came into the receiver's memory a second.
    pub goodput_bits_per_second: u64,
    /// Messages a second.
    pub messages_per_second: u64,
    /// The least of the bounds.
    pub formula_bits_per_second: u64,
    /// Half of the round trip, where it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// The same by formula.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_formula_ns: Option<f64>,
}

/// A pattern of traffic on one fabric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricStudy {
    /// Its case, or its pattern.
    pub name: String,
    /// What is done, with its algorithm.
    pub pattern: String,
    /// What is counted: `rate`, `latency` or `time`.
    pub counts: String,
    /// How it was run: `packets` or `flows`.
    pub tier: String,
    /// How far to trust what was found, in words.
    pub trust: String,
    /// How packets find their way.
    pub routing: String,
    /// What the fabric is, in words.
    pub topology: String,
    /// Hosts that are plugged in, ports that there are for them, and ports of a chip.
    pub hosts: u32,
    /// See `hosts`.
    pub ports: u32,
    /// See `hosts`.
    pub chip_ports: u32,
    /// Payload of a message.
    pub message_bytes: u32,
    /// Messages of each pair and step.
    pub messages: u32,
    /// How often all was repeated with other tables and draws.
    pub seeds: u32,
    /// Goodput of one pair alone, by formula: the least of its bounds.
    pub alone_bits_per_second: u64,
    /// Highest goodput of a pair.
    pub peak_bits_per_second: u64,
    /// The largest number of nodes up to which the worst pair of all has [`FULL_SHARE`] of the peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_to_nodes: Option<u32>,
    /// By how much the mean latency of the last number of nodes is above that of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_growth_ns: Option<f64>,
    /// By number of nodes.
    pub points: Vec<FabricNodes>,
    /// Each pair of the largest number of nodes, first seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<FabricMap>,
    /// The step with the lowest average of the largest number of nodes, first seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_step: Option<FabricStep>,
    /// Jobs that shared the fabric.
    pub jobs: Vec<FabricJob>,
    /// Of a trace's messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<FabricReplay>,
    /// Links that failed in every step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FabricFault>,
    /// What became of the flows then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<FabricRecovery>,
}

/// Messages of a trace, each from its post until it was there, beside what it takes alone: by formula, its first packet's latency
/// and the others at the rate of its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricReplay {
    /// How many arrived, over all seeds.
    pub messages: u64,
    /// How many times as long as alone: half of the messages took less.
    pub slowdown_median: f64,
    /// 99 of 100 took less.
    pub slowdown_p99: f64,
    /// The slowest.
    pub slowdown_max: f64,
}

/// A link that fails, in the time of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricFault {
    /// Which.
    pub link: String,
    /// From when.
    pub at_ns: u64,
    /// Until when; nothing where it stays down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
    /// Packets lost on the link, in all steps, numbers of nodes and seeds; of a link that fails again, with its first failure.
    pub lost_packets: u64,
}

/// How flows got over links that failed; sums over all steps, numbers of nodes and seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricRecovery {
    /// Flows that there were.
    pub flows: u64,
    /// Timers of senders that ran out.
    pub timeouts: u64,
    /// Packets sent again.
    pub resent_packets: u64,
    /// Flows whose sender gave up.
    pub broken_flows: u64,
    /// Longest time in which a sender heard of nothing new.
    pub silence_max_ns: f64,
    /// Flows that probes without answer moved to another path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_flows: Option<u64>,
    /// Longest time from a failure to such a move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_after_max_ns: Option<f64>,
}

/// A pair that gets this share of the peak is not held back.
pub const FULL_SHARE: f64 = 0.95;

/// One number of nodes. Rates are of a pair and over all steps and seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricNodes {
    /// Ranks.
    pub nodes: u32,
    /// Steps that were run, of each seed.
    pub steps: u32,
    /// Steps that there are, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_all: Option<u32>,
    /// Best pair.
    pub best_bits_per_second: u64,
    /// Mean.
    pub average_bits_per_second: u64,
    /// Worst pair.
    pub worst_bits_per_second: u64,
    /// The mean as a share of the study's peak.
    pub average_share_of_peak: f64,
    /// Half of its 95 % interval over the seeds; nothing with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_interval: Option<f64>,
    /// The mean's share for each seed.
    pub seed_shares: Vec<f64>,
    /// The worst pair as a share of the best.
    pub worst_share_of_best: f64,
    /// The mean if links were shared fairly and nothing else held packets back, as a share of the peak; 0 where packets
    /// choose among paths.
    pub fair_share_of_peak: f64,
    /// Flows moved to other paths, of all steps and seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves: Option<u64>,
    /// Hold time over the shortest time between two moves of one flow: 1 at most where the rule is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves_a_hold_max: Option<f64>,
    /// Wire time of probes and answers as a share of that of all packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_share: Option<f64>,
    /// Packets that came before others of their flow that were sent earlier, as a share.
    pub early_share: f64,
    /// Most flows that shared one direction of a cable between chips.
    pub flows_on_a_cable_max: u32,
    /// Half of the round trip: least, mean, most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<[f64; 3]>,
    /// The mean by formula, and what it is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_formula: Option<FabricLatency>,
    /// Time until all steps are done: median of the seeds, and the longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_ns: Option<[f64; 2]>,
    /// The same on one switch as large as the fabric, by formula.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ideal_ns: Option<f64>,
    /// Share of the ideal's speed that is lost: median of the seeds, and the worst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_shares: Option<[f64; 2]>,
    /// What another simulator found for some of the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<FabricObserved>,
}

/// Steps that another packet simulator ran over the same cables and tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricObserved {
    /// Name and version.
    pub tool: String,
    /// Steps that both ran.
    pub steps: u32,
    /// Pairs of all of them.
    pub flows: u32,
    /// Its mean rate of a pair, as a share of what each step's first pair gets alone.
    pub average_share_of_alone: f64,
    /// Ours of the same steps.
    pub ours_share_of_alone: f64,
    /// Between both.
    pub apart: f64,
}

/// Parts of a latency, means over all pairs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricLatency {
    /// Their sum.
    pub sum_ns: f64,
    /// Posting, adapters and buses at both ends.
    pub host_ns: f64,
    /// Chips.
    pub chip_ns: f64,
    /// Cables.
    pub cable_ns: f64,
    /// Getting the bits onto the last wire.
    pub wire_ns: f64,
    /// Chips crossed by the pair with the fewest, and by that with the most.
    pub chips: [u32; 2],
    /// The longest of all pairs' ways from port to port: chips and the cables between them.
    pub fabric_max_ns: f64,
}

/// Goodput by sender and receiver; several of each in a cell where there are many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricMap {
    /// Ranks of a cell, each way.
    pub ranks_of_a_cell: u32,
    /// First rank of the first row's senders.
    pub first_sender: u32,
    /// First rank of the first column's receivers.
    pub first_receiver: u32,
    /// Row by row; 0 where nothing was sent.
    pub bits_per_second: Vec<Vec<u64>>,
}

/// What the cables between chips did in one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricStep {
    /// Number of the step, or of the rotation.
    pub step: u32,
    /// Nodes.
    pub nodes: u32,
    /// How long it took.
    pub took_ns: f64,
    /// Chips that a flow crossed or could have, by tier.
    pub chips: Vec<FabricChip>,
    /// Cables between chips, each direction by itself, in which something was sent.
    pub cables: Vec<FabricCable>,
    /// Directions of cables that nothing was sent over, between chips that carried something.
    pub idle_cables: u32,
    /// How often how many flows shared a direction: place n has those with n + 1.
    pub shared_by: Vec<u32>,
    /// Waits for room, longest first.
    pub waits: Vec<FabricWait>,
}

/// A switch chip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricChip {
    /// Name.
    pub name: String,
    /// 1 beside hosts.
    pub tier: u32,
}

/// One direction of a cable between chips.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricCable {
    /// Name of the cable: both chips with their ports.
    pub link: String,
    /// Chip that sends, as a place in `chips`.
    pub from: u32,
    /// Chip that receives.
    pub to: u32,
    /// Flows that went over it; where packets choose among paths, what it carried in volumes of a flow, rounded up.
    pub flows: u32,
    /// Share of the step's time with a packet on the wire.
    pub busy_share: f64,
    /// Share in which a packet waited for nothing but room at the far end.
    pub credit_wait_share: f64,
    /// How long a packet waited on the average, from being ready until it left.
    pub wait_ns: f64,
    /// Time for which packets for other cables stood ready behind heads that waited for this one, as a share; of several
    /// queues together, so it may exceed 1.
    pub held_others_share: f64,
}

/// A cable whose packets waited for room, and what for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricWait {
    /// Cable, with its direction.
    pub cable: String,
    /// Cable and direction for which the packets waited that held the room; nothing where all of it was on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// How long, as a share of the step; of several lanes together, so it may exceed 1.
    pub share: f64,
}

/// A job beside others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricJob {
    /// Name.
    pub name: String,
    /// What it does.
    pub pattern: String,
    /// Ranks.
    pub nodes: u32,
    /// Time until it is done: median of the seeds, and the longest.
    pub finish_ns: [f64; 2],
    /// The same on one switch as large as the fabric with nobody else, by formula.
    pub ideal_ns: f64,
    /// Share of that speed that is lost: median of the seeds, and the worst.
    pub lost_shares: [f64; 2],
}

/// What a sweep found at one combination of values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricSetting {
    /// Dotted keys and their values, in the order of the axes.
    pub values: Vec<[String; 2]>,
    /// One for each case of the file.
    pub studies: Vec<FabricStudy>,
}
