//! Chains of iptables as it was before 1.8 (`iptables-legacy`), which nftables knows nothing of.
//!
//! Only tables that are there already are asked: to ask for one makes it.
//!
//! Sources: Linux include/uapi/linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6/ip6_tables.h, netfilter/x_tables.h.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketType};

use crate::firewall::{BaseChain, Hook, Kind};
use crate::tcp::getsockopt;

/// How a version of IP asks.
struct Version {
    name: &'static str,
    /// Tables that are there, a name a line.
    tables: &'static str,
    socket: AddressFamily,
    level: libc::c_int,
    /// Place of `target_offset` in an entry, which `next_offset` follows.
    offsets: usize,
}

const VERSIONS: [Version; 2] = [
    Version {
        name: "ip",
        tables: "/proc/thread-self/net/ip_tables_names",
        socket: AddressFamily::INET,
        level: libc::IPPROTO_IP,
        offsets: 88,
    },
    Version {
        name: "ip6",
        tables: "/proc/thread-self/net/ip6_tables_names",
        socket: AddressFamily::INET6,
        level: libc::IPPROTO_IPV6,
        offsets: 140,
    },
];

/// All chains that filter or rewrite what comes, passes and leaves, in the namespace of the calling thread.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN, `EAGAIN` for a table that changes meanwhile or has more than 64 MiB of rules. A
/// kernel without these tables has no chains.
pub fn base_chains() -> io::Result<Vec<BaseChain>> {
    let mut chains = Vec::new();
    for version in &VERSIONS {
        // Without the file there are none; who may not read it may not ask either.
        let Ok(names) = fs::read_to_string(version.tables) else {
            continue;
        };
        for name in names.lines().filter(|name| TABLES.contains(name)) {
            chains.extend(of_table(version, name)?);
        }
    }
    Ok(chains)
}

fn of_table(version: &Version, table: &str) -> io::Result<Vec<BaseChain>> {
    let socket = rustix::net::socket(version.socket, SocketType::RAW, Some(RAW))?;
    let mut info = [0; INFO_BYTES];
    info[..table.len()].copy_from_slice(table.as_bytes());
    getsockopt(socket.as_fd(), version.level, GET_INFO, &mut info)?;
    let size = word(&info, INFO_BYTES - 4).unwrap_or(0);
    let size = usize::try_from(size).unwrap_or(0).min(ENTRIES_BYTES_MAX);
    let mut entries = vec![0; ENTRIES_HEAD + size];
    entries[..table.len()].copy_from_slice(table.as_bytes());
    let told = u32::try_from(size).unwrap_or(0).to_ne_bytes();
    entries[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&told);
    getsockopt(socket.as_fd(), version.level, GET_ENTRIES, &mut entries)?;
    Ok(chains(version, table, &info, &entries[ENTRIES_HEAD..]))
}

/// Chains of a table whose info and entries those are.
fn chains(version: &Version, table: &str, info: &[u8], entries: &[u8]) -> Vec<BaseChain> {
    let valid = word(info, NAME_BYTES).unwrap_or(0);
    let kind = match table {
        "nat" => Kind::Nat,
        _ => Kind::Filter,
    };
    let hooks = [
        (0, Hook::Prerouting, "PREROUTING"),
        (1, Hook::Input, "INPUT"),
        (2, Hook::Forward, "FORWARD"),
        (3, Hook::Output, "OUTPUT"),
        (4, Hook::Postrouting, "POSTROUTING"),
    ];
    let own = hooks.into_iter().filter(|(n, ..)| valid & (1 << n) != 0);
    let chain = |(number, hook, name): (usize, Hook, &str)| {
        let at = |first: usize| {
            let place = word(info, NAME_BYTES + 4 + 4 * (first + number))?;
            usize::try_from(place).ok()
        };
        let (mut entry, policy) = (at(0)?, at(HOOKS)?);
        let mut rules = 0;
        while entry < policy {
            rules += 1;
            let next = half(entries, entry + version.offsets + 2)?;
            entry += usize::from(next).max(1);
        }
        let target = usize::from(half(entries, policy + version.offsets)?);
        // -NF_DROP - 1.
        let drops = word(entries, policy + target + TARGET_BYTES)? == u32::MAX;
        Some(BaseChain {
            family: version.name,
            table: table.to_owned(),
            name: name.to_owned(),
            kind,
            hook,
            drops,
            rules,
            legacy: true,
        })
    };
    own.filter_map(chain).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(two.try_into().ok()?))
}

