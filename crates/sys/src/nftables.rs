//! nftables by netlink: a table of our own with chains and rules, put in place at once.
//!
//! The kernel makes all of a batch or nothing. A table that is *owned* belongs to the socket that made
//! it and goes with it, however the process ends. Rules are rows of expressions, each of which loads
//! into a register, compares one or acts; only those that a transparent proxy needs are here.
//!
//! Sources: Linux include/uapi/linux/netfilter/nf_tables.h, net/netfilter/nf_tables_api.c, nft(8).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::nfnetlink::{Attributes, FAMILY_BYTES, Request, Socket, attributes};

/// A table with its chains: family inet, so that each rule sees IPv4 and IPv6.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name, unique in the namespace.
    pub name: String,
    /// Chains.
    pub chains: Vec<Chain>,
}

/// A chain at a hook.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Name, unique in the table.
    pub name: String,
    /// Where packets come by.
    pub at: At,
    /// Chains of a hook run from low to high.
    pub priority: i32,
    /// Rules in their order.
    pub rules: Vec<Vec<Expression>>,
}

/// A hook of netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// What comes in.
    Prerouting,
    /// What this machine sends itself.
    Output,
}

/// One step of a rule. A comparison that fails ends its rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Expression {
    /// The packet came in by the interface of this name.
    FromInterface(String),
    /// The packet leaves by the interface of this name; where it is known already.
    ToInterface(String),
    /// The packet is of this IP version.
    Version(IpVersion),
    /// The packet is TCP.
    Tcp,
    /// The packet is ICMP of this version: about a connection, where a socket is asked for as well.
    Icmp(IpVersion),
    /// Of the TCP flags in the first, exactly those in the second are set.
    TcpFlags(u8, u8),
    /// Of the client's port, the bits in the first are those in the second.
    SourcePortBits(u16, u16),
    /// The same of the server's packets, whose target it is.
    TargetPortBits(u16, u16),
    /// The packet is of this IP version and of another class of service than 0 (DSCP, RFC 2474).
    Classed(IpVersion),
    /// The packet is TCP from the first address and port to the second.
    Flow(SocketAddr, SocketAddr),
    /// The destination is another machine's, not ours, and no group.
    DestinationElsewhere,
    /// The packet's mark is this.
    Mark(u32),
    /// A socket that may have others' addresses is at this packet's end.
    TransparentSocket,
    /// Sets the packet's mark.
    SetMark(u32),
    /// Gives the packet to the program at this queue; without one it goes on.
    Queue(u16),
    /// The same by iptables' extension, for a kernel that has no such expression of nftables.
    QueueByExtension(u16),
    /// Gives the packet to the listening socket at this address, or goes on with the next rule.
    ToSocket(IpAddr, u16),
    /// Answers with a reset.
    Reset,
    /// Answers that the destination cannot be reached.
    Unreachable(Unreachable),
    /// Connection tracking, which is at priority -200, leaves the packet alone.
    Untracked,
    /// Counts packets and bytes.
    Count,
    /// Ends the chain for this packet, which goes on.
    Accept,
}

/// Version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// Four.
    V4,
    /// Six.
    V6,
}

/// Why a destination cannot be reached, in terms of both versions of ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No route.
    NoRoute,
    /// The host does not answer.
    Host,
    /// Forbidden.
    Prohibited,
}

/// A table in the kernel, for as long as this is kept.
#[derive(Debug)]
pub struct Owned {
    socket: Socket,
    name: String,
}

impl Owned {
    /// Puts `table` in place.
    ///
    /// # Errors
    /// `EEXIST` when there is a table of this name, `EPERM` without CAP_NET_ADMIN, `ENOENT` where the
    /// kernel lacks an expression.
    pub fn install(table: &Table) -> io::Result<Self> {
        let mut socket = Socket::open()?;
        let flags = Attributes::new()
            .text(TABLE_NAME, &table.name)
            .be32(TABLE_FLAGS, TABLE_F_OWNER);
        let mut requests = vec![request(NEW_TABLE, CREATE | EXCL, flags)];
        for chain in &table.chains {
            requests.push(request(NEW_CHAIN, CREATE, chain.attributes(&table.name)));
            for rule in &chain.rules {
                let rule = rule_attributes(&table.name, &chain.name, rule);
                requests.push(request(NEW_RULE, CREATE | APPEND, rule));
            }
        }
        socket.batch(SUBSYSTEM, &requests)?;
        Ok(Self {
            socket,
            name: table.name.clone(),
        })
    }

