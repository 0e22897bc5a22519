//! Lanes, queues of chips, and the choice among several paths.

use super::*;
use crate::selection::Selection;
use crate::spec::{Ordering, Queueing};

/// Two levels of chips with 8 ports: 32 hosts, 4 at each of 8 leaves, 4 spines.
fn tree() -> FabricSpec {
    fat_tree(2, &host(Speed::Ddr), &switch(8), &fibre(5))
}

const ALL: [Selection; 8] = [
    Selection::Ecmp,
    Selection::Spray,
    Selection::RoundRobin,
    Selection::Drill {
        draws: 2,
        memory: 1,
    },
    Selection::Flowlet { gap_ps: 1_000_000 },
    Selection::Valiant,
    Selection::Ugal { bias_bytes: 0 },
    Selection::Static,
];

fn bytes(world: &World, n: usize) -> u64 {
    world.flow(n).bytes_arrived
}

/// Hosts 0, 1 and 4 meet at host 2; host 0 also has packets for the idle host 3, on a lane. At 10 ms.
fn three_meet(queueing: Queueing, lane: u8, depth: u32) -> World {
    let mut spec = star(5);
    spec.operational_lanes = 2;
    spec.queueing = queueing;
    let flows = [
        flow(0, 2, 1 << 14),
        flow(1, 2, 1 << 14),
        flow(4, 2, 1 << 14),
        flow(0, 3, 1 << 14),
    ];
    let mut flows = flows.map(|f| FlowSpec {
        messages: 4_000,
        depth,
        ..f
    });
    flows[3].lane = lane;
    flows[3].depth = 300;
    let mut world = World::new(&spec, &flows).unwrap();
    world.run_until(10_000_000_000);
    world
}

#[test]
fn a_blocked_lane_does_not_block_another() {
    let world = three_meet(Queueing::Input, 0, 300);
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| bytes(&world, n));
    // Host 0's two flows alternate: what goes to an idle host is as slow as what is blocked, and the link idles.
    let third = (a + b + c) / 3;
    assert!(a.abs_diff(third) <= third / 100, "{a} {b} {c} {d}");
    assert!(d.abs_diff(a) <= a / 20, "{a} {b} {c} {d}");
    assert!(world.channel(0, 0).busy_ps < 7_500_000_000);
    assert!(world.channel(2, 1).busy_ps > 9_900_000_000);
    // Host 0's input: nearly all the time a head for host 2 before a packet for host 3, or the other way round.
    let [held_by_2, held_by_3] = [2, 3].map(|n| world.channel(n, 1).held_ps);
    assert!(held_by_2 > 6_000_000_000 && held_by_2 + held_by_3 < 10_000_000_000);
    assert!(held_by_3 < world.channel(3, 1).busy_ps + 1_000_000);

    let world = three_meet(Queueing::Input, 1, 300);
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| bytes(&world, n));
    // A lane of its own: it has what the link has left.
    assert!(a.abs_diff((a + b + c) / 3) <= a / 100, "{a} {b} {c} {d}");
    assert!(d > 2 * a - a / 20, "{a} {b} {c} {d}");
    assert!(world.channel(0, 0).busy_ps > 9_900_000_000);
    assert_eq!(world.channel(2, 1).held_ps, 0, "nobody stands behind it");
}

#[test]
fn lanes_share_a_link_in_equal_parts_whatever_their_senders() {
    // Three hosts on lane 0, one on lane 5, all to host 4.
    let mut spec = star(5);
    spec.operational_lanes = 8;
    let flows: Vec<FlowSpec> = [0, 0, 0, 5]
        .iter()
        .zip(0..)
        .map(|(lane, from)| FlowSpec {
            lane: *lane,
            ..flow(from, 4, 1 << 16)
        })
        .collect();
    let mut world = World::new(&spec, &flows).unwrap();
    world.run_until(10_000_000_000);
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| bytes(&world, n));
    assert!(d.abs_diff(a + b + c) <= 4 * 2048, "{a} {b} {c} {d}");
    assert!(a.abs_diff(b) <= 2 * 2048 && b.abs_diff(c) <= 2 * 2048);
}

