//! `goodput rotate` over MPI on this machine: needs mpirun, as the build did its library.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::support::{Ended, Scratch};

/// In containers one process may not read another's memory.
fn run(scratch: &Scratch, mut command: Command) -> Ended {
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    // Open MPI's runs at the same time make and remove one folder there, each under the other's feet.
    command.env("TMPDIR", scratch.path(""));
    scratch.run(command)
}

const MPIRUN: [&str; 5] = [
    "mpirun",
    "--allow-run-as-root",
    "--oversubscribe",
    "-n",
    "4",
];
const SMALL: [&str; 4] = ["--length", "64KiB", "--messages", "2"];

fn pairs(run: &Value) -> Vec<(u64, u64)> {
    let rounds = run["rotate"]["rounds"].as_array().unwrap();
    let flows = rounds.iter().flat_map(|r| r["flows"].as_array().unwrap());
    flows
        .map(|f| (f["from"].as_u64().unwrap(), f["to"].as_u64().unwrap()))
        .collect()
}

/// What would stand for CBench: its programs' lines and its parser's interface, by nobody's code but this.
fn stand_in(scratch: &Scratch) -> String {
    let folder = scratch.path("cbench");
    fs::create_dir_all(folder.join("output_parse")).unwrap();
    // 10 and 20 MB/s, the other way round in the second turn.
    let rotate = r#"#!/bin/sh
echo "process $OMPI_COMM_WORLD_RANK on here"
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
first=10.00 second=20.00
[ -e "$0.again" ] && first=20.00 second=10.00
touch "$0.again"
for n in 0 1; do
    echo "rotate $n ** $first , $second , ** min=10.00 max=20.00 ave=15.00 aggregate=30.00 aggregate_floor=20.00"
done
"#;
    let latency = rotate.replace("10.00 second", "1.00 second");
    for (name, text) in [("rotate", rotate), ("rotate_latency", latency.as_str())] {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let parser = r#"package output_parse::rotate;
my %names = (Min => 'min_link_bw', Max => 'max_link_bw', 'Average Link' => 'ave_link_bw',
    'Average Aggregate' => 'aggregate_bw');
sub new { return bless {}, shift }
sub parse {
    my ($self, $id, $lines) = @_;
    my %found = (STATUS => 'ERROR');
    for (@$lines) {
        /^(Min|Max|Average Link|Average Aggregate) Unidirectional.*:\s+(\d+\.\d+)/ or next;
        $found{$names{$1}} = $2;
        $found{STATUS} = 'PASSED';
    }
    return \%found;
}
1;
"#;
    fs::write(folder.join("output_parse/rotate.pm"), parser).unwrap();
    folder.display().to_string()
}

#[test]
fn processes_of_mpirun_rotate_and_the_first_one_keeps_the_run() {
    let scratch = Scratch::new();
    let words = [&["rotate", "--mpi"], &SMALL[..]].concat();
    let ended = run(&scratch, scratch.within(&MPIRUN, &words));
    ended.succeeds();
    assert!(ended.stdout.contains("rotate 1 ** "), "{ended:#?}");
    let found = scratch.run_json();
    assert_eq!(pairs(&found), [(0, 2), (1, 3), (0, 3), (1, 2)]);
    assert_eq!(found["rotate"]["transport"], "mpi");
    let refused = run(
        &scratch,
        scratch.within(&MPIRUN, &["rotate", "--mpi", "--nodes", "9"]),
    );
    refused.fails_with(2, &["9 of 4 ranks"]);
    scratch.assert_nothing_left();
}

#[test]
fn every_pattern_goes_over_mpi() {
    let scratch = Scratch::new();
    for (words, pattern, pairs_of_all) in [
        (&["--latency", "--messages", "50"][..], "rotate", 4),
        (
            &["--pattern", "com", "--length", "32,1KiB", "--bidirectional"],
            "com",
            12,
        ),
        (&["--pattern", "com", "--latency"], "com", 6),
        (
            &["--pattern", "mpigraph", "--length", "4KiB"],
            "mpigraph",
            12,
        ),
        (
            &["--length", "4KiB", "--window", "2", "--seed", "3"],
            "rotate",
            4,
        ),
    ] {
        let words = [&["rotate", "--mpi", "--json"], words].concat();
        let ended = run(&scratch, scratch.within(&MPIRUN, &words));
        ended.succeeds();
        let found = ended.json();
        assert_eq!(found["rotate"]["pattern"], pattern);
        assert_eq!(pairs(&found).len(), pairs_of_all, "{words:?}");
    }
}

#[test]
fn it_starts_mpirun_itself_as_often_as_told() {
    let scratch = Scratch::new();
    let words = [&["rotate", "--mpirun", "4", "--turns", "2"], &SMALL[..]].concat();
    let ended = run(&scratch, scratch.goodput(&words));
    ended.succeeds();
    assert_eq!(
        ended.stdout.matches("rotate 0 ** ").count(),
        1,
        "{ended:#?}"
    );
    assert_eq!(ended.stdout.matches("Min Unidirectional").count(), 1);
    let found = scratch.run_json();
    assert_eq!(pairs(&found), [(0, 2), (1, 3), (0, 3), (1, 2)]);
    assert_eq!(found["rotate"]["turns"], 2);
    assert_eq!(found["state"], "done");
    let kept = scratch.run_folder().join("turns");
    let turn = |n: u32| {
        let file = kept.join(format!("{n:02}-goodput.json"));
        let text = fs::read_to_string(file).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let rate = |run: &Value| run["rotate"]["rounds"][0]["flows"][0]["bits_per_second"].as_u64();
    assert_eq!(rate(&found), rate(&turn(1)).max(rate(&turn(2))));
    assert!(kept.join("02-goodput.txt").exists());
    scratch.assert_nothing_left();
}

#[test]
fn what_a_process_refuses_is_said_once_with_the_reason() {
    let scratch = Scratch::new();
    let words = ["rotate", "--mpirun", "4", "--nodes", "9"];
    let ended = run(&scratch, scratch.goodput(&words));
    ended.fails_with(2, &["9 of 4 ranks"]);
    assert_eq!(scratch.run_json()["state"], "failed");
    let words = [
        "rotate",
        "--mpirun",
        "2",
        "--mpirun-with",
        "--no-such-option",
    ];
    let ended = run(&scratch, scratch.goodput(&words));
    assert_ne!(ended.code(), 0, "{ended:#?}");
    assert!(ended.stderr.contains("goodput: mpirun: "), "{ended:#?}");
}

#[test]
fn cbench_runs_in_turns_and_its_parser_reads_ours() {
    let scratch = Scratch::new();
    let folder = stand_in(&scratch);
    let words = [
        "rotate",
        "--mpirun",
        "4",
        "--observer",
        "cbench",
        "--cbench",
        &folder,
        "--turns",
        "2",
    ];
    let ended = run(&scratch, scratch.goodput(&words));
    ended.succeeds();
    let found = scratch.run_json();
    let beside = &found["rotate"]["observed"];
    assert_eq!(beside["tool"], "CBench rotate");
    // Each pair's best of two turns.
    assert_eq!(beside["count"]["worst_bits_per_second"], 160_000_000);
    assert_eq!(beside["count"]["average_bits_per_second"], 160_000_000);
    assert_eq!(beside["parser"]["outputs"], 2);
    assert_eq!(beside["parser"]["read"], 2, "{ended:#?}");
    let ours = found["rotate"]["counts"][0]["best_bits_per_second"]
        .as_f64()
        .unwrap();
    let ratio = beside["best_ratio"].as_f64().unwrap();
    assert!(
        (ratio - ours / 160e6).abs() <= 1e-6 * ratio,
        "{ratio} {ours}"
    );
    for file in ["01-cbench.txt", "02-cbench.txt", "02-goodput.txt"] {
        assert!(
            scratch.run_folder().join("turns").join(file).exists(),
            "{file}"
        );
    }
    assert!(ended.stdout.contains("in 2 of 2 outputs"), "{ended:#?}");
}

#[test]
fn cbenchs_latency_is_beside_ours_and_what_is_no_cbench_is_refused() {
    let scratch = Scratch::new();
    let folder = stand_in(&scratch);
    let beside = |processes: &str| {
        let words = [
            "rotate",
            "--mpirun",
            processes,
            "--latency",
            "--observer",
            "cbench",
            "--cbench",
            &folder,
            "--turns",
            "2",
            "--json",
        ];
        run(&scratch, scratch.goodput(&words))
    };
    let ended = beside("4");
    ended.succeeds();
    let found = ended.json();
    let beside_ours = &found["rotate"]["observed"];
    assert_eq!(beside_ours["tool"], "CBench rotate_latency");
    assert_eq!(beside_ours["count"]["best_latency_ns"], 1000.0);
    assert_eq!(beside_ours["count"]["worst_latency_ns"], 10_000.0);
    assert!(beside_ours.get("parser").is_none());
    // The stand-in has two rotations whatever it is asked.
    beside("2").fails_with(3, &["no 1 rotations of 1 pairs", "another MPI"]);
    let words = [
        "rotate",
        "--mpirun",
        "2",
        "--observer",
        "cbench",
        "--cbench",
        "/nonexistent",
    ];
    let ended = run(&scratch, scratch.goodput(&words));
    ended.fails_with(3, &["there is no rotate in /nonexistent", "GOODPUT_CBENCH"]);
}
