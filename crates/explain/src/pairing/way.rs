//! One direction of a connection at both capture points: which packets are the same, and what became of
//! those that only one of them saw.
//!
//! A copy is a packet as one point saw it. Its bytes wait there for a copy at the other point with the
//! same time stamp (or, where an end uses none, the one nearest to the usual delay) that covers them:
//! so a super-packet is found again in its segments and the other way round. Which point is first is
//! not known while packets pass, so both views are kept: what only one point saw, what it saw for the
//! first time when it was sent again, and what it saw twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use wire::segment::Segment;
use wire::tcp::Flags;

use super::ranges::{Ranges, take_out};
use super::{Count, Lost, Place, Room};

/// Bytes or a packet without any as one point saw them.
#[derive(Clone, Debug)]
struct Copy {
    left: Vec<(u64, u64)>,
    start: u64,
    end: u64,
    time_ns: u64,
    /// When the other point will have it, by its clock, as far as that is known.
    due_ns: Option<u64>,
    frame: u64,
    stamp: Option<u32>,
    id: u16,
    sequence: u32,
    has_match: bool,
    /// Frames of a later copy of the same bytes that both points saw.
    repeat: Option<[u64; 2]>,
    /// Its line among the losses, which is to know its frame at the other point.
    note: Option<usize>,
}

/// A packet that was seen a moment ago.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    key: u64,
    id: u16,
    time_ns: u64,
}

/// Bytes that a packet jumped over.
#[derive(Clone, Copy, Debug)]
struct Gap {
    start: u64,
    end: u64,
    time_ns: u64,
    stamp: Option<u32>,
    id: u16,
}

/// What one point saw of this direction.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pending: BTreeMap<(u64, u32), Copy>,
    control: BTreeMap<(u64, u32), Copy>,
    seen: Ranges,
    high: u64,
    gaps: VecDeque<Gap>,
    recent: VecDeque<Recent>,
    acked: u64,
    sacked: Ranges,
    /// Bytes that the receiver said it lacks, since they were seen here last: those at the edges of what
    /// it has.
    missing: BTreeSet<u64>,
    /// Lines of bytes that were seen twice, until an answer says that they were not needed.
    open: VecDeque<(u64, u64, usize)>,
    pub(super) packets: u64,
    pub(super) matched: u64,
    pub(super) bytes: u64,
    /// Seen here and nowhere behind.
    pub(super) vanished: Count,
    /// Acknowledged without having been seen at the other point.
    pub(super) unseen: Count,
    /// First seen when sent again.
    pub(super) filled: Count,
    /// Seen again after they had got through.
    pub(super) spurious: Count,
    /// Seen again since they had not got further.
    pub(super) behind: Count,
    /// Of which nothing can be said: outside the other capture's time, or there was no room to wait.
    pub(super) unjudged: Count,
    pub(super) control_vanished: u64,
    pub(super) duplicates: u64,
    pub(super) lines: Vec<Line>,
}

/// A loss, and what it is if this point is the first (or, of what was seen twice, the second).
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) lost: Lost,
    /// Found to have been needless.
    pub(super) withdrawn: bool,
}

/// One direction.
#[derive(Clone, Debug)]
pub(super) struct Way {
    views: [View; 2],
    reference: Option<u64>,
    serial: u32,
    longest: u64,
    /// How much later the second point had the last packet; the least and the most.
    usual_ns: Option<i64>,
    spread_ns: (i64, i64),
    ids_kept: u32,
    mss: [Option<u16>; 2],
    has_stamps: bool,
    sizes: [(u32, u32); 4],
}

/// Where and when the other point's capture was running, by its own clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) begins_ns: u64,
    pub(super) ends_ns: Option<u64>,
}

/// A packet and where it was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// 0 or 1.
    pub(super) point: usize,
    pub(super) time_ns: u64,
    pub(super) frame: u64,
    pub(super) segment: &'a Segment,
}

impl Way {
    pub(super) fn new() -> Self {
        Self {
            views: <[View; 2]>::default(),
            reference: None,
            serial: 0,
            longest: 0,
            usual_ns: None,
            spread_ns: (i64::MAX, i64::MIN),
            ids_kept: 0,
            mss: [None; 2],
            has_stamps: false,
            sizes: [(0, 0); 4],
        }
    }

    pub(super) const fn views(&self) -> &[View; 2] {
        &self.views
    }

    pub(super) const fn has_match(&self) -> bool {
        self.usual_ns.is_some()
    }

