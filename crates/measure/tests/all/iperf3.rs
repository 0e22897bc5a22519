//! iperf3's protocol: the installed iperf3 at either end, and peers that misbehave.
//!
//! What needs iperf3 or a network namespace says `skipped: why` without them and passes. Byte counts
//! are compared, never rates: no assertion rests on how long something takes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use measure::iperf3::message::{State, encode};
use measure::iperf3::{Circumstances, Client, Tested, Wish, document};
use measure::{Config, Direction, Fault, Limits, MeasureError, Server, Stop};
use serde_json::{Value, json};
use sys::netlink::Netlink;
use units::{Bytes, Duration, Rate};

use crate::common::{PATIENCE, Serving, in_own_network};
use crate::marks::two_links;

const COOKIE: &[u8; 37] = b"abcdefghijklmnopqrstuvwxyz2345672345\0";

/// A child that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An honest test still works.
fn assert_alive(serving: &Serving) {
    let tested = run(serving.addr, &bytes_of(300_000)).unwrap();
    assert_eq!(tested.far.streams[0].bytes, 300_000);
}

/// A client that has said its cookie and been asked for parameters.
fn asked(serving: &Serving) -> TcpStream {
    let mut stream = serving.stranger();
    stream.write_all(COOKIE).unwrap();
    assert_eq!(state(&mut stream), State::ParamExchange);
    stream
}

fn state(stream: &mut TcpStream) -> State {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    State::of(byte[0]).unwrap()
}

fn bytes_of(bytes: u64) -> Wish {
    Wish {
        config: Config {
            ramp: Duration::ZERO,
            ..Config::default()
        },
        bytes: Some(bytes),
        ..Wish::default()
    }
}

fn second() -> Wish {
    Wish {
        bytes: None,
        config: Config {
            duration: Duration::from_s(1),
            ramp: Duration::ZERO,
            ..Config::default()
        },
        ..Wish::default()
    }
}

fn run(addr: SocketAddr, wish: &Wish) -> Result<Tested, MeasureError> {
    let stop = Stop::new();
    Client::connect_addr(addr, PATIENCE, &stop)?.run(wish, &stop, &mut |_| {})
}

/// Runs `work` in a network of its own; skips, aloud, where that or iperf3 cannot be had.
fn in_namespace(work: impl FnOnce() + Send) {
    let version = Command::new("iperf3").arg("--version").output();
    if !version.is_ok_and(|o| o.status.success()) {
        return testing::skipped("iperf3 is not installed");
    }
    in_own_network(work);
}

/// Runs their client against our server; its report.
fn their_client(serving: &Serving, args: &str) -> Value {
    let port = serving.addr.port().to_string();
    let output = Command::new("iperf3")
        .args(["-c", "127.0.0.1", "-J", "-p", &port])
        .args(args.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{args}: {text}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.get("error"), None, "{args}");
    report
}

