//! Patterns of many hosts: every step packet by packet on all cores, then rates, latencies and times by number of nodes.
//!
//! A step is a world of its own, so steps run on whatever core is free and what they found is put together in the
//! order of the file: the number of cores changes nothing but the time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster::pattern::{Counts, FILES};
use cluster::{Built, Layout, Study};
use fabric::formula::{self, Limit};
use fabric::{FlowSpec, Node, Selection, WaitsFor, World};
use report::model::{
    FULL_SHARE, FabricCable, FabricChip, FabricJob, FabricLatency, FabricMap, FabricNodes,
    FabricRun, FabricStep, FabricStudy, FabricWait,
};

use super::fair::{self, Fluid};
use super::{bits, float, ns};
use crate::context::Context;
use crate::failure::Failure;

/// Runs all studies; counts of the engine go to `counts`.
pub(super) fn run(
    studies: &[Study],
    counts: &mut FabricRun,
    context: &Context,
) -> Result<Vec<FabricStudy>, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    run_on(cores, studies, counts, &|| context.interrupted().is_some())
}

fn run_on(
    cores: usize,
    studies: &[Study],
    counts: &mut FabricRun,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<FabricStudy>, Failure> {
    let items = items(studies);
    let outcomes = all(cores, studies, &items, stop)?;
    for outcome in &outcomes {
        counts.events += outcome.events;
        counts.packet_hops += outcome.packet_hops;
    }
    let mut found = Vec::new();
    for (number, study) in studies.iter().enumerate() {
        let own: Vec<(&Item, &Outcome)> = items
            .iter()
            .zip(&outcomes)
            .filter(|(item, _)| item.study == number)
            .collect();
        found.push(together(study, &own));
    }
    Ok(found)
}

/// A step to be run.
#[derive(Clone, Copy, Debug)]
struct Item {
    study: usize,
    seed: u32,
    nodes: u32,
    step: u32,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
struct Outcome {
    events: u64,
    packet_hops: u64,
    /// Of each pair: ranks, payload a second.
    rates: Vec<(u32, u32, f64)>,
    /// Sum of what the pairs would get by sharing alone, bytes a second.
    fair_sum: f64,
    /// Half round trips.
    latencies_ps: Vec<f64>,
    parts: Vec<Parts>,
    flows_max: u32,
    /// By job: its last arrival, and that on one large switch alone.
    jobs_ps: Vec<[f64; 2]>,
    step: Option<FabricStep>,
    moves: u64,
    moves_a_hold: f64,
    probes_ps: u64,
    wires_ps: u64,
    early: u64,
    packets: u64,
}

/// A way's latency by formula, in ps.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    sum: f64,
    chip: f64,
    cable: f64,
    wire: f64,
    chips: u32,
    /// Chips and the cables between them: from port to port.
    inside: f64,
}

fn items(studies: &[Study]) -> Vec<Item> {
    let mut items = Vec::new();
    for (number, study) in studies.iter().enumerate() {
        for seed in 0..study.traffic.seeds {
            for nodes in &study.traffic.nodes {
                let steps = study.traffic.steps(*nodes, seed.into());
                items.extend(steps.into_iter().map(|step| Item {
                    study: number,
                    seed,
                    nodes: *nodes,
                    step,
                }));
            }
        }
    }
    items
}

/// On all cores; in the order of the items.
fn all(
    cores: usize,
    studies: &[Study],
    items: &[Item],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Outcome>, Failure> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Option<Result<Outcome, Failure>>>> =
        Mutex::new((0..items.len()).map(|_| None).collect());
    let work = || {
        // The fabric of a seed serves all its steps.
        let mut made: Option<(usize, u32, Built)> = None;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { break };
            if stop() {
                break;
            }
            let study = &studies[item.study];
            let fits = |m: &&(usize, u32, Built)| (m.0, m.1) == (item.study, item.seed);
            if made.as_ref().filter(fits).is_none() {
                made = Some((item.study, item.seed, study.build(item.seed.into())));
            }
            let Some((_, _, built)) = &made else { break };
            let outcome = step(study, built, item, cores / items.len());
            let failed = outcome.is_err();
            if let Ok(mut found) = found.lock() {
                found[number] = Some(outcome);
            }
            if failed {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..cores.min(items.len()) {
            scope.spawn(work);
        }
        work();
    });
    let found = found.into_inner().unwrap_or_default();
    let mut outcomes = Vec::new();
    for outcome in found {
        match outcome {
            Some(outcome) => outcomes.push(outcome?),
            // Another one failed, or was told to stop.
            None if stop() => {
                outcomes.push(Outcome::default());
            }
            None => {}
        }
    }
    Ok(outcomes)
}

fn step(study: &Study, built: &Built, item: &Item, threads: usize) -> Result<Outcome, Failure> {
    let step = study.sends(built, item.nodes, item.step, item.seed.into());
    let mut world = World::new(&built.spec, &step.flows).map_err(Failure::usage)?;
    let ways: Vec<Vec<(u32, usize)>> = step
        .flows
        .iter()
        .map(|f| world.path(f.from, f.to))
        .collect();
    cluster::parallel::run(&mut world, threads).map_err(|stuck| {
        Failure::check(format!(
            "{} with {} nodes, step {}: {stuck}",
            study.name, item.nodes, item.step
        ))
    })?;
    let mut outcome = Outcome {
        events: world.counters().events,
        packet_hops: world.counters().packet_hops,
        ..Outcome::default()
    };
    let fixed = matches!(built.spec.selection, Selection::Static);
    let flows_over = match fixed {
        true => flows_over(built, &ways),
        false => volumes_over(built, &step.flows, &world),
    };
    outcome.flows_max = flows_over.iter().copied().max().unwrap_or(0);
    match study.traffic.kind.counts() {
        Counts::Rate => {
            for (n, sends) in step.sends.iter().enumerate() {
                let info = world.flow(n);
                let took = info.last_ps - info.first_posted_ps;
                let rate = float(info.bytes_arrived) / seconds(took.max(1));
                outcome.rates.push((sends.from, sends.to, rate));
            }
            if fixed {
                let fluids = fluids(built, &step.flows, &ways);
                let shared = fair::finish(&fluids, &capacities(study, built));
                outcome.fair_sum = fluids.iter().zip(&shared).map(|(f, s)| f.bytes / s).sum();
            }
        }
        Counts::Latency => {
            for (n, flow) in step.flows.iter().enumerate() {
                let info = world.flow(n);
                let trips = u64::try_from(info.round_trips_ps).unwrap_or(u64::MAX);
                outcome
                    .latencies_ps
                    .push(float(trips) / (2.0 * float(flow.messages)));
                outcome.parts.push(parts(built, flow, &ways[n]));
            }
        }
        Counts::Time => {
            let fluids = fluids(built, &step.flows, &ways);
            let jobs = study.traffic.jobs.len().max(1);
            let capacities = capacities(study, built);
            let hosts_from = u32::try_from(built.spec.links.len() * 2).unwrap_or(u32::MAX);
            for job in 0..jobs {
                let job = u16::try_from(job).unwrap_or(FILES);
                let own = || (0..step.sends.len()).filter(|n| step.sends[*n].job == job);
                let last = own().map(|n| world.flow(n).last_ps).max().unwrap_or(0);
                let alone: Vec<Fluid> = own()
                    .map(|n| {
                        let mut fluid = fluids[n].clone();
                        // One large switch: what hosts share is left.
                        let own_links = [ways[n].first(), ways[n].last()];
                        let keeps = |part: &u32| {
                            let of = |end: &(u32, usize)| end.0 * 2 + u32::from(end.1 == 1);
                            *part >= hosts_from
                                || own_links.iter().flatten().any(|e| of(e) == *part)
                        };
                        fluid.over.retain(keeps);
                        fluid
                    })
                    .collect();
                let ideal = fair::finish(&alone, &capacities);
                let ideal = ideal.into_iter().fold(0.0, f64::max);
                outcome.jobs_ps.push([float(last), ideal * 1e12]);
            }
        }
    }
    avoided(built, &world, &mut outcome);
    for n in 0..step.flows.len() {
        let info = world.flow(n);
        outcome.early += info.early;
        outcome.packets += info.packets_arrived;
    }
    if item.seed == 0 && Some(&item.nodes) == study.traffic.nodes.last() {
        outcome.step = Some(drawn(built, item, &world, &flows_over));
    }
    Ok(outcome)
}

/// What congestion avoidance did and cost.
fn avoided(built: &Built, world: &World, outcome: &mut Outcome) {
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

fn between_chips(built: &Built, link: usize) -> bool {
    let ends = built.spec.links[link].ends;
    ends.iter().all(|e| matches!(e, Node::Switch(_)))
}

/// Flows on each direction of the cables between chips, by their ways.
fn flows_over(built: &Built, ways: &[Vec<(u32, usize)>]) -> Vec<u32> {
    let mut found = vec![0; built.spec.links.len() * 2];
    for (link, direction) in ways.iter().flatten() {
        let link = *link as usize;
        if between_chips(built, link) {
            found[link * 2 + direction] += 1;
        }
    }
    found
}

/// What went over each of them, in volumes of the first flow.
fn volumes_over(built: &Built, flows: &[FlowSpec], world: &World) -> Vec<u32> {
    let one = flows.first().map_or(1, |f| {
        u64::from(f.message_bytes.div_ceil(f.mtu_bytes)) * f.messages
    });
    let mut found = vec![0; built.spec.links.len() * 2];
    for (n, volume) in found.iter_mut().enumerate() {
        if between_chips(built, n / 2) {
            let packets = world.channel(n / 2, n % 2).packets;
            *volume = u32::try_from(packets.div_ceil(one.max(1))).unwrap_or(u32::MAX);
        }
    }
    found
}

/// The cables between chips in a step.
fn drawn(built: &Built, item: &Item, world: &World, flows_over: &[u32]) -> FabricStep {
    let took = world.now_ps().max(1);
    let chips = built.names.switches.iter().zip(&built.tiers);
    let mut found = FabricStep {
        step: item.step,
        nodes: item.nodes,
        took_ns: ns(took),
        chips: chips
            .map(|(name, tier)| FabricChip {
                name: name.clone(),
                tier: *tier,
            })
            .collect(),
        ..FabricStep::default()
    };
    let place = |node: Node| match node {
        Node::Switch(n) => n,
        Node::Host(_) => 0,
    };
    let mut used = vec![false; built.spec.switches.len()];
    for (n, _) in flows_over.iter().enumerate().filter(|(_, f)| **f > 0) {
        for end in built.spec.links[n / 2].ends {
            used[place(end) as usize] = true;
        }
    }
    for (link, spec) in built.spec.links.iter().enumerate() {
        if !between_chips(built, link) {
            continue;
        }
        for way in 0..2 {
            let stats = world.channel(link, way);
            let flows = flows_over[link * 2 + way];
            if flows == 0 {
                // Cables of chips that nobody uses are not idle but empty.
                let both = spec.ends.iter().all(|end| used[place(*end) as usize]);
                found.idle_cables += u32::from(both);
                continue;
            }
            let shared = flows as usize - 1;
            if found.shared_by.len() <= shared {
                found.shared_by.resize(shared + 1, 0);
            }
            found.shared_by[shared] += 1;
            found.cables.push(FabricCable {
                link: built.names.links[link].clone(),
                from: place(spec.ends[way]),
                to: place(spec.ends[1 - way]),
                flows,
                busy_share: float(stats.busy_ps) / float(took),
                credit_wait_share: float(stats.starved_ps) / float(took),
                wait_ns: ns(stats.waited_ps) / float(stats.packets.max(1)),
                held_others_share: float(stats.held_ps) / float(took),
            });
        }
    }
    let spoken = |(link, way): (u32, usize)| directed(&built.names.links[link as usize], way);
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
    // Those that say most.
    if found.cables.len() > CABLES_MAX {
        found.cables.sort_by_key(|c| std::cmp::Reverse(c.flows));
        found.cables.truncate(CABLES_MAX);
    }
    found
}

/// `leaf-3:14 to spine-2:4` of `leaf-3:14/spine-2:4`, or the other way.
fn directed(link: &str, way: usize) -> String {
    match (link.split_once('/'), way) {
        (Some((a, b)), 0) => format!("{a} to {b}"),
        (Some((a, b)), _) => format!("{b} to {a}"),
        (None, 0) => link.to_owned(),
        (None, _) => format!("{link}, backwards"),
    }
}

/// Volumes over the parts that they share: directions of links, then each host's bus both ways.
fn fluids(built: &Built, flows: &[FlowSpec], ways: &[Vec<(u32, usize)>]) -> Vec<Fluid> {
    let spec = &built.spec;
    let links = u32::try_from(spec.links.len()).unwrap_or(u32::MAX);
    flows
        .iter()
        .zip(ways)
        .map(|(flow, way)| {
            let bounds = formula::bounds(spec, flow, way);
            let least = formula::least(&bounds).map_or(1.0, |b| b.bytes_per_second);
            let mut over: Vec<u32> = way
                .iter()
                .map(|(link, direction)| link * 2 + u32::from(*direction == 1))
                .collect();
            for (host, half) in [(flow.from, 0), (flow.to, 1)] {
                if spec.hosts[host as usize].bus.is_some() {
                    over.push(links * 2 + host * 2 + half);
                }
            }
            Fluid {
                bytes: f64::from(flow.message_bytes) * float(flow.messages),
                alone: least,
                over,
            }
        })
        .collect()
}

/// Payload of full packets a second through each of those parts.
fn capacities(study: &Study, built: &Built) -> Vec<f64> {
    let spec = &built.spec;
    let (transport, payload) = (study.traffic.transport, study.traffic.mtu_bytes);
    let mut all = Vec::new();
    for link in &spec.links {
        let (speed, width) = spec.trained(link);
        let wire = spec.wire_bytes(transport, payload);
        let each = float(speed.byte_time(width).of(wire)) * 1e-12;
        all.extend([f64::from(payload) / each; 2]);
    }
    for host in &spec.hosts {
        let rate = host.bus.map_or(f64::INFINITY, |bus| {
            f64::from(payload) / seconds(bus.busy_ps(payload).max(1))
        });
        all.extend([rate; 2]);
    }
    all
}

/// A packet's latency on its way, part by part.
fn parts(built: &Built, flow: &FlowSpec, way: &[(u32, usize)]) -> Parts {
    let spec = &built.spec;
    let mut found = Parts {
        sum: float(formula::latency_ps(spec, flow, way)),
        ..Parts::default()
    };
    for (link, direction) in way {
        let link = &spec.links[*link as usize];
        found.cable += float(link.cable.delay_ps());
        if link.ends.iter().all(|e| matches!(e, Node::Switch(_))) {
            found.inside += float(link.cable.delay_ps());
        }
        if let Node::Switch(n) = link.ends[1 - direction] {
            found.chip += float(spec.switches[n as usize].latency_ps);
            found.inside += float(spec.switches[n as usize].latency_ps);
            found.chips += 1;
        }
    }
    let wire = spec.wire_bytes(flow.transport, flow.message_bytes);
    if let Some((link, _)) = way.last() {
        let (speed, width) = spec.trained(&spec.links[*link as usize]);
        found.wire = float(speed.byte_time(width).of(wire));
    }
    found
}

/// All steps, nodes and seeds of a study.
fn together(study: &Study, own: &[(&Item, &Outcome)]) -> FabricStudy {
    let traffic = &study.traffic;
    let mut found = FabricStudy {
        name: study.name.clone(),
        pattern: traffic.kind.name().to_owned(),
        counts: match traffic.kind.counts() {
            Counts::Rate => "rate",
            Counts::Latency => "latency",
            Counts::Time => "time",
        }
        .to_owned(),
        message_bytes: traffic.message_bytes,
        messages: traffic.messages,
        seeds: traffic.seeds,
        ..FabricStudy::default()
    };
    describe(study, &mut found);
    let rates = own.iter().flat_map(|(_, o)| o.rates.iter().map(|r| r.2));
    let peak = rates.fold(0.0, f64::max);
    found.peak_bits_per_second = bits(peak);
    for nodes in &traffic.nodes {
        let of: Vec<_> = own.iter().filter(|(i, _)| i.nodes == *nodes).collect();
        found.points.push(point(study, *nodes, &of, peak));
    }
    let means = || found.points.iter().filter_map(|p| Some(p.latency_ns?[1]));
    if let (Some(first), Some(last)) = (means().next(), means().next_back()) {
        found.latency_growth_ns = Some(last - first);
    }
    if peak > 0.0 {
        let full = found.points.iter().take_while(|p| {
            float(p.worst_bits_per_second) >= FULL_SHARE * float(found.peak_bits_per_second)
        });
        found.full_to_nodes = full.last().map(|p| p.nodes);
    }
    let last = traffic.nodes.last().copied().unwrap_or(0);
    let first_seed = || {
        own.iter()
            .filter(move |(i, _)| i.seed == 0 && i.nodes == last)
    };
    found.map = map(first_seed().flat_map(|(_, o)| &o.rates), last);
    let slowness = |o: &Outcome| {
        if o.rates.is_empty() {
            -o.step.as_ref().map_or(0.0, |s| s.took_ns)
        } else {
            o.rates.iter().map(|r| r.2).sum::<f64>() / float(o.rates.len() as u64)
        }
    };
    let worst = first_seed().min_by(|a, b| slowness(a.1).total_cmp(&slowness(b.1)));
    found.worst_step = worst.and_then(|(_, o)| o.step.clone());
    for (n, job) in traffic.jobs.iter().enumerate() {
        let [finish, lost, ideal] = times(study, own, |o| o.jobs_ps.get(n).copied());
        found.jobs.push(FabricJob {
            name: job.name.clone(),
            pattern: job.kind.name().to_owned(),
            nodes: job.nodes,
            finish_ns: finish.map(|ps| ps / 1e3),
            ideal_ns: ideal[0] / 1e3,
            lost_shares: lost,
        });
    }
    found
}

/// What the fabric is.
fn describe(study: &Study, found: &mut FabricStudy) {
    let built = study.build(0);
    let spec = &built.spec;
    let chips = spec.switches.len();
    found.hosts = u32::try_from(spec.hosts.len()).unwrap_or(u32::MAX);
    found.chip_ports = spec.switches.first().map_or(0, |s| s.ports.into());
    found.ports = match &study.layout {
        Layout::Made(made) => made.ports(),
        Layout::Named(..) => found.hosts,
    };
    (found.topology, found.routing) = match &study.layout {
        Layout::Made(made) => (
            format!(
                "{}: {} of {} ports used, {chips} chips of {} ports",
                made.words,
                made.hosts,
                made.ports(),
                spec.switches.first().map_or(0, |s| s.ports),
            ),
            match made.selection_name {
                "static" => made.engine.name().to_owned(),
                other => format!("{} and {other}", made.engine.name()),
            },
        ),
        Layout::Named(..) => (
            format!("{} hosts, {chips} chips", spec.hosts.len()),
            "minhop".to_owned(),
        ),
    };
    let last = study.traffic.nodes.last().copied().unwrap_or(2);
    let flows = study.sends(&built, last, 0, 0).flows;
    if let (Some(flow), Ok(world)) = (flows.first(), World::new(spec, &[])) {
        let way = world.path(flow.from, flow.to);
        let bounds = formula::bounds(spec, flow, &way);
        let held = bounds.iter().filter(|b| !matches!(b.limit, Limit::Post));
        let least = held
            .map(|b| b.bytes_per_second)
            .fold(f64::INFINITY, f64::min);
        if least.is_finite() {
            found.alone_bits_per_second = bits(least);
        }
    }
}

fn point(study: &Study, nodes: u32, of: &[&(&Item, &Outcome)], peak: f64) -> FabricNodes {
    let traffic = &study.traffic;
    let mut found = FabricNodes {
        nodes,
        steps: u32::try_from(traffic.steps(nodes, 0).len()).unwrap_or(u32::MAX),
        steps_all: traffic.all_steps(nodes),
        flows_on_a_cable_max: of.iter().map(|(_, o)| o.flows_max).max().unwrap_or(0),
        ..FabricNodes::default()
    };
    let sum = |part: fn(&Outcome) -> u64| of.iter().map(|(_, o)| part(o)).sum::<u64>();
    found.early_share = float(sum(|o| o.early)) / float(sum(|o| o.packets).max(1));
    if sum(|o| o.probes_ps) > 0 {
        found.moves = Some(sum(|o| o.moves));
        found.moves_a_hold_max = Some(of.iter().map(|(_, o)| o.moves_a_hold).fold(0.0, f64::max));
        let wires = sum(|o| o.wires_ps).max(1);
        found.probe_share = Some(float(sum(|o| o.probes_ps)) / float(wires));
    }
    let by_seed = || (0..traffic.seeds).map(|seed| of.iter().filter(move |(i, _)| i.seed == seed));
    match traffic.kind.counts() {
        Counts::Rate => {
            let rates = || of.iter().flat_map(|(_, o)| o.rates.iter().map(|r| r.2));
            let average = mean(rates());
            let (best, worst) = (
                rates().fold(0.0, f64::max),
                rates().fold(f64::INFINITY, f64::min),
            );
            found.best_bits_per_second = bits(best);
            found.worst_bits_per_second = bits(worst);
            found.average_bits_per_second = bits(average);
            found.average_share_of_peak = average / peak;
            found.worst_share_of_best = worst / best;
            found.seed_shares = by_seed()
                .map(|of| mean(of.flat_map(|(_, o)| o.rates.iter().map(|r| r.2))) / peak)
                .collect();
            found.share_interval = half_interval(&found.seed_shares);
            let fair: f64 = of.iter().map(|(_, o)| o.fair_sum).sum();
            // The peak has its way's latency in it, which fluids have not.
            let share = fair / float(rates().count().max(1) as u64) / peak;
            found.fair_share_of_peak = share.min(1.0);
        }
        Counts::Latency => {
            let all = || of.iter().flat_map(|(_, o)| o.latencies_ps.iter().copied());
            found.latency_ns = Some([
                all().fold(f64::INFINITY, f64::min) / 1e3,
                mean(all()) / 1e3,
                all().fold(0.0, f64::max) / 1e3,
            ]);
            let parts: Vec<Parts> = of.iter().flat_map(|(_, o)| o.parts.clone()).collect();
            let of_all = |part: fn(&Parts) -> f64| mean(parts.iter().map(part)) / 1e3;
            let chips = || parts.iter().map(|p| p.chips);
            let sum = of_all(|p| p.sum);
            let (chip, cable, wire) = (of_all(|p| p.chip), of_all(|p| p.cable), of_all(|p| p.wire));
            found.latency_formula = Some(FabricLatency {
                sum_ns: sum,
                host_ns: sum - chip - cable - wire,
                chip_ns: chip,
                cable_ns: cable,
                wire_ns: wire,
                chips: [chips().min().unwrap_or(0), chips().max().unwrap_or(0)],
                fabric_max_ns: parts.iter().map(|p| p.inside).fold(0.0, f64::max) / 1e3,
            });
        }
        Counts::Time => {
            let own: Vec<(&Item, &Outcome)> = of.iter().map(|(i, o)| (*i, *o)).collect();
            // All jobs of a step together: the last of them.
            let [finish, lost, ideal] = times(study, &own, |o| {
                let longest =
                    |end: usize| o.jobs_ps.iter().map(move |j| j[end]).fold(0.0, f64::max);
                Some([longest(0), longest(1)])
            });
            found.finish_ns = Some(finish.map(|ps| ps / 1e3));
            found.ideal_ns = Some(ideal[0] / 1e3);
            found.lost_shares = Some(lost);
        }
    }
    found
}

/// Median of the seeds and the worst: time, share of the ideal's speed that is lost, ideal time; in ps.
fn times(
    study: &Study,
    own: &[(&Item, &Outcome)],
    of: impl Fn(&Outcome) -> Option<[f64; 2]>,
) -> [[f64; 2]; 3] {
    let mut finish = Vec::new();
    let mut lost = Vec::new();
    let mut ideals = Vec::new();
    for seed in 0..study.traffic.seeds {
        let steps = own.iter().filter(|(i, _)| i.seed == seed);
        let (mut took, mut ideal) = (0.0, 0.0);
        for [step_took, step_ideal] in steps.filter_map(|(_, o)| of(o)) {
            took += step_took;
            ideal += step_ideal;
        }
        finish.push(took);
        lost.push(1.0 - ideal / f64::max(took, 1.0));
        ideals.push(ideal);
    }
    [finish, lost, ideals].map(|mut all| {
        all.sort_by(f64::total_cmp);
        [
            all.get((all.len().max(1) - 1) / 2).copied().unwrap_or(0.0),
            all.last().copied().unwrap_or(0.0),
        ]
    })
}

/// Cells of equal numbers of ranks, at most [`CELLS_MAX`] a side.
fn map<'a>(rates: impl Iterator<Item = &'a (u32, u32, f64)>, nodes: u32) -> Option<FabricMap> {
    let rates: Vec<_> = rates.collect();
    let low = |of: fn(&(u32, u32, f64)) -> u32| rates.iter().map(|r| of(r)).min();
    let (senders, receivers) = (low(|r| r.0)?, low(|r| r.1)?);
    let side = |from: u32, of: fn(&(u32, u32, f64)) -> u32| {
        let last = rates.iter().map(|r| of(r)).max().unwrap_or(from);
        last - from + 1
    };
    let (rows, columns) = (side(senders, |r| r.0), side(receivers, |r| r.1));
    let each = rows.max(columns).div_ceil(CELLS_MAX).max(1);
    let (rows, columns) = (
        rows.div_ceil(each) as usize,
        columns.div_ceil(each) as usize,
    );
    let mut sums = vec![vec![(0.0, 0_u64); columns]; rows];
    for (from, to, rate) in rates {
        let cell =
            &mut sums[((from - senders) / each) as usize][((to - receivers) / each) as usize];
        cell.0 += rate;
        cell.1 += 1;
    }
    let cells = |row: Vec<(f64, u64)>| {
        let each = |(sum, n): (f64, u64)| if n == 0 { 0 } else { bits(sum / float(n)) };
        row.into_iter().map(each).collect()
    };
    debug_assert!(nodes > 0);
    Some(FabricMap {
        ranks_of_a_cell: each,
        first_sender: senders,
        first_receiver: receivers,
        bits_per_second: sums.into_iter().map(cells).collect(),
    })
}

fn mean(all: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = all.fold((0.0, 0_u64), |(sum, n), v| (sum + v, n + 1));
    sum / float(n.max(1))
}

/// Half of the 95 % interval of the mean, by Student's t.
pub(super) fn half_interval(all: &[f64]) -> Option<f64> {
    let n = u32::try_from(all.len()).ok().filter(|n| *n > 1)?;
    let mean = mean(all.iter().copied());
    let squares: f64 = all.iter().map(|v| (v - mean).powi(2)).sum();
    let deviation = (squares / f64::from(n - 1)).sqrt();
    let t = T_95.get(n as usize - 2).copied().unwrap_or(1.98);
    Some(t * deviation / f64::from(n).sqrt())
}

fn seconds(ps: u64) -> f64 {
    float(ps) * 1e-12
}

/// Quantiles of Student's t for 97.5 %, of 1, 2, … degrees of freedom; 1.98 serves beyond.
const T_95: [f64; 30] = [
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13,
    2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04,
];
const CELLS_MAX: u32 = 64;
const CABLES_MAX: usize = 4_096;
const WAITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const FILE: &str = r#"title = "A small tree"
[host_kinds.hca]
speed = "ddr"
buffer = "72KiB"
[switch_kinds.chip]
speed = "ddr"
ports = 8
buffer = "72KiB"
latency = "200ns"
[cables.cx4]
kind = "copper"
length = "8m"
[topology]
kind = "clos"
host = "hca"
chip = "chip"
cable = "cx4"
hosts = 16
lids = "random"
ties = "random"
[traffic]
pattern = "rotate"
nodes = [4, 16]
message = "16KiB"
seeds = 3
[[cases]]
name = "rate"
[[cases]]
name = "latency"
set = { "traffic.pattern" = "rotate-latency", "traffic.message" = "1B" }
[[cases]]
name = "time"
set = { "traffic.pattern" = "all-to-all" }
"#;

    fn studies() -> Vec<Study> {
        cluster::FabricFile::parse(Path::new("x.toml"), FILE)
            .unwrap()
            .studies
    }

    fn run(cores: usize) -> Vec<FabricStudy> {
        run_on(cores, &studies(), &mut FabricRun::default(), &|| false).unwrap()
    }

    #[test]
    fn the_number_of_cores_changes_nothing() {
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn a_leaf_is_full_and_a_tree_is_not() {
        let found = run(2);
        let [small, large] = &found[0].points[..] else {
            panic!("{found:?}")
        };
        assert!(small.worst_share_of_best > 0.99, "{small:?}");
        assert!(
            large.average_share_of_peak < 0.9 && large.flows_on_a_cable_max > 1,
            "{large:?}"
        );
        assert_eq!(found[0].full_to_nodes, Some(4));
        assert_eq!(found[0].map.as_ref().unwrap().bits_per_second.len(), 8);
        // Half a round trip is what the formula says, but for acknowledgments; three chips are further than one.
        let latency = |n: usize| found[1].points[n].latency_ns.unwrap()[1];
        let formula = found[1].points[0].latency_formula.clone().unwrap();
        let off = latency(0) / formula.sum_ns - 1.0;
        assert!((-1e-6..0.06).contains(&off), "{} {formula:?}", latency(0));
        assert_eq!(formula.chips, [1, 1]);
        assert!(latency(1) > latency(0) + 300.0);
        let time = &found[2].points[1];
        assert!(time.lost_shares.unwrap()[0] > 0.0 && time.ideal_ns < time.finish_ns.map(|f| f[0]));
    }

    #[test]
    fn intervals_are_those_of_students_t() {
        assert_eq!(half_interval(&[1.0]), None);
        let half = half_interval(&[1.0, 2.0, 3.0]).unwrap();
        assert!((half - 4.30 / 3.0_f64.sqrt()).abs() < 1e-9);
    }
}
