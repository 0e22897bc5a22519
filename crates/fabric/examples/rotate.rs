//! rotate as fluids: mean of all rotations in % of a link, on the fabrics that a large InfiniBand cluster is made of;
//! then its speed.
//!
//! `cargo run --release -p goodput-fabric --example rotate -- 10` takes ten seeds of tables and placements;
//! a second argument of 10240 rotates as many hosts of three levels of 36-port chips.

use std::env;
use std::time::Instant;

use fabric::fluid::{Fluid, Sharing};
use fabric::link::{Cable, CableKind, Speed};
use fabric::route::{Engine, Graph, Manager, Routes};
use fabric::topology::{Director, FatTree, Parts, Placement, Topology};
use fabric::{HostSpec, PortSpec, Routing, SwitchSpec, Transport};

fn parts(ports: u8) -> Parts {
    let port = PortSpec {
        speed: Speed::Sdr,
        width: 4,
        buffer_bytes: 128 << 10,
        virtual_lanes: 8,
        credit_ps: 50_000,
    };
    let cable = Cable {
        kind: CableKind::Copper,
        length_mm: 5_000,
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
        host_cable: cable,
        inner_cable: cable,
        outer_cable: cable,
    }
}

/// Worst flow, mean and best flow of rotate, its mean as ORCS estimates it, and ORCS' effective bisection bandwidth, in %
/// of a link, for each number of ranks on the first of so many hosts.
fn rotate(
    topology: &Topology,
    hosts: u32,
    ranks: &[u32],
    placement: Placement,
    manager: Manager,
) -> Vec<[f64; 5]> {
    let network = topology.build(&parts(24), Some(hosts), placement);
    let mut spec = network.expect("a fabric").spec;
    spec.routing = Routing::Managed(manager);
    let graph = Graph::new(&spec);
    let routes = Routes::new(&spec).expect("routes");
    let mut fluid = Fluid::new(&spec, &graph, &routes, Transport::Rc, 2048);
    let link = fluid.capacity(0) / 100.0;
    let of = |ranks: &u32| {
        let all = fluid.rotate(*ranks, 0..ranks / 2, Sharing::MaxMin);
        let orcs = fluid.rotate(*ranks, 0..ranks / 2, Sharing::FullestCable);
        let ebb = fluid.bisections(*ranks, 100, 1, Sharing::FullestCable);
        [all.worst, all.average, all.best, orcs.average, ebb.average].map(|rate| rate / link)
    };
    ranks.iter().map(of).collect()
}

#[allow(clippy::disallowed_methods, reason = "an example measures")]
fn main() {
    let mut args = env::args().skip(1).map_while(|arg| arg.parse().ok());
    let seeds = args.next().unwrap_or(3_u32);
    let large = args.next();
    let director = Topology::Director(Director::PORTS_288);
    let three = FatTree::full(3, 24).trimmed(1152).expect("it divides");
    let three = Topology::FatTree(three);
    let directors = Topology::Directors {
        director: Director::PORTS_288,
        directors: 4,
        down: 12,
        up: 12,
    };
    let min_hop = |seed| Manager::min_hop(seed);
    let in_order = |_| Placement::InOrder;
    type Of<'a, T> = &'a dyn Fn(u64) -> T;
    let rows: [(&str, &Topology, Of<'_, Placement>, Of<'_, Manager>); 8] = [
        ("288 packed minhop", &director, &in_order, &min_hop),
        (
            "288 scattered minhop",
            &director,
            &Placement::Scattered,
            &min_hop,
        ),
        ("288 packed d-mod-k", &director, &in_order, &|_| {
            Engine::DModK.into()
        }),
        ("288 packed s-mod-k", &director, &in_order, &|_| {
            Engine::SModK.into()
        }),
        ("288 packed ftree", &director, &in_order, &|_| {
            Engine::FatTree.into()
        }),
        ("3-level packed minhop", &three, &in_order, &min_hop),
        ("4x288 packed minhop", &directors, &in_order, &min_hop),
        ("4x288 packed dfsssp", &directors, &in_order, &|_| {
            Engine::Dfsssp.into()
        }),
    ];
    let sizes = [8, 12, 16, 24, 32, 64, 124, 128, 256, 288, 512, 1024];
    for (name, topology, placement, manager) in rows {
        let capacity = topology.capacity(&parts(24).chip).min(1152);
        // The whole fabric, and the Talon cluster's 128 hosts.
        for hosts in [128, capacity] {
            let ranks: Vec<u32> = sizes.into_iter().filter(|n| *n <= hosts).collect();
            let runs = (0..u64::from(seeds))
                .map(|seed| rotate(topology, hosts, &ranks, placement(seed), manager(seed)));
            let runs: Vec<_> = runs.collect();
            for (n, ranks) in ranks.iter().enumerate() {
                let mean =
                    |of: usize| runs.iter().map(|r| r[n][of]).sum::<f64>() / f64::from(seeds);
                let [worst, average, best, orcs, ebb] = [0, 1, 2, 3, 4].map(mean);
                println!(
                    "{name:22} {hosts:5} hosts {ranks:5} ranks: worst {worst:5.1} average {average:5.1} best {best:5.1}  (ORCS {orcs:5.1}), random bisections {ebb:5.1}"
                );
            }
        }
    }
    if let Some(hosts) = large {
        let tree = Topology::FatTree(FatTree::full(3, 36));
        let network = tree.build(&parts(36), Some(hosts), Placement::InOrder);
        let mut spec = network.expect("a tree").spec;
        spec.routing = Routing::Managed(Manager::min_hop(1));
        let began = Instant::now();
        let graph = Graph::new(&spec);
        let routes = Routes::new(&spec).expect("routes");
        let routed = began.elapsed().as_secs_f64();
        for sharing in [Sharing::MaxMin, Sharing::FullestCable] {
            let began = Instant::now();
            let mut fluid = Fluid::new(&spec, &graph, &routes, Transport::Rc, 2048);
            let all = fluid.rotate(hosts, 0..hosts / 2, sharing);
            println!(
                "{hosts} hosts, {} rotations {sharing:?}: average {:.1} %, worst {:.1} %; routes {routed:.2} s, rotations {:.2} s",
                all.rounds,
                all.average / fluid.capacity(0) * 100.0,
                all.worst / fluid.capacity(0) * 100.0,
                began.elapsed().as_secs_f64()
            );
        }
    }
}
