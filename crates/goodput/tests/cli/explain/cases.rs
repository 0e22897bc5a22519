//! Captures from the field that were explained wrongly: each stands for a kind, and what is right is stated.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::Scratch;

/// What is right of a capture.
struct Right {
    file: &'static str,
    /// Cause of the first connection; empty for none.
    cause: &'static str,
    /// In the verdict.
    says: &'static str,
    /// In what is said before it; empty for nothing at all.
    notes: &'static str,
    /// Who sends in the direction that is judged.
    sender: &'static str,
    payload_bytes: u64,
}

/// Shorter than a struct for each.
const fn right(
    file: &'static str,
    cause: &'static str,
    says: &'static str,
    notes: &'static str,
    sender: &'static str,
    payload_bytes: u64,
) -> Right {
    Right {
        file,
        cause,
        says,
        notes,
        sender,
        payload_bytes,
    }
}

const BASE: &str = "never had more than 28.96 kB in flight (28.96 kB / 20.02 ms = 11.57 Mb/s)";
const A: &str = "192.0.2.10:40000";
const B: &str = "198.51.100.20:5001";
const LO: &str = "127.0.0.1:40000";

const CASES: &[Right] = &[
    right("base", "send_buffer", BASE, "", A, 231_680),
    right("enc_chdlc", "send_buffer", BASE, "", A, 231_680),
    right("enc_erspan2", "send_buffer", BASE, "", A, 231_680),
    right("enc_geneve", "send_buffer", BASE, "", A, 231_680),
    right("enc_ppp", "send_buffer", BASE, "", A, 231_680),
    right("enc_pppoe", "send_buffer", BASE, "", A, 231_680),
    right("enc_radiotap", "send_buffer", BASE, "", A, 231_680),
    right("enc_tzsp", "send_buffer", BASE, "", A, 231_680),
    right("enc_vntag", "send_buffer", BASE, "", A, 231_680),
    right("enc_vxlan_gre", "send_buffer", BASE, "", A, 231_680),
    right("enc_wccp", "send_buffer", BASE, "", A, 231_680),
    right("frag", "send_buffer", BASE, "", A, 231_680),
    right(
        "stamp_1h_ahead",
        "send_buffer",
        BASE,
        "1 packet of stamp_1h_ahead.pcap is stamped far ahead",
        A,
        231_680,
    ),
    right(
        "stamps_all_zero",
        "",
        "has no times: 231.7 kB in 160 packets",
        "have no times: only counts",
        A,
        231_680,
    ),
    right(
        "capture_dropped",
        "",
        "",
        "is incomplete: 15.93 kB (6.9 %) were acknowledged that are not in it",
        A,
        215_752,
    ),
    right(
        "oneway",
        "",
        "Only one direction was captured: 289.6 kB at 5.652 Mb/s",
        "only one direction was captured",
        A,
        289_600,
    ),
    // The mirror port's second copies change nothing: as without them.
    right(
        "span",
        "application",
        "The sending application had nothing to send for 95 %",
        "223 of 446 packets are second copies",
        A,
        289_600,
    ),
    right(
        "span_adj",
        "application",
        "The sending application had nothing to send for 95 %",
        "223 of 446 packets are second copies",
        A,
        289_600,
    ),
    right(
        "updown",
        "application",
        "The receiving application read slowly: its window of 8.688 kB",
        "",
        "198.18.0.1:47940",
        900_000,
    ),
    right(
        "sthink",
        "server_think",
        "to answer each of 30 requests, 80 % of the time",
        "",
        "198.18.0.2:6002",
        60_000,
    ),
    right(
        "nothink",
        "round_trips",
        "60 requests one after the other waited a round trip of 30.08 ms each",
        "",
        "198.18.0.2:6004",
        120_000,
    ),
    right(
        "smb",
        "round_trips",
        "One request of 32 KiB at a time, and 40 of them: each waited a round trip of 30.11 ms",
        "",
        "198.18.0.2:6001",
        1_295_328,
    ),
    right(
        "nagle",
        "nagle",
        "149 times a short segment waited 44.01 ms for the ACK of the one before (Nagle's algorithm, and an ACK that \
         the peer delayed)",
        "",
        "192.0.2.1:60150",
        45_000,
    ),
    right(
        "loop_nagle",
        "nagle",
        "Once a short segment waited 40.25 ms",
        "",
        LO,
        774,
    ),
    right(
        "loop_rwin",
        "",
        "Too little to tell: 2 packets with data",
        "is incomplete: 7 B",
        LO,
        73,
    ),
    right(
        "syn_lost",
        "connection_setup",
        "Connection setup took 7.12 s: 3 SYNs, or the answers to them, were lost",
        "",
        A,
        289_600,
    ),
    right(
        "syn_halfopen",
        "connection_setup",
        "half-open connection of these ports, which the client had to reset",
        "",
        B,
        289_600,
    ),
    right(
        "syn_outage",
        "outage",
        "The path was interrupted for 22 s",
        "",
        A,
        314_840,
    ),
    right(
        "syn_ipsdrop",
        "stopped_delivery",
        "After 101.4 kB nothing was delivered any more",
        "",
        B,
        110_048,
    ),
    right(
        "pmtu",
        "path_mtu",
        "Segments of 1448 B never came through, those of up to 300 B did",
        "",
        A,
        15_380,
    ),
    right(
        "wsbroken_client",
        "window_scaling",
        "scaling was lost on one side: the receiver offered 5.84 kB in its SYN and 46 B later",
        "",
        A,
        5_520,
    ),
    right(
        "win18",
        "receive_window",
        "The receive window of 20.27 kB was full for 92 %",
        "",
        "198.18.0.1:35212",
        1_462_480,
    ),
    right(
        "zw_midway",
        "application",
        "its window was closed once, for 9.6 ms",
        "begins in the middle of the connection",
        A,
        2_920,
    ),
];

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/explain/cases");
    folder.join(name).with_extension("pcap")
}

