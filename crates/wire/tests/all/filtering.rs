//! Filters against tcpdump's verdicts, packet by packet, and against what the kernel would see.
//!
//! Programs run in an interpreter of classic BPF that is written here from the instruction set's
//! description and shares nothing with the compiler. tcpdump is asked where it is installed.

#![allow(
    clippy::cast_possible_truncation,
    reason = "plain arithmetic on test data"
)]

use std::fs;
use std::process::Command;

use proptest::prelude::*;
use units::Rng;
use wire::filter::{Filter, INSTRUCTIONS_MAX, Instruction, Way};

/// Expressions that tcpdump understands too. Each but the last few takes some of the frames and not all.
const EXPRESSIONS: &[&str] = &[
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "sctp",
    "igmp",
    "esp",
    "not ip",
    "ip proto 47",
    "ip6 proto 17",
    "proto 6",
    "ip proto \\udp",
    "ether proto 0x88cc",
    "ether proto \\arp",
    "host 192.0.2.1",
    "src host 192.0.2.1",
    "dst 192.0.2.2",
    "src or dst host 192.0.2.3",
    "src and dst host 192.0.2.1",
    "ip host 192.0.2.1",
    "arp host 192.0.2.1",
    "host 2001:db8::1",
    "src 2001:db8::2",
    "ip6 host 2001:db8:1::1",
    "net 192.0.2.0/30",
    "net 192.0",
    "net 10",
    "src net 10.0.0.0 mask 255.0.0.0",
    "dst net 10.1.0.0/16",
    "net 2001:db8::/48",
    "dst net 2001:db8:1::/48",
    "net 0.0.0.0/0",
    "port 80",
    "src port 80",
    "dst port 443",
    "src and dst port 80",
    "tcp port 443",
    "udp port domain",
    "udp src port 53",
    "sctp port 80",
    "portrange 53-80",
    "tcp dst portrange 80-443",
    "portrange http-https",
    "port 80 or 443",
    "not port 80 and 443",
    "port 80 and not 443",
    "port (80 or 443)",
    "host 192.0.2.1 and (port 53 or port 80)",
    "host 192.0.2.1 or port 80 and tcp",
    "tcp && !port 80 || udp",
    "ether host 02:00:00:00:00:01",
    "ether src 2:0:0:0:0:2",
    "ether dst ff:ff:ff:ff:ff:ff",
    "broadcast",
    "multicast",
    "ether multicast",
    "ip multicast",
    "ip6 multicast",
    "less 90",
    "greater 120",
    "len > 100",
    "len - 14 >= 100 and ip",
    "vlan",
    "vlan 5",
    "vlan and ip",
    "vlan 5 and tcp port 80",
    "vlan and vlan 7",
    "vlan and vlan and host 192.0.2.1",
    "(vlan 5 and ip) or tcp",
    "not vlan and tcp",
    "vlan and ether[12:2] = 0x88a8",
    "ether[12:2] & 0xfff0 = 0x8100",
    "ether[13:2] != 0",
    "ether[10:4] = 0x00018100",
    "ether[0] & 1 = 0 and ip[16] >= 224",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
    "tcp[13] = 0x10",
    "tcp[13] & 1 != 0 or udp",
    "tcp[2:2] = 80",
    "tcp[4:4] > 0x80000000",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "udp[4:2] - 8 > 20",
    "ip[2:2] - ((ip[0] & 0xf) << 2) > 40",
    "ip[0] & 0xf != 5",
    "ip[6] & 0x20 != 0 or ip[6:2] & 0x1fff != 0",
    "ip[8] * 2 = 128",
    "ip[9] / 2 = 3",
    "(ip[1] % 4) = 2",
    "(ip[1] ^ 0xff) > 250",
    "ip[1] << 1 = 0x170",
    "icmp[icmptype] = icmp-echo",
    "icmp[icmptype] != icmp-echo and icmp[icmpcode] = 0",
    "icmp6[icmp6type] = icmp6-echo",
    "ip6[7] = 64",
    "ip6[6] = 44",
    "arp[6:2] = 1",
    "-1 = 0xffffffff and ip",
    "ip[0] = ip[0] and ip[12:4] < ip[16:4]",
    "2 > 1",
    "1 > 2",
    "",
];

