//! Captured packets one after the other: decoded, fragments put together, counted by what they are.

use std::fmt;

use wire::capture::LinkType;
use wire::segment::{Decoded, FragmentCounts, Reassembly, Segment, decode};

/// Decodes the packets of a capture.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    kinds: Kinds,
    others: Vec<(Other, u64)>,
    reassembly: Reassembly,
}

/// Packets by what they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// TCP segments.
    pub tcp: u64,
    /// UDP datagrams.
    pub udp: u64,
    /// IP with other protocols.
    pub other_ip: u64,
    /// Fragments that did not complete a packet; the one that did counts as what the packet is.
    pub fragments: u64,
    /// Other than IP.
    pub not_ip: u64,
    /// Encrypted below IP.
    pub encrypted: u64,
    /// Cut before the end of the headers that are needed.
    pub cut: u64,
    /// With headers that contradict themselves.
    pub malformed: u64,
    /// Of link types that are not known.
    pub unknown_link: u64,
}

/// What a packet is that is neither TCP nor UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    /// Of a link type that is not read.
    Link(u16),
    /// Of this EtherType; a number of 802.2 or PPP below 1,536, zero for a link layer's own frames.
    EtherType(u16),
    /// IP with this protocol.
    Protocol(u8),
    /// Of a kind beyond the first [`OTHERS_MAX`].
    More,
}

/// A captured packet, as a file's record or an interface gives it.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// What it begins with.
    pub link: LinkType,
    /// Number of the interface.
    pub interface: u32,
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
    /// Bytes that it had.
    pub original_bytes: u32,
    /// Those that were kept.
    pub captured: &'a [u8],
}

impl Decoder {
    /// Reads the next packet into `segment`, whose content counts after [`Decoded::Tcp`] only. A
    /// fragment that completes a packet is what that packet is.
    #[inline]
    pub fn decode(&mut self, raw: Raw<'_>, segment: &mut Segment) -> Decoded {
        let decoded = decode(raw.link, raw.captured, raw.original_bytes, segment);
        if matches!(decoded, Decoded::Tcp) {
            self.kinds.tcp += 1;
            return decoded;
        }
        let decoded = self.other(decoded, raw, segment);
        self.kinds.add(decoded);
        decoded
    }

    /// Packets until now, by what they were.
    pub const fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// Packets that are neither TCP nor UDP, by what they are, the most frequent first.
    pub fn others(&self) -> Vec<(Other, u64)> {
        let mut others = self.others.clone();
        others.sort_by_key(|&(what, count)| (std::cmp::Reverse(count), what));
        others
    }

    /// Fragments until now.
    pub fn fragments(&self) -> FragmentCounts {
        self.reassembly.counts()
    }

    #[inline(never)]
    fn other(&mut self, decoded: Decoded, raw: Raw<'_>, segment: &mut Segment) -> Decoded {
        let decoded = match decoded {
            Decoded::Fragment { at } => {
                let packet = raw.captured.get(at as usize..).unwrap_or_default();
                let whole = self
                    .reassembly
                    .take(packet, raw.interface, raw.time_ns, segment);
                whole.unwrap_or(decoded)
            }
            decoded => decoded,
        };
        let other = match decoded {
            Decoded::OtherIp { protocol } => Other::Protocol(protocol),
            Decoded::NotIp { ether_type } => Other::EtherType(ether_type),
            Decoded::UnknownLink => Other::Link(raw.link.0),
            _ => return decoded,
        };
        match self.others.iter().position(|(what, _)| *what == other) {
            Some(place) => self.others[place].1 += 1,
            None if self.others.len() < OTHERS_MAX => self.others.push((other, 1)),
            None => match self
                .others
                .iter_mut()
                .find(|(what, _)| *what == Other::More)
            {
                Some((_, count)) => *count += 1,
                None => self.others.push((Other::More, 1)),
            },
        }
        decoded
    }
}

impl Kinds {
    /// Counts one packet.
    fn add(&mut self, decoded: Decoded) {
        let counter = match decoded {
            Decoded::Tcp => &mut self.tcp,
            Decoded::Udp => &mut self.udp,
            Decoded::OtherIp { .. } => &mut self.other_ip,
            Decoded::Fragment { .. } => &mut self.fragments,
            Decoded::NotIp { .. } => &mut self.not_ip,
            Decoded::Encrypted => &mut self.encrypted,
            Decoded::Cut => &mut self.cut,
            Decoded::UnknownLink => &mut self.unknown_link,
            _ => &mut self.malformed,
        };
        *counter += 1;
    }

    /// All of them.
    pub const fn all(&self) -> u64 {
        let ip = self.tcp + self.udp + self.other_ip + self.fragments;
        ip + self.not_ip + self.encrypted + self.cut + self.malformed + self.unknown_link
    }
}

impl fmt::Display for Other {
    /// The name of the protocol where it has a common one, else its number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |table: &[(u16, &'static str)], number: u16| {
            let found = table.iter().find(|(known, _)| *known == number);
            found.map(|(_, name)| *name)
        };
        match *self {
            Self::Link(number) => match named(LINKS, number) {
                Some(name) => write!(f, "{name} (link type {number}, not read)"),
                None => write!(f, "link type {number}, not read"),
            },
            Self::EtherType(number) => match named(ETHER_TYPES, number) {
                Some(name) => f.write_str(name),
                None if number < 1536 => f.write_str("control frames of the link layer"),
                None => write!(f, "EtherType 0x{number:04x}"),
            },
            Self::Protocol(number) => match named(PROTOCOLS, u16::from(number)) {
                Some(name) => f.write_str(name),
                None => write!(f, "IP protocol {number}"),
            },
            Self::More => f.write_str("other protocols"),
        }
    }
}

/// Kinds of packets that are told apart; a hostile capture has any.
const OTHERS_MAX: usize = 64;

// Names by IANA's and IEEE's registries and the tcpdump group's list of link types.
const PROTOCOLS: &[(u16, &str)] = &[
    (1, "ICMP"),
    (2, "IGMP"),
    (47, "GRE"),
    (50, "IPsec ESP (encrypted)"),
    (51, "IPsec AH"),
    (58, "ICMPv6"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (103, "PIM"),
    (108, "IPComp (compressed)"),
    (112, "VRRP"),
    (115, "L2TP"),
    (132, "SCTP"),
];
const ETHER_TYPES: &[(u16, &str)] = &[
    (0x42, "spanning tree"),
    (0x0806, "ARP"),
    (0x8035, "RARP"),
    (0x8808, "Ethernet flow control"),
    (0x8809, "LACP"),
    (0x8847, "MPLS"),
    (0x8863, "PPPoE discovery"),
    (0x888e, "EAPOL"),
    (0x88a2, "ATA over Ethernet"),
    (0x88cc, "LLDP"),
    (0x88e5, "MACsec (encrypted)"),
    (0x88f7, "PTP"),
    (0x8906, "FCoE"),
    (0x8915, "RoCE"),
    (0x9000, "Ethernet loopback"),
];
const LINKS: &[(u16, &str)] = &[
    (147, "user-defined 0"),
    (187, "Bluetooth HCI"),
    (189, "USB"),
    (195, "IEEE 802.15.4"),
    (201, "Bluetooth HCI"),
    (220, "USB"),
    (227, "CAN"),
    (230, "IEEE 802.15.4"),
    (247, "InfiniBand"),
    (249, "USB"),
    (251, "Bluetooth LE"),
    (253, "netlink"),
    (266, "USB"),
];
