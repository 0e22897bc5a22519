//! A pace that the sender was told is a limit; one that it found is a result.

use throughput::Cause;

use crate::scenario::Scenario;
#[allow(dead_code, reason = "the grid's")]
use explain::{Evidence, diagnose};

#[test]
fn a_pace_that_was_set_is_the_applications_and_one_that_was_found_is_not() {
    let scenario = Scenario {
        goodput: "96Mb/s",
        max_pacing_bytes_per_second: 12_500_000,
        ..Scenario::default()
    };
    let blamed = |finds_pace| {
        let evidence = Evidence {
            finds_pace,
            ..scenario.evidence()
        };
        let found = diagnose(&evidence);
        found.findings.iter().any(|f| f.cause == Cause::Application)
    };
    assert!(blamed(false));
    assert!(!blamed(true));
}
