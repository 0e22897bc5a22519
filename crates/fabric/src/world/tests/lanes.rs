//! Packets on the lanes and by the sources that routing engines give them.

use proptest::prelude::*;

use super::super::*;
use crate::route::tests::random_fabric;
use crate::route::{Engine, Manager};
use crate::spec::{Routing, Transport};
use crate::topology::tests::parts;
use crate::topology::{FatTree, Placement, Topology};

/// Buffers of each lane hold one packet, so that whatever can lock up soon does.
fn tight(mut spec: FabricSpec) -> FabricSpec {
    let packet = Transport::Rc.blocks(2048);
    let bytes = u64::from(packet * BLOCK_BYTES) * u64::from(spec.operational_lanes);
    for host in &mut spec.hosts {
        host.port.buffer_bytes = bytes;
    }
    for chip in &mut spec.switches {
        chip.port.buffer_bytes = bytes;
    }
    spec
}

fn built(topology: &Topology) -> FabricSpec {
    let parts = parts(8);
    let network = topology.build(&parts, None, Placement::InOrder).unwrap();
    tight(network.spec)
}

/// Every host sends to the one so many further on, whole messages of some packets.
fn shifts(spec: &FabricSpec, by: &[u32]) -> Vec<FlowSpec> {
    let hosts = u32::try_from(spec.hosts.len()).unwrap();
    let of = |by: &u32| {
        let by = *by % hosts;
        (0..hosts)
            .filter(move |_| by > 0)
            .map(move |from| FlowSpec {
                from,
                to: (from + by) % hosts,
                message_bytes: 20_000,
                messages: 10,
                depth: 2,
                ..FlowSpec::default()
            })
    };
    by.iter().flat_map(of).collect()
}

#[test]
fn a_ring_locks_up_on_one_lane_and_not_on_those_of_dimension_order() {
    let ring = Topology::Torus {
        sizes: vec![5],
        hosts: 1,
    };
    let mut spec = built(&ring);
    let flows = shifts(&spec, &[2]);
    World::new(&spec, &flows).unwrap().run().unwrap();
    let above = FlowSpec {
        lane: 1,
        ..flows[0]
    };
    let error = World::new(&spec, &[above]).unwrap_err();
    assert!(
        error.problem.contains("routes of 2 lanes; there are 2"),
        "{error}"
    );
    spec.routing = Routing::MinHop;
    let stuck = World::new(&spec, &flows).unwrap().run().unwrap_err();
    assert_eq!(stuck.flows.len(), 5);
}

#[test]
fn packets_of_a_dragonfly_rise_a_lane_with_each_hop() {
    let dragonfly = Topology::Dragonfly {
        switches: 4,
        hosts: 2,
        global: 2,
        groups: 0,
    };
    let spec = built(&dragonfly);
    assert_eq!(spec.operational_lanes, 4);
    let flows = shifts(&spec, &[1, 9, 23, 35]);
    let mut world = World::new(&spec, &flows).unwrap();
    world.run().unwrap();
    // Ways of three hops between switches end on the third lane.
    let one = FabricSpec {
        operational_lanes: 2,
        ..spec
    };
    let error = World::new(&one, &flows).unwrap_err();
    assert!(error.problem.contains("need as many lanes"), "{error}");
}

#[test]
fn packets_go_up_by_their_source_under_s_mod_k() {
    let mut spec = built(&Topology::FatTree(FatTree::full(2, 8)));
    spec.routing = Engine::SModK.into();
    let flows = shifts(&spec, &[5]);
    let mut world = World::new(&spec, &flows).unwrap();
    world.run().unwrap();
    // All four of a leaf have a cable up of their own, wherever they send.
    let up = |from: u32, to: u32| world.path(from, to)[1];
    assert_eq!(up(0, 9), up(0, 30));
    let all: std::collections::BTreeSet<_> = (0..4).map(|from| up(from, 9)).collect();
    assert_eq!(all.len(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn packets_never_lock_up_under_routings_that_promise_it(
        spec in random_fabric(),
        by in prop::collection::vec(1_u32..40, 1..4),
        seed: u64,
    ) {
        let spec = tight(spec);
        let flows = shifts(&spec, &by);
        for engine in [Engine::UpDown, Engine::Dfsssp, Engine::FatTree, Engine::DModK] {
            let manager = Manager { lid_seed: Some(seed), ..engine.into() };
            let spec = FabricSpec { routing: Routing::Managed(manager), ..spec.clone() };
            let mut world = World::new(&spec, &flows).unwrap();
            let run = world.run();
            prop_assert!(run.is_ok(), "{engine:?}: {run:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// On trees each half of a detour goes up and then down, and the second on a lane of its own: with buffers of one packet a
    /// lane, and a FIFO at each input for each lane on which packets came, nothing locks up.
    #[test]
    fn detours_never_lock_up_on_trees_with_queues_at_inputs(seed in 0_u64..u64::MAX) {
        let mut rng = units::Rng::new(seed);
        let mut below = |n: u32| u32::try_from(rng.next_u64() % u64::from(n)).unwrap();
        let ports = [4, 6][below(2) as usize];
        let mut spec = built(&Topology::FatTree(FatTree::full(2 + below(2), ports)));
        spec.operational_lanes = 4;
        spec = tight(spec);
        spec.seed = seed;
        let queueing = [Queueing::Input, Queueing::VirtualOutput];
        spec.queueing = queueing[below(2) as usize];
        spec.selection = [Selection::Valiant, Selection::Ugal { bias_bytes: below(3) * 2_048 }][below(2) as usize];
        let lane = u8::try_from(below(2)).unwrap();
        let by: Vec<u32> = (0..1 + below(3)).map(|_| 1 + below(40)).collect();
        let mut flows = shifts(&spec, &by);
        for flow in flows.iter_mut().step_by(2) {
            flow.lane = lane;
        }
        let mut world = World::new(&spec, &flows).unwrap();
        let run = world.run();
        prop_assert!(run.is_ok(), "{run:?}");
        for n in 0..flows.len() {
            prop_assert_eq!(world.flow(n).bytes_arrived, 200_000);
        }
    }
}

#[test]
fn detours_with_more_fifos_at_inputs_than_a_chip_asks_by_are_refused() {
    let parts = parts(36);
    let tree = Topology::FatTree(FatTree::full(2, 36));
    let mut spec = tree.build(&parts, None, Placement::InOrder).unwrap().spec;
    spec.selection = Selection::Valiant;
    spec.operational_lanes = 2;
    let flows = [FlowSpec {
        to: 600,
        ..FlowSpec::default()
    }];
    let error = World::new(&spec, &flows).unwrap_err();
    assert!(
        matches!(error.place, Place::Switch(_)) && error.problem.contains("64 FIFOs"),
        "{error}"
    );
    spec.queueing = Queueing::VirtualOutput;
    World::new(&spec, &flows).unwrap().run().unwrap();
}
