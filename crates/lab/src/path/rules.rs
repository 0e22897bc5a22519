//! Rules of switches and routers.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use spans::Spanned;
use wire::classify::{FlagsMatch, Match, Prefix};
use wire::protocol;

use super::network::{ActionSpec, RewriteSpec, RuleSpec};
use super::raw::{RawRewrite, RawRule, TextOrNumber};
use super::{Refusal, hint, refuse};

/// The links of a node, by name.
pub(super) type Links<'a> = [(&'a str, usize)];

/// A node's rules; `links` are those of the node.
pub(super) fn check_rules(
    rules: &[Spanned<RawRule>],
    links: &Links<'_>,
) -> Result<Vec<RuleSpec>, Refusal> {
    rules.iter().map(|rule| check_rule(rule, links)).collect()
}

fn check_rule(spanned: &Spanned<RawRule>, links: &Links<'_>) -> Result<RuleSpec, Refusal> {
    let raw = spanned.get_ref();
    let count = |value: &Option<Spanned<u64>>, key: &str| match value {
        Some(n) if *n.get_ref() == 0 => refuse(n, format!("{key}: expected at least 1")),
        other => Ok(other.as_ref().map(|n| *n.get_ref())),
    };
    let (nth, every) = (count(&raw.nth, "nth")?, count(&raw.every, "every")?);
    if nth.is_some() && every.is_some() {
        return refuse(spanned, "a rule has either nth or every");
    }
    let in_link = match &raw.in_link {
        Some(name) => Some(link_of(name, links)?),
        None => None,
    };
    Ok(RuleSpec {
        in_link,
        matches: check_match(spanned)?,
        nth,
        every,
        action: check_action(spanned, links)?,
    })
}

fn check_match(spanned: &Spanned<RawRule>) -> Result<Match, Refusal> {
    let raw = spanned.get_ref();
    let (src, dst) = (parsed::<Prefix>(&raw.src)?, parsed::<Prefix>(&raw.dst)?);
    if let (Some(src), Some(dst)) = (src, dst)
        && src.network().is_ipv4() != dst.network().is_ipv4()
    {
        return refuse(spanned, "src and dst: expected both IPv4 or both IPv6");
    }
    let number = raw.protocol.as_ref().map(protocol_of).transpose()?;
    let ports = [&raw.src_port, &raw.dst_port];
    let has_ports = number.is_none_or(|n| [protocol::TCP, protocol::UDP].contains(&n));
    if let Some(port) = ports.into_iter().flatten().find(|_| !has_ports) {
        return refuse(port, "only tcp and udp have ports");
    }
    let [src_ports, dst_ports] = ports.map(|p| p.as_ref().map(ports_of).transpose());
    if let Some(flags) = &raw.flags
        && number.is_some_and(|n| n != protocol::TCP)
    {
        return refuse(flags, "flags: only tcp has them");
    }
    Ok(Match {
        src_mac: parsed(&raw.src_mac)?,
        dst_mac: parsed(&raw.dst_mac)?,
        vlan: at_most("vlan", raw.vlan.as_ref(), VLAN_MAX)?,
        src,
        dst,
        protocol: number,
        src_ports: src_ports?,
        dst_ports: dst_ports?,
        tcp_flags: raw.flags.as_ref().map(flags_of).transpose()?,
        dscp: at_most("dscp", raw.dscp.as_ref(), DSCP_MAX)?,
        ..Match::default()
    })
}

fn check_action(spanned: &Spanned<RawRule>, links: &Links<'_>) -> Result<ActionSpec, Refusal> {
    let raw = spanned.get_ref();
    let number = usize::from(raw.drop.is_some())
        + usize::from(raw.to.is_some())
        + usize::from(raw.mirror.is_some())
        + usize::from(raw.rewrite.is_some());
    if number != 1 {
        return refuse(
            spanned,
            "a rule does one thing: expected one of drop = true, to, mirror, rewrite",
        );
    }
    if let Some(drop) = &raw.drop {
        return if *drop.get_ref() {
            Ok(ActionSpec::Drop)
        } else {
            refuse(drop, "drop: expected true")
        };
    }
    if let Some(to) = &raw.to {
        if to.get_ref().is_empty() {
            return refuse(to, "to: expected at least one link; drop = true drops");
        }
        let mut out = Vec::new();
        for name in to.get_ref() {
            let link = link_of(name, links)?;
            if out.contains(&link) {
                return refuse(name, format!("to: '{}' is there twice", name.get_ref()));
            }
            out.push(link);
        }
        return Ok(ActionSpec::To(out));
    }
    if let Some(mirror) = &raw.mirror {
        return Ok(ActionSpec::Mirror(link_of(mirror, links)?));
    }
    match &raw.rewrite {
        Some(rewrite) => check_rewrite(rewrite).map(ActionSpec::Rewrite),
        None => refuse(spanned, "expected one of drop, to, mirror, rewrite"),
    }
}

