//! Speed of routing: tables of every engine for a three-level tree, and their check for cycles.
//!
//! `cargo run --release -p goodput-fabric --example tables -- 16 1024` has chips of 16 ports and 1024 hosts.

use std::env;
use std::time::Instant;

use fabric::link::{Cable, CableKind, Speed};
use fabric::route::{Engine, Graph, Manager, Routes};
use fabric::topology::{FatTree, Parts, Placement, Topology};
use fabric::{HostSpec, PortSpec, Routing, SwitchSpec};

#[allow(clippy::disallowed_methods, reason = "an example measures")]
fn main() {
    let mut args = env::args().skip(1).map_while(|arg| arg.parse().ok());
    let radix = args.next().unwrap_or(16_u32);
    let hosts = args.next();
    let port = PortSpec {
        speed: Speed::Edr,
        width: 4,
        buffer_bytes: 128 << 10,
        virtual_lanes: 8,
        credit_ps: 50_000,
    };
    let cable = Cable {
        kind: CableKind::Fibre,
        length_mm: 10_000,
        rated: None,
        electronics_ps: 0,
    };
    let radix = u8::try_from(radix).unwrap_or(u8::MAX);
    let parts = Parts {
        host: HostSpec {
            port,
            bus: None,
            post_ps: 0,
            engine_ps: 0,
            engine_datagram_ps: 0,
            prefetch_packets: 4,
        },
        chip: SwitchSpec {
            ports: radix,
            port,
            latency_ps: 200_000,
            store_and_forward: false,
        },
        host_cable: cable,
        inner_cable: cable,
        outer_cable: cable,
    };
    let tree = Topology::FatTree(FatTree::full(3, radix));
    let mut spec = tree
        .build(&parts, hosts, Placement::InOrder)
        .expect("a tree")
        .spec;
    let graph = Graph::new(&spec);
    println!("{} hosts, {} chips", graph.hosts(), graph.switches());
    let engines = Engine::ALL
        .into_iter()
        .filter(|e| *e != Engine::DimensionOrder);
    spec.operational_lanes = 8;
    for engine in engines {
        for lid_seed in [None, Some(1)] {
            spec.routing = Routing::Managed(Manager {
                lid_seed,
                ..engine.into()
            });
            let began = Instant::now();
            let routes = Routes::new(&spec).expect("a tree is routed");
            let built = began.elapsed();
            let cycle = routes.cycle(&graph);
            println!(
                "{:10} LIDs {}: {:.3} s, {} lanes; {} found in {:.3} s",
                engine.name(),
                if lid_seed.is_some() {
                    "shuffled"
                } else {
                    "in order"
                },
                built.as_secs_f64(),
                routes.lanes(),
                if cycle.is_some() {
                    "a cycle"
                } else {
                    "no cycle"
                },
                (began.elapsed() - built).as_secs_f64()
            );
        }
    }
}