/// Frames of all that the expressions are about, none shorter than Ethernet's shortest.
fn frames() -> Vec<Vec<u8>> {
    let mut random = Rng::new(5);
    (0..1_500).map(|_| frame(&mut random)).collect()
}

fn pick<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[(random.next_u64() % of.len() as u64) as usize]
}

fn frame(random: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let group = [
        [0xff; 6],
        [1, 0, 0x5e, 0, 0, 1],
        [2, 0, 0, 0, 0, 1],
        [2, 0, 0, 0, 0, 2],
    ];
    bytes.extend(pick(random, &group));
    bytes.extend(pick(random, &group[2..]));
    for _ in 0..pick(random, &[0, 0, 0, 1, 1, 2, 3]) {
        bytes.extend(pick(
            random,
            &[[0x81, 0], [0x81, 0], [0x88, 0xa8], [0x91, 0]],
        ));
        bytes.extend(pick(random, &[[0, 5], [0x60, 5], [0x20, 7], [0x0f, 0xff]]));
    }
    match random.next_u64() % 12 {
        0 => address_resolution(random, &mut bytes),
        1 => bytes.extend(pick(random, &[[0x88, 0xcc], [0, 50], [5, 0xdc], [6, 0]])),
        2..=7 => ip4(random, &mut bytes),
        _ => ip6(random, &mut bytes),
    }
    let length = bytes.len() + (random.next_u64() % 60) as usize;
    // Longer than all that a test reads, so that no verdict hangs on where a frame ends.
    bytes.resize(length.max(80), 0);
    bytes
}

const HOSTS: [[u8; 4]; 8] = [
    [192, 0, 2, 1],
    [192, 0, 2, 2],
    [192, 0, 2, 3],
    [192, 0, 3, 1],
    [10, 1, 2, 3],
    [10, 2, 0, 0],
    [224, 0, 0, 1],
    [255, 255, 255, 255],
];

fn address_resolution(random: &mut Rng, bytes: &mut Vec<u8>) {
    bytes.extend(pick(random, &[[8, 6], [8, 6], [0x80, 0x35]]));
    bytes.extend([0, 1, 8, 0, 6, 4, 0, pick(random, &[1, 2])]);
    bytes.extend([2, 0, 0, 0, 0, 1]);
    bytes.extend(pick(random, &HOSTS));
    bytes.extend([0; 6]);
    bytes.extend(pick(random, &HOSTS));
}

fn ip4(random: &mut Rng, bytes: &mut Vec<u8>) {
    bytes.extend([8, 0]);
    let words = pick(random, &[0, 0, 0, 1, 10]);
    let protocol = pick(random, &[6, 6, 6, 17, 17, 1, 132, 2, 47, 50]);
    let fragment = pick(random, &[[0, 0], [0x40, 0], [0x20, 0], [0x20, 100], [0, 3]]);
    bytes.extend([0x45 + words, pick(random, &[0, 2, 0xb8, 0xfe])]);
    bytes.extend(((random.next_u64() % 1_500) as u16).to_be_bytes());
    bytes.extend([
        1,
        2,
        fragment[0],
        fragment[1],
        pick(random, &[1, 64]),
        protocol,
        0,
        0,
    ]);
    bytes.extend(pick(random, &HOSTS));
    bytes.extend(pick(random, &HOSTS));
    bytes.extend(vec![1; 4 * usize::from(words)]);
    transport(random, protocol, bytes);
}

