//! `goodput capture` on a veth whose other end sends frames that are known one by one; tshark reads.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::support::{
    Ended, Scratch, as_nobody, is_root, json, lab_beside_others, usable, with_own_network,
};

/// Two ends of a veth with nothing of their own to say; `capture ARGS` begins one in the background,
/// `finish` ends it as Ctrl-C does and gives its exit code; `send` sends numbered frames to v1.
const PRELUDE: &str = r#"
set -e
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
ip link set lo up
ip link add v1 type veth peer name v2
ip link set v1 up
ip link set v2 up
capture() {
    env --default-signal=INT $GOODPUT capture "$@" >out 2>err & pid=$!
    until grep -q 'capturing on' err; do kill -0 $pid || { cat err >&2; exit 99; }; sleep 0.05; done
}
finish() {
    kill -INT $pid
    wait $pid
}
send() {
    python3 - "$@" <<'PY'
import socket, struct, sys, time
first, count, size, tag = (int(word) for word in sys.argv[1:5])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("v2", 0))
print(time.time_ns())
for number in range(first, first + count):
    tags = struct.pack("!HH", 0x8100, tag) if tag else b""
    head = b"\x02\0\0\0\0\1" + b"\x02\0\0\0\0\2" + tags + b"\x08\0"
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + size, 0, 0, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    udp = struct.pack("!HHHH", number, 9, 8 + size, 0)
    s.send(head + ip + udp + bytes(size))
print(time.time_ns())
PY
}
"#;

fn scripted(scratch: &Scratch, wrapper: &[&str], script: &str) -> Ended {
    scratch.run(scratch.script(wrapper, &format!("{PRELUDE}{script}")))
}

/// Fields of a file's packets as tshark reads them, a line each.
fn fields(scratch: &Scratch, file: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-T", "fields", "-r"])
        .arg(scratch.path(file));
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(ToOwned::to_owned).collect()
}

/// The UDP source ports of a file, by which the sender numbers its frames.
fn numbers(scratch: &Scratch, file: &str) -> Vec<u32> {
    let lines = fields(scratch, file, &["udp.srcport"]);
    lines.iter().map(|line| line.parse().unwrap()).collect()
}

fn tools(wrapper: &'static [&'static str]) -> bool {
    let probe = [
        "sh",
        "-c",
        "command -v tshark && command -v capinfos && python3 -c 1",
    ];
    usable(wrapper, &probe).is_some()
}

