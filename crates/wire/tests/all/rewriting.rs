//! Edits of headers, held against the same bytes written plainly and all checksums made anew.

use std::net::IpAddr;

use crate::support::{Built, Spec, pseudo_sum_of, slow_sum, spec};
use proptest::prelude::*;
use wire::classify::Mac;
use wire::rewrite;

const NOP: u8 = 1;

/// Makes both checksums from nothing.
fn refresh(built: &mut Built, partial: bool) {
    let (l3, l4, tcp) = (built.l3, built.l4, built.is_tcp());
    let field = l4 + built.checksum_field();
    let is_ipv6 = built.is_ipv6();
    let bytes = &mut built.bytes;
    if !is_ipv6 {
        bytes[l3 + 10..l3 + 12].fill(0);
        let check = !slow_sum(&[&bytes[l3..l4]]);
        bytes[l3 + 10..l3 + 12].copy_from_slice(&check.to_be_bytes());
    }
    let pseudo = pseudo_sum_of(bytes, l3, l4, tcp);
    bytes[field..field + 2].fill(0);
    let value = if partial {
        pseudo
    } else {
        match !slow_sum(&[&pseudo.to_be_bytes(), &bytes[l4..]]) {
            0 if !tcp => 0xffff,
            check => check,
        }
    };
    bytes[field..field + 2].copy_from_slice(&value.to_be_bytes());
}

/// `edit` on the whole frame, and on its headers alone, must give what `plain` and new checksums
/// give, and say whether that is a change.
fn check_edit(
    before: &Built,
    partial: bool,
    edit: impl Fn(&mut [u8]) -> bool,
    plain: impl Fn(&mut Built),
) {
    let mut before = before.clone();
    refresh(&mut before, partial);
    let mut expected = before.clone();
    plain(&mut expected);
    refresh(&mut expected, partial);
    let headers = before.header_bytes;
    for len in [before.bytes.len(), headers] {
        let mut bytes = before.bytes[..len].to_vec();
        let changed = edit(&mut bytes);
        assert_eq!(bytes, expected.bytes[..len]);
        assert_eq!(changed, before.bytes[..len] != expected.bytes[..len]);
    }
}

fn write(at: usize, value: &[u8]) -> impl Fn(&mut Built) + '_ {
    move |built| built.bytes[at..at + value.len()].copy_from_slice(value)
}

