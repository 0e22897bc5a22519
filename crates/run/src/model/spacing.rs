//! Packets at fine time, of `goodput explain --spacing`: parts of the key `trace` of `run.json`.

use serde::{Deserialize, Serialize};

/// When the packets of one direction of a connection came, behind each other and in sections of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceSpacing {
    /// Packets with payload.
    pub packets: u64,
    /// Octets of one on the wire, preamble and check sequence included: the size that most have. Gaps are
    /// those between two of this size.
    pub size_bytes: u32,
    /// Rate of the line, where it was told.
    pub line_bits_per_second: Option<u64>,
    /// All stamps are multiples of this.
    pub step_ns: u64,
    /// What two stamps may be wrong by against each other.
    pub error_ns: u64,
    /// A packet's own time on the wire; 0 where too few came to know.
    pub packet_time_ns: u64,
    /// The least difference between two gaps that is more than the stamps' doing.
    pub finest_ns: u64,
    /// Packets with a stamp before that of the packet before.
    pub backwards: u64,
    /// Gaps counted, each from one packet's stamp to the next's.
    pub gaps: u64,
    /// The shortest.
    pub gap_min_ns: Option<u64>,
    /// The median.
    pub gap_median_ns: Option<u64>,
    /// 99 of 100 are no longer.
    pub gap_p99_ns: Option<u64>,
    /// The longest.
    pub gap_max_ns: Option<u64>,
    /// Gaps around which many lie.
    pub modes: Vec<TraceMode>,
    /// Width of bins that was asked for.
    pub bin_ns: Option<u64>,
    /// Whether the stamps bear bins of that width.
    pub bin_borne: Option<bool>,
    /// Why not, where not.
    pub refused: Option<String>,
    /// All gaps: from, to, how many; wider the longer they are, and never finer than the stamps.
    pub bins: Vec<(u64, u64, u64)>,
    /// The gaps that are like most in bins of one width: the one asked for, or as fine as the stamps.
    pub fine: Vec<(u64, u64, u64)>,
    /// Packets one behind the other.
    pub bursts: TraceBursts,
    /// Rates in sections of each length asked for.
    pub sections: Vec<TraceSections>,
    /// Where in a round trip packets lie.
    pub phase: Option<TracePhase>,
    /// The ACKs of its data.
    pub acks: Option<TraceAcks>,
}

/// A receiver's packets without payload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceAcks {
    /// How many.
    pub packets: u64,
    /// The shortest gap from one to the next.
    pub gap_min_ns: Option<u64>,
    /// The median.
    pub gap_median_ns: Option<u64>,
    /// 99 of 100 are no longer.
    pub gap_p99_ns: Option<u64>,
    /// The longest.
    pub gap_max_ns: Option<u64>,
    /// All gaps: from, to, how many; as those of the data.
    pub bins: Vec<(u64, u64, u64)>,
    /// Segments that one acknowledges on average, of those that acknowledge something new.
    pub segments_mean: Option<f64>,
    /// ACKs by what they acknowledge, a part of a segment counted as one: nothing new, 1 segment, 2, 3 to
    /// 4, 5 to 8, and so on.
    pub by_segments: Vec<u64>,
}

/// A gap around which many lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceMode {
    /// From one packet's stamp to the next's.
    pub gap_ns: u64,
    /// The same without the packet's own time at the line's rate, where that was told.
    pub idle_ns: Option<u64>,
    /// Share of all gaps, 0..=1.
    pub share: f64,
}

/// Bursts: packets without an idle time between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceBursts {
    /// The longest gap within a burst; 0 where too few packets came to know what is idle.
    pub limit_ns: u64,
    /// Bursts; a packet alone is one.
    pub bursts: u64,
    /// Packets of the longest.
    pub longest_packets: u64,
    /// Octets on the wire of the one with most.
    pub longest_bytes: u64,
    /// Packets of a burst, on average.
    pub mean_packets: f64,
    /// Rate on the wire within bursts of two packets and more.
    pub bits_per_second: u64,
    /// Bursts by their packets: 1, 2 to 3, 4 to 7, and so on.
    pub by_packets: Vec<u64>,
}

