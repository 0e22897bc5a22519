//! A device between the hosts passes so many packets a second and no more: a firewall, most often.
//!
//! In one transfer it looks like random loss: packets are dropped though no link is full. The probe
//! with smaller segments and more streams tells (see [`crate::next_probe`]): packets a second stay
//! what they were. A line would have carried as many more as they are smaller, and losses at random
//! let each further stream bring its own. A host whose CPU is the limit looks the same, so busy
//! threads cost confidence. A device drops where its limit is: where packets were lost and far more came
//! through at another time, as of bursts at a short queue on a long path whose window still grows, it is
//! none, and the probe's rate a chance. An interface that drops for want of CPU is not told apart.

use throughput::{Cause, Finding, Probe, ProbeKind, Remedy, RemedyHost};
use units::Rate;

use crate::case::Case;
use crate::confidence::{data, ramp};
use crate::facts::ENOUGH_LOSSES;
use crate::probe::{LOSSES_MIN, cpu_of_a_stream};
use crate::text;

/// Loss at a packet rate that does not move with the packets' size.
pub(crate) fn find(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let is_segments = |p: &&Probe| matches!(p.kind, ProbeKind::Segments(_));
    let probe = case.evidence.probes.iter().find(is_segments)?;
    let before = facts.packets_per_second;
    // A window that grows slowly meets few of the device's drops; the probe's streams meet more.
    let enough = facts.lost_segments() >= LOSSES_MIN && probe.lost_segments >= ENOUGH_LOSSES;
    if !enough || before <= 0.0 || probe.segment_bytes == 0 {
        return None;
    }
    let smaller = facts.mss_bytes as f64 / probe.segment_bytes as f64;
    let more = probe.packets_per_second / before;
    if smaller < SMALLER_MIN || !more.is_finite() {
        return None;
    }
    let share = facts.attributed_or_network().network;
    let same = ramp(more, 0.5, 0.8) * (1.0 - ramp(more, MORE_FULL, SMALLER_MIN));
    let cpu = cpu_of_a_stream(case.evidence).unwrap_or(0.0);
    let idle_hosts = 1.0 - 0.6 * ramp(cpu.max(probe.cpu.unwrap_or(0.0)), 0.7, 0.95);
    let at_limit = 1.0 - ramp(facts.lost_below_peak.unwrap_or(0.0), 0.3, 0.7);
    let confidence = data(facts.intervals) * same * idle_hosts * at_limit * ramp(share, 0.2, 0.5);
    let limit = packets(before.max(probe.packets_per_second));
    Some(Finding {
        cause: Cause::PacketRate,
        title: format!(
            "A device between the hosts, such as a firewall, passes about {limit} packets/s whatever \
             their size: {}{}",
            facts.goodput,
            case.of_possible(),
        ),
        confidence,
        share,
        evidence: evidence(case, probe, smaller, more),
        remedy: Some(remedy(case)),
    })
}

fn evidence(case: &Case<'_>, probe: &Probe, smaller: f64, more: f64) -> Vec<String> {
    let facts = case.facts;
    let line = |streams: usize, bytes: u64, a_second: f64, rate: Rate| {
        let streams = text::plural(u64::try_from(streams).unwrap_or(u64::MAX), "stream");
        let a_second = packets(a_second);
        format!("{streams} of {bytes}-byte segments: {a_second} packets/s arrived, {rate}")
    };
    let mut lines = vec![
        line(
            facts.streams,
            facts.mss_bytes,
            facts.packets_per_second,
            facts.goodput,
        ),
        line(
            usize::from(probe.streams),
            probe.segment_bytes,
            probe.packets_per_second,
            probe.goodput,
        ),
        format!(
            "{more:.2} times the packets; a full line would carry {smaller:.1} times as many, and \
             random loss would let more streams bring more"
        ),
        format!(
            "{} of {} segments lost, {} of {} in the probe (tcpi_total_retrans)",
            facts.lost_segments(),
            facts.sent_segments,
            probe.lost_segments,
            probe.sent_segments,
        ),
    ];
    if let Some(below) = facts.lost_below_peak.filter(|&share| share > 0.0) {
        lines.push(format!(
            "of the seconds with a loss {} had fewer than three quarters of the packets that came \
             through in the fastest",
            text::percent(below)
        ));
    }
    if let Some(share) = facts.utilisation().filter(|_| facts.bottleneck_known) {
        let share = text::percent(share);
        lines.push(format!(
            "no link is full: this is {share} of what the slowest carries"
        ));
    }
    if let Some(cpu) = cpu_of_a_stream(case.evidence) {
        let cpu = text::percent(cpu.max(probe.cpu.unwrap_or(0.0)));
        lines.push(format!(
            "the hosts had time: at most {cpu} of a CPU for each stream"
        ));
    }
    lines
}

/// Nothing at the hosts: more streams, buffers or another congestion control send no fewer packets.
fn remedy(case: &Case<'_>) -> Remedy {
    let facts = case.facts;
    let needed = facts.achievable.map_or_else(String::new, |rate| {
        let a_second = rate.as_bits_per_second() as f64 / 8.0 / facts.mss_bytes.max(1) as f64;
        format!("; {rate} takes {} packets/s", packets(a_second))
    });
    Remedy {
        summary: format!("Upgrade or bypass what counts packets between the hosts{needed}"),
        host: RemedyHost::Network,
        sysctl: Vec::new(),
        flags: Vec::new(),
        settings: Vec::new(),
        predicted: None,
        predicted_from: None,
        cost: "none for the hosts: nothing is to be set there".to_owned(),
    }
}

/// Two or three digits: `45,000`.
fn packets(a_second: f64) -> String {
    let unit = 10_f64.powf((a_second.max(1.0).log10().floor() - 2.0).max(0.0));
    text::grouped(&format!("{:.0}", (a_second / unit).round() * unit))
}

/// Segments that are hardly smaller prove nothing: half the size is the least.
const SMALLER_MIN: f64 = 1.95;

/// One stream leaves a third of a device's packets unused after its losses, which more streams then
/// take; up to so many times the packets are the device's still.
const MORE_FULL: f64 = 1.5;
