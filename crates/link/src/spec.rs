//! What one direction of a link is to do, as plain data, and the pipeline made of it.

use units::{Bytes, Duration, Rate};

use crate::queue::QueueLimits;

/// One direction of a link. The stages follow each other in the order of the fields.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    /// What a frame occupies on the medium.
    pub medium: Medium,
    /// Largest frame (network layer bytes) that passes; larger ones are lost and nobody is told.
    pub black_hole_above_bytes: Option<u32>,
    /// When the link is down.
    pub outages: Outages,
    /// Token bucket without a queue.
    pub policer: Option<PolicerSpec>,
    /// The same for each flow by itself.
    pub flow_cap: Option<PolicerSpec>,
    /// A host or box that handles so many packets a second, whatever their size.
    pub packet_budget: Option<PacketBudget>,
    /// What keeps parallel streams alike before they meet the queue.
    pub harmonizer: Option<HarmonizerSpec>,
    /// Queue and rate.
    pub rate: Option<RateSpec>,
    /// The rate is that of a medium which both ends share; both directions have this or none has.
    pub shared: Option<SharedSpec>,
    /// Losses after the rate: a lost frame has used its time on the wire.
    pub loss: Vec<LossSpec>,
    /// Share of the segments that get a second copy.
    pub duplicate: f64,
    /// Share of the segments of which one bit is flipped.
    pub corrupt: f64,
    /// One-way delay.
    pub delay: Duration,
    /// What is added to it at random.
    pub jitter: Option<JitterSpec>,
    /// The receiver's interrupt hold-off: neighbours are handed over together.
    pub coalesce: Option<CoalesceSpec>,
    /// Seed of the random stages; each stage has its own, derived from it and its place.
    pub seed: u64,
}

/// The sending end of a direction at a medium that it shares with the other end (IEEE 802.3 clause
/// 4): at least one of both is half duplex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSpec {
    /// How this end sends and receives.
    pub duplex: Duplex,
    /// Time that a signal takes from one end to the other, at least 1 ns; the same both ways.
    pub cable: Duration,
}

/// How an end of a cable takes the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplex {
    /// Waits while it hears the other, and stops when both send.
    Half,
    /// Sends when it likes and receives all the while.
    Full,
}

/// What a frame occupies on the medium beyond its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Preamble and start delimiter 8, check sequence 4, minimum frame 64 octets, and the gap (12 by the standard).
    Ethernet {
        /// Octets between frames.
        gap_bytes: u32,
    },
    /// 10GBASE-W (IEEE 802.3 clause 4.2.3.2.2 with ifsStretchRatio 104 bits): as Ethernet, and one
    /// octet more of gap for every 13 octets of preamble and frame; what is left over counts for the
    /// next frame ([`Stretch`]). Its rate is that of the LAN PHY.
    WanPhy {
        /// Octets between frames before the stretch.
        gap_bytes: u32,
    },
    /// The network layer's bytes alone.
    None,
}

/// A rate and the queue before it.
#[derive(Clone, Debug, PartialEq)]
pub struct RateSpec {
    /// How fast it serves.
    pub server: ServerSpec,
    /// What the queue holds.
    pub limits: QueueLimits,
    /// Who is served next and who is dropped.
    pub discipline: DisciplineSpec,
}

/// How fast a queue is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSpec {
    /// Wire bytes at a rate.
    Rate(Rate),
    /// Text of a mahimahi trace, checked.
    Trace(String),
}

