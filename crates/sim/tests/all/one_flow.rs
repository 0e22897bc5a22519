//! One connection over one link: rates that follow from arithmetic.

use link::spec::{DirectionSpec, DisciplineSpec, LossSpec, RateSpec, ServerSpec};
use link::{Change, QueueLimits, Way};
use sim::{BusSpec, Disturbance, FlowInfo, FlowSpec, Hop, Late, LinkSpec, What, World, WorldSpec};
use tcp::{Algorithm, Hystart, Pacing, ReceiverConfig, SenderConfig};
use units::{Bytes, Duration, Instant, Rate};

fn direction(
    rate: u64,
    delay: Duration,
    queue: u64,
    loss: f64,
    mark_above: Option<u64>,
) -> DirectionSpec {
    let limits = QueueLimits {
        bytes: Some(queue),
        packets: None,
    };
    DirectionSpec {
        rate: Some(RateSpec {
            server: ServerSpec::Rate(Rate::from_bits_per_second(rate)),
            limits,
            discipline: DisciplineSpec::DropTail {
                mark_above: mark_above.map(Bytes::new),
            },
        }),
        loss: if loss > 0.0 {
            vec![LossSpec::Random(loss)]
        } else {
            Vec::new()
        },
        delay,
        ..DirectionSpec::default()
    }
}

struct Case {
    rate: u64,
    rtt_ms: u64,
    queue_share: f64,
    loss: f64,
    algorithm: Algorithm,
    seconds: u64,
    window: u64,
    /// Both ends agreed on ECN, and the queue marks above so many bytes.
    mark_above: Option<u64>,
}

const CASE: Case = Case {
    rate: 100_000_000,
    rtt_ms: 20,
    queue_share: 1.0,
    loss: 0.0,
    algorithm: Algorithm::Cubic,
    seconds: 30,
    window: 1 << 30,
    mark_above: None,
};

fn world(case: &Case) -> World {
    World::new(spec(case)).unwrap()
}

fn spec(case: &Case) -> WorldSpec {
    let delay = Duration::from_us(case.rtt_ms * 500);
    let bdp = case.rate / 8 * case.rtt_ms / 1000;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a queue in bytes"
    )]
    let queue = ((bdp as f64 * case.queue_share) as u64).max(20_000);
    let hop = |way| vec![Hop { link: 0, way }];
    let flow = FlowSpec {
        forward: hop(Way::Forward),
        backward: hop(Way::Backward),
        sender: SenderConfig {
            algorithm: case.algorithm,
            ecn: case.mark_above.is_some(),
            ..SenderConfig::default()
        },
        receiver: ReceiverConfig {
            buffer_bytes: case.window,
            buffer_bytes_max: case.window,
            ..ReceiverConfig::default()
        },
        start: Instant::ZERO,
        header_bytes: 52,
        gathers: true,
        bus: None,
    };
    let link = LinkSpec {
        forward: direction(case.rate, delay, queue, case.loss, case.mark_above),
        backward: direction(case.rate, delay, 1 << 30, 0.0, None),
        schedule: Vec::new(),
    };
    WorldSpec {
        links: vec![link],
        flows: vec![flow],
        buses: Vec::new(),
    }
}

/// Payload bits a second from second `from` to the end.
fn rate(case: &Case, from: u64) -> (f64, FlowInfo) {
    let mut world = world(case);
    world.run_until(Instant::ZERO + Duration::from_s(from));
    let before = world.flow(0).received_bytes;
    world.run_until(Instant::ZERO + Duration::from_s(case.seconds));
    let info = world.flow(0);
    let bytes = info.received_bytes - before;
    #[allow(clippy::cast_precision_loss, reason = "bytes of a test")]
    let rate = bytes as f64 * 8.0 / (case.seconds - from) as f64;
    (rate, info)
}

#[test]
fn cubic_and_reno_fill_a_clean_path_with_a_queue_of_one_bdp() {
    for algorithm in [Algorithm::Cubic, Algorithm::Reno, Algorithm::Scalable] {
        let (rate, info) = rate(&Case { algorithm, ..CASE }, 5);
        let most = 1e8 * 1448.0 / 1538.0;
        assert!(
            rate > 0.95 * most && rate <= most * 1.0001,
            "{algorithm:?} {rate} {info:?}"
        );
        assert_eq!(info.sender.unwrap().timeouts, 0, "{info:?}");
    }
}

