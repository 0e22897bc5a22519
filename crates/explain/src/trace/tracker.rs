//! Which connection a packet belongs to, and when one is over.

use std::hint::black_box;
use std::mem;
use std::ops::AddAssign;

use units::{Duration, Instant};
use wire::segment::{FlowKey, Segment};
use wire::tcp::Flags;

use crate::trace::facts::{Connection, End};
use crate::trace::flow::Flow;
use crate::trace::log::{Context, Log, Store};
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
    /// Bytes of connections and analyses together: where a new one would pass it, what began first makes
    /// room for a connection, and of others no more packets are analysed than have been until then. Those that
    /// have an analysis may still grow, from some 8 KB to 50 KB over 2,000 packets.
    pub bytes_max: usize,
    /// Connections whose analyses stay in a core's caches; where there are more, packets are put together
    /// before they are analysed. Changes nothing but speed and memory.
    pub cached: usize,
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
    store: Store,
    /// What connections are analysed with that had no analysis of their own until their end.
    spare: Box<Flow>,
    rows: [Row; ROWS],
    large: usize,
    /// Memory of analyses.
    held_kib: usize,
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
#[repr(C, align(64))]
struct Slot {
    key: Key,
    hash: u32,
    row: u8,
    /// Memory of its analysis.
    held_kib: u16,
    flow: Option<Box<Flow>>,
    last: u64,
    log: Log,
    life: Life,
    state: State,
    /// When it was put into its row.
    queued: u64,
    links: Links,
}

/// What is done with a connection's packets.
#[derive(Debug)]
enum State {
    /// They are analysed, now or from the log.
    Whole(Context),
    /// Those of the log will be. These came later: packets and payload of each side.
    Cut([Sums; 2]),
}

