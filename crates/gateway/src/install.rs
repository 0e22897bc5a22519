//! What is put into the kernel so that connections come to the gateway, and how it goes away again.
//!
//! A SYN that comes in by one of the named interfaces and is for another machine waits in a queue for the
//! gateway's word, which is a mark. The next chain does as the mark says: gives it to an accepting socket,
//! lets it pass, or answers it. Packets of connections that stand find their socket without any list.
//!
//! So nothing but SYNs, answers to our own that have a class of service, and resets of connections that are not split
//! ever waits for the gateway, and where it is gone everything passes: the queue's rule lets packets by when nobody
//! listens, and the table goes with the process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use sys::netlink::Netlink;
use sys::nftables::{At, Chain, Expression, IpVersion, Owned, Table, Unreachable, probe};
use sys::transparent::{ANY, Diversion};
use sys::uplink::LinkTable;

use crate::config::{Config, PORTS_PER_WORKER, Zone};
use crate::untracked;

/// What a SYN's mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the accepting socket of this worker for this side.
    Split(Zone, u8),
    /// On, unsplit.
    Pass,
    /// Answer with a reset.
    Reset,
    /// Answer that it cannot be reached.
    Unreachable(Unreachable),
}

impl Word {
    /// As a packet's mark.
    pub fn mark(self, config: &Config) -> u32 {
        let low = match self {
            Self::Split(zone, worker) => {
                0x1000 + 0x100 * u16::from(zone == Zone::Outside) + u16::from(worker)
            }
            Self::Pass => 0x2000,
            Self::Reset => 0x3000,
            Self::Unreachable(Unreachable::NoRoute) => 0x3001,
            Self::Unreachable(Unreachable::Host) => 0x3002,
            Self::Unreachable(Unreachable::Prohibited) => 0x3003,
        };
        mark(config, low)
    }
}

fn mark(config: &Config, low: u16) -> u32 {
    u32::from(config.mark) << 16 | u32::from(low)
}

/// How the kernel hands packets to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueBy {
    /// nftables' own expression.
    Nftables,
    /// iptables' extension.
    Extension,
}

impl QueueBy {
    const fn to(self, number: u16) -> Expression {
        match self {
            Self::Nftables => Expression::Queue(number),
            Self::Extension => Expression::QueueByExtension(number),
        }
    }

    /// What this kernel has; `None` when neither.
    ///
    /// # Errors
    /// Where it does not say: `EPERM` without CAP_NET_ADMIN.
    pub fn find() -> io::Result<Option<Self>> {
        for by in [Self::Nftables, Self::Extension] {
            match probe(vec![Expression::Tcp, by.to(0)]) {
                Ok(()) => return Ok(Some(by)),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(e),
                Err(e) => tracing::debug!("{by:?}: {e}"),
            }
        }
        Ok(None)
    }
}

/// The address at which a worker accepts connections of clients on one side, of one version of IP. It is a
/// loopback address: from outside nobody can connect to it.
pub fn accepting(config: &Config, worker: u8, zone: Zone, version: IpVersion) -> SocketAddr {
    let first = config.port + u16::from(worker) * PORTS_PER_WORKER;
    let zone = if zone == Zone::Outside { 2 } else { 0 };
    match version {
        IpVersion::V4 => (Ipv4Addr::LOCALHOST, first + zone).into(),
        IpVersion::V6 => (Ipv6Addr::LOCALHOST, first + zone + 1).into(),
    }
}

/// The table for nftables.
pub fn table(config: &Config, queue: QueueBy) -> Table {
    Table {
        name: table_name(config),
        chains: untracked::chains(diversion(config).mark)
            .into_iter()
            .chain(last_acks(config, queue))
            .chain([
                Chain {
                    name: "hold".into(),
                    at: At::Prerouting,
                    // Before mangle (-150), after conntrack (-200): what belongs to nobody is sorted out.
                    priority: -152,
                    rules: hold(config, queue),
                },
                Chain {
                    name: "divert".into(),
                    at: At::Prerouting,
                    priority: -151,
                    rules: divert(config, queue),
                },
            ])
            .collect(),
    }
}

