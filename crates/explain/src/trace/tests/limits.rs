//! Planted limits are told.

use super::*;
use crate::trace::model::SECOND;
use crate::trace::number::low32;

fn share(side: &SideFacts, limit: Limit) -> f64 {
    let all: u64 = side.limits.iter().map(|l| l.time.as_ns()).sum();
    time(side, limit).as_ns() as f64 / all.max(1) as f64
}

/// The longest limit of the client, with the model seen at the sender, near the receiver, and in
/// the middle.
fn longest(model: &Model) -> [(Limit, f64); 3] {
    [0.0, 1.0, 0.4].map(|capture| {
        let seen = facts(&Model {
            capture,
            ..model.clone()
        });
        let side = &seen.sides[0];
        let first = side.limits[0].limit;
        (first, share(side, first))
    })
}

fn assert_limit(model: &Model, wanted: Limit) {
    for (limit, share) in longest(model) {
        assert!(limit == wanted && share > 0.6, "{:?}", longest(model));
    }
}

#[test]
fn the_receive_window_limits() {
    let model = Model {
        window: 1 << 18,
        total_bytes: 20_000 * MSS,
        ..PLAIN
    };
    assert_limit(&model, Limit::ReceiveWindow);
}

#[test]
fn the_send_buffer_limits() {
    let model = Model {
        send_buffer: 1 << 18,
        total_bytes: 20_000 * MSS,
        ..PLAIN
    };
    assert_limit(&model, Limit::SenderWindow);
}

#[test]
fn the_bottleneck_limits_whatever_the_window_is() {
    let model = Model {
        bytes_per_s: 12_500_000,
        queue_bytes: 500_000,
        total_bytes: 20_000 * MSS,
        ..PLAIN
    };
    assert_limit(&model, Limit::Bottleneck);
    // A window of twice the path: the queue stands though the window is full.
    let window = Model {
        window: 1 << 20,
        queue_bytes: 1 << 30,
        ..model
    };
    assert_limit(&window, Limit::Bottleneck);
}

#[test]
fn random_losses_limit() {
    let lost: Vec<u64> = (1..60).map(|i| i * 331).collect();
    let model = Model {
        lost,
        total_bytes: 20_000 * MSS,
        lost_at: 0.4,
        ..PLAIN
    };
    for capture in [0.0, 1.0] {
        let seen = facts(&Model {
            capture,
            ..model.clone()
        });
        let side = &seen.sides[0];
        assert_eq!(
            side.limits[0].limit,
            Limit::LossWindow,
            "{capture} {:?}",
            side.limits
        );
        assert_eq!(
            side.retransmissions.segments(),
            59,
            "{:?}",
            side.retransmissions
        );
    }
}

#[test]
fn the_application_limits() {
    // Written in lumps that are gone before the next comes; and in lumps without end of flight.
    let slow = Model {
        write_bytes: 30_000,
        write_every: 100 * MS,
        total_bytes: 3_000_000,
        ..PLAIN
    };
    assert_limit(&slow, Limit::Application);
    // Whole segments, so that no ACK is delayed: 60 ms of each 100 are idle.
    let even = Model {
        write_bytes: 20 * MSS,
        total_bytes: 2_000 * MSS,
        ..slow.clone()
    };
    let idle = facts(&even).sides[0].clone();
    assert!(
        (90..100).contains(&idle.idle_periods),
        "{}",
        idle.idle_periods
    );
    assert_eq!(idle.idle_time_max, Duration::from_ms(60));
    assert_eq!(facts(&PLAIN).sides[0].idle_periods, 0);
    // Not at a whole part of the round trip: ACKs would then come as the timer rings, each time.
    let lumps = Model {
        write_every: 9_300_000,
        total_bytes: 9_000_000,
        ..slow
    };
    assert_limit(&lumps, Limit::Application);
}

#[test]
fn pacing_limits() {
    let model = Model {
        pace: 1_170_000,
        total_bytes: 4_000 * MSS,
        ..PLAIN
    };
    assert_limit(&model, Limit::Pacing);
}

/// Writes of nine bursts of five segments, 0.9 ms apart, each burst acknowledged after 20 ms; the next write
/// comes so long after the ACK of the fifth burst.
fn writes(after_ack: u64) -> Vec<(u64, Segment)> {
    let mut seen: Vec<(u64, Segment)> = handshake().into_iter().map(|s| (SECOND, s)).collect();
    let mut data = 1_001;
    for write in 0..50 {
        let start = SECOND + MS + write * (4 * 900_000 + 20 * MS + after_ack);
        for burst in 0..9 {
            let sent = start + burst * 900_000;
            for i in 0..5 {
                seen.push((sent + i * 1_000, segment(0, data, 5_001, low32(MSS))));
                data += low32(MSS);
            }
            seen.push((sent + 20 * MS, segment(1, 5_001, data, 0)));
        }
    }
    seen.sort_by_key(|s| s.0);
    seen
}

