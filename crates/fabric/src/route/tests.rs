use proptest::prelude::*;

use super::*;
use crate::spec::{LinkSpec, Node};
use crate::topology::tests::parts;
use crate::topology::{Director, FatTree, Network, Placement, Topology, fat_tree};

fn built(topology: &Topology, ports: u8) -> Network {
    topology
        .build(&parts(ports), None, Placement::InOrder)
        .unwrap()
}

fn torus(sizes: &[u32]) -> FabricSpec {
    let topology = Topology::Torus {
        sizes: sizes.to_vec(),
        hosts: 1,
    };
    built(&topology, 8).spec
}

fn under(spec: &FabricSpec, routing: impl Into<Routing>) -> Routes {
    let mut spec = spec.clone();
    spec.routing = routing.into();
    Routes::new(&spec).unwrap()
}

/// Every pair of hosts has a way that ends; the hops of all of them together.
fn assert_whole(spec: &FabricSpec, routes: &Routes) -> usize {
    let graph = Graph::new(spec);
    let mut way = Vec::new();
    let mut hops = 0;
    for from in 0..graph::small(graph.hosts()) {
        for to in (0..graph::small(graph.hosts())).filter(|to| *to != from) {
            way.clear();
            assert!(routes.way(&graph, from, to, &mut way), "{from} to {to}");
            hops += way.len();
        }
    }
    hops
}

/// Destinations that the ports of a switch lead to.
fn loads(spec: &FabricSpec, routes: &Routes, switch: usize) -> Vec<usize> {
    let hosts = spec.hosts.len();
    let mut found = vec![0; 24];
    for port in &routes.table()[switch * hosts..(switch + 1) * hosts] {
        found[usize::from(*port)] += 1;
    }
    found
}

#[test]
fn d_mod_k_of_a_full_tree_is_its_formula() {
    let half = 4;
    let parts = parts(8);
    let spec = fat_tree(3, &parts.host, &parts.chip, &parts.host_cable);
    let routes = under(&spec, Engine::DModK);
    let hosts = spec.hosts.len();
    for leaf in 0..32 {
        for to in 0..hosts {
            let port = usize::from(routes.table()[leaf * hosts + to]);
            let expected = match to / half == leaf {
                true => to % half,
                false => half + to % half,
            };
            assert_eq!(port, expected);
        }
    }
    for middle in 0..32 {
        for to in 0..hosts {
            let port = usize::from(routes.table()[(32 + middle) * hosts + to]);
            let expected = match to / (half * half) == middle / half {
                true => to / half % half,
                false => half + to / half % half,
            };
            assert_eq!(port, expected);
        }
    }
}

