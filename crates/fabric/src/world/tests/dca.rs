//! Dynamic congestion avoidance.

use super::*;
use crate::selection::{Dca, Selection};
use crate::spec::Queueing;

/// Two levels of chips with 8 ports, output queues; all flows of a leaf to another leaf.
fn tree(rule: Option<Dca>) -> FabricSpec {
    let mut spec = fat_tree(2, &host(Speed::Ddr), &switch(8), &fibre(5));
    for chip in &mut spec.switches {
        chip.port.buffer_bytes = 64 << 10;
    }
    spec.queueing = Queueing::Output;
    spec.selection = rule.map_or(Selection::Ecmp, Selection::Dca);
    spec
}

const RULE: Dca = Dca {
    period_ps: 200_000_000,
    threshold_ps: 20_000_000,
    paths: 4,
    hold_ps: 400_000_000,
    mean_of: 1,
    idle_ps: 100_000,
    venture: 8,
    lost_after_ps: 5_000_000_000,
    clock_offset_max_ps: 0,
};

/// The low half sends to the high half, turned by `shift`: 40 MB each.
fn halves(shift: u32) -> Vec<FlowSpec> {
    (0..16)
        .map(|n| FlowSpec {
            messages: 40,
            depth: 2,
            ..flow(n, 16 + (n + shift) % 16, 1_000_000)
        })
        .collect()
}

#[allow(clippy::cast_precision_loss, reason = "for comparison")]
fn shares(world: &World, flows: &[FlowSpec]) -> Vec<f64> {
    (0..flows.len())
        .map(|n| {
            let info = world.flow(n);
            // 2 GB/s less headers.
            info.bytes_arrived as f64 / (info.last_ps as f64 * 1e-12) / 1.973e9
        })
        .collect()
}

#[allow(clippy::cast_precision_loss, reason = "for comparison")]
fn mean(shares: &[f64]) -> f64 {
    shares.iter().sum::<f64>() / shares.len() as f64
}

#[test]
fn flows_that_collide_are_moved_apart() {
    let flows = halves(1);
    let fixed = ran(&tree(None), &flows);
    let moved = ran(&tree(Some(RULE)), &flows);
    let (fixed, shares) = (shares(&fixed, &flows), shares(&moved, &flows));
    assert!(mean(&fixed) < 0.75, "{fixed:?}");
    assert!(mean(&shares) > 0.88, "{shares:?} {}", moved.moves().len());
    assert!(moved.avoided().moves > 0);
    let early: u64 = (0..16).map(|n| moved.flow(n).early).sum();
    assert!(
        early > 0,
        "a move to a faster path overtakes what is on the slower one"
    );
}

/// Two leaves with all their uplinks in use send to two others: where no path is idle, flows change places.
#[test]
fn flows_of_full_leaves_change_places() {
    let flows: Vec<FlowSpec> = (0..8)
        .map(|n| FlowSpec {
            messages: 60,
            depth: 2,
            ..flow(n, 8 + 3 * n % 8, 1_000_000)
        })
        .collect();
    let often = Dca {
        venture: 64,
        ..RULE
    };
    let mut both = 0;
    let (mut still, mut moved) = (0.0, 0.0);
    for seed in 1..5 {
        let of = |rule: Dca| {
            let mut spec = tree(Some(rule));
            spec.seed = seed;
            ran(&spec, &flows)
        };
        let world = of(often);
        both += world
            .moves()
            .windows(2)
            .filter(|two| two[0].at_ps == two[1].at_ps && two[0].gain_ps == two[1].gain_ps)
            .count();
        moved += mean(&shares(&world, &flows)) / 4.0;
        let never = Dca {
            threshold_ps: 1_000_000_000_000,
            ..RULE
        };
        still += mean(&shares(&of(never), &flows)) / 4.0;
    }
    assert!(both > 0 && moved > still, "{both} {moved} {still}");
}

#[test]
fn clocks_that_differ_by_a_second_change_nothing() {
    let flows = halves(3);
    let same = ran(&tree(Some(RULE)), &flows);
    let off = ran(
        &tree(Some(Dca {
            clock_offset_max_ps: 1_000_000_000_000,
            ..RULE
        })),
        &flows,
    );
    assert!(same.avoided().moves > 0);
    assert_eq!(same.moves(), off.moves());
    assert_eq!(same.counters(), off.counters());
    for n in 0..flows.len() {
        assert_eq!(same.flow(n), off.flow(n));
    }
}

