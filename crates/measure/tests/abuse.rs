//! `serve` under abuse: bounded memory, threads and descriptors, no hang, others served meanwhile.
//!
//! Server and abusers share this process, so what is counted here is an upper bound of what the
//! server takes; alone in its process for that. No assertion rests on how long something takes.

#[path = "all/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use measure::message::{Kind, Message, data_opening, greeting, token_from_hex};
use measure::{Direction, Limits};
use units::Duration;

use crate::common::{Serving, alone, hear, read_to_end, say};

/// What this process has.
#[derive(Clone, Copy, Debug)]
struct Usage {
    threads: u64,
    resident_kib: u64,
    descriptors: usize,
}

impl Usage {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let value = |key: &str| -> u64 {
            let line = status.lines().find(|l| l.starts_with(key)).unwrap();
            line.split_ascii_whitespace()
                .nth(1)
                .unwrap()
                .parse()
                .unwrap()
        };
        Self {
            threads: value("Threads:"),
            resident_kib: value("VmRSS:"),
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        }
    }

    /// As soon as no more threads run than `before`: a session's outlive its last byte by a moment. In any
    /// case after ten seconds.
    fn settled(before: &Self) -> Self {
        for _ in 0..500 {
            if Self::now().threads <= before.threads {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Self::now()
    }
}

/// As many connections as descriptors allow, up to 10,000, with some to spare for the server.
fn most_connections() -> usize {
    let allowed = sys::host::raise_descriptor_limit();
    let spare = usize::try_from(allowed)
        .unwrap_or(usize::MAX)
        .saturating_sub(1_000);
    let count = spare.min(10_000);
    assert!(
        count >= 4_000,
        "{allowed} descriptors are too few for this test"
    );
    println!("{count} connections");
    count
}

#[test]
fn ten_thousand_connections_that_say_nothing_keep_nobody_out() {
    let _alone = alone();
    let count = most_connections();
    // Nobody is dropped for silence while the test lasts: the bound alone has to do.
    let serving = Serving::with(Limits {
        silence: Duration::from_s(600),
        ..Limits::default()
    });
    serving.assert_serves("127.0.0.1");
    let before = Usage::now();
    let held: Vec<TcpStream> = (0..count).map(|_| serving.stranger()).collect();
    for source in ["127.0.0.1", "127.0.0.2"] {
        serving.assert_serves(source);
    }
    let during = Usage::now();
    println!("before {before:?}, during {during:?}");
    assert!(
        during.threads <= before.threads + 4,
        "a thread for none of them"
    );
    let grown = during.resident_kib.saturating_sub(before.resident_kib);
    assert!(grown < 32 << 10, "{grown} KiB more");
    // 256 of them, the listener's and the last session's.
    let server = during.descriptors - before.descriptors.min(during.descriptors);
    assert!(
        server <= count + 256 + 16,
        "{server} descriptors for {count}"
    );
    drop(held);
    serving.assert_serves("127.0.0.1");
}

#[test]
fn ten_thousand_half_greetings_that_go_on_byte_by_byte_keep_nobody_out() {
    let _alone = alone();
    let count = most_connections();
    let serving = Serving::with(Limits {
        silence: Duration::from_s(600),
        ..Limits::default()
    });
    let mut held: Vec<TcpStream> = (0..count).map(|_| serving.stranger()).collect();
    for byte in &greeting(Kind::Control)[..4] {
        for stream in &mut held {
            // Most of them have been dropped by now.
            let _ = stream.write_all(&[*byte]);
        }
        serving.assert_serves("127.0.0.1");
    }
}

#[test]
fn sessions_of_one_address_that_say_nothing_leave_one_for_others() {
    let _alone = alone();
    let serving = Serving::with(Limits {
        sessions: 4,
        sessions_per_address: 3,
        silence: Duration::from_s(600),
        ..Limits::default()
    });
    let before = Usage::now();
    let mut held: Vec<TcpStream> = (0..500).map(|_| serving.stranger()).collect();
    for stream in &mut held {
        let _ = stream.write_all(&greeting(Kind::Control));
    }
    serving.assert_serves("127.0.0.2");
    assert!(Usage::now().threads <= before.threads + 8);
    let welcomed = |stream: &mut TcpStream| {
        let mut words = [0; 40];
        stream.read_exact(&mut words).is_ok() && !String::from_utf8_lossy(&words).contains("busy")
    };
    // The rest hear that the server is busy, or were dropped before they had said anything.
    assert_eq!(
        held.iter_mut()
            .filter_map(|s| welcomed(s).then_some(()))
            .count(),
        3
    );
}

#[test]
fn huge_parameters_are_refused_and_cost_nothing() {
    let _alone = alone();
    let serving = Serving::with(Limits::default());
    serving.assert_serves("127.0.0.1");
    let before = Usage::now();
    let max = u64::MAX;
    let long = "x".repeat(60_000);
    for (key, value) in [
        ("streams", "65535".to_owned()),
        ("streams", "0".to_owned()),
        ("duration_ns", max.to_string()),
        ("ramp_ns", max.to_string()),
        ("block_bytes", u32::MAX.to_string()),
        ("read_bytes", u32::MAX.to_string()),
        ("sample_interval_ns", "0".to_owned()),
        ("drain_ns", max.to_string()),
        ("congestion", format!("\"{long}\"")),
        ("max_pacing_bits_per_second", "0".to_owned()),
        ("window_clamp_bytes", "0".to_owned()),
        ("window_clamp_bytes", max.to_string()),
    ] {
        let mut spec: serde_json::Value = serde_json::from_str(START).unwrap();
        spec[key] = serde_json::from_str(&value).unwrap();
        let stream = greeted(serving.addr);
        say(
            &stream,
            &Message::Start(serde_json::from_value(spec).unwrap()),
        );
        let answer = hear(&stream);
        assert!(matches!(answer, Message::Refused(_)), "{key}: {answer:?}");
    }
    for len in [(64 << 10) + 1, u32::MAX] {
        let mut stream = greeted(serving.addr);
        stream.write_all(&len.to_be_bytes()).unwrap();
        let words = String::from_utf8_lossy(&read_to_end(&mut stream)).into_owned();
        assert!(
            words.contains("exceeds the limit of 65536"),
            "{len}: {words}"
        );
    }
    // As long as may be: read, and found to be nonsense.
    let mut stream = greeted(serving.addr);
    let mut message = (64_u32 << 10).to_be_bytes().to_vec();
    message.resize(4 + (64 << 10), b'[');
    stream.write_all(&message).unwrap();
    let words = String::from_utf8_lossy(&read_to_end(&mut stream)).into_owned();
    assert!(words.contains("not a message"), "{words}");
    let grown = Usage::now()
        .resident_kib
        .saturating_sub(before.resident_kib);
    assert!(grown < 32 << 10, "{grown} KiB more");
    serving.assert_serves("127.0.0.1");
}

#[test]
fn buffers_of_any_size_are_cut_by_the_kernel() {
    let _alone = alone();
    let serving = Serving::with(Limits::default());
    let mut spec: serde_json::Value = serde_json::from_str(START).unwrap();
    for key in [
        "send_buffer_bytes",
        "receive_buffer_bytes",
        "max_pacing_bits_per_second",
    ] {
        spec[key] = u64::MAX.into();
    }
    let talk = Talk::begin(
        serving.addr,
        &Message::Start(serde_json::from_value(spec).unwrap()),
    );
    let talk = talk.until(Step::Ready);
    drop(talk);
    serving.assert_serves("127.0.0.1");
}

#[test]
fn wrong_protocols_of_all_kinds_leave_nothing_behind() {
    let _alone = alone();
    let serving = Serving::with(Limits::default());
    serving.assert_serves("127.0.0.1");
    let before = Usage::now();
    for words in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"SSH-2.0-x\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00".to_vec(),
        b"goodput-measure 002 ctl\n".to_vec(),
        b"goodput-measure 001 srv\n".to_vec(),
        vec![0; 100],
        vec![0xff; 100_000],
        data_opening([7; 16], u16::MAX).to_vec(),
    ] {
        for _ in 0..20 {
            let mut stream = serving.stranger();
            // It may be closed before all of it is said.
            let _ = stream.write_all(&words);
            read_to_end(&mut stream);
        }
    }
    serving.assert_serves("127.0.0.1");
    let after = Usage::settled(&before);
    assert!(after.threads <= before.threads, "{before:?} {after:?}");
}