fn explained(scratch: &Scratch, files: &[PathBuf]) -> Value {
    let mut command = scratch.goodput(&["explain", "--json"]);
    command.args(files);
    scratch.run(command).succeeds().json()
}

/// Sentences before the verdict.
fn notes(run: &Value) -> String {
    let of = |notes: &Value| -> Vec<String> {
        let each = notes.as_array().into_iter().flatten();
        each.map(|note| note.as_str().unwrap().to_owned()).collect()
    };
    let trace = &run["trace"];
    [of(&trace["notes"]), of(&trace["connections"][0]["notes"])]
        .concat()
        .join("; ")
}

#[test]
fn each_is_explained_as_what_it_is() {
    let mut wrong = Vec::new();
    for right in CASES {
        let scratch = Scratch::new();
        let run = explained(&scratch, &[file(right.file)]);
        let connection = &run["trace"]["connections"][0];
        let (verdict, notes) = (&run["verdict"], notes(&run));
        let cause = match verdict["conclusive"] == true {
            true => verdict["cause"].as_str().unwrap_or(""),
            false => "",
        };
        let is_right = cause == right.cause
            && verdict["sentence"].as_str().unwrap().contains(right.says)
            && notes.contains(right.notes)
            && notes.is_empty() == right.notes.is_empty()
            && connection["sender"] == right.sender
            && connection["payload_bytes"] == right.payload_bytes;
        if !is_right {
            let (sender, bytes) = (&connection["sender"], &connection["payload_bytes"]);
            wrong.push(format!(
                "{}: {verdict:#} [{notes}] {sender} {bytes}",
                right.file
            ));
        }
        assert_eq!(run["trace"]["connections_with_data"], 1, "{}", right.file);
        let best = connection["best_bits_per_second"].as_u64();
        assert!(
            best.is_none_or(|best| Some(best) >= connection["goodput_bits_per_second"].as_u64())
        );
        assert!(connection["rtt_min_ns"].as_u64() <= connection["rtt_max_ns"].as_u64());
        let flight = |of: &str| connection[of].as_u64();
        assert!(flight("flight_bytes_mean") <= flight("flight_bytes_max"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_of_a_ring_are_one_capture_in_any_order() {
    let whole = explained(&Scratch::new(), &[file("base")]);
    for order in [["rotated_0", "rotated_1"], ["rotated_1", "rotated_0"]] {
        let run = explained(&Scratch::new(), &order.map(file));
        let trace = &run["trace"];
        assert_eq!(trace["files"].as_array().unwrap().len(), 1);
        assert_eq!(trace["files"][0]["name"], "rotated_0.pcap, rotated_1.pcap");
        assert_eq!(trace["connections_seen"], 1);
        assert_eq!(run["verdict"]["sentence"], whole["verdict"]["sentence"]);
        // Frames are numbered over both files; graphs read them once more.
        let (own, of_one) = (&trace["connections"][0], &whole["trace"]["connections"][0]);
        assert_eq!(own["payload_bytes"], of_one["payload_bytes"]);
        assert_eq!(own["graphs"], of_one["graphs"]);
    }
}

#[test]
fn what_is_no_tcp_is_counted_by_kind() {
    let scratch = Scratch::new();
    let run = explained(&scratch, &[file("frag")]);
    let trace = &run["trace"];
    let counts = [
        "packets",
        "tcp_packets",
        "fragments",
        "reassembled_packets",
        "incomplete_packets",
    ];
    assert_eq!(
        counts.map(|of| trace[of].as_u64().unwrap()),
        [331, 171, 320, 160, 0]
    );
    // Another link type: nothing of it can be read, and nobody says that there is no TCP.
    let mut bytes = std::fs::read(file("base")).unwrap();
    bytes[20] = 189;
    let usb = scratch.path("usb.pcap");
    std::fs::write(&usb, bytes).unwrap();
    let scratch = Scratch::new();
    let mut command = scratch.goodput(&["explain", "--json"]);
    command.arg(usb);
    let run = scratch.run(command).json();
    let sentence = run["verdict"]["sentence"].as_str().unwrap();
    assert_eq!(
        sentence,
        "No TCP in what can be read; 171 of 171 packets cannot be"
    );
    assert_eq!(
        run["trace"]["others"][0]["what"],
        "USB (link type 189, not read)"
    );
    assert_eq!(run["trace"]["others"][0]["packets"], 171);
}
