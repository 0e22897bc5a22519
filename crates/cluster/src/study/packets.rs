//! A step packet by packet.

use crate::pattern::{Counts, FILES};
use crate::{Step, Study};
use fabric::fluid::Volume;
use fabric::{FlowSpec, Selection, Stuck, WaitsFor, World, formula};
use run::model::{FabricCable, FabricRecovery, FabricStep, FabricWait};

use super::made::{Fluids, Made};
use super::picture::{directed, picture};
use super::{Item, Outcome, float, formula_parts, ns, seconds};
use fault::Failure;

/// Runs it; a picture of its cables if it is to be shown.
pub(super) fn step(
    study: &Study,
    made: &Made,
    fluids: &mut Fluids<'_>,
    item: &Item,
    step: &Step,
    threads: usize,
    shown: bool,
) -> Result<Outcome, Failure> {
    let built = &made.built;
    let mut world = World::new(&built.spec, &step.flows).map_err(Failure::usage)?;
    let ways: Vec<Vec<(u32, usize)>> = step.flows.iter().map(|f| made.way(f.from, f.to)).collect();
    crate::parallel::run(&mut world, threads).map_err(|stuck| {
        Failure::check(format!(
            "{} with {} nodes, step {}: {}",
            study.name,
            item.nodes,
            item.step,
            in_names(&stuck, &built.names.links)
        ))
    })?;
    let mut outcome = Outcome {
        events: world.counters().events,
        packet_hops: world.counters().packet_hops,
        took_ps: float(world.now_ps().max(1)),
        ..Outcome::default()
    };
    let fixed = matches!(built.spec.selection, Selection::Static);
    let flows_over = match fixed {
        true => flows_over(made, &ways),
        false => volumes_over(made, &step.flows, &world),
    };
    outcome.flows_max = flows_over.iter().copied().max().unwrap_or(0);
    match study.traffic.kind.counts() {
        Counts::Rate => {
            for (n, sends) in step.sends.iter().enumerate() {
                let info = world.flow(n);
                let took = info.last_ps - info.first_posted_ps;
                let rate = match info.broken {
                    true => 0.0,
                    false => float(info.bytes_arrived) / seconds(took.max(1)),
                };
                outcome.rates.add(rate);
                if item.mapped {
                    outcome.pairs.push((sends.from, sends.to, rate));
                }
            }
            if fixed {
                let volumes = fluids.volumes(&step.flows);
                let shared = fluids.shared.finish(&volumes);
                outcome.fair_sum = volumes.iter().zip(&shared).map(|(v, s)| v.bytes / s).sum();
            }
        }
        Counts::Latency => {
            for (n, flow) in step.flows.iter().enumerate() {
                let info = world.flow(n);
                if info.broken {
                    continue;
                }
                let trips = u64::try_from(info.round_trips_ps).unwrap_or(u64::MAX);
                outcome
                    .latencies_ps
                    .push(float(trips) / (2.0 * float(flow.messages)));
                outcome.parts.push(formula_parts(built, flow, &ways[n]));
            }
        }
        Counts::Time if !study.traffic.trace.is_empty() => {
            replayed(step, fluids, &ways, built, &world, &mut outcome);
        }
        Counts::Time => {
            let volumes = fluids.volumes(&step.flows);
            let last = |n: usize| float(world.flow(n).last_ps);
            outcome.jobs_ps = jobs(study, fluids, step, &volumes, last);
        }
    }
    avoided(made, &world, &mut outcome);
    recovered(step, &world, &mut outcome);
    for n in 0..step.flows.len() {
        let info = world.flow(n);
        outcome.early += info.early;
        outcome.packets += info.packets_arrived;
    }
    if shown {
        outcome.step = Some(drawn(made, item, &world, &flows_over));
    }
    Ok(outcome)
}

