//! Fabrics as others write them down: the output of `ibnetdiscover`, net files of `ibsim`, and lists of cables.
//!
//! A file says who is cabled to whom, and little of what the parts are: hosts, chips and cables are those of
//! [`Parts`], each link no faster than its line says. Text is from anywhere: sizes are bounded before anything is
//! kept, and what is refused names its line. Sources: infiniband-diags' man page `ibnetdiscover(8)`, section "TOPOLOGY
//! FILE FORMAT"; ibsim's README, "net file".
//!
//! Ports of a switch are numbered in the order of the links here; [`Names`] keep the numbers that the file has.

mod edges;
mod ibnetdiscover;
mod tables;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use units::text::plain;

use crate::link::Speed;
use crate::spec::{
    FabricSpec, HOSTS_MAX, LinkSpec, Node, PORTS_MAX, Place, SWITCHES_MAX, SpecError,
};
use crate::topology::{Names, Network, Parts};

pub use edges::edges;
pub use ibnetdiscover::ibnetdiscover;
pub use tables::lfts;

/// What a file describes.
#[derive(Clone, Debug)]
pub struct Import {
    /// Its parts and cables, with one virtual lane and routes of fewest hops.
    pub network: Network,
    /// What the file says and the model does not have, with the line; the first [`REMARKS_MAX`].
    pub remarks: Vec<String>,
    /// Local identifier of each host's port, where the file has it.
    pub lids: Vec<Option<u16>>,
    /// Number of each switch's node (GUID), where the file has it.
    pub guids: Vec<Option<u64>>,
}

/// Why a file was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// Line, from 1; 0 for the whole text.
    pub line: usize,
    /// What is wrong and what was expected.
    pub problem: String,
}

impl std::fmt::Display for ImportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.problem),
            line => write!(f, "line {line}: {}", self.problem),
        }
    }
}

impl std::error::Error for ImportError {}

fn refuse<T>(line: usize, problem: impl Into<String>) -> Result<T, ImportError> {
    Err(ImportError {
        line,
        problem: plain(&problem.into()).into_owned(),
    })
}

/// Lines with their numbers, none too long.
fn lines(text: &str) -> Result<impl Iterator<Item = (usize, &str)>, ImportError> {
    if text.len() > TEXT_BYTES_MAX {
        return refuse(0, format!("longer than {TEXT_BYTES_MAX} bytes"));
    }
    let numbered = || (1..).zip(text.lines());
    if let Some((line, _)) = numbered().find(|(_, of)| of.len() > LINE_BYTES_MAX) {
        return refuse(line, format!("longer than {LINE_BYTES_MAX} bytes"));
    }
    Ok(numbered())
}

/// A part while its file is read.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    switch: bool,
    /// Ports that it has.
    ports: u32,
    /// Where it is described.
    line: usize,
    /// Number of a switch's node.
    guid: Option<u64>,
}

/// An end of a cable: part and port from 1.
type End = (usize, u32);

/// Parts and cables while a file is read.
#[derive(Debug, Default)]
struct Draft {
    parts: Vec<Part>,
    /// What each port leads to, where that is said, and how fast.
    cables: BTreeMap<End, (End, usize, Option<Speed>)>,
    /// Local identifiers of ports.
    lids: BTreeMap<End, u16>,
    remarks: Vec<String>,
}

impl Draft {
    fn part(&mut self, part: Part) -> Result<usize, ImportError> {
        // A part without a cable is none of the fabric's, but is kept until the end.
        if self.parts.len() >= HOSTS_MAX + SWITCHES_MAX {
            return refuse(
                part.line,
                format!("more than {} parts", HOSTS_MAX + SWITCHES_MAX),
            );
        }
        if part.switch && part.ports > u32::from(PORTS_MAX) {
            return refuse(
                part.line,
                format!(
                    "a switch of {} ports; expected {PORTS_MAX} at most",
                    part.ports
                ),
            );
        }
        self.parts.push(part);
        Ok(self.parts.len() - 1)
    }

    /// One end says where it leads.
    fn cable(
        &mut self,
        from: End,
        to: End,
        line: usize,
        speed: Option<Speed>,
    ) -> Result<(), ImportError> {
        let part = &self.parts[from.0];
        if from.1 == 0 || from.1 > part.ports {
            return refuse(
                line,
                format!("port {}; {} has 1 to {}", from.1, part.name, part.ports),
            );
        }
        if let Some((_, before, _)) = self.cables.insert(from, (to, line, speed)) {
            return refuse(line, format!("port {} is in line {before} already", from.1));
        }
        Ok(())
    }

