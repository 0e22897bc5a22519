//! Segments found in captured packets: link layers, tags, extension headers, tunnels, lengths, cuts.

#![allow(
    clippy::cast_possible_truncation,
    reason = "plain arithmetic on test data"
)]

use proptest::prelude::*;
use wire::capture::LinkType;
use wire::segment::{Decoded, FlowKey, Segment, SynOptions, decode};
use wire::tcp::{Flags, SackBlocks};

const TCP: u8 = 6;
const UDP: u8 = 17;
const PAYLOAD: [u8; 100] = [0xaa; 100];
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];

/// An ACK with data from 10.0.0.2:5201, or the like of IPv6, to .1:40000.
fn tcp(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x14, 0x51, 0x9c, 0x40, 1, 2, 3, 4, 5, 6, 7, 8];
    bytes.extend([
        ((20 + options.len()) / 4 * 16) as u8 | 1,
        0x18,
        0x12,
        0x34,
        0,
        0,
        0,
        0,
    ]);
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

fn ipv4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let mut bytes = vec![0x40 | (header_bytes / 4) as u8, 0x02];
    bytes.extend(((header_bytes + payload.len()) as u16).to_be_bytes());
    bytes.extend([0xbe, 0xef, 0x40, 0, 63, protocol, 0, 0]);
    bytes.extend([10, 0, 0, 2, 10, 0, 0, 1]);
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0x30, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next, 62]);
    for host in [2, 1] {
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    bytes.extend(payload);
    bytes
}

fn ethernet(types: &[u8], payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], types, payload].concat()
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc0, 0];
    bytes.extend(port.to_be_bytes());
    bytes.extend(((8 + payload.len()) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

fn v4() -> Vec<u8> {
    ipv4(TCP, &[], &tcp(&TIMESTAMPS, &PAYLOAD))
}

fn v6() -> Vec<u8> {
    ipv6(TCP, &tcp(&TIMESTAMPS, &PAYLOAD))
}

/// What `v4` says.
fn v4_segment() -> Segment {
    let mut addresses = [[0; 16]; 2];
    for (address, host) in addresses.iter_mut().zip([1, 2]) {
        address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, host]);
    }
    Segment {
        flow: FlowKey {
            addresses,
            ports: [40_000, 5201],
        },
        from: 1,
        sequence: 0x0102_0304,
        acknowledgment: 0x0506_0708,
        flags: Flags::ACK.with(Flags::PSH).with(Flags::AE),
        window: 0x1234,
        payload_bytes: 100,
        ip_bytes: 152,
        ecn: 2,
        ttl: 63,
        ip_id: 0xbeef,
        timestamps: Some((7, 9)),
        sack: SackBlocks::default(),
        syn: SynOptions::default(),
        options_cut: false,
    }
}

/// What `v6` says.
fn v6_segment() -> Segment {
    let mut segment = Segment {
        ip_bytes: 172,
        ecn: 3,
        ttl: 62,
        ip_id: 0,
        ..v4_segment()
    };
    for (address, host) in segment.flow.addresses.iter_mut().zip([1, 2]) {
        *address = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    }
    segment
}

/// Decodes into what is left of another segment, with everything set.
fn decoded_of(link: LinkType, captured: &[u8], original: usize) -> (Decoded, Segment) {
    let mut out = Segment {
        timestamps: Some((1, 1)),
        sack: SackBlocks::new(&[(1, 2), (3, 4)]),
        syn: SynOptions {
            mss: Some(1),
            window_scale: Some(1),
            sack_permitted: true,
        },
        options_cut: true,
        ..Segment::default()
    };
    let decoded = decode(link, captured, original as u32, &mut out);
    (decoded, out)
}

fn decoded(link: LinkType, captured: &[u8]) -> Decoded {
    decoded_of(link, captured, captured.len()).0
}

fn segment(link: LinkType, captured: &[u8]) -> Segment {
    let (decoded, segment) = decoded_of(link, captured, captured.len());
    assert_eq!(decoded, Decoded::Tcp, "{captured:02x?}");
    segment
}

/// Of an Ethernet frame.
fn framed(types: &[u8], payload: &[u8]) -> Segment {
    segment(LinkType::ETHERNET, &ethernet(types, payload))
}

