//! Cutting, held against sums and fields worked out the slow way and against etherparse's reading.

use crate::support::{Built, Spec, pseudo_sum_of, slow_sum, spec};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use wire::train::{CutBuf, CutError, SuperFrame, finish_checksum};
use wire::virtio::{self, VirtioNetHdr};

/// One piece as a frame of its own.
#[derive(Debug)]
struct Piece {
    first: u16,
    count: u16,
    vnet: VirtioNetHdr,
    bytes: Vec<u8>,
}

fn piece(frame: &[u8], parsed: &SuperFrame, first: u16, count: u16) -> Piece {
    let mut buf = CutBuf::new();
    parsed.cut(frame, first, count, &mut buf).unwrap();
    let mut bytes = Vec::new();
    buf.append_to(frame, &mut bytes);
    assert_eq!(bytes.len(), buf.frame_bytes());
    Piece {
        first,
        count,
        vnet: buf.vnet(),
        bytes,
    }
}

/// Cuts the whole frame into runs whose lengths are drawn from `counts`, in a circle.
fn pieces(frame: &[u8], parsed: &SuperFrame, counts: &[u16]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut first = 0;
    for &count in counts.iter().cycle() {
        if first == parsed.segments() {
            break;
        }
        let count = count.min(parsed.segments() - first);
        pieces.push(piece(frame, parsed, first, count));
        first += count;
    }
    pieces
}

fn u16_of(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Fields that a piece must have: what a segmentation engine makes of the original.
fn check_headers(spec: &Spec, built: &Built, piece: &Piece, segments: u16) {
    let (l3, l4) = (built.l3, built.l4);
    let is_last = piece.first + piece.count == segments;
    if built.is_ipv6() {
        assert_eq!(
            usize::from(u16_of(&piece.bytes, l3 + 4)),
            piece.bytes.len() - l3 - 40
        );
    } else {
        assert_eq!(
            usize::from(u16_of(&piece.bytes, l3 + 2)),
            piece.bytes.len() - l3
        );
        let identification = spec.identification.wrapping_add(piece.first);
        assert_eq!(u16_of(&piece.bytes, l3 + 4), identification);
    }
    let mut cwr = false;
    if built.is_tcp() {
        let skipped = u32::from(piece.first) * u32::from(spec.gso_size);
        let sequence = spec.sequence.wrapping_add(skipped).to_be_bytes();
        assert_eq!(piece.bytes[l4 + 4..l4 + 8], sequence);
        let flags = u16_of(&piece.bytes, l4 + 12) & 0x1ff;
        let mut expected = spec.flags;
        if !is_last {
            expected &= !0x009;
        }
        if piece.first > 0 {
            expected &= !0x080;
        }
        assert_eq!(flags, expected);
        cwr = flags & 0x080 != 0;
    } else {
        assert_eq!(
            usize::from(u16_of(&piece.bytes, l4 + 4)),
            piece.bytes.len() - l4
        );
    }
    let ecn = if cwr {
        built.vnet.gso_type & virtio::GSO_ECN
    } else {
        0
    };
    let many = piece.count > 1;
    let expected = VirtioNetHdr {
        flags: virtio::NEEDS_CSUM,
        gso_type: if many {
            built.vnet.gso_kind() | ecn
        } else {
            virtio::GSO_NONE
        },
        hdr_len: u16::try_from(built.header_bytes).unwrap(),
        gso_size: if many { spec.gso_size } else { 0 },
        csum_start: u16::try_from(l4).unwrap(),
        csum_offset: if built.is_tcp() { 16 } else { 6 },
    };
    assert_eq!(piece.vnet, expected);
}

/// Both checksums of a piece, by the slow sum.
fn check_sums(built: &Built, piece: &Piece) {
    let (l3, l4) = (built.l3, built.l4);
    let field = l4 + built.checksum_field();
    let pseudo = pseudo_sum_of(&piece.bytes, l3, l4, built.is_tcp());
    assert_eq!(
        u16_of(&piece.bytes, field) % 0xffff,
        pseudo % 0xffff,
        "partial sum"
    );
    if !built.is_ipv6() {
        let header = usize::from(piece.bytes[l3] & 0xf) * 4;
        assert_eq!(
            slow_sum(&[&piece.bytes[l3..l3 + header]]),
            0xffff,
            "IPv4 header"
        );
    }
    let mut finished = piece.bytes.clone();
    assert!(finish_checksum(piece.vnet, &mut finished));
    let pseudo = pseudo.to_be_bytes();
    assert_eq!(slow_sum(&[&pseudo, &finished[l4..]]), 0xffff, "{piece:?}");
    check_with_etherparse(&finished, built.header_bytes);
}

fn check_with_etherparse(frame: &[u8], header_bytes: usize) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let payload = match sliced.transport.unwrap() {
        TransportSlice::Tcp(tcp) => {
            let expected = match sliced.net.unwrap() {
                NetSlice::Ipv4(ip) => {
                    tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())
                }
                NetSlice::Ipv6(ip) => {
                    tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination())
                }
                NetSlice::Arp(_) => panic!("not ARP"),
            };
            assert_eq!(tcp.checksum(), expected.unwrap());
            tcp.payload()
        }
        TransportSlice::Udp(udp) => {
            assert_ne!(udp.checksum(), 0, "zero means none");
            assert_eq!(usize::from(udp.length()), udp.slice().len());
            udp.payload()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(payload, &frame[header_bytes..]);
}