#[test]
fn bbr_and_fast_fill_a_clean_path_and_bbr_one_with_losses() {
    for (algorithm, loss) in [
        (Algorithm::Bbr, 0.0),
        (Algorithm::Fast, 0.0),
        (Algorithm::Bbr, 1e-3),
    ] {
        let (rate, info) = rate(
            &Case {
                algorithm,
                loss,
                ..CASE
            },
            5,
        );
        let most = 1e8 * 1448.0 / 1538.0;
        assert!(
            rate > 0.88 * most && rate <= most * 1.0001,
            "{algorithm:?} {loss} {rate} {info:?}"
        );
    }
}

#[test]
fn what_was_lost_twice_when_a_recovery_ended_is_sent_again_in_the_next() {
    // Where it was forgotten, the left edge stood still from 0.4 s on, and the window at half of its size.
    let case = Case {
        algorithm: Algorithm::Bbr,
        loss: 0.03,
        rtt_ms: 40,
        queue_share: 0.5,
        ..CASE
    };
    let (rate, info) = rate(&case, 5);
    let most = 1e8 * 1448.0 / 1538.0;
    assert!(rate > 0.9 * most, "{rate} {info:?}");
}

#[test]
fn a_delay_that_jumps_brings_a_timeout_that_is_taken_back() {
    // 20 ms become 720 at second 5: nothing comes for longer than any timeout, and nothing is lost.
    let case = Case {
        algorithm: Algorithm::Reno,
        ..CASE
    };
    let mut jumps = spec(&case);
    let at = Instant::ZERO + Duration::from_s(5);
    let change = Change::Delay(Duration::from_ms(710));
    jumps.links[0].schedule.push((at, Way::Forward, change));
    let mut world = World::new(jumps).unwrap();
    world.run_until(at);
    let before = world.flow(0).sender.unwrap();
    world.run_until(at + Duration::from_s(4));
    let info = world.flow(0);
    let after = info.sender.unwrap();
    assert!(after.timeouts > before.timeouts, "{after:?}");
    assert_eq!(after.ssthresh, before.ssthresh, "{after:?}");
    assert!(after.cwnd >= before.cwnd, "{before:?} {after:?}");
    // The probe's copy and those of the timeouts, and of no more.
    let copies = after.retransmitted - before.retransmitted;
    assert!(copies <= 1 + after.timeouts - before.timeouts, "{after:?}");
    assert_eq!(info.duplicates, copies, "{info:?}");
}

#[test]
fn a_window_that_binds_gives_one_window_a_round_trip() {
    // 60,000 bytes of buffer are 37,500 of window, less the segment that is answered: 24. A burst of 24 takes its turn at the
    // rate, and the first acknowledgment comes a round trip after.
    let case = Case {
        window: 60_000,
        rate: 1_000_000_000,
        rtt_ms: 100,
        queue_share: 1.0,
        ..CASE
    };
    let (rate, info) = rate(&case, 10);
    let most = 24.0 * 1448.0 * 8.0 / 0.1;
    assert!(
        rate <= most && rate > 0.985 * most,
        "{rate} of {most}: {info:?}"
    );
    assert_eq!(info.sender.unwrap().retransmitted, 0);
}

#[test]
fn random_loss_gives_renos_square_root() {
    // Mathis et al. 1997: rate = MSS / RTT * sqrt(3/2b / p), b = 1 for growth by segments acknowledged.
    for (loss, seconds) in [(1e-3, 200), (1e-4, 300)] {
        let case = Case {
            loss,
            rate: 1_000_000_000,
            algorithm: Algorithm::Reno,
            seconds,
            rtt_ms: 50,
            ..CASE
        };
        let (rate, info) = rate(&case, 20);
        let mathis = 1448.0 * 8.0 / 0.050 * (1.5 / loss).sqrt();
        assert!(
            (0.8..1.2).contains(&(rate / mathis)),
            "{loss}: {rate} {mathis} {info:?}"
        );
    }
}

