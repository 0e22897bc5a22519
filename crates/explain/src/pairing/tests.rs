//! Transfers whose truth is known, seen at two points.

use units::Rng;
use wire::segment::SynOptions;

use super::*;
use crate::trace::model::{MS, MSS, Model, PLAIN, packets};

type Capture = Vec<(u64, Segment)>;

const LIMITS: Limits = Limits {
    copies_max: 1 << 18,
    connections_max: 1 << 14,
    lines_max: 1 << 16,
};

/// The same transfer seen at two places of its path, 0 at the sender and 1 at the receiver.
fn seen_at(model: &Model, near: f64, far: f64) -> [Capture; 2] {
    [near, far].map(|capture| {
        packets(&Model {
            capture,
            ..model.clone()
        })
    })
}

fn anchors(capture: &Capture) -> Anchors {
    let mut anchors = Anchors::default();
    for (time, segment) in capture {
        anchors.take(Instant::from_ns(*time), segment);
    }
    anchors
}

fn match_with(limits: Limits, ahead_ns: i64, captures: &[Capture; 2]) -> Paired {
    let mut pairing = Pairing::new(limits, ahead_ns, 1);
    let mut next = [0; 2];
    while let Some(point) = pairing.next() {
        let at = point as usize;
        match captures[at].get(next[at]) {
            Some((time, segment)) => {
                next[at] += 1;
                pairing.take(point, Instant::from_ns(*time), next[at] as u64, segment);
            }
            None => pairing.end(point),
        }
    }
    pairing.finish()
}

fn matched(captures: &[Capture; 2]) -> Paired {
    let found = anchors(&captures[0]).common(&anchors(&captures[1]));
    match_with(LIMITS, found.unwrap().ahead_ns, captures)
}

/// Segments before the near point, between, behind the far one, and needless, of the direction with data.
fn lost(paired: &Paired) -> [u64; 4] {
    let way = data(paired);
    let line = |place| {
        let of_place = way.losses.iter().filter(|l| l.place == place);
        of_place.map(|l| l.segments).sum::<u64>()
    };
    let counted = [way.before, way.between, way.behind].map(|c| c.segments);
    let lines = [Place::Before, Place::Between, Place::After].map(line);
    assert_eq!(counted, lines);
    [counted[0], counted[1], counted[2], way.spurious.segments]
}

fn data(paired: &Paired) -> &WayFacts {
    let ways = &paired.connections[0].ways;
    ways.iter().max_by_key(|w| w.bytes).unwrap()
}

fn lossy() -> Model {
    Model {
        lost: (1..15).map(|n| n * 97).collect(),
        ..PLAIN
    }
}

/// Data packets in a row become one, as many as `join` says of the place of each.
fn joined(capture: &Capture, join: impl Fn(usize) -> usize) -> Capture {
    let mut all: Capture = Vec::new();
    let mut room = 0;
    for (n, (time, segment)) in capture.iter().enumerate() {
        if let Some((_, last)) = all.last_mut()
            && room > 0
            && segment.payload_bytes > 0
            && last.payload_bytes > 0
            && last.from == segment.from
            && last.timestamps == segment.timestamps
            && last.sequence.wrapping_add(last.payload_bytes) == segment.sequence
        {
            last.payload_bytes += segment.payload_bytes;
            last.flags = last.flags.with(segment.flags);
            room -= 1;
            continue;
        }
        room = join(n);
        all.push((*time, *segment));
    }
    all
}

#[test]
fn a_loss_is_put_where_it_was() {
    // Lost at three quarters of the way.
    for (near, far, expected) in [
        (0.0, 1.0, [0, 14, 0, 0]),
        (0.7, 0.8, [0, 14, 0, 0]),
        (0.8, 1.0, [14, 0, 0, 0]),
        (0.0, 0.7, [0, 0, 14, 0]),
    ] {
        for timestamps in [true, false] {
            let model = Model {
                timestamps,
                ..lossy()
            };
            let paired = matched(&seen_at(&model, near, far));
            assert_eq!(
                lost(&paired),
                expected,
                "{near} to {far}, stamps {timestamps}"
            );
            assert_eq!(paired.connections.len(), 1);
            let way = data(&paired);
            assert_eq!((way.unseen_first, way.unseen_second), Default::default());
            assert_eq!(way.control_lost, 0);
        }
    }
}

