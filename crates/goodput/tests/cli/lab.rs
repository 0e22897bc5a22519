//! `goodput lab`: programs behind a path, labs in the background, and what they leave behind.
//!
//! Labs of these tests have names of their own and are always named: the machine may have others up.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Ended, Scratch, as_nobody, is_root, lab_alone, lab_beside_others, reachable, usable, wait_until,
};

const THREE: &str = r#"
title = "Two senders and a receiver"
[hosts.one]
[hosts.two]
[hosts.receiver]
[switches.switch]
rules = [{ dst_port = 81, drop = true }]
[links.one]
between = ["one", "switch"]
rate = "100Mb/s"
delay = "20ms"
[links.two]
between = ["two", "switch"]
[links.out]
between = ["switch", "receiver"]
[transfer]
from = "one"
to = "receiver"
"#;

/// Says how many microseconds a TCP handshake takes with the server at the address in `variable`.
fn handshake(variable: &str) -> String {
    format!(
        "start=${{EPOCHREALTIME/[.,]/}}; exec 3<>/dev/tcp/${variable}/5210 || exit 99; \
         echo $((${{EPOCHREALTIME/[.,]/}} - start))"
    )
}

/// A folder with the file `three.toml`, and runtime files of its own.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("run")).unwrap();
    scratch.write("three.toml", THREE);
    scratch
}

fn lab_command(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = scratch.goodput(&["lab"]);
    command.args(args);
    command.env("XDG_RUNTIME_DIR", scratch.path("run"));
    command.env_remove("GOODPUT_LAB");
    command
}

fn lab(scratch: &Scratch, args: &[&str]) -> Ended {
    scratch.run(lab_command(scratch, args))
}

fn socket(scratch: &Scratch, name: &str) -> PathBuf {
    scratch.path("run/goodput").join(format!("{name}.sock"))
}

/// The lab of that name as `ps` has it.
fn status(scratch: &Scratch, name: &str) -> Option<Value> {
    let labs = lab(scratch, &["ps", "--json"]).succeeds().json();
    let found = labs.as_array().unwrap().iter().find(|l| l["name"] == name);
    found.cloned()
}

/// What a lab answers to these bytes; nothing where it closes the connection.
fn answer(stream: &mut UnixStream, bytes: &[u8]) -> String {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // The lab may have closed before the last byte.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    String::from_utf8(said).unwrap()
}

#[test]
fn the_exit_code_is_that_of_the_program() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    let script = |text| ["shell", "-q", "--", "sh", "-c", text];
    for (args, code) in [
        (&["shell", "-q", "--", "true"][..], 0),
        (&["shell", "-q", "--", "false"], 1),
        (&script("exit 42"), 42),
        (&script("kill -KILL $$"), 137),
        (&["shell", "-q", "--", "no-such-program"], 127),
        (&["shell", "-q", "--", "/"], 126),
    ] {
        let ended = lab(&scratch, args);
        assert_eq!(ended.code(), code, "{args:?}: {ended:#?}");
        assert_eq!(ended.stdout, "");
    }
    scratch.assert_nothing_left();
}

#[test]
fn the_far_host_answers_a_round_trip_away() {
    let _alone = lab_alone();
    let scratch = scratch();
    let script = handshake("GOODPUT_FAR")
        + "; if command -v ping >&2; then ping -c1 $GOODPUT_FAR; else echo time=40.0 ms; fi";
    let certificate = ["--certificate", "certificate.json"];
    let mut args = vec!["shell", "--delay", "20ms"];
    args.extend(certificate);
    args.extend(["--", "bash", "-c", &script]);
    let ended = lab(&scratch, &args);
    ended.fails_with(0, &["20 ms each way", "lab: delay error p50"]);
    let (microseconds, ping) = ended.stdout.split_once('\n').unwrap();
    assert!(microseconds.parse::<u64>().unwrap() >= 40_000, "{ended:#?}");
    let (_, time) = ping.split_once("time=").unwrap();
    let time: f64 = time.split(' ').next().unwrap().parse().unwrap();
    assert!(time >= 40.0, "{ended:#?}");
    let certificate = crate::support::json(&scratch.path("certificate.json"));
    assert!(
        certificate["probes"].as_u64().unwrap() > 0,
        "{certificate:#}"
    );
    assert_eq!(certificate["frames_lost_by_lab"], 0);
    scratch.assert_nothing_left();
}

