//! What a router answers, read by etherparse and summed the slow way; and what it must not answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::support::{Built, slow_sum, spec};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use wire::arp::{self, Arp, Operation};
use wire::classify::Mac;
use wire::icmp::{self, Answer, Original, Unreachable};
use wire::train::{CutBuf, SuperFrame};

const HOST: Mac = Mac([2, 0, 0, 0, 0, 2]);
const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 1]);
const HOST_V4: [u8; 4] = [10, 0, 0, 2];
const FAR_V4: [u8; 4] = [192, 0, 2, 9];
const HOST_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 9);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const L3: usize = 14;

const V4: Answer = Answer {
    router_mac: ROUTER,
    to_mac: HOST,
    router_ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
};
const V6: Answer = Answer {
    router_ip: IpAddr::V6(ROUTER_V6),
    ..V4
};

/// UDP from the host to far away with so much payload.
fn udp_v4(payload_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(HOST.0, ROUTER.0)
        .ipv4(HOST_V4, FAR_V4, 1)
        .udp(4000, 33434)
        .write(&mut bytes, &vec![7; payload_bytes])
        .unwrap();
    bytes
}

fn udp_v6(payload_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(HOST.0, ROUTER.0)
        .ipv6(HOST_V6.octets(), FAR_V6.octets(), 1)
        .udp(4000, 33434)
        .write(&mut bytes, &vec![7; payload_bytes])
        .unwrap();
    bytes
}

fn whole(frame: &[u8]) -> Original<'_> {
    Original {
        frame,
        segment_l3_bytes: u32::MAX,
    }
}

/// Runs a builder in a buffer with room; one byte too few must be refused.
fn built(build: impl Fn(&mut [u8]) -> Option<usize>) -> Option<Vec<u8>> {
    let mut out = vec![0xaa; 2000];
    let len = build(&mut out)?;
    assert!(out[len..].iter().all(|&b| b == 0xaa), "nothing behind it");
    out.truncate(len);
    assert_eq!(build(&mut vec![0xaa; len]), Some(len));
    assert_eq!(build(&mut vec![0xaa; len - 1]), None);
    Some(out)
}

fn time_exceeded(frame: &[u8], answer: &Answer) -> Option<Vec<u8>> {
    built(|out| icmp::time_exceeded(whole(frame), answer, out))
}

fn too_big(frame: &[u8], mtu: u32, answer: &Answer) -> Option<Vec<u8>> {
    built(|out| icmp::packet_too_big(whole(frame), mtu, answer, out))
}

/// What an answer says: type, code, the four bytes behind the checksum, and the rest.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    head: [u8; 2],
    rest: [u8; 4],
    payload: Vec<u8>,
}

/// Reads an answer from `answer`'s router to the host; all lengths and checksums must be right.
fn read(frame: &[u8], answer: &Answer) -> Said {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::LinkSlice::Ethernet2(link)) = &sliced.link else {
        panic!("not Ethernet")
    };
    assert_eq!(
        (link.source(), link.destination()),
        (answer.router_mac.0, answer.to_mac.0)
    );
    match (sliced.net, sliced.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(message))) => {
            let header = ip.header();
            assert_eq!(
                header.to_header().calc_header_checksum(),
                header.header_checksum()
            );
            assert_eq!(IpAddr::from(header.source_addr()), answer.router_ip);
            assert_eq!(header.destination(), HOST_V4);
            assert!(header.ttl() >= 64);
            assert_eq!(slow_sum(&[message.slice()]), 0xffff);
            Said {
                head: [message.type_u8(), message.code_u8()],
                rest: message.bytes5to8(),
                payload: message.payload().to_vec(),
            }
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(message))) => {
            let header = ip.header();
            assert_eq!(IpAddr::from(header.source_addr()), answer.router_ip);
            assert_eq!(header.destination_addr(), HOST_V6);
            assert!(header.hop_limit() >= 64);
            assert!(message.is_checksum_valid(header.source(), header.destination()));
            Said {
                head: [message.type_u8(), message.code_u8()],
                rest: message.bytes5to8(),
                payload: message.payload().to_vec(),
            }
        }
        other => panic!("not ICMP: {other:?}"),
    }
}

