//! Short transfers that tell causes apart, as they were made; `explain::next_probe` chooses them.

use units::Rate;

/// What a probe varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Segments of at most so many bytes, options included (TCP_MAXSEG).
    Segments(u16),
    /// All connections together are paced at this rate.
    Paced(Rate),
}

/// A probe that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// What it varied.
    pub kind: ProbeKind,
    /// Its connections.
    pub streams: u16,
    /// Payload of its segments in bytes.
    pub segment_bytes: u64,
    /// Payload received a second after its ramp.
    pub goodput: Rate,
    /// Data segments that arrived a second after its ramp.
    pub packets_per_second: f64,
    /// Data segments sent.
    pub sent_segments: u64,
    /// Of these, lost.
    pub lost_segments: u64,
    /// Intervals between readings with a loss.
    pub loss_intervals: u64,
    /// CPU of the busiest end's threads, one CPU a stream being 1; `None` when not known.
    pub cpu: Option<f64>,
}

impl ProbeKind {
    /// Machine-readable name, as in `run.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Segments(_) => "segments",
            Self::Paced(_) => "paced",
        }
    }
}
