//! What one flow alone must get, in closed form: the bounds of each part on its way, latency, and what a cable needs.
//!
//! A flow of equal messages goes at the least of its bounds, since every part works on one packet while the next
//! part works on the one before. For a lane with room for n packets
//!
//! ```text
//! credits = n * payload / (on the wire + cable + until its room is free + credit issue + credit on the wire + cable)
//! ```
//!
//! (IBA volume 1, section 7.9, for a stream of full packets.) Exact for one flow and messages of one packet or of many;
//! the last, shorter packet of a message is counted as a share in time, not in credits.

use crate::link::{ByteTime, Cable, CableKind, Speed};
use crate::spec::{
    BLOCK_BYTES, BLOCKS_MAX, CREDIT_BYTES, FabricSpec, FlowSpec, LinkSpec, Node, Transport,
};

/// A part that bounds a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Posting messages on the sender's core.
    Post,
    /// The sender's message engine.
    Engine,
    /// The sender's bus.
    BusRead,
    /// Rate of hop n of the way.
    Wire(usize),
    /// Credits of hop n of the way.
    Credits(usize),
    /// The receiver's bus.
    BusWrite,
}

/// The most payload that one part lets through.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Which part.
    pub limit: Limit,
    /// Payload.
    pub bytes_per_second: f64,
    /// The formula with its numbers.
    pub how: String,
}

/// A way through a fabric: link and direction of each hop.
pub type Way = [(u32, usize)];

/// All bounds of a flow, in the order of its way.
///
/// # Panics
/// When the way does not belong to the fabric.
pub fn bounds(spec: &FabricSpec, flow: &FlowSpec, way: &Way) -> Vec<Bound> {
    let message = f64::from(flow.message_bytes);
    let (from, to) = (
        &spec.hosts[flow.from as usize],
        &spec.hosts[flow.to as usize],
    );
    let mut found = Vec::new();
    let each = |found: &mut Vec<Bound>, limit, ps: u64, what: &str| {
        if ps > 0 {
            found.push(Bound {
                limit,
                bytes_per_second: message / seconds(ps),
                how: format!("{} B every {} {what}", flow.message_bytes, us(ps)),
            });
        }
    };
    each(&mut found, Limit::Post, from.post_ps, "of the core");
    let engine = match flow.transport {
        Transport::Ud => from.engine_datagram_ps,
        Transport::Rc | Transport::Uc | Transport::Iwarp => from.engine_ps,
    };
    each(&mut found, Limit::Engine, engine, "of the adapter's engine");
    let over_bus = |bus: &crate::BusSpec| packets(flow).map(|p| p.1 * bus.busy_ps(p.0)).sum();
    if let Some(bus) = &from.bus {
        each(
            &mut found,
            Limit::BusRead,
            over_bus(bus),
            "of the sender's bus",
        );
    }
    for (hop, (link, _)) in way.iter().enumerate() {
        let byte = byte_time(&spec.links[*link as usize], spec);
        // The wire carries fractions of a picosecond over from packet to packet.
        let wire = |p: (u32, u64)| round(p.1 * u64::from(spec.wire_bytes(flow.transport, p.0)));
        let ps = packets(flow).map(wire).sum::<f64>() * byte.as_f64();
        found.push(Bound {
            limit: Limit::Wire(hop),
            bytes_per_second: message / (ps * 1e-12),
            how: format!(
                "{} B every {:.3} us on the wire",
                flow.message_bytes,
                ps / 1e6
            ),
        });
    }
    if let Some(bus) = &to.bus {
        each(
            &mut found,
            Limit::BusWrite,
            over_bus(bus),
            "of the receiver's bus",
        );
    }
    if spec.has_credits() {
        found.extend((0..way.len()).map(|hop| credits(spec, flow, way, hop)));
    }
    found
}

/// The least of the bounds; of equals the first.
pub fn least(bounds: &[Bound]) -> Option<&Bound> {
    bounds
        .iter()
        .min_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))
}

/// Sizes of a message's packets with how many there are of each.
fn packets(flow: &FlowSpec) -> impl Iterator<Item = (u32, u64)> + use<> {
    let (size, mtu) = (flow.message_bytes, flow.mtu_bytes);
    let full = (mtu, u64::from(size / mtu));
    let rest = (size % mtu, 1);
    [full, rest]
        .into_iter()
        .filter(|(bytes, n)| bytes * u32::from(*n > 0) > 0)
}

