//! Ethernet II frames, VLAN tags (802.1Q and 802.1ad), and what a frame costs on the wire.
//!
//! A frame begins at the destination address and has no frame check sequence: so AF_PACKET and TAP
//! hand it over. Left out: 802.3 length/LLC frames (their type field reads as a number below
//! 0x600).

use crate::Error;
use crate::bytes::{array_at, put, u16_at};

/// A view of an Ethernet frame.
#[derive(Clone, Debug)]
pub struct Frame<T: AsRef<[u8]>> {
    buffer: T,
}

/// One VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// [`TYPE_VLAN`] or [`TYPE_QINQ`].
    pub tpid: u16,
    /// Priority code point, 0..=7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN identifier, 0..=4095.
    pub vid: u16,
}

/// Where the network layer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Type of the network layer, past all VLAN tags.
    pub ethertype: u16,
    /// Its first byte.
    pub offset: usize,
}

impl<T: AsRef<[u8]>> Frame<T> {
    /// A view of `buffer`.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 14 bytes.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        if buffer.as_ref().len() < HEADER_BYTES {
            return Err(Error::Truncated);
        }
        Ok(Self { buffer })
    }

    /// The buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Destination address.
    pub fn destination(&self) -> [u8; 6] {
        array_at(self.bytes(), 0).unwrap_or_default()
    }

    /// Source address.
    pub fn source(&self) -> [u8; 6] {
        array_at(self.bytes(), 6).unwrap_or_default()
    }

    /// The type field after the addresses: that of the first VLAN tag where there is one.
    pub fn ethertype(&self) -> u16 {
        u16_at(self.bytes(), TYPE_AT)
    }

    /// VLAN tags, outermost first.
    pub fn vlan_tags(&self) -> impl Iterator<Item = VlanTag> + '_ {
        let tags = self
            .network()
            .map_or(0, |n| (n.offset - HEADER_BYTES) / TAG_BYTES);
        (0..tags).map(|i| VlanTag::at(self.bytes(), TYPE_AT + i * TAG_BYTES))
    }

    /// Where the network layer begins; `None` when the frame ends within its tags or has more than
    /// [`VLAN_TAGS_MAX`].
    pub fn network(&self) -> Option<Network> {
        network(self.bytes())
    }

    /// What follows the type field past all VLAN tags; empty when [`Self::network`] is `None`.
    pub fn payload(&self) -> &[u8] {
        self.network()
            .and_then(|n| self.bytes().get(n.offset..))
            .unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Frame<T> {
    /// Sets the destination address.
    pub fn set_destination(&mut self, address: [u8; 6]) {
        put(self.buffer.as_mut(), 0, &address);
    }

    /// Sets the source address.
    pub fn set_source(&mut self, address: [u8; 6]) {
        put(self.buffer.as_mut(), 6, &address);
    }
}

impl VlanTag {
    /// The tag whose type field stands at `at`; zeroes past the end.
    fn at(bytes: &[u8], at: usize) -> Self {
        let tci = u16_at(bytes, at + 2);
        let [high, _] = tci.to_be_bytes();
        Self {
            tpid: u16_at(bytes, at),
            pcp: high >> 5,
            dei: tci & 0x1000 != 0,
            vid: tci & 0x0fff,
        }
    }

    /// The four bytes of the tag; bits of `pcp` and `vid` beyond their fields are dropped.
    pub const fn to_bytes(self) -> [u8; TAG_BYTES] {
        let tci = ((self.pcp as u16 & 7) << 13) | ((self.dei as u16) << 12) | (self.vid & 0x0fff);
        let (tpid, tci) = (self.tpid.to_be_bytes(), tci.to_be_bytes());
        [tpid[0], tpid[1], tci[0], tci[1]]
    }
}

/// What an Ethernet header says, its tags aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// Type of the network layer, past all VLAN tags.
    pub ethertype: u16,
}

impl Repr {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the frame ends within its VLAN tags.
    pub fn parse<T: AsRef<[u8]>>(frame: &Frame<T>) -> Result<Self, Error> {
        let network = frame.network().ok_or(Error::Truncated)?;
        Ok(Self {
            destination: frame.destination(),
            source: frame.source(),
            ethertype: network.ethertype,
        })
    }

    /// Writes the header with `tags`, outermost first, and returns its length.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is too short.
    pub fn emit(&self, tags: &[VlanTag], buffer: &mut [u8]) -> Result<usize, Error> {
        let len = HEADER_BYTES + tags.len() * TAG_BYTES;
        let header = buffer.get_mut(..len).ok_or(Error::NoRoom)?;
        put(header, 0, &self.destination);
        put(header, 6, &self.source);
        for (i, tag) in tags.iter().enumerate() {
            put(header, TYPE_AT + i * TAG_BYTES, &tag.to_bytes());
        }
        put(header, len - 2, &self.ethertype.to_be_bytes());
        Ok(len)
    }
}

