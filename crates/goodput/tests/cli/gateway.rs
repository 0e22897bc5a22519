//! `goodput gateway` between two networks that are namespaces.

#[path = "../../../gateway/tests/all/net/mod.rs"]
pub(super) mod net;

use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::support::{BINARY, Ended, Running, Scratch, as_nobody, is_root, usable, wait_until};
use net::Net;

const SIDES: [&str; 4] = ["--inside", "in0", "--outside", "out0"];

/// A command in the namespace between the two networks.
pub(super) fn inside(net: &Net, mut command: Command) -> Command {
    net.middle.place(&mut command).unwrap();
    command
}

fn gateway(scratch: &Scratch, more: &[&str]) -> (Command, PathBuf) {
    let control = scratch.path("control");
    let name = control.to_str().unwrap().to_owned();
    let args = [&["gateway", "--control", &name], more].concat();
    (scratch.goodput(&args), control)
}

pub(super) fn start(scratch: &Scratch, net: &Net, more: &[&str]) -> Running {
    let (command, _) = gateway(scratch, &[&SIDES, more].concat());
    let running = scratch.start(inside(net, command));
    running.stderr_when("gateway: splitting between in0 and out0");
    running
}

pub(super) fn ask(scratch: &Scratch, net: &Net, words: &[&str]) -> Ended {
    let control = scratch.path("control");
    let args = [
        &["gateway"],
        words,
        &["--control", control.to_str().unwrap()],
    ]
    .concat();
    scratch.run(inside(net, scratch.goodput(&args)))
}

pub(super) fn status(scratch: &Scratch, net: &Net) -> Value {
    let ended = ask(scratch, net, &["status", "--json"]);
    ended.succeeds().json()
}

fn routes_left(net: &Net) -> usize {
    let count = || {
        let mut netlink = sys::netlink::Netlink::open().unwrap();
        netlink.routes_in(Net::config().table).unwrap()
    };
    net.middle.run(count).unwrap()
}

/// A byte there and one back.
fn speak(net: &Net) -> (std::net::TcpStream, std::net::TcpStream) {
    let (mut near, mut far) = net.pair();
    near.write_all(b"a").unwrap();
    far.read_exact(&mut [0]).unwrap();
    far.write_all(b"b").unwrap();
    near.read_exact(&mut [0]).unwrap();
    (near, far)
}

#[test]
fn it_splits_tells_what_it_did_and_leaves_nothing() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let running = start(&scratch, &net, &["--json"]);
    drop(speak(&net));
    wait_until("the connection to have ended", || {
        status(&scratch, &net)["ended"] == 1
    });
    let now = status(&scratch, &net);
    assert_eq!((&now["split"], &now["live"]), (&1.into(), &0.into()));
    assert_eq!(now["schema"], 1);
    let words = ask(&scratch, &net, &["status"]);
    assert!(
        words
            .succeeds()
            .stdout
            .starts_with("split 1, live 0, ended 1")
    );
    running.signal("INT");
    let ended = running.end();
    let last = ended.succeeds().json();
    assert_eq!(last["bytes_outward"], 1);
    // What it did was said before.
    let said = ended.stderr.split("gateway: splitting").next().unwrap();
    assert!(said.contains("table inet goodput-gateway-4710"), "{said}");
    assert_eq!(routes_left(&net), 0);
    drop(speak(&net));
    scratch.assert_nothing_left();
}

#[test]
fn the_first_request_to_stop_lets_connections_end_and_the_second_ends_them() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let mut running = start(&scratch, &net, &[]);
    let (mut near, mut far) = speak(&net);
    running.signal("TERM");
    running.stderr_when("1 connections have 30 s to end");
    near.write_all(b"still").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    assert!(!running.has_ended());
    running.signal("TERM");
    assert_eq!(running.end().code(), 143);
    assert_eq!(
        near.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    // It had no time to tidy up: its guard does.
    wait_until("the route to be gone", || routes_left(&net) == 0);
    scratch.assert_nothing_left();
}