/// Where a client leaves, in the order in which it gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Connected,
    HalfGreeting,
    Greeting,
    Started,
    HalfDataOpening,
    OneStream,
    Ready,
    Gone,
    Payload,
    Stopped,
}

const STEPS: [Step; 10] = [
    Step::Connected,
    Step::HalfGreeting,
    Step::Greeting,
    Step::Started,
    Step::HalfDataOpening,
    Step::OneStream,
    Step::Ready,
    Step::Gone,
    Step::Payload,
    Step::Stopped,
];

/// A client that goes as far as it is told. Its wish has two streams.
struct Talk {
    addr: SocketAddr,
    start: Message,
    control: TcpStream,
    data: Vec<TcpStream>,
}

impl Talk {
    fn begin(addr: SocketAddr, start: &Message) -> Self {
        Self {
            addr,
            start: start.clone(),
            control: open(addr),
            data: Vec::new(),
        }
    }

    fn until(mut self, last: Step) -> Self {
        let mut token = [0; 16];
        for step in STEPS.into_iter().take_while(|&step| step <= last) {
            let line = greeting(Kind::Control);
            match step {
                Step::Connected => {}
                Step::HalfGreeting => self.control.write_all(&line[..12]).unwrap(),
                Step::Greeting => {
                    self.control.write_all(&line[12..]).unwrap();
                    self.control.read_exact(&mut [0; 24]).unwrap();
                    assert!(matches!(hear(&self.control), Message::Welcome(_)));
                }
                Step::Started => {
                    say(&self.control, &self.start);
                    let Message::Accept { token: hex } = hear(&self.control) else {
                        panic!("not accepted");
                    };
                    token = token_from_hex(&hex).unwrap();
                }
                Step::HalfDataOpening => {
                    let mut stream = open(self.addr);
                    stream.write_all(&data_opening(token, 0)[..30]).unwrap();
                    self.data.push(stream);
                }
                Step::OneStream => self.data[0]
                    .write_all(&data_opening(token, 0)[30..])
                    .unwrap(),
                Step::Ready => {
                    let mut stream = open(self.addr);
                    stream.write_all(&data_opening(token, 1)).unwrap();
                    self.data.push(stream);
                    assert_eq!(hear(&self.control), Message::Ready);
                }
                Step::Gone => say(&self.control, &Message::Go),
                // Up it is taken, down it lies in the server's way; both are fine.
                Step::Payload => drop(self.data[0].write_all(&[0; 10_000])),
                Step::Stopped => say(&self.control, &Message::Stop),
            }
        }
        self
    }
}