#[test]
fn a_request_to_stop_ends_the_program_and_the_lab_and_ctrl_c_is_the_programs() {
    let _beside = lab_beside_others();
    for stubborn in ["", "trap '' TERM HUP;"] {
        let scratch = scratch();
        let script = format!("{stubborn} echo begun >&2; while :; do sleep 1; done");
        let running = scratch.start(lab_command(&scratch, &["shell", "--", "sh", "-c", &script]));
        running.stderr_when("begun");
        running.signal("INT");
        running.signal("TERM");
        assert_eq!(running.end().code(), 143, "{stubborn}");
        scratch.assert_nothing_left();
    }
}

#[test]
fn a_path_inside_a_lab_is_put_in_front_of_it() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    let connect = handshake("GOODPUT_FAR");
    let inner = format!("$GOODPUT lab shell -q --delay 20ms -- bash -c '{connect}'");
    // The inner shell ends by itself, then is asked to; the outer host has its network again.
    let script = format!(
        "bash -c '{connect}'; {inner}; bash -c '{connect}'
        $GOODPUT lab shell --delay 20ms -- sh -c 'echo begun > begun; sleep 600; true' &
        while ! test -s begun; do sleep 0.1; done
        kill $!; wait $!; echo code $?; bash -c '{connect}'
        $GOODPUT lab shell -q multi-hop -- true; echo code $?"
    );
    let ended = lab(
        &scratch,
        &["shell", "--delay", "10ms", "--", "bash", "-c", &script],
    );
    ended.fails_with(0, &["no accuracy report", "only a path of two hosts"]);
    let said: Vec<&str> = ended.stdout.lines().collect();
    let [alone, behind, after, "code 143", again, "code 2"] = said[..] else {
        panic!("{ended:#?}");
    };
    for (rtt, least) in [
        (alone, 20_000),
        (behind, 60_000),
        (after, 20_000),
        (again, 20_000),
    ] {
        assert!(rtt.parse::<u64>().unwrap() >= least, "{ended:#?}");
    }
    scratch.assert_nothing_left();
}

