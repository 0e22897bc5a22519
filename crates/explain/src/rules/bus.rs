//! The sending host's bus takes no more: what lies between its memory and its interface.
//!
//! Data waits, congestion window and peer's window have room, no pace holds it, nothing is lost and no
//! queue grows on the path: the packets are late before they reach the line. Which part of the host it is, no
//! counter of TCP tells; so the rule speaks only where the machine states its bus's rate and frames fill most of it.
//!
//! What is left out: an interface, driver or queueing discipline that is slower than its bus, and a receiver's
//! bus, which drops.

use throughput::{Cause, Finding, Host, Remedy};
use units::Rate;

use crate::case::Case;
use crate::confidence::{data, ramp};
use crate::facts::ENOUGH_LOSSES;
use crate::text;

/// The sending host between TCP and the line.
pub(crate) fn find(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let share = facts.held_below;
    let losses = facts.lost_segments() >= ENOUGH_LOSSES;
    if share < SHARE_MIN || losses || facts.pacing_cap.is_some() {
        return None;
    }
    // What small queues let wait in the host is no queue on the path.
    let delay = facts.queue_delay() - facts.host_wait;
    let waited = delay.as_ns() as f64 / facts.queue_mark().as_ns().max(1) as f64;
    let calm = 1.0 - ramp(waited, 0.5, 1.0);
    // Neither windows nor buffers nor the application are what the kernel's clocks name.
    let network = ramp(facts.attributed_or_network().network, 0.5, 0.8);
    let place = case.host_name(Host::Sender);
    let frames = frame_rate(case);
    let bus = case.evidence.sender.bus?;
    let filled = share_of(frames, bus);
    if !(BUS_FILLED..=1.0).contains(&filled) {
        return None;
    }
    let title = format!(
        "The bus of {place} is the limit, not the path, at {}{}: frames fill {} of its {bus}",
        facts.goodput,
        case.of_possible(),
        text::percent(filled),
    );
    let mut evidence = vec![format!(
        "in {} of the readings data waited (tcpi_notsent_bytes) while congestion window and peer's \
         window had room for an eighth more than was in flight (tcpi_snd_cwnd, tcpi_snd_wnd, \
         tcpi_unacked)",
        text::percent(share),
    )];
    if let Some(loaded) = facts.loaded_rtt {
        evidence.push(format!(
            "no queue on the path: the round trip is {loaded} under load and {} idle (tcpi_rtt), and \
             small queues let {} wait in the host (tcpi_pacing_rate / 1024)",
            facts.idle_rtt, facts.host_wait
        ));
    }
    evidence.push(format!(
        "{} lost of {} (tcpi_total_retrans)",
        text::plural(facts.lost_segments(), "segment"),
        facts.sent_segments
    ));
    evidence.push(format!(
        "frames take {frames} of the bus, which moves {bus} before the overhead of its transfers"
    ));
    Some(Finding {
        cause: Cause::HostBus,
        title,
        confidence: data(facts.intervals) * ramp(share, SHARE_MIN, 0.7) * calm * network,
        share,
        evidence,
        remedy: Some(Remedy::advice(
            "Use a slot or an interface with a faster bus (PCI Express in place of PCI-X, more lanes), \
             or longer transfers on it (larger packets, MMRBC)",
            case.remedy_host(Host::Sender),
            "hardware; and what the bus had paced then reaches the path in bursts",
        )),
    })
}

/// Goodput with the headers that cross the bus.
fn frame_rate(case: &Case<'_>) -> Rate {
    let mss = case.facts.mss_bytes.max(1);
    let bits = u128::from(case.facts.goodput.as_bits_per_second());
    let bits = bits * u128::from(mss.saturating_add(HEADERS_BYTES)) / u128::from(mss);
    Rate::from_bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX))
}

fn share_of(part: Rate, whole: Rate) -> f64 {
    part.as_bits_per_second() as f64 / whole.as_bits_per_second().max(1) as f64
}

/// Chosen.
const SHARE_MIN: f64 = 0.3;
/// 80 % of the raw bus is the worst burst efficiency of long transfers; less says nothing of a bus.
const BUS_FILLED: f64 = 0.75;
/// Ethernet, IPv4 and TCP with timestamps.
const HEADERS_BYTES: u64 = 66;