#[test]
fn a_killed_gateway_resets_whom_it_carried_and_later_connections_pass() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let running = start(&scratch, &net, &[]);
    let (mut near, mut far) = speak(&net);
    running.signal("KILL");
    running.end();
    for end in [&mut near, &mut far] {
        assert_eq!(
            end.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    }
    drop(speak(&net));
    wait_until("the route to be gone", || routes_left(&net) == 0);
    // Its socket lies there still and is no obstacle.
    let again = start(&scratch, &net, &[]);
    drop(speak(&net));
    assert_eq!(status(&scratch, &net)["split"], 1);
    again.signal("INT");
    again.end().succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn clean_takes_away_rules_that_nobody_keeps_and_no_others() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let clean = || {
        let words = [&["gateway", "clean"][..], &SIDES].concat();
        scratch.run(inside(&net, scratch.goodput(&words)))
    };
    let running = start(&scratch, &net, &[]);
    let kept = routes_left(&net);
    assert!(kept > 0);
    clean().succeeds();
    assert_eq!(routes_left(&net), kept);
    running.signal("INT");
    running.end().succeeds();
    assert_eq!(routes_left(&net), 0);
    let add = || {
        let mut netlink = sys::netlink::Netlink::open()?;
        let any = std::net::IpAddr::from([0, 0, 0, 0]);
        gateway::install::diversion(&Net::config()).add(&mut netlink, any)
    };
    net.middle.run(add).unwrap().unwrap();
    assert!(routes_left(&net) > 0);
    clean().succeeds();
    assert_eq!(routes_left(&net), 0);
}

#[test]
fn a_second_gateway_says_so_and_the_first_goes_on() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let first = start(&scratch, &net, &[]);
    let (second, _) = gateway(&scratch, &SIDES);
    let ended = scratch.run(inside(&net, second));
    ended.fails_with(3, &["gateway check"]);
    let checked = ask(&scratch, &net, &[]);
    checked.fails_with(2, &["--inside eth1"]);
    let check = scratch.goodput(&[&["gateway", "check"][..], &SIDES].concat());
    let ended = scratch.run(inside(&net, check));
    ended.fails_with(3, &["missing"]);
    assert!(ended.stdout.contains("queue 4710"), "{ended:#?}");
    drop(speak(&net));
    assert_eq!(status(&scratch, &net)["split"], 1);
    first.signal("INT");
    first.end().succeeds();
}

#[test]
fn check_and_dry_run_say_what_there_is_and_change_nothing() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let run = |words: &[&str]| {
        let args = [&["gateway"], words, &SIDES].concat();
        scratch.run(inside(&net, scratch.goodput(&args)))
    };
    let check = run(&["check"]);
    assert!(
        check
            .succeeds()
            .stdout
            .contains("ok      inside: in0 is up, MTU 1500")
    );
    assert!(!check.stdout.contains("MISSING"), "{check:#?}");
    let json = run(&["check", "--json"]);
    assert_eq!(json.succeeds().json()[0]["level"], "fine");
    let dry = run(&["--dry-run"]);
    let text = &dry.succeeds().stdout;
    insta::assert_snapshot!(
        "gateway_dry_run",
        text.replace("# by iptables' extension, which nft cannot write: ", "")
    );
    assert_eq!(routes_left(&net), 0);
    let down = scratch.goodput(&[
        "gateway",
        "check",
        "--inside",
        "nowhere",
        "--outside",
        "out0",
    ]);
    let ended = scratch.run(inside(&net, down));
    ended.fails_with(3, &["1 of"]);
    assert!(
        ended.stdout.contains("MISSING inside: nowhere"),
        "{ended:#?}"
    );
    let args = [
        "gateway",
        "--dry-run",
        "--inside",
        "in0",
        "--outside",
        "nowhere",
    ];
    let ended = scratch.run(inside(&net, scratch.goodput(&args)));
    ended.fails_with(3, &["outside: nowhere: ", "ip link"]);
    // What a gateway would refuse, its check does not let pass.
    for words in [&["check"][..], &[]] {
        let args = [
            &["gateway"],
            words,
            &SIDES,
            &["--outside-congestion", "bogus"],
        ]
        .concat();
        let ended = scratch.run(inside(&net, scratch.goodput(&args)));
        assert_ne!(ended.code(), 0, "{ended:#?}");
        let said = ended.stdout.clone() + &ended.stderr;
        assert!(said.contains("this kernel has no 'bogus'"), "{ended:#?}");
    }
}

