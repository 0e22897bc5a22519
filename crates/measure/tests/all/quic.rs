//! QUIC between a client and a server, over loopback: both directions and families, each cipher, each
//! congestion control, a stop in mid-run, strangers' datagrams, and what is refused.
//!
//! No assertion rests on how long something takes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use measure::{
    Cipher, Config, Direction, MeasureError, Outcome, SampleKind, Sending, Stop, Transport,
};
use units::{Bytes, Duration, Rate};

use crate::common::{
    Serving, assert_taken_port_is_told, over_both_families, short, stopped, transfer,
};

const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];

fn quic(direction: Direction, streams: u16) -> Config {
    Config {
        transport: Transport::Quic,
        ..short(direction, streams)
    }
}

/// Every byte arrived, and both ends read their connections.
#[track_caller]
fn assert_whole(outcome: &Outcome) {
    assert!(outcome.complete, "{outcome:?}");
    assert!(outcome.receiver.bytes > 0);
    assert_eq!(outcome.sender.bytes, outcome.receiver.bytes);
    for end in [&outcome.sender, &outcome.receiver] {
        assert_eq!(end.error, None);
        assert!(end.cost.is_some() && !end.samples.is_empty());
        assert!(end.samples.iter().all(|s| s.quic.is_some()));
        assert!(end.socket_dropped.is_some());
    }
    // The sender heard that all was read.
    let last = outcome.sender.samples.last().unwrap();
    assert_eq!(last.kind, SampleKind::Drained, "{outcome:?}");
    let sent = outcome.sender.quic().unwrap();
    assert!(
        sent.rtt_us > 0 && sent.congestion_window_bytes > 0,
        "{sent:?}"
    );
    // Packets carry the bytes, and no more than their size each.
    assert!(
        sent.packets_sent * sent.packet_bytes >= outcome.sender.bytes,
        "{sent:?}"
    );
    assert!(outcome.receiver.quic().unwrap().datagrams_received > 0);
}

#[test]
fn each_cipher_and_direction_carries_the_same_bytes_to_the_end() {
    let serving = Serving::new();
    let mut client = serving.client();
    for cipher in Cipher::ALL {
        for direction in BOTH {
            for streams in [1, 3] {
                let config = Config {
                    cipher,
                    ..quic(direction, streams)
                };
                let outcome = transfer(&mut client, &config);
                assert_whole(&outcome);
                assert_eq!(outcome.sender.congestion, "cubic");
            }
        }
    }
}

#[test]
fn each_congestion_control_that_quic_has_is_used_and_no_other() {
    let serving = Serving::new();
    let mut client = serving.client();
    for direction in BOTH {
        for name in ["cubic", "newreno", "bbr"] {
            let config = Config {
                congestion: Some(name.to_owned()),
                ..quic(direction, 1)
            };
            let outcome = transfer(&mut client, &config);
            assert_whole(&outcome);
            assert_eq!(outcome.sender.congestion, name);
        }
        let config = Config {
            congestion: Some("reno".to_owned()),
            ..quic(direction, 1)
        };
        let refused = client.run(&config, &Stop::new(), &mut |_| {}).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("cubic, newreno, bbr"), "{text}");
    }
}

#[test]
fn quic_goes_over_both_families_from_a_dual_stack_server() {
    over_both_families(|target, mut client| {
        for direction in BOTH {
            let outcome = transfer(&mut client, &quic(direction, 2));
            assert_whole(&outcome);
            // Beyond what any path carries: the search for the MTU found loopback's.
            assert!(
                outcome.sender.quic().unwrap().packet_bytes > 1_500,
                "{target}"
            );
        }
    });
}

#[test]
fn a_small_window_or_block_is_kept_and_nothing_is_lost_by_it() {
    let serving = Serving::new();
    let mut client = serving.client();
    for direction in BOTH {
        let small = Some(Bytes::new(64 << 10));
        let config = Config {
            send_buffer: small,
            receive_buffer: small,
            block_bytes: 100,
            ..quic(direction, 2)
        };
        let outcome = transfer(&mut client, &config);
        assert_whole(&outcome);
        assert_eq!(outcome.sender.send_buffer, Bytes::new(64 << 10));
        assert_eq!(outcome.receiver.receive_buffer, Bytes::new(64 << 10));
    }
}

