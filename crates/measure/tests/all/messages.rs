//! Messages over the loopback interface: to and fro, one way, both ways; limits, stops, old ends.
//!
//! No assertion rests on how long something takes; waits have generous limits so that a hang fails.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::channel;

use measure::message::{Kind, Message, encode, greeting};
use measure::{
    Client, FarFacts, Fault, Limits, MeasureError, MessageOutcome, MessageSpec, Pattern, Stop,
    Verbs,
};
use sys::stamp::StampedSocket;
use units::Duration;

use crate::common::{PATIENCE, Serving};

fn spec(pattern: Pattern, bytes: u32) -> MessageSpec {
    MessageSpec {
        pattern,
        bytes,
        duration_ns: 50_000_000,
        ..MessageSpec::default()
    }
}

fn run(client: &mut Client, spec: &MessageSpec) -> MessageOutcome {
    client.messages(spec, &Stop::new()).unwrap()
}

/// Fails instead of hanging when `work` does not end.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel();
    std::thread::spawn(move || done.send(work()));
    wait.recv_timeout(PATIENCE.to_std()).expect("it hangs")
}

#[test]
fn every_message_of_a_ping_pong_comes_back() {
    let serving = Serving::with(Limits::default());
    let mut client = serving.client();
    for spin in [false, true] {
        for bytes in [1, 7, 65_537, 1 << 23] {
            let spec = MessageSpec {
                spin,
                ..spec(Pattern::PingPong, bytes)
            };
            let outcome = run(&mut client, &spec);
            let times = &outcome.round_trips;
            assert!(times.count() > 0, "{bytes} B, spin {spin}");
            // What the far end sent back is what counted, and the warm-up before it.
            assert!(outcome.far.messages > times.count(), "{bytes} B");
            assert!(times.min() <= times.quantile(500) && times.quantile(500) <= times.max());
            let sum_ns = u128::from(times.count()) * u128::from(times.mean().unwrap().as_ns());
            assert!(sum_ns <= u128::from(outcome.elapsed.as_ns()), "{bytes} B");
        }
    }
}

/// A socket for which the kernel stamps arrivals, and while it lives those of all others. It begins some
/// time after it was told, from a work queue that a busy machine keeps waiting.
fn stamping() -> StampedSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    socket.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
    let socket = StampedSocket::arrivals_only(socket).unwrap();
    for _ in 0..PATIENCE.as_ns() / 1_000_000 {
        socket.socket().send_to(b"?", to).unwrap();
        if socket
            .receive(&mut [0])
            .unwrap()
            .stamp_realtime_ns
            .is_some()
        {
            return socket;
        }
        std::thread::sleep(Duration::from_ms(1).to_std());
    }
    panic!("the kernel stamps no arrivals");
}

#[test]
fn round_trips_between_the_kernels_stamps_are_shorter_than_ours_and_of_small_messages_only() {
    let _stamping = stamping();
    let serving = Serving::with(Limits::default());
    let mut client = serving.client();
    for (bytes, stamped, spin, some) in [
        (1, 0, false, false),
        (1, 50, false, true),
        (1_000, 50, true, true),
        // More than a segment of the loopback interface.
        (1 << 17, 50, false, false),
    ] {
        let spec = MessageSpec {
            stamped,
            spin,
            ..spec(Pattern::PingPong, bytes)
        };
        let outcome = run(&mut client, &spec);
        let seen = outcome.stamped;
        assert_eq!(seen.is_some(), some, "{bytes} B, {stamped}");
        let Some(seen) = seen else { continue };
        let count = seen.kernel.count();
        assert!((1..=50).contains(&count) && count == seen.ours.count());
        // Each one's is; so the shortest, the longest and the mean are.
        assert!(seen.kernel.min() < seen.ours.min());
        assert!(seen.kernel.max() < seen.ours.max());
        assert!(seen.kernel.mean() < seen.ours.mean());
        // They come after those that count and were sent back as well.
        assert!(outcome.far.messages >= outcome.round_trips.count() + count);
    }
}

