//! IPv6 packets and their extension headers (RFC 8200).
//!
//! Extension headers are skipped to find the upper layer; their options are not interpreted. Left
//! out: jumbograms (RFC 2675), whose length field of zero reads as an empty payload.

use crate::Error;
use crate::bytes::{array_at, put, put_u16, u8_at, u16_at, u32_at};

/// A view of an IPv6 packet.
#[derive(Clone, Debug)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

/// The first header that is not an extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// Its protocol number.
    pub protocol: u8,
    /// Its first byte, from the start of the IPv6 header. In a fragment other than the first it is
    /// the middle of a datagram that stands there.
    pub offset: usize,
    /// True when a fragment header was passed.
    pub fragment: bool,
    /// True when a routing header was passed: the checksum is over another destination.
    pub routed: bool,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of `buffer`, which may be longer than the packet.
    ///
    /// # Errors
    /// [`Error::Malformed`] for another version, [`Error::Truncated`] when the buffer is shorter
    /// than the packet says.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let packet = Self { buffer };
        let len = packet.bytes().len();
        if len < HEADER_BYTES {
            return Err(Error::Truncated);
        }
        if packet.version() != 6 {
            return Err(Error::Malformed);
        }
        if len < packet.total_len() {
            return Err(Error::Truncated);
        }
        Ok(packet)
    }

    /// The buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Version: 6.
    pub fn version(&self) -> u8 {
        u8_at(self.bytes(), 0) >> 4
    }

    /// Differentiated services code point, 0..=63.
    pub fn dscp(&self) -> u8 {
        let [class, _] = (u16_at(self.bytes(), 0) << 4).to_be_bytes();
        class >> 2
    }

    /// Explicit congestion notification bits, 0..=3.
    pub fn ecn(&self) -> u8 {
        (u8_at(self.bytes(), 1) >> 4) & 3
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32_at(self.bytes(), 0) & 0x000f_ffff
    }

    /// Bytes after the fixed header, extension headers included.
    pub fn payload_len(&self) -> u16 {
        u16_at(self.bytes(), field::PAYLOAD_LEN)
    }

    /// Bytes of the packet.
    pub fn total_len(&self) -> usize {
        HEADER_BYTES + usize::from(self.payload_len())
    }

    /// Number of the next header, extension headers included.
    pub fn next_header(&self) -> u8 {
        u8_at(self.bytes(), field::NEXT_HEADER)
    }

    /// Routers that may still forward the packet.
    pub fn hop_limit(&self) -> u8 {
        u8_at(self.bytes(), field::HOP_LIMIT)
    }

    /// Source address.
    pub fn source(&self) -> [u8; 16] {
        array_at(self.bytes(), field::SOURCE).unwrap_or_default()
    }

    /// Destination address.
    pub fn destination(&self) -> [u8; 16] {
        array_at(self.bytes(), field::DESTINATION).unwrap_or_default()
    }

    /// What follows the fixed header: extension headers, then the upper layer.
    pub fn payload(&self) -> &[u8] {
        self.bytes()
            .get(HEADER_BYTES..self.total_len())
            .unwrap_or_default()
    }

    /// Skips the extension headers; `None` when the packet ends within them.
    pub fn upper_layer(&self) -> Option<UpperLayer> {
        let packet = self.bytes().get(..self.total_len())?;
        let mut upper = UpperLayer {
            protocol: self.next_header(),
            offset: HEADER_BYTES,
            fragment: false,
            routed: false,
        };
        // Each header is at least eight bytes long: the loop ends with the packet.
        while let Some(len) = extension_bytes(upper.protocol, packet, upper.offset)? {
            let offset = upper.offset + len;
            upper.fragment |= upper.protocol == FRAGMENT;
            upper.routed |= upper.protocol == ROUTING;
            let later_fragment =
                upper.protocol == FRAGMENT && u16_at(packet, upper.offset + 2) & 0xfff8 != 0;
            upper.protocol = u8_at(packet, upper.offset);
            upper.offset = offset;
            if offset > packet.len() {
                return None;
            }
            if later_fragment {
                break;
            }
        }
        Some(upper)
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the ECN bits.
    pub fn set_ecn(&mut self, ecn: u8) {
        let byte = (u8_at(self.bytes(), 1) & 0xcf) | ((ecn & 3) << 4);
        put(self.buffer.as_mut(), 1, &[byte]);
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        put(self.buffer.as_mut(), field::HOP_LIMIT, &[hop_limit]);
    }

    /// What follows the fixed header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = HEADER_BYTES..self.total_len();
        self.buffer.as_mut().get_mut(range).unwrap_or_default()
    }
}

