//! The event queue: a wheel of buckets, each sorted when its time comes.
//!
//! An event is one 128-bit word whose order is the order of events: picoseconds in the upper half, then its kind,
//! then whom it concerns. So what happens at one instant has an order that does not hang on who
//! asked first, and sorting a bucket compares plain numbers. What lies beyond the wheel waits in a heap.
//!
//! The width of a bucket follows the load: some events to sort in each, few empty ones to skip. It never
//! changes the order. After R. Brown, "Calendar queues", CACM 31(10), 1988; without its
//! resampling, since widths here are powers of two.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event: time in the upper 64 bits, what and whom in the lower.
pub(crate) type Word = u128;

/// Packs time, kind and two numbers. Kinds up to 15, `who` below 2^28.
pub(crate) const fn word(at_ps: u64, kind: u32, who: u32, what: u32) -> Word {
    ((at_ps as u128) << 64) | ((kind as u128) << 60) | ((who as u128) << 32) | what as u128
}

/// Undoes [`word`].
#[allow(clippy::cast_possible_truncation, reason = "takes fields apart")]
pub(crate) const fn parts(word: Word) -> (u64, u32, u32, u32) {
    let low = word as u64;
    (
        (word >> 64) as u64,
        (low >> 60) as u32,
        (low >> 32) as u32 & WHO_MAX,
        low as u32,
    )
}

/// Largest number of whom an event concerns.
pub(crate) const WHO_MAX: u32 = (1 << 28) - 1;

/// Events in the order of their words.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    /// First chunk of each bucket.
    buckets: Vec<u32>,
    /// Events that wait in buckets, and the first chunk that holds none. What was emptied last is filled next, so that
    /// few lines of cache go round.
    chunks: Vec<Chunk>,
    spare: u32,
    /// A bit for each bucket that is not empty.
    occupied: Vec<u64>,
    /// A bucket is 2^shift ps wide.
    shift: u32,
    /// Number of the bucket that is being emptied, counted from time 0.
    slot: u64,
    /// Its events, the next one last.
    current: Vec<Word>,
    /// What was added to it after it was opened, the next one last; then what is not sorted yet, and the first of that.
    added: Vec<Word>,
    new: Vec<Word>,
    new_first: Word,
    far: BinaryHeap<Reverse<Word>>,
    waiting: usize,
    /// Since the width was last looked at: events taken, buckets taken up, events put beyond half the wheel and beyond
    /// all of it.
    taken: u32,
    opened: u32,
    distant: u32,
    beyond: u32,
}

/// Some events of one bucket, in a line of cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Chunk {
    events: [Word; CHUNK],
    /// The bucket's next one; all but the first are full.
    next: u32,
    filled: u32,
}

