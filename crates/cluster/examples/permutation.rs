//! Speed of the engine: a random permutation of 2 MB flows on a three-level fat tree at 100 Gb/s, 4 KB packets.
//!
//! `cargo run --release -p goodput-cluster --example permutation -- 16 8 2` has 16-port chips: 1024 hosts, in 8 parts
//! on 2 threads. The times are for comparison with other simulators of the same traffic.

use std::env;

use cluster::parallel;
use fabric::link::{Cable, CableKind, Speed};
use fabric::topology::fat_tree;
use fabric::{FlowSpec, HostSpec, PortSpec, SwitchSpec, Transport, World};

#[allow(clippy::cast_precision_loss, reason = "for people")]
#[allow(clippy::disallowed_methods, reason = "an example measures")]
fn main() {
    let mut args = env::args().skip(1).map_while(|arg| arg.parse::<u8>().ok());
    let radix = args.next().unwrap_or(8);
    let parts = args.next();
    let threads = args.next().unwrap_or(1);
    let port = PortSpec {
        speed: Speed::Edr,
        width: 4,
        buffer_bytes: 128 << 10,
        virtual_lanes: 1,
        credit_ps: 50_000,
    };
    let host = HostSpec {
        port,
        bus: None,
        post_ps: 0,
        engine_ps: 0,
        engine_datagram_ps: 0,
        prefetch_packets: 4,
    };
    let chip = SwitchSpec {
        ports: radix,
        port,
        latency_ps: 200_000,
        store_and_forward: false,
    };
    let cable = Cable {
        kind: CableKind::Fibre,
        length_mm: 100_000,
        rated: None,
        electronics_ps: 0,
    };
    let spec = fat_tree(3, &host, &chip, &cable);
    let hosts = u32::try_from(spec.hosts.len()).unwrap_or(0);
    let mut rng = units::Rng::new(7);
    let mut to: Vec<u32> = (0..hosts).collect();
    for n in (1..to.len()).rev() {
        let other = usize::try_from(rng.next_u64() % (n as u64 + 1)).unwrap_or(0);
        to.swap(n, other);
    }
    let flows: Vec<FlowSpec> = (0..hosts)
        .zip(to)
        .filter(|(from, to)| from != to)
        .map(|(from, to)| FlowSpec {
            from,
            to,
            transport: Transport::Uc,
            mtu_bytes: 4096,
            message_bytes: 2_000_000,
            messages: 1,
            depth: 1,
            ..FlowSpec::default()
        })
        .collect();
    let mut world = World::new(&spec, &flows).expect("a tree is sound");
    let began = std::time::Instant::now();
    let ran = match parts {
        Some(parts) => parallel::run_in(&mut world, parts.into(), threads.into()),
        None => world.run(),
    };
    ran.expect("a tree routes up, then down");
    let wall = began.elapsed().as_secs_f64();
    let counters = world.counters();
    let last = (0..flows.len()).map(|n| world.flow(n).last_ps).max();
    println!(
        "{hosts} hosts: {} packet-hops, {} events in {wall:.2} s: {:.2} M packet-hops/s; all done after {:.1} us",
        counters.packet_hops,
        counters.events,
        counters.packet_hops as f64 / wall / 1e6,
        last.unwrap_or(0) as f64 / 1e6
    );
}
