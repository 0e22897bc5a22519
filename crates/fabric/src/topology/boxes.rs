//! Boxes of chips: directors, edge switches below them, and rows of them.

use crate::route::Engine;
use crate::spec::{Routing, SWITCHES_MAX, SpecError};
use crate::topology::{Builder, Director, managed, whole};

/// One box with all its ports for hosts.
pub(super) fn director(builder: &mut Builder<'_>, director: &Director) -> Result<(), SpecError> {
    check(builder, director)?;
    let first = chips(builder, director, "");
    for leaf in 0..director.leaves {
        builder.seat(first + leaf, director.ports);
    }
    traces(builder, director, first);
    builder.routing = Routing::Managed(managed(Engine::DModK));
    Ok(())
}

/// Edge switches and a core of directors. Edge e's n-th cable to a director is at its port e * n + n, so that those
/// of one edge come to neighbouring ports.
pub(super) fn directors(
    builder: &mut Builder<'_>,
    director: &Director,
    directors: u32,
    [down, up]: [u32; 2],
    edges: u32,
) -> Result<(), SpecError> {
    check(builder, director)?;
    if directors == 0 || down == 0 || up == 0 || !up.is_multiple_of(directors) {
        return whole(format!(
            "an edge switch has {down} ports down and {up} up to {directors} directors; \
             expected a multiple of the directors"
        ));
    }
    let has = u32::from(builder.parts.chip.ports);
    if down.saturating_add(up) > has {
        return whole(format!(
            "an edge switch needs {down} ports down and {up} up; it has {has}"
        ));
    }
    check_chips(u64::from(director.leaves + director.spines) * u64::from(directors))?;
    for edge in 0..edges {
        let switch = builder.switch(format!("edge {edge}"));
        builder.seat(switch, down);
    }
    let mut first = Vec::new();
    for n in 0..directors {
        first.push(chips(builder, director, &format!("director {n} ")));
    }
    let each = up / directors;
    for edge in 0..edges {
        for first in &first {
            for cable in 0..each {
                let leaf = (edge * each + cable) / director.ports;
                let outer = builder.parts.outer_cable;
                builder.join(edge, first + leaf, outer);
            }
        }
    }
    for first in first {
        traces(builder, director, first);
    }
    builder.routing = Routing::Managed(managed(Engine::UpDown));
    Ok(())
}

/// Boxes in a row. Cables to the box before are at the first ports, leaf by leaf, those to the next at the last: what
/// passes through crosses three chips.
pub(super) fn row(
    builder: &mut Builder<'_>,
    director: &Director,
    boxes: u32,
    trunks: u32,
) -> Result<(), SpecError> {
    check(builder, director)?;
    if boxes == 0 || (boxes > 1 && trunks == 0) {
        return whole(format!("{boxes} boxes with {trunks} cables between them"));
    }
    let ports = director.leaves * director.ports;
    let sides = if boxes > 2 { 2 } else { boxes - 1 };
    if u64::from(trunks) * u64::from(sides) > u64::from(ports) {
        return whole(format!(
            "{trunks} cables to each neighbour; a box has {ports} ports"
        ));
    }
    check_chips(u64::from(director.leaves + director.spines) * u64::from(boxes))?;
    let firsts: Vec<u32> = (0..boxes)
        .map(|n| chips(builder, director, &format!("box {n} ")))
        .collect();
    let leaf = |port: u32| port / director.ports;
    for (n, first) in (0..boxes).zip(&firsts) {
        let before = if n > 0 { trunks } else { 0 };
        let after = if n + 1 < boxes { trunks } else { 0 };
        for port in before..ports - after {
            builder.seat(first + leaf(port), 1);
        }
    }
    for pair in firsts.windows(2) {
        for cable in 0..trunks {
            let [last, first] = [ports - trunks + cable, cable].map(leaf);
            let outer = builder.parts.outer_cable;
            builder.join(pair[0] + last, pair[1] + first, outer);
        }
    }
    for first in firsts {
        traces(builder, director, first);
    }
    builder.routing = Routing::Managed(managed(Engine::UpDown));
    Ok(())
}

