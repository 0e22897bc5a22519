use super::*;
use crate::formula::{self, Limit};
use crate::link::{Cable, CableKind, Speed};
use crate::spec::{HostSpec, LinkSpec, Node, PortSpec, Routing, SwitchSpec, Transport};
use crate::topology::fat_tree;
use units::Rate;

mod asked;
mod dca;
mod ethernet;
mod fault;
mod lanes;
mod parts;
mod passing;
mod paths;

fn port(speed: Speed) -> PortSpec {
    PortSpec {
        speed,
        width: 4,
        buffer_bytes: 1 << 20,
        virtual_lanes: 8,
        credit_ps: 20_000,
    }
}

fn host(speed: Speed) -> HostSpec {
    HostSpec {
        port: port(speed),
        bus: None,
        post_ps: 0,
        engine_ps: 0,
        engine_datagram_ps: 0,
        prefetch_packets: 4,
    }
}

fn switch(ports: u8) -> SwitchSpec {
    SwitchSpec {
        ports,
        port: port(Speed::Ddr),
        latency_ps: 200_000,
        store_and_forward: false,
    }
}

fn fibre(metres: u64) -> Cable {
    Cable {
        kind: CableKind::Fibre,
        length_mm: metres * 1_000,
        rated: None,
        electronics_ps: 0,
    }
}

fn link(a: Node, b: Node, metres: u64) -> LinkSpec {
    LinkSpec {
        ends: [a, b],
        cable: fibre(metres),
    }
}

fn back_to_back(speed: Speed, metres: u64) -> FabricSpec {
    FabricSpec {
        hosts: vec![host(speed); 2],
        switches: Vec::new(),
        links: vec![link(Node::Host(0), Node::Host(1), metres)],
        operational_lanes: 8,
        ..FabricSpec::default()
    }
}

/// So many hosts at one chip.
fn star(hosts: u32) -> FabricSpec {
    FabricSpec {
        hosts: vec![host(Speed::Ddr); hosts as usize],
        switches: vec![switch(24)],
        links: (0..hosts)
            .map(|n| link(Node::Host(n), Node::Switch(0), 5))
            .collect(),
        ..FabricSpec::default()
    }
}

fn flow(from: u32, to: u32, message_bytes: u32) -> FlowSpec {
    FlowSpec {
        from,
        to,
        transport: Transport::Rc,
        mtu_bytes: 2048,
        message_bytes,
        messages: 400,
        depth: 300,
        ..FlowSpec::default()
    }
}

fn ran(spec: &FabricSpec, flows: &[FlowSpec]) -> World {
    let mut world = World::new(spec, flows).unwrap();
    world.run().unwrap();
    world
}

/// Payload a second over the second half of the messages.
#[allow(clippy::cast_precision_loss, reason = "for comparison")]
fn rate(world: &World, n: usize, message_bytes: u32) -> f64 {
    let info = world.flow(n);
    let messages = info.messages_arrived - info.half_messages;
    messages as f64 * f64::from(message_bytes) / ((info.last_ps - info.half_ps) as f64 * 1e-12)
}

fn assert_close(found: f64, expected: f64, what: &str) {
    assert!(
        (found / expected - 1.0).abs() < 1e-6,
        "{what}: {found}, expected {expected}"
    );
}

/// The engine against the least of the formula's bounds.
fn assert_formula(spec: &FabricSpec, of: FlowSpec, limit: Limit) {
    let world = ran(spec, &[of]);
    let bounds = formula::bounds(spec, &of, &world.path(of.from, of.to));
    let least = formula::least(&bounds).unwrap();
    assert_eq!(least.limit, limit, "{bounds:#?}");
    assert_close(
        rate(&world, 0, of.message_bytes),
        least.bytes_per_second,
        &least.how,
    );
}

#[test]
fn one_link_gives_what_the_formula_says_at_every_speed() {
    for speed in Speed::ALL {
        for transport in Transport::ALL {
            for metres in [1, 10, 100] {
                let of = FlowSpec {
                    transport,
                    ..flow(0, 1, 2048)
                };
                assert_formula(&back_to_back(speed, metres), of, Limit::Wire(0));
            }
        }
    }
}

