//! STAMP over the loopback interface, and its packets as tshark reads them.
//!
//! No assertion rests on how long something takes: both ends share one clock here, so what is stated
//! of delays follows from the order of events.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::thread::JoinHandle;

use measure::stamp::{Probed, Probing, Reflector, probe};
use measure::{MeasureError, Stop};
use units::Duration;
use wire::stamp::{ErrorEstimate, Format, PACKET_BYTES, ReflectorPacket, SenderPacket, Timestamp};

const PATIENCE: Duration = Duration::from_s(30);

struct Reflecting {
    addr: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), MeasureError>>>,
}

impl Reflecting {
    fn on(addr: &str) -> Option<Self> {
        let reflector = Reflector::bind(addr.parse().unwrap()).ok()?;
        let (addr, stop) = (reflector.local_addr(), Stop::new());
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || reflector.serve(&stop)
        });
        Some(Self {
            addr,
            stop,
            thread: Some(thread),
        })
    }

    fn new() -> Self {
        Self::on("127.0.0.1:0").unwrap()
    }

    /// A socket that talks to it, for what no honest sender does.
    fn stranger(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(self.addr).unwrap();
        socket.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
        socket
    }
}

impl Drop for Reflecting {
    fn drop(&mut self) {
        self.stop.stop();
        let result = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            result.unwrap().unwrap().unwrap();
        }
    }
}

fn probing(count: u32) -> Probing {
    Probing {
        count,
        interval: Duration::from_ms(1),
        wait: PATIENCE,
        ..Probing::default()
    }
}

fn run(addr: SocketAddr, probing: &Probing) -> Probed {
    probe(&addr.to_string(), probing, &Stop::new()).unwrap()
}

#[test]
fn every_probe_is_answered_once_with_times_in_order() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let Some(reflecting) = Reflecting::on(any) else {
            testing::skipped(format_args!("this machine has no {any}"));
            continue;
        };
        for (format, bytes) in [(Format::Ntp, 44), (Format::Ptp, 44), (Format::Ntp, 1200)] {
            let probing = Probing {
                format,
                bytes,
                ..probing(50)
            };
            let probed = run(reflecting.addr, &probing);
            assert_eq!((probed.sent, probed.strangers), (50, 0), "{any}");
            let numbers = probed.replies.iter();
            let numbers: Vec<_> = numbers
                .map(|a| (a.sender_sequence, a.reflector_sequence))
                .collect();
            assert_eq!(
                numbers,
                (0..50).map(|n| (n, n)).collect::<Vec<_>>(),
                "{any}"
            );
            for a in &probed.replies {
                // One clock, and 1 ns of rounding in a stamp that travels.
                assert!(a.t1_ns <= a.t2_ns + 1 && a.t2_ns <= a.t3_ns + 1, "{a:?}");
                assert!(a.t3_ns <= a.t4_ns + 1, "{a:?}");
                assert!(a.hops_left > 0 && a.error_ns >= 22_000, "{a:?}");
            }
        }
    }
}

#[test]
fn answers_are_as_long_as_questions_and_short_ones_get_none() {
    let reflecting = Reflecting::new();
    let socket = reflecting.stranger();
    let mut buffer = [0; 2_000];
    // What is too short is not answered, or the next answer would not be the next question's.
    for bytes in [0, 1, PACKET_BYTES - 1] {
        socket.send(&vec![0; bytes]).unwrap();
    }
    for bytes in [PACKET_BYTES, PACKET_BYTES + 1, 1_400] {
        socket.send(&vec![0; bytes]).unwrap();
        assert_eq!(socket.recv(&mut buffer).unwrap(), bytes);
    }
    let answer = ReflectorPacket::parse(&buffer).unwrap();
    assert_eq!((answer.sequence, answer.sender_sequence), (2, 0));
}

#[test]
fn unknown_extensions_come_back_marked() {
    let reflecting = Reflecting::new();
    let socket = reflecting.stranger();
    let mut datagram = vec![0; PACKET_BYTES];
    datagram.extend_from_slice(&[0x80, 200, 0, 2, 5, 6]);
    socket.send(&datagram).unwrap();
    let mut buffer = [0; 100];
    let len = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[PACKET_BYTES..len], &[0x80, 200, 0, 2, 5, 6]);
}

#[test]
fn an_answer_that_comes_back_is_not_answered_again() {
    let reflecting = Reflecting::new();
    let socket = reflecting.stranger();
    let mut buffer = [0; PACKET_BYTES];
    socket.send(&[0; PACKET_BYTES]).unwrap();
    socket.recv(&mut buffer).unwrap();
    // As another reflector would answer it: with the first one's departure as the sender's stamp.
    let first = ReflectorPacket::parse(&buffer).unwrap();
    let looped = ReflectorPacket {
        sender_timestamp: first.timestamp,
        sender_error: first.error,
        sender_sequence: first.sequence,
        ..first
    };
    looped.emit(&mut buffer).unwrap();
    socket.send(&buffer).unwrap();
    // The next honest question gets the next answer.
    let question = SenderPacket {
        sequence: 77,
        ..SenderPacket::default()
    };
    question.emit(&mut buffer).unwrap();
    socket.send(&buffer).unwrap();
    socket.recv(&mut buffer).unwrap();
    let answer = ReflectorPacket::parse(&buffer).unwrap();
    assert_eq!((answer.sender_sequence, answer.sequence), (77, 1));
}

