//! What writing costs a host by declaration is the limit: it spends it by the clock, so nothing that a
//! kernel counts shows it but the pauses between its writes.

use throughput::{Cause, Finding, Host, Remedy};

use crate::case::Case;
use crate::confidence::{data, ramp};
use crate::declared::Part;
use crate::rules::clock_lines;
use crate::text;

/// The sender's declared cost, where goodput is what it allows and the path could carry more.
pub(crate) fn find(case: &Case<'_>) -> Option<Finding> {
    let bill = case.write_bill()?;
    let allowed = bill.rate(case.stream_count())?;
    let facts = case.facts;
    if facts.achievable.is_some_and(|possible| possible <= allowed) {
        return None;
    }
    let spent = facts.goodput.as_bits_per_second() as f64 / allowed.as_bits_per_second() as f64;
    // More than it allows: the sender is not the one that spends it.
    let holds =
        ramp(spent, SPENT_MIN, SPENT_ENOUGH) * (1.0 - ramp(spent, SPENT_MAX, SPENT_TOO_MUCH));
    let (most, place) = (bill.most(), case.host_name(Host::Sender));
    let mut evidence = vec![
        format!(
            "each write costs {place} {}, as it declares: {} = {allowed}",
            bill.parts_in_words(),
            bill.quotient(case.stream_count()),
        ),
        format!(
            "that cost took {} of its time",
            text::percent(spent.min(1.0))
        ),
    ];
    evidence.extend(clock_lines(case));
    Some(Finding {
        cause: Cause::DeclaredCost,
        title: format!(
            "The declared cost per {} on {place} allows {allowed}: {}{}",
            most.each(),
            facts.goodput,
            case.of_possible(),
        ),
        confidence: data(facts.intervals) * holds,
        share: spent.min(1.0),
        evidence,
        remedy: Some(Remedy::advice(
            advice(most),
            case.remedy_host(Host::Sender),
            "none for the network",
        )),
    })
}

/// A path that gives what it can, but for a declared cost that allows a little less.
pub(crate) fn beside(healthy: Finding, case: &Case<'_>) -> Finding {
    let bill = case.write_bill();
    let allowed = bill
        .as_ref()
        .and_then(|bill| bill.rate(case.stream_count()));
    let Some((bill, allowed)) = bill.as_ref().zip(allowed) else {
        return healthy;
    };
    let place = case.host_name(Host::Sender);
    let each = bill.most().each();
    Finding {
        title: format!(
            "{}; the limit is the declared cost per {each} on {place}, which allows {allowed}",
            healthy.title
        ),
        ..healthy
    }
}

const fn advice(most: Part) -> &'static str {
    match most {
        Part::Call => "Write more at once: the call costs the same however much it takes",
        Part::Packets => "Use larger packets (MTU), or a host on which a packet costs less",
        Part::Bytes => "Use a host that copies faster, or one that does not copy",
        Part::Pages => "Use larger pages, or writes that fill the pages that they begin",
    }
}

/// A sender that spends less of its time on writing is held by something else; chosen.
const SPENT_MIN: f64 = 0.75;
const SPENT_ENOUGH: f64 = 0.9;
/// The start of a transfer fills a buffer that its end sends; beyond that the cost is not spent; chosen.
const SPENT_MAX: f64 = 1.1;
const SPENT_TOO_MUCH: f64 = 1.3;