    /// A table that another process installed, by the socket that owns it, which that one sent here. It
    /// stays until the last copy of the socket is closed.
    pub fn from_fd(fd: OwnedFd, name: &str) -> Self {
        Self {
            socket: Socket::from_fd(fd),
            name: name.to_owned(),
        }
    }

    /// Gives chains that it has other rules, at once: no packet meets a part of them.
    ///
    /// # Errors
    /// What the kernel refuses; then all is as it was.
    pub fn replace(&mut self, chains: &[Chain]) -> io::Result<()> {
        let mut requests = Vec::new();
        for chain in chains {
            // Without a handle all of the chain's.
            let all = Attributes::new()
                .text(RULE_TABLE, &self.name)
                .text(RULE_CHAIN, &chain.name);
            requests.push(request(DEL_RULE, 0, all));
            for rule in &chain.rules {
                let rule = rule_attributes(&self.name, &chain.name, rule);
                requests.push(request(NEW_RULE, CREATE | APPEND, rule));
            }
        }
        self.socket.batch(SUBSYSTEM, &requests)
    }

    /// Takes the table away and says whether that worked; dropping does as much and says nothing.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(mut self) -> io::Result<()> {
        let name = Attributes::new().text(TABLE_NAME, &self.name);
        self.socket.batch(SUBSYSTEM, &[request(DEL_TABLE, 0, name)])
    }
}

/// The socket that owns it.
impl AsFd for Owned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a rule has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets; several that were merged as they came in are one.
    pub packets: u64,
    /// Bytes from the IP header on.
    pub bytes: u64,
}

/// What the counters in a table's rules have come to, in the rules' order.
///
/// # Errors
/// `ENOENT` without such a table, `EPERM` without CAP_NET_ADMIN.
pub fn counted(table: &str) -> io::Result<Vec<Counted>> {
    let named = Attributes::new().text(RULE_TABLE, table);
    let ask = request(GET_RULE, 0, named);
    let lists = Socket::open()?.dump(&ask, |body| counters_of(body, table))?;
    Ok(lists.into_iter().flatten().collect())
}

/// The counters in one rule, if it is of that table.
fn counters_of(body: &[u8], table: &str) -> Option<Vec<Counted>> {
    let find = |bytes: &'_ [u8], wanted: u16| -> Option<Vec<u8>> {
        let mut all = attributes(bytes);
        all.find(|(kind, _)| *kind == wanted)
            .map(|(_, value)| value.to_vec())
    };
    let text = |bytes: Vec<u8>| {
        let end = bytes.iter().position(|b| *b == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
    };
    let body = body.get(FAMILY_BYTES..)?;
    if text(find(body, RULE_TABLE)?) != table {
        return None;
    }
    let list = find(body, RULE_EXPRESSIONS)?;
    let counters = attributes(&list).filter_map(|(_, element)| {
        let name = text(find(element, EXPR_NAME)?);
        let data = (name == "counter").then(|| find(element, EXPR_DATA))??;
        let number = |kind| Some(u64::from_be_bytes(find(&data, kind)?.try_into().ok()?));
        Some(Counted {
            packets: number(COUNTER_PACKETS)?,
            bytes: number(COUNTER_BYTES)?,
        })
    });
    Some(counters.collect())
}

/// True when this kernel makes a table with rules of this kind; nothing of it stays.
///
/// # Errors
/// Why it does not.
pub fn probe(rule: Vec<Expression>) -> io::Result<()> {
    let table = Table {
        name: format!("goodput-probe-{}", std::process::id()),
        chains: vec![Chain {
            name: "probe".into(),
            at: At::Prerouting,
            priority: 0,
            rules: vec![rule],
        }],
    };
    Owned::install(&table)?.remove()
}

