//! `goodput explain`: what it makes of captures, whole and broken.

mod cases;
mod pair;
mod tables;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use wire::tcp::Flags;
use wire::{ethernet, ipv4, pcapng, protocol, tcp};

use crate::support::{Ended, Scratch, as_nobody, is_root, json, usable, with_own_network};

/// A capture of one transfer: 20 flights of four segments, each held up by a window of 5,792 B, with 50 ms
/// of round trip, captured at the sender.
fn window_limited() -> Vec<u8> {
    let mut file = Vec::new();
    pcapng::section_header("test", &mut file);
    pcapng::interface("eth0", 0, &mut file);
    let mut time_ns = 1_700_000_000_000_000_000;
    let mut packet = |time_ns: u64, frame: &[u8], bytes: u32| {
        let captured = &frame[..frame.len().min(96)];
        let original_bytes = u32::try_from(frame.len()).unwrap().max(bytes);
        pcapng::packet(
            &pcapng::Packet {
                time_ns,
                captured,
                original_bytes,
                ..pcapng::Packet::default()
            },
            &mut file,
        );
    };
    let syn = tcp::Repr {
        flags: Flags::SYN,
        max_segment_size: Some(1460),
        window_scale: Some(0),
        sack_permitted: true,
        ..tcp::Repr::default()
    };
    packet(time_ns, &frame(true, syn, 0), 0);
    let answer = tcp::Repr {
        flags: Flags::SYN.with(Flags::ACK),
        acknowledgment: 1,
        ..syn
    };
    time_ns += 50_000_000;
    packet(time_ns, &frame(false, answer, 0), 0);
    let ack = tcp::Repr {
        flags: Flags::ACK,
        window: 5_792,
        ..tcp::Repr::default()
    };
    packet(
        time_ns,
        &frame(
            true,
            tcp::Repr {
                sequence: 1,
                acknowledgment: 1,
                ..ack
            },
            0,
        ),
        0,
    );
    let mut next = 1_u32;
    for _ in 0..20 {
        for _ in 0..4 {
            time_ns += 12_000;
            let sent = tcp::Repr {
                sequence: next,
                acknowledgment: 1,
                ..ack
            };
            packet(time_ns, &frame(true, sent, 1448), 0);
            next += 1448;
        }
        time_ns += 50_000_000;
        let acked = tcp::Repr {
            sequence: 1,
            acknowledgment: next,
            ..ack
        };
        packet(time_ns, &frame(false, acked, 0), 0);
    }
    file
}

/// A frame between 192.0.2.1:40000, which sends `up`, and 192.0.2.2:5201.
fn frame(up: bool, segment: tcp::Repr, payload: u16) -> Vec<u8> {
    let ends = [([192, 0, 2, 1], 40_000), ([192, 0, 2, 2], 5_201)];
    let (from, to) = if up {
        (ends[0], ends[1])
    } else {
        (ends[1], ends[0])
    };
    let segment = tcp::Repr {
        source_port: from.1,
        destination_port: to.1,
        ..segment
    };
    let header = u16::try_from(segment.header_len()).unwrap();
    let mut bytes = vec![0; 14 + 20 + usize::from(header + payload)];
    let link = ethernet::Repr {
        destination: [2; 6],
        source: [4; 6],
        ethertype: 0x0800,
    };
    link.emit(&[], &mut bytes).unwrap();
    let ip = ipv4::Repr {
        source: from.0,
        destination: to.0,
        protocol: protocol::TCP,
        payload_len: header + payload,
        dscp: 0,
        ecn: 0,
        identification: 7,
        dont_fragment: true,
        ttl: 64,
    };
    ip.emit(&mut bytes[14..]).unwrap();
    segment.emit(&mut bytes[34..]).unwrap();
    bytes
}

