//! Worlds in parts: whatever their number, the results are those of one piece.

use proptest::prelude::*;

use super::super::parts;
use super::*;
use crate::ethernet::{FlowControl, Pfc, RESPOND_10G_PS};
use crate::route::tests::random_fabric;
use crate::route::{Engine, Manager};
use crate::spec::{Ordering, Queueing};

pub(super) const CHOICES: [Selection; 8] = [
    Selection::Static,
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
];
const PAUSES: FlowControl = FlowControl::Pfc(Pfc {
    xoff_bytes: 32 << 10,
    xon_bytes: 16 << 10,
    respond_ps: RESPOND_10G_PS / 10,
});
pub(super) const CONTROLS: [Option<FlowControl>; 4] = [
    None,
    Some(FlowControl::DropTail),
    Some(PAUSES),
    Some(FlowControl::Credits),
];

/// A second, in which whatever ends here ends.
const LONG_PS: u64 = 1_000_000_000_000;

/// All that a world tells.
fn told(world: &World, spec: &FabricSpec, flows: &[FlowSpec], ran: &Result<(), Stuck>) -> String {
    let mut all = format!("{ran:?} {} {:?}\n", world.now_ps(), world.counters());
    for n in 0..flows.len() {
        all += &format!("flow {n}: {:?}\n", world.flow(n));
    }
    for n in 0..spec.links.len() * 2 {
        all += &format!("channel {n}: {:?}\n", world.channel(n / 2, n % 2));
    }
    all + &format!("{:?}", world.blames())
}

/// Runs in one piece, and in each number of parts; how many parts there were at most.
pub(super) fn assert_same(
    spec: &FabricSpec,
    flows: &[FlowSpec],
    numbers: &[usize],
) -> (String, usize) {
    let mut world = World::new(spec, flows).unwrap();
    // Buffers too small for a window lose the same packets again and again: such a world has no end to compare.
    if world.run_until(LONG_PS) {
        eprintln!("no end within a second: {:?}", world.counters());
        return (String::new(), 1);
    }
    let ran = world.outcome();
    let whole = told(&world, spec, flows, &ran);
    let mut most = 1;
    for number in numbers {
        let mut world = World::new(spec, flows).unwrap();
        let mut split = world.split(*number);
        most = most.max(split.len());
        let ran = if split.is_empty() {
            world.run_until(u64::MAX);
            world.outcome()
        } else {
            parts::run(&mut split);
            // In whichever order they are put together.
            split.reverse();
            world.join(split)
        };
        let found = told(&world, spec, flows, &ran);
        for (line, expected) in found.lines().zip(whole.lines()) {
            assert_eq!(line, expected, "in {number} parts");
        }
        assert_eq!(found, whole);
    }
    (whole, most)
}

/// Two levels of switches with so many ports, or three, with all that a case varies.
pub(super) fn tree(
    levels: u32,
    selection: Selection,
    queueing: Queueing,
    control: Option<FlowControl>,
) -> FabricSpec {
    let mut spec = fat_tree(levels, &host(Speed::Edr), &switch(4), &fibre(10));
    for port in spec.hosts.iter_mut().map(|h| &mut h.port) {
        port.buffer_bytes = 128 << 10;
    }
    for chip in &mut spec.switches {
        chip.port.speed = Speed::Edr;
        chip.port.buffer_bytes = 128 << 10;
    }
    spec.operational_lanes = 4;
    spec.selection = selection;
    spec.queueing = queueing;
    spec.ethernet = control.map(|control| Ethernet {
        control,
        retry_ps: 500_000_000,
    });
    spec
}

/// Each host sends to two others, by each service but iWARP, which is not split.
pub(super) fn flows(hosts: u32, lanes: u8, ethernet: bool, seed: u64) -> Vec<FlowSpec> {
    let mut rng = units::Rng::new(seed);
    let mut draw = |below: u32| u32::try_from(rng.next_u64() % u64::from(below)).unwrap();
    let flow = |n: u32| FlowSpec {
        from: n % hosts,
        to: (n % hosts + 1 + draw(hosts - 1)) % hosts,
        transport: match (n % 4, ethernet) {
            (1, false) => Transport::Uc,
            _ => Transport::Rc,
        },
        mtu_bytes: 2_048,
        message_bytes: 1 + draw(60_000),
        messages: 3,
        depth: 1 + n % 3,
        ping_pong: !ethernet && n % 8 == 2,
        start_ps: u64::from(draw(3)) * 1_000_000,
        lane: u8::try_from(n).unwrap_or(0) % lanes,
        ordering: [Ordering::Strict, Ordering::Relaxed][(n / 4 % 2) as usize],
        ..FlowSpec::default()
    };
    (0..2 * hosts).map(flow).collect()
}

