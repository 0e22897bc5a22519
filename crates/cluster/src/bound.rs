//! Which part bounds a case, and what would change that: the formula asked again with the remedy.

use crate::Case;
use fabric::formula::{self, Bound, Limit};
use fabric::link::Speed;
use fabric::spec::BLOCK_BYTES;
use fabric::{FabricSpec, FlowSpec, Transport};
use run::model::{FabricCurve, FindingRecord, RemedyRecord};

use crate::numbers::{bits, float, length, megabytes};
use crate::way::{bounds, way};

/// Its name in the run; a link that its cable trained down is a `converter`.
pub(crate) fn limit_name(case: &Case, flow: &FlowSpec, limit: Limit) -> &'static str {
    match limit {
        Limit::Post => "post",
        Limit::Engine => "engine",
        Limit::BusRead | Limit::BusWrite => "bus",
        Limit::Wire(hop) if held_by_cable(case, flow, hop).is_some() => "converter",
        Limit::Wire(_) => "wire",
        Limit::Credits(_) => "credits",
    }
}

/// What bounds a case at its longest message, in words. A full link is no finding, nor is what makes no difference.
pub(crate) fn of(case: &Case, transport: Transport, curve: &FabricCurve) -> Option<FindingRecord> {
    let longest = curve.points.last()?.message_bytes;
    let flow = case.traffic.flow(transport, longest);
    let bounds = bounds(case, &flow);
    let least = formula::least(&bounds)?;
    let (title, remedy) = match least.limit {
        Limit::Credits(hop) => credits(case, &flow, hop),
        Limit::Wire(hop) => converter(case, &flow, hop)?,
        Limit::BusRead | Limit::BusWrite => bus(case, &flow, least.limit)?,
        Limit::Engine | Limit::Post => (message_cost(&bounds, &flow), None),
    };
    let cause = match limit_name(case, &flow, least.limit) {
        "engine" | "post" => "message_cost",
        "bus" => "host_bus",
        other => other,
    };
    let gains = |r: &RemedyRecord| {
        float(r.predicted_bits_per_second.unwrap_or(0)) >= GAIN_MIN * least.bytes_per_second * 8.0
    };
    let hides = least.limit == Limit::Engine || least.limit == Limit::Post;
    let worth = match &remedy {
        Some(remedy) => gains(remedy) || curve.share_of_first < SHARE_MAX,
        None if hides => link_is_held(case),
        None => curve.share_of_first < SHARE_MAX,
    };
    if !worth {
        return None;
    }
    // Of what the next part would let through.
    let next = bounds.iter().filter(|b| b.limit != least.limit);
    let next = next
        .map(|b| b.bytes_per_second)
        .fold(f64::INFINITY, f64::min);
    Some(FindingRecord {
        phase: curve.name.clone(),
        cause: cause.to_owned(),
        title,
        confidence: 1.0,
        share: (1.0 - least.bytes_per_second / next).clamp(0.0, 1.0),
        evidence: vec![
            least.how.clone(),
            format!(
                "simulated packet by packet: {:.1} MB/s; by this formula {:.1} MB/s",
                megabytes(curve.peak_bits_per_second),
                least.bytes_per_second / 1e6
            ),
        ],
        remedy,
    })
}

/// With long messages over a connection the links would hold this case back.
fn link_is_held(case: &Case) -> bool {
    let longest = case.traffic.sizes.last().copied().unwrap_or(1);
    let flow = case.traffic.flow(Transport::Rc, longest);
    let bounds = bounds(case, &flow);
    let least = formula::least(&bounds);
    least.is_some_and(|b| matches!(limit_name(case, &flow, b.limit), "converter" | "credits"))
}

type Said = (String, Option<RemedyRecord>);

fn credits(case: &Case, flow: &FlowSpec, hop: usize) -> Said {
    let (number, direction) = way(case, flow)[hop];
    let link = &case.spec.links[number as usize];
    let (speed, _) = case.spec.trained(link);
    let to = link.ends[1 - direction];
    let lanes = case.spec.lanes(link);
    let has = case.spec.lane_blocks(link, to) * BLOCK_BYTES;
    let packet = flow
        .transport
        .blocks(flow.message_bytes.min(flow.mtu_bytes))
        * BLOCK_BYTES;
    let title = format!(
        "credits, not the cable: with {lanes} virtual lanes each has {has} B at the end of link {}, room for {} packets, \
         and {} at {speed} need {}",
        case.names.links[number as usize],
        has / packet,
        length(link.cable.length_mm),
        needed(case, flow, hop) * packet,
    );
    // One lane at a time fewer would do as well; the subnet manager's smallest setting is what it can always do.
    let mut spec = case.spec.clone();
    spec.operational_lanes = 1;
    let remedy = (lanes > 1).then(|| {
        let summary = "set max_op_vls to 1 in the subnet manager: one virtual lane for data has the whole buffer";
        remedy(case, flow, &spec, "network", summary, "traffic classes of their own need lanes of their own")
    });
    (title, remedy)
}

