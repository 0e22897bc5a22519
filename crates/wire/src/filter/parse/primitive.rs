//! Tests by name: hosts, networks, ports, protocols, tags.
//!
//! What each means in bytes follows pcap-filter(7). In IPv6 a protocol is looked for in the first header
//! and behind one fragment header, ports only right behind the IPv6 header, as tcpdump does.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::lex::Kind;
use super::super::names;
use super::super::tree::{Base, Expr, Node, Relation, Size};
use super::{Parsed, Parser, number};
use crate::protocol;

/// What a value is about: `tcp src port`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    protocol: Option<Protocol>,
    side: Side,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Ether,
    Ip,
    Ip6,
    Arp,
    Rarp,
    Icmp,
    Icmp6,
    Tcp,
    Udp,
    Sctp,
    Igmp,
    Vrrp,
    Pim,
    Ah,
    Esp,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Source,
    Destination,
    Either,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Host,
    Net,
    Port,
    Range,
    Protocol,
}

impl Head {
    /// True where a value may be followed by a slash.
    pub(super) fn takes_prefix(self) -> bool {
        self.what == What::Net
    }
}

impl Protocol {
    pub(super) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "ether" | "link" => Self::Ether,
            "ip" => Self::Ip,
            "ip6" => Self::Ip6,
            "arp" => Self::Arp,
            "rarp" => Self::Rarp,
            "icmp" => Self::Icmp,
            "icmp6" => Self::Icmp6,
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "sctp" => Self::Sctp,
            "igmp" => Self::Igmp,
            "vrrp" => Self::Vrrp,
            "pim" => Self::Pim,
            "ah" => Self::Ah,
            "esp" => Self::Esp,
            _ => return None,
        })
    }

    /// IP's number of it.
    const fn number(self) -> Option<u8> {
        Some(match self {
            Self::Icmp => protocol::ICMP,
            Self::Icmp6 => protocol::ICMPV6,
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Sctp => 132,
            Self::Igmp => 2,
            Self::Vrrp => 112,
            Self::Pim => 103,
            Self::Ah => 51,
            Self::Esp => 50,
            _ => return None,
        })
    }

    const fn ether_type(self) -> Option<u32> {
        Some(match self {
            Self::Ip => IP,
            Self::Ip6 => IP6,
            Self::Arp => ARP,
            Self::Rarp => RARP,
            _ => return None,
        })
    }
}

/// True for words that begin a test or join two.
pub(super) fn is_keyword(word: &str) -> bool {
    const OTHERS: [&str; 15] = [
        "src",
        "dst",
        "host",
        "net",
        "port",
        "portrange",
        "proto",
        "less",
        "greater",
        "vlan",
        "broadcast",
        "multicast",
        "not",
        "and",
        "or",
    ];
    OTHERS.contains(&word) || word == "len" || Protocol::of(word).is_some()
}

/// Where the bytes of a protocol begin, at which offset there, and what makes a packet one of its.
pub(super) fn bytes_of(protocol: Protocol, tags: u8) -> Option<(Base, u32, Vec<Node>)> {
    let network = Base::Network(tags);
    if protocol == Protocol::Ether {
        return Some((Base::Frame, 0, Vec::new()));
    }
    if let Some(ether_type) = protocol.ether_type() {
        return Some((network, 0, vec![Expr::LinkType(tags).is(ether_type)]));
    }
    let number = u32::from(protocol.number()?);
    if protocol == Protocol::Icmp6 {
        let guards = vec![
            Expr::LinkType(tags).is(IP6),
            Expr::field(network, 6, Size::Byte).is(number),
        ];
        return Some((network, IP6_BYTES, guards));
    }
    let guards = vec![
        Expr::LinkType(tags).is(IP),
        Expr::field(network, 9, Size::Byte).is(number),
        first_fragment(network),
    ];
    Some((Base::Transport(tags), 0, guards))
}

