//! TCP segments and their options.
//!
//! Known options: MSS, window scale, SACK permitted, SACK, timestamps; others are handed over as
//! they stand. An option of a known kind with another length than its RFC states counts as unknown:
//! Linux ignores it as well (net/ipv4/tcp_input.c, tcp_parse_options).
//!
//! Reading: RFC 9293 section 3.1 (header), RFC 7323 (window scale, timestamps), RFC 2018 and 2883
//! (SACK), RFC 3168 (ECN), RFC 9768 (the AE flag).

use std::fmt;

use crate::Error;
use crate::bytes::{put, put_u16, put_u32, u8_at, u16_at, u32_at};
use crate::checksum;

/// A view of a TCP segment.
#[derive(Clone, Debug)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

/// The control bits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u16);

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpOption<'a> {
    /// Largest segment that the sender takes, without options.
    MaxSegmentSize(u16),
    /// Shift of the window in all later segments.
    WindowScale(u8),
    /// The sender understands SACK.
    SackPermitted,
    /// What arrived out of order.
    Sack(SackBlocks),
    /// The sender's clock, and the peer's as last seen.
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The peer's, echoed.
        echo: u32,
    },
    /// An option of another kind or with an unexpected length.
    Unknown {
        /// Its kind.
        kind: u8,
        /// Its data, without kind and length.
        data: &'a [u8],
    },
}

/// Ranges of sequence numbers, left edge to first byte missing; the one that arrived last first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(u32, u32); SACK_BLOCKS_MAX],
    len: u8,
}

/// Iterator over the options of a segment: ends at the end-of-list option, and after the first one
/// whose length does not fit.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of `buffer`, which ends where the segment ends.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the header does not fit the buffer, [`Error::Malformed`] when it
    /// is stated to be shorter than 20 bytes.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let packet = Self { buffer };
        if packet.bytes().len() < HEADER_BYTES_MIN {
            return Err(Error::Truncated);
        }
        if packet.header_len() < HEADER_BYTES_MIN {
            return Err(Error::Malformed);
        }
        if packet.bytes().len() < packet.header_len() {
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

    /// Sequence number of the first byte, or of SYN.
    pub fn sequence(&self) -> u32 {
        u32_at(self.bytes(), field::SEQUENCE)
    }

    /// Next sequence number that the sender expects; means nothing without ACK.
    pub fn acknowledgment(&self) -> u32 {
        u32_at(self.bytes(), field::ACKNOWLEDGMENT)
    }

    /// Bytes of the header, options included.
    pub fn header_len(&self) -> usize {
        usize::from(u8_at(self.bytes(), field::DATA_OFFSET) >> 4) * 4
    }

    /// Control bits.
    pub fn flags(&self) -> Flags {
        Flags(u16_at(self.bytes(), field::DATA_OFFSET) & Flags::ALL)
    }

    /// Receive window before scaling.
    pub fn window(&self) -> u16 {
        u16_at(self.bytes(), field::WINDOW)
    }

    /// Checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// Urgent pointer; means nothing without URG.
    pub fn urgent(&self) -> u16 {
        u16_at(self.bytes(), field::URGENT)
    }

    /// True when the checksum is right under `pseudo`, the sum of the pseudo-header.
    pub fn verify_checksum(&self, pseudo: u16) -> bool {
        checksum::add(pseudo, checksum::sum(self.bytes())) == 0xffff
    }

    /// The options in their order.
    pub fn options(&self) -> Options<'_> {
        Options {
            rest: self
                .bytes()
                .get(HEADER_BYTES_MIN..self.header_len())
                .unwrap_or_default(),
        }
    }

    /// What the segment carries.
    pub fn payload(&self) -> &[u8] {
        self.bytes().get(self.header_len()..).unwrap_or_default()
    }

    /// Sequence numbers that the segment takes up: its payload, SYN and FIN. Saturates.
    pub fn sequence_len(&self) -> u32 {
        let payload = u32::try_from(self.payload().len()).unwrap_or(u32::MAX);
        let flags = self.flags();
        let control = u32::from(flags.contains(Flags::SYN)) + u32::from(flags.contains(Flags::FIN));
        payload.saturating_add(control)
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the control bits.
    pub fn set_flags(&mut self, flags: Flags) {
        let word = u16_at(self.bytes(), field::DATA_OFFSET) & !Flags::ALL;
        put_u16(self.buffer.as_mut(), field::DATA_OFFSET, word | flags.0);
    }

    /// Sets the sequence number.
    pub fn set_sequence(&mut self, sequence: u32) {
        put_u32(self.buffer.as_mut(), field::SEQUENCE, sequence);
    }

    /// Sets the receive window.
    pub fn set_window(&mut self, window: u16) {
        put_u16(self.buffer.as_mut(), field::WINDOW, window);
    }

    /// Computes the checksum under `pseudo`, the sum of the pseudo-header.
    pub fn fill_checksum(&mut self, pseudo: u16) {
        let bytes = self.buffer.as_mut();
        put_u16(bytes, field::CHECKSUM, 0);
        let check = !checksum::add(pseudo, checksum::sum(bytes));
        put_u16(bytes, field::CHECKSUM, check);
    }

    /// What the segment carries.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let header = self.header_len();
        self.buffer.as_mut().get_mut(header..).unwrap_or_default()
    }
}

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// Reset the connection.
    pub const RST: Self = Self(0x004);
    /// Hand the data to the application.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgment field counts.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x020);
    /// A mark was received (ECN-Echo).
    pub const ECE: Self = Self(0x040);
    /// The congestion window was reduced.
    pub const CWR: Self = Self(0x080);
    /// Accurate ECN.
    pub const AE: Self = Self(0x100);

    const ALL: u16 = 0x1ff;
    const NAMES: [(Self, &'static str); 9] = [
        (Self::FIN, "FIN"),
        (Self::SYN, "SYN"),
        (Self::RST, "RST"),
        (Self::PSH, "PSH"),
        (Self::ACK, "ACK"),
        (Self::URG, "URG"),
        (Self::ECE, "ECE"),
        (Self::CWR, "CWR"),
        (Self::AE, "AE"),
    ];

    /// The flags of the low nine bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL)
    }

    /// The bits, as they stand in the header.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// True when all of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set less `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for Flags {
    /// `SYN|ACK`; `-` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, name) in Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag)) {
            write!(f, "{separator}{name}")?;
            separator = "|";
        }
        if separator.is_empty() {
            f.write_str("-")
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}

