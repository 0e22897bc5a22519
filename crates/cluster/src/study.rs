//! Patterns of many hosts: every step on all cores, packet by packet or as fluids, then rates, latencies and times by number
//! of nodes.
//!
//! A step stands for itself, so steps run on whatever core is free and what they found is put together in the
//! order of the file: the number of cores changes nothing but the time.

mod flows;
mod made;
pub(crate) mod observed;
mod packets;
mod picture;
mod words;

use crate::pattern::Counts;
use crate::{Built, Study};
use fabric::{FlowSpec, Node, formula};
use run::model::{
    FULL_SHARE, FabricJob, FabricLatency, FabricMap, FabricNodes, FabricRecovery, FabricReplay,
    FabricRun, FabricStep, FabricStudy,
};

use crate::numbers::{bits, float, ns};
use fault::Failure;
use measure::Stop;

/// Runs all studies; counts of the engine go to `counts`.
pub(crate) fn run(
    studies: &[Study],
    counts: &mut FabricRun,
    stop: &Stop,
) -> Result<Vec<FabricStudy>, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    run_on(cores, studies, counts, &|| stop.is_stopped())
}

fn run_on(
    cores: usize,
    studies: &[Study],
    counts: &mut FabricRun,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<FabricStudy>, Failure> {
    let items = items(studies);
    let outcomes = made::all(cores, studies, &items, stop)?;
    for outcome in &outcomes {
        counts.events += outcome.events;
        counts.packet_hops += outcome.packet_hops;
        counts.fluid_flows += outcome.fluid_flows;
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
    /// Each pair's rate is kept for the map.
    mapped: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
struct Outcome {
    events: u64,
    packet_hops: u64,
    /// Flows whose rates were found without packets, as the step itself.
    fluid_flows: u64,
    rates: Rates,
    /// Of each pair: ranks, payload a second.
    pairs: Vec<(u32, u32, f64)>,
    /// Sum of what the pairs would get by sharing alone, bytes a second.
    fair_sum: f64,
    /// Half round trips.
    latencies_ps: Vec<f64>,
    parts: Vec<Parts>,
    flows_max: u32,
    /// By job: its last arrival, and that on one large switch alone.
    jobs_ps: Vec<[f64; 2]>,
    /// Until the last arrival.
    took_ps: f64,
    step: Option<FabricStep>,
    /// What the fabric is, of a study's first item.
    described: Option<FabricStudy>,
    moves: u64,
    moves_a_hold: f64,
    probes_ps: u64,
    wires_ps: u64,
    early: u64,
    packets: u64,
    /// Packets lost by link that fails, in their order.
    cut: Vec<u64>,
    recovery: Option<FabricRecovery>,
    /// Of a trace's messages: how many times as long as alone.
    slowdowns: Vec<f64>,
}

/// Payload a second of a step's pairs.
#[derive(Clone, Copy, Debug)]
struct Rates {
    sum: f64,
    count: u64,
    best: f64,
    worst: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            sum: 0.0,
            count: 0,
            best: 0.0,
            worst: f64::INFINITY,
        }
    }
}

impl Rates {
    fn add(&mut self, rate: f64) {
        self.sum += rate;
        self.count += 1;
        self.best = self.best.max(rate);
        self.worst = self.worst.min(rate);
    }

    fn mean(&self) -> f64 {
        self.sum / float(self.count.max(1))
    }

    fn all<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        all.fold(Self::default(), |a, b| Self {
            sum: a.sum + b.sum,
            count: a.count + b.count,
            best: a.best.max(b.best),
            worst: a.worst.min(b.worst),
        })
    }
}

impl Outcome {
    /// A step of less is worse: the mean rate, or how soon it ended.
    fn goodness(&self) -> f64 {
        match self.rates.count {
            0 => -self.took_ps,
            _ => self.rates.mean(),
        }
    }
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
        let last = study.traffic.nodes.last();
        for seed in 0..study.traffic.seeds {
            for nodes in &study.traffic.nodes {
                let steps = study.traffic.steps(*nodes, seed.into());
                // A map of so many pairs shows no more with all of them.
                let every = (steps.len() * *nodes as usize).div_ceil(PAIRS_MAX).max(1);
                let drawn = seed == 0 && Some(nodes) == last;
                items.extend((0..).zip(steps).map(|(n, step): (usize, u32)| Item {
                    study: number,
                    seed,
                    nodes: *nodes,
                    step,
                    mapped: drawn && n.is_multiple_of(every),
                }));
            }
        }
    }
    items
}

