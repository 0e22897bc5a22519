use fabric::link::{Cable, CableKind, Speed};
use fabric::topology::fat_tree;
use fabric::{FabricSpec, FlowSpec, HostSpec, PortSpec, SwitchSpec, World};

use super::*;

fn tree() -> FabricSpec {
    let port = PortSpec {
        speed: Speed::Edr,
        width: 4,
        buffer_bytes: 16 << 10,
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
        ports: 6,
        port,
        latency_ps: 200_000,
        store_and_forward: false,
    };
    let cable = Cable {
        kind: CableKind::Fibre,
        length_mm: 20_000,
        rated: None,
        electronics_ps: 0,
    };
    fat_tree(3, &host, &chip, &cable)
}

fn told(world: &World, spec: &FabricSpec, flows: usize) -> String {
    let mut all = format!("{} {:?}", world.now_ps(), world.counters());
    for n in 0..flows {
        all += &format!("{:?}\n", world.flow(n));
    }
    for n in 0..spec.links.len() * 2 {
        all += &format!("{:?}\n", world.channel(n / 2, n % 2));
    }
    all + &format!("{:?}", world.blames())
}

#[test]
fn any_number_of_threads_and_parts_gives_the_same() {
    let spec = tree();
    let hosts = u32::try_from(spec.hosts.len()).unwrap();
    let flow = |(by, from): (u32, u32)| FlowSpec {
        from,
        to: (from + by) % hosts,
        message_bytes: 40_000,
        ..FlowSpec::default()
    };
    let flows: Vec<FlowSpec> = [1, 7, 20]
        .into_iter()
        .flat_map(|by| (0..hosts).map(move |from| (by, from)))
        .map(flow)
        .collect();
    let mut whole = World::new(&spec, &flows).unwrap();
    whole.run_until(u64::MAX);
    whole.outcome().unwrap();
    let whole = told(&whole, &spec, flows.len());
    for (parts, threads) in [(1, 2), (2, 2), (3, 2), (5, 3), (7, 1), (4, 9)] {
        let mut world = World::new(&spec, &flows).unwrap();
        run_in(&mut world, parts, threads).unwrap();
        assert_eq!(
            told(&world, &spec, flows.len()),
            whole,
            "{parts} parts, {threads} threads"
        );
    }
}