#[test]
fn the_captures_may_come_in_either_order() {
    let [near, far] = seen_at(&lossy(), 0.0, 1.0);
    let sides = [[near.clone(), far.clone()], [far, near]].map(|captures| {
        let paired = matched(&captures);
        assert_eq!(lost(&paired), [0, 14, 0, 0]);
        let connection = &paired.connections[0];
        assert!(!connection.is_side_assumed);
        (connection.near_side, data(&paired).first)
    });
    assert_eq!(sides, [(0, 0), (1, 1)]);
}

#[test]
fn each_loss_names_its_frames_and_what_replaced_it() {
    let captures = seen_at(&lossy(), 0.0, 1.0);
    let paired = matched(&captures);
    let of = |point: usize, frame: u64| captures[point][usize::try_from(frame).unwrap() - 1].1;
    for loss in &data(&paired).losses {
        let frame = loss.frames[0].unwrap();
        assert_eq!(of(0, frame).sequence, loss.sequence);
        assert_eq!(loss.frames[1], None);
        let [near, far] = loss.repeat.unwrap();
        assert!(near > frame);
        assert_eq!(of(0, near), of(1, far));
        assert_eq!(of(1, far).sequence, loss.sequence);
    }
    // Before the first point: what was sent again is what both saw.
    let captures = seen_at(&lossy(), 0.8, 1.0);
    for loss in &data(&matched(&captures)).losses {
        let [near, far] = loss.frames.map(Option::unwrap);
        let of = |point: usize, frame: u64| captures[point][usize::try_from(frame).unwrap() - 1].1;
        assert_eq!(of(0, near), of(1, far));
    }
}

#[test]
fn super_packets_are_found_in_their_segments() {
    for (near, far) in [(44, 0), (0, 44), (44, 7), (3, 3), (1, 2)] {
        let [one, two] = seen_at(&lossy(), 0.0, 1.0);
        let captures = [joined(&one, |_| near), joined(&two, |n| far * (n % 3))];
        assert!(captures[0].len() + captures[1].len() < one.len() + two.len());
        let paired = matched(&captures);
        assert_eq!(lost(&paired), [0, 14, 0, 0], "{near} and {far}");
        let way = data(&paired);
        assert_eq!((way.unseen_first, way.unseen_second), Default::default());
    }
}

#[test]
fn clocks_that_differ_and_drift_are_told_apart_from_delay() {
    let model = Model {
        pace: 2 * MS,
        ..PLAIN
    };
    for (offset, drift_ppm) in [
        (0_i64, 0_i64),
        (5_000_000_000, 40),
        (-3_600_000_000_000, -15),
    ] {
        let [mut near, mut far] = seen_at(&model, 0.0, 1.0);
        // Times that a clock may have.
        for (time, _) in &mut near {
            *time += 10_000_000_000_000;
        }
        let start = near[0].0;
        for (time, _) in &mut far {
            let at = *time + 10_000_000_000_000;
            let run = i64::try_from(at - start).unwrap();
            *time = at.saturating_add_signed(offset + run * drift_ppm / 1_000_000);
        }
        let paired = matched(&[near, far]);
        let clocks = paired.clocks.unwrap();
        let off = clocks.offset_ns;
        let middle_drift = 2e9 * drift_ppm as f64 / 1e6;
        assert!(
            (off.value - offset as f64 - middle_drift).abs() <= off.uncertainty + 50_000.0,
            "{clocks:?}"
        );
        let drift = clocks.drift_ppm.unwrap();
        assert!(
            (drift.value - drift_ppm as f64).abs() <= drift.uncertainty + 0.5,
            "{clocks:?}"
        );
        assert_eq!(clocks.steps, 0);
        assert!((39_900_000..40_100_000).contains(&clocks.round_trip_min_ns));
        for delays in paired.delays {
            let d = delays.unwrap().delays;
            assert!((19_000_000..21_000_000).contains(&d.median_ns), "{d:?}");
            assert!(d.min_ns <= d.median_ns && d.median_ns <= d.p99_ns && d.p99_ns <= d.max_ns);
        }
    }
}

