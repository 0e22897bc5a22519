//! The topology file of `ibnetdiscover`.
//!
//! A part begins with its kind, ports and quoted name, then has a line for each cable:
//!
//! ```text
//! Switch 24 "S-0008f10400411f56"  # "ISR9024 Voltaire" base port 0 lid 6 lmc 0
//! [1]  "H-0008f10403961354"[1](8f10403961355)  # "node1 HCA-1" lid 4 4xSDR
//!
//! Ca 2 "H-0008f10403961354"  # "node1 HCA-1"
//! [1](8f10403961355)  "S-0008f10400411f56"[1]  # lid 4 lmc 1 "ISR9024 Voltaire" lid 6 4xSDR
//! ```
//!
//! What stands in a comment after the name is the part's description, which names it here where it is the only
//! one of its kind. A channel adapter with several cables becomes a host for each. Routers, and cables to them, are
//! left out, and so are lines of the form `key=value`.

use std::collections::BTreeMap;

use crate::import::{Draft, End, Import, ImportError, Part, lines, printable, refuse};
use crate::link::Speed;
use crate::topology::Parts;

/// Reads the output of `ibnetdiscover`, or a net file of `ibsim`.
///
/// # Errors
/// [`ImportError`] with the line and what was expected there.
pub fn ibnetdiscover(text: &str, parts: &Parts) -> Result<Import, ImportError> {
    let mut draft = Draft::default();
    let mut ids: BTreeMap<&str, Of> = BTreeMap::new();
    let mut descriptions: Vec<&str> = Vec::new();
    let mut said: Vec<(usize, usize, Cable<'_>)> = Vec::new();
    // The part whose ports are being read, and how many are left.
    let mut current = None;
    for (line, text) in lines(text)? {
        let text = text.trim();
        if text.starts_with('[') {
            let Some((of, left)) = &mut current else {
                return refuse(line, "a port before any switch or channel adapter");
            };
            if *left == 0 {
                return refuse(line, "more cables than ports");
            }
            *left -= 1;
            let cable = Cable::parse(line, text)?;
            if let Of::Part(part) = of {
                if let Some(lid) = cable.lid {
                    draft.lids.insert((*part, cable.port), lid);
                }
                said.push((line, *part, cable));
            }
            continue;
        }
        let Some(head) = Head::parse(line, text)? else {
            continue;
        };
        let of = match head.kind {
            Kind::Router => Of::Router,
            kind => {
                descriptions.push(head.description);
                Of::Part(draft.part(Part {
                    name: printable(head.id),
                    switch: kind == Kind::Switch,
                    ports: head.ports,
                    line,
                    guid: guid(head.id),
                })?)
            }
        };
        if ids.insert(head.id, of).is_some() {
            let id = printable(head.id);
            return refuse(line, format!("\"{id}\" is described before"));
        }
        current = Some((of, head.ports));
    }
    describe(&mut draft, &descriptions);
    for (line, part, cable) in said {
        let to: End = match ids.get(cable.id) {
            Some(Of::Part(to)) => (*to, cable.to_port),
            Some(Of::Router) => {
                draft.remark(line, "a cable to a router is left out");
                continue;
            }
            None => {
                let id = printable(cable.id);
                return refuse(line, format!("\"{id}\" is not described in this file"));
            }
        };
        let other = &draft.parts[to.0];
        if to.1 == 0 || to.1 > other.ports {
            return refuse(
                line,
                format!("port {}; {} has 1 to {}", to.1, other.name, other.ports),
            );
        }
        let speed = match cable.speed {
            None => None,
            Some((width, speed)) => {
                let both = parts.host.port.width.min(parts.chip.port.width);
                if width < u32::from(both) {
                    let text = format!("{width} lanes of signalling; the model has {both}");
                    draft.remark(line, &text);
                }
                if speed.is_none() {
                    draft.remark(line, "a signalling that the model does not have");
                }
                speed
            }
        };
        if let Some(lid) = cable.far_lid {
            draft.lids.entry(to).or_insert(lid);
        }
        draft.cable((part, cable.port), to, line, speed)?;
    }
    draft.finish(parts)
}

/// Names parts by their descriptions where those are unique.
fn describe(draft: &mut Draft, descriptions: &[&str]) {
    let mut count: BTreeMap<&str, u32> = BTreeMap::new();
    for description in descriptions {
        *count.entry(description.trim()).or_insert(0) += 1;
    }
    for (part, description) in draft.parts.iter_mut().zip(descriptions) {
        let description = description.trim();
        if description.is_empty() {
            continue;
        }
        part.name = match count.get(description) {
            Some(1) => printable(description),
            _ => format!("{} ({})", printable(description), part.name),
        };
    }
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Part(usize),
    Router,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Switch,
    Adapter,
    Router,
}

/// First line of a part.
struct Head<'a> {
    kind: Kind,
    ports: u32,
    id: &'a str,
    description: &'a str,
}

