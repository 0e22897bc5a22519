//! Rotate on 288 ports of 24-port chips at 10 Gb/s: static, hashed or probed paths, strict or relaxed ordering.
//!
//! `cargo run --release -p goodput-fabric --example sandia -- NODES SELECTION ORDERING [ROTATIONS] [MB]`: the low half of
//! the nodes sends to the high half, turned by some rotations; prints the rates of the later half of each flow.

use std::env;

use fabric::link::{Cable, CableKind, Speed};
use fabric::topology::fat_tree;
use fabric::{
    Dca, Ethernet, FlowControl, FlowSpec, HostSpec, Ordering, PortSpec, Queueing, Selection,
    SwitchSpec, Transport, World,
};

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let text = |n: usize| args.get(n).map_or("", String::as_str);
    let number = |n: usize, or: u32| text(n).parse().unwrap_or(or);
    let nodes = number(0, 64);
    let us = |n, or| u64::from(number(n, or)) * 1_000_000;
    let rule = Dca {
        period_ps: us(5, 200),
        threshold_ps: us(6, 20),
        hold_ps: us(7, 400),
        venture: u8::try_from(number(8, 8)).unwrap_or(8),
        ..Dca::default()
    };
    let selection = match text(1) {
        "ecmp" => Selection::Ecmp,
        "spray" => Selection::Spray,
        "dca" => Selection::Dca(rule),
        _ => Selection::Static,
    };
    let ordering = match text(2) {
        "relaxed" => Ordering::Relaxed,
        _ => Ordering::Strict,
    };
    let (speed, width) = Speed::ethernet(10).unwrap_or((Speed::Ge10, 1));
    let port = PortSpec {
        speed,
        width,
        buffer_bytes: 64 << 10,
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
        ports: 24,
        port,
        latency_ps: 400_000,
        store_and_forward: false,
    };
    let cable = Cable {
        kind: CableKind::Copper,
        length_mm: 5_000,
        rated: None,
        electronics_ps: 0,
    };
    let mut spec = fat_tree(2, &host, &chip, &cable);
    spec.queueing = Queueing::Output;
    spec.selection = selection;
    spec.ethernet = Some(Ethernet {
        control: FlowControl::Credits,
        ..Ethernet::default()
    });
    let half = nodes / 2;
    let rotations = number(3, 2).clamp(1, half);
    let volume = number(4, 42);
    for turn in 0..rotations {
        let shift = turn * half / rotations;
        let flows: Vec<FlowSpec> = (0..half)
            .map(|n| FlowSpec {
                from: n,
                to: half + (n + shift) % half,
                transport: Transport::Iwarp,
                mtu_bytes: fabric::ethernet::IWARP_PAYLOAD_BYTES,
                message_bytes: 8 << 20,
                messages: u64::from((volume / 8).max(1)),
                depth: 1,
                ordering,
                ..FlowSpec::default()
            })
            .collect();
        let mut world = World::new(&spec, &flows).expect("a tree is sound");
        world.run().expect("a tree does not lock");
        let rates: Vec<f64> = (0..flows.len())
            .map(|n| {
                let info = world.flow(n);
                // As the best of several repetitions: the later half, when paths have been found.
                let later = (info.messages_arrived - info.half_messages) as f64 * 8_388_608.0;
                later / ((info.last_ps - info.half_ps) as f64 * 1e-6)
            })
            .collect();
        let sum: f64 = rates.iter().sum();
        let [least, most] = [f64::min, f64::max].map(|f| rates.iter().copied().fold(rates[0], f));
        let all = |of: fn(&fabric::FlowInfo) -> u64| -> u64 {
            (0..flows.len()).map(|n| of(&world.flow(n))).sum()
        };
        println!(
            "{nodes} nodes, turned by {shift}: mean {:.0} worst {least:.0} best {most:.0} MB/s; moves {} early {} \
             halvings {} resent {}",
            sum / rates.len() as f64,
            world.avoided().moves,
            all(|f| f.early),
            all(|f| f.halvings),
            all(|f| f.packets_resent),
        );
    }
}
