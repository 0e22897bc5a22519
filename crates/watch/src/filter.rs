//! Which connections: the language of ss, and what it lacks.
//!
//! ```text
//! expression  = term { ["and" | "&" | "&&"] term } , groups of these with "or", "|", "||" between
//! term        = ["not" | "!"] term | "(" expression ")" | predicate
//! predicate   = ("dst" | "src") [=|!=] ADDRESS[/BITS][:PORT]      also "dst [::1]:443", "dst :443", "dst 10.0.0.0/8"
//!             | ("dport" | "sport" | "port") [OP] [:]PORT         OP: = == != < <= > >= eq ne lt le gt ge
//!             | "state" STATE | "exclude" STATE                   names of ss: established, connected, synchronized ...
//!             | "limit" = LIMIT                                   rwnd, sndbuf, app, cwnd, loss ... (see Limit)
//!             | "pid" = NUMBER | "uid" = NUMBER
//!             | "proc" = TEXT | "cc" = TEXT                       TEXT: a part of the name
//! ```
//!
//! `and` binds closer than `or`, and may be left out, as in ss. Left out of ss: host names (a look-up would send packets), device,
//! mark, cgroup paths, `autobound`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use throughput::live::Limit;
use wire::inet_diag::state;

use crate::table::Connection;

/// A condition on connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    any: Option<Expression>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Address(Side, Option<(IpAddr, u8)>, Option<u16>),
    Port(Side, Operator, u16),
    /// Bit n: state n.
    States(u32),
    Limit(Limit),
    Pid(u32),
    Uid(u32),
    Process(String),
    Congestion(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What is wrong with a filter, and near which word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFilter {
    what: String,
}

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "filter: {}; examples: dport = :443, dst 10.0.0.0/8 and limit=rwnd, not state time-wait",
            self.what
        )
    }
}

impl std::error::Error for BadFilter {}

impl std::str::FromStr for Filter {
    type Err = BadFilter;

    /// Nothing but blanks is every connection.
    fn from_str(text: &str) -> Result<Self, BadFilter> {
        if text.len() > TEXT_MAX_BYTES {
            return Err(bad("it is too long"));
        }
        let words = words(text);
        let mut reader = Reader {
            words: &words,
            depth: 0,
        };
        if words.is_empty() {
            return Ok(Self::default());
        }
        let any = reader.expression()?;
        match reader.words.first() {
            Some(word) => Err(bad(&format!("'{word}' does not belong there"))),
            None => Ok(Self { any: Some(any) }),
        }
    }
}

impl Filter {
    /// The connections that a person means by a process's number, a port, an address, a part of a process's name or a filter.
    ///
    /// # Errors
    /// What is none of these.
    pub fn of_subject(typed: &str) -> Result<Self, BadFilter> {
        let typed = typed.trim();
        if typed.is_empty() {
            return Err(bad("nothing was named"));
        }
        if typed.parse::<u16>().is_ok() {
            return format!("pid={typed} or port {typed}").parse();
        }
        if typed.parse::<u32>().is_ok() {
            return format!("pid={typed}").parse();
        }
        if place(typed).is_some() {
            return format!("dst {typed}").parse();
        }
        let is_name = typed
            .chars()
            .all(|c| c.is_alphanumeric() || "-_.".contains(c));
        match is_name {
            true => format!("proc={typed}").parse(),
            false => typed.parse(),
        }
    }

    /// Whether it lets a connection through.
    pub fn matches(&self, known: &Connection) -> bool {
        self.any.as_ref().is_none_or(|e| e.matches(known))
    }

    /// Whether it lets all connections through.
    pub const fn is_all(&self) -> bool {
        self.any.is_none()
    }
}

