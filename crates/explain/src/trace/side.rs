//! One side of a connection: the data that it sends and the ACKs that it gives.
//!
//! Sequence numbers go on past 2^32 here. What was seen and what was passed over is known exactly for
//! up to 32 holes. Bytes in flight are the highest sent less the highest acknowledged; SACKed ones
//! count as in flight.

use units::Duration;
use wire::segment::Segment;

use crate::trace::facts::SideFacts;
use crate::trace::histogram::Histogram;
use crate::trace::holes::Holes;
use crate::trace::limits::{Mark2, Path, Resent, Sender};
use crate::trace::number::{unwrap, whole};
use crate::trace::resend::{Case, Judged, Kind};
use crate::trace::round_trip::{OnTheWay, RoundTrip};
use crate::trace::silence::Silence;

/// What one side sends. What each packet needs comes first: with many connections memory is what
/// takes the time.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Side {
    /// One past the highest sequence number seen.
    pub(crate) next: u64,
    /// Highest number that the peer acknowledged.
    pub(crate) una: u64,
    /// As the last packet has it, scaled.
    pub(crate) window: u64,
    pub(crate) sender: Option<Box<Sender>>,
    /// Acknowledged since its sender was told.
    pub(crate) newly_acked: u64,
    pub(crate) last_data: u64,
    last_progress: u64,
    /// The last of the two before the present packet.
    silent_since: u64,
    flight_since: u64,
    flight_byte_ns: f64,
    /// Its data, cut to full segments.
    wire_segments: u64,
    /// The peer has SACKed up to here.
    sacked: u64,
    recover: u64,
    /// One past its FIN; zero without one.
    pub(crate) fin: u64,
    pub(crate) closed_since: Option<u64>,
    /// The last time that its window closed: since when and which frame, and until when.
    pub(crate) closed_before: Option<(Mark2, u64)>,
    /// Duplicate ACKs of the peer in a row.
    pub(crate) duplicates_in_row: u32,
    /// Payload of the last packet with any.
    pub(crate) last_payload: u32,
    pub(crate) full_seen: u32,
    pub(crate) full_count: u32,
    /// Payload of a full segment, as last estimated.
    pub(crate) segment_bytes: u32,
    /// Sequence numbers are known.
    pub(crate) known: bool,
    pub(crate) syn_seen: bool,
    pub(crate) syn_scale: Option<u8>,
    pub(crate) window_known: bool,
    pub(crate) has_timestamps: bool,
    pub(crate) sack_permitted: bool,
    /// A byte that probed a closed window.
    probing: bool,
    recovery: Option<Kind>,
    way: OnTheWay,
    pub(crate) facts: SideFacts,
    /// From the capture point to this side and back.
    pub(crate) trip: RoundTrip,
    pub(crate) windows: Histogram,
    holes: Holes,
    judged: Judged,
    first_data: u64,
    pub(crate) syn_time: u64,
    /// The last one before an answer.
    pub(crate) syn_last: u64,
    /// Largest payload that was sent and where it ends; zero once it came through.
    large: (u32, u64),
    pub(crate) silence: Silence,
    pub(crate) syn_sequence: u32,
}

/// One packet.
#[derive(Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) now: u64,
    pub(crate) frame: u64,
    pub(crate) segment: &'a Segment,
}