/// Skips what etherparse limits: it follows three VLAN tags at most.
fn etherparse_can_read(spec: &Spec) -> bool {
    spec.vlan_tags <= 3
}

proptest! {
    #[test]
    fn no_cut_loses_repeats_reorders_or_changes_a_byte(
        spec in spec().prop_filter("tags", etherparse_can_read),
        counts in prop::collection::vec(1_u16..=6, 1..=6),
    ) {
        let built = spec.build();
        let parsed = SuperFrame::parse(built.vnet, &built.bytes);
        let expected = spec.payload.len().div_ceil(usize::from(spec.gso_size));
        prop_assert_eq!(usize::from(parsed.segments()), expected);
        let cut = pieces(&built.bytes, &parsed, &counts);
        let mut payload: Vec<u8> = Vec::new();
        for piece in &cut {
            payload.extend(&piece.bytes[built.header_bytes..]);
            if piece.count < parsed.segments() {
                check_headers(&spec, &built, piece, parsed.segments());
                check_sums(&built, piece);
            }
        }
        prop_assert_eq!(payload, &spec.payload[..]);
    }

    #[test]
    fn segment_sizes_are_those_of_the_frames_that_single_cuts_make(spec in spec()) {
        let built = spec.build();
        let parsed = SuperFrame::parse(built.vnet, &built.bytes);
        let singles = pieces(&built.bytes, &parsed, &[1]);
        for (k, single) in singles.iter().enumerate() {
            let k = u16::try_from(k).unwrap();
            prop_assert_eq!(parsed.segment_frame_bytes(k) as usize, single.bytes.len());
        }
        let sum: u32 = (0..parsed.segments()).map(|k| parsed.segment_frame_bytes(k)).sum();
        let headers = parsed.header_len() * u32::from(parsed.segments());
        prop_assert_eq!(sum, headers + parsed.payload_len());
        prop_assert_eq!(parsed.payload_len() as usize, spec.payload.len());
        prop_assert_eq!(parsed.segment_frame_bytes(parsed.segments()), 0);
        let wire: u64 = singles
            .iter()
            .map(|s| u64::try_from(s.bytes.len().max(60) + 24).unwrap())
            .sum();
        prop_assert_eq!(parsed.train_wire_bytes(), wire);
    }

    /// What the kernel does to a piece later must give what cutting at once would have given.
    #[test]
    fn a_piece_cut_again_gives_the_frames_of_a_direct_cut(
        spec in spec(),
        counts in prop::collection::vec(1_u16..=6, 1..=6),
    ) {
        let built = spec.build();
        let parsed = SuperFrame::parse(built.vnet, &built.bytes);
        let direct = pieces(&built.bytes, &parsed, &[1]);
        let mut direct = direct.iter();
        for piece in pieces(&built.bytes, &parsed, &counts) {
            let again = SuperFrame::parse(piece.vnet, &piece.bytes);
            prop_assert_eq!(again.segments(), piece.count);
            prop_assert_eq!(again.flow(), parsed.flow());
            for single in pieces(&piece.bytes, &again, &[1]) {
                let expected = direct.next().unwrap();
                prop_assert_eq!(single.vnet, expected.vnet);
                let (mut got, mut want) = (single.bytes, expected.bytes.clone());
                prop_assert!(finish_checksum(single.vnet, &mut got));
                prop_assert!(finish_checksum(expected.vnet, &mut want));
                prop_assert_eq!(got, want);
            }
        }
        prop_assert!(direct.next().is_none());
    }

    #[test]
    fn the_whole_frame_passes_as_it_came(spec in spec()) {
        let built = spec.build();
        let parsed = SuperFrame::parse(built.vnet, &built.bytes);
        let whole = piece(&built.bytes, &parsed, 0, parsed.segments());
        prop_assert_eq!(whole.vnet, built.vnet);
        prop_assert_eq!(whole.bytes, built.bytes);
    }

    #[test]
    fn a_damaged_frame_is_parsed_and_cut_without_a_panic(
        spec in spec(),
        damage in prop::collection::vec((0_usize..120, any::<u8>()), 0..4),
        vnet in any::<(u8, u8, u16, u16, u16, u16)>(),
        keep_vnet in any::<bool>(),
        truncate in prop::option::of(0_usize..200),
        (first, count) in any::<(u16, u16)>(),
    ) {
        let mut built = spec.build();
        if !keep_vnet {
            let (flags, gso_type, hdr_len, gso_size, csum_start, csum_offset) = vnet;
            built.vnet =
                VirtioNetHdr { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset };
        }
        for (at, value) in damage {
            if let Some(byte) = built.bytes.get_mut(at) {
                *byte = value;
            }
        }
        built.bytes.truncate(truncate.unwrap_or(usize::MAX));
        exercise(built.vnet, &built.bytes, first, count)?;
    }

    #[test]
    fn any_bytes_are_parsed_and_cut_without_a_panic(
        vnet in any::<[u8; 10]>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        (first, count) in any::<(u16, u16)>(),
    ) {
        exercise(VirtioNetHdr::parse(&vnet).unwrap(), &bytes, first, count)?;
    }
}

