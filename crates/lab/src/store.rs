//! The memory that frames in flight lie in: one ring of bytes for each port.
//!
//! Frames come and, by and large, go in order, so a ring needs no allocator: a
//! frame is received straight into its place and freed when its last segment has left. Memory is set
//! aside and touched once, at start; a frame that finds no room is lost by the lab and counted so.

use std::collections::VecDeque;
use std::ops::Range;

use link::Marks;
use units::Instant;
use wire::train::SuperFrame;

/// A ring of frames.
#[derive(Debug)]
pub(crate) struct FrameStore {
    memory: Box<[u8]>,
    head: usize,
    slots: VecDeque<Slot>,
    /// Handle of the oldest slot.
    base: u64,
    frame_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    start: usize,
    len: usize,
    segments_left: u32,
    frame: SuperFrame,
    tag: FrameTag,
}

/// What the lab remembers of a frame beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameTag {
    /// When it came in.
    pub(crate) arrived: Instant,
    /// Its number since the lab came up; handles are used again, numbers are not.
    pub(crate) number: u64,
    /// What its sender declared: ECN-capable or not.
    pub(crate) marks: Marks,
    /// Its number, if it is one of the lab's own probes.
    pub(crate) probe: Option<u64>,
}

impl FrameStore {
    /// A ring of `bytes`, at least room for two frames of `frame_max` bytes.
    pub(crate) fn new(bytes: usize, frame_max: usize) -> Self {
        let bytes = bytes.max(2 * frame_max + 1);
        let mut memory = vec![0_u8; bytes].into_boxed_slice();
        // Touch every page now: a page fault in the data path would be a late frame.
        for page in memory.chunks_mut(PAGE_BYTES) {
            std::hint::black_box(&mut page[0]);
            page[0] = 1;
        }
        let slots = (bytes / SLOT_BYTES_TYPICAL).clamp(1024, SLOTS_PREALLOCATED_MAX);
        Self {
            memory,
            head: 0,
            slots: VecDeque::with_capacity(slots),
            base: 0,
            frame_max,
        }
    }

    /// Room for one frame of the largest size, or `None` when the ring is full.
    pub(crate) fn reserve(&mut self) -> Option<&mut [u8]> {
        self.head = self.room()?;
        Some(&mut self.memory[self.head..self.head + self.frame_max])
    }

    /// Where the next frame can lie.
    fn room(&self) -> Option<usize> {
        let Some(oldest) = self.slots.front() else {
            return Some(0);
        };
        let tail = oldest.start;
        if self.head > tail {
            if self.memory.len() - self.head >= self.frame_max {
                return Some(self.head);
            }
            return (tail > self.frame_max).then_some(0);
        }
        // head == tail with frames inside is a full ring, which the strict comparison excludes.
        (tail - self.head > self.frame_max).then_some(self.head)
    }

    /// The first `len` bytes of what was reserved.
    pub(crate) fn reserved(&self, len: usize) -> &[u8] {
        &self.memory[self.head..self.head + len.min(self.frame_max)]
    }

    /// Keeps the first `len` bytes of what was reserved. Returns the frame's handle.
    pub(crate) fn commit(&mut self, len: usize, frame: SuperFrame, tag: FrameTag) -> u64 {
        assert!(
            len > 0 && len <= self.frame_max,
            "a frame fits its reservation"
        );
        let segments_left = frame.segments().into();
        self.slots.push_back(Slot {
            start: self.head,
            len,
            segments_left,
            frame,
            tag,
        });
        self.head += len.next_multiple_of(ALIGN_BYTES).min(self.frame_max);
        self.base + (self.slots.len() as u64 - 1)
    }

    /// The frame behind a handle, the range of its bytes, vnet header first.
    pub(crate) fn frame(&self, handle: u64) -> (SuperFrame, Range<usize>) {
        let slot = &self.slots[self.index(handle)];
        (slot.frame, slot.start..slot.start + slot.len)
    }

    /// What is remembered of it.
    pub(crate) fn tag(&self, handle: u64) -> FrameTag {
        self.slots[self.index(handle)].tag
    }

    /// The first bytes of a frame, to be changed in place for all of its segments.
    pub(crate) fn bytes_mut(&mut self, handle: u64) -> &mut [u8] {
        let slot = self.slots[self.index(handle)];
        &mut self.memory[slot.start..slot.start + slot.len]
    }

    /// Further `segments` of a frame are on their way: copies.
    pub(crate) fn retain(&mut self, handle: u64, segments: u16) {
        let index = self.index(handle);
        self.slots[index].segments_left += u32::from(segments);
    }

