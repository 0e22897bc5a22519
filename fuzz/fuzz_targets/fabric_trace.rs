//! Any text as a trace of messages: refused with one of its lines, or messages that can be sent in their order.

#![no_main]

use cluster::trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match trace::parse(text) {
    Ok(found) => {
        assert!(!found.is_empty() && found.len() <= trace::RECORDS_MAX);
        for (n, record) in found.iter().enumerate() {
            assert!(record.bytes > 0 && record.from != record.to);
            if let Some(after) = record.after {
                assert!((after as usize) < n);
                assert_eq!(found[after as usize].to, record.from);
            }
        }
    }
    Err(error) => {
        assert!(error.line >= 1 && error.line <= text.lines().count().max(1));
        assert!(error.problem.len() < 400);
    }
});