#[test]
fn a_number_of_round_trips_is_kept() {
    let serving = Serving::with(Limits::default());
    let spec = MessageSpec {
        count: 3,
        duration_ns: 20_000_000_000,
        ..spec(Pattern::PingPong, 1)
    };
    // The warm-up is a tenth of the time; three round trips have the rest, which a loaded host needs.
    let short = MessageSpec {
        duration_ns: 2_000_000_000,
        ..spec
    };
    assert_eq!(run(&mut serving.client(), &short).round_trips.count(), 3);
}

#[test]
fn each_direction_counts_whole_messages() {
    let serving = Serving::with(Limits::default());
    let mut client = serving.client();
    for (window, bytes) in [(1, 2), (64, 1000), (4096, 1), (2, 1 << 20)] {
        for pattern in [Pattern::Up, Pattern::Down, Pattern::Both] {
            let spec = MessageSpec {
                window,
                ..spec(pattern, bytes)
            };
            let outcome = run(&mut client, &spec);
            let (near, far) = (outcome.near.messages, outcome.far.messages);
            assert_eq!(near > 0, pattern != Pattern::Up, "{spec:?}: {near}");
            assert_eq!(far > 0, pattern != Pattern::Down, "{spec:?}: {far}");
        }
    }
}

#[test]
fn what_comes_before_the_ramp_counts_as_messages_and_not_in_the_rate() {
    let serving = Serving::with(Limits::default());
    let mut client = serving.client();
    for pattern in [Pattern::Up, Pattern::Down, Pattern::Both] {
        let spec = MessageSpec {
            duration_ns: 500_000_000,
            ramp_ns: 20_000_000,
            ..spec(pattern, 1_000)
        };
        let outcome = run(&mut client, &spec);
        let receivers = match pattern {
            Pattern::Up => vec![&outcome.far],
            Pattern::Down => vec![&outcome.near],
            _ => vec![&outcome.near, &outcome.far],
        };
        for count in receivers {
            assert_eq!(count.duration_ns, 480_000_000, "{pattern:?}");
            assert!(count.bytes > 0 && count.bytes < 1_000 * count.messages);
        }
    }
}

#[test]
fn wishes_beyond_the_far_ends_limits_are_refused_and_the_session_goes_on() {
    let serving = Serving::with(Limits {
        duration: Duration::from_ms(100),
        ..Limits::default()
    });
    let mut client = serving.client();
    let long = MessageSpec {
        duration_ns: 101_000_000,
        ..spec(Pattern::PingPong, 1)
    };
    let refused = client.messages(&long, &Stop::new()).unwrap_err();
    assert!(matches!(refused, MeasureError::FarLimit(_)), "{refused}");
    let at_limit = MessageSpec {
        duration_ns: 100_000_000,
        ..long
    };
    assert!(run(&mut client, &at_limit).round_trips.count() > 0);
    let none = MessageSpec {
        bytes: 0,
        ..at_limit
    };
    let refused = client.messages(&none, &Stop::new()).unwrap_err();
    assert!(matches!(refused, MeasureError::Config(_)), "{refused}");
}

#[test]
fn a_hostile_wish_is_refused_by_the_server_itself() {
    let serving = Serving::with(Limits::default());
    let mut stream = TcpStream::connect(serving.addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
    let mut words = greeting(Kind::Control).to_vec();
    let huge = MessageSpec {
        bytes: u32::MAX,
        window: u32::MAX,
        ..MessageSpec::default()
    };
    encode(&Message::StartMessages(huge), &mut words);
    stream.write_all(&words).unwrap();
    let mut seen = Vec::new();
    let mut chunk = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("1 B to 8 MiB work") {
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "hung up after {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&chunk[..n]);
    }
}

#[test]
fn a_stop_brings_back_what_there_is() {
    let serving = Serving::with(Limits::default());
    let mut client = serving.client();
    for pattern in [Pattern::PingPong, Pattern::Both] {
        let stop = Stop::new();
        let spec = MessageSpec {
            duration_ns: 1_000_000_000_000,
            ..spec(pattern, 100)
        };
        let raised = stop.clone();
        let (outcome, back) = in_time(move || {
            let waits = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(200));
                raised.stop();
            });
            let outcome = client.messages(&spec, &stop);
            waits.join().unwrap();
            (outcome, client)
        });
        client = back;
        assert!(outcome.unwrap().interrupted);
    }
    assert!(run(&mut client, &spec(Pattern::Up, 10)).far.messages > 0);
}

