//! The analysis of one connection: packets in their order in, facts out.
//!
//! All is as seen at the capture point. Every number that a packet states is hostile: sequence
//! numbers far off those known are strays and change nothing.

use units::{Duration, Instant};
use wire::segment::Segment;
use wire::tcp::Flags;

use crate::trace::copies::Copies;
use crate::trace::facts::{CapturePoint, Connection, End, Mark, Setup, Start};
use crate::trace::limits::{Ack, Mark2, Path, Sender, Sent};
use crate::trace::number::{low32, unwrap};
use crate::trace::side::{Packet, Side};
use crate::trace::turns::{Moved, Turns};

/// A connection that is being analysed.
#[derive(Debug)]
pub(crate) struct Flow {
    first: Mark2,
    last: Mark2,
    packets: u64,
    /// Who sent the SYN without ACK.
    opener: Option<u8>,
    syn_ack: Option<u64>,
    /// When and by which frame the handshake was over; the first packet in mid-connection.
    made: Option<Mark2>,
    to_server: Option<u64>,
    to_client: Option<u64>,
    strays: u64,
    steps_back: u64,
    challenges: u64,
    turns: Turns,
    copies: Copies,
    sides: [Side; 2],
}

impl Flow {
    /// Inlined, so that it is made where it is to stay: copying it takes as long as three packets.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            first: (0, 0),
            last: (0, 0),
            packets: 0,
            opener: None,
            syn_ack: None,
            made: None,
            to_server: None,
            to_client: None,
            strays: 0,
            steps_back: 0,
            challenges: 0,
            turns: Turns::default(),
            copies: Copies::new(),
            sides: [Side::new(), Side::new()],
        }
    }

    /// Takes the next packet.
    pub(crate) fn take(&mut self, time: u64, frame: u64, segment: &Segment) {
        if self.packets == 0 {
            self.first = (time, frame);
        }
        self.packets += 1;
        self.steps_back += u64::from(time < self.last.0);
        let packet = Packet {
            now: time.max(self.last.0),
            frame,
            segment,
        };
        let s = usize::from(segment.from & 1);
        let old = self.is_old(s, segment);
        if self.copies.is_copy(segment, packet.now, old) {
            self.sides[s].facts.packets += 1;
            self.sides[s].facts.duplicates += 1;
            return;
        }
        self.last = (packet.now, frame);
        self.count(s, segment);
        if segment.flags.contains(Flags::RST) {
            self.heard(s, packet, true);
            return;
        }
        if self.is_challenge(s, segment) {
            self.challenges += 1;
            return;
        }
        if !self.is_near(s, segment) {
            self.strays += 1;
            return;
        }
        self.sides[s].facts.payload_bytes += u64::from(segment.payload_bytes);
        if segment.flags.contains(Flags::SYN) {
            self.on_syn(s, packet);
        } else if self.made.is_none() {
            self.on_made(s, packet);
        }
        if self.packets <= SEGMENT_SURE || self.packets.is_multiple_of(SEGMENT_SURE) {
            self.set_segment_bytes();
        }
        self.pass(s, packet);
    }

    /// A packet that belongs to the connection.
    #[inline(always)]
    fn pass(&mut self, s: usize, packet: Packet<'_>) {
        let segment = packet.segment;
        let paths = self.settle(packet);
        let brings = segment.payload_bytes > 0 || segment.flags.contains(Flags::FIN);
        // What the packet answers comes before what it brings.
        let idle = |sender: &Sender| sender.is_idle();
        let turn = brings && self.sides[s].sender.as_deref().is_none_or(idle);
        let before = self.sides[1 - s].delivered();
        if segment.flags.contains(Flags::ACK) {
            self.on_ack(s, packet, paths[1 - s]);
        }
        let acked = self.sides[1 - s].delivered() > before;
        let (had, was_idle) = (
            self.sides[s].facts.unique_bytes,
            self.sides[s].flight() == 0,
        );
        if brings || !self.sides[s].known {
            self.on_data(s, packet, paths[s]);
        } else if segment.sequence == low32(self.sides[s].next).wrapping_sub(1)
            && self.sides[s].una == self.sides[s].next
            && !segment.flags.contains(Flags::SYN)
        {
            self.on_bare_probe(s);
        }
        if let Some((value, echo)) = segment.timestamps {
            self.on_timestamps(s, value, echo, turn, packet);
        }
        let fresh = self.sides[s].facts.unique_bytes - had;
        let mut absent = 0;
        if segment.payload_bytes > 0
            && self.sides[s].silence.is_long(packet.now)
            && !self.sides[1 - s].silence.is_waiting()
        {
            absent = self.absence(s, packet, fresh == 0);
        }
        self.heard(s, packet, acked);
        if segment.payload_bytes > 0 {
            self.on_message(s, packet, fresh, was_idle, absent);
        }
        self.sides[s].on_own(packet);
    }

    /// Data of side `s`, of which `fresh` was not seen before, go on with its message or begin one.
    #[inline]
    fn on_message(
        &mut self,
        s: usize,
        packet: Packet<'_>,
        fresh: u64,
        was_idle: bool,
        absent: u64,
    ) {
        let Packet { now, frame, .. } = packet;
        self.sides[s].silence.on_data((now, frame));
        let (side, peer) = (&self.sides[s], &self.sides[1 - s]);
        let made = self.made.map_or(self.first.0, |made| made.0);
        self.turns.on_data(s, now, fresh, was_idle, || Moved {
            frame,
            answers: peer.flight() == 0,
            made,
            behind: side.trip.min().unwrap_or(0),
            absent,
            is_short: packet.segment.flags.contains(Flags::PSH)
                && packet.segment.payload_bytes < side.segment_bytes,
            closed: peer
                .closed_before
                .map_or((0, 0), |(since, until)| (since.0, until)),
        });
    }

    /// Side `s` is there: its peer no longer waits for a word.
    #[inline]
    fn heard(&mut self, s: usize, packet: Packet<'_>, acked: bool) {
        // Who sends of its own and acknowledges nothing new has not got what waits to be acknowledged.
        let own = packet.segment.flags.contains(Flags::FIN) || packet.segment.payload_bytes > 0;
        let [side, peer] = pair(&mut self.sides, s);
        let waits = peer.flight() > 0 && side.closed_since.is_none();
        if own && waits && !acked {
            return;
        }
        let trip = &side.trip;
        let rtt = || {
            let (smoothed, variation) = trip.smoothed();
            smoothed.saturating_add(variation)
        };
        peer.silence.on_peer((packet.now, packet.frame), rtt, waits);
    }

    /// For how long side `s`, from which data come now, was silent though it had more to send.
    #[cold]
    fn absence(&mut self, s: usize, packet: Packet<'_>, repeats: bool) -> u64 {
        let [side, peer] = pair(&mut self.sides, s);
        let shut = peer.closed_since.is_some()
            || peer
                .closed_before
                .is_some_and(|(_, until)| !side.silence.was_seen_after(until));
        if shut {
            return 0;
        }
        let (smoothed, variation) = side.trip.smoothed();
        let shows = (side.facts.pushes > 0, repeats);
        let rtt = smoothed.saturating_add(variation);
        let now = (packet.now, packet.frame);
        side.silence.absence(now, packet.segment.ip_id, rtt, shows)
    }

    /// Whether its numbers tell nothing new.
    #[inline]
    fn is_old(&self, s: usize, segment: &Segment) -> bool {
        let before = |a: u32, b: u32| a.wrapping_sub(b).cast_signed() < 0;
        let (side, peer) = (&self.sides[s], &self.sides[1 - s]);
        if segment.flags.bits() & UNCOMMON_ENDS != 0 {
            let facts = &side.facts;
            return facts.syns + facts.fins + facts.resets > 0;
        }
        if segment.payload_bytes > 0 {
            return before(segment.sequence, low32(side.next));
        }
        !before(low32(peer.una), segment.acknowledgment)
    }

    /// An ACK of an earlier connection's numbers, in answer to a SYN.
    fn is_challenge(&self, s: usize, segment: &Segment) -> bool {
        let (side, peer) = (&self.sides[s], &self.sides[1 - s]);
        self.made.is_none()
            && peer.syn_seen
            && !side.syn_seen
            && !segment.flags.contains(Flags::SYN)
            && segment.acknowledgment != peer.syn_sequence.wrapping_add(1)
    }

    /// What is known at the end; what is left behind means nothing.
    pub(crate) fn finish(&mut self, end: End) -> Connection {
        let [zero, one] = &self.sides;
        let both = |f: fn(&Side) -> bool| f(zero) && f(one);
        let (sack, timestamps) = (both(|s| s.sack_permitted), both(|s| s.has_timestamps));
        let now = self.last.0;
        let paths = [self.path(0, (now, 0)), self.path(1, (now, 0))];
        let trips = [self.sides[0].trip.min(), self.sides[1].trip.min()];
        self.set_segment_bytes();
        for s in 0..2 {
            self.sides[s].close(now);
        }
        let wire_segments = [self.sides[0].wire_segments(), self.sides[1].wire_segments()];
        let start = self.opener.map_or(Start::Midway, |by| Start::Syn { by });
        let turns = self.turns.finish();
        let last = self.last;
        let setup = self.setup();
        let apart = Duration::from_ns(self.copies.distance_max);
        let silences = std::array::from_fn(|s| {
            let (smoothed, variation) = self.sides[1 - s].trip.smoothed();
            let rtt = smoothed.saturating_add(variation);
            let (side, peer) = (&self.sides[s], &self.sides[1 - s]);
            let open = side.flight() == 0
                && side.fin == 0
                && side.facts.resets + peer.facts.resets == 0
                && peer.closed_since.is_none();
            let pushes = side.facts.pushes > 0;
            self.sides[s].silence.finish(last, rtt, (open, pushes))
        });
        let sides = std::array::from_fn(|s| {
            let mut facts = self.sides[s].take_facts(&paths[s]);
            facts.duplicates_apart_max = apart;
            facts.rtt_ahead = trips[1 - s].map(Duration::from_ns);
            facts.rtt_behind = trips[s].map(Duration::from_ns);
            facts.capture_point = capture_point(trips[1 - s], trips[s]);
            let progress = facts.progress_acks.max(1) as f64;
            facts.wire_segments = wire_segments[s];
            facts.segments_per_ack = wire_segments[1 - s] as f64 / progress;
            facts
        });
        let mark = |m: Mark2| Mark {
            time: Instant::from_ns(m.0),
            frame: m.1,
        };
        Connection {
            first: mark(self.first),
            last: mark(self.last),
            start,
            end,
            setup,
            handshake_to_server: self.to_server.map(Duration::from_ns),
            handshake_to_client: self.to_client.map(Duration::from_ns),
            sack,
            timestamps,
            complete: true,
            sides,
            silences,
            turns,
            strays: self.strays,
            time_steps_back: self.steps_back,
            flow: wire::segment::FlowKey::default(),
            interface: 0,
        }
    }

    fn setup(&self) -> Setup {
        let opener = self.opener.map(|by| &self.sides[usize::from(by & 1)]);
        let made = self.made.filter(|_| self.syn_ack.is_some());
        let since = |from: u64| made.map(|made| Duration::from_ns(made.0.saturating_sub(from)));
        Setup {
            time: opener.and_then(|side| since(side.syn_time)),
            last_try: opener.and_then(|side| since(side.syn_last)),
            challenges: self.challenges,
        }
    }

    /// How many it has taken.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let [zero, one] = &self.sides;
        size_of::<Self>()
            + self.copies.more_bytes()
            + self.turns.more_bytes()
            + zero.more_bytes()
            + one.more_bytes()
    }

    /// Reads a little of all that the next packets will need; see
    /// [`crate::trace::Tracker::take_all`].
    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        let [zero, one] = &self.sides;
        let sender = zero.sender.as_deref().or(one.sender.as_deref());
        let all = self.packets ^ zero.fetch() ^ one.fetch();
        all ^ sender.map_or(0, Sender::fetch)
    }

    /// The same of all that its end will need.
    pub(crate) fn fetch_all(&self) -> u64 {
        let sides = self.sides.iter();
        self.fetch() ^ sides.fold(0, |all, side| all ^ side.fetch_all())
    }

    fn count(&mut self, s: usize, segment: &Segment) {
        let facts = &mut self.sides[s].facts;
        facts.packets += 1;
        let flags = segment.flags;
        let has = |flag| u64::from(flags.contains(flag));
        facts.pushes += has(Flags::PSH);
        facts.ect += u64::from(matches!(segment.ecn, 1 | 2));
        facts.ce += u64::from(segment.ecn == 3);
        if flags.bits() & UNCOMMON != 0 {
            facts.syns += has(Flags::SYN);
            facts.fins += has(Flags::FIN);
            facts.resets += has(Flags::RST);
            if !flags.contains(Flags::SYN) {
                facts.ece += has(Flags::ECE);
                facts.cwr += has(Flags::CWR);
            }
        }
    }

    /// Whether its numbers are such as a TCP of this connection can have.
    fn is_near(&self, s: usize, segment: &Segment) -> bool {
        let near = |side: &Side, number: u32| {
            !side.known || unwrap(side.next, number).abs_diff(side.next) < STRAY
        };
        if segment.flags.contains(Flags::SYN) {
            return !self.sides[s].known || segment.sequence == self.sides[s].syn_sequence;
        }
        near(&self.sides[s], segment.sequence)
            && (!segment.flags.contains(Flags::ACK)
                || near(&self.sides[1 - s], segment.acknowledgment))
    }

    fn on_syn(&mut self, s: usize, packet: Packet<'_>) {
        let segment = packet.segment;
        let answer = segment.flags.contains(Flags::ACK);
        let side = &mut self.sides[s];
        if side.syn_seen {
            side.facts.syns_repeated += 1;
            if self.syn_ack.is_none() {
                side.syn_last = packet.now;
            }
            return;
        }
        side.syn_seen = true;
        side.syn_last = packet.now;
        side.syn_time = packet.now;
        side.syn_sequence = segment.sequence;
        side.syn_scale = segment.syn.window_scale.map(|scale| scale.min(SCALE_MAX));
        side.sack_permitted = segment.syn.sack_permitted;
        side.has_timestamps = segment.timestamps.is_some();
        side.facts.mss = segment.syn.mss;
        side.facts.window_scale = segment.syn.window_scale;
        side.facts.syn_window = Some(segment.window);
        side.begin(segment.sequence.wrapping_add(1));
        if answer {
            self.syn_ack = Some(packet.now);
            let asked = &self.sides[1 - s];
            if asked.syn_seen && asked.facts.syns_repeated == 0 {
                let ns = packet.now.saturating_sub(asked.syn_time);
                self.to_server = Some(ns);
                self.sides[s].trip.add_by_ack(ns, packet.now);
            }
        } else {
            self.opener = self.opener.or(Some(segment.from & 1));
        }
    }

    /// The first packet that is no SYN.
    fn on_made(&mut self, s: usize, packet: Packet<'_>) {
        self.made = Some((packet.now, packet.frame));
        let server = &self.sides[1 - s];
        if let Some(passed) = self.syn_ack
            && packet.segment.flags.contains(Flags::ACK)
            && server.syn_seen
            && server.facts.syns_repeated == 0
        {
            let ns = packet.now.saturating_sub(passed);
            self.to_client = Some(ns);
            self.sides[s].trip.add_by_ack(ns, packet.now);
        }
    }

    /// Lets the accounts of both sides' senders reach now; what is known of the path of each.
    #[inline]
    fn settle(&mut self, packet: Packet<'_>) -> [Option<Path>; 2] {
        let mut paths = [None; 2];
        for (s, path) in paths.iter_mut().enumerate() {
            if self.sides[s].sender.is_some() {
                let known = self.path(s, (packet.now, packet.frame));
                *path = Some(known);
                if let Some(sender) = &mut self.sides[s].sender {
                    sender.advance(&known);
                }
            }
        }
        paths
    }

    /// Side `s` acknowledges what the other sent.
    fn on_ack(&mut self, s: usize, packet: Packet<'_>, path: Option<Path>) {
        let segment = packet.segment;
        let syn = segment.flags.contains(Flags::SYN);
        let changed = self.on_window(s, packet);
        let [acker, sender] = pair(&mut self.sides, s);
        if !sender.known {
            sender.begin(segment.acknowledgment);
        }
        let ack = unwrap(sender.next, segment.acknowledgment);
        let bare = segment.payload_bytes == 0 && segment.flags.bits() & UNCOMMON_ENDS == 0;
        acker.facts.pure_acks += u64::from(bare);
        let had_sack = !segment.sack.as_slice().is_empty();
        if had_sack {
            acker.on_sack(sender, ack, segment);
        }
        let mut sample = None;
        if ack > sender.una {
            acker.facts.progress_acks += u64::from(!syn);
            let flight = sender.flight();
            sample = acker.on_progress(sender, ack, packet);
            if bare && sender.flight() == 0 {
                // The window had room for another segment.
                let next = u64::from(sender.segment_bytes).min(acker.window / 2);
                let room = flight.saturating_add(next) <= acker.window;
                let short = room
                    && sender.last_payload < sender.segment_bytes
                    && !sender.silence.had_more();
                self.turns
                    .on_all_acked(1 - s, packet.now, sender.last_data, short);
            }
        } else if ack == sender.una && bare {
            if sender.next > sender.una && (had_sack || !changed) {
                acker.facts.duplicate_acks += 1;
                sender.duplicates_in_row = sender.duplicates_in_row.saturating_add(1);
            } else if changed {
                acker.facts.window_updates += 1;
            }
        }
        if let Some(path) = path {
            self.tell_sender(1 - s, sample, &path);
        }
    }

    /// The window of side `s`; true when it is another than before.
    fn on_window(&mut self, s: usize, packet: Packet<'_>) -> bool {
        let segment = packet.segment;
        let syn = segment.flags.contains(Flags::SYN);
        let both = self.sides[0]
            .syn_scale
            .zip(self.sides[1].syn_scale)
            .is_some();
        let side = &mut self.sides[s];
        let scale = if both && !syn {
            side.syn_scale.unwrap_or(0)
        } else {
            0
        };
        let window = u64::from(segment.window) << scale;
        let changed = window != side.window;
        side.window = window;
        side.window_known = side.syn_seen;
        side.windows.add(window);
        match (segment.window == 0 && !syn, side.closed_since) {
            (true, None) => {
                side.facts.zero_windows += 1;
                side.closed_since = Some(packet.now);
                side.closed_before = Some(((packet.now, packet.frame), u64::MAX));
            }
            (false, Some(since)) => {
                side.close_window(since, packet.now);
            }
            _ => {}
        }
        changed
    }

    /// Tells the sender `p` what the peer's ACK says.
    fn tell_sender(&mut self, p: usize, sample: Option<u64>, path: &Path) {
        let behind = self.behind(p);
        let [side, peer] = pair(&mut self.sides, p);
        let flight = side.flight();
        let Some(sender) = &mut side.sender else {
            return;
        };
        if let Some(ns) = sample {
            sender.on_rtt(ns.saturating_add(behind));
        }
        let known = peer.window_known;
        let ack = Ack {
            due: path.now,
            frame: path.frame,
            una: side.una,
            edge: if known {
                side.una.saturating_add(peer.window)
            } else {
                0
            },
            closed: peer.window == 0 && peer.facts.zero_windows > 0,
        };
        let slice = sender.slices.at(path.now, path.packets);
        if known {
            slice.window(peer.window);
        }
        if let Some(ns) = sample {
            slice.rtt(ns);
        }
        slice.acked_bytes += std::mem::take(&mut side.newly_acked);
        sender.set_seen_flight(flight);
        sender.on_ack(ack, path);
    }

    fn on_bare_probe(&mut self, s: usize) {
        let closed = self.sides[1 - s].closed_since.is_some();
        let facts = &mut self.sides[s].facts;
        if closed {
            facts.window_probes += 1;
        } else {
            facts.keep_alives += 1;
        }
    }

    /// Side `s` sends payload or FIN, or is seen for the first time.
    fn on_data(&mut self, s: usize, packet: Packet<'_>, path: Option<Path>) {
        let segment = packet.segment;
        let [side, peer] = pair(&mut self.sides, s);
        if !side.known {
            side.begin(segment.sequence);
        }
        let payload = u64::from(segment.payload_bytes);
        let fin = segment.flags.contains(Flags::FIN);
        let start = unwrap(side.next, segment.sequence);
        let start = start + u64::from(segment.flags.contains(Flags::SYN));
        let end = start + payload + u64::from(fin);
        if fin {
            side.fin = end;
        }
        if start == end {
            return;
        }
        if payload == 1 && !fin && side.is_probe(peer, start) {
            return;
        }
        let segment_bytes = u64::from(self.sides[s].segment_bytes);
        let rtt = self.full_rtt(s);
        let [side, peer] = pair(&mut self.sides, s);
        side.on_payload(segment.payload_bytes, segment_bytes);
        side.on_idle(rtt.0, packet.now);
        let Some(resent) = side.on_range((start, end), payload, rtt, packet) else {
            return;
        };
        if payload > 0 && side.sender.is_none() {
            let made = self.made.unwrap_or(self.first).max(self.first);
            let closed = peer.closed_before;
            let sender = Sender::new(self.first, made, packet.now, side.una, closed);
            side.sender = Some(Box::new(sender));
            self.catch_up(s, packet);
        }
        let path = path.unwrap_or_else(|| self.path(s, (packet.now, packet.frame)));
        let side = &mut self.sides[s];
        let flight = side.flight();
        let next = side.next;
        if let Some(sender) = &mut side.sender {
            let slice = sender.slices.at(packet.now, path.packets);
            slice.sent_bytes += payload;
            slice.retransmitted_segments += u32::from(resent.is_some());
            slice.flight(flight);
            sender.set_seen_flight(flight);
            sender.on_data(
                Sent {
                    next,
                    payload,
                    fin,
                    resent,
                },
                &path,
            );
        }
    }

    /// A sender that has just been made is told the window that it sends into.
    fn catch_up(&mut self, s: usize, packet: Packet<'_>) {
        let path = Path {
            lag: 0,
            lag_of_late: 0,
            ..self.path(s, (packet.now, packet.frame))
        };
        let [side, peer] = pair(&mut self.sides, s);
        let edge = if peer.window_known {
            side.una.saturating_add(peer.window)
        } else {
            0
        };
        let ack = Ack {
            due: packet.now,
            frame: packet.frame,
            una: side.una,
            edge,
            closed: peer.closed_since.is_some(),
        };
        if let Some(sender) = &mut side.sender {
            sender.on_ack(ack, &path);
        }
    }

    fn on_timestamps(&mut self, s: usize, value: u32, echo: u32, turn: bool, packet: Packet<'_>) {
        let [side, peer] = pair(&mut self.sides, s);
        side.has_timestamps = true;
        let sample = match packet.segment.flags.contains(Flags::ACK) {
            true => side.trip.on_echo(echo, packet.now, !turn),
            false => None,
        };
        peer.trip.on_value(value, packet.now);
        if let Some(ns) = sample
            && self.sides[1 - s].sender.is_some()
        {
            let behind = self.behind(1 - s);
            if let Some(sender) = &mut self.sides[1 - s].sender {
                sender.on_rtt(ns.saturating_add(behind));
            }
        }
    }

    /// What is known of the path of side `s`'s data.
    #[inline]
    fn path(&self, s: usize, (now, frame): Mark2) -> Path {
        let (side, peer) = (&self.sides[s], &self.sides[1 - s]);
        let ahead = peer.trip.min();
        let behind = side.trip.min();
        // So near that nothing is gained by waiting for it.
        let near = ahead.zip(behind).is_none_or(|(a, b)| b <= a / 16);
        let (lag, lag_of_late) = match near {
            true => (0, 0),
            false => (behind.unwrap_or(0), self.behind(s)),
        };
        Path {
            now,
            frame,
            packets: self.packets,
            segment_bytes: u64::from(side.segment_bytes),
            base_rtt: ahead.map_or(0, |ns| ns.saturating_add(behind.unwrap_or(0))),
            lag,
            lag_of_late,
        }
    }

    /// Round trip from the capture point to side `s`, which sends, and back: of late, as queues come and go.
    /// Right beside the sender there is no queue, and what was added of late was its application's time.
    fn behind(&self, s: usize) -> u64 {
        let trip = &self.sides[s].trip;
        let ahead = self.sides[1 - s].trip.min();
        match (trip.min(), ahead) {
            (Some(least), Some(ahead)) if least <= ahead / 16 => least,
            _ => trip.recent().unwrap_or(0),
        }
    }

    /// Round trip of side `s`'s data, both halves: smoothed, and four times its variation.
    fn full_rtt(&self, s: usize) -> (u64, u64) {
        let (ahead, variation) = self.sides[1 - s].trip.smoothed();
        let behind = self.behind(s);
        match ahead {
            0 => (0, 0),
            ahead => (ahead.saturating_add(behind), variation),
        }
    }

    /// Payload of a full segment of side `s`: what both agreed on less timestamps, or, where
    /// something on the way allows less, the largest payload that came often.
    fn segment_bytes(&self, s: usize) -> u32 {
        let side = &self.sides[s];
        let agreed = match (side.facts.mss, self.sides[1 - s].facts.mss) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let options = if side.has_timestamps {
            TIMESTAMP_BYTES
        } else {
            0
        };
        let agreed = agreed.map(|mss| u32::from(mss).saturating_sub(options).max(1));
        let seen = side.full_seen;
        let often = side.full_count >= FULL_COUNT;
        match agreed {
            Some(agreed) if often && seen >= SEGMENT_BYTES_SURE && seen < agreed => seen,
            Some(agreed) => agreed,
            None if often && (SEGMENT_BYTES_SURE..=SEGMENT_BYTES_MAX).contains(&seen) => seen,
            None => SEGMENT_BYTES_GUESS,
        }
    }

    fn set_segment_bytes(&mut self) {
        for s in 0..2 {
            self.sides[s].segment_bytes = self.segment_bytes(s);
        }
    }
}