#[test]
fn min_hop_counts_ports_evenly_in_any_order_of_lids() {
    let spec = built(&Topology::Director(Director::PORTS_288), 24).spec;
    for manager in [Engine::MinHop.into(), Manager::min_hop(1)] {
        let routes = under(&spec, Routing::Managed(manager));
        for leaf in 0..24 {
            // 276 destinations elsewhere over 12 ports up.
            assert!(loads(&spec, &routes, leaf)[12..].iter().all(|n| *n == 23));
        }
    }
    let [a, b, c] = [1, 1, 2].map(|seed| under(&spec, Routing::Managed(Manager::min_hop(seed))));
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn in_trees_every_engine_goes_as_short_as_fewest_hops_without_cycles_on_one_lane() {
    for topology in [
        Topology::FatTree(FatTree::full(2, 6)),
        Topology::FatTree(FatTree::full(3, 6)),
        Topology::FatTree(FatTree::two(4, 3, 2, 3)),
        Topology::FatTree(FatTree::k_ary_n_tree(2, 4)),
        Topology::Director(Director::PORTS_144),
    ] {
        let spec = built(&topology, 24).spec;
        let graph = Graph::new(&spec);
        let least = assert_whole(&spec, &under(&spec, Engine::MinHop));
        for engine in [
            Engine::UpDown,
            Engine::FatTree,
            Engine::DModK,
            Engine::SModK,
            Engine::Dfsssp,
        ] {
            let routes = under(&spec, engine);
            assert_eq!(assert_whole(&spec, &routes), least, "{engine:?}");
            assert_eq!(routes.lanes(), 1, "{engine:?}");
            assert_eq!(routes.cycle(&graph), None, "{engine:?}");
        }
    }
}

#[test]
fn all_ways_to_a_host_come_down_one_tree_under_d_mod_k_and_ftree() {
    for topology in [
        Topology::FatTree(FatTree::full(3, 6)),
        Topology::FatTree(FatTree::two(6, 4, 2, 2)),
    ] {
        let spec = built(&topology, 24).spec;
        let graph = Graph::new(&spec);
        for engine in [Engine::DModK, Engine::FatTree] {
            let routes = under(&spec, engine);
            let mut way = Vec::new();
            for to in 0..graph::small(graph.hosts()) {
                // Into the leaf by one cable, whoever sends from elsewhere.
                let mut last = std::collections::BTreeSet::new();
                for from in 0..graph::small(graph.hosts()) {
                    if graph.home(from) == graph.home(to) {
                        continue;
                    }
                    way.clear();
                    assert!(routes.way(&graph, from, to, &mut way));
                    last.insert(way[way.len() - 2]);
                }
                assert_eq!(last.len(), 1, "{engine:?}");
            }
        }
    }
}

#[test]
fn s_mod_k_sends_all_of_a_host_up_one_tree() {
    let spec = built(&Topology::FatTree(FatTree::full(3, 6)), 6).spec;
    let graph = Graph::new(&spec);
    let routes = under(&spec, Engine::SModK);
    assert!(routes.depends_on_source());
    let mut way = Vec::new();
    let mut used = std::collections::BTreeMap::new();
    for from in 0..54 {
        let mut first = std::collections::BTreeSet::new();
        for to in (0..54).filter(|to| graph.home(*to) != graph.home(from)) {
            way.clear();
            assert!(routes.way(&graph, from, to, &mut way));
            first.insert(way[1]);
        }
        assert_eq!(first.len(), 1);
        *used.entry(first.pop_first()).or_insert(0) += 1;
    }
    // Each cable up has one source.
    assert!(used.values().all(|sources| *sources == 1));
}

#[test]
fn fewest_hops_on_a_torus_lock_up_and_the_cycle_is_named() {
    let topology = Topology::Torus {
        sizes: vec![5],
        hosts: 1,
    };
    let network = built(&topology, 8);
    let graph = Graph::new(&network.spec);
    let cycle = under(&network.spec, Engine::MinHop).cycle(&graph).unwrap();
    assert_eq!(cycle.waits.len(), 5);
    let text = network.names.cycle(&network.spec, &cycle);
    assert!(
        text.starts_with("5 buffers can wait for each other for ever:"),
        "{text}"
    );
    assert!(
        text.contains("switch 1 port 3 -> switch 2 port 2, lane 0"),
        "{text}"
    );
    // With one lane, dimension order is no better.
    let plain = Manager {
        lanes: Some(1),
        sizes: vec![5],
        ..Engine::DimensionOrder.into()
    };
    let plain = under(&network.spec, Routing::Managed(plain));
    assert!(plain.cycle(&graph).is_some());
    assert_eq!(Routes::new(&network.spec).unwrap().cycle(&graph), None);
}

#[test]
fn a_dragonfly_on_one_lane_locks_up_and_a_lane_for_each_hop_does_not() {
    let topology = Topology::Dragonfly {
        switches: 4,
        hosts: 2,
        global: 2,
        groups: 0,
    };
    let spec = built(&topology, 8).spec;
    let graph = Graph::new(&spec);
    assert!(under(&spec, Engine::MinHop).cycle(&graph).is_some());
    let routes = Routes::new(&spec).unwrap();
    assert_eq!((routes.lanes(), routes.cycle(&graph)), (3, None));
    assert_eq!(
        [0, 1, 2, 3, 9].map(|hop| routes.lane(0, 71, hop)),
        [0, 0, 1, 2, 2]
    );
    let routes = under(&spec, Engine::Dfsssp);
    assert_eq!((routes.lanes(), routes.cycle(&graph)), (3, None));
    let short = FabricSpec {
        operational_lanes: 2,
        routing: Engine::Dfsssp.into(),
        ..spec
    };
    let error = Routes::new(&short).unwrap_err().to_string();
    assert!(
        error.contains("more than the 2 virtual lanes there are"),
        "{error}"
    );
}

#[test]
fn grids_need_their_sizes_and_lanes() {
    let mut spec = torus(&[4, 5]);
    assert_eq!(Routes::new(&spec).unwrap().lanes(), 4);
    let refused = |spec: &FabricSpec, sizes: &[u32]| {
        let mut spec = spec.clone();
        spec.routing = Routing::Managed(Manager {
            sizes: sizes.to_vec(),
            ..Engine::DimensionOrder.into()
        });
        Routes::new(&spec).unwrap_err().to_string()
    };
    assert!(refused(&spec, &[]).contains("needs the grid's sizes"));
    assert!(refused(&spec, &[3, 5]).contains("another number of switches"));
    assert!(refused(&spec, &[5, 4]).contains("no neighbours in a grid of 5x4"));
    spec.operational_lanes = 2;
    assert!(refused(&spec, &[4, 5]).contains("needs 4 virtual lanes here; there are 2"));
    spec.routing = Engine::Hops.into();
    assert!(
        Routes::new(&spec)
            .unwrap_err()
            .to_string()
            .contains("4 hops between switches")
    );
}

#[test]
fn sssp_spreads_ways_better_than_counting_destinations() {
    // A row of boxes: what looks even to each leaf is not for the cables between boxes.
    let row = Topology::Row {
        director: Director::PORTS_144,
        boxes: 2,
        trunks: 12,
    };
    let mut spec = built(&row, 24).spec;
    spec.operational_lanes = 8;
    let graph = Graph::new(&spec);
    let most = |routes: &Routes| {
        let mut load = vec![0_u32; graph.channels()];
        let mut way = Vec::new();
        for from in 0..graph::small(graph.hosts()) {
            for to in (0..graph::small(graph.hosts())).filter(|to| *to != from) {
                way.clear();
                routes.way(&graph, from, to, &mut way);
                for channel in &way {
                    load[*channel as usize] += 1;
                }
            }
        }
        load.into_iter().max().unwrap()
    };
    let [counted, weighted] = [Engine::MinHop, Engine::Dfsssp].map(|e| most(&under(&spec, e)));
    assert!(weighted <= counted, "{weighted} of {counted}");
}

#[test]
fn hosts_cut_off_are_named_whatever_the_engine() {
    let mut spec = torus(&[4]);
    // Host 2 and switch 2 alone.
    spec.links
        .retain(|link| !link.ends.contains(&Node::Switch(2)) || link.ends.contains(&Node::Host(2)));
    for engine in Engine::ALL {
        spec.routing = engine.into();
        let error = Routes::new(&spec).unwrap_err();
        assert_eq!(error.place, Place::Host(2));
    }
}

#[test]
fn names_of_engines_read_back() {
    for engine in Engine::ALL {
        assert_eq!(engine.name().parse(), Ok(engine));
    }
    assert!(
        "best"
            .parse::<Engine>()
            .unwrap_err()
            .contains("minhop, updn")
    );
}

/// Switches in a random spanning tree with more cables, some of them parallel, and one to three hosts at most of
/// them.
pub(crate) fn random_fabric() -> impl Strategy<Value = FabricSpec> {
    (3_u32..14, any::<u64>(), 0_u32..20).prop_map(|(switches, seed, more)| {
        let mut rng = units::Rng::new(seed);
        let mut draw = |below: u32| u32::try_from(rng.next_u64() % u64::from(below)).unwrap();
        let parts = parts(64);
        let mut links = Vec::new();
        let mut join = |a: Node, b: Node| {
            links.push(LinkSpec {
                ends: [a, b],
                cable: parts.outer_cable,
            });
        };
        let mut hosts = 0;
        for switch in 0..switches {
            let here = draw(4).max(u32::from(switch < 2));
            for _ in 0..here {
                join(Node::Host(hosts), Node::Switch(switch));
                hosts += 1;
            }
            if switch > 0 {
                join(Node::Switch(draw(switch)), Node::Switch(switch));
            }
        }
        for _ in 0..more {
            let (a, b) = (draw(switches), draw(switches));
            if a != b {
                join(Node::Switch(a), Node::Switch(b));
            }
        }
        FabricSpec {
            hosts: vec![parts.host; hosts as usize],
            switches: vec![parts.chip; switches as usize],
            links,
            operational_lanes: 8,
            ..FabricSpec::default()
        }
    })
}

#[test]
fn dfsssp_refuses_what_would_take_it_long() {
    let mut spec = torus(&[141, 141]);
    spec.routing = Engine::Dfsssp.into();
    spec.operational_lanes = 8;
    let error = Routes::new(&spec).unwrap_err().to_string();
    assert!(
        error.contains("too long to find on so large a fabric"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn routings_that_promise_it_have_no_cycle_on_any_topology(spec in random_fabric(), seed: u64) {
        let graph = Graph::new(&spec);
        let least = assert_whole(&spec, &under(&spec, Engine::MinHop));
        for engine in [Engine::UpDown, Engine::Dfsssp, Engine::FatTree, Engine::DModK, Engine::Hops] {
            let manager = Manager { lid_seed: Some(seed), tie_seed: Some(seed), ..engine.into() };
            let routed = Routes::new(&FabricSpec { routing: Routing::Managed(manager), ..spec.clone() });
            let routes = match routed {
                Ok(routes) => routes,
                Err(error) => {
                    // Long lines have more hops than there are lanes.
                    prop_assert!(engine == Engine::Hops, "{engine:?}: {error}");
                    continue;
                }
            };
            let hops = assert_whole(&spec, &routes);
            prop_assert!(hops >= least);
            if matches!(engine, Engine::Dfsssp | Engine::Hops) {
                prop_assert_eq!(hops, least);
            }
            prop_assert_eq!(routes.cycle(&graph), None, "{:?}", engine);
        }
    }
}