/// Queueing discipline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DisciplineSpec {
    /// First in, first out; what finds no room is dropped. With a threshold, segments that find more
    /// than so many bytes waiting are marked where they are ECN-capable (as data centre switches do, RFC 8257).
    DropTail {
        /// Threshold in wire bytes.
        mark_above: Option<Bytes>,
    },
    /// Random early detection (Floyd and Jacobson 1993; RFC 2309), in bytes.
    Red {
        /// Average queue below which nothing is dropped.
        min: Bytes,
        /// Average queue above which (gently, up to twice it) everything is.
        max: Bytes,
        /// Probability at `max`, 0 to 1.
        probability: f64,
        /// Weight of a new sample in the average, 0 to 1.
        weight: f64,
        /// Mark instead of dropping.
        ecn: bool,
    },
    /// Controlled delay (RFC 8289).
    Codel(CodelSpec),
    /// Flow queue CoDel (RFC 8290).
    FqCodel {
        /// Of each queue.
        codel: CodelSpec,
        /// Number of queues.
        flows: u32,
        /// Bytes of a round of each queue.
        quantum_bytes: u32,
    },
}

/// CoDel's two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelSpec {
    /// Standing delay that is acceptable.
    pub target: Duration,
    /// Time over which it must be exceeded; a worst round trip.
    pub interval: Duration,
    /// Mark instead of dropping.
    pub ecn: bool,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicerSpec {
    /// At which tokens come.
    pub rate: Rate,
    /// Most that are saved up, wire bytes.
    pub burst: Bytes,
}

/// Packets a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketBudget {
    /// At least 1.
    pub per_second: u64,
    /// Packets that wait.
    pub queue_packets: u32,
}

/// A Stream Harmonizer for the flows of each group ([`Train::group`](crate::Train::group)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HarmonizerSpec {
    /// How it keeps them alike.
    pub mode: HarmonizerMode,
    /// Most bytes on the wire that it holds.
    pub memory: Bytes,
}

/// How a Stream Harmonizer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HarmonizerMode {
    /// Mixes the flows' packets.
    Shuffle {
        /// Over this time, above zero; a packet is delayed by less than twice as much.
        hold: Duration,
    },
    /// Delays the packets of the faster flows.
    Lengthen {
        /// The path's round trip without queues, above zero: what flows bring in it tells streams from
        /// requests.
        round_trip: Duration,
        /// Longest delay.
        delay_max: Duration,
        /// The bottleneck's, on the wire.
        rate: Rate,
    },
}

/// Why and how segments are lost.
#[derive(Clone, Debug, PartialEq)]
pub enum LossSpec {
    /// Each with this probability.
    Random(f64),
    /// Gilbert-Elliott: two states, entered with probability `enter` and left with `leave` before each
    /// segment; loss `good` in one and `bad` in the other (Elliott 1963).
    Burst {
        /// From good to bad.
        enter: f64,
        /// From bad to good.
        leave: f64,
        /// Loss in the good state.
        good: f64,
        /// Loss in the bad state.
        bad: f64,
    },
    /// Segments `offset`, `offset + every`, … counted from 1.
    Periodic {
        /// At least 1.
        every: u64,
        /// From 1.
        offset: u64,
    },
    /// These segments, counted from 1, ascending.
    Listed(Vec<u64>),
}

/// Times when the link is down, relative to the lab's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// From, until; ascending and apart.
    pub spans: Vec<(Duration, Duration)>,
    /// Down for the second of the two at the end of every period of the first.
    pub periodic: Option<(Duration, Duration)>,
}

/// Random delay beyond the constant one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JitterSpec {
    /// Largest (uniform), or standard deviation (normal, cut off at 0 and four deviations).
    pub amount: Duration,
    /// Its shape.
    pub shape: JitterShape,
    /// Of each draw with the one before, 0 to 1 (exclusive).
    pub correlation: f64,
    /// True: segments may overtake each other; false: one that would waits for its elder.
    pub reorder: bool,
}

/// Distribution of jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitterShape {
    /// Uniform from 0 to the amount.
    Uniform,
    /// |normal| with the amount as deviation.
    Normal,
}

/// Interrupt moderation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalesceSpec {
    /// The first segment waits at most this long.
    pub hold: Duration,
    /// Or until so many are there.
    pub packets: u32,
}

