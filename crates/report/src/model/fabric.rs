//! Runs of a modelled cluster fabric: the key `fabric` of `run.json`.

use serde::{Deserialize, Serialize};

/// Curves of rate and latency by message size, one for each case and transport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricRun {
    /// In the order of the file: cases, and within a case transports.
    pub curves: Vec<FabricCurve>,
    /// Events of all simulations.
    pub events: u64,
    /// Packets sent over a cable, counted once a hop.
    pub packet_hops: u64,
}

/// One case over one transport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricCurve {
    /// `<transport>-<case>`.
    pub name: String,
    /// `rc`, `uc` or `ud`.
    pub transport: String,
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
