//! Links that fail and come back, and what is done about it.
//!
//! **While a link is down** a port discards what is to leave by it (IBA volume 1, section 16.1.3.5: `PortXmitDiscards` of a port
//! that is not active), at the rate at which it would send. What was on the cable when it failed is lost whole. On a link with
//! credits the room of what was lost comes back, since flow-control packets carry totals (section 7.9.4).
//!
//! **Who learns of it.** Both ends at once: chips that choose among ports leave out their own that are down. Nobody else does,
//! until the subnet manager has swept ([`FaultRule::sweep_ps`]): then tables are those of the fabric without the
//! links that are down at that moment. Edge switches that probe find it out by themselves ([`crate::Dca`]).
//!
//! **Senders** go back to what is acknowledged when their timer runs out, and give up after [`FaultRule::retries`] in a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::route::{self, Engine, Manager, Routes};
use crate::selection::CLOCK_MAX_PS;
use crate::spec::{FabricSpec, Node, Place, Routing, SpecError, at};

/// A link that carries nothing for a while, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number.
    pub link: u32,
    /// When it fails.
    pub at_ps: u64,
    /// When it carries packets again, trained and active; `None`: not any more.
    pub until_ps: Option<u64>,
}

/// What ends do about packets that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// A sender that hears nothing for so long sends again; of Ethernet, [`crate::Ethernet::retry_ps`] instead.
    pub retry_ps: u64,
    /// Timers in a row, without anything new acknowledged, after which a sender gives up.
    pub retries: u32,
    /// From a change of a link until new tables are in all chips; `None`: tables stay.
    pub sweep_ps: Option<u64>,
}

impl Default for FaultRule {
    /// 4.096 us x 2^14 and seven times, as `ib_send_bw` sets its queue pairs (perftest: `--qp-timeout` 14, `retry_cnt` 7); tables
    /// stay.
    fn default() -> Self {
        Self {
            retry_ps: 4_096_000 << 14,
            retries: 7,
            sweep_ps: None,
        }
    }
}

/// Failures of a fabric's links, with the tables that follow from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// What ends do.
    pub rule: FaultRule,
    /// By link, in the order of time: from when, until when.
    outages: BTreeMap<u32, Vec<(u64, u64)>>,
    /// Nodes and ports at the ends of these links.
    ends: BTreeMap<u32, [(u32, u8); 2]>,
    /// Times at which a link or the tables change, in order.
    times: Vec<u64>,
    /// Tables from a time on.
    tables: Vec<(u64, Arc<Routes>)>,
    /// Sweeps of chips that choose: when they end.
    sweeps: Vec<u64>,
}

impl Faults {
    /// Checks failures against a fabric, and has its subnet manager find the tables of each sweep.
    ///
    /// # Errors
    /// [`SpecError`] naming the link, or what is wrong with the rule.
    pub fn new(spec: &FabricSpec, all: &[Fault], rule: FaultRule) -> Result<Self, SpecError> {
        let whole = |problem: String| Err(at(Place::Whole, problem));
        if all.len() > FAULTS_MAX {
            let found = all.len();
            return whole(format!("{found} failures; expected at most {FAULTS_MAX}"));
        }
        if rule.retry_ps == 0 || rule.retry_ps > CLOCK_MAX_PS {
            return whole("senders must wait before they try again, 1000 s at most".to_owned());
        }
        if rule.retries > RETRIES_MAX {
            return whole(format!(
                "{} tries; expected at most {RETRIES_MAX}",
                rule.retries
            ));
        }
        if rule.sweep_ps.is_some_and(|ps| ps > CLOCK_MAX_PS) {
            return whole("a sweep may take 1000 s at most".to_owned());
        }
        let mut found = Self {
            rule,
            outages: BTreeMap::new(),
            ends: BTreeMap::new(),
            times: Vec::new(),
            tables: Vec::new(),
            sweeps: Vec::new(),
        };
        for fault in all {
            let wrong = |problem: &str| Err(at(Place::Link(fault.link), problem.to_owned()));
            if spec.links.get(fault.link as usize).is_none() {
                return whole(format!("there is no link {}", fault.link));
            }
            let until = fault.until_ps.unwrap_or(u64::MAX);
            if fault.at_ps > CLOCK_MAX_PS || fault.until_ps.is_some_and(|ps| ps > CLOCK_MAX_PS) {
                return wrong("it may fail and come back within 1000 s");
            }
            if until <= fault.at_ps {
                return wrong("it comes back before it fails");
            }
            let own = found.outages.entry(fault.link).or_default();
            if own
                .iter()
                .any(|(from, to)| fault.at_ps <= *to && *from <= until)
            {
                return wrong("it fails while it is down already");
            }
            own.push((fault.at_ps, until));
            own.sort_unstable();
            found.times.push(fault.at_ps);
            found.times.extend(fault.until_ps);
        }
        found.note_ends(spec);
        found.sweep(spec)?;
        found.times.sort_unstable();
        found.times.dedup();
        Ok(found)
    }