#[test]
fn what_does_not_drain_in_time_is_cut_short_and_the_rates_hold() {
    let serving = Serving::new();
    for direction in BOTH {
        let mut client = serving.client();
        let config = Config {
            // Full at the end, and emptied in no time at all by nobody.
            send_buffer: Some(Bytes::new(128 << 20)),
            receive_buffer: Some(Bytes::new(128 << 20)),
            drain: Duration::ZERO,
            ..quic(direction, 2)
        };
        let outcome = transfer(&mut client, &config);
        assert!(!outcome.complete && !outcome.interrupted, "{outcome:?}");
        assert!(outcome.receiver.bytes > 0 && outcome.receiver.bytes < outcome.sender.bytes);
        assert_whole(&transfer(&mut client, &quic(direction, 1)));
    }
}

#[test]
fn a_stop_ends_quic_with_what_was_measured() {
    let serving = Serving::new();
    for direction in BOTH {
        let mut client = serving.client();
        stopped(&mut client, &quic(direction, 2));
        // The session and its port are free for the next.
        assert_whole(&transfer(&mut client, &quic(direction, 1)));
    }
}

#[test]
fn strangers_datagrams_do_no_harm_before_and_during_a_transfer() {
    let serving = Serving::new();
    let over = AtomicBool::new(false);
    let throw = |to: SocketAddr| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut seed = units::Rng::new(7);
        while !over.load(Ordering::Relaxed) {
            let len = usize::try_from(seed.next_u64() % 1_400).unwrap();
            let mut bytes = vec![0; len];
            bytes.fill_with(|| seed.next_u64().to_ne_bytes()[0]);
            // As the first packet of some connection begins (RFC 9000, section 17.2.2).
            if len > 20 && seed.next_u64().is_multiple_of(2) {
                bytes[..7].copy_from_slice(&[0xc3, 0, 0, 0, 1, 18, 0]);
            }
            // Refused while nobody listens there.
            drop(socket.send_to(&bytes, to));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| throw(serving.addr));
        let mut client = serving.client();
        let outcomes =
            BOTH.map(|direction| client.run(&quic(direction, 2), &Stop::new(), &mut |_| {}));
        over.store(true, Ordering::Relaxed);
        for outcome in outcomes {
            assert_whole(&outcome.unwrap());
        }
    });
}

#[test]
fn what_does_not_go_with_quic_is_refused_in_one_line() {
    let base = quic(Direction::Up, 1);
    let bad = [
        (
            Config {
                sending: Sending::ZeroCopy,
                ..base.clone()
            },
            "zero-copy",
        ),
        (
            Config {
                sending: Sending::Sendfile,
                ..base.clone()
            },
            "sendfile",
        ),
        (
            Config {
                max_pacing: Some(Rate::from_bits_per_second(1_000_000)),
                ..base.clone()
            },
            "paces itself",
        ),
        (
            Config {
                segment_bytes: Some(1_000),
                ..base.clone()
            },
            "size of its packets",
        ),
        (
            Config {
                rate: Some(Rate::from_bits_per_second(1_000_000)),
                ..base.clone()
            },
            "over TCP and UDP",
        ),
        (
            Config {
                receive_buffer: Some(Bytes::new((128 << 20) + 1)),
                streams: 2,
                ..base.clone()
            },
            "256 MiB",
        ),
    ];
    for (config, word) in bad {
        let error = config.check().unwrap_err();
        assert!(matches!(error, MeasureError::Config(_)));
        let text = error.to_string();
        assert!(text.contains(word) && !text.contains('\n'), "{text}");
    }
    let largest = Config {
        receive_buffer: Some(Bytes::new(128 << 20)),
        streams: 2,
        ..base
    };
    largest.check().unwrap();
}

#[test]
fn a_port_that_another_program_has_is_told() {
    assert_whole(&assert_taken_port_is_told(&quic(Direction::Up, 1)));
}
