//! Messages that are asked for first: a request there, an answer back, then the message.

use super::parts::{CONTROLS, assert_same, tree};
use super::*;
use crate::spec::{ASK_BYTES, Queueing};

/// A fabric whose hosts take time for everything.
fn slow_hosts() -> FabricSpec {
    let mut spec = star(4);
    for host in &mut spec.hosts {
        host.post_ps = 600_000;
        host.engine_ps = 300_000;
    }
    spec
}

fn asked(messages: u64, depth: u32) -> FlowSpec {
    FlowSpec {
        messages,
        depth,
        rendezvous: true,
        ..flow(0, 1, 64 << 10)
    }
}

#[test]
fn one_message_takes_its_own_time_and_that_of_a_request_and_its_answer() {
    let spec = slow_hosts();
    // Of one packet, whose time the formula has.
    let of = FlowSpec {
        message_bytes: 2_048,
        ..asked(1, 1)
    };
    let world = ran(&spec, &[of]);
    let ask = FlowSpec {
        message_bytes: ASK_BYTES,
        rendezvous: false,
        ..of
    };
    let answer = FlowSpec {
        from: 1,
        to: 0,
        ..ask
    };
    let there = world.path(0, 1);
    let expected = formula::latency_ps(&spec, &ask, &there)
        + formula::latency_ps(&spec, &answer, &world.path(1, 0))
        + formula::latency_ps(&spec, &of, &there);
    let info = world.flow(0);
    assert_eq!(info.last_ps, expected);
    assert_eq!((info.first_posted_ps, info.messages_arrived), (0, 1));
    assert_eq!(info.bytes_arrived, 2_048);
}

#[test]
fn one_at_a_time_pays_for_each_and_many_at_once_hide_it() {
    let spec = slow_hosts();
    let last = |of: FlowSpec| ran(&spec, &[of]).flow(0).last_ps;
    let each = last(asked(2, 1)) - last(asked(1, 1));
    assert_eq!(last(asked(9, 1)), last(asked(1, 1)) + 8 * each);
    let plain = |depth| FlowSpec {
        rendezvous: false,
        ..asked(100, depth)
    };
    // As with Ssend, the next one begins when this one is acknowledged: a request and an answer more.
    assert!(last(asked(100, 1)) > last(plain(1)) + 99 * 2 * 900_000);
    let (many, free) = (last(asked(100, 32)), last(plain(32)));
    assert!(many > free && many - free < free / 50, "{many} {free}");
}

#[test]
fn as_many_as_the_depth_are_under_way() {
    let spec = slow_hosts();
    let mut before = u64::MAX;
    for depth in [1, 2, 4] {
        let last = ran(&spec, &[asked(64, depth)]).flow(0).last_ps;
        assert!(last < before, "{depth}");
        before = last;
    }
}

#[test]
fn parts_and_losses_change_nothing_of_it() {
    for control in CONTROLS {
        let mut spec = tree(3, Selection::Static, Queueing::Input, control);
        spec.operational_lanes = 1;
        let hosts = u32::try_from(spec.hosts.len()).unwrap();
        let flows: Vec<FlowSpec> = (0..hosts)
            .map(|n| FlowSpec {
                from: n,
                to: (n + hosts / 2) % hosts,
                ..asked(6, 2)
            })
            .collect();
        let (_, parts) = assert_same(&spec, &flows, &[2, 3]);
        assert!(parts > 1 || control.is_some());
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    for of in [
        FlowSpec {
            ping_pong: true,
            ..asked(1, 1)
        },
        FlowSpec {
            passing: true,
            ..asked(1, 1)
        },
        FlowSpec {
            transport: Transport::Uc,
            ..asked(1, 1)
        },
    ] {
        let error = World::new(&star(2), &[of]).unwrap_err().to_string();
        assert!(error.contains("asked for"), "{error}");
    }
}
