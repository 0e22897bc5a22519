//! Traffic between two hosts: every transport and message size of a case, beside the closed formula.

use fabric::formula::{self, Bound, Limit};
use fabric::{FlowSpec, Transport, World};
use fault::Failure;
use measure::Stop;
use run::model::{FabricBound, FabricCurve, FabricHop, FabricPoint, FabricRun};

use crate::numbers::{bits, ns, share};
use crate::way::{bounds, way};
use crate::{Case, bound};

/// All sizes of one case over one transport.
pub(crate) fn curve(
    case: &Case,
    transport: Transport,
    counts: &mut FabricRun,
    stop: &Stop,
) -> Result<FabricCurve, Failure> {
    let traffic = &case.traffic;
    let name = format!("{}-{}", transport.name(), case.name);
    let mut points: Vec<FabricPoint> = Vec::new();
    let mut difference_max = 0.0_f64;
    for size in traffic.sizes_of(transport) {
        if stop.is_stopped() {
            break;
        }
        let point = point(case, &traffic.flow(transport, size), counts, &name)?;
        let off = share(point.goodput_bits_per_second, point.formula_bits_per_second) - 1.0;
        difference_max = difference_max.max(off.abs());
        if let (Some(found), Some(formula)) = (point.latency_ns, point.latency_formula_ns) {
            difference_max = difference_max.max((found / formula.max(1e-3) - 1.0).abs());
        }
        points.push(point);
    }
    let longest = points.last().map_or(1, |p| p.message_bytes);
    let flow = traffic.flow(transport, longest);
    let bounds = bounds(case, &flow);
    let least = formula::least(&bounds).map(|b| b.limit);
    Ok(FabricCurve {
        scheme: scheme(&name, case, &flow).to_owned(),
        name,
        transport: transport.name().to_owned(),
        from: case.names.hosts[traffic.from as usize].clone(),
        to: case.names.hosts[traffic.to as usize].clone(),
        cores: traffic.cores,
        hops: hops(case, &flow),
        peak_bits_per_second: points.last().map_or(0, |p| p.goodput_bits_per_second),
        limit: least.map_or_else(String::new, |l| {
            bound::limit_name(case, &flow, l).to_owned()
        }),
        bounds: bounds.iter().map(|b| named_bound(case, &flow, b)).collect(),
        formula_difference_max: difference_max,
        points,
        ..FabricCurve::default()
    })
}

fn point(
    case: &Case,
    flow: &FlowSpec,
    counts: &mut FabricRun,
    name: &str,
) -> Result<FabricPoint, Failure> {
    let mut run = |flows: &[FlowSpec]| -> Result<World, Failure> {
        let mut world = World::new(&case.spec, flows).map_err(Failure::usage)?;
        world
            .run()
            .map_err(|stuck| Failure::check(format!("{name}: {stuck}")))?;
        counts.events += world.counters().events;
        counts.packet_hops += world.counters().packet_hops;
        Ok(world)
    };
    let cores = case.traffic.cores;
    let world = run(&vec![*flow; cores as usize])?;
    let each = (0..cores as usize).map(|n| {
        let info = world.flow(n);
        let messages = info.messages_arrived - info.half_messages;
        // 1 message has no second half.
        let from = if info.half_messages == 0 {
            info.first_posted_ps
        } else {
            info.half_ps
        };
        let bits = u128::from(messages) * u128::from(flow.message_bytes) * 8 * PS_PER_S;
        u64::try_from(bits / u128::from((info.last_ps - from).max(1))).unwrap_or(u64::MAX)
    });
    let goodput: u64 = each.sum();
    let least = formula::least(&bounds(case, flow)).map_or(0, |b| bits(b.bytes_per_second));
    let mut latency = None;
    if flow.message_bytes <= case.traffic.latency_to_bytes {
        let there = FlowSpec {
            ping_pong: true,
            messages: ROUND_TRIPS,
            ..*flow
        };
        let back = FlowSpec {
            from: flow.to,
            to: flow.from,
            ..there
        };
        let world = run(&[there])?;
        let half = world.flow(0).round_trips_ps / (2 * u128::from(ROUND_TRIPS));
        let one_way = |f: &FlowSpec| formula::latency_ps(&case.spec, f, &way(case, f));
        let both = one_way(&there) + one_way(&back);
        latency = Some([ns(u64::try_from(half).unwrap_or(u64::MAX)), ns(both / 2)]);
    }
    Ok(FabricPoint {
        message_bytes: flow.message_bytes,
        messages: flow.messages,
        goodput_bits_per_second: goodput,
        messages_per_second: goodput / 8 / u64::from(flow.message_bytes),
        formula_bits_per_second: least,
        latency_ns: latency.map(|[found, _]| found),
        latency_formula_ns: latency.map(|[_, formula]| formula),
    })
}