/// What the installed iperf3 says of itself.
fn installed() -> String {
    let output = Command::new("iperf3").arg("--version").output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Their version's second number: 12 of 3.12.
fn minor(report: &Value) -> u32 {
    let version = report["start"]["version"].as_str().unwrap_or_default();
    let minor = version.trim_start_matches("iperf 3.");
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Bytes that their sender may have handed over without counting them: since 3.16 it cancels its
/// threads, maybe between the two.
fn uncounted(report: &Value) -> u64 {
    let start = &report["start"]["test_start"];
    let blocks = start["blksize"].as_u64().unwrap() * start["num_streams"].as_u64().unwrap();
    if minor(report) >= 16 { blocks } else { 0 }
}

/// Bytes of a sum in a report.
fn bytes(report: &Value, sum: &str) -> u64 {
    report["end"][sum]["bytes"]
        .as_u64()
        .unwrap_or_else(|| panic!("no {sum} in {report}"))
}

/// Runs our client against their server; what each end reports.
fn their_server(args: &[&str], wish: &Wish) -> (Tested, Value) {
    let child = Command::new("iperf3")
        .args(["-s", "-1", "-J", "-p", "5201"])
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Ended(child);
    let addr = "127.0.0.1:5201".parse().unwrap();
    let begun = std::time::Instant::now();
    let tested = loop {
        match run(addr, wish) {
            Err(MeasureError::Refused { .. }) if begun.elapsed() < PATIENCE.to_std() => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            other => break other.unwrap(),
        }
    };
    let mut text = String::new();
    let mut stdout = child.0.stdout.take().unwrap();
    stdout.read_to_string(&mut text).unwrap();
    assert!(child.0.wait().unwrap().success(), "{wish:?}: {text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report.get("error"), None, "{wish:?}");
    (tested, report)
}

#[test]
fn their_client_sends_to_our_server_over_tcp() {
    in_namespace(|| {
        let serving = Serving::new();
        for args in [
            "-t 1",
            "-t 1 -P 4",
            "-n 20M",
            "-k 50",
            "-t 1 -l 4096",
            "-t 1 -w 128K",
            "-t 1 -b 20M",
            "-t 1 -C reno",
            "-t 1 -N -M 1000",
        ] {
            let report = their_client(&serving, args);
            let (sent, received) = (bytes(&report, "sum_sent"), bytes(&report, "sum_received"));
            assert!(received > 0, "{args}");
            assert!(
                sent.abs_diff(received) <= uncounted(&report),
                "{args}: {sent} {received}"
            );
            assert!(report["end"]["sum_sent"]["retransmits"].is_u64(), "{args}");
            assert!(
                report["end"]["receiver_tcp_congestion"].is_string(),
                "{args}"
            );
            let cpu = &report["end"]["cpu_utilization_percent"]["remote_total"];
            assert!(cpu.as_f64().unwrap() > 0.0, "{args}");
        }
        // What is counted begins at different moments of the two ends.
        let report = their_client(&serving, "-t 1 -O 1");
        assert!(bytes(&report, "sum_received") > 0);
    });
}

#[test]
fn our_server_sends_to_their_client_over_tcp() {
    in_namespace(|| {
        let serving = Serving::new();
        for args in [
            "-t 1 -R",
            "-t 1 -P 4 -R",
            "-n 20M -R",
            "-t 1 -O 1 -R",
            "-t 1 -l 4096 -w 128K -R",
        ] {
            // 3.9's client sees the end only of what it sends itself.
            if args.contains("-n") && installed().starts_with("iperf 3.9 ") {
                continue;
            }
            let report = their_client(&serving, args);
            let (sent, received) = (bytes(&report, "sum_sent"), bytes(&report, "sum_received"));
            assert!(received > 0, "{args}");
            assert!(report["end"]["sum_sent"]["retransmits"].is_u64(), "{args}");
            // Their client stops counting when the time is over, data may be on its way then.
            let omits = args.contains("-O");
            assert!(omits || received <= sent, "{args}: {received} > {sent}");
        }
        let report = their_client(&serving, "-t 1 --bidir -P 2");
        if installed().starts_with("iperf 3.9 ") {
            // It gives the sums of both directions one name.
            return;
        }
        let (sent, received) = (bytes(&report, "sum_sent"), bytes(&report, "sum_received"));
        assert!(
            sent.abs_diff(received) <= uncounted(&report),
            "{sent} {received}"
        );
        let back = bytes(&report, "sum_received_bidir_reverse");
        assert!(back > 0 && back <= bytes(&report, "sum_sent_bidir_reverse"));
    });
}

#[test]
fn their_client_and_our_server_agree_over_udp() {
    in_namespace(|| {
        let serving = Serving::new();
        for args in [
            "-u -b 50M -t 1",
            "-u -b 50M -t 1 -l 1400",
            "-u -b 50M -t 1 -R",
            "-u -b 50M -t 1 --bidir",
            "-u -b 10M -t 1 -P 4",
            "-u -b 10M -t 1 -P 4 -R",
            "-u -b 50M -n 2M",
            "-u -b 50M -t 1 -O 1",
            "-u -b 50M -t 1 --udp-counters-64bit -l 500",
        ] {
            let report = their_client(&serving, args);
            let end = &report["end"];
            // 3.9 has one sum for both.
            let has = |sum| end.get(sum).is_some();
            let received = bytes(
                &report,
                if has("sum_received") {
                    "sum_received"
                } else {
                    "sum"
                },
            );
            assert!(received > 0, "{args}");
            let count = |key: &str| end["sum"][key].as_u64().unwrap();
            let size = report["start"]["test_start"]["blksize"].as_u64().unwrap();
            assert!(end["sum"]["jitter_ms"].is_number(), "{args}");
            if !args.contains("-O") {
                // Losses at the very end show in no number that came.
                let arrived = received / size;
                assert!(
                    arrived + count("lost_packets") <= count("packets"),
                    "{args}: {end}"
                );
                let sent = bytes(&report, if has("sum_sent") { "sum_sent" } else { "sum" });
                assert!(received <= sent, "{args}");
            }
        }
    });
}

#[test]
fn a_server_gives_its_own_report_when_asked() {
    in_namespace(|| {
        let serving = Serving::new();
        let report = their_client(&serving, "-n 1M --get-server-output");
        let text = report["server_output_text"].as_str().unwrap();
        assert!(
            text.contains("] ") && text.contains(": received 1"),
            "{text}"
        );
    });
}

#[test]
fn our_client_and_their_server_agree_over_tcp() {
    in_namespace(|| {
        let base = second();
        let with = |change: &dyn Fn(&mut Wish)| {
            let mut wish = base.clone();
            change(&mut wish);
            wish
        };
        for wish in [
            with(&|_| {}),
            with(&|w| w.config.streams = 4),
            with(&|w| w.config.direction = Direction::Down),
            with(&|w| {
                w.config.direction = Direction::Down;
                w.config.streams = 4;
            }),
            with(&|w| w.bidirectional = true),
            with(&|w| w.bytes = Some(5_000_001)),
            with(&|w| {
                w.bytes = Some(5_000_000);
                w.config.direction = Direction::Down;
            }),
            with(&|w| {
                w.config.duration = Duration::from_s(2);
                w.config.ramp = Duration::from_s(1);
            }),
            with(&|w| w.config.block_bytes = 4096),
            with(&|w| w.window = Some(Bytes::new(128 * 1024))),
            with(&|w| w.config.congestion = Some("reno".to_owned())),
        ] {
            let (tested, report) = their_server(&[], &wish);
            assert_agrees(&tested, &report, &wish);
        }
    });
}

#[test]
fn our_client_and_their_server_agree_over_udp() {
    in_namespace(|| {
        let base = Wish {
            udp: Some(Rate::from_bits_per_second(50_000_000)),
            ..second()
        };
        let mut wishes = vec![base.clone(); 6];
        wishes[1].length = Some(1400);
        wishes[2].config.direction = Direction::Down;
        wishes[3].bidirectional = true;
        wishes[4].config.streams = 4;
        wishes[5].bytes = Some(2_000_000);
        for wish in wishes {
            let (tested, report) = their_server(&[], &wish);
            assert_agrees(&tested, &report, &wish);
            let json = document(&tested, &Circumstances::default());
            assert!(json["end"]["sum"]["jitter_ms"].is_number(), "{json}");
            assert!(json["end"]["sum"]["packets"].as_u64().unwrap() > 0);
        }
    });
}

/// Their server's own report has the bytes that it told us; a receiver has no more than was sent.
fn assert_agrees(tested: &Tested, report: &Value, wish: &Wish) {
    let omits = wish.config.ramp > Duration::ZERO;
    for half in &tested.halves {
        let sum = |streams: &[measure::iperf3::results::StreamResult]| -> u64 {
            streams.iter().map(|s| s.bytes).sum()
        };
        let (near, far) = (sum(&half.near), sum(&half.far));
        assert!(near > 0 && far > 0, "{wish:?}");
        let up = half.outcome.config.direction == Direction::Up;
        let name = match (up, wish.bidirectional) {
            (true, _) => "sum_received",
            (false, false) => "sum_sent",
            (false, true) => "sum_sent_bidir_reverse",
        };
        // 3.9 has no such sums over UDP, and mixes them up when both ends send.
        if minor(report) > 9 {
            let apart = bytes(report, name).abs_diff(far);
            assert!(apart <= uncounted(report), "{wish:?}: {apart}");
        }
        let (sent, received) = if up { (near, far) } else { (far, near) };
        let slack = if up { 0 } else { uncounted(report) };
        assert!(
            omits || received <= sent + slack,
            "{wish:?}: {received} > {sent}"
        );
        if let (Some(bytes), true, None) = (wish.bytes, up, wish.udp) {
            assert_eq!(sent, bytes, "{wish:?}");
        }
        assert_eq!(half.outcome.receiver.samples.is_empty(), up);
    }
}

#[test]
fn the_document_has_the_keys_and_types_that_iperf3_prints() {
    in_namespace(|| {
        let serving = Serving::new();
        for (args, wish) in [
            ("-t 1", second()),
            (
                "-t 1 -R",
                Wish {
                    config: Config {
                        direction: Direction::Down,
                        ..second().config
                    },
                    ..second()
                },
            ),
            (
                "-t 1 --bidir",
                Wish {
                    bidirectional: true,
                    ..second()
                },
            ),
            (
                "-t 1 -u -b 10M",
                Wish {
                    udp: Some(Rate::from_bits_per_second(10_000_000)),
                    ..second()
                },
            ),
        ] {
            let theirs = their_client(&serving, args);
            let ours = document(
                &run(serving.addr, &wish).unwrap(),
                &Circumstances::default(),
            );
            assert_has("", &theirs, &ours, args);
        }
    });
}

/// Every key of `theirs` is in `ours` with the same type; of arrays the first elements.
fn assert_has(at: &str, theirs: &Value, ours: &Value, args: &str) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in theirs {
                let own = ours.get(key);
                let own = own.unwrap_or_else(|| panic!("{args}: {at}/{key} is missing"));
                assert_has(&format!("{at}/{key}"), value, own, args);
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            if let Some(first) = theirs.first() {
                let own = ours.first();
                let own = own.unwrap_or_else(|| panic!("{args}: {at} is empty"));
                assert_has(at, first, own, args);
            }
        }
        (Value::Number(_), Value::Number(_))
        | (Value::String(_), Value::String(_))
        | (Value::Bool(_), Value::Bool(_)) => {}
        _ => panic!("{args}: {at} is {ours}, theirs {theirs}"),
    }
}

#[test]
fn both_ends_of_ours_speak_iperf3_without_it() {
    let serving = Serving::new();
    for (direction, bidirectional, udp) in [
        (Direction::Up, false, None),
        (Direction::Down, false, None),
        (Direction::Up, true, None),
        (
            Direction::Up,
            true,
            Some(Rate::from_bits_per_second(20_000_000)),
        ),
    ] {
        let mut wish = second();
        wish.config.direction = direction;
        wish.config.streams = 2;
        wish.bidirectional = bidirectional;
        wish.udp = udp;
        wish.server_output = true;
        let tested = run(serving.addr, &wish).unwrap();
        for half in &tested.halves {
            assert_eq!(half.near.len(), 2);
            assert!(half.far.iter().all(|s| s.bytes > 0), "{wish:?}");
            if udp.is_none() {
                assert!(
                    half.outcome.complete,
                    "{wish:?} {:?} {:?}",
                    half.near, half.far
                );
            }
        }
        assert!(tested.server_output().is_some());
    }
}

#[test]
fn tests_run_beside_each_other_and_beyond_the_limit_access_is_denied() {
    let serving = Serving::with(Limits {
        sessions: 2,
        ..Limits::default()
    });
    let stop = Stop::new();
    let connect = || Client::connect_addr(serving.addr, PATIENCE, &stop);
    let (first, second) = (connect().unwrap(), connect().unwrap());
    let error = connect().unwrap_err();
    assert!(matches!(error, MeasureError::Busy { .. }), "{error}");
    for client in [second, first] {
        let tested = client.run(&bytes_of(100_000), &stop, &mut |_| {}).unwrap();
        assert_eq!(tested.far.streams[0].bytes, 100_000);
    }
}

/// Parameters of a short test.
fn params() -> Value {
    json!({"tcp": true, "time": 1, "parallel": 2, "len": 1024})
}

#[test]
fn a_client_that_leaves_at_any_state_leaves_the_server_to_others() {
    let serving = Serving::with(Limits {
        silence: Duration::from_s(1),
        ..Limits::default()
    });
    let data = || {
        let mut stream = serving.stranger();
        stream.write_all(COOKIE).unwrap();
        stream
    };
    for step in 0..8 {
        // Half a cookie.
        let mut stream = serving.stranger();
        stream.write_all(&COOKIE[..18]).unwrap();
        if step > 0 {
            stream.write_all(&COOKIE[18..]).unwrap();
        }
        let mut streams = Vec::new();
        if step > 1 {
            assert_eq!(state(&mut stream), State::ParamExchange);
            let message = encode(&params());
            let cut = if step == 2 { 7 } else { message.len() };
            stream.write_all(&message[..cut]).unwrap();
        }
        if step > 3 {
            assert_eq!(state(&mut stream), State::CreateStreams);
            streams.push(data());
        }
        if step > 4 {
            streams.push(data());
            assert_eq!(state(&mut stream), State::TestStart);
            assert_eq!(state(&mut stream), State::TestRunning);
            streams[0].write_all(&[0; 5000]).unwrap();
        }
        if step > 5 {
            stream.write_all(&[State::TestEnd.byte()]).unwrap();
            assert_eq!(state(&mut stream), State::ExchangeResults);
        }
        if step > 6 {
            stream.write_all(&encode(&json!({"streams": []}))).unwrap();
        }
        drop((stream, streams));
        assert_alive(&serving);
    }
}

/// A client whose host vanishes leaves no word: here its link goes down in the middle of a test of ten minutes.
#[test]
fn a_client_that_vanishes_frees_its_session_long_before_its_test_would_end() {
    for reverse in [false, true] {
        in_own_network(|| {
            let far = two_links();
            let serving = far.run(|| {
                Netlink::open().unwrap().set_up("lo", None).unwrap();
                let limits = Limits {
                    sessions: 1,
                    silence: Duration::from_s(2),
                    ..Limits::default()
                };
                Serving::start(Server::bind("0.0.0.0:0".parse().unwrap(), limits).unwrap())
            });
            let serving = serving.unwrap();
            let port = serving.addr.port();
            let connect = || TcpStream::connect(("198.18.0.2", port)).unwrap();
            let mut control = connect();
            control.write_all(COOKIE).unwrap();
            assert_eq!(state(&mut control), State::ParamExchange);
            let params = json!({"tcp": true, "time": 600, "parallel": 1, "len": 1024,
                "reverse": reverse});
            control.write_all(&encode(&params)).unwrap();
            assert_eq!(state(&mut control), State::CreateStreams);
            let mut data = connect();
            data.write_all(COOKIE).unwrap();
            assert_eq!(state(&mut control), State::TestStart);
            assert_eq!(state(&mut control), State::TestRunning);
            match reverse {
                true => data.read_exact(&mut [0; 5000]).unwrap(),
                false => data.write_all(&[0; 5000]).unwrap(),
            }
            Netlink::open().unwrap().set_down("near0").unwrap();
            let next = || await_session(([127, 0, 0, 1], port).into());
            far.run(next).unwrap();
        });
    }
}

/// Runs a test as soon as there is room for it.
#[track_caller]
fn await_session(addr: SocketAddr) {
    let deadline = std::time::Instant::now() + PATIENCE.to_std();
    loop {
        match run(addr, &bytes_of(300_000)) {
            Ok(tested) => return assert_eq!(tested.far.streams[0].bytes, 300_000),
            Err(MeasureError::Busy { .. }) if std::time::Instant::now() < deadline => {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn nonsense_at_any_state_ends_the_test_and_no_other() {
    let serving = Serving::new();
    let ends = |mut stream: TcpStream| {
        let mut rest = Vec::new();
        // A reset ends it as well as an end of file.
        match stream.read_to_end(&mut rest) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("still open"),
            _ => rest,
        }
    };
    // A giant length, a length of zero, no JSON.
    for bytes in [&[0xff; 4][..], &[0; 4], &[0, 0, 0, 3, b'{', b'{', b'{']] {
        let mut stream = asked(&serving);
        stream.write_all(bytes).unwrap();
        assert!(ends(stream).is_empty(), "{bytes:?}");
        assert_alive(&serving);
    }
    // Parameters out of bounds are refused with iperf3's number.
    for (params, number) in [
        (json!([]), 114),
        (json!({"parallel": 1e9}), 6),
        (json!({"time": -1}), 5),
        (json!({"time": 7200}), 5),
        (json!({"len": 1u64 << 40}), 7),
        (json!({"sctp": true}), 13),
    ] {
        let mut stream = asked(&serving);
        stream.write_all(&encode(&params)).unwrap();
        let mut told = vec![State::ServerError.byte()];
        told.extend(i32::to_be_bytes(number));
        told.extend([0; 4]);
        assert_eq!(ends(stream), told, "{params}");
        assert_alive(&serving);
    }
    // A state that does not exist, and one that has no place.
    for byte in [99, State::TestEnd.byte()] {
        let mut stream = asked(&serving);
        stream.write_all(&encode(&params())).unwrap();
        assert_eq!(state(&mut stream), State::CreateStreams);
        stream.write_all(&[byte]).unwrap();
        ends(stream);
        assert_alive(&serving);
    }
    // Wrong types in the results cost nothing but their content.
    let mut stream = asked(&serving);
    let one = json!({"tcp": "yes", "time": 1, "parallel": 1});
    stream.write_all(&encode(&one)).unwrap();
    assert_eq!(state(&mut stream), State::CreateStreams);
    let mut data = serving.stranger();
    data.write_all(COOKIE).unwrap();
    assert_eq!(state(&mut stream), State::TestStart);
    assert_eq!(state(&mut stream), State::TestRunning);
    stream.write_all(&[State::TestEnd.byte()]).unwrap();
    assert_eq!(state(&mut stream), State::ExchangeResults);
    let results = json!({"streams": "none", "cpu_util_total": []});
    stream.write_all(&encode(&results)).unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut text = vec![0; u32::from_be_bytes(len).try_into().unwrap()];
    stream.read_exact(&mut text).unwrap();
    let told: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(told["streams"][0]["id"], json!(1));
    assert_eq!(state(&mut stream), State::DisplayResults);
}

#[test]
fn a_server_that_talks_nonsense_is_its_own_fault_and_never_a_hang() {
    let answers: [Vec<u8>; 7] = [
        Vec::new(),
        b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
        vec![State::AccessDenied.byte()],
        vec![
            State::ParamExchange.byte(),
            State::ServerError.byte(),
            0,
            0,
            0,
            5,
            0,
            0,
            0,
            0,
        ],
        vec![State::ParamExchange.byte(), State::DisplayResults.byte()],
        vec![State::ParamExchange.byte(), 77],
        vec![State::ParamExchange.byte(), State::ServerTerminate.byte()],
    ];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let words = answer.clone();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut cookie = [0; 37];
            stream.read_exact(&mut cookie).unwrap();
            stream.write_all(&words).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the client has gone, so that it reads the words and not a reset.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let (done, wait) = channel();
        std::thread::spawn(move || {
            let _ = done.send(run(addr, &second()).map_err(|error| error.fault()));
        });
        let result = wait.recv_timeout(PATIENCE.to_std()).expect("it hangs");
        let fault = result.unwrap_err();
        assert!(
            matches!(fault, Fault::FarHost | Fault::Network),
            "{answer:?}"
        );
    }
}

#[test]
fn wishes_that_iperf3_cannot_have_are_the_users_fault() {
    let serving = Serving::new();
    let mut half = second();
    half.config.duration = Duration::from_s(2);
    half.config.ramp = Duration::from_ms(500);
    let mut small = second();
    small.udp = Some(Rate::from_bits_per_second(1_000_000));
    small.length = Some(15);
    let mut wide = second();
    wide.window = Some(Bytes::new((512 << 20) + 1));
    for wish in [half, small, wide] {
        assert_eq!(run(serving.addr, &wish).unwrap_err().fault(), Fault::Usage);
    }
}