    /// Largest segment that an end takes, from its SYN.
    pub(super) fn on_mss(&mut self, side: usize, mss: Option<u16>) {
        self.mss[side & 1] = mss.or(self.mss[side & 1]);
    }

    /// Takes a packet of this direction; the times at which both points had it, where that is now known
    /// of its first byte.
    pub(super) fn take(&mut self, seen: Seen<'_>, room: &mut Room) -> Option<(u64, u64)> {
        let segment = seen.segment;
        let syn = segment.flags.contains(Flags::SYN);
        let start = self.place(segment.sequence.wrapping_add(u32::from(syn)));
        let end = start.saturating_add(u64::from(segment.payload_bytes));
        self.has_stamps |= segment.timestamps.is_some();
        let copy = Copy {
            left: vec![(start, end)],
            start,
            end,
            time_ns: seen.time_ns,
            due_ns: self.due_ns(seen.point, seen.time_ns),
            frame: seen.frame,
            stamp: segment.timestamps.map(|t| t.0),
            id: segment.ip_id,
            sequence: segment.sequence.wrapping_add(u32::from(syn)),
            has_match: false,
            repeat: None,
            note: None,
        };
        let number = fingerprint(segment);
        let view = &mut self.views[seen.point];
        if view.is_duplicate(number, &copy) {
            view.duplicates += 1;
            return None;
        }
        view.packets += 1;
        if syn {
            view.high = view.high.max(start);
            self.reference = self.reference.max(Some(start));
        }
        if segment.payload_bytes == 0 {
            return self.take_control(seen.point, number, copy, room);
        }
        view.bytes += u64::from(segment.payload_bytes);
        self.reference = self.reference.max(Some(start));
        self.longest = self.longest.max(end - start).min(LONGEST);
        self.note_size(segment.payload_bytes);
        self.take_data(seen.point, copy, room)
    }

    /// Takes what the other side says of this direction's bytes.
    pub(super) fn on_answer(&mut self, point: usize, segment: &Segment) {
        if !segment.flags.contains(Flags::ACK) || self.reference.is_none() {
            return;
        }
        let acked = self.place(segment.acknowledgment);
        let blocks: Vec<(u64, u64)> = segment
            .sack
            .as_slice()
            .iter()
            .map(|&(low, high)| (self.place(low), self.place(high)))
            .filter(|(low, high)| low < high && high - low < 1 << 31)
            .collect();
        let view = &mut self.views[point];
        view.acked = view.acked.max(acked);
        // The first block may be one that came twice (RFC 2883, section 4).
        let is_double = |block: &&(u64, u64)| {
            let within = blocks.get(1).filter(|b| b.0 <= block.0 && b.1 >= block.1);
            block.1 <= acked || within.is_some()
        };
        let double = blocks.first().filter(is_double);
        if let Some(double) = double {
            view.withdraw(*double);
        }
        for block in blocks.iter().skip(usize::from(double.is_some())) {
            view.sacked.add(block.0, block.1);
        }
        view.note_missing(acked, &blocks[usize::from(double.is_some())..]);
    }

    /// Judges what waits at `point` since before `until_ns`.
    pub(super) fn expire(&mut self, point: usize, until_ns: u64, other: Running, room: &mut Room) {
        let old = |c: &Copy| c.time_ns < until_ns;
        let view = &mut self.views[point];
        let keys = |map: &BTreeMap<(u64, u32), Copy>| {
            let old = map.iter().filter(|(_, c)| old(c));
            old.map(|(key, _)| *key).collect::<Vec<_>>()
        };
        let (data, control) = (keys(&view.pending), keys(&view.control));
        room.copies += data.len() + control.len();
        for key in control {
            let Some(copy) = self.views[point].control.remove(&key) else {
                continue;
            };
            if self.is_covered(point, &copy, other) {
                self.views[point].control_vanished += 1;
            }
        }
        for key in data {
            if let Some(copy) = self.views[point].pending.remove(&key) {
                self.judge(point, &copy, other, room);
            }
        }
    }

    fn take_control(
        &mut self,
        point: usize,
        number: u64,
        mut copy: Copy,
        room: &mut Room,
    ) -> Option<(u64, u64)> {
        let strict = self.ids_kept >= IDS_SURE;
        let other = &mut self.views[1 - point];
        let alike = other.control.range((number, 0)..=(number, u32::MAX));
        let best = alike
            .filter(|(_, c)| !strict || c.id == copy.id || c.id == 0 || copy.id == 0)
            .min_by_key(|(key, c)| (c.id != copy.id, key.1));
        if let Some(key) = best.map(|(key, _)| *key) {
            let found = other.control.remove(&key)?;
            room.copies += 1;
            other.matched += 1;
            self.views[point].matched += 1;
            return Some(self.passed(point, &copy, &found));
        }
        self.serial = self.serial.wrapping_add(1);
        copy.left.clear();
        if room.take_copy(self.views[point].control.len()) {
            self.views[point]
                .control
                .insert((number, self.serial), copy);
        }
        None
    }