impl<'t> Parser<'t> {
    /// `tcp src port` and its like, up to the value; `None` where something else stands.
    pub(super) fn head(&mut self) -> Parsed<Option<Head>> {
        let start = self.next;
        let protocol = self.word().and_then(Protocol::of);
        if protocol.is_some() {
            self.next += 1;
        }
        let side = self.side();
        let what = match self.word() {
            Some("host") => Some(What::Host),
            Some("net") => Some(What::Net),
            Some("port") => Some(What::Port),
            Some("portrange") => Some(What::Range),
            Some("proto") if side.is_none() => Some(What::Protocol),
            Some(word @ ("protochain" | "gateway")) => {
                return Err(self.fault(not_understood(word)));
            }
            _ => None,
        };
        if what.is_some() {
            self.next += 1;
        }
        if side.is_none() && what.is_none() {
            self.next = start;
            return Ok(None);
        }
        let head = Head {
            protocol,
            side: side.unwrap_or(Side::Either),
            what: what.unwrap_or(What::Host),
        };
        head.check().map_err(|why| {
            let begins = self.tokens.get(start).map_or(0, |token| token.at.start);
            let ends = self
                .tokens
                .get(self.next - 1)
                .map_or(0, |token| token.at.end);
            (begins..ends, why)
        })?;
        Ok(Some(head))
    }

    fn side(&mut self) -> Option<Side> {
        let first = self.word().filter(|word| ["src", "dst"].contains(word))?;
        self.next += 1;
        let both = match (self.peek(), self.kind_at(self.next + 1)) {
            (Kind::Word("or") | Kind::Symbol("||"), Kind::Word(other)) => {
                Some((other, Side::Either))
            }
            (Kind::Word("and") | Kind::Symbol("&&"), Kind::Word(other)) => {
                Some((other, Side::Both))
            }
            _ => None,
        };
        if let Some((other, side)) = both
            && other != first
            && ["src", "dst"].contains(&other)
        {
            self.next += 2;
            return Some(side);
        }
        Some(if first == "src" {
            Side::Source
        } else {
            Side::Destination
        })
    }

