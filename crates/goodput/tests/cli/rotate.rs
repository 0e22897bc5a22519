//! `goodput rotate`: among hosts that serve, in a lab, and what is refused.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::far_end::address_of;
use crate::support::{Running, Scratch, assert_verdict, lab_alone};

/// Two hosts on each of two routers. Two ways lead from one to the other; all routes take the first.
const TWO_WAYS: &str = r#"
title = "Two ways, one of them idle"
[hosts.a]
[hosts.b]
[hosts.c]
[hosts.d]
[routers.west]
routes = [{ to = "c", via = "upper" }, { to = "d", via = "upper" }]
[routers.middle]
[routers.east]
[links.a]
between = ["a", "west"]
rate = "50Mb/s"
delay = "200us"
[links.b]
between = ["b", "west"]
rate = "50Mb/s"
delay = "200us"
[links.c]
between = ["c", "east"]
rate = "50Mb/s"
delay = "200us"
[links.d]
between = ["d", "east"]
rate = "50Mb/s"
delay = "200us"
[links.upper]
between = ["west", "east"]
rate = "50Mb/s"
delay = "200us"
[links.lower]
between = ["west", "middle"]
rate = "50Mb/s"
delay = "200us"
[links.beyond]
between = ["middle", "east"]
rate = "50Mb/s"
delay = "200us"
"#;

