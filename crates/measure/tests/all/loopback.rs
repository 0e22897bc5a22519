//! Client and server over the loopback interface: honest transfers, strangers, limits, stops.
//!
//! No assertion rests on how long something takes; waits have generous limits so that a hang fails
//! instead of blocking the suite.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::channel;

use measure::message::{Kind, Message, data_opening, encode, greeting};
use measure::{
    Client, Config, Direction, Fault, HostFacts, Limits, MeasureError, SampleKind, Sending, Server,
    Stop, Transport, WriteCosts,
};
use units::{Bytes, Duration, Rate};

use crate::common::{PATIENCE, Serving, read_to_end, short, transfer};

/// An honest transfer still works: the server survived what was done to it.
fn assert_alive(serving: &Serving) {
    let deadline = std::time::Instant::now() + PATIENCE.to_std();
    loop {
        match Client::connect_addr(serving.addr, PATIENCE) {
            Ok(mut client) => {
                assert!(transfer(&mut client, &short(Direction::Up, 1)).complete);
                return;
            }
            // Sessions of those that vanished may still be on their way out.
            Err(MeasureError::Busy { .. }) if std::time::Instant::now() < deadline => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Fails instead of hanging when `work` does not end.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel();
    std::thread::spawn(move || done.send(work()));
    wait.recv_timeout(PATIENCE.to_std()).expect("it hangs")
}

/// Listens, and answers the first connection with `words` after reading a greeting.
fn impostor(words: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = [0; 24];
        stream.read_exact(&mut line).unwrap();
        stream.write_all(&words).unwrap();
        // Until the client has gone, so that it reads the words and not a reset.
        let _ = stream.read(&mut line);
    });
    addr
}

#[test]
fn both_ends_count_the_same_bytes() {
    let serving = Serving::new();
    let mut client = serving.client();
    for direction in [Direction::Up, Direction::Down] {
        for streams in [1, 4] {
            // A sender that had no CPU in its 0.3 s sent nothing: then once more.
            let outcome = (0..20)
                .map(|_| transfer(&mut client, &short(direction, streams)))
                .find(|outcome| !outcome.complete || outcome.sender.bytes > 0)
                .expect("a transfer that sends");
            let (sent, received) = (outcome.sender.bytes, outcome.receiver.bytes);
            let errors = (&outcome.sender.error, &outcome.receiver.error);
            assert!(
                outcome.complete,
                "{direction:?} {streams}: {sent} {received} {errors:?}"
            );
            assert!(!outcome.interrupted);
            assert_eq!(
                outcome.sender.bytes, outcome.receiver.bytes,
                "{direction:?} {streams}"
            );
            assert!(outcome.goodput_whole() > Rate::default());
        }
    }
}

#[test]
fn samples_cover_the_transfer_from_before_the_first_byte_to_after_the_last() {
    let serving = Serving::new();
    for direction in [Direction::Up, Direction::Down] {
        let outcome = transfer(&mut serving.client(), &short(direction, 3));
        for (end, last) in [
            (&outcome.sender, SampleKind::Drained),
            (&outcome.receiver, SampleKind::End),
        ] {
            for stream in 0..3 {
                let samples: Vec<_> = end.samples.iter().filter(|s| s.stream == stream).collect();
                let first = samples.first().unwrap();
                assert_eq!(first.kind, SampleKind::Start);
                assert_eq!((first.t, first.app_bytes), (Duration::ZERO, 0));
                assert_eq!(samples.last().unwrap().kind, last);
                assert_eq!(
                    samples.iter().filter(|s| s.kind == SampleKind::End).count(),
                    1
                );
                assert!(samples.is_sorted_by_key(|s| (s.t, s.app_bytes)));
                assert!(samples.iter().all(|s| s.info.len_bytes >= 104));
            }
            let finals = &end.samples[end.samples.len() - 3..];
            assert_eq!(finals.iter().map(|s| s.app_bytes).sum::<u64>(), end.bytes);
        }
        let sent: u64 = outcome
            .sender
            .samples
            .iter()
            .rev()
            .take(3)
            .map(|s| s.info.bytes_acked)
            .sum();
        assert!(sent >= outcome.sender.bytes, "every byte was acknowledged");
    }
}

#[test]
fn progress_counts_what_the_receiver_took() {
    let serving = Serving::new();
    let config = Config {
        duration: Duration::from_ms(900),
        ..short(Direction::Up, 2)
    };
    let mut seen = Vec::new();
    let outcome = serving
        .client()
        .run(&config, &Stop::new(), &mut |p| seen.push(p))
        .unwrap();
    assert!(!seen.is_empty());
    assert!(seen.is_sorted_by_key(|p| (p.elapsed, p.bytes)));
    assert!(seen.last().unwrap().bytes <= Bytes::new(outcome.receiver.bytes));
}