#[test]
fn every_kind_of_fabric_gives_the_same_in_any_number_of_parts() {
    for selection in CHOICES {
        for queueing in [Queueing::Input, Queueing::VirtualOutput, Queueing::Output] {
            for control in CONTROLS {
                for lanes in [1, 2] {
                    let spec = tree(3, selection, queueing, control);
                    let flows = flows(16, lanes, control.is_some(), 1 + u64::from(lanes));
                    if World::new(&spec, &flows).is_ok() {
                        let (_, most) = assert_same(&spec, &flows, &[2, 3, 5]);
                        assert_eq!(most, 5);
                    }
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_split_is_not() {
    let of = [flow(0, 1, 2048)];
    // Two hosts on one cable stay together, and so do all at one chip.
    for spec in [back_to_back(Speed::Ddr, 100), star(3)] {
        assert!(World::new(&spec, &of).unwrap().split(2).is_empty());
    }
    let control = Some(FlowControl::DropTail);
    let spec = tree(2, Selection::Static, Queueing::Output, control);
    let iwarp = FlowSpec {
        transport: Transport::Iwarp,
        mtu_bytes: 1_440,
        ..of[0]
    };
    assert!(World::new(&spec, &[iwarp]).unwrap().split(2).is_empty());
    let mut world = World::new(&spec, &of).unwrap();
    world.run_until(0);
    assert!(world.split(2).is_empty(), "it has begun");
    assert_eq!(World::new(&spec, &of).unwrap().split(2).len(), 2);
}

/// A deadlock is the same one, its cycle across parts too.
#[test]
fn a_ring_that_is_stuck_is_stuck_the_same_in_parts() {
    let chips: u32 = 6;
    let mut spec = FabricSpec {
        hosts: vec![host(Speed::Ddr); chips as usize],
        switches: vec![switch(4); chips as usize],
        links: (0..chips)
            .map(|n| link(Node::Host(n), Node::Switch(n), 5))
            .chain((0..chips).map(|n| link(Node::Switch(n), Node::Switch((n + 1) % chips), 5)))
            .collect(),
        ..FabricSpec::default()
    };
    for chip in &mut spec.switches {
        chip.port.buffer_bytes = 2 * 33 * 64;
    }
    spec.routing = Routing::Table(
        // Port 0 is the host's; the cable to the next chip is the first chip's second, else the third: all go round
        // the same way.
        (0..chips)
            .flat_map(|s| (0..chips).map(move |h| (s, h)))
            .map(|(s, h)| match (s, h) {
                (s, h) if s == h => 0,
                (0, _) => 1,
                _ => 2,
            })
            .collect(),
    );
    let flows: Vec<FlowSpec> = (0..chips)
        .map(|n| flow(n, (n + 3) % chips, 8_000))
        .collect();
    let (found, most) = assert_same(&spec, &flows, &[2, 3, 5, 6]);
    assert!(
        found.contains("Stuck") && !found.contains("cycle: []"),
        "{found}"
    );
    assert_eq!(most, 6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Fabrics of any shape, with lanes and without, whether they lock up or not.
    #[test]
    fn any_fabric_gives_the_same_in_any_number_of_parts(
        spec in random_fabric(),
        by in prop::collection::vec(1_u32..40, 1..4),
        room in 1_u64..4,
        engine in prop::sample::select(vec![Engine::MinHop, Engine::UpDown, Engine::Dfsssp, Engine::Hops]),
        seed: u64,
    ) {
        let packet = u64::from(Transport::Rc.blocks(2048) * BLOCK_BYTES);
        let bytes = room * packet * u64::from(spec.operational_lanes);
        let manager = Manager { lid_seed: Some(seed), ..engine.into() };
        let mut spec = FabricSpec { routing: Routing::Managed(manager), ..spec };
        for host in &mut spec.hosts {
            host.port.buffer_bytes = bytes;
        }
        for chip in &mut spec.switches {
            chip.port.buffer_bytes = bytes;
        }
        let hosts = u32::try_from(spec.hosts.len()).unwrap();
        let shift = |by: &u32| {
            let by = by % hosts;
            (0..hosts).filter(move |_| by > 0).map(move |from| FlowSpec {
                from,
                to: (from + by) % hosts,
                message_bytes: 20_000,
                messages: 5,
                depth: 2,
                ping_pong: from % 7 == 3,
                ..FlowSpec::default()
            })
        };
        let flows: Vec<FlowSpec> = by.iter().flat_map(shift).collect();
        if World::new(&spec, &flows).is_ok() {
            assert_same(&spec, &flows, &[2, 3, 5]);
        }
    }

    /// Trees with every choice, queue and flow control, chips of other speeds and kinds, small buffers.
    #[test]
    fn any_tree_gives_the_same_in_any_number_of_parts(seed in 0_u64..u64::MAX) {
        let mut rng = units::Rng::new(seed);
        let mut below = |n: u32| u32::try_from(rng.next_u64() % u64::from(n)).unwrap();
        let queueing =
            [Queueing::Input, Queueing::VirtualOutput, Queueing::Output][below(3) as usize];
        let control = CONTROLS[below(4) as usize];
        let mut spec = tree(2 + below(2), CHOICES[below(8) as usize], queueing, control);
        let pauses = control == Some(PAUSES);
        for chip in &mut spec.switches {
            chip.store_and_forward = below(3) == 0;
            chip.latency_ps = u64::from(below(4)) * 100_000;
            chip.port.speed = [Speed::Edr, Speed::Edr, Speed::Hdr, Speed::Qdr][below(4) as usize];
            if !pauses {
                chip.port.buffer_bytes = 4 * 33 * 64 * u64::from(1 + below(6));
            }
        }
        for link in &mut spec.links {
            link.cable.length_mm = u64::from(below(5)) * 10_000;
        }
        spec.seed = seed;
        let hosts = u32::try_from(spec.hosts.len()).unwrap();
        let lanes = 1 + u8::try_from(below(3)).unwrap();
        let flows = flows(hosts, lanes, control.is_some(), seed);
        if World::new(&spec, &flows).is_ok() {
            assert_same(&spec, &flows, &[2, 3, 5]);
        }
    }
}
