//! Fragments put together: any order, any cut, several packets at once, holes, copies, bounds.

#![allow(
    clippy::cast_possible_truncation,
    reason = "plain arithmetic on test data"
)]

use proptest::prelude::*;
use wire::capture::LinkType;
use wire::segment::{Decoded, FragmentCounts, Reassembly, Segment, decode};

const S: u64 = 1_000_000_000;

/// A TCP segment of so many bytes of payload.
fn tcp(payload_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![
        0x14, 0x51, 0x9c, 0x40, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0x18, 0x12, 0x34,
    ];
    bytes.extend([0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9]);
    bytes.extend((0..payload_bytes).map(|n| n as u8));
    bytes
}

/// Fragment of an IPv4 packet: bytes `from..to` of `content`.
fn part_4(id: u16, content: &[u8], from: usize, to: usize) -> Vec<u8> {
    let more = u16::from(to < content.len()) << 13;
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + (to - from) as u16).to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend((more | (from / 8) as u16).to_be_bytes());
    bytes.extend([63, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    bytes.extend(&content[from..to]);
    bytes
}

/// The same of an IPv6 packet, behind a hop-by-hop header.
fn part_6(id: u16, content: &[u8], from: usize, to: usize) -> Vec<u8> {
    let field = from as u16 | u16::from(to < content.len());
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((16 + (to - from) as u16).to_be_bytes());
    bytes.extend([0, 62]);
    for host in [2, 1] {
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    bytes.extend([44, 0, 1, 4, 0, 0, 0, 0, 6, 0]);
    bytes.extend(field.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(id.to_be_bytes());
    bytes.extend(&content[from..to]);
    bytes
}

/// The same packet in one piece.
fn whole(of: fn(u16, &[u8], usize, usize) -> Vec<u8>, content: &[u8]) -> Segment {
    let mut packet = of(9, content, 0, content.len());
    let mut segment = Segment::default();
    assert_eq!(
        decode(LinkType::RAW, &packet, packet.len() as u32, &mut segment),
        Decoded::Tcp
    );
    if packet[0] >> 4 == 6 {
        // The headers of the way are not among what is put together.
        packet.drain(40..56);
        segment.ip_bytes -= 16;
    }
    segment
}

fn take(reassembly: &mut Reassembly, packet: &[u8], time_ns: u64) -> Option<(Decoded, Segment)> {
    let mut segment = Segment::default();
    let decoded = reassembly.take(packet, 0, time_ns, &mut segment)?;
    Some((decoded, segment))
}

proptest! {
    #[test]
    fn any_order_and_any_cuts_give_the_segment(
        payload in 0_usize..4000,
        cuts in proptest::collection::btree_set(1_usize..500, 0..8),
        kept in 88_usize..200,
        order in any::<u64>(),
    ) {
        for of in [part_4, part_6] {
            let content = tcp(payload);
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut * 8).filter(|&at| at < content.len()).collect();
            ends.insert(0, 0);
            ends.push(content.len());
            let mut parts: Vec<Vec<u8>> = ends.windows(2).map(|w| of(9, &content, w[0], w[1])).collect();
            if parts.len() == 1 {
                continue;
            }
            let last = parts.len() - 1;
            for n in 0..parts.len() {
                let to = (order >> (n % 60)) as usize % parts.len();
                parts.swap(n, to);
            }
            let mut reassembly = Reassembly::default();
            for (n, part) in parts.iter().enumerate() {
                // A capture that keeps headers alone.
                let found = take(&mut reassembly, &part[..kept.min(part.len())], n as u64);
                if n < last {
                    prop_assert_eq!(found, None);
                    continue;
                }
                let (decoded, segment) = found.unwrap();
                prop_assert_eq!(decoded, Decoded::Tcp);
                prop_assert_eq!(segment, whole(of, &content));
            }
            let counts = FragmentCounts { fragments: parts.len() as u64, whole: 1, incomplete: 0 };
            prop_assert_eq!(reassembly.counts(), counts);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(packets in proptest::collection::vec(
        (any::<[u8; 20]>(), proptest::collection::vec(any::<u8>(), 0..80), any::<bool>()), 0..40))
    {
        let mut reassembly = Reassembly::default();
        for (n, (mut head, rest, six)) in packets.into_iter().enumerate() {
            head[0] = if six { 0x60 } else { 0x45 };
            head[4] = 0;
            head[5] &= 3;
            if six {
                head[6] = 44;
            }
            let packet = [&head[..], &rest].concat();
            let _ = take(&mut reassembly, &packet, n as u64);
        }
    }
}

#[test]
fn packets_of_one_number_are_told_apart_by_ends_interface_and_time() {
    let content = tcp(100);
    let (first, second) = (part_4(9, &content, 0, 64), part_4(9, &content, 64, 132));
    let mut elsewhere = second.clone();
    elsewhere[19] = 7;
    let mut reassembly = Reassembly::default();
    assert_eq!(take(&mut reassembly, &first, 0), None);
    assert_eq!(take(&mut reassembly, &elsewhere, 1), None);
    let mut segment = Segment::default();
    assert_eq!(reassembly.take(&second, 1, 2, &mut segment), None);
    // 30 s are waited, and no longer.
    assert!(take(&mut reassembly, &second, 30 * S).is_some());
    assert_eq!(take(&mut reassembly, &first, 40 * S), None);
    assert_eq!(take(&mut reassembly, &second, 70 * S + 1), None);
    let counts = reassembly.counts();
    assert_eq!(
        (counts.fragments, counts.whole, counts.incomplete),
        (6, 1, 4)
    );
}

#[test]
fn copies_of_a_whole_packet_are_passed_for_a_millisecond() {
    let content = tcp(100);
    let parts = [part_4(9, &content, 0, 64), part_4(9, &content, 64, 132)];
    let mut reassembly = Reassembly::default();
    for (packet, time_ns, is_whole) in [
        (0, 0, false),
        (0, 1, false),
        (1, 2, true),
        (1, 3, false),
        (0, 1_000_002, false),
        // Another packet, with the number again.
        (0, 1_000_003, false),
        (1, 1_000_004, true),
    ] {
        let found = take(&mut reassembly, &parts[packet], time_ns);
        assert_eq!(found.is_some(), is_whole, "{time_ns}");
    }
    assert_eq!(reassembly.counts().incomplete, 0);
}

#[test]
fn a_packet_longer_than_can_be_is_malformed_and_holes_are_none() {
    let mut reassembly = Reassembly::default();
    let mut last = part_4(9, &[0; 8], 0, 8);
    // Ends 8 bytes behind what fits with a header of 20.
    last[6..8].copy_from_slice(&(65_512_u16 / 8).to_be_bytes());
    let mut first = part_4(9, &[0; 65_512], 0, 65_504);
    first.truncate(100);
    assert_eq!(take(&mut reassembly, &first, 0), None);
    assert_eq!(take(&mut reassembly, &last, 0), None);
    let mut between = part_4(9, &[0; 8], 0, 8);
    between[6..8].copy_from_slice(&(0x2000 | (65_504_u16 / 8)).to_be_bytes());
    let found = take(&mut reassembly, &between, 0).unwrap();
    assert_eq!(found.0, Decoded::Malformed);
}

#[test]
fn a_flood_of_first_fragments_costs_a_bounded_table() {
    let content = tcp(100);
    let mut reassembly = Reassembly::default();
    for n in 0..100_000_u32 {
        let mut part = part_4(n as u16, &content, 0, 64);
        part[15] = (n >> 16) as u8;
        assert_eq!(take(&mut reassembly, &part, u64::from(n)), None);
    }
    assert_eq!(reassembly.counts().incomplete, 100_000);
    let last = part_4(99_999_u32 as u16, &content, 64, 132);
    let mut last = last;
    last[15] = (99_999_u32 >> 16) as u8;
    assert!(
        take(&mut reassembly, &last, 100_000).is_some(),
        "the latest are kept"
    );
}