fn byte_time(link: &LinkSpec, spec: &FabricSpec) -> ByteTime {
    let (speed, width) = spec.trained(link);
    speed.byte_time(width)
}

fn credits(spec: &FabricSpec, flow: &FlowSpec, way: &Way, hop: usize) -> Bound {
    let (number, direction) = way[hop];
    let link = &spec.links[number as usize];
    let to = link.ends[1 - direction];
    let payload = flow.message_bytes.min(flow.mtu_bytes);
    let wire = spec.wire_bytes(flow.transport, payload);
    let byte = byte_time(link, spec);
    let on_wire = byte.of(wire);
    let (freed, what) = match to {
        Node::Host(n) => {
            let bus = spec.hosts[n as usize].bus.as_ref();
            let busy = bus.map_or(0, |b| b.busy_ps(payload));
            (
                on_wire + busy,
                format!("{} on the wire + {} of the bus", us(on_wire), us(busy)),
            )
        }
        Node::Switch(n) => {
            let chip = &spec.switches[n as usize];
            let next = byte_time(&spec.links[way[hop + 1].0 as usize], spec).of(wire);
            let ahead = match chip.store_and_forward {
                true => on_wire,
                false => on_wire.saturating_sub(next),
            };
            let through = chip.latency_ps + ahead;
            (
                through + next,
                format!(
                    "{} in the switch + {} on the next wire",
                    us(through),
                    us(next)
                ),
            )
        }
    };
    let port = spec.port(to);
    let cable = link.cable.delay_ps();
    let back = port.credit_ps + byte.of(CREDIT_BYTES);
    let round = freed + back + 2 * cable;
    let blocks = spec.blocks(flow.transport, payload);
    let n = spec.lane_blocks(link, to) / blocks;
    Bound {
        limit: Limit::Credits(hop),
        bytes_per_second: f64::from(n) * f64::from(payload) / seconds(round),
        how: format!(
            "{n} packets of {payload} B every {} (2 x {} of cable + {what} + {} until the credit is out)",
            us(round),
            us(cable),
            us(back)
        ),
    }
}

/// One way of a message of one packet: from its posting until it is in the far memory, nothing else on its way.
///
/// # Panics
/// When the way does not belong to the fabric.
pub fn latency_ps(spec: &FabricSpec, flow: &FlowSpec, way: &Way) -> u64 {
    let payload = flow.message_bytes.min(flow.mtu_bytes);
    let wire = spec.wire_bytes(flow.transport, payload);
    let (from, to) = (
        &spec.hosts[flow.from as usize],
        &spec.hosts[flow.to as usize],
    );
    let bus = |b: &Option<crate::BusSpec>| b.map_or(0, |b| b.busy_ps(payload) + b.latency_ps);
    let engine = match flow.transport {
        Transport::Ud => from.engine_datagram_ps,
        Transport::Rc | Transport::Uc | Transport::Iwarp => from.engine_ps,
    };
    let mut sum = from.post_ps + engine + bus(&from.bus) + bus(&to.bus) + flow.take_ps;
    for (hop, (number, direction)) in way.iter().enumerate() {
        let link = &spec.links[*number as usize];
        let on_wire = byte_time(link, spec).of(wire);
        sum += link.cable.delay_ps();
        match link.ends[1 - direction] {
            Node::Host(_) => sum += on_wire,
            Node::Switch(n) => {
                let chip = &spec.switches[n as usize];
                let next = byte_time(&spec.links[way[hop + 1].0 as usize], spec).of(wire);
                sum += chip.latency_ps;
                sum += match chip.store_and_forward {
                    true => on_wire,
                    false => on_wire.saturating_sub(next),
                };
            }
        }
    }
    sum
}

/// What a cable of some length needs at its far end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CableNeeds {
    /// Payload at full rate, a second.
    pub payload_bytes_per_second: f64,
    /// One way.
    pub delay_ps: u64,
    /// A full packet on the wire.
    pub packet_ps: u64,
    /// From its first bit until the credit for it is back.
    pub round_ps: u64,
    /// Bytes on their way in that time.
    pub in_flight_bytes: u64,
    /// Full packets of which a lane must have room.
    pub packets: u32,
    /// Room for these in blocks of 64 B, as bytes.
    pub lane_bytes: u64,
    /// More than credits can count.
    pub beyond_credits: bool,
}

