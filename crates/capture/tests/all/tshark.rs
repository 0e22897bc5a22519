//! What tshark reads out of the same files, field by field. Files are ours and what editcap makes
//! of them: other formats, other resolutions, cut packets.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Draws, Folder, frame, ip, pcap, pcapng};
use capture::file::open;
use wire::capture::Packet;
use wire::segment::{Decoded, Segment};

/// A line of tshark's for a packet, by what we read.
fn line(packet: &Packet<'_>, decoded: Decoded, segment: &Segment) -> String {
    let time = (
        packet.time_ns / 1_000_000_000,
        packet.time_ns % 1_000_000_000,
    );
    let head = format!(
        "{} {}.{:09} {} {}",
        packet.frame,
        time.0,
        time.1,
        packet.original_bytes,
        packet.captured.len()
    );
    if decoded != Decoded::Tcp {
        return head;
    }
    let (source, destination) = (usize::from(segment.from), usize::from(1 - segment.from));
    let mut fields = vec![
        segment.flow.ports[source].to_string(),
        segment.flow.ports[destination].to_string(),
        segment.sequence.to_string(),
        segment.acknowledgment.to_string(),
        format!("0x{:04x}", segment.flags.bits()),
        segment.window.to_string(),
        segment.payload_bytes.to_string(),
    ];
    if !segment.options_cut {
        let optional = |value: Option<u32>| value.map_or_else(String::new, |v| v.to_string());
        fields.push(optional(segment.timestamps.map(|t| t.0)));
        fields.push(optional(segment.timestamps.map(|t| t.1)));
        fields.push(optional(segment.sack.as_slice().last().map(|s| s.0)));
        fields.push(optional(segment.sack.as_slice().last().map(|s| s.1)));
        fields.push(optional(segment.syn.mss.map(u32::from)));
        fields.push(optional(segment.syn.window_scale.map(u32::from)));
    }
    format!("{head} {}", fields.join(" ")).trim_end().to_owned()
}

fn ours(path: &Path) -> Vec<String> {
    let mut capture = open(path).unwrap();
    let mut segment = Segment::default();
    let mut lines = Vec::new();
    while let Some((packet, decoded)) = capture.next_segment(&mut segment) {
        lines.push(line(&packet, decoded, &segment));
    }
    assert_eq!(capture.decoder().kinds().all(), lines.len() as u64);
    lines
}

const FIELDS: [&str; 17] = [
    "frame.number",
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.len",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
    "tcp.options.sack_le",
    "tcp.options.sack_re",
    "tcp.options.mss_val",
    "tcp.options.wscale.shift",
];

/// The same by tshark; of a packet whose options are cut, those fields that it has before them.
fn theirs(path: &Path) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-n")
        .arg("-r")
        .arg(path)
        .args(["-T", "fields", "-E", "separator= "]);
    // The innermost packet's fields; no guesses about payload, which is noise.
    tshark.args(["-E", "occurrence=l", "-o", "tcp.try_heuristic_first:false"]);
    tshark.args([
        "-o",
        "tcp.desegment_tcp_streams:false",
        "-o",
        "tcp.check_checksum:false",
    ]);
    tshark.args(["-o", "tcp.analyze_sequence_numbers:false"]);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn compare(path: &Path, what: &str) -> usize {
    let (ours, theirs) = (ours(path), theirs(path));
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let mut whole = 0;
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{what}");
        whole += usize::from(ours.split(' ').count() > 4);
    }
    whole
}

fn has(program: &str) -> bool {
    let there = Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("SKIPPED: {program} is missing (Debian: apt-get install tshark)");
    }
    there
}

fn converted(folder: &Folder, from: &Path, format: &str, options: &[&str]) -> PathBuf {
    let to = folder.path(&format!("{format}{}.cap", options.concat()));
    let mut editcap = Command::new("editcap");
    let output = editcap
        .args(["-F", format])
        .args(options)
        .arg(from)
        .arg(&to)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    to
}

#[test]
fn every_field_is_what_tshark_reads_in_every_format() {
    if !has("tshark") || !has("editcap") {
        return;
    }
    let folder = Folder::new("formats");
    let mut draws = Draws(3);
    let frames: Vec<_> = (0..1_500).map(|_| frame(&mut draws)).collect();
    let original = folder.write("ours.pcapng", &pcapng(&frames));
    assert_eq!(compare(&original, "ours"), frames.len());
    for format in ["pcap", "nsecpcap", "modpcap", "pcapng", "snoop"] {
        let path = converted(&folder, &original, format, &[]);
        assert_eq!(compare(&path, format), frames.len());
    }
    // Headers only: all that is needed is in 200 bytes, tunnels included.
    let path = converted(&folder, &original, "pcapng", &["-s", "200"]);
    assert_eq!(compare(&path, "snapped"), frames.len());
}

/// The link layer's header before an IP packet, by its EtherType.
type Header = fn([u8; 2]) -> Vec<u8>;

#[test]
fn every_link_type_is_what_tshark_reads() {
    if !has("tshark") {
        return;
    }
    let folder = Folder::new("links");
    let mut draws = Draws(4);
    let mut packets = |behind: Header| -> Vec<Vec<u8>> {
        let mut packet = || {
            let (ether_type, packet) = ip(&mut draws);
            [behind(ether_type), packet].concat()
        };
        (0..200).map(|_| packet()).collect()
    };
    let links: [(u32, Header); 5] = [
        (101, |_| vec![]),
        (113, |kind| {
            [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &kind].concat()
        }),
        (276, |kind| {
            let rest = [0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
            [&kind[..], &rest].concat()
        }),
        (0, |kind| vec![if kind == [8, 0] { 2 } else { 30 }, 0, 0, 0]),
        (108, |kind| {
            vec![0, 0, 0, if kind == [8, 0] { 2 } else { 24 }]
        }),
    ];
    for (link, behind) in links {
        let path = folder.write("link.pcap", &pcap(link, &packets(behind)));
        assert_eq!(compare(&path, &format!("link type {link}")), 200);
    }
}
