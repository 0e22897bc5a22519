//! Latency as a user asks for it: messages, STAMP probes, round trips beside a transfer.
//!
//! The hosts of a lab share one clock, so the true offset is zero and the true delays are the path
//! file's: what is stated has to hold them within its own uncertainty, however busy the machine is.

use serde_json::Value;

use crate::far_end::address_of;
use crate::support::{Scratch, lab_alone};

/// 10 ms there and 60 ms back, and a tenth lost on the way there only.
const ONE_WAY_LOSS: &str = r#"
title = "A tenth is lost there, nothing on the way back"
[hosts.near]
[hosts.far]
[links.wan]
between = ["near", "far"]
[links.wan.forward]
delay = "10ms"
loss = 0.1
[links.wan.backward]
delay = "60ms"
"#;

/// A line with room for a queue of the length of its round trip.
const LINE: &str = r#"
title = "A line of 100 Mb/s"
[hosts.near]
[hosts.far]
[links.line]
between = ["near", "far"]
rate = "100Mb/s"
delay = "20ms"
queue = "500kB"
"#;

fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Asserts that clocks and delays hold the truth of a lab: no offset, no drift, these delays.
fn assert_true(told: &Value, forward_ms: f64, backward_ms: f64) {
    let clocks = &told["clocks"];
    let uncertainty = number(clocks, "offset_uncertainty_ns");
    let offset = number(clocks, "offset_ns");
    assert!(offset.abs() <= uncertainty, "{told:#}");
    let half = (forward_ms + backward_ms) / 2.0 * 1e6;
    assert!(uncertainty >= half, "better than can be known: {told:#}");
    let drift = number(clocks, "drift_ppm");
    assert!(
        drift.abs() <= number(clocks, "drift_uncertainty_ppm"),
        "{told:#}"
    );
    for (way, truth_ms) in [("forward", forward_ms), ("backward", backward_ms)] {
        let told_ns = number(&told[way], "min_ns");
        // A probe is never earlier than the path; how much later is the machine's affair.
        assert!(told_ns >= truth_ms * 1e6 - uncertainty, "{way}: {told:#}");
    }
    // The sum needs no agreement of clocks: never below the path's but for the stamps' errors.
    assert!(
        number(&told["round_trip"], "min_ns") >= 2.0 * half - 50_000.0,
        "{told:#}"
    );
}

#[test]
fn delays_of_an_asymmetric_route_are_within_the_stated_uncertainty() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let args = ["measure", "stamp://lab:asymmetric-route", "--json"];
    let mut command = scratch.goodput(&args);
    command.args(["--count", "400", "--interval", "10ms"]);
    let told = scratch.run(command).succeeds().json();
    assert_eq!(number(&told, "sent"), 400.0);
    assert_true(&told, 10.0, 60.0);
    scratch.assert_nothing_left();
}

#[test]
fn loss_is_booked_on_the_way_that_lost() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let file = scratch.write("loss.toml", ONE_WAY_LOSS);
    let target = format!("stamp://lab:{}", file.display());
    let mut command = scratch.goodput(&["measure", &target, "--json"]);
    command.args(["--count", "500", "--interval", "8ms"]);
    let told = scratch.run(command).succeeds().json();
    assert_true(&told, 10.0, 60.0);
    // The seed is fixed: some 50 of 500 are lost, and none of the answers is.
    let lost = number(&told, "forward_lost");
    assert!((10.0..200.0).contains(&lost), "{told:#}");
    assert_eq!(number(&told, "backward_lost"), 0.0, "{told:#}");
    let somewhere = number(&told, "lost_somewhere");
    assert_eq!(
        lost + somewhere + number(&told, "answered"),
        500.0,
        "{told:#}"
    );
}

#[test]
fn serve_reflects_stamp_beside_measurements() {
    let scratch = Scratch::new();
    let args = ["serve", "--listen", "127.0.0.1:0", "--stamp", "0"];
    let serving = scratch.start(scratch.goodput(&args));
    let said = serving.stderr_when("STAMP probes on UDP ");
    let (_, rest) = said.split_once("STAMP probes on UDP ").unwrap();
    let reflector = rest.lines().next().unwrap();
    let target = format!("stamp://{reflector}");
    let args = ["measure", &target, "--count", "20", "--interval", "1ms"];
    let told = scratch.run(scratch.goodput(&args));
    assert!(
        told.succeeds().stdout.contains("20 of 20 probes answered"),
        "{told:#?}"
    );
    let address = address_of(&said);
    let args = [
        "measure",
        &address,
        "--messages",
        "1,1KiB",
        "-d",
        "20ms",
        "--json",
    ];
    let told = scratch.run(scratch.goodput(&args)).succeeds().json();
    let messages = &told["messages"];
    assert_eq!(messages["each_ns"], 20_000_000, "{told:#}");
    let points = messages["points"].as_array().unwrap();
    let sizes: Vec<f64> = points.iter().map(|p| number(p, "message_bytes")).collect();
    assert_eq!(sizes, [1.0, 1024.0]);
    for point in points {
        let ns = |key: &str| number(point, key);
        assert!(ns("latency_min_ns") <= ns("latency_median_ns"), "{point}");
        assert!(ns("latency_median_ns") <= ns("latency_max_ns"), "{point}");
        assert!(ns("both_bits_per_second") > 0.0, "{point}");
    }
    assert!(number(messages, "tool_ns") > 0.0);
    // What was printed is what was kept, and the page shows it.
    assert_eq!(told, scratch.run_json());
    assert_eq!(
        (&told["state"], &told["verb"]),
        (&"done".into(), &"measure".into())
    );
    let page = std::fs::read_to_string(scratch.run_folder().join("report.html")).unwrap();
    assert!(page.contains("Rate and latency of messages"), "{page}");
    let args = ["measure", &address, "--messages", "64", "-d", "20ms"];
    let said = scratch.run(scratch.goodput(&args));
    let lines = &said.succeeds().stdout;
    for says in ["round trips", "Latency is half a round trip", "Report: "] {
        assert!(lines.contains(says), "lacks {says}: {lines}");
    }
    serving.signal("TERM");
    serving.end().succeeds();
    scratch.assert_nothing_left();
}

