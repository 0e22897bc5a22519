//! What two captures say together, and what a lab's log says: the keys `trace.pair` and `trace.logs` of
//! `run.json`.

use serde::{Deserialize, Serialize};

/// Two captures of one path, matched packet by packet. Of two values in a list the first is the near
/// capture's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracePair {
    /// Places in `files`: the capture named first, and the other one.
    pub files: Vec<u32>,
    /// Where segments were lost, in a sentence.
    pub sentence: String,
    /// TCP packets of each.
    pub packets: Vec<u64>,
    /// Of these, ones that the other has, too.
    pub matched: Vec<u64>,
    /// The far clock against the near one.
    pub clock: Option<TraceClock>,
    /// Delays between the two, of each direction that has any.
    pub delays: Vec<TraceDelay>,
    /// Data segments lost before the first capture that they would have passed.
    pub lost_before: u64,
    /// Between the two.
    pub lost_between: u64,
    /// Behind the second.
    pub lost_behind: u64,
    /// Sent again though nothing was lost.
    pub spurious: u64,
    /// Missing in one of the captures, but not lost.
    pub not_captured: u64,
    /// Of which nothing can be said.
    pub not_judged: u64,
    /// Packets without payload that were lost between the two, ACKs mostly.
    pub control_lost: u64,
    /// Connections that both have, at most 200, those first that lost most.
    pub connections: Vec<TracePairConnection>,
    /// Packets of connections for which there was no room.
    pub packets_left_out: u64,
    /// Addresses that were translated between the two, in a sentence; absent where none were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translated: Option<String>,
    /// These addresses, at most 200, those of most connections first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub translations: Vec<TraceTranslation>,
}

/// An address that became another one between two captures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceTranslation {
    /// In the near capture.
    pub near_address: String,
    /// In the far one; the same where only ports changed.
    pub far_address: String,
    /// Connections of which it is an end.
    pub connections: u64,
    /// Of these, ones whose port became another one, too.
    pub ports_changed: u64,
}

/// One clock against another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceClock {
    /// How far the far clock is ahead.
    pub offset_ns: f64,
    /// How far that may be off, either way.
    pub offset_uncertainty_ns: f64,
    /// Parts in a million by which it is faster.
    pub drift_ppm: Option<f64>,
    /// How far that may be off.
    pub drift_uncertainty_ppm: Option<f64>,
    /// Times that one of them was set.
    pub steps: u32,
    /// Least time from one capture to the other and back.
    pub round_trip_min_ns: i64,
}

/// Delays of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceDelay {
    /// To which capture: `far`, `near`.
    pub to: String,
    /// Packets that they are of.
    pub packets: u64,
    /// Least.
    pub min_ns: i64,
    /// Median.
    pub median_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// Largest.
    pub max_ns: i64,
}

/// A connection that both captures have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracePairConnection {
    /// Address and port of the end on the near capture's side.
    pub near_end: String,
    /// Of the other.
    pub far_end: String,
    /// Nothing told which end is on which side.
    pub side_assumed: bool,
    /// The two ends as the far capture has them, where they are translated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translated_ends: Option<Vec<String>>,
    /// First frame in each.
    pub first_frames: Vec<Option<u64>>,
    /// Directions that had packets.
    pub ways: Vec<TracePairWay>,
}

/// One direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracePairWay {
    /// Which end it leads to: `far`, `near`.
    pub to: String,
    /// Packets in each capture.
    pub packets: Vec<u64>,
    /// Of these, ones that the other has, too.
    pub matched: Vec<u64>,
    /// Payload at the first.
    pub bytes: u64,
    /// Data segments lost before the first.
    pub lost_before: u64,
    /// Between.
    pub lost_between: u64,
    /// Behind the second.
    pub lost_behind: u64,
    /// Sent again though nothing was lost.
    pub spurious: u64,
    /// In each capture: missing, but not lost.
    pub not_captured: Vec<u64>,
    /// Of which nothing can be said.
    pub not_judged: u64,
    /// Packets without payload lost between.
    pub control_lost: u64,
    /// In each capture: packets that it has once more.
    pub duplicates: Vec<u64>,
    /// Delay.
    pub delay: Option<TraceDelay>,
    /// Each loss, at most 1,000 of all connections.
    pub losses: Vec<TraceLoss>,
}

/// One loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceLoss {
    /// `before`, `between`, `behind`.
    pub place: String,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Payload.
    pub bytes: u64,
    /// Segments.
    pub segments: u64,
    /// The packet in each capture.
    pub frames: Vec<Option<u64>>,
    /// The one in its place that came through.
    pub repeat: Option<Vec<u64>>,
    /// What a lab's log says of it.
    pub reason: Option<String>,
}

/// What a lab's log says of TCP segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceLog {
    /// Place in `files`.
    pub file: u32,
    /// What was lost and why, in a sentence.
    pub sentence: String,
    /// Nothing is missing in it.
    pub complete: bool,
    /// TCP segments with payload that came in.
    pub data_segments: u64,
    /// Of these, ones that the lab lost.
    pub data_lost: u64,
    /// Segments without payload.
    pub control_segments: u64,
    /// Of these, ones that the lab lost.
    pub control_lost: u64,
    /// By direction of each connection and reason, at most 1,000.
    pub drops: Vec<TraceDrops>,
}

/// What one stage lost of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceDrops {
    /// Who sent it.
    pub sender: String,
    /// To whom.
    pub receiver: String,
    /// The decision, as in the log.
    pub decision: String,
    /// The link.
    pub link: String,
    /// The stage.
    pub stage: String,
    /// Segments with payload.
    pub data_segments: u64,
    /// Their payload.
    pub data_bytes: u64,
    /// Segments without.
    pub control_segments: u64,
}