    /// All the ring's bytes.
    pub(crate) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Lets go of `segments` of a frame; the frame's memory is free when none is left.
    pub(crate) fn release(&mut self, handle: u64, segments: u16) {
        let index = self.index(handle);
        let slot = &mut self.slots[index];
        let segments = u32::from(segments);
        assert!(slot.segments_left >= segments, "a segment leaves once");
        slot.segments_left -= segments;
        while self.slots.front().is_some_and(|s| s.segments_left == 0) {
            self.slots.pop_front();
            self.base += 1;
        }
        // A newest frame that the path dropped whole need not wait for its elders.
        while let Some(newest) = self.slots.back().filter(|s| s.segments_left == 0) {
            self.head = newest.start;
            self.slots.pop_back();
        }
    }

    /// Bytes set aside.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.memory.len() + self.slots.capacity() * size_of::<Slot>()
    }

    /// Frames inside.
    pub(crate) fn frames(&self) -> usize {
        self.slots.len()
    }

    fn index(&self, handle: u64) -> usize {
        usize::try_from(handle - self.base).expect("a handle of a frame in flight")
    }
}

const PAGE_BYTES: usize = 4096;
const ALIGN_BYTES: usize = 16;
/// Guess for the number of slots to set aside; where frames are smaller, the list grows once.
const SLOT_BYTES_TYPICAL: usize = 1024;
const SLOTS_PREALLOCATED_MAX: usize = 1 << 19;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::virtio::VirtioNetHdr;

    const FRAME_MAX: usize = 100;

    fn put(store: &mut FrameStore, len: usize, fill: u8) -> Option<u64> {
        store.reserve()?[..len].fill(fill);
        let header = VirtioNetHdr::parse(&[0; 10]).unwrap();
        let frame = SuperFrame::parse(header, &vec![fill; len]);
        Some(store.commit(len, frame, FrameTag::default()))
    }

    #[test]
    fn frames_keep_their_bytes_until_released_round_and_round_the_ring() {
        let mut store = FrameStore::new(1_000, FRAME_MAX);
        let mut rng = units::Rng::new(1);
        let mut inside: VecDeque<(u64, usize, u8)> = VecDeque::new();
        let (mut accepted, mut refused) = (0, 0);
        for step in 0..10_000_u64 {
            let fill = u8::try_from(step % 251).unwrap();
            let len = usize::try_from(rng.next_u64() % 100 + 1).unwrap();
            match put(&mut store, len, fill) {
                Some(handle) => {
                    accepted += 1;
                    inside.push_back((handle, len, fill));
                }
                None => refused += 1,
            }
            for &(handle, len, fill) in &inside {
                let (_, range) = store.frame(handle);
                assert!(store.memory()[range.clone()].iter().all(|&b| b == fill));
                assert_eq!(range.len(), len);
            }
            if rng.next_u64().is_multiple_of(2) {
                let Some((handle, ..)) = inside.pop_front() else {
                    continue;
                };
                store.release(handle, 1);
            }
        }
        assert!(
            accepted > 1_000 && refused > 100,
            "{accepted} accepted, {refused} refused"
        );
    }

    #[test]
    fn a_frame_released_out_of_order_is_freed_with_its_elders() {
        let mut store = FrameStore::new(1_000, FRAME_MAX);
        let handles: Vec<u64> = (0..3).map(|i| put(&mut store, 50, i).unwrap()).collect();
        store.release(handles[1], 1);
        assert_eq!(store.frames(), 3);
        store.release(handles[0], 1);
        assert_eq!(store.frames(), 1);
    }

    #[test]
    fn a_newest_frame_dropped_whole_gives_its_room_back_at_once() {
        let mut store = FrameStore::new(1_000, FRAME_MAX);
        let kept = put(&mut store, 50, 1).unwrap();
        for fill in 2..100 {
            let dropped = put(&mut store, 100, fill).expect("room, since the others were dropped");
            store.release(dropped, 1);
        }
        let (_, range) = store.frame(kept);
        assert!(store.memory()[range].iter().all(|&b| b == 1));
        assert_eq!(store.frames(), 1);
    }

    #[test]
    fn a_full_ring_refuses_and_an_emptied_one_accepts_again() {
        let mut store = FrameStore::new(201, FRAME_MAX);
        let handles = [
            put(&mut store, 100, 1).unwrap(),
            put(&mut store, 100, 2).unwrap(),
        ];
        assert!(put(&mut store, 1, 3).is_none());
        for handle in handles {
            store.release(handle, 1);
        }
        assert!(put(&mut store, 100, 3).is_some());
    }
}
