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
    assert_trains_follow_from_each_other(fill);
    assert_eq!(run["phases"][0]["streams"], 1);
    assert_eq!(run["phases"][0]["congestion_control"], "reno");
    let payload = number(fill, "found_payload_bits_per_second");
    let ceiling = number(fill, "pacing_bits_per_second");
    assert!(ceiling < payload && ceiling > 0.996 * payload, "{fill:#}");
    let achieved = number(fill, "achieved_percent");
    assert!(number(fill, "achieved_least_second_percent") <= achieved);
    assert!(achieved >= 99.0 || !fill["in_the_way"].as_array().unwrap().is_empty());
    scratch.assert_nothing_left();
}

/// Whatever the machine made of each train: the next one's rate and what was found follow from it.
fn assert_trains_follow_from_each_other(fill: &Value) {
    let trains = fill["trains"].as_array().unwrap();
    let [asked, sent, received] = ["rate", "sent", "received"].map(|what| {
        let key = format!("{what}_bits_per_second");
        let all = trains.iter().map(|t| t[&key].as_u64().unwrap());
        all.collect::<Vec<_>>()
    });
    let kept = |i: usize, rate: u64| rate * 100 >= asked[i] * 95;
    let whole = |&i: &usize| kept(i, sent[i]) && kept(i, received[i]);
    // The first that was not.
    let over = (0..trains.len()).take_while(whole).count();
    let (searching, last) = asked.split_at(over + 1);
    for (i, rate) in (0..).zip(searching) {
        assert_eq!(*rate, 16_000_000 * 4_u64.pow(i), "{fill:#}");
    }
    let came = *received[..=over].iter().max().unwrap();
    let above = if kept(over, sent[over]) { came / 16 } else { 0 };
    assert!((1..=3).contains(&last.len()), "{fill:#}");
    for rate in last {
        assert_eq!(*rate, (came + above).max(4_000_000), "{fill:#}");
    }
    // Datagrams of 1,472 B take 1,538 B of the line.
    let most = *received[over + 1..].iter().max().unwrap();
    assert_eq!(fill["found_bits_per_second"], most * 1_538 / 1_472);
    // A queue lets out the line's rate. A machine that is busy elsewhere says otherwise by some hundred
    // milliseconds of two seconds, where it does not even have time for the lab.
    let counts = trains
        .iter()
        .skip(over + 1)
        .all(|train| train["lab_trusted"] == true && train["receiver_dropped"] == 0);
    let sends = (over + 1..trains.len()).all(|i| kept(i, sent[i]));
    let found = number(fill, "found_bits_per_second");
    if counts && sends {
        assert!((35e6..70e6).contains(&found), "{fill:#}");
    }
}
