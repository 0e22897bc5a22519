//! Parallel streams at a queue, and a path that is held full.

use serde::{Deserialize, Serialize};

/// How parallel streams fared at the queue that served most, by a lab's packet log: bytes on the wire,
/// retransmissions included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Balance {
    /// Link with the queue.
    pub link: String,
    /// From the first to the last packet served.
    pub time_ns: u64,
    /// Streams in the order of their first packets.
    pub streams: Vec<BalancedStream>,
    /// Their numbers in the order of their bursts, in the round trip in which the first was lost: `0,2,1,3`, or
    /// a dash.
    pub burst_order: String,
    /// In the order in which each first lost.
    pub loss_order: String,
    /// All of them lost, each in the reverse of the order of the bursts.
    pub reverse_loss_order: bool,
    /// From the first loss of the first stream that lost to that of the last; absent where not all lost.
    pub first_losses_apart_ns: Option<u64>,
    /// Bytes on the wire of all streams a second, from the first to the last.
    pub wire_bits_per_second: u64,
    /// The least stream's bytes over the mean.
    pub min_to_mean: f64,
    /// Jain's index of fairness of the bytes.
    pub jain: f64,
    /// The same in sections of time.
    pub sections: Vec<BalanceSections>,
    /// Size of a file that is striped over all streams alike, if one was asked for.
    pub striped_bytes: Option<u64>,
    /// When the last stream had moved its part of it; absent where one did not.
    pub striped_ns: Option<u64>,
    /// From the host's hand to the queue, mean: what a harmonizer and lines before it add.
    pub to_queue_mean_ns: u64,
    /// The longest.
    pub to_queue_max_ns: u64,
    /// Decisions and frames that the log lacks since its writer was behind.
    pub log_missing: u64,
}

/// One stream at the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BalancedStream {
    /// Its hash in the log.
    pub flow: u32,
    /// Served.
    pub wire_bytes: u64,
    /// Segments lost at the queue.
    pub lost_segments: u64,
    /// When the first was lost, after the first packet of all.
    pub first_lost_ns: Option<u64>,
    /// When it had moved its part of the striped file.
    pub striped_ns: Option<u64>,
}

/// Streams over sections of one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BalanceSections {
    /// Of each.
    pub length_ns: u64,
    /// Median of the least stream over the mean.
    pub min_to_mean_median: f64,
    /// Median of Jain's index.
    pub jain_median: f64,
}

/// How full a path was held (`measure --fill`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fill {
    /// Trains of datagrams that found the rate, in the order sent.
    pub trains: Vec<FillTrain>,
    /// Rate on the wire that was found: packets a second times MTU and Ethernet's 38 bytes around it.
    pub found_bits_per_second: u64,
    /// TCP payload of it.
    pub found_payload_bits_per_second: u64,
    /// What was chosen and why, a sentence each.
    pub chosen: Vec<String>,
    /// Ceiling of each stream.
    pub pacing_bits_per_second: u64,
    /// TCP payload that the path can carry: of the path file's rate in a lab, else of what was found.
    pub achievable_payload_bits_per_second: u64,
    /// Payload received a second after the ramp, per cent of that.
    pub achieved_percent: f64,
    /// The same of the slowest second after the ramp.
    pub achieved_least_second_percent: f64,
    /// What the payload took on the wire, frames and gaps included.
    pub raw_bits_per_second: u64,
    /// What stood in the way, a sentence each; empty where 99 % were reached.
    pub in_the_way: Vec<String>,
}

/// A train of datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FillTrain {
    /// Payload asked for a second.
    pub rate_bits_per_second: u64,
    /// Payload sent a second.
    pub sent_bits_per_second: u64,
    /// Payload received a second, in the later half.
    pub received_bits_per_second: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Of these, thrown away by the receiver's kernel for want of room in the socket's buffer.
    pub receiver_dropped: u64,
    /// Whether the lab kept up meanwhile, where a lab carried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab_trusted: Option<bool>,
}