fn ip6(random: &mut Rng, bytes: &mut Vec<u8>) {
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 50]);
    let protocol = pick(random, &[6, 6, 17, 58, 132, 50]);
    let is_fragment = pick(random, &[false, false, false, true]);
    bytes.extend([
        if is_fragment { 44 } else { protocol },
        pick(random, &[1, 64, 255]),
    ]);
    for _ in 0..2 {
        bytes.extend(pick(
            random,
            &[
                [0x20, 1, 0x0d, 0xb8],
                [0x20, 1, 0x0d, 0xb8],
                [0xff, 2, 0, 0],
            ],
        ));
        bytes.extend([
            0,
            pick(random, &[0, 1]),
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            pick(random, &[1, 2]),
        ]);
    }
    if is_fragment {
        bytes.extend([protocol, 0, 0, pick(random, &[0, 1, 8]), 0, 0, 0, 1]);
    }
    transport(random, protocol, bytes);
}

fn transport(random: &mut Rng, protocol: u8, bytes: &mut Vec<u8>) {
    match protocol {
        1 | 58 => bytes.extend([pick(random, &[0, 8, 11, 128, 135]), pick(random, &[0, 1])]),
        2 | 47 | 50 => bytes.extend([0; 8]),
        _ => {
            for _ in 0..2 {
                bytes.extend(pick(random, &[80_u16, 80, 443, 53, 54, 444, 1]).to_be_bytes());
            }
        }
    }
    if protocol == 17 {
        bytes.extend(((random.next_u64() % 60) as u16).to_be_bytes());
    }
    if protocol == 6 {
        bytes.extend((random.next_u64() as u32).to_be_bytes());
        let options = pick(random, &[0_u8, 0, 3]);
        let flags = pick(random, &[2, 0x12, 0x10, 0x10, 0x18, 0x11, 4]);
        bytes.extend([0, 0, 0, 0, (5 + options) << 4, flags, 1, 0, 0, 0, 0, 0]);
        bytes.extend(vec![1; 4 * usize::from(options)]);
        bytes.extend(pick(random, &[*b"GET /", *b"POST "]));
    }
}

/// A frame as a packet socket has it: the outer tag, of a kind that the kernel takes out, beside it.
struct Seen<'f> {
    bytes: Vec<u8>,
    tag: Option<(u16, u16)>,
    outgoing: bool,
    whole: &'f [u8],
}

impl<'f> Seen<'f> {
    fn whole(frame: &'f [u8]) -> Self {
        Self {
            bytes: frame.to_vec(),
            tag: None,
            outgoing: false,
            whole: frame,
        }
    }

    fn by_socket(frame: &'f [u8], outgoing: bool) -> Self {
        let kind = u16::from_be_bytes([frame[12], frame[13]]);
        let mut seen = Self {
            outgoing,
            ..Self::whole(frame)
        };
        if [0x8100, 0x88a8].contains(&kind) {
            seen.bytes.drain(12..16);
            seen.tag = Some((kind, u16::from_be_bytes([frame[14], frame[15]])));
        }
        seen
    }

    fn load(&self, at: u32, size: u32) -> Option<u32> {
        if let Some(word) = at.checked_sub(0xffff_f000) {
            return Some(match word {
                4 => u32::from(self.outgoing) * 4,
                44 => self.tag.map_or(0, |(_, tag)| tag.into()),
                48 => u32::from(self.tag.is_some()),
                60 => self.tag.map_or(0, |(kind, _)| kind.into()),
                other => panic!("no program asks for word {other}"),
            });
        }
        let bytes = self.bytes.get(at as usize..)?.get(..size as usize)?;
        Some(
            bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | u32::from(byte)),
        )
    }
}

