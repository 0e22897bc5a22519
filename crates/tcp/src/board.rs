//! A flag byte for each segment in flight, touched only where something went wrong.
//!
//! A ring indexed by segment number. Outside of what is in flight all bytes are zero, and in flight
//! all are until a segment is selectively acknowledged, found lost or sent again. So a transfer without losses
//! never reads or writes it, however much is in flight.

/// What became of segments in flight.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    flags: Vec<u8>,
    mask: u64,
}

/// Selectively acknowledged.
pub(crate) const SACKED: u8 = 1;
/// Found lost.
pub(crate) const LOST: u8 = 2;
/// Sent again, and that copy is on its way.
pub(crate) const AGAIN: u8 = 4;
/// Sent again at any time.
pub(crate) const EVER_AGAIN: u8 = 8;

impl Board {
    pub(crate) fn new() -> Self {
        Self {
            flags: vec![0; 1024],
            mask: 1023,
        }
    }

    /// Makes room for the segments `[una, next)`.
    pub(crate) fn fit(&mut self, una: u64, next: u64) {
        let len = self.flags.len() as u64;
        if next - una <= len {
            return;
        }
        let mut larger = vec![
            0;
            (next - una)
                .next_power_of_two()
                .max(len * 2)
                .try_into()
                .unwrap_or(0)
        ];
        let mask = larger.len() as u64 - 1;
        for n in una..una + len {
            larger[place(n, mask)] = self.flags[place(n, self.mask)];
        }
        self.flags = larger;
        self.mask = mask;
    }

    pub(crate) fn of(&self, n: u64) -> u8 {
        self.flags[place(n, self.mask)]
    }

    pub(crate) fn set(&mut self, n: u64, flags: u8) {
        self.flags[place(n, self.mask)] = flags;
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "below the length of a list"
)]
const fn place(n: u64, mask: u64) -> usize {
    (n & mask) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stay_with_their_segments_when_the_ring_grows() {
        let mut board = Board::new();
        for n in 700..1_700 {
            board.set(n, u8::try_from(n % 11).unwrap());
        }
        board.fit(700, 700 + 1024);
        board.fit(700, 700 + 5_000);
        for n in 700..1_700 {
            assert_eq!(board.of(n), u8::try_from(n % 11).unwrap());
        }
        for n in 1_724..5_700 {
            assert_eq!(board.of(n), 0);
        }
    }
}
