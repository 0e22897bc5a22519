//! Which connection a packet belongs to, and when one is over.

use units::{Duration, Instant};
use wire::segment::Segment;
use wire::tcp::Flags;

use crate::trace::facts::{Connection, End};
use crate::trace::flow::Flow;
use crate::trace::log::Log;
use crate::trace::table::{Chain, Key, Links, NONE, Row, Table};

/// What a tracker may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A connection without packets for so long is over; it may take up to twice as long until that
    /// is noticed.
    pub idle: Duration,
    /// The same for one that has ended: late packets still belong to it until then.
    pub closed: Duration,
    /// The same for one that has not got beyond SYNs: as long as Linux tries (6 SYNs, 127 s).
    pub half_open: Duration,
    /// Connections held at a time.
    pub connections_max: usize,
    /// Of these, such that have not got beyond SYNs.
    pub half_open_max: usize,
    /// Of these, such with more packets than the log holds.
    pub large_max: usize,
    /// Seed of the hash; unknown to who makes the packets, lest they make keys collide.
    pub seed: u64,
}

/// What the tracker did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets taken.
    pub packets: u64,
    /// Connections that began.
    pub connections: u64,
    /// Half-open ones that were dropped without a word, to make room.
    pub half_open_evicted: u64,
    /// Others that were ended to make room.
    pub evicted: u64,
    /// Connections of which only the first packets were analysed, for want of room.
    pub incomplete: u64,
    /// RSTs of no connection.
    pub stray_resets: u64,
}

/// A packet and where it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// When.
    pub time: Instant,
    /// Its number in the capture.
    pub frame: u64,
    /// The interface that saw it.
    pub interface: u32,
    /// Its TCP segment.
    pub segment: Segment,
}

/// Takes packets, hands ended connections to its sink.
#[derive(Debug)]
pub struct Tracker<S> {
    limits: Limits,
    sink: S,
    table: Table,
    places: Places,
    rows: [Row; ROWS],
    large: usize,
    /// When connections were last looked through for ended ones.
    looked: u64,
    counts: Counts,
}

/// Connections at their places, in chunks.
#[derive(Debug, Default)]
struct Places {
    chunks: Vec<Vec<Slot>>,
    free: Vec<u32>,
}

/// A connection. What each packet needs comes first.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    key: Key,
    hash: u32,
    row: u8,
    incomplete: bool,
    flow: Option<Box<Flow>>,
    last: u64,
    life: Life,
    /// Packets and payload of each side, whatever was analysed.
    packets: [u64; 2],
    payload_bytes: [u64; 2],
    /// When it was put into its row.
    queued: u64,
    links: Links,
    log: Log,
}

/// What is known of a connection's begin and end.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    /// Number of each side's SYN.
    syn: [Option<u32>; 2],
    fin: [bool; 2],
    reset_by: Option<u8>,
    /// Something else than SYN and RST was seen.
    beyond_syn: bool,
}

impl Default for Limits {
    /// Ten minutes, as long as firewalls and address translators commonly wait; a gigabyte for a
    /// million short connections, and as much again for a hundred thousand longer ones.
    fn default() -> Self {
        Self {
            idle: Duration::from_s(600),
            closed: Duration::from_s(5),
            half_open: Duration::from_s(130),
            connections_max: 1 << 20,
            half_open_max: 1 << 17,
            large_max: 1 << 17,
            seed: 0,
        }
    }
}

impl<S: FnMut(Connection)> Tracker<S> {
    /// A tracker without connections.
    pub fn new(limits: Limits, sink: S) -> Self {
        Self {
            limits,
            sink,
            table: Table::new(limits.seed),
            places: Places::default(),
            rows: [Row::EMPTY; ROWS],
            large: 0,
            looked: 0,
            counts: Counts::default(),
        }
    }

