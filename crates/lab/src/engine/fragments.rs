//! What becomes of segments that are too large for a router's next link and may be fragmented.
//!
//! Each fragment is a frame of the lab's own making, its payload copied: its fate, marks and losses
//! are its own from here on. A super-frame is cut first, since each of its segments is a datagram on
//! the wire, with an identification of its own.

use link::record::{Code, Row};
use link::{DropCause, Release};
use sys::packet::VNET_HDR_BYTES;
use sys::simd;
use units::Instant;
use wire::fragment::Fragments;
use wire::train;

use super::Engine;

impl Engine {
    /// Sends segments on by `out` as fragments of at most `mtu` bytes. They came by `way` and are
    /// `version`'s, whose headers are those with which they leave.
    pub(super) fn pass_in_fragments(
        &mut self,
        way: usize,
        out: usize,
        release: Release,
        version: u64,
        mtu: u32,
    ) {
        for segment in release.first..release.first + release.count {
            let part = Release {
                first: segment,
                count: 1,
                ..release
            };
            let mut whole = std::mem::take(&mut self.scratch);
            self.write_segment(version, segment, &mut whole);
            match Fragments::of(&whole, mtu) {
                Some(fragments) => {
                    self.fragment(way, out, part, version, &fragments);
                    self.frames.release(version, 1);
                }
                // What a real router would have discarded before it looked at the size.
                None => self.lose_release(way, part, version, DropCause::TooBig),
            }
            self.scratch = whole;
        }
    }

    /// Writes a segment as the wire would carry it: by itself, its transport checksum finished, which
    /// covers what will be in several fragments.
    fn write_segment(&mut self, handle: u64, segment: u16, to: &mut Vec<u8>) {
        to.clear();
        let frame = self.frames.frame(handle);
        let stored = self.frames.stored(handle);
        let header = self.frames.changed(handle);
        let header = header.unwrap_or_else(|| &stored[..frame.changeable_bytes()]);
        if frame.cut_over(header, segment, 1, &mut self.cut).is_ok() {
            self.cut.append_to(stored, to);
            let sum = |bytes: &[u8]| simd::fold(simd::sum(bytes));
            train::finish_checksum_with(self.cut.vnet(), to, sum);
        }
    }

    /// Makes the fragments of one segment and sends them on, in order. One that finds no memory is
    /// lost by the lab, and counted so.
    fn fragment(
        &mut self,
        way: usize,
        out: usize,
        part: Release,
        version: u64,
        fragments: &Fragments<'_>,
    ) {
        let count = fragments.count();
        let original = self.frames.tag(version).number;
        // One bit is flipped, in whichever fragment the draw falls on.
        let draw = usize::try_from(part.damage).unwrap_or(0);
        let damaged = (part.damage != 0).then(|| draw % count);
        self.directions[way].counts.fragmented += 1;
        self.log_node(
            way,
            part,
            version,
            Code::FRAGMENTED,
            u64::try_from(count).unwrap_or(0),
        );
        for k in 0..count {
            let made = self.make_with(out, part.last_at, |room| fragments.write(k, room));
            self.directions[way].counts.fragments += 1;
            let Some(handle) = made else { continue };
            let whole = Release {
                handle,
                first: 0,
                damage: if damaged == Some(k) { part.damage } else { 0 },
                ..part
            };
            self.log_node(way, whole, handle, Code::FRAGMENT, original);
            self.pass_to(out, whole, handle);
        }
    }

    /// Logs what a node did with a segment; `detail` modulo 2^32.
    fn log_node(&mut self, way: usize, part: Release, handle: u64, decision: Code, detail: u64) {
        let frame = self.frames.frame(handle);
        let number = self.frames.tag(handle).number;
        let medium = self.directions[way].spec.medium;
        let Some(log) = &mut self.log else { return };
        log.row(&Row {
            time: part.last_at,
            departs: Instant::MAX,
            frame: number,
            wire_bytes: medium.wire_bytes(frame.segment_frame_bytes(part.first)),
            first: part.first,
            count: 1,
            link: u16::try_from(way).unwrap_or(u16::MAX),
            stage: u8::MAX,
            decision,
            flow: frame.flow(),
            detail: u32::try_from(detail & u64::from(u32::MAX)).unwrap_or(0),
            ..Row::default()
        });
    }

    /// Keeps a frame of the lab's own making, which `write` writes into the room for it and says its
    /// length; `None`, counted on `way`, when there is no room.
    pub(super) fn make_with(
        &mut self,
        way: usize,
        at: Instant,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<u64> {
        let store = self.frames.stores().len() - 1;
        let room = self.frames.reserve(store);
        let len = room.and_then(|room| {
            let (vnet, frame) = room.split_at_mut_checked(VNET_HDR_BYTES)?;
            vnet.fill(0);
            write(frame)
        });
        let Some(len) = len else {
            self.directions[way].counts.lost_memory += 1;
            return None;
        };
        self.admit(store, VNET_HDR_BYTES + len, at, false)
    }
}
