//! What rules ask of a frame: its header fields, read once, and a match over them.
//!
//! Only headers are read, so that the payload need not be there; lengths are those that the headers
//! state. Left out: SNAP, tunnels (the outer headers count), ports of protocols other than TCP and
//! UDP, the AE flag of TCP. The n-th packet that matches is for the caller to count.
//!
//! Reading: RFC 791 and RFC 8200 (headers and fragments), RFC 4632 and RFC 4291 section 2.3
//! (prefixes), RFC 5952 (text of IPv6 addresses).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::bytes::{array_at, u8_at, u16_at};
use crate::{ethernet, ipv4, ipv6, protocol, tcp, udp};

/// An Ethernet address. Written `02:00:00:00:00:01`; case does not matter when read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// A block of IP addresses: those whose first bits are equal. Written `10.0.0.0/8` or `fd00::/8`;
/// a bare address is the block of that one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// All bits behind the prefix are zero.
    network: IpAddr,
    bits: u8,
}

/// Why text is no address or prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// Not six pairs of hexadecimal digits with colons between them.
    Mac,
    /// Neither an IPv4 nor an IPv6 address.
    Address,
    /// The length is no number or exceeds the address.
    PrefixBits,
    /// The address has bits behind the prefix: it is a host's, not a block's.
    HostBits(Prefix),
}

/// What the headers of a frame say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Type of the network layer, past all VLAN tags; the type field as it stands where the frame
    /// ends within them.
    pub ethertype: u16,
    /// Source address.
    pub src_mac: Mac,
    /// Destination address.
    pub dst_mac: Mac,
    /// VLAN identifier of the outermost tag, 0..=4095.
    pub vlan: Option<u16>,
    /// IP source address.
    pub src: Option<IpAddr>,
    /// IP destination address.
    pub dst: Option<IpAddr>,
    /// Protocol of the upper layer, past all extension headers; `None` without IP or where the
    /// frame ends within them.
    pub protocol: Option<u8>,
    /// Source port of TCP or UDP; `None` in a fragment other than the first.
    pub src_port: Option<u16>,
    /// Destination port, as the source port.
    pub dst_port: Option<u16>,
    /// The low eight control bits of TCP, FIN lowest.
    pub tcp_flags: Option<u8>,
    /// Differentiated services code point, 0..=63; zero without IP.
    pub dscp: u8,
    /// ECN bits, 0..=3; zero without IP.
    pub ecn: u8,
    /// Time to live or hop limit; zero without IP.
    pub ttl: u8,
    /// Bytes of the IP packet as its header states; without IP, the frame's behind the Ethernet
    /// header and its tags.
    pub l3_bytes: u32,
    /// The first of the fragments of a datagram.
    pub is_first_fragment: bool,
    /// A fragment, the first included.
    pub is_fragment: bool,
    /// Type of ICMP or ICMPv6.
    pub icmp_type: Option<u8>,
}

/// Control bits of TCP to look at, and what they must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagsMatch {
    /// The bits that are looked at.
    pub mask: u8,
    /// What they must be. A bit outside of the mask can never match.
    pub value: u8,
}

/// What packets must be like; `None` leaves a field free. A field that a packet lacks matches
/// nothing but `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Port that the frame came in by.
    pub in_port: Option<u16>,
    /// Ethernet source address.
    pub src_mac: Option<Mac>,
    /// Ethernet destination address.
    pub dst_mac: Option<Mac>,
    /// Type of the network layer, past all VLAN tags.
    pub ethertype: Option<u16>,
    /// VLAN identifier of the outermost tag.
    pub vlan: Option<u16>,
    /// IP source address.
    pub src: Option<Prefix>,
    /// IP destination address.
    pub dst: Option<Prefix>,
    /// Protocol of the upper layer.
    pub protocol: Option<u8>,
    /// Source ports of TCP or UDP.
    pub src_ports: Option<RangeInclusive<u16>>,
    /// Destination ports of TCP or UDP.
    pub dst_ports: Option<RangeInclusive<u16>>,
    /// Control bits of TCP.
    pub tcp_flags: Option<FlagsMatch>,
    /// Differentiated services code point; matches IP alone.
    pub dscp: Option<u8>,
    /// ECN bits; matches IP alone.
    pub ecn: Option<u8>,
    /// Type of ICMP or ICMPv6.
    pub icmp_type: Option<u8>,
    /// Only the n-th of the packets that match all the rest, the first being 1. The caller counts:
    /// [`Self::matches`] does not look at it.
    pub nth: Option<u64>,
}

