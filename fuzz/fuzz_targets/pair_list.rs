//! Any text as a list of pairs and as what a cluster's benchmark printed: refused with one of its lines, or every rank in one
//! pair at most; and a square of numbers, or nothing.

#![no_main]

use std::collections::BTreeSet;

use cluster::pairs::{PlanError, listed, rotations};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let names: Vec<String> = (0..8).map(|n| format!("n{n:02}")).collect();
    match listed(text, &names) {
        Ok(round) => {
            let busy: BTreeSet<usize> = round.iter().flat_map(|f| [f.from, f.to]).collect();
            assert!(!round.is_empty() && busy.len() == 2 * round.len());
            assert!(busy.iter().all(|rank| *rank < names.len()));
        }
        Err(PlanError::Line { line, .. }) => {
            assert!(line >= 1 && line <= text.lines().count());
        }
        Err(_) => {}
    }
    if let Some(found) = rotations(text) {
        assert!(!found.is_empty() && found.iter().all(|pairs| pairs.len() == found.len()));
    }
});
