//! Any datagram as a STAMP packet: what is read writes the same again, and marking extensions changes
//! two flags of each and nothing else.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::stamp::{Format, PACKET_BYTES, ReflectorPacket, SenderPacket, mark_extensions};

fuzz_target!(|bytes: &[u8]| {
    let mut marked = bytes.to_vec();
    mark_extensions(&mut marked);
    assert!(bytes.iter().zip(&marked).all(|(a, b)| (a ^ b) & 0x3f == 0));
    let (Ok(sent), Ok(answer)) = (SenderPacket::parse(bytes), ReflectorPacket::parse(bytes)) else {
        assert!(bytes.len() < PACKET_BYTES);
        return;
    };
    let mut again = [0; PACKET_BYTES];
    sent.emit(&mut again).unwrap();
    assert_eq!(SenderPacket::parse(&again), Ok(sent));
    answer.emit(&mut again).unwrap();
    assert_eq!(ReflectorPacket::parse(&again), Ok(answer));
    for format in [Format::Ntp, Format::Ptp] {
        let _ = answer.received.to_unix_ns(format, sent.timestamp.0);
    }
    let _ = answer.error.error_ns();
});
