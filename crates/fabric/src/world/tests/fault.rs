//! Links that fail and come back.

use std::sync::Arc;

use proptest::prelude::*;

use super::parts::{self, CHOICES, CONTROLS, assert_same};
use super::*;
use crate::fault::{Fault, FaultRule, Faults};
use crate::selection::Dca;
use crate::spec::{Ordering, Queueing};

const RETRY_PS: u64 = 1_000_000_000;
const RULE: FaultRule = FaultRule {
    retry_ps: RETRY_PS,
    retries: 7,
    sweep_ps: None,
};

fn failing(mut spec: FabricSpec, all: &[Fault], rule: FaultRule) -> FabricSpec {
    let faults = Faults::new(&spec, all, rule).unwrap();
    spec.faults = Some(Arc::new(faults));
    spec
}

fn fault(link: u32, at_ps: u64, until_ps: Option<u64>) -> Fault {
    Fault {
        link,
        at_ps,
        until_ps,
    }
}

/// Host, chip, chip, host: the second link is the one between the chips.
fn chain() -> FabricSpec {
    FabricSpec {
        hosts: vec![host(Speed::Ddr); 2],
        switches: vec![switch(4); 2],
        links: vec![
            link(Node::Host(0), Node::Switch(0), 5),
            link(Node::Switch(0), Node::Switch(1), 5),
            link(Node::Switch(1), Node::Host(1), 5),
        ],
        ..FabricSpec::default()
    }
}

/// Messages one after the other, each acknowledged before the next.
fn one_by_one(messages: u64) -> FlowSpec {
    FlowSpec {
        messages,
        depth: 1,
        ..flow(0, 1, 20_000)
    }
}

fn heard(of: &FlowSpec) -> u64 {
    // When the sender has heard of all: a message more begins then.
    let more = FlowSpec {
        messages: of.messages + 1,
        ..*of
    };
    let both = [of, &more].map(|of| ran(&chain(), &[*of]).flow(0).last_ps);
    let one = ran(&chain(), &[one_by_one(1)]).flow(0).last_ps;
    assert!(both[1] > both[0]);
    both[1] - one
}

#[test]
fn recovery_takes_the_timer_and_what_was_left() {
    let k = 5;
    let acked = heard(&one_by_one(k));
    let left = ran(&chain(), &[one_by_one(20 - k)]).flow(0).last_ps;
    // The link fails while message 6 is on its way: what of it was not across is lost.
    let failed = acked + 1_000_000;
    for (tries, until) in [
        (1, failed + 10_000),
        (1, acked + RETRY_PS - 1),
        (2, acked + RETRY_PS + 50_000_000),
        (7, acked + 6 * RETRY_PS + 50_000_000),
    ] {
        let spec = failing(chain(), &[fault(1, failed, Some(until))], RULE);
        let world = ran(&spec, &[one_by_one(20)]);
        let info = world.flow(0);
        let (expected, timeouts) = match until == failed + 10_000 {
            // Shorter than a message: the next packet tells the receiver of the gap, no timer runs out.
            true => (None, 0),
            false => (Some(acked + tries * RETRY_PS + left), tries),
        };
        assert_eq!(info.timeouts, timeouts, "until {until}: {info:?}");
        if let Some(expected) = expected {
            assert_eq!(info.last_ps, expected, "{tries} tries");
            // From the last acknowledgment to that of the message sent again.
            let one = heard(&one_by_one(1));
            assert_eq!(info.silence_max_ps, tries * RETRY_PS + one);
        } else {
            assert!(info.packets_resent > 0 && info.last_ps < acked + left + 20_000_000);
        }
        assert!(!info.broken && info.messages_arrived == 20);
        assert_eq!(world.counters().cut, world.channel(1, 0).cut);
        assert_eq!(
            info.packets_sent,
            info.packets_arrived + world.counters().cut
        );
        assert_eq!(world.now_ps(), ran(&spec, &[one_by_one(20)]).now_ps());
        assert!(
            world.now_ps() < info.last_ps + 10_000_000,
            "no timer counts"
        );
    }
}

