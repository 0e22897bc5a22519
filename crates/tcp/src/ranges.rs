//! Sets of sequence numbers as ranges, for what was acknowledged or came out of order.
//!
//! Ranges lie apart and ascend. What TCP adds lies mostly at the end of the last range or, while
//! holes are filled, near the front, so that both are cheap.

use std::collections::VecDeque;

/// Segments as ranges that lie apart, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    inner: VecDeque<(u64, u64)>,
}

impl Ranges {
    /// Adds `[start, end)` and tells `fresh` of each part that was not there.
    pub fn add(&mut self, start: u64, end: u64, mut fresh: impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        if let Some(last) = self.inner.back_mut()
            && start >= last.0
            && start <= last.1
        {
            // The usual case: the highest range grows.
            if end > last.1 {
                fresh(last.1, end);
                last.1 = end;
            }
            return;
        }
        // The first range that ends at or behind the start.
        let at = self.inner.partition_point(|r| r.1 < start);
        let (mut low, mut high, mut cursor) = (start, end, start);
        let mut swallowed = 0;
        while let Some(&(s, e)) = self.inner.get(at + swallowed)
            && s <= end
        {
            if cursor < s {
                fresh(cursor, s);
            }
            cursor = cursor.max(e);
            low = low.min(s);
            high = high.max(e);
            swallowed += 1;
        }
        if cursor < end {
            fresh(cursor, end);
        }
        if swallowed == 0 {
            self.inner.insert(at, (low, high));
            return;
        }
        self.inner[at] = (low, high);
        if swallowed > 1 {
            self.inner.drain(at + 1..at + swallowed);
        }
    }

    /// Forgets everything below `edge`; the number of segments that were there.
    pub fn forget_below(&mut self, edge: u64) -> u64 {
        let mut gone = 0;
        while let Some(front) = self.inner.front_mut() {
            if front.1 <= edge {
                gone += front.1 - front.0;
                self.inner.pop_front();
                continue;
            }
            if front.0 < edge {
                gone += edge - front.0;
                front.0 = edge;
            }
            break;
        }
        gone
    }

    /// The range that holds `at`.
    pub fn holding(&self, at: u64) -> Option<(u64, u64)> {
        let place = self.inner.partition_point(|r| r.1 <= at);
        self.inner.get(place).copied().filter(|r| r.0 <= at)
    }

    /// The lowest range.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.inner.front().copied()
    }

    /// The `n`-th range from below.
    pub fn nth(&self, n: usize) -> Option<(u64, u64)> {
        self.inner.get(n).copied()
    }

    /// End of the highest range.
    pub fn end(&self) -> Option<u64> {
        self.inner.back().map(|r| r.1)
    }

    /// True when nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.inner.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(set: &mut Ranges, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut fresh = Vec::new();
        set.add(start, end, |a, b| fresh.push((a, b)));
        fresh
    }

    #[test]
    fn only_what_is_new_is_told_and_neighbours_merge() {
        let mut set = Ranges::default();
        assert_eq!(added(&mut set, 10, 20), [(10, 20)]);
        assert_eq!(added(&mut set, 15, 22), [(20, 22)]);
        assert_eq!(added(&mut set, 30, 40), [(30, 40)]);
        assert_eq!(added(&mut set, 5, 35), [(5, 10), (22, 30)]);
        assert_eq!((set.len(), set.first()), (1, Some((5, 40))));
        assert_eq!(added(&mut set, 5, 40), []);
        assert_eq!(added(&mut set, 40, 41), [(40, 41)]);
        assert_eq!(added(&mut set, 3, 5), [(3, 5)]);
        assert_eq!((set.len(), set.end()), (1, Some(41)));
    }

    #[test]
    fn a_set_of_ranges_says_what_a_set_of_numbers_says() {
        let mut rng = units::Rng::new(7);
        let mut set = Ranges::default();
        let mut naive = std::collections::BTreeSet::new();
        for _ in 0..2_000 {
            let start = rng.next_u64() % 500;
            let end = start + rng.next_u64() % 9;
            let mut told = Vec::new();
            set.add(start, end, |a, b| told.extend(a..b));
            let fresh: Vec<u64> = (start..end).filter(|n| naive.insert(*n)).collect();
            assert_eq!(told, fresh);
            if rng.next_u64().is_multiple_of(50) {
                let edge = rng.next_u64() % 100;
                let below = naive.iter().filter(|n| **n < edge).count();
                assert_eq!(set.forget_below(edge), below as u64);
                naive.retain(|n| *n >= edge);
            }
            for at in 0..510 {
                assert_eq!(set.holding(at).is_some(), naive.contains(&at));
            }
        }
    }
}