/// What a cable needs so that full packets follow each other without waiting for credits; `fix_ps` is what the far
/// end takes from a packet's tail until its credit is out.
pub fn cable_needs(speed: Speed, width: u8, cable: &Cable, mtu: u32, fix_ps: u64) -> CableNeeds {
    let byte = speed.byte_time(width);
    let wire = Transport::Rc.wire_bytes(mtu);
    let packet_ps = byte.of(wire);
    let round_ps = packet_ps + 2 * cable.delay_ps() + fix_ps + byte.of(CREDIT_BYTES);
    let packets = round_ps.div_ceil(packet_ps.max(1));
    let blocks = packets * u64::from(Transport::Rc.blocks(mtu));
    CableNeeds {
        payload_bytes_per_second: f64::from(mtu) / (f64::from(wire) * byte.as_f64() * 1e-12),
        delay_ps: cable.delay_ps(),
        packet_ps,
        round_ps,
        in_flight_bytes: whole(round(round_ps) / byte.as_f64()),
        packets: u32::try_from(packets).unwrap_or(u32::MAX),
        lane_bytes: blocks * u64::from(BLOCK_BYTES),
        beyond_credits: blocks > u64::from(BLOCKS_MAX),
    }
}

/// Payload a second with room for so many packets in a lane.
pub fn with_packets(needs: &CableNeeds, mtu: u32, packets: u32) -> f64 {
    let by_credits = f64::from(packets) * f64::from(mtu) / seconds(needs.round_ps.max(1));
    by_credits.min(needs.payload_bytes_per_second)
}

/// Longest cable that room for so many packets keeps full, in millimetres; `None` where no length does.
pub fn reach_mm(
    speed: Speed,
    width: u8,
    kind: CableKind,
    mtu: u32,
    fix_ps: u64,
    packets: u32,
) -> Option<u64> {
    let byte = speed.byte_time(width);
    let packet_ps = byte.of(Transport::Rc.wire_bytes(mtu));
    let held = u64::from(packets) * packet_ps;
    let left = held.checked_sub(packet_ps + fix_ps + byte.of(CREDIT_BYTES))?;
    Some(left * 1_000 / (2 * kind.ps_per_m()))
}

/// Mean share of a cable that rotate's flows get in a full fabric without oversubscription whose routes are static and as
/// good as drawn, by the levels at which a packet is given one of many cables up.
///
/// At each level n flows have drawn one of n cables each, so one of a flow's has 1 + Poisson(1) flows (n large), and the
/// flow gets its part of the fullest of them: the mean of 1 / max, 1 - 1/e with one level. Rotate sends the hosts of an
/// edge switch to those of one or two others, so flows that share a cable up share those down again: a level
/// counts once. Flows that are held back elsewhere leave more than that to others: max-min shares are up to 5 % above it.
#[allow(
    clippy::cast_possible_wrap,
    reason = "a fabric has few levels; more than 2^31 have no mean"
)]
pub fn drawn_share(levels: u32) -> f64 {
    let mut at_most = 0.0;
    let mut others = (-1.0_f64).exp();
    let (mut sum, mut before) = (0.0, 0.0);
    for flows in 1..=MOST_FLOWS {
        at_most += others;
        others /= f64::from(flows);
        let all: f64 = f64::powi(at_most, levels as i32);
        sum += (all - before) / f64::from(flows);
        before = all;
    }
    sum
}

/// More flows on one cable are too few to count: less than 1e-15 of all.
const MOST_FLOWS: u32 = 18;

fn seconds(ps: u64) -> f64 {
    round(ps) * 1e-12
}

#[allow(clippy::cast_precision_loss, reason = "for formulas")]
const fn round(ps: u64) -> f64 {
    ps as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number of bytes, bounded by the delays that a cable may have"
)]
const fn whole(bytes: f64) -> u64 {
    bytes.ceil() as u64
}

/// Microseconds to the nanosecond.
fn us(ps: u64) -> String {
    format!("{:.3} us", round(ps) / 1e6)
}
