//! One number of all results of small fabrics of every kind: equal before and after a change that is for speed alone.
//!
//! `cargo run --release -p goodput-fabric --example digest` prints one for each choice among paths, with every kind of
//! queue and flow control, one lane and two.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use fabric::ethernet::{Ethernet, FlowControl, Pfc, RESPOND_10G_PS};
use fabric::link::{Cable, CableKind, Speed};
use fabric::topology::fat_tree;
use fabric::{
    Dca, FabricSpec, FlowSpec, HostSpec, Ordering, PortSpec, Queueing, Selection, SwitchSpec,
    Transport, World,
};

const CHOICES: [Selection; 9] = [
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
    Selection::Dca(Dca {
        period_ps: 20_000_000,
        threshold_ps: 2_000_000,
        paths: 4,
        hold_ps: 40_000_000,
        mean_of: 1,
        idle_ps: 100_000,
        venture: 4,
        lost_after_ps: 1_000_000_000,
        clock_offset_max_ps: 1_000_000,
    }),
];

fn tree(radix: u8) -> FabricSpec {
    let port = PortSpec {
        speed: Speed::Edr,
        width: 4,
        buffer_bytes: 128 << 10,
        virtual_lanes: 8,
        credit_ps: 50_000,
    };
    let host = HostSpec {
        port,
        bus: None,
        post_ps: 100_000,
        engine_ps: 20_000,
        engine_datagram_ps: 30_000,
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
        length_mm: 10_000,
        rated: None,
        electronics_ps: 0,
    };
    fat_tree(3, &host, &chip, &cable)
}

/// Each host sends to two others; some of it by each service.
fn flows(hosts: u32, lanes: u8, ethernet: bool, seed: u64) -> Vec<FlowSpec> {
    let mut rng = units::Rng::new(seed);
    let mut draw = |below: u32| u32::try_from(rng.next_u64() % u64::from(below)).unwrap_or(0);
    (0..2 * hosts)
        .map(|n| FlowSpec {
            from: n % hosts,
            to: (n % hosts + 1 + draw(hosts - 1)) % hosts,
            transport: match (n % 4, ethernet) {
                (0, true) => Transport::Iwarp,
                (1, false) => Transport::Uc,
                _ => Transport::Rc,
            },
            mtu_bytes: if n % 4 == 0 && ethernet { 1_440 } else { 2_048 },
            message_bytes: 1 + draw(100_000),
            messages: 8,
            depth: 1 + n % 3,
            ping_pong: !ethernet && n % 8 == 2,
            start_ps: u64::from(draw(3)) * 1_000_000,
            lane: u8::try_from(n).unwrap_or(0) % lanes,
            ordering: [Ordering::Strict, Ordering::Relaxed][(n / 4 % 2) as usize],
            ..FlowSpec::default()
        })
        .collect()
}

fn main() {
    let pauses = Pfc {
        xoff_bytes: 32 << 10,
        xon_bytes: 16 << 10,
        respond_ps: RESPOND_10G_PS / 10,
    };
    let controls = [
        None,
        Some(FlowControl::DropTail),
        Some(FlowControl::Pfc(pauses)),
        Some(FlowControl::Credits),
    ];
    for selection in CHOICES {
        let mut sum = DefaultHasher::new();
        let (mut ran, mut stuck, mut hops) = (0, 0, 0);
        for queueing in [Queueing::Input, Queueing::VirtualOutput, Queueing::Output] {
            for control in controls {
                for lanes in [1, 2] {
                    let mut spec = tree(4);
                    spec.selection = selection;
                    spec.queueing = queueing;
                    spec.operational_lanes = 4;
                    spec.ethernet = control.map(|control| Ethernet {
                        control,
                        retry_ps: 500_000_000,
                    });
                    let hosts = u32::try_from(spec.hosts.len()).unwrap_or(0);
                    let flows = flows(hosts, lanes, control.is_some(), u64::from(lanes));
                    let Ok(mut world) = World::new(&spec, &flows) else {
                        continue;
                    };
                    ran += 1;
                    match world.run() {
                        Ok(()) => {}
                        Err(why) => {
                            stuck += 1;
                            format!("{why:?}").hash(&mut sum);
                        }
                    }
                    for n in 0..flows.len() {
                        format!("{:?}", world.flow(n)).hash(&mut sum);
                    }
                    for n in 0..spec.links.len() {
                        for way in [0, 1] {
                            format!("{:?}", world.channel(n, way)).hash(&mut sum);
                        }
                    }
                    let counters = world.counters();
                    hops += counters.packet_hops;
                    format!("{counters:?} {:?}", world.blames()).hash(&mut sum);
                    format!("{}", world.now_ps()).hash(&mut sum);
                }
            }
        }
        let name = format!("{selection:?}");
        let name = name.split([' ', '(']).next().unwrap_or_default();
        println!(
            "{name:10} {:016x}: {ran} fabrics, {stuck} stuck, {hops} packet-hops",
            sum.finish()
        );
    }
}
