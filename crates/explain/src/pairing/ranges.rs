//! A set of bytes as few ranges.

/// Ranges that neither touch nor overlap, in order; at most [`RANGES_MAX`].
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    list: Vec<(u64, u64)>,
}

impl Ranges {
    /// Adds `start..end`. Where there are too many ranges, the lowest gap closes: what is long past
    /// counts as there.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.list.partition_point(|r| r.1 < start);
        let beyond = self.list.partition_point(|r| r.0 <= end);
        let low = self.list.get(first).map_or(start, |r| r.0.min(start));
        let high = match beyond.checked_sub(1).filter(|last| *last >= first) {
            Some(last) => self.list[last].1.max(end),
            None => end,
        };
        let low = if beyond > first { low } else { start };
        self.list.splice(first..beyond, [(low, high)]);
        if self.list.len() > RANGES_MAX {
            let lowest = self.list.remove(0);
            self.list[0].0 = lowest.0;
        }
    }

    /// The parts of `start..end` in the order of bytes, each with whether it is in the set.
    pub(super) fn parts(&self, start: u64, end: u64) -> Vec<(u64, u64, bool)> {
        let mut parts = Vec::new();
        let mut at = start;
        let first = self.list.partition_point(|r| r.1 <= start);
        for &(low, high) in &self.list[first..] {
            if low >= end {
                break;
            }
            if low > at {
                parts.push((at, low, false));
            }
            parts.push((low.max(at), high.min(end), true));
            at = high.min(end);
        }
        if at < end {
            parts.push((at, end, false));
        }
        parts
    }

    /// Whether all of `start..end` is in the set.
    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        let first = self.list.partition_point(|r| r.1 <= start);
        let found = self.list.get(first);
        start >= end || found.is_some_and(|r| r.0 <= start && r.1 >= end)
    }
}

/// Takes `start..end` out of `left`.
pub(super) fn take_out(left: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    if let [only] = left.as_mut_slice()
        && only.0 >= start
        && only.1 > end
    {
        // A super-packet whose segments come one by one.
        only.0 = end.max(only.0);
        return;
    }
    let rest = left.iter().flat_map(|&(low, high)| {
        let before = (low, high.min(start));
        let behind = (low.max(end), high);
        [before, behind].into_iter().filter(|r| r.0 < r.1)
    });
    *left = rest.collect();
}

/// A reordering network has a few, a long burst of losses one for each segment in a row of two.
const RANGES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Rng;

    #[test]
    fn ranges_hold_what_was_added_and_nothing_else() {
        let mut rng = Rng::new(7);
        for _ in 0..200 {
            let mut ranges = Ranges::default();
            let mut truth = [false; 64];
            for _ in 0..rng.next_u64() % 20 {
                let start = rng.next_u64() % 60;
                let end = start + rng.next_u64() % 5;
                ranges.add(start, end);
                for byte in start..end {
                    truth[usize::try_from(byte).unwrap()] = true;
                }
            }
            for (low, high, held) in ranges.parts(0, 64) {
                assert!(low < high);
                for byte in low..high {
                    assert_eq!(truth[usize::try_from(byte).unwrap()], held);
                }
            }
            for start in 0..60 {
                let all = (start..start + 4).all(|b| truth[usize::try_from(b).unwrap()]);
                assert_eq!(ranges.holds(start, start + 4), all);
            }
            assert!(ranges.list.windows(2).all(|w| w[0].1 < w[1].0));
        }
    }

    #[test]
    fn too_many_ranges_close_the_lowest_gap() {
        let mut ranges = Ranges::default();
        for n in 0..=RANGES_MAX as u64 {
            ranges.add(n * 10, n * 10 + 1);
        }
        assert_eq!(ranges.list.len(), RANGES_MAX);
        assert!(ranges.holds(0, 11) && !ranges.holds(11, 12));
    }

    #[test]
    fn parts_are_taken_out_of_the_middle_and_of_the_ends() {
        for (start, end, rest) in [
            (0, 10, vec![]),
            (0, 4, vec![(4, 10)]),
            (4, 10, vec![(0, 4)]),
            (3, 5, vec![(0, 3), (5, 10)]),
            (10, 12, vec![(0, 10)]),
        ] {
            let mut left = vec![(0, 10)];
            take_out(&mut left, start, end);
            assert_eq!(left, rest, "{start}..{end}");
        }
    }
}
