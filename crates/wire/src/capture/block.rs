//! Byte order, and the kinds of blocks of a pcapng section.

use crate::pcapng;

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl Order {
    /// A number of two bytes.
    #[inline]
    pub(super) const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// A number of four bytes.
    #[inline]
    pub(super) const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// A number of eight bytes.
    pub(super) const fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The order in which `bytes` are the number `magic`.
    pub(super) fn of(bytes: [u8; 4], magic: u32) -> Option<Self> {
        [Self::Little, Self::Big]
            .into_iter()
            .find(|order| order.u32(bytes) == magic)
    }
}

/// True for blocks without a packet that Wireshark counts as frames nevertheless: journal entries,
/// custom blocks (to be copied or not), system calls in three versions (wiretap/pcapng.c).
pub(super) const fn is_other_frame(kind: u32) -> bool {
    matches!(kind, 9 | 0x0bad | 0x4000_0bad | 0x204 | 0x216 | 0x221)
}

// Block types of the draft beside those that the writer knows.
pub(super) const OBSOLETE_PACKET: u32 = 2;
pub(super) const SIMPLE_PACKET: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) use pcapng::{BYTE_ORDER, ENHANCED_PACKET, INTERFACE_DESCRIPTION, SECTION_HEADER};

/// Type and length before a block's body.
pub(super) const HEAD_BYTES: usize = 8;
/// Type and two lengths.
pub(super) const BLOCK_BYTES_MIN: usize = 12;