/// A packet's latency on its way, part by part.
fn formula_parts(built: &Built, flow: &FlowSpec, way: &[(u32, usize)]) -> Parts {
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
    let described = own.iter().find_map(|(_, o)| o.described.clone());
    let mut found = FabricStudy {
        name: study.name.clone(),
        tier: study.tier.name().to_owned(),
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
        ..described.unwrap_or_default()
    };
    let peak = Rates::all(own.iter().map(|(_, o)| &o.rates)).best;
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
    found.map = map(first_seed().flat_map(|(_, o)| &o.pairs), last);
    let worst = first_seed().min_by(|a, b| a.1.goodness().total_cmp(&b.1.goodness()));
    found.worst_step = worst.and_then(|(_, o)| o.step.clone());
    recovered(&mut found, own);
    found.replay = replayed(own);
    found.trust = words::trust(study, &found);
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

/// How much longer a trace's messages took than alone.
fn replayed(own: &[(&Item, &Outcome)]) -> Option<FabricReplay> {
    let all = own.iter().flat_map(|(_, o)| &o.slowdowns);
    let mut all: Vec<f64> = all.copied().collect();
    all.sort_by(f64::total_cmp);
    let at = |share: usize| all.get((all.len() * share / 100).min(all.len().max(1) - 1));
    Some(FabricReplay {
        messages: all.len() as u64,
        slowdown_median: *at(50)?,
        slowdown_p99: *at(99)?,
        slowdown_max: *all.last()?,
    })
}

/// What links lost that failed, and what came of it.
fn recovered(found: &mut FabricStudy, own: &[(&Item, &Outcome)]) {
    for (n, fault) in found.faults.iter_mut().enumerate() {
        fault.lost_packets = own.iter().filter_map(|(_, o)| o.cut.get(n)).sum();
    }
    let all = own.iter().filter_map(|(_, o)| o.recovery.as_ref());
    found.recovery = all.cloned().reduce(|a, b| FabricRecovery {
        flows: a.flows + b.flows,
        timeouts: a.timeouts + b.timeouts,
        resent_packets: a.resent_packets + b.resent_packets,
        broken_flows: a.broken_flows + b.broken_flows,
        silence_max_ns: a.silence_max_ns.max(b.silence_max_ns),
        moved_flows: a.moved_flows.map(|n| n + b.moved_flows.unwrap_or(0)),
        moved_after_max_ns: [a.moved_after_max_ns, b.moved_after_max_ns]
            .into_iter()
            .flatten()
            .reduce(f64::max),
    });
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
            let rates = Rates::all(of.iter().map(|(_, o)| &o.rates));
            let average = rates.mean();
            found.best_bits_per_second = bits(rates.best);
            found.worst_bits_per_second = bits(rates.worst);
            found.average_bits_per_second = bits(average);
            found.average_share_of_peak = average / peak;
            found.worst_share_of_best = rates.worst / rates.best;
            found.seed_shares = by_seed()
                .map(|of| Rates::all(of.map(|(_, o)| &o.rates)).mean() / peak)
                .collect();
            found.share_interval = half_interval(&found.seed_shares);
            let fair: f64 = of.iter().map(|(_, o)| o.fair_sum).sum();
            // The peak has its way's latency in it, which fluids have not.
            let share = fair / float(rates.count.max(1)) / peak;
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

/// Mean; 0 of none.
fn mean(all: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = all.fold((0.0, 0_u64), |(sum, n), v| (sum + v, n + 1));
    sum / float(n.max(1))
}

/// Half of the 95 % interval of the mean, by Student's t.
pub(crate) fn half_interval(all: &[f64]) -> Option<f64> {
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
/// Pairs of a map, about.
const PAIRS_MAX: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const FILE: &str = concat!(
        include_str!("../tests/tree.toml"),
        r#"lids = "random"
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
"#
    );

    fn studies() -> Vec<Study> {
        crate::FabricFile::parse(Path::new("x.toml"), FILE)
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
    fn flows_are_near_packets_and_their_own_fair_shares() {
        let estimated: Vec<Study> = studies()
            .into_iter()
            .map(|s| Study {
                tier: crate::Tier::Flows,
                ..s
            })
            .collect();
        let estimate = |cores| {
            let mut counts = FabricRun::default();
            let found = run_on(cores, &estimated, &mut counts, &|| false).unwrap();
            assert!(counts.packet_hops == 0 && counts.fluid_flows > 0);
            found
        };
        let (flows, packets) = (estimate(2), run(2));
        assert_eq!(estimate(1), estimate(3));
        for (f, p) in flows[0].points.iter().zip(&packets[0].points) {
            let share = f.average_share_of_peak;
            assert!(
                (share / p.average_share_of_peak - 1.0).abs() < 0.2,
                "{f:?} {p:?}"
            );
            assert!(
                (share / p.fair_share_of_peak - 1.0).abs() < 0.05,
                "{f:?} {p:?}"
            );
            assert_eq!(f.flows_on_a_cable_max, p.flows_on_a_cable_max);
        }
        for (f, p) in flows[1].points.iter().zip(&packets[1].points) {
            assert_eq!(f.latency_formula, p.latency_formula);
        }
        for (f, p) in flows[2].points.iter().zip(&packets[2].points) {
            let [f, p] = [f, p].map(|point| point.finish_ns.unwrap()[0]);
            assert!((f / p - 1.0).abs() < 0.2, "{f} {p}");
        }
        assert!(
            flows[0].trust.contains("as fluids") && packets[0].trust.contains("Packet by packet")
        );
        assert!(flows[0].worst_step.is_some() && flows[0].map.is_some());
    }

    #[test]
    fn intervals_are_those_of_students_t() {
        assert_eq!(half_interval(&[1.0]), None);
        let half = half_interval(&[1.0, 2.0, 3.0]).unwrap();
        assert!((half - 4.30 / 3.0_f64.sqrt()).abs() < 1e-9);
    }
}