    fn take_data(&mut self, point: usize, mut copy: Copy, room: &mut Room) -> Option<(u64, u64)> {
        copy.note = self.look_back(point, &copy, room);
        let mut sample = None;
        for key in self.alike(1 - point, &copy) {
            let [own, other] = self.two(point);
            let Some(found) = other.pending.get_mut(&key) else {
                continue;
            };
            let pieces = common(&copy.left, &found.left);
            if pieces.is_empty() {
                continue;
            }
            for &(start, end) in &pieces {
                take_out(&mut copy.left, start, end);
                take_out(&mut found.left, start, end);
            }
            other.matched += u64::from(!found.has_match);
            own.matched += u64::from(!copy.has_match);
            copy.has_match = true;
            found.has_match = true;
            let found = found.clone();
            if found.left.is_empty() {
                self.views[1 - point].pending.remove(&key);
                room.copies += 1;
            }
            if copy.start == found.start && pieces[0].0 == copy.start {
                let times = self.passed(point, &copy, &found);
                sample.get_or_insert(times);
            }
            self.tell(point, &copy, &found, &pieces);
            if copy.left.is_empty() {
                break;
            }
        }
        if !copy.left.is_empty() {
            self.wait(point, copy, room);
        }
        sample
    }

    /// What this point can tell of a packet by itself: bytes that it had not seen when later ones passed,
    /// and bytes that it sees once more. Returns the line that it made.
    fn look_back(&mut self, point: usize, copy: &Copy, room: &mut Room) -> Option<usize> {
        let segment_bytes = self.segment_bytes();
        let view = &mut self.views[point];
        let (high, first) = (view.high, view.high == 0);
        let mut note = None;
        for (start, end, known) in view.seen.parts(copy.start, copy.end) {
            let count = Count::of(end - start, segment_bytes);
            let is_missing = view.missing.range(start..end).next().is_some();
            let has_it = view.acked >= end || view.sacked.holds(start, end);
            if known && (has_it || !is_missing) {
                // A receiver of packets out of order does not report all that it has.
                view.spurious.add(count);
            } else if known {
                view.behind.add(count);
                note = view.line(point, Place::After, copy, (start, end), count, room);
                if let Some(line) = note {
                    view.open.push_back((start, end, line));
                    if view.open.len() > OPEN_MAX {
                        view.open.pop_front();
                    }
                }
            } else if !first && start < high && view.was_sent_again(copy, start) {
                let count = Count::of(end.min(high) - start, segment_bytes);
                view.filled.add(count);
                note = view.line(point, Place::Before, copy, (start, end), count, room);
            }
        }
        if !first && copy.start > high {
            view.gaps.push_back(Gap {
                start: high,
                end: copy.start,
                time_ns: copy.time_ns,
                stamp: copy.stamp,
                id: copy.id,
            });
            if view.gaps.len() > GAPS_MAX {
                view.gaps.pop_front();
            }
        }
        while let Some(&byte) = view.missing.range(copy.start..copy.end).next() {
            view.missing.remove(&byte);
        }
        view.seen.add(copy.start, copy.end);
        view.high = high.max(copy.end);
        note
    }

    /// Copies at `point` that may be this one, the likeliest first.
    fn alike(&self, point: usize, copy: &Copy) -> Vec<(u64, u32)> {
        let strict = self.ids_kept >= IDS_SURE;
        let lowest = copy.start.saturating_sub(self.longest);
        let near = self.views[point].pending.range((lowest, 0)..(copy.end, 0));
        let may_be = |c: &Copy| {
            let stamps = c.stamp.is_none() || copy.stamp.is_none() || c.stamp == copy.stamp;
            let ids = c.start != copy.start || c.id == copy.id || c.id == 0 || copy.id == 0;
            c.end > copy.start && stamps && (ids || !strict)
        };
        let mut found: Vec<_> = near
            .filter(|(_, c)| may_be(c))
            .map(|(key, c)| {
                let apart = match point {
                    0 => super::apart_ns(c.time_ns, copy.time_ns),
                    _ => super::apart_ns(copy.time_ns, c.time_ns),
                };
                let unusual = self.usual_ns.map_or(0, |usual| apart.abs_diff(usual));
                let other_id = c.start == copy.start && c.id != copy.id;
                (other_id, unusual, *key)
            })
            .collect();
        found.sort_unstable();
        found.truncate(ALIKE_MAX);
        found.into_iter().map(|f| f.2).collect()
    }