#[test]
fn a_write_that_an_ack_sets_off_waited_for_a_buffer_though_a_pacer_sends_it() {
    for (after_ack, wanted) in [
        (30_000, Limit::SenderWindow),
        // Reaction time ends at 200 us.
        (190_000, Limit::SenderWindow),
        (210_000, Limit::Application),
        (400_000, Limit::Application),
    ] {
        let seen = track(&writes(after_ack));
        let side = &seen.sides[0];
        let first = side.limits[0].limit;
        assert!(
            first == wanted && share(side, first) > 0.6,
            "{after_ack} {:?}",
            side.limits
        );
    }
}

/// Two segments at a time, so far apart until one is lost after 20 round trips of 40 ms, and so far apart for
/// 60 more.
fn paced(before: u64, behind: u64) -> Vec<(u64, Segment)> {
    let mss = low32(MSS);
    let bursts = 800 * MS / before;
    let mut sent: Vec<(u64, u32)> = Vec::new();
    let (mut time, mut data) = (SECOND + MS, 1_001);
    for burst in 0..bursts + 2_400 * MS / behind {
        sent.extend([(time, data), (time + 1_000, data + mss)]);
        data += 2 * mss;
        time += if burst < bursts { before } else { behind };
    }
    let lost = usize::try_from(2 * bursts).unwrap();
    let hole = sent[lost].1;
    // The third duplicate ACK asks for it.
    sent.push((sent[lost + 7].0 + 40 * MS, hole));
    let again = sent.len() - 1;
    let mut order: Vec<usize> = (0..sent.len()).collect();
    order.sort_by_key(|&i| sent[i].0);
    let (mut top, mut filled) = (1_001, false);
    let mut seen: Vec<(u64, Segment)> = handshake().into_iter().map(|s| (SECOND, s)).collect();
    for i in order {
        let (time, start) = sent[i];
        seen.push((time, segment(0, start, 5_001, mss)));
        if i == lost {
            continue;
        }
        filled |= i == again;
        top = top.max(start + mss);
        let holed = top > hole && !filled;
        let ack = if holed { hole } else { top };
        let sack = [(hole + mss, top)];
        let answer = Segment {
            sack: SackBlocks::new(if holed { &sack } else { &[] }),
            window: 60_000,
            ..segment(1, 5_001, ack, 0)
        };
        // Each other segment is acknowledged, and each behind a hole.
        if holed || i % 2 == 1 || i == again {
            seen.push((time + 40 * MS, answer));
        }
    }
    seen.sort_by_key(|s| s.0);
    seen
}

#[test]
fn a_pace_that_falls_with_a_loss_is_the_congestion_control_s() {
    for (behind, wanted) in [(MS, Limit::Pacing), (2 * MS, Limit::LossWindow)] {
        let seen = track(&paced(MS, behind));
        let side = &seen.sides[0];
        assert_eq!(side.retransmissions.segments(), 1);
        let first = side.limits[0].limit;
        assert!(
            first == wanted && share(side, first) > 0.6,
            "{behind} {:?}",
            side.limits
        );
    }
}

#[test]
fn slow_start_limits_what_is_short() {
    assert_limit(
        &Model {
            total_bytes: 1_000 * MSS,
            one_way: 100 * MS,
            ..PLAIN
        },
        Limit::SlowStart,
    );
}

/// Each limit by itself, at round trips from those of a rack to those of a satellite.
#[test]
fn a_planted_limit_is_the_largest_at_any_round_trip() {
    for rtt_us in [200_u64, 10_000, 200_000] {
        let path = 200 * MSS;
        let rate = path * 1_000_000 / rtt_us;
        let base = Model {
            one_way: rtt_us * 500,
            total_bytes: 40 * path,
            ..PLAIN
        };
        let bottleneck = Model {
            bytes_per_s: rate,
            queue_bytes: path,
            ..base.clone()
        };
        let lost = (1..200).map(|i| i * 131).collect();
        let written = Model {
            write_bytes: 30_000,
            total_bytes: 3_000_000,
            ..base.clone()
        };
        let cases = [
            (
                Limit::ReceiveWindow,
                Model {
                    window: 1 << 17,
                    ..base.clone()
                },
            ),
            (
                Limit::SenderWindow,
                Model {
                    send_buffer: path / 2,
                    ..base.clone()
                },
            ),
            (Limit::Bottleneck, bottleneck.clone()),
            (
                Limit::Bottleneck,
                Model {
                    window: 1 << 20,
                    queue_bytes: 1 << 40,
                    ..bottleneck.clone()
                },
            ),
            // Too short a queue to be seen: what is seen are its losses.
            (
                Limit::LossWindow,
                Model {
                    queue_bytes: path / 10,
                    ..bottleneck
                },
            ),
            (
                Limit::LossWindow,
                Model {
                    lost,
                    lost_at: 0.4,
                    ..base.clone()
                },
            ),
            (
                Limit::Application,
                Model {
                    write_every: rtt_us * 2_500,
                    ..written.clone()
                },
            ),
            (
                Limit::Application,
                Model {
                    write_every: rtt_us * 230,
                    ..written
                },
            ),
            (
                Limit::SlowStart,
                Model {
                    total_bytes: 300 * MSS,
                    ..base
                },
            ),
        ];
        for (wanted, model) in cases {
            let found = longest(&model);
            assert!(
                found.iter().all(|f| f.0 == wanted),
                "{wanted:?} {rtt_us} {found:?}"
            );
        }
    }
}
