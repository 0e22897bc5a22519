//! Header fields as rules see them, and the rules.

use std::net::IpAddr;

use crate::support::{Spec, spec};
use etherparse::PacketBuilder;
use proptest::prelude::*;
use wire::classify::{Fields, FlagsMatch, Mac, Match, ParseError, Prefix};

proptest! {
    #[test]
    fn fields_are_those_that_the_frame_was_made_of(spec in spec()) {
        let built = spec.build();
        // Headers alone must read the same: lengths are what the headers state.
        for bytes in [&built.bytes[..], &built.bytes[..built.header_bytes]] {
            prop_assert_eq!(Fields::parse(bytes), expected(&spec, &built));
        }
    }

    #[test]
    fn any_bytes_have_fields(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Fields::parse(&bytes);
        for start in [[8, 0, 0x45], [8, 0, 0x4f], [0x86, 0xdd, 0x60], [0x81, 0, 0]] {
            if let Some(place) = bytes.get_mut(12..15) {
                place.copy_from_slice(&start);
            }
            let fields = Fields::parse(&bytes);
            prop_assert!(fields.is_fragment || !fields.is_first_fragment);
            prop_assert!(fields.src_port.is_none() || fields.src.is_some());
            prop_assert!(Match::default().matches(&fields, 0));
        }
    }

    #[test]
    fn a_frame_cut_short_anywhere_shows_no_field_that_it_has_not(
        spec in spec(), len in any::<prop::sample::Index>(),
    ) {
        let built = spec.build();
        let whole = Fields::parse(&built.bytes);
        let cut = Fields::parse(&built.bytes[..len.index(built.header_bytes)]);
        prop_assert!(cut.src.is_none() || cut.src == whole.src);
        prop_assert!(cut.protocol.is_none() || cut.protocol == whole.protocol);
        prop_assert!(cut.src_port.is_none() || cut.src_port == whole.src_port);
        prop_assert!(cut.tcp_flags.is_none() || cut.tcp_flags == whole.tcp_flags);
    }

    #[test]
    fn prefixes_and_addresses_read_back_as_they_are_printed(
        (v4, v6, mac) in any::<([u8; 4], [u8; 16], [u8; 6])>(), bits in 0_u8..=128,
    ) {
        for address in [IpAddr::from(v4), IpAddr::from(v6)] {
            let Some(prefix) = Prefix::new(address, bits) else {
                prop_assert!(address.is_ipv4() && bits > 32);
                continue;
            };
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
            prop_assert!(prefix.contains(address) && prefix.contains(prefix.network()));
            // Any bit of the prefix counts, none behind it does.
            for bit in 0..if address.is_ipv4() { 32 } else { 128 } {
                prop_assert_eq!(prefix.contains(flipped(address, bit)), bit >= bits);
            }
        }
        prop_assert_eq!(Mac(mac).to_string().parse(), Ok(Mac(mac)));
    }
}

fn flipped(address: IpAddr, bit: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => (u32::from(a) ^ (1 << (31 - bit))).to_be_bytes().into(),
        IpAddr::V6(a) => (u128::from(a) ^ (1 << (127 - bit))).to_be_bytes().into(),
    }
}

fn expected(spec: &Spec, built: &crate::support::Built) -> Fields {
    let at = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&spec.addresses[at..at + 16]).unwrap());
    let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&spec.addresses[at..at + 4]).unwrap());
    let port = |at: usize| u16::from_be_bytes([spec.ports[at], spec.ports[at + 1]]);
    Fields {
        ethertype: if spec.ipv6 { 0x86dd } else { 0x0800 },
        src_mac: Mac([2, 0, 0, 0, 0, 2]),
        dst_mac: Mac([2, 0, 0, 0, 0, 1]),
        vlan: (spec.vlan_tags > 0).then_some(0),
        src: Some(if spec.ipv6 { at(0) } else { v4(0) }),
        dst: Some(if spec.ipv6 { at(16) } else { v4(4) }),
        protocol: Some(if spec.tcp { 6 } else { 17 }),
        src_port: Some(port(0)),
        dst_port: Some(port(2)),
        tcp_flags: spec.tcp.then_some(spec.flags.to_be_bytes()[1]),
        dscp: 0,
        ecn: 2,
        ttl: 64,
        l3_bytes: u32::try_from(built.bytes.len() - built.l3).unwrap(),
        is_first_fragment: false,
        is_fragment: false,
        icmp_type: None,
    }
}

/// UDP over IPv4 from 10.1.2.3:4000 to 192.0.2.9:53, in VLAN 7.
fn datagram() -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .single_vlan(7.try_into().unwrap())
        .ipv4([10, 1, 2, 3], [192, 0, 2, 9], 3)
        .udp(4000, 53)
        .write(&mut bytes, b"hello")
        .unwrap();
    bytes
}