/// As `nft -f` would take it.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table inet {} {{", self.name)?;
        writeln!(f, "\tflags owner")?;
        for chain in &self.chains {
            writeln!(f, "\tchain {} {{", chain.name)?;
            let priority = chain.priority;
            let hook = match chain.at {
                At::Prerouting => "prerouting",
                At::Output => "output",
            };
            writeln!(
                f,
                "\t\ttype filter hook {hook} priority {priority}; policy accept;"
            )?;
            for rule in &chain.rules {
                let words: Vec<String> = rule.iter().map(ToString::to_string).collect();
                let foreign = |e: &Expression| matches!(e, Expression::QueueByExtension(_));
                let comment = match rule.iter().any(foreign) {
                    true => "# by iptables' extension, which nft cannot write: ",
                    false => "",
                };
                writeln!(f, "\t\t{comment}{}", words.join(" "))?;
            }
            writeln!(f, "\t}}")?;
        }
        writeln!(f, "}}")
    }
}

/// As nft(8) writes it.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FromInterface(name) => write!(f, "iifname \"{name}\""),
            Self::ToInterface(name) => write!(f, "oifname \"{name}\""),
            Self::Version(IpVersion::V4) => f.write_str("meta nfproto ipv4"),
            Self::Version(IpVersion::V6) => f.write_str("meta nfproto ipv6"),
            Self::Tcp => f.write_str("meta l4proto tcp"),
            Self::Icmp(IpVersion::V4) => f.write_str("meta l4proto icmp"),
            Self::Icmp(IpVersion::V6) => f.write_str("meta l4proto ipv6-icmp"),
            Self::TcpFlags(mask, value) => write!(f, "tcp flags & {mask:#x} == {value:#x}"),
            Self::SourcePortBits(mask, value) => write!(f, "tcp sport & {mask:#x} == {value:#x}"),
            Self::TargetPortBits(mask, value) => write!(f, "tcp dport & {mask:#x} == {value:#x}"),
            Self::Classed(IpVersion::V4) => f.write_str("ip dscp != 0"),
            Self::Classed(IpVersion::V6) => f.write_str("ip6 dscp != 0"),
            Self::Flow(from, to) => {
                let ip = if from.is_ipv4() { "ip" } else { "ip6" };
                let (a, b) = (from.ip(), to.ip());
                write!(
                    f,
                    "{ip} saddr {a} {ip} daddr {b} tcp sport {} tcp dport {}",
                    from.port(),
                    to.port()
                )
            }
            Self::DestinationElsewhere => f.write_str("fib daddr type unicast"),
            Self::Mark(mark) => write!(f, "meta mark {mark:#x}"),
            Self::TransparentSocket => f.write_str("socket transparent 1"),
            Self::SetMark(mark) => write!(f, "meta mark set {mark:#x}"),
            Self::Queue(number) | Self::QueueByExtension(number) => {
                write!(f, "queue flags bypass to {number}")
            }
            Self::ToSocket(IpAddr::V4(address), port) => write!(f, "tproxy ip to {address}:{port}"),
            Self::ToSocket(IpAddr::V6(address), port) => {
                write!(f, "tproxy ip6 to [{address}]:{port}")
            }
            Self::Reset => f.write_str("reject with tcp reset"),
            Self::Unreachable(why) => f.write_str(match why {
                Unreachable::NoRoute => "reject with icmpx no-route",
                Unreachable::Host => "reject with icmpx host-unreachable",
                Unreachable::Prohibited => "reject with icmpx admin-prohibited",
            }),
            Self::Untracked => f.write_str("notrack"),
            Self::Count => f.write_str("counter"),
            Self::Accept => f.write_str("accept"),
        }
    }
}

impl Chain {
    fn attributes(&self, table: &str) -> Attributes {
        let hook = Attributes::new()
            .be32(
                HOOK_NUMBER,
                match self.at {
                    At::Prerouting => HOOK_PREROUTING,
                    At::Output => HOOK_OUTPUT,
                },
            )
            .be32(HOOK_PRIORITY, self.priority.cast_unsigned());
        Attributes::new()
            .text(CHAIN_TABLE, table)
            .text(CHAIN_NAME, &self.name)
            .nested(CHAIN_HOOK, &hook)
            .be32(CHAIN_POLICY, NF_ACCEPT)
            .text(CHAIN_TYPE, "filter")
    }
}

fn request(message: u16, flags: u16, attributes: Attributes) -> Request {
    Request {
        kind: u16::from(SUBSYSTEM) << 8 | message,
        flags,
        family: FAMILY_INET,
        resource: 0,
        attributes,
    }
}