impl Mac {
    /// The address of all stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for multicast and broadcast addresses (the I/G bit of IEEE 802).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// True when one station can have the address: no group, not zero.
    pub const fn is_station(self) -> bool {
        let [a, b, c, d, e, f] = self.0;
        !self.is_group() && a | b | c | d | e | f != 0
    }
}

impl From<[u8; 6]> for Mac {
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

impl FromStr for Mac {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut mac = Self::default();
        let mut parts = text.split(':');
        for byte in &mut mac.0 {
            let part = parts.next().ok_or(ParseError::Mac)?;
            // from_str_radix takes a sign as well.
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseError::Mac);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| ParseError::Mac)?;
        }
        parts.next().map_or(Ok(mac), |_| Err(ParseError::Mac))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Prefix {
    /// The block of `bits` bits that `address` lies in; `None` when the address has fewer bits.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let network = match address {
            IpAddr::V4(a) if bits <= 32 => Ipv4Addr::from(u32::from(a) & mask_v4(bits)).into(),
            IpAddr::V6(a) if bits <= 128 => Ipv6Addr::from(u128::from(a) & mask_v6(bits)).into(),
            _ => return None,
        };
        Some(Self { network, bits })
    }

    /// The block of one address.
    pub const fn host(address: IpAddr) -> Self {
        Self {
            network: address,
            bits: address_bits(address),
        }
    }

    /// The lowest address of the block.
    pub const fn network(self) -> IpAddr {
        self.network
    }

    /// Bits that all addresses of the block share: 0..=32 for IPv4, 0..=128 for IPv6.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// True when `address` lies in the block. IPv4 addresses mapped into IPv6 are IPv6 addresses.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(a)) => {
                u32::from(a) & mask_v4(self.bits) == u32::from(network)
            }
            (IpAddr::V6(network), IpAddr::V6(a)) => {
                u128::from(a) & mask_v6(self.bits) == u128::from(network)
            }
            _ => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParseError::Address)?;
        let Some(bits) = bits else {
            return Ok(Self::host(address));
        };
        if !bits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseError::PrefixBits);
        }
        let prefix = bits
            .parse()
            .ok()
            .and_then(|bits| Self::new(address, bits))
            .ok_or(ParseError::PrefixBits)?;
        if prefix.network == address {
            Ok(prefix)
        } else {
            Err(ParseError::HostBits(prefix))
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == address_bits(self.network) {
            write!(f, "{}", self.network)
        } else {
            write!(f, "{}/{}", self.network, self.bits)
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac => f.write_str("an Ethernet address is written like 02:00:00:00:00:01"),
            Self::Address => {
                f.write_str("not an IP address: write 10.0.0.0/8, fd00::/8 or one host")
            }
            Self::PrefixBits => {
                f.write_str("a prefix has 0 to 32 bits of IPv4 or 0 to 128 of IPv6")
            }
            Self::HostBits(prefix) => {
                write!(f, "the address has bits behind its prefix: write {prefix}")
            }
        }
    }
}

impl std::error::Error for ParseError {}

impl Fields {
    /// Reads the headers of a frame. Never fails: what is not there stays `None` or zero.
    pub fn parse(frame: &[u8]) -> Self {
        let Ok(link) = ethernet::Frame::new_checked(frame) else {
            return Self::default();
        };
        let network = link.network();
        let behind = network.map_or(ethernet::HEADER_BYTES, |n| n.offset);
        let fields = Self {
            ethertype: network.map_or_else(|| link.ethertype(), |n| n.ethertype),
            src_mac: Mac(link.source()),
            dst_mac: Mac(link.destination()),
            vlan: link.vlan_tags().next().map(|tag| tag.vid),
            l3_bytes: u32::try_from(frame.len() - behind).unwrap_or(u32::MAX),
            ..Self::default()
        };
        match IpLayer::of(frame) {
            Some(ip) => fields.with_ip(&ip, frame),
            None => fields,
        }
    }

    fn with_ip(self, ip: &IpLayer, frame: &[u8]) -> Self {
        let class = ip.traffic_class(frame);
        let fields = Self {
            src: Some(ip.source(frame)),
            dst: Some(ip.destination(frame)),
            protocol: ip.upper.map(|upper| upper.protocol),
            dscp: class >> 2,
            ecn: class & 3,
            ttl: u8_at(frame, ip.ttl_at()),
            l3_bytes: u32::try_from(ip.l3_bytes).unwrap_or(u32::MAX),
            is_first_fragment: ip.fragment == Fragment::First,
            is_fragment: ip.fragment != Fragment::Whole,
            ..self
        };
        match ip.transport() {
            Some(upper) => fields.with_transport(upper.protocol, ip.bytes_from(frame, upper.l4)),
            None => fields,
        }
    }