/// Servers that are ranks, and their addresses.
fn ranks(scratch: &Scratch, count: usize) -> (Vec<Running>, Vec<String>) {
    let serving: Vec<Running> = (0..count)
        .map(|_| scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0", "--ranks"])))
        .collect();
    let each = serving.iter();
    let addresses = each
        .map(|s| address_of(&s.stderr_when("serving on")))
        .collect();
    (serving, addresses)
}

fn end(serving: Vec<Running>) {
    for server in serving {
        server.signal("TERM");
        server.end().succeeds();
    }
}

/// Ordered pairs of all rounds, and how many there were in all.
fn pairs(run: &Value) -> (BTreeSet<(u64, u64)>, usize) {
    let rounds = run["rotate"]["rounds"].as_array().unwrap();
    let flows: Vec<(u64, u64)> = rounds
        .iter()
        .flat_map(|round| round["flows"].as_array().unwrap())
        .map(|f| (f["from"].as_u64().unwrap(), f["to"].as_u64().unwrap()))
        .collect();
    (flows.iter().copied().collect(), flows.len())
}

/// What CBench's parser takes from the closing lines: a number with a point behind the colon.
fn parsed(stdout: &str, name: &str) -> f64 {
    let (_, closing) = stdout.split_once("Min Unidirectional").unwrap();
    let closing = format!("Min Unidirectional{closing}");
    let line = closing.lines().find(|l| l.starts_with(name)).unwrap();
    let number = line.split_once(": ").unwrap().1.split(' ').next().unwrap();
    assert!(number.contains('.'), "{line}");
    number.parse().unwrap()
}

#[test]
fn hosts_that_serve_rotate_and_cbench_reads_it() {
    let scratch = Scratch::new();
    let (serving, hosts) = ranks(&scratch, 4);
    let hosts = hosts.join(",");
    let small = [
        "rotate",
        "--hosts",
        &hosts,
        "--length",
        "64KiB",
        "--messages",
        "2",
    ];
    let ended = scratch.run(scratch.goodput(&small));
    ended.succeeds();
    assert!(ended.stdout.contains("rotate 0 ** "), "{}", ended.stdout);
    let [min, max, mean, sum] = [
        "Min Unidirectional Link Bandwidth",
        "Max Unidirectional Link Bandwidth",
        "Average Link Unidirectional Bandwidth",
        "Average Aggregate Unidirectional Bandwidth",
    ]
    .map(|name| parsed(&ended.stdout, name));
    assert!(
        0.0 < min && min <= mean && mean <= max,
        "{min} {mean} {max}"
    );
    assert!((sum - 2.0 * mean).abs() <= 0.02, "{sum} {mean}");
    let run = scratch.run_json();
    let (seen, all) = pairs(&run);
    assert_eq!(seen, BTreeSet::from([(0, 2), (0, 3), (1, 2), (1, 3)]));
    assert_eq!((all, run["rotate"]["tests"].as_u64()), (4, Some(3)));
    assert_eq!(run["verb"], "rotate");
    end(serving);
    scratch.assert_nothing_left();
}

#[test]
fn latency_com_and_mpigraph_go_through_the_same_ranks() {
    let scratch = Scratch::new();
    let (serving, hosts) = ranks(&scratch, 4);
    let hosts = hosts.join(",");
    let run = |more: &[&str]| {
        let words = [&["rotate", "--hosts", &hosts, "--json"], more].concat();
        let ended = scratch.run(scratch.goodput(&words));
        ended.succeeds();
        ended.json()
    };
    let latency = run(&["--latency", "--messages", "50", "--seed", "7"]);
    assert_eq!(latency["rotate"]["measure"], "latency");
    assert_eq!(latency["rotate"]["order_seed"], 7);
    assert!(latency["rotate"]["counts"][0]["best_latency_ns"].as_f64() > Some(0.0));
    let com = run(&["--pattern", "com", "--length", "32,1KiB", "--bidirectional"]);
    let ranks: Vec<u64> = com["rotate"]["counts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["ranks"].as_u64().unwrap())
        .collect();
    assert_eq!(ranks, [2, 4, 2, 4]);
    let graph = run(&["--pattern", "mpigraph", "--length", "4KiB", "--nodes", "2"]);
    let (seen, all) = pairs(&graph);
    // Of four ranks every ordered pair, and the first two by themselves.
    assert_eq!((seen.len(), all), (12, 14));
    end(serving);
}

#[test]
fn who_is_no_rank_is_named() {
    let scratch = Scratch::new();
    let (serving, hosts) = ranks(&scratch, 1);
    let plain = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let other = address_of(&plain.stderr_when("serving on"));
    let both = format!("{},{other}", hosts[0]);
    let ended = scratch.run(scratch.goodput(&["rotate", "--hosts", &both]));
    ended.fails_with(2, &[&other, "goodput serve --ranks"]);
    assert_eq!(scratch.run_json()["state"], "failed");
    let gone = format!("{},127.0.0.1:1", hosts[0]);
    let ended = scratch.run(scratch.goodput(&["rotate", "--hosts", &gone]));
    ended.fails_with(4, &["127.0.0.1:1", "nobody listens"]);
    end(serving);
    end(vec![plain]);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    for (args, says) in [
        (&["rotate", "--hosts", "a"][..], "two hosts"),
        (&["rotate", "far.example.org"], "one host is no cluster"),
        (&["rotate", "--hosts", "a,a"], "twice"),
        (&["rotate", "--hosts", "a,b", "--tests", "0"], "--tests 0"),
        (
            &["rotate", "--hosts", "a,b", "--per-node", "2"],
            "--pattern com",
        ),
        (&["rotate", "lab:no-such"], "no path file"),
        (&["rotate", "--mpirun", "1"], "two processes"),
        (&["rotate", "--observer", "cbench"], "--mpirun"),
        (
            &[
                "rotate",
                "--mpirun",
                "2",
                "--observer",
                "cbench",
                "--nodes",
                "2",
            ],
            "its sizes",
        ),
    ] {
        let ended = scratch.run(scratch.goodput(args));
        ended.fails_with(2, &[says]);
        assert!(!scratch.runs().exists(), "{args:?}");
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_says_so() {
    let scratch = Scratch::new();
    for words in [&["rotate", "--mpi"][..], &["rotate", "--mpirun", "2"]] {
        let ended = scratch.run(scratch.goodput(words));
        ended.fails_with(2, &["--features mpi", "libopenmpi-dev"]);
    }
    assert!(!scratch.runs().exists());
}

#[test]
fn in_a_lab_real_packets_meet_on_the_shared_link() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    scratch.write("two-ways.toml", TWO_WAYS);
    let words = [
        "rotate",
        "lab:two-ways.toml",
        "--length",
        "128KiB",
        "--messages",
        "4",
        "--tests",
        "2",
    ];
    let ended = scratch.run(scratch.goodput(&words));
    if ended.code() == 3 {
        testing::skipped(format_args!("no lab here: {}", ended.stderr));
        return;
    }
    let run = scratch.run_json();
    let conclusive = assert_verdict(&run, ended.code(), &["shared_link", "none"]);
    let rotate = &run["rotate"];
    assert_eq!(rotate["ranks"], serde_json::json!(["a", "b", "c", "d"]));
    let (seen, all) = pairs(&run);
    assert_eq!((seen.len(), all), (4, 4));
    for round in rotate["rounds"].as_array().unwrap() {
        for flow in round["flows"].as_array().unwrap() {
            // Two share the upper way at any time.
            let fair = flow["fair_bits_per_second"].as_u64().unwrap();
            assert!((23_000_000..25_000_000).contains(&fair), "{fair}");
            assert!(flow["bits_per_second"].as_u64() > Some(0));
        }
    }
    assert!(rotate["certificate"]["frames"].as_u64() > Some(0));
    if conclusive {
        assert!(ended.stdout.contains("from \\ to"), "{}", ended.stdout);
    }
    let page = std::fs::read_to_string(scratch.run_folder().join("report.html")).unwrap();
    assert!(page.contains("<svg class=\"heat\""));
    scratch.assert_nothing_left();
}