#[test]
fn only_the_first_fragment_has_ports() {
    let whole = Fields::parse(&datagram());
    assert_eq!((whole.src_port, whole.dst_port), (Some(4000), Some(53)));
    assert_eq!((whole.vlan, whole.l3_bytes), (Some(7), 33));
    for (place, first) in [([0x20, 0], true), ([0x20, 1], false), ([0, 1], false)] {
        let mut bytes = datagram();
        bytes[24..26].copy_from_slice(&place);
        let fields = Fields::parse(&bytes);
        assert!(fields.is_fragment);
        assert_eq!(fields.is_first_fragment, first);
        assert_eq!(fields.src_port, first.then_some(4000));
        assert_eq!(fields.protocol, Some(17));
    }
}

/// UDP over IPv6 behind a fragment header with this second word.
fn fragment_v6(place: [u8; 2]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([0x86, 0xdd, 0x6b, 0x90, 0, 0, 0, 16, 44, 9]);
    bytes.extend([1; 32]);
    bytes.extend([17, 0, place[0], place[1], 0, 0, 0, 1]);
    bytes.extend([0x0f, 0xa0, 0, 53, 0, 8, 0, 0]);
    bytes
}

#[test]
fn an_ipv6_fragment_header_is_looked_through() {
    for (place, fragment, first, port) in [
        ([0, 0], false, false, Some(4000)),
        ([0, 1], true, true, Some(4000)),
        ([0, 9], true, false, None),
        ([0, 8], true, false, None),
    ] {
        let fields = Fields::parse(&fragment_v6(place));
        assert_eq!(fields.is_fragment, fragment);
        assert_eq!(fields.is_first_fragment, first);
        assert_eq!(fields.src_port, port);
        assert_eq!(fields.protocol, Some(17));
        assert_eq!((fields.dscp, fields.ecn, fields.ttl), (46, 1, 9));
    }
}

#[test]
fn a_later_fragment_is_not_looked_into() {
    // Its data would read as an extension header before UDP.
    let mut bytes = fragment_v6([0, 8]);
    bytes[54] = 60;
    bytes[62..].copy_from_slice(&[17, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Fields::parse(&bytes).protocol, Some(60));
    bytes[57] = 0;
    assert_eq!(Fields::parse(&bytes).protocol, Some(17));
}

/// RFC 4302 section 2.2: the length counts words of four bytes, less two.
#[test]
fn an_authentication_header_is_passed_by_its_own_unit() {
    let mut bytes = fragment_v6([0, 0]);
    bytes[20] = 51;
    for (length, protocol, port) in [
        (0, Some(17), Some(4000)),
        (2, Some(17), None),
        (3, None, None),
    ] {
        bytes[55] = length;
        let fields = Fields::parse(&bytes);
        assert_eq!(
            (fields.protocol, fields.src_port),
            (protocol, port),
            "{length}"
        );
    }
}

#[test]
fn an_ip_header_that_contradicts_itself_is_none() {
    let (v4, v6) = (datagram(), fragment_v6([0, 0]));
    // Version, header length, total length below the header's.
    for (frame, at, byte) in [
        (&v4, 18, 0x65),
        (&v4, 18, 0x44),
        (&v4, 21, 19),
        (&v6, 14, 0x45),
    ] {
        let mut bytes = frame.clone();
        bytes[at] = byte;
        let fields = Fields::parse(&bytes);
        assert_eq!(
            (fields.src, fields.protocol, fields.src_port),
            (None, None, None),
            "{at}"
        );
        assert!(Fields::parse(frame).src.is_some());
    }
}

#[test]
fn what_is_not_ip_has_only_ethernet_fields() {
    let mut bytes = vec![3; 12];
    bytes.extend([0x08, 0x06]);
    bytes.extend([0; 28]);
    let fields = Fields::parse(&bytes);
    let expected = Fields {
        ethertype: 0x0806,
        src_mac: Mac([3; 6]),
        dst_mac: Mac([3; 6]),
        l3_bytes: 28,
        ..Fields::default()
    };
    assert_eq!(fields, expected);
    assert!(matches(&fields, |m| m.ethertype = Some(0x0806)));
    assert!(!matches(&fields, |m| m.dscp = Some(0)));
    assert!(!matches(&fields, |m| m.ecn = Some(0)));
    assert!(!matches(&fields, |m| m.src = Some("0.0.0.0/0".parse().unwrap())));
    assert_eq!(Fields::parse(&bytes[..13]), Fields::default());
}

#[test]
fn icmp_has_a_type_and_no_ports() {
    let mut v4 = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10; 4], [11; 4], 64)
        .icmpv4_echo_request(1, 2)
        .write(&mut v4, b"")
        .unwrap();
    let mut v6 = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([1; 16], [2; 16], 64)
        .icmpv6_echo_request(1, 2)
        .write(&mut v6, b"")
        .unwrap();
    for (bytes, icmp_type) in [(v4, 8), (v6, 128)] {
        let fields = Fields::parse(&bytes);
        assert_eq!((fields.icmp_type, fields.src_port), (Some(icmp_type), None));
        assert!(matches(&fields, |m| m.icmp_type = Some(icmp_type)));
        assert!(!matches(&fields, |m| m.icmp_type = Some(icmp_type + 1)));
    }
}