proptest! {
    #[test]
    fn addresses_and_ports_keep_both_kinds_of_checksum_right(
        spec in spec(), partial in any::<bool>(), new in any::<[u8; 16]>(), port in any::<u16>(),
    ) {
        let built = spec.build();
        let (l3, l4) = (built.l3, built.l4);
        let v4: [u8; 4] = new[..4].try_into().unwrap();
        let (len, address, other) = if built.is_ipv6() {
            (16, IpAddr::from(new), IpAddr::from(v4))
        } else {
            (4, IpAddr::from(v4), IpAddr::from(new))
        };
        let from = if built.is_ipv6() { l3 + 8 } else { l3 + 12 };
        check_edit(
            &built,
            partial,
            |b| rewrite::set_source_address(b, address, partial),
            write(from, &new[..len]),
        );
        check_edit(
            &built,
            partial,
            |b| rewrite::set_destination_address(b, address, partial),
            write(from + len, &new[..len]),
        );
        check_edit(
            &built,
            partial,
            |b| rewrite::set_source_address(b, other, partial)
                || rewrite::set_destination_address(b, other, partial),
            |_| {},
        );
        check_edit(
            &built,
            partial,
            |b| rewrite::set_source_port(b, port, partial),
            write(l4, &port.to_be_bytes()),
        );
        check_edit(
            &built,
            partial,
            |b| rewrite::set_destination_port(b, port, partial),
            write(l4 + 2, &port.to_be_bytes()),
        );
    }

    #[test]
    fn ip_fields_keep_the_header_checksum_right(
        spec in spec(), partial in any::<bool>(), ttl in any::<u8>(), by in any::<u8>(),
        class in any::<u8>(), dscp in 0_u8..64,
    ) {
        let mut built = spec.build();
        let l3 = built.l3;
        let ttl_at = if built.is_ipv6() { l3 + 7 } else { l3 + 8 };
        built.bytes[ttl_at] = ttl;
        set_class(&mut built, class);
        let left = ttl.saturating_sub(by);
        check_edit(
            &built,
            partial,
            |b| rewrite::decrement_ttl(b, by).unwrap() != ttl,
            write(ttl_at, &[left]),
        );
        let ecn = class & 3;
        prop_assert_eq!(rewrite::ecn(&built.bytes), Some(ecn));
        let marked = if ecn == 0 { class } else { class | 3 };
        check_edit(&built, partial, rewrite::set_ce, |b| set_class(b, marked));
        let coloured = dscp << 2 | ecn;
        check_edit(&built, partial, |b| rewrite::set_dscp(b, dscp), |b| set_class(b, coloured));
        check_edit(&built, partial, |b| rewrite::set_dscp(b, 64), |_| {});
    }

    #[test]
    fn ethernet_fields_change_alone(
        spec in spec(), mac in any::<[u8; 6]>(), vid in 0_u16..4096,
    ) {
        let built = spec.build();
        let partial = spec.needs_csum;
        check_edit(
            &built, partial, |b| rewrite::set_destination_mac(b, Mac(mac)), write(0, &mac),
        );
        check_edit(&built, partial, |b| rewrite::set_source_mac(b, Mac(mac)), write(6, &mac));
        check_edit(&built, partial, |b| rewrite::set_vlan_id(b, vid), |built| {
            if spec.vlan_tags > 0 {
                let [high, low] = vid.to_be_bytes();
                built.bytes[14] = built.bytes[14] & 0xf0 | high;
                built.bytes[15] = low;
            }
        });
        check_edit(&built, partial, |b| rewrite::set_vlan_id(b, 4096), |_| {});
    }

    #[test]
    fn tcp_edits_touch_their_options_and_no_other_byte(
        spec in spec(), partial in any::<bool>(), options in options(),
        syn in any::<bool>(), mss_max in any::<u16>(), window in any::<u16>(),
    ) {
        let spec = Spec {
            tcp: true,
            tcp_options: joined(&options),
            flags: if syn { spec.flags | 2 } else { spec.flags & !2 },
            ..spec
        };
        let built = spec.build();
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut options = options.clone();
            options.iter_mut().for_each(change);
            let joined = joined(&options);
            move |b: &mut Built| b.bytes[b.l4 + 20..][..joined.len()].copy_from_slice(&joined)
        };
        let strip = |kinds: &'static [u8]| {
            with(&move |o: &mut Vec<u8>| if kinds.contains(&o[0]) { o.fill(NOP) })
        };
        let on_syn = |kinds| strip(if syn { kinds } else { &[] });
        check_edit(
            &built,
            partial,
            |b| rewrite::clamp_mss(b, mss_max, partial),
            with(&|o: &mut Vec<u8>| if o[0] == 2 && syn {
                let mss = u16::from_be_bytes([o[2], o[3]]).min(mss_max);
                o[2..].copy_from_slice(&mss.to_be_bytes());
            }),
        );
        check_edit(&built, partial, |b| rewrite::strip_window_scale(b, partial), on_syn(&[3]));
        check_edit(&built, partial, |b| rewrite::strip_sack(b, partial), strip(&[4, 5]));
        check_edit(
            &built, partial, |b| rewrite::strip_options(b, partial), strip(&[2, 3, 4, 5, 8, 254]),
        );
        check_edit(
            &built,
            partial,
            |b| rewrite::set_tcp_window(b, window, partial),
            write(built.l4 + 14, &window.to_be_bytes()),
        );
    }

    #[test]
    fn any_bytes_are_edited_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        edit_all(&mut bytes);
        // Give the parsers what they look for, so that they go deeper.
        for start in [[8, 0, 0x45], [8, 0, 0x4f], [0x86, 0xdd, 0x60], [0x81, 0, 0]] {
            if let Some(place) = bytes.get_mut(12..15) {
                place.copy_from_slice(&start);
            }
            edit_all(&mut bytes);
        }
    }

    #[test]
    fn damaged_and_short_frames_are_edited_without_a_panic(
        spec in spec(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        len in any::<prop::sample::Index>(),
    ) {
        let mut built = spec.build();
        built.bytes[at.index(built.header_bytes)] = byte;
        edit_all(&mut built.bytes[..len.index(built.header_bytes + 1)]);
    }
}