#[test]
fn the_machines_network_is_behind_the_path_and_as_it_was_afterwards() {
    let _beside = lab_beside_others();
    if !is_root() {
        testing::skipped("--outside is for root");
        return;
    }
    let tools = "ip -V && nft --version && nsenter --version && nft list tables";
    if usable(&["unshare", "-n"], &["sh", "-c", tools]).is_none() {
        return;
    }
    let scratch = scratch();
    // A machine of its own, with a host behind its network that answers connections, and a guest on
    // another one that can reach it only if the machine forwards for everybody.
    let script = "
        unshare -n sleep 600 & host=$!
        while test $(readlink /proc/$host/ns/net) = $(readlink /proc/$$/ns/net); do sleep 0.1; done
        ip link add up0 type veth peer name eth0 netns $host
        ip addr add 203.0.113.2/24 dev up0 && ip link set up0 up
        nsenter -t $host -n sh -c 'ip addr add 203.0.113.1/24 dev eth0; ip link set eth0 up
            ip route add default via 203.0.113.2'
        unshare -n sleep 600 & guest=$!
        while test $(readlink /proc/$guest/ns/net) = $(readlink /proc/$$/ns/net); do sleep 0.1; done
        ip link add up1 type veth peer name eth0 netns $guest
        ip addr add 192.0.2.2/24 dev up1 && ip link set up1 up
        nsenter -t $guest -n sh -c 'ip addr add 192.0.2.1/24 dev eth0; ip link set eth0 up
            ip route add default via 192.0.2.2'
        reach() {
            nsenter -t $guest -n timeout 1 bash -c 'exec 3<>/dev/tcp/203.0.113.1/5210' && echo reached || echo not
        }
        nsenter -t $host -n $GOODPUT serve --listen 203.0.113.1 2> served & server=$!
        while ! grep -q serving served; do sleep 0.1; done
        state() { ip -o link | cut -d: -f2; nft list ruleset; cat /proc/sys/net/ipv4/ip_forward; ls run/goodput
            ls /run/goodput-0/outside-$(stat -Lc %i /proc/self/ns/net)-*; }
        mkdir -m 700 run/goodput; ip link set lo up; state > before
        $GOODPUT lab shell --outside --delay 20ms -- bash -c \"$CONNECT\"
        state > after
        $GOODPUT lab shell -q --outside -- sh -c 'echo > begun; exec sleep 600' & shell=$!
        while ! test -e begun; do sleep 0.1; done
        state > during; reach > reach-during; kill -9 $shell; wait $shell
        XDG_RUNTIME_DIR=/nowhere $GOODPUT lab ps; state > swept
        echo 1 > /proc/sys/net/ipv4/ip_forward
        $GOODPUT lab shell -q --outside -- sh -c 'echo > open; exec sleep 600' & shell=$!
        while ! test -e open; do sleep 0.1; done
        reach > reach-open; kill $shell; wait $shell
        kill $server $host $guest; wait $server";
    let mut command = scratch.script(&["unshare", "-n"], script);
    command.env("XDG_RUNTIME_DIR", scratch.path("run"));
    command
        .env("CONNECT", handshake("TARGET"))
        .env("TARGET", "203.0.113.1");
    command.env_remove("GOODPUT_LAB");
    let ended = scratch.run(command);
    let says = [
        "ip_forward = 1",
        "nftables table",
        "taking all of that back",
        "undoing what",
    ];
    ended.fails_with(0, &says);
    let microseconds = ended.stdout.trim().parse::<u64>();
    assert!(microseconds.is_ok_and(|us| us >= 40_000), "{ended:#?}");
    let state = |name: &str| fs::read_to_string(scratch.path(name)).unwrap();
    assert!(
        state("during").contains("masquerade"),
        "{}",
        state("during")
    );
    assert!(state("during").contains("outside-"), "{}", state("during"));
    assert_eq!(state("before"), state("after"));
    assert_eq!(state("before"), state("swept"));
    assert_eq!(state("reach-during"), "not\n");
    assert_eq!(state("reach-open"), "reached\n");
    scratch.assert_nothing_left();
}

#[test]
fn the_machines_network_is_for_root() {
    let _beside = lab_beside_others();
    let Some(wrapper) = (if is_root() {
        as_nobody()
    } else {
        Some(&[][..])
    }) else {
        return;
    };
    let scratch = scratch();
    let mut command = scratch.within(wrapper, &["lab", "shell", "--outside", "--", "true"]);
    command.env_remove("GOODPUT_LAB");
    scratch.run(command).fails_with(3, &["needs root"]);
}

