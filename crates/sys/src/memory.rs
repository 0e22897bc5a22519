//! How fast this host copies memory: what every byte through a socket costs at least once at each end.

use std::hint::black_box;

use units::{Bytes, Duration};

use crate::{clock, host};

/// Bytes a second that one thread copies from memory to memory, caches left out: the fastest of three
/// copies of 64 MiB, some 50 ms in all. `None` where that much memory cannot be spared: it is to be a
/// small part of what is available.
pub fn copy_rate() -> Option<u64> {
    if host::memory_available()? < SPARE {
        return None;
    }
    // Written once each, so that the pages are there.
    let from = vec![1_u8; COPY_BYTES];
    let mut to = vec![2_u8; COPY_BYTES];
    let fastest = (0..COPIES)
        .map(|_| {
            let begun = clock::monotonic();
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
            clock::monotonic().saturating_since(begun)
        })
        .min()?;
    rate(fastest)
}

fn rate(time: Duration) -> Option<u64> {
    let bytes = u128::try_from(COPY_BYTES).ok()?;
    u64::try_from(bytes * 1_000_000_000 / u128::from(time.as_ns().max(1))).ok()
}

/// Larger than the caches that a thread has to itself.
const COPY_BYTES: usize = 64 << 20;
const COPIES: u32 = 3;
const SPARE: Bytes = Bytes::new(2 << 30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_in_so_much_time_is_a_rate() {
        assert_eq!(rate(Duration::from_s(1)), Some(64 << 20));
        assert_eq!(rate(Duration::from_ms(8)), Some((64 << 20) * 125));
    }

    #[test]
    fn memory_is_copied_faster_than_a_disk_and_slower_than_light() {
        let Some(rate) = copy_rate() else {
            return testing::skipped("less than 2 GiB of memory to spare");
        };
        assert!(
            (10_000_000..10_000_000_000_000).contains(&rate),
            "{rate} B/s"
        );
    }
}