/// Payload in sections of one length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceSections {
    /// Of each, from the connection's first packet on.
    pub length_ns: u64,
    /// Why there are none, where there are none.
    pub refused: Option<String>,
    /// Whole sections; the last, cut one is none of them.
    pub sections: u64,
    /// Of these, with payload.
    pub busy: u64,
    /// The highest rate of one.
    pub peak_bits_per_second: u64,
    /// Where it begins, from the connection's first packet.
    pub peak_at_ns: u64,
    /// The median.
    pub median_bits_per_second: u64,
    /// The least.
    pub least_bits_per_second: u64,
}

/// Packets by their place within a round trip, all round trips together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracePhase {
    /// The round trip.
    pub rtt_ns: u64,
    /// Of each place.
    pub step_ns: u64,
    /// Packets with payload.
    pub data: Vec<u64>,
    /// Packets of the receiver without.
    pub acks: Vec<u64>,
    /// The least share of a round trip, in one piece, that holds half of the data: 0.5 where it lies evenly.
    pub data_half_share: Option<f64>,
    /// Of the ACKs.
    pub acks_half_share: Option<f64>,
}

/// Connections between the same two hosts at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceStreams {
    /// Address of the sender.
    pub sender: String,
    /// Of the receiver.
    pub receiver: String,
    /// Their numbers; rows and orders count places in this list.
    pub connections: Vec<u32>,
    /// The round trip that order is told within.
    pub rtt_ns: u64,
    /// Sections of it.
    pub section_ns: u64,
    /// Why no order is told, where none is.
    pub refused: Option<String>,
    /// Round trips in which any of them sent.
    pub rounds: u64,
    /// Share of round trips in which they came in the same order as in the one before, 0..=1.
    pub order_kept: Option<f64>,
    /// The first of these, at most 100: begin, from the first packet of all, and the order.
    pub orders: Vec<(u64, Vec<u16>)>,
    /// Width of the columns that balance is told in.
    pub balance_ns: u64,
    /// Payload of the stream that sent least, as a share of the mean; absent where nobody sent.
    pub balance: Vec<Option<f64>>,
    /// The same over the whole time, 0..=1.
    pub balance_all: Option<f64>,
    /// Who sent when: the whole time, and some round trips of it.
    pub rasters: Vec<TraceRaster>,
}

/// Payload of each stream in columns of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceRaster {
    /// Begin, from the first packet of all streams.
    pub begins_ns: u64,
    /// Of each column.
    pub column_ns: u64,
    /// A row for each stream: bytes in each column.
    pub rows: Vec<Vec<u64>>,
}

/// What another program makes of the same packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceObserver {
    /// Its name and version.
    pub tool: String,
    /// What was run.
    pub command: String,
    /// Packets of the connections whose spacing is told, by its count.
    pub packets: u64,
    /// Packets whose frame number, time or payload differ, or that only one of both has.
    pub packets_differ: u64,
    /// Gaps from each data packet to the next, by its stamps.
    pub gaps: u64,
    /// Their sum.
    pub gap_sum_ns: u64,
    /// Gaps that differ.
    pub gaps_differ: u64,
    /// Sections with payload, of all lengths, by its stamps.
    pub sections: u64,
    /// Sections whose sum of payload differs.
    pub sections_differ: u64,
    /// Bursts, by its stamps.
    pub bursts: u64,
    /// Connections whose bursts differ in number or in the packets of the longest.
    pub bursts_differ: u64,
    /// Nothing differs, and there was something to compare.
    pub agrees: bool,
    /// Round trips of each connection by both; these do not count for `agrees`.
    pub round_trips: Vec<TraceRoundTrips>,
}

/// Round trips from the capture point to a receiver and back, by us and by another program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceRoundTrips {
    /// The connection's number.
    pub connection: u32,
    /// Ours.
    pub ours: TraceRoundTripSamples,
    /// Its own of what was sent once, by ACKs without SACK blocks.
    pub theirs: TraceRoundTripSamples,
    /// Further ones of it, of what was sent again: which of the two was acknowledged nobody knows.
    pub theirs_sent_again: u64,
    /// Further ones of it, by ACKs that show a hole.
    pub theirs_in_holes: u64,
    /// The least is the same to a microsecond, and the median to an eighth or 10 us.
    pub agrees: bool,
}

/// What is said of many round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceRoundTripSamples {
    /// How many.
    pub samples: u64,
    /// The least.
    pub min_ns: u64,
    /// The middle one.
    pub median_ns: u64,
    /// 95 of 100 are no longer.
    pub p95_ns: u64,
}