#[test]
fn credits_limit_by_buffer_over_round_trip() {
    for (metres, packets) in [(100, 1), (200, 2), (500, 3), (2_000, 5), (20_000, 31)] {
        let mut spec = back_to_back(Speed::Ddr, metres);
        spec.hosts[1].port.buffer_bytes = 8 * packets * 33 * 64;
        // Whole rounds in both halves, so that the rate is taken over whole rounds.
        let of = FlowSpec {
            messages: 100 * packets,
            ..flow(0, 1, 2048)
        };
        assert_formula(&spec, of, Limit::Credits(0));
    }
}

#[test]
fn a_bus_limits_on_either_side_and_lengthens_the_credits_way() {
    let bus = |rate: u64| {
        Some(BusSpec {
            rate: Rate::from_bits_per_second(rate),
            burst_bytes: 128,
            burst_ps: 80_000,
            latency_ps: 300_000,
        })
    };
    let mut spec = back_to_back(Speed::Sdr, 1);
    spec.hosts[0].bus = bus(16_000_000_000);
    assert_formula(&spec, flow(0, 1, 1 << 16), Limit::BusRead);
    spec.hosts[0].bus = None;
    spec.hosts[1].bus = bus(16_000_000_000);
    assert_formula(&spec, flow(0, 1, 1 << 16), Limit::BusWrite);
    // Room for two packets: enough without the bus' time, not with it.
    spec.links[0].cable = fibre(100);
    spec.hosts[1].port.buffer_bytes = 8 * 2 * 33 * 64;
    assert_formula(&spec, flow(0, 1, 1 << 16), Limit::Credits(0));
    spec.hosts[1].bus = None;
    assert_formula(&spec, flow(0, 1, 1 << 16), Limit::Wire(0));
}

#[test]
fn messages_cost_the_core_and_the_engine() {
    let mut spec = back_to_back(Speed::Ddr, 1);
    spec.hosts[0].engine_datagram_ps = 2_100_000;
    let datagrams = FlowSpec {
        transport: Transport::Ud,
        ..flow(0, 1, 2048)
    };
    assert_formula(&spec, datagrams, Limit::Engine);
    spec.hosts[0].post_ps = 3_000_000;
    assert_formula(&spec, flow(0, 1, 64), Limit::Post);
    // Two flows have a core each, and share the engine.
    spec.hosts[0].engine_ps = 1_000_000;
    let world = ran(&spec, &[flow(0, 1, 64); 2]);
    assert_close(rate(&world, 0, 64), 64.0 / 3e-6, "a core each");
}

#[test]
fn switches_pass_the_full_rate_and_their_credits_count() {
    let mut spec = star(2);
    assert_formula(&spec, flow(0, 1, 1 << 16), Limit::Wire(0));
    spec.switches[0].port.buffer_bytes = 2 * 33 * 64;
    spec.links[0].cable = fibre(300);
    assert_formula(&spec, flow(0, 1, 1 << 16), Limit::Credits(0));
    spec.switches[0].store_and_forward = true;
    assert_formula(&spec, flow(0, 1, 1 << 16), Limit::Credits(0));
    // The slower link decides, whichever it is, and no output runs dry.
    for slow in 0..2 {
        let mut spec = star(2);
        spec.links[slow].cable.rated = Some(Speed::Sdr);
        assert_formula(&spec, flow(0, 1, 1 << 16), Limit::Wire(slow));
    }
}