#[test]
fn a_lab_in_the_background_is_entered_changed_and_ended() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    let up = lab(
        &scratch,
        &[
            "up",
            "three.toml",
            "--name",
            "cycle",
            "--log",
            "cycle.gplog",
        ],
    );
    let up = &up.succeeds().stdout;
    assert!(up.contains("receiver      198.18.0.3"), "{up}");
    assert!(up.contains("goodput lab exec --lab cycle one"), "{up}");
    assert!(
        fs::metadata(socket(&scratch, "cycle"))
            .unwrap()
            .file_type()
            .is_socket()
    );

    let on = |words: &[&str]| {
        let mut args = vec![words[0], "--lab", "cycle"];
        args.extend(&words[1..]);
        lab(&scratch, &args)
    };
    let script = "echo $GOODPUT_LAB $GOODPUT_HOST $GOODPUT_HOST_RECEIVER; pwd; exit 7";
    let ended = on(&["exec", "two", "--", "sh", "-c", script]);
    assert_eq!(ended.code(), 7, "{ended:#?}");
    let folder = scratch.path("").canonicalize().unwrap();
    let expected = format!("cycle two 198.18.0.3\n{}\n", folder.display());
    assert_eq!(ended.stdout, expected);
    assert_eq!(on(&["exec", "one", "--", "no-such-program"]).code(), 127);

    let rtt = || {
        let ended = on(&[
            "exec",
            "one",
            "--",
            "bash",
            "-c",
            &handshake("GOODPUT_HOST_RECEIVER"),
        ]);
        ended.succeeds().stdout.trim().parse::<u64>().unwrap()
    };
    assert!(rtt() >= 40_000);
    on(&["set", "one", "delay=50ms", "loss=0"]).succeeds();
    assert!(rtt() >= 100_000);
    on(&["set", "one:backward", "delay=150ms"]).succeeds();
    assert!(rtt() >= 200_000);

    let status = status(&scratch, "cycle").unwrap();
    assert_eq!(status["title"], "Two senders and a receiver");
    assert_eq!(status["hosts"][2]["address"], "198.18.0.3");
    assert_eq!(status["links"][0]["from"], "one");
    for way in ["forward", "backward"] {
        let frames = status["links"][0][way]["frames"].as_u64().unwrap();
        assert!(frames > 0, "{status:#}");
    }

    let shown = on(&["rules", "switch"]).succeeds().stdout.clone();
    assert!(shown.contains("{ drop = true, dst_port = 81 }"), "{shown}");
    scratch.write(
        "rules.toml",
        "rules = [{ dst_port = 5210, protocol = \"tcp\", to = [\"two\"] }]",
    );
    on(&["rules", "switch", "rules.toml"]).succeeds();
    let refused = "exec 3<>/dev/tcp/$GOODPUT_HOST_RECEIVER/5210";
    let ended = on(&["exec", "one", "--", "timeout", "1", "bash", "-c", refused]);
    assert_eq!(ended.code(), 124, "{ended:#?}");
    let shown = on(&["rules", "switch"]).succeeds().stdout.clone();
    let hits = shown.split_whitespace().next().unwrap();
    assert!(hits.parse::<u64>().unwrap() > 0, "{shown}");
    on(&["rules", "switch", "clear"]).succeeds();
    assert!(rtt() >= 200_000);

    let down = lab(&scratch, &["down", "cycle"]);
    let down = &down.succeeds().stdout;
    for says in ["'cycle' is down", "delay error p50", "log: "] {
        assert!(down.contains(says), "lacks '{says}': {down}");
    }
    assert!(!socket(&scratch, "cycle").exists());
    scratch.assert_nothing_left();
    reads_as_a_log(&scratch, "cycle.gplog");
}

fn reads_as_a_log(scratch: &Scratch, name: &str) {
    let summary = lab(scratch, &["log", name]).succeeds().stdout.clone();
    assert!(summary.contains("one: one -> switch"), "{summary}");
    assert!(
        summary.contains("filtered") || summary.contains("no drops"),
        "{summary}"
    );
    let csv = lab(scratch, &["log", name, "--csv", "-"])
        .succeeds()
        .stdout
        .clone();
    assert!(
        csv.starts_with("time_ns,frame,segment,port,link"),
        "{csv:.200}"
    );
    assert!(csv.lines().count() > 100);
    let one = lab(
        scratch,
        &[
            "log",
            name,
            "--csv",
            "-",
            "--link",
            "one:forward",
            "--frame",
            "1",
        ],
    );
    for line in one.succeeds().stdout.lines().skip(1) {
        assert_eq!(line.split(',').nth(1), Some("1"), "{line}");
        assert_eq!(line.split(',').nth(4), Some("one"), "{line}");
    }
    for (flag, magic) in [
        ("--parquet", &b"PAR1"[..]),
        ("--pcapng", &[0x0a, 0x0d, 0x0d, 0x0a]),
    ] {
        lab(scratch, &["log", name, flag, "out"]).succeeds();
        assert!(fs::read(scratch.path("out")).unwrap().starts_with(magic));
    }
    lab(scratch, &["log", name, "--csv", name]).fails_with(2, &["is the log itself"]);
    let says = ["one:forward or one:backward"];
    lab(scratch, &["log", name, "--csv", "-", "--link", "one"]).fails_with(2, &says);
    let says = ["no link 'oen'", "did you mean 'one'?"];
    lab(scratch, &["log", name, "--csv", "-", "--link", "oen"]).fails_with(2, &says);
}

