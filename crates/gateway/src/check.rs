//! What a gateway would find here, without a change of anything that lasts.

mod ways;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use sys::firewall::{self, BaseChain, Hook, Kind};
use sys::host;
use sys::legacy;
use sys::netlink::Netlink;
use sys::nftables::{Expression, probe};
use sys::transparent::ANY;

use crate::config::{Config, Mode, PORTS_PER_WORKER, Zone};
use crate::install::{self, QueueBy, accepting, diversion};
use crate::service::{descriptors_for, make_room_for, room_in};
use crate::sockets;
pub use ways::ways;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As it should be.
    Fine,
    /// The gateway runs, and something is not as it could be.
    Poor,
    /// The gateway cannot run.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Checked {
    /// How it is.
    pub level: Level,
    /// What.
    pub what: String,
    /// What to do about it; empty where it is fine.
    pub advice: String,
}

/// Looks at everything that a gateway needs, in the network namespace of the calling thread.
pub fn check(config: &Config) -> Vec<Checked> {
    let mut list = List::default();
    if let Err(e) = config.check() {
        list.missing(&e.to_string(), "correct it in the file or the flags");
        return list.0;
    }
    list.fine("the configuration is whole");
    for (zone, side) in Zone::BOTH.into_iter().zip(&config.zones) {
        for name in &side.interfaces {
            interface(&mut list, zone, name);
        }
        if let Some(name) = &side.congestion {
            match sockets::check_congestion_of(zone, name) {
                Ok(()) => list.fine(&format!("{}: congestion control {name}", zone.name())),
                Err(e) => list.missing(&e.to_string(), "name another, or load its module"),
            }
        }
    }
    match config.mode {
        Mode::Transparent => transparent(&mut list, config),
        Mode::Explicit { listen, target } => explicit(&mut list, listen, target),
    }
    black_holes(&mut list);
    descriptors(&mut list, config);
    list.0
}

/// The first interface that is named and is not here, in words.
pub fn absent_interface(config: &Config) -> Option<String> {
    let mut netlink = Netlink::open().ok()?;
    for zone in Zone::BOTH {
        for name in &config.zone(zone).interfaces {
            if let Err(e) = netlink.index_of(name) {
                return Some(format!("{}: {name}: {e}", zone.name()));
            }
        }
    }
    None
}

/// What is listened at, and where connections go on to. Both are tried: a listener that nobody is told of, and a
/// connection that is closed at once.
fn explicit(list: &mut List, listen: SocketAddr, target: SocketAddr) {
    match TcpListener::bind(listen) {
        Ok(_) => list.fine(&format!("{listen} can be listened at")),
        Err(e) => list.missing(
            &format!("listening at {listen}: {e}"),
            match e.kind() {
                io::ErrorKind::AddrInUse => "choose another port, or end who has it: `ss -ltnp`",
                io::ErrorKind::AddrNotAvailable => "name an address of this machine: `ip address`",
                _ => "choose another address or port",
            },
        ),
    }
    match TcpStream::connect_timeout(&target, TARGET_PATIENCE) {
        Ok(_) => list.fine(&format!("{target} accepts connections")),
        Err(e) => list.poor(
            &format!("connecting to {target}: {e}"),
            "until it accepts, connections to the gateway are reset",
        ),
    }
}

/// Where a packet is too big for a link and nobody says so, only probing finds a size that passes.
fn black_holes(list: &mut List) {
    let key = "net.ipv4.tcp_mtu_probing";
    match host::read_sysctl(key) {
        Ok(text) if text.trim() == "0" => list.poor(
            "where a router drops large packets and does not say so, connections stall (tcp_mtu_probing)",
            &format!("sysctl -w {key}=1"),
        ),
        Ok(_) => list.fine("packet sizes are probed where none gets through (tcp_mtu_probing)"),
        // Nothing is known of it.
        Err(_) => {}
    }
}

#[derive(Default)]
struct List(Vec<Checked>);

impl List {
    fn put(&mut self, level: Level, what: &str, advice: &str) {
        self.0.push(Checked {
            level,
            what: what.to_owned(),
            advice: advice.to_owned(),
        });
    }

    fn fine(&mut self, what: &str) {
        self.put(Level::Fine, what, "");
    }