    /// The view of `point`, and the other one.
    const fn two(&mut self, point: usize) -> [&mut View; 2] {
        let [near, far] = &mut self.views;
        if point == 0 { [near, far] } else { [far, near] }
    }

    /// Both points had this one: their times, and what is to be learnt for the next.
    fn passed(&mut self, point: usize, copy: &Copy, other: &Copy) -> (u64, u64) {
        let times = match point {
            0 => (copy.time_ns, other.time_ns),
            _ => (other.time_ns, copy.time_ns),
        };
        let apart = super::apart_ns(times.0, times.1);
        if self
            .usual_ns
            .is_some_and(|usual| usual.abs_diff(apart) > JUMP_NS)
        {
            self.spread_ns = (apart, apart);
        }
        self.usual_ns = Some(apart);
        self.spread_ns = (self.spread_ns.0.min(apart), self.spread_ns.1.max(apart));
        if copy.id != 0 && other.id != 0 {
            self.ids_kept = match copy.id == other.id {
                true => self.ids_kept.saturating_add(1),
                false => self.ids_kept / 2,
            };
        }
        times
    }

    /// Lines and earlier copies learn the frames of a packet that both points had.
    fn tell(&mut self, point: usize, copy: &Copy, other: &Copy, pieces: &[(u64, u64)]) {
        let mut frames = [copy.frame; 2];
        frames[1 - point] = other.frame;
        for (at, own) in [(point, copy), (1 - point, other)] {
            let line = own.note.and_then(|n| self.views[at].lines.get_mut(n));
            if let Some(line) = line {
                line.lost.frames[1 - at].get_or_insert(frames[1 - at]);
            }
            for &(start, end) in pieces {
                let lowest = start.saturating_sub(self.longest);
                let earlier = self.views[at].pending.range_mut((lowest, 0)..(end, 0));
                for (_, c) in earlier {
                    if c.end > start && c.frame < frames[at] {
                        c.repeat.get_or_insert(frames);
                    }
                }
            }
        }
    }

    fn wait(&mut self, point: usize, copy: Copy, room: &mut Room) {
        self.serial = self.serial.wrapping_add(1);
        let segment_bytes = self.segment_bytes();
        let view = &mut self.views[point];
        if !room.take_copy(view.pending.len()) {
            // The lowest bytes have waited longest.
            let Some((_, gone)) = view.pending.pop_first() else {
                view.unjudged
                    .add(Count::of(copy.end - copy.start, segment_bytes));
                return;
            };
            for (start, end) in gone.left {
                view.unjudged.add(Count::of(end - start, segment_bytes));
            }
        }
        view.pending.insert((copy.start, self.serial), copy);
    }

    /// What became of bytes that only `point` saw.
    fn judge(&mut self, point: usize, copy: &Copy, other: Running, room: &mut Room) {
        let segment_bytes = self.segment_bytes();
        let covered = self.is_covered(point, copy, other);
        for &(start, end) in &copy.left {
            let [acked, sacked] = [
                self.views.iter().any(|v| v.acked >= end),
                self.views.iter().any(|v| v.sacked.holds(start, end)),
            ];
            for (start, end, came) in self.views[1 - point].seen.parts(start, end) {
                let count = Count::of(end - start, segment_bytes);
                let view = &mut self.views[point];
                if !covered {
                    view.unjudged.add(count);
                } else if !came && (acked || sacked) {
                    view.unseen.add(count);
                } else {
                    view.vanished.add(count);
                    view.line(point, Place::Between, copy, (start, end), count, room);
                }
            }
        }
    }

    /// Whether the other capture ran when this would have come there.
    fn is_covered(&self, point: usize, copy: &Copy, other: Running) -> bool {
        let due = copy.due_ns.or_else(|| self.due_ns(point, copy.time_ns));
        let Some(due) = due else {
            return false;
        };
        let slack = self
            .spread_ns
            .1
            .saturating_sub(self.spread_ns.0)
            .unsigned_abs();
        let ends = other
            .ends_ns
            .is_none_or(|ends| due.saturating_add(slack) <= ends);
        // Where a later copy came through, this one would have, too.
        due.saturating_sub(slack) >= other.begins_ns && (ends || copy.repeat.is_some())
    }