fn rule_attributes(table: &str, chain: &str, rule: &[Expression]) -> Attributes {
    let mut list = Attributes::new();
    for (name, data) in rule.iter().flat_map(Expression::primitives) {
        let mut element = Attributes::new().text(EXPR_NAME, name);
        if let Some(data) = data {
            element = element.nested(EXPR_DATA, &data);
        }
        list = list.nested(LIST_ELEMENT, &element);
    }
    Attributes::new()
        .text(RULE_TABLE, table)
        .text(RULE_CHAIN, chain)
        .nested(RULE_EXPRESSIONS, &list)
}

/// An expression as the kernel names it, with its attributes.
type Primitive = (&'static str, Option<Attributes>);

impl Expression {
    fn primitives(&self) -> Vec<Primitive> {
        match self {
            Self::FromInterface(name) => vec![meta(META_IIFNAME), named(name)],
            Self::ToInterface(name) => vec![meta(META_OIFNAME), named(name)],
            Self::Version(IpVersion::V4) => vec![meta(META_NFPROTO), equals(&[FAMILY_IPV4])],
            Self::Version(IpVersion::V6) => vec![meta(META_NFPROTO), equals(&[FAMILY_IPV6])],
            Self::Tcp => vec![meta(META_L4PROTO), equals(&[IPPROTO_TCP])],
            Self::Icmp(IpVersion::V4) => vec![meta(META_L4PROTO), equals(&[IPPROTO_ICMP])],
            Self::Icmp(IpVersion::V6) => vec![meta(META_L4PROTO), equals(&[IPPROTO_ICMPV6])],
            Self::TcpFlags(mask, value) => vec![
                transport(TCP_FLAGS_AT, 1),
                masked(&[*mask]),
                equals(&[*value]),
            ],
            Self::SourcePortBits(mask, value) => vec![
                transport(0, 2),
                masked(&mask.to_be_bytes()),
                equals(&value.to_be_bytes()),
            ],
            Self::TargetPortBits(mask, value) => vec![
                transport(2, 2),
                masked(&mask.to_be_bytes()),
                equals(&value.to_be_bytes()),
            ],
            Self::Classed(version) => {
                // RFC 791 3.1: the second byte's upper six bits; RFC 8200 3: those behind the version.
                let (family, at, mask): (_, _, &[u8]) = match version {
                    IpVersion::V4 => (FAMILY_IPV4, 1, &[0xfc]),
                    IpVersion::V6 => (FAMILY_IPV6, 0, &[0x0f, 0xc0]),
                };
                let length = u32::try_from(mask.len()).unwrap_or(0);
                vec![
                    meta(META_NFPROTO),
                    equals(&[family]),
                    payload(PAYLOAD_NETWORK, at, length),
                    masked(mask),
                    compares(CMP_NEQ, &vec![0; mask.len()]),
                ]
            }
            Self::Flow(from, to) => {
                // RFC 791 3.1, RFC 8200 3: both addresses stand in a row; RFC 9293 3.1: both ports.
                let (family, at) = match from {
                    SocketAddr::V4(_) => (FAMILY_IPV4, 12),
                    SocketAddr::V6(_) => (FAMILY_IPV6, 8),
                };
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V4(a) => a.octets().to_vec(),
                    IpAddr::V6(a) => a.octets().to_vec(),
                };
                let (source, target) = (octets(from.ip()), octets(to.ip()));
                let length = u32::try_from(source.len()).unwrap_or(0);
                let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
                vec![
                    meta(META_NFPROTO),
                    equals(&[family]),
                    payload(PAYLOAD_NETWORK, at, length),
                    equals(&source),
                    payload(PAYLOAD_NETWORK, at + length, length),
                    equals(&target),
                    meta(META_L4PROTO),
                    equals(&[IPPROTO_TCP]),
                    transport(0, 4),
                    equals(&ports),
                ]
            }
            Self::DestinationElsewhere => {
                let what = Attributes::new()
                    .be32(FIB_DREG, REG_1)
                    .be32(FIB_RESULT, FIB_RESULT_ADDRTYPE)
                    .be32(FIB_FLAGS, FIB_F_DADDR);
                vec![("fib", Some(what)), equals(&RTN_UNICAST.to_ne_bytes())]
            }
            Self::Mark(mark) => vec![meta(META_MARK), equals(&mark.to_ne_bytes())],
            Self::TransparentSocket => {
                let what = Attributes::new()
                    .be32(SOCKET_KEY, SOCKET_TRANSPARENT)
                    .be32(SOCKET_DREG, REG_1);
                vec![("socket", Some(what)), equals(&[1])]
            }
            Self::SetMark(mark) => {
                let set = Attributes::new()
                    .be32(META_KEY, META_MARK)
                    .be32(META_SREG, REG_1);
                vec![load(&mark.to_ne_bytes()), ("meta", Some(set))]
            }
            Self::Queue(number) => {
                let what = Attributes::new()
                    .be16(QUEUE_NUM, *number)
                    .be16(QUEUE_TOTAL, 1)
                    .be16(QUEUE_FLAGS, QUEUE_F_BYPASS);
                vec![("queue", Some(what))]
            }
            Self::QueueByExtension(number) => {
                // struct xt_NFQ_info_v3: number, how many, flags; padded to 8.
                let mut info = [0; 8];
                for (slot, value) in info.chunks_mut(2).zip([*number, 1, QUEUE_F_BYPASS]) {
                    slot.copy_from_slice(&value.to_ne_bytes());
                }
                let what = Attributes::new()
                    .text(TARGET_NAME, "NFQUEUE")
                    .be32(TARGET_REV, 3)
                    .bytes(TARGET_INFO, &info);
                vec![("target", Some(what))]
            }
            Self::ToSocket(address, port) => {
                let (family, load_address) = match address {
                    IpAddr::V4(a) => (FAMILY_IPV4, load_into(REG_1, &a.octets())),
                    IpAddr::V6(a) => (FAMILY_IPV6, load_into(REG_1, &a.octets())),
                };
                let what = Attributes::new()
                    .be32(TPROXY_FAMILY, u32::from(family))
                    .be32(TPROXY_REG_ADDR, REG_1)
                    .be32(TPROXY_REG_PORT, REG_2);
                let port = load_into(REG_2, &port.to_be_bytes());
                vec![load_address, port, ("tproxy", Some(what))]
            }
            Self::Reset => {
                let what = Attributes::new()
                    .be32(REJECT_TYPE, REJECT_TCP_RST)
                    .bytes(REJECT_CODE, &[0]);
                vec![("reject", Some(what))]
            }
            Self::Unreachable(why) => {
                let code = match why {
                    Unreachable::NoRoute => 0,
                    Unreachable::Host => 2,
                    Unreachable::Prohibited => 3,
                };
                let what = Attributes::new()
                    .be32(REJECT_TYPE, REJECT_ICMPX_UNREACH)
                    .bytes(REJECT_CODE, &[code]);
                vec![("reject", Some(what))]
            }
            Self::Untracked => vec![("notrack", None)],
            Self::Count => vec![("counter", None)],
            Self::Accept => {
                let verdict = Attributes::new().be32(VERDICT_CODE, NF_ACCEPT);
                let what = Attributes::new().be32(IMMEDIATE_DREG, REG_VERDICT).nested(
                    IMMEDIATE_DATA,
                    &Attributes::new().nested(DATA_VERDICT, &verdict),
                );
                vec![("immediate", Some(what))]
            }
        }
    }
}