impl Calendar {
    pub(crate) fn new() -> Self {
        Self {
            buckets: vec![NONE; BUCKETS],
            chunks: Vec::new(),
            spare: NONE,
            occupied: vec![0; BUCKETS / 64],
            shift: SHIFT,
            slot: 0,
            current: Vec::new(),
            added: Vec::new(),
            new: Vec::new(),
            new_first: Word::MAX,
            far: BinaryHeap::new(),
            waiting: 0,
            taken: 0,
            opened: 0,
            distant: 0,
            beyond: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Adds an event at or after the one taken last.
    pub(crate) fn push(&mut self, event: Word) {
        self.waiting += 1;
        self.place(event);
    }

    fn place(&mut self, event: Word) {
        let slot = self.slot_of(event);
        if slot <= self.slot {
            self.new.push(event);
            self.new_first = self.new_first.min(event);
            return;
        }
        let ahead = slot - self.slot;
        self.distant += u32::from(ahead >= BUCKETS as u64 / 2);
        if ahead < BUCKETS as u64 {
            let bucket = index(slot);
            self.put(bucket, event);
            self.occupied[bucket / 64] |= 1 << (bucket % 64);
        } else {
            self.beyond += 1;
            self.far.push(Reverse(event));
        }
    }

    fn put(&mut self, bucket: usize, event: Word) {
        let first = self.buckets[bucket];
        if let Some(chunk) = self.chunks.get_mut(first as usize)
            && (chunk.filled as usize) < CHUNK
        {
            chunk.events[chunk.filled as usize] = event;
            chunk.filled += 1;
            return;
        }
        let made = Chunk {
            events: [event, 0, 0],
            next: first,
            filled: 1,
        };
        let place = self.spare;
        match self.chunks.get_mut(place as usize) {
            Some(chunk) => {
                self.spare = chunk.next;
                *chunk = made;
                self.buckets[bucket] = place;
            }
            None => {
                self.buckets[bucket] = u32::try_from(self.chunks.len()).unwrap_or(NONE);
                self.chunks.push(made);
            }
        }
    }

    /// Appends a bucket's events to `to`.
    fn empty(&mut self, bucket: usize, to: &mut Vec<Word>) {
        let mut place = std::mem::replace(&mut self.buckets[bucket], NONE);
        while let Some(chunk) = self.chunks.get_mut(place as usize) {
            to.extend_from_slice(&chunk.events[..chunk.filled as usize]);
            let next = std::mem::replace(&mut chunk.next, self.spare);
            self.spare = place;
            place = next;
        }
    }

    #[cfg(test)]
    pub(crate) fn pop(&mut self) -> Option<Word> {
        self.pop_before(Word::MAX).ok()
    }

    /// Takes the first event if it comes before `limit`; else says before what none comes, [`Word::MAX`] if there is
    /// none at all.
    pub(crate) fn pop_before(&mut self, limit: Word) -> Result<Word, Word> {
        let mut first = self.current.last().copied().unwrap_or(Word::MAX);
        let mut added = self.added.last().copied().unwrap_or(Word::MAX);
        if first.min(added) == Word::MAX && self.new.is_empty() {
            self.open(limit)?;
            first = self.current.last().copied().unwrap_or(Word::MAX);
        }
        if self.new_first < first.min(added) {
            self.sort_new();
            added = self.added.last().copied().unwrap_or(Word::MAX);
        }
        if first.min(added) >= limit {
            return Err(first.min(added));
        }
        self.waiting -= 1;
        self.taken += 1;
        let taken = match added < first {
            true => self.added.pop(),
            false => self.current.pop(),
        };
        taken.ok_or(Word::MAX)
    }

    /// What comes after so many others of the bucket that is being emptied, if nothing is added before.
    #[inline]
    pub(crate) fn ahead(&self, others: usize) -> Option<Word> {
        let place = self.current.len().checked_sub(others + 1)?;
        self.current.get(place).copied()
    }

    /// Whole groups that ask at one instant come here together: sorted once, when the first of them is due.
    fn sort_new(&mut self) {
        self.new_first = Word::MAX;
        if self.new.len() > 1 {
            self.new.sort_unstable_by(|a, b| b.cmp(a));
        }
        if self.added.is_empty() {
            std::mem::swap(&mut self.added, &mut self.new);
        } else if self.added.last() > self.new.first() {
            self.added.append(&mut self.new);
        } else {
            self.added.append(&mut self.new);
            // Two runs, which this merges.
            self.added.sort_by(|a, b| b.cmp(a));
        }
    }

    /// Goes to the next bucket with events, unless all of it comes at `limit` or later.
    fn open(&mut self, limit: Word) -> Result<(), Word> {
        if self.waiting == 0 {
            return Err(Word::MAX);
        }
        if self.taken >= LOOK_EVERY {
            self.fit();
            if !self.new.is_empty() {
                return Ok(());
            }
        }
        let far = self.far.peek().map(|Reverse(e)| self.slot_of(*e));
        let near = self.next_occupied();
        let slot = match (near, far) {
            (Some(near), Some(far)) => near.min(far),
            (Some(slot), None) | (None, Some(slot)) => slot,
            (None, None) => return Err(Word::MAX),
        };
        // What is opened early would gather all that is added until then.
        let begins = Word::from(slot << self.shift) << 64;
        if begins >= limit {
            return Err(begins);
        }
        self.slot = slot;
        while let Some(Reverse(event)) = self.far.peek() {
            if self.slot_of(*event) - self.slot >= BUCKETS as u64 {
                break;
            }
            if let Some(Reverse(event)) = self.far.pop() {
                self.place(event);
            }
        }
        let bucket = index(self.slot);
        self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        let mut current = std::mem::take(&mut self.current);
        self.empty(bucket, &mut current);
        self.current = current;
        self.current.sort_unstable_by(|a, b| b.cmp(a));
        self.opened += 1;
        Ok(())
    }

    fn next_occupied(&self) -> Option<u64> {
        let from = index(self.slot + 1);
        let words = self.occupied.len();
        let first = self.occupied[from / 64] & (u64::MAX << (from % 64));
        let found = |word: usize, bits: u64| {
            let bucket = word * 64 + bits.trailing_zeros() as usize;
            let ahead = (bucket + BUCKETS - from) % BUCKETS;
            self.slot + 1 + ahead as u64
        };
        if first != 0 {
            return Some(found(from / 64, first));
        }
        (1..=words)
            .map(|n| (from / 64 + n) % words)
            .find(|word| self.occupied[*word] != 0)
            .map(|word| found(word, self.occupied[word]))
    }

    /// Makes buckets narrower or wider.
    fn fit(&mut self) {
        let each = self.taken / self.opened.max(1);
        // Many of one instant stay together however narrow buckets are, and what is beyond the wheel costs most.
        let much = self.taken / 8;
        let (distant, beyond) = (self.distant > much, self.beyond > much);
        self.taken = 0;
        self.opened = 0;
        self.distant = 0;
        self.beyond = 0;
        let shift = match each {
            _ if beyond && self.shift < SHIFT_MAX => self.shift + 1,
            0..=1 if self.shift < SHIFT_MAX => self.shift + 1,
            EACH_MAX.. if self.shift > 0 && !distant => self.shift - 1,
            _ => return,
        };
        let mut all: Vec<Word> = self.far.drain().map(|Reverse(e)| e).collect();
        for bucket in 0..BUCKETS {
            self.empty(bucket, &mut all);
        }
        self.occupied.fill(0);
        // The first instant of the bucket that is empty now: nothing earlier is left.
        self.slot = (self.slot << self.shift) >> shift;
        self.shift = shift;
        for event in all {
            self.place(event);
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "the upper half of the word"
    )]
    const fn slot_of(&self, event: Word) -> u64 {
        ((event >> 64) as u64) >> self.shift
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "below the number of buckets"
)]
const fn index(slot: u64) -> usize {
    (slot % BUCKETS as u64) as usize
}

/// No chunk.
const NONE: u32 = u32::MAX;
/// Events of a chunk: with what else it holds, a line.
const CHUNK: usize = 3;
const _: () = assert!(size_of::<Chunk>() == 64);

/// 4096 buckets of 1 ns at first; a power of two.
const BUCKETS: usize = 1 << 12;
const SHIFT: u32 = 12;
/// A bucket of 67 us, 0.27 s in all: a slow link's packets.
const SHIFT_MAX: u32 = 26;
/// Pops between two looks at the width; chosen.
const LOOK_EVERY: u32 = 1 << 14;
/// More in a bucket take longer to sort than several buckets to open; measured.
const EACH_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_was_packed() {
        let packed = word(u64::MAX, 15, WHO_MAX, u32::MAX);
        assert_eq!(parts(packed), (u64::MAX, 15, WHO_MAX, u32::MAX));
        assert_eq!(parts(word(7, 3, 2, 1)), (7, 3, 2, 1));
    }

    #[test]
    fn takes_the_same_order_as_a_heap_whatever_the_spread() {
        for (seed, spread) in [(1, 100), (2, 50_000), (3, 20_000_000), (4, 50_000_000_000)] {
            let mut rng = units::Rng::new(seed);
            let mut calendar = Calendar::new();
            let mut heap = BinaryHeap::new();
            let mut now = 0;
            for round in 0..120_000_u32 {
                let pushes = if round < 500 { 3 } else { rng.next_u64() % 3 };
                for _ in 0..pushes {
                    let ahead = rng.next_u64() % spread;
                    // Now and then far ahead of all others, and often at once.
                    let ahead = match rng.next_u64() % 50 {
                        0 => ahead * 1_000,
                        1..10 => 0,
                        _ => ahead,
                    };
                    let event = word(now + ahead, 1, round & WHO_MAX, 9);
                    calendar.push(event);
                    heap.push(Reverse(event));
                }
                assert_eq!(calendar.len(), heap.len());
                let next = heap.pop().map(|Reverse(e)| e);
                assert_eq!(calendar.pop(), next, "seed {seed}");
                now = next.map_or(now, |e| parts(e).0);
            }
        }
    }
}