/// What halves send whose last ACK is held back; none where nobody wants that.
fn last_acks(config: &Config, queue: QueueBy) -> Option<Chain> {
    use Expression as E;
    let rule = |worker| {
        Some(vec![
            E::Mark(hold_mark(config, worker)),
            E::Tcp,
            // Neither handshakes nor resets.
            E::TcpFlags(SYN | RST, 0),
            queue.to(hold_queue(config, worker)?),
        ])
    };
    let rules: Vec<_> = (0..config.workers).filter_map(rule).collect();
    (!rules.is_empty()).then_some(Chain {
        name: "acks".into(),
        at: At::Output,
        priority: 0,
        rules,
    })
}

/// The mark of what a worker's halves send whose last ACK is held back.
pub fn hold_mark(config: &Config, worker: u8) -> u32 {
    mark(config, 0x6000 + u16::from(worker))
}

/// The queue that it passes; `None` where no side wants that.
pub fn hold_queue(config: &Config, worker: u8) -> Option<u16> {
    let any = config.zones.iter().any(|z| z.hold_last_ack);
    any.then(|| config.queue + u16::from(config.workers) + u16::from(worker))
}

fn table_name(config: &Config) -> String {
    format!("goodput-gateway-{}", config.queue)
}

fn hold(config: &Config, queue: QueueBy) -> Vec<Vec<Expression>> {
    to_workers(config, queue, SYN).collect()
}

/// What comes in by a side's interfaces for other machines with these flags alone goes to a queue: to that of the
/// worker that the client's port says, where there are several.
fn to_workers(
    config: &Config,
    queue: QueueBy,
    flags: u8,
) -> impl Iterator<Item = Vec<Expression>> + '_ {
    use Expression as E;
    let names = config.zones.iter().flat_map(|z| &z.interfaces);
    names.flat_map(move |name| {
        (0..config.workers).map(move |worker| {
            let mut rule = vec![
                E::FromInterface(name.clone()),
                E::Tcp,
                E::TcpFlags(FIN_SYN_RST_ACK, flags),
                E::DestinationElsewhere,
            ];
            if config.workers > 1 {
                let [bits, value] = share_of_ports(config, worker);
                rule.push(E::SourcePortBits(bits, value));
            }
            rule.push(queue.to(config.queue + u16::from(worker)));
            rule
        })
    })
}

fn divert(config: &Config, queue: QueueBy) -> Vec<Vec<Expression>> {
    use Expression as E;
    let taken_up = E::SetMark(diversion(config).mark);
    // First what there is most of: packets of connections that stand, and have their mark already unless this
    // kernel cannot leave them untracked.
    let mut rules = vec![vec![E::Mark(diversion(config).mark), E::Accept]];
    rules.push(vec![
        E::Tcp,
        E::TcpFlags(SYN, 0),
        E::TransparentSocket,
        taken_up.clone(),
        E::Accept,
    ]);
    // Of others, those that answer a SYN-ACK which nobody waits for: our own SYN may have caused it.
    rules.extend(to_workers(config, queue, RST));
    for worker in 0..config.workers {
        for zone in Zone::BOTH {
            for version in [IpVersion::V4, IpVersion::V6] {
                let to = accepting(config, worker, zone, version);
                rules.push(vec![
                    E::Mark(Word::Split(zone, worker).mark(config)),
                    E::Version(version),
                    E::Tcp,
                    E::ToSocket(to.ip(), to.port()),
                    taken_up.clone(),
                    E::Accept,
                ]);
            }
        }
    }
    rules.push(vec![
        E::Mark(Word::Pass.mark(config)),
        E::SetMark(0),
        E::Accept,
    ]);
    let reset = Word::Reset.mark(config);
    rules.push(vec![E::Mark(reset), E::Tcp, E::Reset]);
    for why in [
        Unreachable::NoRoute,
        Unreachable::Host,
        Unreachable::Prohibited,
    ] {
        let mark = Word::Unreachable(why).mark(config);
        rules.push(vec![E::Mark(mark), E::Unreachable(why)]);
    }
    rules.extend(answers(config, queue));
    // SYN-ACKs, and what the network says of a connection that we hold in another's name.
    for about in [E::Tcp, E::Icmp(IpVersion::V4), E::Icmp(IpVersion::V6)] {
        rules.push(vec![
            about,
            E::TransparentSocket,
            taken_up.clone(),
            E::Accept,
        ]);
    }
    rules
}

