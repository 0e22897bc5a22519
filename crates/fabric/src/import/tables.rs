//! Forwarding tables of a running fabric: the output of `dump_lfts`, `dump_fts` or `ibroute`, and OpenSM's
//! `opensm-lfts.dump`.
//!
//! A block for each switch, a line for each destination by its local identifier (LID):
//!
//! ```text
//! Unicast lids [0x0-0x17] of switch Lid 6 guid 0x0008f10400411f56 (ISR9024 Voltaire):
//!   Lid  Out   Destination
//!        Port     Info
//! 0x0004 022 : (Channel Adapter portguid 0x0008f10403961355: 'node1 HCA-1')
//! 23 valid lids dumped
//! ```
//!
//! Switches are found by their GUID, hosts by the LID that the topology file has. Left out: further LIDs of a port (LMC),
//! entries for switches, tables of switches that the topology file does not have.

use std::collections::BTreeMap;

use crate::import::{Import, ImportError, lines, printable, refuse};
use crate::route::NO_WAY;
use crate::spec::Node;

/// Out-port of switch s towards host h at s * hosts + h, as [`crate::Routing::Table`] has it.
///
/// # Errors
/// [`ImportError`] with the line and what was expected there. Whether the tables lead to all hosts is not
/// checked here.
pub fn lfts(text: &str, import: &Import) -> Result<Vec<u8>, ImportError> {
    let names = &import.network.names;
    let hosts = import.lids.len();
    let mut by_lid: BTreeMap<u16, usize> = BTreeMap::new();
    for (host, lid) in import.lids.iter().enumerate() {
        let name = || names.node(Node::Host(u32::try_from(host).unwrap_or(u32::MAX)));
        let Some(lid) = lid else {
            return refuse(0, format!("the topology has no lid for {}", name()));
        };
        if by_lid.insert(*lid, host).is_some() {
            return refuse(
                0,
                format!("the topology has lid {lid} twice, the second is {}", name()),
            );
        }
    }
    let guids = import.guids.iter().enumerate();
    let by_guid: BTreeMap<u64, usize> = guids.filter_map(|(n, g)| Some(((*g)?, n))).collect();
    let ports = ports(import);
    let mut table = vec![NO_WAY; hosts * import.guids.len()];
    let mut blocks = 0;
    let mut current: Option<usize> = None;
    for (line, text) in lines(text)? {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("Unicast lids ") {
            let Some(guid) = guid(rest) else {
                return refuse(line, "expected the switch's 'guid 0x...' in this line");
            };
            current = by_guid.get(&guid).copied();
            blocks += 1;
            continue;
        }
        if !text.starts_with("0x") {
            let known = text.is_empty()
                || text.starts_with('#')
                || text.ends_with("dumped")
                || ["Lid ", "Port "].iter().any(|word| text.starts_with(word));
            match known {
                true => continue,
                false => {
                    let problem = format!(
                        "'{}': expected a line 'Unicast lids ...' or '0x0001 017 : ...'",
                        printable(text)
                    );
                    return refuse(line, problem);
                }
            }
        }
        if blocks == 0 {
            return refuse(line, "an entry before any line 'Unicast lids ...'");
        }
        let mut words = text.split_whitespace();
        let lid = words.next().and_then(|w| w.strip_prefix("0x"));
        let lid = lid.and_then(|w| u16::from_str_radix(w, 16).ok());
        let port: Option<u8> = words.next().and_then(|w| w.parse().ok());
        let (Some(lid), Some(port)) = (lid, port) else {
            return refuse(line, "expected a lid such as 0x0001 and a port of 0 to 255");
        };
        let (Some(switch), Some(host)) = (current, by_lid.get(&lid)) else {
            continue;
        };
        let Some(out) = ports.get(&(switch, u32::from(port))) else {
            let node = Node::Switch(u32::try_from(switch).unwrap_or(u32::MAX));
            return refuse(
                line,
                format!("port {port} of {} has no cable", names.node(node)),
            );
        };
        let place = &mut table[switch * hosts + host];
        if *place != NO_WAY {
            return refuse(
                line,
                format!("lid {lid:#06x} is in this switch's table already"),
            );
        }
        *place = *out;
    }
    match blocks {
        0 => refuse(0, "there is no line 'Unicast lids ...'"),
        _ => Ok(table),
    }
}

/// Place of each switch's port among those with cables, by the number that it has in the file.
fn ports(import: &Import) -> BTreeMap<(usize, u32), u8> {
    let network = &import.network;
    let mut found = BTreeMap::new();
    let mut next = vec![0_u8; network.spec.switches.len()];
    for (n, link) in network.spec.links.iter().enumerate() {
        let numbers = network.names.ports(n).unwrap_or_default();
        for (end, number) in link.ends.iter().zip(numbers) {
            if let Node::Switch(switch) = end {
                let switch = *switch as usize;
                found.insert((switch, number), next[switch]);
                next[switch] += 1;
            }
        }
    }
    found
}

/// `... guid 0x0008f10400411f56 (name):`
fn guid(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once(" guid 0x")?;
    let end = rest.find(|c: char| !c.is_ascii_hexdigit());
    u64::from_str_radix(&rest[..end.unwrap_or(rest.len())], 16).ok()
}