#[test]
fn a_clock_that_is_set_back_costs_delays_and_no_losses() {
    let model = Model {
        pace: 2 * MS,
        ..lossy()
    };
    for at in 0..2 {
        let mut captures = seen_at(&model, 0.0, 1.0);
        for (time, _) in &mut captures[0] {
            *time += 10_000_000_000;
        }
        let half = captures[at].len() * 2 / 3;
        for (n, (time, _)) in captures[at].iter_mut().enumerate() {
            *time += if at == 1 { 10_000_000_000 } else { 0 };
            *time -= if n >= half { 3_000_000_000 } else { 0 };
        }
        if at == 0 {
            for (time, _) in &mut captures[1] {
                *time += 10_000_000_000;
            }
        }
        let paired = matched(&captures);
        assert_eq!(lost(&paired), [0, 14, 0, 0], "point {at}");
        assert_eq!(paired.clocks.unwrap().steps, 1);
        for delays in paired.delays {
            let d = delays.unwrap().delays;
            assert!((19_000_000..22_000_000).contains(&d.median_ns), "{d:?}");
            assert!(d.max_ns < 30_000_000, "{d:?}");
        }
    }
}

#[test]
fn what_only_the_capture_lost_is_not_called_lost() {
    let [near, far] = seen_at(&lossy(), 0.0, 1.0);
    let holes = |capture: &Capture| -> Capture {
        let kept = capture.iter().enumerate().filter(|(n, _)| n % 50 != 20);
        kept.map(|(_, p)| *p).collect()
    };
    let paired = matched(&[near.clone(), holes(&far)]);
    // Of a loss whose repeat was not captured nothing says that it was one.
    assert!((13..=14).contains(&lost(&paired)[1]), "{:?}", lost(&paired));
    assert!(data(&paired).unseen_second.segments > 20);
    let paired = matched(&[holes(&near), far]);
    // One of what was lost may be among what was not captured.
    assert!((13..=14).contains(&lost(&paired)[1]), "{:?}", lost(&paired));
    assert!(data(&paired).unseen_first.segments > 20);
}

#[test]
fn nothing_is_said_of_what_the_other_capture_did_not_run_for() {
    let [near, far] = seen_at(&PLAIN, 0.0, 1.0);
    for (from, until) in [(500, 0), (0, 500), (400, 400)] {
        let short = far[from..far.len() - until].to_vec();
        for captures in [[near.clone(), short.clone()], [short, near.clone()]] {
            let paired = matched(&captures);
            assert_eq!(lost(&paired)[1], 0, "{from}, {until}: {paired:?}");
            assert_eq!(data(&paired).control_lost, 0);
        }
    }
}

#[test]
fn a_packet_that_is_late_is_not_lost_and_what_was_sent_again_is_needless() {
    let model = Model {
        late: vec![(300, 30 * MS)],
        ..PLAIN
    };
    let paired = matched(&seen_at(&model, 0.0, 1.0));
    let [before, between, behind, spurious] = lost(&paired);
    assert_eq!([before, between, behind], [0; 3]);
    assert!(spurious >= 1, "{spurious}");
}

#[test]
fn packets_that_a_capture_has_twice_are_counted_as_that() {
    let [near, far] = seen_at(&lossy(), 0.0, 1.0);
    let twice = |capture: &Capture| -> Capture { capture.iter().flat_map(|p| [*p; 2]).collect() };
    for captures in [
        [twice(&near), far.clone()],
        [near.clone(), twice(&far)],
        [twice(&near), twice(&far)],
    ] {
        let paired = matched(&captures);
        assert_eq!(lost(&paired), [0, 14, 0, 0]);
        assert!(data(&paired).duplicates.iter().sum::<u64>() > 1_000);
    }
}

#[test]
fn captures_with_nothing_in_common_are_not_matched() {
    let one = packets(&PLAIN);
    let other = packets(&Model {
        sequence: 77,
        total_bytes: 300 * MSS,
        ..PLAIN
    });
    let mut moved = one.clone();
    for (_, segment) in &mut moved {
        segment.flow.ports[0] ^= 1;
    }
    for unrelated in [other, moved, Vec::new(), one[..2].to_vec()] {
        assert_eq!(anchors(&one).common(&anchors(&unrelated)), None);
        assert_eq!(anchors(&unrelated).common(&anchors(&one)), None);
        let paired = match_with(LIMITS, 0, &[one.clone(), unrelated]);
        assert!(
            paired
                .connections
                .iter()
                .all(|c| c.ways.iter().all(|w| w.lost() == 0))
        );
    }
    let three = anchors(&one[..3].to_vec());
    assert_eq!(three.common(&anchors(&one)).map(|c| c.packets), Some(3));
    assert!(three.common(&anchors(&one)).unwrap().is_one_capture);
    let far = packets(&Model {
        capture: 1.0,
        ..PLAIN
    });
    assert!(!anchors(&one).common(&anchors(&far)).unwrap().is_one_capture);
}