#[test]
fn an_ipv4_error_quotes_as_much_as_fits_576_bytes() {
    for (payload_bytes, quoted) in [(0, 28), (519, 547), (520, 548), (521, 548), (1472, 548)] {
        let frame = udp_v4(payload_bytes);
        let error = time_exceeded(&frame, &V4).unwrap();
        let expected = Said {
            head: [11, 0],
            rest: [0; 4],
            payload: frame[L3..L3 + quoted].to_vec(),
        };
        assert_eq!(read(&error, &V4), expected);
        assert!(error.len() <= L3 + icmp::PACKET_BYTES_MAX_V4);
        assert_eq!(
            error[L3 + 1],
            0xc0,
            "precedence 6 (RFC 1812 section 4.3.2.5)"
        );
    }
}

#[test]
fn an_ipv6_error_quotes_as_much_as_fits_1280_bytes() {
    for (payload_bytes, quoted) in [(0, 48), (1183, 1231), (1184, 1232), (1185, 1232)] {
        let frame = udp_v6(payload_bytes);
        let error = time_exceeded(&frame, &V6).unwrap();
        let expected = Said {
            head: [3, 0],
            rest: [0; 4],
            payload: frame[L3..L3 + quoted].to_vec(),
        };
        assert_eq!(read(&error, &V6), expected);
        assert!(error.len() <= L3 + icmp::PACKET_BYTES_MAX_V6);
    }
}

#[test]
fn a_packet_too_big_states_the_mtu() {
    let mut v4 = udp_v4(1472);
    assert_eq!(
        too_big(&v4, 1400, &V4).map(|e| read(&e, &V4).head),
        Some([3, 4])
    );
    for (mtu, field) in [(1400, 1400), (65535, 65535), (65536, 65535_u32)] {
        let said = read(&too_big(&v4, mtu, &V4).unwrap(), &V4);
        assert_eq!(said.rest, field.to_be_bytes());
    }
    v4[L3 + 6] = 0;
    assert_eq!(
        too_big(&v4, 1400, &V4),
        None,
        "without DF a router fragments"
    );
    let v6 = too_big(&udp_v6(1452), 70000, &V6).unwrap();
    let said = read(&v6, &V6);
    assert_eq!((said.head, said.rest), ([2, 0], 70000_u32.to_be_bytes()));
}

#[test]
fn an_unreachable_destination_has_the_code_of_its_version() {
    for (reason, v4, v6) in [
        (Unreachable::Network, 0, 0),
        (Unreachable::Host, 1, 3),
        (Unreachable::Port, 3, 4),
        (Unreachable::Prohibited, 13, 1),
    ] {
        for (frame, answer, head) in [(udp_v4(9), V4, [3, v4]), (udp_v6(9), V6, [1, v6])] {
            let error =
                built(|out| icmp::destination_unreachable(whole(&frame), reason, &answer, out));
            assert_eq!(read(&error.unwrap(), &answer).head, head);
        }
    }
}

#[test]
fn padding_of_the_frame_is_not_quoted() {
    let frame = udp_v4(0);
    let mut padded = frame.clone();
    padded.resize(60, 0);
    assert_eq!(time_exceeded(&padded, &V4), time_exceeded(&frame, &V4));
}

#[test]
fn the_ip_header_and_eight_bytes_are_enough_to_quote_and_less_is_not() {
    for (frame, headers, answer) in [(udp_v4(100), 28, V4), (udp_v6(100), 48, V6)] {
        let said = read(
            &time_exceeded(&frame[..L3 + headers], &answer).unwrap(),
            &answer,
        );
        assert_eq!(said.payload, frame[L3..L3 + headers]);
        assert_eq!(time_exceeded(&frame[..L3 + headers - 1], &answer), None);
    }
}

