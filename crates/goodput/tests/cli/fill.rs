//! Streams at a lab's queue, and a path that is held full.

use serde_json::Value;

use crate::support::{Scratch, lab_alone};

const LINE: &str = r#"
title = "A line of 50 Mb/s"
[hosts.near]
[hosts.far]
[links.line]
between = ["near", "far"]
rate = "50Mb/s"
delay = "5ms"
queue = "100kB"
"#;

fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[test]
fn the_balance_of_streams_at_a_queue_is_in_the_run() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let target = format!("lab:{}", scratch.write("line.toml", LINE).display());
    let mut command = scratch.goodput(&["measure", &target, "--streams", "3", "-d", "1s"]);
    command.args(["--balance", "--striped", "300kB"]);
    let ended = scratch.run(command);
    // 1: the lab fell behind.
    assert!([0, 1].contains(&ended.code()), "{ended:#?}");
    assert!(
        ended.stdout.contains("3 streams through line"),
        "{ended:#?}"
    );
    let run = scratch.run_json();
    let balance = &run["balance"];
    let streams = balance["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 3, "{balance:#}");
    let bytes: Vec<f64> = streams.iter().map(|s| number(s, "wire_bytes")).collect();
    // What was received came through the queue.
    assert!(bytes.iter().sum::<f64>() >= number(&run["phases"][0], "bytes_received"));
    let least = bytes.iter().copied().min_by(f64::total_cmp).unwrap();
    let ratio = least * 3.0 / bytes.iter().sum::<f64>();
    assert!((number(balance, "min_to_mean") - ratio).abs() < 1e-9);
    assert_eq!(balance["sections"][0]["length_ns"], 300_000_000);
    let parts = streams
        .iter()
        .filter_map(|s| s["striped_ns"].as_u64())
        .max();
    assert!(balance["striped_ns"].is_null() || balance["striped_ns"].as_u64() == parts);
    scratch.assert_nothing_left();
}

#[test]
fn a_balance_wants_a_lab() {
    let scratch = Scratch::new();
    let command = scratch.goodput(&["measure", "127.0.0.1:1", "--balance"]);
    scratch.run(command).fails_with(2, &["name a lab path"]);
}

#[test]
fn a_path_is_filled_at_the_rate_that_trains_found() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let target = format!("lab:{}", scratch.write("line.toml", LINE).display());
    let args = ["measure", &target, "--fill", "-d", "2s", "--ramp", "500ms"];
    let ended = scratch.run(scratch.goodput(&args));
    // 1: the lab fell behind.
    assert!([0, 1].contains(&ended.code()), "{ended:#?}");
    assert!(ended.stdout.contains("of achievable for"), "{ended:#?}");
    let run = scratch.run_json();
    let fill = &run["fill"];
    // 16 Mb/s pass, 64 are too many, and the last is a little above what came.
    assert!(fill["trains"].as_array().unwrap().len() >= 3, "{fill:#}");
    assert_eq!(run["phases"][0]["streams"], 1);
    assert_eq!(run["phases"][0]["congestion_control"], "reno");
    // A queue lets out no more than the line's rate; a busy receiver may see less.
    assert!(number(fill, "found_bits_per_second") < 52e6, "{fill:#}");
    let ceiling = number(fill, "pacing_bits_per_second");
    assert!(ceiling < number(fill, "found_payload_bits_per_second"));
    let achieved = number(fill, "achieved_percent");
    assert!(number(fill, "achieved_least_second_percent") <= achieved);
    assert!(achieved >= 99.0 || !fill["in_the_way"].as_array().unwrap().is_empty());
    scratch.assert_nothing_left();
}
