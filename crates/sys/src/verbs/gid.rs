//! Addresses (GIDs) of RDMA ports as sysfs tells them, and which of them to take.
//!
//! Over RoCE v2 an address is an IPv6 address, or an IPv4 one mapped into it (IBTA Annex A17.4);
//! each of an interface's addresses is in the table twice, once for each version of RoCE.
//!
//! Source: Linux Documentation/ABI/stable/sysfs-class-infiniband (gids, gid_attrs/types, ndevs).

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use super::Choice;

/// An entry of a port's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) index: u8,
    pub(super) gid: [u8; 16],
    /// As the kernel names it.
    pub(super) kind: String,
    pub(super) interface: String,
}

/// How well an address fits; the greater the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    routed: bool,
    same: bool,
    same_family: bool,
    global: bool,
}

/// Names in a folder, sorted.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A device's ports.
pub(super) fn ports(device: &Path) -> Vec<u8> {
    let names = names(&device.join("ports"));
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// A port's table, empty entries left out.
pub(super) fn table(device: &Path, port: u8) -> Vec<Entry> {
    let folder = device.join("ports").join(port.to_string());
    let read = |path: &str, index: u8| {
        let text = fs::read_to_string(folder.join(path).join(index.to_string()));
        // An entry without an interface or a type answers with EINVAL.
        text.map_or_else(|_| String::new(), |text| text.trim().to_owned())
    };
    let entry = |index: u8| {
        let gid = parse(&read("gids", index))?;
        Some(Entry {
            index,
            gid,
            kind: read("gid_attrs/types", index),
            interface: read("gid_attrs/ndevs", index),
        })
    };
    let indices = names(&folder.join("gids"));
    let mut indices: Vec<u8> = indices.iter().filter_map(|n| n.parse().ok()).collect();
    indices.sort_unstable();
    indices.into_iter().filter_map(entry).collect()
}

/// The entry to send from. Over RoCE v2 packets are routed, so that comes first; then the very
/// address of the connection beside which messages go, or one of its family.
pub(super) fn choose<'a>(
    entries: &'a [Entry],
    choice: &Choice,
    local: Option<IpAddr>,
) -> Option<(Score, &'a Entry)> {
    let wanted = |entry: &&Entry| {
        choice.gid_index.is_none_or(|index| index == entry.index)
            && choice
                .interface
                .as_ref()
                .is_none_or(|name| *name == entry.interface)
    };
    let scored = entries.iter().filter(wanted).map(|e| (score(e, local), e));
    scored.reduce(|best, next| if next.0 > best.0 { next } else { best })
}

fn score(entry: &Entry, local: Option<IpAddr>) -> Score {
    let address = Ipv6Addr::from(entry.gid);
    let local = local.map(|ip| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    });
    let mapped = |ip: Ipv6Addr| ip.to_ipv4_mapped().is_some();
    Score {
        routed: entry.kind.contains("RoCE v2"),
        same: local == Some(address),
        same_family: local.is_some_and(|ip| mapped(ip) == mapped(address)),
        global: !address.is_unicast_link_local(),
    }
}

/// Eight groups of four hexadecimal digits; `None` for anything else and for an empty entry.
fn parse(text: &str) -> Option<[u8; 16]> {
    let gid = text.parse::<Ipv6Addr>().ok()?.octets();
    // The prefix of fe80 alone is what an empty InfiniBand entry looks like.
    (gid[8..] != [0; 8]).then_some(gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, gid: &str, kind: &str, interface: &str) -> Entry {
        Entry {
            index,
            gid: parse(gid).unwrap(),
            kind: kind.to_owned(),
            interface: interface.to_owned(),
        }
    }

    fn entries() -> Vec<Entry> {
        let (mac, v4) = (
            "fe80:0000:0000:0000:0202:c9ff:fe00:0001",
            "0000:0000:0000:0000:0000:ffff:c612:0101",
        );
        let v6 = "2001:0db8:0000:0000:0000:0000:0000:0001";
        vec![
            entry(0, mac, "IB/RoCE v1", "eth0"),
            entry(1, mac, "RoCE v2", "eth0"),
            entry(2, v4, "IB/RoCE v1", "eth0"),
            entry(3, v4, "RoCE v2", "eth0"),
            entry(4, v6, "RoCE v2", "eth0"),
            entry(5, v4, "RoCE v2", "eth0.5"),
        ]
    }

    #[test]
    fn the_address_of_the_connection_is_taken_over_roce_v2() {
        let entries = entries();
        let taken = |choice: &Choice, local: Option<&str>| {
            let local = local.map(|ip| ip.parse().unwrap());
            choose(&entries, choice, local).map(|(_, entry)| entry.index)
        };
        let any = Choice::default();
        assert_eq!(taken(&any, Some("198.18.1.1")), Some(3));
        assert_eq!(taken(&any, Some("198.18.9.9")), Some(3), "its family");
        assert_eq!(taken(&any, Some("2001:db8::9")), Some(4));
        assert_eq!(taken(&any, Some("fe80::202:c9ff:fe00:1")), Some(1));
        assert_eq!(taken(&any, None), Some(3), "none that is local to the link");
        let vlan = Choice {
            interface: Some("eth0.5".to_owned()),
            ..Choice::default()
        };
        assert_eq!(taken(&vlan, None), Some(5));
        let index = |n| Choice {
            gid_index: Some(n),
            ..Choice::default()
        };
        assert_eq!(taken(&index(2), Some("198.18.1.1")), Some(2));
        assert_eq!(taken(&index(6), None), None);
    }

    #[test]
    fn empty_entries_are_none() {
        assert_eq!(parse("0000:0000:0000:0000:0000:0000:0000:0000"), None);
        assert_eq!(parse("fe80:0000:0000:0000:0000:0000:0000:0000"), None);
        assert_eq!(parse(""), None);
        assert!(parse("fe80:0000:0000:0000:0000:0000:0000:0001").is_some());
    }

    #[test]
    fn a_table_is_read_from_a_tree_like_the_kernels() {
        let root = std::env::temp_dir().join(format!("goodput-gids-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "rxe0/ports/1/gids/0",
            "fe80:0000:0000:0000:0202:c9ff:fe00:0001\n",
        );
        write(
            "rxe0/ports/1/gids/10",
            "0000:0000:0000:0000:0000:ffff:c612:0101\n",
        );
        write(
            "rxe0/ports/1/gids/11",
            "0000:0000:0000:0000:0000:0000:0000:0000\n",
        );
        write("rxe0/ports/1/gid_attrs/types/10", "RoCE v2\n");
        write("rxe0/ports/1/gid_attrs/ndevs/10", "veth0\n");
        assert_eq!(names(&root), ["rxe0"]);
        assert_eq!(ports(&root.join("rxe0")), [1]);
        let table = table(&root.join("rxe0"), 1);
        let seen: Vec<(u8, &str, &str)> = table
            .iter()
            .map(|e| (e.index, e.kind.as_str(), e.interface.as_str()))
            .collect();
        assert_eq!(seen, [(0, "", ""), (10, "RoCE v2", "veth0")]);
        fs::remove_dir_all(&root).unwrap();
    }
}
