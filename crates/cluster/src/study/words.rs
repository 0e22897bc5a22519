//! What a study's fabric is, and how far what was found holds.

use crate::{Layout, Study, Tier};
use fabric::formula::{self, Limit};
use run::model::{FabricFault, FabricStudy};

use super::bits;
use super::made::Made;

/// What the fabric is.
pub(super) fn described(study: &Study, made: &Made) -> FabricStudy {
    let mut found = FabricStudy::default();
    let built = &made.built;
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
            match spec.switches.first() {
                None => made.words.clone(),
                Some(chip) => format!(
                    "{}: {} of {} ports used, {chips} {} of {} ports",
                    made.words,
                    made.hosts,
                    made.ports(),
                    if chips == 1 { "chip" } else { "chips" },
                    chip.ports,
                ),
            },
            match made.selection_name {
                "static" => made.routing().to_owned(),
                other => format!("{} and {other}", made.routing()),
            },
        ),
        Layout::Named(..) => (
            format!("{} hosts, {chips} chips", spec.hosts.len()),
            "minhop".to_owned(),
        ),
    };
    if let Some(faults) = &spec.faults {
        let each = faults.links().flat_map(|link| {
            let outages = faults.outages(link).iter();
            outages.map(move |(from, until)| FabricFault {
                link: built.names.links[link as usize].clone(),
                at_ns: from / 1_000,
                until_ns: (*until < u64::MAX).then(|| until / 1_000),
                lost_packets: 0,
            })
        });
        found.faults = each.collect();
    }
    let last = study.traffic.nodes.last().copied().unwrap_or(2);
    let flows = study.sends(built, last, 0, 0).flows;
    if let Some(flow) = flows.first() {
        let way = made.way(flow.from, flow.to);
        let bounds = formula::bounds(spec, flow, &way);
        let held = bounds.iter().filter(|b| !matches!(b.limit, Limit::Post));
        let least = held
            .map(|b| b.bytes_per_second)
            .fold(f64::INFINITY, f64::min);
        if least.is_finite() {
            found.alone_bits_per_second = bits(least);
        }
    }
    found
}

/// How far to trust what was found.
pub(super) fn trust(study: &Study, found: &FabricStudy) -> String {
    let flows = found.points.iter().map(|p| p.flows_on_a_cable_max).max();
    let shared = flows.unwrap_or(0) > 1;
    let text = match (study.tier, found.counts.as_str()) {
        (Tier::Packets, _) => {
            "Packet by packet: one flow alone is the closed formula to 10^-6. Left out: bit errors, rate control by marks, \
             what credits take of the other direction (8 B a packet), and the programs' own time."
        }
        (Tier::Flows, "latency") => {
            "By closed formula: messages that meet nobody. What they wait for each other needs tier packets."
        }
        (Tier::Flows, _) if !shared => {
            "Flows as fluids: no cable between chips has two flows, and there this is what packets get, within 10 %."
        }
        (Tier::Flows, _) => {
            "Flows as fluids: nobody waits behind others that wait, so packets get less. On random permutations their \
             average was 1 to 4 % lower on two levels of chips, 6 to 9 % on three with 128 hosts, 13 to 17 % with 1024; \
             single pairs are further off. Check a smaller number of nodes with tier packets."
        }
    };
    text.to_owned()
}
