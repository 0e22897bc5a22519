//! Any bytes as a job, and in the place of one of a right job's fields: what is read of one is
//! written again and reads the same, and what is not read is refused in words.

#![no_main]

use copy::task::job::Job;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const RIGHT: &str = include_str!("../copy_job.json");

fn check(line: &[u8]) {
    match Job::read(line) {
        Ok(job) => {
            let again = serde_json::to_vec(&job).unwrap();
            let again = serde_json::to_value(Job::read(&again).unwrap()).unwrap();
            assert_eq!(again, serde_json::to_value(&job).unwrap());
        }
        Err(no) => assert!(no.words().contains("goodput")),
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut right: serde_json::Map<String, Value> = serde_json::from_str(RIGHT).unwrap();
    assert!(Job::read(RIGHT.as_bytes()).is_ok());
    let Some((which, text)) = bytes.split_first() else {
        return;
    };
    let field = usize::from(*which) % right.len();
    let Some(field) = right.values_mut().nth(field) else {
        return;
    };
    *field = serde_json::from_slice(text)
        .unwrap_or_else(|_| Value::String(text.iter().copied().map(char::from).collect()));
    check(&serde_json::to_vec(&right).unwrap());
});