    fn word(&self) -> Option<&'t str> {
        match self.peek() {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// A value, or several in parentheses, joined as conditions are.
    pub(super) fn values(&mut self, head: Head) -> Parsed<Node> {
        if self.negations() {
            return Ok(self.values_plain(head)?.not());
        }
        self.values_plain(head)
    }

    fn values_plain(&mut self, head: Head) -> Parsed<Node> {
        if self.peek() != Kind::Symbol("(") {
            return self.value(head);
        }
        self.next += 1;
        // Within, all are values of this head, or tests with one of their own.
        self.last = Some(head);
        let node = self.nested(|p| {
            let first = p.values(head)?;
            p.last = Some(head);
            p.joined_values(head, first)
        })?;
        self.symbol(")")?;
        self.last = Some(head);
        Ok(node)
    }

    fn joined_values(&mut self, head: Head, first: Node) -> Parsed<Node> {
        let mut node = first;
        while let Some(join) = self.join() {
            let right = self.values(head)?;
            node = self.joined(node, join, right)?;
        }
        Ok(node)
    }

    fn value(&mut self, head: Head) -> Parsed<Node> {
        let Kind::Word(word) = self.peek() else {
            return Err(match self.peek() {
                Kind::End => self.fault(&format!("{} is missing", head.what.wanted(head.protocol))),
                _ => self.fault(&format!(
                    "stands where {} should be",
                    head.what.wanted(head.protocol)
                )),
            });
        };
        let found = match head.what {
            What::Host if head.protocol == Some(Protocol::Ether) => ether_host(head, word),
            What::Host => host(head, word, self.tags),
            What::Net => return self.net(head),
            What::Port => port(word).map(|p| head.ports(p, p, self.tags)),
            What::Range => range(word).map(|(low, high)| head.ports(low, high, self.tags)),
            What::Protocol => by_number(head, word, self.tags),
        };
        let node = found.map_err(|why| self.fault(&why))?;
        self.next += 1;
        match self.peek() {
            Kind::Symbol("/") => Err(self.fault("goes with 'net' only")),
            _ => Ok(node),
        }
    }

    /// `10.0.0.0/8`, `10.0.0.0 mask 255.0.0.0`, `10`, `2001:db8::/32`.
    fn net(&mut self, head: Head) -> Parsed<Node> {
        let at = self.here();
        let word = self.word().unwrap_or_default();
        self.next += 1;
        let prefix = if self.peek() == Kind::Symbol("/") {
            self.next += 1;
            let max = if word.contains(':') { 128 } else { 32 };
            let bits = self.word().and_then(number).filter(|&bits| bits <= max);
            let bits = bits
                .ok_or_else(|| self.fault(&format!("is no length of a prefix: 0 to {max} bits")))?;
            self.next += 1;
            Some(bits)
        } else {
            None
        };
        if let Ok(address) = word.parse::<Ipv6Addr>() {
            let mask = ones(prefix.unwrap_or(128), 128);
            let value = u128::from(address);
            if value & !mask != 0 {
                return Err((at, outside_prefix()));
            }
            return head.ip6(value, mask, self.tags).map_err(|why| (at, why));
        }
        let Some((value, octets)) = partial_ip4(word) else {
            return Err((at, format!("is no {}", What::Net.wanted(None))));
        };
        let mut mask = match prefix {
            Some(bits) => ones(bits, 32),
            None => ones(8 * octets, 32),
        };
        if prefix.is_none() && self.peek() == Kind::Word("mask") {
            self.next += 1;
            let typed = self.word().and_then(|word| word.parse::<Ipv4Addr>().ok());
            let typed = typed.ok_or_else(|| self.fault("is no mask such as 255.255.0.0"))?;
            mask = u128::from(u32::from(typed));
            self.next += 1;
        }
        let mask = u32::try_from(mask & u128::from(u32::MAX)).unwrap_or(u32::MAX);
        if value & !mask != 0 {
            return Err((at, outside_prefix()));
        }
        head.ip4(value, mask, self.tags).map_err(|why| (at, why))
    }

    /// `tcp`, `vlan 5`, `less 64` and other tests without a head.
    pub(super) fn abbreviation(&mut self, word: &str) -> Parsed<Node> {
        let tags = self.tags;
        if let Some(protocol) = Protocol::of(word) {
            self.next += 1;
            return match self.word() {
                Some(cast @ ("broadcast" | "multicast")) => {
                    let node = group(Some(protocol), cast == "broadcast", tags);
                    let node = node.ok_or_else(|| {
                        self.fault("goes with 'ether', and 'multicast' also with 'ip' and 'ip6'")
                    })?;
                    self.next += 1;
                    Ok(node)
                }
                _ if protocol == Protocol::Ether => Err((
                    self.tokens[self.next - 1].at.clone(),
                    "alone says nothing: expected 'ether host', 'ether proto' or ether[…]"
                        .to_owned(),
                )),
                _ => Ok(is_protocol(protocol, tags)),
            };
        }
        match word {
            "broadcast" | "multicast" => {
                self.next += 1;
                Ok(group(None, word == "broadcast", tags).unwrap_or(Node::Const(false)))
            }
            "less" | "greater" => {
                self.next += 1;
                let length = self.word().and_then(number);
                let length = length.ok_or_else(|| self.fault("is no number of bytes"))?;
                self.next += 1;
                let relation = match word {
                    "less" => Relation::LessOrEqual,
                    _ => Relation::GreaterOrEqual,
                };
                Ok(Expr::Length.compared(relation, length))
            }
            "vlan" => self.vlan(),
            _ if names::is_left_out(word) => Err(self.fault(not_understood(word))),
            "host" | "net" | "port" | "portrange" | "proto" | "src" | "dst" | "and" | "or" => {
                Err(self.fault("stands where a test should begin"))
            }
            _ if word.parse::<Ipv4Addr>().is_ok() || word.contains(':') => {
                Err(self.fault("wants a word before it, such as 'host'"))
            }
            _ => Err(self.fault(
                "is no word of the filter language (names of hosts are not looked up: give addresses)",
            )),
        }
    }

    fn vlan(&mut self) -> Parsed<Node> {
        let tags = self.tags;
        if tags == TAGS_MAX {
            return Err(self.fault("goes into more tags than a frame has"));
        }
        self.next += 1;
        let link = |kind| Expr::LinkType(tags).is(kind);
        let mut all = vec![Node::Any(TAG_TYPES.map(link).to_vec())];
        if let Some(id) = self.word().and_then(number) {
            if id > TAG_ID_MAX {
                return Err(self.fault("is no VLAN: 0 to 4095"));
            }
            self.next += 1;
            all.push(Expr::Tag(tags).masked(TAG_ID_MAX).is(id));
        }
        self.tags += 1;
        Ok(Node::All(all))
    }
}

impl Head {
    /// Which protocols go with what.
    fn check(self) -> Result<(), String> {
        use Protocol::{Arp, Ether, Ip, Ip6, Rarp, Sctp, Tcp, Udp};
        let goes = match (self.what, self.protocol) {
            (_, None) => true,
            (What::Host, Some(p)) => [Ether, Ip, Ip6, Arp, Rarp].contains(&p),
            (What::Net, Some(p)) => [Ip, Ip6, Arp, Rarp].contains(&p),
            (What::Port | What::Range, Some(p)) => [Tcp, Udp, Sctp].contains(&p),
            (What::Protocol, Some(p)) => [Ether, Ip, Ip6].contains(&p),
        };
        let with = match self.what {
            What::Host => "'host' goes with ether, ip, ip6, arp and rarp",
            What::Net => "'net' goes with ip, ip6, arp and rarp",
            What::Port | What::Range => "ports go with tcp, udp and sctp",
            What::Protocol => "'proto' goes with ether, ip and ip6",
        };
        if goes {
            Ok(())
        } else {
            Err(format!("do not go together: {with}"))
        }
    }