#[test]
fn forged_answers_are_strangers() {
    let forger = UdpSocket::bind("127.0.0.1:0").unwrap();
    forger.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
    let addr = forger.local_addr().unwrap();
    let forging = std::thread::spawn(move || {
        let mut buffer = [0; 200];
        let (_, from) = forger.recv_from(&mut buffer).unwrap();
        let asked = SenderPacket::parse(&buffer).unwrap();
        let honest = ReflectorPacket {
            session: asked.session,
            sender_timestamp: asked.timestamp,
            ..ReflectorPacket::default()
        };
        let wrong_stamp = ReflectorPacket {
            sender_timestamp: Timestamp(asked.timestamp.0 ^ 1),
            ..honest
        };
        let wrong_session = ReflectorPacket {
            session: asked.session ^ 2,
            ..honest
        };
        let unasked = ReflectorPacket {
            sender_sequence: 5,
            ..honest
        };
        forger.send_to(b"short", from).unwrap();
        for packet in [wrong_stamp, wrong_session, unasked, honest] {
            let mut bytes = [0; PACKET_BYTES];
            packet.emit(&mut bytes).unwrap();
            forger.send_to(&bytes, from).unwrap();
        }
    });
    let probed = run(addr, &probing(1));
    forging.join().unwrap();
    assert_eq!((probed.replies.len(), probed.strangers), (1, 4));
}

#[test]
fn nobody_there_is_loss_and_no_failure() {
    let addr = SocketAddr::from(([127, 0, 0, 1], testing::free_port()));
    let probing = Probing {
        wait: Duration::from_ms(1),
        ..probing(5)
    };
    let probed = run(addr, &probing);
    assert_eq!((probed.sent, probed.replies.len()), (5, 0));
}

/// A capture file of Ethernet, IPv4 and UDP around a payload, by hand.
fn capture(payloads: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for payload in payloads {
        let udp_len = u16::try_from(8 + payload.len()).unwrap();
        let mut frame = vec![0; 12];
        frame.extend_from_slice(&[8, 0, 0x45, 0]);
        frame.extend_from_slice(&(udp_len + 20).to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        for field in [40_000, 862, udp_len, 0] {
            frame.extend_from_slice(&u16::to_be_bytes(field));
        }
        frame.extend_from_slice(payload);
        let len = u32::try_from(frame.len()).unwrap();
        for word in [0, 0, len, len] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&frame);
    }
    file
}

/// tshark knows STAMP's predecessor, TWAMP-Test (RFC 5357), whose unauthenticated packets have the same
/// fields in the same places.
#[test]
fn tshark_reads_what_was_written() {
    let answer = ReflectorPacket {
        sequence: 0x0102_0304,
        timestamp: Timestamp::from_unix_ns(1_795_000_000_250_000_000, Format::Ntp),
        error: ErrorEstimate::new(20_000, true, Format::Ntp),
        session: 0,
        received: Timestamp::from_unix_ns(1_795_000_000_125_000_000, Format::Ntp),
        sender_sequence: 0x0506_0708,
        sender_timestamp: Timestamp::from_unix_ns(1_795_000_000_000_000_000, Format::Ntp),
        sender_error: ErrorEstimate::new(2_000, false, Format::Ptp),
        sender_ttl: 61,
    };
    let mut bytes = [0; PACKET_BYTES];
    answer.emit(&mut bytes).unwrap();
    let folder = std::env::temp_dir().join(format!("goodput-stamp-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("stamp.pcap");
    std::fs::write(&file, capture(&[&bytes])).unwrap();
    let shown = Command::new("tshark")
        .args(["-d", "udp.port==862,twamp.test", "-T", "json", "-r"])
        .arg(&file)
        .output();
    std::fs::remove_dir_all(&folder).unwrap();
    let Ok(shown) = shown else {
        testing::skipped("tshark is not installed");
        return;
    };
    let packets: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let fields = &packets[0]["_source"]["layers"]["twamp.test"];
    let text = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(text("twamp.test.seq_number"), 0x0102_0304.to_string());
    assert_eq!(
        text("twamp.test.sender_seq_number"),
        0x0506_0708.to_string()
    );
    assert_eq!(text("twamp.test.sender_ttl"), "61", "{fields}");
    for (name, fraction) in [
        ("twamp.test.timestamp", ".250000000"),
        ("twamp.test.receive_timestamp", ".125000000"),
        ("twamp.test.sender_timestamp", ".000000000"),
    ] {
        let shown = text(name);
        // 2026-11-18 11:06:40 UTC.
        assert!(
            shown.contains("06:40") && shown.contains(fraction),
            "{shown}"
        );
    }
}