    fn remark(&mut self, line: usize, text: &str) {
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push(format!("line {line}: {text}"));
        }
    }

    /// Checks that both ends of a cable agree, and makes a fabric of all.
    fn finish(mut self, parts: &Parts) -> Result<Import, ImportError> {
        let mut cables: Vec<(End, End, usize, Option<Speed>)> = Vec::new();
        for (from, (to, line, speed)) in &self.cables {
            let name = |end: &End| format!("{} port {}", self.parts[end.0].name, end.1);
            if from.0 == to.0 {
                return refuse(*line, format!("{} leads to itself", name(from)));
            }
            match self.cables.get(to) {
                Some((back, other, _)) if back != from => {
                    return refuse(
                        *line,
                        format!("{} leads elsewhere in line {other}", name(to)),
                    );
                }
                // The other end has said so.
                Some(_) if to < from => {}
                _ => cables.push((*from, *to, *line, *speed)),
            }
        }
        self.nodes(parts, cables)
    }

    /// Each port of a host becomes a host, each switch with a cable a switch.
    fn nodes(
        &mut self,
        parts: &Parts,
        mut cables: Vec<(End, End, usize, Option<Speed>)>,
    ) -> Result<Import, ImportError> {
        let mut ends: Vec<End> = cables.iter().flat_map(|(a, b, _, _)| [*a, *b]).collect();
        ends.sort_unstable();
        if let Some(pair) = ends.windows(2).find(|pair| pair[0] == pair[1]) {
            let part = &self.parts[pair[0].0];
            let problem = format!("{} port {} has two cables", part.name, pair[0].1);
            return refuse(part.line, problem);
        }
        let mut nodes: BTreeMap<End, Node> = BTreeMap::new();
        let (mut hosts, mut switches) = (Vec::new(), Vec::new());
        let mut lines: [Vec<usize>; 2] = [Vec::new(), Vec::new()];
        let mut chips = Vec::new();
        let (mut lids, mut guids) = (Vec::new(), Vec::new());
        for (n, (part, port)) in ends.iter().enumerate() {
            let of = &self.parts[*part];
            let same =
                |at: Option<usize>| at.and_then(|n| ends.get(n)).is_some_and(|e| e.0 == *part);
            if of.switch {
                if n == 0 || !same(Some(n - 1)) {
                    chips.push(of.ports.max(2));
                    switches.push(of.name.clone());
                    guids.push(of.guid);
                    lines[1].push(of.line);
                }
                nodes.insert((*part, *port), Node::Switch(small(switches.len() - 1)));
                continue;
            }
            let several = same(Some(n + 1)) || same(n.checked_sub(1));
            hosts.push(match several {
                true => format!("{} port {port}", of.name),
                false => of.name.clone(),
            });
            lines[0].push(of.line);
            lids.push(self.lids.get(&(*part, *port)).copied());
            nodes.insert((*part, *port), Node::Host(small(hosts.len() - 1)));
        }
        for (a, b, _, _) in &mut cables {
            if matches!((nodes[a], nodes[b]), (Node::Switch(_), Node::Host(_))) {
                std::mem::swap(a, b);
            }
        }
        // Hosts first, then by switch and port, so that ports keep their order where they can.
        cables.sort_by_key(|(a, b, _, _)| (nodes[a], nodes[b], *a, *b));
        let link = |(a, b, _, speed): &(End, End, usize, Option<Speed>)| {
            let ends = [nodes[a], nodes[b]];
            let host = ends.iter().any(|n| matches!(n, Node::Host(_)));
            let mut cable = if host {
                parts.host_cable
            } else {
                parts.outer_cable
            };
            cable.rated = match (cable.rated, *speed) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            LinkSpec { ends, cable }
        };
        let spec = FabricSpec {
            hosts: vec![parts.host; hosts.len()],
            switches: chips
                .iter()
                .map(|ports| crate::SwitchSpec {
                    ports: u8::try_from(*ports).unwrap_or(PORTS_MAX),
                    ..parts.chip
                })
                .collect(),
            links: cables.iter().map(link).collect(),
            ..FabricSpec::default()
        };
        let ports = cables.iter().map(|(a, b, _, _)| [a.1, b.1]).collect();
        spec.check()
            .map_err(|error| placed(&error, &lines, &cables))?;
        Ok(Import {
            network: Network {
                spec,
                names: Names::new(hosts, switches, ports),
            },
            remarks: std::mem::take(&mut self.remarks),
            lids,
            guids,
        })
    }
}

/// A specification's refusal with the line of its part.
fn placed(
    error: &SpecError,
    lines: &[Vec<usize>; 2],
    cables: &[(End, End, usize, Option<Speed>)],
) -> ImportError {
    let line = match error.place {
        Place::Host(n) => lines[0].get(n as usize).copied(),
        Place::Switch(n) => lines[1].get(n as usize).copied(),
        Place::Link(n) => cables.get(n as usize).map(|c| c.2),
        _ => None,
    };
    ImportError {
        line: line.unwrap_or(0),
        problem: plain(&error.problem).into_owned(),
    }
}

/// A name as it can be printed, of bounded length.
fn printable(name: &str) -> String {
    let short: String = name.trim().chars().take(NAME_CHARS_MAX).collect();
    plain(&short).into_owned()
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Longest file: some hundred bytes for each port of the largest fabric.
pub const TEXT_BYTES_MAX: usize = 32 << 20;
/// Longest line.
pub const LINE_BYTES_MAX: usize = 4_096;
/// Remarks that are kept.
pub const REMARKS_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 80;