/// Machines with and without an RDMA device run this.
#[test]
fn verbs_without_a_device_say_what_is_missing() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("for other machines"));
    let devices = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    let args = ["measure", &address, "--messages", "64", "-d", "20ms"];
    let mut command = scratch.goodput(&args);
    command.args(["--transport", "verbs-rc"]);
    let ended = scratch.run(command);
    match devices {
        // Here the library may be missing as well, and is looked for first.
        0 => drop(ended.fails_with(3, &["this host cannot exchange messages by RDMA verbs"])),
        _ => drop(ended.succeeds()),
    }
    let both = ["libibverbs", "no RDMA device"];
    let said = both.iter().any(|text| ended.stderr.contains(text));
    assert_eq!(said, devices == 0, "{ended:#?}");
    serving.signal("TERM");
    serving.end().succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn a_host_that_answers_no_probe_is_the_far_ends_fault() {
    let scratch = Scratch::new();
    // Bound and mute, so that nobody else can have the port.
    let mute = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = format!("stamp://{}", mute.local_addr().unwrap());
    let command = scratch.goodput(&["measure", &target, "--count", "2"]);
    let says = ["none of 2 probes was answered", "goodput serve --stamp"];
    scratch.run(command).fails_with(4, &says);
}

#[test]
fn wrong_sizes_and_intervals_are_usage() {
    let scratch = Scratch::new();
    let tls = ["--messages", "1", "--transport", "tls"];
    let lab = [
        "lab:bufferbloat",
        "--messages",
        "1",
        "--transport",
        "verbs-rc",
    ];
    let wrong: [&[&str]; 8] = [
        &["measure", "127.0.0.1:1", "--messages", "9MiB"],
        &["measure", "127.0.0.1:1", "--messages", "x"],
        &["measure", "stamp://127.0.0.1:1", "--interval", "1us"],
        &["measure", "127.0.0.1:1", "--spin"],
        &["measure", "127.0.0.1:1", "--transport", "verbs-rc"],
        &[
            "measure",
            "127.0.0.1:1",
            "--sweep",
            "streams",
            "--transport",
            "verbs-rc",
        ],
        &[&["measure", "127.0.0.1:1"][..], &tls].concat(),
        &[&["measure"][..], &lab].concat(),
    ];
    for args in wrong {
        scratch.run(scratch.goodput(args)).fails_with(2, &[]);
    }
}

#[test]
fn a_full_queue_shows_in_the_round_trip_under_load() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let args = ["measure", "lab:bufferbloat", "--latency", "-d", "4s"];
    let ended = scratch.run(scratch.goodput(&args));
    // 1: the lab fell behind; the queue is full all the same.
    assert!([0, 1].contains(&ended.code()), "{ended:#?}");
    assert!(ended.stdout.contains("which is a queue of"), "{ended:#?}");
    let run = scratch.run_json();
    let latency = &run["phases"][0]["latency"];
    // 20 ms without a queue; one of half a second that CUBIC fills beyond half.
    assert!(number(latency, "idle_min_ns") >= 20e6, "{latency:#}");
    assert!(
        number(latency, "load_median_ns") > number(latency, "idle_median_ns"),
        "{latency:#}"
    );
    assert!(number(latency, "queue_bytes") > 0.0, "{latency:#}");
}

#[test]
fn a_found_gap_is_near_the_rate_of_the_path_and_keeps_its_queue_short() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let file = scratch.write("line.toml", LINE);
    let target = format!("lab:{}", file.display());
    let args = ["measure", &target, "--pacing", "auto", "-d", "6s"];
    let ended = scratch.run(scratch.goodput(&args));
    // 1: the lab fell behind.
    assert!([0, 1].contains(&ended.code()), "{ended:#?}");
    let samples = std::fs::read_to_string(scratch.run_folder().join("samples.jsonl")).unwrap();
    let mut samples = samples
        .lines()
        .rev()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let last = samples.find(|s| s["end"] == "sender").unwrap();
    let ceiling = number(&last, "max_pacing_rate_bytes_per_second") * 8.0;
    // Payload of full frames is 94 % of the rate; a probe goes up by half at most.
    assert!((20e6..=142e6).contains(&ceiling), "{ceiling}");
}
