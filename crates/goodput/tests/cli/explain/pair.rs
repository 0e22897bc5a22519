//! Two captures of one path, and a lab's log beside them.

use std::collections::BTreeSet;
use std::fs;

use wire::pcapng;
use wire::tcp::{self, Flags};

use super::{frame, written};
use crate::support::{Ended, Scratch, json, lab_alone, usable};

/// A transfer of 200 segments and their ACKs as one end sees it, 20 ms from the other, whose clock is
/// 7 s ahead. Of the segments `lost` come to nothing the first time; `before` were never seen.
fn end(far: bool, lost: &[u32], before: &[u32]) -> Vec<u8> {
    written_out(&packets(far, lost, before))
}

fn packets(far: bool, lost: &[u32], before: &[u32]) -> Vec<(u64, Vec<u8>)> {
    let mut packets: Vec<(u64, Vec<u8>)> = Vec::new();
    let start_ns = 1_700_000_000_000_000_000_u64;
    let mut packet = |sent_ns: u64, up: bool, segment: tcp::Repr, payload: u16| {
        let travelled = if up == far { 20_000_000 } else { 0 };
        let ahead = if far { 7_000_000_000 } else { 0 };
        let time_ns = start_ns + sent_ns + travelled + ahead;
        packets.push((time_ns, frame(up, segment, payload)));
    };
    let data = |n: u32, stamp: u32| tcp::Repr {
        sequence: 1 + n * 1000,
        acknowledgment: 1,
        flags: Flags::ACK,
        window: 5_000,
        timestamps: Some((stamp, 1)),
        ..tcp::Repr::default()
    };
    for n in 0..200 {
        let sent_ns = u64::from(n) * 10_000_000;
        let unseen = before.contains(&n) || (far && lost.contains(&n));
        if !unseen {
            packet(sent_ns, true, data(n, n * 10), 1000);
        }
        if lost.contains(&n) || before.contains(&n) {
            packet(sent_ns + 55_000_000, true, data(n, n * 10 + 55), 1000);
        }
        let missing = lost.iter().chain(before).copied();
        let open = missing.filter(|m| *m <= n && n < m + 6).min();
        let ack = tcp::Repr {
            sequence: 1,
            acknowledgment: 1 + open.unwrap_or(n + 1) * 1000,
            flags: Flags::ACK,
            window: 5_000,
            timestamps: Some((n * 10 + 20, n * 10)),
            ..tcp::Repr::default()
        };
        packet(sent_ns + 20_000_000, false, ack, 0);
    }
    packets.sort_by_key(|p| p.0);
    packets
}

/// The same behind a router that gives the client another address and port: one above the server's, so that
/// the ends change places.
fn behind_nat(mut packets: Vec<(u64, Vec<u8>)>) -> Vec<u8> {
    for (_, bytes) in &mut packets {
        for (address, port) in [(26..30, 34..36), (30..34, 36..38)] {
            if bytes[address.clone()] == [192, 0, 2, 1] {
                bytes[address].copy_from_slice(&[203, 0, 113, 9]);
                bytes[port].copy_from_slice(&61_000_u16.to_be_bytes());
            }
        }
    }
    written_out(&packets)
}

fn written_out(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    pcapng::section_header("test", &mut file);
    pcapng::interface("eth0", 0, &mut file);
    for (time_ns, bytes) in packets {
        pcapng::packet(
            &pcapng::Packet {
                time_ns: *time_ns,
                captured: &bytes[..80.min(bytes.len())],
                original_bytes: u32::try_from(bytes.len()).unwrap(),
                ..pcapng::Packet::default()
            },
            &mut file,
        );
    }
    file
}

fn explain(scratch: &Scratch, args: &[&str]) -> Ended {
    let mut command = scratch.goodput(&["explain"]);
    command.args(args);
    scratch.run(command)
}