#[test]
fn who_hears_nothing_gives_up() {
    let acked = heard(&one_by_one(5));
    let spec = failing(chain(), &[fault(1, acked + 1, None)], RULE);
    let world = ran(&spec, &[one_by_one(20)]);
    let info = world.flow(0);
    assert!(info.broken && info.messages_arrived == 5, "{info:?}");
    assert_eq!(info.timeouts, 8);
    assert_eq!(info.silence_max_ps, 8 * RETRY_PS);
    let answered = FlowSpec {
        ping_pong: true,
        ..one_by_one(20)
    };
    assert!(ran(&spec, &[answered]).flow(0).broken);
}

/// Two levels of chips with 8 ports, 4 hosts a leaf.
fn tree(selection: Selection, queueing: Queueing) -> FabricSpec {
    let mut spec = fat_tree(2, &host(Speed::Ddr), &switch(8), &fibre(5));
    spec.selection = selection;
    spec.queueing = queueing;
    spec
}

#[test]
fn tables_lead_round_a_link_when_the_sweep_has_ended() {
    let of = one_by_one(10_000);
    let of = FlowSpec { to: 20, ..of };
    let spec = tree(Selection::Static, Queueing::Input);
    let world = ran(&spec, &[of]);
    let whole = world.flow(0).last_ps;
    // Down from the spine: nobody at the leaf knows.
    let (link, way) = world.path(0, 20)[2];
    let failed = whole / 2;
    let stays = failing(spec.clone(), &[fault(link, failed, None)], RULE);
    assert!(ran(&stays, &[of]).flow(0).broken);
    let sweep_ps = 2 * RETRY_PS + 500_000_000;
    let swept = FaultRule {
        sweep_ps: Some(sweep_ps),
        ..RULE
    };
    let spec = failing(spec, &[fault(link, failed, None)], swept);
    let world = ran(&spec, &[of]);
    let info = world.flow(0);
    assert!(!info.broken, "{info:?}");
    // The third timer is the first after the sweep.
    assert_eq!(info.timeouts, 3);
    let one = ran(&tree(Selection::Static, Queueing::Input), &[one_by_one(1)]);
    let message = one.flow(0).last_ps;
    let late = info.last_ps - whole;
    assert!(
        late <= 3 * RETRY_PS && late + 4 * message > 3 * RETRY_PS,
        "{late}"
    );
    assert!(world.channel(link as usize, way).cut > 0);
    let given = FabricSpec {
        routing: Routing::Table(Vec::new()),
        ..tree(Selection::Static, Queueing::Input)
    };
    let error = Faults::new(
        &given,
        &[fault(link, 0, None)],
        FaultRule {
            sweep_ps: Some(0),
            ..RULE
        },
    );
    assert!(error.unwrap_err().problem.contains("given"));
}

#[test]
fn chips_that_choose_avoid_their_own_port_at_once_and_others_after_a_sweep() {
    for selection in [Selection::Spray, Selection::Ecmp, CHOICES[4], CHOICES[5]] {
        let spec = tree(selection, Queueing::VirtualOutput);
        let flows: Vec<FlowSpec> = (0..4)
            .map(|n| FlowSpec {
                messages: 200,
                ..flow(n, 28 + n, 20_000)
            })
            .collect();
        // The first cable up of the leaf of the senders, then the first of that of the receivers.
        let up = |leaf: u32| {
            let found = spec.links.iter().position(|l| {
                l.ends.contains(&Node::Switch(leaf))
                    && l.ends.iter().all(|e| matches!(e, Node::Switch(_)))
            });
            u32::try_from(found.unwrap()).unwrap()
        };
        let of = |link: u32, sweep_ps: Option<u64>| {
            let rule = FaultRule { sweep_ps, ..RULE };
            let spec = failing(spec.clone(), &[fault(link, 100_000_000, None)], rule);
            ran(&spec, &flows)
        };
        let home = |n: u32| {
            let of = spec.links.iter().find(|l| l.ends.contains(&Node::Host(n)));
            let ends = of.unwrap().ends;
            let chip = ends.into_iter().find_map(|e| match e {
                Node::Switch(n) => Some(n),
                Node::Host(_) => None,
            });
            chip.unwrap()
        };
        let near = of(up(home(0)), None);
        // What was on the cable, and in the chip for it. Acknowledgments come back over a spine that knows no other way.
        let data: u64 = (0..4)
            .map(|n| near.flow(n).packets_sent - near.flow(n).packets_arrived)
            .sum();
        assert!(data < 20, "{selection:?}: {data} of 2000 that go by it");
        let far = up(home(28));
        let (deaf, told) = (of(far, None), of(far, Some(10_000_000)));
        let cut = [&deaf, &told].map(|w| w.counters().cut);
        let last = |w: &World| (0..4).map(|n| w.flow(n).last_ps).max();
        assert!(cut[1] < cut[0] || cut[0] == 0, "{selection:?}: {cut:?}");
        assert!((0..4).all(|n| !told.flow(n).broken));
        assert!(last(&told) <= last(&deaf), "{selection:?}");
    }
}