#[test]
fn random_loss_gives_cubics_average_window() {
    // RFC 9438 section 5.1: (C (3 + beta) / (4 (1 - beta)))^(1/4) (RTT / p)^(3/4) segments a round trip, where that is
    // above Reno's. It is for losses at even distances; random ones leave a little more, as with Reno.
    let case = Case {
        loss: 1e-4,
        rate: 1_000_000_000,
        seconds: 900,
        rtt_ms: 85,
        ..CASE
    };
    let (rate, info) = rate(&case, 100);
    let sender = info.sender.unwrap();
    // The share that was lost, which over some 200 losses is not quite the one that was asked for.
    #[allow(clippy::cast_precision_loss, reason = "counts of a test")]
    let p = sender.recoveries as f64 / sender.acknowledged as f64;
    let window = (0.4_f64 * 3.7 / 1.2).powf(0.25) * (0.085 / p).powf(0.75);
    let expected = window * 1448.0 * 8.0 / 0.085;
    assert!(
        (0.8..1.2).contains(&(rate / expected)),
        "{rate} {expected} {info:?}"
    );
}

#[test]
fn marks_keep_the_queue_short_and_nothing_is_lost() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let case = Case {
            algorithm,
            queue_share: 20.0,
            mark_above: Some(250_000),
            ..CASE
        };
        let (rate, info) = rate(&case, 5);
        let most = 1e8 * 1448.0 / 1538.0;
        assert!(rate > 0.95 * most, "{algorithm:?} {rate} {info:?}");
        let sender = info.sender.unwrap();
        assert_eq!(sender.retransmitted, 0, "{info:?}");
        // A window of the path, of the queue up to the mark, and of what grew until the echo came.
        assert!(sender.cwnd < (250_000 + 250_000) / 1448 + 100, "{info:?}");
    }
}

#[test]
fn the_same_world_comes_twice() {
    let run = || {
        let mut world = world(&Case { loss: 1e-3, ..CASE });
        world.run_until(Instant::ZERO + Duration::from_s(20));
        format!("{:?} {:?}", world.flow(0), world.counters(0, Way::Forward))
    };
    assert_eq!(run(), run());
}

/// Payload bits a second of a world between two times.
fn rate_of(world: &mut World, from_s: u64, to_s: u64) -> f64 {
    world.run_until(Instant::ZERO + Duration::from_s(from_s));
    let before = world.flow(0).received_bytes;
    world.run_until(Instant::ZERO + Duration::from_s(to_s));
    let bytes = world.flow(0).received_bytes - before;
    #[allow(clippy::cast_precision_loss, reason = "bytes of a test")]
    let rate = bytes as f64 * 8.0 / (to_s - from_s) as f64;
    rate
}

#[test]
fn a_bus_holds_its_sender_and_neither_window_nor_queue_grows_for_it() {
    let mut slow = spec(&CASE);
    // 1,514 bytes at 100 Mb/s take 121.12 us, and 30 us beside.
    slow.buses.push(BusSpec {
        rate: Rate::from_bits_per_second(100_000_000),
        cost: Duration::from_us(30),
    });
    slow.flows[0].bus = Some(0);
    // It would leave slow start at the bus's own window; what ends its growth here is the bus.
    slow.flows[0].sender.hystart = Hystart::Off;
    let mut world = World::new(slow).unwrap();
    let got = rate_of(&mut world, 5, 15);
    let due = 1448.0 * 8.0 / 151.12e-6;
    assert!((got / due - 1.0).abs() < 0.005, "{got} {due}");
    let sender = world.flow(0).sender.unwrap();
    assert!(
        sender.cwnd >= sender.unacked + sender.unacked / 8,
        "{sender:?}"
    );
    assert_eq!(sender.retransmitted, 0);
    // What stands before the line is a burst at most.
    assert!(world.counters(0, Way::Forward).queue_bytes_max < 100_000);
}

#[test]
fn no_more_than_small_queues_allow_waits_in_the_host() {
    // Linux, tcp_small_queue_check: what is there may be two bursts, or a millisecond of the pacing rate, and one burst more comes.
    let case = Case {
        rate: 10_000_000_000,
        ..CASE
    };
    for (mbit, burst_bytes) in [(100, 65_536), (8_000, 65_536), (8_000, 0)] {
        let mut slow = spec(&case);
        let bus = Rate::from_bits_per_second(mbit * 1_000_000);
        slow.buses.push(BusSpec {
            rate: bus,
            cost: Duration::ZERO,
        });
        slow.flows[0].bus = Some(0);
        slow.flows[0].sender.burst_bytes = burst_bytes;
        slow.flows[0].sender.pacing = Pacing::Rate(bus);
        let mut world = World::new(slow).unwrap();
        let mut most = 0;
        for us in (4_000_000..6_000_000).step_by(50) {
            world.run_until(Instant::ZERO + Duration::from_us(us));
            most = most.max(world.flow(0).in_host_bytes);
        }
        // The bus itself holds all back to less than the rate, so that the pace is the bus's.
        let frames = 1_514.0 / 1_448.0;
        let rate = 125_000.0 * f64::from(u32::try_from(mbit).unwrap());
        let burst = (rate / 1024.0).min(f64::from(burst_bytes)).max(1_448.0);
        let least = (2.0 * burst).max(rate / 1024.0);
        #[allow(clippy::cast_precision_loss, reason = "bytes of a test")]
        let most = most as f64;
        assert!(
            most > least - burst && most <= (least + burst) * frames + 1_514.0,
            "{mbit} {burst_bytes}: {most} {least} {burst}"
        );
        let got = rate_of(&mut world, 6, 8);
        let due = rate * 8.0 / frames;
        assert!(got > 0.99 * due, "{mbit} {burst_bytes}: {got} {due}");
    }
}

