//! What a machine's own packet filter has where packets come in, pass through and leave.
//!
//! By nftables, which iptables has been a front end of since 1.8; chains of the older iptables are in
//! [`legacy`](crate::legacy).
//!
//! Source: Linux include/uapi/linux/netfilter/nf_tables.h, net/netfilter/nf_tables_api.c.

use std::io;

use crate::nfnetlink::{Attributes, FAMILY_BYTES, Request, Socket, attributes};

/// Where a chain is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// All packets that come, before it is known where they go.
    Prerouting,
    /// Packets for this machine.
    Input,
    /// Packets for others.
    Forward,
    /// Packets of this machine.
    Output,
    /// All packets that leave.
    Postrouting,
}

/// What a chain decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What may go on; also by which way.
    Filter,
    /// Addresses and ports.
    Nat,
}

/// A chain that the kernel asks by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// `ip`, `ip6` or `inet`.
    pub family: &'static str,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// What it decides on.
    pub kind: Kind,
    /// When it is asked.
    pub hook: Hook,
    /// What no rule decides on is dropped.
    pub drops: bool,
    /// Number of its rules.
    pub rules: u32,
    /// It is one of iptables before 1.8.
    pub legacy: bool,
}

/// All chains that filter or rewrite what comes, passes and leaves, in the namespace of the calling thread.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN, `EPROTONOSUPPORT` and others in a kernel without nftables.
pub fn base_chains() -> io::Result<Vec<BaseChain>> {
    let ask = Request {
        kind: u16::from(SUBSYSTEM) << 8 | GET_CHAIN,
        flags: 0,
        family: 0,
        resource: 0,
        attributes: Attributes::new(),
    };
    Socket::open()?.dump(&ask, base_chain)
}

fn base_chain(body: &[u8]) -> Option<BaseChain> {
    let family = match body.first()? {
        1 => "inet",
        2 => "ip",
        10 => "ip6",
        _ => return None,
    };
    let all: Vec<(u16, &[u8])> = attributes(body.get(FAMILY_BYTES..)?).collect();
    let of = |kind: u16| all.iter().find(|(k, _)| *k == kind).map(|(_, v)| *v);
    let text = |kind: u16| {
        let bytes = of(kind)?.split(|b| *b == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let kind = match text(CHAIN_TYPE)?.as_str() {
        // The second one routes again what it has marked.
        "filter" | "route" => Kind::Filter,
        "nat" => Kind::Nat,
        _ => return None,
    };
    let hook = attributes(of(CHAIN_HOOK)?).find(|(k, _)| *k == HOOK_NUMBER)?;
    Some(BaseChain {
        family,
        table: text(CHAIN_TABLE)?,
        name: text(CHAIN_NAME)?,
        kind,
        hook: match be32(hook.1)? {
            0 => Hook::Prerouting,
            1 => Hook::Input,
            2 => Hook::Forward,
            3 => Hook::Output,
            4 => Hook::Postrouting,
            _ => return None,
        },
        drops: of(CHAIN_POLICY).and_then(be32) == Some(NF_DROP),
        rules: of(CHAIN_USE).and_then(be32).unwrap_or(0),
        legacy: false,
    })
}

fn be32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
}

const SUBSYSTEM: u8 = 10;
const GET_CHAIN: u16 = 4;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const NF_DROP: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;

    #[test]
    fn a_chain_that_drops_is_found_with_its_rules() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let request = |message: u16, attributes| Request {
            kind: u16::from(SUBSYSTEM) << 8 | message,
            // NLM_F_CREATE
            flags: 0x400,
            family: 2,
            resource: 0,
            attributes,
        };
        let made = ns.run(|| -> io::Result<Vec<BaseChain>> {
            assert_eq!(base_chains()?, []);
            let chain = |kind: &str, name: &str, hook: u32, policy: u32| {
                let hook = Attributes::new().be32(HOOK_NUMBER, hook).be32(2, 0);
                let own = Attributes::new()
                    .text(CHAIN_TABLE, "filter")
                    .text(CHAIN_NAME, name)
                    .nested(CHAIN_HOOK, &hook)
                    .be32(CHAIN_POLICY, policy)
                    .text(CHAIN_TYPE, kind);
                request(3, own)
            };
            let table = request(0, Attributes::new().text(1, "filter"));
            let rule = Attributes::new().text(1, "filter").text(2, "INPUT");
            let all = [
                table,
                chain("filter", "INPUT", 1, NF_DROP),
                chain("filter", "OUTPUT", 3, 1),
                request(6, rule),
            ];
            Socket::open()?.batch(SUBSYSTEM, &all)?;
            let chains = base_chains()?;
            let nat = chain("nat", "PREROUTING", 0, 1);
            match Socket::open()?.batch(SUBSYSTEM, &[nat]) {
                Ok(()) => {
                    let nat = base_chains()?.pop().unwrap();
                    assert_eq!((nat.kind, nat.hook), (Kind::Nat, Hook::Prerouting));
                }
                Err(e) => testing::skipped(format_args!("no NAT in this kernel: {e}")),
            }
            Ok(chains)
        });
        let chains = made.unwrap().unwrap();
        assert_eq!(chains.len(), 2, "{chains:?}");
        assert!(chains.iter().all(|c| c.kind == Kind::Filter && !c.legacy));
        assert_eq!((chains[0].family, chains[0].hook), ("ip", Hook::Input));
        assert_eq!((chains[0].drops, chains[0].rules), (true, 1));
        assert_eq!((chains[1].hook, chains[1].drops), (Hook::Output, false));
    }
}
