//! A link type, a length and a cut, then any bytes as a captured packet: lengths add up, what was in
//! the segment before makes no difference, and a capture that keeps less of the packet says the same
//! of it or says that it is cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::capture::LinkType;
use wire::segment::{Decoded, Segment, SynOptions, decode};
use wire::tcp::{Flags, SackBlocks};

fuzz_target!(|bytes: &[u8]| {
    let Some((&[link, a, b, c, cut], packet)) = bytes.split_first_chunk() else {
        return;
    };
    let link = LinkType(LINKS[usize::from(link) % LINKS.len()]);
    let original = u32::from_be_bytes([0, a, b, c]).max(packet.len() as u32);
    let mut out = Segment::default();
    let decoded = decode(link, packet, original, &mut out);
    if decoded == Decoded::Tcp {
        check(&out, original);
    }
    let mut used = Segment {
        flags: Flags::from_bits(0x1ff),
        timestamps: Some((1, 2)),
        sack: SackBlocks::new(&[(1, 2), (3, 4)]),
        syn: SynOptions {
            mss: Some(1),
            window_scale: Some(2),
            sack_permitted: true,
        },
        options_cut: true,
        ..Segment::default()
    };
    assert_eq!(decode(link, packet, original, &mut used), decoded);
    assert!(decoded != Decoded::Tcp || used == out);
    let kept = usize::from(cut).min(packet.len());
    match decode(link, &packet[..kept], original, &mut used) {
        // Of a tunnel whose header is cut, what it is in is all that is known.
        Decoded::Cut | Decoded::Udp | Decoded::OtherIp { .. } | Decoded::NotIp { .. } => {}
        Decoded::Tcp => {
            assert_eq!(decoded, Decoded::Tcp);
            assert!(without_options(used) == without_options(out));
            assert!(used.options_cut || used == out);
        }
        less => assert_eq!(less, decoded),
    }
});

fn check(segment: &Segment, original: u32) {
    // Two headers of 20 bytes; no longer than the record, or than IPv4's longest and IPv6's.
    assert!(segment.payload_bytes + 40 <= segment.ip_bytes);
    assert!(segment.ip_bytes <= original.max(65_535 + 40));
    assert!(segment.flow.addresses[0] <= segment.flow.addresses[1]);
    assert!(segment.from <= 1 && segment.ecn <= 3);
    assert!(segment.sack.as_slice().len() <= 4);
}

fn without_options(segment: Segment) -> Segment {
    Segment {
        timestamps: None,
        sack: SackBlocks::default(),
        syn: SynOptions::default(),
        options_cut: false,
        ..segment
    }
}

const LINKS: [u16; 35] = [
    1, 0, 12, 14, 101, 108, 113, 228, 229, 276, 105, 6, 8, 9, 10, 50, 51, 100, 104, 107, 109, 117,
    119, 123, 127, 138, 163, 192, 197, 204, 219, 226, 239, 242, 178,
];