    fn with_transport(self, number: u8, bytes: &[u8]) -> Self {
        let port = |at| array_at(bytes, at).map(u16::from_be_bytes);
        match number {
            protocol::TCP => Self {
                src_port: port(tcp::field::SOURCE_PORT),
                dst_port: port(tcp::field::DESTINATION_PORT),
                // The low byte of the word that begins with the data offset.
                tcp_flags: bytes.get(tcp::field::DATA_OFFSET + 1).copied(),
                ..self
            },
            protocol::UDP => Self {
                src_port: port(udp::field::SOURCE_PORT),
                dst_port: port(udp::field::DESTINATION_PORT),
                ..self
            },
            protocol::ICMP | protocol::ICMPV6 => Self {
                icmp_type: bytes.first().copied(),
                ..self
            },
            _ => self,
        }
    }
}

impl Match {
    /// True when a packet with these fields, come in by `in_port`, is one that is meant.
    pub fn matches(&self, fields: &Fields, in_port: u16) -> bool {
        let within = |ports: &Option<RangeInclusive<u16>>, port: Option<u16>| {
            ports
                .as_ref()
                .is_none_or(|ports| port.is_some_and(|port| ports.contains(&port)))
        };
        let inside = |prefix: Option<Prefix>, address: Option<IpAddr>| {
            prefix.is_none_or(|prefix| address.is_some_and(|a| prefix.contains(a)))
        };
        let is_ip = fields.src.is_some();
        self.in_port.is_none_or(|port| port == in_port)
            && self.src_mac.is_none_or(|mac| mac == fields.src_mac)
            && self.dst_mac.is_none_or(|mac| mac == fields.dst_mac)
            && self.ethertype.is_none_or(|t| t == fields.ethertype)
            && (self.vlan.is_none() || self.vlan == fields.vlan)
            && inside(self.src, fields.src)
            && inside(self.dst, fields.dst)
            && (self.protocol.is_none() || self.protocol == fields.protocol)
            && within(&self.src_ports, fields.src_port)
            && within(&self.dst_ports, fields.dst_port)
            && self
                .tcp_flags
                .is_none_or(|m| fields.tcp_flags.is_some_and(|f| f & m.mask == m.value))
            && self.dscp.is_none_or(|dscp| is_ip && dscp == fields.dscp)
            && self.ecn.is_none_or(|ecn| is_ip && ecn == fields.ecn)
            && (self.icmp_type.is_none() || self.icmp_type == fields.icmp_type)
    }
}

/// Version of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// All of it.
    Whole,
    /// Its beginning, the transport header included.
    First,
    /// Another part.
    Later,
}

/// The first header that is not IP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upper {
    /// Its protocol number.
    pub(crate) protocol: u8,
    /// Its first byte, from the frame's start; in a later fragment the middle of a datagram.
    pub(crate) l4: usize,
}

/// Where the IP headers of a frame stand. Unlike [`ipv4::Packet`] and [`ipv6::Packet`] it asks for
/// the headers alone, as a cut leaves them ([`crate::train::CutBuf::headers_mut`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpLayer {
    pub(crate) version: Version,
    /// First byte of the IP header, from the frame's start.
    pub(crate) l3: usize,
    /// Bytes of the packet, as its header states; at least the header's.
    pub(crate) l3_bytes: usize,
    /// `None` where the bytes end within the extension headers.
    pub(crate) upper: Option<Upper>,
    pub(crate) fragment: Fragment,
    /// A routing header has addresses left: the transport checksum covers the last of them, not
    /// the destination in the header (RFC 8200 section 8.1).
    pub(crate) routed: bool,
}