#[test]
fn two_labs_at_once_are_told_apart_by_name() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    for name in ["pair-a", "pair-b"] {
        lab(&scratch, &["up", "three.toml", "--name", name]).succeeds();
    }
    let taken = lab(&scratch, &["up", "three.toml", "--name", "pair-a"]);
    taken.fails_with(2, &["a lab named 'pair-a' is up"]);
    let which = lab(&scratch, &["exec", "one", "--", "true"]);
    which.fails_with(2, &["several labs are up", "pair-a, pair-b"]);
    lab(&scratch, &["set", "--lab", "pair-a", "one", "delay=70ms"]).succeeds();
    let script = handshake("GOODPUT_HOST_RECEIVER");
    let rtt = |name| {
        let args = ["exec", "--lab", name, "one", "--", "bash", "-c", &script];
        let ended = lab(&scratch, &args);
        ended.succeeds().stdout.trim().parse::<u64>().unwrap()
    };
    assert!(rtt("pair-a") >= 140_000);
    assert!(rtt("pair-b") >= 40_000);
    lab(&scratch, &["down"]).fails_with(2, &["pair-a", "pair-b"]);
    lab(&scratch, &["down", "pair-a"]).succeeds();
    assert!(status(&scratch, "pair-a").is_none());
    // Even the only one is ended by its name.
    lab(&scratch, &["down"]).fails_with(2, &["pair-b"]);
    assert!(status(&scratch, "pair-b").is_some());
    lab(&scratch, &["down", "pair-b"]).succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn captures_and_log_are_one_account_frame_by_frame() {
    let _alone = lab_alone();
    let scratch = scratch();
    let args = [
        "check",
        "master-1-lfn-400ms",
        "--traffic",
        "near:far",
        "--rate",
        "1Mb/s",
        "--time",
        "1s",
        "--json",
    ];
    let found = lab(&scratch, &args).succeeds().json();
    assert_eq!(found["account"]["agree"], true, "{found}");
    // 84 datagrams of 1500 bytes in a second at 1 Mb/s, of which the switch drops every tenth.
    let filtered = found["drops_by_cause"]["filtered"].as_u64();
    assert_eq!(filtered, Some(8), "{found}");
    assert_eq!(found["account"]["captured_missing"], 8);
    assert_eq!(found["kernel"]["agrees"], true);
    let complete = &found["traffic"];
    assert_eq!(complete["sent_bytes"], 84 * 1472);
    assert_eq!(complete["received_bytes"], 76 * 1472);
}

#[test]
fn a_network_that_makes_frames_has_no_such_account() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    let args = [
        "check",
        "duplicates",
        "--traffic",
        "near:far",
        "--rate",
        "10Mb/s",
        "--time",
        "1s",
        "--json",
    ];
    let found = lab(&scratch, &args).fails_with(1, &[]).json();
    assert!(
        found["account"]["captured_surplus"].as_u64() > Some(0),
        "{found}"
    );
    assert_eq!(found["holds"], false);
}

#[test]
fn traffic_to_nobody_is_refused() {
    let scratch = scratch();
    for (traffic, says) in [
        (
            "into:receivr",
            "there is no host 'receivr'; did you mean 'receiver'?",
        ),
        ("one:one", "a host cannot send to itself"),
        (
            "some",
            "--traffic some: wants all, ring, into:HOST or FROM:TO",
        ),
    ] {
        let args = ["check", "two-into-one", "--traffic", traffic];
        lab(&scratch, &args).fails_with(2, &[says]);
    }
}

#[test]
fn a_lab_that_was_killed_is_swept() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    lab(&scratch, &["up", "three.toml", "--name", "killed"]).succeeds();
    let pid = status(&scratch, "killed").unwrap()["pid"].to_string();
    let killed = Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert!(killed.success());
    wait_until("the socket to be swept", || {
        status(&scratch, "killed").is_none() && !socket(&scratch, "killed").exists()
    });
    lab(&scratch, &["up", "three.toml", "--name", "killed"]).succeeds();
    let pid = status(&scratch, "killed").unwrap()["pid"].to_string();
    // The polite kill ends it as `down` does.
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    wait_until("the socket to be gone", || {
        !socket(&scratch, "killed").exists()
    });
    scratch.assert_nothing_left();
}