#[test]
fn a_window_that_counts_acknowledgments_opens_by_a_half_and_one_that_counts_bytes_doubles() {
    for (counts_acks, growth) in [(true, 1.5), (false, 2.0)] {
        let mut long = spec(&Case {
            rate: 10_000_000_000,
            rtt_ms: 200,
            ..CASE
        });
        let sender = &mut long.flows[0].sender;
        (sender.counts_acks, sender.hystart) = (counts_acks, Hystart::Off);
        long.flows[0].gathers = false;
        let mut world = World::new(long).unwrap();
        let mut windows = Vec::new();
        for ms in [1_300, 2_100] {
            world.run_until(Instant::ZERO + Duration::from_ms(ms));
            windows.push(world.flow(0).sender.unwrap().cwnd);
        }
        #[allow(clippy::cast_precision_loss, reason = "windows of a test")]
        let each = (windows[1] as f64 / windows[0] as f64).powf(0.25);
        assert!((each / growth - 1.0).abs() < 0.03, "{counts_acks} {each}");
    }
}

#[test]
fn the_tap_shows_gaps_to_the_nanosecond() {
    let mut gaps = spec(&Case {
        rate: 1_000_000_000,
        ..CASE
    });
    let line = Rate::from_bits_per_second(1_000_000_000);
    gaps.flows[0].sender.pacing = Pacing::Gap {
        gap_bytes: 500,
        frame_bytes: 1_526,
        line,
    };
    let mut world = World::new(gaps).unwrap();
    world.run_until(Instant::ZERO + Duration::from_s(3));
    world.watch(10_000);
    world.run_until(Instant::ZERO + Duration::from_ms(3_100));
    let passed = world.watched();
    let data: Vec<u64> = passed
        .iter()
        .filter(|p| matches!(p.what, What::Data(_)))
        .map(|p| p.at.as_ns())
        .collect();
    assert!(data.len() > 5_000, "{}", data.len());
    // 2,026 octets of 8 ns.
    assert!(data.windows(2).all(|w| w[1] - w[0] == 16_208));
    assert!(world.watched().is_empty());
}

#[test]
fn what_arrives_late_lengthens_the_round_trip_of_a_window_and_what_is_lost_besides_is_sent_again() {
    let case = Case {
        rate: 1_000_000_000,
        rtt_ms: 80,
        ..CASE
    };
    let (ms, end) = (Duration::from_ms, Instant::ZERO + Duration::from_s(8));
    let mut spec = spec(&case);
    spec.flows[0].sender.buffer_segments = 20;
    let run = |disturbance: Option<Disturbance>| {
        let mut world = World::new(spec.clone()).unwrap();
        if let Some(plan) = disturbance {
            let last = *spec.flows[0].forward.last().unwrap();
            world.disturb(last, plan);
        }
        world.run_until(end);
        (world.flow(0), world.lost_besides())
    };
    let (alone, _) = run(None);
    let late = Late {
        from: Instant::ZERO,
        to: end,
        by: ms(20),
    };
    let (slowed, _) = run(Some(Disturbance {
        late: [late].into(),
        ..Disturbance::default()
    }));
    let share = slowed.received_bytes as f64 / alone.received_bytes as f64;
    assert!((share - 0.8).abs() < 0.01, "{share}");
    let (hurt, lost) = run(Some(Disturbance {
        losses: [(Instant::ZERO + ms(1_000), 3)].into(),
        ..Disturbance::default()
    }));
    assert_eq!((lost, hurt.sender.unwrap().retransmitted), (3, 3));
}