#[test]
fn two_captures_of_one_path_say_where_each_segment_was_lost() {
    let scratch = Scratch::new();
    written(&scratch, "near.pcapng", &end(false, &[50, 120], &[80]));
    written(&scratch, "far.pcapng", &end(true, &[50, 120], &[80]));
    let run = explain(&scratch, &["near.pcapng", "far.pcapng", "--json"]);
    let run = run.succeeds().json();
    let pair = &run["trace"]["pair"];
    assert_eq!(
        pair["sentence"],
        "2 of 3 lost segments were lost between near.pcapng and far.pcapng, 1 before near.pcapng"
    );
    assert_eq!(
        [
            &pair["lost_before"],
            &pair["lost_between"],
            &pair["lost_behind"]
        ],
        [1, 2, 0]
    );
    let clock = &pair["clock"];
    let off = clock["offset_ns"].as_f64().unwrap() - 7e9;
    assert!(off.abs() <= clock["offset_uncertainty_ns"].as_f64().unwrap());
    for delay in pair["delays"].as_array().unwrap() {
        assert_eq!(
            delay["median_ns"].as_u64().unwrap() / 100_000,
            200,
            "{delay}"
        );
    }
    let losses = &pair["connections"][0]["ways"][0]["losses"];
    let first = losses
        .as_array()
        .unwrap()
        .iter()
        .find(|l| l["place"] == "between");
    let first = first.unwrap();
    assert_eq!(first["sequence"], 50_001);
    assert!(
        first["frames"][1].is_null() && first["repeat"][1].is_u64(),
        "{first}"
    );
    let folder = scratch.run_folder();
    let findings = json(&folder.join("findings.json"));
    let of_pair = findings
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["phase"] == "pair");
    assert_eq!(of_pair.unwrap()["title"], pair["sentence"]);
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("Both ends") && !page.contains("<script"));
}

#[test]
fn the_summary_says_what_both_ends_say() {
    let scratch = Scratch::new();
    written(&scratch, "near.pcapng", &end(false, &[50], &[]));
    written(&scratch, "far.pcapng", &end(true, &[50], &[]));
    let said = explain(&scratch, &["near.pcapng", "far.pcapng"]);
    for words in [
        "Both ends: 1 of 1 lost segments was lost between near.pcapng and far.pcapng",
        "from near to far: 20 ms at least",
        "the far clock is 7 s ahead",
    ] {
        assert!(said.succeeds().stdout.contains(words), "{words}: {said:#?}");
    }
    let apart = explain(&scratch, &["--match", "never", "near.pcapng", "far.pcapng"]);
    assert!(!apart.succeeds().stdout.contains("Both ends"));
}

#[test]
fn captures_that_have_nothing_in_common_are_read_each_by_itself_unless_asked_for() {
    let scratch = Scratch::new();
    written(&scratch, "near.pcapng", &end(false, &[50], &[]));
    written(&scratch, "other.pcapng", &super::window_limited());
    let mut empty = Vec::new();
    pcapng::section_header("test", &mut empty);
    pcapng::interface("eth0", 0, &mut empty);
    written(&scratch, "empty.pcapng", &empty);
    for other in ["other.pcapng", "empty.pcapng", "near.pcapng"] {
        let run = explain(&scratch, &["near.pcapng", other, "--json"])
            .succeeds()
            .json();
        assert!(run["trace"]["pair"].is_null(), "{other}");
        if other != "near.pcapng" {
            let args = ["near.pcapng", other, "--match", "always"];
            explain(&scratch, &args).fails_with(2, &["have no packet in common", other]);
        }
    }
    let one = explain(&scratch, &["near.pcapng", "--match", "always"]);
    one.fails_with(2, &["takes two captures"]);
    let input = scratch.script(
        &[],
        "$GOODPUT explain --match always near.pcapng - < other.pcapng",
    );
    scratch.run(input).fails_with(2, &["standard input"]);
}

#[test]
fn what_begins_as_a_log_and_is_none_is_read_without_a_panic() {
    let scratch = Scratch::new();
    for (name, rest) in [
        ("bare", &b""[..]),
        ("torn", &[1, 0, 0, 0, 255, 255, 0, 0, 3][..]),
    ] {
        let mut bytes = b"GPLOG1\0\0".to_vec();
        bytes.extend(rest);
        written(&scratch, name, &bytes);
        let ended = explain(&scratch, &[name]);
        assert_eq!(ended.code(), 1, "{ended:#?}");
        assert!(ended.stdout.contains("No TCP packets"), "{ended:#?}");
    }
}

/// Captures at both hosts and the log of a path, for three seconds of TCP.
fn captured_lab(link: &str) -> Option<Scratch> {
    let network = "[links.wan]\nbetween = [\"near\", \"far\"]\n";
    captured_network(&format!("{network}{WAN}{link}\n"), "198.18.0.2")
}

const WAN: &str = "rate = \"50Mb/s\"\ndelay = \"20ms\"\nseed = 7\n";

