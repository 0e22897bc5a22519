use super::*;
use crate::link::{CableKind, Speed};
use crate::route::{Graph, Routes};
use crate::spec::PortSpec;

/// Parts with chips of so many ports; cables of 1 m, 2 m and 5 m.
pub(crate) fn parts(ports: u8) -> Parts {
    let port = PortSpec {
        speed: Speed::Sdr,
        width: 4,
        buffer_bytes: 128 << 10,
        virtual_lanes: 8,
        credit_ps: 20_000,
    };
    let cable = |metres: u64| Cable {
        kind: CableKind::Copper,
        length_mm: metres * 1_000,
        rated: None,
        electronics_ps: 0,
    };
    Parts {
        host: HostSpec {
            port,
            bus: None,
            post_ps: 0,
            engine_ps: 0,
            engine_datagram_ps: 0,
            prefetch_packets: 4,
        },
        chip: SwitchSpec {
            ports,
            port,
            latency_ps: 200_000,
            store_and_forward: false,
        },
        host_cable: cable(5),
        inner_cable: cable(1),
        outer_cable: cable(2),
    }
}

fn built(topology: &Topology, ports: u8) -> Network {
    topology
        .build(&parts(ports), None, Placement::InOrder)
        .unwrap()
}

/// Longest way in cables, after every pair of hosts has one.
fn longest(spec: &FabricSpec) -> usize {
    let graph = Graph::new(spec);
    let routes = Routes::new(spec).unwrap();
    assert_eq!(routes.cycle(&graph), None);
    let mut most = 0;
    let hosts = u32::try_from(spec.hosts.len()).unwrap();
    let mut way = Vec::new();
    for from in 0..hosts {
        for to in (0..hosts).filter(|to| *to != from) {
            way.clear();
            assert!(routes.way(&graph, from, to, &mut way), "{from} to {to}");
            most = most.max(way.len());
        }
    }
    most
}

#[test]
fn each_topology_has_the_parts_and_the_longest_way_of_its_kind() {
    let dragonfly = |switches, hosts, global, groups| Topology::Dragonfly {
        switches,
        hosts,
        global,
        groups,
    };
    let torus = |sizes: &[u32], hosts| Topology::Torus {
        sizes: sizes.to_vec(),
        hosts,
    };
    // Chip's ports; hosts, chips, cables on the longest way.
    for (topology, ports, expected) in [
        (Topology::BackToBack, 2, [2, 0, 1]),
        (Topology::OneSwitch, 24, [24, 1, 2]),
        (Topology::FatTree(FatTree::full(2, 8)), 8, [32, 12, 4]),
        (Topology::FatTree(FatTree::full(3, 8)), 8, [128, 80, 6]),
        (Topology::FatTree(FatTree::full(4, 4)), 4, [32, 56, 8]),
        (Topology::FatTree(FatTree::two(6, 8, 2, 2)), 12, [48, 8, 4]),
        (
            Topology::FatTree(FatTree::k_ary_n_tree(3, 3)),
            6,
            [27, 27, 6],
        ),
        (Topology::Director(Director::PORTS_288), 24, [288, 36, 4]),
        (Topology::Director(Director::PORTS_144), 24, [144, 18, 4]),
        (
            Topology::Row {
                director: Director::PORTS_144,
                boxes: 4,
                trunks: 12,
            },
            24,
            [504, 72, 13],
        ),
        (
            Topology::Boxes {
                director: Director::PORTS_144,
                boxes: 4,
                core: 2,
                up: 72,
            },
            24,
            [288, 108, 10],
        ),
        (
            Topology::Directors {
                director: Director {
                    leaves: 6,
                    ports: 3,
                    spines: 3,
                    traces: 1,
                },
                directors: 3,
                down: 3,
                up: 3,
            },
            6,
            [54, 45, 6],
        ),
        (dragonfly(4, 2, 2, 0), 7, [72, 36, 5]),
        (dragonfly(4, 2, 2, 4), 7, [32, 16, 5]),
        (torus(&[5, 4], 2), 6, [40, 20, 6]),
        (torus(&[4, 3, 2], 1), 7, [24, 24, 6]),
        (torus(&[2, 2, 2], 1), 7, [8, 8, 5]),
    ] {
        let spec = built(&topology, ports).spec;
        assert_eq!(
            [spec.hosts.len(), spec.switches.len(), longest(&spec)],
            expected,
            "{topology:?}"
        );
    }
}