fn edit_all(bytes: &mut [u8]) {
    for partial in [false, true] {
        rewrite::set_source_mac(bytes, Mac([2; 6]));
        rewrite::set_vlan_id(bytes, 7);
        rewrite::decrement_ttl(bytes, 1);
        rewrite::set_ce(bytes);
        rewrite::set_dscp(bytes, 46);
        for address in [IpAddr::from([7; 4]), IpAddr::from([7; 16])] {
            rewrite::set_source_address(bytes, address, partial);
            rewrite::set_destination_address(bytes, address, partial);
        }
        rewrite::set_source_port(bytes, 7, partial);
        rewrite::set_destination_port(bytes, 7, partial);
        rewrite::set_tcp_window(bytes, 7, partial);
        rewrite::clamp_mss(bytes, 500, partial);
        rewrite::strip_window_scale(bytes, partial);
        rewrite::strip_sack(bytes, partial);
        rewrite::strip_options(bytes, partial);
    }
}

fn set_class(built: &mut Built, class: u8) {
    let (l3, is_ipv6) = (built.l3, built.is_ipv6());
    if is_ipv6 {
        built.bytes[l3] = 0x60 | class >> 4;
        built.bytes[l3 + 1] = built.bytes[l3 + 1] & 0x0f | class << 4;
    } else {
        built.bytes[l3 + 1] = class;
    }
}

/// Whole options, NOPs between them, 40 bytes at most.
fn options() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let option = prop_oneof![
        Just(vec![NOP]),
        any::<[u8; 2]>().prop_map(|[a, b]| vec![2, 4, a, b]),
        any::<u8>().prop_map(|shift| vec![3, 3, shift]),
        Just(vec![4, 2]),
        any::<[u8; 8]>().prop_map(|block| [&[5, 10][..], &block].concat()),
        any::<[u8; 8]>().prop_map(|times| [&[8, 10][..], &times].concat()),
        prop::collection::vec(any::<u8>(), 0..5).prop_map(|data| {
            let len = u8::try_from(2 + data.len()).unwrap();
            [&[254, len][..], &data].concat()
        }),
    ];
    prop::collection::vec(option, 0..8).prop_map(|mut options| {
        while options.iter().map(Vec::len).sum::<usize>() > 40 {
            options.pop();
        }
        options
    })
}

/// The options behind each other, ended and padded to whole words; behind the end stands what looks
/// like an option and is none.
fn joined(options: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = options.concat();
    let end = bytes.len();
    bytes.resize(end.next_multiple_of(4), 3);
    if let Some(byte) = bytes.get_mut(end) {
        *byte = 0;
    }
    bytes
}

/// A SYN over IPv4 with these options, its checksums finished.
fn syn(tcp_options: &[u8]) -> Built {
    let mut built = Spec {
        vlan_tags: 0,
        ipv6: false,
        tcp: true,
        ip_option_words: 0,
        extensions: vec![],
        tcp_options: tcp_options.to_vec(),
        addresses: [10; 32],
        ports: [1; 4],
        identification: 1,
        sequence: 1,
        flags: 2,
        payload: vec![],
        gso_size: 1,
        needs_csum: false,
        ecn: false,
    }
    .build();
    refresh(&mut built, false);
    built
}

#[test]
fn an_mss_is_lowered_to_the_limit_and_never_raised() {
    for (limit, changed) in [(1461, false), (1460, false), (1459, true)] {
        let mut built = syn(&[2, 4, 0x05, 0xb4]);
        assert_eq!(rewrite::clamp_mss(&mut built.bytes, limit, false), changed);
        let expected = limit.min(1460).to_be_bytes();
        assert_eq!(built.bytes[built.l4 + 22..built.l4 + 24], expected);
    }
}

