//! Memory into which the kernel copies files and what connections bring.
//!
//! What malloc(3) gives of 128 KiB and more begins 16 bytes behind the start of a page, and copying whole pages there with
//! `rep movsb`, which is what Linux does on processors that call it fast, takes several times as long on some of them: of
//! a file in the page cache a Zen 3 read 1.7 GB a second and core, and from the start of a page on over 5.

use std::ops::Range;

/// A page, in bytes: what bytes are aligned to here.
pub(crate) const PAGE: usize = 4 << 10;

/// Where `len` bytes lie in `room` so that the first one's address is a multiple of `align`, a power of two; `room` is
/// made long enough, and must not grow while they are of use.
pub(crate) fn place(room: &mut Vec<u8>, len: usize, align: usize) -> Range<usize> {
    debug_assert!(align.is_power_of_two());
    if room.len() < len + align {
        room.resize(len + align, 0);
    }
    let from = room.as_ptr().addr().wrapping_neg() % align;
    from..from + len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_begin_with_a_page_however_a_room_grows() {
        let mut room = Vec::new();
        for len in [0, 1, PAGE, 100_000, 3 << 20, 7] {
            let place = place(&mut room, len, PAGE);
            assert_eq!(place.len(), len);
            assert!(room[place].as_ptr().addr().is_multiple_of(PAGE), "{len}");
        }
    }
}
