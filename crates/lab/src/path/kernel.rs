//! Labs whose links the kernel runs: what such a link can have, and what its frames count.
//!
//! A rate is a token bucket there. It lets super-packets pass whole, so that a packet is what all its frames
//! are on the wire; the largest takes [`AHEAD`] at the slowest rate. After a pause [`LATE`] of a rate pass at once.

use link::spec::{Medium, ServerSpec};
use spans::Spanned;
use units::{Bytes, Duration, Rate};

use super::network::Network;
use super::raw::{RawDirection, RawFile, RawLink, RawMedium, RawRouter, RawRun, RawSchedule};
use super::{Refusal, links, refuse};

/// True when the kernel is to run the links of the file; refuses what it cannot do.
pub(super) fn check(raw: &RawFile) -> Result<bool, Refusal> {
    match raw.run.as_ref().map(|run| *run.get_ref()) {
        None | Some(RawRun::Engine) => return Ok(false),
        Some(RawRun::Kernel) => {}
    }
    if let Some((name, _)) = raw.switches.iter().next() {
        return refuse(
            name,
            format!("switches: {NONE}; let a router join the links"),
        );
    }
    for entry in &raw.schedule {
        check_change(entry)?;
    }
    for (name, host) in raw.hosts.iter() {
        if let Some(interface) = &host.get_ref().interface {
            let problem = format!("{}: interface: {NONE}", name.get_ref());
            return refuse(interface, problem);
        }
    }
    for (name, router) in raw.routers.iter() {
        check_router(name, router.get_ref())?;
    }
    for (name, link) in raw.links.iter() {
        for raw in links::both_directions(link.get_ref()) {
            check_direction(name.get_ref(), &raw)?;
        }
        if let Some(cable) = &link.get_ref().cable {
            return refuse(cable, format!("{}: cable: {NONE}", name.get_ref()));
        }
    }
    Ok(true)
}

fn check_router(name: &Spanned<String>, raw: &RawRouter) -> Result<(), Refusal> {
    let keys = [
        ("rules", raw.rules.first().map(|r| r.span().start)),
        ("routes", raw.routes.first().map(|r| r.span().start)),
        ("symmetric", raw.symmetric.as_ref().map(|s| s.span().start)),
        ("answers", raw.answers.map(|_| name.span().start)),
    ];
    refuse_first(name.get_ref(), &keys)
}

/// A link with a rate may be cut and mended; nothing else of it changes.
fn check_change(entry: &Spanned<RawSchedule>) -> Result<(), Refusal> {
    let raw = entry.get_ref();
    let at = entry.span().start;
    let keys = [
        ("rate", raw.rate.is_some()),
        ("delay", raw.delay.is_some()),
        ("loss", raw.loss.is_some()),
        ("queue", raw.queue.is_some()),
    ];
    match keys.iter().find(|(_, is_there)| *is_there) {
        Some((key, _)) => Err(Refusal {
            at,
            problem: format!("schedule: {key}: {NONE}; its links may be cut and mended: up"),
        }),
        None => Ok(()),
    }
}

/// All that takes more than a token bucket.
fn check_direction(name: &str, raw: &RawDirection) -> Result<(), Refusal> {
    fn at<T>(value: &Option<Spanned<T>>) -> Option<usize> {
        value.as_ref().map(|v| v.span().start)
    }
    let stretched = raw
        .medium
        .as_ref()
        .filter(|m| matches!(m.get_ref(), RawMedium::WanPhy));
    let delay = raw
        .delay
        .as_ref()
        .filter(|d| d.get_ref().0 > Duration::ZERO);
    let keys = [
        ("medium", stretched.map(|m| m.span().start)),
        ("duplex", at(&raw.duplex)),
        ("trace", at(&raw.trace)),
        ("queue_packets", at(&raw.queue_packets)),
        ("discipline", at(&raw.discipline)),
        ("mark_above", at(&raw.mark_above)),
        ("loss", at(&raw.loss)),
        ("duplicate", at(&raw.duplicate)),
        ("corrupt", at(&raw.corrupt)),
        ("delay", delay.map(|d| d.span().start)),
        ("jitter", at(&raw.jitter)),
        ("coalesce", at(&raw.coalesce)),
        ("policer", at(&raw.policer)),
        ("flow_cap", at(&raw.flow_cap)),
        ("harmonizer", at(&raw.harmonizer)),
        ("packets_per_second", at(&raw.packets_per_second)),
        ("packets_queue", at(&raw.packets_queue)),
        ("outages", at(&raw.outages)),
        ("outage_every", at(&raw.outage_every)),
        ("black_hole_above", at(&raw.black_hole_above)),
        ("middlebox", at(&raw.middlebox)),
    ];
    refuse_first(name, &keys)
}

fn refuse_first(name: &str, keys: &[(&str, Option<usize>)]) -> Result<(), Refusal> {
    let stated = keys.iter().find_map(|(key, at)| Some((key, (*at)?)));
    match stated {
        Some((key, at)) => Err(Refusal {
            at,
            problem: format!(
                "{name}: {key}: {NONE}; its links have rate, queue, mtu, medium and gap"
            ),
        }),
        None => Ok(()),
    }
}

