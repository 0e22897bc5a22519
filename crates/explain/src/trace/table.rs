//! From a connection's key to its place, and the places in the order in which they fall due.
//!
//! Open addressing with linear probing over 8 B an entry: 32 bits of the hash and the place. The
//! hash is a folded multiplication under a seed, so that a capture cannot be made to collide by who
//! does not know the seed. Places are in chunks, so that growing copies nothing.

use wire::segment::FlowKey;

use crate::trace::number::low32;
use crate::trace::tracker::Captured;

/// A connection at one interface: a packet seen at two of them is two connections' packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) flow: FlowKey,
    pub(crate) interface: u32,
}

impl Key {
    /// Whose packet this is.
    #[inline]
    pub(crate) const fn of(packet: &Captured) -> Self {
        Self {
            flow: packet.segment.flow,
            interface: packet.interface,
        }
    }
}

/// Finds places by key.
#[derive(Debug)]
pub(crate) struct Table {
    seeds: [u64; 3],
    /// 0: free; else the hash's upper 32 bits and, below them, the place plus one.
    entries: Vec<u64>,
    /// Places for 2^bits entries.
    bits: u32,
    len: usize,
}

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = units::Rng::new(seed);
        Self {
            seeds: [rng.next_u64(), rng.next_u64(), rng.next_u64()],
            entries: vec![0; 1 << BITS_MIN],
            bits: BITS_MIN,
            len: 0,
        }
    }

    /// The key's hash.
    pub(crate) fn hash(&self, key: &Key) -> u32 {
        let word = |address: &[u8; 16], half: usize| {
            let bytes = address.get(half * 8..half * 8 + 8);
            bytes
                .and_then(|b| b.try_into().ok())
                .map_or(0, u64::from_le_bytes)
        };
        let [low, high] = &key.flow.addresses;
        let [a, b] = key.flow.ports;
        let rest = u64::from(a) << 48 | u64::from(b) << 32 | u64::from(key.interface);
        let one = fold(word(low, 0) ^ self.seeds[0], word(low, 1) ^ self.seeds[1]);
        let two = fold(word(high, 0) ^ self.seeds[1], word(high, 1) ^ self.seeds[2]);
        let all = fold(one ^ rest ^ self.seeds[2], two ^ self.seeds[0]);
        low32(all >> 32)
    }

    /// Reads where a hash would be; the number means nothing.
    #[inline]
    pub(crate) fn fetch(&self, hash: u32) -> u64 {
        self.entries.get(self.home(hash)).copied().unwrap_or(0)
    }

    /// The place whose key hashes to `hash` and that `is` it.
    pub(crate) fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.entries.len() - 1;
        let mut at = self.home(hash);
        loop {
            let entry = *self.entries.get(at)?;
            if entry == 0 {
                return None;
            }
            let place = low32(entry).wrapping_sub(1);
            if low32(entry >> 32) == hash && is(place) {
                return Some(place);
            }
            at = (at + 1) & mask;
        }
    }

    /// Puts in a place that is not in it. `place` is below `u32::MAX`.
    pub(crate) fn insert(&mut self, hash: u32, place: u32) {
        if (self.len + 1) * 4 > self.entries.len() * 3 {
            self.grow();
        }
        self.put(u64::from(hash) << 32 | (u64::from(place) + 1));
        self.len += 1;
    }

    /// Takes out a place, if it is in it.
    pub(crate) fn remove(&mut self, hash: u32, place: u32) {
        let wanted = u64::from(hash) << 32 | (u64::from(place) + 1);
        let mask = self.entries.len() - 1;
        let mut hole = self.home(hash);
        while self.entries[hole] != wanted {
            if self.entries[hole] == 0 {
                return;
            }
            hole = (hole + 1) & mask;
        }
        // What stands behind moves up as long as it is not in front of its home then.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry == 0 {
                break;
            }
            let home = self.home(low32(entry >> 32));
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = 0;
        self.len -= 1;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }

    fn home(&self, hash: u32) -> usize {
        usize::try_from(hash >> (32 - self.bits)).unwrap_or_default()
    }

    fn put(&mut self, entry: u64) {
        let mask = self.entries.len() - 1;
        let mut at = self.home(low32(entry >> 32));
        while self.entries[at] != 0 {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }

    fn grow(&mut self) {
        self.bits = (self.bits + 1).min(31);
        let old = std::mem::replace(&mut self.entries, vec![0; 1 << self.bits]);
        old.into_iter()
            .filter(|&e| e != 0)
            .for_each(|e| self.put(e));
    }
}