    fn poor(&mut self, what: &str, advice: &str) {
        self.put(Level::Poor, what, advice);
    }

    fn missing(&mut self, what: &str, advice: &str) {
        self.put(Level::Missing, what, advice);
    }
}

fn interface(list: &mut List, zone: Zone, name: &str) {
    let zone = zone.name();
    let found = Netlink::open().and_then(|mut n| n.mtu_and_state(name));
    match found {
        Ok((mtu, true)) => list.fine(&format!("{zone}: {name} is up, MTU {mtu}")),
        Ok((_, false)) => list.missing(
            &format!("{zone}: {name} is down"),
            &format!("ip link set {name} up"),
        ),
        Err(e) => list.missing(
            &format!("{zone}: {name}: {e}"),
            "name an interface of `ip link`",
        ),
    }
}

fn transparent(list: &mut List, config: &Config) {
    if let Err(e) = probe(vec![Expression::Tcp]) {
        let advice = match e.kind() {
            io::ErrorKind::PermissionDenied => "run it as root, or give it CAP_NET_ADMIN",
            _ => "load nf_tables, Linux 5.12 or later",
        };
        return list.missing(&format!("nftables: {e}"), advice);
    }
    list.fine("nftables: tables that go with their owner");
    let to = accepting(config, 0, Zone::Inside, sys::nftables::IpVersion::V4);
    for (what, module, expression) in [
        (
            "nftables: tproxy",
            "nft_tproxy",
            vec![
                Expression::Version(sys::nftables::IpVersion::V4),
                Expression::Tcp,
                Expression::ToSocket(to.ip(), to.port()),
            ],
        ),
        (
            "nftables: socket transparent",
            "nft_socket",
            vec![Expression::TransparentSocket],
        ),
        (
            "nftables: fib",
            "nft_fib_inet",
            vec![Expression::DestinationElsewhere],
        ),
        (
            "nftables: reject",
            "nft_reject_inet",
            vec![Expression::Tcp, Expression::Reset],
        ),
    ] {
        match probe(expression) {
            Ok(()) => list.fine(what),
            Err(e) => list.missing(&format!("{what}: {e}"), &format!("load {module}")),
        }
    }
    match QueueBy::find() {
        Ok(Some(QueueBy::Nftables)) => list.fine("SYNs wait in nftables' queue"),
        Ok(Some(QueueBy::Extension)) => list.fine("SYNs wait in iptables' NFQUEUE"),
        Err(e) => list.missing(
            &format!("asking nftables for a queue: {e}"),
            "run it as root, or give it CAP_NET_ADMIN",
        ),
        Ok(None) => list.missing(
            "neither nftables' queue nor iptables' NFQUEUE",
            "load nft_queue or xt_NFQUEUE",
        ),
    }
    privileged_ports(list);
    routing(list, config);
    several_links(list, config);
    let mut chains = Vec::new();
    for found in [firewall::base_chains(), legacy::base_chains()] {
        match found {
            Ok(found) => chains.extend(found),
            Err(e) => list.poor(
                &format!("the machine's packet filter: {e}"),
                "what it drops is not known; look by nft list ruleset and iptables-legacy-save",
            ),
        }
    }
    filters(list, config, &chains);
    let syns = (0..config.workers).map(|worker| config.queue + u16::from(worker));
    let acks = (0..config.workers).filter_map(|worker| install::hold_queue(config, worker));
    for number in syns.chain(acks) {
        match sys::nfqueue::Queue::bind(number, 1, 64) {
            Ok(_) => {}
            Err(e) => list.missing(
                &format!("queue {number} of netfilter: {e}"),
                "choose others by `queue`; another gateway may be running",
            ),
        }
    }
    let first = config.port;
    let last = first + u16::from(config.workers) * PORTS_PER_WORKER - 1;
    let taken = (first..=last).find(|port| {
        let bound = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, *port));
        bound.is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse)
    });
    match taken {
        None => list.fine(&format!(
            "ports {first} to {last} of the loopback address are free"
        )),
        Some(port) => list.missing(
            &format!("port {port} of the loopback address is taken"),
            "choose others by `port`",
        ),
    }
}

