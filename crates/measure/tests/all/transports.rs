//! Transports and ways of sending other than written TCP, over loopback: UDP, MPTCP, zero copy,
//! sendfile; and far ends that do not know them.
//!
//! What needs a network namespace of its own says `skipped: why` without the right to make one. No
//! assertion rests on how long something takes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use measure::message::{Kind, Message, encode, greeting};
use measure::{
    Cipher, Client, Config, Direction, FarFacts, MeasureError, Sending, Stop, Transport,
};
use units::{Bytes, Duration, Rate};

use crate::common::{
    PATIENCE, Serving, assert_taken_port_is_told, in_own_network, over_both_families, short,
    stopped, transfer,
};

/// A wish for two streams of datagrams.
const START: &str = r#"{"direction":"up","streams":2,"transport":"udp","duration_ns":1000000000,
    "ramp_ns":0,"block_bytes":1000,"sample_interval_ns":100000000,"drain_ns":1000000000,
    "proves_address":true}"#;

fn udp(direction: Direction, streams: u16, mbps: u64) -> Config {
    Config {
        transport: Transport::Udp,
        rate: Some(Rate::from_bits_per_second(mbps * 1_000_000)),
        block_bytes: 1_000,
        ..short(direction, streams)
    }
}

/// The calling thread's network's UDP counters (proc_pid_net(5), RFC 4113).
fn kernel_counts() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let value = |wanted: &str| {
        let mut pairs = names.split(' ').zip(values.split(' '));
        let found = pairs.find(|(name, _)| *name == wanted);
        found.unwrap().1.parse::<u64>().unwrap()
    };
    (value("InDatagrams"), value("RcvbufErrors"))
}

#[test]
fn datagrams_are_counted_as_the_kernel_counts_them() {
    in_own_network(|| {
        let serving = Serving::new();
        let mut client = serving.client();
        for direction in [Direction::Up, Direction::Down] {
            for streams in [1, 3] {
                let before = kernel_counts();
                let outcome = transfer(&mut client, &udp(direction, streams, 20));
                let after = kernel_counts();
                let got = outcome.datagrams().unwrap();
                let wanted = u64::from(streams) * 20_000_000 * 3 / 10 / 8_000;
                assert!(got.sent > 0 && got.sent <= wanted + 64, "{got:?}");
                assert_eq!(got.received + got.lost, got.sent, "{got:?}");
                // Loopback loses nothing but for want of room.
                assert_eq!(got.lost, after.1 - before.1, "{got:?}");
                assert_eq!(got.dropped, got.lost, "{got:?}");
                assert_eq!((got.late, got.duplicates), (0, 0));
                assert_eq!(outcome.receiver.bytes, got.received * 1_000);
                assert_eq!(outcome.complete, got.lost == 0);
                // Beside the payload, openings were read: one of each stream at the least.
                let openings = after.0 - before.0 - got.received - got.foreign;
                let streams = u64::from(streams);
                assert!((streams..100 * streams).contains(&openings), "{openings}");
            }
        }
    });
}

#[test]
fn what_a_small_buffer_drops_is_told_from_what_the_path_loses() {
    in_own_network(|| {
        let serving = Serving::new();
        let mut client = serving.client();
        for direction in [Direction::Up, Direction::Down] {
            let before = kernel_counts();
            let config = Config {
                // The least that the kernel grants: a datagram or two.
                receive_buffer: Some(Bytes::new(1)),
                ..udp(direction, 1, 300)
            };
            let outcome = transfer(&mut client, &config);
            let got = outcome.datagrams().unwrap();
            assert!(got.lost > 0, "{got:?}");
            assert_eq!(got.lost, kernel_counts().1 - before.1, "{got:?}");
            assert_eq!(got.dropped, got.lost, "{got:?}");
            assert!(!outcome.complete);
        }
    });
}

#[test]
fn datagrams_fit_the_path_unless_their_size_is_named() {
    let serving = Serving::new();
    let mut client = serving.client();
    let config = Config {
        block_bytes: Config::default().block_bytes,
        ..udp(Direction::Up, 1, 10)
    };
    let outcome = transfer(&mut client, &config);
    // Loopback's MTU is beyond what a datagram holds.
    assert_eq!(outcome.config.block_bytes, client.datagram_bytes());
    assert_eq!(client.datagram_bytes(), 65_507);
    let sent = outcome.datagrams().unwrap().sent;
    assert_eq!(outcome.sender.bytes, sent * 65_507);
    let known = ["tcp", "mptcp", "udp", "tls", "quic"];
    let messages = ["verbs-rc", "verbs-uc", "verbs-ud"];
    assert_eq!(client.far().transports, [&known[..], &messages].concat());
}

#[test]
fn udp_goes_over_ipv6_too() {
    over_both_families(|target, mut client| {
        for direction in [Direction::Up, Direction::Down] {
            let outcome = transfer(&mut client, &udp(direction, 2, 5));
            let got = outcome.datagrams().unwrap();
            assert!(got.received > 0, "{target} {got:?}");
        }
    });
}

