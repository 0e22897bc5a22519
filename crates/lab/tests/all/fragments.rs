//! Packets without DF that are larger than a router's next link: in virtual time put together again
//! here, and by real kernels.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use lab::testing::Network;
use lab::{DirectionCounts, Host, Lab, Options, PathFile};
use link::record::{Block, Code, Reader, Row};
use units::{Duration, Rng};
use wire::checksum;

use crate::support::{PATIENCE, SILENCE, may_run, receive, udp};

fn parse(text: &str) -> PathFile {
    let text = format!("title = \"a test\"\n{text}");
    PathFile::parse(Path::new("test.toml"), &text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// a - r - s - b with smaller MTUs on the way; more about the first and the last link.
fn narrowing(first: &str, last: &str) -> PathFile {
    parse(&format!(
        "[hosts.a]\nmtu = 9000\n[hosts.b]\n[routers.r]\n[routers.s]\n\
         [links.a]\nbetween = [\"a\", \"r\"]\n{first}\n\
         [links.m]\nbetween = [\"r\", \"s\"]\nmtu = 1400\ndelay = \"1ms\"\n\
         [links.b]\nbetween = [\"s\", \"b\"]\nmtu = 700\n{last}\n"
    ))
}

/// What a host sends: a datagram, or several as one super-frame, without DF.
#[derive(Clone, Copy, Debug)]
struct Shape {
    protocol: u8,
    payload: usize,
    gso_size: usize,
    identification: u16,
}

impl Shape {
    /// Of super-frames, each segment fills the first link's 9,000 bytes at most.
    fn random(rng: &mut Rng, identification: u16) -> Self {
        let mut below = |n: u64| usize::try_from(rng.next_u64() % n).unwrap();
        let protocol = [1, 6, 17][below(3)];
        let gso = protocol != 1 && below(2) == 0;
        let gso_size = if gso { 600 + below(8_300) } else { 0 };
        let payload = if gso {
            gso_size + 1 + below(45_000)
        } else {
            below(8_900)
        };
        Self {
            protocol,
            payload,
            gso_size,
            identification,
        }
    }

    fn header_bytes(self) -> usize {
        if self.protocol == 6 { 20 } else { 8 }
    }

    fn segments(self) -> usize {
        if self.gso_size > 0 {
            self.payload.div_ceil(self.gso_size)
        } else {
            1
        }
    }

    /// The frame as a packet socket hands it over: the transport checksum still to be done.
    fn build(self, path: &PathFile, rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
        let [a, b] = [&path.network.hosts[0], &path.network.hosts[1]];
        let (source, destination) = (a.address4.octets(), b.address4.octets());
        let payload: Vec<u8> = (0..self.payload)
            .map(|_| rng.next_u64().to_le_bytes()[0])
            .collect();
        let mut l4 = vec![0; self.header_bytes()];
        let l4_bytes = u16::try_from(l4.len() + payload.len()).unwrap();
        let at = match self.protocol {
            1 => 2,
            6 => 16,
            _ => 6,
        };
        let mut vnet = [0; 10];
        match self.protocol {
            1 => l4[0] = 8,
            6 => l4[12..14].copy_from_slice(&[0x50, 0x10]),
            _ => l4[4..6].copy_from_slice(&l4_bytes.to_be_bytes()),
        }
        let check = if self.protocol == 1 {
            !checksum::sum(&[&l4[..], &payload].concat())
        } else {
            vnet[0] = 1;
            vnet[6..8].copy_from_slice(&34_u16.to_ne_bytes());
            vnet[8..10].copy_from_slice(&u16::try_from(at).unwrap().to_ne_bytes());
            checksum::pseudo_v4(source, destination, self.protocol, l4_bytes.into())
        };
        if self.gso_size > 0 {
            vnet[1] = if self.protocol == 6 { 1 } else { 5 };
            vnet[4..6].copy_from_slice(&u16::try_from(self.gso_size).unwrap().to_ne_bytes());
        }
        l4[at..at + 2].copy_from_slice(&check.to_be_bytes());
        let mut ip = vec![0x45, 0xb8];
        ip.extend((20 + l4_bytes).to_be_bytes());
        ip.extend(self.identification.to_be_bytes());
        ip.extend([0, 0, 64, self.protocol, 0, 0]);
        ip.extend([source, destination].concat());
        let sum = checksum::checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vnet.to_vec();
        frame.extend(path.network.routers[0].interfaces[0].mac.0);
        frame.extend(a.mac.0);
        frame.extend([8, 0]);
        (([frame, ip, l4, payload.clone()]).concat(), payload)
    }
}

/// The fragments that came, by their place, and the length when the last is among them.
type Datagram = (BTreeMap<usize, Vec<u8>>, Option<usize>);
/// What went in: its shape and its payload.
type Sent = Vec<(Shape, Vec<u8>)>;

/// The datagrams that frames make together, by identification. Each frame must have a right header.
#[derive(Debug, Default)]
struct Reassembly {
    parts: BTreeMap<u16, Datagram>,
}

impl Reassembly {
    fn take(&mut self, frame: &[u8], mtu: usize) {
        let ip = &frame[24..];
        assert_eq!(frame[..10], [0; 10], "nothing is left to be done");
        assert!(ip.len() <= mtu, "{}", ip.len());
        assert_eq!((ip[0], ip[1], ip[8]), (0x45, 0xb8, 62), "two hops");
        assert_eq!(checksum::sum(&ip[..20]), 0xffff);
        let field = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        assert_eq!(usize::from(field(2)), ip.len());
        let offset = usize::from(field(6) & 0x1fff) * 8;
        let (parts, end) = self.parts.entry(field(4)).or_default();
        if field(6) & 0x2000 == 0 {
            assert_eq!(end.replace(offset + ip.len() - 20), None, "two last ones");
        }
        assert!(parts.insert(offset, ip[20..].to_vec()).is_none(), "twice");
    }

    /// The transport layer of a datagram, whole.
    fn whole(&self, identification: u16) -> Option<Vec<u8>> {
        let (parts, end) = self.parts.get(&identification)?;
        let mut bytes = Vec::new();
        for (&at, part) in parts {
            if at != bytes.len() {
                return None;
            }
            bytes.extend(part);
        }
        (Some(bytes.len()) == *end).then_some(bytes)
    }
}

fn dropped(counts: &[DirectionCounts]) -> u64 {
    counts.iter().map(|c| c.link.lost + c.link.queue_full).sum()
}

/// Sends 300 random frames; the network's counts, what left, what was sent.
fn run(path: &PathFile, seed: u64) -> (Vec<DirectionCounts>, Reassembly, Sent) {
    let mut rng = Rng::new(seed);
    let mut network = Network::new(path);
    network.keep();
    let (mut all, mut sent, mut identification) = (Reassembly::default(), Vec::new(), 0);
    for _ in 0..300 {
        let shape = Shape::random(&mut rng, identification);
        identification += 100;
        let (frame, payload) = shape.build(path, &mut rng);
        network.receive(0, Duration::from_ms(3), &frame);
        sent.push((shape, payload));
        for (port, frame) in network.take_kept() {
            assert_eq!(port, 1);
            all.take(&frame_without_offload(frame), 700);
        }
    }
    network.advance(units::Instant::from_ns(10_000_000_000));
    for (_, frame) in network.take_kept() {
        all.take(&frame_without_offload(frame), 700);
    }
    let counts = network.counts();
    network.finish();
    (counts, all, sent)
}

/// A packet that fitted all links may leave as it came, its checksum for the receiver to do.
fn frame_without_offload(mut frame: Vec<u8>) -> Vec<u8> {
    let vnet = wire::virtio::VirtioNetHdr::parse(&frame).unwrap();
    wire::train::finish_checksum(vnet, &mut frame[10..]);
    frame[..10].fill(0);
    frame
}

#[test]
fn what_narrow_links_cut_the_far_end_puts_together_again() {
    let path = narrowing("", "");
    let (counts, all, sent) = run(&path, 1);
    let mut large = 0;
    for (shape, payload) in &sent {
        for k in 0..shape.segments() {
            let id = shape.identification + u16::try_from(k).unwrap();
            let l4 = all.whole(id).unwrap_or_else(|| panic!("{shape:?} {k}"));
            let header = shape.header_bytes();
            let size = if shape.gso_size > 0 {
                shape.gso_size
            } else {
                shape.payload.max(1)
            };
            let end = payload.len().min((k + 1) * size);
            assert!(l4[header..] == payload[k * size..end], "{shape:?} {k}");
            let pseudo = if shape.protocol == 1 {
                0
            } else {
                let [a, b] = [0, 1].map(|n: usize| path.network.hosts[n].address4.octets());
                checksum::pseudo_v4(a, b, shape.protocol, u32::try_from(l4.len()).unwrap())
            };
            assert_eq!(
                checksum::add(pseudo, checksum::sum(&l4)),
                0xffff,
                "{shape:?} {k}"
            );
            large += u64::from(20 + l4.len() > 1_400);
        }
    }
    let segments: usize = sent.iter().map(|(shape, _)| shape.segments()).sum();
    assert_eq!(counts[0].fragmented, large);
    assert!(
        counts[2].fragmented > counts[0].fragmented,
        "fragments of fragments"
    );
    let [fragmented, fragments] = [
        counts.iter().map(|c| c.fragmented).sum::<u64>(),
        counts.iter().map(|c| c.fragments).sum::<u64>(),
    ];
    let out = counts[4].segments_out;
    assert_eq!(dropped(&counts), 0);
    assert_eq!(
        u64::try_from(segments).unwrap() + fragments,
        fragmented + out
    );
}

#[test]
fn a_short_last_segment_that_comes_first_lets_no_larger_one_through() {
    let path = narrowing("jitter = { amount = \"2ms\", reorder = true }", "");
    // No frame above 700 bytes leaves, or this fails.
    let (counts, all, _) = run(&path, 6);
    assert!(counts[0].fragmented > 500);
    assert!(all.parts.keys().all(|&id| all.whole(id).is_some()));
}

#[test]
fn each_fragment_is_lost_by_itself_and_all_are_accounted_for() {
    let last = "forward = { rate = \"20Mb/s\", queue = \"20kB\", loss = 0.02 }";
    let (counts, all, sent) = run(&narrowing("", last), 2);
    let segments: usize = sent.iter().map(|(shape, _)| shape.segments()).sum();
    let fragmented: u64 = counts.iter().map(|c| c.fragmented).sum();
    let fragments: u64 = counts.iter().map(|c| c.fragments).sum();
    let lost = dropped(&counts);
    assert!(lost > 100 && counts[4].link.queue_full > 0);
    let out = counts[4].segments_out;
    assert_eq!(
        u64::try_from(segments).unwrap() + fragments,
        fragmented + out + lost
    );
    let whole = all
        .parts
        .keys()
        .filter(|&&id| all.whole(id).is_some())
        .count();
    assert!(whole > 0 && whole < segments, "{whole} of {segments}");
}

/// What leaves the network when one large datagram after the other comes.
fn carried(first_link: &str) -> (u64, Vec<Vec<u8>>) {
    let path = parse(&format!(
        "[hosts.a]\nmtu = 9000\n[hosts.b]\n[routers.r]\n\
         [links.a]\nbetween = [\"a\", \"r\"]\n{first_link}\n[links.b]\nbetween = [\"r\", \"b\"]\n"
    ));
    let mut rng = Rng::new(3);
    let mut network = Network::new(&path);
    network.keep();
    for identification in 0..100 {
        let shape = Shape {
            protocol: 17,
            payload: 8_000,
            gso_size: 0,
            identification,
        };
        network.receive(0, Duration::from_ms(1), &shape.build(&path, &mut rng).0);
    }
    network.advance(units::Instant::from_ns(10_000_000_000));
    let frames = network.take_kept().into_iter().map(|(_, frame)| frame);
    let frames = frames.collect();
    let fragmented = network.counts()[0].fragmented;
    network.finish();
    (fragmented, frames)
}

#[test]
fn a_damaged_datagram_has_its_flipped_bit_in_one_of_its_fragments() {
    let (sound, damaged) = (carried(""), carried("corrupt = 1.0"));
    assert_eq!((sound.0, damaged.0, sound.1.len()), (100, 100, 600));
    assert_eq!(sound.1.len(), damaged.1.len());
    let mut flipped = vec![0; 100];
    for (k, (a, b)) in sound.1.iter().zip(&damaged.1).enumerate() {
        let bits = a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones());
        flipped[k / 6] += bits.sum::<u32>();
    }
    assert_eq!(flipped, [1; 100]);
}

#[test]
fn a_black_hole_behind_a_router_swallows_fragments_and_says_nothing() {
    let path = narrowing("", "black_hole_above = 650");
    let mut rng = Rng::new(4);
    let mut network = Network::new(&path);
    network.keep();
    let shape = Shape {
        protocol: 17,
        payload: 3_000,
        gso_size: 0,
        identification: 1,
    };
    network.receive(0, Duration::from_ms(1), &shape.build(&path, &mut rng).0);
    network.advance(units::Instant::from_ns(1_000_000_000));
    // 3,008 bytes are 1,376 twice and 256; at the second router 1,376 are 680 twice and 16.
    let sizes: Vec<usize> = network
        .take_kept()
        .iter()
        .map(|(_, f)| f.len() - 24)
        .collect();
    assert_eq!(sizes, [20 + 16, 20 + 16, 20 + 256]);
    let counts = network.counts();
    assert_eq!((counts[4].link.lost, dropped(&counts)), (4, 4));
    assert_eq!(counts[1].segments_out, 0, "no word to the sender");
    network.finish();
}

#[test]
fn a_packet_that_forbids_it_or_is_broken_is_dropped_and_only_the_former_answered() {
    let path = narrowing("", "");
    let mut rng = Rng::new(5);
    let mut network = Network::new(&path);
    network.keep();
    let shape = Shape {
        protocol: 17,
        payload: 3_000,
        gso_size: 0,
        identification: 1,
    };
    let (frame, _) = shape.build(&path, &mut rng);
    let mut broken = frame.clone();
    broken[34] ^= 1;
    let mut fixed = frame;
    fixed[30] = 0x40;
    let sum = checksum::update(u16::from_be_bytes([fixed[34], fixed[35]]), 0, 0x4000);
    fixed[34..36].copy_from_slice(&sum.to_be_bytes());
    for frame in [broken, fixed] {
        network.receive(0, Duration::from_ms(1), &frame);
    }
    network.advance(units::Instant::from_ns(1_000_000_000));
    let left = network.take_kept();
    assert_eq!(left.len(), 1);
    // Fragmentation needed, next hop 1,400 (RFC 1191 section 4).
    assert_eq!(
        (left[0].0, &left[0].1[44..46], &left[0].1[50..52]),
        (0, &[3, 4][..], &1_400_u16.to_be_bytes()[..])
    );
    assert_eq!(
        (dropped(&network.counts()), network.counts()[0].fragmented),
        (2, 0)
    );
    network.finish();
}

/// What a program says when run in a host.
fn output(host: &Host, program: &str, args: &[&str]) -> String {
    let mut command = host.program(program).unwrap();
    let out = host.run(|| command.args(args).output()).unwrap();
    let out = out.unwrap_or_else(|e| panic!("this test needs {program}: {e}"));
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// One of the kernel's counters of IP.
fn ip_counter(host: &Host, name: &str) -> u64 {
    let text = output(host, "cat", &["/proc/net/snmp"]);
    let mut lines = text.lines().filter(|l| l.starts_with("Ip:"));
    let [names, values] = [lines.next().unwrap(), lines.next().unwrap()];
    let at = names.split_whitespace().position(|n| n == name).unwrap();
    values.split_whitespace().nth(at).unwrap().parse().unwrap()
}

fn noise(n: usize) -> Vec<u8> {
    let mut rng = Rng::new(7);
    (0..n / 8 + 1)
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .take(n)
        .collect()
}

#[test]
fn a_large_ping_without_df_is_answered_and_one_with_df_is_refused() {
    if !may_run() {
        return;
    }
    let path = parse(
        "[hosts.near]\nmtu = 9000\n[hosts.far]\nmtu = 1500\n[routers.r]\n\
         [links.a]\nbetween = [\"near\", \"r\"]\n[links.b]\nbetween = [\"r\", \"far\"]\n",
    );
    let file = std::env::temp_dir().join(format!("goodput-fragments-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let options = Options {
        log: Some(file.clone()),
    };
    let lab = Lab::up_with(&path, options).unwrap();
    let far = lab.far().address().to_string();
    let ping = |kind: &str| {
        let args = ["-c", "1", "-W", "5", "-M", kind, "-s", "4000", &far];
        output(lab.near(), "ping", &args)
    };
    let before = ip_counter(lab.far(), "ReasmOKs");
    let answered = ping("dont");
    assert!(answered.contains("1 received"), "{answered}");
    assert_eq!(ip_counter(lab.far(), "ReasmOKs"), before + 1);
    let refused = ping("do");
    assert!(
        refused.contains("mtu = 1500") || refused.contains("mtu=1500"),
        "{refused}"
    );
    let far6 = lab.far().address6().to_string();
    let args = [
        "-6", "-c", "1", "-W", "5", "-M", "dont", "-s", "4000", &far6,
    ];
    let counts = lab.link_counts().unwrap();
    assert_eq!((counts[0].1.fragmented, counts[0].1.fragments), (1, 3));
    output(lab.near(), "ping", &args);
    let counts = lab.link_counts().unwrap();
    assert_eq!(counts[0].1.fragmented, 1, "IPv6 never");
    let end = lab.down().unwrap().unwrap();
    assert_eq!((end.lost_rows, end.lost_frames), (0, 0));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let blocks = Reader::new(&bytes).unwrap().map(Result::unwrap);
    let rows: Vec<Row> = blocks
        .filter_map(|block| match block {
            Block::Decisions(rows) => Some(rows),
            _ => None,
        })
        .flatten()
        .collect();
    let with = |code: Code| rows.iter().filter(move |r| r.decision == code);
    let [whole] = with(Code::FRAGMENTED).collect::<Vec<_>>()[..] else {
        panic!("one packet was cut: {rows:?}");
    };
    assert_eq!((whole.link, whole.stage, whole.detail), (0, u8::MAX, 3));
    let parts: Vec<&Row> = with(Code::FRAGMENT).collect();
    assert_eq!(parts.len(), 3);
    for part in parts {
        assert_eq!(u64::from(part.detail), whole.frame);
        let delivered = with(Code::DELIVERED).filter(|r| r.frame == part.frame);
        assert_eq!(delivered.map(|r| r.link).collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn datagrams_and_streams_without_df_arrive_byte_for_byte() {
    if !may_run() {
        return;
    }
    let path = parse(
        "[hosts.near]\nmtu = 9000\n[hosts.far]\nmtu = 9000\n[routers.r]\n[routers.s]\n\
         [links.a]\nbetween = [\"near\", \"r\"]\n\
         [links.m]\nbetween = [\"r\", \"s\"]\nmtu = 1500\nrate = \"1Gb/s\"\ndelay = \"1ms\"\n\
         [links.b]\nbetween = [\"s\", \"far\"]\n",
    );
    let lab = Lab::up(&path).unwrap();
    let (near, far) = (lab.near(), lab.far());
    // Sockets of this host then never set DF.
    near.set("net.ipv4.ip_no_pmtu_disc", "1").unwrap();
    let (sender, receiver) = (udp(near, 7_000), udp(far, 7_000));
    let mut buffer = vec![0; 70_000];
    for n in [1, 1_472, 1_473, 1_480, 4_000, 8_972] {
        let bytes = noise(n);
        sender.send_to(&bytes, (far.address(), 7_000)).unwrap();
        let got = receiver.recv(&mut buffer).unwrap();
        assert!(buffer[..got] == bytes, "{n} bytes, {got} came");
    }
    assert_eq!(receive(&receiver, 1, SILENCE), 0, "and none twice");
    let counts = lab.link_counts().unwrap()[0].1;
    assert_eq!((counts.fragmented, counts.fragments), (4, 2 + 2 + 3 + 7));
    assert_eq!(ip_counter(far, "ReasmOKs"), 4);

    let bytes = noise(4 << 20);
    let listen = || TcpListener::bind((far.address(), 5_001));
    let listener = far.run(listen).unwrap().unwrap();
    let got = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got
        });
        let connect = || TcpStream::connect((far.address(), 5_001));
        let mut stream = near.run(connect).unwrap().unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&bytes).unwrap();
        drop(stream);
        reader.join().unwrap()
    });
    assert!(got == bytes, "{} bytes came", got.len());
    let counts = lab.link_counts().unwrap()[0].1;
    assert!(counts.fragmented > 4 + 400, "most segments: {counts:?}");
    assert!(ip_counter(far, "ReasmOKs") > 4 + 400);
}