#[test]
fn without_room_packets_are_not_judged_and_not_called_lost() {
    let captures = seen_at(&lossy(), 0.0, 1.0);
    let small = Limits {
        copies_max: 10,
        lines_max: 3,
        ..LIMITS
    };
    let way = data(&match_with(small, 20_000_000, &captures)).clone();
    assert!(way.unjudged.segments > 0);
    assert!(way.between.segments <= 14 && way.losses.len() <= 3);
    let none = Limits {
        connections_max: 0,
        ..LIMITS
    };
    let paired = match_with(none, 0, &captures);
    assert_eq!(paired.connections, []);
    assert_eq!(
        paired.connections_left_out,
        (captures[0].len() + captures[1].len()) as u64
    );
}

#[test]
fn connections_with_the_same_ports_are_apart() {
    let model = Model {
        lost: vec![50],
        total_bytes: 200 * MSS,
        ..PLAIN
    };
    let mut captures = seen_at(&model, 0.0, 1.0);
    let again = seen_at(
        &Model {
            sequence: 0x1234_5678,
            ..model
        },
        0.0,
        1.0,
    );
    for (capture, again) in captures.iter_mut().zip(again) {
        let later = again
            .into_iter()
            .map(|(time, s)| (time + 20_000_000_000, s));
        capture.extend(later);
    }
    let paired = matched(&captures);
    assert_eq!(paired.connections.len(), 2);
    for connection in &paired.connections {
        let between = connection.ways.iter().map(|w| w.between.segments);
        assert_eq!(between.sum::<u64>(), 1);
    }
}

#[test]
fn drops_are_told_to_the_losses_that_they_made() {
    let mut paired = matched(&seen_at(&lossy(), 0.0, 1.0));
    let flow = paired.connections[0].flow;
    let from = u8::from(paired.connections[0].ways[1].bytes > paired.connections[0].ways[0].bytes);
    let drops: Vec<Dropped> = data(&paired)
        .losses
        .iter()
        .map(|loss| Dropped {
            flow,
            from,
            sequence: loss.sequence,
            bytes: 1448,
            time_ns: loss.time_ns + 1,
            reason: 3,
        })
        .collect();
    let elsewhere = Dropped {
        from: 1 - from,
        ..drops[0]
    };
    let late = Dropped {
        time_ns: drops[0].time_ns + ATTACH_NS,
        ..drops[0]
    };
    assert_eq!(attach(&mut paired, &[elsewhere, late]), 0);
    // The same drop again finds nothing that is left.
    let twice = [drops.clone(), drops].concat();
    assert_eq!(attach(&mut paired, &twice), 14);
    for loss in &data(&paired).losses {
        assert_eq!((loss.reason, loss.reason_segments), (Some(3), 1));
    }
}

#[test]
fn no_packets_make_it_panic_or_grow() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let wide = seed % 2 == 0;
        let mut pairing = Pairing::new(
            Limits {
                copies_max: 100,
                connections_max: 8,
                lines_max: 20,
            },
            if wide { i64::MIN } else { 0 },
            seed,
        );
        for n in 0..3_000 {
            let point = match pairing.next() {
                Some(point) if !rng.next_u64().is_multiple_of(8) => point,
                Some(Point::Near) => Point::Far,
                _ => Point::Near,
            };
            let r = rng.next_u64();
            let small = u32::try_from(r % 5_000).unwrap();
            let bits = |from: u32| u32::try_from(r >> from & 0xffff_ffff).unwrap();
            let few = |from: u32, mask: u16| u16::try_from(r >> from & 0xffff).unwrap() & mask;
            let flags = [Flags::ACK, Flags::SYN, Flags::FIN, Flags::RST];
            let segment = Segment {
                flow: FlowKey {
                    ports: [u16::try_from(r % 12).unwrap(), 1],
                    ..FlowKey::default()
                },
                from: u8::try_from(r >> 8 & 3).unwrap(),
                sequence: if wide { bits(16) } else { small },
                acknowledgment: if wide { bits(20) } else { small },
                flags: flags[usize::try_from(r >> 24 & 3).unwrap()].with(Flags::ACK),
                payload_bytes: if r.is_multiple_of(3) {
                    bits(30) >> (r % 32)
                } else {
                    0
                },
                ip_id: few(40, 3),
                timestamps: r.is_multiple_of(2).then_some((bits(50) & 3, 0)),
                sack: wire::tcp::SackBlocks::new(&[(bits(5), bits(9)), (small, small + 9)]),
                syn: SynOptions {
                    mss: Some(few(12, 31)),
                    ..SynOptions::default()
                },
                ..Segment::default()
            };
            let time = if wide { rng.next_u64() } else { n * 10_000_000 };
            pairing.take(point, Instant::from_ns(time), n, &segment);
        }
        pairing.end(Point::Near);
        pairing.end(Point::Far);
        assert_eq!(pairing.next(), None);
        let paired = pairing.finish();
        assert!(paired.connections.len() <= 8);
        let lines = paired
            .connections
            .iter()
            .flat_map(|c| &c.ways)
            .map(|w| w.losses.len());
        assert!(lines.sum::<usize>() <= 20);
    }
}