#[test]
fn every_frame_is_in_the_file_with_its_time_and_its_tag() {
    let Some(wrapper) = with_own_network().filter(|w| tools(w)) else {
        return;
    };
    let scratch = Scratch::new();
    // With a tag, without, and what the filter does not take.
    let script = "capture v1 'udp port 9 or (vlan 5 and udp)' -w a.pcapng --json
        send 1 500 600 5; send 501 500 600 0; send 1001 100 600 7
        finish; cat out; capinfos a.pcapng >info; exit 0";
    let ended = scripted(&scratch, wrapper, script);
    ended.succeeds();
    let times: Vec<u64> = ended
        .stdout
        .lines()
        .map_while(|line| line.parse().ok())
        .collect();
    assert_eq!(
        numbers(&scratch, "a.pcapng"),
        (1..=1_000).collect::<Vec<_>>()
    );
    let lines = fields(
        &scratch,
        "a.pcapng",
        &["frame.time_epoch", "frame.len", "frame.cap_len", "vlan.id"],
    );
    let mut before = times[0];
    for (i, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split('\t').collect();
        let (seconds, fraction) = words[0].split_once('.').unwrap();
        assert_eq!(fraction.len(), 9, "nanoseconds: {line}");
        let ns = seconds.parse::<u64>().unwrap() * 1_000_000_000 + fraction.parse::<u64>().unwrap();
        assert!(ns >= before && ns <= times[3], "{line} after {before}");
        before = ns;
        let (length, tag) = if i < 500 { ("646", "5") } else { ("642", "") };
        assert_eq!(words[1..], [length, "128", tag]);
    }
    let text = &ended.stdout[ended.stdout.find('{').unwrap()..];
    let told: Value = serde_json::from_str(text).unwrap();
    assert_eq!(told["packets"], 1_000, "{told:#}");
    assert_eq!(told["dropped_by_kernel"], 0, "{told:#}");
    assert_eq!(told["wire_bytes"], 500 * 646 + 500 * 642, "{told:#}");
    let stamps = &told["stamps"];
    let stamped = stamps["kernel"].as_u64().unwrap() + stamps["ring"].as_u64().unwrap();
    assert_eq!((stamped, &stamps["hardware"]), (1_000, &Value::from(0)));
    let info = fs::read_to_string(scratch.path("info")).unwrap();
    for says in [
        "Name = v1",
        "Capture length = 128",
        "vlan 5 and udp",
        "stat entries = 1",
        "goodput",
    ] {
        assert!(info.contains(says), "lacks '{says}': {info}");
    }
    let mode = fs::metadata(scratch.path("a.pcapng"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    scratch.assert_nothing_left();
}

#[test]
fn what_finds_no_room_is_counted() {
    let Some(wrapper) = with_own_network().filter(|w| tools(w)) else {
        return;
    };
    let scratch = Scratch::new();
    // The capture sleeps while more comes than a ring of 256 KiB holds.
    let script = "capture v1 -w a.pcapng --whole --buffer 256KiB --json
        kill -STOP $pid; send 1 2000 1400 0; kill -CONT $pid; sleep 0.3; send 2001 100 1400 0
        finish; cp out told; ip -j -s link show v1 >link; exit 0";
    scripted(&scratch, wrapper, script).succeeds();
    let told = json(&scratch.path("told"));
    let link = json(&scratch.path("link"));
    // Of the veth itself, should the machine be too busy to take a frame up.
    let missed = link[0]["stats64"]["rx"]["dropped"].as_u64().unwrap();
    let count = |key: &str| told[key].as_u64().unwrap();
    assert_eq!(
        count("packets") + count("dropped_by_kernel") + missed,
        2_100,
        "{told:#}"
    );
    assert!(count("dropped_by_kernel") > 1_500, "{told:#}");
    assert!(count("packets") > 100, "{told:#}");
    let found = numbers(&scratch, "a.pcapng");
    assert_eq!(found.len() as u64, count("packets"));
    assert!(found.is_sorted_by(|a, b| a < b));
    let told = fields(&scratch, "a.pcapng", &["frame.cap_len"]);
    assert!(told.iter().all(|length| length == "1442"), "{told:?}");
    scratch.assert_nothing_left();
}

#[test]
fn a_row_of_files_loses_nothing_at_the_switch_and_the_oldest_go() {
    let Some(wrapper) = with_own_network().filter(|w| tools(w)) else {
        return;
    };
    let scratch = Scratch::new();
    let script = "mkdir all some
        capture v1 udp -w all/a.pcapng --file-size 64KiB
        send 1 3000 100 0; finish
        capture v1 udp -w some/a.pcap --file-size 64KiB --files 2
        send 1 3000 100 0; finish; cp out told
        capture v1 udp -w some/stop.pcapng --packets 10
        send 1 50 100 0; wait $pid
        capture v1 udp -w some/size.pcapng --bytes 64KiB
        send 1 3000 100 0; wait $pid
        capture v1 udp -w some/time.pcapng --time 1s
        wait $pid; exit 0";
    scripted(&scratch, wrapper, script).succeeds();
    let names = |folder: &str| {
        let entries = fs::read_dir(scratch.path(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| format!("{folder}/{}", e.unwrap().file_name().to_str().unwrap()))
            .collect();
        names.sort();
        names
    };
    let all = names("all");
    assert!(
        all.len() > 5 && all[0].starts_with("all/a-00001-2"),
        "{all:?}"
    );
    let mut found = Vec::new();
    for name in &all {
        assert!(
            fs::metadata(scratch.path(name)).unwrap().len() <= 65_536,
            "{name}"
        );
        found.extend(numbers(&scratch, name));
    }
    assert_eq!(found, (1..=3_000).collect::<Vec<_>>());
    let some = names("some");
    assert_eq!(some.len(), 5, "{some:?}");
    let mut found = numbers(&scratch, &some[0]);
    found.extend(numbers(&scratch, &some[1]));
    let first = found[0];
    assert_eq!(found, (first..=3_000).collect::<Vec<_>>());
    let told = fs::read_to_string(scratch.path("told")).unwrap();
    assert!(told.contains("older ones were removed"), "{told}");
    assert_eq!(
        numbers(&scratch, "some/stop.pcapng"),
        (1..=10).collect::<Vec<_>>()
    );
    let size = fs::metadata(scratch.path("some/size.pcapng"))
        .unwrap()
        .len();
    assert!((60_000..=65_536).contains(&size), "{size}");
    assert!(numbers(&scratch, "some/time.pcapng").is_empty());
    scratch.assert_nothing_left();
}

#[test]
fn packets_go_to_a_pipe_and_by_direction() {
    let Some(wrapper) = with_own_network().filter(|w| tools(w)) else {
        return;
    };
    let scratch = Scratch::new();
    let script = "env --default-signal=INT $GOODPUT capture v1 -w - --packets 20 2>err |
            tshark -n -r - -T fields -e udp.srcport >piped 2>/dev/null & tshark=$!
        until grep -q 'capturing on' err; do sleep 0.05; done
        send 1 20 10 0; wait $tshark
        capture v1 -w out.pcapng --direction out; send 1 20 10 0; finish
        capture v1 -w in.pcapng --direction in; send 1 20 10 0; finish
        capture v2 -w sent.pcapng --direction out; send 1 20 10 0; finish
        exit 0";
    scripted(&scratch, wrapper, script).succeeds();
    let piped = fs::read_to_string(scratch.path("piped")).unwrap();
    assert_eq!(piped.lines().count(), 20, "{piped}");
    let all: Vec<u32> = (1..=20).collect();
    assert!(numbers(&scratch, "out.pcapng").is_empty());
    assert_eq!(numbers(&scratch, "in.pcapng"), all);
    assert_eq!(numbers(&scratch, "sent.pcapng"), all);
    scratch.assert_nothing_left();
}

#[test]
fn a_capture_that_cannot_be_made_says_why() {
    let Some(wrapper) = with_own_network() else {
        return;
    };
    let scratch = Scratch::new();
    for (args, code, says) in [
        ("lo -w f tcp and foo", 2, "no word of the filter language"),
        ("lo -w f host", 2, "the filter ends where"),
        ("nope -w f", 2, "there is no interface 'nope'"),
        ("any -w f", 2, "one interface is captured at a time"),
        ("lo -w f --files 2", 2, "--file-size"),
        ("lo -w - --file-size 1MB", 2, "stdout is one file"),
        ("lo -w - --json", 2, "both write to stdout"),
        ("lo -w f --file-size 1KiB", 2, "64KiB"),
        ("lo -w f --buffer 1KiB", 2, "256KiB"),
        ("lo -w f --snaplen 13", 2, "14..=262144"),
        ("lo -w there", 2, "--force"),
        ("lo -w /no/such/place", 3, "/no/such/place"),
        ("lo -w /dev/full", 3, "/dev/full"),
        ("idle -w f", 3, "bring it up"),
    ] {
        let script = format!(
            "ip link add idle type veth peer name other
            ip link set lo up; echo mine >there; exec $GOODPUT capture {args}"
        );
        let ended = scratch.run(scratch.script(wrapper, &script));
        ended.fails_with(code, &[says]);
        assert_eq!(fs::read_to_string(scratch.path("there")).unwrap(), "mine\n");
        assert!(!scratch.path("f").exists(), "{args}");
    }
    let nobody = if is_root() {
        as_nobody()
    } else {
        Some(&[][..])
    };
    if let Some(nobody) = nobody {
        let ended = scratch.run(scratch.within(nobody, &["capture", "lo", "-w", "f"]));
        ended.fails_with(3, &["CAP_NET_RAW"]);
    }
    scratch.assert_nothing_left();
}

#[test]
fn a_host_of_a_lab_is_captured() {
    let _beside = lab_beside_others();
    if usable(
        &["env"],
        &["sh", "-c", "command -v tshark && command -v ping"],
    )
    .is_none()
    {
        return;
    }
    let scratch = Scratch::new();
    let script = "$GOODPUT capture eth0 icmp -w f.pcapng --packets 4 2>err & pid=$!
        until grep -q 'capturing on' err; do sleep 0.05; done
        ping -c 2 -i 0.2 $GOODPUT_FAR >/dev/null; wait $pid";
    let shell = [
        "lab", "shell", "-q", "--delay", "5ms", "--", "sh", "-c", script,
    ];
    let mut command = scratch.goodput(&shell);
    command.env_remove("GOODPUT_LAB");
    scratch.run(command).succeeds();
    assert_eq!(
        fields(&scratch, "f.pcapng", &["icmp.type"]),
        ["8", "0", "8", "0"]
    );
    scratch.assert_nothing_left();
}
