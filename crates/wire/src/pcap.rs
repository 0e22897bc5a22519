//! Captures in the classic format, with nanoseconds: for programs that do not read pcapng.
//!
//! A writer only, of little-endian files of Ethernet frames. The format has no place for the interface,
//! its direction, the filter and what was dropped.
//!
//! Source: IETF draft-ietf-opsawg-pcap, sections 4 (file header) and 5 (packet record).

/// Appends the file's header. At most `captured_bytes_max` bytes of each packet are kept; the writer of
/// packets sees to it.
pub fn header(captured_bytes_max: u32, out: &mut Vec<u8>) {
    out.extend(NANOSECOND_MAGIC.to_le_bytes());
    out.extend(2_u16.to_le_bytes());
    out.extend(4_u16.to_le_bytes());
    out.extend([0; 8]);
    out.extend(captured_bytes_max.to_le_bytes());
    out.extend(LINK_ETHERNET.to_le_bytes());
}

/// Appends a packet: nanoseconds of the realtime clock (until 2106), the frame's first bytes, and how many
/// it had on the wire, without check sequence.
pub fn packet(time_ns: u64, captured: &[u8], original_bytes: u32, out: &mut Vec<u8>) {
    let seconds = u32::try_from(time_ns / 1_000_000_000).unwrap_or(u32::MAX);
    let nanoseconds = u32::try_from(time_ns % 1_000_000_000).unwrap_or_default();
    let length = u32::try_from(captured.len()).unwrap_or(u32::MAX);
    for word in [seconds, nanoseconds, length, original_bytes] {
        out.extend(word.to_le_bytes());
    }
    out.extend_from_slice(captured);
}

/// Section 4: nanoseconds, in the writer's byte order.
const NANOSECOND_MAGIC: u32 = 0xa1b2_3c4d;
/// LINKTYPE_ETHERNET.
const LINK_ETHERNET: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_its_time_and_both_lengths() {
        let mut file = Vec::new();
        header(96, &mut file);
        packet(1_000_000_000 * 7 + 5, &[1, 2, 3], 1514, &mut file);
        let words = file[..40].chunks(4);
        let words: Vec<u32> = words
            .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
            .collect();
        assert_eq!(
            words,
            [0xa1b2_3c4d, 0x0004_0002, 0, 0, 96, 1, 7, 5, 3, 1514]
        );
        assert_eq!(file[40..], [1, 2, 3]);
    }
}