impl SackBlocks {
    /// The first four of `blocks`: more do not fit a header.
    pub fn new(blocks: &[(u32, u32)]) -> Self {
        let mut sack = Self::default();
        for (to, from) in sack.blocks.iter_mut().zip(blocks) {
            *to = *from;
            sack.len += 1;
        }
        sack
    }

    /// The blocks in their order.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        self.blocks.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn parse(data: &[u8]) -> Self {
        let mut sack = Self::default();
        for (to, from) in sack.blocks.iter_mut().zip(data.chunks_exact(8)) {
            *to = (u32_at(from, 0), u32_at(from, 4));
            sack.len += 1;
        }
        sack
    }
}

impl<'a> Options<'a> {
    /// The options in `bytes`, what follows a header's first 20 bytes.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<TcpOption<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [kind::NOP, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let (&kind, after) = self.rest.split_first()?;
        if kind == kind::END {
            self.rest = &[];
            return None;
        }
        // The length counts kind and length themselves.
        let len = after.first().map_or(0, |&len| usize::from(len));
        let Some(data) = self.rest.get(2..len) else {
            self.rest = &[];
            return Some(Err(if len < 2 {
                Error::Malformed
            } else {
                Error::Truncated
            }));
        };
        self.rest = self.rest.get(len..).unwrap_or_default();
        Some(Ok(TcpOption::parse(kind, data)))
    }
}

impl<'a> TcpOption<'a> {
    fn parse(kind: u8, data: &'a [u8]) -> Self {
        match (kind, data) {
            (kind::MAX_SEGMENT_SIZE, &[a, b]) => Self::MaxSegmentSize(u16::from_be_bytes([a, b])),
            (kind::WINDOW_SCALE, &[shift]) => Self::WindowScale(shift),
            (kind::SACK_PERMITTED, []) => Self::SackPermitted,
            (kind::SACK, data) if !data.is_empty() && data.len().is_multiple_of(8) => {
                Self::Sack(SackBlocks::parse(data))
            }
            (kind::TIMESTAMPS, data) if data.len() == 8 => Self::Timestamps {
                value: u32_at(data, 0),
                echo: u32_at(data, 4),
            },
            (kind, data) => Self::Unknown { kind, data },
        }
    }
}