/// What will never end, with the cables' names, and what would.
fn in_names(stuck: &Stuck, links: &[String]) -> String {
    let mut said = format!("deadlock: {} flows cannot end", stuck.flows.len());
    let each = stuck.cycle.iter().take(CYCLE_SHOWN);
    for (n, (link, way, lane)) in each.enumerate() {
        let cable = directed(&links[*link as usize], *way);
        said += match n {
            0 => {
                ". Each of these waits for room in the buffer behind the next, the last for the first: "
            }
            _ => ", then ",
        };
        said += &format!("{cable} (lane {lane})");
    }
    if let Some(more) = stuck
        .cycle
        .len()
        .checked_sub(CYCLE_SHOWN)
        .filter(|n| *n > 0)
    {
        said += &format!(", and {more} more");
    }
    if stuck.cycle.is_empty() {
        return format!("{said}: {stuck}");
    }
    said + ". Choose a routing that has no such circle: updn or dfsssp anywhere, ftree in trees, dor in tori (dfsssp and dor take virtual lanes)"
}

/// How long a trace and each of its messages took, beside each message alone: started when those were there alone that it waits for.
fn replayed(
    step: &Step,
    fluids: &mut Fluids<'_>,
    ways: &[Vec<(u32, usize)>],
    built: &crate::Built,
    world: &World,
    outcome: &mut Outcome,
) {
    let (mut last, mut ideal): (f64, f64) = (0.0, 0.0);
    let mut there: Vec<f64> = Vec::new();
    for (n, (flow, way)) in step.flows.iter().zip(ways).enumerate() {
        let first = formula::latency_ps(&built.spec, flow, way);
        let rest = flow.message_bytes.saturating_sub(flow.mtu_bytes);
        let alone = float(first) + f64::from(rest) / fluids.rate(flow) * 1e12;
        let before = flow.after.map_or(0.0, |n| there[n as usize]);
        there.push(before + float(flow.start_ps) + alone);
        let info = world.flow(n);
        if info.messages_arrived == flow.messages {
            last = last.max(float(info.last_ps));
            ideal = ideal.max(there[n]);
            let took = float(info.last_ps - info.first_posted_ps);
            outcome.slowdowns.push(took / alone);
        }
    }
    outcome.jobs_ps = vec![[last, ideal]];
}

/// By job: its last arrival, and that at one large switch alone; in ps.
pub(super) fn jobs(
    study: &Study,
    fluids: &mut Fluids<'_>,
    step: &Step,
    volumes: &[Volume],
    arrived_ps: impl Fn(usize) -> f64,
) -> Vec<[f64; 2]> {
    let jobs = study.traffic.jobs.len().max(1);
    let each = (0..jobs).map(|job| {
        let job = u16::try_from(job).unwrap_or(FILES);
        let own = || (0..step.sends.len()).filter(|n| step.sends[*n].job == job);
        let last = own().map(&arrived_ps).fold(0.0, f64::max);
        let alone: Vec<Volume> = own().map(|n| volumes[n]).collect();
        [last, fluids.ideal_s(&alone) * 1e12]
    });
    each.collect()
}

/// What congestion avoidance did and cost.
fn avoided(made: &Made, world: &World, outcome: &mut Outcome) {
    let built = &made.built;
    let Selection::Dca(rule) = built.spec.selection else {
        return;
    };
    let found = world.avoided();
    outcome.moves = found.moves;
    outcome.probes_ps = found.wire_ps;
    outcome.wires_ps = (0..built.spec.links.len() * 2)
        .map(|n| world.channel(n / 2, n % 2).busy_ps)
        .sum();
    // Two moves of a flow are at least a hold time apart.
    let mut last = std::collections::BTreeMap::new();
    for step in world.moves() {
        if let Some(before) = last.insert(step.flow, step.at_ps) {
            let apart = float(step.at_ps - before).max(1.0);
            outcome.moves_a_hold = outcome.moves_a_hold.max(float(rule.hold_ps) / apart);
        }
    }
}