impl Default for DirectionSpec {
    fn default() -> Self {
        Self {
            medium: Medium::ETHERNET,
            black_hole_above_bytes: None,
            outages: Outages::default(),
            policer: None,
            flow_cap: None,
            packet_budget: None,
            harmonizer: None,
            rate: None,
            shared: None,
            loss: Vec::new(),
            duplicate: 0.0,
            corrupt: 0.0,
            delay: Duration::ZERO,
            jitter: None,
            coalesce: None,
            seed: 1,
        }
    }
}

impl HarmonizerSpec {
    /// No segment is held for longer.
    pub const fn delay_max(&self) -> Duration {
        match self.mode {
            HarmonizerMode::Shuffle { hold } => hold.saturating_mul(2),
            HarmonizerMode::Lengthen { delay_max, .. } => delay_max,
        }
    }
}

impl Medium {
    /// Ethernet with the standard's gap.
    pub const ETHERNET: Self = Self::Ethernet { gap_bytes: 12 };

    /// What a frame of `frame_bytes` (Ethernet header included, check sequence not) occupies, without
    /// what a WAN PHY has left over of the frames before.
    pub fn wire_bytes(self, frame_bytes: u32) -> u32 {
        let frame = with_preamble(frame_bytes);
        match self {
            Self::Ethernet { gap_bytes } => frame.saturating_add(gap_bytes),
            Self::WanPhy { gap_bytes } => frame
                .saturating_add(gap_bytes)
                .saturating_add(frame / STRETCH_OCTETS),
            Self::None => frame_bytes.saturating_sub(14).max(1),
        }
    }
}

/// The sender's count of a WAN PHY's stretch, which runs on from frame to frame (`ifsStretchCount`), so
/// that over many frames the gap grows by exactly a thirteenth of preamble and frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Octets that have made no octet of gap yet, 0 to 12.
    left_over: u32,
}

impl Stretch {
    /// What each of `count` frames of `frame_bytes` (as of [`Medium::wire_bytes`]) occupies, and how
    /// many of them, the last ones, take an octet more.
    pub fn wire_bytes(&mut self, medium: Medium, frame_bytes: u32, count: u16) -> (u32, u16) {
        let each = medium.wire_bytes(frame_bytes);
        if !matches!(medium, Medium::WanPhy { .. }) {
            return (each, 0);
        }
        let rest = with_preamble(frame_bytes) % STRETCH_OCTETS;
        let octets = self.left_over + rest * u32::from(count);
        self.left_over = octets % STRETCH_OCTETS;
        let longer = u16::try_from(octets / STRETCH_OCTETS).unwrap_or(count);
        (each, longer.min(count))
    }
}

/// Preamble, start delimiter and check sequence with it, and padded.
fn with_preamble(frame_bytes: u32) -> u32 {
    frame_bytes.saturating_add(4).max(64).saturating_add(8)
}

/// IEEE 802.3: ifsStretchRatio, 104 bits.
const STRETCH_OCTETS: u32 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wan_phy_carries_what_is_left_of_its_stretch() {
        let medium = Medium::WanPhy { gap_bytes: 12 };
        let mut stretch = Stretch::default();
        // 9,018 octets of frame and 8 of preamble: 694 4/13 octets of stretch.
        let mut octets = 0;
        for count in [1, 2, 1, 3, 6] {
            let (each, longer) = stretch.wire_bytes(medium, 9_014, count);
            assert_eq!(each, 9_026 + 12 + 694);
            octets += u32::from(count) * each + u32::from(longer);
        }
        assert_eq!(octets, 13 * (9_026 + 12) + 9_026);
        assert_eq!(stretch, Stretch::default());
    }

    #[test]
    fn other_media_stretch_nothing() {
        let mut stretch = Stretch::default();
        assert_eq!(stretch.wire_bytes(Medium::ETHERNET, 1_514, 40), (1_538, 0));
        assert_eq!(stretch, Stretch::default());
    }
}