fn meta(key: u32) -> Primitive {
    let what = Attributes::new().be32(META_DREG, REG_1).be32(META_KEY, key);
    ("meta", Some(what))
}

/// As the kernel holds an interface's name.
fn named(interface: &str) -> Primitive {
    let mut padded = [0; INTERFACE_BYTES];
    let length = interface.len().min(INTERFACE_BYTES - 1);
    padded[..length].copy_from_slice(&interface.as_bytes()[..length]);
    equals(&padded)
}

fn transport(offset: u32, length: u32) -> Primitive {
    payload(PAYLOAD_TRANSPORT, offset, length)
}

fn payload(base: u32, offset: u32, length: u32) -> Primitive {
    let what = Attributes::new()
        .be32(PAYLOAD_DREG, REG_1)
        .be32(PAYLOAD_BASE, base)
        .be32(PAYLOAD_OFFSET, offset)
        .be32(PAYLOAD_LEN, length);
    ("payload", Some(what))
}

fn masked(mask: &[u8]) -> Primitive {
    let value = |bytes: &[u8]| Attributes::new().bytes(DATA_VALUE, bytes);
    let length = u32::try_from(mask.len()).unwrap_or(0);
    let what = Attributes::new()
        .be32(BITWISE_SREG, REG_1)
        .be32(BITWISE_DREG, REG_1)
        .be32(BITWISE_LEN, length)
        .nested(BITWISE_MASK, &value(mask))
        .nested(BITWISE_XOR, &value(&vec![0; mask.len()]));
    ("bitwise", Some(what))
}