/// The side `s` and the other one.
fn pair(sides: &mut [Side; 2], s: usize) -> [&mut Side; 2] {
    let [zero, one] = sides;
    if s == 0 { [zero, one] } else { [one, zero] }
}

fn capture_point(ahead: Option<u64>, behind: Option<u64>) -> Option<CapturePoint> {
    let (ahead, behind) = (ahead?, behind?);
    let tenth = ahead.saturating_add(behind) / NEAR_PART;
    Some(if behind < tenth {
        CapturePoint::NearSender
    } else if ahead < tenth {
        CapturePoint::NearReceiver
    } else {
        CapturePoint::Between
    })
}

/// Flags that few packets have.
const UNCOMMON: u16 = Flags::SYN
    .with(Flags::FIN)
    .with(Flags::RST)
    .with(Flags::ECE)
    .with(Flags::CWR)
    .bits();
/// Flags of packets that are no bare ACK.
const UNCOMMON_ENDS: u16 = Flags::SYN.with(Flags::FIN).with(Flags::RST).bits();
/// Packets after which the size of a full segment is estimated anew, and each of the first ones.
const SEGMENT_SURE: u64 = 64;
/// No window reaches as far (RFC 7323 section 2.3).
const STRAY: u64 = 1 << 30;
/// RFC 7323 section 2.3.
const SCALE_MAX: u8 = 14;
/// A packet that came less than this part of the round trip ago was near.
const NEAR_PART: u64 = 10;
/// The option with two bytes of padding, as all stacks send it.
const TIMESTAMP_BYTES: u32 = 12;
/// Payloads of one size that make it the size of a full segment.
const FULL_COUNT: u32 = 8;
/// Smaller ones may be an application's messages: IPv6's least MTU less headers, and less options.
const SEGMENT_BYTES_SURE: u32 = 1_180;
/// Of 9,000-byte packets without options.
const SEGMENT_BYTES_MAX: u32 = 8_960;
/// Of 1,500-byte packets of IPv4 with timestamps.
const SEGMENT_BYTES_GUESS: u32 = 1_448;