/// Runs a program; what it returns, or 0 where it reads beyond the packet or divides by zero.
fn run(program: &[Instruction], packet: &Seen<'_>) -> u32 {
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    loop {
        let Instruction {
            code,
            jump_true,
            jump_false,
            k,
        } = program[at];
        at += 1;
        let size = match code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            _ => 1,
        };
        let operand = if code & 0x08 == 0 { k } else { x };
        match code & 0x07 {
            0 => {
                let loaded = match code & 0xe0 {
                    0x00 => Some(k),
                    0x20 => packet.load(k, size),
                    0x40 => packet.load(x.wrapping_add(k), size),
                    0x80 => Some(packet.bytes.len() as u32),
                    mode => panic!("load mode {mode:#x}"),
                };
                let Some(value) = loaded else { return 0 };
                a = value;
            }
            1 => match code {
                0x61 => x = memory[k as usize],
                0xb1 => {
                    let Some(byte) = packet.load(k, 1) else {
                        return 0;
                    };
                    x = 4 * (byte & 0xf);
                }
                _ => panic!("load X {code:#x}"),
            },
            2 => memory[k as usize] = a,
            4 => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 if operand == 0 => return 0,
                    0x30 => a / operand,
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a << (operand & 31),
                    0x70 => a >> (operand & 31),
                    0x80 => a.wrapping_neg(),
                    0x90 if operand == 0 => return 0,
                    0x90 => a % operand,
                    0xa0 => a ^ operand,
                    operation => panic!("operation {operation:#x}"),
                };
            }
            5 => {
                let holds = match code & 0xf0 {
                    0x00 => {
                        at += k as usize;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    jump => panic!("jump {jump:#x}"),
                };
                at += usize::from(if holds { jump_true } else { jump_false });
            }
            6 => return k,
            7 => x = a,
            _ => unreachable!("three bits"),
        }
    }
}

/// What the kernel asks of a program (bpf_check_classic): every way goes forward and ends in a return, no
/// scratch word is read that was not written on every way there, nothing is divided by a zero that
/// stands in the program.
fn assert_valid(program: &[Instruction]) {
    assert!((1..=INSTRUCTIONS_MAX).contains(&program.len()));
    assert_eq!(program.last().unwrap().code, 6);
    let mut written = vec![u16::MAX; program.len()];
    written[0] = 0;
    for (at, i) in program.iter().enumerate() {
        let mut now = written[at];
        let next: &[usize] = match (i.code & 7, i.code) {
            (6, _) => &[],
            (5, 0x05) => &[i.k as usize],
            (5, _) => &[usize::from(i.jump_true), usize::from(i.jump_false)],
            _ => &[0],
        };
        match i.code {
            0x02 => now |= 1 << i.k,
            0x61 => assert!(now & 1 << i.k != 0, "word {} at {at}", i.k),
            0x34 | 0x94 => assert_ne!(i.k, 0, "division at {at}"),
            0x64 | 0x74 => assert!(i.k < 32, "shift at {at}"),
            _ => {}
        }
        for distance in next {
            let target = at + 1 + distance;
            assert!(target < program.len(), "from {at} to {target}");
            written[target] &= now;
        }
    }
}

const WORDS: &[&str] = &[
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "or",
    "and",
    "not",
    "!",
    "&&",
    "||",
    "(",
    ")",
    "(",
    ")",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "icmp6",
    "ether",
    "proto",
    "vlan",
    "less",
    "len",
    "10.0.0.1",
    "::1",
    "2001:db8::/32",
    "10",
    "/",
    "8",
    "80-90",
    "80",
    "5",
    "0",
    "tcp[13]",
    "ip[",
    "ether[",
    "[",
    "]",
    ":",
    "2",
    "4",
    "=",
    "!=",
    ">",
    "<=",
    "&",
    "|",
    "^",
    "%",
    "+",
    "-",
    "*",
    "<<",
    "40",
    "tcp[ip[0]:2]",
    "mask",
    "broadcast",
    "multicast",
    "02:00:00:00:00:01",
    "mpls",
    "\\tcp",
    "é",
];