#[test]
fn a_lane_that_a_link_has_not_is_refused() {
    let mut spec = star(2);
    let on = |lane| {
        [FlowSpec {
            lane,
            ..flow(0, 1, 2048)
        }]
    };
    assert!(World::new(&spec, &on(0)).is_ok());
    let error = World::new(&spec, &on(1)).unwrap_err();
    assert_eq!(error.place, Place::Link(0));
    assert!(error.to_string().contains("lane 1; it has 1"), "{error}");
    spec.operational_lanes = 8;
    assert!(World::new(&spec, &on(7)).is_ok());
    assert!(World::new(&spec, &on(8)).is_err());
    let error = World::new(&spec, &on(15)).unwrap_err();
    assert_eq!(error.place, Place::Flow(0));
}

#[test]
fn queues_for_each_output_free_who_stood_behind_a_blocked_head() {
    // Two messages of 16 KiB at a time from each that meet: less than a port's buffer.
    let of = |queueing| {
        let mut world = three_meet(queueing, 0, 2);
        let all = [0, 1, 2, 3].map(|n| bytes(&world, n));
        let held = world.channel(2, 1).held_ps;
        world.run().unwrap();
        (all, held)
    };
    let ([a, b, _, d], held) = of(Queueing::Input);
    assert!(a < b / 2 && a + d < 17_500_000, "{a} {b} {d}");
    assert!(held > 2_000_000_000);
    for queueing in [Queueing::VirtualOutput, Queueing::Output] {
        let ([a, b, _, d], held) = of(queueing);
        // Host 0's link is full: 1.97 GB/s.
        assert!(a > b * 3 / 4 && a + d > 19_500_000, "{a} {b} {d}");
        assert_eq!(held, 0);
    }
}

#[test]
fn one_flow_is_as_fast_whatever_the_queues_and_the_choice() {
    for queueing in [Queueing::Input, Queueing::VirtualOutput, Queueing::Output] {
        for selection in ALL {
            let mut spec = tree();
            spec.operational_lanes = 2;
            spec.queueing = queueing;
            spec.selection = selection;
            let of = flow(0, 31, 1 << 16);
            let world = ran(&spec, &[of]);
            let bounds = formula::bounds(&spec, &of, &world.path(0, 31));
            let least = formula::least(&bounds).unwrap();
            let found = rate(&world, 0, 1 << 16) / least.bytes_per_second;
            assert!(
                (found - 1.0).abs() < 1e-4,
                "{queueing:?} {selection:?}: {found}"
            );
        }
    }
}

#[test]
fn every_choice_delivers_all_the_same_way_each_time() {
    for selection in ALL {
        for ordering in [Ordering::Strict, Ordering::Relaxed] {
            let mut spec = tree();
            spec.operational_lanes = 2;
            spec.selection = selection;
            let flows: Vec<FlowSpec> = permutation(32, 5, 50_000)
                .into_iter()
                .map(|f| FlowSpec { ordering, ..f })
                .collect();
            let (a, b) = (ran(&spec, &flows), ran(&spec, &flows));
            let mut early = 0;
            for (n, flow) in flows.iter().enumerate() {
                assert_eq!(bytes(&a, n), flow.messages * u64::from(flow.message_bytes));
                assert_eq!(a.flow(n), b.flow(n), "{selection:?}");
                early += a.flow(n).early;
            }
            match selection {
                // What credits stop pauses for longer than a flowlet's gap, or not.
                Selection::Flowlet { .. } => {}
                _ => assert_eq!(early > 0, selection.reorders(), "{selection:?}: {early}"),
            }
            if !matches!(selection, Selection::Static) {
                spec.seed = 2;
                let c = ran(&spec, &flows);
                assert_ne!(last(&a, &flows), last(&c, &flows), "{selection:?}");
            }
        }
    }
}

fn last(world: &World, flows: &[FlowSpec]) -> Vec<u64> {
    (0..flows.len()).map(|n| world.flow(n).last_ps).collect()
}

