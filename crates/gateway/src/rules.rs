//! Which connections are split: rules by what a SYN shows, and by how much others to the same port of the same server
//! carried. The first that fits decides.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use units::Bytes;

use crate::config::Zone;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// It is ended here and goes on as another.
    #[default]
    Split,
    /// It is forwarded as if there were no gateway.
    Bypass,
    /// It is answered with a reset.
    Refuse,
}

/// A block of addresses, written as `10.0.0.0/8`, `fd00::/8` or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    address: IpAddr,
    bits: u8,
}

/// Ports from the first to the last, written as `80` or `5000-6000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

/// Largest segments from the least to the most, written as `1220-1460`, `..1460` or `8960..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    least: u16,
    most: u16,
}

/// What a rule is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who connects.
    pub client: SocketAddr,
    /// To whom.
    pub server: SocketAddr,
    /// The side that the client is on.
    pub side: Zone,
    /// The largest segment that the client takes; `None` where nobody saw its SYN.
    pub mss: Option<u16>,
}

/// One rule; what it does not name fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of what fits.
    pub action: Action,
    /// The side that the client is on.
    pub side: Option<Zone>,
    /// Where the client is.
    pub client: Option<Block>,
    /// Where the server is.
    pub server: Option<Block>,
    /// Ports of the server; none named: all.
    pub ports: Vec<Ports>,
    /// The largest segment that the client says it takes.
    pub mss: Option<Segments>,
    /// What it splits passes nevertheless while connections to that port of that server carry less.
    pub min_bytes: Option<Bytes>,
}

/// Rules in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Rules in this order. What none fits is split.
    pub const fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// Adds a rule in front of the others.
    pub fn put_first(&mut self, rule: Rule) {
        self.rules.insert(0, rule);
    }

    /// Adds a rule behind the others.
    pub fn put_last(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// What becomes of a connection, and the rule that says so, counted from 0.
    pub fn decide(&self, asked: Asked) -> (Action, Option<usize>) {
        let found = self.rules.iter().position(|r| r.fits(asked));
        (found.map_or(Action::Split, |i| self.rules[i].action), found)
    }

    /// Below how many bytes what this rule splits is not worth it.
    pub fn min_bytes(&self, rule: Option<usize>) -> Option<Bytes> {
        self.rules.get(rule?)?.min_bytes
    }

    /// True where any rule asks how much connections carry.
    pub fn ask_for_bytes(&self) -> bool {
        self.rules.iter().any(|r| r.min_bytes.is_some())
    }

    /// True where any rule asks for what only a SYN shows.
    pub fn ask_for_segments(&self) -> bool {
        self.rules.iter().any(|r| r.mss.is_some())
    }
}

impl Rule {
    fn fits(&self, asked: Asked) -> bool {
        let port = asked.server.port();
        let takes = |s: Segments| asked.mss.is_some_and(|mss| s.contains(mss));
        self.client.is_none_or(|b| b.contains(asked.client.ip()))
            && self.server.is_none_or(|b| b.contains(asked.server.ip()))
            && (self.ports.is_empty() || self.ports.iter().any(|p| p.contains(port)))
            && self.side.is_none_or(|side| side == asked.side)
            && self.mss.is_none_or(takes)
    }
}

impl Block {
    /// True for an address of this block.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let apart = u32::from(a) ^ u32::from(b);
                apart.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let apart = u128::from(a) ^ u128::from(b);
                apart.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl Ports {
    /// True for a port among these.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl Segments {
    /// True for a size among these.
    pub const fn contains(self, mss: u16) -> bool {
        self.least <= mss && mss <= self.most
    }
}

/// Why a rule cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Not a block of addresses.
    #[error("'{0}' is no block of addresses; write 10.0.0.0/8, fd00::/8 or one address")]
    Block(String),
    /// Bits beyond the prefix are set.
    #[error("'{0}' has bits set beyond its prefix; did you mean {1}?")]
    HostBits(String, Block),
    /// Not a range of ports.
    #[error("'{0}' is no range of ports; write 80 or 5000-6000")]
    Ports(String),
    /// Not a range of segment sizes.
    #[error("'{0}' is no range of segment sizes; write 1460, 1220-1460, ..1460 or 8960..")]
    Segments(String),
}

impl FromStr for Block {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = || RuleError::Block(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most {
            return Err(wrong());
        }
        let base = match address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((u32::from(a) & mask).into())
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((u128::from(a) & mask).into())
            }
        };
        let block = Self {
            address: base,
            bits,
        };
        if base == address {
            Ok(block)
        } else {
            Err(RuleError::HostBits(text.to_owned(), block))
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Ports {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = || RuleError::Ports(text.to_owned());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |t: &str| t.trim().parse().map_err(|_| wrong());
        let (first, last) = (port(first)?, port(last)?);
        if first == 0 || last < first {
            return Err(wrong());
        }
        Ok(Self { first, last })
    }
}