/// Boxes with hosts below a core of boxes. Hosts have a box's first ports. Its n-th cable up goes to director n mod
/// core, where the cables of one box are neighbours.
pub(super) fn boxes(
    builder: &mut Builder<'_>,
    director: &Director,
    [boxes, core]: [u32; 2],
    up: u32,
) -> Result<(), SpecError> {
    check(builder, director)?;
    let ports = u64::from(director.leaves) * u64::from(director.ports);
    if boxes == 0 || core == 0 || up == 0 || !up.is_multiple_of(core) || u64::from(up) >= ports {
        return whole(format!(
            "{boxes} boxes of {ports} ports with {up} cables up to {core} directors; expected a multiple of the \
             directors, fewer than ports"
        ));
    }
    let each = up / core;
    if u64::from(each) * u64::from(boxes) > ports {
        return whole(format!(
            "{each} cables from each of {boxes} boxes to a director of {ports} ports"
        ));
    }
    let all = u64::from(boxes) + u64::from(core);
    check_chips(u64::from(director.leaves + director.spines) * all)?;
    let mut first = |of: &str, count: u32| -> Vec<u32> {
        let made = (0..count).map(|n| chips(builder, director, &format!("{of} {n} ")));
        made.collect()
    };
    let (low, high) = (first("box", boxes), first("core", core));
    let down = director.leaves * director.ports - up;
    for first in &low {
        for port in 0..down {
            builder.seat(first + port / director.ports, 1);
        }
    }
    for (number, first) in (0..).zip(&low) {
        for cable in 0..up {
            let above = high[(cable % core) as usize];
            let port = number * each + cable / core;
            let outer = builder.parts.outer_cable;
            let ends = [
                first + (down + cable) / director.ports,
                above + port / director.ports,
            ];
            builder.join(ends[0], ends[1], outer);
        }
    }
    for first in low.into_iter().chain(high) {
        traces(builder, director, first);
    }
    builder.routing = Routing::Managed(managed(Engine::UpDown));
    Ok(())
}

/// All chips of a box; the number of the first leaf.
fn chips(builder: &mut Builder<'_>, director: &Director, of: &str) -> u32 {
    let leaves = (0..director.leaves).map(|n| builder.switch(format!("{of}leaf {n}")));
    let first = leaves.min().unwrap_or(0);
    for n in 0..director.spines {
        builder.switch(format!("{of}spine {n}"));
    }
    first
}

fn traces(builder: &mut Builder<'_>, director: &Director, first: u32) {
    for leaf in 0..director.leaves {
        for spine in 0..director.spines {
            for _ in 0..director.traces {
                let inner = builder.parts.inner_cable;
                builder.join(first + leaf, first + director.leaves + spine, inner);
            }
        }
    }
}

fn check(builder: &Builder<'_>, director: &Director) -> Result<(), SpecError> {
    let Director {
        leaves,
        ports,
        spines,
        traces,
    } = *director;
    if leaves == 0 || ports == 0 || spines == 0 || traces == 0 {
        return whole("a director without leaves, ports, spines or traces");
    }
    let has = u64::from(builder.parts.chip.ports);
    let leaf = u64::from(ports) + u64::from(spines) * u64::from(traces);
    let spine = u64::from(leaves) * u64::from(traces);
    if leaf > has || spine > has {
        return whole(format!(
            "a leaf chip needs {leaf} ports and a spine {spine}; they have {has}"
        ));
    }
    Ok(())
}

fn check_chips(count: u64) -> Result<(), SpecError> {
    match count <= SWITCHES_MAX as u64 {
        true => Ok(()),
        false => whole(format!("{count} chips; expected at most {SWITCHES_MAX}")),
    }
}
