//! Reading and writing big-endian fields without a panic: every access is checked.

/// The `N` bytes at `at`, if they are there.
#[inline]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The byte at `at`; zero past the end.
#[inline]
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The big-endian number at `at`; zero past the end.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    array_at(bytes, at).map_or(0, u16::from_be_bytes)
}

/// The big-endian number at `at`; zero past the end.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    array_at(bytes, at).map_or(0, u32::from_be_bytes)
}

/// Writes `value` at `at`; false, and nothing written, where it does not fit.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> bool {
    let place = at
        .checked_add(value.len())
        .and_then(|end| bytes.get_mut(at..end));
    place.map(|place| place.copy_from_slice(value)).is_some()
}

/// Writes a big-endian number at `at`; nothing where it does not fit.
#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    put(bytes, at, &value.to_be_bytes());
}

/// Writes a big-endian number at `at`; nothing where it does not fit.
#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_be_bytes());
}