/// Refuses ends that take different packets and queues in which a packet finds no room.
pub(super) fn check_sizes<'l>(
    raw: impl Iterator<Item = &'l Spanned<RawLink>>,
    network: &Network,
) -> Result<(), Refusal> {
    let whole = packet_bytes_max(network);
    let no_rate = network.schedule.iter().find(|entry| {
        let link = &network.links[entry.link];
        link.direction(entry.forward).rate.is_none()
    });
    if let Some(entry) = no_rate {
        let name = &network.links[entry.link].name;
        let problem = format!("schedule: {name} has no rate: what the kernel cuts has one");
        return Err(Refusal { at: 0, problem });
    }
    for (raw, link) in raw.zip(&network.links) {
        let is_link = |own: usize| network.links[own].name == link.name;
        let of_host = |host: &&super::HostSpec| host.links().any(is_link);
        if let Some(host) = network
            .hosts
            .iter()
            .filter(of_host)
            .find(|h| h.mtu_bytes != link.mtu_bytes)
        {
            let (name, own, other) = (&host.name, host.mtu_bytes, link.mtu_bytes);
            let problem = format!(
                "mtu: both ends of a link that the kernel runs take the same packets; found {own} at {name} and {other}"
            );
            return refuse(&raw.get_ref().between, problem);
        }
        for spec in [&link.forward, &link.backward] {
            let Some(rate) = &spec.rate else { continue };
            let counted = counted(spec.medium, link.mtu_bytes, whole);
            let queue = rate.limits.bytes.unwrap_or(0);
            if !(u64::from(counted)..=u64::from(u32::MAX)).contains(&queue) {
                let problem = format!(
                    "queue = {}: expected {} to 4 GiB: the kernel hands over as much as one packet",
                    Bytes::new(queue),
                    Bytes::new(counted.into())
                );
                let raw = raw.get_ref();
                let stated = raw.queue.as_ref().map(|queue| queue.span().start);
                let at = stated.unwrap_or_else(|| raw.between.span().start);
                return Err(Refusal { at, problem });
            }
        }
    }
    Ok(())
}

/// The largest packet of a lab, Ethernet header included: what its slowest rate carries in [`AHEAD`], at least two
/// full frames, at most what IP takes.
pub(crate) fn packet_bytes_max(network: &Network) -> u32 {
    let frame = network.links.iter().map(|l| l.mtu_bytes + ETHERNET_BYTES);
    let frame = frame.max().unwrap_or(0);
    let ways = network.links.iter().flat_map(|l| [&l.forward, &l.backward]);
    let rates = ways.filter_map(|way| rate(&way.rate.as_ref()?.server));
    let ahead = rates.min().map_or(u64::MAX, |r| r.bytes_in(AHEAD).as_u64());
    let least = (2 * frame).clamp(PACKET_MIN, PACKET_MAX);
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    ahead.clamp(least, PACKET_MAX).max(frame)
}

/// The rate of a link that the kernel can run.
pub(crate) const fn rate(server: &ServerSpec) -> Option<Rate> {
    match server {
        ServerSpec::Rate(rate) => Some(*rate),
        ServerSpec::Trace(_) => None,
    }
}

/// What a packet of `length` bytes is on the wire. One that is longer than a frame is taken for TCP over IPv4 with
/// timestamps, in full segments.
pub(crate) fn counted(medium: Medium, mtu_bytes: u32, length: u32) -> u32 {
    let full = mtu_bytes + ETHERNET_BYTES;
    if length <= full {
        return medium.wire_bytes(length);
    }
    let each = full - HEADER_BYTES;
    let payload = length - HEADER_BYTES;
    let others = payload.div_ceil(each) - 1;
    let last = HEADER_BYTES + payload - others * each;
    others * medium.wire_bytes(full) + medium.wire_bytes(last)
}

/// How late the kernel's timer may be without loss of rate, and so what may pass at once after a pause. With 1 ms nine
/// links of 100 Mb/s lost up to 11 % of their rate on two CPUs with other work.
pub(crate) const LATE: Duration = Duration::from_ms(5);
/// What one packet may take at the slowest rate: as late as a frame of the engine may be.
pub(crate) const AHEAD: Duration = Duration::from_ms(1);
/// Ethernet, IPv4, TCP with timestamps.
pub(crate) const HEADER_BYTES: u32 = ETHERNET_BYTES + 20 + 32;
const ETHERNET_BYTES: u32 = 14;
/// Below some 350 bytes TCP would reckon with less than nothing (net/ipv4/tcp.c, sk_dst_gso_max_size).
const PACKET_MIN: u32 = 2_048;
/// GSO_LEGACY_MAX_SIZE, and the header.
const PACKET_MAX: u32 = 65_536 + ETHERNET_BYTES;
const NONE: &str = "a lab with run = \"kernel\" has none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_super_packet_counts_what_its_frames_do() {
        let counted = |length| counted(Medium::ETHERNET, 1500, length);
        assert_eq!(counted(66), 90);
        assert_eq!(counted(1514), 1538);
        // Forty-five full segments: their payload, and headers once.
        assert_eq!(counted(66 + 45 * 1448), 45 * 1538);
        assert_eq!(counted(66 + 1448 + 1), 1538 + 91);
        // The least frame has 64 bytes.
        assert_eq!(counted(42), 84);
    }
}