    /// Takes a packet with its time, its number in the capture and the interface that saw it.
    ///
    /// Packets of a connection are to come in the order of time; one that does not counts as of the
    /// time of the packet before.
    pub fn take(&mut self, time: Instant, frame: u64, interface: u32, segment: &Segment) {
        let now = time.as_ns();
        self.counts.packets += 1;
        // Either way, so that one packet of the far future does not stop it for good.
        if now.abs_diff(self.looked) >= LOOK_NS {
            self.expire(time);
        }
        let key = Key {
            flow: segment.flow,
            interface,
        };
        let hash = self.table.hash(&key);
        let places = &self.places;
        let found = self.table.find(hash, |place| places.get(place).key == key);
        let place = match found {
            Some(place) if self.places.get(place).life.is_another(segment) => {
                self.end(place, Some(End::Replaced));
                self.begin(key, hash, now, segment)
            }
            Some(place) => place,
            None if segment.flags.contains(Flags::RST) => {
                self.counts.stray_resets += 1;
                return;
            }
            None => self.begin(key, hash, now, segment),
        };
        self.hand_over(place, now, frame, segment);
    }

    /// Takes packets as [`Self::take`] does, in less time where connections are many: what several of
    /// them need is fetched from memory at once.
    pub fn take_all(&mut self, packets: &[Captured]) {
        for some in packets.chunks(AT_ONCE) {
            if self.connections() > CACHED {
                std::hint::black_box(some.iter().map(|p| self.fetch(p)).fold(0, |a, b| a ^ b));
            }
            for p in some {
                self.take(p.time, p.frame, p.interface, &p.segment);
            }
        }
    }

    /// Ends connections that are over by `now`. [`Self::take`] does so by itself once a second of the
    /// capture's time.
    pub fn expire(&mut self, now: Instant) {
        self.looked = now.as_ns();
        for row in 0..ROWS {
            let idle = self.idle_limit(row).as_ns();
            // Each is looked at once at most: those that stay are put behind the others.
            for _ in 0..self.rows[row].len {
                let place = self.rows[row].head;
                let slot = self.places.get(place);
                if slot.queued.saturating_add(idle) > self.looked {
                    break;
                }
                if slot.last.saturating_add(idle) > self.looked {
                    self.queue(place, row);
                } else {
                    self.end(place, None);
                }
            }
        }
    }