#[test]
fn every_link_layer_leads_to_the_segment() {
    let (ip4, ip6) = (&[8, 0][..], &[0x86, 0xdd][..]);
    assert_eq!(framed(ip4, &v4()), v4_segment());
    assert_eq!(framed(ip6, &v6()), v6_segment());
    for link in [12, 14, 101, 228, 229] {
        assert_eq!(segment(LinkType(link), &v4()), v4_segment());
        assert_eq!(segment(LinkType(link), &v6()), v6_segment());
    }
    for (ether_type, ip, expected) in [(ip4, v4(), v4_segment()), (ip6, v6(), v6_segment())] {
        let cooked = [&[0; 14], ether_type, &ip].concat();
        assert_eq!(segment(LinkType(113), &cooked), expected);
        let cooked_2 = [ether_type, &[0; 18], &ip].concat();
        assert_eq!(segment(LinkType(276), &cooked_2), expected);
    }
    let families = [(2, v4(), v4_segment())].into_iter();
    let families = families.chain([10, 24, 28, 30].map(|family| (family, v6(), v6_segment())));
    for (family, ip, expected) in families {
        for header in [[0, 0, 0, family], [family, 0, 0, 0]] {
            for link in [LinkType::NULL, LinkType::LOOP] {
                assert_eq!(segment(link, &[&header[..], &ip].concat()), expected);
            }
        }
    }
    assert_eq!(decoded(LinkType::NULL, &[7, 0, 0, 0, 1]), Decoded::NotIp);
    assert_eq!(decoded(LinkType(105), &v4()), Decoded::UnknownLink);
}

#[test]
fn three_tags_are_passed_and_a_fourth_is_not() {
    let tags = [0x81, 0, 0, 7, 0x88, 0xa8, 0, 8, 0x91, 0, 0, 9];
    for count in 0..=3 {
        let types = [&tags[..4 * count], &[8, 0]].concat();
        assert_eq!(framed(&types, &v4()), v4_segment());
    }
    let types = [&[0x81, 0, 0, 1][..], &tags, &[8, 0]].concat();
    assert_eq!(
        decoded(LinkType::ETHERNET, &ethernet(&types, &v4())),
        Decoded::NotIp
    );
}

#[test]
fn labels_are_passed_down_to_the_last() {
    let (upper, bottom) = ([0, 1, 0, 64], [0, 2, 1, 64]);
    for (labels, ether_type) in [(0, [0x88, 0x47]), (15, [0x88, 0x48])] {
        let types = [&ether_type[..], &upper.repeat(labels), &bottom].concat();
        assert_eq!(framed(&types, &v6()), v6_segment());
    }
    let kind =
        |types: &[u8], payload: &[u8]| decoded(LinkType::ETHERNET, &ethernet(types, payload));
    let types = [&[0x88, 0x47][..], &upper.repeat(16), &bottom].concat();
    assert_eq!(kind(&types, &v4()), Decoded::NotIp);
    // Ethernet behind a control word.
    let types = [&[0x88, 0x47][..], &bottom, &[0; 4]].concat();
    assert_eq!(kind(&types, &v4()), Decoded::NotIp);
}

#[test]
fn what_is_no_tcp_is_told_apart() {
    let kind =
        |types: &[u8], payload: &[u8]| decoded(LinkType::ETHERNET, &ethernet(types, payload));
    assert_eq!(kind(&[8, 6], &[0; 28]), Decoded::NotIp);
    assert_eq!(
        kind(&[0, 38], &[0x42, 0x42, 3]),
        Decoded::NotIp,
        "a length, not a type"
    );
    assert_eq!(kind(&[8, 0], &ipv4(1, &[], &[0; 8])), Decoded::OtherIp);
    assert_eq!(kind(&[8, 0], &ipv4(UDP, &[], &udp(53, &[]))), Decoded::Udp);
    assert_eq!(kind(&[0x86, 0xdd], &ipv6(58, &[0; 8])), Decoded::OtherIp);
    assert_eq!(kind(&[0x86, 0xdd], &v4()), Decoded::Malformed);
    assert_eq!(kind(&[8, 0], &v6()), Decoded::Malformed);
}