impl Expression {
    fn matches(&self, known: &Connection) -> bool {
        match self {
            Self::And(each) => each.iter().all(|e| e.matches(known)),
            Self::Or(each) => each.iter().any(|e| e.matches(known)),
            Self::Not(one) => !one.matches(known),
            Self::Address(side, network, port) => side.of(known).any(|end| {
                network.is_none_or(|(address, bits)| is_in(end.ip(), address, bits))
                    && port.is_none_or(|port| port == end.port())
            }),
            Self::Port(side, operator, port) => {
                side.of(known).any(|end| operator.holds(end.port(), *port))
            }
            Self::States(bits) => bits >> known.state & 1 == 1,
            Self::Limit(limit) => known.moment.limit == *limit,
            Self::Pid(pid) => known.process.as_ref().is_some_and(|p| p.pid == *pid),
            Self::Uid(uid) => known.uid == *uid,
            Self::Process(part) => {
                let process = known.process.as_ref();
                process.is_some_and(|p| p.name.contains(part.as_str()))
            }
            Self::Congestion(part) => known.congestion.as_str().contains(part.as_str()),
        }
    }
}

impl Side {
    fn of(self, known: &Connection) -> impl Iterator<Item = SocketAddr> {
        let source = (self != Self::Destination).then_some(known.local);
        let destination = (self != Self::Source).then_some(known.remote);
        source.into_iter().chain(destination)
    }
}

impl Operator {
    const fn holds(self, a: u16, b: u16) -> bool {
        match self {
            Self::Equal => a == b,
            Self::Unequal => a != b,
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }

    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "=" | "==" | "eq" => Self::Equal,
            "!=" | "ne" | "neq" => Self::Unequal,
            "<" | "lt" => Self::Less,
            "<=" | "le" | "leq" => Self::LessOrEqual,
            ">" | "gt" => Self::Greater,
            ">=" | "ge" | "geq" => Self::GreaterOrEqual,
            _ => return None,
        })
    }
}

/// Words of a filter; signs are words of their own.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let two = ["!=", "==", "<=", ">=", "&&", "||"]
            .iter()
            .any(|s| rest.starts_with(s));
        let length = match first {
            _ if two => 2,
            '(' | ')' | '!' | '=' | '<' | '>' | '&' | '|' => 1,
            _ => {
                let ends = |c: char| c.is_whitespace() || "()!=<>&|".contains(c);
                rest.find(ends).unwrap_or(rest.len())
            }
        };
        let (word, after) = rest.split_at(length);
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