#[test]
fn lost_probes_move_flows_within_the_time_that_is_stated() {
    let rule = Dca {
        period_ps: 50_000_000,
        threshold_ps: 20_000_000,
        lost_after_ps: 100_000_000,
        paths: 4,
        ..Dca::default()
    };
    for queueing in [Queueing::Output, Queueing::Input] {
        let spec = tree(Selection::Dca(rule), queueing);
        let flows: Vec<FlowSpec> = (0..4)
            .map(|n| FlowSpec {
                messages: 200,
                depth: 2,
                ..flow(n, 28 + n, 100_000)
            })
            .collect();
        // A cable that carries a flow down to its leaf.
        let calm = ran(&spec, &flows);
        let busy = |n: &u32| {
            let between = spec.links[*n as usize].ends;
            let chips = between.iter().all(|e| matches!(e, Node::Switch(_)));
            let all = [0, 1].map(|way| calm.channel(*n as usize, way).busy_ps);
            chips && all.into_iter().max() > Some(calm.now_ps() / 2)
        };
        let all: Vec<u32> = (0..u32::try_from(spec.links.len()).unwrap())
            .filter(busy)
            .collect();
        assert!(!all.is_empty());
        for link in all {
            let failed = 2_000_000_000;
            let spec = failing(spec.clone(), &[fault(link, failed, None)], RULE);
            let world = ran(&spec, &flows);
            let fled: Vec<&Move> = world
                .moves()
                .iter()
                .filter(|m| m.gain_ps.is_none())
                .collect();
            assert!(!fled.is_empty(), "{queueing:?} {link}");
            let within = rule.lost_after_ps + 2 * rule.period_ps;
            for step in fled {
                let after = step.at_ps - failed;
                assert!(after <= within, "{after}");
            }
            for n in 0..4 {
                let info = world.flow(n);
                assert!(!info.broken && info.timeouts <= 1, "{info:?}");
                assert!(info.silence_max_ps < RETRY_PS + 1_000_000_000);
            }
            assert!(world.avoided().lost > 0);
        }
    }
}

#[test]
fn failures_that_cannot_be_are_refused() {
    let spec = chain();
    let no = |all: &[Fault], rule: FaultRule| Faults::new(&spec, all, rule).unwrap_err();
    let error = no(&[fault(3, 0, None)], RULE);
    assert!(error.problem.contains("no link 3"), "{error}");
    let error = no(&[fault(1, 5, Some(5))], RULE);
    assert_eq!(error.place, Place::Link(1));
    let error = no(&[fault(1, 5, None), fault(1, 9, Some(10))], RULE);
    assert!(error.problem.contains("down already"), "{error}");
    for rule in [
        FaultRule {
            retry_ps: 0,
            ..RULE
        },
        FaultRule {
            retries: 1_001,
            ..RULE
        },
        FaultRule {
            sweep_ps: Some(u64::MAX),
            ..RULE
        },
    ] {
        no(&[], rule);
    }
    no(&[fault(1, u64::MAX, None)], RULE);
    no(&[fault(1, 1, None); 65], RULE);
    let spec = failing(spec.clone(), &[fault(1, 5, None)], RULE);
    let uc = FlowSpec {
        transport: Transport::Uc,
        ..flow(0, 1, 100)
    };
    let error = World::new(&spec, &[uc]).unwrap_err();
    assert_eq!(error.place, Place::Flow(0));
}