#[test]
fn latency_is_the_sum_of_its_parts() {
    for (mut spec, rated) in [
        (back_to_back(Speed::Ddr, 100), None),
        (star(2), None),
        (star(2), Some(Speed::Sdr)),
    ] {
        spec.links[0].cable.rated = rated;
        for host in &mut spec.hosts {
            host.post_ps = 400_000;
            host.engine_ps = 500_000;
            host.bus = Some(BusSpec {
                rate: Rate::from_bits_per_second(16_000_000_000),
                burst_bytes: 128,
                burst_ps: 30_000,
                latency_ps: 350_000,
            });
        }
        for store_and_forward in [false, true] {
            for chip in &mut spec.switches {
                chip.store_and_forward = store_and_forward;
            }
            for size in [2, 64, 256, 2048] {
                let asks = FlowSpec {
                    ping_pong: true,
                    messages: 100,
                    ..flow(0, 1, size)
                };
                let back = FlowSpec {
                    from: 1,
                    to: 0,
                    ..asks
                };
                let world = ran(&spec, &[asks]);
                let there = formula::latency_ps(&spec, &asks, &world.path(0, 1));
                let back = formula::latency_ps(&spec, &back, &world.path(1, 0));
                let info = world.flow(0);
                assert_eq!(info.round_trip_min_ps, there + back, "{size}");
                assert_eq!(info.round_trips_ps, u128::from(there + back) * 100);
            }
        }
    }
}

#[test]
fn symmetric_senders_get_equal_parts() {
    for senders in [2, 3, 5, 11] {
        let spec = star(senders + 1);
        let flows: Vec<FlowSpec> = (0..senders).map(|n| flow(n, senders, 1 << 16)).collect();
        let mut world = World::new(&spec, &flows).unwrap();
        // While all of them still send.
        world.run_until(10_000_000_000);
        let bytes: Vec<u64> = (0..flows.len())
            .map(|n| world.flow(n).bytes_arrived)
            .collect();
        let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
        assert!(most - least <= 2048, "{bytes:?}");
        assert!(*least > 0);
        world.run().unwrap();
    }
}

#[test]
fn who_is_named_first_does_not_win_ties() {
    // One packet at a time from each, always at the same instant.
    let spec = star(3);
    let flows: Vec<FlowSpec> = [0, 1]
        .map(|n| FlowSpec {
            depth: 1,
            messages: 2_000,
            ..flow(n, 2, 2048)
        })
        .to_vec();
    let mut world = World::new(&spec, &flows).unwrap();
    world.run_until(2_000_000_000);
    let [a, b] = [0, 1].map(|n| world.flow(n).messages_arrived);
    assert!(a.abs_diff(b) <= 1, "{a} {b}");
}

#[test]
fn a_blocked_head_holds_those_behind_it() {
    // Two senders meet at host 2; host 0 also has packets for host 3, behind its others.
    let spec = star(4);
    let flows = [
        flow(0, 2, 1 << 16),
        flow(1, 2, 1 << 16),
        flow(0, 3, 1 << 16),
    ];
    let mut world = World::new(&spec, &flows).unwrap();
    world.run_until(10_000_000_000);
    let [a, b, c] = [0, 1, 2].map(|n| world.flow(n).bytes_arrived);
    // Host 0's FIFO alternates: what goes to the idle host 3 is as slow as what is blocked.
    assert!(a.abs_diff(c) < a / 50, "{a} {c}");
    assert!(a.abs_diff(b) < a / 50, "{a} {b}");
}

#[test]
fn the_same_specification_gives_the_same_world() {
    let spec = star(12);
    let flows: Vec<FlowSpec> = (0..12).map(|n| flow(n, (n * 5 + 3) % 12, 50_000)).collect();
    let flows: Vec<FlowSpec> = flows.into_iter().filter(|f| f.from != f.to).collect();
    let all =
        |world: &World| -> Vec<FlowInfo> { (0..flows.len()).map(|n| world.flow(n)).collect() };
    let (a, b) = (ran(&spec, &flows), ran(&spec, &flows));
    assert_eq!(all(&a), all(&b));
    assert_eq!(a.counters(), b.counters());
    // Stopping on the way changes nothing.
    let mut c = World::new(&spec, &flows).unwrap();
    let mut to = 0;
    while c.run_until(to) {
        c.check_conservation();
        to += 7_777_777;
    }
    assert_eq!(all(&a), all(&c));
}