#[test]
fn clients_open_their_streams_one_after_the_other_and_measure_at_once() {
    let serving = Serving::new();
    std::thread::scope(|scope| {
        let one = |direction| {
            let mut client = serving.client();
            let got = transfer(&mut client, &udp(direction, 4, 5))
                .datagrams()
                .unwrap();
            assert!(got.received > 0, "{got:?}");
            assert_eq!(got.received + got.lost, got.sent);
        };
        let directions = [Direction::Up, Direction::Down, Direction::Up];
        for direction in directions {
            scope.spawn(move || one(direction));
        }
    });
}

#[test]
fn a_udp_port_that_another_program_has_is_told() {
    let outcome = assert_taken_port_is_told(&udp(Direction::Up, 1, 1));
    assert!(outcome.receiver.bytes > 0);
}

#[test]
fn a_stop_ends_udp_with_what_was_measured() {
    let serving = Serving::new();
    for direction in [Direction::Up, Direction::Down] {
        stopped(&mut serving.client(), &udp(direction, 2, 5));
    }
}

#[test]
fn a_client_that_leaves_while_its_streams_open_costs_nothing() {
    let serving = Serving::new();
    let mut stranger = std::net::TcpStream::connect(serving.addr).unwrap();
    let mut words = greeting(Kind::Control).to_vec();
    let spec = serde_json::from_str(START).unwrap();
    encode(&Message::Start(spec), &mut words);
    stranger.write_all(&words).unwrap();
    // Greeting, welcome and the word that it may open its streams.
    let mut heard = Vec::new();
    while !heard.windows(6).any(|w| w == b"accept") {
        let mut chunk = [0; 4_096];
        let n = stranger.read(&mut chunk).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&chunk[..n]);
    }
    drop(stranger);
    let outcome = transfer(&mut serving.client(), &udp(Direction::Up, 1, 1));
    assert!(outcome.receiver.bytes > 0);
}

/// A server that welcomes with these facts and says no more.
fn far_end(facts: FarFacts) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut words = greeting(Kind::Server).to_vec();
        encode(&Message::Welcome(Box::new(facts)), &mut words);
        stream.write_all(&words).unwrap();
        while stream.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
    });
    addr
}

