//! Routers that are gateways.

use gateway::config::{Config, Pacing, Spread, Zone, ZoneConfig};

use super::check::{RMEM_DEFAULT, WMEM_DEFAULT, check_triplet};
use super::network::GatewaySpec;
use super::raw::{RawGateway, RawRouter, RawSide};
use super::{Refusal, links, refuse, rules};

/// The gateway that a router is, if it is one; `own` are its links.
pub(super) fn check_gateway(
    raw: &RawRouter,
    own: &[(&str, usize)],
) -> Result<Option<GatewaySpec>, Refusal> {
    let Some(spanned) = &raw.gateway else {
        return Ok(None);
    };
    if raw.answers.is_some() || raw.symmetric.is_some() || !raw.rules.is_empty() {
        return refuse(
            spanned,
            "gateway: a kernel forwards here; it has no rules, answers or symmetric",
        );
    }
    let RawGateway {
        inside,
        outside,
        offloads,
        tcp_rmem,
        tcp_wmem,
        buffer_memory,
    } = spanned.get_ref();
    let sides = [
        check_links(inside, Zone::Inside, own)?,
        check_links(outside, Zone::Outside, own)?,
    ];
    for (name, link) in own {
        let times = sides.iter().flatten().filter(|l| *l == link).count();
        if times != 1 {
            let problem = match times {
                0 => format!("gateway: is the link '{name}' inside or outside?"),
                _ => format!("gateway: the link '{name}' is named twice"),
            };
            return refuse(spanned, problem);
        }
    }
    let config = Config {
        zones: [check_side(inside)?, check_side(outside)?],
        buffer_memory: buffer_memory.as_ref().map(|b| b.get_ref().0),
        ..Config::default()
    };
    Ok(Some(GatewaySpec {
        links: sides,
        config,
        offloads: offloads.unwrap_or(true),
        tcp_rmem_bytes: check_triplet("tcp_rmem", tcp_rmem.as_ref(), RMEM_DEFAULT)?,
        tcp_wmem_bytes: check_triplet("tcp_wmem", tcp_wmem.as_ref(), WMEM_DEFAULT)?,
    }))
}

fn check_links(raw: &RawSide, zone: Zone, own: &[(&str, usize)]) -> Result<Vec<usize>, Refusal> {
    let zone = zone.name();
    let names = raw.links.get_ref();
    if names.is_empty() || names.len() > LINKS_MAX {
        return refuse(
            &raw.links,
            format!("{zone}: expected the names of 1 to {LINKS_MAX} links"),
        );
    }
    names.iter().map(|name| rules::link_of(name, own)).collect()
}

fn check_side(raw: &RawSide) -> Result<ZoneConfig, Refusal> {
    if let Some(name) = &raw.congestion {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        let typed = name.get_ref();
        if typed.is_empty() || typed.len() > 15 || !typed.chars().all(legal) {
            return refuse(
                name,
                format!("congestion = '{typed}': expected a name such as cubic, reno or bbr"),
            );
        }
    }
    if let Some(bytes) = &raw.buffer
        && !(4 << 10..=1 << 30).contains(&bytes.get_ref().0.as_u64())
    {
        return refuse(bytes, "buffer: expected 4KiB to 1GiB");
    }
    if let Some(bytes) = &raw.max_segment
        && !(88..=32_767).contains(bytes.get_ref())
    {
        return refuse(bytes, "max_segment: expected 88 to 32767 bytes");
    }
    // A socket has one mark, and with several links it names the link.
    if let Some(held) = &raw.hold_last_ack
        && *held.get_ref()
        && raw.links.get_ref().len() > 1
    {
        return refuse(held, "hold_last_ack: only on a side with one link");
    }
    let pacing = raw.pacing.as_ref();
    let spread = match &raw.spread {
        None => Spread::default(),
        Some(typed) => typed
            .get_ref()
            .parse()
            .or_else(|e| refuse(typed, format!("spread: {e}")))?,
    };
    Ok(ZoneConfig {
        interfaces: Vec::new(),
        spread,
        congestion: raw.congestion.as_ref().map(|n| n.get_ref().clone()),
        max_segment: raw.max_segment.as_ref().map(|m| *m.get_ref()),
        buffer: raw.buffer.as_ref().map(|b| b.get_ref().0),
        pacing: pacing
            .map(|r| links::check_rate("pacing", r))
            .transpose()?
            .map(Pacing::Rate),
        notsent_lowat: raw.notsent_lowat.as_ref().map(|b| b.get_ref().0),
        hold_last_ack: raw.hold_last_ack.as_ref().is_some_and(|h| *h.get_ref()),
        ..ZoneConfig::default()
    })
}

/// Of a side.
const LINKS_MAX: usize = 16;
