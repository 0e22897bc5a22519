//! The views, held against etherparse, and against bytes that mean nothing.

use etherparse::{PacketBuilder, TcpOptionElement};
use proptest::prelude::*;
use wire::tcp::TcpOption;
use wire::{checksum, ethernet, ipv4, ipv6, tcp, udp};

proptest! {
    #[test]
    fn tcp_over_ipv4_as_etherparse_writes_it_reads_the_same(
        (source, destination) in any::<([u8; 4], [u8; 4])>(),
        (source_port, destination_port, sequence, window) in any::<(u16, u16, u32, u16)>(),
        (mss, shift, value, echo) in any::<(u16, u8, u32, u32)>(),
        vid in 0_u16..4096,
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6])
            .single_vlan(vid.try_into().unwrap())
            .ipv4(source, destination, 63)
            .tcp(source_port, destination_port, sequence, window)
            .syn()
            .options(&[
                TcpOptionElement::MaximumSegmentSize(mss),
                TcpOptionElement::SelectiveAcknowledgementPermitted,
                TcpOptionElement::Timestamp(value, echo),
                TcpOptionElement::Noop,
                TcpOptionElement::WindowScale(shift),
            ])
            .unwrap();
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &payload).unwrap();
        let frame = ethernet::Frame::new_checked(&bytes[..]).unwrap();
        prop_assert_eq!(frame.vlan_tags().map(|t| t.vid).collect::<Vec<_>>(), [vid]);
        let ip = ipv4::Packet::new_checked(frame.payload()).unwrap();
        prop_assert!(ip.verify_checksum());
        prop_assert_eq!((ip.source(), ip.destination(), ip.ttl()), (source, destination, 63));
        let segment = tcp::Packet::new_checked(ip.payload()).unwrap();
        let pseudo = checksum::pseudo_v4(
            source, destination, ip.protocol(), u32::try_from(ip.payload().len()).unwrap(),
        );
        prop_assert!(segment.verify_checksum(pseudo));
        let options: Vec<_> = segment.options().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(options, [
            TcpOption::MaxSegmentSize(mss),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value, echo },
            TcpOption::WindowScale(shift),
        ]);
        prop_assert_eq!(segment.payload(), &payload[..]);
        let ports = (segment.source_port(), segment.destination_port());
        prop_assert_eq!(ports, (source_port, destination_port));
        prop_assert_eq!((segment.sequence(), segment.window()), (sequence, window));
    }

    #[test]
    fn udp_over_ipv6_as_we_write_it_etherparse_reads_the_same(
        (source, destination) in any::<([u8; 16], [u8; 16])>(),
        (source_port, destination_port) in any::<(u16, u16)>(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let datagram_bytes = u16::try_from(8 + payload.len()).unwrap();
        let mut bytes = vec![0; 14 + 40 + 8];
        let link = ethernet::Repr {
            destination: [1; 6], source: [2; 6], ethertype: ethernet::TYPE_IPV6,
        };
        let ip = ipv6::Repr {
            source, destination, next_header: 17, payload_len: datagram_bytes,
            dscp: 10, ecn: 1, flow_label: 0x12345, hop_limit: 9,
        };
        let repr = udp::Repr { source_port, destination_port, payload_len: datagram_bytes - 8 };
        link.emit(&[], &mut bytes).unwrap();
        ip.emit(&mut bytes[14..]).unwrap();
        repr.emit(&mut bytes[54..]).unwrap();
        bytes.extend(&payload);
        let pseudo = checksum::pseudo_v6(source, destination, 17, u32::from(datagram_bytes));
        udp::Packet::new_checked(&mut bytes[54..]).unwrap().fill_checksum(pseudo);

        let sliced = etherparse::SlicedPacket::from_ethernet(&bytes).unwrap();
        let Some(etherparse::NetSlice::Ipv6(read)) = sliced.net else { panic!("not IPv6") };
        prop_assert_eq!(read.header().source(), source);
        prop_assert_eq!(read.header().dscp().value(), 10);
        prop_assert_eq!(read.header().ecn().value(), 1);
        prop_assert_eq!(read.header().flow_label().value(), 0x12345);
        let Some(etherparse::TransportSlice::Udp(read_udp)) = sliced.transport else {
            panic!("not UDP")
        };
        let expected = read_udp.to_header().calc_checksum_ipv6_raw(source, destination, &payload);
        prop_assert_eq!(read_udp.checksum(), expected.unwrap());
        prop_assert_eq!(read_udp.payload(), &payload[..]);
    }

    #[test]
    fn a_checksum_updated_in_place_is_the_one_computed_anew(
        mut words in prop::collection::vec(any::<[u8; 2]>(), 1..40),
        at in any::<prop::sample::Index>(),
        new in any::<[u8; 2]>(),
    ) {
        let at = at.index(words.len());
        // Not all zero, as no header is: its sum would be zero, and updates give all ones.
        words[0][0] |= 1;
        let before = checksum::checksum(words.as_flattened());
        let old = std::mem::replace(&mut words[at], new);
        prop_assume!(words.as_flattened().iter().any(|&b| b != 0));
        let updated =
            checksum::update(before, u16::from_be_bytes(old), u16::from_be_bytes(new));
        prop_assert_eq!(updated, checksum::checksum(words.as_flattened()));
    }

    #[test]
    fn any_tcp_header_that_we_emit_reads_back(
        (source_port, destination_port, sequence, acknowledgment) in any::<(u16, u16, u32, u32)>(),
        (flags, window, urgent) in any::<(u16, u16, u16)>(),
        (max_segment_size, window_scale, sack_permitted) in any::<(Option<u16>, Option<u8>, bool)>(),
        timestamps in any::<Option<(u32, u32)>>(),
        blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=4),
    ) {
        let repr = tcp::Repr {
            source_port, destination_port, sequence, acknowledgment, window, urgent,
            flags: tcp::Flags::from_bits(flags),
            max_segment_size, window_scale, sack_permitted, timestamps,
            sack: tcp::SackBlocks::new(&blocks),
        };
        let mut bytes = [0xaa; 60];
        match repr.emit(&mut bytes) {
            Ok(len) => {
                let packet = tcp::Packet::new_checked(&bytes[..len]).unwrap();
                prop_assert_eq!(tcp::Repr::parse(&packet), Ok(repr));
            }
            Err(error) => {
                prop_assert_eq!(error, wire::Error::Malformed);
                prop_assert!(repr.header_len() > 60);
            }
        }
    }

    #[test]
    fn views_of_any_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
        // Give the parsers what they look for, so that they go deeper.
        for first in [0x45, 0x4f, 0x60] {
            let mut bytes = bytes.clone();
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            read_all(&bytes);
        }
    }

    #[test]
    fn setters_on_any_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(mut frame) = ethernet::Frame::new_checked(&mut bytes[..]) {
            frame.set_source([0xff; 6]);
            frame.set_destination([0xff; 6]);
        }
        if let Ok(mut packet) = ipv4::Packet::new_checked(&mut bytes[..]) {
            packet.set_ecn(3);
            packet.set_ttl(0);
            packet.payload_mut().fill(0);
            packet.fill_checksum();
        }
        if let Ok(mut packet) = ipv6::Packet::new_checked(&mut bytes[..]) {
            packet.set_ecn(3);
            packet.set_hop_limit(0);
            packet.payload_mut().fill(0xff);
        }
        if let Ok(mut packet) = tcp::Packet::new_checked(&mut bytes[..]) {
            packet.set_flags(tcp::Flags::RST);
            packet.set_sequence(1);
            packet.set_window(1);
            packet.fill_checksum(0);
            packet.payload_mut().fill(0xff);
        }
        if let Ok(mut packet) = udp::Packet::new_checked(&mut bytes[..]) {
            packet.fill_checksum(0);
            packet.payload_mut().fill(0xff);
        }
    }
}

