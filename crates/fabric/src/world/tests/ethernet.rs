//! Ethernet: frames, losses, pauses, windows.

use super::*;
use crate::ethernet::{Ethernet, FlowControl, IWARP_PAYLOAD_BYTES, Pfc, RESPOND_10G_PS};
use crate::selection::Selection;
use crate::spec::{Ordering, Queueing};

const PAUSES: FlowControl = FlowControl::Pfc(Pfc {
    xoff_bytes: 32 << 10,
    xon_bytes: 16 << 10,
    respond_ps: RESPOND_10G_PS,
});

/// So many hosts at a chip, all at 10 Gb/s.
fn ten_gigabit(hosts: u32, control: FlowControl) -> FabricSpec {
    let mut spec = star(hosts);
    let (speed, width) = Speed::ethernet(10).unwrap();
    for port in spec
        .hosts
        .iter_mut()
        .map(|h| &mut h.port)
        .chain(spec.switches.iter_mut().map(|s| &mut s.port))
    {
        (port.speed, port.width) = (speed, width);
        port.buffer_bytes = 128 << 10;
    }
    spec.queueing = Queueing::Output;
    spec.ethernet = Some(Ethernet {
        control,
        ..Ethernet::default()
    });
    spec
}

fn iwarp(from: u32, to: u32) -> FlowSpec {
    FlowSpec {
        transport: Transport::Iwarp,
        mtu_bytes: IWARP_PAYLOAD_BYTES,
        messages: 100,
        depth: 2,
        ..flow(from, to, 1 << 20)
    }
}

#[allow(clippy::cast_precision_loss, reason = "for comparison")]
fn overall(world: &World, n: usize) -> f64 {
    let info = world.flow(n);
    info.bytes_arrived as f64 / (info.last_ps as f64 * 1e-12)
}

#[test]
fn a_frame_of_1500_carries_1440_in_1538_octets() {
    for control in [FlowControl::DropTail, FlowControl::Credits, PAUSES] {
        for queueing in [Queueing::Input, Queueing::Output] {
            for store_and_forward in [false, true] {
                let mut spec = ten_gigabit(2, control);
                spec.queueing = queueing;
                spec.switches[0].store_and_forward = store_and_forward;
                let of = iwarp(0, 1);
                assert_eq!(spec.wire_bytes(Transport::Iwarp, 1_440), 1_538);
                let world = ran(&spec, &[of]);
                let bounds = formula::bounds(&spec, &of, &world.path(0, 1));
                let least = formula::least(&bounds).unwrap();
                assert_eq!(least.limit, Limit::Wire(0));
                let found = rate(&world, 0, 1 << 20);
                assert!(
                    (found / least.bytes_per_second - 1.0).abs() < 1e-4,
                    "{found}"
                );
                assert_eq!(world.counters().dropped, 0);
                assert_eq!(world.flow(0).halvings, 0);
            }
        }
    }
}

#[test]
fn what_is_lost_is_sent_again_and_all_arrives() {
    for queueing in [Queueing::Input, Queueing::VirtualOutput, Queueing::Output] {
        for transport in [Transport::Rc, Transport::Iwarp] {
            for ordering in [Ordering::Strict, Ordering::Relaxed] {
                let mut spec = ten_gigabit(4, FlowControl::DropTail);
                spec.queueing = queueing;
                let flows: Vec<FlowSpec> = (0..3)
                    .map(|n| FlowSpec {
                        transport,
                        mtu_bytes: 1024,
                        ordering,
                        messages: 20,
                        window_bytes: 1 << 20,
                        ..iwarp(n, 3)
                    })
                    .collect();
                let world = ran(&spec, &flows);
                assert!(world.counters().dropped > 0);
                let mut sum = 0.0;
                for (n, flow) in flows.iter().enumerate() {
                    let info = world.flow(n);
                    let all = flow.messages * u64::from(flow.message_bytes);
                    assert_eq!(info.bytes_arrived, all);
                    assert_eq!(info.messages_arrived, 20);
                    assert!(info.packets_sent >= info.packets_arrived);
                    sum += overall(&world, n);
                }
                let resent: u64 = (0..3).map(|n| world.flow(n).packets_resent).sum();
                assert!(resent > 0);
                if transport == Transport::Iwarp {
                    // With relaxed ordering each loss is taken for a longer path for a millisecond.
                    let least = match ordering {
                        Ordering::Strict => 0.5e9,
                        Ordering::Relaxed => 0.15e9,
                    };
                    assert!(sum > least, "{queueing:?} {ordering:?}: {sum}");
                }
            }
        }
    }
}

#[test]
fn pauses_lose_nothing_with_headroom_and_too_little_is_refused() {
    let flows = [0, 1, 2].map(|n| FlowSpec {
        messages: 30,
        window_bytes: 4 << 20,
        ..iwarp(n, 3)
    });
    for queueing in [Queueing::Input, Queueing::VirtualOutput, Queueing::Output] {
        let mut spec = ten_gigabit(4, PAUSES);
        spec.queueing = queueing;
        let least = (1..=128 << 10)
            .rev()
            .step_by(64)
            .take_while(|bytes| {
                set_buffers(&mut spec, *bytes);
                World::new(&spec, &flows).is_ok()
            })
            .last()
            .unwrap();
        set_buffers(&mut spec, least);
        let world = ran(&spec, &flows);
        assert_eq!(world.counters().dropped, 0);
        assert!(world.counters().pauses > 10);
        // The receiver's link is never idle for want of a resumed sender.
        let sum: f64 = (0..3).map(|n| overall(&world, n)).sum();
        assert!(sum > 0.98 * 1.25e9 * 1440.0 / 1538.0, "{queueing:?}: {sum}");
        set_buffers(&mut spec, least - 128);
        let error = World::new(&spec, &flows).unwrap_err();
        assert!(error.to_string().contains("headroom"), "{error}");
    }
}