    /// The field of the source, of the destination, of one of them, or both, whichever is asked for.
    fn sides(self, test: impl Fn(bool) -> Node) -> Node {
        match self.side {
            Side::Source => test(true),
            Side::Destination => test(false),
            Side::Either => Node::Any(vec![test(true), test(false)]),
            Side::Both => Node::All(vec![test(true), test(false)]),
        }
    }

    fn ip4(self, value: u32, mask: u32, tags: u8) -> Result<Node, String> {
        // IP's addresses at 12 and 16; ARP's, of Ethernet and IPv4, at 14 and 24 (RFC 791, 826).
        let of = |kinds: &[u32], [source, destination]: [u32; 2]| {
            let kinds = kinds.iter().map(|&kind| Expr::LinkType(tags).is(kind));
            let side = self.sides(|is_source| {
                let at = if is_source { source } else { destination };
                let field = Expr::field(Base::Network(tags), at, Size::Word);
                field.masked(mask).is(value)
            });
            Node::All(vec![Node::Any(kinds.collect()), side])
        };
        let (in_ip, in_arp) = ([12, 16], [14, 24]);
        match self.protocol {
            None => Ok(Node::Any(vec![of(&[IP], in_ip), of(&[ARP, RARP], in_arp)])),
            Some(Protocol::Ip) => Ok(of(&[IP], in_ip)),
            Some(Protocol::Arp) => Ok(of(&[ARP], in_arp)),
            Some(Protocol::Rarp) => Ok(of(&[RARP], in_arp)),
            Some(_) => Err("is an IPv4 address, and ip6 was asked for".to_owned()),
        }
    }

    fn ip6(self, value: u128, mask: u128, tags: u8) -> Result<Node, String> {
        if !matches!(self.protocol, None | Some(Protocol::Ip6)) {
            return Err("is an IPv6 address, and another protocol was asked for".to_owned());
        }
        let side = self.sides(|is_source| {
            let start = if is_source { 8 } else { 24 };
            let words = (0..4_u32).zip(words(value).into_iter().zip(words(mask)));
            let tests = words.filter(|(_, (_, mask))| *mask != 0);
            let tests = tests.map(|(i, (value, mask))| {
                let field = Expr::field(Base::Network(tags), start + 4 * i, Size::Word);
                field.masked(mask).is(value)
            });
            Node::All(tests.collect())
        });
        Ok(Node::All(vec![Expr::LinkType(tags).is(IP6), side]))
    }

    fn ports(self, low: u32, high: u32, tags: u8) -> Node {
        let network = Base::Network(tags);
        let protocols = |at: u32| {
            let field = |number: u8| Expr::field(network, at, Size::Byte).is(number.into());
            match self.protocol.and_then(Protocol::number) {
                Some(number) => field(number),
                None => Node::Any([protocol::TCP, protocol::UDP, 132].map(field).to_vec()),
            }
        };
        let ports = |base: Base, start: u32| {
            self.sides(|is_source| {
                let at = if is_source { start } else { start + 2 };
                let field = Expr::field(base, at, Size::Half);
                if low == high {
                    return field.is(low);
                }
                let from = field.clone().compared(Relation::GreaterOrEqual, low);
                Node::All(vec![from, field.compared(Relation::LessOrEqual, high)])
            })
        };
        let in_ip4 = vec![
            Expr::LinkType(tags).is(IP),
            protocols(9),
            first_fragment(network),
            ports(Base::Transport(tags), 0),
        ];
        let in_ip6 = vec![
            Expr::LinkType(tags).is(IP6),
            protocols(6),
            ports(network, IP6_BYTES),
        ];
        Node::Any(vec![Node::All(in_ip4), Node::All(in_ip6)])
    }
}

impl What {
    fn wanted(self, protocol: Option<Protocol>) -> &'static str {
        match self {
            Self::Host if protocol == Some(Protocol::Ether) => {
                "hardware address such as 02:00:00:00:00:01"
            }
            Self::Host => "address such as 192.0.2.1 or 2001:db8::1",
            Self::Net => "network such as 192.0.2.0/24 or 2001:db8::/32",
            Self::Port => "port",
            Self::Range => "range of ports such as 8000-8080",
            Self::Protocol => "protocol's name or number",
        }
    }
}