fn open(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    let patience = Some(common::PATIENCE.to_std());
    stream.set_read_timeout(patience).unwrap();
    stream
}

/// A control connection that has been welcomed.
fn greeted(addr: SocketAddr) -> TcpStream {
    let nothing = Message::Stop;
    Talk::begin(addr, &nothing).until(Step::Greeting).control
}

fn start(direction: Direction) -> Message {
    let mut spec: serde_json::Value = serde_json::from_str(START).unwrap();
    spec["direction"] = serde_json::to_value(direction).unwrap();
    Message::Start(serde_json::from_value(spec).unwrap())
}

const START: &str = r#"{"direction":"up","streams":2,"duration_ns":1000000000,"ramp_ns":0,
    "block_bytes":65536,"sample_interval_ns":100000000,"drain_ns":1000000000}"#;

#[test]
fn a_client_that_drops_at_any_state_frees_its_session() {
    let _alone = alone();
    let serving = Serving::with(Limits {
        sessions: 1,
        ..Limits::default()
    });
    serving.assert_serves("127.0.0.1");
    let before = Usage::now();
    for direction in [Direction::Up, Direction::Down] {
        for step in STEPS {
            for reset in [false, true] {
                let talk = Talk::begin(serving.addr, &start(direction)).until(step);
                for stream in talk.data.iter().chain([&talk.control]).filter(|_| reset) {
                    sys::tcp::set_reset_on_close(stream.as_fd()).unwrap();
                }
                drop(talk);
                serving.assert_serves("127.0.0.1");
            }
        }
    }
    let after = Usage::now();
    assert!(after.threads <= before.threads + 1, "{before:?} {after:?}");
    assert!(
        after.descriptors <= before.descriptors + 4,
        "{before:?} {after:?}"
    );
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(grown < 32 << 10, "{grown} KiB more");
}

#[test]
fn a_client_that_hangs_at_any_state_is_dropped() {
    let _alone = alone();
    let serving = Serving::with(Limits {
        sessions: 32,
        silence: Duration::from_s(1),
        ..Limits::default()
    });
    let mut hung = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        // After the word to stop the server sends its result: there is nothing to hang at.
        for step in STEPS.into_iter().filter(|&step| step < Step::Stopped) {
            hung.push((
                direction,
                step,
                Talk::begin(serving.addr, &start(direction)).until(step),
            ));
        }
    }
    serving.assert_serves("127.0.0.1");
    for (direction, step, mut talk) in hung {
        println!("{direction:?} {step:?}");
        read_to_end(&mut talk.control);
    }
    serving.assert_serves("127.0.0.1");
}