/// The same of a network between `near` and `far`, which has this address.
fn captured_network(network: &str, far: &str) -> Option<Scratch> {
    usable(&["unshare", "-n"], &["true"])?;
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("run")).unwrap();
    scratch.write(
        "path.toml",
        &format!("title = \"a test\"\n[hosts.near]\n[hosts.far]\n{network}"),
    );
    let script = "set -e
        export XDG_RUNTIME_DIR=$DIR/run
        $GOODPUT lab up path.toml --name pair --log lab.gplog >&2
        trap '$GOODPUT lab down pair >&2' EXIT
        capture() {
            env --default-signal=INT $GOODPUT lab exec --lab pair $1 -- \\
                $GOODPUT capture eth0 tcp -w $1.pcapng >$1.out 2>$1.err &
        }
        ready() {
            until grep -q 'capturing on' $1.err; do kill -0 $2 || { cat $1.err >&2; exit 99; }; sleep 0.05; done
        }
        capture near; near=$!
        capture far; far=$!
        ready near $near
        ready far $far
        $GOODPUT lab exec --lab pair near -- $GOODPUT measure FAR --duration 6s --ramp 0s >&2 || test $? -eq 1
        sleep 1
        kill -INT $near $far
        wait $near
        wait $far
        $GOODPUT lab down pair >&2
        trap - EXIT
        $GOODPUT explain near.pcapng far.pcapng lab.gplog --json >both.json
        $GOODPUT explain lab.gplog --json >log.json
        $GOODPUT lab log lab.gplog --csv drops.csv --drops";
    let ended = scratch.run(scratch.script(&[], &script.replace("FAR", far)));
    ended.succeeds();
    Some(scratch)
}

/// The losses of a run must be those of the log, one by one, with `reason` and never with `wrong` as cause.
fn assert_the_labs_losses(scratch: &Scratch, reason: &str, wrong: &str) -> u64 {
    let both = json(&scratch.path("both.json"));
    let alone = json(&scratch.path("log.json"));
    let log = &alone["trace"]["logs"][0];
    assert_eq!(log, &{
        let mut beside = both["trace"]["logs"][0].clone();
        beside["file"] = 0.into();
        beside
    });
    assert_eq!(log["complete"], true);
    let lost = log["data_lost"].as_u64().unwrap();
    let pair = &both["trace"]["pair"];
    assert_eq!(pair["lost_between"], lost, "{:#}", pair["sentence"]);
    assert_eq!(
        (&pair["lost_before"], &pair["lost_behind"]),
        (&0.into(), &0.into())
    );
    assert_eq!(pair["not_captured"], 0);
    // One by one: sequence numbers of what the log dropped with payload, and of what was missed.
    let drops = fs::read_to_string(scratch.path("drops.csv")).unwrap();
    let dropped: Vec<u32> = drops
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|cells| cells[16] == "tcp" && cells[11].parse::<u32>().unwrap() > 150)
        .map(|cells| cells[19].parse().unwrap())
        .collect();
    let ways = || {
        let connections = pair["connections"].as_array().unwrap().iter();
        connections.flat_map(|c| c["ways"].as_array().unwrap())
    };
    let mut missed: BTreeSet<u32> = BTreeSet::new();
    let mut with_reason = 0;
    for loss in ways().flat_map(|w| w["losses"].as_array().unwrap()) {
        assert_eq!(loss["place"], "between");
        assert_eq!(loss["reason"], reason, "{loss}");
        let number = |key: &str| u32::try_from(loss[key].as_u64().unwrap()).unwrap();
        let full = number("bytes").div_ceil(number("segments"));
        missed.extend((0..number("segments")).map(|k| number("sequence").wrapping_add(k * full)));
        with_reason += loss["segments"].as_u64().unwrap();
    }
    assert_eq!(with_reason, lost);
    assert!(
        dropped.iter().all(|s| missed.contains(s)),
        "{dropped:?} {missed:?}"
    );
    for run in [&both, &alone] {
        for connection in run["trace"]["connections"].as_array().unwrap() {
            assert_ne!(connection["cause"], wrong, "{:#}", connection["sentence"]);
        }
    }
    lost
}

#[test]
fn losses_that_the_lab_made_at_random_are_found_one_by_one_and_not_called_congestion() {
    let _alone = lab_alone();
    let Some(scratch) = captured_lab("queue = \"4MiB\"\nloss = 0.005") else {
        return;
    };
    let lost = assert_the_labs_losses(&scratch, "lost_random at wan/loss", "shallow_queue");
    assert!(lost > 10, "{lost}");
    scratch.assert_nothing_left();
}

#[test]
fn losses_of_a_queue_that_overflowed_are_found_one_by_one_and_called_that() {
    let _alone = lab_alone();
    let Some(scratch) = captured_lab("queue = \"60KiB\"") else {
        return;
    };
    let lost = assert_the_labs_losses(&scratch, "queue_full at wan/queue", "loss");
    assert!(lost > 10, "{lost}");
    scratch.assert_nothing_left();
}