#[test]
fn a_full_tree_uses_every_port_and_a_dragonfly_joins_each_two_groups() {
    let ports = |spec: &FabricSpec| {
        let graph = Graph::new(spec);
        let hosts = graph.hosts();
        (0..graph.switches())
            .map(|s| graph.ports(hosts + s))
            .collect::<Vec<_>>()
    };
    for levels in 2..=4 {
        let tree = Topology::FatTree(FatTree::full(levels, 6));
        assert!(ports(&built(&tree, 6).spec).iter().all(|p| *p == 6));
    }
    let dragonfly = Topology::Dragonfly {
        switches: 4,
        hosts: 2,
        global: 2,
        groups: 0,
    };
    let spec = built(&dragonfly, 7).spec;
    assert!(ports(&spec).iter().all(|p| *p == 7));
    let mut pairs = std::collections::BTreeSet::new();
    for link in &spec.links {
        if let [Node::Switch(a), Node::Switch(b)] = link.ends
            && a / 4 != b / 4
        {
            assert!(pairs.insert((a / 4, b / 4)), "two cables between groups");
        }
    }
    assert_eq!(pairs.len(), 9 * 8 / 2);
}

#[test]
fn hosts_fill_ports_in_order_or_scattered_by_seed() {
    let director = Topology::Director(Director::PORTS_288);
    let homes = |placement| {
        let network = director.build(&parts(24), Some(48), placement).unwrap();
        let graph = Graph::new(&network.spec);
        (0..48).map(|h| graph.home(h).unwrap()).collect::<Vec<_>>()
    };
    let in_order = homes(Placement::InOrder);
    assert!((0..).zip(&in_order).all(|(h, leaf)| h / 12 == *leaf));
    let scattered = homes(Placement::Scattered(7));
    assert_eq!(scattered, homes(Placement::Scattered(7)));
    assert_ne!(scattered, homes(Placement::Scattered(8)));
    let leaves: std::collections::BTreeSet<_> = scattered.iter().collect();
    assert!(leaves.len() > 12, "{leaves:?}");
}

#[test]
fn names_are_of_boards_and_ports_as_printed() {
    let network = Topology::Director(Director::PORTS_288)
        .build(&parts(24), Some(30), Placement::InOrder)
        .unwrap();
    let (spec, names) = (&network.spec, &network.names);
    assert_eq!(names.channel(spec, 2 * 14), "host 14 -> leaf 1 port 3");
    // The third host cable of leaf 2 is missing, and yet its ports up begin at 13.
    let up = 30 + 2 * 12 + 4;
    assert_eq!(
        names.channel(spec, 2 * up + 1),
        "spine 4 port 3 -> leaf 2 port 17"
    );
    let two = built(
        &Topology::Row {
            director: Director::PORTS_144,
            boxes: 2,
            trunks: 12,
        },
        24,
    );
    let trunk = u32::try_from(two.spec.hosts.len()).unwrap();
    assert_eq!(
        two.names.channel(&two.spec, 2 * trunk),
        "box 0 leaf 11 port 1 -> box 1 leaf 0 port 1"
    );
}