#[test]
fn names_that_are_not_there_are_refused_with_those_that_are() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    lab(&scratch, &["up", "three.toml", "--name", "names"]).succeeds();
    for (args, says) in [
        (
            &["down", "naems"][..],
            &["no lab 'naems'", "did you mean 'names'?"][..],
        ),
        (
            &["exec", "--lab", "names", "tow", "--", "true"],
            &["no host 'tow'", "did you mean 'two'?"],
        ),
        (
            &["set", "--lab", "names", "otu", "delay=1ms"],
            &["no link 'otu'", "did you mean 'out'?"],
        ),
        (
            &["set", "--lab", "names", "out", "rate=1Gb/s"],
            &["none that could change"],
        ),
        (&["set", "--lab", "names", "one", "rate=1Gb"], &["1Gb"]),
        (
            &["set", "--lab", "names", "one", "dealy=1ms"],
            &["did you mean 'delay'?"],
        ),
        (&["set", "--lab", "names", "one", "up"], &["KEY=VALUE"]),
        (
            &["rules", "--lab", "names", "swich"],
            &["swich", "did you mean 'switch'?"],
        ),
        (
            &["rules", "--lab", "names", "switch", "none.toml"],
            &["cannot read rules from none.toml"],
        ),
        (
            &["up", "three.toml", "--name", "a/b"],
            &["cannot be named 'a/b'"],
        ),
        (&["log", "three.toml"], &["three.toml"]),
        (&["log", "none.gplog"], &["none.gplog"]),
    ] {
        let ended = lab(&scratch, args);
        ended.fails_with(2, says);
        assert_eq!(ended.stdout, "", "{args:?}");
    }
    lab(&scratch, &["down", "names"]).succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn a_file_or_a_place_that_cannot_be_is_told_before_a_lab_is_up() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    scratch.write("bad.toml", "title = 'x'\nspeed = 1\n");
    for verb in ["up", "shell"] {
        lab(&scratch, &[verb, "bad.toml"]).fails_with(2, &["bad.toml, line 2"]);
        lab(&scratch, &[verb, "no-such"]).fails_with(2, &["no-such", "the nearest of"]);
    }
    // What only the process in the background can know comes back as well.
    scratch.write("taken.gplog", "");
    let args = [
        "up",
        "three.toml",
        "--name",
        "early",
        "--log",
        "taken.gplog",
    ];
    lab(&scratch, &args).fails_with(3, &["taken.gplog", "File exists"]);
    assert!(!socket(&scratch, "early").exists());

    let open = scratch.path("run/goodput");
    fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
    let says = ["others may enter it", "XDG_RUNTIME_DIR"];
    lab(&scratch, &["up", "three.toml"]).fails_with(3, &says);
    fs::remove_dir(&open).unwrap();
    std::os::unix::fs::symlink(scratch.path("run"), &open).unwrap();
    lab(&scratch, &["up", "three.toml"]).fails_with(3, &["not a directory"]);
    scratch.assert_nothing_left();
}

#[test]
fn a_path_beyond_the_labs_reach_is_announced_and_one_beyond_memory_refused() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    let ended = lab(&scratch, &["shell", "--rate", "10Gb/s", "--", "true"]);
    ended.fails_with(0, &["this path needs 812,743 frames/s in each direction"]);
    let ended = lab(
        &scratch,
        &["shell", "--rate", "100Gb/s", "--delay", "10s", "--", "true"],
    );
    ended.fails_with(2, &["frames in flight"]);
}