struct Reader<'a> {
    words: &'a [String],
    depth: u32,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.first().map(String::as_str)
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        let found = self.peek().is_some_and(|word| words.contains(&word));
        if found {
            self.next();
        }
        found
    }

    fn expression(&mut self) -> Result<Expression, BadFilter> {
        let mut each = vec![self.all_of()?];
        while self.takes(&["or", "|", "||"]) {
            each.push(self.all_of()?);
        }
        Ok(single(each, Expression::Or))
    }

    fn all_of(&mut self) -> Result<Expression, BadFilter> {
        let mut each = vec![self.term()?];
        loop {
            let more = match self.peek() {
                None | Some(")" | "or" | "|" | "||") => false,
                Some("and" | "&" | "&&") => {
                    self.next();
                    true
                }
                // Left out.
                Some(_) => true,
            };
            if !more {
                return Ok(single(each, Expression::And));
            }
            each.push(self.term()?);
        }
    }

    fn term(&mut self) -> Result<Expression, BadFilter> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(bad("it is nested too deeply"));
        }
        let word = self
            .next()
            .ok_or_else(|| bad("something is missing at its end"))?;
        let term = match word {
            "not" | "!" => Expression::Not(Box::new(self.term()?)),
            "(" => {
                let inner = self.expression()?;
                if !self.takes(&[")"]) {
                    return Err(bad("a ')' is missing"));
                }
                inner
            }
            _ => self.predicate(word)?,
        };
        self.depth -= 1;
        Ok(term)
    }

    fn predicate(&mut self, word: &str) -> Result<Expression, BadFilter> {
        Ok(match word {
            "dst" | "daddr" => self.address(Side::Destination)?,
            "src" | "saddr" => self.address(Side::Source)?,
            "dport" => self.port(Side::Destination)?,
            "sport" => self.port(Side::Source)?,
            "port" => self.port(Side::Either)?,
            "state" => Expression::States(states(self.value(word)?)?),
            "exclude" => Expression::States(!states(self.value(word)?)?),
            "limit" => self.compared(word, |value| {
                let limit = Limit::of_name(value).map(Expression::Limit);
                limit.ok_or_else(|| {
                    let names: Vec<&str> = Limit::ALL.iter().map(|l| l.name()).collect();
                    format!("'{value}' is no limit; limits are {}", names.join(", "))
                })
            })?,
            "pid" => self.compared(word, |value| number(value).map(Expression::Pid))?,
            "uid" => self.compared(word, |value| number(value).map(Expression::Uid))?,
            "proc" | "process" => {
                self.compared(word, |value| Ok(Expression::Process(value.to_owned())))?
            }
            "cc" => self.compared(word, |value| Ok(Expression::Congestion(value.to_owned())))?,
            other => return Err(bad(&format!("'{other}' is nothing to look at"))),
        })
    }

    /// `= VALUE` or `!= VALUE`.
    fn compared(
        &mut self,
        word: &str,
        read: impl Fn(&str) -> Result<Expression, String>,
    ) -> Result<Expression, BadFilter> {
        let negated = self.takes(&["!=", "ne", "neq"]);
        if !negated {
            self.takes(&["=", "==", "eq"]);
        }
        let expression = read(self.value(word)?).map_err(|what| bad(&what))?;
        Ok(match negated {
            true => Expression::Not(Box::new(expression)),
            false => expression,
        })
    }

    fn value(&mut self, word: &str) -> Result<&'a str, BadFilter> {
        self.next()
            .ok_or_else(|| bad(&format!("what comes behind '{word}' is missing")))
    }

    fn port(&mut self, side: Side) -> Result<Expression, BadFilter> {
        let operator = self.peek().and_then(Operator::of);
        if operator.is_some() {
            self.next();
        }
        let typed = self.value("a port's comparison")?;
        let port = typed.strip_prefix(':').unwrap_or(typed);
        let port = port
            .parse()
            .map_err(|_| bad(&format!("'{typed}' is no port from 0 to 65535")))?;
        Ok(Expression::Port(
            side,
            operator.unwrap_or(Operator::Equal),
            port,
        ))
    }

    fn address(&mut self, side: Side) -> Result<Expression, BadFilter> {
        let operator = self.peek().and_then(Operator::of);
        if operator.is_some() {
            self.next();
        }
        let typed = self.value(if side == Side::Source { "src" } else { "dst" })?;
        let wrong = || {
            bad(&format!(
                "'{typed}' is no address such as 10.0.0.1, 10.0.0.0/8:443, [2001:db8::1]:443 or :443; names are not looked up"
            ))
        };
        let (network, port) = place(typed).ok_or_else(wrong)?;
        let expression = Expression::Address(side, network, port);
        match operator {
            None | Some(Operator::Equal) => Ok(expression),
            Some(Operator::Unequal) => Ok(Expression::Not(Box::new(expression))),
            Some(_) => Err(bad("addresses are compared with = and != only")),
        }
    }
}

/// Address with its prefix, port; `*` and nothing are any.
#[expect(clippy::type_complexity, reason = "a pair of options, used once")]
fn place(typed: &str) -> Option<(Option<(IpAddr, u8)>, Option<u16>)> {
    // The last colon behind brackets begins a port; without brackets an IPv6 address has colons of its own and no port.
    let behind = typed.rfind(']').unwrap_or(0);
    let (host, port) = match typed[behind..].rfind(':') {
        Some(at) if typed.starts_with('[') || typed.matches(':').count() == 1 => {
            (&typed[..behind + at], Some(&typed[behind + at + 1..]))
        }
        _ => (typed, None),
    };
    let port = match port {
        None | Some("*" | "") => None,
        Some(port) => Some(port.parse().ok()?),
    };
    if matches!(host, "" | "*") {
        return Some((None, port));
    }
    let (address, bits) = host
        .split_once('/')
        .map_or((host, None), |(a, b)| (a, Some(b)));
    let address = address
        .strip_prefix('[')
        .map_or(address, |a| a.trim_end_matches(']'));
    let bits = bits.map(|b| b.trim_end_matches(']'));
    let address: IpAddr = address.parse().ok()?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(whole), |b| b.parse().ok().filter(|b| *b <= whole))?;
    Some((Some((address, bits)), port))
}

fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let value = |address: IpAddr| match address {
        IpAddr::V4(a) => u128::from(Ipv4Addr::to_bits(a)) << 96,
        IpAddr::V6(a) => Ipv6Addr::to_bits(a),
    };
    let shift = 128 - u32::from(bits);
    let prefix = |address| value(address).checked_shr(shift).unwrap_or(0);
    address.is_ipv4() == network.is_ipv4() && prefix(address) == prefix(network)
}

/// States of a name, as ss groups them (misc/ss.c has the same names).
fn states(name: &str) -> Result<u32, BadFilter> {
    let all = !0;
    let bit = |state: u8| 1_u32 << state;
    let connected = all & !bit(state::LISTEN) & !bit(state::CLOSE);
    Ok(match name {
        "all" => all,
        "connected" => connected,
        "synchronized" => connected & !bit(state::SYN_SENT),
        "big" => connected & !bit(state::TIME_WAIT) & !bit(state::SYN_RECV),
        name => {
            let known = state::NAMES.iter().skip(1).position(|n| *n == name);
            let found = known.and_then(|n| u8::try_from(n + 1).ok()).map(bit);
            found.ok_or_else(|| {
                let names = state::NAMES[1..].join(", ");
                bad(&format!(
                    "'{name}' is no state; states are {names}, connected, synchronized, all"
                ))
            })?
        }
    })
}

fn number(value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("'{value}' is no number"))
}

fn single(mut each: Vec<Expression>, several: fn(Vec<Expression>) -> Expression) -> Expression {
    match each.len() {
        1 => each.remove(0),
        _ => several(each),
    }
}

fn bad(what: &str) -> BadFilter {
    BadFilter {
        what: what.to_owned(),
    }
}

