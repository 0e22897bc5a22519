//! Blocks of files with holes, sent without their pages of zeros: those that have other bytes, and which they are.
//!
//! A page is what file systems mostly have for a block. Which pages are holes and which are zeros that somebody wrote makes no
//! difference to who reads the file; so the bytes are looked at, not the list of holes, which may be longer than the file's data.

use std::io::{self, ErrorKind};
use std::ops::Range;

/// Bytes of a page.
const PAGE: usize = 4 << 10;

/// Bytes of the map for a block of so many bytes: a bit for each page, the first the lowest of the first byte.
const fn map_bytes(len: usize) -> usize {
    len.div_ceil(PAGE).div_ceil(8)
}

fn is_zero(page: &[u8]) -> bool {
    // Whole words are compared by the length of memory that a CPU takes at once.
    let (before, words, after) = (
        page.chunks_exact(16),
        0_u128,
        page.chunks_exact(16).remainder(),
    );
    before.map(word).fold(words, |all, word| all | word) == 0 && after.iter().all(|byte| *byte == 0)
}

fn word(bytes: &[u8]) -> u128 {
    bytes
        .first_chunk()
        .map_or(u128::MAX, |bytes| u128::from_ne_bytes(*bytes))
}

/// Moves the pages of a block that have other bytes than zeros to its front, and puts the map behind them; how many bytes that
/// is. `None`, and the block as it was, where that saves nothing.
pub(super) fn leave_out(block: &mut [u8]) -> Option<usize> {
    let len = block.len();
    let mut map = vec![0; map_bytes(len)];
    let (mut kept, mut pages) = (0, 0);
    for (number, page) in block.chunks(PAGE).enumerate() {
        if !is_zero(page) {
            map[number / 8] |= 1 << (number % 8);
            kept += page.len();
            pages += 1;
        }
    }
    if pages == len.div_ceil(PAGE) || kept + map.len() >= len {
        return None;
    }
    let mut to = 0;
    for number in 0..len.div_ceil(PAGE) {
        if map[number / 8] & (1 << (number % 8)) != 0 {
            let from = number * PAGE..len.min((number + 1) * PAGE);
            let bytes = from.len();
            block.copy_within(from, to);
            to += bytes;
        }
    }
    block[to..to + map.len()].copy_from_slice(&map);
    Some(to + map.len())
}

/// A block of `len` bytes as it was before [`leave_out`], and where it has data.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for what is no such block.
pub(super) fn put_back(sent: &[u8], len: usize) -> io::Result<(Vec<u8>, Vec<Range<usize>>)> {
    let invalid = || {
        io::Error::new(
            ErrorKind::InvalidData,
            "a block whose pages do not fit its map",
        )
    };
    let pages = sent.len().checked_sub(map_bytes(len)).ok_or_else(invalid)?;
    let (mut pages, map) = sent.split_at(pages);
    let mut block = vec![0; len];
    let mut data: Vec<Range<usize>> = Vec::new();
    for number in 0..map.len() * 8 {
        if map[number / 8] & (1 << (number % 8)) == 0 {
            continue;
        }
        let place = number * PAGE..len.min((number + 1) * PAGE);
        if place.is_empty() || place.start >= len {
            return Err(invalid());
        }
        let (page, rest) = pages.split_at_checked(place.len()).ok_or_else(invalid)?;
        pages = rest;
        block[place.clone()].copy_from_slice(page);
        match data.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => data.push(place),
        }
    }
    match pages {
        [] => Ok((block, data)),
        _ => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_of_zeros_are_left_out_and_put_back() {
        let mut block = vec![0; 10 * PAGE + 7];
        block[3 * PAGE + 5] = 1;
        block[4 * PAGE] = 2;
        block[10 * PAGE + 6] = 3;
        let before = block.clone();
        let len = leave_out(&mut block).unwrap();
        assert_eq!(len, 2 * PAGE + 7 + 2);
        let (back, data) = put_back(&block[..len], before.len()).unwrap();
        assert!(back == before);
        assert_eq!(data, [3 * PAGE..5 * PAGE, 10 * PAGE..10 * PAGE + 7]);
    }

    #[test]
    fn a_block_without_zeros_stays_and_one_of_zeros_is_its_map() {
        let mut full = vec![1; 4 * PAGE];
        assert_eq!(leave_out(&mut full), None);
        assert!(full.iter().all(|byte| *byte == 1));
        let mut empty = vec![0; 64 << 10];
        assert_eq!(leave_out(&mut empty), Some(2));
        let (back, data) = put_back(&empty[..2], 64 << 10).unwrap();
        assert!(back.iter().all(|byte| *byte == 0) && data.is_empty());
    }

    proptest! {
        #[test]
        fn any_block_comes_back(
            pages in proptest::collection::vec(any::<bool>(), 0..40),
            tail in 0_usize..5000,
            byte in 1_u8..,
        ) {
            let mut block = Vec::new();
            for has in &pages {
                block.extend(std::iter::repeat_n(if *has { byte } else { 0 }, PAGE));
            }
            block.extend(std::iter::repeat_n(byte, tail));
            let before = block.clone();
            match leave_out(&mut block) {
                None => prop_assert!(block == before),
                Some(len) => {
                    prop_assert!(len < before.len());
                    let (back, data) = put_back(&block[..len], before.len()).unwrap();
                    prop_assert!(back == before);
                    for range in data {
                        prop_assert!(before[range].contains(&byte));
                    }
                }
            }
        }

        #[test]
        fn any_bytes_are_a_block_or_refused(
            sent in proptest::collection::vec(any::<u8>(), 0..9000),
            len in 0_usize..40_000,
        ) {
            if let Ok((block, data)) = put_back(&sent, len) {
                prop_assert_eq!(block.len(), len);
                prop_assert!(data.iter().all(|range| range.end <= len));
            }
        }
    }
}