#[test]
fn whatever_comes_in_on_the_control_socket_the_lab_goes_on() {
    let _beside = lab_beside_others();
    let scratch = scratch();
    lab(&scratch, &["up", "three.toml", "--name", "garbage"]).succeeds();
    let socket = socket(&scratch, "garbage");
    let connect = || UnixStream::connect(&socket).unwrap();
    let deep = [b"[".repeat(60_000), b"\n".to_vec()].concat();
    for bytes in [
        &b"\n"[..],
        b"\0\xff\xfe\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"{\"op\":\"halt\"}\n",
        b"{\"op\":\"enter\",\"host\":[]}\n",
        b"{\"op\":\"set\",\"link\":\"one\",\"settings\":{\"a\\nb\":\"1\"}}\n",
        b"{\"op\":\"set-rules\",\"node\":\"switch\",\"toml\":\"rules = [[[\"}\n",
        &deep,
        &b"a".repeat(70_000),
    ] {
        let said = answer(&mut connect(), bytes);
        assert!(said.starts_with("{\"error\":[2,"), "{said}");
    }
    // Silent ones take no place that others need.
    let silent: Vec<UnixStream> = (0..15).map(|_| connect()).collect();
    assert!(status(&scratch, "garbage").is_some());
    drop(silent);
    // One that asks and does not wait for the answer.
    connect().write_all(b"{\"op\":\"status\"}\n").unwrap();
    // One that says half of a request and hangs up.
    connect().write_all(b"{\"op\":").unwrap();
    assert!(status(&scratch, "garbage").is_some());
    lab(&scratch, &["down", "garbage"]).succeeds();
    scratch.assert_nothing_left();
}

/// Not a test of its own: what another user's process does in the one below.
#[test]
#[ignore = "run by another test, as another user"]
fn knock() {
    let Some(socket) = std::env::var_os("GOODPUT_TEST_SOCKET") else {
        return;
    };
    let mut stream = UnixStream::connect(socket).unwrap();
    println!("{}", answer(&mut stream, b"{\"op\":\"status\"}\n"));
}

#[test]
fn another_user_is_refused_even_where_the_directory_lets_him_in() {
    let _beside = lab_beside_others();
    if !is_root() || as_nobody().is_none() {
        testing::skipped("only root can be another user");
        return;
    }
    let scratch = scratch();
    lab(&scratch, &["up", "three.toml", "--name", "mine"]).succeeds();
    let socket = socket(&scratch, "mine");
    for (path, mode) in [
        ("run", 0o755),
        ("run/goodput", 0o755),
        ("run/goodput/mine.sock", 0o666),
    ] {
        fs::set_permissions(scratch.path(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    let this = std::env::current_exe().unwrap();
    let knocked = Command::new(reachable(&this).unwrap())
        .args(["--exact", "lab::knock", "--ignored", "--nocapture"])
        .env("GOODPUT_TEST_SOCKET", &socket)
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&knocked.stdout);
    assert!(said.contains("another user's"), "{knocked:?}");
    fs::set_permissions(
        scratch.path("run/goodput"),
        PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    lab(&scratch, &["down", "mine"]).succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn an_ordinary_user_has_labs_too() {
    let _beside = lab_beside_others();
    let Some(wrapper) = (if is_root() {
        as_nobody()
    } else {
        Some(&[][..])
    }) else {
        return;
    };
    if usable(wrapper, &["unshare", "-Ur", "true"]).is_none() {
        return;
    }
    let scratch = scratch();
    if is_root() {
        scratch.give_to_nobody("run");
    }
    let run = |args: &[&str]| {
        let mut words = vec!["lab"];
        words.extend(args);
        let mut command = scratch.within(wrapper, &words);
        command.env("XDG_RUNTIME_DIR", scratch.path("run"));
        scratch.run(command)
    };
    run(&["up", "three.toml", "--name", "own"]).succeeds();
    // Inside the lab's own user namespace the same lab is found.
    let script = format!("{}; $GOODPUT lab ps", handshake("GOODPUT_HOST_RECEIVER"));
    let ended = run(&["exec", "--lab", "own", "one", "--", "bash", "-c", &script]);
    let (microseconds, labs) = ended.succeeds().stdout.split_once('\n').unwrap();
    assert!(microseconds.parse::<u64>().unwrap() >= 40_000, "{ended:#?}");
    assert!(labs.contains("own: Two senders"), "{labs}");
    run(&["shell", "-q", "--delay", "1ms", "--", "true"]).succeeds();
    run(&["down", "own"]).succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn every_verb_of_the_lab_has_an_example_in_its_help() {
    let scratch = Scratch::new();
    for verb in ["shell", "up", "ps", "exec", "set", "rules", "down", "log"] {
        let ended = scratch.run(scratch.goodput(&["lab", verb, "--help"]));
        let (_, examples) = ended.succeeds().stdout.split_once("Examples:").expect(verb);
        assert!(
            examples.contains(&format!("goodput lab {verb}")),
            "{examples}"
        );
    }
    let help = scratch
        .run(scratch.goodput(&["lab", "--help"]))
        .succeeds()
        .stdout
        .clone();
    assert!(!help.contains("daemon"), "{help}");
}