#[test]
fn one_bad_length_keeps_all_options_as_they_are() {
    for bad in [
        [2, 4, 5, 0xb4, 3, 3, 7, 8],
        [2, 4, 5, 0xb4, 4, 0, 1, 1],
        [2, 4, 5, 0xb4, 4, 1, 1, 1],
        [2, 4, 5, 0xb4, 1, 1, 3, 3],
    ] {
        let built = syn(&bad);
        let mut bytes = built.bytes.clone();
        assert!(!rewrite::clamp_mss(&mut bytes, 500, false));
        assert!(!rewrite::strip_window_scale(&mut bytes, false));
        assert!(!rewrite::strip_sack(&mut bytes, false));
        assert!(!rewrite::strip_options(&mut bytes, false));
        assert_eq!(bytes, built.bytes, "{bad:?}");
    }
}

/// The header of a published example: <https://en.wikipedia.org/wiki/Internet_checksum>.
#[test]
fn a_hop_adds_0x100_to_the_checksum_of_the_published_header() {
    let mut bytes = vec![0; 12];
    bytes.extend([
        8, 0, 0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
        0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ]);
    assert_eq!(rewrite::decrement_ttl(&mut bytes, 1), Some(63));
    assert_eq!(bytes[24..26], [0xb9, 0x61]);
    assert_eq!(rewrite::decrement_ttl(&mut bytes, 62), Some(1));
    assert_eq!(rewrite::decrement_ttl(&mut bytes, 1), Some(0));
    let at_zero = bytes.clone();
    assert_eq!(rewrite::decrement_ttl(&mut bytes, 1), Some(0));
    assert_eq!(bytes, at_zero);
    assert_eq!(slow_sum(&[&bytes[14..]]), 0xffff);
    assert_eq!(rewrite::decrement_ttl(&mut bytes[..33], 1), None);
    assert!(
        !rewrite::set_source_address(&mut bytes, [1; 4].into(), false),
        "the UDP checksum is not there to be corrected"
    );
}

/// UDP from 10.10.10.10 to the same, with `check` as its checksum.
fn datagram(check: u16) -> Built {
    let mut built = Spec {
        tcp: false,
        ..udp_spec()
    }
    .build();
    built.bytes[built.l4 + 6..built.l4 + 8].copy_from_slice(&check.to_be_bytes());
    built
}

fn udp_spec() -> Spec {
    Spec {
        vlan_tags: 1,
        ipv6: false,
        tcp: false,
        ip_option_words: 1,
        extensions: vec![],
        tcp_options: vec![],
        addresses: [10; 32],
        ports: [1; 4],
        identification: 1,
        sequence: 1,
        flags: 0,
        payload: vec![7; 3],
        gso_size: 1,
        needs_csum: false,
        ecn: false,
    }
}

#[test]
fn an_absent_udp_checksum_stays_absent_and_one_of_zero_is_all_ones() {
    let mut absent = datagram(0);
    assert!(rewrite::set_source_port(&mut absent.bytes, 9, false));
    assert!(rewrite::set_source_address(
        &mut absent.bytes,
        [9; 4].into(),
        false
    ));
    assert_eq!(absent.bytes[absent.l4 + 6..absent.l4 + 8], [0, 0]);
    // The port that makes the sum of everything 0xffff.
    let mut built = datagram(0);
    built.bytes[built.l4..built.l4 + 2].fill(0);
    let pseudo = pseudo_sum_of(&built.bytes, built.l3, built.l4, false);
    let port = !slow_sum(&[&pseudo.to_be_bytes(), &built.bytes[built.l4..]]);
    refresh(&mut built, false);
    assert!(rewrite::set_source_port(&mut built.bytes, port, false));
    assert_eq!(built.bytes[built.l4 + 6..built.l4 + 8], [0xff, 0xff]);
}

