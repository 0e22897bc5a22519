//! Any bytes as a job that comes to a daemon, in the place of a right job's paths, names and
//! fields: it is taken or refused in words, nothing in the served folder or beside it changes, and
//! who may only read does not write.

#![no_main]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::LazyLock;

use copy::task::daemon::takes;
use copy::{Confined, task::job::Job};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const RIGHT: &str = include_str!("../copy_job.json");

static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = std::env::temp_dir().join(format!("goodput-fuzz-daemon-{}", std::process::id()));
    fs::create_dir_all(place.join("served/folder")).unwrap();
    fs::write(place.join("served/file"), "text").unwrap();
    fs::write(place.join("secret"), "secret").unwrap();
    symlink("..", place.join("served/leads-out")).unwrap();
    place
});

fn names(at: &str) -> usize {
    fs::read_dir(PLACE.join(at)).unwrap().count()
}

fn check(served: &Confined, line: &[u8]) {
    for is_writable in [false, true] {
        let taken = takes(served, is_writable, line);
        if taken.is_ok() && !is_writable {
            let job = serde_json::to_value(Job::read(line).unwrap()).unwrap();
            assert!(job["is_source"] == true || job["dry"] == true);
        }
    }
    assert_eq!([names("."), names("served"), names("served/folder")], [2, 3, 0]);
}

fuzz_target!(|bytes: &[u8]| {
    let served = Confined::open(&PLACE.join("served")).unwrap();
    check(&served, bytes);
    let right: serde_json::Map<String, Value> = serde_json::from_str(RIGHT).unwrap();
    let Some((which, text)) = bytes.split_first() else {
        return;
    };
    // A path below the folder, or what leads out of it.
    let mut job = right.clone();
    job["paths"] = serde_json::json!([text]);
    job["is_source"] = (which % 2 == 0).into();
    check(&served, &serde_json::to_vec(&job).unwrap());
    let mut job = right;
    let field = usize::from(*which) % job.len();
    if let (Some(field), Ok(value)) = (job.values_mut().nth(field), serde_json::from_slice(text)) {
        *field = value;
        check(&served, &serde_json::to_vec(&job).unwrap());
    }
});