fn host(head: Head, word: &str, tags: u8) -> Result<Node, String> {
    if let Ok(address) = word.parse::<Ipv6Addr>() {
        return head.ip6(address.into(), u128::MAX, tags);
    }
    match partial_ip4(word) {
        Some((address, 4)) => head.ip4(address, u32::MAX, tags),
        _ if hardware_address(word).is_some() => {
            Err("is a hardware address: say 'ether host'".to_owned())
        }
        _ => Err(format!(
            "is no {} (names are not looked up)",
            What::Host.wanted(None)
        )),
    }
}

fn ether_host(head: Head, word: &str) -> Result<Node, String> {
    let Some([a, b, c, d, e, f]) = hardware_address(word) else {
        return Err(format!("is no {}", What::Host.wanted(head.protocol)));
    };
    Ok(head.sides(|is_source| {
        let at = if is_source { 6 } else { 0 };
        let (high, low) = ([a, b], [c, d, e, f]);
        let high = u32::from(u16::from_be_bytes(high));
        Node::All(vec![
            Expr::field(Base::Frame, at + 2, Size::Word).is(u32::from_be_bytes(low)),
            Expr::field(Base::Frame, at, Size::Half).is(high),
        ])
    }))
}

fn by_number(head: Head, word: &str, tags: u8) -> Result<Node, String> {
    let name = word.strip_prefix('\\').unwrap_or(word);
    if head.protocol == Some(Protocol::Ether) {
        let known = number(name).or_else(|| names::ether_type(name));
        return match known {
            Some(kind @ 0x600..=0xffff) => Ok(Expr::LinkType(tags).is(kind)),
            Some(_) => Err("is no EtherType: 0x600 to 0xffff (LLC is not understood)".to_owned()),
            None => Err("is no EtherType".to_owned()),
        };
    }
    let known = number(name).or_else(|| names::protocol(name));
    let known = known.and_then(|number| u8::try_from(number).ok());
    let known = known.ok_or("is no protocol of IP: a number up to 255 or a name such as udp")?;
    Ok(match head.protocol {
        Some(Protocol::Ip) => in_ip4(known, tags),
        Some(_) => in_ip6(known, tags),
        None => Node::Any(vec![in_ip4(known, tags), in_ip6(known, tags)]),
    })
}

/// `tcp` and its like.
fn is_protocol(protocol: Protocol, tags: u8) -> Node {
    if let Some(kind) = protocol.ether_type() {
        return Expr::LinkType(tags).is(kind);
    }
    let number = protocol.number().unwrap_or_default();
    match protocol {
        Protocol::Icmp | Protocol::Igmp | Protocol::Vrrp => in_ip4(number, tags),
        Protocol::Icmp6 => in_ip6(number, tags),
        _ => Node::Any(vec![in_ip4(number, tags), in_ip6(number, tags)]),
    }
}

fn in_ip4(number: u8, tags: u8) -> Node {
    let field = Expr::field(Base::Network(tags), 9, Size::Byte);
    Node::All(vec![Expr::LinkType(tags).is(IP), field.is(number.into())])
}

/// The next header, or that of a fragment header there (RFC 8200, section 4.5).
fn in_ip6(number: u8, tags: u8) -> Node {
    let field = |at| Expr::field(Base::Network(tags), at, Size::Byte);
    let in_fragment = vec![
        field(6).is(IP6_FRAGMENT),
        field(IP6_BYTES).is(number.into()),
    ];
    let either = vec![field(6).is(number.into()), Node::All(in_fragment)];
    Node::All(vec![Expr::LinkType(tags).is(IP6), Node::Any(either)])
}

/// Only a datagram's first fragment has ports.
fn first_fragment(network: Base) -> Node {
    Expr::field(network, 6, Size::Half).masked(0x1fff).is(0)
}

