//! Numbers of 32 bits that wrap, and casts that say what they do.

/// The number nearest to `near` whose low 32 bits are `number`: sequence numbers go on past 2^32.
pub(crate) fn unwrap(near: u64, number: u32) -> u64 {
    let ahead = number.wrapping_sub(low32(near)).cast_signed();
    near.wrapping_add_signed(i64::from(ahead))
}

/// True when `a` is later than `b` in numbers that wrap (RFC 7323 section 5.2).
pub(crate) fn later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// The low 32 bits.
#[allow(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(crate) const fn low32(n: u64) -> u32 {
    n as u32
}

/// The number, or the largest that fits.
pub(crate) fn saturated(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// What is counted, as bytes or ns, of a mean; zero for what is no such number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate, and NaN is zero"
)]
pub(crate) fn whole(x: f64) -> u64 {
    x as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_go_on_past_the_wrap_and_back() {
        let near = (5 << 32) | 0xffff_fff0;
        assert_eq!(unwrap(near, 0xffff_fff8), near + 8);
        assert_eq!(unwrap(near, 8), near + 24);
        assert_eq!(unwrap(near + 24, 0xffff_fff0), near);
    }

    #[test]
    fn half_the_range_ahead_counts_as_behind() {
        assert_eq!(unwrap(1 << 32, 0x7fff_ffff), (1 << 32) + 0x7fff_ffff);
        assert_eq!(unwrap(1 << 32, 0x8000_0000), (1 << 32) - 0x8000_0000);
    }

    #[test]
    fn later_holds_over_the_wrap() {
        assert!(later(3, u32::MAX) && !later(u32::MAX, 3) && !later(7, 7));
    }
}