#[test]
fn options_and_extension_headers_of_ip_are_passed() {
    let inner = tcp(&TIMESTAMPS, &PAYLOAD);
    for words in [1, 10] {
        let found = framed(&[8, 0], &ipv4(TCP, &vec![1; 4 * words], &inner));
        let ip_bytes = 152 + 4 * words as u32;
        assert_eq!(
            found,
            Segment {
                ip_bytes,
                ..v4_segment()
            }
        );
    }
    // Hop-by-hop, routing of two units, destination options, the first fragment, authentication.
    let chain = [
        &[43, 0, 1, 4, 0, 0, 0, 0][..],
        &[60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[44, 0, 1, 4, 0, 0, 0, 0],
        &[51, 0, 0, 1, 0, 0, 0, 9],
        &[6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &inner,
    ];
    let found = framed(&[0x86, 0xdd], &ipv6(0, &chain.concat()));
    assert_eq!(
        found,
        Segment {
            ip_bytes: 224,
            ..v6_segment()
        }
    );
}

#[test]
fn only_the_first_fragment_has_a_segment() {
    let mut packet = v4();
    packet[6] = 0x20;
    assert_eq!(framed(&[8, 0], &packet), v4_segment());
    for (high, low) in [(0x20, 1), (0x1f, 0xff), (0, 1)] {
        (packet[6], packet[7]) = (high, low);
        assert_eq!(decoded(LinkType::RAW, &packet), Decoded::Fragment);
    }
    let later = [&[6, 0, 0, 8, 0, 0, 0, 9][..], &PAYLOAD].concat();
    assert_eq!(decoded(LinkType::RAW, &ipv6(44, &later)), Decoded::Fragment);
}

#[test]
fn one_tunnel_is_gone_through() {
    let vxlan = |inner: &[u8]| udp(4789, &[&[8, 0, 0, 0, 0, 0, 5, 0], inner].concat());
    let (frame, bridged) = (ethernet(&[8, 0], &v4()), [0x65, 0x58]);
    let gre = |flags: u8, fields: usize, kind: [u8; 2], inner: &[u8]| {
        [&[flags, 0], &kind[..], &vec![0; fields], inner].concat()
    };
    let outer = [
        (UDP, vxlan(&frame)),
        (47, gre(0, 0, [8, 0], &v4())),
        (47, gre(0x20, 4, [8, 0], &v4())),
        (47, gre(0xb0, 12, bridged, &frame)),
        (4, v4()),
    ];
    for (protocol, payload) in &outer {
        assert_eq!(
            segment(LinkType::RAW, &ipv4(*protocol, &[], payload)),
            v4_segment()
        );
        assert_eq!(
            segment(LinkType::RAW, &ipv6(*protocol, payload)),
            v4_segment()
        );
        // A second one is not.
        let twice = ipv4(4, &[], &ipv4(*protocol, &[], payload));
        let kind = if *protocol == UDP {
            Decoded::Udp
        } else {
            Decoded::OtherIp
        };
        assert_eq!(decoded(LinkType::RAW, &twice), kind);
    }
    assert_eq!(segment(LinkType::RAW, &ipv4(41, &[], &v6())), v6_segment());
    let six = gre(0x10, 4, [0x86, 0xdd], &v6());
    assert_eq!(segment(LinkType::RAW, &ipv4(47, &[], &six)), v6_segment());
}

#[test]
fn what_only_looks_like_a_tunnel_is_none() {
    let inner = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &ethernet(&[8, 0], &v4())].concat();
    let mut no_network = inner.clone();
    no_network[0] = 0;
    for payload in [udp(4790, &inner), udp(4789, &no_network), udp(4789, &[8])] {
        assert_eq!(
            decoded(LinkType::RAW, &ipv4(UDP, &[], &payload)),
            Decoded::Udp
        );
    }
    // PPTP's version, source routes, another protocol.
    for head in [[0x20, 1, 0x88, 0x0b], [0x40, 0, 8, 0], [0, 0, 0x88, 0xbe]] {
        let payload = [&head[..], &v4()].concat();
        assert_eq!(
            decoded(LinkType::RAW, &ipv4(47, &[], &payload)),
            Decoded::OtherIp
        );
    }
}

#[test]
fn padding_is_no_payload() {
    let short = ipv4(TCP, &[], &tcp(&[], &[]));
    for padding in [6, 100] {
        let padded = [&short[..], &vec![0; padding]].concat();
        let found = framed(&[8, 0], &padded);
        assert_eq!((found.payload_bytes, found.ip_bytes), (0, 40));
    }
}

#[test]
fn super_packets_are_as_long_as_their_record() {
    let header = |mut packet: Vec<u8>, at: usize| {
        packet[at..at + 2].fill(0);
        packet.truncate(packet.len() - PAYLOAD.len());
        packet
    };
    let four = header(v4(), 2);
    let (kind, found) = decoded_of(LinkType::RAW, &four, 200_052);
    assert_eq!(
        (kind, found.payload_bytes, found.ip_bytes),
        (Decoded::Tcp, 200_000, 200_052)
    );
    let six = header(v6(), 4);
    let (kind, found) = decoded_of(LinkType::RAW, &six, 200_072);
    assert_eq!(
        (kind, found.payload_bytes, found.ip_bytes),
        (Decoded::Tcp, 200_000, 200_072)
    );
    // With the option, and a trailer behind the packet.
    let jumbo = |length: u32| {
        let option = [&[6, 0, 0xc2, 4][..], &length.to_be_bytes()].concat();
        let packet = ipv6(0, &[&option[..], &tcp(&TIMESTAMPS, &[])].concat());
        header([&packet[..], &PAYLOAD].concat(), 4)
    };
    let payload = |packet: &[u8], original| {
        let (kind, found) = decoded_of(LinkType::RAW, packet, original);
        assert_eq!(kind, Decoded::Tcp);
        found.payload_bytes
    };
    assert_eq!(payload(&jumbo(200_040), 200_180), 200_000);
    assert_eq!(payload(&jumbo(200_040), 200_080), 200_000);
    // One that states more than there is, and one that is no jumbogram: the record counts.
    assert_eq!(payload(&jumbo(200_041), 200_080), 200_000);
    assert_eq!(payload(&jumbo(65_535), 200_080), 200_000);
}

#[test]
fn a_header_says_how_long_what_was_cut_is() {
    let packet = v4();
    for kept in [72, 52] {
        for original in [packet.len(), kept, 0] {
            let (kind, found) = decoded_of(LinkType::RAW, &packet[..kept], original);
            assert_eq!(
                (kind, found),
                (Decoded::Tcp, v4_segment()),
                "{kept} of {original}"
            );
        }
    }
    for kept in 40..52 {
        let (kind, found) = decoded_of(LinkType::RAW, &packet[..kept], packet.len());
        let expected = Segment {
            options_cut: true,
            timestamps: None,
            ..v4_segment()
        };
        assert_eq!((kind, found), (Decoded::Tcp, expected), "{kept}");
    }
    for kept in 0..40 {
        let (kind, _) = decoded_of(LinkType::RAW, &packet[..kept], packet.len());
        assert_eq!(kind, Decoded::Cut, "{kept}");
    }
}

#[test]
fn every_cut_of_every_layer_is_cut_or_the_segment() {
    let vxlan = udp(
        4789,
        &[&[8, 0, 0, 0, 0, 0, 5, 0][..], &ethernet(&[8, 0], &v4())].concat(),
    );
    let extended = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp(&[], &PAYLOAD)].concat();
    for (types, packet) in [
        (&[8, 0][..], v4()),
        (&[0x81, 0, 0, 1, 0x86, 0xdd], v6()),
        (&[8, 0], ipv4(UDP, &[], &vxlan)),
        (
            &[8, 0],
            ipv4(
                47,
                &[0; 4],
                &[&[0x20, 0, 8, 0, 0, 0, 0, 1], &v4()[..]].concat(),
            ),
        ),
        (&[0x86, 0xdd], ipv6(0, &extended)),
        (&[0x88, 0x47, 0, 0, 1, 1], v4()),
    ] {
        let frame = ethernet(types, &packet);
        let mut seen = Decoded::Cut;
        for kept in 0..=frame.len() {
            let (kind, found) = decoded_of(LinkType::ETHERNET, &frame[..kept], frame.len());
            // Of a tunnel whose header is cut nothing is known but what it is in.
            if kind != Decoded::Udp {
                assert!(
                    kind == seen || (seen, kind) == (Decoded::Cut, Decoded::Tcp),
                    "{kept}"
                );
                seen = kind;
            }
            assert!(kind != Decoded::Tcp || found.payload_bytes == 100, "{kept}");
        }
        assert_eq!(seen, Decoded::Tcp);
    }
}