#[test]
fn segments_that_the_lab_damaged_are_lost_behind_the_far_capture() {
    let _alone = lab_alone();
    let Some(scratch) = captured_lab("queue = \"1MiB\"\ncorrupt = 0.004") else {
        return;
    };
    let both = json(&scratch.path("both.json"));
    let pair = &both["trace"]["pair"];
    let lost = both["trace"]["logs"][0]["data_lost"].as_u64().unwrap();
    let [between, behind] = ["lost_between", "lost_behind"].map(|key| pair[key].as_u64().unwrap());
    // A bit of the header makes another packet of it: one that never came, and one that came to nothing.
    let few = lost / 5;
    assert!(
        lost > 10 && (lost - few..=lost + few).contains(&behind),
        "{}",
        pair["sentence"]
    );
    assert!(between <= few, "{}", pair["sentence"]);
    let connections = pair["connections"].as_array().unwrap().iter();
    let ways = connections.flat_map(|c| c["ways"].as_array().unwrap());
    let losses = ways.flat_map(|w| w["losses"].as_array().unwrap());
    let told = losses.filter(|loss| loss["reason"] == "corrupted at wan/corrupt");
    assert!(told.count() as u64 >= lost - few, "{pair:#}");
    scratch.assert_nothing_left();
}

#[test]
fn losses_are_placed_across_a_translator_and_it_is_named() {
    let scratch = Scratch::new();
    written(&scratch, "near.pcapng", &end(false, &[50, 120], &[80]));
    let far = behind_nat(packets(true, &[50, 120], &[80]));
    written(&scratch, "far.pcapng", &far);
    let run = explain(&scratch, &["near.pcapng", "far.pcapng", "--json"]);
    let run = run.succeeds().json();
    let pair = &run["trace"]["pair"];
    assert_eq!(
        pair["sentence"],
        "2 of 3 lost segments were lost between near.pcapng and far.pcapng, 1 before near.pcapng"
    );
    assert_eq!(
        pair["translated"],
        "Addresses were translated between near.pcapng and far.pcapng (NAT): 192.0.2.1 became 203.0.113.9 with \
         other ports; 1 of 1 connections"
    );
    let one = &pair["translations"][0];
    assert_eq!(one["near_address"], "192.0.2.1");
    assert_eq!(one["far_address"], "203.0.113.9");
    assert_eq!(
        (&one["connections"], &one["ports_changed"]),
        (&1.into(), &1.into())
    );
    let connection = &pair["connections"][0];
    assert_eq!(connection["near_end"], "192.0.2.1:40000");
    assert_eq!(connection["translated_ends"][0], "203.0.113.9:61000");
    assert_eq!(connection["translated_ends"][1], "192.0.2.2:5201");
    for delay in pair["delays"].as_array().unwrap() {
        assert_eq!(
            delay["median_ns"].as_u64().unwrap() / 100_000,
            200,
            "{delay}"
        );
    }
    let page = fs::read_to_string(scratch.run_folder().join("report.html")).unwrap();
    assert!(page.contains("192.0.2.1 became 203.0.113.9"));
}

#[test]
fn a_lab_s_router_that_translates_is_seen_through() {
    let _alone = lab_alone();
    let rules = "rules = [ { src = \"198.18.0.0/24\", rewrite = { src = \"203.0.113.9\" } }, \
                 { dst = \"203.0.113.9\", rewrite = { dst = \"198.18.0.1\" } } ]";
    let network = format!(
        "[routers.nat]\n{rules}\n[links.lan]\nbetween = [\"near\", \"nat\"]\n\
         [links.wan]\nbetween = [\"nat\", \"far\"]\n{WAN}queue = \"4MiB\"\nloss = 0.005\n"
    );
    let Some(scratch) = captured_network(&network, "198.18.1.1") else {
        return;
    };
    let both = json(&scratch.path("both.json"));
    let pair = &both["trace"]["pair"];
    let translation = &pair["translations"][0];
    assert_eq!(translation["near_address"], "198.18.0.1", "{pair:#}");
    assert_eq!(translation["far_address"], "203.0.113.9");
    assert_eq!(translation["ports_changed"], 0);
    let connections = pair["connections"].as_array().unwrap();
    assert_eq!(translation["connections"], connections.len());
    // The control connection and the stream.
    assert_eq!(connections.len(), 2, "{pair:#}");
    let [between, before] = ["lost_between", "lost_before"].map(|key| pair[key].as_u64().unwrap());
    assert!(between > 10 && before == 0, "{}", pair["sentence"]);
    scratch.assert_nothing_left();
}

#[test]
fn captures_without_a_translator_say_nothing_of_one() {
    let scratch = Scratch::new();
    written(&scratch, "near.pcapng", &end(false, &[50], &[]));
    written(&scratch, "far.pcapng", &end(true, &[50], &[]));
    let run = explain(&scratch, &["near.pcapng", "far.pcapng", "--json"]);
    let run = run.succeeds().json();
    assert!(run["trace"]["pair"]["translated"].is_null());
    assert!(run["trace"]["pair"]["connections"][0]["translated_ends"].is_null());
}