/// What a server answers in a class of service that is not the default one. The client's half shall have it, and no
/// socket that connects over IPv4 says which it was: IP_PKTOPTIONS knows it of accepted ones alone. The word about
/// it is the mark of what is taken up.
fn answers(config: &Config, queue: QueueBy) -> impl Iterator<Item = Vec<Expression>> + '_ {
    use Expression as E;
    [IpVersion::V4, IpVersion::V6]
        .into_iter()
        .flat_map(move |version| {
            (0..config.workers).map(move |worker| {
                let mut rule = vec![
                    E::Tcp,
                    E::TcpFlags(SYN | ACK, SYN | ACK),
                    E::Classed(version),
                ];
                if config.workers > 1 {
                    let [bits, value] = share_of_ports(config, worker);
                    rule.push(E::TargetPortBits(bits, value));
                }
                rule.push(E::TransparentSocket);
                rule.push(queue.to(config.queue + u16::from(worker)));
                rule
            })
        })
}

/// The bits of clients' ports that say whose they are, and which are this worker's.
fn share_of_ports(config: &Config, worker: u8) -> [u16; 2] {
    // Not the lowest: connect() of Linux takes even ports while there are any
    // (__inet_hash_connect, net/ipv4/inet_hashtables.c).
    [config.workers - 1, worker].map(|n| u16::from(n) << 1)
}

/// The routing rule and table for what is taken up.
pub fn diversion(config: &Config) -> Diversion {
    Diversion {
        mark: mark(config, 0x4000),
        table: config.table,
        priority: PRIORITY,
    }
}

/// The routing tables of links, where a side has several: each with its side, its place there and its
/// interface's name.
pub fn link_tables(config: &Config) -> Vec<(Zone, usize, String, LinkTable)> {
    let mut tables = Vec::new();
    for zone in Zone::BOTH {
        let names = &config.zone(zone).interfaces;
        if names.len() < 2 {
            continue;
        }
        for (place, name) in names.iter().enumerate() {
            let table = link_table(diversion(config), tables.len());
            tables.push((zone, place, name.clone(), table));
        }
    }
    tables
}

/// All routing tables that are used.
pub fn tables(config: &Config) -> RangeInclusive<u32> {
    let links = u32::try_from(link_tables(config).len()).unwrap_or(u32::MAX);
    config.table..=config.table.saturating_add(links)
}

/// The n-th of them.
pub fn link_table(diversion: Diversion, number: usize) -> LinkTable {
    let number = u32::try_from(number).unwrap_or(0);
    LinkTable {
        mark: diversion.mark + 0x1000 + number,
        table: diversion.table + 1 + number,
        priority: diversion.priority + 1,
    }
}

/// All that will be done, as commands that would do the same.
pub fn text(config: &Config, queue: QueueBy) -> String {
    let d = diversion(config);
    let mut lines = String::new();
    for version in ["-4", "-6"] {
        let (mark, table, priority) = (d.mark, d.table, d.priority);
        lines += &format!(
            "ip {version} rule add priority {priority} fwmark {mark:#x} lookup {table}\n\
             ip {version} route add local default dev lo table {table}\n"
        );
    }
    for (zone, place, _, link) in link_tables(config) {
        let names = config.zone(zone).interfaces.iter().enumerate();
        let others = names.filter(|(at, _)| *at != place).map(|(_, n)| &**n);
        let others = others.collect::<Vec<_>>().join("|");
        for version in ["-4", "-6"] {
            let LinkTable {
                mark,
                table,
                priority,
            } = link;
            lines += &format!(
                "ip {version} rule add priority {priority} fwmark {mark:#x} lookup {table}\n\
                 ip {version} route show table main | grep -vE ' dev ({others})( |$)' | \
                 while read r; do ip {version} route append $r table {table}; done\n"
            );
        }
    }
    let (claim, table) = (claim_table(config.table), table(config, queue));
    format!("{lines}{OWNED}nft -f - <<'END'\n{claim}{table}END\n")
}

