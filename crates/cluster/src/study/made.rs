//! Fabrics with their routes, made once for all steps of a seed, and the cores that run the steps.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::pattern::Counts;
use crate::{Built, Study, Tier};
use fabric::FlowSpec;
use fabric::fluid::{Alone, Fluid, Volume};
use fabric::route::{Graph, Routes};

use super::{Item, Outcome, float, flows, packets, words};
use fault::Failure;

/// The fabric of a seed.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) built: Built,
    pub(super) graph: Graph,
    pub(super) routes: Routes,
    /// By channel: whether it joins chips.
    pub(super) inner: Vec<bool>,
}

impl Made {
    pub(super) fn new(study: &Study, seed: u32) -> Result<Self, Failure> {
        let built = study.build(seed.into());
        let links = built.spec.links.iter();
        let inner =
            links.flat_map(|l| [l.ends.iter().all(|e| matches!(e, fabric::Node::Switch(_))); 2]);
        Ok(Self {
            graph: Graph::new(&built.spec),
            routes: Routes::new(&built.spec).map_err(Failure::usage)?,
            inner: inner.collect(),
            built,
        })
    }

    /// Way of the tables: link and direction of each hop.
    pub(super) fn way(&self, from: u32, to: u32) -> Vec<(u32, usize)> {
        let mut found = Vec::new();
        self.routes.way(&self.graph, from, to, &mut found);
        found.iter().map(|c| (c / 2, *c as usize % 2)).collect()
    }
}

/// What shares the same fabric as fluids do.
#[derive(Debug)]
pub(super) struct Fluids<'a> {
    made: &'a Made,
    /// Over the tables' ways.
    pub(super) shared: Fluid<'a>,
    /// At one switch as large as the fabric, for what counts time.
    ideal: Option<Fluid<'a>>,
    pub(super) alone: Alone,
}

impl<'a> Fluids<'a> {
    fn new(study: &Study, made: &'a Made) -> Self {
        let (spec, traffic) = (&made.built.spec, &study.traffic);
        let shared = Fluid::new(
            spec,
            &made.graph,
            &made.routes,
            traffic.transport,
            traffic.mtu_bytes,
        );
        Self {
            made,
            ideal: (traffic.kind.counts() == Counts::Time).then(|| shared.at_one_switch()),
            shared,
            alone: Alone::new(spec),
        }
    }

    /// Flows as volumes, each with what it gets alone.
    pub(super) fn volumes(&mut self, flows: &[FlowSpec]) -> Vec<Volume> {
        let mut way = Vec::new();
        flows
            .iter()
            .map(|flow| {
                way.clear();
                let made = self.made;
                made.routes.way(&made.graph, flow.from, flow.to, &mut way);
                Volume {
                    from: flow.from,
                    to: flow.to,
                    bytes: f64::from(flow.message_bytes) * float(flow.messages),
                    alone: self.alone.of(&made.built.spec, flow, &way).bytes_per_second,
                }
            })
            .collect()
    }

    /// What a long message between a flow's hosts gets alone, payload a second.
    pub(super) fn rate(&mut self, flow: &FlowSpec) -> f64 {
        let long = FlowSpec {
            message_bytes: LONG_BYTES,
            ..*flow
        };
        let mut way = Vec::new();
        let made = self.made;
        made.routes.way(&made.graph, flow.from, flow.to, &mut way);
        let found = self.alone.of(&made.built.spec, &long, &way);
        found.bytes_per_second.max(1.0)
    }

    /// When the last of them has arrived at one switch alone, in seconds.
    pub(super) fn ideal_s(&mut self, volumes: &[Volume]) -> f64 {
        let Some(ideal) = &mut self.ideal else {
            return 0.0;
        };
        ideal.finish(volumes).into_iter().fold(0.0, f64::max)
    }
}

/// By study and seed, for as long as a core works on it.
type Kept = Mutex<BTreeMap<(usize, u32), Weak<OnceLock<Result<Made, Failure>>>>>;

/// All items on so many cores; what came of them in their order.
pub(super) fn all(
    cores: usize,
    studies: &[Study],
    items: &[Item],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Outcome>, Failure> {
    let next = AtomicUsize::new(0);
    let kept = Kept::default();
    let found: Mutex<Vec<Option<Result<Outcome, Failure>>>> =
        Mutex::new((0..items.len()).map(|_| None).collect());
    let put = |number: usize, outcome: Result<Outcome, Failure>| {
        if let Ok(mut found) = found.lock() {
            found[number] = Some(outcome);
        }
    };
    let take = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let item = items.get(number).filter(|_| !stop());
        item.map(|item| (number, item))
    };
    let work = || {
        let mut pending = take();
        while let Some((number, first)) = pending.take() {
            let key = (first.study, first.seed);
            let study = &studies[first.study];
            let place = place(&kept, key);
            let made = match place.get_or_init(|| Made::new(study, first.seed)) {
                Ok(made) => made,
                Err(error) => {
                    put(number, Err(Failure::usage(format!("{error}"))));
                    break;
                }
            };
            let mut fluids = Fluids::new(study, made);
            let mut worst = f64::INFINITY;
            let mut now = Some((number, first));
            while let Some((number, item)) = now {
                let is_first = number == 0 || items[number - 1].study != item.study;
                let threads = cores / items.len();
                let outcome = step(study, &mut fluids, item, threads, is_first, &mut worst);
                let failed = outcome.is_err();
                put(number, outcome);
                if failed {
                    return;
                }
                pending = take();
                now = pending.filter(|(_, item)| (item.study, item.seed) == key);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..cores.min(items.len()) {
            // The others do the work of one that cannot start.
            let _ = sys::threads::scoped(scope, "gp-study", work);
        }
        work();
    });
    let found = found.into_inner().unwrap_or_default();
    let mut outcomes = Vec::new();
    for outcome in found {
        match outcome {
            Some(outcome) => outcomes.push(outcome?),
            // Another one failed, or was told to stop.
            None if stop() => outcomes.push(Outcome::default()),
            None => {}
        }
    }
    Ok(outcomes)
}

fn place(kept: &Kept, key: (usize, u32)) -> Arc<OnceLock<Result<Made, Failure>>> {
    let Ok(mut kept) = kept.lock() else {
        return Arc::default();
    };
    kept.retain(|_, made| made.strong_count() > 0);
    if let Some(made) = kept.get(&key).and_then(Weak::upgrade) {
        return made;
    }
    let made = Arc::default();
    kept.insert(key, Arc::downgrade(&made));
    made
}

/// A step, with a picture of its cables where it is the worst so far of those that may be shown.
fn step(
    study: &Study,
    fluids: &mut Fluids<'_>,
    item: &Item,
    threads: usize,
    first: bool,
    worst: &mut f64,
) -> Result<Outcome, Failure> {
    let made = fluids.made;
    let sends = study.sends(&made.built, item.nodes, item.step, item.seed.into());
    let shown = item.seed == 0 && Some(&item.nodes) == study.traffic.nodes.last();
    let mut outcome = match study.tier {
        Tier::Packets => packets::step(study, made, fluids, item, &sends, threads, shown)?,
        Tier::Flows => flows::step(study, made, fluids, item, &sends, shown.then_some(worst))?,
    };
    if first {
        outcome.described = Some(words::described(study, made));
    }
    Ok(outcome)
}

/// A message so long that what it costs beside its bytes is nothing.
const LONG_BYTES: u32 = 64 << 20;