#[test]
fn a_file_is_read_again_and_one_that_cannot_be_meant_changes_nothing() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let file = scratch.write("gateway.toml", "");
    let running = start(&scratch, &net, &["--config", file.to_str().unwrap()]);
    let before = speak(&net);
    scratch.write("gateway.toml", "[[rule]]\naction = 'bypass'\n");
    ask(&scratch, &net, &["reload"]).succeeds();
    // Workers look ten times a second.
    wait_until("a connection to pass", || {
        drop(speak(&net));
        status(&scratch, &net)["bypassed"] != 0
    });
    let split = status(&scratch, &net)["split"].clone();
    for (text, says) in [
        ("[[rule]]\naction = 'pass'\n", "line 2, column 10"),
        ("[[rule]]\naction = 'pass'\n", "unknown variant"),
        (
            "# Ours.\ntable = 99\n",
            "gateway.toml:2: table: cannot change",
        ),
        (
            "queue = 65535\nworkers = 2\n",
            "gateway.toml:1: queue: expected room",
        ),
        (
            "\n[inside]\nbuffer = 'much'\n",
            "gateway.toml:3: inside.buffer: ",
        ),
    ] {
        scratch.write("gateway.toml", text);
        ask(&scratch, &net, &["reload"]).fails_with(2, &["gateway.toml", says]);
    }
    drop(speak(&net));
    assert_eq!(status(&scratch, &net)["split"], split);
    let (mut near, mut far) = before;
    near.write_all(b"!").unwrap();
    far.read_exact(&mut [0]).unwrap();
    scratch.write("gateway.toml", "drain = '10ms'\n");
    ask(&scratch, &net, &["reload"]).succeeds();
    ask(&scratch, &net, &["drain"]).succeeds();
    let ended = running.end();
    let said = &ended.succeeds().stderr;
    assert!(said.contains("have 10 ms to end"), "{said}");
    drop((near, far));
}

#[test]
fn another_process_goes_on_and_nobody_notices() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let first = start(&scratch, &net, &[]);
    let (mut near, mut far) = speak(&net);
    let mut speak_on = || {
        near.write_all(b"still").unwrap();
        far.read_exact(&mut [0; 5]).unwrap();
    };
    // Started by hand.
    let second = start(&scratch, &net, &["--take-over"]);
    let ended = first.end();
    assert!(
        ended
            .succeeds()
            .stderr
            .contains("another process continues")
    );
    let said = second.stderr_when("took over from the running gateway, with 1 connections");
    assert!(!said.contains("changes to this machine"), "{said}");
    speak_on();
    // By the one that runs.
    let pid = status(&scratch, &net)["pid"].clone();
    ask(&scratch, &net, &["upgrade"]).succeeds();
    second.end().succeeds();
    speak_on();
    drop(speak(&net));
    let now = status(&scratch, &net);
    assert_ne!(now["pid"], pid);
    assert_eq!((&now["split"], &now["reset"]), (&2.into(), &0.into()));
    drop((near, far));
    ask(&scratch, &net, &["drain"]).succeeds();
    wait_until("it to end and tidy up", || routes_left(&net) == 0);
    wait_until("its socket to be gone", || {
        !scratch.path("control").exists()
    });
    // Nobody to go on for.
    let (third, _) = gateway(&scratch, &[&SIDES[..], &["--take-over"]].concat());
    let ended = scratch.run(inside(&net, third));
    ended.fails_with(4, &["no gateway answers here"]);
    scratch.assert_nothing_left();
}

