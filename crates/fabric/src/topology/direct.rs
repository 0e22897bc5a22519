//! Fabrics with hosts at every switch: dragonflies and tori.

use crate::route::{Engine, Manager};
use crate::spec::{Routing, SWITCHES_MAX, SpecError};
use crate::topology::{Builder, managed, whole};

/// Groups of a dragonfly: those asked for, or as many as each can be joined to.
pub(super) const fn groups(switches: u32, global: u32, groups: u32) -> u32 {
    match groups {
        0 => switches.saturating_mul(global).saturating_add(1),
        groups => groups,
    }
}

/// A dragonfly: `[switches of a group, hosts of a switch, global cables of a switch, groups]`.
///
/// A group's global port k of round t leads to the group k mod (g - 1) + 1 further on; rounds repeat as long as
/// each pair of groups gets one more cable, and what is left stays free.
pub(super) fn dragonfly(
    builder: &mut Builder<'_>,
    [switches, hosts, global, groups]: [u32; 4],
) -> Result<(), SpecError> {
    if switches == 0 || hosts == 0 || global == 0 {
        return whole("a dragonfly without switches, hosts or global cables");
    }
    let most = u64::from(switches) * u64::from(global) + 1;
    let groups = self::groups(switches, global, groups);
    if u64::from(groups) > most || groups < 2 {
        return whole(format!(
            "{groups} groups; expected 2 to {most}, as each is joined to each"
        ));
    }
    let has = u64::from(builder.parts.chip.ports);
    let needs = u64::from(hosts) + u64::from(switches - 1) + u64::from(global);
    if needs > has {
        return whole(format!(
            "a switch needs {needs} ports: {hosts} for hosts, {} in its group, {global} to others; it has {has}",
            switches - 1
        ));
    }
    if u64::from(groups) * u64::from(switches) > SWITCHES_MAX as u64 {
        return whole(format!(
            "{groups} groups of {switches} switches; expected at most {SWITCHES_MAX} in all"
        ));
    }
    for group in 0..groups {
        for n in 0..switches {
            let switch = builder.switch(format!("group {group} switch {n}"));
            builder.seat(switch, hosts);
        }
    }
    for group in 0..groups {
        for a in 0..switches {
            for b in a + 1..switches {
                let inner = builder.parts.inner_cable;
                builder.join(group * switches + a, group * switches + b, inner);
            }
        }
    }
    let rounds = switches * global / (groups - 1);
    for round in 0..rounds {
        for from in 0..groups {
            for to in from + 1..groups {
                let port = |ahead: u32| round * (groups - 1) + ahead - 1;
                let a = from * switches + port(to - from) / global;
                let b = to * switches + port(groups + from - to) / global;
                let outer = builder.parts.outer_cable;
                builder.join(a, b, outer);
            }
        }
    }
    builder.routing = Routing::Managed(managed(Engine::Hops));
    // Local, global, local; with few groups fewest hops can be two global ones.
    builder.lanes = 3;
    Ok(())
}

/// A torus; a dimension of two has one cable, not two.
pub(super) fn torus(builder: &mut Builder<'_>, sizes: &[u32], hosts: u32) -> Result<(), SpecError> {
    if sizes.is_empty() || sizes.len() > 3 || sizes.contains(&0) || hosts == 0 {
        return whole("a torus has 1 to 3 sizes of at least 1, and hosts at its switches");
    }
    let has = u64::from(builder.parts.chip.ports);
    let needs = u64::from(hosts) + 2 * sizes.len() as u64;
    if needs > has {
        return whole(format!(
            "a switch needs {needs} ports: {hosts} for hosts, two for each dimension; it has {has}"
        ));
    }
    let count = sizes
        .iter()
        .try_fold(1_u32, |all, size| all.checked_mul(*size));
    let Some(count) = count.filter(|c| *c as usize <= SWITCHES_MAX) else {
        return whole(format!(
            "too many switches; expected at most {SWITCHES_MAX}"
        ));
    };
    for switch in 0..count {
        let mut rest = switch;
        let mut place: Vec<String> = Vec::new();
        for size in sizes.iter().rev() {
            place.insert(0, (rest % size).to_string());
            rest /= size;
        }
        let switch = builder.switch(format!("switch {}", place.join(",")));
        builder.seat(switch, hosts);
    }
    for switch in 0..count {
        let mut below = count;
        for size in sizes {
            below /= size;
            let at = switch / below % size;
            let next = switch - at * below + (at + 1) % size * below;
            if next != switch && !(*size == 2 && at == 1) {
                let outer = builder.parts.outer_cable;
                builder.join(switch, next, outer);
            }
        }
    }
    builder.routing = Routing::Managed(Manager {
        sizes: sizes.to_vec(),
        ..managed(Engine::DimensionOrder)
    });
    let rings = sizes.iter().filter(|size| **size > 3).count();
    // A bit for each dimension up to the last ring.
    let last = sizes
        .iter()
        .rposition(|size| *size > 3)
        .map_or(0, |n| n + 1);
    builder.lanes = if rings == 0 { 1 } else { 1 << last };
    Ok(())
}