proptest! {
    #[test]
    fn any_row_of_words_is_refused_in_place_or_makes_valid_programs(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..24),
        noise in ".{0,8}",
    ) {
        let text = words.join(" ") + &noise;
        match Filter::parse(&text) {
            Ok(filter) => {
                for way in [Way::In, Way::Out, Way::Both] {
                    assert_valid(&filter.for_socket(96, way).unwrap());
                }
                assert_valid(&filter.for_frames(96).unwrap());
            }
            Err(error) => {
                prop_assert!(text.get(error.at()).is_some(), "{error}");
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}

fn parsed(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Numbers of the frames that our program takes.
fn ours(text: &str, frames: &[Vec<u8>]) -> Vec<usize> {
    let program = parsed(text).for_frames(96).unwrap();
    assert_valid(&program);
    let taken = frames.iter().enumerate().filter(|(_, frame)| {
        let verdict = run(&program, &Seen::whole(frame));
        assert!([0, 96].contains(&verdict));
        verdict > 0
    });
    taken.map(|(number, _)| number).collect()
}

#[test]
fn verdicts_are_those_of_tcpdump() {
    let frames = frames();
    let scratch = std::env::temp_dir().join(format!("goodput-filter-{}", std::process::id()));
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_536, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, frame) in frames.iter().enumerate() {
        // The second is the frame's number.
        for word in [number, 0, frame.len(), frame.len()] {
            file.extend((word as u32).to_le_bytes());
        }
        file.extend(frame);
    }
    fs::write(&scratch, file).unwrap();
    let mut narrow = 0;
    for expression in EXPRESSIONS {
        let taken = ours(expression, &frames);
        narrow += usize::from(!taken.is_empty() && taken.len() < frames.len());
        let mut tcpdump = Command::new("tcpdump");
        tcpdump
            .args(["-w", "-", "-r"])
            .arg(&scratch)
            .args(["--", expression]);
        let Ok(output) = tcpdump.output() else {
            testing::skipped("no tcpdump here");
            break;
        };
        // It refuses what takes nothing.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_empty = said.contains("rejects all packets");
        assert!(output.status.success() || is_empty, "{expression}: {said}");
        let theirs = numbers(&output.stdout);
        assert_eq!(taken, theirs, "{expression}");
    }
    fs::remove_file(&scratch).unwrap();
    // A table whose expressions take all or nothing would prove little.
    assert!(narrow >= EXPRESSIONS.len() - 4 || narrow == 1, "{narrow}");
}

/// The seconds of a classic capture's packets.
fn numbers(file: &[u8]) -> Vec<usize> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut found) = (24, Vec::new());
    while at < file.len() {
        found.push(word(at));
        at += 16 + word(at + 8);
    }
    found
}