#[test]
fn a_ring_of_full_buffers_is_found_to_be_stuck() {
    // Four chips in a ring, each host sends to the one two chips on: both ways round are as long.
    let mut spec = FabricSpec {
        hosts: vec![host(Speed::Ddr); 4],
        switches: vec![switch(4); 4],
        ..FabricSpec::default()
    };
    for n in 0..4 {
        spec.links
            .push(link(Node::Switch(n), Node::Switch((n + 1) % 4), 5));
    }
    for n in 0..4 {
        spec.links.push(link(Node::Host(n), Node::Switch(n), 5));
    }
    for chip in &mut spec.switches {
        chip.port.buffer_bytes = 33 * 64;
    }
    let flows: Vec<FlowSpec> = (0..4)
        .map(|n| FlowSpec {
            transport: Transport::Uc,
            ..flow(n, (n + 2) % 4, 1 << 16)
        })
        .collect();
    let mut world = World::new(&spec, &flows).unwrap();
    let mut ways: Vec<u32> = (0..4).map(|n| world.path(n, (n + 2) % 4)[1].0).collect();
    ways.sort_unstable();
    assert_eq!(ways, [0, 1, 2, 3], "all go the same way round");
    let stuck = world.run().unwrap_err();
    assert_eq!(stuck.flows, [0, 1, 2, 3]);
    assert_eq!(
        stuck.waiting.len(),
        8,
        "four in the ring, four hosts: {stuck:?}"
    );
    // The four of the ring, each waiting for the next; links 0 to 3 lead from chip to chip.
    let mut cycle: Vec<u32> = stuck.cycle.iter().map(|(link, _, _)| *link).collect();
    assert_eq!(cycle.len(), 4, "{stuck}");
    assert_eq!(cycle[0], 0, "from the lowest on");
    assert!(cycle == [0, 1, 2, 3] || cycle == [0, 3, 2, 1], "{stuck}");
    cycle.dedup();
    let way = stuck.cycle[0].1;
    assert!(stuck.cycle.iter().all(|(_, w, l)| (*w, *l) == (way, 0)));
    assert!(stuck.to_string().contains("link 0 way"), "{stuck}");
}

#[test]
fn trees_are_whole_and_shifts_by_d_mod_k_do_not_meet() {
    for (levels, radix, hosts) in [(2, 24, 288), (3, 4, 16), (3, 8, 128)] {
        let tree = fat_tree(levels, &host(Speed::Ddr), &switch(radix), &fibre(5));
        assert_eq!(tree.hosts.len(), hosts);
        let hosts = u32::try_from(hosts).unwrap();
        for shift in [1, hosts / 2, hosts - 3] {
            let flows: Vec<FlowSpec> = (0..hosts)
                .map(|n| FlowSpec {
                    transport: Transport::Uc,
                    messages: 20,
                    ..flow(n, (n + shift) % hosts, 1 << 14)
                })
                .collect();
            let world = ran(&tree, &flows);
            let alone = formula::bounds(&tree, &flows[0], &world.path(0, shift));
            let alone = formula::least(&alone).unwrap();
            for n in 0..flows.len() {
                assert_close(rate(&world, n, 1 << 14), alone.bytes_per_second, "a shift");
            }
        }
        let mut routes = tree.clone();
        routes.routing = Routing::Table(vec![0; 3]);
        let error = World::new(&routes, &[]).unwrap_err().to_string();
        assert!(error.contains("another size"), "{error}");
        routes.routing = Routing::Table(vec![0; tree.switches.len() * tree.hosts.len()]);
        let error = World::new(&routes, &[]).unwrap_err().to_string();
        assert!(error.contains("does not end at its host"), "{error}");
    }
}

#[test]
fn a_random_permutation_on_a_tree_arrives() {
    for routing in [true, false] {
        let mut tree = fat_tree(3, &host(Speed::Ddr), &switch(8), &fibre(5));
        if routing {
            tree.routing = Routing::MinHop;
        }
        let flows = permutation(128, 7, 1 << 16);
        let world = ran(&tree, &flows);
        let hops = world.counters().packet_hops;
        let packets: u64 = (0..flows.len())
            .map(|n| world.flow(n).packets_arrived)
            .sum();
        // To a leaf, up, up, down, down, to a host; near ones fewer; acknowledgments besides.
        assert!(hops > 5 * packets && hops < 7 * packets, "{hops} {packets}");
    }
}

