//! Captures of made-up packets, the same ones in each run.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "a module shared by test crates")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "plain arithmetic on test data"
)]

use std::path::{Path, PathBuf};
use std::{fs, process};

/// Draws that are the same in each run: splitmix64.
#[derive(Debug)]
pub struct Draws(pub u64);

impl Draws {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// A TCP segment with one of the usual sets of options.
pub fn tcp(draws: &mut Draws) -> Vec<u8> {
    let timestamps = [&[1, 1, 8, 10][..], &draws.bytes(8)].concat();
    let sack = [&[1, 1, 5, 18][..], &draws.bytes(16)].concat();
    let (flags, options) = match draws.below(6) {
        0 => (
            0x02,
            [&[2, 4, 5, 0xb4, 4, 2][..], &timestamps[2..], &[1, 3, 3, 7]].concat(),
        ),
        1 => (0x12, vec![2, 4, 2, 0x18, 1, 3, 3, 14, 4, 2, 1, 1]),
        2 => (0x10, [timestamps, sack].concat()),
        3 => (0x18, timestamps),
        4 => (0xd0, vec![]),
        _ => (0x11, timestamps),
    };
    let payload_bytes = if flags == 0x18 { draws.below(1449) } else { 0 };
    let mut bytes = (20_000 + draws.below(7) as u16).to_be_bytes().to_vec();
    bytes.extend((20_000 + draws.below(7) as u16).to_be_bytes());
    bytes.extend(draws.bytes(8));
    bytes.extend([((20 + options.len()) / 4 * 16) as u8, flags]);
    bytes.extend(draws.bytes(4));
    bytes.extend([0, 0]);
    bytes.extend(options);
    bytes.extend(draws.bytes(payload_bytes as usize));
    bytes
}

pub fn ipv4(draws: &mut Draws, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let options = vec![1; 4 * (draws.below(8) / 7) as usize];
    let header_bytes = 20 + options.len();
    let mut bytes = vec![0x40 | (header_bytes / 4) as u8, draws.next() as u8];
    bytes.extend(((header_bytes + payload.len()) as u16).to_be_bytes());
    bytes.extend(draws.bytes(2));
    bytes.extend([0x40, 0, draws.next() as u8 | 1, protocol, 0, 0]);
    bytes.extend([
        10,
        0,
        0,
        draws.below(3) as u8,
        10,
        0,
        0,
        draws.below(3) as u8,
    ]);
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

pub fn ipv6(draws: &mut Draws, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let options = if draws.below(4) == 0 {
        &[protocol, 0, 1, 4, 0, 0, 0, 0][..]
    } else {
        &[]
    };
    let mut bytes = vec![0x60, draws.next() as u8, 0, 0];
    bytes.extend(((options.len() + payload.len()) as u16).to_be_bytes());
    bytes.extend([
        if options.is_empty() { protocol } else { 60 },
        draws.next() as u8 | 1,
    ]);
    for host in [draws.below(3), draws.below(3)] {
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host as u8]);
    }
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

/// An IP packet, now and then with another one in it, and its EtherType.
pub fn ip(draws: &mut Draws) -> ([u8; 2], Vec<u8>) {
    let segment = tcp(draws);
    let (inner_type, inner) = match draws.below(3) {
        0 => ([0x86, 0xdd], ipv6(draws, 6, &segment)),
        _ => ([8, 0], ipv4(draws, 6, &segment)),
    };
    let (protocol, payload) = match draws.below(16) {
        0 => (if inner_type == [8, 0] { 4 } else { 41 }, inner),
        1 => (47, [&[0, 0][..], &inner_type, &inner].concat()),
        2 => (
            47,
            [&[0x30, 0][..], &inner_type, &draws.bytes(8), &inner].concat(),
        ),
        3 => {
            let frame = [&[0x65, 0x58, 0, 0, 2, 7][..], &[2; 6], &inner_type, &inner].concat();
            (
                47,
                [&[0, 0][..], &[0x65, 0x58], &[2; 6], &frame[6..]].concat(),
            )
        }
        4 => {
            let length = (8 + 8 + 14 + inner.len()) as u16;
            let [a, b] = length.to_be_bytes();
            let head = [0xc0, 1, 0x12, 0xb5, a, b, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0];
            (17, [&head[..], &[2; 12], &inner_type, &inner].concat())
        }
        _ => return (inner_type, inner),
    };
    ([8, 0], ipv4(draws, protocol, &payload))
}

/// An Ethernet frame, padded where it is short.
pub fn frame(draws: &mut Draws) -> Vec<u8> {
    let (ether_type, packet) = ip(draws);
    let tags = &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9][8 - 4 * (draws.below(12) / 4) as usize..];
    let mut frame = [&[2; 12][..], tags, &ether_type, &packet].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A capture in pcap with nanoseconds.
pub fn pcap(link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, 262_144, link] {
        file.extend(u32::to_le_bytes(word));
    }
    for (packet, at) in packets.iter().zip(0..) {
        let length = packet.len() as u32;
        for word in [1_700_000_000 + at, 123_456_789, length, length] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend(packet);
    }
    file
}

/// A capture in pcapng: two interfaces, remarks now and then, stamps close to each other.
pub fn pcapng(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    wire::pcapng::section_header("goodput", &mut file);
    wire::pcapng::interface("near", 0, &mut file);
    wire::pcapng::interface("far", 0, &mut file);
    for (packet, at) in packets.iter().zip(0..) {
        let packet = wire::pcapng::Packet {
            interface: at % 2,
            time_ns: 1_700_000_000_000_000_000 + u64::from(at) * 1_234_567,
            captured: packet,
            original_bytes: packet.len() as u32,
            comment: if at % 5 == 0 { "a remark" } else { "" },
            ..wire::pcapng::Packet::default()
        };
        wire::pcapng::packet(&packet, &mut file);
    }
    file
}

/// A folder of its own that goes with the test.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("goodput-capture-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all::<&Path>(&self.0);
    }
}