#[test]
fn an_answer_keeps_the_tags_of_the_frame() {
    let mut frame = udp_v4(8);
    frame.splice(12..12, [0x81, 0x00, 0x60, 7]);
    let error = time_exceeded(&frame, &V4).unwrap();
    assert_eq!(error[12..18], [0x81, 0, 0x60, 7, 8, 0]);
    assert_eq!(read(&error, &V4).payload, frame[18..]);
}

/// `frame` with one byte changed gets the answer or not.
fn answered(frame: &[u8], at: usize, byte: u8, answer: &Answer) -> bool {
    let mut frame = frame.to_vec();
    frame[at] = byte;
    time_exceeded(&frame, answer).is_some()
}

#[test]
fn what_must_not_be_answered_is_not_ipv4() {
    let frame = udp_v4(100);
    let source = L3 + 12;
    for (octet, is_host) in [
        (0, false),
        (1, true),
        (126, true),
        (127, false),
        (128, true),
        (223, true),
        (224, false),
        (240, false),
        (255, false),
    ] {
        assert_eq!(
            answered(&frame, source, octet, &V4),
            is_host,
            "from {octet}.0.0.2"
        );
    }
    assert!(!answered(&frame, L3 + 16, 224, &V4), "to a group");
    assert!(!answered(&frame, 0, 3, &V4), "in a frame to a group");
    assert!(!answered(&frame, L3 + 7, 1, &V4), "a later fragment");
    assert!(answered(&frame, L3 + 6, 0x20, &V4), "the first fragment");
    let mut broadcast = frame.clone();
    broadcast[L3 + 16..L3 + 20].fill(255);
    assert_eq!(time_exceeded(&broadcast, &V4), None);
    let mut message = frame.clone();
    message[L3 + 9] = 1;
    for (icmp_type, is_query) in [
        (0, true),
        (3, false),
        (4, false),
        (5, false),
        (8, true),
        (11, false),
        (12, false),
    ] {
        assert_eq!(
            answered(&message, L3 + 20, icmp_type, &V4),
            is_query,
            "{icmp_type}"
        );
    }
    assert_eq!(
        time_exceeded(&frame, &V6),
        None,
        "a router of another version"
    );
    let to_group = Answer {
        to_mac: Mac::BROADCAST,
        ..V4
    };
    assert_eq!(time_exceeded(&frame, &to_group), None);
}

#[test]
fn what_must_not_be_answered_is_not_ipv6() {
    let frame = udp_v6(100);
    assert!(!answered(&frame, L3 + 8, 0xff, &V6), "from a group");
    for last in [0, 1] {
        let mut anonymous = frame.clone();
        anonymous[L3 + 8..L3 + 24].fill(0);
        anonymous[L3 + 23] = last;
        assert_eq!(time_exceeded(&anonymous, &V6), None, "from ::{last}");
    }
    let mut message = frame.clone();
    message[L3 + 6] = 58;
    for (icmp_type, is_query) in [
        (1, false),
        (127, false),
        (128, true),
        (136, true),
        (137, false),
    ] {
        assert_eq!(
            answered(&message, L3 + 40, icmp_type, &V6),
            is_query,
            "{icmp_type}"
        );
    }
    // The fragment header's offset stands in its third and fourth byte.
    let mut fragment = frame.clone();
    fragment[L3 + 6] = 44;
    fragment[L3 + 40..L3 + 48].copy_from_slice(&[17, 0, 0, 1, 0, 0, 0, 1]);
    assert!(
        time_exceeded(&fragment, &V6).is_some(),
        "the first fragment"
    );
    assert!(!answered(&fragment, L3 + 43, 8, &V6), "a later fragment");
}

