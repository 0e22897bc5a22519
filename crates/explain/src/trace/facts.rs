//! What is told of a connection when it has ended.

use units::{Duration, Instant};
use wire::segment::FlowKey;

use crate::trace::histogram::Spread;
use crate::trace::limits::{LimitTime, RoundTotals};
use crate::trace::silence::Silences;
use crate::trace::slices::Slices;
use crate::trace::turns::TurnFacts;

/// A connection as seen at one interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// Its endpoints, the lower first.
    pub flow: FlowKey,
    /// The capture's interface.
    pub interface: u32,
    /// Its first packet.
    pub first: Mark,
    /// Its last one.
    pub last: Mark,
    /// Whether its begin was seen.
    pub start: Start,
    /// How it ended.
    pub end: End,
    /// How it was made.
    pub setup: Setup,
    /// From the SYN to the SYN-ACK, as seen at the capture point.
    pub handshake_to_server: Option<Duration>,
    /// From the SYN-ACK to the ACK.
    pub handshake_to_client: Option<Duration>,
    /// SACK agreed on (RFC 2018), by what was seen of both SYNs.
    pub sack: bool,
    /// Timestamps agreed on (RFC 7323); in mid-connection, seen from both sides.
    pub timestamps: bool,
    /// False where there was no memory for more than its first packets: then all but the ends, the
    /// number of packets and the payload is of these only.
    pub complete: bool,
    /// What the lower endpoint sent, then what the higher one did.
    pub sides: [SideFacts; 2],
    /// Of each side: times without a packet of its peer while data were unacknowledged.
    pub silences: [Silences; 2],
    /// Messages of each side, and who was waited for before them; absent where one side alone sent, without
    /// a pause.
    pub turns: Option<Box<[TurnFacts; 2]>>,
    /// Packets that no TCP of this connection can have sent: far off its numbers.
    pub strays: u64,
    /// Packets older than the packet before; each was taken as if of the same time.
    pub time_steps_back: u64,
}

impl Connection {
    /// Messages of one side, and who was waited for before them.
    pub fn turns(&self, side: usize) -> &TurnFacts {
        let both = self.turns.as_deref();
        both.and_then(|turns| turns.get(side))
            .unwrap_or(&TurnFacts::NONE)
    }

    /// The side that opened it, 0 or 1; where nobody saw that, the one with the higher port.
    pub fn client(&self) -> u8 {
        match self.start {
            Start::Syn { by } => by.min(1),
            Start::Midway => u8::from(self.flow.ports[1] > self.flow.ports[0]),
        }
    }
}

/// How a connection was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// From the first SYN to the first packet behind the handshake; `None` where either was not seen.
    pub time: Option<Duration>,
    /// From the last SYN before it that was answered.
    pub last_try: Option<Duration>,
    /// ACKs that answered a SYN with numbers of an earlier connection (RFC 9293 section 3.5.2).
    pub challenges: u64,
}

/// A packet's place in the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When it was seen.
    pub time: Instant,
    /// Its number.
    pub frame: u64,
}

/// Whether a connection's begin was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Its SYN was; this side sent it.
    Syn {
        /// 0 or 1.
        by: u8,
    },
    /// The capture began later, or missed the SYN. Windows are unscaled then, and are not judged.
    #[default]
    Midway,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It did not before the capture's end.
    #[default]
    Open,
    /// Both sides sent FIN.
    Fin,
    /// This side sent RST.
    Reset {
        /// 0 or 1.
        by: u8,
    },
    /// A SYN with another number took its ports.
    Replaced,
    /// Nothing came for the idle limit.
    Idle,
    /// It never got beyond SYNs.
    Unanswered,
    /// It was given up for others' sake: more connections than the tracker holds.
    Evicted,
}

/// Where the packets were seen, between the sender of one direction and its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// Less than a tenth of the round trip lies on the sender's side.
    NearSender,
    /// Less than a tenth lies on the receiver's side.
    NearReceiver,
    /// Neither.
    Between,
}

/// Segments of a kind, and their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many packets; a super-packet is one.
    pub segments: u64,
    /// Their payload, as far as it was not new.
    pub bytes: u64,
}

/// What is sent once more, by what made the sender do so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmissions {
    /// After three duplicate ACKs or SACK evidence, and the rest of such a recovery.
    pub fast: Counted,
    /// After a silence of 200 ms or the estimated timeout (RFC 6298), and the rest of its recovery.
    pub timeout: Counted,
    /// The last segment, after some two round trips of silence (RFC 8985 section 7).
    pub tail_probe: Counted,
    /// Nothing tells why.
    pub other: Counted,
    /// Of all these, ones whose original was never seen: lost before the capture point.
    pub original_unseen: Counted,
    /// Of all these, ones that were not needed: the ACK echoes an earlier time (RFC 3522) or a DSACK
    /// says so (RFC 2883).
    pub spurious: u64,
}