#[test]
fn lengths_that_leave_no_room_for_a_header_are_malformed() {
    let kind = |packet: &[u8]| decoded(LinkType::RAW, packet);
    let whole = ipv4(TCP, &[], &tcp(&[], &[]));
    assert_eq!(kind(&whole), Decoded::Tcp);
    for (at, value) in [
        (3, 39),
        (3, 19),
        (0, 0x44),
        (0, 0x46),
        (32, 0x40),
        (32, 0x60),
        (0, 0x55),
    ] {
        let mut bad = whole.clone();
        bad[at] = value;
        assert_eq!(kind(&bad), Decoded::Malformed, "{at} {value}");
    }
    assert_eq!(kind(&[]), Decoded::Malformed);
    assert_eq!(kind(&ipv6(TCP, &[0; 19])), Decoded::Malformed);
    assert_eq!(
        kind(&ipv6(0, &[6, 1, 0, 0, 0, 0, 0, 0])),
        Decoded::Malformed
    );
}

#[test]
fn the_options_of_a_syn_are_read() {
    let options = [
        2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 10,
    ];
    let found = segment(LinkType::RAW, &ipv4(TCP, &[], &tcp(&options, &[])));
    let syn = SynOptions {
        mss: Some(1460),
        window_scale: Some(10),
        sack_permitted: true,
    };
    assert_eq!((found.syn, found.timestamps), (syn, Some((1, 0))));
}