/// Which of the schemes of section 1.4 (and 6) of M. Minich, "Infiniband Based Cable Comparison", ORNL 2007 a
/// name follows. What comes after it says what was changed.
fn scheme(name: &str, case: &Case, flow: &FlowSpec) -> &'static str {
    let kind = flow.transport.name();
    let cables: Vec<String> = way(case, flow)
        .iter()
        .map(|(link, _)| case.names.cables[*link as usize].clone())
        .collect();
    let speed = case.spec.hosts[flow.from as usize].port.speed.name();
    let begins = |with: &str| {
        let rest = name.strip_prefix(with);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    match &cables[..] {
        [cable] if begins(&format!("{kind}-{speed}-{cable}")) => {
            "<connection type>-<link speed>-<cable>"
        }
        [cable]
            if ["dual", "quad"]
                .iter()
                .any(|n| begins(&format!("{kind}-{n}-core-{cable}"))) =>
        {
            "<connection type>-<number of cores>-<cable>"
        }
        // Node A received: the way begins at node B.
        [b, a] if begins(&format!("{kind}-{a}-{b}-{speed}")) => {
            "<connection type>-<cable on node A>-<cable on node B>-<link speed>"
        }
        _ => "",
    }
}

fn hops(case: &Case, flow: &FlowSpec) -> Vec<FabricHop> {
    let way = way(case, flow);
    way.iter()
        .map(|(link, direction)| {
            let spec = &case.spec.links[*link as usize];
            let (speed, width) = case.spec.trained(spec);
            let blocks = case.spec.lane_blocks(spec, spec.ends[1 - direction]);
            FabricHop {
                link: case.names.links[*link as usize].clone(),
                cable: case.names.cables[*link as usize].clone(),
                speed: speed.name().to_owned(),
                width,
                delay_ns: ns(spec.cable.delay_ps()),
                virtual_lanes: case.spec.lanes(spec),
                lane_buffer_bytes: u64::from(blocks * fabric::spec::BLOCK_BYTES),
            }
        })
        .collect()
}

fn named_bound(case: &Case, flow: &FlowSpec, bound: &Bound) -> FabricBound {
    let host = |n: u32| case.names.hosts[n as usize].clone();
    let link = |hop: usize| {
        let way = way(case, flow);
        way.get(hop).map_or_else(String::new, |(link, _)| {
            case.names.links[*link as usize].clone()
        })
    };
    let (part, place) = match bound.limit {
        Limit::Post => ("post", host(flow.from)),
        Limit::Engine => ("engine", host(flow.from)),
        Limit::BusRead => ("bus_read", host(flow.from)),
        Limit::BusWrite => ("bus_write", host(flow.to)),
        Limit::Wire(hop) => ("wire", link(hop)),
        Limit::Credits(hop) => ("credits", link(hop)),
    };
    FabricBound {
        part: part.to_owned(),
        place,
        bits_per_second: bits(bound.bytes_per_second),
        how: bound.how.clone(),
    }
}

const PS_PER_S: u128 = 1_000_000_000_000;
/// A model's round trips are all alike.
const ROUND_TRIPS: u64 = 10;
