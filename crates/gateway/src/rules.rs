//! Which connections are split: rules by address and port, the first that fits decides.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is ended here and goes on as another.
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

/// One rule; what it does not name fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of what fits.
    pub action: Action,
    /// Where the client is.
    pub client: Option<Block>,
    /// Where the server is.
    pub server: Option<Block>,
    /// Ports of the server; none named: all.
    pub ports: Vec<Ports>,
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
    pub fn decide(&self, client: SocketAddr, server: SocketAddr) -> (Action, Option<usize>) {
        let found = self.rules.iter().position(|r| r.fits(client, server));
        (found.map_or(Action::Split, |i| self.rules[i].action), found)
    }
}

impl Rule {
    fn fits(&self, client: SocketAddr, server: SocketAddr) -> bool {
        let port = server.port();
        self.client.is_none_or(|b| b.contains(client.ip()))
            && self.server.is_none_or(|b| b.contains(server.ip()))
            && (self.ports.is_empty() || self.ports.iter().any(|p| p.contains(port)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        text.parse().unwrap()
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
            client: None,
            server: server.map(block),
            ports: vec![ports.parse().unwrap()],
        };
        let rules = Rules::new(vec![
            rule(Action::Bypass, None, "22"),
            rule(Action::Refuse, Some("10.0.0.0/8"), "1-100"),
        ]);
        let of =
            |server: &str| rules.decide("192.0.2.1:9".parse().unwrap(), server.parse().unwrap());
        assert_eq!(of("10.0.0.1:22"), (Action::Bypass, Some(0)));
        assert_eq!(of("10.0.0.1:80"), (Action::Refuse, Some(1)));
        assert_eq!(of("11.0.0.1:80"), (Action::Split, None));
        assert_eq!(of("[fd00::1]:22"), (Action::Bypass, Some(0)));
    }
}