/// What links that failed took, and how flows got over it.
fn recovered(step: &Step, world: &World, outcome: &mut Outcome) {
    let Some(faults) = world.faults() else { return };
    let of_link = |link: u32| {
        (0..2)
            .map(move |way| world.channel(link as usize, way).cut)
            .sum()
    };
    // As the study's list has them: what a link lost stands with its first failure.
    let each = faults.links().flat_map(|link| {
        let later = faults.outages(link).len().saturating_sub(1);
        std::iter::once(of_link(link)).chain(std::iter::repeat_n(0, later))
    });
    outcome.cut = each.collect();
    let mut found = FabricRecovery {
        flows: step.flows.len() as u64,
        ..FabricRecovery::default()
    };
    for info in (0..step.flows.len()).map(|n| world.flow(n)) {
        found.timeouts += info.timeouts;
        found.resent_packets += info.packets_resent;
        found.broken_flows += u64::from(info.broken);
        found.silence_max_ns = found.silence_max_ns.max(ns(info.silence_max_ps));
    }
    let fled = || world.moves().iter().filter(|m| m.gain_ps.is_none());
    if world.avoided().probes > 0 {
        found.moved_flows = Some(fled().count() as u64);
        let began = |at_ps: u64| {
            let outages = faults.links().flat_map(|link| faults.outages(link));
            let before = outages.map(|(from, _)| *from).filter(|from| *from <= at_ps);
            before.max().unwrap_or(0)
        };
        let after = fled().map(|m| ns(m.at_ps - began(m.at_ps)));
        found.moved_after_max_ns = after.reduce(f64::max);
    }
    outcome.recovery = Some(found);
}

/// Flows on each direction of the cables between chips, by their ways.
fn flows_over(made: &Made, ways: &[Vec<(u32, usize)>]) -> Vec<u32> {
    let mut found = vec![0; made.inner.len()];
    for (link, direction) in ways.iter().flatten() {
        let channel = *link as usize * 2 + direction;
        if made.inner[channel] {
            found[channel] += 1;
        }
    }
    found
}

/// What went over each of them, in volumes of the first flow.
fn volumes_over(made: &Made, flows: &[FlowSpec], world: &World) -> Vec<u32> {
    let one = flows.first().map_or(1, |f| {
        u64::from(f.message_bytes.div_ceil(f.mtu_bytes)) * f.messages
    });
    let mut found = vec![0; made.inner.len()];
    for (n, volume) in found.iter_mut().enumerate() {
        if made.inner[n] {
            let packets = world.channel(n / 2, n % 2).packets;
            // Acknowledgments are packets as well, a few beside a flow's.
            let whole = (packets + one / 2) / one.max(1);
            let least = u64::from(packets > 0);
            *volume = u32::try_from(whole.max(least)).unwrap_or(u32::MAX);
        }
    }
    found
}

/// The cables between chips in a step, and who waited for room.
fn drawn(made: &Made, item: &Item, world: &World, flows_over: &[u32]) -> FabricStep {
    let took = world.now_ps().max(1);
    let mut found = picture(made, item, ns(took), flows_over, |channel, cable| {
        let stats = world.channel(channel / 2, channel % 2);
        FabricCable {
            busy_share: float(stats.busy_ps) / float(took),
            credit_wait_share: float(stats.starved_ps) / float(took),
            wait_ns: ns(stats.waited_ps) / float(stats.packets.max(1)),
            held_others_share: float(stats.held_ps) / float(took),
            ..cable
        }
    });
    let links = &made.built.names.links;
    let spoken = |(link, way): (u32, usize)| directed(&links[link as usize], way);
    let blames = world.blames().into_iter().take(WAITS_MAX);
    found.waits = blames
        .map(|blame| FabricWait {
            cable: spoken(blame.waiting),
            on: match blame.on {
                WaitsFor::Channel(link, way) => Some(spoken((link, way))),
                WaitsFor::RoundTrip => None,
            },
            share: float(blame.time_ps) / float(took),
        })
        .collect();
    found
}

const WAITS_MAX: usize = 20;
/// Of a circle of waiting outputs.
const CYCLE_SHOWN: usize = 12;