/// Of each thread of a process and of what it started, what it may do beyond others.
fn capabilities(pid: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let thread = thread.unwrap().path();
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            let line = status.lines().find_map(|line| line.strip_prefix(set));
            found.push(u64::from_str_radix(line.unwrap().trim(), 16).unwrap());
        }
        let children = std::fs::read_to_string(thread.join("children"));
        for child in children.unwrap_or_default().split_whitespace() {
            found.extend(capabilities(child));
        }
    }
    found
}

#[test]
fn what_runs_has_the_networks_capabilities_and_no_others_and_that_is_enough() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    if !is_root() {
        return;
    }
    // Where it could not write with these.
    let theirs = scratch.give_to_nobody("theirs");
    let alone = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&theirs, alone).unwrap();
    let runs = theirs.join("runs");
    let runs = runs.to_str().unwrap();
    let file = "[inside]\ninterfaces = ['in0']\n[outside]\ninterfaces = ['out0']\n\
                [log]\nfile = 'decisions.jsonl'\n";
    let file = scratch.write("gateway.toml", file);
    let words = ["--config", file.to_str().unwrap(), "--runs", runs];
    let words = [&words[..], &["--metrics", "9105", "--workers", "2"]].concat();
    let first = start(&scratch, &net, &words);
    let are_few = |pid: &str| {
        // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW.
        let few = 1 << 10 | 1 << 12 | 1 << 13;
        let found = capabilities(pid);
        // Main, signals, metrics, two workers, the guard.
        assert!(found.len() >= 6 * 4, "{found:x?}");
        assert!(found.iter().all(|set| set & !few == 0), "{found:x?}");
        assert!(found.contains(&few), "{found:x?}");
    };
    let pid = || status(&scratch, &net)["pid"].to_string();
    let before = pid();
    are_few(&before);
    let (mut near, mut far) = speak(&net);
    ask(&scratch, &net, &["reload"]).succeeds();
    ask(&scratch, &net, &["upgrade"]).succeeds();
    first.end().succeeds();
    let made = super::support::run_folders(std::path::Path::new(runs));
    assert!(made[0].join("report.html").is_file(), "{made:?}");
    assert_ne!(pid(), before);
    are_few(&pid());
    near.write_all(b"still").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    drop((near, far));
    drop(speak(&net));
    ask(&scratch, &net, &["reload"]).succeeds();
    ask(&scratch, &net, &["drain"]).succeeds();
    wait_until("it to end and tidy up", || routes_left(&net) == 0);
    scratch.assert_nothing_left();
}

/// As systemd starts the unit: a user that owns nothing, with three capabilities and no way to others.
const AS_UNIT: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all,+net_admin,+net_raw,+net_bind_service",
    "--ambient-caps=-all,+net_admin,+net_raw,+net_bind_service",
    "--bounding-set=-all,+net_admin,+net_raw,+net_bind_service",
    "--no-new-privs",
];

