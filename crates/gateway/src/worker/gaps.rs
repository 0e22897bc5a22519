//! Gap control of halves that a side wants paced just under what their path takes, one by one or together.
//!
//! Halves of one group have one control: it is given the sums of what they deliver, and what it finds is shared out as
//! ceilings (`SO_MAX_PACING_RATE`). Where the rate is given, that is shared out. Halves of other sides cost nothing.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::os::fd::AsFd;

use sys::clock;
use tcp::gap_control::GapControl;
use tcp::gap_sums::Sums;
use units::{Duration, Instant, Rate};

use super::{State, Worker};
use crate::config::{Pacing, Zone};
use crate::relay::Side;

/// Which halves share a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    /// Of one connection alone.
    One(usize),
    /// Those of all connections from one host to another.
    Between(IpAddr, IpAddr),
}

#[derive(Debug)]
struct Group {
    /// Where no rate is given.
    control: Option<GapControl>,
    given: Option<Rate>,
    sums: Sums<usize>,
    /// By their connections' slots: of each it has one half.
    members: BTreeMap<usize, Side>,
    due: Instant,
}

/// All groups of a worker.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    groups: HashMap<(Zone, Which), Group>,
    due: Option<Instant>,
    looked: Instant,
    /// Halves in groups that find their rate.
    controlled: usize,
}

impl Gaps {
    /// How long from now nothing is to be done.
    pub(super) fn patience(&self, most: Duration) -> Duration {
        match self.due {
            None => most,
            Some(due) => due.saturating_since(clock::monotonic()).min(most),
        }
    }

    /// Some group has changed.
    fn change(&mut self, now: Instant) {
        let at = now.max(self.looked + APART);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

impl Worker {
    /// A connection stands: its halves join their groups.
    pub(super) fn join_gaps(&mut self, slot: usize, now: Instant) {
        for (key, side) in self.groups_of(slot) {
            let config = self.config.zone(key.0);
            let given = match config.pacing {
                Some(Pacing::Rate(rate)) => Some(rate),
                Some(Pacing::Even) | None => None,
            };
            if given.is_none() {
                if self.gaps.controlled >= CONTROLLED {
                    continue;
                }
                self.gaps.controlled += 1;
            }
            let group = self.gaps.groups.entry(key).or_insert_with(|| Group {
                control: given.is_none().then(|| GapControl::new(now.as_ns())),
                given,
                sums: Sums::new(now),
                members: BTreeMap::new(),
                due: now,
            });
            group.members.insert(slot, side);
            group.due = now;
            self.gaps.change(now);
        }
    }

    /// It is over: what it had is the others'.
    pub(super) fn leave_gaps(&mut self, slot: usize, now: Instant) {
        if self.gaps.groups.is_empty() {
            return;
        }
        for (key, _) in self.groups_of(slot) {
            if let Some(group) = self.gaps.groups.get_mut(&key) {
                let was_there = group.members.remove(&slot).is_some();
                if was_there && group.control.is_some() {
                    self.gaps.controlled -= 1;
                }
                group.due = now;
                if group.members.is_empty() {
                    self.gaps.groups.remove(&key);
                }
                self.gaps.change(now);
            }
        }
    }

    /// Halves whose pace is found, or shared with others.
    pub(super) fn paced_sides(&self, slot: usize) -> impl Iterator<Item = Side> {
        self.groups_of(slot).into_iter().map(|(_, side)| side)
    }

    fn groups_of(&self, slot: usize) -> Vec<((Zone, Which), Side)> {
        let State::Carrying(carrying) = &self.slots[slot].state else {
            return Vec::new();
        };
        let mut groups = Vec::new();
        for side in Side::BOTH {
            let zone = carrying.zone_of(side);
            let config = self.config.zone(zone);
            let (client, server) = (carrying.ends.client.ip(), carrying.ends.server.ip());
            match (config.harmonize, config.pacing) {
                (true, _) => groups.push(((zone, Which::Between(client, server)), side)),
                (false, Some(Pacing::Even)) => groups.push(((zone, Which::One(slot)), side)),
                (false, _) => {}
            }
        }
        groups
    }

    /// Gives each group that is due its turn.
    pub(super) fn look_at_gaps(&mut self) {
        let Some(due) = self.gaps.due else {
            return;
        };
        let now = clock::monotonic();
        if now < due {
            return;
        }
        self.gaps.looked = now;
        let slots = &self.slots;
        let socket = |slot: usize, side: Side| match &slots[slot].state {
            State::Carrying(carrying) => Some(carrying.sockets[side.index()].as_fd()),
            _ => None,
        };
        let least = EACH.saturating_mul(self.gaps.controlled as u64);
        let mut next: Option<Instant> = None;
        for group in self.gaps.groups.values_mut() {
            if group.due <= now {
                let members = group.members.iter();
                let infos: Vec<_> = members
                    .filter_map(|(slot, side)| {
                        let info = sys::tcp::tcp_info(socket(*slot, *side)?);
                        Some((*slot, info.ok()?))
                    })
                    .collect();
                let reading = group.sums.reading(now, &infos);
                let rate = match &mut group.control {
                    Some(control) => control.on_reading(now, &reading),
                    None => group.given,
                };
                if let Some(rate) = rate {
                    for (slot, rate) in group.sums.shared_out(rate) {
                        let side = group.members.get(&slot);
                        if let Some(fd) = side.and_then(|side| socket(slot, *side)) {
                            let _ = sys::tcp::set_max_pacing(fd, rate);
                        }
                    }
                }
                let interval = match &group.control {
                    Some(control) => control.interval().max(least),
                    None => SHARES,
                };
                group.due = now + interval;
            }
            next = Some(next.map_or(group.due, |n| n.min(group.due)));
        }
        self.gaps.due = next.map(|due| due.max(now + APART));
    }
}

/// How often a given rate is shared out anew.
const SHARES: Duration = Duration::from_ms(100);
/// Each look goes over all groups.
const APART: Duration = Duration::from_ms(1);
/// Between two looks for each half of all, so that they leave the worker its time: one takes 1 to 2 us.
const EACH: Duration = Duration::from_us(5);
/// Halves whose rate is found; those beyond go as their congestion control has them. So many are looked at often enough:
/// what comes more than 4 ms late is taken for a path that stood still.
const CONTROLLED: usize = 512;
