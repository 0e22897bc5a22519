//! What `goodput explain` finds in captures: the key `trace` of `run.json`.

use serde::{Deserialize, Serialize};

use super::pair::{TraceLog, TracePair};
use super::{TraceObserver, TraceSpacing, TraceStreams};

/// Captures read, and the connections in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// What was read, in the order given.
    pub files: Vec<TraceFile>,
    /// What is wrong with the captures as such, in sentences without a stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Packets in all files.
    pub packets: u64,
    /// Of these, TCP.
    pub tcp_packets: u64,
    /// Of the packets, ones of which nothing is known: with headers that were cut or contradict
    /// themselves, encrypted, of a link type that is not read.
    pub unreadable_packets: u64,
    /// What packets are that are not TCP, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<TraceOther>,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Packets that were put together of them.
    pub reassembled_packets: u64,
    /// Packets of which fragments are missing.
    pub incomplete_packets: u64,
    /// TCP connections.
    pub connections_seen: u64,
    /// Of these, ones that carried payload.
    pub connections_with_data: u64,
    /// Connections given up before their end, for want of room: more than a million at a time.
    pub connections_evicted: u64,
    /// SYNs not yet answered and forgotten, for want of room: more than 131,072 at a time.
    pub half_open_dropped: u64,
    /// Connections of which only the first packets were analysed, for want of room: more than
    /// 131,072 long ones at a time.
    pub connections_incomplete: u64,
    /// Servers that refused connections or did not answer, those with most connections first, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmade: Vec<TraceUnmade>,
    /// Payload that all of them carried.
    pub payload_bytes: u64,
    /// Payload that they would have carried at their own best rate.
    pub lost_bytes: u64,
    /// Those that lost most, at most 200.
    pub connections: Vec<TraceConnection>,
    /// Rows of the tables in the run folder, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_rows: Option<TraceTables>,
    /// What two of the captures say together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<TracePair>,
    /// What logs of a lab say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<TraceLog>,
    /// Parallel streams among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<TraceStreams>,
    /// What another program makes of the spacing, if one was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer: Option<TraceObserver>,
}

/// Packets of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceOther {
    /// The kind: a protocol, a link type, what is wrong with them.
    pub what: String,
    /// How many.
    pub packets: u64,
}

/// Connections that a server did not take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceUnmade {
    /// Its address and port.
    pub server: String,
    /// `refused` (it answered SYNs with RST) or `unanswered`.
    pub how: String,
    /// How many.
    pub connections: u64,
}

/// Rows of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceTables {
    /// Of `connections.parquet`.
    pub connections: u64,
    /// Of `intervals.parquet`.
    pub intervals: u64,
}

/// One capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceFile {
    /// Its name, without folders.
    pub name: String,
    /// Packets.
    pub packets: u64,
    /// Time of the first, RFC 3339 UTC; absent without packets.
    pub begins_utc: Option<String>,
    /// From the first packet to the last.
    pub span_ns: u64,
    /// Names of its interfaces.
    pub interfaces: Vec<String>,
    /// Packets that the capturing host dropped, where the file says.
    pub dropped: Option<u64>,
    /// Why reading ended before the file's end, where it did.
    pub stopped: Option<String>,
    /// Where: bytes from its beginning.
    pub stopped_at_byte: Option<u64>,
}

/// One direction of a connection: the one that carried more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceConnection {
    /// From 1, the one that lost most.
    pub number: u32,
    /// Place in `files`.
    pub file: u32,
    /// Interface within it.
    pub interface: u32,
    /// Address and port of the side that sent.
    pub sender: String,
    /// Of the other.
    pub receiver: String,
    /// Number of its first packet, as Wireshark counts.
    pub first_frame: u64,
    /// Its time, from the capture's first packet.
    pub begins_ns: u64,
    /// From its first packet to its last.
    pub lasts_ns: u64,
    /// `syn` or `midway`: whether its beginning was captured.
    pub begun: String,
    /// `open`, `fin`, `reset`, `replaced`, `idle`, `unanswered`, `evicted`.
    pub ended: String,
    /// Address and port of the side that reset it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_by: Option<String>,
    /// Time that counts: without handshake and what follows the sender's FIN.
    pub active_ns: u64,
    /// Payload, each byte once.
    pub payload_bytes: u64,
    /// Payload of the other direction.
    pub reverse_payload_bytes: u64,
    /// Payload acknowledged a second of the time that counts.
    pub goodput_bits_per_second: u64,
    /// Highest rate over two round trips, where it lasted long enough.
    pub best_bits_per_second: Option<u64>,
    /// What it would have carried more at that rate.
    pub lost_bytes: u64,
    /// Why it was no faster, in a sentence.
    pub sentence: String,
    /// Main cause, as in `findings.json`.
    pub cause: Option<String>,
    /// How sure that is, 0..=1.
    pub confidence: f64,
    /// Share of the time that was waited for each, largest first.
    pub shares: Vec<TraceShare>,
    /// What the capture lacks, doubles or gets wrong of it, in sentences without a stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Requests and answers, where both sides sent in turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<TraceTurns>,
    /// Where it was captured: `near_sender`, `near_receiver`, `between`.
    pub captured: Option<String>,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// Packets with payload; a super-packet is one.
    pub data_packets: u64,
    /// Packets with more payload than a segment has.
    pub super_packets: u64,
    /// Segments with payload as they are on the wire.
    #[serde(default)]
    pub wire_segments: u64,
    /// What was sent again.
    pub retransmissions: TraceRetransmissions,
    /// Data packets that came behind ones that were sent later.
    pub out_of_order: u64,
    /// Duplicate ACKs of the receiver.
    pub duplicate_acks: u64,
    /// Times that the receiver closed its window, and for how long in all.
    pub zero_windows: u64,
    /// See there.
    pub zero_window_ns: u64,
    /// Round trip of the handshake.
    pub handshake_ns: Option<u64>,
    /// Least round trip, from the capture point to both ends.
    pub rtt_min_ns: Option<u64>,
    /// From the capture point to the receiver and back: median.
    pub rtt_median_ns: Option<u64>,
    /// The longest.
    pub rtt_max_ns: Option<u64>,
    /// Most that was in flight.
    pub flight_bytes_max: u64,
    /// On average.
    pub flight_bytes_mean: u64,
    /// Median of the windows that the receiver offered.
    pub window_bytes_median: u64,
    /// Both ends agreed on window scaling; absent where the SYNs were not captured.
    pub window_scaling: Option<bool>,
    /// Both ends agreed on SACK, by what was captured.
    pub sack: bool,
    /// Data packets that had met congestion (ECN CE).
    pub ce_packets: u64,
    /// Its course; of the first 20 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<TraceSlices>,
    /// When its packets came, if that was asked for; of the first 20 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spacing: Option<TraceSpacing>,
    /// Time-sequence graphs, the whole first; of the first 8 only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<TraceGraph>,
}