/// A filter is typed.
const TEXT_MAX_BYTES: usize = 4_096;
const DEPTH_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::table::{Id, Table};
    use sys::owners::Process;
    use units::Instant;
    use wire::inet_diag::{Name, Record};
    use wire::tcp_info::TcpInfo;

    fn known() -> Connection {
        let mut table = Table::default();
        table.begin(Instant::from_ns(1));
        table.observe(
            0,
            &Record {
                state: state::ESTABLISHED,
                local: "10.1.2.3:22".parse().unwrap(),
                remote: "192.0.2.9:50000".parse().unwrap(),
                cookie: 1,
                uid: 1_000,
                inode: 5,
                unread_bytes: 0,
                unacknowledged_bytes: 0,
                info: Some(TcpInfo {
                    len_bytes: 280,
                    ..TcpInfo::default()
                }),
                memory: None,
                congestion: Name::of(b"bbr"),
                cgroup: None,
            },
        );
        let id = Id {
            namespace: 0,
            cookie: 1,
        };
        let mut known = table.get(id).unwrap().clone();
        known.process = Some(Arc::new(Process {
            pid: 42,
            name: "sshd".to_owned(),
        }));
        known.moment.limit = Limit::ReceiveWindow;
        known
    }

    #[test]
    fn each_predicate_holds_on_one_side_of_its_boundary_only() {
        let known = known();
        for (typed, matches) in [
            ("", true),
            ("dst 192.0.2.9", true),
            ("dst 192.0.2.8/31", true),
            ("dst 192.0.2.10/31", false),
            ("dst = 192.0.2.9:50000", true),
            ("dst 192.0.2.9:50001", false),
            ("dst != 192.0.2.9", false),
            ("src 10.0.0.0/8", true),
            ("src 11.0.0.0/8", false),
            ("src 0.0.0.0/0", true),
            ("src ::/0", false),
            ("src :22", true),
            ("dst *:50000", true),
            ("sport = :22", true),
            ("sport eq ssh", false),
            ("dport > :49999", true),
            ("dport > :50000", false),
            ("dport >= 50000", true),
            ("dport<50000", false),
            ("dport le 50000", true),
            ("port 22", true),
            ("port 23", false),
            ("state established", true),
            ("exclude established", false),
            ("state connected", true),
            ("state close-wait", false),
            ("limit=rwnd", true),
            ("limit = sndbuf", false),
            ("limit!=sndbuf", true),
            ("pid=42", true),
            ("pid=43", false),
            ("uid 1000", true),
            ("proc=ssh", true),
            ("proc=nginx", false),
            ("cc=bbr", true),
        ] {
            let filter: Result<Filter, _> = typed.parse();
            assert_eq!(filter.is_ok_and(|f| f.matches(&known)), matches, "{typed}");
        }
    }

    #[test]
    fn and_binds_closer_than_or_and_may_be_left_out() {
        let known = known();
        for (typed, matches) in [
            ("pid=1 or pid=42 and sport 22", true),
            ("(pid=1 or pid=42) and sport 23", false),
            ("pid=42 or pid=1 sport 23", true),
            ("pid=42 sport 22", true),
            ("pid=42 sport 23", false),
            ("not pid=1", true),
            ("!(pid=42 && limit=rwnd)", false),
            ("! pid=42 | limit=rwnd", true),
        ] {
            assert_eq!(
                typed.parse::<Filter>().unwrap().matches(&known),
                matches,
                "{typed}"
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_named_and_nothing_nests_without_end() {
        for (typed, says) in [
            ("dst", "missing"),
            ("dst example.org", "not looked up"),
            ("dst 10.0.0.0/33", "10.0.0.0/33"),
            ("dst > 10.0.0.1", "= and !="),
            ("dport = :65536", "65536"),
            ("(pid=1", "')'"),
            ("pid=1)", "')'"),
            ("pid=x", "'x' is no number"),
            ("state up", "'up' is no state"),
            ("limit=slow", "rwnd"),
            ("colour=red", "'colour'"),
            ("pid=1 or", "missing"),
        ] {
            let error = typed.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains(says), "{typed}: {error}");
        }
        let deep = |n: usize| format!("{}pid=1{}", "(".repeat(n), ")".repeat(n));
        assert!(deep(63).parse::<Filter>().is_ok());
        assert!(deep(64).parse::<Filter>().is_err());
        assert!(" ".repeat(4_097).parse::<Filter>().is_err());
    }

    #[test]
    fn a_subject_is_a_process_a_port_a_peer_a_name_or_a_filter() {
        let known = known();
        for (typed, matches) in [
            ("42", true),
            ("22", true),
            ("43", false),
            ("70000", false),
            ("192.0.2.9", true),
            ("192.0.2.9:50000", true),
            (":50000", true),
            ("192.0.2.0/24", true),
            ("10.1.2.3", false),
            ("sshd", true),
            ("nginx", false),
            ("limit=rwnd", true),
        ] {
            assert_eq!(
                Filter::of_subject(typed).unwrap().matches(&known),
                matches,
                "{typed}"
            );
        }
        assert!(Filter::of_subject(" ").is_err() && Filter::of_subject("a=b").is_err());
    }

    #[test]
    fn addresses_of_ipv6_have_brackets_where_a_port_follows() {
        for (typed, port) in [
            ("::1", None),
            ("[::1]", None),
            ("[::1]:443", Some(443)),
            ("[2001:db8::]/32:443", Some(443)),
        ] {
            let (network, found) = place(typed).unwrap();
            assert!(network.unwrap().0.is_ipv6(), "{typed}");
            assert_eq!(found, port, "{typed}");
        }
        assert_eq!(place("[::1]/32").unwrap().0.unwrap().1, 32);
        assert!(place("[2001:db8::/32]").unwrap().0.unwrap().1 == 32);
        assert!(place("10.0.0").is_none());
    }
}