    /// When the other point has what this one saw at a time, as long as packets usually take.
    fn due_ns(&self, point: usize, time_ns: u64) -> Option<u64> {
        let usual = self.usual_ns?;
        time_ns.checked_add_signed(if point == 0 {
            usual
        } else {
            usual.saturating_neg()
        })
    }

    /// A sequence number as a place in the stream.
    fn place(&self, sequence: u32) -> u64 {
        let reference = self.reference.unwrap_or_else(|| BASE + u64::from(sequence));
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "the low half is the sequence number; its distance is signed (RFC 9293, 3.4)"
        )]
        let ahead = sequence.wrapping_sub(reference as u32) as i32;
        reference.saturating_add_signed(i64::from(ahead))
    }

    /// Counts sizes of payload, so that the commonest is among those kept (Misra and Gries).
    fn note_size(&mut self, bytes: u32) {
        if bytes > SEGMENT_BYTES_MAX {
            return;
        }
        if let Some(known) = self.sizes.iter_mut().find(|s| s.0 == bytes) {
            known.1 = known.1.saturating_add(1);
        } else if let Some(free) = self.sizes.iter_mut().find(|s| s.1 == 0) {
            *free = (bytes, 1);
        } else {
            for size in &mut self.sizes {
                size.1 -= 1;
            }
        }
    }

    /// Payload of a full segment; 0 where nothing tells.
    fn segment_bytes(&self) -> u64 {
        let agreed = self.mss[0].zip(self.mss[1]).map(|(a, b)| {
            let options = if self.has_stamps { STAMP_BYTES } else { 0 };
            u32::from(a.min(b)).saturating_sub(options)
        });
        let seen = |bytes: &u32| self.sizes.iter().any(|s| s.0 == *bytes && s.1 > 0);
        if let Some(agreed) = agreed.filter(|a| self.sizes.iter().all(|s| s.1 == 0) || seen(a)) {
            return u64::from(agreed);
        }
        let commonest = self.sizes.iter().max_by_key(|s| s.1);
        let commonest = commonest.filter(|s| s.1 > 0).map_or(0, |s| s.0);
        // Many small writes say nothing of what a super-packet is cut into.
        let full = commonest.max(SEGMENT_BYTES_MIN);
        u64::from(agreed.map_or(full, |a| a.min(full)))
    }
}

impl View {
    /// The same packet once more, as captures of two interfaces and networks that double have it: a host
    /// that sends again counts its packets on.
    fn is_duplicate(&mut self, number: u64, copy: &Copy) -> bool {
        let again = self.recent.iter().any(|r| {
            let within = if copy.id == 0 {
                DUPLICATE_NS
            } else {
                DUPLICATE_WITH_ID_NS
            };
            let soon = copy.time_ns.abs_diff(r.time_ns) < within;
            r.key == number && r.id == copy.id && soon
        });
        if !again {
            self.recent.push_back(Recent {
                key: number,
                id: copy.id,
                time_ns: copy.time_ns,
            });
            if self.recent.len() > RECENT_MAX {
                self.recent.pop_front();
            }
        }
        again
    }

    /// Whether a packet that fills a hole was sent after the one that left it: by its stamp, else by
    /// its number, else by the time that it took.
    fn was_sent_again(&self, copy: &Copy, start: u64) -> bool {
        let gap = self.gaps.iter().find(|g| g.start <= start && start < g.end);
        let Some(gap) = gap else { return true };
        #[allow(clippy::cast_possible_wrap, reason = "both count round")]
        let stamps = copy
            .stamp
            .zip(gap.stamp)
            .map(|(a, b)| a.wrapping_sub(b) as i32);
        #[allow(clippy::cast_possible_wrap, reason = "both count round")]
        let ids = copy.id.wrapping_sub(gap.id) as i16;
        match (stamps, ids) {
            (Some(later), _) if later != 0 => later > 0,
            (_, later) if later != 0 && copy.id != 0 && gap.id != 0 => later > 0,
            _ => copy.time_ns.saturating_sub(gap.time_ns) > REORDERED_NS,
        }
    }