impl FromStr for Segments {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = || RuleError::Segments(text.to_owned());
        let size = |t: &str, open: u16| match t.trim() {
            "" => Ok(open),
            t => t.parse().map_err(|_| wrong()),
        };
        let (least, most) = match text.split_once("..") {
            // An open end is said with dots, not left out.
            Some((least, most)) if !(least.trim().is_empty() && most.trim().is_empty()) => {
                (size(least, 1)?, size(most, u16::MAX)?)
            }
            Some(_) => return Err(wrong()),
            None => {
                let (least, most) = text.split_once('-').unwrap_or((text, text));
                (size(least, 0)?, size(most, 0)?)
            }
        };
        if least == 0 || most < least {
            return Err(wrong());
        }
        Ok(Self { least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        text.parse().unwrap()
    }

    fn asked(server: &str, side: Zone, mss: Option<u16>) -> Asked {
        Asked {
            client: "192.0.2.1:9".parse().unwrap(),
            server: server.parse().unwrap(),
            side,
            mss,
        }
    }

    #[test]
    fn a_rule_may_ask_for_the_side_and_the_segments_of_the_client() {
        let rule = |mss: &str, side| Rule {
            action: Action::Bypass,
            mss: Some(mss.parse().unwrap()),
            side,
            ..Rule::default()
        };
        let rules = Rules::new(vec![
            rule("..1460", Some(Zone::Inside)),
            rule("8960..", None),
        ]);
        let of = |side, mss| rules.decide(asked("10.0.0.1:80", side, mss)).1;
        assert_eq!(of(Zone::Inside, Some(1460)), Some(0));
        assert_eq!(of(Zone::Inside, Some(1461)), None);
        assert_eq!(of(Zone::Outside, Some(1460)), None);
        assert_eq!(of(Zone::Outside, Some(8960)), Some(1));
        assert_eq!(of(Zone::Inside, None), None, "nobody saw the SYN");
        assert!(rules.ask_for_segments() && !rules.ask_for_bytes());
    }

    #[test]
    fn segment_sizes_are_read_with_open_ends() {
        let range = |text: &str| text.parse::<Segments>().map(|s| (s.least, s.most));
        for (text, expected) in [
            ("1460", (1460, 1460)),
            ("1220-1460", (1220, 1460)),
            ("1220..1460", (1220, 1460)),
            ("..1460", (1, 1460)),
            ("8960 ..", (8960, 65_535)),
        ] {
            assert_eq!(range(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "..",
            "-1460",
            "8960-",
            "1460-1220",
            "0",
            "65536",
            "1..2..3",
            "x",
        ] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_block_holds_its_first_and_last_address_and_not_their_neighbours() {
        let v4 = block("10.4.0.0/14");
        for (address, inside) in [
            ("10.4.0.0", true),
            ("10.7.255.255", true),
            ("10.3.255.255", false),
            ("10.8.0.0", false),
            ("::10.4.0.0", false),
        ] {
            assert_eq!(v4.contains(address.parse().unwrap()), inside, "{address}");
        }
        assert!(block("0.0.0.0/0").contains("255.255.255.255".parse().unwrap()));
        assert!(block("::/0").contains("ffff::1".parse().unwrap()));
        assert!(!block("::1").contains("::2".parse().unwrap()));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_could() {
        assert_eq!(
            "10.1.2.3/8".parse::<Block>(),
            Err(RuleError::HostBits(
                "10.1.2.3/8".into(),
                block("10.0.0.0/8")
            ))
        );
        for text in ["10.0.0.0/33", "::/129", "ten", "10.0.0.0/", "/8"] {
            assert!(text.parse::<Block>().is_err(), "{text}");
        }
        for text in ["0", "90-80", "65536", "", "a-b"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rule = |action, server: Option<&str>, ports: &str| Rule {
            action,
            server: server.map(block),
            ports: vec![ports.parse().unwrap()],
            ..Rule::default()
        };
        let rules = Rules::new(vec![
            rule(Action::Bypass, None, "22"),
            rule(Action::Refuse, Some("10.0.0.0/8"), "1-100"),
        ]);
        let of = |server: &str| rules.decide(asked(server, Zone::Inside, None));
        assert_eq!(of("10.0.0.1:22"), (Action::Bypass, Some(0)));
        assert_eq!(of("10.0.0.1:80"), (Action::Refuse, Some(1)));
        assert_eq!(of("11.0.0.1:80"), (Action::Split, None));
        assert_eq!(of("[fd00::1]:22"), (Action::Bypass, Some(0)));
    }
}