impl Side {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            known: false,
            next: 0,
            una: 0,
            fin: 0,
            sacked: 0,
            duplicates_in_row: 0,
            recovery: None,
            recover: 0,
            syn_time: 0,
            syn_sequence: 0,
            syn_scale: None,
            syn_seen: false,
            sack_permitted: false,
            has_timestamps: false,
            last_data: 0,
            last_progress: 0,
            silent_since: 0,
            last_payload: 0,
            syn_last: 0,
            silence: Silence::default(),
            large: (0, 0),
            window: 0,
            window_known: false,
            closed_since: None,
            closed_before: None,
            flight_since: 0,
            first_data: 0,
            newly_acked: 0,
            probing: false,
            wire_segments: 0,
            flight_byte_ns: 0.0,
            full_seen: 0,
            full_count: 0,
            segment_bytes: 0,
            holes: Holes::default(),
            judged: Judged::default(),
            way: OnTheWay::default(),
            windows: Histogram::new(0),
            trip: RoundTrip::new(),
            sender: None,
            facts: SideFacts::default(),
        }
    }
    /// Its sequence numbers begin here.
    pub(crate) fn begin(&mut self, sequence: u32) {
        self.known = true;
        self.next = (1 << 32) | u64::from(sequence);
        self.una = self.next;
    }

    /// One number of each line that most packets need.
    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        let facts = &self.facts;
        let scalars = self.next ^ self.fin ^ u64::from(self.full_seen);
        scalars ^ facts.packets ^ facts.flight_bytes_max ^ self.trip.fetch() ^ self.windows.fetch()
    }

    /// Memory that it takes beside itself; what holes and retransmissions take is left out, some
    /// kilobytes at most.
    pub(crate) fn more_bytes(&self) -> usize {
        self.way.bytes() + self.sender.as_deref().map_or(0, Sender::bytes)
    }

    /// One number of most of the other lines.
    pub(crate) fn fetch_all(&self) -> u64 {
        let facts = &self.facts;
        let counts = facts.duplicate_acks ^ facts.fins ^ facts.resets ^ facts.dsacks;
        let more = facts.retransmissions.fast.bytes ^ facts.rtt_ack_ns.max ^ facts.rounds.gaps;
        let times = facts.zero_window_time.as_ns() ^ facts.idle_time.as_ns();
        let rest = self.syn_time ^ self.windows.fetch_all() ^ self.trip.by_ack.fetch_all();
        counts ^ more ^ times ^ rest ^ self.trip.by_timestamp.fetch_all()
    }

    #[inline]
    pub(crate) fn flight(&self) -> u64 {
        self.next.saturating_sub(self.una)
    }

    /// It sent a packet.
    #[inline]
    pub(crate) fn on_own(&mut self, packet: Packet<'_>) {
        let segment = packet.segment;
        let segments = match segment.payload_bytes > self.segment_bytes {
            true => segment.payload_bytes.div_ceil(self.segment_bytes.max(1)),
            false => 1,
        };
        let now = (packet.now, packet.frame);
        self.silence.on_own(now, segment, segments);
    }

    /// Its window has opened again.
    pub(crate) fn close_window(&mut self, since: u64, now: u64) {
        self.closed_since = None;
        if let Some((_, until)) = &mut self.closed_before {
            *until = now;
        }
        let time = Duration::from_ns(now.saturating_sub(since));
        self.facts.zero_window_time = self.facts.zero_window_time + time;
    }

    /// This side's ACK has SACK blocks about `sender`'s data.
    pub(crate) fn on_sack(&mut self, sender: &mut Self, ack: u64, segment: &Segment) {
        let blocks = segment.sack.as_slice();
        let range = |block: &(u32, u32)| {
            let left = unwrap(ack, block.0);
            (left, left + u64::from(block.1.wrapping_sub(block.0)))
        };
        for (i, block) in blocks.iter().enumerate() {
            let (left, right) = range(block);
            if right.wrapping_sub(left) > SACK_BYTES_MAX {
                continue;
            }
            // RFC 2883 section 4: below the ACK, or within the block behind it.
            let within = blocks.get(1).map(range);
            let within = within.is_some_and(|(l, r)| l <= left && right <= r);
            if i == 0 && (right <= ack || within) {
                self.facts.dsacks += 1;
                sender.facts.retransmissions.spurious += sender.judged.on_dsack(left, right);
            } else {
                self.facts.sack_blocks += 1;
                let right = right.min(sender.next);
                // The last segment, which was the last packet, too, when it comes through for the first time.
                if right == sender.next && sender.sacked < right {
                    let last = sender.last_payload.min(sender.segment_bytes);
                    let passed = &mut sender.facts.passed_bytes_max;
                    *passed = (*passed).max(last);
                }
                sender.sacked = sender.sacked.max(right);
            }
        }
    }

    /// How far its data are known to have come.
    pub(crate) const fn delivered(&self) -> (u64, u64) {
        (self.una, self.sacked)
    }

    /// This side's ACK covers more of `sender`'s data than any before; a round trip, if it gives
    /// one.
    pub(crate) fn on_progress(
        &mut self,
        sender: &mut Self,
        ack: u64,
        packet: Packet<'_>,
    ) -> Option<u64> {
        let now = packet.now;
        let clean = sender.duplicates_in_row == 0
            && sender.sacked <= sender.una
            && sender.una >= sender.recover;
        if ack > sender.next {
            sender.on_unseen(ack, packet);
        }
        let passed = sender.way.take(ack);
        sender.add_flight(now);
        let fin = u64::from(sender.una < sender.fin && sender.fin <= ack);
        let bytes = ack - sender.una - fin;
        sender.facts.acked_bytes += bytes;
        sender.newly_acked += bytes;
        sender.una = ack;
        if sender.large.1 != 0 && sender.large.1 <= ack {
            sender.facts.passed_bytes_max = sender.large.0;
            sender.large.1 = 0;
        }
        sender.last_progress = now;
        sender.duplicates_in_row = 0;
        if !sender.holes.is_empty() {
            sender.facts.unseen_bytes += sender.holes.acknowledge(ack, now);
        }
        let echo = packet.segment.timestamps.map(|t| t.1);
        sender.facts.retransmissions.spurious += sender.judged.on_ack(ack, echo);
        let ns = passed
            .filter(|_| clean)
            .map(|time| now.saturating_sub(time))?;
        self.trip.add_by_ack(ns, now);
        Some(ns)
    }

    /// The peer acknowledges what was not seen: a probe's byte, or what the capture missed.
    fn on_unseen(&mut self, ack: u64, packet: Packet<'_>) {
        if self.facts.data_segments == 0 && !self.syn_seen {
            // Data of before the capture.
        } else if self.probing && ack == self.next + 1 {
            self.facts.unique_bytes += 1;
            self.facts.repeated_bytes -= 1;
        } else {
            let range = (self.next, ack);
            let bare = Segment::default();
            let segments = self.facts.data_segments;
            self.facts.unseen_bytes += self.holes.open(range, packet.now, segments, &bare);
        }
        self.probing = false;
        self.next = ack;
    }

    /// Whether a segment of one byte probes a closed window or a silent peer.
    pub(crate) fn is_probe(&mut self, peer: &Self, start: u64) -> bool {
        let closed = peer.closed_since.is_some();
        let old = start + 1 == self.next && self.una == self.next;
        let new = start == self.next && closed;
        if !old && !new {
            return false;
        }
        if closed {
            self.facts.window_probes += 1;
        } else {
            self.facts.keep_alives += 1;
        }
        self.probing |= new;
        self.facts.repeated_bytes += 1;
        true
    }

    /// Sizes of its payloads.
    #[inline]
    pub(crate) fn on_payload(&mut self, payload: u32, segment_bytes: u64) {
        if payload == self.full_seen {
            self.full_count = self.full_count.saturating_add(1);
        } else if payload > self.full_seen && payload <= SEGMENT_BYTES_MAX {
            (self.full_seen, self.full_count) = (payload, 1);
        }
        self.facts.payload_bytes_max = self.facts.payload_bytes_max.max(payload);
        self.last_payload = payload;
        if u64::from(payload) > segment_bytes {
            self.facts.super_packets += 1;
            self.wire_segments += u64::from(payload).div_ceil(segment_bytes.max(1));
        } else {
            self.wire_segments += u64::from(payload > 0);
        }
    }

    /// Whether it was idle until now, when it sends again.
    #[inline]
    pub(crate) fn on_idle(&mut self, rtt: u64, now: u64) {
        if self.flight() > 0 || self.last_data == 0 {
            return;
        }
        let gap = now.saturating_sub(self.last_data.max(self.last_progress));
        if gap > rtt.max(IDLE_NS_MIN) {
            let gap = Duration::from_ns(gap);
            self.facts.idle_periods += 1;
            self.facts.idle_time = self.facts.idle_time + gap;
            self.facts.idle_time_max = self.facts.idle_time_max.max(gap);
        }
    }

    /// Payload or FIN at these sequence numbers. `None` for what says nothing of its sender's state:
    /// late originals, doubled packets; else what made it send once more, if it did.
    pub(crate) fn on_range(
        &mut self,
        (start, end): (u64, u64),
        payload: u64,
        rtt: (u64, u64),
        packet: Packet<'_>,
    ) -> Option<Option<Resent>> {
        let first = self.facts.data_segments == 0 && !self.syn_seen;
        if start >= self.next || (first && self.una <= start) {
            self.on_new((start, end), payload, first, packet);
            return Some(None);
        }
        let fresh = end.saturating_sub(self.next);
        let filled = match self.holes.is_empty() {
            true => None,
            false => self.holes.fill(start, end.min(self.next)),
        };
        let new = fresh
            .saturating_add(filled.map_or(0, |f| f.bytes))
            .min(payload);
        self.facts.unique_bytes += new;
        self.facts.repeated_bytes += payload - new;
        self.note(packet);
        if payload == 0 {
            return None;
        }
        if let Some(filled) = filled
            && filled
                .hole
                .is_original(packet.segment, packet.now, (rtt.0 > 0).then_some(rtt.0))
        {
            self.on_late(filled.hole.time, filled.hole.segments, packet.now);
            self.advance(end, packet.now);
            return None;
        }
        let below = payload.saturating_sub(fresh);
        let kind = self.on_resent((start, end), below, filled.is_some(), rtt, packet);
        self.advance(end, packet.now);
        self.recover = self.recover.max(self.next);
        let timer = matches!(kind, Kind::Timeout | Kind::TailProbe);
        Some(Some(if timer { Resent::Timer } else { Resent::Answer }))
    }

    /// What it has said when the connection ends at `now`.
    pub(crate) fn close(&mut self, now: u64) {
        self.add_flight(now);
        if let Some(since) = self.closed_since {
            self.close_window(since, now);
        }
        self.facts.unseen_bytes += self.holes.acknowledge(self.una, u64::MAX);
        self.facts.unacked_bytes = self.flight();
    }

    pub(crate) fn wire_segments(&self) -> u64 {
        self.wire_segments
    }

    /// All that is known of it; what is left behind means nothing.
    pub(crate) fn take_facts(&mut self, path: &Path) -> SideFacts {
        let mut facts = std::mem::take(&mut self.facts);
        facts.segment_bytes = self.segment_bytes;
        facts.window_bytes = self.windows.spread();
        facts.rtt_ack_ns = self.trip.by_ack.spread();
        facts.rtt_timestamp_ns = self.trip.by_timestamp.spread();
        let span = path.now.saturating_sub(self.first_data);
        facts.flight_bytes_mean = whole(self.flight_byte_ns / span.max(1) as f64);
        if let Some(sender) = self.sender.take() {
            let (limits, rounds, slices) = sender.finish(path);
            facts.limits = limits;
            facts.rounds = rounds;
            facts.slices = Some(slices);
        }
        facts
    }

    fn on_new(&mut self, (start, end): (u64, u64), payload: u64, first: bool, packet: Packet<'_>) {
        if start > self.next && !first {
            let segments = self.facts.data_segments;
            let range = (self.next, start);
            let lost = self.holes.open(range, packet.now, segments, packet.segment);
            self.facts.unseen_bytes += lost;
        }
        self.facts.unique_bytes += payload;
        self.facts.data_segments += u64::from(payload > 0);
        let size = packet.segment.payload_bytes.min(self.segment_bytes.max(1));
        if size > self.facts.tried_bytes_max {
            self.facts.tried_bytes_max = size;
            self.large = (size, end);
        }
        self.note(packet);
        self.advance(end, packet.now);
        self.way.push(end, packet.now);
        self.probing = false;
    }

    /// A segment that was overtaken.
    fn on_late(&mut self, hole_time: u64, hole_segments: u64, now: u64) {
        let facts = &mut self.facts;
        let overtaken = facts.data_segments.saturating_sub(hole_segments);
        facts.data_segments += 1;
        facts.out_of_order += 1;
        facts.reordering_segments_max = facts.reordering_segments_max.max(overtaken);
        let late = Duration::from_ns(now.saturating_sub(hole_time));
        facts.reordering_time_max = facts.reordering_time_max.max(late);
    }

    fn on_resent(
        &mut self,
        (start, end): (u64, u64),
        bytes: u64,
        unseen: bool,
        rtt: (u64, u64),
        packet: Packet<'_>,
    ) -> Kind {
        let case = Case {
            recovery: self.recovery.filter(|_| self.una < self.recover),
            duplicate_acks: self.duplicates_in_row,
            sacked_above: self.sacked > start,
            last: end >= self.next,
            first: start <= self.una,
            silence: packet.now.saturating_sub(self.silent_since),
            rtt,
        };
        let kind = case.kind();
        self.recovery = matches!(kind, Kind::Fast | Kind::Timeout).then_some(kind);
        self.facts.data_segments += 1;
        let counts = &mut self.facts.retransmissions;
        match kind {
            Kind::Fast => counts.fast.add(bytes),
            Kind::Timeout => counts.timeout.add(bytes),
            Kind::TailProbe => counts.tail_probe.add(bytes),
            Kind::Other => counts.other.add(bytes),
        }
        if unseen {
            counts.original_unseen.add(bytes);
        }
        self.judged
            .push(start, end, packet.segment.timestamps.map(|t| t.0));
        self.way.clear();
        kind
    }

    #[inline]
    fn note(&mut self, packet: Packet<'_>) {
        if self.first_data == 0 {
            self.first_data = packet.now;
            self.flight_since = packet.now;
        }
        self.silent_since = self.last_data.max(self.last_progress);
        self.last_data = packet.now;
    }

    #[inline]
    fn advance(&mut self, end: u64, now: u64) {
        self.add_flight(now);
        self.next = self.next.max(end);
        self.facts.flight_bytes_max = self.facts.flight_bytes_max.max(self.flight());
    }

    #[inline]
    fn add_flight(&mut self, now: u64) {
        if self.first_data == 0 {
            // Nothing of its own was seen yet.
            return;
        }
        let time = now.saturating_sub(self.flight_since);
        self.flight_byte_ns += self.flight() as f64 * time as f64;
        self.flight_since = now;
    }
}

/// No window reaches as far.
const SACK_BYTES_MAX: u64 = 1 << 30;
/// Of 9,000-byte packets without options.
const SEGMENT_BYTES_MAX: u32 = 8_960;
/// An application that answers at once is not idle.
const IDLE_NS_MIN: u64 = 1_000_000;
