//! Any bytes as a frame and as each layer: no view panics, and what a `Repr` reads it writes back
//! so that it reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{ethernet, ipv4, ipv6, protocol, tcp, udp};

fuzz_target!(|bytes: &[u8]| {
    network(bytes);
    tcp_segment(bytes);
    udp_datagram(bytes);
    let Ok(frame) = ethernet::Frame::new_checked(bytes) else {
        return;
    };
    let tags: Vec<_> = frame.vlan_tags().collect();
    if let Ok(repr) = ethernet::Repr::parse(&frame) {
        let mut copy = vec![0; bytes.len()];
        let len = repr.emit(&tags, &mut copy).unwrap();
        assert_eq!(copy[..len], bytes[..len]);
    }
    network(frame.payload());
});

fn network(bytes: &[u8]) {
    if let Ok(packet) = ipv4::Packet::new_checked(bytes) {
        packet.verify_checksum();
        packet.options();
        if let Ok(repr) = ipv4::Repr::parse(&packet) {
            let mut copy = vec![0; 20 + packet.payload().len()];
            repr.emit(&mut copy).unwrap();
            let again = ipv4::Packet::new_checked(&copy[..]).unwrap();
            assert!(again.verify_checksum());
            assert_eq!(ipv4::Repr::parse(&again), Ok(repr));
        }
        transport(packet.protocol(), packet.payload());
    }
    if let Ok(packet) = ipv6::Packet::new_checked(bytes) {
        let repr = ipv6::Repr::parse(&packet);
        let mut copy = [0; ipv6::HEADER_BYTES];
        repr.emit(&mut copy).unwrap();
        assert_eq!(copy, bytes[..ipv6::HEADER_BYTES]);
        if let Some(upper) = packet.upper_layer() {
            transport(upper.protocol, &bytes[upper.offset..packet.total_len()]);
        }
    }
}

fn transport(number: u8, bytes: &[u8]) {
    match number {
        protocol::TCP => tcp_segment(bytes),
        protocol::UDP => udp_datagram(bytes),
        _ => {}
    }
}

fn tcp_segment(bytes: &[u8]) {
    let Ok(packet) = tcp::Packet::new_checked(bytes) else {
        return;
    };
    assert!(packet.options().count() <= 40);
    packet.verify_checksum(0);
    packet.sequence_len();
    if let Ok(repr) = tcp::Repr::parse(&packet) {
        let mut copy = [0; 60];
        if let Ok(len) = repr.emit(&mut copy) {
            let again = tcp::Packet::new_checked(&copy[..len]).unwrap();
            assert_eq!(tcp::Repr::parse(&again), Ok(repr));
        }
    }
}

fn udp_datagram(bytes: &[u8]) {
    let Ok(packet) = udp::Packet::new_checked(bytes) else {
        return;
    };
    let repr = udp::Repr::parse(&packet);
    packet.verify_checksum(0);
    let mut copy = bytes.to_vec();
    repr.emit(&mut copy).unwrap();
    let mut again = udp::Packet::new_checked(&mut copy[..]).unwrap();
    again.fill_checksum(0);
    assert!(again.verify_checksum(0));
    assert_eq!(udp::Repr::parse(&again), repr);
}