/// TCP over IPv6, 25 bytes in segments of 10, behind one destination-options header.
fn ipv6_with_extension(units: u8) -> Spec {
    Spec {
        vlan_tags: 0,
        ipv6: true,
        tcp: true,
        ip_option_words: 0,
        extensions: vec![units],
        tcp_options: Vec::new(),
        addresses: [0xfd; 32],
        ports: [1, 2, 3, 4],
        identification: 0,
        sequence: 0,
        flags: 0x010,
        payload: (0..25).collect(),
        gso_size: 10,
        needs_csum: true,
        ecn: false,
    }
}

#[test]
fn headers_longer_than_the_cut_buffer_are_not_cut() {
    // Ethernet, IPv6 and TCP are 74 bytes: 182 are left, 22 units of eight and not 23.
    for (units, segments) in [(21, 3), (22, 1)] {
        let built = ipv6_with_extension(units).build();
        let parsed = SuperFrame::parse(built.vnet, &built.bytes);
        assert_eq!(parsed.segments(), segments, "{units}");
        exercise(built.vnet, &built.bytes, 0, 1).unwrap();
    }
}

#[test]
fn behind_a_routing_header_only_a_sum_that_the_sender_made_is_cut() {
    for (needs_csum, segments) in [(true, 3), (false, 1)] {
        let mut built = Spec {
            needs_csum,
            ..ipv6_with_extension(0)
        }
        .build();
        built.bytes[built.l3 + 6] = 43;
        let parsed = SuperFrame::parse(built.vnet, &built.bytes);
        assert_eq!(parsed.segments(), segments);
    }
}

#[test]
fn a_sum_of_zero_is_finished_as_all_ones_for_udp_and_as_zero_for_tcp() {
    for (csum_offset, finished) in [(6_u16, [0xff, 0xff]), (16, [0, 0])] {
        let vnet = VirtioNetHdr {
            flags: virtio::NEEDS_CSUM,
            csum_offset,
            ..VirtioNetHdr::default()
        };
        let mut bytes = [0_u8; 20];
        bytes[..2].copy_from_slice(&[0xff, 0xff]);
        assert!(finish_checksum(vnet, &mut bytes));
        let at = usize::from(csum_offset);
        assert_eq!(bytes[at..at + 2], finished);
    }
}

/// What holds for any frame: ranges are refused or cut, and single cuts keep the payload.
fn exercise(vnet: VirtioNetHdr, frame: &[u8], first: u16, count: u16) -> Result<(), TestCaseError> {
    let parsed = SuperFrame::parse(vnet, frame);
    let mut buf = CutBuf::new();
    let inside = count > 0 && u32::from(first) + u32::from(count) <= u32::from(parsed.segments());
    prop_assert_eq!(parsed.cut(frame, first, count, &mut buf).is_ok(), inside);
    let longer = [frame, &[0]].concat();
    prop_assert_eq!(
        parsed.cut(&longer, 0, 1, &mut buf),
        Err(CutError::AnotherFrame)
    );
    let singles = pieces(frame, &parsed, &[1]);
    if parsed.segments() == 1 {
        prop_assert_eq!(&singles[0].bytes[..], frame);
        prop_assert_eq!(singles[0].vnet, vnet);
    } else {
        let header_bytes = parsed.header_len() as usize;
        let payload: Vec<u8> = singles
            .iter()
            .flat_map(|s| s.bytes[header_bytes..].to_vec())
            .collect();
        prop_assert_eq!(&payload[..], &frame[header_bytes..]);
        prop_assert!(singles.iter().all(|s| s.bytes[..12] == frame[..12]));
    }
    let mut copy = frame.to_vec();
    finish_checksum(vnet, &mut copy);
    parsed.mark_ce(&mut copy);
    prop_assert_eq!(copy.len(), frame.len());
    Ok(())
}
