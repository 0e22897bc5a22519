//! Fragments of random packets, put together again the slow way and summed word by word.

use crate::support::slow_sum;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use wire::fragment::{Fragments, is_allowed};

/// A packet to be fragmented, and where it is.
#[derive(Clone, Debug)]
struct Sample {
    frame: Vec<u8>,
    l3: usize,
    header: usize,
    mtu: u32,
}

fn place(frame: &[u8], l3: usize) -> u16 {
    u16::from_be_bytes([frame[l3 + 6], frame[l3 + 7]])
}

fn set_checksum(frame: &mut [u8], l3: usize) {
    let header = usize::from(frame[l3] & 15) * 4;
    frame[l3 + 10..l3 + 12].fill(0);
    let check = !slow_sum(&[&frame[l3..l3 + header]]);
    frame[l3 + 10..l3 + 12].copy_from_slice(&check.to_be_bytes());
}

/// Options that are copied into fragments and options that are not, in any order.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]),
        Just(vec![0x94, 4, 0, 0]),
        (3_u8..12).prop_map(|len| [vec![7, len, 4], vec![0; usize::from(len) - 3]].concat()),
        (2_u8..12).prop_map(|len| [vec![0x88, len], vec![9; usize::from(len) - 2]].concat()),
    ];
    prop::collection::vec(option, 0..6).prop_map(|options| {
        let mut bytes: Vec<u8> = Vec::new();
        for option in options {
            if bytes.len() + option.len() <= 40 {
                bytes.extend(option);
            }
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    })
}

fn sample() -> impl Strategy<Value = Sample> {
    let link = prop_oneof![Just(vec![]), Just(vec![0x81, 0, 0, 7])];
    let payload = prop::collection::vec(any::<u8>(), 1..6_000);
    let whole = (link, options(), payload, 68_u32..3_000);
    // Offset in units and MF: a fragment of its own, or a whole datagram.
    let part = prop_oneof![Just((0_u16, false)), (0_u16..7_000, any::<bool>())];
    (whole, part, any::<u16>()).prop_map(|((tag, options, payload, mtu), (offset, more), id)| {
        let mut frame = vec![2; 12];
        frame.extend(tag);
        frame.extend([8, 0]);
        let l3 = frame.len();
        let header = 20 + options.len();
        let total = u16::try_from(header + payload.len()).unwrap();
        frame.extend([0x40 | u8::try_from(header / 4).unwrap(), 0xb9]);
        frame.extend(total.to_be_bytes());
        frame.extend(id.to_be_bytes());
        frame.extend((offset | if more { 0x2000 } else { 0 }).to_be_bytes());
        frame.extend([63, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(options);
        set_checksum(&mut frame, l3);
        frame.extend(payload);
        Sample {
            frame,
            l3,
            header,
            mtu,
        }
    })
}

/// All fragments of a frame, a packet that fits by itself.
fn cut(frame: &[u8], mtu: u32) -> Vec<Vec<u8>> {
    let Some(fragments) = Fragments::of(frame, mtu) else {
        return vec![frame.to_vec()];
    };
    let mut room = vec![0xee; 70_000];
    let all = (0..fragments.count()).map(|k| {
        let len = fragments.write(k, &mut room).unwrap();
        assert_eq!(fragments.write(k, &mut vec![0; len - 1]), None, "too short");
        room[..len].to_vec()
    });
    let all: Vec<_> = all.collect();
    assert_eq!(fragments.write(all.len(), &mut room), None, "past the last");
    assert_eq!(fragments.write(usize::MAX, &mut room), None);
    all
}

/// The options of RFC 791 that fragments other than the first carry.
fn copied(mut options: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    while let [kind, rest @ ..] = options {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(rest[0]),
        };
        if kind >= &128 {
            kept.extend(&options[..len]);
        }
        options = &options[len..];
    }
    kept.resize(kept.len().next_multiple_of(4), 0);
    kept
}

/// Checks each fragment by itself and puts their payloads together.
fn assemble(sample: &Sample, pieces: &[Vec<u8>], mtu: u32) -> Vec<u8> {
    let Sample {
        frame, l3, header, ..
    } = sample;
    let l3 = *l3;
    let first_offset = usize::from(place(frame, l3) & 0x1fff) * 8;
    let mut together = Vec::new();
    for (k, piece) in pieces.iter().enumerate() {
        assert_eq!(piece[..l3], frame[..l3], "Ethernet");
        let ip = &piece[l3..];
        let own_header = usize::from(ip[0] & 15) * 4;
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
        assert!(
            ip.len() <= usize::try_from(mtu).unwrap(),
            "{} in {mtu}",
            ip.len()
        );
        assert_eq!(slow_sum(&[&ip[..own_header]]), 0xffff, "header checksum");
        let same = [0..0, 1..2, 4..6, 8..10, 12..20];
        assert!(
            same.into_iter()
                .all(|r| ip[r.clone()] == frame[l3 + r.start..l3 + r.end])
        );
        let options = if k == 0 {
            frame[l3 + 20..l3 + header].to_vec()
        } else {
            copied(&frame[l3 + 20..l3 + header])
        };
        assert_eq!(ip[20..own_header], options, "options of fragment {k}");
        let offset = usize::from(place(piece, l3) & 0x1fff) * 8;
        assert_eq!(
            offset - first_offset,
            together.len(),
            "in order, without a gap"
        );
        let is_last = k + 1 == pieces.len();
        let more = place(piece, l3) & 0x2000 != 0;
        assert_eq!(more, !is_last || place(frame, l3) & 0x2000 != 0);
        assert!(is_last || (ip.len() - own_header).is_multiple_of(8));
        assert_eq!(place(piece, l3) & 0xc000, 0);
        together.extend(&ip[own_header..]);
    }
    together
}

proptest! {
    #[test]
    fn fragments_fit_and_make_the_packet_again(sample in sample()) {
        let Sample { frame, l3, header, mtu } = &sample;
        let pieces = cut(frame, *mtu);
        let is_large = frame.len() - l3 > usize::try_from(*mtu).unwrap();
        prop_assert_eq!(pieces.len() > 1, is_large);
        if is_large {
            prop_assert_eq!(&assemble(&sample, &pieces, *mtu)[..], &frame[l3 + header..]);
            // As few as can be: each but the last and the first has no room for eight bytes more.
            for piece in &pieces[1..pieces.len() - 1] {
                prop_assert!(piece.len() - l3 + 8 > usize::try_from(*mtu).unwrap());
            }
        }
    }

    #[test]
    fn fragments_of_fragments_make_the_packet_again(sample in sample(), second in 68_u32..1_000) {
        let Sample { frame, l3, header, mtu } = &sample;
        let once = cut(frame, *mtu);
        let twice: Vec<_> = once.iter().flat_map(|piece| cut(piece, second)).collect();
        if twice.len() > 1 {
            prop_assert_eq!(&assemble(&sample, &twice, second)[..], &frame[l3 + header..]);
        }
    }

    #[test]
    fn any_bytes_are_cut_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        mtu in any::<u32>(),
        small in 0_u32..200,
        is_ip in any::<bool>(),
    ) {
        if is_ip && bytes.len() > 40 {
            let first = 0x40 | bytes[14] & 15;
            bytes[12..15].copy_from_slice(&[8, 0, first]);
            bytes[20] &= 0xbf;
            if usize::from(bytes[14] & 15) * 4 + 14 <= bytes.len() {
                set_checksum(&mut bytes, 14);
            }
        }
        for mtu in [mtu, small] {
            if let Some(fragments) = Fragments::of(&bytes, mtu) {
                prop_assert!(fragments.count() < 9_000);
                let mut room = vec![0; 3_000];
                for k in 0..fragments.count() {
                    prop_assert!(fragments.write(k, &mut room).is_some());
                }
            }
        }
    }
}