#[test]
fn a_user_that_owns_nothing_splits_upgrades_and_tidies_up_with_three_capabilities() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let Some(as_unit) = usable(AS_UNIT, &["true"]) else {
        return;
    };
    // Where anybody may run it.
    std::fs::copy(BINARY, scratch.path("program")).unwrap();
    let folders = ["runtime", "state"].map(|name| {
        let folder = scratch.give_to_nobody(name);
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        folder
    });
    let command = |wrapper: &[&str], words: &str| {
        let script = format!("exec \"$DIR/program\" gateway {words}");
        let mut command = scratch.script(wrapper, &script);
        command.env("RUNTIME_DIRECTORY", &folders[0]);
        inside(&net, command)
    };
    let words = "--inside in0 --outside out0 --runs state";
    let running = scratch.start(command(as_unit, words));
    running.stderr_when("gateway: splitting between in0 and out0");
    // Root, and the user itself.
    let status = |wrapper: &[&str]| {
        let ended = scratch.run(command(wrapper, "status --json"));
        ended.succeeds().json()
    };
    let (mut near, mut far) = speak(&net);
    let before = status(&[]);
    assert_eq!((&before["split"], &before["live"]), (&1.into(), &1.into()));
    let socket = std::fs::read_dir(&folders[0]).unwrap().next().unwrap();
    let about = socket.unwrap().metadata().unwrap();
    assert_eq!((about.uid(), about.mode() & 0o777), (65_534, 0o600));
    scratch.run(command(as_unit, "upgrade")).succeeds();
    running.end().succeeds();
    near.write_all(b"still").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    let after = status(as_unit);
    assert_ne!(after["pid"], before["pid"]);
    let process = format!("/proc/{}/status", after["pid"]);
    let process = std::fs::read_to_string(process).unwrap();
    assert!(
        process.contains("\nUid:\t65534\t65534\t65534\t65534\n"),
        "{process}"
    );
    drop(speak(&net));
    assert_eq!(status(&[])["split"], 2);
    // Killed: its guard takes the routing rule away; what it left at the end of the unit, `clean` does.
    let pid = after["pid"].to_string();
    let kill = scratch.script(&[], &format!("kill -KILL {pid}"));
    scratch.run(kill).succeeds();
    let _ = (near.read(&mut [0]), far.read(&mut [0]));
    wait_until("the route to be gone", || routes_left(&net) == 0);
    scratch
        .run(command(as_unit, "clean --inside in0 --outside out0"))
        .succeeds();
    drop(speak(&net));
    scratch.assert_nothing_left();
}

#[test]
fn who_has_no_directory_for_a_control_socket_is_told() {
    let scratch = Scratch::new();
    let Some(nobody) = as_nobody() else { return };
    let listen = format!("127.0.0.1:{}", testing::free_port());
    scratch.give_to_nobody("runs");
    let words = ["gateway", "--listen", &listen, "--target", "127.0.0.1:9"];
    let mut command = scratch.within(nobody, &words);
    command.env_remove("XDG_RUNTIME_DIR");
    let running = scratch.start(command);
    let said = running.stderr_when("gateway: accepting");
    assert!(
        said.contains("no control socket: XDG_RUNTIME_DIR"),
        "{said}"
    );
    running.signal("INT");
    running.end().succeeds();
}

#[test]
fn a_connection_is_shown_with_both_halves_and_to_collectors() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let running = start(&scratch, &net, &["--metrics", "9105"]);
    let (mut near, far) = speak(&net);
    near.write_all(&[1; 40_000]).unwrap();
    let shown = status(&scratch, &net);
    let seen = &shown["connections"][0];
    assert_eq!(seen["client"], near.local_addr().unwrap().to_string());
    assert_eq!(seen["server"], far.local_addr().unwrap().to_string());
    for half in 0..2 {
        assert!(seen["halves"][half]["rtt_us"].as_u64() > Some(0), "{seen}");
        assert_eq!(seen["halves"][half]["mss_bytes"], 1448);
    }
    assert!(seen["unsplit_bps"][0].as_u64() > Some(0), "{seen}");
    let text = ask(&scratch, &net, &["status", "--openmetrics"]);
    let line = "goodput_gateway_connections_open 1";
    assert!(text.succeeds().stdout.contains(line));
    let there = || std::net::TcpStream::connect("127.0.0.1:9105");
    let mut collector = net.middle.run(there).unwrap().unwrap();
    collector
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    collector.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    assert!(
        answer.contains("goodput_gateway_connections_open"),
        "{answer}"
    );
    // The live view ends with its gateway.
    let control = scratch.path("control");
    let control = control.to_str().unwrap();
    let watch = scratch.goodput(&["gateway", "status", "--watch", "--control", control]);
    let watch = scratch.start(inside(&net, watch));
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    drop((near, far));
    running.signal("INT");
    running.end().succeeds();
    let ended = watch.end();
    ended.fails_with(4, &["no gateway answers here"]);
    assert!(
        ended.stdout.matches("split 1, live 1").count() > 0,
        "{ended:#?}"
    );
    assert!(ended.stdout.contains("UNSPLIT ~"), "{ended:#?}");
}