/// A first-in first-out row of places that lie in a [`Chain`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) head: u32,
    tail: u32,
    pub(crate) len: usize,
}

/// A place's neighbours in its row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    before: u32,
    behind: u32,
}

/// Who knows the links of all places.
pub(crate) trait Chain {
    fn links(&mut self, place: u32) -> &mut Links;
}

impl Row {
    pub(crate) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    /// Puts a place at the end.
    pub(crate) fn push(&mut self, chain: &mut impl Chain, place: u32) {
        *chain.links(place) = Links {
            before: self.tail,
            behind: NONE,
        };
        match self.tail {
            NONE => self.head = place,
            tail => chain.links(tail).behind = place,
        }
        self.tail = place;
        self.len += 1;
    }

    /// Takes out a place of this row.
    pub(crate) fn remove(&mut self, chain: &mut impl Chain, place: u32) {
        let Links { before, behind } = *chain.links(place);
        match before {
            NONE => self.head = behind,
            before => chain.links(before).behind = behind,
        }
        match behind {
            NONE => self.tail = before,
            behind => chain.links(behind).before = before,
        }
        self.len -= 1;
    }
}

impl Links {
    pub(crate) const NONE: Self = Self {
        before: NONE,
        behind: NONE,
    };

    pub(crate) const fn behind(self) -> u32 {
        self.behind
    }
}

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

/// The product's halves, one over the other (as wyhash and foldhash do).
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the halves are taken apart"
    )]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}

/// 1,024 entries, 8 KiB.
const BITS_MIN: u32 = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_in_is_found_and_what_is_out_is_not(
            steps in prop::collection::vec((0_u32..64, any::<bool>()), 0..400), crowd in 0_u32..3,
        ) {
            // Few hashes, so that many collide, at the table's end too.
            let hash = |place: u32| match crowd {
                0 => u32::MAX - place % 3,
                1 => (place % 7) << 29,
                _ => place.wrapping_mul(0x9e37_79b9),
            };
            let mut table = Table::new(1);
            let mut truth = std::collections::BTreeSet::new();
            for (place, put) in steps {
                if put && truth.insert(place) {
                    table.insert(hash(place), place);
                } else if !put && truth.remove(&place) {
                    table.remove(hash(place), place);
                }
                table.remove(hash(99), 99);
                for p in 0..64 {
                    let found = table.find(hash(p), |q| q == p);
                    prop_assert_eq!(found.is_some(), truth.contains(&p));
                }
            }
        }
    }

    #[test]
    fn it_grows_and_keeps_what_it_has() {
        let mut table = Table::new(7);
        let key = |n: u32| Key {
            interface: n,
            ..Key::default()
        };
        for n in 0..10_000 {
            let hash = table.hash(&key(n));
            table.insert(hash, n);
        }
        assert!(table.entries.len() * 3 >= 10_000 * 4);
        for n in 0..10_000 {
            let hash = table.hash(&key(n));
            assert_eq!(table.find(hash, |p| p == n), Some(n));
        }
    }

    #[test]
    fn another_seed_is_another_order() {
        let key = Key {
            interface: 3,
            ..Key::default()
        };
        assert_ne!(Table::new(1).hash(&key), Table::new(2).hash(&key));
    }
}