/// What the fixed header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Number of the next header.
    pub next_header: u8,
    /// Bytes after the fixed header.
    pub payload_len: u16,
    /// Differentiated services code point, 0..=63.
    pub dscp: u8,
    /// ECN bits, 0..=3.
    pub ecn: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Repr {
    /// Reads the fixed header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self {
            source: packet.source(),
            destination: packet.destination(),
            next_header: packet.next_header(),
            payload_len: packet.payload_len(),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            flow_label: packet.flow_label(),
            hop_limit: packet.hop_limit(),
        }
    }

    /// Writes the 40 bytes of the header and returns their number.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let header = buffer.get_mut(..HEADER_BYTES).ok_or(Error::NoRoom)?;
        let class = u32::from((self.dscp << 2) | (self.ecn & 3));
        let first = (6 << 28) | (class << 20) | (self.flow_label & 0x000f_ffff);
        put(header, 0, &first.to_be_bytes());
        put_u16(header, field::PAYLOAD_LEN, self.payload_len);
        put(
            header,
            field::NEXT_HEADER,
            &[self.next_header, self.hop_limit],
        );
        put(header, field::SOURCE, &self.source);
        put(header, field::DESTINATION, &self.destination);
        Ok(HEADER_BYTES)
    }
}

/// Length of the extension header `protocol` at `at`: `Some(None)` when it is none, `None` when
/// the packet ends before its length field.
#[inline]
pub(crate) fn extension_bytes(protocol: u8, packet: &[u8], at: usize) -> Option<Option<usize>> {
    Some(match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6 => {
            Some((usize::from(*packet.get(at + 1)?) + 1) * 8)
        }
        // RFC 4302 section 2.2: in units of four bytes, minus two.
        AUTHENTICATION => Some((usize::from(*packet.get(at + 1)?) + 2) * 4),
        FRAGMENT => array_at::<8>(packet, at).map(|header| Some(header.len()))?,
        _ => None,
    })
}

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 40;

/// Extension headers, as in IANA's "IPv6 Extension Header Types". ESP is not among them: what
/// follows it is encrypted.
pub(crate) const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Where the fields stand (RFC 8200 section 3).
pub(crate) mod field {
    pub(crate) const PAYLOAD_LEN: usize = 4;
    pub(crate) const NEXT_HEADER: usize = 6;
    pub(crate) const HOP_LIMIT: usize = 7;
    pub(crate) const SOURCE: usize = 8;
    pub(crate) const DESTINATION: usize = 24;
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr = Repr {
        source: [0xfd; 16],
        destination: [0xfe; 16],
        next_header: HOP_BY_HOP,
        payload_len: 40,
        dscp: 46,
        ecn: 1,
        flow_label: 0xabcde,
        hop_limit: 64,
    };

    /// Hop-by-hop (16 bytes), `second` (8 bytes), then 16 bytes of TCP.
    fn packet_with(second: u8, fragment_field: u16) -> Vec<u8> {
        let mut bytes = vec![0_u8; 80];
        REPR.emit(&mut bytes).unwrap();
        bytes[40..42].copy_from_slice(&[second, 1]);
        bytes[56] = 6;
        bytes[58..60].copy_from_slice(&fragment_field.to_be_bytes());
        bytes
    }

    #[test]
    fn what_is_emitted_parses_back() {
        let packet = Packet::new_checked(packet_with(60, 0)).unwrap();
        assert_eq!(Repr::parse(&packet), REPR);
        assert_eq!(
            Packet::new_checked(&packet_with(60, 0)[..79]).unwrap_err(),
            Error::Truncated
        );
    }

    #[test]
    fn extension_headers_are_skipped_to_the_upper_layer() {
        let upper = |second| {
            Packet::new_checked(packet_with(second, 0))
                .unwrap()
                .upper_layer()
        };
        let plain = UpperLayer {
            protocol: 6,
            offset: 64,
            fragment: false,
            routed: false,
        };
        assert_eq!(upper(DESTINATION_OPTIONS), Some(plain));
        assert_eq!(
            upper(ROUTING),
            Some(UpperLayer {
                routed: true,
                ..plain
            })
        );
        assert_eq!(
            upper(FRAGMENT),
            Some(UpperLayer {
                fragment: true,
                ..plain
            })
        );
    }

    #[test]
    fn nothing_is_skipped_in_a_later_fragment() {
        let mut bytes = packet_with(FRAGMENT, 8);
        bytes[56] = DESTINATION_OPTIONS;
        let upper = Packet::new_checked(bytes).unwrap().upper_layer().unwrap();
        assert_eq!((upper.protocol, upper.offset), (DESTINATION_OPTIONS, 64));
        assert!(upper.fragment);
    }

    #[test]
    fn a_header_longer_than_the_packet_has_no_upper_layer() {
        let mut bytes = packet_with(DESTINATION_OPTIONS, 0);
        bytes[57] = 3;
        assert_eq!(Packet::new_checked(bytes).unwrap().upper_layer(), None);
    }

    #[test]
    fn a_mark_leaves_the_flow_label_alone() {
        let mut packet = Packet::new_checked(packet_with(60, 0)).unwrap();
        packet.set_ecn(3);
        assert_eq!(Repr::parse(&packet), Repr { ecn: 3, ..REPR });
    }
}
