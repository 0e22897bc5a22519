//! Whatever bytes come as frames, the network neither panics nor keeps anything.

use std::path::Path;

use lab::PathFile;
use lab::testing::Network;
use units::{Duration, Rng};

/// Everything that looks at bytes: a switch with rules, two routers, boxes, every stage.
const EVERYTHING: &str = include_str!("../../../../fuzz/everything.toml");

/// A frame of IPv4 or IPv6 from one of the hosts to another, as a super-frame or not, that is right
/// in most of its parts.
fn plausible(rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng, n: u64| rng.next_u64() % n;
    let payload = usize::try_from(pick(rng, 4_000)).unwrap();
    let tcp = pick(rng, 2) == 0;
    let l4 = if tcp { 20 } else { 8 };
    let mut frame = vec![0_u8; 10 + 14 + 20 + l4 + payload];
    for byte in &mut frame[44..] {
        *byte = u8::try_from(pick(rng, 256)).unwrap();
    }
    let gso = pick(rng, 3) == 0 && payload > 700;
    frame[0] = u8::from(gso || pick(rng, 2) == 0);
    if gso {
        frame[1] = if tcp { 1 } else { 5 };
        frame[4..6].copy_from_slice(&(500 + u16::try_from(pick(rng, 900)).unwrap()).to_ne_bytes());
    }
    frame[6..8].copy_from_slice(&34_u16.to_ne_bytes());
    frame[8..10].copy_from_slice(&(if tcp { 16_u16 } else { 6 }).to_ne_bytes());
    let (from, to) = (pick(rng, 3), pick(rng, 5));
    let mac = |n: u64| [0x02, 0x67, 0x70, 0, 0, u8::try_from(n).unwrap()];
    frame[10..16].copy_from_slice(&mac(to));
    if pick(rng, 2) == 0 {
        // One of the routers, towards the hosts.
        let n = [1, 4][usize::try_from(pick(rng, 2)).unwrap()];
        frame[10..16].copy_from_slice(&[0x02, 0x67, 0x70, 1, 0, n]);
    }
    frame[16..22].copy_from_slice(&mac(from));
    frame[22..24].copy_from_slice(&[8, 0]);
    let ip = &mut frame[24..];
    ip[0] = 0x45;
    ip[1] = u8::try_from(pick(rng, 4)).unwrap();
    let total = u16::try_from(20 + l4 + payload).unwrap();
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    // May be fragmented, must not be, or is a fragment.
    ip[6] = [0, 0, 0x40, 0x20][usize::try_from(pick(rng, 4)).unwrap()];
    ip[8] = u8::try_from(pick(rng, 5)).unwrap();
    ip[9] = if tcp { 6 } else { 17 };
    ip[12..16].copy_from_slice(&[198, 18, 0, u8::try_from(from + 1).unwrap()]);
    ip[16..20].copy_from_slice(&[
        198,
        18,
        u8::try_from(pick(rng, 3)).unwrap(),
        u8::try_from(to).unwrap(),
    ]);
    let sum = wire::checksum::checksum(&ip[..20]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    if tcp {
        ip[20 + 12] = 0x50;
        ip[20 + 13] = u8::try_from(pick(rng, 64)).unwrap();
    } else {
        ip[24..26].copy_from_slice(&(total - 20).to_be_bytes());
    }
    frame
}

fn network() -> Network {
    Network::new(
        &PathFile::parse(Path::new("test.toml"), EVERYTHING).unwrap_or_else(|e| panic!("{e}")),
    )
}

/// The same with a buffer that the switch's ports share.
fn sharing_network() -> Network {
    let fq = "discipline = { fq-codel = { target = \"1ms\", interval = \"10ms\" } }\n";
    // Queues that share a buffer send by full duplex, and first come first served.
    let half = "duplex = \"half\"\ncable = \"2us\"\nbackward = { duplex = \"full\" }\n";
    assert!(EVERYTHING.contains(fq) && EVERYTHING.contains(half));
    let text = EVERYTHING.replace(fq, "").replace(half, "").replace(
        "[switches.sw]\n",
        "[switches.sw]\nbuffer = \"20kB\"\nbuffer_alpha = 2.0\n",
    );
    let text = text.replace(
        "between = [\"b\", \"sw\"]\n",
        "between = [\"b\", \"sw\"]\nrate = \"20Mb/s\"\n",
    );
    Network::new(&PathFile::parse(Path::new("test.toml"), &text).unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn plausible_frames_with_flipped_bytes_leave_nothing_behind() {
    let mut rng = Rng::new(1);
    let (mut sent, mut fragmented) = (0, 0);
    for round in 0..30 {
        let mut network = if round % 3 == 0 {
            sharing_network()
        } else {
            network()
        };
        for _ in 0..1_000 {
            let mut frame = plausible(&mut rng);
            if rng.next_u64().is_multiple_of(2) {
                for _ in 0..=rng.next_u64() % 4 {
                    let at = usize::try_from(rng.next_u64() % 80).unwrap() % frame.len();
                    frame[at] = u8::try_from(rng.next_u64() % 256).unwrap();
                }
            }
            let port = usize::try_from(rng.next_u64() % 3).unwrap();
            network.receive(port, Duration::from_us(rng.next_u64() % 300), &frame);
        }
        let counts = network.counts();
        fragmented += counts.iter().map(|c| c.fragmented).sum::<u64>();
        sent += network.finish();
    }
    assert!(fragmented > 100, "{fragmented}");
    assert!(sent > 5_000, "{sent}: most never came through");
}

#[test]
fn noise_leaves_nothing_behind() {
    let mut rng = Rng::new(2);
    let mut network = network();
    for _ in 0..5_000 {
        let len = usize::try_from(rng.next_u64() % 2_000).unwrap();
        let mut frame: Vec<u8> = (0..len)
            .map(|_| u8::try_from(rng.next_u64() % 256).unwrap())
            .collect();
        if len > 24 && rng.next_u64().is_multiple_of(2) {
            frame[22..24].copy_from_slice(
                &[[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]]
                    [usize::try_from(rng.next_u64() % 4).unwrap()],
            );
        }
        network.receive(
            usize::try_from(rng.next_u64() % 3).unwrap(),
            Duration::from_us(10),
            &frame,
        );
    }
    network.finish();
}

#[test]
fn giants_and_stubs_are_taken_as_they_are() {
    let mut network = network();
    for len in [0, 1, 9, 10, 11, 23, 24, 33, 60_000, 65_568, 65_569, 100_000] {
        network.receive(0, Duration::from_ms(1), &vec![0xff; len]);
        network.receive(1, Duration::from_ms(1), &vec![0; len]);
    }
    network.finish();
}