/// UDP over IPv4 of `total` bytes without DF.
fn datagram(total: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1, 2)
        .write(&mut frame, &vec![7; total - 28])
        .unwrap();
    frame[20] = 0;
    set_checksum(&mut frame, 14);
    frame
}

#[test]
fn one_byte_more_than_fits_makes_two() {
    let frame = datagram(1_500);
    assert!(Fragments::of(&frame, 1_500).is_none());
    let sizes = |mtu| {
        cut(&frame, mtu)
            .iter()
            .map(|f| f.len() - 14)
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(1_499), [1_492, 28]);
    assert_eq!(sizes(1_492), [1_492, 28]);
    assert_eq!(sizes(1_491), [1_484, 36]);
    assert_eq!(sizes(28).len(), 185, "eight bytes each, RFC 791's least");
    assert!(Fragments::of(&frame, 27).is_none());
}

#[test]
fn what_a_router_must_not_cut_is_refused() {
    let changed = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = datagram(3_000);
        edit(&mut frame);
        frame
    };
    let sound = |edit: &dyn Fn(&mut Vec<u8>)| {
        changed(&|frame| {
            edit(frame);
            set_checksum(frame, 14);
        })
    };
    assert!(Fragments::of(&sound(&|_| {}), 1_500).is_some());
    let forbidden = sound(&|f| f[20] = 0x40);
    assert!(Fragments::of(&forbidden, 1_500).is_none(), "DF");
    assert!(!is_allowed(&forbidden) && is_allowed(&sound(&|_| {})[..34]));
    assert!(
        Fragments::of(&changed(&|f| f[22] ^= 1), 1_500).is_none(),
        "checksum"
    );
    assert!(
        Fragments::of(&changed(&|f| f.truncate(3_013)), 1_500).is_none(),
        "cut short"
    );
    // The last that a datagram can have is byte 65,534.
    let reaches =
        |units: u16| sound(&move |f: &mut Vec<u8>| f[20..22].copy_from_slice(&units.to_be_bytes()));
    assert!(Fragments::of(&reaches((65_535 - 2_980) / 8), 1_500).is_some());
    assert!(Fragments::of(&reaches((65_535 - 2_980) / 8 + 1), 1_500).is_none());
    let options = |bytes: [u8; 4]| {
        sound(&move |f: &mut Vec<u8>| {
            f[14] = 0x46;
            f[34..38].copy_from_slice(&bytes);
        })
    };
    assert!(Fragments::of(&options([0x94, 4, 0, 0]), 1_500).is_some());
    for bad in [
        [0x94, 5, 0, 0],
        [0x94, 1, 0, 0],
        [7, 0, 0, 0],
        [1, 1, 1, 0x88],
    ] {
        assert!(Fragments::of(&options(bad), 1_500).is_none(), "{bad:?}");
    }
    let mut ipv6 = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([1; 16], [2; 16], 64)
        .udp(1, 2)
        .write(&mut ipv6, &[7; 3_000])
        .unwrap();
    assert!(Fragments::of(&ipv6, 1_500).is_none() && !is_allowed(&ipv6));
}