#[test]
fn a_socket_judges_as_a_reader_of_the_file_does() {
    let frames = frames();
    for expression in EXPRESSIONS {
        let filter = parsed(expression);
        let on_file = filter.for_frames(1).unwrap();
        for way in [Way::In, Way::Out, Way::Both] {
            let live = filter.for_socket(1, way).unwrap();
            assert_valid(&live);
            for frame in &frames {
                for outgoing in [false, true] {
                    let goes = match way {
                        Way::In => !outgoing,
                        Way::Out => outgoing,
                        Way::Both => true,
                    };
                    let expected = goes && run(&on_file, &Seen::whole(frame)) == 1;
                    // Drivers that cannot tag have the tag in the bytes of what they send.
                    for seen in [
                        Seen::by_socket(frame, outgoing),
                        Seen {
                            outgoing,
                            ..Seen::whole(frame)
                        },
                    ] {
                        let verdict = run(&live, &seen) == 1;
                        assert_eq!(verdict, expected, "{expression} {way:?} {:x?}", seen.whole);
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_wrong_is_pointed_at() {
    for (text, word, says) in [
        ("tcp and foo", "foo", "no word of the filter language"),
        ("tcp udp", "udp", "does not belong here"),
        ("host", "", "address such as"),
        ("host example.org", "example.org", "not looked up"),
        ("host 10.0.0.1/8", "/", "'net' only"),
        ("host 02:00:00:00:00:01", "02:00:00:00:00:01", "ether host"),
        ("tcp host 10.0.0.1", "tcp host", "goes with ether, ip"),
        ("ip port 80", "ip port", "tcp, udp and sctp"),
        ("port 65536", "65536", "up to 65535"),
        ("port 80-90", "80-90", "portrange"),
        ("portrange 80", "80", "range of ports"),
        ("net 10.0.0.1/8", "10.0.0.1", "beyond its prefix"),
        ("net 10.0.0.0/33", "33", "0 to 32 bits"),
        ("net 2001:db8::/129", "129", "0 to 128 bits"),
        ("ip6 net 10.0.0.0/8", "10.0.0.0", "IPv4"),
        ("arp host ::1", "::1", "IPv6"),
        ("vlan 4096", "4096", "0 to 4095"),
        ("ether proto 50", "50", "LLC"),
        ("ip proto 300", "300", "255"),
        ("(tcp or udp", "", "')' is missing"),
        ("tcp)", ")", "does not belong"),
        ("tcp[0", "", "']' is missing"),
        ("tcp[0:3] = 1", "3", "1, 2 or 4"),
        ("tcp[0]", "", "comparison"),
        ("tcp[0] = ", "", "number is missing"),
        ("ip[65536] = 1", "65536", "beyond any packet"),
        ("ip[0] / 0 = 1", "/", "zero"),
        ("ip[0] << 32 = 1", "<<", "31 bits"),
        ("ip[0] ^ 1 | 2 = 1", "|", "parentheses"),
        ("ip[0] + 7 % 4 = 1", "+", "parentheses"),
        ("ether[ip[0]] = 1", "ip", "must be a number"),
        ("mpls 5", "mpls", "not understood"),
        ("inbound", "inbound", "--direction"),
        ("ip broadcast", "broadcast", "multicast"),
        ("ether", "ether", "ether host"),
        ("192.0.2.1", "192.0.2.1", "word before it"),
        ("not", "", "test is missing"),
        ("tcp and ü", "ü", "nothing that a filter"),
    ] {
        let error = Filter::parse(text).expect_err(text);
        assert_eq!(&text[error.at()], word, "{text}: {error}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
    let told = Filter::parse("tcp and foo bar").unwrap_err().to_string();
    let lines: Vec<&str> = told.lines().skip(1).collect();
    assert_eq!(lines, ["  tcp and foo bar", "          ^^^"]);
}

#[test]
fn jumps_reach_across_long_programs_and_too_long_ones_are_refused() {
    let hosts = |count: u32| {
        let host = |i: u32| format!("src 10.{}.{}.1", i >> 8, i & 255);
        (0..count).map(host).collect::<Vec<_>>().join(" or ")
    };
    let frame_of = |i: u32| {
        let mut frame = vec![0; 80];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[26..30].copy_from_slice(&[10, (i >> 8) as u8, i as u8, 1]);
        frame
    };
    for count in (1..90).chain([300]) {
        let program = parsed(&hosts(count)).for_socket(1, Way::Both);
        let program = program.unwrap_or_else(|e| panic!("{count}: {:.60}", e.to_string()));
        assert_valid(&program);
        for (i, taken) in [(0, 1), (count - 1, 1), (count, 0)] {
            assert_eq!(
                run(&program, &Seen::whole(&frame_of(i))),
                taken,
                "{i} of {count}"
            );
        }
    }
    let error = parsed(&hosts(3_000)).for_frames(1).unwrap_err();
    assert!(error.to_string().contains("4096"), "{error}");
    let nested = |n: usize| "(".repeat(n) + "tcp" + &")".repeat(n);
    assert!(Filter::parse(&nested(48)).is_ok());
    assert!(Filter::parse(&nested(49)).is_err());
    assert!(Filter::parse(&"(".repeat(60_000)).is_err());
    assert!(Filter::parse(&"not ".repeat(10_001)).is_err());
    let odd = "not ".repeat(10_001) + "tcp";
    assert_eq!(parsed(&odd).for_frames(1), parsed("not tcp").for_frames(1));
    assert!(Filter::parse(&"tcp and udp or ".repeat(4_000)).is_err());
    assert!(Filter::parse(&("1".to_owned() + &"+1".repeat(20_000) + "=1")).is_err());
    assert!(Filter::parse(&" ".repeat(65_537)).is_err());
}