/// Who has this may add and take away rules that lead to a routing table. It is an empty table of nftables
/// that goes with its owner, so it never stays behind, and it is one for all of a network namespace.
#[derive(Debug)]
pub struct Claim {
    table: Option<Owned>,
}

impl Claim {
    /// Takes it for one routing table, in the namespace of the calling thread. Who has just ended, and a
    /// guard that tidies up, are waited for.
    ///
    /// # Errors
    /// `EEXIST` or `EPERM` when somebody has it and keeps it, `EPERM` without CAP_NET_ADMIN.
    pub fn take(routing_table: u32) -> io::Result<Self> {
        let table = claim_table(routing_table);
        let until = Instant::now() + CLAIM_PATIENCE;
        loop {
            match Owned::install(&table) {
                Ok(table) => return Ok(Self { table: Some(table) }),
                Err(e) if Instant::now() >= until || !is_taken(&e) => return Err(e),
                Err(_) => std::thread::sleep(CLAIM_PAUSE),
            }
        }
    }
}

impl Claim {
    /// As another process took it and sent it here.
    fn from_fd(fd: OwnedFd, routing_table: u32) -> Self {
        let name = claim_table(routing_table).name;
        Self {
            table: Some(Owned::from_fd(fd, &name)),
        }
    }

    /// Another process has it from now on.
    fn leave(mut self) {
        self.table = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing the socket would do as much, a little later.
        if let Some(table) = self.table.take() {
            let _ = table.remove();
        }
    }
}

fn claim_table(routing_table: u32) -> Table {
    Table {
        name: format!("goodput-claim-{routing_table}"),
        chains: Vec::new(),
    }
}

/// A table of this name is there, or it is and has another owner.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EEXIST | EPERM))
}

/// What is in the kernel, until this is dropped.
#[derive(Debug)]
pub struct Installed {
    table: Option<Owned>,
    /// Of the namespace that it was opened in, whoever drops this.
    netlink: Netlink,
    diversion: Diversion,
    versions: Vec<IpAddr>,
    links: Vec<LinkTable>,
    queue: QueueBy,
    /// Given up when all the rest is gone.
    claim: Option<Claim>,
}

/// Why connections cannot be made to come here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Another one's rules lead to this routing table.
    #[error(
        "routing table {1} is another gateway's: {0}; end that one, or choose another by `table`"
    )]
    Claimed(io::Error, u32),
    /// A rule that is not ours leads to it.
    #[error(
        "routing table {0} is led to by another one's rule; choose another by `table`, whose next {1} are \
         free too"
    )]
    Used(u32, usize),
    /// Policy routing.
    #[error(
        "cannot add the routing rule for what is taken up: {0}; table {1} and rules of its mark must \
         be free, and lo must be up"
    )]
    Routing(io::Error, u32),
    /// nftables.
    #[error("cannot add the table to nftables: {0}; is another gateway running here?")]
    Table(io::Error),
}

