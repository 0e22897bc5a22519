//! An application limits: the sender's has nothing to send or paces itself, or the receiver's does
//! not read.
//!
//! "Application-limited" names many things elsewhere; here it is the sender's time with nothing
//! outstanding, plus the starved part of its busy time (see [`crate::Facts`]).

use throughput::{Cause, Finding, Host, Remedy, RemedyHost};

use crate::case::Case;
use crate::confidence::{agreement, data, ramp};
use crate::remedy::Buffer;
use crate::text;

/// The sending application did not write enough: cipher, CPU, or think time.
pub(crate) fn idle_sender(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let (raw, shares) = (facts.shares?, facts.attributed?);
    let share = shares.application;
    if share < SHARE_MIN || is_paced(case) {
        return None;
    }
    let place = case.host_name(Host::Sender);
    let mut evidence = vec![
        format!(
            "{} of the time nothing was outstanding (elapsed less tcpi_busy_time)",
            text::percent(raw.application)
        ),
        format!(
            "in {} of the readings the delivery rate was marked app-limited with nothing waiting \
             and room in the congestion window",
            text::percent(facts.starved)
        ),
    ];
    evidence.extend(cpu_line(case.evidence.sender_cpu, place));
    Some(Finding {
        cause: Cause::Application,
        title: format!(
            "The application on {place} had nothing to send for {} of the time: {}{}",
            text::percent(share),
            facts.goodput,
            case.of_possible(),
        ),
        confidence: data(facts.intervals) * ramp(share, SHARE_MIN, 0.4),
        share,
        evidence,
        remedy: Some(host_remedy(
            "Look for what keeps the sender from writing: a busy CPU, a cipher, a rate limit of the application",
            case.remedy_host(Host::Sender),
        )),
    })
}

/// The sender was told to go no faster (SO_MAX_PACING_RATE).
pub(crate) fn paced_sender(case: &Case<'_>) -> Option<Finding> {
    let facts = case.facts;
    let cap = facts.pacing_cap.filter(|_| is_paced(case))?;
    let place = case.host_name(Host::Sender);
    let shares = facts.attributed_or_network();
    Some(Finding {
        cause: Cause::Application,
        title: format!(
            "The application on {place} asked for a pace of {cap}: {}{}",
            facts.goodput,
            case.of_possible(),
        ),
        confidence: data(facts.intervals),
        share: (shares.network + shares.application).min(1.0),
        evidence: vec![format!(
            "tcpi_max_pacing_rate of all connections makes {cap}; measured {}",
            facts.goodput
        )],
        remedy: Some(host_remedy(
            "Raise or leave out SO_MAX_PACING_RATE",
            case.remedy_host(Host::Sender),
        )),
    })
}

/// The receiving application leaves data in its buffer.
pub(crate) fn slow_reader(case: &Case<'_>) -> Option<Finding> {
    if !reads_slowly(case) {
        return None;
    }
    let (facts, window) = (case.facts, case.facts.peer_window?);
    let share = facts.attributed?.receive_window;
    let place = case.host_name(Host::Receiver);
    let mut evidence = vec![
        format!(
            "{} of the sender's time went to the receive window (tcpi_rwnd_limited)",
            text::percent(share)
        ),
        format!(
            "the window (tcpi_snd_wnd) closes: median {}, {} to {}",
            window.median, window.min, window.max
        ),
    ];
    if let Some(room) = case.window(Buffer::Receive) {
        evidence.push(format!("the receive buffer on {place} would allow {room}"));
    }
    evidence.extend(cpu_line(case.evidence.receiver_cpu, place));
    Some(Finding {
        cause: Cause::Application,
        title: format!(
            "The application on {place} reads too slowly: {}{}",
            facts.goodput,
            case.of_possible(),
        ),
        confidence: 0.9 * data(facts.intervals) * ramp(share, SHARE_MIN, 0.5),
        share,
        evidence,
        remedy: Some(host_remedy(
            "Look for what keeps the receiver from reading: a busy CPU, a cipher, a rate limit of the application",
            case.remedy_host(Host::Receiver),
        )),
    })
}

