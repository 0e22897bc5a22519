//! Facts of modelled transfers, both sides of each claim, and of hostile packets.

mod limits;

use proptest::prelude::*;
use units::{Duration, Instant};
use wire::segment::{FlowKey, Segment, SynOptions};
use wire::tcp::{Flags, SackBlocks};

use crate::trace::log::tests::any_segment;
use crate::trace::model::{MS, MSS, Model, PLAIN, connections, packets, track};
use crate::trace::{
    CapturePoint, Captured, Connection, End, Limit, Limits, SideFacts, Start, Tracker,
};

fn facts(model: &Model) -> Connection {
    track(&packets(model))
}

fn time(side: &SideFacts, limit: Limit) -> Duration {
    side.limits
        .iter()
        .find(|l| l.limit == limit)
        .map_or(Duration::ZERO, |l| l.time)
}

#[test]
fn a_short_transfer_is_told_as_it_was() {
    let seen = facts(&Model {
        total_bytes: 20 * MSS,
        ..PLAIN
    });
    let [client, server] = &seen.sides;
    insta::assert_snapshot!(table(&seen), @r"
    Syn { by: 0 } Open 160 ms, handshake 40 ms + 0 ns
    client: packets 23 data 20 bytes 28960 repeated 0 acked 28960 flight max 14480 mean 9653
      acks 1 progress 0 duplicate 0 window 4194304 round trips 1 of 0 ns NearSender
      Handshake 40 ms frames [1]
      SlowStart 40 ms frames [13]
      Unknown 40 ms frames [28]
      Finished 40 ms frames [34]
    server: packets 12 data 0 bytes 0 repeated 0 acked 0 flight max 0 mean 0
      acks 11 progress 11 duplicate 0 window 268435456 round trips 12 of 40000000 ns NearReceiver
    ");
    assert_eq!(client.unique_bytes, 20 * MSS);
    assert_eq!(server.data_segments, 0);
}

/// A table as a human would read it.
fn table(seen: &Connection) -> String {
    let text = |t: Option<Duration>| t.map_or_else(|| "-".to_owned(), |t| t.to_string());
    let mut lines = vec![format!(
        "{:?} {:?} {}, handshake {} + {}",
        seen.start,
        seen.end,
        seen.last.time.saturating_since(seen.first.time),
        text(seen.handshake_to_server),
        text(seen.handshake_to_client),
    )];
    for (name, side) in ["client", "server"].into_iter().zip(&seen.sides) {
        lines.push(format!(
            "{name}: packets {} data {} bytes {} repeated {} acked {} flight max {} mean {}",
            side.packets,
            side.data_segments,
            side.unique_bytes,
            side.repeated_bytes,
            side.acked_bytes,
            side.flight_bytes_max,
            side.flight_bytes_mean,
        ));
        lines.push(format!(
            "  acks {} progress {} duplicate {} window {} round trips {} of {} ns {:?}",
            side.pure_acks,
            side.progress_acks,
            side.duplicate_acks,
            side.window_bytes.max,
            side.rtt_ack_ns.count,
            side.rtt_ack_ns.median,
            side.capture_point.unwrap(),
        ));
        for l in &side.limits {
            let frames: Vec<u64> = l.proofs.iter().flatten().map(|p| p.0).collect();
            lines.push(format!("  {:?} {} frames {frames:?}", l.limit, l.time));
        }
    }
    lines.join("\n")
}

#[test]
fn the_capture_point_is_told_by_the_two_halves() {
    for (capture, wanted) in [
        (0.0, CapturePoint::NearSender),
        (0.08, CapturePoint::NearSender),
        (0.12, CapturePoint::Between),
        (0.88, CapturePoint::Between),
        (0.92, CapturePoint::NearReceiver),
        (1.0, CapturePoint::NearReceiver),
    ] {
        let seen = facts(&Model { capture, ..PLAIN });
        let side = &seen.sides[0];
        assert_eq!(side.capture_point, Some(wanted), "{capture}");
        let ahead = side.rtt_ahead.unwrap().as_s_f64();
        let behind = side.rtt_behind.unwrap().as_s_f64();
        assert!((ahead + behind - 0.04).abs() < 1e-3, "{ahead} {behind}");
        assert!((behind / 0.04 - capture).abs() < 0.02, "{ahead} {behind}");
    }
}

#[test]
fn round_trips_come_of_acks_and_of_timestamps() {
    let seen = facts(&PLAIN);
    let to_server = seen.sides[1].rtt_ack_ns;
    assert_eq!(to_server.min, 40 * MS);
    assert!(
        to_server.median.abs_diff(40 * MS) < 5 * MS && to_server.count > 100,
        "{to_server:?}"
    );
    assert!(seen.sides[1].rtt_timestamp_ns.min == 40 * MS);
    let plain = facts(&Model {
        timestamps: false,
        ..PLAIN
    });
    assert_eq!(plain.sides[1].rtt_timestamp_ns.count, 0);
    assert!(plain.sides[1].rtt_ack_ns.count > 100);
}

#[test]
fn a_lost_segment_is_sent_again_fast_wherever_it_was_lost() {
    let lost = Model {
        lost: vec![300],
        ..PLAIN
    };
    for capture in [0.0, 0.6, 0.9] {
        let seen = facts(&Model {
            capture,
            ..lost.clone()
        });
        let side = &seen.sides[0];
        let resent = side.retransmissions;
        assert_eq!(
            (resent.fast.segments, resent.segments()),
            (1, 1),
            "{capture} {resent:?}"
        );
        assert_eq!(resent.spurious, 0);
        // It is lost at three quarters of the path.
        let upstream = capture > lost.lost_at;
        assert_eq!(resent.original_unseen.segments, u64::from(upstream));
        assert_eq!(side.out_of_order, 0);
        assert_eq!(side.unique_bytes, PLAIN.total_bytes);
        assert_eq!(side.repeated_bytes, if upstream { 0 } else { MSS });
        assert!(seen.sides[1].duplicate_acks >= 3 && seen.sides[1].sack_blocks > 0);
    }
}

#[test]
fn a_lost_tail_is_probed_for() {
    let model = Model {
        total_bytes: 100 * MSS,
        lost: vec![100],
        ..PLAIN
    };
    // Beyond the loss nothing shows that the probe is not the original.
    let beyond = facts(&Model {
        capture: 0.9,
        ..model.clone()
    });
    assert_eq!(beyond.sides[0].retransmissions.segments(), 0);
    for capture in [0.0, 0.7] {
        let seen = facts(&Model {
            capture,
            ..model.clone()
        });
        let side = &seen.sides[0];
        let resent = side.retransmissions;
        assert_eq!(
            (resent.tail_probe.segments, resent.segments()),
            (1, 1),
            "{capture} {resent:?}"
        );
        assert!(
            time(side, Limit::RecoveryTimeout) >= Duration::from_ms(38),
            "{:?}",
            side.limits
        );
    }
}

#[test]
fn a_lost_probe_leaves_it_to_the_timeout() {
    // The tail of two is lost, and so is the probe: the timeout sends the first of them.
    let model = Model {
        total_bytes: 100 * MSS,
        lost: vec![99, 100, 101],
        ..PLAIN
    };
    let seen = facts(&model);
    let side = &seen.sides[0];
    let resent = side.retransmissions;
    assert_eq!(
        (resent.tail_probe.segments, resent.timeout.segments),
        (1, 2),
        "{resent:?}"
    );
    assert!(
        time(side, Limit::RecoveryTimeout) > Duration::from_ms(240),
        "{:?}",
        side.limits
    );
    let seen = facts(&Model {
        total_bytes: 100 * MSS,
        ..PLAIN
    });
    assert_eq!(time(&seen.sides[0], Limit::RecoveryTimeout), Duration::ZERO);
}

#[test]
fn a_segment_that_is_overtaken_is_no_retransmission() {
    for timestamps in [true, false] {
        let late = Model {
            late: vec![(300, 2 * MS)],
            capture: 1.0,
            timestamps,
            ..PLAIN
        };
        let seen = facts(&late);
        let side = &seen.sides[0];
        // Three duplicate ACKs may make the sender resend it; that is a needless retransmission.
        assert_eq!(side.out_of_order, 1, "{side:?}");
        assert!(side.reordering_segments_max >= 1);
        assert!(side.reordering_time_max <= Duration::from_ms(2));
        assert_eq!(side.retransmissions.original_unseen.segments, 0);
        assert_eq!(
            side.retransmissions.spurious,
            side.retransmissions.segments()
        );
        assert_eq!(side.unique_bytes, late.total_bytes);
    }
}

#[test]
fn a_delay_that_makes_a_timeout_is_told_as_needless() {
    // The first of a flight of two is held up for longer than the probe takes.
    let model = Model {
        total_bytes: 30 * MSS,
        write_bytes: 2 * MSS,
        write_every: 1_000 * MS,
        late: vec![(9, 75 * MS)],
        ..PLAIN
    };
    for (timestamps, sack) in [(true, true), (true, false), (false, true)] {
        let seen = facts(&Model {
            timestamps,
            sack,
            ..model.clone()
        });
        let resent = seen.sides[0].retransmissions;
        assert_eq!((resent.segments(), resent.spurious), (1, 1), "{resent:?}");
    }
    let silent = facts(&Model {
        timestamps: false,
        sack: false,
        ..model
    });
    assert_eq!(silent.sides[0].retransmissions.spurious, 0);
}

#[test]
fn times_and_bytes_add_up() {
    for model in [
        PLAIN,
        Model {
            window: 1 << 17,
            lost: vec![30, 31, 80],
            ..PLAIN
        },
        Model {
            bytes_per_s: 2_000_000,
            queue_bytes: 60_000,
            ..PLAIN
        },
        Model {
            write_bytes: 5_000,
            write_every: 7 * MS,
            capture: 0.5,
            ..PLAIN
        },
    ] {
        let seen = facts(&model);
        check(&seen);
        let side = &seen.sides[0];
        let slices = side.slices.as_ref().unwrap();
        let sent: u64 = slices.list.iter().map(|s| s.sent_bytes).sum();
        assert_eq!(sent, side.payload_bytes);
        let acked: u64 = slices.list.iter().map(|s| s.acked_bytes).sum();
        assert_eq!(acked, side.acked_bytes);
        let resent: u64 = slices
            .list
            .iter()
            .map(|s| u64::from(s.retransmitted_segments))
            .sum();
        assert_eq!(resent, side.retransmissions.segments());
    }
}

/// What holds of any connection.
fn check(seen: &Connection) {
    let span = seen.last.time.saturating_since(seen.first.time).as_ns();
    for side in &seen.sides {
        assert_eq!(
            side.unique_bytes + side.repeated_bytes,
            side.payload_bytes,
            "{side:?}"
        );
        if side.slices.is_none() {
            assert!(side.limits.is_empty());
            continue;
        }
        let all: u64 = side.limits.iter().map(|l| l.time.as_ns()).sum();
        assert_eq!(all, span, "{:?}", side.limits);
        let slices = side.slices.as_ref().unwrap();
        assert!(slices.list.len() <= 256);
        let known: u64 = slices.list.iter().map(|s| s.time_known().as_ns()).sum();
        let capped = slices.list.len() as u64 * (1 << 38);
        assert!(
            known.abs_diff(span) <= 64 || known + (1 << 38) > capped.min(span),
            "{known} {span}"
        );
        for proof in side.limits.iter().flat_map(|l| l.proofs).flatten() {
            assert!(proof.0 <= seen.last.frame && proof.0 >= 1, "{proof:?}");
        }
    }
}

fn segment(from: u8, sequence: u32, acknowledgment: u32, payload_bytes: u32) -> Segment {
    Segment {
        flow: FlowKey {
            addresses: [[1; 16], [2; 16]],
            ports: [1, 2],
        },
        from,
        sequence,
        acknowledgment,
        flags: Flags::ACK,
        window: 1_000,
        payload_bytes,
        ..Segment::default()
    }
}

fn syn(from: u8, sequence: u32) -> Segment {
    Segment {
        flags: Flags::SYN,
        syn: SynOptions {
            mss: Some(1_460),
            window_scale: Some(7),
            sack_permitted: true,
        },
        ..segment(from, sequence, 0, 0)
    }
}

fn with(flags: Flags, segment: Segment) -> Segment {
    Segment {
        flags: segment.flags.with(flags),
        ..segment
    }
}

/// Each packet a millisecond after the one before.
fn each_ms(list: &[Segment]) -> Vec<(u64, Segment)> {
    list.iter()
        .enumerate()
        .map(|(i, s)| (1_000_000 + i as u64 * MS, *s))
        .collect()
}

fn handshake() -> Vec<Segment> {
    let answer = Segment {
        acknowledgment: 1_001,
        ..with(Flags::ACK, syn(1, 5_000))
    };
    vec![syn(0, 1_000), answer, segment(0, 1_001, 5_001, 0)]
}

#[test]
fn connections_end_as_their_flags_say() {
    let fin = |s| with(Flags::FIN, s);
    let mut closed = handshake();
    closed.extend([
        fin(segment(0, 1_001, 5_001, 0)),
        fin(segment(1, 5_001, 1_002, 0)),
        segment(0, 1_002, 5_002, 0),
    ]);
    let seen = track(&each_ms(&closed));
    assert_eq!((seen.start, seen.end), (Start::Syn { by: 0 }, End::Fin));
    assert_eq!(seen.handshake_to_server, Some(Duration::from_ms(1)));
    assert_eq!(seen.handshake_to_client, Some(Duration::from_ms(1)));
    assert_eq!(seen.sides[0].fins + seen.sides[1].fins, 2);
    assert_eq!(seen.sides[0].unique_bytes + seen.sides[1].unique_bytes, 0);
    let mut reset = handshake();
    reset.push(with(Flags::RST, segment(1, 5_001, 1_001, 0)));
    assert_eq!(track(&each_ms(&reset)).end, End::Reset { by: 1 });
    assert_eq!(track(&each_ms(&handshake())).end, End::Open);
    // A reset in somebody's name, who goes on sending.
    reset.push(segment(1, 5_001, 1_001, 10));
    assert_eq!(track(&each_ms(&reset)).end, End::Open);
}

#[test]
fn a_repeated_syn_is_no_new_connection_and_another_one_is() {
    let mut again = each_ms(&handshake());
    // No host sends a SYN again sooner than that.
    for packet in &mut again {
        packet.0 += 1_000 * MS;
    }
    let begins = again[0].0;
    again.insert(0, (begins - 1_000 * MS, syn(0, 1_000)));
    let seen = track(&again);
    assert_eq!((seen.sides[0].syns, seen.sides[0].syns_repeated), (2, 1));
    // Which of the two SYNs was answered is not known.
    assert_eq!(seen.handshake_to_server, None);
    assert_eq!(seen.setup.time, Some(Duration::from_ms(1_002)));
    assert_eq!(seen.setup.last_try, Some(Duration::from_ms(2)));
    // So soon it is the same packet, captured twice.
    let mut copied = each_ms(&handshake());
    copied.insert(1, (copied[0].0 + MS / 50, syn(0, 1_000)));
    let seen = track(&copied);
    let side = &seen.sides[0];
    assert_eq!((side.syns, side.syns_repeated, side.duplicates), (1, 0, 1));
    assert_eq!(seen.handshake_to_server, Some(Duration::from_ms(1)));
    let mut reused = handshake();
    reused.push(with(Flags::FIN, segment(0, 1_001, 5_001, 0)));
    reused.push(with(Flags::FIN, segment(1, 5_001, 1_002, 0)));
    reused.push(syn(0, 70_000));
    let all = connections(&each_ms(&reused));
    let ends: Vec<End> = all.iter().map(|c| c.end).collect();
    assert_eq!(ends, [End::Replaced, End::Open]);
}

#[test]
fn keep_alives_and_window_probes_are_no_data() {
    let mut list = handshake();
    list.push(segment(0, 1_001, 5_001, 100));
    list.push(segment(1, 5_001, 1_101, 0));
    list.push(segment(0, 1_100, 5_001, 1));
    list.push(segment(0, 1_100, 5_001, 0));
    let side = &track(&each_ms(&list)).sides[0];
    assert_eq!((side.keep_alives, side.window_probes), (2, 0));
    assert_eq!(
        (
            side.unique_bytes,
            side.repeated_bytes,
            side.retransmissions.segments()
        ),
        (100, 1, 0)
    );
    let closed = Segment {
        window: 0,
        ..segment(1, 5_001, 1_101, 0)
    };
    list.extend([
        closed,
        segment(0, 1_100, 5_001, 0),
        segment(0, 1_101, 5_001, 1),
        closed,
    ]);
    list.push(segment(1, 5_001, 1_101, 0));
    list.push(segment(0, 1_101, 5_001, 50));
    let seen = track(&each_ms(&list));
    let side = &seen.sides[0];
    assert_eq!((side.keep_alives, side.window_probes), (2, 2));
    assert_eq!((side.unique_bytes, side.repeated_bytes), (150, 2));
    assert_eq!(seen.sides[1].zero_windows, 1);
    assert_eq!(seen.sides[1].zero_window_time, Duration::from_ms(4));
    assert_eq!(time(side, Limit::ZeroWindow), Duration::from_ms(4));
    assert_eq!(side.retransmissions.segments(), 0);
    check(&seen);
}

#[test]
fn ecn_pushes_and_super_packets_are_counted() {
    let mut list = handshake();
    let data = Segment {
        ecn: 2,
        ..with(Flags::PSH.with(Flags::CWR), segment(0, 1_001, 5_001, 2_920))
    };
    list.push(data);
    list.push(Segment {
        ecn: 3,
        ..segment(0, 3_921, 5_001, 1_460)
    });
    list.push(with(Flags::ECE, segment(1, 5_001, 5_381, 0)));
    let seen = track(&each_ms(&list));
    let [a, b] = &seen.sides;
    assert_eq!(
        (a.ect, a.ce, a.cwr, a.pushes, a.super_packets),
        (1, 1, 1, 1, 1)
    );
    assert_eq!(
        (a.payload_bytes_max, a.segment_bytes, b.ece),
        (2_920, 1_460, 1)
    );
    assert!((b.segments_per_ack - 3.0).abs() < 1e-9);
}

#[test]
fn a_doubled_packet_is_no_retransmission() {
    let mut list = handshake();
    let data = Segment {
        ip_id: 77,
        ..segment(0, 1_001, 5_001, 100)
    };
    list.push(data);
    let mut seen = each_ms(&list);
    let last = seen.last().unwrap().0;
    seen.push((last + 20_000, data));
    seen.push((last + 40_000, Segment { ip_id: 78, ..data }));
    let side = &track(&seen).sides[0];
    assert_eq!((side.duplicates, side.retransmissions.segments()), (1, 1));
    // The second copy counts nowhere.
    assert_eq!((side.repeated_bytes, side.packets), (100, 5));
}

#[test]
fn what_the_capture_missed_is_counted_as_unseen() {
    let mut list = handshake();
    list.push(segment(0, 1_001, 5_001, 100));
    list.push(segment(0, 1_201, 5_001, 100));
    list.extend([segment(1, 5_001, 1_101, 0); 4]);
    list.push(segment(1, 5_001, 1_301, 0));
    let side = &track(&each_ms(&list)).sides[0];
    assert_eq!((side.unique_bytes, side.unseen_bytes), (200, 100));
    assert_eq!(side.retransmissions.segments(), 0);
}

#[test]
fn a_connection_in_its_middle_is_judged_without_its_windows() {
    let model = Model {
        window: 1 << 18,
        total_bytes: 20_000 * MSS,
        ..PLAIN
    };
    let all = packets(&model);
    let seen = track(&all[5_000..]);
    check(&seen);
    let side = &seen.sides[0];
    assert_eq!(seen.start, Start::Midway);
    assert_eq!(time(side, Limit::ReceiveWindow), Duration::ZERO);
    assert_eq!(side.retransmissions.segments(), 0);
    assert_eq!(side.segment_bytes, 1_448);
    assert_eq!(side.unseen_bytes, 0);
}

#[test]
fn a_packet_at_two_interfaces_counts_for_each() {
    let mut ended = Vec::new();
    let mut tracker = Tracker::new(Limits::default(), |c| ended.push(c));
    for interface in [0, 1] {
        tracker.take(Instant::from_ns(1), 1, interface, &segment(0, 1, 1, 10));
    }
    tracker.finish();
    let seen: Vec<_> = ended
        .iter()
        .map(|c| (c.interface, c.sides[0].unique_bytes))
        .collect();
    assert_eq!(seen, [(0, 10), (1, 10)]);
}

#[test]
fn a_flood_of_syns_is_bounded_and_leaves_the_others() {
    let limits = Limits {
        connections_max: 100,
        half_open_max: 50,
        ..Limits::default()
    };
    let mut ended = Vec::new();
    let mut tracker = Tracker::new(limits, |c| ended.push(c));
    for s in handshake() {
        tracker.take(Instant::from_ns(1), 1, 0, &s);
    }
    for port in 0..10_000 {
        let mut attempt = syn(0, 7);
        attempt.flow.ports = [port, 9];
        tracker.take(Instant::from_ns(2), 2, 0, &attempt);
        assert!(tracker.connections() <= 51);
    }
    assert_eq!(tracker.counts().half_open_evicted, 9_950);
    assert_eq!(tracker.counts().evicted, 0);
    tracker.finish();
    drop(tracker);
    assert_eq!(ended.len(), 51);
    assert!(
        ended
            .iter()
            .any(|c| c.start == Start::Syn { by: 0 } && c.sides[1].packets == 1)
    );
}

#[test]
fn the_longest_idle_goes_when_all_are_made() {
    let limits = Limits {
        connections_max: 4,
        ..Limits::default()
    };
    let mut ended = Vec::new();
    let mut tracker = Tracker::new(limits, |c| ended.push(c));
    let mut take = |time, port| {
        let mut data = segment(0, 1, 1, 10);
        data.flow.ports = [port, 9];
        tracker.take(Instant::from_ns(time), 1, 0, &data);
    };
    (0..4).for_each(|port| take(10 + u64::from(port), port));
    take(20, 0);
    take(21, 100);
    drop(tracker);
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].flow.ports[0], ended[0].end), (1, End::Evicted));
}