fn equals(value: &[u8]) -> Primitive {
    compares(CMP_EQ, value)
}

fn compares(how: u32, value: &[u8]) -> Primitive {
    let what = Attributes::new()
        .be32(CMP_SREG, REG_1)
        .be32(CMP_OP, how)
        .nested(CMP_DATA, &Attributes::new().bytes(DATA_VALUE, value));
    ("cmp", Some(what))
}

fn load(value: &[u8]) -> Primitive {
    load_into(REG_1, value)
}

fn load_into(register: u32, value: &[u8]) -> Primitive {
    let what = Attributes::new()
        .be32(IMMEDIATE_DREG, register)
        .nested(IMMEDIATE_DATA, &Attributes::new().bytes(DATA_VALUE, value));
    ("immediate", Some(what))
}

// include/uapi/linux/netfilter/nfnetlink.h, nf_tables.h and netfilter.h, in their order.
const SUBSYSTEM: u8 = 10;
const CREATE: u16 = 0x400;
const EXCL: u16 = 0x200;
const APPEND: u16 = 0x800;
const NEW_TABLE: u16 = 0;
const DEL_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const DEL_RULE: u16 = 8;
const FAMILY_INET: u8 = 1;
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
/// Since Linux 5.12.
const TABLE_F_OWNER: u32 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_PREROUTING: u32 = 0;
const HOOK_OUTPUT: u32 = 3;
const NF_ACCEPT: u32 = 1;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
const COUNTER_BYTES: u16 = 1;
const COUNTER_PACKETS: u16 = 2;
const REG_VERDICT: u32 = 0;
const REG_1: u32 = 1;
const REG_2: u32 = 2;
const META_DREG: u16 = 1;
const META_KEY: u16 = 2;
const META_SREG: u16 = 3;
const META_MARK: u32 = 3;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const PAYLOAD_DREG: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LEN: u16 = 4;
const PAYLOAD_NETWORK: u32 = 1;
const PAYLOAD_TRANSPORT: u32 = 2;
/// RFC 9293 3.1: the byte after the data offset.
const TCP_FLAGS_AT: u32 = 13;
const BITWISE_SREG: u16 = 1;
const BITWISE_DREG: u16 = 2;
const BITWISE_LEN: u16 = 3;
const BITWISE_MASK: u16 = 4;
const BITWISE_XOR: u16 = 5;
const CMP_SREG: u16 = 1;
const CMP_OP: u16 = 2;
const CMP_DATA: u16 = 3;
const CMP_EQ: u32 = 0;
const CMP_NEQ: u32 = 1;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const IMMEDIATE_DREG: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
const FIB_DREG: u16 = 1;
const FIB_RESULT: u16 = 2;
const FIB_FLAGS: u16 = 3;
const FIB_RESULT_ADDRTYPE: u32 = 3;
const FIB_F_DADDR: u32 = 2;
const RTN_UNICAST: u32 = 1;
const SOCKET_KEY: u16 = 1;
const SOCKET_DREG: u16 = 2;
const SOCKET_TRANSPARENT: u32 = 0;
const QUEUE_NUM: u16 = 1;
const QUEUE_TOTAL: u16 = 2;
const QUEUE_FLAGS: u16 = 3;
const QUEUE_F_BYPASS: u16 = 1;
const TARGET_NAME: u16 = 1;
const TARGET_REV: u16 = 2;
const TARGET_INFO: u16 = 3;
const TPROXY_FAMILY: u16 = 1;
const TPROXY_REG_ADDR: u16 = 2;
const TPROXY_REG_PORT: u16 = 3;
const REJECT_TYPE: u16 = 1;
const REJECT_CODE: u16 = 2;
const REJECT_TCP_RST: u32 = 1;
const REJECT_ICMPX_UNREACH: u32 = 2;
const IPPROTO_ICMP: u8 = 1;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_ICMPV6: u8 = 58;
/// IFNAMSIZ.
const INTERFACE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn packets_of_a_flow_are_counted_each_way_and_no_others() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let counts = ns.run(|| -> io::Result<Vec<Counted>> {
            crate::netlink::Netlink::open()?.set_up("lo", None)?;
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let to = listener.local_addr()?;
            let other = std::net::TcpStream::connect(to)?;
            let socket = std::net::TcpStream::connect(to)?;
            let from = socket.local_addr()?;
            let rule = |a, b| vec![Expression::Flow(a, b), Expression::Count];
            let v6 = |port| SocketAddr::from((Ipv6Addr::LOCALHOST, port));
            let table = |name: &str, rules| Table {
                name: name.into(),
                chains: vec![Chain {
                    name: "count".into(),
                    at: At::Prerouting,
                    priority: -149,
                    rules,
                }],
            };
            let _own = Owned::install(&table("own", vec![rule(from, to), rule(to, from)]))?;
            let _six = Owned::install(&table("six", vec![rule(v6(1), v6(2))]))?;
            io::Write::write_all(&mut &other, &[0; 5_000])?;
            io::Write::write_all(&mut &socket, &[0; 1_000])?;
            let (_first, _) = listener.accept()?;
            let (mut far, _) = listener.accept()?;
            io::Read::read_exact(&mut far, &mut [0; 1_000])?;
            assert_eq!(counted("six")?, [Counted::default()]);
            counted("own")
        });
        let counts = counts.unwrap().unwrap();
        // 20 bytes of IP and 32 of TCP with timestamps.
        let of_data = Counted {
            packets: 1,
            bytes: 1_052,
        };
        assert_eq!(counts.len(), 2, "{counts:?}");
        assert_eq!(counts[0], of_data);
        assert!(counts[1].bytes <= 52, "{counts:?}");
    }

    #[test]
    fn the_kernel_takes_every_expression_and_a_table_goes_with_its_socket() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        ns.run(|| {
            use Expression as E;
            let rules = vec![
                vec![
                    E::FromInterface("eth0".into()),
                    E::Tcp,
                    E::TcpFlags(0x17, 2),
                ],
                vec![E::Tcp, E::SourcePortBits(3, 1), E::DestinationElsewhere],
                vec![E::Classed(IpVersion::V4), E::Tcp, E::TargetPortBits(3, 1)],
                vec![E::Classed(IpVersion::V6), E::Count],
                vec![
                    E::Version(IpVersion::V4),
                    E::Tcp,
                    E::Mark(7),
                    E::ToSocket(Ipv4Addr::LOCALHOST.into(), 5000),
                    E::SetMark(8),
                    E::Accept,
                ],
                vec![
                    E::Version(IpVersion::V6),
                    E::Tcp,
                    E::ToSocket(Ipv6Addr::LOCALHOST.into(), 5000),
                ],
                vec![E::Tcp, E::TransparentSocket, E::Count],
                vec![E::ToInterface("eth0".into()), E::Tcp, E::Count],
                vec![E::Icmp(IpVersion::V4), E::TransparentSocket],
                vec![E::Icmp(IpVersion::V6), E::TransparentSocket],
                vec![E::Tcp, E::Reset],
                vec![E::Unreachable(Unreachable::Host)],
            ];
            for rule in &rules {
                probe(rule.clone()).unwrap_or_else(|e| panic!("{rule:?}: {e}"));
            }
            assert!(
                probe(vec![E::Queue(1)]).is_ok() || probe(vec![E::QueueByExtension(1)]).is_ok()
            );
            let table = Table {
                name: "goodput".into(),
                chains: vec![Chain {
                    name: "a".into(),
                    at: At::Prerouting,
                    priority: -150,
                    rules,
                }],
            };
            let owned = Owned::install(&table).unwrap();
            let again = Owned::install(&table).unwrap_err();
            assert!(matches!(
                again.raw_os_error(),
                Some(libc::EEXIST | libc::EPERM)
            ));
            drop(owned);
            Owned::install(&table).unwrap().remove().unwrap();
        })
        .unwrap();
    }
}