/// The receiving application reads, but late, so that its kernel never raised the buffer.
pub(crate) fn late_reader(case: &Case<'_>) -> Option<Finding> {
    let window = case.facts.peer_window.filter(|_| never_grew(case))?;
    let room = case.window(Buffer::Receive)?;
    let share = case.facts.attributed?.receive_window;
    let place = case.host_name(Host::Receiver);
    let mut evidence = vec![
        format!(
            "{} of the sender's time went to the receive window (tcpi_rwnd_limited)",
            text::percent(share)
        ),
        format!(
            "the window (tcpi_snd_wnd) stays: median {}, {} to {}; the receive buffer on {place} may grow to {room}",
            window.median, window.min, window.max
        ),
        "Linux raises it by what was read within a round trip, less what lies unread (tcp_rcv_space_adjust)".to_owned(),
    ];
    evidence.extend(cpu_line(case.evidence.receiver_cpu, place));
    Some(Finding {
        cause: Cause::Application,
        title: format!(
            "The application on {place} reads too late for its kernel to open the window beyond {}: {}{}",
            window.max,
            case.facts.goodput,
            case.of_possible(),
        ),
        confidence: 0.9 * data(case.facts.intervals) * ramp(share, SHARE_MIN, 0.5),
        share,
        evidence,
        remedy: Some(host_remedy(
            "Give the receiver's application CPU time: what else runs there, or its priority",
            case.remedy_host(Host::Receiver),
        )),
    })
}

/// True when the receive window limits at a small part of what its buffer may grow to, and does not move. Up to 64 KiB that
/// is what a box between the hosts makes of windows.
pub(crate) fn never_grew(case: &Case<'_>) -> bool {
    let (Some(window), Some(shares)) = (case.facts.peer_window, case.facts.attributed) else {
        return false;
    };
    let blamed = shares.receive_window >= SHARE_MIN && shares.receive_window > shares.send_buffer;
    let tunes = case.evidence.receiver.rcvbuf_fixed.is_none();
    let most = window.max.as_u64();
    let small = case
        .window(Buffer::Receive)
        .is_some_and(|room| most <= room.as_u64() / GREW_PART);
    blamed && tunes && small && most > u64::from(u16::MAX) + 1 && window.min.as_u64() >= most / 2
}

/// True when the window closes because data stays unread: it falls below a quarter of its own
/// largest, and the rate is well below what even the median window would carry.
///
/// A buffer that is merely small shows a steady window and a rate of one window a round trip.
pub(crate) fn reads_slowly(case: &Case<'_>) -> bool {
    let (Some(window), Some(shares)) = (case.facts.peer_window, case.facts.attributed) else {
        return false;
    };
    let blamed = shares.receive_window >= SHARE_MIN && shares.receive_window > shares.send_buffer;
    // A buffer whose size explains the rate needs no reader to blame.
    let room = case
        .window(Buffer::Receive)
        .and_then(|w| case.window_rate(w));
    let small = room.is_some_and(|rate| agreement(case.facts.goodput, rate) >= 0.5);
    let closes = window.min.as_u64() < window.max.as_u64() / 4;
    let opened_meanwhile = window.last.as_u64() / 2 > window.first.as_u64();
    let full = case
        .window_rate(window.max)
        .map_or(0, units::Rate::as_bits_per_second);
    let slower = case.facts.goodput.as_bits_per_second() < full / 2;
    blamed && !small && closes && slower && !opened_meanwhile
}

/// True when the application's own pace explains the rate: one that it set, not one that it found.
pub(crate) fn is_paced(case: &Case<'_>) -> bool {
    let cap = case.facts.pacing_cap.filter(|_| !case.evidence.finds_pace);
    cap.is_some_and(|cap| near(case, cap))
}

/// Goodput within 10 % of the cap, which counts headers as well.
fn near(case: &Case<'_>, cap: units::Rate) -> bool {
    case.facts.goodput.as_bits_per_second() >= cap.as_bits_per_second() / 10 * 9
}

fn cpu_line(cpu: Option<f64>, place: &str) -> Option<String> {
    let busy = cpu.filter(|c| c.is_finite())?;
    Some(format!(
        "the transfer's threads on {place} used {} of one CPU",
        text::percent(busy)
    ))
}

fn host_remedy(summary: &str, host: RemedyHost) -> Remedy {
    Remedy::advice(summary, host, "none for the network")
}

/// Below this share of the time an application is not worth a finding.
const SHARE_MIN: f64 = 0.1;
/// Of what the receive buffer allows: four doublings below it.
const GREW_PART: u64 = 16;
