//! `goodput sim` as it is typed: ends, cells, captures and causes.

use serde_json::Value;

use crate::support::Scratch;

/// Two senders unlike in rate, delay and queue behind one switch.
const TWO: &str = r#"
title = "A near and a far sender"
[hosts.near]
[hosts.remote]
[hosts.sink]
[switches.hub]
[links.near]
between = ["near", "hub"]
rate = "100Mb/s"
delay = "1ms"
queue = "200kB"
[links.remote]
between = ["remote", "hub"]
rate = "20Mb/s"
delay = "10ms"
queue = "100kB"
[links.sink]
between = ["hub", "sink"]
delay = "4ms"
[transfer]
from = "near"
to = "sink"
"#;

fn simulated(scratch: &Scratch, more: &[&str]) -> Value {
    let target = scratch.write("two.toml", TWO);
    let mut command = scratch.goodput(&["sim"]);
    command.arg(&target).args(["--time", "4s", "--ramp", "1s"]);
    command.args(more);
    let ended = scratch.run(command);
    assert_eq!(ended.code(), 0, "{ended:#?}");
    scratch.run_json()
}

fn integer(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn other_ends_have_another_rate_delay_and_queue() {
    let scratch = Scratch::new();
    let run = simulated(&scratch, &["--from", "remote"]);
    let path = &run["path"];
    assert_eq!(path["rate_bits_per_second"], 20_000_000);
    assert_eq!(path["rtt_idle_ns"], 28_000_000);
    assert_eq!(path["queue_bytes"], 100_000);
    let goodput = integer(&run["phases"][0]["goodput_bits_per_second"]);
    let most = integer(&path["achievable_bits_per_second"]);
    assert!(
        goodput <= most + most / 100 && goodput > most / 2,
        "{run:#}"
    );
}

#[test]
fn both_buses_of_the_mysteries_are_named_and_the_path_is_not() {
    for bus in ["pci-x", "pci-x-slow"] {
        let scratch = Scratch::new();
        let mut command = scratch.goodput(&["sim", "lab:paths/master-1-mysteries.toml"]);
        command.args(["--from", bus, "--time", "6s", "--ramp", "3s", "--explain"]);
        let ended = scratch.run(command);
        assert_eq!(ended.code(), 0, "{ended:#?}");
        let verdict = &scratch.run_json()["verdict"];
        assert_eq!(verdict["cause"], "host_bus", "{bus}: {verdict:#}");
        assert_eq!(verdict["conclusive"], true, "{bus}: {verdict:#}");
    }
}

#[test]
fn cells_have_names_of_their_own_and_captures_beside_them() {
    let scratch = Scratch::new();
    let words = ["--pacing", "off,10Mb/s", "--capture", "200ms", "--explain"];
    let run = simulated(&scratch, &words);
    let phases = run["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["off", "10 Mb/s"]);
    let paced = integer(&phases[1]["goodput_bits_per_second"]);
    assert!((9_900_000..=10_000_000).contains(&paced), "{paced}");
    assert!(integer(&phases[0]["goodput_bits_per_second"]) > 2 * paced);
    assert_eq!(run["verdict"]["cause"], "application", "{run:#}");
    let folder = scratch.run_folder();
    for name in ["off", "10-Mb-s"] {
        let file = folder.join(format!("{name}.pcapng"));
        let mut command = scratch.goodput(&["explain", "--json"]);
        command.arg(&file);
        let ended = scratch.run(command);
        assert!([0, 1].contains(&ended.code()), "{name}: {ended:#?}");
        assert!(ended.stdout.contains("data_packets"), "{name}: {ended:#?}");
    }
}

#[test]
fn the_same_cell_twice_is_refused() {
    let scratch = Scratch::new();
    let target = scratch.write("two.toml", TWO);
    let mut command = scratch.goodput(&["sim"]);
    command.arg(&target).args(["--pacing", "1Gb/s,1000Mb/s"]);
    let ended = scratch.run(command);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(ended.stderr.contains("simulated twice"), "{ended:#?}");
}
