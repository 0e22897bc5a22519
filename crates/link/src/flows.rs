//! A value for each of the flows that were seen last, in memory of a fixed size.

/// Values by key, of at most so many keys; with one more, the one that was not touched for longest
/// goes.
#[derive(Clone, Debug)]
pub(crate) struct FlowTable<T> {
    flows_max: usize,
    slots: Vec<Slot<T>>,
    /// First slot of each hash value.
    heads: Vec<u16>,
    newest: u16,
    oldest: u16,
}

/// A flow, in the chain of its hash value and in the order of last use.
#[derive(Clone, Copy, Debug)]
struct Slot<T> {
    key: u64,
    value: T,
    chain: u16,
    newer: u16,
    older: u16,
}

impl<T> FlowTable<T> {
    /// An empty table.
    ///
    /// # Panics
    /// When `flows_max` is 0 or above [`FLOWS_MAX`].
    pub(crate) fn new(flows_max: usize) -> Self {
        assert!(
            (1..=FLOWS_MAX).contains(&flows_max),
            "a table holds 1 to 4,096 flows"
        );
        Self {
            flows_max,
            slots: Vec::with_capacity(flows_max),
            heads: vec![NONE; HEADS],
            newest: NONE,
            oldest: NONE,
        }
    }

    /// The value of `key`, now the newest. One that is not known begins with what `make` gives; where
    /// the table is full it takes the place of the oldest, if `may_go` says so of its value, else there
    /// is no room.
    pub(crate) fn touch(
        &mut self,
        key: u64,
        may_go: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        let mut index = self.heads[head_of(key)];
        while index != NONE && self.slots[usize::from(index)].key != key {
            index = self.slots[usize::from(index)].chain;
        }
        if index == NONE {
            let is_full = self.slots.len() == self.flows_max;
            if is_full && !may_go(&self.slots[usize::from(self.oldest)].value) {
                return None;
            }
            index = self.add(key, make());
        } else if index != self.newest {
            self.unlink_age(index);
            self.link_newest(index);
        }
        Some(&mut self.slots[usize::from(index)].value)
    }

    /// Where [`Self::touch`] left its flow; good until it takes that place for another.
    pub(crate) const fn touched(&self) -> u16 {
        self.newest
    }

    /// The value at a place that was touched.
    pub(crate) fn at(&mut self, place: u16) -> &mut T {
        &mut self.slots[usize::from(place)].value
    }

    /// Takes a free slot, or the oldest flow's.
    fn add(&mut self, key: u64, value: T) -> u16 {
        let slot = Slot {
            key,
            value,
            chain: self.heads[head_of(key)],
            newer: NONE,
            older: NONE,
        };
        let free = u16::try_from(self.slots.len()).unwrap_or(NONE);
        let index = if self.slots.len() < self.flows_max {
            self.slots.push(slot);
            free
        } else {
            let index = self.oldest;
            self.unlink_age(index);
            self.unlink_chain(index);
            // The chain may have begun with the one that left.
            let chain = self.heads[head_of(key)];
            self.slots[usize::from(index)] = Slot { chain, ..slot };
            index
        };
        self.heads[head_of(key)] = index;
        self.link_newest(index);
        index
    }

    fn link_newest(&mut self, index: u16) {
        let older = std::mem::replace(&mut self.newest, index);
        let slot = &mut self.slots[usize::from(index)];
        (slot.newer, slot.older) = (NONE, older);
        match older {
            NONE => self.oldest = index,
            older => self.slots[usize::from(older)].newer = index,
        }
    }

    fn unlink_age(&mut self, index: u16) {
        let Slot { newer, older, .. } = self.slots[usize::from(index)];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[usize::from(newer)].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[usize::from(older)].newer = newer,
        }
    }

    fn unlink_chain(&mut self, index: u16) {
        let Slot { key, chain, .. } = self.slots[usize::from(index)];
        let head = head_of(key);
        if self.heads[head] == index {
            self.heads[head] = chain;
            return;
        }
        let mut before = self.heads[head];
        while self.slots[usize::from(before)].chain != index {
            before = self.slots[usize::from(before)].chain;
        }
        self.slots[usize::from(before)].chain = chain;
    }
}

/// Upper bits of the product with 2^64 / golden ratio (Knuth, TAOCP 3, section 6.4).
fn head_of(key: u64) -> usize {
    let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(hash >> (64 - HEADS_LOG2)).unwrap_or(0)
}

/// Flows that are told apart: more than one host keeps busy at a time, 200 KiB of table.
pub const FLOWS_MAX: usize = 4096;
const HEADS_LOG2: u32 = 13;
const HEADS: usize = 1 << HEADS_LOG2;
const NONE: u16 = u16::MAX;
const _: () = assert!(FLOWS_MAX < NONE as usize);

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a visit of `key`; how often it was there before.
    fn visit(table: &mut FlowTable<u64>, key: u64) -> u64 {
        let visits = table.touch(key, |_| true, || 0).unwrap();
        *visits += 1;
        *visits - 1
    }

    #[test]
    fn the_table_remembers_exactly_the_last_flows_and_does_not_grow() {
        let mut table = FlowTable::new(64);
        let mut rng = units::Rng::new(5);
        let mut last: Vec<u64> = Vec::new();
        for _ in 0..20_000 {
            let key = rng.next_u64() % 100;
            assert_eq!(visit(&mut table, key) > 0, last.contains(&key));
            last.retain(|&k| k != key);
            last.insert(0, key);
            last.truncate(64);
        }
        assert_eq!((table.slots.len(), table.slots.capacity()), (64, 64));
    }

    #[test]
    fn flows_of_one_hash_value_are_told_apart() {
        let head = head_of(1);
        let alike: Vec<u64> = (1..).filter(|&k| head_of(k) == head).take(6).collect();
        let mut table = FlowTable::new(4);
        for _ in 0..3 {
            for &key in &alike {
                // Four are remembered, six take turns: each is always forgotten.
                assert_eq!(visit(&mut table, key), 0);
            }
        }
    }

    #[test]
    fn a_flow_that_may_not_go_keeps_its_place() {
        let mut table = FlowTable::new(2);
        for key in [1, 2] {
            visit(&mut table, key);
        }
        assert!(table.touch(3, |&visits| visits > 1, || 0).is_none());
        assert_eq!(visit(&mut table, 1), 1, "nobody had to go");
        // Now 2 is the oldest.
        assert!(table.touch(3, |&visits| visits == 1, || 0).is_some());
        assert_eq!(visit(&mut table, 1), 2);
        assert_eq!(visit(&mut table, 2), 0);
    }
}
