//! Short transfers beside the measurement, made to tell causes apart that look alike in one reading.
//!
//! * **Smaller segments** over more streams. A line carries bits: segments of half the size come
//!   through twice as fast. A firewall that handles packets carries as many as before. Losses at
//!   random hold each stream by itself, so that more streams bring more packets.
//! * **A pace** below the bottleneck's rate. Losses at random stay as frequent; those of bursts at a
//!   short queue are gone.
//!
//! Only transfers that lost packets and that the network held back are worth one. What is left out:
//! which device it is, and a limit on packets that never drops one, only delays.

use throughput::{Cause, Probe, ProbeKind};
use units::{Duration, Rate};

use crate::diagnose::Diagnosis;
use crate::evidence::Evidence;
use crate::facts::Facts;

/// A transfer to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// What it varies.
    pub kind: ProbeKind,
    /// Connections, 1..=128.
    pub streams: u16,
    /// Time to send for.
    pub duration: Duration,
    /// Start that does not count; shorter than `duration`.
    pub ramp: Duration,
}

impl ProbePlan {
    /// The numbers of the probe once it was made, from its own evidence.
    pub fn outcome(&self, evidence: &Evidence) -> Probe {
        let facts = Facts::of(evidence);
        Probe {
            kind: self.kind,
            streams: self.streams,
            segment_bytes: facts.mss_bytes,
            goodput: facts.goodput,
            packets_per_second: facts.packets_per_second,
            sent_segments: facts.sent_segments,
            lost_segments: facts.lost_segments(),
            loss_intervals: facts.loss_intervals,
            cpu: cpu_of_a_stream(evidence),
        }
    }
}

/// The probe that would say most about a transfer, beside those that were tried, whether they came to
/// anything or not; `None` when no further one would.
pub fn next_probe(diagnosis: &Diagnosis, tried: &[ProbePlan]) -> Option<ProbePlan> {
    let facts = &diagnosis.facts;
    let cause = diagnosis.verdict.cause?;
    let network = matches!(
        cause,
        Cause::Loss | Cause::ShallowQueue | Cause::NetworkUnknown
    );
    // A full bottleneck of a rate that nobody stated may be one that counts packets.
    let full = cause == Cause::BottleneckReached && !facts.bottleneck_known;
    if !(network || full) || facts.lost_segments() < LOSSES_MIN {
        return None;
    }
    let was_tried = |name: &str| tried.iter().any(|p| p.kind.name() == name);
    let smaller = || segments(facts).filter(|_| !was_tried("segments"));
    let slower = || paced(facts).filter(|_| network && !was_tried("paced"));
    smaller().or_else(slower)
}

/// CPU of the busier end, shared by the connections.
pub(crate) fn cpu_of_a_stream(evidence: &Evidence) -> Option<f64> {
    let busier = evidence.sender_cpu?.max(evidence.receiver_cpu?);
    let streams = evidence.streams.len().max(1) as f64;
    (busier.is_finite()).then_some(busier / streams)
}

fn segments(facts: &Facts) -> Option<ProbePlan> {
    let whole = facts.mss_bytes.saturating_add(TIMESTAMPS_BYTES);
    let bytes = if whole >= 2 * ETHERNET_MSS_BYTES {
        ETHERNET_MSS_BYTES
    } else {
        whole / 2
    };
    let bytes = u16::try_from(bytes).ok().filter(|&b| b >= SEGMENT_MIN)?;
    let streams = u16::try_from(facts.streams.max(1)).unwrap_or(u16::MAX);
    let rtts = |n: u64| Duration::from_ns(facts.idle_rtt.as_ns().saturating_mul(n));
    let ramp = rtts(20).clamp(SECOND, RAMP_MAX);
    Some(ProbePlan {
        kind: ProbeKind::Segments(bytes),
        streams: streams.saturating_mul(STREAMS_FACTOR).min(STREAMS_MAX),
        duration: ramp + rtts(20).clamp(COUNTED_MIN, RAMP_MAX),
        ramp,
    })
}

/// A pace well above what the transfer got and below the bottleneck, for as long as the losses seen
/// would need to show several times; none where that is too long or there is no such pace.
fn paced(facts: &Facts) -> Option<ProbePlan> {
    let got = facts.goodput.as_bits_per_second();
    let twice = got.saturating_mul(2);
    let below = facts.achievable.filter(|_| facts.bottleneck_known);
    let rate = below.map_or(twice, |rate| twice.min(rate.as_bits_per_second() / 5 * 4));
    if rate < (got / 10).saturating_mul(13) || facts.sent_segments == 0 || facts.mss_bytes == 0 {
        return None;
    }
    let losses_a_segment = facts.loss_intervals as f64 / facts.sent_segments as f64;
    let segments_a_second = rate as f64 / 8.0 / facts.mss_bytes as f64;
    let needed = EXPECTED_LOSSES / (losses_a_segment * segments_a_second);
    if needed.is_nan() || needed > COUNTED_MAX.as_s_f64() {
        return None;
    }
    let ramp = Duration::from_ns(facts.idle_rtt.as_ns().saturating_mul(15));
    let ramp = ramp.clamp(SECOND, RAMP_MAX);
    Some(ProbePlan {
        kind: ProbeKind::Paced(Rate::from_bits_per_second(rate)),
        streams: u16::try_from(facts.streams)
            .unwrap_or(STREAMS_MAX)
            .clamp(1, STREAMS_MAX),
        duration: ramp + throughput::models::seconds(needed).max(COUNTED_MIN),
        ramp,
    })
}

/// One loss is an accident, two are worth a few seconds.
pub(crate) const LOSSES_MIN: u64 = 2;

/// RFC 7323, appendix A: the option and its padding.
const TIMESTAMPS_BYTES: u64 = 12;

/// Segment of a 1500-byte packet over IPv4.
const ETHERNET_MSS_BYTES: u64 = 1_460;

/// Smaller segments are mostly headers; chosen.
const SEGMENT_MIN: u16 = 300;

/// So many more streams that losses at random show as many more packets, clearly above the factor of
/// two that half the size brings at a line; chosen.
const STREAMS_FACTOR: u16 = 4;

/// As `measure` allows.
const STREAMS_MAX: u16 = 128;

/// Losses that a pace must have had the chance to meet: none in six is no chance (e^-6).
const EXPECTED_LOSSES: f64 = 6.0;

const SECOND: Duration = Duration::from_s(1);
/// Twenty readings of 100 ms.
const COUNTED_MIN: Duration = Duration::from_s(2);
const COUNTED_MAX: Duration = Duration::from_s(15);
/// Slow start over 300 ms takes 4 s; longer probes are no longer short.
const RAMP_MAX: Duration = Duration::from_s(6);
