//! From evidence to a diagnosis: the facts, the rules, and one sentence.

use throughput::shares::{self, Interval, Shares};
use throughput::{Cause, Finding, Verdict};
use units::Rate;

use crate::case::Case;
use crate::confidence::CONCLUSIVE;
use crate::evidence::Evidence;
use crate::facts::Facts;
use crate::rules;

/// What one transfer's evidence says.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// Where the sender's time went after the ramp, by the kernel's clocks; `None` when the kernel
    /// does not tell.
    pub shares: Option<Shares>,
    /// The same and more for every interval between readings, ramp included.
    pub intervals: Vec<Interval>,
    /// The numbers that the rules compared.
    pub facts: Facts,
    /// What limits, the most important first: conclusive ones before others, each by confidence times share.
    pub findings: Vec<Finding>,
    /// All of it in a sentence.
    pub verdict: Verdict,
}

/// What limited the transfer, how sure that is, and what to change.
///
/// Conclusive findings come before others, in the order of confidence times share. A path that carries what it can gets
/// exactly one, [`Cause::BottleneckReached`]; a lab that fell behind gets none, since then nothing
/// on the path may be blamed.
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    let facts = Facts::of(evidence);
    let mut findings = rules::findings(&Case {
        evidence,
        facts: &facts,
    });
    if obstacle(evidence, &facts, findings.first()).is_some() {
        findings.clear();
    }
    let verdict = verdict(evidence, &facts, &findings);
    Diagnosis {
        shares: facts.shares,
        intervals: shares::intervals_of_streams(&evidence.streams),
        facts,
        findings,
        verdict,
    }
}

/// Why no verdict can be given at all.
fn obstacle(evidence: &Evidence, facts: &Facts, main: Option<&Finding>) -> Option<&'static str> {
    let binds = |main| binds_all_the_same(evidence, facts, main);
    if evidence.lab_trusted == Some(false) && !main.is_some_and(binds) {
        return Some(
            "The lab fell behind, so this run says nothing about the path: \
             lower the path's rate or free the CPU, and run again",
        );
    }
    (facts.goodput == Rate::default())
        .then_some("No payload arrived, so there is nothing to explain")
}

/// Whether a buffer or a window limits the transfer whatever a late lab did: lateness makes round trips longer, no buffer
/// smaller, and without it the transfer would still be far below what the path can carry.
#[allow(clippy::cast_precision_loss, reason = "rates far below 2^53")]
fn binds_all_the_same(evidence: &Evidence, facts: &Facts, main: &Finding) -> bool {
    let is_window = matches!(main.cause, Cause::ReceiveWindow | Cause::SendBuffer);
    let (Some(slowed), Some(achievable)) = (evidence.lab_slowed, facts.achievable) else {
        return false;
    };
    let without_lab = facts.goodput.as_bits_per_second() as f64 * (1.0 + slowed);
    is_window
        && main.confidence >= CONCLUSIVE
        && without_lab < achievable.as_bits_per_second() as f64 * FAR_BELOW
}

fn verdict(evidence: &Evidence, facts: &Facts, findings: &[Finding]) -> Verdict {
    let without_cause = |sentence: String| Verdict {
        sentence,
        cause: None,
        healthy: false,
        conclusive: false,
    };
    if let Some(sentence) = obstacle(evidence, facts, findings.first()) {
        return without_cause(sentence.to_owned());
    }
    let Some(main) = findings.first() else {
        let goodput = facts.goodput;
        return without_cause(format!("Nothing explains why this transfer got {goodput}"));
    };
    // A transfer that was too short says nothing about the path's limit, however sure that is.
    let judges_path = !matches!(main.cause, Cause::ShortTransfer | Cause::NetworkUnknown);
    let sure = main.confidence >= CONCLUSIVE;
    let hedge = if sure || !judges_path {
        ""
    } else {
        "Not proven: "
    };
    Verdict {
        sentence: format!("{hedge}{}", sentence(main)),
        cause: Some(main.cause),
        healthy: sure && main.cause == Cause::BottleneckReached,
        conclusive: sure && judges_path,
    }
}

/// The main finding, what to do, and what that gives.
fn sentence(finding: &Finding) -> String {
    let title = &finding.title;
    let Some(remedy) = &finding.remedy else {
        return title.clone();
    };
    let action = lower_first(&remedy.summary);
    match remedy.predicted {
        Some(rate) => format!("{title}; {action}, for about {rate}"),
        None => format!("{title}; {action}"),
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

/// Of what the path can carry.
const FAR_BELOW: f64 = 0.8;
