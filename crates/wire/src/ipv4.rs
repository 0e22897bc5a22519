//! IPv4 packets (RFC 791).
//!
//! Options are carried but not interpreted; fragments are recognised, not reassembled. Making them
//! is [`crate::fragment`]'s.

use crate::Error;
use crate::bytes::{array_at, put, put_u16, u8_at, u16_at};
use crate::checksum;

/// A view of an IPv4 packet.
#[derive(Clone, Debug)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of `buffer`, which may be longer than the packet (Ethernet pads short ones).
    ///
    /// # Errors
    /// [`Error::Malformed`] for another version or a length that contradicts itself,
    /// [`Error::Truncated`] when the buffer is shorter than the packet says.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let bytes = buffer.as_ref();
        if bytes.len() < HEADER_BYTES_MIN {
            return Err(Error::Truncated);
        }
        let packet = Self { buffer };
        let header = packet.header_len();
        let total = usize::from(packet.total_len());
        if packet.version() != 4 || header < HEADER_BYTES_MIN || total < header {
            return Err(Error::Malformed);
        }
        if packet.buffer.as_ref().len() < total {
            return Err(Error::Truncated);
        }
        Ok(packet)
    }

    /// The buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Version: 4.
    pub fn version(&self) -> u8 {
        u8_at(self.bytes(), 0) >> 4
    }

    /// Bytes of the header, options included.
    pub fn header_len(&self) -> usize {
        usize::from(u8_at(self.bytes(), 0) & 0x0f) * 4
    }

    /// Differentiated services code point, 0..=63.
    pub fn dscp(&self) -> u8 {
        u8_at(self.bytes(), field::TRAFFIC_CLASS) >> 2
    }

    /// Explicit congestion notification bits, 0..=3 (RFC 3168 section 5).
    pub fn ecn(&self) -> u8 {
        u8_at(self.bytes(), field::TRAFFIC_CLASS) & 3
    }

    /// Bytes of the packet, header included.
    pub fn total_len(&self) -> u16 {
        u16_at(self.bytes(), field::TOTAL_LEN)
    }

    /// Identification, shared by the fragments of a datagram.
    pub fn identification(&self) -> u16 {
        u16_at(self.bytes(), field::IDENTIFICATION)
    }

    /// True when routers must not fragment.
    pub fn dont_fragment(&self) -> bool {
        u16_at(self.bytes(), field::FRAGMENT) & DONT_FRAGMENT != 0
    }

    /// True when this is a fragment, the first included.
    pub fn is_fragment(&self) -> bool {
        u16_at(self.bytes(), field::FRAGMENT) & 0x3fff != 0
    }

    /// Place of this fragment's payload in the datagram, bytes.
    pub fn fragment_offset(&self) -> u16 {
        (u16_at(self.bytes(), field::FRAGMENT) & 0x1fff) * 8
    }

    /// Routers that may still forward the packet.
    pub fn ttl(&self) -> u8 {
        u8_at(self.bytes(), field::TTL)
    }

    /// Protocol of the payload.
    pub fn protocol(&self) -> u8 {
        u8_at(self.bytes(), field::PROTOCOL)
    }

    /// Header checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// True when the header checksum is right.
    pub fn verify_checksum(&self) -> bool {
        self.bytes()
            .get(..self.header_len())
            .is_some_and(|h| checksum::sum(h) == 0xffff)
    }

    /// Source address.
    pub fn source(&self) -> [u8; 4] {
        array_at(self.bytes(), field::SOURCE).unwrap_or_default()
    }

    /// Destination address.
    pub fn destination(&self) -> [u8; 4] {
        array_at(self.bytes(), field::DESTINATION).unwrap_or_default()
    }

    /// Options as they stand.
    pub fn options(&self) -> &[u8] {
        self.bytes()
            .get(HEADER_BYTES_MIN..self.header_len())
            .unwrap_or_default()
    }

    /// What the packet carries, without the frame's padding.
    pub fn payload(&self) -> &[u8] {
        self.bytes()
            .get(self.header_len()..usize::from(self.total_len()))
            .unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the ECN bits; the checksum is the caller's to fill.
    pub fn set_ecn(&mut self, ecn: u8) {
        let class = (u8_at(self.bytes(), field::TRAFFIC_CLASS) & !3) | (ecn & 3);
        put(self.buffer.as_mut(), field::TRAFFIC_CLASS, &[class]);
    }

    /// Sets the time to live; the checksum is the caller's to fill.
    pub fn set_ttl(&mut self, ttl: u8) {
        put(self.buffer.as_mut(), field::TTL, &[ttl]);
    }

    /// Computes the header checksum.
    pub fn fill_checksum(&mut self) {
        let len = self.header_len();
        if let Some(header) = self.buffer.as_mut().get_mut(..len) {
            fill_checksum(header);
        }
    }

    /// What the packet carries.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = self.header_len()..usize::from(self.total_len());
        self.buffer.as_mut().get_mut(range).unwrap_or_default()
    }
}