/// Frames to all, or to groups; `None` where that is not understood.
fn group(protocol: Option<Protocol>, is_broadcast: bool, tags: u8) -> Option<Node> {
    let field = |at, size| Expr::field(Base::Frame, at, size);
    Some(match (protocol, is_broadcast) {
        (None | Some(Protocol::Ether), true) => Node::All(vec![
            field(2, Size::Word).is(u32::MAX),
            field(0, Size::Half).is(0xffff),
        ]),
        (None | Some(Protocol::Ether), false) => field(0, Size::Byte).masked(1).is(1),
        (Some(Protocol::Ip), false) => Node::All(vec![
            Expr::LinkType(tags).is(IP),
            Expr::field(Base::Network(tags), 16, Size::Byte)
                .compared(Relation::GreaterOrEqual, 0xe0),
        ]),
        (Some(Protocol::Ip6), false) => Node::All(vec![
            Expr::LinkType(tags).is(IP6),
            Expr::field(Base::Network(tags), 24, Size::Byte).is(0xff),
        ]),
        _ => return None,
    })
}

fn port(word: &str) -> Result<u32, String> {
    let known = number(word).or_else(|| names::port(word));
    if known.is_none() && word.contains('-') {
        return Err("is no port: say 'portrange' for several".to_owned());
    }
    known
        .filter(|&port| port <= 65_535)
        .ok_or_else(|| "is no port: a number up to 65535 or a common service's name".to_owned())
}

/// The lower one first, whichever was typed first.
fn range(word: &str) -> Result<(u32, u32), String> {
    // A service's name may have a hyphen of its own: the range's is where both sides are ports.
    let cuts = word.match_indices('-').map(|(at, _)| word.split_at(at));
    let mut ranges =
        cuts.filter_map(|(low, high)| Some((port(low).ok()?, port(high.strip_prefix('-')?).ok()?)));
    match ranges.next() {
        Some((low, high)) => Ok((low.min(high), low.max(high))),
        None => Err(format!("is no {}", What::Range.wanted(None))),
    }
}

/// An address from its first one to four octets, and how many there were.
fn partial_ip4(word: &str) -> Option<(u32, u32)> {
    let mut octets = [0_u8; 4];
    let mut count = 0;
    for part in word.split('.') {
        let is_plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        *octets.get_mut(count)? = part.parse().ok().filter(|_| is_plain)?;
        count += 1;
    }
    Some((u32::from_be_bytes(octets), u32::try_from(count).ok()?))
}

fn hardware_address(word: &str) -> Option<[u8; 6]> {
    let separator = [':', '-'].into_iter().find(|&s| word.contains(s))?;
    let mut address = [0; 6];
    let mut count = 0;
    for part in word.split(separator) {
        let is_plain = matches!(part.len(), 1 | 2) && part.bytes().all(|b| b.is_ascii_hexdigit());
        *address.get_mut(count)? = u8::from_str_radix(part, 16).ok().filter(|_| is_plain)?;
        count += 1;
    }
    (count == 6).then_some(address)
}

/// The first `bits` of `of` bits.
fn ones(bits: u32, of: u32) -> u128 {
    let zeros = of.saturating_sub(bits);
    let all = u128::MAX >> (128 - of.clamp(1, 128));
    all & u128::MAX.checked_shl(zeros).unwrap_or(0)
}

fn words(value: u128) -> [u32; 4] {
    let word = |i: usize| {
        let bytes = value.to_be_bytes();
        crate::bytes::u32_at(&bytes, 4 * i)
    };
    [word(0), word(1), word(2), word(3)]
}

fn outside_prefix() -> String {
    "has bits beyond its prefix; a network's are zero there".to_owned()
}

fn not_understood(word: &str) -> &'static str {
    match word {
        "inbound" | "outbound" => "is not understood here: say --direction",
        _ => "belongs to the filter language but is not understood here",
    }
}

const IP: u32 = 0x0800;
const ARP: u32 = 0x0806;
const RARP: u32 = 0x8035;
const IP6: u32 = 0x86dd;
const IP6_BYTES: u32 = 40;
const IP6_FRAGMENT: u32 = 44;
/// 802.1Q, 802.1ad, and what was common before it.
const TAG_TYPES: [u32; 3] = [0x8100, 0x88a8, 0x9100];
const TAG_ID_MAX: u32 = 4095;
/// More than any network stacks; keeps offsets small.
const TAGS_MAX: u8 = 8;