    /// Writes a loss down, as long as there is room.
    fn line(
        &mut self,
        point: usize,
        place: Place,
        copy: &Copy,
        (start, _): (u64, u64),
        count: Count,
        room: &mut Room,
    ) -> Option<usize> {
        if !room.take_line() {
            return None;
        }
        let mut frames = [None; 2];
        frames[point] = Some(copy.frame);
        #[allow(clippy::cast_possible_truncation, reason = "within a packet")]
        let skipped = (start - copy.start) as u32;
        self.lines.push(Line {
            lost: Lost {
                place,
                time_ns: copy.time_ns,
                sequence: copy.sequence.wrapping_add(skipped),
                bytes: count.bytes,
                segments: count.segments,
                frames,
                repeat: copy.repeat,
                reason: None,
                reason_segments: 0,
            },
            withdrawn: false,
        });
        Some(self.lines.len() - 1)
    }

    /// The receiver lacks the byte that it waits for, and those around what it has.
    fn note_missing(&mut self, acked: u64, blocks: &[(u64, u64)]) {
        self.missing = self.missing.split_off(&acked);
        for &(low, high) in blocks {
            while let Some(&byte) = self.missing.range(low..high).next() {
                self.missing.remove(&byte);
            }
        }
        let edges = blocks.iter().flat_map(|b| [b.0.saturating_sub(1), b.1]);
        for byte in edges.chain([acked]) {
            if byte >= acked && byte < self.high {
                self.missing.insert(byte);
            }
        }
        while self.missing.len() > MISSING_MAX {
            self.missing.pop_first();
        }
    }

    /// The receiver says that it has these bytes twice: it needed no second copy.
    fn withdraw(&mut self, (low, high): (u64, u64)) {
        for &(start, end, line) in self.open.iter().filter(|o| o.0 < high && o.1 > low) {
            let Some(line) = self.lines.get_mut(line).filter(|l| !l.withdrawn) else {
                continue;
            };
            line.withdrawn = true;
            let count = Count {
                segments: line.lost.segments,
                bytes: end - start,
            };
            self.behind.segments = self.behind.segments.saturating_sub(count.segments);
            self.behind.bytes = self.behind.bytes.saturating_sub(count.bytes);
            self.spurious.add(count);
        }
    }
}

/// What both lists have, in order.
fn common(one: &[(u64, u64)], two: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let pairs = one.iter().flat_map(|a| two.iter().map(move |b| (a, b)));
    pairs
        .map(|(a, b)| (a.0.max(b.0), a.1.min(b.1)))
        .filter(|r| r.0 < r.1)
        .collect()
}

/// What a packet says, but for what hops change.
fn fingerprint(segment: &Segment) -> u64 {
    let mut hasher = DefaultHasher::new();
    segment.sequence.hash(&mut hasher);
    segment.acknowledgment.hash(&mut hasher);
    segment.payload_bytes.hash(&mut hasher);
    segment.window.hash(&mut hasher);
    segment.timestamps.hash(&mut hasher);
    for flag in [Flags::SYN, Flags::FIN, Flags::RST, Flags::ACK] {
        segment.flags.contains(flag).hash(&mut hasher);
    }
    segment.sack.as_slice().hash(&mut hasher);
    hasher.finish()
}

/// Where the first byte is put: half of all numbers lie before it.
const BASE: u64 = 1 << 40;
/// Longest packet that another is looked for in: BIG TCP's.
const LONGEST: u64 = 1 << 19;
/// Two segments of one super-packet, twice sent, and some.
const ALIKE_MAX: usize = 1_024;
/// Packets in a row whose IP identification came through before one with another counts as another.
const IDS_SURE: u32 = 16;
/// From one packet to the next no queue grows as much: a clock was set.
const JUMP_NS: u64 = 1_000_000_000;
const OPEN_MAX: usize = 256;
const MISSING_MAX: usize = 1_024;
const GAPS_MAX: usize = 256;
const RECENT_MAX: usize = 32;
/// A second copy without a number of its own (IPv6) is one of the network's, not of the sender's, if it
/// comes within this; no timeout or fast retransmission is as quick beyond a rack.
const DUPLICATE_NS: u64 = 200_000;
/// With one it may come later; some hosts give all packets the same.
const DUPLICATE_WITH_ID_NS: u64 = 100_000_000;
/// Without stamps and numbers a packet that comes this late was sent again; chosen.
const REORDERED_NS: u64 = 5_000_000;
/// Jumbo frames; what is longer is a super-packet.
const SEGMENT_BYTES_MAX: u32 = 9_216;
/// The least that every host takes (RFC 9293, section 3.7.1).
const SEGMENT_BYTES_MIN: u32 = 536;
/// Of the timestamps option with its padding (RFC 7323, appendix A).
const STAMP_BYTES: u32 = 12;