/// Clients of NFS and rsh have such ports, and the gateway connects from their ports.
fn privileged_ports(list: &mut List) {
    let bound = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 1));
    match bound {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => list.poor(
            "clients with ports below 1024 pass unsplit: their ports cannot be kept",
            "run it as root, or give it CAP_NET_BIND_SERVICE",
        ),
        _ => list.fine("clients' ports below 1024 can be kept"),
    }
}

fn routing(list: &mut List, config: &Config) {
    let up = Netlink::open().and_then(|mut n| n.mtu_and_state("lo"));
    if !up.is_ok_and(|(_, up)| up) {
        list.missing("lo is down", "ip link set lo up");
    }
    for any in ANY {
        let (version, key) = match any.is_ipv4() {
            true => ("IPv4", "net.ipv4.ip_forward"),
            false => ("IPv6", "net.ipv6.conf.all.forwarding"),
        };
        match host::read_sysctl(key) {
            Ok(text) if text.trim() != "0" => list.fine(&format!("{version} is forwarded")),
            Ok(_) => list.poor(
                &format!("{version} is not forwarded: what is not split goes nowhere"),
                &format!("sysctl -w {key}=1"),
            ),
            Err(_) => list.poor(&format!("no {version} here"), "nothing of it will be split"),
        }
    }
    // The kernel refuses a route in a table that others use only if it is the same.
    for table in install::tables(config) {
        match Netlink::open().and_then(|mut n| n.routes_in(table)) {
            Ok(0) => list.fine(&format!("routing table {table} is free")),
            Ok(count) => list.poor(
                &format!("routing table {table} has {count} routes"),
                "another gateway may be running; choose another by `table`",
            ),
            Err(e) => list.poor(&format!("routing table {table}: {e}"), ""),
        }
    }
    let d = diversion(config);
    list.fine(&format!("what is taken up has mark {:#x}", d.mark));
}

/// Packets of split connections come to this machine and leave from it; they do not pass through.
fn filters(list: &mut List, config: &Config, chains: &[BaseChain]) {
    let mark = diversion(config).mark;
    let mut found = false;
    for chain in chains {
        let BaseChain {
            family,
            table,
            name,
            drops,
            rules,
            ..
        } = chain;
        let place = format!("{family} {table} {name}");
        // What lets packets in by their mark.
        let insertion = match (chain.legacy, *family) {
            (false, _) => format!("nft insert rule {place} meta mark {mark:#x} accept"),
            (true, "ip6") => {
                format!("ip6tables-legacy -t {table} -I {name} -m mark --mark {mark:#x} -j ACCEPT")
            }
            (true, _) => {
                format!("iptables-legacy -t {table} -I {name} -m mark --mark {mark:#x} -j ACCEPT")
            }
        };
        let whose = if chain.legacy { "iptables-legacy " } else { "" };
        let after = if *drops { "drops" } else { "accepts" };
        let state = match chain.kind {
            Kind::Filter => format!("packet filter {whose}{place}: {rules} rules, then it {after}"),
            Kind::Nat => format!("NAT {whose}{place}: {rules} rules"),
        };
        match (chain.kind, chain.hook, *drops, *rules) {
            (_, _, false, 0) => continue,
            (Kind::Nat, Hook::Prerouting, ..) => list.poor(
                &format!("{state}; connections are taken up before it"),
                "the servers that it leads elsewhere, pass unsplit by a rule of the gateway (action = \"bypass\")",
            ),
            // Half a connection is no connection to it.
            (Kind::Nat, Hook::Output | Hook::Postrouting, ..) => list.poor(
                &format!("{state}; split connections pass it as they are, with their clients' addresses"),
                "have another router rewrite them, or pass what needs it unsplit by a rule of the gateway (action = \"bypass\")",
            ),
            (Kind::Filter, Hook::Prerouting, true, _) => list.poor(
                &format!("{state}; packets of split connections pass it"),
                "let TCP of both sides in: what it forbids ends them",
            ),
            // What these do to a connection that is split, they do to one that is not.
            (Kind::Nat, ..)
            | (Kind::Filter, Hook::Prerouting, false, _)
            | (Kind::Filter, Hook::Postrouting, ..) => continue,
            (Kind::Filter, Hook::Input, ..) => list.poor(
                &format!("{state}; packets of split connections pass it"),
                &format!("let them in first: {insertion}"),
            ),
            (Kind::Filter, Hook::Output, true, _) => list.poor(
                &format!("{state}; both halves of split connections leave through it"),
                "let TCP out to where split connections lead: what it forbids ends them",
            ),
            // Rules of it still forbid what leaves.
            (Kind::Filter, Hook::Output, false, _) => continue,
            (Kind::Filter, Hook::Forward, ..) => list.poor(
                &format!("{state}; split connections do not pass it"),
                "what it forbids, forbid by a rule of the gateway (action = \"refuse\")",
            ),
        }
        found = true;
    }
    if !found {
        list.fine("no packet filter is in the way of split connections");
    }
}

