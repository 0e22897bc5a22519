//! Packets a second of one core: one flow over a long fat path, as `xtask bench sim` times it.
//!
//! `cargo run --release -p goodput-sim --example speed -- SECONDS [STREAMS] [MTU]`

use std::time::Instant as Clock;

use link::spec::{DirectionSpec, DisciplineSpec, Medium, RateSpec, ServerSpec};
use link::{QueueLimits, Way};
use sim::{FlowSpec, Hop, LinkSpec, World, WorldSpec};
use tcp::{ReceiverConfig, SenderConfig};
use units::{Duration, Instant, Rate};

fn main() {
    let number = |n: usize, or: u64| std::env::args().nth(n).map_or(or, |a| a.parse().unwrap());
    let (seconds, streams, mtu) = (number(1, 60), number(2, 1), number(3, 9000));
    let direction = |queue| DirectionSpec {
        medium: Medium::WanPhy { gap_bytes: 12 },
        rate: Some(RateSpec {
            server: ServerSpec::Rate(Rate::from_bits_per_second(10_000_000_000)),
            limits: QueueLimits {
                bytes: Some(queue),
                packets: None,
            },
            discipline: DisciplineSpec::DropTail { mark_above: None },
        }),
        delay: Duration::from_ms(261),
        ..DirectionSpec::default()
    };
    let segment_bytes = u32::try_from(mtu - 52).unwrap();
    let flow = FlowSpec {
        forward: vec![Hop {
            link: 0,
            way: Way::Forward,
        }],
        backward: vec![Hop {
            link: 0,
            way: Way::Backward,
        }],
        sender: SenderConfig {
            segment_bytes,
            ..SenderConfig::default()
        },
        receiver: ReceiverConfig {
            segment_bytes,
            buffer_bytes_max: 4 << 30,
            ..ReceiverConfig::default()
        },
        start: Instant::ZERO,
        header_bytes: 52,
        gathers: true,
        bus: None,
    };
    let flows = vec![flow; usize::try_from(streams).unwrap()];
    let link = LinkSpec {
        forward: direction(652_500_000),
        backward: direction(652_500_000),
        schedule: Vec::new(),
    };
    let mut world = World::new(WorldSpec {
        links: vec![link],
        flows,
        buses: Vec::new(),
    })
    .unwrap();
    #[allow(
        clippy::disallowed_methods,
        reason = "an example that times the crate, not part of it"
    )]
    let began = Clock::now();
    world.run_until(Instant::ZERO + Duration::from_s(seconds));
    let wall = began.elapsed().as_secs_f64();
    let mut packets = 0;
    let mut bytes = 0;
    for n in 0..world.flows() {
        let info = world.flow(n);
        packets += info.data_packets + info.ack_packets;
        bytes += info.received_bytes;
        println!("{info:?}");
    }
    println!("{:?}", world.counters(0, Way::Forward));
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let (packets_m, gb) = (packets as f64 / 1e6, bytes as f64 * 8e-9);
    println!(
        "{seconds} s in {wall:.3} s: {packets_m:.2} M packets, {:.2} M packets/s, {} events, {:.3} Gb/s",
        packets_m / wall,
        world.events(),
        gb / seconds as f64
    );
}