/// Some links, down for some time each; all come back.
fn drawn(spec: &FabricSpec, seed: u64, sweep_ps: Option<u64>) -> FabricSpec {
    let mut rng = units::Rng::new(seed);
    let mut below = |n: u64| rng.next_u64() % n;
    let mut links: Vec<u32> = (0..4)
        .map(|_| u32::try_from(below(spec.links.len() as u64)).unwrap())
        .collect();
    links.sort_unstable();
    links.dedup();
    let all: Vec<Fault> = links
        .into_iter()
        .map(|link| {
            let at = below(40_000_000);
            fault(link, at, Some(at + 1 + below(60_000_000)))
        })
        .collect();
    let rule = FaultRule {
        retry_ps: 20_000_000 + below(100_000_000),
        retries: 1_000,
        sweep_ps,
    };
    failing(spec.clone(), &all, rule)
}

fn acknowledged(flows: Vec<FlowSpec>) -> Vec<FlowSpec> {
    let all = flows.into_iter().map(|f| FlowSpec {
        transport: Transport::Rc,
        ..f
    });
    all.collect()
}

#[test]
fn failures_are_the_same_in_any_number_of_parts() {
    for (n, selection) in (0..).zip(CHOICES) {
        for queueing in [Queueing::Input, Queueing::VirtualOutput, Queueing::Output] {
            for control in CONTROLS {
                let spec = parts::tree(3, selection, queueing, control);
                let flows = acknowledged(parts::flows(16, 1, control.is_some(), n));
                let spec = drawn(&spec, n, (n % 2 == 0).then_some(5_000_000));
                if World::new(&spec, &flows).is_ok() {
                    let (_, most) = assert_same(&spec, &flows, &[2, 3, 5]);
                    assert_eq!(most, 5);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever fails and comes back, all messages arrive once, and room is conserved with losses counted.
    #[test]
    fn all_arrives_whatever_fails(seed in 0_u64..u64::MAX) {
        let mut rng = units::Rng::new(seed);
        let mut below = |n: usize| usize::try_from(rng.next_u64() % n as u64).unwrap();
        let dca = Selection::Dca(Dca {
            period_ps: 2_000_000,
            lost_after_ps: 4_000_000,
            ..Dca::default()
        });
        let mut choices = CHOICES.to_vec();
        choices.push(dca);
        let selection = choices[below(choices.len())];
        let queueing = [Queueing::Input, Queueing::VirtualOutput, Queueing::Output][below(3)];
        let control = CONTROLS[below(4)];
        let sweep = [None, Some(3_000_000)][below(2)];
        let spec = parts::tree(2, selection, queueing, control);
        let hosts = u32::try_from(spec.hosts.len()).unwrap();
        let mut flows = acknowledged(parts::flows(hosts, 1, control.is_some(), seed));
        for flow in flows.iter_mut().step_by(3).filter(|_| control.is_some()) {
            *flow = FlowSpec { transport: Transport::Iwarp, ping_pong: false, ..*flow };
        }
        let spec = drawn(&spec, seed, sweep);
        let Ok(mut world) = World::new(&spec, &flows) else {
            return Ok(());
        };
        prop_assert!(world.run().is_ok());
        world.check_conservation();
        let mut cut = 0;
        for n in 0..spec.links.len() * 2 {
            cut += world.channel(n / 2, n % 2).cut;
        }
        prop_assert_eq!(cut, world.counters().cut);
        for (n, flow) in flows.iter().enumerate() {
            let info = world.flow(n);
            prop_assert!(!info.broken);
            prop_assert_eq!(info.messages_arrived, flow.messages);
            let bytes = flow.messages * u64::from(flow.message_bytes);
            prop_assert_eq!(info.bytes_arrived, bytes);
        }
    }
}

#[test]
fn orderings_recover_alike_where_packets_keep_their_way() {
    let acked = heard(&one_by_one(5));
    let both = [Ordering::Strict, Ordering::Relaxed].map(|ordering| {
        let of = FlowSpec {
            ordering,
            ..one_by_one(20)
        };
        let until = Some(acked + 10_000_000);
        let spec = failing(chain(), &[fault(1, acked + 1_000_000, until)], RULE);
        ran(&spec, &[of]).flow(0).last_ps
    });
    assert_eq!(both[0], both[1]);
}