/// A rule with one field set, asked about a packet that came in by port 3.
fn matches(fields: &Fields, set: impl Fn(&mut Match)) -> bool {
    let mut rule = Match::default();
    set(&mut rule);
    rule.matches(fields, 3)
}

/// Sets one field of a rule.
type Set<'a> = &'a dyn Fn(&mut Match);

#[test]
fn each_field_of_a_rule_decides() {
    let fields = Fields::parse(&datagram());
    let prefix = |text: &str| Some(text.parse::<Prefix>().unwrap());
    let rules: [(Set<'_>, Set<'_>); 13] = [
        (&|m| m.in_port = Some(3), &|m| m.in_port = Some(4)),
        (&|m| m.src_mac = Some(Mac([2, 0, 0, 0, 0, 2])), &|m| {
            m.src_mac = Some(Mac([2; 6]))
        }),
        (&|m| m.dst_mac = Some(Mac([2, 0, 0, 0, 0, 1])), &|m| {
            m.dst_mac = Some(Mac([2; 6]))
        }),
        (&|m| m.ethertype = Some(0x0800), &|m| {
            m.ethertype = Some(0x8100)
        }),
        (&|m| m.vlan = Some(7), &|m| m.vlan = Some(8)),
        (&|m| m.src = prefix("10.0.0.0/8"), &|m| {
            m.src = prefix("11.0.0.0/8")
        }),
        (&|m| m.dst = prefix("192.0.2.9"), &|m| {
            m.dst = prefix("192.0.2.8")
        }),
        (&|m| m.dst = prefix("0.0.0.0/0"), &|m| {
            m.dst = prefix("::/0")
        }),
        (&|m| m.protocol = Some(17), &|m| m.protocol = Some(6)),
        (&|m| m.src_ports = Some(4000..=4000), &|m| {
            m.src_ports = Some(4001..=u16::MAX)
        }),
        (&|m| m.dst_ports = Some(0..=53), &|m| {
            m.dst_ports = Some(0..=52)
        }),
        (&|m| m.dscp = Some(0), &|m| m.dscp = Some(1)),
        (&|m| m.ecn = Some(0), &|m| m.ecn = Some(1)),
    ];
    for (i, (is, is_not)) in rules.iter().enumerate() {
        assert!(matches(&fields, is), "{i}");
        assert!(!matches(&fields, is_not), "{i}");
    }
    assert!(matches(&fields, |m| m.nth = Some(9)), "the caller counts");
    let any_flags = FlagsMatch { mask: 0, value: 0 };
    assert!(
        !matches(&fields, |m| m.tcp_flags = Some(any_flags)),
        "UDP has none"
    );
}

#[test]
fn flags_are_compared_under_the_mask() {
    let fields = Fields {
        tcp_flags: Some(0x12),
        ..Fields::default()
    };
    for (mask, value, expected) in [
        (0x12, 0x12, true),
        (0x02, 0x02, true),
        (0x12, 0x02, false),
        (0x05, 0x00, true),
        (0x02, 0x12, false),
    ] {
        let flags = FlagsMatch { mask, value };
        assert_eq!(matches(&fields, |m| m.tcp_flags = Some(flags)), expected);
    }
}

#[test]
fn text_that_is_no_address_or_prefix_is_refused_with_a_reason() {
    let block = Prefix::new([10, 0, 0, 0].into(), 8).unwrap();
    for (text, error) in [
        ("10.0.0.1/8", ParseError::HostBits(block)),
        ("10.0.0.0/33", ParseError::PrefixBits),
        ("fd00::/129", ParseError::PrefixBits),
        ("10.0.0.0/", ParseError::PrefixBits),
        ("10.0.0.0/+8", ParseError::PrefixBits),
        ("10.0.0.0/256", ParseError::PrefixBits),
        ("10.0.0", ParseError::Address),
        ("", ParseError::Address),
    ] {
        assert_eq!(text.parse::<Prefix>(), Err(error), "{text}");
    }
    let host = "fd00::1".parse::<Prefix>().unwrap();
    assert_eq!((host.bits(), host.to_string().as_str()), (128, "fd00::1"));
    assert_eq!(
        "0.0.0.0/0".parse::<Prefix>().unwrap().to_string(),
        "0.0.0.0/0"
    );
    for text in [
        "02:00:00:00:00",
        "02:00:00:00:00:01:02",
        "2:0:0:0:0:1",
        "02:00:00:00:00:+1",
        "02-00-00-00-00-01",
        "",
    ] {
        assert_eq!(text.parse::<Mac>(), Err(ParseError::Mac), "{text}");
    }
    assert_eq!(
        "AB:cd:00:00:00:01".parse(),
        Ok(Mac([0xab, 0xcd, 0, 0, 0, 1]))
    );
    assert!(Mac::BROADCAST.is_group() && !Mac([2, 0, 0, 0, 0, 1]).is_group());
    assert!(Mac([2, 0, 0, 0, 0, 1]).is_station() && !Mac::default().is_station());
}
