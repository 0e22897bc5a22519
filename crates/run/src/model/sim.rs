//! What only a model can tell: the keys `phases[].model` and `gap_threshold` of `run.json`.

use serde::{Deserialize, Serialize};

/// What a simulation counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelFacts {
    /// What held packets back, as `--pacing` has it.
    pub pacing: String,
    /// Of a gap, its octets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_octets: Option<u32>,
    /// Room of the bottleneck's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_limit_bytes: Option<u64>,
    /// Most that was in it, the frame being sent included.
    pub queue_max_bytes: u64,
    /// Fastest growth of its deepest level over half a second before the first drop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_growth_bytes_per_second: Option<u64>,
    /// Data segments that found no room in a queue.
    pub dropped_at_queues: u64,
    /// Data segments lost otherwise.
    pub lost_on_the_way: u64,
    /// When a sample first told of a drop at a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_drop_ns: Option<u64>,
    /// Recoveries without a timeout, of all connections.
    pub recoveries: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Segments that one acknowledgment stood for in slow start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_per_ack: Option<f64>,
    /// Factor of the congestion window in a round trip of slow start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_growth: Option<f64>,
    /// The same by arithmetic, for a sender that counts acknowledgments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_growth_by_acks: Option<f64>,
    /// Rate of the sender's bus before overhead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus_bits_per_second: Option<u64>,
    /// Payload that this bus carries with the overhead of its transfers, by arithmetic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus_payload_bits_per_second: Option<u64>,
    /// Spacing of the captured data packets, by whom it was worked out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spacing: Vec<ModelSpacing>,
}

/// How data packets follow each other on the sender's line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSpacing {
    /// `goodput`, by the model's times, or `TShark`, by the capture's stamps.
    pub tool: String,
    /// Its command.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Data packets.
    pub packets: u64,
    /// Rate of the line.
    pub line_bits_per_second: u64,
    /// Octets that were to be between frames.
    pub octets_asked: Option<u32>,
    /// Fewest that were.
    pub octets_min: Option<f64>,
    /// Most that were.
    pub octets_max: Option<f64>,
    /// Largest difference from those asked for.
    pub octets_error_max: Option<f64>,
}

/// Where gaps stop losing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GapThreshold {
    /// Gap at which sender and bottleneck are even, by arithmetic.
    pub balanced_octets: Option<f64>,
    /// Largest simulated gap that lost at a queue.
    pub losing_octets: Option<u32>,
    /// Smallest simulated gap from which on none did.
    pub clean_octets: Option<u32>,
}
