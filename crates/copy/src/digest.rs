//! A file's BLAKE3 hash out of its blocks, in whatever order they arrive.
//!
//! BLAKE3 is a tree over chunks of 1,024 bytes (BLAKE3 paper, section 2.1), so a block of a power of two of chunks at a
//! multiple of its own length is a subtree: its chaining value says of the block what the hash says of the file, and
//! the hash is made of the chaining values. What results is what `b3sum` prints.

use std::ops::Range;

use blake3::Hasher;
use blake3::hazmat::{self, HasherExt as _, Mode};

/// A block's chaining value, or the hash of a file that is one block.
pub type Sum = [u8; SUM_BYTES];
/// Its length in bytes.
pub const SUM_BYTES: usize = 32;

/// How a file is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    size: u64,
    /// Bytes in a block: a power of two from [`BLOCK_LEAST`] to [`BLOCK_MOST`].
    block: u32,
}

/// The shortest block, in bytes.
pub const BLOCK_LEAST: u32 = 64 << 10;
/// The longest block, in bytes.
pub const BLOCK_MOST: u32 = 16 << 20;
/// What a block is unless a file is so long that its sums would take much memory, in bytes.
pub const BLOCK_USUAL: u32 = 1 << 20;
/// Blocks of a file above which they are made longer: 8 MiB of sums.
const BLOCKS_MANY: u64 = 1 << 18;

impl Cut {
    /// A file of `size` bytes in blocks of `block`, or `None` where that is no length of a block.
    pub fn new(size: u64, block: u32) -> Option<Self> {
        let fits = block.is_power_of_two() && (BLOCK_LEAST..=BLOCK_MOST).contains(&block);
        fits.then_some(Self { size, block })
    }

    /// A file of `size` bytes in blocks of the usual length, or longer ones where they would be very many.
    pub fn usual(size: u64) -> Self {
        let mut block = BLOCK_USUAL;
        while block < BLOCK_MOST && size.div_ceil(block.into()) > BLOCKS_MANY {
            block *= 2;
        }
        Self { size, block }
    }

    /// The file's length in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in every block but the last.
    pub const fn block(&self) -> u32 {
        self.block
    }

    /// How many blocks there are; an empty file has one of no bytes.
    pub fn blocks(&self) -> u64 {
        self.size.div_ceil(self.block.into()).max(1)
    }

    /// Where a block begins, in bytes.
    pub fn start(&self, index: u64) -> u64 {
        index * u64::from(self.block)
    }

    /// How many bytes a block has; 0 beyond the end.
    pub fn len(&self, index: u64) -> u32 {
        let Some(start) = index.checked_mul(self.block.into()) else {
            return 0;
        };
        let left = self.size.saturating_sub(start);
        u32::try_from(left.min(self.block.into())).unwrap_or(self.block)
    }

    /// Where blocks from..to lie, in bytes.
    pub(crate) fn span(&self, (from, to): (u64, u64)) -> Range<u64> {
        let at = |index: u64| index.saturating_mul(self.block.into()).min(self.size);
        at(from)..at(to)
    }

    /// How many bytes blocks have that lie in these spans, from..to.
    pub(crate) fn bytes<'r>(&self, spans: impl IntoIterator<Item = &'r (u64, u64)>) -> u64 {
        let spans = spans.into_iter().map(|blocks| self.span(*blocks));
        let lengths = spans.map(|span| span.end.saturating_sub(span.start));
        lengths.fold(0, u64::saturating_add)
    }

    /// The sum of one block's bytes.
    pub fn sum(&self, index: u64, bytes: &[u8]) -> Sum {
        if self.blocks() == 1 {
            return *blake3::hash(bytes).as_bytes();
        }
        let mut hasher = Hasher::new();
        hasher.set_input_offset(self.start(index));
        hasher.update(bytes);
        hasher.finalize_non_root()
    }

    /// The hash of the whole file from the sums of all its blocks, or `None` where there are more or fewer of them.
    pub fn whole(&self, sums: &[Sum]) -> Option<Sum> {
        if sums.len() as u64 != self.blocks() {
            return None;
        }
        if let [only] = sums {
            return Some(*only);
        }
        let middle = left_blocks(sums.len());
        let (left, right) = (self.subtree(&sums[..middle]), self.subtree(&sums[middle..]));
        Some(*hazmat::merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
    }

    fn subtree(&self, sums: &[Sum]) -> Sum {
        if let [only] = sums {
            return *only;
        }
        let middle = left_blocks(sums.len());
        let (left, right) = (self.subtree(&sums[..middle]), self.subtree(&sums[middle..]));
        hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash)
    }
}

/// The hash of a few bytes.
pub fn sum_of(bytes: &[u8]) -> Sum {
    *blake3::hash(bytes).as_bytes()
}

/// The greatest power of two below `blocks`, of which there are two or more (BLAKE3 paper, section 2.1).
fn left_blocks(blocks: usize) -> usize {
    blocks.next_power_of_two() / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_block_and_none_are_the_hash_itself() {
        for bytes in [&b""[..], b"x", &[7; BLOCK_LEAST as usize]] {
            let cut = Cut::new(bytes.len() as u64, BLOCK_LEAST).unwrap();
            assert_eq!(cut.blocks(), 1);
            let sum = cut.sum(0, bytes);
            assert_eq!(cut.whole(&[sum]), Some(*blake3::hash(bytes).as_bytes()));
        }
    }

    #[test]
    fn blocks_are_powers_of_two_within_bounds() {
        for (block, fits) in [
            (BLOCK_LEAST / 2, false),
            (BLOCK_LEAST, true),
            (BLOCK_LEAST + 1, false),
            (BLOCK_MOST, true),
            (BLOCK_MOST * 2, false),
        ] {
            assert_eq!(Cut::new(1, block).is_some(), fits, "{block}");
        }
        assert_eq!(Cut::usual(256 << 30).block(), BLOCK_USUAL);
        assert_eq!(Cut::usual((256 << 30) + 1).block(), 2 * BLOCK_USUAL);
        assert_eq!(Cut::usual(u64::MAX).block(), BLOCK_MOST);
    }

    #[test]
    fn a_sum_too_few_or_too_many_is_no_hash() {
        let cut = Cut::new(3 * u64::from(BLOCK_LEAST), BLOCK_LEAST).unwrap();
        assert_eq!(cut.whole(&[[0; 32]; 2]), None);
        assert!(cut.whole(&[[0; 32]; 3]).is_some());
        assert_eq!(cut.whole(&[[0; 32]; 4]), None);
        assert_eq!(
            (cut.len(2), cut.len(3), cut.len(u64::MAX)),
            (BLOCK_LEAST, 0, 0)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn blocks_in_any_order_make_the_hash_of_the_file(
            size in 0_usize..12 * BLOCK_LEAST as usize, seed: u8, shift in 0_u32..3
        ) {
            let bytes: Vec<u8> = (0..size).map(|i| (i / 7).to_le_bytes()[0] ^ seed).collect();
            let cut = Cut::new(size as u64, BLOCK_LEAST << shift).unwrap();
            let mut sums = vec![[0; 32]; usize::try_from(cut.blocks()).unwrap()];
            for index in (0..cut.blocks()).rev() {
                let start = usize::try_from(cut.start(index)).unwrap();
                let part = &bytes[start..start + cut.len(index) as usize];
                sums[usize::try_from(index).unwrap()] = cut.sum(index, part);
            }
            prop_assert_eq!(cut.whole(&sums), Some(*blake3::hash(&bytes).as_bytes()));
        }
    }
}
