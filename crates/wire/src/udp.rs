//! UDP datagrams (RFC 768).

use crate::Error;
use crate::bytes::{put_u16, u16_at};
use crate::checksum;

/// A view of a UDP datagram.
#[derive(Clone, Debug)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of `buffer`, which may be longer than the datagram.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the buffer is shorter than the datagram says,
    /// [`Error::Malformed`] when the datagram says that it is shorter than its header.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let packet = Self { buffer };
        if packet.bytes().len() < HEADER_BYTES {
            return Err(Error::Truncated);
        }
        if packet.total_len() < HEADER_BYTES {
            return Err(Error::Malformed);
        }
        if packet.bytes().len() < packet.total_len() {
            return Err(Error::Truncated);
        }
        Ok(packet)
    }

    /// The buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        u16_at(self.bytes(), field::SOURCE_PORT)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        u16_at(self.bytes(), field::DESTINATION_PORT)
    }

    /// Bytes of the datagram, header included.
    pub fn total_len(&self) -> usize {
        usize::from(u16_at(self.bytes(), field::LEN))
    }

    /// Checksum; zero over IPv4: the sender computed none.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// True when the checksum is right under `pseudo`, the sum of the pseudo-header, or absent.
    pub fn verify_checksum(&self, pseudo: u16) -> bool {
        let datagram = self.bytes().get(..self.total_len()).unwrap_or_default();
        self.checksum() == 0 || checksum::add(pseudo, checksum::sum(datagram)) == 0xffff
    }

    /// What the datagram carries.
    pub fn payload(&self) -> &[u8] {
        self.bytes()
            .get(HEADER_BYTES..self.total_len())
            .unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Computes the checksum under `pseudo`, the sum of the pseudo-header. One that comes out as
    /// zero is written as all ones (RFC 768).
    pub fn fill_checksum(&mut self, pseudo: u16) {
        let len = self.total_len();
        if let Some(datagram) = self.buffer.as_mut().get_mut(..len) {
            put_u16(datagram, field::CHECKSUM, 0);
            let check = !checksum::add(pseudo, checksum::sum(datagram));
            put_u16(
                datagram,
                field::CHECKSUM,
                if check == 0 { 0xffff } else { check },
            );
        }
    }

    /// What the datagram carries.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = HEADER_BYTES..self.total_len();
        self.buffer.as_mut().get_mut(range).unwrap_or_default()
    }
}

/// What a UDP header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Bytes of the payload.
    pub payload_len: u16,
}

impl Repr {
    /// Reads the header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self {
            source_port: packet.source_port(),
            destination_port: packet.destination_port(),
            payload_len: u16::try_from(packet.payload().len()).unwrap_or(u16::MAX),
        }
    }

    /// Writes the eight bytes of the header, without a checksum, and returns their number. The
    /// payload goes behind it; then [`Packet::fill_checksum`].
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter, [`Error::Malformed`] when header and payload
    /// exceed 65535 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let total = self.payload_len.checked_add(8).ok_or(Error::Malformed)?;
        let header = buffer.get_mut(..HEADER_BYTES).ok_or(Error::NoRoom)?;
        put_u16(header, field::SOURCE_PORT, self.source_port);
        put_u16(header, field::DESTINATION_PORT, self.destination_port);
        put_u16(header, field::LEN, total);
        put_u16(header, field::CHECKSUM, 0);
        Ok(HEADER_BYTES)
    }
}

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// Where the fields stand (RFC 768).
pub(crate) mod field {
    pub(crate) const SOURCE_PORT: usize = 0;
    pub(crate) const DESTINATION_PORT: usize = 2;
    pub(crate) const LEN: usize = 4;
    pub(crate) const CHECKSUM: usize = 6;
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr = Repr {
        source_port: 5201,
        destination_port: 53,
        payload_len: 3,
    };

    #[test]
    fn what_is_emitted_parses_back_and_its_checksum_verifies() {
        let mut bytes = [0_u8; 12];
        REPR.emit(&mut bytes).unwrap();
        bytes[8..11].copy_from_slice(b"abc");
        let mut packet = Packet::new_checked(bytes).unwrap();
        assert!(packet.verify_checksum(0x1234), "no checksum is no error");
        packet.fill_checksum(0x1234);
        assert!(packet.verify_checksum(0x1234));
        assert!(!packet.verify_checksum(0x1235));
        assert_eq!(Repr::parse(&packet), REPR);
        assert_eq!(packet.payload(), b"abc");
    }

    #[test]
    fn a_checksum_of_zero_is_written_as_all_ones() {
        let mut bytes = [0_u8; 8];
        Repr {
            payload_len: 0,
            ..REPR
        }
        .emit(&mut bytes)
        .unwrap();
        let pseudo = !checksum::sum(&bytes);
        let mut packet = Packet::new_checked(bytes).unwrap();
        packet.fill_checksum(pseudo);
        assert_eq!(packet.checksum(), 0xffff);
        assert!(packet.verify_checksum(pseudo));
    }

    #[test]
    fn a_length_below_the_header_or_above_the_buffer_is_refused() {
        let mut bytes = [0_u8; 12];
        for (len, error) in [(7, Error::Malformed), (13, Error::Truncated)] {
            bytes[5] = len;
            assert_eq!(Packet::new_checked(bytes).unwrap_err(), error);
        }
        assert_eq!(
            Packet::new_checked([0_u8; 7]).unwrap_err(),
            Error::Truncated
        );
    }
}