impl Installed {
    /// Puts all of it in place, in the namespace of the calling thread. The table is last: nothing is
    /// taken up before what it needs is there.
    ///
    /// # Errors
    /// What the kernel refused; then nothing stays.
    pub fn install(config: &Config, queue: QueueBy) -> Result<Self, InstallError> {
        let diversion = diversion(config);
        let failed = |e| InstallError::Routing(e, config.table);
        // Before anything is taken away: it may be another's.
        let claim = Claim::take(config.table).map_err(|e| match is_taken(&e) {
            true => InstallError::Claimed(e, config.table),
            false => InstallError::Table(e),
        })?;
        let mut installed = Self {
            table: None,
            netlink: Netlink::open().map_err(failed)?,
            diversion,
            versions: Vec::new(),
            links: Vec::new(),
            queue,
            claim: Some(claim),
        };
        // Another gateway's own table may be one of those of our links, and the other way round.
        let tables = tables(config);
        let others = installed.netlink.rules_to(tables.clone());
        let ours = |mark: Option<u32>| mark.is_some_and(|m| m >> 16 == u32::from(config.mark));
        let other = others.unwrap_or_default();
        if let Some((table, _)) = other.into_iter().find(|(_, mark)| !ours(*mark)) {
            return Err(InstallError::Used(table, tables.count() - 1));
        }
        for (.., link) in link_tables(config) {
            link.remove_all(&mut installed.netlink);
            installed.links.push(link);
            link.install(&mut installed.netlink).map_err(failed)?;
        }
        for any in ANY {
            // What a gateway left that was killed together with its guard.
            diversion.remove_all(&mut installed.netlink, any);
            match diversion.add(&mut installed.netlink, any) {
                Ok(()) => installed.versions.push(any),
                // A machine without IPv6 has nothing to split there.
                Err(e)
                    if any.is_ipv6()
                        && matches!(e.kind(), io::ErrorKind::Unsupported)
                            | matches!(e.raw_os_error(), Some(EAFNOSUPPORT | EOPNOTSUPP)) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        installed.table = Some(Owned::install(&table(config, queue)).map_err(InstallError::Table)?);
        Ok(installed)
    }

    /// What keeps it in the kernel, for another process: the table's socket, the claim's.
    pub(crate) fn keepers(&self) -> Vec<BorrowedFd<'_>> {
        let claim = self.claim.as_ref().and_then(|c| c.table.as_ref());
        let tables = self.table.as_ref().into_iter().chain(claim);
        tables.map(AsFd::as_fd).collect()
    }

    /// Versions of IP that have a routing rule, by their address of all zeros.
    pub(crate) fn versions(&self) -> &[IpAddr] {
        &self.versions
    }

    /// As another process put it in place: what it sent of [`Self::keepers`] and [`Self::versions`].
    ///
    /// # Errors
    /// As opening a netlink socket.
    pub(crate) fn from_parts(
        config: &Config,
        [table, claim]: [OwnedFd; 2],
        versions: Vec<IpAddr>,
    ) -> io::Result<Self> {
        Ok(Self {
            table: Some(Owned::from_fd(table, &table_name(config))),
            netlink: Netlink::open()?,
            diversion: diversion(config),
            versions,
            links: link_tables(config)
                .into_iter()
                .map(|(.., link)| link)
                .collect(),
            queue: QueueBy::find()?.unwrap_or(QueueBy::Nftables),
            claim: Some(Claim::from_fd(claim, config.table)),
        })
    }

    /// Has new connections pass by without waiting for a worker, or wait again. What stands still finds its sockets.
    ///
    /// # Errors
    /// What the kernel refused; then all is as it was.
    pub(crate) fn step_aside(&mut self, config: &Config, aside: bool) -> io::Result<()> {
        let Some(installed) = &mut self.table else {
            return Ok(());
        };
        let workers = config.queue..config.queue + u16::from(config.workers);
        let waits = |step: &Expression| match step {
            Expression::Queue(n) | Expression::QueueByExtension(n) => workers.contains(n),
            _ => false,
        };
        let mut chains = table(config, self.queue).chains;
        chains.retain(|chain| chain.rules.iter().flatten().any(waits));
        if aside {
            for chain in &mut chains {
                chain.rules.retain(|rule| !rule.iter().any(waits));
            }
        }
        installed.replace(&chains)
    }

    /// Another process has it from now on: nothing is taken away.
    pub(crate) fn leave(mut self) {
        self.table = None;
        self.versions.clear();
        self.links.clear();
        if let Some(claim) = self.claim.take() {
            claim.leave();
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // First the table, so that nothing is marked that finds no route.
        if let Some(table) = self.table.take()
            && let Err(e) = table.remove()
        {
            tracing::warn!("cannot remove the table of nftables: {e}");
        }
        for link in &self.links {
            link.remove_all(&mut self.netlink);
        }
        for any in &self.versions {
            self.diversion.remove_all(&mut self.netlink, *any);
        }
    }
}

/// Who copies the commands would look for the tables in vain.
const OWNED: &str = "# These tables belong to the gateway and go with it (flags owner). Added by nft they would\n\
                     # go as nft ends; without that line they would stay.\n";
/// Below the rule for local addresses (0), above that for the main table (32766).
const PRIORITY: u32 = 4710;
const FIN_SYN_RST_ACK: u8 = 0x17;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// How long somebody who is ending may take to give up a claim.
const CLAIM_PATIENCE: Duration = Duration::from_secs(1);
const CLAIM_PAUSE: Duration = Duration::from_millis(10);
const EPERM: i32 = 1;
const EEXIST: i32 = 17;
const EAFNOSUPPORT: i32 = 97;
const EOPNOTSUPP: i32 = 95;

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    /// Before, it was said that the kernel lacks the queue.
    #[test]
    fn who_may_not_ask_for_a_queue_hears_that_and_not_that_there_is_none() {
        // Capabilities are a thread's own.
        let asked = std::thread::spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::NET_ADMIN);
            set_capabilities(None, sets).unwrap();
            QueueBy::find()
        });
        let error = asked.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        let what = "asking nftables for a queue".to_owned();
        let said = crate::GatewayError::Kernel { what, error }.to_string();
        assert!(said.contains("CAP_NET_ADMIN"), "{said}");
    }

    /// Before, it was no nft where the kernel has no queue of nftables.
    #[test]
    fn nft_takes_the_text_of_the_tables() {
        let Ok(ns) = sys::netns::NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let found = ns.run(QueueBy::find).unwrap().unwrap();
        let text = "workers = 2\n[inside]\ninterfaces = ['a']\nhold-last-ack = true\n\
                    [outside]\ninterfaces = ['b', 'c']\n";
        let config = Config::parse(text).unwrap();
        for queue in [Some(QueueBy::Extension), found].into_iter().flatten() {
            let text = ns.run(|| super::text(&config, queue)).unwrap();
            let (_, tables) = text.split_once("<<'END'\n").unwrap();
            let tables = tables.strip_suffix("END\n").unwrap();
            let mut nft = std::process::Command::new("nft");
            nft.args(["-c", "-f", "-"]);
            nft.stdin(std::process::Stdio::piped());
            ns.place(&mut nft).unwrap();
            let Ok(mut nft) = nft.spawn() else {
                testing::skipped("no nft");
                return;
            };
            let mut input = nft.stdin.take().unwrap();
            io::Write::write_all(&mut input, tables.as_bytes()).unwrap();
            drop(input);
            assert!(nft.wait().unwrap().success(), "{queue:?}: {tables}");
        }
    }

    #[test]
    fn even_ports_which_linux_connects_from_are_spread_over_all_workers() {
        let text = "workers = 4\n[inside]\ninterfaces = ['a']\n[outside]\ninterfaces = ['b']\n";
        let config = Config::parse(text).unwrap();
        let text = table(&config, QueueBy::Nftables).to_string();
        for worker in 0..4_u16 {
            let share = format!("tcp sport & 0x6 == {:#x} ", worker << 1);
            let queue = format!("bypass to {}", config.queue + worker);
            let its = |line: &&str| line.contains(&share) && line.ends_with(&queue);
            // SYNs and resets, of either side.
            assert_eq!(text.lines().filter(its).count(), 4, "{text}");
        }
        let even = (32_768..33_768_u16).step_by(2);
        let mut each = [0; 4];
        even.for_each(|port| each[usize::from(port >> 1 & 3)] += 1);
        assert_eq!(each, [125; 4]);
    }
}