/// Mean of the flows' rates over that of one alone.
#[allow(clippy::cast_precision_loss, reason = "for comparison")]
fn mean(selection: Selection, queueing: Queueing) -> f64 {
    let mut spec = tree();
    spec.operational_lanes = 2;
    spec.selection = selection;
    spec.queueing = queueing;
    // All of a leaf to the hosts of the next leaf that D-mod-K sends by one spine: the worst for the table.
    let flows: Vec<FlowSpec> = (0..32)
        .map(|n| FlowSpec {
            messages: 100,
            transport: Transport::Uc,
            ..flow(n, (n % 4 * 8 + n / 4 + 1) % 32, 1 << 16)
        })
        .filter(|f| f.from != f.to)
        .collect();
    let world = ran(&spec, &flows);
    let alone = flow_alone(&spec);
    let rates = (0..flows.len()).map(|n| {
        let info = world.flow(n);
        bytes(&world, n) as f64 / (info.last_ps as f64 * 1e-12) / alone
    });
    rates.sum::<f64>() / flows.len() as f64
}

fn flow_alone(spec: &FabricSpec) -> f64 {
    let of = flow(0, 31, 1 << 16);
    let world = World::new(spec, &[]).unwrap();
    let bounds = formula::bounds(spec, &of, &world.path(0, 31));
    formula::least(&bounds).unwrap().bytes_per_second
}

#[test]
fn choosing_by_packet_carries_what_static_routes_collide_on() {
    let of = |selection| mean(selection, Queueing::Output);
    let table = of(Selection::Static);
    let drill = of(Selection::Drill {
        draws: 2,
        memory: 1,
    });
    let spray = of(Selection::Spray);
    let turns = of(Selection::RoundRobin);
    let ecmp = of(Selection::Ecmp);
    let ugal = of(Selection::Ugal { bias_bytes: 0 });
    let all = format!(
        "table {table:.3} ecmp {ecmp:.3} spray {spray:.3} turns {turns:.3} drill {drill:.3} ugal {ugal:.3}"
    );
    assert!(table < 0.4, "{all}");
    assert!(drill > 0.9 && turns > 0.85 && spray > 0.8, "{all}");
    assert!(ecmp > table && ecmp < spray, "{all}");
}

#[test]
fn early_packets_wait_for_their_place_in_strict_order_only() {
    // A bus as slow as the link, so that what must be written late shows.
    let spec = |selection| {
        let mut spec = tree();
        spec.selection = selection;
        for host in &mut spec.hosts {
            host.bus = Some(BusSpec {
                rate: Rate::from_bits_per_second(17_000_000_000),
                burst_bytes: 4096,
                burst_ps: 0,
                latency_ps: 300_000,
            });
        }
        spec
    };
    let flows = |ordering| -> Vec<FlowSpec> {
        let all = permutation(32, 9, 1 << 16).into_iter();
        all.map(|f| FlowSpec { ordering, ..f }).collect()
    };
    let [strict, relaxed] = [Ordering::Strict, Ordering::Relaxed].map(flows);
    let sum = |world: &World| last(world, &strict).iter().sum::<u64>();
    // Without early packets there is no difference.
    let table = spec(Selection::Static);
    assert_eq!(sum(&ran(&table, &strict)), sum(&ran(&table, &relaxed)));
    let spray = spec(Selection::Spray);
    let (held, placed) = (ran(&spray, &strict), ran(&spray, &relaxed));
    assert!(sum(&held) > sum(&placed));
    assert!((0..strict.len()).any(|n| held.flow(n).early_bytes_max > 2048));
}

#[test]
fn impossible_choices_are_refused() {
    let mut spec = tree();
    spec.selection = Selection::Drill {
        draws: 0,
        memory: 1,
    };
    let error = World::new(&spec, &[flow(0, 31, 64)]).unwrap_err();
    assert!(error.to_string().contains("at least one port"), "{error}");
    spec.selection = Selection::Valiant;
    spec.queueing = Queueing::Output;
    let error = World::new(&spec, &[flow(0, 31, 64)]).unwrap_err();
    assert!(error.to_string().contains("lane 1; it has 1"), "{error}");
    spec.operational_lanes = 2;
    for queueing in [Queueing::Input, Queueing::VirtualOutput, Queueing::Output] {
        spec.queueing = queueing;
        assert!(World::new(&spec, &[flow(0, 31, 64)]).is_ok());
    }
}