/// Where the network layer of a frame begins, past its VLAN tags; `None` when the frame ends
/// before, or has more than [`VLAN_TAGS_MAX`] tags.
#[inline]
pub fn network(frame: &[u8]) -> Option<Network> {
    let mut at = TYPE_AT;
    for _ in 0..=VLAN_TAGS_MAX {
        let ethertype = u16::from_be_bytes(array_at(frame, at)?);
        if !matches!(ethertype, TYPE_VLAN | TYPE_QINQ) {
            return Some(Network {
                ethertype,
                offset: at + 2,
            });
        }
        at += TAG_BYTES;
    }
    None
}

/// Bytes that a frame occupies on the medium: padded to the minimum, with check sequence, preamble
/// and gap (IEEE 802.3 clauses 3.1 and 4.4.2). Saturates.
pub const fn wire_bytes(frame_bytes_without_fcs: u32) -> u32 {
    let padded = if frame_bytes_without_fcs < FRAME_BYTES_MIN {
        FRAME_BYTES_MIN
    } else {
        frame_bytes_without_fcs
    };
    padded.saturating_add(PREAMBLE_BYTES + FCS_BYTES + GAP_BYTES)
}

/// Bytes of the header without tags.
pub const HEADER_BYTES: usize = 14;
/// Bytes of one VLAN tag.
pub const TAG_BYTES: usize = 4;
/// Tags that are skipped at most; as many as Linux's VLAN_MAX_DEPTH (include/linux/if_vlan.h).
pub const VLAN_TAGS_MAX: usize = 8;
/// Preamble and start-of-frame delimiter.
pub const PREAMBLE_BYTES: u32 = 8;
/// Frame check sequence.
pub const FCS_BYTES: u32 = 4;
/// Inter-packet gap: 96 bit times.
pub const GAP_BYTES: u32 = 12;
/// Shortest frame, without the check sequence; a shorter one is padded on the wire.
pub const FRAME_BYTES_MIN: u32 = 60;

/// Type of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// Type of ARP.
pub const TYPE_ARP: u16 = 0x0806;
/// Type of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;
/// Type of an 802.1Q tag.
pub const TYPE_VLAN: u16 = 0x8100;
/// Type of an 802.1ad service tag.
pub const TYPE_QINQ: u16 = 0x88a8;

/// Where the type field stands.
const TYPE_AT: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_outermost_first_and_skipped() {
        let tags = [
            VlanTag {
                tpid: TYPE_QINQ,
                pcp: 5,
                dei: true,
                vid: 4095,
            },
            VlanTag {
                tpid: TYPE_VLAN,
                pcp: 0,
                dei: false,
                vid: 7,
            },
        ];
        let repr = Repr {
            destination: [1; 6],
            source: [2; 6],
            ethertype: TYPE_IPV6,
        };
        let mut bytes = [0_u8; 24];
        assert_eq!(repr.emit(&tags, &mut bytes), Ok(22));
        let frame = Frame::new_checked(bytes).unwrap();
        assert_eq!(frame.ethertype(), TYPE_QINQ);
        assert_eq!(frame.vlan_tags().collect::<Vec<_>>(), tags);
        assert_eq!(
            frame.network(),
            Some(Network {
                ethertype: TYPE_IPV6,
                offset: 22
            })
        );
        assert_eq!(frame.payload().len(), 2);
        assert_eq!(Repr::parse(&frame), Ok(repr));
        assert_eq!(repr.emit(&tags, &mut [0; 21]), Err(Error::NoRoom));
    }

    #[test]
    fn a_frame_that_ends_in_a_tag_has_no_network_layer() {
        let mut bytes = [0_u8; 16];
        bytes[12..14].copy_from_slice(&TYPE_VLAN.to_be_bytes());
        let frame = Frame::new_checked(bytes).unwrap();
        assert_eq!(frame.network(), None);
        assert_eq!(frame.payload(), []);
        assert_eq!(frame.vlan_tags().count(), 0);
        assert!(Frame::new_checked([0_u8; 13]).is_err());
    }

    #[test]
    fn more_tags_than_linux_follows_are_not_followed() {
        let mut bytes = [0_u8; 12].to_vec();
        for _ in 0..=VLAN_TAGS_MAX {
            bytes.extend(
                VlanTag {
                    tpid: TYPE_VLAN,
                    pcp: 0,
                    dei: false,
                    vid: 1,
                }
                .to_bytes(),
            );
        }
        bytes.extend([0x08, 0x00, 0, 0]);
        assert_eq!(network(&bytes), None);
        bytes.drain(12..16);
        assert_eq!(network(&bytes).map(|n| n.ethertype), Some(TYPE_IPV4));
    }

    #[test]
    fn a_full_frame_occupies_1538_bytes_and_a_short_one_84() {
        assert_eq!(wire_bytes(1514), 1538);
        assert_eq!(wire_bytes(54), 84);
        assert_eq!(wire_bytes(60), 84);
        assert_eq!(wire_bytes(u32::MAX), u32::MAX);
    }
}