#[test]
fn idle_connections_end_by_the_capture_s_time() {
    let mut ended = Vec::new();
    let mut tracker = Tracker::new(Limits::default(), |c| ended.push(c));
    tracker.take(Instant::from_ns(0), 1, 0, &segment(0, 1, 1, 10));
    let mut half = syn(0, 5);
    half.flow.ports = [7, 8];
    tracker.take(Instant::from_ns(0), 2, 0, &half);
    tracker.expire(Instant::ZERO + Duration::from_s(129));
    assert_eq!(tracker.connections(), 2);
    tracker.expire(Instant::ZERO + Duration::from_s(130));
    assert_eq!(tracker.connections(), 1);
    tracker.expire(Instant::ZERO + Duration::from_s(599));
    assert_eq!(tracker.connections(), 1);
    tracker.expire(Instant::ZERO + Duration::from_s(600));
    assert_eq!(tracker.connections(), 0);
    drop(tracker);
    let ends: Vec<End> = ended.iter().map(|c| c.end).collect();
    assert_eq!(ends, [End::Unanswered, End::Idle]);
}

#[test]
fn without_room_for_analyses_the_first_packets_are_analysed_and_all_are_counted() {
    let limits = Limits {
        large_max: 0,
        ..Limits::default()
    };
    let mut ended = Vec::new();
    let mut tracker = Tracker::new(limits, |c| ended.push(c));
    for (i, (time, segment)) in packets(&PLAIN).iter().enumerate() {
        tracker.take(Instant::from_ns(*time), i as u64, 0, segment);
    }
    assert_eq!(tracker.counts().incomplete, 1);
    tracker.finish();
    drop(tracker);
    assert!(!ended[0].complete);
    assert_eq!(ended[0].sides[0].payload_bytes, PLAIN.total_bytes);
    assert!(ended[0].sides[0].unique_bytes < PLAIN.total_bytes);
}