/// Packets and their payload.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    packets: u64,
    payload_bytes: u64,
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
    /// Ten minutes, as long as firewalls and address translators commonly wait; less than a gigabyte for a
    /// million connections of some 40 packets or a hundred thousand longer ones.
    fn default() -> Self {
        Self {
            idle: Duration::from_s(600),
            closed: Duration::from_s(5),
            half_open: Duration::from_s(130),
            connections_max: 1 << 20,
            half_open_max: 1 << 17,
            large_max: 1 << 17,
            bytes_max: 970_000_000,
            cached: CACHED,
            seed: 0,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.connections += other.connections;
        self.half_open_evicted += other.half_open_evicted;
        self.evicted += other.evicted;
        self.incomplete += other.incomplete;
        self.stray_resets += other.stray_resets;
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
            store: Store::new(),
            spare: new_flow(),
            rows: [Row::EMPTY; ROWS],
            large: 0,
            held_kib: 0,
            looked: 0,
            counts: Counts::default(),
        }
    }

    /// Takes a packet with its time, its number in the capture and the interface that saw it.
    ///
    /// Packets of a connection are to come in the order of time; one that does not counts as of the
    /// time of the packet before.
    pub fn take(&mut self, time: Instant, frame: u64, interface: u32, segment: &Segment) {
        let packet = Captured {
            time,
            frame,
            interface,
            segment: *segment,
        };
        let hash = self.table.hash(&Key::of(&packet));
        self.take_hashed(&packet, hash);
    }

    fn take_hashed(&mut self, packet: &Captured, hash: u32) {
        let Captured {
            time,
            frame,
            ref segment,
            ..
        } = *packet;
        let now = time.as_ns();
        self.counts.packets += 1;
        // Either way, so that one packet of the far future does not stop it for good.
        if now.abs_diff(self.looked) >= LOOK_NS {
            self.expire(time);
        }
        let key = Key::of(packet);
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
            let mut hashes = [0; AT_ONCE];
            for (hash, packet) in hashes.iter_mut().zip(some) {
                *hash = self.table.hash(&Key::of(packet));
            }
            if self.connections() > self.limits.cached {
                black_box(self.fetch(hashes.get(..some.len()).unwrap_or_default()));
            }
            for (packet, hash) in some.iter().zip(hashes) {
                self.take_hashed(packet, hash);
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
            for n in 0.. {
                if self.rows[row].head == NONE {
                    break;
                }
                if n % ENDED_AT_ONCE == 0 {
                    black_box(self.fetch_ending(row));
                }
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

    /// Bytes of all that it holds.
    pub fn bytes(&self) -> usize {
        self.table_bytes() + self.store.bytes() + self.held_kib * KIB
    }

    /// Bytes of the table and of all places, not of logs and analyses.
    pub fn table_bytes(&self) -> usize {
        let chunks = self.places.chunks.len() * CHUNK * size_of::<Slot>();
        self.table.bytes() + chunks + self.places.free.capacity() * size_of::<u32>()
    }

    /// Reads what packets with these hashes will need; the number means nothing. In steps, each of
    /// loads that do not wait for each other.
    #[inline]
    fn fetch(&self, hashes: &[u32]) -> u64 {
        let mut all = hashes.iter().fold(0, |a, &hash| a ^ self.table.fetch(hash));
        let mut places = [NONE; AT_ONCE];
        for (place, &hash) in places.iter_mut().zip(hashes) {
            // The hash alone is enough: where it errs, nothing but time is lost.
            *place = self.table.find(hash, |_| true).unwrap_or(NONE);
        }
        let known = places.iter().filter(|&&place| place != NONE);
        for &place in known.clone() {
            all ^= self.places.get(place).fetch();
        }
        for &place in known {
            let slot = self.places.get(place);
            all ^= slot.log.fetch(&self.store);
            if let Some(flow) = &slot.flow
                && slot.log.is_nearly_full(CHUNKS_OF_LARGE)
            {
                all ^= flow.fetch();
            }
        }
        all
    }

    /// Reads what the next connections of a row need to be ended.
    fn fetch_ending(&self, row: usize) -> u64 {
        let mut places = [NONE; ENDED_AT_ONCE];
        let mut next = self.rows[row].head;
        for place in &mut places {
            *place = next;
            if next != NONE {
                next = self.places.get(next).links.behind();
            }
        }
        let known = places.iter().filter(|&&place| place != NONE);
        let slots = known.map(|&place| self.places.get(place));
        let mut all = 0;
        let mut chunks = [NONE; ENDED_AT_ONCE];
        for (chunk, slot) in chunks.iter_mut().zip(slots.clone()) {
            all ^= slot.fetch() ^ self.table.fetch(slot.hash);
            *chunk = slot.log.first();
        }
        // Each says where the next one is: those of all connections are brought in at a time.
        for _ in 0..CHUNKS_FETCHED {
            for chunk in &mut chunks {
                let (number, next) = self.store.fetch(*chunk);
                all ^= number;
                *chunk = next;
            }
        }
        let flows = slots.filter_map(|slot| slot.flow.as_deref());
        flows.fold(all, |all, flow| all ^ flow.fetch_all())
    }

    fn hand_over(&mut self, place: u32, now: u64, frame: u64, segment: &Segment) {
        let many = self.connections() > self.limits.cached;
        let slot = self.places.get_mut(place);
        slot.last = now;
        let row = slot.life.on(segment);
        match &mut slot.flow {
            Some(flow) if !many && slot.log.is_empty() => {
                flow.take(now, frame, segment);
                if flow.packets().is_multiple_of(LOOKED_AT) {
                    self.held_kib -= usize::from(slot.held_kib);
                    slot.weigh();
                    self.held_kib += usize::from(slot.held_kib);
                }
            }
            _ => self.note(place, many, (now, frame, segment)),
        }
        let slot = self.places.get_mut(place);
        if usize::from(slot.row) != row {
            let last = slot.last;
            self.queue(place, row);
            self.places.get_mut(place).queued = last;
        }
    }

    /// Takes a packet that is to be analysed later with others of its connection: an analysis is in memory
    /// for longer connections only, and where it is not in a core's caches it is brought in once for many
    /// packets.
    fn note(&mut self, place: u32, many: bool, packet: (u64, u64, &Segment)) {
        if self.store.is_used_up() && self.bytes() < self.limits.bytes_max {
            self.store.grow();
        }
        let slot = self.places.get_mut(place);
        let context = match &mut slot.state {
            State::Whole(context) => context,
            State::Cut(sums) => return sums[usize::from(packet.2.from & 1)].add(packet.2),
        };
        let chunks_max = match (many, slot.flow.is_some()) {
            (true, false) => CHUNKS_OF_SMALL,
            (true, true) => CHUNKS_OF_LARGE,
            (false, _) => CHUNKS_OF_FEW,
        };
        if slot.log.push(&mut self.store, context, chunks_max, packet) {
            return;
        }
        if slot.flow.is_none() {
            if !self.has_room_for_analysis() {
                return self.cut(place, packet.2);
            }
            self.large += 1;
            self.places.get_mut(place).flow = Some(new_flow());
        }
        self.analyse(place, many, packet);
    }

    /// A connection's packets from this one on are counted only.
    fn cut(&mut self, place: u32, segment: &Segment) {
        self.counts.incomplete += 1;
        let mut sums = [Sums::default(); 2];
        sums[usize::from(segment.from & 1)].add(segment);
        self.places.get_mut(place).state = State::Cut(sums);
    }

    /// Hands the log's packets to the connection's own analysis, and one more to either of them.
    fn analyse(&mut self, place: u32, many: bool, packet: (u64, u64, &Segment)) {
        let slot = self.places.get_mut(place);
        let (Some(mut flow), State::Whole(context)) = (slot.flow.take(), &mut slot.state) else {
            return;
        };
        replay(&slot.log, &self.store, slot.key.flow, &mut flow);
        slot.log.clear(&mut self.store);
        *context = Context::default();
        if !many || !slot.log.push(&mut self.store, context, 1, packet) {
            flow.take(packet.0, packet.1, packet.2);
        }
        slot.flow = Some(flow);
        self.held_kib -= usize::from(slot.held_kib);
        slot.weigh();
        self.held_kib += usize::from(slot.held_kib);
    }

    fn has_room_for_analysis(&self) -> bool {
        let bytes = self.bytes() + ANALYSIS_BYTES;
        self.large < self.limits.large_max && bytes <= self.limits.bytes_max
    }

    fn begin(&mut self, key: Key, hash: u32, now: u64, segment: &Segment) -> u32 {
        let half_open = segment.flags.contains(Flags::SYN);
        let row = if half_open { HALF_OPEN } else { LIVE };
        if half_open && self.rows[HALF_OPEN].len >= self.limits.half_open_max.max(1) {
            self.forget_half_open();
        }
        let full = self.connections() >= self.limits.connections_max.clamp(1, PLACES_MAX);
        let grows = self.places.free.is_empty() || self.store.is_used_up();
        if full || grows && self.connections() > 0 && self.bytes() >= self.limits.bytes_max {
            self.make_room();
        }
        self.counts.connections += 1;
        if self.store.is_used_up() {
            self.store.grow();
        }
        let place = self.places.take(key, hash, now, &mut self.store);
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
        self.large -= usize::from(slot.flow.is_some());
        self.held_kib -= usize::from(mem::take(&mut slot.held_kib));
        let own = slot.flow.take();
        let mut connection = match own {
            Some(mut flow) => {
                replay(&slot.log, &self.store, slot.key.flow, &mut flow);
                flow.finish(end)
            }
            None => {
                *self.spare = Flow::new();
                replay(&slot.log, &self.store, slot.key.flow, &mut self.spare);
                self.spare.finish(end)
            }
        };
        connection.flow = slot.key.flow;
        connection.interface = slot.key.interface;
        if let State::Cut(mut sums) = slot.state {
            for logged in slot.log.read(&self.store, slot.key.flow) {
                sums[usize::from(logged.segment.from & 1)].add(&logged.segment);
            }
            connection.complete = false;
            connection.last.time = Instant::from_ns(slot.last);
            for (facts, sums) in connection.sides.iter_mut().zip(sums) {
                facts.packets = sums.packets;
                facts.payload_bytes = sums.payload_bytes;
            }
        }
        self.take_out(place);
        (self.sink)(connection);
    }

    fn take_out(&mut self, place: u32) {
        let slot = self.places.get(place);
        let (row, hash) = (usize::from(slot.row), slot.hash);
        self.large -= usize::from(slot.flow.is_some());
        self.held_kib -= usize::from(slot.held_kib);
        self.rows[row].remove(&mut self.places, place);
        self.table.remove(hash, place);
        self.places.give_back(place, &mut self.store);
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
    /// Says how much memory its analysis takes.
    fn weigh(&mut self) {
        let bytes = self.flow.as_deref().map_or(0, Flow::bytes);
        self.held_kib = u16::try_from(bytes.div_ceil(KIB)).unwrap_or(u16::MAX);
    }

    /// One number of each line of memory; of the log's chunks none.
    #[inline]
    fn fetch(&self) -> u64 {
        let State::Whole(context) = &self.state else {
            return self.last ^ self.queued;
        };
        self.last ^ self.queued ^ context.fetch()
    }
}

impl Sums {
    fn add(&mut self, segment: &Segment) {
        self.packets += 1;
        self.payload_bytes += u64::from(segment.payload_bytes);
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
    fn take(&mut self, key: Key, hash: u32, now: u64, store: &mut Store) -> u32 {
        let Some(place) = self.free.pop() else {
            return self.extend(key, hash, now, store);
        };
        let slot = self.get_mut(place);
        slot.key = key;
        slot.hash = hash;
        slot.life = Life::default();
        (slot.queued, slot.last) = (now, now);
        slot.state = State::Whole(Context::default());
        slot.held_kib = 0;
        slot.flow = None;
        slot.log = Log::new(store);
        place
    }

    #[cold]
    fn extend(&mut self, key: Key, hash: u32, now: u64, store: &mut Store) -> u32 {
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
            state: State::Whole(Context::default()),
            held_kib: 0,
            flow: None,
            log: Log::new(store),
        });
        u32::try_from(place).unwrap_or(NONE)
    }

    fn give_back(&mut self, place: u32, store: &mut Store) {
        let slot = self.get_mut(place);
        slot.flow = None;
        slot.log.close(store);
        self.free.push(place);
    }
}

impl Chain for Places {
    fn links(&mut self, place: u32) -> &mut Links {
        &mut self.get_mut(place).links
    }
}

/// Hands a log's packets over.
fn replay(log: &Log, store: &Store, key: FlowKey, flow: &mut Flow) {
    if log.is_empty() {
        return;
    }
    let mut segment = Segment::default();
    let mut reader = log.read(store, key);
    while let Some((now, frame)) = reader.next_into(&mut segment) {
        flow.take(now, frame, &segment);
    }
}

/// An empty analysis, made where it is to stay.
fn new_flow() -> Box<Flow> {
    Box::write(Box::new_uninit(), Flow::new())
}

/// Rows by what is to become of a connection.
const CLOSED: usize = 0;
const HALF_OPEN: usize = 1;
const LIVE: usize = 2;
const ROWS: usize = 3;

/// Packets for which memory is fetched at once: some more than a core has loads under way.
const AT_ONCE: usize = 32;
/// As many as a core's second cache holds, and a little more.
const CACHED: usize = 200;
/// Connections whose memory is fetched at once when all end.
const ENDED_AT_ONCE: usize = 8;
/// And how many chunks of their logs.
const CHUNKS_FETCHED: usize = 8;
/// Chunks of the log of a connection without an analysis in memory: half of what that would take, some 270
/// packets.
const CHUNKS_OF_SMALL: u16 = 32;
/// Of one that has an analysis: some 65 packets, for which it is brought in once.
const CHUNKS_OF_LARGE: u16 = 8;
/// Of one of few connections, whose analyses are in a core's caches: some 30 packets.
const CHUNKS_OF_FEW: u16 = 4;
/// Connections that are looked at for one that may go.
const SECOND_CHANCES: usize = 8;
const KIB: usize = 1 << 10;
/// What an analysis takes at first, with its slices.
const ANALYSIS_BYTES: usize = 9 * KIB;
/// Packets after which the size of an analysis is looked at.
const LOOKED_AT: u64 = 64;
/// How often ended connections are looked for.
pub(crate) const LOOK_NS: u64 = 1_000_000_000;
/// Places of one allocation, 48 KiB.
const CHUNK: usize = 256;
/// Places have 32 bits, and the table a load of three quarters.
const PLACES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_connections_of_forty_packets_fit_into_a_gigabyte() {
        let place = size_of::<Slot>();
        assert!(place <= 192, "{place}");
        // The table has 2^21 entries then, and 40 packets take five chunks.
        assert!((place + 5 * 128) * 1_000_000 + (8 << 21) < Limits::default().bytes_max);
    }
}
