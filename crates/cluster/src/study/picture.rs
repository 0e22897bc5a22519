//! The cables between chips in one step, as the report draws them.

use fabric::Node;
use run::model::{FabricCable, FabricChip, FabricStep};

use super::Item;
use super::made::Made;

/// Chips, and the cables that so many flows went over by channel; `more` adds what else is known of one.
pub(super) fn picture(
    made: &Made,
    item: &Item,
    took_ns: f64,
    flows_over: &[u32],
    more: impl Fn(usize, FabricCable) -> FabricCable,
) -> FabricStep {
    let built = &made.built;
    let chips = built.names.switches.iter().zip(&built.tiers);
    let mut found = FabricStep {
        step: item.step,
        nodes: item.nodes,
        took_ns,
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
    // Those that say most: with at least so many flows.
    let mut all: Vec<u32> = flows_over.iter().copied().filter(|f| *f > 0).collect();
    all.sort_unstable_by_key(|f| std::cmp::Reverse(*f));
    let least = all.get(CABLES_MAX).map_or(1, |f| *f);
    for (channel, inner) in made.inner.iter().enumerate() {
        if !inner {
            continue;
        }
        let (spec, way) = (&built.spec.links[channel / 2], channel % 2);
        let flows = flows_over[channel];
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
        if flows < least {
            continue;
        }
        let cable = FabricCable {
            link: built.names.links[channel / 2].clone(),
            from: place(spec.ends[way]),
            to: place(spec.ends[1 - way]),
            flows,
            ..FabricCable::default()
        };
        found.cables.push(more(channel, cable));
    }
    if found.cables.len() > CABLES_MAX {
        found.cables.sort_by_key(|c| std::cmp::Reverse(c.flows));
        found.cables.truncate(CABLES_MAX);
    }
    found
}

/// `leaf-3:14 to spine-2:4` of `leaf-3:14/spine-2:4`, or the other way.
pub(super) fn directed(link: &str, way: usize) -> String {
    match (link.split_once('/'), way) {
        (Some((a, b)), 0) => format!("{a} to {b}"),
        (Some((a, b)), _) => format!("{b} to {a}"),
        (None, 0) => link.to_owned(),
        (None, _) => format!("{link}, backwards"),
    }
}

const CABLES_MAX: usize = 4_096;