#[test]
fn of_packets_to_a_group_ipv6_reports_only_that_they_are_too_big() {
    for at in [0, L3 + 24] {
        let mut v6 = udp_v6(1452);
        v6[at] = 0xff;
        assert!(too_big(&v6, 1400, &V6).is_some());
        assert_eq!(time_exceeded(&v6, &V6), None);
    }
    let mut v4 = udp_v4(1472);
    v4[L3 + 16] = 224;
    assert_eq!(too_big(&v4, 1400, &V4), None);
}

fn echo_v4(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(HOST.0, ROUTER.0)
        .ipv4(HOST_V4, [10, 0, 0, 1], 5)
        .icmpv4_echo_request(77, 3)
        .write(&mut bytes, payload)
        .unwrap();
    bytes
}

fn echo_v6(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(HOST.0, ROUTER.0)
        .ipv6(HOST_V6.octets(), ROUTER_V6.octets(), 5)
        .icmpv6_echo_request(77, 3)
        .write(&mut bytes, payload)
        .unwrap();
    bytes
}

fn echo(frame: &[u8]) -> Option<Vec<u8>> {
    built(|out| icmp::echo_reply(frame, out))
}

#[test]
fn an_echo_comes_back_with_its_number_and_data() {
    for payload in [&b""[..], b"a", &[9; 1400]] {
        for (frame, answer, icmp_type) in [(echo_v4(payload), V4, 0), (echo_v6(payload), V6, 129)] {
            let mut padded = frame.clone();
            padded.resize(frame.len().max(60), 0);
            let reply = echo(&padded).unwrap();
            assert_eq!(reply.len(), frame.len());
            let expected = Said {
                head: [icmp_type, 0],
                rest: [0, 77, 0, 3],
                payload: payload.to_vec(),
            };
            assert_eq!(read(&reply, &answer), expected);
            assert_eq!(echo(&reply), None, "a reply is not answered");
        }
    }
}

#[test]
fn a_damaged_fragmented_or_group_echo_is_not_answered() {
    for frame in [echo_v4(b"data"), echo_v6(b"data")] {
        for at in (frame.len() - 12)..frame.len() {
            let mut damaged = frame.clone();
            damaged[at] ^= 4;
            assert_eq!(echo(&damaged), None, "byte {at}");
        }
        assert_eq!(echo(&frame[..frame.len() - 1]), None, "cut short");
        let mut group = frame.clone();
        group[0] = 0xff;
        assert_eq!(echo(&group), None);
    }
    // Edits that keep all sums right leave only the rule to refuse.
    for (destination, ok) in [
        ([10, 0, 0, 9], true),
        ([224, 0, 0, 1], false),
        ([255; 4], false),
    ] {
        let mut frame = echo_v4(b"data");
        wire::rewrite::set_destination_address(&mut frame, destination.into(), false);
        assert_eq!(echo(&frame).is_some(), ok, "{destination:?}");
    }
    let mut fragment = echo_v4(b"data");
    fragment[L3 + 6] = 0x20;
    fragment[L3 + 10..L3 + 12].fill(0);
    let check = !slow_sum(&[&fragment[L3..L3 + 20]]);
    fragment[L3 + 10..L3 + 12].copy_from_slice(&check.to_be_bytes());
    assert_eq!(echo(&fragment), None);
    for source in [[127, 0, 0, 1], [224, 0, 0, 1]] {
        let mut frame = echo_v4(b"data");
        wire::rewrite::set_source_address(&mut frame, source.into(), false);
        assert_eq!(echo(&frame), None, "{source:?}");
    }
    let mut damaged = echo_v4(b"data");
    damaged[L3 + 8] += 1;
    assert_eq!(echo(&damaged), None, "the header's own checksum");
    let mut group = echo_v6(b"data");
    wire::rewrite::set_destination_address(&mut group, [0xff; 16].into(), false);
    assert_eq!(echo(&group), None);
}

#[test]
fn a_reply_has_the_class_of_the_request_and_no_mark() {
    for (mut frame, class_at, class) in [
        (echo_v4(b""), L3 + 1, 46 << 2),
        (echo_v6(b""), L3, 0x60 | 46 >> 2),
    ] {
        wire::rewrite::set_dscp(&mut frame, 46);
        assert_eq!(echo(&frame).unwrap()[class_at], class);
    }
}