    /// Ends all connections, in the order of their begin as far as they are of one kind.
    pub fn finish(&mut self) {
        for row in 0..ROWS {
            while self.rows[row].head != NONE {
                let place = self.rows[row].head;
                let idle = self.idle_limit(row).as_ns();
                let slot = self.places.get(place);
                let over = slot.last.saturating_add(idle) <= self.looked;
                let end = if over {
                    None
                } else {
                    Some(slot.life.end(End::Open))
                };
                self.end(place, end);
            }
        }
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Connections that it holds.
    pub fn connections(&self) -> usize {
        self.rows.iter().map(|r| r.len).sum()
    }

    /// Bytes of the table and of all places, not of analyses in memory.
    pub fn table_bytes(&self) -> usize {
        let chunks = self.places.chunks.len() * CHUNK * size_of::<Slot>();
        self.table.bytes() + chunks + self.places.free.capacity() * size_of::<u32>()
    }

    /// Reads what this packet will need; the number means nothing.
    #[inline]
    fn fetch(&self, packet: &Captured) -> u64 {
        let key = Key {
            flow: packet.segment.flow,
            interface: packet.interface,
        };
        let hash = self.table.hash(&key);
        // The hash alone is enough: where it errs, nothing but time is lost.
        let Some(place) = self.table.find(hash, |_| true) else {
            return 0;
        };
        let slot = self.places.get(place);
        slot.queued
            ^ slot
                .flow
                .as_deref()
                .map_or(0, |flow| flow.fetch(packet.segment.from))
    }

    fn hand_over(&mut self, place: u32, now: u64, frame: u64, segment: &Segment) {
        let slot = self.places.get_mut(place);
        let side = usize::from(segment.from & 1);
        slot.last = now;
        slot.packets[side] += 1;
        slot.payload_bytes[side] += u64::from(segment.payload_bytes);
        let row = slot.life.on(segment);
        if let Some(flow) = &mut slot.flow {
            flow.take(now, frame, segment);
        } else if !slot.incomplete && !slot.log.push(now, frame, segment) {
            if self.large < self.limits.large_max {
                self.large += 1;
                let mut flow = Box::new(slot.replay());
                flow.take(now, frame, segment);
                slot.flow = Some(flow);
            } else {
                slot.incomplete = true;
                self.counts.incomplete += 1;
            }
        }
        if usize::from(slot.row) != row {
            let last = slot.last;
            self.queue(place, row);
            self.places.get_mut(place).queued = last;
        }
    }

    fn begin(&mut self, key: Key, hash: u32, now: u64, segment: &Segment) -> u32 {
        let half_open = segment.flags.contains(Flags::SYN);
        let row = if half_open { HALF_OPEN } else { LIVE };
        if half_open && self.rows[HALF_OPEN].len >= self.limits.half_open_max.max(1) {
            self.forget_half_open();
        }
        if self.connections() >= self.limits.connections_max.clamp(1, PLACES_MAX) {
            self.make_room();
        }
        self.counts.connections += 1;
        let place = self.places.take(key, hash, now);
        self.table.insert(hash, place);
        self.rows[row].push(&mut self.places, place);
        self.places.get_mut(place).row = u8::try_from(row).unwrap_or_default();
        place
    }

    fn make_room(&mut self) {
        if self.rows[CLOSED].len > 0 {
            self.end(self.rows[CLOSED].head, None);
        } else if self.rows[HALF_OPEN].len > 0 {
            self.forget_half_open();
        } else {
            // The row is in the order of begin: the first that had no packet since it was looked at.
            for _ in 0..SECOND_CHANCES {
                let place = self.rows[LIVE].head;
                let slot = self.places.get(place);
                if slot.last <= slot.queued {
                    break;
                }
                let last = slot.last;
                self.queue(place, LIVE);
                self.places.get_mut(place).queued = last;
            }
            self.counts.evicted += 1;
            self.end(self.rows[LIVE].head, Some(End::Evicted));
        }
    }

    fn forget_half_open(&mut self) {
        let place = self.rows[HALF_OPEN].head;
        self.counts.half_open_evicted += 1;
        self.take_out(place);
    }

    /// Puts a connection at the end of a row.
    fn queue(&mut self, place: u32, row: usize) {
        let from = usize::from(self.places.get(place).row);
        self.rows[from].remove(&mut self.places, place);
        self.rows[row].push(&mut self.places, place);
        let looked = self.looked;
        let slot = self.places.get_mut(place);
        slot.queued = looked;
        slot.row = u8::try_from(row).unwrap_or_default();
    }

    /// Hands a connection over; `None`: for what is known of it, or since nothing more came.
    fn end(&mut self, place: u32, end: Option<End>) {
        let slot = self.places.get_mut(place);
        let end = end.unwrap_or_else(|| slot.life.end(End::Idle));
        let flow = match slot.flow.take() {
            Some(flow) => {
                self.large -= 1;
                *flow
            }
            None => slot.replay(),
        };
        let mut connection = flow.finish(end);
        connection.flow = slot.key.flow;
        connection.interface = slot.key.interface;
        if slot.incomplete {
            connection.complete = false;
            connection.last.time = Instant::from_ns(slot.last);
            for (side, facts) in connection.sides.iter_mut().enumerate() {
                facts.packets = slot.packets[side];
                facts.payload_bytes = slot.payload_bytes[side];
            }
        }
        self.take_out(place);
        (self.sink)(connection);
    }

    fn take_out(&mut self, place: u32) {
        let slot = self.places.get(place);
        let (row, hash) = (usize::from(slot.row), slot.hash);
        self.rows[row].remove(&mut self.places, place);
        self.table.remove(hash, place);
        self.places.give_back(place);
    }

    fn idle_limit(&self, row: usize) -> Duration {
        match row {
            CLOSED => self.limits.closed,
            HALF_OPEN => self.limits.half_open,
            _ => self.limits.idle,
        }
    }
}

impl Slot {
    fn replay(&self) -> Flow {
        let mut flow = Flow::new();
        for logged in self.log.read(self.key.flow) {
            flow.take(logged.time_ns, logged.frame, &logged.segment);
        }
        flow
    }
}

impl Life {
    /// A SYN that cannot belong to this connection: its ports are used again.
    fn is_another(&self, segment: &Segment) -> bool {
        if !segment.flags.contains(Flags::SYN) || segment.flags.contains(Flags::ACK) {
            return false;
        }
        let known = self.syn[usize::from(segment.from & 1)];
        match known {
            Some(known) => known != segment.sequence,
            None => self.beyond_syn,
        }
    }

