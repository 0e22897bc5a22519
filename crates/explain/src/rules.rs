//! The rules: each looks at the facts and stays silent or speaks for one cause.
//!
//! A rule knows nothing of the others; what two of them claim is settled by order alone
//! (conclusive before others, then confidence times share). The exceptions are a path that gives what it can: then there is nothing
//! to mend, and no other rule is asked but for a declared cost just below the path's rate, which the finding
//! then names; a device that counts packets, once it is proved: its drops are
//! then no random loss, and no short queue, and what helps against those would not help; a host without CPU
//! time, which makes its windows and its application look small; and a declared cost of writing, which
//! looks like an application that has nothing to send.

mod acks;
mod application;
mod bottleneck;
mod bus;
mod declared;
mod host;
mod loss;
mod packets;
mod short;
mod window;

use throughput::{Cause, Finding};

use crate::case::Case;
use crate::confidence::CONCLUSIVE;
use crate::text;

/// Everything that limits, the most important first.
pub(crate) fn findings(case: &Case<'_>) -> Vec<Finding> {
    if let Some(healthy) = bottleneck::reached(case) {
        let cost = declared::find(case).filter(|cost| cost.confidence >= CONCLUSIVE);
        return match cost {
            Some(cost) => vec![declared::beside(healthy, case), cost],
            None => vec![healthy],
        };
    }
    let rules = [
        window::find,
        loss::find,
        bottleneck::shallow_queue,
        bottleneck::inferred,
        application::idle_sender,
        application::paced_sender,
        application::slow_reader,
        application::late_reader,
        short::slow_start,
        short::still_growing,
    ];
    let mut findings: Vec<Finding> = rules.iter().filter_map(|rule| rule(case)).collect();
    if let Some(device) = packets::find(case) {
        if device.confidence >= CONCLUSIVE {
            findings.retain(|f| !explains_network(f.cause));
        }
        findings.push(device);
    }
    if let Some(acks) = acks::find(case) {
        if acks.confidence >= CONCLUSIVE {
            // That is why it was too short.
            findings.retain(|f| f.cause != Cause::ShortTransfer);
        }
        findings.push(acks);
    }
    if let Some(bus) = bus::find(case) {
        if bus.confidence >= CONCLUSIVE {
            // The path is not asked for more, and the windows have room.
            findings.retain(|f| !explains_network(f.cause) && !host::is_symptom(f.cause));
        }
        findings.push(bus);
    }
    if let Some(limit) = host::find(case) {
        if limit.confidence >= CONCLUSIVE {
            findings.retain(|f| !host::is_symptom(f.cause) || f.weight() > limit.weight());
        }
        findings.push(limit);
    }
    if let Some(cost) = declared::find(case) {
        if cost.confidence >= CONCLUSIVE {
            // It pauses to spend the cost, not for want of data.
            findings.retain(|f| f.cause != Cause::Application);
        }
        findings.push(cost);
    }
    let explained = |f: &Finding| {
        let own = matches!(
            f.cause,
            Cause::DeclaredCost | Cause::HostBus | Cause::ThinnedAcks
        );
        (explains_network(f.cause) || own) && f.weight() >= EXPLAINS
    };
    if !findings.iter().any(explained) {
        findings.extend(bottleneck::unknown(case));
    }
    findings.retain(|f| f.weight() >= WORTH_NAMING);
    findings.sort_by(|a, b| {
        let is_sure = |f: &Finding| f.confidence >= CONCLUSIVE;
        (is_sure(b).cmp(&is_sure(a)))
            .then(b.weight().total_cmp(&a.weight()))
            .then(a.cause.cmp(&b.cause))
    });
    findings
}

const fn explains_network(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::PacketRate
            | Cause::Loss
            | Cause::ShallowQueue
            | Cause::BottleneckReached
            | Cause::ShortTransfer
    )
}

/// What the kernel's clocks say, and what the app-limited mark adds.
fn clock_lines(case: &Case<'_>) -> Vec<String> {
    let facts = case.facts;
    let Some(shares) = facts.shares else {
        return Vec::new();
    };
    let mut lines = vec![format!(
        "of the sender's time the receive window took {} (tcpi_rwnd_limited), the send buffer {} \
         (tcpi_sndbuf_limited), the network {} (the rest of tcpi_busy_time), the application {}",
        text::percent(shares.receive_window),
        text::percent(shares.send_buffer),
        text::percent(shares.network),
        text::percent(shares.application),
    )];
    if facts.starved * shares.network > MOVED_WORTH_SAYING {
        let gained = facts
            .attributed
            .is_some_and(|a| a.send_buffer > shares.send_buffer);
        let to = if gained { "send buffer" } else { "application" };
        lines.push(format!(
            "in {} of the readings nothing waited to be sent and the windows had room: so much of \
             the network's share counts as the {to}'s",
            text::percent(facts.starved),
        ));
    }
    lines
}

/// Less moved time than this changes no number that a reader sees; chosen.
const MOVED_WORTH_SAYING: f64 = 0.01;

/// From this weight on a finding spares the reader "nothing says why"; chosen.
const EXPLAINS: f64 = 0.2;

/// Findings that weigh less than this (confidence times share) are noise; chosen.
const WORTH_NAMING: f64 = 0.05;