/// The request is still on its way to another node, whose address the checksum covers.
#[test]
fn an_echo_behind_a_pending_routing_header_is_not_answered() {
    for (left, ok) in [(0, true), (1, false)] {
        let mut frame = echo_v6(b"data");
        frame[L3 + 5] += 8;
        frame[L3 + 6] = 43;
        frame.splice(L3 + 40..L3 + 40, [58, 0, 0, left, 0, 0, 0, 0]);
        assert_eq!(echo(&frame).is_some(), ok);
    }
}

const TARGET: Ipv6Addr = ROUTER_V6;
const NODE_GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1);

/// A neighbour solicitation with these options and a right checksum.
fn solicitation(source: Ipv6Addr, hop_limit: u8, target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(HOST.0, [0x33, 0x33, 0xff, 0, 0, 1])
        .ipv6(source.octets(), NODE_GROUP.octets(), hop_limit)
        .icmpv6_raw(135, 0, [0; 4])
        .write(&mut bytes, &[&target.octets()[..], options].concat())
        .unwrap();
    bytes
}

const SOURCE_OPTION: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 7];

#[test]
fn a_neighbour_is_told_where_the_target_is() {
    let group_option = [1, 1, 3, 0, 0, 0, 0, 7];
    for (options, to_mac) in [
        (&SOURCE_OPTION[..], Mac([2, 0, 0, 0, 0, 7])),
        (&group_option, HOST),
        (&[], HOST),
    ] {
        let frame = solicitation(HOST_V6, 255, TARGET, options);
        let asked = icmp::solicitation(&frame).unwrap();
        assert_eq!(
            (asked.target, asked.source, asked.source_mac),
            (TARGET, HOST_V6, to_mac)
        );
        for (is_router, flags) in [(true, 0xe0), (false, 0x60)] {
            let answer = built(|out| icmp::neighbour_advertisement(&frame, ROUTER, is_router, out));
            let answer = answer.unwrap();
            assert_eq!(answer[L3 + 7], 255, "hop limit");
            let expected = Said {
                head: [136, 0],
                rest: [flags, 0, 0, 0],
                payload: [&TARGET.octets()[..], &[2, 1], &ROUTER.0].concat(),
            };
            assert_eq!(read(&answer, &Answer { to_mac, ..V6 }), expected);
        }
    }
}

#[test]
fn a_probe_for_a_duplicate_is_answered_to_all_nodes() {
    let frame = solicitation(Ipv6Addr::UNSPECIFIED, 255, TARGET, &[]);
    let answer = built(|out| icmp::neighbour_advertisement(&frame, ROUTER, true, out)).unwrap();
    assert_eq!(answer[..6], [0x33, 0x33, 0, 0, 0, 1]);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    assert_eq!(answer[L3 + 24..L3 + 40], all_nodes.octets());
    assert_eq!(answer[L3 + 44], 0xa0, "router and override, not solicited");
}

#[test]
fn an_unsound_solicitation_is_not_believed() {
    let unspecified = Ipv6Addr::UNSPECIFIED;
    let refused = [
        solicitation(HOST_V6, 254, TARGET, &[]),
        solicitation(HOST_V6, 255, NODE_GROUP, &[]),
        solicitation(NODE_GROUP, 255, TARGET, &[]),
        solicitation(HOST_V6, 255, TARGET, &[1, 0, 0, 0, 0, 0, 0, 0]),
        solicitation(HOST_V6, 255, TARGET, &[1, 2, 0, 0, 0, 0, 0, 0]),
        solicitation(unspecified, 255, TARGET, &SOURCE_OPTION),
    ];
    for (i, frame) in refused.iter().enumerate() {
        assert_eq!(icmp::solicitation(frame), None, "{i}");
    }
    let mut elsewhere = solicitation(unspecified, 255, TARGET, &[]);
    wire::rewrite::set_destination_address(&mut elsewhere, TARGET.into(), false);
    assert_eq!(icmp::solicitation(&elsewhere), None, "a probe to one host");
    let mut damaged = solicitation(HOST_V6, 255, TARGET, &[]);
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(icmp::solicitation(&damaged), None);
}

