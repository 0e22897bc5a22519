//! Folded Clos networks of any shape: parallel ports generalised fat trees.
//!
//! A level has `down` switches or hosts below each switch, and each of those has `up` switches above it,
//! joined by `cables` each. (E. Zahavi, "Fat-tree routing and node ordering", JPDC 2012; S. Ohring et al., "On
//! generalized fat trees", IPPS 1995.) A k-ary n-tree is one of n equal levels (F. Petrini, M. Vanneschi, IPPS 1997).

use crate::route::Engine;
use crate::spec::{Routing, SWITCHES_MAX, SpecError};
use crate::topology::{Builder, managed, whole};

/// One level of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Parts below each of its switches.
    pub down: u32,
    /// Its switches above each part below; 1 on the first level, where the parts are hosts.
    pub up: u32,
    /// Cables from each part below to each switch of this level above it; 1 on the first level.
    pub cables: u32,
}

/// A folded Clos network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatTree {
    /// From the hosts up, 1 to 4 of them.
    pub levels: Vec<Level>,
}

impl FatTree {
    /// Of chips of one radix, all ports used: two levels of r^2/2 hosts, three of r^3/4, four of r^4/8.
    pub fn full(levels: u32, radix: u8) -> Self {
        let half = u32::from(radix) / 2;
        let level = |n: u32| Level {
            down: if n + 1 == levels { half * 2 } else { half },
            up: if n == 0 { 1 } else { half },
            cables: 1,
        };
        Self {
            levels: (0..levels).map(level).collect(),
        }
    }

    /// Two levels: leaves of so many hosts, each joined to each spine.
    pub fn two(leaves: u32, hosts: u32, spines: u32, cables: u32) -> Self {
        let first = Level {
            down: hosts,
            up: 1,
            cables: 1,
        };
        let top = Level {
            down: leaves,
            up: spines,
            cables,
        };
        Self {
            levels: vec![first, top],
        }
    }

    /// k-ary n-tree: k^n hosts and n levels of k^(n-1) switches; the top has half its ports free.
    pub fn k_ary_n_tree(k: u32, n: u32) -> Self {
        let level = |level: u32| Level {
            down: k,
            up: if level == 0 { 1 } else { k },
            cables: 1,
        };
        Self {
            levels: (0..n).map(level).collect(),
        }
    }

    /// A smaller tree of the same chips for at least so many hosts: branches that are not needed are left out
    /// from the top, and their cables go to those that are there. Three levels of 24-port chips for 1152 hosts
    /// have 8 pods whose middle chips have three cables to each of 4 spines.
    ///
    /// `None` when it does not divide: with fewer branches some of the top's ports would stay free.
    pub fn trimmed(&self, hosts: u32) -> Option<Self> {
        let mut levels = self.levels.clone();
        let below: u32 = levels
            .iter()
            .rev()
            .skip(1)
            .map(|l| l.down)
            .fold(1, u32::saturating_mul);
        let top = levels.last_mut()?;
        let branches = hosts.div_ceil(below.max(1)).max(1);
        if branches > top.down || !top.down.is_multiple_of(branches) {
            return None;
        }
        let times = top.down / branches;
        if !top.up.is_multiple_of(times) {
            return None;
        }
        top.down = branches;
        top.up /= times;
        top.cables = top.cables.checked_mul(times)?;
        Some(Self { levels })
    }

    /// Ports for hosts; saturates.
    pub fn hosts(&self) -> u32 {
        let downs = self.levels.iter().map(|level| level.down);
        downs.fold(1, u32::saturating_mul)
    }
}

/// Adds all levels, numbered from below.
pub(super) fn build(builder: &mut Builder<'_>, tree: &FatTree) -> Result<(), SpecError> {
    let levels = &tree.levels;
    if levels.is_empty() || levels.len() > LEVELS_MAX {
        let found = levels.len();
        return whole(format!("{found} levels; expected 1 to {LEVELS_MAX}"));
    }
    for (n, level) in (1..).zip(levels) {
        if level.down == 0 || level.up == 0 || level.cables == 0 {
            return whole(format!("level {n} has nothing below, above or between"));
        }
        if n == 1 && (level.up, level.cables) != (1, 1) {
            return whole("level 1: a host has one port");
        }
    }
    // Of each level: how many, and the number of the first.
    let mut first = Vec::new();
    let mut total = 0_u64;
    for n in 0..levels.len() {
        let above = levels[n + 1..].iter().map(|l| u64::from(l.down));
        let own = levels[..=n].iter().map(|l| u64::from(l.up));
        let count = above.chain(own).try_fold(1_u64, u64::checked_mul);
        let count = count.filter(|c| *c <= SWITCHES_MAX as u64);
        let Some(count) = count.and_then(|c| u32::try_from(c).ok()) else {
            let level = n + 1;
            return whole(format!(
                "level {level} has too many chips; expected at most {SWITCHES_MAX}"
            ));
        };
        first.push(small(total));
        total += u64::from(count);
        for number in 0..count {
            let name = name(n, levels.len());
            builder.switch(format!("{name} {number}"));
        }
    }
    check_ports(builder, tree)?;
    let count = |n: usize| {
        let next = first.get(n + 1).copied();
        next.map_or(total, u64::from) - u64::from(first[n])
    };
    for leaf in 0..small(count(0)) {
        builder.seat(leaf, levels[0].down);
    }
    for n in 1..levels.len() {
        let (below, level) = (first[n - 1], levels[n]);
        // A switch below: which of its branch's `spread` ones it is, in branch `branch` of `level.down`.
        let spread: u32 = levels[..n].iter().map(|l| l.up).product();
        for switch in 0..small(count(n - 1)) {
            let (branch, place) = (switch / spread, switch % spread);
            let tree = branch / level.down;
            for up in 0..level.up {
                let above = (tree * spread + place) * level.up + up;
                for _ in 0..level.cables {
                    let cable = builder.parts.outer_cable;
                    builder.join(below + switch, first[n] + above, cable);
                }
            }
        }
    }
    builder.routing = Routing::Managed(managed(Engine::DModK));
    Ok(())
}

/// Before cables are made: what a wrong number would make could be large.
fn check_ports(builder: &Builder<'_>, tree: &FatTree) -> Result<(), SpecError> {
    let has = u64::from(builder.parts.chip.ports);
    let levels = &tree.levels;
    for (n, level) in levels.iter().enumerate() {
        let down = u64::from(level.down) * u64::from(level.cables);
        let above = levels.get(n + 1);
        let up = above.map_or(0, |l| u64::from(l.up) * u64::from(l.cables));
        if down + up > has {
            let name = name(n, levels.len());
            return whole(format!(
                "a {name} chip needs {down} ports down and {up} up; it has {has}"
            ));
        }
    }
    Ok(())
}

fn small(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// What a level's switches are called.
const fn name(level: usize, levels: usize) -> &'static str {
    match (level, levels) {
        (_, 1) => "switch",
        (0, _) => "leaf",
        (n, _) if n + 1 == levels => "spine",
        (1, _) => "middle",
        _ => "upper",
    }
}

/// Levels of a tree: four of 24-port chips already have 41,472 hosts.
const LEVELS_MAX: usize = 4;
