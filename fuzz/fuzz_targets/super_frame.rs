//! Ten bytes of virtio header, two of a cut's length, then a frame: whatever they say, cuts keep
//! every payload byte, state their sizes truly, and compose.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::train::{CutBuf, SuperFrame, finish_checksum};
use wire::virtio::{self, VirtioNetHdr};

fuzz_target!(|bytes: &[u8]| {
    let Some(vnet) = VirtioNetHdr::parse(bytes) else {
        return;
    };
    let Some(([a, b], frame)) = bytes[virtio::LEN_BYTES..].split_first_chunk() else {
        return;
    };
    let parsed = SuperFrame::parse(vnet, frame);
    let count = u16::from_be_bytes([*a, *b]).max(1);

    let mut buf = CutBuf::new();
    let header_bytes = parsed.header_len() as usize;
    let (mut first, mut payload, mut sizes) = (0_u16, Vec::new(), 0_u64);
    while first < parsed.segments() {
        let run = count.min(parsed.segments() - first);
        parsed.cut(frame, first, run, &mut buf).unwrap();
        let mut piece = Vec::new();
        buf.append_to(frame, &mut piece);
        if run == parsed.segments() {
            assert_eq!((buf.vnet(), &piece[..]), (vnet, frame));
        } else {
            check_piece(buf.vnet(), &mut piece, run);
        }
        payload.extend_from_slice(&piece[header_bytes.min(piece.len())..]);
        sizes += (0..run)
            .map(|k| u64::from(parsed.segment_frame_bytes(first + k)))
            .sum::<u64>();
        first += run;
    }
    assert_eq!(payload, frame[header_bytes.min(frame.len())..]);
    let repeated = u64::from(parsed.segments() - 1) * u64::from(parsed.header_len());
    assert_eq!(sizes, frame.len() as u64 + repeated);
    assert!(parsed.cut(frame, first, 1, &mut buf).is_err());
});

/// A piece is a super-frame of its own, and its checksums can be finished.
fn check_piece(vnet: VirtioNetHdr, piece: &mut [u8], run: u16) {
    let again = SuperFrame::parse(vnet, piece);
    assert_eq!(again.segments(), run);
    again.mark_ce(piece);
    assert!(finish_checksum(vnet, piece));
    let l3 = again.network_offset();
    if piece[l3] >> 4 == 4 {
        let packet = wire::ipv4::Packet::new_checked(&piece[l3..]).unwrap();
        assert!(packet.verify_checksum());
        assert_eq!(usize::from(packet.total_len()), piece.len() - l3);
    }
}
