//! Any bytes as `run.json`: what reads is drawn, as page and as text, without a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use report::model::Run;

fuzz_target!(|bytes: &[u8]| {
    let Ok(run) = serde_json::from_slice::<Run>(bytes) else {
        return;
    };
    let page = report::render(&run, &[], &[]);
    assert!(!page.contains("<script"));
    let _ = report::terminal::summary(&run, &[], true, 80);
});