/// Who has 10.0.0.1? As etherparse writes it.
fn arp_request() -> Vec<u8> {
    let packet = etherparse::ArpPacket::new(
        etherparse::ArpHardwareId::ETHERNET,
        etherparse::EtherType::IPV4,
        etherparse::ArpOperation::REQUEST,
        &HOST.0,
        &HOST_V4,
        &[0; 6],
        &[10, 0, 0, 1],
    );
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(HOST.0, [0xff; 6])
        .arp(packet.unwrap())
        .write(&mut bytes)
        .unwrap();
    bytes
}

#[test]
fn an_arp_request_is_read_written_and_answered() {
    let frame = arp_request();
    let request = Arp::request(HOST, HOST_V4.into(), [10, 0, 0, 1].into());
    assert_eq!(arp::parse(&frame), Some(request));
    let written = built(|out| request.emit(Mac::BROADCAST, out).ok());
    assert_eq!(written.as_deref(), Some(&frame[..]));

    let reply = built(|out| arp::reply(&frame, ROUTER, out)).unwrap();
    assert_eq!(reply.len(), 42);
    assert_eq!((&reply[..6], &reply[6..12]), (&HOST.0[..], &ROUTER.0[..]));
    let Some(NetSlice::Arp(read)) = SlicedPacket::from_ethernet(&reply).unwrap().net else {
        panic!("not ARP")
    };
    assert_eq!(read.operation(), etherparse::ArpOperation::REPLY);
    assert_eq!(
        (read.sender_hw_addr(), read.sender_protocol_addr()),
        (&ROUTER.0[..], &[10, 0, 0, 1][..])
    );
    assert_eq!(
        (read.target_hw_addr(), read.target_protocol_addr()),
        (&HOST.0[..], &HOST_V4[..])
    );
    let parsed = arp::parse(&reply).unwrap();
    assert_eq!(parsed.operation, Operation::Reply);
    assert_eq!(
        arp::reply(&reply, ROUTER, &mut [0; 60]),
        None,
        "a reply is not answered"
    );
}

#[test]
fn arp_of_other_kinds_and_from_groups_is_not_answered() {
    let frame = arp_request();
    // Type, hardware, protocol, their lengths, operation.
    for at in [13, 15, 17, 18, 19, 21] {
        let mut other = frame.clone();
        other[at] ^= 8;
        assert_eq!(arp::parse(&other), None, "byte {at}");
    }
    assert_eq!(arp::parse(&frame[..41]), None);
    let mut group = frame.clone();
    group[22] |= 1;
    assert!(arp::parse(&group).is_some());
    assert_eq!(arp::reply(&group, ROUTER, &mut [0; 60]), None);
    let mut tagged = frame.clone();
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    let reply = built(|out| arp::reply(&tagged, ROUTER, out)).unwrap();
    assert_eq!(
        (reply.len(), &reply[12..18]),
        (46, &[0x81, 0, 0, 7, 8, 6][..])
    );
}

/// The packet of the first segment, as a segmentation engine makes it.
fn first_segment(built: &Built, parsed: &SuperFrame) -> Vec<u8> {
    let mut cut = CutBuf::new();
    parsed.cut(&built.bytes, 0, 1, &mut cut).unwrap();
    let mut bytes = Vec::new();
    cut.append_to(&built.bytes, &mut bytes);
    bytes.split_off(built.l3)
}

