//! `goodput fabric` as it is typed: tiers, imports, traces.

use serde_json::Value;

use crate::support::{Ended, Scratch};

/// Sixteen hosts on two levels of chips.
const TREE: &str = r#"
title = "A small tree"
[host_kinds.hca]
speed = "ddr"
buffer = "72KiB"
[switch_kinds.chip]
speed = "ddr"
ports = 8
buffer = "72KiB"
latency = "200ns"
[cables.cx4]
kind = "copper"
length = "8m"
[topology]
kind = "clos"
host = "hca"
chip = "chip"
cable = "cx4"
hosts = 16
lids = "random"
ties = "random"
[traffic]
pattern = "rotate"
nodes = [4, 16]
message = "64KiB"
"#;

fn run(scratch: &Scratch, more: &[&str]) -> Ended {
    let file = scratch.path("tree.toml");
    let mut command = scratch.goodput(&["fabric"]);
    command.args(&more[..1]).arg(&file).args(&more[1..]);
    scratch.run(command)
}

fn json(scratch: &Scratch, more: &[&str]) -> Value {
    let more: Vec<&str> = more.iter().copied().chain(["--json"]).collect();
    let ended = run(scratch, &more);
    assert_eq!(ended.code(), 0, "{ended:#?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_file_runs_in_both_tiers_and_each_says_how_far_to_trust_it() {
    let scratch = Scratch::new();
    scratch.write("tree.toml", TREE);
    let found = ["packets", "flows"].map(|tier| {
        let run = json(&scratch, &["run", "--tier", tier]);
        let study = &run["fabric"]["studies"][0];
        assert_eq!(study["tier"], tier);
        assert!(!study["trust"].as_str().unwrap().is_empty());
        study["points"][1]["average_share_of_peak"]
            .as_f64()
            .unwrap()
    });
    assert!((found[1] / found[0] - 1.0).abs() < 0.2, "{found:?}");
    let text = run(&scratch, &["run", "--tier", "flows"]).stdout;
    assert!(
        text.contains("Flows as fluids") && text.contains("Estimated "),
        "{text}"
    );
    let error = run(&scratch, &["run", "--tier", "guesses"]);
    assert_eq!(error.code(), 2, "{error:#?}");
}