impl<'a> Head<'a> {
    /// `None` for comments and attributes.
    fn parse(line: usize, text: &'a str) -> Result<Option<Self>, ImportError> {
        let (what, comment) = split_comment(text);
        let Some(word) = what.split_whitespace().next() else {
            return Ok(None);
        };
        let kind = match word {
            "Switch" => Kind::Switch,
            "Ca" | "Hca" => Kind::Adapter,
            "Rt" | "Router" => Kind::Router,
            _ if word.contains('=') => return Ok(None),
            other => {
                return refuse(
                    line,
                    format!(
                        "'{}': expected Switch, Ca or Rt, a port in brackets, or key=value",
                        printable(other)
                    ),
                );
            }
        };
        let rest = what[word.len()..].trim();
        let ports = rest.split_whitespace().next().unwrap_or_default();
        let Some(count) = ports.parse().ok().filter(|n| *n <= PART_PORTS_MAX) else {
            return refuse(
                line,
                format!("expected a number of ports up to {PART_PORTS_MAX} after {word}"),
            );
        };
        let Some((id, _)) = quoted(rest[ports.len()..].trim_start()) else {
            return refuse(line, "expected a name in quotes after the number of ports");
        };
        let description = quoted(comment.trim_start()).map_or("", |(found, _)| found);
        Ok(Some(Self {
            kind,
            ports: count,
            id,
            description,
        }))
    }
}

/// A port's line.
struct Cable<'a> {
    port: u32,
    id: &'a str,
    to_port: u32,
    /// Lanes, and signalling where the model has it.
    speed: Option<(u32, Option<Speed>)>,
    /// Local identifiers of this port and of the far one, where they are said.
    lid: Option<u16>,
    far_lid: Option<u16>,
}

impl<'a> Cable<'a> {
    fn parse(line: usize, text: &'a str) -> Result<Self, ImportError> {
        let (what, comment) = split_comment(text);
        let wrong = || ImportError {
            line,
            problem: "expected [port] \"name\"[port]".to_owned(),
        };
        let (port, rest) = bracketed(what).ok_or_else(wrong)?;
        let (id, rest) = quoted(rest).ok_or_else(wrong)?;
        let (to_port, _) = bracketed(rest).ok_or_else(wrong)?;
        let comment = comment.trim_start();
        let far = quoted(comment).map_or("", |(_, rest)| rest);
        Ok(Self {
            port,
            id,
            to_port,
            lid: lid(comment),
            far_lid: lid(far),
            speed: comment.split_whitespace().rev().find_map(speed),
        })
    }
}

/// What stands before `#`, and after it. Quotes may hold the sign.
fn split_comment(text: &str) -> (&str, &str) {
    let mut inside = false;
    let at = text.char_indices().find(|(_, c)| {
        inside ^= *c == '"';
        *c == '#' && !inside
    });
    match at {
        None => (text, ""),
        Some((at, _)) => (&text[..at], &text[at + 1..]),
    }
}

/// `"text"` and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('"')?.split_once('"')
}

/// `[port]`, with `[ext port]` and `(guid)` after it if they are there, and what follows.
fn bracketed(text: &str) -> Option<(u32, &str)> {
    let (port, mut rest) = text.strip_prefix('[')?.split_once(']')?;
    let port = port.trim().parse().ok()?;
    loop {
        rest = rest.trim_start();
        let skipped = match rest.chars().next() {
            Some('[') => rest.split_once(']'),
            Some('(') => rest.split_once(')'),
            _ => return Some((port, rest)),
        };
        rest = skipped?.1;
    }
}

/// `lid 4` at the beginning.
fn lid(text: &str) -> Option<u16> {
    let rest = text.trim_start().strip_prefix("lid ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A switch's number in its name: `S-0008f10400411f56`.
fn guid(id: &str) -> Option<u64> {
    u64::from_str_radix(id.strip_prefix("S-")?, 16).ok()
}

/// `4xDDR`: lanes and signalling.
fn speed(word: &str) -> Option<(u32, Option<Speed>)> {
    let (width, speed) = word.split_once('x')?;
    let width = width.parse().ok()?;
    let known = speed.parse().ok();
    let other = || speed.starts_with(|c: char| c.is_ascii_uppercase());
    (known.is_some() || other()).then_some((width, known))
}

/// Ports of a part are numbered by a byte (IBA volume 1, NodeInfo).
const PART_PORTS_MAX: u32 = 254;
