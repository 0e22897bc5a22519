//! All frames in flight: their bytes, once each, and what was changed of them on the way.
//!
//! A frame lies in the store of the port that it came by. What a router or rule changes is kept as
//! another beginning of the same frame, a version, so that segments of one frame may differ in where
//! they have been. A handle names a frame or a version of one, and each of its segments that is on
//! its way counts; with the last the memory is free.

use std::ops::Range;

use sys::packet::VNET_HDR_BYTES;
use wire::classify::Fields;
use wire::train::{HEADER_BYTES_MAX, SuperFrame};

use crate::store::{FrameStore, FrameTag};

/// The frames.
#[derive(Debug)]
pub(crate) struct Frames {
    stores: Vec<FrameStore>,
    versions: Vec<Version>,
    free: Vec<usize>,
}

/// A frame with another beginning.
#[derive(Debug)]
struct Version {
    parent: u64,
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    outstanding: u32,
    /// Counts the uses of this place, so that an old handle is not taken for a new one.
    generation: u64,
    /// Further segments may yet go this way.
    open: bool,
}

impl Frames {
    /// Frames in `stores`.
    pub(crate) const fn new(stores: Vec<FrameStore>) -> Self {
        Self {
            stores,
            versions: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The stores, by their numbers.
    pub(crate) fn stores(&self) -> &[FrameStore] {
        &self.stores
    }

    /// Room in a store for one frame, vnet header first; `None` when it is full.
    pub(crate) fn reserve(&mut self, store: usize) -> Option<&mut [u8]> {
        self.stores[store].reserve()
    }

    /// The first `len` bytes of what was reserved in a store.
    pub(crate) fn reserved(&self, store: usize, len: usize) -> &[u8] {
        self.stores[store].reserved(len)
    }

    /// Keeps them as a frame; its handle, all segments on their way.
    pub(crate) fn commit(
        &mut self,
        store: usize,
        len: usize,
        frame: SuperFrame,
        tag: FrameTag,
    ) -> u64 {
        handle_of(store, self.stores[store].commit(len, frame, tag))
    }

    /// What the frame is made of. A version's lengths are those of its frame.
    pub(crate) fn frame(&self, handle: u64) -> SuperFrame {
        let root = self.root(handle);
        self.stores[store_of(root)].frame(number_of(root)).0
    }

    /// What is remembered of it.
    pub(crate) fn tag(&self, handle: u64) -> FrameTag {
        let root = self.root(handle);
        self.stores[store_of(root)].tag(number_of(root))
    }

    /// The store in which its bytes lie, and where, from the Ethernet header on.
    pub(crate) fn place(&self, handle: u64) -> (usize, Range<usize>) {
        let root = self.root(handle);
        let store = store_of(root);
        let (_, range) = self.stores[store].frame(number_of(root));
        (store, range.start + VNET_HDR_BYTES..range.end)
    }

    /// Its bytes as they came.
    pub(crate) fn stored(&self, handle: u64) -> &[u8] {
        let (store, range) = self.place(handle);
        &self.stores[store].memory()[range]
    }

    /// Its changed beginning; `None` where it is as it came.
    pub(crate) fn changed(&self, handle: u64) -> Option<&[u8]> {
        let index = version_index(handle)?;
        let version = &self.versions[index];
        Some(&version.header[..version.header_len])
    }

    /// What its headers say now.
    pub(crate) fn fields(&self, handle: u64) -> Fields {
        Fields::parse(self.changed(handle).unwrap_or_else(|| self.stored(handle)))
    }

    /// Its beginning, to be changed for all segments that have this handle.
    pub(crate) fn beginning_mut(&mut self, handle: u64) -> &mut [u8] {
        if let Some(index) = version_index(handle) {
            let version = &mut self.versions[index];
            return &mut version.header[..version.header_len];
        }
        let bytes = self.stores[store_of(handle)].bytes_mut(number_of(handle));
        bytes.get_mut(VNET_HDR_BYTES..).unwrap_or_default()
    }

    /// Makes a version of which `edit` changes the beginning (told whether the transport checksum is
    /// still to be done), and lets `count` segments go on as it. To be closed.
    pub(crate) fn change(
        &mut self,
        handle: u64,
        count: u16,
        edit: impl FnOnce(&mut [u8], bool),
    ) -> u64 {
        let frame = self.frame(handle);
        let mut header = [0; HEADER_BYTES_MAX];
        let header_len = frame.changeable_bytes();
        let now = self.changed(handle).unwrap_or_else(|| self.stored(handle));
        header[..header_len].copy_from_slice(&now[..header_len]);
        edit(&mut header[..header_len], frame.vnet().needs_csum());
        let mut made = Version {
            parent: self.root(handle),
            header,
            header_len,
            outstanding: 0,
            generation: 0,
            open: true,
        };
        let index = if let Some(index) = self.free.pop() {
            made.generation = self.versions[index].generation + 1;
            self.versions[index] = made;
            index
        } else {
            self.versions.push(made);
            self.versions.len() - 1
        };
        let number = (self.versions[index].generation << VERSION_INDEX_BITS) | index as u64;
        let version = handle_of(VERSIONS, number);
        self.hand_over(handle, version, count);
        version
    }

    /// Segments of a frame go on as another version of it.
    pub(crate) fn hand_over(&mut self, from: u64, to: u64, count: u16) {
        if let Some(index) = version_index(to) {
            self.versions[index].outstanding += u32::from(count);
        }
        if let Some(index) = version_index(from) {
            self.versions[index].outstanding -= u32::from(count);
            self.free_if_done(index);
        }
    }

    /// No further segments will go on as this version; nothing where it is none.
    pub(crate) fn close(&mut self, handle: u64) {
        if let Some(index) = version_index(handle) {
            self.versions[index].open = false;
            self.free_if_done(index);
        }
    }

    /// Further segments are on their way: copies.
    pub(crate) fn retain(&mut self, handle: u64, count: u16) {
        if let Some(index) = version_index(handle) {
            self.versions[index].outstanding += u32::from(count);
        }
        let root = self.root(handle);
        self.stores[store_of(root)].retain(number_of(root), count);
    }

    /// Segments have left, or are lost.
    pub(crate) fn release(&mut self, handle: u64, count: u16) {
        let root = self.root(handle);
        if let Some(index) = version_index(handle) {
            self.versions[index].outstanding -= u32::from(count);
            self.free_if_done(index);
        }
        self.stores[store_of(root)].release(number_of(root), count);
    }

    /// True when no frame is kept any more. Versions that are open keep none by themselves.
    pub(crate) fn is_empty(&self) -> bool {
        let stored: usize = self.stores.iter().map(FrameStore::frames).sum();
        let versions = self.versions.iter().map(|v| v.outstanding);
        stored == 0 && versions.sum::<u32>() == 0
    }

    /// Memory set aside.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.stores.iter().map(FrameStore::capacity_bytes).sum()
    }

    /// The stored frame behind a handle.
    fn root(&self, handle: u64) -> u64 {
        version_index(handle).map_or(handle, |index| self.versions[index].parent)
    }

    fn free_if_done(&mut self, index: usize) {
        let version = &self.versions[index];
        if !version.open && version.outstanding == 0 {
            self.free.push(index);
        }
    }
}

const fn handle_of(store: usize, number: u64) -> u64 {
    ((store as u64) << NUMBER_BITS) | (number & NUMBER_MASK)
}

const fn store_of(handle: u64) -> usize {
    (handle >> NUMBER_BITS) as usize
}

const fn number_of(handle: u64) -> u64 {
    handle & NUMBER_MASK
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "it was an index when the handle was made"
)]
const fn version_index(handle: u64) -> Option<usize> {
    if store_of(handle) == VERSIONS {
        Some((handle & ((1 << VERSION_INDEX_BITS) - 1)) as usize)
    } else {
        None
    }
}

/// A handle's upper bits are its store's number.
const NUMBER_BITS: u32 = 48;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// The store number that means a version.
const VERSIONS: usize = 0xffff;
/// Of a version's number: its place; the other 24 bits are how often that was used.
const VERSION_INDEX_BITS: u32 = 24;