    /// Takes a packet; returns the row that the connection belongs to then.
    fn on(&mut self, segment: &Segment) -> usize {
        let side = usize::from(segment.from & 1);
        let flags = segment.flags;
        if flags.contains(Flags::SYN) {
            self.syn[side].get_or_insert(segment.sequence);
        } else if flags.contains(Flags::RST) {
            self.reset_by.get_or_insert(segment.from & 1);
        } else {
            self.beyond_syn = true;
        }
        if segment.payload_bytes > 0 && self.reset_by == Some(segment.from & 1) {
            // Who goes on sending has not reset it: somebody else did, in its name.
            self.reset_by = flags.contains(Flags::RST).then_some(segment.from & 1);
        }
        self.fin[side] |= flags.contains(Flags::FIN);
        if self.reset_by.is_some() || self.fin == [true; 2] {
            CLOSED
        } else if self.beyond_syn {
            LIVE
        } else {
            HALF_OPEN
        }
    }

    /// How it ended; `other` if nothing said so.
    fn end(&self, other: End) -> End {
        match self.reset_by {
            Some(by) => End::Reset { by },
            None if self.fin == [true; 2] => End::Fin,
            None if !self.beyond_syn && other == End::Idle => End::Unanswered,
            None => other,
        }
    }
}

impl Places {
    #[inline]
    fn get(&self, place: u32) -> &Slot {
        let place = place as usize;
        &self.chunks[place / CHUNK][place % CHUNK]
    }

    #[inline]
    fn get_mut(&mut self, place: u32) -> &mut Slot {
        let place = place as usize;
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    /// A place for a new connection; there are fewer than [`PLACES_MAX`].
    fn take(&mut self, key: Key, hash: u32, now: u64) -> u32 {
        let Some(place) = self.free.pop() else {
            return self.extend(key, hash, now);
        };
        let slot = self.get_mut(place);
        slot.key = key;
        slot.hash = hash;
        slot.life = Life::default();
        (slot.queued, slot.last) = (now, now);
        slot.packets = [0; 2];
        slot.payload_bytes = [0; 2];
        slot.incomplete = false;
        slot.flow = None;
        slot.log.clear();
        place
    }

    #[cold]
    fn extend(&mut self, key: Key, hash: u32, now: u64) -> u32 {
        if self.chunks.last().is_none_or(|c| c.len() >= CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let chunk = &mut self.chunks[full / CHUNK];
        let place = full + chunk.len();
        chunk.push(Slot {
            key,
            hash,
            links: Links::NONE,
            row: 0,
            life: Life::default(),
            queued: now,
            last: now,
            packets: [0; 2],
            payload_bytes: [0; 2],
            incomplete: false,
            flow: None,
            log: Log::new(),
        });
        u32::try_from(place).unwrap_or(NONE)
    }

    fn give_back(&mut self, place: u32) {
        self.get_mut(place).flow = None;
        self.free.push(place);
    }
}

impl Chain for Places {
    fn links(&mut self, place: u32) -> &mut Links {
        &mut self.get_mut(place).links
    }
}

/// Rows by what is to become of a connection.
const CLOSED: usize = 0;
const HALF_OPEN: usize = 1;
const LIVE: usize = 2;
const ROWS: usize = 3;

/// Packets for which memory is fetched at once: some more than a core has loads under way.
const AT_ONCE: usize = 16;
/// Connections whose analyses stay in a core's caches.
const CACHED: usize = 200;
/// Connections that are looked at for one that may go.
const SECOND_CHANCES: usize = 8;
/// How often ended connections are looked for.
const LOOK_NS: u64 = 1_000_000_000;
/// Places of one allocation, 160 KiB.
const CHUNK: usize = 256;
/// Places have 32 bits, and the table a load of three quarters.
const PLACES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_short_connections_fit_into_a_gigabyte() {
        let place = size_of::<Slot>();
        assert!(place <= 700, "{place}");
        // The table has 2^21 entries then.
        assert!(place * 1_000_000 + (8 << 21) < 1_000_000_000);
    }
}