/// Packets of many connections, all of them live: handshake, and `more` segments with their ACKs.
fn crowd(flows: u32, more: u32) -> impl Iterator<Item = Captured> {
    let start = handshake();
    (0..3 + more).flat_map(move |turn| {
        let segment = match start.get(turn as usize) {
            Some(segment) => *segment,
            None if turn % 2 == 1 => segment(0, 1_001 + turn * 100, 5_001, 200),
            None => segment(1, 5_001, 1_101 + turn * 100, 0),
        };
        (0..flows).map(move |flow| {
            let mut segment = segment;
            segment.flow.addresses[0][12..].copy_from_slice(&flow.to_be_bytes());
            let frame = u64::from(turn) * u64::from(flows) + u64::from(flow) + 1;
            Captured {
                time: Instant::from_ns(frame * 1_000),
                frame,
                interface: 0,
                segment,
            }
        })
    })
}

/// Bytes that a tracker says that it holds after these packets, and what it did.
fn held(limits: Limits, packets: impl Iterator<Item = Captured>) -> (usize, super::Counts) {
    let mut tracker = Tracker::new(limits, |_| ());
    packets.for_each(|p| tracker.take(p.time, p.frame, 0, &p.segment));
    (tracker.bytes(), tracker.counts())
}

#[test]
fn memory_is_in_proportion_to_live_connections() {
    for (flows, more, each) in [(20_000, 10, 500), (20_000, 40, 1_000)] {
        let (bytes, counts) = held(Limits::default(), crowd(flows, more));
        assert!(bytes < flows as usize * each, "{bytes}");
        assert_eq!((counts.evicted, counts.incomplete), (0, 0));
    }
}

