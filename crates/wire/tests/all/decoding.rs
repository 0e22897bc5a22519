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
    assert_eq!(decoded(LinkType::NULL, &[7, 0, 0, 0, 1]), NO_TYPE);
    assert_eq!(decoded(LinkType(189), &v4()), Decoded::UnknownLink);
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
        Decoded::NotIp { ether_type: 0x9100 }
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
    let unread = Decoded::NotIp { ether_type: 0x8847 };
    assert_eq!(kind(&types, &v4()), unread);
    // A control word, and no Ethernet behind it.
    let types = [&[0x88, 0x47][..], &bottom, &[0; 4]].concat();
    assert_eq!(kind(&types, &v4()), unread);
    // Ethernet, with a control word before it and without.
    for word in [&[0; 4][..], &[]] {
        let types = [&[0x88, 0x47][..], &bottom, word].concat();
        assert_eq!(framed(&types, &ethernet(&[8, 0], &v4())), v4_segment());
    }
}

#[test]
fn what_is_no_tcp_is_told_apart() {
    let kind =
        |types: &[u8], payload: &[u8]| decoded(LinkType::ETHERNET, &ethernet(types, payload));
    assert_eq!(
        kind(&[8, 6], &[0; 28]),
        Decoded::NotIp { ether_type: 0x806 }
    );
    assert_eq!(
        kind(&[0, 38], &[0x42, 0x42, 3]),
        Decoded::NotIp { ether_type: 0x42 },
        "a length, not a type"
    );
    assert_eq!(kind(&[8, 0], &ipv4(1, &[], &[0; 8])), other(1));
    assert_eq!(kind(&[8, 0], &ipv4(UDP, &[], &udp(53, &[]))), Decoded::Udp);
    assert_eq!(kind(&[0x86, 0xdd], &ipv6(58, &[0; 8])), other(58));
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
    // Hop-by-hop, routing of two units, destination options, a fragment that is all, authentication.
    let chain = [
        &[43, 0, 1, 4, 0, 0, 0, 0][..],
        &[60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[44, 0, 1, 4, 0, 0, 0, 0],
        &[51, 0, 0, 0, 0, 0, 0, 9],
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
fn fragments_are_told_with_their_place() {
    let mut packet = v4();
    for (high, low) in [(0x20, 0), (0x20, 1), (0x1f, 0xff), (0, 1)] {
        (packet[6], packet[7]) = (high, low);
        assert_eq!(decoded(LinkType::RAW, &packet), Decoded::Fragment { at: 0 });
        let frame = ethernet(&[0x81, 0, 0, 7, 8, 0], &packet);
        assert_eq!(
            decoded(LinkType::ETHERNET, &frame),
            Decoded::Fragment { at: 18 }
        );
    }
    for field in [[0, 8], [0, 1], [0, 9]] {
        let later = [&[6, 0, field[0], field[1], 0, 0, 0, 9][..], &PAYLOAD].concat();
        assert_eq!(
            decoded(LinkType::RAW, &ipv6(44, &later)),
            Decoded::Fragment { at: 0 }
        );
    }
}

/// Protocol of IP and payload of packets with one tunnel around [`v4`].
fn tunnels() -> Vec<(&'static str, u8, Vec<u8>)> {
    let (ip, frame) = (v4(), ethernet(&[8, 0], &v4()));
    let with = |head: &[u8], inner: &[u8]| [head, inner].concat();
    let gre = |flags: u8, version: u8, kind: u16, fields: &[u8], inner: &[u8]| {
        let head = [&[flags, version], &kind.to_be_bytes()[..], fields].concat();
        (47, with(&head, inner))
    };
    let to = |port: u16, head: &[u8], inner: &[u8]| (UDP, udp(port, &with(head, inner)));
    let vxlan = [8, 0, 0, 0, 0, 0, 5, 0];
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let wlan = [&[8, 1][..], &[0; 22], &snap, &ip].concat();
    let mut swapped = wlan.clone();
    swapped.swap(0, 1);
    let ppp = with(&[0xff, 3, 0, 0x21], &ip);
    let policy = [0x88, 0, 0, 1, 0, 0, 5, 0];
    let geneve_options = [2, 0, 8, 0, 0, 0, 5, 0, 1, 2, 3, 1, 0, 0, 0, 0];
    let gtp_extension = [0x34, 0xff, 0, 160, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0];
    let capwap = |native: u8| [0, 0x10, 0x02 | native, 0, 0, 0, 0, 0];
    let ayiya = with(&[0x41, 0x52, 0x11, 4], &[0; 4 + 16 + 20]);
    let l2tp_all = [0x0a, 2, 0, 1, 0, 2, 0, 0, 0, 0, 0, 2, 9, 9];
    let routes = [0, 0, 0, 0, 0, 8, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0];
    let erspan_2 = [0, 0, 0, 1, 0x10, 1, 0, 1, 0, 0, 0, 0];
    let erspan_3 = |frame_type: u8, platform: u8| {
        let head = [
            0,
            0,
            0,
            1,
            0x20,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            frame_type << 2,
            platform,
        ];
        with(&head, &vec![0; 8 * usize::from(platform)])
    };
    let pptp = [0, 152, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2];
    let cases = [
        ("VXLAN", to(4789, &vxlan, &frame)),
        ("VXLAN, group policy", to(4789, &policy, &frame)),
        ("VXLAN, Linux's port", to(8472, &vxlan, &frame)),
        ("VXLAN, any port", to(54_321, &vxlan, &frame)),
        ("VXLAN-GPE", to(4790, &[0xc, 0, 0, 1, 0, 0, 5, 0], &ip)),
        ("Geneve", to(6081, &[0, 0, 0x65, 0x58, 0, 0, 5, 0], &frame)),
        ("Geneve, options", to(6081, &geneve_options, &ip)),
        ("GTP-U", to(2152, &[0x30, 0xff, 0, 152, 0, 0, 0, 1], &ip)),
        ("GTP-U, extension", to(2152, &gtp_extension, &ip)),
        ("TZSP", to(37_008, &[1, 0, 0, 1, 0, 10, 1, 7, 1], &frame)),
        ("TZSP, 802.11", to(37_008, &[1, 0, 0, 18, 1], &wlan)),
        ("CAPWAP", to(5247, &capwap(0), &frame)),
        ("CAPWAP, 802.11", to(5247, &capwap(1), &wlan)),
        ("CAPWAP, swapped", to(5247, &capwap(1), &swapped)),
        ("AYIYA", to(5072, &ayiya, &ip)),
        ("L2TP", to(1701, &[0x40, 2, 0, 0, 0, 1, 0, 2], &ppp)),
        ("L2TP, all fields", to(1701, &l2tp_all, &ppp)),
        (
            "L2TPv3",
            to(1701, &[0, 3, 0, 0, 0, 0, 0, 7, 1, 2, 3, 4], &frame),
        ),
        ("L2TPv3 over IP", (115, with(&[0, 0, 0, 7], &frame))),
        ("MPLS in UDP", to(6635, &[0, 2, 1, 64], &ip)),
        ("GUE", to(6080, &[0, 4, 0, 0], &ip)),
        ("GUE, version 1", to(6080, &[], &ip)),
        ("LISP", to(4341, &[0x80; 8], &ip)),
        ("GRE", gre(0, 0, 0x0800, &[], &ip)),
        ("GRE, key", gre(0x20, 0, 0x0800, &[0; 4], &ip)),
        ("GRE, tagged", gre(0, 0, 0x8100, &[0, 7, 8, 0], &ip)),
        ("GRE, all fields", gre(0xb0, 0, 0x6558, &[0; 12], &frame)),
        ("GRE, routes", gre(0x40, 0, 0x0800, &routes, &ip)),
        ("NVGRE", gre(0x20, 0, 0x6558, &[0, 5, 0, 0], &frame)),
        ("ERSPAN I", gre(0, 0, 0x88be, &[], &frame)),
        ("ERSPAN II", gre(0x10, 0, 0x88be, &erspan_2, &frame)),
        ("ERSPAN III", gre(0x10, 0, 0x22eb, &erspan_3(0, 0), &frame)),
        ("ERSPAN III, IP", gre(0x10, 0, 0x22eb, &erspan_3(2, 0), &ip)),
        (
            "ERSPAN III, platform",
            gre(0x10, 0, 0x22eb, &erspan_3(0, 1), &frame),
        ),
        ("WCCP", gre(0, 0, 0x883e, &[], &ip)),
        ("WCCP 2", gre(0, 0, 0x883e, &[0, 0, 1, 2], &ip)),
        ("PPTP", gre(0x30, 0x81, 0x880b, &pptp, &ppp)),
        (
            "PPTP, data alone",
            gre(0x30, 1, 0x880b, &pptp[..8], &with(&[0x21], &ip)),
        ),
        ("EoIP", gre(0x20, 1, 0x6400, &[0, 166, 0, 1], &frame)),
        ("Aruba", gre(0, 0, 0x8200, &[], &wlan)),
        ("IP in IP", (4, ip.clone())),
        ("EtherIP", (97, with(&[0x30, 0], &frame))),
        ("Ethernet in IP", (143, frame.clone())),
        ("MPLS in IP", (137, with(&[0, 2, 1, 64], &ip))),
    ];
    cases
        .into_iter()
        .map(|(name, (protocol, payload))| (name, protocol, payload))
        .collect()
}

#[test]
fn tunnels_are_gone_through() {
    for (name, protocol, payload) in tunnels() {
        for packet in [ipv4(protocol, &[], &payload), ipv6(protocol, &payload)] {
            let found = decoded_of(LinkType::RAW, &packet, packet.len());
            assert_eq!(found, (Decoded::Tcp, v4_segment()), "{name}");
            for kept in 0..packet.len() {
                let less = decoded_of(LinkType::RAW, &packet[..kept], packet.len()).0;
                assert!(
                    matches!(less, Decoded::Tcp | Decoded::Cut | Decoded::Udp),
                    "{name} {kept}: {less:?}"
                );
            }
            // Three more around it, and one too many.
            let number = if packet[0] >> 4 == 4 { 4 } else { 41 };
            let three = ipv4(4, &[], &ipv4(4, &[], &ipv4(number, &[], &packet)));
            let found = decoded_of(LinkType::RAW, &three, three.len());
            assert_eq!(found, (Decoded::Tcp, v4_segment()), "{name}");
            let four = ipv4(4, &[], &three);
            assert_ne!(decoded(LinkType::RAW, &four), Decoded::Tcp, "{name}");
        }
    }
    assert_eq!(segment(LinkType::RAW, &ipv4(41, &[], &v6())), v6_segment());
    let six = [&[0x10, 0, 0x86, 0xdd, 0, 0, 0, 0][..], &v6()].concat();
    assert_eq!(segment(LinkType::RAW, &ipv4(47, &[], &six)), v6_segment());
    // An authentication and an origin before it.
    let teredo = [&[0, 1][..], &[0; 11], &[0; 8], &v6()].concat();
    let packet = ipv4(UDP, &[], &udp(3544, &teredo));
    assert_eq!(segment(LinkType::RAW, &packet), v6_segment());
    // An authentication header is no tunnel: the outer addresses stay.
    let ah = [&[6, 1, 0, 0][..], &[0; 8], &tcp(&TIMESTAMPS, &PAYLOAD)].concat();
    let found = segment(LinkType::RAW, &ipv4(51, &[], &ah));
    assert_eq!((found.payload_bytes, found.flow), (100, v4_segment().flow));
}

#[test]
fn what_stands_before_ip_in_a_frame_is_passed() {
    let frame = ethernet(&[8, 0], &v4());
    let inside: [(&str, &[u8], &[u8]); 11] = [
        ("FabricPath", &[0x89, 0x03, 0, 0], &frame),
        ("VN-tag", &[0x89, 0x26, 0, 0, 0, 0, 8, 0], &v4()),
        ("E-tag", &[0x89, 0x3f, 0, 0, 0, 0, 0, 0, 8, 0], &v4()),
        ("HSR", &[0x89, 0x2f, 0, 160, 0, 1, 8, 0], &v4()),
        ("PBB", &[0x88, 0xe7, 0, 0, 1, 0], &frame),
        ("TRILL", &[0x22, 0xf3, 0, 0, 0, 0, 0, 0], &frame),
        ("NSH", &[0x89, 0x4f, 0, 2, 1, 3, 0, 0, 0, 0], &frame),
        (
            "PPPoE",
            &[0x88, 0x64, 0x11, 0, 0, 1, 0, 154, 0, 0x21],
            &v4(),
        ),
        ("SNAP", &[0, 160, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &v4()),
        (
            "SNAP, bridge",
            &[0, 160, 0xaa, 0xaa, 3, 0, 0, 0xf8, 8, 0],
            &v4(),
        ),
        ("LLC", &[0, 160, 6, 6, 3], &v4()),
    ];
    for (name, types, payload) in inside {
        let frame = ethernet(types, payload);
        let found = decoded_of(LinkType::ETHERNET, &frame, frame.len());
        assert_eq!(found, (Decoded::Tcp, v4_segment()), "{name}");
    }
}

/// Link types and packets of them that hold [`v4`].
fn links() -> Vec<(&'static str, u16, Vec<u8>)> {
    let (ip, frame) = (v4(), ethernet(&[8, 0], &v4()));
    let with = |head: &[u8], inner: &[u8]| [head, inner].concat();
    let snap = with(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &ip);
    let wlan =
        |control: [u8; 2], more: &[u8]| [&control[..], &[0; 20], &[0x10, 0], more, &snap].concat();
    let plain = wlan([8, 1], &[]);
    let several = with(&[0x80, 0], &[0; 14]);
    let radiotap = |present: [u8; 4], fields: &[u8], inner: &[u8]| {
        let length = (8 + fields.len()) as u8;
        [&[0, 0, length, 0], &present[..], fields, inner].concat()
    };
    let padded = with(&[0; 8], &[0x20]);
    let erf = |kind: u8, more: &[u8], inner: &[u8]| {
        [&[0; 8], &[kind, 0, 0, 180, 0, 0, 0, 152][..], more, inner].concat()
    };
    let nflog = [2, 0, 0, 0, 5, 0, 10, 0, b'x', 0, 0, 0, 156, 0, 9, 0];
    let pktap = |link: u8| [12, 0, 0, 0, 1, 0, 0, 0, link, 0, 0, 0];
    let avs = [0x80, 0x21, 0x10, 1, 0, 0, 0, 12, 0, 0, 0, 0];
    let relay_snap = [0x18, 0x41, 3, 0, 0x80, 0, 0, 0, 8, 0];
    vec![
        ("PPP", 9, with(&[0xff, 3, 0, 0x21], &ip)),
        ("PPP, compressed", 9, with(&[0x21], &ip)),
        ("PPP, HDLC", 50, with(&[0xff, 3, 0, 0x21], &ip)),
        ("PPP, Cisco's", 50, with(&[0x0f, 0, 8, 0], &ip)),
        (
            "PPP, Ethernet",
            51,
            with(&[0x11, 0, 0, 1, 0, 154, 0, 0x21], &ip),
        ),
        ("PPP, direction", 204, with(&[1, 0xff, 3, 0, 0x21], &ip)),
        ("C-HDLC", 104, with(&[0x0f, 0, 8, 0], &ip)),
        ("frame relay", 107, with(&[0x18, 0x41, 3, 0xcc], &ip)),
        ("frame relay, type", 107, with(&[0x18, 0x41, 8, 0], &ip)),
        ("frame relay, SNAP", 107, with(&relay_snap, &ip)),
        ("token ring", 6, with(&[0; 14], &snap)),
        ("FDDI", 10, with(&[0; 13], &snap)),
        ("ATM", 100, snap.clone()),
        ("ATM, plain", 100, ip.clone()),
        ("SunATM", 123, with(&[2, 0, 0, 0], &snap)),
        ("802.11", 105, plain.clone()),
        ("802.11, four addresses", 105, wlan([8, 3], &[0; 6])),
        ("802.11, quality", 105, wlan([0x88, 1], &[0, 0])),
        ("802.11, HT control", 105, wlan([0x88, 0x81], &[0; 6])),
        ("802.11, A-MSDU", 105, wlan([0x88, 1], &several)),
        ("radiotap", 127, radiotap([0; 4], &[], &plain)),
        (
            "radiotap, padded",
            127,
            radiotap([3, 0, 0, 0], &padded, &wlan([0x88, 1], &[0; 4])),
        ),
        (
            "radiotap, two words",
            127,
            radiotap([2, 0, 0, 0x80], &[0; 5], &plain),
        ),
        ("Prism", 119, with(&[0; 144], &plain)),
        ("AVS", 163, with(&avs, &plain)),
        ("Prism, AVS's", 119, with(&avs, &plain)),
        ("PPI", 192, with(&[0, 0, 8, 0, 105, 0, 0, 0], &plain)),
        ("NFLOG", 239, with(&nflog, &ip)),
        (
            "NFLOG, big-endian",
            239,
            with(&[2, 0, 0, 0, 0, 156, 0, 9], &ip),
        ),
        ("PKTAP", 258, with(&pktap(1), &frame)),
        ("PKTAP, raw", 258, with(&pktap(12), &ip)),
        (
            "PKTAP, loopback",
            258,
            with(&pktap(0), &with(&[2, 0, 0, 0], &ip)),
        ),
        ("IPoIB", 242, with(&[0; 40], &with(&[8, 0, 0, 0], &ip))),
        ("pf", 117, with(&[61, 2, 0, 0], &with(&[0; 60], &ip))),
        ("enc", 109, with(&[0; 12], &ip)),
        ("SLIP", 8, with(&[0; 16], &ip)),
        ("IEEE 1394", 138, with(&[0; 16], &with(&[8, 0], &ip))),
        ("MPLS", 219, with(&[0, 2, 1, 64], &ip)),
        ("IPNET", 226, with(&[0; 24], &ip)),
        ("Juniper", 178, with(b"MGC\x01", &frame)),
        ("Juniper, fields", 178, with(b"MGC\x80\0\x03abc", &frame)),
        ("Juniper, no link", 178, with(b"MGC\x02", &ip)),
        ("ERF", 197, erf(2, &[0, 0], &frame)),
        ("ERF, extension", 197, erf(0x82, &[0; 10], &frame)),
        ("ERF, HDLC", 197, erf(1, &[], &with(&[0x0f, 0, 8, 0], &ip))),
        ("ERF, IPv4", 197, erf(22, &[], &ip)),
    ]
}

#[test]
fn other_link_types_lead_to_the_segment() {
    for (name, link, bytes) in links() {
        let found = decoded_of(LinkType(link), &bytes, bytes.len());
        assert_eq!(found, (Decoded::Tcp, v4_segment()), "{name}");
        for kept in 0..bytes.len() {
            let less = decoded_of(LinkType(link), &bytes[..kept], bytes.len()).0;
            assert!(
                matches!(less, Decoded::Tcp | Decoded::Cut),
                "{name} {kept}: {less:?}"
            );
        }
    }
}

#[test]
fn frames_in_the_air_without_readable_data_are_told_apart() {
    let kind = |control: [u8; 2], sequence: u8| {
        // What a fragment of the middle begins with.
        let begin = if sequence > 0 { 0x17 } else { 0xaa };
        let snap = [&[begin, 0xaa, 3, 0, 0, 0, 8, 0][..], &v4()].concat();
        let frame = [&control[..], &[0; 20], &[sequence, 0], &snap].concat();
        decoded(LinkType(105), &frame)
    };
    assert_eq!(kind([8, 0x41], 0), Decoded::Encrypted);
    // A beacon, an acknowledgment, no data, a later fragment.
    for (control, sequence) in [([0x80, 0], 0), ([0xd4, 0], 0), ([0x48, 1], 0), ([8, 1], 1)] {
        assert_eq!(kind(control, sequence), NO_TYPE, "{control:02x?}");
    }
}

#[test]
fn what_only_looks_like_a_tunnel_is_none() {
    let frame = ethernet(&[8, 0], &v4());
    let to = |port: u16, head: [u8; 8], inner: &[u8]| udp(port, &[&head[..], inner].concat());
    let mut longer = frame.clone();
    longer[17] += 1;
    for payload in [
        to(4789, [0, 0, 0, 0, 0, 0, 5, 0], &frame),
        udp(4789, &[8]),
        // On another port: a reserved byte is set, or the packet is longer than there is.
        to(4000, [8, 0, 0, 1, 0, 0, 5, 0], &frame),
        to(4000, [8, 0, 0, 0, 0, 0, 5, 1], &frame),
        to(4000, [8, 0, 0, 0, 0, 0, 5, 0], &longer),
        to(2152, [0x30, 1, 0, 0, 0, 0, 0, 0], &v4()),
        to(1701, [0xc8, 2, 0, 0, 0, 0, 0, 0], &v4()),
        to(6081, [0xff; 8], &v4()),
        udp(5247, &[2; 60]),
    ] {
        assert_eq!(
            decoded(LinkType::RAW, &ipv4(UDP, &[], &payload)),
            Decoded::Udp
        );
    }
    // An acknowledgment of PPTP without a packet, a version that nobody has, another protocol.
    for head in [
        [0x20, 0x81, 0x88, 0x0b, 0, 0, 0, 1, 0, 0, 0, 2],
        [0, 2, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0x88, 0xcc, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(decoded(LinkType::RAW, &ipv4(47, &[], &head)), other(47));
    }
}

/// IP with another protocol.
fn other(protocol: u8) -> Decoded {
    Decoded::OtherIp { protocol }
}

/// A frame of a link layer's own.
const NO_TYPE: Decoded = Decoded::NotIp { ether_type: 0 };

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