/// Requests and answers: messages of a side that the other side's data acknowledge as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceTurns {
    /// Who asked: address and port.
    pub client: String,
    /// Messages of the client.
    pub requests: u64,
    /// Messages of the server.
    pub answers: u64,
    /// Their payload, the middle one's.
    pub request_bytes_median: u64,
    /// See there.
    pub answer_bytes_median: u64,
    /// Payload of the client in all.
    pub request_bytes: u64,
    /// Payload of the server in all.
    pub answer_bytes: u64,
    /// Time that the client's application took before its messages, the path left out.
    pub client_ns: u64,
    /// Time that the server's application took before its messages, the path left out.
    pub server_ns: u64,
    /// The same, the middle one.
    pub server_ns_median: u64,
    /// Time on the path between messages.
    pub on_path_ns: u64,
}

/// Time that was waited for one thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceShare {
    /// `application`, `receive_window`, `zero_window`, `slow_start`, `loss_window`, `sender_window`,
    /// `bottleneck`, `pacing`, `recovery_timeout`, `congestion_window`, `unknown` of the sender;
    /// `setup`, `client`, `server`, `round_trips`, `nagle`, `outage`, `sending`,
    /// `other_direction`.
    pub limit: String,
    /// 0..=1.
    pub share: f64,
}

/// Packets sent again, by why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceRetransmissions {
    /// After duplicate ACKs or SACK evidence.
    pub fast: u64,
    /// After a timeout.
    pub timeout: u64,
    /// As a tail loss probe.
    pub tail_probe: u64,
    /// Nothing tells why.
    pub other: u64,
    /// Of all these, ones whose original was not captured: lost before the capture point.
    pub original_unseen: u64,
    /// Of all these, ones that were not needed.
    pub spurious: u64,
}

/// The course of a connection in slices of one width. The lists have the same length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceSlices {
    /// Begin of the first, from the capture's first packet.
    pub begins_ns: u64,
    /// Of each.
    pub width_ns: u64,
    /// Payload sent.
    pub sent_bytes: Vec<u64>,
    /// Payload acknowledged.
    pub acked_bytes: Vec<u64>,
    /// Packets sent again.
    pub retransmitted: Vec<u32>,
    /// Mean round trip from the capture point to the receiver; absent where none was seen.
    pub rtt_ns: Vec<Option<u64>>,
    /// Most in flight.
    pub flight_bytes: Vec<u64>,
    /// Smallest window that the receiver offered; absent where it offered none.
    pub window_bytes: Vec<Option<u64>>,
    /// The limit that had most of the slice.
    pub limits: Vec<String>,
}

/// A time-sequence graph in columns. Numbers of bytes count from the connection's first sequence number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceGraph {
    /// What it shows.
    pub title: String,
    /// Begin, from the capture's first packet.
    pub begins_ns: u64,
    /// Of each column.
    pub column_ns: u64,
    /// Columns.
    pub columns: u32,
    /// Data: column, first byte, first byte beyond.
    pub sent: Vec<(u32, u64, u64)>,
    /// Data sent again, likewise.
    pub again: Vec<(u32, u64, u64)>,
    /// Data that the receiver reported as received out of order, likewise.
    pub sacked: Vec<(u32, u64, u64)>,
    /// Column and first byte not acknowledged, where it changed.
    pub acknowledged: Vec<(u32, u64)>,
    /// Column and first byte beyond the receive window, where it changed.
    pub edge: Vec<(u32, u64)>,
}