fn read_all(bytes: &[u8]) {
    if let Ok(frame) = ethernet::Frame::new_checked(bytes) {
        let _ = (
            ethernet::Repr::parse(&frame),
            frame.payload(),
            frame.ethertype(),
        );
        assert!(frame.vlan_tags().count() <= ethernet::VLAN_TAGS_MAX);
    }
    if let Ok(packet) = ipv4::Packet::new_checked(bytes) {
        let _ = (
            ipv4::Repr::parse(&packet),
            packet.options(),
            packet.verify_checksum(),
        );
        assert!(packet.payload().len() <= bytes.len());
    }
    if let Ok(packet) = ipv6::Packet::new_checked(bytes) {
        let _ = ipv6::Repr::parse(&packet);
        assert!(
            packet
                .upper_layer()
                .is_none_or(|u| u.offset <= packet.total_len())
        );
    }
    if let Ok(packet) = tcp::Packet::new_checked(bytes) {
        let _ = (
            tcp::Repr::parse(&packet),
            packet.verify_checksum(0),
            packet.sequence_len(),
        );
        assert!(packet.options().count() <= 40);
    }
    if let Ok(packet) = udp::Packet::new_checked(bytes) {
        let _ = (udp::Repr::parse(&packet), packet.verify_checksum(0));
    }
}