impl IpLayer {
    /// Reads the IP header and what lies between it and the transport layer; `None` without one,
    /// or where it is not whole or contradicts itself.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let network = ethernet::network(frame)?;
        let bytes = frame.get(network.offset..)?;
        match network.ethertype {
            ethernet::TYPE_IPV4 => Self::ipv4(network.offset, bytes),
            ethernet::TYPE_IPV6 => Self::ipv6(network.offset, bytes),
            _ => None,
        }
    }

    fn ipv4(l3: usize, bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let header = usize::from(first & 0x0f) * 4;
        let l3_bytes = usize::from(u16_at(bytes, ipv4::field::TOTAL_LEN));
        let whole = header >= ipv4::HEADER_BYTES_MIN && bytes.len() >= header;
        if first >> 4 != 4 || !whole || l3_bytes < header {
            return None;
        }
        let place = u16_at(bytes, ipv4::field::FRAGMENT);
        Some(Self {
            version: Version::V4,
            l3,
            l3_bytes,
            upper: Some(Upper {
                protocol: u8_at(bytes, ipv4::field::PROTOCOL),
                l4: l3 + header,
            }),
            fragment: Fragment::of(place & 0x1fff, place & 0x2000 != 0),
            routed: false,
        })
    }

    fn ipv6(l3: usize, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < ipv6::HEADER_BYTES || u8_at(bytes, 0) >> 4 != 6 {
            return None;
        }
        let payload = usize::from(u16_at(bytes, ipv6::field::PAYLOAD_LEN));
        let mut layer = Self {
            version: Version::V6,
            l3,
            l3_bytes: ipv6::HEADER_BYTES + payload,
            upper: None,
            fragment: Fragment::Whole,
            routed: false,
        };
        layer.skip_extensions(bytes.get(..layer.l3_bytes).unwrap_or(bytes));
        Some(layer)
    }

    /// Finds the upper layer of `packet`, as [`ipv6::Packet::upper_layer`] does.
    fn skip_extensions(&mut self, packet: &[u8]) {
        let mut next = u8_at(packet, ipv6::field::NEXT_HEADER);
        let mut at = ipv6::HEADER_BYTES;
        // Each header is at least eight bytes long: the loop ends with the packet.
        while self.fragment != Fragment::Later && is_extension(next) {
            let Some(head) = array_at::<4>(packet, at) else {
                return;
            };
            let units = usize::from(head[1]);
            let len = match next {
                FRAGMENT => 8,
                AUTHENTICATION => (units + 2) * 4,
                _ => (units + 1) * 8,
            };
            if next == FRAGMENT {
                let place = u16::from_be_bytes([head[2], head[3]]);
                self.fragment = Fragment::of(place >> 3, place & 1 != 0);
            }
            self.routed |= next == ROUTING && head[3] != 0;
            next = head[0];
            at += len;
        }
        if at <= packet.len() {
            self.upper = Some(Upper {
                protocol: next,
                l4: self.l3 + at,
            });
        }
    }

    /// The upper layer where its header stands in this packet.
    pub(crate) fn transport(&self) -> Option<Upper> {
        self.upper.filter(|_| self.fragment != Fragment::Later)
    }

    /// The packet's bytes from `at` on, as far as they are there; without the frame's padding.
    pub(crate) fn bytes_from<'a>(&self, frame: &'a [u8], at: usize) -> &'a [u8] {
        let end = frame.len().min(self.l3 + self.l3_bytes);
        frame.get(at..end).unwrap_or_default()
    }

    pub(crate) fn traffic_class(&self, frame: &[u8]) -> u8 {
        let [high, low] = u16_at(frame, self.l3).to_be_bytes();
        match self.version {
            Version::V4 => low,
            Version::V6 => (high << 4) | (low >> 4),
        }
    }

    pub(crate) const fn ttl_at(&self) -> usize {
        self.l3
            + match self.version {
                Version::V4 => ipv4::field::TTL,
                Version::V6 => ipv6::field::HOP_LIMIT,
            }
    }

    pub(crate) const fn source_at(&self) -> usize {
        self.l3
            + match self.version {
                Version::V4 => ipv4::field::SOURCE,
                Version::V6 => ipv6::field::SOURCE,
            }
    }

    pub(crate) const fn destination_at(&self) -> usize {
        self.l3
            + match self.version {
                Version::V4 => ipv4::field::DESTINATION,
                Version::V6 => ipv6::field::DESTINATION,
            }
    }

    pub(crate) fn source(&self, frame: &[u8]) -> IpAddr {
        self.address(frame, self.source_at())
    }

    pub(crate) fn destination(&self, frame: &[u8]) -> IpAddr {
        self.address(frame, self.destination_at())
    }

    fn address(&self, frame: &[u8], at: usize) -> IpAddr {
        match self.version {
            Version::V4 => array_at::<4>(frame, at).unwrap_or_default().into(),
            Version::V6 => array_at::<16>(frame, at).unwrap_or_default().into(),
        }
    }
}

impl Fragment {
    const fn of(offset: u16, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::Whole,
            (0, true) => Self::First,
            _ => Self::Later,
        }
    }
}

const fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION_OPTIONS
            | MOBILITY
            | HIP
            | SHIM6
    )
}

const fn address_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// `bits` ones, then zeroes; `bits` is 32 at most.
fn mask_v4(bits: u8) -> u32 {
    u32::MAX
        .checked_shl(32 - u32::from(bits.min(32)))
        .unwrap_or(0)
}

/// `bits` ones, then zeroes; `bits` is 128 at most.
fn mask_v6(bits: u8) -> u128 {
    u128::MAX
        .checked_shl(128 - u32::from(bits.min(128)))
        .unwrap_or(0)
}

/// Extension headers, as in IANA's "IPv6 Extension Header Types" without ESP; the module `ipv6`
/// skips the same ones.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;