/// What an IPv4 header without options says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Protocol of the payload.
    pub protocol: u8,
    /// Bytes of the payload.
    pub payload_len: u16,
    /// Differentiated services code point, 0..=63.
    pub dscp: u8,
    /// ECN bits, 0..=3.
    pub ecn: u8,
    /// Identification.
    pub identification: u16,
    /// True when routers must not fragment.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
}

impl Repr {
    /// Reads the header; options are dropped.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the packet is a fragment: it carries no whole upper layer.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        if packet.is_fragment() {
            return Err(Error::Malformed);
        }
        Ok(Self {
            source: packet.source(),
            destination: packet.destination(),
            protocol: packet.protocol(),
            payload_len: u16::try_from(packet.payload().len()).unwrap_or(u16::MAX),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            ttl: packet.ttl(),
        })
    }

    /// Writes the 20 bytes of the header with its checksum and returns their number.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter, [`Error::Malformed`] when header and payload
    /// exceed 65535 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let total = self.payload_len.checked_add(20).ok_or(Error::Malformed)?;
        let header = buffer.get_mut(..HEADER_BYTES_MIN).ok_or(Error::NoRoom)?;
        header.fill(0);
        put(header, 0, &[0x45, (self.dscp << 2) | (self.ecn & 3)]);
        put_u16(header, field::TOTAL_LEN, total);
        put_u16(header, field::IDENTIFICATION, self.identification);
        put_u16(header, field::FRAGMENT, u16::from(self.dont_fragment) << 14);
        put(header, field::TTL, &[self.ttl, self.protocol]);
        put(header, field::SOURCE, &self.source);
        put(header, field::DESTINATION, &self.destination);
        fill_checksum(header);
        Ok(HEADER_BYTES_MIN)
    }
}

/// Computes the checksum of `header`, which is the header and no more.
pub(crate) fn fill_checksum(header: &mut [u8]) {
    put_u16(header, field::CHECKSUM, 0);
    put_u16(header, field::CHECKSUM, checksum::checksum(header));
}

/// Bytes of a header without options.
pub const HEADER_BYTES_MIN: usize = 20;

/// Bits of the field with the fragment's offset.
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;

/// Where the fields stand (RFC 791 section 3.1).
pub(crate) mod field {
    pub(crate) const TRAFFIC_CLASS: usize = 1;
    pub(crate) const TOTAL_LEN: usize = 2;
    pub(crate) const IDENTIFICATION: usize = 4;
    pub(crate) const FRAGMENT: usize = 6;
    pub(crate) const TTL: usize = 8;
    pub(crate) const PROTOCOL: usize = 9;
    pub(crate) const CHECKSUM: usize = 10;
    pub(crate) const SOURCE: usize = 12;
    pub(crate) const DESTINATION: usize = 16;
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr = Repr {
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
        protocol: 6,
        payload_len: 4,
        dscp: 46,
        ecn: 2,
        identification: 0xbeef,
        dont_fragment: true,
        ttl: 63,
    };

    fn emitted() -> [u8; 30] {
        let mut bytes = [0xaa_u8; 30];
        REPR.emit(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_emitted_parses_back_with_a_right_checksum() {
        let packet = Packet::new_checked(emitted()).unwrap();
        assert_eq!(Repr::parse(&packet), Ok(REPR));
        assert!(packet.verify_checksum());
        assert_eq!(
            packet.payload(),
            [0xaa; 4],
            "the frame's padding is not payload"
        );
    }

    #[test]
    fn lengths_that_contradict_the_buffer_or_each_other_are_refused() {
        let bytes = emitted();
        assert_eq!(
            Packet::new_checked(&bytes[..23]).unwrap_err(),
            Error::Truncated
        );
        assert_eq!(
            Packet::new_checked(&bytes[..19]).unwrap_err(),
            Error::Truncated
        );
        for (at, value) in [(0, 0x44), (0, 0x65), (0, 0x4f), (3, 19)] {
            let mut bad = bytes;
            bad[at] = value;
            assert_eq!(
                Packet::new_checked(bad).unwrap_err(),
                Error::Malformed,
                "{at} {value}"
            );
        }
    }

    #[test]
    fn the_last_fragment_is_a_fragment() {
        let mut bytes = emitted();
        bytes[7] = 3;
        let packet = Packet::new_checked(bytes).unwrap();
        assert!(packet.is_fragment());
        assert_eq!(packet.fragment_offset(), 24);
        assert!(Repr::parse(&packet).is_err());
    }

    #[test]
    fn a_mark_and_a_filled_checksum_verify() {
        let mut packet = Packet::new_checked(emitted()).unwrap();
        packet.set_ecn(3);
        assert!(!packet.verify_checksum());
        packet.fill_checksum();
        assert!(packet.verify_checksum());
        assert_eq!((packet.dscp(), packet.ecn()), (46, 3));
    }
}
