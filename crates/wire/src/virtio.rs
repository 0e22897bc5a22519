//! `struct virtio_net_hdr`: what a frame still needs done to it (checksum, segmentation).
//!
//! AF_PACKET with `PACKET_VNET_HDR` and TAP with `IFF_VNET_HDR` put these ten bytes before each
//! frame, in the machine's own byte order (the legacy layout; the two-byte longer one with
//! `num_buffers` and the one with a hash are left out: neither device hands them to user space by
//! default). Source: Linux include/uapi/linux/virtio_net.h, `struct virtio_net_hdr`.

/// Checksum and segmentation that a frame still needs, or had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtioNetHdr {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// [`GSO_NONE`], [`GSO_TCPV4`], [`GSO_UDP`], [`GSO_TCPV6`] or [`GSO_UDP_L4`], perhaps with
    /// [`GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of headers before the payload, Ethernet included. Linux fills in how much of the
    /// packet lies in its first buffer: a hint, not a measure.
    pub hdr_len: u16,
    /// Payload bytes of each segment but the last.
    pub gso_size: u16,
    /// Where the sum begins, bytes from the frame's start.
    pub csum_start: u16,
    /// Where the checksum field stands, bytes from `csum_start`.
    pub csum_offset: u16,
}

impl VirtioNetHdr {
    /// Reads the header from the first ten bytes; `None` where there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        })
    }

    /// The header as it stands before a frame.
    pub const fn to_bytes(self) -> [u8; LEN_BYTES] {
        let hdr_len = self.hdr_len.to_ne_bytes();
        let gso_size = self.gso_size.to_ne_bytes();
        let start = self.csum_start.to_ne_bytes();
        let offset = self.csum_offset.to_ne_bytes();
        [
            self.flags,
            self.gso_type,
            hdr_len[0],
            hdr_len[1],
            gso_size[0],
            gso_size[1],
            start[0],
            start[1],
            offset[0],
            offset[1],
        ]
    }

    /// True when the checksum field holds only the pseudo-header's sum (CHECKSUM_PARTIAL).
    pub const fn needs_csum(self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// The kind of segmentation, without [`GSO_ECN`].
    pub const fn gso_kind(self) -> u8 {
        self.gso_type & !GSO_ECN
    }
}

/// Bytes of the header.
pub const LEN_BYTES: usize = 10;
/// Flag: `csum_start` and `csum_offset` say which checksum is to be completed.
pub const NEEDS_CSUM: u8 = 1;
/// Flag: the checksum was found right.
pub const DATA_VALID: u8 = 2;
/// Not a super-frame.
pub const GSO_NONE: u8 = 0;
/// TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// UDP by IP fragmentation (UFO).
pub const GSO_UDP: u8 = 3;
/// TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// UDP datagrams of one size (`UDP_SEGMENT`).
pub const GSO_UDP_L4: u8 = 5;
/// Bit beside the kind: the first segment alone carries CWR.
pub const GSO_ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_bytes_read_back_as_they_were_written() {
        let hdr = VirtioNetHdr {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV6 | GSO_ECN,
            hdr_len: 86,
            gso_size: 1428,
            csum_start: 54,
            csum_offset: 16,
        };
        let bytes = hdr.to_bytes();
        assert_eq!(bytes[4..6], 1428_u16.to_ne_bytes());
        assert_eq!(VirtioNetHdr::parse(&bytes), Some(hdr));
        assert_eq!(VirtioNetHdr::parse(&bytes[..9]), None);
        assert_eq!(hdr.gso_kind(), GSO_TCPV6);
    }
}