#[test]
fn both_ends_tell_what_it_cost_and_that_they_are_one_machine() {
    let serving = Serving::new();
    for direction in [Direction::Up, Direction::Down] {
        let outcome = transfer(&mut serving.client(), &short(direction, 2));
        assert!(outcome.on_one_machine());
        for end in [&outcome.sender, &outcome.receiver] {
            let cost = end.cost.as_ref().unwrap();
            assert_eq!(cost.user_ns + cost.system_ns, end.cpu.as_ns());
            assert!(cost.busiest_thread_ns <= end.cpu.as_ns() && cost.busiest_thread_ns > 0);
            assert!(cost.over_ns > 0 && !cost.cpus.is_empty());
        }
    }
}

#[test]
fn the_near_ends_connections_can_be_watched() {
    let serving = Serving::new();
    for direction in [Direction::Up, Direction::Down] {
        let config = Config {
            sample_interval: Duration::from_ms(10),
            ..short(direction, 2)
        };
        let mut seen = None;
        let watch = &mut |p: measure::Progress| seen = p.near.or(seen);
        serving.client().run(&config, &Stop::new(), watch).unwrap();
        let near = seen.unwrap();
        assert_eq!(near.sends, direction == Direction::Up);
        assert!(near.t > Duration::ZERO && near.congestion_window > Bytes::new(0));
    }
}

#[test]
fn options_reach_the_sockets() {
    let serving = Serving::new();
    for direction in [Direction::Up, Direction::Down] {
        let config = Config {
            congestion: Some("reno".to_owned()),
            send_buffer: Some(Bytes::new(100_000)),
            receive_buffer: Some(Bytes::new(90_000)),
            max_pacing: Some(Rate::from_bits_per_second(80_000_000)),
            block_bytes: 1000,
            ..short(direction, 1)
        };
        let outcome = transfer(&mut serving.client(), &config);
        assert_eq!(outcome.sender.congestion, "reno");
        assert_eq!(outcome.sender.send_buffer, Bytes::new(200_000));
        assert_eq!(outcome.receiver.receive_buffer, Bytes::new(180_000));
        let last = outcome.sender.samples.last().unwrap();
        assert_eq!(last.info.max_pacing_rate_bytes_per_second, 10_000_000);
    }
}

#[test]
fn a_clamped_window_bounds_what_the_sender_may_have_under_way() {
    let serving = Serving::new();
    for direction in [Direction::Up, Direction::Down] {
        let config = Config {
            window_clamp: Some(Bytes::new(50_000)),
            ..short(direction, 1)
        };
        let outcome = transfer(&mut serving.client(), &config);
        let windows = outcome.sender.samples.iter().map(|s| s.info.snd_wnd_bytes);
        let largest = windows.max().unwrap();
        // 50,000 in the steps of a window scale of at most 14 bits.
        assert!((1..=65_536).contains(&largest), "{largest}");
    }
}

#[test]
fn an_application_hands_over_no_more_than_its_rate() {
    let serving = Serving::new();
    for (direction, transport) in [
        (Direction::Up, Transport::Tcp),
        (Direction::Down, Transport::Tcp),
        (Direction::Up, Transport::Tls),
    ] {
        let config = Config {
            rate: Some(Rate::from_bits_per_second(8_000_000)),
            block_bytes: 1000,
            transport,
            ..short(direction, 2)
        };
        let outcome = transfer(&mut serving.client(), &config);
        let span = outcome.sender.duration.as_ns();
        // A block that is due may be written at once; however late, never more.
        let most = 2 * (span / 1_000_000 + 1) * 1000;
        let sent = outcome.sender.bytes;
        assert!(
            (1..=most).contains(&sent),
            "{transport:?}: {sent} of {most}"
        );
    }
}

#[test]
fn the_far_host_tells_its_facts_and_the_idle_round_trip() {
    let serving = Serving::new();
    let mut client = serving.client();
    assert_eq!(client.far().protocol, measure::message::PROTOCOL);
    assert_eq!(
        client.far().host.kernel,
        HostFacts::of_this_host(None).kernel
    );
    assert!(client.far().host.mtu_bytes().unwrap() > 0);
    let rtt = client.idle_rtt().unwrap();
    assert!(rtt.samples.len() >= 3);
    assert!(rtt.median > Duration::ZERO);
}