#[test]
fn an_older_far_end_is_named_before_anything_is_asked_of_it() {
    let addr = far_end(FarFacts {
        version: "0.1.0".to_owned(),
        ..FarFacts::default()
    });
    let mut client = Client::connect_addr(addr, PATIENCE).unwrap();
    let sendfile = Config {
        sending: Sending::Sendfile,
        ..short(Direction::Down, 1)
    };
    let quic = Config {
        transport: Transport::Quic,
        ..short(Direction::Up, 1)
    };
    let wishes = [
        (udp(Direction::Up, 1, 1), "udp"),
        (quic, "quic"),
        (sendfile, "sendfile"),
    ];
    for (config, word) in wishes {
        let failed = client.run(&config, &Stop::new(), &mut |_| {});
        let error = failed.unwrap_err();
        assert!(matches!(error, MeasureError::FarLacks { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("0.1.0"), "{text}");
    }
}

#[test]
fn every_send_without_copying_is_notified() {
    let serving = Serving::new();
    let mut client = serving.client();
    for direction in [Direction::Up, Direction::Down] {
        for block_bytes in [1_000, 128 * 1024] {
            let config = Config {
                sending: Sending::ZeroCopy,
                block_bytes,
                ..short(direction, 2)
            };
            let outcome = transfer(&mut client, &config);
            assert!(outcome.complete);
            assert_eq!(outcome.sender.bytes, outcome.receiver.bytes);
            let lent = outcome.sender.zero_copy.unwrap();
            assert!(lent.sends > 0, "{lent:?}");
            assert_eq!(lent.notified, lent.sends, "{lent:?}");
            // The receiver is on this machine.
            assert_eq!(lent.copied, lent.sends, "{lent:?}");
            // A send takes a block at most.
            let most = (lent.sends + lent.written) * u64::from(block_bytes);
            assert!(outcome.sender.bytes <= most, "{lent:?}");
            assert_eq!(outcome.receiver.zero_copy, None);
        }
    }
    let plain = transfer(&mut client, &short(Direction::Up, 1));
    assert_eq!(plain.sender.zero_copy, None);
}

#[test]
fn a_file_is_sent_from_either_end() {
    let serving = Serving::new();
    let mut client = serving.client();
    for direction in [Direction::Up, Direction::Down] {
        let config = Config {
            sending: Sending::Sendfile,
            ..short(direction, 2)
        };
        let outcome = transfer(&mut client, &config);
        assert!(outcome.complete && outcome.receiver.bytes > 0);
        assert_eq!(outcome.sender.bytes, outcome.receiver.bytes);
    }
    let config = Config {
        sending: Sending::Sendfile,
        file: Some("/no/such/file".into()),
        ..short(Direction::Up, 1)
    };
    let failed = client.run(&config, &Stop::new(), &mut |_| {});
    assert!(matches!(failed, Err(MeasureError::Local { .. })));
}

#[test]
fn multipath_connections_stay_so_where_the_kernel_allows_it() {
    for enabled in [true, false] {
        in_own_network(|| {
            let file = "/proc/sys/net/mptcp/enabled";
            if std::fs::write(file, if enabled { "1" } else { "0" }).is_err() {
                testing::skipped("this kernel has no MPTCP");
                return;
            }
            let serving = Serving::new();
            let mut client = serving.client();
            for direction in [Direction::Up, Direction::Down] {
                let config = Config {
                    transport: Transport::Mptcp,
                    ..short(direction, 2)
                };
                let outcome = transfer(&mut client, &config);
                assert!(outcome.complete && outcome.receiver.bytes > 0);
                let near = match direction {
                    Direction::Up => outcome.sender.mptcp,
                    Direction::Down => outcome.receiver.mptcp,
                };
                let near = near.unwrap();
                let wanted = if enabled { 2 } else { 0 };
                assert_eq!((near.streams, near.subflows), (wanted, wanted.into()));
            }
            // Who does not ask for it does not get it.
            let plain = transfer(&mut client, &short(Direction::Up, 1));
            assert_eq!(plain.sender.mptcp, None);
        });
    }
}

#[test]
fn what_the_kernels_multipath_sockets_lack_is_refused_by_name() {
    let paced = Some(Rate::from_bits_per_second(1_000_000));
    let base = Config {
        transport: Transport::Mptcp,
        ..short(Direction::Up, 1)
    };
    let refused = |config: Config| config.check().unwrap_err().to_string();
    for config in [
        Config {
            max_pacing: paced,
            ..base.clone()
        },
        Config {
            finds_gap: true,
            ..base.clone()
        },
        Config {
            evens: true,
            ..base.clone()
        },
    ] {
        assert!(refused(config).contains("SO_MAX_PACING_RATE; take --pacing application=RATE"));
    }
    let zero_copy = Config {
        sending: Sending::ZeroCopy,
        ..base.clone()
    };
    assert!(refused(zero_copy).contains("SO_ZEROCOPY; leave out --zero-copy"));
    let clamped = Config {
        window_clamp: Some(Bytes::new(1 << 20)),
        ..base
    };
    assert!(refused(clamped).contains("TCP_WINDOW_CLAMP; take --window SIZE"));
}

#[test]
fn multipath_connections_take_all_else_that_plain_ones_take() {
    in_own_network(|| {
        if std::fs::write("/proc/sys/net/mptcp/enabled", "1").is_err() {
            testing::skipped("this kernel has no MPTCP");
            return;
        }
        let serving = Serving::new();
        let mut client = serving.client();
        for direction in [Direction::Up, Direction::Down] {
            let base = Config {
                transport: Transport::Mptcp,
                ..short(direction, 2)
            };
            for config in [
                Config {
                    sending: Sending::Sendfile,
                    ..base.clone()
                },
                Config {
                    congestion: Some("reno".to_owned()),
                    ..base.clone()
                },
                Config {
                    segment_bytes: Some(1_000),
                    ..base.clone()
                },
                Config {
                    rate: Some(Rate::from_bits_per_second(50_000_000)),
                    block_bytes: 10_000,
                    ..base.clone()
                },
                Config {
                    send_buffer: Some(Bytes::new(1 << 18)),
                    receive_buffer: Some(Bytes::new(1 << 18)),
                    ..base.clone()
                },
            ] {
                let outcome = transfer(&mut client, &config);
                assert!(outcome.complete && outcome.receiver.bytes > 0, "{config:?}");
            }
        }
    });
}

#[test]
fn every_cipher_carries_the_same_bytes_to_the_end() {
    let serving = Serving::new();
    let mut client = serving.client();
    let ciphers = [
        Cipher::Aes128Gcm,
        Cipher::Aes256Gcm,
        Cipher::Chacha20Poly1305,
    ];
    for cipher in ciphers {
        for direction in [Direction::Up, Direction::Down] {
            let config = Config {
                transport: Transport::Tls,
                cipher,
                ..short(direction, 2)
            };
            let outcome = transfer(&mut client, &config);
            assert!(outcome.complete && outcome.receiver.bytes > 0, "{cipher:?}");
            assert_eq!(outcome.sender.bytes, outcome.receiver.bytes);
        }
    }
    let stop = Stop::new();
    let config = Config {
        transport: Transport::Tls,
        duration: Duration::from_s(600),
        ..short(Direction::Down, 2)
    };
    let outcome = client.run(&config, &stop, &mut |_| stop.stop()).unwrap();
    assert!(outcome.interrupted);
}