#[test]
fn beyond_its_memory_packets_and_then_connections_are_left_out() {
    let limits = Limits {
        bytes_max: 20_000_000,
        ..Limits::default()
    };
    let (bytes, counts) = held(limits, crowd(30_000, 40));
    assert!((18_000_000..20_500_000).contains(&bytes), "{bytes}");
    assert!(counts.evicted == 0 && (10_000..=30_000).contains(&counts.incomplete));
    let (bytes, counts) = held(limits, crowd(80_000, 0).take(80_000));
    assert!((18_000_000..20_500_000).contains(&bytes), "{bytes}");
    let lost = counts.evicted + counts.half_open_evicted;
    assert!((15_000..30_000).contains(&lost), "{counts:?}");
}

#[test]
fn taken_all_at_once_is_taken_one_by_one() {
    let all = packets(&Model {
        lost: vec![40, 41],
        total_bytes: 60 * MSS,
        ..PLAIN
    });
    let captured: Vec<Captured> = (0..50_000)
        .map(|i| {
            let (time, mut segment) = all[i / 500];
            segment.flow.ports[0] = u16::try_from(i % 500).unwrap();
            Captured {
                time: Instant::from_ns(time),
                frame: i as u64,
                interface: 0,
                segment,
            }
        })
        .collect();
    let mut ended = [Vec::new(), Vec::new()];
    for (together, ended) in ended.iter_mut().enumerate() {
        let mut tracker = Tracker::new(Limits::default(), |c| ended.push(c));
        if together == 1 {
            tracker.take_all(&captured);
        } else {
            captured
                .iter()
                .for_each(|p| tracker.take(p.time, p.frame, 0, &p.segment));
        }
        tracker.finish();
    }
    assert_eq!(ended[0].len(), 500);
    assert!(ended[0] == ended[1]);
}

