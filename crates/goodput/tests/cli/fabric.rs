//! `goodput fabric` as it is typed: tiers, imports, traces.

use serde_json::Value;

use crate::support::{Ended, Scratch};

/// Sixteen hosts on two levels of chips.
const TREE: &str = concat!(
    include_str!("../../../cluster/tests/tree.toml"),
    r#"lids = "random"
ties = "random"
[traffic]
pattern = "rotate"
nodes = [4, 16]
message = "64KiB"
"#
);

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

#[test]
fn a_real_clusters_cables_and_tables_are_judged() {
    let scratch = Scratch::new();
    // Two leaves of two hosts, two spines; all tables go by the first spine.
    let mut cables = String::new();
    let mut tables = String::new();
    for leaf in 0..2 {
        cables += &format!(
            "Switch 8 \"S-{leaf:016x}\" # \"leaf{leaf}\" base port 0 lid {} lmc 0\n",
            100 + leaf
        );
        tables += &format!(
            "Unicast lids [0x0-0x70] of switch Lid {} guid {leaf:#018x} (leaf{leaf}):\n",
            100 + leaf
        );
        for port in 1..3 {
            let host = leaf * 2 + port;
            cables +=
                &format!("[{port}] \"H-{host:x}\"[1](a{host}) # \"node{host}\" lid {host} 4xDDR\n");
        }
        for spine in 0..2 {
            cables += &format!(
                "[{}] \"S-{:016x}\"[{}] # \"spine{spine}\" lid 9 4xDDR\n",
                spine + 3,
                spine + 2,
                leaf + 1
            );
        }
        for host in 1..5 {
            let port = if (host - 1) / 2 == leaf {
                host - leaf * 2
            } else {
                3
            };
            tables += &format!(
                "{host:#06x} {port:03} : (Channel Adapter portguid 0x{host:016x}: 'node{host}')\n"
            );
        }
    }
    for spine in 2..4 {
        cables += &format!("Switch 8 \"S-{spine:016x}\" # \"spine\" base port 0 lid 9 lmc 0\n");
        tables += &format!("Unicast lids [0x0-0x70] of switch Lid 9 guid {spine:#018x} (spine):\n");
        for leaf in 0..2 {
            cables += &format!(
                "[{}] \"S-{leaf:016x}\"[{}] # \"leaf\" lid 9 4xDDR\n",
                leaf + 1,
                spine + 1
            );
        }
        for host in 1..5 {
            tables += &format!("{host:#06x} {:03} : (x)\n", (host - 1) / 2 + 1);
        }
    }
    for host in 1..5 {
        let (leaf, port) = ((host - 1) / 2, (host - 1) % 2 + 1);
        cables += &format!(
            "Ca 1 \"H-{host:x}\" # \"node{host}\"\n[1](a{host}) \"S-{leaf:016x}\"[{port}] # lid {host} lmc 0 4xDDR\n"
        );
    }
    scratch.write("net.txt", &cables);
    scratch.write("lfts.txt", &tables);
    let (before, rest) = TREE.split_once("[topology]").unwrap();
    let parts = "host = \"hca\"\nchip = \"chip\"\ncable = \"cx4\"\n";
    let (_, traffic) = rest.split_once("[traffic]").unwrap();
    let traffic = traffic.replace("[4, 16]", "[2, 4]");
    let file = |keys: &str| {
        let text = format!(
            "{before}[topology]\nkind = \"ibnetdiscover\"\nfile = \"net.txt\"\n{keys}{parts}[traffic]{traffic}"
        );
        scratch.write("tree.toml", &text);
    };
    let shared = |keys: &str| {
        file(keys);
        let found = json(&scratch, &["run"]);
        found["fabric"]["studies"][0]["points"][1]["flows_on_a_cable_max"].as_u64()
    };
    assert_eq!(shared("routing = \"d-mod-k\"\n"), Some(1));
    assert_eq!(shared("lfts = \"lfts.txt\"\n"), Some(2));
    let text = run(&scratch, &["run"]).stdout;
    assert!(text.contains("tables from lfts.txt"), "{text}");
    assert!(text.contains("leaf0 port 3"), "{text}");
    scratch.write("lfts.txt", &tables.replacen("0x0003 003", "0x0003 007", 1));
    let ended = run(&scratch, &["run"]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(
        ended
            .stderr
            .contains("lfts.txt: line 4: port 7 of leaf0 has no cable"),
        "{ended:#?}"
    );
}

#[test]
fn a_link_that_fails_is_named_and_its_losses_are_counted() {
    let scratch = Scratch::new();
    let failing = TREE.replace("nodes = [4, 16]", "nodes = [16]\nsteps = 2\nmessages = 40")
        + "[[fault]]\nlink = \"n3\"\nat = \"200us\"\nuntil = \"900us\"\n[recovery]\nretry = \"2ms\"\n";
    scratch.write("tree.toml", &failing);
    let found = json(&scratch, &["run"]);
    let study = &found["fabric"]["studies"][0];
    let fault = &study["faults"][0];
    assert!(fault["link"].as_str().unwrap().contains("n3"), "{fault}");
    assert_eq!(
        (fault["at_ns"].as_u64(), fault["until_ns"].as_u64()),
        (Some(200_000), Some(900_000))
    );
    let recovery = &study["recovery"];
    assert!(fault["lost_packets"].as_u64() > Some(0), "{fault}");
    assert!(recovery["resent_packets"].as_u64() > Some(0), "{recovery}");
    assert_eq!(recovery["broken_flows"], 0);
    assert!(
        recovery["silence_max_ns"].as_f64() > Some(2e6),
        "{recovery}"
    );
    assert_eq!(found["verdict"]["cause"], "failed_link");
    let text = run(&scratch, &["run"]).stdout;
    assert!(
        text.contains("failed after 0.200 ms for 0.700 ms"),
        "{text}"
    );
    // Down for good: who sends there gives up, and the run ends all the same.
    scratch.write("tree.toml", &failing.replace("until = \"900us\"\n", ""));
    let found = json(&scratch, &["run"]);
    let study = &found["fabric"]["studies"][0];
    assert_eq!(study["recovery"]["broken_flows"], 2, "{study}");
    assert_eq!(study["points"][0]["worst_bits_per_second"], 0);
}

#[test]
fn a_trace_is_replayed_in_its_order_and_refused_with_its_line() {
    let scratch = Scratch::new();
    let replay = TREE.replace(
        "pattern = \"rotate\"\nnodes = [4, 16]\nmessage = \"64KiB\"",
        "pattern = \"replay\"\ntrace = \"messages.csv\"",
    );
    scratch.write("tree.toml", &replay);
    // To and fro between far leaves, 10 us of thought before each answer; beside it two that meet at one host.
    let mut trace = "at,from,to,bytes,after\n0,0,15,1000\n".to_owned();
    for n in 1..10 {
        let (from, to) = if n % 2 == 1 { (15, 0) } else { (0, 15) };
        trace += &format!("10us,{from},{to},1000,{n}\n");
    }
    scratch.write("messages.csv", &trace);
    let study = |scratch: &Scratch| json(scratch, &["run"])["fabric"]["studies"][0].clone();
    let alone = study(&scratch);
    let finish = |s: &Value| s["points"][0]["finish_ns"][0].as_f64().unwrap();
    assert!((90_000.0..130_000.0).contains(&finish(&alone)), "{alone}");
    assert_eq!(alone["replay"]["messages"], 10);
    let slowest = alone["replay"]["slowdown_max"].as_f64().unwrap();
    assert!((0.999..1.05).contains(&slowest), "{alone}");
    scratch.write("messages.csv", "0,0,15,1MiB\n0,1,15,1MiB\n");
    let both = study(&scratch);
    let median = both["replay"]["slowdown_median"].as_f64().unwrap();
    assert!((1.8..2.1).contains(&median), "{both}");
    let lost = both["points"][0]["lost_shares"][0].as_f64().unwrap();
    assert!((0.45..0.53).contains(&lost), "{both}");
    let text = run(&scratch, &["run"]).stdout;
    assert!(
        text.contains("2 messages: half of them took at most"),
        "{text}"
    );
    for (trace, what) in [
        (
            "0,0,15,1\n1us,3,4,5,1\n",
            "messages.csv, line 2: rank 3 does not receive message 1",
        ),
        ("0,0,16,1\n", "rank 16; this fabric has 16 hosts"),
        ("\u{0}\u{1}", "messages.csv, line 1"),
    ] {
        scratch.write("messages.csv", trace);
        let ended = run(&scratch, &["run"]);
        assert_eq!(ended.code(), 2, "{ended:#?}");
        assert!(ended.stderr.contains(what), "{ended:#?}");
    }
}

#[test]
fn a_deadlock_is_shown_by_the_names_of_its_cables_with_the_remedy() {
    let scratch = Scratch::new();
    // Fewest hops round a ring: each cable waits for the next.
    let ring = TREE
        .replace(
            "kind = \"clos\"",
            "kind = \"torus\"\nsizes = [5]\nleaf_hosts = 2",
        )
        .replace("hosts = 16", "hosts = 10")
        .replace("[4, 16]", "[10]")
        .replace("64KiB", "256KiB")
        .replace("\"rotate\"", "\"all-to-all\"");
    scratch.write("tree.toml", &ring);
    let ended = run(&scratch, &["run"]);
    ended.fails_with(1, &["deadlock", "switch-0:", " to switch-1:", "dfsssp"]);
}

#[test]
fn what_chips_choose_is_not_called_a_static_route() {
    let scratch = Scratch::new();
    let text = TREE.replace("kind = \"clos\"", "selection = \"ecmp\"\nkind = \"clos\"");
    scratch.write("tree.toml", &text);
    let found = json(&scratch, &["run"]);
    assert_eq!(found["verdict"]["cause"], "chosen_paths", "{found:#}");
    let short = TREE
        .replace("\"rotate\"", "\"all-reduce\"")
        .replace("64KiB", "1KiB");
    scratch.write("tree.toml", &short);
    let found = json(&scratch, &["run"]);
    assert_eq!(found["verdict"]["cause"], "long_way", "{found:#}");
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_sweep_over_mpi_needs_a_build_with_it() {
    let scratch = Scratch::new();
    scratch.write("tree.toml", TREE);
    let ended = run(
        &scratch,
        &["sweep", "--vary", "topology.seed=1..2", "--mpi"],
    );
    ended.fails_with(2, &["--features mpi"]);
    assert!(!scratch.runs().exists());
}

/// `mpirun` of three processes on this machine; needs it installed, as the build did its library.
#[cfg(feature = "mpi")]
#[test]
fn a_sweep_over_mpi_finds_what_one_process_finds() {
    let scratch = Scratch::new();
    let seeded = TREE.replace("hosts = 16", "hosts = 16\nseed = 1");
    scratch.write("tree.toml", &seeded);
    let words = [
        "sweep",
        "--vary",
        "topology.seed=1..5",
        "--vary",
        "topology.ties=random,lowest",
    ];
    let alone = json(&scratch, &words);
    let file = scratch.path("tree.toml").display().to_string();
    let shared = |words: &[&str]| {
        let mpirun = [
            "mpirun",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "3",
        ];
        let all = ["fabric", words[0], &file];
        let all: Vec<&str> = all.iter().chain(&words[1..]).copied().collect();
        scratch.run(scratch.within(&mpirun, &all))
    };
    let with: Vec<&str> = words.iter().copied().chain(["--mpi", "--json"]).collect();
    let ended = shared(&with);
    assert_eq!(ended.code(), 0, "{ended:#?}");
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(found["fabric"], alone["fabric"]);
    assert_eq!(found["verdict"], alone["verdict"]);
    let refused = shared(&["sweep", "--vary", "topology.nothing=1", "--mpi"]);
    assert_ne!(refused.code(), 0, "{refused:#?}");
    assert!(
        refused.stderr.contains("no key 'topology.nothing'"),
        "{refused:#?}"
    );
}
