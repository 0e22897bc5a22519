//! The Internet checksum: ones-complement sums, pseudo-headers and updates in place.
//!
//! A *sum* is the folded 16-bit ones-complement sum as RFC 1071 section 1 defines it; a *checksum*
//! is its complement, as it stands in a finished header. Sums are numbers: whoever stores one
//! writes it big-endian.
//!
//! Reading: RFC 1071 (sums and byte order), RFC 1624 (incremental update), RFC 8200 section 8.1
//! (pseudo-header of IPv6).

/// Sum of `bytes` as big-endian 16-bit words; an odd last byte is padded with zero (RFC 1071
/// section 4.1).
pub fn sum(bytes: &[u8]) -> u16 {
    // Four bytes a step in the machine's own order: the sum does not depend on it but for a swap
    // at the end (RFC 1071 section 2 B). u64 holds 2^32 steps.
    let words = bytes.chunks_exact(4);
    let tail = words.remainder();
    let mut total: u64 = words
        .map(|word| u64::from(u32::from_ne_bytes(word.try_into().unwrap_or_default())))
        .sum();
    let mut padded = [0_u8; 4];
    for (to, from) in padded.iter_mut().zip(tail) {
        *to = *from;
    }
    total += u64::from(u32::from_ne_bytes(padded));
    u16::from_be(fold(total))
}

/// The checksum of `bytes`: what goes into a header whose checksum field was zero.
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// The sum of two sums. The bytes behind the first must have been even in number.
pub const fn add(a: u16, b: u16) -> u16 {
    fold(a as u64 + b as u64)
}

/// The sum after the word `old`, which is part of it, became `new` (RFC 1624 equation 3, before
/// the complement).
pub const fn replace(sum: u16, old: u16, new: u16) -> u16 {
    fold(sum as u64 + !old as u64 + new as u64)
}

/// The checksum after the word `old` of the covered bytes became `new` (RFC 1624 equation 3).
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !replace(!checksum, old, new)
}

/// Sum of the pseudo-header of TCP or UDP over IPv4 (RFC 9293 section 3.1).
pub fn pseudo_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, l4_bytes: u32) -> u16 {
    let addresses = add(sum(&source), sum(&destination));
    add(addresses, fold(u64::from(protocol) + u64::from(l4_bytes)))
}

/// Sum of the pseudo-header over IPv6; `destination` is the final one (RFC 8200 section 8.1).
pub fn pseudo_v6(source: [u8; 16], destination: [u8; 16], protocol: u8, l4_bytes: u32) -> u16 {
    let addresses = add(sum(&source), sum(&destination));
    add(addresses, fold(u64::from(protocol) + u64::from(l4_bytes)))
}

/// Adds the carries back in until 16 bits are left.
#[allow(clippy::cast_possible_truncation, reason = "the loop ends below 2^16")]
const fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_section_3_sums_to_ddf2() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
        assert_eq!(checksum(&bytes), !0xddf2);
    }

    #[test]
    fn an_odd_byte_counts_as_the_high_half_of_a_word() {
        assert_eq!(sum(&[0x12]), 0x1200);
        assert_eq!(sum(&[0, 0, 0, 0, 0x12, 0x34, 0x56]), 0x1234 + 0x5600);
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn the_example_of_rfc_1624_section_4_gives_zero_not_all_ones() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_real_ipv4_header_verifies() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(sum(&header), 0xffff);
    }
}