/// Packets of which a lane needs room so that the next bound holds.
fn needed(case: &Case, flow: &FlowSpec, hop: usize) -> u32 {
    let all = bounds(case, flow);
    let next = all.iter().filter(|b| !matches!(b.limit, Limit::Credits(_)));
    let next = next
        .map(|b| b.bytes_per_second)
        .fold(f64::INFINITY, f64::min);
    let (number, direction) = way(case, flow)[hop];
    let link = &case.spec.links[number as usize];
    let blocks = flow
        .transport
        .blocks(flow.message_bytes.min(flow.mtu_bytes));
    let has = case.spec.lane_blocks(link, link.ends[1 - direction]) / blocks;
    let now = all.iter().find(|b| b.limit == Limit::Credits(hop));
    let each = now.map_or(next, |b| b.bytes_per_second / f64::from(has.max(1)));
    (1..=u32::from(u16::MAX))
        .find(|n| f64::from(*n) * each >= next)
        .unwrap_or(u32::MAX)
}

/// A cable that was made for less than both its ports, on the hop that bounds.
fn held_by_cable(case: &Case, flow: &FlowSpec, hop: usize) -> Option<(Speed, Speed)> {
    let (number, _) = *way(case, flow).get(hop)?;
    let link = &case.spec.links[number as usize];
    let ports = link.ends.map(|end| case.spec.port(end).speed);
    let ports = ports[0].min(ports[1]);
    link.cable
        .rated
        .filter(|rated| *rated < ports)
        .map(|rated| (rated, ports))
}

fn converter(case: &Case, flow: &FlowSpec, hop: usize) -> Option<Said> {
    let (rated, ports) = held_by_cable(case, flow, hop)?;
    let (number, _) = way(case, flow)[hop];
    let cable = &case.names.cables[number as usize];
    let title = format!(
        "cable {cable} is rated for {rated} only: link {} trains down to it, its ports could do {ports}",
        case.names.links[number as usize]
    );
    let mut spec = case.spec.clone();
    spec.links[number as usize].cable.rated = None;
    let summary = format!("use a cable or converter made for {ports}");
    let record = remedy(case, flow, &spec, "network", &summary, "another cable");
    Some((title, Some(record)))
}

fn bus(case: &Case, flow: &FlowSpec, limit: Limit) -> Option<Said> {
    let number = match limit {
        Limit::BusWrite => flow.to,
        _ => flow.from,
    };
    let bus = case.spec.hosts[number as usize].bus?;
    let title = format!(
        "the bus of host {}: bursts of {} B that cost {:.0} ns each",
        case.names.hosts[number as usize],
        bus.burst_bytes,
        float(bus.burst_ps) / 1e3
    );
    if bus.burst_bytes >= flow.mtu_bytes || bus.burst_ps == 0 {
        return Some((title, None));
    }
    let mut spec = case.spec.clone();
    for host in &mut spec.hosts {
        if let Some(bus) = &mut host.bus {
            bus.burst_bytes = bus.burst_bytes.max(BURST_TUNED_BYTES);
        }
    }
    let summary =
        "let the adapter use long bursts, as tune_pci=1 of ib_mthca did (lspci -vv: MaxReadReq)";
    let record = remedy(case, flow, &spec, "both", summary, "nothing known");
    Some((title, Some(record)))
}

fn message_cost(bounds: &[Bound], flow: &FlowSpec) -> String {
    let of_link = bounds
        .iter()
        .filter(|b| matches!(b.limit, Limit::Wire(_) | Limit::Credits(_)));
    let link = of_link
        .map(|b| b.bytes_per_second)
        .fold(f64::INFINITY, f64::min);
    let what = match flow.transport {
        Transport::Ud => "a message is one packet, and each costs the host more than the link",
        Transport::Rc | Transport::Uc | Transport::Iwarp => {
            "each message costs the host more than the link"
        }
    };
    format!(
        "{what}; the links would carry {:.0} MB/s, which does not show",
        link / 1e6
    )
}

fn remedy(
    case: &Case,
    flow: &FlowSpec,
    spec: &FabricSpec,
    host: &str,
    summary: &str,
    cost: &str,
) -> RemedyRecord {
    let changed = Case {
        spec: spec.clone(),
        ..case.clone()
    };
    let bounds = bounds(&changed, flow);
    let least = formula::least(&bounds);
    RemedyRecord {
        summary: summary.to_owned(),
        host: host.to_owned(),
        predicted_bits_per_second: least.map(|b| bits(b.bytes_per_second)),
        predicted_from: least.map(|b| b.how.clone()),
        cost: cost.to_owned(),
        ..RemedyRecord::default()
    }
}

/// A remedy is worth saying from a twentieth on; chosen.
const GAIN_MIN: f64 = 1.05;
/// A case that gets less of the first is to be explained; chosen.
pub(crate) const SHARE_MAX: f64 = 0.98;
/// What `tune_pci` sets (Linux, drivers/infiniband/hw/mthca: MaxReadReq 4096).
const BURST_TUNED_BYTES: u32 = 4_096;