#[test]
fn another_version_is_named_on_both_sides() {
    let addr = impostor(b"goodput-measure 007 srv\n".to_vec());
    let error = Client::connect_addr(addr, PATIENCE).unwrap_err();
    assert!(
        matches!(error, MeasureError::VersionMismatch { ours: 1, theirs: 7 }),
        "{error}"
    );

    let serving = Serving::new();
    let mut stranger = serving.stranger();
    stranger.write_all(b"goodput-measure 007 ctl\n").unwrap();
    assert_eq!(read_to_end(&mut stranger), greeting(Kind::Server));
    assert_alive(&serving);
}

#[test]
fn other_programs_are_recognised() {
    for (words, says) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "HTTP"),
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), "SSH"),
        (vec![0x00, 0xff, 0x13], "something else"),
    ] {
        let error = Client::connect_addr(impostor(words), PATIENCE).unwrap_err();
        assert!(matches!(error, MeasureError::NotGoodput { .. }), "{error}");
        assert_eq!(error.fault(), Fault::FarHost);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_listener_that_says_nothing_is_not_goodput() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let error = Client::connect_addr(addr, Duration::from_ms(200)).unwrap_err();
    assert!(matches!(error, MeasureError::Silent { .. }), "{error}");
}

#[test]
fn a_closed_port_says_to_start_the_server() {
    let addr = format!("127.0.0.1:{}", testing::free_port());
    let error = Client::connect(&addr, PATIENCE).unwrap_err();
    assert!(matches!(error, MeasureError::Refused { .. }), "{error}");
}

#[test]
fn a_taken_port_cannot_be_bound() {
    let serving = Serving::new();
    let error = Server::bind(serving.addr, Limits::default()).unwrap_err();
    assert!(matches!(error, MeasureError::Bind { .. }), "{error}");
    assert_eq!(error.fault(), Fault::ThisHost);
}

#[test]
fn a_client_beyond_the_limit_hears_that_the_server_is_busy() {
    let serving = Serving::with(Limits {
        sessions: 1,
        ..Limits::default()
    });
    let first = serving.client();
    let error = Client::connect_addr(serving.addr, PATIENCE).unwrap_err();
    assert!(
        matches!(error, MeasureError::Busy { sessions: 1, .. }),
        "{error}"
    );
    drop(first);
    assert_alive(&serving);
}

#[test]
fn silent_and_slow_clients_are_dropped() {
    let limits = Limits {
        silence: Duration::from_s(1),
        ..Limits::default()
    };
    let serving = Serving::with(limits);
    // Says nothing at all.
    assert_eq!(read_to_end(&mut serving.stranger()), b"");
    // Says half a greeting.
    let mut half = serving.stranger();
    half.write_all(&greeting(Kind::Control)[..10]).unwrap();
    assert_eq!(read_to_end(&mut half), b"");
    // Opens a session and says nothing more: hears why it ends.
    let mut idle = serving.stranger();
    idle.write_all(&greeting(Kind::Control)).unwrap();
    let words = String::from_utf8_lossy(&read_to_end(&mut idle)).into_owned();
    assert!(words.contains("silent"), "{words}");
    // Half a message.
    let mut slow = serving.stranger();
    slow.write_all(&greeting(Kind::Control)).unwrap();
    slow.write_all(&[0, 0, 0, 99, b'{']).unwrap();
    read_to_end(&mut slow);
    assert_alive(&serving);
}

#[test]
fn a_client_that_was_dropped_for_silence_connects_again_by_itself() {
    let limits = Limits {
        silence: Duration::from_s(1),
        ..Limits::default()
    };
    let serving = Serving::with(limits);
    let mut client = serving.client();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(transfer(&mut client, &short(Direction::Up, 1)).complete);
}

#[test]
fn random_bytes_and_other_protocols_do_no_harm() {
    let serving = Serving::new();
    let mut http = serving.stranger();
    http.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert!(read_to_end(&mut http).starts_with(b"HTTP/1.1 400"));
    let mut rng = units::Rng::new(7);
    for round in 0..64 {
        let mut stranger = serving.stranger();
        if round % 2 == 0 {
            // A stranger that knows the greeting, and nothing else.
            stranger.write_all(&greeting(Kind::Control)).unwrap();
        }
        let junk: Vec<u8> = (0..200)
            .flat_map(|_| rng.next_u64().to_ne_bytes())
            .collect();
        let _ = stranger.write_all(&junk);
        if round % 4 == 1 {
            read_to_end(&mut stranger);
        }
    }
    assert_alive(&serving);
}