/// The far capture as behind a translator that gives the sender another address, which is above the
/// receiver's: the ends change places.
fn translated(mut capture: Capture) -> Capture {
    for (_, segment) in &mut capture {
        let own = segment.flow;
        let ends = [0, 1].map(|end| (own.addresses[end], own.ports[end]));
        let outside = ([0xff; 16], 61_000);
        let (source, destination) = match segment.from {
            0 => (outside, ends[1]),
            _ => (ends[1], outside),
        };
        (segment.flow, segment.from) = FlowKey::of(source, destination);
    }
    capture
}

fn names(capture: &Capture) -> Names {
    let mut names = Names::default();
    for (time, segment) in capture {
        names.take(Instant::from_ns(*time), segment);
    }
    names
}

#[test]
fn behind_a_translator_the_same_losses_are_found() {
    let model = Model {
        total_bytes: 2_000 * MSS,
        lost: vec![300, 700, 701],
        lost_at: 0.5,
        ..PLAIN
    };
    let [near, far] = seen_at(&model, 0.0, 1.0);
    let plain = lost(&matched(&[near.clone(), far.clone()]));
    let mut far = translated(far);
    assert!(anchors(&near).common(&anchors(&far)).is_none());
    let found = names(&near).translations(&names(&far));
    assert_eq!(found.list().len(), 1);
    for (_, segment) in &mut far {
        found.apply(segment);
    }
    let paired = match_with(LIMITS, found.ahead_ns(), &[near, far]);
    assert_eq!(lost(&paired), plain);
    assert_eq!(plain[1], 3);
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    /// Time in a few milliseconds, ends, numbers near each other and near where they wrap around, flags.
    fn packet() -> impl Strategy<Value = (u64, Segment)> {
        let ends = (0_u8..3, any::<bool>());
        let numbers = (0_u32..6, 0_u32..6, 0_u32..3_000);
        (
            0_u64..5_000_000,
            ends,
            numbers,
            any::<u8>(),
            any::<Option<(u32, u32)>>(),
        )
            .prop_map(
                |(time, (address, up), (sequence, acknowledgment, bytes), flags, timestamps)| {
                    let ends = [([address; 16], 1), ([1; 16], 2)];
                    let [source, destination] = if up { ends } else { [ends[1], ends[0]] };
                    let (flow, from) = FlowKey::of(source, destination);
                    let segment = Segment {
                        flow,
                        from,
                        sequence: (sequence * 1_000).wrapping_sub(2_000),
                        acknowledgment: (acknowledgment * 1_000).wrapping_sub(2_000),
                        payload_bytes: bytes,
                        ip_bytes: bytes + 40,
                        flags: Flags::from_bits(u16::from(flags)),
                        timestamps,
                        ..Segment::default()
                    };
                    (time, segment)
                },
            )
    }

    proptest! {
        #[test]
        fn any_two_captures_are_matched_to_their_end(
            near in prop::collection::vec(packet(), 0..150),
            far in prop::collection::vec(packet(), 0..150),
            ahead_ns in any::<i64>(),
        ) {
            let found = names(&near).translations(&names(&far));
            let mut far = far;
            for (_, segment) in &mut far {
                found.apply(segment);
            }
            let limits = Limits { copies_max: 32, connections_max: 2, lines_max: 8 };
            let captures = [near, far];
            for ahead_ns in [ahead_ns, 0, found.ahead_ns()] {
                let paired = match_with(limits, ahead_ns, &captures);
                for (capture, (packets, matched)) in
                    captures.iter().zip(paired.packets.iter().zip(&paired.matched))
                {
                    prop_assert_eq!(*packets, capture.len() as u64);
                    prop_assert!(matched <= packets);
                }
            }
        }
    }
}