#[test]
fn what_cannot_be_built_is_refused_with_the_reason() {
    let refused = |topology: Topology, ports, hosts| {
        let found = topology.build(&parts(ports), hosts, Placement::InOrder);
        found.unwrap_err().to_string()
    };
    let tree = |levels: &[(u32, u32, u32)]| {
        let levels = levels.iter().map(|(down, up, cables)| Level {
            down: *down,
            up: *up,
            cables: *cables,
        });
        Topology::FatTree(FatTree {
            levels: levels.collect(),
        })
    };
    let most = u32::MAX;
    for (topology, ports, hosts, reason) in [
        (
            Topology::BackToBack,
            2,
            Some(3),
            "3 hosts; there are ports for 2",
        ),
        (
            Topology::OneSwitch,
            24,
            Some(1),
            "1 hosts; expected 2 to 20000",
        ),
        (tree(&[]), 24, Some(2), "ports for 1"),
        (
            tree(&[(12, 1, 1), (24, 13, 1)]),
            24,
            Some(2),
            "12 ports down and 13 up; it has 24",
        ),
        (
            tree(&[(12, 1, 1), (25, 12, 1)]),
            24,
            Some(2),
            "a spine chip needs 25 ports down",
        ),
        (tree(&[(12, 2, 1)]), 24, Some(2), "a host has one port"),
        (tree(&[(4, 1, 1), (0, 4, 1)]), 24, None, "0 hosts"),
        (
            tree(&[(most, 1, 1), (most, most, most)]),
            24,
            Some(2),
            "too many chips",
        ),
        (
            tree(&[(most, 1, 1)]),
            24,
            Some(2),
            "needs 4294967295 ports down",
        ),
        (
            Topology::Dragonfly {
                switches: 4,
                hosts: 2,
                global: 2,
                groups: 10,
            },
            24,
            Some(2),
            "10 groups; expected 2 to 9",
        ),
        (
            Topology::Dragonfly {
                switches: 4,
                hosts: 2,
                global: 2,
                groups: 9,
            },
            6,
            Some(2),
            "2 for hosts, 3 in its group, 2 to others; it has 6",
        ),
        (
            Topology::Dragonfly {
                switches: most,
                hosts: most,
                global: most,
                groups: 0,
            },
            24,
            Some(2),
            "a switch needs 12884901884 ports",
        ),
        (
            Topology::Torus {
                sizes: vec![3, 0],
                hosts: 1,
            },
            24,
            None,
            "0 hosts",
        ),
        (
            Topology::Torus {
                sizes: vec![most, most],
                hosts: most,
            },
            24,
            Some(2),
            "it has 24",
        ),
        (
            Topology::Torus {
                sizes: vec![9999, 9999],
                hosts: 1,
            },
            24,
            Some(2),
            "too many switches",
        ),
        (
            Topology::Row {
                director: Director::PORTS_288,
                boxes: most,
                trunks: 1,
            },
            24,
            Some(2),
            "expected at most 20000",
        ),
        (
            Topology::Row {
                director: Director::PORTS_288,
                boxes: 3,
                trunks: 145,
            },
            24,
            Some(2),
            "145 cables to each neighbour; a box has 288 ports",
        ),
        (
            Topology::Boxes {
                director: Director::PORTS_288,
                boxes: 2,
                core: 5,
                up: 144,
            },
            24,
            Some(2),
            "expected a multiple of the directors",
        ),
        (
            Topology::Boxes {
                director: Director::PORTS_288,
                boxes: 9,
                core: 4,
                up: 144,
            },
            24,
            Some(2),
            "36 cables from each of 9 boxes to a director of 288 ports",
        ),
        (
            Topology::Directors {
                director: Director::PORTS_288,
                directors: 5,
                down: 12,
                up: 12,
            },
            24,
            Some(600),
            "expected a multiple of the directors",
        ),
        (
            Topology::Director(Director {
                spines: 13,
                ..Director::PORTS_288
            }),
            24,
            Some(2),
            "a leaf chip needs 25 ports",
        ),
    ] {
        let found = refused(topology.clone(), ports, hosts);
        assert!(found.contains(reason), "{topology:?}: {found}");
    }
}

#[test]
fn a_trimmed_tree_keeps_its_bandwidth() {
    let tree = FatTree::full(3, 24).trimmed(1152).unwrap();
    assert_eq!(tree.hosts(), 1152);
    let top = tree.levels[2];
    assert_eq!((top.down, top.up, top.cables), (8, 4, 3));
    assert_eq!(FatTree::full(3, 24).trimmed(4000), None);
}