#[test]
fn timestamps_are_read_wherever_they_stand() {
    let sack = [1, 1, 5, 10, 0, 0, 0, 3, 0, 0, 0, 4];
    let bare = [8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 1, 1];
    for options in [
        [&TIMESTAMPS[..], &sack].concat(),
        [&sack[..], &TIMESTAMPS].concat(),
        [&bare[..], &sack].concat(),
    ] {
        let found = segment(LinkType::RAW, &ipv4(TCP, &[], &tcp(&options, &[])));
        assert_eq!(found.timestamps, Some((7, 9)));
        assert_eq!(found.sack.as_slice(), [(3, 4)]);
        assert!(!found.options_cut);
    }
    // What stands behind a length that does not fit is not read.
    let broken = [&[3, 9][..], &[1, 1], &TIMESTAMPS[2..], &[1, 1]].concat();
    let found = segment(LinkType::RAW, &ipv4(TCP, &[], &tcp(&broken, &[])));
    assert_eq!(found.timestamps, None);
}

#[test]
fn both_directions_have_one_key() {
    let (a, b) = (([1; 16], 80), ([2; 16], 70));
    let (key, from) = FlowKey::of(a, b);
    assert_eq!((key, from), (FlowKey::of(b, a).0, 0));
    assert_eq!(FlowKey::of(b, a).1, 1);
    // One address: ports decide. Itself: it is the lower.
    assert_eq!(FlowKey::of(([1; 16], 2), ([1; 16], 1)).1, 1);
    assert_eq!(FlowKey::of(a, a).1, 0);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        link in prop::sample::select(vec![0, 1, 12, 14, 101, 108, 113, 228, 229, 276, 9]),
        head in prop::sample::select(vec![vec![], ethernet(&[8, 0], &[]), ethernet(&[0x86, 0xdd], &[])]),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        original in any::<u32>(),
    ) {
        let captured = [head, bytes].concat();
        let mut out = Segment::default();
        if decode(LinkType(link), &captured, original, &mut out) == Decoded::Tcp {
            prop_assert!(out.ip_bytes >= out.payload_bytes + 40);
        }
    }
}
