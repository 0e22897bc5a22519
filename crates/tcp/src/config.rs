//! What the two ends of a connection are told at their start.

use units::{Duration, Rate};

/// A sender's settings. The defaults are those of Linux 6.18.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderConfig {
    /// Payload bytes of a full segment.
    pub segment_bytes: u32,
    /// Most segments in flight that the send buffer holds.
    pub buffer_segments: u64,
    /// Bytes to send; `None`: without end.
    pub data_bytes: Option<u64>,
    /// Rate at which the application writes; `None`: it always has more.
    pub application_rate: Option<Rate>,
    /// Bytes of each of its writes; 0: as they come.
    pub application_block: u64,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// The window grows by acknowledgments, whatever each acknowledges (RFC 5681 before RFC 3465).
    pub counts_acks: bool,
    /// How slow start ends before the first loss.
    pub hystart: Hystart,
    /// What holds segments back beside the windows.
    pub pacing: Pacing,
    /// Initial window in segments (RFC 6928 section 2).
    pub initial_window: u64,
    /// Most bytes of a burst that is handed over at once; less than two segments' worth: one by one.
    pub burst_bytes: u32,
    /// Of what an algorithm draws: in which phase BBR begins to probe, how long BBR version 3 waits before it does.
    pub seed: u64,
    /// Both ends agreed on ECN (RFC 3168): queues may mark in place of dropping, and a mark counts as a loss.
    pub ecn: bool,
    /// BBR version 3 takes a round's losses for the path's own where they are 2 % or less and no queue is seen.
    pub forgives: bool,
    /// Segments of a FAST flow that wait in queues; 200 in the paper's experiments at 1 Gb/s.
    pub fast_alpha: u64,
}

/// A congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 5681 with the recovery of RFC 6582's successors: add one segment a round trip, halve.
    Reno,
    /// RFC 9438.
    Cubic,
    /// Kelly 2003: 1 in 100 for each segment, 1/8 at a loss.
    Scalable,
    /// BBR version 1, as Linux has it. It paces whatever [`Pacing`] says, and no faster than that.
    Bbr,
    /// BBR version 3 (draft-ietf-ccwg-bbr). It paces as version 1 does.
    Bbr3,
    /// Wei et al. 2006: keeps [`SenderConfig::fast_alpha`] segments in queues.
    Fast,
}

/// How slow start ends before a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hystart {
    /// By loss alone.
    Off,
    /// By trains of acknowledgments and by growing delay, as Linux's CUBIC.
    Linux,
    /// By growing delay, with a slower phase to make sure (RFC 9406).
    PlusPlus,
}

/// What holds segments back beside the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pacing {
    /// Nothing: what the windows allow leaves at once.
    Off,
    /// The rate of congestion window and round trip: twice that in slow start, 1.2 times after
    /// (Linux, net.ipv4.tcp_pacing_ss_ratio and tcp_pacing_ca_ratio).
    Window,
    /// The rate of congestion window and round trip itself, segment by segment (PSPacer: Takano et al.,
    /// PFLDnet 2005).
    WindowExact,
    /// At most this rate of payload, in bursts of about a millisecond (Linux, SO_MAX_PACING_RATE).
    Rate(Rate),
    /// This many octets between the end of a frame and the beginning of the next one, at the rate
    /// of the sender's line; `frame_bytes` is what a full segment takes on it without a gap.
    Gap {
        /// Octets, no fewer than the line's own.
        gap_bytes: u32,
        /// Octets of a full segment on the line.
        frame_bytes: u32,
        /// Of the line.
        line: Rate,
    },
}

/// A receiver's settings. The defaults are those of Linux 6.18.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Payload bytes of a full segment.
    pub segment_bytes: u32,
    /// Receive buffer at the start, bytes (net.ipv4.tcp_rmem, the second).
    pub buffer_bytes: u64,
    /// Largest that it grows to by itself, bytes (the third); the same or less: it does not.
    pub buffer_bytes_max: u64,
    /// An acknowledgment is held back at most this long.
    pub delay: Duration,
    /// Windows are scaled (RFC 7323); else 65,535 bytes is the most that can be told.
    pub scaling: bool,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1448,
            buffer_segments: u64::MAX / 4,
            data_bytes: None,
            application_rate: None,
            application_block: 0,
            algorithm: Algorithm::Cubic,
            counts_acks: false,
            hystart: Hystart::Linux,
            pacing: Pacing::Off,
            initial_window: 10,
            burst_bytes: 65_536,
            seed: 1,
            ecn: false,
            forgives: false,
            fast_alpha: 200,
        }
    }
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1448,
            buffer_bytes: 131_072,
            buffer_bytes_max: 6 << 20,
            delay: Duration::from_ms(40),
            scaling: true,
        }
    }
}

impl Algorithm {
    /// Its name in path files and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Scalable => "scalable",
            Self::Bbr => "bbr",
            Self::Bbr3 => "bbr3",
            Self::Fast => "fast",
        }
    }

    /// The algorithm of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }

    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Reno,
        Self::Cubic,
        Self::Scalable,
        Self::Bbr,
        Self::Bbr3,
        Self::Fast,
    ];
}