fn set_buffers(spec: &mut FabricSpec, bytes: u64) {
    for host in &mut spec.hosts {
        host.port.buffer_bytes = bytes;
    }
    spec.switches[0].port.buffer_bytes = bytes;
}

#[test]
fn a_paused_priority_does_not_pause_another() {
    // As with credits: hosts 0, 1 and 4 meet at host 2; host 0 sends to host 3 on another priority.
    for (lane, free) in [(0, false), (1, true)] {
        let mut spec = ten_gigabit(5, PAUSES);
        spec.operational_lanes = 2;
        spec.queueing = Queueing::Input;
        let flows = [iwarp(0, 2), iwarp(1, 2), iwarp(4, 2), iwarp(0, 3)];
        let mut flows = flows.map(|f| FlowSpec {
            transport: Transport::Rc,
            mtu_bytes: 1024,
            ..f
        });
        flows[3].lane = lane;
        let mut world = World::new(&spec, &flows).unwrap();
        world.run_until(20_000_000_000);
        let [a, d] = [0, 3].map(|n| world.flow(n).bytes_arrived);
        assert_eq!(d > 2 * a - a / 10, free, "{a} {d}");
        world.run().unwrap();
    }
}

#[test]
fn early_packets_halve_a_window_in_strict_order_only() {
    let ran = |ordering| {
        let mut spec = fat_tree(2, &host(Speed::Ge10), &switch(8), &fibre(5));
        for port in spec
            .hosts
            .iter_mut()
            .map(|h| &mut h.port)
            .chain(spec.switches.iter_mut().map(|s| &mut s.port))
        {
            (port.speed, port.width) = (Speed::Ge10, 1);
        }
        spec.queueing = Queueing::Output;
        spec.selection = Selection::Spray;
        spec.ethernet = Some(Ethernet {
            control: FlowControl::Credits,
            ..Ethernet::default()
        });
        let flows: Vec<FlowSpec> = (0..16)
            .map(|n| FlowSpec {
                ordering,
                messages: 10,
                ..iwarp(n, 16 + (n * 5 + 3) % 16)
            })
            .collect();
        let world = ran(&spec, &flows);
        let halvings: u64 = (0..16).map(|n| world.flow(n).halvings).sum();
        let early: u64 = (0..16).map(|n| world.flow(n).early).sum();
        let sum: f64 = (0..16).map(|n| overall(&world, n)).sum();
        assert_eq!(world.counters().dropped, 0);
        assert!(early > 0);
        (halvings, sum)
    };
    let (strict, relaxed) = (ran(Ordering::Strict), ran(Ordering::Relaxed));
    assert!(strict.0 > 100, "{strict:?} {relaxed:?}");
    assert_eq!(relaxed.0, 0);
    assert!(strict.1 < 0.9 * relaxed.1, "{strict:?} {relaxed:?}");
}

#[test]
fn ethernets_that_cannot_be_are_refused() {
    let spec = ten_gigabit(2, FlowControl::DropTail);
    let uc = FlowSpec {
        transport: Transport::Uc,
        ..flow(0, 1, 2048)
    };
    let error = World::new(&spec, &[uc]).unwrap_err();
    assert!(error.to_string().contains("never ends"), "{error}");
    let error = World::new(&star(2), &[iwarp(0, 1)]).unwrap_err();
    assert!(error.to_string().contains("needs Ethernet"), "{error}");
    for (bytes, fits) in [(63, false), (64, true), (9_156, true), (9_157, false)] {
        let of = FlowSpec {
            mtu_bytes: bytes,
            ..iwarp(0, 1)
        };
        assert_eq!(World::new(&spec, &[of]).is_ok(), fits, "{bytes}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(40))]

    /// Whatever the buffers and however much is lost, all messages arrive once, and room is conserved.
    #[test]
    fn any_traffic_over_ethernet_arrives(seed in 0_u64..u64::MAX) {
        let mut rng = units::Rng::new(seed);
        let mut below = |n: u32| u32::try_from(rng.next_u64() % u64::from(n)).unwrap();
        let hosts = 2 + below(6);
        let control = [FlowControl::DropTail, PAUSES, FlowControl::Credits][below(3) as usize];
        let mut spec = ten_gigabit(hosts, control);
        spec.queueing = [Queueing::Input, Queueing::VirtualOutput, Queueing::Output][below(3) as usize];
        if control != PAUSES {
            set_buffers(&mut spec, 4_000 + u64::from(below(60_000)));
        }
        spec.ethernet.as_mut().unwrap().retry_ps = 500_000_000;
        let flows: Vec<FlowSpec> = (0..6)
            .map(|_| {
                let from = below(hosts);
                FlowSpec {
                    transport: [Transport::Rc, Transport::Iwarp][below(2) as usize],
                    mtu_bytes: 1024,
                    messages: u64::from(1 + below(10)),
                    message_bytes: 1 + below(100_000),
                    depth: 1 + below(4),
                    window_bytes: 4_096 + below(300_000),
                    ordering: [Ordering::Strict, Ordering::Relaxed][below(2) as usize],
                    ..iwarp(from, (from + 1 + below(hosts - 1)) % hosts)
                }
            })
            .collect();
        let world = ran(&spec, &flows);
        world.check_conservation();
        for (n, flow) in flows.iter().enumerate() {
            let bytes = flow.messages * u64::from(flow.message_bytes);
            proptest::prop_assert_eq!(world.flow(n).bytes_arrived, bytes);
        }
        if control != FlowControl::DropTail {
            proptest::prop_assert_eq!(world.counters().dropped, 0);
        }
    }
}