#[test]
fn a_message_longer_than_the_limit_ends_the_session() {
    let serving = Serving::new();
    let mut stranger = serving.stranger();
    stranger.write_all(&greeting(Kind::Control)).unwrap();
    stranger.write_all(&u32::MAX.to_be_bytes()).unwrap();
    let words = String::from_utf8_lossy(&read_to_end(&mut stranger)).into_owned();
    assert!(words.contains("exceeds the limit"), "{words}");
}

#[test]
fn a_message_at_the_wrong_time_ends_the_session() {
    let serving = Serving::new();
    let mut stranger = serving.stranger();
    let mut words = greeting(Kind::Control).to_vec();
    encode(&Message::Go, &mut words);
    stranger.write_all(&words).unwrap();
    let answer = String::from_utf8_lossy(&read_to_end(&mut stranger)).into_owned();
    assert!(answer.contains("'go' at the wrong time"), "{answer}");
}

#[test]
fn a_wrong_token_is_dropped() {
    let serving = Serving::new();
    let mut stranger = serving.stranger();
    stranger.write_all(&data_opening([0xaa; 16], 0)).unwrap();
    assert_eq!(read_to_end(&mut stranger), b"");
    assert_alive(&serving);
}

#[test]
fn clients_that_vanish_at_any_step_free_their_session() {
    let limits = Limits {
        sessions: 1,
        silence: Duration::from_s(2),
        ..Limits::default()
    };
    let serving = Serving::with(limits);
    let start = Message::Start(serde_json::from_str(START).unwrap());
    for messages in [vec![], vec![start.clone()], vec![start, Message::Go]] {
        let mut stranger = serving.stranger();
        let mut words = greeting(Kind::Control).to_vec();
        for message in &messages {
            encode(message, &mut words);
        }
        stranger.write_all(&words).unwrap();
        let mut welcome = [0; 64];
        stranger.read_exact(&mut welcome).unwrap();
        drop(stranger);
        assert_alive(&serving);
    }
}

const START: &str = r#"{"direction":"up","streams":2,"duration_ns":1000000000,"ramp_ns":0,
    "block_bytes":65536,"sample_interval_ns":100000000,"drain_ns":1000000000}"#;

#[test]
fn more_than_the_far_end_allows_is_refused_and_the_session_goes_on() {
    let limits = Limits {
        streams: 2,
        duration: Duration::from_s(1),
        ..Limits::default()
    };
    let serving = Serving::with(limits);
    let mut client = serving.client();
    let too_many = short(Direction::Up, 3);
    let too_long = Config {
        duration: Duration::from_s(2),
        ..short(Direction::Up, 1)
    };
    for config in [too_many, too_long] {
        let error = client.run(&config, &Stop::new(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, MeasureError::FarLimit(_)), "{error}");
        assert_eq!(error.fault(), Fault::Usage);
    }
    assert!(transfer(&mut client, &short(Direction::Up, 2)).complete);
}