/// What a TCP header says, with the known options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number; zero without ACK.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: Flags,
    /// Receive window before scaling.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Largest segment that the sender takes.
    pub max_segment_size: Option<u16>,
    /// Shift of the window.
    pub window_scale: Option<u8>,
    /// The sender understands SACK.
    pub sack_permitted: bool,
    /// The sender's clock and the peer's as last seen.
    pub timestamps: Option<(u32, u32)>,
    /// What arrived out of order; empty without the option.
    pub sack: SackBlocks,
}

impl Repr {
    /// Reads the header; unknown options are dropped, the last of a kind counts.
    ///
    /// # Errors
    /// What is wrong with an option whose length does not fit.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        let mut repr = Self {
            source_port: packet.source_port(),
            destination_port: packet.destination_port(),
            sequence: packet.sequence(),
            acknowledgment: packet.acknowledgment(),
            flags: packet.flags(),
            window: packet.window(),
            urgent: packet.urgent(),
            ..Self::default()
        };
        for option in packet.options() {
            match option? {
                TcpOption::MaxSegmentSize(mss) => repr.max_segment_size = Some(mss),
                TcpOption::WindowScale(shift) => repr.window_scale = Some(shift),
                TcpOption::SackPermitted => repr.sack_permitted = true,
                TcpOption::Sack(blocks) => repr.sack = blocks,
                TcpOption::Timestamps { value, echo } => repr.timestamps = Some((value, echo)),
                TcpOption::Unknown { .. } => {}
            }
        }
        Ok(repr)
    }

    /// Bytes of the header that [`Self::emit`] writes.
    pub fn header_len(&self) -> usize {
        let options = 4 * usize::from(self.max_segment_size.is_some())
            + 4 * usize::from(self.window_scale.is_some())
            + 4 * usize::from(self.sack_permitted)
            + 12 * usize::from(self.timestamps.is_some())
            + if self.sack.len > 0 {
                4 + 8 * usize::from(self.sack.len)
            } else {
                0
            };
        HEADER_BYTES_MIN + options
    }

    /// Writes the header, each option padded in front to whole words as Linux does, without a
    /// checksum, and returns its length. The payload goes behind it; then
    /// [`Packet::fill_checksum`].
    ///
    /// # Errors
    /// [`Error::Malformed`] when the options exceed 40 bytes, [`Error::NoRoom`] when `buffer` is
    /// too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.header_len();
        let words = u16::try_from(len / 4)
            .ok()
            .filter(|&w| w <= 15)
            .ok_or(Error::Malformed)?;
        let header = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        put_u16(header, field::SOURCE_PORT, self.source_port);
        put_u16(header, field::DESTINATION_PORT, self.destination_port);
        put_u32(header, field::SEQUENCE, self.sequence);
        put_u32(header, field::ACKNOWLEDGMENT, self.acknowledgment);
        put_u16(header, field::DATA_OFFSET, (words << 12) | self.flags.0);
        put_u16(header, field::WINDOW, self.window);
        put_u16(header, field::CHECKSUM, 0);
        put_u16(header, field::URGENT, self.urgent);
        self.emit_options(header);
        Ok(len)
    }

    fn emit_options(&self, header: &mut [u8]) {
        let mut at = HEADER_BYTES_MIN;
        let mut write = |bytes: &[u8]| {
            put(header, at, bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.max_segment_size {
            let [a, b] = mss.to_be_bytes();
            write(&[kind::MAX_SEGMENT_SIZE, 4, a, b]);
        }
        if let Some(shift) = self.window_scale {
            write(&[kind::NOP, kind::WINDOW_SCALE, 3, shift]);
        }
        if self.sack_permitted {
            write(&[kind::NOP, kind::NOP, kind::SACK_PERMITTED, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            write(&[kind::NOP, kind::NOP, kind::TIMESTAMPS, 10]);
            write(&value.to_be_bytes());
            write(&echo.to_be_bytes());
        }
        if self.sack.len > 0 {
            write(&[kind::NOP, kind::NOP, kind::SACK, 2 + 8 * self.sack.len]);
            for (left, right) in self.sack.as_slice() {
                write(&left.to_be_bytes());
                write(&right.to_be_bytes());
            }
        }
    }
}

/// Bytes of a header without options.
pub const HEADER_BYTES_MIN: usize = 20;
/// SACK blocks that fit the 40 bytes of options.
pub const SACK_BLOCKS_MAX: usize = 4;

/// Option kinds, as in IANA's "TCP Option Kind Numbers".
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MAX_SEGMENT_SIZE: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// Where the fields stand (RFC 9293 section 3.1).
pub(crate) mod field {
    pub(crate) const SOURCE_PORT: usize = 0;
    pub(crate) const DESTINATION_PORT: usize = 2;
    pub(crate) const SEQUENCE: usize = 4;
    pub(crate) const ACKNOWLEDGMENT: usize = 8;
    pub(crate) const DATA_OFFSET: usize = 12;
    pub(crate) const WINDOW: usize = 14;
    pub(crate) const CHECKSUM: usize = 16;
    pub(crate) const URGENT: usize = 18;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn() -> Repr {
        Repr {
            source_port: 40000,
            destination_port: 5201,
            sequence: 0xdead_beef,
            acknowledgment: 17,
            flags: Flags::SYN.with(Flags::ACK).with(Flags::AE),
            window: 65535,
            max_segment_size: Some(1460),
            window_scale: Some(10),
            sack_permitted: true,
            timestamps: Some((1, 2)),
            ..Repr::default()
        }
    }

    #[test]
    fn a_syn_with_all_options_reads_back_as_it_was_emitted() {
        let mut bytes = [0xaa_u8; 64];
        let len = syn().emit(&mut bytes).unwrap();
        assert_eq!(len, 44);
        let packet = Packet::new_checked(&bytes[..len]).unwrap();
        assert_eq!(Repr::parse(&packet), Ok(syn()));
        assert_eq!(packet.flags().to_string(), "SYN|ACK|AE");
        assert_eq!(packet.sequence_len(), 1);
    }

    #[test]
    fn sack_beside_timestamps_holds_three_blocks_and_four_do_not_fit() {
        let mut bytes = [0_u8; 64];
        let blocks = [(1, 2), (5, 6), (9, 10), (20, 30)];
        let three = Repr {
            timestamps: Some((1, 2)),
            sack: SackBlocks::new(&blocks[..3]),
            ..Repr::default()
        };
        let len = three.emit(&mut bytes).unwrap();
        assert_eq!(
            Repr::parse(&Packet::new_checked(&bytes[..len]).unwrap()),
            Ok(three)
        );
        let four = Repr {
            sack: SackBlocks::new(&blocks),
            ..three
        };
        assert_eq!(four.emit(&mut bytes), Err(Error::Malformed));
    }

    fn options_of(options: &[u8]) -> Vec<Result<TcpOption<'_>, Error>> {
        Options { rest: options }.collect()
    }

    #[test]
    fn the_list_ends_at_its_end_and_at_the_first_bad_length() {
        assert_eq!(options_of(&[1, 1, 0, 3, 3, 9]), []);
        assert_eq!(
            options_of(&[3, 3, 7, 4, 1, 2, 4]),
            [Ok(TcpOption::WindowScale(7)), Err(Error::Malformed)]
        );
        assert_eq!(options_of(&[2, 4, 5]), [Err(Error::Truncated)]);
        assert_eq!(options_of(&[254]), [Err(Error::Malformed)]);
    }

    #[test]
    fn a_known_kind_with_another_length_is_unknown() {
        let unknown = TcpOption::Unknown {
            kind: 2,
            data: &[5],
        };
        assert_eq!(options_of(&[2, 3, 5]), [Ok(unknown)]);
        assert!(matches!(
            options_of(&[5, 9, 0, 0, 0, 0, 0, 0, 0])[0],
            Ok(TcpOption::Unknown { .. })
        ));
    }

    #[test]
    fn headers_that_do_not_fit_are_refused() {
        let mut bytes = [0_u8; 24];
        for (words, error) in [(4, Error::Malformed), (7, Error::Truncated)] {
            bytes[12] = words << 4;
            assert_eq!(Packet::new_checked(bytes).unwrap_err(), error);
        }
        assert_eq!(
            Packet::new_checked([0_u8; 19]).unwrap_err(),
            Error::Truncated
        );
    }

    #[test]
    fn flags_leave_the_header_length_alone_and_the_checksum_verifies() {
        let mut bytes = [0_u8; 23];
        Repr::default().emit(&mut bytes).unwrap();
        let mut packet = Packet::new_checked(bytes).unwrap();
        packet.set_flags(Flags::from_bits(0xffff));
        assert_eq!(packet.header_len(), 20);
        packet.fill_checksum(0x1234);
        assert!(packet.verify_checksum(0x1234));
        assert!(!packet.verify_checksum(0x1233));
        assert_eq!(Flags::default().to_string(), "-");
    }
}