#[test]
fn a_sack_of_the_whole_range_is_no_trouble() {
    let mut list = handshake();
    list.push(segment(0, 1_001, 5_001, 100));
    let sack = SackBlocks::new(&[(0, u32::MAX), (5, 4), (1_000, 1_000)]);
    list.push(Segment {
        sack,
        ..segment(1, 5_001, 1_001, 0)
    });
    check(&track(&each_ms(&list)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_packets_at_any_times_are_taken(
        list in prop::collection::vec((any::<u64>(), any::<u64>(), any_segment(), 0_u8..4), 0..200),
        near: bool, few: bool,
    ) {
        let limits = Limits { connections_max: if few { 2 } else { 100 }, ..Limits::default() };
        let mut ended = Vec::new();
        let mut tracker = Tracker::new(limits, |c| ended.push(c));
        let mut last = 0_u64;
        for (time, frame, mut segment, port) in list {
            segment.flow.ports[0] = u16::from(port & u8::from(few));
            if near {
                // Such as a connection may have: small numbers, no SYN, short gaps.
                segment.sequence %= 20_000;
                segment.acknowledgment %= 20_000;
                segment.payload_bytes %= 4_000;
                segment.flags = Flags::from_bits(segment.flags.bits() & !2 & !4 | 16);
                last += time % 50_000_000;
            } else {
                last = time;
            }
            tracker.take(Instant::from_ns(last), frame, 0, &segment);
        }
        tracker.finish();
        drop(tracker);
        for connection in &ended {
            for side in &connection.sides {
                prop_assert_eq!(side.unique_bytes + side.repeated_bytes, side.payload_bytes);
                let all: u128 = side.limits.iter().map(|l| u128::from(l.time.as_ns())).sum();
                let span = connection.last.time.saturating_since(connection.first.time);
                prop_assert!(side.limits.is_empty() || all == u128::from(span.as_ns()));
            }
        }
    }

    #[test]
    fn modelled_transfers_are_counted_exactly(
        sequence: u32, lost in prop::collection::vec(1_u64..400, 0..12), capture in 0_usize..4,
        window in 14_u32..24, rate in 0_u64..4, sack: bool, timestamps: bool,
        write in 1_000_u64..200_000, every in 0_u64..30,
    ) {
        let model = Model {
            sequence, lost, sack, timestamps,
            capture: [0.0, 0.3, 0.8, 1.0][capture],
            window: 1 << window,
            bytes_per_s: rate * 1_000_000,
            queue_bytes: 40_000,
            write_bytes: if every == 0 { 1 << 40 } else { write },
            write_every: every * MS,
            total_bytes: 300 * MSS,
            ..PLAIN
        };
        let all = packets(&model);
        let seen = track(&all);
        check(&seen);
        let side = &seen.sides[0];
        prop_assert_eq!(side.unique_bytes, model.total_bytes);
        prop_assert_eq!(side.unseen_bytes, 0);
        prop_assert_eq!(side.acked_bytes, model.total_bytes);
        let sent: u64 = all.iter().filter(|p| p.1.from == 0).map(|p| u64::from(p.1.payload_bytes)).sum();
        prop_assert_eq!(side.payload_bytes, sent);
        if capture == 0 {
            prop_assert_eq!(side.retransmissions.bytes(), sent - model.total_bytes);
        }
    }
}

/// `cargo test --release -p goodput-explain speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    // Time of this thread on a CPU, so that others' work counts less.
    let spent_ns = || {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let model = Model {
        bytes_per_s: 12_500_000,
        queue_bytes: 500_000,
        total_bytes: 40_000 * MSS,
        ..PLAIN
    };
    let all = packets(&model);
    println!(
        "an analysis {} B, a sender {} B, a slice {} B",
        size_of::<super::flow::Flow>(),
        size_of::<super::limits::Sender>(),
        size_of::<super::Slice>(),
    );
    // Packets between two looks at the clock, which is no finer than a few milliseconds.
    const BATCH: usize = 60_000;
    // Flows in all, of them at a time, packets of each.
    let cases = [
        (33, 33, all.len()),
        (100_000, 1_000, 60),
        (100_000, 100_000, 60),
        (100_000, 100_000, 14),
    ];
    for (flows, at_once, per_flow) in cases {
        let mut ended = 0_u64;
        let limits = Limits {
            seed: 7,
            ..Limits::default()
        };
        let mut tracker = Tracker::new(limits, |_: Connection| ended += 1);
        let mut batch = Vec::new();
        let mut spent = 0;
        let mut count = 0;
        for group in 0..flows / at_once {
            for (i, (time, segment)) in all.iter().take(per_flow).enumerate() {
                // Another order each time: 7,919 is prime to all of the numbers.
                let order = |n: u32| (n.wrapping_mul(7_919) + segment.sequence % 31) % at_once;
                batch.extend((0..at_once).map(|n| {
                    let mut segment = *segment;
                    let flow = group * at_once + order(n);
                    segment.flow.addresses[0][12..].copy_from_slice(&flow.to_be_bytes());
                    let time = Instant::from_ns(*time + u64::from(n));
                    Captured {
                        time,
                        frame: i as u64,
                        interface: 0,
                        segment,
                    }
                }));
                if batch.len() < BATCH && i + 1 < per_flow {
                    continue;
                }
                let start = spent_ns();
                tracker.take_all(&batch);
                spent += spent_ns() - start;
                count += batch.len();
                batch.clear();
            }
        }
        let table = tracker.table_bytes() / flows as usize;
        let start = spent_ns();
        tracker.finish();
        let ending = (spent_ns() - start) / u64::from(flows);
        drop(tracker);
        println!(
            "{flows} flows, {at_once} at once, {per_flow} packets each: {:.2} M packets/s, \
             {table} B a place, {ending} ns to end one, {ended} ended",
            count as f64 * 1e3 / spent as f64,
        );
    }
}