#[test]
fn a_later_fragment_gets_addresses_and_no_ports() {
    let mut built = datagram(0x1234);
    built.bytes[built.l3 + 7] = 1;
    refresh_ipv4(&mut built);
    let payload = built.bytes[built.l4..].to_vec();
    assert!(!rewrite::set_source_port(&mut built.bytes, 9, false));
    assert!(rewrite::set_destination_address(
        &mut built.bytes,
        [9; 4].into(),
        false
    ));
    assert_eq!(built.bytes[built.l3 + 16..built.l3 + 20], [9; 4]);
    assert_eq!(built.bytes[built.l4..], payload);
    assert_eq!(slow_sum(&[&built.bytes[built.l3..built.l4]]), 0xffff);
}

fn refresh_ipv4(built: &mut Built) {
    built.bytes[built.l3 + 10..built.l3 + 12].fill(0);
    let check = !slow_sum(&[&built.bytes[built.l3..built.l4]]);
    built.bytes[built.l3 + 10..built.l3 + 12].copy_from_slice(&check.to_be_bytes());
}

/// RFC 8200 section 8.1: behind a routing header with addresses left the last of them is summed.
#[test]
fn a_pending_routing_header_takes_the_destination_out_of_the_checksum() {
    for (left, covered) in [(0, true), (1, false)] {
        let mut built = Spec {
            ipv6: true,
            extensions: vec![0],
            ..udp_spec()
        }
        .build();
        built.bytes[built.l3 + 6] = 43;
        built.bytes[built.l3 + 43] = left;
        refresh(&mut built, false);
        let mut expected = built.clone();
        expected.bytes[built.l3 + 24..built.l3 + 40].fill(9);
        if covered {
            refresh(&mut expected, false);
        }
        assert!(rewrite::set_destination_address(
            &mut built.bytes,
            [9; 16].into(),
            false
        ));
        assert_eq!(built.bytes, expected.bytes);
        expected.bytes[built.l3 + 8..built.l3 + 24].fill(8);
        assert!(rewrite::set_source_address(
            &mut built.bytes,
            [8; 16].into(),
            false
        ));
        if covered {
            refresh(&mut expected, false);
            assert_eq!(built.bytes, expected.bytes);
        } else {
            assert_ne!(built.bytes, expected.bytes, "the source is always summed");
        }
    }
}

#[test]
fn a_port_is_set_only_where_its_checksum_is_at_hand() {
    for (l4_bytes, whole) in [(7, false), (8, true)] {
        let mut built = datagram(0x1234);
        let before = built.bytes.clone();
        let headers = &mut built.bytes[..built.l4 + l4_bytes];
        assert_eq!(rewrite::set_destination_port(headers, 9, false), whole);
        assert_eq!(built.bytes != before, whole);
    }
}

#[test]
fn a_frame_that_ends_in_its_tags_keeps_them() {
    let mut bytes = [0; 18];
    bytes[12] = 0x81;
    assert!(!rewrite::set_vlan_id(&mut bytes[..16], 7));
    assert_eq!(bytes[15], 0);
    assert!(rewrite::set_vlan_id(&mut bytes, 7));
    assert_eq!(bytes[15], 7);
}

/// ICMPv6's number over IPv4 is not ICMPv6: nothing says that a checksum stands there.
#[test]
fn a_payload_without_a_known_checksum_is_left_alone() {
    let mut built = datagram(0x1234);
    built.bytes[built.l3 + 9] = 58;
    let payload = built.bytes[built.l4..].to_vec();
    assert!(rewrite::set_source_address(
        &mut built.bytes,
        [9; 4].into(),
        false
    ));
    assert_eq!(built.bytes[built.l4..], payload);
}

#[test]
fn an_icmpv6_checksum_follows_the_addresses() {
    let mut bytes = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([1; 16], [2; 16], 64)
        .icmpv6_echo_request(1, 2)
        .write(&mut bytes, b"abc")
        .unwrap();
    assert!(rewrite::set_source_address(
        &mut bytes,
        [9; 16].into(),
        false
    ));
    let sliced = etherparse::SlicedPacket::from_ethernet(&bytes).unwrap();
    let Some(etherparse::TransportSlice::Icmpv6(message)) = sliced.transport else {
        panic!("not ICMPv6")
    };
    assert!(message.is_checksum_valid([9; 16], [2; 16]));
}