/// What one side sent and how. All counts are of packets as captured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideFacts {
    /// Packets.
    pub packets: u64,
    /// Of these, with payload that is the application's.
    pub data_segments: u64,
    /// Payload of all its packets but RSTs and strays.
    pub payload_bytes: u64,
    /// Of this, sequence space seen for the first time: the application's bytes.
    pub unique_bytes: u64,
    /// Of this, what was seen before: retransmitted, doubled, probes.
    pub repeated_bytes: u64,
    /// The peer acknowledged these, but they were not seen: the capture missed them, or they took
    /// another way.
    pub unseen_bytes: u64,
    /// Payload that the peer acknowledged.
    pub acked_bytes: u64,
    /// Packets with ACK and no payload.
    pub pure_acks: u64,
    /// ACKs of something new.
    pub progress_acks: u64,
    /// Duplicate ACKs (RFC 5681).
    pub duplicate_acks: u64,
    /// Packets with PSH.
    pub pushes: u64,
    /// Packets with more payload than a segment: the sender's host or the capturing one put them
    /// together.
    pub super_packets: u64,
    /// Segments with payload as they are on the wire: super-packets count as what they are cut into.
    pub wire_segments: u64,
    /// Packets that say they understand ECN.
    pub ect: u64,
    /// Packets marked as having met congestion.
    pub ce: u64,
    /// Most bytes sent and not acknowledged, at the capture point.
    pub flight_bytes_max: u64,
    /// Largest payload of a packet.
    pub payload_bytes_max: u32,
    /// SYNs.
    pub syns: u64,
    /// Of these, not the first.
    pub syns_repeated: u64,
    /// FINs, repeated ones too.
    pub fins: u64,
    /// RSTs.
    pub resets: u64,
    /// Largest segment that it takes, as its SYN says.
    pub mss: Option<u16>,
    /// Payload of a full segment that it sends, as agreed or as seen.
    pub segment_bytes: u32,
    /// Window that its SYN offered, unscaled.
    pub syn_window: Option<u16>,
    /// Shift of its window, as its SYN says; in effect only if both said one.
    pub window_scale: Option<u8>,
    /// What it sent once more.
    pub retransmissions: Retransmissions,
    /// Packets that were captured twice; the second ones count nowhere else.
    pub duplicates: u64,
    /// Most time between the two.
    pub duplicates_apart_max: Duration,
    /// Segments that arrived after ones that were sent later.
    pub out_of_order: u64,
    /// Most data segments that overtook one.
    pub reordering_segments_max: u64,
    /// Longest time by which one came late.
    pub reordering_time_max: Duration,
    /// SACK blocks, DSACKs excluded.
    pub sack_blocks: u64,
    /// DSACKs (RFC 2883).
    pub dsacks: u64,
    /// ACKs of nothing new with another window.
    pub window_updates: u64,
    /// Times that its window closed.
    pub zero_windows: u64,
    /// How long it was closed in all.
    pub zero_window_time: Duration,
    /// Windows that it offered, scaled.
    pub window_bytes: Spread,
    /// Segments of the peer's data for each of its ACKs of something new.
    pub segments_per_ack: f64,
    /// Keep-alives that it sent.
    pub keep_alives: u64,
    /// Zero-window probes that it sent.
    pub window_probes: u64,
    /// Packets with ECE, SYNs excluded.
    pub ece: u64,
    /// Packets with CWR, SYNs excluded.
    pub cwr: u64,
    /// Bytes in flight, mean over the time since its first data.
    pub flight_bytes_mean: u64,
    /// From the capture point to this side and back: the peer's data until this side's ACK, no
    /// retransmissions (Karn), handshake included.
    pub rtt_ack_ns: Spread,
    /// The same by timestamps: until this side echoes the peer's.
    pub rtt_timestamp_ns: Spread,
    /// Times that all was acknowledged and nothing new came for more than a round trip and 1 ms.
    pub idle_periods: u64,
    /// How long they were in all.
    pub idle_time: Duration,
    /// The longest.
    pub idle_time_max: Duration,
    /// Where its data was seen; `None` without a round trip to either side.
    pub capture_point: Option<CapturePoint>,
    /// Round trip between the capture point and the receiver of its data, the least seen.
    pub rtt_ahead: Option<Duration>,
    /// Round trip between the capture point and itself, the least seen.
    pub rtt_behind: Option<Duration>,
    /// What kept it from sending, longest first; empty without data. The times add up to the
    /// connection's.
    pub limits: Vec<LimitTime>,
    /// Sent and not acknowledged at the end.
    pub unacked_bytes: u64,
    /// Largest payload of a segment of which it is known that it came through, and of any.
    pub passed_bytes_max: u32,
    /// See there; no more than a full segment's.
    pub tried_bytes_max: u32,
    /// Sums over its round trips, so that thresholds can be judged anew.
    pub rounds: RoundTotals,
    /// Its course over time; `None` without data.
    pub slices: Option<Slices>,
}

impl Retransmissions {
    /// All segments sent once more.
    pub fn segments(&self) -> u64 {
        self.kinds().iter().map(|k| k.segments).sum()
    }

    /// Their payload that was not new.
    pub fn bytes(&self) -> u64 {
        self.kinds().iter().map(|k| k.bytes).sum()
    }

    fn kinds(&self) -> [Counted; 4] {
        [self.fast, self.timeout, self.tail_probe, self.other]
    }
}

impl Counted {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.segments += 1;
        self.bytes += bytes;
    }
}
