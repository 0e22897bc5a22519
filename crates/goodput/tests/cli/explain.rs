//! `goodput explain`: what it makes of captures, whole and broken.

use std::fs;
use std::path::PathBuf;

use wire::tcp::Flags;
use wire::{ethernet, ipv4, pcapng, protocol, tcp};

use crate::support::{Scratch, json};

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