/// All that there are.
const TABLES: [&str; 5] = ["raw", "mangle", "nat", "filter", "security"];
/// XT_TABLE_MAXNAMELEN.
const NAME_BYTES: usize = 32;
/// NF_INET_NUMHOOKS.
const HOOKS: usize = 5;
/// struct ipt_getinfo: name, valid hooks, entries and policies by hook, their number, their size. The size stands
/// behind the number.
const INFO_BYTES: usize = NAME_BYTES + 4 + 8 * HOOKS + 8;
/// struct ipt_get_entries: name, size, then entries at 8.
const ENTRIES_HEAD: usize = 40;
/// No machine has so many rules.
const ENTRIES_BYTES_MAX: usize = 64 << 20;
/// struct xt_entry_target, before the verdict.
const TARGET_BYTES: usize = 32;
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;
/// IPPROTO_RAW.
const RAW: rustix::net::Protocol = rustix::net::ipproto::RAW;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;

    #[test]
    fn a_table_that_is_there_is_found_and_none_is_made() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let look = || {
            assert_eq!(base_chains().unwrap(), []);
            for version in &VERSIONS {
                // To ask for one makes it.
                let made = match of_table(version, "filter") {
                    Ok(made) => made,
                    Err(e) => {
                        testing::skipped(format_args!("this kernel has no iptables: {e}"));
                        return;
                    }
                };
                let hooks: Vec<Hook> = made.iter().map(|c| c.hook).collect();
                assert_eq!(hooks, [Hook::Input, Hook::Forward, Hook::Output]);
                assert!(made.iter().all(|c| !c.drops && c.rules == 0), "{made:?}");
            }
            let found = base_chains().unwrap();
            assert_eq!(found.len(), 6, "{found:?}");
            assert_eq!(
                (found[3].family, found[3].table.as_str()),
                ("ip6", "filter")
            );
        };
        ns.run(look).unwrap();
    }

    #[test]
    fn rules_before_the_policy_are_counted_and_a_drop_is_seen() {
        for version in &VERSIONS {
            let entry = |verdict: i32| {
                let target = version.offsets + 24;
                let mut bytes = vec![0; target + TARGET_BYTES + 8];
                let next = u16::try_from(bytes.len()).unwrap().to_ne_bytes();
                let offset = u16::try_from(target).unwrap().to_ne_bytes();
                bytes[version.offsets..version.offsets + 2].copy_from_slice(&offset);
                bytes[version.offsets + 2..version.offsets + 4].copy_from_slice(&next);
                let at = target + TARGET_BYTES;
                bytes[at..at + 4].copy_from_slice(&verdict.to_ne_bytes());
                bytes
            };
            let (accept, drop) = (entry(-2), entry(-1));
            let length = u32::try_from(accept.len()).unwrap();
            // INPUT has two rules and drops; OUTPUT has none and accepts; FORWARD is no hook of this table.
            let entries = [accept.clone(), accept.clone(), drop, accept].concat();
            let mut info = [0; INFO_BYTES];
            let mut put = |at: usize, value: u32| {
                let place = NAME_BYTES + 4 * at;
                info[place..place + 4].copy_from_slice(&value.to_ne_bytes());
            };
            put(0, 1 << 1 | 1 << 3);
            put(1 + 3, 3 * length);
            put(1 + HOOKS + 1, 2 * length);
            put(1 + HOOKS + 3, 3 * length);
            let found = chains(version, "filter", &info, &entries);
            assert_eq!(found.len(), 2, "{found:?}");
            let of = |at: usize| (found[at].hook, found[at].drops, found[at].rules);
            assert_eq!(of(0), (Hook::Input, true, 2));
            assert_eq!(of(1), (Hook::Output, false, 0));
            let nat = chains(version, "nat", &info, &entries);
            assert!(
                nat.iter().all(|c| c.kind == Kind::Nat && c.legacy),
                "{nat:?}"
            );
            // What ends early is no chain.
            for cut in [0, 1, entries.len() / 2] {
                assert!(chains(version, "filter", &info, &entries[..cut]).len() < 2);
            }
        }
    }
}