#[test]
fn waiting_is_charged_to_the_output_that_held_the_buffer() {
    // Hosts 0 and 1 meet at host 2, the root of the tree; the chip's buffers fill up.
    let world = ran(&star(3), &[flow(0, 2, 1 << 16), flow(1, 2, 1 << 16)]);
    let blames = world.blames();
    assert_eq!(blames.len(), 2, "{blames:?}");
    for (n, blame) in (0..).zip(&blames) {
        assert_eq!(blame.on, WaitsFor::Channel(2, 1));
        assert!(blames.iter().any(|b| b.waiting == (n, 0)));
        let starved = world.channel(blame.waiting.0 as usize, 0).starved_ps;
        assert_eq!(blame.time_ps, starved);
    }
    assert!(world.channel(2, 1).queued_bytes_max > 2 * 2048);
    // A cable too long for its buffer: nobody else is at fault.
    let mut spec = back_to_back(Speed::Ddr, 100);
    spec.hosts[1].port.buffer_bytes = 8 * 33 * 64;
    let world = ran(&spec, &[flow(0, 1, 2048)]);
    assert_eq!(world.blames()[0].on, WaitsFor::RoundTrip);
    assert_eq!(world.blames()[0].time_ps, world.channel(0, 0).starved_ps);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(60))]

    /// Trees route up, then down: whatever chooses, on whichever lanes and queues, all arrives and credits are conserved.
    #[test]
    fn any_choice_on_a_tree_delivers_all(seed in 0_u64..u64::MAX) {
        let mut rng = units::Rng::new(seed);
        let mut below = |n: u32| u32::try_from(rng.next_u64() % u64::from(n)).unwrap();
        let levels = 2 + below(2);
        let mut spec = fat_tree(levels, &host(Speed::Ddr), &switch(4), &fibre(5));
        let hosts = u32::try_from(spec.hosts.len()).unwrap();
        spec.operational_lanes = 4;
        spec.seed = seed;
        spec.queueing =
            [Queueing::Input, Queueing::VirtualOutput, Queueing::Output][below(3) as usize];
        let room = 4 * 33 * 64 * u64::from(1 + below(4));
        for chip in &mut spec.switches {
            chip.port.buffer_bytes = room;
            chip.port.virtual_lanes = 4;
            chip.store_and_forward = below(2) == 0;
        }
        let dca = Selection::Dca(crate::selection::Dca {
            period_ps: 20_000_000,
            lost_after_ps: 40_000_000,
            hold_ps: 0,
            threshold_ps: 1_000_000,
            venture: 64,
            ..crate::selection::Dca::default()
        });
        let choice = below(9) as usize;
        spec.selection = ALL.get(choice).copied().unwrap_or(dca);
        let flows: Vec<FlowSpec> = (0..12)
            .map(|_| {
                let from = below(hosts);
                FlowSpec {
                    transport: Transport::ALL[below(2) as usize],
                    messages: u64::from(1 + below(20)),
                    depth: 1 + below(8),
                    lane: u8::try_from(below(3)).unwrap(),
                    ordering: [Ordering::Strict, Ordering::Relaxed][below(2) as usize],
                    ping_pong: below(5) == 0,
                    ..flow(from, (from + 1 + below(hosts - 1)) % hosts, 1 + below(30_000))
                }
            })
            .collect();
        let mut world = World::new(&spec, &flows).unwrap();
        let mut to = 0;
        while world.run_until(to) {
            world.check_conservation();
            to += 3_000_000;
        }
        world.run().unwrap();
        for (n, flow) in flows.iter().enumerate() {
            let all = flow.messages * u64::from(flow.message_bytes);
            proptest::prop_assert_eq!(bytes(&world, n), all);
        }
        let again = ran(&spec, &flows);
        proptest::prop_assert_eq!(world.counters(), again.counters());
    }
}