fn written(scratch: &Scratch, name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch.path(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_capture_names_the_limit_and_the_frames_that_prove_it() {
    let scratch = Scratch::new();
    let file = written(&scratch, "slow.pcapng", &window_limited());
    let mut command = scratch.goodput(&["explain", "--json"]);
    command.arg(&file);
    let ended = scratch.run(command);
    let run = ended.succeeds().json();
    let folder = scratch.run_folder();
    assert_eq!(run, json(&folder.join("run.json")));
    let connection = &run["trace"]["connections"][0];
    assert_eq!(connection["cause"], "receive_window", "{run:#}");
    assert_eq!(connection["sender"], "192.0.2.1:40000");
    assert_eq!(connection["payload_bytes"], 80 * 1448);
    assert_eq!(connection["rtt_min_ns"].as_u64().unwrap() / 1_000_000, 50);
    assert_eq!(connection["first_frame"], 1);
    assert_eq!(run["trace"]["tcp_packets"], 103);
    assert_eq!(run["trace"]["files"][0]["interfaces"][0], "eth0");
    let findings = json(&folder.join("findings.json"));
    assert!(
        findings[0]["evidence"][0]
            .as_str()
            .unwrap()
            .contains("from frame "),
        "{findings:#}"
    );
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("time-sequence graph") && !page.contains("<script"));
}

#[test]
fn any_number_of_threads_says_the_same() {
    let scratch = Scratch::new();
    let file = written(&scratch, "slow.pcapng", &window_limited());
    let [one, two, three] = ["1", "2", "3"].map(|threads| {
        let mut command = scratch.goodput(&["explain", "--json", "--threads", threads]);
        command.arg(&file);
        let run = scratch.run(command).succeeds().json();
        (run["trace"].clone(), run["verdict"].clone())
    });
    assert!(one.0["connections"][0].is_object());
    assert!(one == two && one == three);
}

#[test]
fn the_summary_reads_at_one_glance() {
    let scratch = Scratch::new();
    let file = written(&scratch, "slow.pcapng", &window_limited());
    let mut command = scratch.goodput(&["explain"]);
    command.arg(&file);
    let ended = scratch.run(command);
    let text = &ended.succeeds().stdout;
    for said in [
        "limited by the receive window",
        "The receive window of 5.792 kB was full for",
        "192.0.2.1:40000 > 192.0.2.2:5201",
        "103 packets, 103 of them TCP, in 1 connection with data of 1",
        "Report: ",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[test]
fn standard_input_and_a_capture_that_is_cut_are_read_as_far_as_they_go() {
    let scratch = Scratch::new();
    let whole = window_limited();
    written(&scratch, "cut.pcapng", &whole[..whole.len() - 10]);
    let ended = scratch.run(scratch.script(&[], "$GOODPUT explain --json - < cut.pcapng"));
    let run = ended.succeeds().json();
    assert_eq!(run["trace"]["tcp_packets"], 102);
    assert!(
        run["trace"]["files"][0]["stopped_at_byte"]
            .as_u64()
            .unwrap()
            > 1_000,
        "{run:#}"
    );
    assert!(run["trace"]["connections"][0]["graphs"].is_null());
}

#[test]
fn what_is_no_capture_is_refused_by_name() {
    let scratch = Scratch::new();
    let text = written(
        &scratch,
        "notes.txt",
        b"not a capture, but long enough to look at",
    );
    let mut command = scratch.goodput(&["explain"]);
    command.arg(&text);
    let ended = scratch.run(command);
    ended.fails_with(2, &["notes.txt"]);
    let ended = scratch.run(scratch.goodput(&["explain", "/nonexistent.pcap"]));
    ended.fails_with(2, &["/nonexistent.pcap"]);
}

#[test]
fn spacing_is_told_where_it_is_asked_for() {
    let scratch = Scratch::new();
    let file = written(&scratch, "slow.pcapng", &window_limited());
    let explain = |args: &[&str]| {
        let mut command = scratch.goodput(&["explain", "--json"]);
        command.arg(&file).args(args);
        scratch.run(command).succeeds().json()
    };
    let connection = |run: &Value| run["trace"]["connections"][0].clone();
    assert!(connection(&explain(&[]))["spacing"].is_null());
    let spacing = connection(&explain(&["--spacing"]))["spacing"].clone();
    // 20 flights of four, 12 us apart; 5,792 B every 50.048 ms.
    assert_eq!(spacing["packets"], 80);
    assert_eq!(spacing["bursts"]["bursts"], 20, "{spacing:#}");
    assert_eq!(spacing["bursts"]["longest_packets"], 4);
    assert_eq!(spacing["size_bytes"], 14 + 20 + 20 + 1448 + 12);
    let lengths: Vec<&Value> = spacing["sections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["length_ns"])
        .collect();
    assert_eq!(lengths, [&5_000_000, &300_000_000]);
    assert_eq!(
        spacing["sections"][0]["peak_bits_per_second"],
        5_792 * 8 * 200
    );
    assert_eq!(spacing["sections"][0]["least_bits_per_second"], 0);
    let own = connection(&explain(&[
        "--section",
        "100ms",
        "--bin",
        "12us",
        "--line-rate",
        "1Gb/s",
    ]));
    let own = &own["spacing"];
    assert_eq!(own["sections"].as_array().unwrap().len(), 1);
    assert_eq!(own["bin_borne"], true, "{own:#}");
    // Frames of 1,514 octets on the wire last 12.112 us at 1 Gb/s: stamps of 12 us are 112 ns too soon.
    let finer = connection(&explain(&["--bin", "100ns", "--line-rate", "1Gb/s"]));
    assert_eq!(finer["spacing"]["bin_borne"], false, "{finer:#}");
    let why = finer["spacing"]["refused"].as_str().unwrap();
    assert!(why.contains("bins of 100 ns are not shown"), "{why}");
}

#[test]
fn spacing_that_cannot_be_told_says_why() {
    let scratch = Scratch::new();
    written(&scratch, "slow.pcapng", &window_limited());
    for (args, says) in [
        ("- --spacing < slow.pcapng", "standard input"),
        ("slow.pcapng --section 99ns", "100ns to 4.2s"),
        ("slow.pcapng --section 5s", "100ns to 4.2s"),
        ("slow.pcapng --bin 0ns", "at least 1ns"),
        ("slow.pcapng --gaps 700", "lab:PATH only"),
        ("slow.pcapng --time 1s", "an interface or lab:PATH"),
        ("lab:master-1-10g slow.pcapng", "by itself"),
        ("lab:columbia-untuned --gaps 1000001", "1000000 octets"),
        ("lab:half-duplex --gaps 12", "full duplex"),
        (
            "lab:wan-phy-behind-lan-phy --gaps 12 --time 1000s",
            "ask for less --time",
        ),
    ] {
        let script = format!("$GOODPUT explain {args}");
        let ended = scratch.run(scratch.script(&[], &script));
        ended.fails_with(2, &[says]);
    }
}

#[test]
fn gaps_that_are_planted_are_found_and_tshark_has_the_same() {
    if usable(&["env"], &["sh", "-c", "command -v tshark"]).is_none() {
        return;
    }
    let scratch = Scratch::new();
    let explain = |gaps: &str| {
        let args = [
            "explain",
            "lab:master-1-10g",
            "--json",
            "--time",
            "20ms",
            "--observer",
            "tshark",
            "--section",
            "1ms",
            "--gaps",
            gaps,
        ];
        let run = scratch.run(scratch.goodput(&args)).succeeds().json();
        assert_eq!(run["trace"]["observer"]["agrees"], true, "{run:#}");
        assert!(run["trace"]["observer"]["gaps"].as_u64().unwrap() > 2_000);
        let both = &run["trace"]["observer"]["round_trips"][0];
        let least = ["ours", "theirs"].map(|who| both[who]["min_ns"].as_u64());
        assert_eq!(
            (&both["agrees"], least[0]),
            (&true.into(), least[1]),
            "{both:#}"
        );
        let spacing = run["trace"]["connections"][0]["spacing"].clone();
        let modes = spacing["modes"].as_array().unwrap();
        let idle = modes.iter().map(|m| m["idle_ns"].as_u64().unwrap());
        idle.collect::<Vec<_>>()
    };
    assert_eq!(explain("700,720"), [560, 576]);
    assert_eq!(explain("700").len(), 1);
    assert_eq!(explain("720").len(), 1);
}

/// v1 here, v2 in a namespace of its own; `transfer BYTES` sends so many from there to here; `explain ARGS`
/// begins in the background, `finish` ends it as Ctrl-C does.
const LIVE: &str = r#"
set -e
ip link set lo up
ip link add v1 type veth peer name v2
unshare -n sleep 60 & other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.02; done
ip link set v2 netns $other
ip addr add 192.0.2.1/24 dev v1
ip link set v1 up
nsenter -t $other -n ip addr add 192.0.2.2/24 dev v2
nsenter -t $other -n ip link set v2 up
trap 'kill $other' EXIT
explain() {
    env --default-signal=INT $GOODPUT explain "$@" >out 2>err & pid=$!
    until grep -q 'capturing' err; do kill -0 $pid || { cat err >&2; exit 99; }; sleep 0.05; done
}
finish() {
    kill -INT $pid
    wait $pid
}
transfer() {
    python3 - "$other" "$1" <<'PY'
import socket, subprocess, sys
listener = socket.create_server(("192.0.2.1", 7000))
client = subprocess.Popen(["nsenter", "-t", sys.argv[1], "-n", "python3", "-c",
    "import socket,sys; s = socket.create_connection(('192.0.2.1', 7000)); "
    "s.sendall(bytes(int(sys.argv[1]))); s.close()", sys.argv[2]])
connection, _ = listener.accept()
got = 0
while data := connection.recv(1 << 16):
    got += len(data)
assert got == int(sys.argv[2]), got
client.wait()
PY
}
"#;

fn live(scratch: &Scratch, script: &str) -> Option<Ended> {
    let wrapper = with_own_network()?;
    let tools = [
        "sh",
        "-c",
        "command -v nsenter && command -v unshare && python3 -c 1",
    ];
    usable(wrapper, &tools)?;
    Some(scratch.run(scratch.script(wrapper, &format!("{LIVE}{script}"))))
}

#[test]
fn an_interface_is_explained_until_ctrl_c() {
    let scratch = Scratch::new();
    let script = "explain v1 tcp port 7000 --json --spacing
        transfer 3000000
        until grep -q ' 1 connections' err; do kill -0 $pid; sleep 0.1; done
        finish; cat out";
    let Some(ended) = live(&scratch, script) else {
        return;
    };
    let run = ended.succeeds().json();
    let trace = &run["trace"];
    assert_eq!(trace["connections_with_data"], 1, "{run:#}");
    let connection = &trace["connections"][0];
    assert_eq!(connection["payload_bytes"], 3_000_000);
    assert_eq!(connection["receiver"], "192.0.2.1:7000");
    assert_eq!(connection["begun"], "syn");
    assert!(!connection["graphs"].as_array().unwrap().is_empty());
    assert!(connection["spacing"]["packets"].as_u64().unwrap() > 1);
    assert_eq!(trace["files"][0]["interfaces"][0], "v1");
    assert_eq!(trace["files"][0]["dropped"], 0);
    assert!(trace["files"][0]["stopped"].is_null());
    // The file is there, and explains alike.
    let capture = scratch.run_folder().join("capture.pcapng");
    let mut again = scratch.goodput(&["explain", "--json"]);
    again.arg(&capture);
    let again = scratch.run(again).succeeds().json();
    assert_eq!(again["trace"]["packets"], trace["packets"]);
    assert_eq!(
        again["trace"]["connections"][0]["shares"],
        connection["shares"]
    );
    let says = fs::read_to_string(scratch.path("err")).unwrap();
    assert!(says.contains(" packets/s, 0 dropped"), "{says}");
}

#[test]
fn an_interface_that_goes_away_ends_with_what_was_read() {
    let scratch = Scratch::new();
    let script = "explain v1 --json
        transfer 500000
        ip link del v1
        wait $pid; cat out";
    let Some(ended) = live(&scratch, script) else {
        return;
    };
    let run = ended.succeeds().json();
    assert_eq!(run["trace"]["connections"][0]["payload_bytes"], 500_000);
    let why = run["trace"]["files"][0]["stopped"].as_str().unwrap();
    assert!(why.contains("'v1' went down"), "{why}");
}

#[test]
fn time_ends_an_interface_and_a_file_of_its_name_wins() {
    let scratch = Scratch::new();
    let script = "explain v1 --time 1s --buffer 256KiB; wait $pid && exit 98 || code=$?
        cat out; exit $code";
    let Some(ended) = live(&scratch, script) else {
        return;
    };
    ended.fails_with(1, &[]);
    assert!(ended.stdout.contains("No TCP"), "{}", ended.stdout);
    fs::write(
        scratch.path("v1"),
        b"not a capture, but long enough to look at",
    )
    .unwrap();
    let refused = live(&scratch, "$GOODPUT explain v1").unwrap();
    refused.fails_with(2, &["v1: "]);
    let filter = live(&scratch, "rm v1; $GOODPUT explain v1 tcp and foo").unwrap();
    filter.fails_with(2, &["no word of the filter language"]);
    let small = live(&scratch, "$GOODPUT explain v1 --buffer 1KiB").unwrap();
    small.fails_with(2, &["256KiB to 2GiB"]);
    let other = live(
        &scratch,
        "$GOODPUT explain lab:healthy-1g-20ms --buffer 1MiB",
    )
    .unwrap();
    other.fails_with(2, &["with an interface only"]);
}

#[test]
fn without_the_privilege_it_says_which_is_wanted() {
    let nobody = if is_root() {
        as_nobody()
    } else {
        Some(&[][..])
    };
    let Some(nobody) = nobody else { return };
    let scratch = Scratch::new();
    let ended = scratch.run(scratch.within(nobody, &["explain", "lo"]));
    ended.fails_with(3, &["CAP_NET_RAW"]);
}