#[test]
fn a_missing_congestion_control_names_the_end_that_lacks_it() {
    let serving = Serving::new();
    let mut client = serving.client();
    for (direction, lacks) in [
        (Direction::Up, measure::End::Near),
        (Direction::Down, measure::End::Far),
    ] {
        let config = Config {
            congestion: Some("no_such_cc".to_owned()),
            ..short(direction, 1)
        };
        let error = client.run(&config, &Stop::new(), &mut |_| {}).unwrap_err();
        let MeasureError::Congestion {
            end,
            permitted,
            available,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((end, permitted), (lacks, true));
        assert!(available.iter().any(|name| name == "reno"));
    }
    assert!(transfer(&mut client, &short(Direction::Up, 1)).complete);
}

#[test]
fn a_stop_in_the_middle_keeps_what_was_measured() {
    for direction in [Direction::Up, Direction::Down] {
        let serving = Serving::new();
        let mut client = serving.client();
        let stop = Stop::new();
        let config = Config {
            duration: Duration::from_s(3000),
            ..short(direction, 2)
        };
        let (outcome, mut client) = in_time({
            let stop = stop.clone();
            move || {
                let raise = stop.clone();
                let mut progress = |p: measure::Progress| {
                    if p.bytes > Bytes::default() {
                        raise.stop();
                    }
                };
                (client.run(&config, &stop, &mut progress), client)
            }
        });
        match outcome {
            Ok(outcome) => {
                assert!(outcome.interrupted && !outcome.complete);
                assert!(outcome.receiver.bytes > 0);
            }
            Err(error) => assert!(matches!(error, MeasureError::Interrupted), "{error}"),
        }
        assert!(
            transfer(&mut client, &short(direction, 1)).complete,
            "the client goes on"
        );
    }
}

#[test]
fn a_server_stopped_in_the_middle_of_a_transfer_says_so() {
    for direction in [Direction::Up, Direction::Down] {
        let serving = Serving::new();
        let mut client = serving.client();
        let config = Config {
            duration: Duration::from_s(3000),
            ..short(direction, 2)
        };
        let stop_server = serving.stop.clone();
        let error = in_time(move || {
            client
                .run(&config, &Stop::new(), &mut |_| stop_server.stop())
                .unwrap_err()
        });
        assert!(
            matches!(
                error,
                MeasureError::FarFailed(_) | MeasureError::PeerVanished { .. }
            ),
            "{error}"
        );
    }
}

#[test]
fn a_stopped_server_ends_with_sessions_open() {
    let serving = Serving::new();
    let _idle = serving.client();
    let _silent = serving.stranger();
    in_time(move || drop(serving));
}

#[test]
fn a_run_that_was_stopped_before_it_began_is_interrupted() {
    let serving = Serving::new();
    let stop = Stop::new();
    stop.stop();
    let error = serving
        .client()
        .run(&short(Direction::Up, 1), &stop, &mut |_| {})
        .unwrap_err();
    assert!(matches!(error, MeasureError::Interrupted), "{error}");
}

#[test]
fn sessions_at_once_do_not_mix() {
    let serving = Serving::new();
    let clients: Vec<_> = [Direction::Up, Direction::Down, Direction::Up]
        .into_iter()
        .map(|direction| {
            let mut client = serving.client();
            std::thread::spawn(move || transfer(&mut client, &short(direction, 2)))
        })
        .collect();
    for client in clients {
        let outcome = client.join().unwrap();
        assert!(outcome.complete);
        assert_eq!(outcome.sender.bytes, outcome.receiver.bytes);
    }
}

#[test]
fn the_most_streams_work() {
    let serving = Serving::new();
    let config = Config {
        block_bytes: 4096,
        ..short(Direction::Down, 128)
    };
    let outcome = transfer(&mut serving.client(), &config);
    assert!(outcome.complete);
    assert_eq!(
        outcome.receiver.samples.iter().map(|s| s.stream).max(),
        Some(127)
    );
}

#[test]
fn queues_that_do_not_drain_are_given_up() {
    let serving = Serving::new();
    for direction in [Direction::Up, Direction::Down] {
        let config = Config {
            max_pacing: Some(Rate::from_bits_per_second(800_000)),
            send_buffer: Some(Bytes::new(4_000_000)),
            drain: Duration::from_ms(500),
            ..short(direction, 2)
        };
        let outcome = transfer(&mut serving.client(), &config);
        assert!(!outcome.complete && !outcome.interrupted);
        assert!(outcome.receiver.bytes < outcome.sender.bytes);
    }
}

#[test]
fn a_sender_with_costs_sends_no_more_than_its_time_allows() {
    let serving = Serving::new();
    let cost = Duration::from_ms(1);
    let config = Config {
        duration: Duration::from_ms(60),
        ramp: Duration::from_ms(10),
        costs: WriteCosts {
            call: cost,
            ..WriteCosts::default()
        },
        ..Config::default()
    };
    let outcome = transfer(&mut serving.client(), &config);
    // However long the machine took: each write of a block had to wait its millisecond first.
    let writes = outcome.sender.duration.as_ns() / cost.as_ns();
    let most = writes * u64::from(config.block_bytes);
    assert!(
        outcome.sender.bytes <= most,
        "{} {most}",
        outcome.sender.bytes
    );
    assert!(outcome.receiver.bytes > 0);
    assert_eq!(outcome.receiver.bytes, outcome.sender.bytes);
}

#[test]
fn costs_are_refused_where_nobody_would_spend_them() {
    let costs = WriteCosts {
        call: Duration::from_ms(1),
        ..WriteCosts::default()
    };
    let config = |direction, sending| Config {
        costs,
        direction,
        sending,
        ..Config::default()
    };
    config(Direction::Up, Sending::Write).check().unwrap();
    for (config, says) in [
        (config(Direction::Down, Sending::Write), "near end"),
        (config(Direction::Up, Sending::ZeroCopy), "zero copy"),
        (config(Direction::Up, Sending::Sendfile), "zero copy"),
    ] {
        let said = config.check().unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
}