proptest! {
    #[test]
    fn of_a_super_frame_the_first_segment_is_quoted(spec in spec()) {
        let mut original = spec.build();
        let from = original.l3 + if spec.ipv6 { 8 } else { 12 };
        original.bytes[from] = 10;
        let to = original.l3 + if spec.ipv6 { 24 } else { 16 };
        original.bytes[to] = 11;
        if !spec.ipv6 {
            let header = &mut original.bytes[original.l3..original.l4];
            header[10..12].fill(0);
            let check = !slow_sum(&[&*header]);
            header[10..12].copy_from_slice(&check.to_be_bytes());
        }
        let parsed = SuperFrame::parse(original.vnet, &original.bytes);
        let segment = first_segment(&original, &parsed);
        let answer = if spec.ipv6 { V6 } else { V4 };
        let mut out = [0; icmp::ERROR_FRAME_BYTES_MAX];
        let offered = Original {
            frame: &original.bytes,
            segment_l3_bytes: u32::try_from(segment.len()).unwrap(),
        };
        let len = icmp::packet_too_big(offered, 1000, &answer, &mut out).unwrap();
        let (header, max) = if spec.ipv6 { (40, 1280) } else { (20, 576) };
        let mut quote = out[original.l3 + header + 8..len].to_vec();
        prop_assert_eq!(quote.len(), segment.len().min(max - header - 8));
        // The transport checksum is the original's, whatever it held.
        let at = original.l4 - original.l3 + original.checksum_field();
        if let Some(field) = quote.get_mut(at..at + 2) {
            field.copy_from_slice(&segment[at..at + 2]);
        }
        prop_assert_eq!(&quote[..], &segment[..quote.len()]);
    }

    #[test]
    fn any_bytes_are_answered_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), room in 0_usize..1400,
        segment_l3_bytes in any::<u32>(),
    ) {
        answer_all(&bytes, segment_l3_bytes, room);
        for start in [[8, 0, 0x45], [8, 0, 0x4f], [0x86, 0xdd, 0x60], [8, 6, 0], [0x81, 0, 0]] {
            if let Some(place) = bytes.get_mut(12..15) {
                place.copy_from_slice(&start);
            }
            answer_all(&bytes, segment_l3_bytes, room);
        }
    }

    #[test]
    fn damaged_questions_are_answered_without_a_panic(
        which in 0_usize..6, at in any::<prop::sample::Index>(), byte in any::<u8>(),
        len in any::<prop::sample::Index>(), segment_l3_bytes in 0_u32..2000, room in 0_usize..1400,
    ) {
        let mut bytes = match which {
            0 => udp_v4(60),
            1 => udp_v6(60),
            2 => echo_v4(b"data"),
            3 => echo_v6(b"data"),
            4 => arp_request(),
            _ => solicitation(HOST_V6, 255, TARGET, &SOURCE_OPTION),
        };
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(len.index(bytes.len() + 1));
        answer_all(&bytes, segment_l3_bytes, room);
    }
}

/// Every answer fits the room, and every error is a frame that etherparse reads.
fn answer_all(frame: &[u8], segment_l3_bytes: u32, room: usize) {
    let mut out = vec![0; room];
    let original = Original {
        frame,
        segment_l3_bytes,
    };
    let _ = (arp::parse(frame), arp::reply(frame, ROUTER, &mut out));
    let _ = icmp::solicitation(frame);
    for answer in [V4, V6] {
        let lengths = [
            icmp::time_exceeded(original, &answer, &mut out),
            icmp::packet_too_big(original, 1300, &answer, &mut out),
            icmp::echo_reply(frame, &mut out),
            icmp::neighbour_advertisement(frame, ROUTER, true, &mut out),
            icmp::destination_unreachable(original, Unreachable::Host, &answer, &mut out),
        ];
        assert!(lengths.iter().flatten().all(|&len| len <= room));
        if let Some(len) = lengths[4] {
            assert!(len <= icmp::ERROR_FRAME_BYTES_MAX);
            let sliced = SlicedPacket::from_ethernet(&out[..len]).unwrap();
            assert!(sliced.transport.is_some());
        }
    }
}