    fn note_ends(&mut self, spec: &FabricSpec) {
        let mut ports = vec![0_u8; spec.hosts.len() + spec.switches.len()];
        for (n, link) in (0..).zip(&spec.links) {
            let ends = link.ends.map(|end| {
                let node = route::number(spec, end);
                let port = ports[node];
                ports[node] = port.saturating_add(1);
                (u32::try_from(node).unwrap_or(u32::MAX), port)
            });
            if self.outages.contains_key(&n) {
                self.ends.insert(n, ends);
            }
        }
    }

    /// Tables of each sweep. A sweep that would cut hosts off leaves those before.
    fn sweep(&mut self, spec: &FabricSpec) -> Result<(), SpecError> {
        let Some(takes) = self.rule.sweep_ps else {
            return Ok(());
        };
        let manager = match &spec.routing {
            Routing::MinHop => Manager::from(Engine::MinHop),
            Routing::Managed(manager) => manager.clone(),
            Routing::Table(_) => {
                let problem = "tables that were given cannot be found anew after a failure; expected a routing engine";
                return Err(at(Place::Whole, problem.to_owned()));
            }
        };
        let mut known: BTreeMap<Vec<u32>, Option<Arc<Routes>>> = BTreeMap::new();
        let mut ends: Vec<u64> = self.times.iter().map(|ps| ps + takes).collect();
        ends.sort_unstable();
        ends.dedup();
        for ps in ends {
            let between_chips = |link: &u32| {
                let ends = spec.links[*link as usize].ends;
                ends.iter().all(|end| matches!(end, Node::Switch(_)))
            };
            let down: Vec<u32> = self.down_at(ps).filter(between_chips).collect();
            let routes = known
                .entry(down.clone())
                .or_insert_with(|| without(spec, &manager, &down));
            if let Some(routes) = routes {
                self.tables.push((ps, routes.clone()));
            }
            self.sweeps.push(ps);
            self.times.push(ps);
        }
        Ok(())
    }

    /// Links that are down at a time, in the order of their numbers.
    pub fn down_at(&self, ps: u64) -> impl Iterator<Item = u32> {
        let links = self.outages.keys().copied();
        links.filter(move |link| self.is_down(*link, ps))
    }

    /// A link is down at a time.
    pub fn is_down(&self, link: u32, ps: u64) -> bool {
        self.is_cut(link, ps, ps + 1)
    }

    /// A link is down at some time from `from_ps` on and before `to_ps`.
    pub(crate) fn is_cut(&self, link: u32, from_ps: u64, to_ps: u64) -> bool {
        let all = self.outages.get(&link);
        all.is_some_and(|all| {
            all.iter()
                .any(|(at, until)| *at < to_ps && from_ps < *until)
        })
    }

    /// Nodes and ports of links that are down at a time.
    pub(crate) fn ports_down_at(&self, ps: u64) -> Vec<(u32, u8)> {
        let links = self.down_at(ps);
        links.flat_map(|link| self.ends[&link]).collect()
    }

    /// Links that fail at some time.
    pub fn links(&self) -> impl Iterator<Item = u32> {
        self.outages.keys().copied()
    }

    /// From when and until when a link is down, in the order of time; `u64::MAX`: it stays down.
    pub fn outages(&self, link: u32) -> &[(u64, u64)] {
        self.outages.get(&link).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn times(&self) -> &[u64] {
        &self.times
    }

    pub(crate) fn tables(&self) -> &[(u64, Arc<Routes>)] {
        &self.tables
    }

    /// A sweep ends at a time.
    pub(crate) fn sweeps_at(&self, ps: u64) -> bool {
        self.sweeps.binary_search(&ps).is_ok()
    }
}

/// Tables of a fabric without some links, in its own numbers of ports. Engines for a shape that is no more leave it to fewest
/// hops, as OpenSM does; `None`: some hosts have no way to each other.
fn without(spec: &FabricSpec, manager: &Manager, down: &[u32]) -> Option<Arc<Routes>> {
    let mut left = spec.clone();
    left.faults = None;
    let mut ports = vec![0_u8; spec.hosts.len() + spec.switches.len()];
    let mut own: Vec<Vec<u8>> = vec![Vec::new(); ports.len()];
    left.links.clear();
    for (n, link) in (0..).zip(&spec.links) {
        let gone = down.contains(&n);
        for end in link.ends {
            let node = route::number(spec, end);
            if !gone {
                own[node].push(ports[node]);
            }
            ports[node] = ports[node].saturating_add(1);
        }
        if !gone {
            left.links.push(*link);
        }
    }
    let mut found = None;
    for manager in [manager.clone(), Engine::MinHop.into()] {
        left.routing = Routing::Managed(manager);
        found = found.or_else(|| Routes::new(&left).ok());
    }
    found.map(|routes| Arc::new(routes.with_ports(&own[spec.hosts.len()..])))
}

const FAULTS_MAX: usize = 64;
const RETRIES_MAX: u32 = 1_000;
