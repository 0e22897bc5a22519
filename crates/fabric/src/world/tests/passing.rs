//! Flows that come and go, some after others: what traces are made of.

use super::parts::{self, assert_same};
use super::*;
use crate::spec::Queueing;

fn passing(from: u32, to: u32, bytes: u32, start_ps: u64, after: Option<u32>) -> FlowSpec {
    FlowSpec {
        messages: 1,
        depth: 1,
        start_ps,
        passing: true,
        after,
        ..flow(from, to, bytes)
    }
}

#[test]
fn a_chain_takes_the_sum_of_its_latencies_and_pauses() {
    let spec = star(3);
    let pause = 5_000_000;
    let ends = [(0, 1), (1, 2), (2, 0), (0, 2)];
    let flows: Vec<FlowSpec> = (0..)
        .zip(ends)
        .map(|(n, (from, to))| passing(from, to, 1_000, pause, u32::checked_sub(n, 1)))
        .collect();
    let world = ran(&spec, &flows);
    let mut there = 0;
    for (n, of) in flows.iter().enumerate() {
        there += pause + formula::latency_ps(&spec, of, &world.path(of.from, of.to));
        assert_eq!(world.flow(n).last_ps, there);
        assert_eq!(
            world.flow(n).first_posted_ps,
            world.flow(n.max(1) - 1).last_ps * u64::from(n > 0) + pause
        );
    }
    assert!(
        world.hosts.iter().all(|h| h.flows.is_empty()),
        "all have passed"
    );
}

#[test]
fn passing_flows_share_as_others_do_and_are_the_same_in_parts() {
    let mut rng = units::Rng::new(7);
    let mut below = |n: u32| u32::try_from(rng.next_u64() % u64::from(n)).unwrap();
    for queueing in [Queueing::Input, Queueing::VirtualOutput, Queueing::Output] {
        let spec = parts::tree(3, Selection::Ecmp, queueing, None);
        let mut flows: Vec<FlowSpec> = Vec::new();
        for n in 0..400 {
            let before = (n > 0 && below(2) == 0).then(|| below(n));
            let from = before.map_or_else(|| below(16), |b| flows[b as usize].to);
            let to = (from + 1 + below(15)) % 16;
            let start = u64::from(below(3_000)) * 1_000;
            flows.push(passing(from, to, 1 + below(30_000), start, before));
        }
        let (told, most) = assert_same(&spec, &flows, &[2, 3, 5]);
        assert!(most == 5 && told.starts_with("Ok"), "{told}");
        let world = ran(&spec, &flows);
        assert!(world.hosts.iter().all(|h| h.flows.is_empty()));
    }
}

#[test]
fn orders_that_nobody_could_keep_are_refused() {
    let spec = star(3);
    let first = passing(0, 1, 100, 0, None);
    for (second, what) in [
        (passing(1, 2, 100, 0, Some(1)), "not before it"),
        (passing(2, 1, 100, 0, Some(0)), "does not see the end"),
        (
            FlowSpec {
                passing: false,
                ..passing(1, 2, 100, 0, Some(0))
            },
            "only a flow that passes",
        ),
        (
            FlowSpec {
                ping_pong: true,
                ..passing(1, 2, 100, 0, None)
            },
            "not answered",
        ),
    ] {
        let error = World::new(&spec, &[first, second]).unwrap_err();
        assert_eq!(error.place, Place::Flow(1));
        assert!(error.problem.contains(what), "{error}");
    }
}