fn check_rewrite(spanned: &Spanned<RawRewrite>) -> Result<RewriteSpec, Refusal> {
    let raw = spanned.get_ref();
    if let Some(ttl) = raw.ttl.as_ref().filter(|ttl| *ttl.get_ref() == 0) {
        return refuse(ttl, "ttl: expected at least 1");
    }
    let rewrite = RewriteSpec {
        src_mac: parsed(&raw.src_mac)?,
        dst_mac: parsed(&raw.dst_mac)?,
        src: address(raw.src.as_ref())?,
        dst: address(raw.dst.as_ref())?,
        src_port: raw.src_port,
        dst_port: raw.dst_port,
        dscp: at_most("dscp", raw.dscp.as_ref(), DSCP_MAX)?,
        vlan: at_most("vlan", raw.vlan.as_ref(), VLAN_MAX)?,
        ttl: raw.ttl.as_ref().map(|ttl| *ttl.get_ref()),
    };
    if rewrite == RewriteSpec::default() {
        return refuse(spanned, "rewrite: expected at least one field");
    }
    Ok(rewrite)
}

/// The number of a link of the node.
pub(super) fn link_of(name: &Spanned<String>, links: &Links<'_>) -> Result<usize, Refusal> {
    let typed = name.get_ref();
    match links.iter().find(|(known, _)| known == typed) {
        Some(&(_, number)) => Ok(number),
        None => refuse(
            name,
            hint::no_such("link", typed, "at this node", links.iter().map(|&(n, _)| n)),
        ),
    }
}

pub(super) fn parsed<T: FromStr<Err = wire::classify::ParseError>>(
    text: &Option<Spanned<String>>,
) -> Result<Option<T>, Refusal> {
    let Some(spanned) = text else {
        return Ok(None);
    };
    match spanned.get_ref().parse() {
        Ok(value) => Ok(Some(value)),
        Err(e) => refuse(spanned, format!("'{}': {e}", spanned.get_ref())),
    }
}

fn address(text: Option<&Spanned<String>>) -> Result<Option<IpAddr>, Refusal> {
    match text.map(|t| (t, t.get_ref().parse())) {
        None => Ok(None),
        Some((_, Ok(address))) => Ok(Some(address)),
        Some((spanned, Err(_))) => refuse(
            spanned,
            format!("'{}': expected an IPv4 or IPv6 address", spanned.get_ref()),
        ),
    }
}

fn at_most<T: Copy + PartialOrd + std::fmt::Display>(
    key: &str,
    value: Option<&Spanned<T>>,
    max: T,
) -> Result<Option<T>, Refusal> {
    match value {
        Some(v) if *v.get_ref() > max => {
            refuse(v, format!("{key} = {}: expected 0 to {max}", v.get_ref()))
        }
        other => Ok(other.map(|v| *v.get_ref())),
    }
}

fn protocol_of(spanned: &Spanned<TextOrNumber>) -> Result<u8, Refusal> {
    let number = match spanned.get_ref() {
        TextOrNumber::Number(n) => u8::try_from(*n).ok(),
        TextOrNumber::Text(name) => PROTOCOLS
            .iter()
            .find(|(known, _)| known == name)
            .map(|&(_, number)| number),
    };
    match number {
        Some(number) => Ok(number),
        None => refuse(
            spanned,
            format!(
                "protocol '{}': expected tcp, udp, icmp, icmpv6 or a number up to 255",
                spanned.get_ref()
            ),
        ),
    }
}

fn ports_of(spanned: &Spanned<TextOrNumber>) -> Result<RangeInclusive<u16>, Refusal> {
    let text = spanned.get_ref().to_string();
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => refuse(
            spanned,
            format!("port '{text}': expected one such as 80, or a range such as 1000-2000"),
        ),
    }
}

/// `syn+!ack`: SYN is set, ACK is not, the others are not looked at.
fn flags_of(spanned: &Spanned<String>) -> Result<FlagsMatch, Refusal> {
    let mut flags = FlagsMatch { mask: 0, value: 0 };
    for part in spanned.get_ref().split('+') {
        let part = part.trim();
        let (name, is_set) = part.strip_prefix('!').map_or((part, true), |n| (n, false));
        let known = FLAGS.iter().position(|&flag| flag == name);
        let Some(bit) = known.map(|n| 1_u8 << n).filter(|bit| flags.mask & bit == 0) else {
            return refuse(
                spanned,
                format!(
                    "flags '{}': expected names such as syn+!ack, each once, of {}",
                    spanned.get_ref(),
                    FLAGS.join(", ")
                ),
            );
        };
        flags.mask |= bit;
        flags.value |= if is_set { bit } else { 0 };
    }
    Ok(flags)
}

/// RFC 2474: six bits.
const DSCP_MAX: u8 = 63;
/// Control bits of TCP from the lowest (RFC 9293, section 3.1).
const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
const PROTOCOLS: [(&str, u8); 4] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("icmp", protocol::ICMP),
    ("icmpv6", protocol::ICMPV6),
];
/// IEEE 802.1Q: twelve bits.
const VLAN_MAX: u16 = 4_095;