#[test]
fn systemd_hears_that_it_is_ready_and_well() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let file = scratch.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&file).unwrap();
    let patience = std::time::Duration::from_secs(30);
    socket.set_read_timeout(Some(patience)).unwrap();
    let heard = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let (mut command, _) = gateway(&scratch, &SIDES);
    command.env("NOTIFY_SOCKET", &file);
    command.env("WATCHDOG_USEC", "600000");
    let running = scratch.start(inside(&net, command));
    let ready = heard();
    assert!(ready.ends_with("\nREADY=1"), "{ready}");
    assert!(ready.starts_with("MAINPID="), "{ready}");
    for _ in 0..3 {
        assert_eq!(heard(), "WATCHDOG=1");
    }
    // The old process says who is the main one before it ends, however late the new one does.
    ask(&scratch, &net, &["upgrade"]).succeeds();
    running.end().succeeds();
    let main = format!("MAINPID={}", status(&scratch, &net)["pid"]);
    socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 256];
    let mut all = std::iter::from_fn(|| {
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    });
    assert!(all.any(|said| said == main), "{main}");
    socket.set_nonblocking(false).unwrap();
    ask(&scratch, &net, &["drain"]).succeeds();
    while heard() != "STOPPING=1" {}
    wait_until("it to end and tidy up", || routes_left(&net) == 0);
}

#[test]
fn nobody_else_reaches_the_control_socket() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let Some(nobody) = as_nobody() else { return };
    let running = start(&scratch, &net, &[]);
    let control = scratch.path("control");
    let args = ["gateway", "drain", "--control", control.to_str().unwrap()];
    let refused = scratch.run(inside(&net, scratch.within(nobody, &args)));
    refused.fails_with(4, &["no gateway answers here", "Permission denied"]);
    status(&scratch, &net);
    // Even where the file lets everybody in.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&control, all).unwrap();
    for _ in 0..20 {
        let refused = scratch.run(inside(&net, scratch.within(nobody, &args)));
        refused.fails_with(4, &["no gateway answers here"]);
    }
    assert!(
        running
            .stderr()
            .contains("is turned away from the control socket")
    );
    status(&scratch, &net);
    drop(speak(&net));
    running.signal("INT");
    running.end().succeeds();
}

#[test]
fn where_nothing_can_be_intercepted_connections_are_made_to_it() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let (listener, target) = net.listen(net::SERVER);
    let target = target.to_string();
    let args = ["--listen", "198.18.1.1:5001", "--target", &target];
    let (command, _) = gateway(&scratch, &args);
    let running = scratch.start(inside(&net, command));
    running.stderr_when("gateway: accepting");
    let mut near = net.connect("198.18.1.1:5001".parse().unwrap()).unwrap();
    let (mut far, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip().to_string(), "198.18.2.1");
    near.write_all(b"there").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    drop(listener);
    // Here a refusal can only be a reset, which may come before anybody has looked whether it is connected.
    let refused = net.connect("198.18.1.1:5001".parse().unwrap());
    let refused = refused.and_then(|mut socket| socket.read(&mut [0]));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop((near, far));
    wait_until("both to have ended", || status(&scratch, &net)["live"] == 0);
    running.signal("INT");
    running.end().succeeds();
}