/// Answers may come by another link than that by which the connection left.
fn several_links(list: &mut List, config: &Config) {
    for zone in Zone::BOTH {
        let names = &config.zone(zone).interfaces;
        if names.len() < 2 {
            continue;
        }
        for name in names {
            // The kernel goes by the larger of the two (ip-sysctl.rst).
            let filter = |scope: &str| -> u8 {
                let text = host::read_sysctl(&format!("net.ipv4.conf.{scope}.rp_filter"));
                text.ok().and_then(|t| t.parse().ok()).unwrap_or(0)
            };
            if filter("all").max(filter(name)) == 1 {
                list.poor(
                    &format!(
                        "{}: {name} drops what comes by it and would leave by another (rp_filter)",
                        zone.name()
                    ),
                    &format!(
                        "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{name}.rp_filter=2"
                    ),
                );
            }
        }
        let spread = config.zone(zone).spread;
        list.fine(&format!(
            "{}: connections are spread over {} links, {spread:?}",
            zone.name(),
            names.len()
        ));
    }
}

fn descriptors(list: &mut List, config: &Config) {
    let have = make_room_for(config.limits.connections);
    let need = descriptors_for(config.limits.connections);
    if have >= need {
        list.fine(&format!("{have} descriptors"));
    } else {
        let wanted = config.limits.connections;
        let room = room_in(have);
        list.poor(
            &match room < wanted {
                true => format!(
                    "{have} descriptors are enough for {room} of {wanted} connections; more {}",
                    match config.mode {
                        Mode::Transparent => "pass unsplit",
                        Mode::Explicit { .. } => "are reset",
                    }
                ),
                false => format!(
                    "{have} descriptors: when many of {wanted} connections are busy, some go by copying"
                ),
            },
            &format!("LimitNOFILE={need}, or a lower limit of connections"),
        );
    }
    let pipes = fs::read_to_string("/proc/sys/fs/pipe-max-size");
    let size: u64 = pipes.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0);
    if size >= 1 << 20 {
        list.fine("pipes of 1 MiB");
    } else {
        list.poor("pipes are small", "sysctl -w fs.pipe-max-size=1048576");
    }
}