/// Each host sends to another, each host receives.
fn permutation(hosts: u32, seed: u64, message_bytes: u32) -> Vec<FlowSpec> {
    let mut rng = units::Rng::new(seed);
    let mut to: Vec<u32> = (0..hosts).collect();
    for n in (1..to.len()).rev() {
        let other = rng.next_u64() % (n as u64 + 1);
        to.swap(n, usize::try_from(other).unwrap());
    }
    let all = (0..hosts).zip(to).filter(|(from, to)| from != to);
    all.map(|(from, to)| FlowSpec {
        messages: 20,
        ..flow(from, to, message_bytes)
    })
    .collect()
}

#[test]
fn impossible_fabrics_are_refused_with_the_part_at_fault() {
    type Change = fn(&mut FabricSpec);
    let cases: [(Change, Place, &str); 8] = [
        (|f| f.links.truncate(2), Place::Host(2), "not connected"),
        (|f| f.links.push(f.links[0]), Place::Host(0), "2 links"),
        (
            |f| f.switches[0].ports = 2,
            Place::Switch(0),
            "3 links at a chip of 2 ports",
        ),
        (
            |f| f.switches[0].ports = 65,
            Place::Switch(0),
            "65 ports; expected 2 to 64",
        ),
        (
            |f| f.hosts[1].port.buffer_bytes = 0,
            Place::Host(1),
            "buffer",
        ),
        (
            |f| f.hosts[1].port.buffer_bytes = 2_000,
            Place::Link(1),
            "holds no packet of 2048 B",
        ),
        (
            |f| f.links[1].ends[1] = Node::Switch(7),
            Place::Link(1),
            "does not exist",
        ),
        (
            |f| f.operational_lanes = 5,
            Place::Whole,
            "5 operational lanes",
        ),
    ];
    for (change, place, says) in cases {
        let mut spec = star(3);
        change(&mut spec);
        let error = World::new(&spec, &[flow(0, 1, 1 << 16)]).unwrap_err();
        assert_eq!(error.place, place, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(60))]

    /// Lossless means that all arrives, in order (asserted in the engine), whatever the buffers.
    #[test]
    fn any_traffic_through_a_chip_arrives_and_credits_are_conserved(
        seed in 0_u64..u64::MAX,
        hosts in 2_u32..9,
        packets in 1_u64..5,
        metres in 1_u64..400,
    ) {
        let mut rng = units::Rng::new(seed);
        let mut below = |n: u32| u32::try_from(rng.next_u64() % u64::from(n)).unwrap();
        let mut spec = star(hosts);
        spec.switches[0].port.buffer_bytes = packets * 33 * 64;
        spec.switches[0].store_and_forward = below(2) == 0;
        for host in &mut spec.hosts {
            host.port.buffer_bytes = packets * 33 * 64;
            host.prefetch_packets = 1 + below(4);
        }
        for link in &mut spec.links {
            link.cable = fibre(metres);
            link.cable.rated = (below(3) == 0).then_some(Speed::Sdr);
        }
        let flows: Vec<FlowSpec> = (0..10)
            .map(|_| {
                let from = below(hosts);
                FlowSpec {
                    transport: Transport::ALL[below(2) as usize],
                    messages: u64::from(1 + below(20)),
                    depth: 1 + below(8),
                    start_ps: u64::from(below(5)) * 1_000_000,
                    ..flow(from, (from + 1 + below(hosts - 1)) % hosts, 1 + below(9_000))
                }
            })
            .collect();
        let mut world = World::new(&spec, &flows).unwrap();
        let mut to = 0;
        while world.run_until(to) {
            world.check_conservation();
            to += 3_000_000;
        }
        world.run().unwrap();
        for (n, flow) in flows.iter().enumerate() {
            let bytes = flow.messages * u64::from(flow.message_bytes);
            proptest::prop_assert_eq!(world.flow(n).bytes_arrived, bytes);
        }
    }
}
