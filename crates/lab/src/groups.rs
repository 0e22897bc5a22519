//! Which flows a harmonizer takes as parallel streams of one transfer.

use std::net::IpAddr;

use link::Train;
use wire::classify::{Fields, Prefix};
use wire::protocol;

/// What makes TCP flows one group; what else there is, is in none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grouping {
    /// Flows between two prefixes are one group, the first that fits; flows that fit none are in none.
    /// Without any, flows from one address to another are a group.
    pub rules: Vec<GroupRule>,
}

/// Flows from anywhere in one prefix to anywhere in another; no prefix is everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRule {
    /// Of the senders.
    pub src: Option<Prefix>,
    /// Of the receivers.
    pub dst: Option<Prefix>,
}

impl Grouping {
    /// The group of a frame, as [`Train::group`] has it.
    pub(crate) fn group_of(&self, fields: &Fields) -> u32 {
        let (Some(protocol::TCP), Some(src), Some(dst)) = (fields.protocol, fields.src, fields.dst)
        else {
            return Train::NO_GROUP;
        };
        if self.rules.is_empty() {
            return of_pair(src, dst);
        }
        let inside = |prefix: Option<Prefix>, address| prefix.is_none_or(|p| p.contains(address));
        let first = self
            .rules
            .iter()
            .position(|rule| inside(rule.src, src) && inside(rule.dst, dst));
        first.map_or(Train::NO_GROUP, |n| {
            u32::try_from(n).map_or(Train::NO_GROUP, |n| n + 1)
        })
    }
}

/// A hash of both addresses, neither 0 nor [`Train::NO_GROUP`].
#[allow(clippy::cast_possible_truncation, reason = "parts of a hash")]
fn of_pair(src: IpAddr, dst: IpAddr) -> u32 {
    let words = [src, dst].map(|address| match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            (bits >> 64) as u64 ^ (bits as u64).rotate_left(23)
        }
    });
    let hash =
        (words[0].wrapping_mul(HASH_FACTOR).rotate_left(23) ^ words[1]).wrapping_mul(HASH_FACTOR);
    ((hash >> 32) as u32).clamp(1, Train::NO_GROUP - 1)
}

/// 2^64 over the golden ratio, made odd (Knuth, The Art of Computer Programming 3, section 6.4).
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(src: &str, dst: &str) -> Fields {
        Fields {
            src: Some(src.parse().unwrap()),
            dst: Some(dst.parse().unwrap()),
            protocol: Some(protocol::TCP),
            ..Fields::default()
        }
    }

    #[test]
    fn flows_between_two_addresses_are_a_group_and_others_another() {
        let group = |src, dst| Grouping::default().group_of(&tcp(src, dst));
        assert_eq!(group("10.0.0.1", "10.0.0.2"), group("10.0.0.1", "10.0.0.2"));
        assert_ne!(group("10.0.0.1", "10.0.0.2"), group("10.0.0.2", "10.0.0.1"));
        assert_ne!(group("10.0.0.1", "10.0.0.2"), group("10.0.0.1", "10.0.0.3"));
        assert_ne!(group("fd00::1", "fd00::2"), group("fd00::1", "fd00::3"));
        let udp = Fields {
            protocol: Some(protocol::UDP),
            ..tcp("10.0.0.1", "10.0.0.2")
        };
        for apart in [udp, Fields::default()] {
            assert_eq!(Grouping::default().group_of(&apart), Train::NO_GROUP);
        }
    }

    #[test]
    fn a_rule_groups_what_lies_between_its_prefixes_and_nothing_else() {
        let prefix = |text: &str| Some(text.parse().unwrap());
        let grouping = Grouping {
            rules: vec![
                GroupRule {
                    src: prefix("10.0.0.0/24"),
                    dst: prefix("10.1.0.0/16"),
                },
                GroupRule {
                    src: None,
                    dst: prefix("10.1.0.0/16"),
                },
            ],
        };
        let group = |src, dst| grouping.group_of(&tcp(src, dst));
        assert_eq!(group("10.0.0.1", "10.1.0.1"), 1);
        assert_eq!(group("10.0.0.200", "10.1.9.1"), 1);
        assert_eq!(group("10.0.1.1", "10.1.0.1"), 2);
        assert_eq!(group("10.0.0.1", "10.2.0.1"), Train::NO_GROUP);
    }
}