/// For the target's answer: as long as who types `check` waits gladly.
const TARGET_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listened_at_and_connected_to_is_tried() {
        let said = |listen: SocketAddr, target: SocketAddr| {
            let mut list = List::default();
            explicit(&mut list, listen, target);
            let levels = list.0.iter().map(|c| c.level).collect::<Vec<_>>();
            let what = list
                .0
                .iter()
                .map(|c| c.what.clone() + &c.advice)
                .collect::<String>();
            (levels, what)
        };
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = server.local_addr().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        assert_eq!(said(any, target).0, [Level::Fine, Level::Fine]);
        // 192.0.2.0/24 is nobody's (RFC 5737).
        let (levels, what) = said(([192, 0, 2, 1], 5001).into(), target);
        assert_eq!(levels, [Level::Missing, Level::Fine]);
        assert!(what.contains("an address of this machine"), "{what}");
        let (levels, what) = said(target, target);
        assert_eq!(levels, [Level::Missing, Level::Fine]);
        assert!(what.contains("choose another port"), "{what}");
        drop(server);
        let (levels, what) = said(any, target);
        assert_eq!(levels, [Level::Fine, Level::Poor]);
        assert!(what.contains("are reset"), "{what}");
    }

    #[test]
    fn what_is_beyond_the_descriptors_passes_or_is_reset_as_the_mode_has_it() {
        let mut config = Config::default();
        config.limits.connections = usize::MAX;
        let said = |config: &Config| {
            let mut list = List::default();
            descriptors(&mut list, config);
            list.0[0].what.clone()
        };
        assert!(said(&config).ends_with("more pass unsplit"));
        config.mode = Mode::Explicit {
            listen: ([127, 0, 0, 1], 1).into(),
            target: ([127, 0, 0, 1], 2).into(),
        };
        assert!(said(&config).ends_with("more are reset"));
    }

    #[test]
    fn a_congestion_control_that_is_not_there_is_missing() {
        let mut config = Config {
            mode: Mode::Explicit {
                listen: ([127, 0, 0, 1], 0).into(),
                target: ([127, 0, 0, 1], 1).into(),
            },
            ..Config::default()
        };
        config.zones[0].congestion = Some("bogus".to_owned());
        let list = check(&config);
        let it = list.iter().find(|c| c.what.contains("bogus")).unwrap();
        assert_eq!(it.level, Level::Missing);
        let started = crate::Gateway::start(config).map(drop).unwrap_err();
        assert!(
            matches!(started, crate::GatewayError::Config(_)),
            "{started}"
        );
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let mut config = Config::default();
        config.zones[0].interfaces = vec!["lo".to_owned()];
        assert_eq!(absent_interface(&config), None);
        config.zones[1].interfaces = vec!["nowhere".to_owned()];
        let said = absent_interface(&config).unwrap();
        assert!(said.starts_with("outside: nowhere: "), "{said}");
    }

    #[test]
    fn a_filter_in_the_way_is_named_with_what_to_do() {
        let chain = |hook, drops, rules| BaseChain {
            family: "inet",
            table: "filter".into(),
            name: "x".into(),
            kind: Kind::Filter,
            hook,
            drops,
            rules,
            legacy: false,
        };
        let said = |chains: &[BaseChain]| {
            let mut list = List::default();
            filters(&mut list, &Config::default(), chains);
            list.0
        };
        let nat = |hook, rules| BaseChain {
            kind: Kind::Nat,
            ..chain(hook, false, rules)
        };
        for harmless in [
            chain(Hook::Input, false, 0),
            chain(Hook::Output, false, 3),
            chain(Hook::Prerouting, false, 3),
            nat(Hook::Prerouting, 0),
            nat(Hook::Input, 1),
        ] {
            assert_eq!(said(&[harmless])[0].level, Level::Fine);
        }
        let input = said(&[chain(Hook::Input, true, 0)]);
        assert_eq!(input[0].level, Level::Poor);
        let advice = "nft insert rule inet filter x meta mark 0x47504000 accept";
        assert!(input[0].advice.ends_with(advice), "{input:?}");
        for (family, program) in [("ip", "iptables-legacy"), ("ip6", "ip6tables-legacy")] {
            let old = BaseChain {
                family,
                name: "INPUT".into(),
                legacy: true,
                ..chain(Hook::Input, true, 1)
            };
            let said = &said(&[old])[0];
            let advice =
                format!(" {program} -t filter -I INPUT -m mark --mark 0x47504000 -j ACCEPT");
            assert!(said.advice.ends_with(&advice), "{said:?}");
            assert!(said.what.contains("iptables-legacy"), "{said:?}");
        }
        let early = said(&[chain(Hook::Prerouting, true, 0), nat(Hook::Prerouting, 2)]);
        assert!(early[0].what.contains("then it drops"), "{early:?}");
        assert!(early[1].advice.contains("bypass"), "{early:?}");
        let late = &said(&[nat(Hook::Postrouting, 1)])[0];
        assert!(late.what.starts_with("NAT "), "{late:?}");
        assert!(late.advice.contains("another router"), "{late:?}");
        let forward = said(&[chain(Hook::Forward, false, 2), chain(Hook::Output, true, 2)]);
        assert!(forward[0].advice.contains("refuse"), "{forward:?}");
        assert!(forward[1].what.contains("leave through it"), "{forward:?}");
        assert_eq!(forward.len(), 2);
    }
}
