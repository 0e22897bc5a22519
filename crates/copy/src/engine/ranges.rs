//! Ranges of blocks: what a want speaks of, and what is left of ranges.

use crate::digest::Cut;
use crate::message::Want;

/// Whether all blocks of which a want speaks are blocks of a file of `size` bytes, and none is named twice.
pub(super) fn is_of(want: &Want, size: u64) -> bool {
    let Some(block) = want.block else {
        return want.have.is_empty() && want.compare.is_empty();
    };
    let Some(blocks) = Cut::new(size, block).map(|cut| cut.blocks()) else {
        return false;
    };
    // Ranges are in order and apart (`FromDestination::read`).
    let have = want.have.last().is_none_or(|(_, to)| *to <= blocks);
    let is_rising = want.compare.is_sorted_by(|one, other| one.0 < other.0);
    let compare = want.compare.last().is_none_or(|(last, _)| *last < blocks);
    have && is_rising && compare
}

/// What of `ranges` is not in `taken`; both in order and apart.
pub(super) fn without(ranges: &[(u64, u64)], taken: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut taken = taken.iter().peekable();
    for &(mut from, to) in ranges {
        while let Some(&&(hole_from, hole_to)) = taken.peek() {
            if hole_to <= from {
                taken.next();
                continue;
            }
            if hole_from >= to {
                break;
            }
            if hole_from > from {
                left.push((from, hole_from));
            }
            from = hole_to.min(to);
            if hole_to > to {
                break;
            }
            taken.next();
        }
        if from < to {
            left.push((from, to));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_want_speaks_of_blocks_that_the_file_has() {
        // Three blocks.
        let size = (2 << 20) + 1;
        let want = |block, have: &[(u64, u64)], compare: &[u64]| Want {
            id: 0,
            block,
            have: have.to_vec(),
            compare: compare.iter().map(|index| (*index, [0; 32])).collect(),
        };
        let block = Some(1 << 20);
        for (want, fits) in [
            (want(None, &[], &[]), true),
            (want(None, &[], &[0]), false),
            (want(block, &[(0, 1), (2, 3)], &[0, 1, 2]), true),
            (want(block, &[(0, 4)], &[]), false),
            (want(block, &[(7, 8)], &[]), false),
            (want(block, &[], &[0, 3]), false),
            (want(block, &[], &[0, 0]), false),
            (want(block, &[], &[1, 0]), false),
            (want(Some(1 << 10), &[(0, 1)], &[]), false),
        ] {
            assert_eq!(is_of(&want, size), fits, "{want:?}");
        }
    }

    #[test]
    fn what_is_taken_is_left_out() {
        assert_eq!(without(&[(0, 10)], &[]), [(0, 10)]);
        assert_eq!(without(&[(0, 10)], &[(0, 10)]), []);
        assert_eq!(without(&[(0, 10)], &[(2, 3), (5, 20)]), [(0, 2), (3, 5)]);
        assert_eq!(without(&[(0, 4), (6, 9)], &[(3, 7)]), [(0, 3), (7, 9)]);
        assert_eq!(
            without(&[(0, 4), (6, 9)], &[(0, 1), (8, 9)]),
            [(1, 4), (6, 8)]
        );
    }
}