#[test]
fn a_flow_moves_once_in_its_hold_time_and_only_for_more_than_the_threshold() {
    for hold_ps in [300_000_000, 4_000_000_000] {
        let rule = Dca { hold_ps, ..RULE };
        let world = ran(&tree(Some(rule)), &halves(2));
        let mut last = BTreeMap::new();
        for step in world.moves() {
            assert!(step.gain_ps.unwrap() > rule.threshold_ps);
            if let Some(before) = last.insert(step.flow, step.at_ps) {
                assert!(step.at_ps - before >= hold_ps, "{step:?}");
            }
        }
    }
    // No path is ever slower by a second.
    let rule = Dca {
        threshold_ps: 1_000_000_000_000,
        ..RULE
    };
    let world = ran(&tree(Some(rule)), &halves(2));
    assert_eq!(world.moves(), []);
    assert!(world.avoided().answers > 100);
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "for comparison")]
fn probes_cost_little_and_end_with_the_flows() {
    let flows = halves(1);
    let world = ran(&tree(Some(RULE)), &flows);
    let avoided = world.avoided();
    assert_eq!(avoided.probes, avoided.answers);
    assert_eq!(avoided.lost, 0);
    let busy: u64 = (0..64)
        .flat_map(|link| [0, 1].map(|way| world.channel(link, way).busy_ps))
        .sum();
    let share = avoided.wire_ps as f64 / busy as f64;
    assert!(share > 0.0 && share < 1e-3, "{share}");
    let last = (0..16).map(|n| world.flow(n).last_ps).max().unwrap();
    assert!(world.now_ps() < last + 2 * RULE.period_ps);
}

#[test]
fn probes_that_share_a_fabric_stuck_for_ever_end_too() {
    // A ring of chips, with probes beside: two edges have two shortest paths only across the ring.
    let mut spec = ring();
    spec.selection = Selection::Dca(Dca { paths: 1, ..RULE });
    let flows: Vec<FlowSpec> = (0..4)
        .map(|n| FlowSpec {
            transport: Transport::Uc,
            ..flow(n, (n + 2) % 4, 1 << 16)
        })
        .collect();
    let mut world = World::new(&spec, &flows).unwrap();
    // Ends, one way or the other.
    let _ = world.run();
    assert!(world.now_ps() < 1_000_000_000_000);
}

fn ring() -> FabricSpec {
    let mut spec = FabricSpec {
        hosts: vec![host(Speed::Ddr); 4],
        switches: vec![switch(4); 4],
        ..FabricSpec::default()
    };
    for n in 0..4 {
        spec.links
            .push(link(Node::Switch(n), Node::Switch((n + 1) % 4), 5));
    }
    for n in 0..4 {
        spec.links.push(link(Node::Host(n), Node::Switch(n), 5));
    }
    for chip in &mut spec.switches {
        chip.port.buffer_bytes = 33 * 64;
    }
    spec
}

#[test]
fn a_path_without_an_answer_counts_as_failed_until_one_comes() {
    // Queues of colliding flows are longer than 50 us: their probes are given up, and their flows go elsewhere.
    let rule = Dca {
        period_ps: 50_000_000,
        lost_after_ps: 50_000_000,
        threshold_ps: 1_000_000_000_000,
        ..RULE
    };
    let flows = halves(1);
    let world = ran(&tree(Some(rule)), &flows);
    let avoided = world.avoided();
    assert!(avoided.lost > 0 && avoided.answers > avoided.lost);
    assert!(avoided.moves > 0);
    assert!(
        world.moves().iter().all(|m| m.gain_ps.is_none()),
        "only failures move"
    );
    let fixed = mean(&shares(&ran(&tree(None), &flows), &flows));
    assert!(mean(&shares(&world, &flows)) > fixed);
}

#[test]
fn rules_that_cannot_be_are_refused() {
    for (rule, says) in [
        (Dca { paths: 0, ..RULE }, "0 sampled paths"),
        (Dca { paths: 65, ..RULE }, "65 sampled paths"),
        (
            Dca {
                period_ps: 0,
                ..RULE
            },
            "period",
        ),
        (Dca { mean_of: 9, ..RULE }, "mean of 9"),
    ] {
        let error = World::new(&tree(Some(rule)), &halves(0)).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    for rule in [
        Dca { paths: 64, ..RULE },
        Dca { mean_of: 8, ..RULE },
        Dca { paths: 1, ..RULE },
    ] {
        assert!(World::new(&tree(Some(rule)), &halves(0)).is_ok());
    }
}