#[test]
fn an_end_of_before_messages_is_to_be_updated() {
    // What such an end does: it refuses to read the wish, says so, and hangs up.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let old = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut words = greeting(Kind::Server).to_vec();
        encode(&Message::Welcome(Box::<FarFacts>::default()), &mut words);
        stream.write_all(&words).unwrap();
        let mut wish = [0; 28];
        stream.read_exact(&mut wish).unwrap();
        let len = u32::from_be_bytes(wish[24..].try_into().unwrap());
        let mut body = vec![0; len.try_into().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let unknown = br#"{"no_such_message":1}"#;
        let mut framed = u32::try_from(unknown.len()).unwrap().to_be_bytes().to_vec();
        framed.extend_from_slice(unknown);
        let text = measure::message::decode(&framed, 1 << 20)
            .unwrap_err()
            .to_string();
        let mut words = Vec::new();
        encode(&Message::Failed { text }, &mut words);
        stream.write_all(&words).unwrap();
    });
    let mut client = Client::connect_addr(addr, PATIENCE).unwrap();
    let error = client.messages(&spec(Pattern::PingPong, 1), &Stop::new());
    let text = error.unwrap_err().to_string();
    assert!(text.contains("update the far goodput"), "{text}");
    old.join().unwrap();
}

fn by(verbs: Verbs) -> MessageSpec {
    MessageSpec {
        verbs: Some(verbs),
        ..spec(Pattern::Up, 64)
    }
}

#[test]
fn an_end_of_before_verbs_is_not_asked_for_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let old = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let facts = FarFacts {
            version: "0.1.0".to_owned(),
            transports: vec!["tcp".to_owned(), "udp".to_owned()],
            ..FarFacts::default()
        };
        let mut words = greeting(Kind::Server).to_vec();
        encode(&Message::Welcome(Box::new(facts)), &mut words);
        stream.write_all(&words).unwrap();
        // All that the client says until it hangs up.
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    });
    let mut client = Client::connect_addr(addr, PATIENCE).unwrap();
    for verbs in Verbs::ALL {
        let error = client.messages(&by(verbs), &Stop::new()).unwrap_err();
        assert_eq!(error.fault(), Fault::FarHost);
        let said = format!("(version 0.1.0) does not know '{}'", verbs.name());
        assert!(error.to_string().contains(&said), "{error}");
    }
    drop(client);
    assert_eq!(old.join().unwrap(), greeting(Kind::Control));
}

/// Machines with and without an RDMA device run this: what one lacks is said, and else messages come.
#[test]
fn verbs_carry_messages_or_what_is_missing_is_said_and_the_session_goes_on() {
    let serving = Serving::with(Limits::default());
    let mut client = serving.client();
    let local = Some("127.0.0.1".parse().unwrap());
    let missing = Verbs::probe(&measure::RdmaChoice::default(), local).err();
    for verbs in Verbs::ALL {
        let ended = client.messages(&by(verbs), &Stop::new());
        match (&missing, ended) {
            (None, Ok(outcome)) => assert!(outcome.far.messages > 0 && outcome.verbs.is_some()),
            (Some(missing), Err(error)) => {
                assert_eq!(error.fault(), Fault::ThisHost);
                assert!(error.to_string().contains(&missing.to_string()), "{error}");
            }
            (missing, ended) => panic!("{missing:?}, but {ended:?}"),
        }
    }
    assert!(run(&mut client, &spec(Pattern::Up, 10)).far.messages > 0);
}

#[test]
fn a_server_says_where_its_queues_are_or_what_it_lacks() {
    let serving = Serving::with(Limits::default());
    let missing = Verbs::probe(
        &measure::RdmaChoice::default(),
        Some("127.0.0.1".parse().unwrap()),
    );
    let awaited = match missing {
        Ok(()) => "verbs_ends".to_owned(),
        Err(missing) => format!(r#"{{"refused":{{"host":{{"text":"{missing}"}}}}}}"#),
    };
    let mut stream = TcpStream::connect(serving.addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
    let mut words = greeting(Kind::Control).to_vec();
    encode(&Message::StartMessages(by(Verbs::Rc)), &mut words);
    stream.write_all(&words).unwrap();
    let mut seen = Vec::new();
    let mut chunk = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains(&awaited) {
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "hung up after {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&chunk[..n]);
    }
}
