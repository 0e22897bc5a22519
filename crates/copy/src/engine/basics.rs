//! What both sides of a session share: frames of blocks, small files, and how time is counted.

use std::time::Instant;

/// A frame of blocks.
pub(crate) const BLOCKS: u8 = 3;
/// Files up to so many bytes travel several in a frame.
pub(super) const SMALL: u64 = 256 << 10;

/// Nanoseconds since a moment.
pub(super) fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
